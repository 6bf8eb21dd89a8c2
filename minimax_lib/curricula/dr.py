"""Domain randomisation: every level is fresh."""

import dataclasses

import jax

from minimax_lib.curricula.base import NEW, LevelBatch, Play, level_batch
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import FreshLevels
from minimax_lib.loops import on_cpu
from minimax_lib.rollout import Rollout


@dataclasses.dataclass(frozen=True)
class DomainRandomisation:
    """Levels from `env.sample_level`; an ended episode is followed by one on another fresh level."""

    env: Environment
    n_rows: int
    train_rows = slice(None)
    sources = (NEW,)

    @property
    def restart(self) -> FreshLevels:
        every = 4 if on_cpu() else 16  # an accelerator waits for the host, which decides whether to restock
        return FreshLevels(self.env.sample_level, every)

    def extra_env_steps(self, clock: int) -> int:
        return 0

    def init(self, key: jax.Array) -> tuple[()]:
        return ()

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: tuple[()], play: Play
    ) -> tuple[tuple[()], LevelBatch]:
        levels = jax.vmap(self.env.sample_level)(jax.random.split(key, self.n_rows))
        return state, level_batch(levels, NEW, train=True)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: tuple[()], batch: LevelBatch, runs: Rollout
    ) -> tuple[tuple[()], dict[str, jax.Array]]:
        return state, {}
