"""Checks every part of the plugin: `pytest test_drift.py`."""

import drift
import jax
import jax.numpy as jnp
from drift.world import Drift

from minimax_lib.envs.ued import UEDEnvironment
from minimax_lib.testing.curricula import check_curriculum, small_agent
from minimax_lib.testing.envs import check_editing, check_environment, check_held_out, check_teacher
from minimax_lib.testing.models import check_model

ENV, KEY = Drift(max_steps=8), jax.random.key(0)


def is_valid(level):
    """What every level of `ENV` must be."""
    ends = jnp.stack([level.start, level.buoy])
    return jnp.all((ends >= 0) & (ends <= 1)) & jnp.all(jnp.abs(level.current) <= ENV.fastest)


def test_environment():
    check_environment(ENV, KEY)


def test_held_out_tasks():
    check_held_out(ENV, KEY)


def test_mutation():
    check_editing(ENV, KEY, is_valid=is_valid)


def test_teacher():
    check_teacher(UEDEnvironment(ENV, drift.DriftDesign().build(ENV)), KEY)


def test_model():
    check_model(drift.Fading(width=8), ENV, KEY)


def test_curriculum():
    agent = small_agent(ENV)
    check_curriculum(drift.WarmupSettings(rate=0.5).build(ENV, agent, n_rows=4), ENV, KEY, agent)
