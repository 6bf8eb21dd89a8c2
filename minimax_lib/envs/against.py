"""`Against`: a game for two as an environment for one, in which a bot sits in the other seat."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, EnvState, Forwarded, Level, TimeStep, opening, transition
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment
from minimax_lib.envs.spaces import Space
from minimax_lib.envs.terminal import Scene

Bot = Callable[[jax.Array, Any, EnvState, jax.Array], Any]
"""`bot(key, game, state, seat)` is the action of a fixed player in the seat `seat` (i32[])."""


def random_bot(key: jax.Array, game: MultiAgentEnvironment, state: EnvState, seat: jax.Array) -> Any:
    """Any action, all equally likely."""
    return game.action_space.sample(key)


class AgainstLevel(struct.PyTreeNode):
    """A level of the game, the opponent, and the seat of each."""

    game: Level
    bot: jax.Array  # i32[], the number of the opponent
    seat: jax.Array  # i32[], the learner's seat, 0 or 1


class AgainstState(struct.PyTreeNode):
    """An episode."""

    game: EnvState
    bot: jax.Array  # i32[]
    seat: jax.Array  # i32[]
    returns: jax.Array  # f32[2] so far, undiscounted, of both seats


@dataclasses.dataclass(frozen=True)
class Against(Environment):
    """The learner sits in one seat of `game`, and one of the `bots` in the other. The level says which, and where.

    A game is solved if it is won: at the end, the learner's return is higher than the bot's. A game that is cut off is
    compared in the same way. The facts "drawn" and "lost" are 1 where it ended so. It observes, draws and
    resets in groups where the game does. A person can play it (`keys`, `scene`) where the game has them and can put its
    agents into another order (`relabelled`): the game is then shown with the learner as its agent 0.
    """

    game: Any  # a `MultiAgentEnvironment`
    bots: tuple[Bot, ...] = (random_bot,)

    observe = Forwarded("_observe", inner="game")
    draw_episodes = Forwarded("_draw_episodes", inner="game")
    draw_state = Forwarded("_draw_state", inner="game")
    resets_at_once = Forwarded(inner="game")

    def __post_init__(self) -> None:
        if self.game.n_agents != 2:
            raise ValueError(f"{type(self.game).__name__} has {self.game.n_agents} agents: Against is for games of 2")
        object.__setattr__(self, "bots", tuple(self.bots))
        if not self.bots:
            raise ValueError("bots=(): name at least one, such as random_bot")

    @property
    def scene(self) -> Callable[[AgainstState], Scene] | None:  # type: ignore[override]
        return self._scene if self.game.scene is not None and self.game.relabelled is not None else None

    @property
    def keys(self) -> Any:
        return self.game.keys

    @property
    def max_steps(self) -> int:
        return self.game.max_steps

    @property
    def observation_space(self) -> Space:
        return self.game.observation_space

    @property
    def action_space(self) -> Space:
        return self.game.action_space

    def sample_level(self, key: jax.Array) -> AgainstLevel:
        """A random level of the game, with a random bot and a random seat."""
        k_level, k_bot, k_seat = jax.random.split(key, 3)
        bot = jax.random.randint(k_bot, (), 0, len(self.bots))
        return AgainstLevel(self.game.sample_level(k_level), bot, random_seat(k_seat))

    def fault_in(self, level: AgainstLevel) -> str:
        """See `Environment.fault_in`."""
        for name, n in (("bot", len(self.bots)), ("seat", 2)):
            number = int(getattr(level, name))
            if not 0 <= number < n:
                return f"its {name} is {number}: it must be from 0 to {n - 1}"
        return self.game.fault_in(level.game) if self.game.fault_in is not None else ""

    def reset(self, key: jax.Array, level: AgainstLevel) -> tuple[AgainstState, TimeStep]:
        level = checked_at_reset(self, level)
        game, ts = self.game.reset(key, level.game)
        state = AgainstState(game=game, bot=level.bot, seat=level.seat, returns=jnp.zeros(2, jnp.float32))
        none = jnp.zeros((), jnp.float32)
        facts = of_seat(ts.facts, level.seat) | {"drawn": none, "lost": none}
        return state, opening(of_seat(ts.obs, level.seat), progress=none, facts=facts)

    def step(self, key: jax.Array, state: AgainstState, action: Any) -> tuple[AgainstState, TimeStep]:
        """The game's step after the learner's `action` and the bot's."""
        k_bot, k_step = jax.random.split(key)
        theirs = self._bot_action(k_bot, state)
        is_first = state.seat == 0
        both = jax.tree.map(
            lambda own, other: jnp.where(is_first, jnp.stack([own, other]), jnp.stack([other, own])), action, theirs
        )
        game, ts = self.game.step(k_step, state.game, both)
        state = state.replace(game=game, returns=state.returns + ts.reward)
        return state, self._told(state, ts)

    def _bot_action(self, key: jax.Array, state: AgainstState) -> Any:
        def of(bot: Bot) -> Any:
            return bot(key, self.game, state.game, 1 - state.seat)

        if len(self.bots) == 1:
            return of(self.bots[0])
        return jax.lax.switch(state.bot, [functools.partial(of, bot) for bot in self.bots])

    def _told(self, state: AgainstState, ts: AgentTimeStep) -> TimeStep:
        own, other = of_seat(state.returns, state.seat), of_seat(state.returns, 1 - state.seat)
        reward, terminated, truncated = of_seat((ts.reward, ts.terminated, ts.truncated), state.seat)
        ended = terminated | truncated
        facts = of_seat(ts.facts, state.seat) | {"drawn": ended & (own == other), "lost": ended & (own < other)}
        return transition(
            of_seat(ts.obs, state.seat), reward, terminated, truncated, progress=ended & (own > other), facts=facts
        )

    def get_level(self, state: AgainstState) -> AgainstLevel:
        return AgainstLevel(self.game.get_level(state.game), state.bot, state.seat)

    def level_metrics(self, level: AgainstLevel) -> dict[str, jax.Array]:
        return self.game.level_metrics(level.game)

    def _observe(self, state: AgainstState) -> Any:
        return of_seat(self.game.observe(state.game), state.seat)

    def _draw_episodes(
        self, states: AgainstState, running: np.ndarray, captions: Sequence[str], columns: int
    ) -> np.ndarray:
        game = jax.vmap(jax.vmap(self._from_learner))(states)
        return self.game.draw_episodes(jax.tree.map(np.asarray, game), running, captions, columns)

    def _draw_state(self, state: AgainstState) -> np.ndarray:
        return self.game.draw_state(self._from_learner(state))

    def _scene(self, state: AgainstState) -> Scene:
        return self.game.scene(self._from_learner(state))

    def _from_learner(self, state: AgainstState) -> EnvState:
        """The state of the game in which the learner is agent 0, where the game can tell."""
        if self.game.relabelled is None:
            return state.game
        seat = jnp.asarray(state.seat)
        return self.game.relabelled(jax.tree.map(jnp.asarray, state.game), jnp.stack([seat, 1 - seat]))


def random_seat(key: jax.Array) -> jax.Array:
    """i32[]: 0 or 1."""
    return jax.random.randint(key, (), 0, 2)


def of_seat(both: Any, seat: jax.Array) -> Any:
    """What belongs to the seat, of arrays [2, ...]."""
    return jax.tree.map(lambda x: jnp.where(seat == 0, x[0], x[1]), both)


@dataclasses.dataclass(frozen=True)
class AgainstRandom:
    """The held-out tasks of a game for two, against `random_bot`; the learner's seat is drawn for each episode."""

    suite: Any  # a `HeldOut`, whose `env` is the game

    @property
    def names(self) -> tuple[str, ...]:
        return self.suite.names

    @property
    def env(self) -> Against:
        return Against(self.suite.env)

    def sample(self, key: jax.Array, n_episodes: int) -> AgainstLevel:
        """Levels [len(names), n_episodes, ...]."""
        k_levels, k_seats = jax.random.split(key)
        levels = self.suite.sample(k_levels, n_episodes)
        shape = (len(self.names), n_episodes)
        seats = jax.random.randint(k_seats, shape, 0, 2)
        return AgainstLevel(levels, jnp.zeros(shape, jnp.int32), seats)
