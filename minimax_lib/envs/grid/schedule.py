"""What each step of a design places: a line of text such as "25 walls, 2 doors, lock, key, goal, agent"."""

import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import cells
from minimax_lib.registry import unknown_name

PLACED = ("wall", "door", "lock", "key", "boxed key", "ball", "goal", "agent")
CHOICE = len(PLACED)  # the teacher says which of the tools it is
WORDS = (*PLACED, "choice")
WALL, _, _, KEY, BOXED_KEY, _, GOAL, AGENT = range(CHOICE)
TOOLS = tuple(range(GOAL))  # numbers of what a choice may be

MOST = 4096  # of one thing
LARGE = 13  # rows and columns of cells for which the default is as it was proposed
SMALL = 25  # cells, below which the default has no objects

# By number in `PLACED`: what goes to another cell if its own is taken, where anything else is left out; and the kind
# by which colours are counted, so that the first key, in a box or not, fits the first lock.
IS_NEEDED = np.isin(np.arange(CHOICE), (KEY, BOXED_KEY, GOAL, AGENT))
COUNTED_AS = np.where(np.arange(CHOICE) == BOXED_KEY, KEY, np.arange(CHOICE)).astype(np.int32)


def _made() -> np.ndarray:
    """u16[things, colours]: the cell that each of `PLACED` makes; 0 for the agent. Boxes are grey."""
    colour = np.arange(len(codes.COLOURS), dtype=np.uint16)
    made = (
        cells.WALL,
        cells.door(colour),
        cells.door(colour, codes.LOCKED),
        cells.key(colour),
        cells.box(codes.GREY, cells.key(colour)),
        cells.ball(colour),
        cells.GOAL,
        cells.NOTHING,
    )
    return np.stack([np.broadcast_to(cell, colour.shape) for cell in made]).astype(np.uint16)


MADE = _made()


def default_schedule(n_cells: int) -> str:
    """The schedule for a grid with so many cells inside its border."""
    n_walls = round(25 * n_cells / LARGE**2)
    things = ["2 doors", "lock", "key", "lock", "boxed key", "2 balls"] if n_cells >= SMALL else []
    return ", ".join([f"{n_walls} walls", *things, "goal", "agent"])


def placements(schedule: str) -> tuple[int, ...]:
    """What is placed one after the other, as numbers of `WORDS`; ValueError if `schedule` is not a list of those words.

    A number before a word repeats it. There must be one agent, and a goal.
    """
    try:
        steps = [step for part in schedule.split(",") for step in _repeated(part)]
    except ValueError as error:
        raise ValueError(f"schedule={schedule!r}: {error}") from None
    if steps.count(AGENT) != 1:
        raise ValueError(f"schedule={schedule!r} has {steps.count(AGENT)} agents: it must have one")
    if GOAL not in steps:
        raise ValueError(f"schedule={schedule!r} has no goal: it must have one")
    return tuple(steps)


def _repeated(part: str) -> list[int]:
    """A part of a schedule, as in "25 walls": the number of its word, as often as it says."""
    number, _, word = part.strip().partition(" ")
    if not number.isdecimal():
        number, word = "1", part.strip()
    singular = word.strip().removesuffix("s")
    if singular not in WORDS:
        raise unknown_name("step", word.strip(), WORDS)
    if int(number) > MOST:
        raise ValueError(f"{part.strip()!r} is too many: there may be at most {MOST}")
    return [WORDS.index(singular)] * int(number)
