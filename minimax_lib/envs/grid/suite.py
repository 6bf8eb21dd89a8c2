"""The held-out levels of the object world: MultiRoom and ObstructedMaze by difficulty, and MiniGrid's families."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from minimax_lib.envs.grid.cells import EMPTY, WALL
from minimax_lib.envs.grid.generators.crossings import LavaCrossing, LavaGap, SimpleCrossing
from minimax_lib.envs.grid.generators.door_key import DoorKey
from minimax_lib.envs.grid.generators.fetch import Fetch
from minimax_lib.envs.grid.generators.key_corridor import KeyCorridor
from minimax_lib.envs.grid.generators.locked_room import LockedRoom
from minimax_lib.envs.grid.generators.mixture import Padded, padded
from minimax_lib.envs.grid.generators.multi_room import MultiRoom, MultiRoomN2S4, MultiRoomN4S5, MultiRoomN6
from minimax_lib.envs.grid.generators.obstructed_maze import KINDS, ObstructedMaze
from minimax_lib.envs.grid.generators.unlock import BlockedUnlockPickup, Unlock, UnlockPickup
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import Level
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, is_of_training, key_of, training_levels
from minimax_lib.registry import unknown_name


@dataclasses.dataclass(frozen=True)
class OneDifficulty:
    """The levels of a family that have one difficulty. All else is that of the family, also its `max_steps`."""

    family: Any
    difficulty: int

    @property
    def height(self) -> int:
        """Rows of cells of the frame."""
        return self.family.height

    @property
    def width(self) -> int:
        """Columns of cells of the frame."""
        return self.family.width

    @property
    def max_steps(self) -> int:
        return self.family.max_steps

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        return self.family.sample_of(key, jnp.int32(self.difficulty))


MULTI_ROOM = {f"MultiRoomN{n}": OneDifficulty(MultiRoom(), n - 1) for n in (1, 2, 3, 4)}
OBSTRUCTED_MAZE: dict[str, Any] = {f"ObstructedMaze{kind}": ObstructedMaze(kind=kind) for kind in KINDS}
# As published, where that is another law: a second ball may delete a key, so that some levels cannot be solved.
PUBLISHED: dict[str, Any] = {
    f"ObstructedMaze{kind}V0": ObstructedMaze("v0", kind=kind) for kind in ("2Dlhb", "1Q", "2Q", "Full")
}
# One of each of MiniGrid's families.
FAMILIES: dict[str, Any] = {
    "MultiRoomN2S4": MultiRoomN2S4(),
    "MultiRoomN4S5": MultiRoomN4S5(),
    "MultiRoomN6": MultiRoomN6(),
    "Unlock": Unlock(),
    "UnlockPickup": UnlockPickup(),
    "BlockedUnlockPickup": BlockedUnlockPickup(),
    "KeyCorridorS3R3": KeyCorridor(3, 3),
    "LockedRoom": LockedRoom(),
    "DoorKey8": DoorKey(8),
    "LavaGap7": LavaGap(7),
    "LavaCrossingS9N2": LavaCrossing(9, 2),
    "SimpleCrossingS9N2": SimpleCrossing(9, 2),
    "Fetch8N3": Fetch(8, 3),
}
OTHER_SIZES: dict[str, Any] = {
    **{f"KeyCorridorS3R{n}": KeyCorridor(n, 3) for n in (1, 2)},
    **{f"KeyCorridorS{side}R3": KeyCorridor(3, side) for side in (4, 5, 6)},
    **{f"DoorKey{size}": DoorKey(size) for size in (5, 6, 16)},
    **{f"LavaGap{size}": LavaGap(size) for size in (5, 6)},
    **{f"LavaCrossingS{size}N{n}": LavaCrossing(size, n) for size, n in ((9, 1), (9, 3), (11, 5))},
    **{f"SimpleCrossingS{size}N{n}": SimpleCrossing(size, n) for size, n in ((9, 1), (9, 3), (11, 5))},
    **{f"Fetch{size}N2": Fetch(size, 2) for size in (5, 6)},
}
TASKS: Mapping[str, Any] = MULTI_ROOM | OBSTRUCTED_MAZE | PUBLISHED | FAMILIES | OTHER_SIZES
GROUPS = {
    # Short episodes in small frames: a few tasks that are cheap to play again and again.
    "validation": ("MultiRoomN2", "SimpleCrossingS9N2", "LavaGap6", "Unlock", "DoorKey6", TRAINING_DISTRIBUTION),
    "benchmark": (*FAMILIES, "MultiRoomN4", "ObstructedMaze1Dlhb", TRAINING_DISTRIBUTION),
    "all": (*TASKS, TRAINING_DISTRIBUTION),
    "multi_room": tuple(MULTI_ROOM),
    "gamut_easy": tuple(OBSTRUCTED_MAZE)[:3],
    "gamut_medium": tuple(OBSTRUCTED_MAZE)[:6],
    "gamut_hard": tuple(OBSTRUCTED_MAZE),
    "gamut_medium_v0": (*tuple(OBSTRUCTED_MAZE)[:5], *tuple(PUBLISHED)[:1]),
    "gamut_hard_v0": (*tuple(OBSTRUCTED_MAZE)[:5], *PUBLISHED),
    "families": tuple(FAMILIES),
}


def fits(training: GridWorld, name: str) -> bool:
    """Whether agents of `training` can play the task.

    If they see the full frame, its levels must not be larger than those of training. Fetch needs `see_target`.
    """
    if name not in TASKS:
        return True
    return _fits_frame(training, TASKS[name]) and (training.see_target or not isinstance(TASKS[name], Fetch))


def _fits_frame(training: GridWorld, family: Any) -> bool:
    """Whether the levels of `family` are as agents of `training` can see them."""
    is_larger = family.height > training.height or family.width > training.width
    return training.observation != "full" or not is_larger


@dataclasses.dataclass(frozen=True)
class GridSuite:
    """The levels called `names` as one batch (a `HeldOut`). Some may be levels of `training` (`is_of_training`).

    All levels are padded to one frame. Where agents see the full frame, that is the frame of training, and larger
    levels are refused.
    """

    training: GridWorld
    names: tuple[str, ...] = (TRAINING_DISTRIBUTION,)

    draws_training: ClassVar[bool] = True  # its levels may be larger than those of training

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_of_training(name) and name not in TASKS:
                raise unknown_name("held-out task", name, [*GROUPS, TRAINING_DISTRIBUTION, *TASKS])
            family = self.family(name)
            height, width = self.training.height, self.training.width
            if not _fits_frame(self.training, family):
                raise ValueError(
                    f"the held-out task {name!r} has {family.height} x {family.width} cells, but agents that see the "
                    f"full frame are trained with {height} x {width}: choose a smaller task, or a larger family"
                )

    @property
    def _has_full_view(self) -> bool:
        return self.training.observation == "full"

    def family(self, name: str) -> Any:
        """What draws the levels of the task."""
        return self.training.family if is_of_training(name) else TASKS[name]

    @property
    def env(self) -> GridWorld:
        """The environment of training, with a frame that is large enough for all tasks."""
        families = [self.training.family, *(self.family(name) for name in self.names)]
        height, width = max(family.height for family in families), max(family.width for family in families)
        max_steps = max(self.family(name).max_steps for name in self.names)
        return dataclasses.replace(self.training, family=Padded(self.training.family, height, width, max_steps))

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...], drawn anew for each episode. They depend on `key` and the name."""
        height, width = self.env.height, self.env.width
        # In the partial view, what is outside of the frame is seen as walls. The full view has no outside.
        outside = EMPTY if self._has_full_view else WALL

        def of_task(name: str) -> Level:
            if is_of_training(name):
                levels = training_levels(self.training, name, key, n_episodes)
            else:
                levels = jax.vmap(self.family(name).sample_level)(jax.random.split(key_of(key, name), n_episodes))
            return jax.vmap(lambda level: padded(level, height, width, outside))(levels)

        return jax.tree.map(lambda *tasks: jnp.stack(tasks), *(of_task(name) for name in self.names))
