"""Where the parts of the walker meet the ground.

Two kinds of points are tested: corners of a leg against ground and blocks, and upward corners of ground and blocks
against the sides of a leg. Of all of a part, the three with the least distance count. A direction in which a part is
pushed away is allowed only if the part, and the ground, lie on their own sides of the point. Without that rule, a foot
on flat ground would catch on the next block.

The search has the batch last (`lanes.py`), and its vectors are two arrays (x, y). Steps over a few edges or blocks are
written one after another: on a CPU, a reduction would take several times as long.
"""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.walker.body import BOXES, HULL, LEG_LENGTH, Body, Pair, hull_position, turn_of, turned_pair
from minimax_lib.envs.walker.lanes import batch_last, constant
from minimax_lib.envs.walker.terrain import STEP, Terrain

BEHIND, AHEAD = 5, 15  # points of the polyline that are looked at: the legs reach 4.9 steps, the lidar 11.2
N_POINTS = BEHIND + AHEAD + 1
N_LEG_POINTS = 2 * BEHIND + 3  # of them, those that the body can touch
N_BLOCKS, N_LEG_BLOCKS = 8, 5  # the same of blocks: at most so many fit into the widths
N_KEPT = 3  # contacts of a part
SKIN = 0.02  # m, Box2D's two skins: closer is a contact
SWEPT = 0.00625  # m, how close Box2D lets a part come within a step
FARTHEST = 0.4  # m: what is farther cannot be reached in a step
TILT = 0.1  # how far a direction may lean out of a corner (sine of the angle)
NONE = 1e3  # m, the distance of what is not there

_SIGNS = np.sign(BOXES[0]).astype(np.float32)  # f32[4, 2], of the corners of a box
_HALF = np.abs(BOXES[:, 0]).astype(np.float32)  # f32[4, 2], half the sides of the boxes
_OUTWARD = np.stack([np.roll(HULL, -1, 0)[:, 1] - HULL[:, 1], HULL[:, 0] - np.roll(HULL, -1, 0)[:, 0]], 1)
_OUTWARD = -_OUTWARD / np.linalg.norm(_OUTWARD, axis=1, keepdims=True)  # the hull's corners go round clockwise
_FACES = ((0.0, 1.0), (-1.0, 0.0), (1.0, 0.0))  # directions of the three sides of a block that can be touched

Found = tuple[jax.Array, Pair, Pair, jax.Array]  # (gap, point, normal, name), [4, n] each


class Near(struct.PyTreeNode):
    """The part of a terrain around the walker."""

    x: jax.Array  # f32[21]
    y: jax.Array  # f32[21]
    hidden: jax.Array  # bool[21]
    peak: jax.Array  # bool[21]
    blocks: jax.Array  # f32[8, 5]
    first: jax.Array  # i32[2], the number of the first point and of the first block


class Contacts(struct.PyTreeNode):
    """Three for each part of the legs."""

    gap: jax.Array  # f32[4, 3], m, negative where they overlap; NONE: no contact
    point: jax.Array  # f32[4, 3, 2]
    normal: jax.Array  # f32[4, 3, 2], from the ground to the part
    name: jax.Array  # i32[4, 3], the same from step to step while it is the same contact


def look_around(terrain: Terrain, body: Body) -> Near:
    """The terrain within reach of the legs and the lidar."""
    x = hull_position(body)[0]
    first = jnp.clip(jnp.floor(x / STEP).astype(jnp.int32) - BEHIND, 0, len(terrain.x) - N_POINTS)
    passed = jnp.sum(terrain.blocks[:, 1] < x - BEHIND * STEP, dtype=jnp.int32)
    passed = jnp.minimum(passed, len(terrain.blocks) - N_BLOCKS)

    def part(values: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(values, first, N_POINTS)

    blocks = jax.lax.dynamic_slice_in_dim(terrain.blocks, passed, N_BLOCKS)
    line = (part(terrain.x), part(terrain.y), part(terrain.hidden), part(terrain.peak))
    return Near(*line, blocks, jnp.stack([first, passed]))


@batch_last
def find_contacts(near: Near, body: Body) -> Contacts:
    """The contacts of both legs."""
    turn, centre = _legs(body)
    corners = _corners(turn, centre)
    groups = [_corners_on_ground(near, turn, corners), _corners_on_blocks(near, turn, corners)]
    groups.append(_points_on_parts(near, turn, centre))
    gap = jnp.concatenate([group[0] for group in groups], axis=1)
    kept = _least(gap)

    def chosen(*values: jax.Array) -> jax.Array:
        of_all = [jnp.broadcast_to(x, (len(gap), *x.shape[1:])) for x in values]
        return jnp.take_along_axis(jnp.concatenate(of_all, axis=1), kept, axis=1)

    point, normal = (
        jnp.stack([chosen(*(group[which][i] for group in groups)) for i in (0, 1)], axis=2) for which in (1, 2)
    )
    return Contacts(chosen(gap), point, normal, chosen(*(group[3] for group in groups)))


def _least(gap: jax.Array) -> jax.Array:
    """i32[4, 3], the places of the three least of each row of `gap` f32[4, n], n at most 32.

    Of distances that differ by less than 2**-18 of their size, the first one counts as the least.
    """
    # A place found by `gap == least` may not exist: XLA can compute `gap` twice, and round it in two ways. And argmin
    # takes five times as long. So a number has its place in its last five bits.
    bits = jax.lax.bitcast_convert_type(gap, jnp.int32)
    ordered = jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as integers, negative floats are in the wrong order
    order = constant(np.arange(gap.shape[1], dtype=np.int32)[None], gap, 2)
    left, places = (ordered & ~31) | order, []
    for _ in range(N_KEPT):
        places.append(jnp.min(left, axis=1, keepdims=True) & 31)
        left = jnp.where(order == places[-1], np.iinfo(np.int32).max, left)
    return jnp.concatenate(places, axis=1)


def _turned_back(turn: Pair, vector: Pair) -> Pair:
    """As `turned_pair`, in the other direction."""
    (c, s), (x, y) = turn, vector
    return c * x + s * y, c * y - s * x


def _at(pair: Pair, *index: object) -> Pair:
    return pair[0][index], pair[1][index]


def _legs(body: Body) -> tuple[Pair, Pair]:
    """((cosine, sine) of the angles, (x, y) of the centres) of the parts 1 to 4."""
    c, s = turn_of(body.angle[1:])

    def joined(way: jax.Array) -> jax.Array:
        return jnp.stack([way[0], 2 * way[0] + way[1], way[2], 2 * way[2] + way[3]])

    half = LEG_LENGTH / 2
    return (c, s), (body.hips[0, None] + joined(half * s), body.hips[1, None] - joined(half * c))


def _corners(turn: Pair, centre: Pair, boxes: np.ndarray = BOXES) -> Pair:
    """[n, 4] each, the corners of n boxes."""
    at_x, at_y = (constant(boxes[..., i].astype(np.float32), centre[0], 1) for i in (0, 1))
    x, y = turned_pair(_at(turn, slice(None), None), (at_x, at_y))
    return centre[0][:, None] + x, centre[1][:, None] + y


def _ground(near: Near) -> tuple[Pair, Pair]:
    """(points [13] each, directions of the edges between them [12] each)."""
    x, y = near.x[:N_LEG_POINTS], near.y[:N_LEG_POINTS]
    dx, dy = x[1:] - x[:-1], y[1:] - y[:-1]
    length = jnp.maximum(jnp.sqrt(dx**2 + dy**2), 1e-6)
    return (x, y), (dx / length, dy / length)


def _blocks(near: Near) -> tuple[jax.Array, ...]:
    """Left, right, top, and the ground before and behind, [5] each, of the blocks that the body can touch."""
    return tuple(near.blocks[:N_LEG_BLOCKS, i] for i in range(5))


def _allowed(turn: Pair, normal: Pair) -> jax.Array:
    """bool[4, 4]: whether the four corners of the boxes can be pushed along `normal` ([4, 4] or a number, each)."""
    free = [
        constant(_SIGNS[None, :, i], along, 2) * along <= TILT
        for i, along in enumerate(_turned_back(_at(turn, slice(None), None), normal))
    ]
    return free[0] & free[1]


def _above(near: Near, points: Pair) -> tuple[jax.Array, Pair]:
    """(distance from the ground, its normal) of points; NONE and no direction over what blocks hide."""
    (x, y), (along_x, along_y) = _ground(near)
    shown = ~near.hidden[: N_LEG_POINTS - 1]
    offset = jnp.where(shown, along_x * y[:-1] - along_y * x[:-1], -NONE)
    normal_x, normal_y = jnp.where(shown, -along_y, 0.0), jnp.where(shown, along_x, 0.0)
    found = [jnp.zeros_like(points[0]), jnp.zeros_like(points[0]), jnp.full_like(points[0], -NONE)]
    nothing = [jnp.zeros_like(x[0]), jnp.zeros_like(x[0]), jnp.full_like(x[0], -NONE)]
    edges = [[normal_x[i], normal_y[i], offset[i]] for i in range(N_LEG_POINTS - 1)]
    lone = (None,) * (points[0].ndim - x.ndim + 1)
    for start, edge in zip(x, [*edges, nothing], strict=True):  # the last edge that begins to the left of the point
        is_past = points[0] >= start[lone]
        found = [jnp.where(is_past, new[lone], old) for new, old in zip(edge, found, strict=True)]
    return found[0] * points[0] + found[1] * points[1] - found[2], (found[0], found[1])


def _corners_on_ground(near: Near, turn: Pair, corners: Pair) -> Found:
    gap, normal = _above(near, corners)
    gap = jnp.where(_allowed(turn, normal), gap, NONE)
    return gap, corners, normal, _named(gap, 0)


def _named(gap: jax.Array, first: int) -> jax.Array:
    """i32[4, 4], the names of the corners."""
    return jnp.broadcast_to(constant(np.arange(first, first + 4, dtype=np.int32)[None], gap, 2), gap.shape)


def _corners_on_blocks(near: Near, turn: Pair, corners: Pair) -> Found:
    x, y = corners
    free = [_allowed(turn, (jnp.full_like(x, along_x), jnp.full_like(x, along_y))) for along_x, along_y in _FACES]
    by_face = [jnp.full_like(x, NONE)] * 3
    for i in range(N_LEG_BLOCKS):
        left, right, top, before, behind = (block[i, None, None] for block in _blocks(near))
        past_left, past_right, over_top = left - x, x - right, y - top
        below = over_top <= 0
        inside = (
            free[0] & (past_left <= 0) & (past_right <= 0),
            free[1] & below & (past_right <= 0) & (y >= before),
            free[2] & below & (past_left <= 0) & (y >= behind),
        )
        gaps = [jnp.where(i, gap, -NONE) for i, gap in zip(inside, (over_top, past_left, past_right), strict=True)]
        # Out of a block by the shortest way: the side through which the corner has come.
        by_top = gaps[0] >= jnp.maximum(gaps[1], gaps[2])
        shortest = by_top, ~by_top & (gaps[1] >= gaps[2]), ~by_top & (gaps[1] < gaps[2])
        by_face = [
            jnp.where(is_inside & is_way, jnp.minimum(gap, least), least)
            for is_inside, is_way, gap, least in zip(inside, shortest, gaps, by_face, strict=True)
        ]
    gap = reduce(jnp.minimum, by_face)
    on_top, on_left = by_face[0] <= jnp.minimum(by_face[1], by_face[2]), by_face[1] <= by_face[2]
    normal = jnp.where(on_top, 0.0, jnp.where(on_left, -1.0, 1.0)), jnp.where(on_top, 1.0, 0.0)
    return gap, corners, normal, _named(gap, 4)


def _upward_corners(near: Near) -> tuple[Pair, jax.Array, Pair, Pair, jax.Array]:
    """(points, whether they are there, directions of the ground to the left and right of them, names), [23] each."""
    (x, y), (to_x, to_y) = _ground(near)
    left, right, top, before, behind = _blocks(near)
    end, none, one = jnp.zeros_like(x[:1]), jnp.zeros_like(left), jnp.ones_like(left)
    ends = constant(np.isin(np.arange(N_LEG_POINTS), (0, N_LEG_POINTS - 1)), x, 1)
    there = [near.peak[:N_LEG_POINTS] & ~ends, before < top - 1e-3, behind < top - 1e-3]
    numbers = near.first[1, None] + constant(np.arange(N_LEG_BLOCKS, dtype=np.int32), left, 1)
    names = [
        8 + near.first[0, None] + constant(np.arange(N_LEG_POINTS, dtype=np.int32), x, 1),
        300 + numbers,
        400 + numbers,
    ]
    joined = jnp.concatenate
    return (
        (joined([x, left, right]), joined([y, top, top])),
        joined(there),
        (joined([end, -to_x, none, -one]), joined([end, -to_y, -one, none])),
        (joined([to_x, end, one, none]), joined([to_y, end, none, -one])),
        joined(names),
    )


def _points_on_parts(near: Near, turn: Pair, centre: Pair) -> Found:
    points, there, left, right, names = (jax.tree.map(lambda x: x[None], group) for group in _upward_corners(near))
    turn = _at(turn, slice(None), None)
    local = _turned_back(turn, (points[0] - centre[0][:, None], points[1] - centre[1][:, None]))
    half = [constant(_HALF[:, i, None], centre[0], 1) for i in (0, 1)]
    beyond = [jnp.abs(x) - size for x, size in zip(local, half, strict=True)]
    sign = [jnp.where(x >= 0, -1.0, 1.0) for x in local]
    # The ground pushes against the side that it is behind, and must not lie on the other side of it.
    into = [
        jnp.maximum(away * to_left, away * to_right)
        for away, to_left, to_right in zip(sign, _turned_back(turn, left), _turned_back(turn, right), strict=True)
    ]
    inside = [there & (beyond[1 - i] <= 0) & (into[i] <= TILT) for i in (0, 1)]
    gaps = [jnp.where(i, x, -NONE) for i, x in zip(inside, beyond, strict=True)]
    by_x = gaps[0] >= gaps[1]
    gap = jnp.where(inside[0] | inside[1], jnp.maximum(gaps[0], gaps[1]), NONE)
    normal = jnp.where(by_x, sign[0], 0.0), jnp.where(by_x, 0.0, sign[1])
    return gap, points, turned_pair(turn, normal), names


@batch_last
def lower_legs_on(near: Near, body: Body) -> jax.Array:
    """u32[2, 2]: for each lower leg, bits of the edges of the ground, and of the blocks, that it touches.

    Their numbers are taken modulo 32, which is more than are near.
    """
    turn, centre = (_at(pair, slice(1, None, 2)) for pair in _legs(body))
    corners = _corners(turn, centre, BOXES[1::2])
    line, (along_x, along_y) = _ground(near)
    left, right, top = (block[None] for block in _blocks(near)[:3])
    (start_x, start_y), on_edges, on_blocks = _at(line, None, slice(-1)), [], []
    for i in range(4):
        x, y = corners[0][:, i, None], corners[1][:, i, None]
        above = along_x[None] * (y - start_y) - along_y[None] * (x - start_x)
        on_edges.append((start_x <= x) & (x < line[0][None, 1:]) & (above <= SKIN))
        on_blocks.append(jnp.maximum(jnp.maximum(left - x, x - right), y - top) <= SKIN)

    def at_leg(x: jax.Array, y: jax.Array) -> jax.Array:
        local = _turned_back(_at(turn, slice(None), None), (x - centre[0][:, None], y - centre[1][:, None]))
        width, length = (float(size) for size in _HALF[1])
        return jnp.maximum(jnp.abs(local[0]) - width, jnp.abs(local[1]) - length) <= SKIN

    ends = at_leg(*_at(line, None))
    touched_edges = reduce(jnp.logical_or, [*on_edges, ends[:, :-1], ends[:, 1:]])
    touched_blocks = reduce(jnp.logical_or, [*on_blocks, at_leg(left, top), at_leg(right, top)])

    def bits(touched: jax.Array, first: jax.Array) -> jax.Array:
        order = constant(np.arange(touched.shape[1], dtype=np.int32), first, 0)
        places = ((first[None] + order) % 32).astype(jnp.uint32)
        return jnp.sum(jnp.where(touched, jnp.left_shift(jnp.uint32(1), places)[None], 0), axis=1, dtype=jnp.uint32)

    return jnp.stack([bits(touched_edges, near.first[0]), bits(touched_blocks, near.first[1])], axis=1)


@batch_last
def hull_gap(near: Near, body: Body) -> jax.Array:
    """f32[], m: the distance of the hull from the ground, where it is small; negative where they overlap."""
    turn, position = _at(turn_of(body.angle[0]), None), hull_position(body)
    place = position[0, None], position[1, None]
    at_x, at_y = (constant(HULL[:, i].astype(np.float32), place[0], 1) for i in (0, 1))
    hull = turned_pair(turn, (at_x, at_y))
    corners = place[0] + hull[0], place[1] + hull[1]
    over, _ = _above(near, corners)
    left, right, top, before, behind = (block[None] for block in _blocks(near))
    x, y = corners[0][:, None], corners[1][:, None]
    is_beside = y >= jnp.where(x < (left + right) / 2, before, behind)
    in_blocks = jnp.maximum(jnp.maximum(left - x, x - right), y - top)
    points, there, *_ = _upward_corners(near)
    local = _turned_back(turn, (points[0] - place[0], points[1] - place[1]))
    beyond = [out[0] * (local[0] - at[0]) + out[1] * (local[1] - at[1]) for at, out in zip(HULL, _OUTWARD, strict=True)]
    in_hull = jnp.where(there, reduce(jnp.maximum, beyond), NONE)
    gaps = over.min(axis=0), jnp.where(is_beside, in_blocks, NONE).min(axis=(0, 1)), in_hull.min(axis=0)
    return reduce(jnp.minimum, gaps).astype(jnp.float32)
