"""Builds what a configuration describes. This is the only place where a `Runner` is made."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from minimax_lib.agents.base import Agent
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPOAgent
from minimax_lib.curricula.base import Curriculum, Plan
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.designed import PAIRED
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import RolloutSettings
from minimax_lib.envs.base import Environment
from minimax_lib.envs.restarts import FreshLevels, QueuedLevels, SameLevel
from minimax_lib.jax_settings import check_settings
from minimax_lib.messages import shown
from minimax_lib.models.network import check_network
from minimax_lib.playing.schedule import Flowing, Restarted, Schedule
from minimax_lib.playing.students import batch_for
from minimax_lib.reward_normalization import RewardNormalization
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import Program, SeedRunner
from minimax_lib.runners.training import Runner


def runner_of(
    env: Environment,
    agent: AgentPop,
    curriculum: Curriculum,
    n_steps: int,
    schedule: Schedule = Restarted(),  # noqa: B008, it is frozen
    rewards: RewardNormalization | None = None,
) -> Runner:
    """The runner that trains `agent` with `curriculum`. ValueError if the agent cannot learn from such batches."""
    check_settings()
    plan, n_in_turn = curriculum.plan, schedule.levels_per_row
    check_scores(plan.scores, env, agent.agent, schedule.n_evals, rewards)
    check_agents(env, plan)
    batch_env = batch_for(env, agent, plan, schedule.n_evals, n_in_turn)
    agent.check_batch((plan.n_train_rows or plan.n_rows) // n_in_turn * batch_env.rows_per_level, n_steps)
    return Runner(batch_env, agent, curriculum, n_steps, schedule, rewards)


def check_in_turn(env: Environment, plan: Plan, s: RolloutSettings) -> None:
    """ValueError where rows cannot play several levels in turn."""
    reasons = (
        (not isinstance(plan.restart, SameLevel), "each episode has its own level here anyway"),
        (s.n_evals > 1, f"runner.n_evals is {s.n_evals}, and the rows of a level would go on at different times"),
        (plan.n_opponents > 0, "each row has an opponent, who is chosen together with its level"),
        (env.step_then is not None, f"an episode of {type(env).__name__} holds several attempts at its level"),
        (any(score.needs_update for score in plan.scores), "the score looks at updates on one level alone"),
    )
    for applies, reason in reasons:
        if applies and s.levels_per_row > 1:
            raise ValueError(f"runner.levels_per_row is {s.levels_per_row}: it must be 1, since {reason}")


def check_scores(
    scores: Sequence[Score], env: Any, agent: Agent, n_evals: int, rewards: RewardNormalization | None
) -> None:
    """ValueError if a score cannot be computed of `agent` in `env`, with `n_evals` rows a level, or these rewards."""
    for score in scores:
        name = next((name for name in SCORES.names() if SCORES[name] is score), "of your own")
        if n_evals < score.n_evals:
            raise ValueError(
                f"runner.n_evals is {n_evals}: it must be at least {score.n_evals}, since the score {name!r} compares "
                "several episodes on the same level (the runner sfl plays whole episodes for it)"
            )
        if score.needs_optimum and env.optimal_return is None:
            raise ValueError(
                f"the score {name!r} needs the method optimal_return, and {type(env).__name__} has none: write it, or "
                "choose another score, such as max_mc"
            )
        if score.needs_update and not hasattr(agent, "parameter_change"):
            raise ValueError(
                f"the score {name!r} needs the method parameter_change, and {type(agent).__name__} has none: write it, "
                "or choose another score, such as positive_value_loss"
            )
        if rewards and score.mixes_scales:
            raise ValueError(
                f"runner.normalize_rewards is True: the score {name!r} compares returns with values, which would then "
                "be on two scales; choose another, such as positive_value_loss"
            )


def check_agents(env: Any, plan: Plan) -> None:
    """ValueError where a score cannot be computed with several agents that share the policy."""
    if env.multi_agent and any(score.needs_update for score in plan.scores):
        raise ValueError(
            f"{type(env).__name__} has {env.n_agents} agents: the score 'parameter_change' looks at updates in which "
            "every step counts, and the steps of a dead agent do not; choose another, such as "
            "positive_value_loss"
        )


def trained_with(env: Environment, agent: AgentPop, settings: RolloutSettings) -> Runner:
    """The runner of a method's settings. ValueError if they do not suit the length of episodes."""
    curriculum = settings.build(env, agent, settings.levels_per_batch)  # type: ignore[attr-defined]
    schedule = schedule_of(env, agent, curriculum.plan, settings)
    rewards = RewardNormalization() if settings.normalize_rewards else None
    return runner_of(env, agent, curriculum, settings.n_steps, schedule, rewards)


def schedule_of(env: Environment, agent: AgentPop, plan: Plan, s: RolloutSettings) -> Schedule:
    """The schedule that a curriculum with this plan needs; ValueError where the settings ask for another one."""
    check_in_turn(env, plan, s)
    if isinstance(plan.restart, QueuedLevels):
        check_queued(s)
        return Flowing()
    # With opponents, all games of a batch begin together, on fresh levels too: each is against one opponent.
    if isinstance(plan.restart, FreshLevels) and not plan.n_opponents:
        return schedule_of_fresh(env, s)
    if s.continue_episodes:
        raise ValueError(
            "runner.continue_episodes is True: it must be False, since this curriculum restarts its episodes in every "
            "batch (runner.rollouts_per_batch says for how many rollouts it keeps them)"
        )
    n_rollouts = s.n_rollouts(env.max_steps, scored=bool(plan.scores))
    if s.n_steps * n_rollouts == 1 < env.max_steps:
        raise ValueError(
            f"runner.n_steps is 1 with runner.rollouts_per_batch=1: no episode of {env.max_steps} steps would ever end"
        )
    n_updates = agent.n_total_updates
    if n_updates and n_updates % n_rollouts:
        nearest = n_rollouts * max(1, round(n_updates / n_rollouts))
        raise ValueError(
            f"n_updates is {n_updates}: it must be a multiple of {n_rollouts}, the rollouts of a batch, each of which "
            f"is followed by an update (try {nearest})"
        )
    return Restarted(n_rollouts, s.levels_per_row, s.n_evals)


def schedule_of_fresh(env: Environment, s: RolloutSettings) -> Schedule:
    """The schedule where levels are always fresh; ValueError likewise."""
    if (s.rollouts_per_batch or 1) > 1:
        raise ValueError(
            f"runner.rollouts_per_batch is {s.rollouts_per_batch}: it must be 1, since levels are always fresh "
            "here (runner.continue_episodes lets episodes go on in the next rollout)"
        )
    continues = env.max_steps > s.n_steps if s.continue_episodes is None else s.continue_episodes
    if continues and s.n_evals > 1:
        raise ValueError(
            f"runner.n_evals is {s.n_evals} with runner.continue_episodes: it must be 1, since rows that go on get "
            "their own levels, and none is played twice"
        )
    return Flowing() if continues else Restarted(n_evals=s.n_evals)


def check_queued(s: RolloutSettings) -> None:
    """ValueError for settings that do not suit episodes with a task each, which go on in the next rollout."""
    asked = (("rollouts_per_batch", s.rollouts_per_batch or 1, 1), ("n_evals", s.n_evals, 1))
    for name, value, wanted in (*asked, ("continue_episodes", s.continue_episodes is not False, True)):
        if value != wanted:
            raise ValueError(
                f"runner.{name} is {value}: it must be {wanted}, since each episode has its own task here and "
                "goes on in the next rollout"
            )


def DRRunner(env: Environment, agent: AgentPop, n_parallel: int, n_steps: int) -> Runner:
    """Trains on fresh random levels only."""
    return trained_with(env, agent, DR(n_parallel=n_parallel, n_steps=n_steps))


def PLRRunner(env: Environment, agent: AgentPop, settings: PLR) -> Runner:
    """Trains on replayed levels: PLR, robust PLR, parallel PLR or REPAIRED."""
    return trained_with(env, agent, settings)


def ACCELRunner(env: Environment, agent: AgentPop, settings: ACCEL) -> Runner:
    """Trains on replayed levels and adds their mutations to the buffer: ACCEL or parallel ACCEL."""
    return trained_with(env, agent, settings)


def PAIREDRunner(env: Environment, agent: AgentPop, settings: PAIRED) -> Runner:
    """Trains students on levels that a teacher designs, and the teacher on the students' results."""
    return trained_with(env, agent, settings)


def make_agent(config: Any) -> AgentPop:
    """The students of a configuration."""
    model = config.model.build(config.env.observation_space, config.env.action_space)
    check_network(model, config.model)
    return AgentPop(PPOAgent(model, config.ppo, config.n_updates), config.runner.n_students)


def make_runner(config: Any) -> Runner:
    """The runner of a configuration, for one device.

    ValueError if its settings do not fit together: they are all checked here, before anything is compiled. Its students
    begin with random parameters, so `init_from` must be empty.
    """
    if not hasattr(config, "n_row_devices"):
        raise ValueError(f"config is {shown(config)}: it must be a Config, such as Config(runner='plr')")
    if config.init_from:
        raise ValueError(
            f"init_from is {shown(config.init_from)}, and make_runner reads no files: leave it out "
            "(ExperimentRunner(config) and minimax_lib.store.initial.begun_with begin with such parameters)"
        )
    return runner_for(config)


def runner_for(config: Any) -> Runner:
    """The same, without a look at `init_from`: for those who read it themselves, or whose run has begun long ago."""
    n = config.n_row_devices
    settings: RolloutSettings = config.runner
    if n == 1:
        return trained_with(config.env, make_agent(config), settings)
    # Not inside the `try`: these messages already name the setting and the number of devices.
    part = settings.per_device(n)
    try:
        return trained_with(config.env, make_agent(config), part)
    except ValueError as error:
        raise ValueError(f"on each of {n} devices, {error}") from error


def with_runner(config: Any) -> tuple[Any, Runner]:
    """(`config` with a number of devices in place of auto, its runner for one device). ValueError as `make_runner`.

    The number is the largest that there are and that can have equal parts. On a CPU, `hosts.make_devices_of_cores`
    makes devices of the cores, before anything is computed.
    """
    if config.n_devices == "auto":
        for n in range(jax.device_count(), 1, -1):
            # ValueError: some setting cannot be divided by this number.
            with contextlib.suppress(ValueError):
                several = dataclasses.replace(config, n_devices=n)
                return several, runner_for(several)
        config = dataclasses.replace(config, n_devices=1)
    return config, runner_for(config)


def with_devices(config: Any) -> Any:
    """The configuration of `with_runner`."""
    return with_runner(config)[0] if config.n_devices == "auto" else config


def mesh_of(config: Any) -> DeviceMesh:
    """The devices of a configuration."""
    return DeviceMesh(config.n_seed_devices, config.n_row_devices)


def make_program(config: Any) -> Program:
    """The training of a configuration, on all of its seeds and devices. ValueError if there are too few devices."""
    # Checked here and not in `mesh_of`: `evaluate` describes the mesh of a run that was trained on another machine.
    mesh_of(config).check_devices()
    return program_of(config, runner_for(config))


def program_of(config: Any, runner: Runner) -> Program:
    """`runner`, that of the configuration for one device, on all seeds and devices."""
    mesh = mesh_of(config)
    return SeedRunner(runner, config.n_seeds) if mesh.n_devices == 1 else DeviceRunner(runner, config.n_seeds, mesh)
