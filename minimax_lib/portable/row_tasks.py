"""The tasks of B rows of environments: which each row is on, which comes next, and what is to be sent."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from minimax_lib.portable.attempts import AttemptLedger
from minimax_lib.portable.encodings import blank, messages, rows_of, write
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import Host
from minimax_lib.portable.joint_host import JointHost
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.portable.progress import Solved
from minimax_lib.tasks.core import takes_groups

AnyHost = Host | OpponentHost | JointHost | EvaluationHost  # what an adaptor draws from


class RowTasks:
    """Draws from `host`, and reports the results of the rows to it. It knows of no library.

    A row's next task is chosen when it begins the one before ("ahead", for rows that go on without a reset), when that
    one has ended ("at_end"), or when the row is reset ("at_reset").
    """

    def __init__(self, host: AnyHost, n: int, choose: Literal["ahead", "at_end", "at_reset"]):
        self.host, self.n, self.choose = host, n, choose
        self.task = blank(host.encoding, n)
        self._next = blank(host.encoding, n)
        self._waits = np.zeros(n, bool)  # the episode is over, and the row has its next task
        self._must_reset = np.ones(n, bool)
        self.attempts = host.attempts = AttemptLedger(n)
        self._nothing: list[Any] = [None] * n
        self._outbox = self._nothing
        self.n_begun = self.n_ended = 0  # attempts
        # The numbers of the attempts, and of those that come next, among the draws of these rows.
        self._number, self._next_number, self._n_drawn = np.zeros(n, np.int64), np.zeros(n, np.int64), 0

    def reset(self, rows: np.ndarray) -> list[Any]:
        """The tasks of all rows, as they are sent. On `rows` (bool[B]) attempts begin; those under way are given up."""
        fresh = rows & ~self._waits
        self.attempts.begin(fresh)
        self._draw(self.task, self._number, fresh)
        self._waits &= ~rows
        self._must_reset &= ~rows
        self.n_begun += int(fresh.sum())
        if self.choose == "ahead":
            self._draw_next(fresh)
        elif self.choose == "at_end":
            self._outbox = [None if row else message for row, message in zip(rows, self._outbox, strict=True)]
        return messages(self.task)

    def give_up(self) -> None:
        """The attempts of all rows are given up. Nothing goes on before the rows are reset."""
        self.attempts.give_up(np.ones(self.n, bool))
        self._waits[:], self._must_reset[:] = False, True
        self._outbox = self._nothing

    def sent(self) -> list[Any]:
        """The tasks that go with the next actions: of each row, one that it does not have yet, or none."""
        if self._must_reset.any():
            rows = np.flatnonzero(self._must_reset).tolist()
            raise RuntimeError(f"rows {rows} have no task: call reset before the first step, and after an evaluation")
        outbox, self._outbox = self._outbox, self._nothing
        return outbox

    def step(self, reward: Any, ended: np.ndarray, counts: Any) -> None:
        """One step of every row. `counts` is False where it only opened an episode."""
        self._waits[:] = False
        counts = self.attempts.step(reward, counts)
        if self.host.reads_scores:
            self.attempts.keep(self.task, ended, counts, np.asarray(reward, np.float32))

    def report(
        self,
        ended: np.ndarray,
        done: np.ndarray,
        terminated: np.ndarray,
        progress: Callable[[np.ndarray, np.ndarray], np.ndarray],
        infos: Mapping[str, Any],
    ) -> None:
        """The attempts of the rows `ended` (bool[B]) are over, and the episodes of the rows `done`.

        Each row has its next task, if it is not chosen at a reset. `infos` may have the entry `progress` [B], and where
        it is there, `_progress`. A row that is stepped on after its end, without a reset, has no attempt to end.
        """
        ended = ended & self.attempts.is_open
        told = self.attempts.end(ended, done[ended])
        reached = progress(told["returns"], terminated[ended])
        has = np.broadcast_to("progress" in infos and infos.get("_progress", True), ended.shape)[ended]
        if "progress" in infos:
            reached = np.where(has, np.asarray(infos["progress"], float)[ended], reached)
        of_tasks = self.host.tasks if isinstance(self.host, JointHost) else self.host
        if isinstance(of_tasks, Host) and takes_groups(of_tasks.core):
            told["episode"] = True
        if isinstance(of_tasks, EvaluationHost):
            told |= {"number": self._number[ended], "terminated": terminated[ended]}
            told["is_default"] = isinstance(progress, Solved) & ~has
        self.host.report(rows_of(self.task, ended), reached, **told)
        n = int(ended.sum())
        self.n_ended += n
        if self.choose == "at_reset":
            return
        self.n_begun += n
        self._waits = done.copy()
        if self.choose == "ahead":
            write(self.task, ended, rows_of(self._next, ended))
            self._number[ended] = self._next_number[ended]
            self._draw_next(ended)
        else:
            self._draw(self.task, self._number, ended)
            self._send(ended, self.task)
        self.attempts.begin(ended)

    def report_rollout(self, value: Any, last_value: Any, reward: Any, logits: Any) -> np.ndarray | None:
        """Scores of the last steps, of which `value` [T, B] is known.

        Returns bool[T, B], the steps to learn from; None: all.
        """
        if not isinstance(self.host, Host | JointHost) or not self.host.reads_scores:
            return None
        task, ended, counts, seen = self.attempts.take(len(value))
        trains = self.host.trains(task)
        self.host.attempts = self.attempts  # those of other environments of this host are not mixed with these
        self.host.report_rollout(task, seen if reward is None else reward, value, ended, last_value, counts, logits)
        return trains

    def check(self, taken: Any, where: Any) -> None:
        """RuntimeError if a row plays another task than was meant: `taken` is what the rows `where` say."""
        if taken is None:
            return
        same = all(
            np.array_equal(np.asarray(list(theirs)), ours)
            for ours, theirs in zip(_parts(rows_of(self.task, where)), _parts(taken[where]), strict=True)
        )
        if not same:
            raise RuntimeError(
                f"rows {np.flatnonzero(where).tolist()} play the tasks {list(taken[where])}, but "
                f"{messages(rows_of(self.task, where))} were sent: either something else has reset an environment, or "
                "a wrapper around its TaskReceiver changes actions or infos, or its index is not its row"
            )

    def check_all_said(self, infos: Mapping[str, Any], name: str) -> None:
        """RuntimeError if the environments do not say, after a reset, what they play."""
        if name not in infos:
            raise RuntimeError(
                f"no environment says in infos[{name!r}] what it plays: TaskReceiver must be the last of its wrappers"
            )

    def _draw_next(self, rows: np.ndarray) -> None:
        self._draw(self._next, self._next_number, rows)
        self._send(rows, self._next)

    def _draw(self, tasks: Any, numbers: np.ndarray, rows: np.ndarray) -> None:
        """The next draws of the host, and their numbers, for these rows."""
        n = int(rows.sum())
        write(tasks, rows, self.host.draw(n))
        numbers[rows] = self._n_drawn + np.arange(n)
        self._n_drawn += n

    def _send(self, rows: np.ndarray, encodings: Any) -> None:
        outbox = list(self._outbox)
        for i, message in zip(np.flatnonzero(rows), messages(rows_of(encodings, rows)), strict=True):
            outbox[i] = message
        self._outbox = outbox


@contextlib.contextmanager
def evaluating(adaptor: Any, tasks: Any) -> Iterator[None]:
    """Within it, `adaptor` draws from an `EvaluationHost`, and the results of its rows are not reported."""
    training = adaptor.rows
    rows = RowTasks(training.host.evaluation(tasks), training.n, training.choose)
    training.give_up()
    adaptor.rows = rows
    try:
        yield
    finally:
        adaptor.rows = training


def _parts(encodings: Any) -> list[Any]:
    """The arrays of encodings; of a product, one for each part."""
    if isinstance(encodings, tuple):
        return list(encodings)
    if encodings.dtype == object and len(encodings) and isinstance(encodings[0], tuple):
        return [np.asarray(part) for part in zip(*encodings, strict=True)]
    return [encodings]
