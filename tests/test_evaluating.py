"""What is played to evaluate is not training: the curriculum draws nothing for it, and is told nothing of it."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from test_attempts import EACH_STEP, MODES, B, N, Paying, Told, play, rollout, team, vector

from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import Host
from minimax_lib.tasks import TSCL, ListedPLR, UniformOver
from minimax_lib.tasks.spaces import Box, Discrete, Product

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, VectorEnv  # noqa: E402
from gymnasium.vector.utils import batch_space  # noqa: E402

from minimax_lib.portable.task_receiver import TaskReceiver, as_option  # noqa: E402
from minimax_lib.portable.task_vector import TaskResets, infos_of_rows  # noqa: E402


def unchanged(host: Host, before: dict[str, np.ndarray]) -> None:
    np.testing.assert_equal(host.state_dict(), before)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_an_evaluation_between_two_rollouts_changes_nothing(mode):
    host = Told(ListedPLR(N), scoring=EACH_STEP)
    envs = vector(host, mode, length=5)
    envs.reset()
    play(envs, 7)
    rollout(envs, 7)
    before, n_results, counts = host.state_dict(), len(host.results), (envs.rows.n_begun, envs.rows.n_ended)
    with envs.evaluating(tasks=[39]):
        with pytest.raises(RuntimeError, match=r"rows \[0, 1\] have no task: call reset before the first step"):
            envs.step(np.zeros(B, int))
        obs, _ = envs.reset()
        np.testing.assert_array_equal(obs, 39)
        play(envs, 12)
        rollout(envs, 12)
        assert envs.rows.n_ended == 4
    unchanged(host, before)
    assert (envs.rows.n_begun, envs.rows.n_ended) == counts
    with pytest.raises(RuntimeError, match="call reset before the first step, and after an evaluation"):
        envs.step(np.zeros(B, int))
    envs.reset()
    play(envs, 12)
    rollout(envs, 12)
    assert len(host.results) > n_results
    assert all(task != 39 for task, *_ in host.results)
    assert all(score == pytest.approx(task) for task, score in host.scores)


def test_environments_that_only_evaluate_take_no_host():
    host = Told(TSCL(N))
    before = host.state_dict()
    seen = []
    for _ in range(2):
        envs = vector(host.evaluation(), AutoresetMode.SAME_STEP, length=2)
        seen.append([envs.reset()[0].ravel().tolist()])
        for _ in range(60):
            seen[-1].append(envs.step(np.zeros(B, int))[0].ravel().tolist())
        with envs.evaluating(tasks=[1, 2]):
            np.testing.assert_array_equal(envs.reset()[0].ravel(), [1, 2])
    unchanged(host, before)
    assert seen[0] == seen[1]  # two evaluations play the same tasks
    assert len(np.unique(seen[0])) > N / 2  # of all that there are


def test_tasks_of_an_evaluation():
    assert EvaluationHost(Discrete(5), tasks=[3, 1]).draw(5).tolist() == [3, 1, 3, 1, 3]
    box = Box((0.0, 1.0), (1.0, 2.0))
    points = EvaluationHost(box).draw(70)
    assert len(np.unique(points, axis=0)) == 70
    assert ((points >= [0, 1]) & (points <= [1, 2])).all()
    pair = EvaluationHost(Product((Discrete(3), box), ("kind", "place")))
    kinds, places = pair.draw(70)
    assert set(kinds) == {0, 1, 2}
    assert places.shape == (70, 2)
    assert set(pair.decode(pair.draw(1))[0]) == {"kind", "place"}
    for wrong, message in (
        ([], "tasks is empty"),
        ([5], "task 5 was reported: tasks are the numbers 0 to 4"),
        (["a"], "a task is 'a': give the numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            Host(TSCL(5)).evaluation(tasks=wrong)
    with pytest.raises(ValueError, match=r"progress is 25: it must be a finite number from 0 to 1"):
        EvaluationHost(box).report(points, 25.0)


class Objects(VectorEnv):
    """B rows of `Paying` as one object, in the mode Disabled."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    num_envs = B

    def __init__(self) -> None:
        self.own = [Paying(3) for _ in range(B)]
        self.single_observation_space, self.single_action_space = Paying.observation_space, Paying.action_space
        self.observation_space = batch_space(self.single_observation_space, B)

    def reset(self, *, seed=None, options=None):
        for row in np.flatnonzero(options.get("reset_mask", np.ones(B, bool))):
            self.own[row].reset(options={"task": options["of_row"][row]})
        return self._obs(), {}

    def step(self, actions):
        told = [env.step(0) for env in self.own]
        infos = {"time": np.array([env.time for env in self.own]), "_time": np.ones(B, bool)}
        return self._obs(), *(np.array([one[i] for one in told]) for i in (1, 2, 3)), infos

    def _obs(self):
        return np.array([[env.task] for env in self.own], np.float32)


def test_rows_that_go_on_keep_their_infos_beside_one_that_ends():
    objects = Objects()
    envs = TaskResets(objects, Told(TSCL(N)), lambda tasks: {"of_row": tasks})
    envs.reset()
    objects.own[0].length = 2
    for time, has in (([1, 1], [True, True]), ([0, 2], [False, True])):
        _, _, _, truncated, infos = envs.step(np.zeros(B, int))
        np.testing.assert_array_equal(infos["time"], time)
        np.testing.assert_array_equal(infos["_time"], has)
    np.testing.assert_array_equal(truncated, [True, False])
    assert infos["final_info"]["time"][0] == 2
    own = {"a": np.array([1, 2]), "in": {"x": np.array([5.0, 6.0])}, "frames": 7, "who": np.array(["a", None], object)}
    both = infos_of_rows(own, {"in": {"x": np.array([8.0, 0.0])}, "b": np.array([3, 0])}, np.array([True, False]))
    assert {name: np.asarray(x).tolist() for name, x in both.items() if name != "in"} == {
        "a": [0, 2], "b": [3, 0], "frames": 7, "who": [None, None]
    }  # fmt: skip
    assert both["in"]["x"].tolist() == [8, 6]


class Buffers(Objects):
    """As in C: it gives the same arrays again and again, and a reset clears their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.reward, self.ends, self.cuts = np.zeros(B), np.zeros(B, bool), np.zeros(B, bool)
        self.buffers = (self.reward, self.ends, self.cuts)
        self.infos = {"time": np.zeros(B, int), "_time": np.ones(B, bool)}

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(options=options)
        for buffer in (*self.buffers, self.infos["time"]):
            buffer[options.get("reset_mask", np.ones(B, bool))] = 0
        return obs, {}

    def step(self, actions):
        obs, *told, infos = super().step(actions)
        for buffer, values in zip((*self.buffers, self.infos["time"]), (*told, infos["time"]), strict=True):
            buffer[:] = values
        return obs, *self.buffers, self.infos


def test_an_environment_may_clear_its_buffers_at_a_reset():
    seen = []
    for kind in (Objects, Buffers):
        envs = TaskResets(kind(), Told(TSCL(N)), lambda tasks: {"of_row": tasks})
        envs.reset()
        seen.append([])
        for _ in range(7):
            _, *told, infos = envs.step(np.zeros(B, int))
            last = infos.get("final_info", {}).get("time", np.zeros(B))
            seen[-1].append([x.tolist() for x in (*told, last)])
    assert seen[0] == seen[1]
    assert any(any(truncated) for _, _, truncated, _ in seen[0])


def test_environments_that_are_one_object_are_paused():
    host = Told(TSCL(N))
    envs = TaskResets(Objects(), host, lambda tasks: {"of_row": tasks})
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros(B, int))
    before = host.state_dict()
    with envs.evaluating(tasks=[7]):
        envs.reset()
        for _ in range(7):
            np.testing.assert_array_equal(envs.step(np.zeros(B, int))[0], 7)
    unchanged(host, before)
    with pytest.raises(RuntimeError, match="call reset"):
        envs.step(np.zeros(B, int))
    with pytest.raises(ValueError, match="the options of reset: 'reset_mask' is given already"):
        envs.reset(options={"reset_mask": np.ones(B, bool)})
    with pytest.raises(ValueError, match="the options of reset: 'of_row' is given already"):
        envs.reset(options={"of_row": 3})


@pytest.mark.parametrize("per_agent", [True, False])
def test_agents_of_pettingzoo_are_paused(per_agent):
    host = Told(TSCL(N))
    env = team(host, empties=True, per_agent=per_agent)
    env.reset()
    env.step({})
    before = host.state_dict()
    with env.evaluating(tasks=[7]):
        with pytest.raises(RuntimeError, match="the agents have no task"):
            env.step({})
        for _ in range(2):
            env.reset()
            assert set(env.tasks.values()) == {7}
            for _ in range(5):
                env.step({})
        assert env.n_ended == (6 if per_agent else 2)
    unchanged(host, before)
    assert not host.results
    env.reset()
    for _ in range(5):
        env.step({})
    assert [length for *_, length in host.results] == ([2, 3, 4] if per_agent else [4])
    assert env.n_ended == len(host.results)


# Ray, without a cluster: the server is called at once, in this process


@pytest.fixture
def task_ray(monkeypatch):
    local = SimpleNamespace(get=lambda answer: answer, wait=lambda answers, timeout: (answers, []))
    monkeypatch.setitem(sys.modules, "ray", local)
    monkeypatch.delitem(sys.modules, "minimax_lib.portable.task_ray", raising=False)
    yield importlib.import_module("minimax_lib.portable.task_ray")
    sys.modules.pop("minimax_lib.portable.task_ray")


class Server:
    """The handle of an actor."""

    def __init__(self, task_ray: Any, **settings: Any):
        given = {"file": None, "save_every": 1} | settings
        self.own = task_ray.TaskServer(TSCL(N), Discrete(N), 0, EACH_STEP, **given)
        self.exchange = SimpleNamespace(remote=self.own.exchange)

    @property
    def told(self) -> dict[str, int]:
        return self.own.told()


class Runner:
    """A worker of RLlib that makes its environments itself. It keeps the steps in which no environment fails."""

    def __init__(self, make: Any, in_evaluation: bool, n: int = 2):
        self.config = SimpleNamespace(in_evaluation=in_evaluation)
        self.make, self.n, self.n_ended = make, n, 0
        self.make_envs()

    def make_envs(self) -> None:
        self.envs = [self.make(i) for i in range(self.n)]
        self.over = [True] * self.n

    def step(self) -> None:
        over = []
        try:
            for env, reset in zip(self.envs, self.over, strict=True):
                over.append(env.reset() and False if reset else env.step(0)[3])
        except OSError:
            for env in self.envs:
                env.close()
            return self.make_envs()
        self.over, self.n_ended = over, self.n_ended + sum(over)


def test_workers_of_rllib_that_evaluate_are_recognised(task_ray):
    server = Server(task_ray)
    runners = [Runner(lambda i: task_ray.RemoteTaskEnv(Paying(3), server, Discrete(N), as_option), e) for e in (0, 1)]
    assert [runner.envs[0]._evaluation is None for runner in runners] == [True, True]  # 0 and 1 are not flags of RLlib
    for in_evaluation in (False, True):
        runner = Runner(lambda i: task_ray.RemoteTaskEnv(Paying(3), server, Discrete(N), as_option), in_evaluation)
        before = server.told
        for _ in range(20):
            runner.step()
        assert runner.n_ended == 10
        for env in runner.envs:
            env.close()
        assert server.told["results"] == 10
        if in_evaluation:
            assert server.told == before
    told = [Runner(lambda i, e=e: task_ray.RemoteTaskEnv(Paying(3), server, Discrete(N), as_option, evaluates=e), not e)
            for e in (True, False)]  # fmt: skip
    assert [runner.envs[0]._evaluation is None for runner in told] == [False, True]


@pytest.mark.parametrize("fails_in", ["reset", "step"])
def test_a_step_that_rllib_throws_away_is_not_reported(task_ray, fails_in):
    class Failing(Paying):
        """Every seventh call fails."""

        n_calls = 0

        def __init__(self, fails: bool, length: int):
            super().__init__(length)
            self.fails = fails

        def fail(self, name):
            Failing.n_calls += self.fails and name == fails_in
            if self.fails and name == fails_in and Failing.n_calls % 7 == 6:
                raise OSError("the game has crashed")

        def reset(self, **given):
            self.fail("reset")
            return super().reset(**given)

        def step(self, action):
            self.fail("step")
            return super().step(action)

    server = Server(task_ray)

    def make(i):
        return task_ray.RemoteTaskEnv(Failing(i == 1, (1, 2, 1)[i]), server, Discrete(N), as_option)

    runner = Runner(make, in_evaluation=False, n=3)
    for _ in range(200):
        runner.step()
    for env in runner.envs:
        env.close()
    assert server.told["results"] == runner.n_ended > 100
    assert Failing.n_calls > 20


def test_an_environment_of_ray_is_paused_and_ends_once(task_ray):
    server = Server(task_ray)
    env = task_ray.RemoteTaskEnv(Paying(3), server, Discrete(N), as_option)
    env.reset()
    for _ in range(6):
        env.step(0)  # it steps on after its end
    assert server.told["results"] == 1
    env.reset()
    env.step(0)
    before = server.told
    with env.evaluating(tasks=[7]):
        obs, _ = env.reset()
        assert obs[0] == 7
        for _ in range(5):
            env.step(0)
    for _ in range(5):
        env.step(0)
    assert server.told == before
    env.reset()
    for _ in range(3):
        env.step(0)
    assert server.told["results"] == 2


def test_what_ray_would_send_is_checked_before(task_ray):
    class Percent(Paying):
        def step(self, action):
            *told, _ = super().step(action)
            return *told, {"progress": 25.0}

    server = Server(task_ray)
    env = task_ray.RemoteTaskEnv(Percent(1), server, Discrete(N), as_option)
    env.reset()
    with pytest.raises(ValueError, match="progress is 25: it must be a finite number from 0 to 1"):
        env.step(0)
    assert server.told["results"] == 0


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"\0" * 99])
def test_a_half_written_file_of_ray_is_named(task_ray, tmp_path, damage):
    file = tmp_path / "tasks.npz"
    server = Server(task_ray, file=str(file))
    server.own.exchange("a", 1, [(3, 1.0, 1.0, 4)], 1)
    Server(task_ray, file=str(file))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"tasks.npz cannot be read .*delete it to begin anew") as told:
        Server(task_ray, file=str(file))
    assert "\n" not in str(told.value)


def test_a_file_of_another_curriculum_is_named(task_ray, tmp_path):
    file = tmp_path / "tasks.npz"
    np.savez(file, **Host(TSCL(3)).state_dict())
    with pytest.raises(ValueError, match=r"tasks.npz: the state was saved with scoring.gamma=0.99, and this Host has"):
        Server(task_ray, file=str(file))


# Stable-Baselines3


def test_stable_baselines_evaluates_beside_its_training():
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.callbacks import CallbackList, EvalCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

    from minimax_lib.portable.task_sb3 import TaskCallback, TaskVecEnv

    def made() -> DummyVecEnv:  # no environment knows its row
        return DummyVecEnv([lambda: TaskReceiver(Paying(5), None, Discrete(N), as_option)] * B)

    host = Told(ListedPLR(N))
    tasks = TaskVecEnv(made(), host)
    envs = VecNormalize(VecMonitor(tasks))
    eval_envs = VecNormalize(VecMonitor(TaskVecEnv(made(), host.evaluation())), training=False)
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu")
    callbacks = [TaskCallback(tasks), EvalCallback(eval_envs, n_eval_episodes=4, eval_freq=4, verbose=0)]
    model.learn(48, callback=CallbackList(callbacks))
    assert host.n_drawn == 2 * B + len(host.results) == tasks.rows.n_begun + B  # each row has its next task already
    assert len(host.results) == 24 // 5 * B
    before = host.state_dict()
    with tasks.evaluating():
        evaluate_policy(model, envs, n_eval_episodes=4, warn=False)
    unchanged(host, before)
    with pytest.raises(RuntimeError, match="call reset before the first step, and after an evaluation"):
        model.learn(16, reset_num_timesteps=False)
    model.learn(16, callback=TaskCallback(tasks))
    with pytest.raises(ValueError, match="other environments than PPO trains on: give both the same"):
        model.learn(16, callback=TaskCallback(TaskVecEnv(made(), host)))
    off_policy = DQN("MlpPolicy", TaskVecEnv(made(), host), device="cpu")
    with pytest.raises(ValueError, match="DQN has no rollouts: TaskCallback is for on-policy algorithms"):
        off_policy.learn(8, callback=TaskCallback(off_policy.get_env()))
    with pytest.raises(ValueError, match="TaskVecEnv is around VecMonitor: it must stand directly around"):
        TaskVecEnv(VecMonitor(made()), host)
    tasks.reset()
    with pytest.raises(RuntimeError, match="an environment was reset in the middle of an attempt"):
        tasks.env_method("reset")


def test_a_core_of_a_box_is_evaluated_on_its_space():
    box = Box((0.0,), (1.0,))
    host = Host(UniformOver(box), box)
    drawn = host.evaluation().draw(3)
    assert drawn.shape == (3, 1)
    jax.tree.map(np.testing.assert_array_equal, drawn, host.evaluation().draw(3))
