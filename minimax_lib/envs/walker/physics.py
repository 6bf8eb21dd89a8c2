"""One step of the walker's motion: motors, limits of the joints, contacts.

The method is Box2D's: impulses, one after another in several rounds, then a correction of positions. But the joints
hold by themselves, since the body is one mechanism (`body.py`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.walker.body import (
    GRAVITY,
    LIMITS,
    MOTOR_SPEED,
    N_COORDINATES,
    TORQUE,
    Body,
    inverse_mass,
    joint_angles,
    knees,
    momentum,
    moved_by,
    with_speeds,
)
from minimax_lib.envs.walker.contacts import FARTHEST, N_KEPT, NONE, SKIN, SWEPT, Contacts
from minimax_lib.envs.walker.lanes import batch_last

DT = 1 / 50  # s
FRICTION = float(np.sqrt(2.5 * 0.2))  # of legs on the ground
SLOP, LARGEST_CORRECTION = 0.005, 0.2  # m, as in Box2D
ANGLE_SLOP, LARGEST_TURN = np.radians(2.0), np.radians(8.0)
_FASTEST = np.array([100.0] * 2 + [25 * np.pi] * 5, np.float32)  # m/s and rad/s
N_CONTACTS = 4 * N_KEPT
N_PAIRS = 4 + N_CONTACTS
N_CORRECTIONS = 4  # rounds over positions

_JOINTS = np.zeros((4, N_COORDINATES), np.float32)  # speed of a joint, from the speeds of the coordinates
for _i, (_part, _other) in enumerate([(1, 0), (2, 1), (3, 0), (4, 3)]):
    _JOINTS[_i, 2 + _part], _JOINTS[_i, 2 + _other] = 1, -1
_LEG = np.eye(N_COORDINATES, dtype=np.float32)[[3, 3, 5, 5]]  # the coordinate of the leg that a part belongs to
_LOWER = np.eye(N_COORDINATES, dtype=np.float32)[[4, 4, 6, 6]] * np.array([[0], [1], [0], [1]], np.float32)


class Impulses(struct.PyTreeNode):
    """Those of the last step: the next one begins with them. The first of a pair is a motor's or friction's."""

    first: jax.Array  # f32[16]
    second: jax.Array  # f32[16], of limits and of contacts
    name: jax.Array  # i32[4, 3], of the contacts


class Pairs(struct.PyTreeNode):
    """What the solver goes through: 4 joints (motor, limit), then 12 contacts (friction, normal)."""

    rows: tuple[jax.Array, jax.Array]  # f32[16, 7], the speed of each, from the speeds of the coordinates
    pushes: tuple[jax.Array, jax.Array]  # f32[16, 7], the change of those speeds for each impulse
    mass: tuple[jax.Array, jax.Array]  # f32[16], impulse for a change of speed; 0: not active
    wanted: tuple[jax.Array, jax.Array]  # f32[16], m/s or rad/s
    most: jax.Array  # f32[16], N s, of motors
    friction: jax.Array  # of the second impulse, which bounds the first
    least: jax.Array  # of the second impulse
    largest: jax.Array


def no_impulses() -> Impulses:
    """Those before the first step."""
    none = jnp.zeros(N_PAIRS, jnp.float32)
    return Impulses(none, none, jnp.full((4, N_KEPT), -1, jnp.int32))


def advance(
    body: Body, impulses: Impulses, contacts: Contacts, action: jax.Array, n_rounds: int
) -> tuple[Body, Impulses, jax.Array]:
    """(body, impulses, gaps f32[4, 3] of the contacts) one step later, after the motors were driven by `action`."""
    fall = jnp.asarray([[0.0, -GRAVITY * DT]], jnp.float32)
    inverse = inverse_mass(body.angle)
    # What a converged solver of joints would do: of all motions of the mechanism, that with the parts' momentum.
    speeds = jnp.sum(inverse * momentum(body.replace(velocity=body.velocity + fall))[None], axis=1)
    pairs = _pairs(body, contacts, inverse, action)
    first, second = _warm(impulses, contacts, pairs)
    solve = batch_last(partial(_solve, n_rounds))
    speeds, first, second = solve(pairs, _pushed(pairs, speeds, first, second), first, second)
    speeds = jnp.clip(speeds, -_FASTEST, _FASTEST)  # as in Box2D: a body that has sunk into the ground stays finite
    after = moved_by(with_speeds(body, speeds), DT * speeds)
    gap = jnp.concatenate([_past_limits(after.angle), contacts.gap.reshape(-1)])
    moved = gap + jnp.concatenate([jnp.zeros(4, jnp.float32), _along(pairs.rows[1], DT * speeds[None], axis=1)[4:]])
    shift = _correct(pairs, moved)
    gaps = (moved + _along(pairs.rows[1], shift[None], axis=1))[4:].reshape(4, N_KEPT)
    return moved_by(after, shift), Impulses(first, second, contacts.name), gaps


def _pairs(body: Body, contacts: Contacts, inverse: jax.Array, action: jax.Array) -> Pairs:
    normals, tangents = _contact_rows(body, contacts)
    joints = jnp.asarray(_JOINTS)
    firsts, seconds = jnp.concatenate([joints, tangents]), jnp.concatenate([joints, normals])
    angle = joint_angles(body.angle)
    at_low, at_high = angle <= LIMITS[:, 0], angle >= LIMITS[:, 1]
    gap = contacts.gap.reshape(-1)
    near = gap < FARTHEST
    # Box2D stops a fast part where it meets the ground. Here it may come as close as that within the step.
    wanted = jnp.where(gap > SKIN, -(gap - SWEPT) / DT, 0.0)
    power = jnp.clip(action, -1.0, 1.0)
    pushes = [_moved(rows, inverse) for rows in (firsts, seconds)]
    there = jnp.concatenate([jnp.ones(4, bool), near])
    turns = [jnp.sum(rows * push, axis=-1) for rows, push in zip((firsts, seconds), pushes, strict=True)]
    masses = [jnp.where(there, 1 / jnp.where(there, turn, 1.0), 0.0) for turn in turns]
    active = jnp.concatenate([at_low | at_high, near])
    zeros, none = jnp.zeros(4, jnp.float32), jnp.zeros(N_CONTACTS, jnp.float32)
    return Pairs(
        rows=(firsts, seconds),
        pushes=(pushes[0], pushes[1]),
        mass=(masses[0], jnp.where(active, masses[1], 0.0)),
        wanted=(
            jnp.concatenate([jnp.sign(power) * jnp.asarray(MOTOR_SPEED, jnp.float32), none]),
            jnp.concatenate([zeros, wanted]),
        ),
        most=jnp.concatenate([TORQUE * DT * jnp.abs(power), none]),
        friction=jnp.concatenate([zeros, none + FRICTION]),
        least=jnp.concatenate([jnp.where(at_high, -jnp.inf, 0.0), none]).astype(jnp.float32),
        largest=jnp.concatenate([jnp.where(at_low, jnp.inf, 0.0), none + jnp.inf]).astype(jnp.float32),
    )


def _contact_rows(body: Body, contacts: Contacts) -> tuple[jax.Array, jax.Array]:
    """(normal, tangent) f32[12, 7]: the speed of each contact point in these directions, from the coordinates'."""
    normal = contacts.normal
    # Between the part and the ground, as in Box2D.
    point = contacts.point - 0.5 * jnp.where(contacts.gap < NONE / 2, contacts.gap, 0.0)[..., None] * normal
    knee = knees(body)[np.array([0, 0, 1, 1])][:, None]
    is_lower = jnp.asarray(np.array([False, True, False, True])[:, None, None])
    upper = jnp.where(is_lower, knee, point) - body.hips[None, None]
    lower = point - knee
    rows = []
    for direction in (normal, jnp.stack([normal[..., 1], -normal[..., 0]], axis=-1)):
        turns = [x[..., 0] * direction[..., 1] - x[..., 1] * direction[..., 0] for x in (upper, lower)]
        by_leg, by_lower = (
            turn[..., None] * jnp.asarray(m)[:, None] for turn, m in zip(turns, (_LEG, _LOWER), strict=True)
        )
        row = jnp.concatenate([direction, jnp.zeros((4, N_KEPT, 5), jnp.float32)], axis=-1) + by_leg + by_lower
        rows.append(row.reshape(N_CONTACTS, N_COORDINATES))
    return rows[0], rows[1]


def _moved(rows: jax.Array, inverse: jax.Array) -> jax.Array:
    """f32[16, 7], the change of the coordinates' speeds for an impulse on each row."""
    # A product of matrices, term by term: on a CPU, a sum over the last axis would take ten times as long.
    return sum(rows[:, i, None] * inverse[i, None] for i in range(N_COORDINATES))  # type: ignore[return-value]


def _along(rows: jax.Array, speeds: jax.Array, axis: int = 0) -> jax.Array:
    """The speed of one row (f32[7]), or of all (f32[16, 7], axis 1), from speeds f32[7] or f32[1, 7]."""
    # Not a matrix product: on a GPU that would be of TensorFloat-32.
    return jnp.sum(rows * speeds, axis=axis)


def _warm(impulses: Impulses, contacts: Contacts, pairs: Pairs) -> tuple[jax.Array, jax.Array]:
    """The impulses to begin with: those of the last step, where the motor, limit or contact is still the same."""
    same = contacts.name[:, :, None] == impulses.name[:, None]

    def carried(values: jax.Array) -> jax.Array:
        of_contacts = jnp.sum(jnp.where(same, values[4:].reshape(4, 1, N_KEPT), 0.0), axis=-1).reshape(-1)
        return jnp.concatenate([values[:4], of_contacts])

    second = jnp.where(pairs.mass[1] > 0, jnp.clip(carried(impulses.second), pairs.least, pairs.largest), 0.0)
    most = pairs.most + pairs.friction * second
    return jnp.clip(carried(impulses.first), -most, most), second


def _pushed(pairs: Pairs, speeds: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """`speeds` f32[7] after these impulses."""
    of_first, of_second = (
        jnp.sum(x[:, None] * push, axis=0) for x, push in zip((first, second), pairs.pushes, strict=True)
    )
    return speeds + of_first + of_second


def _solve(
    n_rounds: int, pairs: Pairs, speeds: jax.Array, first: jax.Array, second: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(speeds, impulses) after `n_rounds` over all pairs."""

    # An instruction costs more than its arithmetic here: 7 numbers as one array take a quarter of the time of 7 arrays.
    def one_pair(speeds: jax.Array, given: tuple[Pairs, jax.Array, jax.Array]) -> tuple[Any, Any]:
        pair, old_first, old_second = given
        most = pair.most + pair.friction * old_second
        free = old_first + pair.mass[0] * (pair.wanted[0] - _along(pair.rows[0], speeds))
        new_first = jnp.clip(free, -most, most)
        speeds = speeds + (new_first - old_first)[None] * pair.pushes[0]
        free = old_second + pair.mass[1] * (pair.wanted[1] - _along(pair.rows[1], speeds))
        new_second = jnp.clip(free, pair.least, pair.largest)
        return speeds + (new_second - old_second)[None] * pair.pushes[1], (new_first, new_second)

    def one_round(_: int, loop: tuple[Any, Any]) -> tuple[Any, Any]:
        speeds, old = loop
        return jax.lax.scan(one_pair, speeds, (pairs, *old))

    speeds, (first, second) = jax.lax.fori_loop(0, n_rounds, one_round, (speeds, (first, second)))
    return speeds, first, second


def _past_limits(angle: jax.Array) -> jax.Array:
    """f32[4], rad: how far the joints are from the nearer limit, negative beyond it."""
    joints = joint_angles(angle)
    return jnp.minimum(joints - LIMITS[:, 0], LIMITS[:, 1] - joints)


@batch_last
def _correct(pairs: Pairs, gap: jax.Array) -> jax.Array:
    """f32[7], the shift of the coordinates that closes the overlaps `gap` (f32[16]) of limits and contacts."""
    # Box2D takes a fifth of each overlap in 60 rounds. All of it in four comes to the same.
    is_limit = np.arange(N_PAIRS) < 4
    slop = jnp.asarray(np.where(is_limit, ANGLE_SLOP, SLOP - SKIN), jnp.float32)  # distances do not count the skins
    most = jnp.asarray(np.where(is_limit, LARGEST_TURN, LARGEST_CORRECTION), jnp.float32)
    away = jnp.where(pairs.least < 0, -1.0, 1.0)  # an upper limit is passed in the other direction
    mass = pairs.mass[1]

    def one(shift: jax.Array, given: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        row, push, mass, gap, slop, most, away = given
        now = gap + away * _along(row, shift)
        return shift - (away * mass * jnp.clip(now + slop, -most, 0.0))[None] * push, None

    def one_round(_: int, shift: jax.Array) -> jax.Array:
        given = (pairs.rows[1], pairs.pushes[1], mass, gap, slop, most, away)
        return jax.lax.scan(one, shift, given)[0]

    return jax.lax.fori_loop(0, N_CORRECTIONS, one_round, jnp.zeros_like(pairs.rows[1][0]))
