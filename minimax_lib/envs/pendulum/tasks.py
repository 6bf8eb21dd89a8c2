"""Held-out pendulums by name. Most of them are at the edges of the default training ranges, or outside."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, NamedTasks
from minimax_lib.envs.pendulum.physics import Physics
from minimax_lib.registry import unknown_name

NOMINAL = {"mass": 1.0, "length": 1.0, "gravity": 10.0, "damping": 0.1, "torque": 4.0}
TASKS = {  # the parameters that differ from NOMINAL
    "Nominal": {},
    "Light": {"mass": 0.5},
    "Heavy": {"mass": 1.5},
    "Short": {"length": 0.5},
    "Long": {"length": 1.5},
    "LowGravity": {"gravity": 5.0},
    "HighGravity": {"gravity": 15.0},
    "Undamped": {"damping": 0.0},
    "Damped": {"damping": 0.3},
    "WeakMotor": {"torque": 2.0},
    "StrongMotor": {"torque": 6.0},
    # Outside the default ranges.
    "Moon": {"gravity": 1.62},
    "Jupiter": {"gravity": 24.8},
    "VeryHeavy": {"mass": 2.5},
    "VeryLong": {"length": 2.0},
    "Sticky": {"damping": 0.6},
    # Corners of the default ranges.
    "HeavyAndLong": {"mass": 1.5, "length": 1.5},
    "LightAndShort": {"mass": 0.5, "length": 0.5, "torque": 6.0},
}
VALIDATION = ("Nominal", "Heavy", "WeakMotor")
BENCHMARK = tuple(TASKS)
GROUPS = {"validation": VALIDATION, "benchmark": BENCHMARK, "all": (*BENCHMARK, TRAINING_DISTRIBUTION)}


def load(name: str) -> Physics:
    """The pendulum called `name`; ValueError for an unknown name."""
    if name not in TASKS:
        raise unknown_name("pendulum", name, TASKS)
    return Physics(**{parameter: jnp.float32(value) for parameter, value in (NOMINAL | TASKS[name]).items()})


@dataclasses.dataclass(frozen=True)
class PendulumTasks(NamedTasks):
    """The pendulums called `names` as one batch (a `HeldOut`).

    Episodes follow the rules of `env`: its start, its time limit and its observations.
    """

    known = BENCHMARK

    def draw(self, name: str, key: jax.Array) -> Physics:
        """The same pendulum in all episodes."""
        return load(name)
