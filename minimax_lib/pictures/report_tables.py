"""The parts of a report that are tables and figures: runs, configuration, curves, held-out tasks, speed."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from minimax_lib.config.help import written
from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.evaluation.tables import iqm_columns, percent, score_cells, spread_columns
from minimax_lib.messages import one_line, shortened
from minimax_lib.pictures import curves, held_out, style
from minimax_lib.pictures.html import data_url, part, svg
from minimax_lib.pictures.lines import X, level_metrics
from minimax_lib.pictures.opponents import wins_against_opponents
from minimax_lib.pictures.runs import NOT_SET, Group, RunTables, numbers
from minimax_lib.pictures.scores import ComparedScores, evaluated
from minimax_lib.pictures.style import Picture
from minimax_lib.pictures.words import named
from minimax_lib.store.origin import Origin

if TYPE_CHECKING:
    from markupsafe import Markup

# Settings that say where and how a run was carried out, and not what it was.
PLACES = frozenset({"name", "log_dir", "resume", "compilation_cache", "report", "tensorboard"})
SEEDS = frozenset({"seed", "n_seeds"})  # they stand in the table of runs
LONGEST = 200  # characters of a value
MOST_COMPLEXITY = 6  # curves of level metrics
NO_INTERVAL = f"There is no interval with fewer than {MIN_SEEDS} seeds: it would miss the true value too often."


# ---------------------------------------------------------------------------------------------------------------- runs


@dataclasses.dataclass(frozen=True)
class Extent:
    """How far a run went: the largest numbers of all its seeds in metrics.csv; NaN where there are none."""

    updates: float
    env_steps: float  # of one seed
    seconds: float
    steps_per_second: float  # of all seeds, the mean over log intervals


def extent_of(run: RunTables) -> Extent:
    """How far a run went."""
    return Extent(
        updates=_over_seeds(run, "update", np.nanmax),
        env_steps=_over_seeds(run, "env_steps", np.nanmax),
        seconds=_over_seeds(run, "seconds", np.nanmax),
        steps_per_second=_over_seeds(run, "steps_per_second", np.nanmean),
    )


def _over_seeds(run: RunTables, column: str, statistic: Callable[[np.ndarray], Any]) -> float:
    values = np.array([x for cells in run.metrics.values() for x in numbers(cells.get(column, ()))])
    return float(statistic(values)) if np.isfinite(values).any() else np.nan


def runs_part(groups: Sequence[Group]) -> "Markup":
    """Which runs there are, and how far they went."""
    rows = []
    for place, group in enumerate(groups):
        for run in group.runs:
            cells, error = [""] * 5, ""
            try:
                cells = _cells_of(run)
            except ValueError as damage:
                error = str(damage)
            rows.append((place, group.label, run.path, cells, error))
    return part("runs", rows, origins_in_words(_runs(groups)))


def _cells_of(run: RunTables) -> list[str]:
    extent, wanted = extent_of(run), run.settings.get("n_updates")
    of = f" of {wanted:,}" if isinstance(wanted, int) and wanted != extent.updates else ""
    seeds, speed = seeds_in_words(run.seeds), count(extent.steps_per_second)
    return [seeds, count(extent.updates) + of, count(extent.env_steps), duration(extent.seconds), speed]


def origins_in_words(runs: Sequence[RunTables]) -> list[str]:
    """What the runs were made with, a line for each machine and version; and whether their speeds can be compared."""
    made: dict[str, list[str]] = {}  # with what -> which runs
    for run in runs:
        name = run.path.resolve().name
        for origin in run.origins:
            since = f" from update {origin.update:,}" if origin.update else ""
            made.setdefault(_in_words(origin), []).append(f"{name}{since}")
        if not run.origins:
            made.setdefault(NOT_RECORDED, []).append(name)
    one_machine = len({origin.machine for run in runs for origin in run.origins}) == 1 and NOT_RECORDED not in made
    lines = [with_what if len(made) == 1 else f"{with_what}: {', '.join(which)}" for with_what, which in made.items()]
    return lines if one_machine else [*lines, "Compare speeds of one machine only."]


NOT_RECORDED = "The machine is not recorded"


def _in_words(origin: Origin) -> str:
    version = " ".join(part for part in (origin.version, origin.commit and f"({origin.commit})") if part)
    return f"{origin.machine}. This package {version or 'of an unknown version'}, jax {origin.jax}"


def seeds_in_words(seeds: range) -> str:
    """Seeds, as `0 to 4`."""
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}" if seeds else "none"


def count(number: float) -> str:
    """A whole number; nothing for NaN."""
    return f"{number:,.0f}" if number == number else ""


def duration(seconds: float) -> str:
    """Seconds as a person says them; nothing for NaN."""
    if seconds != seconds:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


# ------------------------------------------------------------------------------------------------------- configuration


def configuration_part(groups: Sequence[Group]) -> "Markup":
    """The settings in which the groups differ, and all settings below."""
    runs = _runs(groups)
    known = dict.fromkeys(name for run in runs for name in run.settings)
    names = [name for name in known if name not in PLACES | SEEDS]
    told, caption = "", "Settings in which the runs differ"
    chosen = [name for name in names if len({_value(run, name) for run in runs}) > 1]
    if len(runs) == 1:
        chosen, caption = [name for name in names if name in MAIN], "The main settings"
    elif not chosen:
        told = f"The {len(runs)} runs have the same settings. Only their seeds and places differ."
    labels = [group.label for group in groups]
    return part("configuration", labels, told, _settings(groups, chosen), caption, _settings(groups, names))


MAIN = (
    "env.name", "model.name", "runner.name", "runner.n_parallel", "runner.n_steps", "runner.capacity",
    "runner.replay_prob", "runner.score", "runner.n_edits", "ppo.lr", "ppo.gamma", "ppo.n_epochs", "ppo.entropy_coef",
    "n_updates",
)  # fmt: skip


def _runs(groups: Sequence[Group]) -> list[RunTables]:
    return [run for group in groups for run in group.runs]


def _value(run: RunTables, name: str) -> str:
    value = run.settings.get(name, NOT_SET)
    return shortened(written(tuple(value) if isinstance(value, list) else value), LONGEST)


def _settings(groups: Sequence[Group], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each group)."""
    return [(name, [_values(group, name) for group in groups]) for name in names]


def _values(group: Group, name: str) -> str:
    # Within a group, settings that make no method may differ.
    return " / ".join(dict.fromkeys(_value(run, name) for run in group.runs))


# -------------------------------------------------------------------------------------------------------------- curves

Request = tuple[str, Callable[[], Picture]]  # a title, and how the figure is drawn


def figures(requests: Sequence[Request]) -> "Markup":
    """Figures side by side, each with its numbers, and a sentence for each that cannot be drawn."""
    drawn, not_drawn = [], []
    for title, draw in requests:
        try:
            picture = draw()
        except ValueError as error:
            not_drawn.append(f"{title}: {one_line(error)}")
            continue
        numbers_url = data_url(picture.csv().encode(errors="replace"), "text/csv")
        drawn.append((title, picture, svg(picture, title), numbers_url))
    return part("figures", drawn, not_drawn)


def curves_part(groups: Sequence[Group], x: X) -> "Markup":
    """Learning curves, wins against the own bank, complexity of the levels, the generalisation gap."""
    return figures(list(_curves(groups, x)))


def _curves(groups: Sequence[Group], x: X) -> Iterator[Request]:
    titles = {
        "held_out/solved_rate": "Solved rate on held-out tasks",
        "held_out/return": "Return on held-out tasks",
        "solved_rate": "Solved rate on the levels of the training",
        "return": "Return on the levels of the training",
    }
    for metric, title in titles.items():
        yield title, partial(curves.learning_curve, groups, metric, x)
    try:
        metrics, bank = level_metrics(groups), curves.has_bank(groups)
    except ValueError:  # of a damaged table: the figures above say so
        metrics, bank = [], False
    if bank:
        yield "Wins against the copies in the bank", partial(curves.wins_against_the_bank, groups, x)
    for metric in metrics[:MOST_COMPLEXITY]:
        yield f"Levels that students learn from: {named(metric)}", partial(curves.complexity_curve, groups, metric, x)
    # The last one: it is higher than the others.
    yield "Training levels against held-out tasks", partial(curves.generalisation_gap, groups, x=x)


# ------------------------------------------------------------------------------------------------------ held-out tasks


def held_out_part(groups: Sequence[Group]) -> "Markup":
    """Scores on held-out tasks: a table, and figures."""
    try:
        scores = evaluated(groups)
    except ValueError as error:
        return part("missing", f"There are no scores on held-out tasks: {one_line(error)}.")
    alone = dataclasses.replace(scores, notes=())  # the notes stand under the table: they are the same for all figures
    requests: list[Request] = [("Solved rate by task", partial(held_out.held_out_bars, alone))]
    if len(groups) > 1:
        requests += [
            ("All tasks together", partial(held_out.aggregates, alone)),
            ("Probability of improvement", partial(held_out.probability_of_improvement, alone)),
            ("Performance profiles", partial(held_out.performance_profiles, alone)),
        ]
    return part("held_out", held_out_table(groups, scores), figures(requests))


def held_out_table(groups: Sequence[Group], scores: ComparedScores) -> "Markup":
    """A row for each held-out task and one for all: mean, IQM, interval or seeds, and return, of each group."""
    try:
        returns = evaluated(groups, "return").groups
    except ValueError:  # not measured
        returns = ()
    tops, head, columns = [], ["task"], []
    for i, group in enumerate(scores.groups):
        measures = {"solved_rate": group.values} | ({"return": returns[i].values} if returns else {})
        own = ["solved", *iqm_columns(group.n_seeds), *map(_short, spread_columns(group.n_seeds))]
        own += ["return"] if returns else []
        tops.append((group.place, group.label, len(own)))
        head += own
        each = [{name: x[:, j] for name, x in measures.items()} for j in range(len(scores.tasks))]
        columns.append([score_cells(one) for one in [*each, measures]])
    tasks = [*scores.tasks, "all tasks"]
    rows = [(task, [cell for column in columns for cell in column[j]]) for j, task in enumerate(tasks)]
    counts = {group.n_seeds for group in scores.groups}
    told = [*scores.notes]
    if min(counts) < MIN_SEEDS:
        told.append(NO_INTERVAL)
    if max(counts) >= MIN_SEEDS:
        told.append("Intervals are 95% percentile intervals of the bootstrap over whole seeds, of the IQM.")
    return part("held_out_table", tops, head, rows, told)


def _short(heading: str) -> str:
    # The notes say what kind of interval it is.
    return "95% interval" if "interval" in heading else heading


def best_score(groups: Sequence[Group]) -> str:
    """The solved rate of each group on held-out tasks, for the line under the title; empty if not known."""
    try:
        scores = evaluated(groups)
    except ValueError:
        return ""
    each = [f"{group.label} {percent(group.values.mean())}" for group in scores.groups]
    return f"solved rate on {len(scores.tasks)} held-out tasks: {', '.join(each)}"


def opponents_part(groups: Sequence[Group]) -> "Markup":
    """The share of games won against opponents."""
    return figures([("Wins against opponents", partial(wins_against_opponents, groups))])


# --------------------------------------------------------------------------------------------------------------- speed


def speed_part(groups: Sequence[Group]) -> "Markup":
    """Steps per second over the training, and seconds."""
    names = {
        "steps_per_second": ("Environment steps per second, all seeds of a run", "steps per second"),
        "seconds": ("Seconds of training", "seconds"),
    }
    return figures([(title, partial(_named_curve, groups, column, y)) for column, (title, y) in names.items()])


def _named_curve(groups: Sequence[Group], column: str, y_label: str) -> Picture:
    picture = curves.learning_curve(groups, column)

    def draw() -> Any:
        drawn = picture.draw()
        drawn.axes[0].set_ylabel(y_label)
        style.count_axis(drawn.axes[0].yaxis)
        return drawn

    return dataclasses.replace(picture, draw=draw)
