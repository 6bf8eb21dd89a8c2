"""Environments: one instance each; `batch` vectorises them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minimax_lib.envs import maze as maze

__all__ = ["maze"]


def __getattr__(name: str) -> Any:
    # When it is first used: `task_names` needs no JAX.
    if name in __all__:
        return importlib.import_module(f"minimax_lib.envs.{name}")
    raise AttributeError(f"module 'minimax_lib.envs' has no attribute {name!r}")
