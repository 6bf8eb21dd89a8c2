"""A table of metrics, and those of the environments."""

import dataclasses
import re

WILDCARDS = {  # in the name of a metric -> what it stands for
    "<source>": "new|replay|mutation",
    "<i>": r"\d+",
    "<achievement>": r"\w+",
    "<parameter>": r"\w+",
    "<task>": ".+",
    "<fact>": r"\w+",
    "<metric>": r"\w+",
}


@dataclasses.dataclass(frozen=True)
class MetricTable:
    """A table of the page: names of metrics, or patterns with `WILDCARDS`, and their meanings."""

    title: str
    text: str
    metrics: dict[str, str]
    env: str = ""  # the environment that reports them; empty: any

    def matches(self, metric: str) -> list[str]:
        """The names of this section that stand for `metric`."""
        return [name for name in self.metrics if pattern(name).fullmatch(metric)]


def pattern(name: str) -> re.Pattern[str]:
    """What the metrics are called that `name` stands for."""
    parts = re.split("(<[a-z]+>)", name)
    return re.compile("".join(f"({WILDCARDS[part]})" if part in WILDCARDS else re.escape(part) for part in parts))


OF_ENVIRONMENTS = (
    MetricTable(
        "LaserTag",
        "Means over the levels of a source, and over lives.",
        {
            "level/<source>/n_walls": "number of walls, without those round a smaller level",
            "level/<source>/connected": "share of levels in which there is a way between the starts; others are drawn",
            "level/<source>/distance": "moves from start to start; 0 where there is no way",
            "level/<source>/line_of_fire": "cells that the first agent can hit from its start, if it turns",
            "facts/tags": "tags that the agent has made",
        },
        env="LaserTag",
    ),
    MetricTable(
        "NMMO",
        "Means over the levels of a source, and over lives. What an agent died of is a share of the lives;\none "
        "that lives to the end of the world dies of nothing. `hits`, `kills` and `killed_by_...` need `--env.combat`,\n"
        "`worn` and `consumed` `--env.items`, `bought` and `sold` `--env.market`. With a fog there is `died_in_fog`,\n"
        "and with teams `survived`, the share that lived at the end of the world.",
        {
            "level/<source>/share_passable": "share of the tiles inside the border that can be walked on",
            "level/<source>/share_water": "share of them that are water",
            "level/<source>/share_foliage": "share of them that are foliage, which is food",
            "level/<source>/sharpness": "how clear the borders of the noise are: 1 blends it, 0.01 hardly does",
            "facts/meals": "times that the agent ate",
            "facts/drinks": "ticks in which it drank",
            "facts/harvests": "things that it harvested",
            "facts/levels_gained": "levels of skills that it gained",
            "facts/hits": "attacks that it made",
            "facts/kills": "players and NPCs that it killed",
            "facts/worn": "times that it put on something",
            "facts/consumed": "rations and potions that it used up",
            "facts/bought": "purchases that it made on the market",
            "facts/sold": "sales that it made there",
            "facts/died_of_hunger": "share that starved",
            "facts/died_of_thirst": "share that died of thirst",
            "facts/killed_by_player": "share that another player killed",
            "facts/killed_by_npc": "share that an NPC killed",
            "facts/explored": "most tiles that it came from the edge towards the middle of the map",
        },
        env="NMMO",
    ),
    MetricTable(
        "AMaze",
        "Means over the levels of a source.",
        {
            "level/<source>/n_walls": "number of wall cells",
            "level/<source>/shortest_path": "moves from the agent to the goal; 0 for a level that cannot be solved",
            "level/<source>/solvable": "share of levels whose goal can be reached",
        },
        env="AMaze",
    ),
    MetricTable(
        "GridWorld",
        "Means over the levels of a source.",
        {
            "level/<source>/difficulty": "the label that the family gives a level",
            "level/<source>/n_rooms": "doors + 1, which is the number of rooms in a chain of rooms",
            "level/<source>/n_doors": "number of doors",
            "level/<source>/n_locked": "number of locked doors",
            "level/<source>/n_objects": "number of keys, balls and boxes; what is inside a box does not count",
            "level/<source>/path_length": "moves to what the task is about, as if no door or object stopped them; or 0",
            "level/<source>/solvable": "share of levels in which the agent can get there, with the keys that it finds",
            "level/<source>/solution_length": "fewest actions that solve it, estimated with a lock; -1: unknown",
        },
        env="GridWorld",
    ),
    MetricTable(
        "Pendulum",
        "Means over the levels of a source, and over episodes.",
        {
            "level/<source>/mass": "mass of the pole, kg",
            "level/<source>/length": "length of the pole, m",
            "level/<source>/gravity": "gravity, m/s^2",
            "level/<source>/damping": "friction of the hinge, N m s",
            "level/<source>/torque": "largest torque of the motor, N m",
            "level/<source>/strength": "that torque as a share of what holds the pole level",
            "facts/upright": "share of the longest possible episode in which the pole was upright",
        },
        env="Pendulum",
    ),
    MetricTable(
        "BipedalWalker",
        "Means over the levels of a source, and over episodes. Gaps and heights are in steps of the ground (14/30 m).",
        {
            "level/<source>/roughness": "of the ground, 0 to 10",
            "level/<source>/pit_gap_low": "least gap of a pit, less one",
            "level/<source>/pit_gap_high": "largest gap of a pit, less one; below 0.8 there are no pits",
            "level/<source>/stump_height_low": "least height of a stump",
            "level/<source>/stump_height_high": "largest height of a stump; below 0.2 there are no stumps",
            "level/<source>/stair_height_low": "least height of a stair",
            "level/<source>/stair_height_high": "largest height of a stair; below 0.2 there are no stairs",
            "level/<source>/stair_steps": "flights have 0 to one less than so many stairs",
            "facts/finish": "share of episodes that reached the end of the world",
            "facts/way": "how far an episode came, as a share of the way",
        },
        env="BipedalWalker",
    ),
    MetricTable(
        "Gymnax",
        "",
        {"level/<source>/<parameter>": "mean of a parameter that varies between levels (`--env.vary`)"},
        env="Gymnax",
    ),
    MetricTable(
        "Craftax",
        "",
        {"facts/<achievement>": "share of episodes in which the achievement was unlocked"},
        env="Craftax",
    ),
    MetricTable(
        "CraftaxTasks",
        "",
        {
            "level/<source>/possible": "share of the tasks that were begun which can be solved",
            "level/<source>/kind": "mean kind of these tasks: 0 basic, 1 repeated, 2 impossible",
        },
        env="CraftaxTasks",
    ),
)
