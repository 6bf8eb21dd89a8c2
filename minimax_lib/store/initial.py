"""The parameters that the students of a run begin with, where these are not random."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.config import Config
from minimax_lib.config.paths import at_home
from minimax_lib.messages import failure, shown
from minimax_lib.runners.seeds import Program
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.loaded import LoadedRun, opened_run
from minimax_lib.store.parameters import forms_of, load_params, named
from minimax_lib.store.saved import find_run

MOST_SHOWN = 3  # arrays in a message


Source = LoadedRun | dict[str, Any]  # a run, or the parameters in a file
Reader = Callable[[str, tuple[str, ...]], Source]


def read_source(source: str, plugins: tuple[str, ...]) -> Source:
    """What `init_from` names: the file of parameters, or the run. ValueError in one line where it cannot be read."""
    from minimax_lib.store.checkpoint import CheckpointError  # slow: not before the checks

    path = at_home("init_from", source)
    if source.endswith(".npz"):
        return load_params(path)
    try:
        return opened_run(find_run(path, "latest", plugins_are_given=bool(plugins)))
    except (ValueError, CheckpointError) as error:
        raise ValueError(f"init_from: {error}") from None
    except OSError as error:  # such as a folder that may not be searched
        raise ValueError(f"init_from: {failure(error)}") from None


def initial_params(config: Config, program: Program, read: Reader = read_source) -> Any | None:
    """The parameters [S, A, ...] that `config.init_from` names; None where the run begins otherwise, or goes on.

    ValueError in one line where they cannot be read, or belong to another network. `read` takes the place of
    `read_source` where many runs begin with the same.
    """
    source = config.init_from
    # A run that goes on has its own, and the other may have gone since then.
    if not source or (config.resume and saved_updates(RunFolder(config.run_folder).checkpoints)):
        return None
    params = program.shape.students.params
    n_seeds, n_students = jax.tree.leaves(params)[0].shape[:2]
    one = read(source, config.plugins)
    if isinstance(one, dict):
        if forms_of(one) == forms_of(params):  # an archive has all seeds and students
            return _finite(source, one)
        _check_as_many(source, one, params)
        parts = [[one] * n_students] * n_seeds
    else:
        parts = _of_run(source, one, range(config.seed, config.seed + n_seeds), n_students)
    # One agent's, without the axes of seeds and students.
    wanted = forms_of(_of_one(params))
    if differing := sorted(dict(set(forms_of(parts[0][0]).items()) ^ set(wanted.items()))):
        more = f" and {len(differing) - MOST_SHOWN} others" if differing[MOST_SHOWN:] else ""
        raise ValueError(
            f"init_from is {shown(source)}, which has another network than this run; different: "
            f"{', '.join(differing[:MOST_SHOWN])}{more} (give the settings --model... and --env... that it was trained "
            "with)"
        )
    rows = (jax.tree.map(lambda *x: np.stack(x), *row) for row in parts)
    return _finite(source, jax.tree.map(lambda *x: np.stack(x), *rows))


def _finite(source: str, params: Any) -> Any:
    """`params`; ValueError where some of them are not finite, as of a run that has diverged."""
    if bad := [name for name, x in named(params).items() if not np.isfinite(x).all()]:
        more = f" and {len(bad) - MOST_SHOWN} others" if bad[MOST_SHOWN:] else ""
        raise ValueError(
            f"init_from is {shown(source)}, which has numbers that are not finite in {', '.join(bad[:MOST_SHOWN])}"
            f"{more}: take parameters from before its run diverged"
        )
    return params


def _of_one(params: Any) -> Any:
    """The shapes of one agent's parameters, of those of all seeds and students."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), params)


def _check_as_many(source: str, found: Any, params: Any) -> None:
    """ValueError where a file has this network for another number of seeds or students than the run."""
    has, needs = ({x.shape[:2] for x in jax.tree.leaves(each)} for each in (found, params))
    if len(has) == 1 and has != needs and forms_of(_of_one(found)) == forms_of(_of_one(params)):
        (theirs,), (ours,) = has, needs
        raise ValueError(
            f"init_from is {shown(source)}, which holds {counted(*theirs)}, and this run has {counted(*ours)}: give as "
            "many seeds and students, the folder of its run, or the file of one agent (load_run(...).export)"
        )


def counted(n_seeds: int, n_students: int) -> str:
    """How many agents there are, in words."""
    seeds, students = (f"{n} {what}{'s' if n != 1 else ''}" for n, what in ((n_seeds, "seed"), (n_students, "student")))
    return f"{seeds} with {students}{' each' if n_seeds != 1 else ''}"


def _of_run(source: str, run: LoadedRun, seeds: Sequence[int], n_students: int) -> list[list[Any]]:
    """The parameters of one agent of `run`, for each seed and student."""
    many = len(run.seeds) > 1
    if many and not set(seeds) <= set(run.seeds):
        raise ValueError(
            f"init_from is {shown(source)}, which has the seeds {run.seeds[0]} to {run.seeds[-1]}, and this run has "
            f"{seeds[0]} to {seeds[-1]}: give seeds of that run, or the file of one agent (load_run(...).export)"
        )
    students = range(n_students) if run.n_students == n_students else [0] * n_students
    return [
        [jax.tree.map(np.asarray, run.of(seed if many else None, student).params) for student in students]
        for seed in seeds
    ]


def begun_with(state: RunnerState, params: Any) -> RunnerState:
    """The state of a run before its first step, with the parameters [S, A, ...] for its students."""

    def put(own: jax.Array, new: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(own.shape, own.sharding, lambda index: new[index])

    students = state.students
    average = jax.tree.map(put, students.average, params) if jax.tree.leaves(students.average) else students.average
    return state.replace(students=students.replace(params=jax.tree.map(put, students.params, params), average=average))
