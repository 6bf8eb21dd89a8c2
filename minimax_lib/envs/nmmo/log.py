"""All events of a tick as a table, in the reference's numbers: to check the accumulators, and to look at a game."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import N_SLOTS
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.tables import EVENT_CODES, EVENTS, N_SKILLS, event
from minimax_lib.envs.nmmo.things import thing_level, type_id
from minimax_lib.envs.nmmo.tick import Rules

PLAIN = ("EAT_FOOD", "DRINK_WATER", "AGENT_CULLED")  # of these, a row says only to whom they happened
COLUMNS = ("who", "event", "type", "level", "number", "gold", "target")


def log_of(before: Players, after: Players, happened: Sequence[Happened]) -> jax.Array:
    """i32[L, 7], the events between two ticks by `COLUMNS`; rows with `who` 0 are none.

    Players are 1 to P, NPCs -1, -2, ... What an event does not have is 0. The type is that of a thing or a skill. Of
    SEIZE_TILE, the row and the column of the tile stand as number and gold, as in the reference.
    """
    n = len(after.alive)
    rose = level_of(after.experience) > level_of(before.experience)
    skill = jnp.broadcast_to(jnp.arange(N_SKILLS, dtype=jnp.int32), rose.shape)
    farther = after.farthest > before.farthest
    plain = [Happened(name, _more(before, after, name)) for name in PLAIN]
    row, column = after.position.T
    plain += [Happened("SEIZE_TILE", _more(before, after, "SEIZE_TILE"), number=row, gold=column)]
    plain += [Happened("GO_FARTHEST", farther, number=after.farthest)]
    plain += [Happened("LEVEL_UP", rose, skill=skill, level=level_of(after.experience))]
    return jnp.concatenate([_rows(one, n) for one in [*plain, *happened]])


def n_rows(rules: Rules, n_players: int) -> int:
    """L, the rows of the table of a tick."""
    each = len(PLAIN) + 2 + N_SKILLS + 3 * rules.combat + 7 * rules.items + 4 * rules.market
    return n_players * (each + (1 + N_SLOTS) * (rules.combat and rules.items))


def _more(before: Players, after: Players, name: str) -> jax.Array:
    return after.events[:, event(name)] > before.events[:, event(name)]


def _rows(one: Happened, n_players: int) -> jax.Array:
    """i32[n, 7]."""
    zero = jnp.zeros(one.there.shape, jnp.int32)
    players = jnp.arange(n_players, dtype=jnp.int32).reshape(-1, *(1,) * (zero.ndim - 1))
    who = jnp.broadcast_to(players if one.who is None else one.who, zero.shape) + 1
    kind = zero if one.skill is None else one.skill + 1
    level = zero if one.level is None else one.level
    if one.thing is not None:
        kind, level = type_id(one.thing), thing_level(one.thing)
    target = zero
    if one.target is not None:
        target = jnp.where(one.target < n_players, one.target + 1, n_players - 1 - one.target)
    number, gold = (zero if x is None else x for x in (one.number, one.gold))
    columns = [who, zero + EVENT_CODES[one.name], kind, level, number, gold, target]
    rows = jnp.stack([jnp.broadcast_to(x, zero.shape).reshape(-1) for x in columns], axis=1)
    return jnp.where(one.there.reshape(-1, 1), rows, 0)


def counts_in(log: np.ndarray, n_players: int) -> np.ndarray:
    """i64[P, 20], how often each event happened to each player, in a table [L, 7]."""
    codes = np.array([EVENT_CODES[name] for name in EVENTS])
    rows = log[log[:, 0] > 0]
    counts = np.zeros((n_players, len(EVENTS)), np.int64)
    np.add.at(counts, (rows[:, 0] - 1, np.searchsorted(codes, rows[:, 1])), 1)
    return counts
