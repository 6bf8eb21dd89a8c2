"""Task curricula: against recordings of level-replay's weights, plain Python models and closed forms."""

import functools
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.tasks import TSCL, ListedPLR, Preference, Results, Steps, Unfinished, Uniform, draw, results_of
from minimax_lib.tasks.clock import Begun, last_entries
from minimax_lib.tasks.draws import draw_where
from minimax_lib.tasks.tscl import slope

RECORDED = np.load(Path(__file__).parent / "data" / "plr_weights.npz")
N = 6


def results(task, returns=None, score=None, valid=None) -> Results:
    """Results of attempts, given as lists."""
    n = len(task)
    numbers = np.zeros(n, np.float32)
    return Results(
        task=np.asarray(task, np.int32),
        valid=np.ones(n, bool) if valid is None else np.asarray(valid),
        progress=numbers,
        returns=numbers if returns is None else np.asarray(returns, np.float32),
        length=np.ones(n, np.int32),
        episode=np.ones(n, bool),
        episode_return=numbers if returns is None else np.asarray(returns, np.float32),
        score=np.full(n, np.nan, np.float32) if score is None else np.asarray(score, np.float32),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn_after(core, n, key, results):
    """`n` draws of a core after `results`."""
    return core.sample(key, core.update(core.init(key), results), n)


def settings_of(case: int) -> tuple:
    """The recorded settings of a case, in the order of `Preference`'s fields."""
    names = ("score_transform", "temperature", "staleness_coef", "staleness_transform", "staleness_temperature", "eps")
    return tuple(RECORDED[f"case_{name}"][case].item() for name in names)


@pytest.mark.parametrize(
    ("of_setting", "n_needed"),
    [
        pytest.param(lambda setting: setting[1] == 0.3 and setting[4] == 1.0, 50, id="some"),
        pytest.param(lambda setting: True, 200, id="all", marks=pytest.mark.deep),
    ],
)
def test_weights_are_those_of_level_replay(of_setting, n_needed):
    groups: dict[tuple, list[int]] = {}
    for case in range(len(RECORDED["scores"])):
        groups.setdefault(settings_of(case), []).append(case)
    assert len(groups) > 50
    n_compared = 0
    for settings, cases in groups.items():
        if not of_setting(settings):
            continue
        # Not compiled as a whole: settings share the programs of single operations.
        weights = jax.vmap(Preference(*settings).weights)
        found = weights(
            RECORDED["scores"][cases], RECORDED["staleness"][cases].astype(np.int32), RECORDED["seen"][cases]
        )
        for case, ours in zip(cases, np.asarray(found), strict=True):
            theirs = RECORDED["weights"][case]
            seen, ages = RECORDED["seen"][case], RECORDED["staleness"][case]
            # Theirs does not add up to 1 where all ages are 0. And it ranks unseen tasks among the others.
            ranked = unseen_among_seen(settings[0], RECORDED["scores"][case], seen)
            ranked |= settings[2] > 0 and unseen_among_seen(settings[3], ages, seen)
            if ranked or (settings[2] > 0 and not (ages * seen).any()):
                continue
            if RECORDED["case_rank_tie"][case]:  # equal values share their ranks in any order
                ours, theirs = np.sort(ours), np.sort(theirs)
            np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=str((settings, case)))
            n_compared += 1
    assert n_compared >= n_needed


def unseen_among_seen(transform: str, values: np.ndarray, seen: np.ndarray) -> bool:
    """Whether an unseen task would take the rank of a seen one."""
    if transform == "match_rank":
        values = values * (1 - values)
    by_order = transform in ("rank", "match_rank", "greedy", "eps_greedy")
    return bool(by_order and not seen.all() and values[~seen].max() > values[seen].min())


@pytest.mark.parametrize("transform", ["rank", "power", "greedy", "eps_greedy", "softmax", "match", "constant"])
def test_weights_are_a_distribution_over_what_was_seen(transform):
    preference = Preference(transform, staleness=0.5)
    seen = np.array([True, False, True, True, False, True])
    scores = np.float32([np.zeros(N), -np.arange(1, N + 1), 1e4 * np.arange(1, N + 1)])
    ages = np.int32([np.zeros(N), np.arange(N)])
    cases = [*itertools.product(scores, ages, [seen]), (scores[-1], ages[-1], np.zeros(N, bool))]
    *of_some, of_none = np.asarray(jax.jit(jax.vmap(preference.weights))(*map(np.stack, zip(*cases, strict=True))))
    for weights in of_some:
        assert weights.sum() == pytest.approx(1, abs=1e-6)
        assert (weights >= 0).all()
        assert (weights[~seen] == 0).all()
    assert not of_none.any()


def test_scores_below_0_keep_a_small_weight_where_no_age_brings_a_task_back():
    preference = Preference("power", temperature=1.0, staleness=0.0)
    ages, seen = np.arange(4, dtype=np.int32), np.array([True, True, True, False])
    weights = np.asarray(preference.weights(np.float32([0.999, -2.0, 0.0, 5.0]), ages, seen))
    np.testing.assert_allclose(weights, np.array([1.0, 0.001, 0.001, 0.0]) / 1.002, rtol=1e-5)
    low = np.asarray(preference.weights(np.float32([-1.0, -2.0, -3.0, 5.0]), ages, seen))
    np.testing.assert_allclose(low, [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-5)


def test_settings_out_of_range_are_refused_by_name():
    with pytest.raises(ValueError, match=r"unknown transform 'ranks': .*did you mean 'rank'"):
        Preference("ranks")
    with pytest.raises(ValueError, match="temperature is 0: it must be positive"):
        Preference(temperature=0)
    with pytest.raises(ValueError, match="staleness is nan"):
        Preference(staleness=float("nan"))
    with pytest.raises(ValueError, match="alpha is 2: it must be between 0 and 1"):
        ListedPLR(N, alpha=2)
    with pytest.raises(ValueError, match="window is 1: it must be at least 2"):
        TSCL(N, window=1)


def test_draws_follow_the_weights_and_never_give_what_has_none():
    weights = np.float32([0.0, 0.1, 0.0, 0.3, 0.6, 0.0] + [0.0, 1e-4] * 500)
    compiled = jax.jit(draw, static_argnums=2)
    drawn = np.bincount(compiled(jax.random.key(0), weights, 1_000_000), minlength=len(weights))
    assert drawn[weights == 0].sum() == 0
    shares = weights / weights.sum()
    # 10^6 draws: five standard deviations of the most likely entry are .0025.
    np.testing.assert_allclose(drawn / 1e6, shares, atol=2.5e-3)
    assert (np.asarray(compiled(jax.random.key(0), np.zeros(N, np.float32), 3)) >= 0).all()


def test_draws_where_something_is_allowed_are_uniform():
    allowed = np.array([False, True, False, True, True, False])
    compiled = jax.jit(functools.partial(draw_where, n=30_000))
    drawn = np.bincount(compiled(jax.random.key(1), allowed), minlength=N)
    assert (drawn[~allowed] == 0).all()
    assert np.abs(drawn[allowed] / 30_000 - 1 / 3).max() < 0.014  # five standard deviations
    nothing = np.bincount(compiled(jax.random.key(1), np.zeros(N, bool)), minlength=N)
    assert (nothing > 4_600).all()  # six standard deviations


def test_ages_and_last_entries_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    begun, last, count = jax.tree.map(np.asarray, Begun.none(N)), np.zeros(N, int), 0

    @jax.jit
    def after(begun, tasks, valid):
        begun = begun.after(tasks, valid)
        return begun, begun.ages(), last_entries(N, tasks, valid)

    for _ in range(5):
        tasks, valid = rng.integers(N, size=9), rng.random(9) < 0.6
        begun, ages, found = after(begun, tasks.astype(np.int32), valid)
        entries = np.full(N, -1)
        for i, (task, counts) in enumerate(zip(tasks, valid, strict=True)):
            if counts:
                count += 1
                last[task], entries[task] = count, i
        np.testing.assert_array_equal(ages, count - last)
        np.testing.assert_array_equal(found, entries)


def test_ages_go_on_after_as_many_attempts_as_an_integer_can_count():
    begun = Begun(last=jnp.full(2, 2**31 - 40, jnp.int32), count=jnp.int32(2**31 - 30))
    for _ in range(10):  # 50 attempts on task 0
        begun = begun.after(np.zeros(5, np.int32), np.ones(5, bool))
    np.testing.assert_array_equal(begun.ages(), [0, 60])


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_scores_are_written_in_their_order(alpha):
    rng = np.random.default_rng(1)
    core = ListedPLR(N, alpha=alpha)
    state, scores = jax.jit(core.init)(jax.random.key(0)), {}
    update = jax.jit(core.update)
    for _ in range(4):
        tasks, found = rng.integers(N - 1, size=12), rng.random(12)
        found[rng.random(12) < 0.4] = np.nan
        for task, score in zip(tasks, found, strict=True):
            if np.isfinite(score):
                scores[task] = (1 - alpha) * scores[task] + alpha * score if task in scores else score
        state = update(state, results(tasks, score=found))
    np.testing.assert_array_equal(state.seen, [task in scores for task in range(N)])
    np.testing.assert_allclose(state.scores, [scores.get(task, 0) for task in range(N)], rtol=1e-6)


REPLAYS = [  # settings, number of tasks with a score, chance of a replay
    ({}, 0, 0.0),
    ({}, 3, 0.5),  # annealed: the share of tasks with a score
    ({}, 6, 1.0),
    ({"replay_prob": 0.3}, 3, 0.3),
    ({"min_fill": 0.6}, 3, 0.0),
    ({"schedule": "fixed", "replay_prob": 0.4}, 3, 0.4),
    ({"schedule": "fixed", "replay_prob": 0.4}, 6, 1.0),  # nothing is new any more
    ({"schedule": "fixed", "replay_prob": 0.4, "min_fill": 1.0}, 5, 0.0),
]


def scored(n: int) -> Results:
    """Results of all tasks, of which the first `n` have a score."""
    return results(range(N), score=[1.0] * n + [np.nan] * (N - n))


def test_a_fixed_chance_must_leave_room_for_new_tasks():
    with pytest.raises(ValueError, match=r"^replay_prob is 1 with schedule fixed: .* \(try 0.5\), or min_fill .*$"):
        ListedPLR(N, schedule="fixed")
    assert ListedPLR(N, schedule="fixed", min_fill=1.0).replay_prob == 1  # all are seen before any is replayed


def test_the_chance_of_a_replay():
    cores = [ListedPLR(N, **settings) for settings, *_ in REPLAYS]
    chances = jax.jit(
        lambda key, told: [
            core.replay_probability(core.update(core.init(key), given)) for core, given in zip(cores, told, strict=True)
        ]
    )
    found = chances(jax.random.key(0), [scored(seen) for _, seen, _ in REPLAYS])
    np.testing.assert_allclose(found, [probability for *_, probability in REPLAYS], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "seen", "probability"),
    [case if case[0] in ({}, REPLAYS[5][0]) else pytest.param(*case, marks=pytest.mark.deep) for case in REPLAYS],
)
def test_replay_and_new_tasks_share_the_draws(settings, seen, probability):
    drawn = drawn_after(ListedPLR(N, **settings), 20_000, jax.random.key(2), scored(seen))
    drawn = np.bincount(drawn, minlength=N)
    if 0 < seen < N:
        # New tasks are uniform over those without a score. Five standard deviations are .018.
        assert drawn[:seen].sum() / 20_000 == pytest.approx(probability, abs=0.018)
        np.testing.assert_allclose(drawn[seen:] / drawn[seen:].sum(), 1 / (N - seen), atol=0.03)
    else:
        assert drawn.sum() == 20_000


def test_an_annealed_replay_that_is_over_goes_on_with_a_share_of_uniform_draws():
    core = ListedPLR(N, Preference("greedy", staleness=0.0), replay_prob=0.7)
    drawn = drawn_after(core, 20_000, jax.random.key(3), results(range(N), score=[0, 0, 5, 0, 0, 0]))
    drawn = np.bincount(drawn, minlength=N) / 20_000
    np.testing.assert_allclose(drawn, np.full(N, 0.05) + 0.7 * (np.arange(N) == 2), atol=0.018)


def test_a_slope_is_that_of_a_least_squares_line():
    rng, compiled = np.random.default_rng(2), jax.jit(slope)
    for n in range(2, 11):
        times, returns = np.sort(rng.choice(500, 10, replace=False)) - 600, rng.random(10)
        found = compiled(times.astype(np.int32), returns.astype(np.float32), np.int32(n))
        assert float(found) == pytest.approx(np.polyfit(times[:n], returns[:n], 1)[0], rel=1e-4, abs=1e-7)
    assert float(compiled(np.zeros(10, np.int32), np.ones(10, np.float32), np.int32(1))) == 0


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_tscl_keeps_a_window_for_each_task(alpha):
    rng = np.random.default_rng(3)
    core = TSCL(3, window=4, alpha=alpha)
    state, windows, scores, now = jax.jit(core.init)(jax.random.key(0)), {i: [] for i in range(3)}, np.zeros(3), 0
    update = jax.jit(core.update)
    for _ in range(6):
        tasks, returns, valid = rng.integers(3, size=7), rng.random(7), rng.random(7) < 0.7
        for task, value, counts in zip(tasks, returns, valid, strict=True):
            if counts:
                now += 1
                windows[task] = [*windows[task], (now, value)][-4:]
                size = abs(np.polyfit(*zip(*windows[task], strict=True), 1)[0]) if len(windows[task]) > 1 else 0.0
                scores[task] = (1 - alpha) * scores[task] + alpha * size
        state = update(state, results(tasks, returns=returns, valid=valid))
        np.testing.assert_allclose(state.scores, scores, rtol=1e-3, atol=1e-6)
    weights = np.asarray(jax.jit(core.weights)(state))
    best = np.argmax(scores)
    np.testing.assert_allclose(weights, np.full(3, 0.5 / 3) + 0.5 * (np.arange(3) == best), atol=1e-6)


def test_tscl_starts_with_all_tasks_alike():
    core = TSCL(4)
    weights = jax.jit(lambda key: core.weights(core.init(key)))(jax.random.key(0))
    np.testing.assert_allclose(weights, 0.25, atol=1e-6)


def test_steps_of_a_dead_agent_are_in_no_score():
    """Two lives of two steps, with two steps between them in which the agent waits for the others."""
    column = {"quantity": [-2, -1, 9, 9, -3, -5], "done": [0, 1, 0, 0, 0, 1], "valid": [1, 1, 0, 0, 1, 1]}
    told = {name: np.array(x, np.float32 if name == "quantity" else bool)[:, None] for name, x in column.items()}
    zero = np.zeros((6, 1), np.float32)
    steps = Steps(zero.astype(np.int32), progress=zero, episode=told["done"], episode_return=zero, **told)
    found, _ = jax.jit(lambda steps: results_of(steps, Unfinished.none(1), "stitch", 0.25))(steps)
    ended = found.score[:, 0][found.valid[:, 0]], found.length[:, 0][found.valid[:, 0]]
    np.testing.assert_allclose(ended, ([0.25 * -1 + 0.75 * -1.5, 0.25 * -3 + 0.75 * -4], [2, 2]))


@pytest.mark.parametrize("tail", ["stitch", "write", pytest.param("drop", marks=pytest.mark.deep)])
def test_attempts_are_scored_over_all_of_their_steps(tail):
    rng = np.random.default_rng(4)
    n_steps, n_rows = 24, 3
    done, quantity = rng.random((n_steps, n_rows)) < 0.2, rng.random((n_steps, n_rows)).astype(np.float32)
    task, returns = rng.integers(5, size=done.shape), rng.random(done.shape).astype(np.float32)
    episode = done & (rng.random(done.shape) < 0.6)  # an attempt may end within an episode
    cuts = [0, 1, 7, 8, 20, 24]
    steps = Steps(task.astype(np.int32), done, returns, episode, returns, quantity)

    @jax.jit
    def parts(steps):
        found, unfinished = [], Unfinished.none(n_rows)
        for a, b in itertools.pairwise(cuts):
            part, unfinished = results_of(jax.tree.map(lambda x, a=a, b=b: x[a:b], steps), unfinished, tail)
            found.append(part.in_order())
        return found

    found = parts(steps)
    wanted_lengths, wanted_scores = plain_attempts(done, quantity, cuts, tail)
    joined = jax.tree.map(lambda *xs: np.concatenate(xs).reshape(n_steps, n_rows), *found)
    np.testing.assert_array_equal(joined.valid, done)
    np.testing.assert_array_equal(joined.length[done], wanted_lengths[done])
    np.testing.assert_allclose(joined.score, wanted_scores, rtol=1e-6)
    np.testing.assert_array_equal(joined.task, task)
    np.testing.assert_array_equal(joined.episode, episode)
    for row in range(n_rows):
        before = 0.0  # an attempt's return is what the episode's return has grown by
        for t in np.flatnonzero(done[:, row]):
            np.testing.assert_allclose(joined.returns[t, row], returns[t, row] - before, atol=1e-6)
            before = 0.0 if episode[t, row] else returns[t, row]


def plain_attempts(done, quantity, cuts, tail):
    """Lengths i[T, N], and scores f[T, N] with NaN where none is given, step by step."""
    lengths, scores = np.zeros(done.shape, int), np.full(done.shape, np.nan)
    for row in range(done.shape[1]):
        length, seen = 0, []
        for t in range(len(done)):
            length, seen = length + 1, [*seen, quantity[t, row]]
            lengths[t, row] = length
            is_cut = t + 1 in cuts
            if done[t, row] or (tail == "write" and is_cut):
                scores[t, row] = np.mean(seen)
            if done[t, row]:
                length, seen = 0, []
            if tail != "stitch" and is_cut:
                seen = []
    return lengths, scores


@pytest.mark.parametrize("core", [Uniform(5), ListedPLR(5), TSCL(5)], ids=lambda core: type(core).__name__)
def test_task_curricula_compile_once_and_keep_to_their_list(core):
    @jax.jit
    def step(key, state):
        tasks = core.sample(key, state, 8)
        state = core.started(state, tasks, np.ones(8, bool))
        found = results([0] * 8).replace(returns=jax.random.normal(key, (8,)), score=jax.random.uniform(key, (8,)))
        state = core.update(state, found.replace(task=tasks))
        return state, tasks, core.weights(state), core.report(state)

    state = jax.jit(core.init)(jax.random.key(0))
    for i in range(4):
        state, tasks, weights, report = step(jax.random.key(i), state)
        tasks = np.asarray(tasks)
        assert ((tasks >= 0) & (tasks < 5)).all()
        assert float(np.sum(weights)) == pytest.approx(1, abs=1e-6)
    assert step._cache_size() == 1
    assert all(x.shape == () and x.dtype == jnp.float32 for x in report.values())
