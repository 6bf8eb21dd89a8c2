"""The object world against the real MiniGrid, and its rules one by one."""

import functools
import itertools
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grid_twin import ITEMS, OBJECTS, GridTwin, Record, assert_same, event, followed, object_of, played, soups
from minigrid.core.mission import MissionSpace
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs import (
    BlockedUnlockPickupEnv,
    CrossingEnv,
    DoorKeyEnv,
    FetchEnv,
    KeyCorridorEnv,
    LavaGapEnv,
    LockedRoomEnv,
    MultiRoomEnv,
    ObstructedMaze_1Dlhb,
    ObstructedMaze_Full,
    UnlockEnv,
    UnlockPickupEnv,
)
from minigrid.envs.obstructedmaze_v1 import ObstructedMaze_Full_V1

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.actions import DONE, DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from minimax_lib.envs.grid import GridWorld, Level, cells, convert, from_minigrid, from_text, to_minigrid, to_text
from minimax_lib.envs.grid import level as tasks
from minimax_lib.envs.grid.dynamics import begin
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.level import identity, make_level
from minimax_lib.envs.grid.render import draw_level
from minimax_lib.envs.grid.text import task_of
from minimax_lib.envs.grid.validity import is_valid
from minimax_lib.envs.grid.view import full_view, partial_view
from minimax_lib.envs.registry import make_env
from minimax_lib.envs.terminal import painted
from minimax_lib.testing.envs import check_environment
from minimax_lib.testing.envs.environment import check_settings, check_types


@pytest.fixture(autouse=True, scope="module")
def texts_are_checked_by_one_program():
    """Not by one for each operation and each shape."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "is_valid", jax.jit(convert.is_valid))
        yield


class World(NamedTuple):
    """Random layouts of one size, and how they are seen."""

    height: int
    width: int
    view_size: int
    see_through_walls: bool
    n_levels: int
    n_steps: int


WORLDS = (World(9, 9, 7, False, 170, 170), World(7, 13, 5, True, 40, 150), World(19, 19, 9, False, 12, 100))
SHORT = World(7, 13, 5, False, 40, 90)  # neither side is that of a view


def stacked(levels):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *levels)


def compared(world: World, counts: Counter[str], seed: int = 0) -> tuple[list[Level], list[Record], GridWorld]:
    """Random layouts that were played on both sides, after both did the same. `counts` counts what was tried."""
    levels = soups(world.n_levels, world.height, world.width, seed)
    view = world.view_size, world.see_through_walls
    records = [played(GridTwin(level, *view), world.n_steps, seed + i, counts) for i, level in enumerate(levels)]
    env = GridWorld(view_size=world.view_size, see_through_walls=world.see_through_walls)
    actions = np.stack([record.action for record in records])
    assert_same(records, *followed(env, stacked(levels), actions))
    return levels, records, env


@pytest.fixture(scope="module")
def short_lockstep() -> tuple[tuple, Counter[str]]:
    """(`SHORT`, compared; how often each row of the table of actions occurred)."""
    counts: Counter[str] = Counter()
    return compared(SHORT, counts), counts


@pytest.fixture(scope="module")
def lockstep() -> tuple[list, Counter[str]]:
    """(all `WORLDS`, compared; how often each row of the table of actions occurred)."""
    counts: Counter[str] = Counter()
    return [compared(world, counts) for world in WORLDS], counts


def all_events() -> set[str]:
    """Every event that can happen with objects in front of the agent and in its hands."""
    items = [kind | 2 << 4 for kind in ITEMS]
    held = [items[2] | content << 9 for content in (0, int(cells.GOAL), *items)]
    doors = [codes.DOOR | 2 << 4 | state << 7 for state in range(3)]
    hands = [0, *items, codes.KEY | 3 << 4, held[1]]
    return {event(a, f, h) for a, f, h in itertools.product(range(7), [*OBJECTS, *doors, *items, *held], hands)}


def test_random_layouts_are_played_as_the_real_minigrid_plays_them(short_lockstep):
    """Short games; the long ones are deep. The comparison is that of the fixture."""
    (levels, records, _), counts = short_lockstep
    assert set(counts) <= all_events()
    assert len(counts) >= 0.7 * len(all_events()), (len(counts), len(all_events()))
    solved = {int(level.task) for level, r in zip(levels, records, strict=True) if (r.reward > 0).any()}
    assert solved == {0, 1, 2, 3}


@pytest.mark.deep
def test_every_row_and_every_no_op_of_the_table_of_actions_is_compared(lockstep):
    _, counts = lockstep
    assert set(counts) == all_events()
    assert min(counts.values()) >= 50, counts.most_common()[-5:]


@pytest.mark.deep
def test_every_task_is_compared_in_success_and_in_failure(lockstep):
    worlds, _ = lockstep
    ends: Counter[tuple[int, str]] = Counter()
    for levels, records, _ in worlds:
        for level, record in zip(levels, records, strict=True):
            ends[int(level.task), "solved"] += int((record.reward > 0).sum())
            ends[int(level.task), "failed"] += int((record.terminated & (record.reward == 0)).sum())
            ends[0, "out of time"] += int(record.truncated.sum())
    assert len(ends) == 9
    assert min(ends.values()) >= 20, ends


def test_every_size_of_view_is_the_real_one(short_lockstep):
    ways = list(itertools.product((3, 5, 7, 9, 11), (False, True)))

    def look(state):
        return [partial_view(state, *way) for way in ways], full_view(state)

    levels, records, _ = short_lockstep[0]
    rng = np.random.default_rng(0)
    moments, opening = [], jax.device_get(jax.jit(begin)(levels[0]))
    for record in (records[i] for i in rng.integers(len(records), size=40)):
        t = rng.integers(len(record.grid))
        moments.append(
            opening.replace(
                grid=record.grid[t],
                carrying=record.carrying[t],
                agent_pos=record.agent_pos[t],
                agent_dir=np.int32(record.agent_dir[t]),
            )
        )
    ours, full = jax.jit(jax.vmap(look))(stacked(moments))
    for i, state in enumerate(moments):
        level = levels[0].replace(grid=state.grid, agent_pos=state.agent_pos, agent_dir=state.agent_dir)
        twin = GridTwin(level, 3, False)
        twin.reset()
        twin.carrying = object_of(int(state.carrying)) if state.carrying else None
        for (twin.agent_view_size, twin.see_through_walls), images in zip(ways, ours, strict=True):
            theirs = twin.gen_obs()["image"].transpose(1, 0, 2)
            np.testing.assert_array_equal(theirs, images[i], f"{twin.agent_view_size}, {twin.see_through_walls}")
        whole = twin.grid.encode()
        whole[twin.agent_pos] = codes.AGENT, 0, twin.agent_dir
        np.testing.assert_array_equal(whole.transpose(1, 0, 2), full[i])


class PaperMaze(ObstructedMaze_Full):
    """The maze of the paper, whose rooms have a side of 7."""

    def __init__(self):
        self.agent_room, self.key_in_box, self.blocked, self.num_quarters = (1, 1), True, True, 4
        mission = MissionSpace(mission_func=lambda color: color, ordered_placeholders=[["blue"]])
        RoomGrid.__init__(self, mission_space=mission, room_size=7, num_rows=3, num_cols=3, max_steps=4900)


REAL = {
    "MultiRoom-N4-Random": lambda: MultiRoomEnv(minNumRooms=1, maxNumRooms=4, maxRoomSize=5, width=14, height=14),
    "MultiRoom-N6": lambda: MultiRoomEnv(6, 6),
    "1Dl": lambda: ObstructedMaze_1Dlhb(key_in_box=False, blocked=False),
    "1Dlhb": lambda: ObstructedMaze_1Dlhb(key_in_box=True, blocked=True),
    "2Dlhb": lambda: ObstructedMaze_Full((2, 1), True, True, 1, 4),
    "2Q": lambda: ObstructedMaze_Full((1, 1), True, True, 2, 11),
    "Full-v1": lambda: ObstructedMaze_Full_V1((1, 1), True, True, 4, 25),
    "Full, as in the paper": PaperMaze,
    "KeyCorridor-S3R1": lambda: KeyCorridorEnv(num_rows=1, room_size=3),
    "KeyCorridor-S6R3": lambda: KeyCorridorEnv(num_rows=3, room_size=6),
    "LockedRoom": LockedRoomEnv,
    "DoorKey-5": lambda: DoorKeyEnv(size=5),
    "DoorKey-8": lambda: DoorKeyEnv(size=8),
    "Unlock": UnlockEnv,
    "UnlockPickup": UnlockPickupEnv,
    "BlockedUnlockPickup": BlockedUnlockPickupEnv,
    "LavaCrossing": lambda: CrossingEnv(size=9, num_crossings=2),
    "LavaGap": lambda: LavaGapEnv(size=6),
    "Fetch-5": lambda: FetchEnv(size=5, numObjs=2),
    "Fetch-8": lambda: FetchEnv(size=8, numObjs=3),
}
FRAME = 25


def imported(env) -> Level:
    """The level that a real environment has just been reset to. Walls pad it: nobody sees or passes what is outside."""
    contents = np.zeros((env.width, env.height, 3), np.uint8)
    for x, y in itertools.product(range(env.width), range(env.height)):
        thing = env.grid.get(x, y)
        if thing is not None and thing.contains is not None:
            contents[x, y] = thing.contains.encode()
    grid = from_minigrid(env.grid.encode(), contents)
    task, target = tasks.REACH, 0
    if isinstance(env, UnlockEnv):
        task, target = tasks.OPEN, cells.pack(*env.door.encode()[:2])
    elif isinstance(env, FetchEnv):
        kind, colour = codes.OBJECTS.index(env.targetType), codes.COLOURS.index(env.targetColor)
        task, target = tasks.FETCH, cells.pack(kind, colour)
    elif isinstance(env, RoomGrid):
        task, target = tasks.PICKUP, cells.pack(*env.obj.encode()[:2])
    padding = (0, FRAME - env.height), (0, FRAME - env.width)
    whole = np.pad(grid, padding, constant_values=cells.WALL)
    return jax.tree.map(np.asarray, make_level(whole, env.agent_pos, env.agent_dir, env.max_steps, task, target))


def compared_with_the_real(n_seeds: int, n_steps: int) -> tuple[list[Level], list[Record]]:
    """Levels of all real generators that were played on both sides, after both did the same."""
    levels, records = [], []
    for make, seed in itertools.product(REAL.values(), range(n_seeds)):
        env = make()
        env.see_through_walls = False
        env.reset(seed=seed)
        levels.append(imported(env))
        records.append(played(env, n_steps, seed, Counter()))
    actions = np.stack([record.action for record in records])
    assert_same(records, *followed(GridWorld(), stacked(levels), actions))
    return levels, records


@pytest.mark.parametrize(
    ("n_seeds", "n_steps", "n_solved"), [(1, 20, 1), pytest.param(2, 90, 5, marks=pytest.mark.deep)]
)
def test_the_real_generators_levels_are_played_as_the_real_ones(n_seeds, n_steps, n_solved):
    levels, records = compared_with_the_real(n_seeds, n_steps)
    assert bool(jax.jit(jax.vmap(is_valid))(stacked(levels)).all())
    assert sum((record.reward > 0).sum() for record in records) >= n_solved


# --------------------------------------------------------------------------------------------------- rules, one by one


@functools.partial(jax.jit, static_argnums=0)
def stepped(env, state, action):
    return env.step(jax.random.key(0), state, action)


@functools.partial(jax.jit, static_argnums=0)
def opened(env, level):
    return env.reset(jax.random.key(0), level)


def walked(rows, actions, env=GridWorld(), size=(2, 6), max_steps=None, **settings):  # noqa: B008 frozen
    """(states, time steps), lists: what the actions do on the level that the rows draw, padded to one size."""
    if max_steps is None:
        max_steps = 4 * len(rows) * len(rows[0].split())  # as without the padding
    # All levels of one size are one compiled program.
    level = jax.tree.map(np.asarray, from_text(padded(rows, size), max_steps=max_steps, **settings))
    both = opened(env, level)
    states, steps = [both[0]], [both[1]]
    for action in actions:
        both = stepped(env, states[-1], np.int32(action))
        states.append(both[0])
        steps.append(both[1])
    return jax.device_get((states, steps))


def padded(rows, size):
    """The rows with walls to the right and below."""
    height, width = size
    wide = [f"{row}{' #' * (width - len(row.split()))}" for row in rows]
    return wide + [" ".join("#" * width)] * (height - len(rows))


def ahead(state):
    """The cell to the right of the agent."""
    return int(state.grid[int(state.agent_pos[1]), int(state.agent_pos[0]) + 1])


def test_a_cell_is_one_number_and_the_constants_are_minigrids():
    assert (cells.EMPTY, cells.WALL, cells.GOAL, cells.LAVA) == (1, 82, 24, 9)
    chest = cells.box(codes.GREY, inside=cells.key(codes.PURPLE))
    assert chest == 7 | 5 << 4 | (5 | 3 << 4) << 9
    parts = cells.kind(chest), cells.colour(chest), cells.state(chest), cells.inside(chest)
    assert parts == (codes.BOX, codes.GREY, 0, cells.key(codes.PURPLE))
    assert cells.seen(cells.door(codes.BLUE, codes.LOCKED)).tolist() == [4, 2, 2]
    assert cells.key(jnp.arange(2)).dtype == jnp.uint16


@pytest.mark.parametrize("arrow", [">", "v", "<", "^"])
def test_outside_the_frame_is_wall(arrow):
    # The object stands where an index that wraps round, or is moved back into the frame, finds it.
    rows = {">": ["Kr . >", "Ab G ."], "v": ["Kr G .", ". . v"], "<": ["< . Kr", "G . Ab"], "^": ["^ . G", "Kr Ab ."]}
    for action in (FORWARD, PICKUP, TOGGLE, DROP):
        states, _ = walked(rows[arrow], [action], size=(2, 3))
        assert (states[1].grid == states[0].grid).all()
        assert (states[1].agent_pos == states[0].agent_pos).all()
        assert states[1].carrying == cells.NOTHING


def test_a_locked_door_opens_with_its_key_for_good_and_the_key_stays_in_the_hands():
    states, _ = walked(["> Kr Lb Lr G"], [PICKUP, FORWARD, TOGGLE])
    assert ahead(states[3]) == cells.door(codes.BLUE, codes.LOCKED)
    states, steps = walked(
        ["> Kr Lr . G"], [PICKUP, FORWARD, TOGGLE, TOGGLE, TOGGLE, FORWARD, TOGGLE, FORWARD, FORWARD]
    )
    assert [cells.state(ahead(state)) for state in states[2:6]] == [codes.LOCKED, codes.OPEN, codes.CLOSED, codes.OPEN]
    assert all(state.carrying == cells.key(codes.RED) for state in states[1:])
    # From within the doorway, the agent faces away from the door.
    assert (states[7].grid == states[6].grid).all()
    assert steps[9].terminated
    assert steps[9].reward == pytest.approx(1 - 0.9 * 9 / 20)


def test_a_box_may_hide_the_goal_and_keeps_what_it_holds_when_it_is_carried():
    states, steps = walked(["G . > By:G"], [TOGGLE, FORWARD])
    assert ahead(states[1]) == cells.GOAL
    assert steps[2].terminated
    states, _ = walked(["G > By:Kr Fe"], [PICKUP, TOGGLE, DROP, TOGGLE, PICKUP])
    assert states[2].carrying == cells.box(codes.YELLOW, cells.key(codes.RED))  # it cannot be opened in the hands
    assert ahead(states[3]) == states[2].carrying
    assert ahead(states[4]) == cells.key(codes.RED)


def test_objects_are_laid_down_on_empty_cells_only():
    for cell in ("Fe", "G", "~", "Or", "Dr", "#", "Kr"):
        states, _ = walked(["Ab . G", f"Kr > {cell}"], [LEFT, LEFT, PICKUP, LEFT, LEFT, DROP])
        assert states[6].carrying == cells.key(codes.RED), cell
        assert (states[6].grid == states[3].grid).all()


def test_picking_up_the_box_that_holds_the_target_is_no_success():
    states, steps = walked(["> By:Ab ."], [PICKUP, DROP, TOGGLE, PICKUP], task="pickup", target="Ab")
    assert [bool(ts.terminated) for ts in steps] == [False] * 4 + [True]
    assert states[4].carrying == cells.ball(codes.BLUE)


def test_to_open_the_target_door_is_success_and_to_open_another_is_not():
    _, steps = walked(["Db < .", ". . Dr"], [TOGGLE], task="open", target="Dr")
    assert not steps[1].terminated
    _, steps = walked(["> Dr"], [LEFT, RIGHT, TOGGLE], task="open", target="Dr")
    assert [bool(ts.terminated) for ts in steps] == [False, False, False, True]


def test_fetching_the_wrong_object_is_a_failure():
    for cell, solved in (("Kr", False), ("Ab", True)):
        _, steps = walked([f"> {cell} Ab"], [PICKUP], task="fetch", target="Ab")
        assert steps[1].terminated
        assert (steps[1].reward > 0) == solved


def test_lava_ends_an_episode_with_nothing_and_the_last_step_may_be_both_ends():
    _, steps = walked(["> ~ G"], [FORWARD])
    assert (bool(steps[1].terminated), float(steps[1].reward)) == (True, 0.0)
    _, steps = walked(["> G"], [DONE, FORWARD], max_steps=2)
    assert (bool(steps[2].terminated), bool(steps[2].truncated)) == (True, True)
    assert steps[2].reward == pytest.approx(0.1)


def test_what_is_carried_and_what_is_sought_are_shown():
    _, steps = walked(["> Kr . Ab"], [PICKUP], task="pickup", target="Ab")
    assert [ts.obs["carrying"].tolist() for ts in steps] == [[0, 0, 0], [5, 0, 0]]
    assert steps[0].obs["target"].tolist() == [6, 2]
    assert steps[1].obs["image"][6, 3].tolist() == [5, 0, 0]  # in the agent's own cell
    _, steps = walked(["> Kr . G"], [], env=GridWorld(observation="full", see_carrying=False), size=(1, 4))
    assert set(steps[0].obs) == {"image", "target"}
    assert steps[0].obs["target"].tolist() == [0, 0]
    assert steps[0].obs["image"].tolist() == [[[10, 0, 0], [5, 0, 0], [1, 0, 0], [8, 1, 0]]]


# --------------------------------------------------------------------------------------------------- levels


@functools.cache
def whole() -> Level:
    return jax.tree.map(np.asarray, from_text(["> Kr Be:Ab", "Dg G ."], "pickup", "Ab"))


def small(**changes) -> Level:
    """A valid level with some parts of another one."""
    grid = changes.pop("grid", {})
    cells_of = np.array(whole().grid)
    for (x, y), cell in grid.items():
        cells_of[y, x] = cell
    parts = {name: np.asarray(value, np.int32) for name, value in changes.items()}
    return whole().replace(grid=cells_of, **parts)


valid_one = jax.jit(is_valid)


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({}, True),
        ({"grid": {(2, 1): 0}}, False),  # unseen
        ({"grid": {(2, 1): 10}}, False),  # the agent
        ({"grid": {(2, 1): 5 | 6 << 4}}, False),  # a seventh colour
        ({"grid": {(2, 1): 5 | 1 << 7}}, False),  # a key with a state
        ({"grid": {(2, 1): cells.door(0, 3)}}, False),
        ({"grid": {(2, 1): 1 | 1 << 4}}, False),  # an empty cell with a colour
        ({"grid": {(2, 1): int(cells.key(0)) | int(cells.key(0)) << 9}}, False),  # only boxes hold something
        ({"grid": {(2, 1): cells.box(0, cells.LAVA)}}, False),
        ({"grid": {(2, 1): cells.box(0, cells.box(1))}}, True),
        ({"grid": {(2, 1): cells.box(0, cells.GOAL)}}, True),
        ({"agent_pos": [1, 0]}, False),  # on a key
        ({"agent_pos": [1, 1]}, False),  # on the goal
        ({"agent_pos": [0, 1]}, False),  # in a shut door
        ({"agent_pos": [0, 1], "grid": {(0, 1): cells.door(0, codes.OPEN)}}, True),
        ({"agent_pos": [2, 1], "grid": {(2, 1): codes.FLOOR | 3 << 4}}, True),
        ({"agent_pos": [3, 0]}, False),
        ({"agent_pos": [0, -1]}, False),
        ({"agent_dir": 4}, False),
        ({"max_steps": 0}, False),
        ({"task": 4}, False),
        ({"task": tasks.REACH}, True),
        ({"task": tasks.REACH, "grid": {(1, 1): cells.box(0, cells.GOAL)}}, False),
        ({"grid": {(2, 1): cells.ball(codes.BLUE)}}, False),  # a second target
        ({"target": 0}, False),
        ({"target": cells.ball(codes.RED)}, False),  # no target
        ({"task": tasks.FETCH, "grid": {(2, 1): cells.ball(codes.BLUE)}}, True),
        ({"task": tasks.FETCH, "target": cells.ball(codes.RED)}, False),
        ({"task": tasks.OPEN, "target": cells.pack(codes.DOOR, codes.GREEN)}, True),
        ({"task": tasks.OPEN, "target": cells.pack(codes.DOOR, codes.RED)}, False),
        ({"task": tasks.OPEN, "target": cells.door(codes.GREEN, codes.CLOSED)}, False),  # a target has no state
        (
            {
                "task": tasks.OPEN,
                "target": cells.pack(codes.DOOR, codes.GREEN),
                "grid": {(0, 1): cells.door(codes.GREEN, codes.OPEN)},
            },
            False,
        ),
    ],
)
def test_a_level_is_valid_if_it_keeps_all_rules(changes, valid):
    assert bool(valid_one(small(**changes))) == valid


def test_a_label_is_no_part_of_a_level():
    of = jax.jit(identity)
    jax.tree.map(np.testing.assert_array_equal, of(small()), of(small(difficulty=3)))
    assert of(small(target=1)).target != of(small()).target


def plain_reach(grid, start, opened):
    """Cells [x, y] that can be reached with doors of the colours in `opened`, and their distances."""
    distance, queue = {start: 0}, [start]
    for x, y in queue:
        for nx, ny in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if not (0 <= nx < grid.shape[1] and 0 <= ny < grid.shape[0]) or (nx, ny) in distance:
                continue
            cell = int(grid[ny, nx])
            locked = cell & 15 == codes.DOOR and cell >> 7 & 3 == codes.LOCKED
            if cell & 15 in (codes.WALL, codes.LAVA) or (locked and cell >> 4 & 7 not in opened):
                continue
            distance[nx, ny] = distance[x, y] + 1
            queue.append((nx, ny))
    return distance


def plain_facts(level: Level) -> tuple[int, bool]:
    """(path length, solvable) by sets and lists."""
    grid, start = level.grid, tuple(int(i) for i in level.agent_pos)

    def is_sought(cell):
        parts = (cell & 127, cell >> 9)
        return cells.GOAL in parts or (level.task != tasks.REACH and int(level.target) in parts)

    goals = {(x, y) for y, x in np.ndindex(grid.shape) if is_sought(int(grid[y, x]))}
    everywhere = plain_reach(grid, start, range(6))
    opened: set[int] = set()
    while True:
        reached = plain_reach(grid, start, opened)
        held = [part for x, y in reached for part in (int(grid[y, x]) & 127, int(grid[y, x]) >> 9)]
        found = {part >> 4 for part in held if part & 15 == codes.KEY}
        if found <= opened:
            break
        opened |= found
    return min((everywhere[g] for g in goals if g in everywhere), default=0), bool(goals & reached.keys())


def test_metrics_equal_a_search_in_plain_python():
    levels = soups(150, 9, 11, seed=5, density=0.6, kinds=(2, 2, 2, 2, 2, 4, 4, 5, 7, 9))
    metrics = jax.tree.map(np.asarray, jax.jit(jax.vmap(GridWorld().level_metrics))(stacked(levels)))
    facts = [plain_facts(level) for level in levels]
    assert metrics["path_length"].tolist() == [length for length, _ in facts]
    assert metrics["solvable"].tolist() == [solvable for _, solvable in facts]
    assert 0.2 < metrics["solvable"].mean() < 0.8
    # In some levels a door must be opened first.
    assert sum(length > 0 and not solvable for length, solvable in facts) >= 10
    for i, level in enumerate(levels):
        kinds, states = level.grid & 15, level.grid >> 7 & 3
        n_doors = int((kinds == codes.DOOR).sum())
        assert metrics["n_doors"][i] == n_doors
        assert metrics["n_rooms"][i] == n_doors + 1
        assert metrics["n_locked"][i] == ((kinds == codes.DOOR) & (states == codes.LOCKED)).sum()
        assert metrics["n_objects"][i] == np.isin(kinds, list(ITEMS)).sum()


def test_a_chain_of_locks_is_solvable_only_in_the_order_of_its_keys():
    locks = "LrLgLbLpLyLe"
    doors = [locks[i : i + 2] for i in range(0, 12, 2)]
    keys = ["Be:Kr", "Kg", "Kb", "Kp", "By:Ky", "Ke"]
    chain = [thing for pair in zip(keys, doors, strict=True) for thing in pair]
    solvable = jax.jit(lambda level: GridWorld().level_metrics(level)["solvable"])
    assert solvable(from_text([" ".join([">", *chain, "G"])]))
    chain[2], chain[4] = chain[4], chain[2]  # the key of the second door lies behind it
    assert not solvable(from_text([" ".join([">", *chain, "G"])]))


def test_text_and_minigrids_arrays_come_back_as_they_went():
    for level in soups(20, 6, 7, seed=9):
        text = to_text(level)
        task, target = tasks.TASKS[int(level.task)], int(level.target)
        name = ("DKAB"[(4, 5, 6, 7).index(target & 15)] + "rgbpye"[target >> 4]) if target else ""
        again = from_text(text, task, name, max_steps=int(level.max_steps))
        for leaf, back in zip(jax.tree.leaves(level), jax.tree.leaves(again), strict=True):
            assert leaf.dtype == back.dtype
            np.testing.assert_array_equal(leaf, back)
        np.testing.assert_array_equal(from_minigrid(*to_minigrid(level.grid)), level.grid)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_text(["> .", "G"]), "the rows have 2, 1 cells: each needs the same"),
        (lambda: from_text([]), "the rows have no cells"),
        (lambda: from_text([". G"]), "the text has 0 agents: it must have 1 of > v < "),
        (lambda: from_text(["> Kq G"]), "unknown cell 'Kq': .*did you mean"),
        (lambda: from_text(["> Kr:Kb G"]), "the cell 'Kr:Kb' holds something: only a box can"),
        (lambda: from_text(["> Br:Db G"]), "the cell 'Br:Db' holds something: only a box can"),
        (lambda: from_text(["> ."]), "the text is not a level of the task 'reach' .* reach needs a goal"),
        (lambda: from_text(["> G"], "pick"), r"unknown task 'pick': choose from .* \(did you mean 'pickup'\?\)"),
        (lambda: from_minigrid(np.zeros((2, 3, 3), np.uint8)), r"the cell at \[x, y\] = \[0, 0\] is object 0"),
        (lambda: make_env("GridWorld", family="empty_rom"), r"unknown family of levels 'empty_rom': .*did you mean"),
        (lambda: GridWorld(observation="ful"), r"unknown observation 'ful': .*did you mean 'full'"),
        (lambda: GridWorld(family=3), "family=3: it must be a family of levels"),
        (lambda: GridWorld(view_size=4), "view_size=4 is even: it must be odd, such as 5"),
        (lambda: GridWorld(see_carrying=1), "see_carrying=1: it must be True or False"),
        (lambda: EmptyRoom(height=3, width=3), "agent and goal need at least 2 cells inside the border"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_its_settings_and_types_keep_the_rules_of_all_environments():
    """What is found out without compiling. The whole check is deep; the lockstep above plays the world."""
    for settings in ({}, {"observation": "full", "see_target": False}):
        env = make_env("GridWorld", family=EmptyRoom(5, 6, 12), **settings)
        check_settings(env)
        check_types(env, jax.random.key(0))


@pytest.mark.deep
@pytest.mark.parametrize("settings", [{}, {"observation": "full", "see_target": False}], ids=["partial", "full"])
def test_it_keeps_the_rules_of_all_environments(settings):
    check_environment(make_env("GridWorld", family=EmptyRoom(5, 6, 12), **settings), jax.random.key(0), n_rows=4)


def test_the_built_in_family_draws_valid_levels_of_every_kind():
    family = EmptyRoom(4, 5)

    def drawn(key):
        levels = jax.vmap(family.sample_level)(jax.random.split(key, 4000))
        return levels, jax.vmap(is_valid)(levels).all()

    levels, all_valid = jax.jit(drawn)(jax.random.key(0))
    assert all_valid
    goal = np.argwhere(np.asarray(levels.grid) == cells.GOAL)
    pairs = Counter(zip(*goal[:, 1:].T.tolist(), *np.asarray(levels.agent_pos).T.tolist(), strict=True))
    assert len(pairs) == 6 * 5
    assert min(pairs.values()) > 4000 / 30 / 2
    assert min(Counter(np.asarray(levels.agent_dir).tolist()).values()) > 900


def test_a_restart_moves_no_map():
    env = GridWorld(observation="full")

    def kept(key, level):
        state, _ = env.reset(key, level)
        assert state.level is level
        assert state.grid is level.grid
        assert env.get_level(env.step(key, state, jnp.int32(0))[0]) is level

    jax.eval_shape(kept, jax.random.key(0), small())


# --------------------------------------------------------------------------------------------------- pictures and text


def test_a_picture_shows_every_object_and_what_is_seen_lit():
    states, _ = walked(["> Kr #", "Ab Lb G"], [PICKUP], size=(2, 3))
    env, cell = GridWorld(), 20
    frame = env.draw_state(states[0])
    assert frame.shape == (7 * cell, 3 * cell + cell + 7 * cell, 3)
    top = (frame.shape[0] - 2 * cell) // 2

    def at(picture, x, y, place=(0.5, 0.5), above=0):
        return tuple(int(c) for c in picture[above + int((y + place[1]) * cell), int((x + place[0]) * cell)])

    lighter = [tuple(int(c + 0.3 * (255 - c)) for c in colour) for colour in ((100, 100, 100), (0, 0, 255))]
    assert at(frame, 2, 0, above=top) == lighter[0]  # the wall is seen: it ends the view
    assert at(frame, 0, 1, above=top) == lighter[1]  # the ball
    level = draw_level(states[0].level, cell=cell)
    assert at(level, 1, 0, (0.55, 0.75)) == (255, 0, 0)  # the key's shaft
    assert at(level, 0, 1) == (0, 0, 255)
    assert at(level, 1, 1, (0.25, 0.25)) == (0, 0, int(0.45 * 255))  # a locked door is dark
    assert at(level, 2, 1) == (0, 200, 0)
    assert not (level == draw_level(states[0].level, np.array([[0, 0], [0, 1], [1, 1]]), cell)).all()
    # In its own cell, the agent is drawn over what it carries.
    both = [env.draw_state(state)[-cell:, -4 * cell : -3 * cell] for state in states]
    assert (both[0] != both[1]).any()
    episodes = stacked([jax.tree.map(lambda x: np.asarray(x)[None], state) for state in states])
    assert env.draw_episodes(episodes, np.ones((2, 1), bool), ["a level"], 1).shape[2] == 3


def test_the_full_view_is_drawn_with_what_is_carried_beside_it():
    env = GridWorld(observation="full")
    states, _ = walked(["> Kr G"], [PICKUP], env=env, size=(1, 3))
    frames = [env.draw_state(state) for state in states]
    assert frames[0].shape == frames[1].shape == (20, 3 * 20 + 20 + 20, 3)
    assert (frames[0][:, -20:] != frames[1][:, -20:]).any()
    assert [painted(env.scene(state).view, colours=False) for state in states] == [[" ."], ["Kr"]]


def test_a_terminal_shows_the_world_and_the_view():
    states, _ = walked(["> Kr #", "Ab Lb G"], [PICKUP, TOGGLE], size=(2, 3))
    env = GridWorld(view_size=3)
    scene = env.scene(states[0])
    assert painted(scene.whole, colours=False) == ["> Kr##", "AbLbGG"]
    assert painted(scene.view, colours=False) == ["####GG", "##KrLb", "##^ Ab"]
    assert painted(env.scene(states[1]).view, colours=False) == ["####GG", "## .Lb", "##KrAb"]
    assert scene.place.tolist() == [0, 0]
    assert {env.keys[key] for key in ("left", "right", "up", "p", "l", "t", " ", "x")} == set(range(7))
    assert all(f"{key}" in scene.keys for key in ("p:", "l:", "t or space:", "x:"))


def test_a_terminal_tells_what_there_is_to_do():
    found = [
        task_of(from_text(rows, task, target, max_steps=9))
        for rows, task, target in (
            (["> G"], "reach", ""),
            (["> Ab"], "pickup", "Ab"),
            (["> Ly"], "open", "Dy"),
            (["> Kr"], "fetch", "Kr"),
        )
    ]
    assert found == [
        "reach the goal within 9 steps",
        "pick up the blue ball within 9 steps",
        "open the yellow door within 9 steps",
        "pick up the red key, nothing else, within 9 steps",
    ]
