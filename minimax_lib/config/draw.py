"""The settings of `minimax-draw`, from the command line."""

import dataclasses
from collections.abc import Sequence
from typing import NoReturn

from minimax_lib.config.common import Explained, check_names, check_out_folder, check_run_folders, refuse_ignored
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.paths import check_cache_folder
from minimax_lib.config.tree import build
from minimax_lib.config.words import runs_and_flags
from minimax_lib.messages import shown

USAGE = """Draws levels and episodes from the checkpoints of runs. Runs come first, then flags.
* minimax-draw runs/my-run                              everything that the method has
* minimax-draw runs/my-run --what episodes --format mp4 --tasks Labyrinth
* minimax-draw runs/paired --what designs --checkpoints all
* minimax-draw runs/accel --what best --checkpoints all --format gif"""

WHAT = {
    "best": "the levels with the highest scores in the level buffer",
    "sources": "fresh levels, replayed ones, and mutations of these",
    "lineage": "levels with their ancestors (ACCEL with --runner.n-ancestors)",
    "designs": "the teacher's designs, a row for each checkpoint",
    "episodes": "the agent's way through held-out tasks",
}
FORMATS = ("png", "gif", "mp4")
ALL, LATEST = "all", "latest"


@dataclasses.dataclass(frozen=True)
class DrawSettings(Explained):
    """Which checkpoints of which runs, and what to draw from them."""

    run: tuple[str, ...] = ()
    """Folders of runs, or names of trained agents (`minimax-train --list agents`). They may also be named first,
    without this flag."""
    what: tuple[str, ...] = tuple(WHAT)
    """What to draw."""
    checkpoints: tuple[str, ...] = (LATEST,)
    """Checkpoints by their number of updates; latest: the newest; all: every one that the run has kept."""
    tasks: tuple[str, ...] = ()
    """Held-out tasks of the episodes, or groups of them (`minimax-train --list tasks`); empty: up to four for
    validation. training_list: the run's own list of levels."""
    format: tuple[str, ...] = ("png",)
    """Formats: png, gif, mp4. A film of an episode shows every step and the agent's view. One of a lineage goes from
    ancestor to child, and any other from checkpoint to checkpoint. mp4 needs the extra `video`."""
    out: str = "pictures"
    """Folder for the pictures. An existing file that minimax-draw did not write is kept; the new one gets a
    number."""
    n_levels: int = 12
    """Levels in a gallery of the best."""
    columns: int = 6
    """Levels in a row."""
    fps: float | None = None
    """Frames of a film in a second, 100 at most, and 50 of a gif; none: 10 of an episode, 1 of anything else."""
    greedy: bool = False
    seed: int | None = None
    """Which seed of a run; none: the first."""
    student: int = 0
    plugins: tuple[str, ...] | None = None
    compilation_cache: str = "auto"

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("no run is given: name their folders first, as in minimax-draw runs/my-run")
        check_run_folders(self.run)
        check_out_folder(self.out, "pictures")
        check_names("what", self.what, tuple(WHAT))
        check_names("format", self.format, FORMATS)
        check_cache_folder(self.compilation_cache)
        self._check_checkpoints()
        for name in ("n_levels", "columns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.fps is not None and not 0 < self.fps <= 100:
            raise ValueError(f"fps is {self.fps}: it must be positive, and at most 100")

    def _check_checkpoints(self) -> None:
        if not self.checkpoints:
            raise ValueError(f"checkpoints is empty: choose {ALL}, {LATEST}, or numbers of updates")
        for word in self.checkpoints:
            if word not in (ALL, LATEST) and not (word.isascii() and word.isdecimal()):
                raise ValueError(f"checkpoints is {shown(word)}: it must be {ALL}, {LATEST}, or numbers of updates")


def parse(words: Sequence[str]) -> DrawSettings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = runs_and_flags(words)
    settings: DrawSettings = build(DrawSettings, tree)
    drawn = {"tasks": "episodes", "greedy": "episodes", "n_levels": "best"}
    ignored = [
        (name, f"is for --what {what} only: add that, or leave it out")
        for name, what in drawn.items()
        if what not in settings.what
    ]
    if set(settings.format) == {"png"}:
        ignored.append(("fps", "is for films only: add --format gif, or leave it out"))
    refuse_ignored(tree, ignored)
    return settings


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    notes = {"what": "; ".join(f"{name}: {meaning}" for name, meaning in WHAT.items()) + "."}
    show_flags(USAGE, list(sections(DrawSettings(run=("runs/my-run",)), "The pictures", notes, first=first)))
