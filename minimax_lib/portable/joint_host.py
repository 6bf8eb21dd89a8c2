"""Tasks and opponents at once: any curriculum of tasks, and any of opponents, drawn independently."""

from typing import Any

from minimax_lib.portable.encodings import n_rows
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import Host
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.tasks.spaces import Product


class JointHost:
    """Takes the place of a `Host` in an adaptor: what it draws is a task and an opponent. See `Joint` of the training.

    `tasks` and `opponents` are hosts of their own, and are saved, loaded and watched one by one. An environment is
    given a dict {"task": ..., "opponent": ...}. Its progress is told to both: 1 for a game that was won.
    """

    def __init__(self, tasks: Host | EvaluationHost, opponents: OpponentHost | EvaluationHost):
        self.tasks, self.opponents = tasks, opponents
        self.space = Product((tasks.space, opponents.space), ("task", "opponent"))
        self.encoding = tasks.encoding, opponents.encoding

    @property
    def reads_scores(self) -> bool:
        """Whether scores change which tasks are drawn."""
        return self.tasks.reads_scores

    @property
    def attempts(self) -> Any:
        """See `Host.attempts`."""
        return self.tasks.attempts

    @attempts.setter
    def attempts(self, attempts: Any) -> None:
        self.tasks.attempts = attempts

    def draw(self, n: int) -> tuple[Any, Any]:
        """The encodings ([n, ...] of the tasks, i32[n] of the opponents)."""
        return self.tasks.draw(n), self.opponents.draw(n)

    def decode(self, tasks: Any) -> list[Any]:
        """The dicts that an environment takes."""
        return [self.space.decode((tasks[0][i], tasks[1][i])) for i in range(n_rows(tasks))]

    def report(self, task: Any, progress: Any, *others: Any, **named: Any) -> None:
        """Both are told of these attempts [M]."""
        self.opponents.report(task[1], progress)
        self.tasks.report(task[0], progress, *others, **named)

    def report_rollout(self, task: Any, *others: Any) -> None:
        """See `Host.report_rollout`. Scores are those of the tasks."""
        if isinstance(self.tasks, Host):
            self.tasks.report_rollout(task[0], *others)

    def trains(self, task: Any) -> Any:
        """See `Host.trains`."""
        return self.tasks.trains(task[0]) if isinstance(self.tasks, Host) else None

    def evaluation(self, tasks: Any = None, seed: int = 0) -> "JointHost":
        """See `Host.evaluation`. `tasks` are encodings (of tasks, of opponents); either may be None."""
        of_tasks, of_opponents = (None, None) if tasks is None else tasks
        return JointHost(self.tasks.evaluation(of_tasks, seed), self.opponents.evaluation(of_opponents, seed))
