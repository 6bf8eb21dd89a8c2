"""Pictures of worlds, drawn on the host."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from minimax_lib.envs.cells.drawing import covered, lit, side_by_side, trail
from minimax_lib.envs.drawing import INK, PAPER, arranged
from minimax_lib.envs.nmmo.moment import Moment, moments_of
from minimax_lib.envs.nmmo.state import Level
from minimax_lib.envs.nmmo.tables import VISION, VOID

Colour = tuple[int, int, int]
# By material: Void Water Grass Scrub Foilage Stone Slag Ore Stump Tree Fragment Crystal Weeds Herb Ocean Fish
COLOURS = np.array(
    [
        (20, 20, 20),
        (60, 120, 220),
        (140, 190, 90),
        (190, 180, 120),
        (35, 120, 50),
        (120, 120, 120),
        (150, 130, 120),
        (200, 120, 60),
        (160, 140, 90),
        (90, 60, 30),
        (190, 180, 200),
        (150, 80, 200),
        (170, 190, 100),
        (230, 110, 160),
        (40, 80, 170),
        (150, 220, 250),
    ],
    np.uint8,
)
PLAYER, FOLLOWED, TRAIL = (255, 255, 255), (255, 60, 60), (255, 255, 255)
NPCS: tuple[Colour, ...] = ((0, 0, 0), (250, 220, 90), (250, 150, 40), (130, 0, 0))  # by kind; 0 is nobody
BARS = (("health", (220, 60, 60)), ("food", (35, 120, 50)), ("water", (60, 120, 220)))
CELL = 10


def draw_level(level: Level, cell: int = CELL) -> np.ndarray:
    """u8[H, W, 3]: the map inside its border, and the players where they spawn."""
    terrain, spawn = np.asarray(level.terrain), np.asarray(level.spawn)
    picture, corner = _ground(terrain, cell)
    return _dotted(picture, spawn - corner, [PLAYER] * len(spawn), cell)


def draw_episodes(states: Any, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: R worlds, `columns` in a row, of states or moments [T, R, ...] where `running` (bool[T, R]).

    Each picture shows the last moment of a world, and the ways of all players up to their death.
    """
    moments, running = moments_of(states), np.asarray(running)
    worlds = [jax.tree.map(lambda x, i=i: np.asarray(x)[running[:, i], i], moments) for i in range(running.shape[1])]
    tiles = [_draw_ways(world) for world in worlds]
    return arranged(tiles, [*captions, *[""] * (len(tiles) - len(captions))], min(columns, len(tiles)), gap=20)


def draw_state(moment: Moment, task_name: Callable[[int], str]) -> np.ndarray:
    """u8[H, W, 3]: a moment with the tiles lit that the followed player sees, and beside it that player's view, its
    health, food and water, and its task. A dead one sees nothing."""
    now: Any = jax.tree.map(np.asarray, moment)
    agent = int(now.followed)
    picture, corner = _ground(now.tiles, CELL)
    offsets = np.arange(-VISION, VISION + 1)
    if now.alive[agent]:
        seen = np.stack(np.meshgrid(offsets, offsets), axis=-1).reshape(-1, 2) + (now.position[agent] - corner)[::-1]
        picture = lit(picture, seen, CELL)
    picture = _with_entities(picture, now, corner, CELL)
    return side_by_side(picture, _panel(now, agent, task_name), CELL)


def _ground(terrain: np.ndarray, cell: int) -> tuple[np.ndarray, int]:
    """(u8[H, W, 3] the tiles inside the border, the row and column of the first of them)."""
    corner = int(np.flatnonzero((terrain != VOID).any(axis=1))[0])
    inside = terrain[corner : len(terrain) - corner + 1, corner : len(terrain) - corner + 1]
    return COLOURS[inside].repeat(cell, axis=0).repeat(cell, axis=1), corner


def _dotted(picture: np.ndarray, places: np.ndarray, colours: Sequence[Colour], cell: int) -> np.ndarray:
    """The picture with a disc at each of `places` (int[n, 2], rows and columns)."""
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    for (row, column), colour in zip(places, colours, strict=True):
        x, y, rim = int(column) * cell, int(row) * cell, max(1, cell // 8)
        draw.ellipse((x + rim, y + rim, x + cell - 1 - rim, y + cell - 1 - rim), fill=colour, outline=INK)
    return np.asarray(image)


def _with_entities(picture: np.ndarray, now: Any, corner: int | np.ndarray, cell: int) -> np.ndarray:
    """The picture with all who live; the followed player comes last, so that nobody hides it."""
    npcs = now.npc_position[now.npc_alive] - corner
    picture = _dotted(picture, npcs, [NPCS[int(kind)] for kind in now.npc_kind[now.npc_alive]], cell)
    order = [int(agent) for agent in np.flatnonzero(now.alive) if agent != now.followed]
    order += [int(now.followed)] if now.alive[int(now.followed)] else []
    colours = [FOLLOWED if agent == now.followed else PLAYER for agent in order]
    return _dotted(picture, now.position[order] - corner, colours, cell)


def _draw_ways(world: Any) -> np.ndarray:
    """u8[H, W, 3]: a world of which `world` are all moments [T, ...]."""
    last = jax.tree.map(lambda x: x[-1], world)
    picture, corner = _ground(last.tiles, CELL)
    shape = tuple(side // CELL for side in picture.shape[:2])
    for agent in range(world.alive.shape[1]):
        path = (world.position[world.alive[:, agent], agent] - corner)[:, ::-1]
        picture = covered(picture, trail(path, shape, CELL, TRAIL))
    return _with_entities(picture, last, corner, CELL)


def _panel(now: Any, agent: int, task_name: Callable[[int], str]) -> np.ndarray:
    """u8[h, w, 3]: the view of a player, its body, and its task in words."""
    cell = 2 * CELL
    side = (2 * VISION + 1) * cell
    paper = Image.new("RGB", (side, side + 6 * cell), PAPER)
    draw, font = ImageDraw.Draw(paper), ImageFont.load_default(size=12)
    if now.alive[agent]:
        top, left = now.position[agent] - VISION
        tiles = now.tiles[top : top + 2 * VISION + 1, left : left + 2 * VISION + 1]
        view = COLOURS[tiles].repeat(cell, axis=0).repeat(cell, axis=1)
        near = (np.abs(now.position - now.position[agent]).max(axis=1) <= VISION) & now.alive
        npcs = (np.abs(now.npc_position - now.position[agent]).max(axis=1) <= VISION) & now.npc_alive
        seen = now.replace(alive=near, npc_alive=npcs)
        paper.paste(Image.fromarray(_with_entities(view, seen, np.array([top, left]), cell)))
    for i, (name, colour) in enumerate(BARS):
        y, share = side + (i + 1) * cell, int(getattr(now, name)[agent]) / 100
        draw.text((0, y - 4), f"{name} {100 * share:.0f}", INK, font)
        draw.rectangle((5 * cell, y, 5 * cell + round(share * (side - 6 * cell)), y + cell // 3), fill=colour)
    task = task_name(int(now.tasks[agent]))
    state = "" if now.alive[agent] else ", dead"
    draw.text((0, side + 4 * cell), f"player {agent}{state}, tick {int(now.tick)}", INK, font)
    draw.text((0, side + 5 * cell), f"task {task}: {now.progress[agent]:.0%}", INK, font)
    return np.asarray(paper)
