"""Task curricula: closed forms, plain Python models, refusals, and what the reference gets wrong."""

import dataclasses
import functools
import json
import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.config.help import explanations
from minimax_lib.tasks import (
    SFL,
    TSCL,
    BatchedUniform,
    Constant,
    Counters,
    ExpandingBox,
    Frontier,
    Interesting,
    LearningProgress,
    ListedPLR,
    LongList,
    Manual,
    Masked,
    Omni,
    Online,
    ProductCurriculum,
    RandomStart,
    Results,
    Sequential,
    SimulatedAnnealing,
    Stage,
    Steps,
    Strata,
    SyncedUniform,
    Unfinished,
    Uniform,
    UniformOver,
    episodes_needed,
    parse_condition,
    results_of,
    reweighted,
)
from minimax_lib.tasks.preference import Preference
from minimax_lib.tasks.registry import (
    TASK_CURRICULA,
    ListedPLRSettings,
    OmniLearnabilitySettings,
    OnlineSFLSettings,
    SFLSettings,
    StratifiedSettings,
    core_of,
    task_settings,
)
from minimax_lib.tasks.spaces import Box, Discrete, Product, Stratified

N = 6
KEY = jax.random.key(0)
STRATA = ((0, 1, 2), (3, 4, 5))
MATRIX = Interesting.of(~np.triu(np.ones((N, N), bool), 1))  # who can do i finds all above it boring
CORES = {
    "uniform": Uniform(N),
    "strata space": UniformOver(Stratified(((0, 1, 2, 3), (4, 5)))),
    "constant": Constant(N, 3),
    "learning progress": LearningProgress(N),
    "online learning progress": Online(LearningProgress(N, unseen="keep"), every=5),
    "sfl": SFL(N),
    "top k": SFL(N, "topk", k=2, q=0.8, normalize=True),
    "online sfl": Online(SFL(N, unseen="keep"), every=3, count="episodes"),
    "strata": Strata(SFL(N), STRATA),
    "strata of tscl": Strata(TSCL(N), STRATA, "score"),
    "masked": Masked(LearningProgress(N), (True, False, True, True, False, True)),
    "omni": Omni(LearningProgress(N), MATRIX),
    "omni learnability": Omni(SFL(N), MATRIX),
    "online omni": Online(Omni(LearningProgress(N), MATRIX), every=4),
    "batched": BatchedUniform(N, batch_steps=10, warmup=1),
    "synced": SyncedUniform(N),
    "manual": Manual(N, capacity=8),
    "product": ProductCurriculum((ListedPLR(2), SFL(3))),
    "frontier": Frontier(N),
    "random start": RandomStart(SFL(N), 3),
    "sequential": Sequential(
        N, (2, [0, 3], SFL(N), Stage(ListedPLR(2), (4, 5))), ("tasks > 2", "episodes >= 2", "steps > 9")
    ),
    "annealing": SimulatedAnnealing((0.0, 1.0), (1.0, -1.0), 30),
    "expanding box": ExpandingBox(-1.0, 1.0),
    "box": UniformOver(Box((0.0, 2.0), (1.0, 3.0))),
    "product with a box": ProductCurriculum((SimulatedAnnealing(0.0, 1.0, 10), ListedPLR(3))),
}


def results(task, progress=1.0, length=1, episode=True, episode_return=0.0, score=np.nan, valid=True) -> Results:
    """Results of attempts, given as lists or as one value for all."""
    task = task if isinstance(task, tuple | jax.Array) else np.asarray(task, np.int32)
    n = len(jax.tree.leaves(task)[0])

    def full(value, dtype):
        if isinstance(value, jax.Array):
            return jnp.broadcast_to(value.astype(dtype), (n,))
        return np.broadcast_to(np.asarray(value, dtype), (n,))

    returns = full(episode_return, jnp.float32)
    return Results(
        task=task,
        valid=full(valid, bool),
        progress=full(progress, jnp.float32),
        returns=returns,
        length=full(length, jnp.int32),
        episode=full(episode, bool),
        episode_return=returns,
        score=full(score, jnp.float32),
    )


def traced(*given, **named) -> Results:
    """`results` inside a compiled function, where numbers of NumPy cannot be indexed."""
    return jax.tree.map(jnp.asarray, results(*given, **named))


@functools.partial(jax.jit, static_argnums=0)
def weighed(core, key, rates):
    """(the weights before the first evaluation, the state after evaluations [T, N] of all tasks, its weights)."""
    first = core.init(key)
    known = jnp.ones(rates.shape[1], bool)
    state, _ = jax.lax.scan(lambda state, row: (core.evaluated(state, row, known), None), first, rates)
    return core.weights(first), state, core.weights(state)


def after_rates(core, *rates):
    """The same, on the host."""
    return jax.device_get(weighed(core, KEY, np.float32(rates)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def draws(core, n, key, state):
    return core.sample(key, state, n)


QUICK = ("online omni",)  # the others are compiled below, or with the recordings


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in CORES]
)
def test_every_core_compiles_once_for_four_seeds(name):
    core = CORES[name]

    def step(key, state, numbers):
        k_draw, k_progress, k_rates = jax.random.split(key, 3)
        tasks = core.sample(k_draw, state, 8)
        state = core.started(state, tasks, numbers > 2)
        progress = jnp.round(jax.random.uniform(k_progress, (8,)))
        ended = traced(tasks, progress=progress, length=numbers, episode=numbers > 3, valid=numbers > 2, score=progress)
        state = core.update(state, ended)
        if episodes_needed(core):
            state = core.evaluated(state, jax.random.uniform(k_rates, (N,)), jnp.arange(N) > 0)
        return state, (tasks, core.weights(state), core.report(state))

    seeds = jax.vmap(step, in_axes=(0, 0, None))
    step = jax.jit(lambda key, state, numbers: seeds(jax.random.split(key, 4), state, numbers))
    state = jax.jit(lambda key: jax.vmap(core.init)(jax.random.split(key, 4)))(KEY)
    for i in range(3):
        kinds = jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state, (tasks, weights, report) = step(jax.random.key(i), state, np.arange(8, dtype=np.int32) + i)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == kinds
        assert all(x.shape == (4,) and x.dtype == jnp.float32 for x in report.values())
        if core.n_tasks is None:
            assert weights is None
        else:
            tasks, weights = np.asarray(tasks), np.asarray(weights)
            assert ((tasks >= 0) & (tasks < N)).all()
            assert (weights >= 0).all()
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    assert step._cache_size() == 1


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.deep) for name in ("top k", "masked")), "omni learnability"]
)
def test_a_task_without_weight_is_never_drawn(name):
    core = {
        "top k": SFL(N, "topk", k=2),
        "masked": CORES["masked"],
        "omni learnability": Omni(SFL(N), MATRIX, factor_of_boring=0.0),
    }[name]
    _, state, weights = after_rates(core, [0.9, 0.1, 0.3, 0.2, 0.05, 0.6])
    assert (weights == 0).any()
    # Twice: in the reference, OMNI over learnability has lost its weights at the second draw.
    for i in range(2):
        drawn = np.bincount(draws(core, 1_000_000, jax.random.key(i), state), minlength=N)
        assert drawn[weights == 0].sum() == 0
        np.testing.assert_allclose(drawn / 1e6, weights, atol=2.5e-3)


def test_equal_rates_give_exactly_uniform_weights():
    n = 105
    # The moving averages of a constant leave rounding.
    *_, weights = after_rates(LearningProgress(n), *np.full((40, n), 0.3))
    np.testing.assert_array_equal(weights, np.full(n, 1 / n, np.float32))


def test_learning_progress_above_a_baseline_that_is_given():
    core = LearningProgress(2, alpha=0.5, baseline=(0.5, 0.0))
    _, state, _ = after_rates(core, [0.4, 0.4], [0.75, 0.4])
    np.testing.assert_allclose(state.fast, [0.25, 0.4], atol=1e-6)
    np.testing.assert_allclose(state.slow, [0.125, 0.4], atol=1e-6)
    for wrong in ((0.1,), (0.1, 1.0), (0.1, float("nan"))):
        with pytest.raises(ValueError, match="it needs 2 rates from 0 to below 1"):
            LearningProgress(2, baseline=wrong)


@pytest.mark.parametrize("make", [LearningProgress, SFL])
def test_tasks_without_a_rate_count_as_never_solved_or_stay_as_they_are(make):
    rates, some, both = np.float32([[0.8, 0.9], [0.8, 0.0]]), np.array([True, False]), np.ones(2, bool)
    for unseen in ("zero", "keep"):
        core = make(2, unseen=unseen)
        evaluated = jax.jit(core.evaluated)
        _, before, _ = after_rates(core, [0.2, 0.5], [0.4, 0.6])
        after = evaluated(before, rates[0], some)
        wanted = before if unseen == "keep" else evaluated(before, rates[1], both)
        changed = evaluated(before, rates[0], both)
        for x, kept, full in zip(*map(jax.tree.leaves, jax.device_get((after, wanted, changed))), strict=True):
            assert x[1] == kept[1]
            assert x[0] == full[0]


def test_sfl_is_uniform_only_until_it_is_told():
    first, _, weights = after_rates(SFL(N, "topk", k=2), [0.1, 0.5, 0.9, 0.5, 0.0, 0.5])
    np.testing.assert_allclose(first, 1 / N)
    np.testing.assert_allclose(weights, [0, 0.5, 0, 0.5, 0, 0])  # of equal ones, the lowest numbers
    _, _, weights = after_rates(SFL(N, "topk", k=2), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(weights, 1 / N)  # nothing is learnable, and the first two are no better


def test_online_rates_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    for count, continuous in (("attempts", False), ("episodes", True)):
        core = Online(SFL(N), every=7, uniform=0.0, count=count, continuous=continuous)
        state, successes, attempts, number, rates = jax.jit(core.init)(KEY), np.zeros(N), np.zeros(N), 0, np.zeros(N)
        update = jax.jit(core.update)
        for _ in range(8):
            task, valid, episode = rng.integers(N, size=20), rng.random(20) < 0.6, rng.random(20) < 0.5
            progress = np.round(rng.random(20) * 2, 1) - 0.5
            for i in np.flatnonzero(valid):
                value = np.clip(progress[i], 0, 1) if continuous else float(progress[i] >= 1)
                successes[task[i]] += value
                attempts[task[i]] += 1
                number += 1 if count == "attempts" else int(episode[i])
                if number == 7:
                    rates, number = successes / np.maximum(attempts, 1), 0
                    successes, attempts = np.zeros(N), np.zeros(N)
            state = update(state, results(task, progress=progress, valid=valid, episode=episode))
            np.testing.assert_allclose(state.inner.rates, rates, atol=1e-6)
            np.testing.assert_allclose(state.tally.attempts, attempts)
            assert state.count == number


def test_the_best_task_of_each_stratum_keeps_its_weight():
    core = Strata(SFL(N), STRATA)
    rates = np.array([0.5, 0.9, 0.9, 0.1, 0.1, 0.0])
    learnability = rates * (1 - rates)
    wanted = learnability * np.where(np.isin(np.arange(N), [1, 3]), 1, 0.001)
    first, _, weights = after_rates(core, rates)
    np.testing.assert_allclose(first, 1 / N)  # nothing is the best yet
    np.testing.assert_allclose(weights, wanted / wanted.sum(), atol=1e-6)
    by_weight = Strata(Uniform(N), STRATA, "score", factor_of_others=0.0)
    assert episodes_needed(by_weight) == 0
    weights = jax.jit(lambda key: by_weight.weights(by_weight.init(key)))(KEY)
    np.testing.assert_allclose(weights, [0.5, 0, 0, 0.5, 0, 0])


def test_omni_is_strata_where_tasks_are_boring_beside_others_of_their_stratum():
    """Rates are multiples of 1/8, so that there are ties; the second evaluation knows only some of the tasks."""
    n = 60
    rng = np.random.default_rng(0)
    of = np.concatenate([np.arange(7), rng.integers(7, size=n - 7)])  # no stratum is empty
    omni = Omni(LearningProgress(n), Interesting.of(of[:, None] != of))
    strata = Strata(LearningProgress(n), tuple(tuple(np.flatnonzero(of == stratum).tolist()) for stratum in range(7)))
    rates = np.float32(rng.integers(9, size=(3, n)) / 8)
    known = np.stack([np.ones(n, bool), rng.random(n) < 0.5, np.ones(n, bool)])

    @functools.partial(jax.jit, static_argnums=0)
    def factors(core):
        def evaluated(state, told):
            return core.evaluated(state, *told), core.factor(state)

        state, each = jax.lax.scan(evaluated, core.init(KEY), (rates, known))
        return jnp.concatenate([each, core.factor(state)[None]])

    found = factors(omni)
    np.testing.assert_array_equal(found, factors(strata))
    np.testing.assert_array_equal((found == 1).sum(axis=1), [n, 7, 7, 7])


def test_a_filter_that_leaves_nothing_changes_nothing():
    weights, filtered = np.float32([0.25, 0.75, 0.0]), jax.jit(reweighted)
    np.testing.assert_array_equal(filtered(weights, np.float32([0.0, 0.0, 1.0])), weights)
    np.testing.assert_allclose(filtered(weights, np.float32([3.0, 1.0, 1.0])), [0.5, 0.5, 0.0])
    *_, weights = after_rates(Masked(SFL(3), (False, True, True)), [0.5, 0.0, 1.0])
    np.testing.assert_allclose(weights, [0, 0.5, 0.5])  # but a mask is kept


@functools.partial(jax.jit, static_argnums=0)
def with_matrix(core, state, interesting, present):
    return core.set_interesting(state, interesting, present)


@pytest.mark.parametrize("seed", range(3))
def test_boring_tasks_are_those_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    n = 12
    interesting, present = rng.random((n, n)) < 0.6, rng.random(n) < 0.7
    rates = np.round(rng.random(n), 1)
    core = Omni(LearningProgress(n))
    _, state, _ = after_rates(core, rates)
    assert not state.boring.any()  # the default matrix
    state = with_matrix(core, state, interesting, present)
    chosen, boring = set(), set()
    for i in sorted(range(n), key=lambda i: (-rates[i], i)):
        if i not in boring:
            chosen.add(i)
            if present[i]:
                boring |= {j for j in range(n) if not interesting[i, j] and j not in chosen}
    np.testing.assert_array_equal(np.flatnonzero(state.boring), sorted(boring))
    assert 0 < len(boring) < n


@pytest.mark.parametrize("unseen", ["zero", "keep"])
def test_filters_take_tasks_without_a_rate_as_their_inner_curriculum_does(unseen):
    """Then only tasks 1 and 4 are measured. Task 0 makes task 1 boring as long as it is known to be solved more often.
    Tasks 0 to 2 are a stratum, and so are 3 to 5."""
    boring_after_0 = np.ones((N, N), bool)
    boring_after_0[0, 1] = False
    omni = Omni(SFL(N, unseen=unseen), Interesting.of(boring_after_0))
    strata = Strata(SFL(N, unseen=unseen), ((0, 1, 2), (3, 4, 5)))

    @jax.jit
    def told(key):
        known, few = jnp.ones(N, bool), jnp.array([False, True, False, False, True, False])
        first, second = jnp.array([0.9, 0.5, 0.1, 0.8, 0.2, 0.3]), jnp.array([0.0, 0.6, 0.0, 0.0, 0.3, 0.0])
        states = [core.evaluated(core.evaluated(core.init(key), first, known), second, few) for core in (omni, strata)]
        return states[0].boring, strata.factor(states[1]) == 1

    boring, best = told(KEY)
    np.testing.assert_array_equal(boring, np.arange(N) == 1 if unseen == "keep" else np.zeros(N, bool))
    np.testing.assert_array_equal(np.flatnonzero(best), [0, 3] if unseen == "keep" else [1, 4])


def test_a_matrix_is_read_from_json(tmp_path):
    path, names = tmp_path / "matrix.json", ("wood", "stone", "iron")
    full = {"wood": {"stone": True, "iron": False}, "stone": {"wood": False, "iron": True}}
    path.write_text(json.dumps(full))
    matrix = Interesting.of_json(path, names)
    np.testing.assert_array_equal(matrix.present, [True, True, False])
    np.testing.assert_array_equal(matrix.interesting[:2], [[True, True, False], [False, True, True]])
    assert hash(matrix) == hash(Interesting.of_table(full, names))
    del full["stone"]["iron"]
    with pytest.raises(ValueError, match="the row of 'stone' has no entry 'iron'"):
        Interesting.of_table(full, names)
    gaps = Interesting.of_table(full, names, missing="boring").missing
    np.testing.assert_array_equal(np.argwhere(gaps), [[1, 2]])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[]", "the table is list: it must be a table of tasks"),
        ('{"gold": {}}', "the table: unknown task 'gold'"),
        ('{"wood": {"sone": true}}', "the table: unknown task 'sone'.*did you mean 'stone'"),
        ('{"wood": {"stone": 1}}', "the entry 'wood', 'stone' is 1: it must be true or false"),
        ('{"wood": 3}', "the row of 'wood' is int"),
    ],
)
def test_a_wrong_matrix_is_refused_in_one_line(table, message):
    with pytest.raises(ValueError, match=message) as error:
        Interesting.of_table(json.loads(table), ("wood", "stone"))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_matrix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json does not exist"):
        Interesting.of_json(tmp_path / "none.json", ("a",))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json is not JSON"):
        Interesting.of_json(tmp_path / "bad.json", ("a",))


def test_a_rule_may_say_what_is_interesting():
    names = ("a", "b", "c")
    rule = {"a": [True, True, False], "b": None, "c": [True, True, True]}
    matrix = Interesting.by_rule(lambda name, rates: rule[name], names, [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(matrix.present, [True, False, True])
    np.testing.assert_array_equal(matrix.interesting[0], [True, True, False])
    with pytest.raises(ValueError, match="the answer for 'a' has 2 entries: there are 3 tasks"):
        Interesting.by_rule(lambda name, rates: [True, False], names, [0.1, 0.2, 0.3])


def test_a_batch_of_random_tasks_lasts_for_its_steps():
    core = BatchedUniform(50, batch_steps=10, warmup=1)
    state, update, task = jax.device_get(jax.jit(core.init)(KEY)), jax.jit(core.update), jax.jit(core.task)
    assert len(set(draws(core, 40, KEY, state).tolist())) > 10  # while it warms up
    seen = []
    for lengths in ([4, 4], [4, 4], [3, 0], [1, 30]):
        state = update(state, results([0, 0], length=lengths))
        seen.append((int(state.batch), int(state.steps)))
        if state.batch:
            drawn = {i for seed in (0, 5) for i in draws(core, 40, jax.random.key(seed), state).tolist()}
            assert drawn == {int(task(state))}
    assert seen == [(0, 8), (1, 6), (1, 9), (5, 0)]  # 8, 16, 19 and 50 steps have ended
    tasks = [int(task(state.replace(batch=np.int32(i)))) for i in range(30)]
    assert len(set(tasks)) > 15


def test_a_synced_batch_lasts_until_somebody_says_so():
    core = SyncedUniform(10, warmup=1, uniform_chance=0.2)

    @jax.jit
    def trial(key):
        first = core.init(key)
        state = core.next_batch(core.update(first, traced([0], length=1000)))
        return core.weights(first), core.weights(state), core.task(state), core.sample(key, state, 20_000)

    first, weights, task, drawn = jax.device_get(trial(KEY))
    np.testing.assert_allclose(first, 0.1, atol=1e-6)
    wanted = np.full(10, 0.02) + 0.8 * (np.arange(10) == task)
    np.testing.assert_allclose(weights, wanted, atol=1e-6)
    np.testing.assert_allclose(np.bincount(drawn, minlength=10) / 20_000, wanted, atol=0.015)


def test_manual_tasks_come_in_their_order_and_the_last_is_repeated():
    core = Manual(N, capacity=4)

    @jax.jit
    def trial(key):
        states = [core.put(core.init(key), jnp.array([3, 5, 3], jnp.int32))]
        states.append(core.put(states[-1], jnp.array([1, 2], jnp.int32)))
        # Only the first and the third of four draws are begun: the others wait on.
        some = jnp.array([True, False, True, False])
        states.append(core.started(states[-1], jnp.array([3, 5, 3, 1], jnp.int32), some))
        states.append(core.started(states[-1], jnp.array([5, 1, 1], jnp.int32), jnp.ones(3, bool)))
        return [(core.sample(key, state, 5), core.report(state), core.weights(state)) for state in states]

    drawn, reports, weights = zip(*jax.device_get(trial(KEY)), strict=True)
    assert drawn[0].tolist() == [3, 5, 3, 3, 3]
    assert reports[1]["manual/dropped"] == 1
    assert drawn[1].tolist()[:4] == [3, 5, 3, 1]
    np.testing.assert_allclose(weights[1], [0, 0.25, 0, 0.5, 0, 0.25])
    assert drawn[2].tolist()[:3] == [5, 1, 1]
    assert reports[3]["manual/empty"] == 1
    assert reports[3]["manual/waiting"] == 0
    assert drawn[3].tolist()[:2] == [1, 1]


def test_each_part_of_a_product_is_told_its_own():
    core = ProductCurriculum((SFL(2), ListedPLR(3)))

    @jax.jit
    def trial(key, rates, known):
        told = core.update(core.init(key), traced([5, 1], score=[7.0, 2.0]))
        state = core.evaluated(told, rates, known)
        parts = [part.weights(own) for part, own in zip(core.cores, state, strict=True)]
        return told, state, core.weights(state), parts, core.report(state)

    rates, known = np.float32([0.2, 0.4, 0.9, 0.3, 0.0, 0.6]), np.array([True, True, False, True, True, True])
    told, state, weights, parts, report = jax.device_get(trial(KEY, rates, known))
    np.testing.assert_array_equal(told[1].scores, [0, 2, 7])  # 5 is (1, 2), 1 is (0, 1)
    np.testing.assert_allclose(state[0].rates, [0.3, 0.3], atol=1e-6)
    np.testing.assert_allclose(weights, np.outer(*parts).reshape(-1), atol=1e-6)
    assert set(report) >= {"0/tasks/learnability", "1/tasks/seen"}


def test_a_product_with_a_box_draws_tuples():
    core = CORES["product with a box"]

    @jax.jit
    def trial(key):
        points, numbers = core.sample(key, core.init(key), 4)
        state = core.update(core.init(key), traced((points, numbers), length=2, score=1.0))
        return points, core.cores[0].point(state[0])

    points, point = trial(KEY)
    assert points.shape == (4, 1)
    assert point == pytest.approx(0.8)


def test_domain_randomisation_over_spaces():
    points = jax.eval_shape(lambda key: UniformOver(Box((0.0, 2.0), (1.0, 3.0))).sample(key, (), 100), KEY)
    assert points.shape == (100, 2)
    np.testing.assert_allclose(jax.jit(CORES["strata space"].weights)(()), [1 / 8] * 4 + [1 / 4] * 2)


def test_annealing_stops_at_the_end():
    core = SimulatedAnnealing(0.0, 1.0, 2**31 - 1)

    @jax.jit
    def trial(key):
        state = core.update(core.init(key), traced([0], length=2**30))
        for _ in range(5):
            state = core.update(state, traced([0, 0], length=[2**30, 2**29]))
        return core.sample(key, state, 1)

    assert trial(KEY)[0, 0] == 1


CONDITIONS = {
    "steps>=10": lambda c: c["steps"] >= 10,
    "steps > 5.5": lambda c: c["steps"] > 5.5,
    "episodes < 2.5 & tasks <= 3": lambda c: c["episodes"] < 2.5 and c["tasks"] <= 3,
    "tasks=4||return > -.5 && total_steps>1e1": lambda c: (
        c["tasks"] == 4 or (c["episode_return"] > -0.5 and c["total_steps"] > 10)
    ),
    "progress > .25 & steps < 12": lambda c: c["progress"] > 0.25 and c["steps"] < 12,
    "episodes = 2.5 | steps < -3 | episode_return <= -1": lambda c: c["episode_return"] <= -1,
}
RANGES = {"steps": 15, "total_steps": 15, "episodes": 5, "tasks": 6}


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_mean_what_they_say(text):
    rng, cases = np.random.default_rng(0), []
    for _ in range(40):
        counters = {name: int(rng.integers(0, top)) for name, top in RANGES.items()}
        means = {"episode_return": np.float32(rng.normal()), "progress": np.float32(rng.random())}
        cases.append(counters | {"total_episodes": 3, "total_tasks": 3} | means)
    numbers = {name: np.array([case[name] for case in cases]) for name in cases[0]}
    numbers = {name: x.astype(np.int32) if x.dtype == int else x for name, x in numbers.items()}
    found = jax.jit(jax.vmap(parse_condition(text)))(Counters(**numbers)).tolist()
    assert found == [CONDITIONS[text](counters) for counters in cases]
    assert set(found) == {True, False}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps>abc", r"'steps>abc' is wrong at character 7, 'abc': expected a number"),
        ("step>1", r"character 1, 'step': unknown metric 'step'.*did you mean 'steps'"),
        ("steps!=3", r"character 6, '!=': expected <=, >=, =, < or >"),
        ("steps==3", r"character 6, '==': expected"),
        ("steps>", r"character 7, the end: expected a number"),
        ("", r"character 1, the end: expected a metric"),
        ("(steps>1)", r"character 1, '\('"),
        ("steps>1 tasks>2", r"character 9, 'tasks': expected & or \| or the end"),
        ("steps>1 & ", r"the end: expected a metric"),
        ("steps>1e400", r"expected a number up to 2147483647"),
        ("return>1e400", r"character 8, '1e400': expected a finite number"),
        ("episodes>9 & progress >= 75", r"character 26, '75': expected a number from 0 to 1, as progress is"),
        ("progres>.5", r"unknown metric 'progres'.*did you mean 'progress'"),
        ("steps>3000000000", r"expected a number up to 2147483647"),
        (100, r"the condition is 100: it must be text"),
    ],
)
def test_wrong_conditions_are_refused_with_their_position(text, message):
    with pytest.raises(ValueError, match=message):
        Sequential(2, (0, 1), (text,))


def test_counters_are_compared_as_whole_numbers():
    """As float32, 16,777,217 steps would not be more than 16,777,216."""
    core = Sequential(2, (0, 1), ("steps > 16777216",))
    update = jax.jit(core.update)
    state = update(jax.jit(core.init)(KEY), results([0], length=16_777_216))
    assert state.progress.stage == 0
    assert update(state, results([0])).progress.stage == 1


def test_a_stage_knows_its_tasks_by_its_own_numbers():
    core = Sequential(N, (Stage(ListedPLR(2), (4, 1)), 0), (lambda counters: counters.episodes >= 3,))

    @jax.jit
    def trial(key):
        first = core.init(key)
        begun = core.started(first, jnp.array([1, 4, 1], jnp.int32), jnp.array([True, True, False]))
        # The third of its own tasks ends the stage. What follows is late, and so is the task that no stage has.
        state = core.update(begun, traced([1, 5, 4, 1, 1], score=[7.0, 9.0, 2.0, 3.0, 8.0]))
        drawn = [core.sample(key, one, 50) for one in (first, state)]
        return drawn, core.weights(first), begun.stages[0], state.stages[0], state.progress.stage, core.report(state)

    drawn, weights, begun, told, stage, report = jax.device_get(trial(KEY))
    assert set(drawn[0].tolist()) == {1, 4}
    np.testing.assert_allclose(weights, [0, 0.5, 0, 0, 0.5, 0])
    np.testing.assert_array_equal(begun.begun.last, [2, 1])
    np.testing.assert_array_equal(told.scores, [2, 3])
    assert stage == 1
    assert report["sequential/late"] == 2
    assert set(drawn[1].tolist()) == {0}


def test_only_the_current_stage_is_evaluated():
    core = Sequential(N, (SFL(N), Stage(SFL(2), (3, 5))), ("episodes >= 1",))
    assert episodes_needed(core) == 2

    @jax.jit
    def trial(key, rates):
        first = core.evaluated(core.init(key), rates, jnp.ones(N, bool))
        second = core.evaluated(core.update(first, traced([0])), rates, jnp.ones(N, bool))
        return first.stages[1].measured, second.stages[1].rates

    measured, rates = trial(KEY, np.float32([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    assert not np.asarray(measured).any()
    np.testing.assert_allclose(rates, [0.4, 0.6])


def test_stages_may_be_given_as_tasks_and_spaces():
    space = Product((Discrete.of(["red", "blue"]), Discrete(3)), ("colour", "size"))
    one = {"colour": "blue", "size": 0}
    part = Product((Discrete.of(["blue"]), Discrete(2)), ("colour", "size"))
    core = Sequential.over(space, [one, [one, {"colour": "red", "size": 2}], part, Uniform(6)], ["tasks>1"] * 3)
    assert [stage.tasks for stage in core.stages] == [(3,), (3, 2), (3, 4), (0, 1, 2, 3, 4, 5)]


@pytest.mark.parametrize("window", [1000, 200])
def test_the_window_of_returns_stays_as_long_as_it_is(window):
    """The reference's shrinks to 100 after the first stage."""
    core = Sequential(2, (0, 1), ("episodes >= 1",), window=window)
    told = jax.jit(lambda key, given: core.update(core.init(key), given).progress.counters().episode_return)
    found = told(KEY, results([0] + [1] * 1200, episode_return=np.arange(1201)))
    assert found == pytest.approx(np.arange(1201 - window, 1201).mean())


def test_a_box_grows_by_attempts_of_its_own_range():
    """Many rows end at once: all of them were drawn from the range before."""
    core = ExpandingBox(0.0, 10.0, required=10)

    @jax.jit
    def trial(given):
        state = core.update(core.init(KEY), given)
        return state, core.update(state, given.replace(task=core.sample(KEY, state, 320)))

    small = jax.device_get(core.range(core.init(KEY)))
    first, second = jax.device_get(trial(results(jnp.tile(small, (320, 1)), progress=1.0)))
    assert (first.size, first.successes) == (2, 0)
    assert (second.size, second.successes) == (3, 0)


def test_attempts_of_the_stage_before_end_no_stage():
    """Many rows end at once, and more are under way: all of them were drawn in the stage before."""
    core = Sequential(9, [range(3), range(3, 6), range(6, 9)], ["progress >= 0.75 & episodes >= 100"] * 2)

    @jax.jit
    def trial(given):
        state = core.update(core.init(KEY), given)
        return state.progress.stage, core.report(state), state.progress.counters()

    stage, report, counters = jax.device_get(trial(results(np.arange(410) % 3, episode_return=1.0, length=7)))
    assert (stage, report["sequential/late"], report["sequential/progress"]) == (1, 310, 0)
    assert (counters.steps, counters.episodes, counters.episode_return) == (0, 0, 0)
    assert (counters.total_steps, counters.total_episodes) == (410 * 7, 410)


def test_a_stage_may_end_by_the_progress_of_its_last_attempts():
    """Against a plain list, with attempts that end no episode, invalid entries, and two rollouts."""
    window, least, ended = 20, 0.6, (5, 60)
    core = Sequential(1, (0, 0, 0), [f"progress >= {least} & episodes >= {n}" for n in ended], window=window)
    rng, shape = np.random.default_rng(3), (2, 150)
    progress = rng.random(shape).astype(np.float32) + np.linspace(-0.3, 0.4, 150, dtype=np.float32)
    episode, valid = rng.random(shape) < 0.5, rng.random(shape) < 0.8

    @jax.jit
    def trial(state, given):
        state = core.update(state, given)
        return state, state.progress.stage, core.report(state)["sequential/progress"]

    state, last, n, stage, reached = core.init(KEY), [], 0, 0, []
    for r in range(2):
        given = results([0] * 150, progress=progress[r], episode=episode[r], episode_return=-1.0, valid=valid[r])
        state, *found = trial(state, given)
        for i in np.flatnonzero(valid[r]):
            last, n = [*last, progress[r, i]][-window:], n + episode[r, i]
            if episode[r, i] and stage < 2 and n >= ended[stage] and np.mean(last) >= least:
                last, n, stage = [], 0, stage + 1
                reached.append((r, int(i)))
        assert found[0] == stage
        assert found[1] == pytest.approx(np.mean(last), abs=1e-5)
    assert [r for r, _ in reached] == [0, 1]  # one in each rollout, neither at its beginning
    assert all(20 < i < 149 for _, i in reached)


def test_progress_is_remembered_only_where_a_condition_reads_it():
    """So what was saved before this metric came is read as it was."""
    asked = (
        core.init(KEY).progress.progresses for core in (CORES["sequential"], Sequential(2, (0, 1), ("progress>1",)))
    )
    without, with_it = asked
    assert without == ()
    assert with_it.shape == (1000,)


def test_the_score_of_an_attempt_may_be_mixed_with_its_maximum():
    quantity, zeros = np.float32([[1.0], [5.0], [3.0], [2.0]]), np.zeros((4, 1), np.float32)
    done = np.array([[False], [False], [True], [True]])
    steps = Steps(zeros.astype(np.int32), done, zeros, done, zeros, quantity)

    @jax.jit
    def scores(steps):
        first, unfinished = results_of(jax.tree.map(lambda x: x[:2], steps), Unfinished.none(1), "stitch", 0.25)
        second, _ = results_of(jax.tree.map(lambda x: x[2:], steps), unfinished, "stitch", 0.25)
        return first.score, second.score

    first, second = scores(steps)
    assert np.isnan(first).all()
    np.testing.assert_allclose(second[:, 0], [0.25 * 5 + 0.75 * 3, 2.0])


def settings_of(name, tmp_path):
    """Settings of a core that fit a list of N tasks."""
    (tmp_path / "strata.json").write_text(json.dumps(STRATA))
    given = {
        "stratified": {"strata": str(tmp_path / "strata.json"), "inner": SFLSettings()},
        "sequential": {"stages": ("0-2", "5,3-4"), "conditions": ("episodes >= 10",)},
    }
    return TASK_CURRICULA[name](**given.get(name, {}))


@pytest.fixture(scope="module")
def first_weights(tmp_path_factory):
    """The weights of every core that has flags before its first task, from one program."""
    folder = tmp_path_factory.mktemp("cores")
    cores = {name: settings_of(name, folder).build(N) for name in NAMES}
    return jax.device_get(
        jax.jit(lambda key: {name: core.weights(core.init(key)) for name, core in cores.items()})(KEY)
    )


NAMES = TASK_CURRICULA.names()


@pytest.mark.parametrize("name", NAMES)
def test_every_core_that_has_flags_is_built_from_them(name, first_weights, tmp_path):
    core = settings_of(name, tmp_path).build(N)
    assert core.n_tasks == N
    assert first_weights[name].sum() == pytest.approx(1)
    assert (episodes_needed(core) > 0) == (
        name in ("learning_progress", "sfl", "omni", "omni_learnability", "stratified")
    )


def test_the_example_of_the_docs_brings_back_what_was_forgotten(monkeypatch):
    # Another test of this process may have imported it, and forgotten the module but not what it has registered.
    monkeypatch.delitem(sys.modules, "docs.examples.forgotten_tasks", raising=False)
    monkeypatch.delitem(TASK_CURRICULA._table, "forgotten", raising=False)
    from docs.examples.forgotten_tasks import Forgotten

    core = Forgotten(3)
    first, state, weights = after_rates(core, [0.8, 0.5, 0.0], [0.2, 0.3, 0.4])
    np.testing.assert_allclose(first, 1 / 3)
    np.testing.assert_allclose(weights, np.array([0.6, 0.2, 0.0]) + 0.2 / 3, atol=1e-6)
    assert set(jax.eval_shape(TASK_CURRICULA["forgotten"]().build(3).report, state)) == {"tasks/forgotten"}
    assert episodes_needed(core) == 4
    # Its fields are its flags, with the texts under them, and the class may be registered again.
    settings = TASK_CURRICULA["forgotten"]
    assert settings(0.4).build(5) == Forgotten(5, 0.4)
    assert explanations(settings) == {"uniform": "Share of the draws that are uniform over all tasks."}
    assert TASK_CURRICULA.register("forgotten", Forgotten) is settings


def test_settings_are_the_fields_of_the_class_but_those_that_are_given():
    @dataclasses.dataclass(frozen=True)
    class Core:
        """A core."""

        n_tasks: int
        names: tuple[str, ...] = ()
        preference: Preference = Preference("power", eps=0.5)
        size: int = 3

        divides = True

    settings = task_settings(Core)
    assert [field.name for field in dataclasses.fields(settings)] == [*vars(Preference()), "names", "size"]
    assert settings.divides
    assert settings(staleness=0.1, size=2).build(4) == Core(4, (), Preference("power", staleness=0.1, eps=0.5), 2)
    with pytest.raises(ValueError, match="staleness is 2: it must be between 0 and 1"):
        settings(staleness=2)
    assert task_settings(settings) is settings  # settings stay as they are
    for given in (SFLSettings(k=3), OnlineSFLSettings(every=5), ListedPLRSettings(score="gae")):
        assert pickle.loads(pickle.dumps(given)) == given
    for wrong, message in (
        (dataclasses.make_dataclass("None_", [("size", int, 1)]), "None_ has no field n_tasks: it needs one"),
        (dataclasses.make_dataclass("Bare", [("n_tasks", int), ("size", int)]), "Bare.size has no default"),
        (print, "must be a frozen dataclass, or settings with a method build"),
    ):
        with pytest.raises(ValueError, match=message):
            task_settings(wrong)


def test_flags_that_name_tasks(tmp_path):
    core = settings_of("sequential", tmp_path).build(N)
    assert [stage.tasks for stage in core.stages] == [(0, 1, 2), (5, 3, 4)]
    assert settings_of("stratified", tmp_path).build(N).strata == STRATA
    (tmp_path / "matrix.json").write_text('{"0": {"1": false}}')
    omni = TASK_CURRICULA["omni"](interesting=str(tmp_path / "matrix.json"))
    assert not omni.build(2).interesting.interesting[0, 1]
    (tmp_path / "bad.json").write_text("[[0.5]]")
    for make, message in (
        (lambda: omni.build(3), r"matrix\.json: the row of '0' has no entry '2'"),
        (lambda: TASK_CURRICULA["sequential"](stages=("0-2", "x")).build(N), "runner.core.stages has 'x'"),
        (lambda: TASK_CURRICULA["sequential"](stages=("3-2",)).build(N), "the range must not end before it begins"),
        (
            lambda: TASK_CURRICULA["sequential"](stages=("1", "3-9999999999")).build(N),
            "runner.core.stages has '3-9999999999': tasks are the numbers 0 to 5",
        ),
        (lambda: TASK_CURRICULA["sequential"](stages=("9" * 5000,)).build(N), "it must be task numbers and ranges"),
        (lambda: TASK_CURRICULA["stratified"]().build(N), "runner.core.strata is empty"),
        (lambda: TASK_CURRICULA["stratified"](str(tmp_path / "no.json")).build(N), "no.json does not exist"),
        (lambda: TASK_CURRICULA["stratified"](str(tmp_path / "bad.json")).build(N), "must be a list of lists"),
        (lambda: TASK_CURRICULA["online_sfl"](save_last=True).build(N), "it needs runner.core.unseen zero"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_files_may_call_tasks_by_their_names(tmp_path):
    matrix, strata = tmp_path / "matrix.json", tmp_path / "strata.json"
    names = ("wood", "stone", "iron")
    name_of = names.__getitem__
    matrix.write_text('{"wood": {"1": true, "iron": false}}')
    omni = OmniLearnabilitySettings(interesting=str(matrix))
    core = core_of(omni, 3, name_of)
    np.testing.assert_array_equal(core.interesting.interesting[0], [True, True, False])
    np.testing.assert_array_equal(core.interesting.present, [True, False, False])
    strata.write_text('[["stone", 0], ["2"]]')
    nested = core_of(StratifiedSettings(str(strata), omni), 3, name_of)
    assert nested.strata == ((1, 0), (2,))
    assert nested.inner == core
    assert core_of(SFLSettings(), 3, name_of) == SFL(3)
    with pytest.raises(ValueError, match=r"matrix\.json: unknown task 'wood': choose from 0, 1, 2$"):
        omni.build(3)  # without names
    matrix.write_text('{"wod": {}}')
    with pytest.raises(ValueError, match=r"matrix\.json: unknown task 'wod': .*\(did you mean 'wood'\?\)"):
        core_of(omni, 3, name_of)
    strata.write_text('[["wood", "stone"], ["steel"]]')
    with pytest.raises(ValueError, match=r"runner.core.strata: .*strata\.json: unknown task 'steel': choose from wood"):
        core_of(StratifiedSettings(str(strata)), 3, name_of)
    with pytest.raises(ValueError, match="tasks 0 and 2 are both called 'wood'"):
        core_of(omni, 3, ("wood", "stone", "wood").__getitem__)


def test_the_curriculum_inside_strata_has_settings(tmp_path):
    path = tmp_path / "strata.json"
    path.write_text(json.dumps(STRATA))
    assert StratifiedSettings(str(path), SFLSettings("topk", k=2)).build(N) == Strata(SFL(N, "topk", 2), STRATA)
    with pytest.raises(ValueError, match=r"runner.core.inner.save_last is True: it needs runner.core.inner.unseen"):
        StratifiedSettings(str(path), OnlineSFLSettings(save_last=True)).build(N)
    with pytest.raises(ValueError, match=r"runner.core.inner is plr: it must draw from its weights alone"):
        StratifiedSettings(str(path), ListedPLRSettings()).build(N)


def test_curricula_that_draw_from_weights_may_stand_in_others():
    for inner in (RandomStart(SFL(N), 3), LongList(SFL(N)), Online(SFL(N))):
        Masked(inner, (True,) * N)
    Online(ProductCurriculum((SFL(2), Uniform(3))))
    Online(Sequential(N, (SFL(N), [0, 1]), ("tasks>1",)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LearningProgress(N, theta=0), "theta is 0: it must be above 0 and below 1"),
        (lambda: LearningProgress(N, alpha=float("nan")), "alpha is nan"),
        (lambda: LearningProgress(N, unseen="kept"), "unknown unseen 'kept'.*did you mean 'keep'"),
        (lambda: SFL(N, "topk", k=N), "k is 6: it must be at least 1 and below the number of tasks, 6"),
        (lambda: SFL(N, "top"), "unknown sampling 'top'"),
        (lambda: SFL(N, q=1.5), "q is 1.5: it must be between 0 and 1"),
        (lambda: Online(Uniform(N)), "inner is Uniform: it must be a curriculum that is told rates"),
        (lambda: Online(SFL(N), every=0), "every is 0: it must be at least 1"),
        (lambda: Online(SFL(N), count="steps"), "unknown count 'steps'"),
        (lambda: Online(SFL(N, unseen="keep"), save_last=True), "save_last is True: inner.unseen must be zero"),
        (
            lambda: Strata(ListedPLR(N), STRATA),
            "inner is ListedPLR: it must be a curriculum that draws",
        ),
        (lambda: Masked(RandomStart(ListedPLR(N), 3), (True,) * N), "inner is RandomStart round ListedPLR: it must"),
        (lambda: Masked(LongList(ListedPLR(N)), (True,) * N), "inner is LongList round ListedPLR: it must be"),
        (lambda: Online(ProductCurriculum((SFL(2), ListedPLR(3)))), "inner is ProductCurriculum: it must draw"),
        (lambda: Online(Sequential(N, (SFL(N), ListedPLR(N)), ("tasks>1",))), "inner is Sequential: it must draw"),
        (lambda: Strata(SFL(N), ((0, 1), (1, 2, 3, 4, 5))), "task 1 is in two strata"),
        (lambda: Strata(SFL(N), ((-1, 0, 1), (2, 3, 4))), "task -1 is out of range"),
        (lambda: Strata(SFL(N), ((0, 1), (2, 3, 4, 7))), "task 5 is missing"),
        (lambda: Interesting.of(np.eye(2), [True]), r"present has shape \(1,\): it must be \(2,\)"),
        (lambda: Interesting.of(np.eye(2), None, np.eye(3)), r"missing has shape \(3, 3\): it must be \(2, 2\)"),
        (lambda: Strata(SFL(N), ((0, 1),)), "the strata have 2 tasks: there are 6"),
        (lambda: Omni(Uniform(N)), "inner is Uniform: it must be a curriculum that is told rates"),
        (lambda: Omni(SFL(N), Interesting.all_of(3)), "the matrix of interesting tasks has 3 tasks: there are 6"),
        (lambda: Masked(SFL(N), (False,) * N), "allowed has 6 entries: it needs 6, one of them true"),
        (lambda: BatchedUniform(N, 0), "batch_steps is 0: it must be at least 1"),
        (lambda: SyncedUniform(N, uniform_chance=2), "uniform_chance is 2"),
        (lambda: Constant(N, N), "task is 6: it must be a number from 0 to 5"),
        (lambda: Manual(N, 0), "capacity is 0"),
        (lambda: SimulatedAnnealing((0, 1), (1,), 5), "they need one length"),
        (lambda: SimulatedAnnealing((0,), (1,), 0), r"total_steps is \(0,\): it must be at least 1"),
        (lambda: ExpandingBox(1, 1), "low is 1 and high is 1: low must be below high"),
        (lambda: ExpandingBox(0, 1, steps=0), "steps is 0"),
        (lambda: ExpandingBox(0, 1, threshold=1), "threshold is 1: it must be below 1, since no progress exceeds 1"),
        (lambda: ProductCurriculum(()), "cores is empty"),
        (lambda: ProductCurriculum((Uniform(2**16), Uniform(2**16))), "the number of tasks is 4294967296"),
        (lambda: Sequential(N, (0, 1), ()), "there are 0 conditions for 2 stages: there must be one fewer"),
        (lambda: Sequential(N, (0, 1), ("tasks>1",), loop=True), "there are 1 conditions for 2 stages"),
        (lambda: Sequential(N, (0, 6), ("tasks>1",)), "the stage has task 6: tasks are the numbers 0 to 5"),
        (lambda: Sequential(N, ([1, 1],), ()), r"the stage has tasks \(1, 1\): it must have one or more, each once"),
        (lambda: Sequential(N, (SFL(3),), ()), "a curriculum that is a stage must be for all 6 tasks"),
        (lambda: Sequential(N, ("all",), ()), "the stage is 'all'"),
        (lambda: Sequential(N, (0,), (), window=0), "window is 0: it must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_built(make, message):
    with pytest.raises(ValueError, match=message):
        make()
