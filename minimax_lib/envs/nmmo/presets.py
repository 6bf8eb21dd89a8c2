"""The worlds that there are by name, as settings of `NMMO`."""

from typing import Any, Literal

Preset = Literal["medium", "small", "mini", "mini_npc", "competition"]
_ALL = {"combat": True, "items": True, "market": True}
_NONE = {"combat": False, "items": False, "market": False}
_SMALL = {
    "centre": 32,
    "clusters": 4,
    "single_resources": 16,
    "npc_level_max": 5,
    "sharpness_low": 0.0,
}
# What the settings are that nobody has set. medium and small: the reference's Default and Small. mini and mini_npc:
# small maps for learning on a few cores. competition: that of NeurIPS 2023.
_MEDIUM = {
    "n_players": 128,
    "centre": 128,
    "max_steps": 1024,
    "n_neighbours": 32,
    "clusters": 64,
    "single_resources": 256,
    "npc_level_max": 10,
    "sharpness_low": -2.0,
    **_ALL,
}
PRESETS: dict[str, dict[str, Any]] = {
    "medium": {"n_npcs": 128, **_MEDIUM},
    "small": {"n_players": 64, "n_npcs": 32, "max_steps": 128, "n_neighbours": 32, **_SMALL, **_ALL},
    "mini": {"n_players": 24, "n_npcs": 0, "max_steps": 256, "n_neighbours": 16, **_SMALL, **_NONE},
    "mini_npc": {"n_players": 24, "n_npcs": 16, "max_steps": 256, "n_neighbours": 16, **_SMALL, **_ALL},
    "competition": {"n_npcs": 256, **_MEDIUM},
}
# Held-out worlds, and those in which a curriculum measures its tasks: without what spares time in training or helps to
# learn. A death costs what it costs by default, so that returns of all runs can be compared.
AS_TESTED: dict[str, Any] = {
    "stop_below": 0,
    "horizon_jitter": 0.0,
    "resilient": 0.0,
    "health_reward": 0.0,
    "shaping": "none",
    "death_reward": -1.0,
}
