"""How the network of Neural MMO reads each part of an observation.

Images have the rows of the batch as their last axis (see `small_convolutions`): then windows are made of long
contiguous pieces, which on a CPU is what their product costs.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.loops import on_cpu
from minimax_lib.models.distributions import IMPOSSIBLE

HE = nn.initializers.he_uniform()  # there are many layers, and orthogonal matrices take ten times as long to compile
N_MATERIALS, N_KINDS = 16, 5
PLAYER = 1  # the kind; higher ones are NPCs
KIND, ROW, COLUMN = range(3)  # columns of an entity
# What divides the columns of an entity. Rows and columns of the map count from the agent, which is at 8.
SCALES = np.array([1, 7, 7, 100, 100, 100, 100, 10, 10, 10, 10, 255, 100, 1, 1, 1], np.float32)
N_THING_KINDS = 18  # the reference's numbers; 0: an empty slot
PACK_SCALES = np.array([10, 20, 100, 1, 1], np.float32)  # of a slot's level, quantity, price, worn, usable
# The numbers of a task that are names, and how many names the range from 0 to 1 has: 34 predicates, at most 64 kinds.
TASK_NAMES = {"predicate": 34, "kind": 64}
MIDDLES = np.array([0, 8, 8, *[0] * 13], np.float32)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Units of the layers of a network."""

    embedding: int  # of a material
    filters: tuple[tuple[int, int, int], ...]  # (filters, side of the windows, tiles from one to the next) of each
    tiles: int  # of the layer behind the convolutions
    planes: bool  # whether the tiles show who stands on them
    entity: int
    own: int
    task: int
    item: int  # of a thing in the pack, and of the market
    trunk: int
    residual: int = 0  # filters of a block of two convolutions before the others; 0: none


class Tiles(nn.Module):
    """f32[n, width] of tiles u8[n, 15, 15, 1], and of the entities on them (u8[n, K, 16])."""

    sizes: Sizes

    @nn.compact
    def __call__(self, tiles: jax.Array, entities: jax.Array) -> jax.Array:
        material = tiles[..., 0].transpose(1, 2, 0)
        # As a product: the gradient of a look-up is a scatter, which is slow.
        is_material = material[None] == jnp.arange(N_MATERIALS, dtype=material.dtype)[:, None, None, None]
        table = self.param("embedding", nn.initializers.uniform(1.0), (N_MATERIALS, self.sizes.embedding))
        x = jnp.tensordot(table.T, is_material.astype(jnp.float32), axes=1)
        if self.sizes.planes:
            x = jnp.concatenate([x, places(entities, tiles.shape[1])])
        if width := self.sizes.residual:
            x = self._convolved("before", x, width, 3, 1, pad=1)
            inner = self._convolved("inner_0", nn.relu(x), width, 3, 1, pad=1)
            x = nn.relu(x + self._convolved("inner_1", nn.relu(inner), width, 3, 1, pad=1))
        for i, (width, side, stride) in enumerate(self.sizes.filters):
            x = nn.relu(self._convolved(f"conv_{i}", x, width, side, stride))
        return nn.relu(nn.Dense(self.sizes.tiles, kernel_init=HE, name="dense")(flattened(x)))

    def _convolved(self, name: str, x: jax.Array, width: int, side: int, stride: int, pad: int = 0) -> jax.Array:
        kernel = self.param(f"{name}_kernel", HE, (len(x) * side * side, width))
        bias = self.param(f"{name}_bias", nn.initializers.zeros, (width,))
        return convolution(x, kernel, side, stride, pad) + bias[:, None, None, None]


def flattened(x: jax.Array) -> jax.Array:
    """[n, c * h * w] of images [c, h, w, n]."""
    return x.reshape(-1, x.shape[-1]).T


def convolution(x: jax.Array, kernel: jax.Array, side: int, stride: int, pad: int = 0) -> jax.Array:
    """[C, h', w', n] of images x [c, h, w, n] and a kernel [side * side * c, C], whose rows are in that order."""
    if not on_cpu():
        weights = kernel.reshape(side, side, len(x), -1)
        names = ("CHWN", "HWIO", "CHWN")
        return jax.lax.conv_general_dilated(x, weights, (stride,) * 2, [(pad, pad)] * 2, dimension_numbers=names)
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))) if pad else x
    down, across = (size - side + 1 for size in x.shape[1:3])
    shifted = [x[:, y : y + down : stride, z : z + across : stride] for y in range(side) for z in range(side)]
    windows = jnp.concatenate(shifted)
    return (kernel.T @ windows.reshape(len(windows), -1)).reshape(-1, *windows.shape[1:])


def places(entities: jax.Array, side: int) -> jax.Array:
    """f32[2, side, side, n], how many players and how many NPCs stand on each tile, the agent itself included."""
    kind, row, column = (entities[..., i].T.astype(jnp.int32) for i in (KIND, ROW, COLUMN))  # [K, n]
    line = jnp.arange(1, side + 1, dtype=jnp.int32)[:, None, None]
    in_row, in_column = row[None] == line, column[None] == line  # [side, K, n]
    kinds = jnp.stack([kind == PLAYER, kind > PLAYER])  # [2, K, n]
    at = in_row[None, :, None] & in_column[None, None] & kinds[:, None, None]
    return at.sum(axis=3, dtype=jnp.float32)


class Entities(nn.Module):
    """(f32[n, K, width] for each entity, f32[n, 2 width] of all) of entities u8[n, K, 16] and the own row f32[n, w]."""

    width: int

    @nn.compact
    def __call__(self, entities: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        kind = entities[..., KIND]
        is_kind = kind[..., None] == jnp.arange(N_KINDS, dtype=kind.dtype)[None, None, :]
        scaled = (entities.astype(jnp.float32) - MIDDLES[None, None]) / SCALES[None, None]
        x = jnp.concatenate([is_kind.astype(jnp.float32), scaled[..., KIND + 1 :]], axis=-1)
        for i in range(2):
            x = nn.relu(nn.Dense(self.width, kernel_init=HE, name=f"dense_{i}")(x))
        there = kind > 0
        x = jnp.where(there[..., None], x, 0.0)
        query = nn.Dense(self.width, kernel_init=nn.initializers.lecun_uniform(), name="query")(own)
        heed = jnp.where(there, (x * query[:, None, :]).sum(axis=-1) / self.width**0.5, IMPOSSIBLE)
        heeded = (jax.nn.softmax(heed)[..., None] * x).sum(axis=1)
        # After a ReLU, nothing is below 0: so an empty slot never is the largest.
        return x, jnp.concatenate([x.max(axis=1), heeded], axis=-1)


class Pack(nn.Module):
    """(f32[n, 12, width] for each slot, f32[n, width] of all) of packs u8[n, 12, 6]."""

    width: int

    @nn.compact
    def __call__(self, pack: jax.Array) -> tuple[jax.Array, jax.Array]:
        kind = pack[..., KIND]
        is_kind = kind[..., None] == jnp.arange(N_THING_KINDS, dtype=kind.dtype)[None, None, :]
        scaled = pack[..., KIND + 1 :].astype(jnp.float32) / PACK_SCALES[None, None]
        x = jnp.concatenate([is_kind.astype(jnp.float32), scaled], axis=-1)
        x = nn.relu(nn.Dense(self.width, kernel_init=HE, name="dense")(x))
        x = jnp.where((kind > 0)[..., None], x, 0.0)
        return x, x.sum(axis=1) / pack.shape[1]


class Market(nn.Module):
    """f32[n, width] of the market u8[n, 160, 2]."""

    width: int

    @nn.compact
    def __call__(self, market: jax.Array) -> jax.Array:
        price, supply = market[..., 0].astype(jnp.float32), market[..., 1]
        # A price counts by how little it is: for most things, nobody offers anything.
        cheap = jnp.where(price > 0, 1.0 - price / 128.0, 0.0)
        x = jnp.concatenate([cheap, (supply > 0).astype(jnp.float32)], axis=-1)
        return nn.relu(nn.Dense(self.width, kernel_init=HE, name="dense")(x))


class Task(nn.Module):
    """f32[n, width] of tasks f32[n, 28]: the sum over their parts, each a predicate and its numbers.

    The first two numbers of a part, predicate and kind, stand for names. Each name has a vector of its own. Read as
    quantities, "drink water" and "eat food" differ by 0.05, and agents did not learn to tell them apart. The kind of a
    tile is its row.
    """

    width: int

    @nn.compact
    def __call__(self, task: jax.Array) -> jax.Array:
        parts, rest = task[:, :24].reshape(-1, 4, 6), task[:, 24:]
        x = nn.Dense(self.width, kernel_init=HE, name="part")(parts)
        for column, (name, n) in enumerate(TASK_NAMES.items()):
            is_name = jax.nn.one_hot(jnp.round(n * parts[..., column]).astype(jnp.int32) - 1, n)  # none of them: 0
            x += is_name @ self.param(name, nn.initializers.normal(0.5**0.5), (n, self.width))
        return nn.relu(x).sum(axis=1) + nn.relu(nn.Dense(self.width, kernel_init=HE, name="rest")(rest))
