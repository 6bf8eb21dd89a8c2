"""Levels from MiniGrid's arrays and from text, and back. On the host."""

from collections.abc import Mapping, Sequence

import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import TASKS, Level, make_level
from minimax_lib.envs.grid.validity import HELD, RULES, is_valid
from minimax_lib.registry import unknown_name

COLOUR_LETTERS = "rgbpye"  # red, green, blue, purple, yellow, grey
ARROWS = ">v<^"  # the agent, by direction
PLAIN = {"#": cells.WALL, ".": cells.EMPTY, "G": cells.GOAL, "~": cells.LAVA}
OBJECTS = {
    "K": cells.key(0),
    "A": cells.ball(0),
    "B": cells.box(0),
    "F": cells.pack(codes.FLOOR),
    "D": cells.door(0, codes.CLOSED),
    "L": cells.door(0, codes.LOCKED),
    "O": cells.door(0, codes.OPEN),
    "W": cells.pack(codes.WALL),
}
STEPS_A_CELL = 4  # of the default time limit


def from_minigrid(image: np.ndarray, contents: np.ndarray | None = None) -> np.ndarray:
    """u16[h, w]: the grid from MiniGrid's `Grid.encode()` (u8[w, h, 3], indexed [x, y]).

    `contents` (u8[w, h, 3]) are the objects inside the boxes, encoded in the same way, and 0 where there is none.
    ValueError where a cell is unseen or the agent, which are not cells of a level.
    """
    image = np.asarray(image)
    strange = (image[..., 0] < codes.EMPTY) | (image[..., 0] > codes.LAVA)
    if strange.any():
        x, y = np.argwhere(strange)[0]
        raise ValueError(
            f"the cell at [x, y] = [{x}, {y}] is object {image[x, y, 0]}: it must be from {codes.EMPTY} to {codes.LAVA}"
        )
    inside = 0 if contents is None else cells.pack(contents[..., 0], contents[..., 1])
    # MiniGrid's first index is the column.
    return np.swapaxes(cells.pack(image[..., 0], image[..., 1], image[..., 2], inside), 0, 1)


def to_minigrid(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(what `Grid.encode()` gives, u8[w, h, 3]; what is inside the boxes, u8[w, h, 3], 0 for nothing)."""
    grid = np.asarray(grid)
    return cells.seen(grid).swapaxes(0, 1), cells.seen(cells.inside(grid)).swapaxes(0, 1)


def from_text(
    rows: Sequence[str],
    task: str = "reach",
    target: str = "",
    max_steps: int | None = None,
    difficulty: int = 0,
) -> Level:
    """The level that the `rows` draw. ValueError in one line where they draw none.

    Cells stand apart by spaces:

    | text | cell |
    |---|---|
    | `#` `.` `G` `~` | wall, empty, goal, lava |
    | `Kr` `Ab` `By` `Fe` | key, ball, box, floor |
    | `Dr` `Lb` `Oy` | closed, locked, open door |
    | `Be:Kr` | a box with a key in it |
    | `>` `v` `<` `^` | the agent, on an empty cell; `>Oy` in an open door |

    The colours are r g b p y and e (grey). `task` is one of reach, pickup, open, fetch, and `target` what it is about,
    as `Ab`; for a door, `Db`. The default time limit is four steps for each cell.
    """
    names = [row.split() for row in rows]
    if not names or len({len(row) for row in names}) != 1 or not names[0]:
        raise ValueError(
            f"the rows have {', '.join(str(len(row)) for row in names) or 'no'} cells: each needs the same"
        )
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    agents = [(x, y) for y, row in enumerate(names) for x, name in enumerate(row) if name[0] in ARROWS]
    if len(agents) != 1:
        raise ValueError(f"the text has {len(agents)} agents: it must have 1 of {' '.join(ARROWS)}")
    (x, y) = agents[0]
    agent = names[y][x]
    names[y][x] = agent[1:] or "."
    grid = np.array([[_cell(name) for name in row] for row in names], np.uint16)
    level = make_level(
        grid,
        agent_pos=agents[0],
        agent_dir=ARROWS.index(agent[0]),
        max_steps=STEPS_A_CELL * grid.size if max_steps is None else max_steps,
        task=TASKS.index(task),
        target=cells.named(_cell(target)) if target else 0,
        difficulty=difficulty,
    )
    if not bool(is_valid(level)):
        raise ValueError(f"the text is not a level of the task {task!r} with target={target!r}: {RULES}")
    return level


def to_text(level: Level) -> list[str]:
    """The rows of the level, as `from_text` reads them, with the cells below each other."""
    grid = np.asarray(level.grid)
    names = [[_name(int(cell)) for cell in row] for row in grid]
    x, y = (int(i) for i in level.agent_pos)
    below = names[y][x]
    names[y][x] = ARROWS[int(level.agent_dir)] + ("" if below == "." else below)
    width = max(len(name) for row in names for name in row)
    return [" ".join(name.ljust(width) for name in row).rstrip() for row in names]


def _cell(name: str) -> int:
    """The cell that is written like this."""
    whole, _, content = name.partition(":")
    if whole in PLAIN:
        cell = int(PLAIN[whole])
    elif len(whole) == 2 and whole[0] in OBJECTS and whole[1] in COLOUR_LETTERS:
        cell = int(OBJECTS[whole[0]]) | COLOUR_LETTERS.index(whole[1]) << cells.COLOUR
    else:
        known = [*PLAIN, *(letter + colour for letter in OBJECTS for colour in COLOUR_LETTERS)]
        raise unknown_name("cell", name, known)
    if not content:
        return cell
    held = _cell(content)
    if cells.kind(cell) != codes.BOX or held != cells.named(held) or cells.kind(held) not in HELD:
        raise ValueError(f"the cell {name!r} holds something: only a box can, and only a key, a ball, a box or a goal")
    return cell | held << cells.INSIDE


def _name(cell: int) -> str:
    """How the cell is written."""
    shown = cell & cells.SHOWN
    plain = {int(known): name for name, known in PLAIN.items()}
    if shown in plain:
        return plain[shown]
    letters: Mapping[int, str] = {int(known): letter for letter, known in OBJECTS.items()}
    name = letters[shown & ~(7 << cells.COLOUR)] + COLOUR_LETTERS[int(cells.colour(cell))]
    return f"{name}:{_name(int(cells.inside(cell)))}" if cells.inside(cell) else name
