"""Worlds of many agents whose seats several policies share, as in the competition of NeurIPS 2023 (PvP).

found = gathered(env, ["mine", "random"], [Trained(agent), RandomPlayer(env)], key, [(params, ())], levels)
found.mean("length")[0]                             levels are [M, E, ...], one for each held-out task and world
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from rich.table import Table

from minimax_lib.envs.base import Level
from minimax_lib.envs.multi_agent import SURVIVED, MultiAgentEnvironment
from minimax_lib.evaluation.agent_tables import points
from minimax_lib.evaluation.matches import CrossTable
from minimax_lib.evaluation.tables import OTHERS, SOLVED, Scores, agent_scores, percent
from minimax_lib.playing.crowds import Crowd
from minimax_lib.playing.episodes import Played
from minimax_lib.playing.players import Player, SharedSeats

LIVES = "lives"
WON = "won"


@dataclasses.dataclass(frozen=True)
class Standings:
    """The lives of K players in worlds that they share: E worlds on each of M held-out tasks, with G seats.

    E is that of all rounds together, one after another. All rounds are on the same levels, in the same order.
    """

    players: tuple[str, ...]
    tasks: tuple[str, ...]
    owner: np.ndarray  # i32[M, E, G], whose seat it was
    measures: dict[str, np.ndarray]  # f32[M, E, G], of each life
    of_agents: np.ndarray | None = None  # i32[M, E, G], which task the agent had, where each has its own
    rounds: int = 1

    @property
    def by_world(self) -> dict[str, np.ndarray]:
        """f64[K, M, E] by measure, the mean over a player's lives in each world; with teams, also whether it `won`."""
        mine = np.stack([self.owner == k for k in range(len(self.players))])
        found = {name: (mine * x).sum(axis=-1) / mine.sum(axis=-1) for name, x in self.measures.items()}
        if f"facts/{SURVIVED}" in found:
            lives = found[f"facts/{SURVIVED}"] > 0
            found[WON] = (lives & (lives.sum(axis=0) == 1)).astype(np.float64)
        return found

    @property
    def rule(self) -> str:
        """Who wins a world."""
        return "the last player with a living team" if WON in self.by_world else "the higher mean return"

    def mean(self, measure: str) -> tuple[np.ndarray, np.ndarray]:
        """(f64[K], f64[K]), the mean over all worlds, and its standard error.

        The error is that of other worlds on the same tasks, as in `world_intervals`. It is NaN where a round has a
        single world on each task.
        """
        each = self.by_world[measure]  # [K, M, E]
        # Worlds on one level are alike. To count them as if each had its own would make the error too small.
        each = each.reshape(*each.shape[:2], self.rounds, -1).mean(axis=2)
        n_tasks, n = each.shape[1:]
        # Tasks are not drawn anew: that they differ is no error of the mean over them.
        of_task = each.var(axis=2, ddof=1) / n if n > 1 else np.full(each.shape[:2], np.nan)
        return each.mean(axis=(1, 2)), np.sqrt(of_task.sum(axis=1)) / n_tasks

    @property
    def decides(self) -> np.ndarray:
        """f64[K, M, E], by which `rule` says who has won a world."""
        found = self.by_world
        return found.get(WON, found["return"])

    @property
    def games(self) -> CrossTable:
        """Each two players: who has won a world says `rule`. If neither has, it is a draw."""
        worlds = self.measures["length"].max(axis=-1).sum(axis=1)
        decides, n = self.decides, len(self.players)
        won, drawn = (f(decides[:, None], decides).sum(axis=-1) for f in (np.greater, np.equal))
        drawn[np.diag_indices(n)] = 0
        steps = np.broadcast_to(worlds, drawn.shape) * (1 - np.eye(n))[..., None]
        return CrossTable(self.players, won, drawn, steps.astype(np.int64))

    def scores(self, player: int, name_of: Callable[[int], str]) -> Scores:
        """A player's lives by the tasks that its agents had; `name_of` names them."""
        assert self.of_agents is not None
        n, mine = int(self.of_agents.max()) + 1, self.owner == player
        lives = {LIVES: np.ones(mine.shape)} | self.measures
        sums = {name: np.zeros((1, len(self.tasks), n)) for name in lives}
        for name, x in lives.items():
            for m in range(len(self.tasks)):
                np.add.at(sums[name][0, m], self.of_agents[m][mine[m]], x[m][mine[m]])
        return agent_scores(self.tasks, (0,), sums, name_of)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each player and held-out task, for a file."""
        for k, player in enumerate(self.players):
            for m, task in enumerate(self.tasks):
                mine = self.owner[m] == k
                found = {name: float(x[k, m].mean()) for name, x in self.by_world.items()}
                yield {"player": player, "task": task, "worlds": mine.shape[0], LIVES: int(mine.sum())} | found


def gathered(
    env: Any,  # a `MultiAgentEnvironment`
    names: Sequence[str],
    players: Sequence[Player],
    key: jax.Array,
    params: Iterable[tuple[Any, ...]],
    levels: Level,
    tasks: Sequence[str] = ("",),
) -> Standings:
    """The lives in worlds on `levels` [M, E, ...]: for each of `params`, which has those of each player, all of them.

    In every world, the seats are dealt out anew among all players, in equal parts, and whole teams together.
    """
    shape = jax.tree.leaves(levels)[0].shape[:2]
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), levels)
    shared = SharedSeats(tuple(players), env.team_size)
    found = [lives(env, shared, jax.random.fold_in(key, i), own, rows) for i, own in enumerate(params)]
    played, owner, agents = jax.tree.map(
        lambda *xs: np.concatenate([np.asarray(x).reshape(*shape, -1) for x in xs], axis=1), *found
    )
    measures = {"solved_rate": played.solved, "return": played.returns, "length": played.lengths}
    measures |= {"progress": played.progress} if env.tasks_of else {}
    measures |= {f"facts/{name}": x for name, x in played.facts.items()}
    has_tasks = env.tasks_of is not None and env.n_tasks > 1
    return Standings(tuple(names), tuple(tasks), owner, measures, agents if has_tasks else None, len(found))


@functools.partial(jax.jit, static_argnums=(0, 1))
def lives(
    env: MultiAgentEnvironment, shared: SharedSeats, key: jax.Array, params: Any, levels: Level
) -> tuple[Played, jax.Array, jax.Array]:
    """(the lives [R, G] in a world on each of `levels` [R, ...], whose they are, the tasks that the agents had)."""
    world = Crowd(env, shared).ended(key, params, levels)
    owner = jax.vmap(shared.owners)(world.carry)
    return world.lives, owner, jax.vmap(env.tasks_of)(levels) if env.tasks_of else owner


def standings_table(title: str, found: Standings) -> Table:
    """A row for each player, the best one first: solved rate, and return and life where they were measured."""
    n = found.owner.shape[0] * found.owner.shape[1]
    caption = f"{n} worlds, whose seats are dealt out anew in each; ± is the standard error over worlds of a task"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("player", overflow="fold")  # checkpoints of one run have names that differ at the end
    headings = {"solved_rate": SOLVED, WON: "worlds\nwon"} | OTHERS
    means = {name: found.mean(name) for name in headings if name in found.by_world}
    for name in means:
        table.add_column(headings[name], justify="right")
    for k in np.argsort(-means["return"][0], kind="stable"):
        cells = []
        for name, (mean, error) in means.items():
            in_percent = name in ("solved_rate", WON)
            cells.append(f"{percent(mean[k])} ± {100 * error[k]:.1f}" if in_percent else with_error(mean[k], error[k]))
        table.add_row(found.players[k], *cells)
    return table


def with_error(mean: float, error: float) -> str:
    """A mean and its standard error, for a cell."""
    digits = 3 if abs(mean) < 10 else 1
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def points_table(found: Standings, name_of: Callable[[int], str], kind_of: Callable[[int], str]) -> Table:
    """A column for each player: its `points` by kind of the agents' tasks, of 100 together.

    Kinds are those of all players. Where a player's agents had no task of a kind, its points and their sum are unknown.
    """
    assert found.of_agents is not None
    table = Table("kind", title="Points by kinds of tasks, which have equal parts of 100", title_justify="left")
    kinds = {name_of(number): kind_of(number) for number in np.unique(found.of_agents).tolist()}
    all_kinds = tuple(dict.fromkeys(kinds.values()))
    columns = []
    for k, player in enumerate(found.players):
        scores = found.scores(k, name_of)
        of_task = {task: kinds[task.split("/", 1)[1]] for task in scores.tasks}
        columns.append({kind: own[0] for kind, own in points(of_task, scores, len(all_kinds)).items()})
        table.add_column(player, justify="right", overflow="fold")
    for kind in all_kinds:
        table.add_row(kind, *(f"{column[kind]:.1f}" if kind in column else "-" for column in columns))
    table.add_section()
    known = [len(column) == len(all_kinds) for column in columns]
    if not all(known):
        table.caption, table.caption_justify = "-: its agents had no task of this kind; more worlds help", "left"
    sums = (f"{sum(column.values()):.1f}" if ok else "-" for column, ok in zip(columns, known, strict=True))
    table.add_row("all", *sums, style="bold")
    return table
