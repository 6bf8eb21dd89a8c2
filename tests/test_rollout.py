"""The rollout: its records, where memory is cleared, the value at a truncation, and statistics of episodes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.restarts import FreshLevels, NoRestart
from minimax_lib.models.settings import LSTM
from minimax_lib.playing.returns import episode_returns
from minimax_lib.playing.rollout import Recorded, Rollout, Transition, joined_in_time, rollout, transitions
from minimax_lib.testing.envs import check_environment
from tests.probes import Probe, delayed_reward

ENV: Environment = Probe()
B, T = 3, 7


def lstm_pop(n: int) -> AgentPop:
    model = LSTM(memory_width=8, head_width=4).build(ENV.observation_space, ENV.action_space)
    return AgentPop(PPOAgent(model, PPO()), n)


def trained_like(agent: AgentPop) -> tuple:
    """Parameters of which none is zero, so that values and policies depend on the memory."""
    rng = np.random.default_rng(1)
    state = jax.eval_shape(agent.init, jax.random.key(0), np.zeros((), np.int32))
    return jax.tree.map(lambda x: 0.5 * rng.normal(size=x.shape).astype(np.float32), state.params)


def levels(length: int, truncates: bool = False):
    one = dataclasses.replace(delayed_reward(), length=np.int32(length), truncates=np.asarray(truncates))
    return jax.tree.map(lambda x: np.broadcast_to(x, (B, *x.shape)), one)


@pytest.fixture(scope="module")
def agent() -> AgentPop:
    return lstm_pop(2)


@pytest.fixture(scope="module")
def params(agent):
    return trained_like(agent)


@functools.partial(jax.jit, static_argnums=0)
def seen(agent: AgentPop, params, obs, carry, action) -> tuple:
    """(value, log probability of the action, new memory) of the first student, in the middle of an episode."""
    one = jax.tree.map(lambda x: x[0], params)
    policy, value, carry = agent.agent.policy(one, obs, carry, jnp.zeros(B, bool))
    return value, policy.log_prob(action), carry


def cleared(agent: AgentPop):
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(lambda: agent.agent.init_carry((B,))))


@pytest.fixture(scope="module")
def play(agent):
    """Rollouts as a function of (key, params, levels), with and without bootstrap at time limits."""

    def run(bootstrap: bool):
        batch = BatchEnv(ENV, n_students=agent.n)
        play = jax.jit(lambda key, params, levels: rollout(key, batch, agent, params, levels, T, bootstrap))
        return lambda *args: jax.device_get(play(*args))

    return {bootstrap: run(bootstrap) for bootstrap in (False, True)}


@pytest.mark.deep
def test_the_probe_is_an_environment():
    check_environment(ENV, jax.random.key(0))


def test_what_a_rollout_records(play, params):
    run = play[False](jax.random.key(2), params, levels(3))
    steps = run.steps
    assert steps.reward.shape == (T, 2, B)
    assert jax.tree.map(jnp.shape, run.carry.hidden) == (2, B, 8)
    assert not any(x.any() for x in jax.tree.leaves(run.carry))
    ends = (np.arange(T) % 3 == 2)[:, None, None]
    np.testing.assert_array_equal(steps.done, np.broadcast_to(ends, (T, 2, B)))
    np.testing.assert_array_equal(steps.first[1:], steps.done[:-1])
    assert steps.first[0].all()
    np.testing.assert_array_equal(steps.reward, steps.done.astype(np.float32))  # 1 after the third step
    np.testing.assert_array_equal(steps.solved, steps.done)
    np.testing.assert_array_equal(steps.discount, 1.0 - steps.done)
    np.testing.assert_array_equal(steps.obs, np.broadcast_to((np.arange(T) % 3)[:, None, None], (T, 2, B)))
    assert steps.truncation_value is None
    assert steps.valid is None


def walk(agent: AgentPop, params, run: Rollout, length: int) -> tuple[np.ndarray, np.ndarray, jax.Array]:
    """(values, log probabilities, last value) of the first student, one step at a time, its memory cleared by hand."""
    values, log_probs, carry = [], [], cleared(agent)
    for t in range(T):
        if t % length == 0:
            carry = cleared(agent)
        value, log_prob, carry = seen(agent, params, run.steps.obs[t, 0], carry, run.steps.action[t, 0])
        values.append(value)
        log_probs.append(log_prob)
    if T % length == 0:
        carry = cleared(agent)
    last_value, *_ = seen(agent, params, np.full(B, T % length, np.int32), carry, np.zeros(B, np.int32))
    return np.stack(values), np.stack(log_probs), last_value


@pytest.mark.parametrize("length", [1, 3, 4])
def test_memory_is_cleared_exactly_where_episodes_start(agent, params, play, length):
    """This includes the value after the rollout. The last of 7 steps ends an episode of length 1, but not of 3 or 4."""
    run = play[False](jax.random.key(3), params, levels(length))
    values, log_probs, last_value = walk(agent, params, run, length)
    np.testing.assert_allclose(run.steps.value[:, 0], values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.steps.log_prob[:, 0], log_probs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.last_value[0], last_value, rtol=1e-4, atol=1e-5)


def test_a_truncated_episode_is_worth_its_closing_observation(agent, params, play):
    run = play[True](jax.random.key(5), params, levels(2, truncates=True))
    steps = run.steps
    np.testing.assert_array_equal(steps.discount, np.ones((T, 2, B)))
    carry, any_action = cleared(agent), np.zeros(B, np.int32)
    for clock in range(3):
        closing, _, carry = seen(agent, params, np.full(B, clock, np.int32), carry, any_action)
    np.testing.assert_allclose(steps.truncation_value[1::2, 0], np.tile(closing, (3, 1)), rtol=1e-4, atol=1e-5)
    assert not steps.truncation_value[0::2].any()


def test_termination_is_worth_nothing_also_with_bootstrap(params, play):
    run = play[True](jax.random.key(6), params, levels(2))
    np.testing.assert_array_equal(run.steps.discount, 1.0 - run.steps.done)
    assert not run.steps.truncation_value.any()


@dataclasses.dataclass(frozen=True)
class BothAtOnce(Probe):
    """Every end comes with the time limit."""

    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, ts.replace(truncated=ts.terminated)


def test_an_end_that_comes_with_the_time_limit_is_an_end(agent, params):
    play = jax.jit(lambda *args: rollout(*args, n_steps=2, bootstrap_truncated=True), static_argnums=(1, 2))
    run = play(jax.random.key(6), BatchEnv(BothAtOnce(), n_students=agent.n), agent, params, levels(2))
    assert run.steps.done[1].all()
    np.testing.assert_array_equal(run.steps.discount, 1.0 - run.steps.done)
    assert not run.steps.truncation_value.any()


def test_the_step_that_ends_a_rows_only_episode_is_valid():
    """The row that is never reset says `done` in every later step; another row ends with the last step."""
    done = np.array([[0, 0], [1, 0], [1, 0], [1, 1]], bool)[:, None]
    known = {field.name: None for field in dataclasses.fields(Recorded)} | {"done": done}
    steps = transitions(Recorded(**known), opening=np.ones((1, 2), bool), restarts=False)
    np.testing.assert_array_equal(steps.valid[:, 0], [[1, 1], [1, 1], [0, 1], [0, 1]])


def test_rollouts_that_are_joined_begin_with_the_first_memory_and_end_with_the_last_value():
    known = {field.name: None for field in dataclasses.fields(Transition)} | {"reward": np.arange(6.0).reshape(2, 3)}
    memories, values = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    both = joined_in_time(Rollout(steps=Transition(**known), carry=memories, last_value=values, final=None))
    np.testing.assert_array_equal(both.steps.reward, np.arange(6.0))
    np.testing.assert_array_equal(both.carry, [1, 2])
    np.testing.assert_array_equal(both.last_value, [7, 8])


@pytest.mark.deep
def test_episodes_do_not_depend_on_when_levels_are_restocked(agent, params):
    @jax.jit
    def play(key_of_levels, key, params):
        levels = jax.vmap(ENV.sample_level)(jax.random.split(key_of_levels, B))
        restarts = [FreshLevels(ENV.sample_level, restock_every) for restock_every in (2, 8)]
        batches = [BatchEnv(ENV, n_students=agent.n, restart=restart) for restart in restarts]
        return [rollout(key, batch, agent, params, levels, 8) for batch in batches]

    often, rarely = jax.device_get(play(jax.random.key(7), jax.random.key(8), params))
    assert len(np.unique(often.steps.done.sum(axis=0))) > 1  # lengths do vary
    for a, b in zip(jax.tree.leaves(often.steps), jax.tree.leaves(rarely.steps), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.deep
def test_without_restarts_only_the_steps_of_the_first_episode_are_valid(agent, params):
    lengths = np.array([1, 2, 4, 9], np.int32)  # the last one does not end within the rollout
    levels = jax.tree.map(lambda x: np.broadcast_to(x, (4, *x.shape)), delayed_reward())
    levels = dataclasses.replace(levels, length=lengths)
    batch = BatchEnv(ENV, n_students=agent.n, restart=NoRestart())
    play = jax.jit(lambda key, params: rollout(key, batch, agent, params, levels, T))
    run = jax.device_get(play(jax.random.key(4), params))
    clock = np.arange(T)[:, None, None]
    np.testing.assert_array_equal(run.steps.valid, np.broadcast_to(clock < lengths, (T, 2, 4)))
    np.testing.assert_array_equal(run.steps.valid & run.steps.done, np.broadcast_to(clock == lengths - 1, (T, 2, 4)))


def plain_episodes(reward: np.ndarray, done: np.ndarray) -> list[float]:
    """Returns of the episodes that ended in one row."""
    returns, running = [], 0.0
    for r, d in zip(reward, done, strict=True):
        running += float(r)
        if d:
            returns.append(running)
            running = 0.0
    return returns


returns_jit = jax.jit(episode_returns)


@pytest.mark.parametrize("seed", range(3))
def test_episode_returns_equal_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    shape = (20, 2, 6)
    reward = rng.normal(size=shape).astype(np.float32)
    done = rng.random(shape) < 0.15
    done[:, 0, 0] = False  # a row in which no episode ends
    so_far = np.zeros(shape, np.float32)
    for t in range(shape[0]):
        so_far[t] = reward[t] + (np.where(done[t - 1], 0.0, so_far[t - 1]) if t else 0.0)
    rest = {f.name: None for f in dataclasses.fields(Transition)}
    progress = rng.choice([0, 0.5, 1], shape).astype(np.float32)
    known = {"reward": reward, "done": done, "episode_return": so_far, "progress": progress}
    steps = Transition(**(rest | known | {"facts": {"twice": 2 * progress}}))
    stats = jax.device_get(returns_jit(steps))
    for a in range(shape[1]):
        for r in range(shape[2]):
            returns = plain_episodes(reward[:, a, r], done[:, a, r])
            assert int(stats.count[a, r]) == len(returns)
            ends = np.flatnonzero(done[:, a, r])
            assert int(stats.solved[a, r]) == (progress[ends, a, r] == 1).sum()
            at_ends = progress[ends, a, r].mean() if len(ends) else 0.0
            np.testing.assert_allclose(stats.progress[a, r], at_ends, rtol=1e-6)
            last = ends[0] if len(ends) else shape[0] - 1
            first = jax.tree.map(lambda x, a=a, r=r: x[a, r], stats.first)
            assert bool(first.finished) == bool(len(ends))
            assert bool(first.solved) == bool(len(ends) and progress[last, a, r] == 1)
            np.testing.assert_allclose(first.returns, reward[: last + 1, a, r].sum(), rtol=1e-4, atol=1e-5)
            assert first.progress == progress[last, a, r]
            assert first.facts == {"twice": 2 * progress[last, a, r]}
            np.testing.assert_allclose(stats.mean[a, r], np.mean(returns) if returns else 0.0, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(stats.best[a, r], max(returns, default=-np.inf), rtol=1e-4, atol=1e-5)
    assert stats.mean.dtype == stats.best.dtype == jnp.float32
