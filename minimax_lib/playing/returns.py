"""The episodes of a rollout by level: their returns, and which rows and steps belong to which level."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.playing.rollout import Transition


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which rows of a rollout belong to which of B levels: R = B / levels_per_row * n_evals."""

    n_evals: int = 1  # rows of each level, those of all agents together
    n_agents: int = 1  # of an environment, whose rows these are
    levels_per_row: int = 1  # that each row plays in turn
    max_steps: int = 0  # of an episode; only needed where rows play several levels in turn

    @property
    def in_turn(self) -> bool:
        return self.levels_per_row > 1


ONE_ROW_EACH = Layout()


def rows_of_levels(x: jax.Array, layout: Layout) -> jax.Array:
    """[T, A, R * n, ...] of `x` [T, A, R, ...] about rows that play n levels in turn: a copy for each of the levels.

    The n_evals rows side by side play the same levels. So they do in the result. If n is 1, `x` itself.
    """
    n, n_evals = layout.levels_per_row, layout.n_evals
    if n == 1:
        return x
    apart = x.reshape(*x.shape[:2], -1, 1, n_evals, *x.shape[3:])
    copies = jnp.broadcast_to(apart, (*apart.shape[:3], n, *apart.shape[4:]))
    return copies.reshape(*x.shape[:2], -1, *x.shape[3:])


def split_by_level(steps: Transition, layout: Layout) -> Transition:
    """The steps [T, A, R] of rows that play n levels in turn, with a row for each level: [T, A, R * n].

    Level number q of row r is numbered r * n + q (`queue_of`). Only the steps of the row's first episode on the level
    are valid, and it counts as ended only if it began in time (see `in_time`). Observations and actions are left out.
    """
    if not layout.in_turn:
        return steps
    assert steps.number is not None
    n = layout.levels_per_row
    numbers = rows_of_levels(steps.number % n, layout)
    turns = jnp.arange(numbers.shape[-1], dtype=jnp.int32) // layout.n_evals % n
    mine = numbers == turns[None, None]
    told = jax.tree.map(lambda x: rows_of_levels(x, layout), steps.replace(obs=(), action=()))
    ends = told.done & mine
    # A row comes to a level again if its episodes were short. Then a mean over all of them would be biased: in a maze,
    # whoever fails the first has no time for a second.
    mine &= jnp.cumsum(ends, axis=0, dtype=jnp.int32) - ends == 0
    counts = mine & rows_of_levels(in_time(steps.first, layout.max_steps), layout)

    def only_mine(x: jax.Array) -> jax.Array:
        return jnp.where(mine, x, jnp.zeros_like(x))

    return told.replace(
        done=ends & counts,
        episode_return=only_mine(told.episode_return),
        progress=only_mine(told.progress),
        facts=jax.tree.map(only_mine, told.facts),
        valid=mine if told.valid is None else told.valid & mine,
    )


def in_time(first: jax.Array, max_steps: int) -> jax.Array:
    """bool[T, ...]: the step's episode began so early that it ends inside the T steps, whatever happens in it.

    `first` (bool[T, ...]) says where episodes begin. If no episode is sure to end, those that begin with step 0 count.
    """
    # When an episode begins depends on the episodes before it, and not on how it will come out. So whether it counts
    # does not either. Among all that end within the T steps, short ones would be too many: in a maze, successes.
    n_steps = len(first)
    time = jnp.arange(n_steps, dtype=jnp.int32).reshape(-1, *(1,) * (first.ndim - 1))
    began = jax.lax.cummax(jnp.where(first, time, 0), axis=0)
    return began <= max(n_steps - max_steps, 0)


class FirstEpisodes(struct.PyTreeNode):
    """The first episode of each row, where a row is evaluation e of level b. All [A, B, E].

    A mean over these is unbiased. A mean over all episodes that end inside a rollout is not: long ones are cut off, and
    short ones fit in several times.
    """

    finished: jax.Array  # bool, it ended inside the rollout
    returns: jax.Array  # f32, undiscounted; the return so far if it has not ended
    progress: jax.Array  # f32, at its end; the progress so far if it has not ended
    solved: jax.Array  # bool, it ended with its task done
    facts: dict[str, jax.Array]  # f32 each, at the same time as `progress`


class EpisodeReturns(struct.PyTreeNode):
    """The episodes on each level that ended inside a rollout. Unfinished ones do not count. All [A, B].

    Where rows play several levels in turn, at most one episode counts (see `split_by_level`).
    """

    mean: jax.Array  # f32, 0 where no episode ended
    best: jax.Array  # f32, -inf where no episode ended
    count: jax.Array  # i32
    solved: jax.Array  # i32, episodes that ended with their task done
    progress: jax.Array  # f32, mean at the episodes' ends, 0 where none ended
    facts: dict[str, jax.Array]  # f32 each, means as `progress`
    first: FirstEpisodes
    begun: jax.Array  # bool, the student came to the level: in turn, it may not
    known: jax.Array  # bool, nothing is left out: in turn, a student without an episode has hardly played the level


def episode_returns(steps: Transition, n_evals: int = 1, in_turn: bool = False) -> EpisodeReturns:
    """Statistics of the episodes that were completed in `steps` [T, A, B * n_evals].

    `in_turn`: each row played several levels, and these are the steps after `split_by_level`.
    """
    done, returns = steps.done, steps.episode_return

    def pooled(x: jax.Array) -> jax.Array:
        return by_level(x, n_evals).sum(axis=-1)

    count = pooled(done.sum(axis=0, dtype=jnp.int32))

    begun = everywhere = jnp.ones_like(count, bool)
    if in_turn and steps.valid is not None:
        begun = by_level(steps.valid.any(axis=0), n_evals).any(axis=-1)

    def at_ends(x: jax.Array) -> jax.Array:
        return pooled(jnp.where(done, x, 0.0).sum(axis=0)) / jnp.maximum(count, 1)

    return EpisodeReturns(
        mean=at_ends(returns),
        best=by_level(jnp.where(done, returns, -jnp.inf).max(axis=0), n_evals).max(axis=-1),
        count=count,
        solved=pooled(steps.solved.sum(axis=0, dtype=jnp.int32)),
        progress=at_ends(steps.progress),
        facts=jax.tree.map(at_ends, steps.facts),
        first=jax.tree.map(lambda x: by_level(x, n_evals), first_episodes(steps)),
        begun=begun,
        known=count > 0 if in_turn else everywhere,
    )


def by_level(x: jax.Array, n_evals: int) -> jax.Array:
    """[..., B, n_evals] of rows [..., B * n_evals]. Row b * n_evals + e is evaluation e of level b."""
    return x.reshape(*x.shape[:-1], -1, n_evals)


def first_episodes(steps: Transition) -> FirstEpisodes:
    """The first episode of each row in `steps` [T, A, R]. The leaves are [A, R]."""
    finished = steps.done.any(axis=0)
    # The step of the first end, or the last step if there is no end (`argmax` would give 0).
    last = jnp.where(finished, jnp.argmax(steps.done, axis=0), len(steps.done) - 1)

    def there(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, last[None], axis=0)[0]

    progress = there(steps.progress)
    return FirstEpisodes(
        finished=finished,
        returns=there(steps.episode_return),
        progress=progress,
        solved=finished & (progress >= 1),
        facts=jax.tree.map(there, steps.facts),
    )
