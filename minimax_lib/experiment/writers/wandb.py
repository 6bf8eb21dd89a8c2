"""Curves and pictures for Weights & Biases."""

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import queue
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.config.wandb import Wandb
from minimax_lib.experiment.writers.base import Row, curves_of
from minimax_lib.extras import how_to_install
from minimax_lib.files import MOST_TABLE, read_bytes, read_json
from minimax_lib.messages import one_line
from minimax_lib.store.files import copy_aside, write_atomically
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.tables import OLD_TABLES, read_table

IDS = "wandb.json"  # in the run's folder: the ids of its W&B runs, by seed
CONNECT_SECONDS = 30.0  # to wait for W&B at the beginning, in the background
FLUSH_SECONDS = 5.0  # after which W&B writes what it was given to its files
LEAVE_SECONDS = 30.0  # to wait at the end for what is still to be uploaded
SILENT_SECONDS = 2.0  # of waiting, before a line says what is waited for
HERE = ("log_dir", "compilation_cache", "plugins", "wandb")  # settings of this place, which are not sent
BLOCK, HEAD = 2**15, struct.Struct("<IHB")  # of LevelDB's log: checksum, length and kind of a piece
WHOLE, LAST = 1, 4  # kinds of pieces


@dataclasses.dataclass
class SeedUpdate:
    """What belongs to one seed and update."""

    seed: int
    update: int
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    pictures: dict[str, tuple[int, np.ndarray]] = dataclasses.field(default_factory=dict)  # name -> (update, u8)


class WandbWriter:
    """Gives rows and pictures to Weights & Biases: a W&B run for each seed, all in one group. A step is an update.

    Names are those of TensorBoard (`curves_of`). The tables are the truth, and W&B is their mirror. A resumed run goes
    on in the same W&B runs: the server, or W&B's files where the mode is offline, say which steps they have. Steps of
    the tables that W&B lacks come first. So a crash loses none, and none is there twice.

    W&B works in its own thread. If it fails, one line says so, and the run goes on: where W&B cannot be reached,
    what it should get is kept in the run's folder, as with the mode offline.
    """

    def __init__(self, folder: RunFolder, settings: Wandb, config: Mapping[str, Any], say: Callable[[str], None]):
        """`config` is that of the run, as plain values."""
        self._folder, self._settings, self._config, self._say = folder, settings, config, say
        self._seeds = range(config["seed"], config["seed"] + config["n_seeds"])
        self._ids: dict[int, str] = {}
        self._had: dict[int, int] = {}  # the last step that W&B had from earlier processes; -1 for none
        self._has: dict[int, int] = {}  # the last step that it has now
        self._pending: dict[int, SeedUpdate] = {}
        self._lock = threading.Lock()  # pictures come from another thread than rows
        self._steps: queue.SimpleQueue[SeedUpdate | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._runs: dict[int, Any] = {}  # W&B's, by seed

    def write(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._begin()
            self._take(rows)

    def write_pictures(self, update: int, seed: int, pictures: Mapping[str, np.ndarray]) -> None:
        """The pictures appear at the step that is under way: W&B takes no steps that lie back."""
        with self._lock:
            self._begin()
            step = self._pending.setdefault(seed, SeedUpdate(seed, update))
            step.pictures |= {name: (update, picture) for name, picture in pictures.items()}

    def close(self) -> None:
        """Returns when W&B has everything, or has had `LEAVE_SECONDS` for it."""
        if self._worker is None:
            return
        with self._lock:
            for step in self._pending.values():
                self._steps.put(step)
            self._pending.clear()
        self._steps.put(None)
        most = CONNECT_SECONDS + LEAVE_SECONDS
        self._worker.join(min(SILENT_SECONDS, most))
        if self._worker.is_alive() and most > SILENT_SECONDS:
            self._say(f"waiting for W&B, {most:.0f} seconds at most (Ctrl-C leaves at once)")
            self._worker.join(most - SILENT_SECONDS)
        if self._worker.is_alive():
            self._say(f"W&B does not answer: {self._how_to_send()}")

    # ------------------------------------------------------------------------------------------- in the run's threads

    def _begin(self) -> None:
        """On the first call, starts the thread, and takes up the rows of earlier processes."""
        if self._worker is not None:
            return
        self._ids = self._own_ids()
        self._worker = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._worker.start()
        # Rows come here before they come to the tables. So the tables hold the rows of earlier processes alone.
        earlier = [row for path in (self._folder.metrics, self._folder.evaluations) for row in read_table(path)[1]]
        rows = [row for row in map(typed, earlier) if row["seed"] in self._ids]
        self._take(sorted(rows, key=lambda row: row["update"]))

    def _take(self, rows: Sequence[Row]) -> None:
        for row in rows:
            seed, update = row["seed"], row["update"]
            step = self._pending.get(seed)
            # The rows of an evaluation come after those of the training, and belong to the same step.
            if step is not None and step.update < update and step.numbers:
                self._steps.put(self._pending.pop(seed))
            step = self._pending.setdefault(seed, SeedUpdate(seed, update))
            step.update = max(step.update, update)
            step.numbers |= curves_of(row)

    def _own_ids(self) -> dict[int, str]:
        """The ids of the W&B runs. They are chosen here, and kept: a run has them before W&B has been reached."""
        path, ids = self._folder.path / IDS, {}
        if path.exists():
            try:
                ids = {int(seed): str(own) for seed, own in read_json(path).items()}
            except (ValueError, AttributeError):
                copy = copy_aside(path, self._folder.path / OLD_TABLES)
                self._say(f"{path} is damaged: new W&B runs begin, and it is kept in {copy}")
        ids |= {seed: uuid.uuid4().hex[:16] for seed in self._seeds if seed not in ids}
        with contextlib.suppress(OSError):  # a full disk, say: the tables have it too, and end the run
            write_atomically(path, json.dumps(ids) + "\n")
        return ids

    # ------------------------------------------------------------------------------------------- in W&B's own thread

    def _work(self) -> None:
        works = None  # whether W&B does; None: it has not been tried yet
        while (steps := self._next()) is not None:
            if works is None:
                works = self._tried(self._connect, "and gets nothing from this run")
            if works:
                works = self._tried(partial(self._give, steps), "and gets nothing more from this run")
        if self._runs:
            self._tried(self._finish, f"at the end: {self._how_to_send()}")

    def _next(self) -> list[SeedUpdate] | None:
        """All steps that have come, at least one; None when there will be no more."""
        came = [self._steps.get()]
        while not self._steps.empty():
            came.append(self._steps.get())
        steps = [step for step in came if step is not None]
        if len(steps) < len(came):
            self._steps.put(None)  # for the next call
        return steps or None

    def _tried(self, work: Callable[[], Any], consequence: str) -> bool:
        """Whether `work` of W&B has succeeded. If not, one line says so."""
        try:
            work()
        # W&B raises whatever its many libraries do. None of it may end a run.
        except Exception as error:
            self._say(f"W&B has failed {consequence} ({type(error).__name__}: {one_line(error)})")
            return False
        return True

    def _connect(self) -> None:
        """Begins the W&B run of each seed, or goes on in it."""
        import wandb  # an extra, which only --wandb needs

        # Silent: nothing is printed between the lines of the run, and no key is asked for.
        silent = wandb.Settings(silent=True)
        wandb.setup(settings=silent)
        mode = self._settings.mode
        try:
            self._runs = {seed: self._init(wandb, seed, mode) for seed in self._seeds}
        # As in `_tried`. A wrong key, a project that may not be written to and a dead network have their own errors.
        except Exception as error:
            if mode != "online":
                raise
            self._say(f"W&B cannot be reached ({one_line(error)}): {self._how_to_send()}")
            # Otherwise the id would count as in use.
            wandb.teardown()
            wandb.setup(settings=silent)
            mode = "offline"
            self._runs = {seed: self._init(wandb, seed, mode) for seed in self._seeds}
        for seed, run in self._runs.items():
            held = run.starting_step - 1 if mode == "online" else last_step(self._folder.path, self._ids[seed])
            self._had[seed] = self._has[seed] = held

    def _init(self, wandb: Any, seed: int, mode: Any) -> Any:
        name = self._folder.path.name.removesuffix(f"-s{self._config['seed']}")
        config = {setting: value for setting, value in self._config.items() if setting not in HERE}
        return wandb.init(
            id=self._ids[seed],
            name=f"{name}-s{seed}",
            group=self._settings.group or name,
            project=self._settings.project,
            entity=self._settings.entity or None,
            config=config | {"seed": seed},
            dir=str(self._folder.path.absolute()),
            mode=mode,
            resume="allow",
            reinit="create_new",  # several W&B runs at a time
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=CONNECT_SECONDS,
                x_transaction_log_flush_interval=FLUSH_SECONDS,
                finish_timeout=LEAVE_SECONDS,
                finish_timeout_raises=True,
                # What W&B would collect without being asked: code, packages, the command, and facts about the machine.
                save_code=False,
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )

    def _give(self, steps: Sequence[SeedUpdate]) -> None:
        import wandb

        for step in steps:
            seed, had = step.seed, self._had[step.seed]
            given: dict[str, Any] = dict(step.numbers) if step.update > had else {}
            for name, (at, picture) in step.pictures.items():
                if at > had:
                    given[f"pictures/{name}"] = wandb.Image(picture, caption=f"update {at:,}")
            if given:
                self._has[seed] = max(self._has[seed], step.update)
                self._runs[seed].log(given, step=self._has[seed], commit=True)

    def _finish(self) -> None:
        """Returns when W&B has everything. All runs leave side by side, since each may wait for LEAVE_SECONDS."""
        # Whatever is not 0 is shown as failed, until the run is resumed.
        codes = {seed: int(self._has[seed] < self._config["n_updates"]) for seed in self._runs}
        with ThreadPoolExecutor(len(self._runs)) as threads:
            ends = [threads.submit(run.finish, exit_code=codes[seed]) for seed, run in self._runs.items()]
        for end in ends:
            end.result()

    def _how_to_send(self) -> str:
        return f"what it lacks is kept in {self._folder.path / 'wandb'}, and `wandb sync` sends it"


def check_wandb() -> None:
    """ValueError, with what to install, without the package."""
    found = importlib.util.find_spec("wandb")
    # W&B makes folders called `wandb`. One in the current folder would be found too, as a package without a file.
    if found is None or found.origin is None:
        raise ValueError(f"wandb is on and the package wandb is not installed: {how_to_install('wandb')}")


def last_step(folder: Path, wandb_id: str) -> int:
    """The last step in W&B's files of the run `wandb_id`; -1 if there is none.

    W&B writes them now and then. What a crash has kept from them is only to be seen by reading them.
    """
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")  # protobuf makes it: it has no types
    last = -1
    for path in folder.glob(f"wandb/*run-*-{wandb_id}/run-{wandb_id}.wandb"):
        for content in log_records(read_bytes(path, MOST_TABLE)):
            record = messages.Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                last = max(last, record.history.step.num)
    return last


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of one of W&B's files: LevelDB's log, blocks in which a record is cut in pieces, behind a mark.

    A record that a crash has cut off is left out.
    """
    record, at = b"", 7
    while at + HEAD.size <= len(content):
        if BLOCK - at % BLOCK < HEAD.size:  # too little for another piece
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEAD.unpack_from(content, at)
        piece = content[at + HEAD.size : at + HEAD.size + length]
        if len(piece) < length or not kind:
            return
        record += piece
        at += HEAD.size + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def typed(row: Mapping[str, str]) -> Row:
    """A row of a table on disk as it was before it was written; without the cells that are empty."""
    keys = {name: int(float(row[name])) for name in ("update", "seed")}
    return {name: _typed(cell) for name, cell in row.items() if cell} | keys


def _typed(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
