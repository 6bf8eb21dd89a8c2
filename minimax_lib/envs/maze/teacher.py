"""`MazeTeacher`: the MDP in which a teacher designs a maze, one cell with each action (Dennis et al. 2020)."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.cells.designing import Budget, Canvas, CellTeacher, check_budget, walls_of
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.cells.settings import check_bool, check_int
from minimax_lib.envs.maze import view
from minimax_lib.envs.maze.amaze import AMaze, check_grid
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.spaces import Box
from minimax_lib.envs.ued import designing
from minimax_lib.settings import settings_of


class MazeDesignState(struct.PyTreeNode):
    """A design. `canvas` is the level that `reset` was given, unchanged."""

    canvas: Canvas
    design: Level  # the design so far; positions are [-1, -1] until placed
    n_walls: jax.Array  # i32[], wall steps of this design
    time: jax.Array  # i32[], steps taken


@dataclasses.dataclass(frozen=True)
class MazeTeacher(CellTeacher):
    """A design places the walls, then the goal, then the agent. An action is the number y * width + x of a cell.

    Its own level is the empty `Canvas`.
    """

    height: int = 13
    """Rows of cells, without the border."""
    width: int = 13
    """Columns of cells, without the border."""
    n_walls: int = 60
    """Wall steps of the longest design."""
    replace_walls: bool = True
    """A wall on a wall changes nothing. Otherwise, it goes to a random free cell."""
    budget: Budget = "fixed"
    """What sets the number of wall steps. fixed: it is n_walls. first_action: an extra first action. first_wall:
    the cell of the first wall."""
    set_agent_dir: bool = False
    """One more step sets the agent's direction. Otherwise, it is random."""
    noise_dim: int = 50
    """Length of the random vector that the teacher sees. It is drawn anew at every step. 0: none."""

    def __post_init__(self) -> None:
        check_grid(self.height, self.width, self.n_walls)
        for name in ("replace_walls", "set_agent_dir"):
            check_bool(name, getattr(self, name))
        check_int("noise_dim", self.noise_dim, 0)
        check_budget("budget", self.budget)
        if self.budget == "first_wall" and self.n_walls < 1:
            raise ValueError(f"n_walls={self.n_walls}: budget='first_wall' needs a wall, so it must be at least 1")

    @property
    def max_steps(self) -> int:
        """Steps of the longest design."""
        return self._first_wall_step + self.n_walls + 2 + self.set_agent_dir

    @property
    def _picture_space(self) -> Box:
        return Box(0, 10, (self.height + 2, self.width + 2, 3), "uint8", changes_slowly=True)

    def _blank(self, canvas: Canvas) -> MazeDesignState:
        nowhere = jnp.full(2, -1, jnp.int32)  # no cell has this position, so the picture shows nothing
        empty = jnp.zeros((self.height, self.width), bool)
        return MazeDesignState(
            canvas=canvas,
            design=Level(wall_map=empty, agent_pos=nowhere, agent_dir=canvas.agent_dir, goal_pos=nowhere),
            n_walls=jnp.full((), self.n_walls, jnp.int32),
            time=jnp.zeros((), jnp.int32),
        )

    def _placed(self, key: jax.Array, state: MazeDesignState, action: jax.Array) -> MazeDesignState:
        # The first action decides. With a fixed budget, the number is the same for all actions.
        n_walls = walls_of(self.budget, self.n_walls, action, self._n_cells)
        n_walls = jnp.where(state.time == 0, n_walls, state.n_walls)
        # There always is a free cell when one is needed: `check_grid` leaves two cells for the goal and the agent.
        y, x, _ = draw_cell(key, free_cells(state.design))
        kind = self._kind(state.time, n_walls)
        design = jax.lax.switch(kind, self._kinds, state.design, action, jnp.stack([x, y]))
        return state.replace(design=design, n_walls=n_walls)

    def _picture(self, state: MazeDesignState) -> jax.Array:
        return picture(state.design)

    def to_level(self, state: MazeDesignState) -> Level:
        """The student's level. A finished design is always a valid one."""
        return state.design

    @property
    def _first_wall_step(self) -> int:
        return 1 if self.budget == "first_action" else 0

    @property
    def _kinds(self) -> Sequence[Callable[[Level, jax.Array, jax.Array], Level]]:
        """The kinds of steps in the order of an episode, as functions (design, action, random free cell) -> design.

        All steps after the end of the design are of the last kind.
        """
        facing = (self._set_facing,) if self.set_agent_dir else ()
        return (self._place_wall, self._place_goal, self._place_agent, *facing, self._change_nothing)

    def _kind(self, time: jax.Array, n_walls: jax.Array) -> jax.Array:
        """i32[]: the index in `_kinds` of the step at `time`."""
        last = len(self._kinds) - 1
        kind = jnp.clip(time - self._first_wall_step - n_walls + 1, 0, last)
        return jnp.where(time < self._first_wall_step, last, kind)  # setting the budget does not change the grid

    def _is_finished(self, state: MazeDesignState) -> jax.Array:
        return state.time >= self._first_wall_step + state.n_walls + 2 + self.set_agent_dir

    def _position(self, action: jax.Array) -> jax.Array:
        return jnp.stack([action % self.width, action // self.width])

    def _place_wall(self, design: Level, action: jax.Array, spare: jax.Array) -> Level:
        here = cell_mask(self._position(action), design)
        if not self.replace_walls:
            here = jnp.where(jnp.any(here & design.wall_map), cell_mask(spare, design), here)
        return design.replace(wall_map=design.wall_map | here)

    def _place_goal(self, design: Level, action: jax.Array, spare: jax.Array) -> Level:
        pos = self._position(action)
        # The goal may replace a wall, since every action must lead to a valid level.
        return design.replace(wall_map=design.wall_map & ~cell_mask(pos, design), goal_pos=pos)

    def _place_agent(self, design: Level, action: jax.Array, spare: jax.Array) -> Level:
        pos = self._position(action)
        pos = jnp.where(jnp.all(pos == design.goal_pos), spare, pos)
        return design.replace(wall_map=design.wall_map & ~cell_mask(pos, design), agent_pos=pos)

    def _set_facing(self, design: Level, action: jax.Array, spare: jax.Array) -> Level:
        # Every action must stand for a direction, so the cells are divided among the four in nearly equal parts.
        return design.replace(agent_dir=action * 4 // (self.height * self.width))

    def _change_nothing(self, design: Level, action: jax.Array, spare: jax.Array) -> Level:
        return design


def cell_mask(pos: jax.Array, design: Level) -> jax.Array:
    """bool[h, w]: the cell at `pos`; no cell if `pos` is outside the grid."""
    # Not with `.at[y, x]`, where -1 is the last cell.
    height, width = design.wall_map.shape
    column, row = np.arange(width, dtype=np.int32)[None, :], np.arange(height, dtype=np.int32)[:, None]
    return (column == pos[0]) & (row == pos[1])


def free_cells(design: Level) -> jax.Array:
    """bool[h, w]: the cells without wall and goal. The agent does not matter, since it is placed last."""
    return ~design.wall_map & ~cell_mask(design.goal_pos, design)


def picture(design: Level) -> jax.Array:
    """u8[h + 2, w + 2, 3]: the grid with its border, in MiniGrid's numbers."""
    walls = jnp.pad(design.wall_map, 1, constant_values=True)
    goal = jnp.pad(cell_mask(design.goal_pos, design), 1)
    agent = jnp.pad(cell_mask(design.agent_pos, design), 1)
    return view.paint_agent(view.paint(walls, goal, None), agent, design.agent_dir)


_Design: Any = settings_of(MazeTeacher, "height", "width")


@dataclasses.dataclass(frozen=True)
class MazeDesign(_Design):
    """How a teacher designs mazes. The grid is that of the environment."""

    n_walls: int | None = None
    """Number of wall steps. None: as many as the walls of the environment's random levels."""

    def __post_init__(self) -> None:
        check_budget("design.budget", self.budget)  # `build` checks what depends on the grid

    def build(self, env: Any) -> MazeTeacher:
        """The teacher of levels of `env`; ValueError if it cannot design them."""
        with designing(self, env, AMaze):
            filled = dataclasses.replace(self, n_walls=env.n_walls if self.n_walls is None else self.n_walls)
            return _Design.build(filled, env.height, env.width)
