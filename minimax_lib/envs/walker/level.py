"""The free parameters of a world of the walker: eight numbers and a seed."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

NUMBERS = (
    "roughness",
    "pit_gap_low",
    "pit_gap_high",
    "stump_height_low",
    "stump_height_high",
    "stair_height_low",
    "stair_height_high",
    "stair_steps",
)
FULL = np.array([[0, 10], [0, 10], [0, 10], [0, 5], [0, 5], [0, 5], [0, 5], [1, 9]], np.float32)
EASY = np.array([[0, 0.6], [0, 0], [0.8, 0.8], [0, 0], [0.4, 0.4], [0, 0], [0.4, 0.4], [1, 1]], np.float32)
_NO_STAIRS = np.array([[0, 0], [0, 0], [1, 1]], np.float32)
Preset = Literal["full", "easy", "poet", "poet_easy", "basic"]
PRESETS: dict[str, np.ndarray] = {  # f32[8, 2], the lowest and the highest of each number
    "full": FULL,
    "easy": EASY,
    "poet": np.concatenate([FULL[:5], _NO_STAIRS]),
    "poet_easy": np.concatenate([EASY[:5], _NO_STAIRS]),
    "basic": np.concatenate([np.array([[0, 2], *[[0, 0]] * 4], np.float32), _NO_STAIRS]),
}
PAIRS = ((1, 2), (3, 4), (5, 6))
# Obstacles whose larger number is below these are not there at all (dcd, `get_config`).
LEAST_PIT, LEAST_STUMP, LEAST_STAIR = 0.8, 0.2, 0.2


class Level(struct.PyTreeNode):
    """A world. Its terrain is drawn from the numbers with the seed, so that equal levels have equal terrains.

    Gaps, heights and widths are in steps of the terrain (14/30 m).
    """

    numbers: jax.Array  # f32[8], see NUMBERS; each pair is sorted
    seed: jax.Array  # u32[]
    hardcore: jax.Array  # bool[], the terrain is that of Gymnasium's BipedalWalkerHardcore; the numbers do not count


def make_level(numbers: Any, seed: Any, hardcore: Any = False) -> Level:
    """The level of these eight numbers (f32[8]). The lower end of each pair comes first, and steps are rounded."""
    given = jnp.asarray(numbers, jnp.float32)
    low, high = jnp.minimum(given[1:7:2], given[2:7:2]), jnp.maximum(given[1:7:2], given[2:7:2])
    pairs = jnp.stack([low, high], axis=1).reshape(-1)
    tidy = jnp.concatenate([given[:1], pairs, jnp.round(given[7:])])
    return Level(numbers=tidy, seed=jnp.asarray(seed, jnp.uint32), hardcore=jnp.asarray(hardcore, bool))


def draw_seed(key: jax.Array) -> jax.Array:
    """u32[], a random seed of a terrain."""
    return jax.random.bits(key, (), jnp.uint32)


def fault_in(level: Level) -> str:
    """Which rule `level` breaks, in one sentence; empty if it breaks none. On the host."""
    numbers = np.asarray(level.numbers)
    for name, value, (least, most) in zip(NUMBERS, numbers, FULL, strict=True):
        if not least <= value <= most:
            return f"{name} is {value:g}: it must be from {least:g} to {most:g}"
    for low, high in PAIRS:
        if numbers[low] > numbers[high]:
            return f"{NUMBERS[low]} is {numbers[low]:g}: it must be at most {NUMBERS[high]}, {numbers[high]:g}"
    if numbers[7] != np.round(numbers[7]):
        return f"stair_steps is {numbers[7]:g}: it must be a whole number"
    return ""
