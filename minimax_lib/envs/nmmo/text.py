"""Worlds as text for a terminal."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.nmmo.moment import Moment
from minimax_lib.envs.nmmo.tables import VISION, VOID
from minimax_lib.envs.terminal import Cell, Scene

# By material, as in `render`: a sign without colours, and the colour of the ground.
SIGNS = " ~.,%#-o_T'*;hOf"
GROUNDS = (233, 26, 107, 144, 28, 244, 138, 173, 143, 94, 182, 98, 149, 211, 19, 117)
WHITE, RED, YELLOW = 15, 196, 226


def scene(moment: Moment, task_name: Callable[[int], str]) -> Scene:
    """The map and the view of the followed player, who is an @; other players are p, and NPCs n."""
    now: Any = jax.tree.map(np.asarray, moment)
    agent = int(now.followed)
    whole = [[_tile(int(material)) for material in row] for row in now.tiles]
    others = now.alive & (np.arange(len(now.alive)) != agent)
    for places, sign, ink in ((now.npc_position[now.npc_alive], "n", YELLOW), (now.position[others], "p", WHITE)):
        for row, column in places:
            whole[row][column] = whole[row][column]._replace(text=f"{sign} ", plain=f"{sign} ", ink=ink)
    row, column = now.position[agent]
    sign = "@" if now.alive[agent] else "x"
    whole[row][column] = whole[row][column]._replace(text=f"{sign} ", plain=f"{sign} ", ink=RED)
    view = [line[column - VISION : column + VISION + 1] for line in whole[row - VISION : row + VISION + 1]]
    corner = int(np.flatnonzero((now.tiles != VOID).any(axis=1))[0])
    inside = slice(corner, len(now.tiles) - corner + 1)
    return Scene([line[inside] for line in whole[inside]], view, now.position[agent] - corner, _told(now, task_name))


def _tile(material: int) -> Cell:
    return Cell("  ", f"{SIGNS[material]} ", ground=GROUNDS[material])


def _told(now: Any, task_name: Callable[[int], str]) -> str:
    agent = int(now.followed)
    name, alive = task_name(int(now.tasks[agent])), int(now.alive.sum())
    body = f"health {now.health[agent]}, food {now.food[agent]}, water {now.water[agent]}"
    return f"player {agent}, task {name} {now.progress[agent]:.0%}, {body}; {alive} alive"
