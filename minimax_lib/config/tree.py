"""Between nested settings (frozen dataclasses) and trees of plain values, as YAML and flags give them.

A group of settings is a field whose type is a dataclass. A group that is chosen by name is annotated with the registry
it is chosen from, `Annotated[Any, ENVS]`; in a tree its name stands beside its settings, `{name: AMaze, height: 13}`,
and a bare name does for the whole.
"""

import dataclasses
from typing import Any, get_type_hints

from minimax_lib.config.values import Words, convert, plain
from minimax_lib.messages import shown
from minimax_lib.registry import Registry, unknown_name

NAME = "name"
RETIRED = frozenset({"slow_images"})  # settings that files of earlier versions hold; they no longer mean anything
Tree = dict[str, Any]


def to_tree(settings: Any) -> Tree:
    """Every setting, as plain values: `build(type(settings), to_tree(settings)) == settings`."""
    hints = setting_hints(type(settings))
    return {name: _to_plain(getattr(settings, name), hint) for name, hint in hints.items()}


def _to_plain(value: Any, hint: Any) -> Any:
    registry = registry_of(hint)
    if registry is not None:
        return {NAME: registry.name_of(type(value)), **to_tree(value)}
    if dataclasses.is_dataclass(value):
        return to_tree(value)
    if isinstance(value, tuple):
        return [_to_plain(item, None) for item in value]
    return value


def setting_hints(cls: type) -> dict[str, Any]:
    """The types of the settings of `cls` by name, annotations included."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def registry_of(hint: Any) -> Registry[Any] | None:
    """The registry that a field of this type is chosen from by name, if it is."""
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Registry)), None)


def overlay(below: Tree, above: Tree) -> Tree:
    """`below` with what `above` says differently.

    Settings go with the name beside them: where `above` names something else than `below`, none of the group's
    settings below are kept. Settings without a name beside them are of whatever will be chosen.
    """
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merged(below[key], value) if key in below else value
    return merged


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) and not isinstance(above, dict):
        return above
    below, above = as_group(below), as_group(above)
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    if NAME in below and NAME in above and plain(below[NAME]) != plain(above[NAME]):
        return above
    return overlay(below, above)


def as_group(value: Any) -> Any:
    """`value`, with a bare name as the group `{name: value}`."""
    return {NAME: value} if isinstance(value, str | Words) else value


def build(cls: type, tree: Tree, path: str = "", default: Any = None) -> Any:
    """Settings of type `cls`; those that are not in `tree` are as in `default`, or in the class.

    ValueError in one line for what is unknown, of the wrong type, missing, or refused by the class. `path` is the
    dotted way to this group, with a dot behind it.
    """
    hints = setting_hints(cls)
    values = defaults_of(cls) if default is None else {name: getattr(default, name) for name in hints}
    for name, value in tree.items():
        if name in hints:
            values[name] = _build_value(value, hints[name], f"{path}{name}", values.get(name))
    for name in hints:
        if name not in values:
            raise ValueError(f"{path}{name} has no default: it must be given")
    try:
        settings = cls(**values)
    except ValueError as error:
        raise ValueError(in_full(str(error), path)) from None
    for name in tree:
        if name not in hints and name not in RETIRED:
            raise _unknown_setting(name, path, settings)
    return settings


def in_full(message: str, path: str) -> str:
    """A message that begins with the end of `path`, as the class knows it, with the whole of it: of `ppo.lr` in
    `runner.teacher.ppo.`, the first becomes `runner.teacher.ppo.lr`."""
    parts = path.split(".")
    for i in range(1, len(parts) - 1):
        known = ".".join(parts[i:])
        if message.startswith(known):
            return path + message.removeprefix(known)
    return message


def defaults_of(cls: type) -> dict[str, Any]:
    """The defaults of the settings that have one."""
    defaults = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
    return {name: defaults[name] for name in setting_hints(cls) if name in defaults}


def _build_value(value: Any, hint: Any, path: str, default: Any) -> Any:
    registry = registry_of(hint)
    if registry is not None:
        return _build_chosen(_group(as_group(value), path), registry, path, default)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, _group(value, path), f"{path}.", default)
    return convert(value, hint, path)


def _group(value: Any, path: str) -> Tree:
    if not isinstance(value, dict):
        raise ValueError(f"{path} is {shown(value)}: it is a group of settings, as in {path}.SETTING")
    return value


def _build_chosen(tree: Tree, registry: Registry[Any], path: str, default: Any) -> Any:
    settings = dict(tree)
    chosen = type(default) if default is not None else None
    if NAME in settings:
        chosen = registry[convert(settings.pop(NAME), str, path)]
    if chosen is None:
        raise ValueError(f"{path} must be given: choose from {', '.join(registry.names())}")
    if not dataclasses.is_dataclass(chosen) or NAME in setting_hints(chosen):
        raise ValueError(f"{path}: {chosen!r} must be a dataclass, without a setting called {NAME!r}")
    return build(chosen, settings, f"{path}.", default if type(default) is chosen else None)


def flat(tree: Tree, path: str = "") -> dict[str, Any]:
    """The tree's values by dotted name, but for what is retired."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in RETIRED:
            values |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return values


def _unknown_setting(name: str, path: str, settings: Any) -> ValueError:
    siblings = [f"{path}{sibling}" for sibling in setting_hints(type(settings))]
    return unknown_name("setting", f"{path}{name}", siblings, near=[*siblings, *flat(to_tree(settings), path)])
