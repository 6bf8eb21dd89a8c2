"""The chain probe: a student without a network, whose skills follow one another, among many impossible tasks.

The areas to compare with, and their spreads, are those of a plain NumPy version with ten seeds.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.tasks import SFL, LearningProgress, ListedPLR, Preference, Results, Uniform, episodes_needed

N_FAMILIES, N_REPEATS, N_IMPOSSIBLE = 15, 7, 1023
N_REAL = N_FAMILIES * N_REPEATS
N = N_REAL + N_IMPOSSIBLE
N_UPDATES, N_DRAWS, EVERY = 300, 200, 10
N_SEEDS = 16
FAMILY = np.repeat(np.arange(N_FAMILIES), N_REPEATS).astype(np.int32)
REPEATS = np.tile(np.arange(1, N_REPEATS + 1), N_FAMILIES).astype(np.float32)

PLR = ListedPLR(N, Preference("rank", temperature=0.5, staleness=0.1), "fixed", replay_prob=0.5)
CORES = {  # name -> (core, area, its spread)
    "dr": (Uniform(N), 0.004, 0.000),
    "plr": (PLR, 0.23, 0.03),
    "lp": (LearningProgress(N, alpha=0.1, theta=0.1), 0.156, 0.017),
    "sfl": (SFL(N), 0.265, 0.020),
    "sfl_top10": (SFL(N, "topk", k=10), 0.264, 0.026),  # 20 seeds; where nothing is learnable, it is uniform too
}


class Student(struct.PyTreeNode):
    skill: jax.Array  # f32[15]
    value: jax.Array  # f32[N], what it expects of each task


def before(skill):
    """f32[15]: the product of the skills before each one."""
    return jnp.concatenate([jnp.ones(1, jnp.float32), jnp.cumprod(skill)[:-1]])


def rates(skill):
    """f32[N], the chance of success on each task."""
    real = skill[FAMILY] ** REPEATS * before(skill)[FAMILY]
    return jnp.concatenate([real, jnp.zeros(N_IMPOSSIBLE, jnp.float32)])


def learnt(skill, tasks, solved):
    """The skills after attempts on `tasks` (i32[M]), some of which were `solved` (f32[M])."""
    family = jnp.where(tasks < N_REAL, tasks // N_REPEATS, N_FAMILIES)
    counts = jnp.zeros(N_FAMILIES + 1, jnp.float32)
    successes = counts.at[family].add(solved)[:N_FAMILIES]
    further = jnp.cumsum(successes[::-1])[::-1]  # successes on this family, or on a later one
    attempts = counts.at[family].add(1.0)[:N_FAMILIES] * before(skill)
    return skill + (1 - skill) * (1 - jnp.exp(-0.02 * (0.5 * (1 - skill) * further + 0.05 * attempts)))


def told(core, state, student, tasks, solved):
    """(the curriculum's state after these attempts, the student with other expectations)."""
    number, total = jnp.zeros(N, jnp.float32), jnp.zeros(N, jnp.float32)
    number = number.at[tasks].add(1.0)
    surprise = total.at[tasks].add(jnp.abs(solved - student.value[tasks])) / jnp.maximum(number, 1.0)
    mean = total.at[tasks].add(solved) / jnp.maximum(number, 1.0)
    value = jnp.where(number > 0, student.value + 0.3 * (mean - student.value), student.value)
    everywhere = jnp.ones(N_DRAWS, bool)
    ones = jnp.ones(N_DRAWS, jnp.int32)
    state = core.started(state, tasks, everywhere)
    state = core.update(
        state, Results(tasks, everywhere, solved, solved, ones, everywhere, solved, score=surprise[tasks])
    )
    return state, student.replace(value=value)


@functools.partial(jax.jit, static_argnums=0)
def areas(core, chance):
    """f32[S], the mean rate of the real tasks over all updates."""

    def update(loop, given):
        state, student = loop
        key, luck = given
        tasks = core.sample(key, state, N_DRAWS)
        solved = (luck < rates(student.skill)[tasks]).astype(jnp.float32)
        after = student.replace(skill=learnt(student.skill, tasks, solved))
        state, after = told(core, state, after, tasks, solved)
        return (state, after), rates(after.skill)[:N_REAL].mean()

    def between_evaluations(loop, given):
        state, student = loop
        trials, *updates = given
        if episodes_needed(core):
            found = (trials < rates(student.skill)[None]).mean(axis=0, dtype=jnp.float32)
            state = core.evaluated(state, found, jnp.arange(N) < N_REAL)
        return jax.lax.scan(update, (state, student), tuple(updates))

    def run(chance):
        skill = jnp.full(N_FAMILIES, 0.02, jnp.float32).at[0].set(0.1)
        first = (core.init(chance[1][0, 0]), Student(skill, jnp.zeros(N, jnp.float32)))
        return jax.lax.scan(between_evaluations, first, chance)[1].mean()

    return jax.vmap(run)(chance)


def chance_of(n_episodes):
    """Numbers from 0 to 1 for the evaluations, keys for the draws, and numbers from 0 to 1 for the attempts."""
    rng, shape = np.random.default_rng(0), (N_SEEDS, N_UPDATES // EVERY, EVERY)
    trials = rng.random((*shape[:2], n_episodes, N), np.float32)
    return trials, jax.random.split(jax.random.key(0), shape), rng.random((*shape, N_DRAWS), np.float32)


@pytest.fixture(scope="module")
def found():
    chance = chance_of(n_episodes=10)
    return {name: np.asarray(areas(core, chance)) for name, (core, _, _) in CORES.items()}


@pytest.mark.deep
@pytest.mark.parametrize("name", CORES)
def test_the_chain_is_learnt_as_by_the_plain_version(found, name):
    _, area, spread = CORES[name]
    assert found[name].mean() == pytest.approx(area, abs=spread + 0.0005)  # and the rounding of the area


@pytest.mark.deep
def test_every_method_is_far_above_random_tasks(found):
    for name in CORES.keys() - {"dr"}:
        assert found[name].mean() > 10 * found["dr"].mean()
    assert (found["sfl"] > found["lp"]).all()


def test_with_one_episode_a_task_sfl_would_draw_at_random():
    core = CORES["sfl"][0]
    assert episodes_needed(core) == 2  # so whoever evaluates refuses one
    weights = jax.jit(lambda key, rate: core.weights(core.evaluated(core.init(key), rate, jnp.ones(N, bool))))
    rate = (np.random.default_rng(1).random(N) < 0.5).astype(np.float32)
    np.testing.assert_allclose(weights(jax.random.key(0), rate), 1 / N, rtol=1e-6)
