"""A run on disk: where its files are, who may write them, and whether a run may start or go on there."""

import contextlib
import os
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import filelock
import yaml

from minimax_lib.config import from_dict, to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.tree import flat
from minimax_lib.config.values import convert
from minimax_lib.experiment.files import saved_updates, write_atomically

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNSET = "not set"
PARTIAL = ".orbax-checkpoint-tmp"  # in the name of a checkpoint that is being written


class RunRefused(ValueError):
    """The run cannot start or go on as asked; one line. Nothing of an earlier run has been changed."""


class FolderLost(OSError):
    """Somebody has taken the folder away from the run under way; one line."""


class RunFolder:
    """`<log_dir>/<name>/`: the configuration, the tables, the checkpoints and the pictures of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.csv"
        self.evaluations = path / "eval.csv"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self._owner = path / ".owner"
        # A lock of the operating system and not a file that says "taken": that would outlive a killed process.
        self._lock = filelock.FileLock(path / ".lock", timeout=0)
        # No other process writes the same, not even a later one with the same number.
        self._signature = f"{os.getpid()} {uuid.uuid4().hex}\n"
        self._settings = ""  # the text of the configuration, once it is admitted

    def holds_run(self) -> bool:
        """Whether there is anything to lose: a checkpoint, or measurements."""
        # A configuration alone is not: a run that was killed before its first interval can simply be started again.
        return self.metrics.exists() or bool(saved_updates(self.checkpoints))

    def newest(self) -> str:
        """What to say of the newest checkpoint."""
        # Also where the write that was under way has made its place again.
        if self._settings and not self.config.exists():
            return "its checkpoints are gone too"
        updates = saved_updates(self.checkpoints)
        return f"the newest checkpoint is that of update {updates[-1]:,}" if updates else "there is no checkpoint yet"

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Makes the folder, if need be, and keeps other processes from running in it; the lock dies with the process.

        Raises RunRefused if a live process owns it, it cannot be written to, or it holds files and no run. A folder
        that is refused inside the block, before `admit` has written to it, is left as it was.
        """
        with contextlib.ExitStack() as stack:
            try:
                self._check_no_stranger()
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked_folder(self.path))
                signature = self._owner.read_text(encoding="utf-8", errors="replace") if self._owner.exists() else None
                stack.enter_context(self._lock)
                write_atomically(self._owner, self._signature)
            except (filelock.Timeout, BlockingIOError):
                raise RunRefused(
                    f"{self.path} is in use by {self._owner_name()}: wait for it, or choose another --name"
                ) from None
            except OSError as error:
                raise _unwritable(self.path, error) from error
            try:
                yield
            except RunRefused:
                if not self._settings:
                    self._sign_off(signature)
                raise

    def _sign_off(self, signature: str | None) -> None:
        """Puts back what the folder had: `signature`, or no lock at all."""
        if signature is not None:
            write_atomically(self._owner, signature)
            return
        self._owner.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _check_no_stranger(self) -> None:
        """RunRefused if there are files in the folder that no run has written: some have the names of the run's own."""
        if self._owner.exists() or self.holds_run() or not self.path.is_dir():
            return
        # Hidden files are none of a person's work, and desktops leave them in every folder. Half a checkpoint is what a
        # run leaves that was writing it while its folder was deleted.
        names = sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))
        if all(PARTIAL in path.name for path in self.checkpoints.glob("*")):
            names = [name for name in names if name != self.checkpoints.name]
        if names:
            listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise RunRefused(
                f"{self.path} holds files and no run ({listed}): choose another --name, or an empty folder"
            )

    def repaired(self) -> list[str]:
        """Names of files that somebody has taken away from the run, which owns the folder; they are there again.

        Raises FolderLost if the folder is another one now, or another process has come in.
        """
        if not self.config.exists() and not self._owner.exists():
            raise FolderLost(f"{self.path} has been taken away while the run was under way")
        lock = Path(self._lock.lock_file)
        missing = [path.name for path in (lock, self._owner, self.config) if not path.exists()]
        if self._owner.name not in missing and self._owner.read_text("utf-8", "replace") != self._signature:
            raise FolderLost(f"{self.path} has been taken over by {self._owner_name()}")
        if lock.name in missing:
            self._lock.release()
            try:
                self._lock.acquire()
            except filelock.Timeout:
                raise FolderLost(f"{self.path} has been taken over by {self._owner_name()}") from None
        if self._owner.name in missing:
            write_atomically(self._owner, self._signature)
        if self.config.name in missing:
            write_atomically(self.config, self._settings)
        return missing

    def admit(self, config: dict[str, Any], resume: bool, free: Collection[str]) -> None:
        """Records the configuration, or raises RunRefused.

        A folder that holds a run takes only `resume`, with a configuration that differs from the run's in nothing but
        `free` (dotted names). A folder that holds none takes anything, so that `resume` may always be given.
        """
        if self.holds_run():
            if not resume:
                raise RunRefused(
                    f"{self.path} already holds a run: add --resume to continue it, or choose another --name"
                )
            self._check_same(config, free)
        # Written on a resume too, since settings in `free` may have changed.
        self._settings = yaml.safe_dump(config, sort_keys=False)
        try:
            write_atomically(self.config, self._settings)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _check_same(self, config: dict[str, Any], free: Collection[str]) -> None:
        saved = self.saved_config()
        differing = differences(completed(saved), config)
        fixed = [f"{name} was {old} and is now {new}" for name, (old, new) in differing.items() if name not in free]
        if fixed:
            raise RunRefused(
                f"cannot resume {self.path} with another configuration: {'; '.join(fixed)} "
                f"(--config {self.config} gives the run's own)"
            )
        # What is left may change, and is about to be written over: not if nobody can say what it was.
        try:
            convert(saved.get("plugins", ()), tuple[str, ...], "plugins")
            from_dict(saved | {"plugins": []})
        except ValueError as error:
            raise RunRefused(f"cannot resume {self.path}: {self.config.name} is damaged: {error}") from error

    def saved_config(self) -> dict[str, Any]:
        """The configuration of the run in the folder; RunRefused if it cannot be read."""
        try:
            return read_yaml(self.config)
        except ValueError as error:
            raise RunRefused(f"cannot resume {self.path}: {error}") from error

    def _owner_name(self) -> str:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return f"process {int(self._owner.read_text(encoding='utf-8').split()[0])}"
        return "another process"


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """A block in which no other process gets the lock on the folder itself; BlockingIOError if one has it.

    It holds although the lock file is deleted. Where there are no such locks (Windows, some network file systems) it
    does nothing, and the lock file is all there is.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(descriptor)


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """`saved` with the settings that have been added since, at their defaults: as the run would be started today."""
    try:
        # Without its plugins: those that are needed have been imported by whoever resumes the run.
        return to_dict(from_dict(saved | {"plugins": []})) | {"plugins": saved.get("plugins", [])}
    except ValueError:
        return saved


def differences(saved: dict[str, Any], given: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (saved, given value) of all settings that differ, `given` as it would be after saving it."""
    # What was saved has gone through YAML, which makes lists of tuples: `given` has to go the same way.
    old, new = flat(saved), flat(yaml.safe_load(yaml.safe_dump(given)))
    names = [*new, *(name for name in old if name not in new)]
    pairs = {name: (old.get(name, UNSET), new.get(name, UNSET)) for name in names}
    return {name: (before, now) for name, (before, now) in pairs.items() if before != now}


def _unwritable(path: Path, error: OSError) -> RunRefused:
    return RunRefused(f"cannot write to {path}: {error.strerror or error}")
