"""The figure of games against opponents, from what `minimax-evaluate --opponents` has written."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.pictures.held_out import held_out_bars
from minimax_lib.pictures.runs import Cells, Group, RunTables, numbers
from minimax_lib.pictures.scores import ComparedScores, GroupScores
from minimax_lib.pictures.style import NotDrawn, Picture

PLAYED = ("actions", "protocol", "evaluation_seed", "student")  # columns: how games were played
COPY = "opponent_copy"  # a column: which copy of its own bank the student has met, empty for any other opponent


def wins_against_opponents(groups: Sequence[Group]) -> Picture:
    """The share of games won against each opponent that all seeds have met, a bar a group."""
    bars = held_out_bars(met(groups))
    rows = [{"opponent" if name == "task" else name: cell for name, cell in row.items()} for row in bars.rows]
    return dataclasses.replace(bars, name="opponents", rows=rows)


def have_met(groups: Sequence[Group]) -> bool:
    """Whether some run has met opponents."""
    return any(run.matches for group in groups for run in group.runs)


def met(groups: Sequence[Group]) -> ComparedScores:
    """The share of wins of each seed against each opponent, over all tasks and all seeds of the opponent.

    Of some seeds, all games against an opponent may have been left out (`--most-steps`). Such an opponent is left out
    for all. NotDrawn in one line where there is no opponent that all seeds have met.
    """
    tables = alike([run for group in groups for run in group.runs])
    each = [set(names_of(cells)) for table in tables.values() for cells in table.values()]
    known, common = set[str].union(*each), sorted(set[str].intersection(*each))
    if not common:
        raise NotDrawn("the runs have met no opponent in common")
    found, notes = [], ["a draw is not a win"]
    if len(known) > len(common):
        notes.append(f"not all seeds have met {', '.join(sorted(known - set(common)))}: left out")
    for place, group in enumerate(groups):
        rows = [
            [wins(cells, opponent) for opponent in common] for run in group.runs for cells in tables[run.path].values()
        ]
        found.append(GroupScores(group.label, place, tuple(common), np.array(rows)))
        if len(rows) < group.n_seeds:
            notes.append(f"{group.label}: {len(rows)} of its {group.n_seeds} seeds have games")
    return ComparedScores(tuple(found), "share of games won", tuple(notes))


def alike(runs: Sequence[RunTables]) -> dict[Path, dict[int, Cells]]:
    """The games of each run, by its folder: all played on the same tasks, in the same way.

    Of what all runs have, the games against the most opponents, of these the most games, and then those of the first
    student. NotDrawn where there are none.
    """
    each = [newest(run) for run in runs]
    common = set(each[0]).intersection(*each[1:])
    if not common:
        raise NotDrawn(
            "the runs have no games on the same tasks, played in the same way: see the columns of their files"
        )

    def of_way(way: Any) -> tuple[Any, ...]:
        shared = set[str].intersection(*(set(names_of(cells)) for games in each for cells in games[way].values()))
        student = float(np.nan_to_num(numbers(way[-1:])[0]))
        return len(shared), sum(n_games(games[way]) for games in each), -student, sorted(map(str, way))

    best = max(common, key=of_way)
    return {run.path: games[best] for run, games in zip(runs, each, strict=True)}


def newest(run: RunTables) -> dict[Any, dict[int, Cells]]:
    """The games of each seed by (tasks, how they were played): of the latest update, the file with the most games.

    NotDrawn where there are none.
    """
    found: dict[Any, dict[int, Cells]] = {}
    for table in run.matches.values():
        if not table or not all("opponent" in cells for cells in table.values()):
            continue
        cells = next(iter(table.values()))
        way = frozenset(cells["task"]), *(cells[name][0] if name in cells else "" for name in PLAYED)
        if way not in found or worth(found[way]) < worth(table):
            found[way] = table
    if not found:
        raise NotDrawn(f"{run.path} has met no opponents: minimax-evaluate --run {run.path} --opponents random")
    return found


def worth(table: dict[int, Cells]) -> tuple[float, float]:
    """(update, number of games): the higher, the better."""
    return max(numbers(cells["update"]).max() for cells in table.values()), n_games(table)


def n_games(table: dict[int, Cells]) -> float:
    """All games of all seeds."""
    return float(sum(numbers(cells["n_games"]).sum() for cells in table.values()))


def names_of(cells: Cells) -> list[str]:
    """The opponents of a seed, without the copies in its own bank."""
    return [name for name, copy in zip(cells["opponent"], cells[COPY], strict=True) if not copy]


def wins(cells: Cells, opponent: str) -> float:
    """The share of its games against `opponent` that a seed has won; each task counts alike."""
    rows = [i for i, name in enumerate(cells["opponent"]) if name == opponent and not cells[COPY][i]]
    won, games = numbers(cells["win"])[rows], numbers(cells["n_games"])[rows]
    tasks = np.array(cells["task"])[rows]
    return float(np.mean([np.average(won[tasks == t], weights=games[tasks == t]) for t in dict.fromkeys(tasks)]))
