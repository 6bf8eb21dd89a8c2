"""The trials of a sweep as processes: the ordinary training command, several at a time, each in its own run."""

import contextlib
import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import filelock
from rich.console import Console

from minimax_lib.config.trials import Trial
from minimax_lib.experiment.files import saved_updates, write_atomically
from minimax_lib.experiment.folder import locked_folder
from minimax_lib.experiment.interrupts import StopRequest
from minimax_lib.experiment.progress import Progress, Standing, duration
from minimax_lib.experiment.sweeps import FAILED, FINISHED, SweepFolder, last_rows
from minimax_lib.messages import printable

TRAIN = (sys.executable, "-m", "minimax_lib.train")
POLL, PLAIN_POLL = 0.2, 30.0  # seconds between two looks at the processes; between two lines where there is no terminal
GPU_SHARE = 0.9  # of a GPU's memory, for all trials that share it
REASONS = {signal.SIGKILL: " (too little memory?)"}


@dataclasses.dataclass(frozen=True)
class SweepStanding(Standing):
    """How far a sweep is. Updates are those of all trials together."""

    trials: str = ""

    def __str__(self) -> str:
        return f"{self.trials}  {super().__str__()}"


@dataclasses.dataclass
class Worker:
    """A trial that is being trained."""

    trial: Trial
    slot: int
    process: "subprocess.Popen[bytes]"
    lock: filelock.BaseFileLock
    log_begins: int  # bytes of the log that are of earlier processes
    began: float
    update: int  # of the checkpoint that the process goes on from
    table: int  # when metrics.csv had last been written before that


class Workers:
    """Trains the trials that are not finished, `jobs` at a time; an error in one leaves the others alone."""

    def __init__(
        self, folder: SweepFolder, trials: Sequence[Trial], jobs: int = 1, command: Sequence[str] = TRAIN
    ) -> None:
        self.folder = folder
        self.jobs = jobs
        self.command = tuple(command)
        self.elsewhere: list[Trial] = []  # trained by another process
        self.failed: list[Trial] = []
        self._n_finished = 0
        self._pace = (0, 0.0)  # updates, and seconds when the last of them came
        self._trials = list(trials)
        self._waiting: list[Trial] = []
        self._running: list[Worker] = []
        self._failures: dict[int, int] = {}  # when trials that are waiting had failed, by number

    def run(self, console: Console) -> signal.Signals | None:
        """The signal that ended the work; None if every trial has had its turn. KeyboardInterrupt on a second Ctrl-C.

        On the first signal the trials are told to save and to leave. However this ends, no trial is left running.
        """
        with StopRequest(f"interrupted; the same command goes on with {self.folder.path}") as stop, _hangup_stops():
            try:
                with Progress(console) as progress:
                    self._work(stop, progress, 10 * POLL if console.is_terminal else PLAIN_POLL)
            finally:
                for worker in self._running:
                    worker.process.kill()
                    worker.process.wait()
                    worker.lock.release()
        return stop.signal

    def _work(self, stop: StopRequest, progress: Progress, every: float) -> None:
        """Returns when no trial is left to start and none is running; shows every so many seconds how far it is."""
        for trial in self._trials:
            if self.folder.status(trial)[0] == FINISHED:
                self._n_finished += 1
            else:
                self._waiting.append(trial)
                self._failures[trial.number] = modified(self.folder.failure(trial))
        if self._n_finished:
            progress.say(f"{self._n_finished} of {len(self._trials)} trials are finished already")
        progress.doing("training")
        began, before = time.monotonic(), self._n_updates()
        shown, told = began, False
        while self._running or (self._waiting and not stop.signal):
            if stop.signal and not told:
                told = True
                for worker in self._running:
                    self._stop(worker)
            while not stop.signal and self._waiting and len(self._running) < self.jobs:
                self._start(self._waiting.pop(0), progress)
            for worker in [worker for worker in self._running if worker.process.poll() is not None]:
                self._running.remove(worker)
                self._ended(worker, stop, progress)
            now = time.monotonic()
            if now - shown >= every:
                shown = now
                progress.stands(self._standing(self._n_updates() - before, now - began))
            time.sleep(POLL)

    def _start(self, trial: Trial, progress: Progress) -> None:
        """Starts the trial's process, unless another one has it or has done it in the meantime."""
        lock = self._taken(trial)
        which = f"trial {trial.number} ({self.folder.names[trial.number]})"
        if lock is None:
            self.elsewhere.append(trial)
            progress.say(f"{which} is trained by another process")
            return
        status, line = self.folder.status(trial)
        if status == FINISHED:
            self._n_finished += 1
            progress.say(f"{which} has been finished by another process")
        elif status == FAILED and modified(self.folder.failure(trial)) != self._failures[trial.number]:
            self.failed.append(trial)
            progress.say(f"{which} has failed in another process: {line}")
        else:
            self._launch(trial, lock)
            return
        lock.release()

    def _taken(self, trial: Trial) -> filelock.BaseFileLock | None:
        """The lock of the trial, which no other process has; None if one has it."""
        lock = self.folder.lock(trial)
        run = self.folder.run(trial).path
        try:
            lock.acquire()
            if run.is_dir():
                # A process that was left behind, when a sweep was killed, still owns its run.
                with locked_folder(run):
                    pass
        except (filelock.Timeout, BlockingIOError):
            lock.release()
            return None
        return lock

    def _launch(self, trial: Trial, lock: filelock.BaseFileLock) -> None:
        self.folder.failure(trial).unlink(missing_ok=True)
        slot = min(set(range(self.jobs)) - {worker.slot for worker in self._running})
        log = self.folder.log(trial)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self.command, *flags_of(trial, self.folder.config(trial))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(self.jobs),
                # Ctrl-C in the terminal is this process's business: it tells the trials to leave.
                start_new_session=True,
            )
            # At its end, whether this process wrote there or an earlier one.
            log_begins = output.tell()
        if self.jobs > 1:
            pin(process.pid, slot, self.jobs, trial.config.n_devices)
        run = self.folder.run(trial)
        update = max(saved_updates(run.checkpoints), default=0)
        began = time.monotonic()
        self._running.append(Worker(trial, slot, process, lock, log_begins, began, update, modified(run.metrics)))

    def _stop(self, worker: Worker) -> None:
        """Makes a trial leave; what it has trained is saved."""
        if self._has_trained(worker):
            worker.process.terminate()  # the run saves at the end of its interval
        else:
            # It has nothing to save yet, and may be inside XLA, which compiles for minutes and listens to no signal.
            worker.process.kill()

    def _has_trained(self, worker: Worker) -> bool:
        """Whether the process has made its own updates."""
        # Rows of an earlier process are there until this one has started.
        written = modified(self.folder.run(worker.trial).metrics) != worker.table
        return written and self._updates(worker.trial) > worker.update

    def _ended(self, worker: Worker, stop: StopRequest, progress: Progress) -> None:
        """Says what has become of a trial, and records a failure."""
        trial, status = worker.trial, worker.process.returncode
        name = self.folder.names[trial.number]
        took = duration(time.monotonic() - worker.began)
        if self.folder.status(trial)[0] == FINISHED and status == 0:
            self._n_finished += 1
            progress.say(f"trial {trial.number} of {len(self.folder.trials)} ({name}) finished in {took}")
        elif stop.signal:
            progress.say(f"trial {trial.number} ({name}) interrupted: {self.folder.run(trial).newest()}")
        else:
            line = last_words(self.folder.log(trial), worker.log_begins, status)
            write_atomically(self.folder.failure(trial), f"{line}\n")
            self.failed.append(trial)
            progress.say(f"trial {trial.number} ({name}) failed after {took}: {line}")
        worker.lock.release()

    def _n_updates(self) -> int:
        """Updates of all trials so far."""
        return sum(self._updates(trial) for trial in self._trials)

    def _updates(self, trial: Trial) -> int:
        rows = last_rows(self.folder.run(trial).metrics, 1)
        return min(int(rows[-1]["update"]), trial.config.n_updates) if rows else 0

    def _standing(self, n_done: int, seconds: float) -> SweepStanding:
        """How far the sweep is, `n_done` updates and some seconds after it began."""
        numbers = ", ".join(str(worker.trial.number) for worker in self._running)
        n_starting = sum(not self._has_trained(worker) for worker in self._running)
        others = {"failed": len(self.failed), "starting": n_starting}
        counts = [f"{self._n_finished} finished", *(f"{n} {what}" for what, n in others.items() if n)]
        # What failed or is elsewhere is no work of this process any more.
        open_trials = [*self._waiting, *(worker.trial for worker in self._running)]
        left = sum(trial.config.n_updates - self._updates(trial) for trial in open_trials)
        # Updates come in lumps, with a compilation between: from one to the next, the time that is left runs down.
        if n_done > self._pace[0]:
            self._pace = (n_done, seconds)
        done, took = self._pace
        speeds = [self._steps_per_second(worker.trial) for worker in self._running]
        n_updates = sum(trial.config.n_updates for trial in self._trials)
        return SweepStanding(
            update=self._n_updates(),
            n_updates=n_updates,
            steps_per_second=sum(speeds) if any(speeds) else math.nan,
            seconds_left=max(took / done * left - (seconds - took), 0.0) if done else math.nan,
            trials=f"trial {numbers or 'none'} of {len(self.folder.trials)} ({', '.join(counts)})",
        )

    def _steps_per_second(self, trial: Trial) -> float:
        rows = last_rows(self.folder.run(trial).metrics, 1)
        with contextlib.suppress(KeyError, IndexError, ValueError):
            return float(rows[-1]["steps_per_second"])
        return 0.0


def flags_of(trial: Trial, file: Path) -> list[str]:
    """The flags of the training command that starts the trial, or goes on with it."""
    flags = ["--config", str(file), "--resume"]
    # On a resume, these two come from flags alone.
    if trial.config.plugins:
        flags += ["--plugins", *trial.config.plugins]
    return [*flags, "--compilation-cache", trial.config.compilation_cache]


def environment(jobs: int) -> dict[str, str]:
    """The environment of a trial's process, one of `jobs` at a time."""
    # JAX takes most of a GPU's memory at once: the second process would find none.
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_SHARE / jobs:.3f}"} if jobs > 1 else {}
    return share | os.environ


def modified(path: Path) -> int:
    """When the file was last written, in nanoseconds; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def pin(process: int, slot: int, jobs: int, n_devices: int | Literal["auto"] = 1) -> None:
    """Gives the process of one of `jobs` slots its share of the cores, where the system can do that.

    A process that needs more devices than its share has cores keeps all cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    share = cores[slot * len(cores) // jobs : (slot + 1) * len(cores) // jobs] or [cores[slot % len(cores)]]
    if n_devices != "auto" and n_devices > len(share):  # auto: those of the share
        return
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.sched_setaffinity(process, share)


def last_words(log: Path, begins: int, status: int) -> str:
    """Why a process failed, in one line: its error, the signal that killed it, or the last that it printed."""
    if status < 0:
        number = signal.Signals(-status)
        return f"killed by {number.name}{REASONS.get(number, '')}"
    with log.open("rb") as file:
        file.seek(begins)
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    line = (errors or lines or [f"it said nothing, with exit status {status}"])[-1]
    return printable(line.removeprefix("error: ").strip())


@contextlib.contextmanager
def _hangup_stops() -> Iterator[None]:
    """A block in which a terminal that is closed counts as SIGTERM, unless hangups are ignored (nohup)."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(hangup, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(hangup, before)
