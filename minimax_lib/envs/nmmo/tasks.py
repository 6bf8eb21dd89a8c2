"""Tasks of agents: tables of a list, the values of goals, and the reward, which is progress."""

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goals import CONSTANT, LEAF, MOST_LEAVES, MOST_LEVEL, OWN, Goal, arguments_of, leader_of
from minimax_lib.envs.nmmo.predicates import ITEM_EVENTS, PREDICATES, SEIZES, TILE_ROW, Numbers
from minimax_lib.envs.nmmo.state import TaskProgress
from minimax_lib.envs.nmmo.tables import EVENTS
from minimax_lib.envs.nmmo.tally import matching
from minimax_lib.envs.nmmo.task_specs import Pay, TaskSpec, specs_called
from minimax_lib.envs.nmmo.teams import NAMES, Teams
from minimax_lib.envs.nmmo.view import Alone, Groups, Members, View

N_PREDICATES = 34  # of the reference
OWN_DOINGS, OF_TEAM = -1, -2  # subjects that are no player
ONGOING, HOLDING = 1, 2  # places in `Pay`: how a task is paid that is not paid its progress
# What divides the numbers of a leaf, so that agents are told of them within 0 and 1.
N_KINDS = {"CountEvent": len(EVENTS)}
AMOUNTS = {"TickGE": 1024, "GainExperience": 1000}
USUAL_KINDS, USUAL_AMOUNT, USUAL_SHARE = 16, 50, 1
WHOLE = 1 - 2.0**-22  # what is computed to be more is 1: weights such as 0.35, 0.45 and 0.2 add up to a little less
MOST_TOLD = 255  # players that agents are told apart, and the names of some


@dataclasses.dataclass(frozen=True, eq=False)
class TaskList:
    """The tasks that there are, by number, as tables."""

    specs: tuple[TaskSpec, ...]
    middle: int  # row and column of the centre tile, which some predicates mean

    def __len__(self) -> int:
        return len(self.specs)

    def name(self, number: int) -> str:
        """What the task is called in files."""
        return self.specs[number].called

    @functools.cached_property
    def leaves(self) -> list[list[Goal]]:
        """The predicates of each task."""
        return [spec.goal.leaves() for spec in self.specs]

    @functools.cached_property
    def n_leaves(self) -> int:
        """L, the most predicates of a task."""
        return max(1, *map(len, self.leaves))

    @functools.cached_property
    def predicates(self) -> list[str]:
        """The predicates that the list names, in the order of `PREDICATES`."""
        named = {leaf.predicate for leaves in self.leaves for leaf in leaves}
        return [name for name in PREDICATES if name in named]

    def predicates_at(self, place: int) -> list[str]:
        """Those that are the leaf of this number in some task."""
        named = {leaves[place].predicate for leaves in self.leaves if place < len(leaves)}
        return [name for name in self.predicates if name in named]

    @property
    def has_own(self) -> bool:
        """Whether a user's predicate is among them."""
        return bool(OWN.intersection(self.predicates))

    @functools.cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        """[M, L] by name: the numbers of all leaves, and which predicate they are (a place in `predicates`)."""
        shape = len(self), self.n_leaves
        found: dict[str, np.ndarray] = {name: np.zeros(shape, np.int32) for name in ("kind", "level", "target")}
        found |= {name: np.zeros(shape, np.float32) for name in ("amount", "share")}
        found["predicate"] = np.full(shape, -1, np.int32)
        for task, leaves in enumerate(self.leaves):
            for place, leaf in enumerate(leaves):
                found["predicate"][task, place] = self.predicates.index(leaf.predicate)
                for name, value in numbers_of(leaf, self.middle).items():
                    if name != "group":
                        found[name][task, place] = value
        return found

    @functools.cached_property
    def groups(self) -> list[list[Any]] | None:
        """[M][L] the players that each leaf means, or the name that means them; None if none of them means any."""
        found: list[list[Any]] = [
            [numbers_of(leaf, self.middle).get("group", ()) for leaf in leaves] + [()] * (self.n_leaves - len(leaves))
            for leaves in self.leaves
        ]
        return found if any(group for task in found for group in task) else None

    @functools.cached_property
    def shapes(self) -> list[Any]:
        """The different shapes of goals."""
        return list(dict.fromkeys(spec.goal.shape() for spec in self.specs))

    @functools.cached_property
    def shape(self) -> np.ndarray:
        """i32[M], of each task's goal: a place in `shapes`."""
        return np.array([self.shapes.index(spec.goal.shape()) for spec in self.specs], np.int32)

    @functools.cached_property
    def constants(self) -> np.ndarray:
        """f32[M, C], the constants of each goal."""
        rows = [spec.goal.constants() for spec in self.specs]
        width = max(map(len, rows))
        return np.array([row + [0.0] * (width - len(row)) for row in rows], np.float32).reshape(len(rows), width)

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """f32[M], the share of each task among those that are drawn."""
        weights = np.array([spec.weight for spec in self.specs], np.float64)
        return (weights / weights.sum()).astype(np.float32)

    @functools.cached_property
    def pay(self) -> dict[str, np.ndarray] | None:
        """[M] by name: how tasks are paid (0: progress), ticks to hold, factor of rewards; None if all is as usual."""
        kind = np.array([get_args(Pay).index(spec.pay) for spec in self.specs], np.int32)
        hold = np.array([spec.hold for spec in self.specs], np.int32)
        factor = np.array([spec.reward for spec in self.specs], np.float32)
        return {"kind": kind, "hold": hold, "factor": factor} if kind.any() or (factor != 1).any() else None

    @functools.cached_property
    def subjects(self) -> np.ndarray | None:
        """i32[M], the player whose doings count, `OWN_DOINGS` or `OF_TEAM`; None if all count their player's own."""

        def of(spec: TaskSpec) -> int:
            if isinstance(spec.subject, int):
                return spec.subject - 1
            return OWN_DOINGS if spec.subject is None else OF_TEAM

        subjects = np.array([of(spec) for spec in self.specs], np.int32)
        return subjects if (subjects != OWN_DOINGS).any() else None

    @functools.cached_property
    def names(self) -> set[str]:
        """The names by which tasks call players of teams."""
        of_groups = {group for task in self.groups or [] for group in task if isinstance(group, str)}
        targets = self.numbers["target"][self.numbers["target"] < 0].tolist()
        return of_groups | {leader_of(target) for target in targets}

    @property
    def needs_teams(self) -> bool:
        """Whether some task is about teams."""
        return bool(self.names) or (self.subjects is not None and bool((self.subjects == OF_TEAM).any()))

    @functools.cached_property
    def seizes(self) -> np.ndarray:
        """i32[Z], the tiles that are to be seized, row and column as one number."""
        is_tile = np.isin(self.numbers["predicate"], [k for k, x in enumerate(self.predicates) if x in SEIZES])
        return np.unique(self.numbers["target"][is_tile])

    @functools.cached_property
    def patches(self) -> np.ndarray:
        """i32[Y], the tiles in a patch of grass, as `seizes`: those, and the centre if it is to be reached. It may be
        water or stone otherwise, and nobody could."""
        centre = [self.middle * TILE_ROW + self.middle] if "ProgressTowardCenter" in self.predicates else []
        return np.union1d(self.seizes, np.array(centre, np.int32)).astype(np.int32)

    @functools.cached_property
    def features(self) -> np.ndarray:
        """f32[M, 24] in [0, 1], what an agent is told of its task: of four leaves the predicate, kind, level, amount,
        second amount and target. Of a tile, its row and column stand in the places of kind and level."""
        rows = np.zeros((len(self), MOST_LEAVES, 6))
        names = list(PREDICATES)
        for task, leaves in enumerate(self.leaves):
            for place, leaf in enumerate(leaves):
                name, own = leaf.predicate, numbers_of(leaf, self.middle)
                tile = tile_of(name, own)
                kind = (own["kind"] + 1) / N_KINDS.get(name, USUAL_KINDS) if "kind" in own else 0
                level = own.get("level", 0) / MOST_LEVEL
                rows[task, place] = [
                    min((names.index(name) + 1) / N_PREDICATES, 1),
                    *((kind, level) if tile is None else (x / (2 * self.middle) for x in tile)),
                    own.get("amount", 0) / AMOUNTS.get(name, USUAL_AMOUNT),
                    own.get("share", 0) / USUAL_SHARE,
                    0 if tile else told_players(own),
                ]
        return np.clip(rows, 0, 1).astype(np.float32).reshape(len(self), -1)

    @functools.cached_property
    def forms(self) -> np.ndarray:
        """f32[M, 2] in [0, 1], what an agent is told of its task beside the leaves: how they are joined, and how the
        task is paid. Both are the same in every list, and 0 for one predicate that is paid its progress."""
        joined = [told_form(spec) / 2**32 for spec in self.specs]
        paid = [get_args(Pay).index(spec.pay) / 2 for spec in self.specs]
        return np.stack([np.array(joined), paid], axis=1).astype(np.float32)


def told_form(spec: TaskSpec) -> int:
    """A number below 2^32 for how the leaves of a task are joined, which users' predicates they are, and whose doings
    count; 0 for one predicate of the game and the player's own doings."""
    shape, own = spec.goal.shape(), [leaf.predicate for leaf in spec.goal.leaves() if leaf.predicate in OWN]
    if not own and spec.subject is None:
        return 0 if shape == LEAF else zlib.crc32(repr(shape).encode())
    return zlib.crc32(repr((shape, own, spec.subject)).encode())


def tile_of(name: str, own: dict[str, Any]) -> tuple[int, int] | None:
    """(row, column) of the tile that a leaf means by its numbers; None if it means none."""
    if name in SEIZES:
        return divmod(own["target"], TILE_ROW)
    return (own["kind"], own["level"]) if name == "OccupyTile" else None


def told_players(own: dict[str, Any]) -> float:
    """What an agent is told of the players that a leaf means, from 0 (none) to 1.

    A player is told by its number. Of several players, the first one is told. Names such as `all_foes` are told by
    the highest values.
    """
    meant = own.get("target", own.get("group", ()))
    first = meant[0] if isinstance(meant, tuple) and meant else meant
    if first == ():
        return 0.0
    if isinstance(first, int) and first >= 0:
        return min(first + 1, MOST_TOLD - len(NAMES)) / MOST_TOLD
    return (MOST_TOLD - NAMES.index(first if isinstance(first, str) else leader_of(first))) / MOST_TOLD


def numbers_of(leaf: Goal, middle: int) -> dict[str, Any]:
    """The numbers of a leaf by name."""
    known = arguments_of(leaf.predicate)
    found = {known[name][0]: known[name][1](value) for name, value in leaf.arguments}
    if leaf.predicate in SEIZES:
        row, column, share = _seized(leaf.predicate, found, middle)
        found = {"amount": found["amount"], "target": row * TILE_ROW + column, "share": share}
    return found


def _seized(name: str, found: dict[str, Any], middle: int) -> tuple[int, int, float]:
    """(row, column, what coming near pays) of a tile to be seized."""
    if name == "SeizeTile":
        return found["level"], found["kind"], 0.4
    if name == "SeizeCenter":
        return middle, middle, 0.3
    quarter = (middle - 16) // 2
    down, across = ((1, 1), (-1, 1), (-1, -1), (1, -1))[found["kind"]]
    return middle + down * quarter, middle + across * quarter, 0.3


@functools.cache
def tables_of(specs: tuple[TaskSpec, ...], middle: int) -> TaskList:
    """The tables of these tasks."""
    return TaskList(specs, middle)


def task_list(task_set: str, horizon: int, middle: int) -> TaskList:
    """The tasks of this name (see `task_specs.specs_called`); ValueError for a name that is none."""
    return tables_of(specs_called(task_set, horizon, middle), middle)


# ------------------------------------------------------------------------------------------------------------ values


def members_of(tasks: TaskList, numbers: jax.Array, teams: Teams | None = None) -> Members:
    """Whose doings count for each player's task (i32[P])."""
    if tasks.subjects is None:
        return Alone()
    subject, player = jnp.asarray(tasks.subjects)[numbers], jnp.arange(len(numbers), dtype=jnp.int32)
    who = jnp.where(subject >= 0, subject, player)
    if teams is None or not (tasks.subjects == OF_TEAM).any():
        return Alone(who)
    return Groups(jnp.where((subject == OF_TEAM)[:, None], teams.named("my_team"), who[:, None] == player[None, :]))


def leaf_numbers(
    tasks: TaskList, numbers: jax.Array, place: int, n_players: int, teams: Teams | None = None
) -> tuple[jax.Array, Numbers]:
    """(i32[n] the predicate, its numbers) of one leaf of each of these tasks (i32[n]; with teams, i32[P])."""
    table = {name: jnp.asarray(x[:, place])[numbers] for name, x in tasks.numbers.items()}
    mask = np.zeros((len(tasks), n_players) if tasks.groups else (1, n_players), bool)
    of_task = [leaves[place] for leaves in tasks.groups or []]
    for task, players in enumerate(of_task):
        if not isinstance(players, str):
            mask[task, [player for player in players if player < n_players]] = True
    group = jnp.asarray(mask)[numbers if tasks.groups else jnp.zeros_like(numbers)]
    for name in sorted({players for players in of_task if isinstance(players, str)}) if teams else ():
        here = jnp.asarray([players == name for players in of_task])[numbers]
        group = jnp.where(here[:, None], teams.named(name)[:, :n_players], group)  # type: ignore[union-attr]
    for code in np.unique(tasks.numbers["target"][:, place]).tolist():
        if code < 0 and teams:
            leader = jnp.asarray(teams.named(leader_of(code)).argmax(axis=1).astype(np.int32))
            table["target"] = jnp.where(table["target"] == code, leader, table["target"])
    predicate = table.pop("predicate")
    return predicate, Numbers(**table, group=group, counted=jnp.zeros_like(predicate))


def values(
    tasks: TaskList,
    numbers: jax.Array,
    view: View,
    members: Members,
    parts: jax.Array | None = None,
    teams: Teams | None = None,
) -> jax.Array:
    """f32[n] in [0, 1], how far the goals of these tasks (i32[n]) have come for their members.

    `parts` is i32[n, L], see `Tally`.
    """
    leaves = []
    for place in range(tasks.n_leaves):
        predicate, own = leaf_numbers(tasks, numbers, place, len(view.alive), teams)
        if parts is not None:
            own = own.replace(counted=parts[:, place])
        value = jnp.zeros(len(numbers), jnp.float32)
        for name in tasks.predicates_at(place):
            here = predicate == tasks.predicates.index(name)
            value = jnp.where(here, PREDICATES[name](view, members, own), value)
        leaves.append(value)
    constants = jnp.asarray(tasks.constants)[numbers]
    found = jnp.zeros(len(numbers), jnp.float32)
    for number, shape in enumerate(tasks.shapes):
        of_shape = combined(shape, list(leaves), [constants[:, k] for k in range(constants.shape[1])])
        found = (
            of_shape
            if len(tasks.shapes) == 1
            else jnp.where(jnp.asarray(tasks.shape)[numbers] == number, of_shape, found)
        )
    return jnp.clip(found, 0.0, 1.0)


def combined(shape: Any, leaves: list[jax.Array], constants: list[jax.Array]) -> jax.Array:
    """The value of a goal of this shape. Takes what it needs from the front of `leaves` and `constants`."""
    if shape == LEAF:
        return leaves.pop(0)
    if shape == CONSTANT:
        return constants.pop(0)
    op, parts = shape[0], [combined(part, leaves, constants) for part in shape[1:]]
    if op == "NOT":
        return 1.0 - parts[0]
    join = {"AND": jnp.minimum, "OR": jnp.maximum, "ADD": jnp.add, "SUB": jnp.subtract, "MUL": jnp.multiply}[op]
    value = functools.reduce(join, parts)
    return value if op in ("AND", "OR") else jnp.clip(jnp.where(value > WHOLE, 1.0, value), 0.0, 1.0)


def parts_after(
    tasks: TaskList, numbers: jax.Array, parts: jax.Array, happened: Sequence[Happened], teams: Teams | None = None
) -> jax.Array:
    """i32[P, L], the sums of item events of each leaf (`Tally.parts`) after the events of a tick."""
    members = members_of(tasks, numbers, teams)
    columns = []
    for place in range(tasks.n_leaves):
        predicate, own = leaf_numbers(tasks, numbers, place, 1)
        more = jnp.zeros_like(predicate)
        for name in tasks.predicates_at(place):
            if name in ITEM_EVENTS:
                gained = matching(happened, ITEM_EVENTS[name], own.kind, own.level, members)
                more = jnp.where(predicate == tasks.predicates.index(name), gained, more)
        columns.append(more)
    return parts + jnp.stack(columns, axis=1)


# ------------------------------------------------------------------------------------------------------------ reward


def scored(
    score: TaskProgress, value: jax.Array, playing: jax.Array, pay: dict[str, jax.Array] | None = None
) -> tuple[TaskProgress, jax.Array]:
    """(the score, f32[P] the reward) of those who played in this tick (bool[P]), whose goals are at `value`.

    A task pays its progress until it reaches 1. After that its value is not looked at again. `pay` says how others are
    paid, [P] by name as `TaskList.pay`.
    """
    counts = playing & ~score.completed
    if pay is None:
        reward = jnp.where(counts, value - score.value, 0.0)
        return score.replace(
            value=jnp.where(counts, value, score.value),
            best=jnp.where(counts, jnp.maximum(score.best, value), score.best),
            completed=score.completed | (counts & (value >= 1)),
        ), reward
    ongoing, holding = pay["kind"] == ONGOING, pay["kind"] == HOLDING
    timer = jnp.where(counts, jnp.where(value >= 1, score.timer + 1, 0), score.timer)
    value = jnp.where(holding, jnp.minimum(timer / pay["hold"], 1.0), value)
    done = value >= 1
    counts |= playing & ongoing
    reward = jnp.where(ongoing, value, jnp.where(holding & done, 1.0, value - score.value))
    return TaskProgress(
        value=jnp.where(counts, value, score.value),
        best=jnp.where(counts, jnp.maximum(score.best, value), score.best),
        completed=score.completed | (counts & done),
        timer=timer,
    ), jnp.where(counts, pay["factor"] * reward, 0.0)
