"""The command `minimax-sweep`: trains the runs that a file of lists and ranges asks for, and compares them."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from rich.console import Console
from rich.text import Text

from minimax_lib.commands import refuse
from minimax_lib.config import Config
from minimax_lib.config.sweep import Sweep, read_sweep
from minimax_lib.config.sweep_command import Command, parse
from minimax_lib.config.trials import Trial, trials
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.experiment.interrupts import exit_status
from minimax_lib.experiment.sweeps import FAILED, FINISHED, Result, SweepFolder, table_parts
from minimax_lib.experiment.workers import TRAIN, Workers
from minimax_lib.messages import one_line, printable, shown
from minimax_lib.runners.build import with_runner

MOST_NAMED = 10  # trials in one line
SLURM = """#!/bin/bash
# One task a trial of {name}; start it with: sbatch {script}
# Add what your cluster asks for, as: #SBATCH --time=12:00:00 --gres=gpu:1 --cpus-per-task=8 --mem=16G
#SBATCH --job-name={name}
#SBATCH --array=1-{n}
#SBATCH --signal=B:TERM@120
# The signal comes two minutes before the time limit: the run saves, and the same script goes on with it.
cd {here} || exit 1
exec {command} --trial "$SLURM_ARRAY_TASK_ID"
"""


def main(argv: Sequence[str] | None = None, train: Sequence[str] = TRAIN) -> int:
    """The exit status: 0 if all is finished, 1 if a trial failed, 2 for bad input, 130 or 143 on a signal.

    Every trial is checked before the first one starts. `train` is the training command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        command, name, flags = parse(words)
        leave_accelerator_alone()
        sweep = read_sweep(name, flags)
        folder = SweepFolder(sweep, checked_trials(name, sweep))
        folder.check()
        chosen = chosen_trials(folder, command)
        if not (command.dry_run or command.table or command.slurm):
            begin(folder)
    except ValueError as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted before the sweep began", file=sys.stderr)
        return 130
    for line in dict.fromkeys(line for trial in folder.trials for line in trial.left_behind):
        print(f"warning: {printable(line)}", file=sys.stderr)
    # All has been checked. From here on, an error means that the work has failed: status 1.
    console = Console()
    try:
        if command.dry_run:
            return show_trials(folder, console)
        if command.slurm is not None:
            return write_script(Path(command.slurm), folder, words, console)
        if command.table:
            return show_table(folder, console)
        return train_all(folder, chosen, command, console, train)
    except OSError as error:
        print(f"error: {printable(one_line(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on with {folder.path}", file=sys.stderr)
        return 130


def leave_accelerator_alone() -> None:
    """Makes this process compute on the CPU: the memory of an accelerator is the trials'."""
    if getattr(jax.config, "jax_platforms", None) != "cpu":
        jax.config.update("jax_platforms", "cpu")


def checked_trials(name: str, sweep: Sweep) -> list[Trial]:
    """The trials of the sweep in the file `name`, all of them possible; ValueError in one line if one is not."""
    try:
        return trials(sweep, checker(sweep))
    except ValueError as error:
        raise ValueError(f"sweep {shown(name)}: {error}") from None


def checker(sweep: Sweep) -> Callable[[Config], None]:
    """A function that raises ValueError for a configuration that cannot be a trial of the sweep."""
    wanted = sweep.plan.score.tasks

    def check(config: Config) -> None:
        if config.distributed:
            raise ValueError("distributed is on: a trial of a sweep is one process")
        config, runner = with_runner(config)
        evaluated = config.eval.build(config.env, runner.agent.agent).names
        scored = make_held_out(config.env, tasks_of_run(wanted, config.runner)).names
        missing = [task for task in scored if task not in evaluated]
        if missing:
            raise ValueError(
                f"eval.tasks is {', '.join(config.eval.tasks)}, without {missing[0]}, which score.tasks asks for: "
                "name the same in both"
            )

    return check


def begin(folder: SweepFolder) -> None:
    """Makes the sweep's folder; ValueError if it cannot be written to."""
    try:
        folder.begin()
    except OSError as error:
        raise ValueError(f"cannot write to {folder.path}: {error.strerror or error}") from None


def chosen_trials(folder: SweepFolder, command: Command) -> list[Trial]:
    """The trials to train; ValueError for an unknown number, or for a table that cannot be made."""
    if command.table and not folder.notes.is_dir():
        raise ValueError(f"{folder.path} does not exist: the sweep has not begun")
    if command.slurm is not None:
        script = Path(command.slurm)
        if script.exists():
            raise ValueError(f"{script} exists already: name another file with --slurm")
        if not script.parent.is_dir():
            raise ValueError(f"slurm is {shown(command.slurm)}: {script.parent} is no folder")
    if command.trial is None:
        return folder.trials
    if command.trial > len(folder.trials):
        raise ValueError(f"trial is {command.trial}: the sweep has {len(folder.trials)}, counted from 1")
    return [folder.trials[command.trial - 1]]


def train_all(
    folder: SweepFolder, chosen: Sequence[Trial], command: Command, console: Console, train: Sequence[str]
) -> int:
    """Trains the trials and prints the table; the exit status."""
    say(console, f"{len(folder.trials)} trials in {folder.path}")
    say_left_out(folder, console)
    workers = Workers(folder, chosen, min(command.jobs, len(chosen)), train)
    number = workers.run(console)
    if number:
        stopped = f"{number.name}: stopped, what was trained is saved"
        print(f"{stopped}; the same command goes on with {folder.path}", file=sys.stderr)
        return exit_status(number)
    show_table(folder, console)
    if workers.elsewhere:
        say(console, f"{len(workers.elsewhere)} trials are trained by another process: --table shows them later")
    return 1 if workers.failed else 0


def show_trials(folder: SweepFolder, console: Console) -> int:
    """Prints the trials, and what has become of them; 0."""
    for trial in folder.trials:
        status, line = folder.status(trial)
        say(console, f"{trial.number:4}  {folder.names[trial.number]}  {status}{f': {line}' if line else ''}")
    n_updates = sum(trial.config.n_updates for trial in folder.trials)
    n_seeds = sum(trial.config.n_seeds for trial in folder.trials)
    say(console, f"{len(folder.trials)} trials, {n_seeds} seeds, {n_updates:,} updates in all, in {folder.path}")
    say_left_out(folder, console)
    return 0


def say_left_out(folder: SweepFolder, console: Console) -> None:
    """Names the trials that the file does not ask for any more."""
    names = folder.left_out()
    if names:
        shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
        say(console, f"left as they are, since the file does not ask for them now: {shown}")


def show_table(folder: SweepFolder, console: Console) -> int:
    """Prints the table, what failed, and the best trial, and writes sweep.csv; 0."""
    results = folder.results()
    for part in table_parts(folder.sweep, results, console):
        console.print(part, soft_wrap=isinstance(part, Text))
    for result in results:
        if result.status == FAILED:
            say(console, f"trial {result.trial.number} failed: {result.line} (log: {folder.log(result.trial)})")
    say_best(folder, results, console)
    say(console, f"written: {folder.write_table(results)}")
    return 0


def say_best(folder: SweepFolder, results: Sequence[Result], console: Console) -> None:
    """Names the best of the finished trials, and how to train it elsewhere and to evaluate it."""
    finished = [result for result in results if result.status == FINISHED and result.scores]
    if not finished:
        return
    best = finished[0]
    n_equal = sum(result.score == best.score for result in finished) - 1
    which = f" ({best.trial})" if str(best.trial) else ""
    say(console, f"best: trial {best.trial.number}{which}{f', and {n_equal} more just as good' if n_equal else ''}")
    again = ["minimax-train", "--config", str(folder.config(best.trial)), "--log-dir", "runs", "--name", "best"]
    say(console, f"  again, with other seeds: {shlex.join(again)} --seed {best.trial.config.seed + 1000}")
    say(console, f"  on the benchmark: {shlex.join(['minimax-evaluate', '--run', str(folder.run(best.trial).path)])}")


def write_script(path: Path, folder: SweepFolder, words: Sequence[str], console: Console) -> int:
    """Writes an array script for Slurm; 0."""
    # Without what asks for the script.
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == "--slurm")
    kept = [*words[:at], *words[at + (1 if "=" in words[at] else 2) :]]
    command = shlex.join([sys.executable, "-m", "minimax_lib.sweep", *kept])
    text = SLURM.format(
        # A job's name is one word.
        name=re.sub(r"\W+", "_", folder.path.name),
        script=path,
        n=len(folder.trials),
        here=shlex.quote(os.getcwd()),
        command=command,
    )
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    say(console, f"written: {path}, {len(folder.trials)} tasks; start it with sbatch {path}")
    return 0


def say(console: Console, line: str) -> None:
    """Prints a line as it is, however long."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
