"""Tasks and opponents at once: any curriculum of tasks, and any of opponents, drawn independently."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minimax_lib.messages import printable, shown
from minimax_lib.opponents import OPPONENTS
from minimax_lib.portable.encodings import n_rows
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import Host
from minimax_lib.portable.host_state import read_arrays
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks.core import able
from minimax_lib.tasks.spaces import Product

PARTS = ("task", "opponent")


class JointHost:
    """Takes the place of a `Host` in an adaptor: what it draws is a task and an opponent. See `Joint` of the training.

    `tasks` and `opponents` are hosts, which can also be used alone. An environment is given a dict
    {"task": ..., "opponent": ...}. Its progress is told to both: 1 for a game that was won.
    """

    def __init__(self, tasks: Host | EvaluationHost, opponents: OpponentHost | EvaluationHost):
        self.tasks, self.opponents = tasks, opponents
        self.space = Product((tasks.space, opponents.space), PARTS)
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
        opponents = self.opponents.draw(n)  # first: before a copy has joined it is refused, and no task is lost
        return self.tasks.draw(n), opponents

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

    def report_scores(self, task: Any, score: Any) -> None:
        """See `Host.report_scores`. Scores are those of the tasks."""
        if isinstance(self.tasks, Host):
            self.tasks.report_scores(task[0], score)

    def trains(self, task: Any) -> Any:
        """See `Host.trains`."""
        return self.tasks.trains(task[0]) if isinstance(self.tasks, Host) else None

    def evaluation(self, tasks: Any = None, seed: int = 0) -> "JointHost":
        """See `Host.evaluation`. `tasks` are encodings (of tasks, of opponents); either may be None."""
        of_tasks, of_opponents = (None, None) if tasks is None else tasks
        return JointHost(self.tasks.evaluation(of_tasks, seed), self.opponents.evaluation(of_opponents, seed))

    # What a server of Ray calls too. It has a host for training, and none that evaluates.

    @property
    def n_drawn(self) -> int:
        """Pairs drawn so far."""
        return self._host_of_tasks.n_drawn

    @property
    def n_told(self) -> dict[str, int]:
        """See `Host.n_told`."""
        return self._host_of_tasks.n_told

    def add_agent(self, params: Any) -> int:
        """See `OpponentHost.add_agent`."""
        return self._host_of_opponents.add_agent(params)

    def update_student(self, params: Any) -> None:
        """See `OpponentHost.update_student`."""
        self._host_of_opponents.update_student(params)

    def evaluated(self, rates: Any, known: Any = None) -> None:
        """See `Host.evaluated`. Rates are those of the tasks."""
        self._host_of_tasks.evaluated(rates, known)

    def metrics(self) -> dict[str, float]:
        """Those of both."""
        return self._host_of_tasks.metrics() | self._host_of_opponents.metrics()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Those of both, as `task/...` and `opponent/...`."""
        both = self._host_of_tasks.state_dict(), self._host_of_opponents.state_dict()
        return {f"{part}/{name}": x for part, arrays in zip(PARTS, both, strict=True) for name, x in arrays.items()}

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`.

        ValueError in one line if it is of another curriculum, or damaged. Then neither host has changed.
        """
        found = read_arrays(arrays)
        for name in found:
            if not name.startswith(tuple(f"{part}/" for part in PARTS)):
                raise ValueError(f"the saved state has an array {printable(name)!r}: that of a JointHost has none")
        of_tasks, of_opponents = (
            {name.removeprefix(f"{part}/"): x for name, x in found.items() if name.startswith(f"{part}/")}
            for part in PARTS
        )
        go_on = self._host_of_tasks.restored(of_tasks)
        self._host_of_opponents.load_state_dict(of_opponents)
        go_on()

    @property
    def _host_of_tasks(self) -> Host:
        assert isinstance(self.tasks, Host), "this host evaluates"
        return self.tasks

    @property
    def _host_of_opponents(self) -> OpponentHost:
        assert isinstance(self.opponents, OpponentHost), "this host evaluates"
        return self.opponents


def new_host(core: Any, space: Any, seed: int, scoring: Scoring) -> Host | OpponentHost | JointHost:
    """The host of a curriculum of tasks, of one of opponents, or of a pair of both, whose `space` is a `Product`."""
    if isinstance(core, tuple):
        if len(core) != 2 or not isinstance(space, Product) or space.names != PARTS:
            wanted = 'a space Product((tasks, agents), ("task", "opponent"))'
            raise ValueError(f"core is a tuple of {len(core)}: give (tasks, opponents), and {wanted}")
        if is_of_opponents(core[0]) or not is_of_opponents(core[1]):
            raise ValueError(
                f"core is {shown(core)}: its first must be a curriculum of tasks, and its second one of opponents"
            )
        of_tasks, of_opponents = space.spaces
        return JointHost(Host(core[0], of_tasks, seed, scoring), OpponentHost(core[1], of_opponents, seed=seed))
    return OpponentHost(core, space, seed=seed) if is_of_opponents(core) else Host(core, space, seed, scoring)


def is_of_opponents(core: Any) -> bool:
    """Whether it is a curriculum of opponents, or the name of one."""
    return able(core, "live_share") or (isinstance(core, str) and core in OPPONENTS.names())
