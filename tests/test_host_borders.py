"""What a host is given from outside: wrong numbers, damaged states and names that are taken are refused in one line."""

import copy
import dataclasses
import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.envs.grid import GridWorld
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.portable.agents import Agents
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import Host
from minimax_lib.portable.levels import LevelHost
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.portable.progress import Scaled
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_rewards import TaskScales
from minimax_lib.tasks import (
    SFL,
    TSCL,
    ListedPLR,
    Manual,
    ProductCurriculum,
    SimulatedAnnealing,
    SyncedUniform,
    Uniform,
)
from minimax_lib.tasks.registry import TASK_CURRICULA
from minimax_lib.tasks.spaces import Box, Discrete, multi_discrete

NAN, INF = float("nan"), float("inf")


def is_refused(host: Any, function: Any, message: str) -> None:
    """The call is a ValueError in one line, after which the host is what it was."""
    before = host.state_dict()
    with pytest.raises(ValueError, match=message) as told:
        function()
    assert "\n" not in str(told.value)
    np.testing.assert_equal(host.state_dict(), before)


GOOD = {"progress": [0.0, 1.0], "returns": [0.0, 2.0], "length": [1, 2]}
WRONG = [
    ({"returns": [0, NAN]}, "returns is nan: it must be a finite number"),
    ({"returns": [INF, 0]}, "returns is inf: it must be a finite number"),
    ({"returns": [1e300, 0]}, r"returns is 1e\+300: it must be a finite number"),
    ({"returns": [1, 2, 3]}, r"returns is \[3\]: it must be \[2\]"),
    ({"returns": ["a", "b"]}, "returns is .*'a'.*: it must be numbers"),
    ({"progress": [0, 25.0]}, "progress is 25: it must be a finite number from 0 to 1"),
    ({"progress": [-0.5, 0]}, "progress is -0.5: it must be"),
    ({"progress": NAN}, "progress is nan"),
    ({"length": [1, -3]}, "length is -3: it must be a whole number from 0"),
    ({"length": [1, 2.5]}, "length is 2.5: it must be a whole number"),
    ({"length": 2**31}, "length is 2147483648"),
    ({"episode_return": [NAN, 0]}, "episode_return is nan"),
    ({"episode": [2, 0]}, "episode is 2"),
    ({"score": [0, INF]}, "score is inf"),
    ({"task": [0, 6]}, "task 6 was reported: tasks are the numbers 0 to 5"),
    ({"task": [0, -1]}, "task -1 was reported"),
    ({"task": [0, 0.5]}, "a task is 0.5: tasks are whole numbers"),
    ({"task": ["red ball", "blue key"]}, "a task is 'red ball': give the numbers that were drawn"),
    ({"task": [[0, 1]]}, r"tasks are \[1, 2\]: they must be \[M\]"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_numbers_of_attempts_are_refused(wrong, message):
    for core in (TSCL(6), Uniform(6)):
        host = Host(core)
        host.report([0, 1], **GOOD)
        is_refused(host, lambda host=host: host.report(**({"task": [0, 1]} | GOOD | wrong)), message)


def test_right_numbers_at_the_edges_are_taken():
    host = Host(TSCL(6))
    host.report(0, progress=1.0000000001, returns=np.float32(3.0), length=0)  # 1 in single precision
    host.report([], [], [], [])
    host.report([1, 2], progress=True, returns=[True, -1e30], length=2**31 - 1, score=[NAN, 1.0])
    assert host.draw(0).shape == (0,)
    assert np.isfinite(host.weights()).all()
    for n, message in ((-1, "n is -1: it must be a whole number from 0"), (1.5, "n is 1.5")):
        is_refused(host, lambda n=n: host.draw(n), message)


def test_wrong_numbers_of_rollouts_are_refused():
    host = Host(ListedPLR(6))
    x: dict[str, Any] = dict.fromkeys(("reward", "value"), np.zeros((3, 2)))
    x |= {"task": np.zeros((3, 2), int), "done": np.ones((3, 2), bool), "last_value": np.zeros(2)}
    host.report_rollout(**x)
    host.draw(1)
    for name in ("reward", "value", "last_value"):
        bad = np.array(x[name])
        bad.flat[-1] = NAN
        is_refused(host, lambda name=name, bad=bad: host.report_rollout(**(x | {name: bad})), f"{name} is nan")
    is_refused(host, lambda: host.report_rollout(**x, logits=np.full((3, 2, 4), NAN)), "logits is nan")
    is_refused(host, lambda: host.report_scores([1], [NAN]), "score is nan: it must be a finite number")
    is_refused(host, lambda: host.report_rollout(**(x | {"task": np.full((3, 2), 9)})), "task 9 was reported")
    steps = Host(TSCL(6))
    steps.report_steps([0, 1], [1.0, 1.0], [False, False])
    for given, message in (
        (([0, 1], [NAN, 0.0], [False, False]), "reward is nan"),
        (([0, 9], [0.0, 0.0], [False, False]), "task 9 was reported"),
        (([0, 1], [0.0, 0.0], [True, False], [25.0, 0.0]), "progress is 25"),
        (([0, 1, 2], [0.0] * 3, [True] * 3), "report_steps is told of 3 rows, and before of 2"),
        (([0, 1], [0.0, 0.0], [True, False, True]), r"done is \[3\], and there are tasks of 2 rows: it must be \[2\]"),
        (([0, 1], [0.0, 0.0], True), r"done is \[\], and there are tasks of 2 rows"),
        (([0, 1], [0.0, 0.0], [True, False], [1.0]), r"progress is \[1\]: it must be \[2\]"),
        (([0, 1], [0.0, 0.0, 0.0], [True, False]), r"reward is \[3\]: it must be \[2\]"),
    ):
        is_refused(steps, lambda given=given: steps.report_steps(*given), message)
    steps.report_steps([0, 1], [1.0, 1.0], [True, True])
    assert steps.state_dict()["waiting['returns']"][:2].tolist() == [2, 2]  # nothing was counted of what was refused
    steps.report_steps([0, 1], [1.0, 1.0], [True, True], progress=1)  # one number for all, as in `report`
    of_logits = Host(ListedPLR(6), scoring=Scoring("policy_entropy"))
    is_refused(of_logits, lambda: of_logits.report_rollout(**x, logits=np.zeros((3, 4))), r"logits is \[3, 4\]")
    is_refused(of_logits, lambda: of_logits.report_rollout(**x, logits=np.zeros((3, 1, 4))), r"logits is \[3, 1, 4\]")
    is_refused(host, lambda: host.report_rollout(**(x | {"task": [0, 1]})), r"task is \[2\] and reward \[3, 2\]")
    empty = {name: given if name == "last_value" else given[:0] for name, given in x.items()}
    is_refused(host, lambda: host.report_rollout(**empty), r"reward is \[0, 2\]: a rollout has at least one step")


def test_other_wrong_numbers_are_refused():
    host = Host(SFL(3))
    is_refused(host, lambda: host.evaluated([0.5, NAN, 0]), "between 0 and 1")
    is_refused(host, lambda: host.evaluated("high"), "rates is 'high': it must be numbers")
    is_refused(host, lambda: host.grow(8), r"the space is 8: it must be one of tasks, such as Discrete\(200\)")
    host.evaluated([0.5, NAN, 0], known=[True, False, True])

    @dataclasses.dataclass(frozen=True)
    class Measured(Uniform):
        reads_metrics = ("loss",)

        def measured(self, state, numbers):
            return state

    measured = Host(Measured(3))
    is_refused(measured, lambda: measured.report_metrics({"loss": NAN}), "loss is nan: it must be a finite number")
    for scale, shift in ((NAN, 0.0), (1.0, INF)):
        with pytest.raises(ValueError, match="it must be a finite number"):
            Scaled(scale, shift)
    for n in (0, -2):
        with pytest.raises(ValueError, match=f"TSCL has {n} tasks: there must be at least 1"):
            Host(TSCL(n))


# JAX makes a key of 32 bits: with 2**32 the tasks were those of seed 0.
@pytest.mark.parametrize("seed", ["a", 1.5, [1], None, -1, 2**32, 2**70])
def test_a_seed_is_one_of_those_that_differ(seed):
    for make in (
        lambda: Host(Uniform(3), seed=seed),
        lambda: OpponentHost("pfsp", seed=seed),
        lambda: EvaluationHost(Discrete(3), seed=seed),
    ):
        with pytest.raises(ValueError, match=r"seed is .*: it must be a whole number from 0 to 4294967295"):
            make()


def test_a_seed_of_numpy_is_the_same_number():
    host = Host(Uniform(3), seed=7)
    host.load_state_dict(Host(Uniform(3), seed=np.int64(7)).state_dict())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Host("sfl", 5), r"the space is 5: it must be one of tasks, such as Discrete\(200\)"),
        (lambda: EvaluationHost(5), "the space is 5"),
        (lambda: Host(SFL, Discrete(5)), "the core is <class '.*SFL'>: it must be a task curriculum, or the name"),
        (lambda: Host("plr", Discrete(5), scoring="max_mc"), r"scoring is 'max_mc': it must be a Scoring, such as"),
        (lambda: Host(TSCL(5), flush=2.5), "flush is 2.5: it must be a whole number, at least 1"),
        (lambda: Host(TSCL(5), draw_ahead="many"), "draw_ahead is 'many': it must be a whole number, at least 1"),
        (lambda: Discrete("five"), "the number of tasks is five: it must be a whole number, at least 1"),
        (lambda: Discrete(2.5), "the number of tasks is 2.5: it must be a whole number"),
        (lambda: OpponentHost("pfsp", agents="copies"), "agents is 'copies': it must be an Agents"),
        (lambda: OpponentHost("pfsp", capacity=2.5), "capacity is 2.5: it must be a whole number, at least 1"),
        (lambda: OpponentHost("pfsp", window="a"), "window is 'a': it must be a whole number, at least 1"),
        (lambda: Agents(__file__, print, print), "folder is .*test_host_borders.py, a file: give a folder"),
        (lambda: TaskScales(0, 2), "n_tasks is 0: it must be at least 1"),
        (lambda: TaskScales(2, -1), "n_rows is -1: it must be at least 1"),
    ],
)
def test_what_a_host_is_made_of_is_looked_at(make, message):
    with pytest.raises(ValueError, match=message) as told:
        make()
    assert "\n" not in str(told.value)


# Saved states


def told_host() -> Host:
    """A host in the middle of everything."""
    host = Host(ListedPLR(6), Discrete(6), flush=8)
    host.draw(5)
    host.report_scores([0, 1, 2], [0.5, 0.25, 1.0])
    host.draw(2)
    host.report([0, 1], progress=[0, 1], returns=[0, 1], length=[3, 4], score=[0.5, NAN])
    return host


def damaged(saved: dict[str, Any]) -> dict[str, Any]:
    """States of which each has one fault, by name."""
    found: dict[str, Any] = {}
    for name, array in saved.items():
        found[f"without {name}"] = {key: x for key, x in saved.items() if key != name}
        others: list[Any] = [None, {}, "text", [[1], [1, 2]], array[None], object(), np.array(None), array.astype("U9")]
        if array.dtype.kind in "iuf":
            others += [array - 1, array + array.dtype.type(7), array.astype(np.float64), -array - 1]
            others += [np.full_like(array, NAN), np.full_like(array, INF)] if array.dtype.kind == "f" else []
        if array.dtype.kind == "b":
            others += [~array, array.astype(int)]
        if array.dtype.kind == "U":
            others += [np.array("{"), np.array("[]"), np.array("[" * 100_000), np.array('{"seed": "3"}'), np.array(3)]
        for i, other in enumerate(others):
            same = isinstance(other, np.ndarray) and (other.dtype, other.shape) == (array.dtype, array.shape)
            if not same or other.tobytes() != array.tobytes():
                found[f"{name} {i}"] = saved | {name: other}
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    found |= {"deep": saved | {"settings": deep}, "a name in lines": saved | {"settings": np.array('{"a\\nb": "1"}')}}
    found |= {"more": saved | {"more": np.zeros(3)}, "number": saved | {3: np.zeros(3)}}
    found |= {f"a {type(x).__name__}": x for x in (None, 3, "text", [1], {1, 2}, object(), {}, np.zeros(3), b"", print)}
    return found


GIVEN = {"sequential": {"stages": ("0-2", "3-5"), "conditions": ("steps >= 9",)}, "stratified": {"strata": "s.json"}}
HOSTS: dict[str, Callable[[], Host]] = {
    name: lambda name=name: Host(TASK_CURRICULA[name](**GIVEN.get(name, {})).build(6), flush=4)  # type: ignore[misc]
    for name in TASK_CURRICULA.names()
} | {
    "manual": lambda: Host(Manual(6)),
    "synced": lambda: Host(SyncedUniform(6)),
    "annealing": lambda: Host(SimulatedAnnealing((0.0,), (1.0,), (9,)), Box((0.0,), (1.0,))),
    "product": lambda: Host(ProductCurriculum((TSCL(2), TSCL(3))), multi_discrete((2, 3))),
}


EVERY_TIME = ("tscl", "online_learning_progress", "product")


@pytest.mark.parametrize(
    "name", [*EVERY_TIME, *(pytest.param(name, marks=pytest.mark.deep) for name in HOSTS if name not in EVERY_TIME)]
)
def test_the_state_of_every_core_is_checked_before_anything_changes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text("[[0, 1, 2], [3, 4, 5]]")
    host = HOSTS[name]()
    whole = host.state_dict()
    all_are_refused(damaged(whole), host)
    # Version 1 had no checksums: what can be seen is what no core has.
    older = {key: x for key, x in whole.items() if key != "checksums"} | {"version": np.array(1, np.int32)}
    host.load_state_dict(older)
    impossible: dict[str, Any] = {}
    for key, x in older.items():
        if key not in ("version", "waiting['score']"):  # a score may be missing, and is NaN then
            wrong = [np.full_like(x, NAN)] if x.dtype.kind == "f" else [-x - 1] if x.dtype.kind == "i" else []
            wrong += [x[None], x.astype("S9"), object(), None]
            impossible |= {f"{key} {i}": older | {key: value} for i, value in enumerate(wrong) if x.size}
            impossible[f"without {key}"] = {other: value for other, value in older.items() if other != key}
    all_are_refused(impossible, host, 20)
    host.load_state_dict(whole)


def test_damaged_states_are_refused_and_change_nothing():
    host, other = told_host(), told_host()
    other.draw(9)  # so that all of what is loaded is another
    other.report_scores([3], [2.0])
    other.report_steps([1, 2], [1.0, 1.0], [False, False])
    all_are_refused(damaged(host.state_dict()), other)
    assert other.attempts.is_open.all()
    other.load_state_dict(host.state_dict())
    np.testing.assert_equal(other.state_dict(), host.state_dict())
    np.testing.assert_array_equal(other.draw(9), host.draw(9))


def all_are_refused(cases: dict[str, Any], host: Any, least: int = 90) -> None:
    """Each of at least so many states is a ValueError in one line, after which the host is what it was."""
    before = host.state_dict()
    assert len(cases) >= least
    for name, state in cases.items():
        try:
            with pytest.raises(ValueError, match=r".") as told:
                host.load_state_dict(state)
            assert "\n" not in str(told.value)
            assert len(str(told.value)) < 700
        except BaseException:
            print("the damage:", name)
            raise
    np.testing.assert_equal(host.state_dict(), before)


def refuses(host: Host, state: Any) -> bool:
    """Whether a state is refused, in one line."""
    try:
        host.load_state_dict(state)
    except ValueError as error:
        return len(str(error).splitlines()) == 1
    return False


def test_damaged_files_are_refused(tmp_path):
    host = told_host()
    before, whole = host.state_dict(), io.BytesIO()
    np.savez(whole, **before)
    data = whole.getvalue()
    host.load_state_dict(np.load(io.BytesIO(data)))
    rng, n_refused = np.random.default_rng(0), 0
    for place in rng.integers(0, len(data), 60):
        bad = bytearray(data)
        bad[place] ^= 255
        try:
            opened = np.load(io.BytesIO(bytes(bad)))
        except Exception:
            continue  # NumPy does not open it
        n_refused += refuses(host, opened)
        np.testing.assert_equal(host.state_dict(), before)
    assert n_refused > 10
    closed = np.load(io.BytesIO(data))
    closed.close()
    is_refused(host, lambda: host.load_state_dict(closed), "cannot be read from the saved state")
    objects = io.BytesIO()
    np.savez(objects, **(before | {"core.scores": np.array([{}, None])}))
    objects.seek(0)
    is_refused(host, lambda: host.load_state_dict(np.load(objects)), "'core.scores' cannot be read .*allow_pickle")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda host: pickle.loads(pickle.dumps(host))])
def test_a_host_can_be_copied(copied):
    host = told_host()
    again = copied(host)
    np.testing.assert_equal(again.state_dict(), host.state_dict())
    drawn = host.draw(9)
    np.testing.assert_array_equal(again.draw(9), drawn)
    again.report_scores([5], [9.0])
    assert (again.state_dict()["n['waiting']"], host.state_dict()["n['waiting']"]) == (1, 0)


def test_a_level_host_refuses_damaged_states_and_wrong_numbers():
    host = LevelHost(PLRSettings(capacity=8), GridWorld(EmptyRoom(height=5, width=5)), n_rows=2)
    saved = host.state_dict()
    is_refused(host, lambda: host.load_state_dict(saved | {"more": np.zeros(3)}), "knows nothing")
    name = next(name for name, x in saved.items() if name.endswith("scores") and x.dtype == np.float32)
    wrong = saved | {name: np.full_like(saved[name], NAN)}
    is_refused(host, lambda: host.load_state_dict(wrong), re.escape(repr(name)) + " is damaged in the saved state")
    host.propose()
    x: dict[str, Any] = dict.fromkeys(("reward", "value", "progress"), np.zeros((3, 2)))
    x |= {"done": np.zeros((3, 2), bool), "last_value": np.zeros(2)}
    for name in ("reward", "value", "progress", "last_value"):
        bad = np.array(x[name])
        bad.flat[0] = NAN
        is_refused(host, lambda name=name, bad=bad: host.report(**(x | {name: bad})), f"{name} is nan")
    percent = x | {"progress": np.full((3, 2), 25.0)}
    is_refused(host, lambda: host.report(**percent), "progress is 25: it must be a finite number from 0 to 1")
    host.report(**x)
