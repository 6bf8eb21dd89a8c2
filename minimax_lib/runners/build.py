"""From a configuration to the objects that it describes."""

from typing import Any

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPOAgent
from minimax_lib.runners.devices import DeviceRunner, Grid
from minimax_lib.runners.seeds import Program, SeedRunner
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


def make_agent(config: Any) -> AgentPop:
    """The students of a configuration."""
    model = config.model.build(config.env.observation_space, config.env.action_space)
    return AgentPop(PPOAgent(model, config.ppo, config.n_updates), config.runner.n_students)


def make_runner(config: Any) -> Runner:
    """The runner of a configuration, for one device.

    Everything that does not fit together is refused here, before any compilation.
    """
    n = config.n_row_devices
    if n == 1:
        return _runner(config, config.runner)
    if not isinstance(config.runner, RolloutSettings):
        raise ValueError(f"n_devices is {config.n_devices}: this runner cannot share its rows (it has no per_device)")
    part = config.runner.per_device(n)
    try:
        return _runner(config, part)
    except ValueError as error:
        raise ValueError(f"on each of {n} devices, {error}") from error


def _runner(config: Any, settings: Any) -> Runner:
    agent = make_agent(config)
    agent.check_batch(settings.n_train_rows, settings.n_steps)
    return settings.build(config.env, agent)


def grid_of(config: Any) -> Grid:
    """The devices of a configuration."""
    return Grid(config.n_seed_devices, config.n_row_devices)


def make_program(config: Any) -> Program:
    """The training of a configuration, for all of its seeds and devices; ValueError where there are not so many."""
    grid = grid_of(config)
    grid.check_devices()
    if grid.n_devices == 1:
        return SeedRunner(make_runner(config), config.n_seeds)
    return DeviceRunner(make_runner(config), config.n_seeds, grid)
