"""BatchEnv against a plain Python loop over single environments."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.axes import SEED
from minimax_lib.envs.base import Environment, TimeStep
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.restarts import FreshLevels, NoRestart, SameLevel
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.envs.task_levels import WithTask
from minimax_lib.playing.rollout import scan_restocked
from minimax_lib.testing.envs import check_environment

MAZE = AMaze(height=2, width=3, n_walls=1, max_steps=5)


@struct.dataclass
class CountState:
    level: jax.Array
    left: jax.Array


@dataclasses.dataclass(frozen=True)
class Countdown(Environment):
    """Episodes as long as their level says (1 .. 3), each step paying the level's number."""

    max_steps: int = 3
    observation_space = Box(0.0, 1e9, (2,))
    action_space = Discrete(2)

    def sample_level(self, key):
        return jax.random.randint(key, (2,), 1, 4, jnp.int32)

    def look(self, state):
        return jnp.stack([state.level[0], state.left]).astype(jnp.float32)

    def reset(self, key, level):
        state = CountState(level=level, left=level[1])
        no = jnp.zeros((), bool)
        return state, TimeStep(self.look(state), jnp.zeros((), jnp.float32), no, no)

    def step(self, key, state, action):
        state = dataclasses.replace(state, left=state.left - 1)
        over = state.left <= 0
        return state, TimeStep(self.look(state), state.level[0].astype(jnp.float32), over, jnp.zeros((), bool))

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {}


@dataclasses.dataclass(frozen=True)
class Numbered(Countdown):
    """Countdown on levels that are never twice the same."""

    max_length: int = 3

    def sample_level(self, key):
        k_number, k_length = jax.random.split(key)
        number = jax.random.randint(k_number, (), 0, 2**30, jnp.int32)
        return jnp.stack([number, jax.random.randint(k_length, (), 1, self.max_length + 1, jnp.int32)])


def deep(*case):
    return pytest.param(*case, marks=pytest.mark.deep)


@partial(jax.jit, static_argnums=(0, 1))
def drawn(env, n, key):
    return jax.vmap(env.sample_level)(jax.random.split(key, n))


def draw(env, n, seed=0):
    return jax.device_get(drawn(env, n, jax.random.key(seed)))


reset_one = jax.jit(lambda env, key, level: env.reset(key, level), static_argnums=0)
step_one = jax.jit(lambda env, key, state, action: env.step(key, state, action), static_argnums=0)
KEY = jax.random.key(0)  # for environments that draw nothing


@partial(jax.jit, static_argnums=(0, 4))
def run(batch, key, levels, actions, n_steps):
    """(levels at the start, first, steps, levels before each step) of a scan with restocking."""
    k_reset, k_steps = jax.random.split(key)
    state, first = batch.reset(k_reset, levels)

    def one_step(loop, key):
        state, t = loop
        before = batch.levels(state)
        state, ts = batch.step_stocked(key, state, actions[t])
        return (state, t + 1), (ts, before)

    keys = jax.random.split(k_steps, n_steps)
    _, (steps, before) = scan_restocked(batch, one_step, (state, jnp.zeros((), jnp.int32)), keys)
    return first, steps, before


def random_actions(env, shape, seed=1):
    shares = [0.25, 0.25, 0.5, 0, 0, 0, 0] if isinstance(env, AMaze) else [0.5, 0.5]
    return np.random.default_rng(seed).choice(len(shares), p=shares, size=shape).astype(np.int32)


class PlainLoop:
    """One row, stepped by hand; `next_level()` gives the level after an episode's end."""

    def __init__(self, env, level, next_level):
        self.env, self.next_level = env, next_level
        self.begin(level)

    def begin(self, level):
        self.level, self.total, self.length = level, 0.0, 0
        self.state, ts = jax.device_get(reset_one(self.env, KEY, level))
        self.obs = ts.obs

    def step(self, action):
        self.state, ts = jax.device_get(step_one(self.env, KEY, self.state, action))
        self.total, self.length = self.total + float(ts.reward), self.length + 1
        out = {"last_obs": ts.obs, "reward": ts.reward, "terminated": ts.terminated, "truncated": ts.truncated,
               "returns": self.total, "lengths": self.length}  # fmt: skip
        if bool(ts.done):
            self.begin(self.next_level(self.level))
        else:
            self.obs = ts.obs
        return {**out, "obs": self.obs}


def assert_step(ts, expected, where):
    found = {"last_obs": ts.last_obs, "obs": ts.obs, "reward": ts.reward, "terminated": ts.terminated,
             "truncated": ts.truncated, "returns": ts.stats.returns, "lengths": ts.stats.lengths}  # fmt: skip
    for name, value in expected.items():
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(value), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=f"{name} at {where}")


def row_of(tree, *index):
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


@pytest.mark.parametrize("env", [MAZE, deep(Countdown())], ids=["observable", "plain"])
def test_same_level_restarts_equal_a_plain_loop(env):
    batch = BatchEnv(env, n_students=2, n_evals=2, restart=SameLevel())
    levels, n_steps = draw(env, 3), 17
    actions = random_actions(env, (n_steps, 2, 6))
    first, steps, before = jax.device_get(run(batch, jax.random.key(0), levels, actions, n_steps))
    assert np.asarray(steps.done).sum() > 8
    for a in range(2):
        for r in range(6):
            plain = PlainLoop(env, row_of(levels, r // 2), next_level=lambda level: level)
            np.testing.assert_array_equal(jax.tree.leaves(row_of(first.obs, a, r))[0], jax.tree.leaves(plain.obs)[0])
            for t in range(n_steps):
                for x, y in zip(
                    jax.tree.leaves(row_of(before, t, a, r)), jax.tree.leaves(row_of(levels, r // 2)), strict=True
                ):
                    np.testing.assert_array_equal(x, y)
                assert_step(row_of(steps, t, a, r), plain.step(actions[t, a, r]), (a, r, t))


@partial(jax.jit, static_argnums=0)
def stock(env, key, numbers):
    """The levels with these numbers, of a run with this key."""
    k_stock = jax.random.split(jax.random.split(key)[0])[1]
    return jax.vmap(lambda n: env.sample_level(jax.random.fold_in(k_stock, n)))(numbers)


@pytest.mark.parametrize("env", [deep(MAZE), Countdown()], ids=["observable", "plain"])
def test_fresh_levels_are_the_numbered_sequence(env):
    """Row by row within a step, level n of the run is `sample(fold_in(stock key, n))`; each is used once."""
    batch = BatchEnv(env, n_students=2, restart=FreshLevels(env.sample_level, restock_every=2))
    levels, n_steps = draw(env, 3), 24
    actions = random_actions(env, (n_steps, 2, 3))
    key = jax.random.key(3)
    _, steps, _ = jax.device_get(run(batch, key, levels, actions, n_steps))
    numbers, sequence = iter(range(10**6)), jax.device_get(stock(env, key, np.arange(200)))
    rows = [
        PlainLoop(env, row_of(levels, r % 3), next_level=lambda _: row_of(sequence, next(numbers))) for r in range(6)
    ]
    for t in range(n_steps):
        for i, plain in enumerate(rows):
            assert_step(row_of(steps, t, i // 3, i % 3), plain.step(actions[t, i // 3, i % 3]), (t, i))
    assert next(numbers) == int(np.asarray(steps.done).sum()) > 2 * 2 * 6  # the stock was filled up at least once


def test_without_restart_only_the_first_episode_is_played():
    env = AMaze(height=1, width=2, n_walls=0, max_steps=4)
    batch = BatchEnv(env, restart=NoRestart())
    forward = np.full((6, 1, 5), 2, np.int32)
    levels = dataclasses.replace(draw(env, 5), agent_dir=np.arange(5, dtype=np.int32) % 4)
    _, steps, before = jax.device_get(run(batch, jax.random.key(0), levels, forward, 6))
    np.testing.assert_array_equal(before.goal_pos[-1, 0], levels.goal_pos)
    np.testing.assert_array_equal(steps.stats.lengths[:, 0, 0], np.arange(1, 7))
    assert np.asarray(steps.reward).sum(axis=0).max() < 1


def test_rows_are_levels_in_order_each_as_often_as_evaluated():
    env = Countdown()
    levels = np.array([[10, 1], [20, 2], [30, 3]], np.int32)
    batch = BatchEnv(env, n_students=2, n_evals=3)

    @jax.jit
    def opened(key, levels):
        state, ts = batch.reset(key, levels)
        return ts, batch.levels(state)

    ts, held = jax.device_get(opened(jax.random.key(0), levels))
    expected = [[10] * 3 + [20] * 3 + [30] * 3] * 2
    assert ts.obs[..., 0].tolist() == expected
    assert held[..., 0].tolist() == expected
    assert ts.reward.shape == ts.done.shape == ts.stats.returns.shape == (2, 9)


# --- the stock of fresh levels


@pytest.mark.parametrize("restock_every", [8, deep(1), deep(24)])
def test_restocking_does_not_change_the_sequence(restock_every):
    env, n_steps = Countdown(), 24
    levels, actions = draw(env, 3), random_actions(env, (n_steps, 1, 3))
    often, rarely = (
        run(BatchEnv(env, restart=FreshLevels(env.sample_level, k)), jax.random.key(0), levels, actions, n_steps)
        for k in (2, restock_every)
    )
    for a, b in zip(jax.tree.leaves(often), jax.tree.leaves(rarely), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.deep
def test_the_stock_lasts_when_every_row_ends_at_every_step():
    """Episodes of one step: 1 + T levels a row are used, none of them twice."""
    env, n_rows, n_steps = Numbered(max_length=1), 7, 24
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level, restock_every=3))
    actions = random_actions(env, (n_steps, 1, n_rows))
    _, steps, before = run(batch, jax.random.key(0), draw(env, n_rows, seed=9), actions, n_steps)
    assert steps.done.all()
    assert np.unique(np.asarray(before)[..., 0]).size == n_steps * n_rows


def test_each_seed_gets_in_a_vmap_what_it_gets_alone():
    env, n_steps = Countdown(), 24
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level, restock_every=2))
    levels, actions = draw(env, 3), random_actions(env, (n_steps, 1, 3))
    keys = jax.random.split(jax.random.key(1), 3)
    together = jax.device_get(jax.vmap(lambda key: run(batch, key, levels, actions, n_steps), axis_name=SEED)(keys))
    for s in range(3):
        alone = run(batch, keys[s], levels, actions, n_steps)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(np.asarray(a)[s], b)


@partial(jax.jit, static_argnums=(0, 3))
def own_scan(batch, key, levels, n_steps):
    """(bool[T, A, R] episodes that ended, levels after each step) of a plain scan over `step`: nobody restocks."""
    k_reset, k_steps = jax.random.split(key)
    state, first = batch.reset(k_reset, levels)

    def one_step(state, key):
        state, ts = batch.step(key, state, jnp.zeros(first.done.shape, jnp.int32))
        return state, (ts.done, batch.levels(state))

    return jax.lax.scan(one_step, state, jax.random.split(k_steps, n_steps))[1]


def test_a_plain_scan_over_step_never_runs_out_of_fresh_levels():
    env, n_steps = Numbered(), 40
    batch = BatchEnv(env, n_students=2, restart=FreshLevels(env.sample_level, restock_every=2))
    key = jax.random.key(4)
    done, after = own_scan(batch, key, draw(env, 2), n_steps)
    begun = np.asarray(after)[np.asarray(done)]  # row by row within a step, as levels are handed out
    assert len(begun) > 3 * 16  # the stock holds 16
    assert len(np.unique(begun[:, 0])) == len(begun)
    np.testing.assert_array_equal(begun, stock(env, key, np.arange(len(begun))))


@pytest.mark.deep
def test_a_plain_scan_over_step_gives_each_seed_of_a_vmap_what_it_gets_alone():
    env = Numbered()
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level, restock_every=2))
    keys, levels = jax.random.split(jax.random.key(5), 3), draw(env, 3)
    done, after = jax.vmap(lambda key: own_scan(batch, key, levels, 24), axis_name=SEED)(keys)
    done, after = np.asarray(done), np.asarray(after)
    assert len(set(done.sum(axis=(1, 2, 3)))) > 1  # some seeds fill up sooner than they need to
    for s in range(3):
        numbers = after[s][done[s]][:, 0]
        assert len(np.unique(numbers)) == len(numbers) > 2 * 12  # the stock holds 12
        for together, alone in zip((done, after), own_scan(batch, keys[s], levels, 24), strict=True):
            np.testing.assert_array_equal(together[s], alone)


def count_conditionals(text):
    return text.count(" conditional(")


def test_filling_up_stays_a_branch_under_vmap_over_seeds():
    env = Countdown()
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level))
    levels = draw(env, 3)
    keys = jax.random.split(jax.random.key(0), 2)
    states, _ = jax.eval_shape(jax.vmap(batch.reset, (0, None)), keys, levels)
    named = jax.vmap(batch.restock, axis_name=SEED)
    jaxpr = str(jax.make_jaxpr(named)(states))
    assert "cond[" in jaxpr
    assert count_conditionals(jax.jit(named).lower(states).compile().as_text()) == 1
    unnamed = jax.jit(jax.vmap(batch.restock)).lower(states).compile().as_text()
    assert count_conditionals(unnamed) == 0  # what the axis name is for: without it both branches are paid for


# --- what is compiled


def makers_of_maps(restart):
    """The instructions of the compiled step loop that make a batch of maps, rather than carry it along."""
    env = AMaze(height=5, width=7, n_walls=9)
    batch = BatchEnv(env, restart=restart)

    def loop(key, state, actions):
        def one_step(state, action):
            state, ts = batch.step(key, state, action)
            return state, ts.obs

        return jax.lax.scan(one_step, state, actions)

    state, _ = jax.eval_shape(batch.reset, jax.random.key(0), draw(env, 3))
    text = jax.jit(loop).lower(jax.random.key(0), state, random_actions(env, (8, 1, 3))).compile().as_text()
    carried = ("get-tuple-element(", "parameter(", "copy(")
    made = [line for line in text.splitlines() if " = pred[3,5,7]" in line]
    return [line for line in made if not any(word in line for word in carried)]


def test_same_level_restarts_write_no_map():
    assert makers_of_maps(SameLevel()) == []


@pytest.mark.deep
def test_restarts_on_fresh_levels_do_write_maps():
    """So that the test before would see them."""
    assert makers_of_maps(FreshLevels(AMaze(height=5, width=7, n_walls=9).sample_level)) != []


@pytest.mark.parametrize(
    ("env", "restart"),
    [
        (Countdown(), FreshLevels(Countdown().sample_level)),
        deep(MAZE, SameLevel()),
        deep(MAZE, NoRestart()),
        deep(MAZE, FreshLevels(MAZE.sample_level)),
    ],
    ids=["countdown", "SameLevel", "NoRestart", "FreshLevels"],
)
@pytest.mark.deep
def test_step_compiles_once(env, restart):
    batch = BatchEnv(env, n_students=2, restart=restart)
    step = jax.jit(lambda key, state, action: batch.step(key, batch.restock(state), action))
    state, _ = jax.jit(batch.reset)(jax.random.key(0), draw(env, 2))
    for t in range(4):
        state, _ = step(jax.random.key(t), state, random_actions(env, (2, 2), seed=t))
    assert step._cache_size() == 1


@struct.dataclass
class Laps:
    level: jax.Array
    left: jax.Array
    before: jax.Array  # steps of all episodes before this one
    steps: jax.Array  # of this episode


@dataclasses.dataclass(frozen=True)
class Remembering(Countdown):
    """What is seen is how many steps were taken in the row's episodes before."""

    def look(self, state):
        return jnp.stack([state.level[0], state.before]).astype(jnp.float32)

    def reset(self, key, level):
        none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        state = Laps(level=level, left=level[1], before=none, steps=none)
        return state, TimeStep(self.look(state), jnp.zeros((), jnp.float32), no, no)

    def step(self, key, state, action):
        return super().step(key, dataclasses.replace(state, steps=state.steps + 1), action)

    def reset_after(self, key, level, ended):
        state, ts = self.reset(key, level)
        state = dataclasses.replace(state, before=ended.before + ended.steps)
        return state, ts.replace(obs=self.look(state))


@dataclasses.dataclass(frozen=True)
class RememberingInGroups(Remembering):
    resets_at_once: int = 2


@pytest.mark.parametrize(
    "env",
    [deep(Remembering()), RememberingInGroups(), deep(WithTask(Remembering(), 4))],
    ids=["alone", "in groups", "with a task"],
)
def test_an_episode_may_take_over_something_of_the_one_before(env):
    check_environment(env, jax.random.key(0), n_rows=2)
    shown = (lambda obs: obs["observation"]) if isinstance(env, WithTask) else (lambda obs: obs)
    levels = draw(env, 5)
    actions = np.zeros((12, 1, 5), np.int32)
    first, steps, _ = jax.device_get(run(BatchEnv(env), jax.random.key(1), levels, actions, 12))
    assert (shown(first.obs)[..., 1] == 0).all()
    done, seen = np.asarray(steps.done)[:, 0], np.asarray(shown(steps.obs))[:, 0, :, 1]
    before = np.zeros(5)
    for t in range(12):
        before = np.where(done[t], t + 1, before)
        np.testing.assert_array_equal(seen[t], before)
    assert done.sum() > 20
    played = BatchEnv(env).played_out(1)  # for evaluations, where no episode follows
    assert isinstance(played.restart, NoRestart)
