"""A run whose training is a few lines, so that what the host does around it can be tested in milliseconds."""

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.agents.base import TrainState
from minimax_lib.config import Config
from minimax_lib.counts import Count
from minimax_lib.evaluation.held_out import EvalResult, Evaluation
from minimax_lib.experiment.loop import HeldOutEvaluation
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.runners.devices import DeviceMesh
from minimax_lib.runners.seeds import MAX_STEPS, Report, SeedRunner
from minimax_lib.runners.training import RunnerState

N_TASKS, N_EPISODES = 2, 3


@dataclasses.dataclass(frozen=True)
class ToyRunner:
    """A random walk of the parameters. A coin that all seeds share decides whether a step is an update."""

    not_finite_at: int = -1  # update at which the loss becomes NaN
    overflows_at: int = -1  # update that leaves the parameters infinite with a finite loss
    averages: bool = False  # keeps an average of the parameters, as PPO with `ema_decay`

    env_steps_per_step = 5
    continues = False

    def extra_env_steps(self, state: RunnerState) -> Count:
        return Count.zero()

    def init(self, key: jax.Array) -> RunnerState:
        k_init, k_run = jax.random.split(key)
        params = {"w": jax.random.normal(k_init, (1, 4))}
        average = jax.tree.map(jnp.copy, params) if self.averages else ()
        students = TrainState(params=params, opt_state=(), n_updates=jnp.zeros(1, jnp.int32), average=average)
        return RunnerState(
            clock=jnp.zeros((), jnp.int32), seed=k_run, students=students, curriculum={"scores": jnp.full(3, -jnp.inf)}
        )

    def step(self, state: RunnerState) -> tuple[RunnerState, dict[str, jax.Array]]:
        learn = jax.random.bernoulli(jax.random.fold_in(jax.random.key(7), state.clock), 0.7)
        noise = jax.random.normal(jax.random.fold_in(state.seed, state.clock), (1, 4))
        n_updates = state.students.n_updates + learn
        w = 0.9 * state.students.params["w"] + noise * learn
        w = jnp.where(n_updates[0] == self.overflows_at, jnp.inf, w)
        loss = jnp.where(n_updates[0] == self.not_finite_at, jnp.nan, noise.sum())
        average = jax.tree.map(lambda old: jnp.where(learn, (old + w) / 2, old), state.students.average)
        state = state.replace(
            clock=state.clock + 1,
            students=state.students.replace(params={"w": w}, n_updates=n_updates, average=average),
            curriculum={"scores": state.curriculum["scores"].at[state.clock % 3].set(noise.max())},
        )
        measured = {"loss": loss, "grad_norm": jnp.abs(noise).sum(), "return": w.mean(), "solved_rate": w.max()}
        return state, measured | {"level/n_walls": jnp.float32(3)}


class ToyEvaluation:
    """Returns that depend on the key and on the parameters."""

    names = ("Up", "Down")
    draw = staticmethod(jax.jit(lambda keys: ()))  # its tasks have no levels

    def play(self, key: jax.Array, params: Any, levels: tuple[()]) -> EvalResult:
        returns = params["w"].sum() + jax.random.normal(key, (N_TASKS, N_EPISODES))
        return EvalResult(returns=returns, solved=returns > 0, lengths=jnp.ones(returns.shape, jnp.int32))


class SlowProgram:
    """A SeedRunner whose dispatches take `seconds` longer."""

    def __init__(self, program: SeedRunner, seconds: float):
        self.runner = program.runner
        self.shape = program.shape
        self.init = program.init
        self.lower = program.lower
        self.env_steps = program.env_steps
        self._program = program
        self._seconds = seconds

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        time.sleep(self._seconds)
        return self._program.run(state, target_updates, max_steps)


def toy_config(log_dir: Path | str, **settings: Any) -> Config:
    """24 updates of two seeds: twelve intervals, six checkpoints, five evaluations."""
    small = {"n_updates": 24, "n_seeds": 2, "log_every": 2, "checkpoint_every": 4, "name": "run", "report": False}
    small["eval"] = Evaluation(every=6, tasks=("TrainingDistribution",))
    return Config(**(small | {"log_dir": str(log_dir)} | settings))


def toy_program(config: Config, seconds: float = 0.0, **faults: int) -> Any:
    """What trains `config`."""
    program = compiled_once(config.n_seeds, **faults)
    return SlowProgram(program, seconds) if seconds else program


@functools.cache
def compiled_once(n_seeds: int, **faults: int) -> SeedRunner:
    """The program of all runs in a process that have as many seeds and the same faults."""
    return SeedRunner(ToyRunner(**faults), n_seeds)  # type: ignore[arg-type]


EVALUATION: Any = ToyEvaluation()


def toy_experiment(config: Config, program: Any = None, **faults: int) -> ExperimentRunner:
    """A run on one device. Its evaluation too is compiled once for all runs with the same seeds."""
    runner = ExperimentRunner(config, program or toy_program(config, **faults), EVALUATION)
    if runner.held_out:
        runner.held_out = evaluated_once(config.seed, config.n_seeds)
    return runner


@functools.cache
def evaluated_once(seed: int, n_seeds: int) -> HeldOutEvaluation:
    return HeldOutEvaluation(EVALUATION, Config(seed=seed, n_seeds=n_seeds), DeviceMesh())
