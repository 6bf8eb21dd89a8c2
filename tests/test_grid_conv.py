"""The network of Prioritized Level Replay's grid worlds: what it computes, its first weights, and what it refuses."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.registry import make_env
from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete
from minimax_lib.models import small_convolutions
from minimax_lib.models.grid_conv import GridConv
from minimax_lib.models.registry import MODELS
from minimax_lib.testing.models import check_model

KEY = jax.random.key(0)
IMAGE = Box(0, 10, (9, 8, 3), "uint8")  # the first convolution makes 8 x 7, of which pooling drops a column
SPACE = Dict(
    (
        ("image", IMAGE),
        ("direction", Discrete(4)),
        ("carrying", Box(0, 10, (3,), "uint8")),
        ("codes", MultiDiscrete((2, 3))),
    )
)
N_CHANNELS = 3 + 4 + 3 + 2 + 3
T, R, ACTIONS, FILTERS, WIDTH = 2, 3, 5, 6, 4


@pytest.fixture(scope="module")
def network():
    return GridConv(last_filters=FILTERS, head_width=WIDTH, n_values=2).build(SPACE, Discrete(ACTIONS))


@pytest.fixture(scope="module")
def obs():
    draw = jax.vmap(jax.vmap(SPACE.sample))
    return jax.device_get(jax.jit(lambda key: draw(jax.random.split(key, (T, R))))(jax.random.key(1)))


@pytest.fixture(scope="module")
def drawn(network, obs):
    """The first parameters."""
    one = jax.tree.map(lambda x: x[:1, :1], obs)
    return jax.device_get(jax.jit(network.init)(KEY, one, (), np.ones((1, 1), bool)))


@pytest.fixture(scope="module")
def params(drawn):
    """Parameters without zeros, so that everything counts."""
    random = np.random.default_rng(0)
    return jax.tree.map(lambda x: x + random.normal(0, 0.2, x.shape).astype(np.float32), drawn)


def channels(obs) -> np.ndarray:
    """[T * R, h, w, channels]: the image, with a plane for everything else."""
    obs = jax.tree.map(np.asarray, obs)
    one_hot = [np.eye(4)[obs["direction"]], np.eye(2)[obs["codes"][..., 0]], np.eye(3)[obs["codes"][..., 1]]]
    direction, first, second = one_hot
    planes = np.concatenate([direction, obs["carrying"], first, second], axis=-1)
    planes = np.broadcast_to(planes[:, :, None, None], (T, R, 9, 8, N_CHANNELS - 3))
    return np.concatenate([obs["image"], planes], axis=-1).reshape(T * R, 9, 8, N_CHANNELS)


def convolved(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """ReLU of a 2 x 2 convolution of one image [h, w, c], window by window."""
    out = np.zeros((x.shape[0] - 1, x.shape[1] - 1, kernel.shape[-1]))
    for y, z in np.ndindex(*out.shape[:2]):
        for f in range(kernel.shape[-1]):
            out[y, z, f] = max(0.0, (x[y : y + 2, z : z + 2] * kernel[..., f]).sum() + bias[f])
    return out


def test_outputs_equal_those_of_plain_loops(network, obs, params):
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    logits, values, carry = jax.device_get(jax.jit(network.apply)(params, obs, (), np.zeros((T, R), bool)))
    assert logits.shape == (T, R, ACTIONS)
    assert values.shape == (T, R, 2)
    assert carry == ()
    for i, x in enumerate(channels(obs)):
        x = convolved(x, p["conv_0_kernel"], p["conv_0_bias"])
        x = np.array([[x[y : y + 2, z : z + 2].max(axis=(0, 1)) for z in (0, 2, 4)] for y in (0, 2, 4, 6)])
        x = convolved(x, p["conv_1_kernel"], p["conv_1_bias"])
        x = convolved(x, p["conv_2_kernel"], p["conv_2_bias"]).transpose(2, 0, 1).ravel()
        branches = np.tanh(x @ p["heads"]["kernel"] + p["heads"]["bias"])
        policy = branches[:WIDTH] @ p["policy"]["kernel"] + p["policy"]["bias"]
        value = branches[WIDTH:] @ p["value"]["kernel"] + p["value"]["bias"]
        np.testing.assert_allclose(logits.reshape(-1, ACTIONS)[i], policy, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(values.reshape(-1, 2)[i], value, rtol=1e-4, atol=1e-4)


class Flax(nn.Module):
    """The same network from flax's own layers, which reads all channels as one image."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(16, (2, 2), padding="VALID", name="conv_0")(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = nn.relu(nn.Conv(32, (2, 2), padding="VALID", name="conv_1")(x))
        x = nn.relu(nn.Conv(FILTERS, (2, 2), padding="VALID", name="conv_2")(x))
        x = nn.tanh(nn.Dense(2 * WIDTH, name="heads")(x.transpose(0, 3, 1, 2).reshape(len(x), -1)))
        return nn.Dense(ACTIONS, name="policy")(x[:, :WIDTH]), nn.Dense(2, name="value")(x[:, WIDTH:])


def as_flax(params) -> dict:
    """The parameters of `GridConvNet` in the form of `Flax`."""
    inner = dict(params["params"])
    for i in range(3):
        inner[f"conv_{i}"] = {name: inner.pop(f"conv_{i}_{name}") for name in ("kernel", "bias")}
    return {"params": inner}


@pytest.mark.parametrize("on_cpu", [True, False])
def test_gradients_equal_those_of_flax(on_cpu, network, obs, params, monkeypatch):
    """Both of the products of a CPU and of the convolutions of an accelerator."""
    monkeypatch.setattr(small_convolutions, "on_cpu", lambda: on_cpu)
    image = channels(obs).astype(np.float32)

    def ours(params):
        logits, values, _ = network.apply(params, obs, (), jnp.zeros((T, R), bool))
        return (logits**2).sum() + jnp.sin(values).sum()

    def theirs(params):
        logits, values = Flax().apply(params, image)
        return (logits**2).sum() + jnp.sin(values).sum()

    found, wanted = as_flax(jax.jit(jax.grad(ours))(params)), jax.jit(jax.grad(theirs))(as_flax(params))
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(found), strict=True):
        assert np.abs(x).max() > 0
        np.testing.assert_allclose(y, x, rtol=1e-3, atol=1e-4 * np.abs(x).max(), err_msg=str(path))


@pytest.mark.parametrize(
    ("family", "last_filters", "see_carrying", "count"),
    [
        # 208 + 2,080 + 4,128 in the convolutions, 512 x 128 + 128 in the branches, 64 x 7 + 7 and 64 + 1 in the heads.
        ("multi_room_n4_random", 32, False, 72_600),
        # 208 + 2,080 + 8,256, then 3,136 x 128 + 128, and the same heads.
        ("obstructed_maze_gamut_easy", 64, False, 412_600),
        ("multi_room_n4_random", 32, True, 72_600 + 3 * 4 * 16),
    ],
)
def test_the_published_networks_have_their_number_of_parameters(family, last_filters, see_carrying, count):
    env = make_env("GridWorld", family=family, observation="full", see_carrying=see_carrying, see_target=False)
    network = GridConv(last_filters).build(env.observation_space, env.action_space)

    def init(key):
        obs = jax.tree.map(lambda x: x[None, None], env.observation_space.sample(key))
        return network.init(key, obs, (), jnp.ones((1, 1), bool))

    params = jax.eval_shape(init, KEY)
    assert sum(x.size for x in jax.tree.leaves(params)) == count


def test_the_first_weights_are_the_published_ones(drawn):
    p = drawn["params"]
    for name, n_inputs, n_filters in (("conv_0", N_CHANNELS, 16), ("conv_1", 16, 32), ("conv_2", 32, FILTERS)):
        bound, kernel = np.sqrt(6 / (4 * n_inputs + 4 * n_filters)), np.abs(p[f"{name}_kernel"])
        assert 0.95 * bound < kernel.max() <= bound
        np.testing.assert_allclose(kernel.mean(), bound / 2, rtol=0.1)  # uniform
        assert not p[f"{name}_bias"].any()
    policy, value = np.split(np.asarray(p["heads"]["kernel"]), 2, axis=1)
    for kernel, gain in ((policy, 2**0.5), (value, 2**0.5), (p["value"]["kernel"], 1.0), (p["policy"]["kernel"], 0.01)):
        rows, columns = kernel.shape
        gram = kernel.T @ kernel if rows >= columns else kernel @ kernel.T
        np.testing.assert_allclose(gram, gain**2 * np.eye(min(rows, columns)), atol=1e-5 * gain**2)
    assert not any(p[name]["bias"].any() for name in ("heads", "policy", "value"))


@pytest.mark.deep
def test_it_conforms_on_all_that_a_grid_world_shows():
    assert MODELS["grid_conv"] is GridConv
    check_model(GridConv(last_filters=2, head_width=4, n_values=2), GridWorld(), KEY)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            Dict((("image", Box(0, 10, (6, 9, 3), "uint8")), ("direction", Discrete(4)))),
            "the observation 'image' is 6x9: for the model grid_conv, it must be at least 7x7 (any size: ff)",
        ),
        (
            Box(0.0, 1.0, (4,)),
            "the model grid_conv reads one image, but the images in the observation are none: choose ff",
        ),
        (
            Dict((("map", IMAGE), ("view", IMAGE))),
            "the model grid_conv reads one image, but the images in the observation are 'map', 'view': choose ff",
        ),
    ],
)
def test_observations_that_it_cannot_read_are_refused(space, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        GridConv().build(space, Discrete(7))


@pytest.mark.parametrize("name", ["last_filters", "head_width", "n_values"])
def test_impossible_settings_are_refused(name):
    with pytest.raises(ValueError, match=f"^model.{name} is 0: it must be at least 1$"):
        GridConv(**{name: 0})
