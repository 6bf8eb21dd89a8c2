"""Commands that are done once each, as far as the time goes. Nobody has to watch: a failure is one line."""

import contextlib
import dataclasses
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minimax_lib.store.files import write_atomically

ROOT = Path(__file__).parents[1]
TO_SAVE = 30.0  # seconds that a stage has to save after Ctrl-C, if it does not ask for another time
TO_LEAVE = 5.0  # the same for a stage that saves nothing
SLACK, PART = 2.0, 0.2  # a stage may take this many times its estimate, or this part of the time left if that is more
RECORD = "stages.json"
POLL = 1.0  # seconds
WIDEST = 240  # characters of a line that is printed; the log has all of it


@dataclasses.dataclass(frozen=True)
class Stage:
    """A command that leaves a file. It runs from the top of the checkout, in its own process."""

    name: str
    words: tuple[str, ...]  # after `python`; {out} is the folder of results
    file: str  # what it leaves, in that folder
    minutes: float  # an estimate; for a stage that resumes, the least time that is worth a start
    resumes: bool = False  # saves on SIGINT, and goes on when it is called again
    after: str = ""  # a stage that must be done before
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shows: int = 0  # lines at the end of its output that are printed
    to_save: float = TO_SAVE
    progress: Callable[[Path], str] | None = None  # how far it is, from the folder of results


def run_until(
    command: Sequence[str],
    log: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    enough: Callable[[], bool] = lambda: False,
    to_save: float = TO_LEAVE,
) -> int | None:
    """The exit status of a command; None if it was stopped after `seconds`, or because there was `enough`.

    Its output is appended to `log`. Whatever ends the wait, Ctrl-C included, the command has `to_save` seconds to leave
    by itself.
    """
    end = time.monotonic() + seconds
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | (environment or {}),
            cwd=ROOT,
            process_group=0,  # so that a terminal's Ctrl-C does not reach it twice
        )
    try:
        while process.poll() is None:
            left = end - time.monotonic()
            if left <= 0 or enough():
                return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(POLL, left))
        return process.returncode
    finally:
        stop(process, to_save)


def stop(process: subprocess.Popen, seconds: float) -> None:
    """Ends a process as by Ctrl-C; after `seconds`, or at a second Ctrl-C, kills it and all that it has started."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the group outlives its leader while something runs in it
        process.wait()


def last_words(text: str) -> str:
    """The line of a log that says most about a failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"([\w.]*(Error|Exception|Interrupt)\b|error:)", line)]
    return (errors or lines or ["it printed nothing"])[-1][:300]


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """A block in which SIGTERM does what Ctrl-C does: KeyboardInterrupt."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    # SIGINT too: a shell's background jobs begin with SIGINT ignored, and so would all processes that they start.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stages:
    """Runs stages in their order. The record of what was done is in the folder of results, and outlives the process."""

    def __init__(self, out: Path, end: float, environment: Mapping[str, str] | None = None):
        """`end` is a time of `time.monotonic`."""
        self.out = out.resolve()
        self.end = end
        self.environment = environment or {}
        out.mkdir(parents=True, exist_ok=True)
        path = self.out / RECORD
        self.record: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def run(self, stages: Sequence[Stage]) -> None:
        """Does what is not done yet and fits in the time left. Ctrl-C stops the running stage, and is passed on."""
        self.end_of = {stage.name: self.is_done(stage) for stage in stages}
        before = [name for name, done in self.end_of.items() if done]
        if before:
            say(f"done before: {', '.join(before)}")
        for stage in stages:
            if not self.end_of[stage.name]:
                self.end_of[stage.name] = self._run(stage)

    def is_done(self, stage: Stage) -> bool:
        """Whether the stage was done, with this command, and its file is still there."""
        entry = self.record.get(stage.name, {})
        same = entry.get("command") == list(stage.words) and entry.get("environment", {}) == dict(stage.environment)
        return entry.get("status") == "done" and same and (self.out / stage.file).exists()

    def _run(self, stage: Stage) -> bool:
        why_not = self._why_not(stage)
        if why_not:
            say(f"{stage.name}: left out, {why_not}")
            return False
        left, needed = self._left(), self._needed(stage)
        grace = stage.to_save if stage.resumes else TO_LEAVE
        most = math.inf if stage.resumes else max(SLACK * needed, PART * left)
        seconds = max(0.0, min(left - grace, most))
        words = [word.format(out=self.out) for word in stage.words]
        say(f"{stage.name}: {shlex.join(words)}")
        log = self.out / f"{stage.name}.log"
        size = log.stat().st_size if log.exists() else 0
        began, status = time.monotonic(), None
        environment = {**self.environment, **stage.environment}
        try:
            status = run_until([sys.executable, *words], log, seconds, environment, to_save=grace)
        finally:
            output = log.read_bytes()[size:].decode(errors="replace") if log.exists() else ""
            done = self._note(stage, status, time.monotonic() - began, output)
        return done

    def _note(self, stage: Stage, status: int | None, took: float, output: str) -> bool:
        """Records how a stage ended, and says so in one line. Whether it is done."""
        if status == 0 and not (self.out / stage.file).exists():
            outcome, why = "failed", f"it has left no {stage.file}"
        elif status == 0:
            outcome, why = "done", ""
        elif status is None or (stage.resumes and status in (130, 143)):
            outcome, why = "stopped", self.progress(stage)
        else:
            outcome, why = "failed", f"status {status}: {last_words(output)} ({stage.name}.log)"
        before = self.record.get(stage.name, {})
        self.record[stage.name] = {
            "status": outcome,
            "seconds": round(took, 1),
            "seconds_of_all_calls": round(took + before.get("seconds_of_all_calls", 0.0), 1),
            "command": list(stage.words),
            "environment": dict(stage.environment),
        } | ({"why": why} if why else {})
        write_atomically(self.out / RECORD, json.dumps(self.record, indent=1) + "\n")
        say(f"{stage.name}: {outcome} after {took:.0f} s{f', {why}' if why else ''}")
        if outcome == "done" and stage.shows:
            say("\n".join(f"    {line[:WIDEST]}" for line in output.splitlines()[-stage.shows :]))
        return outcome == "done"

    def _why_not(self, stage: Stage) -> str:
        """Why a stage is not begun now; empty if it is."""
        if stage.after and not self.end_of.get(stage.after, self.record.get(stage.after, {}).get("status") == "done"):
            return f"it comes after {stage.after}"
        # A stage that resumes also needs the time to save.
        needed = self._needed(stage) + (stage.to_save if stage.resumes else TO_LEAVE)
        if needed > self._left():
            return f"it needs about {needed / 60:.1f} minutes, and {max(0.0, self._left()) / 60:.1f} are left"
        return ""

    def _needed(self, stage: Stage) -> float:
        """Seconds. A stage that was stopped before its end needs more than it had then."""
        entry = self.record.get(stage.name, {})
        cut_off = entry.get("status") == "stopped" and not stage.resumes and entry["command"] == list(stage.words)
        return max(60 * stage.minutes, 1.5 * entry["seconds"] if cut_off else 0.0)

    def _left(self) -> float:
        return self.end - time.monotonic()

    def progress(self, stage: Stage) -> str:
        return stage.progress(self.out) if stage.progress else ""

    def missing(self, stages: Sequence[Stage]) -> list[str]:
        """Names of the stages that are not done, with how far they are or why they failed."""
        found = []
        for stage in stages:
            if not self.is_done(stage):
                entry = self.record.get(stage.name, {})
                how_far = "failed" if entry.get("status") == "failed" else self.progress(stage)
                found.append(f"{stage.name} ({how_far})" if how_far else stage.name)
        return found

    def failed(self, stages: Sequence[Stage]) -> list[str]:
        return [s.name for s in stages if self.record.get(s.name, {}).get("status") == "failed"]


def say(line: str) -> None:
    print(line, flush=True)
