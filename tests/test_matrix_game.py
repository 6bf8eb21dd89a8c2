"""Matrix games: payoffs by hand, symmetry, and how much a best answer gains."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.matrix_game import (
    MATCHING_PENNIES,
    ROCK_PAPER_SCISSORS,
    UNEVEN_ROCK_PAPER_SCISSORS,
    MatrixGame,
    exploitability,
)
from minimax_lib.envs.multi_agent import MultiAgentEnvironment

KEY = jax.random.key(0)
GAMES = {
    "rock": MatrixGame(ROCK_PAPER_SCISSORS),
    "uneven": MatrixGame(UNEVEN_ROCK_PAPER_SCISSORS),
    "pennies": MatrixGame(MATCHING_PENNIES),
    "random": MatrixGame(tuple(map(tuple, np.random.default_rng(0).normal(size=(4, 4)).tolist()))),
}


def all_actions(game: MatrixGame) -> np.ndarray:
    """i32[n * n, 2], every pair of choices."""
    return np.stack(np.meshgrid(*[np.arange(game.n_actions, dtype=np.int32)] * 2, indexing="ij"), -1).reshape(-1, 2)


@functools.cache
def played(game: MatrixGame, order: tuple[int, int] = (0, 1)):
    """The time steps [n * n] after every pair of choices, the agents named by `order`."""

    @jax.jit
    @jax.vmap
    def play(action):
        state, first = game.reset(KEY, game.sample_level(KEY))
        state = game.relabelled(state, jnp.asarray(order))
        return first, game.step(KEY, state, action)[1]

    return jax.device_get(play(all_actions(game)))


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_a_multi_agent_environment_of_one_step(name):
    game = GAMES[name]
    assert isinstance(game, MultiAgentEnvironment)
    assert game.relabelled is not None
    assert game.zero_sum
    assert (game.n_agents, game.max_steps, game.zero_sum) == (2, 1, True)
    first, steps = played(game)
    assert first.playing.all()
    for nothing_yet in (first.over, first.done, first.reward):
        assert not nothing_yet.any()
    assert steps.over.all()
    assert steps.terminated.all()
    assert steps.playing.all()
    assert not steps.truncated.any()
    for ts in (first, steps):
        assert all(game.observation_space.contains(jnp.asarray(obs)) for obs in ts.obs.reshape(-1, *ts.obs.shape[2:]))


@pytest.mark.parametrize("name", GAMES)
def test_payoffs(name):
    game = GAMES[name]
    payoff = np.asarray(game.payoff, np.float32)
    rewards = played(game)[1].reward
    for (row, column), reward in zip(all_actions(game), rewards, strict=True):
        np.testing.assert_array_equal(reward, [payoff[row, column], -payoff[row, column]])


@pytest.mark.parametrize("name", GAMES)
def test_agents_may_be_relabelled(name):
    """Agent 1 then has the row: with the choices exchanged, rewards and observations are exchanged too."""
    game = GAMES[name]
    n = game.n_actions
    exchanged = np.arange(n * n).reshape(n, n).T.reshape(-1)  # where the pair stands whose choices are exchanged
    before, after = played(game)[1], played(game, (1, 0))[1]
    np.testing.assert_array_equal(after.reward[exchanged], before.reward[:, ::-1])
    np.testing.assert_array_equal(after.obs[exchanged], before.obs[:, ::-1])


def test_in_a_symmetric_game_roles_do_not_matter_nor_show():
    for game in (GAMES["rock"], GAMES["uneven"]):
        assert game.is_symmetric
        np.testing.assert_array_equal(played(game)[1].obs, 1)
        np.testing.assert_array_equal(played(game)[1].reward, played(game, (1, 0))[1].reward)


def test_in_other_games_agents_see_their_role():
    for game in (GAMES["pennies"], GAMES["random"]):
        assert not game.is_symmetric
        np.testing.assert_array_equal(played(game)[0].obs[0], [[1, 0], [0, 1]])
        np.testing.assert_array_equal(played(game, (1, 0))[1].obs[0], [[0, 1], [1, 0]])


def test_payoffs_as_lists_and_arrays_are_the_same_game():
    assert MatrixGame([[0, -1], [1, 0]]) == MatrixGame(np.array([[0, -1], [1, 0]])) == MatrixGame(((0.0, -1), (1, 0)))
    assert hash(MatrixGame([[0, -1], [1, 0]])) == hash(MatrixGame(((0, -1), (1, 0))))


@pytest.mark.parametrize(
    ("payoff", "message"),
    [
        ((), "payoff has 0 rows of lengths"),
        (((1, 2),), r"payoff has 1 rows of lengths \[2\]: it must have as many rows as columns"),
        (((1, 2), (3,)), r"payoff has 2 rows of lengths \[2, 1\]: it must have as many rows as columns"),
        (((0, float("nan")), (0, 0)), "payoff holds nan: it must be finite"),
    ],
)
def test_refusals(payoff, message):
    with pytest.raises(ValueError, match=message):
        MatrixGame(payoff)


def test_exploitability_by_hand():
    uneven = UNEVEN_ROCK_PAPER_SCISSORS
    assert exploitability(uneven, jnp.asarray([0.25, 0.5, 0.25])) == 0
    assert exploitability(uneven, jnp.asarray([1.0, 0, 0])) == 1  # paper
    assert exploitability(uneven, jnp.asarray([0, 0, 1.0])) == 2  # rock wins double
    assert exploitability(uneven, jnp.full(3, 1 / 3)) == pytest.approx(1 / 3)  # rock gets (0 - 1 + 2) / 3
    assert exploitability(MATCHING_PENNIES, jnp.full(2, 0.5)) == 0
    # The row player is at the value, and the column player loses 1 more than it: the average of the two roles.
    assert exploitability(MATCHING_PENNIES, jnp.full(2, 0.5), jnp.asarray([1.0, 0])) == pytest.approx(0.5)
    # The value of this game is 3, and both roles have one best action.
    assert exploitability(((3, 4), (1, 2)), jnp.asarray([1.0, 0]), jnp.asarray([1.0, 0])) == 0


def test_exploitability_is_never_negative():
    rng = np.random.default_rng(0)
    for _ in range(50):
        payoff = rng.normal(size=(4, 4)).astype(np.float32)
        row, column = rng.dirichlet(np.ones(4), size=2).astype(np.float32)
        assert exploitability(jnp.asarray(payoff), jnp.asarray(row), jnp.asarray(column)) > -1e-6
