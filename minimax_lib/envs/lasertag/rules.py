"""The two published games, as settings of `LaserTag`, and what the actions mean."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax

from minimax_lib.registry import unknown_name

Rules = Literal["maestro", "lanctot"]
# In the order of Lanctot et al. (2017). Steps keep the facing. The last two moves turn after the step.
Action = Literal[
    "left",
    "right",
    "forward",
    "backward",
    "step_left",
    "step_right",
    "stand",
    "forward_left",
    "forward_right",
    "fire",
]
ACTIONS: tuple[Action, ...] = get_args(Action)
RANDOM, SEARCH = "random", "search"  # layouts that are drawn: random rooms; those and corridors, with far starts
DRAWN_LAYOUTS = (RANDOM, SEARCH)
# Values of settings that are not given. lanctot: the game of OpenSpiel's `laser_tag`, seen partially.
PRESETS: dict[str, dict[str, Any]] = {
    "maestro": {
        "layout": RANDOM,
        "random_starts": False,
        "first_tag_ends": True,
        "zero_sum": True,
        "max_steps": 200,
        "actions": ("left", "right", "forward", "fire", "stand"),
        "view_front": 4,
        "view_back": 0,
        "view_side": 2,
    },
    "lanctot": {
        "layout": "small2",
        "random_starts": True,
        "first_tag_ends": False,
        "zero_sum": False,
        "max_steps": 1000,
        "actions": ACTIONS,
        "view_front": 17,
        "view_back": 2,
        "view_side": 10,
    },
}


class ActionTable(NamedTuple):
    """What the numbers of actions mean: for each effect the set of actions that have it, as the bits of a number."""

    forward: int
    backward: int
    aside_left: int
    aside_right: int
    turn_left: int
    turn_right: int
    then_left: int  # a turn after the step, if there was one
    then_right: int
    fire: int


def action_table(actions: Sequence[str]) -> ActionTable:
    """The table of the actions that are called so, in their order."""

    def those(*names: str) -> int:
        return sum(1 << i for i, action in enumerate(actions) if action in names)

    return ActionTable(
        forward=those("forward", "forward_left", "forward_right"),
        backward=those("backward"),
        aside_left=those("step_left"),
        aside_right=those("step_right"),
        turn_left=those("left"),
        turn_right=those("right"),
        then_left=those("forward_left"),
        then_right=those("forward_right"),
        fire=those("fire"),
    )


def among(actions: int, action: jax.Array) -> jax.Array:
    """i32[...]: 1 where `action` is in the set of bits `actions`."""
    return (actions >> action) & 1


def check_actions(actions: Sequence[str]) -> None:
    """ValueError for a name that is not an action, for one that is given twice, and for none at all."""
    if not actions:
        raise ValueError(f"actions=(): name at least one of {', '.join(ACTIONS)}")
    for i, action in enumerate(actions):
        if action not in ACTIONS:
            raise unknown_name("action", action, ACTIONS)
        if action in actions[:i]:
            raise ValueError(f"actions names {action!r} twice: name it once")
