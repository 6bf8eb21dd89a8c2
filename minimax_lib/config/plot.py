"""The settings of `minimax-plot`, from the command line."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NoReturn

from minimax_lib.config.flags import runs_and_flags
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.train import check_folders, check_path
from minimax_lib.config.tree import build
from minimax_lib.config.values import Words
from minimax_lib.messages import is_plain, shown
from minimax_lib.registry import unknown_name

USAGE = """Draws figures of runs, for papers: a picture and its numbers (CSV) for each.
Runs come first, then flags. The runs of one method are pooled as seeds.
* minimax-plot runs/*                            everything that can be drawn
* minimax-plot runs/* --format pdf --baseline dr
* minimax-plot --label "DR=runs/dr-*" "PLR=runs/plr-*"
* minimax-plot runs/* --by runner.replay_prob --figures curves"""

FIGURES = {
    "curves": "learning curves",
    "complexity": "level metrics of what was trained on",
    "held_out": "bars by held-out task",
    "aggregates": "mean, median, IQM and optimality gap over tasks",
    "improvement": "probability of improvement between methods",
    "profiles": "performance profiles",
    "gap": "training levels against held-out tasks",
    "relative": "return minus that of the --baseline",
    "replay": "how replay is spread over the difficulty of levels",
}
FORMATS = ("png", "pdf", "svg")
LONGEST_LABEL = 100  # characters


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which runs, which figures of them, and how they look."""

    run: tuple[str, ...] = ()
    """Folders of runs. They may also be named first, without this flag."""
    label: tuple[str, ...] = ()
    """NAME=PATTERN: runs in folders that match the pattern (as runs/dr-*), under this name. Put it in quotes."""
    by: tuple[str, ...] = ()
    """Settings that make groups of the other runs, as runner.replay_prob. Empty: the method, and all that differs in
    it."""
    figures: tuple[str, ...] = tuple(FIGURES)
    """What to draw."""
    out: str = "plots"
    """Folder for the figures. A file that is there and was not written by minimax-plot is kept; the new one gets a
    number."""
    format: tuple[str, ...] = ("png",)
    """Formats of the pictures: png, pdf, svg."""
    metrics: tuple[str, ...] = ()
    """Learning curves to draw: columns of metrics.csv, and held_out/COLUMN or held_out/TASK/COLUMN of eval.csv.
    Empty: return, solved_rate, held_out/solved_rate."""
    x: Literal["updates", "env_steps", "seconds"] = "updates"
    """What curves are drawn against."""
    smooth: int = 1
    """Log intervals over which curves of the training are averaged (moving mean, each seed by itself); 1: none."""
    score: str = "solved_rate"
    """Column of evaluations that is compared: solved_rate, return, or another one."""
    optimum: float = 1.0
    """The score above which a task counts as done, for the optimality gap."""
    tasks: tuple[str, ...] = ()
    """Held-out tasks to look at; empty: all but TrainingDistribution."""
    held_out: str = "auto"
    """Where scores come from: a name or pattern of the files in evaluations/ (of minimax-evaluate), or eval.csv (the
    last evaluation of the training). auto: the evaluation that all runs have in common, else eval.csv."""
    baseline: str = ""
    """The group that others are compared with, by its label."""
    difficulty: str = ""
    """Level metric that is the difficulty in the figure of replay; empty: shortest_path, or the first there is."""

    def __post_init__(self) -> None:
        if not self.run and not self.label:
            raise ValueError("no run is given: name their folders first, as in minimax-plot runs/*")
        check_folders(self.run, self.out, "plots")
        check_names("figures", self.figures, tuple(FIGURES))
        check_names("format", self.format, FORMATS)
        if self.smooth < 1:
            raise ValueError(f"smooth is {self.smooth}: it must be at least 1")
        if not 0 < self.optimum < float("inf"):
            raise ValueError(f"optimum is {self.optimum}: it must be positive and finite")
        names = [name for name, _ in self.patterns]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"label {shown(name)} is given twice: give it one pattern")

    @property
    def patterns(self) -> tuple[tuple[str, str], ...]:
        """(name, pattern of folders) of each label."""
        return tuple(map(_name_and_pattern, self.label))


def _name_and_pattern(label: str) -> tuple[str, str]:
    name, equals, pattern = label.partition("=")
    if not (name and equals and pattern):
        raise ValueError(f"label is {shown(label)}: it must be NAME=PATTERN, as in 'DR=runs/dr-*'")
    if not is_plain(name) or len(name) > LONGEST_LABEL:
        raise ValueError(f"label is {shown(name)}: it must be one line of at most {LONGEST_LABEL} characters")
    check_path("label", pattern)
    return name, pattern


def check_names(setting: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    if not given:
        raise ValueError(f"{setting} is empty: choose from {', '.join(allowed)}")
    for name in given:
        if name not in allowed:
            raise unknown_name(setting, name, allowed)


def parse(words: Sequence[str]) -> Settings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = runs_and_flags(words)
    for name in ("by", "figures"):
        # Hyphens do for underscores, as in flags.
        if name in tree:
            tree[name] = Words(word.replace("-", "_") for word in tree[name])
    settings: Settings = build(Settings, tree)
    return settings


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    notes = {"figures": "; ".join(f"{name}: {meaning}" for name, meaning in FIGURES.items()) + "."}
    show_flags(USAGE, list(sections(Settings(run=("runs/my-run",)), "The figures", notes, first=first)))
