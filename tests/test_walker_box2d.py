"""The walker beside Gymnasium's, which Box2D moves: where it starts, single steps, what it sees, and when it falls."""

import functools

import gymnasium
import jax
import numpy as np
import pytest

pytest.importorskip("Box2D", reason='Box2D is not installed: pip install -e ".[box2d]"')

from gymnasium.envs.box2d import bipedal_walker as gym_walker

from minimax_lib.envs.walker import BipedalWalker, EnvState, body, contacts, make_level
from minimax_lib.envs.walker.physics import no_impulses
from minimax_lib.envs.walker.terrain import make_terrain
from minimax_lib.store.loaded import load_run
from tests.walker_twin import Table, body_of, parts

pytestmark = pytest.mark.deep
ENV = BipedalWalker(n_rounds=60)  # no impulses are carried over, so each step begins from nothing
ROUGH = make_level(np.array([1, 0, 0, 0, 0, 0, 0, 1], np.float32), np.uint32(0))
HARDCORE = make_level(np.zeros(8, np.float32), np.uint32(0), np.bool_(True))
N = 50


def theirs_on(shares, hardcore=False):
    """Gymnasium's walker on the ground of these random numbers, one step after its reset."""
    world = gym_walker.BipedalWalker(hardcore=hardcore)
    world.terrain_x, world._np_random = [], Table(world, shares)
    world.reset()
    world.step(np.zeros(4))
    return world


def table(seed):
    return np.random.default_rng(seed).random((200, 6), np.float32)


def flags(world):
    return np.array([leg.ground_contact for leg in (world.legs[1], world.legs[3])])


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0, 0, 0))
def stepped(level, before, action, shares, last, flags):
    """Ours, one step from the same state: (body, time step, contacts, whether lower legs touch)."""
    terrain = make_terrain(level, shares)
    near, zero = contacts.look_around(terrain, before), np.float32(0)
    touched = contacts.lower_legs_on(contacts.look_around(terrain, last), last)
    hull_near = contacts.hull_gap(near, before) <= contacts.SKIN
    state = EnvState(level, terrain, before, no_impulses(), flags, touched, hull_near, np.int32(0), zero)
    after, ts = ENV.step(jax.random.key(0), state, action)
    return after.body, ts, contacts.find_contacts(near, before), after.touching


def steps_of(world, obs, act, n):
    """Up to `n` steps of Gymnasium's walker with the actions `act(obs, t)`, as rows for `compared`."""
    last = body_of(world)
    for t in range(n):
        action, before, was = act(obs, t), body_of(world), flags(world)
        obs, _, done, *_ = world.step(action)
        yield before, action, world._np_random.shares, last, was, body_of(world), obs, done, flags(world)
        last = before
        if done:
            return


def compared(rows, level=ROUGH):
    """(what Box2D did, what ours does) of rows: what `stepped` takes after `level`, then body, observation, end and
    flags after."""
    theirs = jax.tree.map(lambda *x: np.stack(x), *rows)
    chunks = [jax.tree.map(lambda x, i=i: x[i : i + N], theirs) for i in range(0, len(rows) // N * N, N)]
    ours = [jax.device_get(stepped(level, *chunk[:5])) for chunk in chunks]
    return jax.tree.map(lambda *x: np.concatenate(x), *chunks), jax.tree.map(lambda *x: np.concatenate(x), *ours)


def test_it_starts_where_theirs_is_after_a_step():
    world = theirs_on(table(0))
    found, expected = jax.device_get(jax.jit(body.start)(np.float32(0))), body_of(world)
    np.testing.assert_allclose(found.angle, expected.angle, atol=1e-3)
    np.testing.assert_allclose(found.hips, expected.hips, atol=1e-3)
    np.testing.assert_allclose(found.velocity[0], expected.velocity[0], atol=1e-3)
    np.testing.assert_allclose(body.MASS, [b.mass for b in parts(world)], rtol=1e-5)


def test_single_steps_in_the_air_without_a_change_of_the_action():
    """Lifted by 5 m, motors as in the step before: 100 steps, in which no joint comes to a limit."""
    rng, rows = np.random.default_rng(0), []
    seed = 0
    while len(rows) < 100:
        world, seed = theirs_on(table(seed)), seed + 1
        for part in parts(world):
            part.position = (part.position[0], part.position[1] + 5)
        action = rng.uniform(-0.05, 0.05, 4).astype(np.float32)
        last = body_of(world)
        for t in range(12):
            before, was = body_of(world), flags(world)
            obs, _, done, *_ = world.step(action)
            joints = np.array([joint.angle for joint in world.joints])
            free = (joints > body.LIMITS[:, 0] + 0.1) & (joints < body.LIMITS[:, 1] - 0.1)
            if t > 3 and free.all():
                rows.append(
                    (before, action, world._np_random.shares, last, was, body_of(world), obs, done, flags(world))
                )
            last = before
    theirs, ours = compared(rows)
    assert ours[2].gap.min() > 0.2
    np.testing.assert_allclose(ours[0].velocity[:, 0], theirs[5].velocity[:, 0], atol=1e-3)
    np.testing.assert_allclose(ours[0].spin, theirs[5].spin, atol=2e-2)


def test_single_steps_on_the_ground():
    """Half of all steps agree to 1e-3 m/s. The others are those in which Box2D has not converged, or a joint gaped."""
    rows, rng = [], np.random.default_rng(1)
    for seed in range(12):
        held = rng.uniform(-1, 1, 4).astype(np.float32)

        def act(obs, t, held=held):
            if t % 4 == 0:
                held[:] = rng.uniform(-1, 1, 4)
            return held.copy()

        rows += steps_of(theirs_on(table(seed)), None, act, 120)
    theirs, ours = compared(rows)
    off = np.abs(ours[0].velocity[:, 0] - theirs[5].velocity[:, 0]).max(axis=1)
    found = {share: float(np.quantile(off, share)) for share in (0.5, 0.75, 0.9)}
    assert found[0.5] < 0.02, found
    assert found[0.75] < 0.2, found
    assert found[0.9] < 0.5, found
    lidar = np.abs(ours[1].obs[:, 14:] - theirs[6][:, 14:]).max(axis=1)
    assert np.quantile(lidar, 0.75) < 2e-3
    assert (ours[3] == theirs[8]).mean() > 0.9
    assert (ours[1].terminated == theirs[7]).mean() > 0.99


def test_single_steps_of_a_trained_agent_among_obstacles():
    """`walker/accel` in Hardcore: pits, stumps and stairs. Four of five places are within 1.5 m of one.

    In twenty other sets of four worlds, the three numbers were at most 0.00002, 0.013 and 0.15.
    """
    rows, run = [], load_run("walker/accel")
    assert run.agent.init_carry((1,)) == ()  # no memory: it is asked for each action alone

    def act(obs, t):
        return np.clip(np.asarray(run.act(obs[None])[0][0]), -1, 1)

    for seed in range(4):
        world = theirs_on(table(seed), hardcore=True)
        rows += steps_of(world, world.step(np.zeros(4))[0], act, 250)
    theirs, ours = compared(rows, HARDCORE)
    off = np.abs(ours[0].velocity[:, 0] - theirs[5].velocity[:, 0]).max(axis=1)
    found = np.quantile(off, [0.5, 0.75, 0.9])
    assert (found < [0.001, 0.04, 0.3]).all(), found
    assert (ours[3] == theirs[8]).mean() > 0.9
    assert (ours[1].terminated == theirs[7]).mean() > 0.99


@pytest.mark.parametrize(
    ("agent", "world", "least", "most"),
    [
        ("walker/basic", "BipedalWalker-v3", 300, 330),
        ("walker/basic", "BipedalWalkerHardcore-v3", -150, 0),
        pytest.param("walker/accel", "BipedalWalker-v3", 300, 330, marks=pytest.mark.deep),
    ],
)
def test_trained_agents_walk_in_gymnasiums_worlds(agent, world, least, most):
    """They have been trained here alone, `walker/basic` on nearly flat ground. It has never seen Hardcore's obstacles.

    In 50 episodes `walker/basic` had 316 (the least 315) and -65, `walker/accel` 317 (the least 313).
    """
    run, envs = load_run(agent), [gymnasium.make(world) for _ in range(5)]
    obs = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    returns, alive, carry = np.zeros(len(envs)), np.ones(len(envs), bool), None
    while alive.any():
        action, carry = run.act(obs, carry)
        for i in np.flatnonzero(alive):
            obs[i], reward, terminated, truncated, _ = envs[i].step(np.clip(np.asarray(action[i]), -1, 1))
            returns[i] += reward
            alive[i] = not (terminated or truncated)
    assert least < returns.mean() < most
