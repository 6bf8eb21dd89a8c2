"""One tick of a world, system by system."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo import battle
from minimax_lib.envs.nmmo.combat import kills_of, resolve
from minimax_lib.envs.nmmo.damage import nothing_worn
from minimax_lib.envs.nmmo.events import Happened, counted, counts_of
from minimax_lib.envs.nmmo.fog import Fog, damage_of, fogged
from minimax_lib.envs.nmmo.gathering import gathered
from minimax_lib.envs.nmmo.gifts import given, gold_given
from minimax_lib.envs.nmmo.goods import emptied, levels_worn
from minimax_lib.envs.nmmo.harvest import experience_of, harvest, n_harvests
from minimax_lib.envs.nmmo.loot import carried, fired, looted_things
from minimax_lib.envs.nmmo.market import bought, expired, listed
from minimax_lib.envs.nmmo.moves import explored, moved
from minimax_lib.envs.nmmo.npcs import Plans, decide
from minimax_lib.envs.nmmo.observation import in_combat
from minimax_lib.envs.nmmo.orders import Orders
from minimax_lib.envs.nmmo.skills import learnt
from minimax_lib.envs.nmmo.spawning import CANDIDATES, N_BITS, mourned, refilled
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import NOBODY, EnvState, Players
from minimax_lib.envs.nmmo.survival import Survival, bodies, nourished, rested, unhurt
from minimax_lib.envs.nmmo.things import gear_of
from minimax_lib.envs.nmmo.use import destroyed, used


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the systems of a world need to know, and which of them are on."""

    square: Square
    survival: Survival = Survival()
    combat: bool = True
    items: bool = False
    market: bool = False
    spawn_immunity: int = 20  # age in ticks from which a player can be attacked by players
    npc_level_max: int = 10
    fog: Fog | None = None


class Chances(struct.PyTreeNode):
    """The random words of a tick."""

    npcs: jax.Array  # u32[N], where those without a target go
    harvest: jax.Array  # u32[P, 5], when tiles come back
    candidates: jax.Array  # u32[25, 6], new NPCs; empty where there are none
    goods: jax.Array  # u32[P], who buys and in which order things are looted; empty where there are none
    drops: jax.Array  # u32[N], what NPCs carry; empty where there are no goods


def advance(key: jax.Array, state: EnvState, orders: Orders, rules: Rules) -> tuple[EnvState, list[Happened]]:
    """The world after a tick, and the events of things, gold and fights in it."""
    return advanced(chances_of(key, len(state.players.alive), len(state.npcs.alive), rules.items), state, orders, rules)


def advanced(chances: Chances, state: EnvState, orders: Orders, rules: Rules) -> tuple[EnvState, list[Happened]]:
    """The same with these random words."""
    plans = planned(chances.npcs, state)
    state, happened = upkeep(chances.harvest, state, rules)
    if rules.items:
        state, more = deal(chances.goods, state, orders, rules)
        happened += more
    if rules.combat:
        state, more = fight((chances.goods, chances.drops), state, orders, plans, rules)
        happened += more
    state = walk(state, orders.move, plans, rules)
    if rules.market:
        state, more = offer(state, orders)
        happened += more
    state = close(chances.candidates, state, rules)
    if rules.items:
        counts = counts_of(happened, len(orders.move))
        state = state.replace(players=state.players.replace(events=counted(state.players.events, counts)))
    return state, happened


def chances_of(key: jax.Array, n_players: int, n_npcs: int, items: bool) -> Chances:
    """The random words of a tick, from one draw, which is cheaper than several."""
    shapes = {"npcs": (n_npcs,), "harvest": (n_players, 5), "candidates": (CANDIDATES if n_npcs else 0, N_BITS)}
    shapes |= {"goods": (n_players if items else 0,), "drops": (n_npcs if items else 0,)}
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()]).tolist()
    parts = jnp.split(jax.random.bits(key, (ends[-1],), jnp.uint32), ends[:-1])
    return Chances(**{name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)})


def planned(bits: jax.Array, state: EnvState) -> Plans:
    """What NPCs are up to. They decide on the world as it is before the tick. `bits` is random, u32[N]."""
    if len(state.npcs.alive) == 0:
        none = jnp.zeros(0, jnp.int32)
        return Plans(target=none, attacked=none, move=jnp.zeros((0, 2), jnp.int32))
    return decide(bits, state.npcs, state.players.position, state.players.alive, state.ground.windows)


def upkeep(bits: jax.Array, state: EnvState, rules: Rules) -> tuple[EnvState, list[Happened]]:
    """The world after everybody's body and harvest. A player who dies of hunger in it still harvests; one whom the fog
    kills does not.

    `bits` is random, u32[P, 5].
    """
    players = unhurt(state.players)
    if rules.fog is not None:
        players = fogged(players, damage_of(rules.fog, rules.square, players.position, state.tick))
    awake = players.alive if rules.fog is None else standing(players)
    players = bodies(players, rules.survival)
    ground, goods = state.ground, state.goods
    taken = harvest(bits, state.level.terrain, ground.ready_at, state.tick, players.position, awake)
    players = nourished(players, taken.eats, taken.drinks)
    experience, events = learnt(players.experience, players.events, experience_of(taken))
    happened: list[Happened] = []
    if goods is None:
        # As if every pack had room.
        events = counted(events, {"HARVEST_ITEM": n_harvests(taken)})
    else:
        goods = goods.replace(item_level=jnp.where(players.alive, levels_worn(goods), goods.item_level))
        if rules.fog is not None:
            # Nobody can buy any more what those had whom the fog has killed.
            goods = emptied(goods, ~awake[:, None])
        goods, happened = gathered(goods, taken, bits, state.tick)
    state = state.replace(
        players=players.replace(experience=experience, events=events),
        npcs=rested(unhurt(state.npcs)),
        ground=ground.replace(ready_at=taken.ready_at),
        goods=goods,
    )
    return state, happened


def deal(bits: jax.Array, state: EnvState, orders: Orders, rules: Rules) -> tuple[EnvState, list[Happened]]:
    """The world after things were used, bought, given and destroyed, in this order. `bits` is random, u32[P]."""
    players, goods, tick = state.players, state.goods, state.tick
    able = at_peace(players, tick)
    players, goods, happened = used(players, goods, orders.use, able, tick)
    if rules.market:
        players, goods, more = bought(bits, players, goods, orders.buy, able, tick)
        happened += more
    goods, more = given(players, goods, (orders.give, orders.give_to), able, tick)
    happened += more
    if rules.market:
        players, more = gold_given(players, orders.gold, orders.gold_to, able)
        happened += more
    goods, more = destroyed(goods, orders.destroy, able, tick)
    return state.replace(players=players, goods=goods), happened + more


def fight(
    bits: tuple[jax.Array, jax.Array], state: EnvState, orders: Orders, plans: Plans, rules: Rules
) -> tuple[EnvState, list[Happened]]:
    """The world after all attacks. `bits` are random, u32[P] and u32[N]; empty where there are no goods."""
    players, npcs, goods = state.players, state.npcs, state.goods
    gear = nothing_worn(len(orders.style)) if goods is None else gear_of(goods.thing, goods.worn)
    attacks = battle.fray(players, npcs, (orders.target, orders.style), plans, gear, rules.spawn_immunity)
    outcome = resolve(attacks)
    if goods is not None:
        goods, happened = fired(goods, orders.style, outcome.acts[: len(orders.style)])
        dropped = carried(bits[1], npcs.level)
        goods, more = looted_things(bits[0], goods, attacks, kills_of(attacks, outcome), dropped, state.tick)
        happened += more
    else:
        happened = []
    players, npcs, more = battle.fought(players, npcs, orders.style, attacks, outcome, state.tick)
    return state.replace(players=players, npcs=npcs, goods=goods), happened + more


def offer(state: EnvState, orders: Orders) -> tuple[EnvState, list[Happened]]:
    """The world after things were put up for sale. An attack in this tick forbids it."""
    able = at_peace(state.players, state.tick)
    goods, happened = listed(state.goods, orders.sell, orders.price, able, state.tick)
    return state.replace(goods=goods), happened


def at_peace(players: Players, tick: jax.Array) -> jax.Array:
    """bool[P], who has health left and was not in a fight lately."""
    return standing(players) & ~in_combat(players.last_combat, tick)


def walk(state: EnvState, move: jax.Array, plans: Plans, rules: Rules) -> EnvState:
    """The world after everybody's step. Those without health stay where they are."""
    players, npcs, terrain = state.players, state.npcs, state.level.terrain
    players = players.replace(position=moved(terrain, players.position, move, standing(players)))
    if len(npcs.alive):
        able = npcs.alive & (npcs.health > 0)
        npcs = npcs.replace(position=moved(terrain, npcs.position, plans.move, able), target=plans.target)
    return state.replace(players=explored(players, rules.square), npcs=npcs)


def standing(players: Players) -> jax.Array:
    """bool[P], who is alive and has health left."""
    return players.alive & (players.health > 0)


def close(bits: jax.Array, state: EnvState, rules: Rules) -> EnvState:
    """The world at the end of its tick: without the dead, and with new NPCs. `bits` is random, u32[25, 6]."""
    players = state.players
    died = players.alive & (players.health <= 0)
    events = counted(players.events, {"AGENT_CULLED": died})
    players = players.replace(alive=players.alive & ~died, events=events)
    state = state.replace(players=players, tick=state.tick + 1)
    if state.goods is not None:
        # What the dead had is lost.
        goods = emptied(state.goods, ~players.alive[:, None])
        state = state.replace(goods=expired(goods, state.tick) if rules.market else goods)
    return with_npcs(bits, state, rules) if len(state.npcs.alive) else state


def with_npcs(bits: jax.Array, state: EnvState, rules: Rules) -> EnvState:
    """The world without NPCs that died, and with new ones in free slots. `bits` is random, u32[25, 6]."""
    n_players, npcs, players = len(state.players.alive), state.npcs, state.players
    died = npcs.alive & (npcs.health <= 0)
    # The slot of a dead NPC is used again, so nobody may take the new one for its attacker.
    gone = (players.attacker >= n_players) & died[jnp.maximum(players.attacker - n_players, 0)]
    players = players.replace(attacker=jnp.where(gone & players.alive, NOBODY, players.attacker))
    queue = mourned(state.queue, npcs.danger, died)
    npcs, queue = refilled(
        bits,
        npcs.replace(alive=npcs.alive & ~died),
        queue,
        rules.square,
        state.level.terrain,
        rules.npc_level_max,
    )
    return state.replace(players=players, npcs=npcs, queue=queue)
