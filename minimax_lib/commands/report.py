"""The command `minimax-report`: one HTML file about runs, which opens without a network."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minimax_lib.commands.status import carried_out, say, without_sweeps
from minimax_lib.config.files import read_yaml
from minimax_lib.config.report import ReportSettings, parse
from minimax_lib.config.runs import harmless
from minimax_lib.pictures import report_tables
from minimax_lib.pictures.html import page, part, write_page
from minimax_lib.pictures.opponents import have_met
from minimax_lib.pictures.runs import Group, find_groups
from minimax_lib.store.files import UnreadLines
from minimax_lib.store.folder import RunFolder

if TYPE_CHECKING:
    from markupsafe import Markup

LARGE = 5_000_000  # bytes


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2.

    A part of the report that cannot be made of these runs is a sentence in it.
    """
    return carried_out(argv, prepared, write)


def prepared(words: Sequence[str]) -> tuple[ReportSettings, Sequence[Group]]:
    """(what is asked for, the runs in groups); ValueError in one line."""
    settings = parse(words)
    if settings.plugins:
        from minimax_lib.config.train import import_plugins  # imports JAX, which reports of tables do without

        import_plugins(settings.plugins)
    groups = find_groups(without_sweeps(settings.run), settings.patterns, settings.by)
    check_plugins(settings, groups)
    check_tasks(settings, groups)
    warn_of_tables(groups)
    return settings, groups


def write(request: tuple[ReportSettings, Sequence[Group]]) -> int:
    """Makes the report, and says where it is; the exit status."""
    settings, groups = request
    if settings.n_levels or settings.episodes:
        from minimax_lib.experiment.compilation import keep_compiled_programs  # imports JAX

        keep_compiled_programs(settings.compilation_cache)
    path = write_page(Path(settings.out), report(settings, groups))
    size = path.stat().st_size
    large = " (fewer --tasks, --n-levels or --n-checkpoints make it smaller)" if size > LARGE else ""
    say(f"written: {path}, {size / 1e6:.1f} MB{large}")
    return 0


def check_plugins(settings: ReportSettings, groups: Sequence[Group]) -> None:
    """ValueError for a run with plugins, unless the user has said which to import."""
    for group in groups:
        for run in group.runs:
            config = RunFolder(run.path).config
            harmless(read_yaml(config), config, settings.plugins is not None)


def warn_of_tables(groups: Sequence[Group]) -> None:
    """Warns of tables that cannot be read. The report says so too, and has what is in the others."""
    for run in (run for group in groups for run in group.runs):
        for table in ("metrics", "evals"):
            try:
                getattr(run, table)
            except ValueError as error:
                warnings.warn(str(error), UnreadLines, stacklevel=2)


def check_tasks(settings: ReportSettings, groups: Sequence[Group]) -> None:
    """ValueError, with the nearest name, for a held-out task that the user names and no run's environment has."""
    if not (settings.tasks and settings.episodes):
        return
    from minimax_lib.envs.registry import make_held_out
    from minimax_lib.evaluation.held_out import tasks_of_run
    from minimax_lib.store.saved import config_of

    for group in groups:
        try:
            config = config_of(RunFolder(group.runs[0].path), plugins_are_given=True)
        except ValueError:
            continue  # then the report says why there is no episode
        make_held_out(config.env, tasks_of_run(settings.tasks, config.runner))


def report(settings: ReportSettings, groups: Sequence[Group]) -> str:
    """The page."""
    n_runs = sum(len(group.runs) for group in groups)
    names = ", ".join(group.label for group in groups)
    n_seeds = sum(group.n_seeds for group in groups)
    runs = f"{n_runs} run{'s' if n_runs > 1 else ''}, {n_seeds} seed{'s' if n_seeds > 1 else ''}"
    title = settings.title or f"Report: {names}"
    best = report_tables.best_score(groups)
    return page(title, f"{runs}; {best}" if best else runs, list(parts(settings, groups)))


def parts(settings: ReportSettings, groups: Sequence[Group]) -> "Iterator[tuple[str, str, Markup]]":
    """(identifier, heading, content) of every part."""
    yield "runs", "Runs", report_tables.runs_part(groups)
    yield "configuration", "Configuration", report_tables.configuration_part(groups)
    say("drawing figures")
    yield "held-out", "Held-out tasks", report_tables.held_out_part(groups)
    if have_met(groups):
        yield "opponents", "Opponents", report_tables.opponents_part(groups)
    yield "curves", "Curves", report_tables.curves_part(groups, settings.x)
    if settings.n_levels:
        from minimax_lib.pictures.report_levels import levels_part  # slow to import, as what follows

        say("drawing levels of the checkpoints")
        how = settings.plugins, settings.n_levels, settings.n_checkpoints
        yield "levels", "Levels", made(lambda: levels_part(groups, *how))
    if settings.episodes:
        from minimax_lib.pictures.report_episodes import episodes_part

        of = settings.plugins, settings.tasks, settings.greedy
        yield "episodes", "Episodes", made(lambda: episodes_part(groups, *of, say))
    yield "speed", "Speed", report_tables.speed_part(groups)


def made(make: "Callable[[], Markup]") -> "Markup":
    """The part that `make` makes; a sentence where XLA fails, as where a training holds the memory of a GPU."""
    from minimax_lib.experiment.failures import XLA_ERRORS, picture_failure  # imports JAX

    try:
        return make()
    except XLA_ERRORS as error:
        return part("missing", f"Not made: {picture_failure(error)}.")


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.report())
