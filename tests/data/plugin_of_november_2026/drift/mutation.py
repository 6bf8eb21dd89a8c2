"""How levels are mutated, and the simplest levels, from which ACCEL starts."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from minimax_lib.envs.family import Editing

NUDGE, CALM = 0.1, 0.1  # the size of an edit; the share of the fastest current in the simplest levels


def mutate(fastest, key, level, n_edits):
    """A child of `level` after `n_edits` edits: each moves the buoy a little, and changes the current a little."""
    k_buoy, k_current = jax.random.split(key)
    moves = NUDGE * jax.random.normal(k_buoy, (n_edits, 2), jnp.float32)
    turns = NUDGE * fastest * jax.random.normal(k_current, (n_edits, 2), jnp.float32)
    return level.replace(
        buoy=jnp.clip(level.buoy + moves.sum(axis=0), 0.0, 1.0),
        current=jnp.clip(level.current + turns.sum(axis=0), -fastest, fastest),
    )


def calm(env):
    """Water that hardly moves."""
    return dataclasses.replace(env, fastest=CALM * env.fastest)


def editing(env):
    """A function of the environment, since its settings matter: edits stay within its fastest current."""
    return Editing(mutate=partial(mutate, env.fastest), base=calm)
