"""The settings of an evaluation of trained runs, from the command line."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from minimax_lib.config.common import Grouped, refuse_ignored, with_underscores
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.paths import check_cache_folder, check_no_home, check_path
from minimax_lib.config.train import Config
from minimax_lib.config.tree import Tree, build
from minimax_lib.config.words import runs_and_flags
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.evaluation.robustness import RobustProtocol
from minimax_lib.messages import shown

USAGE = """Evaluates trained runs on held-out tasks: a table, and a CSV file in each run's folder.
* minimax-evaluate --run runs/x                  the benchmark of the papers
* minimax-evaluate --run runs/x --tasks all --greedy
* minimax-evaluate --run runs/x --robust         solved rate on the worst levels
* minimax-evaluate --run runs/x --scores --n-levels 2000    which score finds levels to learn from
* minimax-evaluate --run runs/x-s0 runs/x-s1     several runs, pooled as seeds
* minimax-evaluate --compare runs/*              methods side by side, each with its runs pooled as seeds
* minimax-evaluate --compare runs/* --by runner.replay_prob
* minimax-evaluate --label "DR=runs/dr-*" "PLR=runs/plr-*" --robust
* minimax-evaluate --run runs/x --opponents random bank      games for two: wins, draws and losses
* minimax-evaluate --run nmmo/mini --opponents random bot    worlds of many agents: how all fare side by side"""
NOTE_ON_TASKS = "`minimax-train --list tasks` shows what there is for each environment."

RANDOM, BOT, BANK = "random", "bot", "bank"  # opponents that are not runs
EPISODES_ON_TASKS, EPISODES_ON_LEVELS = 100, RobustProtocol.n_episodes
EPISODES_FOR_SCORES = 20

# Settings that one of the two kinds of evaluation has no use for.
ONLY_TASKS: tuple[str, ...] = ("tasks", "protocol")
ONLY_ROBUST: tuple[str, ...] = ("n_levels",)
ONLY_COMPARED: tuple[str, ...] = ("by", "out")
ONLY_OPPONENTS: tuple[str, ...] = ("most_steps",)


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(Grouped):
    """What to evaluate, on what, and how."""

    run: tuple[str, ...] = ()
    """Folders of runs, or names of trained agents (`minimax-train --list agents`). Several are pooled as seeds, and
    must be of one configuration. They may also be named first, without this flag."""
    compare: tuple[str, ...] = ()
    """Instead of --run: runs and agents of several methods, which are put side by side. Runs of one method are pooled
    as seeds; --label and --by make other groups, as for minimax-plot. An evaluation that is in a run's folder and was
    made in the same way is used."""
    tasks: tuple[str, ...] = ("benchmark",)
    """Held-out tasks, or a group of them: benchmark (of the papers), validation, all. training_list: the run's own list
    of levels (--runner tasks, or plr with --runner.generator finite)."""
    levels: tuple[str, ...] = ()
    """Instead of held-out tasks: files of your own levels, or folders of them. AMaze reads mazes as text (.txt) and as
    arrays of NumPy (.npz)."""
    opponents: tuple[str, ...] = ()
    """Play a game for two against these, on the held-out tasks and in both seats: random, bot (the environment's
    script), bank (the copies of the student that the run keeps), folders of runs, their checkpoints, or names of
    trained agents. With several, all meet all, and there are Elo ratings. In a world of many agents, all share the
    seats in equal parts, dealt out anew in each world."""
    n_episodes: int | None = None
    """Episodes on each held-out task, for each seed; none: 100, and with --robust 10 on each level, with --scores 20.
    With --opponents, so many in each seat."""
    greedy: bool = False
    protocol: str | None = None
    """Published rules of the held-out tasks, where there are several (AMaze: minimax, dcd); none: their default."""
    checkpoint: int | Literal["latest"] = "latest"
    """The checkpoint, by its number of updates."""
    student: int = 0
    robust: bool = False
    """Instead of held-out tasks, play random levels that can be solved, and report the solved rate on the worst of
    them: one evaluation ranks the levels, and a second one gives the rate (CVaR; Rutherford et al. 2024)."""
    scores: bool = False
    """Instead of held-out tasks, play random levels, and report how each score of levels goes with p (1 - p), with the
    exact regret and with being solvable, from whole episodes: a table, a row for each level, and a picture."""
    n_levels: int = RobustProtocol.n_levels
    """Levels with --robust or --scores."""
    most_steps: int = 1_000_000_000
    """Environment steps that the games of --opponents may take. If those of all pairs may take more, pairs are drawn at
    random."""
    seed: int = 0
    """Seed of the evaluation."""
    out: str = "comparison.csv"
    """File for the numbers of --compare. An existing file is kept; the new one gets a number."""
    plugins: tuple[str, ...] | None = None
    compilation_cache: str = "auto"

    def __post_init__(self) -> None:
        if not self.run and not self.compares:
            raise ValueError("no run is given: name its folder, as in --run runs/my-run")
        for path in self.levels:
            check_path("levels", path)
        if self.run and self.compares:
            other = "compare" if self.compare else "label"
            raise ValueError(f"run is {shown(self.run[0])}, and {other} is given too: name all runs with --{other}")
        for name in ("run", "compare"):
            if not all(getattr(self, name)):
                raise ValueError(f"{name} is '': it must be the folder of a run, as in --{name} runs/my-run")
            for folder in getattr(self, name):
                check_path(name, folder)
        self.check_labels()
        self._check_opponents()
        check_path("out", self.out)
        check_no_home("out", self.out)
        if not self.out.endswith(".csv"):
            raise ValueError(f"out is {shown(self.out)}: it must end with .csv")
        check_cache_folder(self.compilation_cache)
        for name in ("n_levels", "n_episodes", "most_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        for name in ("seed", "student"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 0")

    def _check_opponents(self) -> None:
        for word in self.opponents:
            if not word:
                raise ValueError(f"opponents is '': it must be {RANDOM}, {BOT}, {BANK} or the folder of a run")
            check_path("opponents", word)
            if self.opponents.count(word) > 1:
                raise ValueError(f"opponents is {shown(word)} twice: name it once")
        if self.scores:
            others = ("robust", "opponents", "levels", "compare", "label", "greedy")
            for name in (name for name in others if getattr(self, name)):
                value = shown(getattr(self, name))
                raise ValueError(f"{name} is {value}, which means nothing with --scores: leave one of them out")
        if self.opponents and self.robust:
            raise ValueError("robust is True, which means nothing with --opponents: leave one of them out")

    @property
    def compares(self) -> bool:
        """Whether methods are put side by side."""
        return bool(self.compare or self.label)

    @property
    def episodes(self) -> int:
        """Episodes on each held-out task, or on each level."""
        if self.scores:
            return self.n_episodes or EPISODES_FOR_SCORES
        return self.n_episodes or (EPISODES_ON_LEVELS if self.robust else EPISODES_ON_TASKS)

    def suite_of(self, run: Config) -> Evaluation:
        """The evaluation of a run of this configuration on held-out tasks; ValueError where it has none of them."""
        for path in self.levels:
            if run.env.levels_in is None:
                raise ValueError(
                    f"levels is {shown(path)}, and {type(run.env).__name__} reads no files of levels: leave it out"
                )
            if not (Path(path).exists() or "." in path or "/" in path):  # it would be taken for the name of a task
                raise ValueError(f"levels is {shown(path)}: there is no such file (--tasks names held-out tasks)")
        levels = tuple(f"{path}/" if Path(path).is_dir() else path for path in self.levels)
        suite = Evaluation(
            tasks=levels or self.tasks, n_episodes=self.episodes, greedy=self.greedy, protocol=self.protocol
        )
        return suite.of_run(run.runner)

    @property
    def robust_protocol(self) -> RobustProtocol:
        """The evaluation on random levels."""
        return RobustProtocol(self.n_levels, self.episodes)


def parse(words: Sequence[str]) -> EvaluateSettings:
    """The settings that the command line asks for; ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    tree = with_underscores(runs_and_flags(words), "by")
    settings: EvaluateSettings = build(EvaluateSettings, tree)
    _refuse_ignored(settings, tree)
    return settings


def _refuse_ignored(settings: EvaluateSettings, given: Tree) -> None:
    """ValueError for a flag that is given although this kind of evaluation ignores it."""
    needed = {
        "opponents": f"{RANDOM}, {BOT}, {BANK} or folders of runs",
        "tasks": "held-out tasks or groups of them, such as all",
        "levels": "files of levels, or folders of them",
    }
    for name, what in needed.items():
        if name in given and not getattr(settings, name):
            raise ValueError(f"{name} is empty: it must be {what}")
    only_robust = [(name, "is for --robust and --scores only: add one, or leave it out") for name in ONLY_ROBUST]
    which = "scores" if settings.scores else "robust"
    only_tasks = [(name, f"means nothing with --{which}: leave one of them out") for name in ONLY_TASKS]
    ignored = only_tasks if settings.robust or settings.scores else only_robust
    if not settings.opponents:
        ignored += [(name, "is for --opponents only: add that, or leave it out") for name in ONLY_OPPONENTS]
    if not settings.compares:
        ignored += [(name, "is for --compare only: add that, or leave it out") for name in ONLY_COMPARED]
    if settings.levels:
        ignored += [(name, "means nothing with --levels: leave one of them out") for name in ("tasks", "robust")]
    refuse_ignored(given, ignored)


def show_help() -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    # The name of some run, since there are no settings without one. It is not a default.
    example = EvaluateSettings(run=("runs/my-run",))
    ((title, flags),) = sections(example, "The evaluation", {"tasks": NOTE_ON_TASKS}, first=first)
    run = next(flag for flag in flags if flag.name == "--run")
    needed = dataclasses.replace(run, meaning=run.meaning.replace("(default: runs/my-run)", "(must be given)"))
    show_flags(USAGE, [(title, [needed if flag is run else flag for flag in flags])])
