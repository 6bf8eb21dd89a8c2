"""Crafter's tasks (Zhang et al. 2023, OMNI) on Craftax-Classic: 15 basic ones, 90 that repeat them, 1,024 impossible.

An episode is a sequence of attempts at tasks in a world without dangers. Where this differs from OMNI's own Crafter: a
table takes 2 wood (Crafter: 1), a furnace 1 stone (4), and iron tools take 1 stone more and a table beside the furnace.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Attempt, Environment, TimeStep, opening, transition
from minimax_lib.envs.family import Family
from minimax_lib.envs.foreign import craftax_family
from minimax_lib.envs.foreign.libraries import with_types_of
from minimax_lib.envs.held_out import NamedTasks
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space

MATERIALS = ("wood", "stone", "coal", "iron", "diamond", "drink")
PLACES, TOOLS = ("table", "furnace"), ("sword", "pickaxe")
COLLECT = tuple(f"collect_{x}" for x in MATERIALS)
MAKE = tuple(f"make_{material}_{tool}" for material in ("wood", "stone", "iron") for tool in TOOLS)
PLACE = tuple(f"place_{x}" for x in ("furnace", "stone", "table"))
BASIC = (*COLLECT, *MAKE, *PLACE)
REPEATED = (
    *(f"{name}_{n}" for name in COLLECT for n in range(2, 11)),
    *(f"{name}_{n}" for name in (*MAKE, *PLACE) for n in range(2, 6)),
)
POSSIBLE = (*BASIC, *REPEATED)
N_IMPOSSIBLE, TAG_BITS = 1024, 10
ACTIONS = tuple(i for i in range(17) if i not in (6, 10))  # without sleep and place_plant, as in OMNI's Crafter
N_BLOCKS, N_CELL_SYMBOLS, N_CELLS = 17, 21, 63  # of Craftax's observation: blocks and mobs in each of 7 x 9 cells
ANY_WORLD = -1
LIST_OF_WORLDS = 0x0E0A7  # the seed of the worlds


class CraftaxTaskLevel(struct.PyTreeNode):
    """The first task of an episode, and its world."""

    task: jax.Array  # i32[]
    world: jax.Array  # i32[], the world's number; ANY_WORLD: each episode draws its own


class CraftaxTasksState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: CraftaxTaskLevel
    theirs: Any  # Craftax's own state
    task: jax.Array  # i32[], the current one
    tag: jax.Array  # i32[], shown with the task: 0 for a possible one, 1 to 1023 otherwise, another in every attempt
    count: jax.Array  # i32[], how often the task's event has happened in this attempt
    begun: jax.Array  # i32[], the time when the attempt began
    time: jax.Array  # i32[]
    n_ended: jax.Array  # i32[], attempts
    n_solved: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class CraftaxTasks(Environment):
    """Task i of 1,129 pays 1 when it is solved; then, or when its time is over, the next task comes in the same world.

    Hunger, thirst, sleep, mobs and the night are switched off, and lava does no harm. A level is a task. Task numbers
    are those of `POSSIBLE` (105); the other 1,024 look like tasks, and cannot be solved.
    """

    map_size: int = 64
    """Side of the world, in cells."""
    max_steps: int = 1500
    """Steps of an episode."""
    attempt_steps: int = 300
    """Steps after which the next task comes."""
    fail_reward: float = 0.0
    """Reward where a task's time is over. 0 in OMNI's code, -1 in its paper."""
    n_worlds: int = 256
    """Different worlds, which are made once and for all. Each episode is in a random one."""
    inherit: float = 0.0
    """Share of the training's episodes that begin with the inventory of the episode before. OMNI: 0.5."""

    one_attempt: ClassVar[bool] = False

    def __post_init__(self) -> None:
        craftax_family.Craftax(map_size=self.map_size, max_steps=self.max_steps)  # ValueError for these two
        for name in ("attempt_steps", "n_worlds"):
            if getattr(self, name) < 1:
                raise ValueError(f"env.{name} is {getattr(self, name)}: it must be at least 1")
        if not 0 <= self.inherit <= 1:
            raise ValueError(f"env.inherit is {self.inherit}: it must be between 0 and 1")

    @property
    def observation_space(self) -> Space:
        """The blocks of 7 x 9 cells; inventory and direction; the task in 22 bits, and the 10 bits of its tag."""
        theirs = craftax_family.made(self.map_size)
        (size,) = theirs.observation_space(theirs.default_params).shape
        n_player = size - N_CELLS * N_CELL_SYMBOLS
        return Dict(
            (
                ("cells", Box(0.0, 1.0, (N_CELLS * N_BLOCKS,))),
                ("player", Box(0.0, 1.0, (n_player,))),
                ("task", Box(0.0, 1.0, (_table()[2].shape[1] + TAG_BITS,))),
            )
        )

    @property
    def action_space(self) -> Space:
        return Discrete(len(ACTIONS))

    def single(self) -> "CraftaxTasks":
        """An episode is one attempt."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return SingleTask(**fields | {"max_steps": min(self.attempt_steps, self.max_steps)})

    def sample_level(self, key: jax.Array) -> CraftaxTaskLevel:
        return self.sample_listed(key, jax.random.randint(key, (), 0, len(_table()[0]), jnp.int32))

    def sample_listed(self, key: jax.Array, number: jax.Array) -> CraftaxTaskLevel:
        """Task `number`, in any world."""
        return CraftaxTaskLevel(task=jnp.asarray(number, jnp.int32), world=jnp.full((), ANY_WORLD, jnp.int32))

    def task_name(self, number: int) -> str:
        """As in `POSSIBLE`; behind these, impossible_0 and so on."""
        return POSSIBLE[number] if number < len(POSSIBLE) else f"impossible_{number - len(POSSIBLE)}"

    def reset(self, key: jax.Array, level: CraftaxTaskLevel) -> tuple[CraftaxTasksState, TimeStep]:
        """The start of an episode with the task of `level`."""
        k_world, k_tag = jax.random.split(key)
        drawn = jax.random.randint(k_world, (), 0, self.n_worlds, jnp.int32)
        world = jnp.where(level.world == ANY_WORLD, drawn, level.world)
        env = craftax_family.made(self.map_size)
        # The map of this reset is not used, so the compiler removes its making.
        _, opened = env.reset_env(key, self._params)
        opened = opened.replace(map=jnp.asarray(_worlds(self.map_size, self.n_worlds))[world])
        nothing = jnp.zeros((), jnp.int32)
        state = CraftaxTasksState(
            level=level,
            theirs=self._harmless(opened),
            task=level.task,
            tag=_tag(k_tag, level.task),
            count=nothing,
            begun=nothing,
            time=nothing,
            n_ended=nothing,
            n_solved=nothing,
        )
        attempt = Attempt(progress=jnp.zeros((), jnp.float32), ended=jnp.zeros((), bool))
        return state, opening(self._look(state), progress=0.0, attempt=attempt)

    def reset_after(
        self, key: jax.Array, level: CraftaxTaskLevel, ended: CraftaxTasksState
    ) -> tuple[CraftaxTasksState, TimeStep]:
        """`reset`, in which the player may keep what it had when the episode before it `ended`."""
        if self.inherit == 0:
            return self.reset(key, level)
        k_reset, k_keep = jax.random.split(key)
        state, ts = self.reset(k_reset, level)
        keeps = jax.random.uniform(k_keep) < self.inherit
        kept = jax.tree.map(lambda old, new: jnp.where(keeps, old, new), ended.theirs.inventory, state.theirs.inventory)
        state = state.replace(theirs=state.theirs.replace(inventory=kept))
        return state, ts.replace(obs=self._look(state))

    def step(self, key: jax.Array, state: CraftaxTasksState, action: jax.Array) -> tuple[CraftaxTasksState, TimeStep]:
        return self.step_then(key, state, action, state.level.replace(task=state.task))

    def step_then(
        self, key: jax.Array, state: CraftaxTasksState, action: jax.Array, following: CraftaxTaskLevel
    ) -> tuple[CraftaxTasksState, TimeStep]:
        """The result of one of OMNI's 15 actions."""
        k_step, k_tag = jax.random.split(key)
        events, theirs = self._step_world(k_step, state.theirs, action)
        achievement, wanted, _ = _table()
        # An impossible task names no event.
        place = jnp.asarray(achievement)[state.task]
        happened = (place >= 0) & events[jnp.maximum(place, 0)]
        count, time = state.count + happened, state.time + 1
        solved = happened & (count >= jnp.asarray(wanted)[state.task])
        out_of_time = ~solved & (time - state.begun >= self.attempt_steps)
        truncated = time >= self.max_steps
        ended = solved | out_of_time | truncated
        after = CraftaxTasksState(
            level=state.level,
            theirs=theirs,
            task=jnp.where(ended, following.task, state.task),
            tag=jnp.where(ended, _tag(k_tag, following.task), state.tag),
            count=jnp.where(ended, 0, count),
            begun=jnp.where(ended, time, state.begun),
            time=time,
            n_ended=state.n_ended + ended,
            n_solved=state.n_solved + solved,
        )
        reward = jnp.where(solved, 1.0, jnp.where(out_of_time, self.fail_reward, 0.0))
        share = after.n_solved / jnp.maximum(after.n_ended, 1).astype(jnp.float32)
        attempt = Attempt(progress=solved.astype(jnp.float32), ended=ended)
        terminated = solved & self.one_attempt
        return after, transition(self._look(after), reward, terminated, truncated, share, attempt=attempt)

    def get_level(self, state: CraftaxTasksState) -> CraftaxTaskLevel:
        return state.level

    def level_metrics(self, level: CraftaxTaskLevel) -> dict[str, jax.Array]:
        """Whether the task is possible, and its kind: 0 basic, 1 repeated, 2 impossible."""
        possible = level.task < len(POSSIBLE)
        kind = (level.task >= len(BASIC)).astype(jnp.float32) + (~possible).astype(jnp.float32)
        return {"possible": possible.astype(jnp.float32), "kind": kind}

    @property
    def _params(self) -> Any:
        """Craftax's parameters without mobs and without a time limit."""
        chances = ("cow", "zombie_base", "zombie_night", "skeleton")
        params = craftax_family.made(self.map_size).default_params
        return params.replace(max_timesteps=craftax_family.NEVER, **{f"spawn_{name}_chance": 0.0 for name in chances})

    def _step_world(self, key: jax.Array, theirs: Any, action: jax.Array) -> tuple[jax.Array, Any]:
        """(bool[22] which achievements happened in this very step, Craftax's state after it)."""
        env = craftax_family.made(self.map_size)
        before = theirs.replace(achievements=jnp.zeros_like(theirs.achievements))  # they would stay once they are set
        _, after, _, _, _ = env.step_env(key, before, jnp.asarray(ACTIONS, jnp.int32)[action], self._params)
        return after.achievements.astype(bool), self._harmless(after)

    def _harmless(self, theirs: Any) -> Any:
        """`theirs` with a player that needs nothing, by daylight and without mobs."""
        full = dict.fromkeys(("player_health", "player_food", "player_drink", "player_energy"), 9)
        no_need = dict.fromkeys(("player_recover", "player_hunger", "player_thirst", "player_fatigue"), 0.0)
        # None is ever spawned. But where the player strikes at nothing, Craftax wakes mobs that were never there.
        mobs = ("zombies", "cows", "skeletons", "arrows")
        gone = {name: (group := getattr(theirs, name)).replace(mask=jnp.zeros_like(group.mask)) for name in mobs}
        theirs = theirs.replace(**full, **no_need, **gone, is_sleeping=False, light_level=1.0)
        theirs = theirs.replace(mob_map=jnp.zeros_like(theirs.mob_map))
        return with_types_of(theirs, craftax_family.state_types(self.map_size))

    def _look(self, state: CraftaxTasksState) -> dict[str, jax.Array]:
        seen = craftax_family.made(self.map_size).get_obs(state.theirs)
        cells = seen[: N_CELLS * N_CELL_SYMBOLS].reshape(N_CELLS, N_CELL_SYMBOLS)[:, :N_BLOCKS]
        tag = (state.tag >> jnp.arange(TAG_BITS, dtype=jnp.int32)) & 1
        task = jnp.concatenate([jnp.asarray(_table()[2])[state.task], tag.astype(jnp.float32)])
        return {"cells": cells.reshape(-1), "player": seen[N_CELLS * N_CELL_SYMBOLS :], "task": task}


@dataclasses.dataclass(frozen=True)
class SingleTask(CraftaxTasks):
    """The same with one attempt an episode."""

    one_attempt: ClassVar[bool] = True


def _tag(key: jax.Array, task: jax.Array) -> jax.Array:
    """i32[], 0 for a possible task. Otherwise it is random, so that impossible tasks cannot be told apart."""
    return jnp.where(task < len(POSSIBLE), 0, jax.random.randint(key, (), 1, 2**TAG_BITS, jnp.int32))


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(i32[N] the task's achievement, -1 for none; i32[N] how often it must happen; f32[N, 22] what is shown)."""
    achievements = craftax_family.achievements()
    words = ("collect", "make", "place", *PLACES, *MATERIALS, *TOOLS, *map(str, range(2, 11)))
    n = len(POSSIBLE) + N_IMPOSSIBLE
    achievement, wanted, bits = np.full(n, -1, np.int32), np.ones(n, np.int32), np.zeros((n, len(words)), np.float32)
    for i, name in enumerate(POSSIBLE):
        parts = name.split("_")
        if parts[-1].isdigit():
            wanted[i] = int(parts[-1])
        achievement[i] = achievements.index("_".join(part for part in parts if not part.isdigit()))
        bits[i, [words.index(part) for part in parts]] = 1.0
    return achievement, wanted, bits


@functools.lru_cache(maxsize=2)
def _worlds(map_size: int, n: int) -> np.ndarray:
    """Their maps, u8[n, map_size, map_size]; on the host, and the same in every run."""
    game = craftax_family.Craftax(map_size=map_size)
    with jax.ensure_compile_time_eval():
        make = jax.jit(jax.vmap(lambda i: game.sample_level(jax.random.fold_in(jax.random.key(LIST_OF_WORLDS), i)).map))
        parts = [jax.device_get(make(jnp.arange(i, min(i + 32, n)))) for i in range(0, n, 32)]
    return np.concatenate(parts)


class PossibleTasks(NamedTasks):
    """One held-out task for each task that can be solved. An episode is one attempt, in a random world."""

    known = POSSIBLE

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "env", self.env.single())

    def draw(self, name: str, key: jax.Array) -> CraftaxTaskLevel:
        world = jax.random.randint(key, (), 0, self.env.n_worlds, jnp.int32)
        return CraftaxTaskLevel(task=jnp.full((), POSSIBLE.index(name), jnp.int32), world=world)


FAMILY = Family(
    cls=CraftaxTasks,
    name="CraftaxTasks",
    held_out=PossibleTasks,
    groups={"validation": POSSIBLE, "benchmark": POSSIBLE, "basic": BASIC, "repeated": REPEATED},
)
