"""What the tasks of a world look at, and what is kept for them from tick to tick."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo import observation
from minimax_lib.envs.nmmo.events import Happened, counted
from minimax_lib.envs.nmmo.predicates import TILE_ROW
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import NOBODY, EnvState
from minimax_lib.envs.nmmo.tables import N_STYLES, VISION
from minimax_lib.envs.nmmo.tally import N_LEVELS, tallied
from minimax_lib.envs.nmmo.tasks import TaskList, parts_after
from minimax_lib.envs.nmmo.teams import Teams
from minimax_lib.envs.nmmo.view import View


def view_of(state: EnvState, square: Square, seizes: np.ndarray) -> View:
    """The world as predicates see it. A dead player's view is that of the place where it died.

    Its things are lost, but its pack stays as full as it was when it last lived: a death makes no room.
    """
    players, npcs, tally, goods = state.players, state.npcs, state.tally, state.goods
    n = len(players.alive)
    place = jnp.concatenate([players.position, npcs.position])
    there = jnp.concatenate([players.alive, npcs.alive])
    distance = jnp.abs(players.position[:, None] - place[None]).max(axis=2)
    none = jnp.zeros((n, 12), jnp.int32)

    def kept(name: str, shape: tuple[int, ...]) -> jax.Array:
        x = None if tally is None else getattr(tally, name)
        return jnp.zeros((n, *shape), jnp.int32) if x is None else x

    seized = jnp.full((1, 3), NOBODY, jnp.int32)
    if state.seized is not None:
        seized = jnp.concatenate([jnp.asarray(seizes, jnp.int32)[:, None], state.seized], axis=1)
    return View(
        tick=state.tick,
        horizon=state.horizon,
        half=jnp.int32(square.centre // 2),
        middle=jnp.int32(square.middle),
        position=players.position,
        spawn=state.level.spawn.astype(jnp.int32),
        alive=players.alive,
        level=level_of(players.experience),
        experience=players.experience,
        gold=players.gold,
        events=players.events,
        tiles=observation.tiles(state)[..., 0],
        sees=(distance <= VISION) & there[None],
        thing=none - 1 if goods is None else goods.thing,
        quantity=none if goods is None else goods.quantity,
        worn=none > 0 if goods is None else goods.worn,
        n_things=jnp.where(players.alive, n_things(state), kept("packed", ())),
        kills=kept("kills", (2, N_LEVELS)),
        hits=kept("hits", (N_STYLES,)),
        earned=kept("gold", (3,)),
        seized=seized,
    )


def n_things(state: EnvState) -> jax.Array:
    """i32[P], the slots of each pack that are taken."""
    if state.goods is None:
        return jnp.zeros(len(state.players.alive), jnp.int32)
    return (state.goods.thing >= 0).sum(axis=1, dtype=jnp.int32)


def remembered(state: EnvState, tasks: TaskList, happened: Sequence[Happened], teams: Teams | None = None) -> EnvState:
    """The world with what its tasks need of the events of this tick."""
    tally, numbers = state.tally, state.level.tasks
    if tally is not None:
        tally = tallied(tally, happened, len(numbers))
        if tally.parts is not None:
            tally = tally.replace(parts=parts_after(tasks, numbers, tally.parts, happened, teams))
        if tally.packed is not None:
            tally = tally.replace(packed=jnp.where(state.players.alive, n_things(state), tally.packed))
    state = state.replace(tally=tally)
    return state if state.seized is None else seized(state, tasks.seizes, teams)


def seized(state: EnvState, seizes: np.ndarray, teams: Teams | None = None) -> EnvState:
    """The world after players seized tiles (i32[Z]): whoever stands there alone, and did not take it last, nor did a
    player of the same team."""
    players, npcs = state.players, state.npcs
    place = jnp.concatenate([players.position, npcs.position])
    there = jnp.concatenate([players.alive, npcs.alive])
    tile = place[:, 0] * TILE_ROW + place[:, 1]
    stands = (tile[None, :] == jnp.asarray(seizes, jnp.int32)[:, None]) & there[None, :]  # bool[Z, E]
    n = len(players.alive)
    who = stands.argmax(axis=1).astype(jnp.int32)
    last = state.seized[:, 0]
    ours = who == last if teams is None else (last >= 0) & (who // teams.size == last // teams.size)
    takes = (stands.sum(axis=1) == 1) & (who < n) & ~ours
    now = jnp.stack([who, jnp.broadcast_to(state.tick, who.shape)], axis=1)
    takers = jnp.zeros(n, jnp.int32).at[jnp.where(takes, who, n)].add(1, mode="drop")
    events = counted(players.events, {"SEIZE_TILE": takers})
    return state.replace(seized=jnp.where(takes[:, None], now, state.seized), players=players.replace(events=events))
