"""The level buffer where not every level of a batch has been played."""

import functools

import jax
import numpy as np
import pytest

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.level_buffer import ReplaySettings
from tests.test_level_buffer import F, buffer_of, levels_of, slot

CONFIG = ReplaySettings()
insert = jax.jit(functools.partial(level_buffer.insert, CONFIG))


@pytest.mark.parametrize(("begun", "age"), [([1, 1, 1], 7), ([1, 0, 1], 6), ([0, 0, 0], 4)])
def test_only_new_levels_that_were_begun_make_the_others_older(begun, age):
    """Three new levels, of which one is kept. Rows that play several levels in turn may not come to all of them."""
    buffer, nothing = buffer_of([slot(1.0, age=4, level=9), None]), np.zeros(3, np.int32)
    rows = level_buffer.locate(CONFIG, buffer, levels_of([1, 2, 3]), nothing - 1)
    scores = np.array([2, -np.inf, -np.inf], F)
    after = insert(buffer, rows.replace(begun=np.array(begun, bool)), scores, scores, nothing)
    assert (after.ages.tolist(), after.levels.number.tolist()) == ([age, 0], [9, 1])
