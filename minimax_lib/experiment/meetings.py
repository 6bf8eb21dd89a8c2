"""Runs that meet opponents: who plays, what it costs, and the files that keep the results."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from minimax_lib.config import Config, to_dict
from minimax_lib.config.evaluate import BANK, BOT, RANDOM, Settings
from minimax_lib.config.shipped import located_run, shipped_agents
from minimax_lib.curricula.joint import check_game
from minimax_lib.envs.against import Against, Bot, random_bot
from minimax_lib.envs.base import HeldOut
from minimax_lib.envs.registry import make_held_out
from minimax_lib.episodes import mode, sample
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
    Entrant,
    GameTasks,
    Pair,
    all_pairs,
    chosen_pairs,
    most_env_steps,
    n_games,
)
from minimax_lib.evaluation.players import Player, RandomPlayer, Scripted, Trained, bot_of
from minimax_lib.experiment.archive import archived
from minimax_lib.experiment.evaluations import as_csv, protocol_columns, write_new
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.folder import RunFolder
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.kept_copies import bank_in, bank_of_seed, copy_in, slots_of
from minimax_lib.experiment.saved import Run, archived_params, damage, find_run, no_such_run, restored_state
from minimax_lib.messages import shown
from minimax_lib.opponents.bank import Bank
from minimax_lib.registry import unknown_name
from minimax_lib.runners.build import make_agent, make_runner, mesh_of
from minimax_lib.runners.devices import whole_state
from minimax_lib.runners.memory import check_task_memory

MATCH_SEED = 20230716  # not a seed of training
LONGEST_NAME = 60  # characters of a file's name that opponents are named in


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Methods, each with the runs that are its seeds, and opponents. All of it has been checked."""

    settings: Settings
    methods: Mapping[str, Sequence[Run]]
    opponents: Mapping[str, Run | None]  # by the word that names them; None: random, bot or bank
    held_out: HeldOut  # of the game itself
    bot: Bot | None  # the environment's script, if it plays
    n_left_out: int = 0  # tasks that differ from others in nothing but the bot

    @property
    def first(self) -> Run:
        """The run in whose environment all games are played."""
        return next(iter(self.methods.values()))[0]

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.held_out.names

    def env_steps(self, n_pairs: int) -> int:
        """Environment steps that the games of `n_pairs` pairs take at most."""
        return most_env_steps(self.held_out.env, n_pairs, len(self.tasks), self.settings.episodes)  # type: ignore[arg-type]


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


# ------------------------------------------------------------------------------------------------------------- checks


def planned(settings: Settings, groups: Mapping[str, Sequence[Run]]) -> Meeting:
    """The meeting that the settings ask for; ValueError in one line where it is impossible. Nothing is played."""
    methods = {label or label_of(runs): runs for label, runs in groups.items()}
    opponents = {word: opponent(word, settings) for word in settings.opponents}
    runs = [run for members in methods.values() for run in members]
    env = runs[0].config.env
    check_game(env)
    held_out, n_left_out = game_tasks(settings, runs[0])
    bot = checked_bot(runs[0], held_out) if BOT in opponents else None
    for run in [*runs, *(run for run in opponents.values() if run)]:
        check_fits(runs[0], run)
    for word, other in opponents.items():
        check_not_evaluated(word, other, methods)
    if BANK in opponents:
        for run in runs:
            check_bank(run)
    # All games of a pair run side by side, and each is played in both seats.
    check_task_memory(len(held_out.names), 2 * settings.episodes, 1)
    meeting = Meeting(settings, methods, opponents, held_out, bot, n_left_out)
    if meeting.env_steps(1) > settings.most_steps:
        raise ValueError(
            f"most_steps is {settings.most_steps:,}: the games of one pair alone may take {meeting.env_steps(1):,} "
            "environment steps; a smaller n_episodes or fewer tasks take less"
        )
    return meeting


def label_of(runs: Sequence[Run]) -> str:
    """What runs that are pooled as seeds are called."""
    return runs[0].name if len(runs) == 1 else f"{runs[0].name} and {len(runs) - 1} more"


def opponent(word: str, settings: Settings) -> Run | None:
    """The run that `word` names: a folder, a trained agent, a checkpoint or an archive; None for any other opponent."""
    if word in (RANDOM, BOT, BANK):
        return None
    path, update = checkpoint_at(Path(word))
    if not located_run(path).is_dir():
        if "/" in word:
            raise no_such_run(path)
        runs = [config.parent.name for config in sorted(Path().glob("*/config.yaml"))]
        raise unknown_name("opponent", word, [RANDOM, BOT, BANK, *shipped_agents(), *runs])
    return find_run(path, update if update is not None else "latest", settings.plugins is not None)


def checkpoint_at(path: Path) -> tuple[Path, int | None]:
    """(folder of the run, update) if `path` is one of its checkpoints or a file of its archive; else (path, None)."""
    folder = RunFolder(path.parent.parent)
    if folder.config.exists() and path.parent in (folder.checkpoints, folder.archive):
        files = {file: update for update, file in archived(folder.archive).items()}
        files |= {folder.checkpoints / str(update): update for update in saved_updates(folder.checkpoints)}
        if path not in files:
            raise ValueError(f"opponent {str(path)!r} does not exist: choose from {', '.join(map(str, files))}")
        return folder.path, files[path]
    return path, None


def check_fits(first: Run, run: Run) -> None:
    """ValueError unless the agents of `run` can play the game of `first`."""
    check_game(run.config.env)
    for what in ("observation_space", "action_space"):
        one, other = getattr(first.config.env, what), getattr(run.config.env, what)
        if one != other:
            raise ValueError(
                f"{first.name} and {run.name} cannot play together: {what.replace('_', ' ')} is {one} and {other}"
            )


def check_not_evaluated(word: str, run: Run | None, methods: Mapping[str, Sequence[Run]]) -> None:
    """ValueError where the opponent is one of the players already, or only called like one."""
    mine = {(own.folder.path.resolve(), own.update) for runs in methods.values() for own in runs}
    if word in methods or (run and (run.folder.path.resolve(), run.update) in mine):
        raise ValueError(f"opponents is {shown(word)}, which is evaluated itself: name another one")


def game_tasks(settings: Settings, run: Run) -> tuple[GameTasks, int]:
    """(the held-out tasks that the settings name, as levels of the run's game; how many of them are left out).

    Some tasks may be played against different bots. Here the opponents say who plays, so that those against the random
    bot are enough; without such tasks, all are played.
    """
    suite, agent = settings.suite.of_run(run.config.runner), make_agent(run.config).agent
    held_out = suite.build(run.config.env, agent).held_out
    if not isinstance(held_out.env, Against):
        return GameTasks(held_out), 0
    numbers = np.asarray(jax.jit(lambda key: held_out.sample(key, 1).bot[:, 0])(jax.random.key(0)))
    at_random = [held_out.env.bots[n] is random_bot for n in numbers]
    names = tuple(name for name, chosen in zip(held_out.names, at_random, strict=True) if chosen) or held_out.names
    fewer = dataclasses.replace(suite, tasks=names).build(run.config.env, agent).held_out
    return GameTasks(fewer), len(held_out.names) - len(names)


def checked_bot(run: Run, tasks: GameTasks) -> Bot:
    """The bot of the run's environment; ValueError where it has none, or where it cannot play."""
    # Named tasks need not be against the bot: so it is looked for in those that the environment has.
    game, env = tasks.env, run.config.env
    bot = bot_of(game) or bot_of(make_held_out(env, ("benchmark",)).env)
    if bot is None:
        raise ValueError(f"opponents is {BOT}: {type(game).__name__} has none, choose from {RANDOM}, {BANK} or runs")

    def first_action(key: jax.Array) -> Any:
        return bot(key, game, game.reset(key, game.sample_level(key))[0], jnp.zeros((), jnp.int32))

    jax.eval_shape(first_action, jax.random.key(0))
    return bot


def check_bank(run: Run) -> None:
    """ValueError where the run keeps no copies of its students."""
    shape = whole_state(make_runner(run.config), run.config.n_seeds, mesh_of(run.config))
    try:
        bank_in(run, shape.curriculum)
    except ValueError as error:
        raise ValueError(f"opponents is {BANK}: {error}") from None


# ------------------------------------------------------------------------------------------------------------ players


@dataclasses.dataclass
class Players:
    """The agents of runs. Those with networks of one kind are one player, so that they share their programs."""

    greedy: bool
    known: dict[str, Player] = dataclasses.field(default_factory=dict)

    def of(self, config: Config) -> Player:
        kind = repr(to_dict(config)["model"])
        choose = mode if self.greedy else sample
        return self.known.setdefault(kind, Trained(make_agent(config).agent, choose))


def members_of(meeting: Meeting, console: Console) -> list[Member]:
    """Everybody who plays. Reads the checkpoints; CheckpointError where that is impossible."""
    settings, players = meeting.settings, Players(meeting.settings.greedy)
    found: list[Member] = []
    copies: list[Member] = []
    for label, runs in meeting.methods.items():
        for run in runs:
            update, params, curriculum = read(run, console)
            own = seeds_of(label, run, update, params, settings.student, players)
            found += own
            if BANK in meeting.opponents:
                banks = [bank_of_seed(run, curriculum, place) for place in range(len(own))]
                copies += [copy for member, bank in zip(own, banks, strict=True) for copy in copies_of(member, bank)]
    env = meeting.held_out.env
    for word, other in meeting.opponents.items():
        if other is not None:
            update, params, _ = read(other, console)
            found += seeds_of(word, other, update, params, 0, players)
        elif word == RANDOM:
            found.append(Member(Entrant(word, RandomPlayer(env)), word))  # type: ignore[arg-type]
        elif meeting.bot is not None and word == BOT:
            found.append(Member(Entrant(word, Scripted(env, meeting.bot)), word))  # type: ignore[arg-type]
    return [*found, *copies]


def read(run: Run, console: Console) -> tuple[int, Any, Any]:
    """(number of updates, parameters [S, A, ...], what the curriculum remembers) in the run's checkpoint.

    An archive holds nothing of the curriculum: that is None.
    """
    if run.archive is not None:
        return *archived_params(run), None
    restored = restored_state(run)
    for update, why in restored.damaged.items():
        console.print(damage(restored, update, why), soft_wrap=True)
    return restored.update, restored.state.students.evaluated, restored.state.curriculum


def seeds_of(label: str, run: Run, update: int, params: Any, student: int, players: Players) -> list[Member]:
    """A student of each seed of a run."""
    player = players.of(run.config)
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


def pairs_of(members: Sequence[Member]) -> list[Pair]:
    """Who meets whom: everybody those of other groups, and a copy its own student alone."""

    def meet(one: Member, other: Member) -> bool:
        if other.copy is None and one.copy is None:
            return one.group != other.group
        return one.copy_of is other.entrant or other.copy_of is one.entrant

    return [(i, j) for i, j in all_pairs(len(members)) if meet(members[i], members[j])]


# --------------------------------------------------------------------------------------------------------------- play


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
    files = [write_run(meeting, run, members, table) for run in runs]
    for label in meeting.methods:
        console.print(fares_printed(meeting, label, members, table))
    ranking = ranking_of(members, table)
    if ranking is not None:
        console.print(matrix_table(ranking))
        files.append(write_matrix(meeting, members[0].update or 0, ranking))
    for note in notes(meeting):
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
    """The table of one method against everybody."""
    settings = meeting.settings
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} games on each task in each seat"
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
        yield f"{meeting.n_left_out} tasks are left out, which differ from others in the bot alone"
    if strangers:
        yield f"games are in the environment of {meeting.first.name}; {', '.join(strangers)} was trained in another one"


# -------------------------------------------------------------------------------------------------------------- files


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


def write_run(meeting: Meeting, run: Run, members: Sequence[Member], table: CrossTable) -> Path:
    """The new file of a run: a line for each of its seeds, each opponent and each task."""
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
    return write_new(results(run), file_name(meeting, members[mine[0]].update or 0), as_csv(rows))


def write_matrix(meeting: Meeting, update: int, ranking: Ranking) -> Path:
    """The new file of all against all: beside that of the run, or where --out says."""
    settings = meeting.settings
    text = as_csv([row | protocol_columns(settings) for row in matrix_rows(ranking, meeting.tasks)])
    if settings.compares:
        out = Path(settings.out)
        return write_new(out.parent, out.stem, text)
    return write_new(results(meeting.first), f"{file_name(meeting, update)}-matrix", text)
