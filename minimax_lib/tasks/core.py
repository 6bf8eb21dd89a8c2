"""Task curricula, and the results that they are told."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import struct


class Results(struct.PyTreeNode):
    """What became of M attempts, in the order in which they ended (by step, then by row).

    An entry that is not `valid` is not an ended attempt. It may still have a score: that of the beginning of an attempt
    which goes on.
    """

    task: jax.Array  # i32[M]; of a box f32[M, D]
    valid: jax.Array  # bool[M], the attempt has ended
    progress: jax.Array  # f32[M] in [0, 1], 1: solved
    returns: jax.Array  # f32[M], undiscounted
    length: jax.Array  # i32[M], environment steps
    episode: jax.Array  # bool[M], the episode has ended with the attempt; an episode may hold several
    episode_return: jax.Array  # f32[M], undiscounted, of the whole episode; it means something where `episode`
    score: jax.Array  # f32[M], the mean of a score over the attempt's steps; NaN where there is none

    def in_order(self) -> "Results":
        """The results of T steps of N rows, [T, N], in the order in which they ended."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self)


@runtime_checkable
class TaskCurriculum(Protocol):
    """Decides which of `n_tasks` tasks come next. Pure and static: a frozen dataclass.

    Its state is a pytree of arrays, and nothing else is remembered.
    """

    @property
    def n_tasks(self) -> int: ...

    @property
    def reads_scores(self) -> bool:
        """Whether `update` reads the scores of attempts. If it does not, they are not computed."""
        ...

    def init(self, key: jax.Array) -> Any:
        """The state before the first draw."""
        ...

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        """i32[n], tasks drawn with replacement. More may be drawn than are ever begun, so the state stays as it is."""
        ...

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any:
        """The state after attempts on `tasks` (i32[M]) have begun, in this order. Those not `valid` have not."""
        ...

    def update(self, state: Any, results: Results) -> Any:
        """The state after these attempts."""
        ...

    def weights(self, state: Any) -> jax.Array:
        """f32[n_tasks], the share of each task among those that the curriculum prefers; they add up to 1."""
        ...

    def report(self, state: Any) -> dict[str, jax.Array]:
        """f32[] metrics."""
        ...


@runtime_checkable
class Evaluated(TaskCurriculum, Protocol):
    """A task curriculum that is told from time to time how often each task is solved.

    The training must evaluate the tasks, the first time before anything is learnt.
    """

    @property
    def min_episodes(self) -> int:
        """Episodes of each task that an evaluation needs at least. 0: these settings need no evaluation."""
        ...

    def evaluated(self, state: Any, rates: jax.Array, known: jax.Array) -> Any:
        """The state after an evaluation: `rates` f32[n_tasks], 0 where not `known` (bool[n_tasks])."""
        ...


def able(core: Any, ability: str) -> bool:
    """Whether a task curriculum has a method that only some have.

    `quiet(state)` is i32[]: so many more attempts may end before any draw could change. A caller may collect results
    and report them together. `trains(state)` is bool[n_tasks], the tasks to learn from; the others are only scored.
    `measured(state, numbers)` is the state after numbers of the trainer (f32[] each), some of those that the tuple
    `reads_metrics` names. `evaluated`: see `Evaluated`. `live_share`: see `opponents.cores.Opponents`.
    `leaves_out`, a bool: of a core that has `trains` because it is made of others, whether one of these has it.
    `from_weights` and `takes_groups`, bools: see `draws_from_weights` and `takes_groups`.
    """
    return hasattr(core, ability)


def leaves_out(core: Any) -> bool:
    """Whether there may be tasks that `core` only scores."""
    return core.leaves_out if able(core, "leaves_out") else able(core, "trains")


def trains_of(core: Any, state: Any) -> jax.Array:
    """bool[n_tasks], the tasks to learn from: all of them where `core` does not say."""
    return core.trains(state) if able(core, "trains") else jnp.ones(core.n_tasks, bool)


def draws_from_weights(core: Any) -> bool:
    """Whether draws follow the weights of `core` alone. Those of PLR do not: new tasks have no weight."""
    return not able(core, "from_weights") or core.from_weights


def takes_groups(core: Any) -> bool:
    """Whether `core` takes the attempts of an episode as one group of answers to a task.

    Where each attempt has a task of its own, it is told that the episode has ended with each.
    """
    return able(core, "takes_groups") and core.takes_groups


def kinds_in(core: Any) -> str:
    """The name of its class, and of the one that it is round, for messages."""
    name = type(core).__name__
    return f"{name} round {kinds_in(core.inner)}" if able(core, "inner") else name


def episodes_needed(core: Any) -> int:
    """Episodes of each task that an evaluation for `core` needs at least. 0: it needs no evaluation."""
    return core.min_episodes if able(core, "evaluated") else 0


class BoxCurriculum(Protocol):
    """As a `TaskCurriculum`, but tasks are points f32[D] of a box. They have no numbers, and no list of weights."""

    @property
    def n_tasks(self) -> None: ...

    @property
    def reads_scores(self) -> bool: ...

    def init(self, key: jax.Array) -> Any: ...

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        """f32[n, D]"""
        ...

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any: ...

    def update(self, state: Any, results: Results) -> Any: ...

    def weights(self, state: Any) -> None: ...

    def report(self, state: Any) -> dict[str, jax.Array]: ...
