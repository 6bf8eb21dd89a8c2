"""`AMaze`: MiniGrid's partially observed maze."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.cells.actions import FORWARD, LEFT, RIGHT
from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.cells.settings import check_bool, check_int, check_side, check_view_size, seen_image
from minimax_lib.envs.cells.sight import visible_cells
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.maze import view
from minimax_lib.envs.maze.convert import fault_in, names_in
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.metrics import fewest_actions, shortest_path
from minimax_lib.envs.maze.sampling import draw_distinct_walls, draw_walls, place_agent_and_goal
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.terminal import Scene
from minimax_lib.trees import zeros


class EnvState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: Level
    agent_pos: jax.Array  # i32[2]
    agent_dir: jax.Array  # i32[]
    time: jax.Array  # i32[], steps taken


@dataclasses.dataclass(frozen=True)
class AMaze(Environment):
    """A maze of `height` x `width` cells inside a border wall. The agent sees the square ahead of it.

    Reaching the goal pays 1 - 0.9 * t / max_steps and ends the episode. Every step gives the same result as the PyPI
    package `minigrid`.
    """

    height: int = 13
    """Rows of cells, without the border."""
    width: int = 13
    """Columns of cells, without the border."""
    n_walls: int = 60
    """Number of walls of a random level. It has fewer if a cell is drawn twice (replace_walls)."""
    replace_walls: bool = True
    """Draw the cells of walls with replacement, as in the published 60-block task."""
    sample_n_walls: bool = False
    """Draw the number of walls too, uniformly from 0 to n_walls."""
    only_solvable: bool = False
    """Draw a random level again until its goal can be reached. Of the published 60-block levels, 16% cannot be solved:
    the agent spends a large part of its steps in them, and learns to give up."""
    view_size: int = 5
    """Side of the square that the agent sees, in cells. It must be odd."""
    see_through_walls: bool = True
    """Show cells behind walls. Otherwise, MiniGrid's shadow casting hides them."""
    see_agent: bool = False
    """Show the agent in its own cell. Otherwise, that cell is empty."""
    obs_agent_pos: bool = False
    """Add the agent's position to the observation."""
    max_steps: int = 250
    """Steps after which an episode is cut off."""

    def __post_init__(self) -> None:
        check_grid(self.height, self.width, self.n_walls)
        for name in (
            "replace_walls",
            "sample_n_walls",
            "only_solvable",
            "see_through_walls",
            "see_agent",
            "obs_agent_pos",
        ):
            check_bool(name, getattr(self, name))
        check_int("max_steps", self.max_steps, 1)
        check_view_size(self.view_size)

    @property
    def observation_space(self) -> Space:
        items: tuple[tuple[str, Space], ...] = (
            ("image", Box(0, 10, (self.view_size, self.view_size, 3), "uint8")),
            ("direction", Discrete(4)),
        )
        if self.obs_agent_pos:
            # A Box has one bound for all its numbers, so it is that of the longer side.
            items += (("agent_pos", Box(0, max(self.height, self.width) - 1, (2,), "int32")),)
        return Dict(items)

    @property
    def action_space(self) -> Space:
        return Discrete(7)

    def sample_level(self, key: jax.Array) -> Level:
        """A random level. Agent and goal are uniform over pairs of different free cells.

        It may be unsolvable. With `only_solvable`, it has the law of the same levels, given that they can be solved.
        """
        if not self.only_solvable:
            return self.draw_level(key)

        def draw_again(loop: tuple[jax.Array, Level, jax.Array]) -> tuple[jax.Array, Level, jax.Array]:
            key, k_level = jax.random.split(loop[0])
            level = self.draw_level(k_level)
            return key, level, shortest_path(level)[1]

        # The first level is drawn inside the loop too: a second copy of the drawing would take as long to compile.
        undrawn = key, zeros(jax.eval_shape(self.draw_level, key)), jnp.zeros((), bool)
        return jax.lax.while_loop(lambda loop: ~loop[2], draw_again, undrawn)[1]

    def draw_level(self, key: jax.Array) -> Level:
        """A random level, whether it can be solved or not."""
        k_walls, k_number, k_agent, k_goal, k_dir = jax.random.split(key, 5)
        n_walls = jnp.full((), self.n_walls, jnp.int32)
        if self.sample_n_walls:
            n_walls = jax.random.randint(k_number, (), 0, self.n_walls + 1)
        n_cells = self.height * self.width
        if self.replace_walls:
            walls = draw_walls(k_walls, n_cells, self.n_walls, n_walls)
        else:
            walls = draw_distinct_walls(k_walls, n_cells, n_walls)
        return place_agent_and_goal(k_agent, k_goal, k_dir, walls.reshape(self.height, self.width))

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]:
        """The start of an episode on `level`. Deterministic. Outside jit, ValueError where it is no level."""
        state = begin(checked_at_reset(self, level))
        return state, opening(self.observe(state))

    def step(self, key: jax.Array, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
        """The result of one of MiniGrid's seven actions. Deterministic."""
        # Outside jit, an action may be a plain int. Its comparisons would give Python's bools instead of arrays.
        state, reward, terminated, truncated = advance(state, jnp.asarray(action, jnp.int32), self.max_steps)
        return state, transition(self.observe(state), reward, terminated, truncated)

    def observe(self, state: EnvState) -> dict[str, jax.Array]:
        """What the agent sees in `state`."""
        return self.look(state, self.see_through_walls)

    def look(self, state: EnvState, see_through_walls: bool | jax.Array) -> dict[str, jax.Array]:
        """`observe` with this visibility: a bool, or bool[] if it differs from level to level."""
        pos, facing = state.agent_pos, state.agent_dir
        walls = view.walls_ahead(state.level, pos, facing, self.view_size)
        # If the flag is static and true, shadows are not compiled at all. A traced flag overrules them afterwards. Only
        # walls cast shadows: MiniGrid's goal can be seen through.
        visible = None if see_through_walls is True else visible_cells(~walls) | see_through_walls
        image = view.paint(walls, view.goal_ahead(state.level, pos, facing, self.view_size), visible)
        image = view.paint_agent(image, view.own_cell(self.view_size), facing) if self.see_agent else image
        obs = {"image": image, "direction": facing}
        return {**obs, "agent_pos": pos} if self.obs_agent_pos else obs

    legend = "red: the agent as it begins; yellow: its way; green: the goal"

    def draw_episodes(self, states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """See `Environment.draw_episodes`."""
        from minimax_lib.envs.maze.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns)

    def draw_state(self, state: EnvState) -> np.ndarray:
        """See `Environment.draw_state`."""
        from minimax_lib.envs.maze.render import draw_state

        return draw_state(state, seen_image(self, state))

    @property
    def keys(self) -> Mapping[str, int]:
        """See `Environment.scene`."""
        from minimax_lib.envs.maze.text import KEYS

        return KEYS

    def scene(self, state: EnvState) -> Scene:
        """See `Environment.scene`."""
        from minimax_lib.envs.maze.text import scene

        return scene(state, seen_image(self, state))

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """`n_walls`, `shortest_path` (moves from agent to goal; 0 if unreachable) and `solvable` (0 or 1)."""
        length, solvable = shortest_path(level)
        return {
            "n_walls": level.wall_map.sum(dtype=jnp.float32),
            "shortest_path": length.astype(jnp.float32),
            "solvable": solvable.astype(jnp.float32),
        }

    def fault_in(self, level: Level) -> str:
        """See `Environment.fault_in`."""
        return fault_in(level)

    def levels_in(self, path: Path) -> list[str]:
        """See `Environment.levels_in`. A file is text (`from_text`) or an archive of NumPy (`names_in`)."""
        return names_in(path)

    def optimal_return(self, level: Level, gamma: float) -> jax.Array:
        """See `Environment.optimal_return`: that of the shortest way, turns included; 0 if the goal is out of reach."""
        n_actions, solvable = fewest_actions(level)
        paid = (1.0 - 0.9 * n_actions / self.max_steps) * gamma ** (n_actions - 1.0)
        return jnp.where(solvable & (n_actions <= self.max_steps), paid, 0.0)


def check_grid(height: int, width: int, n_walls: int) -> None:
    """ValueError if the walls could leave fewer than two cells free, for agent and goal."""
    check_side("height", height, 1)
    check_side("width", width, 1)
    check_int("n_walls", n_walls, 0)
    n_cells = height * width
    if n_cells < 2:
        raise ValueError(f"height={height}, width={width}: agent and goal need at least 2 cells")
    if n_walls > n_cells - 2:
        raise ValueError(
            f"n_walls={n_walls} could leave fewer than 2 of the {n_cells} cells "
            f"({height} x {width}) free: at most {n_cells - 2}"
        )


def begin(level: Level) -> EnvState:
    """The state in which an episode starts."""
    return EnvState(level=level, agent_pos=level.agent_pos, agent_dir=level.agent_dir, time=jnp.zeros((), jnp.int32))


def advance(
    state: EnvState, action: jax.Array, max_steps: int | jax.Array
) -> tuple[EnvState, jax.Array, jax.Array, jax.Array]:
    """(the state after `action`, reward f32[], terminated bool[], truncated bool[])."""
    state, moved = move(state, action)
    # As in MiniGrid, moving onto the goal pays, and standing on it does not. So rows that go on after their end earn
    # nothing.
    terminated = moved & jnp.all(state.agent_pos == state.level.goal_pos)
    # `move` has counted this step already, as MiniGrid does before it pays.
    reward = jnp.where(terminated, 1.0 - 0.9 * state.time.astype(jnp.float32) / max_steps, 0.0)
    return state, reward, terminated, state.time >= max_steps


def move(state: EnvState, action: jax.Array) -> tuple[EnvState, jax.Array]:
    """(the state after `action`, whether the agent moved). Walls and the border stop it."""
    height, width = state.level.wall_map.shape
    turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
    # Positions stay pairs: `all` over a pair is a reduction, which XLA computes once. With two scalars, XLA repeated
    # the move for every pixel of the observation, and a step took 1.5 times as long.
    ahead = state.agent_pos + jnp.stack(direction_vector(state.agent_dir))
    inside = jnp.all((ahead >= 0) & (ahead < jnp.array([width, height], jnp.int32)))
    # Outside the grid, the lookup finds some other cell, but `inside` is then false.
    moved = (action == FORWARD) & inside & ~jnp.asarray(state.level.wall_map)[ahead[1], ahead[0]]
    return EnvState(
        level=state.level,
        agent_pos=jnp.where(moved, ahead, state.agent_pos),
        agent_dir=(state.agent_dir + turn) & 3,  # modulo 4, also for -1; cheaper than a division
        time=state.time + 1,
    ), moved
