"""The least memory that a run or an evaluation takes, worked out from shapes alone, and how much memory there is."""

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from minimax_lib.envs.base import Environment
from minimax_lib.envs.registry import make_held_out
from minimax_lib.runners.seeds import Program

STEP_BYTES = 16  # of experience in each row: at least an action, its probability, a value and a reward
EPISODE_BYTES = 9  # of an evaluation, whose episodes all run side by side: return, length, whether solved
EDIT_BYTES = 4  # of a mutation: at least one random number for each edit
RATE_BYTES = 8  # of a level of the robust protocol: a solved rate in each of two evaluations
GIB = 2**30


def check_memory(config: Any, program: Program) -> None:
    """ValueError if all memory together could not hold the least that the run of `program` needs.

    A run that passes may still be too large, since observations and gradients are not counted. Nothing is allocated.
    """
    _check_fits("run", least_bytes(config, program), available(config.device_count))


def least_bytes(config: Any, program: Program) -> dict[str, int]:
    """The parts of the run's memory, in bytes. Each part is named after the settings that decide it."""
    state, runner = program.shape, program.runner
    rollout = runner.agent.n * runner.n_rows * config.n_row_devices * config.n_seeds * runner.n_steps * STEP_BYTES
    students, rest = size(state.students), size(state)
    parts = {
        "the students (--model, --runner.n-students, --n-seeds)": students,
        "the curriculum (--runner.capacity, --runner.n-parallel, --env, --n-seeds)": rest - students,
        "a rollout (--runner.n-parallel, --runner.n-evals, --runner.n-steps, --n-seeds)": rollout,
    }
    # They exist only while levels are scored or edited, so that the state does not show them.
    levels = level_bytes(config.env) * config.n_seeds
    n_drawn = config.runner.levels_per_batch
    parts["the levels of a batch (--runner.n-parallel, --runner.levels-per-row, --env, --n-seeds)"] = n_drawn * levels
    for n_scored in values_of(config.runner, "n_scored"):
        parts["the levels of a scoring (--runner.n-scored, --env, --n-seeds)"] = n_scored * levels
    for n_new in values_of(config.runner, "n_new"):
        parts["the levels of a scoring (--runner.n-new, --env, --n-seeds)"] = n_new * levels
    for n_fresh in values_of(config.runner, "n_fresh"):
        n_drawn = n_fresh * config.runner.n_parallel
        parts["the new levels of a rollout (--runner.n-fresh, --runner.n-parallel, --env, --n-seeds)"] = (
            n_drawn * levels
        )
    for n_edits in values_of(config.runner, "n_edits"):
        edits = n_edits * config.runner.levels_per_batch * config.n_seeds * EDIT_BYTES
        parts["mutations (--runner.n-edits, --runner.n-parallel, --n-seeds)"] = edits
    if config.eval.every:
        n_tasks = len(make_held_out(config.env, config.eval.tasks).names)
        episodes = config.eval.n_episodes * n_tasks * config.n_seeds * EPISODE_BYTES
        parts["an evaluation (--eval.n-episodes, --eval.tasks, --n-seeds)"] = episodes
    return parts


def check_task_memory(n_tasks: int, n_episodes: int, n_seeds: int) -> None:
    """ValueError if the episodes of an evaluation on tasks cannot fit into memory. They all run side by side."""
    episodes = n_tasks * n_episodes * n_seeds * EPISODE_BYTES
    _check_fits("evaluation", {"the episodes (--n-episodes, --tasks)": episodes}, available(1))


def check_level_memory(env: Environment, n_levels: int, n_episodes: int, n_seeds: int) -> None:
    """ValueError if the levels of the robust protocol, or the episodes on one of them, cannot fit into memory."""
    parts = {
        "the levels (--n-levels)": n_levels * (level_bytes(env) + n_seeds * RATE_BYTES),
        "the episodes on a level (--n-episodes)": n_episodes * n_seeds * EPISODE_BYTES,
    }
    _check_fits("evaluation", parts, available(1))


def _check_fits(what: str, parts: Mapping[str, int], there: int | None) -> None:
    needed = sum(parts.values())
    if there is None or needed <= there:
        return
    largest = max(parts, key=lambda part: parts[part])
    raise ValueError(
        f"the {what} needs at least {needed / GIB:,.1f} GiB of memory, {parts[largest] / GIB:,.1f} of it for "
        f"{largest}: it must be at most {there / GIB:,.1f}, which is all there is"
    )


def values_of(settings: Any, name: str) -> Iterator[Any]:
    """The values of every setting called `name`, in `settings` and in the groups inside it."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == name:
            yield value
        elif dataclasses.is_dataclass(value):
            yield from values_of(value, name)


def level_bytes(env: Environment) -> int:
    """Bytes of one level."""
    return size(jax.eval_shape(env.sample_level, jax.eval_shape(lambda: jax.random.key(0))))


def size(tree: Any) -> int:
    """Bytes of all arrays in a tree of shapes."""
    # In Python's integers: products of impossible sizes do not fit into 64 bits.
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available(n_devices: int) -> int | None:
    """Bytes of memory of `n_devices` devices like those here; None if that is not known.

    Where the devices are cores, it is the memory of their machines.
    """
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats:
        limit = stats.get("bytes_limit")
        return limit and limit * n_devices
    # Cores share the memory of their machine.
    if device.platform != "cpu" or not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * jax.process_count()
