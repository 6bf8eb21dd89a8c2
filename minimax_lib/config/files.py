"""Experiments as YAML files."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from minimax_lib.config.aliases import settings_elsewhere
from minimax_lib.config.shipped import RUNS, shipped
from minimax_lib.config.tree import Tree
from minimax_lib.config.values import Plain
from minimax_lib.files import MISSING, UnreadableFile, naming, read_text
from minimax_lib.messages import shortened, shown
from minimax_lib.registry import unknown_name

# All settings of a run are about 100 values, 4 deep, in 3,000 bytes. Reading takes a second for every 100,000 bytes.
MOST_BYTES, MOST_VALUES, DEEPEST = 50_000, 5000, 30
LONGEST_NAME = 200  # characters of the name of a setting in a message
TEXT = "tag:yaml.org,2002:str"
RUN_CONFIG = "config.yaml"  # in the folder of a run


# What YAML 1.1 and flags read alike.
ALIKE = re.compile(
    r"true|True|TRUE|false|False|FALSE|~|null|Null|NULL|[-+]?(0|[1-9][0-9]*)"
    r"|[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


class Loader(yaml.SafeLoader):
    """Plain values only, and no key twice. What a flag would read otherwise stays as it is written (`Plain`)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # PyYAML would take the last of equal keys without a word, and the settings under the others would be lost.
        known = set()
        for key, _ in node.value:
            if str(key.value) in known:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} occurs twice", node.start_mark)
            known.add(str(key.value))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if isinstance(node, yaml.ScalarNode) and self._is_read_otherwise(node):
            return Plain(node.value)
        try:
            return super().construct_object(node, deep)
        # PyYAML complains in all these ways about what only looks like a date or a number (2001-99-99, `!!int x`).
        except (ValueError, TypeError, LookupError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown(node.value)} is no {kind}", node.start_mark
            ) from None

    def _is_read_otherwise(self, node: yaml.ScalarNode) -> bool:
        """Whether YAML 1.1 takes a value for something else than the text it is, and not as a flag does."""
        # Neither in quotes nor with a tag that says what it is.
        by_itself = node.style is None and node.tag == self.resolve(yaml.ScalarNode, node.value, (True, False))
        alike = node.value.lower() != "none" if node.tag == TEXT else ALIKE.fullmatch(node.value)
        return by_itself and not alike


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes that `Loader` would take for something else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("none$", re.IGNORECASE), list("nN"))


def _written(dumper: yaml.SafeDumper, value: Plain) -> yaml.ScalarNode:
    """As it was read: without quotes."""
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, str(value), (True, False)), str(value))


yaml.SafeDumper.add_representer(Plain, _written)


def read_yaml(path: str | Path) -> Tree:
    """The settings in a file; ValueError in one line for a file that is missing, unreadable or not a mapping."""
    try:
        text = read_text(path, MOST_BYTES)
        _check_bounds(text)
        tree = yaml.load(text, Loader)
    except UnreadableFile as error:
        if error.why == MISSING:
            raise _no_such_file(Path(path)) from None
        if os.path.isdir(path):  # unlike `Path.is_dir`, it fails for no path
            inside = Path(path) / RUN_CONFIG
            hint = f" (say {inside})" if inside.is_file() else ""
            raise ValueError(f"config file {shown(str(path))} is a folder: it must be a file{hint}") from None
        raise ValueError(f"config file {shown(str(path))} {error.why}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"config file {shown(str(path))} is not YAML: {_where(error)}") from None
    except _NoSettings as error:
        raise ValueError(f"config file {shown(str(path))} {error}") from None
    if tree is None or tree == Plain():
        return {}
    if not isinstance(tree, dict):
        raise ValueError(f"config file {shown(str(path))} holds {shown(tree)}: it must hold settings, as in 'seed: 1'")
    others = settings_elsewhere(tree)
    if others is not None:
        raise ValueError(
            f"config file {shown(str(path))} is of another library, as minimax or dcd: docs/coming_from.md says what "
            f"their settings are called here{' (' + ', '.join(others) + ')' if others else ''}"
        )
    return tree


def write_yaml(tree: Tree, path: str | Path) -> None:
    """A file that `read_yaml` reads back as `tree`."""
    with naming(path):
        Path(path).write_text(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=120), encoding="utf-8")


class _NoSettings(Exception):
    """The file is not one that settings could be in. The message says why."""


def _check_bounds(text: str) -> None:
    """_NoSettings where there are too many values, with every alias (*a) written out, or where they are too deep.

    The parser tells of what it meets without building it, and without recursion.
    """
    values: dict[str | None, int] = {}  # under each anchor
    groups: list[tuple[str | None, int]] = []  # that are open: the anchor, and how many values stand before
    place = _Place()
    n = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        place.follow(event)
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = groups.pop()
            values[anchor] = n - before
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in groups):
                raise _NoSettings(
                    f"has a value that contains itself, {place} (*{event.anchor}): it must be written out"
                )
            n += values.get(event.anchor, 0)
        elif isinstance(event, yaml.ScalarEvent):
            n, values[event.anchor] = n + 1, 1
        elif isinstance(event, yaml.CollectionStartEvent):
            groups.append((event.anchor, n))
            n += 1
        if n > MOST_VALUES:
            raise _NoSettings(f"has too many values for settings: they must be {MOST_VALUES:,} at most")
        if len(groups) > DEEPEST:
            raise _NoSettings(f"is nested too deep for settings: it must be {DEEPEST} levels at most")


class _Place:
    """Which setting the parser is at, as a dotted name."""

    def __init__(self) -> None:
        self._open: list[list[Any]] = []  # of each open group: its key, whether a key comes next, whether it has keys

    def follow(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.NodeEvent):
            if self._open and self._open[-1][2]:
                group = self._open[-1]
                group[0] = getattr(event, "value", "?") if group[1] else group[0]
                group[1] = not group[1]
            if isinstance(event, yaml.CollectionStartEvent):
                has_keys = isinstance(event, yaml.MappingStartEvent)
                self._open.append(["", has_keys, has_keys])

    def __str__(self) -> str:
        return shortened(".".join(key for key, *_ in self._open if key), LONGEST_NAME)


def _no_such_file(path: Path) -> ValueError:
    neighbours = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
    # A folder's name may be misspelt, or the name of a run may stand for its file.
    runs = [str(other) for other in sorted(path.parent.parent.glob(f"*/{RUN_CONFIG}")) if path.name == RUN_CONFIG]
    of_run = Path(RUNS, path, RUN_CONFIG)
    meant = str(of_run) if os.path.isfile(of_run) else None
    return unknown_name("config file", path, [*neighbours, *runs, *shipped()], meant=meant)


def _where(error: yaml.YAMLError) -> str:
    """What is wrong in which line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
