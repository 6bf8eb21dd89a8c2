"""A sweep on disk: a folder with a run for each trial, what has become of them, and the table of their scores."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import filelock
import numpy as np
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minimax_lib.config.sweep import ScoreSettings, Sweep
from minimax_lib.config.train import to_dict
from minimax_lib.config.tree import NAME, Tree, flat
from minimax_lib.config.trials import Trial, as_text
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.experiment.files import copy_aside, saved_updates, write_atomically
from minimax_lib.experiment.folder import RunFolder
from minimax_lib.experiment.progress import duration
from minimax_lib.experiment.provenance import FREE
from minimax_lib.experiment.writers.csv import read_table

FILE, TABLE, TRIALS, OLD = "sweep.yaml", "sweep.csv", "trials", "old_sweeps"
LONGEST, DIGEST = 80, 8  # characters of the readable part of a folder's name, and of the fingerprint behind it
LONGEST_ROW = 10_000  # bytes of metrics.csv: a row has some hundred
WIDEST = 10_000  # characters of a table that has all the room it wants
PATIENCE = 10.0  # seconds to wait for another process of the same sweep, which is writing the table
FINISHED, FAILED, UNFINISHED, WAITING = "finished", "failed", "unfinished", "not started"


@dataclasses.dataclass(frozen=True)
class Result:
    """What has become of a trial."""

    trial: Trial
    name: str  # of its folder
    status: str
    line: str = ""  # why it failed
    update: int = 0
    seeds: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()  # of each seed; empty before the first evaluation
    scored_at: int = 0  # the update of the evaluation that the scores are of
    n_evaluations: int = 0
    env_steps: int = 0  # of all seeds together
    seconds: float = 0.0
    idle: float = 0.0  # seconds since the run has written its last row

    @property
    def score(self) -> float:
        """The mean over the seeds; NaN before the first evaluation."""
        return float(np.mean(self.scores)) if self.scores else math.nan

    @property
    def standard_error(self) -> float:
        """Of the mean over the seeds; NaN for fewer than two."""
        return float(np.std(self.scores, ddof=1) / len(self.scores) ** 0.5) if len(self.scores) > 1 else math.nan


class SweepFolder:
    """`<log_dir>/<name>/`: a folder for each trial, `trials/` with their configurations and output, and the table."""

    def __init__(self, sweep: Sweep, trials: Sequence[Trial]):
        self.path = sweep.folder
        self.sweep = sweep
        self.trials = list(trials)
        self.names = {trial.number: folder_name(trial) for trial in trials}
        self.notes = self.path / TRIALS

    def run(self, trial: Trial) -> RunFolder:
        return RunFolder(self.path / self.names[trial.number])

    def config(self, trial: Trial) -> Path:
        """The file that the trial's run is started with."""
        return self.notes / f"{self.names[trial.number]}.yaml"

    def log(self, trial: Trial) -> Path:
        """What its processes have printed."""
        return self.notes / f"{self.names[trial.number]}.log"

    def failure(self, trial: Trial) -> Path:
        """Why its last process failed; there is no such file if it did not."""
        return self.notes / f"{self.names[trial.number]}.failed"

    def lock(self, trial: Trial) -> filelock.FileLock:
        """Held by the sweep that trains the trial: several may work on one folder."""
        return filelock.FileLock(self.notes / f".{self.names[trial.number]}.lock", timeout=0)

    def check(self) -> None:
        """ValueError where two trials would be in one folder, or where the sweep's folder is something else."""
        trial_of: dict[str, Trial] = {}
        for trial in self.trials:
            # Settings that do not alter the training have no part in the fingerprint, and long names are cut.
            other = trial_of.setdefault(self.names[trial.number], trial)
            if other is not trial:
                raise ValueError(
                    f"trials {other.number} and {trial.number} would have one folder, {self.names[trial.number]}: "
                    f"leave out {', '.join(name for name in trial.varied if name in FREE)}, which alter no training"
                )
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file: choose another name or log_dir")
        if (self.path / FILE).exists() or not self.path.is_dir():
            return
        names = sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))
        if names:
            raise ValueError(f"{self.path} holds files and no sweep ({names[0]}): choose another name or log_dir")

    def begin(self) -> None:
        """Makes the folder and records what the sweep is, the file and every trial; what they replace is kept."""
        self.notes.mkdir(parents=True, exist_ok=True)
        with self._alone():
            _write_new(self.path / FILE, yaml.safe_dump(self.sweep.whole, sort_keys=False), self.path / OLD)
            for trial in self.trials:
                _write_new(self.config(trial), yaml.safe_dump(self.settings(trial), sort_keys=False))

    def settings(self, trial: Trial) -> Tree:
        """Every setting of the trial's run."""
        return to_dict(trial.config) | {"log_dir": str(self.path), "name": self.names[trial.number]}

    def left_out(self) -> list[str]:
        """Names of trials in the folder that the file does not ask for, as it is now."""
        known = set(self.names.values())
        return sorted(path.stem for path in self.notes.glob("*.yaml") if path.stem not in known)

    def status(self, trial: Trial) -> tuple[str, str]:
        """What has become of the trial, and why it failed, if it did."""
        run, failure = self.run(trial), self.failure(trial)
        saved = saved_updates(run.checkpoints)
        if saved and saved[-1] >= trial.config.n_updates:
            return FINISHED, ""
        if failure.exists():
            return FAILED, failure.read_text(encoding="utf-8", errors="replace").strip()
        # A run has its configuration before its program is compiled.
        return (UNFINISHED if run.config.exists() or run.holds_run() else WAITING), ""

    def result(self, trial: Trial) -> Result:
        """The same with its scores, all read from its folder."""
        run = self.run(trial)
        result = Result(trial, self.names[trial.number], *self.status(trial))
        last = last_rows(run.metrics, trial.config.n_seeds)
        if last:
            steps = sum(int(row["env_steps"]) for row in last)
            update, seconds = int(last[-1]["update"]), float(last[-1]["seconds"])
            idle = max(time.time() - run.metrics.stat().st_mtime, 0.0)
            result = dataclasses.replace(result, update=update, env_steps=steps, seconds=seconds, idle=idle)
        return scored(result, run, self.sweep.plan.score)

    def results(self) -> list[Result]:
        """Of all trials: the finished ones by their score, the best first, then the others."""
        found = [self.result(trial) for trial in self.trials]
        # Scores of runs of different length say nothing about which is better.
        return sorted(found, key=lambda r: (r.status != FINISHED, -r.score if r.scores else math.inf, r.trial.number))

    def write_table(self, results: Sequence[Result]) -> Path:
        """`sweep.csv`, with a row for each trial."""
        rows = [row_of(result) for result in results]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with self._alone():
            write_atomically(self.path / TABLE, text.getvalue())
        return self.path / TABLE

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A block that no other process of the sweep is in. OSError if one stays in it."""
        try:
            with filelock.FileLock(self.path / ".lock", timeout=PATIENCE):
                yield
        except filelock.Timeout:
            raise OSError(f"{self.path} is in use by another minimax-sweep: wait for it") from None


def folder_name(trial: Trial) -> str:
    """The name of the trial's folder: its values, and a fingerprint of all that was asked for.

    It is the same whenever the same is asked for, wherever the trial stands in the file. Settings that do not alter
    what is learnt have no part in it, nor have the defaults: those of a later version may be more.
    """
    values = flat(to_dict(trial.config))
    names = [name if name in values else f"{name}.{NAME}" for name in flat(trial.asked)]
    asked = {name: values[name] for name in sorted(names) if name in values and name not in FREE}
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:DIGEST]
    short = short_names(list(trial.varied))
    said = [trial.label] if trial.label else []
    said += [f"{short[name]}-{as_text(value)}" for name, value in trial.varied.items()]
    readable = re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(said)).strip("._-")[:LONGEST]
    return f"{readable}_{digest}" if readable else digest


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Dotted name -> as much of its end as tells it from the others."""
    short = {}
    for name in names:
        parts = name.split(".")
        ends = [".".join(parts[i:]) for i in reversed(range(len(parts)))]
        others = [f".{other}" for other in names if other != name]
        short[name] = next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), name)
    return short


def scored(result: Result, run: RunFolder, settings: ScoreSettings) -> Result:
    """`result` with the validation score of each seed, the mean over the tasks of one evaluation."""
    config = result.trial.config
    tasks = set(make_held_out(config.env, tasks_of_run(settings.tasks, config.runner)).names)
    seeds = tuple(range(config.seed, config.seed + config.n_seeds))
    found: dict[int, dict[int, list[float]]] = {}  # update -> seed -> a value for each task
    columns, rows = read_table(run.evaluations)
    if not {"update", "seed", "task", settings.measure} <= set(columns):
        return result  # no evaluation yet, or a table that somebody has changed
    for row in rows:
        with contextlib.suppress(ValueError):  # a damaged row: its evaluation is not whole
            if row["task"] in tasks and math.isfinite(value := float(row[settings.measure])):
                of_seeds = found.setdefault(int(row["update"]), {})
                of_seeds.setdefault(int(row["seed"]), []).append(value)
    # A process that was killed may have left half of an evaluation.
    whole = {
        update: tuple(float(np.mean(of_seeds[seed])) for seed in seeds)
        for update, of_seeds in sorted(found.items())
        if all(len(of_seeds.get(seed, ())) == len(tasks) for seed in seeds)
    }
    if not whole:
        return result
    # Of equally good ones, the first.
    at = max(whole, key=lambda update: np.mean(whole[update])) if settings.evaluation == "best" else max(whole)
    return dataclasses.replace(result, seeds=seeds, scores=whole[at], scored_at=at, n_evaluations=len(whole))


def last_rows(path: Path, n: int) -> list[dict[str, str]]:
    """The last `n` rows of metrics.csv, without reading the others; empty if there are none that can be read."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        columns = file.readline().decode("utf-8", "replace").strip().split(",")
        begin = file.tell()
        file.seek(max(begin, path.stat().st_size - n * LONGEST_ROW))
        # The last piece is empty, or a row that is being written.
        lines = file.read().decode("utf-8", "replace").split("\n")[:-1][-n:]
    rows = [dict(zip(columns, line.split(","), strict=False)) for line in lines]
    try:
        for row in rows:
            int(row["update"]), int(row["env_steps"]), float(row["seconds"])
    except (KeyError, ValueError):  # somebody has changed the table: the run will say so when it goes on
        return []
    return rows


def row_of(result: Result) -> dict[str, object]:
    """The row of sweep.csv."""
    trial = result.trial
    row: dict[str, object] = {"trial": trial.number, "name": result.name}
    if trial.label:
        row["config"] = trial.label
    row |= {name: as_text(value) for name, value in trial.varied.items()}
    return row | {
        "n_seeds": trial.config.n_seeds,
        "score": _cell(result.score),
        "standard_error": _cell(result.standard_error),
        "seed_scores": " ".join(map(_cell, result.scores)),
        "scored_at": result.scored_at if result.scores else "",
        "n_evaluations": result.n_evaluations,
        "update": result.update,
        "env_steps": result.env_steps,
        "seconds": _cell(result.seconds),
        "status": result.status,
        "failure": result.line,
    }


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def table_parts(sweep: Sweep, results: Sequence[Result], console: Console) -> Iterator[Table | Text]:
    """What people are shown: a table of how good the trials are and what differs between them.

    Where that is wider than the console, which would cut off the score, the settings of trials that have begun follow
    in lines.
    """
    table = table_of(sweep, results, list(sweep.vary))
    if console.measure(table, options=console.options.update(max_width=WIDEST)).maximum <= console.width:
        yield table
        return
    yield table_of(sweep, results, [])
    short = short_names(list(sweep.vary))
    yield Text("The settings of the trials:")
    for result in results:
        if result.status == WAITING:
            continue
        trial = result.trial
        values = ", ".join(f"{short[name]}={as_text(value)}" for name, value in trial.varied.items())
        yield Text(f"{trial.number:5}  {values}")


def table_of(sweep: Sweep, results: Sequence[Result], names: Sequence[str]) -> Table:
    """How good the trials are and how far they are, with columns for the settings `names`."""
    score = sweep.plan.score
    n_seeds = {result.trial.config.n_seeds for result in results}
    few = max(n_seeds) < MIN_SEEDS
    spread = [] if n_seeds == {1} else ["each seed"] if few else ["standard error"]
    table = Table(title=heading(score), title_justify="left", caption=caption(results, few), caption_justify="left")
    short = short_names(list(sweep.vary))
    labels = ["config"] if len(sweep.bases) > 1 else []
    for column in ("trial", *labels, *(short[name] for name in names), "score", *spread, "update", "time"):
        table.add_column(column, justify="right", overflow="fold", min_width=len(column))
    table.add_column("status", overflow="fold")
    for i, result in enumerate(results):
        trial = result.trial
        chosen = [trial.label] * len(labels) + [as_text(trial.varied[name]) for name in names]
        shares = [" ".join(f"{x:.3f}" for x in result.scores)] if few else [_rounded(result.standard_error)]
        last_finished = result.status == FINISHED and any(other.status != FINISHED for other in results[i + 1 : i + 2])
        cells = [
            str(trial.number),
            *chosen,
            _rounded(result.score),
            *(shares if spread else []),
            *_progress_cells(result),
        ]
        table.add_row(*map(Text, cells), told_status(result), end_section=last_finished)
    return table


def told_status(result: Result) -> str:
    """The status and, of a run that is not finished, when it has written its last row: is it still going on?"""
    last = f",\nlast row {duration(result.idle)} ago" if result.status == UNFINISHED and result.update else ""
    return result.status + last


def _rounded(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _progress_cells(result: Result) -> list[str]:
    of = f"{result.update:,}" if result.status == FINISHED else f"{result.update:,}/{result.trial.config.n_updates:,}"
    return [of, duration(result.seconds) if result.seconds else ""]


def heading(score: ScoreSettings) -> str:
    """What the score is, in a line."""
    which = "last evaluation" if score.evaluation == "last" else "best evaluation (by its mean over seeds)"
    return f"{score.measure} on {', '.join(score.tasks)}: mean over tasks and seeds, {which}"


def caption(results: Sequence[Result], few: bool) -> str | None:
    """What a reader must know of the figures."""
    counts = sorted({result.n_evaluations for result in results if result.status == FINISHED})
    told = [f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"] if counts else []
    notes = [f"Evaluations of each finished trial: {count}." for count in told]
    if counts and counts[0] == 0:
        # The tasks of the score, or what a group of tasks stands for, may have changed since the trials were trained.
        notes.append("No score: a trial whose eval.csv has no evaluation on all of these tasks.")
    if few and any(len(result.scores) > 1 for result in results):
        notes.append(f"Fewer than {MIN_SEEDS} seeds: their values instead of a standard error.")
    return " ".join(notes) or None


def _write_new(path: Path, text: str, kept: Path | None = None) -> None:
    """`path` with this text. A file with another text is copied to the folder `kept` first, if one is named."""
    if path.exists():
        if path.read_text(encoding="utf-8", errors="replace") == text:
            return
        if kept:
            copy_aside(path, kept)
    write_atomically(path, text)
