"""ACCEL: mutations of the levels that have just been replayed (Parker-Holder et al. 2022)."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY, Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.level_buffer import of_children
from minimax_lib.curricula.levels.dr import SimplestLevels
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.levels.parallel import Parallel
from minimax_lib.curricula.levels.plr import PLRCurriculum, PLRSettings, PLRState
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.registry import editing_of
from minimax_lib.registry import unknown_name
from minimax_lib.trees import zeros

Selection = Literal["batch", "easy", "hard"]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """How children are made of parents: `n_edits` edits each by `edit(key, level, n_edits)`."""

    edit: Callable[[jax.Array, Level, int], Level]
    n_edits: int

    def children(self, key: jax.Array, parents: Level, n_mutations: jax.Array, ancestors: Any = ()) -> LevelBatch:
        """A batch with one child of each of `parents` [B, ...], whose lineages have `n_mutations` (i32[B])."""
        keys = jax.random.split(key, len(n_mutations))
        levels = jax.vmap(lambda key, level: self.edit(key, level, self.n_edits))(keys, parents)
        batch = level_batch(levels, MUTATION, train=False)
        return batch.replace(n_mutations=n_mutations + self.n_edits, ancestors=of_children(parents, ancestors))


class ACCELState(struct.PyTreeNode):
    """A replay curriculum, and the parents of the next batch."""

    inner: PLRState
    parents: Level  # [B, ...]
    n_mutations: jax.Array  # i32[B]
    due: jax.Array  # bool[], the last batch was replayed, so that its children come next; the same on every seed
    ancestors: Any = ()  # [B], those of the parents; () where none are kept


@dataclasses.dataclass(frozen=True)
class ACCELCurriculum(Curriculum):
    """After every replayed batch of `inner`, a batch of children of its levels. The children are only scored.

    Parents are the whole batch, or its `n_parents` levels with the highest ("easy") or lowest ("hard") mean return. Few
    parents have several children each, so that the batch is full.
    """

    inner: PLRCurriculum
    mutation: Mutation
    selection: Selection = "batch"
    n_parents: int = 4

    @property
    def plan(self) -> Plan:
        return dataclasses.replace(self.inner.plan, sources=(NEW, REPLAY, MUTATION))

    def extra_env_steps(self, state: ACCELState) -> Count:
        return self.inner.extra_env_steps(state.inner)

    def init(self, key: jax.Array) -> ACCELState:
        inner = self.inner.init(key)
        slots = jnp.zeros(self.plan.n_rows, jnp.int32)
        return ACCELState(
            inner=inner,
            parents=jax.tree.map(lambda x: x[slots], inner.buffer.levels),
            n_mutations=slots,
            due=jnp.zeros((), bool),
            ancestors=jax.tree.map(lambda x: x[slots], inner.buffer.ancestors),
        )

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: ACCELState, students: Students
    ) -> tuple[ACCELState, LevelBatch]:
        due = axes.everywhere_all(state.due)  # equal on every seed already, but XLA only knows it from the reduction

        def inner() -> tuple[PLRState, LevelBatch]:
            return self.inner.propose(shared_key, key, clock, state.inner, students)

        def children() -> tuple[PLRState, LevelBatch]:
            batch = self.mutation.children(key, state.parents, state.n_mutations, state.ancestors)
            return state.inner, batch.replace(context=zeros(undesigned))

        undesigned = jax.eval_shape(inner)[1].context

        inner_state, batch = jax.lax.cond(due, children, inner)
        return state.replace(inner=inner_state), batch

    def observe(
        self, key: jax.Array, clock: jax.Array, state: ACCELState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[ACCELState, dict[str, jax.Array]]:
        inner, metrics = self.inner.observe(key, clock, state.inner, batch, outcome)
        chosen = self.parents(outcome)
        return ACCELState(
            inner=inner,
            parents=jax.tree.map(lambda x: x[chosen], batch.levels),
            n_mutations=batch.n_mutations[chosen],
            due=(batch.source == REPLAY).all(),
            ancestors=jax.tree.map(lambda x: x[chosen], batch.ancestors),
        ), metrics

    def parents(self, outcome: Outcome) -> jax.Array:
        """i32[B], the row that is the parent of each child.

        A level without a finished episode counts as hardest. Where rows play several levels in turn, it comes last: it
        may not have been played at all.
        """
        rows = jnp.arange(self.plan.n_rows, dtype=jnp.int32)
        if self.selection == "batch":
            return rows
        episodes = outcome.episodes
        ease = jnp.where(episodes.count > 0, episodes.mean, -jnp.inf).mean(axis=0)
        wanted = ease if self.selection == "easy" else -ease
        order = jnp.argsort(-jnp.where(episodes.known.all(axis=0), wanted, -jnp.inf)).astype(jnp.int32)
        return order[rows % self.n_parents]


@dataclasses.dataclass(frozen=True)
class ACCELSettings(PLRSettings):
    """ACCEL: replayed levels are mutated, and the children compete for the buffer."""

    generator: Annotated[Any, GENERATORS] = SimplestLevels()
    """Where new levels come from: the simplest there are (empty mazes), as published, or others."""
    replay_prob: float = 0.8
    """Probability of replaying levels rather than drawing new ones, once `min_fill` is reached."""
    staleness: float = 0.5
    """Share of the replay weight that goes to levels in proportion to how long ago they were played."""
    n_edits: int = 20
    """Edits that make a child of its parent."""
    selection: Selection = "batch"
    """Which replayed levels are mutated: all, or the n_parents with the highest (easy) or lowest (hard) return."""
    n_parents: int = 4
    """Parents of a batch of children, where they are selected."""
    n_ancestors: int = 0
    """Latest ancestors that are kept of each level, for pictures of lineages (minimax-draw). Each of them takes as much
    memory as all levels of the buffer."""

    n_listed = 0  # type: ignore[assignment]  # children are in no list

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selection not in get_args(Selection):
            raise unknown_name("runner.selection", self.selection, get_args(Selection))
        if isinstance(self.generator, FiniteList):
            raise ValueError(
                "runner.generator is 'finite', whose buffer has no room for children: choose simplest or random"
            )
        if self.n_edits < 1:
            raise ValueError(f"runner.n_edits is {self.n_edits}: it must be at least 1")
        if self.n_ancestors < 0:
            raise ValueError(f"runner.n_ancestors is {self.n_ancestors}: it must be at least 0")
        if self.parallel and self.selection != "batch":
            raise ValueError(
                f"runner.selection is {self.selection!r} with runner.parallel: children are made before the parents "
                "have been played, choose batch"
            )

    @property
    def divided(self) -> tuple[str, ...]:
        return super().divided if self.selection == "batch" else (*super().divided, "n_parents")

    def check_rows(self, n_rows: int) -> None:
        """ValueError where a batch of `n_rows` levels has too few for the parents."""
        if not 1 <= self.n_parents <= n_rows:
            raise ValueError(f"runner.n_parents is {self.n_parents}: it must be between 1 and {n_rows}")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        plr = dataclasses.replace(self.plr(env, agent, n_rows), n_ancestors=self.n_ancestors)
        mutation = Mutation(editing_of(env).mutate, self.n_edits)
        if self.parallel:
            return Parallel(plr, mutation)
        if self.selection != "batch":
            self.check_rows(n_rows)
        return ACCELCurriculum(plr, mutation, self.selection, self.n_parents)


@dataclasses.dataclass(frozen=True)
class ACCEL(RestartedRollouts, ACCELSettings):
    """ACCEL: replayed levels are mutated, and the children compete for the buffer."""

    n_students: int = 1
    """Students that play every level side by side; a teacher that is paid regret needs two."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selection != "batch":
            self.check_rows(self.levels_per_batch)
