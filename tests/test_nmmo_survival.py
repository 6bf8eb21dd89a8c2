"""Neural MMO: hunger and thirst as recorded, harvests against one player after another, tiles coming back as often."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from minimax_lib.envs.nmmo.fog import Fog, damage_of
from minimax_lib.envs.nmmo.ground import passable, passable_windows, ready_after, shown
from minimax_lib.envs.nmmo.harvest import experience_of, harvest, n_harvests
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.skills import best_level, learnt, level_of
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import FOG, HUNGER, newborn
from minimax_lib.envs.nmmo.survival import Survival, bodies, nourished, unhurt
from minimax_lib.envs.nmmo.tables import (
    EVENTS,
    FISH,
    FOLIAGE,
    GRASS,
    HERB,
    MATERIALS,
    ORE,
    PASSABLE,
    RESPAWN,
    THRESHOLDS,
    TREE,
    WATER,
)
from minimax_lib.envs.nmmo.tick import upkeep
from tests.nmmo_recordings import recorded


def recordings():
    return json.loads(recorded("survival_traces.json", text=True))


@jax.jit
def one_tick(players, terrain, ready_at, tick):
    """Bodies, then food and drink, without respawn."""
    players = bodies(players, Survival())
    bits = jnp.full((len(players.age), 5), 0xFFFFFFFF, jnp.uint32)
    taken = harvest(bits, terrain, ready_at, tick, players.position, players.alive)
    # The longest wait still ends: tiles that are taken stay taken.
    ready_at = jnp.where(taken.ready_at != ready_at, jnp.int16(32767), taken.ready_at)
    return nourished(players, taken.eats, taken.drinks), ready_at


def fog_of_the_reference(square, fog, tick):
    """f32[S, S], the fog map as the reference keeps it: rings at the start, then a step more in every tick."""
    strength, middle, side = np.zeros((square.side, square.side)), square.middle, square.side
    for ring in range(middle):
        strength[ring : side - ring, ring : side - ring] = square.border - ring
    safe = slice(middle - fog.final, middle + fog.final + 1)
    for now in range(1, tick + 1):
        if now >= fog.onset:
            strength += fog.speed
        strength[safe, safe] = -side
    return strength


@pytest.mark.parametrize("fog", [Fog(3), Fog(1, 0.5, 2), Fog(5, 2.0, 0)])
def test_the_fog_is_that_of_the_reference_on_every_tile(fog):
    square = Square(32)
    inside = np.argwhere(np.ones((33, 33))).astype(np.int32) + square.border
    damage = jax.jit(lambda tick: damage_of(fog, square, jnp.asarray(inside), tick))
    hurt = 0
    for tick in range(1, 26):
        strength = fog_of_the_reference(square, fog, tick)[inside[:, 0], inside[:, 1]]
        hurts = (strength > 0.5) & (tick >= fog.onset)
        wanted = [round(float(x)) if there else 0 for x, there in zip(strength, hurts, strict=True)]
        np.testing.assert_array_equal(damage(np.int32(tick)), wanted)
        hurt += sum(wanted)
    assert hurt > 0


def test_who_stays_in_the_fog_dies_in_it_and_harvests_no_more():
    """On the edge, fed and with a herb at hand. The fog takes 1, 2, 3, ..., and food gives 10 back while it lasts."""
    env = NMMO(preset="mini", n_players=2, fog_onset=2, task_set="survive")
    level = jax.jit(env.sample_level)(jax.random.key(0))
    level = level.replace(spawn=jnp.array([[16, 20], [32, 32]], jnp.int16), terrain=level.terrain.at[16, 20].set(HERB))
    state, _ = jax.jit(env.reset)(jax.random.key(0), level)
    step = jax.jit(env.step)
    stay = {name: jnp.full(2, 4, jnp.int32) for name, _ in env.action_space.items}
    health, died = 100, False
    for tick in range(30):
        state, ts = step(jax.random.key(tick), state, stay)
        state = state.replace(players=state.players.replace(food=jnp.full(2, 100), water=jnp.full(2, 100)))
        taken = max(tick - 1, 0)
        health = max(health - taken, 0)
        died = health == 0
        health = 0 if died else min(health + 10, 100)
        assert int(state.players.health[0]) == health
        assert int(state.players.damage[0]) == taken
        assert int(state.players.health[1]) == 100  # in the middle
        if died:
            break
    assert died
    assert bool(ts.terminated[0])
    assert (ts.facts["died_in_fog"].tolist(), ts.facts["died_of_hunger"].tolist()) == ([1, 0], [0, 0])
    assert int(state.players.received[0]) == sum(range(tick))
    assert int(state.players.age[0]) == tick + 1


def test_what_those_had_whom_the_fog_kills_is_lost_at_once():
    """In the reference, the fog destroys it, so nobody can buy it. Who starves has it until the tick ends."""
    env = NMMO(preset="mini", n_players=3, items=True, market=True, fog_onset=2)
    shapes = jax.eval_shape(lambda key: env.reset(key, env.sample_level(key))[0], jax.random.key(0))
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    one = np.eye(1, 12, dtype=np.int32).repeat(3, axis=0)  # the first slot
    state = state.replace(
        tick=np.int32(5),
        players=state.players.replace(
            position=np.array([[16, 20], [32, 32], [16, 24]], np.int32),
            alive=np.ones(3, bool),
            health=np.array([1, 1, 100], np.int32),
        ),
        goods=state.goods.replace(thing=one - 1, quantity=one, price=7 * one),
    )
    after = jax.jit(lambda state: upkeep(jnp.zeros((3, 5), jnp.uint32), state, env.rules)[0])(state)
    assert after.players.health.tolist() == [0, 0, 76]  # 4 by the fog, 20 by hunger and thirst
    assert after.players.cause.tolist() == [FOG, HUNGER, 0]
    assert after.goods.price[:, 0].tolist() == [0, 7, 7]
    assert after.goods.thing[:, 0].tolist() == [-1, 0, 0]


@pytest.mark.parametrize("name", ["no_food_no_water", "on_foilage", "next_to_water", "both"])
def test_bodies_follow_the_recorded_traces(name):
    trace = recordings()[name]["trace"]
    terrain = np.full((3, 3), GRASS, np.uint8)
    if name in ("next_to_water", "both"):
        terrain[0, 1] = WATER
    terrain[1, 1] = trace[0][3]
    food, water, health, _ = (np.array([value], np.int32) for value in trace[0])
    players = newborn(jnp.ones((1, 2), jnp.int16), jnp.zeros(1, bool)).replace(food=food, water=water, health=health)
    ready_at = np.zeros((3, 3), np.int16)
    for tick, wanted in enumerate(trace[1:]):
        players, ready_at = one_tick(players, terrain, ready_at, np.int32(tick))
        tile = shown(terrain, ready_at, np.int32(tick + 1))[1, 1]
        assert [int(players.food[0]), int(players.water[0]), int(players.health[0]), int(tile)] == wanted
    assert recordings()[name]["died"] == (int(players.health[0]) == 0)
    assert int(players.age[0]) == len(trace) - 1


def test_health_comes_back_where_food_and_water_are_both_above_fifty():
    players = newborn(jnp.ones((4, 2), jnp.int16), jnp.zeros(4, bool))
    stocks = {"food": jnp.array([51, 50, 51, 100]), "water": jnp.array([51, 51, 50, 0])}
    after = jax.jit(lambda p: bodies(p, Survival()))(players.replace(health=jnp.full(4, 40), **stocks))
    assert after.health.tolist() == [50, 40, 40, 30]


def test_a_resilient_player_loses_half():
    players = newborn(jnp.ones((2, 2), jnp.int16), jnp.array([True, False]))
    players = players.replace(food=jnp.zeros(2, jnp.int32), water=jnp.zeros(2, jnp.int32))
    assert jax.jit(lambda p: bodies(p, Survival()))(players).health.tolist() == [90, 80]


def test_the_attacker_is_forgotten_one_tick_after_the_damage():
    players = newborn(jnp.ones((1, 2), jnp.int16), jnp.zeros(1, bool))
    players = players.replace(damage=jnp.array([7]), attacker=jnp.array([3]))
    once = unhurt(players)
    assert (int(once.damage[0]), int(once.attacker[0])) == (0, 3)
    assert int(unhurt(once).attacker[0]) == -1


def one_after_another(terrain, ready_at, tick, position, living):
    """What players take in the order of their index, in plain Python: (eats, drinks, fish, own, taken tiles)."""
    tiles, before = terrain.astype(int) - (tick < ready_at), []
    now = tiles.copy()
    for (row, column), lives in zip(position.tolist(), living, strict=True):
        own, around = now[row, column], [(row - 1, column), (row + 1, column), (row, column + 1), (row, column - 1)]
        fish = [at for at in around if lives and now[at] == FISH]
        takes = lives and MATERIALS[own] in ("Foilage", "Ore", "Tree", "Crystal", "Herb")
        drinks = lives and any(tiles[at] == WATER for at in around)
        before.append((takes and own == FOLIAGE, drinks, bool(fish), own if takes and own != FOLIAGE else 0))
        for at in [*fish, *([(row, column)] if takes else [])]:
            now[at] -= 1
    return before, now


def test_harvest_is_that_of_one_player_after_another():
    random = np.random.default_rng(1)
    of = jax.jit(harvest)
    for _ in range(60):
        terrain = random.choice([WATER, GRASS, FOLIAGE, ORE, TREE, HERB, FISH], (6, 6)).astype(np.uint8)
        ready_at = random.integers(0, 3, (6, 6)).astype(np.int16) * np.int16(4)
        ready_at[~np.isin(terrain, [FOLIAGE, ORE, TREE, HERB, FISH])] = 0
        position = random.integers(1, 5, (10, 2)).astype(np.int32)
        living = random.random(10) < 0.8
        bits = random.integers(0, 2**32, (10, 5)).astype(np.uint32)
        taken = of(bits, terrain, ready_at, np.int32(5), position, living)
        wanted, now = one_after_another(terrain, ready_at, 5, position, living)
        got = zip(*(np.asarray(x).tolist() for x in (taken.eats, taken.drinks, taken.fish, taken.own)), strict=True)
        assert list(got) == wanted
        gone = now != terrain.astype(int) - (ready_at > 5)
        np.testing.assert_array_equal(np.asarray(taken.ready_at) != ready_at, gone)
        assert (np.asarray(taken.ready_at)[gone] >= 6).all()


def test_experience_and_harvests():
    terrain = np.array([[GRASS, FISH, GRASS], [GRASS, ORE, GRASS], [GRASS, GRASS, GRASS]], np.uint8)
    zero = np.zeros((3, 3), np.int16)
    bits = np.zeros((1, 5), np.uint32)
    taken = jax.jit(harvest)(bits, terrain, zero, np.int32(0), np.array([[1, 1]], np.int32), np.ones(1, bool))
    assert experience_of(taken).tolist() == [[0, 0, 0, 30, 0, 15, 0, 0]]
    assert n_harvests(taken).tolist() == [2]


def test_tiles_come_back_as_often_as_in_the_reference():
    """Two samples, each of the tiles that are back after one tick and those that are not: chi-square."""
    n = 20_000
    back = jax.jit(lambda bits, kind: ready_after(bits, kind, np.int32(10)))
    for k, (name, counts) in enumerate(json.loads(recorded("respawn_frequency.json", text=True)).items()):
        kind = np.full(n, MATERIALS.index(name), np.uint8)
        ready = np.asarray(back(jax.random.bits(jax.random.key(k), (n,), jnp.uint32), kind)).astype(int)
        assert ready.min() == 11
        ours, theirs = (ready == 11).sum(), counts["respawned_after_1_tick"]
        table = [[ours, n - ours], [theirs, counts["depleted"] - theirs]]
        assert stats.chi2_contingency(table).pvalue > 0.003, name
        # And with every tick: the wait is geometric.
        chance = float(RESPAWN[kind[0]])
        edges = stats.geom.ppf(np.linspace(0, 1, 9), chance)[1:-1]
        expected = n * np.diff(np.concatenate([[0], stats.geom.cdf(edges, chance), [1]]))
        seen = np.bincount(np.searchsorted(edges, ready - 10), minlength=len(expected))
        assert stats.chisquare(seen, expected).pvalue > 0.003, name


def test_levels_by_experience():
    assert level_of(jnp.asarray(THRESHOLDS)).tolist() == list(range(1, 11))
    assert level_of(jnp.asarray(THRESHOLDS[1:] - 1)).tolist() == list(range(1, 10))
    assert best_level(jnp.array([[0, 90, 0, 0, 0, 0, 500, 0]])).tolist() == [4]
    events = jnp.zeros((1, len(EVENTS)), jnp.int32)
    after, counted = learnt(jnp.array([[80, 0, 0, 0, 210, 0, 0, 0]]), events, jnp.array([[6, 0, 0, 0, 30, 15, 0, 0]]))
    assert after.tolist() == [[86, 0, 0, 0, 240, 15, 0, 0]]
    assert int(counted[0, EVENTS.index("LEVEL_UP")]) == int(counted.sum()) == 1


def test_windows_hold_the_passable_tiles_of_a_row():
    terrain = np.random.default_rng(0).integers(0, 16, (20, 20)).astype(np.uint8)
    words = np.asarray(jax.jit(passable_windows)(terrain)).astype(int)
    np.testing.assert_array_equal(passable(jnp.asarray(terrain)), PASSABLE[terrain])
    for row, column, k in np.random.default_rng(1).integers(0, [20, 20, 15], (200, 3)):
        place = column + k - 7
        wanted = 0 <= place < 20 and PASSABLE[terrain[row, place]]
        assert (words[row, column] >> k) & 1 == wanted
