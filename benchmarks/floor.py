"""The least time that an update can take: its multiplications and bytes, at the rates that this machine reaches.

    python benchmarks/floor.py [--out benchmarks/results/floor_cpu.json]

Multiplications: the script counts the multiply-add pairs of the published networks. These are kernels of two
dimensions, once for each step. Biases, gates and losses are left out. It measures two kinds of products:

* *thin*, as in a recurrence: a few rows, step after step
* *wide*, as over a sequence: all rows of all steps at once

One update is one rollout and `n_epochs` times forward and backward. The rollout is thin throughout. Forward and
backward together cost three times forward. Of these, an LSTM's products are thin where the memory enters. None of S5's
are thin.

Bytes: those that must pass through main memory.

* What a forward pass keeps for its backward pass, and the gradients of the gates: written and read once an epoch.
* Parameters, gradients and Adam's moments: seven passes an epoch.

Their rate is that of y + a x over arrays that no cache holds.

For the recurrence of the student, the parts are timed too: its products alone, its gates alone, forward, and forward
and backward.
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
from common import environment_facts, keep

from minimax_lib.models.memory import LSTM_CELL, LSTMCarry
from minimax_lib.models.recurrence import Weights, recur

T, R, F, H = 256, 32, 149, 256  # steps, rows, features and units of the published student
EPOCHS = 5
CONV, HEADS = 9 * 27 * 16, 2 * 32 * H
CHANGED = (169 + 61 * 9) / 62  # windows that change in a step of a design: first all, then those around one cell
PAIRS = {  # multiply-add pairs of one step of a network, forward
    "LSTM student": F * 4 * H + H * 4 * H + CONV + HEADS,
    "S5 student": F * H + 2 * 3 * H * H + CONV + HEADS,
    "teacher, densely": (169 * 128 + 60) * 4 * H + H * 4 * H + 169 * 27 * 128 + HEADS,
    "teacher, by changes": CHANGED * (128 * 4 * H + 27 * 128) + H * 4 * H + 60 * 4 * H + HEADS,
}
THIN = {  # pairs of one step, forward and backward, that a recurrence computes step by step
    "LSTM student": (F + H) * 4 * H + H * 4 * H,
    "S5 student": 0,
    "teacher, densely": 2 * H * 4 * H,
    "teacher, by changes": 2 * H * 4 * H,
}
LSTM_KEPT = 5 * H + H + 4 * H + 2 * 32  # gates and cell, hidden, gradients of the gates, heads
KEPT = {  # numbers of one step that are kept for the backward pass
    "LSTM student": LSTM_KEPT + F,
    "S5 student": F + H + 2 * 7 * H + 2 * 32,  # a layer: driven, states, outputs, GELU, gate, sum, norm
    "teacher, densely": LSTM_KEPT + 169 * 128,
    "teacher, by changes": LSTM_KEPT,
}
PARAMETERS = {  # those of kernels; the others are few
    "LSTM student": (F + H) * 4 * H + 27 * 16 + HEADS,
    "S5 student": F * H + 2 * 3 * H * H + 27 * 16 + HEADS,
    "teacher, densely": (169 * 128 + 60 + H) * 4 * H + 27 * 128 + HEADS,
    "teacher, by changes": (169 * 128 + 60 + H) * 4 * H + 27 * 128 + HEADS,
}
STEPS = {"LSTM student": T * R, "S5 student": T * R, "teacher, densely": 62 * R, "teacher, by changes": 62 * R}
LARGE = 2**25  # numbers


def milliseconds(function: Callable, *args: Any) -> float:
    """Median time of seven runs of the compiled function."""
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
        return recur(LSTM_CELL, None, weights, features, first, carry)[0]

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
        "y + a x over 134 MB each": milliseconds(lambda x, y: y + 0.5 * x, jnp.ones(LARGE), jnp.ones(LARGE)),
    }


def needed(name: str, rates: dict[str, float]) -> dict[str, float]:
    """Operations and bytes of an update, and the seconds that they take at the rates of this machine."""
    pairs, steps = PAIRS[name], STEPS[name]
    thin = 2 * steps * (pairs + EPOCHS * THIN[name]) / 1e9
    wide = 2 * steps * EPOCHS * (3 * pairs - THIN[name]) / 1e9
    moved = 4 * EPOCHS * (2 * steps * KEPT[name] + 7 * PARAMETERS[name]) / 1e9
    return {
        "GFLOP, thin": round(thin, 1),
        "GFLOP, wide": round(wide, 1),
        "GB": round(moved, 2),
        "seconds of products": round(thin / rates["thin, GFLOP/s"] + wide / rates["wide, GFLOP/s"], 2),
        "seconds of memory": round(moved / rates["memory, GB/s"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    facts, times = environment_facts(), measured()
    rates = {
        "thin, GFLOP/s": 2 * T * R * (F + H) * 4 * H / times["products of the forward steps"] / 1e6,
        "wide, GFLOP/s": 2 * T * R * (2 * F + H) * 4 * H / times["products over all steps"] / 1e6,
        "memory, GB/s": 3 * 4 * LARGE / times["y + a x over 134 MB each"] / 1e6,
    }
    result = {
        "benchmark": "floor",
        **facts,
        "milliseconds": {name: round(value, 1) for name, value in times.items()},
        "rates": {name: round(value, 1) for name, value in rates.items()},
        "updates": {name: needed(name, rates) for name in PAIRS},
    }
    print(json.dumps(result, indent=1))
    keep(args.out, result)


if __name__ == "__main__":
    main()
