"""Worlds of many agents: one player in all seats, which is a trained policy, chance or a written one, or several."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import EnvState, Level, progress_of
from minimax_lib.envs.multi_agent import LIFETIME, AgentTimeStep, MultiAgentEnvironment, over_agents
from minimax_lib.envs.spaces import within
from minimax_lib.playing.acting import Episode, png_of
from minimax_lib.playing.episodes import Choose, Played, Recording, sample
from minimax_lib.playing.players import Player, RandomPlayer, Resident, Trained, Turn, own_bot
from minimax_lib.trees import tree_size, tree_where


class World(struct.PyTreeNode):
    """A world under way, or over."""

    key: jax.Array
    time: jax.Array  # i32[], ticks so far
    state: EnvState
    obs: Any  # [G, ...]
    carry: Any  # [G, ...], the memories of the player
    over: jax.Array  # bool[]
    lives: Played  # [G], the lives so far; a dead agent's stays as it was


class RecordedWorld(struct.PyTreeNode):
    """A world from its start on. T is the environment's `max_steps`."""

    key: jax.Array  # u32[...], the data of the key that fixes everything random in it
    states: Any  # [T + 1, ...], of each what `MultiAgentEnvironment.slim` leaves of it
    running: jax.Array  # bool[T + 1], the state belongs to the world, up to its last one
    actions: Any  # [T, G, ...]
    lives: Played  # [G]


@dataclasses.dataclass(frozen=True)
class Crowd:
    """A player in all G seats of a world, or several (`SharedSeats`). Each seat has its own memory and luck."""

    env: MultiAgentEnvironment
    player: Player

    def start(self, key: jax.Array, level: Level) -> World:
        """The world before its first tick."""
        k_reset, k_ticks = jax.random.split(key)
        state, ts = self.env.reset(k_reset, level)
        n = self.env.n_agents
        none = jnp.zeros(n, jnp.float32)
        lives = Played(returns=none, lengths=jnp.zeros(n, jnp.int32), progress=none, facts=told(ts, none))
        return World(k_ticks, jnp.zeros((), jnp.int32), state, ts.obs, self.player.init_carry(n), ts.over, lives)

    def step(self, params: Any, world: World) -> tuple[World, Any]:
        """(the world after a tick, the actions [G, ...]). A world that is over stays as it is."""
        n = self.env.n_agents
        keys = jax.random.split(jax.random.fold_in(world.key, world.time), n + 1)
        action, carry = self._acted(keys[:n], params, world)
        state, ts = self.env.step(keys[n], world.state, action)
        lengths, returns = world.lives.lengths + ts.playing, world.lives.returns + ts.reward
        now = Played(returns, lengths, progress_of(ts, returns), told(ts, lengths))
        lives = jax.tree.map(lambda x, old: jnp.where(ts.playing, x, old), now, world.lives)
        after = World(world.key, world.time + 1, state, ts.obs, carry, ts.over, lives)
        return tree_where(world.over, world, after), action

    def _acted(self, keys: jax.Array, params: Any, world: World) -> tuple[Any, Any]:
        first = jnp.broadcast_to(world.time == 0, keys.shape)
        turn = Turn(state=world.state, seat=None, obs=world.obs, first=first)
        action, carry = self.player.act(keys, params, turn, world.carry)
        return within(self.env.action_space, action), carry

    def record(self, key: jax.Array, params: Any, level: Level) -> RecordedWorld:
        """A world on `level`, tick by tick."""
        slim = self.env.slim or (lambda state: state)
        start = self.start(key, level)

        def tick(world: World, _: None) -> tuple[World, tuple[Any, jax.Array, Any]]:
            after, action = self.step(params, world)
            return after, (slim(after.state), ~world.over, action)

        end, (states, running, actions) = jax.lax.scan(tick, start, None, self.env.max_steps)
        join = functools.partial(jax.tree.map, lambda x, xs: jnp.concatenate([x[None], xs]))
        data = jax.random.key_data(key)
        return RecordedWorld(data, join(slim(start.state), states), join(~start.over, running), actions, end.lives)

    def recording(self, key: jax.Array, params: Any, levels: Level) -> Recording:
        """A world on each of `levels` [R, ...]. Its progress is what the environment counts."""
        one = jax.vmap(self.record, (0, None, 0))(jax.random.split(key, tree_size(levels)), params, levels)
        lives = one.lives
        returns, solved = (over_agents(self.env, x) for x in (lives.returns, lives.solved))
        stats = Played(returns, lives.lengths.max(axis=1), solved, lives.facts)
        states, running = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (one.states, one.running))
        return Recording(states, running, stats)

    def lives(self, key: jax.Array, params: Any, levels: Level) -> Played:
        """The lives [R, G] in a world on each of `levels` [R, ...]. Goes on until all worlds are over."""
        return self.ended(key, params, levels).lives

    def ended(self, key: jax.Array, params: Any, levels: Level) -> World:
        """The end of a world on each of `levels` [R, ...]."""
        n = tree_size(levels)
        worlds = jax.vmap(self.start)(jax.random.split(key, n), levels)

        def under_way(worlds: World) -> jax.Array:
            return (~worlds.over & (worlds.time < self.env.max_steps)).any()

        step = jax.vmap(self.step, (None, 0))
        return jax.lax.while_loop(under_way, lambda worlds: step(params, worlds)[0], worlds)


def told(ts: AgentTimeStep, lengths: jax.Array) -> dict[str, jax.Array]:
    """f32[G] by name, the facts of lives of these lengths."""
    return ts.facts | {LIFETIME: lengths.astype(jnp.float32)}


def trained(env: Any, agent: Agent, choose: Choose = sample) -> Crowd:
    """All seats share a policy, whose parameters are `params`."""
    return Crowd(env, Trained(agent, choose))


def by_chance(env: Any) -> Crowd:
    """All seats draw from the actions that they may take. `params` is ()."""
    return Crowd(env, RandomPlayer(env))


def by_rule(env: Any) -> Crowd:
    """All seats are the written player of the environment. `params` is (). ValueError where it has none."""
    if env.bot is None:
        raise ValueError(f"{type(env).__name__} has no written player (a method bot)")
    return Crowd(env, Resident(env, own_bot))


@functools.partial(jax.jit, static_argnums=0)
def record(crowd: Crowd, keys: jax.Array, params: Any, levels: Level) -> RecordedWorld:
    """Worlds [R, ...] with `keys` [R] on `levels` [R, ...]."""
    return jax.vmap(crowd.record, (0, None, 0))(keys, params, levels)


@dataclasses.dataclass(frozen=True)
class CrowdEpisode:
    """A world that one policy has played in all seats. In a notebook it shows itself, where the environment draws."""

    env: Any
    key: np.ndarray  # u32[...], the data of its key
    level: Level
    states: Any  # [length + 1, ...], from the first to the last, as `slim` leaves them
    actions: Any  # [length, G, ...]
    length: int  # ticks
    returns: np.ndarray  # f32[G], undiscounted
    lifetimes: np.ndarray  # i32[G], ticks
    progress: np.ndarray  # f32[G], at the end of each life
    facts: dict[str, np.ndarray]  # f32[G] each, of whole lives

    @property
    def episode_return(self) -> float:
        """By default the mean over the agents, the dead included: see `MultiAgentEnvironment.counted`."""
        return float(over_agents(self.env, self.returns))

    @property
    def solved(self) -> float:
        """By default the share of the agents that solved it, likewise."""
        return float(over_agents(self.env, self.progress >= 1))

    @property
    def end(self) -> str:
        """How it ended, in words."""
        return f"{(self.progress >= 1).mean():.0%} of {len(self.progress)} agents solved it"

    @property
    def shares(self) -> dict[str, float]:
        """The mean of each fact over the agents: of causes of death, the share of the agents."""
        return {name: float(values.mean()) for name, values in self.facts.items()}

    @property
    def population(self) -> np.ndarray:
        """i64[length + 1], how many agents lived to see each tick."""
        # Who is alive at the end has lived as long as the world.
        return (self.lifetimes[None, :] >= np.arange(self.length + 1)[:, None]).sum(axis=1)

    @property
    def followed(self) -> int:
        """The agent whose view pictures show."""
        return int(self.states.followed[0])

    def following(self, agent: int) -> "CrowdEpisode":
        """The same world, in which pictures show the view of this agent; ValueError for one that there is not."""
        n = len(self.progress)
        if agent not in range(n):
            raise ValueError(f"agent is {agent}: it must be between 0 and {n - 1}")
        if not hasattr(self.states, "followed"):
            raise ValueError(f"{type(self.env).__name__} does not say whose view it shows")
        chosen = np.full_like(self.states.followed, agent)
        return dataclasses.replace(self, states=self.states.replace(followed=chosen))

    def picture(self) -> np.ndarray:
        """u8[H, W, 3]: the end of the world; ValueError where the environment draws none."""
        if self.env.draw_episodes is None:
            raise ValueError(f"no picture: {type(self.env).__name__} has no method to draw its episodes")
        states = jax.tree.map(lambda x: x[:, None], self.states)
        running = np.ones((self.length + 1, 1), bool)
        return self.env.draw_episodes(states, running, [f"{self.end} in {self.length} steps"], 1)

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows."""
        return png_of(self)

    def __repr__(self) -> str:
        return f"CrowdEpisode({self.end} in {self.length} steps, mean life {self.lifetimes.mean():.1f})"


AnyEpisode = Episode | CrowdEpisode


def played(crowd: Crowd, key: jax.Array, params: Any, levels: Level) -> list[CrowdEpisode]:
    """A world on each of `levels` [R, ...]."""
    keys = jax.random.split(key, tree_size(levels))
    worlds, levels = jax.device_get((record(crowd, keys, params, levels), levels))
    return [crowd_episode(crowd.env, worlds, levels, row) for row in range(len(keys))]


def crowd_episode(env: Any, recorded: RecordedWorld, levels: Level, row: int) -> CrowdEpisode:
    """One of the worlds [R, ...] that were recorded."""
    one = jax.tree.map(lambda x: np.asarray(x)[row], recorded)
    length = int(one.running.sum()) - 1
    found = CrowdEpisode(
        env=env,
        key=one.key,
        level=jax.tree.map(lambda x: x[row], levels),
        states=jax.tree.map(lambda x: x[: length + 1], one.states),
        actions=jax.tree.map(lambda x: x[:length], one.actions),
        length=length,
        returns=one.lives.returns,
        lifetimes=one.lives.lengths,
        progress=one.lives.progress,
        facts=one.lives.facts,
    )
    # The one that lives longest is worth following; of several, the first.
    return found.following(int(found.lifetimes.argmax())) if hasattr(found.states, "followed") else found
