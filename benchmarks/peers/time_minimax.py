"""Times minimax (github.com/facebookresearch/minimax), run from its own clone: see peers.md.

Its configurations are its own files in config/configs/maze; a step is the jitted `ExperimentRunner.step` that its
training loop calls, without evaluation. The environments are stepped through its `BatchEnv`.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import turns

CONFIGS = {"dr": "dr", "s5_dr": "s5_dr", "plr": "plr", "parallel_plr": "pplr", "accel": "accel"}
CONFIGS |= {"parallel_accel": "paccel", "paired": "paired"}
N_ACTIONS = 32  # different actions of each environment, over and over


def flags(name: str, args: argparse.Namespace) -> list[str]:
    path = Path(args.repo) / "src" / "minimax" / "config" / "configs" / "maze" / f"{CONFIGS[name]}.json"
    values = {key: choices[0] for key, choices in json.loads(path.read_text())["args"].items()}
    values |= {"n_parallel": args.rows, "n_rollout_steps": args.steps}
    if "plr_buffer_size" in values:
        values["plr_buffer_size"] = args.capacity
    return [f"--{key}={value}" for key, value in values.items()]


def runner_of(name: str, args: argparse.Namespace) -> Any:
    """Its ExperimentRunner, made of the flags that its own command line is given."""
    from minimax.arguments import parser
    from minimax.runners import ExperimentRunner

    sys.argv = ["train", *flags(name, args)]
    parsed = parser.parse_args()
    given = {key: parsed.get(key) for key in ("train_runner", "env_name", "agent_rl_algo", "n_devices")}
    given |= {key: parsed.get(key) for key in ("student_model_name", "teacher_model_name")}
    parts = ("train_runner", "env", "ued_env", "student_rl", "teacher_rl", "student_model", "teacher_model")
    given |= {f"{part}_kwargs": parsed.get(f"{part}_args") or {} for part in (*parts, "eval", "eval_env")}
    return ExperimentRunner(**given)


class Training:
    """One of its training programs; a step is an update if its count of updates has risen."""

    def __init__(self, name: str, args: argparse.Namespace):
        self.runner = runner_of(name, args)
        self.state = self.runner.runner.reset(jax.random.PRNGKey(0))
        self.n_updates = 0

    def __call__(self) -> str:
        stats, _, *self.state = jax.block_until_ready(self.runner.step(self.state, False))
        before, self.n_updates = self.n_updates, int(stats["n_updates"])
        losses = [float(value) for key, value in stats.items() if "loss" in key]
        if self.n_updates == before:
            return "score"
        assert losses, stats
        assert np.isfinite(losses).all(), stats
        return "update"


class Environments:
    """A random policy in its mazes: one scan of steps, every observation in a checksum."""

    def __init__(self, restart: str, args: argparse.Namespace):
        from minimax.envs import BatchEnv

        settings = {"height": 13, "width": 13, "n_walls": 60, "replace_wall_pos": True}
        self.batch = BatchEnv("Maze", args.n_envs, 1, settings)
        self.actions = jnp.asarray(np.random.default_rng(0).integers(0, 7, (N_ACTIONS, 1, args.n_envs)), jnp.uint32)
        self.run = jax.jit(partial(self._run, restart, args.env_steps))

    def _run(self, restart: str, n_steps: int, key: jax.Array) -> tuple[Any, jax.Array]:
        obs, state, extra = self.batch.reset(key[None])
        again = state if restart == "same_level" else None

        def step(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, extra, t, checksum = loop
            obs, state, _, done, _, extra = self.batch.step(key[None], state, self.actions[t % N_ACTIONS], again, extra)
            return (state, extra, t + 1, jax.tree.map(jnp.bitwise_xor, checksum, obs)), done.sum()

        loop = (state, extra, jnp.zeros((), jnp.int32), obs)
        (_, _, _, checksum), ended = jax.lax.scan(step, loop, jax.random.split(key, n_steps))
        return checksum, ended.sum()

    def __call__(self) -> str:
        _, ended = jax.block_until_ready(self.run(jax.random.PRNGKey(0)))
        assert int(ended) > 0, "no episode ended: this measures nothing"
        return "run"


if __name__ == "__main__":
    makers: dict[str, turns.Maker] = {name: partial(Training, name) for name in CONFIGS}
    makers |= {name: partial(Environments, name) for name in ("same_level", "fresh_level")}
    turns.main(makers, __doc__)
