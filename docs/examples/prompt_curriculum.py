"""A curriculum over questions, in a toy of group-relative policy optimisation (GRPO) without a language model.

Each of 5,000 questions has 50 possible answers, of which one is right. The policy is a softmax for each question. Most
questions are answered right from the beginning, or so rarely that no group of answers has a right one. Both teach
nothing. The lines that the curriculum adds are marked with # TASKS.

    python docs/examples/prompt_curriculum.py
"""

import dataclasses

import numpy as np

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.prompts import oversample  # TASKS
from minimax_lib.tasks import Frontier, LongList, Uniform  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS

N_ANSWERS = 50


@dataclasses.dataclass
class Toy:
    """Questions, and a policy that answers them. Answer 0 is right."""

    logits: np.ndarray  # f64[N, N_ANSWERS]
    rng: np.random.Generator

    @staticmethod
    def new(n_questions: int, seed: int) -> "Toy":
        """Two of five questions are easy, two are hopeless, and one is between."""
        rng = np.random.default_rng(seed)
        rate = np.choose(
            rng.choice(3, n_questions, p=(0.4, 0.4, 0.2)), (0.9995, 1e-6, rng.uniform(0.02, 0.5, n_questions))
        )
        logits = np.zeros((n_questions, N_ANSWERS))
        logits[:, 0] = np.log(rate * (N_ANSWERS - 1) / (1 - rate))  # all wrong answers are alike
        return Toy(logits, rng)

    def rates(self, questions: np.ndarray) -> np.ndarray:
        """f64[M, N_ANSWERS], how often each answer is given."""
        powers = np.exp(self.logits[questions] - self.logits[questions].max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def answers(self, questions: np.ndarray, group: int) -> np.ndarray:
        """i64[M, group]"""
        sums = np.cumsum(self.rates(questions), axis=1)[:, None]
        return (self.rng.random((len(questions), group, 1)) * sums[..., -1:] >= sums).sum(axis=2)

    def learn(self, questions: np.ndarray, answers: np.ndarray, rewards: np.ndarray, rate: float) -> None:
        """One step along the gradient of GRPO: advantages are rewards, standardised within their group."""
        advantage = rewards - rewards.mean(axis=1, keepdims=True)
        advantage /= rewards.std(axis=1, keepdims=True) + 1e-6
        step = np.zeros((len(questions), N_ANSWERS))
        np.add.at(step, (np.arange(len(questions))[:, None], answers), advantage / answers.shape[1])
        np.add.at(self.logits, questions, rate * step)  # the advantages of a group add up to 0: no term of the softmax


def train(core: object, k: int = 1, n_questions: int = 5000, n_batches: int = 150, seed: int = 0) -> dict[str, float]:
    """What became of a training on 64 questions a batch, each answered 8 times, chosen from `k` times as many."""
    toy, n_mixed, n_answers = Toy.new(n_questions, seed), 0, 0
    host = oversample(Host(core, Discrete(n_questions), seed=seed), k)  # TASKS
    first = toy.rates(np.arange(n_questions))[:, 0].mean()
    for _ in range(n_batches):
        questions = host.draw(64)  # TASKS
        answers = toy.answers(questions, 8)
        rewards = (answers == 0).astype(float)
        rows = host.record_group(questions, rewards)  # TASKS
        toy.learn(questions[rows], answers[rows], rewards[rows], rate=1.0)
        n_mixed += int((np.ptp(rewards[rows], axis=1) > 0).sum())
        n_answers += answers.size
    right = toy.rates(np.arange(n_questions))[:, 0].mean()
    return {"before": first, "after": right, "mixed": n_mixed / (64 * n_batches), "answers": n_answers}


def main() -> None:
    print(f"{'':24} right before  right after  groups with a gradient  answers")
    for name, core, k in (
        ("uniform", Uniform(5000), 1),
        ("uniform, oversampled x4", Uniform(5000), 4),
        ("frontier", LongList(Frontier(5000)), 1),
        ("frontier, oversampled x4", LongList(Frontier(5000)), 4),
    ):
        found = train(core, k)
        numbers = f"{found['before']:12.3f}  {found['after']:11.3f}  {found['mixed']:22.2f}  {found['answers']:7.0f}"
        print(f"{name:24} {numbers}")


if __name__ == "__main__":
    main()
