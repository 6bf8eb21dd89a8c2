"""A run under way: the loop over log intervals, and the work of the host between two dispatches."""

import dataclasses
import functools
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from minimax_lib import axes
from minimax_lib.config import Config
from minimax_lib.envs.base import Level
from minimax_lib.evaluation.held_out import EvalResult, EvalRunner, evaluation_keys
from minimax_lib.experiment.interrupts import StopRequest
from minimax_lib.experiment.level_pictures import LevelPictures
from minimax_lib.experiment.progress import TRAINING, Progress, Standing
from minimax_lib.experiment.writers.base import Row, Writer
from minimax_lib.leaving import exit_status
from minimax_lib.loops import LEAST_EFFORT
from minimax_lib.runners import hosts
from minimax_lib.runners.devices import DeviceMesh
from minimax_lib.runners.seeds import Program, Report, finite, learnt_parameters
from minimax_lib.runners.training import ALIVE, RunnerState
from minimax_lib.store import archive
from minimax_lib.store.checkpoint import Checkpoints
from minimax_lib.store.files import copy_aside
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.tables import OLD_TABLES, CsvWriter, parsed
from minimax_lib.trees import mapped

T = TypeVar("T")

ROWS = "rows"  # a key in the record of a checkpoint: the number of rows of each table


class RunStopped(RuntimeError):
    """The run ended before its last update. The message is one line. The run can be resumed from its folder."""

    def __init__(self, message: str, status: int = 1):
        super().__init__(message)
        self.status = status  # the exit status of the process


@dataclasses.dataclass(frozen=True)
class ResumePoint:
    """The point from which a process continues a run."""

    state: RunnerState
    update: int
    is_fresh: bool  # from the beginning, not from a checkpoint
    compiling: "Future[None] | None" = None  # None: no update is left, so nothing is compiled
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what the checkpoint holds beside the state


class LoopParts(Protocol):
    """The parts of a run that the loop needs."""

    config: Config
    folder: RunFolder
    program: Program
    held_out: "HeldOutEvaluation | None"


class Training:
    """A run under way: its state, and the work of the host between two dispatches."""

    def __init__(
        self,
        run: LoopParts,
        start: ResumePoint,
        stop: StopRequest,
        progress: Progress,
        checkpoints: Checkpoints,
        curves: Sequence[Writer],
    ):
        """Opens the tables without the rows after `start`, which will be written again.

        Anything else that is wrong with a table is reported, and the file as it was is kept.
        """
        self.config, self.folder, self.program, self.held_out = run.config, run.folder, run.program, run.held_out
        self.stop, self.progress, self.checkpoints = stop, progress, checkpoints
        self.start, self.state, self.update = start, start.state, start.update
        self.env_steps = self.program.env_steps(start.state)
        self.metrics: list[Writer] = [*curves]
        self.evaluations: list[Writer] = [*curves]
        self.tables: list[CsvWriter] = []
        self.pictures = LevelPictures(run.config, run.folder, progress.say) if run.config.pictures_every else None
        self.curves = curves
        self.began = self.first_interval = time.perf_counter()
        self.last_fill, self.is_stuck = math.nan, False
        if hosts.is_first():
            # A run without a checkpoint keeps no rows, not even those of update 0: they will be written again.
            clock, update = (-1, -1) if start.is_fresh else (clock_of(start.state), start.update)
            if start.is_fresh:
                self._keep_rows_of_lost_checkpoints()
            metrics = self._open(self.folder.metrics, "clock", clock, ("update", "seed", "env_steps", "seconds"))
            self.metrics.append(metrics)
            self.evaluations.append(self._open(self.folder.evaluations, "update", update, ("seed",)))
            # The seconds in the table continue from those of earlier processes.
            self.began -= float(metrics.kept[-1]["seconds"]) if metrics.kept else 0.0

    def _open(self, path: Path, key: str, last: int, numbers: Sequence[str]) -> CsvWriter:
        n_rows = self.start.record.get(ROWS, {}).get(path.name)
        table = CsvWriter(path, key, last, numbers, n_rows, self.progress.say)
        self.tables.append(table)
        return table

    def _keep_rows_of_lost_checkpoints(self) -> None:
        """Copies the tables if they hold more rows than a run writes before its first checkpoint."""
        rows = parsed(self.folder.metrics, ("update",)).rows
        if rows and float(rows[-1]["update"]) >= self.config.checkpoint_every:
            tables = [path for path in (self.folder.metrics, self.folder.evaluations) if path.exists()]
            copies = [copy_aside(path, self.folder.path / OLD_TABLES) for path in tables]
            self.progress.say(
                f"there is no checkpoint of the {int(float(rows[-1]['update'])):,} updates in {self.folder.metrics}: "
                f"the run begins again, and the tables as they were are kept in {copies[0].parent}"
            )

    def run(self) -> RunnerState:
        """The state after the last update. RunStopped if the run ends before it."""
        self._compile()
        if self.start.is_fresh:
            self._draw()
            self._evaluate()
        else:
            self.progress.say(f"{self.folder.path} goes on from update {self.update:,}")
        # The time left is estimated from here on, without the compilation.
        self.first_interval = time.perf_counter()
        while self.update < self.config.n_updates and not self._stopping():
            self._interval()
        self._leave()
        return self.state

    def _stopping(self) -> int:
        """The number of a signal that some process has received; 0 for none."""
        # A scheduler may signal one process only. But all must leave at the same update, since they save together.
        return hosts.largest(self.stop.signal or 0)

    def _compile(self) -> None:
        """Waits until the program is compiled and loaded, so that this time does not count in the first interval."""
        self.progress.doing("compiling the training and the evaluation" if self.held_out else "compiling the training")
        if self.start.compiling:
            self.start.compiling.result()
        # The state has reached this target already, so nothing is trained.
        self.state, _ = finished(lambda: self.program.run(self.state, self.update))

    def _interval(self) -> None:
        """Trains up to the next multiple of `log_every`, then logs, evaluates and saves what is due there."""
        before = self.update
        # The target is a multiple of `log_every`, so that intervals end at the same updates in an interrupted run.
        target = min(self.config.n_updates, (before // self.config.log_every + 1) * self.config.log_every)
        self.progress.doing(TRAINING)
        began = time.perf_counter()
        # The steps are bounded: the host must log and hear signals even if the curriculum seldom or never trains.
        self.state, report = finished(lambda: self.program.run(self.state, target, 10 * self.config.log_every))
        seconds = time.perf_counter() - began
        self.update = int(np.min(hosts.readable(self.state.students.n_updates)))
        # Rows are written before the checkpoint that covers them. A resumed run drops rows that are later than its
        # checkpoint, but it could not write rows that are missing before it.
        self._check(report)
        self._log(report, seconds)
        # Before the evaluation: while that is running on the device, pictures are drawn on the host.
        if self.config.pictures_every and self._due(self.config.pictures_every, before):
            self._draw()
        self._hand_on_pictures(wait=False)
        if self.held_out and self._due(self.config.eval.every, before):
            self._evaluate()
        # Before the checkpoint: a run that goes on from there does not come to this update again.
        if self.config.archive_every and self._due(self.config.archive_every, before):
            self._archive()
        if self._due(self.config.checkpoint_every, before):
            self._save()
        # Checkpoints are written in the background. Without this check, a run would go on with a full disk.
        self.checkpoints.check()

    def _due(self, every: int, before: int) -> bool:
        """Whether the run has passed a multiple of `every` since update `before`, or has reached its end."""
        # `update % every == 0` would be wrong: intervals need not end at multiples of `every`.
        return self.update // every > before // every or self.update >= self.config.n_updates

    def _check(self, report: Report) -> None:
        """Raises RunStopped if some numbers are not finite: the run cannot go on."""
        for bad, what in ((report.nonfinite, "loss"), (report.broken_curriculum, "teacher")):
            if np.any(bad):
                seed = self.config.seed + np.flatnonzero(bad)[0]
                self._break_off(f"the {what} of seed {seed} is not finite at update {self.update:,}")

    def _break_off(self, why: str) -> None:
        # The message names the newest checkpoint, which may still be under way to the disk.
        self.checkpoints.wait()
        raise RunStopped(f"error: {why}; {self.folder.newest()}")

    def _log(self, report: Report, seconds: float) -> None:
        """Writes the rows of the interval and updates the progress line."""
        env_steps, before = self.program.env_steps(self.state), self.env_steps
        self.env_steps = env_steps
        speed = float((env_steps - before).sum()) / seconds
        metrics = {name: np.asarray(report.metrics[name], np.float32) for name in sorted(report.metrics)}
        position = {"update": self.update, "clock": clock_of(self.state)}
        measured = {"seconds": time.perf_counter() - self.began, "steps_per_second": speed}
        rows = [
            position
            | {"seed": seed, "env_steps": int(env_steps[i])}
            | measured
            | {name: values[i] for name, values in metrics.items()}
            for i, seed in enumerate(seeds(self.config))
        ]
        self._write(self.metrics, rows)
        self.progress.stands(self._standing(speed, metrics))
        self._say_if_stuck(float(np.mean(metrics.get("buffer/fill", math.nan))))

    def _say_if_stuck(self, fill: float) -> None:
        """Says once that nothing is trained where the students wait for levels, and the buffer does not fill."""
        fill = round(fill, 4)  # a mean
        if self.update == self.start.update and fill == self.last_fill and not self.is_stuck:
            self.is_stuck = True
            self.progress.say(
                f"warning: nothing has been learnt so far: the level buffer stays {fill:.1%} full, and replay waits "
                "for more. If there are so few levels, set --runner.capacity to their number"
            )
        self.last_fill = fill

    def _standing(self, speed: float, metrics: dict[str, np.ndarray]) -> Standing:
        # Evaluations and checkpoints are included, because the time that is left contains some of them too.
        n_done = self.update - self.start.update
        per_update = (time.perf_counter() - self.first_interval) / n_done if n_done else math.nan
        return Standing(
            update=self.update,
            n_updates=self.config.n_updates,
            steps_per_second=speed,
            seconds_left=per_update * (self.config.n_updates - self.update),
            training_return=float(np.mean(metrics["return"])),
            solved_rate=float(np.mean(metrics["solved_rate"])),
            alive=float(np.mean(metrics.get(ALIVE, math.nan))),
        )

    def _evaluate(self) -> None:
        """Writes a row for each seed and held-out task to eval.csv, if the run is evaluated at all."""
        if self.held_out is None:
            return
        self.progress.doing("evaluating")
        result = finished(functools.partial(self.held_out.evaluate, self.update, self.state.students.evaluated))
        rows = self.held_out.rows(self.update, result)
        self._write(self.evaluations, rows)
        solved = np.mean([row["solved_rate"] for row in rows])
        self.progress.say(f"update {self.update:,}: solved rate {solved:.0%} on held-out tasks")

    def _draw(self) -> None:
        """Starts to draw levels and episodes, where pictures are asked for. Waits for those that were begun before."""
        if self.pictures:
            self._hand_on_pictures(wait=True)
            self._check_folder()
            self.pictures.begin(self.update, self.state)

    def _hand_on_pictures(self, wait: bool) -> None:
        """Gives pictures that are drawn to the writers that take pictures."""
        found = self.pictures.taken(wait) if self.pictures else None
        if found:
            for writer in self.curves:
                if hasattr(writer, "write_pictures"):
                    writer.write_pictures(found[0], self.config.seed, found[1])

    def _save(self) -> None:
        """Starts to write a checkpoint. If a parameter is not finite, nothing is written: RunStopped."""
        # A run that goes on from this checkpoint does not draw earlier updates again.
        self._hand_on_pictures(wait=True)
        self.progress.doing("saving")
        self._check_folder()
        self._check_parameters()
        self.checkpoints.save(self.update, self.state, {ROWS: {table.path.name: table.n_rows for table in self.tables}})

    def _archive(self) -> None:
        """Keeps the parameters of all seeds and students. If one is not finite, nothing is written: RunStopped."""
        self.progress.doing("archiving")
        self._check_folder()
        self._check_parameters()
        params = hosts.readable(self.state.students.evaluated)
        if not hosts.is_first():
            return
        about = {"seeds": list(seeds(self.config)), "config": self.checkpoints.config}
        moved = archive.keep(self.folder.archive, self.update, params, about)
        if moved:
            self.progress.say(f"the archive of update {self.update:,} was another one: it is kept in {moved}")

    def _check_parameters(self) -> None:
        """Raises RunStopped if a parameter is not finite."""
        # A finite loss is not enough: the update that it led to may have overflowed.
        students = self.state.students
        learnt = {"": (students.params, students.average), "teacher's ": learnt_parameters(self.state.curriculum)}
        for whose, params in learnt.items():
            if not np.all(hosts.readable(all_finite(params, self.config.n_seeds))):
                self._break_off(f"the {whose}parameters are not finite at update {self.update:,}")

    def _write(self, writers: Sequence[Writer], rows: Sequence[Row]) -> None:
        """Gives the same rows to all writers."""
        self._check_folder()
        for writer in writers:
            writer.write(rows)

    def _check_folder(self) -> None:
        """FolderLost in the first process, which does the writing, if the folder is not the run's any more."""
        if hosts.is_first():
            missing = self.folder.repaired()
            if missing:
                self.progress.say(f"{', '.join(missing)} had been taken away from {self.folder.path}: made again")

    def _leave(self) -> None:
        """Returns when everything is on disk. RunStopped if a signal was the reason to leave."""
        if self.update:
            self._save()
            self.checkpoints.wait()
        number = self._stopping()
        if number:
            stop = signal.Signals(number)
            done = f"saved at update {self.update:,} of {self.config.n_updates:,}" if self.update else "nothing to save"
            raise RunStopped(f"{stop.name}: {done}; --resume continues {self.folder.path}", exit_status(stop))


class HeldOutEvaluation:
    """Evaluates the first student of every seed. The same update of the same run always has the same result."""

    def __init__(self, eval_runner: EvalRunner, config: Config, mesh: DeviceMesh):
        self.runner = eval_runner
        self.seeds = seeds(config)
        self._mesh = mesh
        played = mesh.per_seed(functools.partial(play_first_students, eval_runner))

        def evaluate_update(update: jax.Array, params: Any, levels: Level) -> EvalResult:
            return played(evaluation_keys(self.seeds, update), params, levels)

        # The update is an argument. As a constant, it would make every evaluation another program to compile.
        self._evaluate = mesh.compiled(evaluate_update)

    def compile(self, params: Any) -> None:
        """Compiles `evaluate` for parameters like these; shapes are enough."""
        keys = evaluation_keys(self.seeds)
        self.runner.draw.lower(keys).compile()
        self._evaluate.lower(np.int32(0), params, jax.eval_shape(self.runner.draw, keys)).compile()

    def evaluate(self, update: int, params: Any) -> EvalResult:
        """The result [S, M, E] for `params` [S, A, ...]. The update is the seed of the evaluation."""
        levels = self._mesh.on_one_device(self.runner.draw(evaluation_keys(self.seeds, update)))
        return self._evaluate(np.int32(update), params, levels)

    def rows(self, update: int, result: EvalResult) -> list[Row]:
        """A row for each seed and held-out task: means over the episodes."""
        found = {"return": result.returns, "solved_rate": result.solved}
        found |= {f"facts/{name}": fact for name, fact in result.facts.items()}
        means = {name: np.asarray(x, np.float32).mean(axis=-1) for name, x in found.items()}
        return [
            {"update": update, "seed": seed, "task": name} | {k: mean[i, m] for k, mean in means.items()}
            for i, seed in enumerate(self.seeds)
            for m, name in enumerate(self.runner.names)
        ]


def play_first_students(eval_runner: EvalRunner, keys: jax.Array, params: Any, levels: Level) -> EvalResult:
    """The result [S, M, E] for `keys` [S], `params` [S, A, ...] and the `levels` [S, M * E, ...] of these keys."""
    first = jax.tree.map(lambda leaf: leaf[:, 0], params)
    return mapped(eval_runner.play, axis_name=axes.SEED)(keys, first, levels)


def seeds(config: Config) -> range:
    """The seeds of a run."""
    return range(config.seed, config.seed + config.n_seeds)


def clock_of(state: RunnerState) -> int:
    """Steps of the runner so far. All seeds have taken the same number."""
    return int(np.max(hosts.readable(state.clock)))


all_finite = jax.jit(finite, static_argnums=1, compiler_options=LEAST_EFFORT)


def begun(work: Callable[[], T]) -> "Future[T]":
    """The future result of `work`, which runs in its own thread."""
    # `shutdown` does not wait here. The thread ends when the work is done.
    worker = ThreadPoolExecutor(max_workers=1)
    try:
        return worker.submit(work)
    finally:
        worker.shutdown(wait=False)


def finished(work: Callable[[], T]) -> T:
    """The result of `work`, once it is computed.

    The work runs in another thread. Python handles signals in the main thread, and cannot do so while that is in XLA.
    """
    return begun(lambda: jax.block_until_ready(work())).result()
