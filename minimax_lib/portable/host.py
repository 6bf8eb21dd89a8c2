"""A task curriculum for other people's training.

host = Host(core, seed=0)
tasks = host.draw(n)                             what to play next
host.report(tasks, progress, returns, length)    what became of it
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.attempts import AttemptLedger
from minimax_lib.portable.encodings import as_arrays, n_rows, rows_of
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.host_state import Saved, flat, sealed, settings, tasks_in
from minimax_lib.portable.log import TaskLog, log_of
from minimax_lib.portable.long_lists import at_work
from minimax_lib.portable.longer_lists import grown, shortened
from minimax_lib.portable.numbers import (
    MOST,
    checked,
    checked_logits,
    checked_rates,
    checked_rows,
    checked_scores,
    checked_seed,
    checked_step,
    checked_tasks,
)
from minimax_lib.portable.prompts import as_groups
from minimax_lib.portable.running import CompiledCore, RunningCore
from minimax_lib.portable.scoring import PlayedSteps, Scoring, checked_scoring
from minimax_lib.portable.statistics import TaskStatistics, blank_statistics
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import able, episodes_needed
from minimax_lib.tasks.long_list import LongList
from minimax_lib.tasks.spaces import TaskSpace

SCORING = Scoring()
EVALUATION_STEPS = "evaluation_steps"
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
        self.core, self.seed, self.scoring = core, checked_seed(seed), checked_scoring(scoring)
        self.space = programs.fitting_space(core, space, programs.reads_of(core).encoding)
        self._running: RunningCore = (
            at_work(core, self.seed, draw_ahead, flush)
            if isinstance(core, LongList)
            else CompiledCore(core, self.seed, draw_ahead, flush, together)
        )
        self.attempts: AttemptLedger | None = None  # of the rows that `report_rollout` and `report_steps` tell of
        self.n_told = dict.fromkeys(("results", "scores", "rates", "metrics", EVALUATION_STEPS), 0)
        self.statistics = None if self.space.n is None else TaskStatistics(self.space, self._running.weights)
        self._patient = True
        self.log = log_of(log, self, self.space)

    @property
    def device(self) -> Any:
        """The device that computes all of this."""
        return programs.cpu()

    @property
    def reads(self) -> programs.Reads:
        """What the curriculum reads."""
        return self._running.reads

    @property
    def n_drawn(self) -> int:
        """Tasks drawn so far."""
        return self._running.n_drawn

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
        tasks = self._running.draw(n)
        if self.log is not None:
            self.log.drew(self.n_drawn)
        return tasks

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
        if not m[0]:
            return  # what waits to be added up would grow with every empty report
        self.n_told["results"] += m[0]
        self.n_told["scores"] += 0 if score is None else m[0]
        if self.statistics is not None:
            self.statistics.add(task, given)
        if self.log is not None:
            self.log.add(task, given, self.n_drawn, self.weights)
        self._running.tell(task, given, score)

    def report_scores(self, task: Any, score: Any) -> None:
        """Numbers [M] of the trainer, whatever they are, as the scores of these tasks, in this order."""
        nothing = dict.fromkeys(("valid", "progress", "returns", "length", "episode", "episode_return"), 0)
        task = self._checked(task)
        score = checked("score", score, (n_rows(task),))
        self.n_told["scores"] += n_rows(task)
        self._running.tell(task, nothing, np.broadcast_to(score, (n_rows(task),)))

    def record_group(self, task: Any, rewards: Any) -> None:
        """The answers to each of these tasks [M] were graded: `rewards` [M, G], from 0 to 1, where 1 is right.

        A group is told as an episode of G attempts. Its score is the variance of its rewards.
        """
        task, rewards = as_groups(self._checked(task), rewards)
        (m, g), last = rewards.shape, np.arange(rewards.shape[1]) == rewards.shape[1] - 1
        self.report(
            np.repeat(task, g),
            progress=rewards.ravel(),
            returns=rewards.ravel(),
            length=1,
            episode=np.tile(last, m),
            episode_return=np.repeat(rewards.sum(axis=1), g),
            score=np.where(last, rewards.var(axis=1)[:, None], np.nan).ravel() if self.reads_scores else None,
        )

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
        task = self._checked(task)
        b = (n_rows(task),)
        if self.attempts is not None and self.attempts.n != b[0]:
            raise ValueError(f"report_steps is told of {b[0]} rows, and before of {self.attempts.n}")
        reward, done, at_end, value = checked_step(*b, reward, done, progress, value if self.reads_scores else None)
        rows = self._rows(len(done))
        rows.begin(~rows.is_open)
        if value is not None:
            if rows.n_kept == ROLLOUT:
                tasks, dones, counts, rewards, values = rows.take(ROLLOUT)
                self.report_rollout(tasks, rewards, values, dones, value, counts)
            rows.keep(task, done, np.ones(b, bool), np.broadcast_to(reward, b), np.broadcast_to(value, b))
        rows.step(reward)
        if done.any():
            self.report(rows_of(task, done), at_end, **rows.end(done))

    def give_up(self, rows: Any = None) -> None:
        """Attempts under way on `rows` (bool[B]; by default all) are given up and begin anew. They are not reported."""
        if self.attempts is not None:
            given = checked_rows("rows", rows, self.attempts.n)
            # `report_rollout` tells of attempts that it has never seen begin.
            self.attempts.is_open |= given
            self.attempts.begin(given)

    def report_metrics(self, numbers: Mapping[str, float]) -> None:
        """Numbers of the trainer that the core reads, by name."""
        core = self.core
        if not able(core, "measured"):
            raise ValueError(f"{type(core).__name__} reads no metrics, and was told {', '.join(numbers)}")
        for name in numbers:
            if name not in core.reads_metrics:
                raise unknown_name(f"metric of {type(core).__name__}", name, core.reads_metrics)
        given = {name: checked(name, number, ())[()] for name, number in numbers.items()}
        self.n_told["metrics"] += 1
        self._running.measured(given)

    def evaluated(self, rates: Any, known: Any = None) -> None:
        """An evaluation of the student has given these rates of success [N].

        `known` (bool[N]) says which tasks were tried; by default all.
        """
        if not episodes_needed(self.core):
            raise ValueError(f"{type(self.core).__name__} reads no rates of an evaluation")
        rates, known = checked_rates(rates, known, self.space.n)
        self.n_told["rates"] += 1
        self._running.evaluated(rates, known)

    def change(self, function: Callable[[Any], Any]) -> None:
        """Puts `function(state)` in the place of the core's state: for what a core offers beside the calls above."""
        self._running.change(function)

    def grow(self, space: TaskSpace, core: Any = None) -> None:
        """Goes on with the tasks of a longer list. The new ones have not been seen, and all else stays as it is.

        The list begins with the tasks that there are. `core`, by default the same for more tasks, is needed where a
        curriculum has settings of each task. Adaptors keep this host; their environments must know the longer list.
        ValueError if anything does not fit, and then nothing has changed.
        """
        core = grown(self.core, core, self.space, space)
        self._running.grow(core)
        self.core, self.space = core, space
        for record in (self.statistics, self.log):
            if record is not None:
                record.grow(space)

    def retire(self, tasks: Any) -> None:
        """These tasks are not drawn any more. Attempts on them that are under way may still be reported.

        The others are drawn as often, in proportion, as the curriculum would draw them. ValueError if none would stay.
        """
        if self.space.n is None:
            raise ValueError(f"the tasks of {type(self.space).__name__} cannot be listed: none can be retired")
        self._running.retire(self._checked(tasks))

    def trains(self, task: Any) -> np.ndarray | None:
        """bool[...], whether to learn from attempts on these tasks, by what has been told so far. None: from all."""
        found = self._running.trains()
        return None if found is None else found[np.asarray(task)]

    def weights(self) -> np.ndarray | None:
        """f32[N], the tasks' shares now (of PLR, those of replayed draws); none where the core has no list of them."""
        return self._running.weights()

    def metrics(self) -> dict[str, float]:
        """The core's metrics, for the trainer's log."""
        steps = self.n_told[EVALUATION_STEPS]
        return self._running.metrics() | ({"evaluation/env_steps": float(steps)} if steps else {})

    def missing(self) -> str | None:
        """In one line, what the core reads and was never told; None if there is nothing."""
        reads = {
            "results": (self.reads.results, "results (call report)"),
            "scores": (self.core.reads_scores, "scores (call report_rollout, report_scores, or report with `score`)"),
            "rates": (episodes_needed(self.core) > 0, "rates of success (call evaluated)"),
            "metrics": (able(self.core, "measured"), "metrics (call report_metrics)"),
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
            self.log.save(self.n_drawn)
        told = {
            name: n for name, n in self.n_told.items() if name != EVALUATION_STEPS or n
        }  # earlier versions have none
        arrays = self._running.arrays() | flat("told", told)
        if self.n_told["results"] and self.statistics is not None:
            arrays |= flat("statistics", self.statistics.arrays())
        return sealed(self._settings(self.core, self.space), arrays)

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`. Attempts under way are begun anew.

        ValueError in one line if the settings are others, or the state is damaged. Then nothing has changed.
        """
        self.restored(arrays)()

    def restored(self, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """As `load_state_dict`, but changes nothing: the function goes on from the state."""
        saved = Saved(arrays, self._settings_as)
        n = tasks_in(saved.settings)
        is_shorter = n is not None and self.space.n is not None and n < self.space.n
        restore = self._running.restored(saved, n if is_shorter else None)
        names = [name for name in self.n_told if name != EVALUATION_STEPS or saved.has(f"told['{name}']")]
        told = {name: saved.count(f"told['{name}']") for name in names}
        blank = blank_statistics(n if is_shorter else self.space.n)
        known = saved.take("statistics", blank) if saved.has("statistics") else None
        saved.done()

        def go_on() -> None:
            restore()
            self.n_told, self.attempts = dict.fromkeys(self.n_told, 0) | told, None
            if self.statistics is not None:
                self.statistics = TaskStatistics(self.space, self._running.weights, known)
            if self.log is not None:
                self.log.go_on(self.n_drawn)

        return go_on

    def _settings(self, core: Any, space: TaskSpace) -> dict[str, str]:
        known = settings("core", core) | settings("space", space) | settings("scoring", self.scoring)
        return known | {"seed": repr(self.seed)} | self._running.settings()

    def _settings_as(self, theirs: dict[str, Any]) -> dict[str, str]:
        """The settings that a saved state must have: these, or if its list is shorter, these with the same tasks."""
        n = tasks_in(theirs)
        if n is not None and self.space.n is not None and n < self.space.n:
            with contextlib.suppress(ValueError):  # there are settings of each task: these lists must be the same
                return self._settings(programs.resized(self.core, n), shortened(self.space, n))
        return self._settings(self.core, self.space)

    def _rows(self, n: int) -> AttemptLedger:
        """The attempts of `n` rows. Those of another number of rows are forgotten."""
        if self.attempts is None or self.attempts.n != n:
            self.attempts = AttemptLedger(n)
        return self.attempts

    def _checked(self, task: Any) -> Any:
        """The encodings as arrays. ValueError for an unknown task."""
        return checked_tasks(self.space, task, self.encoding)
