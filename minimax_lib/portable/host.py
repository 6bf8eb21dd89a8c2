"""A task curriculum for anybody's training.

host = Host(core, seed=0)
tasks = host.draw(n)                             what to play next
host.report(tasks, progress, returns, length)    what became of it
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minimax_lib.portable import host_programs as programs
from minimax_lib.portable.encodings import as_arrays, n_rows, rows_of
from minimax_lib.portable.host_state import check_heading, filled, flat, heading, settings
from minimax_lib.portable.hosted import Hosted
from minimax_lib.portable.reads import ReadsMetrics
from minimax_lib.portable.rows import Rollouts, StepByStep
from minimax_lib.portable.scoring import PlayedSteps, Scoring
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import episodes_needed
from minimax_lib.tasks.manual import Manual
from minimax_lib.tasks.spaces import Discrete, TaskSpace

SCORING = Scoring()
PATIENCE = 1000  # draws, after which a warning says what the core has never been told


class Host:
    """A task curriculum outside of compiled training: it draws tasks, and is told what became of them.

    Draw number k depends on the seed, on k, and on what was reported before it. It does not depend on how many are
    asked for together, nor on `draw_ahead`, the most that are drawn at once. Results wait until there are `flush` of
    them, or until a draw that they could change. All is computed on the CPU.

    With `together`, the tasks that are drawn at once are drawn from one state, as in the compiled loop those of a
    rollout. Some curricula read how long ago each task was begun. They are cheaper so, but ages stand still meanwhile,
    and the sequence depends on `draw_ahead`.
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
    ):
        self.core, self.seed, self.scoring = core, seed, scoring
        self._hosted = Hosted(core, seed, draw_ahead, flush, together)
        self.reads = self._hosted.reads
        self.space = fitting_space(core, space, self.reads.encoding)
        if together and isinstance(core, Manual):
            raise ValueError("together is True: a queue (Manual) gives one task after another")
        self._rollouts = Rollouts(scoring, self._hosted.device)
        self._steps: StepByStep | None = None
        self.n_told = dict.fromkeys(("results", "scores", "rates", "metrics"), 0)
        self._patient = True

    @property
    def n_drawn(self) -> int:
        """Tasks so far."""
        return self._hosted.n_drawn

    @property
    def reads_scores(self) -> bool:
        """Whether scores change anything."""
        return "score" in self.reads.fields

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next tasks. Attempts on them count as begun."""
        if self._patient and self.n_drawn >= PATIENCE:
            self._patient = False  # what has arrived by now cannot be missing later
            if missing := self.missing():
                warnings.warn(missing, stacklevel=2)
        if isinstance(self.core, Manual):  # in the compiled loop, an empty queue repeats its last task
            check_queue(n, int(self._hosted.now().count))
        return self._hosted.draw(n)

    def decode(self, tasks: Any) -> list[Any]:
        """What an environment takes, of encodings [n, ...]."""
        return [self.space.decode(rows_of(tasks, i)) for i in range(n_rows(tasks))]

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
        mean of a quantity over the attempt's steps. ValueError where something is left out that the core reads.
        """
        given = {"progress": progress, "returns": returns, "length": length, "episode": episode}
        given["episode_return"] = returns if episode_return is None else episode_return
        for name, value in given.items():
            if value is None and name in self.reads.fields:
                raise ValueError(f"{type(self.core).__name__} reads the {name} of attempts: give report `{name}`")
        task = self._checked(task)
        self.n_told["results"] += n_rows(task)
        self._tell(task, given | {"valid": True}, score)

    def report_scores(self, task: Any, score: Any) -> None:
        """Numbers [M] of the trainer, whatever they are, as the scores of these tasks, in this order."""
        nothing = dict.fromkeys(("valid", "progress", "returns", "length", "episode", "episode_return"), 0)
        self._tell(self._checked(task), nothing, score)

    def report_rollout(
        self, task: Any, reward: Any, value: Any, done: Any, last_value: Any, counts: Any = None, logits: Any = None
    ) -> None:
        """Scores of the attempts that have ended in T steps of B rows, from the trainer's own values. All are [T, B].

        `done[t]`: the attempt on `task[t]` ended with action t. (In many trainers, the flag of step t says that
        observation t opens an episode. That is one step later.) `last_value` [B] is of the observation after the last
        action. `counts` is False where a step only opened an episode. `logits` [T, B, n] are for the scores that need
        them. A trainer that bootstraps at a time limit adds the discounted value to the reward there. Only scores are
        told of: that an attempt has ended is told by `report`.
        """
        if not self.reads_scores:
            return
        numbers: list[Any] = [np.asarray(x, np.float32) for x in (reward, value, last_value)]
        done = np.asarray(done, bool)
        counts = np.asarray(np.ones(done.shape, bool) if counts is None else counts, bool)
        logits = None if logits is None else np.asarray(logits, np.float32)
        x = PlayedSteps(numbers[0], numbers[1], done, counts, numbers[2], logits)
        self.report_scores(*self._rollouts.scores(as_arrays(task, self.reads.encoding), x))

    def report_steps(self, task: Any, reward: Any, done: Any, progress: Any = None, value: Any = None) -> None:
        """One step of B rows, for a trainer without an adaptor: an attempt is reported where it ends.

        `done`: the attempt on `task` ended with this step. Only there, `progress` is read. Scores are made of `value`,
        of the observation before the step.
        """
        reward, done = np.asarray(reward, np.float32), np.asarray(done, bool)
        if self._steps is None:
            self._steps = StepByStep(len(done))
        task = as_arrays(task, self.reads.encoding)
        rollout = self._steps.add(task, reward, done, value if self.reads_scores else None)
        if rollout is not None:
            self.report_rollout(*rollout)
        if done.any():
            at_end = None if progress is None else np.asarray(progress)[done]
            self.report(rows_of(task, done), at_end, **self._steps.books.ended(done))

    def report_metrics(self, numbers: Mapping[str, float]) -> None:
        """Numbers of the trainer that the core reads, by name."""
        core = self.core
        if not isinstance(core, ReadsMetrics):
            raise ValueError(f"{type(core).__name__} reads no metrics, and was told {', '.join(numbers)}")
        for name in numbers:
            if name not in core.reads_metrics:
                raise unknown_name(f"metric of {type(core).__name__}", name, core.reads_metrics)
        self.n_told["metrics"] += 1
        given = {name: np.float32(number) for name, number in numbers.items()}
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
        self._hosted.change(function)

    def weights(self) -> np.ndarray | None:
        """f32[N], the tasks' shares as they are now; none where the core has no list of them."""
        found = programs.weights(self.core, self._hosted.now())
        return None if found is None else np.asarray(found)

    def metrics(self) -> dict[str, float]:
        """What the core reports, for the trainer's log."""
        return {name: float(x) for name, x in programs.report(self.core, self._hosted.now()).items()}

    def missing(self) -> str | None:
        """In one line, what the core reads and was never told; none if that is nothing."""
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
        """All that a later draw depends on, as NumPy arrays by name: for `numpy.savez(file, **host.state_dict())`."""
        arrays = heading(self._settings()) | self._hosted.arrays() | flat("told", self.n_told)
        return arrays | self._rollouts.arrays() | ({} if self._steps is None else self._steps.arrays())

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`. ValueError in one line if the settings are others."""
        arrays = {name: np.asarray(arrays[name]) for name in arrays}
        check_heading(arrays, self._settings())
        told = filled("told", self.n_told, arrays)
        self._hosted.load(arrays)
        self._rollouts.load(arrays)
        self._steps = StepByStep.load(arrays, self.reads.encoding)
        self.n_told = {name: int(count) for name, count in told.items()}

    def _settings(self) -> dict[str, str]:
        known = settings("core", self.core) | settings("space", self.space) | settings("scoring", self.scoring)
        together = (
            f"True, {self._hosted.draw_ahead} at once" if self._hosted.together and self.reads.starts else "False"
        )
        return known | {"seed": repr(self.seed), "flush": repr(self._hosted.waiting.size), "together": together}

    def _tell(self, task: Any, given: dict[str, Any], score: Any) -> None:
        """Results without a score are left out where they change nothing."""
        if score is None:
            if self.reads.results:
                self._hosted.tell(task, given | {"score": np.nan})
            return
        score = np.asarray(score, np.float32)
        self.n_told["scores"] += score.size
        if self.reads.fields:
            self._hosted.tell(task, given | {"score": score})

    def _checked(self, task: Any) -> Any:
        """The encodings as arrays. ValueError for an unknown task."""
        task = as_arrays(task, self.reads.encoding)
        task = np.atleast_1d(task) if isinstance(task, np.ndarray) else task
        if self.space.n is not None and task.size and not 0 <= task.min() <= task.max() < self.space.n:
            wrong = task[(task < 0) | (task >= self.space.n)][0]
            raise ValueError(f"task {wrong} was reported: tasks are the numbers 0 to {self.space.n - 1}")
        return task


def fitting_space(core: Any, space: TaskSpace | None, encoding: Any) -> TaskSpace:
    """The space of the core's tasks: `space`, or their numbers. ValueError if it is another."""
    numbered = not isinstance(encoding, tuple) and encoding.shape == (1,) and encoding.dtype == np.int32
    if space is None:
        if not numbered:
            raise ValueError(f"{type(core).__name__} draws no numbers: give Host the space of its tasks")
        return Discrete(core.n_tasks)
    if numbered and space.n != core.n_tasks:
        raise ValueError(f"the space has {space.n} tasks, {type(core).__name__} has {core.n_tasks}: they must agree")
    return space


def check_queue(n: int, n_waiting: int) -> None:
    """ValueError if fewer than `n` tasks wait in a queue of a `Manual` core."""
    if n > n_waiting:
        raise ValueError(
            f"{n} tasks are drawn, and {n_waiting} wait in the queue: put more, "
            "host.change(lambda state: core.put(state, tasks))"
        )
