"""Settings that are made of the class that they build, so that every flag stands in one place."""

import copyreg
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, get_type_hints


def settings_of(core: type, *given: str, base: type | None = None) -> Any:
    """A frozen dataclass with the fields of `core`: its settings, whose `build(*values)` returns a `core`.

    A `core` with a method `build` is settings already, and is returned.

    The `given` fields are not flags: `build` takes their values, in this order, and may leave out those that have a
    default. A field whose default is a dataclass stands for the fields of that dataclass. The fields of `base`, further
    settings, come first. The texts under the fields are those of `core` (`config.help.explanations`).
    """
    return core if hasattr(core, "build") else _made(core, given, base)


@functools.cache  # one class for one class: registering the same class twice is not a conflict
def _made(core: type, given: tuple[str, ...], base: type | None) -> Any:
    _check(core, given)
    hints = get_type_hints(core, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(core) if field.name not in given}
    groups: dict[str, Any] = {name: default for name, default in defaults.items() if dataclasses.is_dataclass(default)}
    plain = {name: default for name, default in defaults.items() if name not in groups}
    of_groups = {name: value for group in groups.values() for name, value in vars(group).items()}

    def build(self: Any, *values: Any) -> Any:
        own = {name: getattr(self, name) for name in plain}
        for name, group in groups.items():
            own[name] = type(group)(**{field.name: getattr(self, field.name) for field in dataclasses.fields(group)})
        return core(**dict(zip(given, values, strict=False)), **own)

    def reduced(self: Any) -> tuple[Any, ...]:
        # Pickle finds a class by its name. This class stands under no name, so it is made again.
        if type(self) is made:
            return _again, (core, given, base, vars(self))
        return copyreg.__newobj__, (type(self),), vars(self)  # type: ignore[attr-defined]

    kinds = {field.name: field.type for group in groups.values() for field in dataclasses.fields(group)} | hints
    bases = [type(group) for group in groups.values() if base is None or not issubclass(base, type(group))]
    made = dataclasses.make_dataclass(
        f"{core.__name__}Settings",
        [(name, kinds[name], dataclasses.field(default=value)) for name, value in (of_groups | plain).items()],
        bases=(*([] if base is None else [base]), *bases),
        namespace={"__doc__": core.__doc__, "__reduce__": reduced, "build": build, "fields_of": core},
        frozen=True,
    )
    made.__module__ = core.__module__  # where its fields are written; Python would say: types
    made.divides = getattr(core, "divides", False)  # type: ignore[attr-defined]  # only task curricula have it
    return made


def _again(core: type, given: tuple[str, ...], base: type | None, values: dict[str, Any]) -> Any:
    """The settings that were pickled."""
    return _made(core, given, base)(**values)


def _check(core: type, given: tuple[str, ...]) -> None:
    """ValueError where settings cannot be made of `core`."""
    if not (isinstance(core, type) and dataclasses.is_dataclass(core)):
        raise ValueError(f"{core!r} must be a frozen dataclass, or settings with a method build")
    fields = {field.name: field.default for field in dataclasses.fields(core)}
    for name in given:
        if name not in fields:
            raise ValueError(f"{core.__name__} has no field {name}: it needs one, or settings with a method build")
    for name, default in fields.items():
        if name not in given and default is dataclasses.MISSING:
            raise ValueError(f"{core.__name__}.{name} has no default: it needs one, as it is a flag")


def keep_tuple(settings: Any, name: str) -> None:
    """Makes the field `name` of a frozen dataclass a tuple: a list cannot be hashed. A text is a tuple of one text."""
    given = getattr(settings, name)
    if not isinstance(given, Iterable):
        raise ValueError(f"{name}={given!r}: it must be a list")
    # A text is a list of letters, too.
    object.__setattr__(settings, name, (given,) if isinstance(given, str) else tuple(given))
