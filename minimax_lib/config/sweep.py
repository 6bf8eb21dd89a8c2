"""A sweep: a file of lists and ranges, and the runs (trials) that it asks for."""

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

from minimax_lib.config.files import read_yaml
from minimax_lib.config.flags import split_flags
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.runs import merged
from minimax_lib.config.shipped import located, shipped_sweeps
from minimax_lib.config.train import Config, check_path, from_dict, to_dict
from minimax_lib.config.tree import NAME, Tree, build, flat, overlay, setting_hints, to_tree
from minimax_lib.config.values import Words
from minimax_lib.messages import is_plain, shortened, shown
from minimax_lib.registry import unknown_name

USAGE = """Trains every trial that FILE asks for, each as a run of its own, and prints them sorted by validation score.
FILE is a sweep (YAML), or the name of a shipped one (minimax-train --list sweeps).
* minimax-sweep FILE                  starts the sweep, or goes on with it
* minimax-sweep FILE --dry-run        shows the trials
* minimax-sweep FILE --table          the table so far
* minimax-sweep FILE --slurm out.sh   an array script for Slurm
The file's own keys are flags too: --settings.n-updates 1000, --vary.ppo.lr 1e-4 3e-4."""
SWITCHES = ("dry_run", "table")  # flags that need no value, so that FILE may follow them
TREES = ("config", "settings", "vary")  # keys of a file that have no type of their own
RESERVED = ("log_dir", "name", "resume", "distributed", "hosts")  # settings of a run that the sweep decides
MOST_TRIALS = 10_000
DIGITS = 4  # significant ones of a number that is drawn or spaced: names of folders and tables stay readable

Number = int | float


@dataclasses.dataclass(frozen=True)
class Command:
    """What to do with a sweep."""

    jobs: int = 1
    """Trials that are trained at a time. On a CPU each gets its share of the cores."""
    dry_run: bool = False
    """Only show the trials, with what has become of them."""
    table: bool = False
    """Only print the table so far, and write sweep.csv."""
    trial: int | None = None
    """Train this trial alone, by its number in --dry-run."""
    slurm: str | None = None
    """Only write a script to this file, which `sbatch` runs as one task a trial."""

    def __post_init__(self) -> None:
        for name in ("jobs", "trial"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        asked = [name for name in ("dry_run", "table", "trial", "slurm") if getattr(self, name)]
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked)} are both given: leave out all but one")
        if self.jobs > 1 and asked:
            raise ValueError(f"jobs is {self.jobs}, which means nothing with {asked[0]}: leave one of them out")
        if self.slurm is not None:
            check_path("slurm", self.slurm)
            if not self.slurm:
                raise ValueError("slurm is '': it must be the file to write, as in --slurm sweep.sh")


@dataclasses.dataclass(frozen=True)
class ScoreSettings:
    """The validation score, which trials are sorted by: a mean over held-out tasks."""

    tasks: tuple[str, ...] = ("validation",)
    """Held-out tasks, or groups of them. Each trial must be evaluated on them (its setting eval.tasks)."""
    measure: Literal["solved_rate", "return"] = "solved_rate"
    """What is averaged over the tasks."""
    evaluation: Literal["last", "best"] = "last"
    """Which evaluation of the run counts: the last, or the one with the highest mean over seeds. The best of many is
    too high by chance: compare trials by it that were evaluated equally often."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("score.tasks is empty: name at least one")


@dataclasses.dataclass(frozen=True)
class Plan:
    """How trials are made, sorted and kept."""

    search: Literal["grid", "random"] = "grid"
    """All combinations of what is in `vary`, or random ones."""
    n_trials: int | None = None
    """Random ones, of each configuration. More of them later leave the first ones as they are."""
    seed: int = 0
    """Seed of the random ones."""
    score: ScoreSettings = dataclasses.field(default_factory=ScoreSettings)
    """What trials are sorted by."""
    log_dir: str = "runs/sweeps"
    """Folder of the sweeps' folders."""
    name: str = ""
    """Name of the sweep's folder; empty: that of the file."""

    def __post_init__(self) -> None:
        if self.search == "grid" and self.n_trials is not None:
            raise ValueError(f"n_trials is {self.n_trials}, which is for search: random only (a grid has them all)")
        if self.search == "random" and self.n_trials is None:
            raise ValueError("n_trials is missing: say how many random trials there are to be")
        if self.n_trials is not None and not 1 <= self.n_trials <= MOST_TRIALS:
            raise ValueError(f"n_trials is {self.n_trials}: it must be between 1 and {MOST_TRIALS:,}")
        for name in ("log_dir", "name"):
            check_path(name, getattr(self, name))
        if not self.log_dir:
            raise ValueError("log_dir is '': it must be a folder, as runs/sweeps (the current one is .)")
        if self.name != Path(self.name).name or self.name == "..":
            raise ValueError(f"name is {shown(self.name)}: it must be the name of a folder, without the way to it")


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole numbers if both ends are."""

    low: Number
    high: Number
    log: bool = False
    """Evenly spread logarithms."""
    n: int | None = None
    """Of a grid: how many."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"low is {self.low} and high is {self.high}: both must be finite")
        if self.low >= self.high:
            raise ValueError(f"low is {self.low}: it must be less than high, which is {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}: with log it must be positive")
        if self.n is not None and not 2 <= self.n <= MOST_TRIALS:
            raise ValueError(f"n is {self.n}: it must be between 2 and {MOST_TRIALS:,}")

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.is_whole else math.inf

    def spaced(self) -> list[Number]:
        """`n` values, evenly spaced, from low to high."""
        assert self.n is not None
        inner = [self._rounded(self._between(self.high, i / (self.n - 1))) for i in range(1, self.n - 1)]
        return [self.low, *inner, self.high]

    def drawn(self, share: float) -> Number:
        """The value that a uniform number in [0, 1) stands for."""
        if not self.is_whole:
            return self._rounded(self._between(self.high, share))
        # The last whole number must be as likely as the others: up to the one after it, rounded down.
        return min(math.floor(self._between(self.high + 1, share)), int(self.high))

    def _between(self, high: Number, share: float) -> float:
        """What lies at `share` of the way from low to `high`."""
        return self.low * (high / self.low) ** share if self.log else self.low + (high - self.low) * share

    def _rounded(self, value: float) -> Number:
        # Within the ends, which may have more digits than are kept.
        return round(value) if self.is_whole else min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Choices = list[Any] | Range


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a file asks for."""

    plan: Plan
    bases: dict[str, Tree]  # label -> the configuration that trials start from
    fixed: Tree
    vary: dict[str, Choices]  # dotted name -> values
    source: Tree  # the file itself

    @property
    def whole(self) -> Tree:
        """The file with every key: another file that says the same."""
        return {key: self.source.get(key) for key in TREES} | to_tree(self.plan)

    @property
    def folder(self) -> Path:
        return Path(self.plan.log_dir) / self.plan.name


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    number: int  # from 1
    label: str  # of what it starts from; empty where there is only one
    asked: Tree  # all that was asked for, on top of the defaults
    config: Config
    varied: dict[str, Any]  # dotted name -> its value in this trial

    def __str__(self) -> str:
        said = [self.label] if self.label else []
        return ", ".join(said + [f"{name}={as_text(value)}" for name, value in self.varied.items()])


def parse(words: Sequence[str]) -> tuple[Command, str, Tree]:
    """(what to do, the file, what flags say of its keys); ValueError in one line for bad input. `--help` exits."""
    if {"-h", "--help"} & set(words):
        show_help()
    files: list[str] = []
    flags: list[str] = []
    for word in words:
        takes_none = not flags or flags[-1].removeprefix("--").replace("-", "_") in SWITCHES
        (files if takes_none and not word.startswith("--") else flags).append(word)
    if len(files) != 1:
        what = f"{len(files)} files are named, {', '.join(map(shown, files))}" if files else "no file is named"
        raise ValueError(f"{what}: name one sweep first, as in minimax-sweep {next(iter(shipped_sweeps()), 'FILE')}")
    command: Tree = {}
    keys: Tree = {}
    for name, values in split_flags(flags):
        first, _, rest = name.partition(".")
        if first in known_keys():
            keys = overlay(
                keys, {first: {rest: _of_words(first, values)}} if rest else {first: _of_words(first, values)}
            )
        else:
            command[name] = values
    try:
        return build(Command, command), files[0], keys
    except ValueError as error:
        names = setting_hints(Command)
        strange = next((name for name in command if name not in names), None)
        if strange is None:
            raise
        raise unknown_name("flag", strange, [*names, *known_keys()]) from error


def known_keys() -> list[str]:
    """The keys of a file."""
    return [*TREES, *setting_hints(Plan)]


def _of_words(key: str, words: Words) -> Any:
    """What words on the command line would be in the file."""
    values = [_plain(word) for word in words]
    if key == "vary" and not (len(values) == 1 and isinstance(values[0], dict)):
        return values
    return True if not values else values[0] if len(values) == 1 else values


def _plain(word: str) -> Any:
    try:
        return yaml.safe_load(word)
    except (yaml.YAMLError, ValueError):
        return word


def show_help() -> NoReturn:
    """Prints the flags and the keys of a file, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    keys = (
        Flag("--config", "NAME", "What every trial starts from: a shipped configuration, or a file."),
        Flag("--settings.SETTING", "VALUE", "A setting of every trial, as --settings.n-seeds 5."),
        Flag("--vary.SETTING", "VALUE ...", "Its values in the trials, or '{low: 1e-5, high: 1e-3, log: true}'."),
    )
    notes = {"score.tasks": "`minimax-train --list tasks` shows what there is."}
    command = sections(Command(), "What to do", {}, first=first)
    show_flags(USAGE, [*command, *sections(Plan(), "The keys of FILE", notes, first=keys)])


def located_sweep(name: str) -> Path:
    """The file called `name`: a path, or else the name of a shipped sweep; ValueError if there is neither."""
    path = Path(name)
    if path.exists():
        return path
    known = shipped_sweeps()
    short = name.removeprefix("sweeps/").removesuffix(".yaml")
    if short in known:
        return known[short]
    neighbours = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
    raise unknown_name("sweep", name, [*neighbours, *known])


def read_sweep(name: str, flags: Tree | None = None) -> Sweep:
    """The sweep in a file, or a shipped one by its name; `flags` win over the file. ValueError in one line."""
    path = located_sweep(name)
    said = {"name": path.stem} | read_yaml(path)
    try:
        return sweep_of(_overlaid(said, flags or {}))
    except ValueError as error:
        raise ValueError(f"sweep {shown(name)}: {error}") from None


def _overlaid(said: Tree, flags: Tree) -> Tree:
    """What the file says, with what flags say differently."""
    tree = said | flags
    for key in ("settings", "vary", "score"):
        if key in said and key in flags:
            below, above = _mapping(said[key], key), _mapping(flags[key], key)
            # In the same way of writing, or `ppo.lr` would not take the place of the `lr` in `ppo`.
            tree[key] = overlay(nested(below, key), nested(above, key)) if key == "settings" else below | above
    return tree


def sweep_of(tree: Tree) -> Sweep:
    """The sweep that plain values describe; ValueError in one line."""
    for key in tree:
        if key not in known_keys():
            raise unknown_name("key", key, known_keys())
    plan = build(Plan, {key: value for key, value in tree.items() if key not in TREES})
    fixed = nested(_mapping(tree.get("settings"), "settings"), "settings")
    _refuse_reserved("settings", flat(fixed))
    vary = {str(name): choices(name, value, plan) for name, value in _mapping(tree.get("vary"), "vary").items()}
    _refuse_reserved("vary", vary)
    for name in vary:
        if name in flat(fixed):
            raise ValueError(f"{name} is in settings and in vary: leave it out of one of them")
    bases = {label: base_of(base, fixed) for label, base in labelled(tree.get("config")).items()}
    return Sweep(plan, bases, fixed, vary, tree)


def _mapping(value: Any, key: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {shown(value)}: it must hold settings, as in {key}: {{ppo.lr: ...}}")
    for name in value:
        if not isinstance(name, str):
            raise ValueError(f"{key} has a setting called {shown(name)}: it must be text, as ppo.lr")
    return value


def _refuse_reserved(key: str, names: Mapping[str, Any]) -> None:
    for name in names:
        if name.split(".")[0] in RESERVED:
            raise ValueError(f"{key}.{name} cannot be set: the sweep gives each trial a folder, and starts it")


def nested(settings: Tree, path: str) -> Tree:
    """`settings` with dotted names written out: `ppo.lr: 1` is `ppo: {lr: 1}`. ValueError for one that comes twice."""
    tree: Tree = {}
    for name, value in settings.items():
        inner: Any = nested(_mapping(value, f"{path}.{name}"), f"{path}.{name}") if isinstance(value, dict) else value
        for part in reversed(name.split(".")):
            inner = {part: inner}
        twice = flat(tree).keys() & flat(inner).keys()
        if twice:
            raise ValueError(f"{path}.{min(twice)} is given twice: give it once")
        tree = overlay(tree, inner)
    return tree


def labelled(value: Any) -> dict[str, str]:
    """Label -> configuration, of one name, a list of names or a mapping."""
    if value is None:
        raise ValueError("config is missing: name what every trial starts from, as in config: maze/dr")
    given = {"": value} if isinstance(value, str) else value
    if isinstance(given, list):
        # The last part is what tells shipped ones apart: maze/dr and maze/plr.
        given = {Path(str(name)).stem: name for name in given}
    fits = isinstance(given, dict) and given and len(given) == (len(value) if isinstance(value, list) else len(given))
    if not fits or not all(isinstance(part, str) for pair in given.items() for part in pair) or "" in given.values():
        raise ValueError(
            f"config is {shown(value)}: it must be a name, as maze/dr, or several (label: name), each once"
        )
    for label in given:
        if not is_plain(label) or set(label) & set("/ ,"):
            raise ValueError(f"config has the label {shown(label)}: it must be a word that can name a folder")
    return given if len(given) > 1 else {"": next(iter(given.values()))}


def base_of(name: str, fixed: Tree) -> Tree:
    """What the configuration called `name` says, without where its runs go; `fixed` are the settings of all trials."""
    path = located(name)
    said = merged([(path, read_yaml(path))], fixed)
    return {key: value for key, value in said.items() if key not in RESERVED}


def choices(name: str, value: Any, plan: Plan) -> Choices:
    """The values of a setting; ValueError where there is none, or one twice."""
    if isinstance(value, dict) and NAME not in value:
        found = _range(value, f"vary.{name}.")
        if plan.search == "grid" and found.n is None:
            raise ValueError(f"vary.{name}.n is missing: say how many values of the range the grid has")
        if plan.search == "random" and found.n is not None:
            raise ValueError(f"vary.{name}.n is {found.n}, which is for a grid only: leave it out")
        if plan.search == "random":
            return found
        value = found.spaced()
    if not isinstance(value, list) or not value:
        raise ValueError(
            f"vary.{name} is {shown(value)}: it must be a list of values, or a range {{low: ..., high: ...}} "
            "(one value for all trials goes to settings)"
        )
    twice = [item for i, item in enumerate(value) if item in value[:i]]
    if twice:
        raise ValueError(f"vary.{name} has {shown(twice[0])} twice: give each value once")
    return value


def _range(value: Tree, path: str) -> Range:
    try:
        found: Range = build(Range, value, path)
    except ValueError as error:
        # A rule of the range itself names only its own part.
        known = str(error).startswith((path, "unknown"))
        raise ValueError(str(error) if known else f"{path}{error}") from None
    return found


def trials(sweep: Sweep, check: Callable[[Config], None]) -> list[Trial]:
    """All trials in their order, each found to be possible; ValueError in one line, which names the trial and setting.

    `check` raises ValueError for a configuration whose parts do not fit together.
    """
    found: list[Trial] = []
    known: dict[str, Trial] = {}
    several = len(sweep.bases) > 1
    combinations = list(_combinations(sweep))
    pairs = itertools.product(sweep.bases.items(), combinations)
    for number, ((label, base), values) in enumerate(pairs, start=1):
        varied = dict(zip(sweep.vary, values, strict=True))
        # The varied ones first: a setting goes with the name that is chosen beside it, in whatever order they stand.
        above = functools.reduce(overlay, (nested({name: value}, "vary") for name, value in varied.items()), Tree())
        asked = overlay(overlay(base, sweep.fixed), above)
        trial = _checked(Trial(number, label if several else "", asked, Config(), varied), sweep, check)
        same = known.setdefault(repr(to_dict(trial.config)), trial)
        if same is not trial:
            raise ValueError(f"trials {same.number} and {number} are the same run ({same}; {trial}): leave one out")
        found.append(trial)
    return found


def _checked(trial: Trial, sweep: Sweep, check: Callable[[Config], None]) -> Trial:
    """The trial with its configuration, and with its values as this has them."""
    try:
        config = from_dict(trial.asked)
        if not config.eval.every:
            raise ValueError("eval.every is 0: trials are sorted by evaluations, so that it must be at least 1")
        check(config)
    except ValueError as error:
        which = f" ({shortened(str(trial), 200)})" if str(trial) else ""
        raise ValueError(f"trial {trial.number}{which}: {error}") from None
    values = flat(to_dict(config))
    # A group that is chosen by name has no value of its own: what was asked for is shown.
    varied = {name: values.get(name, values.get(f"{name}.{NAME}", value)) for name, value in trial.varied.items()}
    return dataclasses.replace(trial, config=config, varied=varied)


def _combinations(sweep: Sweep) -> Iterator[tuple[Any, ...]]:
    """The values of what is varied, trial by trial; ValueError where there are too many or too few."""
    kinds = list(sweep.vary.values())
    n_all = math.prod(kind.size if isinstance(kind, Range) else len(kind) for kind in kinds)
    if sweep.plan.search == "grid":
        if n_all * len(sweep.bases) > MOST_TRIALS:
            raise ValueError(f"the grid has {n_all * len(sweep.bases):,} trials: they must be {MOST_TRIALS:,} at most")
        yield from itertools.product(*(kind for kind in kinds if isinstance(kind, list)))
        return
    n_trials = sweep.plan.n_trials or 0
    if not kinds:
        raise ValueError("vary is empty: a random search needs something to draw")
    if n_trials * len(sweep.bases) > MOST_TRIALS:
        raise ValueError(f"the search has {n_trials * len(sweep.bases):,} trials: they must be {MOST_TRIALS:,} at most")
    if n_trials > n_all:
        raise ValueError(f"n_trials is {n_trials}: vary has only {n_all} different trials")
    # A stream for each setting, by its name: it does not matter in which order they stand in the file.
    streams = [random.Random(f"{sweep.plan.seed}/{name}") for name in sweep.vary]
    seen: list[tuple[Any, ...]] = []
    while len(seen) < n_trials:
        values = tuple(_drawn(kind, stream.random()) for kind, stream in zip(kinds, streams, strict=True))
        if values not in seen:
            seen.append(values)
            yield values


def _drawn(kind: Choices, share: float) -> Any:
    """What a uniform number in [0, 1) stands for."""
    return kind.drawn(share) if isinstance(kind, Range) else kind[int(share * len(kind))]


def as_text(value: Any) -> str:
    """A value of a setting, for tables and names."""
    if isinstance(value, dict):
        return " ".join([as_text(value.get(NAME, "")), *(f"{k}={as_text(v)}" for k, v in value.items() if k != NAME)])
    if isinstance(value, list | tuple):
        return " ".join(map(as_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
