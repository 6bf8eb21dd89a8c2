"""Kills runs, damages their files, takes files away from them, resumes them, and says what held.

    python tests/crash.py --n-kills 46

The runs are toy ones in child processes (`forked_runs.py`). Whatever happened to a run, it must end as one that nothing
disturbed: with the same state, bit by bit, and the same tables. A damaged table may lack the rows that cannot be read,
but then a copy of it must be kept, and one line must say so. The exit status is 1 if anything did not hold.
With `--n-damages 20` that many of each kind are tried, chosen by chance. The tests try a few (test_run_safety.py).
"""

import argparse
import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import jax  # noqa: E402
import numpy as np  # noqa: E402
from toy_program import toy_config, toy_program  # noqa: E402

from minimax_lib.store.checkpoint import Checkpoints, on_host, placed  # noqa: E402
from minimax_lib.store.files import saved_updates  # noqa: E402
from minimax_lib.store.tables import OLD_TABLES, read_table  # noqa: E402

TIMING = ("seconds", "steps_per_second")
TABLES = ("metrics.csv", "eval.csv")
SAVE = "minimax_lib.store.checkpoint:Checkpoints.save"
DISPATCH = "toy_program:SlowProgram.run"


class Runs:
    """Toy experiments in child processes; `output` is what the last one said."""

    def __init__(self, folder: Path):
        self.folder = folder
        environment = os.environ | {
            "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        # Every run is a new process that would compile the same programs.
        environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "forked_runs.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __call__(self, settings: dict, **command: Any) -> int:
        """The status of a run with these settings; below 0 for a signal that ended it."""
        return self.timed(settings, **command)[0]

    def timed(self, settings: dict, **command: Any) -> tuple[int, float]:
        """(status, seconds)."""
        settings = {"log_dir": str(self.folder)} | settings
        print(json.dumps({"settings": settings} | command), file=self._server.stdin, flush=True)
        status, seconds, self.output = json.loads(self._server.stdout.readline())
        return status, seconds

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait()


# ---------------------------------------------------------------------------------------------- the same run


@functools.cache
def toy_shape() -> Any:
    return placed(toy_program(toy_config("unused")).shape)


def final_state(folder: Path, shape: Any = None) -> tuple[int, list[np.ndarray]]:
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        restored = checkpoints.restore(shape or toy_shape())
    return restored.update, [on_host(leaf) for leaf in jax.tree.leaves(restored.state)]


def table(path: Path) -> list[dict[str, str]]:
    _, rows = read_table(path)
    return [{name: value for name, value in row.items() if name not in TIMING} for row in rows]


def assert_same_state(folder: Path, whole: Path, shape: Any = None) -> None:
    """The same final state, bit by bit."""
    (update, state), (whole_update, whole_state) = final_state(folder, shape), final_state(whole, shape)
    assert update == whole_update, f"it ended at update {update}"
    for a, b in zip(state, whole_state, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def assert_same_run(folder: Path, whole: Path, shape: Any = None) -> None:
    """The same final state, and the same tables but for the time that it took."""
    assert_same_state(folder, whole, shape)
    for name in TABLES:
        assert table(folder / name) == table(whole / name), f"{name} is another"


# ---------------------------------------------------------------------------------------------- what is tried


@dataclasses.dataclass(frozen=True)
class Attempt:
    """Something that was done to a run."""

    what: str
    wrong: str = ""  # empty: it held
    n: int = 1  # kills or damages

    @classmethod
    def of(cls, what: str, check: Callable[[], None], n: int = 1) -> "Attempt":
        try:
            check()
        except AssertionError as error:
            return cls(what, " ".join(str(error).split())[:300] or "a check failed", n)
        return cls(what, "", n)


def kills(runs: Runs, whole: Path, chance: random.Random, n_kills: int) -> Iterator[Attempt]:
    """Each run is killed up to six times, wherever it is, and then left to itself."""
    slow = {"program": {"seconds": 0.02}}
    _, seconds = runs.timed({"name": "timed"}, **slow)
    for i in range(0, n_kills, 6):
        settings = {"name": f"killed-{i}", "resume": True}
        moments = [chance.uniform(0.05, 0.6) * seconds for _ in range(min(6, n_kills - i))]
        hits = [runs(settings, kill_after=moment, **slow) == -signal.SIGKILL for moment in moments]

        def check(settings: dict = settings) -> None:
            assert runs(settings) == 0, runs.output
            assert_same_run(runs.folder / settings["name"], whole)

        when = ", ".join(f"{moment:.2f}" for moment in moments)
        yield Attempt.of(f"killed after {when} s ({sum(hits)} hit a live run)", check, len(moments))


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def scrambled(content: bytes) -> bytes:
    return np.random.default_rng(0).bytes(len(content))


def flipped(content: bytes) -> bytes:
    """With one other bit."""
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def damaged_checkpoints(runs: Runs, whole: Path, chance: random.Random, n_damages: int) -> Iterator[Attempt]:
    """Every file of the newest checkpoint in every way: the resumed run takes it as it was, or the one before."""
    folder = interrupted(runs)
    newest = saved_updates(folder / "checkpoints")[-1]
    inside = folder / "checkpoints" / str(newest)
    files = sorted(path.relative_to(folder) for path in inside.rglob("*") if path.is_file())
    ways: list[Callable[[bytes], bytes] | None] = [cut, scrambled, flipped, bytes.swapcase, lambda content: b"", None]
    names = ["cut in half", "scrambled", "with a flipped bit", "in other letters", "empty", "gone"]
    chosen = some([(file, *way) for file in files for way in zip(names, ways, strict=True)], chance, n_damages)
    for i, (file, name, way) in enumerate(chosen):
        copy = copied(runs, folder, f"checkpoint-{i}")
        changed = change(copy / file, way)

        def check(copy: Path = copy, changed: bool = changed) -> None:
            assert runs({"name": copy.name, "resume": True}) == 0, runs.output
            assert_same_run(copy, whole)
            fell_back = f"goes on from update {newest}" not in runs.output
            assert not fell_back or changed
            assert fell_back == (copy / "damaged_checkpoints" / str(newest)).is_dir()

        yield Attempt.of(f"{file} {name}", check)


def lines(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(edit(content.splitlines(keepends=True)))


def other_cell(content: bytes) -> bytes:
    """Without a number in the third row's column of seconds or, in eval.csv, of seeds."""
    header, *rows = content.decode().splitlines()
    column = header.split(",").index("seconds" if "seconds" in header else "seed")
    cells = rows[2].split(",")
    rows[2] = ",".join([*cells[:column], "x", *cells[column + 1 :]])
    return ("\n".join([header, *rows]) + "\n").encode()


TABLE_DAMAGES: Mapping[str, Callable[[bytes], bytes] | None] = {
    "with semicolons": lambda content: content.replace(b",", b";"),
    "with a mark at its beginning and other line breaks": lambda c: b"\xef\xbb\xbf" + c.replace(b"\n", b"\r\n"),
    "without the beginning of its header": lambda content: content[3:],
    "without its header": lines(lambda rows: rows[1:]),
    "with a header of other bytes": lambda content: b"\xff\xfe" + content[2:],
    "with a bad number": other_cell,
    "with a stray quote": lines(lambda rows: [*rows[:2], b'"' + rows[2], *rows[3:]]),
    "with bytes that are not text": lines(lambda rows: [*rows[:3], b"\xff" + rows[3], *rows[4:]]),
    "with a row of another length": lines(lambda rows: [*rows[:3], rows[3][:-1] + b",1\n", *rows[4:]]),
    "without a row": lines(lambda rows: [*rows[:2], *rows[3:]]),
    "with a row twice": lines(lambda rows: [*rows[:2], *rows[1:]]),
    "without its last line break": lines(lambda rows: [*rows[:9], rows[9].removesuffix(b"\n")]),
    "with zeros at its end": lambda content: content + b"\0\0\0\n",
    "cut in half": cut,
    "scrambled": scrambled,
    "empty": lambda content: b"",
    "gone": None,
}


def damaged_tables(runs: Runs, whole: Path, chance: random.Random, n_damages: int) -> Iterator[Attempt]:
    """Every table in every way: the run goes on, and what is not in the table any more is in a copy of it."""
    folder = interrupted(runs)
    newest = saved_updates(folder / "checkpoints")[-1]
    chosen = some([(name, *damage) for name in TABLES for damage in TABLE_DAMAGES.items()], chance, n_damages)
    for i, (name, how, way) in enumerate(chosen):
        copy = copied(runs, folder, f"table-{i}")
        change(copy / name, way)
        damaged = (copy / name).read_bytes() if (copy / name).exists() else None

        def check(copy: Path = copy, name: str = name, damaged: bytes | None = damaged) -> None:
            assert runs({"name": copy.name, "resume": True}) == 0, runs.output
            assert_same_state(copy, whole)
            assert_nothing_lost(copy, whole, name, damaged, runs.output, newest)

        yield Attempt.of(f"{name} {how}", check)


def assert_nothing_lost(
    folder: Path, whole: Path, name: str, damaged: bytes | None, output: str, checkpoint: int
) -> None:
    """The table has all rows, or those that came after `checkpoint`, and one line says what became of the others."""
    rows, whole_rows = table(folder / name), table(whole / name)
    copies = [path.read_bytes() for path in (folder / OLD_TABLES).glob("*")]
    told = [line for line in output.splitlines() if f"{name} has been " in line]
    if rows == whole_rows and not told:
        return
    assert len(told) == 1, output
    assert copies == ([damaged] if damaged is not None else [])
    later = [row for row in whole_rows if int(row["update"]) > checkpoint]
    assert rows[len(rows) - len(later) :] == later
    before = rows[: len(rows) - len(later)]
    assert all(row in whole_rows for row in before), "a row is there that the run has not written"


TAKEN = ("metrics.csv", "eval.csv", ".lock", ".owner", "config.yaml", "checkpoints", "")


def taken_away(runs: Runs, whole: Path, chance: random.Random, n_damages: int) -> Iterator[Attempt]:
    """Files that are deleted while the run is under way; the last is the whole folder."""
    for i, name in enumerate(some(TAKEN, chance, n_damages)):
        settings = {"name": f"taken-{i}", "resume": True}
        folder = runs.folder / settings["name"]

        def check(settings: dict = settings, folder: Path = folder, name: str = name) -> None:
            fault = [DISPATCH, 7, f"delete {folder / name}"]
            status = runs(settings, fault=fault, program={"seconds": 0.01})
            told = [line for line in runs.output.splitlines() if "taken away" in line or line.startswith("error:")]
            assert len(told) == 1, runs.output
            assert "Traceback" not in runs.output, runs.output
            # Without its checkpoints the run would be lost at the next power cut: it leaves. Others it can make again.
            assert status == (1 if name in ("checkpoints", "") else 0), runs.output
            if runs(settings) == 2:
                # A write that was under way has made the place of its checkpoint again.
                assert name == "", runs.output
                assert runs.output.count("error:") == 1, runs.output
                shutil.rmtree(folder)
                assert runs(settings) == 0, runs.output
            assert_same_state(folder, whole)
            for csv in TABLES:
                if csv != name:
                    assert table(folder / csv) == table(whole / csv), f"{csv} is another"

        yield Attempt.of(f"{name or 'the folder'} deleted", check)


def interrupted(runs: Runs) -> Path:
    """The folder of a run that was killed on its way, with two checkpoints and rows that came after them."""
    folder = runs.folder / "interrupted"
    if not folder.exists():
        assert runs({"name": folder.name}, fault=[SAVE, 4, "kill_before"]) == -signal.SIGKILL
    return folder


def copied(runs: Runs, folder: Path, name: str) -> Path:
    copy = runs.folder / name
    shutil.copytree(folder, copy)
    return copy


def change(path: Path, way: Callable[[bytes], bytes] | None) -> bool:
    """Whether a file is another one after it was changed, or deleted."""
    before = path.read_bytes()
    if way is None:
        path.unlink()
        return True
    path.write_bytes(way(before))
    return path.read_bytes() != before


def some(choices: Any, chance: random.Random, n: int) -> list[Any]:
    """`n` of the choices, in their order; all if there are no more."""
    indices = sorted(chance.sample(range(len(choices)), min(n, len(choices))))
    return [choices[i] for i in indices]


KINDS: Mapping[str, Callable[[Runs, Path, random.Random, int], Iterator[Attempt]]] = {
    "killed and resumed": kills,
    "a checkpoint damaged": damaged_checkpoints,
    "a table damaged": damaged_tables,
    "files taken away under way": taken_away,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-kills", type=int, default=46)
    parser.add_argument("--n-damages", type=int, default=10_000, help="of each kind; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and choices")
    args = parser.parse_args()
    n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        assert runs({"name": "whole"}) == 0, runs.output
        for kind, attempts in KINDS.items():
            n_tried = n_held = 0
            n = args.n_kills if attempts is kills else args.n_damages
            for attempt in attempts(runs, runs.folder / "whole", random.Random(args.seed), n):
                print(f"  {attempt.what}: {attempt.wrong or 'held'}", flush=True)
                n_tried += attempt.n
                n_held += 0 if attempt.wrong else attempt.n
            print(f"{kind}: {n_held} of {n_tried} held", flush=True)
            n_wrong += n_tried - n_held
        runs.close()
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
