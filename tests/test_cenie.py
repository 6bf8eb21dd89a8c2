"""CENIE: the mixture is scikit-learn's, and half of the replay weight goes by novelty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.levels.cenie import CENIE, SlotScores, TwoRanks, with_rows
from minimax_lib.curricula.mixture import LEAST_VARIANCE, Novelty, em_step, log_likelihoods, opening
from minimax_lib.curricula.score_models import Sight
from minimax_lib.envs.spaces import Box, Discrete
from tests.test_traced import transitions
from tests.zoo import program_of, steps_of


def points() -> np.ndarray:
    rng = np.random.RandomState(0)  # whose numbers never change
    centres = np.repeat([[0, 0, 0], [1, -1, 0.5], [0.5, 2, -0.5]], 20, axis=0)
    return (rng.normal(size=(60, 3)) * [0.3, 1.0, 0.1] + centres).astype(np.float32)


# GaussianMixture of scikit-learn 1.9.1, covariance_type="diag", reg_covar=1e-3, 20 iterations from the same start.
WEIGHTS = [0.335743, 0.333336, 0.33092]
MEANS = [[0.08478, 0.20529, -0.02619], [1.03659, -0.59545, 0.50389], [0.61252, 1.95927, -0.52974]]
VARIANCES = [[0.11591, 1.015351, 0.010773], [0.10002, 0.916034, 0.01178], [0.066484, 0.841683, 0.008317]]
LIKELIHOODS = [-2.09733, -3.59961, -1.78234, -0.95533]
MEAN = -1.764372


def test_the_mixture_is_that_of_scikit_learn():
    @jax.jit
    def fitted(points, counts):
        start = opening(points[:60], 3)
        mixture = jax.lax.fori_loop(0, 20, lambda _, mixture: em_step(mixture, points, counts), start)
        return mixture, log_likelihoods(mixture, points)

    # Points that do not count change nothing.
    both = np.concatenate([points(), np.full((4, 3), 7.0, np.float32)])
    mixture, found = fitted(both, np.arange(64) < 60)
    np.testing.assert_allclose(np.exp(mixture.log_weights), WEIGHTS, atol=2e-4)
    np.testing.assert_allclose(mixture.means, MEANS, atol=1e-3)
    np.testing.assert_allclose(mixture.variances, VARIANCES, rtol=5e-3)
    np.testing.assert_allclose(np.asarray(found)[[0, 1, 25, 59]], LIKELIHOODS, atol=5e-3)
    np.testing.assert_allclose(np.asarray(found)[:60].mean(), MEAN, atol=1e-3)
    assert LEAST_VARIANCE == 1e-3


def test_numbers_that_are_large_and_hardly_change_do_not_drown_the_others():
    """Against the same sum in float64, with 20 numbers that stay at 100 beside the three that tell."""
    wide = np.concatenate([points(), np.full((60, 20), 100.0, np.float32)], axis=1)
    mixture = jax.jit(lambda wide: em_step(opening(wide, 3), wide, jnp.ones(60, bool)))(wide)
    found = jax.jit(log_likelihoods)(mixture, wide)
    weights, means, variances = (np.asarray(x, np.float64) for x in jax.tree.leaves(mixture))
    squares = (wide[:, None].astype(np.float64) - means) ** 2 / variances
    joint = weights - 0.5 * (squares + np.log(2 * np.pi * variances)).sum(axis=-1)
    np.testing.assert_allclose(found, np.log(np.exp(joint).sum(axis=1)), atol=1e-3)


MODEL = Novelty(Sight(Box(-1.0, 1.0, (2,)), Discrete(2)), n_components=2, n_batches=2, n_of_batch=8, n_fits=3)


def seen(centre, key):
    """[6, 1, 4] steps with observations near `centre`."""
    obs = centre + 0.05 * jax.random.normal(key, (6, 1, 4, 2))
    return transitions(obs, jnp.zeros((6, 1, 4), jnp.int32), jnp.zeros((6, 1, 4), bool))


def test_what_was_seen_before_is_less_novel_and_what_is_long_ago_is_novel_again():
    @jax.jit
    def told(key):
        keys = jax.random.split(key, 6)
        state, found = MODEL.init(keys[0]), []
        for k, centre in zip(keys[1:], (0.2, 0.2, 0.9, 0.9, 0.9), strict=True):
            found.append((MODEL.measure(state, seen(0.2, k)).mean(), MODEL.measure(state, seen(0.9, k)).mean()))
            state = MODEL.fit(k, state, seen(centre, k))
        found.append((MODEL.measure(state, seen(0.2, key)).mean(), MODEL.measure(state, seen(0.9, key)).mean()))
        return jnp.array(found), state

    found, state = told(jax.random.key(0))
    found = np.asarray(found)
    assert abs(found[0, 0] - found[0, 1]) < 1  # nothing is known yet: each batch is compared with itself
    assert (found[1:3, 0] + 10 < found[1:3, 1]).all()
    assert (found[-1, 0] > found[-1, 1] + 10).all()
    assert int(state.n_seen) == 3  # of five: the count goes round once the memory is full
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state))


def test_levels_of_the_first_batch_are_not_the_newest_of_all():
    """They scored 0. Log likelihoods were far above 0 soon: whatever came later ranked behind them."""

    @jax.jit
    def told(key):
        k_init, k_first, k_second = jax.random.split(key, 3)
        first, second = (seen(jnp.float32([0.2, 0.2, 0.2, 0.9]).reshape(1, 1, 4, 1), k) for k in (k_first, k_second))
        start = MODEL.init(k_init)
        state = MODEL.fit(k_first, start, first)
        return [MODEL.measure(*x).mean(axis=(0, 1)) for x in ((start, first), (state, second), (state, seen(3.0, key)))]

    first, second, unseen = told(jax.random.key(0))
    assert first[3] > first[:3].max()  # what is rare in the batch itself
    np.testing.assert_allclose(first[:3], second[:3], atol=4)  # what is common is about as new a batch later
    assert unseen.min() > first.max() + 10


RANKS = TwoRanks(temperature=0.5, share=0.5)


def plain_ranks(values) -> np.ndarray:
    """1 for the highest; of equal ones, the first."""
    order = np.argsort(-values, kind="stable")
    ranks = np.empty(len(values), int)
    ranks[order] = np.arange(1, len(values) + 1)
    return ranks


def plain_strengths(scores, novelty, filled, temperature) -> np.ndarray:
    table = np.arange(1, filled.sum() + 1) ** (-1 / temperature)
    parts = [plain_ranks(np.where(filled, x, -np.inf)) ** (-1 / temperature) / table.sum() for x in (scores, novelty)]
    return np.where(filled, (parts[0] + parts[1]) / 2, -np.inf)


@pytest.fixture(scope="module")
def standing():
    rng = np.random.default_rng(0)
    filled = np.arange(8) < 6
    values = [np.where(filled, rng.integers(0, 5, 8), -np.inf).astype(np.float32) for _ in range(2)]
    return SlotScores(*values), filled


def test_half_of_the_strength_goes_by_each_rank(standing):
    standing, filled = standing
    found = np.asarray(jax.jit(RANKS.of_slots)(standing, filled))
    np.testing.assert_allclose(found, plain_strengths(standing.scores, standing.novelty, filled, 0.5), rtol=1e-5)
    np.testing.assert_allclose(found[filled].sum(), 1, rtol=1e-5)
    settings = CENIE(capacity=8, rank_temperature=0.5, staleness=0.25)
    buffer = level_buffer.init(jnp.zeros((), jnp.int32), 8)
    buffer = buffer.replace(scores=found, filled=filled, ages=np.where(filled, np.arange(8), 0).astype(np.int32))
    weights = jax.jit(lambda buffer: level_buffer.weights(settings, buffer))(buffer)
    expected = 0.75 * np.where(filled, found, 0) + 0.25 * np.asarray(buffer.ages) / np.asarray(buffer.ages).sum()
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_a_row_is_as_strong_as_if_it_came_alone(standing):
    standing, filled = standing
    scores, novelty = np.float32([9, 0.5, 2.5, -np.inf]), np.float32([0.5, 9, 2.5, 2.0])
    found = jax.jit(RANKS.of_rows)(standing, filled, scores, novelty)
    total = (np.arange(1.0, 7.0) ** -2).sum()
    for i in range(3):
        ranks = [1 + (x > own[i]).sum() for x, own in ((standing.scores, scores), (standing.novelty, novelty))]
        np.testing.assert_allclose(found[i], sum(rank**-2.0 for rank in ranks) / 2 / total, rtol=1e-5)
    assert found[3] == -np.inf


def test_a_level_that_is_worse_in_both_ways_than_all_of_a_full_buffer_does_not_come_in():
    """The second slot is the last in both ways. Who is as good as it is in one way takes its place, if newer."""
    settings = CENIE(capacity=2, rank_temperature=0.5, staleness=0.0)
    standing = SlotScores(scores=np.float32([5, 1]), novelty=np.float32([4, 2]))

    @jax.jit
    def after(score, novelty):
        filled = jnp.ones(2, bool)
        buffer = level_buffer.init(jnp.zeros((), jnp.int32), 2)
        buffer = buffer.replace(
            levels=jnp.arange(2, dtype=jnp.int32), filled=filled, scores=RANKS.of_slots(standing, filled)
        )
        rows = level_buffer.locate(settings, buffer, jnp.array([7], jnp.int32), jnp.array([-1], jnp.int32))
        strengths = RANKS.of_rows(standing, filled, score[None], novelty[None])
        nothing = jnp.zeros(1, jnp.int32)
        return level_buffer.insert(settings, buffer, rows, strengths, jnp.zeros(1), nothing).levels

    for score, novelty, kept in ((0.0, 1.0, [0, 1]), (1.0, 2.0, [0, 7]), (3.0, 2.0, [0, 7]), (0.0, 9.0, [0, 7])):
        np.testing.assert_array_equal(after(jnp.float32(score), jnp.float32(novelty)), kept)


def test_the_last_row_of_a_slot_counts():
    homes, scores = np.array([2, -1, 2, 0, 0], np.int32), np.float32([1, 2, 3, 4, -np.inf])
    found = jax.jit(with_rows)(SlotScores.none(3), homes, scores, scores + 10)
    assert found.scores.tolist() == [4, -np.inf, 3]
    assert found.novelty.tolist() == [14, -np.inf, 13]


def test_in_training_the_buffer_has_the_strengths_and_the_mixture_learns_from_every_batch():
    steps = steps_of("cenie", 40)
    ranks = program_of("cenie").runner.curriculum.ranks
    for step in steps:
        state = step.after.curriculum
        buffer = state.inner.buffer
        for seed in range(2):
            own = SlotScores(state.standing.scores[seed], state.standing.novelty[seed])
            expected = plain_strengths(own.scores, own.novelty, buffer.filled[seed], ranks.temperature)
            np.testing.assert_allclose(buffer.scores[seed], expected, rtol=1e-4, atol=1e-9)
            assert (np.isfinite(own.scores) == buffer.filled[seed]).all()
        assert (state.model.n_seen != step.before.curriculum.model.n_seen).all()
    novelty = np.array([step.report.metrics["cenie/novelty"] for step in steps])
    assert (novelty[0] < novelty[1]).all()  # of the first batch, nothing is new to the mixture
    assert np.isfinite(novelty).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank_temperature": 0.0}, "runner.rank_temperature is 0.0: it must be positive"),
        ({"novelty_share": 1.5}, "runner.novelty_share is 1.5: it must be between 0 and 1"),
        ({"score": "novelty"}, "runner.score is 'novelty', which has a model of its own"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message):
        CENIE(**settings)
