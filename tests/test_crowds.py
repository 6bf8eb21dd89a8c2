"""Worlds in which one player has all seats: lives by arithmetic, what is kept of them, pictures, and runs."""

import dataclasses
import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from doc_blocks import run_blocks
from test_many_agents import CROWD, N_TASKS, G, lives_of
from test_nmmo_family import Bare
from tiny_run import save_tiny_run

import minimax_lib
from minimax_lib import load_run
from minimax_lib.commands import play as play_command
from minimax_lib.commands.play import screen, walked, watched
from minimax_lib.config.play import parse
from minimax_lib.envs.nmmo.render import CELL, COLOURS, FOLLOWED, draw_level
from minimax_lib.envs.nmmo.tables import FOLIAGE, GRASS, MATERIALS, WATER
from minimax_lib.envs.nmmo.text import GROUNDS, SIGNS
from minimax_lib.evaluation.agent_tables import kinds_table, points
from minimax_lib.evaluation.held_out import EvalResult, Evaluation
from minimax_lib.evaluation.report import caption
from minimax_lib.evaluation.tables import pooled, task_scores, task_table
from minimax_lib.pictures import films
from minimax_lib.pictures.population import population
from minimax_lib.playing import crowds
from minimax_lib.store.parameters import about_params, save_params
from minimax_lib.testing.envs import check_multi_agent
from tests.still_agent import still_agent

KEY = jax.random.key(1)


@functools.cache
def worlds() -> list[crowds.CrowdEpisode]:
    """Two worlds of agents whose lives are known."""
    agent = still_agent(CROWD).agent
    params = agent.init(KEY, None).params
    levels = jax.vmap(CROWD.sample_level)(jax.random.split(KEY, 2))
    return crowds.played(crowds.trained(CROWD, agent), KEY, params, levels)


def test_lives_are_those_of_the_levels():
    for world in worlds():
        tasks, lives = np.asarray(world.level[1:]), lives_of(world.level)
        np.testing.assert_array_equal(world.lifetimes, lives)
        np.testing.assert_array_equal(world.facts["lifetime"], lives)
        np.testing.assert_array_equal(world.returns, tasks * lives)
        assert world.length == lives.max()
        assert world.solved == (tasks % 2 == 0).mean()
        assert world.shares == {"lifetime": pytest.approx(lives.mean())}
        np.testing.assert_array_equal(world.population, [(lives >= t).sum() for t in range(world.length + 1)])
        assert jax.tree.leaves(world.actions)[0].shape == (world.length, G)
        assert jax.tree.leaves(world.states)[0].shape[0] == world.length + 1
        assert repr(world).startswith(f"CrowdEpisode({world.solved:.0%} of {G} agents solved it in {world.length} st")


@pytest.mark.parametrize("counted", ["all", "best", 2])
def test_the_environment_says_whose_lives_an_evaluation_counts(counted):
    env = dataclasses.replace(CROWD, n_agents=3, counted=counted)
    agent = still_agent(env).agent
    params = agent.init(KEY, None).params
    runner = Evaluation(tasks=("TrainingDistribution",), n_episodes=5).build(env, agent)
    levels = runner._levels(KEY)
    steps = np.minimum(np.asarray(levels)[:, :1] + np.arange(3) % 4, env.max_steps)
    returns, solved = np.asarray(levels)[:, 1:] * steps, np.asarray(levels)[:, 1:] % 2 == 0
    of = {"all": lambda x: x.mean(axis=1), "best": lambda x: x.max(axis=1), 2: lambda x: x[:, 2]}[counted]
    result, recorded = jax.device_get(
        jax.jit(lambda: (runner.play(KEY, params, levels), runner.record(KEY, params, levels)))()
    )
    for found in (result.returns[0], recorded.stats.returns):
        np.testing.assert_allclose(found, of(returns), rtol=1e-6)
    for found in (result.solved[0], recorded.stats.progress):
        np.testing.assert_allclose(found, of(solved), rtol=1e-6)
    np.testing.assert_array_equal(result.lengths[0], steps.max(axis=1))
    assert caption("Old", recorded.stats, 0, env).startswith(
        "Old: " if counted == "all" else ("Old: solved", "Old: not")
    )


@pytest.mark.parametrize("counted", [3, -1, True, "first", 1.0, None])
def test_whose_lives_count_must_be_clear(counted):
    env = dataclasses.replace(CROWD, n_agents=3, counted=counted)
    said = rf"^Crowd.counted is {re.escape(repr(counted))}: it must be 'all', 'best' or the number of an agent, 0 to 2$"
    with pytest.raises(ValueError, match=said):
        Evaluation().build(env, still_agent(CROWD).agent)
    with pytest.raises(AssertionError, match=said):
        check_multi_agent(env, KEY)


def test_chance_and_rules_play_too():
    levels = jax.vmap(CROWD.sample_level)(jax.random.split(KEY, 3))
    lives = jax.device_get(jax.jit(crowds.by_chance(CROWD).lives)(KEY, (), levels))
    np.testing.assert_array_equal(lives.lengths, [lives_of(level) for level in levels])
    with pytest.raises(ValueError, match=r"^Crowd has no written player \(a method bot\)$"):
        crowds.by_rule(CROWD)


def test_nobody_is_followed_where_there_is_no_view():
    with pytest.raises(ValueError, match=r"^Crowd does not say whose view it shows$"):
        worlds()[0].following(0)
    with pytest.raises(ValueError, match=rf"^agent is {G}: it must be between 0 and {G - 1}$"):
        worlds()[0].following(G)
    with pytest.raises(ValueError, match=r"^no picture: Crowd has no method to draw its episodes$"):
        worlds()[0].picture()


def test_the_population_chart():
    chart = population({"still": worlds()})
    longest = max(world.length for world in worlds())
    assert [row["tick"] for row in chart.rows] == list(range(longest + 1))
    assert chart.rows[0] == {"label": "still", "n_worlds": 2, "tick": 0, "alive": 1.0}
    assert chart.image().startswith(b"\x89PNG")


@dataclasses.dataclass(frozen=True)
class Meadow(Bare):
    """Grass with a pond and a bush, inside a border of void."""

    def sample_level(self, key):
        level, first = Bare.sample_level(self, key), self.square.border
        inside = slice(first, first + self.centre + 1)
        terrain = level.terrain.at[inside, inside].set(GRASS)
        return level.replace(terrain=terrain.at[first + 1, first + 1].set(WATER).at[first + 2, first + 2].set(FOLIAGE))


MEADOW = Meadow(preset="mini", n_players=3, max_steps=3)


@functools.cache
def moment():
    """A world as it opens, and the picture of it."""
    state = jax.device_get(jax.jit(MEADOW.reset)(KEY, MEADOW.sample_level(KEY))[0])
    return state, jax.device_get(jax.jit(MEADOW.slim)(state)).replace(followed=np.int32(2))


def test_pictures_show_what_stands_where():
    state, now = moment()
    first = MEADOW.square.border
    side = (MEADOW.centre + 1) * CELL
    picture = MEADOW.draw_state(now)
    level = draw_level(state.level)
    assert level.shape == (side, side, 3)
    assert level[CELL + 1, CELL + 1].tolist() == COLOURS[WATER].tolist()
    assert level[2 * CELL + 1, 2 * CELL + 1].tolist() == COLOURS[FOLIAGE].tolist()
    row, column = now.position[2] - first
    top = (picture.shape[0] - side) // 2
    assert tuple(picture[top + row * CELL + CELL // 2, column * CELL + CELL // 2]) == FOLLOWED
    states = jax.tree.map(lambda x: np.asarray(x)[None, None], (state, now))
    drawn = [MEADOW.draw_episodes(x, np.ones((1, 1), bool), ["open"], 1) for x in states]
    assert drawn[0].shape == drawn[1].shape


def test_text_shows_what_stands_where():
    assert len(SIGNS) == len(GROUNDS) == len(MATERIALS) == len(COLOURS)
    _, now = moment()
    scene = MEADOW.scene(now)
    assert len(scene.whole) == len(scene.whole[0]) == MEADOW.centre + 1
    assert [row[i].plain for i, row in enumerate(scene.whole[:3])][1:] == ["~ ", "% "]
    row, column = scene.place
    assert scene.whole[row][column].plain == "@ "
    assert scene.view[7][7].plain == "@ "
    assert sum(cell.plain == "p " for line in scene.whole for cell in line) == 2
    assert scene.task == "player 2, task TickGE_3 0%, health 100, food 100, water 100; 3 alive"


def test_results_by_task_are_those_of_the_lives():
    agent = still_agent(CROWD).agent
    params = agent.init(KEY, None).params
    runner = Evaluation(tasks=("TrainingDistribution",), n_episodes=3).build(CROWD, agent)
    levels = runner._levels(KEY)
    result = jax.device_get(jax.jit(lambda: runner.play(KEY, params, levels))())
    scores = task_scores(runner.names, [0], jax.tree.map(lambda x: x[None], result))
    tasks = np.asarray(levels)[:, 1:]
    lives = np.stack([lives_of(level) for level in np.asarray(levels)])
    assert scores.of_agents.tasks == tuple(f"TrainingDistribution/{task}" for task in range(N_TASKS))
    for task in range(N_TASKS):
        found = {name: x[0, task] for name, x in scores.of_agents.measures.items()}
        mean = lives[tasks == task].mean()
        assert found["lives"] == (tasks == task).sum()
        assert found["solved_rate"] == found["progress"] == (task % 2 == 0)
        assert found["length"] == found["facts/lifetime"] == pytest.approx(mean)
        assert found["return"] == pytest.approx(task * mean)
    assert scores["progress"][0, 0] == pytest.approx((tasks % 2 == 0).mean())
    assert scores["lives"][0, 0] == tasks.size
    # Even tasks are solved by all, odd ones by nobody: two kinds share 100 points.
    kinds = {task: CROWD.task_kind(int(task.split("/")[1])) for task in scores.of_agents.tasks}
    assert {kind: x.tolist() for kind, x in points(kinds, scores.of_agents).items()} == {"even": [50.0], "odd": [0.0]}
    shown = [list(column.cells) for column in kinds_table(kinds, scores.of_agents, ("even", "odd")).columns]
    assert shown[0] == ["even", "odd", "all"]
    assert shown[-1] == ["50.0", "0.0", "50.0"]
    # Without a life on a task of the third kind, nobody knows the sum.
    table = kinds_table(kinds, scores.of_agents, ("even", "odd", "prime"))
    assert list(table.columns[-1].cells) == ["33.3", "0.0", "-"]
    assert "no life had a task of the kind prime" in table.caption
    assert len(list(scores.rows())) == 1 + N_TASKS
    both = pooled(
        [scores, dataclasses.replace(scores, seeds=(1,), of_agents=scores.of_agents.on(scores.of_agents.tasks[1:]))]
    )
    assert both.of_agents.tasks == scores.of_agents.tasks[1:]


def test_nobody_walks_alone_among_many():
    with pytest.raises(ValueError, match=r"^nobody walks alone in NMMO: --run shows a trained agent in all its seats$"):
        walked(parse(["--env", "NMMO"]))


def test_tables_say_how_long_agents_live():
    ones = np.ones((1, 1, 2), np.float32)
    result = EvalResult(ones, ones / 4, ones, {"lifetime": 40 * ones})
    table = task_table("title", task_scores(["HeldOutMaps"], [0], result))
    assert [column.header for column in table.columns][-2:] == ["return", "ticks\nof a life"]
    assert list(table.columns[-1].cells)[-1] == "40.000"


@pytest.mark.deep
def test_the_python_of_the_page_runs(tmp_path):
    page = Path(__file__).parents[1] / "docs" / "nmmo.md"
    assert run_blocks(page, tmp_path)["world"].lifetimes.mean() > 128  # twice as long as by chance
    assert (tmp_path / "agent3.gif").exists()


@pytest.mark.deep
def test_a_run_is_loaded_played_watched_drawn_and_evaluated(tmp_path, capsys, monkeypatch):
    from minimax_lib.commands import draw, evaluate

    env = {"name": "NMMO", "preset": "mini_npc", "n_players": 4, "max_steps": 16, "health_reward": 1.0}
    config, _ = save_tiny_run(tmp_path / "run", env=env, model={"name": "nmmo", "size": "tiny", "memory": "lstm"})
    loaded = load_run(tmp_path / "run")
    world, again = loaded.play(key=KEY), loaded.play(key=KEY)
    assert repr(world) == repr(again)
    assert world.picture().ndim == 3
    assert len(films.film([world])) == world.length + 1
    assert {"meals", "lifetime", "died_of_thirst"} <= set(world.shares)

    # The actions that were kept lead to the same world again.
    k_level, k_play = jax.random.split(KEY)
    level = config.env.sample_level(k_level)
    k_reset, k_ticks = jax.random.split(jax.random.split(k_play, 1)[0])
    state, _ = jax.jit(config.env.reset)(k_reset, level)
    step, slim = jax.jit(config.env.step), jax.jit(config.env.slim)
    for time in range(world.length):
        key = jax.random.split(jax.random.fold_in(k_ticks, time), 5)[4]
        state, _ = step(key, state, jax.tree.map(lambda x, time=time: jnp.asarray(x[time]), world.actions))
        same = jax.tree.map(lambda x, y, t=time: np.array_equal(x, y[t + 1]), slim(state), world.following(0).states)
        assert jax.tree.all(same)

    # So does the file, whose world is the same in all that it has.
    path = minimax_lib.save_replay(world, tmp_path / "game.npz")
    replayed = minimax_lib.load_replay(path)
    assert repr(replayed) == repr(world)
    assert replayed.env == world.env
    for one, other in zip(*(jax.tree.leaves(vars(each) | {"env": ()}) for each in (world, replayed)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(films.film([replayed])) == replayed.length + 1
    with pytest.raises(ValueError, match=r"game.npz exists: no file is overwritten"):
        minimax_lib.save_replay(world, path)
    params = minimax_lib.load_params(path)
    params["actions"]["move"] = params["actions"]["move"][:-1]
    save_params(tmp_path / "short.npz", params, about_params(path))
    with pytest.raises(ValueError, match=r"short.npz is no replay: its level, its key and its"):
        minimax_lib.load_replay(tmp_path / "short.npz")

    tasks = loaded.play_tasks(["HeldOutMaps", "ValidationMaps"])
    assert list(tasks) == ["HeldOutMaps", "ValidationMaps"]
    game = watched(parse(["--run", str(tmp_path / "run"), "--task", "HeldOutMaps"]))()
    followed = game.episode.followed
    game.press("f")
    assert game.episode.followed == (followed + 1) % 4
    assert "f: follow another agent" in screen(game, 200, 40, colours=False)
    assert play_command.check_playable(config.env) is None
    assert evaluate.main(["--run", str(tmp_path / "run"), "--tasks", "HeldOutMaps", "--n-episodes", "2"]) == 0
    assert "HeldOutMaps" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert draw.main([str(tmp_path / "run"), "--what", "episodes", "--format", "gif"]) == 0
