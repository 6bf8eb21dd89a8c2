"""The families of random levels of the object world: their laws, and MiniGrid's own generators beside them."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grid_twin import grid_of
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
from scipy.stats import chi2_contingency, chisquare

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid import level as tasks
from minimax_lib.envs.grid.generators.crossings import LavaCrossing, LavaGap, SimpleCrossing
from minimax_lib.envs.grid.generators.door_key import DoorKey
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.generators.fetch import Fetch
from minimax_lib.envs.grid.generators.key_corridor import KeyCorridor
from minimax_lib.envs.grid.generators.locked_room import LockedRoom
from minimax_lib.envs.grid.generators.mixture import MixedFamilies
from minimax_lib.envs.grid.generators.multi_room import MultiRoom, MultiRoomN2S4, MultiRoomN4S5, MultiRoomN6
from minimax_lib.envs.grid.generators.obstructed_maze import (
    CORNERS,
    KINDS,
    PLANS,
    GamutEasy,
    GamutHard,
    GamutMedium,
    ObstructedMaze,
)
from minimax_lib.envs.grid.generators.registry import FAMILIES
from minimax_lib.envs.grid.generators.rooms import Rooms
from minimax_lib.envs.grid.generators.unlock import BlockedUnlockPickup, Unlock, UnlockPickup
from minimax_lib.envs.grid.metrics import solvable
from minimax_lib.envs.grid.suite import GROUPS, TASKS
from minimax_lib.envs.grid.validity import is_valid
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.registry import make_env, make_held_out
from minimax_lib.testing.envs import check_held_out

LEAST_P = 1e-4  # of all tests of laws: the keys are fixed, so that they pass or fail for ever


QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiles in half the time
FRAME = 25  # of all levels where they are checked, so that the checks are compiled once
CHUNK = 500


def quick(draw, *args) -> Any:
    """What `draw` gives, as arrays of numpy."""
    compiled = jax.jit(draw).lower(*args).compile(compiler_options=QUICK)
    return jax.tree.map(np.asarray, compiled(*args))


@functools.cache
def drawn(family, n_levels=2000, seed=0):
    """Random levels of the family."""
    levels = quick(lambda key: jax.vmap(family.sample_level)(jax.random.split(key, n_levels)), jax.random.key(seed))
    checked(jax.tree.map(lambda x: x[:CHUNK], levels))
    return levels


def checked(levels) -> np.ndarray:
    """bool[n], n a multiple of `CHUNK`: which of them can be solved. All must be valid."""
    _, height, width = levels.grid.shape
    padding = (0, 0), (0, FRAME - height), (0, FRAME - width)
    levels = levels.replace(grid=np.pad(levels.grid, padding, constant_values=cells.WALL))
    results = []
    for first in range(0, len(levels.grid), CHUNK):
        valid, can_solve = checks()(jax.tree.map(lambda x, first=first: x[first : first + CHUNK], levels))
        assert valid.all()
        results.append(np.asarray(can_solve))
    return np.concatenate(results)


@functools.cache
def checks():
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), CHUNK))
    level = jax.eval_shape(jax.vmap(EmptyRoom(FRAME, FRAME).sample_level), keys)
    both = jax.jit(lambda levels: (jax.vmap(is_valid)(levels), jax.vmap(solvable)(levels)))
    return both.lower(level).compile(compiler_options=QUICK)


def those(levels, chosen) -> Any:
    """The levels where `chosen` (bool[n])."""
    return jax.tree.map(lambda x: x[chosen], levels)


def counts_of(values) -> dict:
    found, n = np.unique(np.asarray(values), axis=0, return_counts=True)
    return {tuple(np.atleast_1d(value).tolist()): int(k) for value, k in zip(found, n, strict=True)}


def assert_uniform(values, n_values: int) -> None:
    """All `n_values` that there can be are equally likely."""
    counts = counts_of(values)
    assert len(counts) == n_values, counts
    if n_values > 1:
        assert chisquare(list(counts.values())).pvalue > LEAST_P, counts


def assert_share(events, share: float, sigmas: float = 4.0) -> None:
    """The share of `events` (bool[n]) that are true."""
    n = len(events)
    assert abs(np.mean(events) - share) < sigmas * np.sqrt(share * (1 - share) / n), (np.mean(events), share, n)


# --------------------------------------------------------------------------------------------------- beside MiniGrid


def facts(grid, pos, facing) -> dict[str, np.ndarray]:
    """What two samples of levels are compared by, each [n]: what is there, where, and how it lies to each other."""
    n, height, width = grid.shape
    kind = grid & 15
    found: dict[str, Any] = {"agent": pos[:, 1] * width + pos[:, 0], "facing": facing}
    ahead = pos + np.asarray(codes.STEPS)[facing]
    found["ahead"] = grid[np.arange(n), ahead[:, 1], ahead[:, 0]]
    flat = kind.reshape(n, -1)
    things = {}
    for name in ("wall", "door", "key", "ball", "box", "goal", "lava"):
        is_there = flat == codes.OBJECTS.index(name)
        first = np.where(is_there.any(axis=1), is_there.argmax(axis=1), -1)
        last = np.where(is_there.any(axis=1), is_there.shape[1] - 1 - is_there[:, ::-1].argmax(axis=1), -1)
        things[name] = first
        found |= {f"number of {name}": is_there.sum(axis=1), f"first {name}": first, f"last {name}": last}
        what = grid.reshape(n, -1)[np.arange(n), first]
        found[f"what the first {name} is"] = what
        # Cells of a room, or of a chain of rooms, that go together.
        found[f"agent to {name}"] = first - found["agent"]
    found["key and door"] = (things["key"] + 1) * height * width + things["door"]
    found["upper half"] = (kind == codes.WALL)[:, : height // 2].sum(axis=(1, 2))
    found["left half"] = (kind == codes.WALL)[:, :, : width // 2].sum(axis=(1, 2))
    return found


def assert_same_law(ours: dict, theirs: dict) -> None:
    """No fact tells the two samples apart. Values that are rarer than 10 in either are put together."""
    for name in ours:
        values = np.unique(np.concatenate([ours[name], theirs[name]]))
        table = np.stack([[(sample[name] == value).sum() for value in values] for sample in (ours, theirs)])
        expected = table.sum(axis=0) * table.sum(axis=1).min() / table.sum()
        rare = expected < 10
        table = np.concatenate([table[:, ~rare], table[:, rare].sum(axis=1, keepdims=True)], axis=1)
        table = table[:, table.sum(axis=0) > 0]
        if table.shape[1] > 1:
            assert chi2_contingency(table).pvalue > LEAST_P, (name, values[~rare], table)


def theirs(env, n_levels: int, height: int, width: int, seed: int = 0):
    """(grids, positions, directions) of MiniGrid's own levels, in the upper left corner of a frame."""
    env = env.unwrapped
    env.reset(seed=seed)
    grids = np.full((n_levels, height, width), cells.EMPTY)
    poses = np.zeros((n_levels, 3), int)
    for i in range(n_levels):
        env.agent_pos, env.agent_dir = (-1, -1), -1  # as in `reset`, which also looks around
        env._gen_grid(env.width, env.height)
        grid = grid_of(env)
        grids[i, : grid.shape[0], : grid.shape[1]] = grid
        poses[i] = (*env.agent_pos, env.agent_dir)
    return grids, poses[:, :2], poses[:, 2]


def of_the_paper(base: type, rows: int, columns: int, **attributes: Any) -> Any:
    """An ObstructedMaze of MiniGrid with rooms of side 7. Its own constructor allows only 6."""
    env = base.__new__(base)
    for name, value in attributes.items():
        setattr(env, name, value)
    mission = MissionSpace(mission_func=lambda color: color, ordered_placeholders=[["blue"]])
    RoomGrid.__init__(env, mission_space=mission, room_size=7, num_rows=rows, num_cols=columns, max_steps=400)
    return env


def two_rooms(key_in_box, blocked) -> Any:
    return of_the_paper(ObstructedMaze_1Dlhb, 1, 2, key_in_box=key_in_box, blocked=blocked)


def nine_rooms(base: type, agent_room, key_in_box, blocked, num_quarters) -> Any:
    settings = {"agent_room": agent_room, "key_in_box": key_in_box, "blocked": blocked, "num_quarters": num_quarters}
    return of_the_paper(base, 3, 3, **settings)


PAIRS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "MultiRoom-N4-Random": (MultiRoom(), lambda: MultiRoomEnv(1, 4, 5, width=14, height=14)),
    "MultiRoom-N2-S4": (MultiRoomN2S4(), lambda: MultiRoomEnv(2, 2, 4)),
    "MultiRoom-N4-S5": (MultiRoomN4S5(), lambda: MultiRoomEnv(4, 4, 5)),
    "MultiRoom-N6": (MultiRoomN6(), lambda: MultiRoomEnv(6, 6, 10)),
    "1Dl": (ObstructedMaze("v1", 7, "1Dl"), lambda: two_rooms(False, False)),
    "1Dlhb": (ObstructedMaze("v0", 7, "1Dlhb"), lambda: two_rooms(True, True)),
    "2Dl": (ObstructedMaze("v1", 7, "2Dl"), lambda: nine_rooms(ObstructedMaze_Full, (2, 1), False, False, 1)),
    "2Dlhb-v0": (ObstructedMaze("v0", 7, "2Dlhb"), lambda: nine_rooms(ObstructedMaze_Full, (2, 1), True, True, 1)),
    "2Q-v1": (ObstructedMaze("v1", 7, "2Q"), lambda: nine_rooms(ObstructedMaze_Full_V1, (1, 1), True, True, 2)),
    "Full-v0": (ObstructedMaze("v0", 7, "Full"), lambda: nine_rooms(ObstructedMaze_Full, (1, 1), True, True, 4)),
    "Full-v1": (ObstructedMaze("v1", 7, "Full"), lambda: nine_rooms(ObstructedMaze_Full_V1, (1, 1), True, True, 4)),
    "Unlock": (Unlock(), UnlockEnv),
    "UnlockPickup": (UnlockPickup(), UnlockPickupEnv),
    "BlockedUnlockPickup": (BlockedUnlockPickup(), BlockedUnlockPickupEnv),
    "KeyCorridor-S3R1": (KeyCorridor(1, 3), lambda: KeyCorridorEnv(num_rows=1, room_size=3)),
    "KeyCorridor-S4R3": (KeyCorridor(3, 4), lambda: KeyCorridorEnv(num_rows=3, room_size=4)),
    "KeyCorridor-S6R3": (KeyCorridor(3, 6), lambda: KeyCorridorEnv(num_rows=3, room_size=6)),
    "LockedRoom": (LockedRoom(), LockedRoomEnv),
    "DoorKey-5": (DoorKey(5), lambda: DoorKeyEnv(size=5)),
    "DoorKey-8": (DoorKey(8), lambda: DoorKeyEnv(size=8)),
    "LavaGap": (LavaGap(7), lambda: LavaGapEnv(size=7)),
    "LavaCrossing": (LavaCrossing(9, 2), lambda: CrossingEnv(size=9, num_crossings=2)),
    "SimpleCrossing": (SimpleCrossing(9, 3), lambda: CrossingEnv(size=9, num_crossings=3, obstacle_type="wall")),
    "Fetch-5": (Fetch(5, 2), lambda: FetchEnv(size=5, numObjs=2)),
    "Fetch-8": (Fetch(8, 3), lambda: FetchEnv(size=8, numObjs=3)),
}  # fmt: skip


def compare(name: str, n_ours: int, n_theirs: int) -> None:
    """Our levels of a family beside MiniGrid's."""
    family, make = PAIRS[name]
    levels = drawn(family, n_ours)
    if "v0" not in name:
        assert checked(those(levels, np.arange(n_ours) < CHUNK)).all()
    env = make()
    real = theirs(env, n_theirs, family.height, family.width)
    assert_same_law(facts(levels.grid, levels.agent_pos, levels.agent_dir), facts(*real))


EVERY_TIME = (
    "MultiRoom-N4-Random",
    "Full-v1",
    "BlockedUnlockPickup",
    "KeyCorridor-S4R3",
    "LockedRoom",
    "DoorKey-8",
    "LavaCrossing",
    "Fetch-5",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "DoorKey-8" else pytest.mark.deep) for name in EVERY_TIME]
)
def test_levels_have_the_law_of_minigrids(name):
    compare(name, 2000, 250)


# --------------------------------------------------------------------------------------------- a few of every family

N_FEW = 16
# Between them they have every object. Chains of rooms have tests of their own. Each costs seconds to compile.
FEW = ("1Dlhb", "Unlock", "DoorKey-5", "LavaGap", "Fetch-5")
MORE = (
    "MultiRoom-N2-S4",
    "MultiRoom-N4-Random",
    "BlockedUnlockPickup",
    "KeyCorridor-S3R1",
    "LockedRoom",
    "LavaCrossing",
    "Full-v1",
    "UnlockPickup",
    "SimpleCrossing",
)
OURS: dict[str, Any] = {
    "empty room": EmptyRoom(5, 7),
    "rooms": Rooms(max_steps=77),
    "mixture": MixedFamilies((LavaGap(5), "door_key"), (1.0, 3.0)),
}


@functools.cache
def few(names: tuple[str, ...]) -> dict[str, tuple[Any, np.ndarray]]:
    """(a few levels, which of them can be solved) of each family, all from one program. All must be valid."""
    families = {name: OURS[name] if name in OURS else PAIRS[name][0] for name in names}
    frame = max(max(family.height, family.width) for family in families.values())

    def one(key, family):
        levels = jax.vmap(family.sample_level)(jax.random.split(key, N_FEW))
        padding = (0, 0), (0, frame - family.height), (0, frame - family.width)
        return levels.replace(grid=jnp.pad(levels.grid, padding, constant_values=cells.WALL))

    def draw(key):
        keys = jax.random.split(key, len(families))
        levels = jax.tree.map(lambda *xs: jnp.concatenate(xs), *map(one, keys, families.values()))
        return levels, jax.vmap(is_valid)(levels), jax.vmap(solvable)(levels)

    levels, valid, can_solve = quick(draw, jax.random.key(0))
    assert valid.all()
    found = {}
    for i, (name, family) in enumerate(families.items()):
        part = slice(i * N_FEW, (i + 1) * N_FEW)
        own = jax.tree.map(lambda x, part=part: x[part], levels)
        found[name] = own.replace(grid=own.grid[:, : family.height, : family.width]), can_solve[part]
    return found


def things(grid) -> np.ndarray:
    """i64[n, 7]: how many walls, doors, keys, balls, boxes, goals and lavas there are."""
    names = ("wall", "door", "key", "ball", "box", "goal", "lava")
    return np.stack([(grid & 15 == codes.OBJECTS.index(name)).sum(axis=(1, 2)) for name in names], axis=1)


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.deep) for name in MORE)])
def test_a_few_levels_of_every_family_are_valid_can_be_solved_and_hold_what_minigrids_hold(name):
    family, make = PAIRS[name]
    levels, can_solve = few((*FEW, *OURS) if name in FEW else MORE)[name]
    assert levels.grid.shape == (N_FEW, family.height, family.width)
    assert can_solve.all()
    assert (levels.max_steps <= family.max_steps).all()
    assert len(np.unique(levels.grid, axis=0)) > 1
    ours, real = things(levels.grid), things(theirs(make(), 60, family.height, family.width)[0])
    if name.startswith("MultiRoom"):  # its walls are of all lengths
        ours, real = ours[:, 1:], real[:, 1:]
    assert set(map(tuple, ours.tolist())) <= set(map(tuple, real.tolist()))


def test_a_few_levels_of_our_own_families_hold_what_they_say():
    found = few((*FEW, *OURS))
    levels, can_solve = found["empty room"]
    assert can_solve.all()
    assert things(levels.grid).tolist() == [[20, 0, 0, 0, 0, 1, 0]] * N_FEW
    levels, _ = found["rooms"]
    locked = (levels.grid & 0x18F == codes.DOOR | codes.LOCKED << 7).sum(axis=(1, 2))
    np.testing.assert_array_equal(locked, levels.difficulty)
    assert set(levels.max_steps.tolist()) == {77}
    assert len(set(levels.task.tolist())) > 1
    levels, _ = found["mixture"]
    assert set(levels.difficulty.tolist()) == {0, 1}
    gap = those(levels, levels.difficulty == 0)
    assert (gap.grid[:, 5:] == cells.EMPTY).all()
    assert (count(gap, codes.LAVA) == 2).all()
    assert (count(those(levels, levels.difficulty == 1), codes.KEY) == 1).all()


# --------------------------------------------------------------------------------------------------- MultiRoom

N_CHAINS = 4000


@functools.cache
def chains_of() -> Any:
    """(key, number of rooms) -> (chains of so many rooms, their drawings), compiled."""
    family = MultiRoom()

    def draw(key, n_rooms):
        k_rooms, k_colours = jax.random.split(key)
        chain = family.place_rooms(k_rooms, n_rooms)
        return chain, family.draw(k_colours, chain, n_rooms)

    def several(key, n_rooms):
        return jax.vmap(draw, (0, None))(jax.random.split(key, N_CHAINS), n_rooms)

    return jax.jit(several).lower(jax.random.key(0), np.int32(0)).compile(compiler_options=QUICK)


@functools.cache
def chains(n_rooms: int) -> Any:
    """(chains of so many rooms, their drawings)."""
    return jax.tree.map(np.asarray, chains_of()(jax.random.key(n_rooms), np.int32(n_rooms)))


def test_a_single_room_is_uniform_where_it_fits():
    chain, _ = chains(1)
    # The corner is drawn from 12 x 12 cells, and all four sizes are equally likely.
    assert_share(chain.n_attempts == 1, 133 / 192)
    assert_share(chain.size[:, 0, 0] == 4, 11 / 21)
    assert_share(chain.size[:, 0, 1] == 4, 10 / 19)
    smallest = (chain.size[:, 0] == 4).all(axis=1)
    assert_uniform(chain.corner[smallest, 0], 11 * 10)


def test_doors_of_a_chain_join_two_rooms_and_two_in_a_row_differ_in_colour():
    chain, grid = chains(4)
    colours = []
    for i in (1, 2, 3):
        door = chain.door[:, i]
        what = grid[np.arange(N_CHAINS), door[:, 1], door[:, 0]]
        assert (what & 0x18F == codes.DOOR | codes.CLOSED << 7).all()
        colours.append(what.astype(int) >> 4 & 7)
        for room in (i - 1, i):
            offset, size = door - chain.corner[:, room], chain.size[:, room]
            in_wall = (offset == 0) | (offset == size - 1)
            inside = (offset > 0) & (offset < size - 1)
            # In a wall of the room, and in no corner.
            assert (in_wall.sum(axis=1) == 1).all()
            assert (inside.sum(axis=1) == 1).all()
    assert ((grid & 15 == codes.DOOR).sum(axis=(1, 2)) == 3).all()
    assert_uniform(colours[0], 6)
    assert_uniform((colours[1] - colours[0]) % 6, 5)
    assert_uniform((colours[2] - colours[1]) % 6, 5)
    assert (grid[:, -1] == cells.EMPTY).all()


def plain_chain(n: int, bits: np.ndarray, family: MultiRoom) -> list:
    """The rooms [x, y, columns, rows, door x, door y] of a chain, from the bits of each attempt (u32[attempts, 7])."""
    rooms: list[tuple[int, ...]] = []
    entry, tries = 2, 0
    for number in bits.tolist():
        if len(rooms) == n:
            break
        sx, sy = (4 + b % (family.max_side - 3) for b in number[:2])
        door, wall = (0, 0), 2
        if rooms:
            x, y, w, h = rooms[-1][:4]
            exit_wall = [wall % 4 for wall in range(entry + 1, entry + 4)][number[2] % 3]
            along = 1 + number[3] % ((h if exit_wall in (0, 2) else w) - 2)
            across, down = x + along, y + along
            door = ((x + w - 1, down), (across, y + h - 1), (x, down), (across, y))[exit_wall]
            wall = (exit_wall + 2) % 4
            before = 1 + number[4] % ((sy if wall in (0, 2) else sx) - 2)
            left, top = door[0] - before, door[1] - before
            corner = ((door[0] - sx + 1, top), (left, door[1] - sy + 1), (door[0], top), (left, door[1]))[wall]
        else:
            corner = tuple(b % (family.width - 2) for b in number[5:7])
        x, y = corner
        apart = (x + sx < a or a + w <= x or y + sy < b or b + h <= y for a, b, w, h, *_ in rooms[:-1])
        if x >= 0 and y >= 0 and x + sx <= family.width and y + sy < family.height and all(apart):
            rooms.append((x, y, sx, sy, *door))
            entry, tries = wall, 0
        elif rooms:
            tries += 1
            if tries == 8:
                rooms, entry, tries = [], 2, 0
    return rooms


def test_a_chain_is_that_of_plain_python():
    family, n_chains, n_attempts = MultiRoom(), 40, 250

    def bits(key):
        k_rooms, _ = jax.random.split(key)
        return jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(k_rooms, i), (7,)))(jnp.arange(n_attempts))

    chain, _ = chains(4)
    drawn_bits = quick(lambda key: jax.vmap(bits)(jax.random.split(key, N_CHAINS)[:n_chains]), jax.random.key(4))
    parts = np.concatenate([chain.corner, chain.size, chain.door], axis=2)
    restarted = 0
    for i in range(n_chains):
        expected = np.array(plain_chain(4, drawn_bits[i], family))
        np.testing.assert_array_equal(parts[i, :, :4], expected[:, :4])
        np.testing.assert_array_equal(parts[i, 1:, 4:], expected[1:, 4:])
        restarted += chain.n_attempts[i] > 20
    assert restarted >= 5


@pytest.mark.deep
def test_levels_of_multi_room_are_uniform_in_all_that_is_drawn_last():
    levels = drawn(MultiRoom())
    assert_uniform(levels.difficulty, 4)
    assert_uniform(levels.agent_dir, 4)
    assert set(levels.max_steps.tolist()) == {80}
    assert ((levels.grid & 15 == codes.DOOR).sum(axis=(1, 2)) == levels.difficulty).all()
    goal = np.argwhere(levels.grid == cells.GOAL)[:, :0:-1]
    assert (goal != levels.agent_pos).any(axis=1).all()
    # In single rooms of 9 cells, each pair of different cells is equally likely.
    walls = (levels.grid == cells.WALL).sum(axis=(1, 2))
    large = (levels.difficulty == 0) & (walls == 16)
    assert large.sum() > 80
    delta = goal[large] - levels.agent_pos[large]
    assert abs(delta.mean()) < 4 * np.sqrt(4 / 3 / delta.size * 9 / 8)


@pytest.mark.deep
def test_a_chain_that_is_not_found_is_put_in_a_row():
    levels = drawn(MultiRoom(4, 4, max_attempts=1), CHUNK)
    assert checked(levels).all()
    assert (levels.difficulty == 3).all()
    expected = np.full((14, 14), False)
    expected[0, :13] = expected[3, :13] = expected[:4, 0:13:3] = True
    expected[1, [3, 6, 9]] = False
    assert ((levels.grid == cells.WALL) == expected).all()
    assert (levels.grid[:, 1, [3, 6, 9]] & 15 == codes.DOOR).all()


# --------------------------------------------------------------------------------------------------- ObstructedMaze


def count(levels, kind: int) -> np.ndarray:
    return (levels.grid & 15 == kind).sum(axis=(1, 2))


def place_of(levels, cell: int, mask: int = 0xFFFF) -> np.ndarray:
    """i32[n, 2]: [x, y] of the only cell like this one."""
    found = np.argwhere(levels.grid & mask == cell)
    assert (found[:, 0] == np.arange(len(levels.grid))).all()
    return found[:, :0:-1]


@pytest.mark.deep
def test_a_gamut_has_each_of_its_kinds_equally_often():
    assert_uniform(drawn(GamutHard(), 10000).difficulty, 9)
    # The others differ from it in nothing but these.
    for family, n_kinds, max_steps in ((GamutEasy(), 3, 392), (GamutMedium(), 6, 784), (GamutHard(), 9, 4900)):
        assert family.difficulties == tuple(range(n_kinds))
        assert (family.height, family.width, family.max_steps) == (19, 19, max_steps)


@pytest.mark.deep
def test_every_kind_has_exactly_its_doors_keys_boxes_and_balls():
    levels = drawn(GamutHard(), 10000)
    expected_steps = (392, 392, 392, 784, 784, 784, 980, 2156, 4900)
    for kind, (plan, max_steps) in enumerate(zip(PLANS, expected_steps, strict=True)):
        some = those(levels, levels.difficulty == kind)
        n_locks = 1 if kind < 3 else 2 * (1, 1, 1, 1, 2, 4)[kind - 3]
        n_unlocked = 0 if kind < 3 else (1, 1, 1, 1, 2, 4)[kind - 3]
        assert (count(some, codes.DOOR) == n_locks + n_unlocked).all()
        assert ((some.grid & 0x18F) == (codes.DOOR | codes.LOCKED << 7)).sum() == n_locks * len(some.grid)
        assert (count(some, codes.KEY) == (0 if plan.in_boxes else n_locks)).all()
        assert (count(some, codes.BOX) == (n_locks if plan.in_boxes else 0)).all()
        assert ((some.grid == cells.ball(codes.GREEN)).sum(axis=(1, 2)) == (n_locks if plan.blocked else 0)).all()
        assert set(some.max_steps.tolist()) == {max_steps}
        assert ((some.agent_pos // 6) == np.array(plan.agent)).all()
        target = place_of(some, cells.ball(codes.BLUE))
        if kind < 3:
            assert_uniform(target, 20)
            assert (np.abs(target - np.array([9, 3])).sum(axis=1) >= 2).all()
        else:
            corners = CORNERS[:n_unlocked]
            assert set(map(tuple, (target // 6).tolist())) == set(corners)
            assert_uniform(target // 6, len(corners))
            assert_uniform(target % 6, 25)
    assert checked(levels).all()
    # Boxes are grey, and the colours of the keys in them are those of the locks.
    boxes = levels.grid[levels.grid & 15 == codes.BOX]
    assert set((boxes >> 4 & 7).tolist()) == {codes.GREY}
    assert set((boxes >> 9 & 15).tolist()) == {codes.KEY}


@pytest.mark.deep
def test_colours_doors_and_keys_of_a_maze_are_uniform():
    levels = drawn(GamutHard(), 10000)
    two = those(levels, (levels.difficulty >= 3) & (levels.difficulty < 6))
    first = place_of(two, codes.DOOR | codes.CLOSED << 7, 0x18F)
    upper = two.grid[:, 6]
    has_lock = upper & 0x18F == codes.DOOR | codes.LOCKED << 7
    assert (has_lock.sum(axis=1) == 1).all()
    rows = np.arange(len(upper))
    pair = np.stack([two.grid[rows, first[:, 1], first[:, 0]] >> 4 & 7, upper[has_lock] >> 4 & 7], axis=1)
    assert_uniform(pair, 30)
    assert_uniform(first[:, 1], 5)
    assert_uniform(has_lock.argmax(axis=1), 5)
    assert_uniform(place_of(those(levels, levels.difficulty == 0), codes.KEY, 15), 25)
    # With balls in the way, the first key has 23 cells of its room, and the second one has 22.
    blocked = those(levels, levels.difficulty == 5)
    colour = blocked.grid[:, 6][blocked.grid[:, 6] & 15 == codes.DOOR] >> 4 & 7
    room = blocked.grid[:, 7:12, 13:18].reshape(len(colour), 25)
    is_key = room == (cells.box(codes.GREY, 0) | (codes.KEY | colour << 4) << 9)[:, None]
    is_ball = room == cells.ball(codes.GREEN)
    assert (is_key.sum(axis=1) == 1).all()
    rank = ((~is_ball).cumsum(axis=1) * is_key).sum(axis=1)
    assert_uniform(rank, 23)


@pytest.mark.deep
def test_the_agent_is_uniform_over_what_is_allowed():
    levels = drawn(GamutHard(), 10000)
    some = those(levels, levels.difficulty == 2)
    events, shares = [], []
    for grid, pos, facing in zip(some.grid & 15, some.agent_pos, some.agent_dir, strict=True):
        free = (codes.EMPTY, codes.WALL)
        pairs = [
            (x, y, d)
            for x, y, d in itertools.product(range(1, 6), range(1, 6), range(4))
            if grid[y, x] == codes.EMPTY and grid[y + codes.STEPS[d][1], x + codes.STEPS[d][0]] in free
        ]
        rank = pairs.index((*pos.tolist(), int(facing)))  # fails where it is not allowed
        events.append([rank < len(pairs) // 2, rank % 4 == 0, facing == 0])
        facing_right = sum(d == 0 for _, _, d in pairs)
        shares.append([len(pairs) // 2 / len(pairs), -(-len(pairs) // 4) / len(pairs), facing_right / len(pairs)])
    events, shares = np.array(events), np.array(shares)
    deviation = (events - shares).sum(axis=0) / np.sqrt((shares * (1 - shares)).sum(axis=0))
    assert (np.abs(deviation) < 4).all(), deviation


@pytest.mark.deep
def test_the_published_order_deletes_one_key_in_24():
    levels = drawn(GamutHard("v0"), 10000)
    can_solve = checked(levels)
    kind = levels.difficulty
    one_side = (kind == 5) | (kind == 6)
    assert_share(count(levels, codes.BOX)[one_side] < 2, 1 / 24)
    assert_share(~can_solve[one_side], 1 / 24)
    assert_share(~can_solve[kind == 7], 1 / 48)
    assert (8 - count(levels, codes.BOX)[kind == 8]).mean() == pytest.approx(4 / 24, abs=0.05)
    assert can_solve[(kind < 5) | (kind == 8)].all()


# --------------------------------------------------------------------------------------------------- ours


@pytest.mark.deep
def test_rooms_draw_all_counts_and_all_tasks():
    levels = drawn(Rooms(max_steps=77), 4000)
    assert_uniform(levels.task, 3)
    assert checked(levels).mean() == pytest.approx(0.44, abs=0.05)
    reach = those(levels, levels.task == tasks.REACH)
    assert_uniform(count(reach, codes.DOOR), 13)
    locked = (reach.grid & 0x18F == codes.DOOR | codes.LOCKED << 7).sum(axis=(1, 2))
    np.testing.assert_array_equal(locked, reach.difficulty)
    assert_uniform(locked[count(reach, codes.DOOR) >= 3], 4)
    assert_uniform(count(reach, codes.BALL), 5)
    keys = count(reach, codes.KEY) + ((reach.grid >> 9 & 15) == codes.KEY).sum(axis=(1, 2))
    np.testing.assert_array_equal(keys, locked)
    assert_uniform(reach.agent_pos, 81)
    assert_uniform(place_of(reach, cells.GOAL), 81)


@pytest.mark.deep
def test_a_mixture_takes_lists():
    listed, given = MixedFamilies(["door_key"], [1.0]), MixedFamilies(("door_key",), (1.0,))
    assert hash(listed) == hash(given)


def test_a_mixture_draws_each_family_as_often_as_its_weight_says():
    family = MixedFamilies((LavaGap(5), "door_key"), (1.0, 3.0))
    assert (family.height, family.width, family.max_steps) == (8, 8, 640)
    levels = drawn(family)
    assert_share(levels.difficulty == 1, 0.75)
    gap = those(levels, levels.difficulty == 0)
    assert set(gap.max_steps.tolist()) == {100}
    assert (gap.grid[:, 5:] == cells.EMPTY).all()
    assert (gap.grid[:, :, 5:] == cells.EMPTY).all()
    assert (count(gap, codes.LAVA) == 2).all()
    assert (count(those(levels, levels.difficulty == 1), codes.KEY) == 1).all()


# --------------------------------------------------------------------------------------------------- lists and suites

CALLS = {
    "sample_level": lambda env, key: env.sample_level(key),
    "reset": lambda env, key, level: env.reset(key, level),
    "step": lambda env, key, state, action: env.step(key, state, action),
}


@pytest.mark.deep
def test_a_list_of_a_gamut_has_its_kinds_in_turn_alone_in_a_batch_and_on_four_devices():
    env, numbers = make_env("GridWorld", family=GamutEasy(side=5)), np.arange(12)

    def together(numbers):
        return jax.vmap(lambda number: level_of_list(env, number))(numbers)

    def both():
        return together(numbers), jax.lax.map(lambda number: level_of_list(env, number), numbers)

    batch, singly = quick(both)
    mesh = jax.make_mesh((4,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    parts = jax.sharding.PartitionSpec("device")
    spread = quick(jax.shard_map(together, mesh=mesh, in_specs=parts, out_specs=parts, check_vma=False), numbers)
    assert batch.difficulty.tolist() == [0, 1, 2] * 4
    jax.tree.map(np.testing.assert_array_equal, batch, singly)
    jax.tree.map(np.testing.assert_array_equal, batch, spread)
    assert len(np.unique(batch.grid, axis=0)) == 12


@pytest.mark.deep
def test_every_frame_is_compiled_once():
    calls = {name: jax.jit(call, static_argnums=0) for name, call in CALLS.items()}
    for family in (EmptyRoom(14, 14), EmptyRoom(19, 19)):
        env = make_env("GridWorld", family=family)
        for seed in range(2):
            key = jax.random.key(seed)
            state, _ = calls["reset"](env, key, calls["sample_level"](env, key))
            for action in range(2):
                state, _ = calls["step"](env, key, state, jnp.int32(action))
    assert {name: call._cache_size() for name, call in calls.items()} == dict.fromkeys(CALLS, 2)


def test_held_out_levels_are_of_their_difficulty_and_fill_one_frame():
    env = make_env("GridWorld", family=LavaGap(5))
    suite = make_held_out(env, ["MultiRoomN3", "MultiRoomN1", "DoorKey5", "TrainingDistribution"])
    assert (suite.env.height, suite.env.width, suite.env.max_steps) == (14, 14, 250)
    levels = quick(lambda key: suite.sample(key, 5), jax.random.key(0))
    assert levels.grid.shape == (4, 5, 14, 14)
    assert levels.difficulty[:2].tolist() == [[2] * 5, [0] * 5]
    assert set(levels.max_steps[0].tolist()) == {80}
    assert (levels.grid[2:, :, 5:] == cells.WALL).all()
    assert (levels.grid[3] & 15 == codes.LAVA).any(axis=(1, 2)).all()
    alone = quick(lambda key: make_held_out(env, ["DoorKey5"]).sample(key, 5), jax.random.key(0))
    np.testing.assert_array_equal(alone.grid[0], levels.grid[2, :, :5, :5])


def test_a_suite_keeps_the_rules_of_all_suites():
    env = make_env("GridWorld", family=LavaGap(5))
    check_held_out(env, jax.random.key(0), names=("LavaGap6", "TrainingDistribution"), n_episodes=2)


@pytest.mark.parametrize("observation", ["partial", "full"])
def test_every_environment_has_tasks_to_be_evaluated_on(observation):
    groups = ("validation", "benchmark")
    for name in FAMILIES.names():
        for see_target in (True, False):
            env = make_env("GridWorld", family=name, observation=observation, see_target=see_target)
            played = [make_held_out(env, [group]).names for group in groups]
            assert all(names[-1] == "TrainingDistribution" for names in played)
            assert ("Fetch8N3" in played[1]) <= see_target
            if observation == "partial":
                assert all(len(names) >= len(GROUPS[group]) - 1 for group, names in zip(groups, played, strict=True))
    small = make_env("GridWorld", observation="full")
    assert make_held_out(small, ["validation"]).names == ("LavaGap6", "DoorKey6", "TrainingDistribution")


def test_every_group_can_be_asked_for():
    env = make_env("GridWorld", family="obstructed_maze_gamut_hard", observation="full")
    assert make_held_out(env, ["gamut_hard"]).env.max_steps == 4900
    assert make_held_out(env, ["gamut_hard_v0"]).names[4:7] == (
        "ObstructedMaze2Dlh",
        "ObstructedMaze2DlhbV0",
        "ObstructedMaze1QV0",
    )
    medium = [TASKS[name] for name in make_held_out(env, ["gamut_medium_v0"]).names]
    assert medium[:5] == [ObstructedMaze(kind=kind) for kind in KINDS[:5]]
    assert medium[5:] == [ObstructedMaze("v0", 7, "2Dlhb")]
    assert make_held_out(env, ["multi_room"]).env.height == 19
    assert make_held_out(make_env("GridWorld"), ["all"]).env.width == 25
    for name, family in TASKS.items():
        level = jax.eval_shape(family.sample_level, jax.random.key(0))
        assert level.grid.shape == (family.height, family.width), name


@pytest.mark.parametrize("name", FAMILIES.names())
def test_every_registered_family_says_its_frame(name):
    family = FAMILIES[name]()
    level = jax.eval_shape(family.sample_level, jax.random.key(0))
    assert level.grid.shape == (family.height, family.width)
    assert make_env("GridWorld", family=name).max_steps == family.max_steps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiRoom(n_max=5), "width=14: 5 rooms in a row need at least 16 columns"),
        (lambda: MultiRoom(n_min=2, n_max=1), "n_max=1: it must be a whole number of at least 2"),
        (lambda: MultiRoom(max_side=3), "max_side=3: it must be a whole number of at least 4"),
        (lambda: MultiRoom(height=4), "height=4: it must be a whole number of at least 5"),
        (lambda: ObstructedMaze(kind="2Dlhc"), r"unknown kind '2Dlhc': .* \(did you mean '2Dlh'\?\)"),
        (lambda: GamutEasy(key_order="v2"), "unknown key_order 'v2': choose from v1, v0"),
        (lambda: GamutEasy(side=4), "side=4: it must be a whole number of at least 5"),
        (lambda: DoorKey(4), "size=4: it must be a whole number of at least 5"),
        (lambda: LavaCrossing(8), "size=8 is even: it must be odd, such as 9"),
        (lambda: LavaCrossing(9, 7), "n_crossings=7: it must be at most 6"),
        (lambda: Fetch(5, 9), "n_objects=9: it must be at most 8"),
        (lambda: KeyCorridor(0), "n_rows=0: it must be a whole number of at least 1"),
        (lambda: Rooms(max_locks=6), "max_locks=6: it must be at most 5"),
        (lambda: Rooms(task="open", max_locks=0), "a door to open needs a lock and a wall"),
        (lambda: Rooms(1, 1, 4, "reach"), "side=4: the rooms have 4 cells, but 11 are needed for all things"),
        (lambda: Rooms(task="opne"), r"unknown task 'opne': .* \(did you mean 'open'\?\)"),
        (lambda: MixedFamilies(()), "families is empty"),
        (lambda: MixedFamilies(["door_key"], 1.0), r"weights=1.0: it must be a list"),
        (lambda: MixedFamilies(("door_kee",)), r"unknown family of levels 'door_kee': .*did you mean 'door_key'"),
        (lambda: MixedFamilies(("door_key",), (1.0, 2.0)), "weights has 2 numbers: it must have one for each of 1 fam"),
        (lambda: MixedFamilies(("door_key",), (-1.0,)), "each must be a number of at least 0"),
        (lambda: MixedFamilies(("door_key",), (0.0,)), "at least one must be greater than 0"),
        (lambda: make_held_out(make_env("GridWorld"), ["DoorKey7"]), "unknown held-out task 'DoorKey7'"),
        (
            lambda: make_held_out(make_env("GridWorld", observation="full"), ["LavaGap7", "MultiRoomN1"]),
            "'MultiRoomN1' has 14 x 14 cells, but agents that see the full frame are trained with 8 x 8",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


if __name__ == "__main__":  # all pairs, with so many levels that an error of a few per cent is found
    for pair in PAIRS:
        compare(pair, 20000, 4000)
        print(pair, "is the same", flush=True)
