"""The ground: a polyline of 200 points, and blocks that stand on it (pits, stumps, stairs).

The rules are those of dcd (Parker-Holder et al. 2022), and for `Level.hardcore` those of Gymnasium's
BipedalWalkerHardcore-v3. Given the same random numbers, the points are the same.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.walker.level import LEAST_PIT, LEAST_STAIR, LEAST_STUMP, Level

SCALE = 30.0
STEP = 14 / SCALE  # m from one point to the next
N_POINTS = 200
HEIGHT = 400 / SCALE / 4  # m, where the ground begins
PAD = 20  # flat points at the start
GRASS, STUMP, STAIRS, PIT = 0, 1, 2, 3
N_BLOCKS = 64  # measured over 40,000 levels of the full range: at most 43, and 20 on average
DEPTH = 4  # of pits, in steps
WIDTH = 4  # of stairs, in steps
FLATTEST = 0.01  # stairs that are lower have no blocks
FAR = 1e6  # m, where the blocks are that there are not
# Random numbers of a point.
BUMP, SIZE, SLOPE, COUNT, LENGTH, KIND = range(6)
N_SHARES = 6


class Terrain(struct.PyTreeNode):
    """The ground of an episode, in m."""

    x: jax.Array  # f32[200]
    y: jax.Array  # f32[200]
    hidden: jax.Array  # bool[200], the edge from this point to the next lies inside a block
    peak: jax.Array  # bool[200], the point is an upward corner, and not in a block
    blocks: jax.Array  # f32[64, 5], from left to right: left and right edge, top, ground at its left and at its right


class Draft(struct.PyTreeNode):
    """Where the drawing of a terrain has come to, before point i."""

    kind: jax.Array  # i32[], GRASS, STUMP, STAIRS or PIT
    begins: jax.Array  # bool[], the point is the first of its kind
    y: jax.Array  # f32[], m
    velocity: jax.Array  # f32[], of the height
    counter: jax.Array  # i32[], points that are left of the kind
    since: jax.Array  # i32[], points since the obstacle began
    base: jax.Array  # f32[], m, height where it began
    size: jax.Array  # f32[], in steps: its gap or height
    slope: jax.Array  # f32[], 1: stairs up, -1: stairs down
    n_stairs: jax.Array  # i32[]


def draw_shares(seed: jax.Array) -> jax.Array:
    """f32[200, 6], the random numbers in [0, 1) of a terrain."""
    return jax.random.uniform(jax.random.key(seed), (N_POINTS, N_SHARES), jnp.float32)


def make_terrain(level: Level, shares: jax.Array) -> Terrain:
    """The terrain of `level` for these random numbers (f32[200, 6], see BUMP and the others)."""

    def one_point(draft: Draft, given: tuple[jax.Array, jax.Array]) -> tuple[Draft, Any]:
        return _next_point(level, draft, *given)

    _, (x, y, blocks) = jax.lax.scan(one_point, _start(), (jnp.arange(N_POINTS, dtype=jnp.int32), shares))
    blocks = _compact(blocks)
    left, right, top = blocks[:, 0], blocks[:, 1], blocks[:, 2]
    # Beside a block, the ground may be as high as its top. Then this side cannot be touched.
    sides = jnp.minimum(_height_at(x, y, jnp.stack([left, right])), top[None])
    blocks = jnp.concatenate([blocks, sides.T], axis=1)
    return Terrain(x, y, *_covered(x, y, left, right, top), blocks)


def _start() -> Draft:
    whole, real = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
    no = jnp.zeros((), bool)
    return Draft(whole, no, real + HEIGHT, real, whole + PAD, whole, real, real, real, whole)


def _next_point(level: Level, draft: Draft, i: jax.Array, shares: jax.Array) -> tuple[Draft, Any]:
    """(the draft after point `i`, (x, y, a block f32[3] that begins there: left, right, top))."""
    draft = _begun(level, draft, shares)
    roughness = jnp.where(level.hardcore, 1.0, level.numbers[0])
    on_grass = (draft.kind == GRASS) & ~draft.begins
    bump = jnp.where(i > PAD, (2 * shares[BUMP] - 1) / SCALE, 0.0)
    velocity = 0.8 * draft.velocity + 0.01 * jnp.sign(HEIGHT - draft.y) + bump
    velocity = jnp.where(on_grass, velocity, draft.velocity)
    pit = draft.base - jnp.where(draft.counter > 1, DEPTH * STEP, 0.0)
    later = ~draft.begins
    y = jnp.where(on_grass, draft.y + roughness * velocity, draft.y)
    y = jnp.where((draft.kind == PIT) & later, pit, y)
    y = jnp.where((draft.kind == STAIRS) & later, draft.base + _stair(level, draft) * STEP, y)
    x = i.astype(jnp.float32)
    ends_pit = (draft.kind == PIT) & later & (draft.counter == 1)
    point = x - jnp.where(ends_pit, jnp.ceil(draft.size) - draft.size, 0.0), y
    block = _block_at(level, draft, x)
    return _after(level, draft.replace(y=y, velocity=velocity), shares), (point[0] * STEP, point[1], block)


def _begun(level: Level, draft: Draft, shares: jax.Array) -> Draft:
    """The draft with what is drawn at the first point of an obstacle."""
    n, hard = level.numbers, level.hardcore

    def between(low: jax.Array, high: jax.Array) -> jax.Array:
        return low + (high - low) * shares[SIZE]

    def either(least: int) -> jax.Array:
        """One of two whole numbers."""
        return least + jnp.floor(2 * shares[SIZE])

    gap = jnp.where(hard, either(3), 1.0 + between(n[1], n[2]))
    stump = jnp.where(hard, either(1), between(n[3], n[4]))
    stair = jnp.where(hard, 1.0, between(n[5], n[6]))
    n_stairs = jnp.where(hard, either(3), jnp.floor(shares[COUNT] * n[7])).astype(jnp.int32)
    for_stairs = jnp.where(hard | (stair > FLATTEST), WIDTH * n_stairs + ~hard, draft.counter)
    for_stump = jnp.where(hard, stump.astype(jnp.int32), draft.counter)
    kinds = [draft.kind == kind for kind in (PIT, STUMP, STAIRS)]
    counter = jnp.select(kinds, [jnp.ceil(gap).astype(jnp.int32) + 2, for_stump, for_stairs], draft.counter)
    begins = draft.begins & (draft.kind != GRASS)
    return draft.replace(
        counter=jnp.where(begins, counter, draft.counter),
        since=jnp.where(begins, 0, draft.since),
        base=jnp.where(begins, draft.y, draft.base),
        size=jnp.where(begins, jnp.select(kinds, [gap, stump, stair], draft.size), draft.size),
        slope=jnp.where(begins, jnp.where(shares[SLOPE] > 0.5, 1.0, -1.0), draft.slope),
        n_stairs=jnp.where(begins, n_stairs, draft.n_stairs),
    )


def _stair(level: Level, draft: Draft) -> jax.Array:
    """f32[], in steps: the height of the polyline on stairs, above where they began."""
    done = (WIDTH * draft.n_stairs - draft.counter).astype(jnp.float32)
    below = jnp.where(draft.slope < 0, draft.size, 0.0)  # under stairs that go down, the ground is one stair lower
    stairs = jnp.floor(done / WIDTH) * draft.size * draft.slope - below
    # Gymnasium divides without rounding: its stairs have a ramp inside.
    ramp = (done - draft.slope) / WIDTH * draft.slope
    return jnp.where(level.hardcore, ramp, stairs)


def _block_at(level: Level, draft: Draft, x: jax.Array) -> jax.Array:
    """f32[3], m: left and right edge and top of the block that begins between this point and the next."""
    since, stair = draft.since, draft.since // WIDTH
    second = since.astype(jnp.float32) == jnp.floor(draft.size)
    pit = jnp.stack([x - since + jnp.where(second, draft.size, 0.0), jnp.ones(()), jnp.zeros(())])
    stump = jnp.stack([x, jnp.where(level.hardcore, draft.size, 1.0), draft.size])
    stairs = jnp.stack([x, jnp.full((), float(WIDTH)), stair * draft.size * draft.slope])
    is_stair = (since % WIDTH == 0) & (stair < draft.n_stairs) & (level.hardcore | (draft.size > FLATTEST))
    kinds = [draft.kind == kind for kind in (PIT, STUMP, STAIRS)]
    there = jnp.select(kinds, [draft.begins | (~draft.begins & second), draft.begins, is_stair], False)
    left, width, top = jnp.select(kinds, [pit, stump, stairs], jnp.zeros(3))
    left, right = jnp.where(there, left * STEP, FAR), jnp.where(there, (left + width) * STEP, FAR)
    return jnp.stack([left, right, jnp.where(there, draft.base + top * STEP, 0.0)])


def _after(level: Level, draft: Draft, shares: jax.Array) -> Draft:
    """The draft one point later."""
    n, hard = level.numbers, level.hardcore
    present = jnp.stack([hard | (n[4] >= LEAST_STUMP), hard | (n[6] >= LEAST_STAIR), hard | (n[2] >= LEAST_PIT)])
    n_kinds = present.sum()
    # Of the obstacles that there are, the drawn one: kinds are numbered STUMP, STAIRS, PIT.
    drawn = jnp.floor(shares[KIND] * n_kinds).astype(jnp.int32)
    kind = 1 + jnp.argmax(present & (jnp.cumsum(present) == drawn + 1)).astype(jnp.int32)
    over = draft.counter == 1
    goes = jnp.where((draft.kind == GRASS) & (n_kinds > 0), kind, GRASS)
    length = 5 + jnp.floor(5 * shares[LENGTH]).astype(jnp.int32)
    return draft.replace(
        kind=jnp.where(over, goes, draft.kind),
        begins=over,
        counter=jnp.where(over, length, draft.counter - 1),
        since=draft.since + 1,
    )


def _compact(blocks: jax.Array) -> jax.Array:
    """f32[64, 3]: the blocks of f32[200, 3] that there are, in their order."""
    order = jnp.argsort(blocks[:, 0] >= FAR, stable=True)
    return blocks[order][:N_BLOCKS]


def _height_at(x: jax.Array, y: jax.Array, places: jax.Array) -> jax.Array:
    """The height of the polyline at `places`, of any shape."""
    # Points are moved to the left by less than a step, so the edge is one of two.
    i = jnp.clip(jnp.floor(places / STEP + 1e-3).astype(jnp.int32), 0, N_POINTS - 2)
    i = jnp.where((x[i + 1] <= places + 1e-4) & (i < N_POINTS - 2), i + 1, i)
    share = jnp.clip((places - x[i]) / (x[i + 1] - x[i]), 0.0, 1.0)
    return y[i] + share * (y[i + 1] - y[i])


def _covered(
    x: jax.Array, y: jax.Array, left: jax.Array, right: jax.Array, top: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(hidden, peak) of a `Terrain`."""
    near = 1e-3

    def in_block(px: jax.Array, py: jax.Array, slack: float) -> jax.Array:
        x, y, left_, right_, top_ = px[:, None], py[:, None], left[None], right[None], top[None]
        inside = (x > left_ - slack) & (x < right_ + slack) & (y < top_ + near)
        return jnp.any(inside, axis=1)

    next_x, next_y = jnp.roll(x, -1), jnp.roll(y, -1)
    edge = jnp.arange(N_POINTS) < N_POINTS - 1
    hidden = edge & in_block((x + next_x) / 2, (y + next_y) / 2, -near)
    slope = (next_y - y) / jnp.where(edge, next_x - x, 1.0)
    bends_down = jnp.roll(slope, 1) > slope + near
    inner = edge & (jnp.arange(N_POINTS) > 0)
    # Where two steep edges meet at the end of a pit, x may be equal: a number that is not finite compares as false.
    return hidden, inner & bends_down & ~in_block(x, y, near)
