"""A sweep: a file that says where runs start from, and which settings vary among them."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minimax_lib.config.files import read_yaml
from minimax_lib.config.paths import check_no_home, check_path
from minimax_lib.config.runs import merged
from minimax_lib.config.shipped import located, shipped_sweeps
from minimax_lib.config.tree import NAME, Tree, build, flat, overlay, setting_hints, to_tree
from minimax_lib.config.values import MAX_INTEGER, Plain
from minimax_lib.messages import is_plain, shown
from minimax_lib.registry import unknown_name

TREES = ("config", "settings", "vary")  # keys of a file without their own type
RESERVED = ("log_dir", "name", "resume", "distributed", "hosts")  # settings of a run that the sweep decides
EARLIER = {"search": "sampler"}  # names that keys of a file had before
MOST_TRIALS = 10_000
DIGITS = 4  # of a number that is drawn or spaced: names of folders and tables stay readable

Number = int | float


@dataclasses.dataclass(frozen=True)
class Between:
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

    def spaced(self) -> list[Number]:
        """`n` values, evenly spaced, from low to high."""
        assert self.n is not None
        inner = (np.geomspace if self.log else np.linspace)(self.low, self.high, self.n)[1:-1]
        return [self.low, *map(self.rounded, inner.tolist()), self.high]

    def rounded(self, value: float) -> Number:
        """`value` with four digits."""
        # Within the ends, which may have more digits.
        return round(value) if self.is_whole else min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Choices = list[Any] | Between  # the values of a setting


@dataclasses.dataclass(frozen=True)
class ScoreSettings:
    """The validation score, which trials are sorted by: a mean over held-out tasks."""

    tasks: tuple[str, ...] = ("validation",)
    """Held-out tasks, or groups of them. Each trial must be evaluated on them (its setting eval.tasks). training_list:
    the trial's own list of levels."""
    measure: Literal["solved_rate", "return"] = "solved_rate"
    """The number that is averaged over the held-out tasks."""
    evaluation: Literal["last", "best"] = "last"
    """Which evaluation of the run counts: the last, or the one with the highest mean over seeds. The best of many is
    too high by chance: compare only trials that were evaluated equally often."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("score.tasks is empty: name at least one")


@dataclasses.dataclass(frozen=True)
class SweepKeys:
    """How trials are chosen, sorted and kept."""

    sampler: Literal["grid", "random", "tpe"] = "grid"
    """All combinations of what is in `vary`, random ones, or those that Optuna's TPE chooses, one after another, by the
    scores so far."""
    n_trials: int | None = None
    """Of random and tpe: trials of each configuration. More of them later leave the first ones as they are."""
    seed: int = 0
    """Seed of random and tpe."""
    pruner: Literal["none", "median", "hyperband"] = "none"
    """Whether trials are ended early when an evaluation is worse than those of other trials at the same update: of
    Optuna, its median rule or Hyperband."""
    score: ScoreSettings = dataclasses.field(default_factory=ScoreSettings)
    """What trials are sorted by."""
    log_dir: str = "runs/sweeps"
    """Folder of the sweeps' folders."""
    name: str = ""
    """Name of the sweep's folder; empty: that of the file."""

    def __post_init__(self) -> None:
        if self.sampler == "grid" and self.n_trials is not None:
            raise ValueError(f"n_trials is {self.n_trials}, which is for random and tpe only (a grid has them all)")
        if self.sampler != "grid" and self.n_trials is None:
            raise ValueError(f"n_trials is missing: say how many trials {self.sampler} is to make")
        if self.n_trials is not None and not 1 <= self.n_trials <= MOST_TRIALS:
            raise ValueError(f"n_trials is {self.n_trials}: it must be between 1 and {MOST_TRIALS:,}")
        if not 0 <= self.seed <= MAX_INTEGER:
            raise ValueError(f"seed is {shown(self.seed)}: it must be between 0 and {MAX_INTEGER}")
        for name in ("log_dir", "name"):
            check_path(name, getattr(self, name))
        check_no_home("log_dir", self.log_dir)
        if not self.log_dir:
            raise ValueError("log_dir is '': it must be a folder, such as runs/sweeps (the current one is .)")
        if self.name != Path(self.name).name or self.name == "..":
            raise ValueError(f"name is {shown(self.name)}: it must be the name of a folder, without the way to it")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a file asks for."""

    keys: SweepKeys
    bases: dict[str, Tree]  # label -> the configuration that trials start from
    fixed: Tree
    vary: dict[str, Choices]  # dotted name -> values
    source: Tree  # the file itself

    @property
    def whole(self) -> Tree:
        """The file with every key: another file that says the same."""
        return {key: self.source.get(key) for key in TREES} | to_tree(self.keys)

    @property
    def folder(self) -> Path:
        return Path(self.keys.log_dir) / self.keys.name


def known_keys() -> list[str]:
    """The keys of a file."""
    return [*TREES, *setting_hints(SweepKeys)]


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
    try:
        said = {"name": path.stem} | renamed(read_yaml(path))
        return sweep_of(_overlaid(said, flags or {}))
    except ValueError as error:
        raise ValueError(f"sweep {shown(name)}: {error}") from None


def renamed(tree: Tree) -> Tree:
    """The keys by the names that they have now; ValueError for one that has both."""
    for earlier, name in EARLIER.items():
        if earlier in tree and name in tree:
            raise ValueError(f"{earlier} and {name} are one key: leave out {earlier}, its earlier name")
    return {EARLIER.get(key, key): value for key, value in tree.items()}


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
    keys = build(SweepKeys, {key: value for key, value in tree.items() if key not in TREES})
    fixed = nested(_mapping(tree.get("settings"), "settings"), "settings")
    _refuse_reserved("settings", flat(fixed))
    vary = {str(name): choices(name, value, keys.sampler) for name, value in _mapping(tree.get("vary"), "vary").items()}
    _refuse_reserved("vary", vary)
    for name in vary:
        if name in flat(fixed):
            raise ValueError(f"{name} is in settings and in vary: leave it out of one of them")
    bases = {label: base_of(base, fixed) for label, base in labelled(tree.get("config")).items()}
    return Sweep(keys, bases, fixed, vary, tree)


def _mapping(value: Any, key: str) -> dict[Any, Any]:
    if value is None or value == Plain():
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {shown(value)}: it must hold settings, as in {key}: {{ppo.lr: ...}}")
    for name in value:
        if not isinstance(name, str):
            raise ValueError(f"{key} has a setting called {shown(name)}: it must be text, such as ppo.lr")
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
            f"config is {shown(value)}: it must be a name, such as maze/dr, or several (label: name), each once"
        )
    for label in given:
        if not is_plain(label) or set(label) & set("/ ,"):
            raise ValueError(f"config has the label {shown(label)}: it must be a word that can name a folder")
    return given if len(given) > 1 else {"": next(iter(given.values()))}


def base_of(name: str, fixed: Tree) -> Tree:
    """What the configuration called `name` says, without where its runs go; `fixed` are the settings of all trials.

    The report at the end of a run is off, unless either says otherwise: in a sweep it is not seen, and it costs a
    compilation.
    """
    path = located(name)
    said = merged([(path, read_yaml(path))], fixed)
    return {"report": False} | {key: value for key, value in said.items() if key not in RESERVED}


def choices(name: str, value: Any, sampler: str) -> Choices:
    """The values of a setting; ValueError where there is none, or one twice."""
    if isinstance(value, dict) and NAME not in value:
        found = _between(value, f"vary.{name}.")
        if sampler == "grid" and found.n is None:
            raise ValueError(f"vary.{name}.n is missing: say how many values of the range the grid has")
        if sampler != "grid" and found.n is not None:
            raise ValueError(f"vary.{name}.n is {found.n}, which is for a grid only: leave it out")
        if sampler != "grid":
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


def _between(value: Tree, path: str) -> Between:
    try:
        found: Between = build(Between, value, path)
    except ValueError as error:
        # A rule of the range itself names only its own part.
        known = str(error).startswith((path, "unknown"))
        raise ValueError(str(error) if known else f"{path}{error}") from None
    return found
