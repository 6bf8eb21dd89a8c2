"""Teams of players: who is in which, whom a task means by "my team", and where a team begins."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.square import Square

SIDES = 4
# What tasks call players by: the reference's names. The left team is the next one, the right team the one before.
LEADERS = ("my_team_leader", "left_team_leader", "right_team_leader")  # one player each
NAMES = ("my_team", "left_team", "right_team", "all_foes", "all_foe_leaders", *LEADERS)


@dataclasses.dataclass(frozen=True)
class Teams:
    """`n` teams of equal size. Players of a team have adjacent numbers, and the first of them leads it."""

    n: int
    n_players: int

    @property
    def size(self) -> int:
        """The players of a team."""
        return self.n_players // self.n

    @functools.cached_property
    def of(self) -> np.ndarray:
        """i32[P], the team of each player."""
        return np.arange(self.n_players, dtype=np.int32) // self.size

    def named(self, name: str) -> np.ndarray:
        """bool[P, P], whom a player (first axis) means by one of `NAMES`."""
        own, other = self.of[:, None], self.of[None, :]
        if name.startswith("all_foe"):
            meant = own != other
        else:
            meant = other == (own + {"my": 0, "left": 1, "right": -1}[name.split("_")[0]]) % self.n
        leads = np.arange(self.n_players) % self.size == 0
        return meant & leads if name.endswith(("leader", "leaders")) else meant

    def n_left(self, alive: jax.Array) -> jax.Array:
        """i32[], the teams of which somebody lives (bool[P])."""
        return alive.reshape(self.n, self.size).any(axis=1).sum(dtype=jnp.int32)

    def places(self, square: Square) -> np.ndarray:
        """i16[4 k, 2], where teams may begin: k places on each side of the edge, as few as are enough."""
        a_side = -(-self.n // SIDES)
        edge = square.edge.reshape(SIDES, square.centre, 2)
        steps = [square.centre * (i + 1) // (a_side + 1) for i in range(a_side)]
        return edge[:, steps].reshape(-1, 2).astype(np.int16)

    def spawn_places(self, key: jax.Array, square: Square) -> jax.Array:
        """i16[P, 2], where players begin: each team on one of these places, no two on the same."""
        return jax.random.permutation(key, jnp.asarray(self.places(square)))[: self.n][self.of]
