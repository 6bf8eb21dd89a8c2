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

FREE = frozenset({"name", "log_dir", "resume", "compilation_cache", "plugins"}) | frozenset(
    {"log_every", "checkpoint_every", "keep_checkpoints", "eval.every", "report", "tensorboard"}
)
LAYOUT = frozenset({"n_devices", "n_seed_devices"})  # free too, unless what a device has of its own does not fit
MOMENTARY: dict[str, Any] = {"resume": False, "distributed": False, "hosts": Hosts()}  # no settings of the run itself


class ExperimentRunner:
    """Trains what a configuration describes, in a folder of its own.

    Everything random is in the state, and what is written follows from the state: a run that was killed and resumed
    ends with the files of a run that was not, but for the columns that measure time.
    """

    def __init__(self, config: Config, program: Program | None = None, eval_runner: EvalRunner | None = None):
        """`program` and `eval_runner` are what the configuration says, unless they are given."""
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
        """Trains, with errors as one line on stderr, and returns the exit status.

        0: finished, now or already. 1: broke off. 2: refused, nothing has changed. 130, 143: saved on SIGINT, SIGTERM.
        A second Ctrl-C ends the process here, since a dispatch under way cannot be called back.
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
            print(f"interrupted; {self.folder.newest()}", file=sys.stderr, flush=True)
            os._exit(exit_status(signal.SIGINT))
        return 0

    def train(self) -> RunnerState:
        """The state after the last update; reports, if the configuration says so and there was anything to train.

        Raises RunRefused before anything has changed, RunStopped later.
        """
        with contextlib.ExitStack() as stack:
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
        """RunRefused where what each device has of its own would not fit the devices that there are now."""
        saved_rows = saved.get("n_devices", 1) // saved.get("n_seed_devices", 1)
        if saved_rows != self.grid.n_rows and keeps_own(self.program.runner):
            raise RunRefused(
                f"cannot resume {self.folder.path}: {saved_rows} devices shared a batch, each with levels of its own, "
                f"and now {self.grid.n_rows} would (choose n_devices={saved_rows * self.grid.n_groups})"
            )

    def _train(self) -> tuple[RunnerState, bool]:
        """The state after the last update, and whether there was one left to do."""
        try:
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
        """Starts to compile training and evaluation for `state`, whose shapes will do.

        They are traced one after the other, since Python is, and compiled side by side.
        """

        def work() -> None:
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
        """What training was good for; an error in it is told, and is none of the training's."""
        trained = self.grid.on_one_device(state.students.params)
        untrained = self.grid.on_one_device(self.program.init(self.config.seed).students.params)
        if hosts.is_first():
            agent = make_agent(self.config).agent
            try:
                final_report(self.config, agent, untrained, trained, self.folder.path, Console())
            except Exception as error:
                print(f"the report failed, the run is finished and saved: {one_line(error)}", file=sys.stderr)
        hosts.wait_for_all()


def free_settings(config: Config) -> frozenset[str]:
    """Dotted names of the settings that a resumed run may change, because they do not alter what it learns.

    The number of updates is one of them unless a learning rate is scheduled over it.
    """
    scheduled = [value for name, value in flat(to_dict(config)).items() if name.endswith("lr_final")]
    free = FREE | LAYOUT
    return free if any(value is not None for value in scheduled) else free | {"n_updates"}


@contextlib.contextmanager
def leaving_alone(folder: RunFolder) -> Iterator[None]:
    """Where a process of several fails in its block, it leaves at once: nothing that needs the others would end.

    They notice, and leave in the same way. What all agree on (RunRefused, RunStopped) goes on as usual.
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
