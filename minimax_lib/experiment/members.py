"""The players of a meeting (students from checkpoints, copies from banks, rules), and the pairs that meet."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from rich.console import Console

from minimax_lib.config import Config, to_dict
from minimax_lib.config.evaluate import BANK, BOT, RANDOM
from minimax_lib.evaluation.matches import (
    Entrant,
    Pair,
    all_pairs,
)
from minimax_lib.experiment.meeting_plan import Meeting
from minimax_lib.opponents.bank import Bank
from minimax_lib.playing.episodes import mode, sample
from minimax_lib.playing.players import Player, RandomPlayer, Resident, Scripted, Trained
from minimax_lib.runners.build import make_agent
from minimax_lib.store.kept_copies import bank_of_seed, copy_in, slots_of
from minimax_lib.store.saved import Run, archived_params, damage, restored_state


@dataclasses.dataclass(frozen=True)
class Member:
    """An entrant, and what it is: a seed of a run, a copy from its bank, a rule."""

    entrant: Entrant
    group: str  # the label of the method, or the word of the opponent
    run: Run | None = None
    seed: int | None = None
    update: int | None = None
    copy: int | None = None  # its number in the bank
    copy_of: Entrant | None = None  # the student whose bank that is

    @property
    def columns(self) -> dict[str, Any]:
        """Which opponent it is, in a file."""
        parts = {"seed": self.seed, "update": self.update, "copy": self.copy}
        return {"opponent": self.group} | {
            f"opponent_{name}": "" if part is None else part for name, part in parts.items()
        }


def members_of(meeting: Meeting, console: Console) -> list[Member]:
    """All players. Reads the checkpoints; CheckpointError where that is impossible."""
    settings = meeting.settings
    players: dict[str, Player] = {}

    def player_of(config: Config) -> Player:
        # Agents with networks of one kind are one player, so that they share their programs.
        choose = mode if settings.greedy else sample
        return players.setdefault(repr(to_dict(config)["model"]), Trained(make_agent(config).agent, choose))

    found: list[Member] = []
    copies: list[Member] = []
    for label, runs in meeting.methods.items():
        for run in runs:
            update, params, curriculum = read(run, console)
            own = seeds_of(label, run, update, params, settings.student, player_of(run.config))
            found += own
            if BANK in meeting.opponents:
                banks = [bank_of_seed(run, curriculum, place) for place in range(len(own))]
                copies += [copy for member, bank in zip(own, banks, strict=True) for copy in copies_of(member, bank)]
    env: Any = meeting.held_out.env
    written = Resident if meeting.shares_worlds else Scripted
    for word, other in meeting.opponents.items():
        if other is not None:
            update, params, _ = read(other, console)
            found += seeds_of(word, other, update, params, 0, player_of(other.config))
        elif word == RANDOM:
            found.append(Member(Entrant(word, RandomPlayer(env)), word))
        elif meeting.bot is not None and word == BOT:
            found.append(Member(Entrant(word, written(env, meeting.bot)), word))
    return [*found, *copies]


def read(run: Run, console: Console) -> tuple[int, Any, Any]:
    """(number of updates, parameters [S, A, ...], what the curriculum remembers) in the run's checkpoint.

    An archive holds nothing of the curriculum: that is None.
    """
    if run.archive is not None:
        return *archived_params(run), None
    restored = restored_state(run)
    for update, why in restored.damaged.items():
        console.print(damage(run, restored, update, why), soft_wrap=True)
    return restored.update, restored.state.students.evaluated, restored.state.curriculum


def seeds_of(label: str, run: Run, update: int, params: Any, student: int, player: Player) -> list[Member]:
    """A student of each seed of a run."""
    return [
        Member(
            # Luck goes with this name. So it says nothing of where the folder is.
            Entrant(f"{run.folder.path.name} {update} {seed} {student}", player, at(params, i, student)),
            label,
            run,
            seed,
            update,
        )
        for i, seed in enumerate(run.seeds)
    ]


def copies_of(member: Member, bank: Bank) -> list[Member]:
    """The copies in the bank [K, ...] of one seed, the oldest first."""
    own = member.entrant
    return [
        Member(
            Entrant(f"{own.name} copy {number}", own.player, copy_in(bank, slot, own.params)),
            BANK,
            member.run,
            member.seed,
            copy=number,
            copy_of=own,
        )
        for number, slot in slots_of(bank).items()
    ]


def at(tree: Any, *place: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[place], tree)


def different_updates(members: Sequence[Member]) -> Iterator[str]:
    """A note for each group of which some runs are further than others."""
    for group in dict.fromkeys(member.group for member in members):
        updates = [m.update for m in members if m.group == group and m.update is not None]
        if updates and min(updates) < max(updates):
            yield f"the checkpoints of {group} are of different updates, {min(updates):,} to {max(updates):,}"


def pairs_of(members: Sequence[Member]) -> list[Pair]:
    """The pairs that meet: players of different groups, and each copy with its own student."""

    def meet(one: Member, other: Member) -> bool:
        if other.copy is None and one.copy is None:
            return one.group != other.group
        return one.copy_of is other.entrant or other.copy_of is one.entrant

    return [(i, j) for i, j in all_pairs(len(members)) if meet(members[i], members[j])]
