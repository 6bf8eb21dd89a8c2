"""Tables by the tasks that agents of one world have, and the score of the NeurIPS 2023 competition of Neural MMO."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from minimax_lib.envs.levels import task_name
from minimax_lib.evaluation.tables import Scores, percent, score_table, seeds_note

MOST_TASKS = 100  # in a table


def agent_tables(scores: Scores, env: Any) -> Iterator[Table | str]:
    """What is printed of the results by the tasks of the agents of `env`."""
    if len(scores.tasks) <= MOST_TASKS:
        yield score_table("By the tasks of the agents, all lives on each", scores)
    else:
        yield f"The agents had {len(scores.tasks):,} different tasks: the file has a line for each."
    if env.task_kind:
        kinds = {task_name(env, number): env.task_kind(number) for number in range(env.n_tasks)}
        # A task is called "held-out task/task".
        kind_of = {task: kinds[task.split("/", 1)[1]] for task in scores.tasks}
        yield kinds_table(kind_of, scores, tuple(dict.fromkeys(kinds.values())))


def points(kind_of: Mapping[str, str], scores: Scores, n_kinds: int | None = None) -> dict[str, np.ndarray]:
    """f64[S] by kind of task: its part of 100 points.

    Kinds have equal parts, and so have the tasks of a kind. A task gives as much of its part as the mean of the highest
    progress in each life. This is the score of the NeurIPS 2023 competition, whose kinds are six categories.

    There are `n_kinds`, or as many as `scores` has. A kind that `scores` has not is left out: its points are not known.
    """
    kinds = dict.fromkeys(kind_of[task] for task in scores.tasks)
    part = 100 / (n_kinds or len(kinds))
    tasks = {kind: [task for task in scores.tasks if kind_of[task] == kind] for kind in kinds}
    return {kind: part * scores.on(own)["progress"].mean(axis=1) for kind, own in tasks.items()}


def kinds_table(kind_of: Mapping[str, str], scores: Scores, kinds: Sequence[str]) -> Table:
    """A row for each kind of task: how many there are, their mean highest progress, share completed, and `points`.

    Where one of all `kinds` has no life, its points are unknown, and so is their sum.
    """
    found, caption = points(kind_of, scores, len(kinds)), seeds_note(scores)
    if missing := [kind for kind in kinds if kind not in found]:
        caption = f"-: no life had a task of the kind {', '.join(missing)}; more episodes help\n{caption}"
    title = "By kinds of tasks, which have equal parts of 100 points"
    table = Table("kind", title=title, title_justify="left", caption=caption, caption_justify="left")
    for column in ("tasks", "highest\nprogress", "completed", "points"):
        table.add_column(column, justify="right")
    for kind, own in found.items():
        of_kind = scores.on([task for task in scores.tasks if kind_of[task] == kind])
        progress, completed = of_kind["progress"].mean(), percent(of_kind["solved_rate"].mean())
        table.add_row(kind, str(len(of_kind.tasks)), f"{progress:.3f}", completed, f"{own.mean():.1f}")
    total = np.sum(list(found.values()), axis=0)
    table.add_section()
    table.add_row("all", str(len(scores.tasks)), "", "", "-" if missing else f"{total.mean():.1f}", style="bold")
    if len(total) > 1 and not missing:
        table.add_row("each seed", "", "", "", " ".join(f"{x:.1f}" for x in total))
    return table
