"""The robust protocol: solved rate on the worst levels of the training distribution (CVaR; Rutherford et al. 2024).

The paper calls it the win rate. One evaluation ranks the levels, and a second, independent one gives the figures.
With a single evaluation, the levels at the bottom would be those with bad luck as well as those that are hard.
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
from minimax_lib.evaluation.statistics import n_worst
from minimax_lib.playing.episodes import Choose, alone, sample
from minimax_lib.trees import mapped

MOST_DRAWS = 1000  # draws for each solvable level, before giving up
LEVEL_SEED = 20230715  # not a seed of training
Track = Callable[[Sequence[int]], Iterable[int]]  # iterates over a sequence, and may show its progress


@dataclasses.dataclass(frozen=True)
class RobustResult:
    """Solved rates of S seeds on the same L levels, in two independent evaluations."""

    ranking: np.ndarray  # f32[S, L], the rates that rank the levels
    reported: np.ndarray  # f32[S, L], the rates that are averaged over the worst levels

    def solved_rates(self, share: float) -> np.ndarray:
        """f64[S]: for each seed, the mean `reported` rate on its own worst `share` of the levels (at least one)."""
        worst = worst_levels(self.ranking, share)
        return np.take_along_axis(self.reported, worst, axis=1).mean(axis=1, dtype=np.float64)


def worst_levels(rates: np.ndarray, share: float) -> np.ndarray:
    """i64[S, K]: for each seed, the levels with the lowest of its `rates` [S, L]; of equal ones, the first drawn."""
    # Many levels tie at a rate of 0. The order in which levels were drawn says nothing about them. So a stable sort
    # chooses among equal levels without a bias.
    return np.argsort(rates, axis=1, kind="stable")[:, : n_worst(share, rates.shape[1])]


def level_key(evaluation_seed: int) -> jax.Array:
    """The key of the levels. All runs that are evaluated with this seed play the same levels."""
    return jax.random.fold_in(jax.random.key(LEVEL_SEED), evaluation_seed)


@dataclasses.dataclass(frozen=True)
class RobustProtocol:
    """The size of the two evaluations."""

    n_levels: int = 10_000  # random levels
    n_episodes: int = 10  # on each level, in each evaluation
    n_rows: int = 8192  # episodes in one dispatch, of all seeds together; bounds the memory

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}: it must be at least 1")


def check_one_agent(env: Environment) -> None:
    """ValueError where several agents play: levels are not the worst for one of them alone."""
    if env.multi_agent:
        name = type(env).__name__
        raise ValueError(f"{name} has {env.n_agents} agents: the worst levels (--robust) are those of one agent")


class RobustEvaluator:
    """Evaluates agents twice on the same random levels, all of them solvable.

    It runs on the host, as a loop over dispatches of bounded size.
    """

    def __init__(self, env: Environment, agent: Agent, protocol: RobustProtocol, choose: Choose = sample):
        """`agent` is a single one. ValueError for an environment of several agents."""
        check_one_agent(env)
        self.env = env
        self.protocol = protocol
        self.episodes = alone(env, agent, choose)
        self._draw = jax.jit(self._draw_levels, static_argnums=1)
        self._play = jax.jit(mapped(self._solved_rates, in_axes=(0, 0, None), axis_name=axes.SEED))

    @property
    def knows_solvable(self) -> bool:
        """Whether the environment reports which levels can be solved. If not, every level is played."""
        level = jax.eval_shape(self.env.sample_level, jax.eval_shape(jax.random.key, 0))
        return "solvable" in jax.eval_shape(self.env.level_metrics, level)

    def evaluate(self, level_key: jax.Array, keys: jax.Array, params: Any, track: Track = iter) -> RobustResult:
        """Both evaluations of S agents (`params` [S, ...], `keys` key[S]) on the levels of `level_key`."""
        levels = self.draw_levels(level_key)
        n_levels, n_seeds = self.protocol.n_levels, len(keys)
        # All dispatches have one size, so there is one program to compile. Its rows are levels x episodes x seeds.
        size = min(n_levels, max(1, self.protocol.n_rows // (n_seeds * self.protocol.n_episodes)))
        rates = np.zeros((2, n_seeds, n_levels), np.float32)
        for start in track(range(0, n_levels, size)):
            index = np.arange(start, start + size) % n_levels  # the last dispatch is filled up with the first levels
            some = jax.tree.map(lambda x, index=index: x[index], levels)
            for evaluation in (0, 1):
                # Every dispatch of either evaluation has its own key: their luck must be independent.
                own = jax.vmap(jax.random.fold_in, (0, None))(keys, 2 * start + evaluation)
                rates[evaluation, :, start : start + size] = self._play(own, params, some)[:, : n_levels - start]
        return RobustResult(ranking=rates[0], reported=rates[1])

    def draw_levels(self, key: jax.Array) -> Level:
        """numpy [n_levels, ...]: the first random levels that can be solved. ValueError if hardly any can be."""
        wanted, kept, n_kept, n_drawn = self.protocol.n_levels, [], 0, 0
        while n_kept < wanted:
            # Always the same number, even where fewer are missing: another batch size would be another program.
            levels, solvable = jax.device_get(self._draw(jax.random.fold_in(key, n_drawn), min(wanted, 4096)))
            kept.append(jax.tree.map(lambda x, solvable=solvable: x[solvable], levels))
            n_kept, n_drawn = n_kept + int(solvable.sum()), n_drawn + len(solvable)
            if n_drawn > MOST_DRAWS * max(n_kept, 1) + wanted:
                raise ValueError(f"only {n_kept} of {n_drawn} random levels can be solved: {wanted} are needed")
        return jax.tree.map(lambda *parts: np.concatenate(parts)[:wanted], *kept)

    def _draw_levels(self, key: jax.Array, n_levels: int) -> tuple[Level, jax.Array]:
        """(random levels [n_levels, ...], bool[n_levels] whether each can be solved)."""
        levels = jax.vmap(self.env.sample_level)(jax.random.split(key, n_levels))
        # Unsolvable levels would fill the worst share with zeros for any agent.
        if not self.knows_solvable:
            return levels, jnp.ones(n_levels, bool)
        return levels, jax.vmap(self.env.level_metrics)(levels)["solvable"] > 0

    def _solved_rates(self, key: jax.Array, params: Any, levels: Level) -> jax.Array:
        """f32[B]: for each of `levels` [B, ...], the share of its `n_episodes` episodes that one agent solves."""
        n_episodes = self.protocol.n_episodes
        rows = jax.tree.map(lambda x: jnp.repeat(x, n_episodes, axis=0), levels)
        solved = self.episodes.play(key, (params,), rows).solved
        return solved.reshape(-1, n_episodes).mean(axis=1, dtype=jnp.float32)
