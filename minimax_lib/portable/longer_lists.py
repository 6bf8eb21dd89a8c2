"""Lists of tasks that grow: the same curriculum for more tasks."""

import dataclasses
from typing import Any

import jax

from minimax_lib.portable.host_programs import check_space, reads_of, resized
from minimax_lib.tasks.spaces import Discrete, TaskSpace


def shortened(space: TaskSpace, n: int) -> TaskSpace:
    """The first `n` tasks of a list. ValueError for a space that is no list (`Discrete`)."""
    if not isinstance(space, Discrete):
        raise ValueError(f"the space is {type(space).__name__}: only lists (Discrete) can grow")
    return dataclasses.replace(space, n=n, tasks=None if space.tasks is None else space.tasks[:n])


def grown(core: Any, given: Any, space: TaskSpace, longer: TaskSpace) -> Any:
    """`given`, or the same as `core`, for the tasks of `longer`, which begin with those of `space`.

    ValueError in one line if anything does not fit.
    """
    check_space(longer)
    if space.n is None or longer.n is None or longer.n <= space.n:
        raise ValueError(f"the longer list has {longer.n} tasks: it must have more than {space.n}")
    if shortened(longer, space.n) != space:
        raise ValueError(f"the longer list must begin with the {space.n} tasks that there are, in their order")
    if given is None:
        try:
            given = resized(core, longer.n)
        except ValueError as error:
            raise ValueError(f"{error}; give the core for {longer.n} tasks: grow(space, core)") from error
    if type(given) is not type(core) or given.n_tasks != longer.n:
        raise ValueError(
            f"core is {type(given).__name__} of {given.n_tasks} tasks: it must be {type(core).__name__} of {longer.n}"
        )
    forms: list[Any] = [jax.tree.structure(jax.eval_shape(each.init, jax.random.key(0))) for each in (core, given)]
    if forms[0] != forms[1] or reads_of(core) != reads_of(given):
        raise ValueError("core is made of other parts than the one that there is: it may have more tasks, and no other")
    return given
