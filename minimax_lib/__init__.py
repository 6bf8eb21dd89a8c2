"""A fully jitted JAX framework for autocurricula (unsupervised environment design).

The public names are imported when they are first used, so that a command line is refused before jax has to load.

Shapes in docstrings and comments are given in these letters, the outermost axis first (`f32[T, A, B]`):

    A   students of a population, which play the same levels
    B   levels of a batch
    R   rows that an agent acts on: B levels times the evaluations of each, which is one unless said otherwise
    T   steps of a rollout
    C   slots of a level buffer
    K   estimates that a network makes of one value
    N   everything flat: all rows of all students, or all entries of a list
    S   seeds, each a separate run
    M   held-out tasks, with E episodes on each
"""

import importlib
from typing import TYPE_CHECKING, Any

from minimax_lib import moved

if TYPE_CHECKING:
    from minimax_lib.curricula.registry import register_curriculum as register_curriculum
    from minimax_lib.curricula.registry import register_generator as register_generator
    from minimax_lib.curricula.registry import register_runner as register_runner
    from minimax_lib.curricula.scores import register_score as register_score
    from minimax_lib.envs.registry import make_env as make_env
    from minimax_lib.envs.registry import make_held_out as make_held_out
    from minimax_lib.envs.registry import make_ued_env as make_ued_env
    from minimax_lib.envs.registry import register_editing as register_editing
    from minimax_lib.envs.registry import register_env as register_env
    from minimax_lib.models.registry import register_model as register_model
    from minimax_lib.runners.build import make_runner as make_runner
    from minimax_lib.store.loaded import load_run as load_run
    from minimax_lib.store.parameters import load_params as load_params
    from minimax_lib.store.replays import load_replay as load_replay
    from minimax_lib.store.replays import save_replay as save_replay

__version__ = "0.1.0"

moved.install()

HOMES = {
    "load_run": "store.loaded",
    "load_params": "store.parameters",
    "load_replay": "store.replays",
    "save_replay": "store.replays",
    "make_env": "envs.registry",
    "make_held_out": "envs.registry",
    "make_ued_env": "envs.registry",
    "register_env": "envs.registry",
    "register_editing": "envs.registry",
    "register_model": "models.registry",
    "register_score": "curricula.scores",
    "register_curriculum": "curricula.registry",
    "register_runner": "curricula.registry",
    "register_generator": "curricula.registry",
    "make_runner": "runners.build",
}
MODULES = ("agents", "config", "curricula", "envs", "evaluation", "experiment", "gae", "models", "playing", "runners")

__all__ = ["__version__", *HOMES]


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(importlib.import_module(f"minimax_lib.{HOMES[name]}"), name)
    if name in MODULES:
        return importlib.import_module(f"minimax_lib.{name}")
    raise AttributeError(f"module 'minimax_lib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES, *MODULES])
