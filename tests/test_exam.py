"""Evaluations with somebody's policy: every attempt that was asked for counts once, however long it takes."""

import functools
import warnings

import numpy as np
import pytest

from minimax_lib.portable.host import Host
from minimax_lib.tasks import SFL, ListedPLR, RobustPLR, Uniform, UniformOver
from minimax_lib.tasks.spaces import Box, Discrete

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import RecordEpisodeStatistics  # noqa: E402

from minimax_lib.portable.exam import evaluate_tasks  # noqa: E402
from minimax_lib.portable.progress import Scaled  # noqa: E402
from minimax_lib.portable.task_receiver import TaskReceiver, as_option  # noqa: E402
from minimax_lib.portable.task_vector import TaskResets, TaskVectorEnv  # noqa: E402

N, B = 5, 3
MODES = list(AutoresetMode)


class Lottery(gymnasium.Env):
    """Episode k on task i is won after one step, or lost after twelve: the k-th letter of `FATES[i]` says which."""

    FATES = ("WWWW", "LLLL", "WLWL", "LWWW", "LLLW")
    observation_space = gymnasium.spaces.Box(0, 20, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(20)
    counts = [0] * N  # of all environments together

    def reset(self, *, seed=None, options=None):
        self.task, self.time = int(options["task"]), 0
        self.fate = self.FATES[self.task][self.counts[self.task] % 4]
        self.counts[self.task] += 1
        return np.float32([self.task, 0]), {}

    def step(self, action):
        assert action == self.time  # a policy with memory counts the steps of an episode
        self.time += 1
        won, lost = self.fate == "W", self.time == 12
        return np.float32([self.task, self.time]), 1.0 * won, won, lost and not won, {}


def counting(obs, memory, first):
    """Acts by the number of steps since the episode began, which it counts itself."""
    steps = np.where(first, 0, 0 if memory is None else memory + 1)
    return steps, steps


def vector(host, mode=AutoresetMode.NEXT_STEP, n=B):
    makers = [functools.partial(TaskReceiver, Lottery(), None, Discrete(N), as_option) for _ in range(n)]
    return RecordEpisodeStatistics(TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), host))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 3, 12])
def test_rates_are_those_of_all_attempts_in_every_mode_and_number_of_rows(mode, n):
    Lottery.counts[:] = [0] * N
    host = Host(SFL(N))
    found = evaluate_tasks(counting, lambda host: vector(host, mode, n), host, n_episodes=4)
    wins = np.array([fates.count("W") / 4 for fates in Lottery.FATES])
    if mode is AutoresetMode.SAME_STEP and n > 1:
        # A task is chosen one attempt ahead. So attempts that do not count may begin before the last that do.
        np.testing.assert_allclose(found.rates[:2], wins[:2])
        wins = found.rates
    np.testing.assert_allclose(found.rates, wins)
    np.testing.assert_allclose(found.returns, wins)
    np.testing.assert_allclose(found.lengths, wins * 1 + (1 - wins) * 12)
    assert found.known.all()
    asked = int(4 * found.lengths.sum())
    assert asked <= found.env_steps <= asked + 12 * n
    if n == 1:
        assert found.env_steps == asked
    np.testing.assert_allclose(host.weights(), wins * (1 - wins) / (wins * (1 - wins)).sum(), rtol=1e-5)
    assert host.metrics()["evaluation/env_steps"] == found.env_steps
    assert host.n_drawn == host.n_told["results"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_short_attempts_do_not_count_more_often(mode, monkeypatch):
    letters = np.random.default_rng(0).permutation(list("WL" * 200))
    monkeypatch.setattr(Lottery, "FATES", ["".join(letters)[20 * i :] for i in range(2)])
    monkeypatch.setattr(Lottery, "counts", [0, 0])

    class Long(Lottery):
        def reset(self, **given):
            seen = super().reset(**given)
            self.fate = self.FATES[self.task][self.counts[self.task] - 1]
            return seen

    makers = [functools.partial(TaskReceiver, Long(), None, Discrete(2), as_option) for _ in range(12)]
    host, n = Host(Uniform(2)), 100
    found = evaluate_tasks(
        counting, lambda host: TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), host), host, n_episodes=n
    )
    # The first to end would be the short ones: 12 rows that all win first shift a rate by more than .1.
    np.testing.assert_allclose(
        found.rates, [letters[20 * i :][:n].tolist().count("W") / n for i in range(2)], atol=0.08
    )


def test_a_part_of_the_tasks_and_environments_that_are_one_object():
    host, made = Host(SFL(N, unseen="keep")), []

    class Whole(SyncVectorEnv):  # takes its tasks by a reset of the whole, and knows no TaskReceiver
        def reset(self, *, seed=None, options=None):
            tasks = options["tasks"]
            for env, task, begins in zip(self.envs, tasks, options.get("reset_mask", [True] * B), strict=True):
                env.given = int(task) if begins else None
            return super().reset(seed=seed, options={k: v for k, v in options.items() if k == "reset_mask"} or None)

    class Given(Lottery):
        def reset(self, *, seed=None, options=None):
            return super().reset(options={"task": self.given})

    def make(host):
        envs = Whole([Given] * B, autoreset_mode=AutoresetMode.DISABLED)
        made.append(TaskResets(envs, host, lambda tasks: {"tasks": tasks}))
        return made[0]

    Lottery.counts[:] = [0] * N
    found = evaluate_tasks(counting, make, host, tasks=[2, 0, 2], n_episodes=4)
    assert np.flatnonzero(found.known).tolist() == [0, 2]
    assert found.rates.tolist() == [1, 0, 0.5, 0, 0]
    assert made[0].unwrapped.closed


def test_a_rollout_says_which_steps_robust_plr_learns_from():
    Lottery.counts[:] = [0] * N
    host = Host(RobustPLR(N), seed=1)
    make = lambda: TaskReceiver(Lottery(), None, Discrete(N), as_option)  # noqa: E731
    envs = TaskVectorEnv(SyncVectorEnv([make] * B), host)
    obs, _ = envs.reset(seed=0)
    first, over, memory, seen, shares = np.ones(B, bool), np.zeros(B, bool), None, set(), []
    for _ in range(4):
        tasks, ended = [], set()
        for _ in range(10):
            tasks.append(np.array(envs.tasks))
            actions, memory = counting(obs, memory, first)
            obs, _, terminated, truncated, _ = envs.step(actions)
            first, over = over, terminated | truncated
            ended |= set(tasks[-1][over].tolist())
        trains = envs.report_rollout(np.zeros((10, B)), np.zeros(B))
        np.testing.assert_array_equal(trains, np.isin(tasks, sorted(seen)))
        seen |= ended
        shares.append(trains.mean())
    assert shares[0] == 0 < shares[-1]
    other = TaskVectorEnv(SyncVectorEnv([make]), Host(Uniform(N)))
    assert other.report_rollout(np.zeros((1, 1)), np.zeros(1)) is None


class Standing(Lottery):
    """Every step pays. Who falls ends early, and a time limit cuts what lasts."""

    def step(self, action):
        obs, _, won, lost, _ = super().step(action)
        return obs, 1.0, won, lost, {}


@pytest.mark.parametrize("mode", MODES)
def test_progress_that_is_upside_down_is_noticed(mode):
    def envs_of(env, progress=None):
        makers = [functools.partial(TaskReceiver, env(), None, Discrete(N), as_option) for _ in range(B)]
        return lambda host: TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), host, progress)

    sentence = "cut have a mean return of 12 and count as unsolved, and those that count as solved have 1: if lasting"
    with pytest.warns(UserWarning, match=sentence):
        evaluate_tasks(counting, envs_of(Standing), Host(SFL(N)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_tasks(counting, envs_of(Lottery), Host(SFL(N)))
        found = evaluate_tasks(counting, envs_of(Standing, Scaled(1 / 12)), Host(SFL(N)))
    np.testing.assert_allclose(found.rates, (found.returns - 1) / 11, rtol=1e-6)  # the share of those that last


def test_a_curriculum_that_reads_no_rates_is_told_nothing():
    Lottery.counts[:] = [0] * N
    host = Host(Uniform(N))
    assert evaluate_tasks(counting, vector, host, n_episodes=4).rates[3] == 0.75
    assert host.n_told["rates"] == 0
    again = Host(Uniform(N))
    again.load_state_dict(host.state_dict())
    assert again.metrics() == host.metrics()


def test_wrong_evaluations_are_refused_in_one_line():
    box = Box((0.0,), (1.0,))
    for host, given, message in (
        (Host(SFL(N)), {"n_episodes": 1}, "n_episodes is 1: SFL needs at least 2 of each task"),
        (Host(SFL(N)), {"tasks": [N]}, f"task {N} .*tasks are the numbers 0 to {N - 1}"),
        (Host(SFL(N)), {"tasks": []}, "tasks is empty"),
        (Host(UniformOver(box), box), {}, "the tasks of Box cannot be listed"),
        (Host(ListedPLR(N)), {"n_episodes": 0}, "n_episodes is 0: ListedPLR needs at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_tasks(counting, vector, host, **given)
    other = Host(SFL(N))
    with pytest.raises(ValueError, match="make_envs did not use the host that it was given"):
        evaluate_tasks(counting, lambda host: vector(other), Host(SFL(N)))
