"""The real MiniGrid on levels of the object world, and what it does on the same actions."""

from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import WorldObj
from minigrid.minigrid_env import MiniGridEnv

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import Level
from minimax_lib.envs.grid.level import FETCH, OPEN, PICKUP, REACH

LEFT, RIGHT, FORWARD, TAKE, DROP, TOGGLE, DONE = range(7)
OFTEN = 60  # times that something is tried on purpose


def object_of(cell: int) -> WorldObj | None:
    """MiniGrid's object for one of our cells."""
    thing = WorldObj.decode(cell & 15, cell >> 4 & 7, cell >> 7 & 3)
    if cell >> 9:
        assert thing is not None
        thing.contains = object_of(cell >> 9)
    return thing


def cell_of(thing: WorldObj | None, nothing: int = 1) -> int:
    """Our cell for one of MiniGrid's objects."""
    if thing is None:
        return nothing
    kind, colour, state = thing.encode()
    return kind | colour << 4 | state << 7 | cell_of(thing.contains, nothing=0) << 9


def grid_of(env: MiniGridEnv) -> np.ndarray:
    """u16[h, w], our grid for that of MiniGrid."""
    grid = env.unwrapped.grid
    return np.array([cell_of(thing) for thing in grid.grid], np.uint16).reshape(grid.height, grid.width)


class GridTwin(MiniGridEnv):
    """A `MiniGridEnv` that plays one of our levels. The tasks are those of MiniGrid's own classes."""

    def __init__(self, level: Level, view_size: int, see_through_walls: bool):
        self.level = jax.tree.map(np.asarray, level)
        height, width = self.level.grid.shape
        super().__init__(
            mission_space=MissionSpace(mission_func=lambda: "play"),
            width=width,
            height=height,
            max_steps=int(self.level.max_steps),
            see_through_walls=see_through_walls,
            agent_view_size=view_size,
        )

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.grid = [object_of(int(cell)) for cell in self.level.grid.reshape(-1)]
        self.agent_pos = tuple(int(i) for i in self.level.agent_pos)
        self.agent_dir = int(self.level.agent_dir)

    def step(self, action: int) -> tuple:
        obs, reward, terminated, truncated, info = super().step(action)
        task, target = int(self.level.task), int(self.level.target)
        named = cell_of(self.carrying, nothing=0) & 127
        if task == PICKUP and action == TAKE and self.carrying and named == target:
            reward, terminated = self._reward(), True
        if task == OPEN and action == TOGGLE:
            door = next(thing for thing in self.grid.grid if thing and cell_of(thing) & 127 == target)
            if door.is_open:
                reward, terminated = self._reward(), True
        if task == FETCH and self.carrying:
            reward, terminated = (self._reward() if named == target else 0), True
        return obs, reward, terminated, truncated, info


class Record(NamedTuple):
    """What happened in T steps. All but the actions is as it was after them."""

    action: np.ndarray  # i32[T]
    grid: np.ndarray  # u16[T, h, w]
    carrying: np.ndarray  # u16[T]
    agent_pos: np.ndarray  # i32[T, 2]
    agent_dir: np.ndarray  # i32[T]
    image: np.ndarray  # u8[T, v, v, 3]
    reward: np.ndarray  # f64[T]
    terminated: np.ndarray  # bool[T]
    truncated: np.ndarray  # bool[T]


OBJECTS = {codes.EMPTY: "empty", codes.WALL: "wall", codes.FLOOR: "floor", codes.GOAL: "goal", codes.LAVA: "lava"}
ITEMS = {codes.KEY: "key", codes.BALL: "ball", codes.BOX: "box"}
DOORS = ("open door", "closed door", "locked door")


def event(action: int, front: int, hands: int) -> str:
    """The row of the table of actions that a step belongs to."""
    kind = front & 15
    ahead = DOORS[front >> 7 & 3] if kind == codes.DOOR else (OBJECTS | ITEMS)[kind]
    full = "full" if hands else "empty"
    if action in (LEFT, RIGHT, DONE):
        return {LEFT: "left", RIGHT: "right", DONE: "done"}[action]
    if action == FORWARD:
        return f"forward: {ahead}, hands {full}"
    if action == TAKE:
        inside = " with contents" if front >> 9 else ""
        return f"pickup: {ahead}{inside}, hands {full}"
    if action == DROP:
        what = ITEMS[hands & 15] + (" with contents" if hands >> 9 else "") if hands else "nothing"
        return f"drop: {what if ahead == 'empty' or not hands else 'something'}, {ahead}"
    if kind == codes.BOX:
        return f"toggle: box of {OBJECTS.get((front >> 9) & 15, ITEMS.get((front >> 9) & 15, 'nothing'))}, hands {full}"
    if ahead == "locked door":
        is_key, fits = hands & 15 == codes.KEY, (hands ^ front) >> 4 & 7 == 0
        key = ("its key" if fits else "another key") if is_key else "another object" if hands else "nothing"
        return f"toggle: locked door, {key}"
    return f"toggle: {ahead}, hands {full}"


def wish(front: int, hands: int, rng: np.random.Generator, counts: Counter[str]) -> int:
    """An action: some at random, the others of one who tries what has seldom been tried, with full hands above all."""
    if rng.random() < 0.2:
        return int(rng.integers(7))
    seldom = min((FORWARD, TAKE, DROP, TOGGLE), key=lambda action: counts[event(action, front, hands)])
    if counts[event(seldom, front, hands)] < OFTEN:
        return seldom
    kind = front & 15
    if not hands and (kind == codes.KEY or (kind in ITEMS and rng.random() < 0.3)):
        return TAKE
    if kind == codes.DOOR and front >> 7 & 3:
        return TOGGLE
    if kind in (codes.EMPTY, codes.FLOOR, codes.DOOR) and rng.random() < 0.8:
        return FORWARD
    return int(rng.choice([LEFT, RIGHT]))


def played(env: MiniGridEnv, n_steps: int, seed: int, counts: Counter[str]) -> Record:
    """`n_steps` of the real MiniGrid, on the same level again after each end. `counts` has all events so far."""
    rng, rows = np.random.default_rng(seed), []
    env.reset(seed=seed)
    for _ in range(n_steps):
        front, hands = cell_of(env.grid.get(*env.front_pos)), cell_of(env.carrying, nothing=0)
        action = wish(front, hands, rng, counts)
        counts[event(action, front, hands)] += 1
        obs, reward, terminated, truncated, _ = env.step(action)
        after = grid_of(env), cell_of(env.carrying, nothing=0), np.array(env.agent_pos), env.agent_dir
        rows.append((action, *after, obs["image"].transpose(1, 0, 2), reward, terminated, truncated))
        if terminated or truncated:
            env.reset(seed=seed)
    return Record(*(np.stack(column) for column in zip(*rows, strict=True)))


def followed(env: Any, levels: Level, actions: np.ndarray) -> tuple[Any, Any]:
    """(states, time steps) [n, T, ...] of ours on the same actions, on the same level again after each end."""

    def one(level: Level, actions: jax.Array) -> tuple[Any, Any]:
        key = jax.random.key(0)
        first, _ = env.reset(key, level)

        def step(state: Any, action: jax.Array) -> tuple[Any, Any]:
            state, ts = env.step(key, state, action)
            again = jax.tree.map(lambda x, y: jnp.where(ts.done, x, y), first, state)
            return again, (state.replace(level=()), ts)

        return jax.lax.scan(step, first, actions)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(levels, jnp.asarray(actions, jnp.int32)))


def assert_same(records: list[Record], states: Any, steps: Any) -> None:
    """Ours did what the real one did, in every step."""
    for i, record in enumerate(records):
        height, width = record.grid.shape[1:]
        named = {
            "grid": (record.grid, states.grid[i, :, :height, :width]),
            "carrying": (record.carrying, states.carrying[i]),
            "agent_pos": (record.agent_pos, states.agent_pos[i]),
            "agent_dir": (record.agent_dir, states.agent_dir[i]),
            "image": (record.image, steps.obs["image"][i]),
            "direction": (record.agent_dir, steps.obs["direction"][i]),
            "terminated": (record.terminated, steps.terminated[i]),
            "truncated": (record.truncated, steps.truncated[i]),
        }
        for name, (theirs, ours) in named.items():
            differs = (theirs != ours).reshape(len(theirs), -1).any(axis=1)
            assert not differs.any(), f"{name} differs in record {i}, first in step {differs.argmax()}"
        np.testing.assert_allclose(record.reward, steps.reward[i], atol=1e-6)


KINDS = (2, 3, 4, 4, 4, 5, 5, 5, 6, 7, 7, 7, 7, 8, 9)


def soup(
    rng: np.random.Generator,
    shape: tuple[int, int],
    task: int,
    max_steps: int,
    density: float = 0.4,
    kinds: tuple[int, ...] = KINDS,
) -> Level:
    """A random level inside a border: things of random `kinds` on a part of the cells, and a target for the task."""
    left_out, *colours = rng.permutation(6)[: 1 + rng.choice([1, 1, 2, 3])]  # with few colours, keys fit

    def thing(kinds: tuple[int, ...]) -> int:
        kind = int(rng.choice(kinds))
        if kind in (2, 8, 9):
            return {2: 82, 8: 24, 9: 9}[kind]
        cell = kind | int(rng.choice(colours)) << 4 | (int(rng.choice([0, 1, 2, 2])) if kind == 4 else 0) << 7
        return cell | content() << 9 if kind == 7 else cell

    def content() -> int:
        # A box inside a box is empty.
        return thing((5, 6, 8, 7)) & 127 if rng.random() < 0.8 else 0

    height, width = shape
    grid = np.full(shape, 82)
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            grid[y, x] = thing(kinds) if rng.random() < density else 1
    # The target is the only thing of the colour that was left out. In FETCH, others may be the same.
    own = int(left_out)
    wanted = {PICKUP: rng.choice([5, 6, 7]), OPEN: 4 | int(rng.integers(1, 3)) << 7, FETCH: rng.choice([5, 6, 7])}
    inner = rng.permutation([(y, x) for y in range(1, height - 1) for x in range(1, width - 1)])
    if task in wanted:
        grid[tuple(inner[0])] = int(wanted[task]) | own << 4
    if task == OPEN:
        grid[tuple(inner[1])] = 5 | own << 4
    if task == FETCH and rng.random() < 0.5:
        grid[tuple(inner[1])] = grid[tuple(inner[0])]
    y, x = inner[2]
    grid[y, x] = 1
    target = int(grid[tuple(inner[0])]) & 127 if task in wanted else 0
    if task == REACH:
        grid[tuple(inner[0])] = 24
    return Level(
        grid=grid.astype(np.uint16),
        agent_pos=np.array([x, y], np.int32),
        agent_dir=np.int32(rng.integers(4)),
        task=np.int32(task),
        target=np.int32(target),
        max_steps=np.int32(max_steps),
        difficulty=np.int32(0),
    )


ORDER = (REACH, PICKUP, OPEN, REACH, PICKUP, OPEN, FETCH)  # of tasks; most episodes of FETCH end at once


def soups(n: int, height: int, width: int, seed: int, **settings: Any) -> list[Level]:
    """`n` levels of `soup`, all tasks among them."""
    rng = np.random.default_rng(seed)
    return [soup(rng, (height, width), ORDER[i % len(ORDER)], int(rng.integers(50, 200)), **settings) for i in range(n)]
