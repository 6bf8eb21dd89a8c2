"""NCC: the adversary ascends to the known optimum, scores are of whole episodes, and every scoring step is counted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.curricula.base import Attempts
from minimax_lib.curricula.levels.ncc import FIRST_MOMENT, FLOOR, Ascent, NCCMethod, NCCState, projected, replaced
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.playing.episodes import Played
from minimax_lib.testing.curricula import small_agent
from tests.probes import Probe
from tests.zoo import program_of, steps_of

SCORES = np.array([0.0, 0.05, 0.1, 0.2, 0.25], np.float32)  # newest.md's probe: the released code ends on the lowest


def nearest(values: np.ndarray, floor: float) -> np.ndarray:
    """The projection on the simplex with a floor, by bisection in float64."""
    low, high = values.min() - 1.0, values.max()
    for _ in range(200):
        shift = (low + high) / 2
        low, high = (shift, high) if np.maximum(values - shift, floor).sum() > 1 else (low, shift)
    return np.maximum(values - shift, floor)


def test_the_projection_is_the_nearest_point_of_the_simplex():
    cases = np.random.default_rng(0).normal(0.2, 1.0, (64, 7)).astype(np.float32)
    cases[0] = [0.5, 0.6, -0.2, -9, -9, -9, -9]
    cases[1] = 1 / 7  # is there already
    cases[2] += 1e3  # what all have in common changes nothing
    found = jax.jit(jax.vmap(lambda values: projected(values, 0.01)))(cases)
    expected = [nearest(case.astype(np.float64), 0.01) for case in cases]
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(np.asarray(found).sum(axis=1), 1, atol=1e-5)
    assert (np.asarray(found) >= 0.01 - 1e-7).all()


@pytest.mark.parametrize(
    ("values", "expected"), [([0.5, 0.6, -0.2], [0.45, 0.55, 0]), ([3.0, 0.0, 0.0], [1, 0, 0])], ids=str
)
def test_the_projection_by_hand(values, expected):
    np.testing.assert_allclose(jax.jit(projected)(np.array(values, np.float32), 0.0), expected, atol=1e-6)


@jax.jit
def ascended(entropy_weight):
    """The weights after 20,000 steps on SCORES."""

    def step(_, now):
        return Ascent(0.1, entropy_weight).step(*now, jnp.asarray(SCORES))

    return jax.lax.fori_loop(0, 20_000, step, (jnp.full(5, 0.2), jnp.float32(FIRST_MOMENT)))[0]


def test_the_adversary_climbs_to_the_closed_form():
    expected = np.exp(SCORES / 0.05) / np.exp(SCORES / 0.05).sum()
    np.testing.assert_allclose(expected, [0.005, 0.013, 0.035, 0.255, 0.693], atol=5e-4)
    np.testing.assert_allclose(ascended(0.05), expected, atol=2e-3)


def test_without_entropy_the_best_level_gets_all_weight_and_the_lowest_none():
    np.testing.assert_allclose(ascended(0.0), [FLOOR] * 4 + [1 - 4 * FLOOR], atol=1e-6)


def test_new_levels_take_the_lowest_slots_one_after_another():
    rng = np.random.default_rng(1)
    scores, new = rng.integers(0, 9, (20, 6)).astype(np.float32), rng.integers(0, 9, (20, 5)).astype(np.float32)
    scores[:, 0] = -np.inf  # not scored yet
    names = np.arange(11)
    levels, kept, n_taken = jax.jit(jax.vmap(replaced, (None, 0, None, 0)))(names[:6], scores, names[6:], new)
    for i in range(20):
        slots, values, taken = list(range(6)), scores[i].tolist(), set()
        for number, score in enumerate(new[i]):
            lowest = int(np.argmin(values))
            if score > values[lowest]:
                slots[lowest], values[lowest] = 6 + number, float(score)
        taken = [name for name in slots if name >= 6]
        assert (levels[i].tolist(), kept[i].tolist(), int(n_taken[i])) == (slots, values, len(taken))


ENV = AMaze(height=4, width=4, n_walls=0, max_steps=12)


class FacesUp:
    """Students that reach the goal in half of the episodes on levels that begin with one of two directions."""

    def attempts(self, key, levels, n_episodes, discount=None):
        progress = jnp.where(levels.agent_dir[None, :, None] < 2, jnp.arange(n_episodes) % 2, 0)
        returns = 0.125 * progress
        return Attempts(Played((), (), progress, {}, () if discount is None else returns), jnp.uint32(7))


@jax.jit
def optima(levels, gamma):
    return jax.vmap(lambda level: ENV.optimal_return(level, gamma))(levels)


def small(**settings):
    method = NCCMethod(n_parallel=4, n_steps=12, capacity=10, n_new=3, n_episodes=2, **settings)
    return method.build(ENV, small_agent(ENV), 4)


def test_each_device_begins_with_levels_of_its_own():
    init = jax.vmap(small().init, in_axes=None, axis_size=2, axis_name=axes.DEVICE)
    one, other = jax.device_get(jax.jit(init)(jax.random.key(0))).levels.agent_pos
    assert (one != other).any()


@pytest.mark.parametrize("score", [pytest.param("learnability", marks=pytest.mark.deep), "exact_regret"])
def test_a_scoring_scores_some_slots_and_new_levels_and_counts_its_steps(score):
    curriculum = small(score=score, score_share=0.5, every=2)
    state = jax.jit(curriculum.init)(jax.random.key(0))
    propose = jax.jit(lambda key, state: curriculum.propose(key, key, jnp.int32(0), state, FacesUp()))
    after, batch = jax.device_get(propose(jax.random.key(1), state))
    assert after.env_steps.number() == 2 * 7  # 8 levels, 4 at a time
    known = np.isfinite(after.scores)
    assert 5 <= known.sum() <= 8
    assert int(known.sum() - 5) == batch.context[1]  # new levels first take slots that have no score
    lucky = after.levels.agent_dir < 2
    if score == "learnability":
        expected = np.where(lucky, 0.25, 0.0)
    else:
        optimum = np.asarray(optima(after.levels, curriculum.scoring.gamma))
        expected = np.maximum(optimum - np.where(lucky, 0.0625, 0.0), 0.0)
    np.testing.assert_allclose(after.scores[known], expected[known], atol=1e-6)
    later, _ = jax.device_get(propose(jax.random.key(2), after))
    assert (after.wait, later.wait) == (1, 0)
    np.testing.assert_array_equal(after.scores, later.scores)  # nothing was due
    assert later.env_steps.number() == after.env_steps.number()
    assert (later.weights != after.weights).any()  # the adversary moves with every batch
    assert not batch.source.tolist().count(0)


def test_a_level_without_a_score_counts_as_the_mean_of_the_others():
    """Eight levels have a score, 0.25 in the mean."""
    ascent = small(step_size=0.5).ascended
    scores = np.array([0.5, 0, 0.5, 0, 0.25, 0.25, 0.5, 0, -np.inf, -np.inf], np.float32)
    known = np.full(10, 0.1, np.float32), np.float32(FIRST_MOMENT)
    step = jax.jit(lambda scores: ascent(NCCState((), scores, *known, wait=(), env_steps=())).weights)
    np.testing.assert_array_equal(step(scores), step(np.maximum(scores, [0.0] * 8 + [0.25] * 2).astype(np.float32)))


@pytest.mark.parametrize("delayed", [True, False])
def test_batches_follow_the_weights(delayed):
    """Those before the latest step, or those after it."""
    curriculum = small(delayed=delayed, entropy_weight=0.0, step_size=1e4)
    state = jax.jit(curriculum.init)(jax.random.key(0))
    weights, scores = np.full(10, FLOOR, np.float32), np.zeros(10, np.float32)
    weights[3], scores[6] = 1 - 9 * FLOOR, 1.0
    state = state.replace(weights=weights, scores=scores, wait=np.int32(5))
    propose = jax.jit(lambda key, state: curriculum.propose(key, key, jnp.int32(0), state, FacesUp()))
    after, batch = propose(jax.random.key(1), state)
    assert int(after.weights.argmax()) == 6
    assert batch.slots.tolist() == [3 if delayed else 6] * 4
    np.testing.assert_array_equal(batch.levels.wall_map, np.asarray(state.levels.wall_map)[np.asarray(batch.slots)])


def test_by_default_scoring_takes_at_most_as_many_steps_as_training():
    for settings in ({}, {"capacity": 300, "n_new": 0}, {"n_parallel": 7, "capacity": 50, "levels_per_row": 3}):
        method = NCCMethod(**settings)
        curriculum = method.build(ENV, small_agent(ENV), method.levels_per_batch)
        played = curriculum.scoring.n_played(curriculum.n_scored + curriculum.n_new)
        assert played >= curriculum.n_scored + curriculum.n_new
        scoring, training = played * 5 * ENV.max_steps, method.steps_of_batch(ENV.max_steps)
        assert scoring <= curriculum.every * training
        assert curriculum.every == 1 or scoring > (curriculum.every - 1) * training
    assert dataclasses.replace(method, every=1).build(ENV, small_agent(ENV), 21).every == 1


def test_training_counts_every_scoring_step():
    program, steps = program_of("ncc"), steps_of("ncc")
    spent = np.array([step.report.metrics["ncc/scoring_steps"] for step in steps])
    due = np.arange(len(steps)) % 3 == 0
    assert (spent[due] >= 12 * 5).all()  # 8 of 16 slots and 4 new levels, five episodes each
    assert (spent[due] <= 12 * 5 * 12).all()
    assert (spent[~due] == 0).all()
    for step, total in zip(steps, np.cumsum(spent, axis=0), strict=True):
        env_steps = program.env_steps(step.after)
        np.testing.assert_array_equal(env_steps - step.after.clock * program.runner.env_steps_per_step, total)
        np.testing.assert_allclose(step.after.curriculum.weights.sum(axis=1), 1, atol=1e-5)
        assert (step.after.curriculum.weights >= FLOOR - 1e-9).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "max_mc"}, "unknown runner.score 'max_mc'"),
        ({"capacity": 1}, "runner.capacity is 1: it must be between 2 and 99999"),
        ({"capacity": 100_000}, "runner.capacity is 100000: it must be between 2 and 99999"),
        ({"n_episodes": 1}, "runner.n_episodes is 1: it must be at least 2"),
        ({"every": 0}, "runner.every is 0: it must be at least 1"),
        ({"n_new": -1}, "runner.n_new is -1: it must be at least 0"),
        ({"score_share": 0.0}, "runner.score_share is 0.0: it must be above 0, and at most 1"),
        ({"score_share": float("nan")}, "runner.score_share is nan"),
        ({"step_size": float("inf")}, "runner.step_size is inf: it must be positive and finite"),
        ({"entropy_weight": -1.0}, "runner.entropy_weight is -1.0: it must be at least 0 and finite"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message):
        NCCMethod(**settings)


def test_exact_regret_needs_an_environment_that_knows_it():
    with pytest.raises(ValueError, match="needs the method optimal_return, and Probe has none"):
        NCCMethod(score="exact_regret").build(Probe(), small_agent(Probe()), 32)


def test_the_optimiser_of_the_paper_by_hand():
    """Three steps beside NumPy. Adam's power of the second moment would be a half."""
    agent = small_agent(Probe()).agent
    config = dataclasses.replace(agent.config, optimizer="tiada", lr=0.01, max_grad_norm=1e3, adam_eps=1e-3)
    optimizer = dataclasses.replace(agent, config=config).optimizer
    gradients = np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)

    @jax.jit
    def moved(gradients):
        params = jnp.ones(4)
        state = optimizer.init(params)
        for gradient in gradients:
            steps, state = optimizer.update(gradient, state, params)
            params = params + steps
        return params

    expected, m, v = np.ones(4), np.zeros(4), np.zeros(4)
    for t, g in enumerate(gradients.astype(np.float64), 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        expected -= 0.01 * (m / (1 - 0.9**t)) / (v**0.6 / np.sqrt(1 - 0.999**t) + 1e-3)
    np.testing.assert_allclose(moved(gradients), expected, rtol=1e-4)
    with pytest.raises(ValueError, match=r"unknown ppo\.optimizer 'sgd'"):
        dataclasses.replace(config, optimizer="sgd")
