"""One environment as a `gymnasium.Env`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.utils import seeding

from minimax_lib.envs.base import Environment, EnvState, Level, progress_of
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.spaces import checked_action, within
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.gymnasium_spaces import gymnasium_space, to_gymnasium
from minimax_lib.registry import unknown_name


class Row(struct.PyTreeNode):
    """An episode under way. All that is random in episode n of a seed follows from the two, and from the time."""

    seed: jax.Array  # key[]
    n_episodes: jax.Array  # i32[], begun since the seed was given
    time: jax.Array  # i32[], steps
    episode_return: jax.Array  # f32[], undiscounted; f32[G] of several agents
    state: EnvState


class Seen(struct.PyTreeNode):
    """The part of a step that leaves the compiled program; of several agents, with a leading G."""

    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    progress: jax.Array
    facts: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class RowFunctions:
    """Pure functions of one row; the vector environment maps them over many."""

    env: Any  # an `Environment`
    sample_level: Callable[[jax.Array], Level] | None  # None: of the environment

    def seen(self, ts: Any, episode_return: jax.Array) -> Seen:
        """The part of a time step that leaves the compiled program; `episode_return` includes its reward."""
        progress = progress_of(ts, episode_return)
        return Seen(ts.obs, ts.reward, ts.terminated, ts.truncated, progress, ts.facts)

    def begin(self, seed: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
        """Episode number `n_episodes` of a seed, on its own level."""
        k_level, _ = self._keys(seed, n_episodes)
        return self.begin_on((self.sample_level or self.env.sample_level)(k_level), seed, n_episodes)

    def begin_on(self, level: Level, seed: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
        """The same on a given level."""
        _, k_episode = self._keys(seed, n_episodes)
        state, ts = self.env.reset(jax.random.fold_in(k_episode, 0), level)
        time, nothing = jnp.zeros((), jnp.int32), jnp.zeros_like(ts.reward)
        return Row(seed, n_episodes, time, nothing, state), self.seen(ts, nothing)

    def step(self, row: Row, action: Any) -> tuple[Row, Seen]:
        """After `action`, which is clipped to a bounded box as it is in training."""
        _, k_episode = self._keys(row.seed, row.n_episodes)
        time = row.time + 1
        state, ts = self.env.step(jax.random.fold_in(k_episode, time), row.state, within(self.env.action_space, action))
        episode_return = row.episode_return + ts.reward
        row = row.replace(time=time, episode_return=episode_return, state=state)
        return row, self.seen(ts, episode_return)

    def _keys(self, seed: jax.Array, n_episodes: jax.Array) -> tuple[jax.Array, jax.Array]:
        k_level, k_episode = jax.random.split(jax.random.fold_in(seed, n_episodes))
        return k_level, k_episode


# Compiled once for all environments that are equal.
@functools.partial(jax.jit, static_argnums=0)
def begin_row(rows: RowFunctions, seed: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
    return rows.begin(seed, n_episodes)


@functools.partial(jax.jit, static_argnums=0)
def begin_row_on(rows: RowFunctions, level: Level, seed: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
    return rows.begin_on(level, seed, n_episodes)


@functools.partial(jax.jit, static_argnums=0)
def step_row(rows: RowFunctions, row: Row, action: Any) -> tuple[Row, Seen]:
    return rows.step(row, action)


class GymnasiumEnv(gymnasium.Env):
    """An environment of this package as one of Gymnasium's: see `export.gymnasium_env`.

    `info` has `progress` (of the task, 0 to 1), `solved` (the episode has ended with its task done) and `facts`.
    With `render_mode="rgb_array"`, a picture shows the episode so far.
    """

    def __init__(
        self, env: Environment, sample_level: Callable[[jax.Array], Level] | None = None, render_mode: str | None = None
    ):
        modes = ["rgb_array"] if env.draw_episodes else []
        if render_mode is not None and render_mode not in modes:
            raise unknown_name(f"render_mode of {type(env).__name__}", render_mode, modes)
        self.env = env
        self.metadata = {"render_modes": modes, "render_fps": 10}
        self.render_mode = render_mode
        self.observation_space = gymnasium_space(env.observation_space)
        self.action_space = gymnasium_space(env.action_space)
        self._rows = RowFunctions(env, sample_level)
        self._seed: jax.Array | None = None
        self._n_episodes = 0
        self._row: Row | None = None
        self._states: list[EnvState] = []  # of the episode, where it is drawn

    @property
    def level(self) -> Level:
        """The level of the episode under way; None before the first."""
        return None if self._row is None else self.env.get_level(self._row.state)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode, on `options["level"]` if it is given.

        ValueError where that, or what `sample_level` has drawn, is no level.
        """
        refuse_copies()
        super().reset(seed=seed)
        check_options(options, ("level",))
        if seed is not None or self._seed is None:
            self._seed, self._n_episodes = jax.random.key(word(self.np_random)), 0
        start = self._seed, jnp.int32(self._n_episodes)
        self._n_episodes += 1
        if options and "level" in options:
            self._row, seen = begin_row_on(self._rows, fitted_level(self.env, options["level"]), *start)
        else:
            self._row, seen = begin_row(self._rows, *start)
            if self._rows.sample_level is not None:
                fitted_level(self.env, self.level)
        self._states = []
        obs, _, _, _, info = self._told(seen)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """ValueError for an action that is none. Numbers beyond the ends of a box are clipped, as in training."""
        if self._row is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        self._row, seen = step_row(self._rows, self._row, checked_action(self.env.action_space, action))
        return self._told(seen)

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if not self._states:
            raise gymnasium.error.ResetNeeded("call reset before render")
        states = jax.tree.map(lambda *xs: np.stack(xs)[:, None], *self._states)
        assert self.env.draw_episodes
        return self.env.draw_episodes(states, np.ones((len(self._states), 1), bool), [""], 1)

    def _told(self, seen: Seen) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.render_mode is not None:
            assert self._row is not None
            self._states.append(jax.device_get(self._row.state))
        seen = jax.device_get(seen)
        info = {
            "progress": float(seen.progress),
            "solved": bool((seen.terminated | seen.truncated) & (seen.progress >= 1)),
            "facts": {name: float(fact) for name, fact in seen.facts.items()},
        }
        obs = to_gymnasium(self.observation_space, seen.obs)
        return obs, float(seen.reward), bool(seen.terminated), bool(seen.truncated), info


def word(generator: np.random.Generator) -> np.uint32:
    """The seed of jax's keys that a generator of NumPy gives next."""
    return generator.integers(2**32, dtype=np.uint32)


def words(seed: int, n: int) -> np.ndarray:
    """u32[n], the words of `n` environments with the seeds `seed`, `seed` + 1 and so on."""
    return np.array([word(seeding.np_random(seed + i)[0]) for i in range(n)])


def check_options(options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """ValueError for an option of `reset` that means nothing here."""
    for name in options or {}:
        if name not in known:
            raise unknown_name("option of reset", name, known)
