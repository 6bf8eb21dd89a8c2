"""The one rollout: students, teachers and probes all gather experience here."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import BatchEnv, BatchState, NoRestart
from minimax_lib.gae import gae, next_values


class Transition(struct.PyTreeNode):
    """One step of A students on R rows. Stacked over T steps, every leaf is [T, A, R, ...]."""

    obs: Any  # before the action
    action: jax.Array
    reward: jax.Array  # f32
    done: jax.Array  # bool, the episode ended with this action
    solved: jax.Array  # bool, the episode ended here with a positive return
    discount: jax.Array  # f32, 0 where nothing may be bootstrapped past this step
    first: jax.Array  # bool, obs opens an episode: a recurrent agent clears its carry here
    log_prob: jax.Array  # f32
    value: jax.Array  # f32
    truncation_value: jax.Array | None  # f32, value of the observation that closed a truncated episode, else 0
    valid: jax.Array | None = None  # bool, the step belongs to an episode; None if all steps do


class Rollout(struct.PyTreeNode):
    """Everything that a rollout returns."""

    steps: Transition  # [T, A, R, ...]
    carry: Any  # [A, R, ...], the agents' memory before step 0
    last_value: jax.Array  # f32[A, R], value of the observation after the last step
    final: BatchState | None  # after the last step; None where only the experience is handed on
    logits: jax.Array | None = None  # f32[T, A, R, n], the policies' parameters, where a score needs them
    values: jax.Array | None = None  # f32[T, A, R, K], all estimates of the value, likewise

    def advantages(self, gamma: float, gae_lambda: float) -> tuple[jax.Array, jax.Array]:
        """(advantages, value targets), f32 in the shape of `steps.reward`."""
        s = self.steps
        next_value = next_values(s.value, self.last_value)
        if s.truncation_value is not None:
            next_value = jnp.where(s.done, s.truncation_value, next_value)
        return gae(s.reward, s.done, s.discount, s.value, next_value, gamma, gae_lambda)


def rollout(
    key: jax.Array,
    env: BatchEnv,
    agent: Agent,
    params: Any,
    levels: Level,
    n_steps: int,
    bootstrap_truncated: bool = False,
) -> Rollout:
    """Runs a population of agents for `n_steps` from a reset on `levels` [B, ...].

    `agent` acts on [A, R, ...] (an `AgentPop`). A time limit ends an episode without bootstrap, as in all published
    baselines, unless `bootstrap_truncated`, which evaluates the closing observation of every step as well. Where `env`
    restarts nothing (`NoRestart`), the steps after an episode's end are marked as not `valid`.
    """
    k_reset, k_steps = jax.random.split(key)
    state, ts = env.reset(k_reset, levels)
    carry = agent.init_carry(ts.reward.shape)

    goes_on = not isinstance(env.restart, NoRestart)

    def one_step(loop: tuple, key: jax.Array) -> tuple[tuple, Transition]:
        state, ts, first, carry, running = loop
        k_act, k_env = jax.random.split(key)
        action, log_prob, value, carry = agent.act(k_act, params, ts.obs, carry, first)
        state, after = env.step(k_env, state, action)
        discount = 1.0 - after.done.astype(jnp.float32)
        truncation_value = None
        if bootstrap_truncated:
            cut = after.truncated & ~after.terminated
            closing = agent.value(params, after.last_obs, carry, jnp.zeros_like(first))
            truncation_value = jnp.where(cut, closing, 0.0)
            discount = jnp.where(cut, 1.0, discount)
        step = Transition(
            obs=ts.obs,
            action=action,
            reward=after.reward,
            done=after.done,
            solved=after.done & (after.stats.returns > 0),
            discount=discount,
            first=first,
            log_prob=log_prob,
            value=value,
            truncation_value=truncation_value,
            valid=None if goes_on else running,
        )
        return (state, after, after.done, carry, goes_on | (running & ~after.done)), step

    loop = (state, ts, jnp.ones_like(ts.done), carry, jnp.ones_like(ts.done))
    (state, ts, first, last_carry, _), steps = scan_restocked(env, one_step, loop, k_steps, n_steps)
    last_value = agent.value(params, ts.obs, last_carry, first)
    return Rollout(steps=steps, carry=carry, last_value=last_value, final=state)


def scan_restocked(env: BatchEnv, one_step: Any, loop: tuple, key: jax.Array, n_steps: int) -> tuple[tuple, Any]:
    """`lax.scan(one_step, loop, keys)` over `n_steps` steps; `loop[0]` is the BatchState, restocked as it needs.

    Without a stock it is that scan. With one, a scan over segments of scans, so that the inner loop has no branch.
    """
    keys = jax.random.split(key, n_steps)
    if not env.restock_every:
        return jax.lax.scan(one_step, loop, keys)
    length = math.gcd(n_steps, env.restock_every)

    def segment(loop: tuple, keys: jax.Array) -> tuple[tuple, Any]:
        return jax.lax.scan(one_step, (env.restock(loop[0]), *loop[1:]), keys)

    loop, steps = jax.lax.scan(segment, loop, keys.reshape(-1, length))
    return loop, jax.tree.map(lambda x: x.reshape(n_steps, *x.shape[2:]), steps)


class EpisodeReturns(struct.PyTreeNode):
    """The episodes that ended inside a rollout; an unfinished tail counts for nothing. All [A, R]."""

    mean: jax.Array  # f32, 0 where no episode ended
    best: jax.Array  # f32, -inf where no episode ended
    count: jax.Array  # i32
    solved: jax.Array  # i32, episodes with a positive return


def episode_returns(steps: Transition) -> EpisodeReturns:
    """Statistics of undiscounted returns over the episodes completed in `steps` [T, A, R]."""

    def one_step(loop: tuple, step: tuple) -> tuple[tuple, None]:
        running, total, best, count = loop
        reward, done = step
        running = running + reward
        total = total + jnp.where(done, running, 0.0)
        best = jnp.where(done, jnp.maximum(best, running), best)
        return (jnp.where(done, 0.0, running), total, best, count + done), None

    zero = jnp.zeros_like(steps.reward[0])
    loop = (zero, zero, jnp.full_like(zero, -jnp.inf), jnp.zeros(zero.shape, jnp.int32))
    (_, total, best, count), _ = jax.lax.scan(one_step, loop, (steps.reward, steps.done))
    solved = steps.solved.sum(axis=0, dtype=jnp.int32)
    return EpisodeReturns(mean=total / jnp.maximum(count, 1), best=best, count=count, solved=solved)
