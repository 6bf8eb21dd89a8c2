"""What an update of PPO must not leave out: keys of the epochs, limits of the optimiser."""

import dataclasses

import jax
import numpy as np
import pytest

from minimax_lib.agents.ppo import PPOAgent
from tests.test_ppo import experience, make_agent


def test_every_epoch_has_a_key_of_its_own():
    class Drawn(PPOAgent):
        def _epoch(self, key, learnt, batch):
            luck = jax.random.uniform(key)
            return learnt, {"mean": luck, "square": luck**2}

    agent = make_agent("ff", n_epochs=4)
    state, run = experience(agent)
    metrics = jax.jit(Drawn(agent.model, agent.config).update)(jax.random.key(0), state, run)[1]
    assert metrics["square"] - metrics["mean"] ** 2 > 1e-3  # with one key for all, their spread would be 0


@pytest.mark.parametrize("name", ["adam", "tiada"])
def test_a_long_gradient_is_cut_to_the_largest_norm_by_every_optimiser(name):
    """A gradient of norm 5, and the same of norm 0.5."""
    agent, long = make_agent("ff", optimizer=name, max_grad_norm=0.5, adam_eps=1.0), np.array([3, 4], np.float32)
    free = dataclasses.replace(agent, config=dataclasses.replace(agent.config, max_grad_norm=10.0))

    @jax.jit
    def steps(gradient):
        return [one.optimizer.update(gradient, one.optimizer.init(gradient))[0] for one in (agent, free)]

    (cut, whole), (as_it_is, _) = steps(long), steps(long / 10)
    np.testing.assert_allclose(cut, as_it_is, rtol=1e-5)
    assert (np.abs(whole) > 1.5 * np.abs(cut)).all()
