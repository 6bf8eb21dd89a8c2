"""Networks by name."""

from typing import Any

from minimax_lib.models.settings import GRU, LSTM, S5, FeedForward
from minimax_lib.registry import Registry

MODELS: Registry[Any] = Registry("model", {"lstm": LSTM, "gru": GRU, "s5": S5, "ff": FeedForward})


def register_model(name: str, settings: Any) -> Any:
    """Adds a network: a frozen dataclass of settings whose `build(observation_space, action_space)` returns a module.

    The module has `init_carry(shape)`, `__call__` and `action_space` like those of `ActorCritic`.
    """
    return MODELS.register(name, settings)
