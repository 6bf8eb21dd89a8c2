"""The cost of a batch in the level buffer.

    python benchmarks/level_buffer.py [--batches 32 256 2048] [--repeats 20] > benchmarks/results/level_buffer.json

For a full buffer of mazes and each batch size, milliseconds of

* replay: draw a batch, and put it back with new scores
* new: put in a batch of new levels, whose scores are spread like those in the buffer
* worst: put in a batch whose scores all evict a level, which no real batch does

`growth` is the cost of the largest batch divided by that of the smallest. The programs take turns, and the fastest of
their turns counts.
"""

import argparse
import functools
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
from common import environment_facts

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.level_buffer import LevelBuffer, ReplaySettings
from minimax_lib.envs.maze import AMaze

ENV = AMaze()


def random_levels(key: jax.Array, n: int) -> Any:
    return jax.vmap(ENV.sample_level)(jax.random.split(key, n))


def insert(
    settings: ReplaySettings, buffer: LevelBuffer, levels: Any, slots: jax.Array, scores: jax.Array
) -> LevelBuffer:
    rows = level_buffer.locate(settings, buffer, levels, slots)
    best = level_buffer.best_returns(buffer, rows, scores)
    return level_buffer.insert(settings, buffer, rows, scores, best, jnp.zeros_like(slots))


def new(settings: ReplaySettings, buffer: LevelBuffer, levels: Any, scores: jax.Array) -> LevelBuffer:
    return insert(settings, buffer, levels, jnp.full(len(scores), -1, jnp.int32), scores)


def replay(settings: ReplaySettings, buffer: LevelBuffer, key: jax.Array, scores: jax.Array) -> LevelBuffer:
    buffer, slots = level_buffer.sample(key, settings, buffer, len(scores))
    return insert(settings, buffer, level_buffer.levels_at(buffer, slots), slots, scores)


def full_buffer(settings: ReplaySettings) -> LevelBuffer:
    """A buffer of random mazes with normal scores, after some replay."""
    k_level, k_levels, k_scores, k_draws = jax.random.split(jax.random.key(0), 4)
    buffer = level_buffer.init(ENV.sample_level(k_level), settings.capacity)
    scores = jax.random.normal(k_scores, (settings.capacity,))
    buffer = new(settings, buffer, random_levels(k_levels, settings.capacity), scores)
    return level_buffer.sample(k_draws, settings, buffer, 10 * settings.capacity)[0]


def programs(settings: ReplaySettings, buffer: LevelBuffer, n: int) -> dict[str, tuple]:
    """By kind, a compiled function of a buffer (which it overwrites), with its other arguments."""
    k_levels, k_scores, k_draws = jax.random.split(jax.random.key(1), 3)
    levels, scores = random_levels(k_levels, n), jax.random.normal(k_scores, (n,))
    rising = buffer.scores.max() + jnp.arange(1.0, n + 1.0)
    put, draw = (jax.jit(functools.partial(f, settings), donate_argnums=0) for f in (new, replay))
    return {"replay": (draw, k_draws, scores), "new": (put, levels, scores), "worst": (put, levels, rising)}


def milliseconds(program: tuple, buffer: LevelBuffer) -> float:
    """One call on a copy of `buffer`."""
    function, *arguments = program
    copy = jax.block_until_ready(jax.tree.map(jnp.copy, buffer))
    start = time.perf_counter()
    jax.block_until_ready(function(copy, *arguments))
    return 1e3 * (time.perf_counter() - start)


def measured(settings: ReplaySettings, batches: list[int], repeats: int) -> dict[str, Any]:
    """Milliseconds for each batch size and kind, and their growth."""
    buffer = jax.jit(functools.partial(full_buffer, settings))()
    by_size = {n: programs(settings, buffer, n) for n in batches}
    best = {n: {kind: float("inf") for kind in kinds} for n, kinds in by_size.items()}
    for turn in range(repeats + 1):
        for n, kinds in by_size.items():
            for kind, program in kinds.items():
                spent = milliseconds(program, buffer)
                best[n][kind] = min(best[n][kind], spent) if turn else best[n][kind]  # the first turn compiles
    least, most = best[min(batches)], best[max(batches)]
    return {
        "prioritisation": settings.prioritisation,
        "unique": settings.unique,
        "milliseconds": {n: {kind: round(ms, 3) for kind, ms in row.items()} for n, row in best.items()},
        "growth": {kind: round(most[kind] / least[kind], 2) for kind in least},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacity", type=int, default=4000)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 256, 2048])
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()

    cases = [("rank", True), ("rank", False), ("proportional", True), ("greedy", True)]
    results = [
        measured(ReplaySettings(args.capacity, prioritisation, unique=unique), args.batches, args.repeats)
        for prioritisation, unique in cases
    ]
    print(json.dumps({"capacity": args.capacity, "results": results, **environment_facts()}, indent=2))


if __name__ == "__main__":
    main()
