"""The run that a trial of a sweep trains: its configuration, and its folder, which has the values in its name."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import filelock

from minimax_lib.config import Config
from minimax_lib.config.sweep import Sweep, nested
from minimax_lib.config.train import from_dict, to_dict
from minimax_lib.config.tree import NAME, Tree, flat, left_behind, overlay
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.messages import shortened
from minimax_lib.runners.build import program_of, with_runner
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.initial import initial_params, read_source
from minimax_lib.store.provenance import FREE

NOTES = "trials"  # the folder for what is known of trials outside their runs
LONGEST, DIGEST = 80, 8  # characters of the readable part of a folder's name, and of the fingerprint behind it

Check = Callable[[Config], None]  # raises ValueError for a configuration that cannot be trained in a sweep


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """The run of one trial."""

    number: int  # of the trial, from 1
    label: str  # of the configuration it starts from; empty where there is only one
    asked: Tree  # all that was asked for, on top of the defaults
    config: Config
    varied: dict[str, Any]  # dotted name -> its value in this trial
    sweep_folder: Path
    left_behind: tuple[str, ...] = ()  # see `tree.left_behind`

    def __str__(self) -> str:
        said = [self.label] if self.label else []
        return ", ".join(said + [f"{name}={as_text(value)}" for name, value in self.varied.items()])

    @functools.cached_property
    def name(self) -> str:
        """The name of the folder: the values, and a fingerprint of all that was asked for.

        It is the same whenever the same is asked for, wherever the trial stands in the file.
        """
        short = short_names(list(self.varied))
        said = [self.label] if self.label else []
        said += [f"{short[name]}-{as_text(value)}" for name, value in self.varied.items()]
        readable = re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(said)).strip("._-")[:LONGEST]
        digest = fingerprint(that_matter(self.asked, self.config))
        return f"{readable}_{digest}" if readable else digest

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.sweep_folder / self.name)

    @property
    def file(self) -> Path:
        """The configuration that the training is started with."""
        return self.sweep_folder / NOTES / f"{self.name}.yaml"

    @property
    def log(self) -> Path:
        """What the processes of the trial have printed."""
        return self.sweep_folder / NOTES / f"{self.name}.log"

    def lock(self) -> filelock.FileLock:
        """Held by the process that trains the trial. It ends with the process, also after kill -9."""
        return filelock.FileLock(self.sweep_folder / NOTES / f".{self.name}.lock", timeout=0)

    def settings(self) -> Tree:
        """Every setting of the run."""
        return to_dict(self.config) | {"log_dir": str(self.sweep_folder), "name": self.name}


def run_of(sweep: Sweep, number: int, label: str, *values: Any, check: Check) -> SweepRun:
    """The run with these values of what is varied; ValueError in one line if it is impossible."""
    varied = dict(zip(sweep.vary, values, strict=True))
    # The varied ones first: a setting goes with the name that is chosen beside it, in whatever order they stand.
    above = functools.reduce(overlay, (nested({name: value}, "vary") for name, value in varied.items()), Tree())
    below = overlay(sweep.bases[label], sweep.fixed)
    asked = overlay(below, above)
    run = SweepRun(number, label, asked, Config(), varied, sweep.folder)
    try:
        config = from_dict(asked)
        if not config.eval.every:
            raise ValueError("eval.every is 0: trials are sorted by evaluations, so that it must be at least 1")
        found = flat(to_dict(config))
        # A group that is chosen by name has no own value: what was asked for is shown.
        varied = {name: found.get(name, found.get(f"{name}.{NAME}", value)) for name, value in varied.items()}
        lost = tuple(left_behind(below, above, to_dict(config)))
        whole = dataclasses.replace(run, config=config, varied=varied, left_behind=lost)
        # As the trial is trained: one that has a checkpoint goes on with it.
        check(dataclasses.replace(config, log_dir=str(whole.sweep_folder), name=whole.name, resume=True))
    except ValueError as error:
        which = f" ({shortened(str(run), 200)})" if str(run) else ""
        raise ValueError(f"trial {number}{which}: {error}") from None
    return whole


def check_of(sweep: Sweep, trains: bool = True) -> Check:
    """The check that a configuration can be trained and scored in the sweep.

    Without `trains`, what `init_from` names is not looked at: a table is made when it has gone, too.
    """
    wanted = sweep.keys.score.tasks
    read = functools.cache(read_source)  # most trials begin with the same

    def check(config: Config) -> None:
        if config.distributed:
            raise ValueError("distributed is on: a trial of a sweep is one process")
        config, runner = with_runner(config)
        if trains:
            initial_params(config, program_of(config, runner), read)
        evaluated = config.eval.build(config.env, runner.agent.agent).names
        scored = make_held_out(config.env, tasks_of_run(wanted, config.runner)).names
        missing = [task for task in scored if task not in evaluated]
        if missing:
            raise ValueError(
                f"eval.tasks is {', '.join(config.eval.tasks)}, without {missing[0]}, which score.tasks asks for: "
                "name the same in both"
            )

    return check


def refuse_same(runs: Iterable[SweepRun]) -> None:
    """ValueError where two trials would be trained in one folder."""
    named: dict[str, SweepRun] = {}
    configured: dict[str, SweepRun] = {}
    for run in runs:
        other = configured.setdefault(repr(to_dict(run.config)), run)
        if other is not run:
            raise ValueError(f"trials {other.number} and {run.number} are the same run ({other}; {run}): leave one out")
        other = named.setdefault(run.name, run)
        # Settings that do not alter the training have no part in the fingerprint, and long names are cut.
        if other is not run:
            raise ValueError(
                f"trials {other.number} and {run.number} would have one folder, {run.name}: "
                f"leave out {', '.join(name for name in run.varied if name in FREE)}, which alter no training"
            )


def that_matter(asked: Tree, config: Config) -> Tree:
    """What was asked for as dotted names with the values of `config`, but for settings that do not alter the training.

    Defaults are not among them: those of a later version may be more.
    """
    values = flat(to_dict(config))
    names = [name if name in values else f"{name}.{NAME}" for name in flat(asked)]
    return {name: values[name] for name in sorted(names) if name in values and name not in FREE}


def fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:DIGEST]


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Dotted name -> as much of its end as tells it from the others."""
    short = {}
    for name in names:
        parts = name.split(".")
        ends = [".".join(parts[i:]) for i in reversed(range(len(parts)))]
        others = [f".{other}" for other in names if other != name]
        short[name] = next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), name)
    return short


def as_text(value: Any) -> str:
    """A value of a setting, for tables and names."""
    if isinstance(value, dict):
        return " ".join([as_text(value.get(NAME, "")), *(f"{k}={as_text(v)}" for k, v in value.items() if k != NAME)])
    if isinstance(value, list | tuple):
        return " ".join(map(as_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
