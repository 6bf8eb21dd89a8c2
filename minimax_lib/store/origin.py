"""What made a run: versions and machines, in the file `origin.jsonl` of its folder."""

import dataclasses
import functools
import importlib.metadata
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from minimax_lib.files import MOST_TEXT, read_bytes
from minimax_lib.store.files import append_durably, say_unread

PACKAGE = "minimax-ued"
CHECKOUT = Path(__file__).parent.parent.parent  # the folder of the package, if it is used from a checkout
PATIENCE = 5.0  # seconds to wait for git


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a run was trained with, from an update on."""

    update: int
    version: str  # of this package; empty if it is not installed
    commit: str  # of the checkout, "-dirty" if its files have been changed; empty without a checkout
    jax: str  # its version
    machine: str  # `hardware_line`


def origin_of(update: int, machine: str) -> Origin:
    """What this process trains with."""
    return Origin(update, own_version(), commit(), importlib.metadata.version("jax"), machine)


def own_version() -> str:
    """The version of this package; empty if it is not installed."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def begun_by_this_version(origins: Sequence[Origin]) -> bool:
    """Whether the run of these origins was begun by exactly this code. False where that is not sure."""
    if not origins or origins[0].update:
        return False
    version, code = origins[0].version, origins[0].commit
    return bool(version or code) and not code.endswith("-dirty") and (version, code) == (own_version(), commit())


def record(path: Path, origin: Origin) -> None:
    """Adds a line to the file, unless its last one says the same of an earlier update."""
    known, _ = _origins(path)
    if known and dataclasses.replace(known[-1], update=origin.update) == origin:
        return
    # A power cut may have left half a line.
    gap = "\n" if _content(path)[-1:] not in (b"", b"\n") else ""
    append_durably(path, f"{gap}{json.dumps(dataclasses.asdict(origin))}\n")


def read_origins(path: Path) -> list[Origin]:
    """The lines of the file that can be read, the oldest first; none where an earlier version made the run.

    A warning says which lines cannot be read. ValueError in one line where the file is no regular one, or too large.
    """
    found, unread = _origins(path)
    if unread:
        say_unread(path, dict.fromkeys(unread, "is no origin of a run"))
    return found


def _origins(path: Path) -> tuple[list[Origin], list[int]]:
    """(the origins, the numbers of the lines that are none)."""
    lines = _content(path).decode("utf-8", "replace").splitlines()
    parsed = {number: _parsed(line) for number, line in enumerate(lines, start=1) if line.strip()}
    return [one for one in parsed.values() if one], [number for number, one in parsed.items() if one is None]


def _content(path: Path) -> bytes:
    return read_bytes(path, MOST_TEXT) if path.exists() else b""


def _parsed(line: str) -> Origin | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    types = {field.name: field.type for field in dataclasses.fields(Origin)}
    if not isinstance(said, dict) or any(type(said.get(name)) is not kind for name, kind in types.items()):
        return None
    return Origin(**{name: said[name] for name in types})


@functools.cache
def commit() -> str:
    """The commit of the checkout that this package is used from; empty if it is none, or without git."""
    # Only of the checkout itself: the folder of an installed package may lie in another one.
    if not (CHECKOUT / ".git").exists():
        return ""
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
