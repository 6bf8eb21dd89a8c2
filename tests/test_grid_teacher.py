"""The teacher of the object world against a plain Python model of the design task (chi-squared, fails at p < 1e-4)."""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from minimax_lib.envs.grid import GridWorld
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.teacher import GridDesign, GridTeacher
from minimax_lib.envs.grid.validity import is_valid
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import make_ued_env
from minimax_lib.envs.spaces import Box, Dict, Discrete
from minimax_lib.testing.envs import check_teacher

LEAST_P = 1e-4
N_AFTER = 2  # steps that are played after the longest design
N_DESIGNS = 240
# Walls in cells 0, 1, 2; doors in 3 and 4; a lock in 5. The key is asked for in cell 0.
CHANCES = np.tile([0, 1, 2, 3, 4, 5, 0, 5, 6, 6, 6, 6, 6, 6], (6000, 1))
FRAME = {"height": 5, "width": 6, "level_steps": 30}  # 12 cells inside the border


class Thing(NamedTuple):
    """What a step places."""

    word: str
    seen: tuple[int, int, int] | None  # MiniGrid's numbers
    is_needed: bool = False
    opens: int = -1  # the colour of the locks that it opens, also from inside a box


def thing(word: str, number: int = 0) -> Thing:
    """The thing of this kind with this number, counted from 0."""
    seen = {
        "wall": (2, 5, 0),
        "door": (4, number, 1),
        "lock": (4, number, 2),
        "key": (5, number, 0),
        "boxed key": (7, 5, 0),
        "ball": (6, number, 0),
        "goal": (8, 1, 0),
        "agent": (10, 0, 0),
    }
    is_key = word in ("key", "boxed key")
    return Thing(word, seen.get(word), is_key or word in ("goal", "agent"), number if is_key else -1)


WALL, GOAL, AGENT = thing("wall"), thing("goal"), thing("agent")
TOOLS = ("wall", "door", "lock", "key", "boxed key", "ball")
TEACHERS = {
    # As many things as cells: in the end, there may be a single empty cell.
    "full": (
        GridTeacher(**FRAME, schedule="3 walls, 2 doors, lock, key, lock, boxed key, ball, goal, agent", noise_dim=2),
        [WALL] * 3
        + [thing("door", 0), thing("door", 1), thing("lock", 0), thing("key", 0), thing("lock", 1)]
        + [thing("boxed key", 1), thing("ball", 0), GOAL, AGENT],
    ),
    "first_action": (
        GridTeacher(**FRAME, schedule="6 walls, lock, lock, key, goal, agent", budget="first_action", noise_dim=0),
        [WALL] * 6 + [thing("lock", 0), thing("lock", 1), thing("key", 0), GOAL, AGENT],
    ),
    "first_wall": (
        GridTeacher(**FRAME, schedule="4 walls,agent, 2 balls, goals,2 walls", budget="first_wall", noise_dim=0),
        [WALL] * 4 + [AGENT, thing("ball", 0), thing("ball", 1), GOAL, WALL, WALL],
    ),
    "choices": (
        GridTeacher(**FRAME, schedule="2 walls, 7 choices, goal, agent", budget="first_action", noise_dim=0),
        [WALL] * 2 + [thing("choice")] * 7 + [GOAL, AGENT],
    ),
}


class Designs(NamedTuple):
    """N designs as numpy arrays, with T = max_steps + N_AFTER steps, and one more entry for the reset."""

    actions: np.ndarray  # [N, T]
    facing: np.ndarray  # [N]
    states: object  # [N, T + 1, ...]
    ts: object  # [N, T + 1, ...]
    levels: object  # [N, ...], in the end
    valid: np.ndarray  # bool[N]


@functools.partial(jax.jit, static_argnums=0)
def design(teacher: GridTeacher, key: jax.Array, actions: jax.Array):
    """The designs of all rows of `actions`, each on its own canvas."""

    def one(key, actions):
        k_canvas, k_reset, k_steps = jax.random.split(key, 3)
        canvas = teacher.sample_level(k_canvas)
        first = teacher.reset(k_reset, canvas)

        def step(state, inputs):
            state, ts = teacher.step(inputs[0], state, inputs[1])
            return state, (state, ts)

        last, steps = jax.lax.scan(step, first[0], (jax.random.split(k_steps, len(actions)), actions))
        states, ts = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, steps)
        level = teacher.to_level(last)
        return canvas.agent_dir, states, ts, level, is_valid(level)

    return jax.vmap(one)(jax.random.split(key, len(actions)), actions)


def play(teacher: GridTeacher, actions: np.ndarray) -> Designs:
    found = design(teacher, jax.random.key(0), jnp.asarray(actions, jnp.int32))
    return Designs(actions, *jax.tree.map(np.asarray, found))


@functools.cache
def played(name: str) -> Designs:
    """All actions in one cell, few cells in turn, and random ones; of "full", the designs of `CHANCES` after them."""
    teacher, random = TEACHERS[name][0], np.random.default_rng(0)
    n_steps = teacher.max_steps + N_AFTER
    same = np.repeat(np.arange(12)[:, None], n_steps, axis=1)
    turns = np.stack([np.resize(random.permutation(12)[:4], n_steps) for _ in range(40)])
    rest = random.integers(12, size=(N_DESIGNS - len(same) - len(turns), n_steps))
    return play(teacher, np.concatenate([same, turns, rest] + [CHANCES] * (name == "full")))


def designs(name: str) -> Designs:
    return Designs(*jax.tree.map(lambda x: x[:N_DESIGNS], tuple(played(name))))


QUICK = ("full", "choices")  # every thing, every step and a budget
every_teacher = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in TEACHERS]
)


class Model:
    """The design task in plain Python. Where something goes by chance is read off the image."""

    def __init__(self, name: str, facing: int):
        self.teacher, self.steps = TEACHERS[name]
        self.facing, self.time = facing, 0
        self.placed: dict[tuple[int, int], Thing] = {}  # in cells inside the border, [y, x]
        self.chosen: list[str] = []  # kinds
        self.tool = ""  # that the next step places, if it was chosen
        self.first_walls = next(i for i, step in enumerate(self.steps) if step != WALL)
        self.to_do = list(self.steps)
        if self.teacher.budget == "first_action":
            self.to_do.insert(0, thing("budget"))

    def budget(self, action: int, least: int) -> list[Thing]:
        """The steps when the first action is this. Halves are rounded up."""
        n_walls = max(least, math.floor(Fraction(self.first_walls * action, 11) + Fraction(1, 2)))
        return self.steps[self.first_walls - n_walls :]

    def step(self, action: int, shown: np.ndarray) -> int:
        """How many things went elsewhere by chance, 0 or 1. `shown` is the image after the step."""
        if not self.to_do:
            return 0
        if self.time == 0 and self.teacher.budget == "first_wall":
            self.to_do = self.budget(action, 1)
        self.time += 1
        now, self.tool = self.to_do.pop(0), ""
        if now.word == "budget":
            self.to_do = self.budget(action, 0)
            return 0
        if now.word == "choice":
            self.tool = TOOLS[action % 6]
            self.to_do.insert(0, self.choose(self.tool))
            return 0
        cell = divmod(action, 4)
        is_taken = cell in self.placed
        if is_taken and not now.is_needed:
            return 0
        if is_taken:
            inside = shown[1:-1, 1:-1]
            here = {(int(y), int(x)) for y, x in np.argwhere((inside == self.seen(now)).all(axis=2))}
            assert len(here - set(self.placed)) == 1, "it must go to one empty cell"
            (cell,) = here - set(self.placed)
        self.placed[cell] = now
        return int(is_taken)

    def choose(self, word: str) -> Thing:
        """The next thing of this kind. Keys are counted together, in boxes or not."""
        kind = word.removeprefix("boxed ")
        number = self.chosen.count(kind)
        self.chosen.append(kind)
        return thing(word, number % 6)

    def seen(self, placed: Thing) -> tuple[int, int, int]:
        assert placed.seen is not None
        return (10, 0, self.facing) if placed == AGENT else placed.seen

    def image(self) -> np.ndarray:
        shown = np.full((5, 6, 3), (2, 5, 0), np.uint8)
        shown[1:-1, 1:-1] = (1, 0, 0)
        for (y, x), placed in self.placed.items():
            shown[1 + y, 1 + x] = self.seen(placed)
        return shown


@every_teacher
def test_lockstep_with_a_plain_model(name):
    found, teacher = designs(name), TEACHERS[name][0]
    n_by_chance, lengths, n_lost = 0, set(), 0
    for i, actions in enumerate(found.actions):
        model = Model(name, int(found.facing[i]))
        for t in range(len(actions) + 1):
            shown = found.ts.obs["image"][i, t]
            if t:
                n_by_chance += model.step(int(actions[t - 1]), shown)
            np.testing.assert_array_equal(shown, model.image(), f"design {i}, step {t}")
            assert found.ts.obs["time"][i, t] == model.time
            assert found.ts.terminated[i, t] == (not model.to_do)
            if "choice" in teacher.schedule:
                assert_sees_the_choice(jax.tree.map(lambda x, i=i, t=t: x[i, t], found.ts.obs), model)
        lengths.add(model.time)
        n_lost += assert_is_level(jax.tree.map(lambda x, i=i: x[i], found.levels), model)
    assert n_by_chance > 20
    assert (n_lost > 20) == (name in ("first_action", "choices"))  # the schedules with locks that have no key
    most, fewest = {"full": (12, 12), "first_action": (12, 6), "first_wall": (10, 7), "choices": (19, 17)}[name]
    assert teacher.max_steps == most
    assert lengths == set(range(fewest, most + 1))
    assert not found.ts.reward.any()
    assert not found.ts.truncated.any()


def assert_sees_the_choice(obs, model: Model) -> None:
    """The mask allows the tools or the cells, and the teacher sees the tool that it has chosen."""
    chooses = bool(model.to_do) and model.to_do[0].word == "choice"
    assert obs["action_mask"].tolist() == [not chooses or i < 6 for i in range(12)]
    assert ("", *TOOLS)[obs["tool"]] == model.tool


def assert_is_level(level, model: Model) -> int:
    """The level is what the model has placed, with the locks without a key closed, whose number this returns."""
    opened = {placed.opens for placed in model.placed.values()}
    n_lost = 0
    for (y, x), placed in model.placed.items():
        expected = placed.seen
        if placed == AGENT:
            assert level.agent_pos.tolist() == [x + 1, y + 1]
            expected = (1, 0, 0)
        if placed.word == "lock" and placed.seen[1] not in opened:
            expected = (4, placed.seen[1], 1)
            n_lost += 1
        cell = int(level.grid[y + 1, x + 1])
        assert (cell & 15, cell >> 4 & 7, cell >> 7 & 3) == expected
        assert cell >> 9 == (5 | placed.opens << 4 if placed.word == "boxed key" else 0)
    return n_lost


@every_teacher
def test_every_design_is_a_valid_level(name):
    found, teacher = designs(name), TEACHERS[name][0]
    assert found.valid.all()
    assert found.ts.terminated[:, teacher.max_steps].all()
    grid = found.levels.grid
    locks = [(grid & 511 == 4 | c << 4 | 2 << 7).any(axis=(1, 2)) for c in range(6)]
    keys = [((grid & 127 == 5 | c << 4) | (grid >> 9 == 5 | c << 4)).any(axis=(1, 2)) for c in range(6)]
    assert not (np.array(locks) & ~np.array(keys)).any()
    assert np.array(locks).any() == (
        "lock" in teacher.schedule or "choice" in teacher.schedule
    )  # those with a key stay
    assert (found.levels.max_steps == 30).all()
    assert not found.levels.task.any()
    np.testing.assert_array_equal(found.levels.agent_dir, found.facing)
    assert set(found.facing) == {0, 1, 2, 3}


@every_teacher
def test_a_finished_design_stays_as_it_is(name):
    found = designs(name)
    over = found.ts.terminated[:, :-1]
    assert (over.sum(axis=1) >= N_AFTER).all()
    for leaf in [*jax.tree.leaves(found.states), found.ts.obs["image"], found.ts.obs["time"]]:
        np.testing.assert_array_equal(leaf[:, 1:][over], leaf[:, :-1][over])


def test_what_goes_elsewhere_is_equally_likely_in_all_empty_cells():
    image = played("full").ts.obs["image"][N_DESIGNS:, 7, 1:-1, 1:-1].reshape(-1, 12, 3)
    places = np.argwhere((image == thing("key").seen).all(axis=2))[:, 1]
    assert len(places) == 6000
    counts = np.bincount(places, minlength=12)
    assert not counts[:6].any()
    assert chisquare(counts[6:]).pvalue > LEAST_P


def test_noise_is_uniform_and_new_at_every_step():
    noise = designs("full").ts.obs["noise"]
    assert noise.shape[1:] == (15, 2)
    assert len(np.unique(noise)) > 0.99 * noise.size
    assert chisquare(np.histogram(noise, bins=20, range=(0, 1))[0]).pvalue > LEAST_P


@pytest.mark.deep
def test_the_teacher_conforms():
    design = {"noise_dim": 2, "schedule": "wall, 2 choices, goal, agent", "budget": "first_action"}
    pair = make_ued_env(
        "GridWorld", design=design, family=EmptyRoom(4, 5, max_steps=9), view_size=3, see_through_walls=True
    )
    check_teacher(pair, jax.random.key(0), n_rows=4)


# --- settings


def test_the_default_is_that_of_the_design_task_and_grows_with_the_frame():
    def built(side: int, **settings) -> GridTeacher:
        return GridDesign(**settings).build(GridWorld(EmptyRoom(side, side)))

    assert built(15) == GridTeacher()
    assert GridTeacher().schedule == "25 walls, 2 doors, lock, key, lock, boxed key, 2 balls, goal, agent"
    assert GridTeacher().max_steps == 35
    assert GridTeacher().action_space == Discrete(169)
    image = ("image", Box(0, 10, (15, 15, 3), "uint8", changes_slowly=True))
    time = ("time", Discrete(36))
    assert GridTeacher().observation_space == Dict((image, time, ("noise", Box(0, 1, (50,), "float32"))))
    assert dataclasses.replace(GridTeacher(), budget="first_action").max_steps == 36
    assert built(13).schedule.startswith("18 walls, 2 doors")
    assert built(6).schedule == "2 walls, goal, agent"
    assert built(4).max_steps == 3
    narrow = GridWorld(EmptyRoom(3, 4))
    assert GridDesign().build(narrow).schedule == "0 walls, goal, agent"
    assert GridDesign("goal, agent", noise_dim=3).build(narrow) == GridTeacher(3, 4, 256, "goal, agent", noise_dim=3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": "3 wals, goal, agent"}, r"design\.schedule='3 wals, .* step 'wals': .*did you mean 'wall'"),
        ({"schedule": "3 walls, goal"}, r"design\.schedule='3 walls, goal' has 0 agents: it must have one"),
        ({"schedule": "goal, 2 agents"}, "has 2 agents"),
        ({"schedule": "agent"}, "has no goal"),
        ({"schedule": ""}, "step ''"),
        ({"schedule": "9999999 walls, goal, agent"}, "at most 4096"),
        ({"schedule": "11 walls, goal, agent"}, r"places 13 things: inside the border of 5x6 there are 12 cells"),
        ({"schedule": "goal, agent", "budget": "first_wall"}, "first_wall.* begins with walls"),
        ({"budget": "fist_action"}, r"design\.budget 'fist_action'.*did you mean 'first_action'"),
        ({"noise_dim": -1}, r"design\.noise_dim=-1"),
    ],
)  # fmt: skip
def test_an_impossible_design_is_refused_by_the_name_of_its_setting(settings, words):
    with pytest.raises(ValueError, match=words) as error:
        GridDesign(**settings).build(GridWorld(EmptyRoom(5, 6)))
    assert "\n" not in str(error.value)


def test_a_design_is_for_the_object_world():
    with pytest.raises(ValueError, match="levels of GridWorld, not of AMaze"):
        GridDesign().build(AMaze())
