"""The walker: its body and physics against closed forms, its terrain against dcd's, its levels, teacher and suites."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.config.train import load_yaml
from minimax_lib.envs.registry import editing_of, identity_of, make_env, make_held_out, make_ued_env
from minimax_lib.envs.walker import BipedalWalker, body, contacts, make_level
from minimax_lib.envs.walker.level import EASY, FULL, NUMBERS
from minimax_lib.envs.walker.mutate import NUDGES
from minimax_lib.envs.walker.suite import BENCHMARK, WORLDS
from minimax_lib.envs.walker.teacher import WalkerDesign
from minimax_lib.envs.walker.terrain import FAR, HEIGHT, STEP, make_terrain
from minimax_lib.envs.walker.view import RANGE, RAYS, lidar
from minimax_lib.envs.walker.walker import END, _touching
from minimax_lib.runners.build import make_runner
from minimax_lib.testing.envs import check_editing, check_environment, check_teacher

ENV = BipedalWalker(max_steps=300)
KEY = jax.random.key(0)
FLAT = make_level(np.array([0, 0, 0, 0, 0, 0, 0, 1], np.float32), np.uint32(0))
N = 4  # walkers side by side


N_STEPS = 200  # of the one program that all tests of the motion share


def walked(levels, actions):
    """(states [T, N], time steps [T, N]) of N episodes with `actions` [T, N, 4]; the first state is that of a reset."""
    return moved(started(levels)[0], actions)


def moved(states, actions):
    """The same from these states, which may have been changed. T is N_STEPS at most."""
    padded = np.concatenate([actions, np.zeros((N_STEPS - len(actions), N, 4), np.float32)])
    return jax.tree.map(lambda x: x[: len(actions)], jax.device_get(_moved(states, padded)))


@jax.jit
def _moved(states, actions):
    def step(states, action):
        after, ts = jax.vmap(lambda s, a: ENV.step(KEY, s, a))(states, action)
        return after, (after, ts)

    return jax.lax.scan(step, states, actions)[1]


@jax.jit
def started(levels):
    return jax.vmap(ENV.reset)(jax.random.split(KEY, N), levels)


def four(level):
    """The level N times."""
    return jax.tree.map(lambda x: np.stack([np.asarray(x)] * N), level)


def lifted(states, height, **changes):
    """The states with their walkers `height` m higher."""
    hips = np.asarray(states.body.hips) + np.array([0, height], np.float32)
    return states.replace(body=states.body.replace(hips=hips, **changes))


def test_masses_and_inertias_are_those_of_box2d():
    np.testing.assert_allclose(body.MASS[:3], [5.42222, 0.302222, 0.241778], rtol=1e-5)
    np.testing.assert_allclose(body.INERTIA[:3], [1.99939, 0.0341399, 0.0267961], rtol=1e-5)
    np.testing.assert_allclose(body.HULL_CENTRE, [-0.0200364, -0.00564664], atol=1e-7)
    np.testing.assert_array_equal(body.MASS[1:3], body.MASS[3:])


def places(hips, angle):
    """f64[5, 2], the centres of the parts, written out."""

    def turn(a, v):
        c, s = np.cos(a), np.sin(a)
        return np.array([c * v[0] - s * v[1], s * v[0] + c * v[1]])

    found = [hips + turn(angle[0], body.HULL_CENTRE - [0, -8 / 30])]
    for leg in (1, 3):
        knee = hips + turn(angle[leg], [0, -34 / 30])
        found += [hips + turn(angle[leg], [0, -17 / 30]), knee + turn(angle[leg + 1], [0, -17 / 30])]
    return np.array(found)


def jacobian(angle, eps=1e-6):
    """f64[5, 2, 7]: how the centres move with the coordinates, by differences."""
    q = np.concatenate([[1.0, 2.0], angle])
    steps = [(q + eps * e, q - eps * e) for e in np.eye(7)]
    return np.stack([(places(a[:2], a[2:]) - places(b[:2], b[2:])) / (2 * eps) for a, b in steps], axis=-1)


def test_the_matrix_of_masses_is_that_of_the_mechanism():
    """Its inverse in closed form, against the sum over parts of m J^T J."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(-1.5, 1.5, (6, 5)).astype(np.float32)
    found = np.asarray(jax.jit(jax.vmap(body.inverse_mass))(angles))
    for angle, inverse in zip(angles, found, strict=True):
        j = jacobian(angle.astype(np.float64))
        matrix = np.einsum("b,bik,bil->kl", body.MASS, j, j) + np.diag([0, 0, *body.INERTIA])
        np.testing.assert_allclose(inverse @ matrix, np.eye(7), atol=2e-5)


def test_momentum_changes_by_gravity_alone():
    """Motors off, in the air: 50 steps with spinning parts. Joints are kept from their limits."""
    states, _ = jax.device_get(started(four(FLAT)))
    angle = np.tile(np.array([0.1, 0.2, -0.6, 0.4, -0.5], np.float32), (N, 1))
    rng = np.random.default_rng(1)
    velocity, spin = rng.normal(0, 0.3, (N, 5, 2)), rng.normal(0, 0.2, (N, 5))
    states = lifted(states, 8.0, angle=angle, velocity=velocity.astype(np.float32), spin=spin.astype(np.float32))
    after, _ = moved(states, np.zeros((50, N, 4), np.float32))
    t = np.arange(1, 51)[:, None] / 50

    def momentum(b):
        return (body.MASS[:, None] * np.asarray(b.velocity, np.float64)).sum(axis=-2)

    linear, first = momentum(after.body), momentum(states.body)
    np.testing.assert_allclose(linear[..., 0], np.broadcast_to(first[:, 0], (50, N)), atol=1e-4)
    np.testing.assert_allclose(linear[..., 1], first[:, 1] - 10 * body.TOTAL * t, rtol=1e-5, atol=1e-3)
    spins = np.array(
        [[angular(jax.tree.map(lambda x, k=k, i=i: x[k, i], after.body)) for i in range(N)] for k in (0, 24, 49)]
    )
    np.testing.assert_allclose(spins, np.broadcast_to(spins[:1], spins.shape), atol=5e-3)


def angular(b):
    """The angular momentum about the centre of mass."""
    centre = places(np.asarray(b.hips, np.float64), np.asarray(b.angle, np.float64))
    velocity = np.asarray(b.velocity, np.float64)
    mean = (body.MASS[:, None] * velocity).sum(axis=0) / body.TOTAL
    r = centre - (body.MASS[:, None] * centre).sum(axis=0) / body.TOTAL
    v = velocity - mean
    return (body.MASS * (r[:, 0] * v[:, 1] - r[:, 1] * v[:, 0])).sum() + (body.INERTIA * b.spin).sum()


def test_a_million_walkers_begin_as_the_mechanism_moves():
    """jaxlib 0.10.2 gave a thousand of them a velocity of NaN, where it summed products of constants."""
    force = np.random.default_rng(0).uniform(-body.FORCE, body.FORCE, 1_000_000).astype(np.float32)
    walkers = jax.jit(jax.vmap(body.start))(force)
    assert np.isfinite(walkers.velocity).all()
    one = jax.tree.map(lambda x: x[7], walkers)
    with jax.disable_jit():
        to_hull = body.turned(one.angle[0], jnp.asarray(body.ARMS[0, 0], jnp.float32))
        hips = one.velocity[0] - body.quarter(to_hull) * one.spin[0]
        moving = body.with_speeds(one, jnp.concatenate([hips, one.spin]))
    np.testing.assert_allclose(one.velocity, moving.velocity, atol=1e-6)
    hull = body._START_HULL + np.array([1.48e-4 * force[7], 0])
    np.testing.assert_allclose(np.asarray(one.hips) + to_hull, hull, atol=1e-5)
    np.testing.assert_allclose(walkers.velocity[:, 0, 0], -0.03025 + 3.54e-3 * force, atol=1e-6)


def test_without_motors_it_falls_and_pays_a_hundred():
    states, ts = walked(four(FLAT), np.zeros((200, N, 4), np.float32))
    assert ts.terminated.any(axis=0).all()
    for i in range(N):
        end = int(np.argmax(ts.terminated[:, i]))
        assert 20 < end < 120
        assert ts.reward[end, i] == -100
        assert ts.facts["finish"][end, i] == ts.progress[end, i] == 0
        # Until then it pays for how far the hull has moved, and for how upright it is.
        x, angle = states.body.hips[:, i, 0], states.body.angle[:, i, 0]
        x = x - 8 / 30 * np.sin(angle)
        worth = 130 / 30 * x - 5 * np.abs(angle)
        np.testing.assert_allclose(np.diff(worth)[: end - 1], ts.reward[1:end, i], atol=2e-4)


def test_who_falls_behind_the_end_has_not_finished():
    """In the air beyond it; the hulls of the last two were so near the ground that they touch it in this step."""
    states = started(four(FLAT))[0]
    hips = np.asarray(states.body.hips) + np.array([END, 5], np.float32)
    near = np.array([False, False, True, True])
    states = states.replace(body=states.body.replace(hips=hips), hull_near=near)
    _, ts = moved(states, np.zeros((1, N, 4), np.float32))
    assert ts.terminated[0].all()
    assert ts.facts["finish"][0].tolist() == [1, 1, 0, 0]
    assert (ts.reward[0] == -100).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("was", "before", "now", "touches"),
    [
        (False, 0b00, 0b01, True),  # a contact begins
        (True, 0b01, 0b01, True),
        (True, 0b11, 0b01, False),  # one ends, although another goes on
        (False, 0b01, 0b01, False),  # which does not begin again
        (True, 0b01, 0b10, False),  # one ends while another begins
    ],
)
def test_a_foot_touches_from_a_contact_that_begins_to_one_that_ends(was, before, now, touches):
    """As Gymnasium tells it. The other leg stays in the air."""
    state = SimpleNamespace(touching=np.array([was, False]), touched=np.array([[0, before], [0, 0]], np.uint32))
    assert _touching(state, np.array([[0, now], [0, 0]], np.uint32)).tolist() == [touches, False]


def test_feet_do_not_sink_and_limits_hold():
    """Strong random motors on a world with everything, until it falls."""
    levels = make_level(np.array([3, 2, 4, 0.5, 1, 0.3, 0.6, 5], np.float32), np.uint32(1))
    levels = four(levels).replace(seed=np.arange(N, dtype=np.uint32))
    actions = np.random.default_rng(0).uniform(-1, 1, (200, N, 4)).astype(np.float32)
    states, ts = walked(levels, actions)
    alive = np.cumsum(ts.terminated, axis=0) == 0
    angle = states.body.angle
    joints = np.stack([angle[..., 1] - angle[..., 0], angle[..., 2] - angle[..., 1]], axis=-1)[alive]
    low, high = body.LIMITS[:2].T
    assert (joints > low - 0.15).all()
    assert (joints < high + 0.15).all()
    assert np.abs(states.body.velocity[alive]).max() < 30
    gaps = jax.jit(
        jax.vmap(jax.vmap(lambda s: contacts.find_contacts(contacts.look_around(s.terrain, s.body), s.body)))
    )
    found = jax.device_get(gaps(states))
    assert found.gap[alive].min() > -0.1
    # A batch of batches finds what each of them finds.
    at_once = jax.device_get(find(jax.tree.map(lambda x: x[60], states)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[60], y, atol=1e-5), found, at_once)


def test_the_three_least_gaps_are_found():
    """Against a stable sort; also among equal, negative and absent ones."""
    gaps = np.random.default_rng(0).uniform(-0.1, 0.5, (400, 31)).astype(np.float32)
    gaps[:, ::3] = contacts.NONE
    gaps[:9, 4:] = gaps[:9, 4:5]
    gaps[9:20] = contacts.NONE
    found = jax.jit(contacts._least)(gaps)
    np.testing.assert_array_equal(found, np.argsort(gaps, axis=1, kind="stable")[:, : contacts.N_KEPT])


def test_a_foot_stands_on_its_two_corners():
    states, _ = jax.device_get(started(four(FLAT)))
    found = jax.device_get(find(states))
    near = found.gap[0] <= contacts.SKIN + 0.03
    assert near.sum(axis=1).tolist()[0::2] == [0, 0]
    np.testing.assert_allclose(found.normal[0][near], np.tile([0, 1], (near.sum(), 1)), atol=1e-6)
    np.testing.assert_allclose(found.point[0][near][:, 1] - HEIGHT, found.gap[0][near], atol=1e-5)


find = jax.jit(jax.vmap(lambda s: contacts.find_contacts(contacts.look_around(s.terrain, s.body), s.body)))


def with_block(states, block):
    """The states, on flat ground with one block: left, right, top, ground at its left and right."""
    blocks = np.full((N, 64, 5), FAR, np.float32)
    blocks[..., 2:] = 0
    blocks[:, 0] = block
    return states.replace(terrain=states.terrain.replace(blocks=blocks))


def test_a_shin_meets_a_stump_from_the_side_and_its_corner_from_above():
    """A straight lower leg 5 mm in front of a wall; a leg that lies on an edge; a foot beside buried sides."""
    states, _ = jax.device_get(started(four(FLAT)))
    states = lifted(states, 1.0, angle=np.tile(np.array([0, 0.3, 0, 0.3, 0], np.float32), (N, 1)))
    straight = states.body
    knee = np.asarray(straight.hips) + 34 / 30 * np.array([np.sin(0.3), -np.cos(0.3)])
    front = float(knee[0, 0]) + 0.8 * 8 / 30 / 2
    foot = float(knee[0, 1]) - 34 / 30
    wall = (front + 0.005, front + 1, foot + 0.3, foot - 1, foot - 1)
    found = jax.device_get(find(with_block(states, wall)))
    touching = found.gap[0, 1] < contacts.SKIN
    np.testing.assert_allclose(found.gap[0, 1][touching], 0.005, atol=2e-4)
    assert touching.sum() == 2  # the corner of the foot, and the edge of the wall against the shin
    np.testing.assert_allclose(found.normal[0, 1][touching], np.tile([-1, 0], (2, 1)), atol=1e-5)
    # A block whose top is where the ground is: its sides cannot be touched. The foot stands on it, 5 mm too deep.
    buried = (front - 0.002, front + 1, foot + 0.005, foot + 0.005, foot + 0.005)
    found = jax.device_get(find(with_block(states, buried)))
    touching = found.gap[0, 1] < 0
    np.testing.assert_allclose(found.normal[0, 1][touching][:, 1], 1.0)
    # The upper leg leans over the corner of a block: pushed along its own normal.
    middle = 0.5 * (np.asarray(straight.hips)[0] + knee[0])
    normal = np.array([np.cos(0.3), np.sin(0.3)])
    edge = middle - (8 / 30 / 2 + 0.01) * normal
    leaned = (edge[0] - 2, edge[0], edge[1], edge[1] - 9, edge[1] - 9)
    found = jax.device_get(find(with_block(states, leaned)))
    assert found.gap[0, 0, 0] == pytest.approx(0.01, abs=2e-4)
    np.testing.assert_allclose(found.normal[0, 0, 0], normal, atol=1e-5)


terrains = jax.jit(jax.vmap(make_terrain))


def recorded():
    return np.load(Path(__file__).parent / "data/walker/terrains.npz")


def test_terrains_are_those_of_dcd_and_gymnasium():
    """60 terrains of the reference code, point for point, from the same random numbers."""
    data = recorded()
    n = len(data["numbers"])
    shares = np.stack([np.random.default_rng(i).random((200, 6), np.float32) for i in range(n)])
    levels = jax.vmap(make_level)(data["numbers"], np.zeros(n, np.uint32), data["hardcore"])
    found = jax.device_get(terrains(levels, shares))
    np.testing.assert_allclose(found.x, data["x"], atol=1e-4)
    np.testing.assert_allclose(found.y, data["y"], atol=1e-4)
    ends = np.cumsum(data["n_blocks"])
    for i, theirs in enumerate(np.split(data["blocks"], ends[:-1])):
        ours = found.blocks[i][found.blocks[i][:, 0] < 199.9 * STEP]
        np.testing.assert_allclose(ours[:, :3], theirs, atol=1e-4)
        assert (ours[:, 3:] <= ours[:, 2:3] + 1e-4).all()


def test_lidar_against_a_plain_loop():
    data = recorded()
    n = len(data["numbers"])
    shares = np.stack([np.random.default_rng(i).random((200, 6), np.float32) for i in range(n)])
    levels = jax.vmap(make_level)(data["numbers"], np.zeros(n, np.uint32), data["hardcore"])
    terrain = jax.device_get(terrains(levels, shares))
    rng = np.random.default_rng(3)
    x = rng.uniform(3, 80, n).astype(np.float32)
    ground = np.array([np.interp(x[i], terrain.x[i], terrain.y[i]) for i in range(n)])
    inside = terrain.blocks[..., 0] <= x[:, None] + 0.1
    ground = np.maximum(
        ground, np.where(inside & (terrain.blocks[..., 1] >= x[:, None] - 0.1), terrain.blocks[..., 2], 0).max(1)
    )
    y = (ground + rng.uniform(0.5, 3, n)).astype(np.float32)

    @jax.jit
    @jax.vmap
    def seen(terrain, x, y):
        at = jnp.stack([x, y])
        still = jnp.zeros(5, jnp.float32)
        hull = body.Body(at + jnp.asarray(body.HIPS, jnp.float32), still, jnp.zeros((5, 2)), still)
        return lidar(contacts.look_around(terrain, hull), at)

    found = np.asarray(seen(terrain, x, y))
    for i in range(n):
        lines = [*zip(terrain.x[i], terrain.y[i], terrain.x[i][1:], terrain.y[i][1:], strict=False)]
        for left, right, top, before, behind in terrain.blocks[i][terrain.blocks[i][:, 0] < FAR]:
            lines += [(left, before, left, top), (left, top, right, top), (right, top, right, behind)]
        expected = [first_hit(np.array(lines, np.float64), x[i], y[i], ray) for ray in RAYS]
        np.testing.assert_allclose(found[i], expected, atol=2e-4)
    assert (found < 1).mean() > 0.5
    assert np.allclose(np.linalg.norm(RAYS, axis=1), RANGE)


def first_hit(lines, x, y, ray):
    """The share of the ray at which it meets one of the lines f64[n, 4]."""
    best = 1.0
    for x1, y1, x2, y2 in lines:
        matrix = np.array([[ray[0], x1 - x2], [ray[1], y1 - y2]])
        if abs(np.linalg.det(matrix)) > 1e-12:
            t, u = np.linalg.solve(matrix, [x1 - x, y1 - y])
            if 0 <= t < best and -1e-6 <= u <= 1 + 1e-6:
                best = t
    return best


@partial(jax.jit, static_argnums=(0, 1))
def sampled(sample, n, key):
    return jax.vmap(sample)(jax.random.split(key, n))


@pytest.mark.parametrize("name", ["full", "easy", "poet"])
def test_random_levels_fill_their_ranges(name):
    env = BipedalWalker(levels=name)
    levels = jax.device_get(sampled(env.sample_level, 500, KEY))
    assert (levels.numbers >= env.ranges[:, 0]).all()
    assert (levels.numbers <= env.ranges[:, 1]).all()
    assert (levels.numbers[:, 1::2][:, :3] <= levels.numbers[:, 2::2]).all()
    assert len(np.unique(levels.seed)) == 500
    for i in np.flatnonzero(env.ranges[:, 0] < env.ranges[:, 1]):
        low, high = env.ranges[i]
        shares = (levels.numbers[:, i] - low) / (high - low)
        # Of two uniform numbers, the smaller has mean 1/3 and the larger 2/3.
        assert shares.mean() == pytest.approx({0: 1 / 2, 7: 1 / 2}.get(i, 1 / 3 if i % 2 else 2 / 3), abs=0.06)
    assert not env.fault_in(jax.tree.map(lambda x: x[0], levels))


def test_what_is_no_level_is_refused():
    numbers = np.array([1, 2, 3, 0, 0, 0, 0, 4], np.float32)
    level = FLAT.replace(numbers=numbers)
    assert ENV.fault_in(level) == ""
    for at, value, line in (
        (0, 11, "roughness is 11: it must be from 0 to 10"),
        (7, 2.5, "stair_steps is 2.5: it must be a whole number"),
        (1, 5, "pit_gap_low is 5: it must be at most pit_gap_high, 3"),
        (2, np.nan, "pit_gap_high is nan: it must be from 0 to 10"),
    ):
        wrong = numbers.copy()
        wrong[at] = value
        assert ENV.fault_in(FLAT.replace(numbers=wrong)) == line


def test_edits_nudge_one_number_and_draw_a_new_seed():
    editing = editing_of(BipedalWalker())
    levels = sampled(BipedalWalker().sample_level, 2000, KEY)
    mutate = jax.jit(jax.vmap(editing.mutate, (0, 0, None)), static_argnums=2)
    children = jax.device_get(mutate(jax.random.split(jax.random.key(1), 2000), levels, 1))
    parents = jax.device_get(levels)
    step = children.numbers - parents.numbers
    # A nudge may carry the lower end of a pair past the higher one: then they change places.
    moved = np.abs(step) > 1e-6
    pairs = np.stack([moved[:, 0], *(moved[:, a : a + 2].any(axis=1) for a in (1, 3, 5)), moved[:, 7]], axis=1)
    assert pairs.sum(axis=1).max() == 1
    # Two thirds of the edits move something, but for those that a bound stops.
    assert pairs.sum(axis=1).mean() == pytest.approx(2 / 3, abs=0.08)
    assert np.abs(step).max(axis=0)[0] <= NUDGES[0] + 1e-5
    assert (np.abs(step) <= NUDGES + 1e-5).all()
    # Where no bound is reached, a whole nudge; of the roughness, a random share of it.
    alone = (
        moved & (moved.sum(axis=1) == 1)[:, None] & (children.numbers > FULL[:, 0]) & (children.numbers < FULL[:, 1])
    )
    for i, nudge in enumerate(NUDGES):
        sizes = np.abs(step[alone[:, i], i]) / nudge
        np.testing.assert_allclose(sizes.mean(), 1.0 if i else 0.5, atol=0.08 if i == 0 else 1e-4)
    assert (children.seed != parents.seed).all()
    far = jax.device_get(mutate(jax.random.split(jax.random.key(2), 2000), levels, 60))
    assert (far.numbers >= FULL[:, 0]).all()
    assert (far.numbers <= FULL[:, 1]).all()
    easy = editing.base(BipedalWalker())
    assert (
        jax.device_get(sampled(easy.sample_level, 50, KEY)).numbers[:, 1:] == EASY[1:, 1] * [0, 1, 0, 1, 0, 1, 1]
    ).all()
    assert identity_of(BipedalWalker())(levels) is levels
    # Where there are no stairs, edits bring none.
    poet = editing_of(BipedalWalker(levels="poet_easy")).mutate
    child = jax.jit(poet, static_argnums=2)(KEY, jax.tree.map(lambda x: x[0], levels), 300)
    np.testing.assert_array_equal(child.numbers[5:], parents.numbers[0, 5:])


def test_the_teacher_designs_what_it_says():
    pair = make_ued_env("BipedalWalker", {"noise_dim": 3}, max_steps=3)
    teacher = pair.teacher
    state, ts = jax.jit(lambda key: teacher.reset(key, teacher.sample_level(key)))(KEY)
    to_level, step = jax.jit(teacher.to_level), jax.jit(teacher.step)
    for i, action in enumerate([-1.0, 1.0, 0.0, 5.0, -0.5, -1.0, -1.0, 0.0]):
        assert not ts.done
        assert int(ts.obs["time"]) == i
        state, ts = step(KEY, state, np.array([action], np.float32))
    assert ts.terminated
    level = to_level(state)
    np.testing.assert_allclose(level.numbers, [0, 5, 10, 1.25, 5, 0, 0, 5])
    after, _ = step(KEY, state, np.array([1], np.float32))
    np.testing.assert_array_equal(to_level(after).numbers, level.numbers)
    assert int(to_level(after).seed) == int(level.seed)
    assert WalkerDesign().build(BipedalWalker(levels="poet")).max_steps == 5
    with pytest.raises(ValueError, match="WalkerDesign designs levels of BipedalWalker, not of AMaze"):
        WalkerDesign().build(make_env("AMaze"))


def test_held_out_worlds_are_what_their_names_say():
    assert set(make_held_out(ENV, ["all"]).names) == {*BENCHMARK, *WORLDS, "XChal", "TrainingDistribution"}
    tasks = make_held_out(ENV, ["Hardcore", "XChal", "Med-Stairs", "Rose-1a", "Rose-3b"])
    levels = jax.device_get(jax.jit(tasks.sample, static_argnums=1)(KEY, 3))
    rows = dict(zip(tasks.names, levels.numbers, strict=True))
    assert (levels.hardcore.any(axis=1) == (np.array(tasks.names) == "Hardcore")).all()
    assert ((rows["XChal"][:, 0] >= 4.5) & (rows["XChal"][:, 0] <= 8)).all()
    assert len(np.unique(levels.seed)) == levels.seed.size
    assert rows["Med-Stairs"][0].tolist() == [0, 0, 0, 0, 0, 2, 2, 5]
    assert rows["Rose-1a"][0].tolist() == pytest.approx([5.6, 4.48, 6.4, 2.4, 2.82, 0, 0, 1])
    assert rows["Rose-3b"][0].tolist() == pytest.approx([4.8, 4.48, 4.8, 2.4, 2.76, 0, 0, 1])
    # The tests of dcd: roughness, widths of pits, heights of stumps and of stairs, steps of a stair.
    tested = {
        "Basic": (1, 0, 0, 0, 0, 0, 0, 1),
        "Med-Roughness": (5, 0, 0, 0, 0, 0, 0, 1),
        "Med-PitGap": (0, 5, 5, 0, 0, 0, 0, 1),
        "Med-StumpHeight": (0, 0, 0, 2, 2, 0, 0, 1),
        "High-Stairs": (0, 0, 0, 0, 0, 5, 5, 9),
        "Wide-PitGap": (0, 10, 10, 0, 0, 0, 0, 1),
        "Insane": (9, 10, 10, 5, 5, 5, 5, 9),
    }
    assert {name: WORLDS[name] for name in tested} == tested
    with pytest.raises(ValueError, match="did you mean 'Med-PitGap'"):
        make_held_out(ENV, ["Med-Pitgap"])


@pytest.mark.deep
@pytest.mark.parametrize("name", ["full", "poet"])
def test_the_environment_conforms(name):
    env = BipedalWalker(levels=name, max_steps=20)
    check_environment(env, KEY, n_rows=4)
    check_editing(env, KEY)
    check_teacher(make_ued_env("BipedalWalker", levels=name, max_steps=20), KEY, n_rows=4)


def test_metrics_and_the_box_of_levels():
    env = BipedalWalker(levels="poet")
    assert list(env.level_box) == list(NUMBERS[:5])
    level = env.level_at(KEY, np.array([3, 4, 2, 1, 0.5], np.float32))
    np.testing.assert_allclose(level.numbers, [3, 2, 4, 0.5, 1, 0, 0, 1])
    metrics = jax.jit(env.level_metrics)(level)
    assert {name: float(x) for name, x in metrics.items()} == dict(zip(NUMBERS, level.numbers.tolist(), strict=True))


def test_pictures_show_the_walker_on_its_way():
    states, _ = jax.device_get(started(four(FLAT)))
    poses = ENV.slim(states)
    moment = ENV.draw_state(jax.tree.map(lambda x: x[0], poses))
    assert moment.dtype == np.uint8
    later = poses.replace(body=poses.body.replace(hips=poses.body.hips + np.array([20, 0], np.float32)))
    path = jax.tree.map(lambda *x: np.stack(x), *[poses] * 50, later)
    running = np.ones((51, N), bool)
    way = ENV.draw_episodes(path, running, ["a", "b", "c", "d"], 2)
    level = ENV.draw_episodes(jax.tree.map(lambda x: x[:1], path), running[:1], ["a", "b", "c", "d"], 2)
    assert way.shape == level.shape
    assert (way != level).any()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"levels": "hard"}, "levels='hard': it must be one of full, easy, poet, poet_easy, basic"),
        ({"max_steps": 0}, "max_steps=0: it must be a whole number of at least 1"),
        ({"n_rounds": 1000}, "n_rounds=1000: it must be at most 200"),
        ({"n_rounds": 2.5}, "n_rounds=2.5: it must be a whole number of at least 1"),
    ],
)
def test_bad_settings_are_refused_in_one_line(setting, line):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        BipedalWalker(**setting)
    assert str(refused.value) == line


METHODS = ("dr", "plr", "robust_plr", "accel", "paired", "sfl")


@pytest.mark.deep
@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_the_walker(name):
    """Tracing the shipped files shows whether their settings fit together."""
    runner = make_runner(load_yaml(f"configs/walker/{name}.yaml"))
    state = jax.eval_shape(runner.init, KEY)
    after, metrics = jax.eval_shape(runner.step, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert {"facts/finish", "solved_rate"} <= set(metrics)
