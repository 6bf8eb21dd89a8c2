"""PettingZoo's environments in processes of their own and on Ray: the tasks and the results of one process."""

import functools
import importlib
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minimax_lib.portable.host import Host
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_receiver import as_option
from minimax_lib.tasks import TSCL, ExpandingBox
from minimax_lib.tasks.product import ProductCurriculum
from minimax_lib.tasks.spaces import Box, Discrete, Product

pytest.importorskip("gymnasium")
pettingzoo = pytest.importorskip("pettingzoo")

from gymnasium import spaces  # noqa: E402

from minimax_lib.portable.parallel_workers import ParallelWorkers  # noqa: E402
from minimax_lib.portable.task_pettingzoo import TaskParallelEnv  # noqa: E402

N = 4
NAMES = ("a", "b")
BOTH = ProductCurriculum((TSCL(N), ExpandingBox(-1.0, 1.0)))  # a task is a tuple
BOTH_SPACE = Product((Discrete(N), Box((-1.0, -1.0), (1.0, 1.0))), ("count", "range"))


class Pair(pettingzoo.ParallelEnv):
    """An agent plays one step more than its task says. It has solved it if its actions add up to the task."""

    metadata = {"name": "pair"}  # noqa: RUF012
    possible_agents = list(NAMES)  # noqa: RUF012
    observation_spaces = dict.fromkeys(NAMES, spaces.Box(0, 9, (2,), np.float32))
    action_spaces = dict.fromkeys(NAMES, spaces.Discrete(2))

    def __init__(self, fails=False):
        self.fails = fails

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        task = (options or {"task": 0})["task"]
        each = task if isinstance(task, dict) and "a" in task else dict.fromkeys(NAMES, task)
        self.tasks = {agent: int(own["count"] if isinstance(own, dict) else own) for agent, own in each.items()}
        self.agents, self.time, self.total = list(NAMES), 0, dict.fromkeys(NAMES, 0)
        return self._obs(), {agent: {} for agent in self.agents}

    def _obs(self):
        return {agent: np.array([self.tasks[agent], self.time], np.float32) for agent in self.agents}

    def step(self, actions):
        if self.fails:
            raise ArithmeticError("it is broken")
        self.time += 1
        for agent, action in actions.items():
            self.total[agent] += int(action)
        ended = {agent: self.time > self.tasks[agent] for agent in self.agents}
        rewards = {a: float(over and self.total[a] == self.tasks[a]) for a, over in ended.items()}
        obs, cut = self._obs(), dict.fromkeys(self.agents, False)
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return obs, rewards, ended, cut, {agent: {} for agent in ended}


class Told(Host):
    """Keeps what it is told."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.results: list[Any] = []

    def report(self, task, progress=None, returns=None, length=None, **told):
        super().report(task, progress, returns, length, **told)
        parts = task[0] if isinstance(task, tuple) else task
        self.results += list(zip(parts.tolist(), progress, np.atleast_1d(returns), np.atleast_1d(length), strict=True))


def hosts(kind):
    """(what chooses the tasks, all of its hosts, whether each agent has a task)."""
    if kind == "a curriculum for each":
        each = {agent: Told(TSCL(N), seed=i) for i, agent in enumerate(NAMES)}
        return each, list(each.values()), True
    host = Told(BOTH, BOTH_SPACE) if kind == "a tuple for all" else Told(TSCL(N))
    return host, [host], kind == "one for each"


KINDS = ("one for all", "one for each", "a curriculum for each", "a tuple for all")


def one_by_one(kind, n_envs, n_steps):
    """The same in one process: environments that are stepped in turns."""
    host, told, per_agent = hosts(kind)
    envs = [TaskParallelEnv(Pair(), host, as_option, per_agent) for _ in range(n_envs)]
    rng, seen = np.random.default_rng(0), []
    seen.append([env.reset() for env in envs])
    for _ in range(n_steps):
        seen.append([env.step({agent: rng.integers(2) for agent in env.agents}) for env in envs])
        seen.append([None if env.agents else env.reset() for env in envs])
    return seen, [h.results for h in told], [h.state_dict() for h in told]


def same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for x, y in zip(one, other, strict=True):
            same(x, y)
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.deep] if i % 2 else []) for i, kind in enumerate(KINDS)]
)
def test_processes_play_what_one_process_plays(kind):
    host, told, per_agent = hosts(kind)
    envs = ParallelWorkers([Pair] * 3, host, as_option, per_agent)
    rng, seen = np.random.default_rng(0), [envs.reset()]
    for _ in range(30):
        seen.append(envs.step([{agent: rng.integers(2) for agent in agents} for agents in envs.agents]))
        over = [not agents for agents in envs.agents]
        # In one process, an environment that is over draws its next task before another is stepped. The order of
        # draws and results is the same: rows in their order, first all results of a step, then the draws.
        seen.append(envs.reset(over))
    expected = one_by_one(kind, 3, 30)
    same(seen, expected[0])
    assert [h.results for h in told] == expected[1]
    same([h.state_dict() for h in told], expected[2])
    assert min(len(h.results) for h in told) > 20
    before = [h.state_dict() for h in told]
    with envs.evaluating(tasks=None if kind == "a tuple for all" else [2]):
        with pytest.raises(RuntimeError, match=r"environments \[0, 1, 2\] have no task: call reset before"):
            envs.step([{}] * 3)
        envs.reset()
        if kind != "a tuple for all":
            assert [set(tasks.values()) for tasks in envs.tasks] == [{2}] * 3
        envs.step([dict.fromkeys(NAMES, 1)] * 3)
    same([h.state_dict() for h in told], before)
    envs.close()


def test_a_process_that_fails_says_why():
    envs = ParallelWorkers([Pair, functools.partial(Pair, fails=True)], Host(TSCL(N)), as_option)
    envs.reset()
    assert envs.step([{"a": 1, "b": 1}, None])[1] is None
    for rows in ([1], [0, 1], [True]):  # numbers of rows would have been taken for a mask
        with pytest.raises(ValueError, match=r"rows is .*: it must be bool\[2\]"):
            envs.reset(rows)
    with pytest.raises(RuntimeError, match=r"environment 1 has failed:(.|\n)*ArithmeticError: it is broken"):
        envs.step([None, {"a": 1, "b": 1}])
    with pytest.raises(ValueError, match="makers is empty"):
        ParallelWorkers([], Host(TSCL(N)))
    with pytest.raises(ValueError, match=r"hosts are given for \['a'\]: there must be one for each of \['a', 'b'\]"):
        TaskParallelEnv(Pair(), {"a": Host(TSCL(N))})


def test_an_error_or_an_interrupt_in_a_step_leaves_no_answer_behind(monkeypatch):
    host = Host(TSCL(N))
    envs = ParallelWorkers([Pair] * 4, host, as_option)

    def refusing(*args, **told):
        raise ValueError("progress is 1.25")

    def interrupted(i):
        raise KeyboardInterrupt

    envs.reset()
    with monkeypatch.context() as patch:
        patch.setattr(host, "report", refusing)
        with pytest.raises(ValueError, match=r"progress is 1.25"):  # noqa: PT012
            for _ in range(N + 1):
                envs.step([dict.fromkeys(agents, 1) for agents in envs.agents])
    given = envs.reset()
    for tasks, (obs, _) in zip(envs.tasks, given, strict=True):
        np.testing.assert_array_equal(obs["a"], [tasks["a"], 0])
    assert all(len(told) == 5 for told in envs.step([dict.fromkeys(NAMES, 1)] * 4))
    monkeypatch.setattr(envs, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        envs.reset()
    assert not any(process.is_alive() for process in envs._processes)
    with pytest.raises(RuntimeError, match="have ended: make a new ParallelWorkers"):
        envs.reset()


# Ray, without a cluster: the server is called at once, in this process


class Server:
    """A `TaskServer` whose calls are answered at once."""

    def __init__(self, task_ray, core=None, space=None):
        self.own = task_ray.TaskServer(core or TSCL(N), space or Discrete(N), 0, Scoring(), None, 1)
        self.exchange = SimpleNamespace(remote=self.own.exchange)


@pytest.fixture
def ray_agents(monkeypatch):
    local = SimpleNamespace(get=lambda answer: answer, wait=lambda answers, timeout: (answers, []))
    monkeypatch.setitem(sys.modules, "ray", local)
    names = [f"minimax_lib.portable.{name}" for name in ("task_ray", "task_ray_agents")]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield [importlib.import_module(name) for name in names]
    for name in names:
        sys.modules.pop(name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_played_on_ray_is_what_the_actors_draw_and_hear(kind, ray_agents):
    task_ray, agents = ray_agents
    per_agent, several = kind == "one for each", kind == "a curriculum for each"
    core, space = (BOTH, BOTH_SPACE) if kind == "a tuple for all" else (TSCL(N), Discrete(N))
    servers = [Server(task_ray, core, space) for _ in range(2 if several else 1)]
    given = (dict(zip(NAMES, servers, strict=True)), dict.fromkeys(NAMES, space)) if several else (servers[0], space)
    envs = [agents.RemoteParallelEnv(Pair(), *given, as_option, per_agent) for _ in range(3)]
    rng, ended = np.random.default_rng(0), Counter()
    for env in envs:
        env.reset()
    for _ in range(40):
        for env in envs:
            *_, over, _, _ = env.step({agent: rng.integers(2) for agent in env.agents})
            ended.update([env.tasks[agent] for agent, is_over in over.items() if is_over and kind == "one for each"])
            if not env.agents:
                env.reset()
    n = sum(env.n_ended for env in envs)
    for env in envs:
        env.close()
        env.close()
    told = [server.own.told() for server in servers]
    assert sum(each["results"] for each in told) == n > 40
    if kind == "one for each":
        state = servers[0].own.call("state_dict")
        waiting = state["waiting['task']"][: int(state["n['waiting']"])]
        known = state["core.counts"] + np.bincount(waiting, minlength=N)
        np.testing.assert_array_equal(known, [ended[i] for i in range(N)])
    # Those under way, and some that are ready.
    assert all(each["results"] < each["drawn"] <= each["results"] + 6 + 7 for each in told)
    alone = agents.RemoteParallelEnv(Pair(), *given, as_option, per_agent, evaluates=True)
    for _ in range(3):
        alone.reset()
        while alone.agents:
            alone.step(dict.fromkeys(alone.agents, 1))
    assert [server.own.told() for server in servers] == told


@pytest.mark.deep
def test_rllib_plays_a_task_for_each_agent_on_two_workers():
    ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
    pytest.importorskip("torch")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune import register_env

    from minimax_lib.portable.task_ray import task_server
    from minimax_lib.portable.task_ray_agents import RemoteParallelEnv

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        server = task_server(TSCL(N), Discrete(N), seed=0)
        register_env(
            "pair",
            lambda config: ParallelPettingZooEnv(
                RemoteParallelEnv(Pair(), config["server"], Discrete(N), as_option, per_agent=True)
            ),
        )
        config = (
            PPOConfig()
            .environment("pair", env_config={"server": server})
            .env_runners(num_env_runners=2)
            .multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, *_, **__: "shared")
            .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
        )
        algorithm = config.build_algo()
        algorithm.train()
        told, metrics = ray.get([server.told.remote(), server.call.remote("metrics")])
        assert told["results"] > 50
        assert told["drawn"] > told["results"]
        assert np.isfinite(list(metrics.values())).all()
        algorithm.stop()
    finally:
        ray.shutdown()


def test_an_actor_chooses_opponents_that_are_files(ray_agents, tmp_path):
    from test_portable_opponents import Higher, constant, load, save

    from minimax_lib.portable.agents import Agents
    from minimax_lib.portable.one_seat import OneSeat, as_opponent

    task_ray, _ = ray_agents
    agents = Agents(tmp_path, save, load)
    server = Server(task_ray, "pfsp", agents)
    for value in (0.0, 2.0):
        server.own.call("add_agent", value)
    envs = [task_ray.RemoteTaskEnv(OneSeat(Higher(), constant), server, agents, as_opponent) for _ in range(2)]
    for _ in range(12):
        for env in envs:
            env.reset()
            while not env.step(1)[2]:
                pass
    for env in envs:
        env.close()
    assert server.own.told()["results"] == 24
    assert server.own.call("win_rates") == {0: 1.0, 1: 0.0}
    server.own.save(str(tmp_path / "state.npz"))
    again = task_ray.TaskServer("pfsp", agents, 0, Scoring(), str(tmp_path / "state.npz"), 1)
    assert again.told() == server.own.told()
    assert again.call("win_rates") == {0: 1.0, 1: 0.0}


def test_an_actor_chooses_tasks_and_opponents_at_once(ray_agents, tmp_path):
    """The same tasks as from a server of tasks alone; both are told; a saved state goes on with the same draws."""
    from test_portable_opponents import Higher, as_both, constant, load, save

    from minimax_lib.portable.agents import Agents
    from minimax_lib.portable.one_seat import OneSeat

    task_ray, _ = ray_agents
    agents = Agents(tmp_path, save, load)
    seeds = Discrete.of([10, 20, 30])
    space = Product((seeds, agents), ("task", "opponent"))
    server = Server(task_ray, ("tscl", "pfsp"), space)
    for value in (0.0, 2.0):
        server.own.call("add_agent", value)
    games = [Higher() for _ in range(2)]
    envs = [task_ray.RemoteTaskEnv(OneSeat(game, constant), server, space, as_both) for game in games]
    for _ in range(12):
        for env in envs:
            env.reset()
            while not env.step(1)[2]:
                pass
    for env in envs:
        env.close()
    host = server.own.host
    assert host.tasks.n_told["results"] == host.opponents.n_told["results"] == 24
    assert host.opponents.win_rates() == {0: 1.0, 1: 0.0}
    assert {seed for game in games for seed in game.seeds} == {10, 20, 30}
    assert {"opponents/effective"} < set(server.own.call("metrics"))
    server.own.save(str(tmp_path / "state.npz"))
    again = task_ray.TaskServer(("tscl", "pfsp"), space, 0, Scoring(), str(tmp_path / "state.npz"), 1)
    assert again.told() == server.own.told()
    for drawn, same in zip(host.draw(8), again.host.draw(8), strict=True):
        assert drawn.tolist() == same.tolist()


@pytest.mark.parametrize(
    ("core", "sentence"),
    [
        (("tscl",), r"core is a tuple of 1: give \(tasks, opponents\)"),
        (("pfsp", "tscl"), r"core is \('pfsp', 'tscl'\): its first must be a curriculum of tasks"),
        (("tscl", "plr"), r"core is \('tscl', 'plr'\): .* its second one of opponents"),
        (("tscl", "pfsp", "sp"), r"core is a tuple of 3: give \(tasks, opponents\)"),
    ],
)
def test_a_pair_of_curricula_that_is_none_is_refused_in_one_line(ray_agents, core, sentence):
    from minimax_lib.portable.agents import Agents

    task_ray, _ = ray_agents
    space = Product((Discrete(3), Agents()), ("task", "opponent"))
    with pytest.raises(ValueError, match=rf"^{sentence}[^\n]*$"):
        task_ray.TaskServer(core, space, 0, Scoring(), None, 1)
