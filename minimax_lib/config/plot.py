"""The settings of `minimax-plot`, from the command line."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NoReturn

from minimax_lib.config.common import Grouped, check_names, check_out_folder, refuse_ignored, with_underscores
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.tree import build
from minimax_lib.config.words import runs_and_flags

USAGE = """Draws figures of runs, for papers: a picture and its numbers (CSV) for each.
Runs come first, then flags. The runs of one method are pooled as seeds.
* minimax-plot runs/*                            everything that can be drawn
* minimax-plot runs/* --format pdf --baseline dr
* minimax-plot --label "DR=runs/dr-*" "PLR=runs/plr-*"
* minimax-plot runs/* --by runner.replay_prob --figures curves
* minimax-plot tasks.csv                         what a curriculum did in your own training: Host(log="tasks.csv")"""

FIGURES = {
    "curves": "learning curves",
    "complexity": "level metrics of what was trained on",
    "held_out": "bars by held-out task",
    "aggregates": "mean, median, IQM and optimality gap over held-out tasks",
    "improvement": "probability of improvement between methods",
    "profiles": "performance profiles",
    "opponents": "wins against opponents that minimax-evaluate --opponents has played",
    "bank": "wins against the copies in the bank over training",
    "gap": "training levels against held-out tasks",
    "relative": "return minus that of the --baseline",
    "replay": "how replay is spread over the difficulty of levels",
    "tasks": "weights and rates of each task, from the log of a Host",
}
FORMATS = ("png", "pdf", "svg")
OF_SCORES = ("held_out", "aggregates", "improvement", "profiles")
OVER_TIME = ("curves", "complexity", "bank", "gap", "relative")
READ_BY = {  # settings that only some of the figures read
    "metrics": ("curves",),
    "x": OVER_TIME,
    "smooth": OVER_TIME,
    "score": (*OF_SCORES, "gap"),
    "optimum": ("aggregates",),
    "tasks": (*OF_SCORES, "curves", "gap", "relative"),
    "held_out": OF_SCORES,
    "baseline": ("improvement", "relative"),
    "difficulty": ("replay",),
}


@dataclasses.dataclass(frozen=True)
class PlotSettings(Grouped):
    """Which runs, which figures of them, and how they look."""

    figures: tuple[str, ...] = tuple(FIGURES)
    """What to draw."""
    out: str = "plots"
    """Folder for the figures. An existing file that minimax-plot did not write is kept; the new one gets a
    number."""
    format: tuple[str, ...] = ("png",)
    """Formats of the pictures: png, pdf, svg."""
    metrics: tuple[str, ...] = ()
    """Learning curves to draw: columns of metrics.csv, and held_out/COLUMN or held_out/TASK/COLUMN of eval.csv.
    Empty: return, solved_rate, held_out/solved_rate."""
    x: Literal["updates", "env_steps", "seconds"] = "env_steps"
    """What curves are drawn against. Methods that score levels take more environment steps for an update than others,
    so only env_steps compares them fairly."""
    smooth: int = 1
    """Log intervals over which curves of the training are averaged (moving mean, each seed alone); 1: none."""
    score: str = "solved_rate"
    """Column of evaluations that is compared: solved_rate, return, or another one."""
    optimum: float = 1.0
    """The score above which a held-out task counts as done, for the optimality gap."""
    tasks: tuple[str, ...] = ()
    """Held-out tasks to look at; empty: all but TrainingDistribution and lists of training."""
    held_out: str = "auto"
    """Where scores come from: a name or pattern of the files in evaluations/ (of minimax-evaluate), or eval.csv (the
    last evaluation of the training). auto: the evaluation that all runs have in common, else eval.csv."""
    baseline: str = ""
    """The group that others are compared with, by its label."""
    difficulty: str = ""
    """Level metric that is the difficulty in the figure of replay; empty: shortest_path, or the first there is."""

    def __post_init__(self) -> None:
        self.check_runs("minimax-plot")
        check_out_folder(self.out, "plots")
        check_names("figures", self.figures, tuple(FIGURES))
        check_names("format", self.format, FORMATS)
        if self.smooth < 1:
            raise ValueError(f"smooth is {self.smooth}: it must be at least 1")
        if not 0 < self.optimum < float("inf"):
            raise ValueError(f"optimum is {self.optimum}: it must be positive and finite")


def parse(words: Sequence[str]) -> PlotSettings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = with_underscores(runs_and_flags(words), "by", "figures")
    settings: PlotSettings = build(PlotSettings, tree)
    ignored = [
        (name, f"is for --figures {' '.join(figures)} only: add {'one' if figures[1:] else 'that'}, or leave it out")
        for name, figures in READ_BY.items()
        if not set(figures) & set(settings.figures)
    ]
    refuse_ignored(tree, ignored)
    return settings


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    notes = {"figures": "; ".join(f"{name}: {meaning}" for name, meaning in FIGURES.items()) + "."}
    show_flags(USAGE, list(sections(PlotSettings(run=("runs/my-run",)), "The figures", notes, first=first)))
