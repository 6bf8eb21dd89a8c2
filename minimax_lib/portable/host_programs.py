"""What a `Host` has compiled: each function once for each core and size."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.portable.reads import blank_results, reads_of
from minimax_lib.tasks.core import Results


@functools.partial(jax.jit, static_argnums=0)
def begin(core: Any, key: jax.Array) -> Any:
    """The state before the first draw."""
    return core.init(key)


@functools.partial(jax.jit, static_argnums=(0, 1))
def draw_together(core: Any, size: int, key: jax.Array, first: jax.Array, state: Any) -> Any:
    """Encodings [size, ...] of the draws number `first` and so on, all from one state.

    Draw number k has the key fold_in(key, k).
    """
    numbers = first + jnp.arange(size, dtype=jnp.uint32)
    draws = jax.vmap(lambda number: core.sample(jax.random.fold_in(key, number), state, 1))(numbers)
    return jax.tree.map(lambda x: x[:, 0], draws)


@functools.partial(jax.jit, static_argnums=(0, 1))
def draw_in_turn(core: Any, size: int, key: jax.Array, first: jax.Array, n: jax.Array, state: Any) -> tuple[Any, Any]:
    """(the same, the state after the attempts on them have begun). Each draw follows the attempts on those before it.

    Only the first `n` draws are made.
    """
    numbers = first + jnp.arange(size, dtype=jnp.uint32)

    def one(i: jax.Array, loop: tuple[Any, Any]) -> tuple[Any, Any]:
        tasks, state = loop
        task = core.sample(jax.random.fold_in(key, numbers[i]), state, 1)
        tasks = jax.tree.map(lambda all_, x: all_.at[i].set(x[0]), tasks, task)
        return tasks, core.started(state, task, jnp.ones(1, bool))

    blank = jax.tree.map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), reads_of(core).encoding)
    return jax.lax.fori_loop(0, n, one, (blank, state))


@functools.partial(jax.jit, static_argnums=0)
def started(core: Any, state: Any, tasks: Any, n: jax.Array) -> Any:
    """The state after attempts on the first `n` of `tasks` [K, ...] have begun, one after another."""

    def one(i: jax.Array, state: Any) -> Any:
        task = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, i, 1), tasks)
        return core.started(state, task, jnp.ones(1, bool))

    return jax.lax.fori_loop(0, n, one, state)


@functools.partial(jax.jit, static_argnums=0)
def update(core: Any, state: Any, given: dict[str, Any]) -> Any:
    """The state after results [M] of which only the fields are `given` that the core reads."""
    task = given["task"]
    results: Results = blank_results(task)
    return core.update(state, results.replace(**given))


@functools.partial(jax.jit, static_argnums=0)
def quiet(core: Any, state: Any) -> jax.Array:
    """i32[], so many more attempts may end before any draw could change."""
    return core.quiet(state)


@functools.partial(jax.jit, static_argnums=0)
def evaluated(core: Any, state: Any, rates: jax.Array, known: jax.Array) -> Any:
    """The state after an evaluation."""
    return core.evaluated(state, rates, known)


@functools.partial(jax.jit, static_argnums=0)
def measured(core: Any, state: Any, numbers: dict[str, jax.Array]) -> Any:
    """The state after numbers of the trainer."""
    return core.measured(state, numbers)


@functools.partial(jax.jit, static_argnums=0)
def weights(core: Any, state: Any) -> jax.Array | None:
    """f32[N], or none where the core has no list of weights."""
    return core.weights(state)


@functools.partial(jax.jit, static_argnums=0)
def report(core: Any, state: Any) -> dict[str, jax.Array]:
    """The core's metrics."""
    return core.report(state)
