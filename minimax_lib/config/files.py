"""Experiments as YAML files."""

from pathlib import Path
from typing import Any

import yaml

from minimax_lib.config.shipped import shipped
from minimax_lib.config.tree import Tree
from minimax_lib.files import MISSING, UnreadableFile, naming, read_text
from minimax_lib.messages import shown
from minimax_lib.registry import unknown_name

# All settings of a run are about 100 values, 4 deep, in 3,000 bytes. Reading takes a second for every 100,000 bytes.
MOST_BYTES, MOST_VALUES, DEEPEST = 50_000, 5000, 30


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # PyYAML would take the last of equal keys without a word, and the settings under the others would be lost.
        known = set()
        for key, _ in node.value:
            if str(key.value) in known:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} occurs twice", node.start_mark)
            known.add(str(key.value))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        # PyYAML complains in all these ways about what only looks like a date or a number (2001-99-99, `!!int x`).
        except (ValueError, TypeError, LookupError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown(node.value)} is no {kind}", node.start_mark
            ) from None


def read_yaml(path: str | Path) -> Tree:
    """The settings in a file; ValueError in one line for a file that is missing, unreadable or not a mapping."""
    try:
        text = read_text(path, MOST_BYTES)
        _check_bounds(text)
        tree = yaml.load(text, _Loader)
    except UnreadableFile as error:
        if error.why == MISSING:
            raise _no_such_file(Path(path)) from None
        raise ValueError(f"config file {shown(str(path))} {error.why}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"config file {shown(str(path))} is not YAML: {_where(error)}") from None
    except _NoSettings as error:
        raise ValueError(f"config file {shown(str(path))} {error}") from None
    if not isinstance(tree, dict | None):
        raise ValueError(f"config file {shown(str(path))} holds {shown(tree)}: it must hold settings, as in 'seed: 1'")
    return tree or {}


def write_yaml(tree: Tree, path: str | Path) -> None:
    """A file that `read_yaml` reads back as `tree`."""
    with naming(path):
        Path(path).write_text(yaml.safe_dump(tree, sort_keys=False, width=120), encoding="utf-8")


class _NoSettings(Exception):
    """The file is not one that settings could be in. The message says why."""


def _check_bounds(text: str) -> None:
    """_NoSettings where there are too many values, with every alias (*a) written out, or where they are too deep.

    The parser tells of what it meets without building it, and without recursion.
    """
    values: dict[str | None, int] = {}  # under each anchor
    groups: list[tuple[str | None, int]] = []  # that are open: the anchor, and how many values stand before
    n = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = groups.pop()
            values[anchor] = n - before
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in groups):
                raise _NoSettings(f"has a value that contains itself (*{event.anchor}): it must be written out")
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


def _no_such_file(path: Path) -> ValueError:
    neighbours = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
    return unknown_name("config file", path, [*neighbours, *shipped()])


def _where(error: yaml.YAMLError) -> str:
    """What is wrong in which line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
