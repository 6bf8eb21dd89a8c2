"""The held-out mazes of the UED literature, and the suite that runs them as one batch.

Fixed mazes come from `ood_mazes.json`. Procedural mazes are drawn anew for every episode. Beside the published mazes
there are some of our own (`layouts.py`). There are two published protocols:

* "minimax": visibility is that of the training environment.
* "dcd": FourRooms and the crossings cast shadows, FourRooms has 100 steps instead of 250, and agents start facing east
  in perfect mazes.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.cells.settings import seen_image
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, is_of_training, key_of, training_sampler
from minimax_lib.envs.maze import generators, layouts
from minimax_lib.envs.maze.amaze import AMaze, EnvState, advance, begin
from minimax_lib.envs.maze.convert import is_file, maze_called
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.metrics import shortest_path
from minimax_lib.envs.spaces import Space
from minimax_lib.envs.terminal import Scene
from minimax_lib.registry import unknown_name

PROTOCOLS = ("minimax", "dcd")


@dataclasses.dataclass(frozen=True)
class Maze:
    """One held-out maze: how the level of an episode is drawn, and the rules of the episode."""

    height: int  # without the border
    width: int
    draw: Callable[[jax.Array], Level]
    max_steps: int
    dcd_max_steps: int
    dcd_shadows: bool = False  # there are shadows under the dcd protocol
    dcd_faces_east: bool = False  # agents start facing east under the dcd protocol


def _fixed(spec: dict) -> Maze:
    wall_map = np.array([[cell == "#" for cell in row] for row in spec["rows"]])
    height, width = wall_map.shape
    goals = np.array(spec["goals"], np.int32)

    def draw(key: jax.Array) -> Level:
        one = jax.random.randint(key, (), 0, len(goals)) if len(goals) > 1 else 0
        return Level(
            wall_map=jnp.asarray(wall_map),
            agent_pos=jnp.array(spec["agent"], jnp.int32),
            agent_dir=jnp.array(spec["agent_dir"], jnp.int32),
            goal_pos=jnp.asarray(goals)[one],
        )

    limit = 2 * (height + 2) * (width + 2)  # published limits count the border
    return Maze(height, width, draw, limit, limit)


def _perfect_maze(size: int) -> Maze:
    draw = functools.partial(generators.perfect_maze, size=size)
    return Maze(size - 2, size - 2, draw, 2 * size * size, 2 * size * size, dcd_faces_east=True)


def _crossing(size: int, n_crossings: int) -> Maze:
    draw = functools.partial(generators.crossing, size=size, n_crossings=n_crossings)
    return Maze(size - 2, size - 2, draw, 4 * size * size, 4 * size * size, dcd_shadows=True)


def _layout(make: Callable[..., Level], size: int) -> Maze:
    draw = functools.partial(make, size=size)
    return Maze(size - 2, size - 2, draw, 2 * size * size, 2 * size * size)


FIXED = json.loads(Path(__file__).with_name("ood_mazes.json").read_text(encoding="utf-8"))["mazes"]

MAZES: dict[str, Maze] = {
    **{name: _fixed(spec) for name, spec in FIXED.items()},
    "PerfectMaze": _perfect_maze(11),
    "PerfectMazeMedium": _perfect_maze(21),
    "PerfectMazeLarge": _perfect_maze(51),
    "PerfectMazeXL": _perfect_maze(101),
    "FourRooms": Maze(17, 17, functools.partial(generators.four_rooms, size=19), 250, 100, dcd_shadows=True),
    "SimpleCrossingS9N1": _crossing(9, 1),
    "SimpleCrossingS9N2": _crossing(9, 2),
    "SimpleCrossingS9N3": _crossing(9, 3),
    "SimpleCrossingS11N5": _crossing(11, 5),
    # Our own, for VALIDATION and HARD.
    "SimpleCrossingS13N5": _crossing(13, 5),
    "PerfectMazeS13": _perfect_maze(13),
    "PerfectMazeS17": _perfect_maze(17),
    "RoomsS13": _layout(layouts.rooms, 13),
    "RoomsS17": _layout(layouts.rooms, 17),
    "RoomsS33": _layout(layouts.rooms, 33),
    "RoomsS49": _layout(layouts.rooms, 49),
    "CorridorsS17": _layout(layouts.corridors, 17),
    "SpiralS17": _layout(layouts.spiral, 17),
    "LabyrinthS27": _layout(layouts.labyrinth, 27),
    "LabyrinthS43": _layout(layouts.labyrinth, 43),
}

BENCHMARK = (
    "SixteenRooms",
    "SixteenRoomsFewerDoors",
    "Labyrinth",
    "Labyrinth2",
    "StandardMaze",
    "StandardMaze2",
    "StandardMaze3",
    "SmallCorridor",
    "LargeCorridor",
    "PerfectMazeMedium",
    "FourRooms",
    "SimpleCrossingS11N5",
)
# What settings and checkpoints are chosen by. No maze of the benchmark has the size of one of these mazes, so none is
# among them, turned or flipped.
VALIDATION = (
    "PerfectMazeS13",
    "PerfectMazeS17",
    "RoomsS13",
    "RoomsS17",
    "CorridorsS17",
    "SimpleCrossingS9N3",
    "SimpleCrossingS13N5",
    "SpiralS17",
)
MINIMAX_VALIDATION = ("SixteenRooms", "Labyrinth", "StandardMaze")  # of the published runs; part of the benchmark
HARD = ("PerfectMazeLarge", "PerfectMazeXL", "LabyrinthS27", "LabyrinthS43", "RoomsS33", "RoomsS49")
GROUPS = {
    "validation": VALIDATION,
    "benchmark": BENCHMARK,
    "hard": HARD,
    "minimax_validation": MINIMAX_VALIDATION,
    "all": (*MAZES, TRAINING_DISTRIBUTION),
}


def pad(level: Level, height: int, width: int) -> Level:
    """The same maze in a grid of `height` x `width`, with walls below and to the right.

    The agent sees no difference, since everything outside a grid looks like a wall. ValueError if it does not fit.
    """
    # Nothing is added above and to the left, so that positions stay the same.
    h, w = level.wall_map.shape
    if h > height or w > width:
        raise ValueError(f"size=({height}, {width}) is too small for a maze of {h} x {w} cells")
    wall_map = jnp.pad(level.wall_map, ((0, height - h), (0, width - w)), constant_values=True)
    return dataclasses.replace(level, wall_map=wall_map)


def load(name: str | Sequence[str], key: jax.Array | None = None, size: tuple[int, int] | None = None) -> Level:
    """The level of that name. For several names, their levels stacked [n, ...] and padded to a common size.

    Procedural mazes, and the goals of the corridors, are drawn from `key` (default: key 0) and the name. So they do not
    depend on the other names. `size` is the (height, width) to pad to, without the border. ValueError for an unknown
    name, and for a size that is too small.
    """
    key = jax.random.key(0) if key is None else key
    if isinstance(name, str):
        level = _drawn(name, key)
        return level if size is None else pad(level, *size)
    height, width = size or common_size([_find(each) for each in name])
    levels = [pad(_drawn(each, key), height, width) for each in name]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *levels)


def _drawn(name: str, key: jax.Array) -> Level:
    # As in a suite, the key depends on the name: a maze is the same whatever is loaded with it.
    return _find(name).draw(key_of(key, name))


def _find(name: str) -> Maze:
    if is_file(name):
        return _given(maze_called(name))
    if name not in MAZES:
        raise unknown_name("maze", name, MAZES)
    return MAZES[name]


def _given(level: Level) -> Maze:
    """A maze of the user, with the time limit of the published ones."""
    height, width = level.wall_map.shape
    limit = 2 * (height + 2) * (width + 2)
    return Maze(height, width, lambda key: jax.tree.map(jnp.asarray, level), limit, limit)


def common_size(mazes: Sequence[Maze]) -> tuple[int, int]:
    """(height, width) of the smallest grid that all of `mazes` fit in."""
    return max(maze.height for maze in mazes), max(maze.width for maze in mazes)


class SuiteLevel(struct.PyTreeNode):
    """A level with its rules. The rules are arrays, so that tasks with different rules can be one batch."""

    maze: Level
    max_steps: jax.Array  # i32[]
    see_through_walls: jax.Array  # bool[]


class SuiteState(struct.PyTreeNode):
    """An episode on a `SuiteLevel`."""

    maze: EnvState
    max_steps: jax.Array  # i32[]
    see_through_walls: jax.Array  # bool[]


@dataclasses.dataclass(frozen=True)
class SuiteEnv(Environment):
    """The maze of `training`, on levels that have their own time limit and visibility."""

    training: AMaze
    names: tuple[str, ...]
    protocol: str

    def tasks(self) -> list[Maze]:
        """The named mazes. The training distribution may be one of them."""
        env = self.training

        def own(name: str) -> Maze:
            return Maze(env.height, env.width, training_sampler(env, name), env.max_steps, env.max_steps)

        return [own(name) if is_of_training(name) else _find(name) for name in self.names]

    def limit(self, maze: Maze) -> int:
        return maze.dcd_max_steps if self.protocol == "dcd" else maze.max_steps

    @property
    def varied_visibility(self) -> bool:
        """Whether some levels cast shadows and others do not."""
        # Known before the program is compiled: a suite without shadows does not pay for them.
        shadows = self.protocol == "dcd" and any(maze.dcd_shadows for maze in self.tasks())
        return self.training.see_through_walls and shadows

    @property
    def max_steps(self) -> int:
        """The longest limit of all tasks."""
        return max(self.limit(maze) for maze in self.tasks())

    @property
    def observation_space(self) -> Space:
        height, width = common_size(self.tasks())
        # The number of walls in training may be too large for the suite's mazes. Observations do not depend on it.
        return dataclasses.replace(self.training, height=height, width=width, n_walls=0).observation_space

    @property
    def action_space(self) -> Space:
        return self.training.action_space

    def draw(self, maze: Maze, key: jax.Array) -> SuiteLevel:
        """One level of `maze`, padded to the common size of all."""
        shadows = self.protocol == "dcd" and maze.dcd_shadows
        level = maze.draw(key)
        if self.protocol == "dcd" and maze.dcd_faces_east:
            # Only the direction differs from the other protocol. The mazes are the same.
            level = dataclasses.replace(level, agent_dir=jnp.zeros((), jnp.int32))
        return SuiteLevel(
            maze=pad(level, *common_size(self.tasks())),
            max_steps=jnp.full((), self.limit(maze), jnp.int32),
            see_through_walls=jnp.full((), self.training.see_through_walls and not shadows, bool),
        )

    def sample_level(self, key: jax.Array) -> SuiteLevel:
        """A level of a uniformly drawn task."""
        k_task, k_level = jax.random.split(key)
        draws = [functools.partial(self.draw, maze) for maze in self.tasks()]
        return jax.lax.switch(jax.random.randint(k_task, (), 0, len(draws)), draws, k_level)

    def reset(self, key: jax.Array, level: SuiteLevel) -> tuple[SuiteState, TimeStep]:
        state = SuiteState(maze=begin(level.maze), max_steps=level.max_steps, see_through_walls=level.see_through_walls)
        return state, opening(self.observe(state))

    def step(self, key: jax.Array, state: SuiteState, action: jax.Array) -> tuple[SuiteState, TimeStep]:
        maze, reward, terminated, truncated = advance(state.maze, action, state.max_steps)
        state = dataclasses.replace(state, maze=maze)
        return state, transition(self.observe(state), reward, terminated, truncated)

    def observe(self, state: SuiteState) -> dict[str, jax.Array]:
        visibility = state.see_through_walls if self.varied_visibility else self.training.see_through_walls
        return self.training.look(state.maze, visibility)

    def draw_episodes(
        self, states: SuiteState, running: np.ndarray, captions: Sequence[str], columns: int
    ) -> np.ndarray:
        """See `Environment.draw_episodes`."""
        return self.training.draw_episodes(states.maze, running, captions, columns)

    def draw_state(self, state: SuiteState) -> np.ndarray:
        """See `Environment.draw_state`."""
        from minimax_lib.envs.maze.render import draw_state

        return draw_state(state.maze, seen_image(self, state))

    @property
    def keys(self) -> Mapping[str, int]:
        """See `Environment.scene`."""
        return self.training.keys

    def scene(self, state: SuiteState) -> Scene:
        """See `Environment.scene`."""
        from minimax_lib.envs.maze.text import scene

        return scene(state.maze, seen_image(self, state))

    def get_level(self, state: SuiteState) -> SuiteLevel:
        return SuiteLevel(maze=state.maze.level, max_steps=state.max_steps, see_through_walls=state.see_through_walls)

    def level_metrics(self, level: SuiteLevel) -> dict[str, jax.Array]:
        """The metrics of AMaze, except the number of walls, which would count the padding."""
        length, solvable = shortest_path(level.maze)
        return {"shortest_path": length.astype(jnp.float32), "solvable": solvable.astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class MazeSuite:
    """The mazes called `names` as one batch (a `HeldOut`). Some may be levels of `training` (`is_of_training`)."""

    training: AMaze
    names: tuple[str, ...] = BENCHMARK
    protocol: str = "minimax"

    draws_training: ClassVar[bool] = True  # its levels are larger than those of training, and have their own rules

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise unknown_name("protocol", self.protocol, PROTOCOLS)
        for name in self.names:
            if is_file(name):
                maze_called(name)
            elif not is_of_training(name) and name not in MAZES:
                raise unknown_name("held-out task", name, [*GROUPS, TRAINING_DISTRIBUTION, *MAZES])

    @property
    def env(self) -> SuiteEnv:
        return SuiteEnv(self.training, self.names, self.protocol)

    def sample(self, key: jax.Array, n_episodes: int) -> SuiteLevel:
        """Levels [len(names), n_episodes, ...], drawn anew for each episode. They depend on `key` and its name."""

        def of_task(name: str, maze: Maze) -> SuiteLevel:
            keys = jax.random.split(key_of(key, name), n_episodes)
            return jax.vmap(functools.partial(self.env.draw, maze))(keys)

        # One vmap for each task, since each has its own generator. After padding, all levels have the same shape.
        tasks = [of_task(name, maze) for name, maze in zip(self.names, self.env.tasks(), strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
