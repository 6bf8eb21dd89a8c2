"""Conditions in words: "steps >= 1000 & episode_return > 5 | tasks > 200"."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.registry import unknown_name

Comparison = Literal["<=", ">=", "=", "<", ">"]
COUNTS = ("steps", "total_steps", "episodes", "total_episodes", "tasks", "total_tasks")
METRICS = (*COUNTS, "episode_return", "progress")
LONG_NAMES = {"return": "episode_return"}
JOINTS = {"&": "&", "&&": "&", "|": "|", "||": "|"}
MOST = 2**31 - 1  # that an i32 counter can reach
TOKEN = re.compile(
    r"(?P<word>[A-Za-z_]\w*)|(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<comparison><=|>=|==|!=|[<>=])|(?P<joint>&&|\|\||[&|])|(?P<other>\S)"
)


class Counters(struct.PyTreeNode):
    """What has happened in a stage, and in all of them (`total_...`)."""

    steps: jax.Array  # i32[], of the attempts that have ended
    total_steps: jax.Array
    episodes: jax.Array  # i32[], that have ended
    total_episodes: jax.Array
    tasks: jax.Array  # i32[], attempts that have begun
    total_tasks: jax.Array
    episode_return: jax.Array  # f32[], the mean of the last returns of the stage; 0 if there is none
    progress: Any = None  # f32[], the mean of the last attempts of the stage; only where a condition in words reads it


@dataclasses.dataclass(frozen=True)
class Clause:
    """metric comparison number"""

    metric: str
    comparison: Comparison
    number: float

    def holds(self, counters: Counters) -> jax.Array:
        """bool[]"""
        value = getattr(counters, self.metric)
        if self.metric not in COUNTS:
            return COMPARE[self.comparison](value, jnp.float32(self.number))
        # Counters are whole numbers. As float32 they would be rounded from 2**24 on, so the number is made whole.
        if self.comparison == "=":
            return (value == int(self.number)) & self.number.is_integer()
        up = self.comparison in (">=", "<")
        whole = math.ceil(self.number) if up else math.floor(self.number)
        return COMPARE[self.comparison](value, jnp.int32(max(whole, -1)))


COMPARE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "<=": jnp.less_equal,
    ">=": jnp.greater_equal,
    "=": jnp.equal,
    "<": jnp.less,
    ">": jnp.greater,
}


@dataclasses.dataclass(frozen=True)
class Condition:
    """It holds if all clauses of one of its lists hold."""

    any_of: tuple[tuple[Clause, ...], ...]

    def __call__(self, counters: Counters) -> jax.Array:
        """bool[]"""
        found = [jnp.stack([clause.holds(counters) for clause in clauses]).all() for clauses in self.any_of]
        return jnp.stack(found).any()

    @property
    def metrics(self) -> set[str]:
        return {clause.metric for clauses in self.any_of for clause in clauses}


def parse_condition(text: str) -> Condition:
    """The condition that `text` states. `&` binds more than `|`. ValueError that says where the text is wrong."""
    if not isinstance(text, str):
        raise ValueError(f"the condition is {text!r}: it must be text, such as 'steps >= 1000', or a function")
    reader = _Reader(text)
    any_of: list[tuple[Clause, ...]] = []
    clauses = [_clause(reader)]
    while (joint := reader.next()) is not None:
        if joint.lastgroup != "joint":
            raise reader.wrong(joint, "expected & or | or the end")
        if JOINTS[joint.group()] == "|":
            any_of.append(tuple(clauses))
            clauses = []
        clauses.append(_clause(reader))
    return Condition((*any_of, tuple(clauses)))


def _clause(reader: "_Reader") -> Clause:
    metric = reader.expect("word", f"expected a metric ({', '.join(METRICS)})")
    name = LONG_NAMES.get(metric.group(), metric.group())
    if name not in METRICS:
        raise reader.wrong(metric, str(unknown_name("metric", name, METRICS)))
    comparison = reader.expect("comparison", "expected <=, >=, =, < or >")
    if comparison.group() not in COMPARE:
        raise reader.wrong(comparison, "expected <=, >=, =, < or >")
    token = reader.expect("number", "expected a number")
    number = float(token.group())
    if name in COUNTS and not abs(number) <= MOST:
        raise reader.wrong(token, f"expected a number up to {MOST}")
    if name == "progress" and not 0 <= number <= 1:
        raise reader.wrong(token, "expected a number from 0 to 1, as progress is")
    if not np.isfinite(number):
        raise reader.wrong(token, "expected a finite number")
    return Clause(name, cast(Comparison, comparison.group()), number)


class _Reader:
    """The tokens of a text, one by one."""

    def __init__(self, text: str):
        self.text = text
        self._tokens: Iterator[re.Match[str]] = TOKEN.finditer(text)

    def next(self) -> re.Match[str] | None:
        return next(self._tokens, None)

    def expect(self, group: str, what: str) -> re.Match[str]:
        token = self.next()
        if token is None or token.lastgroup != group:
            raise self.wrong(token, what)
        return token

    def wrong(self, token: re.Match[str] | None, what: str) -> ValueError:
        found = "the end" if token is None else f"{token.group()!r}"
        place = len(self.text) if token is None else token.start()
        return ValueError(f"the condition {self.text!r} is wrong at character {place + 1}, {found}: {what}")
