"""How replay is spread over the difficulty of the levels that a run keeps, from its newest checkpoint.

Only this figure opens checkpoints. Nothing that a folder names is imported: a run with plugins has no such figure.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from minimax_lib.messages import SCREEN, one_line
from minimax_lib.pictures import style
from minimax_lib.pictures.bootstrap import kind_of_band, mean_band
from minimax_lib.pictures.runs import Group, RunTables
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.words import MEAN, file_name, in_words, named
from minimax_lib.registry import unknown_name

MOST_BINS = 12
USUAL = "shortest_path"


@dataclasses.dataclass(frozen=True)
class Kept:
    """The levels that one seed keeps: their properties, and the probability that each is the next to be replayed."""

    seed: int
    properties: dict[str, np.ndarray]  # f64[n] each
    mass: np.ndarray  # f64[n], the sum is 1


def kept_levels(run: RunTables) -> list[Kept]:
    """The levels that each seed of a run keeps; ValueError in one line where it keeps none or cannot be opened."""
    import jax  # slow to start, as all below; other figures do without

    from minimax_lib.jax_settings import check_jax
    from minimax_lib.store.loaded import load_run

    check_jax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a newer checkpoint that is damaged
        loaded = load_run(run.path)
    found = []
    for seed in loaded.seeds:
        one = loaded.of(seed)
        kept, mass = one.level_buffer, replay_mass(one)
        levels = jax.tree.map(lambda x, kept=kept: x[kept.filled], kept.levels)
        measured = jax.device_get(jax.vmap(loaded.env.level_metrics)(levels))
        properties = {name: np.asarray(values, np.float64) for name, values in measured.items()}
        if kept.n_mutations is not None and np.any(kept.n_mutations):
            properties["n_mutations"] = kept.n_mutations[kept.filled].astype(np.float64)
        found.append(Kept(seed, properties, mass[kept.filled]))
    return found


def replay_mass(loaded: Any) -> np.ndarray:
    """f64[C], the probability that each slot of a LoadedRun's seed is the next to be replayed."""
    import jax

    from minimax_lib.curricula.level_buffer import LevelBuffer, weights
    from minimax_lib.curricula.levels.ncc import NCCState
    from minimax_lib.runners.build import mesh_of
    from minimax_lib.trees import parts_of

    filled = loaded.level_buffer.filled
    parts = jax.tree.leaves(loaded.curriculum, is_leaf=lambda part: isinstance(part, LevelBuffer))
    buffer = next((part for part in parts if isinstance(part, LevelBuffer)), None)
    learnt = parts_of(loaded.curriculum, NCCState)
    if learnt:
        mass = np.asarray(learnt[0].weights, np.float64).reshape(-1)
    elif buffer is None:  # SFL draws from what it keeps uniformly
        mass = filled.astype(np.float64)
    else:
        # A buffer that is divided among devices has an axis of devices, each of which draws from its own part.
        is_divided = mesh_of(loaded.config).n_rows > 1
        if buffer.scores.ndim > 1 + is_divided:
            raise ValueError(f"{loaded.path} has a level buffer for each co-player: none of them is surely the next")
        weigh = jax.vmap(weights, in_axes=(None, 0)) if is_divided else weights
        mass = np.asarray(weigh(replay_settings(loaded.config.runner), buffer), np.float64).reshape(-1)
    return mass / mass.sum() if mass.sum() > 0 else mass


def replay_settings(runner: Any) -> Any:
    """The settings of replay: those of the method, or in games those of its curriculum of levels."""
    from minimax_lib.curricula.level_buffer import ReplaySettings

    parts = [runner, *(getattr(runner, field.name) for field in dataclasses.fields(runner))]
    found = [part for part in parts if isinstance(part, ReplaySettings)]
    if not found:
        raise ValueError(f"how {type(runner).__name__} replays levels is not known")
    return found[0]


def replay_by_difficulty(groups: Sequence[Group], difficulty: str = "") -> Picture:
    """The replay probability of the levels of each difficulty, and the share of kept levels that have it.

    `difficulty` is a level metric of the environment; shortest_path, or the first there is, if it is empty.
    """
    found: dict[str, list[Kept]] = {}
    notes, places = [], {group.label: place for place, group in enumerate(groups)}
    for group in groups:
        kept, missing = kept_of_group(group)
        notes += missing
        if kept:
            found[group.label] = kept
    if not found:
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        raise NotDrawn(f"{notes[0]}{more}" if notes else "no run has kept a level yet")
    name = chosen_difficulty(found, difficulty)
    values = np.concatenate([one.properties[name] for kept in found.values() for one in kept])
    edges = bin_edges(values)
    middle = bin_middles(values, edges)
    parts = {label: shares_by_bin(kept, name, edges) for label, kept in found.items()}
    rows: list[dict[str, Any]] = []
    columns = ("from", "below", "replay_mean", "low", "high", "kept_mean")
    for label, (mass, kept_share) in parts.items():
        same = {"label": label, "n_seeds": len(mass), "band": kind_of_band(len(mass)), "difficulty": name}
        bins = (edges[:-1], edges[1:], mass.mean(axis=0), *mean_band(mass), kept_share.mean(axis=0))
        rows += [same | dict(zip(columns, row, strict=True)) for row in np.stack(bins, axis=1).tolist()]

    def draw() -> Any:
        from matplotlib.lines import Line2D

        drawn, ((axes,),) = style.figure(style.PANEL)
        handles = []
        for label, (mass, kept_share) in parts.items():
            i = places[label]
            (line,) = axes.plot(middle, mass.mean(axis=0), color=style.colour(i), marker=style.marker(i))
            axes.plot(middle, kept_share.mean(axis=0), color=style.colour(i), linestyle=":", linewidth=0.9)
            style.band(axes, middle, *mean_band(mass), i)
            handles.append(line)
        axes.set(xlabel=f"{named(name)} of kept levels", ylabel="share", ylim=(0, None))
        labels, note = in_words([(label, len(mass)) for label, (mass, _) in parts.items()], MEAN, "band")
        lines = [
            Line2D([], [], color="0.3", label="replay probability"),
            Line2D([], [], color="0.3", linestyle=":", linewidth=0.9, label="kept levels"),
        ]
        style.legend(drawn, [*handles, *lines], [*labels, "replay probability", "kept levels"], note)
        return drawn

    return Picture(f"replay-{file_name(name)}", rows, draw, notes)


def kept_of_group(group: Group) -> tuple[list[Kept], list[str]]:
    """(the kept levels of each seed that keeps any, a note where some runs keep none or cannot be opened)."""
    from jax.errors import JaxRuntimeError

    kept: list[Kept] = []
    missing: list[str] = []
    for run in group.runs:
        try:
            kept += [one for one in kept_levels(run) if len(one.mass)]
        except (ValueError, JaxRuntimeError) as error:  # the latter where a training holds the memory of a GPU, say
            missing.append(one_line(error, SCREEN))
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return kept, [f"{group.label}: {missing[0]}{more}"] if missing else []


def chosen_difficulty(found: dict[str, list[Kept]], difficulty: str) -> str:
    """The level metric that is the difficulty; ValueError with the nearest name for one that is not in all runs."""
    each = [one.properties for kept in found.values() for one in kept]
    known = [name for name in each[0] if all(name in properties for properties in each)]
    if difficulty and difficulty not in known:
        raise unknown_name("difficulty", difficulty, known)
    if not known:
        raise NotDrawn("the environment does not measure its levels")
    return difficulty or (USUAL if USUAL in known else known[0])


def bin_edges(values: np.ndarray) -> np.ndarray:
    """f64[B+1], edges of equal bins over `values`; of whole numbers, whole bins. The last bin is open at its end."""
    low, high = float(values.min()), float(values.max())
    if are_whole(values):
        size = max(1, int(np.ceil((high - low + 1) / MOST_BINS)))
        return np.arange(low, high + 1 + size, size, dtype=np.float64) if high > low else np.array([low, low + 1])
    return np.linspace(low, high, MOST_BINS + 1)


def bin_middles(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """f64[B], the middle of what each bin of `values` may hold: of whole numbers, the bin from 4 to 6 holds 4 and 5."""
    return (edges[:-1] + edges[1:] - are_whole(values)) / 2


def are_whole(values: np.ndarray) -> bool:
    """Whether all are whole numbers."""
    return np.array_equal(values, np.round(values))


def shares_by_bin(kept: Sequence[Kept], name: str, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(replay probability, share of the kept levels), f64[S, B] each."""
    mass, share = [], []
    for one in kept:
        values = one.properties[name]
        mass.append(np.histogram(values, edges, weights=one.mass)[0])
        share.append(np.histogram(values, edges)[0] / len(values))
    return np.stack(mass), np.stack(share)
