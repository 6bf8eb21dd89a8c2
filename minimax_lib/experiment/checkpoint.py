"""Checkpoints of a whole run: written in the background, atomic, and verified when they are read back."""

import contextlib
import dataclasses
import functools
import gc
import logging
import shutil
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from minimax_lib.experiment.failures import one_line
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.provenance import sealed, words_of
from minimax_lib.runners import hosts

ASIDE = "damaged_checkpoints"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none could be read; one line."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """The newest checkpoint that could be read, and what was found on the way to it."""

    update: int
    state: Any
    damaged: dict[int, str]  # newer ones that could not be read: update -> why
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as given to `save`; empty in older runs


class Checkpoints:
    """The checkpoints in one folder, each named by its number of updates; the newest `keep` are kept.

    `save` returns once the state has been copied and writes in the background, so the state may be donated right
    away. A checkpoint appears in the folder when it is complete: a process killed while it writes leaves the ones
    before. Every checkpoint carries a fingerprint of the state, so that a damaged one is never taken for the run.

    Several processes write and read one folder together, each the part of the state that it holds. So all of them have
    to make the same calls.
    """

    def __init__(self, folder: Path, keep: int = 3, read_only: bool = False, config: Mapping[str, Any] | None = None):
        """`config` is what the checkpoints belong to, and is kept with each (`provenance.configuration_of`).

        `read_only`: for looking at a run that another process may own; nothing is created or cleaned up.
        """
        self.folder = folder.absolute()
        self.config = config
        hush_failed_writes()
        policy = ocp.checkpoint_managers.LatestN(n=keep)
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy,
                create=not read_only,
                read_only=read_only,
                cleanup_tmp_directories=not read_only,
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except CheckpointError:
            if error is None:  # else the error that ends the block is the one to be told
                raise
        finally:
            self._manager.close()

    def updates(self) -> list[int]:
        """The checkpoints in the folder, oldest first. Some may be damaged, which only reading them shows."""
        return saved_updates(self.folder)

    def save(self, update: int, state: Any, record: Mapping[str, Any] | None = None) -> None:
        """Starts to write `state`, unless that update is saved already, and `record`: JSON, of the first process.

        Raises CheckpointError if it cannot be written, or if the write before could not.
        """
        self.wait()
        # All processes write one checkpoint together, so all must decide alike, whatever each sees of the folder.
        if hosts.largest(update in self.updates()):
            return
        words = {"crc32": fingerprint(state), "record": dict(record or {}), "config": self.config}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(_without_empty(state)),
            integrity=ocp.args.JsonSave(sealed(words)),
        )
        with _explained("a checkpoint could not be written"):
            check_space(self.folder, sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
            # Forced: the run decides when to save, and orbax's own rules for that are not asked.
            self._manager.save(update, args=items, force=True)

    def check(self) -> None:
        """Raises CheckpointError if the last write has failed, without waiting for one that is under way."""
        with _explained("a checkpoint could not be written"):
            self._manager.check_for_errors()

    def wait(self) -> None:
        """Returns when everything is on disk; raises CheckpointError if it could not be written."""
        with _explained("a checkpoint could not be written"):
            self._manager.wait_until_finished()

    def restore(self, shape: Any, only: int | None = None) -> Restored | None:
        """The newest checkpoint that is whole; None if there are none. Arrays are placed as `shape` says (`placed`).

        Given the update `only`, no other checkpoint is tried. Raises CheckpointError if there are checkpoints and none
        can be read.
        """
        self.wait()
        damaged: dict[int, str] = {}
        with _hushed():
            update = self._newest() if only is None else only
            while update >= 0:
                try:
                    state, record = self._read(update, shape)
                    return Restored(update, state, damaged, record)
                except Exception as error:  # whatever is wrong with this one, the one before may be whole
                    damaged[update] = one_line(error)
                update = self._newest(before=update) if only is None else -1
        if damaged:
            newest, why = next(iter(damaged.items()))
            raise CheckpointError(f"no checkpoint in {self.folder} can be read; that of update {newest}: {why}")
        return None

    def set_aside(self, updates: Iterable[int]) -> Path:
        """Moves checkpoints out of the way, beside the folder, and returns where they are."""
        # Damaged ones are not deleted: they may still be of use to a person. But their places must be free, since the
        # resumed run will save the same updates again.
        aside = self.folder.with_name(ASIDE)
        if hosts.is_first():
            aside.mkdir(exist_ok=True)
            for update in updates:
                taken = sum(path.name.partition("-")[0] == str(update) for path in aside.iterdir())
                shutil.move(self.folder / str(update), aside / (f"{update}-{taken}" if taken else str(update)))
        # The manager remembers what the folder held: it looks again once everything has been moved.
        hosts.wait_for_all()
        self._manager.reload()
        return aside

    def _newest(self, before: int | None = None) -> int:
        """The newest checkpoint that some process sees, or the newest `before` that one; -1 if there is none."""
        # Processes may see the folder differently. All have to try the same ones, or they would wait for each other.
        updates = [update for update in self.updates() if before is None or update < before]
        return hosts.largest(max(updates, default=-1))

    def _read(self, update: int, shape: Any) -> tuple[Any, Mapping[str, Any]]:
        """(state, record)."""
        checkpoint = self.folder / str(update)
        handler = ocp.StandardCheckpointHandler()
        # A process that cannot read its part must not go on to an older checkpoint alone. And not through the manager:
        # at its barrier the others would wait for the one that has failed, and take its word to them for the barrier's.
        with hosts.all_or_none():
            words = words_of(checkpoint)
            wanted = _without_empty(shape)
            if dataclasses.is_dataclass(shape):
                wanted = _known_members(wanted, handler.metadata(checkpoint / "state").tree)
            found = handler.restore(checkpoint / "state", args=ocp.args.StandardRestore(wanted))
        if dataclasses.is_dataclass(shape):
            found = dataclasses.replace(shape, **found)
        state = jax.tree.map(_empty_where_none, shape, found)
        # A flipped bit may pass orbax unnoticed, and the run would go on from a wrong number.
        if fingerprint(state) != words["crc32"]:
            raise CheckpointError("its content is not what was saved")
        return state, words.get("record", {})


def placed(shape: Any) -> Any:
    """A tree of shapes and dtypes, on this process's first device where it does not say where."""
    # Without a place, orbax would look for the devices that the state was saved from, which may not be here.
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def describe(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or here)

    return jax.tree.map(describe, shape)


def _without_empty(state: Any) -> Any:
    """`state` with None for arrays without elements, which orbax refuses."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, state)


def _empty_where_none(leaf: jax.ShapeDtypeStruct, saved: jax.Array | None) -> jax.Array:
    return jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding) if saved is None else saved


def _known_members(state: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `state`, without those that are empty and that the checkpoint does not have."""
    # A later version may give a state new members. Where they are empty, an older checkpoint still has everything.
    members = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return {name: member for name, member in members.items() if name in saved or jax.tree.leaves(member)}


def check_space(folder: Path, n_bytes: int) -> None:
    """Raises OSError if `n_bytes` do not fit. A write that runs out of space half way would say so less clearly."""
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(f"no space left on device: {n_bytes / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free in {folder}")


def fingerprint(state: Any) -> int:
    """CRC-32 of all numbers of a pytree of arrays, with their names, shapes and types.

    It does not depend on where the numbers lie. Where several processes hold them, every one of them computes it.
    """
    crc = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(hosts.readable(state)):
        numbers = on_host(leaf)
        # With names, shapes and types, so that the same numbers in other leaves do not pass for the same state.
        crc = zlib.crc32(f"{jax.tree_util.keystr(path)} {numbers.shape} {leaf.dtype}".encode(), crc)
        # Flat before it is viewed as bytes: NumPy gives no such view of an array without axes.
        crc = zlib.crc32(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data, crc)
    return crc


def on_host(leaf: Any) -> np.ndarray:
    """The numbers of an array; of a typed key, the words that it consists of."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns any error in its block into a CheckpointError that begins with `what`."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{what}: {one_line(error)}") from error


@functools.cache
def hush_failed_writes() -> None:
    """For the rest of the process, a write that fails is reported by the error that is raised, and not otherwise.

    orbax logs each error too. And where several parts of a state cannot be written, the first ends the event loop: the
    others find it closed, tasks are never asked for their errors and coroutines never awaited, often much later.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    report = sys.unraisablehook

    def report_unless_late(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            report(unraisable)

    sys.unraisablehook = report_unless_late


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keeps Python from reporting the coroutines that orbax leaves behind where a file is damaged."""
    report, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
            gc.collect()  # now, where it is hushed
    finally:
        sys.unraisablehook = report
