"""Reading of runs on disk. Nothing in their folders is changed."""

import dataclasses
import difflib
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from minimax_lib.config import Config, from_dict, to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.runs import harmless
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.folder import RunFolder
from minimax_lib.experiment.provenance import configuration_of, edited, free_settings
from minimax_lib.registry import unknown_name
from minimax_lib.runners.build import make_runner, mesh_of
from minimax_lib.runners.devices import whole_state


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on disk, and which of its checkpoints to take."""

    folder: RunFolder
    config: Config
    update: int | None  # None: the newest that can be read

    @property
    def results(self) -> Path:
        """Where its evaluations are kept."""
        return self.folder.path / "evaluations"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.config.seed, self.config.seed + self.config.n_seeds))


def find_run(path: Path, checkpoint: int | Literal["latest"], plugins_are_given: bool = False) -> Run:
    """The run in the folder `path`; ValueError in one line if there is none, or not that checkpoint of it.

    Nothing is imported that the folder names: a run with plugins is refused unless the user has given some.
    """
    folder = RunFolder(path)
    if not path.is_dir():
        raise no_such_run(path)
    if not folder.config.exists():
        raise ValueError(f"{path} is not the folder of a run: it has no {folder.config.name}")
    updates = saved_updates(folder.checkpoints)
    if not updates:
        raise ValueError(f"{path} holds no checkpoint: there is nothing to evaluate yet")
    if checkpoint != "latest" and checkpoint not in updates:
        raise ValueError(f"{path} has no checkpoint {checkpoint}: choose from {', '.join(map(str, updates))}, latest")
    only = None if checkpoint == "latest" else checkpoint
    config = config_of(folder, plugins_are_given)
    check_not_edited(folder, config, only)
    return Run(folder, config, only)


def config_of(folder: RunFolder, plugins_are_given: bool) -> Config:
    """The configuration in the folder, without what it names to be imported; ValueError in one line as `from_dict`."""
    tree = harmless(read_yaml(folder.config), folder.config, plugins_are_given)
    try:
        config = from_dict(tree)
        make_runner(config)  # refuses settings that do not fit together
    except ValueError as error:
        raise ValueError(f"config file {str(folder.config)!r}: {error}") from None
    return config


def check_not_edited(folder: RunFolder, config: Config, only: int | None) -> None:
    """ValueError where the checkpoint that will be taken belongs to another configuration than `config`."""
    found = configuration_of(folder.checkpoints, only)
    if found is None or found[1] is None:
        return  # of an earlier version: config.yaml is all there is
    changes = edited(found[1], to_dict(config), free_settings(config))
    if changes:
        raise ValueError(
            f"{folder.config} has been edited: the checkpoint of update {found[0]} belongs to another configuration, "
            f"{'; '.join(changes)}"
        )


def no_such_run(path: Path) -> ValueError:
    """The error for a folder that does not exist, with the runs beside it whose names are nearest."""
    runs = [str(config.parent) for config in path.parent.glob("*/config.yaml")]
    # However far off (no cutoff): any run of the folder is a better hint than none.
    nearest = difflib.get_close_matches(str(path), runs, n=5, cutoff=0.0)
    return unknown_name("run", path, nearest) if nearest else ValueError(f"run {str(path)!r} does not exist")


def restore(run: Run, console: Console) -> tuple[int, Any]:
    """(number of updates, parameters [S, A, ...]) of the run's checkpoint; CheckpointError if it cannot be read."""
    from minimax_lib.experiment.checkpoint import CheckpointError, Checkpoints, placed  # slow: not before the checks

    # The shapes are those of the run's own devices, but all is read onto one: there may be fewer devices here.
    shape = whole_state(make_runner(run.config), run.config.n_seeds, mesh_of(run.config))
    with Checkpoints(run.folder.checkpoints, read_only=True) as checkpoints:
        restored = checkpoints.restore(placed(shape), run.update)
    if restored is None:
        raise CheckpointError(f"{run.folder.path} holds no checkpoint any more")
    for update, why in restored.damaged.items():
        console.print(f"the checkpoint of update {update} is damaged ({why}): taking {restored.update}", soft_wrap=True)
    return restored.update, restored.state.students.params
