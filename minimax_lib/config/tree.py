"""Between nested settings (frozen dataclasses) and trees of plain values, as YAML and flags give them.

A group of settings is a field whose type is a dataclass. A group that is chosen by name is annotated with the registry
it is chosen from, `Annotated[Any, ENVS]`; in a tree its name stands beside its settings, `{name: AMaze, height: 13}`,
and a bare name does for the whole. `Annotated[str, SCORES]` is a name alone, without settings. A field with the
metadata SHORT is what a bare value of its group sets: `wandb: offline` is `wandb: {mode: offline}`.
"""

import dataclasses
import re
from collections.abc import Collection
from typing import Annotated, Any, get_args, get_type_hints

from minimax_lib.config.aliases import SETTING_OF
from minimax_lib.config.values import Plain, Words, convert, plain
from minimax_lib.messages import shown
from minimax_lib.registry import Registry, unknown_name

NAME = "name"
SHORT = {"is_short": True}  # metadata of the one setting of a group that the group's bare name stands for
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
    """The registry that a group of this type is chosen from by name, if it is."""
    return None if names_of(hint) else _annotated(hint)


def names_of(hint: Any) -> Registry[Any] | None:
    """The registry that a setting of this type names an entry of, if it does."""
    return _annotated(hint) if get_args(hint)[:1] == (str,) else None


def _annotated(hint: Any) -> Registry[Any] | None:
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Registry)), None)


def settings_class(hint: Any) -> type | None:
    """The class of a group of settings that is not chosen by name, if a field of this type is one."""
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


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


def left_behind(below: Tree, above: Tree, now: Tree, path: str = "") -> list[str]:
    """A line for each group that `above` chooses by another name than `below`, where that changes a shared setting.

    Shared is what both choices have. `now` is the whole configuration that came of both. See `overlay`.
    """
    lines = []
    for key, value in above.items():
        old, new, values = as_group(below.get(key)), as_group(value), now.get(key)
        if not (isinstance(old, dict) and isinstance(new, dict) and isinstance(values, dict)):
            continue
        names = plain(old.get(NAME)), plain(new.get(NAME))
        if None in names or names[0] == names[1]:
            lines += left_behind(old, new, values, f"{path}{key}.")
            continue
        said, here = flat(old), flat(values)
        shared = [name for name in said if name != NAME and name in here and name not in flat(new)]
        changed = [name for name in shared if str(plain(said[name])) != str(here[name])]
        if changed:
            listed = ", ".join(f"{name} {shown(here[name])} (was {shown(plain(said[name]))})" for name in changed)
            lines.append(f"{path}{key} is {names[1]}, and what was said of {names[0]} does not count for it: {listed}")
    return lines


def as_group(value: Any) -> Any:
    """`value`, with a bare name (or true, false) as the group `{name: value}`."""
    is_empty = value == Plain()  # `env:` in a file, and nothing behind it
    return {NAME: value} if isinstance(value, str | Words | bool) and not is_empty else value


def build(cls: type, tree: Tree, path: str = "", default: Any = None, registry: Registry[Any] | None = None) -> Any:
    """Settings of type `cls`; those that are not in `tree` are as in `default`, or in the class.

    ValueError in one line for what is unknown, of the wrong type, missing, or refused by the class. `path` is the
    dotted way to this group, with a dot behind it; `registry` is what `cls` was chosen from, if it was.
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
        message = _with_path(in_full(str(error), path), path, hints)
        raise ValueError(_blaming_the_given(message, path, tree, values)) from None
    for name, value in tree.items():
        if name not in hints and name not in RETIRED and not _is_constant(cls, name, value, path):
            raise _unknown_setting(name, path, settings, registry)
    return settings


def _is_constant(cls: type, name: str, value: Any, path: str) -> bool:
    """Whether `value` is the constant that `cls` has in place of a setting of its bases, or the default there.

    Files of earlier versions hold it. ValueError if it is of the wrong type.
    """
    for base in filter(dataclasses.is_dataclass, cls.__mro__[1:]):
        hint = setting_hints(base).get(name)
        if hint is not None:
            return convert(value, hint, f"{path}{name}") in (getattr(cls, name), defaults_of(base)[name])
    return False


def in_full(message: str, path: str) -> str:
    """A message that begins with the end of `path`, as the class knows it, with the whole of it: of `ppo.lr` in
    `runner.teacher.ppo.`, the first becomes `runner.teacher.ppo.lr`."""
    parts = path.split(".")
    for i in range(1, len(parts) - 1):
        known = ".".join(parts[i:])
        if message.startswith(known):
            return path + message.removeprefix(known)
    return message


def _with_path(message: str, path: str, settings: Collection[str]) -> str:
    """A message that begins with the bare name of one of the group's `settings`, with the way to the group before it.

    The class does not know where it stands, and several groups have a setting of that name.
    """
    subject = re.match(r"(unknown )?(\w+)(?: is | has |=| ')", message)
    if not subject or subject[2] not in settings:
        return message
    return f"{subject[1] or ''}{path}{message[subject.start(2) :]}"


def _blaming_the_given(message: str, path: str, given: Tree, values: dict[str, Any]) -> str:
    """A message about two settings, of which it blames one that nobody has given, with the given one before it."""
    subject = re.match(r"(?:\w+\.)*(\w+)(?: is |=)", message)
    if subject and subject[1] in values and subject[1] not in given:
        for name in given:
            if name in values and re.search(rf"(?<!\w){re.escape(name)}(=|, which is |,? -?\d)", message):
                return f"{path}{name} is {shown(values[name])}: {message}"
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
    cls = settings_class(hint)
    if cls is not None:
        return build(cls, _group(_in_full_settings(value, cls), path), f"{path}.", default)
    return convert(value, hint, path)


def _in_full_settings(value: Any, cls: type) -> Any:
    """`value`, with what the bare name of a group stands for under the name of that setting."""
    short = next((field.name for field in dataclasses.fields(cls) if field.metadata == SHORT), None)
    group = as_group(value)
    if short is None or not isinstance(group, dict) or NAME not in group:
        return value
    bare, others = group[NAME], {name: setting for name, setting in group.items() if name != NAME}
    # `--wandb --wandb.mode offline` is offline, but `--wandb` overrides the mode in a file.
    return {short: bare} | others if isinstance(others.get(short), Words) else others | {short: bare}


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
    return build(chosen, settings, f"{path}.", default if type(default) is chosen else None, registry)


def checked(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a `cls` that is made in Python, from the `values` that it was given.

    The name of a group's choice stands for its default settings, and so does a class of settings. ValueError in one
    line for a value of the wrong type.
    """
    hints, defaults = setting_hints(cls), defaults_of(cls)
    registries = [registry for registry in map(registry_of, hints.values()) if registry]
    return {name: _checked(values[name], hints[name], name, defaults.get(name), registries) for name in hints}


def _checked(value: Any, hint: Any, path: str, default: Any, registries: list[Registry[Any]]) -> Any:
    registry, cls = registry_of(hint), settings_class(hint)
    if registry is not None:
        return _checked_choice(value, registry, path, default, registries)
    if cls is None:
        return convert(value, hint, path)
    if value is cls:
        return cls()
    if not isinstance(value, cls):
        raise ValueError(f"{path} is {shown(value)}: it must be settings of the class {cls.__name__}")
    return value


def _checked_choice(
    value: Any, registry: Registry[Any], path: str, default: Any, registries: list[Registry[Any]]
) -> Any:
    if isinstance(value, type):
        value = registry.name_of(value)
    if isinstance(value, str):
        return _build_value(value, Annotated[Any, registry], path, default)
    known = next((other for other in registries if type(value) in map(other.__getitem__, other.names())), None)
    # Settings of a class that is not registered are taken in Python: they only have no name.
    if known not in (None, registry) or not dataclasses.is_dataclass(value):
        what = f", settings of a {known.kind}" if known else ""
        raise ValueError(
            f"{path} is {shown(value)}{what}: it must be the name of one {registry.kind} "
            f"({', '.join(registry.names())}), or its settings"
        )
    return _with_named_groups(value, f"{path}.") if known else value


def _with_named_groups(settings: Any, path: str) -> Any:
    """The same settings; where a group in them was given by name, the default settings of what it names."""
    defaults = defaults_of(type(settings))
    changes = {}
    for name, hint in setting_hints(type(settings)).items():
        value = getattr(settings, name)
        if registry_of(hint) and isinstance(value, str):
            changes[name] = _build_value(value, hint, f"{path}{name}", defaults.get(name))
        elif registry_of(hint) and dataclasses.is_dataclass(value):
            changes[name] = _with_named_groups(value, f"{path}{name}.")
    return dataclasses.replace(settings, **changes) if changes else settings


def flat(tree: Tree, path: str = "") -> dict[str, Any]:
    """The tree's values by dotted name, but for what is retired."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in RETIRED:
            values |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return values


def _unknown_setting(name: str, path: str, settings: Any, registry: Registry[Any] | None) -> ValueError:
    """The error for the setting `name` of the group at `path`, whose class was chosen from `registry`, if it was."""
    owners = [owner for owner in registry.names() if name in _settings_of(registry[owner])] if registry else []
    if registry and owners:
        group, chosen = path.removesuffix("."), registry.name_of(type(settings))
        return ValueError(
            f"{path}{name} is not a setting of {chosen}; it belongs to {', '.join(owners)}: choose one with --{group}"
        )
    group, dot, rest = name.partition(".") if isinstance(name, str) else (name, "", "")
    if dot and group in setting_hints(type(settings)):
        raise ValueError(
            f"unknown setting {shown(f'{path}{name}')}: in a file, the settings of a group stand under its name, "
            f"as {shown(f'{group}: {{{rest}: ...}}')}"
        )
    siblings = [f"{path}{sibling}" for sibling in setting_hints(type(settings))]
    known = [*siblings, *flat(to_tree(settings), path)]
    return unknown_name("setting", f"{path}{name}", siblings, near=known, meant=_called_so(name, known))


def _settings_of(maker: Any) -> dict[str, Any]:
    # An environment may be registered with a function, which has no settings to look at.
    return setting_hints(maker) if dataclasses.is_dataclass(maker) and isinstance(maker, type) else {}


def _called_so(name: str, known: list[str]) -> str | None:
    """The setting that goes by `name` in another group or library: one of the `known`, if it can be."""
    setting = SETTING_OF.get(name)
    last = setting.rpartition(".")[2] if setting else name
    return next((other for other in known if other.rpartition(".")[2] == last), setting)
