"""What stale values do to PLR: scores reach the curriculum K updates late, and how many levels are solved then.

    python benchmarks/stale_replay.py --out benchmarks/results/stale_replay_cpu.json
    python benchmarks/plot.py benchmarks/results/stale_replay_cpu.json

A training whose curriculum runs elsewhere is told late what its levels were worth: results wait in queues, or values
come from old parameters. Here the delay is exact, and all else is the same program. Only what attempts have shown is
late. That a level has been played is known at once, so the ages in PLR's weights are those of a run without delay.

Each delay is one run with all seeds in one program; runs that exist are not trained again. This file is also the plugin
that those runs load: `minimax-train --plugins benchmarks.stale_replay --runner tasks --runner.core late_plr`.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks import Results, TaskCurriculum
from minimax_lib.tasks.registry import TASK_CURRICULA, ListedPLRSettings


class LateState(struct.PyTreeNode):
    inner: Any
    waiting: Results  # [K, M], of the last K updates
    n_updates: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Late:
    """`inner`, which is told of the `n_results` attempts of an update only `delay` updates later."""

    inner: Any
    delay: int
    n_results: int

    @property
    def n_tasks(self) -> int:
        return self.inner.n_tasks

    @property
    def reads_scores(self) -> bool:
        return self.inner.reads_scores

    def init(self, key: jax.Array) -> LateState:
        shape = (self.delay, self.n_results)
        number, nothing = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
        waiting = Results(
            task=jnp.zeros(shape, jnp.int32),
            valid=nothing,
            progress=number,
            returns=number,
            length=jnp.zeros(shape, jnp.int32),
            episode=nothing,
            episode_return=number,
            score=jnp.full(shape, jnp.nan, jnp.float32),
        )
        return LateState(self.inner.init(key), waiting, jnp.zeros((), jnp.int32))

    def sample(self, key: jax.Array, state: LateState, n: int) -> jax.Array:
        return self.inner.sample(key, state.inner, n)

    def started(self, state: LateState, tasks: jax.Array, valid: jax.Array) -> LateState:
        return state.replace(inner=self.inner.started(state.inner, tasks, valid))

    def update(self, state: LateState, results: Results) -> LateState:
        if not self.delay:
            return state.replace(inner=self.inner.update(state.inner, results))
        if results.task.size != self.n_results:
            raise ValueError(f"runner.core.n_results is {self.n_results}: it must be {results.task.size}, rows x steps")
        place = state.n_updates % self.delay
        oldest = jax.tree.map(lambda x: x[place], state.waiting)
        waiting = jax.tree.map(lambda x, new: x.at[place].set(new), state.waiting, results)
        return LateState(self.inner.update(state.inner, oldest), waiting, state.n_updates + 1)

    def weights(self, state: LateState) -> jax.Array:
        return self.inner.weights(state.inner)

    def report(self, state: LateState) -> dict[str, jax.Array]:
        return self.inner.report(state.inner)


@dataclasses.dataclass(frozen=True)
class LateSettings(ListedPLRSettings):
    """PLR that is told of attempts some updates late."""

    delay: int = 0
    """Updates between an attempt and its report."""
    n_results: int = 2048
    """Rows times steps of a rollout."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        if self.delay < 0:
            raise ValueError(f"runner.core.delay is {self.delay}: it must be at least 0")
        return Late(super().build(n_tasks), self.delay, self.n_results)


TASK_CURRICULA.register("late_plr", LateSettings)


def main() -> None:
    import learning_curves  # beside this file; not there for a run that loads the plugin
    from common import environment_facts, keep

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/grid/small_plr.yaml")
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 1, 4, 16, 64])
    parser.add_argument("--flags", default="", help="more flags of minimax-train, for every run")
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--log-dir", type=Path, default=Path("runs/stale_replay"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    core = "--plugins benchmarks.stale_replay --runner.core late_plr --runner.core.temperature 0.1"
    core += " --runner.core.staleness 0.3"  # those of the configuration, which names another core
    rows = []
    result = {"benchmark": "stale_replay", **environment_facts(), "config": args.config, "flags": args.flags}
    for delay in args.delays:
        flags = f"{core} --runner.core.delay {delay} {args.flags}"
        run = learning_curves.train(f"delay-{delay}", flags, args)
        metrics = learning_curves.read_table(run / "metrics.csv")[1]
        row = {"delay": delay, "solved_rate": learning_curves.spans(metrics, "solved_rate")}
        row["solved_on_tasks_at_end"] = learning_curves.solved_at_end(learning_curves.read_table(run / "eval.csv")[1])
        rows.append(row)
        print(json.dumps(row))
        keep(args.out, result | {"rows": rows})


if __name__ == "__main__":
    main()
