"""A task curriculum for other people's training.

host = Host(core, seed=0)
tasks = host.draw(n)                             what to play next
host.report(tasks, progress, returns, length)    what became of it
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.attempts import AttemptLedger
from minimax_lib.portable.encodings import as_arrays, blank, copied, joined, n_rows, rows_of, write
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.host_programs import ReadsMetrics
from minimax_lib.portable.host_state import Saved, flat, sealed, settings
from minimax_lib.portable.log import TaskLog, log_of
from minimax_lib.portable.numbers import MOST, checked, checked_logits, checked_scores, checked_tasks
from minimax_lib.portable.scoring import PlayedSteps, Scoring
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import Settles, episodes_needed
from minimax_lib.tasks.manual import Manual
from minimax_lib.tasks.spaces import TaskSpace

SCORING = Scoring()
PATIENCE = 1000  # draws, after which a warning says what the core has never been told
ROLLOUT = 128  # steps of one that is made of single steps with values


class Host:
    """A task curriculum outside of compiled training: it draws tasks, and is told what became of them.

    Draw number k depends on the seed, on k, and on what was reported before it. It does not depend on how many are
    asked for together, nor on `draw_ahead`, the most that are drawn at once. Results wait until there are `flush` of
    them, or until a draw that they could change. All is computed on the CPU.

    With `together`, the tasks that are drawn at once are drawn from one state, as the compiled loop draws those of a
    rollout. This is cheaper for curricula that read how long ago each task was begun. But ages stand still between
    these draws, and the sequence depends on `draw_ahead`.

    `log` is the file of a table of what becomes of each task, which `minimax-plot` draws (`TaskLog`).
    """

    def __init__(
        self,
        core: Any,
        space: TaskSpace | None = None,
        seed: int = 0,
        scoring: Scoring = SCORING,
        draw_ahead: int | None = None,
        flush: int = 64,
        together: bool = False,
        log: str | Path | TaskLog | None = None,
    ):
        refuse_copies()
        core = programs.core_for(core, space)
        self.core, self.seed, self.scoring = core, seed, scoring
        self.reads = programs.reads_of(core)
        self.space = programs.fitting_space(core, space, self.reads.encoding)
        if together and isinstance(core, Manual):
            raise ValueError("together is True: a queue (Manual) gives one task after another")
        # If no attempt that begins changes the state, no draw depends on those before it.
        self._together = together or not self.reads.starts
        # A block of draws is soon out of date, or each draw in it takes its time.
        self._unsettled = self.reads.results and not isinstance(core, Settles)
        self._draw_ahead = (16 if self._unsettled or self.reads.starts else 256) if draw_ahead is None else draw_ahead
        for name, value in (("draw_ahead", self._draw_ahead), ("flush", flush)):
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        with jax.default_device(self.device):
            k_init, k_draws = jax.random.split(jax.random.key(seed))
        self._key = jax.device_put(k_draws, self.device)
        self._state = programs.begin(core, jax.device_put(k_init, self.device))
        self._quiet: int | None = None  # results that may wait without changing a draw, where it is known
        self._waiting, self._n_waiting = programs.blank_waiting(self.reads, flush), 0
        self.n_drawn = self._n_used = 0
        self._forget_block()
        self.attempts: AttemptLedger | None = None  # of the rows that `report_rollout` and `report_steps` tell of
        self.n_told = dict.fromkeys(("results", "scores", "rates", "metrics"), 0)
        self._patient = True
        self.log = log_of(log, self, self.space)

    @property
    def device(self) -> Any:
        """The device that computes all of this."""
        return programs.cpu()

    @property
    def encoding(self) -> Any:
        """The form of one encoding, [1, ...]."""
        return self.reads.encoding

    @property
    def reads_scores(self) -> bool:
        """Whether scores change anything."""
        return "score" in self.reads.fields

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next tasks. Attempts on them count as begun."""
        n = int(checked("n", n, (), 0, MOST, whole=True))
        if self._patient and self.n_drawn >= PATIENCE:
            self._patient = False  # what has arrived by now cannot be missing later
            if missing := self.missing():
                warnings.warn(missing, stacklevel=2)
        if isinstance(self.core, Manual):  # in the compiled loop, an empty queue repeats its last task
            programs.check_queue(n, int(self._now().count))
        if self._n_waiting > self._n_quiet():
            self._flush()
        parts = [blank(self.encoding, 0)]
        while n:
            if self._n_used == n_rows(self._block):
                self._draw_block(n)
            taken = min(n, n_rows(self._block) - self._n_used)
            parts.append(rows_of(self._block, slice(self._n_used, self._n_used + taken)))
            self._n_used, self.n_drawn, n = self._n_used + taken, self.n_drawn + taken, n - taken
        return joined(parts)

    def decode(self, tasks: Any) -> list[Any]:
        """The tasks that an environment takes, of encodings [n, ...]."""
        return [self.space.decode(rows_of(tasks, i)) for i in range(n_rows(tasks))]

    def evaluation(self, tasks: Any = None, seed: int = 0) -> EvaluationHost:
        """The `EvaluationHost` that takes the place of this Host in an adaptor whose environments only evaluate."""
        return EvaluationHost(self.space, tasks, seed)

    def report(
        self,
        task: Any,
        progress: Any = None,
        returns: Any = None,
        length: Any = None,
        episode: Any = True,
        episode_return: Any = None,
        score: Any = None,
    ) -> None:
        """These attempts [M] have ended, in this order.

        `progress` is 1 where the task is solved, `returns` are undiscounted, `length` counts steps. `episode` says
        whether the episode has ended too, and `episode_return` is its return, by default the attempt's. `score` is the
        mean of a quantity over the attempt's steps, and NaN where there is none. ValueError where something is left out
        that the core reads, or where a number is wrong.
        """
        task = self._checked(task)
        m = (n_rows(task),)
        numbers: dict[str, Any] = {
            "progress": (progress, 0, 1, False),
            "returns": (returns, -np.inf, np.inf, False),
            "length": (length, 0, MOST, True),
            "episode": (episode, 0, 1, True),
            "episode_return": (returns if episode_return is None else episode_return, -np.inf, np.inf, False),
        }
        given: dict[str, Any] = {"valid": True}
        for name, (value, *bounds) in numbers.items():
            if value is not None:
                given[name] = checked(name, value, m, *bounds)
            elif name in self.reads.fields:
                raise ValueError(f"{type(self.core).__name__} reads the {name} of attempts: give report `{name}`")
        score = None if score is None else checked_scores("score", score, m)
        self.n_told["results"] += m[0]
        if self.log is not None:
            self.log.add(task, given, self.n_drawn, self.weights)
        self._tell(task, given, score)

    def report_scores(self, task: Any, score: Any) -> None:
        """Numbers [M] of the trainer, whatever they are, as the scores of these tasks, in this order."""
        nothing = dict.fromkeys(("valid", "progress", "returns", "length", "episode", "episode_return"), 0)
        task = self._checked(task)
        self._tell(task, nothing, checked("score", score, (n_rows(task),)))

    def report_rollout(
        self, task: Any, reward: Any, value: Any, done: Any, last_value: Any, counts: Any = None, logits: Any = None
    ) -> None:
        """Scores of the attempts that have ended in T steps of B rows, from the trainer's own values. All are [T, B].

        `done[t]`: the attempt on `task[t]` ended with action t. (In many trainers, the flag of step t says that
        observation t opens an episode. That is one step later.) `last_value` [B] is of the observation after the last
        action. `counts` is False where a step only opened an episode. `logits` [T, B, n] are for the scores that need
        them. A trainer that bootstraps at a time limit adds the discounted value to the reward there. Only scores are
        told of: that an attempt has ended is told by `report`. An attempt that goes on is scored when it ends, in a
        later rollout; `give_up` says that it never will.
        """
        if not self.reads_scores:
            return
        numbers = {"reward": reward, "value": value, "last_value": last_value}
        x: dict[str, Any] = {name: checked(name, number) for name, number in numbers.items()}
        done = np.asarray(done, bool)
        x |= {"done": done, "counts": np.asarray(np.ones(done.shape, bool) if counts is None else counts, bool)}
        x["logits"] = None if logits is None else checked_logits(logits)
        task = as_arrays(task, self.encoding)
        rows = self._rows(done.shape[-1] if done.ndim else 1)
        self.report_scores(*rows.scores(self.scoring, task, PlayedSteps(**x), self.device))

    def report_steps(self, task: Any, reward: Any, done: Any, progress: Any = None, value: Any = None) -> None:
        """One step of B rows, for a trainer without an adaptor: an attempt is reported where it ends.

        `done`: the attempt on `task` ended with this step. Only there, `progress` is read. Scores are made of `value`,
        of the observation before the step. A row that begins anew without such an end must be told by `give_up`.
        """
        done, task = np.asarray(done, bool), self._checked(task)
        b = done.shape
        if self.attempts is not None and self.attempts.n != len(done):
            raise ValueError(f"report_steps is told of {len(done)} rows, and before of {self.attempts.n}")
        reward = checked("reward", reward, b)
        at_end = None if progress is None else checked("progress", np.asarray(progress)[done], None, 0, 1)
        value = None if value is None or not self.reads_scores else checked("value", value, b)
        rows = self._rows(len(done))
        rows.begin(~rows.is_open)
        if value is not None:
            if rows.n_kept == ROLLOUT:
                tasks, dones, rewards, values = rows.take(ROLLOUT)
                self.report_rollout(tasks, rewards, values, dones, value)
            rows.keep(task, done, np.broadcast_to(reward, b), np.broadcast_to(value, b))
        rows.step(reward)
        if done.any():
            self.report(rows_of(task, done), at_end, **rows.end(done))

    def give_up(self, rows: Any = None) -> None:
        """The attempts under way on `rows` (bool[B]; all) are given up, and begin anew: what they were is not told."""
        if self.attempts is not None:
            given = np.ones(self.attempts.n, bool) if rows is None else np.asarray(rows)
            if given.shape != (self.attempts.n,) or given.dtype != bool:
                raise ValueError(f"rows is {given.dtype}{list(given.shape)}: it must be bool[{self.attempts.n}]")
            # `report_rollout` tells of attempts that it has never seen begin.
            self.attempts.is_open |= given
            self.attempts.begin(given)

    def report_metrics(self, numbers: Mapping[str, float]) -> None:
        """Numbers of the trainer that the core reads, by name."""
        core = self.core
        if not isinstance(core, ReadsMetrics):
            raise ValueError(f"{type(core).__name__} reads no metrics, and was told {', '.join(numbers)}")
        for name in numbers:
            if name not in core.reads_metrics:
                raise unknown_name(f"metric of {type(core).__name__}", name, core.reads_metrics)
        given = {name: checked(name, number, ())[()] for name, number in numbers.items()}
        self.n_told["metrics"] += 1
        self.change(lambda state: programs.measured(core, state, given))

    def evaluated(self, rates: Any, known: Any = None) -> None:
        """An evaluation of the student has given these rates of success [N]. `known`: which tasks were tried; all."""
        if not episodes_needed(self.core):
            raise ValueError(f"{type(self.core).__name__} reads no rates of an evaluation")
        rates = np.asarray(rates, np.float32)
        known = np.ones(rates.shape, bool) if known is None else np.asarray(known, bool)
        if rates.shape != (self.space.n,) or known.shape != rates.shape:
            raise ValueError(f"rates are {list(rates.shape)}, known {list(known.shape)}: both must be [{self.space.n}]")
        if not ((rates >= 0) & (rates <= 1))[known].all():
            raise ValueError("a rate is out of range: rates of success are between 0 and 1")
        self.n_told["rates"] += 1
        rates = np.where(known, rates, np.float32(0))
        self.change(lambda state: programs.evaluated(self.core, state, rates, known))

    def change(self, function: Callable[[Any], Any]) -> None:
        """Puts `function(state)` in the place of the core's state: for what a core offers beside the calls above."""
        self._flush()
        self._state, self._quiet = jax.device_put(function(self._state), self.device), None

    def weights(self) -> np.ndarray | None:
        """f32[N], the tasks' shares as they are now; none where the core has no list of them."""
        found = programs.weights(self.core, self._now())
        return None if found is None else np.asarray(found)

    def metrics(self) -> dict[str, float]:
        """The core's metrics, for the trainer's log."""
        return {name: float(x) for name, x in programs.report(self.core, self._now()).items()}

    def missing(self) -> str | None:
        """In one line, what the core reads and was never told; None if there is nothing."""
        reads = {
            "results": (self.reads.results, "results (call report)"),
            "scores": (self.core.reads_scores, "scores (call report_rollout, report_scores, or report with `score`)"),
            "rates": (episodes_needed(self.core) > 0, "rates of success (call evaluated)"),
            "metrics": (isinstance(self.core, ReadsMetrics), "metrics (call report_metrics)"),
        }
        never = [words for name, (needed, words) in reads.items() if needed and not self.n_told[name]]
        if not never:
            return None
        return f"{self.n_drawn} tasks were drawn, and {type(self.core).__name__} was never told {' or '.join(never)}"

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that a later draw depends on, as NumPy arrays by name: for `numpy.savez(file, **host.state_dict())`.

        Attempts under way are not part of it: they cannot go on elsewhere.
        """
        if self.log is not None:
            self.log.write()
        counts = {"drawn": np.array(self.n_drawn), "waiting": np.array(self._n_waiting)}
        arrays = flat("core", self._begun()) | flat("waiting", self._waiting) | flat("n", counts)
        return sealed(self._settings(), arrays | flat("told", self.n_told))

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`. Attempts under way are begun anew.

        ValueError in one line if the settings are others, or the state is damaged. Then nothing has changed.
        """
        saved = Saved(arrays, self._settings())
        state, waiting = saved.take("core", self._state), saved.take("waiting", self._waiting)
        n_waiting = saved.count("n['waiting']", n_rows(self._waiting["task"]))
        n_drawn = saved.count("n['drawn']")
        told = {name: saved.count(f"told['{name}']") for name in self.n_told}
        saved.done()
        self._state, self._quiet = jax.device_put(state, self.device), None
        self._waiting, self._n_waiting = jax.tree.map(np.array, waiting), n_waiting
        self.n_drawn, self.n_told, self.attempts = n_drawn, told, None
        self._forget_block()
        if self.log is not None:
            self.log.go_on(n_drawn)

    def _settings(self) -> dict[str, str]:
        known = settings("core", self.core) | settings("space", self.space) | settings("scoring", self.scoring)
        is_shared = self._together and self.reads.starts
        together = f"True, {self._draw_ahead} at once" if is_shared else "False"
        return known | {"seed": repr(self.seed), "flush": repr(n_rows(self._waiting["task"])), "together": together}

    def _rows(self, n: int) -> AttemptLedger:
        """The attempts of `n` rows. Those of another number of rows are forgotten."""
        if self.attempts is None or self.attempts.n != n:
            self.attempts = AttemptLedger(n)
        return self.attempts

    def _tell(self, task: Any, given: dict[str, Any], score: Any) -> None:
        """Results without a score are left out where they change nothing."""
        if score is not None:
            self.n_told["scores"] += n_rows(task)
        if not (self.reads.results if score is None else self.reads.fields):
            return
        given["score"], given["task"] = np.nan if score is None else score, task
        first, n, size = 0, n_rows(task), n_rows(self._waiting["task"])
        while first < n:
            taken = min(n - first, size - self._n_waiting)
            ours, theirs = slice(self._n_waiting, self._n_waiting + taken), slice(first, first + taken)
            for name, waiting in self._waiting.items():
                value = given[name]  # a number is that of all
                write(waiting, ours, rows_of(value, theirs) if isinstance(value, tuple) or np.ndim(value) else value)
            self._n_waiting, first = self._n_waiting + taken, first + taken
            if self._n_waiting == size:
                self._flush()

    def _now(self) -> Any:
        """The core's state after all that was drawn and told. The order of later calls of the core stays the same."""
        return self._updated(self._begun())

    def _updated(self, state: Any) -> Any:
        """`state` after all that waits. A compiled function may read its arguments later, so it gets copies."""
        given = {name: copied(values) for name, values in self._waiting.items()}
        return programs.update(self.core, state, given) if self._n_waiting else state

    def _flush(self) -> None:
        """Hands over what waits. The block of draws is out of date: those not taken are drawn again."""
        self._state = self._begun()
        self._forget_block()
        if self._n_waiting:
            self._state, self._quiet = self._updated(self._state), None
            self._waiting, self._n_waiting = programs.blank_waiting(self.reads, n_rows(self._waiting["task"])), 0

    def _n_quiet(self) -> int:
        """The number of results that may wait without a change to any draw."""
        if not isinstance(self.core, Settles):
            return 0
        if self._quiet is None:
            self._quiet = int(programs.quiet(self.core, self._state))
        return self._quiet

    def _forget_block(self) -> None:
        self._block = blank(self.encoding, 0)  # tasks drawn ahead
        self._n_used = 0  # of them, that are taken
        self._after: Any = None  # the state when the whole block is taken, where it is known

    def _draw_block(self, wanted: int) -> None:
        """Draws as many tasks as will be of use."""
        self._state = self._begun()
        # If results change the draws, those drawn ahead would never be taken.
        n = min(self._draw_ahead, wanted) if self._unsettled else self._draw_ahead
        given = self.core, self._draw_ahead, self._key, np.uint32(self.n_drawn % 2**32)
        if self._together:
            block, self._after = programs.draw_together(*given, self._state), None
        else:
            block, self._after = programs.draw_in_turn(*given, np.int32(n), self._state)
        self._block, self._n_used = rows_of(jax.tree.map(np.asarray, block), slice(0, n)), 0

    def _begun(self) -> Any:
        """The state after the attempts have begun on those tasks of the block that were taken."""
        if not self._n_used or not self.reads.starts:
            return self._state
        if self._n_used == n_rows(self._block) and self._after is not None:
            return self._after
        room = blank(self.encoding, self._draw_ahead - n_rows(self._block))
        return programs.started(self.core, self._state, joined([self._block, room]), np.int32(self._n_used))

    def _checked(self, task: Any) -> Any:
        """The encodings as arrays. ValueError for an unknown task."""
        return checked_tasks(self.space, task, self.encoding)
