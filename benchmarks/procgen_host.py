"""One game of Procgen on 200 levels, under uniform sampling and under PLR, with a `Host` that chooses the levels.

    python benchmarks/procgen_host.py --core plr                        # small: one game, an hour on one core
    python benchmarks/procgen_host.py --core plr --game bigfish --published   # 25M steps; needs an accelerator
    python benchmarks/procgen_host.py --core uniform --steps 2000       # a look whether it runs

A task is one of the 200 training levels, in easy mode. A row takes up a level by way of `set_state`, with the state
that the game has at the level's start: the release of Procgen on PyPI has no call for that. The student is the ResNet
of IMPALA, with PPO and the settings of Procgen's paper. PLR ranks by the mean absolute value loss, with temperature .1
and staleness .1 (Jiang et al. 2021a).

Evaluations play episodes on the training levels and on all levels. Returns are normalised with the table of Procgen's
paper for easy mode (`RANGES`); the generalisation gap is the difference of the two. Everything is kept in a folder
under runs/, and the same command goes on where it stopped.

docs/portable.md says how Procgen is installed.
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
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from hosted_ppo import Act, Agent, Run, Scale, Settings, train

from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Scaled
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_vector import TaskResets
from minimax_lib.tasks import ListedPLR, Preference, Uniform
from minimax_lib.tasks.spaces import Discrete

N_LEVELS = 200
# The lowest and highest return of each game in easy mode (Cobbe et al. 2020, appendix C).
RANGES = {
    "bigfish": (1, 40),
    "bossfight": (0.5, 13),
    "caveflyer": (3.5, 12),
    "chaser": (0.5, 13),
    "climber": (2, 12.6),
    "coinrun": (5, 10),
    "dodgeball": (1.5, 19),
    "fruitbot": (-1.5, 32.4),
    "heist": (3.5, 10),
    "jumper": (3, 10),
    "leaper": (3, 10),
    "maze": (5, 10),
    "miner": (1.5, 13),
    "ninja": (3.5, 10),
    "plunder": (4.5, 30),
    "starpilot": (2.5, 64),
}
CORES = {
    "uniform": Uniform(N_LEVELS),
    "plr": ListedPLR(N_LEVELS, Preference(transform="rank", temperature=0.1, staleness=0.1)),
}
SMALL = Settings()
PUBLISHED = Settings(n_envs=64, n_steps=256, total_steps=25_000_000, eval_every=50)


def game(name: str, n: int, n_levels: int, seed: int = 0) -> Any:
    """`n` rows of Procgen's own environment."""
    from procgen import ProcgenGym3Env

    options = {"distribution_mode": "easy", "rand_seed": seed, "num_threads": 0}
    return ProcgenGym3Env(n, name, num_levels=n_levels, start_level=0, **options)


@functools.cache
def start_of(name: str, level: int) -> bytes:
    """The state of the game at the start of a level."""
    from procgen import ProcgenGym3Env

    options = {"distribution_mode": "easy", "num_threads": 0}
    env = ProcgenGym3Env(1, name, num_levels=1, start_level=level, **options)
    state = env.get_state()[0]
    env.close()
    return state


class Levels(VectorEnv):
    """Rows of a game that are reset to the levels in `options["levels"]`."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012, Gymnasium's own form

    def __init__(self, name: str, n: int):
        self.name, self.num_envs, self._game = name, n, game(name, n, N_LEVELS)
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(15)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins the levels, on all rows or on those of the mask."""
        options = options or {}
        for i in np.flatnonzero(options.get("reset_mask", np.ones(self.num_envs, bool))):
            state = start_of(self.name, int(options["levels"][i]))
            self._game.call_c_func("set_state", int(i), state, len(state))
        return self._game.observe()[1]["rgb"], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Procgen's own time limit counts as an end: it does not say which of the two it was."""
        self._game.act(np.asarray(actions))
        reward, obs, first = self._game.observe()
        return obs["rgb"], reward, np.array(first, bool), np.zeros(self.num_envs, bool), {}

    def close_extras(self, **kwargs: Any) -> None:
        self._game.close()


class Residual(nn.Module):
    """Two convolutions, beside which the input goes on."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for _ in range(2):
            y = nn.Conv(x.shape[-1], (3, 3))(nn.relu(y))
        return x + y


class ResNet(nn.Module):
    """(logits, value) of images u8[B, 64, 64, 3]: the larger network of IMPALA, without its memory."""

    n_actions: int = 15
    channels: tuple[int, ...] = (16, 32, 32)

    @nn.compact
    def __call__(self, image: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = image.astype(jnp.float32) / 255.0
        for n in self.channels:
            x = nn.max_pool(nn.Conv(n, (3, 3))(x), (3, 3), (2, 2), "SAME")
            x = Residual()(Residual()(x))
        x = nn.relu(x).reshape(len(x), -1)
        x = nn.relu(nn.Dense(256, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        logits = nn.Dense(self.n_actions, kernel_init=nn.initializers.orthogonal(0.01))(x)
        return logits, nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(x)[..., 0]


def normalised(name: str, returns: np.ndarray) -> float:
    """The mean return on the scale of Procgen's paper."""
    low, high = RANGES[name]
    return float((returns.mean() - low) / (high - low))


def returns_of(name: str, act: Act, n_levels: int, n_rows: int, n_episodes: int) -> np.ndarray:
    """f32[n_rows x n_episodes]: each row plays as many episodes, so that short ones do not count more."""
    env = game(name, n_rows, n_levels, seed=1)
    running, found = np.zeros(n_rows), [[] for _ in range(n_rows)]
    while min(map(len, found)) < n_episodes:
        env.act(act(env.observe()[1]["rgb"]))
        reward, _, first = env.observe()
        running += reward
        for i in np.flatnonzero(first):
            found[i].append(running[i])
            running[i] = 0
    env.close()
    return np.array([row[:n_episodes] for row in found], np.float32).reshape(-1)


def evaluation(name: str, n_rows: int, n_episodes: int, act: Act) -> dict[str, float]:
    """Normalised returns on the training levels and on all, and the gap between them."""
    kinds = {"train": N_LEVELS, "all": 0}
    found = {k: returns_of(name, act, n, n_rows, n_episodes) for k, n in kinds.items()}
    scores = {f"normalised/{k}": normalised(name, x) for k, x in found.items()}
    gap = scores["normalised/train"] - scores["normalised/all"]
    return {f"return/{k}": float(x.mean()) for k, x in found.items()} | scores | {"gap": gap}


def main(
    name: str, core: str, settings: Settings, seed: int, folder: Path, eval_rows: int = 20, eval_episodes: int = 1
) -> list[dict[str, float]]:
    """The curves of one run."""
    low, high = RANGES[name]
    scoring = Scoring(gamma=settings.gamma, gae_lambda=settings.gae_lambda)
    host = Host(CORES[core], Discrete(N_LEVELS), seed, scoring)
    progress = Scaled(1 / (high - low), -low / (high - low))
    envs = TaskResets(Levels(name, settings.n_envs), host, lambda tasks: {"levels": tasks}, progress)
    agent = Agent(ResNet(), settings, seed, jnp.zeros((1, 64, 64, 3), jnp.uint8))
    run = Run(folder, agent, host, Scale(settings.gamma, np.zeros(settings.n_envs)))
    history = train(run, envs, functools.partial(evaluation, name, eval_rows, eval_episodes))
    envs.close()
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=RANGES, default="bigfish")
    parser.add_argument("--core", choices=CORES, default="plr")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--published", action="store_true", help="25M steps with 64 rows of 256, as published")
    parser.add_argument("--steps", type=int, help="environment steps, instead of those of the protocol")
    parser.add_argument("--eval-episodes", type=int, default=1, help="of each of 20 rows, on either kind of levels")
    given = parser.parse_args()
    protocol = PUBLISHED if given.published else SMALL
    if given.steps:
        protocol = dataclasses.replace(protocol, total_steps=given.steps)
    size = "published" if given.published else "small"
    folder = Path("runs") / "procgen" / f"{given.game}-{given.core}-{size}-{protocol.total_steps}-s{given.seed}"
    main(given.game, given.core, protocol, given.seed, folder, eval_episodes=given.eval_episodes)
