"""GRPO of TRL on questions that a curriculum chooses, with a language model of 30,000 weights: a minute on a CPU.

The model is a GPT-2 with random weights that knows digits and signs. Asked "4+7=", it must say the second digit, 7.
If the first digit is odd, no answer is right: these questions teach nothing. The lines that the curriculum adds are
marked with # TASKS.

    pip install -e ".[trl]"
    python docs/examples/prompt_trl.py
"""

import argparse
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from prompt_samplers import GroupSampler, telling  # TASKS
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.tasks import Frontier  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS

SIGNS = "0123456789+=?"


def new_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each sign."""
    names = {sign: i for i, sign in enumerate([*SIGNS, "<pad>", "<end>"])}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="?")


def new_model(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    sizes = {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **ends))


def new_questions() -> Dataset:
    """100 questions, of which half have no right answer."""
    rows = [
        {"prompt": f"{i}+{j}=", "answer": "none" if i % 2 else str(j), "index": 10 * i + j}
        for i in range(10)
        for j in range(10)
    ]
    return Dataset.from_list(rows)


def grade(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """1 for the right answer."""
    return [float(given[:1] == wanted) for given, wanted in zip(completions, answer, strict=True)]


class CurriculumTrainer(GRPOTrainer):
    """Asks the questions that a host draws."""

    host: Host

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        n_groups = self.args.generation_batch_size // self.num_generations
        repeats = self.num_iterations * self.args.steps_per_generation
        return GroupSampler(self.host, self.num_generations, n_groups, repeats)  # TASKS


def train(host: Host, n_steps: int, n_groups: int = 16, group: int = 8, seed: int = 0) -> dict[str, float]:
    """Trains for `n_steps` updates, each on `n_groups` questions, which are answered `group` times."""
    torch.manual_seed(seed)
    tokenizer, questions = new_tokenizer(), new_questions()
    model = new_model(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            max_steps=n_steps,
            per_device_train_batch_size=n_groups * group,
            num_generations=group,
            max_completion_length=1,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            beta=0.0,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            log_level="error",
            disable_tqdm=True,
            seed=seed,
        )
        trainer = CurriculumTrainer(
            model,
            reward_funcs=telling(grade, host, group),  # TASKS
            args=settings,
            train_dataset=questions,
            processing_class=tokenizer,
        )
        trainer.host = host  # TASKS
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    steps = [step for step in trainer.state.log_history if "reward" in step]
    return {
        "right": right_answers(model, tokenizer, questions),
        "mixed": 1 - float(np.mean([step["frac_reward_zero_std"] for step in steps])),
    }


def right_answers(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, questions: Dataset) -> float:
    """How many of the questions that have an answer get the right one, if the most likely one is given."""
    asked = [row for row in questions if row["answer"] != "none"]
    tokens = tokenizer([row["prompt"] for row in asked], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        best = model(tokens).logits[:, -1].argmax(-1)
    given = tokenizer.batch_decode(best[:, None])
    return float(np.mean([text == row["answer"] for text, row in zip(given, asked, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    host = Host(Frontier(100), Discrete(100), seed=0)  # TASKS
    found = train(host, parser.parse_args().steps)
    attempts = host.statistics.table()["attempts"].reshape(10, 10)
    print(f"{attempts[::2].sum() / attempts.sum():.0%} of the answers were to the half of the questions that have one")
    print(f"{found['mixed']:.0%} of the groups had a gradient")
    print(f"{found['right']:.0%} of the questions that have an answer are answered right")


if __name__ == "__main__":
    main()
