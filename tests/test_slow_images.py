"""Projections by changes: equal to the plain product, for images that change as expected and for any others."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.axes import SEED
from minimax_lib.envs.spaces import Box, Dict, Discrete
from minimax_lib.models import slow_images, torso
from minimax_lib.models.settings import GRU, LSTM, S5, FeedForward
from minimax_lib.models.slow_images import Convolution, SlowFeatures, SlowImage, changes, project

T, R, HEIGHT, WIDTH, CHANNELS, SIZE, FILTERS, COLUMNS, SCALE = 10, 3, 6, 5, 2, 3, 4, 7, 5.0


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """A window changes more often than a tile holds, and the number is not a multiple of a tile."""
    monkeypatch.setattr(slow_images, "TILE", 4)


def drawing(seed: int, n_steps: int = T, n_rows: int = R) -> np.ndarray:
    """u8[T, R, h, w, c]: each step draws one cell, which may stay as it was. Rows start from different images."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 3, (n_rows, HEIGHT, WIDTH, CHANNELS), np.uint8)
    steps = []
    for _ in range(n_steps):
        steps.append(image.copy())
        for row in image:
            row[rng.integers(HEIGHT), rng.integers(WIDTH)] = rng.integers(0, 3)
    return np.stack(steps)


def started_anew(seed: int) -> np.ndarray:
    """A drawing of which one row begins again, from another image."""
    images = drawing(seed)
    images[6:, 1] = drawing(seed + 1)[: T - 6, 1]
    return images


def noise(seed: int) -> np.ndarray:
    """Everything changes in every step."""
    return np.random.default_rng(seed).integers(0, 256, (T, R, HEIGHT, WIDTH, CHANNELS), np.uint8)


IMAGES = {
    "drawing": drawing(0),
    "started anew": started_anew(0),
    "noise": noise(0),
    "nothing changes": np.repeat(drawing(0, 1), T, axis=0),
    "one row": drawing(0, n_rows=1),
    "one step": drawing(0, 1),
    "one step of one row": drawing(0, 1, 1),
}


def weights(seed: int, n_steps: int, n_rows: int) -> tuple:
    """(convolution's kernel and bias, features before and after those of the image, projecting kernel)."""
    rng = np.random.default_rng(seed)
    n_features = 2 + (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * FILTERS + 3
    shapes = [(SIZE * SIZE * CHANNELS, FILTERS), (FILTERS,), (n_steps, n_rows, 2), (n_steps, n_rows, 3)]
    return tuple(jnp.asarray(rng.normal(size=s), jnp.float32) for s in (*shapes, (n_features, COLUMNS)))


def by_changes(images, kernel, bias, before, after, projection):
    slow = SlowImage(images, Convolution(kernel, bias, SIZE, SCALE))
    return project(SlowFeatures((before, slow, after)), projection)


def plain(images, kernel, bias, before, after, projection):
    """The same with flax's convolution of every image."""
    conv = nn.Conv(FILTERS, (SIZE, SIZE), padding="VALID")
    params = {"kernel": kernel.reshape(SIZE, SIZE, CHANNELS, FILTERS), "bias": bias}
    features = nn.relu(conv.apply({"params": params}, images.astype(jnp.float32) / SCALE))
    return jnp.concatenate([before, features.reshape(*images.shape[:2], -1), after], axis=-1) @ projection


def value_and_gradients(function):
    """Gradients of a sum in which every entry has a different weight."""

    def objective(images, *weights):
        out = function(images, *weights)
        return (out * jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)).sum(), out

    return jax.value_and_grad(objective, argnums=(1, 2, 3, 4, 5), has_aux=True)


def assert_close(x, y):
    for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("images", IMAGES.values(), ids=IMAGES.keys())
def test_values_and_gradients_are_those_of_the_plain_product(images):
    arguments = jnp.asarray(images), *weights(1, *images.shape[:2])
    ours = jax.jit(value_and_gradients(by_changes))(*arguments)
    assert_close(ours, jax.jit(value_and_gradients(plain))(*arguments))
    assert all(np.any(gradient) for gradient in ours[1])


def test_seeds_do_not_mix():
    """Two images may change in different ways: one is a drawing, one is noise."""
    images = jnp.stack([IMAGES["drawing"], IMAGES["noise"]])
    arguments = images, *jax.tree.map(lambda *x: jnp.stack(x), weights(1, T, R), weights(2, T, R))
    ours = jax.jit(jax.vmap(value_and_gradients(by_changes), axis_name=SEED))(*arguments)
    for seed in range(2):
        alone = jax.jit(value_and_gradients(plain))(*jax.tree.map(lambda x, seed=seed: x[seed], arguments))
        assert_close(jax.tree.map(lambda x, seed=seed: x[seed], ours), alone)


@pytest.mark.parametrize("images", IMAGES.values(), ids=IMAGES.keys())
def test_the_changes_are_found(images):
    n_steps, n_rows = images.shape[:2]
    kernel, bias, *_ = weights(1, n_steps, n_rows)
    slow = SlowImage(jnp.asarray(images), Convolution(kernel, bias, SIZE, SCALE))
    across = WIDTH - SIZE + 1
    find = jax.jit(lambda w: (lambda found: (found.order, found.n_tiles))(changes(slow, w)))
    for y in range(HEIGHT - SIZE + 1):
        for x in range(across):
            order, n_tiles = find(jnp.int32(y * across + x))
            window = images[:, :, y : y + SIZE, x : x + SIZE]
            expected = [
                t * n_rows + r
                for t in range(n_steps)
                for r in range(n_rows)
                if t == 0 or (window[t, r] != window[t - 1, r]).any()
            ]
            assert order.reshape(-1)[: len(expected)].tolist() == expected
            assert (order.reshape(-1)[len(expected) :] == n_steps * n_rows).all()
            assert n_tiles == -(-len(expected) // order.shape[1])


# ------------------------------------------------------------------------------------------- networks

TEACHER = Dict(
    (
        ("image", Box(0, 2, (HEIGHT, WIDTH, CHANNELS), "uint8")),
        ("time", Discrete(T)),
        ("noise", Box(0.0, 1.0, (5,))),
    )
)
SLOW_TEACHER = Dict(
    tuple((name, s if name != "image" else dataclasses.replace(s, changes_slowly=True)) for name, s in TEACHER.items)
)
ACTIONS = Discrete(6)
NETWORKS = {
    "lstm": LSTM(conv_filters=3, memory_width=4, head_width=4),
    "wide lstm": LSTM(conv_filters=1, memory_width=32, head_width=4),
    "gru": GRU(conv_filters=3, memory_width=4, head_width=4),
    "s5": S5(conv_filters=3, memory_width=4, state_size=4, head_width=4),
    "feed-forward": FeedForward(conv_filters=3, dense_width=4, head_width=4),
    "heads alone": FeedForward(conv_filters=3, dense_width=0, head_width=4),
}


def teacher_observations():
    k_noise, k_time = jax.random.split(jax.random.key(0))
    return {
        "image": jnp.asarray(started_anew(3)),
        "time": jax.random.randint(k_time, (T, R), 0, T, jnp.int32),
        "noise": jax.random.uniform(k_noise, (T, R, 5), jnp.float32),
    }


def outputs(model, obs):
    """Function of the parameters, and parameters that all matter."""
    first = jnp.zeros((T, R), bool).at[0].set(True).at[6, 1].set(True)
    carry = model.init_carry((R,))
    params = jax.jit(model.init)(jax.random.key(0), obs, carry, first)
    keys = iter(jax.random.split(jax.random.key(1), 64))
    disturbed = jax.tree.map(lambda x: x + 0.2 * jax.random.normal(next(keys), x.shape, jnp.float32), params)
    return (lambda params: model.apply(params, obs, carry, first)[:2]), params, disturbed


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS.keys())
def test_the_network_is_the_same(settings):
    obs = teacher_observations()
    usual, params, disturbed = outputs(settings.build(TEACHER, ACTIONS), obs)
    slow, slow_params, _ = outputs(settings.build(SLOW_TEACHER, ACTIONS), obs)
    jax.tree.map(np.testing.assert_array_equal, params, slow_params)

    def both(function):
        def objective(params):
            logits, values = function(params)
            return (jnp.sin(logits).sum() + (values**2).sum()), (logits, values)

        return jax.jit(jax.value_and_grad(objective, has_aux=True))(disturbed)

    assert_close(both(slow), both(usual))


def largest_array(jaxpr) -> int:
    """Entries of the largest result of any operation, those of inner programs included."""
    sizes = [variable.aval.size for equation in jaxpr.eqns for variable in equation.outvars]
    for equation in jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                sizes.append(largest_array(inner))
    return max(sizes, default=0)


@pytest.mark.parametrize("cheap", [True, False])
def test_features_are_not_all_computed_where_changes_are_cheap(cheap, monkeypatch):
    monkeypatch.setattr(torso, "changes_are_cheap", lambda n_steps: cheap)
    settings = LSTM(conv_filters=32, memory_width=1, head_width=1)
    function, params, _ = outputs(settings.build(SLOW_TEACHER, ACTIONS), teacher_observations())
    gradient = jax.grad(lambda params: sum(x.sum() for x in function(params)))
    n_features = (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * settings.conv_filters
    assert (largest_array(jax.make_jaxpr(gradient)(params).jaxpr) < T * R * n_features) == cheap


def test_acting_step_by_step_is_the_same_without_a_loop():
    settings = LSTM(conv_filters=4, memory_width=3, head_width=2)
    model, obs = settings.build(SLOW_TEACHER, ACTIONS), teacher_observations()
    whole, _, params = outputs(model, obs)
    first = jnp.zeros((T, R), bool).at[0].set(True).at[6, 1].set(True)
    carry, steps = model.init_carry((R,)), []
    act = jax.jit(model.apply)
    for t in range(T):
        one = jax.tree.map(lambda x, t=t: x[t : t + 1], obs)
        logits, values, carry = act(params, one, carry, first[t : t + 1])
        steps.append((logits, values))
    assert_close(jax.tree.map(lambda *xs: jnp.concatenate(xs), *steps), jax.jit(whole)(params))
    one_step = jax.make_jaxpr(model.apply)(params, jax.tree.map(lambda x: x[:1], obs), carry, first[:1])
    assert "while" not in str(one_step)


def of_two_pictures(dtypes: tuple[str, str], slowly: bool) -> Dict:
    """Observations with two drawings of different sizes, and a number between them."""
    first = Box(0, 2, (HEIGHT, WIDTH, CHANNELS), dtypes[0], changes_slowly=slowly)
    second = Box(0, 2, (HEIGHT - 2, WIDTH - 1, CHANNELS), dtypes[1], changes_slowly=slowly)
    return Dict((("first", first), ("time", Discrete(T)), ("second", second)))


def two_pictures(dtypes: tuple[str, str]) -> dict:
    first, second = jnp.asarray(drawing(5)), jnp.asarray(started_anew(6))[:, :, :-2, :-1]
    time = jax.random.randint(jax.random.key(0), (T, R), 0, T, jnp.int32)
    return {"first": first.astype(dtypes[0]), "time": time, "second": second.astype(dtypes[1])}


@pytest.mark.parametrize("dtypes", [("uint8", "bool"), ("int32", "float32")])
def test_two_pictures_are_both_taken_as_they_are(dtypes):
    """Each image has a scale of its own. The features of floats are computed in full, those of the other by changes."""
    settings = LSTM(conv_filters=3, memory_width=4, head_width=4, scales=("first=3", "second=0.5"))
    obs = two_pictures(dtypes)
    usual, _, disturbed = outputs(settings.build(of_two_pictures(dtypes, False), ACTIONS), obs)
    slow, _, _ = outputs(settings.build(of_two_pictures(dtypes, True), ACTIONS), obs)

    def both(function):
        return jax.jit(jax.value_and_grad(lambda params: sum(jnp.sin(x).sum() for x in function(params))))(disturbed)

    ours = both(slow)
    assert_close(ours, both(usual))
    pictures = [ours[1]["params"]["torso"][name]["conv"] for name in ("first", "second")]
    assert all(np.any(gradient) for gradient in jax.tree.leaves(pictures))


@pytest.mark.parametrize(
    ("dtypes", "depths", "by_changes"),
    [
        (("uint8", "bool"), (), 2),
        (("uint8", "bool"), ("first=2",), 1),
        (("uint8", "bool"), ("first=0", "second=2"), 0),
        (("uint8", "float32"), (), 1),
        (("float32", "float16"), (), 0),
    ],
)
def test_only_one_convolution_of_whole_numbers_goes_by_changes(dtypes, depths, by_changes):
    settings = FeedForward(conv_filters=3, kernel_size=2, depths=depths)
    model = settings.build(of_two_pictures(dtypes, True), ACTIONS)
    obs = two_pictures(dtypes)
    params = jax.eval_shape(model.torso.init, jax.random.key(0), obs)
    found = jax.eval_shape(model.torso.apply, params, obs)
    parts = found.parts if isinstance(found, SlowFeatures) else (found,)
    assert sum(isinstance(part, SlowImage) for part in parts) == by_changes
