"""What runs that meet opponents will play: the settings, checked before anything is read or played."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.config.evaluate import BANK, BOT, RANDOM, EvaluateSettings
from minimax_lib.config.shipped import located_run, shipped_agents
from minimax_lib.envs.against import Against, Bot, random_bot
from minimax_lib.envs.base import HeldOut
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.matches import SEATS, GameTasks, most_env_steps
from minimax_lib.messages import shown
from minimax_lib.playing.players import bot_of
from minimax_lib.registry import unknown_name
from minimax_lib.runners.build import make_agent, mesh_of, runner_for
from minimax_lib.runners.devices import whole_state
from minimax_lib.runners.memory import check_task_memory
from minimax_lib.store.archive import archived
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunFolder, no_such_run
from minimax_lib.store.kept_copies import bank_in
from minimax_lib.store.saved import Run, as_trained, find_run


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Methods, each with the runs that are its seeds, and opponents. All of it has been checked."""

    settings: EvaluateSettings
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

    @property
    def shares_worlds(self) -> bool:
        """All players share the seats of a world. Otherwise each two of them play a game for two."""
        return self.held_out.env.n_agents > SEATS

    def env_steps(self, n_pairs: int) -> int:
        """Environment steps that the games of `n_pairs` pairs take at most, or all worlds played so often."""
        env: Any = self.held_out.env
        if self.shares_worlds:
            return n_pairs * len(self.tasks) * self.settings.episodes * env.max_steps * env.n_agents
        return most_env_steps(env, n_pairs, len(self.tasks), self.settings.episodes)


def planned(settings: EvaluateSettings, groups: Mapping[str, Sequence[Run]]) -> Meeting:
    """The meeting that the settings ask for; ValueError in one line where it is impossible. Nothing is played."""
    methods = {label or label_of(runs): runs for label, runs in groups.items()}
    opponents = {word: opponent(word, settings) for word in settings.opponents}
    runs = [run for members in methods.values() for run in members]
    env = runs[0].config.env
    check_seats(env, methods, opponents)
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
    n_rounds = max(sum(len(run.seeds) for run in members) for members in methods.values())
    least = meeting.env_steps(n_rounds if meeting.shares_worlds else 1)
    if least > settings.most_steps:
        what = "all worlds" if meeting.shares_worlds else "the games of one pair alone"
        raise ValueError(
            f"most_steps is {settings.most_steps:,}: {what} may take {least:,} environment steps; a smaller n_episodes "
            "or fewer tasks take less"
        )
    return meeting


def check_seats(env: Any, methods: Mapping[str, Any], opponents: Mapping[str, Any]) -> None:
    """ValueError where there is no other seat, or where an opponent cannot sit there."""
    name, n = type(env).__name__, env.n_agents
    if not env.multi_agent or n < SEATS:
        raise ValueError(f"{name} has {n} agent: opponents need a game for 2 or more, such as LaserTag or NMMO")
    if n > SEATS:
        if BANK in opponents and len(methods) > 1:
            raise ValueError(
                f"opponents is {BANK}: where all share the seats, as in {name}, it goes with one method, and there are "
                f"{len(methods)}"
            )
        n_players, what = len(methods) + len(opponents), "seats" if env.team_size == 1 else "teams"
        if n_players > rooms(env):
            raise ValueError(f"there are {n_players} players, and {name} has {rooms(env)} {what}: leave some out")


def rooms(env: Any) -> int:
    """The most players that can share the seats of a world."""
    return env.n_agents // env.team_size


def label_of(runs: Sequence[Run]) -> str:
    """What runs that are pooled as seeds are called."""
    return runs[0].name if len(runs) == 1 else f"{runs[0].name} and {len(runs) - 1} more"


def opponent(word: str, settings: EvaluateSettings) -> Run | None:
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
    kinds = {"n_agents": "number of agents", "observation_space": "observation space", "action_space": "action space"}
    for what, words in kinds.items():
        one, other = getattr(first.config.env, what), getattr(run.config.env, what)
        if one != other:
            raise ValueError(f"{first.name} and {run.name} cannot play together: {words} is {one} and {other}")


def check_not_evaluated(word: str, run: Run | None, methods: Mapping[str, Sequence[Run]]) -> None:
    """ValueError where the opponent is one of the players already, or only called like one."""
    mine = {(own.folder.path.resolve(), own.update) for runs in methods.values() for own in runs}
    if word in methods or (run and (run.folder.path.resolve(), run.update) in mine):
        raise ValueError(f"opponents is {shown(word)}, which is evaluated itself: name another one")


def game_tasks(settings: EvaluateSettings, run: Run) -> tuple[GameTasks, int]:
    """(the held-out tasks that the settings name, as levels of the run's game; how many of them are left out).

    Some tasks may be played against different bots. Here the opponents say who plays, so that those against the random
    bot are enough; without such tasks, all are played.
    """
    suite, agent = settings.suite_of(run.config), make_agent(run.config).agent
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
    shape = whole_state(runner_for(as_trained(run.config)), run.config.n_seeds, mesh_of(run.config))
    try:
        bank_in(run, shape.curriculum)
    except ValueError as error:
        raise ValueError(f"opponents is {BANK}: {error}") from None
