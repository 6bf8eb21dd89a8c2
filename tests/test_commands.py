"""How commands end: refused, failed, interrupted, done."""

import pytest
from jax.errors import JaxRuntimeError

from minimax_lib.commands.status import carried_out, without_sweeps
from minimax_lib.store.checkpoint import CheckpointError


def raising(error):
    def function(_):
        raise error

    return function


@pytest.mark.parametrize(
    ("prepare", "work", "status", "said"),
    [
        (raising(ValueError("x is 1: it must be 2")), None, 2, "error: x is 1: it must be 2\n"),
        (raising(KeyboardInterrupt()), None, 130, "interrupted\n"),
        (len, raising(KeyboardInterrupt()), 130, "interrupted\n"),
        (len, raising(OSError(28, "No space left on device", "plots/a.png")), 1,
         "error: plots/a.png: No space left on device\n"),
        (len, raising(OSError("ffmpeg has failed")), 1, "error: ffmpeg has failed\n"),
        (len, raising(CheckpointError("update 4 is damaged")), 1, "error: update 4 is damaged\n"),
        # A training may hold the memory of a GPU.
        (
            len,
            raising(JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 8 bytes")),
            1,
            "error: out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes; another process, such as a "
            "training, may hold what there is\n",
        ),
        (len, raising(JaxRuntimeError("INTERNAL: lost")), 1, "error: XLA failed: INTERNAL: lost\n"),
        (len, lambda n_words: n_words, 2, ""),
    ],
)  # fmt: skip
def test_every_end_has_its_status_and_its_line(prepare, work, status, said, capsys):
    assert carried_out(["a", "b"], prepare, work) == status
    assert capsys.readouterr().err == said


def test_folders_of_sweeps_are_left_out_among_others(tmp_path, capsys):
    for name in ("a/config.yaml", "sweeps/lr/sweep.yaml", "neither/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    a, sweeps, lr, neither = (str(tmp_path / name) for name in ("a", "sweeps", "sweeps/lr", "neither"))
    assert without_sweeps([a, sweeps, lr, neither]) == [a, neither]
    notes = capsys.readouterr().err.splitlines()
    assert notes == [f"note: {folder} holds sweeps, and is left out" for folder in (sweeps, lr)]
    assert without_sweeps([sweeps]) == [sweeps]
    assert not capsys.readouterr().err


def test_a_bug_keeps_its_traceback():
    """Once the request has been checked, a ValueError is nothing that a user can mend."""
    with pytest.raises(ValueError, match="bug"):
        carried_out([], len, raising(ValueError("bug")))
