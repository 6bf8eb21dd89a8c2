"""Generalised advantage estimation against a plain loop, and by hand."""

import jax
import numpy as np
import pytest

from minimax_lib.gae import gae, next_values
from minimax_lib.playing.rollout import Rollout, Transition

T, R = 17, 5
estimated, followed = jax.jit(gae), jax.jit(next_values)
advantages = jax.jit(Rollout.advantages)


def plain_advantages(reward, done, discount, value, next_value, gamma, gae_lambda):
    """Sums discounted TD errors forwards from every step, up to the end of its episode."""
    advantage = np.zeros_like(reward)
    for r in range(reward.shape[1]):
        for t in range(reward.shape[0]):
            weight = 1.0
            for k in range(t, reward.shape[0]):
                bootstrap = gamma * discount[k, r] * next_value[k, r]
                advantage[t, r] += weight * (reward[k, r] + bootstrap - value[k, r])
                if done[k, r]:
                    break
                weight *= gamma * gae_lambda
    return advantage


def random_steps(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    done = rng.random((T, R)) < 0.25
    truncated = done & (rng.random((T, R)) < 0.5)
    return {
        "reward": rng.normal(size=(T, R)).astype(np.float32),
        "done": done,
        "discount": np.where(done & ~truncated, 0.0, 1.0).astype(np.float32),
        "value": rng.normal(size=(T, R)).astype(np.float32),
        "next_value": rng.normal(size=(T, R)).astype(np.float32),
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.7)])
def test_equals_a_plain_loop(seed, gamma, gae_lambda):
    steps = random_steps(seed)
    advantage, target = estimated(**steps, gamma=gamma, gae_lambda=gae_lambda)
    expected = plain_advantages(**steps, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, expected + steps["value"], rtol=1e-5, atol=1e-5)


def test_next_values():
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert followed(value, np.array([8, 9], np.float32)).tolist() == [[2.0, 3.0], [4.0, 5.0], [8.0, 9.0]]


def worked_rollout(truncation_value) -> Rollout:
    """Three steps of one row: the second ends an episode by its time limit, the third begins another."""

    def column(*values: float) -> np.ndarray:
        return np.array(values, np.float32)[:, None]

    bootstraps = truncation_value is not None
    steps = Transition(
        obs=None,
        action=None,
        reward=column(1.0, 2.0, 3.0),
        done=np.array([[False], [True], [False]]),
        episode_return=column(1.0, 3.0, 3.0),
        discount=column(1.0, 1.0 if bootstraps else 0.0, 1.0),
        first=np.array([[True], [False], [True]]),
        log_prob=column(0.0, 0.0, 0.0),
        value=column(10.0, 20.0, 30.0),
        truncation_value=column(0.0, 40.0, 0.0) if bootstraps else None,
        progress=column(0.0, 0.0, 0.0),
        facts={},
    )
    return Rollout(steps=steps, carry=(), last_value=np.array([50.0], np.float32), final=None)


def test_a_time_limit_is_an_end_unless_it_bootstraps():
    gamma, lam = 0.5, 0.5
    # delta = 1 + .5 * 20 - 10 = 1; 2 - 20 = -18; 3 + .5 * 50 - 30 = -2; the second episode ends at step 1
    advantage, target = advantages(worked_rollout(None), gamma, lam)
    np.testing.assert_allclose(np.asarray(advantage)[:, 0], [1 + 0.25 * -18, -18, -2])
    np.testing.assert_allclose(np.asarray(target)[:, 0], [10 - 3.5, 2, 28])
    # with the closing observation worth 40, delta at step 1 is 2 + .5 * 40 - 20 = 2; the next episode stays apart
    advantage, target = advantages(worked_rollout(40.0), gamma, lam)
    np.testing.assert_allclose(np.asarray(advantage)[:, 0], [1 + 0.25 * 2, 2, -2])
    np.testing.assert_allclose(np.asarray(target)[:, 0], [11.5, 22, 28])
