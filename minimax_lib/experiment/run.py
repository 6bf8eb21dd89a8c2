"""A whole run: what a configuration describes, in a folder of its own, from its start or its newest checkpoint."""

import contextlib
import dataclasses
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from rich.console import Console

from minimax_lib.config import Config, to_dict
from minimax_lib.config.tree import flat
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.evaluation.report import final_report
from minimax_lib.experiment.checkpoint import CheckpointError, Checkpoints, placed
from minimax_lib.experiment.failures import XLA_ERRORS, one_line, training_failure
from minimax_lib.experiment.folder import RunFolder, RunRefused, completed, differences
from minimax_lib.experiment.interrupts import StopRequest, exit_status
from minimax_lib.experiment.loop import HeldOutEvaluation, RunStopped, Start, Training, begun, finished
from minimax_lib.experiment.progress import Progress
from minimax_lib.experiment.provenance import configuration_of, edited, free_settings
from minimax_lib.experiment.writers.base import Writer
from minimax_lib.experiment.writers.tensorboard import TensorBoardWriter
from minimax_lib.messages import printable, shown
from minimax_lib.runners import hosts
from minimax_lib.runners.build import make_agent, make_program, mesh_of
from minimax_lib.runners.devices import keeps_own
from minimax_lib.runners.hosts import Hosts
from minimax_lib.runners.seeds import Program
from minimax_lib.runners.training import RunnerState

# These say how a process is started, and are not recorded: a run may go on in fewer processes than it began in.
MOMENTARY: dict[str, Any] = {"resume": False, "distributed": False, "hosts": Hosts()}


class ExperimentRunner:
    """Trains what a configuration describes, in a folder of its own.

    Everything random is in the state, and what is written follows from the state. So a run that was killed and resumed
    ends with the files of a run that was not, but for the columns that measure time.
    """

    def __init__(self, config: Config, program: Program | None = None, eval_runner: EvalRunner | None = None):
        """`program` and `eval_runner` replace what the configuration asks for."""
        if config.tensorboard and importlib.util.find_spec("tensorboardX") is None:
            raise ValueError(
                "tensorboard is on and tensorboardX is not installed: pip install 'minimax-lib[tensorboard]'"
            )
        self.config = config
        self.settings = to_dict(dataclasses.replace(config, **MOMENTARY))  # that the run is known by
        self.folder = RunFolder(config.run_folder)
        self.mesh = mesh_of(config)
        self.program = program or make_program(config)
        self.held_out: HeldOutEvaluation | None = None
        if config.eval.every:
            eval_runner = eval_runner or config.eval.build(config.env, make_agent(config).agent)
            self.held_out = HeldOutEvaluation(eval_runner, config, self.mesh)

    def run(self) -> int:
        """The exit status, after the training; an error is one line on stderr.

        0: finished, now or already. 1: broke off. 2: refused, nothing has changed. 130, 143: saved on SIGINT, SIGTERM.
        """
        try:
            self.train()
        except RunRefused as refused:
            print(f"error: {printable(str(refused))}", file=sys.stderr)
            return 2
        except RunStopped as stopped:
            print(stopped, file=sys.stderr)
            return stopped.status
        except KeyboardInterrupt:
            # A dispatch under way cannot be called back: Python would wait for its thread before it leaves.
            print(f"interrupted; {self.folder.newest()}", file=sys.stderr, flush=True)
            os._exit(exit_status(signal.SIGINT))
        return 0

    def train(self) -> RunnerState:
        """The state after the last update. A report follows, if it is asked for and anything was left to train.

        Raises RunRefused before anything has changed, RunStopped later.
        """
        with contextlib.ExitStack() as stack:
            # Outermost: whichever part of the run ends the process, the line is printed.
            if hosts.is_one_of_several():
                stack.enter_context(hosts.last_words(self._last_words()))
            self._enter_folder(stack)
            state, trained = self._train()
            if trained and self.config.report:
                try:
                    self._report(state)
                except XLA_ERRORS as error:
                    say_report_failed(error)
        return state

    def _last_words(self) -> str:
        who = f"process {jax.process_index()} of {jax.process_count()}"
        return f"{who} left before the end, as all do when one is lost; --resume continues {self.folder.path}"

    def _enter_folder(self, stack: contextlib.ExitStack) -> None:
        """The first process takes the folder for all; RunRefused in every process if it cannot."""
        # The folder has one lock: a second process of the same run would find it taken by the first.
        refused = None
        if hosts.is_first():
            try:
                stack.enter_context(self.folder.owned())
                self._admit()
            except RunRefused as error:
                refused = error
        if hosts.largest(bool(refused)):
            raise refused or RunRefused("the first process of the run refuses it, and says why")

    def _admit(self) -> None:
        if self.config.resume and self.folder.holds_run():
            saved = self.folder.saved_config()
            found = configuration_of(self.folder.checkpoints)
            own = found[1] if found else None
            self._check_devices(own or saved)
            if found and own:
                self._check_not_edited(found[0], own, saved)
        self.folder.admit(self.settings, self.config.resume, free_settings(self.config))

    def _check_not_edited(self, update: int, own: dict[str, Any], saved: dict[str, Any]) -> None:
        """RunRefused where the configuration is that of config.yaml but not `own`, which the checkpoint belongs to."""
        # What differs from config.yaml too was not edited there: the folder refuses it, and says so.
        given = differences(completed(saved), self.settings)
        changes = edited(own, self.settings, free_settings(self.config) | given.keys())
        if changes:
            raise RunRefused(
                f"cannot resume {self.folder.path} with another configuration: {'; '.join(changes)} "
                f"({self.folder.config.name} has been edited: the checkpoint of update {update:,} belongs to another)"
            )

    def _check_devices(self, saved: dict[str, Any]) -> None:
        """RunRefused where what each device has of its own (levels) would not fit the devices that there are now."""
        counts = {name: saved.get(name, 1) for name in ("n_devices", "n_seed_devices")}
        for name, count in counts.items():
            if type(count) is not int or count < 1:
                raise RunRefused(
                    f"cannot resume {self.folder.path}: {name} was {shown(count)}: it must be an integer, at least 1"
                )
        saved_rows = counts["n_devices"] // counts["n_seed_devices"]
        if saved_rows != self.mesh.n_rows and keeps_own(self.program.runner):
            raise RunRefused(
                f"cannot resume {self.folder.path}: {saved_rows} devices shared a batch, each with levels of its own, "
                f"and now {self.mesh.n_rows} would (choose n_devices={saved_rows * self.mesh.n_groups})"
            )

    def _train(self) -> tuple[RunnerState, bool]:
        """The state after the last update, and whether there was one left to do."""
        try:
            # In this order: a signal is only noted until the last checkpoint is on disk. And a process that fails alone
            # leaves (`_leaving_alone`) before it would wait, at the end of `Checkpoints`, for a write with the others.
            with (
                StopRequest(f"interrupted; --resume continues {self.folder.path}") as stop,
                Progress(Console(quiet=not hosts.is_first())) as progress,
                Checkpoints(self.folder.checkpoints, self.config.keep_checkpoints, config=self.settings) as checkpoints,
                self._curves() as curves,
                self._leaving_alone(),
            ):
                progress.doing("starting")
                start = self._start(checkpoints, progress)
                if start.update >= self.config.n_updates:
                    progress.say(f"{self.folder.path} is finished already: it has had its {start.update:,} updates")
                    return start.state, False
                return Training(self, start, stop, progress, checkpoints, curves).run(), True
        except (CheckpointError, OSError, *XLA_ERRORS) as error:
            raise RunStopped(self._failure(error)) from error

    def _failure(self, error: BaseException) -> str:
        return f"error: {training_failure(error, flat(self.settings))}; {self.folder.newest()}"

    def _start(self, checkpoints: Checkpoints, progress: Progress) -> Start:
        """Where the newest checkpoint left the run; its beginning if there is none. RunRefused if none can be read."""
        shape = self.program.shape
        try:
            restored = checkpoints.restore(placed(shape))
        except CheckpointError as error:
            raise RunRefused(f"cannot resume {self.folder.path}: {error}") from error
        if restored is None:
            if self.config.resume:
                progress.say(f"there is nothing to resume in {self.folder.path.absolute()}: the run begins there")
            # Compiling takes the longest, and begins first: it needs only the shapes of the state, not the state.
            compiling = self._compile(shape)
            return Start(finished(lambda: self.program.init(self.config.seed)), 0, is_fresh=True, compiling=compiling)
        for update, why in restored.damaged.items():
            progress.say(f"the checkpoint of update {update:,} is damaged ({why})")
        if restored.damaged:
            progress.say(f"damaged checkpoints are kept in {checkpoints.set_aside(restored.damaged)}")
        start = Start(restored.state, restored.update, is_fresh=False, record=restored.record)
        if restored.update < self.config.n_updates:
            start = dataclasses.replace(start, compiling=self._compile(restored.state))
        return start

    def _compile(self, state: RunnerState) -> "Future[None]":
        """Starts to compile training and evaluation for states like `state`, of which the shapes will do."""

        def work() -> None:
            # Tracing is Python, and takes turns. XLA compiles without Python's lock, so that the first program is
            # compiled while the second is traced.
            with ThreadPoolExecutor() as compilers:
                jobs = [compilers.submit(self.program.lower(state).compile)]
                if self.held_out:
                    jobs.append(compilers.submit(self.held_out.lower(state.students.params).compile))
            for job in jobs:
                job.result()

        return begun(work)

    @contextlib.contextmanager
    def _leaving_alone(self) -> Iterator[None]:
        """A block in which a process that fails alone leaves at once, if the run has several processes.

        Anything that needs the others would never end. They notice that it is lost, and leave too. What all processes
        agree on (RunRefused, RunStopped) is raised as usual.
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
        """The writers beside the tables."""
        if not self.config.tensorboard or not hosts.is_first():
            yield []
            return
        with contextlib.closing(TensorBoardWriter(self.folder.tensorboard)) as curves:
            yield [curves]

    def _report(self, state: RunnerState) -> None:
        """Prints the report on the finished training, in the first process. An error in it does not fail the run."""
        # All processes ask for the parameters, which may be spread over them. The untrained ones follow from the seed,
        # so that a resumed run has them too.
        trained = self.mesh.on_one_device(state.students.params)
        untrained = self.mesh.on_one_device(self.program.init(self.config.seed).students.params)
        if hosts.is_first():
            agent = make_agent(self.config).agent
            try:
                final_report(self.config, agent, untrained, trained, self.folder.path, Console())
            except Exception as error:
                say_report_failed(error)
        # Processes shut down together: the others would wait there for the report no longer than `hosts.lost_timeout`.
        hosts.wait_for_all()


def say_report_failed(error: BaseException) -> None:
    """Says so; the run itself is not touched by it."""
    print(f"the report failed, the run is finished and saved: {one_line(error)}", file=sys.stderr)
