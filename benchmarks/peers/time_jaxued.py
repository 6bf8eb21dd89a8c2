"""Times JaxUED (github.com/DramaCow/jaxued), run from its own clone: see peers.md.

A program is `train_step` of one of its examples/maze_*.py, which the patch in peers.md makes `main` hand over, jitted;
the flags are those of the published 60-block mazes. Its ACCEL replays in one step and scores the children in the next:
both together are timed, as an update. The environments are its Maze in its own wrappers.
"""

import argparse
import os
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import turns

os.environ["WANDB_MODE"] = "disabled"  # before wandb is imported

N_ACTIONS = 32  # different actions of each environment, over and over
EXAMPLES = {"dr": "maze_dr.py", "plr": "maze_plr.py", "accel": "maze_plr.py", "paired": "maze_paired.py"}


def flags(name: str, args: argparse.Namespace) -> list[str]:
    """60 walls; its editor places goal, direction and agent before them."""
    found = [f"--num_train_envs={args.rows}", "--checkpoint_save_interval=0"]
    if name == "paired":
        return [*found, f"--student_num_steps={args.steps}", "--adv_num_steps=63", "--adv_random_z_dimension=50"]
    found += [f"--num_steps={args.steps}", f"--n_walls={0 if name == 'accel' else 60}"]
    if name == "plr":
        found += ["--replay_prob=0.5"]
    if name == "accel":
        found += ["--use_accel", "--num_edits=20", "--staleness_coeff=0.5"]
    if name in ("plr", "accel"):
        found += [f"--level_buffer_capacity={args.capacity}", "--lr=3e-4", "--gamma=0.999", "--entropy_coeff=0"]
    return found


class Training:
    """One of its training programs."""

    def __init__(self, name: str, args: argparse.Namespace):
        path = Path(args.repo) / "examples" / EXAMPLES[name]
        sys.argv = [str(path), *flags(name, args)]
        self.name = name
        self.program, self.state = runpy.run_path(str(path), run_name="__main__")["PROGRAM"]
        self.n_replays = 0

    def _step(self) -> bool:
        """Whether the student has learnt."""
        self.state, metrics = jax.block_until_ready(self.program(self.state))
        losses = [np.asarray(x) for key in metrics if "losses" in key for x in jax.tree.leaves(metrics[key])]
        assert losses, metrics
        assert np.isfinite(losses).all(), metrics
        if self.name in ("dr", "paired"):
            return True
        before, self.n_replays = self.n_replays, int(self.state[1].num_replay_updates)
        return self.n_replays > before

    def __call__(self) -> str:
        learnt = self._step()
        if learnt and self.name == "accel":
            assert not self._step(), "the children of a replayed batch come next"
        return "update" if learnt else "score"


class Environments:
    """A random policy in its mazes: one scan of steps, every observation in a checksum."""

    def __init__(self, restart: str, args: argparse.Namespace):
        from jaxued.environments import Maze
        from jaxued.environments.maze import make_level_generator
        from jaxued.wrappers import AutoReplayWrapper, AutoResetWrapper

        maze, self.sample = Maze(max_height=13, max_width=13, agent_view_size=5), make_level_generator(13, 13, 60)
        wrapped = {"same_level": AutoReplayWrapper(maze), "fresh_level": AutoResetWrapper(maze, self.sample)}
        self.env = wrapped.get(restart, maze)
        self.actions = jnp.asarray(np.random.default_rng(0).integers(0, 7, (N_ACTIONS, args.n_envs)), jnp.int32)
        self.run = jax.jit(partial(self._run, args.env_steps))

    def _run(self, n_steps: int, key: jax.Array) -> tuple[Any, jax.Array]:
        n_envs, params = self.actions.shape[1], self.env.default_params
        k_levels, k_reset, k_steps = jax.random.split(key, 3)
        levels = jax.vmap(self.sample)(jax.random.split(k_levels, n_envs))
        obs, state = jax.vmap(self.env.reset_to_level, (0, 0, None))(jax.random.split(k_reset, n_envs), levels, params)

        def step(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, t, checksum = loop
            keys, actions = jax.random.split(key, n_envs), self.actions[t % N_ACTIONS]
            obs, state, _, done, _ = jax.vmap(self.env.step, (0, 0, 0, None))(keys, state, actions, params)
            return (state, t + 1, jax.tree.map(jnp.bitwise_xor, checksum, obs)), done.sum()

        loop = (state, jnp.zeros((), jnp.int32), obs)
        (_, _, checksum), ended = jax.lax.scan(step, loop, jax.random.split(k_steps, n_steps))
        return checksum, ended.sum()

    def __call__(self) -> str:
        _, ended = jax.block_until_ready(self.run(jax.random.PRNGKey(0)))
        assert int(ended) > 0, "no episode ended: this measures nothing"
        return "run"


if __name__ == "__main__":
    makers: dict[str, turns.Maker] = {name: partial(Training, name) for name in EXAMPLES}
    makers |= {name: partial(Environments, name) for name in ("same_level", "fresh_level", "no_restart")}
    turns.main(makers, __doc__)
