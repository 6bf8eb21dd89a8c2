"""A score of levels: how far off the values were, where large errors count more."""

import jax.numpy as jnp

from minimax_lib.curricula.scores import Score, finished, per_step

squared_td_error = per_step(lambda x: jnp.square(x.td_error), meaning="squared TD error")


def _spread(x):
    """The gap between the best and the worst student; -inf where nobody has finished an episode."""
    returns = x.episodes.mean  # [students, levels]
    return finished(x, returns.max(axis=0) - returns.min(axis=0))


spread = Score(_spread, n_students=2, meaning="best less worst mean return of the students")
