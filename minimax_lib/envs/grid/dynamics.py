"""What an action does to the object world. The rules are MiniGrid's."""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.actions import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid import level as tasks
from minimax_lib.envs.grid.level import Level


class EnvState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: Level
    grid: jax.Array  # u16[H, W], as it is now; without the agent
    agent_pos: jax.Array  # i32[2]
    agent_dir: jax.Array  # i32[]
    carrying: jax.Array  # u16[], a cell; 0: empty hands
    time: jax.Array  # i32[], steps taken


def begin(level: Level) -> EnvState:
    """The state in which an episode starts."""
    return EnvState(
        level=level,
        grid=level.grid,
        agent_pos=level.agent_pos,
        agent_dir=level.agent_dir,
        carrying=jnp.zeros((), jnp.uint16),
        time=jnp.zeros((), jnp.int32),
    )


def advance(state: EnvState, action: jax.Array) -> tuple[EnvState, jax.Array, jax.Array, jax.Array]:
    """(the state after `action`, reward f32[], terminated bool[], truncated bool[])."""
    state, entered, changed = act(state, action)
    solved, failed = judged(state, action, entered, changed)
    max_steps = state.level.max_steps
    # `act` has counted this step already, as MiniGrid does before it pays.
    paid = 1.0 - 0.9 * state.time.astype(jnp.float32) / max_steps.astype(jnp.float32)
    return state, jnp.where(solved, paid, 0.0), solved | failed, state.time >= max_steps


def act(state: EnvState, action: jax.Array) -> tuple[EnvState, jax.Array, jax.Array]:
    """(the state after `action`, the cell that the agent entered, the cell in front that it changed).

    Both cells are u16[], and 0 where the agent did not move or changed nothing.
    """
    height, width = state.grid.shape
    # Positions stay pairs: see `maze.amaze.move`.
    ahead = state.agent_pos + jnp.stack(direction_vector(state.agent_dir))
    last = jnp.array([width - 1, height - 1], jnp.int32)
    inside = jnp.all((ahead >= 0) & (ahead <= last))
    nearest = jnp.clip(ahead, 0, last)  # a cell outside is a wall, so that what is found at the edge means nothing
    front = jnp.where(inside, state.grid[nearest[1], nearest[0]], cells.WALL)

    after, hands = handled(front, state.carrying, action)
    moved = (action == FORWARD) & cells.is_open(front)
    turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
    # One cell at most. A choice between two whole maps would be several times slower on a CPU. An index outside the
    # map is dropped, so nothing is written there.
    row = jnp.where(inside, ahead[1], height)
    nothing = jnp.zeros((), jnp.uint16)
    return (
        EnvState(
            level=state.level,
            grid=state.grid.at[row, nearest[0]].set(after, mode="drop"),
            agent_pos=jnp.where(moved, ahead, state.agent_pos),
            agent_dir=(state.agent_dir + turn) & 3,
            carrying=hands,
            time=state.time + 1,
        ),
        jnp.where(moved, front, nothing),
        jnp.where(after == front, nothing, after),
    )


def handled(front: jax.Array, hands: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(the cell in front after `action`, what is in the hands after it): all that pickup, drop and toggle do."""
    kind, state = cells.kind(front), cells.state(front)
    picks = (action == PICKUP) & (hands == cells.NOTHING) & cells.is_item(front)
    # Only onto an empty cell: not onto floor, goal or lava, and not into an open doorway.
    drops = (action == DROP) & (hands != cells.NOTHING) & (kind == codes.EMPTY)
    toggles = action == TOGGLE

    has_key = (cells.kind(hands) == codes.KEY) & (cells.colour(hands) == cells.colour(front))
    opens = (state == codes.CLOSED) | ((state == codes.LOCKED) & has_key)
    closes = state == codes.OPEN  # an unlocked door never locks again
    new_state = jnp.where(opens, codes.OPEN, jnp.where(closes, codes.CLOSED, state)).astype(jnp.uint16)
    door = cells.named(front) | (new_state << cells.STATE)
    content = cells.inside(front)
    content = jnp.where(content == cells.NOTHING, cells.EMPTY, content)

    toggled = jnp.where(kind == codes.DOOR, door, jnp.where(kind == codes.BOX, content, front))
    after = jnp.where(toggles, toggled, front)
    after = jnp.where(picks, cells.EMPTY, jnp.where(drops, hands, after))
    return after, jnp.where(picks, front, jnp.where(drops, cells.NOTHING, hands))


def judged(state: EnvState, action: jax.Array, entered: jax.Array, changed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(solved bool[], failed bool[]), from the state after `action` and the cells that `act` tells."""
    task, target = state.level.task, state.level.target.astype(jnp.uint16)
    holds = state.carrying != cells.NOTHING
    # What is inside a carried box does not count.
    right = holds & (cells.named(state.carrying) == target)
    # Only a door changes into a door, so the map need not be searched for the target.
    opened = (cells.named(changed) == target) & (cells.state(changed) == codes.OPEN)
    solved = (
        (cells.kind(entered) == codes.GOAL)
        | ((task == tasks.PICKUP) & (action == PICKUP) & right)
        | ((task == tasks.OPEN) & (action == TOGGLE) & opened)
        | ((task == tasks.FETCH) & right)
    )
    failed = (cells.kind(entered) == codes.LAVA) | ((task == tasks.FETCH) & holds & ~right)
    return solved, failed
