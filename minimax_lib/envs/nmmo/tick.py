"""One tick of a world, system by system. Goods belong between `upkeep` and `battle`, and after `walk`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo import battle
from minimax_lib.envs.nmmo.damage import Gear, nothing_worn
from minimax_lib.envs.nmmo.events import counted
from minimax_lib.envs.nmmo.harvest import experience_of, harvest, n_harvests
from minimax_lib.envs.nmmo.moves import explored, moved
from minimax_lib.envs.nmmo.npcs import Plans, decide
from minimax_lib.envs.nmmo.skills import learnt
from minimax_lib.envs.nmmo.spawning import CANDIDATES, N_BITS, mourned, refilled
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import NOBODY, EnvState, Players
from minimax_lib.envs.nmmo.survival import Survival, bodies, nourished, rested, unhurt


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the systems of a world need to know, and which of them are on."""

    square: Square
    survival: Survival = Survival()
    combat: bool = True
    spawn_immunity: int = 20  # age in ticks from which a player can be attacked by players
    npc_level_max: int = 10


class Chances(struct.PyTreeNode):
    """The random words of a tick."""

    npcs: jax.Array  # u32[N], where those without a target go
    harvest: jax.Array  # u32[P, 5], when tiles come back
    candidates: jax.Array  # u32[25, 6], new NPCs; empty where there are none


def advance(
    key: jax.Array, state: EnvState, move: jax.Array, attack: tuple[jax.Array, jax.Array], rules: Rules
) -> EnvState:
    """The world after a tick. `move` is i32[P, 2]. `attack` is the target (an entity, -1: none) and style, i32[P]."""
    chances = chances_of(key, len(move), len(state.npcs.alive))
    plans = planned(chances.npcs, state)
    state = upkeep(chances.harvest, state, rules)
    if rules.combat:
        state = fight(state, attack, plans, nothing_worn(len(move)), rules)
    state = walk(state, move, plans, rules)
    return close(chances.candidates, state, rules)


def chances_of(key: jax.Array, n_players: int, n_npcs: int) -> Chances:
    """The random words of a tick, from one draw, which is cheaper than several."""
    shapes = {"npcs": (n_npcs,), "harvest": (n_players, 5), "candidates": (CANDIDATES if n_npcs else 0, N_BITS)}
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()]).tolist()
    parts = jnp.split(jax.random.bits(key, (ends[-1],), jnp.uint32), ends[:-1])
    return Chances(**{name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)})


def planned(bits: jax.Array, state: EnvState) -> Plans:
    """What NPCs are up to. They decide on the world as it is before the tick. `bits` is random, u32[N]."""
    if len(state.npcs.alive) == 0:
        none = jnp.zeros(0, jnp.int32)
        return Plans(target=none, attacked=none, move=jnp.zeros((0, 2), jnp.int32))
    return decide(bits, state.npcs, state.players.position, state.players.alive, state.ground.windows)


def upkeep(bits: jax.Array, state: EnvState, rules: Rules) -> EnvState:
    """The world after everybody's body and harvest. A player who dies of hunger in it still harvests.

    `bits` is random, u32[P, 5].
    """
    players = bodies(unhurt(state.players), rules.survival)
    ground = state.ground
    taken = harvest(bits, state.level.terrain, ground.ready_at, state.tick, players.position, players.alive)
    players = nourished(players, taken.eats, taken.drinks)
    experience, events = learnt(players.experience, players.events, experience_of(taken))
    # As if every pack had room: there are no goods yet.
    events = counted(events, {"HARVEST_ITEM": n_harvests(taken)})
    return state.replace(
        players=players.replace(experience=experience, events=events),
        npcs=rested(unhurt(state.npcs)),
        ground=ground.replace(ready_at=taken.ready_at),
    )


def fight(state: EnvState, attack: tuple[jax.Array, jax.Array], plans: Plans, gear: Gear, rules: Rules) -> EnvState:
    """The world after all attacks."""
    attacks = battle.fray(state.players, state.npcs, attack, plans, gear, rules.spawn_immunity)
    players, npcs = battle.fought(state.players, state.npcs, attack[1], attacks, state.tick)
    return state.replace(players=players, npcs=npcs)


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
