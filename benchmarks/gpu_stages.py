"""The stages of gpu.py, in their order, at their full sizes and at tiny ones."""

import argparse
import dataclasses
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import TO_SAVE, Stage

METHODS = ("dr", "robust_plr", "parallel_plr", "accel", "parallel_accel", "paired")
LONGEST = 8.0  # minutes of a stage that does not resume: it must fit in a call of nine
LEAST = 1.5  # minutes that are worth the start of a training
SEVERAL_SEEDS_SAVE = 100.0  # seconds: an interval of PAIRED with ten seeds must end first
GRAPHS = {  # what XLA puts into CUDA graphs: nothing, or more than by default
    "none": "",
    "loops": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large everything is. Tuples of words are flags, or values of one."""

    estimate: float = 1.0  # times the estimate of every stage
    program: tuple[str, ...] = ()  # of every training program that is only timed
    agreement: tuple[str, ...] = ()
    env_short: tuple[str, ...] = (
        *("1024", "32768", "1048576", "--steps", str(2**22), "--repeats", "3", "--only-published"),
    )
    env_few: tuple[str, ...] = ("1", "32", "256", "--steps", str(2**20), "--repeats", "3", "--only-published")
    env_many: tuple[str, ...] = ("1024", "4096", "65536", "262144", "1048576", "--steps", str(2**26), "--repeats", "3")
    methods: tuple[str, ...] = ("dr", "robust_plr")  # that are timed where one of a kind is enough
    groups: tuple[tuple[str, ...], ...] = (
        ("dr", "robust_plr", "parallel_plr"),
        ("accel", "parallel_accel", "sfl"),
        ("paired",),
    )
    models: tuple[str, ...] = ("lstm", "s5", "ff")
    one_model: str = "lstm"
    few_seeds: tuple[str, ...] = ("1", "10")
    seeds: tuple[str, ...] = ("1", "2", "4", "8", "16", "32", "64")
    rows: tuple[str, ...] = ("32", "128", "512", "2048")
    memory: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ("dr", "robust_plr", "paired")
    gaps_models: tuple[str, ...] = ("lstm", "s5")
    run: tuple[str, ...] = ("--eval.every", "1000", "--checkpoint-every", "1000")
    buffer: tuple[str, ...] = ()
    teacher: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("benchmark",)
    study: tuple[str, ...] = ()
    worlds: tuple[str, ...] = ("64", "256", "1024")  # of Neural MMO
    world: tuple[str, ...] = ("--preset", "medium", "--ticks", "128")
    world_training: tuple[str, ...] = ()
    # Short trainings of other worlds: name, configuration, updates and flags.
    short: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
        ("gridworld", "grid/multi_room_plr", 12, ("--ppo.n-chunks", "1")),
        ("lasertag", "lasertag/fsp_dr", 39, ()),  # a batch has 13 updates
        ("walker_16", "walker/dr", 12, ()),
        ("walker_1024", "walker/dr", 12, ("--runner.n-parallel", "1024", "--runner.n-steps", "256")),
    )
    # Their trainings to the end: name, configuration, updates, seeds, and the suite of the evaluation.
    results: tuple[tuple[str, str, int, int, str], ...] = (
        ("walker_accel", "walker/accel", 20_000, 3, "benchmark"),
        ("walker_dr", "walker/dr", 20_000, 3, "benchmark"),
        ("multi_room_plr", "grid/multi_room_plr", 6_100, 10, "multi_room"),
        ("multi_room_uniform", "grid/multi_room_uniform", 6_100, 10, "multi_room"),
    )


FULL = Sizes()
# As few different programs as possible: most of a small stage is compiling.
TINY_EVALUATION = ("--eval.every", "50", "--eval.tasks", "TrainingDistribution", "--eval.n-episodes", "2")
TINY_SPEED = ("4", "--steps", "1024", "--repeats", "1", "--only-published")
SMALL = Sizes(
    estimate=0.2,
    program=("--n-parallel", "4", "--capacity", "64"),
    agreement=("--precisions", "default"),
    env_short=TINY_SPEED,
    env_few=TINY_SPEED,
    env_many=TINY_SPEED,
    methods=("dr",),
    groups=(("dr",),),
    models=("ff",),
    one_model="ff",
    few_seeds=("1", "2"),
    seeds=("1", "2"),
    rows=("4",),
    memory=("--sizes", "4", "--chunks", "1"),
    gaps=("dr",),
    gaps_models=("ff",),
    run=("--model", "ff", "--runner.n-parallel", "4", "--checkpoint-every", "50", *TINY_EVALUATION),
    buffer=("--runner.capacity", "24", "--runner.min-fill", "0.25"),
    teacher=("--runner.teacher.model.memory-width", "16", "--runner.teacher.model.conv-filters", "8"),
    tasks=("TrainingDistribution", "--n-episodes", "4"),
    study=(
        *("--methods", "dr", "--rows", "4", "8", "--lrs", "1e-4", "--n-seeds", "2", "--env-steps", "20000"),
        *("--least-updates", "20", "--tasks", "TrainingDistribution", "--more", "--model ff --eval.n-episodes 2"),
    ),
    worlds=("2",),
    world=("--preset", "mini", "--ticks", "8"),
    world_training=(
        "--env.preset",
        "mini",
        "--env.task-set",
        "stages",
        "--model.size",
        "tiny",
        "--ppo.n-minibatches",
        "1",
    ),
    short=(("lasertag", "lasertag/fsp_dr", 30, ("--runner.n-parallel", "4", "--runner.n-steps", "20")),),
    results=(),
)


def all_stages(args: argparse.Namespace) -> list[Stage]:
    """All stages, in order."""
    sizes = SMALL if args.small else FULL
    found = [*telling(sizes), *trained(args, sizes, "one_seed", "dr", 1, 20), *the_rest(sizes)]
    for model in args.models:
        for method in args.methods:
            name = method if model == "lstm" else f"s5_{method}"
            found += trained(args, sizes, name, name, args.seeds, 50)
    for name, config, n_updates, n_seeds, suite in sizes.results:
        found += run_and_evaluation(sizes, name, config, n_seeds, n_updates, ("--log-every", "20"), (suite,))
    return [*found, batch_size(sizes)]


def measured(sizes: Sizes, name: str, script: str, minutes: float, *words: str, **more: Any) -> Stage:
    """A stage that runs one of the scripts here, and leaves NAME.json."""
    words = (f"benchmarks/{script}", *words, "--out", f"{{out}}/{name}.json")
    return Stage(name, words, f"{name}.json", sizes.estimate * minutes, **more)


def telling(sizes: Sizes) -> Iterator[Stage]:
    """The stages that come first: a few minutes each. Each finds programs that those before have compiled."""
    stage = functools.partial(measured, sizes)
    methods, model = ("--methods", *sizes.methods, *sizes.program), sizes.one_model
    words = (*methods, "--models", model, "--seeds", *sizes.few_seeds)
    yield stage("agreement", "agreement.py", 2.5, *methods, "--model", model, *sizes.agreement, shows=20)
    yield stage("env_short", "env_throughput.py", 1.5, "--sizes", *sizes.env_short, shows=10)
    yield stage("train_short", "train_throughput.py", 2.5, *words, "--no-evaluation", shows=6)
    yield stage("gaps_short", "gaps.py", 1.5, *words, shows=4)


def the_rest(sizes: Sizes) -> Iterator[Stage]:
    """The rest of the speed of the environment and of training."""
    stage, train = functools.partial(measured, sizes), "train_throughput.py"
    yield stage("env_few", "env_throughput.py", 6, "--sizes", *sizes.env_few)
    yield stage("env_many", "env_throughput.py", 7, "--sizes", *sizes.env_many)
    for model in sizes.models:
        for group in sizes.groups:
            words = ("--methods", *group, "--models", model, *sizes.program, "--breakdown")
            yield stage(f"train_{model}_{group[0]}", train, 2.5 * len(group), *words)
    one = ("--models", sizes.one_model, *sizes.program, "--no-evaluation")
    for method in sizes.methods:
        yield stage(f"train_seeds_{method}", train, 7, "--methods", method, *one, "--seeds", *sizes.seeds)
    for n in sizes.rows:
        # The last value of a flag counts.
        yield stage(f"train_batch_{n}", train, 3, "--methods", *sizes.methods, *one, "--n-parallel", n)
    for model in sizes.models:
        yield stage(f"memory_{model}", "memory.py", 6, "--models", model, *sizes.memory)
    yield stage("floor", "floor.py", 1.5)
    for model in sizes.gaps_models:
        words = ("--methods", *sizes.gaps, "--models", model, *sizes.program, "--seeds", *sizes.few_seeds)
        yield stage(f"gaps_{model}", "gaps.py", 7, *words)
    for n in sizes.worlds:
        yield stage(f"nmmo_{n}", "nmmo.py", 4, "--whole", "--worlds", n, *sizes.world)
        flags = ("--runner.n-parallel", n, *sizes.world_training)
        yield short_training(sizes, f"nmmo_training_{n}", "nmmo/competition", 12, flags)
    for name, config, n_updates, flags in sizes.short:
        yield short_training(sizes, f"training_{name}", config, n_updates, flags)
    for name, kinds in GRAPHS.items():
        xla_flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer={kinds}".strip()
        yield stage(f"graphs_{name}", train, 2.5, "--methods", "dr", *one, environment={"XLA_FLAGS": xla_flags})


def trained(
    args: argparse.Namespace, sizes: Sizes, name: str, config: str, n_seeds: int, log_every: int
) -> Iterator[Stage]:
    """The training of a published configuration of the maze, then its evaluation on the benchmark."""
    method = config.removeprefix("s5_")
    group = sizes.teacher if method == "paired" else sizes.buffer if method != "dr" else ()
    flags = ("--log-every", str(log_every), *sizes.run, *group)
    yield from run_and_evaluation(sizes, name, f"maze/{config}", n_seeds, args.n_updates, flags, sizes.tasks)


def run_and_evaluation(
    sizes: Sizes, name: str, config: str, n_seeds: int, n_updates: int, flags: tuple[str, ...], tasks: tuple[str, ...]
) -> Iterator[Stage]:
    """A training that goes on with every call, then the evaluation of its last checkpoint."""
    words = (*training(name, config), "--n-seeds", str(n_seeds), "--n-updates", str(n_updates), *flags)
    yield Stage(
        name,
        (*words, "--keep-checkpoints", "1"),
        f"runs/{name}/metrics.csv",
        sizes.estimate * LEAST,
        resumes=True,
        progress=functools.partial(updates_of, name, n_updates),
        to_save=SEVERAL_SEEDS_SAVE if n_seeds > 1 else TO_SAVE,
    )
    evaluate = ("evaluate.py", "--run", f"{{out}}/runs/{name}", "--tasks", *tasks)
    done = f"runs/{name}/evaluations"
    yield Stage(f"{name}_evaluation", evaluate, done, sizes.estimate * 3, after=name, shows=20)


def short_training(sizes: Sizes, name: str, config: str, n_updates: int, flags: tuple[str, ...]) -> Stage:
    """A few updates: their steps a second are in the table of the run, those of agents where there are several."""
    words = (*training(name, config), "--n-updates", str(n_updates), "--log-every", str(n_updates // 3), *flags)
    return Stage(name, words, f"runs/{name}/metrics.csv", sizes.estimate * 6)


def training(name: str, config: str) -> tuple[str, ...]:
    """The command of a training, as far as all have it."""
    return ("train.py", "--config", config, "--log-dir", "{out}/runs", "--name", name, "--resume", "--no-report")


def updates_of(name: str, n_updates: int, out: Path) -> str:
    """How far a training is, from its table. Empty if it has not begun."""
    path = out / "runs" / name / "metrics.csv"
    lines = path.read_text().splitlines() if path.exists() else []
    if len(lines) < 2:
        return ""
    update = dict(zip(lines[0].split(","), lines[-1].split(","), strict=False))["update"]
    return f"update {int(update):,} of {n_updates:,}"


def batch_size(sizes: Sizes) -> Stage:
    """The study of batch sizes."""
    words = ("benchmarks/batch_size.py", "--runs", "{out}/runs/batch_size", "--out", "{out}/batch_size.json")
    return Stage(
        "batch_size",
        (*words, *sizes.study),
        "batch_size.json",
        sizes.estimate * LEAST,
        resumes=True,
        shows=30,
        progress=cells_of,
    )


def cells_of(out: Path) -> str:
    """How far the study of batch sizes is. Empty if it has not begun."""
    path = out / "batch_size.json"
    return f"{len(json.loads(path.read_text())['rows'])} cells" if path.exists() else ""
