"""ACCEL's mutation (Parker-Holder et al. 2022), for levels of LaserTag."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.lasertag.level import DRAWN, Level, at

NOTHING, FLIP, MOVE = range(3)  # the edits, equally likely


def mutate(key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits. It is valid if the level is (`level.is_valid`).

    Each edit is one of three kinds, equally likely:

    * nothing
    * a wall becomes free, or a free cell a wall, in a random cell that is not a start
    * the start of a random agent moves to a random free cell without the other one

    A new wall is not a spawn. Where all free cells are spawns, a new free cell is one too. The last two spawns stay. An
    edit that finds no cell does nothing, nor does a move of a start that is left open.
    """

    def edit(level: Level, key: jax.Array) -> tuple[Level, None]:
        k_kind, k_agent, k_cell = jax.random.split(key, 3)
        kind = jax.random.randint(k_kind, (), 0, 3)
        agent = jax.random.randint(k_agent, (), 0, 2)
        vacant = ~occupied(level)
        wanted = vacant & jnp.where(kind == FLIP, ~needed_spawns(level), ~level.walls)
        y, x, found = draw_cell(k_cell, wanted)
        place = jnp.stack([x, y])
        # All kinds are computed and one is selected: under vmap, a branch becomes that anyway, and edits are cheap.
        walls = level.walls ^ (at(place, level.walls.shape) & found & (kind == FLIP))
        everywhere = jnp.all(level.spawns == ~level.walls)
        moves = found & (kind == MOVE) & (jnp.arange(2) == agent)
        return level.replace(
            walls=walls,
            starts=jnp.where(moves[:, None] & (level.starts != DRAWN), place[None], level.starts),
            spawns=jnp.where(everywhere, ~walls, level.spawns & ~walls),
        ), None

    # One after another, because an edit must see the walls and the starts that the edit before has left.
    return jax.lax.scan(edit, level, jax.random.split(key, n_edits))[0]


def occupied(level: Level) -> jax.Array:
    """bool[h, w]: the starts. The own cell of an agent is among them, so that a start that can move does move."""
    zero, one = (at(start, level.walls.shape) for start in level.starts)
    return zero | one


def needed_spawns(level: Level) -> jax.Array:
    """bool[h, w]: the spawns, if there are only two of them; else none."""
    return level.spawns & (jnp.sum(level.spawns, dtype=jnp.int32) <= 2)
