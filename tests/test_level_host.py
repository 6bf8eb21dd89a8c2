"""PLR and ACCEL over levels outside of compiled training: they do what they do inside."""

import dataclasses
import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY
from minimax_lib.curricula.levels.accel import ACCELSettings
from minimax_lib.curricula.levels.dr import RandomLevels
from minimax_lib.curricula.levels.episode_replay import EpisodePLR
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.levels.sfl import SFLSettings
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.pendulum import Pendulum
from minimax_lib.playing.rollout import rollout
from minimax_lib.portable import level_programs
from minimax_lib.portable.host_state import flat
from minimax_lib.portable.levels import LevelHost
from minimax_lib.trees import zeros
from tests.still_agent import Still

MAZE = AMaze(height=2, width=3, n_walls=1, max_steps=8)
SETTINGS = ACCELSettings(capacity=12, min_fill=0.25, generator=RandomLevels(), n_edits=2)
N_ROWS, N_STEPS = 4, 16
host = functools.partial(LevelHost, SETTINGS, MAZE, N_ROWS, gamma=0.9)


def told(seed, n_rows=N_ROWS, n_steps=N_STEPS):
    """What a trainer might report."""
    rng = np.random.default_rng(seed)
    shape = (n_steps, n_rows)
    done = rng.random(shape) < 0.3
    return rng.random(shape) * done, rng.normal(size=shape), done, rng.normal(size=n_rows)


def same(x, y):
    assert x.keys() == y.keys()
    for name in x:
        np.testing.assert_array_equal(x[name], y[name], err_msg=name)


@pytest.mark.deep
def test_it_is_the_curriculum_of_the_compiled_training():
    agent = AgentPop(Still(MAZE.action_space, gamma=0.9))
    curriculum = SETTINGS.build(MAZE, agent, N_ROWS)
    batch_env = BatchEnv(MAZE)

    @jax.jit
    def play(key, params, batch):
        runs = rollout(key, batch_env, agent, params, batch.levels, N_STEPS)
        return runs.replace(final=None)

    @jax.jit
    def observe(key, clock, state, batch, params, runs):
        return curriculum.observe(key, clock, state, batch, RolloutOutcome(agent, params, runs))

    ours = host(seed=3)
    k_init, k_steps = jax.random.split(jax.random.key(3))
    state, sources = level_programs.begin(curriculum, k_init), set()
    obs = zeros(jax.eval_shape(lambda key: MAZE.reset(key, MAZE.sample_level(key))[1].obs, k_init))
    params = jax.jit(agent.init)(jax.random.key(0), obs).params
    for clock in range(12):
        proposal = ours.propose()
        state, batch = level_programs.propose(curriculum, k_steps, np.int32(clock), state)
        same(flat("", proposal.levels), flat("", batch.levels))
        assert (proposal.train == bool(batch.train)).all()
        assert bool(batch.train) == (proposal.source == REPLAY).all()  # robust
        sources |= set(proposal.source.tolist())
        runs = play(jax.random.key(100 + clock), params, batch)
        k_observe = jax.random.split(jax.random.fold_in(k_steps, clock), 3)[2]
        state, theirs = observe(k_observe, jnp.int32(clock), state, batch, params, runs)
        steps = jax.tree.map(lambda x: np.asarray(x[:, 0]), (runs.steps.reward, runs.steps.value, runs.steps.done))
        report = ours.report(*steps, runs.last_value[0])
        saved = {name: x for name, x in ours.state_dict().items() if name.startswith("state")}
        for name, x in flat("state", state).items():
            np.testing.assert_allclose(saved[name], x, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(report["batch/score"], theirs["batch/score"], rtol=1e-6)
    assert sources == {NEW, REPLAY, MUTATION}


def test_the_same_seed_gives_the_same_levels_also_after_saving(tmp_path):
    one, other = host(seed=1), host(seed=2)
    apart = False
    for i in range(9):
        levels = one.propose().levels
        apart |= (levels.wall_map != other.propose().levels.wall_map).any()
        if i == 4:  # levels are out, and nothing is reported of them
            np.savez(tmp_path / "levels.npz", **one.state_dict())
            again = host(seed=1)
            again.load_state_dict(np.load(tmp_path / "levels.npz"))
        elif i > 4:
            same(flat("", again.propose().levels), flat("", levels))
        for each in (one, other) if i < 4 else (one, other, again):
            each.report(*told(i))
    same(one.state_dict(), again.state_dict())
    assert again.n_reported == 9
    assert apart


def test_steps_that_only_open_an_episode_change_nothing():
    plain, padded = host(), host()
    for i in range(3):
        reward, value, done, last_value = told(i, n_steps=8)
        # A row of the longer rollout has a step without meaning behind each end, and some more at the end.
        columns = [np.full((N_STEPS, N_ROWS), x) for x in (7.0, 7.0, True, False)]
        for row in range(N_ROWS):
            place = 0
            for t in range(8):
                for column, x in zip(columns, (reward, value, done, True), strict=True):
                    column[place, row] = x if column is columns[3] else x[t, row]
                place += 1 + done[t, row]
        for each, given in ((plain, (reward, value, done)), (padded, columns[:3])):
            each.propose()
            each.report(*given, last_value, **({} if each is plain else {"counts": columns[3].astype(bool)}))
    same(plain.state_dict(), padded.state_dict())
    assert np.isfinite(plain.state_dict()["state.inner.buffer.scores"]).any()


def test_the_score_of_a_level_is_that_of_its_finished_episodes():
    # One row: an episode of two steps that ends with 1, then one that is cut. TD errors, worked by hand.
    x = level_programs.Told(
        reward=np.float32([[0], [1], [0]]),
        value=np.float32([[0.5], [0.25], [3]]),
        done=np.array([[False], [True], [False]]),
        last_value=np.float32([2]),
    )

    @jax.jit
    def told(x):
        runs = level_programs.rollout_of(x)
        return runs.advantages(0.5, 0.0)[0], runs.steps.episode_return, runs.steps.progress

    advantages, returns, progress = told(x)
    np.testing.assert_allclose(advantages[:, 0, 0], [0.5 * 0.25 - 0.5, 1 - 0.25, 0.5 * 2 - 3])
    np.testing.assert_allclose(returns[:, 0, 0], [0, 1, 0])
    np.testing.assert_allclose(progress[:, 0, 0], [0, 1, 0])


@pytest.mark.deep
def test_replayed_and_new_levels_side_by_side_say_which_rows_to_learn_from():
    parallel = LevelHost(PLRSettings(capacity=8, parallel=True, score="l1_value_loss"), MAZE, N_ROWS)
    assert parallel.n_rows == 2 * N_ROWS
    proposals = []
    for i in range(4):
        proposals.append(parallel.propose())
        parallel.report(*told(i, n_rows=2 * N_ROWS))
    assert not proposals[0].train.any()  # the buffer is empty
    assert proposals[-1].train.tolist() == [True] * N_ROWS + [False] * N_ROWS
    assert (proposals[-1].source[:N_ROWS] == REPLAY).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SFLSettings(), "plays with the student"),
        (EpisodePLR(), "changes levels within a rollout"),
        (PLRSettings(score="policy_entropy"), "'policy_entropy', which reads more than .* choose from l1_value_loss"),
        (PLRSettings(score="learnability"), "'learnability', which reads more"),
        (PLRSettings(score="relative_regret"), "compares students"),
    ],
)
def test_what_needs_more_than_rollouts_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LevelHost(settings, MAZE, N_ROWS)
    with pytest.raises(ValueError, match=r"^a score needs the method optimal_return, and Pendulum has none: write it"):
        LevelHost(PLRSettings(score="exact_regret"), Pendulum(), N_ROWS)


def test_the_exact_regret_is_that_of_the_levels_of_the_environment():
    """Nobody gets any reward: the regret is the best return that there is."""
    ours = LevelHost(PLRSettings(capacity=8, score="exact_regret", unique=False), MAZE, N_ROWS, gamma=0.9)
    levels = ours.propose().levels
    nothing = np.zeros((N_STEPS, N_ROWS))
    ours.report(nothing, nothing, nothing == 0, nothing[0])
    best = jax.vmap(lambda level: MAZE.optimal_return(level, 0.9))(levels)
    assert (best > 0).any()
    np.testing.assert_allclose(ours._state.buffer.scores[:N_ROWS], best, rtol=1e-6)


def test_mistakes_are_named_in_one_line():
    ours = host()
    with pytest.raises(ValueError, match="call propose before it"):
        ours.report(*told(0))
    ours.propose()
    with pytest.raises(ValueError, match="call report after each rollout"):
        ours.propose()
    reward, value, done, last_value = told(0)
    with pytest.raises(ValueError, match=r"value is \[16, 3\]: it must be \[16, 4\]"):
        ours.report(reward, value[:, :3], done, last_value)
    with pytest.raises(ValueError, match=r"last_value is \[16, 4\]: it must be \[4\]"):
        ours.report(reward, value, done, value)
    others = LevelHost(dataclasses.replace(SETTINGS, n_edits=3), MAZE, N_ROWS)
    with pytest.raises(ValueError, match="n_edits=2, and this Host has curriculum"):
        others.load_state_dict(ours.state_dict())
    with pytest.raises(ValueError, match=r"done is \[0, 4\]: a rollout has at least one step"):
        ours.report(reward[:0], value[:0], done[:0], last_value)
    for wrong, message in (
        ({"gamma": 1.5}, r"gamma is 1\.5: it must be a finite number from 0 to 1"),
        ({"gamma": "high"}, "gamma is 'high': it must be numbers"),
        ({"seed": "first"}, "seed is 'first': it must be a whole number from 0 to 4294967295"),
    ):
        with pytest.raises(ValueError, match=message):
            host(**wrong)
    for given, message in (
        (("plr", MAZE, N_ROWS), "curriculum is 'plr': it must be the settings of one over levels"),
        ((PLRSettings, MAZE, N_ROWS), "curriculum is <class .*PLRSettings'>: it must be the settings"),
        ((SETTINGS, "AMaze", N_ROWS), "env is 'AMaze': it must be an environment"),
        ((SETTINGS, MAZE, 2.5), "n_rows is 2.5: it must be a whole number, at least 1"),
        ((SETTINGS, MAZE, [4]), r"n_rows is \[4\]: it must be a whole number"),
        ((SETTINGS, MAZE, 0), "n_rows is 0: it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            LevelHost(*given)


def test_the_real_minigrid_plays_our_levels():
    pytest.importorskip("minigrid")
    from grid_twin import GridTwin, played, soups

    from minimax_lib.envs.grid import GridWorld
    from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
    from minimax_lib.envs.grid.real_minigrid import RealMiniGrid

    real = RealMiniGrid(GridWorld(EmptyRoom(6, 7), view_size=5), row=2)
    with pytest.raises(ValueError, match="reset without a level"):
        real.reset()
    ends = 0
    for i, level in enumerate(soups(21, 6, 7, seed=0)):
        stacked = jax.tree.map(lambda x: np.stack([np.zeros_like(x)] * 2 + [x]), level)
        obs, _ = real.reset(options={"levels": stacked} if i % 2 else {"level": level})
        assert real.observation_space.contains(obs), obs["mission"]
        ours, theirs = (played(env, 60, i, Counter()) for env in (real, GridTwin(level, 5, False)))
        same(ours._asdict(), theirs._asdict())
        ends += ours.terminated.sum()
    assert ends > 20
    with pytest.raises(ValueError, match=r"the level is \[5, 7\]: it must be \[6, 7\]"):
        real.reset(options={"level": level.replace(grid=level.grid[:5])})
    with pytest.raises(ValueError, match="option of reset"):
        real.reset(options={"lvl": level})


@pytest.mark.parametrize("see_through_walls", [pytest.param(True, marks=pytest.mark.deep), False])
def test_the_real_minigrid_plays_our_mazes(see_through_walls):
    pytest.importorskip("minigrid")
    from minimax_lib.envs.maze.real_minigrid import RealMaze

    env = AMaze(height=4, width=6, n_walls=8, view_size=5, max_steps=40, see_through_walls=see_through_walls)
    actions = np.random.default_rng(0).choice(7, p=[0.2, 0.2, 0.52, 0.02, 0.02, 0.02, 0.02], size=(20, env.max_steps))

    @jax.jit
    def drawn(key):
        return jax.vmap(env.sample_level)(jax.random.split(key, 20))

    @jax.jit
    @jax.vmap
    def play(level, actions):
        state, first = env.reset(jax.random.key(0), level)
        return first, jax.lax.scan(lambda s, a: env.step(jax.random.key(0), s, a), state, actions)[1]

    levels = jax.device_get(drawn(jax.random.key(0)))
    first, steps = jax.device_get(play(levels, actions.astype(np.int32)))
    real = RealMaze(env, row=2)
    with pytest.raises(ValueError, match="reset without a level"):
        real.reset()
    n_solved = 0
    for i, moves in enumerate(actions):
        level = jax.tree.map(lambda x, i=i: np.asarray(x)[i], levels)
        stacked = jax.tree.map(lambda x: np.stack([np.zeros_like(x)] * 2 + [x]), level)
        obs, _ = real.reset(options={"levels": stacked} if i % 2 else {"level": level})
        assert real.observation_space.contains(obs)
        np.testing.assert_array_equal(obs["image"].transpose(1, 0, 2), first.obs["image"][i])
        for t, action in enumerate(moves):
            obs, reward, terminated, truncated, _ = real.step(int(action))
            np.testing.assert_array_equal(obs["image"].transpose(1, 0, 2), steps.obs["image"][i, t])
            assert obs["direction"] == steps.obs["direction"][i, t]
            assert (terminated, truncated) == (steps.terminated[i, t], steps.truncated[i, t])
            assert reward == pytest.approx(steps.reward[i, t], abs=1e-6)
            n_solved += terminated
            if terminated or truncated:
                break
    assert n_solved > 2
    again, _ = real.reset()  # an automatic reset keeps the level
    np.testing.assert_array_equal(again["image"].transpose(1, 0, 2), first.obs["image"][-1])
    with pytest.raises(ValueError, match=r"the level is \[3, 6\]: it must be \[4, 6\]"):
        real.reset(options={"level": level.replace(wall_map=level.wall_map[:3])})
