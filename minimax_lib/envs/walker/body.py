"""The walker's body: a hull and two legs of two parts, and how it moves as one mechanism.

Its pose has seven numbers, so that no joint can come apart: where the hips are, and the angle of each part. Parts are
numbered 0 hull, 1 and 2 the first leg and its lower part, 3 and 4 the second one. Units are those of Box2D: m, kg, s.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.walker.terrain import SCALE

N_PARTS, N_COORDINATES = 5, 7  # coordinates: x and y of the hips, then the five angles
HULL = np.array([(-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8)]) / SCALE
LEG_WIDTH, LEG_LENGTH = 8 / SCALE, 34 / SCALE
LOWER_WIDTH = 0.8 * LEG_WIDTH
HULL_DENSITY, LEG_DENSITY = 5.0, 1.0
HIPS = np.array([0.0, -8 / SCALE])  # in the hull's own frame
GRAVITY = 10.0


def polygon_mass(corners: np.ndarray, density: float) -> tuple[float, np.ndarray, float]:
    """(mass, centre f64[2], moment of inertia about the centre) of a polygon, as Box2D computes them."""
    after = np.roll(corners, -1, axis=0)
    double = corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]  # of each triangle with the origin
    area = abs(double.sum()) / 2
    centre = ((corners + after) * double[:, None]).sum(axis=0) / (3 * double.sum())
    squares = (corners**2 + corners * after + after**2).sum(axis=1)
    about_origin = density * abs((double * squares).sum()) / 12
    mass = density * area
    return mass, centre, about_origin - mass * float(centre @ centre)


def _box(width: float) -> np.ndarray:
    x, y = width / 2, LEG_LENGTH / 2
    return np.array([(-x, -y), (x, -y), (x, y), (-x, y)])


BOXES = np.stack([_box(LEG_WIDTH), _box(LOWER_WIDTH)] * 2)  # f64[4, 4, 2], corners of the parts 1 to 4
_FORMS = [polygon_mass(HULL, HULL_DENSITY), *(polygon_mass(box, LEG_DENSITY) for box in BOXES)]
MASS = np.array([form[0] for form in _FORMS])
INERTIA = np.array([form[2] for form in _FORMS])
HULL_CENTRE = _FORMS[0][1]  # in the hull's own frame
TOTAL = float(MASS.sum())

# Each part's centre is the hips plus one arm turned by each angle: f64[5, 5, 2], of part b turned by angle j.
ARMS = np.zeros((N_PARTS, N_PARTS, 2))
ARMS[0, 0] = HULL_CENTRE - HIPS
for _leg in (1, 3):
    ARMS[_leg, _leg] = ARMS[_leg + 1, _leg + 1] = (0, -LEG_LENGTH / 2)
    ARMS[_leg + 1, _leg] = (0, -LEG_LENGTH)
# What a turn moves, weighted by mass: f64[5, 2] of the sum of all parts.
LEVERS = (MASS[:, None, None] * ARMS).sum(axis=0)
# The constant part of the matrix of masses: each angle with itself.
OWN = INERTIA + np.einsum("b,bjk,bjk->j", MASS, ARMS, ARMS)
# And of an angle with that of the lower part of its leg; times the cosine between them.
COUPLING = float(MASS[2] * LEG_LENGTH * LEG_LENGTH / 2)


class Body(struct.PyTreeNode):
    """Where the parts are, and how fast. Velocities are those of the parts, not of the coordinates: see `speeds`."""

    hips: jax.Array  # f32[2], m
    angle: jax.Array  # f32[5], rad, 0 is upright, positive is anticlockwise
    velocity: jax.Array  # f32[5, 2], m/s, of the centres
    spin: jax.Array  # f32[5], rad/s


Pair = tuple[jax.Array, jax.Array]  # (x, y) of vectors, or (cosine, sine) of angles


def turn_of(angle: jax.Array) -> Pair:
    """(cosine, sine)."""
    return jnp.cos(angle), jnp.sin(angle)


def turned_pair(turn: Pair, vector: Pair) -> Pair:
    """The vectors, turned by angles with these (cosine, sine)."""
    (c, s), (x, y) = turn, vector
    return c * x - s * y, s * x + c * y


def turned(angle: jax.Array, vectors: jax.Array) -> jax.Array:
    """`vectors` [..., 2], each turned by its angle [...]."""
    return jnp.stack(turned_pair(turn_of(angle), (vectors[..., 0], vectors[..., 1])), axis=-1)


def quarter(vectors: jax.Array) -> jax.Array:
    """`vectors` [..., 2] turned anticlockwise by a right angle: the velocity of their ends at 1 rad/s."""
    return jnp.stack([-vectors[..., 1], vectors[..., 0]], axis=-1)


def arms(angle: jax.Array) -> jax.Array:
    """f32[5, 5, 2]: the arm of part b that turns with angle j."""
    return turned(angle[None, :], jnp.asarray(ARMS, jnp.float32))


def centres(body: Body) -> jax.Array:
    """f32[5, 2], the centres of mass of the parts."""
    return body.hips[None] + arms(body.angle).sum(axis=1)


def knees(body: Body) -> jax.Array:
    """f32[2, 2]."""
    legs = body.angle[np.array([1, 3])]
    return body.hips[None] + turned(legs, jnp.asarray([[0.0, -LEG_LENGTH]] * 2, jnp.float32))


def hull_position(body: Body) -> jax.Array:
    """f32[2]: the origin of the hull, which is not its centre of mass. Rewards and lidar go by it.

    A batch of bodies may have the batch as its last axis.
    """
    x, y = turned_pair(turn_of(body.angle[0]), (jnp.float32(HIPS[0]), jnp.float32(HIPS[1])))
    return jnp.stack([body.hips[0] - x, body.hips[1] - y])


def centre_of_mass(body: Body) -> jax.Array:
    """f32[2], of the whole body."""
    return body.hips + turned(body.angle, jnp.asarray(LEVERS / TOTAL, jnp.float32)).sum(axis=0)


def joint_angles(angle: jax.Array) -> jax.Array:
    """f32[4], of hip 1, knee 1, hip 2, knee 2, from the angles (or the spins) of the parts."""
    return angle[np.array([1, 2, 3, 4])] - angle[np.array([0, 1, 0, 3])]


def inverse_mass(angle: jax.Array) -> jax.Array:
    """f32[7, 7], the inverse of the matrix of masses of the seven coordinates, in closed form.

    With the hips as the first coordinates, an angle is coupled with them and, in a leg, with one other angle. So all
    that has to be inverted are three matrices of 2 x 2.
    """
    moved = quarter(turned(angle, jnp.asarray(LEVERS, jnp.float32))).T  # [2, 5]: hips with angles
    coupling = COUPLING * jnp.cos(angle[np.array([1, 3])] - angle[np.array([2, 4])])
    upper, lower = float(OWN[1]), float(OWN[2])
    determinant = upper * lower - coupling**2
    zero = jnp.zeros((), jnp.float32)
    leg = [[lower / determinant, -coupling / determinant], [-coupling / determinant, upper / determinant]]
    alone = jnp.full((), 1 / OWN[0], jnp.float32)
    turns = jnp.stack(
        [
            jnp.stack([alone, zero, zero, zero, zero]),
            jnp.stack([zero, leg[0][0][0], leg[0][1][0], zero, zero]),
            jnp.stack([zero, leg[1][0][0], leg[1][1][0], zero, zero]),
            jnp.stack([zero, zero, zero, leg[0][0][1], leg[0][1][1]]),
            jnp.stack([zero, zero, zero, leg[1][0][1], leg[1][1][1]]),
        ]
    )
    share = jnp.sum(moved[:, :, None] * turns[None], axis=1)  # [2, 5]
    rest = TOTAL * jnp.eye(2, dtype=jnp.float32) - jnp.sum(share[:, None] * moved[None], axis=-1)
    a, b, d = rest[0, 0], rest[0, 1], rest[1, 1]
    free = jnp.stack([jnp.stack([d, -b]), jnp.stack([-b, a])]) / (a * d - b * b)
    mixed = -jnp.sum(free[:, :, None] * share[None], axis=1)  # [2, 5]
    both = turns - jnp.sum(share[:, :, None] * mixed[:, None, :], axis=0)
    return jnp.concatenate([jnp.concatenate([free, mixed], axis=1), jnp.concatenate([mixed.T, both], axis=1)])


def momentum(body: Body) -> jax.Array:
    """f32[7], the momentum that belongs to each coordinate."""
    moved = quarter(arms(body.angle))  # [5, 5, 2]
    pushes = jnp.asarray(MASS, jnp.float32)[:, None] * body.velocity
    angular = jnp.sum(moved * pushes[:, None, :], axis=(0, 2)) + jnp.asarray(INERTIA, jnp.float32) * body.spin
    return jnp.concatenate([pushes.sum(axis=0), angular])


def with_speeds(body: Body, speeds: jax.Array) -> Body:
    """The body whose coordinates have these speeds (f32[7]), in the same pose."""
    spin = speeds[2:]
    turning = jnp.sum(quarter(arms(body.angle)) * spin[None, :, None], axis=1)
    return body.replace(velocity=speeds[None, :2] + turning, spin=spin)


def moved_by(body: Body, shift: jax.Array) -> Body:
    """The body after its coordinates have moved by `shift` (f32[7]). Its velocities stay.

    The centre of mass moves as the coordinates' speeds say, and the hips follow. To move the hips along a straight line
    would add momentum, since the heavy hull swings about them.
    """
    turn = shift[2:]
    lever = turned(body.angle, jnp.asarray(LEVERS / TOTAL, jnp.float32))
    centre = centre_of_mass(body) + shift[:2] + jnp.sum(quarter(lever) * turn[:, None], axis=0)
    after = body.replace(angle=body.angle + turn)
    return after.replace(hips=after.hips + centre - centre_of_mass(after))


# One step after a reset of Box2D's walker. In its first moment there, the hull hangs 0.2 m above the lower legs. It
# closes that gap within a step. Bodies that cannot come apart start behind it.
_START_ANGLE = np.array([-0.00523, 0.38053, -0.50475, 0.38328, -0.50041])
_START_SPIN = np.array([0.00021, 0.26509, -0.23495, 0.28301, -0.25339])
_START_HULL, _START_VELOCITY = np.array([4.62799, 5.72686]), np.array([-0.03025, -0.0159])  # of the hull's centre
_PLACE_BY_FORCE, _VELOCITY_BY_FORCE = 1.48e-4, 3.54e-3  # m and m/s to the right, for each N
FORCE = 5.0  # N, the largest at the start


def _start() -> tuple[np.ndarray, np.ndarray]:
    """(f64[2] place of the hips, f64[5, 2] velocities of the parts) without a push.

    In NumPy: where XLA multiplies and sums these constants, jaxlib 0.10.2 leaves some rows of a batch as they were in
    memory (1,098 of a million walkers began at a velocity of NaN).
    """
    turn = np.exp(1j * _START_ANGLE)
    arms = turn * (ARMS[..., 0] + 1j * ARMS[..., 1])  # [5, 5], of part b and angle j
    hull, velocity = _START_HULL @ (1, 1j), _START_VELOCITY @ (1, 1j)
    velocities = velocity + 1j * (arms @ _START_SPIN - arms[0] @ _START_SPIN)
    hips = hull - arms[0].sum()
    return np.array([hips.real, hips.imag]), np.stack([velocities.real, velocities.imag], axis=1)


_START_HIPS, _START_VELOCITIES = _start()


def start(force: jax.Array) -> Body:
    """The body at the start of an episode, after a push of `force` (f32[], N) to the right for one step."""
    push = jnp.stack([force, jnp.zeros((), jnp.float32)])
    return Body(
        hips=jnp.asarray(_START_HIPS, jnp.float32) + _PLACE_BY_FORCE * push,
        angle=jnp.asarray(_START_ANGLE, jnp.float32),
        velocity=jnp.asarray(_START_VELOCITIES, jnp.float32) + _VELOCITY_BY_FORCE * push[None],
        spin=jnp.asarray(_START_SPIN, jnp.float32),
    )


LIMITS = np.array([(-0.8, 1.1), (-1.6, -0.1)] * 2)  # rad, of the joints
MOTOR_SPEED = np.array([4.0, 6.0] * 2)  # rad/s
TORQUE = 80.0  # N m, of each motor at its strongest
