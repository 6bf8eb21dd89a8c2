"""The pendulum: its physics against closed forms and Gymnasium, its tasks, its teacher and its mutation."""

import dataclasses
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.config.train import from_dict, load_yaml
from minimax_lib.envs.pendulum import Pendulum, PendulumDesign, Physics
from minimax_lib.envs.pendulum.family import EASY, easy_pendulum
from minimax_lib.envs.pendulum.mutate import NUDGE
from minimax_lib.envs.pendulum.physics import PARAMETERS, energy, stacked, wrapped_angle
from minimax_lib.envs.pendulum.tasks import TASKS, load
from minimax_lib.envs.registry import editing_of, identity_of, make_env, make_held_out, make_ued_env
from minimax_lib.runners.build import make_runner
from minimax_lib.testing.envs import check_environment, check_teacher

ENV = Pendulum()
KEY = jax.random.key(0)


def physics(**values):
    """The nominal pendulum with these `values` changed."""
    return dataclasses.replace(load("Nominal"), **{name: np.float32(value) for name, value in values.items()})


def at(level, angle, speed=0.0, env=ENV):
    """An episode that starts there."""
    state, _ = reset(env, KEY, level)
    return dataclasses.replace(state, angle=np.float32(angle), speed=np.float32(speed))


reset = jax.jit(lambda env, key, level: env.reset(key, level), static_argnums=0)


@partial(jax.jit, static_argnums=0)
def scanned(env, key, state, actions):
    def step(state, action):
        state, ts = env.step(key, state, action[None])
        return state, (state, ts)

    return jax.lax.scan(step, state, actions)[1]


def moved(env, state, actions):
    """(states, time steps) [T, ...] of the actions [T]."""
    return jax.device_get(scanned(env, KEY, state, np.asarray(actions, np.float32)))


@partial(jax.jit, static_argnums=(0, 1))
def sampled(sample, n, key):
    """Levels [n]."""
    return jax.vmap(sample)(jax.random.split(key, n))


@pytest.mark.parametrize(
    "env",
    [pytest.param(Pendulum(), marks=pytest.mark.deep), Pendulum(see_physics=True, damping=(0.0, 0.0))],
    ids=["hidden", "shown"],
)
def test_the_environment_conforms(env):
    check_environment(dataclasses.replace(env, max_steps=20, hold_steps=5), KEY, n_rows=4)


def test_energy_is_conserved_without_motor_and_friction():
    """Semi-implicit Euler is of first order: twice the substeps, half the error. It oscillates, but does not grow."""
    level, errors, energy_jit, at_start = physics(damping=0), [], jax.jit(energy), np.full(400, 2, np.float32)
    for n_substeps in (4, 8, 16):
        env = dataclasses.replace(ENV, n_substeps=n_substeps)
        states, _ = moved(env, at(level, 2.0, 1.0, env), np.zeros(400))
        off = np.abs(energy_jit(level, states.angle, states.speed) - energy_jit(level, at_start, at_start / 2))
        errors.append(off.max())
        assert off[200:].max() < 1.2 * off[:200].max()
    assert errors[0] < 0.1 * 10  # of m g l
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(("length", "gravity"), [(0.5, 15.0), (1.0, 10.0), (1.5, 5.0)])
def test_small_swings_have_the_period_of_the_closed_form(length, gravity):
    """The period is 2 pi sqrt(l / g), for any mass."""
    level = physics(length=length, gravity=gravity, damping=0, mass=1.3)
    env = dataclasses.replace(ENV, dt=0.01, n_substeps=1)
    states, _ = moved(env, at(level, np.pi - 0.05, env=env), np.zeros(2000))
    below = np.asarray(jax.jit(wrapped_angle)(states.angle - np.float32(np.pi)))
    rises = np.flatnonzero((below[:-1] < 0) & (below[1:] >= 0))
    exact = rises + below[rises] / (below[rises] - below[rises + 1])
    period = np.diff(exact).mean() * 0.01
    assert period == pytest.approx(2 * np.pi * np.sqrt(length / gravity), rel=2e-3)


def test_friction_takes_what_it_should():
    """Almost without gravity, the speed falls as exp(-b t / (m l^2))."""
    level = physics(gravity=1e-6, damping=0.2, mass=0.5, length=0.8)
    env = dataclasses.replace(ENV, dt=0.002, n_substeps=1)
    states, _ = moved(env, at(level, 0.0, 5.0), np.zeros(500))
    expected = 5.0 * np.exp(-0.2 * 0.002 * np.arange(1, 501) / (0.5 * 0.8**2))
    np.testing.assert_allclose(states.speed, expected, rtol=2e-3)


def test_the_motor_holds_what_it_is_strong_enough_for():
    """The motor holds the pole horizontal against m g l, and no action gives more than the motor's highest torque."""
    level = physics(mass=0.5, length=0.5, gravity=10.0, torque=5.0)
    states, _ = moved(ENV, at(level, np.pi / 2), np.full(20, -0.5))
    np.testing.assert_allclose(states.angle, np.pi / 2, atol=1e-4)
    assert ENV.level_metrics(level)["strength"] == 2
    twice, _ = moved(ENV, at(level, 0.3), np.full(5, 7.0))
    once, _ = moved(ENV, at(level, 0.3), np.full(5, 1.0))
    np.testing.assert_array_equal(twice.angle, once.angle)


def test_lockstep_with_gymnasium():
    """Gymnasium's rod of 1 kg and 1 m turns like a point mass of 3/4 kg at 2/3 m."""
    level = physics(mass=0.75, length=2 / 3, gravity=10.0, damping=0.0, torque=2.0)
    env = dataclasses.replace(ENV, n_substeps=1, max_speed=8.0)
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    step = jax.jit(env.step)
    rng = np.random.default_rng(0)
    for start in ((3.0, 0.5), (-0.4, -7.9), (0.1, 0.0)):
        theirs.reset(seed=0)
        theirs.state = np.array(start)
        state = at(level, *start, env)
        for action in rng.uniform(-1.3, 1.3, 60):
            state, ts = jax.device_get(step(KEY, state, np.array([action], np.float32)))
            obs, reward, *_ = theirs.step(np.array([2 * action]))
            np.testing.assert_allclose(ts.obs * np.array([1, 1, 8]), obs, atol=2e-3)
            upright = abs(np.arctan2(obs[1], obs[0])) <= 0.3
            assert float(ts.reward) == pytest.approx((1 + reward / np.pi**2 + upright) / 400, abs=2e-5)
            # Near an unstable point, rounding grows: each step is compared, from the same state.
            theirs.state = np.array([float(state.angle), float(state.speed)])


def test_solved_is_a_pole_that_is_upright_at_the_end_without_a_break():
    env = dataclasses.replace(ENV, max_steps=12, hold_steps=4, n_substeps=1)
    level = physics(gravity=1e-6, damping=0.0)  # so that a speed is kept, and a pole stays where it is

    def end(state):
        states, ts = moved(env, state, np.zeros(12))
        held = np.abs(states.angle) <= env.tolerance
        streaks = [next((n for n in range(t + 1) if not held[t - n]), t + 1) for t in range(12)]
        np.testing.assert_allclose(ts.progress, np.minimum(np.array(streaks) / 4, 1))
        np.testing.assert_allclose(ts.facts["upright"], np.cumsum(held) / 12, rtol=1e-6)
        np.testing.assert_array_equal(ts.truncated, np.arange(12) == 11)
        assert not ts.terminated.any()
        return ts.progress[-1]

    assert end(at(level, 0.2)) == 1
    assert end(at(level, 0.4)) == 0
    assert end(at(level, -0.65, 1.0)) == 1  # comes in after seven steps
    assert end(at(level, -0.75, 1.0)) == 0.75  # and here one too late
    assert end(at(level, 0.0, 1.0)) == 0  # leaves


def test_starts_lie_round_the_bottom():

    @jax.jit
    def started(key, level):
        keys = jax.random.split(key, 500)
        envs = [dataclasses.replace(ENV, start_spread=float(spread)) for spread in spreads]
        found = [jax.vmap(env.reset, (0, None))(keys, level) for env in envs]
        return [(states, ts, jnp.abs(wrapped_angle(states.angle - np.pi))) for states, ts in found]

    spreads = (0.0, 0.5, np.pi)
    for spread, (states, ts, off) in zip(spreads, jax.device_get(started(KEY, load("Nominal"))), strict=True):
        assert off.max() <= spread + 1e-5
        assert off.mean() == pytest.approx(spread / 2, abs=0.06 * spread + 1e-6)
        assert not states.speed.any()
        assert not ts.progress.any()


def controlled(env, level, key):
    """f32[], the final progress under a controller that knows the physics: pumps energy, then holds."""

    def action(state):
        p, angle, speed = state.level, state.angle, state.speed
        weight, inertia = p.mass * p.gravity * p.length, p.mass * p.length**2
        missing = 1.05 * weight - energy(p, angle, speed)
        pump = p.torque * jnp.where(speed >= 0, 1.0, -1.0) * jnp.clip(10 * missing / weight, -1, 1)
        hold = -weight * jnp.sin(angle) - inertia * (16 * angle + 8 * speed) + p.damping * speed
        near = (jnp.abs(angle) < 0.5) & (jnp.abs(hold) < 3 * p.torque) & (jnp.abs(speed) < 3)
        return jnp.where(near, hold, pump)[None] / p.torque

    def step(state, _):
        state, ts = env.step(key, state, action(state))
        return state, ts.progress

    return jax.lax.scan(step, env.reset(key, level)[0], None, env.max_steps)[1][-1]


def test_the_held_out_pendulums_can_be_solved():
    """A controller that knows their physics solves them 9 times in 10, and random levels of the training ranges too."""
    tasks = make_held_out(ENV, ["all"])

    @jax.jit
    def played(k_levels, k_episodes):
        keys = jax.random.split(k_episodes, (len(tasks.names), 64))
        return jax.vmap(jax.vmap(partial(controlled, ENV)))(tasks.sample(k_levels, 64), keys)

    progress = played(KEY, jax.random.key(1))
    rates = (np.asarray(progress) >= 1).mean(axis=1)
    assert rates.min() > 0.85, dict(zip(tasks.names, rates, strict=True))
    assert rates.mean() > 0.95


def test_held_out_pendulums_are_what_their_names_say():
    tasks = make_held_out(ENV, ["benchmark", "TrainingDistribution"])
    assert tasks.names == (*TASKS, "TrainingDistribution")
    levels = jax.device_get(jax.jit(tasks.sample, static_argnums=1)(KEY, 3))
    for i, name in enumerate(TASKS):
        for parameter in PARAMETERS:
            row = np.asarray(getattr(levels, parameter)[i])
            np.testing.assert_array_equal(row, getattr(load(name), parameter))
    nominal, heavy = load("Nominal"), load("VeryHeavy")
    assert [p for p in PARAMETERS if getattr(nominal, p) != getattr(heavy, p)] == ["mass"]
    assert len(np.unique(levels.mass[-1])) == 3
    outside = [name for name in TASKS if not inside(ENV, load(name))]
    assert outside == ["Moon", "Jupiter", "VeryHeavy", "VeryLong", "Sticky"]
    for call in (lambda: load("Hevy"), lambda: make_held_out(ENV, ["Hevy"])):
        with pytest.raises(ValueError, match="did you mean 'Heavy'"):
            call()


def inside(env, levels):
    """Whether all parameters of all levels are in their ranges."""
    ranges = [np.float32(getattr(env, name)) for name in PARAMETERS]
    return all(
        (np.asarray(getattr(levels, name)) >= least).all() and (np.asarray(getattr(levels, name)) <= most).all()
        for name, (least, most) in zip(PARAMETERS, ranges, strict=True)
    )


def test_random_levels_fill_their_ranges():
    env = dataclasses.replace(ENV, gravity=(9.81, 9.81))
    levels = jax.device_get(sampled(env.sample_level, 2000, KEY))
    assert inside(env, levels)
    assert (levels.gravity == np.float32(9.81)).all()
    for name in set(PARAMETERS) - {"gravity"}:
        least, most = getattr(env, name)
        shares = (np.asarray(getattr(levels, name)) - least) / (most - least)
        assert shares.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / 2000))
        assert shares.std() == pytest.approx(np.sqrt(1 / 12), rel=0.05)


def test_mutation_nudges_single_parameters_within_their_ranges():
    editing = editing_of(ENV)
    levels = sampled(ENV.sample_level, 3000, KEY)
    mutate = jax.jit(jax.vmap(editing.mutate, (0, 0, None)), static_argnums=2)
    children = mutate(jax.random.split(jax.random.key(1), 3000), levels, 1)
    assert inside(ENV, children)
    widths = stacked(Physics(**{name: getattr(ENV, name)[1] - getattr(ENV, name)[0] for name in PARAMETERS}))
    stack = jax.jit(jax.vmap(stacked))
    moved = (np.asarray(stack(children)) - np.asarray(stack(levels))) / np.asarray(widths)
    changed = np.abs(moved) > 1e-6
    assert changed.sum(axis=1).max() == 1
    # A fifth each, except for the few that were already at the end of their range and were pushed against it.
    np.testing.assert_allclose(changed.mean(axis=0), 0.2, atol=4 * np.sqrt(0.16 / 3000))
    assert np.abs(moved[changed]).mean() == pytest.approx(NUDGE * np.sqrt(2 / np.pi), rel=0.15)
    far = mutate(jax.random.split(jax.random.key(2), 3000), levels, 50)
    assert inside(ENV, far)
    for name in PARAMETERS:
        assert np.asarray(getattr(far, name)).max() == np.float32(getattr(ENV, name)[1])  # the ends are reached
    assert identity_of(ENV)(levels) is levels


def test_the_simplest_levels_are_the_easy_parts_of_the_ranges():
    strength = jax.jit(jax.vmap(lambda level: ENV.level_metrics(level)["strength"]))
    levels, usual = (sampled(family.sample_level, 200, KEY) for family in (easy_pendulum(ENV), ENV))
    assert inside(ENV, levels)
    assert np.mean(strength(levels)) > 1 > np.mean(strength(usual))
    assert np.asarray(levels.damping).min() >= (1 - EASY) * 0.3 - 1e-6
    assert len(np.unique(levels.mass)) > 150


def test_the_teacher_designs_what_it_says():
    pair = make_ued_env("Pendulum", {"noise_dim": 3}, torque=(1.0, 3.0))
    teacher = pair.teacher
    check_teacher(pair, KEY, n_rows=4)
    state, ts = jax.jit(lambda key: teacher.reset(key, teacher.sample_level(key)))(KEY)
    to_level, step = jax.jit(teacher.to_level), jax.jit(teacher.step)
    assert float(to_level(state).torque) == 2
    for i, action in enumerate([-1.0, 1.0, 0.0, 5.0, -0.5]):
        assert not ts.done
        assert int(ts.obs["time"]) == i
        state, ts = step(KEY, state, np.array([action], np.float32))
    assert ts.terminated
    level = to_level(state)
    np.testing.assert_allclose(stacked(level), [0.5, 1.5, 10.0, 0.3, 1.5], rtol=1e-6)
    np.testing.assert_allclose(ts.obs["shares"], [0, 1, 0.5, 1, 0.25])
    after, ts = step(KEY, state, np.array([1], np.float32))
    assert ts.terminated
    np.testing.assert_array_equal(stacked(to_level(after)), stacked(level))
    _, opened = jax.eval_shape(pair.reset_student, KEY, state)
    assert opened.obs.shape == (3,)
    with pytest.raises(ValueError, match="PendulumDesign designs levels of Pendulum, not of AMaze"):
        PendulumDesign().build(make_env("AMaze"))


def test_pictures_show_upright_poles_in_the_band():
    env = dataclasses.replace(ENV, max_steps=40)
    states, _ = moved(env, at(physics(gravity=1e-6), 0.1, env=env), np.zeros(40))
    states = jax.tree.map(lambda x: np.stack([x, x], axis=1), states)
    running = np.ones((40, 2), bool)
    picture = env.draw_episodes(states, running, ["one", "two"], 2)
    still = env.draw_episodes(states, np.zeros((40, 2), bool) | (np.arange(40) < 1)[:, None], ["one", "two"], 2)
    assert picture.dtype == np.uint8
    assert picture.shape == still.shape
    drawn = np.unique(np.argwhere((picture != still).any(axis=-1))[:, 0])
    assert 1 <= len(drawn) <= 4  # one line, as thick as its pen, just above the middle of the panels
    assert 66 <= drawn.mean() <= 72


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"mass": (0.0, 1.0)}, "mass=(0.0, 1.0): it must be (least, most), with 0 < least <= most, both finite"),
        ({"damping": (0.2, 0.1)}, "damping=(0.2, 0.1): it must be (least, most), with 0 <= least <= most, both finite"),
        (
            {"gravity": (1.0, float("inf"))},
            "gravity=(1.0, inf): it must be (least, most), with 0 < least <= most, both finite",
        ),
        ({"tolerance": 4.0}, "tolerance=4.0: it must be finite, and between 1e-06 and 3.141592653589793"),
        ({"hold_steps": 300}, "hold_steps=300: it must be at most max_steps, 200"),
        ({"n_substeps": 0}, "n_substeps=0: it must be a whole number of at least 1"),
        ({"max_steps": 99.5}, "max_steps=99.5: it must be a whole number of at least 1"),
        ({"mass": 1.0}, "mass=1.0: it must be (least, most), the lowest and the highest value"),
    ],
)
def test_bad_settings_are_refused_in_one_line(setting, line):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        Pendulum(**setting)
    assert str(refused.value) == line


@pytest.mark.parametrize(
    "name", ["dr", *(pytest.param(name, marks=pytest.mark.deep) for name in ("plr", "accel", "paired", "sfl"))]
)
def test_every_method_takes_the_pendulum(name):
    """Tracing the shipped files shows whether their settings fit together."""
    if name == "sfl":
        config = from_dict({"env": "Pendulum", "runner": "sfl", "model": "ff"})
    else:
        config = load_yaml(f"configs/pendulum/{name}.yaml")
    runner = make_runner(config)
    state = jax.eval_shape(runner.init, KEY)
    after, metrics = jax.eval_shape(runner.step, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert {"facts/upright", "solved_rate"} <= set(metrics)
