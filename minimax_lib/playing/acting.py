"""The trained agent at work: actions in the user's own loop, and whole episodes."""

import dataclasses
import functools
import io
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Environment, EnvState, Level
from minimax_lib.envs.spaces import within
from minimax_lib.playing.episodes import Choose, Recording, WholeEpisodes


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode that an agent has played. In a notebook it shows itself, where the environment draws episodes."""

    env: Environment
    level: Level
    states: EnvState  # [length + 1, ...], from the first to the last
    episode_return: float  # undiscounted
    length: int  # steps
    progress: float  # at the end
    facts: dict[str, float]  # at the end

    @property
    def solved(self) -> bool:
        """Whether its task was done when it ended."""
        return self.progress >= 1

    @property
    def end(self) -> str:
        """How it ended, in words."""
        return "solved" if self.solved else "not solved"

    def picture(self) -> np.ndarray:
        """u8[H, W, 3]: the level and the agent's way through it; ValueError where the environment draws none."""
        states = jax.tree.map(lambda x: x[:, None], self.states)
        return drawn(self.env, states, [f"{self.end} in {self.length} steps"], columns=1)

    def _repr_png_(self) -> bytes | None:
        """The picture that a notebook shows."""
        return png_of(self)

    def __repr__(self) -> str:
        return f"Episode({self.end} in {self.length} steps, return {self.episode_return:.3f})"


def png_of(episode: Any) -> bytes | None:
    """The picture of an episode, as a file; None where its environment draws none."""
    if episode.env.draw_episodes is None:
        return None
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(episode.picture()).save(file, "png")
    return file.getvalue()


# Compiled once for all runs of one configuration: their environments and agents are equal.
@functools.partial(jax.jit, static_argnums=0)
def act(
    who: tuple[Environment, Agent, Choose], key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
) -> tuple[Any, Any]:
    env, agent, choose = who
    policy, _, carry = agent.policy(params, obs, carry, first)
    action = jax.vmap(choose)(jax.random.split(key, len(first)), policy)
    return within(env.action_space, action), carry


@functools.partial(jax.jit, static_argnums=0)
def record(episodes: WholeEpisodes, key: jax.Array, params: Any, levels: Level) -> Recording:
    return episodes.record(key, params, levels)


@functools.partial(jax.jit, static_argnums=0)
def opened(env: Environment, keys: jax.Array, levels: Level) -> EnvState:
    return jax.vmap(env.reset)(keys, levels)[0]


def episode_of(env: Environment, recording: Recording, levels: Level, row: int) -> Episode:
    """One of the episodes that were recorded."""
    stats = jax.tree.map(lambda x: x[row], recording.stats)
    length = int(stats.lengths)
    return Episode(
        env=env,
        level=jax.tree.map(lambda x: x[row], levels),
        states=jax.tree.map(lambda x: x[: length + 1, row], recording.states),
        episode_return=float(stats.returns),
        length=length,
        progress=float(stats.progress),
        facts={name: float(fact) for name, fact in stats.facts.items()},
    )


def drawn(env: Environment, states: EnvState, captions: Sequence[str], columns: int) -> np.ndarray:
    """The picture of episodes that are all as long as `states` [T, R, ...]."""
    if env.draw_episodes is None:
        raise ValueError(f"no picture: {type(env).__name__} has no method to draw its episodes")
    running = np.ones(jax.tree.leaves(states)[0].shape[:2], bool)
    return env.draw_episodes(states, running, captions, columns)


@functools.lru_cache(maxsize=64)
def obs_form(env: Environment) -> Any:
    """Types and shapes of what one agent sees. Kept: to trace a reset can take a hundred times as long as to act."""

    def first_obs(key: jax.Array) -> Any:
        obs = env.reset(key, env.sample_level(key))[1].obs
        return jax.tree.map(lambda x: x[0], obs) if env.multi_agent else obs

    return jax.eval_shape(first_obs, jax.random.key(0))


def leading_axes(tree: Any, forms: Any) -> tuple[int, ...] | None:
    """The axes that all leaves of `tree` have before those of `forms`; None where the two do not fit."""
    if jax.tree.structure(tree) != jax.tree.structure(forms):  # type: ignore[operator]
        return None
    shapes = [np.shape(x) for x in jax.tree.leaves(tree)]
    inner = [form.shape for form in jax.tree.leaves(forms)]
    leading = shapes[0][: len(shapes[0]) - len(inner[0])]
    fits = all(shape == leading + own for shape, own in zip(shapes, inner, strict=True))
    return leading if fits else None


def form_of(tree: Any) -> Any:
    """The types and shapes of a tree, for people."""

    def form(x: Any) -> str:
        x = x if isinstance(x, jax.ShapeDtypeStruct) else np.asarray(x)
        return f"{x.dtype}{list(x.shape)}"

    return jax.tree.map(form, tree)
