"""The command `minimax-evaluate`, which `evaluate.py` also is: evaluates trained runs on held-out tasks."""

import csv
import dataclasses
import difflib
import io
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import jax
from rich.console import Console
from rich.progress import track

from minimax_lib import axes
from minimax_lib.checkpoint import CheckpointError, Checkpoints, one_line, placed, saved_updates
from minimax_lib.compilation import keep_compiled_programs
from minimax_lib.config import Config, load_yaml, to_dict
from minimax_lib.config.flags import split_flags
from minimax_lib.config.tree import Tree, build
from minimax_lib.registry import unknown_name
from minimax_lib.run_folder import RunFolder, differences
from minimax_lib.runners.build import grid_of, make_agent, make_runner
from minimax_lib.runners.devices import whole_state
from minimax_lib.runners.evaluation import EvalRunner, Evaluation, evaluation_keys
from minimax_lib.runners.report import Scores, level_scores, pooled, score_table, seed_table, task_scores, task_table
from minimax_lib.runners.robustness import SHARES, RobustProtocol, RobustRunner, level_key
from minimax_lib.train import refuse
from minimax_lib.trees import mapped

USAGE = """Evaluates trained runs on held-out tasks: a table, and a CSV file in each run's folder.
* evaluate.py --run runs/x                    the benchmark of the papers
* evaluate.py --run runs/x --tasks all --greedy
* evaluate.py --run runs/x --robust           win rate on the worst levels
* evaluate.py --run runs/x-s0 runs/x-s1       several runs, pooled as seeds"""

EPISODES_ON_TASKS, EPISODES_ON_LEVELS = 100, RobustProtocol.n_episodes
Measure = Callable[["Run", Any], Scores]  # of the parameters [S, ...] of one student of each seed of a run
POOLED = ("env", "model", "runner", "ppo", "n_updates")  # settings that must be alike in runs that are pooled as seeds


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to evaluate, on what, and how."""

    run: tuple[str, ...] = ()
    """Folders of runs; several are pooled as seeds, and must be runs of one configuration."""
    tasks: tuple[str, ...] = ("benchmark",)
    """Held-out tasks, or a group of them: benchmark (of the papers), validation, all."""
    n_episodes: int | None = None
    """Episodes on each task, for each seed; none: 100, and with --robust 10 on each level."""
    greedy: bool = False
    """Take the most likely action; otherwise actions are sampled, as in the published evaluations."""
    protocol: str | None = None
    """Published rules that the tasks follow, where there are several (AMaze: minimax, dcd); none: their default."""
    checkpoint: int | Literal["latest"] = "latest"
    """The checkpoint, by its number of updates."""
    student: int = 0
    """Which student of a population; 0 is the first (the protagonist of PAIRED)."""
    robust: bool = False
    """Instead of the tasks, play random levels that can be solved, and report the win rate on the worst of them: the
    levels are ranked by one evaluation and reported from a second (CVaR; Rutherford et al. 2024)."""
    n_levels: int = RobustProtocol.n_levels
    """Levels with --robust."""
    seed: int = 0
    """Seed of the evaluation."""

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("no run is given: name its folder, as in --run runs/my-run")
        for name in ("n_levels", "n_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        for name in ("seed", "student"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 0")

    @property
    def episodes(self) -> int:
        """Episodes on each task, or on each level."""
        return self.n_episodes or (EPISODES_ON_LEVELS if self.robust else EPISODES_ON_TASKS)

    @property
    def suite(self) -> Evaluation:
        """The evaluation on tasks."""
        return Evaluation(tasks=self.tasks, n_episodes=self.episodes, greedy=self.greedy, protocol=self.protocol)

    @property
    def robust_protocol(self) -> RobustProtocol:
        """The evaluation on random levels."""
        return RobustProtocol(self.n_levels, self.episodes)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on disk, and which of its checkpoints to take."""

    folder: RunFolder
    config: Config
    update: int | None  # None: the newest that can be read

    @property
    def results(self) -> Path:
        """Where its evaluations are kept."""
        return self.folder.path / "evaluations"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.config.seed, self.config.seed + self.config.n_seeds))


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluates, and returns the exit status; 2 after one line on stderr where what is asked for cannot be done.

    Nothing is compiled or written before all of it has been found possible.
    """
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        runs = [find_run(Path(folder), settings.checkpoint) for folder in settings.run]
        check_poolable(runs)
        check_student(runs[0], settings.student)
        runner = settings.suite.build(runs[0].config.env, make_agent(runs[0].config).agent)
    except ValueError as error:
        return refuse(error)
    try:
        keep_compiled_programs(runs[0].config.compilation_cache)
        evaluate(settings, runs, runner, Console())
    except (CheckpointError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def parse(words: Sequence[str]) -> Settings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree: Tree = dict(split_flags(words))
    return build(Settings, tree)


def show_help() -> NoReturn:
    """Prints every flag with its help and its default, and exits."""
    import tyro

    plain = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)
    default = Settings(run=("runs/my-run",))
    tyro.cli(Settings, default=default, description=USAGE, args=["--help"], use_underscores=True, config=plain)
    raise SystemExit(0)


def find_run(path: Path, checkpoint: int | Literal["latest"]) -> Run:
    """The run in the folder `path`; ValueError in one line if there is none, or not that checkpoint of it."""
    folder = RunFolder(path)
    if not path.is_dir():
        raise no_such_run(path)
    if not folder.config.exists():
        raise ValueError(f"{path} is not the folder of a run: it has no {folder.config.name}")
    updates = saved_updates(folder.checkpoints)
    if not updates:
        raise ValueError(f"{path} holds no checkpoint: there is nothing to evaluate yet")
    if checkpoint != "latest" and checkpoint not in updates:
        raise ValueError(f"{path} has no checkpoint {checkpoint}: choose from {', '.join(map(str, updates))}, latest")
    return Run(folder, load_yaml(folder.config), None if checkpoint == "latest" else checkpoint)


def no_such_run(path: Path) -> ValueError:
    """The error for a folder that does not exist, with the runs beside it whose names are nearest."""
    runs = [str(config.parent) for config in path.parent.glob("*/config.yaml")]
    nearest = difflib.get_close_matches(str(path), runs, n=5, cutoff=0.0)
    return unknown_name("run", path, nearest) if nearest else ValueError(f"run {str(path)!r} does not exist")


def check_poolable(runs: Sequence[Run]) -> None:
    """ValueError if the runs are not seeds of one configuration, each seed once."""
    folder_of: dict[int, Path] = {}
    for run in runs:
        path = run.folder.path
        for name, (one, other) in differences(to_dict(runs[0].config), to_dict(run.config)).items():
            if name.split(".")[0] in POOLED:
                raise ValueError(
                    f"{runs[0].folder.path} and {path} are not runs of one configuration: {name} is {one} and {other}"
                )
        for seed in run.seeds:
            if seed in folder_of:
                raise ValueError(f"seed {seed} is in {folder_of[seed]} and in {path}: it can be pooled only once")
            folder_of[seed] = path


def check_student(run: Run, student: int) -> None:
    """ValueError if the run has no such student."""
    n = run.config.runner.n_students
    if student >= n:
        raise ValueError(f"student is {student}: {run.folder.path} has {n}, counted from 0")


def evaluate(settings: Settings, runs: Sequence[Run], runner: EvalRunner, console: Console) -> None:
    """Plays every run, writes a file for each, and prints the tables of all of them together."""
    for run in runs:
        run.results.mkdir(exist_ok=True)  # now, rather than after the work
    measure = level_measure(settings, runs[0], runner, console) if settings.robust else task_measure(settings, runner)
    parts, files = [], []
    for run in runs:
        update, params = restore(run, console)
        parts.append(measure(run, jax.tree.map(lambda x: x[:, settings.student], params)))
        files.append(write_new(run.results, file_name(settings, update), csv_text(settings, update, parts[-1])))
    print_tables(settings, pooled(parts), console)
    for path in files:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


def restore(run: Run, console: Console) -> tuple[int, Any]:
    """(number of updates, parameters [S, A, ...]) of the run's checkpoint; CheckpointError if it cannot be read."""
    shape = whole_state(make_runner(run.config), run.config.n_seeds, grid_of(run.config))
    with Checkpoints(run.folder.checkpoints, read_only=True) as checkpoints:
        restored = checkpoints.restore(placed(shape), run.update)
    if restored is None:
        raise CheckpointError(f"{run.folder.path} holds no checkpoint any more")
    for update, why in restored.damaged.items():
        console.print(f"the checkpoint of update {update} is damaged ({why}): taking {restored.update}", soft_wrap=True)
    return restored.update, restored.state.students.params


def task_measure(settings: Settings, runner: EvalRunner) -> Measure:
    """Plays the held-out tasks."""
    evaluate = jax.jit(mapped(runner.evaluate, axis_name=axes.SEED))

    def measure(run: Run, params: Any) -> Scores:
        keys = evaluation_keys(run.seeds, settings.seed)
        return task_scores(runner.names, run.seeds, evaluate(keys, params))

    return measure


def level_measure(settings: Settings, run: Run, runner: EvalRunner, console: Console) -> Measure:
    """Plays random levels of the training distribution, the same for all runs."""
    program = RobustRunner(run.config.env, runner.agent, settings.robust_protocol, runner.choose)
    if not program.knows_solvable:
        console.print("The environment does not tell which levels can be solved: all of them are played.")

    def measure(run: Run, params: Any) -> Scores:
        show = partial(track, description=f"{settings.n_levels:,} levels, twice", console=console, transient=True)
        keys = evaluation_keys(run.seeds, settings.seed)
        return level_scores(SHARES, run.seeds, program.evaluate(level_key(settings.seed), keys, params, show))

    return measure


def print_tables(settings: Settings, scores: Scores, console: Console) -> None:
    """What was found, over all seeds and for each."""
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} episodes"
    if settings.robust:
        console.print(score_table(f"{settings.n_levels:,} random levels, {how} on each", scores))
        return
    console.print(task_table(f"Held-out tasks, {how} on each", scores))
    if len(scores.seeds) > 1:
        console.print(seed_table(scores))


def file_name(settings: Settings, update: int) -> str:
    """What a file of results is called, without its number and ending."""
    what = "robust" if settings.robust else settings.tasks[0] if len(settings.tasks) == 1 else "tasks"
    options = [*([settings.protocol] if settings.protocol else []), *(["greedy"] if settings.greedy else [])]
    options += [f"student{settings.student}"] if settings.student else []
    return "-".join([f"update{update}", what, *options])


def csv_text(settings: Settings, update: int, scores: Scores) -> str:
    """A line for each seed and task, with how its scores were measured."""
    how = {
        "update": update,
        "n_episodes": settings.episodes,
        "actions": "greedy" if settings.greedy else "sampled",
        "protocol": settings.protocol or "",
        "evaluation_seed": settings.seed,
        "student": settings.student,
    } | ({"n_levels": settings.n_levels} if settings.robust else {})
    rows = [row | how for row in scores.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_new(folder: Path, name: str, text: str) -> Path:
    """The file in `folder` that holds `text`: `name`.csv, or `name`-2.csv and so on if others are called that.

    No file is ever overwritten.
    """
    for number in itertools.count(1):
        path = folder / (f"{name}.csv" if number == 1 else f"{name}-{number}.csv")
        if not path.exists():
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
            return path
        if path.read_text(encoding="utf-8") == text:
            return path
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())
