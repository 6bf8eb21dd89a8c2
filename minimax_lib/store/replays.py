"""Replays: the file of a world that one policy has played in all seats, from which it is played again bit for bit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.config.train import Config
from minimax_lib.config.tree import NAME, build, to_tree
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.registry import ENVS
from minimax_lib.files import UnreadableFile
from minimax_lib.playing.crowds import Crowd, CrowdEpisode, crowd_episode, record
from minimax_lib.playing.players import Repeated
from minimax_lib.store.parameters import about_params, forms_of, load_params, save_params

REPLAY = "replay"  # what the text in the file is called


def save_replay(world: CrowdEpisode, path: str | Path) -> Path:
    """Writes the level, the key and the actions of a world as an .npz file.

    An agent's choice takes 4 bytes a tick: 50 kB for 512 ticks of 24 agents that only move, and 6 MB for 1,024 ticks of
    128 agents with all twelve choices of Neural MMO. No file is ever overwritten. ValueError in one line as
    `save_params`, and for an environment without a name.
    """
    if not isinstance(world, CrowdEpisode):
        raise ValueError(
            f"world is of the class {type(world).__name__}: it must be a CrowdEpisode, which LoadedRun.play gives of a "
            "world of several agents"
        )
    env = {NAME: ENVS.name_of(type(world.env)), **to_tree(world.env)}
    parts = {"key": world.key, "level": _by_name(world.level), "actions": _by_name(world.actions)}
    return save_params(path, parts, {REPLAY: {"env": env, "ticks": world.length}})


def load_replay(path: str | Path) -> CrowdEpisode:
    """The world in a file that `save_replay` has written, played again. It has all that the first one had.

    ValueError in one line for a file that is no replay, and where the world does not come to the same end. It was
    played by another version of the package, or of JAX.
    """
    told = about_params(path).get(REPLAY)
    if not isinstance(told, dict) or not isinstance(told.get("env"), dict) or not isinstance(told.get("ticks"), int):
        raise UnreadableFile(path, "is no replay: it does not say in which environment it was played")
    try:
        env = build(Config, {"env": told["env"]}).env
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not env.multi_agent or not 0 < told["ticks"] <= env.max_steps:
        raise UnreadableFile(path, "is no replay: it is not of a world of several agents, or too long")
    key = jax.random.key(0)
    level, action = jax.eval_shape(lambda: (env.sample_level(key), env.action_space.sample(key)))
    actions = jax.tree.map(lambda x: jax.ShapeDtypeStruct((told["ticks"], env.n_agents, *x.shape), x.dtype), action)
    key_data = jax.eval_shape(jax.random.key_data, key)
    forms = {"key": key_data, "level": _by_name(level), "actions": _by_name(actions)}
    try:
        parts = load_params(path, forms_of(forms))
    except UnreadableFile:
        why = "is no replay: its level, its key and its actions are not of the shapes of its environment"
        raise UnreadableFile(path, why) from None
    return _played(env, told["ticks"], _filled(level, parts["level"]), _filled(actions, parts["actions"]), parts["key"])


def _played(env: Any, ticks: int, level: Any, actions: Any, key: np.ndarray) -> CrowdEpisode:
    # Behind its last tick, a world stays as it is, whatever is done there.
    rest = env.max_steps - ticks
    actions = jax.tree.map(lambda x: np.concatenate([x, np.zeros((rest, *x.shape[1:]), x.dtype)]), actions)
    levels = jax.tree.map(lambda x: jnp.asarray(x)[None], fitted_level(env, level))
    keys = jax.random.wrap_key_data(jnp.asarray(key))[None]
    worlds = jax.device_get(record(Crowd(env, Repeated()), keys, jax.tree.map(jnp.asarray, actions), levels))
    found = crowd_episode(env, worlds, jax.device_get(levels), 0)
    if found.length != ticks:
        raise ValueError(
            f"the world ended after {found.length} ticks and not after {ticks}: it was played by another version"
        )
    return found


def _by_name(tree: Any) -> dict[str, Any]:
    """The leaves by their place in the tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path).translate(str.maketrans("", "", ".[]'\"/")) or "all": leaf for path, leaf in leaves
    }


def _filled(tree: Any, leaves: Mapping[str, np.ndarray]) -> Any:
    """A tree like `tree` with these leaves."""
    return jax.tree.unflatten(jax.tree.structure(tree), [leaves[name] for name in _by_name(tree)])
