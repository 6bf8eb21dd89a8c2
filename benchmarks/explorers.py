"""What two programs without any training reach on the held-out mazes: a scale for the solved rates of agents.

    python benchmarks/explorers.py [--suites benchmark hard] [--n-episodes 100] [--out FILE]

* `map`: sees what an agent sees, remembers all of it, and goes to the nearest cell that it has not seen, or to the
  goal once it has seen it. No agent can be asked for more memory than that.
* `wall`: keeps one hand on the wall (the left one in every other episode). It only remembers whether it has just
  turned. It finds every goal that stands at the same wall, and no other.

Both get the time limit of the task. The mazes and the view are worked out here in plain Python, by the rules of
MiniGrid, without the environment's code.
"""

import argparse
import csv
import io
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.registry import make_held_out
from minimax_lib.store.files import write_atomically

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y) of a step forward, for each direction
COLUMNS = ("program", "suite", "task", "episodes", "solved_rate", "share_of_limit")
Pose = tuple[int, int, int]  # x, y, direction


class Maze(NamedTuple):
    """A maze with its border, and where an episode starts and ends."""

    walls: np.ndarray  # bool[y, x]
    start: Pose
    goal: tuple[int, int]
    limit: int  # steps

    def moves(self, pose: Pose, free: np.ndarray) -> list[Pose]:
        """The poses one action away, if only cells that are `free` (bool[y, x]) can be entered."""
        x, y, direction = pose
        dx, dy = STEPS[direction]
        turns = [(x, y, (direction + 1) % 4), (x, y, (direction - 1) % 4)]
        return [*turns, (x + dx, y + dy, direction)] if free[y + dy, x + dx] else turns


def with_map(maze: Maze, episode: int) -> tuple[bool, int]:
    """(solved, steps) of the program that remembers all that it has seen."""
    pose, seen = maze.start, np.zeros_like(maze.walls)
    look(seen, pose)
    for t in range(1, maze.limit + 1):
        way = nearest(maze, pose, seen)
        if way is None:
            return False, maze.limit  # all is seen that can be reached
        pose = way
        if pose[:2] == maze.goal:
            return True, t
        look(seen, pose)
    return False, maze.limit


def look(seen: np.ndarray, pose: Pose, size: int = 5) -> None:
    """Marks the square ahead of the agent, through walls."""
    x, y, direction = pose
    dx, dy = STEPS[direction]
    for ahead in range(size):
        for side in range(-(size // 2), size // 2 + 1):
            column, row = x + ahead * dx - side * dy, y + ahead * dy + side * dx
            if 0 <= row < seen.shape[0] and 0 <= column < seen.shape[1]:
                seen[row, column] = True


def nearest(maze: Maze, pose: Pose, seen: np.ndarray) -> Pose | None:
    """The first pose on the way to the goal, if it has been seen and a way to it too, else to the nearest unseen cell.

    Breadth-first over poses: every turn counts as a step.
    """
    free, goal_seen = seen & ~maze.walls, seen[maze.goal[1], maze.goal[0]]
    before: dict[Pose, Pose | None] = {pose: None}
    queue, end = deque([pose]), None
    while queue:
        here = queue.popleft()
        if here[:2] == maze.goal:
            end = here
            break
        dx, dy = STEPS[here[2]]
        if end is None and not seen[here[1] + dy, here[0] + dx]:
            end = here
            if not goal_seen:
                break
        for pose_after in maze.moves(here, free):
            if pose_after not in before:
                before[pose_after] = here
                queue.append(pose_after)
    if end is None:
        return None
    while (last := before[end]) is not None and last != pose:
        end = last
    return end


def along_the_wall(maze: Maze, episode: int) -> tuple[bool, int]:
    """(solved, steps) of the program that keeps one hand on the wall."""
    (x, y, direction), side, turned = maze.start, 1 if episode % 2 else -1, False
    for t in range(1, maze.limit + 1):
        dx, dy = STEPS[(direction + side) % 4]
        ahead_x, ahead_y = x + STEPS[direction][0], y + STEPS[direction][1]
        if not turned and not maze.walls[y + dy, x + dx]:
            direction, turned = (direction + side) % 4, True
        elif not maze.walls[ahead_y, ahead_x]:
            x, y, turned = ahead_x, ahead_y, False
            if (x, y) == maze.goal:
                return True, t
        else:
            direction, turned = (direction - side) % 4, True
    return False, maze.limit


PROGRAMS: dict[str, Callable[[Maze, int], tuple[bool, int]]] = {"map": with_map, "wall": along_the_wall}


def drawn(task: str, n_episodes: int) -> list[Maze]:
    """The mazes of so many episodes on a held-out task."""
    drawn_at_once = make_held_out(AMaze(), [task]).sample(jax.random.key(0), n_episodes)
    levels = jax.tree.map(lambda x: np.asarray(x)[0], drawn_at_once)
    mazes = []
    for i in range(n_episodes):
        x, y = (int(v) + 1 for v in levels.maze.agent_pos[i])
        goal_x, goal_y = (int(v) + 1 for v in levels.maze.goal_pos[i])
        walls = np.pad(levels.maze.wall_map[i], 1, constant_values=True)
        start = (x, y, int(levels.maze.agent_dir[i]))
        mazes.append(Maze(walls, start, (goal_x, goal_y), int(levels.max_steps[i])))
    return mazes


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=["benchmark", "validation", "hard", "TrainingDistribution"])
    parser.add_argument("--n-episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "explorers.csv")
    args = parser.parse_args(argv)
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for suite in args.suites:
        for task in make_held_out(AMaze(), [suite]).names:
            mazes = drawn(task, args.n_episodes)
            for name, play in PROGRAMS.items():
                played = [(*play(maze, i), maze.limit) for i, maze in enumerate(mazes)]
                rate = np.mean([solved for solved, _, _ in played])
                share = np.mean([steps / limit for _, steps, limit in played])
                table.writerow([name, suite, task, len(played), f"{rate:.2f}", f"{share:.3f}"])
                print(f"{name:4}  {suite:10}  {task:24}  solved {rate:.2f}  {share:.0%} of the time", flush=True)
    write_atomically(args.out, file.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
