"""The attacks of a tick in a world: what they do to players and NPCs. How they are settled is in `combat`."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.combat import Blows, Fray, fray_of, kills_of, looted, reaches
from minimax_lib.envs.nmmo.damage import Gear, Guard, guard_of, offence_of, trained
from minimax_lib.envs.nmmo.events import Happened, counted
from minimax_lib.envs.nmmo.npcs import Plans
from minimax_lib.envs.nmmo.skills import attack_level, learnt
from minimax_lib.envs.nmmo.state import BY_NPC, BY_PLAYER, Entities, Npcs, Players
from minimax_lib.envs.nmmo.tables import WEAK_TO


def everybody(of_players: jax.Array, of_npcs: jax.Array) -> jax.Array:
    """[E, ...], players first."""
    return jnp.concatenate([of_players, of_npcs])


def fray(
    players: Players, npcs: Npcs, orders: tuple[jax.Array, jax.Array], plans: Plans, gear: Gear, immunity: int
) -> Fray:
    """The attacks of a tick. `orders` are the target and the style (i32[P] each) of players; target -1: none."""
    target, style = orders
    health = everybody(players.health, npcs.health)
    alive = everybody(players.alive, npcs.alive) & (health > 0)
    position = everybody(players.position, npcs.position)
    valid = reaches(alive, position, everybody(target, plans.attacked), players.age < immunity)
    # An attack trains the attacker: who is hit after its own attack may be stronger, or weak to another style.
    after = players.experience + trained(style, jnp.ones_like(players.alive))
    npc_weak = jnp.asarray(WEAK_TO)[npcs.style]

    def guard(experience: jax.Array) -> Guard:
        own = guard_of(experience, gear)
        return Guard(defence=everybody(own.defence, npcs.strength), weak_to=everybody(own.weak_to, npc_weak))

    offence = everybody(offence_of(players.experience, style, gear), npcs.strength)
    styles = everybody(style, npcs.style)
    guards = (guard(players.experience), guard(after))
    return fray_of(everybody(target, plans.attacked), valid, offence, styles, guards, health)


def fought(
    players: Players, npcs: Npcs, style: jax.Array, attacks: Fray, outcome: Blows, tick: jax.Array
) -> tuple[Players, Npcs, list[Happened]]:
    """Players and NPCs after the attacks of this tick, and the events, which are counted already.

    Those without health are not removed yet.
    """
    n = len(players.alive)
    kills = kills_of(attacks, outcome)
    taken = looted(everybody(players.gold, npcs.gold), attacks, outcome)
    experience, events = learnt(players.experience, players.events, trained(style, outcome.acts[:n]))
    happened = {"SCORE_HIT": outcome.acts[:n], "PLAYER_KILL": kills[:n], "LOOT_GOLD": taken[:n] > 0}
    by_whom = jnp.where(outcome.attacker[:n] < n, BY_PLAYER, BY_NPC)
    first = jax.tree.map(lambda x: x[:n], (outcome, taken))
    rest = jax.tree.map(lambda x: x[n:], (outcome, taken))
    players = struck(players, first, outcome.damage, tick).replace(
        experience=experience,
        events=counted(events, happened),
        inflicted=players.inflicted + outcome.damage[:n],
        received=players.received + outcome.total[:n],
        cause=jnp.where(outcome.killed[:n], by_whom, players.cause),
    )
    target = attacks.target[:n]
    level = everybody(attack_level(experience), npcs.level)[target]
    known = [
        Happened("SCORE_HIT", outcome.acts[:n], skill=style, number=outcome.damage[:n], target=target, is_counted=True),
        Happened("PLAYER_KILL", kills[:n], level=level, target=target, is_counted=True),
        Happened("LOOT_GOLD", taken[:n] > 0, gold=taken[:n], target=target, is_counted=True),
    ]
    return players, struck(npcs, rest, outcome.damage, tick), known


def struck(entities: Entities, own: tuple[Blows, jax.Array], damage: jax.Array, tick: jax.Array) -> Entities:
    """Entities after the tick's hits. `own` is their part of the outcome and of the gold taken, `damage` i32[E]."""
    outcome, taken = own
    hit = outcome.attacker >= 0
    return entities.replace(
        health=jnp.maximum(entities.health - outcome.total, 0),
        damage=jnp.where(hit, damage[outcome.attacker], entities.damage),
        attacker=jnp.where(hit, outcome.attacker, entities.attacker),
        last_combat=jnp.where(outcome.acts | hit, tick + 1, entities.last_combat),
        gold=jnp.where(outcome.killed, 0, entities.gold + taken),
    )
