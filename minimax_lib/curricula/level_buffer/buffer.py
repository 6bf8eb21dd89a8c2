"""What a level buffer holds: its settings, its slots, and what tells levels apart."""

import dataclasses
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Level
from minimax_lib.registry import unknown_name

Prioritisation = Literal["rank", "proportional", "greedy"]
Schedule = Literal["fixed", "proportionate"]
SCHEDULES = get_args(Schedule)


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """How levels are kept and replayed; the defaults are those of published robust PLR (Jiang et al. 2023, table 6)."""

    capacity: int = 4000
    """Slots of the level buffer."""
    prioritisation: Prioritisation = "rank"
    """What the replay weight grows with: the rank of the score, the score itself, or being the highest score."""
    temperature: float = 0.3
    """Weights are raised to the power 1 / temperature: low values favour the highest scores more."""
    staleness: float = 0.3
    """Share of the replay weight that goes to levels in proportion to how long ago they were played."""
    replay_prob: float = 0.5
    """Probability of replaying levels rather than drawing new ones, once `min_fill` is reached."""
    schedule: Schedule = "fixed"
    """Replay with probability `replay_prob`, or with the share of slots that are filled (finite training sets)."""
    min_fill: float = 0.5
    """Share of slots that must be filled before anything is replayed."""
    unique: bool = True
    """A new level equal to one in the buffer updates that slot instead of taking another."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}: it must be at least 1")
        if self.prioritisation not in get_args(Prioritisation):
            raise unknown_name("prioritisation", self.prioritisation, get_args(Prioritisation))
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        if not (self.temperature > 0 and np.isfinite(self.temperature)):
            raise ValueError(f"temperature is {self.temperature}: it must be positive and finite")
        for name in ("staleness", "replay_prob", "min_fill"):
            # Written this way round, the test refuses NaN too: no comparison with NaN is true.
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")


class LevelBuffer(struct.PyTreeNode):
    """C slots. An empty slot holds a placeholder."""

    levels: Level  # [C, ...]
    scores: jax.Array  # f32[C], -inf where not filled
    best_returns: jax.Array  # f32[C], the highest undiscounted return ever reached; -inf where not filled
    n_mutations: jax.Array  # i32[C], mutations along the level's lineage
    ages: jax.Array  # i32[C], levels sampled since this one was, MAX_AGE at most; 0 where not filled
    fingerprints: jax.Array  # u32[C, 2], equal where levels are
    filled: jax.Array  # bool[C]
    ancestors: Any = ()  # `Ancestors` of the levels; () where none are kept


def init(level: Level, capacity: int, n_ancestors: int = 0) -> LevelBuffer:
    """An empty buffer for levels like `level`, which is the placeholder."""
    levels = jax.tree.map(lambda x: jnp.broadcast_to(x, (capacity, *jnp.shape(x))), level)
    return LevelBuffer(
        levels=levels,
        scores=jnp.full(capacity, -jnp.inf, jnp.float32),
        best_returns=jnp.full(capacity, -jnp.inf, jnp.float32),
        n_mutations=jnp.zeros(capacity, jnp.int32),
        ages=jnp.zeros(capacity, jnp.int32),
        fingerprints=jnp.zeros((capacity, 2), jnp.uint32),
        filled=jnp.zeros(capacity, bool),
        ancestors=no_ancestors(levels, n_ancestors),
    )


def levels_at(buffer: LevelBuffer, slots: jax.Array) -> Level:
    """The levels in `slots` (i32[n]), [n, ...]."""
    return jax.tree.map(lambda x: x[slots], buffer.levels)


def count_filled(buffer: LevelBuffer) -> jax.Array:
    """i32[], the number of filled slots."""
    return buffer.filled.sum(dtype=jnp.int32)


# ------------------------------------------------------------------------------------------------------------ ancestors

# The ancestors of levels are kept for pictures of lineages. Nothing is learnt from them.


class Ancestors(struct.PyTreeNode):
    """The latest G ancestors of each of N levels."""

    levels: Level  # [N, G, ...], the parent first; placeholders from `count` on
    count: jax.Array  # i32[N], how many there are


def no_ancestors(levels: Level, n_kept: int) -> Any:
    """Those of `levels` [N, ...] that have no parents; () where none are kept."""
    if n_kept == 0:
        return ()
    n = jax.tree.leaves(levels)[0].shape[0]
    empty = jax.tree.map(lambda x: jnp.zeros((n, n_kept, *x.shape[1:]), x.dtype), levels)
    return Ancestors(levels=empty, count=jnp.zeros(n, jnp.int32))


def of_children(parents: Level, ancestors: Any) -> Any:
    """The ancestors of one child of each of `parents` [N, ...], which have `ancestors`; () if these are ()."""
    if not isinstance(ancestors, Ancestors):
        return ancestors
    # One generation further back: the oldest makes room for the parent.
    levels = jax.tree.map(lambda x, old: jnp.concatenate([x[:, None], old[:, :-1]], axis=1), parents, ancestors.levels)
    n_kept = jax.tree.leaves(ancestors.levels)[0].shape[1]
    return Ancestors(levels=levels, count=jnp.minimum(ancestors.count + 1, n_kept))


# --------------------------------------------------------------------------------------------------------- fingerprints

# Fingerprints are short hashes that are compared in place of the levels.


def fingerprint(identity: Any) -> jax.Array:
    """u32[2], a hash of all leaves of the pytree `identity`.

    It has 64 bits, so that a billion different levels most likely have different ones. It consists of two multilinear
    hashes (sums of products with random odd multipliers, modulo 2**32) of scrambled words.
    """
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(identity)])
    salt, first, second = _scrambled(np.arange(3 * len(words), dtype=np.uint32)).reshape(3, -1)
    # The words of a maze are mostly 0 and 1. Multiplied as they are, the lowest bit of each sum would only tell whether
    # the number of odd words is odd. Scrambled with a salt for each place, they are numbers without a pattern.
    scrambled = _scrambled(words ^ salt)
    # Odd multipliers (m | 1) lose nothing modulo 2**32: if a single word differs, both sums differ. One sum would not
    # do: a million new levels, each compared with 4000 slots, would meet about one false match in 32 bits.
    return jnp.stack([jnp.sum(scrambled * (m | 1), dtype=jnp.uint32) for m in (first, second)])


def _words(leaf: jax.Array) -> jax.Array:
    """u32[n], one word for each element, which has 32 bits at most."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        # The bits are read, since a conversion to integers would drop the fraction. But -0.0 and 0.0 are equal and
        # have different bits. (Adding 0.0 would do in theory. XLA takes such a sum for the number itself.)
        number = leaf.astype(jnp.float32)
        leaf = jax.lax.bitcast_convert_type(jnp.where(number == 0.0, 0.0, number), jnp.uint32)
    return leaf.astype(jnp.uint32).reshape(-1)


def _scrambled(words: Any) -> Any:
    """u32[n], `words` with their bits mixed by a bijection, the finaliser of MurmurHash3 (Appleby 2011)."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
