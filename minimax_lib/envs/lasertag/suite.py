"""The held-out tasks of LaserTag: maps, each against a random player and against a scripted one."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.against import Against, AgainstLevel, random_bot, random_seat
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, is_of_training, key_of, training_levels
from minimax_lib.envs.lasertag import maps
from minimax_lib.envs.lasertag.bot import NEEDED, hunting_bot
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import Level, padded
from minimax_lib.registry import unknown_name

BOT = "Bot"  # behind the name of a map: against `hunting_bot`
RANDOM_OPPONENT, HUNTER = range(2)  # numbers of the bots


def against_both(names: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks on these maps."""
    return (*names, *(name + BOT for name in names))


# What settings and checkpoints are chosen by. None of these maps is in the benchmark.
VALIDATION_MAPS = ("small2", "small3")
BENCHMARK_MAPS = tuple(name for name in maps.known_maps() if name not in VALIDATION_MAPS)
TASKS = against_both(maps.known_maps())
GROUPS = {
    "validation": (*against_both(VALIDATION_MAPS), TRAINING_DISTRIBUTION),
    "benchmark": against_both(BENCHMARK_MAPS),
    "all": (*TASKS, TRAINING_DISTRIBUTION),
}


def fits(training: LaserTag, name: str) -> bool:
    """Whether the task can be played with the actions of `training`: the scripted player fires and turns."""
    return not _is_against_hunter(name) or training.bot is not None


def _is_against_hunter(name: str) -> bool:
    return name in TASKS and name.endswith(BOT)


def map_of(name: str) -> str:
    """The map of a task."""
    return name.removesuffix(BOT)


@dataclasses.dataclass(frozen=True)
class LaserTagSuite:
    """The tasks called `names` as one batch (a `HeldOut`), padded to one size. The rules are those of `training`.

    "Cross" is the map of that name against `random_bot`, and "CrossBot" against `hunting_bot`. Every episode draws the
    seat of the learner, who starts where, and the facings. Levels of the training (`is_of_training`) are played against
    `random_bot`.
    """

    training: Any  # a `LaserTag`
    names: tuple[str, ...] = TASKS

    draws_training: ClassVar[bool] = True  # its levels may be larger than those of training, and name an opponent

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_of_training(name) and name not in TASKS:
                raise unknown_name("held-out task", name, [*GROUPS, TRAINING_DISTRIBUTION, *TASKS])
            if not fits(self.training, name):
                raise ValueError(
                    f"the held-out task {name!r} is against a player who needs the actions {', '.join(NEEDED)}, but "
                    f"actions={self.training.actions!r}: choose {map_of(name)!r}, or give the environment these actions"
                )

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the smallest grid that all levels fit in."""
        sizes = [maps.map_size(map_of(name)) for name in self.names if not is_of_training(name)]
        sizes.append((self.training.height, self.training.width))
        return max(height for height, _ in sizes), max(width for _, width in sizes)

    @property
    def env(self) -> Against:
        height, width = self.size
        # A bot that is in no task would still be computed in every step.
        bots = (random_bot, hunting_bot) if any(map(_is_against_hunter, self.names)) else (random_bot,)
        return Against(dataclasses.replace(self.training, height=height, width=width), bots)

    def sample(self, key: jax.Array, n_episodes: int) -> AgainstLevel:
        """Levels [len(names), n_episodes, ...], drawn anew for each episode. They depend on `key` and the name."""
        keys = jax.vmap(jax.random.split)(jnp.stack([key_of(key, name) for name in self.names]))
        levels = [self._training_levels(name, key, n_episodes) for name in self.names if is_of_training(name)]
        on_maps = [i for i, name in enumerate(self.names) if not is_of_training(name)]
        if on_maps:
            levels.insert(0, self._map_levels(keys[np.array(on_maps), 0], n_episodes))
        drawn = [*on_maps, *(i for i, name in enumerate(self.names) if is_of_training(name))]
        games = jax.tree.map(lambda *xs: jnp.concatenate(xs)[np.argsort(drawn)], *levels)
        seats = jax.vmap(lambda key: jax.vmap(random_seat)(jax.random.split(key, n_episodes)))(keys[:, 1])
        bots = [HUNTER if _is_against_hunter(name) else RANDOM_OPPONENT for name in self.names]
        return AgainstLevel(games, jnp.repeat(jnp.array(bots, jnp.int32)[:, None], n_episodes, axis=1), seats)

    def _map_levels(self, keys: jax.Array, n_episodes: int) -> Level:
        """Levels [m, n_episodes, ...] of the m tasks on maps, each of which has a key."""
        # All in one program: it compiles in a tenth of the time of one after another.
        stack = maps.load([map_of(name) for name in self.names if not is_of_training(name)], self.size)

        def of_task(key: jax.Array, level: Level) -> Level:
            return jax.vmap(maps.started, (0, None))(jax.random.split(key, n_episodes), level)

        return jax.vmap(of_task)(keys, stack)

    def _training_levels(self, name: str, key: jax.Array, n_episodes: int) -> Level:
        """Levels [1, n_episodes, ...] of the training."""
        levels = training_levels(self.training, name, key, n_episodes)
        return jax.tree.map(lambda x: x[None], jax.vmap(lambda level: padded(level, *self.size))(levels))
