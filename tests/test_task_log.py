"""The table of what a curriculum did in somebody's own training is what was told, and its figure shows it."""

import copy
import csv
import gc
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_full_disks import full

from minimax_lib.commands import plot
from minimax_lib.pictures.style import NotDrawn
from minimax_lib.pictures.task_logs import COLUMNS, MOST_TIMES, grid_of, task_picture
from minimax_lib.portable.host import Host
from minimax_lib.portable.log import TaskLog
from minimax_lib.tasks import TSCL, Uniform
from minimax_lib.tasks.spaces import Box, Discrete, Product

N, EVERY, EACH = 4, 25, 8
NAMES = ("corridor", "rooms, with doors", "maze", "7")


def new_host(log, every=EVERY, core=None) -> Host:
    return Host(core or TSCL(N), Discrete.of(NAMES), log=None if log is None else TaskLog(log, every))


def outcomes(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(k)
    solved = rng.random(EACH) < 0.4
    returns, length = rng.normal(size=EACH).astype(np.float32), rng.integers(1, 9, EACH)
    return {"progress": np.where(solved, 1.0, rng.random(EACH) * 0.9), "returns": returns, "length": length}


def train(host: Host, first: int, last: int) -> list[tuple[np.ndarray, dict, np.ndarray]]:
    """(tasks, what became of them, the weights before the report) of each batch."""
    found = []
    for k in range(first, last):
        tasks, told = host.draw(EACH), outcomes(k)
        found.append((np.asarray(tasks), told, host.weights()))
        host.report(tasks, **told)
    return found


def read(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def expected(batches) -> list[dict]:
    """The rows, by plain Python: an interval ends with the batch in which it has EVERY attempts."""
    rows, drawn, steps, interval, weights = [], 0, 0, [], None
    for i, (tasks, told, now) in enumerate(batches):
        weights = now if weights is None else weights
        drawn, steps = drawn + EACH, steps + int(told["length"].sum())
        interval += list(zip(tasks.tolist(), told["progress"], told["returns"], strict=True))
        if len(interval) >= EVERY or i == len(batches) - 1:
            for task in range(N):
                of = [(p == 1, r) for number, p, r in interval if number == task]
                solved, returns = np.mean(of, axis=0) if of else (np.nan, np.nan)
                rows.append(
                    {"drawn": drawn, "steps": steps, "number": task, "task": NAMES[task], "weight": weights[task],
                     "attempts": len(of), "solved_rate": solved, "return": returns}
                )  # fmt: skip
            interval, weights = [], None
    return rows


def test_what_was_not_told_is_left_out_of_a_mean(tmp_path):
    """As in `Host.statistics`."""
    host = new_host(tmp_path / "log.csv", every=5, core=Uniform(N))
    host.report([0, 1])
    host.report([0, 0, 2], returns=[1, 3, 5])
    rows = read(tmp_path / "log.csv")
    assert [(row["attempts"], row["return"], row["solved_rate"]) for row in rows] == [
        ("3", "2", ""),
        ("1", "", ""),
        ("1", "5", ""),
        ("0", "", ""),
    ]


def assert_same(found: list[dict[str, str]], wanted: list[dict]) -> None:
    assert len(found) == len(wanted)
    for row, other in zip(found, wanted, strict=True):
        assert list(row) == list(other)
        for name, value in other.items():
            if name == "task":
                assert row[name] == value
            else:
                cell = float(row[name]) if row[name] else np.nan
                np.testing.assert_allclose(cell, value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_rows_are_what_was_told(tmp_path):
    host = new_host(tmp_path / "new" / "tasks.csv")
    batches = train(host, 0, 11)
    host.log.write()
    assert_same(read(tmp_path / "new" / "tasks.csv"), expected(batches))
    host.log.write()  # nothing has ended since
    assert len(read(tmp_path / "new" / "tasks.csv")) == len(expected(batches))


def test_a_log_changes_no_draw(tmp_path):
    assert [x[0].tolist() for x in train(new_host(None), 0, 6)] == [
        x[0].tolist() for x in train(new_host(tmp_path / "a.csv", 9), 0, 6)
    ]


def test_what_has_begun_is_written_when_the_host_goes(tmp_path):
    host = new_host(tmp_path / "a.csv", every=1000)
    batches = train(host, 0, 2)
    del host
    gc.collect()
    assert_same(read(tmp_path / "a.csv"), expected(batches))


def test_what_nobody_told_is_empty(tmp_path):
    host = new_host(tmp_path / "a.csv", core=Uniform(N))
    host.report(host.draw(EACH))
    host.log.write()
    rows = read(tmp_path / "a.csv")
    assert {row["steps"] + row["solved_rate"] + row["return"] for row in rows} == {""}
    assert sum(int(row["attempts"]) for row in rows) == EACH
    assert {row["weight"] for row in rows} == {"0.25"}
    assert task_picture(tmp_path / "a.csv").image()


def test_a_name_of_several_lines_is_one_line_of_the_table(tmp_path):
    prompts = Discrete.of(["Question 0.\nAnswer with one number.", "Question 1.\r\n  Think."])
    state = None
    for _ in range(2):
        host = Host(TSCL(2), prompts, log=TaskLog(tmp_path / "a.csv", 4))
        if state is not None:
            host.load_state_dict(state)
        host.report(host.draw(4), np.ones(4), np.ones(4), np.full(4, 3))
        state = host.state_dict()
    names = ["Question 0. Answer with one number.", "Question 1. Think."]
    assert [(row["steps"], row["task"]) for row in read(tmp_path / "a.csv")] == [
        (steps, name) for steps in ("12", "24") for name in names
    ]
    assert not (tmp_path / "old_tables").exists()
    assert task_picture(tmp_path / "a.csv").image()
    host.statistics.save(tmp_path / "b.csv")
    assert [row["task"] for row in read(tmp_path / "b.csv")] == names


def test_a_resumed_training_goes_on_in_the_table(tmp_path):
    whole = new_host(tmp_path / "whole.csv")
    train(whole, 0, 5)
    whole.state_dict()
    train(whole, 5, 9)
    whole.log.write()

    first = new_host(tmp_path / "cut.csv")
    train(first, 0, 5)
    state = first.state_dict()
    train(first, 5, 8)
    first.log.write()  # of work that is lost
    second = new_host(tmp_path / "cut.csv")
    second.load_state_dict(state)
    train(second, 5, 9)
    second.log.write()
    assert (tmp_path / "cut.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert not (tmp_path / "old_tables").exists()


@pytest.mark.parametrize("writes", [False, True], ids=["killed", "interrupted"])
def test_attempts_that_are_made_again_after_a_crash_are_counted_once(tmp_path, writes):
    """The state was saved after as many draws as the row that was lost: they cannot be told apart by draws alone."""
    file = tmp_path / "tasks.csv"
    lost, again = (Host(TSCL(2), seed=0, log=TaskLog(file, every=4)) for _ in range(2))
    tasks = lost.draw(4)
    state = lost.state_dict()
    lost.report(tasks, 1.0, 1.0, 10)
    if writes:  # as a program does that ends
        lost.draw(4)
        lost.log.write()
    again.load_state_dict(state)
    again.report(again.draw(4), 1.0, 1.0, 10)
    again.report(again.draw(4), 1.0, 1.0, 10)
    rows = read(file)
    assert sum(int(row["attempts"]) for row in rows) == 8
    assert [int(row["steps"]) for row in rows] == [40, 40, 80, 80]


def test_a_copied_host_writes_nothing(tmp_path):
    host = new_host(tmp_path / "a.csv")
    batches = train(host, 0, 5)
    again = copy.deepcopy(host)
    drawn = [tasks.tolist() for tasks, *_ in train(again, 5, 9)]
    again.log.write()
    again.state_dict()
    batches += train(host, 5, 9)
    host.log.write()
    assert_same(read(tmp_path / "a.csv"), expected(batches))
    assert drawn == [tasks.tolist() for tasks, *_ in batches[5:]]
    Host(TSCL(N), log=copy.deepcopy(TaskLog(tmp_path / "b.csv")))  # one of no host is only a name


@pytest.mark.parametrize("first", [0, 4])  # nothing of the table is there, or its first interval
def test_a_log_that_cannot_be_written_does_not_stop_the_training(first, tmp_path):
    host = new_host(tmp_path / "a.csv")
    batches = train(host, 0, first)
    room = (tmp_path / "a.csv").stat().st_size if first else 0
    with full(room + 50), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batches += train(host, first, first + 8)
        host.state_dict()
    line = f"{tmp_path / 'a.csv'} cannot be written, and the training goes on without it: "
    assert [str(one.message)[: len(line)] for one in said] == [line]
    assert "File too large" in str(said[0].message)
    batches += train(host, first + 8, first + 12)
    host.log.write()
    found, whole = read(tmp_path / "a.csv"), expected(batches)
    for task in range(N):  # every attempt is in a row, once
        counts = [[int(row["attempts"]) for row in rows if int(row["number"]) == task] for rows in (found, whole)]
        assert sum(counts[0]) == sum(counts[1])
        assert len(counts[0]) < len(counts[1])
    assert [found[-1][name] for name in ("drawn", "steps")] == [str(whole[-1][name]) for name in ("drawn", "steps")]
    assert not (tmp_path / "old_tables").exists()


def test_the_table_of_another_training_is_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine\n")
    host = new_host(path)
    train(host, 0, 1)
    with pytest.warns(UserWarning, match=rf"^{path} is of another training: it begins anew, and the file as it was is"):
        host.log.write()
    assert [(kept.name, kept.read_text()) for kept in (tmp_path / "old_tables").iterdir()] == [("a.csv", "mine\n")]
    assert len(read(path)) == N


def test_bad_logs_are_refused_in_one_line(tmp_path):
    log = TaskLog(tmp_path / "a.csv")
    Host(Uniform(N), log=log)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "no folder").write_text("a file")
    reason = f"[Errno 17] File exists: '{tmp_path / 'no folder'}'"
    box = Product((Discrete(N), Box((0.0,), (1.0,))), ("a", "b"))
    for make, message in (
        (lambda: Host(Uniform(N), log=tmp_path), "a folder: it must be the name of a file, such as 'tasks.csv'"),
        (lambda: Host(Uniform(N), log=True), "log is True: it must be the name of a file, such as 'tasks.csv'"),
        (lambda: Host(Uniform(N), log=" "), "log is ' ': it must be the name of a file, such as 'tasks.csv'"),
        (lambda: Host(Uniform(N), log=TaskLog("a.csv", 0)), "every is 0: it must be at least 1"),
        (lambda: Host(Uniform(N), log=tmp_path / "no folder" / "a.csv"), f"cannot be written: {reason}"),
        (lambda: Host(Uniform(N), log=tmp_path / "pipe"), "is a pipe or a device: it must be a regular file"),
        (lambda: Host(Uniform(N), log=log), "of another Host: give each Host its own"),
        (lambda: TaskLog("a.csv").of(None, box), "and the tasks of Product cannot be listed"),
    ):
        with pytest.raises(ValueError, match=rf"^.*{re.escape(message)}$"):
            make()


def test_many_intervals_are_drawn_as_few_in_which_every_attempt_counts_alike(tmp_path):
    host = new_host(tmp_path / "a.csv", every=1)
    batches = train(host, 0, 2 * MOST_TIMES + 50)
    names, x, of_steps, cells = grid_of(read(tmp_path / "a.csv"))
    assert (names, of_steps) == (list(NAMES), True)
    assert cells["attempts"].shape == (N, -(-(2 * MOST_TIMES + 50) // 3))
    assert len(x) == cells["attempts"].shape[1] + 1
    assert x[1] == sum(told["length"].sum() for _, told, _ in batches[:3])
    assert x[-1] == sum(told["length"].sum() for _, told, _ in batches)
    for task in range(N):
        of = [(p == 1, r) for tasks, told, _ in batches[:3] for number, p, r in
              zip(tasks, told["progress"], told["returns"], strict=True) if number == task]  # fmt: skip
        assert cells["attempts"][task, 0] == len(of)
        solved, returns = np.mean(of, axis=0)
        np.testing.assert_allclose(cells["solved_rate"][task, 0], solved, rtol=1e-6)
        np.testing.assert_allclose(cells["return"][task, 0], returns, rtol=1e-5)
        np.testing.assert_allclose(cells["weight"][task, 0], np.mean([w[task] for _, _, w in batches[:3]]), rtol=1e-5)


def test_the_command_draws_logs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    host = new_host("tasks.csv")
    train(host, 0, 8)
    host.log.write()
    assert plot.main(["tasks.csv"]) == 0
    assert Path("plots/tasks-tasks.png").stat().st_size > 1000
    drawn = read("plots/tasks-tasks.csv")
    assert sum(float(row["attempts"]) for row in drawn) == 8 * EACH
    assert "written: plots/tasks-tasks.png" in capsys.readouterr().out
    header = Path("tasks.csv").read_text().split("\n")[0]
    Path("empty.csv").write_text(header + "\n")
    assert plot.main(["empty.csv"]) == 1
    assert "not drawn: tasks of empty.csv: empty.csv has no rows yet" in capsys.readouterr().out
    Path("other.csv").write_text("a,b\n1,2\n")
    assert plot.main(["other.csv"]) == 2
    assert "other.csv is a file: runs are folders" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["-1", "900000000", "0.5"])
def test_a_number_that_no_task_has_is_told(number, tmp_path):
    path = tmp_path / "tasks.csv"
    lines = [f"{10 * k},,{i},t,0.5,3,0.5,1" for k in (1, 2) for i in ("0", number if k == 1 else "1")]
    path.write_text("\n".join([",".join(COLUMNS), *lines, ""]))
    with pytest.raises(NotDrawn, match=rf"tasks.csv has '{number}' as the number of a task: it must be 0 to 3$"):
        task_picture(path)
