"""A run on disk: where its files are, who may write them, and whether a run may start or go on there."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import filelock
import yaml

from minimax_lib.config import from_dict, to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.tree import flat
from minimax_lib.experiment.files import saved_updates, write_atomically

UNSET = "not set"


class RunRefused(ValueError):
    """The run cannot start or go on as asked; one line. Nothing of an earlier run has been changed."""


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

    def holds_run(self) -> bool:
        """Whether there is anything to lose: a checkpoint, or measurements."""
        # A configuration alone is not: a run that was killed before its first interval can simply be started again.
        return self.metrics.exists() or bool(saved_updates(self.checkpoints))

    def newest(self) -> str:
        """What to say of the newest checkpoint."""
        updates = saved_updates(self.checkpoints)
        return f"the newest checkpoint is that of update {updates[-1]:,}" if updates else "there is no checkpoint yet"

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Makes the folder, if need be, and keeps other processes from running in it; the lock dies with the process.

        Raises RunRefused if a live process owns it or it cannot be written to.
        """
        # A lock of the operating system and not a file that says "taken": that would outlive a killed process.
        lock = filelock.FileLock(self.path / ".lock", timeout=0)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except filelock.Timeout:
            owner = self._owner_name()
            raise RunRefused(f"{self.path} is in use by {owner}: wait for it, or choose another --name") from None
        except OSError as error:
            raise _unwritable(self.path, error) from error
        with lock:
            self._sign()
            yield

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
        try:
            write_atomically(self.config, yaml.safe_dump(config, sort_keys=False))
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _check_same(self, config: dict[str, Any], free: Collection[str]) -> None:
        differing = differences(completed(self.saved_config()), config)
        fixed = [f"{name} was {old} and is now {new}" for name, (old, new) in differing.items() if name not in free]
        if fixed:
            raise RunRefused(
                f"cannot resume {self.path} with another configuration: {'; '.join(fixed)} "
                f"(--config {self.config} gives the run's own)"
            )

    def saved_config(self) -> dict[str, Any]:
        """The configuration of the run in the folder; RunRefused if it cannot be read."""
        try:
            return read_yaml(self.config)
        except ValueError as error:
            raise RunRefused(f"cannot resume {self.path}: {error}") from error

    def _sign(self) -> None:
        # Only for the message to the next process: it is the lock that keeps others out.
        try:
            self._owner.write_text(f"{os.getpid()}\n", encoding="utf-8")
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _owner_name(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return f"process {int(self._owner.read_text(encoding='utf-8'))}"
        return "another process"


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
