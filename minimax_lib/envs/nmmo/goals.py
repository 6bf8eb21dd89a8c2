"""Goals of tasks: predicates with their arguments, and what is made of them with AND, OR, NOT, ADD, SUB and MUL."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minimax_lib.envs.nmmo.predicates import ALIVE, DEAD, PREDICATES
from minimax_lib.envs.nmmo.tables import EVENTS, ITEMS, MATERIALS, N_STYLES, SKILLS
from minimax_lib.envs.nmmo.teams import LEADERS, NAMES
from minimax_lib.messages import shown
from minimax_lib.registry import unknown_name

LEAF, CONSTANT = "leaf", "constant"
OPERATORS = ("AND", "OR", "NOT", "ADD", "SUB", "MUL")
MOST_LEAVES = 4  # that agents are told of
MOST_LEVEL = 10  # of skills, things and attacks
LEAST, MOST = 1e-6, 1e30  # of amounts, which are 32-bit numbers and divide others


@dataclasses.dataclass(frozen=True)
class Goal:
    """How far something has come, from 0 to 1: a predicate, a constant, or an operator on goals.

    `a & b` is AND (the lower), `a | b` OR (the higher), `~a` NOT (1 - a); `+`, `-` and `*` are clipped to 0 and 1.
    """

    op: str
    parts: tuple["Goal", ...] = ()
    predicate: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()
    value: float = 0.0

    def __and__(self, other: "Goal | float") -> "Goal":
        return _joined("AND", self, other)

    def __or__(self, other: "Goal | float") -> "Goal":
        return _joined("OR", self, other)

    def __invert__(self) -> "Goal":
        return Goal("NOT", (self,))

    def __add__(self, other: "Goal | float") -> "Goal":
        return _joined("ADD", self, other)

    def __sub__(self, other: "Goal | float") -> "Goal":
        return _joined("SUB", self, other)

    def __mul__(self, other: "Goal | float") -> "Goal":
        return _joined("MUL", self, other)

    def leaves(self) -> list["Goal"]:
        """The predicates in it, from left to right."""
        return [self] if self.op == LEAF else [leaf for part in self.parts for leaf in part.leaves()]

    def constants(self) -> list[float]:
        """The constants in it, from left to right."""
        return [self.value] if self.op == CONSTANT else [x for part in self.parts for x in part.constants()]

    def shape(self) -> Any:
        """The goal without its arguments and constants. Goals of one shape are worked out together."""
        return self.op if self.op in (LEAF, CONSTANT) else (self.op, *(part.shape() for part in self.parts))

    @property
    def name(self) -> str:
        """What it is called in files: EAT_FOOD_5, AttainSkill_Melee_10."""
        if self.op == CONSTANT:
            return f"{self.value:g}"
        if self.op != LEAF:
            return f"{self.op}({','.join(part.name for part in self.parts)})"
        values = [_told(value) for name, value in self.arguments if (name, value) != ("num_agent", 1)]
        return "_".join(values if self.predicate == "CountEvent" else [self.predicate, *values])


def _told(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def as_goal(value: "Goal | float") -> Goal:
    """The goal, or the constant as one; ValueError for a number that is none."""
    if isinstance(value, Goal):
        return value
    if not abs(number := float(value)) <= MOST:
        raise ValueError(f"{number} in a goal: it must be within -{MOST:g} and {MOST:g}")
    return Goal(CONSTANT, value=number)


def _joined(op: str, first: Goal, second: "Goal | float") -> Goal:
    # Sums are clipped once: a + b + c is one ADD.
    if op == "ADD" and first.op == "ADD":
        return Goal(op, (*first.parts, as_goal(second)))
    return Goal(op, (first, as_goal(second)))


# -------------------------------------------------------------------------------------------------------- arguments


def _place_in(what: str, names: Sequence[str]) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if value not in names:
            raise unknown_name(what, str(value), names)
        return list(names).index(value)

    return parse


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
        raise ValueError(f"{shown(value)} is no number up to {MOST:g}")
    return float(value)


def _amount(value: Any) -> float:
    """Of a predicate that divides by it."""
    if not _number(value) >= LEAST:
        raise ValueError(f"it must be above 0, and at least {LEAST:g}")
    return float(value)


def _amount_or_none(value: Any) -> float:
    """Of a predicate that says itself what 0 means."""
    if not _number(value) >= 0:
        raise ValueError("it must be at least 0")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**15) < value < 2**15:
        raise ValueError(f"{shown(value)} is no whole number below {2**15}")
    return value


def _level(value: Any) -> int:
    if not 0 <= _whole(value) <= MOST_LEVEL:
        raise ValueError(f"levels go from 0 to {MOST_LEVEL}")
    return int(value)


def _player(value: Any) -> int:
    """The index of a player, whom tasks number from 1 on as the reference does; of a leader, see `leader_of`."""
    if isinstance(value, str):
        return -1 - _place_in("player", LEADERS)(value)
    if _whole(value) < 1:
        raise ValueError("players are numbered from 1 on")
    return value - 1


def leader_of(player: int) -> str:
    """The name of the leader that `_player` has made a number below 0 of."""
    return LEADERS[-1 - player]


def _players(value: Any) -> tuple[int, ...] | str:
    """The indices of players, or a name that means some."""
    if isinstance(value, str):
        return NAMES[_place_in("players", NAMES)(value)]
    players = value if isinstance(value, (list, tuple)) else [value]
    for one in players:
        if isinstance(one, str):
            raise ValueError(f"{shown(one)} in a list: a list has numbers of players, and a name stands alone")
    return tuple(map(_player, players))


def _entity(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError("it must be at least 0")
    return int(value)


KIND_OF_EVENT = ("kind", _place_in("event", EVENTS))
KIND_OF_SKILL = ("kind", _place_in("skill", SKILLS))
KIND_OF_STYLE = ("kind", _place_in("style", SKILLS[:N_STYLES]))
KIND_OF_ITEM = ("kind", _place_in("item", ITEMS))
KIND_OF_TILE = ("kind", _place_in("tile", MATERIALS))
AMOUNT, OR_NONE = ("amount", _amount), ("amount", _amount_or_none)
LEVEL, PLAYERS = ("level", _level), ("group", _players)
_ITEMS = {"item": KIND_OF_ITEM, "level": LEVEL}
# Of each predicate: the reference's names of its arguments, which number of a leaf each of them is, and how to read it.
ARGUMENTS: dict[str, dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "TickGE": {"num_tick": AMOUNT},
    "CountEvent": {"event": KIND_OF_EVENT, "N": AMOUNT},
    "CheckAgentStatus": {
        "target": PLAYERS,
        "status": ("kind", lambda x: [ALIVE, DEAD][_place_in("status", ("alive", "dead"))(x)]),
    },
    "CanSeeTile": {"tile_type": KIND_OF_TILE},
    "CanSeeAgent": {"target": ("target", _player)},
    "CanSeeGroup": {"target": PLAYERS},
    "OccupyTile": {"row": ("kind", _whole), "col": ("level", _whole)},
    "DistanceTraveled": {"dist": AMOUNT},
    "AttainSkill": {"skill": KIND_OF_SKILL, "level": LEVEL, "num_agent": AMOUNT},
    "GainExperience": {"skill": KIND_OF_SKILL, "experience": AMOUNT, "num_agent": ("share", _amount)},
    "ScoreHit": {"combat_style": KIND_OF_STYLE, "N": AMOUNT},
    "DefeatEntity": {
        "agent_type": ("kind", _place_in("agent type", ("player", "npc"))),
        "level": LEVEL,
        "num_agent": OR_NONE,
    },
    **{name: {"amount": AMOUNT} for name in ("HoardGold", "EarnGold", "SpendGold", "MakeProfit")},
    "InventorySpaceGE": {"space": OR_NONE},
    "EquipItem": {**_ITEMS, "num_agent": OR_NONE},
    "FullyArmed": {"combat_style": KIND_OF_STYLE, "level": LEVEL, "num_agent": OR_NONE},
    **{
        name: {**_ITEMS, "quantity": AMOUNT}
        for name in ("OwnItem", "ConsumeItem", "HarvestItem", "FireAmmo", "ListItem", "BuyItem")
    },
    "AllMembersWithinRange": {"dist": OR_NONE},
    "SeizeTile": {"row": ("level", _whole), "col": ("kind", _whole), "num_ticks": AMOUNT},
    "SeizeCenter": {"num_ticks": AMOUNT},
    "SeizeQuadCenter": {
        "num_ticks": AMOUNT,
        "quadrant": ("kind", _place_in("quadrant", ("first", "second", "third", "fourth"))),
    },
    "ProtectLeader": {"target_protect": ("target", _player), "target_destroy": PLAYERS},
}
OWN_ARGUMENTS = {
    "kind": ("kind", _whole),
    "level": ("level", _whole),
    "amount": ("amount", _number),
    "share": ("share", _number),
    "target": ("target", _entity),
}
ALIASES = {"n": "N", "style": "combat_style", "tile": "tile_type"}
OPTIONAL = {"num_agent": 1, "target_destroy": ()}


def arguments_of(predicate: str) -> Mapping[str, tuple[str, Callable[[Any], Any]]]:
    """The arguments of a predicate by name. One that is a user's own has those of `OWN_ARGUMENTS`."""
    if predicate not in PREDICATES:
        raise unknown_name("predicate", predicate, list(PREDICATES))
    return ARGUMENTS.get(predicate, OWN_ARGUMENTS if predicate in OWN else {})


OWN: set[str] = set()  # the names of users' predicates


def _plain(value: Any) -> Any:
    """The same without numbers of NumPy, which are no `int`; of a list, those in it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [one.item() if isinstance(one, np.generic) else one for one in value]
    return value.item() if isinstance(value, np.generic) else value


def predicate(name: str, **arguments: Any) -> Goal:
    """The goal of one predicate; ValueError in one line for an unknown name or a bad argument.

    The arguments are the reference's: `predicate("AttainSkill", skill="Melee", level=5)`.
    """
    known = arguments_of(name)
    given = {ALIASES.get(key, key) if ALIASES.get(key, key) in known else key: x for key, x in arguments.items()}
    for key in given:
        if key not in known:
            raise unknown_name(f"argument of {name}", key, list(known) or ["none"])
    optional = OPTIONAL if name not in OWN else dict.fromkeys(OWN_ARGUMENTS, 0)
    missing = [key for key in known if key not in given and key not in optional]
    if missing:
        raise ValueError(f"the predicate {name} needs {missing[0]}: its arguments are {', '.join(known)}")
    found = []
    for key in [key for key in known if key in given or name not in OWN]:
        value = _plain(given.get(key, optional.get(key)))
        try:
            known[key][1](value)
        except ValueError as error:
            raise ValueError(f"{name}: {key}={shown(value)}: {error}") from None
        found.append((key, tuple(value) if isinstance(value, list) else value))
    return Goal(LEAF, predicate=name, arguments=tuple(found))
