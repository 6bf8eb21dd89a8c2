"""What computing in bfloat16 (`--model.dtype bfloat16`) changes: gradients, learning, memory.

    python benchmarks/half_precision.py [--n-updates 400] [--out benchmarks/results/half_precision_cpu.json]

Both types train the quickstart's configuration with the same seeds, one after the other. `gradient` compares them on
the same rollout with the same parameters, before training and after it: the norm of the difference over the norm of
the f32 gradient, and the cosine between the two. `memory` is the compiler's plan of an update of published DR.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts
from memory import plan

from minimax_lib.agents.ppo import Batch, PPOAgent
from minimax_lib.config import Config, load_yaml
from minimax_lib.runners.build import make_program, make_runner
from minimax_lib.runners.training import RunnerState

CONFIG = Path(__file__).parents[1] / "configs" / "maze" / "quickstart.yaml"
TYPES = ("float32", "bfloat16")
QUARTER = 4


def config_of(dtype: str, args: argparse.Namespace) -> Config:
    config = load_yaml(CONFIG)
    model = dataclasses.replace(config.model, dtype=dtype)
    return dataclasses.replace(config, model=model, n_seeds=args.n_seeds, n_updates=args.n_updates)


def trained(config: Config) -> tuple[RunnerState, RunnerState, np.ndarray]:
    """(state before training, state after it, solved rate [updates, seeds] of the training episodes)."""
    program = make_program(config)
    start = jax.device_get(program.init(0))
    state, solved = program.init(0), []
    while int(np.min(state.students.n_updates)) < config.n_updates:
        state, report = program.run(state, int(np.min(state.students.n_updates)) + 1)
        solved.append(np.asarray(report.metrics["solved_rate"]))
        assert np.isfinite(report.metrics["loss"]).all()
    return start, jax.device_get(state), np.stack(solved)


def gradients(agent: PPOAgent, params: Any, batch: Batch) -> jax.Array:
    """The loss's gradient as one vector."""
    found = jax.jit(jax.grad(agent.loss, has_aux=True))(params, batch)[0]
    return jnp.concatenate([x.ravel() for x in jax.tree.leaves(found)])


def gradient_error(states: RunnerState, args: argparse.Namespace) -> dict[str, float]:
    """Of the first seed's first student, on a rollout that the f32 network has played."""
    runners = {dtype: make_runner(config_of(dtype, args)) for dtype in TYPES}
    state = jax.tree.map(lambda x: x[0], states)
    runner = runners["float32"]
    key = jax.random.key(7)
    levels = jax.vmap(runner.env.sample_level)(jax.random.split(key, runner.n_parallel))
    run = jax.jit(lambda: runner.player(state)(key, levels))()
    steps = jax.tree.map(lambda x: x[:, 0], run.steps)
    config = runner.agent.agent.config
    advantage, target = (x[:, 0] for x in run.advantages(config.gamma, config.gae_lambda))
    batch = Batch(steps=steps, carry=jax.tree.map(lambda x: x[0], run.carry), advantage=advantage, target=target)
    params = jax.tree.map(lambda x: x[0], state.students.params)
    exact, rounded = (gradients(runners[dtype].agent.agent, params, batch) for dtype in TYPES)
    norms = jnp.linalg.norm(exact), jnp.linalg.norm(rounded)
    return {
        "relative_error": float(jnp.linalg.norm(rounded - exact) / norms[0]),
        "cosine": float(exact @ rounded / (norms[0] * norms[1])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-updates", type=int, default=400)
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    facts = environment_facts()
    runs = {dtype: trained(config_of(dtype, args)) for dtype in TYPES}
    start, end, _ = runs["float32"]
    quarters = {
        dtype: [part.mean(axis=0).round(3).tolist() for part in np.array_split(solved, QUARTER)]
        for dtype, (_, _, solved) in runs.items()
    }
    result = {
        "benchmark": "half_precision",
        **facts,
        "n_updates": args.n_updates,
        "gradient": {"before": gradient_error(start, args), "after": gradient_error(end, args)},
        "solved_rate_by_quarter_and_seed": quarters,
        "memory": [plan("lstm", 256, chunks, dtype) for dtype in TYPES for chunks in (1, 8)],
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
