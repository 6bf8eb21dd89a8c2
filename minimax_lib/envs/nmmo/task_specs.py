"""Tasks as their users write them: a goal, how it is paid, and how often it is drawn. Lists of them by name."""

import contextlib
import dataclasses
import functools
import math
import warnings
import zlib
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import yaml

from minimax_lib.envs.nmmo.goals import MOST, MOST_LEAVES, OPERATORS, OWN, Goal, as_goal, predicate
from minimax_lib.envs.nmmo.predicates import PREDICATES, Members, Numbers, View
from minimax_lib.envs.nmmo.tables import ITEMS, SKILLS, published_tasks
from minimax_lib.envs.nmmo.view import Alone
from minimax_lib.files import UnreadableFile, read_text
from minimax_lib.messages import shown
from minimax_lib.registry import check_name, unknown_name

Pay = Literal["Task", "OngoingTask", "HoldDurationTask"]
MOST_TASKS = 100_000
FILES = (".yaml", ".yml")
TEAM: Literal["team"] = "team"  # a subject
STAGE_FAMILIES = (
    "TickGE",
    "EAT_FOOD",
    "DRINK_WATER",
    "HARVEST_ITEM",
    "GO_FARTHEST",
    "LEVEL_UP",
    "EQUIP_ITEM",
    "CONSUME_ITEM",
    "BUY_ITEM",
    "PLAYER_KILL",
)
# Sullivan et al. (2025), E.6: what each family asks for in the stages 1 to 5, its unit times 1, 3, 5, 7, 10.
STAGE_FACTORS = (1, 3, 5, 7, 10)
STAGE_UNITS = (50, 5, 5, 3, 3, 2, 1, 1, 1, 1)
# Categories of the competition and how many tasks of the list each has, in its order.
COMPETITION = {"survival": 1, "combat": 3, "exploration": 2, "skill": 8, "item": 44, "market": 5}
MIDDLE = 80  # row and column of the centre tile of the medium map, of which the published lists speak


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A task. `goal` is made of predicates: `TaskSpec(predicate("TickGE", num_tick=100) & ~predicate("AllDead"))`."""

    goal: Goal
    pay: Pay = "Task"
    """How it is paid. Task: its progress, until it is completed. OngoingTask: the goal's value in every tick.
    HoldDurationTask: the progress of holding the goal at 1 for `hold` ticks."""
    hold: int = 1
    """Ticks for which the goal of a HoldDurationTask must stay at 1."""
    reward: float = 1.0
    """Multiplies what is paid."""
    weight: float = 1.0
    """How often it is drawn, relative to the others of the list."""
    subject: int | Literal["team"] | None = None
    """Whose doings count: a player's, from 1 on, or those of all players of the team. None: those of the player whose
    task it is, who is paid in any case."""
    name: str = ""
    """What it is called in files; empty: by its goal."""
    kind: str = ""
    """Tables of results have a mean for each kind; empty: the predicates of its goal."""

    def __post_init__(self) -> None:
        if not isinstance(self.goal, Goal):
            raise ValueError(f"goal={shown(self.goal)}: it must be made of predicates")
        if self.pay not in get_args(Pay):
            raise unknown_name("pay", self.pay, get_args(Pay))
        if self.subject not in (None, TEAM) and (isinstance(self.subject, bool) or not isinstance(self.subject, int)):
            raise ValueError(f"subject={shown(self.subject)}: it must be {TEAM}, or the number of a player")
        if isinstance(self.subject, int) and self.subject < 1:
            raise ValueError(f"subject={self.subject}: players are numbered from 1 on")
        if isinstance(self.hold, bool) or not isinstance(self.hold, Integral) or not 1 <= self.hold < 2**31:
            raise ValueError(f"hold={shown(self.hold)}: it must be a whole number of at least 1, and below {2**31}")
        for name in ("weight", "reward"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, Real):
                raise ValueError(f"{name}={shown(value)}: it must be a number")
        if not 0 <= self.weight < math.inf:
            raise ValueError(f"weight={self.weight}: it must be finite, and not negative")
        if not abs(self.reward) <= MOST:
            raise ValueError(f"reward={self.reward}: it must be within -{MOST:g} and {MOST:g}")
        for name in ("name", "kind"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name}={shown(value)}: it must be a text")
        if len(self.goal.leaves()) > MOST_LEAVES:
            raise ValueError(f"{self.goal.name}: a task has at most {MOST_LEAVES} predicates")

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or self.goal.name

    @property
    def sort(self) -> str:
        """Its kind."""
        return self.kind or "+".join(dict.fromkeys(leaf.predicate for leaf in self.goal.leaves()))


OWN_LISTS: dict[str, tuple[TaskSpec, ...]] = {}


FUNCTIONS: dict[str, Any] = {}  # users' predicates, as they were registered


def register_task_list(name: str, specs: Sequence[TaskSpec]) -> None:
    """Makes a list of tasks available as `--env.task-set NAME`.

    Environments are equal by the names of their lists. So ValueError where the name stands for other tasks already.
    """
    check_name("list of tasks", name)
    if name in LISTS:
        raise ValueError(f"the list of tasks {name!r} is one of the package: choose another name")
    listed = tuple(specs)
    check_list(f"the list of tasks {name!r}", listed)
    if OWN_LISTS.get(name, listed) != listed:
        raise ValueError(f"the list of tasks {name!r} is registered with other tasks: choose another name")
    OWN_LISTS[name] = listed
    specs_called.cache_clear()


def check_list(what: str, specs: Sequence[TaskSpec]) -> None:
    """ValueError where no task can be drawn of a list, which messages call `what`."""
    if not specs:
        raise ValueError(f"{what} is empty: it must have a task")
    for number, spec in enumerate(specs):
        if not isinstance(spec, TaskSpec):
            raise ValueError(f"{what}: task {number} is {shown(spec)}: it must be a TaskSpec, such as TaskSpec(goal)")
    if not any(spec.weight for spec in specs):
        raise ValueError(f"{what}: all weights are 0: one must be above 0")
    first: dict[str, int] = {}  # tables and files tell tasks apart by their names
    for number, spec in enumerate(specs):
        if first.setdefault(spec.called, number) != number:
            both = f"the tasks {first[spec.called]} and {number} are called {spec.called}"
            raise ValueError(f"{what}: {both}: give one of them another name")


def register_predicate(name: str, function: Any) -> None:
    """Makes a predicate of your own available to tasks.

    `function(view, group, numbers)` gives how far the players of `group` (bool[P]) have come, f32[], which is clipped
    to 0 and 1. `view` is a `View`. `numbers` has what a task says: kind, level, amount, share and target, all [].
    It can be compiled by JAX. It costs something only if a task of the list names it. ValueError where the name stands
    for another function already. One with the same code is the same, so a cell of a notebook can run again.
    """
    check_name("predicate", name)
    if name in PREDICATES and name not in OWN:
        raise ValueError(f"{name!r} is a predicate of the game: choose another name")
    if name in FUNCTIONS:
        if not _has_code_of(FUNCTIONS[name], function):
            raise ValueError(f"the predicate {name!r} is registered with another function: choose another name")
        return

    def of_all(view: View, members: Members, numbers: Numbers) -> jax.Array:
        n_players = len(view.alive)
        if isinstance(members, Alone):
            who = jnp.arange(n_players, dtype=jnp.int32) if members.who is None else members.who
            mask = who[:, None] == jnp.arange(n_players, dtype=jnp.int32)[None, :]
        else:
            mask = members.mask  # type: ignore[attr-defined]
        value = jax.vmap(function, (None, 0, 0))(view, mask, numbers)
        return jnp.clip(value, 0.0, 1.0).astype(jnp.float32)

    PREDICATES[name] = of_all
    OWN.add(name)
    FUNCTIONS[name] = function


def _has_code_of(one: Any, other: Any) -> bool:
    """Whether two functions are the same, or have the same code and nothing that it depends on."""
    if one is other:
        return True
    code, theirs = getattr(one, "__code__", None), getattr(other, "__code__", None)
    parts = [getattr(f, name, None) for f in (one, other) for name in ("__closure__", "__defaults__", "__kwdefaults__")]
    return code is not None and code == theirs and not any(parts)


# ------------------------------------------------------------------------------------------------------------- lists


def _survive(horizon: int, middle: int) -> list[TaskSpec]:
    return [TaskSpec(predicate("TickGE", num_tick=horizon))]


def _team_battle(horizon: int, middle: int) -> list[TaskSpec]:
    """The reference's Team Battle: be the last team, or live until the horizon."""
    last = predicate("CheckAgentStatus", target="all_foes", status="dead")
    return [TaskSpec(_ticks(horizon) | last, subject=TEAM, name="team_battle")]


def _protect_the_king(horizon: int, middle: int) -> list[TaskSpec]:
    """The reference's Protect the King: the team's leader lives until the horizon."""
    guarded = predicate("ProtectLeader", target_protect="my_team_leader", target_destroy="all_foe_leaders")
    return [TaskSpec(guarded, subject=TEAM, name="protect_the_king")]


def _race_to_center(horizon: int, middle: int) -> list[TaskSpec]:
    """The task of the reference's Race to the Center."""
    return [TaskSpec(predicate("ProgressTowardCenter"), name="race_to_center")]


def _stages(horizon: int, middle: int) -> list[TaskSpec]:
    found = []
    for factor in STAGE_FACTORS:
        for family, unit in zip(STAGE_FAMILIES, STAGE_UNITS, strict=True):
            found.append(TaskSpec(_ticks(factor * unit) if family == "TickGE" else _events(family, factor * unit)))
    return found


def _stage(stage: int, horizon: int, middle: int) -> list[TaskSpec]:
    """The ten tasks of a stage, which is counted from 1."""
    n = len(STAGE_FAMILIES)
    return _stages(horizon, middle)[n * (stage - 1) : n * stage]


def _ticks(n: int) -> Goal:
    return predicate("TickGE", num_tick=n)


def _events(event: str, n: int) -> Goal:
    return predicate("CountEvent", event=event, N=n)


def _recorded(part: str, middle: int) -> list[TaskSpec]:
    """A list of the competition's baseline. What it says of the centre of its map is about that of this one."""
    tables = published_tasks()
    found = []
    for name, arguments, weight in tables[part]:
        if name == "PracticeSkillWithTool":
            tool = tables["tool_of_skill"][arguments["skill"]]
            wears = predicate("EquipItem", item=tool, level=1)
            learns = predicate("GainExperience", skill=arguments["skill"], experience=arguments["exp"])
            goal = wears * 0.3 + learns * 0.7
        elif name == "PracticeInventoryManagement":
            goal = predicate("InventorySpaceGE", space=arguments["space"]) * _ticks(arguments["num_tick"])
        elif name == "OccupyTile":
            goal = predicate(name, row=middle, col=middle)
        else:
            goal = predicate(name, **arguments)
        found.append(TaskSpec(goal, weight=weight))
    return found


def _competition(horizon: int, middle: int) -> list[TaskSpec]:
    """The 63 held-out tasks of NeurIPS 2023, in the order of the categories of `COMPETITION`."""
    two = (1, 3)
    goals = [_ticks(1024), _events("PLAYER_KILL", 20)]
    goals += [predicate("DefeatEntity", agent_type="npc", level=level, num_agent=20) for level in two]
    goals += [_events("GO_FARTHEST", 64), predicate("OccupyTile", row=middle, col=middle)]
    goals += [predicate("AttainSkill", skill=skill, level=10) for skill in SKILLS]
    shots = ITEMS[11:14]
    for level in two:
        goals += [predicate("HarvestItem", item=item, level=level, quantity=20) for item in shots]
        goals += [predicate("ConsumeItem", item=item, level=level, quantity=20) for item in ITEMS[14:]]
        goals += [predicate("EquipItem", item=item, level=level) for item in ITEMS[:14]]
        goals += [predicate("FullyArmed", combat_style=style, level=level) for style in SKILLS[:3]]
    goals += [_events("EARN_GOLD", 20), _events("BUY_ITEM", 20)]
    goals += [predicate(name, amount=100) for name in ("EarnGold", "HoardGold", "MakeProfit")]
    kinds = [kind for kind, n in COMPETITION.items() for _ in range(n)]
    return [TaskSpec(goal, kind=kind) for goal, kind in zip(goals, kinds, strict=True)]


def _split(held_out: bool, middle: int) -> list[TaskSpec]:
    """A fifth of the list `train`, or the other four: a predicate with one kind of thing is in one of them."""
    return [spec for spec in _recorded("train", middle) if (_composition(spec) % 5 == 0) == held_out]


def _composition(spec: TaskSpec) -> int:
    """A number for the predicates of a goal and what they are about, but not for their amounts and levels."""
    parts = [
        (leaf.predicate, *(str(x) for _, x in leaf.arguments if isinstance(x, str))) for leaf in spec.goal.leaves()
    ]
    return zlib.crc32(repr(parts).encode())  # not `hash`, which Python salts anew in every process


LISTS = {
    "survive": _survive,
    "stages": _stages,
    "train": lambda horizon, middle: _recorded("train", middle),
    "sample_eval": lambda horizon, middle: _recorded("evaluation", middle),
    "competition": _competition,
    "train_part": lambda horizon, middle: _split(False, middle),
    "test_part": lambda horizon, middle: _split(True, middle),
    "race_to_center": _race_to_center,
    "team_battle": _team_battle,
    "protect_the_king": _protect_the_king,
} | {f"stage_{stage}": functools.partial(_stage, stage) for stage in range(1, len(STAGE_FACTORS) + 1)}


@functools.cache
def specs_called(task_set: str, horizon: int, middle: int) -> tuple[TaskSpec, ...]:
    """The tasks of a list: one of `LISTS`, one that is registered, or a YAML file; ValueError for anything else."""
    if task_set in LISTS:
        return tuple(LISTS[task_set](horizon, middle))
    if task_set in OWN_LISTS:
        return OWN_LISTS[task_set]
    if task_set.endswith(FILES):
        try:
            return _first_read(task_set)[1]
        except UnreadableFile as error:
            raise ValueError(f"task_set is {shown(task_set)}, which {error.why}") from None
    raise unknown_name("task_set", task_set, [*LISTS, *OWN_LISTS])


@functools.cache
def _first_read(path: str) -> tuple[int, tuple[TaskSpec, ...]]:
    """(a number for the text, the tasks) of a file, as this process has first read it."""
    return zlib.crc32(read_text(path).encode()), specs_in(path)


def warn_of_change(task_set: str) -> None:
    """A warning where the list is a file that is another one now than when this process first read it.

    Environments are equal by the names of their files. So all of them keep the tasks that were read first.
    """
    if task_set in LISTS or task_set in OWN_LISTS or not task_set.endswith(FILES):
        return
    with contextlib.suppress(ValueError, OSError):  # it may be gone: nobody needs it any more
        if zlib.crc32(read_text(task_set).encode()) != _first_read(task_set)[0]:
            how = (
                "this process keeps the tasks that it read first. Give the new ones another name, or start Python again"
            )
            warnings.warn(f"{task_set} has changed: {how}", stacklevel=4)


def specs_in(path: str) -> tuple[TaskSpec, ...]:
    """The tasks of a YAML file; ValueError in one line for one that is none."""
    try:
        entries = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_TASKS:
        raise ValueError(f"{path}: it must be a list of 1 to {MOST_TASKS} tasks")
    specs = []
    for number, entry in enumerate(entries):
        try:
            specs.append(_spec(entry))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, task {number}: {error}") from None
        except RecursionError:
            raise ValueError(f"{path}, task {number}: a goal is a part of itself, or too deep") from None
    check_list(path, specs)
    return tuple(specs)


SETTINGS = {field.name for field in dataclasses.fields(TaskSpec)} - {"goal"}


def _spec(entry: Any) -> TaskSpec:
    if not isinstance(entry, dict):
        raise ValueError(f"{shown(entry)} is no task: it must have a predicate or an operator")
    settings = {name: value for name, value in entry.items() if name in SETTINGS}
    return TaskSpec(_goal({name: value for name, value in entry.items() if name not in settings}), **settings)


def _goal(entry: Any) -> Goal:
    """A goal of plain values: a number, `{predicate: NAME, ...}`, or `{AND: [...]}`."""
    if isinstance(entry, (int, float)) and not isinstance(entry, bool):
        return as_goal(entry)
    if isinstance(entry, dict) and "predicate" in entry:
        arguments = {str(name): value for name, value in entry.items() if name != "predicate"}
        return predicate(str(entry["predicate"]), **arguments)
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ValueError(f"{shown(entry)} is no goal: it needs a predicate, or one of {', '.join(OPERATORS)}")
    ((op, parts),) = entry.items()
    if op not in OPERATORS:
        raise unknown_name("operator", str(op), OPERATORS)
    found = tuple(map(_goal, parts if isinstance(parts, list) else [parts]))
    if (op in ("NOT", "SUB") and len(found) != (1 if op == "NOT" else 2)) or not found:
        raise ValueError(f"{op} has {len(found)} parts: it must have {1 if op == 'NOT' else 2}")
    return Goal(op, found)
