"""Mutations of the object world against the rule in plain Python (chi-squared on fixed keys, fails at p < 1e-4)."""

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from grid_twin import soups
from scipy.stats import chisquare

from minimax_lib.curricula.level_buffer import fingerprint
from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import GridWorld, Level, cells, convert, from_text, to_text
from minimax_lib.envs.grid.family import simplest_family
from minimax_lib.envs.grid.generators.fetch import Fetch
from minimax_lib.envs.grid.generators.mixture import MixedFamilies
from minimax_lib.envs.grid.generators.multi_room import MultiRoom
from minimax_lib.envs.grid.generators.obstructed_maze import GamutHard, ObstructedMaze
from minimax_lib.envs.grid.generators.registry import FAMILIES
from minimax_lib.envs.grid.metrics import solvable
from minimax_lib.envs.grid.mutate import KeepSolvable, mutate
from minimax_lib.envs.grid.validity import is_valid
from minimax_lib.envs.registry import editing_of, identity_of
from minimax_lib.testing.envs import check_editing

LEAST_P = 1e-4
COLOURS = "rgbpye"
HEIGHT, WIDTH = 4, 5
N_CHILDREN = 24_000


@pytest.fixture(autouse=True, scope="module")
def texts_are_checked_by_one_program():
    """Not by one for each operation and each shape."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "is_valid", jax.jit(convert.is_valid))
        yield


# ------------------------------------------------------------------------------------ one edit, as the rule tells it

Rows = tuple[tuple[str, ...], ...]  # a level as `to_text` writes it


class Rule:
    """One edit of a level, in plain Python. The agent's arrow stands before what it stands on."""

    def __init__(self, rows: Rows, task: str, target: str):
        self.task, self.target = task, target
        self.names = {(x, y): name for y, row in enumerate(rows) for x, name in enumerate(row)}

    def child(self, **changes) -> Rows:
        """The rows with other names at some cells, given as x1y2="Kr"."""
        names = self.names | {(int(at[1]), int(at[3])): name for at, name in changes.items()}
        return tuple(tuple(names[x, y] for x in range(WIDTH)) for y in range(HEIGHT))

    def set(self, at, name) -> Rows:
        return self.child(**{f"x{at[0]}y{at[1]}": name})

    def cells(self, *kinds: str) -> list:
        return [at for at, name in self.names.items() if name[0] in kinds]

    def is_target(self, name: str) -> bool:
        """Whether it is the object that the task is about. A door is the target in all its states."""
        if self.task == "reach":
            return False
        if name[0] in "DLO":
            return self.task == "open" and name[1] == self.target[1]
        return name.partition(":")[0] == self.target

    def is_sought(self, name: str) -> bool:
        """Whether it, or what is in it, solves the task."""
        whole, _, content = name.partition(":")
        return "G" in (whole, content) or self.is_target(whole) or (content != "" and self.is_target(content))

    def other_colours(self) -> str:
        return COLOURS if self.task == "reach" else COLOURS.replace(self.target[1], "")

    def moved(self, sought: bool) -> list[Rows]:
        """All results of moving something; sought or not."""
        results = []
        things = [at for at in self.cells("G", "K", "A", "B") if self.is_sought(self.names[at]) == sought]
        for (x, y), (to_x, to_y) in itertools.product(things, self.cells(".")):
            results.append(self.child(**{f"x{x}y{y}": ".", f"x{to_x}y{to_y}": self.names[x, y]}))
        return results

    def flipped(self) -> list[Rows]:
        inner = [(x, y) for x, y in self.cells("#", ".") if 0 < x < WIDTH - 1 and 0 < y < HEIGHT - 1]
        return [self.set(at, "." if self.names[at] == "#" else "#") for at in inner]

    def packed(self) -> Iterator[tuple[float, list[Rows]]]:
        """Each key and each box with a key is as likely; the colours of a box share what is the key's."""
        keys = self.cells("K")
        boxes = [at for at in self.cells("B") if ":K" in self.names[at] and not self.is_target(self.names[at])]
        for at in keys:
            box = [self.set(at, f"B{colour}:{self.names[at]}") for colour in self.other_colours()]
            yield 1 / len(keys + boxes), box
        for at in boxes:
            yield 1 / len(keys + boxes), [self.set(at, self.names[at].partition(":")[2])]

    def relocked(self) -> list[Rows]:
        return [
            self.set(at, {"D": "L", "L": "D"}[self.names[at][0]] + self.names[at][1]) for at in self.cells("D", "L")
        ]

    def with_door(self) -> list[Rows]:
        colours = self.other_colours() if self.task == "open" else COLOURS

        def is_clear(x: int, y: int) -> bool:
            return self.names.get((x, y), "#") != "#"

        between = [
            (x, y)
            for x, y in self.cells("#")
            if (is_clear(x - 1, y) and is_clear(x + 1, y)) or (is_clear(x, y - 1) and is_clear(x, y + 1))
        ]
        return [self.set(at, f"D{colour}") for at, colour in itertools.product(between, colours)]

    def without(self, *kinds: str, then: str) -> list[Rows]:
        return [self.set(at, then) for at in self.cells(*kinds) if not self.is_target(self.names[at])]

    def with_ball(self) -> list[Rows]:
        return [self.set(at, f"A{colour}") for at, colour in itertools.product(self.cells("."), self.other_colours())]

    def with_key(self) -> list[Rows]:
        """A closed door is locked, and a key of its colour is put somewhere, unless that is what the task is about."""
        results = []
        doors = [at for at in self.cells("D") if not self.is_target("K" + self.names[at][1])]
        for (x, y), (to_x, to_y) in itertools.product(doors, self.cells(".")):
            colour = self.names[x, y][1]
            results.append(self.child(**{f"x{x}y{y}": f"L{colour}", f"x{to_x}y{to_y}": f"K{colour}"}))
        return results

    def children(self) -> dict[Rows, float]:
        """The probability of every result of one edit, before locks are repaired."""
        parts: list[tuple[float, list[Rows]]] = [
            (1 / 9, [self.child()]),
            (1 / 9, self.flipped()),
            (1 / 9, self.moved(sought=True)),
            (1 / 9, self.moved(sought=False)),
            *((share / 9, results) for share, results in self.packed()),
            (1 / 9, self.relocked()),
            (1 / 18, self.with_door()),
            (1 / 18, self.without("D", "L", "O", then="#")),
            (1 / 18, self.with_ball()),
            (1 / 18, self.without("A", then=".")),
            (1 / 18, self.with_key()),
            (1 / 18, self.without("K", then=".")),
        ]
        found: dict[Rows, float] = defaultdict(float)
        for probability, results in parts:
            for result in results:
                found[result] += probability / len(results)
        found[self.child()] += 1 - sum(found.values())  # edits for which there is no cell
        return found


def repaired(rows: Rows) -> Rows:
    keys = {name[-1] for row in rows for name in row if name[0] == "K" or ":K" in name}
    return tuple(tuple("D" + n[1] if n[0] == "L" and n[1] not in keys else n for n in row) for row in rows)


def after(rows: Rows, task: str, target: str, n_edits: int) -> dict[Rows, float]:
    """The probability of every child of `n_edits` edits."""
    found = {rows: 1.0}
    for _ in range(n_edits):
        following: dict[Rows, float] = defaultdict(float)
        for parent, p in found.items():
            for child, q in Rule(parent, task, target).children().items():
                following[child] += p * q
        found = following
    result: dict[Rows, float] = defaultdict(float)
    for child, p in found.items():
        result[repaired(child)] += p
    assert sum(result.values()) == pytest.approx(1)
    return result


# -------------------------------------------------------------------------------------------------- against the rule


@functools.partial(jax.jit, static_argnums=2)
def children(key: jax.Array, level: Level, n_edits: int) -> Level:
    """[N_CHILDREN] children of one level."""
    return jax.vmap(lambda key: mutate(key, level, n_edits))(jax.random.split(key, N_CHILDREN))


def counted(level: Level, n_edits: int, seed: int) -> Counter[Rows]:
    """How often each child came."""
    found = jax.tree.map(np.asarray, children(jax.random.key(seed), level, n_edits))
    for name in ("agent_pos", "agent_dir", "task", "target", "max_steps", "difficulty"):
        assert (getattr(found, name) == np.asarray(getattr(level, name))).all(), name
    grids, counts = np.unique(found.grid, axis=0, return_counts=True)
    texts = [to_text(level.replace(grid=grid)) for grid in grids]
    return Counter({rows_of(text): int(n) for text, n in zip(texts, counts, strict=True)})


def rows_of(text: list[str]) -> Rows:
    return tuple(tuple(row.split()) for row in text)


def assert_follows(counts: Counter[Rows], probabilities: dict[Rows, float]) -> None:
    unknown = set(counts) - set(probabilities)
    assert not unknown, next(iter(unknown))
    expected = {child: p * N_CHILDREN for child, p in probabilities.items() if p > 0}
    often = [child for child, n in expected.items() if n >= 10]
    pairs = [(counts[child], expected[child]) for child in often]
    rest = N_CHILDREN - sum(n for _, n in pairs)
    if rest >= 10:
        pairs.append((N_CHILDREN - sum(n for n, _ in pairs), rest))
    seen, hoped = zip(*pairs, strict=True)
    assert chisquare(seen, np.array(hoped) * sum(seen) / sum(hoped)).pvalue > LEAST_P


LEVELS = [
    # The frame is open on its left, where nothing may be flipped. A goal may leave it.
    ("reach", "", ["#  #  #  #  #", "G  >  #  .  #", "#  Kr Lr Ab #", ".  Be:Kr . Dg #"]),
    # The agent stands in an open door, which must stay. The target is in a box, and there is a goal in another.
    ("pickup", "Ab", ["#  #  Lg #  #", "#  >Og # Be:Ab #", "#  Ar Kg ~  #", "# By:Ke . Be:G #"]),
    # A box is the target, so the key must stay in it. Its lock would be lost without.
    ("pickup", "Bg", ["#  #  #  #  #", "#  >  #  .  #", "#  Bg:Kp Lp Or #", "#  #  #  #  #"]),
    ("open", "Lb", ["#  #  #  #  #", "#  >  Lb .  #", "#  Kb #  Dr #", "#  G  #  .  #"]),
    ("fetch", "Kr", ["#  #  #  #  #", "#  >  Fe .  #", "#  Kr #  Be:Kr #", "#  #  Ay Ar #"]),
    # No second key like the target may come to the red door.
    ("pickup", "Kr", ["#  #  #  #  #", "#  >  Dr .  #", "#  Kr #  Db #", "#  #  #  #  #"]),
    # Hardly anything can be done, and the lock has no key.
    ("pickup", "Be", ["#  #  #  #  #", "#  >  Be Lr #", "#  ~  ~  ~  #", "#  #  #  #  #"]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "target", "text"), LEVELS, ids=[f"{task}{target}" for task, target, _ in LEVELS])
def test_one_edit_follows_the_rule(task, target, text):
    level = from_text(text, task=task, target=target or None)
    assert_follows(counted(level, 1, seed=0), after(rows_of(to_text(level)), task, target, 1))


@pytest.mark.deep
def test_two_edits_are_one_after_the_other_and_locks_are_repaired_in_the_end():
    """A key that is gone is not missed before the end: here nothing but a lock can be done first."""
    task, target, text = LEVELS[-1]
    level = from_text(text, task=task, target=target)
    assert_follows(counted(level, 2, seed=1), after(rows_of(to_text(level)), task, target, 2))


def test_each_edit_can_be_done_in_some_of_these_levels_and_not_in_others():
    rules = [Rule(rows_of(text), task, target) for task, target, text in LEVELS]
    results = [
        (
            rule.flipped(),
            rule.moved(sought=True),
            rule.moved(sought=False),
            list(rule.packed()),
            rule.relocked(),
            rule.with_door(),
            rule.without("D", "L", "O", then="#"),
            rule.with_ball(),
            rule.without("A", then="."),
            rule.with_key(),
            rule.without("K", then="."),
        )
        for rule in rules
    ]
    possible = np.array([[len(result) > 0 for result in row] for row in results])
    assert (possible.sum(axis=0) >= 2).all()
    assert (~possible[:, 1:]).any(axis=0).all()  # something can be flipped in all of them


# ------------------------------------------------------------------------------------------------- what always holds


def keys_and_locks(grids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bool[n, 6], bool[n, 6]): of which colours there are keys, boxes included, and locked doors."""

    def has(found: np.ndarray) -> np.ndarray:
        return found.reshape(len(grids), -1).any(axis=1)

    keys = [has((grids & 127 == 5 | c << 4) | (grids >> 9 == 5 | c << 4)) for c in range(6)]
    locks = [has(grids & 511 == 4 | c << 4 | 2 << 7) for c in range(6)]
    return np.stack(keys, axis=1), np.stack(locks, axis=1)


N_GENERATIONS = 100


@jax.jit
def lineage(key: jax.Array, levels: Level) -> tuple:
    """(the last children, (whether each is valid, whether the agent's cell stays as it is)) of several levels."""
    return jax.vmap(one_lineage)(jax.random.split(key, len(levels.grid)), levels)


def one_lineage(key: jax.Array, level: Level) -> tuple:

    def generation(level: Level, key: jax.Array) -> tuple:
        child = mutate(key, level, 1)
        x, y = level.agent_pos
        return child, (is_valid(child), child.grid[y, x] == level.grid[y, x])

    return jax.lax.scan(generation, level, jax.random.split(key, N_GENERATIONS))


@functools.cache
def lineages() -> tuple[Level, np.ndarray, Level, np.ndarray]:
    """(1000 levels of all tasks, whether all their children are valid, their last ones, whether the agent stays)."""
    some = soups(200, 6, 6, seed=0)
    first = jax.tree.map(lambda *leaves: np.stack(leaves * 5), *some)
    last, (valid, stays) = jax.tree.map(np.asarray, lineage(jax.random.key(2), first))
    return first, valid, last, stays


def test_a_thousand_lineages_of_a_hundred_edits_stay_valid():
    first, valid, last, stays = lineages()
    assert set(first.task) == {0, 1, 2, 3}
    assert valid.shape == (1000, N_GENERATIONS)
    assert valid.all()
    assert stays.all()
    for name in ("agent_pos", "agent_dir", "task", "target", "max_steps", "difficulty"):
        np.testing.assert_array_equal(getattr(last, name), getattr(first, name))
    assert (last.grid != first.grid).any(axis=(1, 2)).all()
    keys, locks = keys_and_locks(last.grid)
    assert not (locks & ~keys).any()
    # The rule is of use: there are locks, and colours without a key.
    assert locks.sum() > 100
    assert (~keys).sum() > 300


def test_locks_arise_in_an_empty_room():
    room = from_text(["# # # # # #", "# > . . . #", *["# . . . . #"] * 2, "# . . . G #", "# # # # # #"], "reach")
    first = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 1000), room)
    last, (valid, _) = jax.tree.map(np.asarray, lineage(jax.random.key(5), first))
    assert valid.all()
    _, locks = keys_and_locks(last.grid)
    assert 0.1 < locks.any(axis=1).mean() < 0.9


def test_solvable_levels_stay_so_where_that_is_asked_for():
    _, _, last, _ = lineages()

    def one(key: jax.Array, level: Level) -> tuple:
        kept = KeepSolvable(mutate)(key, level, 6)
        child = mutate(key, level, 6)
        return kept, child, solvable(child), solvable(kept)

    levels = jax.tree.map(lambda x: x[:400], last)

    def several(key: jax.Array, levels: Level) -> tuple:
        return jax.vmap(one)(jax.random.split(key, 400), levels)

    kept, child, can_solve, kept_can_solve = jax.tree.map(np.asarray, jax.jit(several)(jax.random.key(3), levels))
    assert 20 < can_solve.sum() < 380
    assert kept_can_solve[can_solve].all()
    expected = jax.tree.map(lambda x, y: np.where(can_solve.reshape(-1, *[1] * (x.ndim - 1)), x, y), child, levels)
    jax.tree.map(np.testing.assert_array_equal, kept, expected)
    assert editing_of(GridWorld()).mutate is mutate
    assert editing_of(GridWorld(keep_solvable=True)).mutate == KeepSolvable(mutate)
    with pytest.raises(ValueError, match="keep_solvable=1"):
        GridWorld(keep_solvable=1)


@pytest.mark.deep
def test_the_mutation_conforms():
    env = GridWorld(Fetch(4, n_objects=1), view_size=3, see_through_walls=True)
    check_editing(env, jax.random.key(0), n_rows=8, is_valid=is_valid)


# ----------------------------------------------------------------------------------------- equality and the beginning


def test_levels_are_equal_where_all_but_the_label_is():
    level = jax.tree.map(np.asarray, from_text(LEVELS[1][2], task="pickup", target="Ab"))
    identity = identity_of(GridWorld())
    print_one = jax.jit(lambda level: fingerprint(identity(level)))

    def print_of(level: Level) -> tuple:
        return tuple(np.asarray(print_one(level)).tolist())

    assert print_of(level.replace(difficulty=level.difficulty + 1)) == print_of(level)
    y, x = np.argwhere(level.grid >> cells.INSIDE == cells.ball(codes.BLUE))[0]
    other_box = level.grid.copy()
    other_box[y, x] = cells.box(codes.GREY, cells.ball(codes.RED))
    others = [
        level.replace(grid=other_box),  # not seen
        level.replace(agent_pos=level.agent_pos + np.array([0, 1], np.int32)),
        level.replace(agent_dir=(level.agent_dir + 1) % 4),
        level.replace(task=level.task + 2),
        level.replace(target=level.target + 16),
        level.replace(max_steps=level.max_steps + 1),
    ]
    assert len({print_of(other) for other in [level, *others]}) == 7


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("multi_room_n6", "rooms", "fetch") else pytest.mark.deep)
        for name in FAMILIES.names()
    ],
)
def test_accel_starts_with_levels_for_the_same_student(name):
    env = GridWorld(name)
    simple = editing_of(env).base(env)
    key = jax.random.key(0)
    shapes, expected = (jax.eval_shape(e.sample_level, key) for e in (simple, env))
    assert shapes == expected
    assert simple.max_steps <= env.max_steps
    assert simple.observation_space == env.observation_space


def drawn(family, n: int) -> Level:
    draw = jax.jit(lambda key: jax.vmap(family.sample_level)(jax.random.split(key, n)))
    return jax.tree.map(np.asarray, draw(jax.random.key(4)))


def test_accel_starts_in_one_room_with_one_lock_or_without_anything():
    rooms = drawn(simplest_family(MultiRoom(n_min=2, n_max=3, height=11, width=10)), 50)
    kinds = rooms.grid & 15
    assert not (kinds == codes.DOOR).any()
    assert ((kinds == codes.GOAL).sum(axis=(1, 2)) == 1).all()
    assert (rooms.max_steps == 60).all()

    assert simplest_family(GamutHard(key_order="v0", side=6)) == ObstructedMaze("v0", 6, "1Dl")
    assert simplest_family(ObstructedMaze(kind="Full")) == ObstructedMaze(kind="1Dl")

    family = simplest_family(MixedFamilies(("door_key", "unlock")))
    room = drawn(family, 50)
    kinds = room.grid & 15
    assert room.grid.shape[1:] == (family.height, family.width)
    assert ((kinds == codes.EMPTY).sum(axis=(1, 2)) == (family.height - 2) * (family.width - 2) - 1).all()
    assert (room.task == 0).all()
    assert (room.max_steps == 640).all()
