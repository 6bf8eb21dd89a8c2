"""A whole run of a configuration, in its own folder, from the start or from the newest checkpoint."""

import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image
from rich.console import Console

from minimax_lib.config import Config, to_dict
from minimax_lib.config.evaluate import EvaluateSettings
from minimax_lib.config.tree import flat
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.evaluation.report import REPORTED, REPORTED_EPISODES, final_report
from minimax_lib.experiment.failures import XLA_ERRORS, training_failure
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.interrupts import StopRequest
from minimax_lib.experiment.loop import HeldOutEvaluation, ResumePoint, RunStopped, Training, begun, finished
from minimax_lib.experiment.progress import Progress
from minimax_lib.experiment.writers.base import Writer
from minimax_lib.experiment.writers.tensorboard import TensorBoardWriter
from minimax_lib.experiment.writers.wandb import WandbWriter, check_wandb
from minimax_lib.extras import check_installed
from minimax_lib.files import MOST_TABLE, read_bytes
from minimax_lib.leaving import interrupted
from minimax_lib.loops import release_compiler_memory
from minimax_lib.messages import one_line, printable, shown
from minimax_lib.runners import hosts
from minimax_lib.runners.build import make_agent, make_program, mesh_of
from minimax_lib.runners.devices import keeps_own
from minimax_lib.runners.hosts import Hosts
from minimax_lib.runners.seeds import Program
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.checkpoint import CheckpointError, Checkpoints, placed
from minimax_lib.store.evaluations import csv_text, file_name, write_new
from minimax_lib.store.folder import RunFolder, RunRefused, completed, differences
from minimax_lib.store.initial import begun_with, initial_params
from minimax_lib.store.origin import origin_of, record
from minimax_lib.store.parameters import named
from minimax_lib.store.provenance import configuration_of, edited, free_settings, reasons_fixed

# Settings of how a process is started. They are not recorded, since a run may go on in fewer processes.
MOMENTARY: dict[str, Any] = {"resume": False, "distributed": False, "hosts": Hosts()}


class ExperimentRunner:
    """Trains what a configuration describes, in its own folder.

    Everything random is in the state, and everything that is written follows from the state. So a run that was killed
    and resumed ends with the same files as a run that was not, apart from the columns that measure time.
    """

    def __init__(self, config: Config, program: Program | None = None, eval_runner: EvalRunner | None = None):
        """`program` and `eval_runner` replace those of the configuration."""
        if config.tensorboard:
            check_installed("tensorboardX", "tensorboard", "tensorboard")
        if config.wandb.on:
            check_wandb()
        self.config = config
        self.settings = to_dict(dataclasses.replace(config, **MOMENTARY))  # as they are recorded
        self.folder = RunFolder(config.run_folder)
        self.mesh = mesh_of(config)
        self.program = program or make_program(config)
        if config.archive_every:
            try:
                named(self.program.shape.students.evaluated)
            except ValueError as error:
                raise ValueError(f"archive_every is {config.archive_every}: {error}") from None
        self.eval_runner = eval_runner or config.eval.build(config.env, make_agent(config).agent)
        self.initial = initial_params(config, self.program)
        self.held_out = HeldOutEvaluation(self.eval_runner, config, self.mesh) if config.eval.every else None

    def run(self) -> int:
        """Trains, and returns the exit status. An error is one line on stderr.

        0: finished, now or earlier. 1: failed on the way. 2: refused, and nothing has changed. 130, 143 and 129: ended
        by SIGINT, SIGTERM or SIGHUP, and saved.
        """
        try:
            self.train()
        except RunRefused as refused:
            print(f"error: {printable(str(refused))}", file=sys.stderr)
            return 2
        except RunStopped as stopped:
            print(stopped, file=sys.stderr)
            return stopped.status
        except KeyboardInterrupt as error:
            # A dispatch that is under way cannot be cancelled, and Python would wait for its thread before it leaves.
            os._exit(interrupted(error, f"; {self.folder.newest()}"))
        return 0

    def train(self) -> RunnerState:
        """The state after the last update. The report follows, unless it is there already or turned off.

        Raises RunRefused before anything has changed, and RunStopped after that.
        """
        with contextlib.ExitStack() as stack:
            # The outermost context: the line is printed whichever part of the run ends the process.
            if hosts.is_one_of_several():
                stack.enter_context(hosts.last_words(self._last_words()))
            self._enter_folder(stack)
            with self._curves() as curves:
                state, trained = self._train(curves)
                if self.config.report and (trained or self._lacks_report()):
                    try:
                        self._report(state, curves)
                    except XLA_ERRORS as error:
                        say_report_failed(error)
                if trained and hosts.is_first():
                    print(f"{self.folder.path} is finished: {self.config.n_updates:,} updates", flush=True)
        return state

    def _last_words(self) -> str:
        who = f"process {jax.process_index()} of {jax.process_count()}"
        return f"{who} left before the end, as all do when one is lost; --resume continues {self.folder.path}"

    def _enter_folder(self, stack: contextlib.ExitStack) -> None:
        """The first process takes the folder for all processes. If it cannot, RunRefused in every process."""
        # The folder has one lock. A second process of the same run would find that the first has it.
        refused = None
        if hosts.is_first():
            try:
                stack.enter_context(self.folder.owned())
                self._admit()
            except RunRefused as error:
                refused = error
        if hosts.largest(bool(refused)):
            raise refused or RunRefused("the first process of the run has refused it, and says why")

    def _admit(self) -> None:
        if self.config.resume and self.folder.holds_run():
            saved = self.folder.saved_config()
            found = configuration_of(self.folder.checkpoints)
            own = found[1] if found else None
            self._check_devices(own or saved)
            if found and own:
                self._check_not_edited(found[0], own, saved)
            if found and self.config.n_updates < found[0]:
                raise RunRefused(
                    f"cannot resume {self.folder.path}: n_updates is {self.config.n_updates:,}, and it has had "
                    f"{found[0]:,} updates already: give at least as many"
                )
        free, fixed = free_settings(self.config), reasons_fixed(self.config)
        kept = self.folder.admit(self.settings, self.config.resume, free, fixed)
        if kept:
            print(f"{self.folder.config} is written anew: the file as it was is kept in {kept}", flush=True)

    def _check_not_edited(self, update: int, own: dict[str, Any], saved: dict[str, Any]) -> None:
        """RunRefused if config.yaml (`saved`) has been edited since the checkpoint, whose configuration is `own`."""
        # Settings that differ from config.yaml too were not edited there. The folder itself refuses those.
        given = differences(completed(saved), self.settings)
        free = free_settings(self.config) | given.keys()
        changes = edited(own, self.settings, free, reasons_fixed(self.config))
        if changes:
            raise RunRefused(
                f"cannot resume {self.folder.path} with another configuration: {'; '.join(changes)} "
                f"({self.folder.config.name} has been edited: the checkpoint of update {update:,} belongs to another)"
            )

    def _check_devices(self, saved: dict[str, Any]) -> None:
        """RunRefused if devices have their own levels, and another number of devices would divide a batch now."""
        counts = {name: saved.get(name, 1) for name in ("n_devices", "n_seed_devices")}
        for name, count in counts.items():
            if type(count) is not int or count < 1:
                raise RunRefused(
                    f"cannot resume {self.folder.path}: {name} was {shown(count)}: it must be an integer, at least 1"
                )
        saved_rows = counts["n_devices"] // counts["n_seed_devices"]
        if saved_rows != self.mesh.n_rows and keeps_own(self.program.runner):
            raise RunRefused(
                f"cannot resume {self.folder.path}: {saved_rows} devices divided a batch, each with its own levels, "
                f"and now {self.mesh.n_rows} would (choose n_devices={saved_rows * self.mesh.n_groups})"
            )

    def _train(self, curves: Sequence[Writer]) -> tuple[RunnerState, bool]:
        """The state after the last update, and whether anything was trained."""
        try:
            # The order matters. `StopRequest` is outermost, so that signals are only noted until the last checkpoint is
            # on disk. `_leaving_alone` is innermost: a process that fails alone leaves before the end of `Checkpoints`,
            # where it would wait for the others.
            with (
                StopRequest(f"interrupted; --resume continues {self.folder.path}") as stop,
                Progress(Console(quiet=not hosts.is_first())) as progress,
                Checkpoints(self.folder.checkpoints, self.config.keep_checkpoints, config=self.settings) as checkpoints,
                self._leaving_alone(),
            ):
                machine = say_hardware(progress.say, self.config.device_count, self.config.model)
                progress.doing("starting")
                start = self._start(checkpoints, progress)
                if start.update >= self.config.n_updates:
                    progress.say(f"{self.folder.path} is finished already: it has had its {start.update:,} updates")
                    return start.state, False
                if hosts.is_first():
                    record(self.folder.origin, origin_of(start.update, machine))
                return Training(self, start, stop, progress, checkpoints, curves).run(), True
        except (CheckpointError, OSError, *XLA_ERRORS) as error:
            raise RunStopped(self._failure(error)) from error

    def _failure(self, error: BaseException) -> str:
        return f"error: {training_failure(error, flat(self.settings))}; {self.folder.newest()}"

    def _start(self, checkpoints: Checkpoints, progress: Progress) -> ResumePoint:
        """The newest checkpoint, or the beginning of the run if there is none. RunRefused if none can be read."""
        shape = self.program.shape
        try:
            restored = checkpoints.restore(placed(shape))
        except CheckpointError as error:
            raise RunRefused(f"cannot resume {self.folder.path}: {error}") from error
        if restored is None:
            if self.config.resume:
                progress.say(f"there is nothing to resume in {self.folder.path.absolute()}: the run begins there")
            if self.initial is not None:
                progress.say(f"the students begin with the parameters of {self.config.init_from}")
            # Compiling takes longest and begins first. It needs only the shapes of the state.
            compiling = self._compile(shape)
            return ResumePoint(finished(self._first_state), 0, is_fresh=True, compiling=compiling)
        for update, why in restored.damaged.items():
            progress.say(f"the checkpoint of update {update:,} is damaged ({why})")
        if restored.damaged:
            progress.say(f"damaged checkpoints are kept in {checkpoints.set_aside(restored.damaged)}")
        start = ResumePoint(restored.state, restored.update, is_fresh=False, record=restored.record)
        if restored.update < self.config.n_updates:
            start = dataclasses.replace(start, compiling=self._compile(restored.state))
        return start

    def _first_state(self) -> RunnerState:
        state = self.program.init(self.config.seed)
        return state if self.initial is None else begun_with(state, self.initial)

    def _compile(self, state: RunnerState) -> "Future[None]":
        """Starts to compile training and evaluation for states like `state`; its shapes are enough."""

        def work() -> None:
            # Tracing holds Python's lock, but compiling in XLA does not. So the first program is compiled while the
            # second is traced.
            with ThreadPoolExecutor() as compilers:
                jobs: list[Future[Any]] = [compilers.submit(self.program.lower(state).compile)]
                if self.held_out:
                    jobs.append(compilers.submit(self.held_out.compile, state.students.evaluated))
            for job in jobs:
                job.result()
            release_compiler_memory()

        return begun(work)

    @contextlib.contextmanager
    def _leaving_alone(self) -> Iterator[None]:
        """A block for runs of several processes: a process that fails alone leaves at once.

        Otherwise it would wait for ever for the other processes. They notice that it is lost, and leave too. RunRefused
        and RunStopped, which all processes agree on, are raised as usual.
        """
        try:
            yield
        except (RunRefused, RunStopped):
            raise
        except Exception as error:
            if not hosts.is_one_of_several():
                raise
            print(self._failure(error), file=sys.stderr, flush=True)
            os._exit(1)

    @contextlib.contextmanager
    def _curves(self) -> Iterator[list[Writer]]:
        """The writers that a run has besides its tables, in the first process."""
        with contextlib.ExitStack() as stack:
            curves: list[Writer] = []
            if self.config.tensorboard and hosts.is_first():
                to_tensorboard = TensorBoardWriter(self.folder.tensorboard, say_at_once)
                curves.append(stack.enter_context(contextlib.closing(to_tensorboard)))
            if self.config.wandb.on and hosts.is_first():
                to_wandb = WandbWriter(self.folder, self.config.wandb, self.settings, say_at_once)
                curves.append(stack.enter_context(contextlib.closing(to_wandb)))
            try:
                yield curves
            except KeyboardInterrupt:
                stack.pop_all()  # a second interrupt means: do not wait
                raise

    def _report(self, state: RunnerState, curves: Sequence[Writer]) -> None:
        """Prints the report on the finished training, in the first process. If the report fails, the run does not."""
        # The parameters may be spread over all processes, so all of them must ask for them. Untrained parameters follow
        # from the seed, so a resumed run has them too. Those of another run have been read only where this one began.
        trained = self.mesh.on_one_device(state.students.evaluated)
        first = self.mesh.on_one_device(self._first_state().students.evaluated)
        if hosts.is_first():
            try:
                with Progress(Console()) as progress:
                    self._write_report(first, trained, progress)
                self._show_agent(curves)
            except Exception as error:
                say_report_failed(error)
        # At shutdown, the others would wait for the first process no longer than `hosts.lost_timeout`. Here they wait
        # until the report is done.
        hosts.wait_for_all()

    def _write_report(self, first: Any, trained: Any, progress: Progress) -> None:
        """Prints the table, and keeps its numbers as `minimax-evaluate` keeps those of the same evaluation."""
        config, folder = self.config, self.folder.path
        agent = make_agent(config).agent
        first_name = "untrained" if self.initial is None else "initial"
        _, scores = final_report(config, agent, first, trained, folder, progress.console, progress.doing, first_name)
        how, name = self._reported()
        self._results.mkdir(exist_ok=True)
        kept = write_new(self._results, name, csv_text(how, config.n_updates, scores))
        progress.say(f"its numbers: {kept}")

    @property
    def _results(self) -> Path:
        return self.folder.path / "evaluations"

    def _reported(self) -> tuple[EvaluateSettings, str]:
        """(the evaluation that the report is, the name of the file with its numbers, without its ending)."""
        how = EvaluateSettings(
            run=(str(self.folder.path),),
            tasks=REPORTED,
            n_episodes=REPORTED_EPISODES,
            greedy=self.config.eval.greedy,
            protocol=self.config.eval.protocol,
        )
        return how, file_name(how, self.config.n_updates)

    def _lacks_report(self) -> bool:
        """Whether a finished run has none: it was killed while the report was made, or had --no-report."""
        missing = hosts.is_first() and not (self._results / f"{self._reported()[1]}.csv").exists()
        return bool(hosts.largest(missing))

    def _show_agent(self, curves: Sequence[Writer]) -> None:
        """Gives the picture of the report, if there is one, to the writers that take pictures."""
        takers = [writer for writer in curves if hasattr(writer, "write_pictures")]
        path = self.folder.path / "levels" / "agent.png"
        if takers and path.exists():
            picture = np.asarray(Image.open(io.BytesIO(read_bytes(path, MOST_TABLE))).convert("RGB"))
            for writer in takers:
                writer.write_pictures(self.config.n_updates, self.config.seed, {"agent": picture})


def say_at_once(line: str) -> None:
    """Prints a line on stderr."""
    print(printable(line), file=sys.stderr, flush=True)


def say_report_failed(error: BaseException) -> None:
    """Prints one line. The run itself is not affected."""
    print(f"the report failed, the run is finished and saved: {one_line(error)}", file=sys.stderr)
