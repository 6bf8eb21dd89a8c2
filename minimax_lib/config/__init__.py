"""The configuration of a run, from the command line, YAML files or plain dicts.

The names below are imported when they are first used: commands that only read tables need none of them, and start
without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minimax_lib.config.flags import parse as parse
    from minimax_lib.config.train import Config as Config
    from minimax_lib.config.train import from_dict as from_dict
    from minimax_lib.config.train import load_yaml as load_yaml
    from minimax_lib.config.train import save_yaml as save_yaml
    from minimax_lib.config.train import to_dict as to_dict

HOMES = dict.fromkeys(("Config", "from_dict", "load_yaml", "save_yaml", "to_dict"), "train") | {"parse": "flags"}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(importlib.import_module(f"minimax_lib.config.{HOMES[name]}"), name)
    raise AttributeError(f"module 'minimax_lib.config' has no attribute {name!r}")
