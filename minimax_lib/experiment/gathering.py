"""Runs that share worlds of many agents with others: the worlds, tables, and the file that keeps the results."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from minimax_lib.envs.levels import task_name
from minimax_lib.evaluation.gatherings import Standings, gathered, points_table, standings_table
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.meeting_plan import Meeting
from minimax_lib.experiment.meetings import MATCH_SEED, file_name, notes
from minimax_lib.experiment.members import Member, members_of
from minimax_lib.store.evaluations import as_csv, protocol_columns, write_new

FOLDER = "shared"  # of the evaluations: apart from others, which have other columns


def gather(meeting: Meeting, console: Console) -> None:
    """Plays the worlds, prints tables, and writes the file."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    settings, first = meeting.settings, meeting.first
    path = Path(settings.out) if settings.compares else first.results / FOLDER / "any.csv"
    path.parent.mkdir(parents=True, exist_ok=True)  # before the work: if this failed after it, results would be lost
    say_hardware(say, 1, first.config.model)
    members = members_of(meeting, console)
    groups = {name: [one for one in members if one.group == name] for name in dict.fromkeys(m.group for m in members)}
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
    for note in notes(meeting):
        say(f"note: {note}")
    update = {name: mine[0].update for name, mine in groups.items()}
    rows = [row | {"update": update[row["player"]]} | protocol_columns(settings) for row in found.rows()]
    stem = path.stem if settings.compares else file_name(meeting, members[0].update or 0)
    say(f"written: {write_new(path.parent, stem, as_csv(rows))}")


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
