"""The PyPI package `minigrid` itself on levels of the object world. Import it only where minigrid is installed."""

from typing import Any

from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import WorldObj

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.real_minigrid import MiniGridOnLevels
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import FETCH, OPEN, PICKUP, TASKS, Level

TARGETS = [f"{colour} {kind}" for colour in codes.COLOURS for kind in ("door", "key", "ball", "box")]


class RealMiniGrid(MiniGridOnLevels):
    """The real MiniGrid in `env`'s frame and with its view.

    `reset(options={"level": level})` says which level is played, from then on. In a vector environment, all rows get
    the same options: with `{"levels": levels}` [B, ...], each takes that of its own `row`. The tasks pay and end as
    MiniGrid's own do.
    """

    def __init__(self, env: GridWorld, row: int = 0, **options: Any):
        super().__init__(
            row,
            mission_space=MissionSpace(mission, [list(TASKS), ["goal", *TARGETS]]),
            width=env.width,
            height=env.height,
            max_steps=env.max_steps,
            see_through_walls=env.see_through_walls,
            agent_view_size=env.view_size,
            **options,
        )

    def shape_of(self, level: Level) -> tuple[int, ...]:
        return level.grid.shape

    def wanted_shape(self) -> tuple[int, ...]:
        return self.height, self.width

    def _gen_grid(self, width: int, height: int) -> None:
        level = self.level
        self.max_steps = int(level.max_steps)
        self.grid = Grid(width, height)
        self.grid.grid = [object_of(int(cell)) for cell in level.grid.reshape(-1)]
        x, y = level.agent_pos
        self.agent_pos = (int(x), int(y))
        self.agent_dir = int(level.agent_dir)
        self.mission = mission(TASKS[int(level.task)], target_name(int(level.target)))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs: Any
        obs, reward, terminated, truncated, info = super().step(action)
        ends, is_success = self._outcome(int(action))
        if ends:
            reward, terminated = (self._reward() if is_success else 0), True
        return obs, float(reward), terminated, truncated, info

    def _outcome(self, action: int) -> tuple[bool, bool]:
        """(the task is over, it is done). What is stepped on is MiniGrid's own business."""
        level = self.level
        task, target = int(level.task), int(level.target)
        has_target = self.carrying is not None and name_of(self.carrying) == target
        if task == PICKUP:
            picked_up = action == self.actions.pickup and has_target
            return picked_up, picked_up
        if task == FETCH:
            return self.carrying is not None, has_target
        if task == OPEN and action == self.actions.toggle:
            doors: list[Any] = [thing for thing in self.grid.grid if thing and name_of(thing) == target]
            is_open = any(door.is_open for door in doors)
            return is_open, is_open
        return False, False


def mission(task: str, thing: str) -> str:
    """What the agent is told."""
    return f"{task} the {thing}"


def target_name(target: int) -> str:
    """The words for a level's target."""
    if not target:
        return "goal"
    kinds = {codes.DOOR: "door", codes.KEY: "key", codes.BALL: "ball", codes.BOX: "box"}
    return f"{codes.COLOURS[int(cells.colour(target))]} {kinds[int(cells.kind(target))]}"


def name_of(thing: WorldObj) -> int:
    """Object and colour of one of MiniGrid's objects, in the form of a level's target."""
    kind, colour, _ = thing.encode()
    return int(cells.pack(kind, colour))


def object_of(cell: int) -> WorldObj | None:
    """MiniGrid's object for a cell, with what is inside of it."""
    thing: Any = WorldObj.decode(int(cells.kind(cell)), int(cells.colour(cell)), int(cells.state(cell)))
    if thing is not None and cells.inside(cell):
        thing.contains = object_of(int(cells.inside(cell)))
    return thing
