"""What is offered to trainers of language models, with stand-ins of the same form: none of these trainers is needed.

The stand-ins follow the sources of verl (`AbstractCurriculumSampler`, `RayPPOTrainer.fit`) and TRL (`RepeatSampler`).
"""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from doc_blocks import run_blocks

from minimax_lib.portable.host import Host
from minimax_lib.tasks import Frontier, LongList, Uniform

ROOT = Path(__file__).parent.parent
N, G = 40, 4


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "examples" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_toy_learns_more_from_the_same_number_of_answers():
    toy = example("prompt_curriculum")
    given = {"n_questions": 400, "n_batches": 25}
    uniform = toy.train(Uniform(400), **given)
    frontier = toy.train(LongList(Frontier(400)), **given)
    chosen = toy.train(LongList(Frontier(400)), k=3, **given)
    assert uniform["before"] == frontier["before"]
    assert frontier["answers"] == uniform["answers"] == chosen["answers"] / 3
    assert frontier["mixed"] > 1.5 * uniform["mixed"]
    assert chosen["mixed"] > frontier["mixed"]
    assert chosen["after"] > frontier["after"] > uniform["after"] > uniform["before"]


def test_the_gradient_of_the_toy_is_that_of_its_policy():
    toy = example("prompt_curriculum").Toy.new(3, 0)
    questions, answers = np.arange(3), np.array([[0, 1, 2, 2]] * 3)
    rewards = (answers == 0) * 1.0
    advantage = (rewards - 0.25) / (rewards.std(axis=1, keepdims=True) + 1e-6)

    def objective(logits):
        toy.logits = logits
        picked = np.take_along_axis(np.log(toy.rates(questions)), answers, axis=1)
        return (picked * advantage).mean(axis=1).sum()

    before = toy.logits.copy()
    toy.learn(questions, answers, rewards, rate=1.0)
    step = toy.logits - before
    for place in ((0, 0), (1, 2), (2, 7)):
        change = np.zeros_like(before)
        change[place] = 1e-5
        slope = (objective(before + change) - objective(before - change)) / 2e-5
        assert step[place] == pytest.approx(slope, abs=1e-6)


class Scores:
    """The part of a tensor that is used: [B, L]."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def sum(self, axis):
        return self.values.sum(axis)


def fit(sampler, rate, n_steps: int, batch_size: int) -> list[int]:
    """The loop of verl: a loader takes indices, each row is repeated with one uid, and `update` hears of the scores."""
    rng, indices, seen = np.random.default_rng(0), iter(sampler), []
    for step in range(n_steps):
        rows = [next(indices) for _ in range(batch_size)]
        seen += rows
        numbers = np.repeat(np.array(rows, dtype=object), G)
        uid = np.repeat([f"{step}-{i}" for i in range(batch_size)], G).astype(object)
        scores = np.zeros((len(numbers), 5))
        scores[:, -1] = rng.random(len(numbers)) < rate[numbers.astype(int)]
        order = rng.permutation(len(numbers))  # as after balancing the lengths over devices
        batch = SimpleNamespace(
            batch={"token_level_scores": Scores(scores[order])},
            non_tensor_batch={"index": numbers[order], "uid": uid[order]},
        )
        sampler.update(batch=batch)
    return seen


def test_the_sampler_of_verl_asks_what_can_be_learnt():
    samplers = example("prompt_samplers")
    sampler = samplers.FrontierSampler(data_source=range(N), data_config={"train_batch_size": 8})
    assert len(sampler) == N
    rate = np.where(np.arange(N) % 4 == 0, 0.5, np.arange(N) % 2)
    seen = fit(sampler, rate, 5, 8)
    assert len(set(seen)) > N / 2
    assert sampler.host.n_told["results"] == 5 * 8 * G
    later = [i for _ in range(5) for i in sampler]
    assert (np.array(later) % 4 == 0).mean() > 0.5
    table = sampler.host.statistics.table()
    tried = table["attempts"] > 0
    np.testing.assert_allclose(table["solved_rate"][tried & (rate != 0.5)], rate[tried & (rate != 0.5)])
    assert table["attempts"].sum() == 5 * 8 * G


def test_the_sampler_of_trl_has_the_order_of_its_own():
    samplers = example("prompt_samplers")
    host, same = Host(LongList(Frontier(7))), Host(LongList(Frontier(7)))
    sampler = samplers.GroupSampler(host, mini_repeat_count=2, batch_size=3, repeat_count=4)
    order = list(sampler)
    assert len(order) == len(sampler) == 2 * 3 * 2 * 4
    for batch in range(2):
        drawn = same.draw(3)
        assert order[24 * batch : 24 * (batch + 1)] == [int(i) for _ in range(4) for i in drawn for _ in range(2)]

    def reward(prompts, completions, index, **columns):
        return [float(completion == "right") for completion in completions]

    told = samplers.telling(reward, host, 2)
    assert told(prompts=["?"] * 4, completions=["right", "wrong", "right", "right"], index=[5, 5, 1, 1]) == [1, 0, 1, 1]
    assert host.statistics.table()["solved_rate"][[5, 1]].tolist() == [0.5, 1]


def test_every_block_of_the_page_runs(tmp_path):
    run_blocks(ROOT / "docs" / "prompts.md", tmp_path)
