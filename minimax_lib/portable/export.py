"""Any environment of this package as one of Gymnasium's, PettingZoo's or gymnax's.

env = gymnasium_env(minimax_lib.make_env("AMaze"))              gymnasium.Env, one episode at a time
envs = gymnasium_vector_env(minimax_lib.make_env("AMaze"), 64)  gymnasium.vector.VectorEnv, one compiled batch
env = gymnax_env(minimax_lib.make_env("AMaze"))                 gymnax's reset and step, inside jit and vmap
env = parallel_env(minimax_lib.make_env("LaserTag"))            pettingzoo.ParallelEnv, for several agents
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.multi_agent import MultiAgentEnvironment
from minimax_lib.extras import check_installed

if TYPE_CHECKING:
    from minimax_lib.portable.gymnasium_env import GymnasiumEnv
    from minimax_lib.portable.gymnasium_vector import GymnasiumVectorEnv
    from minimax_lib.portable.gymnax_env import GymnaxEnv
    from minimax_lib.portable.parallel_env import MultiAgentParallelEnv

LevelSource = Callable[[jax.Array], Level]


def gymnasium_env(
    env: Environment, sample_level: LevelSource | None = None, render_mode: str | None = None
) -> "GymnasiumEnv":
    """`env` as a `gymnasium.Env`. Every episode is on a new level, `sample_level(key)`; None: the environment's own.

    `reset(options={"level": level})` chooses the level. ValueError where gymnasium is not installed.
    """
    check_installed("gymnasium", "gymnasium", "this export")
    from minimax_lib.portable.gymnasium_env import GymnasiumEnv

    return GymnasiumEnv(env, sample_level, render_mode)


def gymnasium_vector_env(
    env: Environment, num_envs: int, sample_level: LevelSource | None = None, autoreset_mode: str = "SameStep"
) -> "GymnasiumVectorEnv":
    """`num_envs` copies of `env` as a `gymnasium.vector.VectorEnv`, stepped as one compiled batch.

    Levels are those of `gymnasium_env`. `autoreset_mode` is one of Gymnasium's: SameStep, NextStep, Disabled.
    """
    check_installed("gymnasium", "gymnasium", "this export")
    from minimax_lib.portable.gymnasium_vector import GymnasiumVectorEnv

    return GymnasiumVectorEnv(env, num_envs, sample_level, autoreset_mode)


def gymnax_env(env: Environment, sample_level: LevelSource | None = None) -> "GymnaxEnv":
    """`env` with the methods of gymnax 1.x. The level is in the parameters: `env.default_params.replace(level=...)`.

    With `sample_level`, every reset draws its level instead, and the level of the parameters is ignored.
    ValueError where gymnax is not installed.
    """
    check_installed("gymnax", "gymnax", "this export")
    from minimax_lib.portable.gymnax_env import GymnaxEnv

    return GymnaxEnv(env, sample_level)


def parallel_env(
    env: MultiAgentEnvironment, sample_level: LevelSource | None = None, render_mode: str | None = None
) -> "MultiAgentParallelEnv":
    """`env`, which has several agents, as a `pettingzoo.ParallelEnv`. Levels are those of `gymnasium_env`.

    `reset(options={"level": level})` chooses the level. ValueError where pettingzoo is not installed.
    """
    check_installed("pettingzoo", "pettingzoo", "this export")
    from minimax_lib.portable.parallel_env import MultiAgentParallelEnv

    return MultiAgentParallelEnv(env, sample_level, render_mode)
