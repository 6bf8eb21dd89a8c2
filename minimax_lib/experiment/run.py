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
from minimax_lib.experiment.checkpoint import CheckpointError, Checkpoints, one_line, placed
from minimax_lib.experiment.folder import RunFolder, RunRefused
from minimax_lib.experiment.interrupts import StopRequest, exit_status
from minimax_lib.experiment.loop import HeldOutEvaluation, RunStopped, Start, Training, begun, finished
from minimax_lib.experiment.progress import Progress
from minimax_lib.experiment.writers.base import Writer
from minimax_lib.experiment.writers.tensorboard import TensorBoardWriter
from minimax_lib.runners import hosts
from minimax_lib.runners.build import grid_of, make_agent, make_program
from minimax_lib.runners.devices import keeps_own
from minimax_lib.runners.hosts import Hosts
from minimax_lib.runners.seeds import Program
from minimax_lib.runners.training import RunnerState

# Settings that do not alter what is learnt: a resumed run may change them.
FREE = frozenset({"name", "log_dir", "resume", "compilation_cache", "plugins"}) | frozenset(
    {"log_every", "checkpoint_every", "keep_checkpoints", "eval.every", "report", "tensorboard"}
)
# Free too, unless what each device has of its own would not fit (`_check_devices`).
LAYOUT = frozenset({"n_devices", "n_seed_devices"})
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
        self.folder = RunFolder(config.run_folder)
        self.grid = grid_of(config)
        self.program = program or make_program(config)
        self.held_out: HeldOutEvaluation | None = None
        if config.eval.every:
            eval_runner = eval_runner or config.eval.build(config.env, make_agent(config).agent)
            self.held_out = HeldOutEvaluation(eval_runner, config, self.grid)

    def run(self) -> int:
        """The exit status, after the training; an error is one line on stderr.

        0: finished, now or already. 1: broke off. 2: refused, nothing has changed. 130, 143: saved on SIGINT, SIGTERM.
        """
        try:
            self.train()
        except RunRefused as refused:
            print(f"error: {refused}", file=sys.stderr)
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
                self._report(state)
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
        settings = to_dict(dataclasses.replace(self.config, **MOMENTARY))
        if self.config.resume and self.folder.holds_run():
            self._check_devices(self.folder.saved_config())
        self.folder.admit(settings, self.config.resume, free_settings(self.config))

    def _check_devices(self, saved: dict[str, Any]) -> None:
        """RunRefused where what each device has of its own (levels) would not fit the devices that there are now."""
        saved_rows = saved.get("n_devices", 1) // saved.get("n_seed_devices", 1)
        if saved_rows != self.grid.n_rows and keeps_own(self.program.runner):
            raise RunRefused(
                f"cannot resume {self.folder.path}: {saved_rows} devices shared a batch, each with levels of its own, "
                f"and now {self.grid.n_rows} would (choose n_devices={saved_rows * self.grid.n_groups})"
            )

    def _train(self) -> tuple[RunnerState, bool]:
        """The state after the last update, and whether there was one left to do."""
        try:
            # In this order: a signal is only noted until the last checkpoint is on disk. And a process that fails alone
            # leaves (`leaving_alone`) before it would wait, at the end of `Checkpoints`, for a write with the others.
            with (
                StopRequest() as stop,
                Progress(Console(quiet=not hosts.is_first())) as progress,
                Checkpoints(self.folder.checkpoints, self.config.keep_checkpoints) as checkpoints,
                self._curves() as curves,
                leaving_alone(self.folder),
            ):
                progress.doing("starting")
                start = self._start(checkpoints, progress)
                if start.update >= self.config.n_updates:
                    progress.say(f"{self.folder.path} is finished already: it has had its {start.update:,} updates")
                    return start.state, False
                return Training(self, start, stop, progress, checkpoints, curves).run(), True
        except (CheckpointError, OSError) as error:
            raise RunStopped(f"error: {one_line(error)}; {self.folder.newest()}") from error

    def _start(self, checkpoints: Checkpoints, progress: Progress) -> Start:
        """Where the newest checkpoint left the run; its beginning if there is none. RunRefused if none can be read."""
        shape = self.program.shape
        try:
            restored = checkpoints.restore(placed(shape)) if checkpoints.updates() else None
        except CheckpointError as error:
            raise RunRefused(f"cannot resume {self.folder.path}: {error}") from error
        if restored is None:
            # Compiling takes the longest, and begins first: it needs only the shapes of the state, not the state.
            compiling = self._compile(shape)
            return Start(finished(lambda: self.program.init(self.config.seed)), 0, is_fresh=True, compiling=compiling)
        for update, why in restored.damaged.items():
            progress.say(f"the checkpoint of update {update:,} is damaged ({why})")
        if restored.damaged:
            progress.say(f"damaged checkpoints are kept in {checkpoints.set_aside(restored.damaged)}")
        start = Start(restored.state, restored.update, is_fresh=False)
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
        trained = self.grid.on_one_device(state.students.params)
        untrained = self.grid.on_one_device(self.program.init(self.config.seed).students.params)
        if hosts.is_first():
            agent = make_agent(self.config).agent
            try:
                final_report(self.config, agent, untrained, trained, self.folder.path, Console())
            except Exception as error:
                print(f"the report failed, the run is finished and saved: {one_line(error)}", file=sys.stderr)
        # Processes shut down together: the others would wait there for the report no longer than `hosts.lost_timeout`.
        hosts.wait_for_all()


def free_settings(config: Config) -> frozenset[str]:
    """Dotted names of the settings that a resumed run may change, because they do not alter what it learns.

    The number of updates is one of them unless a learning rate is scheduled over it.
    """
    # By the end of the name: teachers have a schedule of their own.
    scheduled = [value for name, value in flat(to_dict(config)).items() if name.endswith("lr_final")]
    free = FREE | LAYOUT
    return free if any(value is not None for value in scheduled) else free | {"n_updates"}


@contextlib.contextmanager
def leaving_alone(folder: RunFolder) -> Iterator[None]:
    """A block in which a process that fails alone leaves at once, if the run has several processes.

    Anything that needs the others would never end. They notice that it is lost, and leave too. What all processes agree
    on (RunRefused, RunStopped) is raised as usual.
    """
    try:
        yield
    except (RunRefused, RunStopped):
        raise
    except Exception as error:
        if not hosts.is_one_of_several():
            raise
        print(f"error: {one_line(error)}; {folder.newest()}", file=sys.stderr, flush=True)
        os._exit(1)
