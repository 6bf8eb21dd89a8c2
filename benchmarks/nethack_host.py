"""NetHack on 200 seeds, under uniform sampling, PLR, learning progress and SFL, with a `Host` that chooses the seeds.

    python benchmarks/nethack_host.py --core sfl
    python benchmarks/nethack_host.py --core plr --steps 4000 --max-steps 100 --eval-episodes 1  # a look

A task is a seed of `NetHackScore-v0`. The progress of an episode is its return / 1000, from 0 to 1. Learning progress
(alpha .1, theta .1) and SFL (top 10, q 1) read the mean progress of each seed in an evaluation of all 200, which is
far the most of what they cost: the curves have its steps. PLR ranks with temperature .5 and staleness .1. These are the
settings that Syllabus publishes for Crafter; those of its runs on NetHack were not found.

The student is small: it sees the 9 x 9 glyphs around itself, and the numbers below the map. `pip install
"minimax-ued[nle]"` brings the game. Everything is kept in a folder under runs/, and the same command goes on where it
stopped.
"""

import argparse
import dataclasses
import functools
from pathlib import Path
from typing import Any

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hosted_ppo import Act, Agent, Run, Scale, Settings, train

from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Scaled
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_receiver import TaskReceiver, as_seed
from minimax_lib.portable.task_vector import TaskVectorEnv
from minimax_lib.tasks import SFL, LearningProgress, ListedPLR, Preference, Uniform, episodes_needed
from minimax_lib.tasks.spaces import Discrete

N_SEEDS = 200
N_GLYPHS = 5976
PROGRESS = Scaled(1 / 1000)
CORES = {
    "uniform": Uniform(N_SEEDS),
    "plr": ListedPLR(N_SEEDS, Preference(transform="rank", temperature=0.5, staleness=0.1)),
    "learning_progress": LearningProgress(N_SEEDS, alpha=0.1, theta=0.1),
    "sfl": SFL(N_SEEDS, "topk", k=10, q=1.0),
}
SMALL = Settings(n_envs=32, n_steps=128, total_steps=1_000_000, lr=2e-4, gamma=0.99, eval_every=25)


class Seen(gymnasium.Wrapper):
    """NetHack whose `reset` takes its seed, and of which the student sees the surroundings and the numbers."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        glyphs = gymnasium.spaces.Box(0, N_GLYPHS, (9, 9), np.int32)
        numbers = gymnasium.spaces.Box(-np.inf, np.inf, (27,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"glyphs": glyphs, "numbers": numbers})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.unwrapped.seed(seed, seed)
        obs, info = self.env.reset()
        return seen(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return seen(obs), reward, terminated, truncated, {}


def seen(obs: Any) -> dict[str, np.ndarray]:
    """What the student sees of NetHack's observation."""
    numbers = obs["blstats"].astype(np.float32)
    column, row = obs["blstats"][:2]
    around = np.pad(obs["glyphs"], 4, constant_values=N_GLYPHS)[row : row + 9, column : column + 9]
    return {"glyphs": around.astype(np.int32), "numbers": np.sign(numbers) * np.log1p(np.abs(numbers))}


def make_env(max_steps: int) -> gymnasium.Env:
    import nle  # noqa: F401, it registers its environments

    return Seen(gymnasium.make("NetHackScore-v0", observation_keys=("glyphs", "blstats"), max_episode_steps=max_steps))


class Network(nn.Module):
    """(logits, value)."""

    n_actions: int

    @nn.compact
    def __call__(self, obs: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        glyphs = nn.Embed(N_GLYPHS + 1, 16)(obs["glyphs"])
        x = nn.relu(nn.Dense(256)(glyphs.reshape(len(glyphs), -1)))
        x = nn.relu(nn.Dense(256)(jnp.concatenate([x, nn.Dense(64)(obs["numbers"])], axis=-1)))
        logits = nn.Dense(self.n_actions, kernel_init=nn.initializers.orthogonal(0.01))(x)
        return logits, nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(x)[..., 0]


def played(envs: SyncVectorEnv, act: Act, seeds: np.ndarray) -> tuple[np.ndarray, int]:
    """(f32[B] the returns of one episode of each row on its seed, steps)."""
    obs, _ = envs.reset(seed=[int(seed) for seed in seeds])
    returns, over, n_steps = np.zeros(len(seeds), np.float32), np.zeros(len(seeds), bool), 0
    while not over.all():
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        returns += np.where(over, 0, reward)
        n_steps += int((~over).sum())
        over |= terminated | truncated
    return returns, n_steps


def evaluation(host: Host, envs: SyncVectorEnv, n_episodes: int, act: Act) -> dict[str, float]:
    """Returns on the training seeds and on as many others. Curricula that read rates are told those of the former."""
    rows = envs.num_envs
    order = np.resize(np.arange(N_SEEDS), -(-N_SEEDS // rows) * rows).reshape(-1, rows)
    n_steps, rates, found = 0, np.zeros((n_episodes, N_SEEDS), np.float32), {}
    for k, first in (("train", 0), ("held_out", N_SEEDS)):
        returns = np.zeros((n_episodes, N_SEEDS), np.float32)
        for episode in range(n_episodes):
            for seeds in order:
                returns[episode, seeds], n = played(envs, act, seeds + first)
                n_steps += n
        found[f"return/{k}"] = float(returns.mean())
        rates = PROGRESS(returns, np.zeros(1)) if first == 0 else rates
    if episodes_needed(host.core):
        host.evaluated(rates.mean(0))
    return found | {"progress/train": float(rates.mean()), "evaluation/steps": float(n_steps)}


def main(
    core: str, settings: Settings, seed: int, folder: Path, max_steps: int = 1000, eval_episodes: int = 2
) -> list[dict[str, float]]:
    """The curves of one run."""
    if eval_episodes < episodes_needed(CORES[core]):
        raise SystemExit(f"--eval-episodes is {eval_episodes}: {core} needs {episodes_needed(CORES[core])} or more")
    space = Discrete(N_SEEDS)
    makers = [functools.partial(receiver, index, space, max_steps) for index in range(settings.n_envs)]
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    fixed = SyncVectorEnv([lambda: make_env(max_steps)] * settings.n_envs)
    host = Host(CORES[core], space, seed, Scoring(gamma=settings.gamma, gae_lambda=settings.gae_lambda))
    hosted = TaskVectorEnv(envs, host, PROGRESS)
    obs = jax.tree.map(lambda x: x[None], hosted.single_observation_space.sample())
    agent = Agent(Network(int(hosted.single_action_space.n)), settings, seed, obs)
    run = Run(folder, agent, host, Scale(settings.gamma, np.zeros(settings.n_envs)))
    history = train(run, hosted, functools.partial(evaluation, host, fixed, eval_episodes))
    hosted.close()
    fixed.close()
    return history


def receiver(index: int, space: Discrete, max_steps: int) -> gymnasium.Env:
    return TaskReceiver(make_env(max_steps), index, space, as_seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=CORES, default="plr")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=SMALL.total_steps, help="environment steps of the training")
    parser.add_argument("--max-steps", type=int, default=1000, help="of an episode")
    parser.add_argument("--eval-episodes", type=int, default=2, help="on each seed")
    given = parser.parse_args()
    settings = dataclasses.replace(SMALL, total_steps=given.steps)
    folder = Path("runs") / "nethack" / f"{given.core}-{given.steps}-{given.max_steps}-s{given.seed}"
    main(given.core, settings, given.seed, folder, given.max_steps, given.eval_episodes)
