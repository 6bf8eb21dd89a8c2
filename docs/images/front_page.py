"""Draws the two moving pictures of the README from a finished run of ACCEL in mazes that kept its checkpoints.

    python docs/images/front_page.py RUN

The run of the pictures: the command in benchmarks/results/long_runs_cpu.md, with --checkpoint-every 500
--keep-checkpoints 20.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from minimax_lib.envs.drawing import titled
from minimax_lib.envs.maze import render
from minimax_lib.pictures.films import film, save_film
from minimax_lib.store.loaded import LoadedRun, load_run

HERE = Path(__file__).parent
TASKS = ("SixteenRooms", "Labyrinth", "StandardMaze", "StandardMaze3")
KEY = 7  # of the first dozen, the one whose episodes are short: the file stays small
N_SHOWN = 9  # levels of a checkpoint


def agent_frames(run: LoadedRun) -> list[np.ndarray]:
    """The agent in the mazes of TASKS, side by side, with what it sees; a frame a step."""
    episodes = run.play_tasks(TASKS, jax.random.key(KEY))
    print(episodes)
    return film(list(episodes.values()), list(episodes), scale=0.5)


def level_frames(run: LoadedRun) -> list[np.ndarray]:
    """Levels drawn at random from the level buffer, at each checkpoint; a frame a checkpoint."""
    frames, random = [], np.random.default_rng(0)
    for update in run.checkpoints:
        kept = load_run(run.path, checkpoint=update).level_buffer
        n_walls = kept.levels.wall_map[kept.filled].sum(axis=(1, 2)).mean()
        slots = random.choice(np.flatnonzero(kept.filled), N_SHOWN, replace=False)
        chosen = jax.tree.map(lambda x: x[slots], kept.levels)  # noqa: B023
        picture = render.draw_levels(chosen, columns=3, cell=8)
        frames.append(titled(picture, f"update {update:,}: {n_walls:.0f} walls on average"))
    return frames


def save(frames: Sequence[np.ndarray], name: str, fps: float) -> None:
    """Writes a moving picture beside this file, and says how large it is."""
    file = save_film(frames, HERE / name, fps)
    print(f"written: {file}, {file.stat().st_size / 1e3:.0f} kB, {len(frames)} frames of {frames[0].shape[:2]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    run = load_run(parser.parse_args().run)
    save(agent_frames(run), "agent.gif", fps=10)
    save(level_frames(run), "levels.gif", fps=1)
