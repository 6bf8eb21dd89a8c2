"""Runs toy experiments in forked children, told how on stdin, one JSON object a line: a run that starts in 0.1 s.

A command has `settings` (of the toy configuration), and may have
  kill_after   seconds after which the child is killed with SIGKILL
  fault        [function, call, how]: at that call of `function` (module:name), `how` is kill_before, kill_after,
               kill_half (half of the text is written), no_space, or names of signals and `hang` (a minute),
               with spaces between
  program      arguments of the toy program
  output       file for stdout and stderr
The answer is [status, seconds]; a status below 0 is the signal that ended the child.
"""

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
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


def child(command: dict[str, Any]) -> None:
    """Runs the experiment and ends the process with its status."""
    out = os.open(command["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if "fault" in command:
        plant(*command["fault"])
    config = toy_config(**command["settings"])
    program = toy_program(config, **command.get("program", {}))
    sys.exit(ExperimentRunner(config, program, EVALUATION).run())


def run(command: dict[str, Any]) -> tuple[int, float]:
    """(status, seconds) of one child."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        child(command)
    if "kill_after" in command:
        threading.Timer(command["kill_after"], os.kill, (pid, signal.SIGKILL)).start()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
