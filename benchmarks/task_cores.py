"""What a task curriculum costs in an update, where each of 128 agents in a world of Neural MMO has its own task.

    python benchmarks/task_cores.py [--task-set train] [--worlds 16] [--steps 32]

The curriculum is the real one: it draws the tasks of a rollout, cuts the attempts out of its steps, and tells its core.
The rollout is made up. Times are those of the processor: the median of `N_TIMES` calls, in milliseconds. Evaluations of
the tasks, which some cores need now and then, are not in it; `--runner.evaluate-every` says how many there are.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import common  # noqa: F401, it finds the package
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.scores import Score
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.nmmo import NMMO
from minimax_lib.experiment.hardware import processor
from minimax_lib.models.settings import FeedForward
from minimax_lib.tasks import Steps
from minimax_lib.tasks.registry import TASK_CURRICULA

N_TIMES = 20
CORES = ("uniform", "plr", "tscl", "learning_progress", "online_learning_progress", "sfl", "online_sfl", "omni")


@dataclasses.dataclass(frozen=True)
class MadeUp:
    """An outcome of steps that nobody has played."""

    told: Steps

    def steps(self, score: Score | None) -> Steps:
        return self.told


def made_up(rng: np.random.Generator, n_tasks: int, n_steps: int, n_worlds: int, n_agents: int) -> Steps:
    """Steps [T, N] in which a life ends in one of a hundred, and a world in one of two hundred."""
    shape = n_steps, n_worlds * n_agents
    over = np.repeat(rng.random((n_steps, n_worlds)) < 0.005, n_agents, axis=1)
    done = over | (rng.random(shape) < 0.01)
    return Steps(
        task=rng.integers(0, n_tasks, shape, np.int32),
        done=done,
        progress=rng.random(shape, np.float32).round(),
        episode=done,
        episode_return=rng.random(shape, np.float32),
        quantity=rng.random(shape, np.float32),
        valid=rng.random(shape) < 0.7,
        over=over,
    )


def median_ms(work: Callable[[], Any]) -> float:
    """Of the time of the processor of one call, after a first one that compiles."""
    times = []
    for _ in range(N_TIMES + 1):
        begin = time.process_time()
        jax.block_until_ready(work())
        times.append(time.process_time() - begin)
    return 1e3 * float(np.median(times[1:]))


def cost_of(name: str, env: NMMO, n_worlds: int, n_steps: int, n_levels: int) -> tuple[float, float]:
    """(milliseconds to draw the tasks of a rollout, to hear of it)."""
    network = FeedForward(dense_width=8, head_width=8).build(env.observation_space, env.action_space)
    settings = TasksMethod(core=TASK_CURRICULA[name](), n_parallel=n_worlds, n_steps=n_steps, n_levels=n_levels)
    curriculum: Any = settings.build(env, AgentPop(PPOAgent(network, PPO())), n_worlds)
    curriculum = dataclasses.replace(curriculum, evaluation=None)
    key, clock = jax.random.key(0), jnp.int32(1)
    state = jax.jit(curriculum.init)(key)
    if hasattr(curriculum.core, "evaluated"):  # it has learnt something about each task
        rates = jax.random.uniform(key, (env.n_tasks,))
        for share in (0.5, 1.0):
            core = curriculum.core.evaluated(state.core, share * rates, jnp.ones(env.n_tasks, bool))
            state = state.replace(core=core)
    propose = jax.jit(lambda key, state: curriculum.propose(key, key, clock, state, None)[1])
    observe = jax.jit(lambda state, batch, steps: curriculum.observe(key, clock, state, batch, MadeUp(steps)))
    batch = propose(key, state)
    steps = made_up(np.random.default_rng(0), env.n_tasks, n_steps, n_worlds, env.n_agents)
    return median_ms(lambda: propose(key, state)), median_ms(lambda: observe(state, batch, steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task-set", default="train")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--levels", type=int, default=16)
    parser.add_argument("--cores", nargs="+", default=CORES)
    args = parser.parse_args()
    env = NMMO(preset="medium", task_set=args.task_set)
    rows = args.worlds * env.n_agents
    title = f"{env.n_tasks:,} tasks, {rows:,} rows of {args.steps} steps; {processor()}"
    table = Table("core", "draws, ms", "hears, ms", "together", title=title)
    for name in args.cores:
        draws, hears = cost_of(name, env, args.worlds, args.steps, args.levels)
        table.add_row(name, f"{draws:.1f}", f"{hears:.1f}", f"{draws + hears:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
