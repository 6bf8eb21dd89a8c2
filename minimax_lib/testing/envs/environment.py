"""What every environment must do."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import (
    BaseEnvironment,
    Environment,
    EnvState,
    Level,
    TimeStep,
)
from minimax_lib.envs.spaces import ACTION_MASK, allows_something, check_mask, sample_allowed
from minimax_lib.testing.envs.parts import (
    at,
    check_fits,
    check_same_types,
    check_strong,
    is_frozen,
    kind_of,
    require,
)


def check_environment(env: Environment, key: jax.Array, n_rows: int = 8) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break training with `env`.

    Plays `n_rows` random levels for `env.max_steps` steps, so give it settings with a short time limit.
    """
    # Settings and types come first, since they are checked without compiling anything.
    require(not getattr(env, "multi_agent", False), f"{type(env).__name__} has several agents: use check_multi_agent")
    check_settings(env)
    check_types(env, key)
    play = play_of(env, key, n_rows)
    check_spaces(env, play)
    check_masks(env, play)
    check_progress(play)
    check_attempts(env, play)
    check_levels(env, play)
    check_time_limit(env, play)
    check_purity_of(lambda: play_of(env, key, n_rows), play)
    check_compiles_once(env, key)
    check_level_metrics(env, key)


class Play(struct.PyTreeNode):
    """Episodes without restarts, played under jit, vmap and scan. N rows, T = max_steps."""

    levels: Level  # [N, ...]
    kept_first: Level  # [N, ...] the level as the first state tells it
    kept_last: Level  # [N, ...] and the last
    first: TimeStep  # [N, ...]
    steps: TimeStep  # [N, T, ...]
    observed: Any  # [N, T, ...] `observe` of the states, if the environment has it


def play_one(env: Environment, key: jax.Array) -> Play:
    """One level, one episode's length."""
    k_level, k_reset, k_steps = jax.random.split(key, 3)
    level = env.sample_level(k_level)
    state, first = env.reset(k_reset, level)
    kept_first = env.get_level(state)

    def one_step(loop: tuple[EnvState, Any], key: jax.Array) -> tuple[tuple[EnvState, Any], tuple[TimeStep, Any]]:
        state, obs = loop
        k_action, k_step = jax.random.split(key)
        action = sample_allowed(env.action_space, k_action, obs)
        state, ts = env.step(k_step, state, action)
        # An environment without `observe` is compared with itself.
        return (state, ts.obs), (ts, env.observe(state) if env.observe is not None else ts.obs)

    loop = (state, first.obs)
    (state, _), (steps, observed) = jax.lax.scan(one_step, loop, jax.random.split(k_steps, env.max_steps))
    return Play(
        levels=level,
        kept_first=kept_first,
        kept_last=env.get_level(state),
        first=first,
        steps=steps,
        observed=observed,
    )


def play_of(env: Any, key: jax.Array, n_rows: int, one: Callable[[Any, jax.Array], Any] = play_one) -> Any:
    """A `Play` of `n_rows` keys, by `one` on each, traced anew at every call."""
    # A new lambda at every call: jit would not trace the same function again.
    play = jax.jit(jax.vmap(lambda key: one(env, key)))(jax.random.split(key, n_rows))
    return jax.tree.map(np.asarray, jax.device_get(play))


def check_settings(env: Any) -> None:
    """Settings are static: frozen, hashable, and equal where their values are."""
    name = type(env).__name__
    require(isinstance(env, BaseEnvironment), f"{name} does not derive from minimax_lib.envs.base.Environment")
    require(dataclasses.is_dataclass(env), f"{name} is not a dataclass: its settings must be its fields")
    require(is_frozen(env), f"{name} can be changed: make it a dataclass(frozen=True)")
    for what, value in (("", env), (".observation_space", env.observation_space), (".action_space", env.action_space)):
        try:
            hash(value)
        except TypeError as error:
            raise AssertionError(f"{name}{what} cannot be hashed, so it cannot be static under jit: {error}") from None
        require(copy.deepcopy(value) == value, f"{name}{what} is not equal to a copy of itself: jit would retrace")
    n = env.resets_at_once
    if n is not None:
        require(isinstance(n, int) and n > 0, f"{name}.resets_at_once is {n!r}: it must be a positive int")
    limit = env.max_steps
    require(isinstance(limit, int) and limit > 0, f"{name}.max_steps is {limit!r}: it must be a positive int")


def check_types(env: Environment, key: jax.Array) -> None:
    """Shapes and dtypes are fixed, strong, and the same after a reset and after a step."""
    level = jax.eval_shape(env.sample_level, key)
    state, first = jax.eval_shape(env.reset, key, level)
    action = jax.eval_shape(env.action_space.sample, key)
    next_state, ts = jax.eval_shape(env.step, key, state, action)
    for what, tree in (("level", level), ("state after reset", state), ("state after step", next_state)):
        check_strong(what, tree)
    check_same_types("the state", state, next_state)
    check_same_types("the time step", first, ts)
    check_same_types("the level", level, jax.eval_shape(env.get_level, state))
    if env.reset_after is not None:
        after, opened = jax.eval_shape(env.reset_after, key, level, state)
        check_same_types("the state after an episode before it", state, after)
        check_same_types("the time step after an episode before it", first, opened)
    check_box(env, key, level)
    try:
        check_mask(env.observation_space, env.action_space)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    for what, dtype in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
        leaf = getattr(ts, what)
        require(leaf.shape == () and leaf.dtype == dtype, f"{what} is {kind_of(leaf)}: it must be a scalar {dtype}")


def check_box(env: Environment, key: jax.Array, level: Level) -> None:
    """If there is a box of levels, each dimension has a width, and its points are levels like the random ones."""
    if not env.level_box:
        return
    for name, (low, high) in env.level_box.items():
        good = bool(np.isfinite([low, high]).all()) and low < high
        require(good, f"level_box has {name} from {low} to {high}: the first must be below the second, both finite")
    point = jax.ShapeDtypeStruct((len(env.level_box),), jnp.float32)
    made = jax.eval_shape(env.level_at, key, point)
    check_strong("the level at a point", made)
    check_same_types("the level at a point", level, made)


def check_attempts(env: Environment, play: Play) -> None:
    """Attempts end with the episode at the latest, and a single one ends it."""
    name, attempt, opened = type(env).__name__, play.steps.attempt, play.first.attempt
    if env.step_then is None:
        require(attempt is None, f"{name} emits attempts: then it must have step_then and single (see `Environment`)")
        return
    if attempt is None or opened is None:
        raise AssertionError(f"{name} emits no attempts: give one to `opening` and `transition`")
    require(not opened.ended.any(), f"{name}: an attempt is over as the episode opens")
    require(bool(attempt.ended[play.steps.done].all()), f"{name}: an episode ends, and its attempt does not")
    rates = attempt.progress
    require(bool(((rates >= 0) & (rates <= 1)).all()), f"{name}: an attempt's progress is not between 0 and 1")
    single = play_of(env.single(), jax.random.key(0), len(play.first.reward)).steps
    assert single.attempt is not None  # time steps have one form
    agree = np.asarray(single.attempt.ended == single.done)
    require(
        bool(agree[_running(np.asarray(single.done))].all()),
        f"{name}.single(): an attempt ends, and the episode does not",
    )


def _running(done: np.ndarray) -> np.ndarray:
    """bool[N, T], the step belongs to the first episode of its row."""
    return np.cumsum(done, axis=1) - done == 0


def check_spaces(env: Environment, play: Play) -> None:
    """Every observation fits the observation space; rewards are finite; an episode opens with nothing earned."""
    check_fits(env.observation_space, play.first.obs, 1, "the observation after reset")
    check_fits(env.observation_space, play.steps.obs, 2, "an observation after a step")
    require(bool(np.isfinite(play.steps.reward).all()), "a reward is not finite")
    require(not play.first.reward.any(), "reset gives a reward: it must be 0")
    require(not play.first.done.any(), "an episode is over as it opens: reset must be neither terminated nor truncated")
    for (path, told), seen in zip(
        jax.tree_util.tree_leaves_with_path(play.observed), jax.tree.leaves(play.steps.obs), strict=True
    ):
        require(np.array_equal(told, seen), f"observe(state) and the observation of step differ at {at(path)}")


def check_masks(env: Environment, play: Play) -> None:
    """A mask of actions, where there is one, allows at least one as long as the episode goes on."""
    if not (isinstance(play.steps.obs, dict) and ACTION_MASK in play.steps.obs):
        return
    over = np.cumsum(play.steps.done, axis=1) > 0
    opening = allows_something(env.action_space, play.first.obs[ACTION_MASK])
    later = allows_something(env.action_space, play.steps.obs[ACTION_MASK])
    require(bool(opening.all()) and bool((later | over).all()), f"{ACTION_MASK} forbids every action")


def check_progress(play: Play) -> None:
    """Progress is f32[] in [0, 1], or is not told at all; facts are f32[]."""
    progress = play.steps.progress
    if progress is not None:
        require(
            progress.ndim == 2 and progress.dtype == np.float32, f"progress is {kind_of(progress)}: it must be f32[]"
        )
        within = bool(((progress >= 0) & (progress <= 1)).all())
        require(within, f"progress goes from {progress.min()} to {progress.max()}: it must stay between 0 and 1")
    for name, fact in play.steps.facts.items():
        require(fact.ndim == 2 and fact.dtype == np.float32, f"the fact {name!r} is {kind_of(fact)}: it must be f32[]")


def check_levels(env: Any, play: Any) -> None:
    """`get_level` gives back what `reset` was given, at any time of the episode."""
    for when, kept in (("after reset", play.kept_first), ("at the end of the episode", play.kept_last)):
        for (path, given), back in zip(
            jax.tree_util.tree_leaves_with_path(play.levels), jax.tree.leaves(kept), strict=True
        ):
            require(np.array_equal(given, back), f"get_level does not give back the level {when}: {at(path)} differs")


def check_time_limit(env: Environment, play: Play) -> None:
    """No episode is longer than `max_steps`."""
    over = play.steps.done.any(axis=1)
    require(bool(over.all()), f"an episode is not over after max_steps={env.max_steps} steps: step must truncate it")


def check_purity_of(play_again: Callable[[], Any], play: Any) -> None:
    """The same keys give the same episodes, also when traced again."""
    again = play_again()
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(play), jax.tree.leaves(again), strict=True):
        same = np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True)
        require(same, f"traced twice, an episode differs at {at(path)}: randomness must come from the key alone")


def check_compiles_once(env: Environment, key: jax.Array) -> None:
    """A step after a reset and a step after a step are one compiled function."""
    # chex counts over the whole process: what other checks have traced must not count here.
    chex.clear_trace_counter()
    step = jax.jit(chex.assert_max_traces(env.step, n=1))
    state, ts = jax.jit(env.reset)(key, jax.jit(env.sample_level)(key))
    try:
        for _ in range(3):
            action = jax.tree.map(jnp.asarray, sample_allowed(env.action_space, key, ts.obs))
            state, ts = step(key, state, action)
    except AssertionError:
        raise AssertionError("step compiles again for a state that step returned") from None


def check_level_metrics(env: Any, key: jax.Array) -> None:
    """`level_metrics` is a dict of finite f32 scalars."""
    metrics = jax.jit(env.level_metrics)(jax.jit(env.sample_level)(key))
    require(isinstance(metrics, dict), f"level_metrics gives a {type(metrics).__name__}: it must be a dict")
    for name, value in metrics.items():
        fits = value.shape == () and value.dtype == jnp.float32
        require(fits, f"level_metrics[{name!r}] is {kind_of(value)}: it must be a scalar float32")
        require(bool(jnp.isfinite(value)), f"level_metrics[{name!r}] is {value}: it must be finite")
