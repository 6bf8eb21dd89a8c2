"""The command line: experiment files and flags in any order, and the help.

Flags and files can say the same things, and both go through `tree.build`: `--env.height 9` is `env: {height: 9}`.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from minimax_lib.config.files import read_yaml
from minimax_lib.config.runs import check_place, merged
from minimax_lib.config.train import Config, from_dict
from minimax_lib.config.tree import NAME, Tree, as_group, overlay, registry_of, setting_hints
from minimax_lib.config.values import Words
from minimax_lib.messages import shown

FILES = "config"
USAGE = f"""Trains students in a curriculum of levels.
* Settings come from flags and from the YAML files that --{FILES} names:
  later files override earlier ones, flags override files.
* Flags come in any order, with hyphens or underscores. --flag=value is
  --flag value; --x is --x true and --no-x is --x false (--env.no-x in a group).
* --env, --model and --runner choose by name; their settings are those of
  what is chosen, below."""


def parse(argv: Sequence[str] | None = None) -> Config:
    """The configuration that the command line (by default this process's) asks for.

    ValueError in one line for bad input. `--help` prints the help, with the values that are asked for as defaults, and
    exits.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    flags = [word for word in words if word not in ("-h", "--help")]
    # The help shows the settings of what is chosen, so that the rest of the command line is read first.
    files, said = files_and_flags(flags)
    config = from_dict(overlay(merged(files, said), said))
    if config.resume:
        check_place(files, said, config.run_folder)
    if len(flags) < len(words):
        show_help(config)
    return config


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
            raise ValueError(f"{FILES} is {values!r}: it must name YAML files, as in --{FILES} configs/maze/dr.yaml")
        files.extend((Path(path), read_yaml(path)) for path in values)
    return files, flags


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
    """Prints every flag with its type, its help and its value in `config`, grouped, and exits."""
    import tyro  # only the help needs it, and no training should wait for it

    # Tyro would choose by subcommands, whose order matters. So it gets what has been chosen already, with a plain flag
    # beside each group that names the choices.
    arg = tyro.conf.arg
    files = Annotated[tuple[str, ...], arg(name=FILES, metavar="FILE ...", help="Files of settings (YAML).")]
    fields: list[Any] = [("files", files, ())]
    for group, hint in setting_hints(Config).items():
        registry = registry_of(hint)
        if registry is not None:
            chosen = registry.name_of(type(getattr(config, group)))
            choices = arg(name=group, metavar=f"{{{','.join(registry.names())}}}", help=f"Which {registry.kind}.")
            fields.append((f"choice_of_{group}", Annotated[str, choices], chosen))
    fields.append(("settings", Annotated[Config, arg(name="")], config))
    command_line = dataclasses.make_dataclass("CommandLine", fields, frozen=True)
    plain = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)
    try:
        tyro.cli(command_line, description=USAGE, args=["--help"], use_underscores=True, config=plain)
    except BrokenPipeError:  # --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)
