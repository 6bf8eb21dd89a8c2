"""Three 2 x 2 convolutions over small images, fast on a CPU and on accelerators.

Inside a loop, as in training, XLA's own convolution is over ten times slower on a CPU than products of matrices. So
there, a convolution is one product: the kernel times all windows of all images. The images are the last axis. Then a
window is made of long contiguous pieces, and all else works on whole vectors. Accelerators have fast convolutions, and
do not want the copies of the windows.
"""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.loops import on_cpu

POOL = 2  # side and stride of the pooling
SMALLEST = 7  # side of an image: 6 after the first convolution, 3 after the pooling, 1 after the last convolution


class Layer(struct.PyTreeNode):
    """A convolution without padding, stride 1."""

    kernel: jax.Array  # f32[2, 2, c, C]
    bias: jax.Array  # f32[C], or [n, C]: one for each image


def features(image: jax.Array, layers: tuple[Layer, Layer, Layer]) -> jax.Array:
    """f32[n, C * h * w] of images [n, height, width, c], whatever their type.

    Convolution, ReLU, max-pooling 2 x 2 with stride 2 (a row or column left over is dropped), convolution, ReLU,
    convolution, ReLU. The result is flattened with the filters first, as in PyTorch.
    """
    return by_products(image, layers) if on_cpu() else by_convolutions(image, layers)


def by_convolutions(image: jax.Array, layers: tuple[Layer, Layer, Layer]) -> jax.Array:
    """`features`, with XLA's convolutions."""
    first, second, third = layers
    pool = (1, POOL, POOL, 1)
    x = jax.lax.reduce_window(convolution(image.astype(jnp.float32), first), -jnp.inf, jax.lax.max, pool, pool, "VALID")
    x = jax.nn.relu(convolution(jax.nn.relu(x), second))
    x = jax.nn.relu(convolution(x, third))
    return x.transpose(0, 3, 1, 2).reshape(len(image), -1)


def convolution(x: jax.Array, layer: Layer) -> jax.Array:
    """[n, h - 1, w - 1, C] of x [n, h, w, c]."""
    found = jax.lax.conv_general_dilated(x, layer.kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return found + layer.bias.reshape(-1, 1, 1, layer.bias.shape[-1])


def by_products(image: jax.Array, layers: tuple[Layer, Layer, Layer]) -> jax.Array:
    """`features`, with products of matrices."""
    first, second, third = layers
    x = pooled_convolution(image.transpose(3, 1, 2, 0).astype(jnp.float32), first)
    for layer in (second, third):
        height, width = x.shape[1] - 1, x.shape[2] - 1
        x = jax.nn.relu(product(windows(x, (0, 0), height, width), layer.kernel) + last_axis(layer.bias))
    return x.reshape(-1, len(image)).T


def pooled_convolution(x: jax.Array, layer: Layer) -> jax.Array:
    """[C, h', w', n] of x [c, h, w, n]: convolution, ReLU and pooling.

    The four values of which pooling takes the largest come from four products. They are compared as whole arrays, which
    needs no copies with strides.
    """
    height, width = ((side - 1) // POOL for side in x.shape[1:3])
    corners = [(y, z) for y in range(POOL) for z in range(POOL)]
    a, b, c, d = (product(windows(x, corner, height, width, POOL), layer.kernel) for corner in corners)
    largest = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    # The bias is the same for all four, and the ReLU is monotonic: both may come last.
    return jax.nn.relu(largest + last_axis(layer.bias))


def windows(x: jax.Array, corner: tuple[int, int], height: int, width: int, stride: int = 1) -> jax.Array:
    """[4 c, height, width, n]: the 2 x 2 windows of x [c, h, w, n] from `corner` on, `stride` apart."""
    top, left = corner
    down, across = (height - 1) * stride + 1, (width - 1) * stride + 1
    shifted = [
        x[:, top + y : top + y + down : stride, left + z : left + z + across : stride] for y in (0, 1) for z in (0, 1)
    ]
    return jnp.concatenate(shifted)


def product(patches: jax.Array, kernel: jax.Array) -> jax.Array:
    """[C, h, w, n] of windows [4 c, h, w, n]."""
    flat = patches.reshape(len(patches), -1)
    return (kernel.reshape(len(patches), -1).T @ flat).reshape(-1, *patches.shape[1:])


def last_axis(bias: jax.Array) -> jax.Array:
    """[C, 1, 1, 1] or [C, 1, 1, n] of a bias [C] or [n, C]."""
    return bias.reshape(-1, bias.shape[-1]).T[:, None, None]
