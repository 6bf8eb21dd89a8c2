"""Opponents in other people's training: the bank by serial, what is kept of copies, games in which one seat learns."""

import functools
import io
import multiprocessing
import pickle
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare
from test_opponents import LEAST_P, N_SLOTS, WINDOW, PlainBank

from minimax_lib.opponents import LIVE, PFSP, DeltaUniform, Mixture
from minimax_lib.portable.agents import Agents
from minimax_lib.portable.host import Host
from minimax_lib.portable.joint_host import JointHost
from minimax_lib.portable.opponents import BLOCK, OpponentHost
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks import SFL, ListedPLR, Manual
from minimax_lib.tasks.spaces import Discrete, Product

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402
from pettingzoo import ParallelEnv  # noqa: E402

from minimax_lib.portable.exam import evaluate_tasks  # noqa: E402
from minimax_lib.portable.one_seat import OneSeat, as_opponent  # noqa: E402
from minimax_lib.portable.task_receiver import TaskReceiver  # noqa: E402
from minimax_lib.portable.task_vector import TaskVectorEnv  # noqa: E402

CORE = PFSP(N_SLOTS)


def save(params, file):
    np.save(file, params)


def load(file):
    return float(np.load(file))


def hosted(**settings):
    return OpponentHost(CORE, window=WINDOW, **settings)


# The bank


@pytest.mark.parametrize("keep", ["oldest", "spread"])
def test_serials_rates_and_copies_are_those_of_a_plain_model(keep):
    rng, host, plain = np.random.default_rng(0), hosted(keep=keep), PlainBank(0.5, keep)
    assert host.add_agent(np.array(0.5)) == 0
    n_late = 0
    for step in range(40):
        n = int(rng.integers(0, 2 * BLOCK))
        games = rng.integers(LIVE, host.n_added, n), rng.integers(0, 3, n), rng.integers(0, 3, n)
        if step % 3 == 0:
            games[0][:] = games[0][:1]  # more than a window of one copy
        host.report_games(*games)
        known = [serial for serial, _, _ in plain.copies]
        n_late += sum(serial not in known for serial in games[0])
        slots = [known.index(serial) if serial in known else LIVE for serial in games[0]]
        plain.book(slots, games[0], games[1], games[2], [True] * n)
        if rng.random() < 0.5:
            value = rng.random()
            assert host.add_agent(np.array(value)) == plain.n_added
            plain.add(value)
        kept = {serial: value for serial, value, _ in plain.copies}
        assert list(host.serials) == sorted(kept)
        assert {serial: float(host.agent(serial)) for serial in kept} == kept
        for draw in (0.0, 0.5):
            met = {c[0]: rate for c, rate in zip(plain.copies, plain.rates(draw), strict=False) if c[2]}
            assert host.win_rates(draw) == pytest.approx(met, abs=1e-6)
    assert n_late > 50
    assert host.n_games().keys() == kept.keys()


def test_draws_follow_the_weights_and_not_how_many_are_asked_for():
    host, other = hosted(seed=1), hosted(seed=1)
    for each in (host, other):
        for value in range(4):
            each.add_agent(np.array(value))
        each.report_games([0] * 8 + [2] * 3, [1] * 11, [0] * 11)
    drawn = host.draw_opponents(4000)
    parts = [other.draw_opponents(n) for n in (1, 7, 0, BLOCK, 100)]
    np.testing.assert_array_equal(np.concatenate(parts), drawn[: 108 + BLOCK])
    # Never met: (1 - 0)^2 + .01; always beaten: .01.
    expected = np.array([0.01, 1.01, 0.01, 1.01]) / 2.04
    assert list(host.weights().values()) == pytest.approx(list(expected))
    assert chisquare(np.bincount(drawn, minlength=4), 4000 * expected).pvalue > LEAST_P
    assert set(host.metrics()) >= {"opponents/copies", "opponents/win_rate", "opponents/effective"}


def test_the_student_as_it_is_now():
    host = OpponentHost(Mixture(DeltaUniform(3), 0.5), Agents(save=save, load=load))
    host.add_agent(1.0)
    assert host.agent(LIVE) == 1.0
    host.update_student(2.0)
    drawn = host.draw_opponents(200).tolist()
    assert Counter(map(host.agent, drawn)).keys() == {1.0, 2.0}
    host.report_games([LIVE, 0], [1, 1], [0, 0])
    assert host.n_games() == {0: 1}


# What is kept of copies


def test_copies_in_memory_do_not_follow_the_student_and_stay_for_games_under_way():
    host, params = OpponentHost("delta", capacity=2), {"w": np.zeros(2)}
    for i in range(5):
        params["w"][:] = i
        host.add_agent(params)
    assert [float(host.agent(serial)["w"][0]) for serial in (1, 2, 3, 4)] == [1, 2, 3, 4]  # two that have left
    with pytest.raises(ValueError, match=r"copy 0 is not in memory: it was never added, or has left the bank long ago"):
        host.agent(0)


def read_elsewhere(agents, serial, answers):
    try:
        answers.put(agents.decode(serial))
    except ValueError as error:
        answers.put(str(error))


def test_other_processes_read_files_and_are_refused_the_memory_of_this_one(tmp_path):
    agents = Agents(tmp_path / "opponents", save, load)
    agents.keep(0, 3.5)
    agents.keep(LIVE, 1.0)
    there = pickle.loads(pickle.dumps(agents))
    assert [there.decode(0), there.decode(LIVE)] == [3.5, 1.0]
    agents.keep(LIVE, 2.0)
    assert there.decode(LIVE) == 2.0
    np.save(tmp_path / "mine.npy", 7.0)
    agents.keep(1, tmp_path / "mine.npy")
    assert there.decode(1) == 7.0
    memory = Agents()
    memory.keep(0, 1.0)
    with pytest.raises(ValueError, match="in the memory of this process: give Agents a folder"):
        pickle.dumps(memory)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=read_elsewhere, args=(memory, 0, answers))
    process.start()
    assert "in the memory of another process: give Agents a folder" in answers.get(timeout=60)
    process.join()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_saved_state_goes_on(in_memory, tmp_path):
    def new():
        return hosted(agents=Agents(None if in_memory else tmp_path, save, load), keep="spread", seed=3)

    def play(host, first, n):
        seen = []
        for i in range(first, first + n):
            host.add_agent(float(i))
            drawn = host.draw_opponents(5)
            host.report_games(drawn, np.arange(5) % 3, 1)
            seen.append((drawn.tolist(), [host.agent(serial) for serial in drawn], host.win_rates()))
        return seen

    whole = play(new(), 0, 12)
    host, again = new(), new()
    assert play(host, 0, 7) == whole[:7]
    np.savez(tmp_path / "state.npz", **host.state_dict())
    again.load_state_dict(np.load(tmp_path / "state.npz"))
    assert play(again, 7, 5) == whole[7:]
    state = dict(np.load(tmp_path / "state.npz"))
    with pytest.raises(ValueError, match="saved with seed=3, and this Host has seed=4"):
        hosted(agents=Agents(None if in_memory else tmp_path, save, load), keep="spread", seed=4).load_state_dict(state)
    if in_memory:
        name = f"agents[{host.serials[-1]}]"
        state[name] = state[name][::-1]
        with pytest.raises(ValueError, match="is damaged in the saved state"):
            new().load_state_dict(state)
    else:
        with pytest.raises(ValueError, match=r"copy \d of the saved state is not in"):
            hosted(agents=Agents(tmp_path / "x", save, load), keep="spread", seed=3).load_state_dict(state)


def added(**settings):
    host = OpponentHost(**settings)
    host.add_agent(np.zeros(2))
    return host


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OpponentHost("pfps"), "unknown opponents 'pfps'.*did you mean 'pfsp'"),
        (lambda: OpponentHost(3), "opponents is 3: it must be one of"),
        (lambda: OpponentHost(CORE, capacity=3), "capacity is 3, and the opponents have 5 slots: leave it out"),
        (lambda: OpponentHost(keep="newest"), "unknown keep 'newest'"),
        (lambda: OpponentHost().draw_opponents(1), "no copy of the student has joined: call add_agent"),
        (lambda: added().report_games([1], [0], [0]), "a game with copy 1 was reported: they are 0 to 0, or -1"),
        (lambda: added().report_games([0.5], [0], [0]), "give the serials that were drawn"),
        (lambda: added().report_games([0], [np.nan], [0]), "student_return is nan"),
        (lambda: added().report([0], [2]), "progress is 2: it must be a finite number from 0 to 1"),
        (lambda: added().state_dict(), "the copies cannot be saved: give Agents `save` and `load`, or a folder too"),
        (lambda: added().add_agent("agent.pt"), "the agent is the file agent.pt: give Agents `save` and `load`"),
        (lambda: OpponentHost("sp").agent(LIVE), "the student as it is now is not in memory: call update_student"),
        (lambda: Agents(save=save), "save is given without load"),
        (lambda: Agents("here"), "folder is here: files need `save` and `load`"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# One seat learns


class Higher(ParallelEnv):
    """Two or more say a number, three times. What one says above the highest of the others is its reward."""

    metadata = {"name": "higher"}  # noqa: RUF012

    def __init__(self, n=2):
        self.possible_agents = [f"p{i}" for i in range(n)]
        self.agents = []
        self.options, self.seeds = [], []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(9)

    def reset(self, seed=None, options=None):
        self.options.append(options)
        self.seeds.append(seed)
        self.agents, self.time = list(self.possible_agents), 0
        return self._obs(), {agent: {} for agent in self.agents}

    def _obs(self):
        return {agent: np.array([int(agent[1:]), self.time], np.float32) for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.time += 1
        over = self.time == 3
        best = {a: max(x for b, x in actions.items() if b != a) for a in actions}
        told = self._obs(), {a: float(x - best[a]) for a, x in actions.items()}
        ends, cuts = dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, False)
        infos = {agent: {"own": agent} for agent in self.agents}
        if over:
            self.agents = []
        return *told, ends, cuts, infos


def constant(agent):
    """A policy that says the number that the copy is; it remembers how often it was asked."""
    asked = []

    def act(obs):
        asked.append(obs)
        assert len(asked) == int(obs[1]) + 1  # it is new in every episode
        return int(agent)

    return act


def test_one_seat_learns_and_the_others_are_the_opponent():
    env = OneSeat(Higher(3), constant)
    seats, results = Counter(), {}
    for episode in range(60):
        own = episode % 3
        obs, info = env.reset(seed=0 if episode == 0 else None, options={"opponent": 1, "map": 5})
        assert f"p{int(obs[0])}" == info["seat"] == env.seat
        seats[env.seat] += 1
        total = 0.0
        for t in range(3):
            obs, reward, terminated, truncated, info = env.step(own)
            total += reward
            assert (terminated, truncated) == (t == 2, False)
            assert info["own"] == info["seat"] == env.seat
        assert total == 3 * (own - 1)
        results[own] = info["progress"], info["opponent_return"]
    assert results == {0: (0.0, 0.0), 1: (0.5, 0.0), 2: (1.0, -3.0)}
    assert min(seats.values()) > 10
    assert env.env.options[-1] == {"map": 5}
    assert env.env.seeds[:2] == [0, None]
    with pytest.raises(ValueError, match="reset without an opponent"):
        env.reset()
    with pytest.raises(ValueError, match="seats has 'p9': it must be one of"):
        OneSeat(Higher(), constant, ["p9"])
    with pytest.raises(ValueError, match="Higher has one agent: opponents need a game for two or more"):
        OneSeat(Higher(1), constant)


def as_both(task):
    return {"seed": task["task"], "options": {"opponent": task["opponent"]}}


class Kept(OpponentHost):
    """Keeps what it is told."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.told = Counter()

    def report_games(self, serial, student_return, opponent_return):
        super().report_games(serial, student_return, opponent_return)
        self.told.update(zip(serial.tolist(), (student_return - opponent_return).tolist(), strict=True))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (SyncVectorEnv, AutoresetMode.NEXT_STEP),
        (SyncVectorEnv, AutoresetMode.SAME_STEP),
        pytest.param(AsyncVectorEnv, AutoresetMode.NEXT_STEP, marks=pytest.mark.deep),
    ],
)
def test_opponents_are_tasks_for_the_adaptors(kind, mode, tmp_path):
    in_memory = kind is SyncVectorEnv
    agents = Agents(None if in_memory else tmp_path, save, load)
    host = Kept(CORE, agents, window=WINDOW)
    for value in (0.0, 1.0, 2.0):
        host.add_agent(value)

    def maker():
        return TaskReceiver(OneSeat(Higher(), constant), None, agents, as_opponent)

    envs = TaskVectorEnv(kind([maker] * 2, autoreset_mode=mode), host)
    envs.reset(seed=0)
    for step in range(40):
        if step == 20:
            host.add_agent(3.0)
        envs.step(np.array([1, 1]))
    envs.close()
    # Always 1: it beats copy 0, and its game with copy 1 is a draw.
    outcomes = {0: 0.5, 1: 0.0, 2: -0.5, 3: -0.5}
    assert dict(host.told.keys()) == outcomes
    assert host.win_rates() == {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.0}
    assert sum(host.n_games().values()) == sum(host.told.values()) >= 18


def test_tasks_and_opponents_are_drawn_independently_and_both_are_told():
    seeds = Discrete.of([10, 20, 30])
    tasks, opponents = Host(ListedPLR(3), seeds, scoring=Scoring("one_step_td", gamma=1.0)), Kept(CORE, window=WINDOW)
    for value in (0.0, 2.0):
        opponents.add_agent(value)
    host = JointHost(tasks, opponents)
    space = Product((seeds, opponents.agents), ("task", "opponent"))
    games = [Higher() for _ in range(2)]

    def maker(i):
        return TaskReceiver(OneSeat(games[i], constant), i, space, as_both)

    envs = TaskVectorEnv(SyncVectorEnv([functools.partial(maker, i) for i in range(2)]), host)
    envs.reset()
    for _ in range(40):
        envs.step(np.array([1, 1]))
    envs.report_rollout(np.zeros((40, 2)), np.zeros(2))
    assert tasks.missing() is None
    assert tasks.n_told["results"] == sum(opponents.told.values()) == 20
    assert opponents.win_rates() == {0: 1.0, 1: 0.0}
    assert {seed for game in games for seed in game.seeds} == {10, 20, 30}
    # The same tasks and opponents as from hosts that stand alone, with the same reports.
    alone = Host(ListedPLR(3), seeds, scoring=Scoring("one_step_td", gamma=1.0))
    assert [seed for pair in zip(*(game.seeds for game in games), strict=True) for seed in pair][:2] == [
        seeds.decode(task) for task in alone.draw(2)
    ]
    with envs.evaluating():
        envs.reset()
        for _ in range(12):
            envs.step(np.array([1, 1]))
    assert sum(opponents.told.values()) == 20


def test_the_tasks_of_a_pair_are_evaluated():
    seeds, opponents = Discrete.of([10, 20, 30]), Kept(CORE, window=WINDOW)
    opponents.add_agent(0.0)
    joint = JointHost(Host(SFL(3), seeds), opponents)
    space = Product((seeds, opponents.agents), ("task", "opponent"))

    def make_envs(host):
        makers = [lambda: TaskReceiver(OneSeat(Higher(), constant), None, space, as_both)] * 2
        return TaskVectorEnv(SyncVectorEnv(makers), JointHost(host, joint.opponents.evaluation()))

    found = evaluate_tasks(lambda obs, memory, first: (np.array([1, 1]), None), make_envs, joint.tasks)
    np.testing.assert_array_equal(found.rates, [1, 1, 1])
    assert joint.tasks.missing() is None
    assert not opponents.told
    with pytest.raises(ValueError, match="host is a JointHost: give evaluate_tasks its `tasks`"):
        evaluate_tasks(None, make_envs, joint)


def test_a_pair_without_a_copy_takes_no_task_out_of_the_queue():
    queue = Manual(3)
    host = JointHost(Host(queue), OpponentHost("fsp", Agents(save=save, load=load)))
    host.tasks.change(lambda state: queue.put(state, np.int32([2])))
    with pytest.raises(ValueError, match="no copy of the student has joined"):
        host.draw(1)
    host.add_agent(1.0)
    tasks, opponents = host.draw(1)
    assert (tasks.tolist(), opponents.tolist()) == ([2], [0])


def test_a_pair_that_refuses_a_state_stays_as_it_was():
    def pair(capacity):
        opponents = OpponentHost("fsp", Agents(save=save, load=load), capacity=capacity)
        opponents.add_agent(1.0)
        return JointHost(Host(ListedPLR(3)), opponents)

    one, same, other = pair(N_SLOTS), pair(N_SLOTS), pair(2 * N_SLOTS)
    one.draw(5)
    before = other.state_dict()
    with pytest.raises(ValueError, match="and this Host has"):
        other.load_state_dict(one.state_dict())
    np.testing.assert_equal(other.state_dict(), before)
    same.load_state_dict(one.state_dict())
    np.testing.assert_equal(same.state_dict(), one.state_dict())
    np.testing.assert_equal(same.draw(9), one.draw(9))
    file = io.BytesIO()
    np.savez(file, **one.state_dict())
    damaged = bytearray(file.getvalue())
    damaged[100:130] = b"\xff" * 30
    for state, message in (
        (np.load(io.BytesIO(bytes(damaged))), "^the saved state is refused: Bad CRC"),
        (3, "^the saved state is a int: it must be the dict"),
        (one.tasks.state_dict(), "^the saved state has an array 'version': that of a JointHost has none$"),
        (one.state_dict() | {"more": np.zeros(2)}, "^the saved state has an array 'more'"),
    ):
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
    np.testing.assert_equal(other.state_dict(), before)
    file.seek(0)
    same.load_state_dict(np.load(file))
