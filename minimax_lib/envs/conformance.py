"""What every environment must do, checked: call `check_environment` in the tests of your own."""

import copy
import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, EnvState, Level, Observable, ResetsInGroups, TimeStep
from minimax_lib.envs.spaces import (
    ACTION_MASK,
    Box,
    Dict,
    Discrete,
    MultiDiscrete,
    Space,
    allows_something,
    check_mask,
    sample_allowed,
)
from minimax_lib.envs.ued import BatchUEDEnv, UEDEnvironment


def check_environment(env: Environment, key: jax.Array, n_rows: int = 8) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break training with `env`.

    Plays `n_rows` random levels for `env.max_steps` steps, so give it settings with a short time limit.
    """
    # Settings and types come first, since they are checked without compiling anything.
    check_settings(env)
    check_types(env, key)
    play = play_of(env, key, n_rows)
    check_spaces(env, play)
    check_masks(env, play)
    check_progress(play)
    check_levels(env, play)
    check_time_limit(env, play)
    check_purity(env, key, n_rows, play)
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
        return (state, ts.obs), (ts, env.observe(state) if isinstance(env, Observable) else ts.obs)

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


def play_of(env: Environment, key: jax.Array, n_rows: int) -> Play:
    """`play_one` on `n_rows` keys, traced anew at every call."""
    # A new lambda at every call: jit would not trace the same function again.
    play = jax.jit(jax.vmap(lambda key: play_one(env, key)))(jax.random.split(key, n_rows))
    return jax.tree.map(np.asarray, jax.device_get(play))


def check_settings(env: Environment) -> None:
    """Settings are static: frozen, hashable, and equal where their values are."""
    name = type(env).__name__
    _require(dataclasses.is_dataclass(env), f"{name} is not a dataclass: its settings must be its fields")
    _require(_is_frozen(env), f"{name} can be changed: make it a dataclass(frozen=True)")
    for what, value in (("", env), (".observation_space", env.observation_space), (".action_space", env.action_space)):
        try:
            hash(value)
        except TypeError as error:
            raise AssertionError(f"{name}{what} cannot be hashed, so it cannot be static under jit: {error}") from None
        _require(copy.deepcopy(value) == value, f"{name}{what} is not equal to a copy of itself: jit would retrace")
    if isinstance(env, ResetsInGroups):
        n = env.resets_at_once
        _require(isinstance(n, int) and n > 0, f"{name}.resets_at_once is {n!r}: it must be a positive int")
    limit = env.max_steps
    _require(isinstance(limit, int) and limit > 0, f"{name}.max_steps is {limit!r}: it must be a positive int")


def _is_frozen(env: Environment) -> bool:
    # A copy, since the attempt to change it may succeed.
    twin = copy.copy(env)
    try:
        for field in dataclasses.fields(twin):  # type: ignore[arg-type]
            setattr(twin, field.name, None)
    except dataclasses.FrozenInstanceError:
        return True
    # Without fields nothing was tried, and nothing can be changed.
    return not dataclasses.fields(twin)  # type: ignore[arg-type]


def check_types(env: Environment, key: jax.Array) -> None:
    """Shapes and dtypes are fixed, strong, and the same after a reset and after a step."""
    level = jax.eval_shape(env.sample_level, key)
    state, first = jax.eval_shape(env.reset, key, level)
    action = jax.eval_shape(env.action_space.sample, key)
    next_state, ts = jax.eval_shape(env.step, key, state, action)
    # A weakly typed leaf (a plain Python number) may change its type in the first step, and the next compiles again.
    for what, tree in (("level", level), ("state after reset", state), ("state after step", next_state)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            _require(not leaf.weak_type, f"{what}: {_at(path)} is weakly typed: give it a dtype where it is made")
    _check_same_types("state", state, next_state)
    _check_same_types("time step", first, ts)
    _check_same_types("level", level, jax.eval_shape(env.get_level, state))
    try:
        check_mask(env.observation_space, env.action_space)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    for what, dtype in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
        leaf = getattr(ts, what)
        _require(leaf.shape == () and leaf.dtype == dtype, f"{what} is {_type(leaf)}: it must be a scalar {dtype}")


def _check_same_types(what: str, before: Any, after: Any) -> None:
    old_structure, new_structure = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    _require(old_structure == new_structure, f"the {what} changes from {old_structure} to {new_structure}")
    leaves = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in leaves:
        same = (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)
        _require(same, f"the {what} changes at {_at(path)} from {_type(old)} to {_type(new)}")


def check_spaces(env: Environment, play: Play) -> None:
    """Every observation fits the observation space; rewards are finite; an episode opens with nothing earned."""
    _check_fits(env.observation_space, play.first.obs, 1, "the observation after reset")
    _check_fits(env.observation_space, play.steps.obs, 2, "an observation after a step")
    _require(bool(np.isfinite(play.steps.reward).all()), "a reward is not finite")
    _require(not play.first.reward.any(), "reset gives a reward: it must be 0")
    _require(
        not play.first.done.any(), "an episode is over as it opens: reset must be neither terminated nor truncated"
    )
    for (path, told), seen in zip(
        jax.tree_util.tree_leaves_with_path(play.observed), jax.tree.leaves(play.steps.obs), strict=True
    ):
        _require(np.array_equal(told, seen), f"observe(state) and the observation of step differ at {_at(path)}")


def check_masks(env: Environment, play: Play) -> None:
    """A mask of actions, where there is one, allows at least one as long as the episode goes on."""
    if not (isinstance(play.steps.obs, dict) and ACTION_MASK in play.steps.obs):
        return
    over = np.cumsum(play.steps.done, axis=1) > 0
    opening = allows_something(env.action_space, play.first.obs[ACTION_MASK])
    later = allows_something(env.action_space, play.steps.obs[ACTION_MASK])
    _require(bool(opening.all()) and bool((later | over).all()), f"{ACTION_MASK} forbids every action")


def check_progress(play: Play) -> None:
    """Progress is f32[] in [0, 1], or is not told at all; facts are f32[]."""
    progress = play.steps.progress
    if progress is not None:
        _require(
            progress.ndim == 2 and progress.dtype == np.float32, f"progress is {_type(progress)}: it must be f32[]"
        )
        within = bool(((progress >= 0) & (progress <= 1)).all())
        _require(within, f"progress goes from {progress.min()} to {progress.max()}: it must stay between 0 and 1")
    for name, fact in play.steps.facts.items():
        _require(fact.ndim == 2 and fact.dtype == np.float32, f"the fact {name!r} is {_type(fact)}: it must be f32[]")


def _check_fits(space: Space, value: Any, n_leading: int, what: str) -> None:
    if isinstance(space, Dict):
        names = {name for name, _ in space.items}
        _require(isinstance(value, dict) and set(value) == names, f"{what} is not a dict of {', '.join(sorted(names))}")
        for name, part in space.items:
            _check_fits(part, value[name], n_leading, f"{what}, at {name!r},")
        return
    if isinstance(space, MultiDiscrete):
        fits = value.shape[n_leading:] == (len(space.sizes),) and value.dtype == np.int32
        wanted = f"int32[{len(space.sizes)}]"
        _require(fits, f"{what} is {value.dtype}{list(value.shape[n_leading:])}: the space says {wanted}")
        _require(bool(((value >= 0) & (value < space.sizes)).all()), f"{what} is outside of {space}")
        return
    box = Box(0, space.n - 1, (), "int32") if isinstance(space, Discrete) else space
    shape = value.shape[n_leading:]
    fits = shape == box.shape and value.dtype == np.dtype(box.dtype)
    _require(fits, f"{what} is {value.dtype}{list(shape)}: the space says {box.dtype}{list(box.shape)}")
    low, high = value.min(), value.max()
    _require(low >= box.low and high <= box.high, f"{what} runs from {low} to {high}, outside [{box.low}, {box.high}]")


def check_levels(env: Environment, play: Play) -> None:
    """`get_level` gives back what `reset` was given, at any time of the episode."""
    for when, kept in (("after reset", play.kept_first), ("at the end of the episode", play.kept_last)):
        for (path, given), back in zip(
            jax.tree_util.tree_leaves_with_path(play.levels), jax.tree.leaves(kept), strict=True
        ):
            _require(np.array_equal(given, back), f"get_level does not give back the level {when}: {_at(path)} differs")


def check_time_limit(env: Environment, play: Play) -> None:
    """No episode is longer than `max_steps`."""
    over = play.steps.done.any(axis=1)
    _require(bool(over.all()), f"an episode is not over after max_steps={env.max_steps} steps: step must truncate it")


def check_purity(env: Environment, key: jax.Array, n_rows: int, play: Play) -> None:
    """The same keys give the same episodes, also when traced again."""
    again = play_of(env, key, n_rows)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(play), jax.tree.leaves(again), strict=True):
        same = np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True)
        _require(same, f"traced twice, an episode differs at {_at(path)}: randomness must come from the key alone")


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


def check_level_metrics(env: Environment, key: jax.Array) -> None:
    """`level_metrics` is a dict of finite f32 scalars."""
    metrics = jax.jit(env.level_metrics)(jax.jit(env.sample_level)(key))
    _require(isinstance(metrics, dict), f"level_metrics gives a {type(metrics).__name__}: it must be a dict")
    for name, value in metrics.items():
        fits = value.shape == () and value.dtype == jnp.float32
        _require(fits, f"level_metrics[{name!r}] is {_type(value)}: it must be a scalar float32")
        _require(bool(jnp.isfinite(value)), f"level_metrics[{name!r}] is {value}: it must be finite")


def check_teacher(pair: UEDEnvironment, key: jax.Array, n_rows: int = 8) -> None:
    """Raises AssertionError, in a sentence, where the teacher of `pair` could not design levels for its student.

    The teacher is checked as an environment, then designs `n_rows` levels by random actions, which are to be levels
    that the student can be started on.
    """
    teacher, student = pair.teacher, pair.student
    check_environment(teacher, key, n_rows)
    batch_env = BatchUEDEnv(pair)

    def design(key: jax.Array) -> tuple[jax.Array, Level, Level, Level]:
        k_canvas, k_reset, k_steps, k_student = jax.random.split(key, 4)
        state, ts = batch_env.teacher.reset(k_reset, batch_env.canvases(k_canvas, n_rows))

        def one_step(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, obs = loop
            k_action, k_step = jax.random.split(key)
            allowed = jax.vmap(lambda key, obs: sample_allowed(teacher.action_space, key, obs))
            rows = jax.tree.map(lambda x: x[0], obs)  # a population of one
            action = jax.tree.map(lambda x: x[None], allowed(jax.random.split(k_action, n_rows), rows))
            state, ts = batch_env.teacher.step(k_step, state, action)
            return (state, ts.obs), ts.reward

        keys = jax.random.split(k_steps, teacher.max_steps)
        (state, obs), rewards = jax.lax.scan(one_step, (state, ts.obs), keys)
        designed = batch_env.designs(state)
        (later, _), _ = one_step((state, obs), k_steps)
        started, _ = batch_env.reset_student(k_student, state)
        played = jax.tree.map(lambda x: x[0], batch_env.student.levels(started))
        return rewards, designed, batch_env.designs(later), played

    rewards, designed, later, played = jax.device_get(jax.jit(design)(key))
    name = type(teacher).__name__
    _require(not np.any(rewards), f"{name} pays a reward: what a design is worth is known when students have played it")
    _same_levels(designed, later, f"{name} changes a design that is finished")
    _same_levels(designed, played, f"{type(student).__name__} is started on another level than {name} has designed")


def _same_levels(expected: Level, found: Level, sentence: str) -> None:
    pairs = zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True)
    for (path, x), y in pairs:
        _require(np.array_equal(x, y), f"{sentence}: {_at(path)} differs")


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise AssertionError(sentence)


def _at(path: tuple) -> str:
    return jax.tree_util.keystr(path) or "its only leaf"


def _type(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}{' (weak)' if getattr(leaf, 'weak_type', False) else ''}"
