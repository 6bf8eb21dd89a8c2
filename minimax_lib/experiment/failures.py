"""Messages for errors of XLA, above all for too little memory."""

from collections.abc import Mapping
from typing import Any

from jax.errors import JaxRuntimeError

from minimax_lib.messages import one_line

XLA_ERRORS = (JaxRuntimeError, MemoryError)
LESS = ("runner.n_parallel", "runner.levels_per_row", "runner.capacity", "n_seeds")  # smaller values need less memory
MORE = ("ppo.n_chunks",)  # larger values need less memory
SPENT = ("RESOURCE_EXHAUSTED", "out of memory", "unable to allocate", "failed to allocate")


def training_failure(error: BaseException, settings: Mapping[str, Any]) -> str:
    """One line on an error in training. For too little memory, it names the `settings` (dotted names) that decide."""
    one_level = settings.get("runner.levels_per_row", 1) == 1  # there are no fewer
    less, more = (
        ", ".join(f"--{name.replace('_', '-')} (now {settings[name]})" for name in names if name in settings)
        for names in ([name for name in LESS if not (one_level and name == "runner.levels_per_row")], MORE)
    )
    return _failure(error, f"a smaller {less} or a larger {more} needs less")


def evaluation_failure(error: BaseException, n_episodes: int) -> str:
    """The same for an evaluation."""
    return _failure(error, f"a smaller --n-episodes (now {n_episodes}) or fewer --tasks need less")


def picture_failure(error: BaseException) -> str:
    """The same for pictures, films and episodes that are shown."""
    return _failure(error, "another process, such as a training, may hold what there is")


def _failure(error: BaseException, advice: str) -> str:
    if not isinstance(error, XLA_ERRORS):
        return one_line(error)
    spent = isinstance(error, MemoryError) or any(word.lower() in str(error).lower() for word in SPENT)
    return f"out of memory: {one_line(error)}; {advice}" if spent else f"XLA failed: {one_line(error)}"
