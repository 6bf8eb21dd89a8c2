"""The maze teacher against a plain Python model of the design task, on the most difficult action sequences.

Statistics: chi-squared on fixed keys, refused at p < 1e-4.
"""

import dataclasses
import functools
import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign, MazeTeacher
from minimax_lib.envs.spaces import Box, Dict, Discrete
from minimax_lib.testing.envs import check_environment

LEAST_P = 1e-4
N_AFTER = 3  # steps that are played after the longest design
EMPTY_CODE, WALL_CODE, GOAL_CODE = [1, 0, 0], [2, 5, 0], [8, 1, 0]
AGENT_OBJECT = 10

TEACHERS = [
    MazeTeacher(height=4, width=3, n_walls=5, noise_dim=2),
    MazeTeacher(height=3, width=4, n_walls=10, noise_dim=0),
    MazeTeacher(height=4, width=3, n_walls=10, replace_walls=False, set_agent_dir=True, noise_dim=0),
    MazeTeacher(height=3, width=4, n_walls=7, replace_walls=False, budget="first_action", noise_dim=0),
    MazeTeacher(height=2, width=5, n_walls=8, budget="first_action", set_agent_dir=True, noise_dim=0),
    MazeTeacher(height=5, width=2, n_walls=8, replace_walls=False, budget="first_wall", noise_dim=0),
    MazeTeacher(height=1, width=2, n_walls=0, set_agent_dir=True, noise_dim=0),
    # small enough for every action sequence
    MazeTeacher(height=2, width=2, n_walls=2, noise_dim=0),
    MazeTeacher(height=2, width=2, n_walls=2, replace_walls=False, set_agent_dir=True, noise_dim=0),
    MazeTeacher(height=1, width=3, n_walls=1, replace_walls=False, budget="first_action", set_agent_dir=True,
                noise_dim=0),
    MazeTeacher(height=3, width=1, n_walls=1, budget="first_wall", noise_dim=0),
    # with so many designs that chance can be seen
    MazeTeacher(height=3, width=4, n_walls=3, replace_walls=False, noise_dim=2),
]  # fmt: skip
SMALLEST, CHANCY = TEACHERS[-3], TEACHERS[-1]
N_CHANCES = 6000
SECOND_WALL, AGENT_ON_GOAL = [5, 8, 5, 0, 1, 0, 0, 0], [4, 5, 11, 7, 7, 0, 0, 0]


def name_of(teacher: MazeTeacher) -> str:
    words = [f"{teacher.height}x{teacher.width}", str(teacher.n_walls), teacher.budget]
    return "-".join(words + ["distinct"] * (not teacher.replace_walls) + ["facing"] * teacher.set_agent_dir)


# Every budget, with and without distinct walls, with and without a facing.
QUICK = TEACHERS[-3:]
every_teacher = pytest.mark.parametrize(
    "teacher",
    [teacher if teacher in QUICK else pytest.param(teacher, marks=pytest.mark.deep) for teacher in TEACHERS],
    ids=name_of,
)


class Designs(NamedTuple):
    """N designs as numpy arrays; T = max_steps + N_AFTER, and one more state and observation for the reset."""

    actions: np.ndarray  # [N, T]
    facing: np.ndarray  # [N], of the canvas
    states: object  # [N, T + 1, ...]
    obs: dict  # [N, T + 1, ...]
    reward: np.ndarray  # [N, T + 1]
    terminated: np.ndarray
    truncated: np.ndarray
    levels: object  # [N, T + 1, ...], to_level of every state


@functools.partial(jax.jit, static_argnums=0)
def design(teacher: MazeTeacher, key: jax.Array, actions: jax.Array):
    """The designs of all rows of `actions`, each on its own canvas."""

    def one(key, actions):
        k_canvas, k_reset, k_steps = jax.random.split(key, 3)
        canvas = teacher.sample_level(k_canvas)
        first = teacher.reset(k_reset, canvas)

        def step(state, inputs):
            state, ts = teacher.step(inputs[0], state, inputs[1])
            return state, (state, ts)

        steps = jax.lax.scan(step, first[0], (jax.random.split(k_steps, len(actions)), actions))[1]
        states, ts = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, steps)
        return canvas.agent_dir, states, ts, jax.vmap(teacher.to_level)(states)

    return jax.vmap(one)(jax.random.split(key, len(actions)), actions)


def play(teacher: MazeTeacher, actions: np.ndarray, seed: int = 0) -> Designs:
    found = design(teacher, jax.random.key(seed), jnp.asarray(actions, jnp.int32))
    facing, states, ts, levels = jax.tree.map(np.asarray, found)
    return Designs(actions, facing, states, ts.obs, ts.reward, ts.terminated, ts.truncated, levels)


def action_sequences(teacher: MazeTeacher) -> np.ndarray:
    """[N, T]: all action sequences if they are few; otherwise the most difficult ones, and random ones."""
    n_cells, n_steps = teacher.height * teacher.width, teacher.max_steps
    random = np.random.default_rng(0)
    if n_cells**n_steps <= 1024:
        rows = [list(row) for row in itertools.product(range(n_cells), repeat=n_steps)]
    else:
        rows = [[cell] * n_steps for cell in range(n_cells)]  # walls, goal and agent in one cell
        for first, then in itertools.product(range(0, n_cells, 2), repeat=2):
            rows.append([first] + [then] * (n_steps - 1))  # with every length of episode
            rows.append([first] * (n_steps - 2) + [then] * 2)  # goal and agent together
        order = np.resize(np.arange(n_cells), (n_cells + n_steps,))
        rows += [order[start : start + n_steps].tolist() for start in range(n_cells)]  # a wall in every cell
        rows += [order[start : start + n_steps][::-1].tolist() for start in range(n_cells)]
        rows += random.integers(0, n_cells, (150, n_steps)).tolist()
    after = random.integers(0, n_cells, (len(rows), N_AFTER))
    return np.concatenate([np.array(rows), after], axis=1)


@functools.cache
def played(teacher: MazeTeacher) -> Designs:
    """The designs of `action_sequences`; of CHANCY, those of `chances` after them, in the same program."""
    actions = action_sequences(teacher)
    if teacher == CHANCY:
        actions = np.concatenate([actions, np.repeat([SECOND_WALL, AGENT_ON_GOAL], N_CHANCES, axis=0)])
    return play(teacher, actions)


def designs(teacher: MazeTeacher) -> Designs:
    return rows_of(played(teacher), slice(len(action_sequences(teacher))))


def chances() -> Designs:
    """`N_CHANCES` designs by CHANCY with two walls in one cell, then as many with the agent on the goal."""
    return rows_of(played(CHANCY), slice(-2 * N_CHANCES, None))


def rows_of(found: Designs, rows: slice) -> Designs:
    return Designs(*jax.tree.map(lambda x: x[rows], tuple(found)))


# --- the model


class Model:
    """The design task in plain Python. A cell is (x, y). Random choices are taken from the teacher's image."""

    def __init__(self, teacher: MazeTeacher, facing: int):
        self.teacher, self.facing = teacher, facing
        self.walls: set[tuple[int, int]] = set()
        self.goal: tuple[int, int] | None = None
        self.agent: tuple[int, int] | None = None
        self.to_do = ["budget"] if teacher.budget == "first_action" else self.plan(teacher.n_walls)
        self.time = 0
        self.n_relocated = 0

    def plan(self, n_walls: int) -> list[str]:
        return ["wall"] * n_walls + ["goal", "agent"] + (["facing"] if self.teacher.set_agent_dir else [])

    def share(self, action: int) -> int:
        """The number of walls that an action asks for. Halves are rounded up."""
        exact = Fraction(self.teacher.n_walls * action, self.teacher.height * self.teacher.width - 1)
        return math.floor(exact + Fraction(1, 2))

    def step(self, action: int, shown: np.ndarray) -> None:
        """`shown` is the image after the step."""
        if not self.to_do:
            return
        if self.time == 0 and self.teacher.budget == "first_wall":
            self.to_do = self.plan(max(1, self.share(action)))
        self.time += 1
        kind = self.to_do.pop(0)
        cell = (action % self.teacher.width, action // self.teacher.width)
        if kind == "budget":
            self.to_do = self.plan(self.share(action))
        elif kind == "wall":
            if cell in self.walls and not self.teacher.replace_walls:
                cell = self.relocated(shown, WALL_CODE[0])
            self.walls.add(cell)
        elif kind == "goal":
            self.walls.discard(cell)
            self.goal = cell
        elif kind == "agent":
            if cell == self.goal:
                cell = self.relocated(shown, AGENT_OBJECT)
            self.walls.discard(cell)
            self.agent = cell
        else:
            self.facing = action * 4 // (self.teacher.height * self.teacher.width)

    def relocated(self, shown: np.ndarray, thing: int) -> tuple[int, int]:
        """The one free cell in which `thing` now is."""
        inside = shown[1:-1, 1:-1, 0]
        here = {(int(x), int(y)) for y, x in np.argwhere(inside == thing)} - self.walls
        self.n_relocated += 1
        assert len(here) == 1, "it must go to one cell that has no wall"
        (cell,) = here
        assert cell != self.goal
        return cell

    def image(self) -> np.ndarray:
        shown = np.full((self.teacher.height + 2, self.teacher.width + 2, 3), WALL_CODE, np.uint8)
        for x, y in itertools.product(range(self.teacher.width), range(self.teacher.height)):
            code = WALL_CODE if (x, y) in self.walls else EMPTY_CODE
            code = GOAL_CODE if (x, y) == self.goal else code
            shown[y + 1, x + 1] = [AGENT_OBJECT, 0, self.facing] if (x, y) == self.agent else code
        return shown


def assert_level(level, walls, agent, facing, goal) -> None:
    assert {(int(x), int(y)) for y, x in np.argwhere(level.wall_map)} == walls
    assert (tuple(level.agent_pos), int(level.agent_dir), tuple(level.goal_pos)) == (agent, facing, goal)


@every_teacher
def test_lockstep_with_a_plain_model(teacher):
    found = designs(teacher)
    n_relocated, lengths = 0, set()
    for i, actions in enumerate(found.actions):
        model = Model(teacher, int(found.facing[i]))
        np.testing.assert_array_equal(found.obs["image"][i, 0], model.image())
        assert found.obs["time"][i, 0] == 0
        assert not found.terminated[i, 0]
        for t, action in enumerate(actions):
            shown = found.obs["image"][i, t + 1]
            model.step(int(action), shown)
            np.testing.assert_array_equal(shown, model.image(), f"design {i}, step {t}")
            assert found.obs["time"][i, t + 1] == model.time
            assert found.terminated[i, t + 1] == (not model.to_do)
        assert_level(
            jax.tree.map(lambda x, i=i: x[i, -1], found.levels), model.walls, model.agent, model.facing, model.goal
        )
        n_relocated += model.n_relocated
        lengths.add(model.time)
    assert n_relocated > 0
    fewer = {"fixed": 0, "first_action": teacher.n_walls, "first_wall": teacher.n_walls - 1}[teacher.budget]
    assert lengths == set(range(teacher.max_steps - fewer, teacher.max_steps + 1))
    assert not found.reward.any()
    assert not found.truncated.any()


@every_teacher
def test_every_action_sequence_ends_in_a_valid_level(teacher):
    found = designs(teacher)
    levels = jax.tree.map(lambda x: x[:, -1], found.levels)
    rows = np.arange(len(found.actions))
    assert found.terminated[:, teacher.max_steps].all()
    for pos in (levels.agent_pos, levels.goal_pos):
        assert ((pos >= 0) & (pos < [teacher.width, teacher.height])).all()
        assert not levels.wall_map[rows, pos[:, 1], pos[:, 0]].any()
    assert (levels.agent_pos != levels.goal_pos).any(axis=1).all()
    assert np.isin(levels.agent_dir, range(4)).all()
    for leaf, like in zip(
        jax.tree.leaves(levels),
        jax.tree.leaves(jax.eval_shape(AMaze(n_walls=0).sample_level, jax.random.key(0))),
        strict=True,
    ):
        assert leaf.dtype == like.dtype


@every_teacher
def test_the_last_image_is_the_level(teacher):
    found = designs(teacher)
    for i, image in enumerate(found.obs["image"][:, -1]):
        inside = image[1:-1, 1:-1]
        (goal,), (agent,) = (np.argwhere(inside[..., 0] == thing)[:, ::-1] for thing in (GOAL_CODE[0], AGENT_OBJECT))
        walls = {(int(x), int(y)) for y, x in np.argwhere(inside[..., 0] == WALL_CODE[0])}
        level = jax.tree.map(lambda x, i=i: x[i, -1], found.levels)
        assert_level(level, walls, tuple(agent), inside[agent[1], agent[0], 2], tuple(goal))


@every_teacher
def test_a_finished_design_stays_as_it_is(teacher):
    found = designs(teacher)
    over = found.terminated[:, :-1]
    assert (over.sum(axis=1) >= N_AFTER).all()
    assert found.terminated[:, 1:][over].all()
    for leaf in [*jax.tree.leaves(found.states), found.obs["image"], found.obs["time"]]:
        np.testing.assert_array_equal(leaf[:, 1:][over], leaf[:, :-1][over])


# --- conformance, lengths and facing


@pytest.mark.deep
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"budget": "first_action", "noise_dim": 0},
        {"budget": "first_wall", "replace_walls": False},
        {"set_agent_dir": True, "n_walls": 0},
    ],
    ids=str,
)
def test_the_teacher_conforms(settings):
    check_environment(
        MazeTeacher(**{"height": 3, "width": 4, "n_walls": 5, "noise_dim": 3} | settings), jax.random.key(0)
    )


def test_the_published_task():
    teacher = MazeTeacher()
    assert teacher.max_steps == 62
    assert teacher.action_space == Discrete(169)
    image = ("image", Box(0, 10, (15, 15, 3), "uint8", changes_slowly=True))
    time = ("time", Discrete(63))
    assert teacher.observation_space == Dict((image, time, ("noise", Box(0, 1, (50,), "float32"))))
    assert dataclasses.replace(teacher, noise_dim=0).observation_space == Dict((image, time))
    lengths = [
        dataclasses.replace(teacher, budget=budget, set_agent_dir=set_agent_dir).max_steps
        for budget in ("fixed", "first_action", "first_wall")
        for set_agent_dir in (False, True)
    ]
    assert lengths == [62, 63, 63, 64, 62, 63]


def test_the_first_action_sets_the_length_of_the_smallest_designs():
    """At most one wall in three cells: 0, .5, 1 of it, halves rounded up; then goal, agent and facing."""
    found = designs(SMALLEST)
    for first, n_steps in enumerate([4, 5, 5]):
        assert set(found.obs["time"][found.actions[:, 0] == first, -1]) == {n_steps}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("budget", "n_steps"),
    [("first_action", [3, 4, 4, 5, 5, 6, 6, 7, 7]), ("first_wall", [3, 3, 3, 4, 4, 5, 5, 6, 6])],
)
def test_the_first_action_sets_the_length(budget, n_steps):
    """Four walls on nine cells: 0, .5, 1, ... 4 of them, halves rounded up; with a first wall at least that one."""
    teacher = MazeTeacher(height=3, width=3, n_walls=4, budget=budget, noise_dim=0)
    actions = np.zeros((9, teacher.max_steps + N_AFTER), int)
    actions[:, 0] = np.arange(9)
    assert play(teacher, actions).obs["time"][:, -1].tolist() == n_steps


@pytest.mark.deep
def test_the_facing_is_random_or_set():
    teacher = MazeTeacher(height=3, width=3, n_walls=0, noise_dim=0)
    actions = np.tile(np.arange(9)[:, None], (300, 3 + N_AFTER))
    free = play(teacher, actions)
    np.testing.assert_array_equal(free.levels.agent_dir[:, -1], free.facing)
    assert chisquare(np.bincount(free.facing, minlength=4)).pvalue > LEAST_P
    placed = play(dataclasses.replace(teacher, set_agent_dir=True), actions)
    np.testing.assert_array_equal(placed.levels.agent_dir[:, 2], placed.facing)
    assert placed.levels.agent_dir[:9, -1].tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]


# --- chance


def counts_of(cells: np.ndarray, n_cells: int) -> np.ndarray:
    return np.bincount(cells, minlength=n_cells)


def assert_uniform_over(counts: np.ndarray, cells: list[int]) -> None:
    assert counts.sum() == counts[cells].sum()
    assert chisquare(counts[cells]).pvalue > LEAST_P


def test_the_facing_is_random():
    found = chances()
    np.testing.assert_array_equal(found.levels.agent_dir[:, -1], found.facing)
    assert chisquare(np.bincount(found.facing, minlength=4)).pvalue > LEAST_P


def test_a_second_wall_in_a_cell_goes_to_any_free_cell():
    walls = chances().levels.wall_map[:N_CHANCES].reshape(N_CHANCES, -1, 12)
    assert (walls[:, 3].sum(axis=1) == 3).all()
    assert_uniform_over(counts_of(np.argwhere(walls[:, 3] & ~walls[:, 2])[:, 1], 12), [0, 1, 2, 3, 4, 6, 7, 9, 10, 11])


def test_an_agent_on_the_goal_goes_to_any_free_cell():
    levels = jax.tree.map(lambda x: x[N_CHANCES:, -1], chances().levels)
    x, y = levels.agent_pos.T
    assert_uniform_over(counts_of(y * 4 + x, 12), [0, 1, 2, 3, 6, 8, 9, 10])
    assert (levels.wall_map.sum(axis=(1, 2)) == 3).all()


def test_noise_is_uniform_and_new_at_every_step():
    noise = chances().obs["noise"][::12]
    assert noise.shape == (1000, CHANCY.max_steps + N_AFTER + 1, CHANCY.noise_dim)
    assert len(np.unique(noise)) > 0.99 * noise.size
    assert chisquare(np.histogram(noise, bins=20, range=(0, 1))[0]).pvalue > LEAST_P
    for now, next_ in [(noise[:, :-1], noise[:, 1:]), (noise[..., 0], noise[..., 1]), (noise[:-1], noise[1:])]:
        cells = np.histogram2d(now.ravel(), next_.ravel(), bins=4, range=[(0, 1), (0, 1)])[0]
        assert chisquare(cells.ravel()).pvalue > LEAST_P


# --- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"height": 0}, "height=0"),
        ({"width": 3.0}, "width=3.0"),
        ({"height": 1, "width": 1, "n_walls": 0}, "at least 2 cells"),
        ({"n_walls": -1}, "n_walls=-1"),
        ({"n_walls": None}, "n_walls=None"),
        ({"height": 3, "width": 4, "n_walls": 11}, r"n_walls=11 .*12 cells.*at most 10"),
        ({"n_walls": 0, "budget": "first_wall"}, r"n_walls=0.*first_wall.*at least 1"),
        ({"budget": "first_wal"}, r"budget 'first_wal'.*did you mean 'first_wall'"),
        ({"replace_walls": 1}, "replace_walls=1"),
        ({"set_agent_dir": "no"}, "set_agent_dir='no'"),
        ({"noise_dim": -1}, "noise_dim=-1"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings, words):
    with pytest.raises(ValueError, match=words) as error:
        MazeTeacher(**settings)
    assert "\n" not in str(error.value)


def test_a_design_is_for_the_grid_of_its_environment():
    env = AMaze(height=4, width=7, n_walls=9)
    assert MazeDesign().build(env) == MazeTeacher(height=4, width=7, n_walls=9)
    every = {"n_walls": 3, "replace_walls": False, "budget": "first_wall", "set_agent_dir": True, "noise_dim": 5}
    assert MazeDesign(**every).build(env) == MazeTeacher(height=4, width=7, **every)
    assert MazeDesign(n_walls=0).build(env).n_walls == 0
    shared = {field.name: field.default for field in dataclasses.fields(MazeTeacher)}
    for field in dataclasses.fields(MazeDesign):
        assert field.name == "n_walls" or field.default == shared[field.name]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_walls": 27}, r"design\.n_walls=27 .*at most 26"),
        ({"n_walls": -2}, r"design\.n_walls=-2"),
        ({"budget": "first_wall"}, r"design\.n_walls=0.*first_wall"),
        ({"budget": "fist_action"}, r"design\.budget 'fist_action'.*did you mean 'first_action'"),
        ({"noise_dim": 1.5}, r"design\.noise_dim=1\.5"),
        ({"set_agent_dir": None}, r"design\.set_agent_dir=None"),
    ],
)
def test_an_impossible_design_is_refused_by_the_name_of_its_setting(settings, words):
    with pytest.raises(ValueError, match=words) as error:
        MazeDesign(**settings).build(AMaze(height=4, width=7, n_walls=0))
    assert "\n" not in str(error.value)


def test_a_design_is_for_mazes():
    with pytest.raises(ValueError, match="levels of AMaze, not of MazeTeacher"):
        MazeDesign().build(MazeTeacher())
