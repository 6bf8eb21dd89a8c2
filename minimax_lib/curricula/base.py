"""What a curriculum is: it proposes a batch of levels and observes the outcome; the training step does the rest."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import FreshLevels, SameLevel
from minimax_lib.rollout import Rollout
from minimax_lib.trees import tree_size

NEW, REPLAY, MUTATION = 0, 1, 2  # where a level came from
SOURCE_NAMES = ("new", "replay", "mutation")

Play = Callable[[jax.Array, Level], Rollout]


class LevelBatch(struct.PyTreeNode):
    """A proposal of B levels."""

    levels: Level  # [B, ...]
    slots: jax.Array  # i32[B], the buffer's slot that holds the level; -1 if none
    source: jax.Array  # i32[B], NEW, REPLAY or MUTATION
    n_mutations: jax.Array  # i32[B], mutations along the level's lineage
    train: jax.Array  # bool[], whether the students learn from this batch; the same on every seed and device
    context: Any = ()  # what `propose` wants `observe` to see of it (PAIRED: the teacher's rollout)


def level_batch(levels: Level, source: int, train: jax.Array | bool) -> LevelBatch:
    """A batch whose levels all come from one source, and are in no buffer."""
    n = tree_size(levels)
    return LevelBatch(
        levels=levels,
        slots=jnp.full(n, -1, jnp.int32),
        source=jnp.full(n, source, jnp.int32),
        n_mutations=jnp.zeros(n, jnp.int32),
        train=jnp.asarray(train, bool),
    )


class Curriculum(Protocol):
    """Pure and static. `shared` is the same key on every seed and device, `key` is this seed's and device's own.

    `clock` (i32[]) counts the runner's steps and is the same on every seed.
    """

    @property
    def n_rows(self) -> int:
        """B, levels in a batch."""
        ...

    @property
    def train_rows(self) -> slice:
        """Rows of the batch that the students' gradient uses."""
        ...

    @property
    def sources(self) -> tuple[int, ...]:
        """Where the levels of a batch may come from."""
        ...

    @property
    def restart(self) -> SameLevel | FreshLevels:
        """What follows an episode's end inside a rollout."""
        ...

    def extra_env_steps(self, clock: int) -> int:
        """Environment steps of the first `clock` steps that are in none of the runner's rollouts (see `play`)."""
        ...

    def init(self, key: jax.Array) -> Any: ...

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: Any, play: Play
    ) -> tuple[Any, LevelBatch]:
        """(new state, levels); `play(key, levels)` rolls out the current students, for curricula that look first."""
        ...

    def observe(
        self, key: jax.Array, clock: jax.Array, state: Any, batch: LevelBatch, runs: Rollout
    ) -> tuple[Any, dict[str, jax.Array]]:
        """(new state, f32[] metrics) after the students' rollouts [T, A, B] on the batch."""
        ...
