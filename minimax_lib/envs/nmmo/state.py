"""The state of a world: its level, players, NPCs and ground.

Arrays are i32 where rules compute with them. Whole maps are stored in small types.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.tables import EVENTS, FULL, N_SKILLS

NOBODY = -1
CAUSES = ("none", "hunger", "thirst", "player", "npc", "fog")
HUNGER, THIRST, BY_PLAYER, BY_NPC, FOG = 1, 2, 3, 4, 5


class Level(struct.PyTreeNode):
    """What differs between worlds. NPCs are drawn by `reset`."""

    terrain: jax.Array  # u8[S, S], the materials, all full
    spawn: jax.Array  # i16[P, 2]
    tasks: jax.Array  # i32[P], the number of each player's task
    sharpness: jax.Array  # f32[], how much the terrain blends octaves, 0.01 to 1: it is only told


class Players(struct.PyTreeNode):
    """P players. The fields of a dead one stay as they were when it died."""

    position: jax.Array  # i32[P, 2]
    alive: jax.Array  # bool[P]
    age: jax.Array  # i32[P], ticks lived
    health: jax.Array  # i32[P], 0 to 100, as food and water
    food: jax.Array  # i32[P]
    water: jax.Array  # i32[P]
    resilient: jax.Array  # bool[P], loses half as much to hunger and thirst
    experience: jax.Array  # i32[P, 8] by skill
    gold: jax.Array  # i32[P]
    damage: jax.Array  # i32[P], of the last hit in this tick, 0: none
    attacker: jax.Array  # i32[P], the entity that hit last, seen for two ticks; -1: nobody
    last_combat: jax.Array  # i32[P], the tick after the last attack of or on it; 0: none
    events: jax.Array  # i32[P, 20], how often each event happened (places as `tables.EVENTS`)
    farthest: jax.Array  # i32[P], the most tiles that it came from the edge towards the middle
    inflicted: jax.Array  # i32[P], damage done so far
    received: jax.Array  # i32[P], damage taken in combat and in the fog so far
    cause: jax.Array  # i32[P], of its death: a number of `CAUSES`, 0 while it lives


class Npcs(struct.PyTreeNode):
    """N NPCs. A slot whose NPC is dead is free for a new one."""

    position: jax.Array  # i32[N, 2]
    alive: jax.Array  # bool[N]
    kind: jax.Array  # i32[N], 1 passive, 2 neutral, 3 aggressive
    style: jax.Array  # i32[N], of its attacks
    level: jax.Array  # i32[N]
    strength: jax.Array  # i32[N], its offence and its defence
    danger: jax.Array  # f32[N], of the place where it came into the world
    health: jax.Array  # i32[N]
    gold: jax.Array  # i32[N]
    damage: jax.Array  # i32[N], as for players, like the next two
    attacker: jax.Array  # i32[N]
    last_combat: jax.Array  # i32[N]
    target: jax.Array  # i32[N], the player that it goes for; -1: nobody


Entities = TypeVar("Entities", Players, Npcs)


class Queue(struct.PyTreeNode):
    """The dangers of dead NPCs, which candidates take up in their order. A ring: it can hold no more than N."""

    dangers: jax.Array  # f32[N]
    first: jax.Array  # i32[], the place of the oldest
    size: jax.Array  # i32[]


class Ground(struct.PyTreeNode):
    """What harvesting changes, and what paths need. Passability never changes within an episode."""

    ready_at: jax.Array  # i16[S, S], a tile shows its depleted form in ticks before this one
    windows: jax.Array  # u16[S, S], bit k: the tile k - 7 columns further in the row is passable; [0, 0] without NPCs


class TaskProgress(struct.PyTreeNode):
    """How far each player's task has come."""

    value: jax.Array  # f32[P], the value of its predicate that was paid last
    best: jax.Array  # f32[P], the highest so far
    completed: jax.Array  # bool[P], it has reached 1
    timer: Any = None  # i32[P], ticks for which the goal has been held; None if no task asks for it


class EnvState(struct.PyTreeNode):
    """A world. `level` is the level that `reset` was given, unchanged."""

    level: Level
    tick: jax.Array  # i32[]
    horizon: jax.Array  # i32[], the tick at which the world ends
    players: Players
    npcs: Npcs
    queue: Queue
    ground: Ground
    score: TaskProgress
    near: jax.Array  # i16[P, K], the entities that each player was told of last, which its actions mean; -1: none
    goods: Any = None  # `Goods`; None without items
    shelf: Any = None  # i32[2, 160], the listings that players were told of last (`market.shelf`)
    tally: Any = None  # `Tally`; None if no task of the list needs it
    seized: Any = None  # i32[Z, 2], of each tile to be seized who took it last (-1: nobody), and when
    moves: jax.Array | None = None  # i8[P, 8], the last moves, the newest last, -1: none yet; if the shaping asks
    log: jax.Array | None = None  # i32[L, 7], the events of the last tick (`log.log_of`), if `keep_log` is set


def newborn(spawn: jax.Array, resilient: jax.Array) -> Players:
    """Players at the start of an episode, at their places (i16[P, 2])."""
    n = len(spawn)
    zero = jnp.zeros(n, jnp.int32)
    full = jnp.full(n, FULL, jnp.int32)
    return Players(
        position=spawn.astype(jnp.int32),
        alive=jnp.ones(n, bool),
        age=zero,
        health=full,
        food=full,
        water=full,
        resilient=resilient,
        experience=jnp.zeros((n, N_SKILLS), jnp.int32),
        gold=zero + 1,
        damage=zero,
        attacker=zero + NOBODY,
        last_combat=zero,
        events=jnp.zeros((n, len(EVENTS)), jnp.int32),
        farthest=zero,
        inflicted=zero,
        received=zero,
        cause=zero,
    )


def no_npcs(n: int) -> Npcs:
    """N free slots."""
    zero = jnp.zeros(n, jnp.int32)
    return Npcs(
        position=jnp.zeros((n, 2), jnp.int32),
        alive=jnp.zeros(n, bool),
        kind=zero,
        style=zero,
        level=zero,
        strength=zero,
        danger=jnp.zeros(n, jnp.float32),
        health=zero,
        gold=zero,
        damage=zero,
        attacker=zero + NOBODY,
        last_combat=zero,
        target=zero + NOBODY,
    )


def empty_queue(n: int) -> Queue:
    """A queue for N NPCs without entries."""
    zero = jnp.zeros((), jnp.int32)
    return Queue(dangers=jnp.zeros(n, jnp.float32), first=zero, size=zero)


def unscored(n: int, timed: bool = False) -> TaskProgress:
    """Tasks of which nothing is done; with a timer if they are `timed`."""
    zero = jnp.zeros(n, jnp.float32)
    timer = jnp.zeros(n, jnp.int32) if timed else None
    return TaskProgress(value=zero, best=zero, completed=jnp.zeros(n, bool), timer=timer)
