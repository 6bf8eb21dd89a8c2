"""What every `Editing` must do: mutations, equality of levels, and the simplest levels."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, Level, TimeStep, sample_levels
from minimax_lib.envs.family import Editing
from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment
from minimax_lib.envs.registry import editing_of
from minimax_lib.envs.spaces import sample_allowed
from minimax_lib.testing.envs.multi_agent import actions_of
from minimax_lib.testing.envs.parts import (
    check_fits,
    check_same_types,
    check_strong,
    kind_of,
    numbers,
    require,
    same_levels,
)

GENERATIONS = 8  # mutations of mutations


def check_editing(
    env: Environment | MultiAgentEnvironment,
    key: jax.Array,
    n_edits: int = 3,
    n_rows: int = 16,
    is_valid: Callable[[Level], jax.Array] | None = None,
) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break ACCEL or a level buffer with `env`.

    Mutates `n_rows` random levels, their children, and so on. `is_valid(level)` (bool[]) says which levels there may
    be, if not all that can be played; mutated levels and the simplest ones must be valid.
    """
    try:
        editing = editing_of(env)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    require(isinstance(editing, Editing), f"the editing of {type(env).__name__} is {editing!r}: it must be an Editing")
    check_editing_types(env, editing, key, n_edits)
    trial = trial_of(env, editing, key, n_edits, n_rows)
    check_children(trial, again(editing, trial, n_edits), n_edits)
    check_identity(trial)
    check_playable(env, trial)
    if is_valid is not None:
        check_valid(is_valid, trial)


class Lot(struct.PyTreeNode):
    """Levels of one kind, and what becomes of them."""

    levels: Level  # [N, ...]
    kept: Level  # [N, ...], as the first state tells it
    first: TimeStep | AgentTimeStep  # [N, ...]
    second: TimeStep | AgentTimeStep  # [N, ...], after a random action
    identity: Any  # [N, ...]


class EditedLevels(struct.PyTreeNode):
    """N levels of each kind."""

    keys: jax.Array  # [N], that made the children
    parents: Lot
    children: Lot
    siblings: Level  # [N, ...], children of the same parents by other keys
    descendants: Lot  # after `GENERATIONS` mutations
    simplest: Lot


def trial_of(env: Any, editing: Editing, key: jax.Array, n_edits: int, n_rows: int) -> EditedLevels:
    """A trial, traced anew at every call."""
    act = actions_of if env.multi_agent else _action_of

    def lot(key: jax.Array, level: Level) -> Lot:
        k_reset, k_action, k_step = jax.random.split(key, 3)
        state, first = env.reset(k_reset, level)
        second = env.step(k_step, state, act(env, k_action, first.obs))[1]
        return Lot(level, env.get_level(state), first, second, editing.identity(level))

    def mutated(key: jax.Array, levels: Level) -> Level:
        return children_of(editing, jax.random.split(key, n_rows), levels, n_edits)

    def trial(key: jax.Array) -> EditedLevels:
        k_parents, k_simplest, k_children, k_siblings, k_later, k_play = jax.random.split(key, 6)
        parents = sample_levels(env, k_parents, n_rows)
        later = jax.lax.scan(
            lambda levels, key: (mutated(key, levels), None), parents, jax.random.split(k_later, GENERATIONS)
        )[0]
        simplest = sample_levels(editing.base(env), k_simplest, n_rows)
        several = parents, mutated(k_children, parents), later, simplest
        # One copy of the environment in the program, for all of them.
        joined = jax.tree.map(lambda *xs: jnp.concatenate(xs), *several)
        lots = jax.vmap(lot)(jax.random.split(k_play, 4 * n_rows), joined)
        pieces = [jax.tree.map(lambda x, i=i: x[i * n_rows : (i + 1) * n_rows], lots) for i in range(4)]
        siblings = mutated(k_siblings, parents)
        return EditedLevels(jax.random.split(k_children, n_rows), pieces[0], pieces[1], siblings, pieces[2], pieces[3])

    return jax.device_get(jax.jit(trial)(key))


def _action_of(env: Any, key: jax.Array, obs: Any) -> Any:
    """A random action."""
    return sample_allowed(env.action_space, key, obs)


def children_of(editing: Editing, keys: jax.Array, levels: Level, n_edits: int) -> Level:
    return jax.vmap(lambda key, level: editing.mutate(key, level, n_edits))(keys, levels)


def again(editing: Editing, trial: EditedLevels, n_edits: int) -> Level:
    """The children of the trial, made by another program: what was drawn while the first was traced is drawn anew."""
    make = jax.jit(lambda keys, levels: children_of(editing, keys, levels, n_edits))
    return jax.device_get(make(trial.keys, trial.parents.levels))


def check_editing_types(env: Any, editing: Editing, key: jax.Array, n_edits: int) -> None:
    """Found out by tracing: a child and a simplest level are levels of `env`, to the type."""
    level = jax.eval_shape(env.sample_level, key)
    child = jax.eval_shape(lambda key, level: editing.mutate(key, level, n_edits), key, level)
    check_strong("a child that mutate makes", child)
    check_same_types("mutate: the level", level, child)
    simplest = jax.eval_shape(editing.base(env).sample_level, key)
    check_same_types("base(env): the level", level, simplest)
    for leaf in jax.tree.leaves(jax.eval_shape(editing.identity, level)):
        require(hasattr(leaf, "dtype"), f"identity holds {leaf!r}: it must be a pytree of arrays")


def check_children(trial: EditedLevels, again: Level, n_edits: int) -> None:
    """Mutations are random, by their key alone, and change something."""
    for x in numbers((trial.children.levels, trial.descendants.levels)):
        finite = x.dtype.kind != "f" or bool(np.isfinite(x).all())
        require(finite, "a level that mutate makes is not finite")
    parents, children = trial.parents.levels, trial.children.levels
    same_levels(children, again, "mutate is not pure: with the same key it makes another child")
    what = f"mutate(key, level, {n_edits})"
    require(not equal(parents, children), f"{what} changes none of {n_rows_of(parents)} levels")
    require(not equal(children, trial.siblings), f"{what} makes the same child whatever the key is")


def check_identity(trial: EditedLevels) -> None:
    """Levels that differ can be told apart, so that a level buffer keeps more than one."""
    for leaf in numbers(trial.parents.identity):
        finite = leaf.dtype.kind != "f" or bool(np.isfinite(leaf).all())
        require(finite, f"identity(level) is not finite ({kind_of(leaf[0])}): NaN equals nothing, not even itself")
    varied = not all_rows_equal(trial.parents.levels)
    require(
        not varied or not all_rows_equal(trial.parents.identity), "identity(level) is the same for different levels"
    )
    require(
        not varied or not all_rows_equal(trial.simplest.identity),
        "the random levels of base(env) are all the same: a level buffer would keep one, and not fill up",
    )


def check_playable(env: Any, trial: EditedLevels) -> None:
    """Mutated and simplest levels can be played."""
    for what, lot in (
        ("a child that mutate makes", trial.children),
        (f"a level after {GENERATIONS} mutations", trial.descendants),
        ("a level of base(env)", trial.simplest),
    ):
        same_levels(lot.levels, lot.kept, f"{what} is not the one that get_level gives back after reset")
        for ts in (lot.first, lot.second):
            check_fits(env.observation_space, ts.obs, ts.reward.ndim, f"the observation of {what}")
            require(bool(np.isfinite(ts.reward).all()), f"{what} pays a reward that is not finite")
        require(not lot.first.done.any(), f"{what} is over as it opens")


def check_valid(is_valid: Callable[[Level], jax.Array], trial: EditedLevels) -> None:
    """All levels are valid."""
    for what, lot in (
        ("a random level", trial.parents),
        ("a child that mutate makes", trial.children),
        (f"a level after {GENERATIONS} mutations", trial.descendants),
        ("a level of base(env)", trial.simplest),
    ):
        require(bool(np.all(jax.vmap(is_valid)(lot.levels))), f"{what} is not valid")


def equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(numbers(one), numbers(other), strict=True))


def all_rows_equal(tree: Any) -> bool:
    return all((x == x[:1]).all() for x in numbers(tree))


def n_rows_of(tree: Any) -> int:
    return len(jax.tree.leaves(tree)[0])
