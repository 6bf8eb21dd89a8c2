"""Rooms with random doors, locks, keys, boxes and balls: the wide family that curricula select from. It is our own."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import MOST_CELLS, check_int, check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.room_grid import FillsRooms, RoomGrid
from minimax_lib.envs.grid.level import OPEN, PICKUP, REACH, Level, make_level
from minimax_lib.registry import unknown_name

Task = Literal["any", "reach", "pickup", "open"]
TASKS = {"any": (REACH, PICKUP, OPEN), "reach": (REACH,), "pickup": (PICKUP,), "open": (OPEN,)}
TARGET = cells.ball(codes.BLUE)
N_COLOURS = len(codes.COLOURS)


@dataclasses.dataclass(frozen=True)
class Rooms(FillsRooms):
    """All counts are uniform, from none to the most, and everything is anywhere. Many levels cannot be solved.

    Each locked door has its own colour, and a key that is in a box or not. The tasks are to reach the goal, to
    pick up the blue ball, and to open one of the locked doors. The difficulty is the number of locked doors.
    """

    n_rows: int = 3
    """Rows of rooms."""
    n_columns: int = 3
    """Columns of rooms."""
    side: int = 5
    """Side of a room, with its walls."""
    task: Task = "any"
    """What is to be done. any: each of the tasks is equally likely."""
    max_locks: int = 3
    """Most locked doors."""
    max_balls: int = 4
    """Most balls, without the one that is to be picked up."""
    max_boxes: int = 2
    """Most empty boxes."""
    max_steps: int = 400
    """Steps after which an episode is cut off."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown_name("task", self.task, get_args(Task))
        for name, least in (("n_rows", 1), ("n_columns", 1), ("side", 3)):
            check_side(name, getattr(self, name), least)
        self._rooms.check()
        for name in ("max_balls", "max_boxes"):
            check_int(name, getattr(self, name), 0, MOST_CELLS)
        check_int("max_steps", self.max_steps, 1)
        # A colour is left for the doors that are not locked.
        check_int("max_locks", self.max_locks, 0, N_COLOURS - 1)
        n_walls = self._rooms.n_inner_walls
        if OPEN in TASKS[self.task] and min(self.max_locks, n_walls) < 1:
            raise ValueError(
                f"task={self.task!r}, max_locks={self.max_locks}, {n_walls} inner walls: a door to open needs a lock "
                "and a wall"
            )
        n_cells, n_things = self.n_rows * self.n_columns * (self.side - 2) ** 2, 2 + self._n_things
        if n_cells < n_things:
            raise ValueError(
                f"side={self.side}: the rooms have {n_cells} cells, but {n_things} are needed for all things"
            )

    @property
    def _rooms(self) -> RoomGrid:
        return RoomGrid(self.n_rows, self.n_columns, self.side)

    @property
    def _n_things(self) -> int:
        """Keys, balls and boxes, if there are as many as can be."""
        return self.max_locks + self.max_balls + self.max_boxes

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_task, k_colours, k_doors, k_locks, k_things, k_places, k_dir = jax.random.split(key, 7)
        task = jax.random.choice(k_task, jnp.array(TASKS[self.task], jnp.int32))
        colours = jax.random.permutation(k_colours, N_COLOURS)
        n_walls = self._rooms.n_inner_walls
        n_doors, n_locks = self._draw_counts(k_locks, task, n_walls)
        grid = self._with_doors(k_doors, colours, n_doors, n_locks)

        things = self._draw_things(k_things, colours, n_locks)
        sought = jnp.where(task == REACH, cells.GOAL, jnp.where(task == PICKUP, TARGET, cells.EMPTY))
        # A random order of all cells inside the rooms: the first is the agent's, and each thing has its own.
        inside = np.flatnonzero(self._rooms.walls().reshape(-1) == cells.EMPTY).astype(np.int32)
        place = jax.random.permutation(k_places, inside)[: 2 + self._n_things]
        y, x = jnp.divmod(place, self.width)
        grid = grid.at[y[1:], x[1:]].set(jnp.concatenate([sought[None], things]).astype(jnp.uint16))
        door = jnp.where(task == OPEN, cells.pack(codes.DOOR, colours[0]), cells.NOTHING)
        return make_level(
            grid=grid,
            agent_pos=(x[0], y[0]),
            agent_dir=jax.random.randint(k_dir, (), 0, 4),
            max_steps=self.max_steps,
            task=task,
            target=jnp.where(task == PICKUP, TARGET, door),
            difficulty=n_locks,
        )

    def _draw_counts(self, key: jax.Array, task: jax.Array, n_walls: int) -> tuple[jax.Array, jax.Array]:
        """(doors, locked ones among them) i32[]: uniform from 0, or from 1 where one of them must be opened."""
        k_doors, k_locks = jax.random.split(key)
        least = (task == OPEN).astype(jnp.int32)
        n_doors = jax.random.randint(k_doors, (), least, n_walls + 1)
        return n_doors, jax.random.randint(k_locks, (), least, jnp.minimum(n_doors, self.max_locks) + 1)

    def _with_doors(self, key: jax.Array, colours: jax.Array, n_doors: jax.Array, n_locks: jax.Array) -> jax.Array:
        """u16[h, w]: the walls and the doors. Lock i has the colour `colours[i]`, other doors one that no lock has."""
        k_order, k_offsets, k_colours = jax.random.split(key, 3)
        rooms = self._rooms
        room, direction = rooms.inner_walls()
        number = np.arange(len(direction))
        order = jax.random.permutation(k_order, len(direction))
        x, y = rooms.door_at(rooms.draw_doors(k_offsets), jnp.asarray(room)[order], jnp.asarray(direction)[order])
        other = jax.random.randint(k_colours, number.shape, n_locks, N_COLOURS)
        colour = colours[jnp.where(number < n_locks, number, other)]
        doors = cells.door(colour, jnp.where(number < n_locks, codes.LOCKED, codes.CLOSED))
        row = jnp.where(number < n_doors, y, rooms.height)  # an index outside is dropped
        return jnp.asarray(rooms.walls()).at[row, x].set(doors, mode="drop")

    def _draw_things(self, key: jax.Array, colours: jax.Array, n_locks: jax.Array) -> jax.Array:
        """u16[n_things]: the keys, some of them in boxes, the balls and the empty boxes; empty where there is none."""
        k_hidden, k_colours, k_balls, k_boxes = jax.random.split(key, 4)
        colour = jax.random.randint(k_colours, (self._n_things,), 0, N_COLOURS)
        first_ball, first_box = self.max_locks, self.max_locks + self.max_balls
        key_of = cells.key(colours[: self.max_locks])
        is_hidden = jax.random.bernoulli(k_hidden, shape=(self.max_locks,))
        keys = jnp.where(is_hidden, cells.box(colour[:first_ball], key_of), key_of)
        # No ball is like the target: from its colour, each moves on by 1 to 5 places.
        balls = cells.ball((codes.BLUE + 1 + colour[first_ball:first_box] % (N_COLOURS - 1)) % N_COLOURS)
        boxes = cells.box(colour[first_box:])
        n_balls = jax.random.randint(k_balls, (), 0, self.max_balls + 1)
        n_boxes = jax.random.randint(k_boxes, (), 0, self.max_boxes + 1)
        things = [(keys, n_locks), (balls, n_balls), (boxes, n_boxes)]
        return jnp.concatenate([jnp.where(np.arange(len(part)) < n, part, cells.EMPTY) for part, n in things])
