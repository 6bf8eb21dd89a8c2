"""Times this project's programs as the peers' are timed: see peers.md."""

import argparse
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import turns

sys.path.append(str(Path(__file__).parents[1]))  # the benchmarks of this project alone

import env_throughput
import train_throughput

from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze import AMaze
from minimax_lib.runners.hosts import make_devices_of_cores

TRAINING = {"dr": ("dr", "lstm"), "s5_dr": ("dr", "s5"), "plr": ("robust_plr", "lstm"), "accel": ("accel", "lstm")}
TRAINING |= {name: (name, "lstm") for name in ("parallel_plr", "parallel_accel", "paired")}
RESTARTS = {"same_level": "same level", "fresh_level": "fresh level", "no_restart": "none"}


class Training:
    """One of the programs that `train.py` runs; a replay of ACCEL is timed with the scoring of its children."""

    def __init__(self, name: str, args: argparse.Namespace):
        make_devices_of_cores(args.devices)
        method, model = TRAINING[name]
        sizes = argparse.Namespace(n_parallel=args.rows, n_steps=args.steps, capacity=args.capacity)
        config = train_throughput.config_of(method, model, sizes)
        assert config is not None
        self.program, self.name = train_throughput.Trained(method, model, 1, config, args.devices), name

    def _step(self) -> bool:
        n_updates = len(self.program.times["update"])
        self.program.measure(breakdown=False)
        return len(self.program.times["update"]) > n_updates

    def __call__(self) -> str:
        learnt = self._step()
        if learnt and self.name == "accel":
            assert not self._step(), "the children of a replayed batch come next"
        return "update" if learnt else "score"


class Environments:
    """A random policy in AMaze: `env_throughput.random_run`."""

    def __init__(self, restart: str, args: argparse.Namespace):
        make_devices_of_cores(args.devices)
        env = AMaze()
        batch = BatchEnv(env, restart=env_throughput.RESTARTS[RESTARTS[restart]](env))
        n_actions = env_throughput.N_ACTIONS
        actions = jnp.asarray(np.random.default_rng(0).integers(0, 7, (n_actions, 1, args.n_envs)), jnp.int32)
        levels = env_throughput.random_levels(env, args.n_envs)
        run = env_throughput.compiled_run(batch, args.env_steps, args.devices)
        self.run = partial(run, jax.random.key(0), levels, actions)

    def __call__(self) -> str:
        _, ended = jax.block_until_ready(self.run())
        assert int(ended) > 0, "no episode ended: this measures nothing"
        return "run"


if __name__ == "__main__":
    makers: dict[str, turns.Maker] = {name: partial(Training, name) for name in TRAINING}
    makers |= {name: partial(Environments, name) for name in RESTARTS}
    turns.main(makers, __doc__, repo=False)
