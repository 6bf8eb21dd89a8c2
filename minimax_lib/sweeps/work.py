"""Trains the trials of a sweep: each is the ordinary training command in its own process, several at a time."""

import contextlib
import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import filelock
import numpy as np
import yaml
from rich.console import Console

from minimax_lib.experiment.interrupts import StopRequest
from minimax_lib.experiment.progress import Progress, Standing, duration
from minimax_lib.files import check_regular, naming, opened
from minimax_lib.messages import printable
from minimax_lib.store.files import UnreadLines, saved_updates
from minimax_lib.store.folder import locked_folder
from minimax_lib.sweeps.runs import SweepRun
from minimax_lib.sweeps.study import FAILED, FINISHED, PRUNED, SweepStudy, write_new
from minimax_lib.sweeps.table import counted, last_rows, scores_of

TRAIN = (sys.executable, "-m", "minimax_lib.commands.launch", "train")
POLL, PLAIN_POLL = 0.2, 30.0  # seconds between two looks at the processes; between two lines where there is no terminal
MOST_WORDS = 1_000_000  # bytes at the end of a log in which the last words of a process are looked for
GPU_SHARE = 0.9  # of a GPU's memory, for all trials that share it
REASONS = {signal.SIGKILL: " (too little memory?)"}


@dataclasses.dataclass
class Worker:
    """A trial that is being trained."""

    run: SweepRun
    slot: int
    process: "subprocess.Popen[bytes]"
    lock: filelock.BaseFileLock
    log_begins: int  # bytes of the log that are of earlier processes
    update: int  # of the checkpoint that the process goes on from
    table: int  # when metrics.csv had last been written before that
    began: float = dataclasses.field(default_factory=time.monotonic)
    evaluated: int = 0  # when eval.csv had last been written when it was read
    pruned: bool = False

    def has_trained(self) -> bool:
        """Whether the process has made its own updates."""
        # Rows of an earlier process are there until this one has started.
        return modified(self.run.folder.metrics) != self.table and updates_of(self.run) > self.update

    def stop(self) -> None:
        """Makes the process leave; what it has trained is saved."""
        if self.has_trained():
            self.process.terminate()  # the run saves at the end of its interval
        else:
            # It has nothing to save yet, and may be inside XLA, which compiles for minutes and listens to no signal.
            self.process.kill()


class Workers:
    """Trains the trials that are not finished, `jobs` at a time; an error in one leaves the others alone."""

    def __init__(
        self, study: SweepStudy, numbers: Sequence[int], jobs: int = 1, command: Sequence[str] = TRAIN
    ) -> None:
        self.study = study
        self.elsewhere: list[int] = []  # trained by another process
        self.failed: list[int] = []
        self._numbers = tuple(numbers)
        self._jobs = jobs
        self._command = tuple(command)
        self._n_done = 0
        self._running: list[Worker] = []
        self._pace = (0, 0.0)  # updates, and seconds when the last of them came
        # Trials that failed before are tried again, but not those that fail in another process from now on.
        self._failures = {number: study.failure(number) for number in numbers}
        self._waiting = list(numbers)

    def work(self, console: Console) -> signal.Signals | None:
        """The signal that ended the work; None if every trial has had its turn. KeyboardInterrupt on a second Ctrl-C.

        On the first signal the trials are told to save and to leave. However this ends, no trial is left running.
        """
        line = f"interrupted; the same command goes on with {self.study.folder}"
        with StopRequest(line) as stop:
            try:
                with Progress(console) as progress:
                    self._go_on(stop, progress, 10 * POLL if console.is_terminal else PLAIN_POLL)
            finally:
                for worker in self._running:
                    worker.process.kill()
                    worker.process.wait()
                    worker.lock.release()
        return stop.signal

    def unfinished_elsewhere(self) -> list[int]:
        """The trials that another process trains, and has not finished yet."""
        return [number for number in self.elsewhere if self.study.status(number)[0] not in (FINISHED, PRUNED)]

    def _go_on(self, stop: StopRequest, progress: Progress, every: float) -> None:
        """Returns when no trial is left to start and none is running; shows every so many seconds how far it is."""
        for number in list(self._waiting):
            if self.study.status(number)[0] in (FINISHED, PRUNED):
                self._waiting.remove(number)
                self._settle(number)
        if self._n_done:
            progress.say(f"{self._n_done} of {len(self._numbers)} trials are finished already")
        progress.doing("training")
        began, before = time.monotonic(), self._n_updates()
        shown, told = began, False
        while self._running or (self._waiting and not stop.signal):
            if stop.signal and not told:
                told = True
                for worker in self._running:
                    worker.stop()
            while not stop.signal and len(self._running) < self._jobs and self._start_next(progress):
                pass
            for worker in list(self._running):
                if worker.process.poll() is not None:
                    self._running.remove(worker)
                    self._ended(worker, stop, progress)
                elif not stop.signal:
                    self._look_at(worker)
            now = time.monotonic()
            if now - shown >= every:
                shown = now
                progress.stands(self._standing(self._n_updates() - before, now - began))
            time.sleep(POLL)

    def _start_next(self, progress: Progress) -> bool:
        """Starts the next trial, or finds that it is another process's; False where none can start now."""
        if not self._waiting:
            return False
        number = self._waiting[0]
        run = self.study.begin(number)
        # TPE may choose the same values twice: both trials are one run.
        if run and any(worker.run.name == run.name for worker in self._running):
            return False
        self._waiting.pop(0)
        lock = taken(run) if run else None
        status, line = self.study.status(number)
        which = f"trial {number} ({run.name if run else 'impossible'})"
        if run and not lock:
            self.elsewhere.append(number)
            progress.say(f"{which} is trained by another process")
        elif status in (FINISHED, PRUNED):
            self._settle(number)
            progress.say(f"{which} is finished already")
        elif not run or (status == FAILED and self.study.failure(number) != self._failures[number]):
            self.failed.append(number)
            progress.say(f"{which} has failed{' in another process' if run else ''}: {line}")
        elif lock:
            self._launch(run, lock)
            lock = None  # it is the worker's now
        if lock:
            lock.release()
        return True

    def _launch(self, run: SweepRun, lock: filelock.BaseFileLock) -> None:
        self.study.note_failure(run.number, None)
        write_new(run.file, yaml.safe_dump(run.settings(), sort_keys=False))
        slot = min(set(range(self._jobs)) - {worker.slot for worker in self._running})
        update, table = max(saved_updates(run.folder.checkpoints), default=0), modified(run.folder.metrics)
        if run.log.exists():
            check_regular(run.log, run.log.stat(), None)  # a pipe would wait for a reader
        with naming(run.log), run.log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, *flags_of(run)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(self._jobs),
                # Ctrl-C in the terminal is this process's business: it tells the trials to leave.
                start_new_session=True,
            )
            # At its end, whether this process wrote there or an earlier one.
            log_begins = output.tell()
        if self._jobs > 1:
            pin(process.pid, slot, self._jobs, run.config.n_devices)
        self._running.append(Worker(run, slot, process, lock, log_begins, update, table))

    def _look_at(self, worker: Worker) -> None:
        """Tells Optuna of new evaluations, and ends the trial early where its pruner says so."""
        written = modified(worker.run.folder.evaluations)
        if written == worker.evaluated or worker.pruned or not worker.has_trained():
            return
        worker.evaluated = written
        if self._report(worker.run) and updates_of(worker.run) < worker.run.config.n_updates:
            worker.pruned = True
            worker.stop()

    def _report(self, run: SweepRun) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreadLines)  # the trial may be writing a row: the table at the end says it
            scores = scores_of(run, self.study.sweep.keys.score)
        return self.study.report(run.number, {update: float(np.mean(each)) for update, each in scores.items()})

    def _settle(self, number: int) -> None:
        """Records in the journal that the run of a trial is finished."""
        self._n_done += 1
        run = self.study.begin(number)
        if run is None:  # a trial that was ended early, with values that this version refuses
            return
        self._report(run)
        settings = self.study.sweep.keys.score
        scores = scores_of(run, settings)
        self.study.end(number, float(np.mean(scores[counted(scores, settings)])) if scores else math.nan)

    def _ended(self, worker: Worker, stop: StopRequest, progress: Progress) -> None:
        """Says what has become of a trial, and records it."""
        run, status = worker.run, worker.process.returncode
        which, took = f"trial {run.number} ({run.name})", duration(time.monotonic() - worker.began)
        if self.study.status(run.number)[0] == FINISHED and status == 0:
            self._settle(run.number)
            progress.say(f"trial {run.number} of {len(self.study.numbers)} ({run.name}) finished in {took}")
        elif worker.pruned:
            self._n_done += 1
            self.study.end(run.number, math.nan, pruned=True)
            progress.say(f"{which} ended early after {took}, by {self.study.sweep.keys.pruner}: others were better")
        elif stop.signal:
            progress.say(f"{which} interrupted: {run.folder.newest()}")
        else:
            line = last_words(run.log, worker.log_begins, status)
            self.study.note_failure(run.number, line)
            self.failed.append(run.number)
            progress.say(f"{which} failed after {took}: {line}")
        worker.lock.release()

    def _n_updates(self) -> int:
        """Updates of all trials so far."""
        return sum(updates_of(run) for run in map(self.study.run, self._numbers) if run)

    def _standing(self, n_done: int, seconds: float) -> Standing:
        """How far the sweep is, `n_done` updates and some seconds after it began."""
        numbers = ", ".join(str(worker.run.number) for worker in self._running) or "none"
        n_starting = sum(not worker.has_trained() for worker in self._running)
        counts = {"finished": self._n_done, "failed": len(self.failed), "starting": n_starting}
        told = ", ".join(f"{n} {what}" for what, n in counts.items() if n or what == "finished")
        # What failed or is elsewhere is no work of this process any more.
        runs = [*map(self.study.run, self._waiting), *(worker.run for worker in self._running)]
        left = sum(run.config.n_updates - updates_of(run) if run else self.study.example.n_updates for run in runs)
        speeds = [last_rows(worker.run.folder.metrics, 1) for worker in self._running]
        # Updates come in lumps, with a compilation between: from one to the next, the time that is left runs down.
        if n_done > self._pace[0]:
            self._pace = (n_done, seconds)
        done, took = self._pace
        seconds_left = took / done * left - (seconds - took) if done else math.nan
        return Standing(
            update=self._n_updates(),
            n_updates=self._n_updates() + left,
            steps_per_second=sum(float(rows[-1].get("steps_per_second", 0)) for rows in speeds if rows) or math.nan,
            # When the time has run out and work is left, nobody knows how long it takes.
            seconds_left=seconds_left if seconds_left > 0 else math.nan,
            about=f"trial {numbers} of {len(self.study.numbers)} ({told})",
        )


def taken(run: SweepRun) -> filelock.BaseFileLock | None:
    """The lock of the run, which no other process has; None if one has it."""
    lock = run.lock()
    try:
        lock.acquire()
        if run.folder.path.is_dir():
            # A process that was left behind, when a sweep was killed, still owns its run.
            with locked_folder(run.folder.path):
                pass
    except (filelock.Timeout, BlockingIOError):
        lock.release()
        return None
    return lock


def updates_of(run: SweepRun) -> int:
    """How many updates the run has made."""
    rows = last_rows(run.folder.metrics, 1)
    return min(int(rows[-1]["update"]), run.config.n_updates) if rows else 0


def flags_of(run: SweepRun) -> list[str]:
    """The flags of the training command that starts the run, or goes on with it."""
    flags = ["--config", str(run.file), "--resume"]
    # On a resume, these two come from flags alone.
    if run.config.plugins:
        flags += ["--plugins", *run.config.plugins]
    return [*flags, "--compilation-cache", run.config.compilation_cache]


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
    with opened(log, None) as file:
        file.seek(max(begins, os.fstat(file.fileno()).st_size - MOST_WORDS))
        lines = [line for line in file.read(MOST_WORDS).decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    line = (errors or lines or [f"it said nothing, with exit status {status}"])[-1]
    return printable(line.removeprefix("error: ").strip())
