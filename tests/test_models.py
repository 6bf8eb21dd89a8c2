"""Networks: any observation space, memory, its backward pass, initial weights, and what is refused."""

import dataclasses
import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.registry import make_env
from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete
from minimax_lib.models import activations, recurrence
from minimax_lib.models.initializers import orthogonal, polar_factor
from minimax_lib.models.memory import GRU_CELL, LSTM_CELL, GRUCarry, GRUMemory, LSTMCarry
from minimax_lib.models.recurrence import Weights, recur
from minimax_lib.models.registry import MODELS, register_model
from minimax_lib.models.s5 import S5Memory
from minimax_lib.models.settings import GRU, LSTM, S5, FeedForward, NetworkSettings
from minimax_lib.models.torso import windows
from minimax_lib.models.towers import Towers

MAZE = Dict((("image", Box(0, 10, (5, 5, 3), "uint8")), ("direction", Discrete(4))))
LARGE = Dict((("image", Box(0, 10, (7, 7, 3), "uint8")), ("direction", Discrete(4))))  # for every model
TEACHER = Dict((("image", Box(0, 10, (15, 15, 3), "uint8")), ("time", Discrete(63)), ("noise", Box(0.0, 1.0, (50,)))))
ACTIONS = Discrete(7)
T, R = 6, 3
ANY_SPACE = [name for name in MODELS.names() if issubclass(MODELS[name], NetworkSettings)]  # of the observations


KEY = jax.random.key(0)


def observations(key: jax.Array, space, *leading: int):
    """Random observations [*leading, ...]. To be called inside of a program, as the next two."""
    keys = jax.random.split(key, leading)
    sample = space.sample
    for _ in leading:
        sample = jax.vmap(sample)
    return sample(keys)


def initialised(key: jax.Array, model, space):
    obs = observations(key, space, 1, 1)
    return model.init(key, obs, model.init_carry((1,)), jnp.ones((1, 1), bool))


def disturbed(params, scale: float = 0.2):
    """Parameters without zeros, so that everything contributes to the output."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: x + scale * rng.normal(size=x.shape).astype(np.float32), params)


def some_parameters(model, space):
    """Parameters without zeros. Nothing is compiled, unless the model has numbers that cannot be just any."""
    init = functools.partial(initialised, model=model, space=space)
    if isinstance(getattr(model, "memory", None), S5Memory):
        return disturbed(jax.device_get(jax.jit(init)(KEY)))
    shapes = jax.eval_shape(init, KEY)
    return disturbed(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))


def deep(*case) -> object:
    return pytest.param(*case, marks=pytest.mark.deep)


def sizes(params) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(params["params"])
    return {"/".join(k.key for k in path): leaf.shape for path, leaf in leaves}


# ------------------------------------------------------------------------------------------- the published student


def test_defaults_are_the_published_student():
    params = jax.eval_shape(lambda key: initialised(key, LSTM().build(MAZE, ACTIONS), MAZE), KEY)
    assert sizes(params) == {
        "torso/image/conv/kernel": (27, 16),
        "torso/image/conv/bias": (16,),
        "torso/direction/embedding": (4, 5),
        "memory/input_kernel": (9 * 16 + 5, 4 * 256),
        "memory/recurrent_kernel": (256, 4 * 256),
        "memory/bias": (4 * 256,),
        "heads/kernel": (256, 2 * 32),
        "heads/bias": (2 * 32,),
        "policy/kernel": (32, 7),
        "policy/bias": (7,),
        "value/kernel": (32, 1),
        "value/bias": (1,),
    }


@pytest.mark.parametrize("name", [name if name == "ff" else deep(name) for name in ANY_SPACE])
def test_the_policy_starts_uniform_and_biases_at_zero(name):
    model = MODELS[name]().build(MAZE, ACTIONS)

    @jax.jit
    def outputs(key):
        params, obs = initialised(key, model, MAZE), observations(key, MAZE, T, R)
        return params, *model.apply(params, obs, model.init_carry((R,)), jnp.zeros((T, R), bool))

    params, logits, value, _ = jax.device_get(outputs(KEY))
    np.testing.assert_array_equal(logits, np.zeros((T, R, 7)))
    assert np.std(value) > 0
    biases = [x for path, x in jax.tree_util.tree_leaves_with_path(params) if path[-1].key.endswith("bias")]
    assert biases
    assert not any(b.any() for b in biases)


def test_heads_of_policy_and_value_are_separate():
    model = FeedForward(dense_width=8, head_width=4).build(MAZE, ACTIONS)

    @jax.jit
    def gradient(key, params):
        def values(params):
            return model.apply(params, observations(key, MAZE, T, R), (), jnp.zeros((T, R), bool))[1].sum()

        return jax.grad(values)(params)

    kernel = np.asarray(gradient(KEY, some_parameters(model, MAZE))["params"]["heads"]["kernel"])
    assert not kernel[:, :4].any()
    assert kernel[:, 4:].any()


# ------------------------------------------------------------------------------------------- observations

SPACES = {
    "maze": MAZE,
    "teacher": TEACHER,
    "one image": Box(0, 255, (4, 6, 1), "uint8"),
    "one number": Discrete(3),
    "one vector": Box(-1.0, 1.0, (4,)),
    "integer vector": Dict((("position", Box(0, 12, (2,), "int32")),)),
    "several numbers": MultiDiscrete((2, 3)),
    "pictures of all types": Dict(
        (
            ("map", Box(0, 10, (3, 3, 2), "int32")),
            ("heat", Box(0.0, 1.0, (4, 3, 1))),
            ("walls", Box(0, 1, (3, 4, 1), "bool")),
        )
    ),
    "nested": Dict((("inner", MAZE), ("direction", Discrete(2)), ("matrix", Box(0.0, 1.0, (2, 3))))),
}


@pytest.mark.parametrize("name", [name if name == "nested" else deep(name) for name in SPACES])
def test_any_space_makes_a_network(name):
    space = SPACES[name]
    model = GRU(conv_filters=2, memory_width=4, head_width=4).build(space, ACTIONS)
    n_parts = len(jax.tree.leaves(jax.eval_shape(lambda key: observations(key, space, T, R), KEY)))

    @jax.jit
    def outputs(key, params):
        """Of the observations, and of those of which one part has been turned round in time and over the rows."""
        obs = observations(key, space, T, R)
        leaves, tree = jax.tree.flatten(obs)
        turned = [
            tree.unflatten([x[::-1, ::-1] if i == j else x for j, x in enumerate(leaves)]) for i in range(n_parts)
        ]
        every = jax.tree.map(lambda *x: jnp.stack(x), obs, *turned)
        return jax.vmap(lambda obs: model.apply(params, obs, model.init_carry((R,)), jnp.zeros((T, R), bool)))(every)

    every = jax.device_get(outputs(KEY, some_parameters(model, space)))
    logits, value, carry = jax.tree.map(lambda x: x[0], every)
    assert logits.shape == (T, R, 7)
    assert value.shape == (T, R, 1)
    assert carry.hidden.shape == (R, 4)
    assert logits.dtype == value.dtype == carry.hidden.dtype == jnp.float32
    # every part of the observation matters
    assert len(every[1]) == 1 + n_parts
    for changed in every[1][1:]:
        assert (changed != value).any()


def test_the_window_product_is_the_convolution():
    space = Box(0, 10, (5, 7, 3), "uint8")
    model = FeedForward(conv_filters=4, dense_width=0).build(space, ACTIONS)

    @jax.jit
    def both(key, params):
        image = observations(key, space, T, R)
        features = model.torso.apply({"params": params["params"]["torso"]}, image)
        conv = params["params"]["torso"]["observation"]["conv"]
        plain = nn.Conv(4, (3, 3), padding="VALID").apply(
            {"params": {"kernel": conv["kernel"].reshape(3, 3, 3, 4), "bias": conv["bias"]}}, image / 10.0
        )
        return features, nn.relu(plain).reshape(T, R, -1)

    np.testing.assert_allclose(*both(KEY, some_parameters(model, space)), rtol=1e-4, atol=1e-5)
    assert jax.eval_shape(lambda key: windows(observations(key, space, T, R), 3), KEY).dtype == jnp.uint8


# ------------------------------------------------------------------------------------------- memory

CELLS = {"lstm": (LSTM_CELL, LSTMCarry), "gru": (GRU_CELL, GRUCarry)}
H, F = 5, 4


def random_sequence(name: str):
    """(cell, weights, features, first, carry). Episodes start at random places."""
    cell, make_carry = CELLS[name]
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    weights = Weights(
        input_kernel=normal(F, cell.n_gates * H),
        recurrent_kernel=normal(H, cell.n_gates * H),
        bias=normal(cell.n_gates * H),
        recurrent_bias=None if cell.is_additive else normal(H),
    )
    n_parts = len(dataclasses.fields(make_carry))
    first = np.zeros((T, R), bool)
    first[[0, 2, T - 1], [0, 1, 2]] = True
    return cell, weights, normal(T, R, F), first, make_carry(*normal(n_parts, R, H))


def plain_scan(cell, weights, features, first, carry):
    """The recurrence as a plain loop, for autodiff."""

    def step(carry, x):
        features_t, first_t = x
        carry = jax.tree.map(lambda c: jnp.where(first_t[:, None], 0.0, c), carry)
        inputs = features_t @ weights.input_kernel + weights.bias[None]
        product = carry.hidden @ weights.recurrent_kernel
        if weights.recurrent_bias is not None:
            product = product.at[:, -H:].add(weights.recurrent_bias[None])
        carry, _ = cell.forward(inputs, product, carry)
        return carry, carry.hidden

    carry, hidden = jax.lax.scan(step, carry, (features, first))
    return hidden, carry


@pytest.mark.parametrize(
    ("name", "ahead"), [("lstm", False), deep("gru", True), deep("lstm", True), deep("gru", False)]
)
def test_the_backward_pass_is_that_of_the_plain_scan(name, ahead, monkeypatch):
    monkeypatch.setattr(recurrence, "projects_ahead", lambda weights, n_steps: ahead)
    cell, weights, features, first, carry = random_sequence(name)
    target = np.random.default_rng(4).normal(size=(T, R, H)).astype(np.float32)

    def objective(run, weights, features, carry):
        hidden, last = run(weights, features, first, carry)
        ends = sum((leaf**3).sum() for leaf in jax.tree.leaves(last))  # a gradient through the last carry too
        return (jnp.sin(hidden) * target).sum() + ends, (hidden, last)

    def ours(*args):
        return recur(cell, 2, *args)

    def plain(*args):
        return plain_scan(cell, *args)

    @jax.jit
    def both(*args):
        gradients = (jax.grad(functools.partial(objective, f), (0, 1, 2), has_aux=True) for f in (ours, plain))
        return [gradient(*args) for gradient in gradients]

    found, expected = both(weights, features, carry)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_the_lstm_is_flax_s():
    _, weights, features, _, carry = random_sequence("lstm")
    gates = ("i", "f", "g", "o")
    split = [np.split(x, 4, axis=-1) for x in (weights.input_kernel, weights.recurrent_kernel, weights.bias)]
    params = {f"i{g}": {"kernel": k} for g, k in zip(gates, split[0], strict=True)}
    params |= {f"h{g}": {"kernel": k, "bias": b} for g, k, b in zip(gates, split[1], split[2], strict=True)}

    @jax.jit
    def both(weights, params, carry):
        def theirs(state, features):
            return nn.LSTMCell(H).apply({"params": params}, state, features)

        ours = recur(LSTM_CELL, 1, weights, features, jnp.zeros((T, R), bool), carry)
        return ours, jax.lax.scan(theirs, (carry.cell, carry.hidden), features)

    (hidden, last), (state, outputs) = both(weights, params, carry)
    np.testing.assert_allclose(hidden, outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last.cell, state[0], rtol=1e-4, atol=1e-5)


def test_the_gru_is_flax_s():
    _, weights, features, _, carry = random_sequence("gru")
    gates = ("r", "z", "n")
    split = [np.split(x, 3, axis=-1) for x in (weights.input_kernel, weights.recurrent_kernel, weights.bias)]
    params = {f"i{g}": {"kernel": k, "bias": b} for g, k, b in zip(gates, split[0], split[2], strict=True)}
    params |= {f"h{g}": {"kernel": k} for g, k in zip(gates, split[1], strict=True)}
    params["hn"]["bias"] = weights.recurrent_bias

    @jax.jit
    def both(weights, params, carry):
        def theirs(state, features):
            return nn.GRUCell(H).apply({"params": params}, state, features)

        ours, _ = recur(GRU_CELL, 1, weights, features, jnp.zeros((T, R), bool), carry)
        return ours, jax.lax.scan(theirs, carry.hidden, features)[1]

    np.testing.assert_allclose(*both(weights, params, carry), rtol=1e-4, atol=1e-5)


def test_the_gru_s_parameters_are_as_many_as_flax_s():
    def both(key):
        args = (jnp.zeros((1, 1, F)), GRUMemory(H).init_carry((1,)), jnp.ones((1, 1), bool))
        return GRUMemory(H).init(key, *args), nn.GRUCell(H).init(key, jnp.zeros((1, H)), jnp.zeros((1, F)))

    ours, theirs = jax.eval_shape(both, jax.random.key(0))
    assert sizes(ours) == {
        "input_kernel": (F, 3 * H),
        "recurrent_kernel": (H, 3 * H),
        "bias": (3 * H,),
        "recurrent_bias": (H,),
    }
    assert sum(x.size for x in jax.tree.leaves(ours)) == sum(x.size for x in jax.tree.leaves(theirs))


SPANNED = [(LSTM, 4, 1, 0), (GRU, 3, 1, None)]  # settings, gates, the gate that keeps, the gate with the opposite bias


def started(key, settings, span, width=8):
    """(network, parameters of its memory) with so many units. To be called inside of a program."""
    model = settings(memory_width=width, memory_span=span).build(MAZE, ACTIONS)
    return model, initialised(key, model, MAZE)["params"]["memory"]


@pytest.mark.parametrize(("settings", "n_gates", "keeps", "against"), SPANNED)
def test_a_memory_with_a_span_starts_with_the_biases_of_the_paper(settings, n_gates, keeps, against):
    """Uniform between 1 and span - 1: the mean of 2,000 is off by more than 5 standard errors once in a million."""
    bias = jax.jit(lambda key: started(key, settings, 101, width=2000)[1]["bias"])(KEY)
    biases = np.array(bias).reshape(n_gates, -1)
    steps = np.exp(biases[keeps])
    assert steps.min() >= 1 - 1e-6
    assert steps.max() <= 100 + 1e-3
    assert abs(steps.mean() - 50.5) < 5 * (99 / 12**0.5) / len(steps) ** 0.5
    for gate in range(n_gates):
        if gate == against:
            np.testing.assert_array_equal(biases[gate], -biases[keeps])
        elif gate != keeps:
            assert not biases[gate].any()


@pytest.mark.parametrize(("settings", "n_gates", "keeps", "against"), SPANNED)
def test_what_a_memory_with_a_span_keeps_without_input(settings, n_gates, keeps, against):
    """With zero kernels, a unit with the bias log(b) keeps b / (1 + b) of itself in each step."""

    @jax.jit
    def after_20_steps(key):
        model, params = started(key, settings, 30)
        params = {k: x if k == "bias" else jnp.zeros_like(x) for k, x in params.items()}
        carry = jax.tree.map(jnp.ones_like, model.init_carry((1,)))
        features = jnp.ones((20, 1, params["input_kernel"].shape[0]))
        return params["bias"], model.memory.apply({"params": params}, features, carry, jnp.zeros((20, 1), bool))[1]

    bias, last = jax.device_get(after_20_steps(KEY))
    b = np.exp(bias.reshape(n_gates, -1)[keeps])
    np.testing.assert_allclose((last.cell if settings is LSTM else last.hidden)[0], (b / (1 + b)) ** 20, rtol=1e-4)


@pytest.mark.parametrize("settings", [LSTM, deep(GRU)])
def test_a_memory_without_a_span_starts_with_no_bias(settings):
    both = jax.jit(lambda key: [started(key, settings, span)[1] for span in (None, 30)])
    without, with_span = jax.device_get(both(KEY))
    assert not without["bias"].any()
    assert with_span["bias"].any()
    for name in ("input_kernel", "recurrent_kernel"):  # a span changes nothing else
        np.testing.assert_array_equal(without[name], with_span[name])


def plain_gru(weights: Weights, features, first, hidden):
    """(hidden [T, R, H], the last one) by the formula as flax and PyTorch document it, gate by gate, for autodiff."""
    w_r, w_z, w_n = jnp.split(weights.input_kernel, 3, axis=1)
    u_r, u_z, u_n = jnp.split(weights.recurrent_kernel, 3, axis=1)
    b_r, b_z, b_n = (b[None] for b in jnp.split(weights.bias, 3))

    def step(h, x):
        x, starts = x
        h = jnp.where(starts[:, None], 0.0, h)
        r = jax.nn.sigmoid(x @ w_r + b_r + h @ u_r)
        z = jax.nn.sigmoid(x @ w_z + b_z + h @ u_z)
        n = jnp.tanh(x @ w_n + b_n + r * (h @ u_n + weights.recurrent_bias[None]))
        h = (1.0 - z) * n + z * h
        return h, h

    last, all_hidden = jax.lax.scan(step, hidden, (features, first))
    return all_hidden, last


@pytest.mark.deep
@pytest.mark.parametrize(
    ("ahead", "dtype", "tolerance"),
    [
        (True, jnp.bfloat16, 0.03),
        deep(False, jnp.float32, 1e-5),
        deep(True, jnp.float32, 1e-5),
        deep(False, jnp.bfloat16, 0.03),
    ],
)
def test_the_gru_s_gradient_is_that_of_the_formula_over_two_rollouts(ahead, dtype, tolerance, monkeypatch):
    """The second rollout begins in the middle of an episode in one row, with a new one in another."""
    monkeypatch.setattr(recurrence, "projects_ahead", lambda weights, n_steps: ahead)
    _, weights, features, _, carry = random_sequence("gru")
    weights, features = jax.tree.map(lambda x: x.astype(dtype), (jax.tree.map(lambda w: w / 2, weights), features))
    firsts = np.zeros((2, T, R), bool)
    firsts[[0, 0, 1, 1, 1], [0, 3, 0, 2, T - 1], [0, 1, 2, 2, 0]] = True
    target = np.random.default_rng(4).normal(size=(2, T, R, H)).astype(np.float32)

    def objective(run, weights, features, hidden):
        loss = 0.0
        for first, target_ in zip(firsts, target, strict=True):
            states, hidden = run(weights, features, first, hidden)
            loss += (states.astype(jnp.float32) * target_).sum()
        return loss + (hidden**2).sum()

    def ours(weights, features, first, hidden):
        states, last = recur(GRU_CELL, 1, weights, features, first, GRUCarry(hidden=hidden))
        return states, last.hidden

    @jax.jit
    def both(weights, features, hidden):
        exact = recurrence.as_type(jnp.float32, (weights, features))
        found, expected = (jax.grad(functools.partial(objective, run), (0, 1, 2)) for run in (ours, plain_gru))
        return found(weights, features, hidden), expected(*exact, hidden)

    found, expected = jax.device_get(both(weights, features, carry.hidden))
    assert found[0].recurrent_bias.dtype == dtype
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert relative_error(x.astype(np.float32), y) < tolerance


@pytest.mark.parametrize(
    "settings",
    [
        LSTM(memory_width=8),
        deep(GRU(memory_width=8)),
        deep(S5(memory_width=8, state_size=8)),
        deep(FeedForward(dense_width=8)),
    ],
)
def test_steps_one_by_one_are_the_sequence(settings):
    model = settings.build(MAZE, ACTIONS)

    @jax.jit
    def both(key, params):
        obs = observations(key, MAZE, T, R)
        start = disturbed(model.init_carry((R,)))

        def step(carry, x):
            obs, first = jax.tree.map(lambda leaf: leaf[None], x)
            logits, value, carry = model.apply(params, obs, carry, first)
            return carry, (logits[0], value[0])

        carry, outputs = jax.lax.scan(step, start, (obs, random_starts()))
        return model.apply(params, obs, start, random_starts()), (*outputs, carry)

    whole, steps = both(KEY, some_parameters(model, MAZE))
    for x, y in zip(jax.tree.leaves(steps), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def random_starts() -> np.ndarray:
    return np.random.default_rng(2).random((T, R)) < 0.3


@pytest.mark.parametrize("name", CELLS)
def test_nothing_passes_from_one_episode_to_the_next(name):
    cell, weights, features, first, carry = random_sequence(name)

    first[:, 1] = np.arange(T) == 2

    def hidden_from_there(features, carry):
        return recur(cell, 1, weights, features, first, carry)[0][2:, 1]

    influence = jax.device_get(jax.jit(jax.jacrev(hidden_from_there, argnums=(0, 1)))(features, carry))
    assert not influence[0][:, :, :2].any()  # features before the episode
    assert influence[0][:, :, 2:, 1].any()
    assert not any(x.any() for x in jax.tree.leaves(influence[1]))


# ------------------------------------------------------------------------------------------- half precision

SMALL = [
    FeedForward(dense_width=16),
    deep(LSTM(memory_width=16)),
    deep(GRU(memory_width=16)),
    deep(S5(memory_width=16, state_size=8)),
]


@pytest.mark.deep
@pytest.mark.parametrize("settings", SMALL)
def test_bfloat16_is_the_same_network_rounded(settings):
    """The error is above that of f32 (1e-7) and below about ten roundings to 8 bits. Types are the same."""
    full = settings.build(MAZE, ACTIONS)
    half = dataclasses.replace(settings, dtype="bfloat16").build(MAZE, ACTIONS)
    shapes, half_shapes = (jax.eval_shape(lambda key, m=m: initialised(key, m, MAZE), KEY) for m in (full, half))
    assert half_shapes == shapes

    @jax.jit
    def both(key, params):
        obs = observations(key, MAZE, T, R)
        carry = disturbed(full.init_carry((R,)))

        def loss(model, params):
            logits, value, last = model.apply(params, obs, carry, random_starts())
            return (logits**2).mean() + (value**2).mean(), (logits, value, last)

        return [jax.grad(functools.partial(loss, model), has_aux=True)(params) for model in (full, half)]

    (gradient, outputs), (rounded_gradient, rounded_outputs) = jax.device_get(both(KEY, some_parameters(full, MAZE)))
    exact, rounded = (gradient, outputs), (rounded_gradient, rounded_outputs)
    assert jax.tree.map(lambda x: x.dtype, exact) == jax.tree.map(lambda x: x.dtype, rounded)
    assert 1e-4 < relative_error(rounded_outputs, outputs) < 0.03
    assert 1e-4 < relative_error(rounded_gradient, gradient) < 0.05


def relative_error(found, exact) -> float:
    """Norm of the difference over the norm."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True))
    return float(np.sqrt(sum((abs(x - y) ** 2).sum() for x, y in pairs) / sum((abs(y) ** 2).sum() for _, y in pairs)))


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_keeps_half_as_much_for_the_backward_pass(name):
    cell, weights, features, first, carry = random_sequence(name)

    def kept(dtype):
        def back():
            inputs = recurrence.as_type(dtype, (weights, features))
            return jax.vjp(lambda w, x: recur(cell, 1, w, x, first, carry), *inputs)[1]

        sequences = [x for x in jax.tree.leaves(jax.eval_shape(back)) if x.ndim == 3 and len(x) == len(first)]
        assert len(sequences) > 4
        return sum(x.size * x.dtype.itemsize for x in sequences)

    assert kept(jnp.bfloat16) == kept(jnp.float32) / 2


# ----------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize("tanh", [activations.rational_tanh, activations.tanh])
def test_tanh_is_that_of_numpy(tanh):
    x = np.concatenate([np.linspace(-12, 12, 100_001), np.logspace(-30, 1, 1000)]).astype(np.float32)
    expected = np.tanh(x.astype(np.float64))
    found = np.asarray(jax.jit(tanh)(x))
    np.testing.assert_allclose(found, expected, rtol=4e-7)
    assert np.abs(found).max() <= 1.0
    special = np.resize(np.array([0, np.inf, -np.inf, np.nan], np.float32), len(x))
    np.testing.assert_array_equal(jax.jit(tanh)(special)[:4].tolist(), [0.0, 1.0, -1.0, np.nan])


def test_sigmoid_is_that_of_numpy():
    x = np.linspace(-30, 30, 100_001).astype(np.float32)
    found = np.asarray(jax.jit(activations.sigmoid)(x))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x.astype(np.float64))), atol=2e-7)
    assert found.min() >= 0.0
    assert found.max() <= 1.0


# ------------------------------------------------------------------------------------------- initial weights


def test_orthogonal_weights():
    shapes = [(9, 9), (12, 5), (5, 12), (16, 1), (40, 10), (2, 3, 4, 8)]
    drawn = jax.jit(lambda key: [orthogonal(3.0)(key, shape) for shape in shapes])(jax.random.key(0))
    for shape, w in zip(shapes, drawn, strict=True):
        assert w.shape == shape
        w = np.asarray(w).reshape(-1, shape[-1]) / 3.0
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=2e-5, err_msg=str(shape))


def test_orthogonal_blocks_are_side_by_side_and_independent():
    w = np.asarray(jax.jit(lambda key: orthogonal(n_blocks=3)(key, (4, 12)))(jax.random.key(0)))
    blocks = [w[:, 4 * i : 4 * i + 4] for i in range(3)]
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(4), atol=2e-5)
    assert not np.allclose(blocks[0], blocks[1])


def test_polar_factor_is_that_of_the_singular_value_decomposition():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(3, *shape)) for shape in [(9, 9), (12, 5), (20, 5), (400, 30)]]
    factors = jax.jit(lambda xs: [polar_factor(x) for x in xs])([x.astype(np.float32) for x in matrices])
    for x, factor in zip(matrices, factors, strict=True):
        left, _, right = np.linalg.svd(x, full_matrices=False)
        np.testing.assert_allclose(factor, left @ right, atol=2e-5, err_msg=str(x.shape))


def test_orthogonal_weights_are_haar():
    """The trace of a Haar matrix has mean 0 and variance 1; thresholds are five standard errors of 4,000 draws."""
    draw = jax.jit(jax.vmap(lambda key: jnp.trace(orthogonal()(key, (6, 6)))))
    traces = np.asarray(draw(jax.random.split(jax.random.key(1), 4000)))
    assert abs(traces.mean()) < 5 / np.sqrt(4000)
    assert abs(traces.var() - 1) < 5 * np.sqrt(2 / 4000)


def primitives(jaxpr) -> set[str]:
    """Names of all operations, those of inner programs included."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                found |= primitives(inner)
    return found


@pytest.mark.parametrize("name", MODELS.names())
def test_initialisation_needs_no_qr(name):
    """Batched QR hangs on the CPU backend."""
    world = make_env("NMMO", preset="mini")
    seen, actions = (world.observation_space, world.action_space) if name == "nmmo" else (LARGE, ACTIONS)
    model = MODELS[name]().build(seen, actions)
    used = primitives(jax.make_jaxpr(lambda key: initialised(key, model, seen))(KEY).jaxpr)
    assert "dot_general" in used
    assert not used & {"qr", "geqrf", "householder_product"}
    assert "qr" in primitives(jax.make_jaxpr(jnp.linalg.qr)(jnp.eye(3)).jaxpr)  # it would be seen


def test_towers_have_nothing_in_common():
    """Neither output depends on the layers of the other. Embeddings are shared."""
    model = Towers(width=4).build(MAZE, ACTIONS)

    @jax.jit
    def gradients(key):
        obs, params = observations(key, MAZE, 1, 1), disturbed(initialised(key, model, MAZE))
        outputs = [lambda p, i=i: model.apply(p, obs, (), jnp.ones((1, 1), bool))[i].sum() for i in (0, 1)]
        return [jax.grad(output)(params)["params"] for output in outputs]

    for own, gradient in zip(("policy", "value"), gradients(KEY), strict=True):
        uses = {name for name, part in gradient.items() if any(np.any(x) for x in jax.tree.leaves(part))}
        assert uses == {own, f"{own}_0", f"{own}_1", "torso"}


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (lambda: LSTM(memory_width=0), "model.memory_width is 0: it must be at least 1"),
        (lambda: GRU(unroll=0), "model.unroll is 0: it must be at least 1"),
        (lambda: LSTM(memory_span=2), "model.memory_span is 2: it must be at least 3"),
        (lambda: FeedForward(dense_width=-1), "model.dense_width is -1: it must be at least 0"),
        (lambda: Towers(width=0), "model.width is 0: it must be at least 1"),
        (lambda: Towers(n_layers=101), "model.n_layers is 101: it must be at most 100"),
        (lambda: LSTM(conv_filters=0), "model.conv_filters is 0: it must be at least 1"),
        (lambda: LSTM(image_scale=0.0), "model.image_scale is 0.0: it must be positive and finite"),
        (
            lambda: LSTM(kernel_size=6).build(MAZE, ACTIONS),
            "model.kernel_size is 6, but the observation 'image' is 5x5: it must be at most 5, or image=0 in "
            "model.depths",
        ),
        (
            lambda: LSTM().build(MAZE, Box(0, 3, (2,), "int32")),
            "no policy for actions in a Box of int32: choose MultiDiscrete, or a Box of float32",
        ),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        settings()


def test_networks_are_static():
    """Equal settings give equal, hashable modules: they may be closed over or passed to jit as static arguments."""
    one, other = (LSTM(memory_width=4).build(MAZE, ACTIONS) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != LSTM(memory_width=5).build(MAZE, ACTIONS)


def test_a_third_party_registers_its_network(monkeypatch):
    monkeypatch.setattr(MODELS, "_table", dict(MODELS._table))

    @dataclasses.dataclass(frozen=True)
    class Linear(FeedForward):
        dense_width: int = 0

    assert register_model("linear", Linear) is MODELS["linear"]
    with pytest.raises(ValueError, match="is registered already"):
        register_model("lstm", Linear)
