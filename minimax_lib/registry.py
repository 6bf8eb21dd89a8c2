"""Tables of name -> thing that third parties extend with a call, and the error for a name that is not in one."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from minimax_lib.messages import shortened, shown

T = TypeVar("T")
LISTED = 600  # characters of a list of names that is shown whole
NEAREST = 10  # names of a longer one
WORD = re.compile(r"[^\W\d_][\w.+-]*")  # what a name may be: files, flags and the names of folders hold it
LONGEST = 60  # letters of a name


def check_name(kind: str, name: object) -> None:
    """ValueError where `name` cannot be chosen in a file and on the command line."""
    if not isinstance(name, str) or len(name) > LONGEST or not WORD.fullmatch(name):
        raise ValueError(
            f"{kind} {shown(name)} cannot be registered: a name must be text that begins with a letter and has only "
            f"letters, digits and _ - . +, {LONGEST} at most"
        )


def unknown_name(
    kind: str, name: object, allowed: Iterable[str], near: Iterable[str] | None = None, meant: str | None = None
) -> ValueError:
    """The error for `name`, with what is allowed and the nearest of it (or of `near`), in one line.

    `meant` is the name to suggest where it is known. Of a list that would fill the screen, only the nearest names are
    shown.
    """
    allowed = list(allowed)
    # A comparison takes longer for a longer name. Of a very long one, the beginning is enough.
    wanted = shortened(str(name), 200).lower()
    near = [other for other in (allowed if near is None else near) if other != str(name)]
    # The name dr may mean maze/dr. Of several such paths the shortest is meant, and of these the first. Whole names
    # come last, so that they win over the end of another.
    backwards = near[::-1]
    by_depth = sorted(backwards, key=lambda a: -a.count("/"))
    folded = {a.rpartition("/")[2].lower(): a for a in by_depth} | {a.lower(): a for a in near}
    nearest = [] if meant else difflib.get_close_matches(wanted, folded, n=1, cutoff=0.5)
    meant = folded[nearest[0]] if nearest else meant
    # What was typed is no suggestion.
    hint = f" (did you mean {meant!r}?)" if meant and meant != str(name) else ""
    return ValueError(f"unknown {kind} {shown(str(name))}: {_choice(allowed, wanted)}{hint}")


def _choice(allowed: list[str], wanted: str) -> str:
    if not allowed:
        return "there is none to choose from"
    if len(", ".join(allowed)) <= LISTED:
        return f"choose from {', '.join(allowed)}"
    # However far off (no cutoff): any of them is a better hint than none.
    nearest = difflib.get_close_matches(wanted, allowed, n=NEAREST, cutoff=0.0)
    return f"choose from {len(allowed)}, such as {', '.join(shortened(name, 100) for name in nearest)}"


class Registry(Generic[T]):
    """A literal table plus what was registered since. Lookup of an unknown name raises ValueError in one line."""

    def __init__(
        self,
        kind: str,
        table: dict[str, Any],
        elsewhere: Mapping[str, str] | None = None,
        kept_as: Callable[[Any], T] = lambda item: item,
    ):
        """`elsewhere`: names in papers and other libraries, each with its name in the table, for the hint in an error.

        The table holds `kept_as(item)` for each item that is put into it.
        """
        self.kind = kind
        self._kept_as = kept_as
        self._table = {name: kept_as(item) for name, item in table.items()}
        self._elsewhere = dict(elsewhere or {})

    def register(self, name: str, item: Any) -> T:
        """Adds `item` under `name`, and returns the entry. A name that is taken by something else is refused."""
        check_name(self.kind, name)
        item = self._kept_as(item)
        if self._table.get(name, item) is not item:
            raise ValueError(f"{self.kind} {name!r} is registered already, as {self._table[name]!r}")
        self._table[name] = item
        return item

    def __getitem__(self, name: str) -> T:
        if name not in self._table:
            raise unknown_name(self.kind, name, self._table, meant=self._elsewhere.get(str(name).lower()))
        return self._table[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def names(self) -> tuple[str, ...]:
        return tuple(self._table)

    def name_of(self, item: T) -> str:
        """The name under which `item` is registered."""
        for name, known in self._table.items():
            if known is item:
                return name
        raise ValueError(
            f"{item!r} is not a registered {self.kind}: register it, or choose from {', '.join(self._table)}"
        )


class RegistryView(Registry[T]):
    """A registry that is read off something else, and follows it."""

    def __init__(self, kind: str, read: Callable[[], dict[str, T]]):
        self.kind = kind
        self._read = read
        self._elsewhere = {}

    @property
    def _table(self) -> dict[str, T]:  # type: ignore[override]
        return self._read()

    def register(self, name: str, item: T) -> T:
        raise TypeError(f"the {self.kind} {name!r} cannot be registered alone: register what it belongs to")
