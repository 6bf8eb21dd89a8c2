"""A disk without room: every writer names the file that it could not write, and leaves no half of a new file.

A new writer belongs into WRITERS.
"""

import contextlib
import dataclasses
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from minimax_lib.commands.status import carried_out, refuse
from minimax_lib.config import Config, save_yaml
from minimax_lib.experiment.level_pictures import FOLDER, LevelPictures
from minimax_lib.experiment.writers.tensorboard import TensorBoardWriter
from minimax_lib.pictures.films import save_film
from minimax_lib.pictures.html import write_page
from minimax_lib.pictures.output import RECORD, FigureFolder
from minimax_lib.pictures.style import Picture
from minimax_lib.portable.agents import Agents
from minimax_lib.portable.statistics import TaskStatistics
from minimax_lib.store import archive
from minimax_lib.store.evaluations import write_new
from minimax_lib.store.files import append_durably, copy_aside, write_atomically
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.origin import Origin, record
from minimax_lib.store.parameters import save_params
from minimax_lib.store.tables import CsvWriter
from minimax_lib.tasks.spaces import Discrete

LONG = "x" * 2000
PARAMS = {"w": np.zeros(100, np.float32)}
PICTURE = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)


@contextlib.contextmanager
def full(room: int = 100) -> Iterator[None]:
    """A block in which no file can have more than `room` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python would keep half of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes


def level_pictures(folder: Path) -> None:
    drawing = object.__new__(LevelPictures)  # without a run
    drawing._folder = RunFolder(folder)
    drawing._write("best.png", PICTURE)


def admitted(folder: Path) -> None:
    run = RunFolder(folder)
    with run.owned():
        run.admit({"name": LONG}, False, ())


def script(folder: Path) -> None:
    from minimax_lib.commands.sweep import write_script

    @dataclasses.dataclass
    class Study:
        folder: Path
        numbers: range = range(3)

    write_script(folder / "jobs.sh", Study(folder), ["x.yaml", "--slurm", "jobs.sh"], Console(quiet=True))  # type: ignore[arg-type]


def journal(folder: Path) -> None:
    from minimax_lib.sweeps.study import Journal, lock_of

    Journal(str(folder / "journal.log"), lock_of(folder / "journal.log")).append_logs([{"x": LONG}])  # type: ignore[arg-type]


def picture_saved(folder: Path) -> None:
    picture = Picture("curve", [{"x": 1}], lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Picture, "image", lambda *_: LONG.encode())
        picture.save(folder / "curve.png")


# By the name of the file that must be named.
def put_bytes(params: bytes, file: Any) -> None:
    file.write(params)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "anything": lambda folder: write_atomically(folder / "anything", LONG),
    "lines": lambda folder: append_durably(folder / "lines", LONG),
    "copies/long.txt": lambda folder: copy_aside(folder / "long.txt", folder / "copies"),
    "agent.npz": lambda folder: save_params(folder / "agent.npz", PARAMS),
    "update-4.npz": lambda folder: archive.keep(folder, 4, PARAMS, {}),
    "settings.yaml": lambda folder: save_yaml(Config(), folder / "settings.yaml"),
    "metrics.csv": lambda folder: CsvWriter(folder / "metrics.csv", "update", -1).write([{"update": 1, "x": LONG}]),
    "origin.jsonl": lambda folder: record(folder / "origin.jsonl", Origin(0, LONG, "", "", "")),
    "statistics.csv": lambda folder: TaskStatistics(Discrete.of([LONG]), lambda: None).save(folder / "statistics.csv"),
    "opponents/copy_0": lambda folder: Agents(folder / "opponents", put_bytes, str).keep(0, LONG.encode()),
    "scores.csv": lambda folder: write_new(folder, "scores", LONG),
    "curve.png": lambda folder: FigureFolder(folder).write("curve", {"png": LONG.encode()}),
    RECORD: lambda folder: FigureFolder(folder).write("a", dict.fromkeys(map(str, range(9)), b"1")),
    "a picture/curve.png": lambda folder: picture_saved(folder / "a picture"),
    "report.html": lambda folder: write_page(folder / "report.html", LONG),
    "film.gif": lambda folder: save_film([PICTURE], folder / "film.gif"),
    f"{FOLDER}/best.png": level_pictures,
    "run/config.yaml": lambda folder: admitted(folder / "run"),
    "jobs.sh": script,
    "journal.log": journal,
}
LEFT_OVER = {"lines", "settings.yaml", "a picture/curve.png", "film.gif", "journal.log", "metrics.csv", "origin.jsonl"}


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_names_the_file_that_has_no_room(name, tmp_path, capsys):
    (tmp_path / "long.txt").write_text(LONG)
    (tmp_path / "a picture").mkdir()

    def work(_: Any) -> int:
        with full():
            WRITERS[name](tmp_path)
        return 0

    try:
        status = carried_out([], lambda _: None, work)
    except ValueError as error:  # as some commands take it
        status = refuse(error)
    assert status in (1, 2)
    told = "".join(capsys.readouterr())
    assert told.count("\n") == 1
    assert "File too large" in told
    assert re.search(rf"{re.escape(str(tmp_path / name))}\b(?!\.)", told), told
    assert not list(tmp_path.rglob("*.partial"))
    assert name in LEFT_OVER or not (tmp_path / name).exists()  # what is added to, or a person's own file


def test_curves_that_cannot_be_written_are_one_line_and_nobody_waits(tmp_path, capfd):
    pytest.importorskip("tensorboardX")
    said: list[str] = []
    writer = TensorBoardWriter(tmp_path, said.append)
    rows = [{"update": 1, "seed": seed} | {f"x{i}": float(i) for i in range(30)} for seed in (0, 1)]
    writer.write(rows)
    with full():
        for _ in range(9):
            writer.write(rows)
        writer.close()
    (line,) = said
    assert line.startswith("curves for TensorBoard cannot be written any more: [Errno 27] File too large: ")
    assert str(tmp_path) in line
    assert capfd.readouterr() == ("", "")


def test_numbers_that_are_not_finite_have_no_curve_and_no_warning(tmp_path, caplog):
    pytest.importorskip("tensorboardX")
    writer = TensorBoardWriter(tmp_path)
    writer.write([{"update": 1, "seed": 0, "a": float("nan"), "b": 1.0, "c": np.float32("inf")}])
    (curves,) = writer._seeds.values()
    names: list[str] = []
    curves.add_scalar = lambda name, *_: names.append(name)
    writer.write([{"update": 2, "seed": 0, "a": float("nan"), "b": 1.0, "c": np.float32("inf")}])
    writer.close()
    assert names == ["b"]
    assert caplog.messages == []
