"""MiniGrid's MultiRoom: a chain of rooms, each behind a door of the one before."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import MOST_CELLS, check_int, check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.sampling import below
from minimax_lib.envs.grid.level import Level, make_level

LEAST = 4  # smallest side of a room, with its walls
TRIES = 8  # attempts to add a room before the chain starts again
LEFT = 2  # wall: 0 right, 1 bottom, 2 left, 3 top


class Chain(struct.PyTreeNode):
    """The rooms that have been placed so far, in arrays for all that there can be."""

    corner: jax.Array  # i32[N, 2], [x, y] of the upper left corner of each room, walls included
    size: jax.Array  # i32[N, 2], [columns, rows], walls included
    door: jax.Array  # i32[N, 2], [x, y] of the door through which a room is entered; the first has none
    entry: jax.Array  # i32[], the wall of the last room that its door is in
    n_placed: jax.Array  # i32[]
    tries: jax.Array  # i32[], failed attempts to add the next room
    n_attempts: jax.Array  # i32[], of all rooms


@dataclasses.dataclass(frozen=True)
class MultiRoom:
    """A random number of rooms in a chain, with doors that are closed but not locked. Task: reach.

    The agent is anywhere in the first room, the goal anywhere in the last one. All levels can be solved. The defaults
    are MultiRoom-N4-Random of Jiang et al. (2021a).
    """

    n_min: int = 1
    """Fewest rooms of a level."""
    n_max: int = 4
    """Most rooms of a level. An episode is cut off after 20 steps for each of them."""
    max_side: int = 5
    """Largest side of a room, with its walls. The smallest is 4."""
    height: int = 14
    """Rows of cells in the frame. The last one stays empty, as in MiniGrid."""
    width: int = 14
    """Columns of cells in the frame."""
    max_attempts: int = 1024
    """Attempts to place a room. If they are spent, which is practically never so, the rooms are put in a row."""

    def __post_init__(self) -> None:
        check_int("n_min", self.n_min, 1)
        check_int("n_max", self.n_max, self.n_min, MOST_CELLS)
        check_side("max_side", self.max_side, LEAST)
        check_side("height", self.height, LEAST + 1)
        check_side("width", self.width, LEAST)
        check_int("max_attempts", self.max_attempts, 1)
        if self.width < 3 * self.n_max + 1:
            raise ValueError(
                f"width={self.width}: {self.n_max} rooms in a row need at least {3 * self.n_max + 1} columns"
            )

    @property
    def max_steps(self) -> int:
        """The limit of every level, whatever its number of rooms."""
        return 20 * self.n_max

    @property
    def difficulties(self) -> tuple[int, ...]:
        """The labels that levels can have: the number of rooms, less one."""
        return tuple(range(self.n_min - 1, self.n_max))

    def sample_level(self, key: jax.Array) -> Level:
        """A random level. Its difficulty is the number of rooms, less one."""
        k_number, k_level = jax.random.split(key)
        return self.sample_of(k_level, jax.random.randint(k_number, (), self.n_min - 1, self.n_max))

    def sample_of(self, key: jax.Array, difficulty: jax.Array) -> Level:
        """A random level with `difficulty` + 1 rooms."""
        k_chain, k_colours, k_agent, k_goal, k_dir = jax.random.split(key, 5)
        n = jnp.asarray(difficulty, jnp.int32) + 1
        chain = self.place_rooms(k_chain, n)
        agent = below(jax.random.bits(k_agent), _area(chain, 0))
        # In a single room, the goal is in one of the other cells: those from the agent's on are counted without it.
        is_single = n == 1
        goal = below(jax.random.bits(k_goal), _area(chain, n - 1) - is_single)
        goal += is_single & (goal >= agent)
        x, y = _inside(chain, n - 1, goal)
        return make_level(
            grid=self.draw(k_colours, chain, n).at[y, x].set(cells.GOAL),
            agent_pos=jnp.stack(_inside(chain, 0, agent)),
            agent_dir=jax.random.randint(k_dir, (), 0, 4),
            max_steps=self.max_steps,
            difficulty=n - 1,
        )

    def place_rooms(self, key: jax.Array, n: jax.Array) -> Chain:
        """A chain of `n` rooms. An iteration is one attempt to place one room."""

        def is_unfinished(chain: Chain) -> jax.Array:
            return (chain.n_placed < n) & (chain.n_attempts < self.max_attempts)

        def attempt(chain: Chain) -> Chain:
            return self.attempted(jax.random.fold_in(key, chain.n_attempts), chain)

        none, nothing = jnp.zeros((self.n_max, 2), jnp.int32), jnp.zeros((), jnp.int32)
        chain = Chain(none, none + LEAST, none, nothing + LEFT, nothing, nothing, nothing)
        chain = jax.lax.while_loop(is_unfinished, attempt, chain)
        in_a_row = self._in_a_row()
        return jax.tree.map(lambda x, y: jnp.where(chain.n_placed < n, y, x), chain, in_a_row)

    def attempted(self, key: jax.Array, chain: Chain) -> Chain:
        """The chain after one attempt to add a room, at a random place and of a random size."""
        bits = jax.random.bits(key, (7,))
        k, is_first = chain.n_placed, chain.n_placed == 0
        size = LEAST + below(bits[:2], self.max_side - LEAST + 1)
        last = jnp.maximum(k - 1, 0)
        exit_wall = (chain.entry + 1 + below(bits[2], 3)) % 4  # any but the one with the entry
        door = _door(chain.corner[last], chain.size[last], exit_wall, bits[3])
        entry = (exit_wall + 2) % 4
        # MiniGrid draws both numbers from the width of the frame.
        first_corner = below(bits[5:7], self.width - 2)
        corner = jnp.where(is_first, first_corner, _behind(door, size, entry, bits[4]))
        fits = self._is_inside(corner, size) & ~self._meets(corner, size, chain)

        tries = jnp.where(fits | is_first, 0, chain.tries + 1)
        starts_again = tries == TRIES
        place = jnp.where(fits, k, self.n_max)  # an index outside is dropped
        return Chain(
            corner=chain.corner.at[place].set(corner, mode="drop"),
            size=chain.size.at[place].set(size, mode="drop"),
            door=chain.door.at[place].set(door, mode="drop"),
            entry=jnp.where(fits, jnp.where(is_first, LEFT, entry), chain.entry),
            n_placed=jnp.where(starts_again, 0, k + fits),
            tries=jnp.where(starts_again, 0, tries),
            n_attempts=chain.n_attempts + 1,
        )

    def _is_inside(self, corner: jax.Array, size: jax.Array) -> jax.Array:
        """bool[]: whether the room is inside the frame. MiniGrid leaves the last row unused, but no column."""
        x, y = corner + size
        return jnp.all(corner >= 0) & (x <= self.width) & (y < self.height)

    def _meets(self, corner: jax.Array, size: jax.Array, chain: Chain) -> jax.Array:
        """bool[]: whether the room meets one before the last. As in MiniGrid, a gap is needed on one side only."""
        before = jnp.any((corner + size)[None] < chain.corner, axis=1)
        behind = jnp.any(chain.corner + chain.size <= corner[None], axis=1)
        older = np.arange(self.n_max) < chain.n_placed - 1
        return jnp.any(older & ~before & ~behind)

    def _in_a_row(self) -> Chain:
        """The smallest rooms side by side, in the upper left corner."""
        corner = np.stack([3 * np.arange(self.n_max), np.zeros(self.n_max, int)], axis=1).astype(np.int32)
        nothing = jnp.zeros((), jnp.int32)
        size, door = np.full((self.n_max, 2), LEAST, np.int32), corner + np.array([[0, 1]], np.int32)
        return Chain(jnp.asarray(corner), jnp.asarray(size), jnp.asarray(door), nothing, nothing, nothing, nothing)

    def draw(self, key: jax.Array, chain: Chain, n: jax.Array) -> jax.Array:
        """u16[height, width]: the walls of the `n` rooms, and the doors. Two doors in a row differ in colour."""
        y, x = np.mgrid[: self.height, : self.width].astype(np.int32)
        at = np.stack([x, y], axis=-1)[None]
        first = chain.corner[:, None, None]
        last = first + chain.size[:, None, None] - 1
        within = jnp.all((at >= first) & (at <= last), axis=-1)
        interior = jnp.all((at > first) & (at < last), axis=-1)
        is_room = (np.arange(self.n_max) < n)[:, None, None]
        grid = jnp.where(jnp.any(is_room & within & ~interior, axis=0), cells.WALL, cells.EMPTY)

        bits = jax.random.bits(key, (self.n_max,))
        is_first_door = np.arange(self.n_max) == 1
        # From one door to the next, the colour moves on by 1 to 5 places.
        step = jnp.where(is_first_door, below(bits, 6), 1 + below(bits, 5))
        colour = jnp.cumsum(step.at[0].set(0)) % len(codes.COLOURS)
        is_door = (np.arange(self.n_max) > 0) & (np.arange(self.n_max) < n)
        row = jnp.where(is_door, chain.door[:, 1], self.height)  # the others are dropped
        return grid.at[row, chain.door[:, 0]].set(cells.door(colour), mode="drop")


def _door(corner: jax.Array, size: jax.Array, wall: jax.Array, bits: jax.Array) -> jax.Array:
    """i32[2]: a random place in this wall of the room, not in a corner."""
    offset = 1 + below(bits, jnp.where(_is_upright(wall), size[1], size[0]) - 2)
    far = corner + size - 1
    along = corner + offset
    x = jnp.where(wall == 0, far[0], jnp.where(wall == LEFT, corner[0], along[0]))
    y = jnp.where(wall == 1, far[1], jnp.where(wall == 3, corner[1], along[1]))
    return jnp.stack([x, y])


def _behind(door: jax.Array, size: jax.Array, entry: jax.Array, bits: jax.Array) -> jax.Array:
    """i32[2]: the corner of a room whose wall `entry` holds `door`. The door is in none of its corners."""
    before = door - 1 - below(bits, jnp.where(_is_upright(entry), size[1], size[0]) - 2)
    x = jnp.where(entry == 0, door[0] - size[0] + 1, jnp.where(entry == LEFT, door[0], before[0]))
    y = jnp.where(entry == 1, door[1] - size[1] + 1, jnp.where(entry == 3, door[1], before[1]))
    return jnp.stack([x, y])


def _is_upright(wall: jax.Array) -> jax.Array:
    return wall % 2 == 0


def _area(chain: Chain, room: int | jax.Array) -> jax.Array:
    """i32[]: cells inside the room."""
    return jnp.prod(chain.size[room] - 2)


def _inside(chain: Chain, room: int | jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(x, y) of cell `number` inside the room, counted row by row."""
    y, x = jnp.divmod(number, chain.size[room, 0] - 2)
    return chain.corner[room, 0] + 1 + x, chain.corner[room, 1] + 1 + y


@dataclasses.dataclass(frozen=True)
class MultiRoomN2S4(MultiRoom):
    """MiniGrid's MultiRoom-N2-S4: two rooms of the smallest size."""

    n_min: int = 2
    n_max: int = 2
    max_side: int = 4
    height: int = 25
    width: int = 25


@dataclasses.dataclass(frozen=True)
class MultiRoomN4S5(MultiRoom):
    """MiniGrid's MultiRoom-N4-S5 (v1): four small rooms."""

    n_min: int = 4
    n_max: int = 4
    max_side: int = 5
    height: int = 25
    width: int = 25


@dataclasses.dataclass(frozen=True)
class MultiRoomN6(MultiRoom):
    """MiniGrid's MultiRoom-N6: six rooms, some of them large."""

    n_min: int = 6
    n_max: int = 6
    max_side: int = 10
    height: int = 25
    width: int = 25
