"""An attempt is counted once, from its beginning to its end: giving it up, saving it and ending it twice."""

from typing import Any

import numpy as np
import pytest

from minimax_lib.portable.host import Host
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks import TSCL, ListedPLR
from minimax_lib.tasks.spaces import Discrete

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402

from minimax_lib.portable.task_receiver import TaskReceiver, as_option  # noqa: E402
from minimax_lib.portable.task_vector import TaskVectorEnv  # noqa: E402

N, B = 40, 2
MODES = list(AutoresetMode)
EACH_STEP = Scoring("one_step_td", gamma=0.0)  # with values of 0, the score of an attempt is its mean reward


class Paying(gymnasium.Env):
    """Task k pays k at each step. An episode has `length` steps."""

    observation_space = gymnasium.spaces.Box(0, N, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 100):
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.task, self.time = int(options["task"]), 0
        return np.array([self.task], np.float32), {}

    def step(self, action):
        self.time += 1
        return np.array([self.task], np.float32), float(self.task), False, self.time >= self.length, {}


class Told(Host):
    """A host that keeps what it is told."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.results: list[tuple[Any, ...]] = []
        self.scores: list[tuple[int, float]] = []

    def report(self, task, progress=None, returns=None, length=None, episode=True, episode_return=None, score=None):
        super().report(task, progress, returns, length, episode, episode_return, score)
        self.results += list(zip(np.atleast_1d(task), np.atleast_1d(returns), np.atleast_1d(length), strict=True))

    def report_scores(self, task, score):
        super().report_scores(task, score)
        self.scores += list(zip(task, score, strict=True))


def plr() -> Told:
    return Told(ListedPLR(N), scoring=EACH_STEP)


def vector(host: Any, mode: Any = AutoresetMode.NEXT_STEP, length: int = 100, n: int = B) -> TaskVectorEnv:
    makers = [lambda i=i: TaskReceiver(Paying(length), i, Discrete(N), as_option) for i in range(n)]
    return TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), host)


def play(envs: TaskVectorEnv, n_steps: int) -> None:
    """With the resets that the mode Disabled leaves to the trainer."""
    for _ in range(n_steps):
        _, _, terminated, truncated, _ = envs.step(np.zeros(envs.num_envs, int))
        if envs.mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            envs.reset(options={"reset_mask": terminated | truncated})


def rollout(envs: TaskVectorEnv, n_steps: int) -> None:
    envs.report_rollout(np.zeros((n_steps, envs.num_envs)), np.zeros(envs.num_envs))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("n_before", [0, 1, 2])
def test_attempts_that_are_given_up_flow_into_no_other_task(mode, n_before):
    host = plr()
    envs = vector(host, mode, length=8)
    for _ in range(4):
        envs.reset()
        play(envs, 3)
        rollout(envs, 3)
        play(envs, n_before)
        envs.reset()  # with steps that nobody was told of, or with none
        play(envs, 9)
        rollout(envs, 9 + n_before)
    assert len(host.scores) >= 4 * B
    assert all(score == pytest.approx(task) for task, score in host.scores)
    assert all(total == task * length for task, total, length in host.results)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_rows_that_are_reset_alone_give_up_their_own_attempts(mode):
    host = plr()
    envs = vector(host, mode, length=8)
    envs.reset()
    play(envs, 3)
    rollout(envs, 3)
    envs.reset(options={"reset_mask": np.array([True, False])})
    play(envs, 9)
    rollout(envs, 9)
    assert all(score == pytest.approx(task) for task, score in host.scores)
    lengths = sorted(length for *_, length in host.results)
    assert lengths == [8, 8]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_steps_of_a_rollout_that_nobody_reports_flow_into_no_other_task(mode):
    host = plr()
    envs = vector(host, mode, length=5)
    envs.reset()
    play(envs, 3)
    rollout(envs, 3)
    play(envs, 9)
    rollout(envs, 4)  # the other five are left out, and with them the ends of attempts
    assert all(score == pytest.approx(task) for task, score in host.scores)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_only_what_is_reported_has_a_score(mode):
    """A trainer whose values are right has TD errors of 0 everywhere. Giving up is no end that pays nothing."""
    host = Told(ListedPLR(N), scoring=Scoring("one_step_td", gamma=1.0))
    envs = vector(host, mode, length=3)
    envs.reset()
    play(envs, 2)
    with envs.evaluating():
        envs.reset()
        play(envs, 4)
    envs.reset()
    play(envs, 5)
    tasks = host.results[0][0], host.results[1][0]
    envs.report_rollout(np.full((7, B), 9.0), np.full(B, 9.0))
    assert {task for task, _ in host.scores} == set(tasks)
    assert len(host.scores) == len(host.results) == B
    host = Told(ListedPLR(N), scoring=Scoring("one_step_td", gamma=1.0))
    for value in (7.0, 7.0):
        host.report_steps([3, 4], [0.0, 0.0], [False, False], value=[value, value])
    host.give_up(np.array([True, False]))
    for done in (False, True):
        host.report_steps([5, 4], [0.0, 0.0], [done, False], [1.0, 0.0], value=[0.0, 7.0])
    tasks, dones, counts, rewards, values = host.attempts.take(4)
    host.report_rollout(tasks, rewards, values, dones, np.array([0.0, 7.0]), counts)
    assert host.scores == [(5, 0.0)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_an_attempt_that_has_just_ended_keeps_its_score_when_the_next_one_is_given_up(mode):
    """The next attempt has begun, and has no step yet: there is nothing of it to take back."""
    host = plr()
    envs = vector(host, mode, length=3)
    envs.reset()
    tasks = envs.tasks.tolist()
    play(envs, 3)  # all attempts end with the last step
    with envs.evaluating():
        envs.reset()
        play(envs, 4)
    envs.reset()
    play(envs, 2)
    rollout(envs, 5)
    assert host.scores == [(task, pytest.approx(task)) for task in tasks]
    host = plr()
    for t in range(3):
        host.report_steps([3, 4], [3.0, 4.0], [t == 2, False], value=[0.0, 0.0])
    host.give_up()
    tasks, dones, counts, rewards, values = host.attempts.take(3)
    host.report_rollout(tasks, rewards, values, dones, np.zeros(2), counts)
    assert host.scores == [(3, 3.0)]


def test_environments_that_share_a_host_are_not_mixed():
    host = plr()
    both = [vector(host, length=8) for _ in range(2)]
    for envs in both:
        envs.reset()
    for n_steps in (3, 5, 4):
        for envs in both:
            play(envs, n_steps)
            rollout(envs, n_steps)
    assert len(host.scores) == 2 * B
    assert all(score == pytest.approx(task) for task, score in host.scores)


def test_a_row_that_nobody_resets_ends_once():
    host = Told(TSCL(N))

    makers = [lambda i=i: TaskReceiver(Paying(3), i, Discrete(N), as_option) for i in range(B)]
    # SyncVectorEnv refuses to step on after an end. This one does not, and each step ends the episode again.
    envs = TaskVectorEnv(AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED), host)
    envs.reset()
    for _ in range(5):
        envs.step(np.zeros(B, int))
    assert [length for *_, length in host.results] == [3, 3]
    envs.reset(options={"reset_mask": np.array([True, False])})
    for _ in range(4):
        envs.step(np.zeros(B, int))
    envs.close()
    assert [(total, length) for _, total, length in host.results[2:]] == [(3 * host.results[2][0], 3)]


def test_steps_that_are_told_are_given_up_too():
    host = plr()
    for n_steps, n_rows in ((3, 2), (5, 2)):
        for t in range(n_steps):
            last = t == n_steps - 1
            host.report_steps(np.arange(n_rows), np.ones(n_rows), np.full(n_rows, last and n_steps == 5))
        host.give_up()
    assert host.results == [(0, 5, 5), (1, 5, 5)]
    host.report_rollout([[7, 8]] * 2, np.full((2, 2), 7.0), np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2))
    host.give_up(np.array([True, False]))
    done = np.array([[False, False], [True, True]])
    host.report_rollout([[9, 8]] * 2, np.full((2, 2), 9.0), np.zeros((2, 2)), done, np.zeros(2))
    assert host.scores == [(9, 9.0), (8, 8.0)]
    with pytest.raises(ValueError, match=r"rows is int64\[3\]: it must be bool\[2\]"):
        host.give_up(np.zeros(3, int))


@pytest.mark.parametrize("n_rows", [2, 4])
def test_a_state_saved_in_the_middle_begins_attempts_anew(n_rows):
    host = Told(TSCL(N))
    for _ in range(3):
        host.report_steps([3, 4], [1.0, 1.0], [False, False])
    again = Told(TSCL(N))
    again.load_state_dict(host.state_dict())
    for t in range(5):
        again.report_steps(np.arange(n_rows), np.ones(n_rows), np.full(n_rows, t == 4))
    assert again.results == [(i, 5, 5) for i in range(n_rows)]
    host.load_state_dict(host.state_dict())  # a host in the middle of attempts does the same
    host.report_steps([3, 4], [1.0, 1.0], [True, True])
    assert host.results == [(3, 1, 1), (4, 1, 1)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_state_saved_in_the_middle_of_a_rollout_has_no_scores_under_way(mode):
    host = plr()
    envs = vector(host, mode, length=8)
    envs.reset()
    play(envs, 3)
    rollout(envs, 3)
    again = plr()
    again.load_state_dict(host.state_dict())
    assert not any(name.startswith(("tally", "books", "steps")) for name in host.state_dict())
    envs = vector(again, mode, length=8, n=3)
    envs.reset()
    play(envs, 9)
    rollout(envs, 9)
    assert len(again.scores) == 3
    assert all(score == pytest.approx(task) for task, score in again.scores)


def test_a_state_of_the_version_before_is_read_without_its_attempts():
    host = Told(TSCL(N))
    saved = host.state_dict()
    del saved["checksums"]
    older = saved | {"version": np.int32(1), "books['length']": np.ones(2, int), "tally.total": np.ones(2, np.float32)}
    host.load_state_dict(older | {"steps['0000'][0]": np.ones(2, np.int32)})
    with pytest.raises(ValueError, match="an array 'bokks', of which this Host knows nothing"):
        host.load_state_dict(older | {"bokks": np.ones(2)})


# PettingZoo


def team(host: Host, empties: bool, per_agent: bool = False, present: int = 3) -> Any:
    """Agent i of three plays i + 2 steps, if it is `present`."""
    pettingzoo = pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    from minimax_lib.portable.task_pettingzoo import TaskParallelEnv

    class Team(pettingzoo.ParallelEnv):
        possible_agents = ("a0", "a1", "a2")

        def reset(self, seed=None, options=None):
            self.agents, self.time = self.possible_agents[:present], 0
            return dict.fromkeys(self.agents, 0), {}

        def step(self, actions):
            self.time += 1
            ended = {agent: self.time >= 2 + int(agent[1]) for agent in self.agents}
            told = (
                dict.fromkeys(self.agents, 0),
                dict.fromkeys(self.agents, 1.0),
                ended,
                dict.fromkeys(self.agents, False),
            )
            if empties:
                self.agents = [agent for agent in self.agents if not ended[agent]]
            return *told, {}

    return TaskParallelEnv(Team(), host, as_option, per_agent)


@pytest.mark.parametrize("empties", [True, False])
@pytest.mark.parametrize("present", [3, 2])
def test_an_attempt_of_agents_ends_once(empties, present):
    for per_agent in (False, True):
        host = Told(TSCL(N))
        env = team(host, empties, per_agent, present)
        for _ in range(3):
            env.reset()
            for _ in range(6):
                env.step(dict.fromkeys(env.agents, 0))
        lengths = [2, 3, 4][:present] if per_agent else [present + 1]
        assert [length for *_, length in host.results] == lengths * 3
        assert [total for _, total, _ in host.results] == (
            lengths if per_agent else [np.mean(range(2, 2 + present))]
        ) * 3
        assert env.n_ended == 3 * len(lengths)


def test_agents_that_a_reset_stops_are_not_reported():
    host = Told(TSCL(N))
    env = team(host, empties=False, per_agent=True)
    env.reset()
    for _ in range(3):
        env.step({})
    env.reset()
    env.step({})
    assert [length for *_, length in host.results] == [2, 3]


def test_a_reset_keeps_what_is_known_of_an_attempt_that_has_ended():
    host = Told(ListedPLR(N), scoring=Scoring("one_step_td", gamma=0.0))
    env = team({"a0": host, "a1": Host(TSCL(N)), "a2": Host(TSCL(N))}, empties=False)

    def told(reward, done):
        host.report_rollout([[3]], [[reward]], [[0.0]], [[done]], [0.0])

    env.reset()
    env.step({})
    told(10.0, False)
    for _ in range(3):
        env.step({})
    env.reset()  # before the trainer tells of the second step
    told(4.0, True)
    env.step({})
    told(10.0, False)
    env.reset()  # in the middle of an attempt
    told(4.0, True)
    assert [score for _, score in host.scores] == [7.0, 4.0]


def test_what_no_parallel_environment_is_is_refused():
    pettingzoo = pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    from minimax_lib.portable.task_pettingzoo import TaskParallelEnv

    class Turns(pettingzoo.AECEnv):
        possible_agents = ("a0",)

    with pytest.raises(ValueError, match="is an AEC environment, whose agents take turns"):
        TaskParallelEnv(Turns(), Host(TSCL(N)))
    with pytest.raises(ValueError, match="has no possible_agents"):
        TaskParallelEnv(pettingzoo.ParallelEnv(), Host(TSCL(N)))
    with pytest.raises(RuntimeError, match="the agents have no task: call reset"):
        team(Host(TSCL(N)), empties=True).step({})
