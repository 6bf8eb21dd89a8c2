"""Every reader is given the same damaged and hostile files: each is refused at once, in one line that names the file.

A new reader belongs into READERS, and a new kind of damage into FILES or ARCHIVES.
"""

import ast
import contextlib
import importlib.util
import io
import os
import re
import resource
import signal
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import minimax_lib
from minimax_lib.config.files import read_yaml
from minimax_lib.config.shipped import ABOUT as AGENT
from minimax_lib.config.shipped import about_agent, summary
from minimax_lib.envs.maze.convert import PARTS, maze_called, names_in
from minimax_lib.files import UnreadableFile, holds, read_arrays
from minimax_lib.pictures.html import write_page
from minimax_lib.pictures.output import FigureFolder
from minimax_lib.portable.host import Host
from minimax_lib.store import archive
from minimax_lib.store.checkpoint import CheckpointError, Checkpoints, placed
from minimax_lib.store.evaluations import write_new
from minimax_lib.store.files import append_durably, copy_aside
from minimax_lib.store.folder import RunFolder, RunRefused
from minimax_lib.store.origin import origin_of, read_origins, record
from minimax_lib.store.parameters import about_params, forms_of, load_params, npz_bytes
from minimax_lib.store.provenance import configuration_of, words_of
from minimax_lib.store.tables import KEYS, CsvWriter, parsed, read_table
from minimax_lib.tasks.files import read_strata
from minimax_lib.tasks.interesting import Interesting
from minimax_lib.tasks.spaces import Discrete
from minimax_lib.tasks.tscl import TSCL

SECONDS = 5  # a reader may take; what once hung took a minute and more
MEMORY = 600_000  # kilobytes by which the process may grow
PARAMS = {"a": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3, np.float32)}}


# ------------------------------------------------------------------------------------------------ the files


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**33)


FILES: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to a pipe": lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")),
    "8 GB of nothing": sparse,
    "a folder": lambda path: path.mkdir(),
}
DAMAGED: dict[str, bytes] = {  # a reader may find something in them, and must not break
    "nothing": b"",
    "zeros": bytes(100_000),
    "noise": np.random.default_rng(0).bytes(100_000),
    "deep": b"[" * 200_000,
    "deep names": b'{"a":' * 100_000,
    "UTF-16": "update,seed,return\n1,0,0.5\n".encode("utf-16"),
    "no end of line": b"1," * 100_000,
    "a long number": b"9" * 100_000,
    "an empty zip file": b"PK\x05\x06" + bytes(18),
    "half": b"PK\x03\x04 broken",
}


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as found:
        for name, content in members.items():
            found.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: Any, **changes: Any) -> bytes:
    """An array as NumPy writes it; `changes` are of its header."""
    array, file = np.asarray(array), io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | changes
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + array.tobytes()


def with_all(**others: bytes) -> dict[str, bytes]:
    """Members that every reader of archives looks for, with some in their place."""
    known = {"about": npy("{}"), "params/a": npy(np.zeros(2, np.float32)), "version": npy(np.int32(2))}
    return known | {name: npy(np.zeros((1, 3, 3), int)) for name in PARTS} | others


@cache
def whole() -> bytes:
    return zipped(with_all(), zipfile.ZIP_DEFLATED)


def replaced(place: int, new: bytes) -> bytes:
    content = bytearray(whole())
    content[place : place + len(new)] = new
    return bytes(content)


def of_directory(offset: int, new: bytes) -> bytes:
    """With these bytes in the first member, as the list of members has it."""
    return replaced(whole().index(b"PK\x01\x02") + offset, new)


def many(n: int) -> bytes:
    """A list of `n` members, all of one array."""
    one = zipped({"x": npy(np.zeros(1))})
    at = one.index(b"PK\x01\x02")
    entry, end = one[at : at + 46 + 5], bytearray(one[-22:])
    end[8:12] = struct.pack("<HH", *[min(n, 0xFFFF)] * 2)
    end[12:16] = struct.pack("<I", n * len(entry))
    return one[:at] + entry * n + bytes(end)


@cache
def bomb() -> bytes:
    """110 MB of zeros, in 100 kB."""
    file, n = io.BytesIO(), 110_000_000
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as found:
        found.writestr("about.npy", npy("{}"))
        with found.open("params/a.npy", "w") as member:
            member.write(npy(np.zeros(0, np.uint8), shape=(n,)))
            for _ in range(n // 1_000_000):
                member.write(bytes(1_000_000))
    return file.getvalue()


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        found.writestr("params/a.npy", npy(np.zeros(2)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            found.writestr("params/a.npy", npy(np.zeros(2)))
    return file.getvalue()


BIG = (1_000_000, 1_000_000)  # of f32: 3.6 TiB
ARCHIVES: dict[str, Callable[[], bytes]] = {
    "a header that claims 3.6 TiB": lambda: zipped({name: npy(np.zeros(2), shape=BIG) for name in with_all()}),
    "a bomb": bomb,
    "100,000 members": lambda: many(100_000),
    "a long list of members": lambda: many(200_000),
    "20,000 members": lambda: many(20_000),
    "a name twice": twice,
    "an encrypted member": lambda: of_directory(8, b"\x01\x00"),
    "a compression that nobody has": lambda: of_directory(10, b"\x63\x00"),
    "a size that is none": lambda: of_directory(24, b"\xff\xff\xff\x7f"),
    "a place that is none": lambda: of_directory(42, b"\xff\xff\xff\x7f"),
    "a wrong checksum": lambda: of_directory(16, b"\x01\x02\x03\x04"),
    "a damaged stream": lambda: replaced(60, b"\xff" * 30),
    "a comment behind it": lambda: whole()[:-2] + b"\x04\x00abcd",
    "half of it": lambda: whole()[: len(whole()) // 2],
    "objects": lambda: zipped(with_all(**{name: npy_of_objects() for name in with_all()})),
    "no array": lambda: zipped(dict.fromkeys(with_all(), b"no array")),
    "a header of brackets": lambda: zipped(dict.fromkeys(with_all(), b"\x93NUMPY\x01\x00\x88\x13" + b"(" * 5000)),
    "a header without an end": lambda: zipped(dict.fromkeys(with_all(), b"\x93NUMPY\x02\x00\xff\xff\xff\xff{")),
    "a header of version 9": lambda: zipped(dict.fromkeys(with_all(), b"\x93NUMPY\x09\x00\x00\x00")),
    "a negative shape": lambda: zipped(dict.fromkeys(with_all(), npy(np.zeros(2), shape=(-1, -2)))),
    "a shape of nothing": lambda: zipped(dict.fromkeys(with_all(), npy(np.zeros(0), shape=(0, 2**62)))),
    "numbers of no bytes": lambda: zipped(dict.fromkeys(with_all(), npy(np.zeros(0), descr="|S0", shape=(2**40,)))),
    "records": lambda: zipped(dict.fromkeys(with_all(), npy(np.zeros(2, [("a", "f4")])))),
    "other types": lambda: zipped(dict.fromkeys(with_all(), npy(np.zeros(2, "M8[s]")))),
}
ONLY_PARAMS: dict[str, Callable[[], bytes]] = {
    "a member and a branch": lambda: zipped(with_all(**{"params/a/b": npy(np.zeros(2))})),
    "deep names": lambda: zipped({"params/" + "a/" * 1000: npy(np.zeros(2)), "about": npy("{}")}),
    "an array of text": lambda: zipped({"about": npy(["{}", "{}"]), "params/a": npy(["a"])}),
    "words that are too long": lambda: zipped({"about": npy("x" * 2_000_000)}),
}


def npy_of_objects() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{}, None], object), allow_pickle=True)
    return file.getvalue()


# ------------------------------------------------------------------------------------------------ the readers


def words(path: Path) -> Any:
    folder = path.with_name(f"{path.name}-checkpoint")
    (folder / "integrity").mkdir(parents=True)
    path.rename(folder / "integrity" / "metadata")
    return words_of(folder)


def agent(path: Path) -> Any:
    folder = path.with_name(f"{path.name}-agent")
    folder.mkdir()
    path.rename(folder / AGENT)
    return about_agent(folder)


def journal(path: Path) -> Any:
    from minimax_lib.sweeps.study import mend

    mend(path)


def log(path: Path) -> Any:
    from minimax_lib.sweeps.work import last_words

    return last_words(path, 0, 1)


def task_server(path: Path) -> None:
    from minimax_lib.portable.scoring import Scoring
    from minimax_lib.portable.task_ray import TaskServer

    TaskServer(TSCL(3), Discrete(3), 0, Scoring(), str(path), 1)


def last_of_table(path: Path) -> Any:
    from minimax_lib.sweeps.table import last_rows

    return last_rows(path, 2)


TABLES: dict[str, Callable[[Path], Any]] = {
    "a table": lambda path: read_table(path, KEYS),
    "a table that goes on": lambda path: CsvWriter(path, "update", 9, ("seed",), say=lambda _: None),
    "a table and its faults": parsed,
    "the end of a table": last_of_table,
    "origins": read_origins,
    "the origin of another process": lambda path: record(path, origin_of(0, "cpu")),
    "settings": read_yaml,
    "the words of a checkpoint": words,
    "strata": lambda path: read_strata("runner.core.strata", str(path), ["0", "1"]),
    "interesting tasks": lambda path: Interesting.of_json(path, ["0", "1"]),
    "a trained agent": agent,
    "the first line of a configuration": summary,
    "the journal of a sweep": journal,
    "the log of a trial": log,
    "a row more": lambda path: append_durably(path, "1\n"),
    "a copy": lambda path: copy_aside(path, path.with_name("copies")),
    "mazes as text": lambda path: maze_called(str(renamed(path, ".txt"))),
}
MAY_BE_LARGE = {"a row more", "the log of a trial"}  # what is written, and what is read from its end
READERS: dict[str, Callable[[Path], Any]] = {
    "arrays": read_arrays,
    "parameters": load_params,
    "words about parameters": about_params,
    "replays": minimax_lib.load_replay,
    "the archive of a run": lambda path: archive.read(renamed(path, "", "update-3"), forms_of(PARAMS)),
    "mazes": lambda path: maze_called(str(renamed(path, ".npz"))),
    "a host's state": lambda path: of_host(path),
}
if importlib.util.find_spec("ray"):
    READERS["the file of a task server"] = lambda path: task_server(path)
HOST = cache(lambda: Host(TSCL(3)))


def renamed(path: Path, ending: str, name: str | None = None) -> Path:
    return path.rename(path.with_name((name or path.name) + ending))


def of_host(path: Path) -> None:
    """As a user does it, who knows what file it is. What NumPy itself does not open is no file of ours."""
    try:
        arrays = np.load(path)
    except Exception as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    try:
        HOST().load_state_dict(arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """A block that may neither wait nor fill the memory."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()

    def stop(*_: Any) -> None:
        raise AssertionError("it waits")

    known = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)  # of a busy machine's time; what waits would do so for ever
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, known)
    assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY


def refusal(read: Callable[[Path], Any], path: Path) -> str:
    """What a reader says; empty where it has found something."""
    try:
        with at_once():
            read(path)
    except (ValueError, OSError) as error:
        told = str(error)
    else:
        return ""
    assert len(told.splitlines()) == 1, told
    assert path.parent.name in told, told  # of the folder's name, since some readers want a name of their own
    return told


def places(tmp_path: Path) -> Iterator[Path]:
    """New paths, each in a folder of its own."""
    for i in range(100):
        folder = tmp_path / f"hostile-{i}"
        folder.mkdir()
        yield folder / "file"


@pytest.mark.parametrize("name", [*TABLES, *READERS])
@pytest.mark.filterwarnings("ignore::minimax_lib.store.files.UnreadLines")
def test_only_regular_files_of_a_reasonable_size_are_read(name, tmp_path):
    read = (TABLES | READERS)[name]
    for (kind, make), path in zip(FILES.items(), places(tmp_path), strict=False):
        is_large = kind == "8 GB of nothing"
        # NumPy opens what a host is given, and would wait for a pipe.
        if (name in MAY_BE_LARGE and is_large) or (name == "a host's state" and not is_large):
            continue
        make(path)
        told = refusal(read, path)
        assert told, kind
        if not is_large and kind != "a folder":
            assert "is a pipe or a device: it must be a regular file" in told
        elif is_large and name in TABLES:
            assert "bytes at most, and has 8,589,934,592" in told


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.filterwarnings("ignore::minimax_lib.store.files.UnreadLines")
def test_damaged_files_break_no_reader(name, tmp_path):
    for (_, content), path in zip(DAMAGED.items(), places(tmp_path), strict=False):
        path.write_bytes(content)
        refusal(TABLES[name], path)


@pytest.mark.parametrize("name", READERS)
def test_hostile_archives_are_refused_before_they_are_unpacked(name, tmp_path):
    cases: dict[str, Callable[[], bytes]] = {kind: lambda content=content: content for kind, content in DAMAGED.items()}
    cases |= ARCHIVES | ({} if name in ("arrays", "mazes", "a host's state") else ONLY_PARAMS)
    if name == "a host's state":
        cases = {kind: make for kind, make in cases.items() if "member" not in kind}  # NumPy reads all of the list
    for (kind, make), path in zip(cases.items(), places(tmp_path), strict=False):
        path.write_bytes(make())
        told = refusal(READERS[name], path)
        assert told or (name, kind) in FOUND, kind


# Where the damage is not in what the reader looks at.
FOUND = {
    *(("words about parameters", kind) for kind in ("a member and a branch", "deep names", "an empty zip file")),
    ("arrays", "an empty zip file"),
}


def test_what_is_good_is_read(tmp_path):
    """Also through a link, and compressed."""
    place = tmp_path / "real"
    place.write_bytes(npz_bytes(PARAMS, {"update": 3}))
    link = tmp_path / "update-3.npz"
    link.symlink_to(place)
    update, found, about = archive.read(link, forms_of(PARAMS))
    assert (update, about) == (3, {"update": 3})
    jax.tree.map(np.testing.assert_array_equal, found, PARAMS)
    np.savez_compressed(tmp_path / "small.npz", x=np.zeros((1000, 1000)), y=np.array("text"), z=np.zeros((0, 3)))
    assert {name: x.shape for name, x in read_arrays(tmp_path / "small.npz").items()} == {
        "x": (1000, 1000), "y": (), "z": (0, 3)
    }  # fmt: skip
    with pytest.raises(UnreadableFile, match=r"update-3.npz does not hold the parameters of this run"):
        archive.read(link, forms_of({"a": {"w": PARAMS["a"]["w"]}}))


def test_a_file_over_2_gb_has_its_list_in_another_record(tmp_path):
    path = tmp_path / "large.npz"
    with zipfile.ZipFile(path, "w") as found:
        found.writestr("x.npy", npy(np.arange(3)))
        found.start_dir = 2**31  # as if members before it had taken all this room
        found.fp.seek(2**31)
    assert path.stat().st_size > 2**31
    np.testing.assert_array_equal(read_arrays(path)["x"], np.arange(3))


def test_files_in_the_way_of_writers_are_left_alone(tmp_path):
    for (kind, make), path in zip(FILES.items(), places(tmp_path), strict=False):
        folder = path.parent
        for name in (".minimax-plot.json", "a.png", "page.html", "scores.csv"):
            make(folder / name)
        with at_once():
            assert not holds(folder / "a.png", b"1")
            assert write_page(folder / "page.html", "x").name == "page-2.html"
            assert write_new(folder, "scores", "x\n").name == "scores-2.csv"
            if kind != "a folder":  # in the place of the record of figures
                assert FigureFolder(folder).write("a", {"png": b"1"})[0].name == "a-2.png"


def test_a_signature_that_is_no_file_keeps_a_run_from_its_folder(tmp_path):
    os.mkfifo(tmp_path / ".owner")
    with at_once(), pytest.raises(RunRefused, match="is a pipe or a device"), RunFolder(tmp_path).owned():
        pass


@pytest.mark.parametrize(
    "kind",
    ["a pipe", *(pytest.param(kind, marks=pytest.mark.deep) for kind in FILES if kind not in ("a pipe", "a folder"))],
)
def test_hostile_files_in_a_checkpoint_are_not_given_to_orbax(kind, tmp_path):
    def state() -> Any:
        return {"w": jnp.arange(4.0)}

    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, state())
    [*files] = (path for path in (tmp_path / "run" / "1").rglob("*") if path.is_file())
    assert len(files) > 3
    for file in files[:: len(files) // 3]:
        content = file.read_bytes()
        file.unlink()
        FILES[kind](file)
        with at_once(), Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
            with pytest.raises(CheckpointError, match=r"no checkpoint in .* pipe or a device|too large"):
                checkpoints.restore(placed(jax.eval_shape(state)))
            if file.parent.name == "integrity":
                assert configuration_of(tmp_path / "run") is None
        file.unlink()
        file.write_bytes(content)


def test_a_name_in_lines_is_told_in_one(tmp_path):
    path = tmp_path / "a\nb.npz"
    for content in (b"", zipped({"x\ny": b"z"}), zipped({"params/x\ny": npy(["a"])})):
        path.write_bytes(content)
        with pytest.raises(UnreadableFile) as told:
            load_params(path)
        assert len(str(told.value).splitlines()) == 1
        assert r"a\nb.npz" in str(told.value)


def test_names_of_mazes_in_a_folder_pass_over_nothing(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with at_once(), pytest.raises(ValueError, match=r"a.txt is a pipe or a device"):
        names_in(tmp_path)


# ------------------------------------------------------------------------------------------------ one place

# Files of the package itself and of the system, and what was written a moment ago.
OWN = {
    "files.py",
    "envs/lasertag/maps.py",
    "envs/maze/ood.py",
    "envs/nmmo/tables.py",
    "experiment/hardware.py",
    "pictures/films.py",
    "pictures/html.py",
}
READS = {"read_text", "read_bytes", "fromfile", "memmap", "loadtxt", "genfromtxt", "ZipFile"}


def test_no_other_module_reads_files():
    """A reader that opens its files elsewhere has no bounds: `minimax_lib.files` has what it needs."""
    package = Path(minimax_lib.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    hints = re.compile("|".join((*READS, r"\bopen\(", r"np\.load")))  # to parse a few files alone
    found = {
        name: [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and reads(node)]
        for name, text in texts.items()
        if hints.search(text)
    }
    assert {name for name, lines in found.items() if lines} == OWN


def reads(call: ast.Call) -> bool:
    """Whether a call opens a file to read it, as far as its words say so."""
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if last in READS and name not in ("read_bytes", "read_text"):  # those of `minimax_lib.files`
        return True
    if name in ("np.load", "numpy.load", "Image.open", "os.open"):
        return not (call.args and ast.unparse(call.args[0]).startswith("io.")) and not is_folder(call)
    if last != "open" or name in ("study.open", "self.open"):
        return False
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return not any(set("wxa") & set(mode) for mode in modes if len(mode) <= 3)


def is_folder(call: ast.Call) -> bool:
    """Whether this opens a folder or a device to lock or to write it: those are not read."""
    return any(flag in ast.unparse(call) for flag in ("os.O_WRONLY", "os.open(path, os.O_RDONLY)"))
