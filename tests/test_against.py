"""`Against`: a game for two, played by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.against import Against, AgainstLevel, random_bot
from minimax_lib.envs.base import Environment, sample_levels
from minimax_lib.envs.lasertag.bot import hunting_bot
from minimax_lib.envs.lasertag.dynamics import begin
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import make_level
from minimax_lib.envs.matrix_game import MATCHING_PENNIES, MatrixGame
from minimax_lib.testing.envs import check_environment

GAME = LaserTag(height=5, width=5, max_steps=12)
FIRE, STAND, LEFT, RIGHT = (GAME.actions.index(name) for name in ("fire", "stand", "left", "right"))


def standing_bot(key, game, state, seat):
    return jnp.full((), game.actions.index("stand"), jnp.int32)


def firing_bot(key, game, state, seat):
    return jnp.full((), game.actions.index("fire"), jnp.int32)


def second_bot(key, game, state, seat):
    return jnp.ones((), jnp.int32)


@pytest.mark.parametrize(
    "env",
    [
        Against(MatrixGame(MATCHING_PENNIES), (random_bot, second_bot)),
        pytest.param(Against(GAME, (random_bot, hunting_bot)), marks=pytest.mark.deep),
    ],
    ids=["pennies", "lasertag"],
)
def test_it_conforms(env):
    assert env.observe is not None
    check_environment(env, jax.random.key(0))


def test_levels_name_bots_and_seats():
    env = Against(GAME, (random_bot, hunting_bot))
    levels = jax.device_get(jax.jit(lambda key: sample_levels(env, key, 400))(jax.random.key(0)))
    for numbers in (levels.bot, levels.seat):
        assert set(numbers.tolist()) == {0, 1}
        assert abs(numbers.mean() - 0.5) < 4 * 0.5 / 20
    assert abs(np.corrcoef(levels.bot, levels.seat)[0, 1]) < 4 / 20


def facing_each_other():
    free = np.zeros((5, 5), bool)
    return make_level(free, [[0, 0], [4, 0]], [0, 2], ~free)


@functools.cache
def programs_of(bots):
    """(reset, step) of a game against one of `bots`."""
    env = Against(GAME, bots)
    return jax.jit(env.reset), jax.jit(env.step)


def end_of(bots, bot, seat, action, limit=12):
    """The last time step of a game in which the learner always does `action`."""
    reset, step = programs_of(bots)
    level = AgainstLevel(facing_each_other(), np.int32(bot), np.int32(seat))
    state, ts = reset(jax.random.key(0), level)
    for i in range(limit):
        state, ts = step(jax.random.key(i), state, np.int32(action))
        if ts.done:
            break
    return ts, i + 1


@pytest.mark.parametrize("seat", [0, 1])
def test_who_wins(seat):
    bots = (standing_bot, firing_bot)
    won, n_steps = end_of(bots, 0, seat, FIRE)
    assert (float(won.reward), float(won.progress), n_steps) == (1, 1, 1)
    assert bool(won.terminated)
    assert not won.truncated
    assert (float(won.facts["lost"]), float(won.facts["drawn"]), float(won.facts["tags"])) == (0, 0, 1)
    lost, n_steps = end_of(bots, 1, seat, STAND)
    assert (float(lost.reward), float(lost.progress), n_steps) == (-1, 0, 1)
    assert (float(lost.facts["lost"]), float(lost.facts["drawn"])) == (1, 0)
    drawn, n_steps = end_of(bots, 0, seat, STAND)
    assert (float(drawn.reward), float(drawn.progress), n_steps) == (0, 0, 12)
    assert bool(drawn.truncated)
    assert not drawn.terminated
    assert (float(drawn.facts["lost"]), float(drawn.facts["drawn"])) == (0, 1)


@jax.jit
def both_views(level, state):
    """(what each agent sees at the start of the game, what the learner sees in `state`)."""
    env = Against(GAME, (standing_bot, firing_bot))
    return GAME.observe(begin(level.game))["image"], env.observe(state)["image"]


@pytest.mark.parametrize("seat", [0, 1])
def test_the_learner_sees_from_its_seat(seat):
    env = Against(GAME, (standing_bot, firing_bot))
    reset, step = programs_of(env.bots)
    level = AgainstLevel(facing_each_other(), np.int32(0), np.int32(seat))
    state, ts = reset(jax.random.key(0), level)
    both, observed = jax.device_get(both_views(level, state))
    np.testing.assert_array_equal(ts.obs["image"], both[seat])
    np.testing.assert_array_equal(observed, both[seat])
    assert (both[0] != both[1]).any()
    state, _ = step(jax.random.key(0), state, np.int32(LEFT))
    assert int(state.game.facing[1 - seat]) == [0, 2][1 - seat]
    assert int(state.game.facing[seat]) != [0, 2][seat]


class ForThree(LaserTag):
    n_agents = 3


def test_what_is_refused():
    with pytest.raises(ValueError, match="ForThree has 3 agents: Against is for games of 2"):
        Against(ForThree())
    with pytest.raises(ValueError, match="name at least one"):
        Against(GAME, ())
    without = Against(LaserTag(actions=("left", "forward")), (hunting_bot,))
    with pytest.raises(ValueError, match="a hunting bot needs 'fire' among them"):
        jax.eval_shape(lambda key: without.step(key, without.reset(key, without.sample_level(key))[0], 0), key())


def key():
    return jax.random.key(0)


def test_the_hunter_by_hand():
    game = LaserTag(height=7, width=7)
    walls = np.zeros((7, 7), bool)
    walls[0, 3] = True
    act = jax.jit(lambda state: hunting_bot(key(), game, state, jnp.int32(0)))

    def action(own, facing, other):
        level = make_level(walls, [own, other], [facing, 0], ~walls)
        return game.actions[int(act(begin(level)))]

    assert action((1, 1), 0, (5, 1)) == "fire"
    assert action((1, 1), 1, (5, 1)) == "left"  # it looks down, the other one is to the right of the map
    assert action((1, 1), 3, (5, 1)) == "right"
    assert action((1, 1), 2, (5, 1)) == "right"  # it is behind
    assert action((1, 5), 3, (1, 2)) == "fire"
    assert action((1, 5), 0, (1, 2)) == "left"
    # A wall between them: any action, the same that nobody in sight gives.
    assert action((1, 0), 0, (5, 0)) == action((1, 0), 0, (5, 5)) == action((1, 0), 2, (5, 0))


N_GAMES = 800
SMALL2 = LaserTag(rules="lanctot", first_tag_ends=True, max_steps=200)


@functools.cache
def results_of(player):
    """(won, drawn, lost) shares and mean length of games of `player` against a random one on small2."""
    env: Environment = Against(SMALL2)

    def game(key):
        k_level, k_reset, k_steps = jax.random.split(key, 3)
        state, _ = env.reset(k_reset, env.sample_level(k_level))

        def step(loop, key):
            state, ended, result, length = loop
            k_action, k_step = jax.random.split(key)
            state, ts = env.step(k_step, state, player(k_action, SMALL2, state.game, state.seat))
            now = jnp.stack([ts.progress, ts.facts["drawn"], ts.facts["lost"]])
            result = jnp.where(ts.done & ~ended, now, result)
            return (state, ended | ts.done, result, length + ~ended), None

        loop = (state, jnp.zeros((), bool), jnp.zeros(3), jnp.zeros((), jnp.int32))
        return jax.lax.scan(step, loop, jax.random.split(k_steps, 200))[0][2:]

    results, lengths = jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(8), N_GAMES))
    return np.asarray(results).mean(axis=0), float(lengths.mean())


# Measured with OpenSpiel's own game and a plain Python program: 8,000 games of the bot, 4,000 of the random player.
@pytest.mark.deep
@pytest.mark.parametrize(
    ("player", "expected", "length"),
    [(random_bot, (0.356, 0.290, 0.354), 112), (hunting_bot, (0.940, 0.013, 0.047), 29.6)],
)
def test_results_on_small2_are_those_in_open_spiel(player, expected, length):
    shares, mean_length = results_of(player)
    errors = np.sqrt(np.array(expected) * (1 - np.array(expected)) / N_GAMES)
    assert shares.sum() == pytest.approx(1)
    assert (np.abs(shares - expected) < 4 * errors).all(), shares
    assert abs(mean_length - length) < 0.15 * length
