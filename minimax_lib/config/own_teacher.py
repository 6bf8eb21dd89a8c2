"""Settings of a teacher's design that stand without its name: they belong to the environment's own teacher."""

import dataclasses
from typing import Any

from minimax_lib.config.tree import NAME, Tree, as_group, defaults_of, registry_of, setting_hints, settings_class
from minimax_lib.config.values import plain
from minimax_lib.envs.registry import AUTO, TEACHERS, family_of


def with_teacher_named(cls: type, tree: Tree, env: Any) -> Tree:
    """`tree`, which describes settings of type `cls`, with the name of the teacher of `env` beside its settings."""
    return {key: _named(cls, key, value, env) for key, value in tree.items()}


def _named(cls: type, key: str, value: Any, env: Any) -> Any:
    hint = setting_hints(cls).get(key)
    registry, inner = registry_of(hint), settings_class(hint)
    group = value if registry is None else as_group(value)
    if not isinstance(group, dict):
        return value
    name = plain(group.get(NAME))
    if registry is TEACHERS:
        teacher = family_of(env).teacher
        known = [name for name in TEACHERS.names() if TEACHERS[name] is teacher]
        return {**group, NAME: known[0]} if known and name in (None, AUTO) else value
    if registry is not None:
        inner = registry[name] if isinstance(name, str) and name in registry else type(defaults_of(cls).get(key))
    return with_teacher_named(inner, group, env) if dataclasses.is_dataclass(inner) else value
