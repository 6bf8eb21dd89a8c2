"""About how many actions a level takes that has one lock on the way."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.flood import beside, bit_at, bits_of, cells_of
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import FETCH, Level
from minimax_lib.envs.grid.planes import Cells, facing, spread, start_of
from minimax_lib.loops import steps_at_once

EMPTY_HANDS, KEY, BALL = range(3)
BOXED, FREE, TAKEN = range(3)
OPEN_BOX, TAKE_KEY, TAKE_BALL, DROP, UNLOCK, NEVER = range(6)


class SolutionStage(NamedTuple):
    """How far a solution has come, but for where the agent is."""

    hands: int = EMPTY_HANDS
    ball_moved: bool = False
    key: int = BOXED
    is_open: bool = False

    def after(self, event: int) -> "SolutionStage | None":
        """The next stage; None where the event cannot happen, or is of no use."""
        empty = self.hands == EMPTY_HANDS
        # A key is of no use any more once the door is open. Before that, it is not laid down.
        drops = self.hands == BALL or (self.hands == KEY and self.is_open)
        after = {
            OPEN_BOX: self._replace(key=FREE) if self.key == BOXED else None,
            TAKE_KEY: self._replace(hands=KEY, key=TAKEN) if empty and self.key == FREE else None,
            TAKE_BALL: self._replace(hands=BALL, ball_moved=True) if empty and not self.ball_moved else None,
            DROP: self._replace(hands=EMPTY_HANDS) if drops else None,
            UNLOCK: self._replace(is_open=True) if self.hands == KEY and not self.is_open else None,
        }
        return after[event]


def _stages() -> tuple[tuple[SolutionStage, ...], np.ndarray, np.ndarray]:
    """(all stages, [k, s] the stages before each of them, [k, s] the events in between, NEVER where there are fewer)"""
    stages, ways = [SolutionStage()], []
    for stage in stages:  # which grows
        for event in range(NEVER):
            after = stage.after(event)
            if after is None:
                continue
            if after not in stages:
                stages.append(after)
            ways.append((stages.index(after), stages.index(stage), event))
    into = [[way[1:] for way in ways if way[0] == i] for i in range(len(stages))]
    n = max(map(len, into))
    table = np.array([way + [(0, NEVER)] * (n - len(way)) for way in into], np.int32)
    return tuple(stages), table[:, :, 0].T, table[:, :, 1].T


STAGES, SOURCES, EVENTS = _stages()
HAS_EMPTY_HANDS, IS_OPEN = (np.array([getattr(s, n) == v for s in STAGES]) for n, v in (("hands", 0), ("is_open", 1)))
BALL_MOVED, KEY_TAKEN = np.array([s.ball_moved for s in STAGES]), np.array([s.key == TAKEN for s in STAGES])


class Lock(NamedTuple):
    """The lock on the way, and what goes with it. bool[h, w] each, with one cell or none; but for `is_known`."""

    door: jax.Array
    key: jax.Array  # the key, or the box that holds it
    ball: jax.Array  # an object beside the door
    is_known: jax.Array  # bool[], there is one such lock, and one key to it


class Moves(NamedTuple):
    """What can be done in each of S stages, as strings of bits."""

    ends: jax.Array  # u32[S, n], to enter one of these cells solves the level
    free: jax.Array  # u32[S, n], one action enters it
    shut: jax.Array  # u32[S, n], two actions enter it
    places: jax.Array  # u32[K, S, 4, n], where an event leads to the stage: for each of its K stages before


def length_with_lock(level: Level, here: Cells) -> jax.Array:
    """i32[]: about how many actions solve the level; -1 where that is not known. See `solution_length`.

    Each of the locked doors but one stays as it is. So do all objects, but for its key and an object beside it. What is
    laid down vanishes, which may be too good. No way leads over the other objects, which may be too bad.
    """
    lock, width = lock_on_the_way(level, here), level.grid.shape[1]
    moves = moves_with(lock, level, here)

    def goes_on(loop: tuple) -> jax.Array:
        _, _, _, arrived, stuck = loop
        return ~arrived & ~stuck

    def go_on(loop: tuple) -> tuple:
        for _ in range(steps_at_once(8)):
            reached, before, length, arrived, stuck = loop
            wider = spread(reached, before, moves.free, moves.shut, width)
            for source, place in zip(SOURCES, moves.places, strict=True):
                wider |= reached[source] & place
            ended = arrived | stuck
            now = jnp.any(wider & moves.ends[:, None] != 0)
            loop = wider, reached, length + ~ended, arrived | (now & ~ended), stuck | jnp.all(wider == before)
        return loop

    is_boxed = jnp.any(lock.key & (cells.kind(level.grid) == codes.BOX))
    first = jnp.where(is_boxed, STAGES.index(SolutionStage()), STAGES.index(SolutionStage(key=FREE)))
    begins = np.arange(len(STAGES)) == first
    reached = jnp.where(begins[:, None, None], start_of(level)[None], jnp.uint32(0))
    # Without a lock, there is nothing to do.
    loop = (reached, jnp.zeros_like(reached), jnp.zeros((), jnp.int32), jnp.zeros((), bool), ~lock.is_known)
    _, _, length, arrived, _ = jax.lax.while_loop(goes_on, go_on, loop)
    return jnp.where(arrived, length, -1)


def moves_with(lock: Lock, level: Level, here: Cells) -> Moves:
    """What can be done in each of the stages."""
    masks = [here.free, here.found, here.shut, here.boxed, here.ends, lock.key, lock.ball, lock.door]
    empty = level.grid == cells.EMPTY
    free, found, shut, boxed, ends, key, ball, door, empty = jax.vmap(bits_of)(jnp.stack([*masks, empty]))

    def where(stage: np.ndarray, mask: jax.Array) -> jax.Array:
        return jnp.where(stage[:, None], mask[None], jnp.uint32(0))

    gone = where(KEY_TAKEN, key) | where(BALL_MOVED, ball)  # these cells are empty now
    # What must be in front, by event and by the stage after it. A drop leaves the empty cells as they are.
    in_front = {OPEN_BOX: key, TAKE_KEY: key, TAKE_BALL: ball, UNLOCK: door, NEVER: jnp.zeros_like(key)}
    of_stages = {event: jnp.broadcast_to(mask, gone.shape) for event, mask in in_front.items()}
    of_stages[DROP] = empty[None] | gone
    table = jnp.stack([of_stages[event] for event in sorted(of_stages)])
    front = table[EVENTS, np.arange(len(STAGES))]
    opens_target = IS_OPEN & jnp.any(lock.door & here.ends)
    return Moves(
        ends=jnp.where(opens_target[:, None], ~jnp.uint32(0), ends[None]),
        free=free[None] | gone | where(HAS_EMPTY_HANDS, found) | where(IS_OPEN, door),
        shut=shut[None] | where(HAS_EMPTY_HANDS, boxed),
        places=jax.vmap(jax.vmap(lambda cells: facing(cells, level.grid.shape[1])))(front),
    )


def lock_on_the_way(level: Level, here: Cells) -> Lock:
    """The locked door between the part of the level that the agent is in, and the part that solves the level.

    A door counts only if a key to it is in the agent's part.
    """
    grid, shape = level.grid, level.grid.shape
    width, kind = shape[1], cells.kind(grid)
    passable = bits_of((kind != codes.WALL) & (kind != codes.LAVA) & ~here.locked)
    locked, ends = bits_of(here.locked), bits_of(here.ends)
    near, far = _parts(jnp.stack([bit_at(level.agent_pos, shape), ends & ~locked]), passable, width, locked)
    is_near = cells_of(near, shape)
    has_key = jnp.right_shift(cells.key_colours(jnp.where(is_near, grid, cells.EMPTY)), cells.colour(grid)) & 1 == 1
    door = has_key & cells_of(locked & beside(near, width) & (beside(far, width) | ends), shape)
    fitting = cells.key(jnp.max(jnp.where(door, cells.colour(grid), 0)))
    key = is_near & (cells.key_in(grid) == fitting)
    ball = cells.is_item(grid) & ~key & ~here.ends & cells_of(beside(bits_of(door), width), shape)
    ball &= is_near | ~jnp.any(ball & is_near)
    # To pick up a key is a failure in FETCH.
    is_known = ~jnp.any(near & far != 0) & (level.task != FETCH)
    is_known &= (door.sum(dtype=jnp.int32) == 1) & (key.sum(dtype=jnp.int32) == 1)
    return Lock(door, key, ball, is_known)


def _parts(starts: jax.Array, passable: jax.Array, width: int, locked: jax.Array) -> jax.Array:
    """u32[2, n]: what can be reached from each of the `starts` over cells that are `passable`."""

    def goes_on(loop: tuple) -> jax.Array:
        return ~loop[1]

    def go_on(loop: tuple) -> tuple:
        for _ in range(steps_at_once(8)):
            reached, _ = loop
            wider = (reached | jax.vmap(beside, (0, None))(reached, width)) & passable[None]
            loop = wider, jnp.all(wider == reached)
        return loop

    # Levels without locks need no parts.
    return jax.lax.while_loop(goes_on, go_on, (starts & passable[None], jnp.all(locked == 0)))[0]
