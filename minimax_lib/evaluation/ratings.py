"""Ratings of players from the games between them: Bradley-Terry in Elo, intervals, and how much of it goes in circles.

All of this runs on the host, in NumPy. `wins` [M, M] holds how many games player i has won against player j, and
`draws` [M, M] how many were drawn, the same number at [i, j] and [j, i]. The diagonals do not count. A rating is one
number for each player, so it cannot show a cycle: always show the matrix beside it, or `cyclic_share`.
"""

import numpy as np

from minimax_lib.evaluation.statistics import CONFIDENCE

ELO = 400 / np.log(10)  # points of one natural log-odds
MOST_STEPS = 1000  # 60 players in a chain, 100,000 games of each pair, all won: 224
TOLERANCE = 1e-9  # log-odds, of one step
N_RESAMPLES = 1000


def ratings(wins: np.ndarray, draws: np.ndarray, fixed: int = 0) -> np.ndarray:
    """f64[M], the Bradley-Terry maximum likelihood ratings in Elo. Player `fixed` has 0.

    A player that is 400 points above another one wins ten games for each that it loses. A draw counts as half a win for
    each. Every pair that met gets one more draw, so that a player who won or lost every game has a finite rating. NaN
    for a player whom no chain of games connects with `fixed`. Found by Newton's method.
    """
    wins, draws = checked(wins, draws)
    return fitted(points_of(wins, draws), checked_player(fixed, len(wins)))


def rating_intervals(wins: np.ndarray, draws: np.ndarray, fixed: int = 0, n_resamples: int = N_RESAMPLES) -> np.ndarray:
    """f64[M, 2], the ends of the 95% percentile bootstrap intervals of `ratings`. Player `fixed` has (0, 0).

    The games of each pair are drawn anew, with replacement. So they must be counts, and the games of a match must be
    independent: for worlds that more than two players share, there is `world_intervals`. A pair in which one player won
    all games always gives the same again: then the interval is too narrow.
    The random generator is fixed: the same games give the same interval.
    """
    wins, draws = checked(wins, draws)
    fixed = checked_player(fixed, len(wins))
    resampled = np.stack(resamples(np.random.default_rng(0), wins, draws, n_resamples))
    return ends(fitted(points_of(*resampled), fixed))


def world_intervals(score: np.ndarray, fixed: int = 0, n_resamples: int = N_RESAMPLES, rounds: int = 1) -> np.ndarray:
    """f64[M, 2], as `rating_intervals`, for players who have all played in the same worlds.

    `score` [M, L, E] is that of each player in E worlds on each of L tasks. Of two players, the one with the higher
    score has won the world. One world decides the games of all pairs, so whole worlds are drawn anew, as many on each
    task. With several `rounds`, E is that of all of them, one after another on the same levels: the worlds on a level
    are drawn together. Where a round has a single world on each task, an interval is a point.
    """
    m, n_tasks, n_worlds = score.shape
    fixed, n = checked_player(fixed, m), n_worlds // rounds
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), (n_resamples, n_tasks))
    times = np.tile(drawn, rounds).reshape(n_resamples, -1).astype(np.float64)  # how often each world was drawn
    flat = score.reshape(m, 1, -1)
    won, even = np.greater(flat, flat.swapaxes(0, 1)), np.equal(flat, flat.swapaxes(0, 1))
    even[np.diag_indices(m)] = False
    wins, draws = (np.moveaxis(games.astype(np.float64) @ times.T, -1, 0) for games in (won, even))
    return ends(fitted(points_of(wins, draws), fixed))


def ends(found: np.ndarray) -> np.ndarray:
    """f64[M, 2], between which `CONFIDENCE` of the resampled ratings [n, M] lie."""
    tail = (1 - CONFIDENCE) / 2
    return np.quantile(found, (tail, 1 - tail), axis=0).T


def cyclic_share(wins: np.ndarray, draws: np.ndarray) -> float:
    """The share of the log-odds between players that no rating explains: 0 in a ranking, 1 in rock-paper-scissors.

    The ratings here are those with the least squared error of the log-odds, each pair weighed by its games. The share
    is that error's root beside the log-odds themselves (the split into a gradient and a rotation of Balduzzi et al.
    2018). Chance looks like a cycle too: with few games the share is well above 0 for any players. 0 if no pair met, or
    if all were even.
    """
    wins, draws = checked(wins, draws)
    points = points_of(wins, draws)
    i, j = np.nonzero(np.triu(points, 1))
    weight = np.sqrt(points[i, j] + points[j, i])
    odds = weight * np.log(points[i, j] / points[j, i])
    size = np.linalg.norm(odds)
    if not size:
        return 0.0
    pairs = np.zeros((len(i), len(wins)))
    pairs[np.arange(len(i)), i], pairs[np.arange(len(i)), j] = weight, -weight
    explained = pairs @ np.linalg.lstsq(pairs, odds, rcond=None)[0]
    return float(np.linalg.norm(odds - explained) / size)


def checked(wins: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as f64[M, M] with diagonals of 0; ValueError if they cannot be numbers of games."""
    wins, draws = (np.array(x, np.float64) for x in (wins, draws))
    for name, games in (("wins", wins), ("draws", draws)):
        if games.ndim != 2 or games.shape[0] != games.shape[1] or not games.size:
            raise ValueError(f"{name} have shape {games.shape}: it must be [players, players], at least one")
        if not (np.isfinite(games) & (games >= 0)).all():
            raise ValueError(f"{name} hold a number that is negative or not finite: they must be numbers of games")
        np.fill_diagonal(games, 0)
    if wins.shape != draws.shape:
        raise ValueError(f"wins are {wins.shape} and draws {draws.shape}: they must have one shape")
    if not np.array_equal(draws, draws.T):
        raise ValueError("draws are not symmetric: each drawn game counts at [i, j] and at [j, i]")
    return wins, draws


def checked_player(player: int, n: int) -> int:
    """`player`; ValueError if it is not one of 0 .. n-1."""
    if not 0 <= player < n:
        raise ValueError(f"fixed is {player}: it must be one of the players, 0 to {n - 1}")
    return player


def points_of(wins: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """f64[..., M, M]: wins, and half of the draws; one draw more for each pair that met, 0 for one that did not."""
    met = wins + np.swapaxes(wins, -1, -2) + draws > 0
    return wins + 0.5 * draws + 0.5 * met


def fitted(points: np.ndarray, fixed: int) -> np.ndarray:
    """f64[..., M], the ratings in Elo from `points` [..., M, M]."""
    games = points + np.swapaxes(points, -1, -2)
    linked = linked_with(games.reshape(-1, *games.shape[-2:]).any(axis=0), fixed)
    elo = np.where(linked, 0.0, np.nan) + np.zeros(points.shape[:-1])
    free = linked & (np.arange(len(linked)) != fixed)
    own = points[..., linked, :][..., linked]
    found, moves = np.zeros(own.shape[:-1]), free[linked]
    for _ in range(MOST_STEPS if free.any() else 0):
        step = newton_step(own, found, moves)
        found[..., moves] += step
        if np.abs(step).max() < TOLERANCE:
            break
    elo[..., linked] = ELO * found
    return elo


def newton_step(points: np.ndarray, odds: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """f64[..., N], by how much the log-odds of the N players in `moves` change, from those of all, `odds` [..., M].

    A full step of Newton's method can go too far where ratings lie far apart. A step that is cut like this always
    raises the likelihood (Sun and Tran-Dinh 2019, for the logistic loss).
    """
    games = points + np.swapaxes(points, -1, -2)
    expected = 0.5 + 0.5 * np.tanh((odds[..., :, None] - odds[..., None, :]) / 2)
    slope = (points - games * expected).sum(axis=-1)
    bend = games * expected * (1 - expected)
    curvature = bend.sum(axis=-1)[..., None] * np.eye(len(moves)) - bend
    step = np.linalg.solve(curvature[..., moves, :][..., moves], slope[..., moves, None])[..., 0]
    # The largest change between two players; those that do not move have 0.
    widest = np.maximum(step.max(axis=-1), 0) - np.minimum(step.min(axis=-1), 0)
    return step * (np.log1p(widest) / np.maximum(widest, np.finfo(np.float64).tiny))[..., None]


def linked_with(met: np.ndarray, player: int) -> np.ndarray:
    """bool[M], which players a chain of games connects with `player`; `met` is bool[M, M]."""
    linked = np.arange(len(met)) == player
    for _ in met:  # a chain has at most M links
        linked = linked | met[linked].any(axis=0)
    return linked


def resamples(rng: np.random.Generator, wins: np.ndarray, draws: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """f64[n, M, M] wins and draws, each pair with as many games as it has, drawn from them with replacement."""
    if (wins % 1).any() or (draws % 1).any():
        raise ValueError("wins or draws hold a number that is not whole: an interval needs numbers of games")
    i, j = np.nonzero(np.triu(wins + wins.T + draws, 1))
    counts = np.stack([wins[i, j], wins[j, i], draws[i, j]], axis=-1)
    total = counts.sum(axis=-1)
    drawn = rng.multinomial(total.astype(np.int64), counts / total[:, None], size=(n, len(i)))
    new_wins, new_draws = np.zeros((2, n, *wins.shape))
    new_wins[:, i, j], new_wins[:, j, i] = drawn[..., 0], drawn[..., 1]
    new_draws[:, i, j] = new_draws[:, j, i] = drawn[..., 2]
    return new_wins, new_draws
