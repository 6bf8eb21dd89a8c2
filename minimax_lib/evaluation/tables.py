"""Tables of results, for people: solved rates by held-out task and seed."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from minimax_lib.evaluation.statistics import MIN_SEEDS, as_columns, n_worst, shares_of, summarise

if TYPE_CHECKING:  # these import JAX, and reports of tables do without
    from minimax_lib.evaluation.held_out import EvalResult
    from minimax_lib.evaluation.robustness import RobustResult

INTERVAL = "95% percentile interval of the bootstrap over whole seeds"
SOLVED = "solved\nrate"  # a heading in two lines, since the figures below are narrow
# Further columns, where there are such measures. An agent's life matters where there are several in a world.
OTHERS = {"return": "return", "progress": "highest\nprogress", "facts/lifetime": "ticks\nof a life"}
FEW_LEVELS = 10  # a mean over fewer levels gets a caveat


@dataclasses.dataclass(frozen=True)
class Scores:
    """Results of S seeds on M held-out tasks: named measures, each f64[S, M], which are means over episodes."""

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    measures: Mapping[str, np.ndarray]
    n_worst: tuple[int, ...] = ()  # levels behind each task, where the tasks are shares of the levels
    of_agents: "Scores | None" = None  # by the tasks that agents of a world have, each "held-out task/task"

    def __getitem__(self, measure: str) -> np.ndarray:
        return self.measures[measure]

    def on(self, tasks: Sequence[str]) -> "Scores":
        """The results on these of the tasks."""
        places = [self.tasks.index(task) for task in tasks]
        return Scores(tuple(tasks), self.seeds, {name: x[:, places] for name, x in self.measures.items()})

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each seed and task, for a table in long form."""
        for i, seed in enumerate(self.seeds):
            for j, task in enumerate(self.tasks):
                row = {"seed": seed, "task": task} | {name: float(x[i, j]) for name, x in self.measures.items()}
                yield row | ({"n_worst": self.n_worst[j]} if self.n_worst else {})
        if self.of_agents:
            yield from self.of_agents.rows()


def task_scores(
    tasks: Sequence[str], seeds: Sequence[int], result: "EvalResult", name_of: Callable[[int], str] = str
) -> Scores:
    """Means over the episodes of `result` [S, M, E]: `solved_rate`, `return`, `length` (in steps) and `facts/...`.

    Where agents of a world have tasks of their own, also the highest `progress` and the number of `lives`, and all of
    this by their tasks, which `name_of` names.
    """
    found = {"solved_rate": result.solved, "return": result.returns, "length": result.lengths}
    found |= {f"facts/{name}": values for name, values in result.facts.items()}
    measures = {name: np.asarray(x).mean(axis=-1, dtype=np.float64) for name, x in found.items()}
    if not result.of_agents:
        return Scores(tuple(tasks), tuple(seeds), measures)
    sums = {name: np.asarray(x, np.float64) for name, x in result.of_agents.items()}  # [S, M, N]
    lives = sums["lives"]
    measures |= {"progress": sums["progress"].sum(axis=-1) / lives.sum(axis=-1), "lives": lives.sum(axis=-1)}
    return Scores(tuple(tasks), tuple(seeds), measures, of_agents=agent_scores(tasks, seeds, sums, name_of))


def agent_scores(
    tasks: Sequence[str], seeds: Sequence[int], sums: Mapping[str, np.ndarray], name_of: Callable[[int], str]
) -> Scores:
    """Means over the lives on each task of the agents, of `sums` [S, M, N]. Tasks without a life are left out."""
    there = np.argwhere((sums["lives"] > 0).all(axis=0))
    names = tuple(f"{tasks[m]}/{name_of(int(n))}" for m, n in there)
    picked = {name: x[:, there[:, 0], there[:, 1]] for name, x in sums.items()}
    means = {name: x if name == "lives" else x / picked["lives"] for name, x in picked.items()}
    return Scores(names, tuple(seeds), means)


def level_scores(shares: Sequence[float], seeds: Sequence[int], result: "RobustResult") -> Scores:
    """`solved_rate` of each seed on the worst `shares` of its levels. Shares of less than one level are left out."""
    n_levels = result.ranking.shape[1]
    shares = shares_of(n_levels, shares)
    rates = np.stack([result.solved_rates(share) for share in shares], axis=1)
    counts = tuple(n_worst(share, n_levels) for share in shares)
    return Scores(tuple(map(share_name, shares)), tuple(seeds), {"solved_rate": rates}, counts)


def share_name(share: float) -> str:
    """What a share of the levels is called in tables."""
    return "all levels" if share == 1 else f"worst {100 * share:g}%"


def levels_note(shares: Sequence[float], n_levels: int) -> str:
    """What a reader must know about small `shares` of `n_levels` levels; empty if there is nothing to say."""
    kept = shares_of(n_levels, shares)
    few = [share_name(share) for share in kept if n_worst(share, n_levels) < FEW_LEVELS]
    left_out = [share for share in shares if share not in kept]
    notes = []
    if few:
        what = f"{few[0]} to {few[-1]}" if len(few) > 1 else few[0]
        notes.append(f"{what}: fewer than {FEW_LEVELS} levels, so chance decides much of the figure.")
    if left_out:
        names = ", ".join(map(share_name, left_out))
        enough = math.ceil(FEW_LEVELS / min(left_out))
        notes.append(f"Not shown, since it would be less than one level: {names} (--n-levels {enough} is enough).")
    return " ".join(notes)


def pooled(parts: Sequence[Scores]) -> Scores:
    """The seeds of all `parts` together, with what was measured in all. The parts must be on the same tasks."""
    seeds = tuple(seed for part in parts for seed in part.seeds)
    # An evaluation that was found again has fewer measures than a fresh one.
    names = [name for name in parts[0].measures if all(name in part.measures for part in parts)]
    measures = {name: np.concatenate([part[name] for part in parts]) for name in names}
    of_agents = [part.of_agents for part in parts if part.of_agents]
    # Tasks are drawn at random in some worlds: then a part may lack a life on one of them.
    common = [task for task in of_agents[0].tasks if all(task in one.tasks for one in of_agents)] if of_agents else []
    each = pooled([one.on(common) for one in of_agents]) if common else None
    return dataclasses.replace(parts[0], seeds=seeds, measures=measures, of_agents=each)


def score_table(title: str, scores: Scores) -> Table:
    """A row a task: solved rate (mean, IQM, interval or single seeds), and return and life if they were measured.

    Where tasks are shares of the levels, a column says how many levels each of them is.
    """
    table = Table("task", title=title, title_justify="left", caption=seeds_note(scores), caption_justify="left")
    levels = ["levels"] if scores.n_worst else []
    others = [heading for measure, heading in OTHERS.items() if measure in scores.measures]
    for column in (*levels, SOLVED, *iqm_columns(len(scores.seeds)), *spread_columns(len(scores.seeds)), *others):
        table.add_column(column, justify="right")
    for j, task in enumerate(scores.tasks):
        count = [f"{scores.n_worst[j]:,}"] if scores.n_worst else []
        table.add_row(task, *count, *score_cells({name: x[:, j] for name, x in scores.measures.items()}))
    return table


def task_table(title: str, scores: Scores) -> Table:
    """`score_table` with one more row, for all tasks together."""
    table = score_table(title, scores)
    table.add_section()
    table.add_row("all tasks", *score_cells(scores.measures), style="bold")
    return table


def score_cells(measures: Mapping[str, np.ndarray]) -> list[str]:
    """The cells of a row of `score_table`. Measures are [S] or [S, M]."""
    solved = summarise(measures["solved_rate"])
    spread = spread_cells(measures["solved_rate"], solved.interval)
    others = [f"{measures[name].mean():.3f}" for name in OTHERS if name in measures]
    iqm = [percent(solved.iqm)] if solved.n_seeds > 1 else []
    return [percent(solved.mean), *iqm, *spread, *others]


def iqm_columns(n_seeds: int) -> list[str]:
    """The heading of the interquartile mean. That of a single seed would be one over held-out tasks."""
    return ["IQM"] if n_seeds > 1 else []


def spread_columns(n_seeds: int) -> list[str]:
    """The headings of `spread_cells`."""
    if n_seeds == 1:
        return []
    return ["each seed, %"] if n_seeds < MIN_SEEDS else ["95% bootstrap\ninterval"]


def spread_cells(rates: np.ndarray, interval: tuple[float, float] | None) -> list[str]:
    """The interval; without one, the mean of each seed, in their order. A single seed has no such cell."""
    if interval is not None:
        return [" to ".join(map(percent, interval))]
    each = as_columns(rates).mean(axis=1)
    return [" ".join(f"{100 * rate:3.0f}" for rate in each)] if len(each) > 1 else []


def seeds_note(scores: Scores) -> str:
    """The caption: which interval the table shows, or why it shows none."""
    n_seeds = len(scores.seeds)
    if n_seeds == 1:
        return f"seed {scores.seeds[0]} alone: no interval over seeds"
    if n_seeds < MIN_SEEDS:
        names = ", ".join(map(str, scores.seeds))
        return (
            f"{n_seeds} seeds, their values in the order {names}. No interval: with fewer than {MIN_SEEDS} seeds it "
            "would miss the true value too often"
        )
    return f"{n_seeds} seeds; interval: {INTERVAL} of the interquartile mean (IQM) over seeds"


def seed_table(scores: Scores) -> Table:
    """A row a seed: solved rate and return, means over all tasks."""
    table = Table("seed", title="Each seed, mean over all tasks", title_justify="left")
    for column in (SOLVED, "return"):
        table.add_column(column, justify="right")
    for seed, solved, returns in zip(scores.seeds, scores["solved_rate"], scores["return"], strict=True):
        table.add_row(str(seed), percent(solved.mean()), f"{returns.mean():.3f}")
    return table


def comparison_table(title: str, first: Scores, trained: Scores, first_name: str = "untrained") -> Table:
    """A row a task, and one for all tasks: solved rates before and after training, means over the seeds."""
    table = Table("task", title=title, title_justify="left", caption_justify="left")
    table.caption = f"means over {len(trained.seeds)} seeds" if len(trained.seeds) > 1 else None
    for column in (first_name, "trained", "return"):
        table.add_column(column, justify="right")
    for j, task in enumerate([*trained.tasks, "all tasks"]):
        own = slice(None) if j == len(trained.tasks) else j
        rates = [percent(scores["solved_rate"][:, own].mean()) for scores in (first, trained)]
        table.add_row(task, *rates, f"{trained['return'][:, own].mean():.3f}", end_section=j + 1 == len(trained.tasks))
    return table


def percent(rate: float) -> str:
    return f"{100 * rate:.1f}%"
