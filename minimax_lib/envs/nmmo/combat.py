"""All attacks of a tick at once, exactly as if entities took their turns in the order of their index.

An attack may come to nothing: its attacker or its target may have died at an earlier turn. And the damage depends on
whether the target attacked earlier, for that may have raised its level. Both depend on earlier turns only. So
repeating the equations for all attacks settles them: after k rounds, all chains of k attacks are right.
"""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.damage import Guard, damage_of
from minimax_lib.envs.nmmo.tables import REACH


class Fray(struct.PyTreeNode):
    """The attacks of a tick, one of each of E entities at most."""

    target: jax.Array  # i32[E], 0 where there is no attack
    valid: jax.Array  # bool[E], the attack counts if both are alive at its turn
    before: jax.Array  # i32[E], the damage it does if the target has not attacked yet
    after: jax.Array  # i32[E], and if it has
    health: jax.Array  # i32[E], at the start


class Blows(struct.PyTreeNode):
    """What came of the attacks."""

    acts: jax.Array  # bool[E], the attack was carried out
    damage: jax.Array  # i32[E], that it did
    total: jax.Array  # i32[E], the damage that an entity took
    attacker: jax.Array  # i32[E], the last one who attacked it; -1: nobody
    killed: jax.Array  # bool[E]


def reaches(alive: jax.Array, position: jax.Array, target: jax.Array, immune: jax.Array) -> jax.Array:
    """bool[E], which attacks are within the rules. Of players `target` is -1 for none, `immune` (bool[P]) is new.

    Not on itself, not out of reach, not on a new player by a player, and NPCs do not attack each other.
    """
    n_players, number = len(immune), jnp.arange(len(alive), dtype=jnp.int32)
    aim = jnp.maximum(target, 0)
    near = jnp.abs(position - position[aim]).max(axis=1) <= REACH
    both_players = (number < n_players) & (aim < n_players)
    both_npcs = (number >= n_players) & (aim >= n_players)
    spared = both_players & immune[jnp.minimum(aim, n_players - 1)]
    return (target >= 0) & alive & alive[aim] & (aim != number) & near & ~spared & ~both_npcs


def fray_of(
    target: jax.Array,
    valid: jax.Array,
    offence: jax.Array,
    style: jax.Array,
    guards: tuple[Guard, Guard],
    health: jax.Array,
) -> Fray:
    """The attacks with their damages. `guards` are those of all entities before and after their own attack."""
    aim = jnp.where(valid, target, 0)

    def against(guard: Guard) -> jax.Array:
        return damage_of(offence, guard.defence[aim], guard.weak_to[aim] == style)

    return Fray(target=aim, valid=valid, before=against(guards[0]), after=against(guards[1]), health=health)


def resolve(fray: Fray) -> Blows:
    """The outcome of the attacks, in the order of the attackers' index."""
    n = len(fray.target)
    number = jnp.arange(n, dtype=jnp.int32)
    # Sorted by target, then by turn, hits on one target before some turn are a difference of two cumulative sums.
    key = jnp.where(fray.valid, fray.target, n) * n + number
    ordered = jnp.sort(key)
    place = jnp.zeros(n, jnp.int32).at[ordered % n].set(number)
    first = jnp.searchsorted(ordered, number * n, method="scan_unrolled")
    own_turn = jnp.searchsorted(ordered, number * n + number, method="scan_unrolled")

    def hits(acts: jax.Array) -> jax.Array:
        had_acted = acts[fray.target] & (fray.target < number)
        return jnp.where(acts, jnp.where(had_acted, fray.after, fray.before), 0)

    def one_round(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        acts, _ = loop
        so_far = jnp.cumsum(jnp.concatenate([jnp.zeros(1, jnp.int32), hits(acts)[ordered % n]]))
        on_self = so_far[own_turn] - so_far[first]
        on_target = so_far[place] - so_far[first[fray.target]]
        now = fray.valid & (fray.health > on_self) & (fray.health[fray.target] > on_target)
        return now, (now != acts).any()

    acts, _ = jax.lax.while_loop(lambda loop: loop[1], one_round, (fray.valid, jnp.ones((), bool)))
    damage = hits(acts)
    total = jnp.zeros(n, jnp.int32).at[fray.target].add(damage)
    attacker = jnp.full(n, -1, jnp.int32).at[fray.target].max(jnp.where(acts, number, -1))
    killed = (attacker >= 0) & (total >= fray.health)
    return Blows(acts=acts, damage=damage, total=total, attacker=attacker, killed=killed)


def kills_of(fray: Fray, outcome: Blows) -> jax.Array:
    """bool[E], who killed its target: it was the last one to attack it."""
    number = jnp.arange(len(fray.target), dtype=jnp.int32)
    return outcome.acts & outcome.killed[fray.target] & (outcome.attacker[fray.target] == number)


def looted(gold: jax.Array, fray: Fray, outcome: Blows) -> jax.Array:
    """i32[E], the gold that each entity took from the one it killed.

    A killer that is killed later in the tick passes on what it took. So gold moves on for as long as a dead one has it.
    """
    kills = kills_of(fray, outcome)

    def one_hop(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        moving, taken = loop
        arrives = jnp.where(kills, moving[fray.target], 0)
        return jnp.where(outcome.killed, arrives, 0), taken + arrives

    start = (jnp.where(outcome.killed, gold, 0), jnp.zeros_like(gold))
    return jax.lax.while_loop(lambda loop: (loop[0] > 0).any(), one_hop, start)[1]
