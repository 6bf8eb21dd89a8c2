"""MAESTRO: a level buffer for each opponent (Samvelyan et al. 2023).

The paper's abstract and figure 1 say: a population of co-players, each with its own buffer of levels on which the
student's regret against it is high; the student trains on such pairs of a level and a co-player. What they leave open
is a setting here.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students
from minimax_lib.curricula.games.joint import Joining, OpponentBank, bank_metrics, booked, duel_of, game_metrics, live
from minimax_lib.curricula.level_buffer import LevelBuffer
from minimax_lib.curricula.levels.plr import PLRCurriculum, PLRSettings, PLRState
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment
from minimax_lib.opponents import bank as banks
from minimax_lib.opponents.bank import Bank
from minimax_lib.opponents.cores import FictitiousSelfPlay
from minimax_lib.trees import zeros

BOOKS = ("scores", "best_returns", "n_mutations", "ages", "fingerprints", "filled")  # a buffer without its levels


class MaestroState(struct.PyTreeNode):
    """The co-players, and the levels of each."""

    generator: Any
    buffers: LevelBuffer  # [K, C, ...]
    bank: Bank


@dataclasses.dataclass(frozen=True)
class Maestro(Curriculum):
    """Each batch is against one co-player, and PLR runs on that co-player's buffer alone.

    With probability `uniform`, the co-player is any of the bank. Otherwise it is the one in whose buffer is the highest
    score. A co-player without levels comes before all others: only then does it get some. Of equal ones, the newest.
    """

    plr: PLRCurriculum
    joining: Joining
    uniform: float
    greedy: bool = False
    seats: int = 1  # the student's, in each game

    @property
    def plan(self) -> Plan:
        return dataclasses.replace(self.plr.plan, n_opponents=1, greedy_opponents=self.greedy, student_seats=self.seats)

    def extra_env_steps(self, state: MaestroState) -> Count:
        return self.plr.generator.extra_env_steps(state.generator)

    def init(self, key: jax.Array) -> MaestroState:
        first = self.plr.init(key)
        n = self.joining.capacity
        buffers = jax.tree.map(lambda x: jnp.tile(x, (n,) + (1,) * x.ndim), first.buffer)
        return MaestroState(generator=first.generator, buffers=buffers, bank=self.joining.empty())

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: MaestroState, students: Students
    ) -> tuple[MaestroState, LevelBatch]:
        # The same split as in `Joint`: with one co-player, this is PLR against it, bit for bit.
        k_levels, k_opponents, k_coin = jax.random.split(key, 3)
        student = live(students)
        buffers = self._vacated(clock, state)
        bank = self.joining.joined(clock, state.bank, student)
        slot = self.chosen(k_opponents, k_coin, bank, buffers)
        duel = duel_of(bank, slot[None], student)
        own = PLRState(state.generator, at(buffers, slot))
        own, batch = self.plr.propose(shared_key, k_levels, clock, own, students.facing(duel))
        # A proposal leaves the buffer as it was.
        return MaestroState(own.generator, buffers, bank), batch.replace(duel=duel)

    def _vacated(self, clock: jax.Array, state: MaestroState) -> LevelBuffer:
        """The buffers after that of a co-player which leaves now is emptied: its scores are of games against it."""
        due, slot = self.joining.is_due(clock), banks.KEEP[self.joining.keep](state.bank.record)
        none = level_buffer.init(zeros(jax.eval_shape(self.plr.env.sample_level, jax.random.key(0))), self.capacity)

        def emptied(name: str) -> jax.Array:
            old = getattr(state.buffers, name)
            return old.at[slot].set(jnp.where(due, getattr(none, name), old[slot]))

        # The levels themselves may stay: an empty slot is never read.
        return state.buffers.replace(**{name: emptied(name) for name in BOOKS})

    @property
    def capacity(self) -> int:
        """C, levels of each co-player."""
        return self.plr.settings.capacity

    def chosen(self, k_any: jax.Array, k_coin: jax.Array, bank: Bank, buffers: LevelBuffer) -> jax.Array:
        """i32[], the slot of the co-player of this batch."""
        record = bank.record
        anyone = FictitiousSelfPlay(self.joining.capacity).sample(k_any, record, 1)[0]
        best = jnp.where(buffers.filled, buffers.scores, -jnp.inf).max(axis=1)
        best = jnp.where(buffers.filled.any(axis=1), best, jnp.inf)
        best = jnp.where(banks.filled(record), best, -jnp.inf)
        highest = jnp.argmax(jnp.where(best == best.max(), record.serial, banks.EMPTY)).astype(jnp.int32)
        return jnp.where(jax.random.uniform(k_coin) < self.uniform, anyone, highest)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: MaestroState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[MaestroState, dict[str, jax.Array]]:
        slot = batch.duel.slots[0]
        own = PLRState(state.generator, at(state.buffers, slot))
        own, report = self.plr.observe(key, clock, own, batch, outcome)
        buffers = jax.tree.map(lambda x, new: x.at[slot].set(new), state.buffers, own.buffer)
        games = outcome.games(batch.duel)
        bank = booked(state.bank, games)
        metrics = game_metrics(games) | bank_metrics(bank)
        metrics |= {
            "maestro/levels": axes.device_sum(buffers.filled.sum(dtype=jnp.float32)),
            "maestro/age": (bank.record.n_added - 1 - bank.record.serial[slot]).astype(jnp.float32),
        }
        return MaestroState(own.generator, buffers, bank), report | metrics


def at(buffers: LevelBuffer, slot: jax.Array) -> LevelBuffer:
    """The buffer [C, ...] of one co-player."""
    return jax.tree.map(lambda x: x[slot], buffers)


@dataclasses.dataclass(frozen=True)
class MaestroMethod(RestartedRollouts, OpponentBank):
    """MAESTRO: in games of several agents, each of the student's copies has its own level buffer."""

    levels_per_row: ClassVar[int] = 1  # type: ignore[misc]  # as in `SelfPlayMethod`

    n_opponents: int = 1
    """Opponents of a batch. Here it is 1: each batch is against one co-player."""
    plr: PLRSettings = PLRSettings(capacity=500, min_fill=0.2)
    """How levels are replayed from a co-player's buffer."""
    uniform: float = 0.1
    """Chance that any co-player is drawn. Otherwise, it is the one whose buffer has the highest score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.uniform <= 1:
            raise ValueError(f"runner.uniform is {self.uniform}: it must be between 0 and 1")
        if self.n_opponents != 1:
            raise ValueError(f"runner.n_opponents is {self.n_opponents}: with maestro it must be 1")
        if self.plr.parallel:
            raise ValueError("runner.plr.parallel is True: with maestro it must be False, as each batch is of one kind")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        seats, joining = self.seats_in(env), self.joining(env, agent)
        plr = self.plr.plr(env, agent, n_rows)
        if plr.model is not None:
            raise ValueError(
                f"runner.plr.score is {self.plr.score!r}, which has a model of its own: with maestro, where each "
                "co-player has a buffer, choose another, such as positive_value_loss"
            )
        # The settings of replay, which may be those of a fixed list, are in the curriculum that they have built.
        return Maestro(plr, joining, self.uniform, self.greedy_opponents, seats)
