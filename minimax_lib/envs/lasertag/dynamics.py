"""The moves of a game of LaserTag.

The chances of a step come in from outside: who goes first, and where a tagged agent returns. All else is fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.cells.bits import WORD
from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.lasertag.level import DRAWN, Level, at
from minimax_lib.envs.lasertag.rules import ActionTable, among

MOVES, TAGS = 1, 2  # what an action does to the place of an agent


class EnvState(struct.PyTreeNode):
    """A game. `level` is the level that `reset` was given, unchanged."""

    level: Level
    position: jax.Array  # i32[2, 2], [x, y] of each agent
    facing: jax.Array  # i32[2]
    time: jax.Array  # i32[], steps taken
    tags: jax.Array  # i32[2], that each agent has made
    fired: jax.Array  # bool[2], its last action was to fire, and it is still where it fired from: for pictures


def begin(level: Level) -> EnvState:
    """The state in which a game with given starts begins."""
    return EnvState(
        level=level,
        position=level.starts,
        facing=level.facings,
        time=jnp.zeros((), jnp.int32),
        tags=jnp.zeros(2, jnp.int32),
        fired=jnp.zeros(2, bool),
    )


def begin_anywhere(key: jax.Array, level: Level) -> EnvState:
    """The same, with starts on random spawns where the level leaves them open (-1)."""
    k_one, k_zero = jax.random.split(key)
    # Agent 1 first, as in OpenSpiel. Either order gives the same chances.
    y, x, _ = draw_cell(k_one, level.spawns)
    one = jnp.stack([x, y])
    y, x, _ = draw_cell(k_zero, level.spawns & ~at(one, level.spawns.shape))
    drawn = jnp.stack([jnp.stack([x, y]), one])
    state = begin(level)
    return state.replace(position=jnp.where(level.starts == DRAWN, drawn, level.starts))


def resolve(state: EnvState, action: jax.Array, first: jax.Array, table: ActionTable) -> tuple[EnvState, jax.Array]:
    """(the state after both actions (i32[2]), bool[2] who tagged the other). At most one did.

    The action of agent `first` (i32[]) is carried out first. If it tags, the other action is void. A tagged agent stays
    where it is: see `bring_back`.
    """
    position, facing = state.position, state.facing
    ahead = jnp.stack(direction_vector(facing), axis=1)  # [2, 2], one step
    along = among(table.forward, action) - among(table.backward, action)
    aside = among(table.aside_right, action) - among(table.aside_left, action)
    to_the_right = jnp.stack([-ahead[:, 1], ahead[:, 0]], axis=1)
    target = position + along[:, None] * ahead + aside[:, None] * to_the_right
    walls = jnp.asarray(state.level.walls)
    steps = ((along | aside) != 0) & _is_open(walls, target)
    fires, (lines, place) = among(table.fire, action) == 1, _lines_along(walls, position, facing)

    def carried_out(other: jax.Array) -> jax.Array:
        """i32[2]: MOVES or TAGS or neither, for each agent if the other one is at `other` (i32[2, 2])."""
        gap = other - position
        in_line = (jnp.sum(gap * to_the_right, axis=1) == 0) & (jnp.sum(gap * ahead, axis=1) > 0)
        clear = _none_between(lines, place, jnp.where((facing & 1) == 0, other[:, 0], other[:, 1]))
        moves, tags = steps & jnp.any(target != other, axis=1), fires & in_line & clear
        # A sum is a reduction, which XLA computes once. It repeats element-wise functions for all that depends on them,
        # in the end for every pixel of the observation.
        return jnp.sum(jnp.where(np.arange(2)[None] == 0, moves[:, None] * MOVES, tags[:, None] * TAGS), axis=1)

    # Each agent as if it went first, then each as the second after that. Both take the same few instructions for two
    # agents as for one. Where an agent stands and looks before its turn does not depend on the other.
    effect = carried_out(position[::-1])
    second = carried_out(jnp.where(effect[:, None] == MOVES, target, position)[::-1])
    acts = (np.arange(2) == first) | (effect[::-1] != TAGS)
    rank = jnp.stack([np.arange(2) == first, np.arange(2) != first])
    effect = jnp.sum(jnp.where(rank & acts[None], jnp.stack([effect, second]), 0), axis=0)
    moves, tags = effect == MOVES, effect == TAGS
    turns = acts * (among(table.turn_right, action) - among(table.turn_left, action))
    turns += moves * (among(table.then_right, action) - among(table.then_left, action))
    return state.replace(
        position=jnp.where(moves[:, None], target, position),
        facing=(facing + turns) & 3,  # modulo 4, also for -1
        time=state.time + 1,
        tags=state.tags + tags,
        fired=fires & acts & ~tags[::-1],
    ), tags


def _is_open(walls: jax.Array, cells: jax.Array) -> jax.Array:
    """bool[2]: the cells (i32[2, 2]) are in the grid and no walls."""
    height, width = walls.shape
    inside = jnp.all((cells >= 0) & (cells < jnp.array([[width, height]], jnp.int32)), axis=1)
    # Outside of the grid, the lookup finds some other cell, but `inside` is then false.
    return inside & ~walls.at[cells[:, 1], cells[:, 0]].get(mode="clip")


def in_sight(walls: jax.Array, position: jax.Array) -> jax.Array:
    """bool[]: the agents (i32[2, 2]) are in one line, with no wall between them."""
    same_column, same_row = position[0] == position[1]
    lines, place = _lines_along(walls, position, jnp.where(same_row, 0, 1) * jnp.ones(2, jnp.int32))
    return (same_column | same_row) & _none_between(lines, place, place[::-1])[0]


def _lines_along(walls: jax.Array, position: jax.Array, facing: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(u32[2, n], the line of the grid along which each agent looks, as bits; i32[2], its own place in it)."""
    # The words depend only on the walls, and few operations make them: ten times as fast as to look up all cells.
    rows, columns = bits_of_lines(walls), bits_of_lines(walls.T)
    sideways = (facing & 1) == 0  # right is 0 and left is 2
    line = jnp.where(sideways, position[:, 1], len(rows) + position[:, 0])
    lines = jnp.concatenate([rows, columns]).at[line].get(mode="promise_in_bounds")
    return lines, jnp.where(sideways, position[:, 0], position[:, 1])


def bits_of_lines(walls: jax.Array) -> jax.Array:
    """u32[h, n]: the rows of bool[h, w] as bits, as many words as the longer side needs."""
    n_words = -(-max(walls.shape) // WORD)
    cells = jnp.pad(walls, ((0, 0), (0, n_words * WORD - walls.shape[1]))).reshape(len(walls), n_words, WORD)
    # Each bit is a different power of two, so the sum is their union.
    return jnp.sum(cells.astype(jnp.uint32) << np.arange(WORD, dtype=np.uint32)[None, None], axis=2, dtype=jnp.uint32)


def _none_between(lines: jax.Array, one: jax.Array, other: jax.Array) -> jax.Array:
    """bool[2]: no bit of the lines (u32[2, n]) is set between the places `one` and `other` (i32[2])."""
    first = WORD * np.arange(lines.shape[1], dtype=np.int32)[None]  # of each word
    low, high = jnp.minimum(one, other) + 1, jnp.maximum(one, other)
    return jnp.all(lines & _below(high[:, None] - first) & ~_below(low[:, None] - first) == 0, axis=1)


def _below(place: jax.Array) -> jax.Array:
    """u32[...]: the bits below `place`: none from 0 down, all from 32 up."""
    some = jnp.left_shift(jnp.uint32(1), jnp.clip(place, 0, WORD - 1).astype(jnp.uint32)) - 1
    return jnp.where(place >= WORD, jnp.uint32(0xFFFFFFFF), some)


def bring_back(state: EnvState, tags: jax.Array, spawn: jax.Array) -> EnvState:
    """The state in which the agent that was tagged stands on `spawn` (i32[2], [x, y]). It keeps its facing."""
    return state.replace(position=jnp.where(tags[::-1, None], spawn[None], state.position))


def free_spawns(state: EnvState, tags: jax.Array) -> jax.Array:
    """bool[h, w]: where a tagged agent may return: not under the one that tagged it."""
    tagger = jnp.where(tags[0], state.position[0], state.position[1])
    return state.level.spawns & ~at(tagger, state.level.spawns.shape)


def draw_spawn(key: jax.Array, state: EnvState, tags: jax.Array) -> jax.Array:
    """i32[2], [x, y]: a random one of the free spawns; where the tagged agent is, if there is none."""
    y, x, found = draw_cell(key, free_spawns(state, tags))
    tagged = jnp.where(tags[0], state.position[1], state.position[0])
    return jnp.where(found, jnp.stack([x, y]), tagged)


def draw_first(key: jax.Array, state: EnvState) -> jax.Array:
    """i32[]: a fair coin, the agent that goes first."""
    width = state.level.walls.shape[1]
    cell = state.position[:, 1] * width + state.position[:, 0]
    # The coin says whether it is the one in the earlier cell. So it does not matter which agent is called 0.
    earlier = (cell[1] < cell[0]).astype(jnp.int32)
    return earlier ^ (jax.random.bits(key, (), jnp.uint32) >> 31).astype(jnp.int32)
