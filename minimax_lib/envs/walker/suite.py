"""Held-out worlds by name: those of dcd's tests, and Gymnasium's two."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, NamedTasks
from minimax_lib.envs.walker.level import NUMBERS, Level, draw_seed, make_level

NONE = dict.fromkeys(NUMBERS, 0.0) | {"stair_steps": 1.0}


def _world(
    roughness: float = 0.0,
    pit: tuple[float, float] = (0, 0),
    stump: tuple[float, float] = (0, 0),
    stair: tuple[float, float] = (0, 0),
    steps: float = 1.0,
) -> tuple[float, ...]:
    return (roughness, *pit, *stump, *stair, steps)


# The eight numbers of each.
WORLDS: dict[str, tuple[float, ...]] = {
    "Basic": _world(1.0),  # BipedalWalker-v3
    "Default": _world(),  # flat
    "Med-Stairs": _world(stair=(2, 2), steps=5),
    "Med-PitGap": _world(pit=(5, 5)),
    "Med-StumpHeight": _world(stump=(2, 2)),
    "Med-Roughness": _world(5.0),
    "High-Stairs": _world(stair=(5, 5), steps=9),
    "Wide-PitGap": _world(pit=(10, 10)),
    "High-StumpHeight": _world(stump=(5, 5)),
    "High-Roughness": _world(9.0),
    "Insane": _world(9.0, (10, 10), (5, 5), (5, 5), 9),
    # POET's rose plots: roughness, pits, stumps.
    "Rose-1a": _world(5.6, (4.48, 6.4), (2.4, 2.82)),
    "Rose-1b": _world(5.44, (4.48, 6.72), (1.8, 2.82)),
    "Rose-2a": _world(7.2, (5.6, 7.2), (1.98, 2.82)),
    "Rose-2b": _world(5.76, (1.6, 7.2), (2.16, 2.76)),
    "Rose-3a": _world(5.28, (4.8, 7.2), (1.98, 2.76)),
    "Rose-3b": _world(4.8, (4.8, 4.48), (2.4, 2.76)),
    # Of nobody's test: what settings may be chosen by.
    "Some-Stairs": _world(stair=(1, 1), steps=4),
    "Some-Pits": _world(pit=(2, 3)),
    "Some-Stumps": _world(stump=(0.8, 1.2)),
    "Some-Roughness": _world(3.0),
}
HARDCORE, CHALLENGING = "Hardcore", "XChal"
VALIDATION = ("Default", "Some-Stairs", "Some-Pits", "Some-Stumps", "Some-Roughness")
# The six of Parker-Holder et al. 2022.
BENCHMARK = ("Basic", HARDCORE, "Med-Stairs", "Med-PitGap", "Med-StumpHeight", "Med-Roughness")
KNOWN = (*dict.fromkeys((*BENCHMARK, *WORLDS)), CHALLENGING)
GROUPS = {
    "validation": VALIDATION,
    "benchmark": BENCHMARK,
    "roses": tuple(name for name in WORLDS if name.startswith("Rose")),
    "all": (*KNOWN, TRAINING_DISTRIBUTION),
}


@dataclasses.dataclass(frozen=True)
class WalkerSuite(NamedTasks):
    """The worlds called `names` as one batch (a `HeldOut`). Every episode has another terrain."""

    known = KNOWN

    def draw(self, name: str, key: jax.Array) -> Level:
        """A world of these numbers with a random seed."""
        k_numbers, k_seed = jax.random.split(key)
        seed = draw_seed(k_seed)
        if name == HARDCORE:
            return make_level(list(NONE.values()), seed, hardcore=True)
        if name == CHALLENGING:
            low, high = np.array([4.5, 6.0, 2.4], np.float32), np.array([8.0, 8.0, 3.0], np.float32)
            drawn = low + (high - low) * jax.random.uniform(k_numbers, (3,), jnp.float32)
            zero, one = jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32)
            return make_level(jnp.stack([drawn[0], zero, drawn[1], zero, drawn[2], zero, zero, one]), seed)
        return make_level(WORLDS[name], seed)
