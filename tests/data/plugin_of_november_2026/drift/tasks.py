"""Held-out tasks: currents from every side."""

import dataclasses

import jax
import jax.numpy as jnp

from drift.world import Water
from minimax_lib.envs.held_out import NamedTasks

CURRENTS = {"Calm": (0.0, 0.0), "Against": (-0.05, -0.05), "Across": (0.05, -0.05), "Strong": (-0.07, 0.0)}


@dataclasses.dataclass(frozen=True)
class DriftTasks(NamedTasks):
    """From the lower left corner to the upper right one; in "Anywhere", from any place to any other."""

    known = (*CURRENTS, "Anywhere")

    def draw(self, name, key):
        if name == "Anywhere":
            ends = jax.random.uniform(key, (2, 2), jnp.float32)
            return Water(start=ends[0], buoy=ends[1], current=jnp.zeros(2, jnp.float32))
        start, buoy, current = jnp.array([(0.1, 0.1), (0.9, 0.9), CURRENTS[name]], jnp.float32)
        return Water(start=start, buoy=buoy, current=current)
