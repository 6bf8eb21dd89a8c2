"""Builds what a configuration describes. This is the only place where a `Runner` is made."""

from typing import Any

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPOAgent
from minimax_lib.curricula.accel import ACCEL
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.designed import PAIRED
from minimax_lib.curricula.dr import DR
from minimax_lib.curricula.plr import PLR
from minimax_lib.curricula.settings import RolloutSettings
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.runners.devices import DeviceRunner, Grid
from minimax_lib.runners.seeds import Program, SeedRunner
from minimax_lib.runners.training import Runner


def runner_of(env: Environment, agent: AgentPop, curriculum: Curriculum, n_steps: int) -> Runner:
    """The runner that trains `agent` with `curriculum`; ValueError where the batch does not suit the agent."""
    plan = curriculum.plan
    agent.check_batch(plan.n_train_rows or plan.n_rows, n_steps)
    return Runner(BatchEnv(env, n_students=agent.n, restart=plan.restart), agent, curriculum, n_steps)


def trained_with(env: Environment, agent: AgentPop, settings: Any) -> Runner:
    """The runner of the settings of a method."""
    return runner_of(env, agent, settings.build(env, agent, settings.n_parallel), settings.n_steps)


def DRRunner(env: Environment, agent: AgentPop, n_parallel: int, n_steps: int) -> Runner:
    """Trains on fresh random levels only."""
    return trained_with(env, agent, DR(n_parallel=n_parallel, n_steps=n_steps))


def PLRRunner(env: Environment, agent: AgentPop, settings: PLR) -> Runner:
    """Trains on levels that come back: PLR, robust PLR, parallel PLR or REPAIRED."""
    return trained_with(env, agent, settings)


def ACCELRunner(env: Environment, agent: AgentPop, settings: ACCEL) -> Runner:
    """Trains on replayed levels and grows the buffer by their mutations: ACCEL or parallel ACCEL."""
    return trained_with(env, agent, settings)


def PAIREDRunner(env: Environment, agent: AgentPop, settings: PAIRED) -> Runner:
    """Trains students on what a teacher designs, and the teacher on what they make of it."""
    return trained_with(env, agent, settings)


def make_agent(config: Any) -> AgentPop:
    """The students of a configuration."""
    model = config.model.build(config.env.observation_space, config.env.action_space)
    return AgentPop(PPOAgent(model, config.ppo, config.n_updates), config.runner.n_students)


def make_runner(config: Any) -> Runner:
    """The runner of a configuration, for one device.

    Everything that does not fit together is refused here, before any compilation.
    """
    n = config.n_row_devices
    settings: RolloutSettings = config.runner
    if n == 1:
        return trained_with(config.env, make_agent(config), settings)
    # Outside the `try`: its messages name the setting and the number of devices already.
    part = settings.per_device(n)
    try:
        return trained_with(config.env, make_agent(config), part)
    except ValueError as error:
        raise ValueError(f"on each of {n} devices, {error}") from error


def grid_of(config: Any) -> Grid:
    """The devices of a configuration."""
    return Grid(config.n_seed_devices, config.n_row_devices)


def make_program(config: Any) -> Program:
    """The training of a configuration, on all of its seeds and devices; ValueError where there are too few devices."""
    grid = grid_of(config)
    # Asked here and not where a grid is made: `evaluate` describes the grid of a run that another machine has trained.
    grid.check_devices()
    if grid.n_devices == 1:
        return SeedRunner(make_runner(config), config.n_seeds)
    return DeviceRunner(make_runner(config), config.n_seeds, grid)
