"""The command `minimax-plot`: figures of runs, for papers, and their numbers."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from minimax_lib.commands.status import carried_out, nothing_drawn, say, without_sweeps
from minimax_lib.config.plot import FIGURES, PlotSettings, parse
from minimax_lib.pictures import curves, held_out, lines, scores
from minimax_lib.pictures.opponents import have_met, wins_against_opponents
from minimax_lib.pictures.output import FigureFolder
from minimax_lib.pictures.relative import relative_curve
from minimax_lib.pictures.replay import replay_by_difficulty
from minimax_lib.pictures.runs import Group, find_groups
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.task_logs import host_picture, is_log
from minimax_lib.registry import unknown_name

DEFAULT_METRICS = ("return", "solved_rate", "held_out/solved_rate")
RELATIVE_METRICS = ("held_out/return", "return")
Request = tuple[str, Callable[[], Picture]]  # what is drawn, in words, and how


Prepared = tuple[PlotSettings, Sequence[Group], Sequence[tuple[str, Picture | NotDrawn]]]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2.

    A figure that cannot be drawn from these runs is a line; the others are drawn. The status is 1 if there is none.
    """
    return carried_out(argv, prepared, write)


def prepared(words: Sequence[str]) -> Prepared:
    """(what is asked for, the runs in groups, the figures and why others cannot be drawn); ValueError in one line."""
    settings = parse(words)
    logs = [path for path in settings.run if is_log(path)]
    runs = [path for path in settings.run if path not in logs]
    groups = find_groups(without_sweeps(runs), settings.patterns, settings.by) if runs or settings.patterns else []
    check_names(settings, groups)
    wanted = [*_tasks(settings, logs), *(requests(settings, groups) if groups else ())]
    return settings, groups, list(drawable(wanted))


def check_names(settings: PlotSettings, groups: Sequence[Group]) -> None:
    """ValueError for an unknown metric, held-out task, evaluation or baseline."""
    for metric in settings.metrics:
        lines.check_metric(groups, metric)
    if settings.tasks:
        lines.check_tasks(groups, settings.tasks)
    if groups:
        scores.check_source([run for group in groups for run in group.runs], settings.held_out)
    labels = [group.label for group in groups]
    if settings.baseline and settings.baseline not in labels:
        raise unknown_name("baseline", settings.baseline, labels)


def drawable(wanted: Sequence[Request]) -> Iterator[tuple[str, Picture | NotDrawn]]:
    """(what it is, the figure, or why there is none) of every figure that is asked for."""
    for what, picture in wanted:
        try:
            yield what, picture()
        except NotDrawn as error:
            yield what, error


def requests(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    """The figures that are asked for, in the order of FIGURES."""
    of = {name: REQUESTS[name] for name in REQUESTS if name in settings.figures}
    for make in of.values():
        yield from make(settings, groups)


def _tasks(settings: PlotSettings, logs: Sequence[str]) -> Iterator[Request]:
    # Where all figures are drawn, nothing is said of those that are for others.
    chosen = settings.figures if settings.figures != tuple(FIGURES) else ()
    if "tasks" in settings.figures:
        yield from ((f"tasks of {path}", partial(host_picture, path)) for path in logs)
    if "tasks" in chosen and not logs:
        yield "tasks", partial(_impossible, 'no log of a Host is given (Host(log="tasks.csv") writes one)')
    if len(logs) == len(settings.run) and not settings.patterns:
        for name in chosen:
            if name != "tasks":
                yield name, partial(_impossible, "no run is given")


def _curves(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    for metric in settings.metrics or DEFAULT_METRICS:
        draw = partial(curves.learning_curve, groups, metric, settings.x, settings.smooth, settings.tasks)
        yield f"learning curve of {metric}", draw


def _complexity(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    metrics = lines.level_metrics(groups)
    for metric in metrics:
        yield (
            f"complexity curve of {metric}",
            partial(curves.complexity_curve, groups, metric, settings.x, settings.smooth),
        )
    if not metrics:
        yield "complexity curves", partial(_impossible, "no level metric in metrics.csv")


def _impossible(why: str) -> Picture:
    raise NotDrawn(why)


def _scores(settings: PlotSettings, groups: Sequence[Group]) -> scores.ComparedScores:
    return scores.evaluated(groups, settings.score, settings.tasks, settings.held_out)


def _bars(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    yield "held-out bars", lambda: held_out.held_out_bars(_scores(settings, groups))


def _aggregates(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    yield "aggregates", lambda: held_out.aggregates(_scores(settings, groups), settings.optimum)


def _improvement(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    yield (
        "probability of improvement",
        lambda: held_out.probability_of_improvement(_scores(settings, groups), settings.baseline),
    )


def _profiles(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    yield "performance profiles", lambda: held_out.performance_profiles(_scores(settings, groups))


def _opponents(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    # Few environments have opponents. Where they were not asked for by name, nothing is said of them.
    if have_met(groups) or settings.figures != tuple(FIGURES):
        yield "wins against opponents", lambda: wins_against_opponents(groups)


def _bank(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    if curves.has_bank(groups) or settings.figures != tuple(FIGURES):
        yield (
            "wins against the bank",
            partial(curves.wins_against_the_bank, groups, settings.x, settings.smooth),
        )


def _gap(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    how = (settings.score, settings.x, settings.smooth, settings.tasks)
    yield "generalisation gap", partial(curves.generalisation_gap, groups, *how)


def _relative(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    if not settings.baseline:
        labels = ", ".join(group.label for group in groups)
        yield "return relative to a baseline", partial(_impossible, f"say --baseline LABEL, one of {labels}")
        return
    how = (settings.baseline, settings.x, settings.smooth, settings.tasks)
    for metric in RELATIVE_METRICS:
        yield f"{metric} relative to {settings.baseline}", partial(relative_curve, groups, metric, *how)


def _replay(settings: PlotSettings, groups: Sequence[Group]) -> Iterator[Request]:
    yield "replay by difficulty", partial(replay_by_difficulty, groups, settings.difficulty)


REQUESTS: dict[str, Callable[[PlotSettings, Sequence[Group]], Iterator[Request]]] = {
    "curves": _curves,
    "complexity": _complexity,
    "held_out": _bars,
    "aggregates": _aggregates,
    "improvement": _improvement,
    "profiles": _profiles,
    "opponents": _opponents,
    "bank": _bank,
    "gap": _gap,
    "relative": _relative,
    "replay": _replay,
}


def write(request: Prepared) -> int:
    """Writes the figures, and says of each where it is or why there is none; the exit status."""
    settings, groups, pictures = request
    for group in groups:
        runs = ", ".join(str(run.path) for run in group.runs)
        say(f"{group.label}: {group.n_seeds} seed{'s' if group.n_seeds > 1 else ''} ({runs})")
    drawn = [picture for _, picture in pictures if isinstance(picture, Picture)]
    folder = FigureFolder(Path(settings.out)) if drawn else None
    said = set()
    for what, picture in pictures:
        if isinstance(picture, NotDrawn):
            say(f"not drawn: {what}: {picture}")
            continue
        assert folder is not None
        for note in picture.notes:
            if note not in said:
                say(f"note: {note}")
            said.add(note)
        contents = {kind: picture.image(kind) for kind in dict.fromkeys(settings.format)}
        paths = folder.write(picture.name, contents | {"csv": picture.csv().encode()})
        say(f"written: {', '.join(map(str, paths))}")
    return 0 if drawn else nothing_drawn()


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.plot())
