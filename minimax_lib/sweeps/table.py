"""What has become of the trials of a sweep: their scores, the table that people see, and sweep.csv."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minimax_lib.config.sweep import ScoreSettings, Sweep
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.experiment.progress import duration
from minimax_lib.files import MOST_TABLE, UnreadableFile, opened, read_bytes
from minimax_lib.store.files import UnreadLines, copy_aside, write_atomically
from minimax_lib.store.tables import KEYS, read_table
from minimax_lib.sweeps.runs import SweepRun, as_text, short_names
from minimax_lib.sweeps.study import FINISHED, OLD, PRUNED, UNFINISHED, WAITING, SweepStudy

TABLE, MARK = "sweep.csv", ".sweep.csv.sha256"
LONGEST_ROW = 10_000  # bytes of metrics.csv: a row has some hundred
WIDEST = 10_000  # characters of a table that has all the room it wants

Scores = Mapping[int, tuple[float, ...]]  # update -> the score of each seed


@dataclasses.dataclass(frozen=True)
class Result:
    """What has become of a trial."""

    run: SweepRun
    status: str
    line: str = ""  # why it failed
    update: int = 0
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


def results(study: SweepStudy) -> list[Result]:
    """Of all trials whose values are known: the finished ones by their score, the best first, then the others."""
    runs = [run for run in map(study.run, study.numbers) if run is not None]
    found = [result_of(run, study.status(run.number), study.sweep.keys.score) for run in runs]
    # Scores of runs of different length say nothing about which is better.
    ranks = {FINISHED: 0, PRUNED: 1}
    return sorted(found, key=lambda r: (ranks.get(r.status, 2), -r.score if r.scores else math.inf, r.run.number))


def result_of(run: SweepRun, status: tuple[str, str], settings: ScoreSettings) -> Result:
    """What has become of the run, all of it read from its folder but for the status."""
    scores = scores_of(run, settings)
    at = counted(scores, settings)
    result = Result(run, *status, scores=scores.get(at, ()), scored_at=at, n_evaluations=len(scores))
    last = last_rows(run.folder.metrics, run.config.n_seeds) or _readable_rows(run)[-run.config.n_seeds :]
    if not last:
        return result
    return dataclasses.replace(
        result,
        update=int(float(last[-1]["update"])),
        env_steps=sum(int(float(row["env_steps"])) for row in last),
        seconds=float(last[-1]["seconds"]),
        idle=max(time.time() - run.folder.metrics.stat().st_mtime, 0.0),
    )


def scores_of(run: SweepRun, settings: ScoreSettings) -> Scores:
    """Of each whole evaluation, the validation score of each seed: the mean over the tasks."""
    config = run.config
    tasks = set(make_held_out(config.env, tasks_of_run(settings.tasks, config.runner)).names)
    seeds = range(config.seed, config.seed + config.n_seeds)
    found: dict[int, dict[int, list[float]]] = {}  # update -> seed -> a value for each task
    columns, rows = _table(run.folder.evaluations, KEYS)
    if not {"task", settings.measure} <= set(columns):
        return {}  # no evaluation yet, or none of this measure
    for row in rows:
        with contextlib.suppress(ValueError):  # a damaged row: its evaluation is not whole
            if row["task"] in tasks and math.isfinite(value := float(row[settings.measure])):
                of_seeds = found.setdefault(int(row["update"]), {})
                of_seeds.setdefault(int(row["seed"]), []).append(value)
    # A process that was killed may have left half of an evaluation.
    return {
        update: tuple(float(np.mean(of_seeds[seed])) for seed in seeds)
        for update, of_seeds in sorted(found.items())
        if all(len(of_seeds.get(seed, ())) == len(tasks) for seed in seeds)
    }


def _table(path: Path, keys: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """As `read_table`. A table that cannot be read is a warning, and empty: the other trials have theirs."""
    try:
        return read_table(path, keys)
    except UnreadableFile as error:
        warnings.warn(str(error), UnreadLines, stacklevel=2)
        return [], []


def _readable_rows(run: SweepRun) -> list[dict[str, str]]:
    """All rows of metrics.csv that can be read, where the last of them cannot. A warning says what is wrong."""
    return _table(run.folder.metrics, (*KEYS, "env_steps", "seconds"))[1]


def counted(scores: Scores, settings: ScoreSettings) -> int:
    """The update of the evaluation that counts; 0 if there is none."""
    # Of equally good ones, the first.
    best = settings.evaluation == "best"
    return max(scores, key=lambda update: np.mean(scores[update]) if best else update, default=0)


def last_rows(path: Path, n: int) -> list[dict[str, str]]:
    """The last `n` rows of metrics.csv, without reading the others; empty if there are none that can be read."""
    if not path.exists():
        return []
    with opened(path, MOST_TABLE) as file:
        columns = file.readline(LONGEST_ROW).decode("utf-8", "replace").strip().split(",")
        begin = file.tell()
        file.seek(max(begin, os.fstat(file.fileno()).st_size - n * LONGEST_ROW))
        # The last piece is empty, or a row that is being written.
        lines = file.read(n * LONGEST_ROW).decode("utf-8", "replace").split("\n")[:-1][-n:]
    rows = [dict(zip(columns, line.split(","), strict=False)) for line in lines]
    try:
        for row in rows:
            int(row["update"]), int(row["env_steps"]), float(row["seconds"])
    except (KeyError, ValueError):  # somebody has changed the table
        return []
    return rows


def write_table(study: SweepStudy, found: Sequence[Result]) -> Path:
    """`sweep.csv`, with a row for each trial. A table that a person has changed is kept beside it."""
    rows = [row_of(result) for result in found]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path, mark = study.folder / TABLE, study.folder / MARK
    with study.alone():
        # The mark says what the last table was. Without one, or after a kill, a copy too many is made.
        written = read_bytes(mark, MOST_TABLE) if mark.exists() else b""
        if path.exists() and _mark(read_bytes(path, MOST_TABLE)) != written:
            copy_aside(path, study.folder / OLD)
        write_atomically(path, text.getvalue())
        write_atomically(mark, _mark(text.getvalue().encode()))
    return path


def _mark(table: bytes) -> bytes:
    return hashlib.sha256(table).hexdigest().encode()


def row_of(result: Result) -> dict[str, object]:
    """The row of sweep.csv."""
    run = result.run
    row: dict[str, object] = {"trial": run.number, "name": run.name}
    if run.label:
        row["config"] = run.label
    row |= {name: as_text(value) for name, value in run.varied.items()}
    return row | {
        "n_seeds": run.config.n_seeds,
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
        values = ", ".join(f"{short[name]}={as_text(value)}" for name, value in result.run.varied.items())
        yield Text(f"{result.run.number:5}  {values}")


def table_of(sweep: Sweep, results: Sequence[Result], names: Sequence[str]) -> Table:
    """How good the trials are and how far they are, with columns for the settings `names`."""
    score = sweep.keys.score
    n_seeds = {result.run.config.n_seeds for result in results}
    few = max(n_seeds, default=1) < MIN_SEEDS
    spread = [] if n_seeds <= {1} else ["each seed"] if few else ["standard error"]
    table = Table(title=heading(score), title_justify="left", caption=caption(results, few), caption_justify="left")
    short = short_names(list(sweep.vary))
    labels = ["config"] if len(sweep.bases) > 1 else []
    for column in ("trial", *labels, *(short[name] for name in names), "score", *spread, "update", "time"):
        table.add_column(column, justify="right", overflow="fold", min_width=len(column))
    table.add_column("status", overflow="fold")
    for i, result in enumerate(results):
        run = result.run
        chosen = [run.label] * len(labels) + [as_text(run.varied[name]) for name in names]
        shares = [" ".join(f"{x:.3f}" for x in result.scores)] if few else [_rounded(result.standard_error)]
        last_finished = result.status == FINISHED and any(other.status != FINISHED for other in results[i + 1 : i + 2])
        cells = [
            str(run.number),
            *chosen,
            _rounded(result.score),
            *(shares if spread else []),
            *_progress_cells(result),
        ]
        table.add_row(*map(Text, cells), told_status(result), end_section=last_finished)
    return table


def told_status(result: Result) -> str:
    """The status. For an unfinished run, also how long ago it wrote its last row: it may still be going on."""
    last = f",\nlast row {duration(result.idle)} ago" if result.status == UNFINISHED and result.update else ""
    return result.status + last


def _rounded(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _progress_cells(result: Result) -> list[str]:
    of = f"{result.update:,}" if result.status == FINISHED else f"{result.update:,}/{result.run.config.n_updates:,}"
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
