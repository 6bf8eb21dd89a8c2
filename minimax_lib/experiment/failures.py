"""What a person is told of an error of XLA, or of too little memory."""

from collections.abc import Mapping
from typing import Any

from jax.errors import JaxRuntimeError

XLA_ERRORS = (JaxRuntimeError, MemoryError)
LESS = ("runner.n_parallel", "runner.capacity", "n_seeds")  # of these needs less memory
MORE = ("ppo.n_chunks",)
SPENT = ("RESOURCE_EXHAUSTED", "out of memory", "unable to allocate", "failed to allocate")


def training_failure(error: BaseException, settings: Mapping[str, Any]) -> str:
    """One line on an error in training, with the `settings` (by dotted name) that decide how much memory it needs."""
    less, more = (
        ", ".join(f"--{name.replace('_', '-')} (now {settings[name]})" for name in names if name in settings)
        for names in (LESS, MORE)
    )
    return _failure(error, f"a smaller {less} or a larger {more} needs less")


def evaluation_failure(error: BaseException, n_episodes: int) -> str:
    """The same for an evaluation."""
    return _failure(error, f"a smaller --n-episodes (now {n_episodes}) or fewer --tasks need less")


def one_line(error: BaseException) -> str:
    """An error's message on one line; the middle of a long one is left out."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:95]} ... {text[-100:]}"


def _failure(error: BaseException, advice: str) -> str:
    if not isinstance(error, XLA_ERRORS):
        return one_line(error)
    spent = isinstance(error, MemoryError) or any(word.lower() in str(error).lower() for word in SPENT)
    return f"out of memory: {one_line(error)}; {advice}" if spent else f"XLA failed: {one_line(error)}"
