"""Numbers about lives and maps, for metrics and tables."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.multi_agent import SURVIVED
from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import BY_NPC, BY_PLAYER, FOG, HUNGER, THIRST, Level, Players
from minimax_lib.envs.nmmo.tables import FOLIAGE, WATER, event
from minimax_lib.envs.nmmo.tick import Rules

COUNTS = {"meals": "EAT_FOOD", "drinks": "DRINK_WATER", "harvests": "HARVEST_ITEM", "levels_gained": "LEVEL_UP"}
GOODS = {"worn": "EQUIP_ITEM", "consumed": "CONSUME_ITEM"}
TRADES = {"bought": "BUY_ITEM", "sold": "EARN_GOLD"}
FIGHTS = {"hits": "SCORE_HIT", "kills": "PLAYER_KILL"}


def facts_of(players: Players, rules: Rules, in_teams: bool) -> dict[str, jax.Array]:
    """f32[P] by name, of each life so far: what it did, what it died of, and in teams whether it has survived."""
    counted = COUNTS | (FIGHTS if rules.combat else {}) | (GOODS if rules.items else {})
    counted |= TRADES if rules.market else {}
    facts = {name: players.events[:, event(what)] for name, what in counted.items()}
    causes = {"died_of_hunger": HUNGER, "died_of_thirst": THIRST}
    causes |= {"killed_by_player": BY_PLAYER, "killed_by_npc": BY_NPC} if rules.combat else {}
    causes |= {"died_in_fog": FOG} if rules.fog else {}
    facts |= {name: players.cause == cause for name, cause in causes.items()}
    facts["explored"] = players.farthest
    if in_teams:
        facts[SURVIVED] = players.alive
    return {name: fact.astype(jnp.float32) for name, fact in facts.items()}


def map_facts(level: Level, square: Square) -> dict[str, jax.Array]:
    """f32[] by name: shares of the tiles inside the border, and the sharpness."""
    inside = slice(square.border, square.border + square.centre + 1)
    tiles = level.terrain[inside, inside]
    shares = {"passable": passable(tiles), "water": tiles == WATER, "foliage": tiles == FOLIAGE}
    found = {f"share_{name}": there.mean(dtype=jnp.float32) for name, there in shares.items()}
    return found | {"sharpness": level.sharpness}
