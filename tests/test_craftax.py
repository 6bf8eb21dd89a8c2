"""Craftax-Classic, in lockstep with Craftax itself. It has a virtual environment of its own: see `.ci/deep`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("craftax", reason="the extra craftax is not installed")
from craftax.craftax_classic.constants import Achievement, Action
from craftax.craftax_classic.envs.craftax_symbolic_env import CraftaxClassicSymbolicEnvNoAutoReset

from minimax_lib.envs.foreign.craftax_family import Craftax
from minimax_lib.testing.envs import check_environment

KEY = jax.random.key(0)
MAX_STEPS = 40
ENV = Craftax(max_steps=MAX_STEPS, goal=("make_wood_pickaxe", "collect_diamond"))
THEIRS = CraftaxClassicSymbolicEnvNoAutoReset()
PARAMS = THEIRS.default_params.replace(max_timesteps=MAX_STEPS)
OPENING = (Action.PLACE_TABLE.value, Action.MAKE_WOOD_PICKAXE.value)  # the first actions; then random ones


@pytest.fixture(autouse=True)
def their_ranks():
    """Craftax adds matrices to vectors in some places. The test suite forbids this in our own code."""
    with jax.numpy_rank_promotion("allow"):
        yield


def endowed(opened, dying):
    """A game that starts with wood. A player that is `dying` has about ten steps to live."""
    recover, food = jnp.where(dying, -10.0, 0.0), jnp.where(dying, 0, 9)
    health, inventory = jnp.where(dying, 1, 9), opened.inventory.replace(wood=jnp.int32(9))
    return opened.replace(player_recover=recover, player_food=food, player_health=health, inventory=inventory)


def typed(tree, like):
    return jax.tree.map(lambda x, y: x if x is y else jnp.asarray(x, y.dtype), tree, like)


@functools.cache
def played():
    """((our first observation, theirs), steps [N, T]) on the same worlds, keys and actions; the first player dies."""

    def one_step(states, inputs):
        key, action = inputs
        mine, other = states
        mine, ts = ENV.step(key, mine, action)
        obs, other, reward, done, _ = THEIRS.step_env(key, other, action, PARAMS)
        other = typed(other.replace(state_rng=KEY), mine.theirs.replace(state_rng=KEY))
        return (mine, other), (ts, mine.theirs.replace(state_rng=()), obs, other.replace(state_rng=()), reward, done)

    def play(key, dying):
        k_world, k_actions, k_steps = jax.random.split(key, 3)
        # Not the key of the world, because the world must come from the level alone.
        mine, first = ENV.reset(KEY, ENV.sample_level(k_world))
        obs, opened = THEIRS.reset_env(k_world, PARAMS)
        opened = typed(endowed(opened.replace(state_rng=KEY), dying), mine.theirs)
        mine = mine.replace(theirs=typed(endowed(mine.theirs.replace(state_rng=KEY), dying), opened))
        actions = jax.random.randint(k_actions, (MAX_STEPS,), 0, 17).at[: len(OPENING)].set(jnp.array(OPENING))
        _, steps = jax.lax.scan(one_step, (mine, opened), (jax.random.split(k_steps, MAX_STEPS), actions))
        return (first.obs, obs), steps

    return jax.device_get(jax.jit(jax.vmap(play))(jax.random.split(KEY, 3), jnp.array([True, False, False])))


def test_lockstep_with_craftax():
    (mine, other), (ts, my_states, obs, states, reward, _) = played()
    np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(ts.obs, obs, rtol=1e-6)
    np.testing.assert_allclose(ts.reward, reward, rtol=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), my_states, states)
    assert np.ptp(states.player_position, axis=1).any()
    assert (reward > 0).any()
    assert (reward < 0).any()


def test_death_terminates_and_the_limit_truncates():
    _, (ts, *_, done) = played()
    np.testing.assert_array_equal(ts.terminated | ts.truncated, done)
    first_end = done.argmax(axis=1)
    assert ts.terminated[0, first_end[0]]
    assert not ts.truncated[0, first_end[0]]
    assert first_end[0] < MAX_STEPS - 1
    np.testing.assert_array_equal(ts.truncated, np.broadcast_to(np.arange(1, MAX_STEPS + 1) >= MAX_STEPS, done.shape))
    assert not ts.terminated[1:].any()


def test_achievements_are_the_facts_and_progress_is_the_goals_share():
    _, (ts, _, _, states, _, _) = played()
    assert set(ts.facts) == {achievement.name.lower() for achievement in Achievement}
    for achievement in Achievement:
        got = ts.facts[achievement.name.lower()]
        np.testing.assert_array_equal(got, states.achievements[..., achievement.value].astype(np.float32))
    assert ts.facts["make_wood_pickaxe"][:, -1].any()
    np.testing.assert_array_equal(ts.progress, (ts.facts["make_wood_pickaxe"] + ts.facts["collect_diamond"]) / 2)
    assert set(np.unique(ts.progress)) == {0.0, 0.5}


def test_it_conforms():
    check_environment(Craftax(max_steps=6, map_size=32), KEY, n_rows=2)
    assert ENV.resets_at_once is not None


def test_a_reset_does_not_make_a_world():
    level = jax.eval_shape(ENV.sample_level, KEY)
    reset = jax.jit(ENV.reset).lower(KEY, level).compile().cost_analysis()["flops"]
    world = jax.jit(ENV.sample_level).lower(KEY).compile().cost_analysis()["flops"]
    assert reset < world / 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": ("diamond",)}, r"^unknown achievement in env.goal 'diamond': choose from collect_wood, .*'\?\)$"),
        ({"map_size": 50}, r"^env.map_size is 50: it must be a multiple of 16 \(try 48\)$"),
        ({"max_steps": 0}, "^env.max_steps is 0: it must be at least 1$"),
    ],
)
def test_bad_input_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message):
        _ = Craftax(**settings).action_space
