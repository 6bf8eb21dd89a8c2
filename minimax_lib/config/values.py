"""Turns what a YAML file or a flag says into a value of the type that a setting declares."""

import math
import re
from collections.abc import Callable
from datetime import date
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from minimax_lib.messages import is_plain, shown
from minimax_lib.registry import unknown_name

MAX_INTEGER = 2**31 - 1  # devices count in 32 bits
MAX_NUMBER = 3.4028234663852886e38  # the largest of 32 bits


class Words(tuple[str, ...]):
    """What followed a flag on the command line: words, which have no type yet."""

    def __repr__(self) -> str:
        return repr(" ".join(self)) if self else "without a value"


class Plain(str):
    """The text of a value in a YAML file that YAML 1.1 reads otherwise than a flag is read: 007, 1:30, no, 2026-11-25.

    It is read as a flag is. Where text is meant, it must be put in quotes. (But `none` is text to YAML, too.)
    """

    def __repr__(self) -> str:
        return repr(str(self)) if self else "without a value"


class Misfit(Exception):
    """The value is not of the type. The message says what it must be, where that is more than the type."""


def convert(value: Any, hint: Any, path: str) -> Any:
    """`value` as a value of the type `hint`; ValueError in one line, which names the setting `path`, where it is none.

    Types are bool, int, float, str, Literal, tuple, None, and unions of these. Words are read as the type asks, and no
    word at all means True; a value from YAML must have the type, except that 1e-4, text to YAML, is a number.
    """
    try:
        return _fit(value, hint)
    except Misfit as misfit:
        if get_origin(hint) is Literal:
            raise unknown_name(path, plain(value), map(str, get_args(hint))) from None
        quotes = " (in a file, put it in quotes)" if needs_quotes(value, hint) else ""
        raise ValueError(f"{path} is {shown(value)}: it must be {str(misfit) or describe(hint)}{quotes}") from None


def needs_quotes(value: Any, hint: Any) -> bool:
    """Whether `value`, or an item of it, is of a file, is no text, and would fit the type `hint` as text."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, list) and any(needs_quotes(item, arguments[0]) for item in value)
    if arguments and get_origin(hint) is not Literal:
        return any(needs_quotes(value, argument) for argument in arguments)
    return hint is str and isinstance(value, Plain | bool | int | float | date | None)


def plain(value: Any) -> Any:
    """`value`, with words as the text that was typed."""
    return " ".join(value) if isinstance(value, Words) else value


def describe(hint: Any) -> str:
    """The type `hint`, as a person would say it."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(describe, get_args(hint)))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is Annotated:
        return describe(get_args(hint)[0])
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        many = _PLURALS.get(kinds[0]) or describe(kinds[0])
        if kinds[-1] is ...:
            return f"a list of {many}"
        return f"a list of {len(kinds)} {many}" if len(set(kinds)) == 1 else f"a list of {len(kinds)}"
    return _SCALARS[hint][0]


def _fit(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _first_fit(value, arguments)
    if origin is Literal:
        return _choice(value, arguments)
    if origin is tuple:
        return _tuple(value, arguments)
    if origin is Annotated:
        return _fit(value, arguments[0])
    if isinstance(value, Plain):
        if hint is str and value.lower() != "none":
            raise Misfit
        value = Words((str(value),))
    if hint not in _SCALARS:
        # Not bad input but a setting that is declared wrongly: no message for the user of the command.
        raise TypeError(f"a setting cannot be of type {hint}: minimax_lib.config.values.convert lists what it can be")
    try:
        return _SCALARS[hint][1](value)
    except (TypeError, ValueError, OverflowError):
        raise Misfit from None


def _first_fit(value: Any, hints: tuple[Any, ...]) -> Any:
    # In the order in which the union is written: of `int | str`, 7 is the number. But none, the word, is not text.
    if isinstance(value, Words | Plain) and NoneType in hints:
        hints = (NoneType, *hints)
    for hint in hints:
        try:
            return _fit(value, hint)
        except Misfit:
            continue
    raise Misfit


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    # Each choice is compared in its own type: the word 2 is the number 2 where that is a choice.
    value = Words((str(value),)) if isinstance(value, Plain) else value
    for choice in choices:
        try:
            if _fit(value, type(choice)) == choice:
                return choice
        except Misfit:
            continue
    raise Misfit


def _tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Misfit
    items = [Words((word,)) for word in value] if isinstance(value, Words) else value
    if hints[-1] is ...:
        hints = hints[:1] * len(items)
    if len(items) != len(hints):
        raise Misfit
    return tuple(_fit(item, hint) for item, hint in zip(items, hints, strict=True))


def _word(words: Words) -> str:
    (word,) = words
    return word


def _boolean(value: Any) -> bool:
    if isinstance(value, Words):
        word = _word(value) if value else "true"
        if word in ("true", "True", "TRUE", "false", "False", "FALSE"):  # as YAML
            return word.lower() == "true"
    elif isinstance(value, bool):
        return value
    raise Misfit


def _integer(value: Any) -> int:
    if isinstance(value, Words):
        value = int(_digits(_word(value)))
    # Not `isinstance`, to which True is an integer.
    if type(value) is not int:
        raise Misfit
    if abs(value) > MAX_INTEGER:
        raise Misfit(f"an integer of 32 bits, {MAX_INTEGER} at most")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise Misfit
    # From YAML too, text is read as a number: YAML 1.1 takes 1e-4 (without a point) for text.
    value = _word(value) if isinstance(value, Words) else value
    # .inf is YAML's word for it, which a run's config.yaml holds.
    number = float(_digits(re.sub(r"\.(?=inf$)", "", value.lower())) if isinstance(value, str) else value)
    # NaN differs from itself: a run could not be resumed, since its configuration would not be the one that was saved.
    if math.isnan(number):
        raise Misfit
    # Beyond this a device would compute with infinity.
    if math.isfinite(number) and abs(number) > MAX_NUMBER:
        raise Misfit(f"a number of 32 bits, {MAX_NUMBER:g} at most")
    return number


def _digits(word: str) -> str:
    """`word`; Misfit for digits of other scripts, which Python reads and YAML does not."""
    if not word.isascii():
        raise Misfit
    return word


def _text(value: Any) -> str:
    text = _word(value) if isinstance(value, Words) else value
    if not isinstance(text, str):
        raise Misfit
    # It may become the name of a file, and stand in messages of one line.
    if not is_plain(text):
        raise Misfit("text without control characters")
    return text


def _none(value: Any) -> None:
    if value is not None and not (isinstance(value, Words) and _word(value).lower() in ("none", "null", "~")):
        raise Misfit


_SCALARS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    bool: ("true or false", _boolean),
    int: ("an integer", _integer),
    float: ("a number", _number),
    str: ("text", _text),
    NoneType: ("none", _none),
}
_PLURALS = {int: "integers", float: "numbers"}
