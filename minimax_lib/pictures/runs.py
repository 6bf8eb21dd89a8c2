"""What run folders say: their settings and tables, and which runs belong together."""

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.config.files import read_yaml
from minimax_lib.config.help import written
from minimax_lib.config.shipped import agent_name, located_run, shipped_agents
from minimax_lib.config.tree import flat
from minimax_lib.files import UnreadableFile
from minimax_lib.registry import unknown_name
from minimax_lib.store.files import UnreadLines
from minimax_lib.store.folder import RunFolder, check_is_run, completed, of_method
from minimax_lib.store.origin import Origin, begun_by_this_version, read_origins
from minimax_lib.store.tables import KEYS as KEY_COLUMNS
from minimax_lib.store.tables import read_table

KEYS = ("update", "clock", "seed", "env_steps", "seconds", "steps_per_second")  # columns that are not metrics
NOT_SET = "not set"

Cells = dict[str, list[str]]  # column -> its cells


@dataclasses.dataclass(frozen=True)
class RunTables:
    """The folder of a run: what `minimax-plot` reads of it."""

    path: Path
    settings: Mapping[str, Any]  # by dotted name

    @functools.cached_property
    def metrics(self) -> dict[int, Cells]:
        """metrics.csv of each seed; empty if there is none."""
        return by_seed(RunFolder(self.path).metrics, KEY_COLUMNS)

    @functools.cached_property
    def evals(self) -> dict[int, Cells]:
        """eval.csv of each seed; empty if there is none."""
        return by_seed(RunFolder(self.path).evaluations, KEY_COLUMNS)

    @functools.cached_property
    def evaluations(self) -> dict[str, dict[int, Cells]]:
        """The tables of minimax-evaluate of each seed, by the names of their files."""
        return _tables(sorted((self.path / "evaluations").glob("*.csv")))

    @functools.cached_property
    def matches(self) -> dict[str, dict[int, Cells]]:
        """The games of each seed against opponents, by the names of their files."""
        files = sorted((self.path / "evaluations" / "matches").glob("*.csv"))
        return _tables([path for path in files if not path.stem.endswith("-matrix")])

    @functools.cached_property
    def origins(self) -> list[Origin]:
        """What it was trained with, one after another; empty for a run of an earlier version."""
        return read_origins(RunFolder(self.path).origin)

    @property
    def seeds(self) -> range:
        """The seeds that the configuration asks for."""
        first, n = self.settings.get("seed", 0), self.settings.get("n_seeds", 1)
        if not (isinstance(first, int) and isinstance(n, int)):
            raise ValueError(f"{self.path / 'config.yaml'} has no whole numbers as seed and n_seeds")
        return range(first, first + n)


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that are pooled as seeds, under the name that figures give them."""

    label: str
    runs: tuple[RunTables, ...]

    @property
    def n_seeds(self) -> int:
        return sum(len(run.seeds) for run in self.runs)


def read_run(path: str | Path) -> RunTables:
    """The run in the folder `path`; ValueError in one line if there is none, or nothing to draw in it."""
    path = located_run(path)
    check_is_run(path)
    folder = RunFolder(path)
    if agent := agent_name(path):
        raise ValueError(f"{agent} ships with its parameters alone: there is nothing to draw of its training")
    if not (folder.metrics.exists() or folder.evaluations.exists()):
        raise ValueError(f"{path} has no {folder.metrics.name}: there is nothing to draw yet")
    return RunTables(path, flat(settings_of(folder)))


def settings_of(folder: RunFolder) -> dict[str, Any]:
    """The settings of a run, all of those that there are today."""
    saved = read_yaml(folder.config)
    # To complete the settings, all of the package and JAX are imported. What this version has written is complete.
    return saved if begun_by_this_version(read_origins(folder.origin)) else completed(saved)


def by_seed(path: Path, keys: Sequence[str] = ("seed",)) -> dict[int, Cells]:
    """The rows of a CSV file, by column, of each seed; empty if there is no file.

    A warning says which rows are left out, as in `read_table`. ValueError in one line where nothing can be read.
    """
    columns, rows = read_table(path, keys)
    found: dict[int, Cells] = {}
    for row in rows:
        cells = found.setdefault(int(float(row["seed"])), {name: [] for name in columns})
        for name, cell in row.items():
            cells[name].append(cell)
    return found


def _tables(paths: Sequence[Path]) -> dict[str, dict[int, Cells]]:
    """The tables by the names of their files. A warning says which files are none."""
    found = {}
    for path in paths:
        try:
            found[path.stem] = by_seed(path)
        except UnreadableFile as error:
            warnings.warn(str(error), UnreadLines, stacklevel=3)
    return found


def numbers(cells: Sequence[str]) -> np.ndarray:
    """f64[T]; NaN where a cell is empty or no number."""
    return np.array([_float(cell) for cell in cells], np.float64)


def _float(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


# ----------------------------------------------------------------------------------------------- which belong together


def find_groups(
    folders: Sequence[str | Path],
    patterns: Sequence[tuple[str, str]] = (),
    by: Sequence[str] = (),
    read: Callable[[Path], RunTables] = read_run,
) -> list[Group]:
    """The runs in `folders`, and those that `patterns` (name, pattern of folders) find, in groups.

    A run that a pattern finds has its name as label. The others are grouped by the settings `by`, or by method. `read`
    opens a folder.
    ValueError in one line for what is not a run, is asked for twice, or would pool a seed with itself.
    """
    paths: dict[Path, Path] = {}  # resolved -> as given
    for folder in map(Path, folders):
        if paths.setdefault(folder.resolve(), folder) is not folder:
            raise ValueError(f"{folder} is named twice: name each run once")
    labels: dict[Path, str] = {}
    for name, pattern in patterns:
        found = _matching(pattern, list(paths.values()))
        if not found:
            beside = [str(path.parent) for path in sorted(Path(pattern).parent.glob("*/config.yaml"))]
            raise unknown_name("pattern", pattern, [str(path) for path in paths.values()] or beside)
        for path in found:
            resolved = path.resolve()
            if labels.setdefault(resolved, name) != name:
                raise ValueError(f"{path} has the label {labels[resolved]!r} and the label {name!r}: give it one")
            paths.setdefault(resolved, path)
    runs = {resolved: read(path) for resolved, path in paths.items()}
    others = [run for resolved, run in runs.items() if resolved not in labels]
    named = {name: [runs[path] for path, label in labels.items() if label == name] for name, _ in patterns}
    for label, members in (labelled_by(others, by) if by else labelled_by_method(others)).items():
        if label in named:
            raise ValueError(f"label {label!r} is of runs that no pattern finds too: choose another name")
        named[label] = members
    groups = [Group(label, tuple(members)) for label, members in named.items()]
    for group in groups:
        check_seeds(group)
    return groups


def _matching(pattern: str, given: Sequence[Path]) -> list[Path]:
    """The folders of runs that a pattern names: of those that are given by path or name, and of those on disk."""
    found = {path.resolve(): path for path in given if fnmatch(str(path), pattern) or fnmatch(path.name, pattern)}
    for path in map(Path, sorted(glob(pattern))):
        # What else lies beside the runs is none of them.
        if (path / "config.yaml").exists():
            found.setdefault(path.resolve(), path)
    # The whole name of a trained agent. As a pattern, * would find agents that are not meant.
    if not found and pattern in shipped_agents():
        return [shipped_agents()[pattern]]
    return list(found.values())


def check_seeds(group: Group) -> None:
    """ValueError if a group has some seed twice."""
    for one, other in itertools.combinations(group.runs, 2):
        # Without counting: a folder may say that it has any number of seeds.
        seed = max(one.seeds.start, other.seeds.start)
        if seed < min(one.seeds.stop, other.seeds.stop):
            raise ValueError(
                f"seed {seed} of {group.label!r} is in {one.path} and in {other.path}: it can be pooled only once "
                "(--by and --label make other groups)"
            )


def labelled_by(runs: Sequence[RunTables], by: Sequence[str]) -> dict[str, list[RunTables]]:
    """The runs by their values of the settings `by` (dotted names), such as `replay_prob=0.5, lr=0.0001`."""
    known = list(dict.fromkeys(name for run in runs for name in run.settings))
    names = []
    for name in by:
        name = f"{name}.name" if f"{name}.name" in known else name
        if runs and name not in known:
            raise unknown_name("setting", name, known)
        names.append(name)
    groups: dict[str, list[RunTables]] = {}
    for run in runs:
        groups.setdefault(phrase(names, run.settings), []).append(run)
    return groups


def labelled_by_method(runs: Sequence[RunTables]) -> dict[str, list[RunTables]]:
    """The runs by method: the runner's name and, where several methods have one runner, the settings that differ."""
    groups: dict[tuple[Any, ...], list[RunTables]] = {}
    for run in runs:
        groups.setdefault(_method(run), []).append(run)
    by_runner: dict[str, list[list[RunTables]]] = {}
    for members in groups.values():
        by_runner.setdefault(_runner(members[0]), []).append(members)
    labels = {}
    for runner, kin in by_runner.items():
        methods = [of_method(members[0].settings) for members in kin]
        names = _differing(methods)
        for members, method in zip(kin, methods, strict=True):
            settings = phrase(names, method)
            labels[members[0].path] = f"{runner} ({settings})" if settings else runner
    return {labels[members[0].path]: members for members in groups.values()}


def _runner(run: RunTables) -> str:
    # A file that a person wrote may name the runner alone.
    return str(run.settings.get("runner.name", run.settings.get("runner", "no runner")))


def _method(run: RunTables) -> tuple[Any, ...]:
    return tuple(sorted((name, repr(value)) for name, value in of_method(run.settings).items()))


def _differing(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that tell methods of one runner apart."""
    names = dict.fromkeys(name for settings in several for name in settings)
    differing = [name for name in names if len({repr(settings.get(name, NOT_SET)) for settings in several}) > 1]
    # Another model has other settings: its name says enough, if it tells all of them apart.
    common = [name for name in differing if all(name in settings for settings in several)]
    enough = len({phrase(common, settings) for settings in several}) == len(several)
    return common if enough else differing


def phrase(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Settings in words: `lstm, replay_prob=0.5`."""
    lasts = [name.rpartition(".")[2] for name in names]
    parts = []
    for name, last in zip(names, lasts, strict=True):
        value = settings.get(name, NOT_SET)
        text = written(tuple(value) if isinstance(value, list) else value)
        shortest = last if lasts.count(last) == 1 else name
        parts.append(text if last == "name" else f"{shortest}={text}" if name in settings else f"{shortest} not set")
    return ", ".join(parts)
