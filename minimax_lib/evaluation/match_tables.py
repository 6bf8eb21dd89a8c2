"""Tables of games: how a run fared against each opponent, and all players against each other with their ratings."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from minimax_lib.evaluation.matches import CrossTable
from minimax_lib.evaluation.ratings import cyclic_share, rating_intervals, ratings
from minimax_lib.evaluation.statistics import MIN_SEEDS, summarise
from minimax_lib.evaluation.tables import INTERVAL, percent, spread_cells, spread_columns

Z = 1.959964  # of a two-sided 95% interval of a normal distribution
FEWEST_RATED = 3  # players; the games of two say the same as a rating, and more
NOTHING = "-"


@dataclasses.dataclass(frozen=True)
class Fare:
    """How S seeds of a run fared against one opponent on L held-out tasks (maps). All i64[S, L]."""

    opponent: str
    won: np.ndarray
    drawn: np.ndarray
    lost: np.ndarray

    @property
    def n_games(self) -> np.ndarray:
        return self.won + self.drawn + self.lost

    def mean(self, games: np.ndarray) -> float:
        """The share of `games` among all, a mean over the tasks."""
        return float(np.mean(games.sum(axis=0) / self.n_games.sum(axis=0)))

    @property
    def met(self) -> np.ndarray:
        """bool[S], which seeds have met the opponent: pairs may be left out."""
        return np.asarray(self.n_games.all(axis=1))

    @property
    def rates(self) -> np.ndarray:
        """f64[S', L], the share of wins of each seed that has met the opponent."""
        return self.won[self.met] / self.n_games[self.met]

    def worst(self) -> tuple[int, float]:
        """(the task with the lowest share of wins, that share)."""
        shares = self.won.sum(axis=0) / self.n_games.sum(axis=0)
        return int(np.argmin(shares)), float(shares.min())

    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share of wins, over games: those of the same seeds on the same tasks, played anew."""
        return wilson(int(self.won.sum()), int(self.n_games.sum()))


def wilson(won: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share, `won` of `n` (Wilson 1927). It has a width too where all or none were won.

    With as many games on every task it holds for the mean over tasks, and is then slightly too wide.
    """
    share = won / n
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def fare_table(title: str, tasks: Sequence[str], seeds: Sequence[int], fares: Sequence[Fare]) -> Table:
    """A row an opponent: games, shares of wins, draws and losses, intervals, and the task with the fewest wins."""
    table = Table(title=title, title_justify="left", caption=fare_note(seeds), caption_justify="left")
    table.add_column("opponent", overflow="fold")
    iqm = ["IQM"] if len(seeds) >= MIN_SEEDS else []
    for column in ("games", "win", "draw", "loss", "95% interval\nover games", *iqm, *spread_columns(len(seeds))):
        table.add_column(column, justify="right")
    if len(tasks) > 1:
        table.add_column("worst task", overflow="fold")
    for fare in fares:
        table.add_row(fare.opponent, *fare_cells(fare, tasks, len(seeds)))
    return table


def fare_cells(fare: Fare, tasks: Sequence[str], n_seeds: int) -> list[str]:
    if not fare.n_games.any():
        return ["0"]
    shares = [percent(fare.mean(games)) for games in (fare.won, fare.drawn, fare.lost)]
    low, high = fare.interval()
    cells = [f"{fare.n_games.sum():,}", *shares, f"{100 * low:.1f} to {percent(high)}"]
    if n_seeds >= MIN_SEEDS:
        found = summarise(fare.rates)
        # Where pairs were left out, there may be too few seeds for an interval.
        cells += [percent(found.iqm), *(spread_cells(fare.rates, found.interval) if found.interval else [NOTHING])]
    elif n_seeds > 1:
        # A seed that has not met the opponent keeps its place: the note says in which order the seeds are.
        shares_of_seeds = iter(fare.rates.mean(axis=1))
        cells.append(" ".join(f"{100 * next(shares_of_seeds):3.0f}" if met else f"{NOTHING:>3}" for met in fare.met))
    if len(tasks) > 1:
        worst, rate = fare.worst()
        cells.append(f"{tasks[worst]} {percent(rate)}")
    return cells


def fare_note(seeds: Sequence[int]) -> str:
    """What the figures are."""
    what = "means over held-out tasks, in both seats; a draw is not a win"
    if len(seeds) == 1:
        return what
    if len(seeds) < MIN_SEEDS:
        return f"{what}; each seed: its share of wins, in the order {', '.join(map(str, seeds))}"
    return f"{what}; IQM and bootstrap: of the shares of wins of the seeds that have met the opponent, {INTERVAL}"


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Players with what they won of each other, and their ratings."""

    table: CrossTable
    fixed: int  # the player whose rating is 0
    elo: np.ndarray  # f64[M]
    intervals: np.ndarray  # f64[M, 2]
    cyclic: float
    over: str = "games"  # what is drawn anew for the intervals

    @classmethod
    def of(cls, table: CrossTable, fixed: int, of_worlds: np.ndarray | None = None) -> "Ranking":
        """The ranking, with intervals over games, or those over worlds where they are given."""
        won, drawn = table.won.sum(axis=2), table.drawn.sum(axis=2)
        over = "games" if of_worlds is None else "worlds"
        intervals = rating_intervals(won, drawn, fixed) if of_worlds is None else of_worlds
        return cls(table, fixed, ratings(won, drawn, fixed), intervals, cyclic_share(won, drawn), over)


def matrix_table(ranking: Ranking, wins: str = "") -> Table:
    """A row a player: its Elo with the interval, and what share of its games it won against each of the others.

    `wins` says who wins, where it needs to be said: a part of a sentence that ends in '; '.
    """
    names = ranking.table.names
    table = Table(title="All against all: Elo, and the share of its games that the row won, in %", title_justify="left")
    table.caption_justify = "left"
    table.caption = (
        f"{wins}a draw is not a win, and half a win in Elo; Elo of {names[ranking.fixed]} is 0; 95% intervals over "
        f"{ranking.over}. Elo is one number for each player and hides cycles: they are "
        f"{percent(ranking.cyclic)} of the log-odds here (chance looks like a cycle too)"
    )
    table.padding = (0, 0, 0, 1)  # ten players should fit on a line
    table.add_column("player", no_wrap=True)
    for column in ("Elo", "interval", *(str(i + 1) for i in range(len(names)))):
        table.add_column(column, justify="right", no_wrap=True)
    for i, name in enumerate(names):
        low, high = ranking.intervals[i]
        interval = "" if i == ranking.fixed else f"{low:z.0f} to {high:z.0f}"
        cells = [win_cell(ranking.table, i, j) for j in range(len(names))]
        table.add_row(f"{i + 1} {name}", f"{ranking.elo[i]:z.0f}", interval, *cells)
    return table


def win_cell(table: CrossTable, i: int, j: int) -> str:
    if i == j:
        return ""
    games = table.n_games[i, j]
    return f"{100 * float(np.mean(table.won[i, j] / games)):.0f}" if games.all() else NOTHING


def matrix_rows(ranking: Ranking, tasks: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each player, opponent and task, for a file in long form. Elo is that of the player, on all tasks."""
    table = ranking.table
    for i, player in enumerate(table.names):
        rating = {"elo": float(ranking.elo[i])}
        rating |= {"elo_low": float(ranking.intervals[i, 0]), "elo_high": float(ranking.intervals[i, 1])}
        for j, opponent in enumerate(table.names):
            if i != j:
                for task, row in zip(tasks, game_rows(table, i, j), strict=True):
                    yield {"player": player, "opponent": opponent, "task": task} | row | rating


def game_rows(table: CrossTable, i: int, j: int) -> Iterator[dict[str, Any]]:
    """The games of entrant i against entrant j on each level; nothing where they have not met."""
    for level in range(table.won.shape[2]):
        n = int(table.n_games[i, j, level])
        found = {"win": table.won, "draw": table.drawn, "loss": table.lost, "length": table.steps}
        yield {"n_games": n} | {name: float(x[i, j, level] / n) if n else "" for name, x in found.items()}
