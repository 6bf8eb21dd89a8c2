"""Runs that share worlds of many agents with others: the worlds, tables, and the files that keep the results."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from minimax_lib.config.evaluate import RANDOM
from minimax_lib.envs.levels import task_name
from minimax_lib.evaluation.gatherings import Standings, gathered, points_table, standings_table
from minimax_lib.evaluation.match_tables import FEWEST_RATED, Ranking, matrix_rows, matrix_table
from minimax_lib.evaluation.ratings import world_intervals
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.meeting_plan import Meeting, rooms
from minimax_lib.experiment.meetings import MATCH_SEED, file_name, notes
from minimax_lib.experiment.members import Member, different_updates, members_of
from minimax_lib.store.evaluations import as_csv, protocol_columns, write_new

FOLDER = "shared"  # of the evaluations: apart from others, which have other columns


def gather(meeting: Meeting, console: Console) -> None:
    """Plays the worlds, prints tables, and writes the files."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    settings, first = meeting.settings, meeting.first
    path = Path(settings.out) if settings.compares else first.results / FOLDER / "any.csv"
    path.parent.mkdir(parents=True, exist_ok=True)  # before the work: if this failed after it, results would be lost
    say_hardware(say, 1, first.config.model)
    members, n_left_out = with_room(members_of(meeting, console), rooms(meeting.held_out.env))
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.group if member.copy is None else f"copy {member.copy}", []).append(member)
    if n_left_out:
        say(f"copies of the bank for which there is no room: {n_left_out}; those that play are of all ages")
    n_worlds = len(meeting.tasks) * settings.episodes
    say(f"{rounds_of(groups) * n_worlds:,} worlds, at most {meeting.env_steps(rounds_of(groups)):,} environment steps")
    found = played(meeting, groups)
    env: Any = meeting.held_out.env
    how = f"{settings.episodes} worlds on each held-out task" + (
        f", {rounds_of(groups)} times" * (rounds_of(groups) > 1)
    )
    console.print(standings_table(f"{len(groups)} players share the seats: {how}", found))
    if found.of_agents is not None and env.task_kind:
        console.print(points_table(found, partial(task_name, env), env.task_kind))
    for note in (*notes(meeting), *different_updates(members), *uneven(env, found.players)):
        say(f"note: {note}")
    ranking = None
    if len(groups) >= FEWEST_RATED:
        fixed = found.players.index(RANDOM) if RANDOM in found.players else 0
        ranking = Ranking.of(found.games, fixed, world_intervals(found.decides, fixed, rounds=found.rounds))
        console.print(matrix_table(ranking, f"a world is won by {found.rule}; "))
    update = {name: mine[0].update for name, mine in groups.items()}
    rows = [row | {"update": update[row["player"]]} | protocol_columns(settings) for row in found.rows()]
    stem = path.stem if settings.compares else file_name(meeting, next(iter(update.values())) or 0)
    say(f"written: {write_new(path.parent, stem, as_csv(rows))}")
    if ranking is not None:
        rows = [row | protocol_columns(settings) for row in matrix_rows(ranking, meeting.tasks)]
        say(f"written: {write_new(path.parent, f'{stem}-matrix', as_csv(rows))}")


def uneven(env: Any, players: Sequence[str]) -> Iterator[str]:
    """What a reader must know where players have not equally many seats or teams (`SharedSeats`)."""
    n, what = rooms(env), "teams" if env.team_size > 1 else "seats"
    least, n_more = divmod(n, len(players))
    if n_more:
        effect = ": the more teams, the more worlds a player wins" * (env.team_size > 1)
        more, fewer = (each_of(some) for some in (players[:n_more], players[n_more:]))
        yield f"{n} {what} for {len(players)} players: {least + 1} for {more}; {least} for {fewer}{effect}"


def each_of(players: Sequence[str]) -> str:
    return players[0] if len(players) == 1 else f"each of {', '.join(players)}"


def with_room(members: Sequence[Member], room: int) -> tuple[list[Member], int]:
    """(the members without copies for which there is no room, how many copies are left out).

    The newest copy and the oldest stay, and others between them at equal distances.
    """
    others = {member.group for member in members if member.copy is None}
    numbers = sorted({member.copy for member in members if member.copy is not None})
    n = min(len(numbers), room - len(others))
    kept = {numbers[place] for place in np.linspace(len(numbers) - 1, 0, n).round().astype(int)} if n else set()
    return [member for member in members if member.copy is None or member.copy in kept], len(numbers) - len(kept)


def rounds_of(groups: Mapping[str, Sequence[Member]]) -> int:
    """How often all worlds are played. A player with several seeds plays with another one each time."""
    return max(map(len, groups.values()))


def played(meeting: Meeting, groups: Mapping[str, Sequence[Member]]) -> Standings:
    """The lives of all players."""
    key = jax.random.fold_in(jax.random.key(MATCH_SEED), meeting.settings.seed)
    k_levels, k_play = jax.random.split(key)
    levels = jax.jit(lambda key: meeting.held_out.sample(key, meeting.settings.episodes))(k_levels)
    players = [mine[0].entrant.player for mine in groups.values()]
    params = [tuple(mine[i % len(mine)].entrant.params for mine in groups.values()) for i in range(rounds_of(groups))]
    env: Any = meeting.held_out.env
    return gathered(env, list(groups), players, k_play, params, levels, meeting.tasks)
