"""The folder of a run: where its files are, which process may write them, and whether a run may start or go on."""

import contextlib
import difflib
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import filelock
import yaml

from minimax_lib.config.files import RUN_CONFIG, read_yaml
from minimax_lib.config.shipped import RUNS, shipped
from minimax_lib.config.tree import flat
from minimax_lib.config.values import convert
from minimax_lib.files import MOST_TEXT, UnreadableFile, holds, read_bytes
from minimax_lib.registry import unknown_name
from minimax_lib.store.files import copy_aside, saved_updates, write_atomically

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNSET = "not set"
METHOD = ("env", "model", "runner", "ppo", "n_updates")  # settings that make a method
PARTIAL = ".orbax-checkpoint-tmp"  # a part of the name of a checkpoint that is being written
NO_REASONS: Mapping[str, str] = MappingProxyType({})


class RunRefused(ValueError):
    """The run cannot start or go on as requested. One line. Nothing of an earlier run has been changed."""


class FolderLost(OSError):
    """The folder has been deleted, moved or taken over while the run was under way. One line."""


class RunFolder:
    """`<log_dir>/<name>/`: the configuration, the tables, the checkpoints and the pictures of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / RUN_CONFIG
        self.metrics = path / "metrics.csv"
        self.evaluations = path / "eval.csv"
        self.checkpoints = path / "checkpoints"
        self.archive = path / "archive"
        self.tensorboard = path / "tensorboard"
        self.origin = path / "origin.jsonl"
        self._owner = path / ".owner"
        # A lock of the operating system. A file that says "taken" would outlive a killed process.
        self._lock = filelock.FileLock(path / ".lock", timeout=0)
        # Unique: not even a later process with the same number has this signature.
        self._signature = f"{os.getpid()} {uuid.uuid4().hex}\n"
        self._settings = ""  # the text of the configuration, once the run is admitted

    def holds_run(self) -> bool:
        """Whether there is anything to lose: a checkpoint, or measurements. RunRefused where that cannot be seen."""
        # A configuration alone does not count: a run that was killed before its first interval can just start again.
        try:
            return self.metrics.exists() or bool(saved_updates(self.checkpoints))
        except UnreadableFile as error:
            raise RunRefused(str(error)) from error

    def newest(self) -> str:
        """A phrase about the newest checkpoint, for messages."""
        # Without config.yaml the folder was deleted. Checkpoints may still be listed there: a write that was under way
        # then has made its folder again.
        if self._settings and not self.config.exists():
            return "its checkpoints are gone too"
        try:
            updates = saved_updates(self.checkpoints)
        except UnreadableFile as error:
            return str(error)
        return f"the newest checkpoint is that of update {updates[-1]:,}" if updates else "there is no checkpoint yet"

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Makes the folder if there is none, and keeps other processes from running in it.

        The lock ends with the process. Raises RunRefused if a live process owns the folder, if it cannot be written to,
        or if it holds files but no run. If the block raises RunRefused before `admit` has written anything, the folder
        is left as it was.
        """
        with contextlib.ExitStack() as stack:
            try:
                self._check_no_stranger()
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked_folder(self.path))
                signature = self._signed() if self._owner.exists() else None
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
        """Restores what the folder had before: the signature `signature`, or no lock at all."""
        if signature is not None:
            write_atomically(self._owner, signature)
            return
        self._owner.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def _check_no_stranger(self) -> None:
        """RunRefused if the folder holds files that no run has written: the run might overwrite some of them."""
        if self._owner.exists() or self.holds_run() or not self.path.is_dir():
            return
        # Hidden files are not counted, since desktops leave them in every folder. Neither is half a checkpoint: a run
        # that was writing it while its folder was deleted has left it.
        names = sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))
        if all(PARTIAL in path.name for path in self.checkpoints.glob("*")):
            names = [name for name in names if name != self.checkpoints.name]
        if names:
            listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise RunRefused(
                f"{self.path} holds files and no run ({listed}): choose another --name, or an empty folder"
            )

    def repaired(self) -> list[str]:
        """Makes deleted files of the run again, and returns their names.

        Raises FolderLost if the whole folder was deleted or moved, or if another process has taken it over.
        """
        if not self.config.exists() and not self._owner.exists():
            raise FolderLost(f"{self.path} has been taken away while the run was under way")
        lock = Path(self._lock.lock_file)
        missing = [path.name for path in (lock, self._owner, self.config) if not path.exists()]
        if self._owner.name not in missing and self._signed() != self._signature:
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

    def admit(
        self, config: dict[str, Any], resume: bool, free: Collection[str], reasons: Mapping[str, str] = NO_REASONS
    ) -> Path | None:
        """Records the configuration, or raises RunRefused.

        A folder without a run takes any configuration, so `resume` may always be given. A folder with a run must be
        resumed, and only the settings `free` (dotted names) may differ from its own. `reasons` says for some
        settings why they may not differ.

        Returns where a file that a person has written into is kept, if another configuration takes its place.
        """
        if self.holds_run():
            if not resume:
                raise RunRefused(
                    f"{self.path} already holds a run: add --resume to continue it, or choose another --name"
                )
            self._check_same(config, free, reasons)
        self._settings = yaml.safe_dump(config, sort_keys=False)
        try:
            return self._record(config)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _record(self, config: dict[str, Any]) -> Path | None:
        """Writes `config` where the file says something else: on a resume, settings in `free` may have changed."""
        kept, saved = None, {}
        if self.config.exists():
            with contextlib.suppress(ValueError):  # what cannot be read says something else
                saved = read_yaml(self.config)
                if not differences(saved, config):
                    return None  # so that its comments stay
            if not holds(self.config, yaml.safe_dump(saved, sort_keys=False).encode()):
                kept = copy_aside(self.config, self.path)
        write_atomically(self.config, self._settings)
        return kept

    def _check_same(self, config: dict[str, Any], free: Collection[str], reasons: Mapping[str, str]) -> None:
        saved = self.saved_config()
        differing = {name: pair for name, pair in differences(completed(saved), config).items() if name not in free}
        if differing:
            changes = [change(name, *pair) + reasons.get(name, "") for name, pair in differing.items()]
            # Where there is a reason, it says what to do.
            hint = "" if differing.keys() <= reasons.keys() else f" (--config {self.config} gives the run's own)"
            raise RunRefused(f"cannot resume {self.path} with another configuration: {'; '.join(changes)}{hint}")
        # The other settings may change, and will be overwritten. But not if what they were cannot be read.
        from minimax_lib.config import from_dict  # imports JAX

        try:
            convert(saved.get("plugins", ()), tuple[str, ...], "plugins")
            from_dict(saved | {"plugins": []})
        except ValueError as error:
            raise RunRefused(f"cannot resume {self.path}: {self.config.name} is damaged: {error}") from error

    def saved_config(self) -> dict[str, Any]:
        """The configuration of the run in the folder; RunRefused if it cannot be read."""
        if not self.config.exists():
            raise RunRefused(f"cannot resume {self.path}: it has no {RUN_CONFIG}")
        try:
            return read_yaml(self.config)
        except ValueError as error:
            raise RunRefused(f"cannot resume {self.path}: {error}") from error

    def _signed(self) -> str:
        """The signature of the process that took the folder last."""
        return read_bytes(self._owner, MOST_TEXT).decode("utf-8", "replace")

    def _owner_name(self) -> str:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return f"process {int(self._signed().split()[0])}"
        return "another process"


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """A block in which this process holds a lock on the folder itself; BlockingIOError if another process has it.

    This lock still holds if the lock file is deleted. Windows and some network file systems have no such locks: there
    it does nothing, and the lock file is the only protection.
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


def check_is_run(path: Path, agents: Iterable[str] = ()) -> None:
    """ValueError in one line, with what to name instead (or one of `agents`), where `path` is not a folder of a run."""
    if not path.is_dir():
        raise no_such_run(path, agents)
    if not (path / RUN_CONFIG).exists():
        inside = sorted(str(config.parent) for config in path.glob(f"*/{RUN_CONFIG}"))
        more = f" (it holds {len(inside)}, such as {inside[0]})" if inside else _say_run_round(path)
        raise ValueError(f"{path} is not the folder of a run: it has no {RUN_CONFIG}{more}")


def _say_run_round(path: Path) -> str:
    """The run in whose folder `path` is, for the end of a message; empty if there is none."""
    return next((f" (say {folder})" for folder in path.parents if (folder / RUN_CONFIG).is_file()), "")


def no_such_run(path: Path, agents: Iterable[str] = ()) -> ValueError:
    """The error for a folder that does not exist, with the runs beside it whose names are nearest.

    `agents` are names that could have been meant instead: they are shown where there is no run beside it, together with
    the runs in `runs/`.
    """
    if path.is_file():
        return ValueError(f"{path} is a file: runs are folders{_say_run_round(path)}")
    if round_it := _say_run_round(path):
        return ValueError(f"run {str(path)!r} does not exist{round_it}")
    beside = list(path.parent.glob(f"*/{RUN_CONFIG}"))
    # The name of a run does for its folder where runs are by default.
    by_default = [] if path.is_absolute() else Path(RUNS).glob(f"*/{RUN_CONFIG}")
    runs = list(dict.fromkeys(str(config.parent) for config in (*beside, *by_default)))
    # However far off (no cutoff): any run of the folder is a better hint than none.
    nearest = difflib.get_close_matches(str(path), runs, n=5, cutoff=0.0)
    known = [] if path.is_absolute() else list(agents)
    if path.as_posix() in shipped():
        return ValueError(
            f"run {str(path)!r} does not exist: it is a configuration, which is trained with minimax-train {path}"
        )
    if not nearest and not known:
        return ValueError(f"run {str(path)!r} does not exist")
    return unknown_name("run", path, nearest if beside else [*nearest, *known], [*nearest, *known])


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """`saved` with the defaults of settings that later versions have added: as the run would be started today."""
    from minimax_lib.config import from_dict, to_dict  # imports JAX: commands that read tables do without

    try:
        # Its plugins are left out: whoever resumes the run has imported those that are needed.
        return to_dict(from_dict(saved | {"plugins": []})) | {"plugins": saved.get("plugins", [])}
    except ValueError:
        return saved


def change(name: str, old: Any, new: Any) -> str:
    """A phrase that says how a setting differs."""
    return f"{name} was {old} and is now {new}"


def of_method(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the `settings`, by dotted name, that make a method. Runs in which they are equal are its seeds.

    Of `init_from` it says only that there is one, because each seed may begin with an agent of its own.
    """
    found = {name: value for name, value in settings.items() if name.split(".")[0] in METHOD}
    return found | {"init_from": "given"} if settings.get("init_from") else found


def differences(saved: dict[str, Any], given: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (saved, given value) of all settings that differ."""
    # What was saved has been through YAML, which turns tuples into lists. `given` must go the same way.
    old, new = flat(saved), flat(yaml.safe_load(yaml.safe_dump(given)))
    names = [*new, *(name for name in old if name not in new)]
    pairs = {name: (old.get(name, UNSET), new.get(name, UNSET)) for name in names}
    return {name: (before, now) for name, (before, now) in pairs.items() if before != now}


def _unwritable(path: Path, error: OSError) -> RunRefused:
    return RunRefused(f"cannot write to {error.filename or path}: {error.strerror or error}")
