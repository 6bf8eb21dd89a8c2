"""Task curricula on Ray: one actor holds the curriculum, environments in other processes play its tasks."""

import functools
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
gymnasium = pytest.importorskip("gymnasium")

from minimax_lib.portable.host import Host  # noqa: E402
from minimax_lib.portable.scoring import Scoring  # noqa: E402
from minimax_lib.portable.task_ray import RemoteTaskEnv, TaskServer, task_server  # noqa: E402
from minimax_lib.portable.task_receiver import as_option  # noqa: E402
from minimax_lib.tasks import TSCL, ExpandingBox  # noqa: E402
from minimax_lib.tasks.product import ProductCurriculum  # noqa: E402
from minimax_lib.tasks.spaces import Box, Discrete, Product  # noqa: E402

N = 5
SPACE = Discrete.of([10 * i for i in range(N)])


class Count(gymnasium.Env):
    """An episode has as many steps as the task says, divided by ten, and one more. Every second one is solved."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.history: list[tuple[int, float, int]] = []

    def reset(self, *, seed=None, options=None):
        self.task, self.time = options["task"], 0
        return np.array([self.task], np.float32), {}

    def step(self, action):
        self.time += 1
        over = self.time > self.task // 10
        reward = float(over and len(self.history) % 2)
        if over:
            self.history.append((self.task, reward, self.time))
        return np.array([self.task], np.float32), reward, over, False, {}


class Worker:
    """A process with an environment."""

    def __init__(self, server: Any):
        self.env = RemoteTaskEnv(Count(), server, SPACE, as_option, patience=60.0)  # a busy machine is no lost actor

    def play(self, n_episodes: int) -> list[tuple[int, float, int]]:
        """All attempts so far that have ended, after so many more."""
        for _ in range(n_episodes):
            self.env.reset()
            while not self.env.step(0)[2]:
                pass
        return self.env.unwrapped.history


@pytest.fixture(scope="module", autouse=True)
def running_ray():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def test_two_workers_play_and_report_what_one_actor_draws():
    server = task_server(TSCL(N), SPACE, seed=1)
    workers = [ray.remote(Worker).options(num_cpus=0.5).remote(server) for _ in range(2)]
    histories = ray.get([worker.play.remote(20) for worker in workers])
    deadline = time.monotonic() + 60
    while (told := ray.get(server.told.remote()))["results"] < 40:  # the last calls may still be under way
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert told["results"] == 40 == sum(map(len, histories))
    assert told["drawn"] == 44  # each has two more
    state = ray.get(server.call.remote("state_dict"))
    n_waiting = int(state["n['waiting']"])
    known = state["core.counts"] + np.bincount(state["waiting['task']"][:n_waiting], minlength=N)
    ended = Counter(task for history in histories for task, *_ in history)
    np.testing.assert_array_equal(known, [ended[10 * i] for i in range(N)])
    alone = Host(TSCL(N), SPACE, seed=1)
    assert set(ended) <= {10 * i for i in range(N)}
    assert alone.draw(1)[0] * 10 in {history[0][0] for history in histories}


class Runner:
    """A process with several environments, which it steps in turns."""

    def __init__(self, server: Any, space: Any, n_envs: int):
        # Patience: a busy machine is no lost actor, and a task that is played again is not drawn again.
        self.envs = [RemoteTaskEnv(Count(), server, space, as_first_option, patience=60.0) for _ in range(n_envs)]
        for env in self.envs:
            env.reset()

    def play(self, n_steps: int) -> list[int]:
        """The tasks of all attempts that have ended. The environments are closed."""
        for _ in range(n_steps):
            for env in self.envs:
                if env.step(0)[2]:
                    env.reset()
        for env in self.envs:
            env.close()
            env.close()
        return [task for env in self.envs for task, *_ in env.unwrapped.history]


class Counted(TaskServer):
    """Counts its calls."""

    n_calls = 0

    def exchange(self, *arguments: Any) -> Any:
        self.n_calls += 1
        return super().exchange(*arguments)

    def calls(self) -> int:
        return self.n_calls


def as_first_option(task: Any) -> dict[str, Any]:
    return {"options": {"task": task["count"] if isinstance(task, dict) else task}}


BOTH = ProductCurriculum((TSCL(N), ExpandingBox(-1.0, 1.0)))  # a task is a tuple


@pytest.mark.parametrize(
    ("core", "space"),
    [(TSCL(N), SPACE), (BOTH, Product((SPACE, Box((-1.0, -1.0), (1.0, 1.0))), ("count", "range")))],
)
def test_environments_of_one_process_share_calls_and_no_result_is_lost(core, space):
    server = ray.remote(Counted).remote(core, space, 3, Scoring(), None, 1)
    runner = ray.remote(Runner).remote(server, space, 6)
    tasks = ray.get(runner.play.remote(40))
    told = ray.get(server.told.remote())
    assert told["results"] == len(tasks) > 60
    assert len(tasks) + 6 <= told["drawn"] <= len(tasks) + 6 + 4  # those under way, and half as many that are ready
    assert ray.get(server.calls.remote()) <= len(tasks) / 3 + 7


def test_a_call_that_is_made_again_counts_once_and_brings_tasks(tmp_path):
    given = TSCL(N), SPACE, 4, Scoring(), str(tmp_path / "tasks.npz"), 1
    first = TaskServer(*given)
    assert len(first.exchange("a", 1, [], 2)) == 2
    assert len(first.exchange("a", 2, [(3, 1.0, 1.0, 4)], 1)) == 1
    again = TaskServer(*given)  # from the file
    assert again.told() == first.told()
    assert len(again.exchange("a", 2, [(3, 1.0, 1.0, 4)], 1)) == 1
    assert again.told()["results"] == 1
    again.exchange("b", 1, [(3, 1.0, 1.0, 4)], 0)
    for number in (4, 3, 4, 5, 3, 1):  # made again, in any order
        again.exchange("a", number, [(2, 1.0, 1.0, 4)], 0)
    assert again.told()["results"] == 1 + 1 + 3


def test_a_lost_actor_goes_on_from_its_file_while_the_environments_play_on(tmp_path):
    file = str(tmp_path / "tasks.npz")
    server = task_server(TSCL(N), SPACE, seed=2, file=file, save_every=1)
    env = RemoteTaskEnv(Count(), server, SPACE, as_option, patience=0.0)
    play = functools.partial(Worker.play, type("Own", (), {"env": env})())
    play(1)
    before = ray.get(server.told.remote())
    ray.kill(server, no_restart=False)
    with pytest.warns(UserWarning, match=r"the task server does not answer: task \d is played again"):
        play(10)
    again = ray.get(server.told.remote())  # waits until it is back
    assert Path(file).exists()
    assert again["drawn"] >= before["drawn"]
    deadline = time.monotonic() + 60
    while ray.get(server.told.remote())["results"] < 11:  # all arrived, those that were sent meanwhile too
        assert time.monotonic() < deadline
        time.sleep(0.1)
    env.patience = 60.0
    history = play(10)
    assert len({task for task, *_ in history}) > 1
    assert ray.get(server.told.remote())["results"] == len(history) == 21
