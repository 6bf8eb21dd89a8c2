"""TRACED: without its two terms it is ACCEL, each term by hand, and noise attracts the first one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.levels.traced import TRACED, CoLearning, with_co_learnability
from minimax_lib.curricula.score_models import Sight
from minimax_lib.curricula.scores import SCORES
from minimax_lib.curricula.transition_error import NextObservation, has_next, next_observation
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete
from minimax_lib.playing.rollout import Transition
from minimax_lib.runners.build import make_program
from minimax_lib.testing.curricula import small_agent
from tests.test_methods import assert_same
from tests.zoo import config_of, program_of, stepped, steps_of


def test_co_learnability_by_hand():
    """newest.md's probe: step 1 replays slot 0, step 2 replays slots 1 and 2, whose scores fall by .2."""
    level = jnp.zeros((), jnp.int32)

    @jax.jit
    def two_steps(weight):
        buffer = level_buffer.init(level, 4).replace(
            scores=jnp.array([1.0, 0.5, 0.4, 0.1]),
            filled=jnp.ones(4, bool),
            fingerprints=jnp.arange(8, dtype=jnp.uint32).reshape(4, 2),
        )
        memory = CoLearning(scores=buffer.scores, previous=jnp.zeros(4, bool))
        found = []
        scores = ([1.0, 0.5, 0.4, 0.1], [1.0, 0.3, 0.2, 0.1], [1.0, 0.3, 0.2, 0.1], [0.9, 0.3, 0.2, 0.1])
        for replayed, new in zip(([0], [1, 2], [], [0]), scores, strict=True):
            mask = jnp.zeros(4, bool).at[jnp.array(replayed, jnp.int32)].set(True)
            after = buffer.replace(scores=jnp.where(mask, jnp.array(new), buffer.scores))
            memory, buffer, _ = with_co_learnability(weight, memory, buffer, after, mask, mask)
            found.append(buffer.scores)
        return found, memory

    found, memory = two_steps(0.5)
    np.testing.assert_allclose(found[0], [1.0, 0.5, 0.4, 0.1])
    np.testing.assert_allclose(found[1], [1.0 + 0.5 * 0.2, 0.3, 0.2, 0.1], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[1])  # nothing was replayed: nothing was learnt
    # Slot 0 is scored again: its priority is its score. That has fallen by .1, not by .2, and slots 1 and 2 gain by it.
    np.testing.assert_allclose(found[3], [0.9, 0.3 + 0.05, 0.2 + 0.05, 0.1], rtol=1e-6)
    np.testing.assert_allclose(memory.scores, [0.9, 0.3, 0.2, 0.1])
    assert memory.previous.tolist() == [True, False, False, False]


def test_a_slot_that_was_given_to_another_level_gains_nothing():
    buffer = level_buffer.init(jnp.zeros((), jnp.int32), 3).replace(
        scores=np.float32([0.5, 0.5, 0.5]), filled=np.ones(3, bool)
    )
    after = buffer.replace(
        scores=np.float32([0.5, 0.7, 0.1]), fingerprints=np.array([[0, 0], [1, 1], [0, 0]], np.uint32)
    )
    memory = CoLearning(scores=buffer.scores, previous=np.array([True, True, False]))
    scored, replayed = np.array([False, True, True]), np.array([False, False, True])
    memory, after, fall = jax.jit(with_co_learnability)(1.0, memory, buffer, after, scored, replayed)
    np.testing.assert_allclose(after.scores, [0.5 + 0.4, 0.7, 0.1], rtol=1e-6)
    np.testing.assert_allclose(fall, 0.4, rtol=1e-6)


def test_levels_are_found_in_the_buffer():
    levels = np.arange(4, dtype=np.int32)
    settings = PLRSettings(capacity=4)

    @jax.jit
    def homes(levels, asked):
        buffer = level_buffer.init(jnp.zeros((), jnp.int32), 4)
        rows = level_buffer.locate(settings, buffer, levels, jnp.full(4, -1))
        scores = jnp.array([0.1, -jnp.inf, 0.3, 0.2])  # the second is not kept
        buffer = level_buffer.insert(settings, buffer, rows, scores, scores, jnp.zeros(4, jnp.int32))
        return level_buffer.homes_of(buffer, asked)

    assert homes(levels, np.array([3, 1, 0, 2], np.int32)).tolist() == [2, -1, 0, 1]


def test_priorities_are_scores_until_the_levels_that_follow_become_easier():
    """On the steps of the small runner, against plain loops over its buffer."""
    n_gains = 0
    for step in steps_of("traced", 40):
        before, after = step.before.curriculum.memory, step.after.curriculum.memory
        buffer = step.after.curriculum.inner.inner.buffer
        fall = step.report.metrics["traced/co_learnability"]
        for seed in range(2):
            gain = 0.0 if np.isnan(fall[seed]) else fall[seed]
            same = step.before.curriculum.inner.inner.buffer.fingerprints[seed] == buffer.fingerprints[seed]
            gained = before.previous[seed] & same.all(axis=1)
            extra = buffer.scores[seed] - np.where(gained, np.float32(gain), 0)
            known = buffer.filled[seed] & (after.scores[seed] != before.scores[seed])  # scored in this step
            np.testing.assert_allclose(extra[known], after.scores[seed][known], rtol=1e-5, atol=1e-6)
            n_gains += int(gained.any() and gain != 0)
            assert np.isfinite(after.scores[seed][buffer.filled[seed]]).all()
            assert not np.isfinite(after.scores[seed][~buffer.filled[seed]]).any()
    assert n_gains > 5


@pytest.mark.deep
def test_without_its_terms_it_is_accel_bit_for_bit():
    same = {"capacity": 16, "n_edits": 3, "replay_prob": 0.5, "score": "positive_value_loss"}
    accel = make_program(config_of("accel", {**same, "n_ancestors": 0}))
    traced = make_program(config_of("traced", {**same, "transition_weight": 0.0, "co_weight": 0.0}))
    for one, other in zip(stepped(accel, 24), stepped(traced, 24), strict=True):
        assert_same(one.after.students, other.after.students)
        assert_same(one.after.curriculum, other.after.curriculum.inner)


def test_with_both_weights_0_nothing_is_added_to_accel():
    """Cheap: the same programs, and the same numbers where co-learnability has the weight 0."""
    env, agent = AMaze(height=3, width=3, n_walls=2, max_steps=6), None
    agent = small_agent(env)
    settings = TRACED(n_parallel=4, n_steps=6, capacity=8, transition_weight=0.0, co_weight=0.0)
    curriculum = settings.build(env, agent, 4)
    assert curriculum.accel.inner.score is SCORES["positive_value_loss"]
    assert curriculum.accel.inner.model is None
    before, after = (jnp_buffer(seed) for seed in (0, 1))
    memory = CoLearning(scores=before.scores, previous=np.ones(6, bool))
    scored = np.arange(6) < 3
    _, changed, fall = jax.jit(with_co_learnability)(0.0, memory, before, after, scored, scored)
    assert float(fall) != 0
    np.testing.assert_array_equal(changed.scores, after.scores)


def jnp_buffer(seed: int) -> level_buffer.LevelBuffer:
    scores = np.random.default_rng(seed).normal(size=6).astype(np.float32)
    return level_buffer.init(jnp.zeros((), jnp.int32), 6).replace(scores=scores, filled=np.ones(6, bool))


# ------------------------------------------------------------------------------------------------ transition error


MODEL = NextObservation(Sight(Box(-1.0, 1.0, (2,)), Discrete(3)))


def transitions(obs, action, done) -> Transition:
    """Of a rollout [T, 1, N]."""
    zeros = jnp.zeros(done.shape, jnp.float32)
    first = jnp.concatenate([jnp.ones_like(done[:1]), done[:-1]])
    return Transition(
        obs=obs, action=action, reward=zeros, done=done, episode_return=zeros, discount=zeros, first=first,
        log_prob=zeros, value=zeros, truncation_value=None, progress=zeros, facts={},
    )  # fmt: skip


def played(key):
    """[8, 1, 4]: on two rows nothing ever changes, on the two others every observation is random."""
    k_action, k_noise = jax.random.split(key)
    action = jax.random.randint(k_action, (8, 1, 4), 0, 3)
    done = jnp.broadcast_to((jnp.arange(8) == 7)[:, None, None], (8, 1, 4))
    noise = jax.random.uniform(k_noise, (8, 1, 4, 2), minval=-1.0)
    is_noisy = (jnp.arange(4) >= 2)[None, None, :, None]
    return transitions(jnp.where(is_noisy, noise, 0.5), action, done)


@pytest.mark.deep
def test_noise_attracts_the_transition_error():
    """newest.md's probe: after 500 steps of the model, the term of the noisy level is ten times that of the other."""

    @jax.jit
    def errors(key):
        def one(state, key):
            return MODEL.fit(key, state, played(key)), None

        state = jax.lax.scan(one, MODEL.init(key), jax.random.split(key, 500))[0]
        steps = played(jax.random.key(7))
        return MODEL.measure(state, steps)[:, 0], state.n_updates

    found, n_updates = errors(jax.random.key(0))
    assert int(n_updates) == 500
    plain, noisy = np.asarray(found[:, :2]).sum(), np.asarray(found[:, 2:]).sum()
    print(f"ratio {noisy / plain:.1f}")
    assert noisy > 10 * plain
    assert not np.asarray(found)[7].any()  # the last step of an episode has no next observation


def test_what_is_seen_and_done_as_numbers():
    parts = {"image": Box(0, 10, (2, 2, 3), "uint8"), "speed": Box(-1.0, 1.0, (2,)), "way": Discrete(4)}
    space = Dict(tuple(parts.items()))
    sight = Sight(space, MultiDiscrete((2, 3)))
    obs = {
        "image": np.full((5, 2, 2, 3), 5, np.uint8),
        "speed": np.full((5, 2), 0.25, np.float32),
        "way": np.full(5, 3, np.int32),
    }
    seen, done = sight.observed(obs), sight.done(np.array([[1, 2]] * 5))
    np.testing.assert_allclose(seen[0], [0.5] * 12 + [0.25] * 2 + [0, 0, 0, 1])
    assert done[0].tolist() == [0, 1, 0, 0, 1]
    assert (sight.n_of_action, sight.is_real.sum(), sight.in_image.sum()) == (5, 14, 12)
    assert Sight(Discrete(3), Discrete(2)).is_real.all()  # codes alone: they are predicted


def test_steps_without_a_next_observation():
    done = np.array([[0, 1, 0, 0], [1, 0, 0, 1]], bool).T[:, None]
    steps = transitions((), (), done)
    assert np.asarray(has_next(steps))[:, 0].T.tolist() == [[True, False, True, False], [False, True, True, False]]


def test_the_model_is_fitted_after_it_has_scored_and_is_in_the_state():
    """The score of a batch is that of the model before; every batch is one update of it, on every seed."""
    steps = steps_of("traced")
    for step in steps:
        before, after = (state.curriculum.inner.inner.model for state in (step.before, step.after))
        assert (after.n_updates == before.n_updates + 1).all()
    runner = program_of("traced").runner
    assert isinstance(runner.curriculum.accel.inner.model, NextObservation)
    assert next_observation(runner.env) == runner.curriculum.accel.inner.model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TRACED(transition_weight=-1.0), "runner.transition_weight is -1.0: it must be at least 0"),
        (lambda: TRACED(co_weight=float("nan")), "runner.co_weight is nan: it must be at least 0 and finite"),
        (
            lambda: make_program(config_of("paired", {"teacher": {"score": "transition_error"}})),
            "the teacher's score is 'transition_error', which has a model of its own",
        ),
        (
            lambda: make_program(config_of("maestro", {"plr": {"score": "transition_error", "capacity": 4}})),
            "runner.plr.score is 'transition_error', which has a model of its own: with maestro",
        ),
    ],
    ids=["transition", "co", "teacher", "maestro"],
)
def test_what_cannot_be_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message):
        make()
