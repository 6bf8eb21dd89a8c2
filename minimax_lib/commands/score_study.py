"""`minimax-evaluate --scores`: which score finds levels that the agents of runs can learn from."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

from minimax_lib.config.evaluate import EvaluateSettings
from minimax_lib.evaluation.held_out import evaluation_keys
from minimax_lib.evaluation.score_study import ScoreStudent, ScoreStudy
from minimax_lib.pictures.score_study import score_study_picture
from minimax_lib.runners.build import make_agent
from minimax_lib.store.evaluations import as_csv, write_new
from minimax_lib.store.saved import Run, restore

LEVELS = "n_levels"  # the column that says how many levels a correlation is over


def student_of(settings: EvaluateSettings, runs: Sequence[Run]) -> ScoreStudent:
    """What studies the agents of `runs`, which have one configuration. ValueError where it cannot."""
    config = runs[0].config
    rollouts = config.runner.n_rollouts(config.env.max_steps)
    return ScoreStudent(
        config.env,
        make_agent(config).agent,
        config.runner.n_steps * rollouts,
        settings.episodes,
        config.runner.normalize_rewards,
        config.runner.levels_per_row,
    )


def study(settings: EvaluateSettings, runs: Sequence[Run], student: ScoreStudent, console: Console) -> None:
    """Prints the table of each seed of each run, and writes it, the numbers of its levels, and a picture."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    for name, reason in student.left_out.items():
        say(f"left out: {name}, which {reason}")
    for run in runs:
        run.results.mkdir(parents=True, exist_ok=True)  # before the work, as for other evaluations
        update, params = restore(run, console)
        for place, seed in enumerate(run.seeds):
            own = jax.tree.map(lambda x, place=place: x[place, settings.student], params)
            show = partial(track, description=f"{settings.n_levels:,} levels", console=console, transient=True)
            [key] = evaluation_keys([seed], settings.seed)
            found = student.study(key, own, settings.n_levels, show)
            title = f"{run.name}, seed {seed}: rank correlation over {settings.n_levels:,} levels"
            console.print(table_of(title, found))
            for path in written(run.results, f"update{update}-seed{seed}-scores", seed, found):
                say(f"written: {path}")


def table_of(title: str, found: ScoreStudy) -> Table:
    """A row for each score, with its correlations; and the number of levels where some levels have no score."""
    table, rows = Table(title=title), found.correlations()
    some = [LEVELS] if any(row[LEVELS] < len(found.rates) for row in rows) else []
    for heading in ("score", *found.targets, *some):
        table.add_column("levels" if heading == LEVELS else heading, justify="left" if heading == "score" else "right")
    for row in rows:
        cells = [row[target] for target in found.targets]
        counts = [f"{row[name]:,}" for name in some]
        table.add_row(row["score"], *("" if cell != cell else f"{cell:.2f}" for cell in cells), *counts)
    if some:
        table.caption = "levels: those with a score; on the others, no episode ended in the rollout"
    return table


def written(folder: Path, name: str, seed: int, found: ScoreStudy) -> list[Path]:
    """The new files: the table, the levels, and the picture where matplotlib is installed."""
    paths = [
        write_new(folder, name, as_csv([{"seed": seed} | row for row in found.correlations()])),
        write_new(folder, f"{name}-levels", as_csv([{"seed": seed} | row for row in found.levels()])),
    ]
    try:
        picture = score_study_picture(found).image()
    except ImportError:  # an extra
        return paths
    return [*paths, write_new(folder, paths[0].stem, picture, ".png")]
