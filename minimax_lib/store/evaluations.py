"""The evaluations in a run's folder: files that are written once, and found again."""

import csv
import io
import itertools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.config.evaluate import EvaluateSettings
from minimax_lib.evaluation.statistics import n_worst, shares_of
from minimax_lib.evaluation.tables import Scores, share_name
from minimax_lib.files import UnreadableFile, holds
from minimax_lib.store.files import UnreadLines, saved_updates
from minimax_lib.store.files import write_new as write_new_file
from minimax_lib.store.saved import Run
from minimax_lib.store.tables import read_table

MEASURES = ("solved_rate", "return")  # what a comparison needs of an evaluation on tasks
LEVEL_MEASURES = ("solved_rate",)  # and of one on random levels
LEVELS = "n_worst"  # a column that only an evaluation on random levels has


def existing(settings: EvaluateSettings, run: Run, tasks: Sequence[str]) -> tuple[int, Scores] | None:
    """(update, scores) of an evaluation of the run that was made as the settings ask; None if there is none.

    With --robust the tasks are `share_names`.
    """
    if settings.levels:
        return None  # the same names say nothing: the user may have edited the files since then
    if run.agent:
        return None  # another version of the package may have had another agent of this name
    update = max(saved_updates(run.folder.checkpoints), default=-1) if run.update is None else run.update
    how = {name: str(value) for name, value in ({"update": update} | protocol_columns(settings)).items()}
    names = LEVEL_MEASURES if settings.robust else MEASURES
    wanted = [(str(seed), task) for seed in run.seeds for task in tasks]
    for path in sorted(run.results.glob("*.csv")):
        try:
            columns, table = read_table(path, ("seed",))
        except UnreadableFile as error:
            warnings.warn(str(error), UnreadLines, stacklevel=2)
            continue
        if (LEVELS in columns) != settings.robust or not {"seed", "task", *names, *how} <= set(columns):
            continue
        cells = {(row["seed"], row["task"]): row for row in table if all(row[name] == how[name] for name in how)}
        if not all(key in cells for key in wanted):
            continue
        shape = (len(run.seeds), len(tasks))
        try:
            measures = {name: np.array([float(cells[key][name]) for key in wanted]).reshape(shape) for name in names}
        except ValueError:
            continue  # somebody has changed the file
        if all(np.isfinite(values).all() for values in measures.values()):
            return update, Scores(tuple(tasks), run.seeds, measures, worst_counts(settings))
    return None


def share_names(settings: EvaluateSettings) -> tuple[str, ...]:
    """The names of the shares of the levels that --robust reports on."""
    return tuple(map(share_name, shares_of(settings.n_levels)))


def worst_counts(settings: EvaluateSettings) -> tuple[int, ...]:
    """How many levels each share is; empty without --robust."""
    shares = shares_of(settings.n_levels) if settings.robust else ()
    return tuple(n_worst(share, settings.n_levels) for share in shares)


def keep_evaluation(settings: EvaluateSettings, run: Run, update: int, scores: Scores) -> Path:
    """The new file in the run's folder that holds the scores."""
    return write_new(run.results, file_name(settings, update), csv_text(settings, update, scores))


def file_name(settings: EvaluateSettings, update: int) -> str:
    """The name of a file of results, without its number and ending."""
    what = (
        "robust"
        if settings.robust
        else "levels"
        if settings.levels
        else settings.tasks[0]
        if len(settings.tasks) == 1
        else "tasks"
    )
    options = [*([settings.protocol] if settings.protocol else []), *(["greedy"] if settings.greedy else [])]
    options += [f"student{settings.student}"] if settings.student else []
    return "-".join([f"update{update}", what, *options])


def csv_text(settings: EvaluateSettings, update: int, scores: Scores) -> str:
    """A line for each seed and task: its scores, and how they were measured."""
    how = {"update": update} | protocol_columns(settings)
    return as_csv([row | how for row in scores.rows()])


def protocol_columns(settings: EvaluateSettings) -> dict[str, Any]:
    """How the scores are measured."""
    return {
        "n_episodes": settings.episodes,
        "actions": "greedy" if settings.greedy else "sampled",
        "protocol": settings.protocol or "",
        "evaluation_seed": settings.seed,
        "student": settings.student,
    } | ({"n_levels": settings.n_levels} if settings.robust else {})


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of a table with the columns of the first row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_new(folder: Path, name: str, content: str | bytes, ending: str = ".csv") -> Path:
    """The file in `folder` that holds `content`: `name`.csv, or `name`-2.csv and so on if that name is taken.

    No file is ever overwritten.
    """
    for number in itertools.count(1):
        path = folder / (f"{name}{ending}" if number == 1 else f"{name}-{number}{ending}")
        try:
            # It must be new: another process may be about to make the same file.
            write_new_file(path, content)
            return path
        except FileExistsError:
            # The same evaluation gives the same content. Repeating it makes no second file.
            if holds(path, content.encode() if isinstance(content, str) else content):
                return path
    raise AssertionError("unreachable")
