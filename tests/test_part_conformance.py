"""The checks of held-out tasks, mutations, teachers and models: what is shipped passes, what is broken is caught."""

import dataclasses
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.held_out import NamedTasks
from minimax_lib.envs.registry import FAMILIES, make_env, make_held_out, make_ued_env
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, Space
from minimax_lib.envs.ued import TeacherEnvironment, UEDEnvironment
from minimax_lib.models.network import Network
from minimax_lib.models.registry import MODELS
from minimax_lib.testing.envs import check_editing, check_environment, check_held_out, check_teacher
from minimax_lib.testing.models import check_model

KEY = jax.random.key(0)


def slow(cases, quick):
    """The cases, of which those whose sentence does not begin with one of `quick` are deep: they are compiled."""
    return [case if case[0].startswith(quick) else pytest.param(*case, marks=pytest.mark.deep) for case in cases]


class Walk(struct.PyTreeNode):
    """An episode of `Line`."""

    level: dict[str, jax.Array]  # {"start": f32[]}
    place: jax.Array  # f32[]
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """A walker on a line. The level is where it starts, between 0 and 1."""

    masked: bool = False
    max_steps: int = 3
    action_space = Discrete(3)

    @property
    def observation_space(self):
        place = Box(-10.0, 10.0, (1,))
        return Dict((("place", place), (ACTION_MASK, Box(0, 1, (3,), "bool")))) if self.masked else place

    def sample_level(self, key):
        return {"start": jax.random.uniform(key, (), jnp.float32)}

    def reset(self, key, level):
        state = Walk(level=level, place=level["start"], time=jnp.zeros((), jnp.int32))
        return state, opening(self.observe(state))

    def step(self, key, state, action):
        state = state.replace(place=state.place + action - 1, time=state.time + 1)
        # A level outside of the line pays nonsense.
        reward = jnp.where(jnp.abs(state.level["start"]) > 5, jnp.nan, 0.0)
        return state, transition(self.observe(state), reward, False, state.time >= self.max_steps)

    def observe(self, state):
        place = jnp.clip(state.place, -10.0, 10.0)[None]
        return {"place": place, ACTION_MASK: jnp.ones(3, bool)} if self.masked else place


@pytest.fixture
def family(monkeypatch):
    """`family(held_out=..., ...)` says what belongs to `Line`, for the length of a test."""

    def register(**parts):
        monkeypatch.setitem(FAMILIES, Line, Family(Line, "Line", **parts))
        return Line()

    return register


def refused(sentence, check, *args, **options):
    """The check says so, in one line."""
    with pytest.raises(AssertionError, match=sentence) as error:
        check(*args, KEY, **options)
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------------- environments


def test_members_with_defaults_need_not_be_written():
    check_environment(Line(), KEY, n_rows=2)
    assert Line().get_level(Line().reset(KEY, {"start": 0.5})[0]) == {"start": 0.5}
    assert Line().level_metrics({"start": 0.5}) == {}


def test_a_box_may_be_overstepped_by_rounding():
    box = Box(-1.0, 3.0, (1,))
    for value, fits in ((3.0, True), (3.00002, True), (3.0001, False), (-1.000005, True), (-1.0001, False)):
        assert box.contains(jnp.array([value], jnp.float32)) == fits, value
    assert not Box(0, 3, (1,), "int32").contains(jnp.array([4], jnp.int32))
    assert not Box(0.0, float("inf"), (1,)).contains(jnp.array([-0.1], jnp.float32))


# ------------------------------------------------------------------------------------------------------ held-out tasks


@dataclasses.dataclass(frozen=True)
class Places(NamedTasks):
    """Tasks of `Line`."""

    known = ("Left", "Right", "Middle")

    def draw(self, name, key):
        return {"start": jnp.float32(self.known.index(name) / 4)}


def places(**changes):
    return type("Places", (Places,), {"__doc__": "Changed.", **changes})


@dataclasses.dataclass(frozen=True)
class Own:
    """Tasks of `Line` that do not derive from `NamedTasks`."""

    line: Line
    names: tuple[str, ...] = ("Left", "Right")

    def __post_init__(self):
        for name in self.names:
            if name not in ("Left", "Right"):
                raise ValueError(f"unknown {name}")

    @property
    def env(self):
        return self.line

    def sample(self, key, n_episodes):
        places = jnp.arange(len(self.names), dtype=jnp.float32) / 4
        return {"start": jnp.broadcast_to(places[:, None], (len(self.names), n_episodes))}


class Lax(Own):
    def __post_init__(self):
        pass


class Forgetful(Own):
    def __init__(self, line, names):
        super().__init__(line, names[:1])


class Elsewhere(Own):
    @property
    def env(self):
        return Line(masked=True)


drawn = itertools.count()
HELD_OUT = [
    ("'Left' and 'Right' have the same levels", places(draw=lambda *_: {"start": jnp.float32(0.5)})),
    ("a level of 'Left' is not finite", places(draw=lambda *_: {"start": jnp.float32(jnp.nan)})),
    (r"draws levels dict\(start int32\[\]\), but Line plays", places(draw=lambda *_: {"start": jnp.int32(1)})),
    (r"draws levels dict\(start float32\[2\]\)", places(draw=lambda *_: {"start": jnp.zeros(2, jnp.float32)})),
    ("must begin with", places(sample=lambda self, key, n: {"start": jnp.zeros((n, len(self.names)), jnp.float32)})),
    ("takes a task that it does not have", Lax),
    ("Forgetful.names is Left: it was asked for Left, Right", Forgetful),
    ("observation_space of the held-out tasks is", Elsewhere),
    ("pays a reward that is not finite", places(draw=lambda self, name, key: {"start": jnp.float32(6 + len(name))})),
]


def test_sound_tasks_pass_and_the_registry_adds_the_training_distribution(family):
    env = family(held_out=Places)
    check_held_out(env, KEY)
    assert make_held_out(env, ["all"]).names == ("Left", "Right", "Middle", "TrainingDistribution")
    assert make_held_out(env, ["validation"]).names == make_held_out(env, ["benchmark"]).names == Places.known
    suite = make_held_out(env, ["Right", "TrainingDistribution", "Left"])
    sampled = jax.jit(lambda suite: suite.sample(KEY, 5)["start"], static_argnums=0)
    levels = np.asarray(sampled(suite))
    assert (levels[0] == 0.25).all()
    assert (levels[2] == 0).all()
    assert len(set(levels[1].tolist())) == 5
    # What is evaluated beside a task changes nothing about it.
    for i, name in enumerate(suite.names):
        assert (sampled(make_held_out(env, [name]))[0] == levels[i]).all()


def test_groups_follow_what_is_registered(family):
    groups = {"validation": ["Left"], "hard": ["Middle"]}
    env = family(held_out=Places, groups=groups)
    found = {name: make_held_out(env, [name]).names for name in ("validation", "benchmark", "all", "hard")}
    assert found["validation"] == ("Left",)
    assert set(found["benchmark"]) == set(Places.known)
    assert found["all"] == (*found["benchmark"], "TrainingDistribution")
    assert found["hard"] == ("Middle",)
    with pytest.raises(ValueError, match=r"^unknown held-out task 'Lefft': .* \(did you mean 'Left'\?\)$"):
        make_held_out(env, ["Lefft"])


QUICK_HELD_OUT = (
    "'Left' and 'Right'", "draws levels dict", "must begin", "takes a task", "Forgetful", "observation_space"
)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "suite"), slow(HELD_OUT, QUICK_HELD_OUT), ids=[sentence[:24] for sentence, _ in HELD_OUT]
)
def test_a_broken_suite_is_caught(sentence, suite, family):
    refused(sentence, check_held_out, family(held_out=suite))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("env", "names"),
    [
        (
            make_env("AMaze", height=3, width=3, n_walls=3, max_steps=9, view_size=3),
            ("MiniMaze", "TrainingDistribution"),
        ),
        (make_env("Pendulum", max_steps=40), ("all",)),
    ],
    ids=["AMaze", "Pendulum"],
)
def test_shipped_suites_conform(env, names):
    check_held_out(env, KEY, names=names)


# ----------------------------------------------------------------------------------------------------------- mutations


def nudged(key, level, n_edits):
    return {"start": jnp.clip(level["start"] + 0.1 * jax.random.normal(key, (), jnp.float32), 0.0, 1.0)}


@dataclasses.dataclass(frozen=True)
class OneSpot(Line):
    def sample_level(self, key):
        return {"start": jnp.float32(0.5)}


EDITING = [
    ("no mutation is registered", None),
    ("must be an Editing", lambda env: nudged),
    ("changes none of", Editing(lambda key, level, n: level)),
    ("the same child whatever the key is", Editing(lambda key, level, n: {"start": level["start"] / 2})),
    ("mutate: the level changes .* int32", Editing(lambda key, level, n: {"start": jnp.int32(1)})),
    ("is weakly typed", Editing(lambda key, level, n: {"start": 0.5})),
    ("not pure", Editing(lambda key, level, n: {"start": nudged(key, level, n)["start"] + next(drawn)})),
    ("is not finite", Editing(lambda key, level, n: {"start": nudged(key, level, n)["start"] - jnp.float32(jnp.inf)})),
    ("a reward that is not finite", Editing(lambda key, level, n: {"start": nudged(key, level, n)["start"] + 9})),
    ("identity\\(level\\) is the same for different levels", Editing(nudged, identity=lambda level: jnp.zeros(2))),
    ("NaN equals nothing", Editing(nudged, identity=lambda level: level["start"] * jnp.nan)),
    ("base\\(env\\) are all the same", Editing(nudged, base=lambda env: OneSpot())),
]


QUICK_EDITING = ("no mutation", "must be", "changes none of", "mutate: the level", "is weakly")


@pytest.mark.parametrize(
    ("sentence", "editing"), slow(EDITING, QUICK_EDITING), ids=[sentence[:24] for sentence, _ in EDITING]
)
def test_a_broken_mutation_is_caught(sentence, editing, family):
    refused(sentence, check_editing, family(editing=editing), n_rows=4)


def test_a_mutation_that_leaves_the_valid_levels_is_caught(family):
    inside = lambda level: (level["start"] >= 0) & (level["start"] <= 1)  # noqa: E731
    check_editing(family(editing=Editing(nudged)), KEY, n_rows=4, is_valid=inside)
    free = Editing(lambda key, level, n: {"start": level["start"] + 0.3 * jax.random.normal(key, (), jnp.float32)})
    refused("a level after 8 mutations is not valid|a child .* is not valid", check_editing, family(editing=free),
            n_rows=4, is_valid=inside)  # fmt: skip


def maze_is_valid(level):
    def is_wall(pos):
        return level.wall_map[pos[1], pos[0]]

    return ~is_wall(level.agent_pos) & ~is_wall(level.goal_pos) & jnp.any(level.agent_pos != level.goal_pos)


@pytest.mark.deep
def test_shipped_mutations_conform():
    maze = make_env("AMaze", height=3, width=3, n_walls=3, max_steps=9, view_size=3)
    check_editing(maze, KEY, n_rows=8, is_valid=maze_is_valid)
    check_editing(make_env("Pendulum", max_steps=40), KEY, n_rows=8)


# ------------------------------------------------------------------------------------------------------------ teachers


class Plan(struct.PyTreeNode):
    """A design of `Line`."""

    level: dict[str, jax.Array]
    start: jax.Array
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Placer(TeacherEnvironment):
    """One action places the walker."""

    pays: float = 0.0
    forgets: bool = False

    max_steps = 2
    observation_space = Discrete(3)
    action_space = Discrete(5)

    def sample_level(self, key):
        return {"start": jnp.float32(0.5)}

    def reset(self, key, level):
        state = Plan(level=level, start=level["start"], time=jnp.zeros((), jnp.int32))
        return state, opening(state.time)

    def step(self, key, state, action):
        set_now = (state.time < 2) | self.forgets
        start = jnp.where(set_now, action / 4 + state.time.astype(jnp.float32), state.start).astype(jnp.float32)
        state = state.replace(start=start, time=jnp.minimum(state.time + 1, 2))
        return state, transition(state.time, self.pays, state.time == 2, False)

    def to_level(self, state):
        return {"start": state.start}


@pytest.mark.parametrize(
    ("sentence", "teacher"),
    slow(
        [("pays a reward", Placer(pays=1.0)), ("changes a design that is finished", Placer(forgets=True))],
        quick="changes",
    ),
)
def test_a_broken_teacher_is_caught(sentence, teacher):
    refused(sentence, check_teacher, UEDEnvironment(Line(), teacher), n_rows=4)


def test_a_sound_teacher_passes():
    check_teacher(UEDEnvironment(Line(), Placer()), KEY, n_rows=4)


@pytest.mark.deep
def test_the_shipped_maze_teacher_conforms():
    check_teacher(make_ued_env("AMaze", design={"noise_dim": 2}, height=3, width=3, n_walls=2, view_size=3), KEY, 4)


# -------------------------------------------------------------------------------------------------------------- models


class Plain(Network):
    """Written from the docstring of `Network` alone."""

    action_space: Space

    @nn.compact
    def __call__(self, obs, carry, first):
        features = nn.tanh(nn.Dense(4)(obs["place"] if isinstance(obs, dict) else obs))
        return self.policy_head(features, obs, first), self.value_head(features, first), carry


class Summing(Network):
    """Remembers the sum of what it saw in an episode."""

    action_space: Space

    def init_carry(self, shape):
        return jnp.zeros((*shape, 1), jnp.float32)

    def cleared(self, memory, first):
        return jnp.where(first[:, None], 0.0, memory)

    @nn.compact
    def __call__(self, obs, carry, first):
        def add(memory, step):
            memory = self.cleared(memory, step[1]) + step[0]
            return memory, memory

        carry, sums = jax.lax.scan(add, carry, (obs, first))
        return self.policy_head(sums, obs, first), self.value_head(sums, first), carry


class Leaking(Summing):
    def cleared(self, memory, first):
        return memory


class Mixing(Plain):
    def __call__(self, obs, carry, first):
        return super().__call__(obs - obs.mean(axis=1, keepdims=True), carry, first)


class Unmasked(Plain):
    def __call__(self, obs, carry, first):
        return super().__call__(obs["place"], carry, first)


class Jumping(Summing):
    """Returns the memory from before the first step."""

    @nn.compact
    def __call__(self, obs, carry, first):
        return *super().__call__(obs, carry, first)[:2], carry


class Half(Plain):
    def __call__(self, obs, carry, first):
        parameters, values, carry = super().__call__(obs, carry, first)
        return parameters, values.astype(jnp.bfloat16), carry


class Claims(Plain):
    n_values = 2

    def value_head(self, features, first):
        return nn.Dense(1, name="value")(features)


class Pair(Plain):
    def __call__(self, obs, carry, first):
        return super().__call__(obs, carry, first)[:2]


class Steep(Plain):
    def __call__(self, obs, carry, first):
        parameters, values, carry = super().__call__(obs, carry, first)
        return parameters, values + jnp.sqrt(values - values), carry


class Dropping(Plain):
    @nn.compact
    def __call__(self, obs, carry, first):
        return super().__call__(nn.Dropout(0.5, deterministic=False)(obs), carry, first)


class Growing(Summing):
    def __call__(self, obs, carry, first):
        parameters, values, carry = super().__call__(obs, carry, first)
        return parameters, values, carry.astype(jnp.bfloat16)


class Bare(nn.Module):
    action_space: Space

    @nn.compact
    def __call__(self, obs, carry, first):
        return nn.Dense(3)(obs), nn.Dense(1)(obs), carry


def settings_of(network):
    """Settings that build it."""

    @dataclasses.dataclass(frozen=True)
    class Settings:
        def build(self, observation_space, action_space):
            return network(action_space)

    return Settings()


def test_a_network_that_follows_the_docstring_passes():
    check_model(settings_of(Summing), Line(), KEY)


@pytest.mark.deep
def test_a_mask_is_kept():
    refused("takes actions that action_mask forbids", check_model, settings_of(Unmasked), Line(masked=True))


@pytest.mark.parametrize(
    ("sentence", "network"),
    slow(
        [
            ("without init_carry, distribution, n_values: derive it from", Bare),
            ("remembers the episode before", Leaking),
            ("mixes rows", Mixing),
            ("otherwise than step by step", Jumping),
            ("the values of Half are bfloat16", Half),
            (r"the values of Claims are .*must be float32\[4, 3, 2\]", Claims),
            ("must return three things", Pair),
            ("a gradient of Steep is not finite", Steep),
            ("Dropping cannot be applied: ", Dropping),
            ("the carry of Growing changes", Growing),
        ],
        quick=("without", "remembers", "the values", "must return", "Dropping", "the carry"),
    ),
)
def test_a_broken_network_is_caught(sentence, network):
    refused(sentence, check_model, settings_of(network), Line())


@dataclasses.dataclass(frozen=True)
class Named:
    name: str = "x"

    def build(self, observation_space, action_space):
        return Plain(action_space)


@dataclasses.dataclass
class Thawed:
    width: int = 4

    def build(self, observation_space, action_space):
        return Plain(action_space)


@pytest.mark.parametrize(("sentence", "settings"), [("a setting called 'name'", Named()), ("can be changed", Thawed())])
def test_broken_settings_of_a_model_are_caught(sentence, settings):
    refused(sentence, check_model, settings, Line())


SMALL = {
    "ff": {"dense_width": 4},
    "towers": {"width": 4},
    "s5": {"memory_width": 4, "state_size": 4, "n_blocks": 1, "n_layers": 1},
}


@pytest.mark.deep
@pytest.mark.parametrize("name", ["ff", "lstm", "gru", "s5", "towers"])
def test_shipped_models_conform(name):
    check_model(MODELS[name](**SMALL.get(name, {"memory_width": 4}), n_values=2), Line(), KEY)
