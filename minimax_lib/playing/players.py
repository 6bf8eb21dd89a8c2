"""Players that do not learn: a trained agent, a random one, a hand-written bot."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.against import Against, Bot, random_bot
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, seats_of_teams
from minimax_lib.envs.spaces import sample_allowed

if TYPE_CHECKING:
    import distrax

Choose = Callable[[jax.Array, "distrax.Distribution"], jax.Array]


def sample(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """An action drawn from the policy, as in the published evaluations."""
    return policy.sample(seed=key)


def mode(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """The policy's most likely action."""
    return policy.mode()


class Turn(struct.PyTreeNode):
    """What a player may go by, on R rows."""

    state: Any  # [R, ...], the whole state of the environment: for rules
    seat: jax.Array | None  # i32[R], where the player sits; None in an environment of one agent
    obs: Any  # [R, ...], what this seat sees
    first: jax.Array  # bool[R], the episode begins


class Player(Protocol):
    """A way to play: pure functions of parameters. Players that are equal share one compiled program."""

    def init_carry(self, n: int) -> Any:
        """The memory with which `n` episodes begin."""
        ...

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        """(actions [R, ...], the memory after them); `keys` is key[R]."""
        ...


@dataclasses.dataclass(frozen=True)
class Trained:
    """An agent, which acts with the parameters of the entrant."""

    agent: Agent
    choose: Choose = sample

    def init_carry(self, n: int) -> Any:
        return self.agent.init_carry((n,))

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        policy, _, carry = self.agent.policy(params, turn.obs, carry, turn.first)
        return jax.vmap(self.choose)(keys, policy), carry


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Agents who do again what was done: their parameters are the actions [T, R, ...] of an episode."""

    def init_carry(self, n: int) -> jax.Array:
        """How many steps have been taken."""
        return jnp.zeros((), jnp.int32)

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: jax.Array) -> tuple[Any, jax.Array]:
        return jax.tree.map(lambda actions: actions[carry], params), carry + 1


@dataclasses.dataclass(frozen=True)
class RandomPlayer:
    """All allowed actions with the same chance."""

    env: MultiAgentEnvironment

    def init_carry(self, n: int) -> tuple[()]:
        return ()

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        space = self.env.action_space
        return jax.vmap(lambda key, obs: sample_allowed(space, key, obs))(keys, turn.obs), carry


@dataclasses.dataclass(frozen=True)
class Scripted:
    """A hand-written bot. It sees the whole game."""

    env: MultiAgentEnvironment
    bot: Bot

    def init_carry(self, n: int) -> tuple[()]:
        return ()

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        return jax.vmap(lambda key, state, seat: self.bot(key, self.env, state, seat))(
            keys, turn.state, turn.seat
        ), carry


@dataclasses.dataclass(frozen=True)
class Resident(Scripted):
    """A hand-written bot in seats of one world, whose state is the same for all of them."""

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        seats = jnp.arange(len(keys), dtype=jnp.int32) if turn.seat is None else turn.seat
        # What it works out of the whole game is computed once for all seats.
        return jax.vmap(lambda key, seat: self.bot(key, self.env, turn.state, seat))(keys, seats), carry


@dataclasses.dataclass(frozen=True)
class SharedSeats:
    """Several players in the seats of one world, in equal parts. Who sits where is drawn when the world begins.

    Its parameters are those of each player. Teams stay together. If they cannot be divided evenly, the first players
    have one more.
    """

    players: tuple[Player, ...]
    team_size: int = 1

    def parts(self, n: int) -> list[int]:
        """How many of `n` seats each player has."""
        k, n_teams = len(self.players), n // self.team_size
        return [(n_teams // k + (place < n_teams % k)) * self.team_size for place in range(k)]

    def init_carry(self, n: int) -> tuple[jax.Array, tuple[Any, ...]]:
        carries = tuple(player.init_carry(m) for player, m in zip(self.players, self.parts(n), strict=True))
        return jnp.arange(n, dtype=jnp.int32), carries

    def owners(self, carry: Any) -> jax.Array:
        """i32[G], which player sits in each seat."""
        order, _ = carry
        owner = np.repeat(np.arange(len(self.players), dtype=np.int32), self.parts(len(order)))
        return jnp.zeros_like(order).at[order].set(owner)

    def act(self, keys: jax.Array, params: Any, turn: Turn, carry: Any) -> tuple[Any, Any]:
        order, carries = carry
        teams = jax.random.permutation(jax.random.fold_in(keys[0], 1), len(keys) // self.team_size)
        order = jnp.where(turn.first[0], seats_of_teams(teams.astype(order.dtype), self.team_size), order)
        ends = np.cumsum(self.parts(len(keys)))
        actions, memories = [], []
        for player, own, memory, seats in zip(
            self.players, params, carries, jnp.split(order, ends[:-1].tolist()), strict=True
        ):
            seen, first, luck = jax.tree.map(lambda x, seats=seats: x[seats], (turn.obs, turn.first, keys))
            action, memory = player.act(luck, own, Turn(turn.state, seats, seen, first), memory)
            actions.append(action)
            memories.append(memory)

        def placed(*parts: jax.Array) -> jax.Array:
            joined = jnp.concatenate(parts)
            return jnp.zeros_like(joined).at[order].set(joined)

        return jax.tree.map(placed, *actions), (order, tuple(memories))


def bot_of(env: Any) -> Bot | None:
    """The bot of an environment: its own, or the first of `Against` that is not random; None where it has none."""
    if isinstance(env, Against):
        return next((bot for bot in env.bots if bot is not random_bot), None) or bot_of(env.game)
    return own_bot if env.bot else None


def own_bot(key: jax.Array, env: Any, state: Any, seat: jax.Array) -> Any:
    """The `Bot` of a game that has a written player."""
    return env.bot(key, state, seat)
