"""metrics.csv and eval.csv: what a crash leaves is cleaned up, what somebody else did is kept and told, never lost."""

import csv
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from saved_tables import READ, SAID
from toy_program import EVALUATION, toy_config, toy_experiment

from minimax_lib.store.files import UnreadLines
from minimax_lib.store.tables import KEYS, OLD_NAMES, OLD_TABLES, CsvWriter, old_names, read_table

WHOLE = "update,seconds,x\n1,0.5,a\n2,1.5,b\n3,2.5,c\n"


def table(tmp_path: Path, content: str | bytes | None, last: int = 3, n_rows: int | None = 3):
    """(table, what was said)."""
    path, said = tmp_path / "table.csv", []
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return CsvWriter(path, "update", last, ("seconds",), n_rows, said.append), said


def old(tmp_path: Path) -> dict[str, bytes]:
    """The copies that were kept."""
    return {path.name: path.read_bytes() for path in (tmp_path / OLD_TABLES).glob("*")}


# ---------------------------------------------------------------------------------------------- what a crash leaves


@pytest.mark.parametrize("tail", ["", "4,0.", "4", "4,0.5,\x00", "\x00\x00", "4,0.5,d\n5,0.6,e\n6,"])
def test_what_a_crash_left_is_dropped_without_a_word(tmp_path, tail):
    rows, said = table(tmp_path, WHOLE + tail)
    assert [row["x"] for row in rows.kept] == ["a", "b", "c"]
    rows.write([{"update": 4, "seconds": np.float32(0.1), "x": float("nan")}])
    assert rows.path.read_text() == f"{WHOLE}4,0.1,nan\n"
    assert said == []
    assert old(tmp_path) == {}


def test_half_a_header_is_what_a_crash_left(tmp_path):
    rows, said = table(tmp_path, "update,sec", n_rows=None)
    assert (rows.kept, said, old(tmp_path)) == ([], [], {})


def test_rows_after_the_checkpoint_are_dropped(tmp_path):
    content = "update,seconds,x\n1,0,a\n2,0,b\n2,0,c\n10,0,d\n"
    rows, said = table(tmp_path, content, last=2)
    assert [row["x"] for row in rows.kept] == ["a", "b", "c"]
    rows, said = table(tmp_path, content, last=-1, n_rows=None)
    assert (rows.kept, said) == ([], [])
    assert rows.path.read_text() == "update,seconds,x\n"


def test_a_new_column_is_empty_further_up(tmp_path):
    path = tmp_path / "table.csv"
    CsvWriter(path, "update", -1).write([{"update": 1, "x": 2}])
    CsvWriter(path, "update", 1).write([{"update": 2, "y": 3}])
    assert path.read_text() == "update,x,y\n1,2,\n2,,3\n"


OLD = "update,seed,maze,return,solved\n1,0,Up,0.5,1\n"  # as earlier versions wrote eval.csv


def test_a_table_of_an_earlier_version_goes_on_under_its_own_header(tmp_path):
    path, said = tmp_path / "table.csv", []
    path.write_text(OLD)
    rows = CsvWriter(path, "update", 1, ("seed",), 1, said.append)
    rows.write([{"update": 2, "seed": 0, "task": "Up", "return": 0.25, "solved_rate": 0.75}])
    assert path.read_text() == f"{OLD}2,0,Up,0.25,0.75\n"
    rows.write([{"update": 3, "seed": 0, "task": "Up", "return": 0.5, "solved_rate": 1.0, "facts/upright": 0.5}])
    added = OLD.replace("solved\n", "solved,facts/upright\n").replace("0.5,1\n", "0.5,1,\n")
    assert path.read_text() == f"{added}2,0,Up,0.25,0.75,\n3,0,Up,0.5,1,0.5\n"
    assert said == []
    # Readers see one name for one thing, in tables of any version.
    columns, found = read_table(path)
    assert columns == ["update", "seed", "task", "return", "solved_rate", "facts/upright"]
    assert [(row["task"], row["solved_rate"]) for row in found] == [("Up", "1"), ("Up", "0.75"), ("Up", "1")]


def test_todays_names_and_a_strangers_metrics_are_no_names_of_an_earlier_version(tmp_path):
    for header in ("update,seed,task,return,solved_rate", "update,clock,seed,maze,solved", "update,solved"):
        path = tmp_path / "table.csv"
        path.write_text(f"{header}\n")
        assert read_table(path)[0] == header.split(",")
        assert old_names(header.split(",")) == {}
    assert old_names(["seed", "maze", "solved_rate"]) == {"task": "maze"}  # the files of an evaluation


# ---------------------------------------------------------------------------------------------- what somebody did


def test_other_line_breaks_a_mark_empty_lines_and_no_last_break_are_read(tmp_path):
    content = "\ufeff" + WHOLE.replace("\n", "\r\n").replace("2,1.5", "\r\n2,1.5").removesuffix("\r\n")
    rows, said = table(tmp_path, content)
    assert said == []
    assert rows.path.read_text() == WHOLE


@pytest.mark.parametrize(
    ("content", "n_kept", "why"),
    [
        (WHOLE.replace(",", ";"), 0, "line 1 names no column 'update', 4 lines cannot be read, it has 0 of its 3 rows"),
        (WHOLE[3:], 0, "line 1 names no column 'update'"),
        (WHOLE.replace("x", "update"), 0, "line 1 names a column twice"),
        (WHOLE.partition("\n")[2], 0, "line 1 names no column 'update'"),
        (WHOLE.replace("1.5", "1.5 s"), 2, "line 3 has no number in column 'seconds', it has 2 of its 3 rows"),
        (WHOLE.replace("1.5", "nan"), 2, "line 3 has no number in column 'seconds'"),
        (WHOLE.replace("\n2,", "\ntwo,"), 2, "line 3 has no number in column 'update'"),
        (WHOLE.replace("2.5,c", "2,5,c"), 2, "line 4 has 4 cells of 3"),
        (WHOLE.replace("\n2,", '\n"2,'), 2, "line 3 is not CSV (unexpected end of data)"),
        (WHOLE.encode().replace(b"b", b"\xff"), 2, "line 3 is not UTF-8 text"),
        (f"{WHOLE}{'x' * 200_000}\n", 3, "line 5 is not CSV (field larger than field limit (131072))"),
        (f"{WHOLE}\0\0\n", 3, "line 5 has 1 cells of 3"),
        (WHOLE.replace("2,1.5,b\n", ""), 2, "it has 2 of its 3 rows"),
        (WHOLE.replace("2,1.5,b\n", "2,1.5,b\n2,1.5,b\n"), 4, "it has 4 of its 3 rows"),
        (WHOLE[: WHOLE.index("3,")] + "3,2", 2, "it has 2 of its 3 rows"),
        ("", 0, "it has 0 of its 3 rows"),
    ],
)
def test_what_cannot_be_read_is_kept_in_a_copy_and_told_in_one_line(tmp_path, content, n_kept, why):
    rows, said = table(tmp_path, content)
    assert len(rows.kept) == n_kept
    (line,) = said
    assert line.startswith(f"{rows.path} has been changed: {why}")
    assert line.endswith(f"the file as it was is kept in {tmp_path / OLD_TABLES / 'table.csv'}")
    assert "\n" not in line
    assert old(tmp_path) == {"table.csv": content if isinstance(content, bytes) else content.encode()}
    rows.write([{"update": 4, "seconds": 3.5, "x": "d"}])
    assert [row["update"] for row in read_table(rows.path)[1]] == [row["update"] for row in rows.kept] + ["4"]
    # What is there now is the run's own: it is not told again.
    assert table(tmp_path, rows.path.read_bytes(), last=4, n_rows=n_kept + 1)[1] == []


def test_a_table_that_is_gone_is_told_and_copies_take_no_place_twice(tmp_path):
    _, said = table(tmp_path, None)
    assert said == [f"{tmp_path / 'table.csv'} has been taken away: it has 0 of its 3 rows"]
    for content in ("a", "b", "c"):
        table(tmp_path, content + "\n", n_rows=None)
    assert old(tmp_path) == {"table.csv": b"a\n", "table-1.csv": b"b\n", "table-2.csv": b"c\n"}


def test_any_bytes_are_kept(tmp_path):
    """Random damage to a table: what it holds afterwards was there before, or a copy of all of it is kept."""
    chance = random.Random(0)
    for i in range(200):
        content = bytearray(WHOLE.encode())
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.choice(b',;"\n\r\0x9\xff')
        folder = tmp_path / str(i)
        folder.mkdir()
        rows, said = table(folder, bytes(content))
        assert len(said) == len(old(folder)) <= 1
        if not said:  # all is still there, and in its order
            assert len(rows.kept) == 3
            before, now = bytes(content).decode().replace("\r", ""), rows.path.read_text()
            assert [row for row in csv.reader(before.split("\n")) if row] == list(csv.reader(now.splitlines()))


def test_a_table_is_looked_at_again_before_every_write(tmp_path):
    rows, said = table(tmp_path, WHOLE)
    rows.path.unlink()
    rows.write([{"update": 4, "seconds": 3.5, "x": "d"}])
    assert rows.path.read_text() == "update,seconds,x\n4,3.5,d\n"
    assert said == [f"{rows.path} has been taken away: it has 0 of its 3 rows"]
    rows.path.write_text(rows.path.read_text().replace(",", ";") + "more")
    rows.write([{"update": 5, "seconds": 4.5, "x": "e"}])
    assert rows.path.read_text() == "update,seconds,x\n5,4.5,e\n"
    assert old(tmp_path) == {"table.csv": b"update;seconds;x\n4;3.5;d\nmore"}
    assert len(said) == 2


# ---------------------------------------------------------------------------------------------- in a run


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The folder of a run that has come half of the way."""
    return train(tmp_path_factory.mktemp("half"), n_updates=12)


def train(folder: Path, **settings) -> Path:
    config = toy_config(folder, **settings)
    toy_experiment(config).train()
    return config.run_folder


def test_a_run_goes_on_with_tables_that_a_spreadsheet_has_saved(half, tmp_path, capsys):
    """With semicolons, and a word in a column of numbers: the rows before are in the copies, those after are there."""
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    evaluations = (folder / "eval.csv").read_text()
    metrics = (folder / "metrics.csv").read_text().replace(",", ";")
    (folder / "metrics.csv").write_text(metrics)
    (folder / "eval.csv").write_text(evaluations.replace("\n6,0,", "\nsix,0,", 1))
    train(tmp_path, resume=True)
    said = capsys.readouterr().out
    assert "metrics.csv has been changed: line 1 names no column 'clock', 13 lines cannot be read" in said
    assert "eval.csv has been changed: line 6 has no number in column 'update', it has 11 of its 12 rows" in said
    assert (folder / OLD_TABLES / "metrics.csv").read_text() == metrics
    assert sorted({int(row["update"]) for row in read_table(folder / "metrics.csv")[1]}) == [14, 16, 18, 20, 22, 24]
    assert len(read_table(folder / "eval.csv")[1]) == 5 * 2 * 2 - 1


def test_a_run_of_an_earlier_version_goes_on_under_its_own_header(half, tmp_path):
    """As if its first half had been trained by the version that called the columns `maze` and `solved`."""
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    columns, before = read_table(folder / "eval.csv")
    header = ",".join(columns)
    for name, earlier in OLD_NAMES.items():
        header = header.replace(name, earlier)
    content = (folder / "eval.csv").read_text().splitlines(keepends=True)
    (folder / "eval.csv").write_text("".join([f"{header}\n", *content[1:]]))
    train(tmp_path, resume=True)
    assert (folder / "eval.csv").read_text().splitlines()[0] == header == "update,seed,maze,return,solved"
    found, rows = read_table(folder / "eval.csv")
    assert (found, rows[: len(before)], len(rows)) == (columns, before, 5 * 2 * 2)
    assert all(row["task"] in EVALUATION.names and float(row["solved_rate"]) >= 0 for row in rows)
    assert not (folder / OLD_TABLES).exists()


@pytest.mark.deep
def test_tables_of_lost_checkpoints_are_kept(half, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    shutil.rmtree(folder / "checkpoints")
    before = {name: (folder / name).read_bytes() for name in ("metrics.csv", "eval.csv")}
    train(tmp_path, resume=True, n_updates=2)
    assert "there is no checkpoint of the 12 updates" in capsys.readouterr().out
    assert {name: (folder / OLD_TABLES / name).read_bytes() for name in before} == before
    assert {row["update"] for row in read_table(folder / "metrics.csv")[1]} == {"2"}


@pytest.mark.deep
def test_rows_of_a_run_that_had_no_checkpoint_yet_are_written_again_without_a_word(half, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(half, folder)
    shutil.rmtree(folder / "checkpoints")
    content = (folder / "metrics.csv").read_text().splitlines(keepends=True)
    (folder / "metrics.csv").write_text("".join(content[:3]))  # update 2, of both seeds
    train(tmp_path, resume=True, n_updates=2)
    assert not (folder / OLD_TABLES).exists()
    assert "old" not in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- for readers

SMALL = "update,seed,env_steps,seconds,return\n" + "".join(
    f"{update},{seed},{100 * update},{update}.5,{seed}.25\n" for update in (2, 4, 6) for seed in (0, 1)
)


@pytest.mark.parametrize("how", READ)
def test_what_other_programs_have_saved_is_read_right(how, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(SMALL)
    as_it_was = read_table(path, KEYS)
    path.write_bytes(READ[how](SMALL.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, KEYS) == as_it_was
    said: list[str] = []
    assert CsvWriter(path, "update", 6, ("seed",), 6, said.append).kept == as_it_was[1]
    assert said == []


@pytest.mark.parametrize("how", SAID)
def test_what_cannot_be_read_is_said_to_readers(how, tmp_path):
    change, said = SAID[how]
    path = tmp_path / "metrics.csv"
    path.write_bytes(change(SMALL.encode()))
    line = told_by(lambda: read_table(path, KEYS))
    assert line.startswith(str(path))
    assert said in line
    assert "\n" not in line


def told_by(read) -> str:
    """The one thing that a reader says: why nothing can be read, or which lines are left out."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            read()
        except ValueError as error:
            assert not told
            return str(error)
    (one,) = told
    assert one.category is UnreadLines
    return str(one.message)


def test_a_warning_names_some_of_the_lines(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("update,seed,return\n" + "1,0\n" * 9)
    more = "(lines with faults too: 3, 4, 5, 6, 7, and 3 more)"
    assert told_by(lambda: read_table(path, KEYS)) == f"{path}: line 2 has 2 cells of 3 {more}"
    path.write_text("update,seed,return\n1,0,nan\n2,0,-inf\n3,0,\n4,0,x\n")
    fault = "line 5 has 'x' in column 'return', which is no number"
    assert told_by(lambda: read_table(path, KEYS)) == f"{path}: {fault}"
    path.write_text("update,seed,maze,solved\n1,0,x,1\n")  # of an earlier version: text is text
    assert read_table(path, KEYS)[1][0]["task"] == "x"
