"""What the settings of a world must be."""

import dataclasses
import math
from typing import Any

from minimax_lib.envs.cells.settings import check_bool, check_int
from minimax_lib.envs.nmmo.ground import LAST
from minimax_lib.envs.nmmo.shaping import SHAPINGS
from minimax_lib.envs.nmmo.teams import SIDES
from minimax_lib.envs.nmmo.terrain import TILES_PER_OCTAVE
from minimax_lib.registry import unknown_name

MOST_ENTITIES = 32767  # neighbours are stored in 16 bits
MOST_TOLD = 1024  # of an observation
MOST_CLUSTERS = 2048  # a map compares each place of one with every other


def check_settings(env: Any) -> None:
    """ValueError in one line for a setting of `env` (an `NMMO`) that cannot be."""
    check_int("n_players", env.n_players, 1, MOST_ENTITIES)
    check_int("n_npcs", env.n_npcs, 0, MOST_ENTITIES - env.n_players)
    check_int("centre", env.centre, 2 * TILES_PER_OCTAVE, 1024)
    if env.centre % (2 * TILES_PER_OCTAVE):
        raise ValueError(f"centre={env.centre}: it must be a multiple of {2 * TILES_PER_OCTAVE}")
    if env.n_players > 4 * env.centre:
        raise ValueError(f"n_players={env.n_players}: there are {4 * env.centre} places to spawn on the edge")
    check_int("max_steps", env.max_steps, 1, LAST)
    check_int("n_neighbours", env.n_neighbours, 1, MOST_TOLD)
    check_int("clusters", env.clusters, 1, min(env.centre**2 // 8, MOST_CLUSTERS))
    check_int("single_resources", env.single_resources, 1, env.centre**2 // 4)
    check_int("npc_level_max", env.npc_level_max, 1, 10)
    for name in ("starvation", "dehydration", "stop_below", "fog_onset", "fog_final"):
        check_int(name, getattr(env, name), 0)
    check_int("spawn_immunity", env.spawn_immunity, 0, 255)  # ages are seen up to here
    for name in ("combat", "items", "market", "may_hold_fire", "keep_log"):
        check_bool(name, getattr(env, name))
    for name in ("resilient", "horizon_jitter"):
        if not 0 <= getattr(env, name) <= 1:
            raise ValueError(f"{name}={getattr(env, name)!r}: it must be between 0 and 1")
    _check_fog(env)
    if not -math.inf < env.sharpness_low <= 0:
        raise ValueError(f"sharpness_low={env.sharpness_low}: it must be at most 0, and finite")
    for name in ("death_reward", "health_reward"):
        if not math.isfinite(getattr(env, name)):
            raise ValueError(f"{name}={getattr(env, name)}: it must be a finite number")
    if env.stop_below >= env.n_players:
        raise ValueError(f"stop_below={env.stop_below}: it must be below n_players={env.n_players}")
    _check_teams(env)
    if env.n_npcs and not env.combat:
        raise ValueError(f"n_npcs={env.n_npcs}: NPCs need combat=True")
    if env.market and not env.items:
        raise ValueError("market=True: a market needs items=True")
    if env.shaping not in (known := ("none", *SHAPINGS)):
        raise unknown_name("shaping", env.shaping, known)
    if not isinstance(env.task_set, str):
        raise ValueError(f"task_set={env.task_set!r}: it must be a name or a file")


def _check_fog(env: Any) -> None:
    if not 0 < env.fog_speed < math.inf:
        raise ValueError(f"fog_speed={env.fog_speed!r}: it must be above 0")
    usual = {field.name: field.default for field in dataclasses.fields(env)}
    for name in ("fog_speed", "fog_final"):
        if not env.fog_onset and getattr(env, name) != usual[name]:
            raise ValueError(f"{name}={getattr(env, name)!r}: there is no fog: set fog_onset, such as 64")


def _check_teams(env: Any) -> None:
    check_int("n_teams", env.n_teams, 0)
    if env.n_teams and (env.n_teams < 2 or env.n_players % env.n_teams):
        raise ValueError(f"n_teams={env.n_teams}: it must be 0, or a divisor of n_players={env.n_players} above 1")
    if SIDES * -(-env.n_teams // SIDES) >= env.centre:
        raise ValueError(f"n_teams={env.n_teams}: on the edge there is room for {env.centre - SIDES} teams")
    if env.n_teams and env.stop_below >= env.team_size:
        # Such a world is cut before one team is left.
        raise ValueError(f"stop_below={env.stop_below}: it must be below {env.team_size}, the players of a team")
