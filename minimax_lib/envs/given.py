"""What is said of levels that come from outside and break a rule of their environment."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.envs.base import Environment, Level
from minimax_lib.trees import tree_size

PACKAGE = "minimax_lib."


def is_known(level: Level) -> bool:
    """Whether the numbers in `level` can be looked at: they cannot inside jit and vmap."""
    # Inside jit, whatever is computed is a tracer, although a level may be a constant there.
    leaves = [*jax.tree.leaves(level), jnp.zeros((), jnp.int32)]
    return not any(isinstance(x, jax.core.Tracer) for x in leaves)


def check_levels(env: Environment, levels: Level, name: str | None = None) -> None:
    """ValueError for the first of `levels` [n, ...] that breaks a rule of `env`; `name` says what it is."""
    if env.fault_in is None:
        return
    on_host = jax.device_get(levels)
    for i in range(tree_size(on_host)):
        wrong = env.fault_in(jax.tree.map(lambda x, i=i: x[i], on_host))
        if wrong:
            raise ValueError(f"{name or f'the level of row {i}'} is none: {wrong}")


def check_source(env: Environment, source: Any, draw: Callable[[jax.Array], Level], names: Sequence[str]) -> None:
    """ValueError where `draw(key)` gives levels [n, ...], called `names`, of which one breaks a rule of `env`.

    `source` is what draws them. Of this package's own it is known that they draw no such levels: nothing is compiled.
    """
    if env.fault_in is None or (_is_of_package(env) and _is_of_package(source)):
        return
    drawn = jax.device_get(jax.jit(draw)(jax.random.key(0)))
    for i, name in enumerate(names):
        check_levels(env, jax.tree.map(lambda x, i=i: x[i : i + 1], drawn), name)


def _is_of_package(part: Any) -> bool:
    """Whether a thing, and all that it is made of, is of a class of this package."""
    if not dataclasses.is_dataclass(part):
        return not callable(part) or str(getattr(part, "__module__", "")).startswith(PACKAGE)
    own = type(part).__module__.startswith(PACKAGE)
    return own and all(_is_of_package(getattr(part, field.name)) for field in dataclasses.fields(part))
