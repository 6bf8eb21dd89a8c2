"""What a `Host` needs to know of a core, and its compiled functions: each is compiled once for each core and size."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from minimax_lib.messages import shown
from minimax_lib.portable.encodings import blank
from minimax_lib.tasks.core import Results
from minimax_lib.tasks.draws import draw
from minimax_lib.tasks.registry import TASK_CURRICULA, core_of
from minimax_lib.tasks.spaces import Discrete, TaskSpace

TRIES = 32  # draws of a core in which a task that is not retired should come


@dataclasses.dataclass(frozen=True)
class Reads:
    """What the functions of a core depend on."""

    fields: frozenset[str]  # of `Results`, that change its state
    starts: bool  # `started` changes its state
    encoding: Any  # shapes of one drawn encoding [1, ...]

    @property
    def results(self) -> bool:
        """A result without a score changes the state."""
        return not self.fields <= {"task", "score"}


def blank_results(task: Any) -> Results:
    """Results of no attempts, on tasks [M, ...]."""
    n = len(jax.tree.leaves(task)[0])
    numbers, flags = jnp.zeros(n, jnp.float32), jnp.zeros(n, bool)
    return Results(
        task=task,
        valid=flags,
        progress=numbers,
        returns=numbers,
        length=jnp.zeros(n, jnp.int32),
        episode=flags,
        episode_return=numbers,
        score=jnp.full(n, jnp.nan, jnp.float32),
    )


def blank_waiting(reads: Reads, n: int) -> dict[str, Any]:
    """Room for `n` results in NumPy: the fields that the core reads, as results of no attempts."""
    kinds: dict[str, Any] = {"length": np.int32, "valid": np.bool_, "episode": np.bool_}
    fields = {name: np.zeros(n, kinds.get(name, np.float32)) for name in sorted(reads.fields - {"task"})}
    if "score" in fields:
        fields["score"][:] = np.nan
    return {"task": blank(reads.encoding, n)} | fields


@functools.lru_cache(maxsize=64)
def reads_of(core: Any) -> Reads:
    """What `core` depends on. Nothing is computed and nothing is compiled. ValueError if it has no task."""
    if core.n_tasks is not None and core.n_tasks < 1:
        raise ValueError(f"{type(core).__name__} has {core.n_tasks} tasks: there must be at least 1")
    key = jax.random.key(0)
    state = jax.eval_shape(core.init, key)
    encoding = jax.eval_shape(lambda k, s: core.sample(k, s, 1), key, state)
    results = jax.eval_shape(blank_results, encoding)
    named, _ = jax.tree_util.tree_flatten_with_path(results)
    fields = [str(path[0].name) for path, _ in named]  # type: ignore[union-attr]
    n_state = len(jax.tree.leaves(state))
    changed = _changed_by(core.update, n_state, state, results)
    found = {fields[i - n_state] for inputs in changed for i in inputs if i >= n_state}
    if changed and not found:
        found = {"valid"}  # it counts its updates
    valid = jax.ShapeDtypeStruct((1,), bool)
    return Reads(frozenset(found), bool(_changed_by(core.started, n_state, state, encoding, valid)), encoding)


def _changed_by(function: Callable[..., Any], n_state: int, *arguments: Any) -> list[set[int]]:
    """Of each part of the state that `function` changes, the numbers of the flat inputs that it is computed from."""
    traced = jax.make_jaxpr(function)(*arguments).jaxpr
    inputs: dict[Any, set[int]] = {variable: {i} for i, variable in enumerate(traced.invars)}
    for equation in traced.eqns:
        used = set().union(*(inputs.get(v, set()) for v in equation.invars if not isinstance(v, Literal)))
        inputs |= dict.fromkeys(equation.outvars, used)
    same = [out is own for out, own in zip(traced.outvars, traced.invars[:n_state], strict=True)]
    return [
        set() if isinstance(out, Literal) else inputs.get(out, set())
        for out, unchanged in zip(traced.outvars, same, strict=True)
        if not unchanged
    ]


def check_space(space: Any) -> None:
    """ValueError in one line if `space` is none, such as a number of tasks."""
    if isinstance(space, type) or not all(hasattr(space, name) for name in ("n", "sample", "decode")):
        raise ValueError(f"the space is {shown(space)}: it must be one of tasks, such as Discrete(200)")


def core_for(core: Any, space: TaskSpace | None) -> Any:
    """`core`, or the one of this name for the tasks of `space`. ValueError if it is no task curriculum."""
    if space is not None:
        check_space(space)
    if isinstance(core, str):
        known = TASK_CURRICULA[core]  # a name that is not known is the first thing to say
        if space is None or space.n is None:
            raise ValueError(f"the core {core!r} needs a space of tasks that can be counted, as Discrete(200)")
        return core_of(known(), space.n, (lambda i: str(space.decode(i))) if isinstance(space, Discrete) else str)
    if isinstance(core, type) or not (hasattr(core, "init") and hasattr(core, "sample")):
        names = ", ".join(TASK_CURRICULA.names())
        raise ValueError(f"the core is {shown(core)}: it must be a task curriculum, or the name of one ({names})")
    return core


def fitting_space(core: Any, space: TaskSpace | None, encoding: Any) -> TaskSpace:
    """The space of the core's tasks: `space`, or their numbers. ValueError if it is another."""
    numbered = not isinstance(encoding, tuple) and encoding.shape == (1,) and encoding.dtype == np.int32
    if space is None:
        if not numbered:
            raise ValueError(f"{type(core).__name__} draws no numbers: give Host the space of its tasks")
        return Discrete(core.n_tasks)
    if numbered and space.n != core.n_tasks:
        raise ValueError(f"the space has {space.n} tasks, {type(core).__name__} has {core.n_tasks}: they must agree")
    return space


def cpu() -> Any:
    """The device that all is computed on: a trainer with another library needs the memory of the accelerator."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return jax.local_devices()[0]


@functools.partial(jax.jit, static_argnums=0)
def begin(core: Any, key: jax.Array) -> Any:
    """The state before the first draw."""
    return core.init(key)


@functools.partial(jax.jit, static_argnums=(0, 1))
def draw_together(core: Any, size: int, key: jax.Array, first: jax.Array, state: Any, active: Any) -> Any:
    """Encodings [size, ...] of the draws number `first` and so on, all from one state.

    Draw number k has the key fold_in(key, k). Only `active` tasks (bool[N]; None: all) are drawn.
    """
    numbers = first + jnp.arange(size, dtype=jnp.uint32)
    draws = jax.vmap(lambda number: one_of(core, jax.random.fold_in(key, number), state, active))(numbers)
    return jax.tree.map(lambda x: x[:, 0], draws)


@functools.partial(jax.jit, static_argnums=(0, 1))
def draw_in_turn(
    core: Any, size: int, key: jax.Array, first: jax.Array, n: jax.Array, state: Any, active: Any
) -> tuple[Any, Any]:
    """(the same, the state after the attempts on them have begun). Each draw follows the attempts on those before it.

    Only the first `n` draws are made.
    """
    numbers = first + jnp.arange(size, dtype=jnp.uint32)

    def one(i: jax.Array, loop: tuple[Any, Any]) -> tuple[Any, Any]:
        tasks, state = loop
        task = one_of(core, jax.random.fold_in(key, numbers[i]), state, active)
        tasks = jax.tree.map(lambda all_, x: all_.at[i].set(x[0]), tasks, task)
        return tasks, core.started(state, task, jnp.ones(1, bool))

    blank = jax.tree.map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), reads_of(core).encoding)
    return jax.lax.fori_loop(0, n, one, (blank, state))


def one_of(core: Any, key: jax.Array, state: Any, active: jax.Array | None) -> Any:
    """One encoding [1, ...] that the core draws, if need be again and again until it is `active` (bool[N])."""
    if active is None:
        return core.sample(key, state, 1)

    def again(loop: tuple[jax.Array, jax.Array, Any]) -> tuple[jax.Array, jax.Array, Any]:
        i, key, _ = loop
        k_next, k_draw = jax.random.split(key)
        return i + 1, k_next, core.sample(k_draw, state, 1)

    k_first, k_rest, k_last = jax.random.split(key, 3)
    loop = (jnp.zeros((), jnp.int32), k_rest, core.sample(k_first, state, 1))
    _, _, task = jax.lax.while_loop(lambda loop: (loop[0] < TRIES) & ~active[loop[2][0]], again, loop)
    # The core may want retired tasks alone. Then the shares of the others decide; if they have none, they are alike.
    shares = core.weights(state) * active
    last = draw(k_last, jnp.where(shares.sum() > 0, shares, active.astype(jnp.float32)), 1)
    return jnp.where(active[task], task, last)


@functools.partial(jax.jit, static_argnums=0)
def trains(core: Any, state: Any) -> jax.Array:
    """bool[N], the tasks to learn from."""
    return core.trains(state)


def resized(core: Any, n: int) -> Any:
    """The same core for a list of `n` tasks. ValueError if it has settings of each task, which only you can give."""
    if any(field.name == "n_tasks" and field.init for field in dataclasses.fields(core)):
        return dataclasses.replace(core, n_tasks=n)
    cores = {"inner", "start"} & {field.name for field in dataclasses.fields(core)}
    if "inner" in cores:
        return dataclasses.replace(core, **{name: resized(getattr(core, name), n) for name in cores})
    raise ValueError(f"{type(core).__name__} has no list of tasks that can grow")


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


def check_queue(n: int, n_waiting: int) -> None:
    """ValueError if fewer than `n` tasks wait in a queue of a `Manual` core."""
    if n > n_waiting:
        raise ValueError(
            f"{n} tasks are drawn, and {n_waiting} wait in the queue: put more, "
            "host.change(lambda state: core.put(state, tasks))"
        )
