"""The forager of Neural MMO goes to what it needs, and lives longer than a random player."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.nmmo.bot import forager_moves, with_nothing_else
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import newborn
from minimax_lib.envs.nmmo.tables import FOLIAGE, GRASS, STONE, WATER
from minimax_lib.envs.spaces import Discrete, sample_allowed

NORTH, SOUTH, EAST, WEST, STAY = range(5)


def test_it_stays_by_the_water_until_it_is_hungry():
    tiles = np.full((6, 15, 15), GRASS, np.uint8)
    tiles[:4, 7, 9] = WATER  # the shore is one step to the east
    tiles[:4, 4, 7] = FOLIAGE
    tiles[3, 6, 7] = STONE  # in the way
    tiles[5, 8, 7] = WATER
    food = np.array([100, 30, 30, 30, 30, 80], np.int32)
    water = np.array([100, 100, 20, 100, 100, 40], np.int32)
    players = newborn(jnp.full((6, 2), 20, jnp.int16), jnp.zeros(6, bool)).replace(food=food, water=water)
    move = np.asarray(jax.jit(lambda t, p: forager_moves(t, p, Square(32)))(tiles, players)).tolist()
    assert move[:3] == [EAST, NORTH, EAST]
    assert move[3] in (EAST, WEST)  # round the stone
    assert move[4] in (SOUTH, EAST)  # nothing in view: to the middle
    assert move[5] == STAY  # it is beside the water


def test_it_attacks_only_where_it_must():
    masks = {"target": jnp.array([[True, False, True], [True, True, False]])}
    heads = (("move", Discrete(5)), ("target", Discrete(3)), ("style", Discrete(3)), ("use", Discrete(13)))
    action = with_nothing_else(jnp.array([1, 2], jnp.int32), heads, masks)
    wanted = {"move": [1, 2], "target": [2, 1], "style": [0, 0], "use": [12, 12]}
    assert {name: x.tolist() for name, x in action.items()} == wanted


def lifespans(env: NMMO, act, n_worlds: int) -> np.ndarray:
    """f32[n, P], how long agents live whose actions are `act(key, state, obs)`."""

    def one_tick(loop, key):
        state, obs = loop
        k_action, k_step = jax.random.split(key)
        state, ts = env.step(k_step, state, act(k_action, state, obs))
        return (state, ts.obs), None

    @jax.jit
    @jax.vmap
    def play(key):
        k_level, k_reset, k_ticks = jax.random.split(key, 3)
        state, ts = env.reset(k_reset, env.sample_level(k_level))
        (state, _), _ = jax.lax.scan(one_tick, (state, ts.obs), jax.random.split(k_ticks, env.max_steps))
        return state.players.age

    return np.asarray(play(jax.random.split(jax.random.key(0), n_worlds)))


@pytest.mark.deep
def test_it_lives_at_least_twice_as_long_as_a_random_player():
    env = NMMO(preset="mini", max_steps=512)
    seats = jnp.arange(env.n_agents, dtype=jnp.int32)

    def random(key, state, obs):
        keys = jax.random.split(key, env.n_agents)
        return jax.vmap(lambda key, obs: sample_allowed(env.action_space, key, obs))(keys, obs)

    def forager(key, state, obs):
        return jax.vmap(lambda seat: env.bot(key, state, seat))(seats)

    by_chance, by_rule = lifespans(env, random, 8).mean(), lifespans(env, forager, 8).mean()
    # The reference's random moves live 56 ticks on average, on its small maps.
    assert 40 < by_chance < 80, by_chance
    assert by_rule > 2 * by_chance, (by_rule, by_chance)
