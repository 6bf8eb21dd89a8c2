"""The part of a report that shows the best levels of a level buffer, checkpoint by checkpoint."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.drawing import PAPER
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.folder import RunFolder
from minimax_lib.experiment.loaded import KeptLevels, LoadedRun, load_run
from minimax_lib.messages import one_line
from minimax_lib.pictures.html import Html, data_url, joined, json_block, png, swatch, tag
from minimax_lib.pictures.report_tables import notes, sentence
from minimax_lib.pictures.runs import Group, RunTables

Caption = tuple[str, str]  # a level's score, and what else is known of it


@dataclasses.dataclass(frozen=True)
class Shelf:
    """The best levels of one checkpoint, the highest score first."""

    update: int
    told: str  # how full the buffer is
    pictures: tuple[int, ...]  # which of the gallery's pictures
    captions: tuple[Caption, ...]


@dataclasses.dataclass(frozen=True)
class Gallery:
    """The best levels of one seed of a run over its checkpoints. No level is drawn twice."""

    run: RunTables
    seed: int
    shelves: tuple[Shelf, ...]
    pictures: tuple[np.ndarray, ...]
    notes: tuple[str, ...]


def opened(run: RunTables, plugins: Sequence[str] | None, update: int | None = None) -> LoadedRun:
    """The run's checkpoint of `update`, or its newest one that can be read; ValueError in one line if there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a newer checkpoint that is damaged: the report says which one it shows
        return load_run(run.path, plugins, "latest" if update is None else update)


def spread(updates: Sequence[int], n: int) -> list[int]:
    """`n` of the checkpoints: the newest, the first, and others evenly between them; all if there are fewer."""
    if len(updates) <= n:
        return list(updates)
    places = np.linspace(len(updates) - 1, 0, n).round().astype(int)
    return [updates[i] for i in sorted(set(places.tolist()))]


def gallery_of(run: RunTables, plugins: Sequence[str] | None, n_levels: int, n_checkpoints: int) -> Gallery:
    """The gallery of a run's first seed; ValueError in one line where it keeps no levels, or nobody can draw them."""
    newest = opened(run, plugins)
    _ = newest.level_buffer  # refuses at once, before anything is drawn
    updates = saved_updates(RunFolder(run.path).checkpoints)
    shelves, drawn, told = [], Drawn(newest), []
    for update in spread(updates, n_checkpoints):
        try:
            loaded = newest if update == newest.update else opened(run, plugins, update)
        except ValueError as error:
            told.append(f"The checkpoint of update {update:,} is left out: {one_line(error)}.")
            continue
        shelves.append(shelf_of(loaded, n_levels, drawn))
    return Gallery(run, newest.seed, tuple(shelves), tuple(without_margin(drawn.pictures)), tuple(told))


class Drawn:
    """Pictures of levels, each level once."""

    def __init__(self, run: LoadedRun):
        self._run = run
        self._place_of: dict[bytes, int] = {}
        self.pictures: list[np.ndarray] = []

    def place(self, level: Any) -> int:
        """Which of the pictures shows `level`."""
        key = b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(level))
        if key not in self._place_of:
            self._place_of[key] = len(self.pictures)
            self.pictures.append(self._run.draw(jax.tree.map(lambda x: x[None], level), columns=1))
        return self._place_of[key]


def shelf_of(loaded: LoadedRun, n_levels: int, drawn: Drawn) -> Shelf:
    """The best levels of a checkpoint; ValueError where nobody can draw them."""
    kept = loaded.level_buffer
    slots = kept.ranked[:n_levels]
    levels = jax.tree.map(lambda x: np.asarray(x)[slots], kept.levels)
    measured = jax.device_get(_measured(loaded.env, levels)) if len(slots) else {}
    pictures = [drawn.place(jax.tree.map(lambda x, i=i: x[i], levels)) for i in range(len(slots))]
    captions = [
        caption(kept, int(slot), {name: values[i] for name, values in measured.items()}) for i, slot in enumerate(slots)
    ]
    told = f"{len(kept):,} levels in {len(kept.filled):,} slots" if len(kept) else "no level is kept yet"
    return Shelf(loaded.update, told, tuple(pictures), tuple(captions))


def _measured(env: Any, levels: Any) -> dict[str, jax.Array]:
    return jax.jit(jax.vmap(env.level_metrics))(levels)


def caption(kept: KeptLevels, slot: int, measured: dict[str, Any]) -> Caption:
    """What is known of a level that is kept."""
    words = []
    if kept.ages is not None:
        words.append(f"age {int(kept.ages[slot]):,}")
    if kept.n_mutations is not None and np.any(kept.n_mutations):
        n = int(kept.n_mutations[slot])
        words.append(f"{n:,} mutation{'' if n == 1 else 's'}")
    # That a level can be solved is nothing to say of each.
    told = {name: float(value) for name, value in measured.items() if not (name == "solvable" and value == 1)}
    words += [f"{name.removeprefix('n_').replace('_', ' ')} {value:.4g}" for name, value in told.items()]
    # Lines break between the facts, and not in them.
    return f"score {float(kept.scores[slot]):.3f}", ", ".join(word.replace(" ", "\u00a0") for word in words)


def without_margin(pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The pictures without the paper round all of them. All are cut alike, so that sizes can still be compared."""
    if len({picture.shape for picture in pictures}) != 1:
        return list(pictures)
    inked = np.any([(picture != PAPER).any(axis=-1) for picture in pictures], axis=0)
    rows, columns = (np.flatnonzero(inked.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return list(pictures)
    return [picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] for picture in pictures]


# -------------------------------------------------------------------------------------------------------------- as HTML


def levels_part(groups: Sequence[Group], plugins: Sequence[str] | None, n_levels: int, n_checkpoints: int) -> Html:
    """A gallery of each group: of its first run that has one."""
    parts: list[Html] = []
    for place, group in enumerate(groups):
        parts.append(tag("h3", swatch(place), group.label))
        found: Gallery | None = None
        why: list[str] = []
        for run in group.runs:
            try:
                found = gallery_of(run, plugins, n_levels, n_checkpoints)
                break
            except ValueError as error:
                why.append(one_line(error))
        parts.append(gallery_html(found, f"levels-{place}") if found else sentence(f"No gallery: {why[0]}."))
    return joined(parts)


def gallery_html(gallery: Gallery, id_: str) -> Html:
    """A gallery with a slider over its checkpoints. Without a script it shows the newest."""
    urls = [data_url(png(picture), "image/png") for picture in gallery.pictures]
    newest = gallery.shelves[-1]
    where = f"Levels of {gallery.run.path.resolve().name}, seed {gallery.seed}, the highest score first."
    n_places = max(len(shelf.pictures) for shelf in gallery.shelves)
    tiles = []
    for i in range(n_places):
        there = i < len(newest.pictures)
        score, words = newest.captions[i] if there else ("", "")
        picture = tag("img", src=urls[newest.pictures[i]] if there else None, alt=f"level {i + 1}")
        tiles.append(tag("figure", picture, tag("figcaption", tag("b", score), tag("span", words)), hidden=not there))
    content = {
        "images": urls,
        "shelves": [
            {
                "title": f"update {shelf.update:,}",
                "told": shelf.told,
                "levels": [[picture, *words] for picture, words in zip(shelf.pictures, shelf.captions, strict=True)],
            }
            for shelf in gallery.shelves
        ],
    }
    told = tag("p", tag("output", f"update {newest.update:,}"), " ", tag("span", newest.told), class_="told")
    return tag(
        "div",
        tag("p", where, class_="note"),
        stepper(len(gallery.shelves), len(gallery.shelves) - 1, "checkpoint") if len(gallery.shelves) > 1 else None,
        told,
        tag("div", tiles, class_="tiles"),
        notes(gallery.notes),
        json_block(id_, content),
        class_="gallery",
        data_content=id_,
    )


def stepper(n: int, at: int, what: str, *more: Html) -> Html:
    """A slider over `n` things with buttons for one back and one forth. The page's script shows it."""
    return tag(
        "div",
        tag("button", "◀", type="button", class_="back", aria_label=f"{what} before", title=f"{what} before"),
        more,
        tag("button", "▶", type="button", class_="forth", aria_label=f"next {what}", title=f"next {what}"),
        tag("input", type="range", min="0", max=n - 1, value=at, step="1", aria_label=what),
        class_="stepper",
        hidden=True,
    )
