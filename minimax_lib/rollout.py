"""The rollout: students, teachers and probes all gather experience with it."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Attempt, Level
from minimax_lib.envs.batch import Rows
from minimax_lib.envs.restarts import LevelQueue, NoRestart
from minimax_lib.gae import gae, next_values
from minimax_lib.loops import steps_at_once
from minimax_lib.trees import assert_shape


class Transition(struct.PyTreeNode):
    """One step of A students on R rows. After a rollout of T steps, every leaf is [T, A, R, ...]."""

    obs: Any  # before the action
    action: jax.Array
    reward: jax.Array  # f32
    done: jax.Array  # bool, the episode ended with this action
    episode_return: jax.Array  # f32, undiscounted, of the episode so far, with this reward
    discount: jax.Array  # f32, 0 where nothing may be bootstrapped past this step
    first: jax.Array  # bool, obs opens an episode, and a recurrent agent clears its carry
    log_prob: jax.Array  # f32
    value: jax.Array  # f32
    truncation_value: jax.Array | None  # f32, value of the observation that closed a truncated episode; 0 elsewhere
    progress: jax.Array  # f32 in [0, 1], how much of the task is done (`TimeStep.progress`)
    facts: dict[str, jax.Array]  # f32 each, of the episode so far
    number: jax.Array | None = None  # i32, which level of the queue's table it is (`QueuedLevels`); None without queues
    valid: jax.Array | None = None  # bool, the step belongs to an episode (or an agent's life); None if all steps do
    attempt: Attempt | None = None  # of the environment, after the action; None: the episode is the attempt

    @property
    def solved(self) -> jax.Array:
        """bool, the episode ended at this step with its task done."""
        return self.done & (self.progress >= 1)


class Rollout(struct.PyTreeNode):
    """The result of a rollout."""

    steps: Transition  # [T, A, R, ...]
    carry: Any  # [A, R, ...], the agents' memory before step 0
    last_value: jax.Array  # f32[A, R], value of the observation after the last step
    final: "Start | None"  # after the last step; None where only the experience is kept

    def advantages(self, gamma: float, gae_lambda: float) -> tuple[jax.Array, jax.Array]:
        """(advantages, value targets), f32 in the shape of `steps.reward`."""
        s = self.steps
        next_value = next_values(s.value, self.last_value)
        if s.truncation_value is not None:
            next_value = jnp.where(s.done, s.truncation_value, next_value)
        return gae(s.reward, s.done, s.discount, s.value, next_value, gamma, gae_lambda)

    def rows(self, rows: slice) -> "Rollout":
        """The experience of some of the rows, to learn from."""
        return Rollout(
            steps=jax.tree.map(lambda x: x[:, :, rows], self.steps),
            carry=jax.tree.map(lambda x: x[:, rows], self.carry),
            last_value=self.last_value[:, rows],
            final=None,
        )


class Start(struct.PyTreeNode):
    """Where a rollout begins: after a reset, or where the rollout before has ended. A students on R rows."""

    state: Any  # a `BatchState`, or that of a duel
    obs: Any  # [A, R, ...]
    first: jax.Array  # bool[A, R], `obs` opens an episode
    carry: Any  # [A, R, ...], the agents' memory


def begin(key: jax.Array, env: Rows, agent: Agent, levels: Level) -> Start:
    """The start after a reset of all rows on `levels` [B, ...], with empty memories. `queued` adds queues to it."""
    state, ts = env.reset(key, levels)
    return Start(state=state, obs=ts.obs, first=jnp.ones_like(ts.done), carry=agent.init_carry(ts.reward.shape))


def queued(env: Rows, start: Start, queue: Any) -> Start:
    """`start` with a `LevelQueue` for its rows; unchanged if `queue` is ()."""
    return start.replace(state=env.with_queue(start.state, queue)) if isinstance(queue, LevelQueue) else start


def rollout(
    key: jax.Array,
    env: Rows,
    agent: Agent,
    params: Any,
    levels: Level,
    n_steps: int,
    bootstrap_truncated: bool = False,
) -> Rollout:
    """`n_steps` of a population of agents, from a reset on `levels` [B, ...]. See `go_on`."""
    k_reset, k_steps = jax.random.split(key)
    start = begin(k_reset, env, agent, levels)
    return go_on(k_steps, env, agent, params, start, n_steps, bootstrap_truncated)


def go_on(
    key: jax.Array,
    env: Rows,
    agent: Agent,
    params: Any,
    start: Start,
    n_steps: int,
    bootstrap_truncated: bool = False,
) -> Rollout:
    """`n_steps` of a population of agents, from `start` on.

    `agent` acts on [A, R, ...] (an `AgentPop`). As in all published baselines, an episode that runs into its time limit
    is not bootstrapped. With `bootstrap_truncated` it is, which evaluates the closing observation of every step too. If
    `env` restarts nothing (`NoRestart`), the steps after an episode's end are not `valid`.
    """

    def one_step(loop: tuple, keys: jax.Array) -> tuple[tuple, Recorded]:
        state, obs, first, carry = loop
        k_act, k_env = keys
        number = env.numbers(state)
        action, log_prob, value, carry = agent.act(k_act, params, obs, carry, first)
        state, after = env.step_stocked(k_env, state, action)
        cut = truncation_value = None
        if bootstrap_truncated:
            cut = after.truncated & ~after.terminated
            closing = agent.value(params, after.last_obs, carry, jnp.zeros_like(first))
            truncation_value = jnp.where(cut, closing, 0.0)
        step = Recorded(
            obs=obs,
            action=action,
            reward=after.reward,
            done=after.done,
            episode_return=after.stats.returns,
            log_prob=log_prob,
            value=value,
            truncation_value=truncation_value,
            progress=after.progress,
            facts=after.facts,
            number=number,
            cut=cut,
            attempt=after.attempt,
            valid=after.valid,
            opens=None if after.valid is None else after.opens,
        )
        return (state, after.obs, after.opens, carry), step

    loop = (start.state, start.obs, start.first, start.carry)
    keys = jax.vmap(jax.random.split)(jax.random.split(key, n_steps))
    (state, obs, first, carry), steps = scan_restocked(env, one_step, loop, keys)
    last_value = agent.value(params, obs, carry, first)
    rows = start.first.shape
    assert_shape("the steps of a rollout", (n_steps, *rows), steps.reward, steps.done, steps.value, steps.log_prob)
    assert_shape("the value after a rollout", rows, last_value)
    restarts = not isinstance(env.restart, NoRestart)
    return Rollout(
        steps=transitions(steps, start.first, restarts),
        carry=start.carry,
        last_value=last_value,
        final=Start(state=state, obs=obs, first=first, carry=carry),
    )


def joined_in_time(parts: Rollout) -> Rollout:
    """One rollout of K * T steps from K consecutive rollouts: every leaf of `parts` has a leading axis K."""
    return Rollout(
        steps=jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts.steps),
        carry=jax.tree.map(lambda x: x[0], parts.carry),
        last_value=parts.last_value[-1],
        final=None,
    )


class Recorded(struct.PyTreeNode):
    """What a step of the loop records of a `Transition`. The rest is computed after the loop."""

    obs: Any
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    episode_return: jax.Array
    log_prob: jax.Array
    value: jax.Array
    truncation_value: jax.Array | None
    progress: jax.Array
    facts: dict[str, jax.Array]
    number: jax.Array | None
    cut: jax.Array | None  # bool, the episode was cut off after this action and must be bootstrapped
    attempt: Attempt | None
    valid: jax.Array | None = None  # bool, the row's agent was alive; None: always
    opens: jax.Array | None = None  # bool, the next step opens an episode; None: where this one is done


def transitions(recorded: Recorded, opening: jax.Array, restarts: bool) -> Transition:
    """The transitions [T, A, R, ...]. `opening` is `first` of step 0. `restarts`: a row has several episodes."""
    done, ended = recorded.done, recorded.done if recorded.cut is None else recorded.done & ~recorded.cut
    opens = done if recorded.opens is None else recorded.opens
    discount, valid = 1.0 - ended.astype(jnp.float32), recorded.valid
    if valid is not None:
        discount = jnp.where(valid, discount, 0.0)  # what a dead agent sees has no value
    if not restarts:
        running = jnp.cumsum(opens, axis=0, dtype=jnp.int32) - opens == 0
        valid = running if valid is None else running & valid
    return Transition(
        obs=recorded.obs,
        action=recorded.action,
        reward=recorded.reward,
        done=done,
        episode_return=recorded.episode_return,
        discount=discount,
        first=jnp.concatenate([opening[None], opens[:-1]]),
        log_prob=recorded.log_prob,
        value=recorded.value,
        truncation_value=recorded.truncation_value,
        progress=recorded.progress,
        facts=recorded.facts,
        number=recorded.number,
        valid=valid,
        attempt=recorded.attempt,
    )


def scan_restocked(env: Rows, one_step: Any, loop: tuple, keys: jax.Array) -> tuple[tuple, Any]:
    """`lax.scan(one_step, loop, keys)` over keys [T, ...], where `loop[0]` is a state of `env` kept full of levels.

    `one_step` calls `env.step_stocked`. Without a stock of levels, this is a plain scan. With one, it is a scan over
    segments: the stock is filled up between them, so that the inner loop has no branch.
    """
    n_steps, unroll = len(keys), steps_at_once(4)
    if not env.restock_every:
        return jax.lax.scan(one_step, loop, keys, unroll=unroll)
    length = math.gcd(n_steps, env.restock_every)

    def segment(loop: tuple, keys: jax.Array) -> tuple[tuple, Any]:
        return jax.lax.scan(one_step, (env.restock(loop[0]), *loop[1:]), keys, unroll=unroll)

    loop, steps = jax.lax.scan(segment, loop, keys.reshape(-1, length, *keys.shape[1:]))
    return loop, jax.tree.map(lambda x: x.reshape(n_steps, *x.shape[2:]), steps)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which rows of a rollout belong to which of B levels: R = B / levels_per_row * n_evals."""

    n_evals: int = 1  # rows of each level, those of all agents together
    n_agents: int = 1  # of an environment, whose rows these are
    levels_per_row: int = 1  # that each row plays in turn
    max_steps: int = 0  # of an episode; only needed where rows play several levels in turn

    @property
    def in_turn(self) -> bool:
        return self.levels_per_row > 1


ONE_ROW_EACH = Layout()


def rows_of_levels(x: jax.Array, layout: Layout) -> jax.Array:
    """[T, A, R * n, ...] of `x` [T, A, R, ...] about rows that play n levels in turn: a copy for each of the levels.

    The n_evals rows side by side play the same levels. So they do in the result. If n is 1, `x` itself.
    """
    n, n_evals = layout.levels_per_row, layout.n_evals
    if n == 1:
        return x
    apart = x.reshape(*x.shape[:2], -1, 1, n_evals, *x.shape[3:])
    copies = jnp.broadcast_to(apart, (*apart.shape[:3], n, *apart.shape[4:]))
    return copies.reshape(*x.shape[:2], -1, *x.shape[3:])


def split_by_level(steps: Transition, layout: Layout) -> Transition:
    """The steps [T, A, R] of rows that play n levels in turn, with a row for each level: [T, A, R * n].

    Level number q of row r is numbered r * n + q (`queue_of`). Only the steps of the row's first episode on the level
    are valid, and it counts as ended only if it began in time (see `in_time`). Observations and actions are left out.
    """
    if not layout.in_turn:
        return steps
    assert steps.number is not None
    n = layout.levels_per_row
    numbers = rows_of_levels(steps.number % n, layout)
    turns = jnp.arange(numbers.shape[-1], dtype=jnp.int32) // layout.n_evals % n
    mine = numbers == turns[None, None]
    told = jax.tree.map(lambda x: rows_of_levels(x, layout), steps.replace(obs=(), action=()))
    ends = told.done & mine
    # A row comes to a level again if its episodes were short. Then a mean over all of them would be biased: in a maze,
    # whoever fails the first has no time for a second.
    mine &= jnp.cumsum(ends, axis=0, dtype=jnp.int32) - ends == 0
    counts = mine & rows_of_levels(in_time(steps.first, layout.max_steps), layout)

    def only_mine(x: jax.Array) -> jax.Array:
        return jnp.where(mine, x, jnp.zeros_like(x))

    return told.replace(
        done=ends & counts,
        episode_return=only_mine(told.episode_return),
        progress=only_mine(told.progress),
        facts=jax.tree.map(only_mine, told.facts),
        valid=mine if told.valid is None else told.valid & mine,
    )


def in_time(first: jax.Array, max_steps: int) -> jax.Array:
    """bool[T, ...]: the step's episode began so early that it ends inside the T steps, whatever happens in it.

    `first` (bool[T, ...]) says where episodes begin. If no episode is sure to end, those that begin with step 0 count.
    """
    # When an episode begins depends on the episodes before it, and not on how it will come out. So whether it counts
    # does not either. Among all that end within the T steps, short ones would be too many: in a maze, successes.
    n_steps = len(first)
    time = jnp.arange(n_steps, dtype=jnp.int32).reshape(-1, *(1,) * (first.ndim - 1))
    began = jax.lax.cummax(jnp.where(first, time, 0), axis=0)
    return began <= max(n_steps - max_steps, 0)


class FirstEpisodes(struct.PyTreeNode):
    """The first episode of each row, where a row is evaluation e of level b. All [A, B, E].

    A mean over these is unbiased. A mean over all episodes that end inside a rollout is not: long ones are cut off, and
    short ones fit in several times.
    """

    finished: jax.Array  # bool, it ended inside the rollout
    returns: jax.Array  # f32, undiscounted; the return so far if it has not ended
    progress: jax.Array  # f32, at its end; the progress so far if it has not ended
    solved: jax.Array  # bool, it ended with its task done
    facts: dict[str, jax.Array]  # f32 each, at the same time as `progress`


class EpisodeReturns(struct.PyTreeNode):
    """The episodes on each level that ended inside a rollout. Unfinished ones do not count. All [A, B].

    Where rows play several levels in turn, at most one episode counts (see `split_by_level`).
    """

    mean: jax.Array  # f32, 0 where no episode ended
    best: jax.Array  # f32, -inf where no episode ended
    count: jax.Array  # i32
    solved: jax.Array  # i32, episodes that ended with their task done
    progress: jax.Array  # f32, mean at the episodes' ends, 0 where none ended
    facts: dict[str, jax.Array]  # f32 each, means as `progress`
    first: FirstEpisodes
    begun: jax.Array  # bool, the student came to the level: in turn, it may not
    known: jax.Array  # bool, nothing is left out: in turn, a student without an episode has hardly played the level


def episode_returns(steps: Transition, n_evals: int = 1, in_turn: bool = False) -> EpisodeReturns:
    """Statistics of the episodes that were completed in `steps` [T, A, B * n_evals].

    `in_turn`: each row played several levels, and these are the steps after `split_by_level`.
    """
    done, returns = steps.done, steps.episode_return

    def pooled(x: jax.Array) -> jax.Array:
        return by_level(x, n_evals).sum(axis=-1)

    count = pooled(done.sum(axis=0, dtype=jnp.int32))

    begun = everywhere = jnp.ones_like(count, bool)
    if in_turn and steps.valid is not None:
        begun = by_level(steps.valid.any(axis=0), n_evals).any(axis=-1)

    def at_ends(x: jax.Array) -> jax.Array:
        return pooled(jnp.where(done, x, 0.0).sum(axis=0)) / jnp.maximum(count, 1)

    return EpisodeReturns(
        mean=at_ends(returns),
        best=by_level(jnp.where(done, returns, -jnp.inf).max(axis=0), n_evals).max(axis=-1),
        count=count,
        solved=pooled(steps.solved.sum(axis=0, dtype=jnp.int32)),
        progress=at_ends(steps.progress),
        facts=jax.tree.map(at_ends, steps.facts),
        first=jax.tree.map(lambda x: by_level(x, n_evals), first_episodes(steps)),
        begun=begun,
        known=count > 0 if in_turn else everywhere,
    )


def by_level(x: jax.Array, n_evals: int) -> jax.Array:
    """[..., B, n_evals] of rows [..., B * n_evals]. Row b * n_evals + e is evaluation e of level b."""
    return x.reshape(*x.shape[:-1], -1, n_evals)


def first_episodes(steps: Transition) -> FirstEpisodes:
    """The first episode of each row in `steps` [T, A, R]. The leaves are [A, R]."""
    finished = steps.done.any(axis=0)
    # The step of the first end, or the last step if there is no end (`argmax` would give 0).
    last = jnp.where(finished, jnp.argmax(steps.done, axis=0), len(steps.done) - 1)

    def there(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, last[None], axis=0)[0]

    progress = there(steps.progress)
    return FirstEpisodes(
        finished=finished,
        returns=there(steps.episode_return),
        progress=progress,
        solved=finished & (progress >= 1),
        facts=jax.tree.map(there, steps.facts),
    )
