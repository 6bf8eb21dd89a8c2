"""The command `minimax-train`, which `train.py` also is: trains what the command line asks for."""

import contextlib
import dataclasses
import sys
from collections.abc import Sequence

import jax

from minimax_lib.commands.status import plain_warnings, refuse
from minimax_lib.config import Config, parse, to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.flags import files_and_flags, left_behind_by
from minimax_lib.config.paths import check_cache_folder
from minimax_lib.config.train import AUTO
from minimax_lib.config.tree import flat
from minimax_lib.config.wandb import Wandb
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.levels.sfl import SFLMethod
from minimax_lib.curricula.tasks.levels_and_tasks import LevelsAndTasks
from minimax_lib.curricula.tasks.listed import Tasks
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.jax_settings import check_jax
from minimax_lib.leaving import interrupted
from minimax_lib.messages import printable, shown
from minimax_lib.runners.build import mesh_of, program_of, runner_for, with_runner
from minimax_lib.runners.hosts import Hosts, join, make_devices_of_cores, n_cores
from minimax_lib.runners.memory import check_memory
from minimax_lib.runners.seeds import Program


@plain_warnings()
def main(argv: Sequence[str] | None = None) -> int:
    """The exit status, after the training; 2 after one line on stderr for a command line that asks for the impossible.

    Until the whole configuration has been found possible, nothing is compiled and nothing written.
    """
    try:
        config = parse(argv)
        check_cache_folder(config.compilation_cache)
        # Before the checks, which count the devices: from then on their number is fixed.
        if config.distributed:
            join(config.hosts, flat(to_dict(config)))
        else:
            check_alone(config.hosts)
            make_devices_of_cores(n_cores() if config.n_devices == AUTO else config.device_count)
        check_jax()
        config, program, eval_runner = check(as_saved(config))
        check_evaluated(sys.argv[1:] if argv is None else argv, program.runner.curriculum)
        check_memory(config, program)
        for line in [*left_behind_by(sys.argv[1:] if argv is None else argv, config), *doubts(config)]:
            print(f"warning: {printable(line)}", file=sys.stderr)
        from minimax_lib.experiment.run import ExperimentRunner  # slow to import: not before the checks

        keep_compiled_programs(config.compilation_cache)
        experiment = ExperimentRunner(config, program, eval_runner)
    except (ValueError, OSError) as error:
        return refuse(error, argv)
    except KeyboardInterrupt as error:
        return interrupted(error, " before the run began")
    return experiment.run()


def as_saved(config: Config) -> Config:
    """`config`, with the number of devices of the run that it resumes, if it leaves the number open and has as many."""
    path = config.run_folder / "config.yaml"
    if config.n_devices != AUTO or not config.resume or not path.exists():
        return config
    # With another number of devices, a run may differ. What is wrong with the file is said where the folder is opened.
    with contextlib.suppress(ValueError):
        saved = read_yaml(path).get("n_devices")
        if isinstance(saved, int) and saved <= jax.device_count():
            return dataclasses.replace(config, n_devices=saved)
    return config


def check(config: Config) -> tuple[Config, Program, EvalRunner]:
    """(`config` with its number of devices, its training, its evaluation); nothing is compiled.

    ValueError in one line where the parts of the configuration do not fit together.
    """
    config, runner = with_runner(config) if config.n_devices == AUTO else (config, None)
    # Check the devices first. If there are too few, an error about sharing rows would only confuse.
    if config.device_count > 1 or config.distributed:
        mesh_of(config).check_devices()
    runner = runner or runner_for(config)
    return config, program_of(config, runner), config.eval.build(config.env, runner.agent.agent)


def check_alone(hosts: Hosts) -> None:
    """ValueError for a setting of other processes, where there are none."""
    for field in dataclasses.fields(hosts):
        value = getattr(hosts, field.name)
        if value != field.default:
            raise ValueError(
                f"hosts.{field.name} is {value}, which is for --distributed only: add that, or leave it out"
            )


def check_evaluated(words: Sequence[str], curriculum: Curriculum) -> None:
    """ValueError for a flag about evaluations of tasks, where the curriculum makes none."""
    # Flags alone: a shipped file may say it for all of its cores.
    flags = files_and_flags(words)[1].get("runner", {})
    parts = (curriculum.levels, curriculum.tasks) if isinstance(curriculum, LevelsAndTasks) else (curriculum,)
    if isinstance(flags, dict) and all(isinstance(part, Tasks) and part.evaluation is None for part in parts):
        for name in ("evaluate_every", "evaluate_episodes", "evaluate_where"):
            if name in flags:
                raise ValueError(
                    f"runner.{name} is {shown(flags[name])}: leave it out, since runner.core asks for no evaluations"
                )


def doubts(config: Config) -> list[str]:
    """A line for each setting that is allowed but probably a mistake."""
    found = []
    given = vars(config.runner).get("rollouts_per_batch")  # None where the method has no such setting
    needed = -(-config.env.max_steps // config.runner.n_steps)
    if given is not None and given < needed:
        found.append(
            f"runner.rollouts_per_batch is {given}: episodes of more than {given * config.runner.n_steps} steps never "
            f"end, and levels that take so long are never scored ({needed} rollouts are enough for all)"
        )
    in_turn = config.runner.levels_per_row > 1 and not isinstance(
        config.runner, SFLMethod
    )  # SFL scores its levels apart
    if in_turn and given == needed:
        found.append(
            f"runner.rollouts_per_batch is {given} with runner.levels_per_row={config.runner.levels_per_row}: only the "
            f"first level of each row is sure to be scored ({4 * needed} rollouts are the default)"
        )
    if not config.wandb.on and config.wandb != Wandb():
        found.append("settings of wandb are given and wandb is off: add --wandb to turn it on")
    return found


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.train())
