"""The part of a report that shows levels, checkpoint by checkpoint: the best ones kept, or a teacher's designs."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

from minimax_lib.envs.drawing import PAPER
from minimax_lib.jax_settings import check_jax
from minimax_lib.messages import one_line
from minimax_lib.pictures.galleries import at, facts_of, fresh_levels, has_teacher
from minimax_lib.pictures.html import data_url, part, png
from minimax_lib.pictures.runs import Group, RunTables
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.loaded import KeptLevels, LoadedRun, load_run

if TYPE_CHECKING:
    from markupsafe import Markup

Caption = tuple[str, str]  # a level's score, and what else is known of it
MOST_FACTS = 6  # level metrics in a caption


@dataclasses.dataclass(frozen=True)
class Shelf:
    """Levels of one checkpoint: the best, the highest score first, or designs."""

    update: int
    told: str  # how full the buffer is, or that these are designs
    pictures: tuple[int, ...]  # which of the gallery's pictures
    captions: tuple[Caption, ...]


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Levels of one seed of a run over its checkpoints. No level is drawn twice."""

    what: str  # they are, in words
    run: RunTables
    seed: int
    shelves: tuple[Shelf, ...]
    pictures: tuple[np.ndarray, ...]
    notes: tuple[str, ...]


def opened(run: RunTables, plugins: Sequence[str] | None, update: int | None = None) -> LoadedRun:
    """The run's checkpoint of `update`, or its newest one that can be read; ValueError in one line if there is none."""
    check_jax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a newer checkpoint that is damaged: the report says which one it shows
        return load_run(run.path, plugins, "latest" if update is None else update)


Thing = TypeVar("Thing")


def spread(things: Sequence[Thing], n: int) -> list[Thing]:
    """`n` of the things: the last, the first, and others evenly between them; all if there are fewer."""
    if len(things) <= n:
        return list(things)
    places = np.linspace(len(things) - 1, 0, n).round().astype(int)
    return [things[i] for i in sorted(set(places.tolist()))]


def gallery_of(run: RunTables, plugins: Sequence[str] | None, n_levels: int, n_checkpoints: int) -> Gallery:
    """The gallery of a run's first seed; ValueError in one line where it has no levels, or they cannot be drawn."""
    newest = opened(run, plugins)
    what, shelf_of = shown_of(newest)
    updates = saved_updates(RunFolder(run.path).checkpoints)
    shelves, drawn, told = [], DrawnLevels(newest), []
    for update in spread(updates, n_checkpoints):
        try:
            loaded = newest if update == newest.update else opened(run, plugins, update)
        except ValueError as error:
            told.append(f"The checkpoint of update {update:,} is left out: {one_line(error)}.")
            continue
        shelves.append(shelf_of(loaded, n_levels, drawn))
    return Gallery(what, run, newest.seed, tuple(shelves), tuple(without_margin(drawn.pictures)), tuple(told))


def shown_of(newest: LoadedRun) -> "tuple[str, Callable[[LoadedRun, int, DrawnLevels], Shelf]]":
    """(what a gallery shows of a run, in words, and how); ValueError where it neither keeps nor designs levels."""
    try:
        _ = newest.level_buffer  # refuses at once, before anything is drawn
    except ValueError:
        if not has_teacher(newest):
            raise
        return "Designs of the teacher of", shelf_of_designs
    return "The levels with the highest scores of", shelf_of_best


class DrawnLevels:
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


def shelf_of_best(loaded: LoadedRun, n_levels: int, drawn: DrawnLevels) -> Shelf:
    """The best levels of a checkpoint; ValueError where they cannot be drawn."""
    kept = loaded.level_buffer
    slots = kept.ranked[:n_levels]
    levels = at(kept.levels, slots)
    facts = facts_of(loaded.env, levels, MOST_FACTS) if len(slots) else []
    captions = [caption(kept, int(slot), own) for slot, own in zip(slots, facts, strict=True)]
    told = f"{len(kept):,} levels in {len(kept.filled):,} slots" if len(kept) else "no level is kept yet"
    return Shelf(loaded.update, told, pictures_of(levels, len(slots), drawn), tuple(captions))


def shelf_of_designs(loaded: LoadedRun, n_levels: int, drawn: DrawnLevels) -> Shelf:
    """Designs of a checkpoint's teacher, made with the same random numbers at every checkpoint."""
    levels = fresh_levels(loaded, n_levels, jax.random.key(0))
    captions = [(f"design {i + 1}", unbroken(own)) for i, own in enumerate(facts_of(loaded.env, levels, MOST_FACTS))]
    return Shelf(
        loaded.update, "the same random numbers at all updates", pictures_of(levels, n_levels, drawn), tuple(captions)
    )


def pictures_of(levels: Any, n: int, drawn: DrawnLevels) -> tuple[int, ...]:
    """Which of the pictures show the `n` levels."""
    return tuple(drawn.place(at(levels, i)) for i in range(n))


def caption(kept: KeptLevels, slot: int, facts: str) -> Caption:
    """What is known of a level that is kept."""
    words = []
    if kept.ages is not None:
        words.append(f"age {int(kept.ages[slot]):,}")
    if kept.n_mutations is not None and np.any(kept.n_mutations):
        n = int(kept.n_mutations[slot])
        words.append(f"{n:,} edit{'' if n == 1 else 's'}")
    return f"score {float(kept.scores[slot]):.3f}", unbroken(", ".join([*words, *([facts] if facts else [])]))


def unbroken(facts: str) -> str:
    """The facts, in which lines break only between one and the next."""
    return facts.replace(" ", "\u00a0").replace(",\u00a0", ", ")


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


def levels_part(groups: Sequence[Group], plugins: Sequence[str] | None, n_levels: int, n_checkpoints: int) -> "Markup":
    """A gallery of each group: of its first run that has one."""
    galleries = []
    for place, group in enumerate(groups):
        found: Gallery | None = None
        why: list[str] = []
        for run in group.runs:
            try:
                found = gallery_of(run, plugins, n_levels, n_checkpoints)
                break
            except ValueError as error:
                why.append(one_line(error))
        content = gallery_html(found, f"levels-{place}") if found else part("missing", f"No gallery: {why[0]}.")
        galleries.append((place, group.label, content))
    return part("levels", galleries)


def gallery_html(gallery: Gallery, id_: str) -> "Markup":
    """A gallery with a slider over its checkpoints. Without a script it shows the newest."""
    where = f"{gallery.what} {gallery.run.path.resolve().name}, seed {gallery.seed}."
    shelves = [
        {
            "title": f"update {shelf.update:,}",
            "told": shelf.told,
            "levels": [[picture, *words] for picture, words in zip(shelf.pictures, shelf.captions, strict=True)],
        }
        for shelf in gallery.shelves
    ]
    images = [data_url(png(picture), "image/png") for picture in gallery.pictures]
    return part("gallery", id_, where, {"images": images, "shelves": shelves}, gallery.notes)
