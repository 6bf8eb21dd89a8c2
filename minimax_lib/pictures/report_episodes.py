"""The part of a report that shows episodes, moment by moment.

Moments are cut into small tiles. Each tile is kept once, and of each moment only the tiles that change. So an episode
of a hundred moments takes some ten kilobytes.
"""

import base64
import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minimax_lib.envs.drawing import PAPER
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.messages import one_line
from minimax_lib.pictures.films import moment, tasks_to_show
from minimax_lib.pictures.html import data_url, part, png
from minimax_lib.pictures.report_levels import opened
from minimax_lib.pictures.runs import Group
from minimax_lib.playing.crowds import AnyEpisode
from minimax_lib.store.loaded import LoadedRun

if TYPE_CHECKING:
    from markupsafe import Markup

SIZE = 20  # pixels, the side of a tile
MOST_STEPS = 300  # of an episode that are shown
Say = Callable[[str], None]


class TileSheet:
    """All different tiles of some pictures. The first one is blank paper."""

    def __init__(self) -> None:
        self._tiles: list[np.ndarray] = []
        self._place_of: dict[bytes, int] = {}
        self._place(np.full((SIZE, SIZE, 3), PAPER, np.uint8))

    def __len__(self) -> int:
        return len(self._tiles)

    def _place(self, tile: np.ndarray) -> int:
        key = tile.tobytes()
        if key not in self._place_of:
            self._place_of[key] = len(self._tiles)
            self._tiles.append(tile.copy())
        return self._place_of[key]

    def cut(self, picture: np.ndarray) -> np.ndarray:
        """i64[rows, columns], the tiles of a picture; paper fills up the last ones."""
        rows, columns = (math.ceil(n / SIZE) for n in picture.shape[:2])
        whole = np.full((rows * SIZE, columns * SIZE, 3), PAPER, np.uint8)
        whole[: picture.shape[0], : picture.shape[1]] = picture
        tiles = whole.reshape(rows, SIZE, columns, SIZE, 3).swapaxes(1, 2)
        return np.array([[self._place(tile) for tile in row] for row in tiles])

    @property
    def columns(self) -> int:
        """Of the picture of all tiles."""
        return math.ceil(math.sqrt(len(self)))

    def picture(self) -> np.ndarray:
        """u8[H, W, 3], all tiles, row by row."""
        n = self.columns
        rows = math.ceil(len(self) / n)
        blank = [self._tiles[0]] * (rows * n - len(self))
        whole = np.stack([*self._tiles, *blank]).reshape(rows, n, SIZE, SIZE, 3)
        return whole.swapaxes(1, 2).reshape(rows * SIZE, n * SIZE, 3)


@dataclasses.dataclass(frozen=True)
class Reel:
    """Moments as changes of tiles."""

    n: int  # moments
    width: int  # pixels
    height: int
    changes: np.ndarray  # u32: for each moment how many, and then the place (row by row) and the tile of each


def reel_of(frames: Iterable[np.ndarray], tiles: TileSheet) -> Reel:
    """The frames as changes. They may differ in size: paper fills up the smaller ones."""
    grids, width, height = [], 0, 0
    for frame in frames:
        grids.append(tiles.cut(frame))
        height, width = max(height, frame.shape[0]), max(width, frame.shape[1])
    rows, columns = math.ceil(height / SIZE), math.ceil(width / SIZE)
    before, parts = np.zeros((rows, columns), np.int64), []
    for grid in grids:
        now = np.zeros_like(before)
        now[: grid.shape[0], : grid.shape[1]] = grid
        places = np.flatnonzero(now != before)
        parts.append(np.append(len(places), np.stack([places, now.reshape(-1)[places]], axis=1)))
        before = now
    return Reel(len(grids), width, height, np.concatenate(parts).astype("<u4"))


def packed(reel: Reel) -> dict[str, Any]:
    """A reel for the page's script."""
    data = base64.b64encode(zlib.compress(reel.changes.tobytes(), 9)).decode()
    return {"n": reel.n, "width": reel.width, "height": reel.height, "changes": data}


# -------------------------------------------------------------------------------------------------------------- as HTML


def episodes_part(
    groups: Sequence[Group], plugins: Sequence[str] | None, tasks: Sequence[str], greedy: bool, say: Say
) -> "Markup":
    """An episode on each held-out task of each group: of the newest checkpoint of its first run that has one."""
    tiles, told = TileSheet(), []
    players: dict[str, list[Markup]] = {}
    for place, group in enumerate(groups):
        try:
            loaded = newest_of(group, plugins)
            names = tasks_of(loaded, tasks)
        except ValueError as error:
            told.append(f"{group.label}: no episode: {one_line(error)}.")
            continue
        say(f"playing {len(names)} episode{'s' if len(names) > 1 else ''} of {group.label}")
        for name, episode in loaded.play_tasks(names, greedy=greedy).items():
            players.setdefault(name, []).append(player(episode, loaded, name, (group.label, place), tiles))
    rows = list(players.values())
    if rows and len(groups) == 1:  # with one method, all episodes stand side by side; with several, those on one task
        rows = [[own for row in rows for own in row]]
    image = data_url(png(tiles.picture(), clear_white=True), "image/png")
    return part("episodes", rows, told, greedy, {"size": SIZE, "columns": tiles.columns, "image": image})


def newest_of(group: Group, plugins: Sequence[str] | None) -> LoadedRun:
    """The newest checkpoint of a group's first run that has one; ValueError in one line if there is none."""
    first: ValueError | None = None
    for run in group.runs:
        try:
            return opened(run, plugins)
        except ValueError as error:
            first = first or error
    raise first or ValueError("there is no run")


def tasks_of(loaded: LoadedRun, tasks: Sequence[str]) -> tuple[str, ...]:
    """The names of the tasks; ValueError for one that is not known, and where the environment draws nothing."""
    env = loaded.env
    if env.draw_state is None and env.draw_episodes is None:
        raise ValueError(f"{type(env).__name__} has no method to draw its episodes")
    protocol = loaded.config.eval.protocol
    tasks = tasks_of_run(tasks, loaded.config.runner)
    return tasks_to_show(env, tasks, **({} if protocol is None else {"protocol": protocol}))


def player(episode: AnyEpisode, loaded: LoadedRun, task: str, group: tuple[str, int], tiles: TileSheet) -> "Markup":
    """An episode of a `group` (label, place) that can be stepped through."""
    label, place = group
    n = min(episode.length, MOST_STEPS) + 1
    reel = reel_of((moment(episode, time) for time in range(n)), tiles)
    end = f"{episode.end} in {episode.length} steps"
    cut = f" (the first {MOST_STEPS} are shown)" if episode.length > MOST_STEPS else ""
    where = f"{loaded.path.resolve().name}, seed {loaded.seed}, update {loaded.update:,}"
    told = f"{cut}, return {episode.episode_return:.3f} ({where})"
    return part("player", place, label, task, packed(reel), end, told)
