"""Which levels are levels at all."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid import level as tasks
from minimax_lib.envs.grid.level import Level

RULES = (
    "the agent must stand on an empty cell, floor or an open door. reach needs a goal, pickup exactly one target, open "
    "exactly one door that is shut, fetch a target"
)
HELD = (codes.KEY, codes.BALL, codes.BOX, codes.GOAL)  # what may be inside a box


def is_valid(level: Level) -> jax.Array:
    """bool[]: whether the level keeps all rules. Whether it can be solved is not one of them.

    * A cell is one of MiniGrid's objects in one of its colours. An empty cell has no colour (0). Only doors have a
      state, and only boxes hold something: a key, a ball, an empty box or a goal.
    * The agent stands inside the frame, on an empty cell, on floor or in an open doorway.
    * REACH: a goal stands outside of boxes. PICKUP: exactly one object is the target, boxes included. FETCH: at least
      one is. OPEN: exactly one door is the target, and it is shut.
    * `max_steps` is at least 1.
    """
    return has_valid_cells(level.grid) & _has_valid_agent(level) & _has_valid_task(level) & (level.max_steps >= 1)


def has_valid_cells(grid: jax.Array) -> jax.Array:
    """bool[]: whether every cell of u16[h, w] is made of parts that go together."""
    kind, content = cells.kind(grid), cells.inside(grid)
    known = (kind >= codes.EMPTY) & (kind <= codes.LAVA) & (cells.colour(grid) <= codes.GREY)
    known &= (kind != codes.EMPTY) | (cells.colour(grid) == 0)
    state = jnp.where(kind == codes.DOOR, cells.state(grid) <= codes.LOCKED, cells.state(grid) == 0)
    held = jnp.zeros(grid.shape, bool)
    for object_inside in HELD:
        held |= cells.kind(content) == object_inside
    held &= (kind == codes.BOX) & (cells.colour(content) <= codes.GREY)
    return jnp.all(known & state & (held | (content == cells.NOTHING)))


def _has_valid_agent(level: Level) -> jax.Array:
    height, width = level.grid.shape
    last = jnp.array([width - 1, height - 1], jnp.int32)
    inside = jnp.all((level.agent_pos >= 0) & (level.agent_pos <= last))
    x, y = jnp.clip(level.agent_pos, 0, last)
    cell = level.grid[y, x]
    kind = cells.kind(cell)
    stands = cells.is_open(cell) & (kind != codes.GOAL) & (kind != codes.LAVA)
    return inside & stands & (level.agent_dir >= 0) & (level.agent_dir < 4)


def _has_valid_task(level: Level) -> jax.Array:
    kind, target = cells.kind(level.grid), level.target.astype(jnp.uint16)
    # The target is an object and a colour: no bit above them may be set.
    proper = (level.target >= 0) & (level.target == cells.named(target))
    n_targets = count_of(level.grid, target)
    item, door = cells.is_item(target), cells.kind(target) == codes.DOOR
    is_target_door = (kind == codes.DOOR) & (cells.named(level.grid) == target)
    n_shut = jnp.sum(is_target_door & (cells.state(level.grid) != codes.OPEN), dtype=jnp.int32)
    n_doors = jnp.sum(is_target_door, dtype=jnp.int32)
    rules = jnp.stack(
        [
            jnp.any(kind == codes.GOAL),
            proper & item & (n_targets == 1),
            proper & door & (n_doors == 1) & (n_shut == 1),
            proper & item & (n_targets >= 1),
        ]
    )
    assert len(rules) == len(tasks.TASKS)
    known = (level.task >= 0) & (level.task < len(tasks.TASKS))
    return known & jnp.any(rules & (np.arange(len(tasks.TASKS)) == level.task))


def count_of(grid: jax.Array, target: jax.Array) -> jax.Array:
    """i32[]: how many cells and contents of boxes are this object in this colour."""
    whole = cells.named(grid) == target
    held = (cells.inside(grid) == target) & (target != cells.NOTHING)
    return jnp.sum(whole, dtype=jnp.int32) + jnp.sum(held, dtype=jnp.int32)
