"""The settings of `minimax-report`, from the command line."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from minimax_lib.config.flags import runs_and_flags
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.plot import Settings as FigureSettings
from minimax_lib.config.train import check_cache, check_path
from minimax_lib.config.tree import build
from minimax_lib.config.values import Words
from minimax_lib.messages import shown

USAGE = """Writes a report of runs: one HTML file that opens without a network.
Runs come first, then flags. The runs of one method are pooled as seeds.
* minimax-report runs/my-run
* minimax-report runs/* --out report.html
* minimax-report --label "DR=runs/dr-*" "PLR=runs/plr-*"
* minimax-report runs/* --tasks benchmark        episodes on more tasks"""

ENDING = ".html"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which runs, and what the report shows of them."""

    run: tuple[str, ...] = ()
    """Folders of runs. They may also be named first, without this flag."""
    label: tuple[str, ...] = ()
    """NAME=PATTERN: runs in folders that match the pattern (as runs/dr-*), under this name. Put it in quotes."""
    by: tuple[str, ...] = ()
    """Settings that make groups of the other runs, as runner.replay_prob. Empty: the method, and all that differs in
    it."""
    out: str = "report.html"
    """The file. One that is there and was not written by minimax-report is kept; the new one gets a number."""
    title: str = ""
    """Title of the report; empty: the methods and how many runs there are."""
    x: Literal["updates", "env_steps", "seconds"] = "updates"
    """What curves are drawn against."""
    tasks: tuple[str, ...] = ()
    """Held-out tasks, or groups of them, of which the report shows an episode; empty: validation. More tasks take
    longer, and make the file larger."""
    greedy: bool = False
    """Take the most likely action in these episodes; otherwise actions are sampled, as in the published evaluations."""
    n_levels: int = 12
    """Levels in a gallery of the level buffer; 0: no galleries."""
    n_checkpoints: int = 12
    """Checkpoints that a gallery goes through: the first, the newest, and others evenly between them."""
    episodes: bool = True
    """Play episodes."""
    plugins: tuple[str, ...] | None = None
    """Modules to import first, which register what the runs use; what a run's folder names is never imported by itself.
    None: a run with plugins is refused."""
    compilation_cache: str = "auto"
    """Folder that keeps compiled programs: auto (your cache folder, or $JAX_COMPILATION_CACHE_DIR), none, or a path."""

    def __post_init__(self) -> None:
        if not self.run and not self.label:
            raise ValueError("no run is given: name their folders first, as in minimax-report runs/*")
        FigureSettings(run=self.run, label=self.label)  # which runs: the same rules
        self._check_out()
        check_cache(self.compilation_cache)
        for name, least in (("n_levels", 0), ("n_checkpoints", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least {least}")

    def _check_out(self) -> None:
        check_path("out", self.out)
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

    @property
    def patterns(self) -> tuple[tuple[str, str], ...]:
        """(name, pattern of folders) of each label."""
        return FigureSettings(run=self.run, label=self.label).patterns


def parse(words: Sequence[str]) -> Settings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = runs_and_flags(words)
    if "by" in tree:  # hyphens do for underscores, as in flags
        tree["by"] = Words(word.replace("-", "_") for word in tree["by"])
    settings: Settings = build(Settings, tree)
    return settings


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    show_flags(USAGE, list(sections(Settings(run=("runs/my-run",)), "The report", {}, first=first)))
