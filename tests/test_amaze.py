"""AMaze against the real MiniGrid, its random levels, and its settings."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minigrid_twin import MiniGridTwin
from scipy import stats

from minimax_lib.envs.maze import AMaze, Level
from minimax_lib.envs.maze.view import walls_ahead

ACTION_SHARES = [0.2, 0.2, 0.45, 0.05, 0.05, 0.03, 0.02]


def deep(*cases):
    """Cases of a test that are not for everybody."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.deep) for case in cases]


def row(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


@functools.cache
def sample(env, n, seed=0):
    """n levels as numpy arrays."""
    draw = jax.jit(lambda key: jax.vmap(env.sample_level)(jax.random.split(key, n)))
    return jax.tree.map(np.asarray, draw(jax.random.key(seed)))


def hand_level(rows, agent, agent_dir, goal):
    """A level from ASCII rows, '#' wall."""
    return Level(
        wall_map=np.array([[cell == "#" for cell in line] for line in rows]),
        agent_pos=np.array(agent, np.int32),
        agent_dir=np.int32(agent_dir),
        goal_pos=np.array(goal, np.int32),
    )


def play(env, levels, actions):
    """(first, steps): time steps [n, ...] and [n, T, ...] as numpy arrays, without restarts."""
    return jax.tree.map(np.asarray, played(env, levels, np.asarray(actions, np.int32)))


@functools.partial(jax.jit, static_argnums=0)
def played(env, levels, actions):
    def one(level, actions):
        state, first = env.reset(jax.random.key(0), level)

        def step(state, action):
            return env.step(jax.random.key(0), state, action)

        return first, jax.lax.scan(step, state, actions)[1]

    return jax.vmap(one)(levels, actions)


TINY = AMaze(height=2, width=3, n_walls=0, max_steps=10, obs_agent_pos=True)


def hand_played(level, actions):
    """The time steps of one level of `TINY`, up to its ten steps."""
    actions = [*actions, *[6] * (TINY.max_steps - len(actions))]
    return row(play(TINY, jax.tree.map(lambda x: np.asarray(x)[None], level), [actions])[1], 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"height": 5, "width": 9, "n_walls": 14, "view_size": 7, "max_steps": 70, "see_through_walls": False},
        *deep(
            {"height": 8, "width": 3, "n_walls": 6, "view_size": 3, "max_steps": 60},
            {},
            {"see_through_walls": False},
            {"height": 4, "width": 12, "n_walls": 9, "view_size": 9, "max_steps": 60, "see_through_walls": False},
            {"height": 17, "width": 11, "n_walls": 60, "view_size": 11, "max_steps": 90},
            {"height": 1, "width": 6, "n_walls": 1, "view_size": 5, "max_steps": 40, "see_through_walls": False},
        ),
    ],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()) or "default",
)
def test_lockstep_with_the_real_minigrid(settings):
    env = AMaze(**settings)
    n_levels = 24
    levels = sample(env, n_levels, seed=1)
    actions = np.random.default_rng(2).choice(7, p=ACTION_SHARES, size=(n_levels, env.max_steps))
    first, steps = play(env, levels, actions)
    for i in range(n_levels):
        twin = MiniGridTwin(env, row(levels, i))
        obs, _ = twin.reset()
        np.testing.assert_array_equal(obs["image"].transpose(1, 0, 2), first.obs["image"][i])
        for t, action in enumerate(actions[i]):
            obs, reward, terminated, truncated, _ = twin.step(int(action))
            np.testing.assert_array_equal(obs["image"].transpose(1, 0, 2), steps.obs["image"][i, t], f"{i}, {t}")
            assert obs["direction"] == steps.obs["direction"][i, t]
            assert (terminated, truncated) == (steps.terminated[i, t], steps.truncated[i, t])
            assert reward == pytest.approx(steps.reward[i, t], abs=1e-6)
            if terminated or truncated:
                break


def test_a_worked_episode():
    level = hand_level(["..#", "..."], agent=[0, 0], agent_dir=0, goal=[2, 1])
    steps = hand_played(level, [2, 2, 1, 2, 0, 2])
    assert steps.obs["agent_pos"][:6].tolist() == [[1, 0], [1, 0], [1, 0], [1, 1], [1, 1], [2, 1]]
    assert steps.obs["direction"][:6].tolist() == [0, 0, 1, 1, 0, 0]
    assert steps.terminated[:6].tolist() == [False] * 5 + [True]
    np.testing.assert_allclose(steps.reward[:6], [0, 0, 0, 0, 0, 1 - 0.9 * 6 / 10], rtol=1e-6)


def test_goal_reached_on_the_last_step_is_both_terminated_and_truncated():
    level = hand_level(["..#", "###"], agent=[0, 0], agent_dir=0, goal=[1, 0])
    steps = hand_played(level, [6] * 9 + [2])
    assert not steps.truncated[:9].any()
    assert steps.terminated[9]
    assert steps.truncated[9]
    assert steps.reward[9] == pytest.approx(0.1)


def test_standing_on_the_goal_pays_once():
    level = hand_level(["..#", "###"], agent=[0, 0], agent_dir=0, goal=[1, 0])
    steps = hand_played(level, [2, 2, 6, 0])
    assert steps.terminated.tolist() == [True] + [False] * 9
    assert (steps.reward[1:] == 0).all()


def test_the_agent_in_its_own_cell():
    level = hand_level(["..."], agent=[1, 0], agent_dir=2, goal=[0, 0])
    env = AMaze(height=1, width=3, n_walls=0)
    for see_agent, cell in ((False, [1, 0, 0]), (True, [10, 0, 2])):
        env = dataclasses.replace(env, see_agent=see_agent)
        _, ts = jax.jit(env.reset)(jax.random.key(0), level)
        assert ts.obs["image"][4, 2].tolist() == cell
        assert ts.obs["image"][3, 2].tolist() == [8, 1, 0]
        assert ts.obs["image"][4, 1].tolist() == [2, 5, 0]


@pytest.mark.parametrize(("shape", "view_size"), [((3, 50), 5), *deep(((45, 41), 7), ((30, 2), 15), ((40, 34), 31))])
def test_walls_are_seen_from_every_cell_of_grids_wider_than_a_word(shape, view_size):
    wall_map = np.random.default_rng(0).random(shape) < 0.4
    beyond = np.pad(wall_map, view_size, constant_values=True)
    rows, columns, facings = (x.reshape(-1) for x in np.indices((*shape, 4)))
    zero = np.zeros(2, np.int32)
    level = Level(wall_map=wall_map, agent_pos=zero, agent_dir=zero[0], goal_pos=zero)
    look = jax.jit(jax.vmap(lambda level, pos, facing: walls_ahead(level, pos, facing, view_size), (None, 0, 0)))
    seen = np.asarray(look(level, np.stack([columns, rows], axis=-1), facings))
    side, ahead = view_size // 2, view_size - 1
    for y, x, facing, image in zip(rows + view_size, columns + view_size, facings, seen, strict=True):
        square = [  # ahead of the agent, as the grid shows it, and turned until it looks up
            beyond[y - side : y + side + 1, x : x + ahead + 1],
            beyond[y : y + ahead + 1, x - side : x + side + 1],
            beyond[y - side : y + side + 1, x - ahead : x + 1],
            beyond[y - ahead : y + 1, x - side : x + side + 1],
        ][facing]
        np.testing.assert_array_equal(image, np.rot90(square, k=facing + 1))


def test_a_restart_moves_no_map():
    env = AMaze(height=3, width=4, n_walls=2)

    def kept(key):
        level = env.sample_level(key)
        state, _ = env.reset(key, level)
        assert state.level is level
        assert env.get_level(env.step(key, state, jnp.int32(0))[0]) is level

    jax.eval_shape(kept, jax.random.key(0))


@pytest.mark.deep
def test_one_compilation_serves_all_states():
    env = AMaze(height=3, width=4, n_walls=2)
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset)(jax.random.key(0), jax.jit(env.sample_level)(jax.random.key(0)))
    for action in range(7):
        state, _ = step(jax.random.key(1), state, np.int32(action))
    assert step._cache_size() == 1


# --- random levels


@pytest.mark.parametrize(
    ("replace_walls", "sample_n_walls"), [(False, True), *deep((True, False), (True, True), (False, False))]
)
def test_agent_and_goal_stand_on_different_free_cells(replace_walls, sample_n_walls):
    env = AMaze(height=3, width=4, n_walls=10, replace_walls=replace_walls, sample_n_walls=sample_n_walls)
    levels = sample(env, 2000)
    for pos in (levels.agent_pos, levels.goal_pos):
        assert ((pos >= 0) & (pos < [4, 3])).all()
        assert not levels.wall_map[np.arange(2000), pos[:, 1], pos[:, 0]].any()
    assert (levels.agent_pos != levels.goal_pos).any(axis=1).all()
    assert set(levels.agent_dir) == {0, 1, 2, 3}


@pytest.mark.deep
def test_the_number_of_walls_follows_its_law():
    n, cells = 3000, 15 * 4
    with_replacement = sample(AMaze(height=15, width=4, n_walls=20), n).wall_map.sum((1, 2))
    expected = cells * (1 - (1 - 1 / cells) ** 20)
    assert abs(with_replacement.mean() - expected) < 4 * with_replacement.std() / n**0.5
    assert (sample(AMaze(height=15, width=4, n_walls=20, replace_walls=False), n).wall_map.sum((1, 2)) == 20).all()
    anywhere = sample(AMaze(height=15, width=4, n_walls=20, replace_walls=False, sample_n_walls=True), n)
    counts = np.bincount(anywhere.wall_map.sum((1, 2)), minlength=21)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_walls_of_the_published_task():
    """60 draws on 13 x 13 leave 169 (1 - (168/169)^60) = 50.6 walls on average."""
    walls = sample(AMaze(), 2000).wall_map.sum((1, 2))
    assert walls.mean() == pytest.approx(169 * (1 - (168 / 169) ** 60), abs=0.3)


@pytest.mark.parametrize("replace_walls", [True, *deep(False)])
def test_walls_agent_and_goal_are_uniform(replace_walls):
    n = 6000
    levels = sample(AMaze(height=3, width=5, n_walls=6, replace_walls=replace_walls), n, seed=3)
    assert stats.chisquare(levels.wall_map.sum(0).ravel()).pvalue > 1e-3
    for pos in (levels.agent_pos, levels.goal_pos):
        assert stats.chisquare(np.bincount(pos[:, 1] * 5 + pos[:, 0], minlength=15)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(levels.agent_dir, minlength=4)).pvalue > 1e-3


@pytest.mark.deep
def test_every_pair_of_free_cells_is_equally_likely():
    levels = sample(AMaze(height=1, width=4, n_walls=0), 6000, seed=4)
    pairs = np.bincount(levels.agent_pos[:, 0] * 4 + levels.goal_pos[:, 0], minlength=16)
    assert (pairs[[0, 5, 10, 15]] == 0).all()
    assert stats.chisquare(pairs[pairs > 0]).pvalue > 1e-3
    assert (pairs > 0).sum() == 12


def test_only_solvable_levels_are_the_random_ones_that_can_be_solved():
    """On 2 x 3 cells with 3 different walls, every level is equally likely. So is each that can be solved."""
    cells = [(x, y) for y in range(2) for x in range(3)]

    def linked(a, b, free):
        seen, edge = {a}, [a]
        while edge:
            x, y = edge.pop()
            new = [c for c in free if abs(c[0] - x) + abs(c[1] - y) == 1 and c not in seen]
            seen.update(new)
            edge += new
        return b in seen

    solvable = {
        (free, agent, goal): 0
        for free in itertools.combinations(cells, 3)
        for agent, goal in itertools.permutations(free, 2)
        if linked(agent, goal, free)
    }
    levels = sample(AMaze(height=2, width=3, n_walls=3, replace_walls=False, only_solvable=True), 6000, seed=5)
    for walls, agent, goal in zip(levels.wall_map, levels.agent_pos, levels.goal_pos, strict=True):
        free = tuple(c for c in cells if not walls[c[1], c[0]])
        solvable[free, tuple(agent.tolist()), tuple(goal.tolist())] += 1  # a KeyError if it cannot be solved
    assert 0 < len(solvable) < 20 * 6
    assert stats.chisquare(list(solvable.values())).pvalue > 1e-3


def test_levels_differ_with_the_key():
    levels = sample(AMaze(), 2000)  # as above
    assert len({m.tobytes() for m in levels.wall_map}) == 2000


# --- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"height": 0}, "height=0"),
        ({"width": -2}, "width=-2"),
        ({"width": 3.0}, "width=3.0"),
        ({"height": 1, "width": 1, "n_walls": 0}, "at least 2 cells"),
        ({"n_walls": -1}, "n_walls=-1"),
        ({"n_walls": True}, "n_walls=True"),
        ({"n_walls": 168}, r"n_walls=168 .*169 cells.*at most 167"),
        ({"height": 3, "width": 4, "n_walls": 11}, r"n_walls=11 .*12 cells.*at most 10"),
        ({"view_size": 1}, "view_size=1"),
        ({"view_size": 6}, "view_size=6"),
        ({"view_size": 33}, "view_size=33: it must be at most 31"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"see_through_walls": "no"}, "see_through_walls='no'"),
        ({"only_solvable": 1}, "only_solvable=1"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings, words):
    with pytest.raises(ValueError, match=words) as error:
        AMaze(**settings)
    assert "\n" not in str(error.value)


def test_settings_are_static():
    assert AMaze() == AMaze(height=13)
    assert hash(AMaze()) == hash(AMaze())
    with pytest.raises(dataclasses.FrozenInstanceError):
        AMaze().height = 3
