"""Ratings against known ones, closed forms, a plain maximum of the likelihood, and cycles."""

import numpy as np
import pytest
from scipy.optimize import minimize

from minimax_lib.evaluation.ratings import cyclic_share, rating_intervals, ratings, world_intervals

KNOWN = np.array([0.0, 150.0, -80.0, 400.0, 230.0])
NO_DRAWS = np.zeros((3, 3))


def simulated(rng, elo, n_games, draw_rate=0.0) -> tuple[np.ndarray, np.ndarray]:
    """(wins, draws) of `n_games` games of each pair. Half a point for a draw leaves the expected points as they are."""
    m = len(elo)
    wins, draws = np.zeros((2, m, m))
    for i in range(m):
        for j in range(i):
            points = 1 / (1 + 10 ** ((elo[j] - elo[i]) / 400))
            draw = 2 * draw_rate * min(points, 1 - points)
            n = rng.multinomial(n_games, [points - draw / 2, draw, 1 - points - draw / 2])
            wins[i, j], draws[i, j], wins[j, i] = n
            draws[j, i] = n[1]
    return wins, draws


@pytest.mark.parametrize("draw_rate", [0.0, 0.6])
def test_known_ratings_are_recovered(draw_rate):
    """10,000 games in all. A rating is then off by 8 points (root mean square); of 300 seeds, 94% stay below 20."""
    for seed in range(2):
        wins, draws = simulated(np.random.default_rng(seed), KNOWN, 1000, draw_rate)
        assert wins.sum() + draws.sum() / 2 == 10_000
        np.testing.assert_allclose(ratings(wins, draws), KNOWN, atol=20)


def test_two_players_by_hand():
    """9 points to 1, with the draw that every pair gets: 9.5 to 1.5."""
    wins = np.array([[0, 8], [0, 0]])
    draws = np.array([[0, 2], [2, 0]])
    np.testing.assert_allclose(ratings(wins, draws), [0, -400 * np.log10(9.5 / 1.5)], atol=1e-6)
    np.testing.assert_allclose(ratings(wins, draws, fixed=1), [400 * np.log10(9.5 / 1.5), 0], atol=1e-6)


def test_one_player_has_no_choice():
    np.testing.assert_array_equal(ratings([[3]], [[1]]), [0])


def test_games_of_a_player_against_itself_do_not_count():
    wins = np.array([[0.0, 8], [3, 0]])
    np.testing.assert_array_equal(ratings(wins + 5 * np.eye(2), np.eye(2)), ratings(wins, np.zeros((2, 2))))


@pytest.mark.parametrize("shape", ["all", "chain"])
def test_ratings_have_the_highest_likelihood(shape):
    m, rng = 12, np.random.default_rng(3)
    met = np.ones((m, m)) if shape == "all" else (np.abs(np.subtract.outer(range(m), range(m))) == 1)
    wins = rng.integers(1, 40, (m, m)) * met
    draws = rng.integers(0, 9, (m, m)) * met
    draws = np.tril(draws, -1) + np.tril(draws, -1).T
    points = (wins + 0.5 * draws + 0.5) * met * (1 - np.eye(m))

    def loss(theta):
        theta = np.append(0, theta)
        gap = theta[:, None] - theta[None]
        slope = points / (1 + np.exp(gap))
        return (points * np.logaddexp(0, -gap)).sum(), (slope.sum(axis=0) - slope.sum(axis=1))[1:]

    best = minimize(loss, np.zeros(m - 1), jac=True, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(ratings(wins, draws)[1:], best.x * 400 / np.log(10), atol=0.01)


def test_who_has_won_or_lost_everything_has_a_finite_rating():
    wins = np.array([[0, 100, 100], [0, 0, 60], [0, 40, 0]])
    found = ratings(wins, NO_DRAWS, fixed=1)
    assert np.isfinite(found).all()
    assert found[0] > found[1] > found[2]
    more = ratings(wins * 10, NO_DRAWS, fixed=1)
    assert more[0] > found[0]
    lost = ratings(wins.T, NO_DRAWS, fixed=1)
    np.testing.assert_allclose(lost, -found, atol=1e-4)


def test_ratings_that_lie_far_apart_are_exact():
    """In a chain, the distance of neighbours is that of two players alone. All against all, it is symmetric."""
    m, n = 20, 1000
    chain = n * np.eye(m, k=-1)  # each has won all games against the one before
    exact = 400 * np.log10((n + 0.5) / 0.5) * np.arange(m)
    np.testing.assert_allclose(ratings(chain, np.zeros((m, m))), exact, atol=1e-3)
    all_below = np.tril(np.full((m, m), 2.0 * n), -1)
    found = ratings(all_below, np.zeros((m, m)))
    points = (all_below + 0.5) * (1 - np.eye(m))
    expected = (points + points.T) / (1 + 10 ** (np.subtract.outer(found, found).T / 400))
    # At the maximum, each player has as many points as are expected of it.
    np.testing.assert_allclose(expected.sum(axis=1), points.sum(axis=1), rtol=1e-7)


def test_players_without_a_link_have_no_rating():
    wins = np.zeros((5, 5))
    wins[0, 2] = wins[3, 4] = 10
    wins[2, 1] = 10
    found = ratings(wins, np.zeros((5, 5)))
    np.testing.assert_array_equal(np.isnan(found), [False, False, False, True, True])
    assert found[0] > found[2] > found[1]
    found = ratings(wins, np.zeros((5, 5)), fixed=4)
    np.testing.assert_array_equal(np.isnan(found), [True, True, True, False, False])
    assert found[3] > found[4] == 0
    assert np.isnan(rating_intervals(wins, np.zeros((5, 5)), n_resamples=10)[3:]).all()


def test_the_fixed_player_only_moves_the_scale():
    wins, draws = simulated(np.random.default_rng(0), KNOWN, 100, 0.2)
    found = ratings(wins, draws)
    for fixed in range(len(KNOWN)):
        np.testing.assert_allclose(ratings(wins, draws, fixed), found - found[fixed], atol=1e-3)


ROCK = np.array([[0, 10, 90], [90, 0, 10], [10, 90, 0]])


def test_a_cycle_has_equal_ratings_and_shows_in_its_share():
    np.testing.assert_allclose(ratings(ROCK, NO_DRAWS), 0, atol=1e-6)
    assert cyclic_share(ROCK, NO_DRAWS) == pytest.approx(1)


def test_the_share_of_a_transitive_set_is_near_zero():
    odds = np.exp(np.subtract.outer([0.0, 1.0, 2.5], [0.0, 1.0, 2.5]))
    exact = odds / (1 + odds) * 1e6  # so many that the one draw more does not show
    assert cyclic_share(exact, NO_DRAWS) < 1e-3
    wins, draws = simulated(np.random.default_rng(0), KNOWN, 10_000)
    assert cyclic_share(wins, draws) < 0.05
    few = simulated(np.random.default_rng(0), KNOWN, 10)
    assert cyclic_share(*few) > cyclic_share(wins, draws)  # as its documentation warns


def test_the_share_by_hand():
    """Log-odds of a cycle of size a and a gradient of size b, orthogonal: a / sqrt(a^2 + b^2)."""
    cycle = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    gradient = np.subtract.outer([0, 1, 2], [0, 1, 2])
    for a, b in ((1, 1), (0.5, 1), (2, 0.3)):
        odds = np.exp(a * cycle + b * gradient)
        wins = odds / (1 + odds) * 1e9
        sizes = a * np.linalg.norm(cycle), b * np.linalg.norm(gradient)
        assert cyclic_share(wins, NO_DRAWS) == pytest.approx(sizes[0] / np.hypot(*sizes), abs=1e-5)


def test_the_share_of_nothing():
    assert cyclic_share(NO_DRAWS, NO_DRAWS) == 0
    assert cyclic_share(np.full((3, 3), 5), NO_DRAWS) == 0
    assert cyclic_share([[0, 5], [2, 0]], np.zeros((2, 2))) == pytest.approx(0, abs=1e-9)  # two cannot form a cycle


def test_intervals_cover_the_true_ratings():
    """95% of them should; with 60 sets of games, 4 players each, at least 90% and not all."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(60):
        games = simulated(rng, KNOWN, 100, 0.2)
        found = rating_intervals(*games, n_resamples=200)
        np.testing.assert_array_equal(found[0], 0)
        covered.append(((found[:, 0] <= KNOWN) & (found[:, 1] >= KNOWN))[1:])
    assert 0.9 < np.mean(covered) < 0.99


@pytest.mark.parametrize("one_wins", [False, True])
def test_intervals_over_worlds_cover_the_true_ratings(one_wins):
    """Equal players in 64 shared worlds, 40 times. Intervals over the games of each pair cover 57% of the ratings."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(40):
        score = rng.normal(size=(16, 2, 32))
        found = world_intervals(score == score.max(axis=0) if one_wins else score, n_resamples=200)
        np.testing.assert_array_equal(found[0], 0)
        covered.append(((found[:, 0] <= 0) & (found[:, 1] >= 0))[1:])
    assert 0.9 < np.mean(covered) < 1


def test_intervals_over_worlds_are_those_of_a_plain_loop():
    """The ends differ by chance, by about 3 points."""
    score = np.random.default_rng(0).integers(4, size=(4, 2, 100)).astype(np.float64)
    rng, drawn = np.random.default_rng(1), []
    for _ in range(1000):
        chosen = np.concatenate([score[:, task, rng.integers(100, size=100)] for task in range(2)], axis=1)
        wins, draws = (
            np.array([[0 if i == j else f(chosen[i], chosen[j]).sum() for j in range(4)] for i in range(4)])
            for f in (np.greater, np.equal)
        )
        drawn.append(ratings(wins, draws, fixed=2))
    expected = np.quantile(drawn, (0.025, 0.975), axis=0).T
    np.testing.assert_allclose(world_intervals(score, fixed=2), expected, atol=12)


def test_the_worlds_of_each_task_are_drawn_apart():
    """On each of 16 tasks, player 0 wins two of four worlds: those in the same places.

    So 64 worlds are drawn, and not four places: the interval is far narrower than that of a single task.
    """
    won = np.tile([1.0, 1.0, 0.0, 0.0], (16, 1))
    (low, high), (lowest, highest) = (world_intervals(np.stack([x, 1 - x]), fixed=1)[0] for x in (won, won[:1]))
    assert high - low < (highest - lowest) / 2


def test_intervals_are_the_same_every_time_and_hold_the_rating():
    games = simulated(np.random.default_rng(1), KNOWN, 50, 0.2)
    one, other = (rating_intervals(*games, fixed=2, n_resamples=100) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert ((one[:, 0] <= ratings(*games, fixed=2)) & (ratings(*games, fixed=2) <= one[:, 1])).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ratings([[0, 1]], [[0, 1]]), r"wins have shape \(1, 2\): it must be \[players, players\]"),
        (lambda: ratings(ROCK, np.zeros((2, 2))), r"wins are \(3, 3\) and draws \(2, 2\): they must have one shape"),
        (lambda: ratings(-ROCK, NO_DRAWS), "wins hold a number that is negative or not finite"),
        (lambda: ratings(ROCK, np.triu(np.ones((3, 3)))), "draws are not symmetric"),
        (lambda: ratings(ROCK, NO_DRAWS, fixed=3), "fixed is 3: it must be one of the players, 0 to 2"),
        (lambda: rating_intervals(ROCK / 100, NO_DRAWS), "wins or draws hold a number that is not whole"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
