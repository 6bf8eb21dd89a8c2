"""Environments of gymnax, in lockstep with gymnax itself, and its physics with Gymnasium's."""

import copy
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.config.train import from_dict
from minimax_lib.envs.foreign.craftax_family import Craftax
from minimax_lib.envs.foreign.gymnax_family import DEFAULT, SOLVED, Gymnax
from minimax_lib.envs.registry import editing_of, make_held_out
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.runners.build import make_runner
from minimax_lib.testing.envs import check_editing, check_environment

gymnax = pytest.importorskip("gymnax", reason="the extra gymnax is not installed")
import gymnasium  # noqa: E402  (gymnax brings it)

LIMITS = {
    "CartPole-v1": 500,
    "Acrobot-v1": 500,
    "MountainCar-v0": 200,
    "Pendulum-v1": 200,
    "MountainCarContinuous-v0": 999,
}
VARY = ("gravity=5:15", "masscart=0.5:2", "length=0.25:1")
KEY = jax.random.key(0)


def lockstep(env, n_steps):
    """Time steps of our steps and of gymnax's `step`, which resets by itself, on the same keys and actions."""
    theirs, params = gymnax.make(env.id)
    params = params.replace(max_steps_in_episode=env.max_steps)

    def one_step(states, key):
        ours, other = states
        k_action, key = jax.random.split(key)
        k_step, k_reset = jax.random.split(key)  # as gymnax splits it
        action = env.action_space.sample(k_action)
        stepped, ts = env.step(k_step, ours, action)
        obs, other, reward, terminated, truncated, info = theirs.step(key, other, action, params)
        fresh, first = env.reset(k_reset, env.get_level(stepped))
        ours, our_obs = jax.tree.map(lambda x, y: jnp.where(ts.done, x, y), (fresh, first.obs), (stepped, ts.obs))
        mine = (our_obs, ts.obs, ts.reward, ts.terminated, ts.truncated)
        return (ours, other), (mine, (obs, info["final_observation"], reward, terminated, truncated))

    def play(key):
        k_reset, k_steps = jax.random.split(key)
        ours, _ = env.reset(k_reset, env.sample_level(KEY))
        other = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), theirs.reset(k_reset, params)[1], ours.theirs)
        return jax.lax.scan(one_step, (ours, other), jax.random.split(k_steps, n_steps))[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(jax.random.split(KEY, 3)))


def quick(*names):
    """All environments, of which those other than `names` are deep."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.deep) for name in LIMITS]


@pytest.mark.parametrize("name", quick("Pendulum-v1"))
def test_lockstep_with_gymnax(name):
    env = Gymnax(id=name)
    assert env.max_steps == LIMITS[name]
    ours, theirs = lockstep(env, n_steps=LIMITS[name] + 20)
    # Two programs round differently, and in a double pendulum that grows.
    close = 1e-3 if name == "Acrobot-v1" else 1e-5
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=close, atol=close)
    _, _, _, terminated, truncated = ours
    assert terminated.any() if name == "CartPole-v1" else truncated.any()


def test_the_limit_truncates_and_a_fall_terminates():
    ours, theirs = lockstep(Gymnax(limit=12), n_steps=200)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    _, _, _, terminated, truncated = ours
    np.testing.assert_array_equal(terminated, theirs[3])
    np.testing.assert_array_equal(truncated, theirs[4])
    assert (truncated & ~terminated).any()
    assert (terminated & ~truncated).any()


@pytest.mark.parametrize("name", quick())
def test_it_conforms(name):
    check_environment(Gymnax(id=name, limit=6), KEY, n_rows=4)


def test_it_conforms_where_levels_differ_in_all():
    check_environment(Gymnax(vary=VARY, fixed_start=True, limit=6), KEY, n_rows=4)


def test_spaces():
    assert Gymnax().observation_space == Box(-np.inf, np.inf, (4,))
    assert Gymnax().action_space == Discrete(2)
    assert Gymnax(id="Pendulum-v1").action_space == Box(-2.0, 2.0, (1,))
    assert Gymnax(id="Pendulum-v1", vary=("max_torque=1:5",)).action_space == Box(-5.0, 5.0, (1,))
    position, speed = (-1.2, 0.6), 0.07  # the widest bound of both
    low_high = Box(float(np.float32(position[0])), float(np.float32(position[1])), (2,))
    assert Gymnax(id="MountainCar-v0").observation_space == low_high
    assert speed < low_high.high
    assert Gymnax(id="FrozenLake-misc").observation_space == Discrete(16)


def test_actions_keep_to_the_bounds_of_the_level():
    env = Gymnax(id="Pendulum-v1", vary=("max_torque=1:5",))

    @jax.jit
    def after(key, action):
        level = env.sample_level(key).replace(parameters={"max_torque": jnp.float32(1.0)})
        return env.step(key, env.reset(key, level)[0], action)[0]

    far, near = after(KEY, np.float32([5.0])), after(KEY, np.float32([1.0]))
    assert far.theirs.theta_dot == near.theirs.theta_dot


@pytest.mark.parametrize(
    "parameters",
    [
        {"gravity": 14.0, "masscart": 0.6, "length": 0.9},
        *(pytest.param(x, marks=pytest.mark.deep) for x in ({}, {"masspole": 0.7})),
    ],
)
def test_cartpole_is_gymnasiums_with_the_same_parameters(parameters):
    """The masses and lengths that gymnax stores twice are updated when their parameters vary."""
    env = Gymnax(vary=tuple(f"{name}={value}" for name, value in parameters.items()))
    state, ts = jax.jit(lambda key: env.reset(key, env.sample_level(key)))(KEY)
    real = gymnasium.make("CartPole-v1").unwrapped
    for name, value in parameters.items():
        setattr(real, name, value)
    real.total_mass, real.polemass_length = real.masscart + real.masspole, real.masspole * real.length
    real.reset(seed=0)
    real.state = np.asarray(ts.obs, np.float64)
    step = jax.jit(env.step)
    for action in (0, 1, 1, 0, 0, 0, 1, 0):
        state, ts = step(KEY, state, jnp.int32(action))
        obs, *_ = real.step(action)
        np.testing.assert_allclose(ts.obs, obs, rtol=1e-4, atol=1e-5)


def test_parameters_are_uniform_in_their_ranges():
    sample = jax.vmap(Gymnax(vary=VARY).sample_level)
    levels = jax.jit(lambda key: sample(jax.random.split(key, 4000)))(KEY)
    for name, low, high in (("gravity", 5, 15), ("masscart", 0.5, 2), ("length", 0.25, 1)):
        unit = (np.asarray(levels.parameters[name]) - low) / (high - low)
        assert unit.min() >= 0
        assert unit.max() <= 1
        # 5 standard errors of the mean, and of the second moment, of 4,000 uniform numbers.
        assert abs(unit.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / 4000)
        assert abs((unit**2).mean() - 1 / 3) < 5 * np.sqrt(4 / 45 / 4000)
    correlations = np.corrcoef([np.asarray(x) for x in levels.parameters.values()]) - np.eye(3)
    assert np.abs(correlations).max() < 5 / np.sqrt(4000)


def test_a_level_can_be_made_from_a_point_of_the_ranges():
    env = Gymnax(vary=(*VARY, "masspole=0.2"), fixed_start=True)
    assert env.level_box == {"gravity": (5, 15), "masscart": (0.5, 2), "length": (0.25, 1)}
    level = env.level_at(KEY, jnp.array([9.0, 1.5, 0.3]))
    given = {"gravity": 9.0, "masscart": 1.5, "length": 0.3, "masspole": 0.2}
    assert {name: float(x) for name, x in level.parameters.items()} == pytest.approx(given)
    assert level.start != env.level_at(jax.random.key(1), jnp.zeros(3)).start


def test_a_level_fixes_the_start_only_where_it_is_told_to():
    keys = jax.random.split(KEY, 2)
    for fixed in (False, True):
        env = Gymnax(fixed_start=fixed)
        starts = [env.reset(key, env.sample_level(KEY))[1].obs for key in keys]
        assert np.array_equal(*starts) == fixed
        levels = [env.sample_level(key).start for key in keys]
        assert (levels[0] == levels[1]) != fixed


def episode(env, n_rows=40):
    """(progress, done, return so far) [N, T] of random episodes, up to their end."""

    def play(key):
        k_reset, k_steps = jax.random.split(key)

        def one_step(state, key):
            k_action, k_step = jax.random.split(key)
            state, ts = env.step(k_step, state, env.action_space.sample(k_action))
            return state, (ts.progress, ts.done, ts.reward)

        state, _ = env.reset(k_reset, env.sample_level(KEY))
        return jax.lax.scan(one_step, state, jax.random.split(k_steps, env.max_steps))[1]

    progress, done, reward = jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(jax.random.split(KEY, n_rows)))
    alive = np.cumsum(done, axis=1) - done == 0
    return progress[alive], done[alive], np.cumsum(reward, axis=1)[alive]


def test_solved_is_a_return_at_the_end_of_an_episode():
    progress, done, returns = episode(Gymnax(solved=20.0, limit=60))
    np.testing.assert_array_equal(progress, done & (returns >= 20))
    assert 0 < progress.sum() < done.sum()


def test_nothing_is_solved_where_no_return_is_known_for_it():
    progress, done, _ = episode(Gymnax(id="Pendulum-v1", limit=20), n_rows=3)
    assert done.any()
    assert not progress.any()


def test_solved_may_be_a_function_of_the_state():
    class Upright(Gymnax):
        def is_solved(self, state, episode_return):
            return jnp.cos(state.theta) > 0

    progress, done, _ = episode(Upright(id="Pendulum-v1", limit=20))
    assert 0 < progress.sum() < done.sum()


def test_known_thresholds_are_gymnasiums():
    known = {name: gymnasium.spec(name).reward_threshold for name in LIMITS}
    assert {name: value for name, value in known.items() if value is not None} == SOLVED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"id": "CartPole"},
            r"^unknown env.id 'CartPole': choose from .*\(did you mean 'CartPole-v1'\?\)$",
        ),
        ({"vary": ("gravty=5:15",)}, r"^unknown parameter in env.vary 'gravty': .*\(did you mean 'gravity'\?\)$"),
        ({"vary": ("total_mass=1:2",)}, "^env.vary has 'total_mass': it follows from other parameters"),
        ({"vary": ("max_steps_in_episode=1:2",)}, "^unknown parameter in env.vary 'max_steps_in_episode': choose from"),
        ({"vary": ("gravity",)}, "^env.vary has 'gravity': it must be PARAMETER=LOW:HIGH, as in gravity=5:15$"),
        ({"vary": ("gravity=15:5",)}, "the first bound must be the lower one, as in gravity=5:15$"),
        ({"vary": ("gravity=1:inf",)}, "both bounds must be finite$"),
        ({"vary": ("gravity=1", "gravity=2")}, "^env.vary names 'gravity' twice"),
        ({"limit": 0}, "^env.limit is 0: it must be at least 1$"),
    ],
)
def test_bad_input_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        _ = Gymnax(**settings).observation_space
    assert "\n" not in str(refused.value)


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    # An id and a size that no other test uses, because environments are cached.
    for env in (Gymnax(id="Catch-bsuite"), Craftax(map_size=96)):
        name = type(env).__name__.lower()
        with pytest.raises(ValueError, match=rf'^env needs {name}, which is not installed: pip install .*\[{name}\]"$'):
            _ = env.observation_space


@pytest.mark.deep
def test_nothing_foreign_is_imported_before_it_is_used():
    program = (
        "import sys, minimax_lib, jax; minimax_lib.make_env('Gymnax');"
        "from jax._src import xla_bridge;"
        "print([m for m in ('gymnax', 'craftax') if m in sys.modules], xla_bridge.backends_are_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_edits_stay_in_their_ranges_and_touch_as_many_parameters_as_they_are():
    env = Gymnax(vary=(*VARY, "masspole=0.2"))
    editing = editing_of(env)

    @jax.jit
    def family(key):
        keys = jax.random.split(key, 500)
        levels = jax.vmap(env.sample_level)(keys)
        return levels, jax.vmap(lambda key, level: editing.mutate(key, level, 1))(keys, levels)

    levels, children = jax.device_get(family(KEY))
    changed = {name: children.parameters[name] != x for name, x in levels.parameters.items()}
    assert not changed["masspole"].any()
    # One parameter changes, or none if it was at a bound and should have gone beyond.
    assert set(np.sum(list(changed.values()), axis=0)) <= {0, 1}
    assert np.sum(list(changed.values())) > 450
    for name, low, high in (("gravity", 5, 15), ("masscart", 0.5, 2), ("length", 0.25, 1)):
        assert ((children.parameters[name] >= low) & (children.parameters[name] <= high)).all()
        inner = (np.abs(levels.parameters[name] - (low + high) / 2) < (high - low) / 5) & changed[name]
        size = np.std((children.parameters[name] - levels.parameters[name])[inner] / (high - low))
        assert size == pytest.approx(0.1, abs=5 * 0.1 / np.sqrt(2 * inner.sum()))


def test_the_simplest_levels_are_near_the_defaults():
    """Close, but not equal: a level buffer keeps one of many equal levels, and ACCEL waits until it is half full."""
    env = Gymnax(vary=(*VARY, "masspole=0.2", "force_mag=20:40"))
    base = editing_of(env).base(env)
    drawn = jax.jit(lambda key: jax.vmap(base.sample_level)(jax.random.split(key, 200)).parameters)
    found = jax.device_get(drawn(KEY))
    # The default of the force, 10, is below its range.
    near = {"gravity": (8.8, 10.8), "masscart": (0.85, 1.15), "length": (0.425, 0.575), "force_mag": (10, 12)}
    for name, (low, high) in near.items():
        assert low <= found[name].min() < found[name].max() <= high
        assert np.ptp(found[name]) > 0.9 * (high - low)
    np.testing.assert_array_equal(found["masspole"], np.float32(0.2))
    with pytest.raises(ValueError, match=r"^env.vary is empty: .*\(try gravity=5:15\)$"):
        editing_of(Gymnax(vary=("gravity=3",)))


def test_the_simplest_levels_of_a_wide_range_have_no_length_below_zero():
    env = Gymnax(vary=("length=1:10", "gravity=1:4"))  # the defaults are 0.5 and 9.8
    assert editing_of(env).base(env).vary == ("length=0.5:1.4", "gravity=9.5:9.8")


def test_a_list_of_ranges_is_taken_and_so_is_a_single_one():
    env = Gymnax(vary=list(VARY))
    assert env == Gymnax(vary=VARY)
    assert hash(env) == hash(Gymnax(vary=VARY))
    assert Gymnax(vary=VARY[0]).vary == (VARY[0],)
    assert Craftax(goal=["collect_wood"]) == Craftax(goal=("collect_wood",)) == Craftax(goal="collect_wood")


@pytest.mark.deep
def test_editing_conforms():
    check_editing(Gymnax(vary=(*VARY, "masspole=0.2", "force_mag=20:40")), KEY)


def test_held_out_tasks():
    env = Gymnax(vary=VARY)
    tasks = make_held_out(env, ["all"])
    assert tasks.names == (DEFAULT, "TrainingDistribution")
    gravity = np.asarray(tasks.sample(KEY, 5).parameters["gravity"])
    np.testing.assert_allclose(gravity[0], 9.8, rtol=1e-6)
    assert len(set(gravity[1])) == 5
    with pytest.raises(ValueError, match=r"^unknown held-out task 'Defalt': .*'Default'\?\)$"):
        make_held_out(env, ["Defalt"])


@pytest.mark.parametrize(
    "runner", ["accel", *(pytest.param(name, marks=pytest.mark.deep) for name in ("dr", "plr", "sfl"))]
)
def test_curricula_take_it(runner):
    """Traced, without compiling."""
    tree = {
        "env": {"name": "Gymnax", "vary": list(VARY), "limit": 20},
        "model": "ff",
        "runner": {"name": runner, "n_parallel": 4, "n_steps": 20},
    }
    trained = make_runner(from_dict(copy.deepcopy(tree)))
    state = jax.eval_shape(trained.init, KEY)
    after, metrics = jax.eval_shape(trained.step, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert "return" in metrics
