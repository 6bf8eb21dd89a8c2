"""What teachers share that design a level made of cells, one cell with each action (Dennis et al. 2020)."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import TimeStep, opening, transition
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.ued import TeacherEnvironment
from minimax_lib.registry import unknown_name

Budget = Literal["fixed", "first_action", "first_wall"]


class Canvas(struct.PyTreeNode):
    """The start of a design for one agent."""

    agent_dir: jax.Array  # i32[], the agent's direction, unless the teacher sets it


class CellTeacher(TeacherEnvironment):
    """The base of these teachers: frozen dataclasses with at least the fields below.

    A state has the fields `canvas`, the level that `reset` was given, and `time`, the steps taken. The MDP itself pays
    nothing. Further actions do not change a finished design.
    """

    height: int
    width: int
    noise_dim: int

    def _blank(self, canvas: Any) -> Any:
        """The state in which nothing is placed."""
        raise NotImplementedError

    def _placed(self, key: jax.Array, state: Any, action: jax.Array) -> Any:
        """The state after the step at its time. The key is for random free cells."""
        raise NotImplementedError

    def _is_finished(self, state: Any) -> jax.Array:
        """bool[]"""
        return state.time >= self.max_steps

    def _picture(self, state: Any) -> jax.Array:
        """The image in the observation."""
        raise NotImplementedError

    @property
    def _picture_space(self) -> Box:
        raise NotImplementedError

    def _more(self, state: Any) -> dict[str, Any]:
        """Further parts of the observation."""
        return {}

    @property
    def _more_spaces(self) -> tuple[tuple[str, Space], ...]:
        return ()

    @property
    def _n_cells(self) -> int:
        """Cells that an action can mean."""
        return self.height * self.width

    @property
    def observation_space(self) -> Space:
        noise = (("noise", Box(0, 1, (self.noise_dim,), "float32")),) if self.noise_dim else ()
        time = ("time", Discrete(self.max_steps + 1))
        return Dict((("image", self._picture_space), time, *noise, *self._more_spaces))

    @property
    def action_space(self) -> Space:
        return Discrete(self._n_cells)

    def sample_level(self, key: jax.Array) -> Any:
        """An empty grid with a random direction of the agent."""
        return Canvas(agent_dir=jax.random.randint(key, (), 0, 4, jnp.int32))

    def reset(self, key: jax.Array, level: Any) -> tuple[Any, TimeStep]:
        """The start of a design. The key is for the noise."""
        state = self._blank(level)
        return state, opening(self._show(key, state))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        """The design after the next cell. The key is for the noise and for random free cells."""
        k_spare, k_noise = jax.random.split(key)
        state = self._placed(k_spare, state, jnp.asarray(action, jnp.int32))
        # Time stops at the end of a design, so that it stays within its space.
        state = state.replace(time=state.time + ~self._is_finished(state))
        nothing, no = jnp.zeros((), jnp.float32), jnp.zeros((), bool)
        return state, transition(self._show(k_noise, state), nothing, self._is_finished(state), no)

    def get_level(self, state: Any) -> Any:
        return state.canvas

    def _show(self, key: jax.Array, state: Any) -> dict[str, jax.Array]:
        obs = {"image": self._picture(state), "time": state.time}
        if self.noise_dim:
            # New at every step, as in the maze's published task.
            obs["noise"] = jax.random.uniform(key, (self.noise_dim,), jnp.float32)
        return obs | self._more(state)


def check_budget(name: str, budget: str) -> None:
    """ValueError if the setting `name` is not a budget."""
    if budget not in get_args(Budget):
        raise unknown_name(name, budget, get_args(Budget))


def walls_of(budget: Budget, most: int, first_action: jax.Array, n_cells: int) -> jax.Array:
    """i32[]: the walls, of at most `most`, of a design that begins with this action (one of `n_cells`)."""
    if budget == "fixed":
        return jnp.full((), most, jnp.int32)
    # Linear from the first cell (no walls) to the last (all of them). Halves are rounded up.
    last = n_cells - 1
    n_walls = (most * first_action + last // 2) // last
    # With "first_wall", this action already builds a wall.
    return jnp.maximum(n_walls, 1) if budget == "first_wall" else n_walls
