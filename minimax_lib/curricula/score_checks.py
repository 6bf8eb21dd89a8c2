"""Whether a score can be computed where it is asked for."""

from minimax_lib.curricula.scores import SCORES
from minimax_lib.envs.spaces import Box, Discrete, MultiDiscrete, Space


def check_score(
    which: str, name: str, action_space: Space, n_students: int, n_values: int, keeps_model: bool = False
) -> None:
    """ValueError where the score called `name`, used as `which`, cannot be computed.

    There are `n_students`, who act in `action_space` and whose network gives `n_values` estimates of the value. Only
    who `keeps_model` can use a score that has a model of its own.
    """
    score = SCORES[name]
    if score.model is not None and not keeps_model:
        raise ValueError(
            f"{which} is {name!r}, which has a model of its own: only plr, accel and their relatives keep one, choose "
            "another score, such as positive_value_loss"
        )
    if score.model is not None:
        check_modelled(f"{which} is {name!r}", action_space)
    if score.needs_discrete and not isinstance(action_space, Discrete):
        raise ValueError(
            f"{which} is {name!r}, which needs Discrete actions, but the environment's are "
            f"{type(action_space).__name__}: choose a score of values or returns, such as positive_value_loss"
        )
    if n_students < score.n_students:
        bound = f"{'' if score.most_students else 'at least '}{score.n_students}"
        raise ValueError(
            f"{which} is {name!r}, which compares students: runner.n_students is {n_students}, "
            f"choose {bound}, or another score"
        )
    if score.most_students is not None and n_students > score.most_students:
        raise ValueError(
            f"{which} is {name!r}, which compares {score.most_students} students: runner.n_students is {n_students}, "
            "choose the score population_regret"
        )
    if n_values < score.n_values:
        raise ValueError(f"model.n_values is {n_values}: {which}={name} needs {score.n_values}")


def check_modelled(what: str, action_space: Space) -> None:
    """ValueError where `what` has a model that reads actions, and those of `action_space` cannot be read."""
    if not isinstance(action_space, Discrete | MultiDiscrete | Box):
        raise ValueError(
            f"{what}, whose model reads actions that are numbers, but the environment's are "
            f"{type(action_space).__name__}: choose another, such as plr with the score positive_value_loss"
        )
