"""A world of 128 agents: its level, tasks, deaths and environment steps by plain arithmetic."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.counts import Count
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.envs.multi_agent import BatchMultiEnv, MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.playing.living import OfLiving
from minimax_lib.playing.returns import episode_returns
from minimax_lib.playing.rollout import rollout
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.store.checkpoint import Checkpoints, placed
from minimax_lib.testing.envs import check_multi_agent
from tests.still_agent import still_agent

G, N_TASKS, N_ROWS, N_STEPS = 128, 5, 4, 8
KEY = jax.random.key(3)


class CrowdState(struct.PyTreeNode):
    level: jax.Array  # i32[1 + G], how long agent 0 lives, and everybody's task
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Crowd(MultiAgentEnvironment):
    """Agent g lives level + g % 4 steps, and is paid its task in each. Who has an even task has solved it."""

    n_agents: int = G
    n_tasks: int = N_TASKS
    max_steps: int = 6
    counted: str | int = "all"

    observation_space = Box(0.0, 16.0, (2,))
    action_space = Discrete(2)

    def sample_level(self, key):
        k_level, k_tasks = jax.random.split(key)
        tasks = jax.random.randint(k_tasks, (self.n_agents,), 0, self.n_tasks, jnp.int32)
        return jnp.concatenate([jax.random.randint(k_level, (1,), 1, 5, jnp.int32), tasks])

    def with_tasks(self, level, tasks):
        return level.at[1:].set(tasks)

    def tasks_of(self, level):
        return level[1:]

    def task_kind(self, number):
        return "even" if number % 2 == 0 else "odd"

    def reset(self, key, level):
        state = CrowdState(level=level, time=jnp.zeros((), jnp.int32))
        alive = jnp.ones(self.n_agents, bool)
        return state, agents_opening(self._seen(state, alive), progress=jnp.zeros(self.n_agents))

    def step(self, key, state, action):
        state = state.replace(time=state.time + 1)
        lives, task = state.level[0] + jnp.arange(self.n_agents) % 4, state.level[1:]
        was, cut = state.time <= lives, state.time >= self.max_steps
        dies, cut = was & (state.time == lives), was & cut
        alive = was & ~dies & ~cut
        solved = jnp.where(dies | cut, task % 2 == 0, False)
        obs, reward = self._seen(state, alive), jnp.where(was, task.astype(jnp.float32), 0.0)
        return state, agents_transition(obs, reward, was, dies, cut, ~alive.any(), solved)

    def _seen(self, state, alive):
        seen = jnp.stack([jnp.broadcast_to(state.time, (self.n_agents,)), state.level[1:]], axis=1)
        return jnp.where(alive[:, None], seen, 0).astype(jnp.float32)


CROWD = Crowd()


def lives_of(level) -> np.ndarray:
    """i64[G], steps that each agent lives in an episode on the level."""
    return np.minimum(int(level[0]) + np.arange(G) % 4, CROWD.max_steps)


def steps_alive(level, n_steps: int) -> int:
    """Steps of all agents while they live, in `n_steps` of episodes on the level, one after another."""
    lives = lives_of(level)
    whole, rest = divmod(n_steps, lives.max())
    return int(whole * lives.sum() + np.minimum(lives, rest).sum())


class Counter:
    """An agent that does what it sees, and remembers the sum of it. It says how many rows it was asked about."""

    def __init__(self):
        self.asked = []

    def act(self, key, params, obs, carry, first):
        self.asked.append(obs.shape[1])
        return obs.astype(jnp.int32), obs * params, obs + 1, carry + obs


@pytest.mark.parametrize(("n_living", "place"), [(2000, 0), (1025, 0), (1024, 1), (300, 1), (256, 2), (0, 2)])
def test_only_the_living_are_asked_what_they_do(n_living, place):
    n_rows, random = 4096, np.random.default_rng(n_living)
    living = np.zeros((1, n_rows), bool)
    living[0, random.permutation(n_rows)[:n_living]] = True
    seen, carry = random.integers(1, 9, (2, 1, n_rows)).astype(np.float32)
    counter = Counter()
    acted = jax.jit(lambda *args: OfLiving(counter, args[-1]).act(KEY, 2.0, *args[:-1]))(seen, carry, living, living)
    found = jax.device_get(acted)
    for x, wanted, blank in zip(found, (seen, 2 * seen, seen + 1, carry + seen), (0, 0, 0, carry), strict=True):
        np.testing.assert_array_equal(x[living], wanted[living])
        if place:
            np.testing.assert_array_equal(x[~living], np.broadcast_to(blank, x.shape)[~living])
        else:
            np.testing.assert_array_equal(x, wanted)
    assert counter.asked == [4096, 1024, 256]  # as compiled; what was found says which of them it was


def test_the_world_conforms():
    check_multi_agent(CROWD, KEY)


def test_lives_rewards_and_tasks_are_those_of_the_levels():
    agent = still_agent(CROWD)

    @jax.jit
    def play():
        levels = jax.vmap(CROWD.sample_level)(jax.random.split(KEY, N_ROWS))
        params = agent.init(KEY, jnp.zeros(2)).params
        run = rollout(KEY, BatchMultiEnv(CROWD), agent, params, levels, N_STEPS)
        return levels, run.steps, episode_returns(run.steps, G).first

    levels, steps, first = jax.device_get(play())
    tasks, lives = levels[:, 1:], np.stack([lives_of(level) for level in levels])
    np.testing.assert_array_equal(first.returns[0], tasks * lives)
    np.testing.assert_array_equal(first.solved[0], tasks % 2 == 0)
    np.testing.assert_array_equal(first.facts["lifetime"][0], lives)
    assert steps.valid.sum() == sum(steps_alive(level, N_STEPS) for level in levels)


@functools.cache
def program(n_devices: int = 1):
    runner = trained_with(
        CROWD, still_agent(CROWD), PLR(robust=False, capacity=8, n_parallel=N_ROWS // n_devices, n_steps=N_STEPS)
    )
    return SeedRunner(runner, 2) if n_devices == 1 else DeviceRunner(runner, 2, DeviceMesh(1, n_devices))


def proposed(state) -> np.ndarray:
    """i32[S, N_ROWS, 1 + G], the levels of the next step."""
    runner = program().runner

    def levels(state):
        shared, local = runner.keys(state)
        key = jax.random.split(local, 4)[0]
        return runner.curriculum.propose(shared, key, state.clock, state.curriculum, runner.students(state))[1].levels

    return jax.device_get(jax.jit(jax.vmap(levels))(state))


def test_environment_steps_are_those_of_the_living(tmp_path):
    state, expected = program().init(0), np.zeros(2, np.int64)
    for update in (1, 2):
        expected += [sum(steps_alive(level, N_STEPS) for level in levels) for levels in proposed(state)]
        state, _ = program().run(state, update)
        np.testing.assert_array_equal(program().env_steps(state), expected)
    assert (expected < 2 * N_ROWS * G * N_STEPS).all()  # some have died
    with Checkpoints(tmp_path / "now") as checkpoints:
        checkpoints.save(2, state, {})
        restored = checkpoints.restore(placed(program().shape))
    np.testing.assert_array_equal(program().env_steps(restored.state), expected)


class RunnerStateBefore(struct.PyTreeNode):
    """Its members before the dead were counted."""

    clock: jax.Array
    seed: jax.Array
    students: Any
    curriculum: Any
    start: Any = ()
    rewards: Any = ()


def test_a_checkpoint_from_before_the_dead_were_counted_is_read(tmp_path):
    """All steps counted in it, and they still do."""
    state = program().init(0)
    members = {name: getattr(state, name) for name in RunnerStateBefore.__dataclass_fields__}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, RunnerStateBefore(**members).replace(clock=state.clock + 3), {})
        restored = checkpoints.restore(placed(program().shape)).state
    assert isinstance(restored.idle, Count)
    np.testing.assert_array_equal(program().env_steps(restored), [3 * N_ROWS * G * N_STEPS] * 2)


@pytest.mark.deep
def test_devices_count_the_living_of_all():
    """Two devices with two worlds each, which draw their own levels: no more steps than agents, and all count."""
    several = program(2)
    state, _ = several.run(several.init(0), 3)
    idle = state.idle.number()
    assert idle.shape == (2,)
    assert (several.env_steps(state) == 3 * N_ROWS * G * N_STEPS - idle).all()
    # Agent g lives g % 4 steps longer than agent 0, which lives 1 to 4: about a quarter is dead.
    assert (idle / (3 * N_ROWS * G * N_STEPS) > 0.1).all()
    assert (idle / (3 * N_ROWS * G * N_STEPS) < 0.5).all()
