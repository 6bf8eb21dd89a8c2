"""Experiments as YAML files."""

from pathlib import Path
from typing import Any

import yaml

from minimax_lib.config.tree import Tree
from minimax_lib.registry import unknown_name


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # PyYAML would take the last of equal keys without a word, and the settings under the others would be lost.
        keys = [str(key.value) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} occurs twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Tree:
    """The settings in a file; ValueError in one line for a file that is missing, unreadable or not a mapping."""
    try:
        tree = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise _no_such_file(Path(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"config file {str(path)!r} cannot be read: {reason}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"config file {str(path)!r} is not YAML: {_where(error)}") from None
    if not isinstance(tree, dict | None):
        raise ValueError(f"config file {str(path)!r} holds {tree!r}: it must hold settings, as in 'seed: 1'")
    return tree or {}


def write_yaml(tree: Tree, path: str | Path) -> None:
    """A file that `read_yaml` reads back as `tree`."""
    Path(path).write_text(yaml.safe_dump(tree, sort_keys=False, width=120), encoding="utf-8")


def _no_such_file(path: Path) -> ValueError:
    others = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
    if others:
        return unknown_name("config file", path, others)
    return ValueError(f"config file {str(path)!r} does not exist")


def _where(error: yaml.YAMLError) -> str:
    """What is wrong in which line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
