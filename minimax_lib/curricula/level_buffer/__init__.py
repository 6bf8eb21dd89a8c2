"""The level buffer: which levels are kept, and how often each is replayed (Jiang et al. 2021a, 2021b).

A buffer is a `LevelBuffer` of C slots; everything else here is a pure function of it.

    buffer, slots = sample(key, settings, buffer, n)                   draw levels to replay
    rows = locate(settings, buffer, levels, slots)                     find where a batch's levels are already
    best = best_returns(buffer, rows, returns)                         highest return ever, for `max_mc`
    buffer = insert(settings, buffer, rows, scores, best, n_mutations) keep what is worth keeping

The result is as if levels were drawn and inserted one at a time; the cost is lower. Scores are sorted once a batch. All
rows before the first one that finds no free slot are written at once. After them, only rows that change the full buffer
are taken one by one, and each costs a few passes over C numbers.
"""

from minimax_lib.curricula.level_buffer.buffer import (
    SCHEDULES,
    Ancestors,
    LevelBuffer,
    ReplaySettings,
    fingerprint,
    init,
    levels_at,
    no_ancestors,
    of_children,
)
from minimax_lib.curricula.level_buffer.insertion import LocatedBatch, best_returns, homes_of, insert, locate
from minimax_lib.curricula.level_buffer.sampling import replay_probability, sample
from minimax_lib.curricula.level_buffer.weights import (
    MAX_AGE,
    STRENGTHS,
    aged,
    buffer_metrics,
    by_best,
    by_rank,
    by_score,
    weights,
)
from minimax_lib.envs.family import whole_level
from minimax_lib.priorities import highest_first

Rows = LocatedBatch  # the name that it had

__all__ = [
    "MAX_AGE",
    "SCHEDULES",
    "STRENGTHS",
    "Ancestors",
    "LevelBuffer",
    "LocatedBatch",
    "ReplaySettings",
    "Rows",
    "aged",
    "best_returns",
    "buffer_metrics",
    "by_best",
    "by_rank",
    "by_score",
    "fingerprint",
    "highest_first",
    "homes_of",
    "init",
    "insert",
    "levels_at",
    "locate",
    "no_ancestors",
    "of_children",
    "replay_probability",
    "sample",
    "weights",
    "whole_level",
]
