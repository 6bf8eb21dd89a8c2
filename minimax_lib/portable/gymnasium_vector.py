"""Many copies of an environment as a `gymnasium.vector.VectorEnv`: one compiled batch."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.given import check_levels
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.spaces import checked_action
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.gymnasium_env import Row, RowFunctions, Seen, check_options, word, words
from minimax_lib.portable.gymnasium_spaces import gymnasium_space, to_gymnasium
from minimax_lib.registry import unknown_name
from minimax_lib.trees import tree_where


@functools.partial(jax.jit, static_argnums=0)
def _step(rows: RowFunctions, row: Row, actions: Any) -> tuple[Row, Seen]:
    return jax.vmap(rows.step)(row, actions)


@functools.partial(jax.jit, static_argnums=0)
def _begin(rows: RowFunctions, seeds: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
    return jax.vmap(rows.begin)(seeds, n_episodes)


@functools.partial(jax.jit, static_argnums=0)
def _begin_on(rows: RowFunctions, levels: Level, seeds: jax.Array, n_episodes: jax.Array) -> tuple[Row, Seen]:
    return jax.vmap(rows.begin_on)(levels, seeds, n_episodes)


@jax.jit
def _where(mask: jax.Array, one: Any, other: Any) -> Any:
    return tree_where(mask, one, other)


class GymnasiumVectorEnv(VectorEnv):
    """Copies of an environment, stepped together: see `export.gymnasium_vector_env`.

    Row i is the `GymnasiumEnv` that is reset with `seed` + i, and all that is returned is what Gymnasium's own
    `SyncVectorEnv` of such environments returns, in each of its three modes:
    * SameStep: an episode that ends is followed by the next in the same step; its last observation and info are
      `infos["final_obs"]` and `infos["final_info"]`.
    * NextStep: the step after the last one opens the next episode; its action is ignored and its reward is 0.
    * Disabled: the rows of `options["reset_mask"]` (bool[N]) are reset, by the user's own call.
    `reset(options={"levels": levels})` gives the levels [N, ...] of the episodes that it opens.
    """

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        sample_level: Callable[[jax.Array], Level] | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}: it must be at least 1")
        modes = {mode.value: mode for mode in AutoresetMode}
        if autoreset_mode not in modes and autoreset_mode not in modes.values():
            raise unknown_name("autoreset_mode", autoreset_mode, modes)
        self.env, self.num_envs = env, num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = gymnasium_space(env.observation_space)
        self.single_action_space = gymnasium_space(env.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rows = RowFunctions(env, sample_level)
        self._row: Row | None = None
        self._obs: Any = None  # the latest, on the device
        self._ended = np.zeros(num_envs, bool)  # in the step before

    @property
    def levels(self) -> Level:
        """The levels [N, ...] of the episodes under way; None before the first."""
        return None if self._row is None else jax.vmap(self.env.get_level)(self._row.state)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode on every row, or on those of the mask."""
        refuse_copies()
        super().reset(seed=seed)
        options = options or {}
        check_options(options, ("levels", "reset_mask"))
        mask = self._mask(options.get("reset_mask"))
        if seed is not None or self._row is None:
            numbers = words(seed, self.num_envs) if seed is not None else self._words()
            seeds, n_episodes = jax.vmap(jax.random.key)(numbers), jnp.zeros(self.num_envs, jnp.int32)
        else:
            seeds, n_episodes = self._row.seed, self._row.n_episodes + 1
        if "levels" in options:
            row, seen = _begin_on(
                self._rows, fitted_level(self.env, options["levels"], self.num_envs), seeds, n_episodes
            )
        else:
            row, seen = _begin(self._rows, seeds, n_episodes)
        if self._row is None:
            self._row, self._obs = row, seen.obs
        else:
            self._row, self._obs = _where(mask, (row, seen.obs), (self._row, self._obs))
        self._check_drawn(mask)
        self._ended = self._ended & ~mask
        return self._batch(self._obs), self._infos(jax.device_get(seen), mask)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._row is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        all_rows, opens = np.ones(self.num_envs, bool), self._ended
        # Of a row that only opens an episode, the action is not looked at.
        ignored = opens if self.autoreset_mode is AutoresetMode.NEXT_STEP else None
        actions = checked_action(self.env.action_space, actions, self.num_envs, ignored=ignored)
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.DISABLED and opens.any():
            raise gymnasium.error.ResetNeeded("call reset with a reset_mask of the rows whose episodes have ended")
        row, seen = _step(self._rows, self._row, actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and opens.any():
            row, seen = _where(opens, self._next_episodes(), (row, seen))
        told = jax.device_get(seen)
        ended = told.terminated | told.truncated
        rewards, terminated, truncated = np.asarray(told.reward, np.float64), told.terminated, told.truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            infos = self._final(told, ended)
            row, seen = _where(ended, self._next_episodes(), (row, seen))
            told = jax.device_get(seen)
        self._row, self._obs, self._ended = row, seen.obs, ended
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            self._check_drawn(ended if self.autoreset_mode is AutoresetMode.SAME_STEP else opens)
        infos |= self._infos(told, all_rows)
        return self._batch(self._obs), rewards, np.array(terminated), np.array(truncated), infos

    def _check_drawn(self, mask: np.ndarray) -> None:
        """ValueError where `sample_level` of somebody else has drawn something else than a level for a row."""
        if self._rows.sample_level is not None:
            levels = jax.device_get(self.levels)
            for i in np.flatnonzero(mask):
                check_levels(self.env, jax.tree.map(lambda x, i=i: x[i : i + 1], levels), f"the level of row {i}")

    def _next_episodes(self) -> tuple[Row, Seen]:
        """The next episode of every row, of which only those are taken that have ended."""
        assert self._row is not None
        return _begin(self._rows, self._row.seed, self._row.n_episodes + 1)

    def _words(self) -> np.ndarray:
        return np.array([word(self.np_random) for _ in range(self.num_envs)])

    def _mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, bool)
        if np.shape(mask) != (self.num_envs,) or np.asarray(mask).dtype != bool or not np.any(mask):
            raise ValueError(f"reset_mask must be bool[{self.num_envs}], and True somewhere")
        if self._row is None:
            raise gymnasium.error.ResetNeeded("call reset without a reset_mask first")
        return np.asarray(mask)

    def _batch(self, obs: Any) -> Any:
        return to_gymnasium(self.observation_space, jax.device_get(obs))

    def _final(self, told: Seen, ended: np.ndarray) -> dict[str, Any]:
        """The last observations and infos of the episodes that have ended."""
        last = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            own = jax.tree.map(lambda x, i=i: x[i], told.obs)
            last[i] = to_gymnasium(self.single_observation_space, own)
        infos = {"final_obs": last, "final_info": self._infos(told, ended)}
        return infos | {"_final_obs": ended.copy(), "_final_info": ended.copy()}

    def _infos(self, told: Seen, mask: np.ndarray) -> dict[str, Any]:
        """The infos of the rows in `mask`, as Gymnasium puts them together."""
        solved = (told.terminated | told.truncated) & (told.progress >= 1)
        facts = {name: np.asarray(fact, np.float64) for name, fact in told.facts.items()}
        infos = {"progress": np.asarray(told.progress, np.float64), "solved": solved, "facts": _masked(facts, mask)}
        return _masked(infos, mask)


def _masked(infos: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Each entry, zero outside of `mask`, and beside it which rows have it."""
    kept = {name: x if isinstance(x, dict) else np.where(mask, x, np.zeros((), x.dtype)) for name, x in infos.items()}
    return kept | {f"_{name}": mask.copy() for name in infos}
