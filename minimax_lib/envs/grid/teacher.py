"""`GridTeacher`: the MDP in which a teacher designs a level of the object world, one cell with each action."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.designing import Budget, Canvas, CellTeacher, check_budget, walls_of
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.cells.settings import check_int, check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.sampling import walled
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import Level, make_level
from minimax_lib.envs.grid.mutate import with_useful_locks
from minimax_lib.envs.grid.schedule import (
    AGENT,
    CHOICE,
    COUNTED_AS,
    IS_NEEDED,
    MADE,
    PLACED,
    TOOLS,
    WALL,
    default_schedule,
    placements,
)
from minimax_lib.envs.spaces import ACTION_MASK, Box, Discrete, Space
from minimax_lib.envs.ued import designing
from minimax_lib.settings import settings_of


class GridDesignState(struct.PyTreeNode):
    """A design. `canvas` is the level that `reset` was given, unchanged."""

    canvas: Canvas
    grid: jax.Array  # u16[H, W], with the border
    agent_pos: jax.Array  # i32[2], [x, y]; outside of the grid until it is placed
    tool: jax.Array  # i32[], the last thing that was chosen; -1: none
    counts: jax.Array  # i32[things], how many of each kind were to be placed: it sets the next one's colour
    n_walls: jax.Array  # i32[], steps for the walls with which this design begins
    time: jax.Array  # i32[], steps taken


@dataclasses.dataclass(frozen=True)
class GridTeacher(CellTeacher):
    """Each step places what the schedule says, in the cell of the action. Task: reach.

    An action is the number of a cell inside the border of walls, row by row. If the cell is taken, a key, a box, a goal
    and the agent go to a random empty cell, and anything else is left out. A door needs no walls beside it. The colours
    of each kind are red, green, blue, purple, yellow, grey, red, ... In the end, a locked door without a key is closed.

    A choice takes two steps. The first action is the number of a tool, and the second that of a cell. `ACTION_MASK`
    says which actions there are. It is in the observations, and so is the tool, if the schedule has a choice.

    Its own level is the empty `Canvas`.
    """

    height: int = 15
    """Rows of cells, with the border."""
    width: int = 15
    """Columns of cells, with the border."""
    level_steps: int = 256
    """`max_steps` of the designed levels."""
    schedule: str = default_schedule(13 * 13)
    """What the steps of the longest design place, in their order."""
    budget: Budget = "fixed"
    """What sets the number of walls with which a design begins. fixed: the schedule. first_action: a first action of
    its own, from none to all of them. first_wall: the cell of the first wall."""
    noise_dim: int = 50
    """Length of the random vector that the teacher sees. It is drawn anew at every step. 0: none."""

    def __post_init__(self) -> None:
        check_side("height", self.height, 3)
        check_side("width", self.width, 3)
        check_int("level_steps", self.level_steps, 1)
        check_int("noise_dim", self.noise_dim, 0)
        check_budget("budget", self.budget)
        n_things = len(self._placements)
        if n_things > self._n_cells:
            raise ValueError(
                f"schedule={self.schedule!r} places {n_things} things: inside the border of {self.height}x{self.width} "
                f"there are {self._n_cells} cells"
            )
        if self.budget != "fixed" and not self._most_walls:
            raise ValueError(f"schedule={self.schedule!r}: budget={self.budget!r} needs one that begins with walls")

    @property
    def max_steps(self) -> int:
        """Steps of the longest design."""
        return self._first_step + len(self._steps)

    @property
    def action_space(self) -> Space:
        return Discrete(self._n_actions)

    @property
    def _picture_space(self) -> Box:
        return Box(0, 10, (self.height, self.width, 3), "uint8", changes_slowly=True)

    @property
    def _more_spaces(self) -> tuple[tuple[str, Space], ...]:
        if not self._has_choice:
            return ()
        return ("tool", Discrete(len(TOOLS) + 1)), (ACTION_MASK, Box(0, 1, (self._n_actions,), "bool"))

    def _blank(self, canvas: Canvas) -> GridDesignState:
        return GridDesignState(
            canvas=canvas,
            grid=jnp.asarray(walled(self.height, self.width)),
            agent_pos=jnp.array([self.width, self.height], jnp.int32),
            tool=jnp.full((), -1, jnp.int32),
            counts=jnp.zeros(len(PLACED), jnp.int32),
            n_walls=jnp.full((), self._most_walls, jnp.int32),
            time=jnp.zeros((), jnp.int32),
        )

    def to_level(self, state: GridDesignState) -> Level:
        """The student's level. A finished design is always a valid one."""
        return make_level(with_useful_locks(state.grid), state.agent_pos, state.canvas.agent_dir, self.level_steps)

    @property
    def _n_cells(self) -> int:
        """Cells inside the border."""
        return (self.height - 2) * (self.width - 2)

    @property
    def _placements(self) -> tuple[int, ...]:
        return placements(self.schedule)

    @property
    def _has_choice(self) -> bool:
        return CHOICE in self._placements

    @property
    def _n_actions(self) -> int:
        return max(self._n_cells, len(TOOLS)) if self._has_choice else self._n_cells

    @property
    def _steps(self) -> tuple[tuple[int, bool], ...]:
        """(what is placed, whether this step is only the choice of it) of all steps but a choice of the budget."""
        return tuple(
            (thing, is_choice)
            for thing in self._placements
            for is_choice in ((True, False) if thing == CHOICE else (False,))
        )

    @property
    def _most_walls(self) -> int:
        """Walls with which the schedule begins."""
        return [thing != WALL for thing in self._placements].index(True)

    @property
    def _first_step(self) -> int:
        return 1 if self.budget == "first_action" else 0

    def _is_finished(self, state: GridDesignState) -> jax.Array:
        return state.time >= self.max_steps - self._most_walls + state.n_walls

    def _now(self, state: GridDesignState) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(the thing i32[], whether it is to be placed bool[], whether it is to be chosen bool[]) of the next step."""
        number = state.time - self._first_step
        number += jnp.where(number < state.n_walls, 0, self._most_walls - state.n_walls)  # walls that are left out
        things, choices = zip(*self._steps, strict=True)
        # A choice of a budget and all steps after the end place nothing.
        is_step = (state.time >= self._first_step) & (number < len(things))
        number = jnp.clip(number, 0, len(things) - 1)
        is_choice = is_step & jnp.array(choices)[number]
        return jnp.array(things, jnp.int32)[number], is_step & ~is_choice, is_choice

    def _placed(self, key: jax.Array, state: GridDesignState, action: jax.Array) -> GridDesignState:
        # The first action decides. With a fixed budget, the number is the same for all actions.
        n_walls = walls_of(self.budget, self._most_walls, action % self._n_cells, self._n_cells)
        state = state.replace(n_walls=jnp.where(state.time == 0, n_walls, state.n_walls))
        thing, is_placed, is_choice = self._now(state)
        thing = jnp.where(thing == CHOICE, state.tool, thing)
        kind = jnp.array(COUNTED_AS)[thing]
        cell = jnp.array(MADE)[thing, state.counts[kind] % MADE.shape[1]]

        # Actions that the mask forbids must do no harm either.
        row, column = jnp.divmod(action % self._n_cells, self.width - 2)
        empty = (state.grid == cells.EMPTY) & ~self._agent_at(state)
        is_empty = empty[1 + row, 1 + column]
        # There always is an empty cell: a design has no more things than cells.
        spare_y, spare_x, _ = draw_cell(key, empty)
        y, x = jnp.where(is_empty, 1 + row, spare_y), jnp.where(is_empty, 1 + column, spare_x)
        finds_place = is_placed & (is_empty | jnp.array(IS_NEEDED)[thing])
        is_agent = thing == AGENT
        y_cell = jnp.where(finds_place & ~is_agent, y, self.height)  # a row outside of the grid is dropped
        return state.replace(
            grid=state.grid.at[y_cell, x].set(cell, mode="drop"),
            agent_pos=jnp.where(finds_place & is_agent, jnp.stack([x, y]), state.agent_pos),
            tool=jnp.where(is_choice, action % len(TOOLS), state.tool),
            counts=state.counts.at[kind].add(is_placed),
        )

    def _agent_at(self, state: GridDesignState) -> jax.Array:
        """bool[H, W]: the agent's cell; none until it is placed."""
        x, y = state.agent_pos
        return (np.arange(self.width) == x)[None, :] & (np.arange(self.height) == y)[:, None]

    def _picture(self, state: GridDesignState) -> jax.Array:
        agent = cells.pack(codes.AGENT, 0, state.canvas.agent_dir)  # its state is the direction
        return cells.seen(jnp.where(self._agent_at(state), agent, state.grid))

    def _more(self, state: GridDesignState) -> dict[str, Any]:
        if not self._has_choice:
            return {}
        thing, _, is_choice = self._now(state)
        return {
            "tool": jnp.where((thing == CHOICE) & ~is_choice, state.tool + 1, 0),  # what is being placed, if chosen
            ACTION_MASK: np.arange(self._n_actions) < jnp.where(is_choice, len(TOOLS), self._n_cells),
        }


_Design: Any = settings_of(GridTeacher, "height", "width", "level_steps")


@dataclasses.dataclass(frozen=True)
class GridDesign(_Design):
    """How a teacher designs levels of the object world. The frame and the time limit are the environment's own."""

    schedule: str | None = None
    """What is placed: wall, door, lock (a locked door), key, boxed key, ball, goal, agent; or choice, where the teacher
    says what. Numbers repeat. The first key fits the first lock. None: "25 walls, 2 doors, lock, key, lock, boxed key,
    2 balls, goal, agent" for 13x13 cells inside the border, and walls in proportion for other sizes."""

    def __post_init__(self) -> None:
        check_budget("design.budget", self.budget)  # `build` checks what depends on the frame

    def build(self, env: Any) -> GridTeacher:
        """The teacher of levels of `env`; ValueError if it cannot design them."""
        with designing(self, env, GridWorld):
            usual = default_schedule((env.height - 2) * (env.width - 2))
            filled = dataclasses.replace(self, schedule=usual if self.schedule is None else self.schedule)
            return _Design.build(filled, env.height, env.width, env.max_steps)
