"""Networks by name."""

import dataclasses
from typing import Any

from minimax_lib.messages import shown
from minimax_lib.models.grid_conv import GridConv
from minimax_lib.models.nmmo import NMMOModel
from minimax_lib.models.settings import GRU, LSTM, S5, FeedForward
from minimax_lib.models.towers import Towers
from minimax_lib.registry import Registry

MODELS: Registry[Any] = Registry(
    "model",
    {
        "lstm": LSTM,
        "gru": GRU,
        "s5": S5,
        "ff": FeedForward,
        "towers": Towers,
        "grid_conv": GridConv,
        "nmmo": NMMOModel,
    },
)


def register_model(name: str, settings: Any) -> Any:
    """Adds a network to the choices of `--model`; the fields of `settings` become its flags.

    `settings` is a frozen dataclass whose fields all have defaults. Its method `build(observation_space, action_space)`
    returns a `minimax_lib.models.network.Network`, or raises ValueError where the network cannot take these spaces.
    The docstring of `Network` says what a network must do, and `minimax_lib.testing.models.check_model` checks it.
    """
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings) and hasattr(settings, "build")):
        raise ValueError(
            f"model {name!r} is registered with {shown(settings)}: it must be a dataclass of settings with a method "
            "build(observation_space, action_space)"
        )
    for field in dataclasses.fields(settings):
        if field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"model {name!r} is registered with a setting without a default: give {field.name!r} one")
    return MODELS.register(name, settings)
