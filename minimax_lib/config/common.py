"""What the commands about finished runs have in common: settings, what they mean, and checks."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from minimax_lib.config.paths import check_no_home, check_path
from minimax_lib.config.tree import Tree
from minimax_lib.config.values import Words
from minimax_lib.messages import is_plain, shown
from minimax_lib.registry import unknown_name

LONGEST_LABEL = 100  # characters


class Explained:
    """The meaning of settings that several commands have, for their help."""

    plugins: tuple[str, ...] | None
    """Modules to import first, which register what the runs use. Modules that a run's folder names are imported only if
    they are named here. None: a run with plugins is refused."""
    compilation_cache: str
    """Folder that keeps compiled programs: auto (your cache folder, or $JAX_COMPILATION_CACHE_DIR), none, or a path."""
    greedy: bool
    """Take the most likely action in episodes; otherwise actions are sampled, as in the published evaluations."""
    student: int
    """Which student of a population; 0 is the first (the protagonist of PAIRED)."""


@dataclasses.dataclass(frozen=True)
class Grouped(Explained):
    """Which runs, and which of them are pooled as seeds."""

    run: tuple[str, ...] = ()
    """Folders of runs. They may also be named first, without this flag."""
    label: tuple[str, ...] = ()
    """NAME=PATTERN: runs in folders that match the pattern (as runs/dr-*), under this name. Put it in quotes."""
    by: tuple[str, ...] = ()
    """Settings that make groups of the other runs, such as runner.replay_prob. Empty: the method, and all that
    differs in it."""

    @property
    def patterns(self) -> tuple[tuple[str, str], ...]:
        """(name, pattern of folders) of each label."""
        return tuple(map(_name_and_pattern, self.label))

    def check_runs(self, command: str) -> None:
        """ValueError where no runs are named, or where they cannot be folders."""
        if not self.run and not self.label:
            raise ValueError(f"no run is given: name their folders first, as in {command} runs/*")
        check_run_folders(self.run)
        self.check_labels()

    def check_labels(self) -> None:
        """ValueError where a label is no NAME=PATTERN, or is given twice."""
        names = [name for name, _ in self.patterns]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"label {shown(name)} is given twice: give it one pattern")


def _name_and_pattern(label: str) -> tuple[str, str]:
    name, equals, pattern = label.partition("=")
    if not (name and equals and pattern):
        raise ValueError(f"label is {shown(label)}: it must be NAME=PATTERN, as in 'DR=runs/dr-*'")
    if not is_plain(name) or len(name) > LONGEST_LABEL:
        raise ValueError(f"label is {shown(name)}: it must be one line of at most {LONGEST_LABEL} characters")
    check_path("label", pattern)
    return name, pattern


def check_run_folders(runs: Iterable[str]) -> None:
    """ValueError where `runs` cannot be folders of runs."""
    for folder in runs:
        if not folder:
            raise ValueError("run is '': it must be the folder of a run")
        check_path("run", folder)


def check_out_folder(out: str, example: str) -> None:
    """ValueError where `out` cannot be a folder such as `example`."""
    check_path("out", out)
    check_no_home("out", out)
    if not out:
        raise ValueError(f"out is '': it must be a folder, such as {example} (the current one is .)")
    folder = Path(out)
    there = next((path for path in (folder, *folder.parents) if os.path.exists(path)), Path())
    if not os.path.isdir(there):
        raise ValueError(f"out is {shown(out)}: it must be a folder, and {shown(str(there))} is a file")


def check_names(setting: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    """ValueError where nothing is given, or something that is not allowed."""
    if not given:
        raise ValueError(f"{setting} is empty: choose from {', '.join(allowed)}")
    for name in given:
        if name not in allowed:
            raise unknown_name(setting, name, allowed)


def refuse_ignored(given: Tree, ignored: Iterable[tuple[str, str]]) -> None:
    """ValueError for a flag that is given although nothing reads it; `ignored` are such flags, and why."""
    for name, rule in ignored:
        if name in given:
            raise ValueError(f"{name} is {shown(given[name])}, which {rule}")


def with_underscores(tree: Tree, *names: str) -> Tree:
    """The tree, in whose settings `names` hyphens do for underscores, as they do in flags."""
    written = {name: Words(word.replace("-", "_") for word in tree[name]) for name in names if name in tree}
    return {**tree, **written}
