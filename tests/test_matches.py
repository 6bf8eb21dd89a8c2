"""Games between players: win rates that are known exactly, both seats, time limits, and one program for two kinds."""

import dataclasses
import functools
from typing import ClassVar

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.envs.against import Against, random_bot
from minimax_lib.envs.held_out import TrainingDistribution
from minimax_lib.envs.matrix_game import MATCHING_PENNIES, UNEVEN_ROCK_PAPER_SCISSORS, MatrixGame
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.evaluation.matches import (
    CrossPlay,
    CrossTable,
    Entrant,
    GameTasks,
    Match,
    all_pairs,
    chosen_pairs,
    most_env_steps,
    n_games,
    parts,
)
from minimax_lib.playing.episodes import smaller_batches
from minimax_lib.playing.players import RandomPlayer, Scripted, Trained, bot_of

KEY = jax.random.key(7)
GAME = MatrixGame(UNEVEN_ROCK_PAPER_SCISSORS)
N_LEVELS, N_EPISODES, N_KEYS = 2, 250, 10
DEVIATIONS = 4.5  # of a share from its expectation: one in 150,000 by chance
POLICIES = {"first": (0.7, 0.2, 0.1), "second": (0.1, 0.3, 0.6), "third": (0.25, 0.5, 0.25)}


def sure(action: jax.Array, n: int) -> distrax.Categorical:
    """The policy that takes these actions (i32[R]) of `n`."""
    return distrax.Categorical(jnp.where(jax.nn.one_hot(action, n, dtype=bool), 0.0, -jnp.inf))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """An agent whose parameters are the logits of its actions, whatever it sees."""

    def init_carry(self, shape):
        return ()

    def policy(self, params, obs, carry, first):
        logits = jnp.broadcast_to(params, (len(first), len(params)))
        return distrax.Categorical(logits), jnp.zeros(len(first)), carry


@dataclasses.dataclass(frozen=True)
class ByRole:
    """An agent that plays action params[role], where it sees its role as one-hot."""

    def init_carry(self, shape):
        return ()

    def policy(self, params, obs, carry, first):
        return sure(params[jnp.argmax(obs, axis=-1)], 2), jnp.zeros(len(first)), carry


@dataclasses.dataclass(frozen=True)
class Counting:
    """An agent that remembers how often it has acted: action `params` in its first three steps, 0 afterwards."""

    def init_carry(self, shape):
        return jnp.full(shape, 5, jnp.int32)  # as if an earlier game had left something

    def policy(self, params, obs, carry, first):
        count = jnp.where(first, 0, carry)
        return sure(jnp.where(count < 3, params, 0), 3), jnp.zeros(len(first)), count + 1


class RaceState(struct.PyTreeNode):
    level: jax.Array
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Race(MultiAgentEnvironment):
    """Each agent is paid its action, until the game ends after `level` steps, or is cut off after `max_steps`.

    It pays on after the end. `ends` says whether the time limit is told.
    """

    max_steps: int = 6
    ends: bool = True
    n_agents: int = 2
    observation_space: ClassVar = Box(0, 1, (1,))
    action_space: ClassVar = Discrete(3)

    def sample_level(self, key):
        return jax.random.randint(key, (), 1, 10)

    def reset(self, key, level):
        return RaceState(level, jnp.zeros((), jnp.int32)), agents_opening(jnp.zeros((self.n_agents, 1)))

    def step(self, key, state, action):
        time = state.time + 1
        terminated, truncated = time >= state.level, (time >= self.max_steps) & self.ends
        everybody = jnp.ones(self.n_agents, bool)
        reward = action.astype(jnp.float32)
        ended = terminated | truncated
        after = agents_transition(
            jnp.zeros((self.n_agents, 1)), reward, everybody, everybody & terminated, everybody & truncated, ended
        )
        return state.replace(time=time), after


def rock(key, env, state, seat):
    return jnp.zeros((), jnp.int32)


def anything(key, env, state, seat):
    return jax.random.randint(key, (), 0, 3)


def same_levels(env, n_levels=N_LEVELS, n_episodes=N_EPISODES):
    return np.zeros((n_levels, n_episodes), np.int32)


def policy(*shares) -> jax.Array:
    return np.log(np.asarray(shares, np.float32))


TRAINED = Trained(Fixed())
ENTRANTS = [
    *(Entrant(name, TRAINED, policy(*shares)) for name, shares in POLICIES.items()),
    Entrant("random", RandomPlayer(GAME)),
    Entrant("rock", Scripted(GAME, rock)),
]
SHARES = np.array([*POLICIES.values(), (1 / 3, 1 / 3, 1 / 3), (1, 0, 0)])


@pytest.fixture(scope="module")
def play():
    return CrossPlay(GAME)


def all_against_all(play, key) -> CrossTable:
    return play.play(key, ENTRANTS, all_pairs(len(ENTRANTS)), same_levels(GAME))


@pytest.fixture(scope="module")
def table(play) -> CrossTable:
    return all_against_all(play, KEY)


def test_shares_of_wins_draws_and_losses_are_those_of_the_policies(play, table):
    tables = [table, *(all_against_all(play, jax.random.key(seed)) for seed in range(1, N_KEYS))]
    table = CrossTable(table.names, *(sum(getattr(t, name) for t in tables) for name in ("won", "drawn", "steps")))
    payoff = np.array(UNEVEN_ROCK_PAPER_SCISSORS)
    n = 2 * N_EPISODES * N_KEYS
    for i, j in all_pairs(len(ENTRANTS)):
        both = np.outer(SHARES[i], SHARES[j])
        for found, outcome in ((table.win, payoff > 0), (table.draw, payoff == 0), (table.loss, payoff < 0)):
            expected = both[outcome].sum()
            bound = DEVIATIONS * np.sqrt(expected * (1 - expected) / n) + 1e-6
            assert np.abs(found[i, j] - expected).max() <= bound, (i, j)


def test_a_game_is_booked_once_and_read_from_both_sides(table):
    np.testing.assert_array_equal(table.won, table.lost.swapaxes(0, 1))
    np.testing.assert_array_equal(table.win[~np.eye(5, dtype=bool)], table.loss.swapaxes(0, 1)[~np.eye(5, dtype=bool)])
    np.testing.assert_array_equal(table.drawn, table.drawn.swapaxes(0, 1))
    np.testing.assert_array_equal(table.n_games.sum(axis=2) / N_LEVELS, 2 * N_EPISODES * (1 - np.eye(5)))
    np.testing.assert_array_equal(table.steps, table.n_games)  # a game of one step
    assert np.isnan(table.win[np.diag_indices(5)]).all()
    assert table.win.dtype == np.float32
    assert table.win.shape == (5, 5, N_LEVELS)


def test_levels_and_pairs_have_their_own_luck(table):
    assert (table.won[0, 1, 0], table.won[0, 2, 0]) != (table.won[0, 1, 1], table.won[0, 2, 1])


def test_two_kinds_of_players_share_one_program(play, table):
    """Three agents of one form, a random one and a rule: 3 + 3 + 3 + 1 pairs in 4 programs."""
    assert len(play.programs) == 4
    assert all(program._cache_size() == 1 for _, program in play.programs)
    again = all_against_all(play, KEY)
    assert len(play.programs) == 4
    assert all(program._cache_size() == 1 for _, program in play.programs)
    np.testing.assert_array_equal(again.won, table.won)


def test_luck_depends_on_the_two_alone(table):
    """Not on who else plays, nor on how many games there are in a dispatch."""
    two = CrossPlay(GAME, n_rows=1)
    other = Entrant("other", TRAINED, policy(0.2, 0.2, 0.6))  # the same program then plays the second time too
    found = two.play(KEY, [*ENTRANTS[1:3], other], [(0, 1)], same_levels(GAME))
    np.testing.assert_array_equal(found.won[:2, :2], table.won[1:3, 1:3])
    found = two.play(KEY, ENTRANTS[:3], [(0, 2), (0, 1)], same_levels(GAME))
    np.testing.assert_array_equal(found.won[0], table.won[0, :3])
    assert not found.n_games[1, 2].any()


PENNIES = MatrixGame(MATCHING_PENNIES)


def test_each_pair_plays_in_both_seats():
    """The row wins where both choose alike. Who plays so always wins with the row, and loses without it."""
    policies = np.array([(0, 0), (0, 1), (1, 0)], np.int32)
    entrants = [Entrant(str(actions), Trained(ByRole()), actions) for actions in policies]
    table = CrossPlay(PENNIES).play(KEY, entrants, all_pairs(3), same_levels(PENNIES, 1, 8))
    # (0, 0) and (0, 1): with the row 0 meets 1 and loses; without it, 0 meets 0 and loses. And so on, by hand.
    np.testing.assert_array_equal(table.win[..., 0], [[np.nan, 0, 1], [1, np.nan, 0.5], [0, 0.5, np.nan]])


def test_the_seats_are_what_players_are_told():
    """A rule that plays by its seat, against one that sees the game: the row's action, whoever has it."""
    by_seat = Scripted(PENNIES, lambda key, env, state, seat: jnp.where(state.role[seat] == 0, 1, 0))
    entrants = [Entrant("seat", by_seat), Entrant("heads", Scripted(PENNIES, rock))]
    match = Match(PENNIES, tuple(entrant.player for entrant in entrants))
    seat = np.arange(6, dtype=np.int32) % 2
    found = jax.device_get(jax.jit(match.episodes.play)(KEY, ((), ()), np.zeros(6, np.int32), (seat, 1 - seat)))
    # In seat 0 the first plays 1 against 0 and loses; in seat 1 it plays 0 against the row's 0, and loses too.
    own = np.where(seat == 0, found.returns[:, 0], found.returns[:, 1])
    np.testing.assert_array_equal(own, -np.ones(6))
    np.testing.assert_array_equal(found.returns.sum(axis=1), np.zeros(6))


cross_play = functools.cache(CrossPlay)


def race(env, levels) -> CrossTable:
    """2 a step, 1 a step, and 2 in the first three steps."""
    entrants = [
        Entrant("two", Trained(ByStep()), np.int32(2)),
        Entrant("one", Trained(ByStep()), np.int32(1)),
        Entrant("three steps", Trained(Counting()), np.int32(2)),
    ]
    return cross_play(env).play(KEY, entrants, all_pairs(3), np.asarray(levels, np.int32))


@dataclasses.dataclass(frozen=True)
class ByStep:
    """An agent that always plays its parameter."""

    def init_carry(self, shape):
        return ()

    def policy(self, params, obs, carry, first):
        return sure(jnp.broadcast_to(params, first.shape), 3), jnp.zeros(len(first)), carry


@pytest.mark.parametrize(
    "ends", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["limit told", "limit not told"]
)
def test_games_end_with_the_game_or_with_the_time_limit(ends):
    """Games of 3, 5, 6 and 9 steps, the last cut off after 6: rewards after the end do not count."""
    table = race(Race(ends=ends), [[3, 3], [5, 5], [6, 6], [9, 9]])
    np.testing.assert_array_equal(table.win[0, 1], [1, 1, 1, 1])
    # Six in the first three steps: equal to `two` in the game of 3 steps, lower in the others.
    np.testing.assert_array_equal(table.draw[0, 2], [1, 0, 0, 0])
    np.testing.assert_array_equal(table.win[0, 2], [0, 1, 1, 1])
    # And against one a step: 6 > 3, 6 > 5, 6 = 6, and 6 = 6 where the limit cut it off.
    np.testing.assert_array_equal(table.win[2, 1], [1, 1, 0, 0])
    np.testing.assert_array_equal(table.draw[2, 1], [0, 0, 1, 1])
    np.testing.assert_array_equal(table.steps[0, 1], [12, 20, 24, 24])


@pytest.mark.deep
def test_games_that_are_over_may_be_dropped():
    """The same games as in a plain loop, in a batch that is cut on the way."""
    env, n = Race(max_steps=9), 2100
    assert len(smaller_batches(n)) == 1
    match = Match(env, (Scripted(env, anything), Trained(Counting())))
    levels = 1 + jnp.arange(n, dtype=jnp.int32) % 9
    seat = jnp.arange(n, dtype=jnp.int32) // 9 % 2
    params, episodes, seats = ((), jnp.int32(2)), match.episodes, (seat, 1 - seat)
    found = jax.device_get(jax.jit(episodes.play)(KEY, params, levels, seats))
    games, step = episodes.start(KEY, levels, seats), jax.jit(functools.partial(episodes.step, params))
    for _ in range(9):
        games = step(games)
    np.testing.assert_array_equal(found.returns, games.stats.returns)
    np.testing.assert_array_equal(found.lengths, levels)
    own = np.where(seat == 0, found.returns[:, 1], found.returns[:, 0])  # of the second player
    np.testing.assert_array_equal(own, 2 * np.minimum(levels, 3))
    other = np.where(seat == 0, found.returns[:, 0], found.returns[:, 1])
    assert len(np.unique(other[levels == 9])) > 5


def test_tasks_against_bots_are_levels_of_the_game():
    def other_rock(key, env, state, seat):
        return jnp.zeros((), jnp.int32)

    against = Against(GAME, (random_bot, other_rock))
    held_out = TrainingDistribution(against)
    tasks = GameTasks(held_out)
    assert (tasks.env, tasks.names, bot_of(held_out.env)) == (GAME, held_out.names, other_rock)
    assert tasks.sample(KEY, 3).shape == (1, 3)
    assert GameTasks(TrainingDistribution(GAME)).sample(KEY, 3).shape == (1, 3)
    assert bot_of(GAME) is bot_of(Against(GAME)) is None


def test_groups_are_sums_by_hand():
    rng = np.random.default_rng(0)
    won, half, steps = rng.integers(0, 9, (3, 5, 5, 2))
    table = CrossTable(tuple("abcde"), won, half + half.swapaxes(0, 1), steps)
    found = table.of_groups(("x", "y"), [0, 1, None, 1, 0])
    assert found.names == ("x", "y")
    np.testing.assert_array_equal(found.won[0, 1], won[0, 1] + won[0, 3] + won[4, 1] + won[4, 3])
    np.testing.assert_array_equal(found.won[1, 0], won[1, 0] + won[3, 0] + won[1, 4] + won[3, 4])
    np.testing.assert_array_equal(found.lost[0, 1], found.won[1, 0])
    np.testing.assert_array_equal(found.steps[0, 1], steps[0, 1] + steps[0, 3] + steps[4, 1] + steps[4, 3])
    assert not found.won[0, 0].any()


def test_the_cost_is_known_before():
    env = Race()
    assert n_games(3, 4, 2) == 48
    assert most_env_steps(env, 3, 4, 2) == 288
    played = race(env, np.full((4, 2), 9))
    assert played.n_games.sum() // 2 == 48
    assert played.steps.sum() // 2 == 288


def test_pairs_are_left_out_at_random_but_every_two_groups_meet():
    group = [0, 0, 0, 1, 1, 1, 2]
    pairs = [(i, j) for i, j in all_pairs(7) if group[i] != group[j]]
    assert chosen_pairs(pairs, len(pairs), group) == pairs
    for seed in range(20):
        found = chosen_pairs(pairs, 5, group, seed)
        assert found == sorted(set(found))
        cells = [(group[i], group[j]) for i, j in found]
        assert {(0, 1), (0, 2), (1, 2)} == set(cells)
        assert max(cells.count(cell) for cell in cells) == 2
    assert len({tuple(chosen_pairs(pairs, 5, group, seed)) for seed in range(20)}) > 10
    counts = np.sum([[pair in chosen_pairs(pairs, 3, group, seed) for pair in pairs] for seed in range(900)], axis=0)
    chance = {cell: 1 / sum((group[i], group[j]) == cell for i, j in pairs) for cell in ((0, 1), (0, 2), (1, 2))}
    for count, (i, j) in zip(counts, pairs, strict=True):
        p = chance[group[i], group[j]]
        assert abs(count / 900 - p) < DEVIATIONS * np.sqrt(p * (1 - p) / 900)


def test_parts_have_one_size():
    pairs = all_pairs(4)
    assert parts(pairs, 4) == [pairs[:4], [pairs[4], pairs[5], pairs[4], pairs[5]]]
    assert parts(pairs, 100) == [pairs]
    assert parts(pairs[:1], 3) == [pairs[:1]]


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match=r"Race has 3 agents: a match needs a game for 2"):
        Match(Race(n_agents=3), (TRAINED, TRAINED))
    with pytest.raises(ValueError, match=r"pair \(1, 1\): second cannot play against itself"):
        CrossPlay(GAME).play(KEY, ENTRANTS, [(1, 1)], same_levels(GAME))
