"""Neural MMO's NPCs: dangers and levels as recorded, paths against A*, who is attacked, how slots fill up."""

import types

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.flood import step_to, views, wandering
from minimax_lib.envs.nmmo.ground import passable_windows
from minimax_lib.envs.nmmo.npcs import MOVES, decide, targets
from minimax_lib.envs.nmmo.spawning import CANDIDATES, N_BITS, born, mourned, places, refilled
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import Queue, empty_queue, newborn, no_npcs
from minimax_lib.envs.nmmo.tables import GRASS, PASSABLE, STONE
from minimax_lib.envs.nmmo.tick import Rules, with_npcs
from tests.nmmo_recordings import recorded

MEDIUM, SMALL = Square(128), Square(32)


def test_danger_and_level_of_every_tile():
    table = recorded("danger_map.npz")
    rows, columns = np.nonzero(~np.isnan(table["danger"]))
    assert len(rows) == 129 * 129
    position = np.stack([rows, columns], axis=1).astype(np.int32)
    npcs = jax.jit(lambda position, bits: born(bits, MEDIUM, position, 10))(
        position, np.zeros((len(rows), 2), np.uint32)
    )
    danger, level = table["danger"][rows, columns], table["level"][rows, columns]
    np.testing.assert_array_equal(npcs.danger, danger.astype(np.float32))
    np.testing.assert_array_equal(npcs.level, level)
    np.testing.assert_array_equal(npcs.kind, np.where(danger >= 0.8, 3, np.where(danger >= 0.5, 2, 1)))
    np.testing.assert_array_equal(npcs.strength, 8 * level)  # with bits of 0, nothing is taken off


def test_new_npcs_are_uniform_in_style_and_a_little_weaker_than_their_level():
    position = np.full((4000, 2), 48, np.int32)  # danger 0.5, level 5
    npcs = jax.jit(lambda bits: born(bits, MEDIUM, position, 10))(
        np.random.default_rng(0).integers(0, 2**32, (4000, 2)).astype(np.uint32)
    )
    share = np.bincount(np.asarray(npcs.style), minlength=3) / 4000
    assert np.abs(share - 1 / 3).max() < 0.03
    strength = np.bincount(np.asarray(npcs.strength), minlength=41)
    assert strength[:32].sum() == 0
    assert np.abs(strength[32:40] / 4000 - 1 / 8).max() < 0.03


def test_paths_are_nearly_always_shortest():
    """Against the recorded shortest paths: the first step shortens them, and goals are reached."""
    cases = recorded("npc_path_cases.npy").astype(np.int32)
    assert len(cases) == 996
    maps = recorded("reference_maps.npz")["medium"].astype(np.uint8)
    start, goal, length = cases[:, 1:3], cases[:, 3:5], cases[:, 7]
    windows = np.asarray(jax.jit(jax.vmap(passable_windows))(maps))

    @jax.jit
    def chase(windows, position, goal):
        def view(place):
            rows = place[:, 0][None] + jnp.arange(-7, 8)[:, None]
            return windows[cases[:, 0][None], rows, place[:, 1][None]]

        def walk(place, _):
            place = place + jnp.asarray(MOVES)[step_to(view(place), goal - place)]
            return place, place

        return jax.lax.scan(walk, position, None, length=40)[1]

    trail = np.asarray(chase(windows, start, goal))
    reachable = length >= 0
    reached = (trail[-1] == goal).all(axis=1)
    assert reached[reachable].mean() >= 0.88
    assert PASSABLE[maps[cases[:, 0][None], trail[..., 0], trail[..., 1]]].all()
    shorter = np.array([distance(maps[case[0]], step, case[3:5]) for case, step in zip(cases, trail[0], strict=True)])
    assert (shorter == length - 1)[reachable & (length > 0)].mean() >= 0.94


def distance(terrain: np.ndarray, start: np.ndarray, goal: np.ndarray, limit: int = 60) -> int:
    """The length of the shortest path, by breadth first search; -1: longer than the limit."""
    seen, frontier = {tuple(start)}, [tuple(start)]
    for length in range(limit + 1):
        if tuple(goal) in seen:
            return length
        frontier = [
            to
            for row, column in frontier
            for to in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
            if to not in seen and PASSABLE[terrain[to]] and not seen.add(to)
        ]
    return -1


def test_views_are_windows_of_the_map():
    terrain = np.random.default_rng(0).integers(0, 16, (64, 64)).astype(np.uint8)
    view = np.asarray(jax.jit(lambda t, p: views(passable_windows(t), p))(terrain, np.array([[20, 30]])))[:, 0]
    bits = (view[:, None] >> np.arange(15)) & 1
    np.testing.assert_array_equal(bits == 1, PASSABLE[terrain[13:28, 23:38]])


def test_wandering_takes_the_first_open_tile_from_a_random_start():
    middle = np.zeros((5, 15), np.uint16)
    middle[0, 6] = 1 << 7  # north
    middle[1, 8] = 1 << 7  # south
    middle[2, 7] = 1 << 6 | 1 << 8  # west and east
    middle[3, 6] = middle[3, 8] = 1 << 7
    bits = np.array([3, 0, 0, 3, 1], np.uint32)
    assert jax.jit(wandering)(bits, middle.T).tolist() == [0, 1, 2, 0, 4]


def some_npcs(kind, position, **fields):
    npcs = no_npcs(len(kind)).replace(kind=np.array(kind), position=np.array(position), alive=np.ones(len(kind), bool))
    return npcs.replace(**{name: np.array(x) for name, x in fields.items()})


def test_who_is_gone_for():
    players = np.array([[20, 20], [20, 24], [40, 40]], np.int32)
    of = jax.jit(targets)
    # Passive, neutral, aggressive; then an aggressive one with a target that it keeps, and one that it has lost.
    npcs = some_npcs([1, 2, 3, 3, 3], [[20, 22]] * 5, target=[-1, -1, -1, 1, 2], attacker=[0, -1, -1, -1, -1])
    assert of(npcs, players, np.ones(3, bool)).tolist() == [-1, -1, 0, 1, 0]
    assert of(npcs, players, np.array([False, True, True])).tolist() == [-1, -1, 1, 1, 1]
    # A neutral one turns on whoever hit it, however far away.
    npcs = some_npcs([2, 2, 2, 3, 3], [[20, 22]] * 5, attacker=[2, 0, -1, -1, 2])
    assert of(npcs, players, np.ones(3, bool)).tolist() == [2, 0, -1, 0, 2]
    assert of(npcs, players, np.array([True, True, False])).tolist() == [-1, 0, -1, 0, 0]


def test_attacks_and_steps_of_a_decision():
    terrain = np.full((64, 64), 2, np.uint8)
    players = jnp.array([[30, 30], [30, 36]], jnp.int32)
    npcs = some_npcs([3, 3, 3], [[30, 30], [30, 33], [30, 40]])
    decision = jax.jit(lambda npcs: decide(jnp.zeros(3, jnp.uint32), npcs, players, jnp.ones(2, bool), windows))
    windows = jax.jit(passable_windows)(terrain)
    plans = decision(npcs)
    assert plans.target.tolist() == [0, 0, 1]
    assert plans.attacked.tolist() == [0, 0, -1]
    assert plans.move.tolist() == [[0, 0], [0, -1], [0, -1]]
    dead = decision(npcs.replace(alive=np.zeros(3, bool)))
    assert (dead.target.tolist(), dead.move.tolist()) == ([-1] * 3, [[0, 0]] * 3)


def refilled_one_by_one(bits, alive, dangers, position, open_tiles):
    """(places of new NPCs in the order of slots, entries of the queue that were used)."""
    free, used, found = int((~alive).sum()), 0, []
    for k in range(CANDIDATES):
        if len(found) == free:
            break
        used += k < len(dangers)
        row, column = position[k]
        if open_tiles[row, column]:
            found.append([int(row), int(column)])
    return found, used


def test_slots_fill_up_as_one_candidate_after_another():
    random = np.random.default_rng(3)
    n = 16
    fill = jax.jit(lambda bits, npcs, queue, terrain: refilled(bits, npcs, queue, SMALL, terrain, 5))
    place = jax.jit(lambda bits, danger, has: places(bits, SMALL, danger, has))
    for _ in range(100):
        bits = random.integers(0, 2**32, (CANDIDATES, N_BITS)).astype(np.uint32)
        npcs = no_npcs(n).replace(alive=random.random(n) < 0.5)
        dangers = random.integers(1, 16, n).astype(np.float32) / 16
        first, size = int(random.integers(n)), int(random.integers(0, n // 2))
        queue = Queue(dangers=dangers, first=jnp.asarray(first), size=jnp.asarray(size))
        open_tiles = random.random((64, 64)) < 0.5
        entries = dangers[(first + np.arange(CANDIDATES)) % n]
        position = np.asarray(place(bits, entries, np.arange(CANDIDATES) < size))
        found, used = refilled_one_by_one(bits, npcs.alive, range(size), position, open_tiles)
        after, left = fill(bits, npcs, queue, np.where(open_tiles, GRASS, STONE).astype(np.uint8))
        filled = np.asarray(after.alive) & ~npcs.alive
        assert np.asarray(after.position)[filled].tolist() == found
        assert (int(left.size), int(left.first)) == (size - used, (first + used) % n)
        # Where an entry says so, the place has its danger.
        inward = np.minimum(position - 16, 47 - position).min(axis=1)
        np.testing.assert_array_equal(inward[:size], (entries * 16)[:size])


def test_as_many_npcs_as_fit_stand_after_a_reset_and_all_slots_fill_in_twelve_ticks():
    terrain = recorded("reference_maps.npz")["medium"][0].astype(np.uint8)
    bits = np.random.default_rng(6).integers(0, 2**32, (200, 12, CANDIDATES, N_BITS)).astype(np.uint32)

    @jax.jit
    @jax.vmap
    def grow(bits):
        def one_tick(loop, bits):
            loop = refilled(bits, *loop, MEDIUM, jnp.asarray(terrain), 10)
            return loop, loop[0].alive.sum()

        return jax.lax.scan(one_tick, (no_npcs(128), empty_queue(128)), bits)[1]

    standing = np.asarray(grow(bits))
    share = PASSABLE[terrain[16:144, 16:144]].mean()
    assert abs(standing[:, 0].mean() - 25 * share) < 0.6
    assert (standing[:, 11] == 128).all()


def test_places_of_candidates_are_uniform():
    random = np.random.default_rng(4)
    bits = random.integers(0, 2**32, (20_000, N_BITS)).astype(np.uint32)
    place = jax.jit(lambda bits, danger, has: places(bits, SMALL, danger, has))
    anywhere = np.asarray(place(bits, np.zeros(20_000, np.float32), np.zeros(20_000, bool)))
    assert (anywhere.min(), anywhere.max()) == (16, 47)
    assert np.abs(np.bincount(anywhere[:, 0] - 16) / 20_000 - 1 / 32).max() < 0.006
    ring = np.asarray(place(bits, np.full(20_000, 0.5, np.float32), np.ones(20_000, bool)))
    assert set(np.minimum(ring - 16, 47 - ring).min(axis=1)) == {8}
    for k in (0, 1):
        assert np.abs((ring[:, k] == 24).mean() - (0.25 + 0.5 / 16)) < 0.02
        assert np.abs((ring[:, k] == 39).mean() - (0.25 + 0.5 / 16)) < 0.02


def test_the_dead_leave_their_danger_unless_it_is_none():
    queue = empty_queue(4).replace(first=jnp.asarray(2), size=jnp.asarray(1), dangers=jnp.array([0, 0, 0.5, 0]))
    danger = np.array([0.25, 0.0, 0.75, 0.125], np.float32)
    left = jax.jit(mourned)(queue, danger, np.array([True, True, False, True]))
    assert (int(left.first), int(left.size)) == (2, 3)
    assert left.dangers.tolist() == [0.125, 0, 0.5, 0.25]


def test_nobody_takes_the_npc_in_the_slot_of_a_dead_one_for_its_attacker():
    """Four players, hit by NPC 0, which has died, by NPC 1, by player 0, and by nobody. New NPCs fill both slots."""

    @jax.jit
    def attackers():
        npcs = no_npcs(2)
        npcs = npcs.replace(alive=jnp.ones(2, bool), health=jnp.array([0, 5], npcs.health.dtype))
        players = newborn(jnp.ones((4, 2), jnp.int16), jnp.zeros(4, bool))
        state = types.SimpleNamespace(
            npcs=npcs,
            players=players.replace(attacker=jnp.array([4, 5, 0, -1], players.attacker.dtype)),
            queue=empty_queue(2),
            level=types.SimpleNamespace(terrain=jnp.full((SMALL.side, SMALL.side), GRASS, jnp.uint8)),
            replace=lambda **parts: types.SimpleNamespace(**parts),
        )
        after = with_npcs(jnp.zeros((CANDIDATES, N_BITS), jnp.uint32), state, Rules(SMALL))
        return after.players.attacker, after.npcs.alive

    attacker, alive = attackers()
    assert alive.all()
    assert attacker.tolist() == [-1, 5, 0, -1]
