"""The host's side of a run: the loop over log intervals, time, files, evaluation, signals and the progress line."""

import contextlib
import dataclasses
import functools
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np
from rich.console import Console

from minimax_lib import axes, hosts
from minimax_lib.checkpoint import CheckpointError, Checkpoints, one_line, placed
from minimax_lib.config import Config, to_dict
from minimax_lib.config.tree import flat
from minimax_lib.hosts import Hosts
from minimax_lib.interrupts import StopRequest, exit_status
from minimax_lib.logging import CsvWriter, Progress, Row, Standing, TensorBoardWriter, Writer
from minimax_lib.run_folder import RunFolder, RunRefused
from minimax_lib.runners.build import grid_of, make_agent, make_program
from minimax_lib.runners.devices import Grid, keeps_own
from minimax_lib.runners.evaluation import EvalResult, EvalRunner, evaluation_keys
from minimax_lib.runners.report import final_report
from minimax_lib.runners.seeds import Program, Report, finite, learnt_parameters
from minimax_lib.runners.training import RunnerState
from minimax_lib.trees import mapped

FREE = frozenset({"name", "log_dir", "resume", "compilation_cache", "plugins"}) | frozenset(
    {"log_every", "checkpoint_every", "keep_checkpoints", "eval.every", "report", "tensorboard"}
)
LAYOUT = frozenset({"n_devices", "n_seed_devices"})  # free too, unless what a device has of its own does not fit
MOMENTARY: dict[str, Any] = {"resume": False, "distributed": False, "hosts": Hosts()}  # no settings of the run itself

T = TypeVar("T")


class RunStopped(RuntimeError):
    """The run ended before its last update; one line. What its folder holds can be resumed."""

    def __init__(self, message: str, status: int = 1):
        super().__init__(message)
        self.status = status  # of the process


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
        self.held_out = None
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
                return _Training(self, start, stop, progress, checkpoints, curves).run(), True
        except (CheckpointError, OSError) as error:
            raise RunStopped(f"error: {one_line(error)}; {self.folder.newest()}") from error

    def _start(self, checkpoints: Checkpoints, progress: Progress) -> "_Start":
        """Where the newest checkpoint left the run; its beginning if there is none. RunRefused if none can be read."""
        shape = self.program.shape
        try:
            restored = checkpoints.restore(placed(shape)) if checkpoints.updates() else None
        except CheckpointError as error:
            raise RunRefused(f"cannot resume {self.folder.path}: {error}") from error
        if restored is None:
            compiling = self._compile(shape)
            return _Start(finished(lambda: self.program.init(self.config.seed)), 0, is_fresh=True, compiling=compiling)
        for update, why in restored.damaged.items():
            progress.say(f"the checkpoint of update {update:,} is damaged ({why})")
        if restored.damaged:
            progress.say(f"damaged checkpoints are kept in {checkpoints.set_aside(restored.damaged)}")
        start = _Start(restored.state, restored.update, is_fresh=False)
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


@dataclasses.dataclass(frozen=True)
class _Start:
    """Where a process takes a run up."""

    state: RunnerState
    update: int
    is_fresh: bool  # from the beginning, not from a checkpoint
    compiling: "Future[None] | None" = None  # None: nothing is left to do


class _Training:
    """A run under way: its state, and what happens on the host between two dispatches."""

    def __init__(
        self,
        run: ExperimentRunner,
        start: _Start,
        stop: StopRequest,
        progress: Progress,
        checkpoints: Checkpoints,
        curves: Sequence[Writer],
    ):
        """Opens the tables without the rows that come after `start`, which are about to be written again."""
        self.config, self.folder, self.program, self.held_out = run.config, run.folder, run.program, run.held_out
        self.stop, self.progress, self.checkpoints = stop, progress, checkpoints
        self.start, self.state, self.update = start, start.state, start.update
        clock, update = (-1, -1) if start.is_fresh else (clock_of(start.state), start.update)
        self.metrics: list[Writer] = [*curves]
        self.evaluations: list[Writer] = [*curves]
        self.began = self.first_interval = time.perf_counter()
        if hosts.is_first():
            metrics = CsvWriter(self.folder.metrics, "clock", clock)
            self.metrics.append(metrics)
            self.evaluations.append(CsvWriter(self.folder.evaluations, "update", update))
            self.began -= float(metrics.kept[-1]["seconds"]) if metrics.kept else 0.0

    def run(self) -> RunnerState:
        """The state after the last update. RunStopped if it does not come to that."""
        self._compile()
        if self.start.is_fresh:
            self._evaluate()
        else:
            self.progress.say(f"{self.folder.path} goes on from update {self.update:,}")
        self.first_interval = time.perf_counter()
        while self.update < self.config.n_updates and not self._stopping():
            self._interval()
        self._leave()
        return self.state

    def _stopping(self) -> int:
        """The number of the signal that any process has been sent; 0 for none."""
        return hosts.largest(self.stop.signal or 0)

    def _compile(self) -> None:
        """Waits for the compilation, and dispatches no work at all: the intervals are timed without either."""
        self.progress.doing("compiling")
        if self.start.compiling:
            self.start.compiling.result()
        self.state, _ = finished(lambda: self.program.run(self.state, self.update))

    def _interval(self) -> None:
        """Trains up to the next multiple of `log_every` and does what is due there."""
        before = self.update
        target = min(self.config.n_updates, (before // self.config.log_every + 1) * self.config.log_every)
        self.progress.doing("training")
        began = time.perf_counter()
        self.state, report = finished(lambda: self.program.run(self.state, target))
        seconds = time.perf_counter() - began
        self.update = int(np.min(hosts.readable(self.state.students.n_updates)))
        self._check(report, before)
        self._log(report, seconds)
        if self.held_out and self._due(self.config.eval.every, before):
            self._evaluate()
        if self._due(self.config.checkpoint_every, before):
            self._save()
        self.checkpoints.check()

    def _due(self, every: int, before: int) -> bool:
        """Whether the run has come past a multiple of `every` since update `before`, or to its end."""
        return self.update // every > before // every or self.update >= self.config.n_updates

    def _check(self, report: Report, before: int) -> None:
        """Raises RunStopped where going on makes no sense."""
        for bad, what in ((report.nonfinite, "loss"), (report.broken_curriculum, "teacher")):
            if np.any(bad):
                seed = self.config.seed + np.flatnonzero(bad)[0]
                self._break_off(f"the {what} of seed {seed} is not finite at update {self.update:,}")
        if self.update == before:
            self._break_off(f"no student has learnt anything in {int(report.n_steps):,} steps after update {before:,}")

    def _break_off(self, why: str) -> None:
        self.checkpoints.wait()
        raise RunStopped(f"error: {why}; {self.folder.newest()}")

    def _log(self, report: Report, seconds: float) -> None:
        """Writes the interval's rows and moves the progress line."""
        clock = clock_of(self.state)
        env_steps, before = (self._env_steps(end) for end in (clock, clock - int(report.n_steps)))
        speed = (env_steps - before) * self.config.n_seeds / seconds
        metrics = {name: np.asarray(report.metrics[name], np.float32) for name in sorted(report.metrics)}
        position = {"update": self.update, "clock": clock}
        measured = {"env_steps": env_steps, "seconds": time.perf_counter() - self.began, "steps_per_second": speed}
        rows = [
            position | {"seed": seed} | measured | {name: values[i] for name, values in metrics.items()}
            for i, seed in enumerate(seeds(self.config))
        ]
        write(self.metrics, rows)
        self.progress.stands(self._standing(speed, metrics))

    def _env_steps(self, clock: int) -> int:
        """Of a seed, on all of its devices, in the first `clock` steps of the runner."""
        return self.config.n_row_devices * self.program.runner.env_steps(clock)

    def _standing(self, speed: float, metrics: dict[str, np.ndarray]) -> Standing:
        per_update = (time.perf_counter() - self.first_interval) / (self.update - self.start.update)
        return Standing(
            update=self.update,
            n_updates=self.config.n_updates,
            steps_per_second=speed,
            seconds_left=per_update * (self.config.n_updates - self.update),
            training_return=float(np.mean(metrics["return"])),
            solved_rate=float(np.mean(metrics["solved_rate"])),
        )

    def _evaluate(self) -> None:
        """One row a seed and task in eval.csv, if the run is evaluated at all."""
        if self.held_out is None:
            return
        self.progress.doing("evaluating")
        result = finished(functools.partial(self.held_out.evaluate, self.update, self.state.students.params))
        rows = self.held_out.rows(self.update, result)
        write(self.evaluations, rows)
        solved = np.mean([row["solved"] for row in rows])
        self.progress.say(f"update {self.update:,}: {solved:.0%} of the held-out episodes solved")

    def _save(self) -> None:
        """Starts to write a checkpoint, unless the parameters are of no use."""
        self.progress.doing("saving")
        learnt = {"": self.state.students.params, "teacher's ": learnt_parameters(self.state.curriculum)}
        for whose, params in learnt.items():
            if not np.all(hosts.readable(all_finite(params, self.config.n_seeds))):
                self._break_off(f"the {whose}parameters are not finite at update {self.update:,}")
        self.checkpoints.save(self.update, self.state)

    def _leave(self) -> None:
        """Returns when everything is on disk; raises RunStopped if a signal was the reason to leave."""
        if self.update:
            self._save()
            self.checkpoints.wait()
        number = self._stopping()
        if number:
            stop = signal.Signals(number)
            done = f"saved at update {self.update:,} of {self.config.n_updates:,}" if self.update else "nothing to save"
            raise RunStopped(f"{stop.name}: {done}; --resume continues {self.folder.path}", exit_status(stop))
        self.progress.say(f"{self.folder.path} is finished: {self.update:,} updates")


class HeldOutEvaluation:
    """Evaluates the first student of every seed; the same update of the same run is always evaluated alike."""

    def __init__(self, eval_runner: EvalRunner, config: Config, grid: Grid):
        self.names = eval_runner.names
        self.seeds = seeds(config)
        evaluated = grid.per_seed(functools.partial(evaluate_first_students, eval_runner))

        def evaluate_update(update: jax.Array, params: Any) -> EvalResult:
            return evaluated(evaluation_keys(self.seeds, update), params)

        self._evaluate = grid.compiled(evaluate_update)

    def lower(self, params: Any) -> jax.stages.Lowered:
        """`evaluate` of parameters like these (shapes will do), traced; once compiled, it is not compiled again."""
        return self._evaluate.lower(np.int32(0), params)

    def evaluate(self, update: int, params: Any) -> EvalResult:
        """[S, M, E] with `params` [S, A, ...]; the update serves as the seed of the evaluation."""
        return self._evaluate(np.int32(update), params)

    def rows(self, update: int, result: EvalResult) -> list[Row]:
        """One row a seed and task: the means over the episodes."""
        returns, solved = (np.asarray(x, np.float32).mean(axis=-1) for x in (result.returns, result.solved))
        return [
            {"update": update, "seed": seed, "maze": name, "return": returns[i, m], "solved": solved[i, m]}
            for i, seed in enumerate(self.seeds)
            for m, name in enumerate(self.names)
        ]


def evaluate_first_students(eval_runner: EvalRunner, keys: jax.Array, params: Any) -> EvalResult:
    """[S, M, E] with `keys` [S] and `params` [S, A, ...]."""
    first = jax.tree.map(lambda leaf: leaf[:, 0], params)
    return mapped(eval_runner.evaluate, axis_name=axes.SEED)(keys, first)


def seeds(config: Config) -> range:
    """The seeds of a run."""
    return range(config.seed, config.seed + config.n_seeds)


def clock_of(state: RunnerState) -> int:
    """Steps of the runner so far, which are the same for all seeds."""
    return int(np.max(hosts.readable(state.clock)))


all_finite = jax.jit(finite, static_argnums=1)


def write(writers: Iterable[Writer], rows: Sequence[Row]) -> None:
    """The same rows to all."""
    for writer in writers:
        writer.write(rows)


def begun(work: Callable[[], T]) -> "Future[T]":
    """What `work` will return, from a thread of its own."""
    worker = ThreadPoolExecutor(max_workers=1)
    try:
        return worker.submit(work)
    finally:
        worker.shutdown(wait=False)


def finished(work: Callable[[], T]) -> T:
    """What `work` returns, once it is computed; this thread goes on hearing signals, as it would not inside XLA."""
    return begun(lambda: jax.block_until_ready(work())).result()
