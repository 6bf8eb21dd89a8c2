"""The command line of `minimax-sweep`."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

import yaml

from minimax_lib.config.files import Loader
from minimax_lib.config.help import Flag, as_flag, sections, show_flags
from minimax_lib.config.paths import check_no_home, check_path
from minimax_lib.config.shipped import shipped_sweeps
from minimax_lib.config.sweep import EARLIER, SweepKeys, known_keys
from minimax_lib.config.tree import Tree, build, overlay, setting_hints
from minimax_lib.config.values import Words
from minimax_lib.config.words import split_flags
from minimax_lib.messages import shown
from minimax_lib.registry import unknown_name

USAGE = """Trains every trial that FILE asks for, each as a separate run, and prints them sorted by validation score.
FILE is a sweep (YAML), or the name of a shipped one (minimax-train --list sweeps).
* minimax-sweep FILE                  starts the sweep, or goes on with it
* minimax-sweep FILE --dry-run        shows the trials
* minimax-sweep FILE --table          the table so far
* minimax-sweep FILE --slurm out.sh   an array script for Slurm
The file's own keys are flags too: --settings.n-updates 1000, --vary.ppo.lr 1e-4 3e-4."""
SWITCHES = ("dry_run", "table")  # flags that need no value, so that FILE may follow them


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
            raise ValueError(f"{' and '.join(map(as_flag, asked))} are both given: leave out all but one")
        if self.jobs > 1 and asked:
            raise ValueError(
                f"jobs is {self.jobs}, which means nothing with {as_flag(asked[0])}: leave one of them out"
            )
        if self.slurm is not None:
            check_path("slurm", self.slurm)
            check_no_home("slurm", self.slurm)
            if not self.slurm:
                raise ValueError("slurm is '': it must be the file to write, as in --slurm sweep.sh")


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
        first = EARLIER.get(first, first)
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
        raise unknown_name("flag", as_flag(strange), map(as_flag, [*names, *known_keys()])) from error


def _of_words(key: str, words: Words) -> Any:
    """What words on the command line would be in the file; of the sweep's own keys, the words."""
    if key in setting_hints(SweepKeys):
        return words
    values = [_plain(word) for word in words]
    if key == "vary" and not (len(values) == 1 and isinstance(values[0], dict)):
        return values
    return True if not values else values[0] if len(values) == 1 else values


def _plain(word: str) -> Any:
    try:
        return yaml.load(word, Loader)
    except (yaml.YAMLError, ValueError):
        return word


def show_help() -> NoReturn:
    """Prints the flags and the keys of a file, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    keys = (
        Flag("--config", "NAME", "What every trial starts from: a shipped configuration, or a file."),
        Flag("--settings.SETTING", "VALUE", "A setting of every trial, such as --settings.n-seeds 5."),
        Flag("--vary.SETTING", "VALUE ...", "Its values in the trials, or '{low: 1e-5, high: 1e-3, log: true}'."),
    )
    notes = {"score.tasks": "`minimax-train --list tasks` shows what there is."}
    command = sections(Command(), "What to do", {}, first=first)
    show_flags(USAGE, [*command, *sections(SweepKeys(), "The keys of FILE", notes, first=keys)])
