"""Numbers of each task: what plain Python finds in all attempts, in the table, its file, its figure and the logs."""

import csv
import functools
from pathlib import Path

import numpy as np
import pytest

from minimax_lib.commands import plot
from minimax_lib.portable import statistics
from minimax_lib.portable.host import Host
from minimax_lib.portable.statistics import COLUMNS
from minimax_lib.tasks import SFL, TSCL, Uniform, UniformOver
from minimax_lib.tasks.spaces import Box, Discrete

NAMES = ("corridor", "rooms, with doors", "maze", "never tried")
N = len(NAMES)


def told_host(monkeypatch=None) -> tuple[Host, list[tuple[int, float, float, int]]]:
    """(a host, all attempts that it was told of: task, progress, return, length)."""
    host, attempts = Host(SFL(N), Discrete.of(NAMES)), []
    for k in range(20):
        rng = np.random.default_rng(k)
        task, solved = rng.integers(0, N - 1, 7), rng.random(7) < 0.4
        progress, returns, length = np.where(solved, 1, 0.5), 1e3 + rng.normal(size=7), rng.integers(1, 9, 7)
        host.report(task, progress, returns, length)
        attempts += list(zip(task.tolist(), progress, np.float32(returns), length, strict=True))
    return host, attempts


def expected(attempts, task: int) -> list[float]:
    own = np.array([attempt[1:] for attempt in attempts if attempt[0] == task], float)
    if not len(own):
        return [0] + [np.nan] * 5
    solved, returns, length = (own[:, 0] == 1).mean(), own[:, 1], own[:, 2]
    return [len(own), solved, returns.mean(), returns.std(), length.mean(), length.std()]


def test_the_table_its_file_and_a_saved_state_have_the_numbers_of_all_attempts(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_WAITING", 30)
    host, attempts = told_host()
    again = Host(SFL(N), Discrete.of(NAMES))
    again.load_state_dict(host.state_dict())
    again.statistics.save(tmp_path / "new" / "statistics.csv")
    again.statistics.save(tmp_path / "new" / "statistics.csv")  # a later one takes its place
    with open(tmp_path / "new" / "statistics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == list(NAMES)
    assert list(rows[0]) == list(COLUMNS)
    names = [name for name in COLUMNS if name not in ("number", "task", "share")]
    for task, row in enumerate(rows):
        wanted = expected(attempts, task)
        for table in (host.statistics.table(), again.statistics.table()):
            np.testing.assert_allclose([table[name][task] for name in names], wanted, rtol=1e-6)
        np.testing.assert_allclose([float(row[name] or "nan") for name in names], wanted, rtol=1e-6)
        assert float(row["share"]) == 1 / N
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    for path, message in (
        ("mine.csv", "is another table"),
        ("a.txt", "must be one that ends in .csv"),
        ("", "ends in"),
    ):
        with pytest.raises(ValueError, match=message):
            host.statistics.save(tmp_path / path)


def test_empty_reports_take_no_memory():
    host = Host(TSCL(N))
    for _ in range(5):
        host.report(np.zeros(0, np.int32), progress=[], returns=[], length=[])
    assert host.statistics is not None
    assert not host.statistics._waiting
    assert host.n_told["results"] == 0
    with pytest.raises(ValueError, match="reads the returns of attempts"):  # the checks are made
        host.report(np.zeros(0, np.int32), progress=[])


def test_what_was_not_told_is_left_out_of_a_mean():
    host = Host(Uniform(2))
    host.report([0, 1])
    host.report([0, 0], returns=[1, 3])
    table = host.statistics.table()
    assert table["attempts"].tolist() == [3, 1]
    assert table["return_mean"][0] == 2
    assert table["return_deviation"][0] == 1
    assert np.isnan(table["solved_rate"]).all()
    box = Box((0.0,), (1.0,))
    assert Host(UniformOver(box), box).statistics is None


def test_one_call_logs_shares_and_the_best_and_worst(tmp_path):
    many = Host(SFL(100))
    many.evaluated(np.linspace(0, 1, 100))
    many.report(np.repeat(np.arange(1, 41), 2), progress=np.arange(80) % 2 * (np.arange(80) > 20), length=1)
    curves = many.statistics.curves()
    kinds = {kind: [name for name in curves if name.startswith(f"task_{kind}/")] for kind in ("share", "best", "worst")}
    assert [len(names) for names in kinds.values()] == [10, 10, 10]
    assert set(kinds["share"]) == {f"task_share/{i}" for i in range(45, 55)}
    assert {curves[name] for name in kinds["best"]} == {0.5}
    assert {curves[name] for name in kinds["worst"]} == {0.0}
    few = told_host()[0]
    written = []

    class Writer:
        def add_scalar(self, *given):
            written.append(given)

    tensorboard = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path))
    few.statistics.to_tensorboard(tensorboard, step=7)
    tensorboard.close()
    assert b"task_best/maze" in next(tmp_path.iterdir()).read_bytes()
    few.statistics.to_tensorboard(Writer(), step=7)
    assert {name: value for name, value, _ in written} == few.statistics.curves()
    assert {step for _, _, step in written} == {7}
    assert sum(value for name, value, _ in written if name.startswith("task_share")) == pytest.approx(1)
    assert "task_best/never tried" not in few.statistics.curves()


def test_the_command_draws_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told_host()[0].statistics.save("statistics.csv")
    assert plot.main(["statistics.csv"]) == 0
    assert (tmp_path / "plots" / "statistics-statistics.png").stat().st_size > 1000
    with open("plots/statistics-statistics.csv", newline="") as file:
        drawn = list(csv.DictReader(file))
    assert [row["task"] for row in drawn] == list(NAMES)
    assert sum(float(row["attempts"]) for row in drawn) == 140
    with open("saved_again.csv", "w", newline="") as file:  # by a library that writes 3 as 3.0
        writer = csv.DictWriter(file, list(drawn[0]))
        writer.writeheader()
        writer.writerows(row | {"number": f"{row['number']}.0"} for row in drawn)
    assert plot.main(["saved_again.csv"]) == 0
    assert Path("plots/statistics-saved_again.csv").read_bytes() == Path("plots/statistics-statistics.csv").read_bytes()
    Host(Uniform(2)).statistics.save("empty.csv")
    assert plot.main(["empty.csv"]) == 1
    assert "not drawn: tasks of empty.csv: empty.csv has no attempt yet" in capsys.readouterr().out


def test_rewards_are_divided_by_the_spread_of_the_returns_on_their_own_task():
    pytest.importorskip("gymnasium")
    from minimax_lib.portable.task_rewards import TaskScales

    gamma, n_rows = 0.9, 3
    scales, g = TaskScales(2, n_rows, gamma, clip=1.5), np.zeros(n_rows)
    told: list[list[float]] = [[], []]
    for k in range(40):
        rng = np.random.default_rng(k)
        task, reward, ended = rng.integers(0, 2, n_rows), rng.normal(size=n_rows), rng.random(n_rows) < 0.2
        counts = rng.random(n_rows) < 0.8
        reward *= np.where(task == 0, 1, 100) * counts
        found = scales.scaled(task, reward, ended, counts)
        for row in range(n_rows):
            g[row] = gamma * g[row] + reward[row] if counts[row] else 0
            if counts[row]:
                told[task[row]].append(g[row])
        for row in range(n_rows):
            own = told[task[row]]
            # The moments begin as those of a ten-thousandth of a sample, with mean 0 and variance 1.
            mean = sum(own) / (len(own) + 1e-4)
            variance = (sum((x - mean) ** 2 for x in own) + 1e-4 * (1 + mean**2)) / (len(own) + 1e-4)
            wanted = np.clip(reward[row] / np.sqrt(variance + 1e-8), -1.5, 1.5)
            np.testing.assert_allclose(found[row], wanted, rtol=1e-4)
        g[ended] = 0


def test_scales_go_on_from_a_saved_state():
    pytest.importorskip("gymnasium")
    from minimax_lib.portable.task_rewards import TaskScales

    def step(scales):
        return scales.scaled(np.array([0, 1, 1]), np.array([1.0, 100.0, 50.0]), np.ones(3, bool))

    one, again, longer = TaskScales(2, 3), TaskScales(2, 3), TaskScales(4, 3)
    first = step(one)
    state = one.state_dict()
    again.scaled(np.array([0, 1, 1]), np.full(3, 7.0), np.zeros(3, bool))
    for scales in (again, longer):
        scales.load_state_dict(state)
    found = [step(scales).tolist() for scales in (one, again, longer)]
    assert found[0] == found[1] == found[2]
    assert found[0] != first.tolist()
    assert len(longer.count) == 4
    before = longer.state_dict()
    for arrays, message in (
        (TaskScales(2, 3, gamma=0.5).state_dict(), "saved with gamma=0.5, and this Host has gamma=0.99"),
        (TaskScales(5, 3).state_dict(), "is 5 in the saved state: it must be from 0 to 4"),
        (state | {"scales['mean']": np.ones(2)}, "is damaged in the saved state"),
    ):
        with pytest.raises(ValueError, match=message):
            longer.load_state_dict(arrays)
    np.testing.assert_equal(longer.state_dict(), before)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_trainer_sees_scaled_rewards_and_the_host_is_told_of_those_that_there_were(mode):
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from minimax_lib.portable.task_receiver import TaskReceiver, as_option
    from minimax_lib.portable.task_rewards import TaskRewards, TaskScales
    from minimax_lib.portable.task_vector import TaskVectorEnv

    class Loud(gymnasium.Env):
        """Task 1 pays a hundred times as much as task 0."""

        observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.loud, self.time = 100.0 ** options["task"], 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.time += 1
            return np.zeros(1, np.float32), self.loud * (1 + action), self.time == 4, False, {}

    host = Host(Uniform(2))
    makers = [functools.partial(TaskReceiver, Loud(), None, Discrete(3), as_option) for _ in range(3)]
    inner = TaskVectorEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode)), host)
    envs, same, rng = TaskRewards(inner), TaskScales(2, 3), np.random.default_rng(0)
    envs.reset(seed=0)
    opens = np.zeros(3, bool)
    for _ in range(60):
        tasks, actions = np.array(inner.tasks), rng.integers(0, 2, 3)
        _, reward, done, _, _ = envs.step(actions)
        raw = np.where(opens, 0, 100.0**tasks * (1 + actions))
        np.testing.assert_allclose(reward, same.scaled(tasks, raw, done, ~opens), rtol=1e-5)
        opens = done if mode == "NextStep" else opens
        if mode == "Disabled" and done.any():
            envs.reset(options={"reset_mask": done})
    assert host.statistics.table()["return_mean"][1] > 100 * host.statistics.table()["return_mean"][0] * 0.6
    assert 0.3 < envs.scales.variance[1] / envs.scales.variance[0] / 1e4 < 3

    if mode == "NextStep":
        while not envs.step(np.zeros(3, int))[2].any():
            pass
        # All wait for the step that opens their next episode. Only the row that is reset need not.
        known = envs.scales.count.sum()
        envs.reset(options={"reset_mask": np.array([False, True, False])})
        envs.step(np.zeros(3, int))
        assert envs.scales.count.sum() == pytest.approx(known + 1)
    known = envs.scales.count.copy()
    with pytest.raises(ValueError, match=r"reset_mask is int64\[2\]: it must be bool\[3\]"):
        envs.reset(options={"reset_mask": [0, 2]})
    with pytest.raises(ValueError, match=r"reset_mask is int64\[2\]: it must be bool\[3\]"):
        inner.reset(options={"reset_mask": [0, 2]})
    with envs.evaluating(tasks=[1]):
        envs.reset(seed=1)
        np.testing.assert_array_equal(envs.step(np.ones(3, int))[1], 200.0)  # as it is
    np.testing.assert_array_equal(envs.scales.count, known)
    host.grow(Discrete(3))
    envs.reset(seed=2)
    envs.step(np.ones(3, int))
    assert len(envs.scales.count) == 3
    np.testing.assert_array_equal(envs.scales.count[:2] >= known, True)
