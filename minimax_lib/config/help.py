"""The text of --help: every flag that there is for what is chosen, its choices, what it means and its value."""

import ast
import dataclasses
import inspect
import itertools
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from minimax_lib.config.tree import names_of, registry_of, setting_hints, settings_class

NARROWEST, WIDEST = 60, 100  # columns of the text, whatever the terminal has
MOST_CHOICES = 60  # characters of a list of choices that stands beside its flag
WORDS = {bool: "{true,false}", int: "INT", float: "FLOAT", str: "TEXT", type(None): "none"}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag, as the help shows it."""

    name: str  # with its hyphens
    values: str  # what follows it
    meaning: str


FlagGroup = tuple[str, Sequence[Flag]]  # a heading, and the flags under it


def as_flag(setting: str) -> str:
    """The flag of a setting, as the help and the documentation write it."""
    return "--" + setting.replace("_", "-")


def sections(
    settings: Any, title: str, notes: Mapping[str, str], path: str = "", first: Sequence[Flag] = ()
) -> Iterator[FlagGroup]:
    """The flags of `settings`, with `first` before them, and then those of each group in it.

    `notes` say more of single settings, by dotted name.
    """
    texts, flags, choices, groups = explanations(type(settings)), [], [], []
    for name, hint in setting_hints(type(settings)).items():
        setting, value, meaning = f"{path}{name}", getattr(settings, name), texts.get(name, "")
        registry = registry_of(hint)
        if registry is not None:
            chosen = registry.name_of(type(value))
            choices.append(flag(setting, f"{meaning} Its settings are below.", chosen, registry.names()))
            groups.append((f"{setting}: {chosen}. {meaning}", setting, value))
        elif settings_class(hint):
            groups.append((f"{setting}: {meaning}", setting, value))
        else:
            names = names_of(hint)
            known = names.names() if names else choices_of(hint)
            flags.append(flag(setting, f"{meaning} {notes.get(setting, '')}", value, known, values_of(hint)))
    if first or choices or flags:
        yield title, (*first, *choices, *flags)
    for heading, setting, group in groups:
        yield from sections(group, heading, notes, f"{setting}.")


def flag(setting: str, meaning: str, value: Any, choices: Sequence[str] = (), values: str = "NAME") -> Flag:
    """The flag of a setting that has a `value`, one of `choices` if there are any."""
    listed = ",".join(choices)
    if choices and len(listed) <= MOST_CHOICES:
        values = f"{{{listed}}}"
    elif choices:
        meaning, values = f"{meaning} One of: {', '.join(choices)}.", "NAME"
    return Flag(as_flag(setting), values, " ".join(f"{meaning} (default: {written(value)})".split()))


def choices_of(hint: Any) -> tuple[str, ...]:
    """The values of a setting that has only a few."""
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()


def values_of(hint: Any) -> str:
    """What follows the flag of a setting of the type `hint`."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return "|".join(map(values_of, arguments))
    if get_origin(hint) is Literal:
        return "|".join(map(str, arguments))
    if get_origin(hint) is Annotated:
        return values_of(arguments[0])
    if get_origin(hint) is tuple:
        return f"{values_of(arguments[0])} ..."
    return WORDS[hint]


def written(value: Any) -> str:
    """A value, as it would be typed."""
    if isinstance(value, tuple):
        return " ".join(map(written, value)) if value else "empty"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value) or "empty"


def explanations(cls: Any) -> dict[str, str]:
    """The text under each field of a dataclass, in one line; nothing where the source is not to be had."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if "fields_of" in vars(base):  # made by `settings_of`: the texts stand in the class that it builds
            texts |= explanations(base.fields_of)
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # made by a program
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in itertools.pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(explanation))):
                    texts[name] = " ".join(explanation.split())
    return texts


def width() -> int:
    """Columns of a text on this terminal."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def wrapped(text: str, indent: str, hanging: str | None = None) -> str:
    """`text` in lines of this terminal's width, none of them broken at a hyphen: a flag stays whole."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )


def show_flags(usage: str, parts: Sequence[FlagGroup]) -> NoReturn:
    """Prints the help, and exits."""
    lines = [f"usage: {os.path.basename(sys.argv[0])} [--FLAG VALUE] ...", "", usage]
    for title, flags in parts:
        lines += ["", wrapped(title, "")]
        for item in flags:
            lines += [f"  {item.name} {item.values}".rstrip(), wrapped(item.meaning, " " * 8)]
    show(lines)


def show(lines: Sequence[str]) -> NoReturn:
    """Prints lines, and exits."""
    print("\n".join(lines), flush=True)
    raise SystemExit(0)
