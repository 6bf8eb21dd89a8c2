"""What an update of PPO must not leave out: keys of the epochs, limits of the optimiser."""

import jax

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
