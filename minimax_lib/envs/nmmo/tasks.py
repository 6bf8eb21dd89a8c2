"""Tasks of agents: lists by name, values from event counts, and the reward, which is progress.

A task is one predicate: live for n ticks, or make an event happen n times. Its value is min(count / n, 1).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.state import Players, Score
from minimax_lib.envs.nmmo.tables import EVENTS
from minimax_lib.registry import unknown_name

TICKS = "TickGE"
N_PREDICATES = 34  # of the reference; these tasks use two of them
STAGE_FAMILIES = (
    TICKS,
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
TASK_SETS = ("survive", "stages")


@dataclasses.dataclass(frozen=True)
class TaskList:
    """The tasks that there are, by number: what is counted, and how much of it is asked for."""

    counted: tuple[str, ...]  # an event, or TICKS
    amount: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.counted)

    def name(self, number: int) -> str:
        """What the task is called in files."""
        return f"{self.counted[number]}_{self.amount[number]}"

    @functools.cached_property
    def place(self) -> np.ndarray:
        """i32[M], the place of what is counted: of an event as in `EVENTS`, behind them that of ticks."""
        return np.array([len(EVENTS) if name == TICKS else EVENTS.index(name) for name in self.counted], np.int32)

    @functools.cached_property
    def features(self) -> np.ndarray:
        """f32[M, 6] in [0, 1], what an agent is told of its task: predicate, event, level, amount, denominator,
        target. The last two are for other predicates."""
        is_event = self.place < len(EVENTS)
        rows = np.zeros((len(self), 6), np.float32)
        rows[:, 0] = np.where(is_event, 2, 1) / N_PREDICATES
        rows[:, 1] = np.where(is_event, self.place + 1, 0) / len(EVENTS)
        rows[:, 3] = np.minimum(np.array(self.amount) / np.where(is_event, 50, 1024), 1)
        return rows


@functools.cache
def task_list(task_set: str, horizon: int) -> TaskList:
    """The tasks of this name; ValueError for a name that is none.

    survive: live until the horizon. stages: five stages of ten tasks, number 10 s + f of stage s and family f.
    """
    if task_set == "survive":
        return TaskList((TICKS,), (horizon,))
    if task_set == "stages":
        amounts = tuple(factor * unit for factor in STAGE_FACTORS for unit in STAGE_UNITS)
        return TaskList(STAGE_FAMILIES * len(STAGE_FACTORS), amounts)
    raise unknown_name("task_set", task_set, TASK_SETS)


def values(tasks: TaskList, numbers: jax.Array, players: Players, tick: jax.Array) -> jax.Array:
    """f32[P] in [0, 1], how far each player's task (i32[P]) has come."""
    place = jnp.asarray(tasks.place)[numbers]
    n_events = len(EVENTS)
    events = jnp.take_along_axis(players.events, jnp.minimum(place, n_events - 1)[:, None], axis=1)[:, 0]
    count = jnp.where(place < n_events, events, tick)
    return jnp.minimum(count / jnp.asarray(tasks.amount, jnp.int32)[numbers], 1.0).astype(jnp.float32)


def scored(score: Score, value: jax.Array, playing: jax.Array) -> tuple[Score, jax.Array]:
    """(the score, f32[P] the reward) of those who played in this tick (bool[P]), whose tasks are at `value`.

    A task pays its progress until it reaches 1. After that its value is not looked at again.
    """
    counts = playing & ~score.completed
    reward = jnp.where(counts, value - score.value, 0.0)
    return Score(
        value=jnp.where(counts, value, score.value),
        best=jnp.where(counts, jnp.maximum(score.best, value), score.best),
        completed=score.completed | (counts & (value >= 1)),
    ), reward
