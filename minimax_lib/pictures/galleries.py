"""Galleries of levels: which ones a method keeps, where its levels come from, and what a teacher designs."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.curricula.base import Curriculum, LevelBatch
from minimax_lib.curricula.levels.accel import ACCELCurriculum, ACCELState, Mutation
from minimax_lib.curricula.levels.designed import DesignedLevels
from minimax_lib.curricula.levels.parallel import Parallel
from minimax_lib.curricula.levels.plr import PLRCurriculum
from minimax_lib.curricula.levels.sfl import SFLCurriculum
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.drawing import stacked, titled
from minimax_lib.runners.build import mesh_of, runner_for
from minimax_lib.runners.training import Runner
from minimax_lib.store.loaded import KeptLevels, LoadedRun
from minimax_lib.store.saved import as_trained
from minimax_lib.trees import tree_size

TITLE = 18  # pixels, the height of letters in titles
MOST_FACTS = 2  # level metrics in a caption


class NotThere(ValueError):
    """The run has nothing of this kind to draw. One line."""


def best_levels(run: LoadedRun, n: int = 12, columns: int = 6) -> np.ndarray:
    """u8[H, W, 3]: the `n` levels of the level buffer with the highest scores, with score, age and edits.

    ValueError where the run keeps no levels, or its environment draws none.
    """
    kept = kept_levels(run)
    if not len(kept):
        raise NotThere(f"{run.path} keeps no level yet at update {run.update:,}")
    slots = kept.ranked[:n]
    picture = run.draw(at(kept.levels, slots), [caption(kept, slot) for slot in slots], columns)
    return titled(picture, f"update {run.update:,}: the highest scores of {len(kept):,} levels", TITLE)


def kept_levels(run: LoadedRun) -> KeptLevels:
    """The level buffer; NotThere where the run has none."""
    try:
        return run.level_buffer
    except ValueError as error:
        raise NotThere(str(error)) from None


def caption(kept: KeptLevels, slot: int) -> str:
    """Score, age and edits of a level, as far as the method knows them."""
    words = [f"score {kept.scores[slot]:.2f}"]
    words += [f"age {kept.ages[slot]:,}"] if kept.ages is not None else []
    words += [f"{kept.n_mutations[slot]:,} edits"] if kept.n_mutations is not None and kept.n_mutations.any() else []
    return ", ".join(words)


def sources(run: LoadedRun, n: int = 6, seed: int = 0) -> np.ndarray:
    """u8[H, W, 3]: a row of `n` levels from each source that the method has, as its next batches would bring them.

    Fresh ones are of its generator (a teacher designs them), replayed ones are drawn from the level buffer, and below
    each of these is its child. ValueError where the environment draws no levels.
    """
    rows = []
    for name, levels, captions in _sources(run, n, seed):
        rows.append(titled(run.draw(levels, captions, columns=n), name, TITLE))
    return titled(stacked(rows), f"update {run.update:,}", TITLE)


def _sources(run: LoadedRun, n: int, seed: int) -> list[tuple[str, Level, list[str]]]:
    """(source, levels [n, ...], captions) of each."""
    method = method_of(run)
    k_fresh, k_replay, k_edit = jax.random.split(jax.random.key(seed), 3)
    fresh = fresh_levels(run, n, k_fresh)
    rows = [("fresh", fresh, facts_of(run.env, fresh))]
    try:
        kept = kept_levels(run)
    except NotThere:
        return rows
    if not len(kept):
        return rows
    if method.replay is None:
        slots = np.random.default_rng(seed).choice(np.flatnonzero(kept.filled), min(n, len(kept)), replace=False)
        return [*rows, ("replayed", at(kept.levels, slots), [caption(kept, slot) for slot in slots])]
    batch = _first(jax.device_get(_replayed(method.replay, k_replay, method.buffer)), n)
    # Of several devices, the first one's levels lead.
    rows.append(("replayed", batch.levels, [caption(kept, slot) for slot in batch.slots]))
    if method.mutation is not None:
        children = jax.device_get(_children(method.mutation, k_edit, batch.levels, batch.n_mutations)).levels
        rows.append(("mutated: each the child of the level above", children, facts_of(run.env, children)))
    return rows


def lineages(run: LoadedRun, n: int = 3, columns: int = 8) -> np.ndarray:
    """u8[H, W, 3]: a row for each of the `n` kept levels with the highest scores: its ancestors, the oldest first.

    The level itself is last. Levels without a parent are left out, and some of very many generations. ValueError where
    the run keeps no ancestors.
    """
    rows = []
    for slot in with_parents(run)[:n]:
        frames = lineage(run, slot)
        places = sorted(set(np.linspace(0, len(frames) - 1, min(columns, len(frames))).round().astype(int).tolist()))
        levels = jax.tree.map(lambda *xs: np.stack(xs), *(frames[i][0] for i in places))
        rows.append(run.draw(levels, [frames[i][1] for i in places], columns=columns))
    return titled(stacked(rows), f"update {run.update:,}: from ancestors to the levels with the highest scores", TITLE)


def with_parents(run: LoadedRun) -> list[int]:
    """The slots of levels that have a parent, the highest score first; ValueError where no ancestors are kept."""
    kept = kept_levels(run)
    if kept.ancestors is None:
        raise NotThere(
            f"{run.path} keeps no ancestors: only ACCEL with --runner.n-ancestors does, from the start of the run"
        )
    slots = [int(slot) for slot in kept.ranked if kept.ancestors.count[slot]]
    if not slots:
        raise NotThere(f"{run.path} keeps no level yet at update {run.update:,} that has a parent")
    return slots


def lineage(run: LoadedRun, slot: int) -> list[tuple[Level, str]]:
    """(level, caption) of the kept ancestors of the level in `slot`, the oldest first, and of the level itself."""
    kept = run.level_buffer
    assert kept.ancestors is not None
    n = int(kept.ancestors.count[slot])
    # The parent comes first in the buffer.
    older = [at(at(kept.ancestors.levels, slot), i) for i in range(n)][::-1]
    words = [f"{back} generation{'s' if back > 1 else ''} before" for back in range(n, 0, -1)]
    return [*zip(older, words, strict=True), (at(kept.levels, slot), caption(kept, slot))]


def designs(runs: Sequence[LoadedRun], n: int = 6, seed: int = 0) -> np.ndarray:
    """u8[H, W, 3]: a row of `n` designs of the teacher at each of the checkpoints `runs`, the oldest first.

    ValueError where the run has no teacher.
    """
    rows = []
    for run in runs:
        if not has_teacher(run):
            raise NotThere(f"{run.path} has no teacher that designs levels")
        levels = fresh_levels(run, n, jax.random.key(seed))
        picture = run.draw(levels, facts_of(run.env, levels), columns=n)
        rows.append(titled(picture, f"update {run.update:,}: designs of the teacher", TITLE))
    return stacked(rows)


def has_teacher(run: LoadedRun) -> bool:
    """Whether a teacher designs levels."""
    return isinstance(method_of(run).generator, DesignedLevels)


# -------------------------------------------------------------------------------------------- what a method consists of


@dataclasses.dataclass(frozen=True)
class LevelSources:
    """The parts of a run's curriculum that levels come from. None: it has no such part."""

    runner: Runner
    generator: Curriculum  # where fresh levels come from
    generator_state: Any
    replay: PLRCurriculum | None = None
    buffer: Any = None
    mutation: Mutation | None = None


def method_of(run: LoadedRun) -> LevelSources:
    """The parts, with what they remember at the run's checkpoint; of several devices, with what the first remembers."""
    if run.state.curriculum is None:
        raise NotThere(f"{run.run.parameters_alone}: its curriculum is not known")
    runner = runner_for(as_trained(run.config))
    curriculum, state, mutation = runner.curriculum, run.curriculum, None
    if isinstance(curriculum, ACCELCurriculum | Parallel):
        mutation = curriculum.mutation
        curriculum, state = curriculum.inner, state.inner if isinstance(state, ACCELState) else state
    if not isinstance(curriculum, PLRCurriculum):
        return LevelSources(runner, curriculum, _of_first_device(run, curriculum, state))
    generator = _of_first_device(run, curriculum.generator, state.generator)
    buffer = _of_first_device(run, curriculum, state.buffer)
    return LevelSources(runner, curriculum.generator, generator, curriculum, buffer, mutation)


def _of_first_device(run: LoadedRun, curriculum: Curriculum, state: Any) -> Any:
    # A teacher is common to all devices. Each device has its own copy of what else a curriculum remembers.
    if mesh_of(run.config).n_rows == 1 or isinstance(curriculum, DesignedLevels):
        return state
    return jax.tree.map(lambda x: x[0], state)


def fresh_levels(run: LoadedRun, n: int, key: jax.Array) -> Level:
    """`n` new levels [n, ...] of the run's generator, as it was at the checkpoint; NumPy arrays."""
    method = method_of(run)
    if isinstance(method.generator, SFLCurriculum):  # it would score some first
        return jax.device_get(_random(run.env, n, key))
    students = _of_seed(run)
    batches: list[Level] = []
    while sum(tree_size(batch) for batch in batches) < n:
        key, k_batch = jax.random.split(key)
        levels = _proposed(method.runner, method.generator, k_batch, method.generator_state, students)
        batches.append(jax.device_get(levels))
    return _first(jax.tree.map(lambda *xs: np.concatenate(xs), *batches), n)


def _of_seed(run: LoadedRun) -> Any:
    """The state of the run's seed, in which its generator may look at the students."""
    place = run.seeds.index(run.seed)
    return jax.tree.map(lambda x: x[place], run.state)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _proposed(runner: Runner, generator: Curriculum, key: jax.Array, state: Any, of_run: Any) -> Level:
    shared_key, own_key = jax.random.split(key)
    return generator.propose(shared_key, own_key, of_run.clock, state, runner.students(of_run))[1].levels


@functools.partial(jax.jit, static_argnums=0)
def _replayed(replay: PLRCurriculum, key: jax.Array, buffer: Any) -> LevelBatch:
    return replay.replayed(key, buffer).replace(train=())


@functools.partial(jax.jit, static_argnums=0)
def _children(mutation: Mutation, key: jax.Array, parents: Level, n_mutations: jax.Array) -> LevelBatch:
    return mutation.children(key, parents, n_mutations)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _random(env: Environment, n: int, key: jax.Array) -> Level:
    return jax.vmap(env.sample_level)(jax.random.split(key, n))


# ------------------------------------------------------------------------------------------------------------- captions


def facts_of(env: Environment, levels: Level, most: int = MOST_FACTS) -> list[str]:
    """What the environment measures of each of `levels` [n, ...], in words; empty where it measures nothing."""
    measured = jax.device_get(_measured(env, levels))
    each = [{name: float(values[i]) for name, values in measured.items()} for i in range(tree_size(levels))]
    return [in_words(facts, most) for facts in each]


@functools.partial(jax.jit, static_argnums=0)
def _measured(env: Environment, levels: Level) -> dict[str, jax.Array]:
    return jax.vmap(env.level_metrics)(levels)


def in_words(facts: dict[str, float], most: int = MOST_FACTS) -> str:
    """The first level metrics: `12 walls, path 7`. A level that cannot be solved is called so, and has no path."""
    if facts.get("solvable", 1.0) == 0.0:
        facts = {name: value for name, value in facts.items() if name != "shortest_path"}
    words = []
    for name, value in facts.items():
        if name.startswith("n_"):
            words.append(f"{value:.0f} {name[2:].replace('_', ' ')}")
        elif name == "shortest_path":
            words.append(f"path {value:.0f}")
        elif name == "solvable":
            words += [] if value else ["unsolvable"]
        else:
            words.append(f"{name.replace('_', ' ')} {value:.3g}")
    return ", ".join(words[:most])


def at(levels: Level, slots: Any) -> Level:
    """The levels in `slots`."""
    return jax.tree.map(lambda x: np.asarray(x)[slots], levels)


def _first(tree: Any, n: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[:n], tree)


def one(level: Level) -> Level:
    """The level as a batch of one, [1, ...]."""
    return jax.tree.map(lambda x: np.asarray(x)[None], level)
