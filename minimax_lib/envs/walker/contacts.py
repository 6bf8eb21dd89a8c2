"""Where the parts of the walker meet the ground.

Two kinds of points are tested: corners of a leg against ground and blocks, and upward corners of ground and blocks
against the sides of a leg. Of all of a part, the three with the least distance count. A direction in which a part is
pushed away is allowed only if the part, and the ground, lie on their own sides of the point. Without that rule, a foot
on flat ground would catch on the next block.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.walker.body import BOXES, HULL, Body, centres, hull_position, turned
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


def find_contacts(near: Near, body: Body) -> Contacts:
    """The contacts of both legs."""
    angle, centre = body.angle[1:], centres(body)[1:]
    corners = _corners(angle, centre, BOXES)
    found = [_corners_on_ground(near, angle, corners), _corners_on_blocks(near, angle, corners)]
    found.append(_points_on_parts(near, angle, centre))
    gap, point, normal, name = (jnp.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    left, places = gap, []
    for _ in range(N_KEPT):
        places.append(jnp.argmin(left, axis=1))
        left = jnp.where(places[-1][:, None] == np.arange(gap.shape[1])[None], jnp.inf, left)
    kept = jnp.stack(places, axis=1)

    def chosen(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, kept.reshape(*kept.shape, *(1,) * (values.ndim - 2)), axis=1)

    return Contacts(chosen(gap), chosen(point), chosen(normal), chosen(name))


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """The product of vectors [..., 2]. On a CPU, a sum over the last axis would take several times as long."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1]


def _corners(angle: jax.Array, centre: jax.Array, boxes: np.ndarray) -> jax.Array:
    """f32[n, 4, 2], the corners of n boxes."""
    return centre[:, None] + turned(angle[:, None], jnp.asarray(boxes, jnp.float32))


def _blocks(near: Near, axes: int) -> tuple[jax.Array, ...]:
    """The five numbers of the blocks that the body can touch, f32[1, ..., 5] each, with `axes` axes in front."""
    rows = near.blocks[:N_LEG_BLOCKS].reshape(*(1,) * axes, N_LEG_BLOCKS, 5)
    return tuple(rows[..., i] for i in range(5))


def _allowed(angle: jax.Array, normal: jax.Array) -> jax.Array:
    """bool[4, 4, ...]: whether the four corners of the boxes can be pushed along `normal` f32[4, 4, ..., 2]."""
    angle = angle.reshape(-1, *(1,) * (normal.ndim - 2))
    signs = jnp.asarray(_SIGNS).reshape(1, 4, *(1,) * (normal.ndim - 3), 2)
    free = signs * turned(-angle, normal) <= TILT
    return free[..., 0] & free[..., 1]


def _above(near: Near, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(distance from the ground, its normal) of points f32[..., 2]; NONE over what blocks hide."""
    x, y = near.x[:N_LEG_POINTS], near.y[:N_LEG_POINTS]
    dx, dy = jnp.diff(x), jnp.diff(y)
    length = jnp.sqrt(dx**2 + dy**2)
    normals = jnp.stack([-dy, dx], axis=-1) / jnp.maximum(length, 1e-6)[:, None]
    offsets = normals[:, 0] * x[:-1] + normals[:, 1] * y[:-1]
    ones = (1,) * (points.ndim - 1)
    at, from_x, to_x, hidden = points[..., None, 0], x[:-1], x[1:], near.hidden[: N_LEG_POINTS - 1]
    from_x, to_x, hidden, offsets = (v.reshape(*ones, -1) for v in (from_x, to_x, hidden, offsets))
    over = (from_x <= at) & (at < to_x) & ~hidden
    normal = jnp.sum(jnp.where(over[..., None], normals.reshape(*ones, -1, 2), 0.0), axis=-2)
    origin = jnp.sum(jnp.where(over, offsets, 0.0), axis=-1)
    gap = _dot(normal, points) - origin
    return jnp.where(jnp.any(over, axis=-1), gap, NONE), normal


def _corners_on_ground(near: Near, angle: jax.Array, corners: jax.Array) -> tuple[jax.Array, ...]:
    gap, normal = _above(near, corners)
    gap = jnp.where(_allowed(angle, normal), gap, NONE)
    return gap, corners, normal, jnp.broadcast_to(np.arange(4, dtype=np.int32)[None], gap.shape)


def _corners_on_blocks(near: Near, angle: jax.Array, corners: jax.Array) -> tuple[jax.Array, ...]:
    left, right, top, before, behind = _blocks(near, 2)
    x, y = corners[..., None, 0], corners[..., None, 1]
    past_left, past_right, over_top = left - x, x - right, y - top
    across = (past_left <= 0) & (past_right <= 0)
    below = over_top <= 0
    faces = np.array([(0, 1), (-1, 0), (1, 0)], np.float32)
    free = _allowed(angle, jnp.broadcast_to(jnp.asarray(faces), (4, 4, 3, 2)))  # [4, 4, 3]
    inside = jnp.stack(
        [
            across & free[..., 0, None],
            below & (past_right <= 0) & (y >= before) & free[..., 1, None],
            below & (past_left <= 0) & (y >= behind) & free[..., 2, None],
        ]
    )
    gaps = jnp.where(inside, jnp.stack([over_top, past_left, past_right]), -NONE)
    # Out of a block by the shortest way: the side through which the corner has come.
    shortest = jnp.max(gaps, axis=0)
    by_face = jnp.where(inside & (gaps == shortest[None]), gaps, NONE).min(axis=-1)  # [3, 4, 4]
    gap, face = jnp.min(by_face, axis=0), jnp.argmin(by_face, axis=0)
    normal = jnp.stack([jnp.where(face == 0, 0.0, jnp.where(face == 1, -1.0, 1.0)), (face == 0) * 1.0], axis=-1)
    names = jnp.broadcast_to(np.arange(4, 8, dtype=np.int32)[None], gap.shape)
    return gap, corners, normal.astype(jnp.float32), names


def _upward_corners(near: Near) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """(points [V, 2], whether they are there, directions of the ground to the left and right [V, 2], names)."""
    n = N_LEG_POINTS
    line = jnp.stack([near.x[:n], near.y[:n]], axis=-1)
    to_right = jnp.diff(line, axis=0)
    to_right = to_right / jnp.maximum(jnp.sqrt(_dot(to_right, to_right)), 1e-6)[:, None]
    ends = jnp.zeros((1, 2), jnp.float32)
    peaks = near.peak[:n] & (np.arange(n) > 0) & (np.arange(n) < n - 1)
    left, right, top, before, behind = (near.blocks[:N_LEG_BLOCKS, i] for i in range(5))
    points = [line, jnp.stack([left, top], -1), jnp.stack([right, top], -1)]
    there = [peaks, before < top - 1e-3, behind < top - 1e-3]
    k = N_LEG_BLOCKS
    down, along = np.tile(np.array([[0, -1]], np.float32), (k, 1)), np.tile(np.array([[1, 0]], np.float32), (k, 1))
    lefts = [jnp.concatenate([ends, -to_right]), jnp.asarray(down), jnp.asarray(-along)]
    rights = [jnp.concatenate([to_right, ends]), jnp.asarray(along), jnp.asarray(down)]
    numbers = near.first[1] + np.arange(k, dtype=np.int32)
    names = [8 + near.first[0] + np.arange(n, dtype=np.int32), 300 + numbers, 400 + numbers]
    return tuple(jnp.concatenate(x) for x in (points, there, lefts, rights, names))  # type: ignore[return-value]


def _points_on_parts(near: Near, angle: jax.Array, centre: jax.Array) -> tuple[jax.Array, ...]:
    points, there, left, right, names = _upward_corners(near)
    back = -angle[:, None]
    local = turned(back, points[None] - centre[:, None])  # [4, V, 2]
    beyond = jnp.abs(local) - jnp.asarray(_HALF)[:, None]
    sign = jnp.where(local >= 0, 1.0, -1.0)
    # The ground pushes against the side that it is behind, and must not lie on the other side of it.
    into = jnp.maximum(-sign * turned(back, left[None]), -sign * turned(back, right[None]))
    inside = there[None, :, None] & (beyond[..., ::-1] <= 0) & (into <= TILT)
    gaps = jnp.where(inside, beyond, -NONE)
    by_x = gaps[..., 0] >= gaps[..., 1]
    gap = jnp.where(inside[..., 0] | inside[..., 1], jnp.maximum(gaps[..., 0], gaps[..., 1]), NONE)
    normal = -sign * jnp.stack([by_x, ~by_x], axis=-1)
    shape = (4, *points.shape)
    names = jnp.broadcast_to(names[None], gap.shape)
    return gap, jnp.broadcast_to(points[None], shape), turned(angle[:, None], normal.astype(jnp.float32)), names


def lower_legs_on(near: Near, body: Body) -> jax.Array:
    """u32[2, 2]: for each lower leg, bits of the edges of the ground, and of the blocks, that it touches.

    Their numbers are taken modulo 32, which is more than are near.
    """
    angle, centre = body.angle[2::2], centres(body)[2::2]
    corners = _corners(angle, centre, BOXES[1::2])
    n = N_LEG_POINTS
    line = jnp.stack([near.x[:n], near.y[:n]], axis=-1)
    left, right, top = _blocks(near, 2)[:3]
    x, y = corners[..., None, 0], corners[..., None, 1]
    way = jnp.diff(line, axis=0)
    up = jnp.stack([-way[:, 1], way[:, 0]], -1) / jnp.maximum(jnp.sqrt(_dot(way, way)), 1e-6)[:, None]
    above = _dot(corners[:, :, None] - line[None, None, :-1], up[None, None])
    ends_x = line[None, None, :, 0]
    on_edges = jnp.any((ends_x[..., :-1] <= x) & (x < ends_x[..., 1:]) & (above <= SKIN), axis=1)
    in_blocks = jnp.any(jnp.maximum(jnp.maximum(left - x, x - right), y - top) <= SKIN, axis=1)

    def at_leg(points: jax.Array) -> jax.Array:
        local = turned(-angle[:, None], points - centre[:, None])
        beyond = jnp.abs(local) - jnp.asarray(_HALF[1])[None, None]
        return jnp.maximum(beyond[..., 0], beyond[..., 1]) <= SKIN

    ends = at_leg(line[None])
    on_edges = on_edges | ends[:, :-1] | ends[:, 1:]
    on_blocks = in_blocks | at_leg(jnp.stack([left, top], -1)[0]) | at_leg(jnp.stack([right, top], -1)[0])

    def bits(touched: jax.Array, first: jax.Array) -> jax.Array:
        places = ((first + np.arange(touched.shape[1])) % 32).astype(jnp.uint32)
        return jnp.sum(jnp.where(touched, jnp.left_shift(jnp.uint32(1), places)[None], 0), axis=1, dtype=jnp.uint32)

    return jnp.stack([bits(on_edges, near.first[0]), bits(on_blocks, near.first[1])], axis=1)


def hull_gap(near: Near, body: Body) -> jax.Array:
    """f32[], m: the distance of the hull from the ground, where it is small; negative where they overlap."""
    position, angle = hull_position(body), body.angle[0]
    corners = position[None] + turned(angle, jnp.asarray(HULL, jnp.float32))
    over, _ = _above(near, corners)
    left, right, top, before, behind = _blocks(near, 1)
    x, y = corners[:, None, 0], corners[:, None, 1]
    is_beside = y >= jnp.where(x < (left + right) / 2, before, behind)
    in_blocks = jnp.maximum(jnp.maximum(left - x, x - right), y - top)
    points, there, *_ = _upward_corners(near)
    local = turned(-angle, points - position[None])
    faces = _dot(local[:, None] - HULL[None].astype(np.float32), jnp.asarray(_OUTWARD, jnp.float32)[None])
    in_hull = jnp.where(there, faces.max(axis=-1), NONE)
    return jnp.minimum(jnp.minimum(over.min(), jnp.where(is_beside, in_blocks, NONE).min()), in_hull.min())
