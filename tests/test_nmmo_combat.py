"""Neural MMO: all recorded attacks and damages, and all attacks at once against one after another."""

import json

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo import battle
from minimax_lib.envs.nmmo.combat import Fray, fray_of, kills_of, looted, reaches, resolve
from minimax_lib.envs.nmmo.damage import Gear, Guard, damage_of, guard_of, offence_of, trained, weak_style
from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.npcs import Plans
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.state import newborn, no_npcs
from minimax_lib.envs.nmmo.tables import EVENTS, THRESHOLDS, WEAK_TO
from minimax_lib.envs.nmmo.tally import empty_tally, tallied
from tests.nmmo_recordings import recorded

E, N_CROWDS = 14, 1000


def test_the_damage_table():
    table = recorded("damage_formula.npz")
    offence, defence = (table[name].astype(np.int32) for name in ("offense", "defense"))
    for k, weak in enumerate((False, True)):
        got = jax.jit(lambda o, d, weak=weak: damage_of(o, d, jnp.asarray(weak)))(offence[:, None], defence[None, :])
        np.testing.assert_array_equal(got, table["alt_default"][k])


def experience_of(levels):
    return THRESHOLDS[np.array(levels) - 1]


def players_of(cases) -> tuple[np.ndarray, np.ndarray, np.ndarray, Gear, Gear]:
    """(experience of attackers i32[n, 8], of targets, styles i32[n], gear of attackers, of targets)."""
    n = len(cases)
    own, other = np.zeros((2, n, 8), np.int32)
    attack, defence, style = np.zeros((n, 3), np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    for k, case in enumerate(cases):
        own[k, :3] = experience_of(case["att_levels"])
        other[k, :3] = experience_of(case["tgt_levels"])
        other[k, 3] = experience_of(case["tgt_fishing"])
        style[k] = case["style"]
        for thing, base, by_level in (("weapon", 5, 5), ("ammo", 5, 10)):
            level = case[f"att_{thing}"]
            if level:  # it helps in its own style only
                attack[k, case[f"att_{thing}_style"]] += min(100, base + by_level * level)
        defence[k] = 3 * (case["tgt_hat"] + case["tgt_top"] + case["tgt_bottom"]) + 15 * (case["tgt_tool"] >= 0)
    none = Gear(attack=np.zeros((n, 3), np.int32), defence=np.zeros(n, np.int32))
    return own, other, style, none.replace(attack=attack), none.replace(defence=defence)


def test_all_recorded_attacks_between_players():
    cases = [case for case in json.loads(recorded("combat_attack_cases.json", text=True)) if case["kind"] != "npc"]
    assert len(cases) == 665

    @jax.jit
    def attack(own, other, style, attacker, target):
        guard = guard_of(other, target)
        after = own + trained(style, jnp.ones(len(own), bool))
        return damage_of(offence_of(own, style, attacker), guard.defence, guard.weak_to == style), level_of(after)

    parts = players_of(cases)
    damage, levels = (np.asarray(x) for x in attack(*parts))
    assert damage.tolist() == [case["damage"] for case in cases]
    assert {case["xp_gain"] for case in cases} == {6}
    at = (np.arange(len(cases)), parts[2])
    assert levels[at].tolist() == [case["level_after"] for case in cases]
    assert [max(100 - x, 0) for x in damage.tolist()] == [case["target_health_after"] for case in cases]


def test_all_recorded_attacks_with_npcs():
    cases = [case for case in json.loads(recorded("combat_attack_cases.json", text=True)) if case["kind"] == "npc"]
    assert len(cases) == 120
    style, offence, defence, weak = np.zeros((4, len(cases)), np.int32)
    for k, case in enumerate(cases):
        assert case["npc_attack"] == case["npc_defense"]
        if case["dir"] == "player_attacks_npc":
            style[k] = case["style"]
            offence[k] = 10 + 5 * case["att_levels"][case["style"]]
            defence[k], weak[k] = case["npc_defense"], WEAK_TO[case["npc_style"]]
        else:
            levels = case["tgt_levels"]
            style[k], offence[k], defence[k] = case["npc_style"], case["npc_attack"], 5 * max(levels)
            weak[k] = weak_style(jnp.asarray(experience_of(levels)))
    assert np.asarray(damage_of(offence, defence, weak == style)).tolist() == [case["damage"] for case in cases]


def test_weakness_is_that_of_the_first_best_style():
    experience = jnp.array([[5, 5, 5], [9, 1, 1], [1, 9, 9], [1, 1, 9], [9, 1, 9]])
    assert weak_style(experience).tolist() == [-1, 2, 0, 1, 2]


def crowds(random) -> Fray:
    """Crowds that hit hard: many deaths, and chains of those who die before their turn."""
    shape = (N_CROWDS, E)
    target = random.integers(0, E, shape)
    target = np.where(random.random(shape) < 0.3, random.integers(0, 3, shape), target)
    before = random.integers(0, 60, shape)
    parts = {
        "target": target,
        "before": before,
        "after": np.maximum(before + random.integers(-20, 21, shape), 0),
        "health": random.integers(1, 101, shape),
    }
    valid = (random.random(shape) < 0.9) & (target != np.arange(E))
    return Fray(valid=valid, **{name: x.astype(np.int32) for name, x in parts.items()})


def one_after_another(fray: Fray, gold: np.ndarray):
    """The attacks of one crowd in turn: (who acted, damage, health, last attacker, gold, gold taken)."""
    health, gold = fray.health.copy(), gold.copy()
    acts, damage, attacker, taken = np.zeros(E, bool), np.zeros(E, int), np.full(E, -1), np.zeros(E, int)
    for j in range(E):
        i = fray.target[j]
        if fray.valid[j] and health[j] > 0 and health[i] > 0:
            damage[j] = (fray.after if acts[i] else fray.before)[j]
            acts[j], attacker[i] = True, j
            health[i] = max(health[i] - damage[j], 0)
            if health[i] == 0:
                taken[j] = gold[i]
                gold[j], gold[i] = gold[j] + gold[i], 0
    return acts, damage, health, attacker, gold, taken


def test_all_attacks_at_once_are_those_in_turn():
    random = np.random.default_rng(2)
    frays, gold = crowds(random), random.integers(0, 5, (N_CROWDS, E)).astype(np.int32)

    def at_once(fray, gold):
        outcome = resolve(fray)
        return outcome, kills_of(fray, outcome), looted(gold, fray, outcome)

    outcome, kills, taken = jax.tree.map(np.asarray, jax.jit(jax.vmap(at_once))(frays, gold))
    chained = 0
    for k in range(N_CROWDS):
        fray = jax.tree.map(lambda x, k=k: x[k], frays)
        acts, damage, health, attacker, left, loot = one_after_another(fray, gold[k])
        np.testing.assert_array_equal(outcome.acts[k], acts)
        np.testing.assert_array_equal(outcome.damage[k], damage)
        np.testing.assert_array_equal(np.maximum(fray.health - outcome.total[k], 0), health)
        np.testing.assert_array_equal(outcome.attacker[k], attacker)
        np.testing.assert_array_equal(outcome.killed[k], health == 0)
        np.testing.assert_array_equal(taken[k], loot)
        np.testing.assert_array_equal(np.where(health == 0, 0, gold[k] + taken[k]), left)
        np.testing.assert_array_equal(
            kills[k], acts & (health[fray.target] == 0) & (attacker[fray.target] == np.arange(E))
        )
        chained += (outcome.killed[k] & (loot > 0)).sum()
    assert outcome.killed.sum() > 2 * N_CROWDS
    assert chained > 100  # a killer that is killed later in the tick


def test_what_is_out_of_reach_or_spared():
    """Two players, of whom the second is new, and two NPCs."""
    position = np.array([[5, 5], [5, 8], [8, 5], [5, 9]], np.int32)
    alive = np.array([True, True, True, True])

    @jax.jit
    def of(target, alive):
        return reaches(alive, jnp.asarray(position), target, jnp.array([False, True]))

    def allowed(*target, alive=alive):
        return np.asarray(of(np.array(target, np.int32), alive)).tolist()

    assert allowed(2, 0, 1, 1) == [True, True, True, True]
    assert allowed(1, 1, 0, 0) == [False, False, True, False]  # spared; itself; in reach; four tiles away
    assert allowed(-1, 3, 3, 2) == [False, True, False, False]  # NPCs do not attack each other
    assert allowed(2, 2, 0, 1, alive=np.array([True, True, False, True])) == [False, False, False, True]


def test_damages_depend_on_whether_the_target_has_attacked():
    guards = (Guard(np.array([5, 5]), np.array([-1, 0])), Guard(np.array([10, 5]), np.array([2, 0])))
    of = jax.jit(lambda *parts: fray_of(*parts[:4], (parts[4], parts[5]), parts[6]))
    target, valid, number = np.array([1, 0], np.int32), np.array([True, True]), np.array([20, 40], np.int32)
    fray = of(target, valid, number, np.array([0, 2], np.int32), *guards, np.array([100, 100], np.int32))
    assert fray.before.tolist() == [25, 35]
    assert fray.after.tolist() == [25, 50]


N_PLAYERS, N_NPCS, IMMUNITY, TICK = 8, 6, 3, 7


def melee(random) -> tuple:
    """Players and NPCs who stand close together, some one hit away from a new level or from death, and their aims."""
    n, m = N_PLAYERS, N_NPCS
    near_level = random.choice(THRESHOLDS[:5], (n, 8)) + random.choice([-6, -1, 0, 3], (n, 8))
    spawn = random.integers(10, 15, (n, 2)).astype(np.int16)
    players = newborn(jnp.asarray(spawn), jnp.zeros(n, bool)).replace(
        experience=np.maximum(near_level, 0).astype(np.int32),
        health=random.integers(0, 60, n).astype(np.int32),
        age=random.integers(0, 9, n).astype(np.int32),
        gold=random.integers(0, 4, n).astype(np.int32),
        alive=random.random(n) < 0.9,
    )
    npcs = no_npcs(m).replace(
        position=random.integers(10, 15, (m, 2)).astype(np.int32),
        alive=random.random(m) < 0.9,
        style=random.integers(0, 3, m).astype(np.int32),
        level=random.integers(1, 9, m).astype(np.int32),
        strength=random.integers(0, 70, m).astype(np.int32),
        health=random.integers(1, 60, m).astype(np.int32),
        gold=random.integers(1, 4, m).astype(np.int32),
    )
    target, style = random.integers(-1, n + m, n).astype(np.int32), random.integers(0, 3, n).astype(np.int32)
    attacked = random.integers(-1, n, m).astype(np.int32)
    gear = Gear(
        attack=random.choice([0, 20], (n, 3)).astype(np.int32), defence=random.choice([0, 15], n).astype(np.int32)
    )
    return jax.tree.map(np.asarray, (players, npcs, target, style, attacked, gear))


def level(experience: int) -> int:
    return int((experience >= THRESHOLDS).sum())


def melee_in_turn(players, npcs, target, style, attacked, gear):
    """The same by the rules, one attack after another: (health, gold, experience, hits, kills, last attackers)."""
    n = N_PLAYERS
    health, gold = np.concatenate([players.health, npcs.health]), np.concatenate([players.gold, npcs.gold])
    alive = np.concatenate([players.alive, npcs.alive]) & (health > 0)
    place = np.concatenate([players.position, npcs.position])
    experience = players.experience.copy()
    hits, kills, last = np.zeros(n, int), np.zeros(n, int), np.full(len(health), -1)
    for j in range(len(health)):
        i = target[j] if j < n else attacked[j - n]
        if i < 0 or i == j or not alive[j] or not alive[i] or np.abs(place[i] - place[j]).max() > 3:
            continue
        if j < n and i < n and players.age[i] < IMMUNITY:
            continue
        way = style[j] if j < n else npcs.style[j - n]
        offence = 10 + 5 * level(experience[j, way]) + gear.attack[j, way] if j < n else npcs.strength[j - n]
        if i < n:
            defence, combat = 5 * level(experience[i].max()) + gear.defence[i], experience[i, :3]
        else:
            defence, combat = npcs.strength[i - n], np.arange(3) == npcs.style[i - n]
        weak = len(set(combat.tolist())) > 1 and WEAK_TO[combat.argmax()] == way
        health[i] = max(health[i] - int(max((1.5 if weak else 1) * offence - defence, offence / 4)), 0)
        last[i] = j
        if j < n:
            experience[j, way] += 6
            hits[j] += 1
        if health[i] == 0:
            alive[i] = False
            gold[j], gold[i] = gold[j] + gold[i], 0
            if j < n:
                kills[j] += 1
    return health, gold, experience, hits, kills, last


def test_a_melee_of_players_and_npcs_is_that_in_turn():
    random = np.random.default_rng(5)
    crowds = [melee(random) for _ in range(300)]

    def at_once(players, npcs, target, style, attacked, gear):
        plans = Plans(target=attacked, attacked=attacked, move=jnp.zeros((N_NPCS, 2), jnp.int32))
        attacks = battle.fray(players, npcs, (target, style), plans, gear, IMMUNITY)
        return battle.fought(players, npcs, style, attacks, resolve(attacks), jnp.int32(TICK))[:2]

    stacked = jax.tree.map(lambda *xs: np.stack(xs), *crowds)
    players, npcs = jax.tree.map(np.asarray, jax.jit(jax.vmap(at_once))(*stacked))
    risen = 0
    for k, crowd in enumerate(crowds):
        health, gold, experience, hits, kills, last = melee_in_turn(*crowd)
        got = jax.tree.map(lambda x, k=k: x[k], (players, npcs))
        for name, wanted in (("health", health), ("gold", gold)):
            both = np.concatenate([getattr(got[0], name), getattr(got[1], name)])
            np.testing.assert_array_equal(both, wanted, name)
        np.testing.assert_array_equal(got[0].experience, experience)
        np.testing.assert_array_equal(got[0].events[:, EVENTS.index("SCORE_HIT")], hits)
        np.testing.assert_array_equal(got[0].events[:, EVENTS.index("PLAYER_KILL")], kills)
        attacker = np.concatenate([got[0].attacker, got[1].attacker])
        np.testing.assert_array_equal(attacker, last)
        fought = (last >= 0) | np.concatenate([hits > 0, np.zeros(N_NPCS, bool)])
        np.testing.assert_array_equal(got[0].last_combat[fought[:N_PLAYERS]], TICK + 1)
        died = (health[:N_PLAYERS] == 0) & (last[:N_PLAYERS] >= 0)
        np.testing.assert_array_equal(got[0].cause, np.where(died, np.where(last[:N_PLAYERS] < N_PLAYERS, 3, 4), 0))
        risen += got[0].events[:, EVENTS.index("LEVEL_UP")].sum()
    assert risen > 100
    assert players.events[..., EVENTS.index("PLAYER_KILL")].sum() > 100


def test_kills_are_summed_up_by_who_was_killed_and_its_level():
    """Of three players, one kills another (number 2, level 4), one an NPC (number 3, the first), and one nobody."""
    before = empty_tally(["DefeatEntity"], own=False, n_players=3, n_leaves=0)
    there, target, level = np.array([True, True, False]), np.array([2, 3, 3], np.int32), np.array([4, 7, 9], np.int32)
    happened = Happened("PLAYER_KILL", there, target=target, level=level)
    after = jax.jit(lambda tally: tallied(tallied(tally, [happened], 3), [happened], 3))(before)
    expected = np.zeros((3, 2, 11), int)
    expected[0, 0, 4] = expected[1, 1, 7] = 2
    np.testing.assert_array_equal(after.kills, expected)
    assert (after.hits, after.gold, after.parts) == (None, None, None)
