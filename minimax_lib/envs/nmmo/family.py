"""Everything that belongs to Neural MMO: its held-out maps."""

from minimax_lib.envs.family import Family
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.suite import GROUPS, NMMOSuite

FAMILY = Family(
    cls=NMMO,  # type: ignore[arg-type]  # it has several agents
    name="NMMO",
    held_out=NMMOSuite,
    groups=GROUPS,
)
