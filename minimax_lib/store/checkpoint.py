"""Checkpoints of a whole run: written in the background, complete or absent, and verified when they are read."""

import contextlib
import dataclasses
import functools
import gc
import logging
import math
import re
import shutil
import sys
import warnings
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from minimax_lib.counts import Count
from minimax_lib.files import check_folder
from minimax_lib.messages import one_line
from minimax_lib.runners import hosts
from minimax_lib.store.files import saved_updates
from minimax_lib.store.provenance import sealed, words_of

ASIDE = "damaged_checkpoints"
MOST_MORE = 100_000_000  # bytes that a checkpoint may have beside four times those of the state


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none could be read. One line."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """The newest readable checkpoint, and newer ones that are damaged."""

    update: int
    state: Any
    damaged: dict[int, str]  # newer checkpoints that could not be read: update -> why
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as given to `save`; empty in older runs


class Checkpoints:
    """The checkpoints in one folder, each named after its number of updates. The newest `keep` are kept.

    `save` copies the state, returns, and writes in the background. So the state may be donated right away. A checkpoint
    appears in the folder when it is complete: a process that is killed while it writes leaves the earlier ones. Every
    checkpoint has a fingerprint of its state, so that a damaged one is never used.

    Several processes write and read one folder together. Each handles the part of the state that it holds, so all of
    them must make the same calls.
    """

    def __init__(self, folder: Path, keep: int = 3, read_only: bool = False, config: Mapping[str, Any] | None = None):
        """`config` is the configuration of the run. It is kept with each checkpoint (`provenance.configuration_of`).

        With `read_only` nothing is created or cleaned up: another process may own the run.
        """
        self.folder = folder.absolute()
        self.config = config
        hush_failed_writes()
        # Only for what is written: it reads the whole folder when it is made, and the run that owns the folder may be
        # deleting a checkpoint.
        self._manager: ocp.CheckpointManager | None = None
        if not read_only:
            policy = ocp.checkpoint_managers.LatestN(n=keep)
            options = ocp.CheckpointManagerOptions(
                preservation_policy=policy, create=True, cleanup_tmp_directories=True
            )
            self._manager = ocp.CheckpointManager(self.folder, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except CheckpointError:
            if error is None:  # otherwise the error that ended the block matters more
                raise
        finally:
            # Closing waits for a write that has failed, and may raise its error once more.
            with self._writing():
                if self._manager:
                    self._manager.close()

    def updates(self) -> list[int]:
        """The updates of the checkpoints in the folder, oldest first. Only reading shows whether one is damaged."""
        return saved_updates(self.folder)

    def save(self, update: int, state: Any, record: Mapping[str, Any] | None = None) -> None:
        """Starts to write `state`, unless that update is saved already.

        `record` is JSON and is written beside it, as the first process gives it. Raises CheckpointError if this
        checkpoint cannot be written, or if the one before could not be.
        """
        self.wait()
        # All processes write a checkpoint together. So they must decide alike, even if they see the folder differently.
        if hosts.largest(update in self.updates()):
            return
        words = {"crc32": fingerprint(state), "record": dict(record or {}), "config": self.config}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(_without_empty(state)),
            integrity=ocp.args.JsonSave(sealed(words)),
        )
        assert self._manager, "opened to be read"
        with self._writing():
            check_space(self.folder, sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
            # Forced: the run decides when to save, not orbax.
            self._manager.save(update, args=items, force=True)

    def check(self) -> None:
        """Raises CheckpointError if the last write has failed. Does not wait for one that is under way."""
        with self._writing():
            if self._manager:
                self._manager.check_for_errors()

    def wait(self) -> None:
        """Returns when everything is on disk. Raises CheckpointError if it could not be written."""
        with self._writing():
            if self._manager:
                self._manager.wait_until_finished()

    def restore(self, shape: Any, only: int | None = None) -> Restored | None:
        """The newest checkpoint that is not damaged; None if there are none. `shape` (`placed`) says where arrays go.

        If the update `only` is given, no other checkpoint is tried. Raises CheckpointError if there are checkpoints but
        none can be read.
        """
        self.wait()
        damaged: dict[int, str] = {}
        tried: set[int] = set()
        with _hushed():
            update = self._newest(tried) if only is None else only
            while update >= 0:
                tried.add(update)
                try:
                    state, record = self._read(update, shape)
                    newer = {other: why for other, why in damaged.items() if other > update}
                    return Restored(update, state, newer, record)
                except Exception as error:  # whatever is wrong with this one, an earlier one may be good
                    damaged[update] = _reason(error)
                gc.collect()  # Python reports what was never awaited when it collects, so it must do that here
                if only is None and hosts.largest(not (self.folder / str(update)).exists()):
                    del damaged[update]  # the run that owns the folder has deleted it, and has saved a newer one
                # So a newer one than the last may be there by now.
                update = self._newest(tried) if only is None else -1
        if damaged:
            newest, why = next(iter(damaged.items()))
            raise CheckpointError(f"no checkpoint in {self.folder} can be read; that of update {newest}: {why}")
        return None

    def set_aside(self, updates: Iterable[int]) -> Path:
        """Moves checkpoints to a folder beside this one, and returns that folder."""
        # Damaged checkpoints are not deleted, since a person may still make use of them. But their names must be free:
        # the resumed run will save the same updates again.
        aside = self.folder.with_name(ASIDE)
        if hosts.is_first():
            aside.mkdir(exist_ok=True)
            for update in updates:
                taken = sum(path.name.partition("-")[0] == str(update) for path in aside.iterdir())
                shutil.move(self.folder / str(update), aside / (f"{update}-{taken}" if taken else str(update)))
        # The manager remembers what the folder held. It must look again, after everything has been moved.
        hosts.wait_for_all()
        if self._manager:
            self._manager.reload()
        return aside

    def _newest(self, tried: Collection[int]) -> int:
        """The newest checkpoint that any process sees, but for those that were `tried`; -1 if there is none."""
        # Processes may see the folder differently. All must try the same checkpoint: else they wait for each other.
        return hosts.largest(max((update for update in self.updates() if update not in tried), default=-1))

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        """A block in which every error is one of writing a checkpoint, and names the folder."""
        return _explained(f"a checkpoint could not be written: {self.folder}")

    def _read(self, update: int, shape: Any) -> tuple[Any, Mapping[str, Any]]:
        """(state, record)."""
        checkpoint = self.folder / str(update)
        handler = ocp.StandardCheckpointHandler()
        # If a process cannot read its part, all fail together: it must not go on alone to an older checkpoint. The
        # manager is not used for reading, since it has its own barrier. There the other processes would wait for
        # the one that failed, and would take its message from `all_or_none` for the barrier's.
        with hosts.all_or_none():
            check_folder(checkpoint, MOST_MORE + 4 * sum(_n_bytes(leaf) for leaf in jax.tree.leaves(shape)))
            words = words_of(checkpoint)
            saved = handler.metadata(checkpoint / "state").tree
            # A count that began with a later version was 0 in all runs before.
            uncounted = _missing_counts(shape, saved)
            then = dataclasses.replace(shape, **dict.fromkeys(uncounted, ())) if uncounted else shape
            wanted = _known_members(_without_empty(then), saved)
            found = handler.restore(checkpoint / "state", args=ocp.args.StandardRestore(wanted))
        state = jax.tree.map(_empty_where_none, then, _with_all_members(then, found))
        # orbax may not notice a flipped bit, and the run would go on from a wrong number.
        if fingerprint(state) != words["crc32"]:
            raise CheckpointError("its content is not what was saved")
        if uncounted:
            state = dataclasses.replace(state, **jax.tree.map(_zeros, uncounted))
        return state, words.get("record", {})


def placed(shape: Any) -> Any:
    """A tree of shapes and dtypes with a place for each: this process's first device, where `shape` names none."""
    # Without a place, orbax would look for the devices of the process that saved the state. They may not exist here.
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def describe(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or here)

    return jax.tree.map(describe, shape)


def _without_empty(state: Any) -> Any:
    """`state` with None for arrays without elements, which orbax refuses."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, state)


def _empty_where_none(leaf: jax.ShapeDtypeStruct, saved: jax.Array | None) -> jax.Array:
    return _zeros(leaf) if saved is None else saved


def _n_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def _zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)


def _missing_counts(shape: Any, saved: Any) -> dict[str, Count]:
    """The members of a whole state that count something and that the checkpoint does not have."""
    if not dataclasses.is_dataclass(shape) or not isinstance(saved, Mapping):
        return {}
    members = {name: getattr(shape, name) for name in _members(shape)}
    return {name: part for name, part in members.items() if isinstance(part, Count) and name not in saved}


def _known_members(part: Any, saved: Any) -> Any:
    """`part` of a state as a dict, without members that are empty and that the checkpoint does not have.

    `saved` is the checkpoint's tree in its place.
    """
    # A later version may give a state new members. Where they are empty, an older checkpoint still has everything.
    if not dataclasses.is_dataclass(part) or not isinstance(saved, Mapping):
        return part
    members = {name: getattr(part, name) for name in _members(part)}
    known = {name: member for name, member in members.items() if name in saved or jax.tree.leaves(member)}
    return {name: _known_members(member, saved.get(name)) for name, member in known.items()}


def _with_all_members(shape: Any, found: Any) -> Any:
    """`found` in the form of `shape`, whose members are empty where `_known_members` has left some out."""
    if not dataclasses.is_dataclass(shape) or not isinstance(found, Mapping):
        return found
    members = {name: _with_all_members(getattr(shape, name), member) for name, member in found.items()}
    return dataclasses.replace(shape, **members)  # type: ignore[type-var]


def _members(part: Any) -> list[str]:
    """The names of the members of a dataclass that hold arrays."""
    return [field.name for field in dataclasses.fields(part) if field.metadata.get("pytree_node", True)]


def check_space(folder: Path, n_bytes: int) -> None:
    """Raises OSError if `n_bytes` do not fit. The message is clearer than that of a write that fails half way."""
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(f"no space left on device: {n_bytes / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free in {folder}")


def fingerprint(state: Any) -> int:
    """CRC-32 of all numbers of a pytree of arrays, with their names, shapes and types.

    It does not depend on which devices hold the numbers. If several processes hold them, each of these computes it.
    """
    crc = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(hosts.readable(state)):
        numbers = on_host(leaf)
        # Names, shapes and types are included: the same numbers in other leaves are another state.
        crc = zlib.crc32(f"{jax.tree_util.keystr(path)} {numbers.shape} {leaf.dtype}".encode(), crc)
        # Flattened first: NumPy cannot view an array without axes as bytes.
        crc = zlib.crc32(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data, crc)
    return crc


def on_host(leaf: Any) -> np.ndarray:
    """The numbers of an array. For a typed key, the words of which it consists."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns any error in its block into a CheckpointError that begins with `what`."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The message of an error in one line, without Tensorstore's description of the array."""
    # Where the trees differ, orbax lists every array and gives an advice that nobody here can follow.
    if differing := re.findall(r"^(\S+):\n    - Source", str(error), flags=re.MULTILINE):
        more = f" and {len(differing) - 1} others" if differing[1:] else ""
        return f"another version saved it; different: {min(differing, key=len)}{more}"
    # It is so long that the cause would be lost in the middle of the message.
    reason = re.sub(r" ?\[tensorstore_spec='.*?'\]", "", str(error), flags=re.DOTALL)
    reason = re.sub(r"\. See full TensorStore details: .*", "", reason, flags=re.DOTALL)
    return one_line(Exception(reason) if reason else error)


@functools.cache
def hush_failed_writes() -> None:
    """From now on, the process reports a failed read or write only by the error that is raised.

    orbax also logs each error. If several parts of a state cannot be written, the first failure closes the event loop.
    Then Python warns, often much later, of a closed loop, of errors that were not asked for, and of coroutines that
    were never awaited.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    report = sys.unraisablehook

    def report_unless_late(unraisable: Any) -> None:
        # Reads that orbax began and has given up fail later, as coroutines that nobody waits for.
        code = getattr(unraisable.object, "cr_code", None)
        of_orbax = code is not None and "orbax" in code.co_filename
        if str(unraisable.exc_value) != "Event loop is closed" and not of_orbax:
            report(unraisable)

    sys.unraisablehook = report_unless_late


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keeps Python from reporting the coroutines that orbax leaves behind if a file is damaged."""
    report, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = report
