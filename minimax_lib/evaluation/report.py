"""The report at the end of training: a comparison with the agent as it began, and a picture of a few episodes."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from rich.console import Console

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Level
from minimax_lib.envs.drawing import shrunk, titled
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.evaluation.held_out import EvalResult, EvalRunner, evaluation_keys
from minimax_lib.evaluation.tables import Scores, comparison_table, task_scores
from minimax_lib.files import naming
from minimax_lib.loops import LEAST_EFFORT, RUN_ONCE
from minimax_lib.playing.episodes import Played, Recording
from minimax_lib.trees import mapped

REPORTED = (TRAINING_DISTRIBUTION, "benchmark")  # held-out tasks of the report at the end of training
REPORTED_EPISODES = 50
PICTURE_SEED = 20230716
WIDEST = 1600  # pixels of the picture: it is looked at on screens
SIDE_BY_SIDE = 4  # episodes


def final_report(
    config: Any,
    agent: Agent,
    initial_params: Any,
    params: Any,
    folder: Path,
    console: Console,
    doing: Callable[[str], None] = lambda activity: None,
    first_name: str = "untrained",
) -> tuple[Scores, Scores]:
    """The scores of the first and of the trained agent, on the training distribution and the benchmark.

    The scores are printed as a table. The picture `levels/agent.png` in `folder` shows the first seed's trained agent
    on the same tasks. Both parameters belong to populations, [S, A, ...]: only the first student is evaluated. `doing`
    is told what takes long, before it begins. `first_name` says what the first agent is: untrained, or initial where it
    has learnt elsewhere.
    """
    doing(f"comparing with the {first_name} agent")
    seeds = range(config.seed, config.seed + config.n_seeds)
    # On the host, where nothing is compiled for each shape.
    first = [jax.tree.map(lambda x: np.asarray(x)[:, 0], each) for each in (initial_params, params)]
    settings = dataclasses.replace(config.eval, tasks=REPORTED, n_episodes=REPORTED_EPISODES)
    runner = settings.build(config.env, agent)
    initial, trained = compare(runner, seeds, *first)
    how = f"{REPORTED_EPISODES} {'greedy' if settings.greedy else 'sampled'} episodes on each"
    console.print(comparison_table(f"Solved rate, {how} task", initial, trained, first_name))
    doing("drawing the agent")
    shown = jax.tree.map(lambda x: x[0], first[1])
    path, legend = folder / "levels" / "agent.png", config.env.legend
    console.print(draw_episodes(runner, shown, path, n_seeds=config.n_seeds, legend=legend))
    return initial, trained


def compare(runner: EvalRunner, seeds: Sequence[int], *several: Any) -> list[Scores]:
    """The scores of several agents, whose parameters [S, ...] are `several`, in one compilation."""

    def play_report(keys: jax.Array, params: Any, levels: Level) -> EvalResult:
        return mapped(runner.play, axis_name=axes.SEED)(keys, params, levels)

    # All agents get the same keys and levels. Only their parameters differ.
    keys = evaluation_keys(seeds)
    levels, play = runner.draw(keys), jax.jit(play_report, compiler_options=RUN_ONCE)
    return [task_scores(runner.names, seeds, play(keys, params, levels)) for params in several]


def draw_episodes(
    runner: EvalRunner, params: Any, path: Path, n_episodes: int = 1, n_seeds: int = 1, legend: str = ""
) -> str:
    """Draws one agent's first episodes on every held-out task, `SIDE_BY_SIDE`. Returns a line: where, or why not.

    There are at most as many episodes of a task as `runner` plays. `n_seeds`: see `record_episodes`.
    """
    env = runner.held_out.env
    if env.draw_episodes is None:
        return f"no picture: {type(env).__name__} has no method to draw its episodes"
    n_episodes = min(n_episodes, runner.n_episodes)
    recording = jax.device_get(record_episodes(runner, n_episodes, params, n_seeds))
    n_rows = len(runner.names) * n_episodes
    captions = [caption(runner.names[row // n_episodes], recording.stats, row, env) for row in range(n_rows)]
    picture = env.draw_episodes(recording.states, recording.running, captions, columns=min(SIDE_BY_SIDE, n_rows))
    picture = shrunk(titled(picture, legend) if legend else picture, WIDEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path):
        Image.fromarray(picture).save(path)
    return f"the agent on a few levels: {path}"


def caption(task: str, stats: Played, row: Any, env: Any) -> str:
    """How one episode ended. Where all agents are counted, the progress is the share of them that solved it."""
    solved, length = stats.progress[row] >= 1, stats.lengths[row]
    if env.multi_agent and env.counted == "all":
        return f"{task}: {stats.progress[row]:.0%} of {env.n_agents} agents solved it in {length} steps"
    return f"{task}: " + (f"solved in {length} steps" if solved else f"not solved in {length} steps")


def record_episodes(runner: EvalRunner, n_episodes: int, params: Any, n_seeds: int = 1) -> Recording:
    """The first `n_episodes` episodes of each held-out task. Row m * n_episodes + e is episode e on task m.

    `n_seeds`: of the evaluations that `runner` has made. The program that drew their levels draws these too.
    """
    key = jax.random.key(PICTURE_SEED)
    drawn = runner.draw(jnp.stack([key] * n_seeds))

    def record_picture(params: Any, drawn: Level) -> Recording:
        levels = jax.tree.map(lambda x: runner.by_task(x[0])[:, :n_episodes].reshape(-1, *x.shape[2:]), drawn)
        return runner.record(jax.random.split(key)[1], params, levels)

    return jax.jit(record_picture, compiler_options=LEAST_EFFORT)(params, drawn)
