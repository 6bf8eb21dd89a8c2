"""`LaserTagTeacher`: the MDP in which a teacher designs a level of LaserTag, one cell with each action."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.cells.designing import CellTeacher
from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.cells.settings import check_bool, check_int, check_side
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import DRAWN, Level, at
from minimax_lib.envs.spaces import Box
from minimax_lib.envs.ued import designing
from minimax_lib.settings import settings_of


class LaserTagCanvas(struct.PyTreeNode):
    """The start of a design."""

    facings: jax.Array  # i32[2], of the agents, unless the teacher sets them


class LaserTagDesignState(struct.PyTreeNode):
    """A design. `canvas` is the level that `reset` was given, unchanged."""

    canvas: LaserTagCanvas
    walls: jax.Array  # bool[h, w]
    starts: jax.Array  # i32[2, 2], [x, y]; -1 until placed
    facings: jax.Array  # i32[2]
    time: jax.Array  # i32[], steps taken


@dataclasses.dataclass(frozen=True)
class LaserTagTeacher(CellTeacher):
    """A design places the walls, then agent 0, then agent 1. An action is the number y * width + x of a cell.

    A wall on a wall changes nothing. An agent takes the place of a wall. If agent 1 is placed on agent 0, it goes to a
    random free cell. All free cells are spawns. Its own level is the empty `LaserTagCanvas`.
    """

    height: int = 15
    """Rows of cells."""
    width: int = 15
    """Columns of cells."""
    n_walls: int = 75
    """Wall steps of a design."""
    set_facings: bool = False
    """Two more steps set the agents' facings. Otherwise, they are random."""
    random_starts: bool = False
    """Each game draws its own starts. Then there are no steps for the agents."""
    noise_dim: int = 50
    """Length of the random vector that the teacher sees. It is drawn anew at every step. 0: none."""

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            check_side(name, getattr(self, name), 1)
        for name in ("n_walls", "noise_dim"):
            check_int(name, getattr(self, name), 0)
        for name in ("set_facings", "random_starts"):
            check_bool(name, getattr(self, name))
        n_cells = self.height * self.width
        if self.n_walls > n_cells - 2:
            raise ValueError(
                f"n_walls={self.n_walls} could leave fewer than 2 of the {n_cells} cells ({self.height} x "
                f"{self.width}) free: at most {n_cells - 2}"
            )

    @property
    def max_steps(self) -> int:
        """Steps of a design."""
        n_agents = 0 if self.random_starts else 2
        return max(1, self.n_walls + n_agents * (1 + self.set_facings))

    @property
    def _picture_space(self) -> Box:
        # Walls, agent 0, agent 1.
        return Box(0, 1, (self.height, self.width, 3), "bool", changes_slowly=True)

    def sample_level(self, key: jax.Array) -> LaserTagCanvas:
        """An empty grid with random facings."""
        return LaserTagCanvas(facings=jax.random.randint(key, (2,), 0, 4))

    def _blank(self, canvas: LaserTagCanvas) -> LaserTagDesignState:
        return LaserTagDesignState(
            canvas=canvas,
            walls=jnp.zeros((self.height, self.width), bool),
            starts=jnp.full((2, 2), DRAWN, jnp.int32),
            facings=canvas.facings,
            time=jnp.zeros((), jnp.int32),
        )

    def to_level(self, state: LaserTagDesignState) -> Level:
        """The students' level. A finished design is always a valid one."""
        return Level(walls=state.walls, starts=state.starts, facings=state.facings, spawns=~state.walls)

    def _placed(self, key: jax.Array, state: LaserTagDesignState, action: jax.Array) -> LaserTagDesignState:
        shape, number = (self.height, self.width), state.time - self.n_walls
        pos = jnp.stack([action % self.width, action // self.width])
        is_wall = number < 0
        walls = state.walls | (at(pos, shape) & is_wall)
        if self.random_starts:
            return state.replace(walls=walls)
        taken = at(state.starts[0], shape)  # no cell until agent 0 is placed
        y, x, _ = draw_cell(key, ~(walls | taken))  # there always is one: see `__post_init__`
        pos = jnp.where(jnp.any(at(pos, shape) & taken), jnp.stack([x, y]), pos)
        places = number == jnp.arange(2, dtype=jnp.int32)
        # The cells are divided among the four facings in nearly equal parts.
        turns = number - 2 == jnp.arange(2, dtype=jnp.int32)
        facing = action * 4 // (self.height * self.width)
        return state.replace(
            walls=walls & ~(at(pos, shape) & jnp.any(places)),
            starts=jnp.where(places[:, None], pos[None], state.starts),
            facings=jnp.where(turns & self.set_facings, facing, state.facings),
        )

    def _picture(self, state: LaserTagDesignState) -> jax.Array:
        return jnp.stack([state.walls, *(at(start, state.walls.shape) for start in state.starts)], axis=-1)


_Design: Any = settings_of(LaserTagTeacher, "height", "width", "random_starts")


@dataclasses.dataclass(frozen=True)
class LaserTagDesign(_Design):
    """How a teacher designs levels of LaserTag. The grid is that of the environment."""

    n_walls: int | None = None
    """Number of wall steps. None: a third of the cells, which makes about a quarter of them walls."""

    def build(self, env: Any) -> LaserTagTeacher:
        """The teacher of levels of `env`; ValueError if it cannot design them."""
        with designing(self, env, LaserTag):
            third = env.height * env.width // 3
            filled = dataclasses.replace(self, n_walls=third if self.n_walls is None else self.n_walls)
            return _Design.build(filled, env.height, env.width, env.random_starts)
