"""The conformance check passes on the maze, and catches each way of breaking an environment."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import pytest
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, transition
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import make_env, make_held_out, register_env
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.testing.envs import check_environment

KEY = jax.random.key(0)


@struct.dataclass
class CounterState:
    level: jax.Array
    count: jax.Array


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
    """The smallest environment: adds up its actions, from a start that is its level."""

    max_steps: int = 4
    observation_space = Box(0.0, 20.0, (2,))
    action_space = Discrete(3)

    def sample_level(self, key):
        return jax.random.randint(key, (), 0, 5, jnp.int32)

    def see(self, state):
        return jnp.stack([state.level, state.count]).astype(jnp.float32)

    def time_step(self, state, over):
        no = jnp.zeros((), bool)
        return TimeStep(obs=self.see(state), reward=jnp.zeros((), jnp.float32), terminated=no, truncated=over)

    def reset(self, key, level):
        state = CounterState(level=level, count=jnp.zeros((), jnp.int32))
        return state, self.time_step(state, jnp.zeros((), bool))

    def step(self, key, state, action):
        state = dataclasses.replace(state, count=state.count + 1)
        return state, self.time_step(state, state.count >= self.max_steps)

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {"start": level.astype(jnp.float32)}


class Changeable(Counter):
    """Not a frozen dataclass in effect: attributes can be set."""

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True)
class Unhashable(Counter):
    table: tuple = ([1],)


class WeakState(Counter):
    def reset(self, key, level):
        state, ts = super().reset(key, level)
        return dataclasses.replace(state, count=0), ts


class WeakLevel(Counter):
    def sample_level(self, key):
        return 0


class GrowingState(Counter):
    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return dataclasses.replace(state, count=state.count.astype(jnp.float32)), ts


class OddReward(Counter):
    def time_step(self, state, over):
        return dataclasses.replace(super().time_step(state, over), reward=jnp.zeros((), jnp.int32))


class EarlyReward(Counter):
    def reset(self, key, level):
        state, ts = super().reset(key, level)
        return state, dataclasses.replace(ts, reward=jnp.ones((), jnp.float32))


class NanReward(Counter):
    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, dataclasses.replace(ts, reward=ts.reward + jnp.nan)


class StillBorn(Counter):
    def reset(self, key, level):
        state, ts = super().reset(key, level)
        return state, dataclasses.replace(ts, truncated=jnp.ones((), bool))


class WrongShape(Counter):
    def see(self, state):
        return super().see(state)[:1]


class WrongDtype(Counter):
    def see(self, state):
        return super().see(state).astype(jnp.int32)


class OutOfRange(Counter):
    def see(self, state):
        return super().see(state) - 1


class OtherLevel(Counter):
    def get_level(self, state):
        return state.level + 1


class ForgetfulLevel(Counter):
    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return dataclasses.replace(state, level=state.level + 1), ts


class Endless(Counter):
    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, dataclasses.replace(ts, truncated=jnp.zeros((), bool))


class Impure(Counter):
    drawn = itertools.count()

    def see(self, state):
        return super().see(state).at[0].set(float(next(self.drawn) % 20))


class WrongMetric(Counter):
    def level_metrics(self, level):
        return {"start": level}


class VectorMetric(Counter):
    def level_metrics(self, level):
        return {"start": jnp.zeros(2, jnp.float32)}


class TwoViews(Counter):
    def observe(self, state):
        return self.see(state) + 1


BROKEN = {
    Changeable: "can be changed",
    Unhashable: "cannot be hashed",
    WeakState: "weakly typed",
    WeakLevel: "weakly typed",
    GrowingState: "the state changes",
    OddReward: "reward is int32",
    EarlyReward: "reset gives a reward",
    NanReward: "not finite",
    StillBorn: "neither terminated nor truncated",
    WrongShape: r"float32\[1\]: the space says",
    WrongDtype: r"int32\[2\]: the space says",
    OutOfRange: "outside",
    OtherLevel: "get_level does not give back the level after reset",
    ForgetfulLevel: "get_level does not give back the level at the end",
    Endless: "not over after max_steps=4",
    Impure: "randomness must come from the key",
    WrongMetric: "must be a scalar float32",
    VectorMetric: "must be a scalar float32",
    TwoViews: "observe",
}


@dataclasses.dataclass(frozen=True)
class Telling(Counter):
    """Tells how far it has come, and a fact."""

    most: float = 1.0

    def time_step(self, state, over):
        share = self.most * state.count / self.max_steps
        return transition(self.see(state), 0.0, False, over, share, {"count": state.count})


class Vague(Telling):
    """Tells of its facts only once something has happened."""

    def reset(self, key, level):
        state, ts = super().reset(key, level)
        return state, ts.replace(facts={})


class VectorFact(Telling):
    def time_step(self, state, over):
        ts = super().time_step(state, over)
        return ts.replace(facts={"count": jnp.stack([ts.facts["count"]] * 2)})


BROKEN |= {
    functools.partial(Telling, most=1.5): r"progress goes from 0.375 to 1.5: it must stay between 0 and 1",
    Vague: "the time step changes",
    VectorFact: "the fact 'count' is",
}


@pytest.mark.parametrize("cls", [Telling, pytest.param(Counter, marks=pytest.mark.deep)])
def test_a_sound_environment_passes(cls):
    check_environment(cls(), KEY)


# Each of these compiles an environment to find what another one here shows too.
SLOW = (EarlyReward, StillBorn, WrongShape, OutOfRange, ForgetfulLevel, TwoViews, VectorFact)


@pytest.mark.parametrize(
    "cls",
    [pytest.param(cls, marks=pytest.mark.deep) if cls in SLOW else cls for cls in BROKEN],
    ids=lambda cls: getattr(cls, "__name__", "Telling"),
)
def test_each_fault_is_caught_in_a_sentence(cls):
    with pytest.raises(AssertionError, match=BROKEN[cls]) as error:
        check_environment(cls(), KEY)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("limit", [0, -3, 2.5, None])
def test_the_time_limit_must_be_a_positive_int(limit):
    with pytest.raises(AssertionError, match="positive int"):
        check_environment(Counter(max_steps=limit), KEY)


def test_a_plain_class_is_refused():
    class Stranger:
        pass

    class Plain(Environment):
        pass

    with pytest.raises(AssertionError, match="LaserTag has several agents: use check_multi_agent"):
        check_environment(make_env("LaserTag"), KEY)
    with pytest.raises(AssertionError, match="Stranger does not derive from"):
        check_environment(Stranger(), KEY)
    with pytest.raises(AssertionError, match="not a dataclass"):
        check_environment(Plain(), KEY)


@pytest.mark.parametrize(
    "settings",
    [
        {"height": 5, "width": 7, "n_walls": 9, "max_steps": 12},
        pytest.param(
            {"height": 6, "width": 3, "n_walls": 9, "max_steps": 9, "view_size": 7, "see_through_walls": False,
             "see_agent": True, "obs_agent_pos": True, "replace_walls": False, "sample_n_walls": True,
             "only_solvable": True}, marks=pytest.mark.deep),
    ],
)  # fmt: skip
def test_the_maze_conforms(settings):
    check_environment(AMaze(**settings), KEY)


@pytest.mark.deep
def test_the_held_out_suite_conforms():
    env = AMaze(height=3, width=5, n_walls=4, max_steps=12, obs_agent_pos=True)
    check_environment(make_held_out(env, ["MiniMaze", "TrainingDistribution"]).env, KEY, n_rows=4)


def test_a_third_party_registers_an_environment_without_editing_the_package():
    register_env("Counter", Counter)
    env = make_env("Counter", max_steps=3)
    assert env == Counter(max_steps=3)
    suite = make_held_out(env, ["TrainingDistribution"])
    assert suite.names == ("TrainingDistribution",)
    assert suite.sample(KEY, 6).shape == (1, 6)
    with pytest.raises(ValueError, match="TrainingDistribution"):
        make_held_out(env, ["SixteenRooms"])
    with pytest.raises(ValueError, match="Counter"):
        make_env("Conter")
    with pytest.raises(ValueError, match=r"max_step'.*did you mean 'max_steps'"):
        make_env("Counter", max_step=3)
