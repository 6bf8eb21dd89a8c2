"""ACCEL's mutation of the object world."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.sampling import below
from minimax_lib.envs.grid.level import OPEN, Level
from minimax_lib.envs.grid.metrics import solvable, sought

NOTHING, FLIP, MOVE_SOUGHT, MOVE_OTHER, PACK, LOCK = range(6)
ADD_DOOR, REMOVE_DOOR, ADD_BALL, REMOVE_BALL, ADD_KEY, REMOVE_KEY = range(6, 12)
# Nine kinds of edits, equally likely. Three of them are one of two edits, each with half of their probability.
KINDS = (
    (NOTHING, NOTHING),
    (FLIP, FLIP),
    (MOVE_SOUGHT, MOVE_SOUGHT),
    (MOVE_OTHER, MOVE_OTHER),
    (PACK, PACK),
    (LOCK, LOCK),
    (ADD_DOOR, REMOVE_DOOR),
    (ADD_BALL, REMOVE_BALL),
    (ADD_KEY, REMOVE_KEY),
)
SWAP_LOCK = np.uint16((codes.CLOSED ^ codes.LOCKED) << cells.STATE)  # turns each of the two states into the other
N_COLOURS = len(codes.COLOURS)


def mutate(key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits. It is valid if `level` is, and has the same task, target and agent.

    Each edit is one of nine kinds, equally likely, on a random cell where it can be done:

    * nothing
    * a wall becomes empty, or an empty cell a wall, but not on the outermost ring of the frame
    * the goal, or what the task is about, moves to an empty cell
    * another key, ball or box moves to an empty cell
    * a key goes into a box, or comes out of the box that holds it
    * half and half: a wall between two opposite cells without walls becomes a closed door; a door becomes a wall
    * a closed door is locked, or a locked one is closed
    * half and half: a ball is put on an empty cell; a ball is removed
    * half and half: a closed door is locked, and a key to it is put on an empty cell; a key is removed

    An edit that finds no such cell does nothing. No new door, box, ball or key can be taken for what the task is about.
    In the end, a locked door without a key of its colour is closed. So locks come and go with their keys, also where a
    lineage begins in an empty room.
    """

    def edited(level: Level, key: jax.Array) -> tuple[Level, None]:
        return level.replace(grid=edit(key, level)), None

    # One after another, because an edit must see what the edit before has left.
    level = jax.lax.scan(edited, level, jax.random.split(key, n_edits))[0]
    return level.replace(grid=with_useful_locks(level.grid))


@dataclasses.dataclass(frozen=True)
class KeepSolvable:
    """A mutation by which no level becomes unsolvable: where a child of `mutate` is, its parent takes its place."""

    mutate: Callable[[jax.Array, Level, int], Level]

    def __call__(self, key: jax.Array, level: Level, n_edits: int) -> Level:
        child = self.mutate(key, level, n_edits)
        can_solve = solvable(child)
        return jax.tree.map(lambda new, old: jnp.where(can_solve, new, old), child, level)


def edit(key: jax.Array, level: Level) -> jax.Array:
    """u16[h, w]: the grid of `level` after one random edit."""
    k_bits, *k_cells = jax.random.split(key, 3)
    bits = jax.random.bits(k_bits, (2,))
    which = jnp.array(KINDS, jnp.int32).reshape(-1)[below(bits[0], np.size(KINDS))]
    empty = (level.grid == cells.EMPTY) & ~_agent_at(level)
    # Both draws at once: the cell of the edit, and the one that something would move to.
    wanted = jnp.stack([_cells_for(which, level, empty), empty])
    y, x, found = jax.vmap(draw_cell)(jnp.stack(k_cells), wanted)
    old = level.grid[y[0], x[0]]
    adds_key = which == ADD_KEY
    fills = (which == MOVE_SOUGHT) | (which == MOVE_OTHER) | adds_key
    new = _edited(which, old, _new_colour(bits[1], level, which))
    # Two cells change at most: the one, and where something comes to. A row outside of the grid is dropped.
    happens = found[0] & (found[1] | ~fills)
    rows = jnp.where(jnp.stack([happens, happens & fills]), y, level.grid.shape[0])
    comes = jnp.where(adds_key, cells.key(cells.colour(old)), old)
    return level.grid.at[rows, x].set(jnp.stack([new, comes]), mode="drop")


def _agent_at(level: Level) -> jax.Array:
    """bool[h, w]: the agent's cell."""
    height, width = level.grid.shape
    x, y = level.agent_pos
    return (np.arange(width) == x)[None, :] & (np.arange(height) == y)[:, None]


def _cells_for(which: jax.Array, level: Level, empty: jax.Array) -> jax.Array:
    """bool[h, w]: where the edit `which` can be done. `empty` (bool[h, w]) has neither object nor agent."""
    grid, kind = level.grid, cells.kind(level.grid)
    is_target = cells.named(grid) == level.target.astype(jnp.uint16)
    inner = np.zeros(grid.shape, bool)
    inner[1:-1, 1:-1] = True
    is_item, is_sought = cells.is_item(grid), sought(level)
    # A box that is the target must not be taken away, whatever it holds.
    holds_key = (cells.kind(cells.inside(grid)) == codes.KEY) & ~is_target
    is_closed = cells.is_shut(grid) & (cells.state(grid) == codes.CLOSED)
    is_target_key = level.target == cells.key(cells.colour(grid))
    # The agent may stand in an open door.
    is_spare_door = (kind == codes.DOOR) & ~is_target & ~_agent_at(level)
    where = {
        FLIP: ((kind == codes.WALL) | empty) & inner,
        MOVE_SOUGHT: is_sought & (is_item | (kind == codes.GOAL)),
        MOVE_OTHER: is_item & ~is_sought,
        PACK: (kind == codes.KEY) | holds_key,
        LOCK: cells.is_shut(grid),
        ADD_DOOR: _is_between(kind),
        REMOVE_DOOR: is_spare_door,
        ADD_BALL: empty,
        REMOVE_BALL: (kind == codes.BALL) & ~is_target,
        ADD_KEY: is_closed & ~is_target_key,
        REMOVE_KEY: (kind == codes.KEY) & ~is_target,
    }
    # Not a switch: under vmap, all branches would be computed, each with its own grid.
    wanted = jnp.zeros(grid.shape, bool)
    for number, here in where.items():
        wanted |= (which == number) & here
    return wanted


def _is_between(kind: jax.Array) -> jax.Array:
    """bool[h, w]: walls with no wall on two opposite sides. What is outside of the frame counts as wall."""
    clear = jnp.pad(kind != codes.WALL, 1)
    sideways, upright = clear[1:-1, :-2] & clear[1:-1, 2:], clear[:-2, 1:-1] & clear[2:, 1:-1]
    return (kind == codes.WALL) & (sideways | upright)


def _new_colour(bits: jax.Array, level: Level, which: jax.Array) -> jax.Array:
    """u16[]: a random colour for what an edit adds. It is not the target's, with which it might be confused.

    A door may have it, unless the task is to open the target.
    """
    is_free = (level.target == cells.NOTHING) | ((which == ADD_DOOR) & (level.task != OPEN))
    # From the target's colour, it moves on by 1 to 5 places.
    first = jnp.where(is_free, 0, cells.colour(level.target) + 1)
    return ((first + below(bits, jnp.where(is_free, N_COLOURS, N_COLOURS - 1))) % N_COLOURS).astype(jnp.uint16)


def _edited(which: jax.Array, cell: jax.Array, colour: jax.Array) -> jax.Array:
    """u16[]: what the edit `which` makes of the cell where it is done."""
    is_wall, is_key = cells.kind(cell) == codes.WALL, cells.kind(cell) == codes.KEY
    outcomes = {
        NOTHING: cell,
        FLIP: jnp.where(is_wall, cells.EMPTY, cells.WALL),
        MOVE_SOUGHT: cells.EMPTY,
        MOVE_OTHER: cells.EMPTY,
        PACK: jnp.where(is_key, cells.box(colour, cell), cells.inside(cell)),
        LOCK: cell ^ SWAP_LOCK,
        ADD_DOOR: cells.door(colour),
        REMOVE_DOOR: cells.WALL,
        ADD_BALL: cells.ball(colour),
        REMOVE_BALL: cells.EMPTY,
        ADD_KEY: cell ^ SWAP_LOCK,
        REMOVE_KEY: cells.EMPTY,
    }
    return jnp.stack([jnp.asarray(outcomes[number], jnp.uint16) for number in range(len(outcomes))])[which]


def with_useful_locks(grid: jax.Array) -> jax.Array:
    """u16[h, w]: the grid in which a locked door without a key of its colour, in a box or not, is closed instead."""
    colours = cells.key_colours(grid)
    is_locked = (cells.kind(grid) == codes.DOOR) & (cells.state(grid) == codes.LOCKED)
    is_lost = is_locked & (jnp.right_shift(colours, cells.colour(grid)) & 1 == 0)
    return jnp.where(is_lost, grid ^ SWAP_LOCK, grid)
