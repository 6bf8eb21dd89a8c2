"""Held-out pendulums by name, most of them at the edges of the default training ranges or outside."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.envs.pendulum.physics import Physics
from minimax_lib.registry import unknown_name

NOMINAL = {"mass": 1.0, "length": 1.0, "gravity": 10.0, "damping": 0.1, "torque": 4.0}
TASKS = {  # what differs from NOMINAL
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
    # Outside of the default ranges.
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
    """The pendulum called `name`; ValueError for one that there is not."""
    if name not in TASKS:
        raise unknown_name("pendulum", name, TASKS)
    return Physics(**{parameter: jnp.float32(value) for parameter, value in (NOMINAL | TASKS[name]).items()})


@dataclasses.dataclass(frozen=True)
class PendulumTasks:
    """The pendulums called `names` as one batch (a `HeldOut`); "TrainingDistribution" is `env`'s random levels.

    They are played by the rules of `env`: its start, its time limit and what it shows.
    """

    env: Pendulum
    names: tuple[str, ...] = BENCHMARK

    def __post_init__(self) -> None:
        for name in self.names:
            if name != TRAINING_DISTRIBUTION and name not in TASKS:
                raise unknown_name("pendulum", name, [*GROUPS, TRAINING_DISTRIBUTION, *TASKS])

    def sample(self, key: jax.Array, n_episodes: int) -> Physics:
        """Levels [len(names), n_episodes], the same for all episodes of a named task."""

        def of_task(name: str) -> Physics:
            if name == TRAINING_DISTRIBUTION:
                return jax.vmap(self.env.sample_level)(jax.random.split(key, n_episodes))
            return jax.tree.map(lambda x: jnp.full(n_episodes, x, jnp.float32), load(name))

        return jax.tree.map(lambda *tasks: jnp.stack(tasks), *(of_task(name) for name in self.names))
