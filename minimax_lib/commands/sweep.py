"""The command `minimax-sweep`: trains the runs that a file of lists and ranges asks for, and compares them."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
from rich.console import Console
from rich.text import Text

from minimax_lib.commands.status import plain_warnings, refuse
from minimax_lib.config.sweep import read_sweep
from minimax_lib.config.sweep_command import Command, parse
from minimax_lib.extras import check_installed
from minimax_lib.leaving import Interrupted, interrupted
from minimax_lib.messages import one_line, printable, shown
from minimax_lib.store.files import write_new
from minimax_lib.sweeps.runs import NOTES, check_of

if TYPE_CHECKING:  # these import Optuna, which is no part of a plain installation
    from minimax_lib.sweeps.study import SweepStudy
    from minimax_lib.sweeps.table import Result

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


@plain_warnings()
def main(argv: Sequence[str] | None = None, train: Sequence[str] = ()) -> int:
    """The exit status: 0 if all is finished, 2 for bad input, 130, 143 or 129 on a signal.

    It is 1 if a trial failed, or is not finished because another process trains it.

    Every trial is checked before the first one starts. `train` is the training command, if it is another one.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        command, name, flags = parse(words)
        leave_accelerator_alone()
        study = study_of(name, flags, trains=not command.table)
        numbers = chosen_numbers(study, command)
        try:
            study.open(write=not (command.dry_run or command.table or command.slurm))
        except OSError as error:
            file = Path(error.filename or study.folder)
            what = file if study.folder in file.parents else study.folder
            raise ValueError(f"cannot open {what}: {error.strerror or error}") from None
    except (ValueError, OSError) as error:
        return refuse(error, words)
    except KeyboardInterrupt as error:
        return interrupted(error, " before the sweep began")
    runs = [run for run in map(study.run, study.numbers) if run]
    for line in dict.fromkeys(line for run in runs for line in run.left_behind):
        print(f"warning: {printable(line)}", file=sys.stderr)
    # All has been checked. From here on, an error means that the work has failed: status 1.
    console = Console()
    try:
        if command.dry_run:
            return show_trials(study, console)
        if command.slurm is not None:
            return write_script(Path(command.slurm), study, words, console)
        if command.table:
            return show_table(study, console)
        return train_all(study, numbers, command, console, train)
    except OSError as error:
        print(f"error: {printable(one_line(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        return interrupted(error, f"; the same command goes on with {study.folder}")


def leave_accelerator_alone() -> None:
    """Makes this process compute on the CPU: the memory of an accelerator is the trials'."""
    if getattr(jax.config, "jax_platforms", None) != "cpu":
        jax.config.update("jax_platforms", "cpu")


def study_of(name: str, flags: dict[str, object], trains: bool) -> "SweepStudy":
    """The trials of the sweep in the file `name`, all of them possible; ValueError in one line if one is not.

    `trains`: whether trials may be begun.
    """
    sweep = read_sweep(name, flags)
    check_installed("optuna", "sweep", "minimax-sweep")
    from minimax_lib.sweeps.study import SweepStudy

    try:
        return SweepStudy(sweep, check_of(sweep, trains))
    except ValueError as error:
        raise ValueError(f"sweep {shown(name)}: {error}") from None


def chosen_numbers(study: "SweepStudy", command: Command) -> Sequence[int]:
    """The trials to train; ValueError for an unknown number, or for a table that cannot be made."""
    if command.table and not study.folder.is_dir():
        raise ValueError(f"{study.folder} does not exist: the sweep has not begun")
    if command.slurm is not None:
        script = Path(command.slurm)
        if script.exists():
            raise ValueError(f"{script} exists already: name another file with --slurm")
        if not script.parent.is_dir():
            raise ValueError(f"slurm is {shown(command.slurm)}: {script.parent} is not a folder")
    if command.trial is None:
        return study.numbers
    if command.trial not in study.numbers:
        raise ValueError(f"trial is {command.trial}: the sweep has {len(study.numbers)}, counted from 1")
    return [command.trial]


def train_all(
    study: "SweepStudy", numbers: Sequence[int], command: Command, console: Console, train: Sequence[str]
) -> int:
    """Trains the trials and prints the table; the exit status."""
    from minimax_lib.sweeps.work import TRAIN, Workers

    say(console, f"{len(study.numbers)} trials in {study.folder}")
    say_left_out(study, console)
    workers = Workers(study, numbers, min(command.jobs, len(numbers)), train or TRAIN)
    signal = workers.work(console)
    if signal:
        # What is saved of each trial has been said.
        return interrupted(Interrupted(signal), f"; the same command goes on with {study.folder}")
    show_table(study, console)
    elsewhere = workers.unfinished_elsewhere()
    if elsewhere:
        trials = f"trial{'s' if len(elsewhere) > 1 else ''} {', '.join(map(str, elsewhere[:MOST_NAMED]))}"
        more = f" and {len(elsewhere) - MOST_NAMED} more" if elsewhere[MOST_NAMED:] else ""
        say(console, f"not finished: {trials}{more}, which another process trains; --table shows them later")
    return 1 if workers.failed or elsewhere else 0


def show_trials(study: "SweepStudy", console: Console) -> int:
    """Prints the trials, and what has become of them; 0."""
    n_updates = n_seeds = 0
    for number in study.numbers:
        run, (status, line) = study.run(number), study.status(number)
        config = run.config if run else study.example
        n_updates, n_seeds = n_updates + config.n_updates, n_seeds + config.n_seeds
        what = run.name if run else "its values are chosen when it begins"
        say(console, f"{number:4}  {what}  {status}{f': {line}' if line else ''}")
    n = len(study.numbers)
    say(console, f"{n} trials, {n_seeds} seeds, {n_updates:,} updates in all, in {study.folder}")
    say_left_out(study, console)
    return 0


def say_left_out(study: "SweepStudy", console: Console) -> None:
    """Names the trials in the folder that the file does not ask for any more."""
    known = {run.name for run in map(study.run, study.numbers) if run}
    names = sorted(path.stem for path in (study.folder / NOTES).glob("*.yaml") if path.stem not in known)
    if names:
        listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
        say(console, f"left as they are, since the file does not ask for them now: {listed}")


def show_table(study: "SweepStudy", console: Console) -> int:
    """Prints the table, what failed, and the best trial, and writes sweep.csv; 0."""
    from minimax_lib.sweeps.table import results, table_parts, write_table

    found = results(study)
    for part in table_parts(study.sweep, found, console):
        console.print(part, soft_wrap=isinstance(part, Text))
    for number in study.numbers:
        run, (status, line) = study.run(number), study.status(number)
        if line:
            say(console, f"trial {number} {status}: {line}{f' (log: {run.log})' if run else ''}")
    unknown = len(study.numbers) - len(found)
    if unknown:
        say(console, f"{unknown} more trials have no values yet, or impossible ones")
    say_best(found, console)
    say(console, f"written: {write_table(study, found)}")
    return 0


def say_best(results: "Sequence[Result]", console: Console) -> None:
    """Names the best of the finished trials, and how to train it elsewhere and to evaluate it."""
    finished = [result for result in results if result.status == "finished" and result.scores]
    if not finished:
        return
    best = finished[0].run
    n_equal = sum(result.score == finished[0].score for result in finished) - 1
    which = f" ({best})" if str(best) else ""
    say(console, f"best: trial {best.number}{which}{f', and {n_equal} more just as good' if n_equal else ''}")
    again = ["minimax-train", "--config", str(best.file), "--log-dir", "runs", "--name", "best"]
    say(console, f"  again, with other seeds: {shlex.join(again)} --seed {best.config.seed + 1000}")
    say(console, f"  on the benchmark: {shlex.join(['minimax-evaluate', '--run', str(best.folder.path)])}")


def write_script(path: Path, study: "SweepStudy", words: Sequence[str], console: Console) -> int:
    """Writes an array script for Slurm; 0."""
    # Without what asks for the script.
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == "--slurm")
    kept = [*words[:at], *words[at + (1 if "=" in words[at] else 2) :]]
    command = shlex.join([sys.executable, "-m", "minimax_lib.commands.launch", "sweep", *kept])
    text = SLURM.format(
        # A job's name is one word.
        name=re.sub(r"\W+", "_", study.folder.name),
        script=shlex.quote(str(path)),
        n=len(study.numbers),
        here=shlex.quote(os.getcwd()),
        command=command,
    )
    write_new(path, text)
    say(console, f"written: {path}, {len(study.numbers)} tasks; start it with sbatch {shlex.quote(str(path))}")
    return 0


def say(console: Console, line: str) -> None:
    """Prints a line as it is, however long."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.sweep())
