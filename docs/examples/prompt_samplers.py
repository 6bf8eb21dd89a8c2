"""A `Host` in the place of the sampler of two trainers for language models: verl and TRL.

Neither is imported unless it is installed, so this file can be read and tried without them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minimax_lib.portable.host import Host
from minimax_lib.tasks import Frontier, LongList
from minimax_lib.tasks.spaces import Discrete

try:
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler
except ImportError:
    AbstractCurriculumSampler = object


def new_host(n_questions: int) -> Host:
    """The curriculum over the rows of a data set."""
    return Host(LongList(Frontier(n_questions)), Discrete(n_questions))


class FrontierSampler(AbstractCurriculumSampler):
    """verl: the flags `data.sampler.class_path`, `data.sampler.class_name` and `data.dataloader_num_workers=0` name it.

    Each row of the data must have its number as `extra_info["index"]`. Rewards are from 0 to 1.
    """

    def __init__(self, data_source: Any, data_config: Any) -> None:
        self.host = new_host(len(data_source))

    def __len__(self) -> int:
        return self.host.space.n or 0

    def __iter__(self) -> Iterator[int]:
        # One at a time: what `update` was told by then counts.
        for _ in range(len(self)):
            yield int(self.host.draw(1)[0])

    def update(self, batch: Any) -> None:
        """verl calls it after each step, with all answers of the step: those with the same `uid` are a group."""
        rewards = np.asarray(batch.batch["token_level_scores"].sum(-1).tolist())
        numbers = np.asarray(batch.non_tensor_batch["index"], np.int64)
        _, first, group = np.unique(batch.non_tensor_batch["uid"], return_index=True, return_inverse=True)
        for i in np.argsort(first):
            self.host.record_group(numbers[first[i]], rewards[group == i])


class GroupSampler:
    """TRL: what `GRPOTrainer._get_train_sampler` returns, in the order of its `RepeatSampler`.

    Each batch of `batch_size` questions stands there `repeat_count` times, and in it each question
    `mini_repeat_count` times. In a subclass of `GRPOTrainer`:

        def _get_train_sampler(self, dataset=None):
            n_groups = self.args.generation_batch_size // self.num_generations
            repeats = self.num_iterations * self.args.steps_per_generation
            return GroupSampler(self.host, self.num_generations, n_groups, repeats)
    """

    def __init__(self, host: Host, mini_repeat_count: int, batch_size: int = 1, repeat_count: int = 1) -> None:
        self.host, self.mini_repeat_count = host, mini_repeat_count
        self.batch_size, self.repeat_count = batch_size, repeat_count
        self._n_batches = (host.space.n or 0) // batch_size

    def __len__(self) -> int:
        return self._n_batches * self.batch_size * self.mini_repeat_count * self.repeat_count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self._n_batches):
            batch = np.repeat(self.host.draw(self.batch_size), self.mini_repeat_count).tolist()
            for _ in range(self.repeat_count):
                yield from batch


def telling(reward: Any, host: Host, num_generations: int) -> Any:
    """TRL: a reward function that also tells the host. The data set has the column `index`, the number of the row.

    It is for one process. With several, gather the rewards first, and tell the hosts of all processes the same.
    """

    def told(prompts: Any, completions: Any, index: Any, **columns: Any) -> Any:
        rewards = reward(prompts=prompts, completions=completions, index=index, **columns)
        host.record_group(index[::num_generations], np.reshape(rewards, (-1, num_generations)))
        return rewards

    return told
