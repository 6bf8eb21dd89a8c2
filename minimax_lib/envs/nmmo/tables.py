"""The constants of the game, from `tables.json`: materials, skills, events, directions."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

TABLES = json.loads(Path(__file__).with_name("tables.json").read_text(encoding="utf-8"))

MATERIALS: tuple[str, ...] = tuple(material["name"] for material in TABLES["materials"])
(VOID, WATER, GRASS, SCRUB, FOLIAGE, STONE, SLAG, ORE, STUMP, TREE, FRAGMENT, CRYSTAL, WEEDS, HERB, OCEAN, FISH) = (
    range(16)
)
PASSABLE = np.array([not material["impassible"] for material in TABLES["materials"]])  # bool[16]
# f32[16], the chance of a depleted tile to come back in a tick, by its full form. The depleted form is the one before.
RESPAWN = np.array([material["respawn"] for material in TABLES["materials"]], np.float32)

SKILLS: tuple[str, ...] = tuple(TABLES["skill_ids"])
MELEE, RANGE, MAGE, FISHING, HERBALISM, PROSPECTING, CARVING, ALCHEMY = range(8)
N_SKILLS, N_STYLES = 8, 3
THRESHOLDS = np.array(TABLES["experience_thresholds"], np.int32)  # i32[10], the experience that each level needs
# i32[3], the style that does more damage to an entity whose best style is the index
WEAK_TO = np.array([SKILLS.index(TABLES["weak_to"][style]) for style in SKILLS[:N_STYLES]], np.int32)

ITEMS: tuple[str, ...] = tuple(item["name"] for item in TABLES["items"])  # the kinds of things
FIRST_ITEM_ID = 2  # the reference's number of the first kind

EVENTS: tuple[str, ...] = tuple(TABLES["event_codes"])  # their places in arrays of counts
EVENT_CODES: dict[str, int] = TABLES["event_codes"]  # the reference's numbers

DIRECTIONS = np.array([[-1, 0], [1, 0], [0, 1], [0, -1], [0, 0]], np.int32)  # north, south, east, west, stay
STAY = 4
# North, south, west, east: the order in which NPCs look round.
NPC_DIRECTIONS = np.array([TABLES["directions"][name] for name in TABLES["npc_direction_order"]], np.int32)

FULL = 100  # health, food and water of an entity that lacks nothing
VISION = 7  # tiles that an entity sees to each side
REACH = 3  # tiles that an attack reaches, whatever its style
COMBAT_STATUS = 3  # ticks that a fight lasts after its last attack


@functools.cache
def published_tasks() -> dict[str, Any]:
    """The lists `train` and `evaluation` of the NeurIPS 2023 competition's baseline, [predicate, arguments, weight]
    each, and the tool of each skill."""
    return json.loads(Path(__file__).with_name("tasks.json").read_text(encoding="utf-8"))


def event(name: str) -> int:
    """The place of an event in arrays of counts."""
    return EVENTS.index(name)
