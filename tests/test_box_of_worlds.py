"""A box of levels for worlds of many agents, and for worlds whose levels are drawn only when they are needed."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_box_tasks import BOUNDS, KEY, Rectangles

from minimax_lib.curricula.tasks.boxes import BoxMethod, BoxTasks
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.nmmo import NMMO
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.playing.schedule import Flowing
from minimax_lib.runners.build import runner_of, trained_with
from minimax_lib.tasks.box_registry import AnnealingSettings
from tests.still_agent import still_agent

N_ROWS, N_STEPS, N_AGENTS = 3, 7, 3
CORE = AnnealingSettings(("width=1",), ("width=-1",), total_steps=150)


@dataclasses.dataclass(frozen=True)
class Grouped(Rectangles):
    """Draws a level only when an episode begins."""

    resets_at_once = 1


@pytest.mark.deep
def test_levels_that_are_drawn_when_they_are_needed_are_those_that_are_drawn_before():
    """Bit for bit: what the students see, what they are paid, what the core is told."""
    found = []
    for env in (Rectangles(), Grouped()):
        runner = trained_with(env, still_agent(env), BoxMethod(n_parallel=N_ROWS, n_steps=N_STEPS, core=CORE))
        state, step = jax.jit(runner.init)(KEY), jax.jit(runner.step)
        seen = []
        for _ in range(4):
            state, metrics = step(state)
            told = metrics["return"], metrics["episodes"]
            seen.append(jax.device_get((state.start.obs, state.curriculum.core, *told)))
        found.append(seen)
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert found[0][-1][3] > 0


@dataclasses.dataclass(frozen=True)
class Worlds(MultiAgentEnvironment):
    """The world of level (length, width) ends after 1 + floor(length) steps. Agent g dies after g + 1 steps."""

    max_steps: int = 8
    observation_space = Box(-1, 8, (3,))
    action_space = Discrete(2)
    level_box = BOUNDS
    n_agents = N_AGENTS
    resets_at_once = 1

    def sample_level(self, key):
        return self.level_at(key, jnp.array([1.0, 0.0]))

    def level_at(self, key, point):
        return point

    def look(self, state):
        level, time = state
        row = jnp.concatenate([level, time[None].astype(jnp.float32)])
        return jnp.broadcast_to(row, (N_AGENTS, 3))

    def reset(self, key, level):
        state = level, jnp.zeros((), jnp.int32)
        return state, agents_opening(self.look(state), progress=jnp.zeros(N_AGENTS))

    def step(self, key, state, action):
        level, time = state
        playing = time < jnp.arange(1, N_AGENTS + 1)
        over = time + 1 >= 1 + jnp.floor(level[0]).astype(jnp.int32)
        dies = playing & (time + 1 >= jnp.arange(1, N_AGENTS + 1))
        state = level, time + 1
        ones = playing.astype(jnp.float32)
        return state, agents_transition(self.look(state), ones, playing, dies, playing & over, over, 0.5 * ones)

    def get_level(self, state):
        return state[0]


@dataclasses.dataclass(frozen=True)
class Counting:
    """Draws single points, and adds up what it is told: begun, ended, steps, widths of the ended."""

    n_tasks = None
    reads_scores = False

    def init(self, key):
        return jnp.zeros(5)

    def sample(self, key, state, n):
        return jax.random.uniform(key, (n, 2), jnp.float32, jnp.array([0.0, -1.0]), jnp.array([7.0, 1.0]))

    def started(self, state, tasks, valid):
        return state.at[0].add(valid.sum()).at[4].add((tasks[:, 1] * valid).sum())

    def update(self, state, results):
        valid = results.valid.astype(jnp.float32)
        sums = [valid, results.length * valid, results.task[:, 1] * valid]
        return state.at[1:4].add(jnp.stack([x.sum() for x in sums]))

    def report(self, state):
        return {}


class Itself:
    """The point of a task is the task."""

    def point(self, key, task):
        return task


class Hears(BoxTasks):
    """Keeps the steps that are compiled now."""

    told: ClassVar[list] = []

    def observe(self, key, clock, state, batch, outcome):
        self.told.append(outcome.runs.steps)
        return super().observe(key, clock, state, batch, outcome)


def test_the_core_is_told_of_the_lives_of_all_agents():
    """A plain loop over rows: worlds that have begun, lives that have ended, their steps, on which points."""
    env = Worlds()
    agent = still_agent(env)
    runner = runner_of(env, agent, Hears(env, Counting(), Itself(), N_ROWS, N_STEPS, N_AGENTS), N_STEPS, Flowing())

    def played(state):
        state, metrics = runner.step(state)
        return Hears.told.pop(), state, metrics

    state, step = jax.jit(runner.init)(KEY), jax.jit(played)
    sums, length = np.zeros(5), np.zeros((N_ROWS, N_AGENTS), int)
    for _ in range(4):
        steps, state, _ = jax.device_get(step(state))
        for t in range(N_STEPS):
            for b in range(N_ROWS):
                rows = range(N_AGENTS * b, N_AGENTS * (b + 1))
                size, width, time = steps.obs[t, 0, rows[0]]
                if time == 0:
                    length[b] = 0
                    sums[[0, 4]] += (1, width)
                for g, row in enumerate(rows):
                    playing = time < g + 1
                    assert steps.valid[t, 0, row] == playing
                    length[b, g] += playing
                    if playing and (time + 1 >= g + 1 or time + 1 >= 1 + int(size)):
                        assert steps.done[t, 0, row]
                        sums[1:4] += (1, length[b, g], width)
        # The world that follows the last step has begun, too.
        opens, seen = state.start.first[0, ::N_AGENTS], state.start.obs[0, ::N_AGENTS]
        begun = sums[[0, 4]] + (opens.sum(), seen[opens, 1].sum())
        core = state.curriculum.core
        np.testing.assert_allclose(core[[0, 4]], begun, rtol=1e-4)
        np.testing.assert_allclose(core[1:4], sums[1:4], rtol=1e-4)
    assert sums[1] > 30


def test_the_sharpness_of_maps_is_a_box():
    """A map at a point has this sharpness; with the key of a random map and its sharpness, it is that map."""
    env = NMMO(preset="mini", sharpness_low=-2.0, n_players=4)
    assert dict(env.level_box) == {"log_sharpness": (-2.0, 0.0)}
    assert not NMMO(preset="mini").level_box

    @functools.partial(jax.jit, static_argnums=1)
    def maps(key, own):
        level = env.sample_level(key)
        point = jnp.log10(level.sharpness)[None] if own else jnp.float32([-1.5])
        return level, env.level_at(key, point)

    level, same = maps(KEY, True)
    np.testing.assert_allclose(same.sharpness, level.sharpness, rtol=1e-5)
    np.testing.assert_array_equal(same.spawn, level.spawn)
    assert (np.asarray(same.terrain) == np.asarray(level.terrain)).mean() > 0.99
    _, other = maps(KEY, False)
    np.testing.assert_allclose(other.sharpness, 10**-1.5, rtol=1e-5)


def test_a_world_without_a_box_is_refused():
    env = NMMO(preset="mini", n_players=4)
    with pytest.raises(ValueError, match=r"the levels of NMMO are not points of a box: .* NMMO with --env.sharpness"):
        BoxMethod().build(env, still_agent(Worlds()), 4)
