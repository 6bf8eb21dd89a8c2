"""Mazes from text and from files, and back; and what is wrong with a maze. On the host."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.envs.maze.level import Level
from minimax_lib.files import Forms, UnreadableFile, read_arrays, read_text
from minimax_lib.registry import unknown_name

WALL, EMPTY, GOAL = "#", ".", "G"
ARROWS = ">v<^"  # the agent, by direction
TEXT, ARCHIVE = ".txt", ".npz"
MOST_MAZES = 10_000  # of a file
PARTS = ("wall_map", "agent_pos", "agent_dir", "goal_pos")  # of an archive, with a leading axis of mazes


def from_text(rows: Sequence[str]) -> Level:
    """The maze that the `rows` draw: `#` wall, `.` empty, `G` goal, and one of `> v < ^`, the agent by its direction.

    Cells may stand apart by spaces. The border of walls may be drawn or left out. ValueError in one line where the rows
    draw no maze.
    """
    cells = [row.split() if " " in row.strip() else list(row.strip()) for row in rows]
    lengths = {len(row) for row in cells}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"the rows have {', '.join(str(len(row)) for row in cells) or 'no'} cells: each needs the same"
        )
    for name in (name for row in cells for name in row):
        if name not in (WALL, EMPTY, GOAL, *ARROWS):
            raise unknown_name("cell", name, [WALL, EMPTY, GOAL, *ARROWS])
    grid = np.array(cells)
    frame = np.concatenate([grid[0], grid[-1], grid[:, 0], grid[:, -1]])
    if min(grid.shape) > 2 and (frame == WALL).all():
        grid = grid[1:-1, 1:-1]
    agents, goals = np.argwhere(np.isin(grid, list(ARROWS))), np.argwhere(grid == GOAL)
    for what, found, names in (("agents", agents, " ".join(ARROWS)), ("goals", goals, GOAL)):
        if len(found) != 1:
            raise ValueError(f"the text has {len(found)} {what}: it must have 1 ({names})")
    return _level(grid == WALL, agents[0, ::-1], ARROWS.index(grid[tuple(agents[0])]), goals[0, ::-1])


def to_text(level: Level) -> list[str]:
    """The rows of the maze, with its border, as `from_text` reads them. ValueError where the level is not a maze."""
    wrong = fault_in(level)
    if wrong:
        raise ValueError(f"the level is not a maze: {wrong}")
    grid = np.where(level.wall_map, WALL, EMPTY)
    grid[tuple(np.asarray(level.goal_pos)[::-1])] = GOAL
    grid[tuple(np.asarray(level.agent_pos)[::-1])] = ARROWS[int(level.agent_dir)]
    return ["".join(row) for row in np.pad(grid, 1, constant_values=WALL)]


def fault_in(level: Level) -> str:
    """What is wrong with a maze, in one sentence; empty if nothing is. Whether it can be solved is not asked."""
    height, width = np.shape(level.wall_map)
    places = {"agent": np.asarray(level.agent_pos), "goal": np.asarray(level.goal_pos)}
    for name, place in places.items():
        x, y = (int(i) for i in place)
        where = f"the {name} at [x, y] = [{x}, {y}]"
        if not (0 <= x < width and 0 <= y < height):
            return f"{where} is outside of the {width} columns and {height} rows"
        if level.wall_map[y, x]:
            return f"{where} is in a wall"
    if (places["agent"] == places["goal"]).all():
        return f"agent and goal are both at [x, y] = {places['goal'].tolist()}"
    if not 0 <= int(level.agent_dir) < len(ARROWS):
        return f"agent_dir is {int(level.agent_dir)}: it must be 0 (right), 1 (down), 2 (left) or 3 (up)"
    return ""


def names_in(path: Path) -> list[str]:
    """What the mazes of a file, or of all files in a folder, are called: FILE, and FILE:NUMBER where it has several.

    ValueError in one line where there are none.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (TEXT, ARCHIVE))
        if not files:
            raise ValueError(f"{str(path)!r} holds no mazes: files must end with {TEXT} or {ARCHIVE}")
        return [name for file in files for name in names_in(file)]
    n = len(_mazes_of(path))
    return [str(path)] if n == 1 else [f"{path}:{i}" for i in range(n)]


def maze_called(name: str) -> Level:
    """The maze of a file by its name (`names_in`); ValueError in one line where there is none."""
    path, _, number = name.rpartition(":")
    if not (path.endswith((TEXT, ARCHIVE)) and number.isdecimal()):
        path, number = name, "0"
    mazes = _mazes_of(Path(path))
    if int(number) >= len(mazes):
        raise ValueError(f"{path!r} has {len(mazes)} mazes: there is no number {number}")
    return mazes[int(number)]


def is_file(name: str) -> bool:
    """Whether a name is that of a maze in a file."""
    return name.rpartition(":")[0].endswith((TEXT, ARCHIVE)) or name.endswith((TEXT, ARCHIVE))


@functools.cache
def _mazes_of(path: Path) -> list[Level]:
    """The mazes of a file."""
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r} with mazes")
    if path.suffix not in (TEXT, ARCHIVE):
        raise ValueError(f"{str(path)!r} must end with {TEXT} (mazes as text) or {ARCHIVE} (arrays of NumPy)")
    try:
        mazes = _in_text(path) if path.suffix == TEXT else _in_archive(path)
    except UnreadableFile:
        raise
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error
    for number, level in enumerate(mazes):
        wrong = fault_in(level)
        if wrong:
            raise ValueError(f"{str(path)!r}, maze {number}: {wrong}")
    return mazes


def _in_text(path: Path) -> list[Level]:
    """Mazes apart by empty lines."""
    blocks: list[list[str]] = [[]]
    for line in read_text(path).splitlines():
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    if len(blocks) > MOST_MAZES:
        raise ValueError(f"it has {len(blocks):,} mazes: they must be {MOST_MAZES:,} at most")
    return [from_text(rows) for rows in blocks if rows or len(blocks) == 1]


def _in_archive(path: Path) -> list[Level]:
    """Mazes of the arrays wall_map [N, h, w] (0 free, 1 wall), agent_pos, goal_pos [N, 2] ([x, y]), agent_dir [N]."""
    arrays = read_arrays(path, PARTS.__contains__, _fault_in_arrays)
    walls, pos, facing, goal = (arrays[name] for name in PARTS)
    if not np.isin(walls, (0, 1)).all():
        raise ValueError("wall_map must be 0 (free) and 1 (wall)")
    return [_level(walls[i], pos[i], facing[i], goal[i]) for i in range(len(walls))]


def _fault_in_arrays(forms: Forms) -> str:
    """What is wrong with the types and shapes of the arrays of mazes; empty if nothing is."""
    missing = [name for name in PARTS if name not in forms]
    if missing:
        return f"has no array {missing[0]!r}: it needs {', '.join(PARTS)}"
    kind, walls = forms["wall_map"]
    n = walls[0] if len(walls) == 3 and kind.kind in "biuf" else 0
    for name, shape in (("agent_pos", (n, 2)), ("agent_dir", (n,)), ("goal_pos", (n, 2))):
        dtype, found = forms[name]
        if n == 0 or found != shape or dtype.kind not in "iu":
            return (
                f"cannot be read: wall_map is {list(walls)} and {name} {dtype}{list(found)}: they must be [N, h, w] "
                f"and integers [{', '.join(['N', *map(str, shape[1:])])}]"
            )
    return f"has {n:,} mazes: they must be {MOST_MAZES:,} at most" if n > MOST_MAZES else ""


def _level(wall_map: Any, agent_pos: Any, agent_dir: Any, goal_pos: Any) -> Level:
    """A maze of arrays of NumPy, in the types of a level."""
    return Level(
        wall_map=np.asarray(wall_map, bool),  # type: ignore[arg-type]
        agent_pos=np.asarray(agent_pos, np.int32),  # type: ignore[arg-type]
        agent_dir=np.asarray(agent_dir, np.int32),  # type: ignore[arg-type]
        goal_pos=np.asarray(goal_pos, np.int32),  # type: ignore[arg-type]
    )
