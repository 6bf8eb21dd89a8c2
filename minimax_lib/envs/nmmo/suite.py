"""The held-out maps of Neural MMO, and its held-out tasks: worlds whose agents have tasks that training never drew."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from minimax_lib.envs.held_out import NamedTasks
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.presets import PRESETS
from minimax_lib.envs.nmmo.state import Level

HELD_OUT, VALIDATION = "HeldOutMaps", "ValidationMaps"
COMPETITION, SAMPLE_EVAL, TEST_PART = "competition", "sample_eval", "test_part"
# Maps of each held-out task, and their seeds, which are none of training.
N_MAPS = {HELD_OUT: 64, VALIDATION: 16, COMPETITION: 4, SAMPLE_EVAL: 4, TEST_PART: 64}
SEEDS = {HELD_OUT: 20230715, VALIDATION: 20230716, COMPETITION: 20230717, SAMPLE_EVAL: 20230717, TEST_PART: 20230715}
# Worlds of lists of tasks. Those of the competition are as large as its own; the others are as in training.
LISTS = (COMPETITION, SAMPLE_EVAL, TEST_PART)
LARGE = (COMPETITION, SAMPLE_EVAL)
GROUPS = {
    "validation": (VALIDATION,),
    "benchmark": (HELD_OUT,),
    "all": (HELD_OUT, VALIDATION, "TrainingDistribution"),
    **{name: (name,) for name in LISTS},
}


@dataclasses.dataclass(frozen=True)
class NMMOSuite(NamedTasks):
    """Maps that are the same in every evaluation: episode e of a task is on its map e, and after the last on the first.

    A map is drawn as in training, with its places to spawn and its tasks. Worlds end at the horizon or with the last
    life, and pay for tasks and -1 for a death, whatever training does and pays (`NMMO.single`).

    competition, sample_eval and test_part are lists of tasks. In each world, all tasks of the list are dealt out in
    turn. The worlds of the first two are those of the NeurIPS 2023 competition, on four maps.
    """

    known: ClassVar[tuple[str, ...]] = tuple(N_MAPS)

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", (HELD_OUT, VALIDATION))
        super().__post_init__()
        lists = [name for name in self.names if name in LISTS]
        if lists and len(self.names) > 1:
            other = next(name for name in self.names if name != lists[0])
            raise ValueError(f"{lists[0]} and {other} are played in different worlds: evaluate one after the other")
        whole = self.env.single()
        object.__setattr__(self, "env", _world_of(whole, lists[0]) if lists else whole)

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]. They do not depend on `key`."""
        numbers = jnp.arange(n_episodes, dtype=jnp.int32)
        of_task = [jax.vmap(lambda number, name=name: self._map(name, number))(numbers) for name in self.names]
        return jax.tree.map(lambda *levels: jnp.stack(levels), *of_task)

    def _map(self, name: str, number: jax.Array) -> Level:
        """The level of this episode (i32[]) of a held-out task."""
        key, n_players = jax.random.key(SEEDS[name]), self.env.n_players
        level = self.env.sample_level(jax.random.fold_in(key, number % N_MAPS[name]))
        if name not in LISTS:
            return level
        # Where agents begin is drawn for each episode. So tasks can be dealt out in order, and none is tied to a place.
        k_spawn = jax.random.fold_in(key, N_MAPS[name] + number)
        level = level.replace(spawn=self.env.spawned(k_spawn))
        seats = jnp.arange(n_players, dtype=jnp.int32)
        return self.env.with_tasks(level, (number * n_players + seats) % self.env.n_tasks)


def _world_of(env: NMMO, name: str) -> NMMO:
    """The world in which agents of `env` have the tasks of this list; ValueError where they lack what it needs."""
    for part in ("combat", "items", "market"):
        if not getattr(env, part):
            raise ValueError(f"{name} needs --env.{part}: agents of an environment without it do not have its actions")
    if name not in LARGE:
        return dataclasses.replace(env, task_set=name)
    # How many neighbours they are told of is a part of their network.
    rules = PRESETS["competition"] | {"n_neighbours": env.n_neighbours}
    return NMMO(preset="competition", task_set=name, **rules)
