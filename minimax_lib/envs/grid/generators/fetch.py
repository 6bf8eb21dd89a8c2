"""MiniGrid's Fetch: one of several objects is asked for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import check_int, check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.base import SquareFamily
from minimax_lib.envs.grid.generators.sampling import walled
from minimax_lib.envs.grid.level import FETCH, Level, make_level


@dataclasses.dataclass(frozen=True)
class Fetch(SquareFamily):
    """Keys and balls in a room. Task: pick up an object like the one that is asked for, and no other one first.

    The agent must see what is asked for (`see_target`). MiniGrid has 2 objects in size 5 and in size 6, 3 in size 8.
    """

    size: int = 8
    """Rows and columns of cells, with the border."""
    n_objects: int = 3
    """Keys and balls in the room."""

    def __post_init__(self) -> None:
        check_side("size", self.size, 4)
        check_int("n_objects", self.n_objects, 1, (self.size - 2) ** 2 - 1)

    @property
    def max_steps(self) -> int:
        return 5 * self.size**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_places, k_kinds, k_colours, k_target, k_dir = jax.random.split(key, 5)
        inner, n = self.size - 2, self.n_objects
        is_ball = jax.random.bernoulli(k_kinds, shape=(n,))
        colour = jax.random.randint(k_colours, (n,), 0, len(codes.COLOURS))
        things = jnp.where(is_ball, cells.ball(colour), cells.key(colour))
        # The first cells of a random order hold the objects, and the next one the agent.
        places = jax.random.permutation(k_places, np.arange(inner**2, dtype=np.int32))[: n + 1]
        x, y = 1 + places % inner, 1 + places // inner
        return make_level(
            grid=jnp.asarray(walled(self.size, self.size)).at[y[:n], x[:n]].set(things),
            agent_pos=(x[n], y[n]),
            agent_dir=jax.random.randint(k_dir, (), 0, 4),
            max_steps=self.max_steps,
            task=FETCH,
            target=things[jax.random.randint(k_target, (), 0, n)],
        )
