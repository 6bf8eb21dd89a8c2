"""The loop in which task curricula are timed: vector environments of Gymnasium that cost what NetHack costs.

Needs nothing but Gymnasium and NumPy, so that it runs in the environment of any project. A script hands `main` a
function for each program that it knows: it makes the environments, with a curriculum or without. A process runs one
program. It reads lines "warm NAME run" and "turn NAME run", takes that many steps, and answers with the seconds of
processor time that it and its children have used, in JSON.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from packages import versions

N_TASKS = 200
ROLLOUT = 128  # steps of all rows after which scores are told
MODULUS = (1 << 521) - 1
PACKAGES = ("gymnasium", "numpy", "nle", "jax", "torch", "syllabus-rl")


class Burning(gymnasium.Env):
    """Each step and each reset does the same work: `bits` multiplications of long numbers. Episodes last 150 to 249.

    It is work and not a wait for a clock, so that a busy machine slows it down as it slows down a curriculum.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (27,), np.float64)  # as NetHack's `blstats`
    action_space = gymnasium.spaces.Discrete(23)

    def __init__(self, bits: int):
        self._exponent = (1 << bits) - 1
        self._obs = np.zeros(27)
        self._lengths = np.random.default_rng()
        self._t = self._length = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._burn()
        self._t, self._length = 0, int(self._lengths.integers(150, 250))
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._burn()
        self._t += 1
        return self._obs, 0.0, self._t >= self._length, False, {}

    def _burn(self) -> None:
        pow(3, self._exponent, MODULUS)


class Statistics(gymnasium.ObservationWrapper):
    """NetHack that shows its `blstats` alone."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = env.observation_space["blstats"]

    def observation(self, obs: Any) -> Any:
        return obs["blstats"]


def make_env(args: argparse.Namespace) -> gymnasium.Env:
    """One environment without tasks."""
    if args.env == "burning":
        return Burning(args.bits)
    import nle  # noqa: F401, it registers its environments

    env = gymnasium.make("NetHackScore-v0", observation_keys=("blstats",), max_episode_steps=200)
    return Statistics(env)


def vectorised(args: argparse.Namespace, makers: list[Callable[[], gymnasium.Env]]) -> gymnasium.vector.VectorEnv:
    """All in this process, or one process each."""
    return AsyncVectorEnv(makers, context="fork") if args.processes else SyncVectorEnv(makers)


class Program(Protocol):
    """Environments, and what a trainer would tell a curriculum of their steps."""

    envs: Any

    def stepped(self, told: tuple[Any, ...]) -> None:
        """After each step, of (observations, rewards, terminated, truncated, infos)."""
        ...

    def rollout(self) -> None:
        """After each `ROLLOUT` steps."""
        ...

    def settled(self) -> bool:
        """Whether nothing waits any more for a thread or a process of the curriculum."""
        ...


class Plain:
    """Without a curriculum."""

    def __init__(self, args: argparse.Namespace):
        self.envs = vectorised(args, [lambda: make_env(args)] * args.n_envs)

    def stepped(self, told: tuple[Any, ...]) -> None:
        return

    def rollout(self) -> None:
        return

    def settled(self) -> bool:
        return True


def processor_seconds() -> float:
    """Of this process and of its children, all their threads, up to now."""
    children = [child.pid for child in multiprocessing.active_children() if child.pid]
    return time.process_time() + sum(time.clock_gettime(~pid << 3 | 2) for pid in children)


class Runner:
    """Takes steps on command."""

    def __init__(self, program: Program, n_envs: int, n_steps: int):
        self.program, self.n_steps, self.n_envs = program, n_steps, n_envs
        self._clock = 0
        self._actions = np.random.default_rng(0)
        program.envs.reset(seed=0)

    def turn(self) -> dict[str, float]:
        """Microseconds of the processor for a step of one environment, and seconds that have gone by."""
        program, n = self.program, int(self.program.envs.single_action_space.n)
        begun, wall = processor_seconds(), time.perf_counter()
        for _ in range(self.n_steps):
            program.stepped(program.envs.step(self._actions.integers(0, n, self.n_envs)))
            self._clock += 1
            if self._clock % ROLLOUT == 0:
                program.rollout()
        while not program.settled():  # what a curriculum has left for later belongs to this turn
            time.sleep(0.01)
        used = (processor_seconds() - begun) / self.n_steps / self.n_envs * 1e6
        return {"microseconds": used, "wall_seconds": time.perf_counter() - wall}


def main(makers: dict[str, Callable[[argparse.Namespace], Program]], description: str | None) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="take commands from standard input, as side_by_side.py")
    parser.add_argument("--env", choices=("burning", "nle"), default="burning")
    parser.add_argument("--bits", type=int, default=100, help="work in a step of `burning`: 100 is 75 microseconds")
    parser.add_argument("--n-envs", type=int, default=128)
    parser.add_argument("--steps", type=int, default=ROLLOUT, help="of all rows in a turn")
    parser.add_argument("--processes", action="store_true", help="a process for each environment")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not come between the answers
    print(json.dumps({"versions": versions(PACKAGES), "names": list(makers)}), file=out, flush=True)
    runner = None
    for line in sys.stdin:
        _, name, _ = line.split()
        if runner is None:
            runner = Runner(makers[name](args), args.n_envs, args.steps)
        print(json.dumps(runner.turn()), file=out, flush=True)
    if runner is not None:
        runner.program.envs.close()
    os._exit(0)  # a peer's threads may not end by themselves


if __name__ == "__main__":
    main({"plain": Plain}, __doc__)
