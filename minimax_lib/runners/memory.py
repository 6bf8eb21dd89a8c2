"""The least memory that a run takes, worked out from shapes alone, and how much there is."""

import math
import os
from typing import Any

import jax

from minimax_lib.envs.registry import make_held_out
from minimax_lib.runners.build import make_runner, mesh_of
from minimax_lib.runners.devices import whole_state

STEP_BYTES = 16  # of experience in every row: at least an action, its probability, a value and a reward
EPISODE_BYTES = 9  # of an evaluation, in which all are played side by side: its return, its length, whether solved
GIB = 2**30


def check_memory(config: Any) -> None:
    """ValueError where no program could hold the run: its state and one rollout alone are larger than all memory.

    What passes may still be too large, since observations and gradients are not counted. Nothing is allocated.
    """
    there = available(config.n_devices)
    parts = least_bytes(config)
    needed = sum(parts.values())
    if there is None or needed <= there:
        return
    largest = max(parts, key=lambda part: parts[part])
    raise ValueError(
        f"the run needs at least {needed / GIB:,.1f} GiB of memory, {parts[largest] / GIB:,.1f} of it for {largest}: "
        f"it must be at most {there / GIB:,.1f}, which is all there is"
    )


def least_bytes(config: Any) -> dict[str, int]:
    """Bytes by what they are for, with the settings that decide them."""
    mesh, runner = mesh_of(config), make_runner(config)
    state = whole_state(runner, config.n_seeds, mesh)
    rollout = runner.agent.n * runner.n_rows * mesh.n_rows * config.n_seeds * runner.n_steps * STEP_BYTES
    students, rest = size(state.students), size(state)
    parts = {
        "the students (--model, --runner.n-students, --n-seeds)": students,
        "the curriculum (--runner.capacity, --runner.n-parallel, --env, --n-seeds)": rest - students,
        "a rollout (--runner.n-parallel, --runner.n-evals, --runner.n-steps, --n-seeds)": rollout,
    }
    if config.eval.every:
        episodes = config.eval.n_episodes * len(make_held_out(config.env, config.eval.tasks).names) * config.n_seeds
        parts["an evaluation (--eval.n-episodes, --eval.tasks, --n-seeds)"] = episodes * EPISODE_BYTES
    return parts


def size(tree: Any) -> int:
    """Bytes of all arrays in a tree of shapes."""
    # In Python's integers: products of impossible sizes do not fit into 64 bits.
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available(n_devices: int) -> int | None:
    """Bytes of `n_devices` like those here, or of the machines if these are their devices; None if nobody can tell."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats:
        limit = stats.get("bytes_limit")
        return limit and limit * n_devices
    # Cores share the memory of their machine.
    if device.platform != "cpu" or not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * jax.process_count()
