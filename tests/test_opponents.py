"""The bank and who is drawn from it: recordings of Syllabus, a plain Python model, closed forms, counted draws."""

import collections
import functools
import json
from pathlib import Path
from typing import get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from minimax_lib.config.tree import build, registry_of, to_tree
from minimax_lib.envs.matrix_game import UNEVEN_ROCK_PAPER_SCISSORS, exploitability
from minimax_lib.opponents import (
    LIVE,
    OPPONENTS,
    PFSP,
    Bank,
    DeltaUniform,
    FictitiousSelfPlay,
    Games,
    Mixture,
    Opponents,
    Record,
    SelfPlay,
    add,
    book,
    filled,
    init,
    parameters_at,
    win_rates,
)
from minimax_lib.opponents.bank import DRAW, EMPTY, LOSS, NONE, WIN, first_record
from minimax_lib.opponents.settings import INNER, MixtureSettings, PFSPSettings
from minimax_lib.tasks import TaskCurriculum

FILE = np.load(Path(__file__).parent / "data" / "pfsp.npz")
CASES = json.loads(str(FILE["meta"]))["cases"]
booked = jax.jit(book)
added = jax.jit(add, static_argnames="keep")
new = jax.jit(init, static_argnames=("capacity", "window"))
new_record = jax.jit(first_record, static_argnums=(0, 1))
rates_of = jax.jit(win_rates, static_argnums=1)
weights_of = jax.jit(lambda core, record: core.weights(record), static_argnums=0)
N_SEEDS, N_STEPS, N_SLOTS, WINDOW, N_GAMES = 4, 40, 5, 3, 12
N_DRAWS = 100_000
DRAWS = (0.0, 0.5)  # of a win, in the comparison with the plain model
LEAST_P = 1e-3  # of a chi-square test with a fixed key


def games_of(slot, serial, student, opponent, valid=True) -> Games:
    """Games given as lists, or as one value for all."""
    n = len(slot)

    def full(value, dtype):
        return np.broadcast_to(np.asarray(value, dtype), (n,))

    return Games(
        slot=full(slot, np.int32),
        serial=full(serial, np.int32),
        student_return=full(student, np.float32),
        opponent_return=full(opponent, np.float32),
        valid=full(valid, bool),
    )


def record_of(outcomes, serial=None) -> Record:
    """A record of K slots with these outcomes, each a list of at most W; all slots filled unless `serial` is given."""
    width = max(1, *map(len, outcomes))
    padded = [[*row, *[NONE] * (width - len(row))] for row in outcomes]
    serial = range(len(outcomes)) if serial is None else serial
    return Record(
        serial=np.asarray(list(serial), np.int32),
        n_added=np.asarray(max(serial) + 1, np.int32),
        outcomes=np.asarray(padded, np.uint8),
        n_games=np.asarray([len(row) for row in outcomes], np.int32),
    )


# Recordings


@pytest.mark.parametrize("case", [0, *(pytest.param(i, marks=pytest.mark.deep) for i in range(1, len(CASES)))])
@pytest.mark.parametrize("n_batches", [pytest.param(1, marks=pytest.mark.deep), 10])
def test_pfsp_is_that_of_syllabus(case, n_batches):
    """Rates and weights after up to 115 games of each agent, all won or lost.

    So the recordings say nothing about the window (127 games there) and draws; other tests do.
    """
    settings = CASES[case]
    n = settings["n_agents"]
    opponent, reward = (FILE[f"c{case}_{name}"].reshape(n_batches, -1) for name in ("opponent", "reward"))
    core = PFSP(n, "hard", settings["entropy_parameter"], settings["smoothing_constant"], draw=0.0)
    # Returns as they are there: 1, 0 or -1, so that the opponent's are the opposite.
    batches = [games_of(slot, slot, r, -r) for slot, r in zip(opponent, reward, strict=True)]

    @jax.jit
    def found(games):
        record = first_record(n, window=127).replace(serial=jnp.arange(n, dtype=jnp.int32))
        record = jax.lax.scan(lambda x, batch: (book(x, batch), None), record, games)[0]
        return win_rates(record, draw=0.0)[0], core.weights(record)

    rates, weights = found(jax.tree.map(lambda *xs: np.stack(xs), *batches))
    np.testing.assert_allclose(rates, FILE[f"c{case}_winrate"], atol=1e-6)
    np.testing.assert_allclose(weights, FILE[f"c{case}_weights"], atol=1e-6)


# A plain Python model


class PlainBank:
    """A bank of numbers as lists."""

    def __init__(self, first: float, keep: str):
        self.keep, self.n_added = keep, 1
        self.copies: list[tuple[int, float, collections.deque]] = [(0, first, collections.deque(maxlen=WINDOW))]

    def add(self, value: float) -> None:
        copy = (self.n_added, value, collections.deque(maxlen=WINDOW))
        self.n_added += 1
        if len(self.copies) < N_SLOTS:
            self.copies.append(copy)
        else:
            self.copies[self._leaving()] = copy

    def _leaving(self) -> int:
        if self.keep == "oldest":
            return min(range(N_SLOTS), key=lambda slot: self.copies[slot][0])
        ages = [1, *sorted(self.n_added - serial for serial, _, _ in self.copies)]
        gaps = [ages[i + 1] / ages[i - 1] for i in range(1, N_SLOTS)]
        age = ages[1 + gaps.index(min(gaps))]
        return next(slot for slot, (serial, _, _) in enumerate(self.copies) if self.n_added - serial == age)

    def book(self, slot, serial, student, opponent, valid) -> None:
        for s, number, own, other, ended in zip(slot, serial, student, opponent, valid, strict=True):
            if ended and 0 <= s < len(self.copies) and self.copies[s][0] == number:
                self.copies[s][2].append(WIN if own > other else LOSS if own < other else DRAW)

    def rates(self, draw: float) -> list[float]:
        worth = {LOSS: 0.0, DRAW: draw, WIN: 1.0}
        rates = [np.mean([worth[x] for x in window]) if window else 0.0 for _, _, window in self.copies]
        return rates + [0.0] * (N_SLOTS - len(rates))


def random_events(seed: int) -> dict[str, np.ndarray]:
    """Copies and games of `N_STEPS` steps: many of one slot at once, some too late, some against nobody."""
    rng = np.random.default_rng(seed)
    slot = rng.integers(LIVE, N_SLOTS, (N_STEPS, N_GAMES))
    slot[rng.random(N_STEPS) < 0.3] = rng.integers(N_SLOTS)  # more than a window of one slot
    adds = rng.random(N_STEPS) < 0.5
    n_added = 1 + np.cumsum(adds)
    return {
        "adds": adds,
        "value": rng.random(N_STEPS).astype(np.float32),
        "slot": slot,
        # The first copies fill the slots in order, later ones may be anywhere.
        "serial": np.where(
            rng.random(slot.shape) < 0.5, slot, rng.integers(-1, np.repeat(n_added[:, None], N_GAMES, 1))
        ),
        "student": rng.integers(0, 3, slot.shape),
        "opponent": rng.integers(0, 3, slot.shape),
        "valid": rng.random(slot.shape) < 0.8,
    }


@pytest.fixture(scope="module")
def events():
    seeds = [random_events(seed) for seed in range(N_SEEDS)]
    # A copy joins on every seed at once, as in training.
    for seed in seeds:
        seed["adds"] = seeds[0]["adds"]
    return {name: np.stack([seed[name] for seed in seeds]) for name in seeds[0]}


def at_step(record: Record, event) -> Games:
    """The games of an event. Half of those that know a wrong serial are told the right one."""
    slot, serial = event["slot"], event["serial"]
    right = jnp.where((serial % 2 == 0) & (slot >= 0), record.serial[slot], serial)
    return Games(slot, right, event["student"], event["opponent"], event["valid"])


@functools.partial(jax.jit, static_argnums=0)
def histories(keep, events):
    """(the bank after each step, the games, the rates with a draw of 0 and of .5), [S, N_STEPS, ...]."""

    def step(bank, event):
        games = at_step(bank.record, event)
        bank = bank.replace(record=book(bank.record, games))
        bank = jax.lax.cond(
            event["adds"], lambda: add(bank, {"x": event["value"]}, keep), lambda: bank
        )  # booked before: the next games of this slot are too late
        return bank, (bank, games, [win_rates(bank.record, draw) for draw in DRAWS])

    def one(events):
        bank = init({"x": jnp.float32(0.5)}, N_SLOTS, WINDOW)
        return jax.lax.scan(step, bank, events)[1]

    return jax.vmap(one)(events)


@pytest.mark.parametrize("keep", ["oldest", "spread"])
def test_bank_is_that_of_a_plain_model(keep, events):
    typed = {name: np.asarray(x, np.int32 if x.dtype == np.int64 else x.dtype) for name, x in events.items()}
    found = jax.device_get(histories(keep, typed))
    n_late = n_full = 0
    for seed in range(N_SEEDS):
        plain = PlainBank(0.5, keep)
        for t in range(N_STEPS):
            bank, played, rates = jax.tree.map(lambda x, seed=seed, t=t: x[seed, t], found)
            n_late += sum((played.serial >= 0) & (played.serial != np.append(serials(plain), EMPTY)[played.slot]))
            n_full += max(collections.Counter(played.slot[played.valid]).values()) > WINDOW
            plain.book(played.slot, played.serial, played.student_return, played.opponent_return, played.valid)
            if events["adds"][seed, t]:
                plain.add(events["value"][seed, t])
            same_as_plain(bank, rates, plain)
    assert n_late > 100
    assert n_full > 10


def serials(plain: PlainBank) -> np.ndarray:
    found = [serial for serial, _, _ in plain.copies]
    return np.array(found + [EMPTY] * (N_SLOTS - len(found)))


def same_as_plain(bank: Bank, rates, plain: PlainBank) -> None:
    record, n = bank.record, len(plain.copies)
    np.testing.assert_array_equal(record.serial, serials(plain))
    assert record.n_added == plain.n_added
    np.testing.assert_array_equal(bank.params["x"][:n], [value for _, value, _ in plain.copies])
    for slot, (_, _, window) in enumerate(plain.copies):
        place = record.n_games[slot] % WINDOW
        in_order = np.roll(record.outcomes[slot], -place)
        assert [x for x in in_order if x != NONE] == list(window)
    for draw, (rate, met) in zip(DRAWS, rates, strict=True):
        np.testing.assert_allclose(rate, plain.rates(draw), atol=1e-6)
        np.testing.assert_array_equal(met, [*(bool(w) for _, _, w in plain.copies), *[False] * (N_SLOTS - n)])


# The bank by hand


def test_a_new_bank_holds_the_first_student_alone():
    bank = jax.device_get(new({"w": np.ones((2, 3), np.float32), "n": np.int32(7)}, capacity=4, window=6))
    np.testing.assert_array_equal(filled(bank.record), [True, False, False, False])
    assert bank.params["w"].shape == (4, 2, 3)
    np.testing.assert_array_equal(bank.params["w"][0], np.ones((2, 3)))
    assert bank.record.outcomes.shape == (4, 6)
    assert bank.record.n_added == 1


def test_parameters_may_be_kept_in_fewer_bits():
    live = {"w": np.asarray([1.0, 1.001953125 + 2**-12], np.float32), "n": np.int32(7)}

    @jax.jit
    def kept(live, slots):
        bank = add(init(live, 2, 1, jnp.bfloat16), live)
        return bank, parameters_at(bank, slots, live)

    bank, found = kept(live, np.asarray([1, LIVE], np.int32))
    assert bank.params["w"].dtype == jnp.bfloat16
    assert bank.params["n"].dtype == jnp.int32
    assert found["w"].dtype == jnp.float32
    np.testing.assert_array_equal(found["w"], [[1.0, 1.0], [1.0, live["w"][1]]])
    np.testing.assert_array_equal(found["n"], [7, 7])


def test_parameters_of_slots_and_of_the_live_student():
    @jax.jit
    def found_at(slots, live):
        bank = init({"w": jnp.zeros(2)}, 3, 1)
        for i in (1, 2):
            bank = add(bank, {"w": jnp.full(2, float(i))})
        return parameters_at(bank, slots, live)

    found = found_at(np.asarray([2, LIVE, 0, 2, 1], np.int32), {"w": np.full(2, 9.0, np.float32)})
    np.testing.assert_array_equal(found["w"][:, 0], [2, 9, 0, 2, 1])
    assert found["w"].shape == (5, 2)


def rate_of_first(record):
    return np.asarray(rates_of(record)[0])[0]


def test_the_window_forgets_after_as_many_games_as_it_holds():
    record = booked(new_record(2, WINDOW), games_of([0] * WINDOW, 0, 1.0, 0.0))
    assert rate_of_first(record) == 1
    for n_lost in range(1, WINDOW + 1):
        record = booked(record, games_of([0], 0, 0.0, 1.0))
        assert rate_of_first(record) == pytest.approx(1 - n_lost / WINDOW)
    assert record.n_games[0] == 2 * WINDOW


def test_of_more_games_than_a_window_the_last_count():
    @jax.jit
    def played(games):
        records = [book(first_record(1, window), games) for window in (2, 3, 4, 6, 8)]
        return [(win_rates(record)[0][0], record.n_games[0]) for record in records]

    found = played(games_of([0] * 6, 0, [1, 1, 1, 0, -1, 1], 0.0))
    assert [float(rate) for rate, _ in found] == pytest.approx([0.5, 0.5, 0.625, 0.75, 0.75])
    assert [int(n_games) for _, n_games in found] == [6] * 5


def test_a_draw_counts_as_it_is_told():
    record = record_of([[WIN, DRAW], [DRAW], [LOSS], []])
    for draw in (0.0, 0.5, 1.0):
        rate, met = rates_of(record, draw)
        np.testing.assert_allclose(rate, [(1 + draw) / 2, draw, 0, 0])
    np.testing.assert_array_equal(met, [True, True, True, False])


def test_games_that_do_not_count_change_nothing():
    bank = new(np.float32(0), 2, 4)
    for x in (1, 2):  # the second one takes slot 0
        bank = added(bank, np.float32(x))
    late = games_of([0, LIVE, 5, 1, -2], [0, LIVE, 5, 1, 1], 1.0, 0.0, [True, True, True, False, True])
    after = booked(bank.record, late)
    jax.tree.map(np.testing.assert_array_equal, after, bank.record)
    empty = new(np.float32(0), 2, 4).record  # nobody is in slot 1, whose serial is that of the live student
    jax.tree.map(np.testing.assert_array_equal, booked(empty, games_of([1], EMPTY, 1.0, 0.0)), empty)


def test_a_copy_begins_with_an_empty_window():
    bank = new(np.float32(0), 2, 4)
    bank = added(bank, np.float32(1))
    bank = bank.replace(record=booked(bank.record, games_of([0, 0, 1], [0, 0, 1], 1.0, 0.0)))
    record = jax.device_get(added(bank, np.float32(2)).record)
    np.testing.assert_array_equal(record.outcomes.sum(axis=1), [0, WIN])
    np.testing.assert_array_equal(record.n_games, [0, 1])
    np.testing.assert_array_equal(record.serial, [2, 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def serials_over_time(keep, capacity, n):
    """i32[n, K], after each of n copies."""

    def step(bank, _):
        bank = add(bank, jnp.float32(0), keep)
        return bank, bank.record.serial

    return jax.lax.scan(step, init(jnp.float32(0), capacity, 1), None, n)[1]


def test_oldest_keeps_the_latest_in_order():
    found = np.asarray(serials_over_time("oldest", 4, 11))
    for t, row in enumerate(found):
        wanted = range(max(0, t + 2 - 4), t + 2)
        assert sorted(x for x in row if x != EMPTY) == list(wanted)
        assert row[(t + 1) % 4] == t + 1


@pytest.mark.parametrize(
    "capacity", [pytest.param(2, marks=pytest.mark.deep), 6, pytest.param(12, marks=pytest.mark.deep)]
)
def test_spread_keeps_ages_that_are_roughly_geometric(capacity):
    n = 2000
    serial = np.asarray(serials_over_time("spread", capacity, n))
    n_added = np.arange(2, n + 2)[capacity:, None]
    ages = n_added - np.sort(serial, axis=1)[capacity:, ::-1]  # newest first
    np.testing.assert_array_equal(ages[:, [0, -1]], np.hstack([np.ones_like(n_added), n_added]))
    # The law: no gap is wider than two of an exactly geometric sequence, or than a factor of 2.
    assert (ages[:, 1:] / ages[:, :-1] <= np.maximum(2, n_added ** (2 / (capacity - 1)))).all()
    # On average, ages are evenly spaced on a logarithmic scale. Those of the latest K would all be in its beginning,
    # and of copies in equal steps all but the newest would be in its upper half.
    places = (np.log(ages) / np.log(n_added))[n // 2 :].mean(axis=0)
    np.testing.assert_allclose(places, np.linspace(0, 1, capacity), atol=0.1)


def test_spread_with_one_slot_keeps_the_newest():
    np.testing.assert_array_equal(serials_over_time("spread", 1, 4)[:, 0], [1, 2, 3, 4])


# Who is drawn


RECORD = record_of([[WIN] * 4, [LOSS, WIN], [WIN, WIN, WIN, LOSS], [], [LOSS], [DRAW, LOSS]], [6, 1, 2, EMPTY, 4, 5])
PLACES = np.array([1, 1, 1, 0, 1, 1])  # filled
RATES = np.array([1, 0.5, 0.75, 0, 0, 0.25])
CLOSED_FORMS = {
    "fsp": (FictitiousSelfPlay(6), PLACES),
    "delta 0": (DeltaUniform(6, 0.0), PLACES),
    "delta .4": (DeltaUniform(6, 0.4), np.array([1, 0, 0, 0, 1, 1])),
    "delta .5": (DeltaUniform(6, 0.5), np.array([1, 0, 0, 0, 1, 1])),
    "delta .6": (DeltaUniform(6, 0.6), np.array([1, 0, 0, 0, 0, 1])),
    "delta 1": (DeltaUniform(6, 1.0), np.array([1, 0, 0, 0, 0, 0])),
    "pfsp": (PFSP(6), PLACES * ((1 - RATES) ** 2 + 0.01)),
    "pfsp without smoothing": (PFSP(6, exponent=0.5, smoothing=0.0), PLACES * (1 - RATES) ** 0.5),
    "pfsp alike": (PFSP(6, exponent=0.0, smoothing=0.0), PLACES),
    "pfsp var": (PFSP(6, "var"), PLACES * (RATES * (1 - RATES) + 0.01)),
    "pfsp var without smoothing": (PFSP(6, "var", smoothing=0.0), PLACES * RATES * (1 - RATES)),
    "mixture": (Mixture(PFSP(6), 0.3), 0.7 * PLACES * ((1 - RATES) ** 2 + 0.01)),
    "mixture in a mixture": (Mixture(Mixture(FictitiousSelfPlay(6), 0.5), 0.2), 0.4 * PLACES),
    "all live": (Mixture(FictitiousSelfPlay(6), 1.0), 0 * PLACES),
    "sp": (SelfPlay(6), 0 * PLACES),
}


@functools.cache
def drawn() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(weights, draws) of all that are in `CLOSED_FORMS`, from one program. Each has the same luck."""

    @jax.jit
    def of_all(key, record):
        return {
            name: (core.weights(record), core.sample(key, record, N_DRAWS)) for name, (core, _) in CLOSED_FORMS.items()
        }

    return jax.device_get(of_all(jax.random.key(1), RECORD))


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_draws_follow_the_weights(name):
    core, preference = CLOSED_FORMS[name]
    wanted = (1 - core.live_share) * preference / max(preference.sum(), 1e-9)
    weights, found = drawn()[name]
    np.testing.assert_allclose(weights, wanted, atol=1e-6)
    assert isinstance(core, Opponents)
    assert isinstance(core, TaskCurriculum)
    assert found.dtype == np.int32
    counts = np.bincount(found - LIVE, minlength=7)
    shares = np.array([core.live_share, *wanted])
    assert not counts[shares == 0].any()
    if (shares > 0).sum() > 1:
        assert chisquare(counts[shares > 0], N_DRAWS * shares[shares > 0]).pvalue > LEAST_P


def test_the_chi_square_test_can_fail():
    """Draws by PFSP are not those by a slightly larger exponent."""
    counts = np.bincount(drawn()["pfsp"][1], minlength=6)[PLACES > 0]
    other = np.asarray(weights_of(PFSP(6, exponent=2.1), RECORD), np.float64)[PLACES > 0]
    assert chisquare(counts, N_DRAWS * other / other.sum()).pvalue < LEAST_P


@pytest.mark.parametrize("weighting", ["hard", "var"])
def test_without_any_weight_all_copies_are_alike(weighting):
    record = record_of([[WIN, WIN], [], [WIN]], [0, EMPTY, 2])
    np.testing.assert_allclose(weights_of(PFSP(3, weighting, smoothing=0.0), record), [0.5, 0, 0.5])


def test_a_copy_that_was_never_met_has_the_highest_weight():
    record = record_of([[WIN, LOSS, LOSS], []])
    for weighting in ("hard", "var"):
        ours = np.asarray(weights_of(PFSP(2, weighting, smoothing=0.0), record))
        assert ours[1] > ours[0]
    np.testing.assert_allclose(ours, np.array([2 / 9, 1 / 4]) / (2 / 9 + 1 / 4))


@pytest.mark.parametrize(
    "delta", [0.0, 0.3, 1.0, *(pytest.param(x, marks=pytest.mark.deep) for x in (0.1, 0.5, 0.7, 0.9))]
)
def test_delta_uniform_keeps_the_newest_share(delta):
    """ceil((1 - delta) n), in whole tenths; with slots in any order."""
    n_slots = 30
    order = np.random.default_rng(0).permutation(n_slots)
    serials = [np.where(order < n, order, EMPTY).astype(np.int32) for n in range(1, n_slots + 1)]
    core = DeltaUniform(n_slots, delta)
    weights = jax.jit(jax.vmap(lambda serial: core.weights(first_record(n_slots).replace(serial=serial))))
    for n, (serial, found) in enumerate(zip(serials, np.asarray(weights(np.stack(serials))), strict=True), start=1):
        n_newest = max(1, -(-(10 - round(10 * delta)) * n // 10))
        wanted = (serial >= n - n_newest) & (serial != EMPTY)
        np.testing.assert_allclose(found, wanted / n_newest, atol=1e-6)


def test_empty_places_have_no_share():
    """The reference pads its window of opponents with agent 0, which then has the share of all empty places."""

    @jax.jit
    def found():
        record = add(init(jnp.float32(0), 8, 4), jnp.float32(1)).record
        return [core.weights(record) for core in (FictitiousSelfPlay(8), DeltaUniform(8, 0.0), PFSP(8))]

    for weights in found():
        np.testing.assert_allclose(weights, [0.5, 0.5, *[0] * 6])


def test_everything_compiles_once():
    core = Mixture(PFSP(3), 0.5)
    n_traces = 0

    @jax.jit
    def update(key, bank, params):
        nonlocal n_traces
        n_traces += 1
        slots = core.sample(key, bank.record, 6)
        opponents = parameters_at(bank, slots, params)
        games = Games(slots, bank.record.serial[slots], params["x"] + opponents["x"], opponents["x"], slots > -3)
        return add(bank.replace(record=booked(bank.record, games)), params, "spread"), core.weights(bank.record)

    bank = new({"x": np.float32(0)}, 3, 4)
    for i in range(5):
        bank, weights = update(jax.random.key(i), bank, {"x": np.float32(i)})
        assert np.asarray(weights).sum() == pytest.approx(0.5)
    assert n_traces == 1


# Fictitious play with an exact best response, which is what FSP approximates


@functools.partial(jax.jit, static_argnums=1)
def averages_of_fictitious_play(first, n):
    """(f32[n, 3], the average policy of the bank, by the weights of FSP, before each best response; what can be gained
    against each)."""
    core, payoff = FictitiousSelfPlay(n), jnp.asarray(UNEVEN_ROCK_PAPER_SCISSORS, jnp.float32)

    def step(bank, _):
        average = core.weights(bank.record) @ bank.params
        # In whole copies: rounding would break ties one way or another, and 10 copies have exploitability .2 or .3.
        counts = jnp.round(average * filled(bank.record).sum())
        answer = jax.nn.one_hot(jnp.argmax(payoff @ counts), 3, dtype=jnp.float32)
        return add(bank, answer), average

    averages = jax.lax.scan(step, init(first, n, 1), None, n)[1]
    return averages, jax.vmap(lambda policy: exploitability(UNEVEN_ROCK_PAPER_SCISSORS, policy))(averages)


@pytest.mark.parametrize("n", [1001, pytest.param(10_001, marks=pytest.mark.deep)])
def test_fictitious_play_gets_close_to_the_equilibrium(n):
    averages, gains = jax.device_get(averages_of_fictitious_play(np.eye(3, dtype=np.float32)[0], n))
    assert gains[0] == 1  # paper against rock
    # Played with integers on the host, ties to the first action: the bank loses no copy and counts none twice.
    by_hand = ((10, 0.25, 0.2), (100, 0.10, 0.07), (1000, 0.03, 0.022), (10_000, 0.01, 0.0071))
    for n_copies, bar, exact in by_hand:
        if n_copies < n:
            assert gains[n_copies - 1] < bar
            assert gains[n_copies - 1] == pytest.approx(exact, abs=1e-4)
    if n > 10_000:
        np.testing.assert_allclose(averages[-1], [0.25, 0.5, 0.25], atol=0.01)


def test_the_latest_answer_alone_cycles():
    """As self-play would: every answer loses to the next one."""
    core, payoff = DeltaUniform(64, 1.0), jnp.asarray(UNEVEN_ROCK_PAPER_SCISSORS, jnp.float32)

    def step(bank, _):
        answer = jax.nn.one_hot(jnp.argmax(payoff @ (core.weights(bank.record) @ bank.params)), 3)
        return add(bank, answer), exploitability(payoff, answer)

    first = np.eye(3, dtype=np.float32)[0]
    gains = np.asarray(jax.jit(lambda first: jax.lax.scan(step, init(first, 64, 1), None, 50)[1])(first))
    assert gains.min() >= 1


# Settings


@pytest.mark.parametrize("name", OPPONENTS.names())
def test_settings_by_name(name):
    settings = OPPONENTS[name]()
    core = settings.build(5)
    assert core.n_tasks == 5
    assert isinstance(core, Opponents)
    assert hash(core) == hash(settings.build(5))
    assert build(type(settings), to_tree(settings)) == settings
    total = jax.jit(lambda key: core.weights(core.init(key)).sum())(jax.random.key(0))
    np.testing.assert_allclose(total, 1 - core.live_share)


def test_a_mixture_of_anything_but_mixtures():
    assert INNER.names() == ("sp", "fsp", "delta", "pfsp")
    assert registry_of(get_type_hints(MixtureSettings, include_extras=True)["inner"]) is INNER
    settings = build(MixtureSettings, {"inner": {"name": "pfsp", "weighting": "var"}, "share": 0.8})
    assert settings == MixtureSettings(PFSPSettings("var"), 0.8)
    assert settings.build(3) == Mixture(PFSP(3, "var"), 0.8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PFSP(3, "harder"), "unknown weighting 'harder': choose from hard, var (did you mean 'hard'?)"),
        (lambda: PFSP(3, exponent=-1.0), "exponent is -1.0: it must be finite and at least 0"),
        (lambda: PFSP(3, smoothing=float("nan")), "smoothing is nan: it must be finite and at least 0"),
        (lambda: PFSP(3, draw=2.0), "draw is 2.0: it must be between 0 and 1"),
        (lambda: DeltaUniform(3, 1.5), "delta is 1.5: it must be between 0 and 1"),
        (lambda: Mixture(FictitiousSelfPlay(3), -0.5), "share is -0.5: it must be between 0 and 1"),
        (lambda: Mixture(3, 0.5), "inner is int: it must be `Opponents`"),
        (lambda: init(jnp.float32(0), 0, 4), "capacity is 0: it must be at least 1"),
        (lambda: init(jnp.float32(0), 4, 0), "window is 0: it must be at least 1"),
        (
            lambda: add(init(jnp.float32(0), 4, 4), jnp.float32(0), "old"),
            "unknown keep 'old': choose from oldest, spread (did you mean 'oldest'?)",
        ),
        (
            lambda: OPPONENTS["fictitious_self_play"],
            "unknown opponents 'fictitious_self_play': choose from sp, fsp, delta, pfsp, mix (did you mean 'fsp'?)",
        ),
    ],
)
def test_refusals_say_what_is_allowed(make, message):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        make()
    assert str(refusal.value) == message
