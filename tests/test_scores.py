"""Every score by hand on small trajectories, and against plain loops on random ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.curricula import scores
from minimax_lib.curricula.experience import discounted_mean, experience
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import SCORES
from minimax_lib.gae import clipped_gae
from minimax_lib.playing.returns import Layout
from minimax_lib.playing.rollout import Rollout, Transition, joined_in_time

ONE_STUDENT = [name for name in SCORES.names() if SCORES[name].n_students == 1]


class Seen(struct.PyTreeNode):
    """A rollout, and what the network says of it."""

    run: Rollout
    logits: jax.Array | None
    values: jax.Array | None
    change: jax.Array | None = None  # [A, B], what the agent says of the levels

    @property
    def steps(self) -> Transition:
        return self.run.steps


def rollouts(reward, done, value, last_value, logits=None, values=None) -> Seen:
    """What students did: [T, A, B] each, `last_value` [A, B], `logits` [T, A, B, n], `values` [T, A, B, K]."""
    reward, done, value = np.asarray(reward, np.float32), np.asarray(done, bool), np.asarray(value, np.float32)
    running, returns = np.zeros(reward.shape[1:], np.float32), np.zeros_like(reward)
    for t in range(len(reward)):
        running += reward[t]
        returns[t] = running
        running[done[t]] = 0
    steps = Transition(
        obs=(),
        action=np.zeros(done.shape, np.int32),
        reward=reward,
        done=done,
        episode_return=returns,
        discount=np.float32(1) - done.astype(np.float32),
        first=np.zeros_like(done),
        log_prob=np.zeros_like(reward),
        value=value,
        truncation_value=None,
        progress=(done & (returns > 0)).astype(np.float32),
        facts={},
    )
    logits, values = (None if x is None else np.asarray(x, np.float32) for x in (logits, values))
    last_value = np.asarray(last_value, np.float32)
    run = Rollout(steps=steps, carry=(), last_value=last_value, final=None)
    return Seen(run=run, logits=logits, values=values)


def by_row(*rows) -> np.ndarray:
    """[T, 1, B] from one list of T numbers a row."""
    return np.asarray(rows).T[:, None]


@functools.partial(jax.jit, static_argnames=("names", "n_evals"))
def computed(names, seen: Seen, best_return, gamma, gae_lambda, n_evals):
    found = experience(seen.run, best_return, gamma, gae_lambda, seen.logits, seen.values, Layout(n_evals))
    td_error, done = found.td_error, found.done
    found = found.replace(
        change=seen.change,
        clipped=clipped_gae(td_error, done, gamma, gae_lambda),
        discounted=discounted_mean(seen.run.steps, gamma, n_evals),
        optimum=jnp.ones_like(best_return),
        modelled=jnp.abs(td_error),  # in place of what a model says
    )
    return {name: SCORES[name](found) for name in names}


def all_scores(names, seen: Seen, best_return=None, gamma=0.5, gae_lambda=0.5, n_evals=1) -> dict[str, np.ndarray]:
    """The scores with these names, all in one program."""
    if best_return is None:
        best_return = np.zeros(seen.run.last_value.shape[-1] // n_evals)
    best_return = np.asarray(best_return, np.float32)
    return jax.device_get(computed(tuple(names), seen, best_return, gamma, gae_lambda, n_evals))


def score(name: str, seen: Seen, *args, **options) -> np.ndarray:
    return all_scores([name], seen, *args, **options)[name]


# Row 0: two episodes of 2 and 3 steps, and a tail. Row 1: one that ends on the last step. Row 2: none that ends.
LIKELY = np.log([0.5, 0.25, 0.125, 0.125])
EVEN = np.zeros(4)
SPREAD = by_row([1, 3, 0, 0, 9, 99], [4] * 6, [1] * 6)  # two estimates of the value, this far from their mean
HAND = rollouts(
    reward=by_row([0, 1, 0, 0, 0.5, 9], [0] * 6, [1, 2, 3, 4, 5, 6]),
    done=by_row([0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0] * 6),
    value=by_row([0.5, 0.5, 0.25, 0.5, 0.5, 3], [1] * 6, [1] * 6),
    last_value=[[7, 7, 7]],
    logits=np.stack([[EVEN, EVEN, LIKELY, LIKELY, LIKELY, EVEN], [LIKELY] * 6, [EVEN] * 6], axis=1)[:, None],
    values=np.stack([7 - SPREAD, 7 + SPREAD], axis=-1),
).replace(change=np.asarray([[4.0, 0.25, 9.0]], np.float32))
# Advantages at gamma = lambda = 0.5. Row 0: [-1/8, 1/2] and [-1/16, -1/4, 0]. Row 1: -1 at the end, before that
# -0.5 + 0.25 * the next one: -0.75, -0.6875, -0.671875, -0.66796875, -0.6669921875, whose mean is -0.74072266.


@pytest.fixture(scope="module")
def by_hand():
    """All scores of `HAND`."""
    return all_scores(ONE_STUDENT, HAND, [2.0, -1.0, -np.inf])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("l1_value_loss", [(0.3125 + 0.3125 / 3) / 2, 0.74072266]),
        ("gae", [(0.1875 - 0.3125 / 3) / 2, -0.74072266]),
        ("positive_value_loss", [(0.25 + 0) / 2, 0]),
        ("negative_advantage", [(0.0625 + 0.3125 / 3) / 2, 0.74072266]),
        ("one_step_td", [(0.375 + 0.25 / 3) / 2, 3.5 / 6]),
        ("max_mc", [((2 - 0.5) + (2 - 1.25 / 3)) / 2, -1 - 1]),
        ("policy_entropy", [(1 + 0.875) / 2, 0.875]),
        ("least_confidence", [(0.75 + 0.5) / 2, 0.5]),
        ("min_margin", [(1 + 0.75) / 2, 0.75]),
        ("return", [(1 + 0.5) / 2, 0]),
        ("neg_return", [-(1 + 0.5) / 2, 0]),
        ("learnability", [0, 0]),
        ("value_disagreement", [((1 + 3) / 2 + 9 / 3) / 2, 4]),
        ("parameter_change", [4, 0.25]),
        ("mna", [(0.125 + 0.0625 + 0.25) / 5, 0]),  # nobody solves the second level
        ("exact_regret", [1 - (0.5 + 0.125) / 2, 1]),
        # Of the absolute TD errors, which stand in for what a model says; without the last step of an episode.
        ("transition_error", [(0.25 + 0.25 / 2) / 2, 0.5]),
        ("novelty", [(0.375 + 0.25 / 3) / 2, 3.5 / 6]),
    ],
)
def test_scores_by_hand(by_hand, name, expected):
    np.testing.assert_allclose(by_hand[name], [*expected, -np.inf], rtol=1e-6, atol=1e-7)


def test_every_score_of_one_student_is_checked_by_hand():
    checked = {mark.args[1][i][0] for mark in test_scores_by_hand.pytestmark for i in range(len(mark.args[1]))}
    assert checked == set(ONE_STUDENT)


def test_learnability_counts_the_first_episodes_of_a_level():
    """Three levels in four rows each: one of four first episodes solved, two of four, and no episode that ended."""
    done = by_row(*[[1, 1]] * 4, *[[0, 1]] * 2, *[[0, 0]] * 2, *[[0, 0]] * 4)
    solved_later = [0, 1]  # the second episode of a row says nothing more
    reward = by_row([1, 0], solved_later, solved_later, [0, 0], [1, 0], [1, 0], [1, 0], [1, 0], *[[1, 1]] * 4)
    runs = rollouts(reward, done, np.zeros_like(reward), [[0] * 12])
    found = score("learnability", runs, n_evals=4)
    np.testing.assert_allclose(found, [1 / 4 * 3 / 4, 1 / 2 * 1 / 2, -np.inf], rtol=1e-6)


def test_learnability_of_several_students_is_their_mean():
    """One level in two rows: the first student solves one of them, the second none."""
    seen = played([[(1,), (0,)], [(0,), (0,)]])
    np.testing.assert_allclose(score("learnability", seen, n_evals=2), [(1 / 4 + 0) / 2], rtol=1e-6)


# Scores that are means over episodes. mna is one over steps, and is 0 where no row has solved the level.
POOLED = [name for name in ONE_STUDENT if name not in ("learnability", "parameter_change", "mna")]


@pytest.fixture(scope="module")
def in_several_rows():
    """(scores of two levels in three rows each, scores of the rows as six levels, finished episodes of each row)."""
    seen, best = random_rollouts(5, n_students=1, n_levels=6).replace(change=None), np.asarray([2.0, 3.0])
    pooled = all_scores(POOLED, seen, best, 0.9, 0.7, n_evals=3)
    return pooled, all_scores(POOLED, seen, np.repeat(best, 3), 0.9, 0.7), seen.steps.done.sum(axis=0)[0]


@pytest.mark.parametrize("name", POOLED)
def test_a_level_in_several_rows_scores_as_all_its_episodes(in_several_rows, name):
    """The mean over episodes: of a level's rows, each counts as often as it has ended an episode."""
    pooled, single, count = in_several_rows
    each, expected = single[name], []
    for rows in (slice(0, 3), slice(3, 6)):
        known = count[rows] > 0
        expected.append(np.average(each[rows][known], weights=count[rows][known]) if known.any() else -np.inf)
    np.testing.assert_allclose(pooled[name], expected, rtol=1e-5)


# Two students on five levels, protagonist first: their returns an episode; () where they finish none.
RETURNS = [[(0, 1), (0.5,), (1, 1), (), ()], [(0.75, 0.25), (0,), (), (1,), ()]]


def played(returns) -> Seen:
    """Students [A] on levels [B] whose one-step episodes had these returns."""
    n_students, n_levels, n_steps = len(returns), len(returns[0]), 3
    reward, done = np.zeros((2, n_steps, n_students, n_levels))
    for a, levels in enumerate(returns):
        for b, episodes in enumerate(levels):
            reward[: len(episodes), a, b] = episodes
            done[: len(episodes), a, b] = 1
    return rollouts(reward, done, np.zeros_like(reward), np.zeros((n_students, n_levels)))


@pytest.fixture(scope="module")
def of_several():
    """The scores of `RETURNS` that need no network and no update."""
    needless = [name for name in SCORES.names() if not (SCORES[name].needs_network or SCORES[name].needs_update)]
    return all_scores(needless, played(RETURNS))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("relative_regret", [0.75 - 0.5, 0, 0, 1 - 0, -np.inf]),
        ("mean_relative_regret", [0, 0, 0, 1 - 0, -np.inf]),
        ("population_regret", [1 - 0.5, 0.5 - 0.25, 1 - 0.5, 1 - 0.5, -np.inf]),
        ("return", [0.5, 0.25, 0.5, 0.5, -np.inf]),
        ("neg_return", [-0.5, -0.25, -0.5, -0.5, -np.inf]),
        ("learnability", [0, 0, 0, 0, -np.inf]),  # one row a level: see the test of several
    ],
)
def test_scores_of_several_students_by_hand(of_several, name, expected):
    """One that has finished no episode counts with the return so far, 0, where the other has finished one."""
    np.testing.assert_allclose(of_several[name], expected, rtol=1e-6)


def test_what_an_unfinished_student_has_so_far_counts():
    """The antagonist has paid 0.5 in costs and goes on; the protagonist has finished with -2."""
    costs, done = np.full((2, 2, 1), -0.25), np.zeros((2, 2, 1))
    costs[:, 0], done[1, 0] = -1, 1
    seen = rollouts(costs, done, np.zeros_like(costs), np.zeros((2, 1)))
    np.testing.assert_allclose(score("relative_regret", seen), [-0.5 + 2], rtol=1e-6)


def test_means_over_steps_are_of_the_students_that_have_finished():
    reward, done = np.zeros((4, 2, 3)), np.zeros((4, 2, 3))
    done[3, 0], done[3, 1, 0] = 1, 1  # student 1 finishes on level 0 alone
    value = np.broadcast_to([[[1.0, 1, 1], [3, 3, 3]]], reward.shape)
    change = np.asarray([[1, 2, 3], [5, 6, 7]], np.float32)
    seen = rollouts(reward, done, value, np.zeros((2, 3))).replace(change=change)
    found = all_scores(["max_mc", "parameter_change"], seen)
    np.testing.assert_allclose(found["max_mc"], [-2, -1, -1], rtol=1e-6)
    np.testing.assert_allclose(found["parameter_change"], [3, 2, 3], rtol=1e-6)


def test_the_change_over_several_rollouts_is_the_mean_of_those_with_the_parameters_of_each():
    class Measured:
        gamma, gae_lambda = 0.9, 0.9

        def parameter_change(self, params, run, n_evals):
            assert n_evals == 1
            return params * run.steps.reward.sum(axis=0)

    seen = rollouts(np.ones((2, 1, 3)), by_row([0, 1], [1, 1], [0, 0]), np.zeros((2, 1, 3)), np.zeros((1, 3)))
    parts = jax.tree.map(lambda x: np.stack([x, x]), seen.run)

    @jax.jit
    def change(params, parts):
        outcome = RolloutOutcome(Measured(), params, joined_in_time(parts), parts)
        return outcome.score(SCORES["parameter_change"], jnp.zeros(3))

    np.testing.assert_allclose(change(np.asarray([1.0, 10.0], np.float32), parts), [11, 11, -np.inf], rtol=1e-6)


def test_mean_relative_regret_of_a_better_antagonist():
    np.testing.assert_allclose(score("mean_relative_regret", played([[(0, 1)], [(1, 1, 0.25)]])), [0.25], rtol=1e-6)


def test_population_regret_takes_any_number_of_students():
    np.testing.assert_allclose(score("population_regret", played([[(0, 1)], [(0.5,)], [(-1,)]])), [1.0], rtol=1e-6)


# ------------------------------------------------------------------------------------------------ plain loops


def random_rollouts(seed: int, n_steps: int = 40, n_students: int = 2, n_levels: int = 7) -> Seen:
    rng = np.random.default_rng(seed)
    shape = (n_steps, n_students, n_levels)
    done = rng.random(shape) < 0.15
    done[:, :, 3] = False
    return rollouts(
        reward=rng.normal(size=shape) * (rng.random(shape) < 0.3),
        done=done,
        value=rng.normal(size=shape),
        last_value=rng.normal(size=shape[1:]),
        logits=2 * rng.normal(size=(*shape, 5)),
        values=rng.normal(size=(*shape, 3)),
    ).replace(change=rng.random(shape[1:]).astype(np.float32))


def episodes_of(runs: Seen, a: int, b: int) -> list[slice]:
    """The steps of each finished episode of student a on level b."""
    ends = np.flatnonzero(np.asarray(runs.steps.done)[:, a, b]) + 1
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def plain_advantages(runs: Seen, a: int, b: int, gamma: float, gae_lambda: float) -> np.ndarray:
    steps = jax.tree.map(lambda x: np.asarray(x, np.float64)[:, a, b], runs.steps)
    following = np.append(steps.value[1:], float(runs.run.last_value[a, b]))
    advantages, after = np.zeros_like(following), 0.0
    for t in reversed(range(len(following))):
        alive = 1 - steps.done[t]
        after = steps.reward[t] + gamma * alive * following[t] - steps.value[t] + gamma * gae_lambda * alive * after
        advantages[t] = after
    return advantages


def plain_mna(runs: Seen, a: int, b: int, gamma: float, gae_lambda: float) -> float:
    """The mean of minus the clipped advantages over the steps of finished episodes."""
    errors, found = plain_advantages(runs, a, b, gamma, 0.0), []
    for episode in episodes_of(runs, a, b):
        own = errors[episode]
        for s in range(len(own)):
            sums = [min(0.0, own[s])]
            for i, error in enumerate(own[s + 1 :], 1):
                sums.append(min(0.0, sums[-1] + gamma**i * error))
            mixed = (1 - gae_lambda) * sum(gae_lambda**i * x for i, x in enumerate(sums[:-1]))
            found.append(-mixed - gae_lambda ** (len(sums) - 1) * sums[-1])
    return float(np.mean(found))


def plain_score(name: str, runs: Seen, best: float, a: int, b: int) -> float:
    gamma, gae_lambda = 0.9, 0.7
    advantage = plain_advantages(runs, a, b, gamma, gae_lambda)
    reward, value = (np.asarray(x, np.float64)[:, a, b] for x in (runs.steps.reward, runs.steps.value))
    p = np.exp(np.asarray(runs.logits, np.float64)[:, a, b])
    p = np.sort(p / p.sum(axis=-1, keepdims=True), axis=-1)[:, ::-1]
    episodes = episodes_of(runs, a, b)
    if not episodes:
        return -np.inf
    returns = [reward[e].sum() for e in episodes]
    rate = float(returns[0] > 0)  # of first episodes: one in a row
    over_steps = {
        "l1_value_loss": abs(advantage),
        "gae": advantage,
        "positive_value_loss": advantage.clip(min=0),
        "negative_advantage": (-advantage).clip(min=0),
        "one_step_td": abs(plain_advantages(runs, a, b, gamma, 0.0)),
        "max_mc": best - value,
        "value_disagreement": np.asarray(runs.values, np.float64)[:, a, b].std(axis=-1),
        "policy_entropy": -(p * np.log(p)).sum(axis=-1) / np.log(5),
        "least_confidence": 1 - p[:, 0],
        "min_margin": 1 - (p[:, 0] - p[:, 1]),
    }
    over_steps["novelty"] = over_steps["one_step_td"]  # in place of what a model says
    over_episodes = {"return": np.mean(returns), "neg_return": -np.mean(returns), "learnability": rate * (1 - rate)}
    over_episodes["parameter_change"] = float(runs.change[a, b])
    discounted = [(reward[e] * gamma ** np.arange(len(reward[e]))).sum() for e in episodes]
    errors = over_steps["one_step_td"]
    over_episodes["transition_error"] = np.mean([errors[e][:-1].sum() / max(len(errors[e]) - 1, 1) for e in episodes])
    over_episodes["exact_regret"] = max(0.0, 1 - np.mean(discounted))
    over_episodes["mna"] = plain_mna(runs, a, b, gamma, gae_lambda) * any(ret > 0 for ret in returns)
    return over_episodes[name] if name in over_episodes else np.mean([over_steps[name][e].mean() for e in episodes])


@pytest.fixture(scope="module")
def many():
    """Random rollouts, best returns, and all scores of them."""
    runs, best = random_rollouts(0), np.random.default_rng(1).normal(size=7).astype(np.float32)
    return runs, best, all_scores(SCORES.names(), runs, best, 0.9, 0.7)


@pytest.mark.parametrize("name", ONE_STUDENT)
def test_scores_equal_plain_loops(many, name):
    """The mean over the students; -inf on the level that no episode of theirs finished."""
    runs, best, found = many
    expected = [np.mean([plain_score(name, runs, best[b], a, b) for a in range(2)]) for b in range(7)]
    np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-6)
    assert found[name][3] == -np.inf
    assert np.isfinite(np.delete(found[name], 3)).all()


def test_scores_follow_a_permutation_of_the_rows(many):
    seen, best, found = many
    order = np.random.default_rng(2).permutation(7)
    run = seen.run.replace(
        steps=jax.tree.map(lambda x: x[:, :, order], seen.run.steps), last_value=seen.run.last_value[:, order]
    )
    shuffled = Seen(run, seen.logits[:, :, order], seen.values[:, :, order], seen.change[:, order])
    again = all_scores(SCORES.names(), shuffled, best[order], 0.9, 0.7)
    for name in SCORES.names():
        np.testing.assert_allclose(again[name], found[name][order], rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_unfinished_tail_counts_for_nothing(many):
    """Whatever happens after the last end of an episode."""
    seen, best, found = many
    run, tail = seen.run, np.cumsum(seen.steps.done[::-1], axis=0)[::-1] == 0

    def spoilt(x, garbage):
        return np.where(tail.reshape(*tail.shape, *(1,) * (x.ndim - tail.ndim)), garbage, x).astype(np.float32)

    steps = run.steps.replace(reward=spoilt(run.steps.reward, 99), value=spoilt(run.steps.value, -99))
    run = run.replace(steps=steps, last_value=run.last_value + np.float32(99))
    changed = Seen(run, spoilt(seen.logits, 3), spoilt(seen.values, np.arange(3)), seen.change)
    again = all_scores(SCORES.names(), changed, best, 0.9, 0.7)
    for name in SCORES.names():
        np.testing.assert_allclose(again[name], found[name], rtol=1e-5, atol=1e-6, err_msg=name)


# ---------------------------------------------------------------------------------------------------- the table


@pytest.fixture
def registered():
    """Names to register under, which are free again afterwards."""
    yield "fewest_episodes", "surprise"
    for name in ("fewest_episodes", "surprise"):
        SCORES._table.pop(name, None)


def test_third_parties_add_scores(registered):
    fewest, surprise = registered
    scores.register_score(fewest, lambda o: -o.episodes.count.sum(axis=0).astype(jnp.float32))
    scores.register_score(surprise, scores.step_mean(scores.entropy), needs_network=True)
    assert SCORES[surprise].needs_network
    found = all_scores([fewest, surprise, "policy_entropy"], HAND)
    np.testing.assert_array_equal(found[fewest], [-2, -1, 0])
    np.testing.assert_array_equal(found[surprise], found["policy_entropy"])
    with pytest.raises(ValueError, match="'gae' is registered already"):
        scores.register_score("gae", lambda o: o.best_return)


def test_a_score_that_looks_at_the_policy_says_so_where_there_is_none():
    with pytest.raises(ValueError, match="declare needs_network=True"):
        score("policy_entropy", HAND.replace(logits=None))


def test_an_unknown_score_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"unknown score 'max_mcc': .*did you mean 'max_mc'\?"):
        SCORES["max_mcc"]


@pytest.mark.parametrize(("theirs", "ours"), [("PACE", "parameter_change"), ("pvl", "positive_value_loss")])
def test_the_name_that_others_give_a_score_is_answered_with_ours(theirs, ours):
    with pytest.raises(ValueError, match=rf"unknown score '{theirs}': .*did you mean '{ours}'\?"):
        SCORES[theirs]


def test_a_score_is_compiled_once():
    jitted = jax.jit(lambda seen, best: SCORES["max_mc"](experience(seen.run, best, 0.9, 0.7)))
    for seed in range(3):
        jitted(random_rollouts(seed), np.zeros(7, np.float32))
    assert jitted._cache_size() == 1


def test_a_score_over_steps_is_the_mean_of_its_quantity():
    """On a single episode that fills the rollout, the plain mean; over the students too."""
    names = [name for name in SCORES.names() if SCORES[name].quantity]
    assert len(names) > 9
    seen = random_rollouts(5)
    done = np.zeros_like(seen.run.steps.done)
    done[-1] = True
    seen = seen.replace(run=seen.run.replace(steps=seen.run.steps.replace(done=done)))

    @jax.jit
    def both(seen):
        known = experience(seen.run, jnp.ones(7), 0.9, 0.7, seen.logits, seen.values)
        return {name: (SCORES[name](known), SCORES[name].quantity(known)) for name in names}

    for name, (found, quantity) in both(seen).items():
        assert quantity.shape == seen.steps.reward.shape
        expected = np.asarray(quantity).mean(axis=(0, 1))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_score_of_updates_without_them_is_refused():
    with pytest.raises(ValueError, match="declare needs_update=True"):
        score("parameter_change", HAND.replace(change=None))


def test_disagreement_without_the_values_is_refused():
    with pytest.raises(ValueError, match="needs_network"):
        score("value_disagreement", HAND.replace(values=None))
