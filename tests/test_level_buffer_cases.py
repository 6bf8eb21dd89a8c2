"""The level buffer where not every level of a batch has been played."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.level_buffer import ReplaySettings
from minimax_lib.curricula.level_buffer.insertion import _in_order
from minimax_lib.priorities import least_count
from minimax_lib.tasks import ListedPLR
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


@pytest.mark.parametrize("n", [41, 47])
def test_a_full_buffer_is_full_enough_whatever_its_size(n):
    """Compiled, the mean of 41 ones is 41 * (1 / 41) = 0.99999994: replay with a `min_fill` of 1 never began."""
    settings = ReplaySettings(capacity=n, min_fill=1.0, replay_prob=0.75)
    core = ListedPLR(n, schedule="fixed", min_fill=1.0)

    @jax.jit
    def chances(filled):
        buffer = level_buffer.init(jnp.zeros((), jnp.int32), n).replace(filled=filled)
        state = core.init(jax.random.key(0)).replace(seen=filled)
        return level_buffer.replay_probability(settings, buffer), core.replay_probability(state)

    places = np.arange(n)
    assert [[float(x) for x in chances(places < filled)] for filled in (n - 1, n)] == [[0, 0], [0.75, 1]]


@pytest.mark.parametrize(
    ("share", "n", "count"), [(0.0, 5, 1), (1.0, 41, 41), (0.07, 100, 7), (0.3, 10, 3), (0.31, 10, 4), (0.5, 5, 3)]
)
def test_the_least_count_of_a_share(share, n, count):
    assert least_count(share, n) == count


@pytest.mark.parametrize(
    ("how", "shift"),
    [({"prioritisation": "greedy"}, 0), ({"prioritisation": "proportional"}, 10), ({"temperature": 1e9}, 0)],
)
def test_of_equal_weights_the_lowest_score_goes(how, shift):
    """The lowest slot went, with a high score; and a new level that scored less than that one was turned away."""
    settings = ReplaySettings(**how, staleness=0.0)
    # Below 0, no score has a weight of its own.
    full = [slot(score - shift, level=level) for level, score in enumerate([5.0, 4.0, 1.0, 2.0])]

    @jax.jit
    def levels_after(buffer, score):
        nothing = jnp.zeros(1, jnp.int32)
        rows = level_buffer.locate(settings, buffer, levels_of([7]), nothing - 1)
        return level_buffer.insert(settings, buffer, rows, score, score, nothing).levels.number

    for score, kept in ((0.5, [0, 1, 2, 3]), (1.5, [0, 1, 7, 3]), (4.5, [0, 1, 7, 3])):
        np.testing.assert_array_equal(levels_after(buffer_of(full), jnp.float32([score - shift])), kept)


def test_floats_are_compared_as_integers_in_their_order():
    values = np.float32([-np.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, np.inf])
    found = np.asarray(jax.jit(_in_order)(values))
    assert (np.diff(found) > 0).tolist() == [True, True, True, False, True, True, True]
    assert found[3] == found[4]
