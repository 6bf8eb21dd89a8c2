"""Runs on disk as training leaves them, made without training: states of the right form, filled with small numbers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.config import Config, from_dict, save_yaml, to_dict
from minimax_lib.curricula.level_buffer import LevelBuffer
from minimax_lib.runners.build import make_runner, mesh_of
from minimax_lib.runners.devices import whole_state
from minimax_lib.store.checkpoint import Checkpoints

TINY = {
    "env": {"name": "AMaze", "height": 5, "width": 5, "n_walls": 4, "max_steps": 12},
    "model": {"name": "ff", "dense_width": 8},
    "ppo": {"n_epochs": 1},
    "eval": {"every": 0},
}


def tiny_config(folder: Path, runner: dict[str, Any] | None = None, **settings: Any) -> Config:
    """The configuration of a tiny run in `folder`."""
    small = {"name": "dr", "n_parallel": 4, "n_steps": 4} | (runner or {})
    return from_dict(TINY | {"runner": small, "log_dir": str(folder.parent), "name": folder.name} | settings)


def save_tiny_run(
    folder: Path, runner: dict[str, Any] | None = None, updates: tuple[int, ...] = (4,), **settings: Any
) -> tuple[Config, Any]:
    """(configuration, state of the newest checkpoint) of a run that has been written to `folder`."""
    config = tiny_config(folder, runner, **settings)
    folder.mkdir(parents=True)
    save_yaml(config, folder / "config.yaml")
    states = tiny_states(config, len(updates))
    with Checkpoints(folder / "checkpoints", keep=len(updates), config=to_dict(config)) as checkpoints:
        for update, state in zip(updates, states, strict=True):
            checkpoints.save(update, state)
    return config, states[-1]


def tiny_states(config: Config, n: int = 1) -> list[Any]:
    """`n` states of a run, all different."""
    # Only traced: nothing is compiled.
    shape = whole_state(make_runner(config), config.n_seeds, mesh_of(config))
    generator = np.random.default_rng(0)
    states = [jax.tree.map(lambda leaf: filled(generator, leaf), shape) for _ in range(n)]
    return [jax.tree.map(lambda part: playable(config, part), state, is_leaf=is_buffer) for state in states]


def is_buffer(part: Any) -> bool:
    return isinstance(part, LevelBuffer)


def playable(config: Config, part: Any) -> Any:
    """A level buffer with levels of the environment in it; anything else as it was."""
    if not is_buffer(part):
        return part
    sample = config.env.sample_level
    for _ in part.scores.shape:
        sample = jax.vmap(sample)
    keys = jax.random.split(jax.random.key(0), part.scores.shape)
    return part.replace(levels=jax.jit(sample)(keys))


def filled(generator: np.random.Generator, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Small numbers in a shape, all different; bools are true and keys those of zeros."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jax.device_put(np.zeros((*leaf.shape, 2), np.uint32)))
    # Not by `jnp`, which would compile a program for each shape.
    if leaf.dtype == bool:
        return jax.device_put(np.ones(leaf.shape, bool))
    if jnp.issubdtype(leaf.dtype, jnp.integer):
        return jax.device_put(generator.integers(0, 100, leaf.shape).astype(leaf.dtype))
    return jax.device_put((0.1 * generator.normal(size=leaf.shape)).astype(leaf.dtype))
