"""Environments in which several agents act at once, and their batch: `MultiAgentEnvironment` and `BatchMultiEnv`."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Ability, Attempt, BaseEnvironment, EnvState, Level
from minimax_lib.envs.batch import BatchEnv, BatchTimeStep, EpisodeStats
from minimax_lib.envs.restarts import QueuedLevels, QueueInUse, SameLevel
from minimax_lib.trees import tree_where

SAME_LEVEL = SameLevel()
LIFETIME = "lifetime"  # the fact that says how many steps an agent has lived
SURVIVED = "survived"  # the fact, 1 or 0, that says whether an agent lives; of a life: whether it was alive at the end


class AgentTimeStep(struct.PyTreeNode):
    """What G agents see after a step. G is fixed: the most agents that there can be.

    A *life* is an agent's episode: it ends with the agent's death or with the episode of all. A dead agent stays dead
    until the episode is over. One that comes back within the episode has not died.
    """

    obs: Any  # [G, ...], each fits the observation space; zeros for an agent that is dead
    reward: jax.Array  # f32[G], for the action that led here; 0 for an agent that was not playing, and at reset
    playing: jax.Array  # bool[G], alive before this step, so that its action counted; at reset: it is alive
    terminated: jax.Array  # bool[G], the agent's life ended here: by death, or by the end of the game
    truncated: jax.Array  # bool[G], its life was cut by the time limit
    over: jax.Array  # bool[], the episode ended here for all agents, and the next step is in another one
    progress: jax.Array | None = None  # f32[G] in [0, 1], as `TimeStep.progress`: 1 at a life's end is solved (or won)
    facts: dict[str, jax.Array] = struct.field(default_factory=dict)  # f32[G] by name, of the life so far
    attempt: Attempt | None = None  # with a leading G: where each agent has its own tasks; None: a life is one task

    @property
    def done(self) -> jax.Array:
        """bool[G], the agent's life ended here."""
        return self.terminated | self.truncated


def agents_opening(
    obs: Any,
    playing: jax.Array | None = None,
    progress: Any = None,
    facts: dict[str, Any] | None = None,
    attempt: Attempt | None = None,
) -> AgentTimeStep:
    """The time step of a reset. `playing` is bool[G], the agents that are alive; None: all.

    If `agents_transition` is given `progress`, `facts` or `attempt`, give them here too, in the same form.
    """
    n = jax.tree.leaves(obs)[0].shape[0]
    none = jnp.zeros(n, bool)
    alive = jnp.ones(n, bool) if playing is None else playing
    reward = jnp.zeros(n, jnp.float32)
    over = jnp.zeros((), bool)
    return agents_transition(obs, reward, alive, none, none, over, progress, facts=facts, attempt=attempt)


def agents_transition(
    obs: Any,
    reward: jax.Array,
    playing: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    over: jax.Array,
    progress: Any = None,
    **more: Any,
) -> AgentTimeStep:
    """The time step that follows the agents' actions. Without `progress`, see `envs.base.transition`.

    `more` may be `facts`, numbers f32[G] by name, and `attempt`.
    """
    facts = more.pop("facts", None) or {}
    return AgentTimeStep(
        obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        playing=jnp.asarray(playing, bool),
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
        over=jnp.asarray(over, bool),
        progress=None if progress is None else jnp.asarray(progress, jnp.float32),
        facts={name: jnp.asarray(fact, jnp.float32) for name, fact in facts.items()},
        **more,
    )


class MultiAgentEnvironment(BaseEnvironment):
    """As `Environment`, for G agents with one observation space and one action space. Derive from this class.

    `BatchMultiEnv` vectorises it: each agent is a row. Arrays have a leading G and no names: a program with 128 agents
    is then as short as one with two. What differs from agent to agent (a role) belongs in the observation. The level is
    shared by all agents. It must also have `n_agents`.
    Check your own with `minimax_lib.testing.envs.check_multi_agent`.
    """

    multi_agent: ClassVar[bool] = True

    zero_sum: bool = False
    """The rewards of every step add up to 0."""
    counted: str | int = "all"
    """Whose lives an evaluation counts. "all": return and solved are means over the agents, so solved is a share of
    them. "best": the highest return, and solved if any agent solved it, as in a game that one of many wins. A number:
    those of this agent. In a zero-sum game the mean return is always 0."""
    team_size: int = 1
    """Agents of a team. They have adjacent numbers. Where several policies share a world, each has whole teams. If
    there is a fact `survived`, a policy has won when only its agents live at the end."""
    relabelled: Ability = None
    """`relabelled(state, order)` is the state in which agent i is the one that was `order[i]` (i32[G]) before, where it
    does not matter which agent is which. A step with the same key and the actions in that order then gives the same, in
    that order."""

    @property
    def n_agents(self) -> int:
        """G."""
        raise NotImplementedError

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, AgentTimeStep]:
        """The state and time step (`agents_opening`) in which an episode on `level` begins."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: EnvState, action: Any) -> tuple[EnvState, AgentTimeStep]:
        """The state and time step (`agents_transition`) after `action` [G, ...]. That of a dead agent is ignored."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class QueuedTasks(QueuedLevels):
    """`QueuedLevels` for agents with their own tasks: an entry of a queue is a level, and a task for each agent."""

    env: Any  # a `MultiAgentEnvironment` that has `with_tasks`

    def levels(self, stock: QueueInUse, rows: jax.Array | None = None) -> Level:
        return jax.vmap(self.env.with_tasks)(stock.levels(rows), stock.tasks(rows))


@dataclasses.dataclass(frozen=True)
class BatchMultiEnv(BatchEnv):
    """`BatchEnv` for environments of G agents that share a policy: each agent is a row. R = B * n_evals * G.

    Row (b * n_evals + e) * G + g is agent g in evaluation e of level b. The rows of an environment begin and end its
    episode together. A row whose agent is dead is not `valid` until then. Statistics are those of the agents' lives:
    after a death they stay as they were.
    """

    env: MultiAgentEnvironment  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_agents_axis(self.env)

    @property
    def rows_per_level(self) -> int:
        return self.n_evals * self.env.n_agents

    @property
    def n_agents(self) -> int:
        return self.env.n_agents

    def one_obs(self, key: jax.Array, level: Level) -> Any:
        return jax.tree.map(lambda x: x[0], self.env.reset(key, level)[1].obs)

    def _from_rows(self, x: jax.Array) -> jax.Array:
        return x.reshape(self.n_students, -1, *x.shape[2:])

    def _of_agents(self, x: jax.Array) -> jax.Array:
        return self._from_rows(jnp.repeat(x[:, None], self.env.n_agents, axis=1))

    def _counts(self, ts: AgentTimeStep) -> jax.Array:  # type: ignore[override]
        return ts.playing.astype(jnp.int32)

    def _emit(self, ts: AgentTimeStep, obs: Any, stats: EpisodeStats) -> BatchTimeStep:  # type: ignore[override]
        ts = ts.replace(facts=ts.facts | {LIFETIME: stats.lengths.astype(jnp.float32)})
        opens = jnp.broadcast_to(ts.over[:, None], ts.reward.shape)
        return self._rows_of(ts, obs, stats, opens, valid=ts.playing)


@functools.cache
def check_agents_axis(env: MultiAgentEnvironment) -> None:
    """ValueError where an observation has a part that is not [G, ...], as the space says of one agent.

    What belongs to the world and not to an agent must be handed to each: rows are made by a reshape, which would mix
    the agents of such a part without an error.
    """
    key = jax.eval_shape(jax.random.key, 0)
    _, ts = jax.eval_shape(lambda key: env.reset(key, env.sample_level(key)), key)
    of_one = jax.tree_util.tree_leaves_with_path(jax.eval_shape(env.observation_space.sample, key))
    shapes = {jax.tree_util.keystr(path): (env.n_agents, *leaf.shape) for path, leaf in of_one}
    for path, leaf in jax.tree_util.tree_leaves_with_path(ts.obs):
        wanted = shapes.get(jax.tree_util.keystr(path))
        if leaf.shape != wanted:
            raise ValueError(
                f"{type(env).__name__}: the observation{jax.tree_util.keystr(path)} has the shape {leaf.shape}: with "
                f"{env.n_agents} agents it must be {wanted}, one part for each agent"
            )


def check_counted(env: Any) -> None:
    """ValueError where `counted` says nothing."""
    counted, n = env.counted, env.n_agents
    a_number = isinstance(counted, int) and not isinstance(counted, bool) and 0 <= counted < n
    if not a_number and counted not in ("all", "best"):
        raise ValueError(
            f"{type(env).__name__}.counted is {counted!r}: it must be 'all', 'best' or the number of an agent, "
            f"0 to {n - 1}"
        )


def over_agents(env: MultiAgentEnvironment, x: Any) -> Any:
    """f32[...]: of numbers [..., G] that are better the higher they are, what an evaluation counts (`counted`)."""
    if env.counted == "all":
        return x.mean(axis=-1, dtype=jnp.float32)
    return (x.max(axis=-1) if env.counted == "best" else x[..., env.counted]).astype(jnp.float32)


def seats_of_teams(teams: jax.Array, team_size: int) -> jax.Array:
    """i32[..., K * team_size], the seats of K teams (i32[..., K]), in their order."""
    place = jnp.arange(teams.shape[-1] * team_size, dtype=teams.dtype) % team_size
    first = jnp.repeat(teams * team_size, team_size, axis=-1)
    return first + jnp.broadcast_to(place, first.shape)


def taken(tree: Any, seat: jax.Array) -> Any:
    """[N, ...]: of leaves [N, S, ...], the part of one seat of each game (i32[N])."""

    def of(x: jax.Array) -> jax.Array:
        # A choice, not a gather: there are few seats, and XLA fuses it with what comes before.
        found = x[:, -1]
        for i in reversed(range(x.shape[1] - 1)):
            found = jnp.where(seat.reshape(-1, *(1,) * (x.ndim - 2)) == i, x[:, i], found)
        return found

    return jax.tree.map(of, tree)


def seated(seats: Sequence[jax.Array], parts: Sequence[Any]) -> Any:
    """[N, S, ...]: what belongs to each of S seats, of `parts` [N, ...], which sit in `seats` (i32[N] each)."""

    def of_seat(i: int) -> Any:
        found = parts[-1]
        for seat, part in reversed(list(zip(seats, parts, strict=True))[:-1]):
            found = tree_where(seat == i, part, found)
        return found

    return jax.tree.map(lambda *xs: jnp.stack(xs, axis=1), *(of_seat(i) for i in range(len(parts))))


def batch_of(env: Any, n_students: int = 1, n_evals: int = 1, restart: Any = SAME_LEVEL) -> BatchEnv:
    """`BatchMultiEnv` for an environment of several agents, `BatchEnv` for any other."""
    kind = BatchMultiEnv if env.multi_agent else BatchEnv
    return kind(env, n_students, n_evals, restart)
