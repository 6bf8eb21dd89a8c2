"""Weights & Biases beside the tables: what it is given, once, and that it can fail in any way without a run's harm."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_program import EVALUATION, SlowProgram, toy_config, toy_program

from minimax_lib.commands.train import doubts
from minimax_lib.config import Config, from_dict, load_yaml, parse, to_dict
from minimax_lib.config.wandb import Wandb
from minimax_lib.evaluation.tables import Scores
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.experiment.writers import wandb as writer
from minimax_lib.experiment.writers.base import curves_of
from minimax_lib.experiment.writers.wandb import WandbWriter, typed
from minimax_lib.runners.seeds import MAX_STEPS
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.tables import CsvWriter, read_table

ROOT = Path(__file__).parent.parent


class FakeRun:
    """Remembers what it is given, as W&B would show it."""

    def __init__(self, fake: "FakeWandb", settings: dict[str, Any]):
        self.fake, self.settings = fake, settings
        self.exit_code: int | None = None
        steps = [step for step, _ in fake.logged.get(settings["id"], [])]
        self.starting_step = max(steps) + 1 if steps else 0

    def log(self, values: dict[str, Any], step: int, commit: bool) -> None:
        assert commit
        assert threading.current_thread() is not threading.main_thread()
        self.fake.fail("log")
        self.fake.logged.setdefault(self.settings["id"], []).append((step, values))

    def finish(self, exit_code: int) -> None:
        self.fake.in_use.remove(self.settings["id"])
        self.fake.fail("finish")
        self.exit_code = exit_code


class FakeWandb(types.ModuleType):
    """The part of the package `wandb` that is used. `failing` are calls that raise; each takes `seconds`."""

    def __init__(self):
        super().__init__("wandb")
        self.runs: list[FakeRun] = []
        self.logged: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self.failing: set[str] = set()
        self.seconds = 0.0
        self.Settings, self.Image = dict, FakeImage
        self.in_use: set[str] = set()

    def setup(self, settings: Any) -> None:
        assert settings == {"silent": True}

    def teardown(self) -> None:
        self.in_use.clear()

    def init(self, **settings: Any) -> FakeRun:
        self.fail("init")
        if settings["id"] in self.in_use:
            raise RuntimeError("the id is in use")
        self.in_use.add(settings["id"])
        self.fail(settings["mode"])
        self.runs.append(FakeRun(self, settings))
        return self.runs[-1]

    def fail(self, call: str) -> None:
        time.sleep(self.seconds)
        if call in self.failing:
            raise ConnectionError(f"{call} does\nnot work")


@dataclasses.dataclass
class FakeImage:
    pixels: np.ndarray
    caption: str


@pytest.fixture
def fake(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr("minimax_lib.experiment.run.check_wandb", lambda: None)
    monkeypatch.setattr(
        writer, "last_step", lambda folder, own: max((step for step, _ in fake.logged.get(own, [])), default=-1)
    )
    return fake


def toy(folder: Path, **settings: Any) -> Config:
    return toy_config(folder, **({"wandb": Wandb("online", group="lab"), "n_updates": 12} | settings))


class HangingProgram(SlowProgram):
    """Trains up to the update `last`, and then never comes back."""

    def __init__(self, program: Any, last: int):
        super().__init__(program, 0.0)
        self._last = last

    def run(self, state: Any, target_updates: int, max_steps: int = MAX_STEPS) -> Any:
        if target_updates > self._last:
            time.sleep(600)
        return super().run(state, target_updates, max_steps)


PROGRAMS: dict[int, Any] = {}  # by the number of seeds: each is compiled once


def train(config: Config, last: int | None = None) -> int:
    program = PROGRAMS.setdefault(config.n_seeds, toy_program(config))
    if last is not None:
        program = HangingProgram(program, last)
    return ExperimentRunner(config, program, EVALUATION).run()


def expected(folder: Path, seed: int, after: int = -1) -> dict[int, dict[str, float]]:
    """Update -> numbers by name, from the tables."""
    steps: dict[int, dict[str, float]] = {}
    for name in ("metrics.csv", "eval.csv"):
        for row in map(typed, read_table(folder / name)[1]):
            if row["seed"] == seed and row["update"] > after:
                steps.setdefault(row["update"], {}).update(curves_of(row))
    return steps


def assert_mirrored(folder: Path, logged: dict[str, list[tuple[int, dict[str, Any]]]], seeds=(0, 1)) -> None:
    """W&B has every step of the tables once, in order, under the same names."""
    ids = json.loads((folder / "wandb.json").read_text())
    assert set(logged) == {ids[str(seed)] for seed in seeds}
    for seed in seeds:
        steps = logged[ids[str(seed)]]
        wanted = expected(folder, seed)
        assert [step for step, _ in steps] == sorted(wanted)
        for step, values in steps:
            assert values.keys() == wanted[step].keys()
            names = values.keys() - {"seconds", "steps_per_second"}  # they differ where a row was written anew
            np.testing.assert_allclose([values[n] for n in names], [wanted[step][n] for n in names], rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ([], "disabled"),
        (["--wandb"], "online"),
        (["--no-wandb"], "disabled"),
        (["--wandb", "offline"], "offline"),
        (["--wandb=offline", "--wandb.project", "p"], "offline"),
        (["--wandb.project", "p", "--wandb"], "online"),
        (["--wandb", "--wandb.mode", "offline"], "offline"),
        (["--wandb.mode", "offline", "--wandb"], "offline"),
        (["--wandb.mode", "offline"], "offline"),
        (["--config", "{file}"], "offline"),
        (["--config", "{file}", "--wandb"], "online"),
        (["--config", "{file}", "--no-wandb"], "disabled"),
        (["--config", "{file}", "--wandb.project", "p"], "offline"),
        (["--config", "{switch}", "--wandb.project", "p"], "online"),
        (["--config", "{group}", "--wandb"], "online"),
    ],
)
def test_wandb_is_switched_by_its_bare_name(tmp_path, words, mode):
    for name, text in {"file": "wandb: offline", "switch": "wandb: true", "group": "wandb: {mode: offline}"}.items():
        (tmp_path / f"{name}.yaml").write_text(text + "\n")
    places = {name: tmp_path / f"{name}.yaml" for name in ("file", "switch", "group")}
    config = parse([word.format(**places) for word in words])
    assert config.wandb.mode == mode
    assert config.wandb.project == ("p" if "p" in words else "minimax-ued")
    assert from_dict(to_dict(config)) == config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--wandb", "onlin"], "wandb.mode is 'onlin': it must be one of online, offline, disabled or true or false"),
        (["--wandb.project", ""], "wandb.project is '': it must be the name of a project"),
        (["--wandb.group", "a\nb"], "wandb.group is 'a\\nb': it must be text without control characters"),
        (["--wandb.group", 129 * "a"], "wandb.group is 'aaa"),
        (["--wandb.projet", "x"], "unknown setting 'wandb.projet'"),
    ],
)
def test_bad_settings_are_one_line(words, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}.*$"):
        parse(words)


def test_settings_without_the_switch_are_doubted():
    [line] = doubts(parse(["--wandb.project", "p"]))
    assert line == "settings of wandb are given and wandb is off: add --wandb to turn it on"
    assert doubts(parse(["--wandb.project", "p", "--wandb"])) == []


def test_without_its_package_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed: pip install .*\[wandb\]\"$"):
        train(toy(tmp_path))


def test_a_folder_called_wandb_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ValueError, match="is not installed"):
        writer.check_wandb()


# ------------------------------------------------------------------------------------------------- what it is given


def pretend(config: Config, updates: range, kept: int = -1) -> list[str]:
    """As a run that has gone on from the checkpoint of update `kept` (-1: from the start); what was said of W&B."""
    folder, lines = RunFolder(config.run_folder), []
    folder.path.mkdir(parents=True, exist_ok=True)
    tables = [CsvWriter(path, "update", kept) for path in (folder.metrics, folder.evaluations)]
    with contextlib.closing(WandbWriter(folder, config.wandb, to_dict(config), lines.append)) as to_wandb:
        for update in updates:
            rows = [{"update": update, "seed": seed, "loss": np.float32(seed + 0.1 * update)} for seed in (0, 1)]
            results = [{"update": update, "seed": seed, "task": "Up", "return": 0.1 * update} for seed in (0, 1)]
            for table, some in zip(tables, (rows, results if update % 3 == 0 else []), strict=True):
                if some:
                    to_wandb.write(some)
                    table.write(some)
    return lines


@pytest.mark.deep
def test_a_run_and_its_resumption_are_the_tables_once(tmp_path, fake):
    config = toy(tmp_path, n_updates=6)
    assert train(config) == 0
    (_, first), *_ = fake.logged[fake.runs[0].settings["id"]]
    assert set(first) == {"Up/return", "Up/solved_rate", "Down/return", "Down/solved_rate"}
    assert [run.settings["name"] for run in fake.runs] == ["run-s0", "run-s1"]
    assert [run.exit_code for run in fake.runs] == [0, 0]
    settings = fake.runs[1].settings
    assert (settings["group"], settings["project"], settings["entity"]) == ("lab", "minimax-ued", None)
    assert (settings["mode"], settings["resume"]) == ("online", "allow")
    assert settings["config"]["seed"] == 1
    assert settings["config"]["env"]["name"] == "AMaze"
    assert not {"log_dir", "compilation_cache", "plugins", "wandb"} & settings["config"].keys()

    assert train(dataclasses.replace(config, n_updates=12, resume=True)) == 0
    assert_mirrored(config.run_folder, fake.logged)
    assert [run.settings["id"] for run in fake.runs[2:]] == [run.settings["id"] for run in fake.runs[:2]]
    assert load_yaml(config.run_folder / "config.yaml").wandb == config.wandb


def test_rows_that_w_and_b_has_are_not_given_again(tmp_path, fake):
    """As after kill -9: W&B has been given more than the newest checkpoint has."""
    config = toy(tmp_path)
    assert pretend(config, range(1, 8)) == []
    assert pretend(config, range(5, 13), kept=4) == []
    assert_mirrored(config.run_folder, fake.logged)
    assert [run.exit_code for run in fake.runs] == [1, 1, 0, 0]


def test_it_catches_up_with_what_was_trained_without_it(tmp_path, fake):
    config = toy(tmp_path)
    fake.failing = {"init"}
    assert len(pretend(config, range(8))) == 2
    assert fake.runs == []
    fake.failing = set()
    assert pretend(config, range(7, 13), kept=6) == []
    assert_mirrored(config.run_folder, fake.logged)


def test_a_group_is_a_run_without_its_seed(tmp_path, fake):
    pretend(toy(tmp_path, name="plr-s0", wandb=Wandb("offline")), range(2))
    names = [(run.settings["group"], run.settings["name"]) for run in fake.runs]
    assert names == [("plr", "plr-s0"), ("plr", "plr-s1")]


def test_pictures_come_with_the_step_under_way_and_once(tmp_path, fake):
    config = toy(tmp_path, n_seeds=1)
    folder, lines = RunFolder(config.run_folder), []
    config.run_folder.mkdir(parents=True)
    picture = np.zeros((2, 3, 3), np.uint8)

    def written(*calls: Any) -> None:
        to_wandb = WandbWriter(folder, config.wandb, to_dict(config), lines.append)
        assert hasattr(to_wandb, "write_pictures")
        for update, what in calls:
            if what is picture:
                to_wandb.write_pictures(update, 0, {"best": picture})
            else:
                to_wandb.write([{"update": update, "seed": 0, "loss": what}])
        to_wandb.close()

    written((2, 0.5), (4, 0.25), (2, picture), (6, 0.125))
    [steps] = fake.logged.values()
    shown = [
        (step, sorted(values), [v.caption for v in values.values() if isinstance(v, FakeImage)])
        for step, values in steps
    ]
    assert shown == [(2, ["loss"], []), (4, ["loss", "pictures/best"], ["update 2"]), (6, ["loss"], [])]
    written((4, 0.25), (2, picture), (6, 0.125), (8, 0.5), (8, picture))
    assert [(step, sorted(values)) for step, values in steps[3:]] == [(8, ["loss", "pictures/best"])]
    assert lines == []


@pytest.mark.deep
def test_the_picture_of_the_report_is_given(tmp_path, fake, monkeypatch):
    def report(config, agent, untrained, trained, folder, *_):
        from PIL import Image

        (folder / "levels").mkdir()
        Image.new("RGB", (3, 2), (255, 0, 0)).save(folder / "levels" / "agent.png")
        return scores, scores

    scores = Scores(("A",), (0,), {"solved_rate": np.ones((1, 1)), "return": np.ones((1, 1))})
    monkeypatch.setattr("minimax_lib.experiment.run.final_report", report)
    assert train(toy(tmp_path, n_updates=2, report=True)) == 0
    last, values = fake.logged[fake.runs[0].settings["id"]][-1]
    assert last == 2
    assert values["pictures/agent"].pixels.tolist() == [[[255, 0, 0]] * 3] * 2
    assert "loss" in values


def test_a_damaged_record_is_set_aside(tmp_path, fake):
    config = toy(tmp_path)
    pretend(config, range(2))
    record = config.run_folder / "wandb.json"
    record.write_text('{"0": {"id"')
    [line] = pretend(config, range(2, 4), kept=1)
    assert line.startswith(f"{record} is damaged: new W&B runs begin, and it is kept in ")
    assert (config.run_folder / "old_tables" / "wandb.json").read_text() == '{"0": {"id"'
    assert len({run.settings["id"] for run in fake.runs}) == 4


# --------------------------------------------------------------------------------------------------- when it fails


def test_where_it_cannot_be_reached_everything_is_kept_offline(tmp_path, fake):
    fake.failing = {"online"}
    config = toy(tmp_path)
    [line] = pretend(config, range(4))
    assert line == (
        "W&B cannot be reached (online does not work): what it lacks is kept in "
        f"{config.run_folder / 'wandb'}, and `wandb sync` sends it"
    )
    assert [run.settings["mode"] for run in fake.runs] == ["offline", "offline"]
    assert_mirrored(config.run_folder, fake.logged)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("call", "what"),
    [pytest.param("init", "from this run", marks=pytest.mark.deep), ("log", "more from this run")],
)
def test_a_run_goes_on_without_it(tmp_path, fake, capsys, call, what):
    fake.failing = {call}
    assert train(toy(tmp_path, n_updates=4, wandb=Wandb("offline"))) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if "W&B" in line]
    assert line == f"W&B has failed and gets nothing {what} (ConnectionError: {call} does not work)"


def test_a_failure_at_the_end_is_a_line(tmp_path, fake):
    fake.failing = {"finish"}
    [line] = pretend(toy(tmp_path), range(2))
    assert line.startswith("W&B has failed at the end: what it lacks is kept in ")


def test_a_slow_one_is_not_waited_for(tmp_path, fake, monkeypatch):
    fake.seconds = 5.0  # so long that a busy machine does not fail
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(writer, "LEAVE_SECONDS", 0.05)
    began = time.monotonic()
    [line] = pretend(toy(tmp_path), range(2))
    assert time.monotonic() - began < 5.0
    assert fake.logged == {}
    assert line.startswith("W&B does not answer: what it lacks is kept in ")


# --------------------------------------------------------------------------------------------- the real one, offline


def records(folder: Path) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """What the files of W&B in a run's folder hold: id -> (step, values), in the order in which they would be sent."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for content in writer.log_records(path.read_bytes()):
            record = Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                own = {name: value for name, value in values.items() if not name.startswith("_")}
                found.setdefault(path.stem.removeprefix("run-"), []).append((values["_step"], own))
    return found


RUN = """
import sys
sys.path.insert(0, {tests!r})
from test_wandb import toy, train
from minimax_lib.config.wandb import Wandb
from minimax_lib.experiment.writers import wandb
from pathlib import Path
wandb.FLUSH_SECONDS = 0.2
if __name__ == "__main__":
    sys.exit(train(toy(Path({folder!r}), wandb=Wandb({mode!r}), **{settings!r}), {last!r}))
"""


def start(folder: Path, mode: str = "offline", last: int | None = None, **settings: Any) -> subprocess.Popen[str]:
    """A process that trains with the real package. It knows a secret, and W&B's server is a port that is closed."""
    pytest.importorskip("wandb")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = taken.getsockname()[1]
    own = {"WANDB_BASE_URL": f"http://127.0.0.1:{closed}", "WANDB_API_KEY": "a" * 40, "SECRET": "hush-hush"}
    code = RUN.format(tests=str(ROOT / "tests"), folder=str(folder), mode=mode, settings=settings, last=last)
    everywhere = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=everywhere | own | {"HOME": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.deep
def test_the_real_package_keeps_every_step_once_after_kill_9(tmp_path):
    config = toy(tmp_path, n_updates=12)
    folder = config.run_folder
    # It never ends by itself, so that it is always killed half way, however long W&B takes to start.
    first = start(tmp_path, n_updates=12, last=6)
    deadline = time.monotonic() + 120
    while len(records(folder)) < 2 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert {0 < len(steps) < 7 for steps in records(folder).values()} == {True}
    second = start(tmp_path, n_updates=12, resume=True)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0, output
    assert "wandb:" not in output
    assert_mirrored(folder, records(folder))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any("wandb" in path.parts for path in files)
    for path in files:
        assert path.name not in ("wandb-metadata.json", "requirements.txt")
        content = path.read_bytes()
        assert b"hush-hush" not in content, path
        assert b"a" * 40 not in content, path
