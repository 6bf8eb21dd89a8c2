"""Projections by changes: equal to the plain product, for images that change as expected and for any others."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.axes import SEED
from minimax_lib.envs.spaces import Box, Dict, Discrete
from minimax_lib.models import slow_images, torso
from minimax_lib.models.s5 import S5Memory
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


def deep(*case, id=None) -> object:
    return pytest.param(*case, marks=pytest.mark.deep, id=id)


IMAGES = {
    "drawing": drawing(0),
    "started anew": started_anew(0),
    "noise": noise(0),
    "nothing changes": np.repeat(drawing(0, 1), T, axis=0),
    "one row": drawing(0, n_rows=1),
    "one step": drawing(0, 1),
    "one step of one row": drawing(0, 1, 1),
}
EACH_IMAGE = [
    deep(x, id=name) if name in ("one row", "one step") else pytest.param(x, id=name) for name, x in IMAGES.items()
]


def weights(seed: int, n_steps: int, n_rows: int) -> tuple:
    """(convolution's kernel and bias, features before and after those of the image, projecting kernel)."""
    rng = np.random.default_rng(seed)
    n_features = 2 + (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * FILTERS + 3
    shapes = [(SIZE * SIZE * CHANNELS, FILTERS), (FILTERS,), (n_steps, n_rows, 2), (n_steps, n_rows, 3)]
    return tuple(rng.normal(size=s).astype(np.float32) for s in (*shapes, (n_features, COLUMNS)))


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


ours_jit, plain_jit = jax.jit(value_and_gradients(by_changes)), jax.jit(value_and_gradients(plain))


@pytest.mark.parametrize("images", EACH_IMAGE)
def test_values_and_gradients_are_those_of_the_plain_product(images):
    arguments = images, *weights(1, *images.shape[:2])
    ours = ours_jit(*arguments)
    assert_close(ours, plain_jit(*arguments))
    assert all(np.any(gradient) for gradient in ours[1])


@pytest.mark.deep
def test_seeds_do_not_mix():
    """Two images may change in different ways: one is a drawing, one is noise."""
    images = np.stack([IMAGES["drawing"], IMAGES["noise"]])
    arguments = images, *jax.tree.map(lambda *x: np.stack(x), weights(1, T, R), weights(2, T, R))
    ours = jax.device_get(jax.jit(jax.vmap(value_and_gradients(by_changes), axis_name=SEED))(*arguments))
    for seed in range(2):
        alone = plain_jit(*jax.tree.map(lambda x, seed=seed: x[seed], arguments))
        assert_close(jax.tree.map(lambda x, seed=seed: x[seed], ours), alone)


@jax.jit
def every_change(images):
    """(order, number of tiles) of every window."""
    kernel, bias, *_ = weights(1, *images.shape[:2])
    slow = SlowImage(images, Convolution(kernel, bias, SIZE, SCALE))
    n_windows = (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1)

    def of_window(w):
        found = changes(slow, w)
        return found.order, jnp.asarray(found.n_tiles)

    return jax.lax.map(of_window, jnp.arange(n_windows, dtype=jnp.int32))


@pytest.mark.parametrize("images", EACH_IMAGE)
def test_the_changes_are_found(images):
    n_steps, n_rows = images.shape[:2]
    across = WIDTH - SIZE + 1
    orders, all_tiles = jax.device_get(every_change(images))
    for y in range(HEIGHT - SIZE + 1):
        for x in range(across):
            order, n_tiles = orders[y * across + x], all_tiles[y * across + x]
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
    rng = np.random.default_rng(0)
    return {
        "image": started_anew(3),
        "time": rng.integers(0, T, (T, R)).astype(np.int32),
        "noise": rng.random((T, R, 5)).astype(np.float32),
    }


FIRST = np.zeros((T, R), bool)
FIRST[[0, 0, 0, 6], [0, 1, 2, 1]] = True


def first_parameters(key, model, obs):
    return model.init(key, obs, model.init_carry((R,)), FIRST)


def some_parameters(model, obs):
    """Parameters that all matter. Nothing is compiled, except for S5, which has numbers that cannot be just any."""
    init, key, rng = (
        functools.partial(first_parameters, model=model, obs=obs),
        jax.random.key(0),
        np.random.default_rng(1),
    )
    if isinstance(getattr(model, "memory", None), S5Memory):
        start = jax.device_get(jax.jit(init)(key))
    else:
        start = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(init, key))
    return jax.tree.map(lambda x: x + 0.25 * rng.normal(size=x.shape).astype(np.float32), start)


def outputs(model, params, obs):
    return model.apply(params, obs, model.init_carry((R,)), FIRST)[:2]


@pytest.mark.parametrize("name", [name if name == "heads alone" else deep(name, id=name) for name in NETWORKS])
def test_the_network_is_the_same(name):
    usual, slow = (NETWORKS[name].build(space, ACTIONS) for space in (TEACHER, SLOW_TEACHER))

    @jax.jit
    def both(params, obs):
        def objective(params, model):
            logits, values = outputs(model, params, obs)
            return (jnp.sin(logits).sum() + (values**2).sum()), (logits, values)

        return [jax.value_and_grad(objective, has_aux=True)(params, model) for model in (slow, usual)]

    obs = teacher_observations()
    assert_close(*both(some_parameters(usual, obs), obs))


@pytest.mark.parametrize("name", [name if name == "heads alone" else deep(name, id=name) for name in NETWORKS])
@pytest.mark.deep
def test_the_network_starts_the_same(name):
    usual, slow = (NETWORKS[name].build(space, ACTIONS) for space in (TEACHER, SLOW_TEACHER))
    params = jax.jit(lambda key, obs: [first_parameters(key, model, obs) for model in (usual, slow)])
    jax.tree.map(np.testing.assert_array_equal, *params(jax.random.key(0), teacher_observations()))


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
    model, obs = settings.build(SLOW_TEACHER, ACTIONS), teacher_observations()
    params = some_parameters(model, obs)
    gradient = jax.grad(lambda params: sum(x.sum() for x in outputs(model, params, obs)))
    n_features = (HEIGHT - SIZE + 1) * (WIDTH - SIZE + 1) * settings.conv_filters
    assert (largest_array(jax.make_jaxpr(gradient)(params).jaxpr) < T * R * n_features) == cheap


def test_acting_step_by_step_is_the_same_without_a_loop():
    settings = LSTM(conv_filters=4, memory_width=3, head_width=2)
    model, obs = settings.build(SLOW_TEACHER, ACTIONS), teacher_observations()

    def act(params, obs, carry, first):
        """A step [R, ...], as a sequence of one."""
        return model.apply(params, *jax.tree.map(lambda x: x[None], (obs,)), carry, first[None])

    @jax.jit
    def both(params, obs):
        def step(carry, x):
            logits, values, carry = act(params, x[0], carry, x[1])
            return carry, (logits[0], values[0])

        return jax.lax.scan(step, model.init_carry((R,)), (obs, FIRST))[1], outputs(model, params, obs)

    params = some_parameters(model, obs)
    assert_close(*both(params, obs))
    carry = jax.eval_shape(lambda: model.init_carry((R,)))
    one_step = jax.make_jaxpr(act)(params, jax.tree.map(lambda x: x[0], obs), carry, FIRST[0])
    assert "while" not in str(one_step)


def of_two_pictures(dtypes: tuple[str, str], slowly: bool) -> Dict:
    """Observations with two drawings of different sizes, and a number between them."""
    first = Box(0, 2, (HEIGHT, WIDTH, CHANNELS), dtypes[0], changes_slowly=slowly)
    second = Box(0, 2, (HEIGHT - 2, WIDTH - 1, CHANNELS), dtypes[1], changes_slowly=slowly)
    return Dict((("first", first), ("time", Discrete(T)), ("second", second)))


def two_pictures(dtypes: tuple[str, str]) -> dict:
    first, second = drawing(5), started_anew(6)[:, :, :-2, :-1]
    time = np.random.default_rng(0).integers(0, T, (T, R)).astype(np.int32)
    return {"first": first.astype(dtypes[0]), "time": time, "second": second.astype(dtypes[1])}


@pytest.mark.deep
@pytest.mark.parametrize("dtypes", [("int32", "float32"), deep(("uint8", "bool"))])
def test_two_pictures_are_both_taken_as_they_are(dtypes):
    """Each image has its own scale. The features of floats are computed in full, those of the other by changes."""
    settings = LSTM(conv_filters=3, memory_width=4, head_width=4, scales=("first=3", "second=0.5"))
    usual, slow = (settings.build(of_two_pictures(dtypes, slowly), ACTIONS) for slowly in (False, True))

    @jax.jit
    def both(params, obs):
        def objective(params, model):
            return sum(jnp.sin(x).sum() for x in outputs(model, params, obs))

        return [jax.value_and_grad(objective)(params, model) for model in (slow, usual)]

    obs = two_pictures(dtypes)
    ours, expected = both(some_parameters(usual, obs), obs)
    assert_close(ours, expected)
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
