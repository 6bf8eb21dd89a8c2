"""The configuration of a run: every default, and what it means, stands here or in the group that it belongs to."""

import dataclasses
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Literal

from minimax_lib.agents.ppo import PPO
from minimax_lib.config.files import read_yaml, write_yaml
from minimax_lib.config.own_teacher import with_teacher_named
from minimax_lib.config.paths import check_cache, check_path
from minimax_lib.config.shipped import RUNS, located
from minimax_lib.config.tree import Tree, build, checked, to_tree
from minimax_lib.config.values import MAX_INTEGER, convert
from minimax_lib.config.wandb import Wandb
from minimax_lib.curricula.levels.designed import with_own_teacher
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.envs.base import check_derives
from minimax_lib.envs.registry import ENVS
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.messages import shortened, shown
from minimax_lib.models.registry import MODELS
from minimax_lib.runners.hosts import Hosts

AUTO: Literal["auto"] = "auto"  # for n_devices
LONGEST_REASON = 300  # characters


@dataclasses.dataclass(frozen=True)
class Config:
    """A run, completely: the same configuration gives the same run.

    In Python, `Config(env="Pendulum", runner="plr")` chooses by name, with the default settings of what is chosen.
    """

    env: Annotated[Any, ENVS] = dataclasses.field(default_factory=ENVS["AMaze"])
    """The environment and the levels it draws."""
    model: Annotated[Any, MODELS] = dataclasses.field(default_factory=MODELS["lstm"])
    """The students' network."""
    runner: Annotated[Any, RUNNERS] = dataclasses.field(default_factory=RUNNERS["dr"])
    """The curriculum that levels come from, and the size of a batch of experience."""
    ppo: PPO = dataclasses.field(default_factory=PPO)
    """How the students learn."""
    eval: Evaluation = dataclasses.field(default_factory=Evaluation)
    """Evaluation on held-out tasks during the run."""

    seed: int = 0
    """Seed of the run; with several, seed i is that of a run with --seed SEED+i alone."""
    n_seeds: int = 1
    """Independent runs side by side, as one program."""
    n_devices: int | Literal["auto"] = 1
    """Devices to train on, of all hosts; on a CPU, cores. Rows of a batch, or seeds, are divided among them. auto: as
    many as there are and can have equal parts."""
    n_seed_devices: int = 1
    """Groups of devices among which the seeds are divided. The rows of a batch are divided within a group."""
    distributed: bool = False
    """Be one of several processes (one a host) of this run; each is started with the same flags."""
    hosts: Hosts = dataclasses.field(default_factory=Hosts)
    """How the processes of a distributed run find each other."""
    n_updates: int = 30_000
    """Length of the run, in gradient updates of a student (each is one rollout learnt from)."""
    log_dir: str = RUNS
    """Folder of the runs' folders."""
    name: str = ""
    """Name of the run's folder; empty: made of the environment, runner, model and seed."""
    log_every: int = 10
    """Updates in one interval: one call of the compiled program, one row of metrics.csv."""
    checkpoint_every: int = 1000
    """Updates from one checkpoint to the next, saved at the end of an interval; the end of the run is always saved."""
    keep_checkpoints: int = 2
    """Newest checkpoints that are kept."""
    archive_every: int = 0
    """Updates from one file in archive/ to the next, each the parameters alone and kept for ever; the end of the run
    is one of them. 0: none."""
    pictures_every: int = 0
    """Updates from one set of pictures in levels/ to the next: the best levels, where levels come from, designs, and
    episodes of the agent (see minimax-draw). They are drawn in the background. 0: none."""
    init_from: str = ""
    """A run, a trained agent of the package, or a file of parameters (.npz): the students begin with its parameters.
    The optimiser and the curriculum begin anew. Empty, in a file: with random ones."""
    resume: bool = False
    """Continue the run in the folder of this name from its newest checkpoint, if there is one."""
    report: bool = True
    """After the last update, compare the trained agent with the untrained one, or with that of init_from, and draw its
    way through a few levels."""
    tensorboard: bool = False
    """Write curves for TensorBoard beside metrics.csv and eval.csv; needs the extra `tensorboard`."""
    wandb: Wandb = dataclasses.field(default_factory=Wandb)
    """Curves and pictures in Weights & Biases; needs the extra `wandb`."""
    plugins: tuple[str, ...] = ()
    """Modules to import first, which register your environments, models and runners. On --resume, by flag only."""
    compilation_cache: str = "auto"
    """Folder that keeps compiled programs: auto (your cache folder, or $JAX_COMPILATION_CACHE_DIR), none, or a path.
    On --resume, by flag only."""

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in checked(Config, given).items():
            object.__setattr__(self, name, value)
        check_derives(type(self.env))
        # Here, where the environment is known: files and the help then name the teacher that is meant.
        object.__setattr__(self, "runner", with_own_teacher(self.runner, self.env))
        # Likewise, they name the list of levels that is meant.
        object.__setattr__(self, "eval", self.eval.of_run(self.runner))
        counts = ("n_seeds", "n_seed_devices", "n_updates", *self._if_known("n_devices"))
        for name in (*counts, "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("archive_every", "pictures_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 0")
        if self.pictures_every and self.env.draw_episodes is None:
            raise ValueError(
                f"pictures_every is {self.pictures_every}: it must be 0, as {type(self.env).__name__} has no method to "
                "draw its episodes"
            )
        # The seeds are seed, seed + 1, ...: the last of them must fit in 32 bits too.
        if not 0 <= self.seed <= MAX_INTEGER - self.n_seeds:
            raise ValueError(f"seed is {self.seed}: it must be between 0 and {MAX_INTEGER - self.n_seeds}")
        for name in (*self._if_known("n_devices"), "n_seeds"):
            value, groups = getattr(self, name), self.n_seed_devices
            if value % groups:
                raise ValueError(f"{name} is {value}: it must be a multiple of n_seed_devices, which is {groups}")
        for name in ("log_dir", "name", "init_from", "compilation_cache"):
            check_path(name, getattr(self, name))
        # An empty path would be the current folder, and is more likely a variable that is not set.
        if not self.log_dir:
            raise ValueError("log_dir is '': it must be a folder, such as runs (the current one is .)")
        check_cache(self.compilation_cache)
        if self.name != Path(self.name).name or self.name == "..":
            raise ValueError(f"name is {shown(self.name)}: it must be the name of a folder, without the way to it")

    @property
    def run_name(self) -> str:
        """The name of the run's folder."""
        chosen = (ENVS.name_of(type(self.env)), RUNNERS.name_of(type(self.runner)), MODELS.name_of(type(self.model)))
        return self.name or "-".join(chosen).lower() + f"-s{self.seed}"

    def _if_known(self, name: str) -> tuple[str, ...]:
        """The setting, unless it is auto."""
        return () if getattr(self, name) == AUTO else (name,)

    @property
    def device_count(self) -> int:
        """The number of devices. ValueError if it is auto: `with_devices` finds the number first."""
        if self.n_devices == AUTO:
            raise ValueError(f"n_devices is {AUTO!r}: give a number, or use with_devices(config)")
        return int(self.n_devices)

    @property
    def n_row_devices(self) -> int:
        """Devices among which the rows of a batch are divided."""
        return self.device_count // self.n_seed_devices

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        return Path(self.log_dir) / self.run_name


def to_dict(config: Config) -> Tree:
    """Every setting as plain values: `from_dict(to_dict(config)) == config`."""
    return to_tree(config)


def from_dict(tree: Tree) -> Config:
    """The configuration that a tree of plain values asks for, its plugins imported first.

    ValueError in one line, with the nearest valid name, for what is unknown, of the wrong type or impossible.
    """
    if not isinstance(tree, dict):
        raise ValueError(f"the configuration is {shown(tree)}: it must be a dict of settings")
    # Before all else: plugins register names that the rest of the tree may choose from.
    import_plugins(convert(tree.get("plugins", ()), tuple[str, ...], "plugins"))
    env = build(Config, {"env": tree["env"]} if "env" in tree else {}).env
    return build(Config, with_teacher_named(Config, tree, env))


def save_yaml(config: Config, path: str | Path) -> None:
    """A file that gives exactly this configuration back."""
    write_yaml(to_dict(config), path)


def load_yaml(path: str | Path) -> Config:
    """The configuration in a file, or a shipped one by its name (`maze/dr`).

    ValueError as `from_dict` and `read_yaml`, with the name of the file.
    """
    tree = read_yaml(located(str(path)))
    try:
        return from_dict(tree)
    except ValueError as error:
        raise ValueError(f"config file {shown(str(path))}: {error}") from None


def import_plugins(modules: tuple[str, ...]) -> None:
    """Imports the modules, from the current folder too; ValueError for one that is not there or does not work."""
    # The installed command does not look in the current folder. At the end of the path, a file there cannot
    # take the place of a package.
    if modules and (here := _current_folder()) not in sys.path:
        sys.path.append(here)
    for module in modules:
        # importlib would take "./mine.py" for a relative import, and fail with an error about packages.
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"plugin {shown(module)} is not the name of a module: give it as package.module")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"plugin {shown(module)} cannot be imported: {_reason(error)}") from None
        # The user's code, which may fail in any way. It may even end the process, as a script does.
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}{_place(error)}: {_reason(error)}"
            raise ValueError(f"plugin {shown(module)} cannot be imported: {what}") from None


def _current_folder() -> str:
    """The current folder, where plugins are looked for; ValueError where it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ValueError(
            "plugins are looked for in the current folder, which has been deleted: change to another"
        ) from None


def _reason(error: BaseException) -> str:
    """The message of an error in one line."""
    return shortened(" ".join(str(error).split()), LONGEST_REASON) or "it says no more"


def _place(error: BaseException) -> str:
    """The place in a plugin where an error was raised; empty if its message says so."""
    frames = traceback.extract_tb(error.__traceback__)
    return "" if isinstance(error, SyntaxError) else f" in line {frames[-1].lineno} of {frames[-1].filename}"
