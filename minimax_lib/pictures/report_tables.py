"""The parts of a report that are tables and figures: runs, configuration, curves, held-out tasks, speed."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from minimax_lib.config.help import written
from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.evaluation.tables import percent, score_cells, spread_columns
from minimax_lib.messages import one_line, shortened
from minimax_lib.pictures import curves, held_out, style
from minimax_lib.pictures.html import Html, data_url, joined, svg, swatch, table, tag
from minimax_lib.pictures.lines import X, level_metrics
from minimax_lib.pictures.opponents import wins_against_opponents
from minimax_lib.pictures.runs import NOT_SET, Group, RunTables, numbers
from minimax_lib.pictures.scores import ComparedScores, evaluated
from minimax_lib.pictures.style import Picture
from minimax_lib.pictures.words import named
from minimax_lib.store.origin import Origin

# Settings that say where and how a run was carried out, and not what it was.
PLACES = frozenset({"name", "log_dir", "resume", "compilation_cache", "report", "tensorboard"})
SEEDS = frozenset({"seed", "n_seeds"})  # they stand in the table of runs
LONGEST = 200  # characters of a value
MOST_COMPLEXITY = 6  # curves of level metrics
NO_INTERVAL = f"There is no interval with fewer than {MIN_SEEDS} seeds: it would miss the true value too often."


def sentence(text: str) -> Html:
    """A sentence in place of a part that is missing."""
    return tag("p", text, class_="missing")


def notes(texts: Sequence[str]) -> Html:
    """What a reader must know of numbers, a line each."""
    return tag("ul", [tag("li", text) for text in dict.fromkeys(texts)], class_="notes") if texts else Html("")


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


def runs_part(groups: Sequence[Group]) -> Html:
    """Which runs there are, and how far they went."""
    head = ["method", "run", "seeds", "updates", "steps of a seed", "time", "steps/s"]
    rows = []
    for place, group in enumerate(groups):
        for run in group.runs:
            label = joined([swatch(place), group.label])
            name = tag("span", run.path.resolve().name, title=run.path)
            try:
                extent = extent_of(run)
            except ValueError as error:
                rows.append([label, joined([name, " ", tag("em", str(error))]), *[""] * 5])
                continue
            wanted = run.settings.get("n_updates")
            of = f" of {wanted:,}" if isinstance(wanted, int) and wanted != extent.updates else ""
            numbers_of = [count(extent.updates) + of, count(extent.env_steps), duration(extent.seconds)]
            rows.append([label, name, seeds_in_words(run.seeds), *numbers_of, count(extent.steps_per_second)])
    return joined(
        [
            tag("div", table(head, rows, "The runs of this report"), class_="runs"),
            notes(origins_in_words(_runs(groups))),
        ]
    )


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


def configuration_part(groups: Sequence[Group]) -> Html:
    """The settings in which the groups differ, and all settings below."""
    known = dict.fromkeys(name for run in _runs(groups) for name in run.settings)
    names = [name for name in known if name not in PLACES | SEEDS]
    differing = [name for name in names if len({_value(run, name) for run in _runs(groups)}) > 1]
    n_runs = len(_runs(groups))
    if n_runs == 1:
        told = Html("")
    elif differing:
        told = _settings_table(groups, differing, "Settings in which the runs differ")
    else:
        told = tag("p", f"The {n_runs} runs have the same settings. Only their seeds and places differ.")
    every = tag("details", tag("summary", f"All {len(names)} settings"), _settings_table(groups, names, "All settings"))
    if n_runs == 1:
        told = _settings_table(groups, [name for name in names if name in MAIN], "The main settings")
    return joined([told, every])


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


def _settings_table(groups: Sequence[Group], names: Sequence[str], caption: str) -> Html:
    if len(groups) == 1:
        return _settings_list(groups[0], names)
    head = ["setting", *(joined([swatch(place), group.label]) for place, group in enumerate(groups))]
    rows = [[name, *(_values(group, name) for group in groups)] for name in names]
    return tag("div", table(head, rows, caption), class_="settings")


def _values(group: Group, name: str) -> str:
    # Within a group, settings that make no method may differ.
    return " / ".join(dict.fromkeys(_value(run, name) for run in group.runs))


def _settings_list(group: Group, names: Sequence[str]) -> Html:
    return tag("dl", [tag("div", tag("dt", name), tag("dd", _values(group, name))) for name in names])


# -------------------------------------------------------------------------------------------------------------- curves

Request = tuple[str, Callable[[], Picture]]  # a title, and how the figure is drawn


def figures(requests: Sequence[Request]) -> Html:
    """Figures side by side, each with its numbers, and a sentence for each that cannot be drawn."""
    drawn, missing = [], []
    for title, draw in requests:
        try:
            picture = draw()
        except ValueError as error:
            missing.append(f"{title}: {one_line(error)}")
            continue
        link = tag(
            "a",
            "numbers (CSV)",
            href=data_url(picture.csv().encode(errors="replace"), "text/csv"),
            download=f"{picture.name}.csv",
        )
        drawn.append(
            tag("figure", tag("figcaption", title, " ", link), svg(picture, title), notes(list(picture.notes)))
        )
    return joined([tag("div", drawn, class_="figures") if drawn else None, _not_drawn(missing)])


def _not_drawn(missing: Sequence[str]) -> Html | None:
    if not missing:
        return None
    return tag("div", tag("p", "Not drawn:"), notes(missing), class_="missing")


def curves_part(groups: Sequence[Group], x: X) -> Html:
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


def held_out_part(groups: Sequence[Group]) -> Html:
    """Scores on held-out tasks: a table, and figures."""
    try:
        scores = evaluated(groups)
    except ValueError as error:
        return sentence(f"There are no scores on held-out tasks: {one_line(error)}.")
    alone = dataclasses.replace(scores, notes=())  # the notes stand under the table: they are the same for all figures
    requests: list[Request] = [("Solved rate by task", partial(held_out.held_out_bars, alone))]
    if len(groups) > 1:
        requests += [
            ("All tasks together", partial(held_out.aggregates, alone)),
            ("Probability of improvement", partial(held_out.probability_of_improvement, alone)),
            ("Performance profiles", partial(held_out.performance_profiles, alone)),
        ]
    return tag("div", tag("div", held_out_table(groups, scores)), figures(requests), class_="beside")


def held_out_table(groups: Sequence[Group], scores: ComparedScores) -> Html:
    """A row a task and one for all tasks: mean, IQM, interval or seeds, and return, of each group."""
    try:
        returns = evaluated(groups, "return").groups
    except ValueError:  # not measured
        returns = ()
    tops, head, columns = [], ["task"], []
    for i, group in enumerate(scores.groups):
        measures = {"solved_rate": group.values} | ({"return": returns[i].values} if returns else {})
        # The IQM of a single seed on one task is that seed.
        start = 1 if group.n_seeds == 1 else 2
        own = [*["solved", "IQM"][:start], *map(_short, spread_columns(group.n_seeds))]
        own += ["return"] if returns else []
        tops.append((joined([swatch(group.place), group.label]), len(own)))
        head += own
        each = [{name: x[:, j] for name, x in measures.items()} for j in range(len(scores.tasks))]
        cells = [score_cells(one) for one in [*each, measures]]
        columns.append([[*row[:start], *row[2:]] for row in cells])
    tasks = [*scores.tasks, "all tasks"]
    rows = [[task, *(cell for column in columns for cell in column[j])] for j, task in enumerate(tasks)]
    counts = {group.n_seeds for group in scores.groups}
    told = [*scores.notes]
    if min(counts) < MIN_SEEDS:
        told.append(NO_INTERVAL)
    if max(counts) >= MIN_SEEDS:
        told.append("Intervals are 95% percentile intervals of the bootstrap over whole seeds, of the IQM.")
    found = table(head, rows, "Solved rate and return on held-out tasks", last_is_total=True)
    if len(scores.groups) > 1:
        over = tag("tr", tag("td"), [tag("th", label, colspan=n, scope="colgroup") for label, n in tops])
        found = Html(found.replace("<thead>", f"<thead>{over}", 1))
    return joined([found, notes(told)])


def _short(heading: str) -> str:
    # The notes say what kind of interval it is.
    return "95% interval" if "interval" in heading else heading


def best_score(groups: Sequence[Group]) -> str:
    """The solved rate of each group on held-out tasks, for the line under the title; empty if nobody knows."""
    try:
        scores = evaluated(groups)
    except ValueError:
        return ""
    each = [f"{group.label} {percent(group.values.mean())}" for group in scores.groups]
    return f"solved rate on {len(scores.tasks)} held-out tasks: {', '.join(each)}"


def opponents_part(groups: Sequence[Group]) -> Html:
    """The share of games won against opponents."""
    return figures([("Wins against opponents", partial(wins_against_opponents, groups))])


# --------------------------------------------------------------------------------------------------------------- speed


def speed_part(groups: Sequence[Group]) -> Html:
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
