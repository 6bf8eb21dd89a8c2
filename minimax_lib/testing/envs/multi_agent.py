"""What every environment with several agents must do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import EnvState, Level
from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment, check_counted
from minimax_lib.envs.spaces import sample_allowed
from minimax_lib.testing.envs.environment import (
    check_level_metrics,
    check_levels,
    check_purity_of,
    check_settings,
    play_of,
)
from minimax_lib.testing.envs.parts import at, check_fits, check_same_types, check_strong, kind_of, require


def check_multi_agent(env: MultiAgentEnvironment, key: jax.Array, n_rows: int = 8) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break training with `env`.

    Plays `n_rows` random levels for `env.max_steps` steps, so give it settings with a short time limit.
    """
    check_settings(env)
    try:
        check_counted(env)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    check_types(env, key)
    play = play_of(env, key, n_rows, play_one)
    check_spaces(env, play)
    check_lives(env, play)
    check_levels(env, play)
    check_deaf(env, play)
    check_rewards(env, play)
    check_relabelling(env, play)
    check_tasks(env, key)
    check_purity_of(lambda: play_of(env, key, n_rows, play_one), play)
    check_level_metrics(env, key)


class GamePlay(struct.PyTreeNode):
    """Episodes without restarts, played under jit, vmap and scan. N rows, T = max_steps, G agents."""

    levels: Level  # [N, ...]
    kept_first: Level  # [N, ...] the level as the first state tells it
    kept_last: Level  # [N, ...] and the last
    first: AgentTimeStep  # [N, ...]
    steps: AgentTimeStep  # [N, T, ...]
    observed: Any  # [N, T, G, ...] `observe` of the states, if the environment has it
    deaf: jax.Array  # bool[N, T], other actions of agents that are dead lead to the same state and time step
    relabelled: jax.Array  # bool[N, T], a step with the agents in another order gives the same, in that order


def play_one(env: MultiAgentEnvironment, key: jax.Array) -> GamePlay:
    """One level, one episode's length."""
    k_level, k_reset, k_steps = jax.random.split(key, 3)
    level = env.sample_level(k_level)
    state, first = env.reset(k_reset, level)

    def one_step(loop: tuple[EnvState, Any, jax.Array], key: jax.Array) -> tuple[tuple, tuple]:
        state, obs, alive = loop
        k_action, k_other, k_order, k_step = jax.random.split(key, 4)
        action = actions_of(env, k_action, obs)
        after, ts = env.step(k_step, state, action)
        # The dead do something else.
        other = jax.tree.map(lambda x, y: chosen(alive, x, y), action, actions_of(env, k_other, obs))
        deaf = equal((after, ts), env.step(k_step, state, other))
        ordered = jnp.ones((), bool)
        if env.relabelled is not None:
            order = jax.random.permutation(k_order, env.n_agents).astype(jnp.int32)
            moved = env.step(k_step, env.relabelled(state, order), jax.tree.map(lambda x: x[order], action))
            ordered = equal((env.relabelled(after, order), in_order(ts, order)), moved)
        observed = env.observe(after) if env.observe is not None else ts.obs
        return (after, ts.obs, alive & ~ts.done), (ts, observed, deaf, ordered)

    loop = (state, first.obs, first.playing)
    (last, _, _), (steps, observed, deaf, ordered) = jax.lax.scan(
        one_step, loop, jax.random.split(k_steps, env.max_steps)
    )
    return GamePlay(
        levels=level,
        kept_first=env.get_level(state),
        kept_last=env.get_level(last),
        first=first,
        steps=steps,
        observed=observed,
        deaf=deaf,
        relabelled=ordered,
    )


def actions_of(env: MultiAgentEnvironment, key: jax.Array, obs: Any) -> Any:
    """A random action of each agent, [G, ...]."""
    keys = jax.random.split(key, env.n_agents)
    return jax.vmap(lambda key, obs: sample_allowed(env.action_space, key, obs))(keys, obs)


def chosen(where: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, y)


def equal(one: Any, other: Any) -> jax.Array:
    """bool[], two trees are the same, to the bit."""
    same = jax.tree.map(lambda x, y: jnp.array_equal(as_numbers(x), as_numbers(y)), one, other)
    return jnp.stack(jax.tree.leaves(same)).all()


def as_numbers(x: jax.Array) -> jax.Array:
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def in_order(ts: AgentTimeStep, order: jax.Array) -> AgentTimeStep:
    """The time step with the agents in another order."""
    return jax.tree.map(lambda x: x[order], ts.replace(over=())).replace(over=ts.over)


def check_types(env: MultiAgentEnvironment, key: jax.Array) -> None:
    """Shapes and dtypes are fixed, strong, and the same after a reset and after a step."""
    n, name = env.n_agents, type(env).__name__
    require(isinstance(n, int) and n > 0, f"{name}.n_agents is {n!r}: it must be a positive int")
    level = jax.eval_shape(env.sample_level, key)
    state, first = jax.eval_shape(env.reset, key, level)
    action = jax.eval_shape(lambda key: jax.vmap(env.action_space.sample)(jax.random.split(key, n)), key)
    next_state, ts = jax.eval_shape(env.step, key, state, action)
    for what, tree in (("level", level), ("state after reset", state), ("state after step", next_state)):
        check_strong(what, tree)
    check_same_types("the state", state, next_state)
    check_same_types("the time step", first, ts)
    check_same_types("the level", level, jax.eval_shape(env.get_level, state))
    wanted = [("reward", "float32"), ("playing", "bool"), ("terminated", "bool"), ("truncated", "bool")]
    for what, dtype in wanted:
        leaf = getattr(ts, what)
        require(leaf.shape == (n,) and leaf.dtype == dtype, f"{what} is {kind_of(leaf)}: it must be {dtype}[{n}]")
    require(ts.over.shape == () and ts.over.dtype == bool, f"over is {kind_of(ts.over)}: it must be a scalar bool")
    told = {f"the fact {name!r}": x for name, x in ts.facts.items()}
    told |= {} if ts.progress is None else {"progress": ts.progress}
    for what, leaf in told.items():
        require(leaf.shape == (n,) and leaf.dtype == "float32", f"{what} is {kind_of(leaf)}: it must be float32[{n}]")


def check_spaces(env: MultiAgentEnvironment, play: GamePlay) -> None:
    """Every observation fits the space of one agent, and `observe` agrees. Progress stays between 0 and 1."""
    check_fits(env.observation_space, play.first.obs, 2, "the observation after reset")
    check_fits(env.observation_space, play.steps.obs, 3, "an observation after a step")
    for (path, told), seen in zip(
        jax.tree_util.tree_leaves_with_path(play.observed), jax.tree.leaves(play.steps.obs), strict=True
    ):
        require(np.array_equal(told, seen), f"observe(state) and the observation of step differ at {at(path)}")
    progress = play.steps.progress
    if progress is not None:
        within = bool(((progress >= 0) & (progress <= 1)).all())
        require(within, f"progress goes from {progress.min()} to {progress.max()}: it must stay between 0 and 1")


def check_lives(env: MultiAgentEnvironment, play: GamePlay) -> None:
    """An agent dies once at most, the dead stay dead, and all lives end with the episode, within `max_steps`."""
    first, steps = play.first, play.steps
    opens = not (first.done.any() or first.over.any() or first.reward.any())
    require(opens, "an episode opens with a reward, or with a life that is over")
    require(bool(first.playing.any(axis=1).all()), "nobody is alive at the start of an episode")
    require(bool(steps.over.any(axis=1).all()), f"an episode is not over after max_steps={env.max_steps} steps: end it")
    running = np.cumsum(steps.over, axis=1) - steps.over == 0  # up to the step that ends the episode
    ended = np.cumsum(steps.done, axis=1) - steps.done > 0  # in an earlier step
    alive = first.playing[:, None] & ~ended
    agree = (steps.playing == alive)[running]
    require(bool(agree.all()), "playing differs from who was alive before the step: the dead must stay dead")
    require(not (steps.done & ~alive)[running].any(), "a life ends twice: done only where the agent was playing")
    left = alive & ~steps.done
    require(
        not left[running & steps.over].any(),
        "the episode is over, and somebody's life is not: terminate or truncate it",
    )
    for leaf in jax.tree.leaves(steps.obs):
        rows = leaf.reshape(*left.shape, -1)[running & ~steps.over]
        require(
            not rows[~left[running & ~steps.over]].any(), "a dead agent sees something: its observation must be zeros"
        )


def check_deaf(env: MultiAgentEnvironment, play: GamePlay) -> None:
    """What the dead do changes nothing."""
    steps = play.steps
    running = np.cumsum(steps.over, axis=1) - steps.over == 0
    require(bool(play.deaf[running].all()), "the action of a dead agent changes the state or the time step")


def check_rewards(env: MultiAgentEnvironment, play: GamePlay) -> None:
    """Rewards are finite, nobody earns anything after death, and a zero-sum game adds up to 0."""
    steps = play.steps
    running = np.cumsum(steps.over, axis=1) - steps.over == 0
    require(bool(np.isfinite(steps.reward).all()), "a reward is not finite")
    require(not steps.reward[running][~steps.playing[running]].any(), "a dead agent gets a reward: it must be 0")
    if env.zero_sum:
        total = np.abs(steps.reward.sum(axis=2)[running]).max()
        require(bool(total < 1e-5), f"the rewards of a step add up to {total}: in a zero-sum game it must be 0")


def check_relabelling(env: MultiAgentEnvironment, play: GamePlay) -> None:
    """Where it does not matter which agent is which, another order gives the same in that order."""
    running = np.cumsum(play.steps.over, axis=1) - play.steps.over == 0
    require(
        bool(play.relabelled[running].all()),
        "with the agents in another order, a step gives something else: see `MultiAgentEnvironment.relabelled`",
    )


def check_tasks(env: Any, key: jax.Array) -> None:
    """Tasks of agents fit into a level, take the place of others, and a state tells them again."""
    if env.with_tasks is None:
        return
    n, name = env.n_tasks, type(env).__name__
    require(isinstance(n, int) and n > 0, f"{name}.n_tasks is {n!r}: it must be a positive int")
    own = env.sample_level(key)
    first, last = (env.with_tasks(own, jnp.full(env.n_agents, task, jnp.int32)) for task in (0, n - 1))
    check_same_types("the level with other tasks", own, first)
    again = env.with_tasks(last, jnp.zeros(env.n_agents, jnp.int32))
    require(bool(equal(first, again)), "with_tasks keeps something of the tasks that were there before")
    require(n == 1 or not equal(first, last), "with_tasks makes the same level of task 0 and of the last one")
    kept = env.get_level(env.reset(key, last)[0])
    require(bool(equal(last, kept)), "get_level tells other tasks than the level had")
