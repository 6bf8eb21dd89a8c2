"""The figure of games against opponents, from what `minimax-evaluate --opponents` has written."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from minimax_lib.pictures.held_out import held_out_bars
from minimax_lib.pictures.runs import Cells, Group, RunTables, numbers
from minimax_lib.pictures.scores import ComparedScores, GroupScores
from minimax_lib.pictures.style import NotDrawn, Picture

COPY = "opponent_copy"  # a column: which copy of its own bank the student has met, empty for any other opponent


def wins_against_opponents(groups: Sequence[Group]) -> Picture:
    """The share of games won against each opponent that all groups have met, a bar a group."""
    bars = held_out_bars(met(groups))
    rows = [{"opponent" if name == "task" else name: cell for name, cell in row.items()} for row in bars.rows]
    return dataclasses.replace(bars, name="opponents", rows=rows)


def have_met(groups: Sequence[Group]) -> bool:
    """Whether some run has met opponents."""
    return any(run.matches for group in groups for run in group.runs)


def met(groups: Sequence[Group]) -> ComparedScores:
    """The share of wins of each seed against each opponent, over all tasks and all seeds of the opponent.

    NotDrawn in one line where there is no opponent that all runs have met.
    """
    tables = {run.path: newest(run) for group in groups for run in group.runs}
    opponents = [{name for cells in table.values() for name in names_of(cells)} for table in tables.values()]
    common = sorted(set[str].intersection(*opponents))
    if not common:
        raise NotDrawn("the runs have met no opponent in common")
    found = []
    for place, group in enumerate(groups):
        rows = [
            [wins(cells, opponent) for opponent in common] for run in group.runs for cells in tables[run.path].values()
        ]
        found.append(GroupScores(group.label, place, tuple(common), np.array(rows)))
    return ComparedScores(tuple(found), "share of games won", ("a draw is not a win",))


def newest(run: RunTables) -> dict[int, Cells]:
    """The games of each seed, of the latest update the file with the most games. NotDrawn where there is none."""
    files = [table for table in run.matches.values() if all("opponent" in cells for cells in table.values()) and table]
    if not files:
        raise NotDrawn(f"{run.path} has met no opponents: minimax-evaluate --run {run.path} --opponents random")

    def worth(table: dict[int, Cells]) -> tuple[float, float]:
        cells = list(table.values())
        return max(numbers(c["update"]).max() for c in cells), sum(numbers(c["n_games"]).sum() for c in cells)

    return max(files, key=worth)


def names_of(cells: Cells) -> list[str]:
    """The opponents of a seed, without the copies in its own bank."""
    return [name for name, copy in zip(cells["opponent"], cells[COPY], strict=True) if not copy]


def wins(cells: Cells, opponent: str) -> float:
    """The share of its games against `opponent` that a seed has won; each task counts alike."""
    rows = [i for i, name in enumerate(cells["opponent"]) if name == opponent and not cells[COPY][i]]
    won, games = numbers(cells["win"])[rows], numbers(cells["n_games"])[rows]
    tasks = np.array(cells["task"])[rows]
    return float(np.mean([np.average(won[tasks == t], weights=games[tasks == t]) for t in dict.fromkeys(tasks)]))
