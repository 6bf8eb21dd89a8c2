"""The level buffer against the rule, level by level, in plain Python; and its weights, by hand."""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from minimax_lib import axes
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.level_buffer import ReplaySettings

F = np.float32


@struct.dataclass
class Level:
    """A level that its number determines."""

    number: jax.Array  # i32[]
    pattern: jax.Array  # bool[2, 3]


def levels_of(numbers) -> Level:
    numbers = np.asarray(numbers, np.int32)
    bits = (numbers[..., None] >> np.arange(6)) & 1
    return Level(number=numbers, pattern=bits.reshape(*numbers.shape, 2, 3) > 0)


class Reference:
    """One slot a dict, one level at a time. A weight is the sum of two products, each rounded."""

    def __init__(self, config: ReplaySettings, capacity: int):
        self.config = config
        self.slots: list[dict | None] = [None] * capacity

    @classmethod
    def of(cls, config: ReplaySettings, slots: list[dict | None]) -> "Reference":
        reference = cls(config, len(slots))
        reference.slots = [dict(slot) if slot else None for slot in slots]
        return reference

    def filled(self) -> list[int]:
        return [i for i, slot in enumerate(self.slots) if slot is not None]

    def strengths(self) -> dict[int, np.float32]:
        filled = self.filled()
        scores = {i: self.slots[i]["score"] for i in filled}
        power = 1.0 / self.config.temperature
        ranked = sorted(filled, key=lambda i: (-scores[i], i))
        if self.config.prioritisation == "rank":
            return {i: F((1 + place) ** -power) for place, i in enumerate(ranked)}
        if self.config.prioritisation == "greedy":
            return {i: F(place == 0) for place, i in enumerate(ranked)}
        positive = {i: max(scores[i], 0.0) for i in filled}
        top = max(positive.values(), default=0.0)
        return {i: F((positive[i] / top) ** power if top > 0 else 0.0) for i in filled}

    def parts(self) -> dict[int, tuple[np.float32, np.float32]]:
        """(weight from the score, weight from the age) of each filled slot."""
        strengths = self.strengths()
        if strengths and not any(strengths.values()):
            strengths = dict.fromkeys(strengths, F(1))
        total = F(sum(map(float, strengths.values())))
        if self.config.prioritisation == "rank":  # from the exact powers
            power = 1.0 / self.config.temperature
            total = F(sum((1 + place) ** -power for place in range(len(strengths))))
        ages = {i: self.slots[i]["age"] for i in strengths}
        total_age = sum(ages.values())
        share = F(self.config.staleness) if total_age else F(0)
        scale, age_scale = (F(1) - share) / (total or F(1)), share / F(max(total_age, 1))
        return {i: (strengths[i] * scale, F(ages[i]) * age_scale) for i in strengths}

    def weights(self) -> np.ndarray:
        result = np.zeros(len(self.slots), F)
        for i, (by_score, by_age) in self.parts().items():
            result[i] = by_score + by_age
        return result

    def draw(self, slot: int) -> None:
        for i in self.filled():
            self.slots[i]["age"] = 0 if i == slot else self.slots[i]["age"] + 1

    def insert(self, rows: list[dict]) -> None:
        for i in self.filled():
            self.slots[i]["age"] += sum(row["slot"] < 0 for row in rows)
        given_away = {i for i, slot in enumerate(self.slots) if slot is None}
        for row in rows:
            if not np.isfinite(row["score"]):
                continue
            if row["slot"] >= 0:
                if row["slot"] not in given_away:
                    self.overwrite(row["slot"], row)
                continue
            target, same = self.target(row)
            if same:
                self.overwrite(target, row)
                self.slots[target]["age"] = 0
            elif target is not None:
                given_away.add(target)
                self.slots[target] = {
                    "level": row["level"],
                    "score": row["score"],
                    "best": row["best"],
                    "n_mutations": row["n_mutations"],
                    "age": 0,
                }

    def overwrite(self, slot: int, row: dict) -> None:
        self.slots[slot]["score"] = row["score"]
        self.slots[slot]["best"] = max(self.slots[slot]["best"], row["best"])

    def target(self, row: dict) -> tuple[int | None, bool]:
        """(the slot that a new row goes to, whether that slot holds the same level already)."""
        for i in self.filled():
            if self.config.unique and self.slots[i]["level"] == row["level"]:
                return i, True
        if None in self.slots:
            return self.slots.index(None), False
        parts = self.parts()
        victim = min(parts, key=lambda i: (parts[i][0] + parts[i][1], parts[i][0], self.slots[i]["score"], i))
        return (victim, False) if row["score"] >= self.slots[victim]["score"] else (None, False)


def assert_equal(buffer: level_buffer.LevelBuffer, reference: Reference) -> None:
    buffer, filled = jax.tree.map(np.asarray, buffer), reference.filled()
    assert np.flatnonzero(buffer.filled).tolist() == filled
    expected = [reference.slots[i] for i in filled]
    assert buffer.levels.number[filled].tolist() == [slot["level"] for slot in expected]
    np.testing.assert_array_equal(buffer.levels.pattern, levels_of(buffer.levels.number).pattern)
    assert buffer.scores[filled].tolist() == [F(slot["score"]) for slot in expected]
    assert buffer.best_returns[filled].tolist() == [F(slot["best"]) for slot in expected]
    assert buffer.n_mutations[filled].tolist() == [slot["n_mutations"] for slot in expected]
    assert buffer.ages[filled].tolist() == [slot["age"] for slot in expected]
    assert (buffer.scores[~buffer.filled] == -np.inf).all()
    assert (buffer.ages[~buffer.filled] == 0).all()


fingerprints_of = jax.jit(jax.vmap(level_buffer.fingerprint))
sample = jax.jit(level_buffer.sample, static_argnums=(1, 3))
init = jax.jit(level_buffer.init, static_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def weights(configs: tuple[ReplaySettings, ...], buffer) -> list[jax.Array]:
    """The weights by each of the settings, in one program."""
    return [level_buffer.weights(config, buffer) for config in configs]


@functools.partial(jax.jit, static_argnums=0)
def insert(config, buffer, levels, slots, scores, returns, n_mutations):
    rows = level_buffer.locate(config, buffer, levels, slots)
    return level_buffer.insert(config, buffer, rows, scores, returns, n_mutations)


@functools.partial(jax.jit, static_argnums=0)
def insert_many(config, *arguments):
    return jax.vmap(functools.partial(insert, config), axis_name=axes.SEED)(*arguments)


def buffer_of(slots: list[dict | None]) -> level_buffer.LevelBuffer:
    """A buffer with these slots."""
    blank = {"level": 0, "score": -np.inf, "best": -np.inf, "n_mutations": 0, "age": 0}
    full = [slot or blank for slot in slots]
    levels = levels_of([slot["level"] for slot in full])
    return level_buffer.LevelBuffer(
        levels=levels,
        scores=np.array([slot["score"] for slot in full], F),
        best_returns=np.array([slot["best"] for slot in full], F),
        n_mutations=np.array([slot["n_mutations"] for slot in full], np.int32),
        ages=np.array([slot["age"] for slot in full], np.int32),
        fingerprints=np.asarray(fingerprints_of(levels)),
        filled=np.array([slot is not None for slot in slots]),
    )


def slot(score: float, age: int = 0, level: int = 0, best: float = 0.0, n_mutations: int = 0) -> dict:
    return {"score": score, "age": age, "level": level, "best": best, "n_mutations": n_mutations}


def put(config: ReplaySettings, buffer, rows: list[dict], n_rows: int = 5):
    """The buffer after `rows`, which are slots with the key "slot" (-1: new), and as many that change nothing."""
    rows = rows + [row(-np.inf, at=0)] * (n_rows - len(rows))
    slots, scores, returns, n_mutations = (
        [row[key] for row in rows] for key in ("slot", "score", "best", "n_mutations")
    )
    return insert(
        config,
        buffer,
        levels_of([row["level"] for row in rows]),
        np.array(slots, np.int32),
        np.array(scores, F),
        np.array(returns, F),
        np.array(n_mutations, np.int32),
    )


def row(score: float, at: int = -1, level: int = 0, best: float = 0.0, n_mutations: int = 0) -> dict:
    return slot(score, level=level, best=best, n_mutations=n_mutations) | {"slot": at}


# ------------------------------------------------------------------------------------------------------ weights


FOUR = [slot(1.0, age=1), None, slot(2.0, age=2), slot(-1.0, age=7)]


def test_weights_by_hand():
    cases = [
        ({"temperature": 1.0, "staleness": 0.0}, [3 / 11, 0, 6 / 11, 2 / 11]),
        ({"temperature": 0.5, "staleness": 0.0}, [9 / 49, 0, 36 / 49, 4 / 49]),
        ({"temperature": 1.0, "staleness": 0.0, "prioritisation": "proportional"}, [1 / 3, 0, 2 / 3, 0]),
        ({"temperature": 0.5, "staleness": 0.0, "prioritisation": "proportional"}, [1 / 5, 0, 4 / 5, 0]),
        ({"temperature": 0.3, "staleness": 0.0, "prioritisation": "greedy"}, [0, 0, 1, 0]),
        ({"temperature": 1.0, "staleness": 1.0}, [0.1, 0, 0.2, 0.7]),
        ({"temperature": 1.0, "staleness": 0.5}, [41 / 220, 0, 41 / 110, 97 / 220]),
    ]
    found = weights(tuple(ReplaySettings(**config) for config, _ in cases), buffer_of(FOUR))
    for (config, expected), by_config in zip(cases, found, strict=True):
        np.testing.assert_allclose(by_config, expected, atol=1e-6, err_msg=str(config))


def test_quantiles_of_the_scores_are_those_of_numpy():
    """Also where few slots are filled: the 10% quantile of two scores was the higher one."""
    metrics = jax.jit(functools.partial(level_buffer.buffer_metrics, ReplaySettings(capacity=8)))
    for n in range(9):
        scores = np.where(np.arange(8) < n, np.array([3, -1, 4, 1, 5, -9, 2, 6], np.float32), -np.inf)
        buffer = level_buffer.init(jnp.zeros((), jnp.int32), 8).replace(scores=scores, filled=np.arange(8) < n)
        found = metrics(buffer)
        for share, name in ((0.1, "p10"), (0.5, "p50"), (0.9, "p90")):
            expected = np.quantile(scores[:n], share) if n else np.nan
            assert float(found[f"buffer/score_{name}"]) == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_weights_of_equal_scores_rank_the_lower_slot_first():
    config = ReplaySettings(temperature=1.0, staleness=0.0)
    buffer = buffer_of([slot(0.5), slot(0.5), slot(-0.0), slot(0.0)])
    np.testing.assert_allclose(*weights((config,), buffer), np.array([12, 6, 4, 3]) / 25, atol=1e-6)


def test_weights_without_any_age_are_those_of_the_scores():
    aged, young = ReplaySettings(staleness=1.0), ReplaySettings(staleness=0.0)
    buffer = buffer_of([slot(0.5), slot(0.7), None])
    np.testing.assert_array_equal(*weights((aged, young), buffer))


def test_weights_without_any_positive_score_are_uniform():
    config = ReplaySettings(prioritisation="proportional", staleness=0.0)
    buffer = buffer_of([slot(-0.5), slot(0.0), None, slot(-3.0)])
    np.testing.assert_allclose(*weights((config,), buffer), [1 / 3, 1 / 3, 0, 1 / 3], atol=1e-6)


def test_weights_of_an_empty_buffer_are_zero():
    cases = itertools.product(("rank", "proportional", "greedy"), (0.0, 0.3, 1.0))
    configs = tuple(ReplaySettings(prioritisation=p, staleness=staleness) for p, staleness in cases)
    np.testing.assert_array_equal(weights(configs, buffer_of([None, None])), np.zeros((9, 2)))


SCORES = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0])
AGES = st.integers(0, 3) | st.integers(2**29, 2**30)  # together more than an int32 holds
SLOTS = st.lists(st.none() | st.builds(slot, SCORES, AGES), min_size=6, max_size=6)
CONFIGS = tuple(
    ReplaySettings(prioritisation=prioritisation, temperature=temperature, staleness=staleness)
    for prioritisation in ("rank", "proportional", "greedy")
    for temperature, staleness in ((0.1, 0.5), (0.3, 0.0))
)


@settings(max_examples=100, deadline=None)
@given(slots=SLOTS)
def test_weights_are_those_of_the_reference(slots):
    for config, found in zip(CONFIGS, jax.device_get(weights(CONFIGS, buffer_of(slots))), strict=True):
        np.testing.assert_allclose(found, Reference.of(config, slots).weights(), rtol=1e-5, atol=1e-7)
        assert found.sum() == pytest.approx(float(any(slots)), abs=1e-5)
        assert (found >= 0).all()


# ----------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("slots", [FOUR, [None, slot(1.0), None, None], [slot(0.0)] * 4])
def test_draws_age_the_others(slots):
    config = ReplaySettings(staleness=0.5)
    for seed in range(20):
        buffer, drawn = sample(jax.random.key(seed), config, buffer_of(slots), 7)
        reference = Reference.of(config, slots)
        assert all(slots[i] is not None for i in drawn.tolist())
        for i in drawn.tolist():
            reference.draw(i)
        assert_equal(buffer, reference)


def test_an_empty_buffer_gives_placeholders_that_are_never_inserted():
    config, nothing = ReplaySettings(staleness=0.5), Reference(ReplaySettings(), 4)
    buffer, drawn = sample(jax.random.key(0), config, buffer_of([None] * 4), 7)
    assert drawn.tolist() == [0] * 7
    assert_equal(buffer, nothing)
    assert_equal(put(config, buffer, [row(1.0, at=0)]), nothing)


def test_only_the_oldest_is_drawn_where_age_is_all_that_counts():
    config = ReplaySettings(staleness=1.0)
    buffer, drawn = sample(jax.random.key(0), config, buffer_of([slot(1.0), slot(0.0, age=9)]), 6)
    assert drawn.tolist() == [1, 0, 1, 0, 1, 0]  # the one drawn has age 0, the other 1
    assert buffer.ages.tolist() == [0, 1]


NEARLY_BEST_ALONE = ReplaySettings(temperature=0.02, staleness=0.5)


def test_ages_saturate_before_they_overflow():
    config = NEARLY_BEST_ALONE
    buffer = buffer_of([slot(score, age=2**30 - 1) for score in range(8)])
    for _ in range(3):
        buffer, _ = jax.device_get(sample(jax.random.key(0), config, buffer, 1))
        buffer = jax.device_get(put(config, buffer, [row(-np.inf)] * 3))
    assert buffer.ages.max() == level_buffer.MAX_AGE == 2**30
    assert buffer.ages.min() >= 0
    assert float(np.sum(*weights((config,), buffer))) == pytest.approx(1.0)


AGE_ALONE = ReplaySettings(staleness=1.0)


def aged_buffer(ages: np.ndarray) -> level_buffer.LevelBuffer:
    """Slots of these ages; those of age -1 are free."""
    buffer = init(np.zeros((), np.int32), len(ages))
    scores = np.where(ages >= 0, 0.5, -np.inf).astype(F)
    return buffer.replace(ages=np.maximum(ages, 0).astype(np.int32), filled=ages >= 0, scores=scores)


def plain_draws(ages: np.ndarray, uniforms: np.ndarray) -> tuple[list[int], np.ndarray]:
    """(slots, ages after them) for one uniform number a draw, by age alone, in 64 bits; ages of -1 are free slots."""
    ages, filled, slots = np.maximum(ages, 0).astype(np.int64), ages >= 0, []
    for uniform in uniforms:
        unit = min(int(F(uniform) * F(ages.sum())), ages.sum() - 1)
        slots.append(int(np.searchsorted(np.cumsum(ages), unit, side="right")))
        ages = ages + filled
        ages[slots[-1]] = 0
    return slots, ages


@jax.jit
def uniforms_of(key: jax.Array) -> jax.Array:
    """The numbers that 64 draws by age are made with."""
    return jax.random.uniform(jax.random.split(key, 3)[2], (64,))


@pytest.mark.parametrize("capacity", [7, 4000])
@pytest.mark.parametrize("kind", ["young", "mixed", "oldest"])
def test_draws_by_age_are_those_of_the_plain_loop_to_the_bit(capacity, kind):
    """Up to an age of 2**30 / C, where the sum of all ages surely fits an int32."""
    rng, oldest = np.random.default_rng(0), 2**30 // capacity
    ages = {
        "young": rng.integers(0, 50, capacity),
        "mixed": np.where(rng.random(capacity) < 0.3, -1, rng.integers(0, oldest, capacity)),
        "oldest": np.full(capacity, oldest),
    }[kind]
    for seed in range(3):
        key = jax.random.key(seed)
        found, slots = sample(key, AGE_ALONE, aged_buffer(ages), 64)
        expected, after = plain_draws(ages, np.asarray(uniforms_of(key)))
        assert slots.tolist() == expected
        np.testing.assert_array_equal(found.ages, after)


@pytest.mark.deep
def test_old_levels_are_drawn_in_proportion_to_their_ages():
    """C = 4000 and ages up to 1e8, 2e11 together. Chi-squared over groups of slots, refused at p < 1e-4."""
    ages = np.random.default_rng(1).integers(0, 10**8, 4000)
    ages[:400], ages[400] = 0, 10**9
    buffer = jax.tree.map(jnp.asarray, aged_buffer(ages))
    keys = jax.random.split(jax.random.key(2), 20_000)

    @jax.jit
    def draw(keys):
        return jax.lax.map(lambda key: level_buffer.sample(key, AGE_ALONE, buffer, 1)[1][0], keys, batch_size=100)

    groups = np.concatenate([np.zeros(400, int), [1], 2 + np.argsort(np.argsort(ages[401:])) * 18 // 3599])
    counts = np.bincount(groups[np.asarray(draw(keys))], minlength=20)
    shares = np.bincount(groups, ages) / ages.sum()
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], shares[1:] * len(keys)).pvalue > 1e-4
    np.testing.assert_allclose(*weights((AGE_ALONE,), buffer), ages / ages.sum(), rtol=2e-5)
    after, slots = sample(keys[0], AGE_ALONE, buffer, 1)
    np.testing.assert_array_equal(after.ages, np.where(np.arange(4000) == slots[0], 0, ages + 1))


@pytest.mark.deep
def test_levels_age_from_draw_to_draw_also_where_ages_are_counted_in_larger_units():
    """Half of the slots are as young as can be, and only what they age during the batch has them drawn."""
    half, age, n = 2**16, 40_000, 4000
    ages = np.concatenate([np.zeros(half, int), np.full(half, age)])
    after, slots = sample(jax.random.key(0), AGE_ALONE, aged_buffer(ages), n)
    k = np.arange(n)
    expected = (k / (age + 2 * k)).sum()  # the young slots' share before draw k, about 180 draws in all
    assert abs((np.asarray(slots) < half).sum() - expected) < 4 * np.sqrt(expected)
    last = np.full(2 * half, -1)
    np.maximum.at(last, np.asarray(slots), k)
    np.testing.assert_array_equal(after.ages, np.where(last >= 0, n - 1 - last, ages + n))


def test_levels_at_slots():
    buffer = buffer_of([slot(0, level=5), slot(0, level=7)])
    levels = jax.jit(level_buffer.levels_at)(buffer, np.array([1, 1, 0]))
    assert levels.number.tolist() == [7, 7, 5]


# ---------------------------------------------------------------------------------------------------- insertion

PLAIN = ReplaySettings(temperature=1.0, staleness=0.0)  # evicts the lowest score


def test_free_slots_are_taken_in_order_whatever_the_score():
    empty = init(levels_of(3), 3)
    assert_equal(empty, Reference(PLAIN, 3))
    assert empty.levels.number.tolist() == [3, 3, 3]
    buffer = put(PLAIN, empty, [row(-5.0, level=1, best=0.1, n_mutations=2), row(-np.inf, level=2), row(0.0, level=3)])
    assert_equal(buffer, Reference.of(PLAIN, [slot(-5.0, 0, 1, 0.1, 2), slot(0.0, 0, 3), None]))


def test_a_full_buffer_gives_up_its_lightest_slot_to_a_score_as_high():
    full = [slot(0.5, 3, 1, 0.9, 4), slot(0.2, 2, 2), slot(0.7, 1, 3)]
    rejected = put(PLAIN, buffer_of(full), [row(0.1, level=4)])
    assert_equal(rejected, Reference.of(PLAIN, [full[0] | {"age": 4}, full[1] | {"age": 3}, full[2] | {"age": 2}]))
    accepted = put(PLAIN, buffer_of(full), [row(0.2, level=4, best=-0.5)])
    expected = [full[0] | {"age": 4}, slot(0.2, 0, 4, -0.5), full[2] | {"age": 2}]
    assert_equal(accepted, Reference.of(PLAIN, expected))


def test_weights_below_a_float_s_resolution_still_count():
    config = NEARLY_BEST_ALONE
    full = [slot(score, 5, level) for level, score in enumerate([0.3, 0.1, 0.2, 0.9, 0.5, 0.8, 0.7, 0.6])]
    buffer = put(config, buffer_of(full), [row(0.15, level=20)])
    assert buffer.levels.number.tolist() == [0, 20, 2, 3, 4, 5, 6, 7]  # all as old: the lowest score goes


@pytest.mark.parametrize("score", [-np.inf, np.nan, np.inf])
def test_an_unfinished_replay_keeps_its_score(score):
    held = [slot(0.5, 3, 1, 0.25), slot(0.1), None]
    buffer = put(PLAIN, buffer_of(held), [row(score, at=0, level=1, best=-np.inf)] * 2)
    assert_equal(buffer, Reference.of(PLAIN, held))


def test_copies_of_a_slot_keep_the_last_score_and_the_best_return():
    batch = [row(0.9, 1, best=0.3), row(0.4, 1, best=0.7), row(-np.inf, 1, best=-np.inf), row(0.6, 1, best=0.1)]
    buffer = put(PLAIN, buffer_of([slot(0.5, 3), slot(0.1, 2, 1, best=0.2), None]), batch)
    assert_equal(buffer, Reference.of(PLAIN, [slot(0.5, 3), slot(0.6, 2, 1, best=0.7), None]))


def test_the_late_update_of_an_evicted_level_is_lost():
    batch = [row(0.9, level=9, best=0.4), row(5.0, at=1, level=2, best=6.0), row(0.3, at=0, level=1)]
    buffer = put(PLAIN, buffer_of([slot(0.5, 0, 1), slot(0.2, 0, 2), slot(0.8, 0, 3)]), batch)
    assert_equal(buffer, Reference.of(PLAIN, [slot(0.3, 1, 1), slot(0.9, 0, 9, 0.4), slot(0.8, 1, 3)]))


def test_a_duplicate_updates_the_slot_that_holds_it():
    held = [slot(0.5, 3, 1, 0.3, n_mutations=2), None, None]
    batch = [row(0.2, level=1, best=0.9, n_mutations=7), row(0.1, level=4), row(0.3, level=4)]
    buffer = put(PLAIN, buffer_of(held), batch)
    assert_equal(buffer, Reference.of(PLAIN, [slot(0.2, 0, 1, 0.9, n_mutations=2), slot(0.3, 0, 4), None]))
    buffer = put(dataclasses.replace(PLAIN, unique=False), buffer_of(held), batch)
    np.testing.assert_array_equal(buffer.levels.number, [1, 1, 4])
    np.testing.assert_allclose(buffer.scores, [0.5, 0.2, 0.3])


def test_an_evicted_level_may_come_back():
    batch = [row(0.6, level=9), row(0.7, level=2), row(0.8, at=1, level=2), row(0.9, level=2)]
    buffer = put(PLAIN, buffer_of([slot(0.5, 0, 1), slot(0.2, 0, 2), slot(0.99, 0, 3)]), batch)
    assert_equal(buffer, Reference.of(PLAIN, [slot(0.9, 0, 2), slot(0.6, 0, 9), slot(0.99, 3, 3)]))


TRACES = [
    (ReplaySettings(temperature=1.0, staleness=0.3), 5, 7),
    (ReplaySettings(temperature=0.1, staleness=0.3, unique=False), 4, 12),
    (ReplaySettings(prioritisation="proportional", temperature=1.0, staleness=0.25), 5, 7),
    (ReplaySettings(temperature=0.3, staleness=0.5), 9, 4),
    (ReplaySettings(temperature=0.3, staleness=0.0), 6, 6),
    (ReplaySettings(temperature=0.3, staleness=1.0), 6, 6),
    (ReplaySettings(temperature=1.0, staleness=0.5, unique=False), 1, 3),
    (ReplaySettings(prioritisation="proportional", temperature=0.5, staleness=0.0, unique=False), 5, 7),
    (ReplaySettings(prioritisation="greedy", staleness=0.5), 5, 7),
]


def random_batches(rng: np.random.Generator, n_traces: int, n_rows: int, capacity: int) -> dict[str, np.ndarray]:
    """Rows of many batches: levels that recur, scores with ties, below 0 and unknown, slots that recur."""
    shape = (n_traces, n_rows)
    kind = rng.choice(3, size=(n_traces, 1), p=[0.4, 0.2, 0.4])  # new levels, replayed ones, both
    is_new = np.select([kind == 0, kind == 1], [True, False], rng.random(shape) < 0.6)
    score = rng.choice([-np.inf, -1.0, 0.0, 0.25, 0.5, 1.0, 2.0], size=shape)
    return {
        "slot": np.where(is_new, -1, rng.integers(0, capacity, shape)).astype(np.int32),
        "level": rng.integers(1, 3 * capacity, shape).astype(np.int32),
        "score": score.astype(F),
        "best": np.where(np.isfinite(score), rng.choice([-1.0, 0.0, 0.5], size=shape), -np.inf).astype(F),
        "n_mutations": rng.integers(0, 9, shape).astype(np.int32),
    }


def deep(*case) -> object:
    return pytest.param(*case, marks=pytest.mark.deep)


@pytest.mark.parametrize(("config", "capacity", "n_rows"), [*TRACES[:2], *(deep(*case) for case in TRACES[2:])])
def test_insertion_equals_the_rule_one_by_one(config, capacity, n_rows):
    n_traces, n_batches = 200, 6
    rng = np.random.default_rng(0)
    references = [Reference(config, capacity) for _ in range(n_traces)]
    empty = jax.device_get(init(levels_of(0), capacity))
    buffers = jax.tree.map(lambda x: np.tile(x, (n_traces, *[1] * x.ndim)), empty)
    for _ in range(n_batches):
        batch = random_batches(rng, n_traces, n_rows, capacity)
        for trace, reference in enumerate(references):
            for n in range(n_rows):  # a replayed row carries the level of its slot
                held = reference.slots[max(batch["slot"][trace, n], 0)]
                if batch["slot"][trace, n] >= 0 and held is not None:
                    batch["level"][trace, n] = held["level"]
            reference.insert([{k: v[trace, n].item() for k, v in batch.items()} for n in range(n_rows)])
        columns = (batch[key] for key in ("slot", "score", "best", "n_mutations"))
        buffers = insert_many(config, buffers, levels_of(batch["level"]), *columns)
        for reference, buffer in zip(references, unstacked(buffers), strict=True):
            assert_equal(buffer, reference)
            reference.draw(rng.choice(reference.filled() or [0]))
        buffers = buffers.replace(ages=ages_of(references))
    if config.unique:
        held = [[slot["level"] for slot in r.slots if slot] for r in references]
        assert all(len(set(levels)) == len(levels) for levels in held)


def ages_of(references: list[Reference]) -> np.ndarray:
    return np.asarray([[slot["age"] if slot else 0 for slot in r.slots] for r in references], np.int32)


def unstacked(buffers):
    host = jax.tree.map(np.asarray, buffers)
    return [jax.tree.map(lambda x, i=i: x[i], host) for i in range(len(host.filled))]


def against_the_rule(config: ReplaySettings, scores: list[float], ages: Callable, n_trials: int = 60) -> None:
    """Full buffers with random slots, one batch each: as by the rule. `ages` draws a buffer's from a generator."""
    rng, capacity, n_rows = np.random.default_rng(2), 6, 5
    levels = itertools.count(100)
    references = []
    for _ in range(n_trials):
        held = zip(rng.choice(scores, capacity), ages(rng, capacity), strict=True)
        references.append(Reference.of(config, [slot(float(x), int(a), level=next(levels)) for x, a in held]))
    buffers = jax.tree.map(lambda *leaves: np.stack(leaves), *[buffer_of(r.slots) for r in references])
    batch = random_batches(rng, n_trials, n_rows, capacity)
    batch["score"] = rng.choice(scores, (n_trials, n_rows)).astype(F)
    batch["slot"] = np.full_like(batch["slot"], -1)
    for trial, reference in enumerate(references):
        reference.insert([{k: v[trial, n].item() for k, v in batch.items()} for n in range(n_rows)])
    columns = (batch[key] for key in ("slot", "score", "best", "n_mutations"))
    after = insert_many(config, buffers, levels_of(batch["level"]), *columns)
    for reference, buffer in zip(references, unstacked(after), strict=True):
        assert_equal(buffer, reference)


@pytest.mark.parametrize("prioritisation", ["rank", deep("proportional"), deep("greedy")])
def test_insertion_equals_the_rule_where_the_sum_of_ages_is_far_beyond_an_int32(prioritisation):
    config = ReplaySettings(prioritisation=prioritisation, temperature=1.0, staleness=0.5)
    against_the_rule(config, [0.25, 0.5, 1.0, 2.0], lambda rng, n: rng.integers(0, 10**9, n))


@pytest.mark.parametrize("staleness", [0.3, deep(0.0)])
def test_insertion_equals_the_rule_where_one_score_dwarfs_all_others(staleness):
    """Next to a score of 1000, the merits of all others are 0: before it comes, they must not be."""
    config = ReplaySettings(prioritisation="proportional", temperature=0.05, staleness=staleness)
    against_the_rule(config, [0.5, 1.0, 1.5, 3.0, 1000.0], lambda rng, n: rng.integers(0, 9, n))


def test_a_high_score_late_in_a_batch_changes_nothing_before_it():
    config = ReplaySettings(prioritisation="proportional", temperature=0.05, staleness=0.0)
    batch = [row(1.5, level=8), row(500.0, level=9)]
    together = single = buffer_of([slot(3.0, level=1), slot(1.0, level=2)])
    together = put(config, together, batch)
    for one in batch:
        single = put(config, single, [one])
    for buffer in (together, single):  # the lowest score goes each time: first 1, then 1.5
        assert buffer.scores.tolist() == [3.0, 500.0]
        assert buffer.levels.number.tolist() == [1, 9]


@pytest.mark.parametrize(
    ("prioritisation", "pays"), [("rank", False), deep("greedy", False), deep("proportional", True)]
)
def test_merits_cost_nothing_where_they_are_not_read(prioritisation, pays):
    columns = (np.full(5, -1, np.int32), *np.zeros((2, 5), F), np.zeros(5, np.int32))
    config = ReplaySettings(prioritisation=prioritisation)
    compiled = insert.lower(config, buffer_of([slot(1.0)] * 6), levels_of(range(5)), *columns).compile()
    assert (" power(" in compiled.as_text()) == pays


@pytest.mark.deep
def test_the_order_of_a_batch_is_the_order_of_single_insertions():
    rng = np.random.default_rng(1)
    buffer = single = buffer_of([slot(x, level=i) for i, x in enumerate(rng.random(20, F))])
    batch = [row(x, level=100 + i) for i, x in enumerate(rng.random(40, F))]
    buffer = put(PLAIN, buffer, batch)
    for one in batch:
        single = put(PLAIN, single, [one], n_rows=len(batch))
    np.testing.assert_array_equal(buffer.scores, single.scores)
    np.testing.assert_array_equal(buffer.levels.number, single.levels.number)


# ---------------------------------------------------------------------------------------- duplicates and returns


def test_fingerprints_tell_levels_apart():
    numbers = levels_of(np.arange(60))
    prints = np.asarray(fingerprints_of(numbers))
    assert len(np.unique(prints, axis=0)) == 60
    assert len(np.unique(prints[:, 0])) == len(np.unique(prints[:, 1])) == 60
    maps = np.repeat(np.random.default_rng(0).random((1, 50_000, 9, 9)) < 0.5, 2, axis=0)
    maps[1, :, 4, 4] = ~maps[0, :, 4, 4]
    prints = np.asarray(fingerprints_of(maps.reshape(-1, 9, 9)))
    assert len(np.unique(prints, axis=0)) == 100_000


fingerprint_of = jax.jit(level_buffer.fingerprint)


def test_fingerprints_look_at_values():
    level = {"a": np.array([0.0, 1.5], np.float16), "b": np.int32(-3)}
    same = {"a": np.array([0.0, 1.5], np.float64).astype(np.float16), "b": np.int32(-3)}
    others = [level | {"b": np.int32(3)}, level | {"a": np.array([0.0, 1.25], np.float16)}]
    found, of_same, *of_others = (np.asarray(fingerprint_of(x)) for x in (level, same, *others))
    np.testing.assert_array_equal(found, of_same)
    assert all((found != other).all() for other in of_others)


def test_fingerprints_take_both_zeros_for_one():
    zeros = [np.array([zero, 1.5], np.float16) for zero in (0.0, -0.0)]
    np.testing.assert_array_equal(*(fingerprint_of({"a": zero, "b": np.int32(-3)}) for zero in zeros))


def test_a_level_may_be_a_random_key():
    keys = jax.random.split(jax.random.key(0), 3)
    score, no_mutations = np.array([0.1, 0.2, 0.3], F), np.zeros(3, np.int32)

    @jax.jit
    def inserted(keys):
        empty, levels, new = level_buffer.init(keys[0], 2), keys[jnp.array([0, 1, 1])], jnp.full(3, -1)
        buffer = insert(PLAIN, empty, levels, new, score, score, no_mutations)
        return buffer.scores, buffer.levels == keys[:2]

    scores, same = inserted(keys)
    assert np.all(same)
    np.testing.assert_allclose(scores, [0.1, 0.3])


def test_an_environment_may_say_which_levels_are_equal():
    buffer = buffer_of([None, None, None])

    def parity(level):
        return level.number % 2

    @jax.jit
    def inserted(buffer, levels):
        new, zero, no_mutations = jnp.full(3, -1), jnp.zeros(3), jnp.zeros(3, jnp.int32)
        rows = level_buffer.locate(ReplaySettings(), buffer, levels, new, identity=parity)
        return level_buffer.insert(ReplaySettings(), buffer, rows, zero, zero, no_mutations), rows.homes

    buffer, _ = jax.device_get(inserted(buffer, levels_of([4, 5, 12])))
    assert buffer.levels.number[buffer.filled].tolist() == [4, 5]
    assert inserted(buffer, levels_of([7, 8, 1]))[1].tolist() == [1, 0, 1]


def test_best_returns_are_shared_by_the_copies_of_a_level():
    buffer = buffer_of([slot(0, level=1, best=0.5), slot(0, level=2, best=-1.0), None])
    numbers, slots = [2, 1, 2, 9, 9, 1, 8], np.array([1, 0, 1, -1, -1, -1, -1], np.int32)
    returns = np.array([-3.0, 0.1, -0.5, 0.2, 0.7, 0.6, -np.inf], F)

    @jax.jit
    def both(buffer, levels):
        """For levels that are kept once, and for those that are kept as often as they come."""
        rows = [level_buffer.locate(ReplaySettings(unique=once), buffer, levels, slots) for once in (True, False)]
        return [level_buffer.best_returns(buffer, row, returns) for row in rows]

    shared, apart = both(buffer, levels_of(numbers))
    np.testing.assert_allclose(shared, [-0.5, 0.6, -0.5, 0.7, 0.7, 0.6, -np.inf])
    np.testing.assert_allclose(apart, [-0.5, 0.5, -0.5, 0.2, 0.7, 0.6, -np.inf])


# --------------------------------------------------------------------------------------------- schedules, compilation


def test_replay_waits_for_the_minimum_fill():
    buffers = [buffer_of([slot(0.0)] * n + [None] * (4 - n)) for n in range(5)]

    cases = [
        ({"replay_prob": 0.75, "min_fill": 0.5}, [0, 0, 0.75, 0.75, 0.75]),
        ({"replay_prob": 0.75, "min_fill": 0.0}, [0, 0.75, 0.75, 0.75, 0.75]),
        ({"schedule": "proportionate", "min_fill": 0.0}, [0, 0.25, 0.5, 0.75, 1]),
        ({"schedule": "proportionate", "min_fill": 0.75}, [0, 0, 0, 0.75, 1]),
    ]

    @jax.jit
    def chances(buffer):
        return [level_buffer.replay_probability(ReplaySettings(**options), buffer) for options, _ in cases]

    found = np.array([chances(buffer) for buffer in buffers])
    assert found.T.tolist() == [expected for _, expected in cases]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity is 0: it must be at least 1"),
        ({"temperature": 0.0}, "temperature is 0.0: it must be positive and finite"),
        ({"staleness": 1.5}, "staleness is 1.5: it must be between 0 and 1"),
        ({"replay_prob": float("nan")}, "replay_prob is nan: it must be between 0 and 1"),
        ({"min_fill": -0.1}, "min_fill is -0.1: it must be between 0 and 1"),
        ({"prioritisation": "ranks"}, "unknown prioritisation 'ranks': choose from .*did you mean 'rank'"),
        ({"schedule": "linear"}, "unknown schedule 'linear': choose from fixed, proportionate"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReplaySettings(**options)


def big(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, 64, 64)) < 0.5


def test_a_batch_is_written_in_place_and_compiled_once():
    """16 MB of levels: what the insertion needs besides is far smaller, also inside a branch."""
    capacity, n, config = 4000, 8, ReplaySettings()
    traces = itertools.count()

    def step(buffer, levels, scores, keep):
        next(traces)
        rows = level_buffer.locate(config, buffer, levels, jnp.full(n, -1))
        zero = jnp.zeros(n, jnp.int32)
        return jax.lax.cond(
            keep, lambda: level_buffer.insert(config, buffer, rows, scores, scores, zero), lambda: buffer
        )

    jitted = jax.jit(step, donate_argnums=0)
    buffer = init(big(1)[0], capacity)
    memory = jitted.lower(buffer, big(n), np.zeros(n, F), True).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4e6
    assert memory.alias_size_in_bytes > 16e6
    before = next(traces)
    for i in range(3):
        buffer = jitted(buffer, big(n), np.full(n, i, F), True)
    assert next(traces) == before + 1
