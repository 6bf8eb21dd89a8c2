"""An environment of several agents as a `pettingzoo.ParallelEnv`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

from minimax_lib.envs.base import EnvState, Level
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.multi_agent import MultiAgentEnvironment
from minimax_lib.envs.spaces import checked_action
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.gymnasium_env import Row, RowFunctions, Seen, begin_row, begin_row_on, step_row, word
from minimax_lib.portable.gymnasium_spaces import gymnasium_space, to_gymnasium
from minimax_lib.registry import unknown_name


class SeenByAgents(Seen):
    """The part of a step that leaves the compiled program. All have a leading G."""

    alive: jax.Array  # bool, before the step


@dataclasses.dataclass(frozen=True)
class GameRows(RowFunctions):
    """The same for a `MultiAgentEnvironment`."""

    def seen(self, ts: Any, episode_return: jax.Array) -> SeenByAgents:
        told = super().seen(ts, episode_return)
        return SeenByAgents(**vars(told), alive=ts.playing)


class MultiAgentParallelEnv(ParallelEnv):
    """An environment of several agents of this package as one of PettingZoo's: see `export.parallel_env`.

    The agents are called agent_0, agent_1 and so on. One that has died is no longer among `agents`. Each has an info
    with `progress` (of its task, 0 to 1), `solved` (its life has ended with its task done) and `facts`. With
    `render_mode="rgb_array"`, a picture shows the episode so far.
    """

    def __init__(
        self,
        env: MultiAgentEnvironment,
        sample_level: Callable[[jax.Array], Level] | None = None,
        render_mode: str | None = None,
    ):
        name = type(env).__name__
        modes = ["rgb_array"] if env.draw_episodes else []
        if render_mode is not None and render_mode not in modes:
            raise unknown_name(f"render_mode of {name}", render_mode, modes)
        self.env = env
        self.metadata = {"render_modes": modes, "render_fps": 10, "name": name}
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{i}" for i in range(env.n_agents)]
        self.agents: list[str] = []
        self.observation_spaces = {name: gymnasium_space(env.observation_space) for name in self.possible_agents}
        self.action_spaces = {name: gymnasium_space(env.action_space) for name in self.possible_agents}
        self._games = GameRows(env, sample_level)
        self._seed: jax.Array | None = None
        self._n_episodes = 0
        self._game: Row | None = None
        self._states: list[EnvState] = []  # of the episode, where it is drawn

    def observation_space(self, agent: str) -> gymnasium.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        return self.action_spaces[agent]

    @property
    def level(self) -> Level:
        """The level of the episode under way; None before the first."""
        return None if self._game is None else self.env.get_level(self._game.state)

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Opens an episode, on `options["level"]` if it is given. Without a seed, the last one goes on.

        Other options are ignored: PettingZoo's own test gives some.
        """
        refuse_copies()
        if seed is not None or self._seed is None:
            self._seed, self._n_episodes = jax.random.key(word(seeding.np_random(seed)[0])), 0
        start = self._seed, jnp.int32(self._n_episodes)
        self._n_episodes += 1
        if options and "level" in options:
            # What a level must look like depends on `sample_level` alone.
            level = fitted_level(self.env, options["level"])  # type: ignore[arg-type]
            self._game, told = begin_row_on(self._games, level, *start)
        else:
            self._game, told = begin_row(self._games, *start)
            if self._games.sample_level is not None:
                fitted_level(self.env, self.level)  # type: ignore[arg-type]
        self._states = []
        self.agents = [name for name, alive in zip(self.possible_agents, np.asarray(told.alive), strict=True) if alive]
        obs, _, _, _, infos = self._told(told)
        return obs, infos

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """After the actions of all `agents`."""
        if self._game is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        if not self.agents:
            return {}, {}, {}, {}, {}
        for name in self.agents:
            if name not in actions:
                raise ValueError(f"step is given no action of {name}: it must be given those of {self.agents}")
        self._game, told = step_row(self._games, self._game, self._joint(actions))
        result = self._told(told)
        _, _, terminated, truncated, _ = result
        self.agents = [name for name in self.agents if not (terminated[name] or truncated[name])]
        return result

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if not self._states:
            raise gymnasium.error.ResetNeeded("call reset before render")
        states = jax.tree.map(lambda *xs: np.stack(xs)[:, None], *self._states)
        assert self.env.draw_episodes
        return self.env.draw_episodes(states, np.ones((len(self._states), 1), bool), [""], 1)

    def close(self) -> None: ...

    def _joint(self, actions: Mapping[str, Any]) -> Any:
        """The actions [G, ...]. Those of agents that are dead mean nothing."""
        some = actions[self.agents[0]]
        space = self.env.action_space
        each = [
            checked_action(space, actions[name] if name in self.agents else some, name=f"the action of {name}")
            for name in self.possible_agents
        ]
        return jax.tree.map(lambda *xs: jnp.stack(xs), *each)

    def _told(self, told: SeenByAgents) -> tuple[dict[str, Any], ...]:
        """(observations, rewards, terminations, truncations, infos) of the `agents`."""
        if self.render_mode is not None:
            assert self._game is not None
            self._states.append(jax.device_get(self._game.state))
        told = jax.device_get(told)
        rows = {name: self._row(told, name) for name in self.agents}
        obs = {name: to_gymnasium(self.observation_spaces[name], row.obs) for name, row in rows.items()}
        infos = {
            name: {
                "progress": float(row.progress),
                "solved": bool((row.terminated | row.truncated) & (row.progress >= 1)),
                "facts": {fact: float(value) for fact, value in row.facts.items()},
            }
            for name, row in rows.items()
        }
        return (
            obs,
            {name: float(row.reward) for name, row in rows.items()},
            {name: bool(row.terminated) for name, row in rows.items()},
            {name: bool(row.truncated) for name, row in rows.items()},
            infos,
        )

    def _row(self, told: SeenByAgents, name: str) -> SeenByAgents:
        """What is told to one agent."""
        number = self.possible_agents.index(name)
        return jax.tree.map(lambda x: x[number], told)
