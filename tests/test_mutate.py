"""ACCEL's mutation of mazes: what it preserves, and how often each edit occurs (chi-squared, fails at p < 1e-4)."""

import functools

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from minimax_lib.curricula.level_buffer import fingerprint
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.mutate import mutate
from minimax_lib.envs.registry import editing_of, identity_of

LEAST_P = 1e-4


def deep(*cases: tuple) -> list:
    """Cases of a test that are not for everybody."""
    return [pytest.param(*case, marks=pytest.mark.deep) for case in cases]


@functools.partial(jax.jit, static_argnums=(2, 3))
def children(key: jax.Array, level: Level, n_edits: int, n: int) -> Level:
    """[n] children of one level."""
    return jax.vmap(lambda key: mutate(key, level, n_edits))(jax.random.split(key, n))


def maze(rows: list[str]) -> Level:
    """A level from its picture: # wall, A agent, G goal."""
    cells = np.array([list(row) for row in rows])
    (agent,), (goal,) = (np.argwhere(cells == who)[:, ::-1] for who in "AG")
    return Level(
        wall_map=cells == "#",
        agent_pos=agent.astype(np.int32),
        agent_dir=np.int32(2),
        goal_pos=goal.astype(np.int32),
    )


SMALL = maze(["A.#", "#G."])


def assert_follows(counts, probabilities) -> None:
    counts, probabilities = np.asarray(counts), np.asarray(probabilities)
    assert counts[probabilities == 0].sum() == 0
    possible = probabilities > 0
    assert chisquare(counts[possible], (probabilities * counts.sum())[possible]).pvalue > LEAST_P


@pytest.mark.parametrize(("height", "width", "n_walls"), [(2, 7, 12), *deep((13, 13, 60), (5, 3, 0), (1, 2, 0))])
def test_goal_and_agent_stay_on_two_free_cells(height, width, n_walls):
    env = AMaze(height=height, width=width, n_walls=n_walls)

    def drawn(key):
        keys = jax.random.split(key, 300)
        parents = jax.vmap(env.sample_level)(keys)
        return parents, jax.vmap(functools.partial(mutate, n_edits=25))(keys, parents)

    parents, found = jax.tree.map(np.asarray, jax.jit(drawn)(jax.random.key(0)))
    rows = np.arange(300)
    for pos in (found.agent_pos, found.goal_pos):
        assert (pos >= 0).all()
        assert (pos < [width, height]).all()
        assert not found.wall_map[rows, pos[:, 1], pos[:, 0]].any()
    assert (found.agent_pos != found.goal_pos).any(axis=1).all()
    np.testing.assert_array_equal(found.agent_pos, parents.agent_pos)
    np.testing.assert_array_equal(found.agent_dir, parents.agent_dir)
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, parents)


def test_one_edit_is_one_of_its_three_kinds():
    """A third of the edits does nothing, a third flips one of four cells, a third moves the goal to one of two."""
    n = 12_000
    found = jax.tree.map(np.asarray, children(jax.random.key(1), SMALL, 1, n))
    flipped = (found.wall_map != np.asarray(SMALL.wall_map)).sum(axis=(1, 2))
    moved = (found.goal_pos != np.asarray(SMALL.goal_pos)).any(axis=1)
    assert (flipped + moved <= 1).all()
    assert_follows([(flipped + moved == 0).sum(), flipped.sum(), moved.sum()], [1 / 3] * 3)
    flips = (found.wall_map != np.asarray(SMALL.wall_map)).sum(axis=0)
    assert_follows(flips.reshape(-1), np.array([0, 1, 1, 1, 0, 1]) / 4)
    goals = np.zeros((2, 3), int)
    np.add.at(goals, (found.goal_pos[moved, 1], found.goal_pos[moved, 0]), 1)
    assert_follows(goals.reshape(-1), np.array([0, 1, 0, 0, 0, 1]) / 2)


def test_two_edits_are_one_edit_of_one_edit():
    """The children of two edits on a maze of four cells. Their frequencies are products of those of single edits."""
    start = maze(["A.", ".G"])

    def name(walls, goal) -> tuple:
        return tuple(np.asarray(walls).reshape(-1).tolist()), tuple(np.asarray(goal).tolist())

    def one_edit(state: tuple) -> dict[tuple, float]:
        """The probability of each child, written out from the rule."""
        walls, goal = np.array(state[0]).reshape(2, 2), state[1]
        free = [(x, y) for x in range(2) for y in range(2) if (x, y) not in ((0, 0), goal)]
        open_cells = [(x, y) for x, y in free if not walls[y, x]]
        result = {state: 1 / 3}
        for x, y in free:
            flipped = walls.copy()
            flipped[y, x] = not flipped[y, x]
            result[name(flipped, goal)] = 1 / 3 / len(free)
        for x, y in open_cells:
            result[name(walls, (x, y))] = 1 / 3 / len(open_cells)
        if not open_cells:
            result[state] += 1 / 3
        return result

    expected: dict[tuple, float] = {}
    for middle, p in one_edit(name(start.wall_map, start.goal_pos)).items():
        for end, q in one_edit(middle).items():
            expected[end] = expected.get(end, 0) + p * q
    assert sum(expected.values()) == pytest.approx(1)

    found = jax.tree.map(np.asarray, children(jax.random.key(2), start, 2, 20_000))
    seen = [name(w, g) for w, g in zip(found.wall_map, found.goal_pos, strict=True)]
    assert set(seen) <= set(expected)
    assert_follows([seen.count(end) for end in expected], list(expected.values()))


def test_a_maze_without_another_free_cell_keeps_its_goal():
    tight = maze(["AG"])
    found = jax.tree.map(np.asarray, children(jax.random.key(3), tight, 5, 50))
    np.testing.assert_array_equal(found.goal_pos, np.tile(tight.goal_pos, (50, 1)))
    assert not found.wall_map.any()


def test_no_edit_is_no_change_and_keys_matter():
    level = maze(["A.#..#.", "..##..#", "#......", "..#.#.#", "....#..", "#..#..G"])
    same = children(jax.random.key(1), level, 0, 1)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), same, level)
    found = children(jax.random.key(4), level, 20, 64)
    assert len({np.asarray(w).tobytes() for w in found.wall_map}) > 60


def test_mazes_are_equal_where_walls_goal_position_and_facing_are():
    env = AMaze(height=4, width=4, n_walls=3)
    identity = identity_of(env)
    print_one = jax.jit(lambda level: fingerprint(identity(level)))

    def print_of(level: Level) -> tuple:
        return tuple(np.asarray(print_one(level)).tolist())

    level = maze(["A.#.", "....", ".#.#", "..G."])
    assert print_of(jax.tree.map(np.array, level)) == print_of(level)
    flipped = level.wall_map.copy()
    flipped[2, 1] ^= True
    others = [
        level.replace(wall_map=flipped),
        level.replace(agent_pos=level.goal_pos, goal_pos=level.agent_pos),
        level.replace(agent_pos=(level.agent_pos + 1) % 4),
        level.replace(goal_pos=(level.goal_pos + 1) % 4),
        level.replace(agent_dir=(level.agent_dir + 1) % 4),
    ]
    assert len({print_of(other) for other in [level, *others]}) == 6


def test_accel_edits_mazes_with_this_mutation():
    assert editing_of(AMaze()).mutate is mutate
