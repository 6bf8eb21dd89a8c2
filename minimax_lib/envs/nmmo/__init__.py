"""Neural MMO 2 (Suarez et al. 2023), fully jitted: many agents who live, harvest and fight in a procedural world.

Each system is a file of pure functions of the fields that it needs, for one world. The rules are those that the
reference engine, version 2.1.2, follows when it runs. Letters: P players, N NPCs, E = P + N entities, S the side of the
map, C that of its centre part, K the neighbours that an agent is told of. Places are (row, column).
"""

from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.state import EnvState, Level

__all__ = ["NMMO", "EnvState", "Level"]
