"""MiniGrid's RoomGrid: rooms of one size in rows and columns, which share their walls."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.codes import STEPS
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.cells.settings import MOST_CELLS
from minimax_lib.envs.grid import cells


@dataclasses.dataclass(frozen=True)
class RoomGrid:
    """`rows` x `columns` rooms with a side of `side`, walls included. A room is [column, row].

    Every pair of neighbours has one cell in its wall where a door may be. Rooms that are asked for may be traced.
    """

    rows: int
    columns: int
    side: int

    @property
    def height(self) -> int:
        """Rows of cells."""
        return (self.side - 1) * self.rows + 1

    @property
    def width(self) -> int:
        """Columns of cells."""
        return (self.side - 1) * self.columns + 1

    @property
    def n_inner_walls(self) -> int:
        """Walls between two rooms."""
        return self.rows * (self.columns - 1) + (self.rows - 1) * self.columns

    def check(self) -> None:
        """ValueError if the world is too large."""
        if max(self.height, self.width) > MOST_CELLS:
            raise ValueError(
                f"side={self.side}: with {self.rows} x {self.columns} rooms, the world is {self.height} x {self.width} "
                f"cells: each side may have at most {MOST_CELLS}"
            )

    def walls(self, rows: int | None = None, columns: int | None = None) -> np.ndarray:
        """u16[height, width]: the walls of the first `rows` and `columns` of rooms. All other cells are empty."""
        rows = self.rows if rows is None else rows
        columns = self.columns if columns is None else columns
        grid = np.full((self.height, self.width), cells.EMPTY)
        step = self.side - 1
        grid[: rows * step + 1 : step, : columns * step + 1] = cells.WALL
        grid[: rows * step + 1, : columns * step + 1 : step] = cells.WALL
        return grid

    def inner_walls(self) -> tuple[np.ndarray, np.ndarray]:
        """(room i32[n, 2], direction i32[n]): every wall between two rooms, from the one to its left or above it."""
        across = [(i, j, 0) for j in range(self.rows) for i in range(self.columns - 1)]
        down = [(i, j, 1) for j in range(self.rows - 1) for i in range(self.columns)]
        walls = np.array(across + down, np.int32).reshape(-1, 3)
        return walls[:, :2], walls[:, 2]

    def middle(self, rows: int, columns: int) -> np.ndarray:
        """i32[2]: where MiniGrid puts the agent at first. See `place`."""
        return np.array([columns // 2, rows // 2], np.int32) * (self.side - 1) + self.side // 2

    def draw_doors(self, key: jax.Array) -> jax.Array:
        """i32[2, rows, columns]: how far along its right and its lower wall the door of each room would be."""
        return jax.random.randint(key, (2, self.rows, self.columns), 1, self.side - 1)

    def door_at(self, doors: jax.Array, room: Any, direction: Any) -> tuple[jax.Array, jax.Array]:
        """(x, y) i32[...]: where the door of `room` (i32[..., 2]) in this direction is."""
        room, direction = jnp.asarray(room, jnp.int32), jnp.asarray(direction, jnp.int32)
        is_down = direction % 2
        # The door to the left is the right door of the room to the left; the same with up and down.
        x, y = room[..., 0] - (direction == 2), room[..., 1] - (direction == 3)
        along = doors[is_down, y, x]
        step = self.side - 1
        return x * step + jnp.where(is_down == 1, along, step), y * step + jnp.where(is_down == 1, step, along)

    def place(self, key: jax.Array, grid: jax.Array, room: Any, thing: Any, avoid: Any, is_there: Any = True) -> Any:
        """The grid with `thing` in an empty cell of the room, its walls included; if `is_there`.

        As in MiniGrid, no cell next to `avoid` ([x, y], or itself) is taken. That is where the agent is put at first,
        and it is put elsewhere at the end.
        """
        x, y = self._corner(room)
        square = jax.lax.dynamic_slice(grid, (y, x), (self.side, self.side))
        across = jnp.abs(x + np.arange(self.side) - avoid[0])
        down = jnp.abs(y + np.arange(self.side) - avoid[1])
        is_far = across[None, :] + down[:, None] >= 2
        row, column, found = draw_cell(key, (square == cells.EMPTY) & is_far)
        # A row outside of the grid is dropped.
        row = jnp.where(found & is_there, y + row, self.height)
        return grid.at[row, x + column].set(jnp.asarray(thing, jnp.uint16), mode="drop")

    def place_agent(self, key: jax.Array, grid: jax.Array, room: Any) -> tuple[jax.Array, jax.Array]:
        """(i32[2], i32[]): an empty cell of the room and a direction, in which an empty cell or a wall is ahead.

        It is uniform over these pairs.
        """
        x, y = self._corner(room)
        whole = jnp.pad(grid, 1, constant_values=cells.WALL)
        around = jax.lax.dynamic_slice(whole, (y, x), (self.side + 2, self.side + 2))
        kind = cells.kind(around)
        is_free = (kind == codes.EMPTY) | (kind == codes.WALL)
        is_empty = (around == cells.EMPTY)[1:-1, 1:-1]
        n = self.side
        ahead = [is_free[1 + dy : 1 + dy + n, 1 + dx : 1 + dx + n] & is_empty for dx, dy in STEPS]
        row, column, _ = draw_cell(key, jnp.concatenate(ahead))
        return jnp.stack([x + column, y + row % n]), row // n

    def _corner(self, room: Any) -> tuple[jax.Array, jax.Array]:
        room = jnp.asarray(room, jnp.int32)
        return room[0] * (self.side - 1), room[1] * (self.side - 1)


class FillsRooms:
    """A frame that a grid of rooms fills."""

    @property
    def _rooms(self) -> RoomGrid:
        raise NotImplementedError

    @property
    def height(self) -> int:
        """Rows of cells of the frame."""
        return self._rooms.height

    @property
    def width(self) -> int:
        """Columns of cells of the frame."""
        return self._rooms.width
