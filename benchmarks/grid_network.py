"""Seconds of one gradient of the model grid_conv on a CPU core, with its convolutions written in several ways.

    taskset -c 0 python benchmarks/grid_network.py

Each gradient is that of a minibatch of 2,048 single steps, inside a compiled loop as in training, and cut into chunks
(`--ppo.n-chunks`). The sides of the image are those of MultiRoom and of ObstructedMaze. Times are CPU seconds, the
least of several turns. All ways take their turns in one run, so that their ratios hold on a busy machine too.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import environment_facts, keep

from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.models import small_convolutions
from minimax_lib.models.grid_conv import GridConv
from minimax_lib.models.small_convolutions import Layer, by_convolutions, by_products

N_STEPS, N_GRADIENTS = 2048, 2
LAST_FILTERS = {14: 32, 19: 64}
Layers = tuple[Layer, Layer, Layer]


def channels_last(convolution: Callable[[jax.Array, Layer], jax.Array]) -> Callable[[jax.Array, Layers], jax.Array]:
    """Images [n, h, w, c], and pooling as the largest of four slices."""

    def features(image: jax.Array, layers: Layers) -> jax.Array:
        first, second, third = layers
        x = jax.nn.relu(convolution(image.astype(jnp.float32), first))
        height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
        a, b, c, d = (x[:, y:height:2, z:width:2] for y in (0, 1) for z in (0, 1))
        x = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
        x = jax.nn.relu(convolution(jax.nn.relu(convolution(x, second)), third))
        return x.transpose(0, 3, 1, 2).reshape(len(image), -1)

    return features


def corners(x: jax.Array) -> list[jax.Array]:
    """The four parts of x [n, h, w, c] that a 2 x 2 kernel reads."""
    height, width = x.shape[1] - 1, x.shape[2] - 1
    return [x[:, y : y + height, z : z + width] for y in (0, 1) for z in (0, 1)]


def shifted_copies(x: jax.Array, layer: Layer) -> jax.Array:
    """A convolution as the sum of four products."""
    kernels = layer.kernel.reshape(4, *layer.kernel.shape[2:])
    return sum(part @ kernel for part, kernel in zip(corners(x), kernels, strict=True)) + layer.bias


def all_windows(x: jax.Array, layer: Layer) -> jax.Array:
    """A convolution as one product: all windows times the kernel."""
    windows = jnp.concatenate(corners(x), axis=-1)
    flat = windows.reshape(-1, windows.shape[-1]) @ layer.kernel.reshape(windows.shape[-1], -1) + layer.bias
    return flat.reshape(*windows.shape[:3], -1)


WAYS = {
    "lax.conv": by_convolutions,
    "shifted copies": channels_last(shifted_copies),
    "all windows, channels last": channels_last(all_windows),
    "all windows, images last": by_products,  # what grid_conv does on a CPU
}


class Gradients:
    """One way of writing the network, compiled for one size of image and one number of chunks."""

    def __init__(self, side: int, way: str, n_chunks: int):
        self.facts = {"side": side, "way": way, "chunks": n_chunks}
        small_convolutions.features = WAYS[way]  # what the network calls while it is traced
        network = GridConv(LAST_FILTERS[side]).build(Box(0, 10, (side, side, 3), "uint8"), Discrete(7))
        image = jax.random.randint(jax.random.key(0), (4 * N_STEPS, side, side, 3), 0, 11, jnp.uint8)
        order = jax.random.permutation(jax.random.key(1), 4 * N_STEPS)[: N_GRADIENTS * N_STEPS]
        self.order = order.reshape(N_GRADIENTS, n_chunks, -1)
        self.image, params = image, network.init(jax.random.key(2), image[None, :1], (), jnp.ones((1, 1), bool))

        def loss(params: Any, image: jax.Array) -> jax.Array:
            first = jnp.zeros((1, len(image)), bool)
            logits, values, _ = network.apply(params, image[None], (), first)
            return jax.nn.logsumexp(logits, axis=-1).mean() + ((values - 1.0) ** 2).mean()

        def step(params: Any, rows: jax.Array) -> tuple[Any, None]:
            def add(total: Any, rows: jax.Array) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, total, jax.grad(loss)(params, self.image[rows])), None

            gradient, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), rows)
            return jax.tree.map(lambda x, g: x - 1e-4 / n_chunks * g, params, gradient), None

        self.run = jax.jit(lambda params, order: jax.lax.scan(step, params, order)[0]).lower(params, self.order)
        self.run, self.params, self.seconds = self.run.compile(), params, []

    def take_turn(self) -> None:
        """Measures once."""
        start = time.process_time()
        jax.block_until_ready(self.run(self.params, self.order))
        self.seconds.append((time.process_time() - start) / N_GRADIENTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", type=int, choices=LAST_FILTERS, default=[14, 19])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--chunks", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for side in args.sides:
        found = [Gradients(side, way, n) for way, n in itertools.product(args.ways, args.chunks)]
        for _ in range(args.turns):
            for gradients in found:
                gradients.take_turn()
        best = min(min(gradients.seconds) for gradients in found)
        for gradients in found:
            seconds = min(gradients.seconds)
            rows.append(gradients.facts | {"seconds": round(seconds, 4), "ratio": round(seconds / best, 2)})
            line = "{side} x {side}  {way:28}{chunks:3} chunks  {seconds:7.3f} s  {ratio:5.2f}"
            print(line.format(**rows[-1]), flush=True)
        keep(args.out, {"environment": environment_facts(), "n_steps": N_STEPS, "rows": rows})


if __name__ == "__main__":
    main()
