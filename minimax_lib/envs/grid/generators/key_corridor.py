"""MiniGrid's KeyCorridor: a hall with rooms on both sides, one of them locked."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.room_grid import FillsRooms, RoomGrid
from minimax_lib.envs.grid.level import PICKUP, Level, make_level

COLUMNS = 3
DOWN, LEFT = 1, 2  # directions


@dataclasses.dataclass(frozen=True)
class KeyCorridor(FillsRooms):
    """A ball is in the locked room on the right, the key in a room on the left. The agent starts in the hall.

    The doors between the other rooms are random, but each room can be reached. Task: pick up the ball. MiniGrid's sizes
    are side 3 with 1, 2 or 3 rows, and sides 4, 5 and 6 with 3 rows.
    """

    n_rows: int = 3
    """Rooms on each side of the hall."""
    side: int = 3
    """Side of a room, with its walls."""

    def __post_init__(self) -> None:
        check_side("n_rows", self.n_rows, 1)
        check_side("side", self.side, 3)
        self._rooms.check()

    @property
    def _rooms(self) -> RoomGrid:
        return RoomGrid(self.n_rows, COLUMNS, self.side)

    @property
    def max_steps(self) -> int:
        return 30 * self.side**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_offsets, k_rows, k_colours, k_ball, k_key, k_agent, k_order, k_doors = jax.random.split(key, 8)
        rooms, middle = self._rooms, self._rooms.middle(self.n_rows, COLUMNS)
        offsets = rooms.draw_doors(k_offsets)
        locked, with_key = jax.random.randint(k_rows, (2,), 0, self.n_rows)
        colour, ball_colour = jax.random.randint(k_colours, (2,), 0, len(codes.COLOURS))
        x, y = rooms.door_at(offsets, jnp.stack([2, locked]), LEFT)
        grid = jnp.asarray(self._hall()).at[y, x].set(cells.door(colour, codes.LOCKED))
        grid = rooms.place(k_ball, grid, (2, locked), cells.ball(ball_colour), middle)
        grid = rooms.place(k_key, grid, (0, with_key), cells.key(colour), middle)
        # As in MiniGrid, the agent is placed before the other doors, so it may look at one of them.
        pos, facing = rooms.place_agent(k_agent, grid, (1, self.n_rows // 2))

        room, direction, is_door = self.draw_connections(k_order, locked)
        x, y = rooms.door_at(offsets, room, direction)
        colours = jax.random.randint(k_doors, x.shape, 0, len(codes.COLOURS))
        row = jnp.where(is_door, y, rooms.height)  # an index outside is dropped
        grid = grid.at[row, x].set(cells.door(colours), mode="drop")
        return make_level(grid, pos, facing, self.max_steps, PICKUP, cells.ball(ball_colour))

    def _hall(self) -> np.ndarray:
        """u16[h, w]: the walls of all rooms, but those of the middle column are one room."""
        grid = self._rooms.walls()
        grid[1:-1, self.side : 2 * self.side - 2] = cells.EMPTY
        return grid

    def draw_connections(self, key: jax.Array, locked: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(room i32[n, 2], direction i32[n], is_door bool[n]): random doors that connect all rooms with the hall.

        MiniGrid adds doors in random walls until all rooms can be reached. Walls where there can be none are drawn and
        left out, so the result is the same as walking through all others in a random order.
        """
        rooms, directions = self._rooms.inner_walls()
        in_hall = (rooms[:, 0] == 1) & (directions == DOWN)
        order = jax.random.permutation(key, np.flatnonzero(~in_hall))
        room, direction = jnp.asarray(rooms)[order], jnp.asarray(directions)[order]
        beyond = room + jnp.array([[1, 0], [0, 1]], jnp.int32)[direction]
        # The locked room has a door already, and gets no other.
        locked_room = jnp.stack([2, locked])[None]
        is_locked = jnp.all(room == locked_room, axis=1) | jnp.all(beyond == locked_room, axis=1)

        def component(room: jax.Array) -> jax.Array:
            return room[:, 1] * COLUMNS + room[:, 0]

        def add(connected: jax.Array, wall: tuple) -> tuple[jax.Array, jax.Array]:
            here, there, is_locked = wall
            is_door = ~is_locked & jnp.any(connected != connected[1])
            joined = jnp.where(connected == connected[there], connected[here], connected)
            return jnp.where(is_door, joined, connected), is_door

        # Each room has the number of a room that it is connected with. The whole hall is one, and so is the locked
        # room with it.
        number = np.arange(COLUMNS * self.n_rows, dtype=np.int32)
        number[1::COLUMNS] = 1
        connected = jnp.asarray(number).at[locked * COLUMNS + 2].set(1)
        _, is_door = jax.lax.scan(add, connected, (component(room), component(beyond), is_locked))
        return room, direction, is_door
