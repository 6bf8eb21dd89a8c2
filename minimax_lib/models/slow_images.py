"""Linear maps of convolved images that change little from one step to the next, as when a teacher draws a maze.

A dense layer on the features f of such an image is by far the largest product of its network. But from step to step,
only the windows around a few cells change. Take f_w of every window w as zero before the first step. Then

    f[t] @ kernel = sum over s <= t and windows w that changed at s of (f_w[s] - f_w[s - 1]) @ kernel_w

This is exact for all images, and its cost grows with the number of changes. The sum is computed window by window, in
tiles of TILE changes. The number of changes has no bound. Only the images are saved for the backward pass.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.loops import on_cpu
from minimax_lib.models.recurrence import product_over_steps

TILE = 128  # changes of one window in one product


def changes_are_cheap(n_steps: int) -> bool:
    """Whether a loop over small products may be faster than one large product: only for several steps on a CPU."""
    return n_steps > 1 and on_cpu()


class Convolution(struct.PyTreeNode):
    """ReLU of a convolution with C filters without padding, stride 1, over images [..., h, w, c]."""

    kernel: jax.Array  # f32[size * size * c, C]
    bias: jax.Array  # f32[C]
    size: int = struct.field(pytree_node=False)  # side of a window
    scale: float = struct.field(pytree_node=False)  # images are divided by it

    def features(self, windows: jax.Array) -> jax.Array:
        """[n, C] of windows [n, size * size * c], in the type of the kernel."""
        return jax.nn.relu(windows.astype(self.kernel.dtype) / self.scale @ self.kernel + self.bias[None])

    def astype(self, dtype: Any) -> "Convolution":
        """The same with kernel and bias in another type."""
        return self.replace(kernel=self.kernel.astype(dtype), bias=self.bias.astype(dtype))


class SlowImage(struct.PyTreeNode):
    """The features of sequences of images, which are not computed yet."""

    image: jax.Array  # integers or bools [T, R, h, w, c]
    convolution: Convolution

    @property
    def n_windows(self) -> tuple[int, int]:
        """Windows in a column and in a row of the image."""
        height, width = self.image.shape[2:4]
        return height - self.convolution.size + 1, width - self.convolution.size + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """(T, R, number of features of one image)."""
        down, across = self.n_windows
        return *self.image.shape[:2], down * across * self.convolution.kernel.shape[1]


class SlowFeatures(struct.PyTreeNode):
    """Features [T, R, F] that `project` takes: those of all parts, side by side."""

    parts: tuple[jax.Array | SlowImage, ...]  # f32[T, R, n], or images

    @property
    def shape(self) -> tuple[int, ...]:
        """(T, R, F)."""
        return (*self.parts[0].shape[:2], sum(part.shape[-1] for part in self.parts))


class Changes(struct.PyTreeNode):
    """The steps at which one window changed. Steps and rows are counted together: n = t * R + r."""

    windows: jax.Array  # [T * R, size * size * c], the content of the window
    order: jax.Array  # i32[tiles, TILE], each n where it differs from the step before; filled up with T * R
    n_tiles: jax.Array  # i32[], tiles that are not empty
    n_rows: int = struct.field(pytree_node=False)

    def features(self, convolution: Convolution, index: jax.Array) -> jax.Array:
        """f32[TILE, C]: the change of the window's features at `index`; 0 where `index` is T * R."""
        after = convolution.features(self.windows.at[index].get(mode="clip"))
        before = convolution.features(self.windows.at[index - self.n_rows].get(mode="clip"))
        change = after - jnp.where((index >= self.n_rows)[:, None], before, 0.0)
        return jnp.where((index < len(self.windows))[:, None], change, 0.0)


def changes(slow: SlowImage, w: jax.Array) -> Changes:
    """The changes of window `w` (i32[]; windows are counted row by row)."""
    n_steps, n_rows, *image_shape = slow.image.shape
    n, size = n_steps * n_rows, slow.convolution.size
    y, x = jnp.divmod(w, slow.n_windows[1])
    corner = (jnp.zeros_like(w), y, x, jnp.zeros_like(w))
    windows = jax.lax.dynamic_slice(slow.image.reshape(n, *image_shape), corner, (n, size, size, image_shape[-1]))
    windows = windows.reshape(n, -1)
    differs = (windows[n_rows:] != windows[:-n_rows]).any(axis=-1)
    changed = jnp.concatenate([jnp.ones(n_rows, bool), differs])
    order = jnp.sort(jnp.where(changed, jnp.arange(n, dtype=jnp.int32), n))
    tile = min(TILE, n)
    order = jnp.pad(order, (0, -n % tile), constant_values=n).reshape(-1, tile)
    n_tiles = -(-changed.sum(dtype=jnp.int32) // tile)
    return Changes(windows=windows, order=order, n_tiles=n_tiles, n_rows=n_rows)


def contribution(slow: SlowImage, kernel: jax.Array, offset: int) -> jax.Array:
    """f32[T, R, G]: the image's features times the rows of `kernel` (f32[F, G]) from `offset` on."""
    n_steps, n_rows = slow.image.shape[:2]
    n_filters = slow.convolution.kernel.shape[1]

    def window(w: jax.Array, total: jax.Array) -> jax.Array:
        kernel_w = jax.lax.dynamic_slice_in_dim(kernel, offset + w * n_filters, n_filters)
        found = changes(slow, w)

        def tile(i: jax.Array, total: jax.Array) -> jax.Array:
            index = found.order[i]
            return total.at[index].add(found.features(slow.convolution, index) @ kernel_w, mode="drop")

        return jax.lax.fori_loop(0, found.n_tiles, tile, total)

    total = jnp.zeros((n_steps * n_rows, kernel.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, slow.n_windows[0] * slow.n_windows[1], window, total)
    return running_sum(total.reshape(n_steps, n_rows, -1))


def gradients(
    slow: SlowImage, kernel: jax.Array, offset: int, gradient: jax.Array, kernel_gradient: jax.Array
) -> tuple[Convolution, jax.Array]:
    """(gradient of the convolution, `kernel_gradient` with the rows from `offset` on filled in).

    `gradient` f32[T, R, G] is that of the contribution.
    """
    gradient = running_sum(gradient, reverse=True).reshape(-1, kernel.shape[1])
    n_filters = slow.convolution.kernel.shape[1]

    def window(w: jax.Array, loop: tuple) -> tuple:
        convolution_gradient, kernel_gradient = loop
        start = offset + w * n_filters
        kernel_w = jax.lax.dynamic_slice_in_dim(kernel, start, n_filters)
        found = changes(slow, w)

        def tile(i: jax.Array, sums: tuple) -> tuple:
            index = found.order[i]
            _, back = jax.vjp(lambda c, k: found.features(c, index) @ k, slow.convolution, kernel_w)
            return jax.tree.map(jnp.add, sums, back(gradient.at[index].get(mode="clip")))

        sums = (convolution_gradient, jnp.zeros_like(kernel_w))
        convolution_gradient, kernel_w_gradient = jax.lax.fori_loop(0, found.n_tiles, tile, sums)
        return convolution_gradient, jax.lax.dynamic_update_slice_in_dim(kernel_gradient, kernel_w_gradient, start, 0)

    loop = (jax.tree.map(jnp.zeros_like, slow.convolution), kernel_gradient)
    return jax.lax.fori_loop(0, slow.n_windows[0] * slow.n_windows[1], window, loop)


def running_sum(x: jax.Array, reverse: bool = False) -> jax.Array:
    """For each step, the sum of x [T, ...] up to it (with `reverse`: from it on). On a CPU, faster than `cumsum`."""

    def step(total: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return total + x, total + x

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x, reverse=reverse)[1]


@jax.custom_vjp
def project(features: SlowFeatures, kernel: jax.Array) -> jax.Array:
    """f32[T, R, G]: `features` [T, R, F] times `kernel` f32[F, G]."""
    return forward(features, kernel)


@jax.custom_batching.sequential_vmap
def forward(features: SlowFeatures, kernel: jax.Array) -> jax.Array:
    """`project`. Under vmap, seeds run one after the other, since the loops of each seed have their own length."""
    total = jnp.zeros((*features.shape[:2], kernel.shape[1]), jnp.float32)
    for part, offset in with_offsets(features):
        if isinstance(part, SlowImage):
            total = total + contribution(part, kernel, offset)
        else:
            total = total + part @ kernel[offset : offset + part.shape[-1]]
    return total


@jax.custom_batching.sequential_vmap
def backward(features: SlowFeatures, kernel: jax.Array, gradient: jax.Array) -> tuple[list, jax.Array]:
    """(gradient of each part, gradient of the kernel). For an image, the first is the gradient of its convolution."""
    kernel_gradient, parts = jnp.zeros_like(kernel), list[Any]()
    for part, offset in with_offsets(features):
        if isinstance(part, SlowImage):
            convolution, kernel_gradient = gradients(part, kernel, offset, gradient, kernel_gradient)
            parts.append(convolution)
        else:
            rows = product_over_steps(part, gradient)
            kernel_gradient = jax.lax.dynamic_update_slice_in_dim(kernel_gradient, rows, offset, 0)
            parts.append(gradient @ kernel[offset : offset + part.shape[-1]].T)
    return parts, kernel_gradient


def with_offsets(features: SlowFeatures) -> list[tuple[jax.Array | SlowImage, int]]:
    """Each part, with the index of its first feature."""
    ends = itertools.accumulate(part.shape[-1] for part in features.parts)
    return list(zip(features.parts, [0, *ends], strict=False))


def _saved(features: SlowFeatures, kernel: jax.Array) -> tuple[jax.Array, tuple]:
    return forward(features, kernel), (features, kernel)


def _gradients(saved: tuple, gradient: jax.Array) -> tuple[SlowFeatures, jax.Array]:
    features, kernel = saved
    found, kernel_gradient = backward(features, kernel, gradient)
    parts = []
    for part, part_gradient in zip(features.parts, found, strict=True):
        if isinstance(part, SlowImage):
            none = np.zeros(part.image.shape, jax.dtypes.float0)  # integers and bools have no gradient
            part_gradient = part.replace(image=none, convolution=part_gradient)
        parts.append(part_gradient)
    return features.replace(parts=tuple(parts)), kernel_gradient


project.defvjp(_saved, _gradients)
