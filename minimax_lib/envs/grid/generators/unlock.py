"""MiniGrid's Unlock family: two rooms with a locked door between them."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.room_grid import FillsRooms, RoomGrid
from minimax_lib.envs.grid.level import OPEN, PICKUP, Level, make_level

FIRST, SECOND = (0, 0), (1, 0)  # the rooms


@dataclasses.dataclass(frozen=True)
class Unlock(FillsRooms):
    """The agent is in a room with a locked door and its key. Task: open the door."""

    side: int = 6
    """Side of a room, with its walls."""

    def __post_init__(self) -> None:
        check_side("side", self.side, 5)
        self._rooms.check()

    @property
    def _rooms(self) -> RoomGrid:
        return RoomGrid(1, 2, self.side)

    @property
    def max_steps(self) -> int:
        return 8 * self.side**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        return draw(key, self._rooms, self.max_steps, box_is_target=False, is_blocked=False)


@dataclasses.dataclass(frozen=True)
class UnlockPickup(Unlock):
    """As Unlock, with a box in the other room. Task: pick up the box."""

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        return draw(key, self._rooms, self.max_steps, box_is_target=True, is_blocked=False)


@dataclasses.dataclass(frozen=True)
class BlockedUnlockPickup(Unlock):
    """As UnlockPickup, with a ball in front of the door. Task: pick up the box."""

    @property
    def max_steps(self) -> int:
        return 16 * self.side**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        return draw(key, self._rooms, self.max_steps, box_is_target=True, is_blocked=True)


def draw(key: jax.Array, rooms: RoomGrid, max_steps: int, box_is_target: bool, is_blocked: bool) -> Level:
    """A random level. All colours are uniform."""
    k_doors, k_colours, k_box, k_key, k_agent = jax.random.split(key, 5)
    colour, box_colour, ball_colour = jax.random.randint(k_colours, (3,), 0, len(codes.COLOURS))
    middle = rooms.middle(1, 2)
    grid = jnp.asarray(rooms.walls())
    if box_is_target:
        grid = rooms.place(k_box, grid, SECOND, cells.box(box_colour), middle)
    x, y = rooms.door_at(rooms.draw_doors(k_doors), FIRST, 0)
    grid = grid.at[y, x].set(cells.door(colour, codes.LOCKED))
    if is_blocked:
        grid = grid.at[y, x - 1].set(cells.ball(ball_colour))
    grid = rooms.place(k_key, grid, FIRST, cells.key(colour), middle)
    pos, facing = rooms.place_agent(k_agent, grid, FIRST)
    if box_is_target:
        return make_level(grid, pos, facing, max_steps, PICKUP, cells.box(box_colour))
    return make_level(grid, pos, facing, max_steps, OPEN, cells.pack(codes.DOOR, colour))
