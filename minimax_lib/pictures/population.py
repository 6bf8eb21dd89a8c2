"""How many agents of a world are alive, tick by tick."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minimax_lib.pictures import style
from minimax_lib.pictures.style import Picture
from minimax_lib.playing.crowds import CrowdEpisode


def population(worlds: Mapping[str, Sequence[CrowdEpisode]]) -> Picture:
    """The mean share of the agents alive over the worlds of each player, by its name. A world that is over has none
    but those who lived to its end."""
    longest = max(world.length for group in worlds.values() for world in group)
    means = {name: np.mean([share(world, longest) for world in group], axis=0) for name, group in worlds.items()}
    rows: list[dict[str, Any]] = [
        {"label": name, "n_worlds": len(worlds[name]), "tick": tick, "alive": float(alive)}
        for name, mean in means.items()
        for tick, alive in enumerate(mean)
    ]

    def draw() -> Any:
        drawn, ((axes,),) = style.figure(style.PANEL)
        lines = [axes.plot(mean, color=style.colour(i))[0] for i, mean in enumerate(means.values())]
        axes.set(xlabel="tick", ylabel="share of agents alive", ylim=(0, 1.02), xlim=(0, longest))
        style.legend(drawn, lines, [f"{name} ({len(worlds[name])} worlds)" for name in means], "")
        return drawn

    return Picture("population", rows, draw, [])


def share(world: CrowdEpisode, length: int) -> np.ndarray:
    """f64[length + 1], of the agents that are alive after each tick."""
    alive = world.population / len(world.progress)
    return np.append(alive, np.full(length - world.length, alive[-1]))
