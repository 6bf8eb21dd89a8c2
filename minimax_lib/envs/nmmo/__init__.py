"""Neural MMO 2 (Suarez et al. 2023), fully jitted: many agents who live, harvest and fight in a procedural world.

Each system is a file of pure functions of the fields that it needs, for one world. The rules are those that the
reference engine, version 2.1.2, follows when it runs. Letters: P players, N NPCs, E = P + N entities, S the side of the
map, C that of its centre part, K the neighbours that an agent is told of. Places are (row, column).
"""

from minimax_lib.envs.nmmo.goals import Goal, predicate
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.predicates import Numbers
from minimax_lib.envs.nmmo.state import EnvState, Level
from minimax_lib.envs.nmmo.task_specs import TaskSpec, register_predicate, register_task_list
from minimax_lib.envs.nmmo.view import View

__all__ = [
    "NMMO",
    "EnvState",
    "Goal",
    "Level",
    "Numbers",
    "TaskSpec",
    "View",
    "predicate",
    "register_predicate",
    "register_task_list",
]
