"""A pendulum's physics: its parameters, their ranges, and the motion."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

Range = tuple[float, float]  # (lowest, highest)


class Physics(struct.PyTreeNode):
    """A level: a point mass on a massless rod that turns about its end. All f32[]."""

    mass: Any  # kg
    length: Any  # m
    gravity: Any  # m/s^2
    damping: Any  # N m s, the friction's torque for each rad/s
    torque: Any  # N m, the motor's highest


PARAMETERS = ("mass", "length", "gravity", "damping", "torque")
POSITIVE = ("mass", "length", "gravity")


def check_range(name: str, limits: Range) -> None:
    """ValueError if the setting is not a range that the parameter `name` can have."""
    if not isinstance(limits, Sequence) or len(limits) != 2:
        raise ValueError(f"{name}={limits!r}: it must be (least, most), the lowest and the highest value")
    least, most = limits
    positive = name in POSITIVE
    if not (math.isfinite(most) and least <= most and (least > 0 if positive else least >= 0)):
        rule = "0 < least" if positive else "0 <= least"
        raise ValueError(f"{name}={limits}: it must be (least, most), with {rule} <= most, both finite")


def fault_in(physics: Physics) -> str:
    """Which rule these parameters break, in one sentence; empty if they break none. On the host."""
    for name in PARAMETERS:
        value, positive = float(np.asarray(getattr(physics, name))), name in POSITIVE
        if not (math.isfinite(value) and (value > 0 if positive else value >= 0)):
            return f"its {name} is {value:g}: it must be finite, and {'above' if positive else 'at least'} 0"
    return ""


def within(ranges: Physics, shares: Physics) -> Physics:
    """The physics at the `shares` of the `ranges`: for each parameter, f32[] from 0 (lowest) to 1 (highest)."""

    def value(limits: Range, share: jax.Array) -> jax.Array:
        least, most = (jnp.asarray(limit, jnp.float32) for limit in limits)
        # Rounding must not leave the range, not even by one bit.
        return jnp.clip(least + share * (most - least), least, most)

    return each(value, ranges, shares)


def each(f: Any, *several: Physics) -> Physics:
    """`f` applied to each parameter of `several`. A parameter may be a number, an array or a range."""
    return Physics(**{name: f(*(getattr(physics, name) for physics in several)) for name in PARAMETERS})


def stacked(physics: Physics) -> jax.Array:
    """f32[5], the parameters in their order."""
    return jnp.stack([getattr(physics, name) for name in PARAMETERS])


def unstacked(values: jax.Array) -> Physics:
    """The inverse of `stacked`."""
    return Physics(**{name: values[i] for i, name in enumerate(PARAMETERS)})


def acceleration(physics: Physics, angle: jax.Array, speed: jax.Array, torque: jax.Array) -> jax.Array:
    """f32[], rad/s^2. The angle is 0 if the pole is upright."""
    inertia = physics.mass * physics.length**2
    return physics.gravity / physics.length * jnp.sin(angle) + (torque - physics.damping * speed) / inertia


def energy(physics: Physics, angle: jax.Array, speed: jax.Array) -> jax.Array:
    """f32[], J: the energy of the motion, plus that of the height above the pivot."""
    moving = 0.5 * physics.mass * (physics.length * speed) ** 2
    return moving + physics.mass * physics.gravity * physics.length * jnp.cos(angle)


def wrapped_angle(angle: jax.Array) -> jax.Array:
    """The same angle in [-pi, pi)."""
    return (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
