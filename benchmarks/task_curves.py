"""What sequential, annealing and expanding-box curricula do: CartPole with a growing range of first states.

    python benchmarks/task_curves.py --out benchmarks/results/task_curves_cpu.json
    python benchmarks/plot.py benchmarks/results/task_curves_cpu.json

A task is a range [low, high] from which all four numbers of CartPole's first state are drawn. Each curriculum begins
with a small range. `fixed` has the whole range from the beginning. The environment is Gymnasium's, the curriculum is in
a `Host`, and the learner is this package's PPO with a small network. The return is measured on the whole range.
"""

import argparse
import functools
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts, keep
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.envs import spaces
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Scaled
from minimax_lib.portable.task_receiver import TaskReceiver
from minimax_lib.portable.task_vector import TaskVectorEnv
from minimax_lib.tasks import Constant, ExpandingBox, Sequential, SimulatedAnnealing
from minimax_lib.tasks.spaces import Box, Discrete

WIDEST, N_STEPS, N_ENVS, LIMIT = 0.2, 64, 16, 200
STAGES = Discrete.of([(-width, width) for width in (0.04, 0.12, WIDEST)])
RANGES = Box((-WIDEST, -WIDEST), (WIDEST, WIDEST))
CURRICULA = {
    "fixed": (Constant(1, 0), Discrete.of([(-WIDEST, WIDEST)])),
    "sequential": (Sequential(3, (0, 1, 2), ("episode_return > 100 & episodes >= 50",) * 2), STAGES),
    "annealing": (SimulatedAnnealing((-0.04, 0.04), (-WIDEST, WIDEST), 30_000), RANGES),
    "expanding box": (ExpandingBox(-WIDEST, WIDEST, steps=5, threshold=0.5, required=10), RANGES),
}
NETWORK = FeedForward(vector_width=64, dense_width=64, head_width=64)
AGENT = PPOAgent(
    NETWORK.build(spaces.Box(-np.inf, np.inf, (4,)), spaces.Discrete(2)),
    PPO(lr=1e-3, gamma=0.99, gae_lambda=0.95, n_epochs=4, n_minibatches=4, entropy_coef=0.01),
)
act = jax.jit(lambda key, params, obs: AGENT.act(key, params, obs, AGENT.init_carry((N_ENVS,)), jnp.ones(N_ENVS, bool)))
learn = jax.jit(AGENT.update)


def bounds(task: Any) -> dict[str, Any]:
    """CartPole takes the range of its first states as options of `reset`."""
    return {"options": {"low": float(task[0]), "high": float(task[1])}}


def make_env(space: Any, index: int) -> gymnasium.Env:
    return TaskReceiver(gymnasium.make("CartPole-v1", max_episode_steps=LIMIT), index, space, bounds)


def tasks_of(core: Any, space: Any, seed: int) -> TaskVectorEnv:
    """CartPole with tasks of a curriculum."""
    envs = SyncVectorEnv(
        [functools.partial(make_env, space, index) for index in range(N_ENVS)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    return TaskVectorEnv(envs, Host(core, space, seed), Scaled(1 / LIMIT))


def rollout(key: jax.Array, params: Any, envs: Any, obs: np.ndarray, first: np.ndarray) -> tuple[Rollout, Any, Any]:
    """(N_STEPS of all rows, the observation and the flags that follow)."""
    steps = []
    for k_act in jax.random.split(key, N_STEPS):
        action, log_prob, value, _ = jax.device_get(act(k_act, params, obs))
        after, reward, terminated, truncated, _ = envs.step(action)
        done = terminated | truncated
        steps.append(
            Transition(
                obs=obs,
                action=action,
                reward=reward.astype(np.float32),
                done=done,
                episode_return=np.zeros(N_ENVS, np.float32),
                discount=1 - done.astype(np.float32),
                first=first,
                log_prob=log_prob,
                value=value,
                truncation_value=None,
                progress=np.zeros(N_ENVS, np.float32),
                facts={},
            )
        )
        obs, first = after, done
    value = act(key, params, obs)[2]
    return Rollout(jax.tree.map(lambda *xs: np.stack(xs), *steps), AGENT.init_carry((N_ENVS,)), value, None), obs, first


def measured(key: jax.Array, params: Any, envs: SyncVectorEnv) -> float:
    """The mean return of one episode of each row of the whole range."""
    obs, _ = envs.reset(seed=0, options={"low": -WIDEST, "high": WIDEST})
    total, running = np.zeros(N_ENVS), np.ones(N_ENVS, bool)
    for t in range(LIMIT):
        action = np.asarray(act(jax.random.fold_in(key, t), params, obs)[0])
        obs, reward, terminated, truncated, _ = envs.step(action)
        total += reward * running
        running &= ~(terminated | truncated)
        if not running.any():
            break
    return float(total.mean())


def train(name: str, seed: int, n_updates: int, every: int) -> list[dict[str, float]]:
    """A row every few updates: steps so far, how wide the ranges are, and the return on the whole range."""
    envs = tasks_of(*CURRICULA[name], seed)
    tests = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)] * N_ENVS)
    k_init, k_run, k_test = jax.random.split(jax.random.key(seed), 3)
    obs, _ = envs.reset(seed=seed)
    state, first = jax.jit(AGENT.init)(k_init, obs[0]), np.ones(N_ENVS, bool)
    rows = []
    for update in range(n_updates + 1):
        if update % every == 0:
            width = float(np.mean([task[1] for task in envs.host.decode(envs.tasks)]))
            shown = measured(jax.random.fold_in(k_test, update), state.params, tests)
            rows.append({"steps": update * N_STEPS * N_ENVS, "width": round(width, 4), "return": round(shown, 2)})
        k_rollout, k_update = jax.random.split(jax.random.fold_in(k_run, update))
        runs, obs, first = rollout(k_rollout, state.params, envs, obs, first)
        state, _ = learn(k_update, state, runs)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-updates", type=int, default=80)
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=4, help="updates between two measurements")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "task_curves", **environment_facts(), "curves": {}}
    for name in CURRICULA:
        runs = {seed: train(name, seed, args.n_updates, args.every) for seed in range(args.n_seeds)}
        result["curves"][name] = runs
        for seed, rows in runs.items():
            print(name, seed, rows[0], rows[len(rows) // 2], rows[-1])
        keep(args.out, result)


if __name__ == "__main__":
    main()
