"""Everything that belongs to Neural MMO: its held-out maps, and how maps are edited."""

from functools import partial

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.nmmo.mutate import mutate
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.suite import GROUPS, NMMOSuite
from minimax_lib.envs.nmmo.task_places import places_of


def editing(env: NMMO) -> Editing:
    """How maps of `env` are edited. ACCEL starts from its random maps: none are known to be the simplest."""
    return Editing(partial(mutate, env.square, places_of(env.tasks.patches)))


FAMILY = Family(
    cls=NMMO,  # type: ignore[arg-type]  # it has several agents
    name="NMMO",
    held_out=NMMOSuite,
    groups=GROUPS,
    editing=editing,
)
