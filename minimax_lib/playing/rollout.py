"""The rollout: students, teachers and probes all gather experience with it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Attempt, Level
from minimax_lib.envs.batch import BatchTimeStep, Rows
from minimax_lib.envs.restarts import LevelQueue, NoRestart
from minimax_lib.gae import gae, next_values
from minimax_lib.loops import steps_at_once
from minimax_lib.trees import assert_shape


class Transition(struct.PyTreeNode):
    """One step of A students on R rows. After a rollout of T steps, every leaf is [T, A, R, ...]."""

    obs: Any  # before the action
    action: jax.Array
    reward: jax.Array  # f32
    done: jax.Array  # bool, the episode ended with this action
    episode_return: jax.Array  # f32, undiscounted, of the episode so far, with this reward
    discount: jax.Array  # f32, 0 where nothing may be bootstrapped past this step
    first: jax.Array  # bool, obs opens an episode, and a recurrent agent clears its carry
    log_prob: jax.Array  # f32
    value: jax.Array  # f32
    truncation_value: jax.Array | None  # f32, value of the observation that closed a truncated episode; 0 elsewhere
    progress: jax.Array  # f32 in [0, 1], how much of the task is done (`TimeStep.progress`)
    facts: dict[str, jax.Array]  # f32 each, of the episode so far
    number: jax.Array | None = None  # i32, which level of the queue's table it is (`QueuedLevels`); None without queues
    valid: jax.Array | None = None  # bool, the step belongs to an episode (or an agent's life); None if all steps do
    attempt: Attempt | None = None  # of the environment, after the action; None: the episode is the attempt

    @property
    def solved(self) -> jax.Array:
        """bool, the episode ended at this step with its task done."""
        return self.done & (self.progress >= 1)


class Rollout(struct.PyTreeNode):
    """The result of a rollout."""

    steps: Transition  # [T, A, R, ...]
    carry: Any  # [A, R, ...], the agents' memory before step 0
    last_value: jax.Array  # f32[A, R], value of the observation after the last step
    final: "Start | None"  # after the last step; None where only the experience is kept

    def advantages(self, gamma: float, gae_lambda: float) -> tuple[jax.Array, jax.Array]:
        """(advantages, value targets), f32 in the shape of `steps.reward`."""
        s = self.steps
        next_value = next_values(s.value, self.last_value)
        if s.truncation_value is not None:
            next_value = jnp.where(s.done, s.truncation_value, next_value)
        return gae(s.reward, s.done, s.discount, s.value, next_value, gamma, gae_lambda)

    def rows(self, rows: slice) -> "Rollout":
        """The experience of some of the rows, to learn from."""
        return Rollout(
            steps=jax.tree.map(lambda x: x[:, :, rows], self.steps),
            carry=jax.tree.map(lambda x: x[:, rows], self.carry),
            last_value=self.last_value[:, rows],
            final=None,
        )


class Start(struct.PyTreeNode):
    """Where a rollout begins: after a reset, or where the rollout before has ended. A students on R rows."""

    state: Any  # a `BatchState`, or that of a duel
    obs: Any  # [A, R, ...]
    first: jax.Array  # bool[A, R], `obs` opens an episode
    carry: Any  # [A, R, ...], the agents' memory


def parts_of(start: Start) -> tuple:
    """Its members, the state of the environment first: `Start(*parts_of(start))` is the same again."""
    return start.state, start.obs, start.first, start.carry


def begin(key: jax.Array, env: Rows, agent: Agent, levels: Level) -> Start:
    """The start after a reset of all rows on `levels` [B, ...], with empty memories. `queued` adds queues to it."""
    state, ts = env.reset(key, levels)
    return Start(state=state, obs=ts.obs, first=jnp.ones_like(ts.done), carry=agent.init_carry(ts.reward.shape))


def queued(env: Rows, start: Start, queue: Any) -> Start:
    """`start` with a `LevelQueue` for its rows; unchanged if `queue` is ()."""
    return start.replace(state=env.with_queue(start.state, queue)) if isinstance(queue, LevelQueue) else start


def rollout(
    key: jax.Array,
    env: Rows,
    agent: Agent,
    params: Any,
    levels: Level,
    n_steps: int,
    bootstrap_truncated: bool = False,
) -> Rollout:
    """`n_steps` of a population of agents, from a reset on `levels` [B, ...]. See `go_on`."""
    k_reset, k_steps = jax.random.split(key)
    start = begin(k_reset, env, agent, levels)
    return go_on(k_steps, env, agent, params, start, n_steps, bootstrap_truncated)


def step(keys: jax.Array, env: Rows, agent: Agent, params: Any, now: Start) -> tuple[Start, tuple, BatchTimeStep]:
    """(where all rows are after one step, the agent's (action, log probability, value), what followed).

    `keys` is key[2]: one for the agent, one for the environments.
    """
    k_act, k_env = keys
    action, log_prob, value, carry = agent.act(k_act, params, now.obs, now.carry, now.first)
    state, after = env.step_stocked(k_env, now.state, action)
    later = Start(state=state, obs=after.obs, first=after.opens, carry=carry)
    return later, (action, log_prob, value), after


def go_on(
    key: jax.Array,
    env: Rows,
    agent: Agent,
    params: Any,
    start: Start,
    n_steps: int,
    bootstrap_truncated: bool = False,
) -> Rollout:
    """`n_steps` of a population of agents, from `start` on.

    `agent` acts on [A, R, ...] (an `AgentPop`). As in all published baselines, an episode that runs into its time limit
    is not bootstrapped. With `bootstrap_truncated` it is, which evaluates the closing observation of every step too. If
    `env` restarts nothing (`NoRestart`), the steps after an episode's end are not `valid`.
    """

    def one_step(loop: tuple, keys: jax.Array) -> tuple[tuple, Recorded]:
        now = Start(*loop)
        number = env.numbers(now.state)
        later, acted, after = step(keys, env, agent, params, now)
        cut = truncation_value = None
        if bootstrap_truncated:
            cut = after.truncated & ~after.terminated
            closing = agent.value(params, after.last_obs, later.carry, jnp.zeros_like(now.first))
            truncation_value = jnp.where(cut, closing, 0.0)
        return parts_of(later), recorded(now, acted, after, number, cut, truncation_value)

    keys = jax.vmap(jax.random.split)(jax.random.split(key, n_steps))
    loop, steps = scan_restocked(env, one_step, parts_of(start), keys)
    final = Start(*loop)
    last_value = agent.value(params, final.obs, final.carry, final.first)
    rows = start.first.shape
    assert_shape("the steps of a rollout", (n_steps, *rows), steps.reward, steps.done, steps.value, steps.log_prob)
    assert_shape("the value after a rollout", rows, last_value)
    restarts = not isinstance(env.restart, NoRestart)
    return Rollout(
        steps=transitions(steps, start.first, restarts),
        carry=start.carry,
        last_value=last_value,
        final=final,
    )


def joined_in_time(parts: Rollout, final: Start | None = None) -> Rollout:
    """One rollout of K * T steps from K consecutive ones, the last of which ended in `final`.

    Every leaf of `parts` has a leading axis K.
    """
    return Rollout(
        steps=jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts.steps),
        carry=jax.tree.map(lambda x: x[0], parts.carry),
        last_value=parts.last_value[-1],
        final=final,
    )


class Recorded(struct.PyTreeNode):
    """What a step of the loop records of a `Transition`. The rest is computed after the loop."""

    obs: Any
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    episode_return: jax.Array
    log_prob: jax.Array
    value: jax.Array
    truncation_value: jax.Array | None
    progress: jax.Array
    facts: dict[str, jax.Array]
    number: jax.Array | None
    cut: jax.Array | None  # bool, the episode was cut off after this action and must be bootstrapped
    attempt: Attempt | None
    valid: jax.Array | None = None  # bool, the row's agent was alive; None: always
    opens: jax.Array | None = None  # bool, the next step opens an episode; None: where this one is done


def recorded(
    now: Start,
    acted: tuple,
    after: BatchTimeStep,
    number: jax.Array | None,
    cut: jax.Array | None,
    truncation_value: jax.Array | None,
) -> Recorded:
    """What is kept of a step from `now`. See `step` for `acted` and `after`."""
    action, log_prob, value = acted
    return Recorded(
        obs=now.obs,
        action=action,
        reward=after.reward,
        done=after.done,
        episode_return=after.stats.returns,
        log_prob=log_prob,
        value=value,
        truncation_value=truncation_value,
        progress=after.progress,
        facts=after.facts,
        number=number,
        cut=cut,
        attempt=after.attempt,
        valid=after.valid,
        opens=None if after.valid is None else after.opens,
    )


def transitions(recorded: Recorded, opening: jax.Array, restarts: bool) -> Transition:
    """The transitions [T, A, R, ...]. `opening` is `first` of step 0. `restarts`: a row has several episodes."""
    done, ended = recorded.done, recorded.done if recorded.cut is None else recorded.done & ~recorded.cut
    opens = done if recorded.opens is None else recorded.opens
    discount, valid = 1.0 - ended.astype(jnp.float32), recorded.valid
    if valid is not None:
        discount = jnp.where(valid, discount, 0.0)  # what a dead agent sees has no value
    if not restarts:
        running = jnp.cumsum(opens, axis=0, dtype=jnp.int32) - opens == 0
        valid = running if valid is None else running & valid
    return Transition(
        obs=recorded.obs,
        action=recorded.action,
        reward=recorded.reward,
        done=done,
        episode_return=recorded.episode_return,
        discount=discount,
        first=jnp.concatenate([opening[None], opens[:-1]]),
        log_prob=recorded.log_prob,
        value=recorded.value,
        truncation_value=recorded.truncation_value,
        progress=recorded.progress,
        facts=recorded.facts,
        number=recorded.number,
        valid=valid,
        attempt=recorded.attempt,
    )


def scan_restocked(env: Rows, one_step: Any, loop: tuple, keys: jax.Array) -> tuple[tuple, Any]:
    """`lax.scan(one_step, loop, keys)` over keys [T, ...], where `loop[0]` is a state of `env` kept full of levels.

    `one_step` calls `env.step_stocked`. Without a stock of levels, this is a plain scan. With one, it is a scan over
    segments: the stock is filled up between them, so that the inner loop has no branch.
    """
    n_steps, unroll = len(keys), steps_at_once(4)
    if not env.restock_every:
        return jax.lax.scan(one_step, loop, keys, unroll=unroll)
    length = math.gcd(n_steps, env.restock_every)

    def segment(loop: tuple, keys: jax.Array) -> tuple[tuple, Any]:
        return jax.lax.scan(one_step, (env.restock(loop[0]), *loop[1:]), keys, unroll=unroll)

    loop, steps = jax.lax.scan(segment, loop, keys.reshape(-1, length, *keys.shape[1:]))
    return loop, jax.tree.map(lambda x: x.reshape(n_steps, *x.shape[2:]), steps)
