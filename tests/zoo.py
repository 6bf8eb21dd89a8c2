"""One small runner for each method, built and compiled once for all tests that use it.

A runner costs 10 to 20 seconds of the processor, whatever its size. So a test that needs some run of a method takes the
one from here. A test that needs a runner of its own says why.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.config import Config, from_dict
from minimax_lib.runners.build import make_program
from minimax_lib.runners.seeds import Report, SeedRunner
from minimax_lib.runners.training import RunnerState

N_SEEDS = 2
N_STEPS = 8  # steps of the runner in `steps_of`
MAZE = {"name": "AMaze", "height": 4, "width": 4, "n_walls": 3, "max_steps": 12}
GAME = {"name": "LaserTag", "height": 4, "width": 4, "min_side": 3, "max_steps": 12}
PENDULUM = {"name": "Pendulum", "max_steps": 12, "hold_steps": 4}
MODEL = {"name": "ff", "conv_filters": 4, "dense_width": 8, "head_width": 8}
TEACHER = {
    "model": MODEL,
    "design": {"name": "AMaze", "n_walls": 3, "noise_dim": 2},
    "ppo": {"n_epochs": 1, "n_minibatches": 1},
}
BUFFER = {"capacity": 16, "min_fill": 0.5}
# The registered runners: the tests that everybody runs use these. Some have a setting that any runner may have, so that
# it is tried too: several rollouts a batch, several rows a level, normalised rewards.
METHODS: dict[str, dict[str, Any]] = {
    "dr": {},
    "plr": BUFFER,
    "accel": BUFFER | {"n_edits": 3, "n_ancestors": 2, "replay_prob": 0.5},
    "traced": BUFFER | {"n_edits": 3, "replay_prob": 0.5},
    "cenie": BUFFER,
    "sfl": {"every": 4, "n_scored": 16, "n_kept": 6, "n_steps": 6},  # two rollouts a batch
    "ncc": {"capacity": 16, "every": 3, "score_share": 0.5, "n_new": 4, "score": "exact_regret"},
    "paired": {"teacher": TEACHER, "n_evals": 2},
    "tasks": {"n_levels": 16},
    "episode_plr": BUFFER | {"n_fresh": 2},
    "box": {"normalize_rewards": True, "n_steps": 20},  # all episodes have 12 steps: rollouts end in the middle of some
    "selfplay": {"capacity": 2, "every": 2, "n_opponents": 1, "levels": {"name": "plr"} | BUFFER},
    "maestro": {"capacity": 2, "every": 2, "plr": BUFFER | {"min_fill": 0.25}},
}
# Their variants: for deep tests.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain plr": {"name": "plr", "robust": False} | BUFFER,
    "parallel plr": {"name": "plr", "parallel": True} | BUFFER,
    "parallel accel": {"name": "accel", "parallel": True} | METHODS["accel"],
    "repaired": {"name": "plr", "generator": {"name": "teacher"} | TEACHER, "score": "relative_regret", "n_students": 2}
    | BUFFER,
}
WORLDS = {"box": PENDULUM, "selfplay": GAME, "maestro": GAME}


class Step(NamedTuple):
    """A step of a runner, on the host. The leaves of the states lead with the seeds."""

    before: RunnerState
    after: RunnerState
    report: Report  # of this step alone


def config_of(method: str, /, runner: dict[str, Any] | None = None, **settings: Any) -> Config:
    """The configuration of a method's small runner; `runner` and `settings` replace parts of it."""
    group = {"name": method, "n_parallel": 4, "n_steps": 24} | (METHODS | VARIANTS)[method] | (runner or {})
    defaults = {
        "env": WORLDS.get(method, MAZE),
        "model": MODEL,
        "ppo": {"lr": 3e-3, "n_epochs": 1, "n_minibatches": 1},
        "eval": {"every": 0},
        "n_seeds": N_SEEDS,
        "n_updates": 100,
        "report": False,
    }
    return from_dict(defaults | {"runner": group} | settings)


@functools.cache
def program_of(method: str) -> SeedRunner:
    """The method's program, with two seeds. Whoever runs it gives away the state: it is donated. See `on_device`."""
    return make_program(config_of(method))


@functools.cache
def steps_of(method: str, n: int = N_STEPS) -> tuple[Step, ...]:
    """The first `n` steps of the runner from seed 0, one at a time."""
    return stepped(program_of(method), n)


def stepped(program: SeedRunner, n: int) -> tuple[Step, ...]:
    """The first `n` steps of a program from seed 0, one at a time."""
    state, steps = program.init(0), []
    before = jax.device_get(state)
    for _ in range(n):  # few milliseconds each
        state, report = program.run(state, 2**31 - 1, max_steps=1)
        after = jax.device_get(state)
        steps.append(Step(before, after, jax.device_get(report)))
        before = after
    return tuple(steps)


def on_device(state: RunnerState) -> RunnerState:
    """A copy of a state of `steps_of`, to run the program from. It has the form of the program's own states."""

    def copied(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # these stay on the device
            return jax.random.wrap_key_data(np.array(jax.random.key_data(leaf)))
        return jax.device_put(np.array(leaf))

    return jax.tree.map(copied, state)
