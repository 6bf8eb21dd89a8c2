"""Features of observations of any form: equal to plain loops, in the order of the parts, and PPO learns from them."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.config.files import read_yaml
from minimax_lib.config.flags import read_command_line
from minimax_lib.config.train import from_dict, save_yaml
from minimax_lib.envs.base import TimeStep
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, MultiDiscrete, Space
from minimax_lib.models.settings import LSTM, FeedForward
from minimax_lib.runners.build import DRRunner
from tests import probes
from tests.probes import Probe, ProbeLevel

ACTIONS = Discrete(3)
T, R = 2, 3
PARTS = {
    "map": Box(0, 10, (6, 7, 2), "uint8"),
    "walls": Box(0, 1, (5, 6, 1), "bool"),
    "speed": Box(-np.inf, np.inf, (4,)),
    "heat": Box(0.0, 1.0, (5, 5, 3)),
    "way": Discrete(4),
    "inner": Dict((("hands", MultiDiscrete((3, 1, 5))), ("counts", Box(0, 90, (3,), "int32")))),
    "table": Box(0, 255, (2, 3), "uint8"),
    "clock": Box(0.0, 1.0, ()),
    "alive": Box(0, 1, (2, 1, 2, 2), "bool"),
}
SPACE = Dict(tuple(PARTS.items()))
DEFAULT = FeedForward(conv_filters=4, dense_width=0)
CHOSEN = dataclasses.replace(
    DEFAULT,
    kernel_size=2,
    scales=("map=3", "heat=0.25", "speed=8", "inner.counts=90", "table=255", "alive=2"),
    depths=("map=3", "walls=2", "heat=0", "speed=2", "inner.counts=1", "clock=1"),
    vector_width=5,
)


@functools.cache
def observations(space: Space):
    """Random observations [T, R, ...]."""

    @jax.jit
    def drawn(key: jax.Array):
        return jax.vmap(jax.vmap(space.sample))(jax.random.split(key, (T, R)))

    return drawn(jax.random.key(3))


@functools.cache
def parameters(settings, space: Space):
    """Parameters of the torso, none of them zero."""
    shapes = jax.eval_shape(settings.build(space, ACTIONS).torso.init, jax.random.key(0), observations(space))
    rng = np.random.default_rng(0)

    def drawn(path, x):
        numbers = 0.3 * rng.normal(size=x.shape).astype(np.float32)
        return abs(numbers) if path[-1].key == "bias" else numbers  # so that no layer of ReLUs is 0 throughout

    return jax.tree_util.tree_map_with_path(drawn, shapes)


def torso_of(settings, space: Space = SPACE):
    """(torso, parameters)."""
    return settings.build(space, ACTIONS).torso, parameters(settings, space)


# ------------------------------------------------------------------------------------------- plain NumPy


def plain_convolution(image: np.ndarray, layer: dict, size: int) -> np.ndarray:
    """[h - size + 1, w - size + 1, C], window by window."""
    down, across = image.shape[0] - size + 1, image.shape[1] - size + 1
    found = np.zeros((down, across, layer["kernel"].shape[1]))
    for y in range(down):
        for x in range(across):
            window = image[y : y + size, x : x + size].reshape(-1)
            found[y, x] = np.maximum(window @ layer["kernel"] + layer["bias"], 0.0)
    return found


def plain_part(values: np.ndarray, params: dict, scale: float, depth: int, size: int) -> np.ndarray:
    """The features of one array of numbers, in float64."""
    x = np.asarray(values, np.float64) / scale
    if x.ndim != 3:
        x = x.reshape(-1)
        for i in range(depth):
            x = np.maximum(x @ params[f"dense_{i}"]["kernel"] + params[f"dense_{i}"]["bias"], 0.0)
        return x
    for name in ["conv", *(f"further_{i}" for i in range(depth - 1))][:depth]:
        x = plain_convolution(x, params[name], size)
    return x.reshape(-1)


def plain_features(obs: dict, params: dict, scales: dict, depths: dict, size: int) -> np.ndarray:
    """The features of one observation, with the parts in the order of SPACE."""

    def boxed(name: str, values: np.ndarray) -> np.ndarray:
        return plain_part(values, params.get(name, {}), scales.get(name, 1.0), depths[name], size)

    tables, hands = params["inner.hands"]["embedding"], np.asarray(obs["inner"]["hands"])
    return np.concatenate(
        [
            boxed("map", obs["map"]),
            boxed("walls", obs["walls"]),
            boxed("speed", obs["speed"]),
            boxed("heat", obs["heat"]),
            params["way"]["embedding"][int(obs["way"])],
            tables[0:3][hands[0]],
            tables[3:4][hands[1]],
            tables[4:9][hands[2]],
            boxed("inner.counts", obs["inner"]["counts"]),
            boxed("table", obs["table"]),
            boxed("clock", obs["clock"]),
            boxed("alive", obs["alive"]),
        ]
    )


DEFAULT_DEPTHS = {n: int(n in ("map", "walls", "heat")) for n in (*PARTS, "inner.counts")}
EXPECTED = {
    "default": (DEFAULT, {"map": 10.0}, DEFAULT_DEPTHS, 3),
    "chosen": (
        CHOSEN,
        {"map": 3.0, "heat": 0.25, "speed": 8.0, "inner.counts": 90.0, "table": 255.0, "alive": 2.0},
        DEFAULT_DEPTHS | {"map": 3, "walls": 2, "heat": 0, "speed": 2, "inner.counts": 1, "clock": 1},
        2,
    ),
}


@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [
        ("chosen", "float32", 1e-5),
        ("default", "bfloat16", 0.02),
        pytest.param("default", "float32", 1e-5, marks=pytest.mark.deep),
        pytest.param("chosen", "bfloat16", 0.02, marks=pytest.mark.deep),
    ],
)
def test_features_are_those_of_plain_loops(case, dtype, tolerance):
    settings, scales, depths, size = EXPECTED[case]
    torso, params = dataclasses.replace(settings, dtype=dtype).build(SPACE, ACTIONS).torso, parameters(settings, SPACE)
    obs = jax.tree.map(np.asarray, observations(SPACE))
    found = np.asarray(jax.jit(torso.apply)(params, obs), np.float64)
    plain_params = jax.tree.map(np.asarray, params["params"])
    for t in range(T):
        for r in range(R):
            one = jax.tree.map(lambda x, t=t, r=r: x[t, r], obs)
            expected = plain_features(one, plain_params, scales, depths, size)
            assert np.abs(found[t, r] - expected).max() < tolerance * np.abs(expected).max()


def test_further_convolutions_have_twice_as_many_filters():
    _, params = torso_of(CHOSEN)
    shapes = jax.tree.map(jnp.shape, params["params"])
    assert shapes["map"]["conv"]["kernel"] == (2 * 2 * 2, 4)
    assert shapes["map"]["further_0"]["kernel"] == (2 * 2 * 4, 8)
    assert shapes["map"]["further_1"]["kernel"] == (2 * 2 * 8, 8)
    assert shapes["speed"]["dense_1"]["kernel"] == (5, 5)
    assert "heat" not in shapes


def test_each_number_has_an_orthogonal_table_of_its_own():
    torso = DEFAULT.build(MultiDiscrete((6, 2, 9)), ACTIONS).torso
    params = jax.jit(lambda key: torso.init(key, jnp.zeros((1, 1, 3), jnp.int32)))(jax.random.key(0))["params"]
    table = np.asarray(params["observation"]["embedding"])
    for rows in np.split(table, [6, 8]):
        gram = rows.T @ rows if len(rows) > 5 else rows @ rows.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=2e-5)
    assert not np.allclose(table[:2], table[6:8])


# ------------------------------------------------------------------------------------------- properties


def test_parts_in_another_order_give_the_same_features_in_that_order():
    names = ("speed", "walls", "way", "map")
    sizes = {"map": 4 * 5 * 8, "walls": 4 * 5 * 4, "way": 5, "speed": 3}  # with these settings
    settings = dataclasses.replace(DEFAULT, kernel_size=2, depths=("speed=1", "map=2"), vector_width=3)
    features, orders = {}, (names, names[::-1])

    @jax.jit
    def started(key, obs):
        spaces = [Dict(tuple((name, PARTS[name]) for name in order)) for order in orders]
        return [settings.build(space, ACTIONS).torso.init_with_output(key, obs) for space in spaces]

    both = jax.device_get(started(jax.random.key(0), observations(SPACE)))
    for order, (found, params) in zip(orders, both, strict=True):
        pieces = np.split(found, np.cumsum([sizes[name] for name in order]), axis=-1)
        assert pieces.pop().size == 0
        features[order] = (dict(zip(order, pieces, strict=True)), params)
    jax.tree.map(np.testing.assert_array_equal, features[names], features[names[::-1]])


@pytest.mark.parametrize("settings", [pytest.param(DEFAULT, marks=pytest.mark.deep), CHOSEN], ids=["default", "chosen"])
def test_every_part_and_every_parameter_counts(settings):
    torso, params = torso_of(settings)
    obs = observations(SPACE)

    def objective(params):
        features = torso.apply(params, obs)
        return (features * jnp.cos(jnp.arange(features.size, dtype=jnp.float32)).reshape(features.shape)).sum()

    leaves, tree = jax.tree.flatten(jax.device_get(obs))

    def turned(i: int):
        return tree.unflatten([*leaves[:i], leaves[i][::-1, ::-1], *leaves[i + 1 :]])

    @jax.jit
    def found(params, every):
        return jax.grad(objective)(params), jax.vmap(torso.apply, (None, 0))(params, every)

    every = jax.tree.map(lambda *x: np.stack(x), obs, *map(turned, range(len(leaves))))
    gradients, (features, *others) = jax.device_get(found(params, every))
    gradients = jax.tree_util.tree_leaves_with_path(gradients)
    assert len(gradients) == len(jax.tree.leaves(params)) >= 8
    for path, gradient in gradients:
        assert gradient.any(), path
    changed = set()
    for other in others:
        where = frozenset(np.flatnonzero((other != features).any(axis=(0, 1))))
        assert where
        assert not changed & where  # each part has its own features
        changed |= where


def test_the_mask_of_actions_is_no_feature():
    mask = (ACTION_MASK, Box(0, 1, (3,), "bool"))
    space = Dict((mask, ("way", Discrete(4)), ("inner", Dict((mask,)))))  # further down, the name is like any other
    torso, params = torso_of(DEFAULT, space)
    obs, apply = jax.device_get(observations(space)), jax.jit(torso.apply)
    features = np.asarray(apply(params, obs))
    assert features.shape == (T, R, 5 + 3)
    flipped = obs | {ACTION_MASK: ~obs[ACTION_MASK]}
    np.testing.assert_array_equal(features, apply(params, flipped))
    inner = obs | {"inner": {ACTION_MASK: ~obs["inner"][ACTION_MASK]}}
    assert (features != np.asarray(apply(params, inner))).any()


def test_a_part_may_have_any_name():
    """Flax keeps some names for itself."""
    names = ("path", "dtype", "parts", "a=b", "image")
    space = Dict(tuple((name, Box(0, 10, (3, 3, 1), "uint8")) for name in names))
    settings = dataclasses.replace(DEFAULT, scales=("a=b=2", "path=3"))
    obs = {name: np.zeros((T, R, 3, 3, 1), np.uint8) for name in names}
    params = jax.eval_shape(settings.build(space, ACTIONS).torso.init, jax.random.key(0), obs)
    assert set(params["params"]) == {"path_", "dtype_", "parts_", "a=b", "image"}


# ------------------------------------------------------------------------------------------- a probe of what is seen

PICTURES = Dict(
    (
        ("map", Box(0, 10, (4, 4, 1), "uint8")),
        ("lights", Box(0, 1, (5, 3, 1), "bool")),
        ("heat", Box(0.0, 1.0, (3, 3, 2))),
        ("pointer", Box(-1.0, 1.0, (2,))),
    )
)


@dataclasses.dataclass(frozen=True)
class Pictured(Probe):
    """The place of one cell says which action pays. Each episode has this cell in a random part; the rest is 0."""

    observation_space = PICTURES

    def sample_level(self, key: jax.Array) -> ProbeLevel:
        return probes.action_for_observation()

    def reset(self, key: jax.Array, level: ProbeLevel) -> tuple[probes.ProbeState, TimeStep]:
        k_reset, k_told = jax.random.split(key)
        state, ts = super().reset(k_reset, level)
        told = jax.random.randint(k_told, (), 0, len(PICTURES.items), jnp.int32)
        return state, ts.replace(obs=picture(told, ts.obs))

    def step(self, key: jax.Array, state: probes.ProbeState, action: jax.Array) -> tuple[probes.ProbeState, TimeStep]:
        state, ts = super().step(key, state, action)
        return state, ts.replace(obs=picture(jnp.zeros((), jnp.int32), ts.obs))  # episodes are over after one step


def picture(told: jax.Array, cue: jax.Array) -> dict[str, jax.Array]:
    """The observation that shows `cue` (0 or 1) in part number `told`."""
    obs = {}
    for i, (name, box) in enumerate(PICTURES.items):
        n_cells = int(np.prod(box.shape))
        cell = jnp.where(cue == 1, 0, n_cells - 1)
        obs[name] = ((jnp.arange(n_cells) == cell) & (told == i)).astype(box.dtype).reshape(box.shape)
    return obs


@pytest.mark.deep
def test_what_each_part_shows_is_learnt():
    env = Pictured()
    settings = FeedForward(
        kernel_size=2,
        conv_filters=8,
        dense_width=16,
        head_width=16,
        scales=("map=1",),
        depths=("lights=2", "pointer=1"),
        vector_width=8,
    )
    ppo = PPO(lr=1e-2, n_epochs=4, entropy_coef=0.0)
    pop = AgentPop(PPOAgent(settings.build(env.observation_space, env.action_space), ppo), 1)
    runner = DRRunner(env, pop, n_parallel=32, n_steps=8)

    @jax.jit
    def learnt(key: jax.Array) -> jax.Array:
        """f32[parts, cues], probabilities of the action that pays."""
        state, _ = jax.lax.scan(lambda state, _: (runner.step(state)[0], None), runner.init(key), length=60)
        told, cues = (x.reshape(-1) for x in jnp.indices((len(PICTURES.items), 2), jnp.int32))
        obs = jax.tree.map(lambda x: x[None], jax.vmap(picture)(told, cues))
        n = len(told)
        policy, _, _ = pop.policy(state.students.params, obs, pop.init_carry((1, n)), jnp.ones((1, n), bool))
        return policy.probs[0, jnp.arange(n), cues].reshape(-1, 2)

    # A policy that ignores a part chooses the same action for both of its pictures, so one of the two is 0.5 at most.
    assert learnt(jax.random.key(0)).min() > 0.9


# ------------------------------------------------------------------------------------------- settings


def test_flags_and_files_say_the_same(tmp_path):
    words = ["--model", "lstm", "--model.scales", "image=255", "--model.depths", "image=2", "--model.kernel-size", "2"]
    config = from_dict(read_command_line(words))
    assert config.model == LSTM(kernel_size=2, scales=("image=255",), depths=("image=2",))
    save_yaml(config, tmp_path / "config.yaml")
    assert from_dict(read_yaml(tmp_path / "config.yaml")) == config
    (tmp_path / "short.yaml").write_text("model: {name: lstm, kernel_size: 2, scales: [image=255], depths: [image=2]}")
    assert from_dict(read_yaml(tmp_path / "short.yaml")) == config


MAZE = Dict((("image", Box(0, 10, (5, 5, 3), "uint8")), ("way", Discrete(4)), ("speed", Box(0.0, 1.0, (2,)))))
NO_IMAGE = Dict((("way", Discrete(4)), ("speed", Box(0.0, 1.0, (2,)))))


@pytest.mark.parametrize(
    ("settings", "space", "message"),
    [
        ({"scales": ("image",)}, MAZE, "model.scales has 'image': it must be PART=NUMBER, as in image=255"),
        ({"scales": ("image=x",)}, MAZE, "model.scales has 'image=x': it must be PART=NUMBER, as in image=255"),
        ({"scales": ("=2",)}, MAZE, "model.scales has '=2': it must be PART=NUMBER, as in image=255"),
        ({"depths": ("image=1.5",)}, MAZE, "model.depths has 'image=1.5': it must be PART=NUMBER, as in image=2"),
        ({"depths": ("image=1", "image=2")}, MAZE, "model.depths names 'image' twice: it must be there once"),
        ({"scales": ("image=0",)}, MAZE, "model.scales has image=0.0: it must be positive and finite"),
        ({"scales": ("image=-1",)}, MAZE, "model.scales has image=-1.0: it must be positive and finite"),
        ({"scales": ("image=nan",)}, MAZE, "model.scales has image=nan: it must be positive and finite"),
        ({"scales": ("image=inf",)}, MAZE, "model.scales has image=inf: it must be positive and finite"),
        ({"depths": ("image=-1",)}, MAZE, "model.depths has image=-1: it must be at least 0"),
        (
            {"scales": ("imag=2",)},
            MAZE,
            "unknown part of the observation in model.scales 'imag': choose from image, way, speed "
            "(did you mean 'image'?)",
        ),
        (
            {"depths": ("counts=1",)},
            SPACE,
            "unknown part of the observation in model.depths 'counts': choose from map, walls, speed, heat, way, "
            "inner.hands, inner.counts, table, clock, alive (did you mean 'inner.counts'?)",
        ),
        (
            {"depths": ("way=1",)},
            MAZE,
            "model.depths names 'way', whose numbers are embedded: it is for the parts that are a Box (image, speed)",
        ),
        (
            {"scales": ("observation=2",)},
            Discrete(4),
            "model.scales names 'observation', whose numbers are embedded: it is for the parts that are a Box "
            "(there is none)",
        ),
        (
            {"depths": ("image=3",)},
            MAZE,
            "model.depths has image=3, but 'image' is 5x5 and model.kernel_size is 3: it must be at most 2",
        ),
        (
            {"kernel_size": 6, "depths": ("image=2",)},
            MAZE,
            "model.kernel_size is 6, but the observation 'image' is 5x5: it must be at most 5, or image=0 in "
            "model.depths",
        ),
        ({"vector_width": 0}, MAZE, "model.vector_width is 0: it must be at least 1"),
        (
            {"vector_width": 8, "depths": ("image=2",)},
            MAZE,
            "model.vector_width is 8, but no part of the observation has dense layers: it must be left at 64 "
            "(layers: model.depths)",
        ),
        (
            {"image_scale": 255.0},
            NO_IMAGE,
            "model.image_scale is 255.0, but no part of the observation is an image of integers without its own "
            "scale: it must be left at 10.0 (other parts: model.scales)",
        ),
        (
            {"image_scale": 255.0, "scales": ("image=2",)},
            MAZE,
            "model.image_scale is 255.0, but no part of the observation is an image of integers without its own "
            "scale: it must be left at 10.0 (other parts: model.scales)",
        ),
        (
            {},
            Dict(((ACTION_MASK, Box(0, 1, (3,), "bool")),)),
            "the observation has no part besides 'action_mask': a network needs one (if there is nothing to "
            "see, a constant Box of shape (1,))",
        ),
        (
            {},
            Dict((("a.b", Discrete(2)), ("a", Dict((("b", Discrete(2)),))))),
            "two parts of the observation are called 'a.b': one must be renamed",
        ),
        (
            {},
            Dict((("way", Discrete(2)), ("none", MultiDiscrete(())))),
            "the observation 'none' holds no number (MultiDiscrete(sizes=())): it must be left out",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(settings, space, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        LSTM(**settings).build(space, ACTIONS)


def test_what_just_fits_is_not_refused():
    LSTM(kernel_size=5).build(MAZE, ACTIONS)
    LSTM(depths=("image=2",)).build(MAZE, ACTIONS)
    LSTM(kernel_size=1, depths=("image=9",)).build(MAZE, ACTIONS)
    LSTM(kernel_size=6, depths=("image=0",)).build(MAZE, ACTIONS)
    LSTM(image_scale=255.0).build(MAZE, ACTIONS)
    LSTM(vector_width=8, depths=("speed=1",)).build(MAZE, ACTIONS)
