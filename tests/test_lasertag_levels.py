"""Levels of LaserTag: random ones, maps, mutations, metrics, the held-out suite, the teacher, pictures."""

import dataclasses
import functools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.against import Against, AgainstLevel
from minimax_lib.envs.base import Environment, sample_levels
from minimax_lib.envs.lasertag import maps
from minimax_lib.envs.lasertag.generators import corridors, far_apart
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import DRAWN, is_valid, padded
from minimax_lib.envs.lasertag.mutate import mutate
from minimax_lib.envs.lasertag.suite import GROUPS, HUNTER, RANDOM_OPPONENT
from minimax_lib.envs.registry import editing_of, identity_of, make_env, make_held_out, make_ued_env
from minimax_lib.envs.terminal import painted
from minimax_lib.envs.ued import UEDEnvironment
from minimax_lib.testing.envs import check_held_out, check_teacher

N = 2000
ENV = LaserTag()
SMALL = LaserTag(height=6, width=7, max_steps=8)


valid = jax.jit(jax.vmap(is_valid))
valid_one = jax.jit(is_valid)


@functools.partial(jax.jit, static_argnums=0)
def sampled(env, key):
    return env.sample_level(key)


@functools.partial(jax.jit, static_argnums=(0, 3))
def children_of(n, key, level, n_edits):
    """`n` children of a level."""
    return jax.vmap(lambda key: mutate(key, level, n_edits))(jax.random.split(key, n))


@pytest.fixture(scope="module")
def levels():
    return jax.device_get(jax.jit(lambda key: sample_levels(ENV, key, N))(jax.random.key(0)))


def within(found, expected, spread, n=N):
    """Whether the mean of `n` draws lies within four standard errors."""
    return abs(found - expected) < 4 * spread / np.sqrt(n)


def sides_of(levels):
    """The least side that a room can have, for each level."""
    free = ~levels.walls
    rows = np.where(free.any(axis=2), np.arange(15)[None] + 1, 0).max(axis=1)
    columns = np.where(free.any(axis=1), np.arange(15)[None] + 1, 0).max(axis=1)
    return np.maximum(rows, columns)


def test_random_levels_are_valid(levels):
    assert np.asarray(valid(levels)).all()
    np.testing.assert_array_equal(levels.spawns, ~levels.walls)


def test_the_sides_of_random_levels_are_uniform(levels):
    sides, counts = np.unique(sides_of(levels), return_counts=True)
    assert sides.min() >= 4  # a room of 5 whose last row and column are all walls
    assert sides.max() == 15
    # A room looks smaller than it is where its last lines are walls, which is rare.
    assert (np.abs(counts[sides >= 5] - N / 11) < 5 * np.sqrt(N / 11)).all()


def test_the_share_of_walls_is_uniform(levels):
    sides = sides_of(levels)
    large = sides >= 12
    shares = np.array(
        [walls[:side, :side].mean() for walls, side in zip(levels.walls[large], sides[large], strict=True)]
    )
    assert within(shares.mean(), 0.25, 0.15, large.sum())
    counts, _ = np.histogram(shares, bins=[0, 0.125, 0.25, 0.375, 0.5])
    assert (np.abs(counts - large.sum() / 4) < 5 * np.sqrt(large.sum() / 4)).all()


def test_starts_and_facings_are_uniform(levels):
    for agent in range(2):
        _, counts = np.unique(levels.facings[:, agent], return_counts=True)
        assert (np.abs(counts - N / 4) < 4 * np.sqrt(N / 4)).all()
    # On a grid of one size, all pairs of cells are equally likely.
    env = LaserTag(height=3, width=3, min_side=3, max_walls=1.0)
    starts = np.asarray(jax.jit(lambda key: sample_levels(env, key, 7200))(jax.random.key(1)).starts)
    pairs, counts = np.unique(starts.reshape(-1, 4), axis=0, return_counts=True)
    assert len(pairs) == 72
    assert (np.abs(counts - 100) < 5 * 10).all()


def test_settings_of_random_levels():
    envs = (
        LaserTag(height=9, width=12, min_side=9, max_side=9, min_walls=1.0, max_walls=1.0),
        LaserTag(rules="lanctot", layout="random", height=9, width=9),
        LaserTag(layout="small3", height=9),
    )

    @jax.jit
    def sampled(key):
        levels = [env.sample_level(key) for env in envs]
        return [(level, is_valid(level)) for level in levels]

    (level, full_is_valid), (open_starts, _), (small3, small3_is_valid) = jax.device_get(sampled(jax.random.key(0)))
    assert level.walls.shape == (9, 12)
    assert int((~level.walls).sum()) == 2  # the starts alone
    assert full_is_valid
    assert (open_starts.starts == DRAWN).all()
    assert small3.walls.shape == (9, 14)
    assert small3_is_valid
    corners = {(0, 0), (12, 0), (1, 5), (13, 6)}
    assert {tuple(start) for start in small3.starts.tolist()} <= corners


def reached_from(walls, start):
    """The moves to each cell that can be reached, by a plain search."""
    moves, queue = {tuple(start): 0}, deque([tuple(start)])
    while queue:
        x, y = queue.popleft()
        for place in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            inside = 0 <= place[0] < walls.shape[1] and 0 <= place[1] < walls.shape[0]
            if inside and not walls[place[1], place[0]] and place not in moves:
                moves[place] = moves[x, y] + 1
                queue.append(place)
    return moves


def test_search_levels_are_valid_and_their_starts_far_apart(levels):
    env = LaserTag(layout="search")
    far = jax.device_get(jax.jit(lambda key: sample_levels(env, key, N))(jax.random.key(0)))
    assert np.asarray(valid(far)).all()
    np.testing.assert_array_equal(far.spawns, ~far.walls)
    for walls, (zero, one) in zip(far.walls, far.starts.tolist(), strict=True):
        assert tuple(one) in reached_from(walls, zero)  # without `elbow`, one in seven is cut off

    # Beside random levels, whose starts are uniform over cells. Twenty seeds: 12.5 to 12.9 cells, and 6.5 to 6.8.
    def distance(levels):
        return np.abs(levels.starts[:, 0] - levels.starts[:, 1]).sum(axis=1).mean()

    assert distance(far) > 1.7 * distance(levels)
    # Neither agent has the better place.
    above, below = (far.starts[:, 0, 1] < far.starts[:, 1, 1]), (far.starts[:, 0, 1] > far.starts[:, 1, 1])
    assert within(above.mean(), below.mean(), 1.0)
    assert (np.abs(np.bincount(far.facings[:, 0]) - N / 4) < 4 * np.sqrt(N / 4)).all()


@pytest.mark.parametrize("side", [2, 13])
def test_corridors_are_connected_and_inside_their_square(side):
    draw = jax.jit(jax.vmap(lambda key: corridors(key, (14, 15), side)))
    rooms = np.asarray(draw(jax.random.split(jax.random.key(0), 200)))
    assert not rooms[:, side:].any()
    assert not rooms[:, :, side:].any()
    for free in rooms:
        assert free.sum() >= 2
        y, x = np.argwhere(free)[0]
        assert len(reached_from(~free, (x, y))) == free.sum()


def test_the_two_starts_are_the_farthest_of_few_cells():
    free = np.zeros((5, 6), bool)
    cells = {(0, 0), (1, 0), (5, 4)}  # (x, y)
    for x, y in cells:
        free[y, x] = True
    starts = np.asarray(jax.vmap(lambda key: far_apart(key, free))(jax.random.split(jax.random.key(0), 64)))
    assert {tuple(map(tuple, pair)) for pair in starts.tolist()} == {((0, 0), (5, 4)), ((5, 4), (0, 0))}


def in_line_of_fire(walls, start):
    """How many cells beams from `start` reach, one cell after another."""
    n = 0
    for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
        x, y = start[0] + dx, start[1] + dy
        while 0 <= x < walls.shape[1] and 0 <= y < walls.shape[0] and not walls[y, x]:
            n, x, y = n + 1, x + dx, y + dy
    return n


def test_level_metrics(levels):
    found = jax.device_get(jax.jit(jax.vmap(ENV.level_metrics))(levels))
    sides = sides_of(levels)
    assert 0.5 < found["connected"].mean() < 1
    for i in range(0, N, 10):
        walls, (zero, one) = levels.walls[i], levels.starts[i]
        moves = reached_from(walls, zero)
        assert found["connected"][i] == (tuple(one) in moves)
        assert found["distance"][i] == moves.get(tuple(one), 0)
        assert found["line_of_fire"][i] == in_line_of_fire(walls, zero)
        room = ~walls[: sides[i], : sides[i]]
        rows, columns = np.flatnonzero(room.any(axis=1)), np.flatnonzero(room.any(axis=0))
        inner = walls[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert found["n_walls"][i] == inner.sum()


def test_metrics_of_a_level_whose_starts_are_open():
    found = jax.jit(LaserTag(rules="lanctot").level_metrics)(maps.load("small2"))
    assert {name: float(value) for name, value in found.items()} == {
        "n_walls": 8,
        "connected": 1,
        "distance": 12,  # from the first corner to the last one
        "line_of_fire": 12,
    }


def test_maps():
    known = maps.known_maps()
    assert set(known) == {
        *("small2", "small3", "small4", "FourRooms", "Cross", "Corridor1", "Corridor2", "LargeCorridor"),
        *("Arena1", "Arena2", "Ruins", "Star", "SixteenRooms", "Labyrinth"),
    }
    stack = jax.device_get(maps.load(known))
    assert stack.walls.shape == (14, 15, 20)
    assert np.asarray(valid(stack)).all()
    for i, name in enumerate(known):
        rows = maps.rows_of(name)
        walls = stack.walls[i]
        assert "".join("#" if cell else "." for cell in walls[0, : len(rows[0])]) == rows[0].replace("S", ".")
        assert walls[len(rows) :].all()
        assert walls[:, len(rows[0]) :].all()
        spawns = [(x, y) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == "S"]
        moves = reached_from(walls, spawns[0])
        assert all(spawn in moves for spawn in spawns), name
    begun = jax.jit(lambda key, stack: jax.vmap(maps.started)(jax.random.split(key, 14), stack))
    started = begun(jax.random.key(0), stack)
    assert np.asarray(valid(started)).all()
    assert (np.asarray(started.starts) >= 0).all()
    with pytest.raises(ValueError, match=r"unknown map 'Fourrooms'.*did you mean 'FourRooms'"):
        maps.load("Fourrooms")
    with pytest.raises(ValueError, match="too small for a level of 7 x 7"):
        maps.load("small2", (6, 9))


# Mutation.


def test_children_are_valid_and_differ():
    def lineage(key):
        k_level, k_line = jax.random.split(key)
        level = SMALL.sample_level(k_level)

        def next_one(level, key):
            child = mutate(key, level, 3)
            return child, child

        line = jax.lax.scan(next_one, level, jax.random.split(k_line, 8))[1]
        return jax.tree.map(lambda first, x: jnp.concatenate([first[None], x]), level, line)

    @jax.jit
    def all_lines(key):
        lines = jax.vmap(lineage)(jax.random.split(key, 200))
        return lines, jax.vmap(jax.vmap(is_valid))(lines)

    lines, are_valid = jax.device_get(all_lines(jax.random.key(0)))
    assert are_valid.all()
    np.testing.assert_array_equal(lines.spawns, ~lines.walls)  # as they were
    changed = (lines.walls[:, 1:] != lines.walls[:, :-1]).any(axis=(2, 3))
    changed |= (lines.starts[:, 1:] != lines.starts[:, :-1]).any(axis=(2, 3))
    # Two of three edits do something; some undo each other.
    assert changed.mean() > 0.9
    np.testing.assert_array_equal(lines.facings[:, 1:], lines.facings[:, :-1])


def test_one_edit_is_one_of_three():
    level = sampled(SMALL, jax.random.key(3))
    children = children_of(3000, jax.random.key(4), level, 1)
    flips = (np.asarray(children.walls) != np.asarray(level.walls)).sum(axis=(1, 2))
    moves = (np.asarray(children.starts) != np.asarray(level.starts)).any(axis=2)
    kinds = flips + 2 * moves.sum(axis=1)
    assert set(kinds) == {0, 1, 2}
    counts = np.bincount(kinds)
    assert (np.abs(counts - 1000) < 4 * np.sqrt(3000 * 2 / 9)).all()
    assert abs(moves[:, 0].sum() - moves[:, 1].sum()) < 4 * np.sqrt(counts[2])
    # Every cell but the two starts is flipped now and then.
    flipped = (np.asarray(children.walls) != np.asarray(level.walls)).any(axis=0)
    assert flipped.sum() == flipped.size - 2


def test_the_last_spawns_and_open_starts_stay():
    level = maps.load("LargeCorridor")
    children = children_of(50, jax.random.key(5), level, 40)
    assert np.asarray(valid(children)).all()
    np.testing.assert_array_equal(children.spawns, np.broadcast_to(level.spawns, children.spawns.shape))
    assert (np.asarray(children.starts) == DRAWN).all()
    assert (np.asarray(children.walls) != np.asarray(level.walls)).any(axis=(1, 2)).all()


def test_editing_is_registered():
    editing = editing_of(SMALL)
    assert editing.mutate is mutate
    simplest = jax.jit(lambda key: sample_levels(editing.base(SMALL), key, 50))(jax.random.key(0))
    sizes = set((~np.asarray(simplest.walls)).sum(axis=(1, 2)).tolist())
    assert sizes == {25, 36}
    level = jax.device_get(sampled(SMALL, jax.random.key(0)))
    fewer = level.replace(spawns=np.zeros_like(level.spawns))

    def same(env, one, other):
        same_leaf = jax.tree.map(lambda x, y: bool((x == y).all()), *map(identity_of(env), (one, other)))
        return all(jax.tree.leaves(same_leaf))

    assert same(SMALL, level, fewer)  # nobody returns in this game
    assert not same(SMALL, level, level.replace(facings=level.facings + 1))
    assert not same(dataclasses.replace(SMALL, first_tag_ends=False), level, fewer)


# The held-out suite.

RANDOM_TASK = "TrainingDistribution"


@pytest.mark.deep
def test_the_suite_conforms():
    check_held_out(SMALL, jax.random.key(0), ["all"])


def test_the_tasks():
    assert not set(GROUPS["validation"]) & set(GROUPS["benchmark"])
    suite = make_held_out(make_env("LaserTag"), ["CrossBot", "small2", RANDOM_TASK])
    assert suite.size == (15, 15)
    levels = jax.device_get(jax.jit(lambda key: suite.sample(key, 400))(jax.random.key(0)))
    assert levels.bot.tolist() == [[HUNTER] * 400, [RANDOM_OPPONENT] * 400, [RANDOM_OPPONENT] * 400]
    assert (np.abs(levels.seat.mean(axis=1) - 0.5) < 4 * 0.5 / 20).all()
    cross = padded(maps.load("Cross"), 15, 15)
    np.testing.assert_array_equal(levels.game.walls[0], np.broadcast_to(cross.walls, (400, 15, 15)))
    _, counts = np.unique(levels.game.facings[0].reshape(-1), return_counts=True)
    assert (np.abs(counts - 200) < 4 * np.sqrt(200)).all()
    assert set(map(tuple, levels.game.starts[0, :, 0].tolist())) == {(0, 6), (12, 6)}  # either agent at either end


@pytest.mark.deep
def test_a_task_has_the_same_levels_whichever_others_are_asked_for():
    suites = [make_held_out(make_env("LaserTag"), names) for names in (["CrossBot", RANDOM_TASK], [RANDOM_TASK])]
    both, alone = (jax.jit(lambda key, suite=suite: suite.sample(key, 400))(jax.random.key(0)) for suite in suites)
    np.testing.assert_array_equal(alone.game.walls[0], both.game.walls[1])


def test_who_cannot_fire_does_not_meet_the_hunter():
    env = LaserTag(actions=("left", "forward", "fire"))
    assert not any(name.endswith("Bot") for name in make_held_out(env, ["benchmark"]).names)
    with pytest.raises(ValueError, match="'CrossBot' is against a player who needs the actions fire, left, right"):
        make_held_out(env, ["CrossBot"])


# The teacher.


@dataclasses.dataclass(frozen=True)
class Alone(Environment):
    """LaserTag against a random player, on levels of the game itself."""

    game: LaserTag

    @property
    def env(self):
        return Against(self.game)

    max_steps = property(lambda self: self.game.max_steps)
    observation_space = property(lambda self: self.game.observation_space)
    action_space = property(lambda self: self.game.action_space)

    def sample_level(self, key):
        return self.game.sample_level(key)

    def reset(self, key, level):
        no = jnp.zeros((), jnp.int32)
        return self.env.reset(key, AgainstLevel(level, no, no))

    def step(self, key, state, action):
        return self.env.step(key, state, action)

    def get_level(self, state):
        return self.env.get_level(state).game


@pytest.mark.deep
@pytest.mark.parametrize("settings", [{}, {"set_facings": True, "noise_dim": 0, "n_walls": 5}])
def test_the_teacher_conforms(settings):
    teacher = make_ued_env("LaserTag", settings, height=3, width=4, max_steps=8).teacher
    check_teacher(UEDEnvironment(Alone(LaserTag(height=3, width=4, max_steps=8)), teacher), jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def designed_by(teacher, actions):
    """(the level, whether the design was over after each action)."""
    state, _ = teacher.reset(jax.random.key(0), teacher.sample_level(jax.random.key(1)))

    def step(state, action):
        state, ts = teacher.step(jax.random.key(2), state, action)
        return state, ts.terminated

    state, ended = jax.lax.scan(step, state, actions)
    return teacher.to_level(state), ended


def designed(teacher, actions):
    level, ended = jax.device_get(designed_by(teacher, np.array(actions, np.int32)))
    np.testing.assert_array_equal(ended, np.arange(1, len(actions) + 1) >= teacher.max_steps)
    return level


def test_a_design_by_hand():
    teacher = make_ued_env("LaserTag", {"n_walls": 3, "set_facings": True}, height=3, width=4).teacher
    level = designed(teacher, [1, 1, 6, 6, 11, 3, 8])
    assert level.walls.tolist() == [[False, True, False, False], [False] * 4, [False] * 4]
    assert level.starts.tolist() == [[2, 1], [3, 2]]  # agent 0 takes the place of a wall
    assert level.facings.tolist() == [1, 2]
    level = designed(teacher, [0, 1, 2, 3, 3, 0, 11])  # agent 1 on agent 0
    assert level.starts[0].tolist() == [3, 0]
    assert valid_one(level)
    assert level.facings.tolist() == [0, 3]
    open_starts = make_ued_env("LaserTag", {"n_walls": 2}, rules="lanctot", height=7, width=7).teacher
    level = designed(open_starts, [0, 48, 5])
    assert (level.starts == DRAWN).all()
    assert level.walls.sum() == 2
    assert valid_one(level)
    with pytest.raises(ValueError, match=r"design\.n_walls=11 could leave fewer than 2 of the 12 cells"):
        make_ued_env("LaserTag", {"n_walls": 11}, height=3, width=4)


# Pictures.


def test_pictures_and_text():
    env = make_held_out(LaserTag(), ["small2"]).env
    assert env.draw_episodes is not None
    assert env.draw_state is not None
    assert env.scene is not None
    level = maps.load("small2").replace(starts=np.array([[6, 0], [0, 0]], np.int32), facings=np.array([2, 1], np.int32))
    # The learner is agent 1.
    state, _ = jax.device_get(jax.jit(env.reset)(jax.random.key(0), AgainstLevel(level, np.int32(0), np.int32(1))))
    fired = state.replace(game=state.game.replace(fired=np.array([True, False])))
    states = jax.tree.map(lambda x, y: np.stack([x, y])[:, None], state, fired)
    picture = env.draw_episodes(states, np.ones((2, 1), bool), ["a game"], 1)
    assert picture.dtype == np.uint8
    beam = (picture == np.array([255, 240, 120], np.uint8)).all(axis=-1)
    assert beam.any()
    assert np.ptp(np.argwhere(beam)[:, 1]) > 5 * 20  # across the map
    only_first = env.draw_episodes(states, np.array([[True], [False]]), ["a game"], 1)
    assert not (only_first == np.array([255, 240, 120], np.uint8)).all(axis=-1).any()
    assert env.draw_state(fired).shape == env.draw_state(state).shape
    scene = env.scene(state)
    assert scene.place.tolist() == [1, 1]  # the learner
    lines = painted(scene.whole, colours=False)
    assert lines[1].startswith("##v ")
    assert lines[1].endswith("< ##")
    assert env.keys["f"] == env.game.actions.index("fire")
    assert scene.keys == "f: fire   x: stand"
