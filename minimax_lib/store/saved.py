"""Reading of runs on disk. Nothing in their folders is changed."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from minimax_lib.config import Config, from_dict, to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.runs import harmless
from minimax_lib.config.shipped import agent_name, located_run, shipped_agents
from minimax_lib.files import UnreadableFile
from minimax_lib.runners.build import mesh_of, runner_for
from minimax_lib.runners.devices import whole_state
from minimax_lib.store.archive import archived, read
from minimax_lib.store.files import UnreadLines, saved_updates
from minimax_lib.store.folder import RunFolder, check_is_run
from minimax_lib.store.parameters import about_params, forms_of
from minimax_lib.store.provenance import configuration_of, edited, free_settings
from minimax_lib.store.tables import KEYS, read_table

if TYPE_CHECKING:
    from minimax_lib.store.checkpoint import Restored

MOST_SHOWN = 12  # checkpoints in a message


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on disk, and which of its checkpoints to take."""

    folder: RunFolder
    config: Config
    update: int | None  # None: the newest that can be read
    archive: Path | None = None  # the file with the parameters of `update`, where there is no checkpoint of it

    @property
    def agent(self) -> str:
        """Its name, if it is a trained agent that ships with the package; else empty."""
        return agent_name(self.folder.path)

    @property
    def name(self) -> str:
        """What messages call it: its folder, or the name of a trained agent."""
        return self.agent or str(self.folder.path)

    @property
    def parameters_alone(self) -> str:
        """A phrase for errors: that there are only parameters. Empty where there is a checkpoint."""
        if self.archive is None:
            return ""
        return (
            f"{self.agent} ships with its parameters alone" if self.agent else f"{self.archive} holds parameters alone"
        )

    @property
    def results(self) -> Path:
        """Where its evaluations are kept: in its folder; those of a trained agent, in the current one."""
        # Nothing is ever written into the package. It may belong to another user.
        return Path("evaluations", self.agent) if self.agent else self.folder.path / "evaluations"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.config.seed, self.config.seed + self.config.n_seeds))


def find_run(path: Path, checkpoint: int | Literal["latest"], plugins_are_given: bool = False) -> Run:
    """The run in the folder `path`, or the trained agent of this name.

    ValueError in one line if there is none, or not that checkpoint of it. Nothing is imported that the folder names: a
    run with plugins is refused unless the user has given some.
    """
    path = located_run(path)
    check_is_run(path, shipped_agents())
    folder = RunFolder(path)
    updates, files = saved_updates(folder.checkpoints), archived(folder.archive)
    if not updates and not files:
        raise ValueError(f"{path} holds no checkpoint: there is nothing to evaluate yet")
    if checkpoint == "latest":
        # A checkpoint that is damaged is passed over. So the newest one is only known when it has been read.
        only = None if updates else max(files)
    elif isinstance(checkpoint, Integral) and (checkpoint in updates or checkpoint in files):
        only = int(checkpoint)
    else:
        raise ValueError(f"{path} has no checkpoint {checkpoint!r}: choose from {_choices(updates, files)}, latest")
    file = None if only is None or only in updates else files[only]
    config = config_of(folder, plugins_are_given)
    check_not_edited(folder, config, only, file)
    return Run(folder, config, only, file)


def _choices(updates: Sequence[int], files: Iterable[int]) -> str:
    """The updates of which a run has a checkpoint or an archive, for a message."""
    every = sorted({*updates, *files})
    if len(every) <= MOST_SHOWN:
        return ", ".join(map(str, every))
    return ", ".join(map(str, every[: MOST_SHOWN // 2])) + ", ..., " + ", ".join(map(str, every[-MOST_SHOWN // 2 :]))


def config_of(folder: RunFolder, plugins_are_given: bool) -> Config:
    """The configuration in the folder, without what it names to be imported; ValueError in one line as `from_dict`."""
    tree = harmless(read_yaml(folder.config), folder.config, plugins_are_given)
    try:
        config = from_dict(tree)
        runner_for(as_trained(config))  # refuses settings that do not fit together
    except ValueError as error:
        raise ValueError(f"config file {str(folder.config)!r}: {error}") from None
    return config


def as_trained(config: Config) -> Config:
    """`config`, with the rollouts of a batch that it was trained with where today's default cannot be meant.

    Up to revision 93aa71f, the default was not four times as many where rows play several levels in turn.
    """
    runner = config.runner
    now, needed = runner.n_rollouts(config.env.max_steps), -(-config.env.max_steps // runner.n_steps)
    if runner.levels_per_row == 1 or config.n_updates % now == 0:
        return config
    return dataclasses.replace(config, runner=dataclasses.replace(runner, rollouts_per_batch=needed))


def check_not_edited(folder: RunFolder, config: Config, only: int | None, archive: Path | None = None) -> None:
    """ValueError where the checkpoint, or `archive`, that will be taken belongs to another configuration."""
    if archive is not None:
        own = about_params(archive).get("config")
        found = (only, own if isinstance(own, dict) else None)
    else:
        found = configuration_of(folder.checkpoints, only) or (None, None)
    if found[1] is None:
        return  # of an earlier version: config.yaml is all there is
    changes = edited(found[1], to_dict(config), free_settings(config))
    if changes:
        what = "checkpoint" if archive is None else "archive"
        raise ValueError(
            f"{folder.config} has been edited: the {what} of update {found[0]} belongs to another configuration, "
            f"{'; '.join(changes)}"
        )


def restore(run: Run, console: Console) -> tuple[int, Any]:
    """(number of updates, parameters [S, A, ...]) of the run's checkpoint; CheckpointError if it cannot be read."""
    if run.archive is not None:
        return archived_params(run)
    restored = restored_state(run)
    for update, why in restored.damaged.items():
        console.print(damage(run, restored, update, why), soft_wrap=True)
    return restored.update, restored.state.students.evaluated


def restored_state(run: Run) -> "Restored":
    """The run's checkpoint, the whole state of it; CheckpointError if it cannot be read."""
    from minimax_lib.store.checkpoint import CheckpointError, Checkpoints, placed  # slow: not before the checks

    # The shapes are those of the run's own devices, but all is read onto one: there may be fewer devices here.
    shape = whole_state(runner_for(as_trained(run.config)), run.config.n_seeds, mesh_of(run.config))
    with Checkpoints(run.folder.checkpoints, read_only=True) as checkpoints:
        restored = checkpoints.restore(placed(shape), run.update)
    if restored is None:
        raise CheckpointError(f"{run.folder.path} holds no checkpoint any more")
    return restored


def env_steps_of(run: Run, update: int) -> float:
    """The environment steps of a seed of the run up to this update, the mean over its seeds; NaN if nobody knows.

    A warning says what of metrics.csv cannot be read.
    """
    try:
        _, rows = read_table(run.folder.metrics, (*KEYS, "env_steps"))
    except UnreadableFile as error:
        warnings.warn(str(error), UnreadLines, stacklevel=2)
        return math.nan
    steps: dict[str, float] = {}
    for row in rows:
        # Later intervals that only score levels have the same number of updates. The checkpoint is of the first one.
        if float(row["update"]) == update:
            steps.setdefault(row["seed"], float(row["env_steps"]))
    return sum(steps.values()) / len(steps) if steps else math.nan


def archived_params(run: Run) -> tuple[int, Any]:
    """(number of updates, parameters [S, A, ...]) in the archive of `run`; CheckpointError if it cannot be read."""
    from minimax_lib.store.checkpoint import CheckpointError  # slow: not before the checks

    assert run.archive is not None
    shape = whole_state(runner_for(as_trained(run.config)), run.config.n_seeds, mesh_of(run.config)).students.evaluated
    try:
        update, params, about = read(run.archive, forms_of(shape))
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    if about.get("seeds") != list(run.seeds):
        raise CheckpointError(f"{run.archive} does not hold the parameters of this run")
    return update, params


def damage(run: Run, restored: "Restored", update: int, why: str) -> str:
    """What to say of a newer checkpoint of `run` that could not be read."""
    return f"{run.name}: the checkpoint of update {update} is damaged ({why}): taking {restored.update}"
