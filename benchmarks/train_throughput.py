"""Seconds per update of every method, model and number of seeds, and the parts of an update.

    python benchmarks/train_throughput.py --out benchmarks/results/train_throughput_cpu.json
    python benchmarks/train_throughput.py --methods dr paired --models lstm s5 ff --seeds 1 8 --breakdown
    python benchmarks/train_throughput.py --devices 1 2 --seeds 1 2

Method M with an LSTM is configs/maze/M.yaml, with S5 configs/maze/s5_M.yaml. With a feed-forward network it is M.yaml
with that network. The programs are those that `train.py` runs. Devices divide the seeds if there are enough, and the
rows of a batch otherwise. Without an accelerator, they are cores.

Each program goes through three stages:

1. It is compiled (seconds, and the bytes that XLA plans for).
2. It trains until its level buffer replays.
3. Single steps are timed, in rounds in which all programs take turns. Steps with an update are timed apart from steps
   that only score levels.

`ratio` compares two programs that ran one after the other in a round: the update of one against that of the first
method. So other load on the machine affects both.

The script checks that work has been done: episodes have ended, losses are finite, parameters have moved. With
`--breakdown`, the parts of a step (propose, rollout, update, observe, metrics) are timed as separate programs, one
after another, on the same states as the whole step. `overhead` is what the whole step takes beyond its rollout and its
update.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts, keep

from minimax_lib import axes
from minimax_lib.config import Config, load_yaml
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.experiment.loop import HeldOutEvaluation
from minimax_lib.models.settings import FeedForward
from minimax_lib.runners.build import make_agent, make_program, mesh_of
from minimax_lib.runners.hosts import make_devices_of_cores
from minimax_lib.runners.training import Runner, RunnerState
from minimax_lib.trees import mapped

CONFIGS = Path(__file__).parents[1] / "configs" / "maze"
METHODS = ("dr", "robust_plr", "parallel_plr", "accel", "parallel_accel", "sfl", "paired")
MODELS = ("lstm", "s5", "ff")
NEVER = 2**30  # updates
PARTS = ("propose", "rollout", "update", "observe", "metrics")


def config_of(method: str, model: str, args: argparse.Namespace) -> Config | None:
    """The published configuration, with the sizes that were asked for. None if there is no such configuration."""
    path = CONFIGS / (f"s5_{method}.yaml" if model == "s5" else f"{method}.yaml")
    if not path.exists():
        return None
    config = load_yaml(path)
    sizes = {name: getattr(args, name) for name in ("n_parallel", "n_steps") if getattr(args, name)}
    if hasattr(config.runner, "capacity") and args.capacity:
        sizes["capacity"] = args.capacity
    if hasattr(config.runner, "n_scored") and args.n_parallel:
        sizes |= {"n_scored": 4 * args.n_parallel, "n_kept": args.n_parallel}
    # Always one rollout a batch, from a reset, so that a step is one update. A method has one of these settings.
    once = {"continue_episodes": False, "rollouts_per_batch": 1}
    sizes |= {name: value for name, value in once.items() if name in vars(config.runner)}
    config = dataclasses.replace(config, runner=dataclasses.replace(config.runner, **sizes))
    return dataclasses.replace(config, model=FeedForward()) if model == "ff" else config


def chosen(args: argparse.Namespace) -> Iterator[tuple[str, str, int, Config]]:
    """(method, model, number of seeds, configuration) of everything that was asked for and exists."""
    for method, model, n_seeds in itertools.product(args.methods, args.models, args.seeds):
        config = config_of(method, model, args)
        if config is not None:
            yield method, model, n_seeds, config


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds that the work takes until it is done, its result)."""
    start = time.perf_counter()
    result = jax.block_until_ready(work())
    return time.perf_counter() - start, result


class Trained:
    """One program, and the times of its steps."""

    def __init__(self, method: str, model: str, n_seeds: int, config: Config, n_devices: int = 1):
        n_groups = n_devices if n_seeds % n_devices == 0 else 1
        config = dataclasses.replace(config, n_seeds=n_seeds, n_devices=n_devices, n_seed_devices=n_groups)
        self.name, self.config, self.n_seeds = f"{method}/{model}/{n_seeds}/{n_devices}", config, n_seeds
        self.facts: dict[str, Any] = {"method": method, "model": model, "seeds": n_seeds, "devices": n_devices}
        self.program = make_program(config)
        self.runner: Runner = self.program.runner
        self.times: dict[str, list[float]] = {"update": [], "score": []}
        self.parts: dict[str, dict[str, list[float]]] = {"update": {}, "score": {}}
        self._compile()
        self._warm()

    def _compile(self) -> None:
        took, self.state = seconds(lambda: self.program.init(0))
        self.facts["seconds_to_compile_and_run_init"] = round(took, 2)
        took, compiled = seconds(self.program.lower(self.state).compile)
        memory = compiled.memory_analysis()
        self.facts["seconds_to_compile"] = round(took, 2)
        self.facts["megabytes"] = {
            "state": round(memory.argument_size_in_bytes / 1e6, 1),
            "temporary": round(memory.temp_size_in_bytes / 1e6, 1),
        }

    def _warm(self) -> None:
        """Trains for a few updates, until the buffer replays and everything is compiled."""
        before = jax.device_get(self.state.students.params)
        self.state, report = self.program.run(self.state, 3, 2000)
        assert int(self.state.students.n_updates.min()) >= 3, f"{self.name} has not begun to learn"
        metrics = report.metrics
        assert np.isfinite(metrics["loss"]).all(), f"{self.name}: the loss is not finite"
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), before, jax.device_get(self.state.students.params))
        assert any(jax.tree.leaves(moved)), f"{self.name} learns nothing"

    def measure(self, breakdown: bool) -> None:
        """Times one step, and its parts if they were asked for."""
        n_updates = int(self.state.students.n_updates.min())
        parts = self._time_parts() if breakdown else {}
        took, (self.state, report) = seconds(lambda: self.program.run(self.state, NEVER, 1))
        assert int(report.n_steps) == 1
        assert np.nansum(report.metrics["episodes"]) > 0, f"{self.name}: no episode ended"
        kind = "update" if int(self.state.students.n_updates.min()) > n_updates else "score"
        self.times[kind].append(took)
        for name, value in parts.items():
            self.parts[kind].setdefault(name, []).append(value if kind == "update" or name != "update" else 0.0)

    def _time_parts(self) -> dict[str, float]:
        if not hasattr(self, "_programs"):
            self._programs = part_programs(self.runner)
            run_parts(self._programs, self.state)  # compiles
        return run_parts(self._programs, self.state)

    def result(self) -> dict[str, Any]:
        """The medians, and the numbers that follow from them."""
        found = dict(self.facts)
        steps = self.runner.env_steps_per_step * self.n_seeds * self.config.n_row_devices
        for kind, times in self.times.items():
            if times:
                found[f"seconds_per_{kind}"] = round(statistics.median(times), 4)
                found[f"n_{kind}"] = len(times)
        if self.times["update"]:
            found["student_steps_per_second"] = round(steps / statistics.median(self.times["update"]))
        for kind, parts in self.parts.items():
            if parts:
                medians = {name: statistics.median(times) for name, times in parts.items()}
                work = medians["rollout"] + medians["update"]
                whole = statistics.median(self.times[kind])
                found[f"parts_of_{kind}"] = {name: round(value, 4) for name, value in medians.items()}
                found[f"overhead_of_{kind}"] = round(whole / work - 1.0, 3)
        return found


def part_programs(runner: Runner) -> dict[str, Callable[..., Any]]:
    """The parts of `runner.step`, each as a program over seeds."""

    def propose(state: RunnerState) -> Any:
        shared, local = runner.keys(state)
        k_propose = jax.random.split(local, 4)[0]
        clock = axes.common(state.clock)
        return runner.curriculum.propose(shared, k_propose, clock, state.curriculum, runner.students(state))

    def play(state: RunnerState, batch: Any) -> Any:
        return runner.students(state).play(jax.random.split(runner.keys(state)[1], 4)[1], batch).runs

    def update(state: RunnerState, batch: Any, runs: Any) -> Any:
        key = jax.random.split(runner.keys(state)[1], 4)[2]
        return runner._update(key, state.students, runs, axes.common(batch.train.astype(jnp.int32)) > 0)

    def observe(state: RunnerState, curriculum: Any, batch: Any, runs: Any) -> Any:
        key = jax.random.split(runner.keys(state)[1], 4)[3]
        outcome = RolloutOutcome(runner.agent, state.students.params, runs)
        return runner.curriculum.observe(key, axes.common(state.clock), curriculum, batch, outcome)

    def metrics(state: RunnerState, batch: Any, runs: Any) -> Any:
        return runner._level_game_metrics(batch, RolloutOutcome(runner.agent, state.students.params, runs))

    functions = {"propose": propose, "rollout": play, "update": update, "observe": observe, "metrics": metrics}
    return {name: jax.jit(mapped(function, axis_name=axes.SEED)) for name, function in functions.items()}


def run_parts(programs: dict[str, Callable[..., Any]], state: RunnerState) -> dict[str, float]:
    """Seconds of each part of the next step."""
    found = {}
    found["propose"], (curriculum, batch) = seconds(lambda: programs["propose"](state))
    found["rollout"], runs = seconds(lambda: programs["rollout"](state, batch))
    found["update"], _ = seconds(lambda: programs["update"](state, batch, runs))
    found["observe"], _ = seconds(lambda: programs["observe"](state, curriculum, batch, runs))
    found["metrics"], _ = seconds(lambda: programs["metrics"](state, batch, runs))
    return found


def evaluation_share(trained: Trained) -> dict[str, Any]:
    """Seconds of an evaluation of the whole suite, and their share of an interval of training."""
    found = {}
    per_update = statistics.median(trained.times["update"])
    for name, tasks in (("during training", trained.config.eval.tasks), ("benchmark", ("benchmark",))):
        settings = dataclasses.replace(trained.config.eval, tasks=tasks)
        eval_runner = settings.build(trained.config.env, make_agent(trained.config).agent)
        held_out = HeldOutEvaluation(eval_runner, trained.config, mesh_of(trained.config))
        evaluate = functools.partial(held_out.evaluate, 0, trained.state.students.params)
        took = [seconds(evaluate)[0] for _ in range(4)][1:]
        share = statistics.median(took) / (settings.every * per_update)
        found[name] = {"seconds": round(statistics.median(took), 3), "share_of_training": round(share, 4)}
    return found


def programs(args: argparse.Namespace) -> list[Trained]:
    found = []
    for method, model, n_seeds, config in chosen(args):
        for n_devices in args.devices:
            print(f"compiling {method}/{model}/{n_seeds}/{n_devices}", flush=True)
            found.append(Trained(method, model, n_seeds, config, n_devices))
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown."""
    titles = (
        "method",
        "model",
        "seeds",
        "devices",
        "seconds/update",
        "seconds/scoring step",
        "student steps/s",
        "compile",
        "MB",
    )
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        cells = [row["method"], row["model"], row["seeds"], row["devices"]]
        cells += [row.get("seconds_per_update"), row.get("seconds_per_score")]
        cells += [row.get("student_steps_per_second"), row["seconds_to_compile"], sum(row["megabytes"].values())]
        lines.append("| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def parser_of_programs(description: str | None) -> argparse.ArgumentParser:
    """A parser with the flags that say what is trained."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["lstm"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--n-parallel", type=int, help="rows, instead of the published 32")
    parser.add_argument("--n-steps", type=int, help="steps of a rollout, instead of the published 256")
    parser.add_argument("--capacity", type=int, help="slots of the level buffer, instead of the published 4,000")
    parser.add_argument("--out", type=Path, help="file for the results as JSON, kept up to date as they come")
    return parser


def main() -> None:
    parser = parser_of_programs(__doc__)
    parser.add_argument("--devices", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=10, help="number of single steps of each program that are timed")
    parser.add_argument("--breakdown", action="store_true", help="time the parts of a step too")
    parser.add_argument("--no-evaluation", action="store_true", help="leave out what an evaluation takes")
    args = parser.parse_args()
    if args.breakdown and max(args.devices) > 1:
        parser.error("--breakdown times the parts of a step on one device: leave --devices out")

    make_devices_of_cores(max(args.devices))
    facts = environment_facts()
    trained = programs(args)
    for i in range(args.rounds):
        for one in trained:
            one.measure(args.breakdown)
        result = {"benchmark": "train_throughput", **facts, "rounds": i + 1, "rows": rows_of(trained)}
        keep(args.out, result)  # so that a run that is cut off keeps its measurements
    if not args.no_evaluation:
        result |= {"evaluation_of": trained[0].name, "evaluation": evaluation_share(trained[0])}
        print(json.dumps(result["evaluation"]))
    keep(args.out, result | {"load_after": environment_facts()["load"]})
    print(table(result["rows"]))


def rows_of(trained: Sequence[Trained]) -> list[dict[str, Any]]:
    """The results of each program, with `ratio` to the first."""
    rows, base = [one.result() for one in trained], trained[0].times["update"]
    for row, one in zip(rows, trained, strict=True):
        pairs = list(zip(one.times["update"], base, strict=False))
        row["ratio"] = round(statistics.median(a / b for a, b in pairs), 3) if pairs else None
    return rows


if __name__ == "__main__":
    main()
