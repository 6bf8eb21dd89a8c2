"""Environments of several agents as PettingZoo's `ParallelEnv`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import make_level
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.portable import export

pettingzoo_test = pytest.importorskip("pettingzoo.test")
import gymnasium  # noqa: E402

GAME = LaserTag(height=4, width=5, max_steps=6)


class Candles(struct.PyTreeNode):
    """An episode of `Fading`."""

    level: jax.Array  # i32[], steps until the first agent dies
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Fading(MultiAgentEnvironment):
    """Agent i dies after `level` + i steps; the last one is cut off before. An agent that does 1 is paid 1."""

    n_agents: int = 3
    max_steps: int = 4
    observation_space = Box(0.0, 10.0, (1,))
    action_space = Discrete(2)

    def sample_level(self, key):
        return jax.random.randint(key, (), 1, 3)

    def reset(self, key, level):
        return Candles(level, jnp.zeros((), jnp.int32)), agents_opening(jnp.ones((3, 1), jnp.float32))

    def step(self, key, state, action):
        ends = state.level + jnp.arange(3, dtype=jnp.int32)
        playing, time = state.time < ends, state.time + 1
        terminated, cut = playing & (time >= ends), time >= 3
        alive = playing & ~terminated & ~cut
        over = ~alive.any()
        obs = jnp.where(alive, time, 0).astype(jnp.float32)[:, None]
        truncated = playing & ~terminated & cut
        return state.replace(time=time), agents_transition(obs, action * playing, playing, terminated, truncated, over)


@pytest.mark.parametrize("env", [GAME, Fading()], ids=["LaserTag", "Fading"])
def test_it_is_an_environment_of_pettingzoo(env):
    pettingzoo_test.parallel_api_test(export.parallel_env(env), num_cycles=50)


def test_the_same_seed_gives_the_same_games():
    pettingzoo_test.parallel_seed_test(lambda: export.parallel_env(GAME))
    env = export.parallel_env(GAME)
    first = env.reset(seed=1)[0]["agent_0"]["image"]
    later = env.reset()[0]["agent_0"]["image"]
    again = env.reset(seed=1)[0]["agent_0"]["image"]
    np.testing.assert_array_equal(first, again)
    assert (first != later).any()


def test_a_game_on_a_level_of_ones_own():
    free = np.zeros((4, 5), bool)
    level = make_level(free, [[0, 0], [4, 0]], [0, 2], ~free)
    env = export.parallel_env(GAME, render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step({})
    obs, infos = env.reset(seed=0, options={"level": level})
    assert set(obs) == set(infos) == {"agent_0", "agent_1"} == set(env.agents)
    np.testing.assert_array_equal(env.level.starts, level.starts)
    assert env.observation_space("agent_0").contains(obs["agent_0"])
    wait, fire = GAME.actions.index("stand"), GAME.actions.index("fire")
    with pytest.raises(ValueError, match="no action of agent_1"):
        env.step({"agent_0": wait})
    env.step({"agent_0": wait, "agent_1": wait})
    _, rewards, terminated, truncated, infos = env.step({"agent_0": wait, "agent_1": fire})
    assert rewards == {"agent_0": -1, "agent_1": 1}
    assert terminated == {"agent_0": True, "agent_1": True}
    assert not any(truncated.values())
    assert infos["agent_1"] == {"progress": 1.0, "solved": True, "facts": {"tags": 1.0}}
    assert not infos["agent_0"]["solved"]
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    assert env.render().shape[2] == 3
    with pytest.raises(ValueError, match="the level is"):
        env.reset(options={"level": level.replace(walls=level.walls[:3])})
    with pytest.raises(ValueError, match="unknown render_mode of LaserTag 'human'"):
        export.parallel_env(GAME, render_mode="human")


def test_the_dead_are_not_asked():
    env = export.parallel_env(Fading())
    env.reset(seed=0, options={"level": jnp.full((), 2, jnp.int32)})
    everybody = dict.fromkeys(env.agents, 1)
    assert env.step(everybody)[1] == {"agent_0": 1, "agent_1": 1, "agent_2": 1}
    obs, _, terminated, _, infos = env.step(everybody)
    assert terminated == {"agent_0": True, "agent_1": False, "agent_2": False}
    assert infos["agent_0"]["solved"]  # it ended with a positive return
    assert float(obs["agent_1"][0]) == 2
    assert env.agents == ["agent_1", "agent_2"]
    _, rewards, terminated, truncated, infos = env.step({"agent_1": 1, "agent_2": 0})
    assert rewards == {"agent_1": 1, "agent_2": 0}
    assert terminated == {"agent_1": True, "agent_2": False}
    assert truncated == {"agent_1": False, "agent_2": True}
    assert not infos["agent_2"]["solved"]
    assert env.agents == []
