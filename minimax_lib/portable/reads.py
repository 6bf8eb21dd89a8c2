"""What a task curriculum reads of what it is told, found out from its own functions."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from minimax_lib.tasks.core import Results


@runtime_checkable
class ReadsMetrics(Protocol):
    """A task curriculum that is also told numbers of the trainer."""

    reads_metrics: tuple[str, ...]  # their names

    def measured(self, state: Any, numbers: dict[str, jax.Array]) -> Any:
        """The state after these numbers, f32[] each. There may be only some of the names."""
        ...


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


@functools.lru_cache(maxsize=64)
def reads_of(core: Any) -> Reads:
    """What `core` depends on. Nothing is computed and nothing is compiled."""
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
