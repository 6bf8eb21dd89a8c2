"""Task curricula in other libraries' training: no task and no result is lost, and a seed gives the same tasks."""

import functools
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import minimax_lib
from minimax_lib.portable.host import Host
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks import TSCL, ListedPLR, Sequential, Uniform, episodes_needed
from minimax_lib.tasks.registry import TASK_CURRICULA
from minimax_lib.tasks.spaces import Box, Discrete

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402

from minimax_lib.portable.export import gymnasium_vector_env  # noqa: E402
from minimax_lib.portable.task_receiver import TaskReceiver, as_option, as_seed  # noqa: E402
from minimax_lib.portable.task_vector import TaskResets, TaskVectorEnv  # noqa: E402

N, B = 6, 4
MODES = list(AutoresetMode)


class Walk(gymnasium.Env):
    """Task i takes i + 1 steps to the right, of at most 6 steps. It remembers what was played."""

    observation_space = gymnasium.spaces.Box(0, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, says_progress: bool = True):
        self.says_progress = says_progress
        self.history: list[tuple[int, float, int]] = []  # task, return, length of each attempt that has ended
        self.taken: list[int] = []

    def reset(self, *, seed=None, options=None):
        self.task = int(options["task"])
        self.taken.append(self.task)
        self.place, self.time, self.total = 0, 0, 0.0
        return self._obs(), {}

    def _obs(self):
        return np.array([self.place, self.task], np.float32)

    def step(self, action):
        self.place, self.time = self.place + int(action), self.time + 1
        solved, late = self.place > self.task, self.time == 6
        reward = 1.0 * solved + 0.125 * int(action)
        self.total += reward
        if solved or late:
            self.history.append((self.task, self.total, self.time))
        return (
            self._obs(),
            reward,
            solved,
            late and not solved,
            {"progress": 1.0 * solved} if self.says_progress else {},
        )


class Remembering(Host):
    """A host that keeps what it has given and what it is told."""

    def __init__(self, *args, **kwargs):
        self.drawn: list[Any] = []
        self.told: list[tuple[Any, ...]] = []
        self.rollouts: list[tuple[Any, ...]] = []
        super().__init__(*args, **kwargs)

    def draw(self, n):
        tasks = super().draw(n)
        self.drawn += list(tasks)
        return tasks

    def report(self, task, progress=None, returns=None, length=None, episode=True, episode_return=None, score=None):
        super().report(task, progress, returns, length, episode, episode_return, score)
        self.told += list(zip(task, returns, length, progress, strict=True))

    def report_rollout(self, *args):
        super().report_rollout(*args)
        self.rollouts.append(args)


def receiver(index: int, env: Any = Walk, **settings: Any) -> Any:
    return TaskReceiver(env(), index, Discrete(N), as_option, **settings)


def vector(kind: Any, mode: Any, host: Host, **settings: Any) -> TaskVectorEnv:
    makers = [functools.partial(receiver, i, **settings) for i in range(B)]
    return TaskVectorEnv(kind(makers, autoreset_mode=mode), host)


def envs_of(envs: TaskVectorEnv, name: str) -> Any:
    """An attribute of every environment, before they are closed."""
    return envs.env.get_attr(name)


def played(envs: Any, n_steps: int, seed: int = 0) -> list[Any]:
    """What a trainer sees with random actions, and with its own resets where nobody else does them."""
    rng, seen = np.random.default_rng(seed), [envs.reset(seed=0)[0]]
    disabled = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    for _ in range(n_steps):
        obs, reward, terminated, truncated, _ = envs.step(rng.integers(0, 2, B))
        seen.append((obs.copy(), reward, terminated, truncated, np.array(envs.tasks)))
        if disabled and (terminated | truncated).any():
            obs, _ = envs.reset(options={"reset_mask": terminated | truncated})
            seen.append(obs.copy())
    return seen


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((SyncVectorEnv, mode) for mode in MODES),
        (AsyncVectorEnv, AutoresetMode.NEXT_STEP),
        pytest.param(AsyncVectorEnv, AutoresetMode.SAME_STEP, marks=pytest.mark.deep),
        pytest.param(AsyncVectorEnv, AutoresetMode.DISABLED, marks=pytest.mark.deep),
    ],
    ids=lambda value: getattr(value, "value", None),
)
def test_tasks_sent_are_taken_and_reported(kind, mode):
    host = Remembering(TSCL(N), seed=1)
    envs = vector(kind, mode, host)
    seen = played(envs, 120)
    histories, taken = envs_of(envs, "history"), envs_of(envs, "taken")
    envs.close()
    # Every attempt that has ended in an environment was reported, with its task, return, length and progress.
    ended = [(task, total, length, 1.0 * (total >= 1)) for history in histories for task, total, length in history]
    assert Counter(ended) == Counter(map(tuple, host.told))
    assert len(ended) > 60
    n_under_way = sum(len(tasks) for tasks in taken) - len(ended)
    assert 0 < n_under_way <= B
    # Every task that was drawn was taken, but for those of which the next attempts will be.
    drawn, began = Counter(host.drawn), Counter(task for tasks in taken for task in tasks)
    waiting = drawn - began
    assert not began - drawn
    assert waiting.total() <= B
    assert envs.rows.n_ended == len(ended)
    assert envs.rows.n_begun == len(ended) + B - (B - n_under_way if mode is AutoresetMode.DISABLED else 0)
    # What the trainer is shown as the task is what its next observation is of.
    obs, _, terminated, truncated, tasks = [step for step in seen if isinstance(step, tuple)][-1]
    goes_on = ~(terminated | truncated)
    np.testing.assert_array_equal(obs[goes_on, 1], tasks[goes_on])


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_sync_and_two_runs_of_async_are_equal(mode):
    runs = []
    for kind in (SyncVectorEnv, AsyncVectorEnv, AsyncVectorEnv):
        host = Remembering(TSCL(N), seed=2)
        envs = vector(kind, mode, host)
        runs.append((jax.tree.leaves(played(envs, 60)), host.drawn, host.told, host.weights()))
        envs.close()
    for run in runs[1:]:
        for ours, theirs in zip(jax.tree.leaves(run), jax.tree.leaves(runs[0]), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_the_results_of_an_attempt_are_in_before_the_next_task_is_chosen(mode):
    """Stage 0 ends with the first episode: only where tasks are chosen an attempt ahead, a second one is of stage 0."""
    host = Remembering(Sequential(N, ([0], [5]), ("episodes >= 1",)))
    envs = TaskVectorEnv(SyncVectorEnv([functools.partial(receiver, 0)], autoreset_mode=mode), host)
    envs.reset()
    for _ in range(12):
        _, _, terminated, truncated, _ = envs.step(np.array([1]))
        if mode is AutoresetMode.DISABLED and (terminated | truncated)[0]:
            envs.reset(options={"reset_mask": np.array([True])})
    (taken,) = envs_of(envs, "taken")
    assert taken[: 3 if mode is AutoresetMode.SAME_STEP else 2] == (
        [0, 0, 5] if mode is AutoresetMode.SAME_STEP else [0, 5]
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_what_the_trainer_sees_is_what_the_environments_give(mode):
    """Beside a vector environment that knows from the start which tasks the other one takes."""
    host = Remembering(Uniform(N), seed=4)
    envs = vector(SyncVectorEnv, mode, host)
    ours = played(envs, 40)

    class Told(Walk):
        def __init__(self, tasks):
            super().__init__()
            self.tasks = iter(tasks)

        def reset(self, *, seed=None, options=None):
            return super().reset(options={"task": next(self.tasks)})

    plain = SyncVectorEnv([functools.partial(Told, [*t, 0]) for t in envs_of(envs, "taken")], autoreset_mode=mode)
    plain.tasks = np.zeros(B)
    theirs = played(plain, 40)
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_scores_are_of_the_steps_that_were_played(mode):
    host = Remembering(ListedPLR(N), seed=3, scoring=Scoring("one_step_td", gamma=1.0))
    envs = vector(SyncVectorEnv, mode, host)
    played(envs, 25)
    envs.report_rollout(np.zeros((25, B)), np.zeros(B))
    # With values of 0, the score of an attempt is its mean reward.
    expected: dict[int, set[float]] = {}
    for history in envs_of(envs, "history"):
        for task, total, length in history:
            expected.setdefault(task, set()).add(round(total / length, 5))
    host.draw(1)
    state = host.state_dict()
    for task in range(N):
        assert state["core.seen"][task] == (task in expected)
        if task in expected:
            assert round(float(state["core.scores"][task]), 5) in expected[task]
    played(envs, 5)
    with pytest.raises(ValueError, match="the rollout has 9 steps, but only 5 were taken"):
        envs.report_rollout(np.zeros((9, B)), np.zeros(B))
    task, reward, *_ = host.rollouts[0]
    assert task.shape == reward.shape == (25, B)


def test_the_return_says_what_was_solved_where_the_environment_does_not():
    host = Remembering(TSCL(N), seed=5)
    makers = [functools.partial(receiver, i, functools.partial(Walk, says_progress=False)) for i in range(B)]
    envs = TaskVectorEnv(SyncVectorEnv(makers), host)
    played(envs, 60)
    assert len({progress for *_, progress in host.told}) == 2
    # A return above 0 in an episode that a time limit has cut does not count.
    assert all(progress == (total >= 1) for _, total, _, progress in host.told)
    assert any(0 < total < 1 for _, total, _, _ in host.told)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_attempts_that_the_trainer_gives_up_are_not_reported(mode):
    host = Remembering(ListedPLR(N), seed=8, scoring=Scoring("one_step_td", gamma=1.0))
    envs = vector(SyncVectorEnv, mode, host)
    for n in (1, 7, 2, 5):
        played(envs, n, seed=n)  # it begins with a reset
    ended = [
        (task, total, length, 1.0 * (total >= 1)) for own in envs_of(envs, "history") for task, total, length in own
    ]
    assert Counter(ended) == Counter(map(tuple, host.told))
    assert 4 <= len(ended) == envs.rows.n_ended
    envs.report_rollout(np.zeros((15, B)), np.zeros(B))
    # The first attempts had one step, and were given up: they are scored by that, not with what came after it.
    _, reward, _, done, *_ = host.rollouts[0]
    np.testing.assert_array_equal(done[0], np.ones(B, bool))
    assert reward.shape == (15, B)


class SimonSays(Walk):
    """An episode of 9 steps, with one attempt after another. An attempt has at most 3 steps."""

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return super().reset(options=options)

    def step(self, action):
        self.clock += 1
        self.place, self.time = self.place + int(action), self.time + 1
        solved, over = self.place > self.task % 3, self.clock == 9
        ended = solved or self.time == 3
        reward = 1.0 * solved
        self.total += reward
        if ended or over:
            self.history.append((self.task, self.total, self.time))
        return self._obs(), reward, over, False, {"progress": 1.0 * solved, "attempt_ended": ended}


def next_attempt(env: Any, task: int) -> np.ndarray:
    own = env.unwrapped
    own.task, own.place, own.time, own.total = task, 0, 0, 0.0
    own.taken.append(task)
    return own._obs()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_episodes_may_hold_several_attempts(mode):
    host = Remembering(TSCL(N), seed=6)
    makers = [functools.partial(receiver, i, SimonSays, change=next_attempt, show=True) for i in range(B)]
    envs = TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=mode), host, within_episodes=True)
    envs.reset()
    rng, lengths = np.random.default_rng(0), np.zeros(B, int)
    for _ in range(60):
        opens = envs._opens.copy()
        obs, _, terminated, truncated, _ = envs.step(rng.integers(0, 2, B))
        done = terminated | truncated
        lengths = np.where(opens, 0, lengths + 1)
        np.testing.assert_array_equal(done, lengths == 9)
        lengths[done] = 0
        # The observation after an attempt's end shows the next task already, inside an episode.
        np.testing.assert_array_equal(obs["task"][~done], envs.tasks[~done])
        np.testing.assert_array_equal(obs["observation"][:, 1], obs["task"])
        if mode is AutoresetMode.DISABLED and done.any():
            envs.reset(options={"reset_mask": done})
    histories, taken = envs_of(envs, "history"), envs_of(envs, "taken")
    ended = [one for history in histories for one in history]
    assert Counter(ended) == Counter((task, total, length) for task, total, length, _ in host.told)
    assert len(ended) > 80
    waiting = Counter(host.drawn) - Counter(task for tasks in taken for task in tasks)
    assert waiting.total() <= 2 * B


def test_the_task_is_in_the_observation():
    for show, shown in ((True, lambda tasks: tasks), (np.eye(N), lambda tasks: np.eye(N)[tasks])):
        envs = vector(SyncVectorEnv, AutoresetMode.SAME_STEP, Host(Uniform(N)), show=show)
        obs, _ = envs.reset()
        for _ in range(12):
            before = np.array(envs.tasks)
            obs, _, terminated, truncated, infos = envs.step(np.ones(B, int))
            np.testing.assert_array_equal(obs["task"], shown(envs.tasks))
            assert obs["task"] in envs.observation_space["task"]
            for i in np.flatnonzero(terminated | truncated):  # the last observation is of the task that has ended
                np.testing.assert_array_equal(infos["final_obs"][i]["task"], shown(before)[i])
    with pytest.raises(ValueError, match=r"show is \[2, 3\]: a table needs a row for each of 6 tasks"):
        receiver(0, show=np.zeros((2, 3)))


class Start(gymnasium.Env):
    """A task is the place f32[2] where an episode of two steps starts."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.place, self.time = options["task"], 0
        return self.place, {}

    def step(self, action):
        self.time += 1
        return self.place, 0.0, self.time == 2, False, {}


@pytest.mark.parametrize("kind", [SyncVectorEnv, pytest.param(AsyncVectorEnv, marks=pytest.mark.deep)])
def test_tasks_may_be_points_of_a_box(kind):
    space = Box((-1.0, 0.0), (1.0, 1.0))
    host = Remembering(minimax_lib.tasks.UniformOver(space), space)
    makers = [lambda i=i: TaskReceiver(Start(), i, space, as_option) for i in range(2)]
    envs = TaskVectorEnv(kind(makers, autoreset_mode=AutoresetMode.SAME_STEP), host)
    obs, _ = envs.reset()
    seen = [obs.copy()]
    for _ in range(8):
        obs, *_ = envs.step(envs.action_space.sample())
        np.testing.assert_array_equal(obs, envs.tasks)
        seen.append(obs.copy())
    envs.close()
    assert len(np.unique(np.concatenate(seen), axis=0)) == 10
    assert len(host.told) == 8


def test_what_is_put_together_wrongly_is_said():
    with pytest.raises(ValueError, match="wrap each of them in TaskReceiver first"):
        TaskVectorEnv(SyncVectorEnv([Walk]), Host(Uniform(N)))
    alone = receiver(0)
    with pytest.raises(ValueError, match="reset without a task"):
        alone.reset()
    with pytest.raises(ValueError, match="the autoreset_mode of the environments is SameStep: it must be Disabled"):
        TaskResets(gymnasium_vector_env(MAZE, B), Host(Uniform(N)), dict)

    class Stubborn(TaskReceiver):
        """It plays what it wants."""

        def _begin(self, seed, options):
            obs, info = super()._begin(seed, options)
            return obs, info | {"curriculum_task": 5}

    envs = TaskVectorEnv(
        SyncVectorEnv([lambda: Stubborn(Walk(), 0, Discrete(N), as_option)]),
        Host(
            Uniform(
                N,
            )
        ),
    )
    with pytest.raises(RuntimeError, match=r"rows \[0\] play the tasks \[.*5.*\], but \[\d\] were sent"):
        [envs.reset() for _ in range(30)]


def test_a_task_may_be_a_seed():
    class Seeded(Walk):
        def reset(self, *, seed=None, options=None):
            return super().reset(options={"task": seed})

    host = Host(Uniform(N), Discrete(N))
    envs = TaskVectorEnv(SyncVectorEnv([lambda: TaskReceiver(Seeded(), 0, Discrete(N), as_seed)]), host)
    envs.reset(seed=77)
    assert envs_of(envs, "taken") == ([envs.tasks[0]],)


class Seeded(gymnasium.Wrapper):
    """NetHack, whose `reset` takes no notice of its seed."""

    def reset(self, *, seed=None, options=None):
        self.unwrapped.seed(seed, seed)
        return self.env.reset()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("library", "name", "entry"),
    [("minigrid", "MiniGrid-SimpleCrossingS9N3-v0", "image"), ("nle", "NetHackScore-v0", "glyphs")],
)
def test_real_environments_play_the_seeds_that_they_are_sent(library, name, entry):
    pytest.importorskip(library)

    def make(index):
        env = gymnasium.make(name, max_episode_steps=4)
        return TaskReceiver(Seeded(env) if library == "nle" else env, index, Discrete(3), as_seed)

    makers = [functools.partial(make, i) for i in range(2)]
    host = Remembering(TSCL(3), seed=1)
    envs = TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), host)
    obs, _ = envs.reset(seed=9)
    firsts: dict[int, list[bytes]] = {}
    opens = np.ones(2, bool)
    for _ in range(80):
        for i in np.flatnonzero(opens):
            firsts.setdefault(int(envs.tasks[i]), []).append(obs[entry][i].tobytes())
        obs, _, terminated, truncated, _ = envs.step(np.zeros(2, int))
        opens = terminated | truncated
    envs.close()
    assert sorted(firsts) == [0, 1, 2]
    assert all(len(seen) > 1 and len(set(seen)) == 1 for seen in firsts.values())
    assert len({seen[0] for seen in firsts.values()}) > 1
    assert len(host.told) == 40


# Environments that are one object


MAZE = minimax_lib.make_env("AMaze", height=3, width=3, n_walls=2, max_steps=6)


@functools.cache
def levels() -> Any:
    drawn = jax.jit(lambda key: jax.vmap(MAZE.sample_level)(jax.random.split(key, N)))
    return jax.device_get(drawn(jax.random.key(0)))


def of_list(tasks: np.ndarray) -> dict[str, Any]:
    return {"levels": jax.tree.map(lambda x: x[tasks], levels())}


def maze_envs(host: Host) -> TaskResets:
    return TaskResets(gymnasium_vector_env(MAZE, B, autoreset_mode="Disabled"), host, of_list)


def test_environments_that_are_one_object_are_reset_to_their_tasks():
    host = Remembering(TSCL(N), seed=7)
    envs = maze_envs(host)
    envs.reset(seed=0)
    rng, ended, totals = np.random.default_rng(0), [], np.zeros(B)
    for _ in range(30):
        before = np.array(envs.tasks)
        for i, level in enumerate(before):  # every row is on the level of its task
            own, known = (
                jax.tree.map(lambda x, at=at: np.asarray(x)[at], t)
                for t, at in ((envs.env.levels, i), (levels(), level))
            )
            jax.tree.map(np.testing.assert_array_equal, own, known)
        obs, reward, terminated, truncated, infos = envs.step(rng.integers(0, 3, B))
        totals += reward
        for i in np.flatnonzero(terminated | truncated):
            ended.append((before[i], totals[i], infos["final_info"]["progress"][i]))
            assert infos["final_obs"][i] in envs.single_observation_space
            totals[i] = 0
        assert obs in envs.observation_space
    np.testing.assert_allclose([(task, total, progress) for task, total, _, progress in host.told], ended)
    assert len(ended) >= 20
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


# Stable-Baselines3


def sb3_envs(host: Host, kind: str = "DummyVecEnv", **settings: Any) -> Any:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3.common import vec_env

    from minimax_lib.portable.task_sb3 import TaskVecEnv

    # Processes that import everything anew take seconds to start.
    how = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
    made = getattr(vec_env, kind)([functools.partial(receiver, i, **settings) for i in range(B)], **how)
    return TaskVecEnv(made, host)


@pytest.mark.parametrize("kind", ["DummyVecEnv", "SubprocVecEnv"])
def test_stable_baselines_tasks_are_taken_and_reported(kind):
    host = Remembering(TSCL(N), seed=1)
    envs, rng = sb3_envs(host, kind), np.random.default_rng(0)
    obs = envs.reset()
    for _ in range(120):
        np.testing.assert_array_equal(obs[:, 1], envs.tasks)
        obs, *_ = envs.step(rng.integers(0, 2, B))
    histories, taken = envs.get_attr("history"), envs.get_attr("taken")
    envs.close()
    ended = [(task, total, length, 1.0 * (total >= 1)) for history in histories for task, total, length in history]
    assert Counter(ended) == Counter(map(tuple, host.told))
    assert len(ended) > 60
    drawn, began = Counter(host.drawn), Counter(task for tasks in taken for task in tasks)
    assert not began - drawn
    assert (drawn - began).total() == B  # those that come next
    assert envs.rows.n_begun == began.total() == len(ended) + B
    # In the same order and in the same mode, Gymnasium's rows play the same tasks.
    twin = Remembering(TSCL(N), seed=1)
    played(vector(SyncVectorEnv, AutoresetMode.SAME_STEP, twin), 120)
    assert twin.drawn == host.drawn


def test_stable_baselines_time_limits_solve_nothing():
    host = Remembering(TSCL(N), seed=5)
    envs = sb3_envs(host, env=functools.partial(Walk, says_progress=False))
    envs.reset()
    rng = np.random.default_rng(0)
    for _ in range(60):
        envs.step(rng.integers(0, 2, B))
    assert all(progress == (total >= 1) for _, total, _, progress in host.told)
    assert any(0 < total < 1 for _, total, _, _ in host.told)


def test_stable_baselines_scores_are_of_its_own_advantages():
    host = Remembering(ListedPLR(N), seed=2, scoring=Scoring("gae", 0.9, 0.8, tail="write"))
    envs = sb3_envs(host)
    from stable_baselines3 import PPO

    from minimax_lib.portable.task_sb3 import TaskCallback

    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, gamma=0.9, gae_lambda=0.8, seed=0)
    model.learn(16 * B, callback=TaskCallback(envs))
    (told,) = host.rollouts
    task, done = told[0], told[3]
    advantages = model.rollout_buffer.swap_and_flatten(model.rollout_buffer.advantages)
    advantages = advantages.reshape(B, 16).T
    expected = {}
    for row in range(B):
        begin = 0
        for t in range(16):
            if done[t, row] or t == 15:
                expected.setdefault(task[t, row], []).append(advantages[begin : t + 1, row].mean())
                begin = t + 1
    host.draw(1)
    state = host.state_dict()
    for i in range(N):
        assert state["core.seen"][i] == (i in expected)
        assert i not in expected or np.isclose(state["core.scores"][i], expected[i], rtol=1e-3, atol=1e-4).any()


# PettingZoo


def teams(per_agent: bool, host: Host) -> Any:
    """Two agents walk side by side; the first to solve its task leaves."""
    pettingzoo = pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")

    from minimax_lib.portable.task_pettingzoo import TaskParallelEnv

    class Team(pettingzoo.ParallelEnv):
        def __init__(self):
            self.possible_agents, self.metadata = ["left", "right"], {}

        def observation_space(self, agent):
            return Walk.observation_space

        def action_space(self, agent):
            return Walk.action_space

        def reset(self, seed=None, options=None):
            self.agents = list(self.possible_agents)
            self.tasks = options["task"] if per_agent else dict.fromkeys(self.agents, options["task"])
            self.own = {agent: Walk() for agent in self.agents}
            given = {agent: self.own[agent].reset(options={"task": self.tasks[agent]}) for agent in self.agents}
            return {a: obs for a, (obs, _) in given.items()}, {a: info for a, (_, info) in given.items()}

        def step(self, actions):
            given = {agent: self.own[agent].step(actions[agent]) for agent in self.agents}
            parts = [{agent: one[i] for agent, one in given.items()} for i in range(5)]
            self.agents = [agent for agent in self.agents if not (parts[2][agent] or parts[3][agent])]
            return tuple(parts)

    return TaskParallelEnv(Team(), host, as_option, per_agent)


@pytest.mark.parametrize("per_agent", [False, True])
def test_agents_of_pettingzoo_play_one_task_or_one_each(per_agent):
    host = Remembering(TSCL(N), seed=3)
    env, rng, ended, n_taken = teams(per_agent, host), np.random.default_rng(0), [], 0
    for _ in range(20):
        env.reset()
        n_taken += 2 if per_agent else 1
        assert env.unwrapped.tasks == env.tasks
        while env.agents:
            env.step({agent: int(rng.integers(0, 2)) for agent in env.agents})
        own = [walk.history[0] for walk in env.unwrapped.own.values()]
        if per_agent:
            ended += [(task, total, length, 1.0 * (total >= 1)) for task, total, length in own]
        else:
            (task, one, length), (_, other, longer) = own
            solved = ((one >= 1) + (other >= 1)) / 2
            ended.append((task, (one + other) / 2, max(length, longer), solved))
    assert Counter(map(tuple, host.told)) == Counter(ended)
    assert env.n_begun == env.n_ended == len(host.drawn) == len(ended) == n_taken
    assert len({length for _, _, length, _ in ended}) > 3


# Every core through every adaptor


def through_gymnasium(mode: Any, host: Host) -> None:
    envs = vector(SyncVectorEnv, mode, host)
    played(envs, 12)
    envs.report_rollout(np.zeros((12, B)), np.zeros(B))


def through_one_object(host: Host) -> None:
    envs = maze_envs(host)
    envs.reset(seed=0)
    for _ in range(12):
        envs.step(np.zeros(B, int))
    envs.report_rollout(np.zeros((12, B)), np.zeros(B))


def through_stable_baselines(host: Host) -> None:
    envs = sb3_envs(host)
    envs.reset()
    for _ in range(12):
        envs.step(np.ones(B, int))
    envs.report_rollout(np.zeros((12, B)), np.zeros(B))


def through_pettingzoo(per_agent: bool, host: Host) -> None:
    env = teams(per_agent, host)
    for _ in range(3):
        env.reset()
        while env.agents:
            env.step(dict.fromkeys(env.agents, 1))
    host.report_scores(host.draw(2), [0.5, 0.25])


def through_steps(host: Host) -> None:
    tasks, done = host.draw(B), np.zeros(B, bool)
    for t in range(130):
        done[:] = t % 5 == 4
        host.report_steps(tasks, np.ones(B), done, progress=np.ones(B), value=np.zeros(B))
        tasks = np.where(done, host.draw(B), tasks)


ADAPTORS = {
    **{f"gymnasium {mode.value}": functools.partial(through_gymnasium, mode) for mode in MODES},
    "one object": through_one_object,
    "stable-baselines3": through_stable_baselines,
    "pettingzoo": functools.partial(through_pettingzoo, False),
    "pettingzoo by agent": functools.partial(through_pettingzoo, True),
    "steps": through_steps,
}


def new_core(name: str, folder: Path) -> Any:
    """The core of that name over N tasks. Some have no settings that fit every list."""
    strata = folder / "strata.json"
    strata.write_text(json.dumps([[0, 1, 2], [3, 4, 5]]))
    needed: dict[str, Any] = {
        "sequential": {"stages": ("0-2", "3-5"), "conditions": ("episodes >= 2",)},
        "stratified": {"strata": str(strata)},
    }
    return TASK_CURRICULA[name](**needed.get(name, {})).build(N)


def pairs() -> list[Any]:
    """Each core with each adaptor. All but one core are deep."""
    return [
        pytest.param(*pair, marks=() if pair[0] == "plr" else pytest.mark.deep)
        for pair in itertools.product(TASK_CURRICULA.names(), ADAPTORS)
    ]


@pytest.mark.parametrize(("name", "adaptor"), pairs())
def test_every_core_goes_through_every_adaptor(name, adaptor, tmp_path):
    core = new_core(name, tmp_path)
    host = Remembering(core, seed=1)
    ADAPTORS[adaptor](host)
    if episodes_needed(core):
        assert "never told rates of success" in host.missing()
        host.evaluated(np.linspace(0, 1, N))
    assert host.missing() is None
    assert len(host.drawn) >= 3
    assert all(0 <= task < N for task in host.drawn)
    weights = host.weights()
    assert weights is None or (weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-5))
    again = Host(core, seed=1)
    again.load_state_dict(host.state_dict())
    np.testing.assert_array_equal(again.draw(9), host.draw(9))
