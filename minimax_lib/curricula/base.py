"""What a curriculum is: it proposes a batch of levels and observes the outcome. The training step does the rest."""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.counts import Count
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.scores import Score
from minimax_lib.envs.base import Level
from minimax_lib.envs.restarts import FreshLevels, LevelQueue, QueuedLevels, SameLevel
from minimax_lib.playing.episodes import Played
from minimax_lib.trees import assert_shape, tree_size

NEW, REPLAY, MUTATION = 0, 1, 2  # where a level came from
SOURCE_NAMES = ("new", "replay", "mutation")


class LevelBatch(struct.PyTreeNode):
    """A proposal of B levels."""

    levels: Level  # [B, ...]
    slots: jax.Array  # i32[B], the buffer's slot that holds the level; -1 if none
    source: jax.Array  # i32[B], NEW, REPLAY or MUTATION
    n_mutations: jax.Array  # i32[B], mutations along the level's lineage
    train: jax.Array  # bool[], whether the students learn from this batch; the same on every seed and device
    ancestors: Any = ()  # [B], `level_buffer.Ancestors` of the levels; () where none are kept
    context: Any = ()  # what `propose` hands to `observe` (PAIRED: the teacher's rollout)
    queue: Any = ()  # `LevelQueue` of the rows, which begins with `levels`; () if the plan's restart is another one
    duel: Any = ()  # `opponents.duel.Duel`, who sits in the other seat; () where the plan has no opponents

    def check_shapes(self, n_rows: int) -> None:
        """AssertionError, while tracing, where this is not a batch of `n_rows` levels."""
        if isinstance(self.queue, LevelQueue):
            n_entries = self.queue.numbers.shape[-1]
            assert_shape("the numbers of a queue", (n_rows, n_entries), self.queue.numbers)
        for leaf in jax.tree.leaves(self.levels):
            assert_shape("the levels of a batch", (n_rows, *leaf.shape[1:]), leaf)
        assert_shape("slots, source and n_mutations of a batch", (n_rows,), self.slots, self.source, self.n_mutations)
        assert_shape("train of a batch", (), self.train)
        for name, dtype in (("slots", "int32"), ("source", "int32"), ("n_mutations", "int32"), ("train", "bool")):
            if getattr(self, name).dtype != dtype:
                raise AssertionError(f"{name} of a batch is {getattr(self, name).dtype}: it must be {dtype}")


def level_batch(levels: Level, source: int = NEW, train: jax.Array | bool = True) -> LevelBatch:
    """A batch whose levels all come from one source, and are in no buffer."""
    n = tree_size(levels)
    return LevelBatch(
        levels=levels,
        slots=jnp.full(n, -1, jnp.int32),
        source=jnp.full(n, source, jnp.int32),
        n_mutations=jnp.zeros(n, jnp.int32),
        train=jnp.asarray(train, bool),
    )


def joined(batches: list[LevelBatch], train: jax.Array) -> LevelBatch:
    """One batch with the rows of all `batches`, in their order. Their contexts are dropped."""
    parts = [b.replace(context=(), train=()) for b in batches]
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *parts).replace(train=train)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static side of a curriculum. The defaults suit most curricula."""

    n_rows: int
    """B, levels in a batch."""
    n_train_rows: int | None = None
    """So many rows, the first of the batch, are in the students' gradient; None: all of them."""
    sources: tuple[int, ...] = (NEW,)
    """Where the levels of a batch may come from."""
    restart: SameLevel | FreshLevels | QueuedLevels = SameLevel()
    """What follows an episode's end inside a rollout."""
    scores: tuple[Score, ...] = ()
    """The scores that it asks its outcome for. What they need is checked before anything is compiled."""
    n_opponents: int = 0
    """P, groups of rows that have their own opponent. 0: all agents are the student."""
    student_seats: int = 1
    """With opponents: seats of each game that the student plays."""
    greedy_opponents: bool = False
    """Opponents take their most likely action. Otherwise they sample."""
    scripted_opponents: bool = False
    """An opponent may be the environment's written player."""


class Attempts(struct.PyTreeNode):
    """Whole episodes of the students on B levels."""

    episodes: Played  # [A, B, E]
    env_steps: jax.Array  # u32[], environment steps that they took


class Students(Protocol):
    """The current students, for curricula that look at them before they propose."""

    @property
    def params(self) -> Any:
        """Their parameters, [A, ...]."""
        ...

    def play(self, key: jax.Array, batch: LevelBatch) -> Outcome:
        """The outcome of the batch in a rollout like those of training."""
        ...

    def attempts(self, key: jax.Array, levels: Level, n_episodes: int, discount: float | None = None) -> Attempts:
        """`n_episodes` whole episodes of each student on each of `levels` [B, ...], however long they take.

        Where an episode holds several attempts at tasks, it is one attempt here: at the level's own task. With several
        agents that share the policy, each of them has `n_episodes` lives on a level. With a `discount`, the episodes
        have their discounted returns too; only for environments of one agent.
        """
        ...

    def facing(self, duel: Any) -> "Students":
        """The same students, whose attempts are games against the opponents of a `Duel`."""
        ...


class Curriculum(Protocol):
    """It proposes the levels of each batch and observes the outcome. Derive from this class.

    It is pure and static: a frozen dataclass. `plan` and `propose` have no default.
    `shared_key` is the same key on every seed and device, `key` is this seed's and device's own. `clock` (i32[]) counts
    the runner's steps and is the same on every seed.
    Check your own with `minimax_lib.testing.curricula.check_curriculum`.
    """

    @property
    def plan(self) -> Plan:
        """What never changes: the size of a batch, the sources of levels, who learns from them."""
        ...

    def init(self, key: jax.Array) -> Any:
        """What the curriculum remembers at the start: a pytree of arrays. By default, nothing."""
        return ()

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: Any, students: Students
    ) -> tuple[Any, LevelBatch]:
        """(new state, `plan.n_rows` levels).

        If levels are always fresh and episodes go on from rollout to rollout, this is called only once. With queues it
        is called before each rollout, and the first entry of a row must then be the level that it is on.
        """
        ...

    def observe(
        self, key: jax.Array, clock: jax.Array, state: Any, batch: LevelBatch, outcome: Outcome
    ) -> tuple[Any, dict[str, jax.Array]]:
        """(new state, f32[] metrics), after the students have played the batch. By default, it learns nothing."""
        return state, {}

    def extra_env_steps(self, state: Any) -> Count:
        """Environment steps so far that students took in `Students.play` or `attempts`. The runner does not see these.

        `state` may have leading axes (seeds, devices), and then the count has them too. By default, there are none.
        """
        return Count.zero()
