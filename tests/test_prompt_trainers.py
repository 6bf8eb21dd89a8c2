"""Curricula over prompts in the real classes of TRL (the extra `trl`) and of verl 0.5 to 0.7, where they are installed.

The stage `trainers` of .ci/deep has TRL. verl asks for an older NumPy than this package.
"""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.deep

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def needs_trl():
    pytest.importorskip("trl", reason="TRL is not installed (pip install -e '.[trl]')")


def test_the_trainer_of_trl_asks_what_the_host_draws_and_the_host_hears_of_every_answer(needs_trl):
    import prompt_trl as example

    host = example.Host(example.Frontier(100), example.Discrete(100), seed=0)
    asked, draw = [], host.draw

    def watched(n):
        asked.append(draw(n))
        return asked[-1]

    host.draw = watched
    found = example.train(host, n_steps=20, n_groups=8, group=4)
    assert 0 < found["mixed"] < 1
    table = host.statistics.table()
    assert table["attempts"].sum() == 20 * 8 * 4
    # A loader may fetch a batch ahead, so the last ones that were drawn need not have been answered.
    answered = np.bincount(np.concatenate(asked[:20]), minlength=100)
    assert table["attempts"].tolist() == (4 * answered).tolist()
    has_none = (np.arange(100) // 10) % 2 == 1
    tried = table["attempts"] > 0
    assert (table["solved_rate"][has_none & tried] == 0).all()
    assert (table["solved_rate"][~has_none & tried] > 0).any()


def test_the_order_of_questions_is_that_of_the_sampler_of_trl(needs_trl):
    """Where both are given the same questions, ours repeats them as TRL's `RepeatSampler` does."""
    from prompt_samplers import GroupSampler
    from trl.trainer.utils import RepeatSampler

    class InTurn:
        """Draws 0, 1, 2 and so on."""

        class space:
            n = 12

        next = 0

        def draw(self, n):
            self.next += n
            return np.arange(self.next - n, self.next)

    settings = {"mini_repeat_count": 2, "batch_size": 3, "repeat_count": 4}
    theirs = RepeatSampler(range(12), **settings, shuffle=False)
    ours = GroupSampler(InTurn(), **settings)
    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


def test_the_sampler_of_verl_in_its_loader_and_with_its_batches():
    """verl makes the sampler from its flags, its loader draws from it, and a batch of its own kind is what it is told.

    A quarter of the questions is answered right half of the time, the others always or never.
    """
    pytest.importorskip("verl.experimental.dataset.sampler", reason="verl 0.5 to 0.7 is not installed")
    import torch
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl import DataProto
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler
    from verl.trainer.main_ppo import create_rl_sampler

    n, group, size = 40, 4, 8
    rng, numbers = np.random.default_rng(0), np.arange(n)
    rate = np.where(numbers % 4 == 0, 0.5, numbers % 2)
    path = str(EXAMPLES / "prompt_samplers.py")
    named = {"class_path": path, "class_name": "FrontierSampler"}
    flags = OmegaConf.create({"sampler": named, "dataloader_num_workers": 0, "shuffle": True})
    sampler = create_rl_sampler(flags, numbers)
    assert isinstance(sampler, AbstractCurriculumSampler)
    loader = StatefulDataLoader(numbers, batch_size=size, num_workers=0, sampler=sampler, collate_fn=np.array)
    asked = []
    for step, rows in enumerate(rows for _ in range(4) for rows in loader):
        index = np.repeat(rows, group)
        scores = torch.zeros(len(index), 5)
        scores[:, -1] = torch.tensor(rng.random(len(index)) < rate[index])
        uid = np.repeat([f"{step}-{i}" for i in range(size)], group)
        batch = DataProto.from_dict({"token_level_scores": scores}, {"index": index.astype(object), "uid": uid})
        batch.reorder(torch.randperm(len(index)))  # as after balancing the lengths over devices
        sampler.update(batch=batch)
        asked.append(rows)
    assert sampler.host.n_told["results"] == len(asked) * size * group
    assert (np.concatenate(asked[-5:]) % 4 == 0).mean() > 0.6
    table = sampler.host.statistics.table()
    tried = (table["attempts"] > 0) & (rate != 0.5)
    assert table["solved_rate"][tried].tolist() == rate[tried].tolist()
