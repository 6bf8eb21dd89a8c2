"""The held-out mazes: fixed ones against their data, generators against the rules that they must follow."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minigrid.core.world_object import Wall
from minigrid.envs.crossing import CrossingEnv
from scipy import stats

from minimax_lib.envs.maze import AMaze, generators, layouts, ood
from minimax_lib.envs.maze.metrics import shortest_path
from minimax_lib.envs.registry import make_held_out

ENV = AMaze(height=5, width=7, n_walls=9, max_steps=40)
DATA = json.loads(Path(ood.__file__).with_name("ood_mazes.json").read_text(encoding="utf-8"))["mazes"]


EVERY_TIME = {  # mazes that are drawn for everybody, all by one program -> how many of each
    "SmallCorridor": 2000,
    "PerfectMaze": 600,
    "FourRooms": 600,
    "SimpleCrossingS9N2": 600,
    "RoomsS17": 400,
    "CorridorsS17": 1600,
    "SpiralS17": 300,
    "LabyrinthS27": 600,
}


def draws(name, n):
    """n levels of one maze as numpy arrays, and (path length, solvable) of each."""
    numbers = EVERY_TIME if EVERY_TIME.get(name) == n else {name: n}
    return drawn(tuple(numbers.items()))[name]


@functools.cache
def drawn(numbers):
    """{name: (levels, (path length, solvable))}."""
    size = max(ood.MAZES[name].height for name, _ in numbers)

    def draw(key):
        levels = [jax.vmap(lambda key, name=name: ood.load(name, key))(jax.random.split(key, n)) for name, n in numbers]
        padded = [jax.vmap(lambda level: ood.pad(level, size, size))(some) for some in levels]
        joined = jax.tree.map(lambda *xs: jnp.concatenate(xs), *padded)
        return levels, jax.vmap(shortest_path)(joined)

    levels, paths = jax.tree.map(np.asarray, jax.jit(draw)(jax.random.key(0)))
    ends = np.cumsum([n for _, n in numbers])
    return {
        name: (some, jax.tree.map(lambda x, n=n, end=end: x[end - n : end], paths))
        for (name, n), some, end in zip(numbers, levels, ends, strict=True)
    }


def deep(*cases):
    """Cases of a test that are not for everybody."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.deep) for case in cases]


def rows(level):
    return ["".join("#" if wall else "." for wall in line) for line in np.asarray(level.wall_map)]


def goal_counts(levels, goals):
    return np.array([(levels.goal_pos == goal).all(axis=1).sum() for goal in goals])


# --- fixed mazes


@functools.cache
def fixed():
    """{name: (level, (path length, solvable))} of the fixed mazes, from one program."""

    def load():
        levels = [ood.load(name) for name in DATA]
        padded = jax.tree.map(lambda *xs: jnp.stack(xs), *(ood.pad(level, 30, 30) for level in levels))
        return levels, jax.vmap(shortest_path)(padded)

    levels, paths = jax.tree.map(np.asarray, jax.jit(load)())
    return {name: (levels[i], jax.tree.map(lambda x, i=i: x[i], paths)) for i, name in enumerate(DATA)}


@pytest.mark.parametrize("name", DATA)
def test_a_fixed_maze_is_its_data(name):
    spec, (level, (length, solvable)) = DATA[name], fixed()[name]
    assert rows(level) == spec["rows"]
    assert level.agent_pos.tolist() == spec["agent"]
    assert level.agent_dir == spec["agent_dir"]
    assert level.goal_pos.tolist() in spec["goals"]
    assert solvable
    assert length == spec["shortest_path"][spec["goals"].index(level.goal_pos.tolist())]


@pytest.mark.deep
@pytest.mark.parametrize("name", ["SmallCorridor", *deep("LargeCorridor")])
def test_corridors_draw_one_of_their_goals_uniformly(name):
    spec = DATA[name]
    levels, (length, _) = draws(name, 2000)
    counts = goal_counts(levels, spec["goals"])
    assert counts.sum() == 2000
    assert stats.chisquare(counts).pvalue > 1e-3
    for goal, expected in zip(spec["goals"], spec["shortest_path"], strict=True):
        assert (length[(levels.goal_pos == goal).all(axis=1)] == expected).all()


# --- perfect mazes


def kruskal(edges, n_vertices):
    """The indices that Kruskal's algorithm takes from edges listed lightest first, by plain union-find."""
    root = list(range(n_vertices))

    def find(v):
        while root[v] != v:
            v = root[v]
        return v

    taken = []
    for i, (a, b) in enumerate(edges):
        a, b = find(a), find(b)
        if a != b:
            root[a] = b
            taken.append(i)
    return taken


@pytest.mark.parametrize("n", [5, *deep(2, 3, 10)])
def test_the_spanning_tree_is_kruskals(n):
    tree = jax.jit(generators.minimum_spanning_tree, static_argnums=1)
    for seed in range(5):
        edges = np.random.default_rng(seed).permutation(generators.grid_edges(n))
        assert np.flatnonzero(tree(edges, n * n)).tolist() == kruskal(edges, n * n)


@pytest.mark.parametrize(
    ("name", "size", "n", "n_drawn"),
    [("PerfectMaze", 11, 60, 600), *deep(("PerfectMazeS17", 17, 20, 20), ("PerfectMazeMedium", 21, 20, 20))],
)
def test_a_perfect_maze_is_a_spanning_tree_of_the_odd_cells(name, size, n, n_drawn):
    levels, (length, solvable) = jax.tree.map(lambda x: x[:n], draws(name, n_drawn))
    inner = size - 2
    assert levels.wall_map.shape == (n, inner, inner)
    assert not levels.wall_map[:, ::2, ::2].any()
    assert levels.wall_map[:, 1::2, 1::2].all()
    cells = ((size - 1) // 2) ** 2
    assert ((~levels.wall_map).sum((1, 2)) == 2 * cells - 1).all()  # a free cell for each vertex and each edge
    assert solvable.all()
    for level_walls in levels.wall_map:
        assert connected(level_walls)
    corners = {(0, 0), (inner - 1, 0), (0, inner - 1), (inner - 1, inner - 1)}
    pairs = {(tuple(a), tuple(g)) for a, g in zip(levels.agent_pos.tolist(), levels.goal_pos.tolist(), strict=True)}
    assert all(a in corners and g in corners and a != g for a, g in pairs)
    assert len({walls.tobytes() for walls in levels.wall_map}) == n
    assert (length > 0).all()


def connected(wall_map):
    """Whether all free cells are connected, by a plain flood fill."""
    free = {(y, x) for y, x in np.argwhere(~wall_map).tolist()}
    todo = [free.pop()]
    while todo:
        y, x = todo.pop()
        for cell in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if cell in free:
                free.remove(cell)
                todo.append(cell)
    return not free


def test_corner_pairs_are_uniform():
    levels, _ = draws("PerfectMaze", 600)
    index = (levels.agent_pos // 8 @ [1, 2]) * 4 + levels.goal_pos // 8 @ [1, 2]
    counts = np.bincount(index, minlength=16)
    assert (counts > 0).sum() == 12
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3


@pytest.mark.deep
@pytest.mark.parametrize(("name", "size"), [("PerfectMazeLarge", 51), ("PerfectMazeXL", 101)])
def test_large_perfect_mazes_are_connected(name, size):
    level = jax.jit(lambda key: ood.load(name, key))(jax.random.key(0))
    assert level.wall_map.shape == (size - 2, size - 2)
    assert (~np.asarray(level.wall_map)).sum() == 2 * ((size - 1) // 2) ** 2 - 1
    assert connected(np.asarray(level.wall_map))


# --- rooms and crossings


def test_four_rooms_have_one_door_in_each_arm():
    n = 600
    levels, (_, solvable) = draws("FourRooms", n)
    free = ~levels.wall_map
    assert free.shape == (n, 17, 17)
    for arm in (free[:, 8, :8], free[:, 8, 9:], free[:, :8, 8], free[:, 9:, 8]):
        assert (arm.sum(axis=1) == 1).all()
        assert stats.chisquare(arm.sum(axis=0)).pvalue > 1e-3
    assert not free[:, 8, 8].any()
    assert (free.sum((1, 2)) == 4 * 64 + 4).all()
    assert solvable.all()
    assert (levels.agent_pos != levels.goal_pos).any(axis=1).all()
    assert set(levels.agent_dir) == {0, 1, 2, 3}
    for pos in (levels.agent_pos, levels.goal_pos):
        assert free[np.arange(n), pos[:, 1], pos[:, 0]].all()
        assert stats.chisquare(np.bincount((pos[:, 1] > 8) * 2 + (pos[:, 0] > 8), minlength=4)).pvalue > 1e-3


CROSSINGS = {
    "SimpleCrossingS9N1": (9, 1),
    "SimpleCrossingS9N2": (9, 2),
    "SimpleCrossingS9N3": (9, 3),
    "SimpleCrossingS11N5": (11, 5),
    "SimpleCrossingS13N5": (13, 5),
}


def river_counts(wall_map):
    """(columns, rows) that are walls with one opening each."""
    n_free = (~wall_map).sum(axis=0)
    columns = sum(n_free[x] <= wall_map.shape[0] // 2 for x in range(1, len(n_free), 2))
    n_free = (~wall_map).sum(axis=1)
    return columns, sum(n_free[y] <= wall_map.shape[1] // 2 for y in range(1, len(n_free), 2))


BY_NAME = ["SimpleCrossingS9N2", *deep(*(name for name in CROSSINGS if name != "SimpleCrossingS9N2"))]


@pytest.mark.parametrize("name", BY_NAME)
def test_crossings_obey_the_law_of_their_walls(name):
    size, n_crossings = CROSSINGS[name]
    levels, (_, solvable) = jax.tree.map(lambda x: x[:300], draws(name, 600))
    assert solvable.all()
    assert (levels.agent_pos == 0).all()
    assert (levels.agent_dir == 0).all()
    assert (levels.goal_pos == size - 3).all()
    for wall_map in levels.wall_map:
        columns, rivers = river_counts(wall_map)
        assert columns + rivers == n_crossings
        assert wall_map.sum() == n_crossings * (size - 2) - columns * rivers - n_crossings
        assert not wall_map[::2, ::2].any()


@pytest.mark.parametrize("name", BY_NAME)
def test_crossings_are_distributed_as_minigrids(name):
    """In each cell, the share of walls equals that of the real generator: the largest z of all cells is below 4.5."""
    (size, n_crossings), n = CROSSINGS[name], 600
    ours = draws(name, n)[0].wall_map.mean(axis=0)
    env = CrossingEnv(size=size, num_crossings=n_crossings, obstacle_type=Wall)
    theirs = np.zeros((size - 2, size - 2))
    for seed in range(n):
        env._np_random = np.random.default_rng(seed)
        env._gen_grid(size, size)
        cells = np.array([cell is not None and cell.type == "wall" for cell in env.grid.grid])
        theirs += cells.reshape(size, size)[1:-1, 1:-1]
    theirs /= n
    spread = np.sqrt((ours * (1 - ours) + theirs * (1 - theirs)) / n)
    assert (np.abs(ours - theirs) <= 4.5 * spread + 1e-9).all()


# --- our own layouts


def reached(wall_map, start):
    """{(y, x): steps} of the free cells that can be reached, by a plain flood fill."""
    steps, todo = {start: 0}, [start]
    for y, x in todo:
        for cell in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            inside = all(0 <= i < n for i, n in zip(cell, wall_map.shape, strict=True))
            if inside and not wall_map[cell] and cell not in steps:
                steps[cell] = steps[y, x] + 1
                todo.append(cell)
    return steps


OWN = {"RoomsS17": 400, "RoomsS33": 20, "CorridorsS17": 1600, "SpiralS17": 300, "LabyrinthS27": 600}


@pytest.mark.parametrize("name", [*(name for name in OWN if name != "RoomsS33"), *deep("RoomsS33")])
def test_own_layouts_can_be_solved_and_differ_from_episode_to_episode(name):
    levels, (length, solvable) = draws(name, OWN[name])
    size = ood.MAZES[name].height
    assert levels.wall_map.shape[1:] == (size, size)
    assert levels.agent_pos.dtype == levels.goal_pos.dtype == levels.agent_dir.dtype == np.int32
    assert solvable.all()
    for i in range(20):
        goal, agent = levels.goal_pos[i], levels.agent_pos[i]
        assert reached(levels.wall_map[i], (agent[1], agent[0]))[goal[1], goal[0]] == length[i]
    assert len(np.unique(levels.agent_pos, axis=0)) > 1
    assert len({tuple(x[i].tobytes() for x in jax.tree.leaves(levels)) for i in range(20)}) > 10


def test_rooms_are_a_tree_of_doors_and_a_quarter_of_the_other_doors():
    n, n_rooms = OWN["RoomsS17"], 4
    walls = draws("RoomsS17", n)[0].wall_map
    across, down = walls[:, :, 3::4], walls[:, 3::4, :].swapaxes(1, 2)  # [n, 15, 3]: the lines between rooms
    doors = []
    for lines in (across, down):
        assert lines[:, 3::4].all()  # no door where two lines cross
        between = np.stack([~lines[:, i : i + 3] for i in range(0, 15, 4)])  # [4, n, 3 places, 3 lines]
        assert (between.sum(axis=2) <= 1).all()
        doors.append(between)
    count = np.stack(doors).sum(axis=(0, 1, 3, 4))
    places = np.stack(doors).sum(axis=(0, 1, 2, 4))
    assert stats.chisquare(places).pvalue > 1e-3
    tree, edges = n_rooms**2 - 1, 2 * n_rooms * (n_rooms - 1)
    assert (count >= tree).all()
    # Each of the other edges has a door with a chance of 1/4; the mean of n sums has this standard error.
    extra = edges - tree
    assert abs(count.mean() - tree - extra / 4) < 4 * np.sqrt(extra * 3 / 16 / n)
    for wall_map in walls[:20]:
        assert connected(wall_map)


def test_the_goal_of_corridors_is_at_the_end_of_any_of_them():
    levels, (length, _) = draws("CorridorsS17", OWN["CorridorsS17"])
    turned = levels.agent_pos[:, 0] == 7  # the corridor is upright
    along = np.where(turned, levels.goal_pos[:, 1], levels.goal_pos[:, 0])
    side = np.where(turned, levels.goal_pos[:, 0], levels.goal_pos[:, 1])
    assert set(along) == set(range(0, 15, 2))
    assert set(side) == {0, 14}
    start = np.where(turned, levels.agent_pos[:, 1], levels.agent_pos[:, 0])
    assert set(start) == {0, 14}
    assert (length == abs(along - start) + 7).all()
    counts = np.unique(np.stack([along, side, start, turned]), axis=1, return_counts=True)[1]
    assert len(counts) == 8 * 2 * 2 * 2
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_spiral_is_one_corridor_in_all_eight_positions():
    levels, (length, _) = draws("SpiralS17", OWN["SpiralS17"])
    assert (length == (~levels.wall_map).sum((1, 2)) - 1).all()  # every free cell is on the way
    assert len(set(length)) == 1
    assert len(np.unique(levels.wall_map, axis=0)) == 8
    in_the_middle = (abs(levels.agent_pos - 7) <= 2).all(axis=1)
    assert 0.4 < in_the_middle.mean() < 0.6


def test_labyrinths_have_one_door_in_each_ring():
    levels, _ = draws("LabyrinthS27", OWN["LabyrinthS27"])
    assert (levels.goal_pos == 12).all()
    corners = np.unique(levels.agent_pos, axis=0, return_counts=True)
    assert set(corners[0].ravel()) == {0, 24}
    assert stats.chisquare(corners[1]).pvalue > 1e-3
    y, x = np.mgrid[:25, :25] - 12
    ring = np.maximum(abs(y), abs(x))
    for radius in range(12):
        free = ~levels.wall_map[:, ring == radius]
        if radius % 2 == 0:
            assert free.all()
        else:
            assert (free.sum(axis=1) == 1).all()
            counts = free.sum(axis=0)
            corner = (abs(y) == abs(x))[ring == radius]
            assert not counts[corner].any()
            if not corner.all():
                assert stats.chisquare(counts[~corner]).pvalue > 1e-3


@pytest.mark.parametrize(("make", "size"), [(layouts.rooms, 15), (layouts.labyrinth, 25)])
def test_layouts_refuse_sizes_that_do_not_fit(make, size):
    with pytest.raises(ValueError, match=f"size={size} does not fit"):
        make(jax.random.key(0), size)


# --- the suite as one batch


def play(env, level, actions):
    state, first = env.reset(jax.random.key(0), level)

    def step(state, action):
        return env.step(jax.random.key(0), state, action)

    return first, jax.lax.scan(step, state, actions)[1]


@pytest.mark.parametrize("see_through_walls", [False, *deep(True)])
def test_padding_changes_nothing_that_is_seen(see_through_walls):
    env = AMaze(see_through_walls=see_through_walls, obs_agent_pos=True)
    actions = np.random.default_rng(0).choice(3, size=200, p=[0.2, 0.2, 0.6]).astype(np.int32)

    def both():
        level = ood.load("MediumMaze")
        return play(env, level, actions), play(env, ood.pad(level, 12, 9), actions)

    jax.tree.map(np.testing.assert_array_equal, *jax.jit(both)())


LIMITS = {
    "SixteenRooms": 2 * 15 * 15,
    "LargeCorridor": 2 * 21 * 21,
    "PerfectMazeMedium": 2 * 21 * 21,
    "FourRooms": 250,
    "SimpleCrossingS11N5": 4 * 11 * 11,
    "TrainingDistribution": 40,
}


@pytest.mark.parametrize(
    "names",
    [
        ("SixteenRooms", "LargeCorridor", "FourRooms", "TrainingDistribution"),
        pytest.param((*ood.BENCHMARK, "TrainingDistribution"), marks=pytest.mark.deep),
    ],
    ids=["four", "benchmark"],
)
def test_the_suite_is_one_batch_with_each_mazes_own_limit(names):
    suite = make_held_out(ENV, names)
    assert suite.names == names
    levels = jax.device_get(jax.jit(lambda key: suite.sample(key, 2))(jax.random.key(0)))
    assert levels.maze.wall_map.shape == (len(names), 2, 19, 19)
    limits = dict(zip(names, levels.max_steps[:, 0].tolist(), strict=True))
    assert all(limits[name] == limit for name, limit in LIMITS.items() if name in names)
    assert suite.env.max_steps == 2 * 21 * 21
    assert levels.see_through_walls.all()


def test_episodes_end_at_their_own_limit_and_pay_by_it():
    suite = make_held_out(ENV, ["MiniMaze", "TrainingDistribution"])
    levels = jax.jit(lambda key: suite.sample(key, 1))(jax.random.key(0))
    mini, own = (jax.tree.map(lambda x, i=i: np.asarray(x[i, 0]), jax.device_get(levels)) for i in range(2))
    # right 3, down 2, left 1, down 1, left 2, up 1, with the turns between them
    walk = [2, 2, 2, 1, 2, 2, 1, 2, 0, 2, 1, 2, 2, 1, 2]
    actions = np.array([[6] * 80, [6] * 80, walk + [6] * (80 - len(walk))], np.int32)
    three = jax.tree.map(lambda *xs: np.stack(xs), mini, own, mini)
    playing = jax.jit(jax.vmap(lambda level, actions: play(suite.env, level, actions)[1]))
    steps = jax.tree.map(np.asarray, playing(three, actions))
    assert np.argmax(steps.truncated[:2], axis=1).tolist() == [2 * 6 * 6 - 1, 40 - 1]
    np.testing.assert_allclose(steps.reward[2, :15], [0] * 14 + [1 - 0.9 * 15 / 72], rtol=1e-6)
    assert steps.terminated[2, 14]


@pytest.mark.deep
def test_dcd_protocol_casts_shadows_in_rooms_and_crossings_and_faces_east_in_perfect_mazes():
    names = ("FourRooms", "SimpleCrossingS9N1", "SixteenRooms", "PerfectMaze")
    suite = make_held_out(ENV, names, protocol="dcd")

    def seen(key):
        several = suite.sample(key, 20)
        levels = jax.tree.map(lambda x: x[:, 0], several)
        first = jax.vmap(suite.env.reset, (None, 0))(key, levels)[1]
        plain = []
        for i, see_through_walls in enumerate((False, False, True, True)):
            env = dataclasses.replace(ENV, see_through_walls=see_through_walls)
            maze = jax.tree.map(lambda x, i=i: x[i], levels.maze)
            plain.append(env.reset(key, maze)[1].obs["image"])
        return levels, first.obs["image"], jnp.stack(plain), several.maze.agent_dir

    levels, image, plain, facing = jax.jit(seen)(jax.random.key(0))
    assert levels.see_through_walls.tolist() == [False, False, True, True]
    assert levels.max_steps.tolist() == [100, 4 * 81, 2 * 225, 2 * 121]
    assert [len(set(some.tolist())) for some in facing] == [4, 1, 1, 1]
    assert (facing[3] == 0).all()  # the agents of perfect mazes
    np.testing.assert_array_equal(image, plain)


@pytest.mark.deep
def test_dcd_protocol_faces_east_in_perfect_mazes_only():
    names, n = ("PerfectMaze", "PerfectMazeMedium", "FourRooms"), 100

    def drawn(key):
        return [make_held_out(ENV, names, protocol=protocol).sample(key, n).maze for protocol in ("minimax", "dcd")]

    minimax, dcd = jax.tree.map(np.asarray, jax.jit(drawn)(jax.random.key(0)))
    assert (dcd.agent_dir[:2] == 0).all()
    assert set(dcd.agent_dir[2].tolist()) == {0, 1, 2, 3}
    assert all(set(facing.tolist()) == {0, 1, 2, 3} for facing in minimax.agent_dir)
    for field in ("wall_map", "agent_pos", "goal_pos"):  # nothing else is different
        np.testing.assert_array_equal(getattr(dcd, field), getattr(minimax, field))


def test_episodes_of_a_task_depend_on_the_key_and_its_name_alone():
    together = make_held_out(ENV, ["FourRooms", "SmallCorridor"])
    alone = make_held_out(ENV, ["SmallCorridor", "LargeCorridor"])
    draw = jax.jit(lambda key: (together.sample(key, 6).maze.goal_pos[1], alone.sample(key, 6).maze.goal_pos[0]))
    (a, b), (other, _) = (jax.device_get(draw(jax.random.key(seed))) for seed in (5, 6))
    np.testing.assert_array_equal(a, b)
    assert (a != other).any()
    assert len(np.unique(a, axis=0)) > 1


def test_load_pads_and_stacks():
    assert fixed()["MiniMaze"][0].wall_map.shape == (4, 4)

    def load(key):
        two = jax.vmap(lambda key: ood.load("PerfectMaze", key).wall_map)(jax.random.split(key))
        return ood.load("MiniMaze", size=(6, 5)), ood.load(["MiniMaze", "MediumMaze"]), two

    padded, stacked, (a, b) = jax.device_get(jax.jit(load)(jax.random.key(0)))
    assert rows(padded) == ["....#", "###.#", ".#..#", "...##", "#####", "#####"]
    assert stacked.wall_map.shape == (2, 8, 8)
    assert (a != b).any()


def test_a_maze_loaded_alone_is_that_of_a_list():
    names = ("PerfectMaze", "SmallCorridor")

    def load(key):
        alone = [ood.load(name, key, size=(20, 20)) for name in names]
        return alone, ood.load(["FourRooms", *names], key, size=(20, 20))

    alone, listed = jax.tree.map(np.asarray, jax.jit(load)(jax.random.key(3)))
    for i, one in enumerate(alone):
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a, b[1 + i]), one, listed)


def test_name_tuples_name_mazes():
    assert all(set(group) <= {*ood.MAZES, "TrainingDistribution"} for group in ood.GROUPS.values())
    assert len(ood.BENCHMARK) == 12
    assert ood.MINIMAX_VALIDATION == ("SixteenRooms", "Labyrinth", "StandardMaze")


def test_validation_shares_no_maze_with_the_benchmark():
    # Mazes of different sizes are different, turned and flipped ones too.
    sizes = {
        group: {(ood.MAZES[name].height, ood.MAZES[name].width) for name in ood.GROUPS[group]}
        for group in ood.GROUPS
        if group != "all"
    }
    assert all(height == width for height, width in sizes["validation"] | sizes["benchmark"])
    assert not sizes["validation"] & sizes["benchmark"]
    assert not sizes["validation"] & sizes["hard"]
    assert AMaze().height not in {height for height, _ in sizes["validation"]}  # nor one with the training levels


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ood.load("Labirinth"), "unknown maze 'Labirinth'.*did you mean 'Labyrinth'"),
        (lambda: ood.load("SixteenRooms", size=(12, 13)), "too small for a maze of 13 x 13"),
        (lambda: make_held_out(ENV, ["FourRoom"]), "did you mean 'FourRooms'"),
        (lambda: make_held_out(ENV, ["FourRooms"], protocol="dcm"), "protocol 'dcm'.*did you mean 'dcd'"),
        (lambda: make_held_out(ENV, ["FourRooms"], protocl="dcd"), "did you mean 'protocol'"),
        (lambda: make_held_out(ENV, []), "at least one"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
