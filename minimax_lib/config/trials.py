"""The runs (trials) that a sweep asks for."""

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from minimax_lib.config.ranges import DIGITS, Range
from minimax_lib.config.sweep import MOST_TRIALS, Choices, Sweep, nested
from minimax_lib.config.train import Config, from_dict, to_dict
from minimax_lib.config.tree import NAME, Tree, flat, left_behind, overlay
from minimax_lib.messages import shortened

DRAWS = 100  # of a random search for each trial, before it gives up


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    number: int  # from 1
    label: str  # of what it starts from; empty where there is only one
    asked: Tree  # all that was asked for, on top of the defaults
    config: Config
    varied: dict[str, Any]  # dotted name -> its value in this trial
    left_behind: tuple[str, ...] = ()  # see `tree.left_behind`

    def __str__(self) -> str:
        said = [self.label] if self.label else []
        return ", ".join(said + [f"{name}={as_text(value)}" for name, value in self.varied.items()])


def trials(sweep: Sweep, check: Callable[[Config], None]) -> list[Trial]:
    """All trials in their order, each found to be possible; ValueError in one line, which names the trial and setting.

    `check` raises ValueError for a configuration whose parts do not fit together.
    """
    found: list[Trial] = []
    known: dict[str, Trial] = {}
    several = len(sweep.bases) > 1
    combinations = list(_combinations(sweep))
    pairs = itertools.product(sweep.bases.items(), combinations)
    for number, ((label, base), values) in enumerate(pairs, start=1):
        varied = dict(zip(sweep.vary, values, strict=True))
        # The varied ones first: a setting goes with the name that is chosen beside it, in whatever order they stand.
        above = functools.reduce(overlay, (nested({name: value}, "vary") for name, value in varied.items()), Tree())
        asked = overlay(overlay(base, sweep.fixed), above)
        trial = _checked(Trial(number, label if several else "", asked, Config(), varied), sweep, check)
        lost = left_behind(overlay(base, sweep.fixed), above, to_dict(trial.config))
        trial = dataclasses.replace(trial, left_behind=tuple(lost))
        same = known.setdefault(repr(to_dict(trial.config)), trial)
        if same is not trial:
            raise ValueError(f"trials {same.number} and {number} are the same run ({same}; {trial}): leave one out")
        found.append(trial)
    return found


def _checked(trial: Trial, sweep: Sweep, check: Callable[[Config], None]) -> Trial:
    """The trial with its configuration, and with its values as this has them."""
    try:
        config = from_dict(trial.asked)
        if not config.eval.every:
            raise ValueError("eval.every is 0: trials are sorted by evaluations, so that it must be at least 1")
        check(config)
    except ValueError as error:
        which = f" ({shortened(str(trial), 200)})" if str(trial) else ""
        raise ValueError(f"trial {trial.number}{which}: {error}") from None
    values = flat(to_dict(config))
    # A group that is chosen by name has no value of its own: what was asked for is shown.
    varied = {name: values.get(name, values.get(f"{name}.{NAME}", value)) for name, value in trial.varied.items()}
    return dataclasses.replace(trial, config=config, varied=varied)


def _combinations(sweep: Sweep) -> Iterator[tuple[Any, ...]]:
    """The values of what is varied, trial by trial; ValueError where there are too many or too few."""
    kinds = list(sweep.vary.values())
    n_all = math.prod(kind.size if isinstance(kind, Range) else len(kind) for kind in kinds)
    if sweep.plan.search == "grid":
        if n_all * len(sweep.bases) > MOST_TRIALS:
            raise ValueError(f"the grid has {n_all * len(sweep.bases):,} trials: they must be {MOST_TRIALS:,} at most")
        yield from itertools.product(*(kind for kind in kinds if isinstance(kind, list)))
        return
    n_trials = sweep.plan.n_trials or 0
    if not kinds:
        raise ValueError("vary is empty: a random search needs something to draw")
    if n_trials * len(sweep.bases) > MOST_TRIALS:
        raise ValueError(f"the search has {n_trials * len(sweep.bases):,} trials: they must be {MOST_TRIALS:,} at most")
    if n_trials > n_all:
        raise ValueError(f"n_trials is {n_trials}: vary has only {n_all} different trials")
    # A stream for each setting, by its name: it does not matter in which order they stand in the file.
    streams = [random.Random(f"{sweep.plan.seed}/{name}") for name in sweep.vary]
    seen: set[str] = set()
    for _ in range(DRAWS * n_trials):
        values = tuple(_drawn(kind, stream.random()) for kind, stream in zip(kinds, streams, strict=True))
        if repr(values) not in seen:
            seen.add(repr(values))
            yield values
            if len(seen) == n_trials:
                return
    raise ValueError(
        f"n_trials is {n_trials}: {DRAWS * n_trials:,} draws had only {len(seen)} different ones (drawn numbers have "
        f"{DIGITS} digits): ask for fewer, or for wider ranges"
    )


def _drawn(kind: Choices, share: float) -> Any:
    """What a uniform number in [0, 1) stands for."""
    return kind.drawn(share) if isinstance(kind, Range) else kind[int(share * len(kind))]


def as_text(value: Any) -> str:
    """A value of a setting, for tables and names."""
    if isinstance(value, dict):
        return " ".join([as_text(value.get(NAME, "")), *(f"{k}={as_text(v)}" for k, v in value.items() if k != NAME)])
    if isinstance(value, list | tuple):
        return " ".join(map(as_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
