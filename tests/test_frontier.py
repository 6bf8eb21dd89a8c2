"""Groups of graded answers, the frontier among questions, and the choice among candidates."""

import dataclasses
import math

import numpy as np
import pytest

from minimax_lib.portable.host import Host
from minimax_lib.portable.prompts import most_mixed, oversample
from minimax_lib.tasks import SFL, Frontier, ListedPLR, LongList, Online

N, G = 6, 4


class Model:
    """The same in plain Python, by the definition: all groups of a question are kept, each with its age."""

    def __init__(self, core: Frontier):
        self.core, self.groups = core, [[] for _ in range(core.n_tasks)]

    def record_group(self, tasks, rewards):
        for task, group in zip(tasks, rewards, strict=True):
            self.groups[task].append(list(map(float, group)))

    def weights(self):
        core, strengths, mastered = self.core, [], []
        told = sum(len(group) for groups in self.groups for group in groups)
        for groups in self.groups:
            weighed = [(1.0, 0.0), (1.0, 1.0)]
            weighed += [(core.discount**age, x) for age, group in enumerate(reversed(groups)) for x in group]
            n = sum(w for w, _ in weighed)
            mean = sum(w * x for w, x in weighed) / n
            variance = sum(w * (x - mean) ** 2 for w, x in weighed) / n
            few = math.sqrt(math.log(1 + told) / (n - 1))
            last = groups[-core.mastered :]
            mastered.append(len(last) == core.mastered and all(min(group) == 1 for group in last))
            strengths.append(0 if mastered[-1] else (4 * variance) ** (1 / core.temperature) + core.bonus * few)
        again = core.again if any(mastered) else 0
        return [
            (1 - again) * s / sum(strengths) + again * m / max(sum(mastered), 1)
            for s, m in zip(strengths, mastered, strict=True)
        ]


def test_weights_are_those_of_plain_python():
    rng = np.random.default_rng(0)
    core = Frontier(N, temperature=0.5, bonus=0.1)
    host, long, model = Host(core, flush=5), Host(LongList(core)), Model(core)  # 5: a group may be told in two parts
    for _ in range(8):
        tasks = rng.permutation(N)[:4]
        rewards = np.round(rng.random((4, G)) * 2) / 2  # wrong, half right, right
        rewards[tasks == 2] = 1
        for each in (host, long, model):
            each.record_group(tasks, rewards)
        np.testing.assert_allclose(host.weights(), model.weights(), rtol=1e-4)
        np.testing.assert_allclose(long.weights(), model.weights(), rtol=1e-4)
    assert 0 < host.metrics()["tasks/mastered"] <= 1 / N + 1e-6


def test_a_group_is_told_as_one_episode_that_ends_with_its_last_answer(monkeypatch):
    host, told = Host(Frontier(2)), []
    monkeypatch.setattr(host, "report", lambda task, **numbers: told.append((task, numbers)))
    host.record_group([0, 1], [[1, 0, 0.5], [1, 1, 1]])
    ((task, numbers),) = told
    assert task.tolist() == [0, 0, 0, 1, 1, 1]
    assert numbers["returns"].tolist() == [1, 0, 0.5, 1, 1, 1]
    assert numbers["episode"].tolist() == [False, False, True] * 2
    assert numbers["episode_return"].tolist() == [1.5] * 3 + [3.0] * 3


def test_what_is_all_right_twice_comes_back_with_a_share_of_five_percent():
    host = Host(LongList(Frontier(N)))
    for _ in range(2):
        host.record_group([0, 1], np.ones((2, G)))
    share = np.isin(host.draw(20_000), [0, 1]).mean()
    assert abs(share - 0.05) < 0.008
    host.record_group(0, [1, 1, 1, 0])
    assert host.weights()[1] == pytest.approx(0.05, abs=1e-6)  # alone
    assert 0.005 < host.weights()[0] < host.weights()[2]
    everything = Host(Frontier(2))
    for _ in range(2):
        everything.record_group([0, 1], np.ones((2, G)))
    np.testing.assert_allclose(everything.weights(), 0.5, atol=1e-6)


@pytest.mark.parametrize("wrap", [lambda core: core, LongList], ids=["compiled", "numpy"])
def test_after_one_pass_four_of_five_questions_are_of_the_tenth_that_can_be_learnt(wrap):
    n = 1000
    rng = np.random.default_rng(0)
    rate = np.where(np.arange(n) % 10 == 0, 0.5, np.arange(n) % 2)
    host = Host(wrap(Frontier(n)), flush=8 * n)
    host.record_group(np.arange(n), rng.random((n, 8)) < rate[:, None])
    assert (host.draw(2000) % 10 == 0).mean() >= 0.8


def test_candidates_with_mixed_answers_are_trained_on():
    n = 1000
    rng = np.random.default_rng(1)
    rate = np.where(np.arange(n) % 10 == 0, 0.5, np.arange(n) % 2)
    batch = oversample(Host(LongList(Frontier(n))), 4)
    for _ in range(20):
        tasks = batch.draw(32)
        assert len(tasks) == 128
        rewards = rng.random((128, 8)) < rate[tasks][:, None]
        rows = batch.record_group(tasks, rewards)
        mixed = np.flatnonzero(rewards.any(axis=1) & ~rewards.all(axis=1))
        assert len(rows) == len(set(rows)) == 32
        # Of those with mixed answers, all where there are no more; otherwise none but these.
        assert set(mixed) <= set(rows) if len(mixed) <= 32 else set(rows) <= set(mixed)
    equal = np.full((3, 7), 0.1)  # whose mean is not exact
    assert most_mixed(np.vstack([equal, [[0.1] * 6 + [0.2]]]), 1).tolist() == [3]


def test_a_group_is_an_episode_of_attempts_whose_score_is_its_variance():
    told = []

    class Telling(Host):
        def report(self, task, **given):
            told.append(given | {"task": task})
            super().report(task, **given)

    host = Telling(ListedPLR(N))
    host.record_group([4, 1], [[1, 0, 0, 1], [0.25, 0.25, 0.25, 0.25]])
    (given,) = told
    assert given["task"].tolist() == [4] * 4 + [1] * 4
    assert given["episode"].tolist() == [False, False, False, True] * 2
    np.testing.assert_array_equal(given["score"], [np.nan] * 3 + [0.25] + [np.nan] * 3 + [0])
    assert host.weights()[4] > host.weights()[1] > host.weights()[0] == 0
    assert host.statistics.table()["attempts"].tolist() == [0, 4, 0, 0, 4, 0]
    rates = Host(Online(SFL(N), every=8, uniform=0.0))
    rates.record_group([0, 1], [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert rates.weights()[0] == 1  # each answer is an attempt


def test_wrong_groups_are_refused_in_one_line():
    host = Host(Frontier(N))
    for call, message in (
        (lambda: host.record_group([0, 1], [1, 0]), r"rewards are \[2\]: they must be \[2, G\]"),
        (lambda: host.record_group([0], [[1, 2]]), "rewards is 2: it must be a finite number from 0 to 1"),
        (lambda: host.record_group([N], [[1, 0]]), f"task {N} was reported"),
        (lambda: host.record_group([0], np.zeros((1, 0))), r"rewards are \[1, 0\]"),
        (lambda: oversample(host, 0), "k is 0: it must be a whole number, at least 1"),
        (lambda: oversample(host, 2).record_group([0], [[1, 0]]), "there must be 2 times as many"),
        (lambda: most_mixed([[1, 0]], 2), "n is 2: it must be from 0 to the number of groups, 1"),
        (lambda: Frontier(N, discount=0), "discount is 0"),
        (lambda: Frontier(N, temperature=0), "temperature is 0"),
        (lambda: Frontier(N, mastered=0), "mastered is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert {field.name for field in dataclasses.fields(Frontier)} > {"bonus", "again"}
