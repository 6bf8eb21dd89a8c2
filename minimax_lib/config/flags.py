"""The command line: experiment files and flags in any order, and the help.

Flags and files can say the same things, and both go through `tree.build`: `--env.height 9` is `env: {height: 9}`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from minimax_lib.config.files import read_yaml
from minimax_lib.config.help import Flag, as_flag, sections, show, show_flags
from minimax_lib.config.idle import refuse_idle
from minimax_lib.config.listing import KINDS, listing, note_on_tasks
from minimax_lib.config.paths import check_no_home
from minimax_lib.config.runs import check_place, merged
from minimax_lib.config.shipped import located
from minimax_lib.config.train import Config, from_dict, import_plugins, to_dict
from minimax_lib.config.tree import NAME, Tree, as_group, left_behind, overlay
from minimax_lib.config.values import Words
from minimax_lib.config.words import FILES, split_flags

LIST = "list"
USAGE = f"""Trains students in a curriculum of levels.
* Settings come from flags and from the YAML files that --{FILES} names
  or that stand first, as in minimax-train maze/quickstart.
  Later files override earlier ones. Flags override files.
* Flags come in any order. Values follow after a space or after =.
  Without a value, --x means --x true; --no-x means --x false (--env.no-x
  for --env.x false). Underscores may stand for hyphens.
* --env, --model, --runner and others choose by name. Each name has its
  own settings: --help --runner plr shows those of plr."""


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
    _refuse_unset(said)
    config = from_dict(overlay(merged(files, said), said))
    refuse_idle(config, files, said)
    check_no_home("log_dir", config.log_dir)
    if config.resume:
        check_place(files, said, config.run_folder)
    if len(flags) < len(words):
        show_help(config)
    return config


def _refuse_unset(said: Tree) -> None:
    """ValueError where a flag has the empty text of a variable that is not set, and training would begin otherwise."""
    # In a file it means that the students begin with random parameters, as every config.yaml says.
    if said.get("init_from") == Words(("",)):
        raise ValueError(
            "init_from is '': it must be a run, a trained agent or an .npz file; leave it out to begin with random "
            "parameters"
        )


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
    for name, values in split_flags(words, FILES):
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
        Flag(f"--{FILES}", "FILE ...", "Files of settings (YAML), or names of shipped ones, such as maze/dr."),
    )
    notes = {"eval.tasks": note_on_tasks(config.env)}
    show_flags(USAGE, list(sections(config, "The run", notes, first=first)))
