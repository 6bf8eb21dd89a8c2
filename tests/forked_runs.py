"""Runs toy experiments in forked children, told how on stdin, one JSON object a line: a run that starts in 0.1 s.

A command has `settings` (of the toy configuration), and may have
  kill_after   seconds after which the child is killed with SIGKILL
  fault        [function, call, how]: at that call of `function` (module:name), `how` is kill_before, kill_after,
               kill_half (half of the text is written), no_space, no_room (no file may grow from then on),
               stuck (the main thread never comes back to Python; two SIGINT), delete and a path, or
               names of signals and `hang` (a minute), with spaces between
  program      arguments of the toy program
The answer is [status, seconds, output]; a status below 0 is the signal that ended the child.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toy_program import EVALUATION, toy_config, toy_program

from minimax_lib.experiment.run import ExperimentRunner


def plant(function: str, call: int, how: str) -> None:
    """Replaces `function` by itself with a fault at its `call`-th call (from 1)."""
    module_name, _, name = function.partition(":")
    owner: Any = importlib.import_module(module_name)
    *path, name = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def faulty(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != call:
            return original(*args, **kwargs)
        return strike(how, original, args, kwargs)

    setattr(owner, name, faulty)


def strike(how: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What happens instead of the call."""
    if how == "no_space":
        raise OSError(28, "No space left on device", str(args[0]))
    if how == "no_room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        return original(*args, **kwargs)
    if how == "stuck":
        threading.Thread(target=interrupt_twice).start()
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):  # C waits for ever, and Python handles no signal: as inside XLA
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    if how.startswith("delete "):
        # In one step: while a folder is deleted file by file, others may appear in it.
        path = Path(how.removeprefix("delete "))
        gone = path.rename(path.with_name(f"{path.name}.deleted"))
        shutil.rmtree(gone, ignore_errors=True) if gone.is_dir() else gone.unlink()
        return original(*args, **kwargs)
    if how == "kill_half":
        original(args[0], args[1][: len(args[1]) // 2])
    if how == "kill_after":
        original(*args, **kwargs)
    if how.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    for name in how.split():
        if name == "hang":
            time.sleep(60)
        else:
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(0.2)
    return original(*args, **kwargs)


def interrupt_twice() -> None:
    for _ in range(2):
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)


def child(command: dict[str, Any], output: int) -> None:
    """Runs the experiment, which prints into the pipe `output`, and ends the process with its status."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if "fault" in command:
        plant(*command["fault"])
    config = toy_config(**command["settings"])
    program = toy_program(config, **command.get("program", {}))
    sys.exit(ExperimentRunner(config, program, EVALUATION).run())


def run(command: dict[str, Any]) -> tuple[int, float, str]:
    """(status, seconds, output) of one child."""
    began = time.monotonic()
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(here)
        child(command, there)
    os.close(there)
    killer = threading.Timer(command.get("kill_after", 0), os.kill, (pid, signal.SIGKILL))
    if "kill_after" in command:
        killer.start()
    with open(here, encoding="utf-8") as said:
        output = said.read()  # until the child has ended
    killer.cancel()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began, output


if __name__ == "__main__":
    gc.freeze()  # what was imported is never garbage: a child that looks for some leaves it alone
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
