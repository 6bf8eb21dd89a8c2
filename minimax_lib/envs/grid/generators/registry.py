"""The table of families of random levels: `make_env("GridWorld", family=NAME)`."""

from typing import Any

from minimax_lib.envs.grid.generators.crossings import LavaCrossing, LavaGap, SimpleCrossing
from minimax_lib.envs.grid.generators.door_key import DoorKey
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.generators.fetch import Fetch
from minimax_lib.envs.grid.generators.key_corridor import KeyCorridor
from minimax_lib.envs.grid.generators.locked_room import LockedRoom
from minimax_lib.envs.grid.generators.mixture import MixedFamilies
from minimax_lib.envs.grid.generators.multi_room import MultiRoom, MultiRoomN2S4, MultiRoomN4S5, MultiRoomN6
from minimax_lib.envs.grid.generators.obstructed_maze import GamutEasy, GamutHard, GamutMedium, ObstructedMaze
from minimax_lib.envs.grid.generators.rooms import Rooms
from minimax_lib.envs.grid.generators.unlock import BlockedUnlockPickup, Unlock, UnlockPickup
from minimax_lib.registry import Registry

# A family is a frozen dataclass, whose fields are the settings of its random levels. They are checked when it is built.
# It has `height` and `width` of the frame, border included, the largest `max_steps` of its levels, and
# `sample_level(key)`, which returns a valid random level (`grid.validity.is_valid`).
FAMILIES: Registry[Any] = Registry(
    "family of levels",
    {
        "empty_room": EmptyRoom,
        "multi_room_n4_random": MultiRoom,
        "multi_room_n2_s4": MultiRoomN2S4,
        "multi_room_n4_s5": MultiRoomN4S5,
        "multi_room_n6": MultiRoomN6,
        "obstructed_maze": ObstructedMaze,
        "obstructed_maze_gamut_easy": GamutEasy,
        "obstructed_maze_gamut_medium": GamutMedium,
        "obstructed_maze_gamut_hard": GamutHard,
        "unlock": Unlock,
        "unlock_pickup": UnlockPickup,
        "blocked_unlock_pickup": BlockedUnlockPickup,
        "key_corridor": KeyCorridor,
        "locked_room": LockedRoom,
        "door_key": DoorKey,
        "lava_gap": LavaGap,
        "lava_crossing": LavaCrossing,
        "simple_crossing": SimpleCrossing,
        "fetch": Fetch,
        "rooms": Rooms,
        "mixture": MixedFamilies,
    },
)
