"""The training step of all methods: propose levels, roll out the students, update them, let the curriculum observe."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula.base import NEW, SOURCE_NAMES, Curriculum, LevelBatch
from minimax_lib.curricula.experience import comparable, with_unfinished
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import population_regret, relative_regret
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import Rows
from minimax_lib.envs.restarts import FreshLevels, QueuedLevels
from minimax_lib.playing.returns import EpisodeReturns, FirstEpisodes, episode_returns
from minimax_lib.playing.rollout import Rollout, Start, begin, go_on, joined_in_time
from minimax_lib.playing.schedule import Restarted, Schedule
from minimax_lib.playing.students import CurrentStudents, layout_of, opened, optimal_returns, prepared
from minimax_lib.reward_normalization import RewardNormalization, RewardState
from minimax_lib.trees import assert_same_form, zeros

ALIVE = "agents/alive"  # the metric
SHARED_SEED = 20230713  # for decisions that all seeds and devices share; a run's own seed is never used for them


class RunnerState(struct.PyTreeNode):
    """The whole state of a run. This pytree is the checkpoint."""

    clock: jax.Array  # i32[], steps so far; with `seed` it fixes all randomness of the next step
    seed: jax.Array  # key[]
    students: TrainState  # [A, ...]
    curriculum: Any
    start: Any = ()  # a `Start`, from which the next rollout goes on; () if every rollout begins with a reset
    rewards: Any = ()  # a `RewardState`; () if rewards are not normalised
    # `Count` of the steps in which a row's agent was dead, on all devices; () where no agent can die before the others.
    # Before it was counted, these were environment steps too: so a checkpoint without it has counted none.
    idle: Any = ()


class PlayedBatch(NamedTuple):
    """The results of one batch."""

    outcome: RolloutOutcome
    students: TrainState  # after learning from the batch
    losses: dict[str, jax.Array]
    metrics: dict[str, jax.Array]
    rewards: Any


@dataclasses.dataclass(frozen=True)
class Runner:
    """A curriculum, a population of students and their environment, as two pure functions: `init` and `step`.

    `step` is written for one seed on one device. It is wrapped in a scan over updates, a vmap over seeds
    (`axis_name=axes.SEED`) and a shard_map over devices.
    """

    batch_env: Rows
    agent: AgentPop
    curriculum: Curriculum
    n_steps: int
    schedule: Schedule = Restarted()
    rewards: RewardNormalization | None = None

    @property
    def continues(self) -> bool:
        """Whether episodes go on in the next batch."""
        return self.schedule.continues

    @property
    def n_rollouts(self) -> int:
        """The rollouts of a batch, each followed by an update."""
        return self.schedule.n_rollouts

    @property
    def levels_per_row(self) -> int:
        """The levels that a row plays in turn."""
        return self.schedule.levels_per_row

    @property
    def env(self) -> Environment:
        """One instance of the environment."""
        return self.batch_env.env

    @property
    def env_steps_per_step(self) -> int:
        """Steps of the students' rows in one step of the runner, without those that the curriculum adds.

        Of these, the ones of agents that are dead are not environment steps (`RunnerState.idle`).
        """
        return self.agent.n * self.n_rows * self.n_rollouts * self.n_steps

    @property
    def n_rows(self) -> int:
        """R, the rows of a batch: one for each evaluation of a level, and for each agent where there are several."""
        return self.curriculum.plan.n_rows // self.levels_per_row * self.batch_env.rows_per_level

    def extra_env_steps(self, state: RunnerState) -> Count:
        """The environment steps that the curriculum has added, with the leading axes of `state`."""
        return self.curriculum.extra_env_steps(state.curriculum)

    def init(self, key: jax.Array) -> RunnerState:
        """The state before the first step. `key` is the run's seed."""
        k_init, k_run = jax.random.split(key)  # k_run is folded in every step, and never split
        k_level, k_reset, k_students, k_curriculum = jax.random.split(k_init, 4)
        # The network depends only on the shapes of observations, so any level will do.
        obs = self.batch_env.one_obs(k_reset, self.env.sample_level(k_level))
        return RunnerState(
            clock=jnp.zeros((), jnp.int32),
            seed=k_run,
            students=self.agent.init(k_students, obs),
            curriculum=self.curriculum.init(k_curriculum),
            start=self._no_start() if self.continues else (),
            rewards=self.rewards.init(self.agent.n, self.n_rows if self.continues else None) if self.rewards else (),
            idle=Count.zero() if self.env.multi_agent else (),
        )

    def _no_start(self) -> Start:
        """A placeholder with the form of a `Start`. The first step does not read it."""

        def form(key: jax.Array) -> Start:
            levels = jax.vmap(self.env.sample_level)(jax.random.split(key, self.curriculum.plan.n_rows))
            return begin(key, self.batch_env, self.agent, levels)

        return zeros(jax.eval_shape(form, jax.random.key(0)))

    def step(self, state: RunnerState) -> tuple[RunnerState, dict[str, jax.Array]]:
        """The state after one batch of levels, and the f32[] metrics of the batch. NaN: nothing to measure."""
        clock = axes.common(state.clock)
        shared_key, local = self.keys(state)
        k_propose, k_rollout, k_update, k_observe = jax.random.split(local, 4)

        def propose() -> tuple[Any, LevelBatch]:
            return self.curriculum.propose(shared_key, k_propose, clock, state.curriculum, self.students(state))

        def unplayed() -> tuple[Any, LevelBatch]:
            return state.curriculum, zeros(jax.eval_shape(propose)[1]).replace(train=jnp.ones((), bool))

        # If episodes go on on fresh levels, these come from the restart rule, and only the first proposal is played.
        asks_once = self.continues and isinstance(self.batch_env.restart, FreshLevels)
        curriculum, batch = jax.lax.cond(clock == 0, propose, unplayed) if asks_once else propose()
        batch.check_shapes(self.curriculum.plan.n_rows)
        played = self.play(k_rollout, k_update, state, batch)
        # The outcome has the parameters that played, not the updated ones. Scores that use the network must use the
        # policy of the rollout.
        curriculum, report = self.curriculum.observe(k_observe, clock, curriculum, batch, played.outcome)
        assert_same_form("the curriculum's state", state.curriculum, curriculum)

        metrics = played.losses | played.metrics | agents_metrics(played.outcome.runs) | report
        next_state = RunnerState(
            clock=state.clock + 1,
            seed=state.seed,
            students=played.students,
            curriculum=curriculum,
            start=self._next_start(played.outcome.runs),
            rewards=played.rewards,
            idle=with_idle(state.idle, played.outcome.runs),
        )
        # Some metrics are already sums over all devices. These are equal on all devices, and the mean keeps them.
        return next_state, axes.device_mean(metrics)

    def play(self, k_rollout: jax.Array, k_update: jax.Array, state: RunnerState, batch: LevelBatch) -> "PlayedBatch":
        """The rollouts of a batch, each followed by an update of the students."""
        k_begin, k_rollouts = jax.random.split(k_rollout)
        start = self._opened(k_begin, state, batch)
        opening = state.rewards if self.continues else self._opening(state.rewards)
        loop, outcome, losses = self._rollouts(k_rollouts, k_update, (state.students, start, opening), batch)
        students, _, rewards = loop
        if not self.continues:
            metrics = self._level_game_metrics(batch, outcome)
            return PlayedBatch(outcome, students, losses, metrics, self._closing(rewards))
        metrics = ended_metrics(outcome.episodes)
        if isinstance(self.batch_env.restart, FreshLevels):  # others are described by their curriculum
            metrics |= self._handed_out_metrics(start, outcome.runs)
        return PlayedBatch(outcome, students, losses, metrics, rewards)

    def _opened(self, key: jax.Array, state: RunnerState, batch: LevelBatch) -> Start:
        """Where the first rollout of a batch begins: after a reset, or where the batch before has ended."""
        if not self.continues:
            return opened(key, self.batch_env, self.agent, batch, self.levels_per_row)
        # Only the first batch is begun on its own levels; later ones may hand out a queue. It begins here and not in
        # `init`, because each device needs its own key for it.
        start = jax.lax.cond(
            axes.common(state.clock) == 0,
            lambda: begin(key, self.batch_env, self.agent, batch.levels),
            lambda: state.start,
        )
        return prepared(self.batch_env, start, batch)

    def _rollouts(
        self, k_rollouts: jax.Array, k_updates: jax.Array, loop: tuple[TrainState, Start, Any], batch: LevelBatch
    ) -> tuple[tuple[TrainState, Start, Any], RolloutOutcome, dict[str, jax.Array]]:
        """((students, where the last rollout ended, rewards), the outcome of all rollouts, mean losses)."""

        def one(loop: tuple[TrainState, Start, Any], keys: tuple[jax.Array, jax.Array]) -> tuple[tuple, tuple]:
            students, start, rewards = loop
            k_rollout, k_update = keys
            rewards, runs = self._normalized(rewards, self._go_on(k_rollout, students, start))
            learnt, losses = self._update(k_update, students, runs, batch.train)
            return (learnt, runs.final, rewards), (runs, students.params, losses)

        def one_of_several(loop: tuple, keys: tuple) -> tuple[tuple, tuple]:
            after, (runs, params, losses) = one(loop, keys)
            return after, (runs.replace(final=None), params, losses)

        levels = () if self.continues else batch.levels
        if self.n_rollouts == 1:
            loop, (runs, params, losses) = one(loop, (k_rollouts, k_updates))
            return loop, self._outcome(params, runs, levels=levels), losses
        keys = jax.random.split(k_rollouts, self.n_rollouts), jax.random.split(k_updates, self.n_rollouts)
        loop, (parts, params, losses) = jax.lax.scan(one_of_several, loop, keys)
        outcome = self._outcome(params, joined_in_time(parts, loop[1]), parts, levels)
        return loop, outcome, jax.tree.map(lambda x: x.mean(axis=0), losses)

    def _outcome(self, params: Any, runs: Rollout, parts: Rollout | None = None, levels: Any = ()) -> RolloutOutcome:
        layout = layout_of(self.batch_env, self.levels_per_row)
        return RolloutOutcome(self.agent, params, runs, parts, layout, optimal_returns(self.env, levels))

    def _go_on(self, key: jax.Array, students: TrainState, start: Start) -> Rollout:
        bootstraps = self.agent.bootstrap_truncated
        return go_on(key, self.batch_env, self.agent, students.params, start, self.n_steps, bootstraps)

    def _next_start(self, runs: Rollout) -> Any:
        """Where the next rollout goes on; () if it begins with a reset."""
        if not self.continues:
            return ()
        final = runs.final
        assert final is not None
        if not isinstance(self.batch_env.restart, QueuedLevels):
            return final
        return final.replace(state=self.batch_env.without_queue(final.state))

    def _opening(self, rewards: Any) -> Any:
        """The state of the rewards at the start of a rollout from a reset."""
        if self.rewards is None:
            return rewards
        return rewards.replace(returns=self.rewards.opening(self.agent.n, self.n_rows))

    def _closing(self, rewards: Any) -> Any:
        """The state of the rewards after such a rollout: its episodes are cut off, so their returns are dropped."""
        return rewards if self.rewards is None else rewards.replace(returns=())

    def _normalized(self, rewards: Any, runs: Rollout) -> tuple[Any, Rollout]:
        """(the state of the rewards after `runs`, `runs` with the rewards to learn from)."""
        if self.rewards is None:
            return rewards, runs
        moments, returns, runs = self.rewards.learn(rewards.moments, rewards.returns, runs)
        return RewardState(moments, returns), runs

    def keys(self, state: RunnerState) -> tuple[jax.Array, jax.Array]:
        """Two keys for the next step: one that all seeds and devices share, and one of this seed and device alone."""
        # Both follow from the clock, so no key is passed from step to step. Any step can be computed again, and a
        # resumed run ends bit-identical to one that was not interrupted.
        clock = axes.common(state.clock)
        shared_key = jax.random.fold_in(jax.random.key(SHARED_SEED), clock)
        return shared_key, axes.device_key(jax.random.fold_in(state.seed, clock))

    def students(self, state: RunnerState) -> CurrentStudents:
        """The students of `state`, which can play any levels."""
        n_steps = self.n_rollouts * self.n_steps

        def rescale(runs: Rollout) -> Rollout:
            return runs if self.rewards is None else self.rewards.apply(state.rewards.moments, runs)

        params, turn = state.students.params, self.levels_per_row
        return CurrentStudents(self.batch_env, self.agent, params, n_steps, rescale, levels_per_row=turn)

    def _update(
        self, key: jax.Array, students: TrainState, runs: Rollout, train: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """The students after learning from the rows that the plan names. Unless `train`, unchanged, with NaN losses."""
        n_levels = self.curriculum.plan.n_train_rows
        runs = runs.rows(slice(n_levels and n_levels // self.levels_per_row * self.batch_env.rows_per_level))
        learn = jax.jit(self.agent.update)  # jitted so that the shapes of its losses and the branch share one trace
        shapes = jax.eval_shape(learn, key, students, runs)[1]
        no_losses = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        # `train` is the same on every seed, so this stays a branch, and steps that only score compute no gradient.
        return jax.lax.cond(train, lambda: learn(key, students, runs), lambda: (students, no_losses))

    def _level_game_metrics(self, batch: LevelBatch, outcome: RolloutOutcome) -> dict[str, jax.Array]:
        """Metrics of the levels, and of each row's first episode; of all and by source, NaN for one without levels."""
        # Of the levels that follow in a row, the last is cut off, and long episodes more often than short ones.
        episodes = episode_returns(outcome.runs.steps, outcome.layout.n_evals)
        first = jax.tree.map(lambda x: x[0], episodes.first)
        of_rows = jax.tree.map(lambda x: x.mean(axis=1), first_metrics(first))
        of_levels = jax.vmap(self.env.level_metrics)(batch.levels)
        means = return_metrics(episodes)
        if self.agent.n > 1:
            means["regret"] = mean_regret(outcome.episodes)
        for source in self.curriculum.plan.sources:
            chosen = batch.source == source
            for values, among in ((of_levels, chosen), (of_rows, chosen[:: self.levels_per_row])):
                for name, value in values.items():
                    means[f"level/{SOURCE_NAMES[source]}/{name}"] = axes.mean_where(among, value)
        return means

    def _handed_out_metrics(self, start: Start, runs: Rollout) -> dict[str, jax.Array]:
        """Metrics of the levels whose episodes began in a rollout, at most of the first B of them."""
        if self.env.resets_at_once is not None:
            return {}  # to describe levels, they are drawn a second time: too costly for these environments
        restart, final = self.batch_env.restart, runs.final
        assert isinstance(restart, FreshLevels)
        assert final is not None
        levels, counts = restart.handed_out(start.state.stock, final.state.stock, self.curriculum.plan.n_rows)
        facts = jax.vmap(self.env.level_metrics)(levels)
        return {f"level/{SOURCE_NAMES[NEW]}/{name}": axes.mean_where(counts, x) for name, x in facts.items()}


def ended_metrics(episodes: EpisodeReturns) -> dict[str, jax.Array]:
    """Means over the episodes that ended in a rollout, where episodes go on in the next one.

    No episode is cut off, and each counts once. NaN if none ended. To take means over several rollouts, weight them by
    `episodes`, those of a student by its own.
    """
    n = axes.device_sum(episodes.count.sum(axis=1).astype(jnp.float32))
    totals = {"return": episodes.mean * episodes.count, "solved_rate": episodes.solved.astype(jnp.float32)}
    totals |= {f"facts/{name}": x * episodes.count for name, x in episodes.facts.items()}
    means = {name: axes.device_sum(x.sum(axis=1)) / n for name, x in totals.items()}
    metrics = {name: mean[0] for name, mean in means.items()} | {"episodes": n[0], "unfinished": jnp.float32(0)}
    if len(n) > 1:
        of_each = {name: means[name] for name in ("return", "solved_rate")} | {"episodes": n}
        metrics |= {f"student_{i}/{name}": x[i] for i in range(len(n)) for name, x in of_each.items()}
    return metrics


def agents_metrics(runs: Rollout) -> dict[str, jax.Array]:
    """How many of the agents are alive, where there are several in an environment."""
    valid = runs.steps.valid
    return {} if valid is None else {ALIVE: valid.mean(dtype=jnp.float32)}


def with_idle(idle: Any, runs: Rollout) -> Any:
    """The count `idle` after a rollout."""
    valid = runs.steps.valid
    return idle if valid is None else idle.plus(axes.device_sum((~valid).sum(dtype=jnp.uint32)))


def first_metrics(first: FirstEpisodes) -> dict[str, jax.Array]:
    """Measures of each row's first episode, f32 in the shape of the rows."""
    return {
        "return": first.returns,
        "solved_rate": first.solved.astype(jnp.float32),
        "unfinished": 1.0 - first.finished.astype(jnp.float32),
    }


def return_metrics(episodes: EpisodeReturns) -> dict[str, jax.Array]:
    """Means over the first student's first episodes, one for each row, and the number of episodes it has finished.

    An unfinished episode counts as unsolved, with its return so far. `unfinished` is the share of these. With several
    students, the metrics of each student are added.
    """
    means = {name: x.mean(axis=(1, 2)) for name, x in first_metrics(episodes.first).items()}
    n_finished = axes.device_sum(episodes.count[0].sum().astype(jnp.float32))
    metrics = {name: mean[0] for name, mean in means.items()} | {"episodes": n_finished}
    metrics |= {f"facts/{name}": x[0].mean() for name, x in episodes.first.facts.items()}
    n_students = len(episodes.count)
    if n_students == 1:
        return metrics
    for i in range(n_students):
        metrics |= {f"student_{i}/{name}": mean[i] for name, mean in means.items()}
    return metrics


def mean_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[]: the mean regret of several students over the levels on which they can be compared."""
    formula = relative_regret if len(episodes.count) == 2 else population_regret
    return axes.mean_where(comparable(episodes), formula(with_unfinished(episodes)))
