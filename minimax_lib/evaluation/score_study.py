"""Which score finds levels that can be learnt from: each score of an agent's rollout beside what whole episodes say.

This is the question of Rutherford et al. 2024 (SFL). A score sees one training rollout, as in a curriculum. What it is
compared with comes from other episodes of the same agent on the same level, played to their ends.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.agents.base import Agent
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Plan, level_batch
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.envs.base import Environment, sample_levels
from minimax_lib.envs.spaces import Discrete
from minimax_lib.evaluation.robustness import Track
from minimax_lib.playing.students import CurrentStudents, batch_for

LEARNABLE, REGRET, SOLVABLE = "p (1 - p)", "exact regret", "solvable"
MOST_LEVELS = 256  # that are played in one part


@dataclasses.dataclass(frozen=True)
class ScoreStudy:
    """What L levels score, and what whole episodes on them say. All f64[L]."""

    scores: Mapping[str, np.ndarray]  # by name; NaN where no episode finished in the rollout
    targets: Mapping[str, np.ndarray]  # LEARNABLE, and REGRET and SOLVABLE where the environment knows them
    rates: np.ndarray  # the solved rate of the whole episodes

    def correlations(self) -> list[dict[str, Any]]:
        """A row for each score: its rank correlation (Spearman) with each target, over the levels that have a score.

        NaN where all levels are alike. The highest with p (1 - p) comes first.
        """
        rows = []
        for name, values in self.scores.items():
            known = np.isfinite(values)
            found = {target: rank_correlation(values[known], x[known]) for target, x in self.targets.items()}
            rows.append({"score": name} | found | {"n_levels": int(known.sum())})
        return sorted(rows, key=lambda row: -np.nan_to_num(row[LEARNABLE], nan=-2.0))

    def levels(self) -> list[dict[str, Any]]:
        """A row for each level."""
        columns = {"solved_rate": self.rates} | dict(self.targets) | dict(self.scores)
        return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(self.rates))]


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, of two f64[L]; NaN where one of them is constant. Equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def reason_against(score: Score, env: Environment, agent: Agent, normalizes: bool, in_turn: bool) -> str:
    """Why the score cannot be studied with one agent, on one row a level or several in turn; empty if it can."""
    reasons = {
        "compares students": score.n_students > 1,
        "compares several rows of a level": score.n_evals > 1,
        "has a model of its own, which a run does not keep": score.model is not None,
        f"needs {score.n_values} estimates of the value": score.n_values > agent.n_values,
        "needs Discrete actions": score.needs_discrete and not isinstance(env.action_space, Discrete),
        "needs the best return of a level": score.needs_optimum and env.optimal_return is None,
        "needs the method parameter_change": score.needs_update and not hasattr(agent, "parameter_change"),
        "looks at updates on one level alone, and rows play several in turn": score.needs_update and in_turn,
        # A study knows no moments of rewards. So their scale is not that of the values.
        "may compare rewards with values, and rewards were normalised": normalizes and not _is_free_of_scale(score),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _is_free_of_scale(score: Score) -> bool:
    """Whether the score is known to look at the policy, at values alone, or at returns alone."""
    return score.needs_network or score in (SCORES["return"], SCORES["neg_return"])


class ScoreStudent:
    """Studies scores with one agent. It runs on the host, as a loop over parts of equal size."""

    def __init__(
        self,
        env: Environment,
        agent: Agent,
        n_steps: int,
        n_episodes: int,
        normalizes: bool = False,
        levels_per_row: int = 1,
    ):
        """Scores are of rollouts of `n_steps`, in which each row plays `levels_per_row` levels in turn.

        Targets are of `n_episodes` whole episodes on each level. ValueError for an environment of several agents.
        Without `n_evals`, no other setting of the run matters.
        """
        if env.multi_agent:
            raise ValueError(f"{type(env).__name__} has {env.n_agents} agents: scores are studied with one agent")
        self.env, self.agent, self.n_steps, self.n_episodes = env, agent, n_steps, n_episodes
        self.levels_per_row = levels_per_row
        in_turn = levels_per_row > 1
        reasons = {name: reason_against(SCORES[name], env, agent, normalizes, in_turn) for name in SCORES.names()}
        self.names = [name for name, reason in reasons.items() if not reason]
        self.left_out = {name: reason for name, reason in reasons.items() if reason}
        self._play: Callable[..., Any] = jax.jit(self._part, static_argnums=2)

    def study(self, key: jax.Array, params: Any, n_levels: int, track: Track = iter) -> ScoreStudy:
        """The study of one agent on `n_levels` random levels of the training distribution."""
        size = -(-min(n_levels, MOST_LEVELS) // self.levels_per_row) * self.levels_per_row  # whole rows
        starts = range(0, n_levels, size)
        parts = [jax.device_get(self._play(jax.random.fold_in(key, i), params, size)) for i in track(starts)]
        joined = jax.tree.map(lambda *xs: np.concatenate(xs)[:n_levels].astype(np.float64), *parts)
        scores, targets, rates = joined
        scores = {name: np.where(np.isfinite(x), x, np.nan) for name, x in scores.items()}
        # The compiled program has sorted its dictionaries. This is the order in which they are listed.
        targets = {name: targets[name] for name in (LEARNABLE, REGRET, SOLVABLE) if name in targets}
        return ScoreStudy({name: scores[name] for name in self.names}, targets, rates)

    def _part(self, key: jax.Array, params: Any, size: int) -> tuple[dict, dict, jax.Array]:
        """(scores, targets, solved rates) of `size` random levels."""
        k_levels, k_play, k_attempts = jax.random.split(key, 3)
        levels, pop = sample_levels(self.env, k_levels, size), AgentPop(self.agent)
        alone = jax.tree.map(lambda x: x[None], params)
        rows = batch_for(self.env, pop, Plan(size), levels_per_row=self.levels_per_row)
        students = CurrentStudents(rows, pop, alone, self.n_steps, levels_per_row=self.levels_per_row)
        outcome = students.play(k_play, level_batch(levels))
        best = outcome.episodes.best.max(axis=0)
        scores = {name: outcome.score(SCORES[name], best) for name in self.names}
        gamma, optimal_return = self.agent.gamma, self.env.optimal_return
        discount = None if optimal_return is None else gamma
        episodes = students.attempts(k_attempts, levels, self.n_episodes, discount).episodes
        rates = episodes.solved[0].mean(axis=1, dtype=jnp.float32)
        targets = {LEARNABLE: rates * (1.0 - rates)}
        if optimal_return is not None:
            optimum = jax.vmap(lambda level: optimal_return(level, gamma))(levels)
            targets[REGRET] = jnp.maximum(optimum - episodes.discounted[0].mean(axis=1), 0.0)
        facts = jax.vmap(self.env.level_metrics)(levels)
        if "solvable" in facts:
            targets[SOLVABLE] = facts["solvable"].astype(jnp.float32)
        return scores, targets, rates
