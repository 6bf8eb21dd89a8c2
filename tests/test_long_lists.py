"""A curriculum over a long list, in NumPy, is the one over a short list: same weights, and draws that follow them."""

import jax
import numpy as np
import pytest

from minimax_lib.portable import sum_tree
from minimax_lib.portable.host import Host
from minimax_lib.portable.sum_tree import FAN, SortedScores, SumTree
from minimax_lib.tasks import SFL, TSCL, Frontier, ListedPLR, LongList, Online, Preference, RobustPLR

N = 40


@pytest.mark.parametrize("n", [1, FAN, FAN + 1, FAN**2 + 5])
def test_a_tree_draws_what_cumulative_sums_draw(n):
    rng = np.random.default_rng(n)
    weights = rng.integers(0, 4, (2, n)).astype(float)
    weights[:, -1] = 1
    tree = SumTree(weights)
    for _ in range(3):
        entries = np.unique(rng.integers(0, n, 7))
        weights[:, entries] = rng.integers(0, 4, (2, len(entries)))
        weights[:, -1] = 1
        tree.set(entries, weights[:, entries])
        np.testing.assert_array_equal(tree.totals, weights.sum(axis=1))
        for mix in (np.array([1.0, 0.0]), np.array([0.25, 2.0])):
            sums = np.cumsum(mix @ weights)
            uniform = rng.random(500)
            uniform[0] = 0
            place = uniform * sums[-1]
            away = np.abs(sums[:, None] - place).min(axis=0) > 1e-6  # from the border of two entries
            found = tree.draw(mix, uniform)
            np.testing.assert_array_equal(found[away], np.searchsorted(sums, place, side="right")[away])
            assert ((mix @ weights)[found] > 0).all()


def test_where_one_entry_ends_the_next_that_has_a_weight_begins():
    """Places 0, 1, 2 and 3 of 4, where the weights add up to 0, 1, 1, 1, 2, 4."""
    tree = SumTree(np.array([[0.0, 1.0, 0.0, 0.0, 1.0, 2.0]]))
    assert tree.draw(np.ones(1), np.array([0.0, 0.25, 0.5, 0.75])).tolist() == [1, 4, 5, 5]


def test_a_ranking_is_a_sorted_list(monkeypatch):
    monkeypatch.setattr(sum_tree, "MOST_CHANGES", 9)
    rng = np.random.default_rng(0)
    scores = np.full(N, np.nan, np.float32)
    ranking = SortedScores(np.zeros(0, np.int64), np.zeros(0, np.float32))
    for _ in range(60):
        entries = np.unique(rng.integers(0, N, rng.integers(1, 6)))
        after = rng.choice([-2.5, -0.0, 0.0, 0.5, 3.0], len(entries)).astype(np.float32)
        ranking.replace(entries, scores[entries], after)
        scores[entries] = after
        seen = np.flatnonzero(np.isfinite(scores))
        wanted = sorted(seen.tolist(), key=lambda i: (-scores[i], i))
        assert len(ranking) == len(seen)
        assert ranking.at(np.arange(len(seen))).tolist() == wanted


def played(host: Host, n_batches: int = 25) -> None:
    """Draws, scores and groups that follow from the task and the time alone."""
    for k in range(n_batches):
        tasks = np.arange(5) * 7 * (k + 1) % N
        if isinstance(host.core, LongList):
            host._running._started(tasks)
        else:
            host.change(begun(host.core, tasks))
        if host.reads_scores:
            host.report_scores(tasks, (np.sin(tasks + k) * 3).astype(np.float32))
        else:
            rewards = (np.sin(np.outer(tasks + k, [1, 2, 3, 4])) > -0.5 - (tasks % 3 == 0)[:, None]) * 1.0
            host.record_group(tasks, rewards)


def begun(core, tasks):
    return lambda state: jax.jit(core.started)(state, np.int32(tasks), np.ones(len(tasks), bool))


@pytest.mark.parametrize(
    "core", [ListedPLR(N, alpha=0.5), Frontier(N, again=0.2)], ids=lambda core: type(core).__name__
)
def test_weights_and_metrics_are_those_of_the_compiled_core(core):
    short, long = Host(core), Host(LongList(core))
    for host in (short, long):
        played(host)
    np.testing.assert_allclose(long.weights(), short.weights(), rtol=2e-4, atol=1e-7)
    for name, value in long.metrics().items():
        np.testing.assert_allclose(value, short.metrics()[name], rtol=1e-4, err_msg=name)
    weights = long.weights()  # drawing changes the ages
    drawn = np.bincount(long.draw(40_000), minlength=N) / 40_000
    replays = long.metrics().get("tasks/replay_probability", 1.0)
    unseen = np.zeros(N)
    if replays < 1:
        seen = long._running._state["seen"]
        unseen = ~seen / max((~seen).sum(), 1)
    np.testing.assert_allclose(drawn, replays * weights + (1 - replays) * unseen, atol=0.008)
    long.retire([0, 7])
    again = long.draw(3000)
    assert not np.isin(again, [0, 7]).any()
    assert long.weights()[[0, 7]].sum() == 0


def test_where_nearly_all_draws_would_be_retired_tasks_the_others_keep_their_shares():
    plr = ListedPLR(4, Preference(temperature=0.1, staleness=0.0))
    hosts = Host(LongList(plr), seed=2), Host(plr, seed=2, draw_ahead=300, together=True)
    for host in hosts:
        host.report_scores([0, 1, 2, 3], [9.0, 3.0, 2.0, 1.0])
        host.retire([0])  # it has .999 of the weight, and the next one .99 of the rest
        np.testing.assert_allclose(host.weights()[1], 0.982, atol=2e-3)
        assert (host.draw(300) == 1).mean() > 0.94


def test_a_saved_state_goes_on_alone_and_in_a_longer_list():
    for core, longer in ((ListedPLR(N), ListedPLR(2 * N)), (Frontier(N), Frontier(2 * N))):
        whole, host = (Host(LongList(core), seed=3) for _ in range(2))
        for one in (whole, host):
            played(one, 6)
            one.draw(9)
        host.retire([5])
        whole.retire([5])
        state = host.state_dict()
        again, more = Host(LongList(core), seed=3), Host(LongList(longer), seed=3)
        again.load_state_dict(state)
        more.load_state_dict(state)
        np.testing.assert_array_equal(again.draw(50), whole.draw(50))
        assert more.core.n_tasks == 2 * N
        assert len(more.weights()) == 2 * N
        assert more.weights()[5] == 0
        assert (more.draw(400) >= N).any()
        assert not (more.draw(400) == 5).any()


def test_draws_from_weights_follow_them_and_do_not_depend_on_the_number():
    host, other = Host(LongList(SFL(N)), seed=1), Host(LongList(SFL(N)), seed=1)
    rates = np.linspace(0, 1, N)
    host.evaluated(rates)
    other.evaluated(rates)
    shares = rates * (1 - rates) / (rates * (1 - rates)).sum()
    np.testing.assert_allclose(host.weights(), shares, rtol=1e-5)
    drawn = host.draw(50_000)
    np.testing.assert_allclose(np.bincount(drawn, minlength=N) / 50_000, shares, atol=0.006)
    assert not np.isin(drawn, [0, N - 1]).any()
    np.testing.assert_array_equal(np.concatenate([other.draw(7) for _ in range(3)]), drawn[:21])
    host.retire([20])
    assert not (host.draw(1000) == 20).any()
    host.evaluated(rates[::-1] * 0.5)
    assert (host.draw(1000) == 0).any()
    online = Host(LongList(Online(SFL(N), every=10, uniform=0.0)))
    online.report(np.arange(10) // 2, progress=np.arange(10) % 2)
    assert set(online.draw(300)) == set(range(5))


def test_one_score_is_that_of_all():
    one, each = Host(LongList(ListedPLR(5))), Host(LongList(ListedPLR(5)))
    tasks = np.array([3, 1, 3])
    one.report(tasks, 1, 1, 1, score=0.5)
    each.report(tasks, 1, 1, 1, score=np.full(3, 0.5))
    np.testing.assert_equal(one.state_dict(), each.state_dict())


def test_new_tasks_are_only_scored_by_robust_plr():
    host = Host(LongList(RobustPLR(N)))
    assert not host.trains(np.arange(N)).any()
    host.report_scores([3, 4], [1.0, 2.0])
    assert np.flatnonzero(host.trains(np.arange(N))).tolist() == [3, 4]


@pytest.mark.deep
def test_of_a_million_tasks_those_that_were_told_of_come_back():
    n = 10**6
    plr, frontier = Host(LongList(ListedPLR(n))), Host(LongList(Frontier(n)))
    plr.report_scores(np.arange(n), (np.arange(n) % 1000 == 7) * np.arange(n))
    assert (plr.draw(500) == n - 993).mean() > 0.6  # rank 1, with a share of .7 of the weight
    for _ in range(2):
        frontier.record_group(np.arange(n)[::2], np.ones((n // 2, 1)))
    assert (frontier.draw(5000) % 2 == 0).mean() == pytest.approx(0.05, abs=0.01)


def test_what_a_long_list_cannot_be_is_refused_in_one_line():
    for core, message in (
        (TSCL(N), "inner is TSCL: LongList needs Frontier, ListedPLR"),
        (ListedPLR(N, Preference(transform="power")), "transform rank, .*: it is power, power and 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Host(LongList(core))
    with pytest.raises(ValueError, match="draw_ahead is 5: a LongList draws no task ahead"):
        Host(LongList(Frontier(N)), draw_ahead=5)
    with pytest.raises(ValueError, match="has no `change`"):
        Host(LongList(Frontier(N))).change(lambda state: state)
