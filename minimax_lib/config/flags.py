"""The command line: experiment files and flags in any order, and the help.

Flags and files can say the same things, and both go through `tree.build`: `--env.height 9` is `env: {height: 9}`.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from minimax_lib.config.files import read_yaml
from minimax_lib.config.help import Flag, as_flag, sections, show, show_flags
from minimax_lib.config.listing import KINDS, listing, note_on_tasks
from minimax_lib.config.runs import check_place, merged
from minimax_lib.config.shipped import located
from minimax_lib.config.train import Config, from_dict, import_plugins, to_dict
from minimax_lib.config.tree import NAME, Tree, as_group, left_behind, overlay
from minimax_lib.config.values import Words
from minimax_lib.messages import shown

FILES, LIST = "config", "list"
LONGEST_FLAG = 200  # characters, of which none is half as long
NAME_IN_LIST = re.compile(r"(?<![\w'-])'?([a-z][\w.]*)'?(?=,|\?|$| \()")  # in `a.b, c.d (did you mean 'a.b'?)`
USAGE = f"""Trains students in a curriculum of levels.
* Settings come from flags and from the YAML files that --{FILES} names.
  Later files override earlier ones. Flags override files.
* Flags come in any order. Values follow after a space or after =.
  Without a value, --x means --x true; --no-x means --x false (--env.no-x
  for --env.x false). Underscores may stand for hyphens.
* --env, --model, --runner and others choose by name. Each name has settings
  of its own: --help --runner plr shows those of plr."""


def parse(argv: Sequence[str] | None = None) -> Config:
    """The configuration that the command line (by default this process's) asks for.

    ValueError in one line for bad input. `--help` prints the help, with the values that are asked for as defaults, and
    exits.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    flags = [word for word in words if word not in ("-h", "--help")]
    if len(flags) == len(words):
        show_list(flags)
    # The help shows the settings of what is chosen, so that the rest of the command line is read first.
    files, said = files_and_flags(flags)
    config = from_dict(overlay(merged(files, said), said))
    if config.resume:
        check_place(files, said, config.run_folder)
    if len(flags) < len(words):
        show_help(config)
    return config


def left_behind_by(words: Sequence[str], config: Config) -> list[str]:
    """A line for each group of `config` that does not have what a file among `words` says of another choice."""
    files, flags = files_and_flags(words)
    lines: list[str] = []
    below, now = Tree(), to_dict(config)
    for said in [*(said for _, said in files), flags]:
        lines += left_behind(below, said, now)
        below = overlay(below, said)
    return lines


def read_command_line(words: Sequence[str]) -> Tree:
    """What the files and flags among `words` say; flags override files, in whatever order they stand."""
    files, flags = files_and_flags(words)
    return overlay(merged(files, flags), flags)


def files_and_flags(words: Sequence[str]) -> tuple[list[tuple[Path, Tree]], Tree]:
    """(each file and what it says, what the flags say)."""
    # Apart, and laid over each other at the end: a file that stands behind a flag must not override it.
    files: list[tuple[Path, Tree]] = []
    flags: Tree = {}
    for name, values in split_flags(words):
        if name != FILES:
            put(flags, name.split("."), values)
            continue
        # Without a file, or with the empty name of a variable that is not set, everything would be a default.
        if not values or not all(values):
            raise ValueError(f"{FILES} is {values!r}: it must name YAML files, as in --{FILES} maze/dr")
        paths = [located(name) for name in values]
        files.extend((path, read_yaml(path)) for path in paths)
    return files, flags


def show_list(words: Sequence[str]) -> None:
    """Where the flags ask for it, prints the names that there are to choose from, and exits."""
    if not any(word == f"--{LIST}" or word.startswith(f"--{LIST}=") for word in words):
        return
    asked = dict(split_flags(words))
    others = [name for name in asked if name not in (LIST, "plugins")]
    if others:
        raise ValueError(f"--{LIST} stands alone or with --plugins: leave out {', '.join(map(as_flag, others))}")
    import_plugins(tuple(asked.get("plugins", ())))
    show(listing(tuple(asked[LIST])))


def split_flags(words: Sequence[str]) -> list[tuple[str, Words]]:
    """(dotted name, the words that follow) of every flag; a negation that nothing follows becomes the word false.

    ValueError in one line where a word follows no flag, and for a flag that is given twice. Only files may be.
    """
    flags: list[tuple[str, list[str]]] = []
    for word in words:
        # Two hyphens: a word that begins with one may be a value, as -1 is.
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags.append((name.replace("-", "_"), [value] if equals else []))
        elif flags:
            flags[-1][1].append(word)
        else:
            raise ValueError(f"{shown(word)} follows no flag: settings are given as --seed 1; see --help")
    found = [_without_negation(name, Words(values)) for name, values in flags]
    _refuse_repetition(found)
    return found


def as_typed(message: str, words: Sequence[str]) -> str:
    """A message about a setting; if a flag among `words` has set it, in terms of flags.

    Settings are named as in files: `env.n_walls is ...`. Who typed --env.n-walls is told about that.
    """
    typed = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    typed |= {_without_negation(name, Words(()))[0] for name in typed}
    typed |= {name[:i] for name in typed for i, letter in enumerate(name[:LONGEST_FLAG]) if letter == "."}  # its groups
    subject = re.match(r"([a-z][\w.]*) (is|has) ", message)
    if subject and subject[1] in typed:
        return as_flag(subject[1]) + message[subject.end(1) :]
    unknown = re.match(r"unknown setting '([\w.]+)': choose from ", message)
    if unknown and unknown[1] in typed:
        names = NAME_IN_LIST.sub(lambda name: as_flag(name[1]), message[unknown.end() :])
        return f"unknown flag {as_flag(unknown[1])}: choose from {names}"
    return message


def runs_and_flags(words: Sequence[str]) -> Tree:
    """What the flags say, and under `run` the folders that stand before the first flag; ValueError as `split_flags`."""
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    runs, tree = tuple(words[:first]), Tree(split_flags(words[first:]))
    if runs:
        tree["run"] = Words((*runs, *tree.get("run", ())))
    return tree


def _refuse_repetition(flags: Sequence[tuple[str, Words]]) -> None:
    # Neither of two values is what was meant for sure: in a long command, the first is easily overlooked.
    known: dict[str, Words] = {}
    for name, values in flags:
        if name in known and name != FILES:
            raise ValueError(f"{name} is given twice, {shown(known[name])} and {shown(values)}: give it once")
        known[name] = values


def _without_negation(name: str, values: Words) -> tuple[str, Words]:
    group, dot, last = name.rpartition(".")
    # With a value it is no negation: a setting may itself have a name that begins with no_.
    if values or not last.startswith("no_"):
        return name, values
    return group + dot + last.removeprefix("no_"), Words(("false",))


def put(tree: Tree, path: Sequence[str], value: Words) -> None:
    """Writes `value` into the tree at `path`, where it may be the name that chooses a group."""
    # `--env AMaze` and `--env.height 9` may come in either order: a bare name becomes a group, and keeps its name.
    for group in path[:-1]:
        tree[group] = as_group(tree.get(group, {}))
        tree = tree[group]
    last = path[-1]
    if isinstance(tree.get(last), dict):
        tree[last][NAME] = value
    else:
        tree[last] = value


def show_help(config: Config) -> NoReturn:
    """Prints every flag with its choices, its meaning and its value in `config`, and exits."""
    first = (
        Flag("--help", "", "Show this text, with the settings of what is chosen."),
        Flag(f"--{LIST}", f"[{'|'.join(KINDS)}]", "Show the names that there are to choose from."),
        Flag(f"--{FILES}", "FILE ...", "Files of settings (YAML), or names of shipped ones, as maze/dr."),
    )
    notes = {"eval.tasks": note_on_tasks(config.env)}
    show_flags(USAGE, list(sections(config, "The run", notes, first=first)))
