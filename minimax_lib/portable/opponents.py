"""Opponents for other people's training: which copies of the student it meets.

opponents = OpponentHost("pfsp", seed=0)
opponents.add_agent(params)                       a copy of the student joins
serials = opponents.draw_opponents(n)             whom to meet in the next n games
opponents.report_games(serials, own, other)       what both sides got
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.curricula.games.joint import bank_metrics, effective_number
from minimax_lib.messages import shown
from minimax_lib.opponents import bank as banks
from minimax_lib.opponents.bank import EMPTY, LIVE, Bank, Games, Keep, Record
from minimax_lib.opponents.cores import Opponents
from minimax_lib.opponents.settings import OPPONENTS
from minimax_lib.portable.agents import Agents, serials
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.host_programs import cpu
from minimax_lib.portable.host_state import Saved, flat, sealed, settings
from minimax_lib.portable.numbers import MOST, checked, checked_count, checked_seed
from minimax_lib.registry import unknown_name

CAPACITY = 32
BLOCK = 16  # draws, and games, of one call of a compiled function
AT_LEAST = 0.5  # progress of a game that was not lost: 1 is a win, 0 a loss


class OpponentHost:
    """A curriculum of opponents outside of compiled training. They are those of `--runner selfplay`.

    `opponents` is a name (sp, fsp, delta, pfsp, mix), or one of `minimax_lib.opponents` with its settings, whose
    `n_tasks` is the capacity. The bank holds `capacity` copies of the student, and `keep` says whose place the next one
    takes. `window` is the number of latest games with a copy from which the rate of wins is taken. `agents` keeps the
    parameters.

    Draw number k depends on the seed, on k, and on the copies and games before it. Adaptors for tasks take it in the
    place of a `Host`: an opponent is a task, and its progress is 1 for a game that was won, 0.5 for a draw, 0 for a
    loss. All is computed on the CPU.
    """

    reads_scores = False
    encoding = np.zeros(1, np.int32)

    def __init__(
        self,
        opponents: Any = "fsp",
        agents: Agents | None = None,
        capacity: int | None = None,
        window: int = banks.WINDOW,
        keep: Keep = "oldest",
        seed: int = 0,
    ):
        refuse_copies()
        if agents is not None and not isinstance(agents, Agents):
            raise ValueError(f"agents is {shown(agents)}: it must be an Agents, such as Agents('copies', save, load)")
        capacity = None if capacity is None else checked_count("capacity", capacity)
        window, seed = checked_count("window", window), checked_seed(seed)
        self.core = core_for(opponents, capacity)
        if keep not in get_args(Keep):
            raise unknown_name("keep", keep, get_args(Keep))
        self.space = self.agents = Agents() if agents is None else agents
        self.keep, self.seed = keep, seed
        self.attempts: Any = None  # adaptors leave theirs here, as in a `Host`
        # The first copy is the first that is added. A `Record` of compiled training begins with one.
        first = jax.eval_shape(lambda: banks.first_record(self.core.n_tasks, window))
        empty = {"serial": EMPTY, "n_added": 0, "outcomes": banks.NONE, "n_games": 0}
        numbers: dict[str, Any] = {
            name: np.full(vars(first)[name].shape, x, vars(first)[name].dtype) for name, x in empty.items()
        }
        self._record = Record(**numbers)
        with jax.default_device(cpu()):
            self._key = jax.random.key(seed)
        self._gone: list[int] = []  # copies in memory that have left the bank; a game with them may be under way
        self._block, self._n_used = np.zeros(0, np.int32), 0
        self.n_drawn, self.n_told = 0, {"results": 0}

    @property
    def n_added(self) -> int:
        """Copies that have ever joined. The newest has the serial n_added - 1."""
        return int(self._record.n_added)

    @property
    def serials(self) -> np.ndarray:
        """i32[n], the copies in the bank, the oldest first."""
        there = np.asarray(self._record.serial)
        return np.sort(there[there != EMPTY])

    def add_agent(self, params: Any) -> int:
        """A copy of the student joins the bank: its parameters, or the path of a file with them. Its serial.

        The student as it is now is this one too, until `update_student` says otherwise.
        """
        serial = self.n_added
        self.agents.keep(serial, params)
        if self.core.live_share > 0:
            self.update_student(params)
        before = self.serials
        self._record = jax.device_get(joined(self.keep, self._record))
        self._forget_block()
        if self.agents.in_memory:
            # An environment may still be about to meet one that has just left, so as many are kept as there are slots.
            self._gone += [old for old in before.tolist() if old not in self.serials]
            while len(self._gone) > self.core.n_tasks:
                self.agents.drop(self._gone.pop(0))
        return serial

    def update_student(self, params: Any) -> None:
        """The student as it is now, for opponents that are LIVE (-1). Parameters or a path, as in `add_agent`."""
        self.agents.keep(LIVE, params)

    def draw_opponents(self, n: int) -> np.ndarray:
        """i32[n], the serials of the next opponents; LIVE, -1: the student as it is now."""
        n = int(checked("n", n, (), 0, MOST, whole=True))
        if self.core.live_share < 1 and not self.n_added:
            raise ValueError("no copy of the student has joined: call add_agent before the first draw")
        parts = []
        while n:
            if self._n_used == len(self._block):
                self._block, self._n_used = self._drawn(BLOCK), 0
            part = self._block[self._n_used : self._n_used + n]
            parts.append(part)
            self._n_used, self.n_drawn, n = self._n_used + len(part), self.n_drawn + len(part), n - len(part)
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def agent(self, serial: int) -> Any:
        """What the trainer's `load` gives of this copy."""
        return self.agents.decode(serial)

    def report_games(self, serial: Any, student_return: Any, opponent_return: Any) -> None:
        """These games [M] have ended, in this order. Returns are undiscounted, of the whole episode.

        The student has won where its return is the higher one. Games with a copy that has left the bank do not count,
        nor do those with the student itself. ValueError for a copy that never was.
        """
        serial = serials(serial)
        if serial.size and not LIVE <= serial.min() <= serial.max() < self.n_added:
            wrong = serial[(serial < LIVE) | (serial >= self.n_added)][0]
            raise ValueError(f"a game with copy {wrong} was reported: they are 0 to {self.n_added - 1}, or {LIVE}")
        own = np.broadcast_to(checked("student_return", student_return, serial.shape), serial.shape)
        other = np.broadcast_to(checked("opponent_return", opponent_return, serial.shape), serial.shape)
        self.n_told["results"] += len(serial)
        for first in range(0, len(serial), BLOCK):
            rows = slice(first, first + BLOCK)
            self._record = jax.device_get(booked(self._record, *padded(serial[rows], own[rows], other[rows])))
            self._forget_block()

    def win_rates(self, draw: float = 0.5) -> dict[int, float]:
        """The student's rate of wins against each copy in the bank that it has met. A draw counts as `draw` of one."""
        rates, met = jax.device_get(rates_of(draw, self._record))
        found = zip(self._record.serial.tolist(), rates.tolist(), met.tolist(), strict=True)
        return dict(sorted((serial, rate) for serial, rate, was_met in found if was_met))

    def n_games(self) -> dict[int, int]:
        """Games ever with each copy in the bank."""
        found = zip(self._record.serial.tolist(), self._record.n_games.tolist(), strict=True)
        return dict(sorted((serial, n) for serial, n in found if serial != EMPTY))

    def weights(self) -> dict[int, float]:
        """The share of the draws that each copy in the bank has. LIVE has the rest."""
        found = zip(self._record.serial.tolist(), np.asarray(weights_of(self.core, self._record)).tolist(), strict=True)
        return dict(sorted((serial, share) for serial, share in found if serial != EMPTY))

    def metrics(self) -> dict[str, float]:
        """Numbers for the trainer's log, by the names of compiled training."""
        return {name: float(x) for name, x in metrics_of(self.core, self._record).items()}

    # What adaptors for tasks call.

    def draw(self, n: int) -> np.ndarray:
        """`draw_opponents`, by the name that adaptors for tasks use."""
        return self.draw_opponents(n)

    def decode(self, tasks: Any) -> list[Any]:
        """The copies that these serials [n] stand for."""
        return [self.agents.decode(serial) for serial in tasks]

    def report(self, task: Any, progress: Any, *others: Any, **named: Any) -> None:
        """Games [M] by their progress: 1 for a win, 0.5 for a draw, 0 for a loss."""
        task = serials(task)
        self.report_games(task, checked("progress", progress, task.shape, 0, 1), AT_LEAST)

    def evaluation(self, tasks: Any = None, seed: int = 0) -> EvaluationHost:
        """See `Host.evaluation`. The opponents are `tasks`, or all copies that are in the bank now, in turns."""
        return EvaluationHost(self.agents, self.serials if tasks is None else serials(tasks), seed)

    # Saving

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that a later draw depends on, as NumPy arrays by name. Copies in memory are part of it.

        ValueError if they are in memory and nothing was given to save them with.
        """
        counts = {"drawn": np.array(self.n_drawn), "games": np.array(self.n_told["results"])}
        arrays = flat("record", self._record) | flat("n", counts)
        if self.agents.in_memory:
            if self.n_added and not self.agents.as_bytes:
                raise ValueError("the copies cannot be saved: give Agents `save` and `load`, or a folder too")
            for serial in self.serials.tolist():
                arrays[f"agents[{serial}]"] = np.frombuffer(self.agents.content(serial), np.uint8)
        return sealed(self._settings(), arrays)

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`. ValueError in one line if the settings are others, or the state is damaged.

        The student as it is now is no part of a state: where it is an opponent, call `update_student`.
        """
        self.restored(arrays)()

    def restored(self, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """As `load_state_dict`, but changes nothing: the function goes on from the state."""
        saved = Saved(arrays, self._settings())
        record, n_drawn = saved.take("record", self._record), saved.count("n['drawn']")
        n_games = saved.count("n['games']")
        there = [int(serial) for serial in record.serial if serial != EMPTY]
        contents = {serial: saved.content(f"agents[{serial}]") for serial in there} if self.agents.in_memory else {}
        saved.done()
        for serial in there:
            if not self.agents.in_memory and not self.agents.has(serial):
                raise ValueError(f"copy {serial} of the saved state is not in {self.agents.folder}: give its folder")

        def go_on() -> None:
            for serial, content in contents.items():
                self.agents.put(serial, content)
            self._record, self.n_drawn, self._gone = record, n_drawn, []
            self.n_told = {"results": n_games}
            self._forget_block()

        return go_on

    def _settings(self) -> dict[str, str]:
        own = {"keep": self.keep, "seed": repr(self.seed), "window": repr(self._record.outcomes.shape[1])}
        return settings("opponents", self.core) | own | {"in_memory": repr(self.agents.in_memory)}

    def _drawn(self, n: int) -> np.ndarray:
        """i32[n], the serials of the next draws from the bank as it is now."""
        numbers = np.arange(self.n_drawn, self.n_drawn + n) % 2**32
        slots = np.asarray(slots_of(self.core, self._keys(numbers.astype(np.uint32)), self._record))
        return np.where(slots == LIVE, LIVE, self._record.serial[slots]).astype(np.int32)

    def _keys(self, numbers: np.ndarray) -> jax.Array:
        """key[n], of the draws with these numbers."""
        return keys_of(self._key, numbers)

    def _forget_block(self) -> None:
        self._block, self._n_used = np.zeros(0, np.int32), 0


def core_for(opponents: Any, capacity: int | None) -> Opponents:
    """The opponents of this name in a bank of `capacity` slots, or `opponents` themselves."""
    if isinstance(opponents, str):
        known = OPPONENTS[opponents]
        return known().build(CAPACITY if capacity is None else capacity)
    if not (isinstance(opponents, Opponents) and dataclasses.is_dataclass(opponents)):
        names = ", ".join(OPPONENTS.names())
        raise ValueError(f"opponents is {shown(opponents)}: it must be one of `minimax_lib.opponents`, or {names}")
    if capacity not in (None, opponents.n_tasks):
        raise ValueError(f"capacity is {capacity}, and the opponents have {opponents.n_tasks} slots: leave it out")
    return opponents


def padded(serial: np.ndarray, own: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same games as arrays of one length, so that one compiled function serves all. LIVE games never count."""
    room = BLOCK - len(serial)
    numbers = (np.pad(x, (0, room)) for x in (own, other))
    return np.pad(serial, (0, room), constant_values=LIVE), *numbers


@functools.partial(jax.jit, static_argnums=0)
def slots_of(core: Any, keys: jax.Array, record: Record) -> jax.Array:
    """i32[n], the slots of the draws with these keys [n]."""
    return jax.vmap(lambda key: core.sample(key, record, 1)[0])(keys)


@jax.jit
def keys_of(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """key[n], of the draws with these numbers."""
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


@functools.partial(jax.jit, static_argnums=0)
def joined(keep: Keep, record: Record) -> Record:
    """The record after one more copy has joined."""
    return banks.add(Bank((), record), (), keep).record


@jax.jit
def booked(record: Record, serial: jax.Array, own: jax.Array, other: jax.Array) -> Record:
    """The record after games [M] against the copies with these serials."""
    is_there = (serial[:, None] == record.serial[None]) & (serial[:, None] != EMPTY)
    slot = jnp.where(is_there.any(axis=1), jnp.argmax(is_there, axis=1), LIVE).astype(jnp.int32)
    return banks.book(record, Games(slot, serial, own, other, jnp.ones(len(slot), bool)))


@functools.partial(jax.jit, static_argnums=0)
def rates_of(draw: float, record: Record) -> tuple[jax.Array, jax.Array]:
    """See `win_rates` of the bank."""
    return banks.win_rates(record, draw)


@functools.partial(jax.jit, static_argnums=0)
def weights_of(core: Any, record: Record) -> jax.Array:
    """f32[K]"""
    return core.weights(record)


@functools.partial(jax.jit, static_argnums=0)
def metrics_of(core: Any, record: Record) -> dict[str, jax.Array]:
    """The metrics of the bank."""
    return bank_metrics(Bank((), record)) | {"opponents/effective": effective_number(core.weights(record))}
