"""Copies of a student that trains elsewhere, in memory or as files, as the trainer's own library saves them.

agents = Agents("opponents", save=torch.save, load=torch.load)     files, which other processes read too
agents = Agents()                                                  deep copies in the memory of this process
"""

import copy
import io
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.files import UnreadableFile, read_bytes
from minimax_lib.messages import one_line
from minimax_lib.opponents.bank import LIVE
from minimax_lib.store.files import write_atomically

MOST_BYTES = 100_000_000_000  # of one copy
READY = 32  # copies that a process keeps as `load` has given them


class Agents:
    """The copies of a student by their serial: 0, 1 and so on. LIVE, -1, is the student as it is now.

    `save(params, file)` and `load(file)` are the trainer's own, such as `torch.save` and `torch.load`; `file` is open
    for bytes. Without them, a copy is a deep copy in memory, and is given back as it is.

    With a `folder`, each copy is a file in it, and stays there. Only then can environments in other processes have the
    copies. Each run needs a folder of its own.

    It is also the space of tasks that are opponents: an encoding is a serial, and the task is what `load` gives. What
    it gives is kept for the next call, so it must not be changed.
    """

    n = None
    shape = ()

    def __init__(
        self,
        folder: str | Path | None = None,
        save: Callable[[Any, Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ):
        if (save is None) != (load is None):
            given, missing = ("load", "save") if save is None else ("save", "load")
            raise ValueError(f"{given} is given without {missing}: give both, or none of them")
        if folder is not None and load is None:
            raise ValueError(f"folder is {folder}: files need `save` and `load`, such as torch.save and torch.load")
        self.folder = None if folder is None else Path(folder).absolute()
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"folder is {folder}, a file: give a folder, or a name that is free")
        self._save, self._load = save, load
        self._process = os.getpid()
        self._kept: dict[int, Any] = {}  # in memory, by serial: bytes, or deep copies
        self._ready: OrderedDict[int, tuple[Any, Any]] = OrderedDict()  # (version, what `load` gave), the latest last

    @property
    def in_memory(self) -> bool:
        """Whether only this process has the copies."""
        return self.folder is None

    @property
    def as_bytes(self) -> bool:
        """Whether the copies in memory are bytes, which can be saved with a state."""
        return self._load is not None

    def keep(self, serial: int, params: Any) -> None:
        """Keeps `params` as this copy; a path is that of a file which `load` can read, and the file is copied."""
        if isinstance(params, str | Path):
            if self._load is None:
                raise ValueError(
                    f"the agent is the file {params}: give Agents `save` and `load`, so that it can be read"
                )
            content: Any = read_bytes(params, MOST_BYTES)
        elif self._save is None:
            try:
                content = copy.deepcopy(params)
            except Exception as error:  # whatever the trainer's library says, as PyTorch of a tensor with a gradient
                raise ValueError(f"the agent cannot be copied ({one_line(error)}): give `save` and `load`") from error
        else:
            file = io.BytesIO()
            self._save(params, file)
            content = file.getvalue()
        self.put(serial, content)

    def put(self, serial: int, content: Any) -> None:
        """Keeps what `content` gives: the bytes of a file, or without `load` the copy itself."""
        if self.folder is None:
            self._kept[serial] = content
            self._ready.pop(serial, None)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file(serial), content)

    def content(self, serial: int) -> Any:
        """What `put` was given, of a copy in memory."""
        return self._kept[serial]

    def drop(self, serial: int) -> None:
        """A copy in memory is not needed any more. Files stay: a state that was saved earlier may need them."""
        self._kept.pop(serial, None)
        self._ready.pop(serial, None)

    def has(self, serial: int) -> bool:
        """Whether there is such a copy."""
        return serial in self._kept if self.folder is None else self._file(serial).is_file()

    def decode(self, encoding: Any) -> Any:
        """The copy with this serial, as `load` gives it. ValueError if it is not there, or cannot be read."""
        serial = int(encoding)
        if self.folder is None and os.getpid() != self._process:
            raise ValueError("the copies are in the memory of another process: give Agents a folder, `save` and `load`")
        if not self.has(serial):
            what = "the student as it is now" if serial == LIVE else f"copy {serial}"
            how = "call update_student" if serial == LIVE else "it was never added, or has left the bank long ago"
            raise ValueError(f"{what} is not {self.folder or 'in memory'}: {how}")
        if self._load is None:
            return self._kept[serial]
        version = self._version(serial)
        found = self._ready.get(serial)
        if found is None or found[0] != version:
            found = version, self._load(io.BytesIO(self._bytes(serial)))
        self._ready[serial] = found
        self._ready.move_to_end(serial)
        if len(self._ready) > READY:
            self._ready.popitem(last=False)
        return found[1]

    def encode(self, task: Any) -> int:
        """Opponents have no encoding but the serial that `add_agent` gave."""
        raise ValueError("an opponent is named by its serial: give the number that add_agent returned")

    def name(self, encoding: Any) -> str:
        """The serial in words."""
        return "the student" if int(encoding) == LIVE else f"copy {int(encoding)}"

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """i32[n], the very first copy: only that one is known to be there."""
        return jnp.zeros(n, jnp.int32)

    def __reduce__(self) -> Any:
        if self.folder is None:
            raise ValueError("the copies are in the memory of this process: give Agents a folder, `save` and `load`")
        return Agents, (self.folder, self._save, self._load)

    def __deepcopy__(self, memo: Any) -> "Agents":
        again = Agents(self.folder, self._save, self._load)
        again._kept = copy.deepcopy(self._kept, memo)
        return again

    def _file(self, serial: int) -> Path:
        assert self.folder is not None
        return self.folder / ("student" if serial == LIVE else f"copy_{serial}")

    def _version(self, serial: int) -> Any:
        """What changes with a file: the student's is replaced again and again."""
        if self.folder is None:
            return 0
        status = self._file(serial).stat()
        return status.st_mtime_ns, status.st_ino

    def _bytes(self, serial: int) -> bytes:
        if self.folder is None:
            return self._kept[serial]
        try:
            return read_bytes(self._file(serial), MOST_BYTES)
        except UnreadableFile as error:
            raise ValueError(f"{self._file(serial)} cannot be read ({error.why})") from None


def serials(value: Any) -> np.ndarray:
    """i32[M] of serials. ValueError if they are no whole numbers."""
    found = np.atleast_1d(np.asarray(value))
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise ValueError(f"the opponents are {found.dtype}{list(found.shape)}: give the serials that were drawn, [M]")
    return found.astype(np.int32)
