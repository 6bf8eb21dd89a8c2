"""What every suite of held-out tasks must do."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Environment, HeldOut, Level, TimeStep
from minimax_lib.envs.family import tasks_called
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.envs.registry import family_of, make_held_out
from minimax_lib.envs.spaces import Box, Dict, Space, sample_allowed
from minimax_lib.envs.ued import describe
from minimax_lib.envs.wrappers import unwrapped
from minimax_lib.testing.envs import multi_agent
from minimax_lib.testing.envs.environment import check_types
from minimax_lib.testing.envs.parts import check_fits, check_strong, numbers, require, same_levels

UNKNOWN = "no task is called so"


def check_held_out(
    env: Environment, key: jax.Array, names: Sequence[str] = ("all",), n_episodes: int = 3, **options: Any
) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break an evaluation of agents of `env`.

    `names` and `options` are those of `make_held_out`. Every task is drawn and played for two steps.
    """
    suite = made(env, names, options)
    check_names(env, suite, names, options)
    check_suite_spaces(env, suite)
    check_sample(suite, key, n_episodes)
    check_tasks(suite, *played(suite, key, n_episodes))


def made(env: Environment, names: Sequence[str], options: dict[str, Any]) -> HeldOut:
    """The suite; AssertionError where it cannot be made."""
    try:
        return make_held_out(env, names, **options)
    except ValueError as error:
        raise AssertionError(str(error)) from None


def check_names(env: Environment, suite: HeldOut, names: Sequence[str], options: dict[str, Any]) -> None:
    """The tasks are those that were asked for, each can be had alone, and others are refused."""
    what, family, inner = type(suite).__name__, family_of(env), unwrapped(env)
    asked = tuple(dict.fromkeys(task for name in names for task in tasks_called(family, inner, name)))
    require(suite.names == asked, f"{what}.names is {suite.names}: asked for were {asked}")
    known = (task for group in family.groups.values() for task in group if family.fits(inner, task))
    for task in dict.fromkeys((*asked, TRAINING_DISTRIBUTION, *known)):
        alone = made(env, [task], options)
        require(alone.names == (task,), f"{what} has the tasks {alone.names}: asked for was {task!r} alone")
    try:
        make_held_out(env, [UNKNOWN], **options)
    except ValueError as error:
        require("\n" not in str(error), f"{what} refuses an unknown task in several lines")
    else:
        raise AssertionError(f"{what} takes a task that it does not have ({UNKNOWN!r}): it must raise ValueError")


def check_suite_spaces(env: Environment, suite: HeldOut) -> None:
    """An agent of `env` can see and act in the tasks' environment."""
    for name in ("observation_space", "action_space"):
        own, theirs = (shape_of(getattr(each, name)) for each in (env, suite.env))
        require(own == theirs, f"{name} of the held-out tasks is {theirs}: agents have been trained with {own}")


def shape_of(space: Space) -> str:
    """What a network depends on: all but the bounds of boxes."""
    if isinstance(space, Dict):
        return ", ".join(f"{name}: {shape_of(part)}" for name, part in space.items)
    # A MultiDiscrete and a Discrete say how many values there are, for which a network has units.
    return f"{space.dtype}{list(space.shape)}" if isinstance(space, Box) else repr(space)


def check_sample(suite: HeldOut, key: jax.Array, n_episodes: int) -> None:
    """Found out by tracing: the levels are of the form that the suite's environment plays."""
    what = type(suite).__name__
    levels = jax.eval_shape(lambda key: suite.sample(key, n_episodes), key)
    shape = (len(suite.names), n_episodes)
    for leaf in jax.tree.leaves(levels):
        found = leaf.shape[:2]
        require(found == shape, f"{what}.sample gives arrays that begin with {found}: it must be [tasks, episodes]")
    check_strong(f"the levels of {what}.sample", levels)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), levels)
    expected = jax.eval_shape(suite.env.sample_level, key)
    require(
        describe(one) == describe(expected),
        f"{what}.sample gives levels {describe(one)}: {type(suite.env).__name__} plays {describe(expected)}",
    )
    env: Any = suite.env
    check = multi_agent.check_types if env.multi_agent else check_types
    check(env, key)


def played(suite: HeldOut, key: jax.Array, n_episodes: int) -> tuple[Level, Level, Level, TimeStep, TimeStep]:
    """(levels [M, E, ...], the same drawn again, as the first states tell them, two time steps [M, E, ...])."""
    env: Any = suite.env

    def play(key: jax.Array, level: Level) -> tuple[Level, TimeStep, TimeStep]:
        k_reset, k_action, k_step = jax.random.split(key, 3)
        state, first = env.reset(k_reset, level)
        # Of several agents, each acts.
        act = multi_agent.actions_of if env.multi_agent else action_of
        action = act(env, k_action, first.obs)
        return env.get_level(state), first, env.step(k_step, state, action)[1]

    def tasks(key: jax.Array) -> Any:
        k_levels, k_play = jax.random.split(key)
        levels = suite.sample(k_levels, n_episodes)
        keys = jax.random.split(k_play, (len(suite.names), n_episodes))
        return levels, *jax.vmap(jax.vmap(play))(keys, levels)

    # Over seeds, as evaluations are. The second seed has the same key: it must find the same tasks.
    levels, kept, first, second = jax.device_get(jax.jit(jax.vmap(tasks))(jnp.stack([key, key])))
    one, other = (jax.tree.map(lambda x, i=i: x[i], levels) for i in (0, 1))
    return one, other, *(jax.tree.map(lambda x: x[0], each) for each in (kept, first, second))


def action_of(env: Environment, key: jax.Array, obs: Any) -> Any:
    """A random action."""
    return sample_allowed(env.action_space, key, obs)


def check_tasks(suite: HeldOut, levels: Level, again: Level, kept: Level, first: TimeStep, second: TimeStep) -> None:
    """The tasks are drawn by their key alone, differ from each other, and can be played."""
    what = type(suite).__name__
    rows = [x.reshape(len(suite.names), -1) for x in numbers(levels)]
    for i, name in enumerate(suite.names):
        finite = all(np.isfinite(x[i]).all() for x in rows if x.dtype.kind == "f")
        require(finite, f"a level of {name!r} is not finite")
        for j in range(i):
            same = all(np.array_equal(x[i], x[j]) for x in rows)
            require(not same, f"the held-out tasks {suite.names[j]!r} and {name!r} have the same levels")
    same_levels(levels, again, f"{what}.sample is not pure: the same key gives other levels")
    same_levels(levels, kept, f"{type(suite.env).__name__}.get_level does not give back a held-out level")
    for ts in (first, second):
        check_fits(suite.env.observation_space, ts.obs, 2 + suite.env.multi_agent, "the observation of a held-out task")
        require(bool(np.isfinite(ts.reward).all()), "a held-out task pays a reward that is not finite")
    for name, over in zip(suite.names, first.done, strict=True):
        require(not over.any(), f"the held-out task {name!r} is over as it opens")
