"""A copied process that hangs in JAX is told from one that works."""

import contextlib
import hashlib
import threading

import pytest

from minimax_lib.portable import forks

WINDOW = 0.25  # seconds between two looks


class Ended(BaseException):
    """In place of the end of the process, and of the watch."""


@pytest.fixture
def watched(monkeypatch):
    """Runs a function in a thread, whose calls count as JAX's, under watch; whether that has ended the process."""
    over, said = threading.Event(), []

    def end(status):
        raise Ended

    def look_later(seconds):
        if over.wait(seconds):
            raise Ended

    monkeypatch.setattr(forks, "PATIENCE", WINDOW)
    monkeypatch.setattr(forks, "JAX_FOLDER", __file__)
    monkeypatch.setattr(forks, "write_at_once", said.append)
    monkeypatch.setattr(forks.os, "_exit", end)
    monkeypatch.setattr(forks.time, "sleep", look_later)

    def watch(function) -> bool:
        def guard():
            with contextlib.suppress(Ended):
                forks._watch(worker.ident)

        worker = threading.Thread(target=function)
        worker.start()
        guardian = threading.Thread(target=guard)
        guardian.start()
        worker.join()
        over.set()
        guardian.join()
        return said == [forks.HANGS]

    return watch


def wait(seconds):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


def work(seconds):
    """One call of native code, as a compilation: it lets other threads run."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", int(9e5 * seconds))


def test_a_call_that_waits_is_ended(watched):
    assert watched(lambda: wait(6 * WINDOW))


def test_a_call_that_works_is_left_alone(watched):
    assert not watched(lambda: work(6 * WINDOW))


def test_work_of_other_threads_is_no_work_of_the_call(watched):
    other = threading.Thread(target=work, args=(6 * WINDOW,))
    other.start()
    assert watched(lambda: wait(6 * WINDOW))
    other.join()


def test_a_call_that_is_not_of_jax_is_left_alone(watched, monkeypatch):
    monkeypatch.setattr(forks, "JAX_FOLDER", "/nowhere")
    assert not watched(lambda: wait(4 * WINDOW))


def test_short_calls_are_left_alone(watched):
    assert not watched(lambda: [wait(WINDOW / 5) for _ in range(20)])
