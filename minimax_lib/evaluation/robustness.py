"""The robust protocol: win rate on the worst levels of the training distribution (CVaR; Rutherford et al. 2024).

Ranking levels by an evaluation and reporting that same evaluation would select bad luck along with bad levels. So one
evaluation ranks the levels, and a second one, independent of it, gives the figures.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Environment, Level
from minimax_lib.episodes import Choose, WholeEpisodes, sample
from minimax_lib.trees import mapped

SHARES = (1.0, 0.1, 0.05, 0.02, 0.01, 0.001)  # of the levels, those with the lowest win rates
MOST_DRAWS = 1000  # for each level that can be solved, before giving up
LEVEL_SEED = 20230715  # apart from the seeds of training
Track = Callable[[Sequence[int]], Iterable[int]]  # goes through a sequence, and may show how far it is


@dataclasses.dataclass(frozen=True)
class RobustResult:
    """Solved rates of S seeds on the same L levels, in two independent evaluations."""

    ranking: np.ndarray  # f32[S, L], what the levels are ranked by
    reported: np.ndarray  # f32[S, L], what is averaged over the worst of them

    def win_rates(self, share: float) -> np.ndarray:
        """f64[S]: mean `reported` rate on the worst `share` of the levels, each seed's own (at least one level)."""
        worst = worst_levels(self.ranking, share)
        return np.take_along_axis(self.reported, worst, axis=1).mean(axis=1, dtype=np.float64)


def worst_levels(rates: np.ndarray, share: float) -> np.ndarray:
    """i64[S, K]: the levels with the lowest of `rates` [S, L], a ranking a seed; of equal ones the first drawn."""
    # Many levels tie at a rate of 0. The order in which they were drawn says nothing about them, so that a stable sort
    # picks among them without a bias.
    n_worst = max(1, round(share * rates.shape[1]))
    return np.argsort(rates, axis=1, kind="stable")[:, :n_worst]


def level_key(evaluation_seed: int) -> jax.Array:
    """The key of the levels that all runs evaluated with this seed are played on."""
    return jax.random.fold_in(jax.random.key(LEVEL_SEED), evaluation_seed)


@dataclasses.dataclass(frozen=True)
class RobustProtocol:
    """How many random levels, how often each is played in an evaluation, and how many episodes run side by side."""

    n_levels: int = 10_000
    n_episodes: int = 10
    n_rows: int = 8192  # episodes in one dispatch, all seeds together: bounds the memory

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}: it must be at least 1")


class RobustRunner:
    """Plays random levels that can be solved, twice. Host side: a loop over dispatches of bounded size."""

    def __init__(self, env: Environment, agent: Agent, protocol: RobustProtocol, choose: Choose = sample):
        """`agent` is a single one."""
        self.env = env
        self.protocol = protocol
        self.episodes = WholeEpisodes(env, agent, choose)
        self._draw = jax.jit(self._draw_levels, static_argnums=1)
        self._play = jax.jit(mapped(self._solved_rates, in_axes=(0, 0, None), axis_name=axes.SEED))

    @property
    def knows_solvable(self) -> bool:
        """Whether the environment tells which levels can be solved; if not, every level is played."""
        level = jax.eval_shape(self.env.sample_level, jax.eval_shape(jax.random.key, 0))
        return "solvable" in jax.eval_shape(self.env.level_metrics, level)

    def evaluate(self, level_key: jax.Array, keys: jax.Array, params: Any, track: Track = iter) -> RobustResult:
        """Both evaluations of S agents, `params` [S, ...] and `keys` key[S], on the levels of `level_key`."""
        levels = self.draw_levels(level_key)
        n_levels, n_seeds = self.protocol.n_levels, len(keys)
        # Dispatches of one size, so that there is one program; its rows are levels x episodes of all seeds.
        size = min(n_levels, max(1, self.protocol.n_rows // (n_seeds * self.protocol.n_episodes)))
        rates = np.zeros((2, n_seeds, n_levels), np.float32)
        for start in track(range(0, n_levels, size)):
            index = np.arange(start, start + size) % n_levels  # the last dispatch plays the first levels once more
            some = jax.tree.map(lambda x, index=index: x[index], levels)
            for evaluation in (0, 1):
                # No two dispatches, and neither of the two evaluations, share a key: their luck must be independent.
                own = jax.vmap(jax.random.fold_in, (0, None))(keys, 2 * start + evaluation)
                rates[evaluation, :, start : start + size] = self._play(own, params, some)[:, : n_levels - start]
        return RobustResult(ranking=rates[0], reported=rates[1])

    def draw_levels(self, key: jax.Array) -> Level:
        """numpy [n_levels, ...]: the first random levels that can be solved; ValueError if hardly any can be."""
        wanted, kept, n_kept, n_drawn = self.protocol.n_levels, [], 0, 0
        while n_kept < wanted:
            # As many as before even where fewer are missing: a batch of another size would be another program.
            levels, solvable = jax.device_get(self._draw(jax.random.fold_in(key, n_drawn), min(wanted, 4096)))
            kept.append(jax.tree.map(lambda x, solvable=solvable: x[solvable], levels))
            n_kept, n_drawn = n_kept + int(solvable.sum()), n_drawn + len(solvable)
            if n_drawn > MOST_DRAWS * max(n_kept, 1) + wanted:
                raise ValueError(f"only {n_kept} of {n_drawn} random levels can be solved: {wanted} were wanted")
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:wanted], *kept)

    def _draw_levels(self, key: jax.Array, n_levels: int) -> tuple[Level, jax.Array]:
        """(random levels [n_levels, ...], bool[n_levels] whether each can be solved)."""
        levels = jax.vmap(self.env.sample_level)(jax.random.split(key, n_levels))
        # Unsolvable levels would fill the worst share with zeros, whichever agent plays them.
        if not self.knows_solvable:
            return levels, jnp.ones(n_levels, bool)
        return levels, jax.vmap(self.env.level_metrics)(levels)["solvable"] > 0

    def _solved_rates(self, key: jax.Array, params: Any, levels: Level) -> jax.Array:
        """f32[B]: the share of `n_episodes` episodes on each of `levels` [B, ...] that one agent solves."""
        n_episodes = self.protocol.n_episodes
        rows = jax.tree.map(lambda x: jnp.repeat(x, n_episodes, axis=0), levels)
        solved = self.episodes.play(key, params, rows).solved
        return solved.reshape(-1, n_episodes).mean(axis=1, dtype=jnp.float32)
