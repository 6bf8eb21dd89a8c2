"""From a configuration to the objects that it describes."""

from typing import Any

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPOAgent
from minimax_lib.runners.training import Runner


def make_agent(config: Any) -> AgentPop:
    """The students of a configuration."""
    model = config.model.build(config.env.observation_space, config.env.action_space)
    return AgentPop(PPOAgent(model, config.ppo, config.n_updates), config.runner.n_students)


def make_runner(config: Any) -> Runner:
    """The runner of a configuration; everything that does not fit together is refused here, before any compilation."""
    agent = make_agent(config)
    agent.check_batch(config.runner.n_train_rows, config.runner.n_steps)
    return config.runner.build(config.env, agent)
