"""Processes that were copied (fork) from one in which JAX was at work. JAX hangs in them for ever."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax._src import xla_bridge

from minimax_lib.output import write_at_once

HANGS = (
    "this process is a copy (fork) of one in which JAX was at work, and JAX hangs in such a copy: start the "
    'environments with AsyncVectorEnv(..., context="forkserver") or SubprocVecEnv(..., start_method="forkserver"), or '
    "start them before JAX is used for the first time"
)
PATIENCE = 10.0  # seconds between two looks
IDLE = 0.001  # share of a processor: what hangs waits for a lock and uses none; on a crowded machine, few get much
JAX_FOLDER = str(Path(jax.__file__).parent)

_is_copy = False


def refuse_copies() -> None:
    """RuntimeError where JAX would hang."""
    if _is_copy:
        raise RuntimeError(HANGS)


def _after_fork() -> None:
    """In the copy: other code may use JAX there, so a thread watches whether it hangs."""
    global _is_copy
    _is_copy = xla_bridge.backends_are_initialized()
    if _is_copy:
        threading.Thread(target=_watch, args=(threading.get_ident(),), daemon=True).start()


def _watch(thread: int) -> None:
    """Ends the process with one line that says why it hangs.

    It hangs where a call of JAX has not moved from one look to the next and has used no processor in between: a long
    compilation does not move either, but works. No exception can end the process, since what waits inside JAX's
    compiled code never comes back to Python.
    """
    before: tuple[Any, int] | None = None
    worked = _seconds_worked(thread)
    while True:
        time.sleep(PATIENCE)
        frame = sys._current_frames().get(thread)
        now = (frame, frame.f_lasti) if frame and frame.f_code.co_filename.startswith(JAX_FOLDER) else None
        earlier, worked = worked, _seconds_worked(thread)
        if now is not None and now == before and worked - earlier < IDLE * PATIENCE:
            write_at_once(HANGS)
            os._exit(1)
        before = now


def _seconds_worked(thread: int) -> float:
    """Processor time of `thread` and of all threads that are not Python's, as XLA's.

    Other threads of Python may be at work whatever JAX does.
    """
    seconds = time.process_time()
    for other in threading.enumerate():
        if other.ident not in (None, thread):
            with contextlib.suppress(OSError):  # it has just ended
                seconds -= time.clock_gettime(time.pthread_getcpuclockid(other.ident))
    return seconds


if hasattr(os, "register_at_fork"):  # on Unix
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Around calls of environments in other processes: RuntimeError where one of these has ended."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise RuntimeError(
            "the process of an environment has ended, and its own message stands above; if JAX hung in it, start the "
            'environments with context="forkserver" (AsyncVectorEnv) or start_method="forkserver" (SubprocVecEnv)'
        ) from error
