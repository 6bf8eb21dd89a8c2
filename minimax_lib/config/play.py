"""The settings of `minimax-play`, from the command line."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn

from minimax_lib.config.common import Explained
from minimax_lib.config.flags import put
from minimax_lib.config.help import Flag, sections, show_flags
from minimax_lib.config.paths import check_cache_folder, check_path
from minimax_lib.config.train import import_plugins
from minimax_lib.config.tree import Tree, build
from minimax_lib.config.values import MAX_INTEGER, convert
from minimax_lib.config.words import split_flags
from minimax_lib.envs.registry import ENVS

USAGE = """Walk through mazes in a terminal, or watch a trained agent in them.
* minimax-play                                   random levels
* minimax-play --task Labyrinth                  a held-out task
* minimax-play --env.height 9 --env.width 9 --env.n-walls 20
* minimax-play --env GridWorld --env.family door_key
* minimax-play --run runs/my-run --task Labyrinth SixteenRooms"""


@dataclasses.dataclass(frozen=True)
class PlaySettings(Explained):
    """The levels of a walk, and who walks: you or an agent."""

    env: Annotated[Any, ENVS] = dataclasses.field(default_factory=ENVS["AMaze"])
    """The environment and the levels it draws; that of the run, if there is one."""
    task: tuple[str, ...] = ()
    """Held-out tasks, one after another (`minimax-train --list tasks`); empty: random levels."""
    run: str = ""
    """Folder of a run whose agent is watched, or the name of a trained agent (`minimax-train --list agents`); empty:
    you walk yourself."""
    checkpoint: int | Literal["latest"] = "latest"
    """The run's checkpoint, by its number of updates."""
    student: int = 0
    greedy: bool = False
    speed: float = 5.0
    """Steps of the agent in a second."""
    seed: int = 0
    """Seed of random levels and of what the agent does."""
    map: bool = True
    """Show the whole maze beside the view; without it, you see no more than an agent does. The key m changes it."""
    plugins: tuple[str, ...] | None = None
    compilation_cache: str = "auto"

    def __post_init__(self) -> None:
        check_path("run", self.run)
        check_cache_folder(self.compilation_cache)
        if not 0 < self.speed <= 1000:
            raise ValueError(f"speed is {self.speed}: it must be positive, and at most 1000")
        if not 0 <= self.seed <= MAX_INTEGER:
            raise ValueError(f"seed is {self.seed}: it must be between 0 and {MAX_INTEGER}")
        for name in ("checkpoint", "student"):
            value = getattr(self, name)
            if value != "latest" and value < 0:
                raise ValueError(f"{name} is {value}: it must be at least 0")


# Settings that mean nothing without a run, and settings that mean nothing with one.
ONLY_RUN: tuple[str, ...] = ("checkpoint", "student", "greedy", "speed")
ONLY_OWN: tuple[str, ...] = ("env",)


def parse(words: Sequence[str]) -> PlaySettings:
    """The settings that the command line asks for, its plugins imported; ValueError in one line for bad input.

    `--help` exits.
    """
    flags = [word for word in words if word not in ("-h", "--help")]
    tree: Tree = {}
    for name, values in split_flags(flags, "run"):
        put(tree, name.split("."), values)
    if "plugins" in tree:
        import_plugins(convert(tree["plugins"], tuple[str, ...], "plugins"))
    settings: PlaySettings = build(PlaySettings, tree)
    ignored, rule = ONLY_RUN, "is for --run only: add that, or leave it out"
    if settings.run:
        ignored, rule = ONLY_OWN, "is that of the run with --run: leave one of them out"
    for name in ignored:
        if name in tree:
            raise ValueError(f"{name} {rule}")
    if len(flags) < len(words):
        show_help(settings)
    return settings


def show_help(settings: PlaySettings) -> NoReturn:
    """Prints every flag with its meaning and its default, and exits."""
    first = (Flag("--help", "", "Show this text."),)
    show_flags(USAGE, list(sections(settings, "The walk", {}, first=first)))
