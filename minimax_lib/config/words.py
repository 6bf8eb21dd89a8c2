"""The words of a command line: which are flags, and what follows them."""

import re
from collections.abc import Sequence

from minimax_lib.config.help import as_flag
from minimax_lib.config.tree import Tree
from minimax_lib.config.values import Words
from minimax_lib.messages import shown

FILES = "config"  # the flag that names files; it alone may be given twice
LONGEST_FLAG = 200  # characters, of which none is half as long
NAME_IN_LIST = re.compile(r"(?<![\w'-])'?([a-z][\w.]*)'?(?=,|\?|$| \()")  # in `a.b, c.d (did you mean 'a.b'?)`


def split_flags(words: Sequence[str], first: str | None = None) -> list[tuple[str, Words]]:
    """(dotted name, the words that follow) of every flag; a negation that nothing follows becomes the word false.

    Words before the first flag are those of the flag `first`, as if it stood before them. Without it, ValueError in one
    line for them; and for a flag that is given twice. Only files may be.
    """
    flags: list[tuple[str, list[str]]] = [(first, [])] if first and words and not words[0].startswith("--") else []
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

    Settings are named as in files: `env.n_walls is ...`. If --env.n-walls was typed, the message names the flag.
    """
    typed = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    typed |= {_without_negation(name, Words(()))[0] for name in typed}
    typed |= {name[:i] for name in typed for i, letter in enumerate(name[:LONGEST_FLAG]) if letter == "."}  # its groups
    subject = re.match(r"([a-z][\w.]*)(?: is | has |=)", message)
    # Without a dot it is a kind: a runner, a model.
    subject = subject or re.match(r"unknown ([a-z]\w*\.[\w.]*) '", message)
    if subject and subject[1] in typed:
        return message[: subject.start(1)] + as_flag(subject[1]) + message[subject.end(1) :]
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
    # With a value it is not a negation: a setting may itself have a name that begins with no_.
    if values or not last.startswith("no_"):
        return name, values
    return group + dot + last.removeprefix("no_"), Words(("false",))
