"""Results for people: tables of solved rates over tasks and seeds, and the report at the end of training."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Drawable
from minimax_lib.envs.batch import EpisodeStats
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.runners.evaluation import EvalResult, EvalRunner, Recording, evaluation_keys
from minimax_lib.runners.robustness import RobustResult
from minimax_lib.statistics import summarise
from minimax_lib.trees import mapped

REPORTED = (TRAINING_DISTRIBUTION, "benchmark")  # tasks of the report at the end of training
REPORTED_EPISODES = 50
PICTURE_SEED = 20230716


@dataclasses.dataclass(frozen=True)
class Scores:
    """What S seeds reached on M tasks: named measures, each f64[S, M], means over episodes."""

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    measures: Mapping[str, np.ndarray]

    def __getitem__(self, measure: str) -> np.ndarray:
        return self.measures[measure]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each seed and task, for a table in long form."""
        for i, seed in enumerate(self.seeds):
            for j, task in enumerate(self.tasks):
                yield {"seed": seed, "maze": task} | {name: float(x[i, j]) for name, x in self.measures.items()}


def task_scores(tasks: Sequence[str], seeds: Sequence[int], result: EvalResult) -> Scores:
    """`solved_rate`, `return` and `length` (steps) of the episodes of `result` [S, M, E]."""
    found = {"solved_rate": result.solved, "return": result.returns, "length": result.lengths}
    measures = {name: np.asarray(x).mean(axis=-1, dtype=np.float64) for name, x in found.items()}
    return Scores(tuple(tasks), tuple(seeds), measures)


def level_scores(shares: Sequence[float], seeds: Sequence[int], result: RobustResult) -> Scores:
    """`solved_rate` of each seed on the worst shares of its levels."""
    names = tuple("all levels" if share == 1 else f"worst {100 * share:g}%" for share in shares)
    rates = np.stack([result.win_rates(share) for share in shares], axis=1)
    return Scores(names, tuple(seeds), {"solved_rate": rates})


def pooled(parts: Sequence[Scores]) -> Scores:
    """The seeds of all `parts`, which are on the same tasks."""
    seeds = tuple(seed for part in parts for seed in part.seeds)
    measures = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].measures}
    return Scores(parts[0].tasks, seeds, measures)


def score_table(title: str, scores: Scores) -> Table:
    """A row a task: solved rate (mean, IQM, interval over seeds), and return where it was measured."""
    table = Table("task", title=title, title_justify="left", caption=seeds_note(scores), caption_justify="left")
    for column in ("solved", "IQM", "95% interval", *(["return"] if "return" in scores.measures else [])):
        table.add_column(column, justify="right")
    for j, task in enumerate(scores.tasks):
        table.add_row(task, *score_cells({name: x[:, j] for name, x in scores.measures.items()}))
    return table


def task_table(title: str, scores: Scores) -> Table:
    """The same, and a row for all tasks together."""
    table = score_table(title, scores)
    table.add_section()
    table.add_row("all tasks", *score_cells(scores.measures), style="bold")
    return table


def score_cells(measures: Mapping[str, np.ndarray]) -> list[str]:
    """The cells of a row of `score_table`; measures are [S] or [S, M]."""
    solved = summarise(measures["solved_rate"])
    interval = "-" if solved.interval is None else " to ".join(map(percent, solved.interval))
    returns = [f"{measures['return'].mean():.3f}"] if "return" in measures else []
    return [percent(solved.mean), percent(solved.iqm), interval, *returns]


def seeds_note(scores: Scores) -> str:
    """What the interval means."""
    n_seeds = len(scores.seeds)
    if n_seeds == 1:
        return f"seed {scores.seeds[0]} alone: no interval over seeds"
    return f"{n_seeds} seeds; interval: stratified bootstrap of the interquartile mean (IQM) over seeds"


def seed_table(scores: Scores) -> Table:
    """A row a seed: solved rate and return, means over all tasks."""
    table = Table("seed", title="Each seed, over all tasks", title_justify="left")
    for column in ("solved", "return"):
        table.add_column(column, justify="right")
    for seed, solved, returns in zip(scores.seeds, scores["solved_rate"], scores["return"], strict=True):
        table.add_row(str(seed), percent(solved.mean()), f"{returns.mean():.3f}")
    return table


def comparison_table(title: str, untrained: Scores, trained: Scores) -> Table:
    """A row a task, and one for all of them: solved rates before and after training, means over the seeds."""
    table = Table("task", title=title, title_justify="left", caption_justify="left")
    table.caption = f"means over {len(trained.seeds)} seeds" if len(trained.seeds) > 1 else None
    for column in ("untrained", "trained", "return"):
        table.add_column(column, justify="right")
    for j, task in enumerate([*trained.tasks, "all tasks"]):
        own = slice(None) if j == len(trained.tasks) else j
        rates = [percent(scores["solved_rate"][:, own].mean()) for scores in (untrained, trained)]
        table.add_row(task, *rates, f"{trained['return'][:, own].mean():.3f}", end_section=j + 1 == len(trained.tasks))
    return table


def final_report(
    config: Any, agent: Agent, initial_params: Any, params: Any, folder: Path, console: Console
) -> tuple[Scores, Scores]:
    """Prints what training was good for, draws the agent's way through a few levels, and returns the scores.

    The table compares the untrained with the trained agent on the training distribution and the benchmark, the picture
    `levels/agent.png` in `folder` shows the first seed's agent. `agent` is a single one; both parameters are of
    populations, [S, A, ...], of which the first student counts.
    """
    seeds = range(config.seed, config.seed + config.n_seeds)
    first = [jax.tree.map(lambda x: x[:, 0], each) for each in (initial_params, params)]
    settings = dataclasses.replace(config.eval, tasks=REPORTED, n_episodes=REPORTED_EPISODES)
    untrained, trained = compare(settings.build(config.env, agent), seeds, *first)
    how = f"{REPORTED_EPISODES} {'greedy' if settings.greedy else 'sampled'} episodes on each"
    console.print(comparison_table(f"Held-out tasks solved, {how}", untrained, trained))
    shown = jax.tree.map(lambda x: x[0], first[1])
    console.print(draw_episodes(config.eval.build(config.env, agent), shown, folder / "levels" / "agent.png"))
    return untrained, trained


def compare(runner: EvalRunner, seeds: Sequence[int], *several: Any) -> list[Scores]:
    """The scores of each of several lots of parameters [S, ...], on the same levels; one compilation, one dispatch."""
    keys = jnp.concatenate([evaluation_keys(seeds)] * len(several))
    params = jax.tree.map(lambda *lots: jnp.concatenate(lots), *several)
    result = jax.jit(mapped(runner.evaluate, axis_name=axes.SEED))(keys, params)
    lots = [slice(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(several))]
    return [task_scores(runner.names, seeds, jax.tree.map(lambda x, lot=lot: x[lot], result)) for lot in lots]


def draw_episodes(runner: EvalRunner, params: Any, path: Path, n_episodes: int = 3) -> str:
    """Draws one agent's first episodes on every task, a column a task; returns a line that says where, or why not."""
    env, n_tasks = runner.held_out.env, len(runner.names)
    if not isinstance(env, Drawable):
        return f"no picture: {type(env).__name__} has no method to draw its episodes"
    recording = jax.device_get(jax.jit(partial(record_episodes, runner, n_episodes))(params))
    by_episode = np.arange(n_tasks * n_episodes).reshape(n_tasks, n_episodes).T.reshape(-1).tolist()
    states, running = jax.tree.map(lambda x: x[:, by_episode], (recording.states, recording.running))
    captions = [caption(runner.names[row // n_episodes], recording.stats, row) for row in by_episode]
    picture = env.draw_episodes(states, running, captions, columns=n_tasks)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)
    return f"the agent's way through a few levels: {path}"


def caption(task: str, stats: EpisodeStats, row: Any) -> str:
    """What became of one episode."""
    solved, length = stats.returns[row] > 0, stats.lengths[row]
    return f"{task}: " + (f"solved in {length} steps" if solved else f"not solved in {length} steps")


def record_episodes(runner: EvalRunner, n_episodes: int, params: Any) -> Recording:
    """`n_episodes` of each task, row m * n_episodes + e."""
    k_levels, k_play = jax.random.split(jax.random.key(PICTURE_SEED))
    return runner.player.record(k_play, params, runner.rows(k_levels, n_episodes))


def percent(rate: float) -> str:
    return f"{100 * rate:.1f}%"
