"""`GridWorld`: MiniGrid's rooms with doors, keys, balls and boxes."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.cells.settings import check_bool, check_view_size, seen_image
from minimax_lib.envs.grid import cells, view
from minimax_lib.envs.grid.dynamics import EnvState, advance, begin
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.generators.registry import FAMILIES
from minimax_lib.envs.grid.level import Level
from minimax_lib.envs.grid.metrics import level_metrics
from minimax_lib.envs.grid.validity import RULES, is_valid
from minimax_lib.envs.levels import checked_at_reset, listed_level
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.terminal import Scene
from minimax_lib.registry import unknown_name

Observation = Literal["partial", "full"]


_is_valid = jax.jit(is_valid)


@dataclasses.dataclass(frozen=True)
class GridWorld(Environment):
    """A world of cells with objects in it, which the agent can carry, open and unlock.

    Success pays 1 - 0.9 * t / max_steps and ends the episode; `max_steps` belongs to the level. Every step gives the
    same result as the PyPI package `minigrid`.
    """

    family: Annotated[Any, FAMILIES] = EmptyRoom()
    """What draws the random levels."""
    observation: Observation = "partial"
    """What the agent sees: the square ahead of it, or the full frame with the agent in it."""
    view_size: int = 7
    """Side of the square that the agent sees, in cells. It must be odd."""
    see_through_walls: bool = False
    """Show cells behind walls and shut doors. Otherwise, MiniGrid's shadow casting hides them."""
    see_carrying: bool = True
    """Add what the agent carries to the observation. The full view does not show it."""
    see_target: bool = True
    """Add the object and the colour that the task is about to the observation."""
    keep_solvable: bool = False
    """A mutation that would make a level unsolvable leaves it as it was (ACCEL)."""

    def __post_init__(self) -> None:
        if isinstance(self.family, str):
            object.__setattr__(self, "family", FAMILIES[self.family]())
        if not hasattr(self.family, "sample_level"):
            raise ValueError(f"family={self.family!r}: it must be a family of levels, or the name of one")
        if self.observation not in get_args(Observation):
            raise unknown_name("observation", self.observation, get_args(Observation))
        check_view_size(self.view_size)
        for name in ("see_through_walls", "see_carrying", "see_target", "keep_solvable"):
            check_bool(name, getattr(self, name))

    @property
    def height(self) -> int:
        """Rows of the frame, with the border."""
        return self.family.height

    @property
    def width(self) -> int:
        """Columns of the frame, with the border."""
        return self.family.width

    @property
    def max_steps(self) -> int:
        return self.family.max_steps

    @property
    def observation_space(self) -> Space:
        is_full = self.observation == "full"
        shape = (self.height, self.width) if is_full else (self.view_size, self.view_size)
        items: tuple[tuple[str, Space], ...] = (("image", Box(0, 10, (*shape, 3), "uint8")),)
        if not is_full:
            items += (("direction", Discrete(4)),)
        if self.see_carrying:
            items += (("carrying", Box(0, 10, (3,), "uint8")),)
        if self.see_target:
            items += (("target", Box(0, 10, (2,), "uint8")),)
        return Dict(items)

    @property
    def action_space(self) -> Space:
        return Discrete(7)

    def sample_level(self, key: jax.Array) -> Level:
        """A random level of the family."""
        return self.family.sample_level(key)

    def sample_listed(self, key: jax.Array, number: jax.Array) -> Level:
        """See `Environment.sample_listed`."""
        return listed_level(self.family, key, number)

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]:
        """The start of an episode on `level`. Deterministic. Outside jit, ValueError where it is no level."""
        state = begin(checked_at_reset(self, level))
        return state, opening(self.observe(state))

    def step(self, key: jax.Array, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
        """The result of one of MiniGrid's seven actions. Deterministic."""
        # Outside jit, an action may be a plain int. Its comparisons would give Python's bools instead of arrays.
        state, reward, terminated, truncated = advance(state, jnp.asarray(action, jnp.int32))
        return state, transition(self.observe(state), reward, terminated, truncated)

    def observe(self, state: EnvState) -> dict[str, jax.Array]:
        """What the agent sees in `state`."""
        obs = {}
        if self.observation == "full":
            obs["image"] = view.full_view(state)
        else:
            obs["image"] = view.partial_view(state, self.view_size, self.see_through_walls)
            obs["direction"] = state.agent_dir
        if self.see_carrying:
            obs["carrying"] = cells.seen(state.carrying)
        if self.see_target:
            obs["target"] = cells.seen(state.level.target.astype(jnp.uint16))[:2]
        return obs

    def fault_in(self, level: Level) -> str:
        """See `Environment.fault_in`."""
        if not bool(_is_valid(level)):
            return f"it breaks a rule of grid levels. {RULES}"
        # An evaluation plays so many steps at most, and would cut the episode off.
        if level.max_steps > self.max_steps:
            return f"its max_steps is {level.max_steps}: it must be at most {self.max_steps}, the limit of the family"
        return ""

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """See `grid.metrics.level_metrics`."""
        return level_metrics(level)

    legend = "the agent (a triangle) as it begins, and the line of its way"

    def draw_episodes(self, states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """See `Environment.draw_episodes`."""
        from minimax_lib.envs.grid.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns)

    def draw_state(self, state: EnvState) -> np.ndarray:
        """See `Environment.draw_state`."""
        from minimax_lib.envs.grid.render import draw_state

        return draw_state(state, self._seen(state))

    @property
    def keys(self) -> Mapping[str, int]:
        """See `Environment.scene`."""
        from minimax_lib.envs.grid.text import KEYS

        return KEYS

    def scene(self, state: EnvState) -> Scene:
        """See `Environment.scene`."""
        from minimax_lib.envs.grid.text import scene

        return scene(state, self._seen(state))

    def _seen(self, state: EnvState) -> np.ndarray | None:
        """u8[v, v, 3], the view ahead; None where the agent sees the full frame."""
        return seen_image(self, state) if self.observation == "partial" else None
