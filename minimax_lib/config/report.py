"""The settings of `minimax-report`, from the command line."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from minimax_lib.config.common import Grouped, refuse_ignored, with_underscores
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.paths import check_cache_folder, check_no_home, check_path
from minimax_lib.config.tree import build
from minimax_lib.config.words import runs_and_flags
from minimax_lib.messages import shown

USAGE = """Writes a report of runs: one HTML file that opens without a network.
Runs come first, then flags. The runs of one method are pooled as seeds.
* minimax-report runs/my-run
* minimax-report runs/* --out report.html
* minimax-report --label "DR=runs/dr-*" "PLR=runs/plr-*"
* minimax-report runs/* --tasks benchmark        episodes on more tasks"""

ENDING = ".html"


@dataclasses.dataclass(frozen=True)
class ReportSettings(Grouped):
    """Which runs, and what the report shows of them."""

    out: str = "report.html"
    """The file. An existing file that minimax-report did not write is kept; the new one gets a number."""
    title: str = ""
    """Title of the report; empty: the methods and how many runs there are."""
    x: Literal["updates", "env_steps", "seconds"] = "env_steps"
    """What curves are drawn against. Methods that score levels take more environment steps for an update than others,
    so only env_steps compares them fairly."""
    tasks: tuple[str, ...] = ()
    """Held-out tasks, or groups of them, of which the report shows an episode; empty: up to four for validation. More
    of them take longer, and make the file larger. training_list: the run's own list of levels."""
    greedy: bool = False
    n_levels: int = 12
    """Levels in a gallery: the best of the level buffer, or designs of the teacher; 0: no galleries."""
    n_checkpoints: int = 12
    """Checkpoints that a gallery goes through: the first, the newest, and others evenly between them."""
    episodes: bool = True
    """Play episodes."""
    plugins: tuple[str, ...] | None = None
    compilation_cache: str = "auto"

    def __post_init__(self) -> None:
        self.check_runs("minimax-report")
        self._check_out()
        check_cache_folder(self.compilation_cache)
        for name, least in (("n_levels", 0), ("n_checkpoints", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least {least}")

    def _check_out(self) -> None:
        check_path("out", self.out)
        check_no_home("out", self.out)
        out = Path(self.out)
        if out.suffix.lower() != ENDING:
            raise ValueError(f"out is {shown(self.out)}: it must be a file whose name ends with {ENDING}")
        if out.is_dir():
            raise ValueError(f"out is {shown(self.out)}: it is a folder")
        for parent in out.parents:
            if parent.exists():
                if not parent.is_dir():
                    raise ValueError(f"out is {shown(self.out)}: {parent} is a file")
                break


def parse(words: Sequence[str]) -> ReportSettings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = with_underscores(runs_and_flags(words), "by")
    settings: ReportSettings = build(ReportSettings, tree)
    of_episodes, of_galleries = ("tasks", "greedy"), ("n_checkpoints",)
    ignored: list[tuple[str, str]] = []
    if not settings.episodes:
        ignored += [(name, "means nothing with --no-episodes: leave one of them out") for name in of_episodes]
    if not settings.n_levels:
        ignored += [(name, "means nothing with --n-levels 0: leave one of them out") for name in of_galleries]
    refuse_ignored(tree, ignored)
    return settings


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    show_flags(USAGE, list(sections(ReportSettings(run=("runs/my-run",)), "The report", {}, first=first)))
