"""Memory of training by batch size, as XLA plans it: `python benchmarks/memory.py [--out FILE]`.

The script compiles the step of DR in its published sizes (256 steps, LSTM of 256 units, 5 epochs), for several numbers
of parallel environments, and with the gradient in several chunks (`ppo.n_chunks`). It reads the compiler's plan:
nothing is run. Both numbers are bytes for each environment step of one rollout:

* `rollout`: what is kept between the rollout and the update
* `temporary`: everything that lives during a step of the runner, without its state
"""

import argparse
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
from common import environment_facts, keep

from minimax_lib.config import load_yaml
from minimax_lib.curricula.base import level_batch
from minimax_lib.models.registry import MODELS
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner, seed_keys

CONFIG = Path(__file__).parents[1] / "configs" / "maze" / "dr.yaml"


def plan(model: str, n_parallel: int, n_chunks: int, dtype: str = "float32") -> dict[str, Any]:
    """Bytes of one program."""
    config = load_yaml(CONFIG)
    runner = make_runner(
        dataclasses.replace(
            config,
            model=MODELS[model](dtype=dtype),
            runner=dataclasses.replace(config.runner, n_parallel=n_parallel),
            ppo=dataclasses.replace(config.ppo, n_chunks=n_chunks),
        )
    )
    program = SeedRunner(runner)
    state = jax.eval_shape(lambda: jax.vmap(runner.init)(seed_keys(0, 1)))
    bound = jax.ShapeDtypeStruct((), "int32")
    memory = program._run.lower(state, bound, bound).compile().memory_analysis()

    def steps(key: jax.Array) -> Any:
        levels = jax.vmap(runner.env.sample_level)(jax.random.split(key, n_parallel))
        return runner.students(runner.init(key)).play(key, level_batch(levels)).runs.steps

    kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(steps, jax.random.key(0))))
    n_steps = n_parallel * config.runner.n_steps
    return {
        "model": model,
        "dtype": dtype,
        "n_parallel": n_parallel,
        "n_chunks": n_chunks,
        "temporary_megabytes": round(memory.temp_size_in_bytes / 1e6, 1),
        "temporary_bytes_per_step": round(memory.temp_size_in_bytes / n_steps),
        "rollout_bytes_per_step": round(kept / n_steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["lstm", "s5", "ff"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[32, 256, 2048])
    parser.add_argument("--chunks", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    facts, rows = environment_facts(), []
    for model in args.models:
        for n_parallel in args.sizes:
            for n_chunks, dtype in itertools.product(args.chunks, args.dtypes):
                rows.append(plan(model, n_parallel, n_chunks, dtype))
                print(rows[-1], flush=True)
                keep(args.out, {"benchmark": "memory", **facts, "rows": rows})


if __name__ == "__main__":
    main()
