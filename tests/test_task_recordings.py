"""Task curricula in float32, compiled, for four seeds at once: against recordings of Syllabus and OMNI in float64."""

import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.tasks import (
    SFL,
    ExpandingBox,
    Interesting,
    LearningProgress,
    Omni,
    Online,
    Results,
    Sequential,
    SimulatedAnnealing,
    Strata,
    parse_condition,
)

FILE = np.load(Path(__file__).parent / "data" / "task_cores.npz")
META = json.loads(str(FILE["meta"]))
SEEDS = jax.random.split(jax.random.key(0), 4)
# Of probabilities. Learning progress divides small differences by their spread.
LOOSE, TIGHT = 1e-4, 1e-6


def recorded(kind: str, case: int, name: str) -> np.ndarray:
    return FILE[f"{kind}/{case}/{name}"]


def ended(task, progress=1.0, length=1, episode_return=0.0) -> Results:
    """One attempt that has ended, and its episode."""
    number = jnp.asarray(episode_return, jnp.float32)[None]
    return Results(
        task=jnp.asarray(task)[None],
        valid=jnp.ones(1, bool),
        progress=jnp.asarray(progress, jnp.float32)[None],
        returns=number,
        length=jnp.asarray(length, jnp.int32)[None],
        episode=jnp.ones(1, bool),
        episode_return=number,
        score=jnp.full(1, jnp.nan),
    )


def quick(cases, of_everybody) -> list:
    """The cases as parameters. Those that are not `of_everybody` are deep: they say the same of other settings."""
    return [pytest.param(case, marks=() if of_everybody(case) else pytest.mark.deep, id=str(case)) for case in cases]


@functools.partial(jax.jit, static_argnums=0)
def after_evaluations(core, rates):
    """The weights [S, C, T, N] after each of T evaluations of C sequences of rates [C, T, N], for S seeds."""

    def one(state, row):
        state = core.evaluated(state, row, jnp.ones(row.shape, bool))
        return state, core.weights(state)

    def sequence(key, rows):
        return jax.lax.scan(one, core.init(key), rows)[1]

    return jax.vmap(lambda key: jax.vmap(lambda rows: sequence(key, rows))(rates))(SEEDS)


def same_on_all_seeds(found) -> np.ndarray:
    """The one result of four seeds."""
    found = np.asarray(found)
    np.testing.assert_array_equal(found, np.broadcast_to(found[:1], found.shape))
    return found[0]


def padded(rows: np.ndarray, n_steps: int, n_tasks: int) -> np.ndarray:
    """With more tasks that are never solved, and the last evaluation repeated."""
    rows = np.pad(rows, ((0, 0), (0, n_tasks - rows.shape[1])))
    return np.pad(rows, ((0, n_steps - len(rows)), (0, 0)), mode="edge")


@pytest.mark.parametrize(
    "case",
    quick(
        itertools.product(range(3), [(1,), (5,), (4, 6, 8, 16)]), lambda case: case[0] == 0 or case[1] == (4, 6, 8, 16)
    ),
)
def test_learning_progress(case):
    setting, lengths = case
    known = META["learning_progress"]
    # Tasks that are never solved have no weight. So lists may be made longer with them, where others are solved.
    n_tasks = max(lengths)
    cases = [i for i in range(setting, 27, 3) if known[i]["n"] in lengths]
    rates = [padded(recorded("learning_progress", i // 3 * 3, "rates"), 20, n_tasks) for i in cases]
    core = LearningProgress(n_tasks, *(known[setting][name] for name in ("ema_alpha", "p_theta", "normalize_success")))
    found = same_on_all_seeds(after_evaluations(core, np.float32(rates)))
    for case, ours in zip(cases, found, strict=True):
        theirs = recorded("learning_progress", case, "dist")
        usable = ~recorded("learning_progress", case, "undefined")
        wanted = padded(theirs, len(theirs), n_tasks)
        np.testing.assert_allclose(ours[: len(theirs)][usable], wanted[usable], atol=LOOSE)


def sfl_groups():
    """Cases of the same list length and settings."""
    groups: dict[tuple, list[int]] = {}
    for i, case in enumerate(META["sfl"]):
        names = ("n", "sampling", "topk", "learnable_prob", "normalize_success")
        groups.setdefault(tuple(case[name] for name in names), []).append(i)
    return groups


@pytest.mark.parametrize("settings", quick(sfl_groups(), lambda settings: settings[0] == 4 or settings[2] == 1000))
def test_sfl(settings):
    cases, (n, sampling, k, q, normalize) = sfl_groups()[settings], settings
    if sampling == "topk" and k >= n:  # the reference's default on short lists: uniform, without a word
        np.testing.assert_allclose(recorded("sfl", cases[0], "dist"), 1 / n)
        with pytest.raises(ValueError, match=f"k is {k}: it must be at least 1 and below the number of tasks, {n}"):
            SFL(n, sampling, k, q, normalize)
        return
    rates = [padded(recorded("sfl", i, "rates"), 20, n) for i in cases]
    found = same_on_all_seeds(after_evaluations(SFL(n, sampling, k, q, normalize), np.float32(rates)))
    for case, ours in zip(cases, found, strict=True):
        theirs = recorded("sfl", case, "dist")
        for row, wanted, ties, best in zip(ours, theirs, tied(case), learnability(case).max(axis=1), strict=False):
            if best == 0:  # nothing is learnable: the reference's topk takes the first k of its order
                np.testing.assert_allclose(row, 1 / n, atol=TIGHT)
            elif ties:
                np.testing.assert_allclose(np.sort(row), np.sort(wanted), atol=TIGHT)
            else:
                np.testing.assert_allclose(row, wanted, atol=TIGHT)


def tied(case: int) -> np.ndarray:
    """bool[T]: the learnability at place k and that at the next one are within 1e-6."""
    settings = META["sfl"][case]
    if settings["sampling"] != "topk":
        return recorded("sfl", case, "tie_at_k")
    ordered = -np.sort(-learnability(case), axis=1)
    k = settings["topk"]
    return recorded("sfl", case, "tie_at_k") | (ordered[:, k - 1] - ordered[:, k] < 1e-6)


def learnability(case: int) -> np.ndarray:
    """f[T, N] after each evaluation."""
    rates = recorded("sfl", case, "rates")
    if META["sfl"][case]["normalize_success"]:
        first = np.minimum(rates[0], 0.75)
        rates = np.maximum(rates - first, 0) / (1 - first)
    return rates * (1 - rates)


@pytest.mark.parametrize("case", quick(range(3), lambda case: case != 1))
def test_strata(case):
    settings = META["stratified"][case]
    inner = LearningProgress(8) if settings["cls"] == "lp" else SFL(8)
    core = Strata(inner, tuple(map(tuple, settings["strata"])), settings["selection_metric"])
    found = same_on_all_seeds(after_evaluations(core, np.float32(recorded("stratified", case, "rates"))[None]))
    np.testing.assert_allclose(found[0], recorded("stratified", case, "dist"), atol=LOOSE)


@pytest.mark.parametrize("case", quick(range(3), lambda case: case != 0))
def test_omni(case):
    n = META["omni"][case]["n"]
    present, entries = recorded("omni", case, "row_present"), recorded("omni", case, "entry_present")
    matrix = Interesting.of(recorded("omni", case, "interesting"), present, present[:, None] & ~entries)
    core = Omni(LearningProgress(n), matrix)
    found = same_on_all_seeds(after_evaluations(core, np.float32(recorded("omni", case, "rates"))[None]))
    np.testing.assert_allclose(found[0], recorded("omni", case, "omni_dist"), atol=LOOSE)


@functools.partial(jax.jit, static_argnums=0)
def after_results(core, results):
    """What `report_of(state)` is after each of E results, for four seeds."""

    def one(state, result):
        state = core.update(state, result)
        return state, core.weights(state)

    return jax.vmap(lambda key: jax.lax.scan(one, core.init(key), results)[1])(SEEDS)


@jax.jit
def told(tasks, progress):
    return jax.vmap(ended)(tasks, progress)


def results_in_a_row(case: int) -> Results:
    task, progress = (recorded("online_learning_progress", case, name) for name in ("task", "progress"))
    return told(task.astype(np.int32), progress.astype(np.float32))


def online(case: int) -> Online:
    settings = META["online_learning_progress"][case]
    inner = LearningProgress(6, settings["ema_alpha"], settings["p_theta"])
    return Online(inner, settings["update_interval"], settings["uniform_prob"], settings["save_last"])


@pytest.mark.parametrize("case", quick(range(3), lambda case: case < 2))
def test_online_learning_progress(case):
    core = online(case)
    found = same_on_all_seeds(after_results(core, results_in_a_row(case)))
    theirs = recorded("online_learning_progress", case, "dist")
    np.testing.assert_allclose(found[core.every - 1 :: core.every], theirs, atol=LOOSE)


def test_online_learning_progress_shares_no_arrays():
    """The reference adds new successes to the array that its moving averages are, where rates are not normalised."""
    core = Online(LearningProgress(6, normalize=False), 10, save_last=True)
    ours = same_on_all_seeds(after_results(core, results_in_a_row(1)))[9::10]
    np.testing.assert_allclose(ours, plain_online(shares=False), atol=LOOSE)
    assert np.abs(plain_online(shares=True) - ours).max() > 0.05


def plain_online(shares: bool) -> np.ndarray:
    """Online learning progress with `save_last`, in NumPy; `shares`: with the arrays that are one in the reference."""
    alpha, theta, uniform, n = 0.1, 0.1, 0.25, 6
    successes, counts, averages, found = np.zeros(n), np.zeros(n), (), []
    tasks, progress = (recorded("online_learning_progress", 1, name) for name in ("task", "progress"))
    for i, (task, value) in enumerate(zip(tasks, progress, strict=True)):
        successes[task] += np.floor(max(value, 0))
        counts[task] += 1
        if (i + 1) % 10:
            continue
        rates = successes / np.maximum(counts, 1)
        if averages:
            fast, slow, true = averages
            fast, true = alpha * rates + (1 - alpha) * fast, alpha * rates + (1 - alpha) * true
            averages = fast, alpha * fast + (1 - alpha) * slow, true
        else:
            averages = rates, rates.copy(), rates
        bent_fast, bent_slow = (p * (1 - theta) / (p + theta * (1 - 2 * p)) for p in averages[:2])
        gain = np.abs(bent_fast - bent_slow)
        members = (gain > 0) | (averages[2] > 0)
        members |= ~members.any()
        spread = gain[members].std()
        z = (gain - gain[members].mean()) / spread if spread > 1e-6 else 0 * gain
        weights = np.where(members, 1 / (1 + np.exp(-z)), 0)
        found.append((1 - uniform) * weights / weights.sum() + uniform / n)
        successes, counts = rates if shares else rates.copy(), np.ones(n)
    return np.array(found)


@pytest.mark.parametrize("case", quick(range(3), lambda case: case == 1))
def test_simulated_annealing(case):
    settings = META["annealing"][case]
    core = SimulatedAnnealing(settings["start"], settings["end"], settings["total_steps"])
    steps = recorded("annealing", case, "step")

    @jax.jit
    @jax.vmap
    def values(key):
        def one(state, length):
            state = core.update(state, ended(core.sample(key, state, 1)[0], length=length))
            return state, core.sample(key, state, 2)

        return jax.lax.scan(one, core.init(key), jnp.asarray(np.diff(steps, prepend=0), jnp.int32))[1]

    found = same_on_all_seeds(values(SEEDS))
    np.testing.assert_allclose(found[:, 0], recorded("annealing", case, "value"), atol=TIGHT)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])


@pytest.mark.parametrize("case", quick(range(2), lambda case: case == 0))
def test_expanding_box(case):
    settings = META["expanding_box"][case]
    names = ("low", "high", "steps", "success_threshold", "required_successes")
    core = ExpandingBox(*(settings[name] for name in names))
    progress = jnp.asarray(recorded("expanding_box", case, "progress"))

    @jax.jit
    @jax.vmap
    def states(key):
        def one(state, value):
            after = core.update(state, ended(core.range(state), value))
            return after, (core.sample(key, after, 1)[0], after)

        first = core.init(key)
        return core.range(first), jax.lax.scan(one, first, progress)[1]

    first, (ranges, after) = jax.tree.map(same_on_all_seeds, states(SEEDS))
    wanted = recorded("expanding_box", case, "range")
    np.testing.assert_allclose(np.concatenate([first[None], ranges]), wanted, atol=TIGHT)
    is_full, theirs = after.size == core.steps, recorded("expanding_box", case, "max_reached")[1:]
    # By rounding, the reference may see one result later that it is at the ends.
    np.testing.assert_array_equal(is_full, np.isclose(wanted[1:], [core.low, core.high]).all(axis=1))
    assert (is_full >= theirs).all()
    np.testing.assert_array_equal(
        after.successes[~is_full], recorded("expanding_box", case, "consecutive")[1:][~is_full]
    )


@pytest.mark.parametrize("case", quick(range(len(META["sequential"])), lambda case: case in (4, 6)))
def test_sequential(case):
    settings = META["sequential"][case]
    core = Sequential(4, tuple(range(settings["n_stages"])), settings["stopping_conditions"], settings["should_loop"])
    is_draw, first, length = (jnp.asarray(x) for x in recorded("sequential", case, "events").T)

    @jax.jit
    @jax.vmap
    def trace(key):
        def one(state, event):
            is_draw, number, length = event
            drawn = core.sample(key, state, 3)
            begun = core.started(state, drawn, jnp.arange(3) < number)
            over = core.update(state, ended(drawn[0], length=length, episode_return=number))
            state = jax.tree.map(lambda a, b: jnp.where(is_draw == 1, a, b), begun, over)
            counters = state.progress.counters()
            return state, (drawn, state.progress.stage, counters)

        return jax.lax.scan(one, core.init(key), (is_draw, first, length))[1]

    drawn, stages, counters = jax.tree.map(same_on_all_seeds, trace(SEEDS))
    names = ("steps", "total_steps", "episodes", "total_episodes", "tasks", "total_tasks", "episode_return")
    found = np.stack([stages, *(getattr(counters, name) for name in names)], axis=1)
    np.testing.assert_allclose(found, recorded("sequential", case, "trace"), atol=1e-4)
    sampled = recorded("sequential", case, "sampled")
    np.testing.assert_array_equal(np.where(sampled >= 0, drawn, -1), sampled)
    assert stages[-1] > 0 or settings["stopping_conditions"] == ["steps=100"] or core.loop


def test_what_the_reference_refuses_is_refused_when_it_is_built():
    accepted = {"steps > 100"}  # spaces do no harm
    for text in META["refused"]:
        if text in accepted:
            parse_condition(text)
        else:
            with pytest.raises(ValueError, match="the condition"):
                Sequential(2, (0, 1), (text,))
