"""What the walker sees: 24 numbers, in the order and on the scales of Gymnasium's BipedalWalker."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.walker.body import MOTOR_SPEED, Body, hull_position, joint_angles
from minimax_lib.envs.walker.contacts import BEHIND, Near
from minimax_lib.envs.walker.terrain import SCALE

N_SEEN = 24
N_RAYS = 10
RANGE = 160 / SCALE  # m
RAYS = np.array([(np.sin(1.5 * i / N_RAYS), -np.cos(1.5 * i / N_RAYS)) for i in range(N_RAYS)]) * RANGE
FPS = 50.0
_SEEN_SPEED = np.array([0.3 * (600 / SCALE) / FPS, 0.3 * (400 / SCALE) / FPS])


def lidar(near: Near, origin: jax.Array) -> jax.Array:
    """f32[10]: how far each ray from `origin` (f32[2]) goes until it meets ground or block, as a share of its range.

    The first ray points straight down, the others more and more to the right.
    """
    ray = jnp.asarray(RAYS, jnp.float32)[:, None]  # [10, 1, 2]
    # No ray points to the left, and a point may stand up to a step left of its place.
    start = jnp.stack([near.x, near.y], axis=-1)[BEHIND - 1 :]
    edge = jnp.diff(start, axis=0)[None]
    way = start[None, :-1] - origin[None, None]
    across = _cross(ray, edge)
    across = jnp.where(across == 0, 1e-12, across)
    t, u = _cross(way, edge) / across, _cross(way, ray) / across
    on_ground = jnp.where((t >= 0) & (t <= 1) & (u >= 0) & (u <= 1), t, 1.0)
    left, right, top, before, _ = (near.blocks[None, :, i] for i in range(5))
    dx, dy = jnp.maximum(ray[..., 0], 1e-12), ray[..., 1]
    t = (left - origin[0]) / dx
    y = origin[1] + t * dy
    on_sides = jnp.where((t >= 0) & (t <= 1) & (y >= before) & (y <= top), t, 1.0)
    t = (top - origin[1]) / dy
    x = origin[0] + t * dx
    on_tops = jnp.where((t >= 0) & (t <= 1) & (x >= left) & (x <= right), t, 1.0)
    return jnp.min(jnp.concatenate([on_ground, on_sides, on_tops], axis=1), axis=1)


def _cross(a: jax.Array, b: jax.Array) -> jax.Array:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def observe(near: Near, body: Body, touching: jax.Array) -> jax.Array:
    """f32[24] of a body whose lower legs touch the ground (bool[2]) or not.

    The hull's angle, spin and velocity; of each leg hip and knee, angle and speed each, and whether it touches; lidar.
    """
    hull = jnp.concatenate([body.angle[:1], 2 * body.spin[:1] / FPS, body.velocity[0] * _SEEN_SPEED])
    angles = joint_angles(body.angle) + np.array([0, 1, 0, 1], np.float32)
    speeds = joint_angles(body.spin) / MOTOR_SPEED
    legs = jnp.stack([angles, speeds], axis=1).reshape(2, 4)
    legs = jnp.concatenate([legs, touching[:, None].astype(jnp.float32)], axis=1).reshape(-1)
    return jnp.concatenate([hull, legs, lidar(near, hull_position(body))]).astype(jnp.float32)
