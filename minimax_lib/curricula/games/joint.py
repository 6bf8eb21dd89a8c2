"""Curricula over levels and opponents at once: any curriculum of levels, and any of opponents, drawn independently."""

import dataclasses
import math
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import divisor
from minimax_lib.counts import Count
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students
from minimax_lib.curricula.levels.designed import Teacher
from minimax_lib.curricula.levels.dr import RandomLevels
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment
from minimax_lib.envs.restarts import QueuedLevels
from minimax_lib.opponents import bank as banks
from minimax_lib.opponents.bank import Bank, Games, Keep
from minimax_lib.opponents.cores import Opponents, SelfPlay
from minimax_lib.opponents.duel import Duel, check_seats
from minimax_lib.opponents.settings import OPPONENTS, FictitiousSelfPlaySettings
from minimax_lib.trees import tree_where


@dataclasses.dataclass(frozen=True)
class Joining:
    """When copies of the student join the bank, and whose place they take."""

    params: Any  # the student's, as `ShapeDtypeStruct`s
    capacity: int
    every: int
    window: int = banks.WINDOW
    keep: Keep = "oldest"

    def empty(self) -> Bank:
        """The bank before the first step, which puts the student as it begins into slot 0."""
        # Not `banks.init`, which writes the first copy into zeros. Here the copy is zeros too, and XLA would compute it
        # all while it compiles: that took minutes.
        slots = jax.tree.map(lambda x: jnp.zeros((self.capacity, *x.shape), x.dtype), self.params)
        record = banks.first_record(self.capacity, self.window)
        none = jnp.full(self.capacity, banks.EMPTY, jnp.int32)
        return Bank(slots, record.replace(serial=none, n_added=jnp.zeros((), jnp.int32)))

    def is_due(self, clock: jax.Array) -> jax.Array:
        """bool[], a copy joins before this step; the same on every seed, for it depends on the clock alone."""
        return axes.common(clock) % self.every == 0

    def joined(self, clock: jax.Array, bank: Bank, student: Any) -> Bank:
        """The bank after a copy of `student` has joined it, where one is due."""
        due, slot = self.is_due(clock), banks.KEEP[self.keep](bank.record)
        # One slot is written in any case, with what it holds if no copy is due. A branch would have to copy all of
        # them.
        params = jax.tree.map(lambda x, new: x.at[slot].set(jnp.where(due, new, x[slot])), bank.params, student)
        added = banks.add(Bank((), bank.record), (), self.keep)
        return Bank(params, tree_where(due, added.record, bank.record))


class JointState(struct.PyTreeNode):
    """What both curricula remember. The bank is the same on every device."""

    levels: Any
    bank: Bank


@dataclasses.dataclass(frozen=True)
class Joint(Curriculum):
    """Levels from one curriculum, opponents from another. Neither knows of the other.

    The curriculum of levels sees the outcome as ever: its scores are the student's, against whoever it has met.
    """

    levels: Curriculum
    opponents: Opponents
    joining: Joining
    n_opponents: int
    greedy: bool = False
    seats: int = 1  # the student's, in each game
    scripted: float = 0.0  # chance that an opponent is the environment's written player

    @property
    def plan(self) -> Plan:
        return dataclasses.replace(
            self.levels.plan,
            n_opponents=self.n_opponents,
            greedy_opponents=self.greedy,
            student_seats=self.seats,
            scripted_opponents=self.scripted > 0,
        )

    def extra_env_steps(self, state: JointState) -> Count:
        return self.levels.extra_env_steps(state.levels)

    def init(self, key: jax.Array) -> JointState:
        return JointState(levels=self.levels.init(key), bank=self.joining.empty())

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: JointState, students: Students
    ) -> tuple[JointState, LevelBatch]:
        k_levels, k_opponents, k_scripted = jax.random.split(key, 3)
        student = live(students)
        bank = self.joining.joined(clock, state.bank, student)
        slots = self.opponents.sample(k_opponents, bank.record, self.n_opponents)
        if self.scripted > 0:
            slots = jnp.where(jax.random.bernoulli(k_scripted, self.scripted, slots.shape), banks.SCRIPT, slots)
        duel = duel_of(bank, slots, student)
        levels, batch = self.levels.propose(shared_key, k_levels, clock, state.levels, students.facing(duel))
        return JointState(levels, bank), batch.replace(duel=duel)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: JointState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[JointState, dict[str, jax.Array]]:
        levels, report = self.levels.observe(key, clock, state.levels, batch, outcome)
        games = outcome.games(batch.duel)
        bank = booked(state.bank, games)
        metrics = game_metrics(games) | bank_metrics(bank)
        metrics |= {"opponents/effective": effective_number(self.opponents.weights(bank.record))}
        if self.scripted > 0:
            metrics |= script_metrics(games)
        return JointState(levels, bank), report | metrics


def live(students: Students) -> Any:
    """The parameters of the one student."""
    return jax.tree.map(lambda x: x[0], students.params)


def duel_of(bank: Bank, slots: jax.Array, student: Any) -> Duel:
    """The opponents in these slots (i32[P]) of the bank."""
    there = slots >= 0
    serials = jnp.where(there, bank.record.serial[jnp.maximum(slots, 0)], banks.EMPTY)
    return Duel(slots=slots, serials=serials, params=banks.parameters_at(bank, slots, student))


def booked(bank: Bank, games: Games) -> Bank:
    """The bank after the games of all devices."""
    return bank.replace(record=banks.book(bank.record, axes.all_devices(games, 0)))


def game_metrics(games: Games) -> dict[str, jax.Array]:
    """How the student fared in a batch. NaN where no game has ended."""
    mine, theirs = games.student_return, games.opponent_return
    return {
        "games/won": axes.mean_where(games.valid, (mine > theirs).astype(jnp.float32)),
        "games/drawn": axes.mean_where(games.valid, (mine == theirs).astype(jnp.float32)),
        "games/ended": axes.device_sum(games.valid.sum(dtype=jnp.float32)),
        "games/live": axes.mean_where(games.valid, (games.slot == banks.LIVE).astype(jnp.float32)),
    }


def script_metrics(games: Games) -> dict[str, jax.Array]:
    """How the student fared against the written player in a batch. NaN where no game against it has ended."""
    scripted = games.valid & (games.slot == banks.SCRIPT)
    won = games.student_return > games.opponent_return
    return {
        "games/scripted": axes.mean_where(games.valid, scripted.astype(jnp.float32)),
        "games/scripted_won": axes.mean_where(scripted, won.astype(jnp.float32)),
    }


def effective_number(weights: jax.Array) -> jax.Array:
    """f32[]: the number of copies that would have this entropy if all had the same weight; 0 where none is drawn."""
    total = weights.sum()  # below 1 where some games are against no copy
    weights = weights / jnp.where(total > 0, total, 1.0)
    entropy = -jnp.where(weights > 0, weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), 0.0).sum()
    return jnp.where(total > 0, jnp.exp(entropy), 0.0)


def bank_metrics(bank: Bank) -> dict[str, jax.Array]:
    """What the bank holds, and how the student fares against it."""
    there = banks.filled(bank.record)
    rates, met = banks.win_rates(bank.record)
    oldest = jnp.argmin(jnp.where(met, bank.record.serial, jnp.iinfo(jnp.int32).max))
    newest = jnp.argmax(jnp.where(met, bank.record.serial, banks.EMPTY))
    known = {
        "opponents/lowest_win_rate": jnp.where(met, rates, jnp.inf).min(),
        "opponents/oldest_win_rate": rates[oldest],
        "opponents/newest_win_rate": rates[newest],
    }
    return {
        "opponents/copies": there.sum(dtype=jnp.float32),
        "opponents/win_rate": jnp.where(met, rates, 0.0).sum() / met.sum(dtype=jnp.float32),
    } | {name: jnp.where(met.any(), rate, jnp.nan) for name, rate in known.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpponentBank:
    """The settings of a bank of opponents; a mixin."""

    n_opponents: int = 4
    """Opponents of a batch. Each plays an equal part of the rows. 1 is the fastest."""
    capacity: int = 32
    """Copies of the student in the bank."""
    every: int = 100
    """Batches from one copy of the student to the next: steps of the runner's clock, also those that only score."""
    window: int = banks.WINDOW
    """Latest games against each copy from which its rate of wins is taken."""
    keep: Keep = "oldest"
    """The copy that leaves a full bank when one joins. oldest: the oldest one. spread: one of them, so that the ages of
    the others stay roughly geometric; the first copy stays."""
    greedy_opponents: bool = False
    """Opponents take their most likely action. Otherwise they sample, as the student does."""
    seats: int | None = None
    """Seats of a game that the student plays; copies have the others. None: one of two, and of more seats seven of
    eight, as in Meta MMO (112 of 128). Teams stay together."""

    def __post_init__(self) -> None:
        for name in ("n_opponents", "capacity", "every", "window"):
            if getattr(self, name) < 1:
                raise ValueError(f"runner.{name} is {getattr(self, name)}: it must be at least 1")
        getattr(super(), "__post_init__", lambda: None)()

    def joining(self, env: Environment, agent: AgentPop) -> Joining:
        """When the students of `agent` join the bank."""
        params = jax.eval_shape(lambda key: first_params(key, env, agent), jax.random.key(0))
        return Joining(params, self.capacity, self.every, self.window, self.keep)

    def seats_in(self, env: Any) -> int:
        """The student's seats of a game; ValueError where there is none for an opponent."""
        size = env.team_size if env.multi_agent else 1
        n_teams = env.n_agents // size if env.multi_agent else 1
        seats = (n_teams - math.ceil(n_teams / 8)) * size if self.seats is None else self.seats
        check_seats(env, seats, "runner.seats")
        return seats

    def check_rows(self, n_rows: int) -> None:
        """ValueError where `n_rows` rows cannot be divided among the opponents."""
        if n_rows % self.n_opponents:
            raise ValueError(
                f"runner.n_opponents is {self.n_opponents}: it must divide the {n_rows} rows "
                f"(try {divisor(n_rows, self.n_opponents)})"
            )


def first_params(key: jax.Array, env: Any, agent: AgentPop) -> Any:
    """The parameters of one student before it has learnt anything."""
    k_level, k_reset, k_student = jax.random.split(key, 3)
    _, ts = env.reset(k_reset, env.sample_level(k_level))
    return agent.agent.init(k_student, jax.tree.map(lambda x: x[0], ts.obs)).params


@dataclasses.dataclass(frozen=True)
class SelfPlayMethod(RestartedRollouts, OpponentBank):
    """Games of several agents: levels from one curriculum, opponents from a bank of the student's own copies."""

    levels_per_row: ClassVar[int] = 1  # type: ignore[misc]  # each row has an opponent, chosen together with its level

    levels: Annotated[Any, GENERATORS] = RandomLevels()
    """The curriculum of levels."""
    opponents: Annotated[Any, OPPONENTS] = FictitiousSelfPlaySettings()
    """Which copies the student meets."""
    scripted: float = 0.0
    """Chance that an opponent of a batch is the environment's written player, and not a copy. Its games count for no
    copy's rate of wins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.scripted <= 1:
            raise ValueError(f"runner.scripted is {self.scripted}: it must be between 0 and 1")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        seats = self.seats_in(env)
        if isinstance(self.levels, Teacher):  # it learns after every batch, and its schedule must end with the run
            levels = self.levels.build(env, agent, n_rows, self.n_rollouts(env.max_steps))
        else:
            levels = self.levels.build(env, agent, n_rows)
        if isinstance(levels.plan.restart, QueuedLevels):
            raise ValueError(
                f"runner.levels is {GENERATORS.name_of(type(self.levels))!r}: with opponents, all games of a batch "
                "begin together, so that no level can come from a queue"
            )
        opponents = self.opponents.build(self.capacity)
        if self.scripted > 0 and env.bot is None:
            raise ValueError(
                f"runner.scripted is {self.scripted}: {type(env).__name__} has no written player with these settings, "
                "so it must be 0"
            )
        # Copies of the present student are all the same: one product for all rows.
        n = 1 if isinstance(opponents, SelfPlay) and not self.scripted else self.n_opponents
        # Where levels are scored by episodes of their own, these are games too.
        for rows_per_level in {self.n_evals, getattr(self.levels, "n_episodes", self.n_evals)}:
            dataclasses.replace(self, n_opponents=n).check_rows(levels.plan.n_rows * rows_per_level)
        joining = self.joining(env, agent)
        return Joint(levels, opponents, joining, n, self.greedy_opponents, seats, self.scripted)
