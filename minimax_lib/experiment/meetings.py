"""Runs that meet opponents: the games, what they cost, and the files that keep the results."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

from minimax_lib.config import to_dict
from minimax_lib.config.evaluate import RANDOM
from minimax_lib.evaluation.match_tables import (
    FEWEST_RATED,
    Fare,
    Ranking,
    fare_table,
    game_rows,
    matrix_rows,
    matrix_table,
)
from minimax_lib.evaluation.matches import (
    CrossPlay,
    CrossTable,
    Pair,
    chosen_pairs,
    n_games,
)
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.meeting_plan import Meeting
from minimax_lib.experiment.members import Member, different_updates, members_of, pairs_of
from minimax_lib.store.evaluations import as_csv, protocol_columns, write_new
from minimax_lib.store.saved import Run

MATCH_SEED = 20230716  # not a seed of training
LONGEST_NAME = 60  # characters of a file's name that opponents are named in


def meet(meeting: Meeting, console: Console) -> None:
    """Plays the games, prints tables, and writes the files."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    settings = meeting.settings
    runs = [run for members in meeting.methods.values() for run in members]
    for folder in {results(run) for run in runs} | ({Path(settings.out).parent} if settings.compares else set()):
        folder.mkdir(parents=True, exist_ok=True)  # before the work: if this failed after it, results would be lost
    say_hardware(say, 1, runs[0].config.model)
    members = members_of(meeting, console)
    pairs = affordable(meeting, members, say)
    key = jax.random.fold_in(jax.random.key(MATCH_SEED), settings.seed)
    k_levels, k_play = jax.random.split(key)
    levels = jax.jit(lambda key: meeting.held_out.sample(key, settings.episodes))(k_levels)
    show = partial(track, description="games", console=console, transient=True)
    entrants = [member.entrant for member in members]
    table = CrossPlay(meeting.held_out.env).play(k_play, entrants, pairs, levels, show)  # type: ignore[arg-type]
    written = {run.name: write_run(meeting, run, members, table) for run in runs}
    files = [path for path in written.values() if path]
    for label in meeting.methods:
        console.print(fares_printed(meeting, label, members, table))
    ranking = ranking_of(members, table)
    if ranking is not None:
        console.print(matrix_table(ranking))
        files.append(write_matrix(meeting, members[0].update or 0, ranking))
    idle = [f"{name} has no game: all of its pairs were left out" for name, path in written.items() if path is None]
    for note in (*notes(meeting), *different_updates(members), *idle):
        say(f"note: {note}")
    for path in files:
        say(f"written: {path}")


def affordable(meeting: Meeting, members: Sequence[Member], say: Any) -> list[Pair]:
    """The pairs that play; says what their games cost at most, and which are left out."""
    settings, pairs = meeting.settings, pairs_of(members)
    n = max(1, settings.most_steps // meeting.env_steps(1))
    groups = [(member.group, member.copy) for member in members]
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    kept = chosen_pairs(pairs, n, [number[group] for group in groups], settings.seed)
    if len(kept) < len(pairs):
        say(f"{len(kept):,} of {len(pairs):,} pairs, drawn at random (--most-steps {settings.most_steps})")
    games = n_games(len(kept), len(meeting.tasks), settings.episodes)
    s = "s" if len(kept) > 1 else ""
    say(f"{len(kept):,} pair{s}, {games:,} games, at most {meeting.env_steps(len(kept)):,} environment steps")
    return kept


def fares_printed(meeting: Meeting, label: str, members: Sequence[Member], table: CrossTable) -> Any:
    """The table of one method against all others."""
    settings = meeting.settings
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} games on each held-out task in each seat"
    mine = [i for i, member in enumerate(members) if member.group == label]
    seeds = [members[i].seed or 0 for i in mine]
    return fare_table(f"{label}: {how}", meeting.tasks, seeds, list(fares(label, members, table)))


def fares(label: str, members: Sequence[Member], table: CrossTable) -> Iterator[Fare]:
    """How the seeds of a method fared against each other group, and against each copy by its number."""
    mine = [i for i, member in enumerate(members) if member.group == label]
    owners = [id(members[i].entrant) for i in mine]
    groups: dict[tuple[str, int | None], list[int]] = {}
    for j, member in enumerate(members):
        if member.group != label and (member.copy is None or id(member.copy_of) in owners):
            groups.setdefault((member.group, member.copy), []).append(j)
    for (group, copy), theirs in sorted(groups.items(), key=lambda item: -1 if item[0][1] is None else item[0][1]):
        games = [x[np.ix_(mine, theirs)].sum(axis=1) for x in (table.won, table.drawn, table.lost)]
        yield Fare(group if copy is None else f"copy {copy}", *games)


def ranking_of(members: Sequence[Member], table: CrossTable) -> Ranking | None:
    """All groups but the copies against each other; None where there are only two."""
    names = list(dict.fromkeys(member.group for member in members if member.copy is None))
    if len(names) < FEWEST_RATED:
        return None
    places = [None if member.copy is not None else names.index(member.group) for member in members]
    return Ranking.of(table.of_groups(names, places), names.index(RANDOM) if RANDOM in names else 0)


def notes(meeting: Meeting) -> Iterator[str]:
    """What a reader must know of the players."""
    others = [run for run in (*meeting.opponents.values(), *(r for rs in meeting.methods.values() for r in rs)) if run]
    own = to_dict(meeting.first.config)["env"]
    strangers = [run.name for run in others if to_dict(run.config)["env"] != own]
    if meeting.n_left_out:
        yield f"{meeting.n_left_out} held-out tasks are left out: they differ from others in the bot alone"
    if strangers:
        yield f"games are in the environment of {meeting.first.name}; {', '.join(strangers)} was trained in another one"


def results(run: Run) -> Path:
    """Where the games of a run are kept: apart from its evaluations, which have other columns."""
    return run.results / "matches"


def file_name(meeting: Meeting, update: int) -> str:
    """The name of a file of games, without its number and ending."""
    settings = meeting.settings
    words = [word if run is None else run.folder.path.name for word, run in meeting.opponents.items()]
    words = words if sum(map(len, words)) <= LONGEST_NAME else [str(len(words)), "opponents"]
    options = [*(["greedy"] if settings.greedy else [])]
    options += [f"student{settings.student}"] if settings.student else []
    return "-".join([f"update{update}", "against", *words, *options])


def write_run(meeting: Meeting, run: Run, members: Sequence[Member], table: CrossTable) -> Path | None:
    """The new file of a run: a line for each of its seeds, each opponent and each task; None if it has had no game."""
    settings = meeting.settings
    mine = [i for i, member in enumerate(members) if member.run is run and member.copy is None]
    how = {"update": members[mine[0]].update} | protocol_columns(settings)
    rows = [
        {"seed": members[i].seed, "task": task} | member.columns | row | how
        for i in mine
        for j, member in enumerate(members)
        for task, row in zip(meeting.tasks, game_rows(table, i, j), strict=True)
        if row["n_games"]
    ]
    return write_new(results(run), file_name(meeting, members[mine[0]].update or 0), as_csv(rows)) if rows else None


def write_matrix(meeting: Meeting, update: int, ranking: Ranking) -> Path:
    """The new file of all against all: beside that of the run, or where --out says."""
    settings = meeting.settings
    text = as_csv([row | protocol_columns(settings) for row in matrix_rows(ranking, meeting.tasks)])
    if settings.compares:
        out = Path(settings.out)
        return write_new(out.parent, out.stem, text)
    return write_new(results(meeting.first), f"{file_name(meeting, update)}-matrix", text)
