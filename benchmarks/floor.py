"""What an update needs at least: its multiplications, at the rate at which this machine does products of such shapes.

    python benchmarks/floor.py [--out benchmarks/results/floor_cpu.json]

Counts the multiply-add pairs of the published networks (kernels of two dimensions, once a step each; biases, gates and
losses are left out) and measures products of a recurrence's shape (a few rows, step after step) and of a sequence's
(all rows of all steps). For the recurrence of the student it also times the parts: its products alone, its gates alone,
forward, forward and backward. One update is one rollout and `n_epochs` times forward and backward, which is three times
forward.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import environment_facts

from minimax_lib.models.memory import LSTM_CELL, LSTMCarry
from minimax_lib.models.recurrence import Weights, recur

T, R, F, H = 256, 32, 149, 256  # steps, rows, features and units of the published student
EPOCHS = 5
CONV, HEADS = 9 * 27 * 16, 2 * 32 * H
CHANGED = (169 + 61 * 9) / 62  # windows of a design's step that are new: all at first, then those around one cell
PAIRS = {  # multiply-add pairs of a step of one network, forward
    "LSTM student": F * 4 * H + H * 4 * H + CONV + HEADS,
    "S5 student": F * H + 2 * 3 * H * H + CONV + HEADS,
    "teacher, densely": (169 * 128 + 60) * 4 * H + H * 4 * H + 169 * 27 * 128 + HEADS,
    "teacher, by changes": CHANGED * (128 * 4 * H + 27 * 128) + H * 4 * H + 60 * 4 * H + HEADS,
}
STEPS = {"LSTM student": T * R, "S5 student": T * R, "teacher, densely": 62 * R, "teacher, by changes": 62 * R}


def milliseconds(function: Callable, *args: Any) -> float:
    """Median of seven runs of the compiled function."""
    compiled, times = jax.jit(function), []
    jax.block_until_ready(compiled(*args))
    for _ in range(7):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def measured() -> dict[str, float]:
    """Milliseconds of the parts."""
    keys = iter(jax.random.split(jax.random.key(0), 8))
    weights = Weights(
        input_kernel=0.05 * jax.random.normal(next(keys), (F, 4 * H)),
        recurrent_kernel=0.05 * jax.random.normal(next(keys), (H, 4 * H)),
        bias=jnp.zeros(4 * H),
    )
    features, hidden = jax.random.normal(next(keys), (T, R, F)), jax.random.normal(next(keys), (T, R, H))
    gates = jax.random.normal(next(keys), (T, R, 4 * H))
    first, carry = jnp.zeros((T, R), bool), LSTMCarry(hidden=jnp.zeros((R, H)), cell=jnp.zeros((R, H)))

    def run(weights: Weights, features: jax.Array) -> jax.Array:
        return recur(LSTM_CELL, 1, weights, features, first, carry)[0]

    def forward_products(features: jax.Array, weights: Weights) -> jax.Array:
        def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            return (x @ weights.input_kernel + h @ weights.recurrent_kernel)[:, :H], None

        return jax.lax.scan(step, carry.hidden, features)[0]

    def backward_products(gates: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, g: ((g + h[:, :1]) @ kernel.T, None), carry.hidden, gates)[0]

    def kernel_products(features: jax.Array, hidden: jax.Array, gates: jax.Array) -> Any:
        flat = gates.reshape(T * R, -1)
        return features.reshape(T * R, F).T @ flat, hidden.reshape(T * R, H).T @ flat, flat @ weights.input_kernel.T

    def gates_alone(gates: jax.Array) -> Any:
        def step(carry: LSTMCarry, g: jax.Array) -> Any:
            after, saved = LSTM_CELL.forward(g, 0.5 * g, carry)
            return after, (after.hidden, saved)

        return jax.lax.scan(step, carry, gates)

    both = jax.grad(lambda weights, features: (run(weights, features) ** 2).sum(), argnums=(0, 1))
    return {
        "forward": milliseconds(run, weights, features),
        "forward and backward": milliseconds(both, weights, features),
        "products of the forward steps": milliseconds(forward_products, features, weights),
        "products of the backward steps": milliseconds(backward_products, gates, weights.recurrent_kernel),
        "products over all steps": milliseconds(kernel_products, features, hidden, gates),
        "gates of the forward steps": milliseconds(gates_alone, gates),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    facts, times = environment_facts(), measured()
    thin = 2 * T * R * (F + H) * 4 * H / times["products of the forward steps"] / 1e6
    wide = 2 * T * R * (2 * F + H) * 4 * H / times["products over all steps"] / 1e6
    counts = {}
    for name, pairs in PAIRS.items():
        work = 2 * pairs * STEPS[name] * (1 + 3 * EPOCHS) / 1e9
        counts[name] = {"GFLOP an update": round(work, 1), "seconds at the thin rate": round(work / thin, 2)}
    result = {
        "benchmark": "floor",
        **facts,
        "milliseconds": {name: round(value, 1) for name, value in times.items()},
        "gflops": {"thin": round(thin, 1), "wide": round(wide, 1)},
        "updates": counts,
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
