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
from PIL import Image

from minimax_lib.envs.drawing import titled
from minimax_lib.envs.maze import render
from minimax_lib.experiment.loaded import LoadedRun, load_run

HERE = Path(__file__).parent
TASKS = ("SixteenRooms", "Labyrinth", "StandardMaze", "StandardMaze3")
N_SHOWN = 9  # levels of a checkpoint


def agent_frames(run: LoadedRun) -> list[np.ndarray]:
    """The agent's way through the mazes of TASKS, side by side, a frame a step."""
    episodes = [run.play(task) for task in TASKS]
    print(dict(zip(TASKS, episodes, strict=True)))
    frames = []
    for time in range(max(episode.length for episode in episodes) + 1):
        states = [jax.tree.map(lambda x: x[: time + 1], episode.states.maze) for episode in episodes]  # noqa: B023
        now = [state.level.replace(agent_pos=state.agent_pos, agent_dir=state.agent_dir) for state in states]
        levels = jax.tree.map(lambda *x: np.stack([each[-1] for each in x]), *now)
        frames.append(render.draw_levels(levels, TASKS, [state.agent_pos for state in states], columns=2, cell=12))
    return frames


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


def save(frames: Sequence[np.ndarray], file: Path, milliseconds: int, n_last: int) -> None:
    """A GIF that loops; it stays on the last frame for `n_last` frames."""
    # One palette for all frames: a palette for each would flicker, and make the file larger.
    first = Image.fromarray(frames[-1]).quantize(64)
    pictures = [Image.fromarray(frame).quantize(palette=first, dither=Image.Dither.NONE) for frame in frames]
    pictures += [pictures[-1]] * n_last
    pictures[0].save(file, save_all=True, append_images=pictures[1:], duration=milliseconds, loop=0, optimize=True)
    print(f"written: {file}, {file.stat().st_size / 1e3:.0f} kB, {pictures[0].size}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    run = load_run(parser.parse_args().run)
    save(agent_frames(run), HERE / "agent.gif", milliseconds=100, n_last=20)
    save(level_frames(run), HERE / "levels.gif", milliseconds=1000, n_last=2)
