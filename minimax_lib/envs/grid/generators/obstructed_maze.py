"""MiniGrid's ObstructedMaze: a ball behind locked doors, with keys in boxes and balls in the way; and its gamuts."""

import dataclasses
from typing import Any, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.codes import STEPS
from minimax_lib.envs.cells.settings import check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.room_grid import FillsRooms, RoomGrid
from minimax_lib.envs.grid.level import PICKUP, Level, make_level
from minimax_lib.registry import unknown_name

Kind = Literal["1Dl", "1Dlh", "1Dlhb", "2Dl", "2Dlh", "2Dlhb", "1Q", "2Q", "Full"]
KeyOrder = Literal["v1", "v0"]
KINDS = get_args(Kind)
TARGET, OBSTACLE = cells.ball(codes.BLUE), cells.ball(codes.GREEN)
SIDE_ROOMS = ((2, 1), (1, 2), (0, 1), (1, 0))  # right of, below, left of and above the middle
CORNERS = ((2, 0), (2, 2), (0, 2), (0, 0))
N_LOCKS = 8  # most locked doors of a level: two in each of the four side rooms
FRAME = 3  # rooms along each side of the frame


@dataclasses.dataclass(frozen=True)
class MazePlan:
    """What a kind of maze is made of. Locks are numbered; those from `n_locks` on are not there."""

    rows: int
    columns: int
    agent: tuple[int, int]
    """The room of the agent."""
    n_sides: int
    """Side rooms with an unlocked door to the middle."""
    corners: tuple[tuple[int, int], ...]
    """The rooms that the target may be in."""
    in_boxes: bool
    """The keys are in boxes."""
    blocked: bool
    """A ball is in front of each locked door."""
    n_visited: int
    """Rooms that a solution visits at most, as MiniGrid counts them: the time limit grows with it."""

    @property
    def n_locks(self) -> int:
        return max(1, 2 * self.n_sides)

    def lock(self, number: int) -> tuple[tuple[int, int], int, int]:
        """(room, direction, number of the colour) of a locked door. Its key is in that room."""
        if self.n_sides == 0:
            return (0, 0), 0, 0
        side, other = divmod(number, 2)
        turn = side + (1 if other else -1)
        return SIDE_ROOMS[side], turn % 4, turn % 6


def _one_door(in_boxes: bool, blocked: bool) -> MazePlan:
    return MazePlan(1, 2, (0, 0), 0, ((1, 0),), in_boxes, blocked, 2)


def _three_by_three(agent: tuple[int, int], n_sides: int, in_boxes: bool, blocked: bool, n_visited: int) -> MazePlan:
    return MazePlan(3, 3, agent, n_sides, CORNERS[:n_sides], in_boxes, blocked, n_visited)


PLANS = (
    _one_door(False, False),
    _one_door(True, False),
    _one_door(True, True),
    _three_by_three((2, 1), 1, False, False, 4),
    _three_by_three((2, 1), 1, True, False, 4),
    _three_by_three((2, 1), 1, True, True, 4),
    _three_by_three((1, 1), 1, True, True, 5),
    _three_by_three((1, 1), 2, True, True, 11),
    _three_by_three((1, 1), 4, True, True, 25),
)
assert len(PLANS) == len(KINDS)


@dataclasses.dataclass(frozen=True)
class Mazes(FillsRooms):
    """Random mazes of several kinds, each equally likely: the base of the families below. Its kinds are `difficulties`.

    Task: pick up the blue ball. Doors are locked, keys may be in boxes, and green balls may be in front of doors.
    """

    key_order: KeyOrder = "v1"
    """v1: the keys of a room are placed after its balls. v0: before the second ball, which deletes one of 24 keys."""
    side: int = 7
    """Side of a room, with its walls. The frame has three rooms each way."""

    difficulties: ClassVar[tuple[int, ...]]  # the numbers of the kinds, in the order of `KINDS`

    def __post_init__(self) -> None:
        if self.key_order not in get_args(KeyOrder):
            raise unknown_name("key_order", self.key_order, get_args(KeyOrder))
        # In smaller rooms, there may be no cell left for the second key.
        check_side("side", self.side, 5)
        self._rooms.check()

    @property
    def _rooms(self) -> RoomGrid:
        return RoomGrid(FRAME, FRAME, self.side)

    @property
    def max_steps(self) -> int:
        """The largest limit: it grows with the rooms that must be visited."""
        return int(max(self._tables.max_steps))

    @property
    def _tables(self) -> "Tables":
        return Tables.of(self._rooms, [PLANS[kind] for kind in self.difficulties])

    def sample_level(self, key: jax.Array) -> Level:
        """A random level. Its difficulty is the number of its kind."""
        k_kind, k_level = jax.random.split(key)
        place = jax.random.randint(k_kind, (), 0, len(self.difficulties))
        return self.sample_of(k_level, jnp.array(self.difficulties, jnp.int32)[place])

    def sample_listed(self, key: jax.Array, number: jax.Array) -> Level:
        """The kinds take turns, so that a list has equally many of each, as published."""
        kinds = jnp.array(self.difficulties, jnp.int32)
        return self.sample_of(key, kinds[number % len(self.difficulties)])

    def sample_of(self, key: jax.Array, difficulty: jax.Array) -> Level:
        """A random level of the kind with this number."""
        k_doors, k_colours, k_keys, k_corner, k_target, k_agent = jax.random.split(key, 6)
        place = jnp.argmax(np.array(self.difficulties) == difficulty)
        # The parts of all kinds are numbers in tables, so that only one level is drawn.
        plan = jax.tree.map(lambda table: jnp.asarray(table)[place], self._tables)
        rooms = self._rooms
        doors = rooms.draw_doors(k_doors)
        colours = jax.random.permutation(k_colours, len(codes.COLOURS))
        x, y = rooms.door_at(doors, np.full((4, 2), 1, np.int32), np.arange(4))
        row = jnp.where(np.arange(4) < plan.n_sides, y, rooms.height)  # an index outside is dropped
        grid = plan.walls.at[row, x].set(cells.door(colours[:4]), mode="drop")
        grid = self._with_locks(k_keys, grid, doors, colours, plan)

        corner = plan.corners[jax.random.randint(k_corner, (), 0, plan.n_corners)]
        grid = rooms.place(k_target, grid, corner, TARGET, plan.middle)
        pos, facing = rooms.place_agent(k_agent, grid, plan.agent)
        return make_level(grid, pos, facing, plan.max_steps, PICKUP, TARGET, difficulty)

    def _with_locks(self, key: jax.Array, grid: jax.Array, doors: jax.Array, colours: jax.Array, plan: "Tables") -> Any:
        """The grid with all locked doors, the balls in front of them, and their keys."""
        rooms = self._rooms
        x, y = rooms.door_at(doors, plan.lock_room, plan.lock_direction)
        behind = jnp.asarray(STEPS, jnp.int32)[plan.lock_direction]
        colour = colours[plan.lock_colour]
        is_there = np.arange(N_LOCKS) < plan.n_locks
        lock_row = jnp.where(is_there, y, rooms.height)
        ball_row = jnp.where(is_there & plan.blocked, y - behind[:, 1], rooms.height)
        keys = jnp.where(plan.in_boxes, cells.box(codes.GREY, cells.key(colour)), cells.key(colour))
        grid = grid.at[lock_row, x].set(cells.door(colour, codes.LOCKED), mode="drop")
        ball_column = x - behind[:, 0]
        if self.key_order == "v1":
            grid = grid.at[ball_row, ball_column].set(OBSTACLE, mode="drop")

        def place_key(grid: jax.Array, lock: tuple) -> tuple[jax.Array, None]:
            key, row, column, room, thing, is_there = lock
            if self.key_order == "v0":
                grid = grid.at[row, column].set(OBSTACLE, mode="drop")
            return rooms.place(key, grid, room, thing, plan.middle, is_there), None

        locks = (jax.random.split(key, N_LOCKS), ball_row, ball_column, plan.lock_room, keys, is_there)
        return jax.lax.scan(place_key, grid, locks)[0]


class Tables(struct.PyTreeNode):
    """Several plans as arrays, [n_kinds, ...]; or one of them, without that axis. Of numpy, or of jax."""

    walls: Any  # u16[h, w]
    middle: Any  # i32[2], see `RoomGrid.place`
    agent: Any  # i32[2], the room of the agent
    n_sides: Any  # i32[]
    corners: Any  # i32[4, 2]
    n_corners: Any  # i32[]
    in_boxes: Any  # bool[]
    blocked: Any  # bool[]
    max_steps: Any  # i32[]
    n_locks: Any  # i32[]
    lock_room: Any  # i32[8, 2]
    lock_direction: Any  # i32[8]
    lock_colour: Any  # i32[8]

    @classmethod
    def of(cls, rooms: RoomGrid, plans: list[MazePlan]) -> "Tables":
        """The tables of these kinds, as arrays of numpy."""

        def parts(plan: MazePlan) -> "Tables":
            locks = [plan.lock(i) for i in range(plan.n_locks)]
            locks += locks[:1] * (N_LOCKS - len(locks))
            room, direction, colour = (np.array(part, np.int32) for part in zip(*locks, strict=True))
            corners = plan.corners + plan.corners[:1] * (4 - len(plan.corners))
            return cls(
                walls=rooms.walls(plan.rows, plan.columns),
                middle=rooms.middle(plan.rows, plan.columns),
                agent=np.array(plan.agent, np.int32),
                n_sides=np.int32(plan.n_sides),
                corners=np.array(corners, np.int32),
                n_corners=np.int32(len(plan.corners)),
                in_boxes=np.bool_(plan.in_boxes),
                blocked=np.bool_(plan.blocked),
                max_steps=np.int32(4 * plan.n_visited * rooms.side**2),
                n_locks=np.int32(plan.n_locks),
                lock_room=room,
                lock_direction=direction,
                lock_colour=colour,
            )

        return jax.tree.map(lambda *leaves: np.stack(leaves), *(parts(plan) for plan in plans))


@dataclasses.dataclass(frozen=True)
class ObstructedMaze(Mazes):
    """One kind of ObstructedMaze. Task: pick up the blue ball."""

    kind: Kind = "1Dlhb"
    """1D: 2 rooms; others: 9. l: locked doors, h: keys hidden in boxes, b: balls in front of doors. Q and Full: lhb."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)

    @property
    def difficulties(self) -> tuple[int, ...]:  # type: ignore[override]
        """The number of the kind."""
        return (KINDS.index(self.kind),)


@dataclasses.dataclass(frozen=True)
class GamutEasy(Mazes):
    """ObstructedMazeGamut-Easy (Jiang et al. 2021a): the 3 kinds with two rooms, equally likely."""

    difficulties = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class GamutMedium(Mazes):
    """ObstructedMazeGamut-Medium (Jiang et al. 2021a): the 6 kinds with two rooms or one side room, equally likely."""

    difficulties = (0, 1, 2, 3, 4, 5)


@dataclasses.dataclass(frozen=True)
class GamutHard(Mazes):
    """ObstructedMazeGamut-Hard (Jiang et al. 2021a): all 9 kinds, equally likely."""

    difficulties = (0, 1, 2, 3, 4, 5, 6, 7, 8)
