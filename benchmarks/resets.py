"""What is saved by resetting only the rows that ended: `python benchmarks/resets.py [--out FILE]`.

There are two toy environments with large worlds: terrain of 512 x 512 numbers (1 MB) of smoothed noise. A step looks at
9 x 9 of them.

* `made by the reset`: the reset makes the terrain from its key, and each step digs in it. The level is only the length
  of the episode.
* `part of the level`: the level holds its terrain.

Episodes take 50 to 150 steps. Each is followed by one on a fresh level. Each environment is run with several values of
`resets_at_once`, and without: there, all rows are reset in every step, from a stock of levels that is drawn before the
timing starts. The programs take turns, and the fastest of their turns counts. `memory` is the compiler's plan: the
state, its stock, and everything else that lives during a step.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import environment_facts
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.restarts import FreshLevels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.playing.rollout import scan_restocked

SIDE, SIGHT = 512, 9


@struct.dataclass
class Level:
    length: jax.Array  # i32[], steps of an episode
    terrain: Any  # f32[SIDE, SIDE]; () if the reset makes it


@struct.dataclass
class State:
    level: Level
    terrain: jax.Array
    pos: jax.Array
    clock: jax.Array


def smooth_noise(key: jax.Array) -> jax.Array:
    """f32[SIDE, SIDE]."""
    noise = jax.random.uniform(key, (SIDE, SIDE))
    return (noise + sum(jnp.roll(noise, shift, axis) for shift in (-1, 1) for axis in (0, 1))) / 5.0


def random_length(key: jax.Array) -> jax.Array:
    return jax.random.randint(key, (), 50, 151, jnp.int32)


@dataclasses.dataclass(frozen=True)
class Made(Environment):
    """The reset makes the terrain."""

    max_steps: int = 150
    observation_space = Box(-150.0, 1.0, (SIGHT, SIGHT))
    action_space = Discrete(4)

    def sample_level(self, key: jax.Array) -> Level:
        return Level(length=random_length(key), terrain=())

    def terrain(self, key: jax.Array, level: Level) -> jax.Array:
        return smooth_noise(key)

    def reset(self, key: jax.Array, level: Level) -> tuple[State, TimeStep]:
        k_pos, k_terrain = jax.random.split(key)
        pos = jax.random.randint(k_pos, (2,), 0, SIDE - SIGHT, jnp.int32)
        terrain = self.terrain(k_terrain, level)
        state = State(level=level, terrain=terrain, pos=pos, clock=jnp.zeros((), jnp.int32))
        return state, opening(self.observe(state))

    def step(self, key: jax.Array, state: State, action: jax.Array) -> tuple[State, TimeStep]:
        move = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]], jnp.int32)[action]
        pos = (state.pos + move) % (SIDE - SIGHT)
        state = dataclasses.replace(state, terrain=self.dug(state.terrain, pos), pos=pos, clock=state.clock + 1)
        return state, transition(
            self.observe(state), state.clock, state.clock >= state.level.length, jnp.zeros((), bool)
        )

    def dug(self, terrain: jax.Array, pos: jax.Array) -> jax.Array:
        return terrain.at[pos[0], pos[1]].add(-1.0)

    def observe(self, state: State) -> jax.Array:
        return jax.lax.dynamic_slice(state.terrain, state.pos, (SIGHT, SIGHT))

    def get_level(self, state: State) -> Level:
        return state.level

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        return {}


@dataclasses.dataclass(frozen=True)
class Kept(Made):
    """The terrain is part of the level, and does not change."""

    def sample_level(self, key: jax.Array) -> Level:
        k_length, k_terrain = jax.random.split(key)
        return Level(length=random_length(k_length), terrain=smooth_noise(k_terrain))

    def terrain(self, key: jax.Array, level: Level) -> jax.Array:
        return level.terrain

    def dug(self, terrain: jax.Array, pos: jax.Array) -> jax.Array:
        return terrain


@dataclasses.dataclass(frozen=True)
class MadeInGroups(Made):
    resets_at_once: int = 8


@dataclasses.dataclass(frozen=True)
class KeptInGroups(Kept):
    resets_at_once: int = 8


def batches(sizes: list[int]) -> dict[tuple[str, str], BatchEnv]:
    """Environments by (where the world comes from, what is reset)."""
    found = {}
    for n in (0, *sizes):
        how = f"groups of {n}" if n else "all rows"
        made, kept = (MadeInGroups(resets_at_once=n), KeptInGroups(resets_at_once=n)) if n else (Made(), Kept())
        found["made by the reset", how] = BatchEnv(made, restart=FreshLevels(made.sample_level))
        found["part of the level", how] = BatchEnv(kept, restart=FreshLevels(kept.sample_level))
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def compiled(batch: BatchEnv, n_rows: int, n_steps: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two compiled functions. start: key -> state. run: (key, state) -> (state, episodes that ended, checksum)."""

    def start(key: jax.Array) -> Any:
        # Rows start at different times of their first episode, as in a long run.
        levels = jax.vmap(batch.env.sample_level)(jax.random.split(key, n_rows))
        first = jax.random.randint(key, (n_rows,), 1, 101, jnp.int32)
        return batch.reset(key, dataclasses.replace(levels, length=first))[0]

    def run(key: jax.Array, state: Any) -> Any:
        def one_step(loop: tuple, key: jax.Array) -> tuple[tuple, Any]:
            k_action, k_step = jax.random.split(key)
            state, ts = batch.step_stocked(k_step, loop[0], jax.random.randint(k_action, (1, n_rows), 0, 4, jnp.int32))
            return (state,), (ts.done.sum(), ts.obs.sum())

        (state,), (ended, seen) = scan_restocked(batch, one_step, (state,), jax.random.split(key, n_steps))
        return state, ended.sum(), seen.sum()

    key = jax.random.key(0)
    state = jax.eval_shape(start, key)
    return jax.jit(start), jax.jit(run, donate_argnums=1).lower(key, state).compile()


def milliseconds(start: Callable[..., Any], run: Callable[..., Any], n_steps: int) -> tuple[float, int]:
    """(milliseconds of a step of all rows, number of episodes that ended)."""
    state = jax.block_until_ready(start(jax.random.key(1)))
    before = time.perf_counter()
    _, ended, _ = jax.block_until_ready(run(jax.random.key(2), state))
    return 1e3 * (time.perf_counter() - before) / n_steps, int(ended)


def megabytes(run: Any) -> float:
    plan = run.memory_analysis()
    return (plan.argument_size_in_bytes + plan.temp_size_in_bytes) / 2**20


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    programs = {name: compiled(batch, args.rows, args.steps) for name, batch in batches(args.sizes).items()}
    best, ended = dict.fromkeys(programs, float("inf")), {}
    for _ in range(args.turns):
        for name, program in programs.items():
            took, ended[name] = milliseconds(*program, args.steps)
            best[name] = min(best[name], took)
    for name, n in ended.items():
        assert n == ended[name[0], "all rows"] > 0, "the ways of resetting do not play the same episodes"
    return [
        {
            "world": name[0],
            "reset": name[1],
            "milliseconds a step": round(best[name], 2),
            "times faster": round(best[name[0], "all rows"] / best[name], 1),
            "memory (MB)": round(megabytes(program[1])),
            "episodes": ended[name],
        }
        for name, program in programs.items()
    ]


def page(rows: list[dict[str, Any]], args: argparse.Namespace, facts: dict[str, Any]) -> str:
    """The results as Markdown."""
    sizes = " ".join(map(str, args.sizes))
    head = [
        "# Resets of large worlds on a CPU",
        "",
        f"`python benchmarks/resets.py --rows {args.rows} --steps {args.steps} --sizes {sizes}`: worlds of 1 MB,",
        f"episodes of 50 to 150 steps, the fastest of {args.turns} turns; jax {facts['versions']['jax']},",
        f"{facts['processor']}, {facts['device']}, load {facts['load'][0]} when it began,",
        f"at revision {facts['revision']}.",
        "",
    ]
    table = [list(rows[0]), ["---"] * len(rows[0]), *([str(x) for x in row.values()] for row in rows)]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in table)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="steps of one turn")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16], help="rows of a group")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the results as Markdown")
    args = parser.parse_args()
    facts = environment_facts()
    text = page(measured(args), args, facts)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
