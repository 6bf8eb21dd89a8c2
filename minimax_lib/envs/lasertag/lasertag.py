"""`LaserTag`: two agents in a maze, which tag each other with beams of light."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.lines import ViewSize
from minimax_lib.envs.cells.settings import check_bool, check_int, check_side, seen_image
from minimax_lib.envs.lasertag import maps
from minimax_lib.envs.lasertag.bot import NEEDED, hunting_bot
from minimax_lib.envs.lasertag.dynamics import (
    EnvState,
    begin,
    begin_anywhere,
    bring_back,
    draw_first,
    draw_spawn,
    resolve,
)
from minimax_lib.envs.lasertag.generators import random_level, search_level
from minimax_lib.envs.lasertag.level import DRAWN, Level, is_valid
from minimax_lib.envs.lasertag.metrics import level_metrics
from minimax_lib.envs.lasertag.rules import (
    DRAWN_LAYOUTS,
    PRESETS,
    SEARCH,
    ActionTable,
    Rules,
    action_table,
    check_actions,
)
from minimax_lib.envs.lasertag.view import planes_ahead
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.terminal import Scene
from minimax_lib.registry import unknown_name

RANDOM_SIDE = 15  # rows and columns of random levels, if nothing else is said
# A setting that is not given: `__post_init__` puts in what the rules say. So its type is that of the setting.
BY_RULES: Any = None


_is_valid = jax.jit(is_valid)


@dataclasses.dataclass(frozen=True)
class LaserTag(MultiAgentEnvironment):
    """Two agents walk through a maze. A beam of one that hits the other is a tag, and pays 1.

    A fair coin decides in every step whose action is carried out first. If it tags, the other action is void. All rules
    are settings, and `rules` gives the values of those that are not given. maestro: square levels of random size, a
    small view, and the first tag ends the game (Samvelyan et al. 2023). lanctot: many tags in a game on one map
    (Lanctot et al. 2017); every step gives the same result as OpenSpiel's `laser_tag`. `dataclasses.replace(env,
    rules=...)` changes nothing, since all settings are set by then.
    """

    rules: Rules = "maestro"
    """The game whose settings hold where none is given: maestro or lanctot."""
    layout: str = BY_RULES
    """What the levels are: random, search (random rooms and corridors, in which the two start far from each other), or
    the name of a map. By default, random (maestro) or small2 (lanctot)."""
    height: int = BY_RULES
    """Rows of cells. Smaller levels are padded with walls. By default 15 for random levels, else those of the map."""
    width: int = BY_RULES
    """Columns of cells, likewise."""
    min_side: int = BY_RULES
    """Least side of a random level, in cells. By default 5, or less in a smaller grid."""
    max_side: int = BY_RULES
    """Largest side of a random level. By default, as large as the grid allows."""
    min_walls: float = 0.0
    """Least share of walls in a random level."""
    max_walls: float = 0.5
    """Largest share of walls in a random level."""
    random_starts: bool = BY_RULES
    """Every game draws new starts from the spawns of its level (lanctot). Otherwise, the level has the starts."""
    first_tag_ends: bool = BY_RULES
    """The first tag ends the game (maestro). Otherwise, the tagged agent returns on a random free spawn."""
    zero_sum: bool = BY_RULES
    """An agent that is tagged is paid -1 (maestro). Otherwise, it is paid 0."""
    max_steps: int = BY_RULES
    """Steps after which a game is cut off. By default 200 (maestro) or 1000 (lanctot)."""
    actions: tuple[str, ...] = BY_RULES
    """The actions that there are, in their order: left, right, forward, backward, step_left, step_right, stand,
    forward_left, forward_right, fire. By default left right forward fire stand (maestro) or all ten (lanctot)."""
    view_front: int = BY_RULES
    """Rows that an agent sees ahead of its own. By default 4 (maestro) or 17 (lanctot)."""
    view_back: int = BY_RULES
    """Rows that it sees behind it. By default 0 (maestro) or 2 (lanctot)."""
    view_side: int = BY_RULES
    """Columns that it sees on either side. By default 2 (maestro) or 10 (lanctot)."""
    show_facing: bool = False
    """Show where the other agent looks, in four more planes."""

    def __post_init__(self) -> None:
        if self.rules not in get_args(Rules):
            raise unknown_name("rules", self.rules, get_args(Rules))
        self._set_missing(PRESETS[self.rules])
        if self.layout not in (*DRAWN_LAYOUTS, *maps.known_maps()):
            raise unknown_name("layout", self.layout, (*DRAWN_LAYOUTS, *maps.known_maps()))
        is_random = self.layout in DRAWN_LAYOUTS
        height, width = (RANDOM_SIDE, RANDOM_SIDE) if is_random else maps.map_size(self.layout)
        self._set_missing({"height": height, "width": width})
        for name in ("height", "width"):
            check_side(name, getattr(self, name), 2 if is_random else 1)
        smaller = min(self.height, self.width)
        self._set_missing({"max_side": smaller, "min_side": min(5, smaller)})
        self._check_levels(smaller)
        for name in ("random_starts", "first_tag_ends", "zero_sum", "show_facing"):
            check_bool(name, getattr(self, name))
        if self.layout == SEARCH and self.random_starts:
            raise ValueError(
                "layout='search' puts the starts far from each other, and random_starts=True draws others: "
                "set random_starts to False"
            )
        check_int("max_steps", self.max_steps, 1)
        object.__setattr__(self, "actions", tuple(self.actions))
        check_actions(self.actions)
        check_side("view_front", self.view_front, 0)
        check_side("view_back", self.view_back, 0)
        check_int("view_side", self.view_side, 0, 15)  # a row of the view is stored as the bits of one word

    @property
    def bot(self) -> Any:  # type: ignore[override]
        """The scripted player (`bot.hunting_bot`), where there are the actions that it needs."""
        return self._hunted if all(action in self.actions for action in NEEDED) else None

    def _hunted(self, key: jax.Array, state: EnvState, seat: jax.Array) -> jax.Array:
        return hunting_bot(key, self, state, seat)

    def _set_missing(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _check_levels(self, largest: int) -> None:
        """ValueError if the levels do not fit into the grid."""
        if self.layout not in DRAWN_LAYOUTS:
            height, width = maps.map_size(self.layout)
            if height > self.height or width > self.width:
                raise ValueError(
                    f"layout={self.layout!r} has {height} x {width} cells: height={self.height} and "
                    f"width={self.width} must be at least that"
                )
        check_int("max_side", self.max_side, 2, largest if self.layout in DRAWN_LAYOUTS else None)
        check_int("min_side", self.min_side, 2, self.max_side)
        for name in ("min_walls", "max_walls"):
            share = getattr(self, name)
            if not (isinstance(share, int | float) and 0 <= share <= 1):
                raise ValueError(f"{name}={share!r}: it must be between 0 and 1")
        if self.min_walls > self.max_walls:
            raise ValueError(f"min_walls={self.min_walls}: it must be at most max_walls={self.max_walls}")

    @property
    def n_agents(self) -> int:
        return 2

    @property
    def view(self) -> ViewSize:
        """The cells that an agent sees."""
        return ViewSize(self.view_front, self.view_back, self.view_side)

    @property
    def table(self) -> ActionTable:
        """What the numbers of the actions mean."""
        return action_table(self.actions)

    @property
    def observation_space(self) -> Space:
        """The image's planes: the agent itself, the other one, free cells, walls; then the other's facing."""
        planes = 8 if self.show_facing else 4
        return Dict((("image", Box(0, 1, (self.view.height, self.view.width, planes), "bool")),))

    @property
    def action_space(self) -> Space:
        return Discrete(len(self.actions))

    def sample_level(self, key: jax.Array) -> Level:
        """A drawn level, or the map with random starts and facings. With `random_starts`, both look south at first."""
        if self.layout in DRAWN_LAYOUTS:
            draw = search_level if self.layout == SEARCH else random_level
            sides, shares = (self.min_side, self.max_side), (self.min_walls, self.max_walls)
            level = draw(key, (self.height, self.width), sides, shares)
            return level.replace(starts=jnp.full((2, 2), DRAWN, jnp.int32)) if self.random_starts else level
        level = maps.load(self.layout, (self.height, self.width))
        return level if self.random_starts else maps.started(key, level)

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, AgentTimeStep]:
        """The start of a game on `level`. Deterministic without `random_starts`. Outside jit, ValueError where it is no
        level."""
        level = checked_at_reset(self, level)  # type: ignore[arg-type]  # a level has no axis of agents
        state = begin_anywhere(key, level) if self.random_starts else begin(level)
        nothing = jnp.zeros(2, jnp.float32)
        return state, agents_opening(self.observe(state), progress=nothing, facts={"tags": nothing})

    def step(self, key: jax.Array, state: EnvState, action: jax.Array) -> tuple[EnvState, AgentTimeStep]:
        """The result of both actions (i32[2])."""
        k_first, k_spawn = (key, key) if self.first_tag_ends else jax.random.split(key)
        action = jnp.asarray(action, jnp.int32)
        state, tags = resolve(state, action, draw_first(k_first, state), self.table)
        if not self.first_tag_ends:
            state = bring_back(state, tags, draw_spawn(k_spawn, state, tags))
        return state, self.told(state, tags)

    def told(self, state: EnvState, tags: jax.Array) -> AgentTimeStep:
        """The time step in `state`, after a step in which `tags` (bool[2]) were made."""
        reward = tags.astype(jnp.float32)
        if self.zero_sum:
            reward -= reward[::-1]
        terminated = jnp.any(tags) if self.first_tag_ends else jnp.zeros((), bool)
        truncated = state.time >= self.max_steps
        over = terminated | truncated
        # The agent that has tagged more often has the higher return, whether or not a tag costs the other one.
        won = over & (state.tags > state.tags[::-1])
        everybody = jnp.ones(2, bool)
        return agents_transition(
            self.observe(state),
            reward,
            playing=everybody,
            terminated=everybody & terminated,
            truncated=everybody & truncated,
            over=over,
            progress=won,
            facts={"tags": state.tags},
        )

    def observe(self, state: EnvState) -> dict[str, jax.Array]:
        """What both agents see in `state`."""
        walls = jnp.asarray(state.level.walls)
        return {"image": planes_ahead(walls, state.position, state.facing, self.view, self.show_facing)}

    def relabelled(self, state: EnvState, order: jax.Array) -> EnvState:
        """See `MultiAgentEnvironment.relabelled`."""
        return state.replace(
            position=state.position[order],
            facing=state.facing[order],
            tags=state.tags[order],
            fired=state.fired[order],
        )

    def fault_in(self, level: Level) -> str:
        """See `Environment.fault_in`."""
        if not bool(_is_valid(level)):
            return (
                "both starts must be free cells, or drawn, at least two free cells must be spawns, and facings must be "
                "from 0 to 3"
            )
        if not self.random_starts and np.any(np.asarray(level.starts) == DRAWN):
            return f"its starts are open ({DRAWN}), which needs random_starts=True: they must be free cells"
        return ""

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """See `lasertag.metrics.level_metrics`."""
        return level_metrics(level)

    def draw_episodes(self, states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """See `Environment.draw_episodes`."""
        from minimax_lib.envs.lasertag.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns)

    def draw_state(self, state: EnvState) -> np.ndarray:
        """See `Environment.draw_state`."""
        from minimax_lib.envs.lasertag.render import draw_state

        return draw_state(state, seen_image(self, state)[0])

    @property
    def keys(self) -> Mapping[str, int]:
        """Of a person who plays agent 0: see `Environment.scene`. The other agent is an opponent (`Against`)."""
        from minimax_lib.envs.lasertag.text import keys

        return keys(self.actions)

    def scene(self, state: EnvState) -> Scene:
        """One moment as agent 0 sees it: see `Environment.scene`."""
        from minimax_lib.envs.lasertag.text import scene

        return scene(state, seen_image(self, state)[0], self.actions)
