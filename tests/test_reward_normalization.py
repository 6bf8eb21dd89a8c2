"""Rewards divided by the running deviation of the discounted return, against NumPy step by step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from minimax_lib import axes
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.playing.rollout import Rollout
from minimax_lib.reward_normalization import Moments, RewardNormalization, RewardState, merged
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.testing.curricula import small_agent
from tests.test_scores import rollouts
from tests.test_solved import LONG, Coin

N = RewardNormalization()


class Plain:
    """One student's statistics, in float64, a step at a time, as vector environments keep them."""

    def __init__(self, n_rows: int):
        self.g = np.zeros(n_rows)
        self.count, self.mean, self.variance = 1e-4, 0.0, 1.0

    def step(self, reward: np.ndarray, done: np.ndarray) -> np.ndarray:
        self.g = 0.99 * self.g + reward
        n, mean, variance = len(self.g), self.g.mean(), self.g.var()
        delta, total = mean - self.mean, self.count + n
        squares = self.variance * self.count + variance * n + delta**2 * self.count * n / total
        self.mean, self.variance, self.count = self.mean + delta * n / total, squares / total, total
        self.g[done] = 0.0
        return np.clip(reward / np.sqrt(self.variance + 1e-8), -10, 10)


def runs_of(seed: int, n_steps: int, n_students: int, n_rows: int, shift: float = 0.0) -> Rollout:
    rng = np.random.default_rng(seed)
    shape = (n_steps, n_students, n_rows)
    reward = 7 * rng.normal(size=shape) + shift
    reward[rng.random(shape) < 0.01] = 500.0  # which the clip is for
    return rollouts(reward, rng.random(shape) < 0.1, np.zeros(shape), np.zeros(shape[1:])).run


@pytest.mark.parametrize("shift", [0.0, -100.0], ids=["around zero", "always negative"])
def test_two_rollouts_equal_numpy_step_by_step(shift):
    state = jax.jit(lambda: N.init(n_students=2, n_rows=5))()
    learn = jax.jit(lambda state, runs: N.learn(state.moments, state.returns, runs))
    plain = [Plain(5) for _ in range(2)]
    for seed in range(2):
        runs = runs_of(seed, 40, 2, 5, shift)
        moments, returns, normal = learn(state, runs)
        state = RewardState(moments, returns)
        for a in range(2):
            for t in range(40):
                expected = plain[a].step(np.float64(runs.steps.reward[t, a]), np.asarray(runs.steps.done[t, a]))
                np.testing.assert_allclose(normal.steps.reward[t, a], expected, rtol=2e-4, atol=1e-6)
            np.testing.assert_allclose(moments.variance[a], plain[a].variance, rtol=1e-4)
            np.testing.assert_allclose(moments.mean[a], plain[a].mean, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(returns[a], plain[a].g, rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(normal.steps.episode_return, runs.steps.episode_return)  # as it was earned
    frozen = jax.jit(lambda moments, runs: N.apply(moments, runs).steps.reward)(state.moments, runs)
    expected = np.asarray(runs.steps.reward) / np.sqrt(np.asarray(state.moments.variance)[:, None] + 1e-8)
    np.testing.assert_allclose(frozen, np.clip(expected, -10, 10), rtol=1e-5)


def test_float32_is_enough_for_a_million_values():
    """Values are merged 64 at a time. Their mean is 1,000 deviations."""
    values = (1000 + np.random.default_rng(0).normal(size=(16384, 64))).astype(np.float32)
    exact = values.astype(np.float64)
    parts = Moments(*(jnp.asarray(x, jnp.float32)[:, None] for x in (np.full(16384, 64), exact.mean(1), exact.var(1))))
    start = Moments(*(jnp.asarray([x], jnp.float32) for x in (1e-4, 0.0, 1.0)))
    moments, _ = jax.jit(lambda: jax.lax.scan(merged, start, parts))()
    np.testing.assert_allclose(moments.mean, exact.mean(), rtol=1e-5)
    # The start counts as 1e-4 values at 0, 1,000 deviations away.
    variance = exact.var() + 1e-4 * exact.mean() ** 2 / (exact.size + 1e-4)
    np.testing.assert_allclose(moments.variance, variance, rtol=2e-3)


def test_moments_do_not_drift_late_in_a_long_run():
    """Returns are as far from 0 as they always were: in 10 million steps before, and in 32,768 more.

    Merged step by step, each of these took 1e-7 from the variance.
    """
    shape, spread, n_before = (1024, 1, 2), 1.55, 2.1e7
    reward = np.broadcast_to(np.sqrt([spread]) * [1.0, -1.0], shape)
    runs = rollouts(reward, np.ones(shape, bool), np.zeros(shape), np.zeros(shape[1:])).run
    start = Moments(*(jnp.asarray([x], jnp.float32) for x in (n_before, 0.0, spread)))

    def one(moments: Moments, _: None) -> tuple[Moments, None]:
        return N.learn(moments, jnp.zeros((1, 2), jnp.float32), runs)[0], None

    moments, _ = jax.jit(lambda: jax.lax.scan(one, start, None, 32))()
    assert float(moments.variance[0]) == pytest.approx(spread, rel=1e-5)
    assert float(moments.mean[0]) == pytest.approx(0.0, abs=1e-5)
    assert float(moments.count[0]) == n_before + 32 * 1024 * 2


@pytest.mark.deep
def test_devices_share_their_statistics():
    """Two devices with half of the rows each give what one device gives with all."""
    runs = runs_of(3, 20, 1, 6)
    state = N.init(1, 6)
    whole = jax.jit(lambda: N.learn(state.moments, state.returns, runs))()
    mesh = jax.make_mesh((2,), (axes.DEVICE,), axis_types=(jax.sharding.AxisType.Auto,))
    rows, common = P(None, None, axes.DEVICE), P()

    def part(reward: jax.Array, done: jax.Array) -> tuple[Moments, jax.Array]:
        own = runs.replace(steps=runs.steps.replace(reward=reward, done=done))
        moments, _, normal = N.learn(state.moments, jnp.zeros((1, 3), jnp.float32), own)
        return moments, normal.steps.reward

    shared = jax.shard_map(part, mesh=mesh, in_specs=rows, out_specs=(common, rows), check_vma=False)
    moments, reward = jax.jit(shared)(runs.steps.reward, runs.steps.done)
    np.testing.assert_allclose(reward, whole[2].steps.reward, rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), moments, whole[0])


# ----------------------------------------------------------------------------------------------- in training


@pytest.mark.deep
@pytest.mark.parametrize("n_steps", [4, 2 * LONG], ids=["going on", "restarting"])
def test_runs_report_raw_returns_and_learn_from_normalised_rewards(n_steps):
    """Every step pays a hundred. Returns do not change, but targets are on the scale of deviations."""
    env = Scaled(fixed=0.5)
    settings = DR(n_parallel=16, n_steps=n_steps, normalize_rewards=True)
    program = SeedRunner(trained_with(env, small_agent(env), settings), n_seeds=2)
    state, report = program.run(program.init(0), 8)
    assert (np.abs(report.metrics["return"]) > 100).all()
    assert (report.metrics["value_loss"] < 100).all()
    variance = np.asarray(state.rewards.moments.variance[:, 0])
    assert (variance > 1e4).all()
    assert variance[0] != variance[1]  # each seed has its own
    assert np.asarray(state.rewards.moments.count)[:, 0] == pytest.approx(8 * 16 * n_steps, rel=1e-5)
    assert bool(jax.tree.leaves(state.rewards.returns)) == (n_steps < LONG)


@pytest.mark.deep
def test_on_two_devices_moments_are_common_and_episodes_their_own():
    env = Scaled(fixed=0.5)
    agent = small_agent(env)
    runner = trained_with(env, agent, DR(n_parallel=4, n_steps=4, normalize_rewards=True))
    program = DeviceRunner(runner, 1, DeviceMesh(n_rows=2))
    state, _ = program.run(program.init(0), 3)
    assert state.rewards.returns.shape == (1, 2, 1, 4)
    assert state.rewards.moments.variance.shape == (1, 1)
    assert float(state.rewards.moments.count[0, 0]) == pytest.approx(2 * 3 * 4 * 4, rel=1e-5)
    copies = [np.asarray(x.data) for x in state.rewards.moments.variance.addressable_shards]
    np.testing.assert_array_equal(copies[0], copies[1])


def test_scores_that_would_mix_two_scales_are_refused():
    env = Coin("cost")
    with pytest.raises(ValueError, match=r"normalize_rewards is True: the score 'max_mc' compares returns with values"):
        trained_with(env, small_agent(env), PLR(n_parallel=4, normalize_rewards=True, n_steps=32))
    trained_with(
        env, small_agent(env), PLR(n_parallel=4, normalize_rewards=True, n_steps=32, score="positive_value_loss")
    )


@dataclasses.dataclass(frozen=True)
class Scaled(Coin):
    """Every step costs a hundred."""

    kind: str = "cost"

    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, ts.replace(reward=100 * ts.reward)
