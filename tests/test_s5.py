"""S5: the recurrence and its gradient against a plain loop, initial parameters, learning, and what is refused."""

import functools
import itertools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg

from minimax_lib.config import from_dict
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.models import linear_recurrence as recurrence
from minimax_lib.models.s5 import DISCRETISATIONS, S5Carry, S5Memory, StateSpace, hippo_eigenvalues
from minimax_lib.models.settings import S5
from minimax_lib.runners.build import make_runner
from tests.test_models import primitives

KEY = jax.random.key(0)
F, W, N, R = 3, 6, 8, 3  # features, width, state size, rows
N_LAYERS = 2


def deep(*case) -> object:
    return pytest.param(*case, marks=pytest.mark.deep)


def random_normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_complex(seed: int, *shape: int) -> np.ndarray:
    return random_normal(seed, *shape) + np.complex64(1j) * random_normal(seed + 1000, *shape)


def starts(n_steps: int) -> np.ndarray:
    """bool[T, R]: episodes start at random places, but not in row 2."""
    return (np.random.default_rng(2).random((n_steps, R)) < 0.3) & (np.arange(R) != 2)


def memory(glu="half1", norm="after", discretisation="zoh", width=W, state_size=N, dt_min=0.05) -> S5Memory:
    space = StateSpace(state_size, n_blocks=2, discretisation=discretisation, dt_min=dt_min, dt_max=0.5)
    return S5Memory(width, N_LAYERS, space, glu, norm)


def initialised(module: S5Memory, n_features: int = F, disturbance: float = 0.3) -> dict:
    """Its parameters, none of them zero."""
    leaves, tree = jax.tree.flatten_with_path(jax.eval_shape(functools.partial(drawn, module, n_features), KEY))
    params = []
    for i, (path, leaf) in enumerate(leaves):
        name, shape = path[-1].key, leaf.shape
        # Numbers as the module itself draws them. Nothing is compiled.
        half = module.space.state_size // module.space.n_blocks
        blocks = np.tile(hippo_eigenvalues(half), module.space.n_blocks)
        spread = np.random.default_rng(i).uniform(size=shape)
        low, high = np.log(module.space.dt_min), np.log(module.space.dt_max)
        start = {"eigenvalues_real": blocks.real, "eigenvalues_imag": blocks.imag, "scale": 1.0, "bias": 0.0}
        start |= {"log_steps": low + (high - low) * spread}
        usual = random_normal(i + 500, *shape) / np.sqrt(shape[0])
        params.append((start.get(name, usual) + disturbance * random_normal(i, *shape)).astype(np.float32))
    return tree.unflatten(params)


@functools.partial(jax.jit, static_argnums=(0, 1))
def drawn(module: S5Memory, n_features: int, key: jax.Array) -> dict:
    args = (jnp.zeros((1, 1, n_features)), module.init_carry((1,)), jnp.ones((1, 1), bool))
    return module.init(key, *args)


# ------------------------------------------------------------------------------------------- the plain loop


def plain_discretised(system: dict, discretisation: str) -> tuple[np.ndarray, np.ndarray]:
    """(A, B) of x[t] = A x[t - 1] + B u[t], as matrices c128[N, N] and c128[N, W]; all eigenvalues, pairs included."""
    eigenvalues = np.minimum(system["eigenvalues_real"], -1e-4) + 1j * system["eigenvalues_imag"]
    half_b = system["b"][:, : N // 2] + 1j * system["b"][:, N // 2 :]
    b = np.concatenate([half_b, half_b.conj()], axis=1).T
    a = np.diag(np.concatenate([eigenvalues, eigenvalues.conj()]))
    steps = np.exp(np.tile(system["log_steps"], 2))[:, None]
    identity = np.eye(N)
    if discretisation == "zoh":
        after = scipy.linalg.expm(a * steps)
        return after, np.linalg.inv(a) @ (after - identity) @ b
    inverse = np.linalg.inv(identity - a * steps / 2)
    return inverse @ (identity + a * steps / 2), inverse @ (steps * b)


def plain_layer_norm(x: np.ndarray, norm: dict) -> np.ndarray:
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-6) * norm["scale"] + norm["bias"]


def plain_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def plain_glu(y: np.ndarray, gate: dict | None, glu: str) -> np.ndarray:
    g = plain_gelu(y)
    if gate is None:
        return g
    product = g @ gate["kernel"] + gate["bias"]
    sigmoid = 1 / (1 + np.exp(-product[-W:]))
    return {"full": product[:W], "half1": g, "half2": y}[glu] * sigmoid


def plain_memory(module: S5Memory, params: dict, features, carry: S5Carry, first) -> tuple[np.ndarray, np.ndarray]:
    """(hidden, states of one of each pair after the last step), one row and one step after the other."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    hidden = np.zeros((*first.shape, module.width))
    last = np.array(carry.states, np.complex128)
    matrices = [plain_discretised(p[f"layer_{i}"]["system"], module.space.discretisation) for i in range(N_LAYERS)]
    for r in range(first.shape[1]):
        states = [np.concatenate([half, half.conj()]) for half in last[r]]
        for t in range(first.shape[0]):
            x = np.asarray(features, np.float64)[t, r] @ p["input"]["kernel"] + p["input"]["bias"]
            for i, (a, b) in enumerate(matrices):
                layer = p[f"layer_{i}"]
                u = plain_layer_norm(x, layer["norm"]) if module.norm == "before" else x
                states[i] = a @ (0 * states[i] if first[t, r] else states[i]) + b @ u
                half_c = layer["system"]["c"][: N // 2] - 1j * layer["system"]["c"][N // 2 :]
                y = np.concatenate([half_c, half_c.conj()]).T @ states[i]
                assert abs(y.imag).max() < 1e-9
                x = x + plain_glu(y.real + layer["system"]["d"] * u, layer.get("gate"), module.glu)
                x = plain_layer_norm(x, layer["norm"]) if module.norm == "after" else x
            hidden[t, r] = x
        last[r] = [state[: N // 2] for state in states]
    return hidden, last


VARIANTS = [
    ("half1", "after", "zoh"),
    ("half1", "before", "bilinear"),
    ("half2", "before", "zoh"),
    ("full", "after", "bilinear"),
    ("none", "before", "zoh"),
    ("half1", "none", "zoh"),
    ("full", "none", "bilinear"),
]
# Each choice of each setting once, and both ways to go through the steps.
USUAL = [(*VARIANTS[0], True), (*VARIANTS[2], False), (*VARIANTS[6], True), (*VARIANTS[4], False)]
ALL = [(*variant, one_by_one) for variant in VARIANTS for one_by_one in (True, False)]


@pytest.mark.parametrize(
    ("glu", "norm", "discretisation", "one_by_one"), [*USUAL, *(deep(*case) for case in ALL if case not in USUAL)]
)
def test_the_memory_is_the_plain_loop(glu, norm, discretisation, one_by_one, monkeypatch):
    monkeypatch.setattr(recurrence, "steps_one_by_one", lambda n_steps: one_by_one)
    module = memory(glu, norm, discretisation)
    params = initialised(module)
    features, first = random_normal(1, 11, R, F), starts(11)
    carry = S5Carry(states=random_complex(5, R, N_LAYERS, N // 2))
    hidden, last = jax.jit(module.apply)(params, features, carry, first)
    expected, expected_last = plain_memory(module, params, features, carry, np.asarray(first))
    np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(last.states, expected_last, rtol=1e-4, atol=1e-4)
    assert hidden.dtype == jnp.float32
    assert last.states.dtype == jnp.complex64


# ------------------------------------------------------------------------------------------- the recurrence


def plain_recurrence(factor, inputs, first, start):
    """The same by a loop for autodiff."""
    states = []
    for t in range(len(inputs)):
        start = factor[None] * jnp.where(first[t][:, None], 0.0, start) + inputs[t]
        states.append(start)
    return jnp.stack(states)


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("n_steps", [7, deep(1), deep(2)])
def test_the_recurrence_and_its_gradient_are_those_of_the_plain_loop(n_steps, one_by_one, monkeypatch):
    monkeypatch.setattr(recurrence, "steps_one_by_one", lambda n_steps: one_by_one)
    first = starts(n_steps)
    args = (0.5 * random_complex(1, 4), random_complex(2, n_steps, R, 4), random_complex(3, R, 4))
    target = random_complex(4, n_steps, R, 4)

    def objective(run, factor, inputs, start):
        states = run(factor, inputs, first, start)
        return (states * target).real.sum() + jnp.abs(states**3).sum(), states

    @jax.jit
    def both(*args):
        runs = (recurrence.linear_recurrence, plain_recurrence)
        return [jax.grad(functools.partial(objective, run), argnums=(0, 1, 2), has_aux=True)(*args) for run in runs]

    ours, expected = both(*args)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_one_by_one_on_a_cpu_and_for_a_single_step(monkeypatch):
    assert recurrence.steps_one_by_one(256)  # the tests run on CPUs
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert recurrence.steps_one_by_one(1)
    assert not recurrence.steps_one_by_one(256)


def test_acting_has_no_loop():
    module = memory()
    memory_of_rows = jax.eval_shape(lambda: module.init_carry((R,)))
    args = (initialised(module), np.zeros((1, R, F), np.float32), memory_of_rows, np.ones((1, R), bool))
    all_passes = {"xla_disable_hlo_passes": ""}  # as outside of the tests
    assert " while(" not in jax.jit(module.apply).lower(*args).compile(all_passes).as_text()


@pytest.mark.parametrize(
    ("glu", "norm", "discretisation", "one_by_one"),
    [(*VARIANTS[1], False), deep(*VARIANTS[1], True), deep(*VARIANTS[0], False), deep(*VARIANTS[0], True)],
)
def test_steps_one_by_one_are_the_sequence(glu, norm, discretisation, one_by_one, monkeypatch):
    """Over the length of a published rollout, with the slowest and fastest states, starting from nonzero states."""
    n_steps = 256
    module = memory(glu, norm, discretisation, width=16, state_size=32, dt_min=0.001)
    params = initialised(module, disturbance=0.05)
    features, first = random_normal(1, n_steps, R, F), starts(n_steps) & starts(n_steps)[::-1]
    carry = S5Carry(states=random_complex(5, R, N_LAYERS, 16))
    step = jax.jit(module.apply)
    monkeypatch.setattr(recurrence, "steps_one_by_one", lambda n_steps: one_by_one)
    hidden, last = jax.jit(module.apply)(params, features, carry, first)
    monkeypatch.undo()
    one_by_one = []
    for t in range(n_steps):
        out, carry = step(params, features[t : t + 1], carry, first[t : t + 1])
        one_by_one.append(out[0])
    np.testing.assert_allclose(one_by_one, hidden, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(carry.states, last.states, rtol=1e-4, atol=1e-4)


@pytest.mark.deep
def test_seeds_side_by_side_are_each_seed_alone():
    module = memory()
    features, first = random_normal(1, 7, R, F), starts(7)
    params = jax.tree.map(lambda x: np.stack([x, np.float32(0.9) * x]), initialised(module))

    def gradient(params):
        return jax.grad(lambda p: (module.apply(p, features, module.init_carry((R,)), first)[0] ** 2).sum())(params)

    together = jax.device_get(jax.jit(jax.vmap(gradient))(params))
    alone = jax.jit(gradient)(jax.tree.map(lambda x: x[1], params))
    for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(x[1], y, rtol=1e-3, atol=1e-4)


@pytest.mark.deep
def test_slow_images_are_taken_as_they_are():
    settings = S5(conv_filters=2, memory_width=W, state_size=N, head_width=4)
    plain, slow = (
        settings.build(Box(0, 10, (6, 6, 3), "uint8", changes_slowly=slowly), Discrete(3)) for slowly in (False, True)
    )
    image = np.random.default_rng(0).integers(0, 10, (5, R, 6, 6, 3)).astype(np.uint8)

    @jax.jit
    def both(key, image):
        args = (image, plain.init_carry((R,)), starts(5))
        params = plain.init(key, *args)
        return [model.apply(params, *args)[1] for model in (plain, slow)]

    values = both(jax.random.key(1), image)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-4, atol=1e-5)


def test_nothing_passes_from_one_episode_to_the_next():
    module = memory()
    params = initialised(module)
    features, first = random_normal(1, 5, 1, F), np.arange(5)[:, None] == 2
    carry = S5Carry(states=random_complex(5, 1, N_LAYERS, N // 2))

    def later(features, scale):
        started = S5Carry(states=carry.states * scale)
        return module.apply(params, features, started, first)[0][2:]

    by_features, by_carry = jax.jit(jax.jacrev(later, argnums=(0, 1)))(features, np.float32(1))
    by_features = np.asarray(by_features)
    assert not by_features[..., :2, :, :].any()
    assert by_features[..., 2:, :, :].any()
    assert not by_carry.any()


# ------------------------------------------------------------------------------------------- how it starts


@pytest.mark.parametrize("size", [2, 8, 64])
def test_hippo_eigenvalues(size):
    """HiPPO-LegS (Gu et al. 2020), made normal by a matrix of rank one."""
    n = np.arange(size)
    legs = -np.where(n[:, None] > n, np.sqrt((2 * n[:, None] + 1) * (2 * n + 1)), np.diag(n + 1.0))
    half_roots = np.sqrt(n + 0.5)
    normal = legs + np.outer(half_roots, half_roots)
    np.testing.assert_allclose(normal @ normal.T, normal.T @ normal, atol=1e-9)
    found = hippo_eigenvalues(size)
    assert (found.imag > 0).all()
    np.testing.assert_allclose(found.real, -0.5)
    both = np.concatenate([found.conj()[::-1], found])
    expected, basis = np.linalg.eig(normal)
    np.testing.assert_allclose(both.imag, np.sort(expected.imag), rtol=1e-7)
    np.testing.assert_allclose(expected.real, -0.5, atol=1e-7)
    # why b and c may be drawn in the basis of the eigenvectors: in real terms that is an orthonormal basis
    half = basis[:, expected.imag > 0] * np.sqrt(2)
    real_basis = np.concatenate([half.real, half.imag], axis=1)
    np.testing.assert_allclose(real_basis.T @ real_basis, np.eye(size), atol=1e-6)


def test_initial_parameters():
    """Thresholds are five standard errors."""
    module = S5()._memory()
    params = jax.jit(
        lambda key: module.init(key, jnp.zeros((1, 1, F)), module.init_carry((1,)), jnp.ones((1, 1), bool))
    )(jax.random.key(0))["params"]
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))
    assert set(params) == {"input", "layer_0", "layer_1"}
    assert module.init_carry((4, 2)).states.shape == (4, 2, 2, 128)
    assert jax.tree.map(jnp.shape, params["layer_1"]) == {
        "norm": {"scale": (256,), "bias": (256,)},
        "gate": {"kernel": (256, 256), "bias": (256,)},
        "system": {
            "eigenvalues_real": (128,),
            "eigenvalues_imag": (128,),
            "log_steps": (128,),
            "b": (256, 256),
            "c": (256, 256),
            "d": (256,),
        },
    }
    system = params["layer_0"]["system"]
    np.testing.assert_array_equal(system["eigenvalues_real"], np.full(128, -0.5))
    blocks = np.split(np.asarray(system["eigenvalues_imag"]), 2)
    for block in blocks:
        np.testing.assert_allclose(block, hippo_eigenvalues(128).imag, rtol=1e-6)
    steps = np.asarray(system["log_steps"])
    assert np.log(0.001) <= steps.min() < np.log(0.0015)
    assert np.log(0.07) < steps.max() <= np.log(0.1)
    for name, variance in {"b": 1 / 512, "c": 1 / 65536, "d": 1.0}.items():
        x = np.asarray(system[name])
        assert abs(x.mean()) < 5 * np.sqrt(variance / x.size), name
        assert abs(x.var() / variance - 1) < 5 * np.sqrt(2 / x.size), name
    assert (params["layer_0"]["system"]["b"] != params["layer_1"]["system"]["b"]).any()


def test_without_layer_norm_no_layer_has_its_parameters():
    config = from_dict({"model": {"name": "s5", "norm": "none", "memory_width": W, "state_size": N}})
    module = config.model._memory()
    params = jax.eval_shape(functools.partial(drawn, module, F), jax.random.key(0))["params"]
    assert set(params["layer_0"]) == set(params["layer_1"]) == {"gate", "system"}


def test_initialisation_decomposes_no_matrix():
    module = memory()
    program = jax.make_jaxpr(functools.partial(drawn, module, F))(jax.random.key(0))
    assert not primitives(program.jaxpr) & {"qr", "eigh", "eig", "householder_product"}


def test_discretisations():
    """Zero-order hold is the matrix exponential of the system and its constant input; bilinear is Tustin's formula."""
    cases = list(itertools.product([-0.5 + 0.3j, -0.5 + 60.0j, -1e-4 + 0.0j], [1e-3, 0.1, 2.0]))
    args = np.array([a for a, _ in cases], np.complex64), np.array([step for _, step in cases], np.float32)
    found = jax.device_get(jax.jit(lambda *args: {name: f(*args) for name, f in DISCRETISATIONS.items()})(*args))
    for i, (eigenvalue, step) in enumerate(cases):
        held = scipy.linalg.expm(step * np.array([[eigenvalue, 1.0], [0.0, 0.0]]))
        np.testing.assert_allclose([x[i] for x in found["zoh"]], held[0], rtol=2e-5)
        factor, scale = (x[i] for x in found["bilinear"])
        np.testing.assert_allclose(factor, (2 + step * eigenvalue) / (2 - step * eigenvalue), rtol=2e-5)
        np.testing.assert_allclose(scale, 2 * step / (2 - step * eigenvalue), rtol=2e-5)


@pytest.mark.parametrize("discretisation", ["zoh", deep("bilinear")])
def test_states_never_grow_without_bound(discretisation):
    module = memory(discretisation=discretisation)
    params = initialised(module)
    for i in range(N_LAYERS):
        params["params"][f"layer_{i}"]["system"]["eigenvalues_real"] = np.full(N // 2, 5, np.float32)
    features, first = random_normal(1, 300, R, F), np.zeros((300, R), bool)
    carry = S5Carry(states=np.zeros((R, N_LAYERS, N // 2), np.complex64))
    _, last = jax.jit(module.apply)(params, features, carry, first)
    assert np.abs(last.states).max() < 1e3


# ------------------------------------------------------------------------------------------- what it learns


@pytest.mark.deep
def test_it_recalls_what_it_saw_thirty_steps_ago():
    """The first step shows a cue, then comes noise, and the last step asks for the cue."""
    n_cues, n_rows, n_steps = 2, 32, 32
    module = memory(width=16, state_size=16, dt_min=0.01)
    optimizer = optax.adam(3e-3)

    def batch(key):
        k_cue, k_noise = jax.random.split(key)
        cue = jax.random.randint(k_cue, (n_rows,), 0, n_cues)
        features = jnp.zeros((n_steps, n_rows, n_cues + 2)).at[0, :, :n_cues].set(jax.nn.one_hot(cue, n_cues))
        noise = 0.3 * jax.random.normal(k_noise, (n_steps, n_rows))
        return features.at[:, :, -2].set(noise).at[-1, :, -1].set(1.0), cue

    def objective(params, key):
        features, cue = batch(key)
        first = jnp.zeros((n_steps, n_rows), bool).at[0].set(True)
        hidden, _ = module.apply(params["memory"], features, module.init_carry((n_rows,)), first)
        logits = hidden[-1] @ params["readout"]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, cue).mean()
        return loss, (logits.argmax(axis=-1) == cue).mean()

    def step(learnt, key):
        params, opt_state = learnt
        gradient, right = jax.grad(objective, has_aux=True)(params, key)
        change, opt_state = optimizer.update(gradient, opt_state)
        return (optax.apply_updates(params, change), opt_state), right

    params = {
        "memory": initialised(module, n_cues + 2, disturbance=0.0),
        "readout": jnp.zeros((16, n_cues)),
    }
    keys = jax.random.split(jax.random.key(1), 300)
    _, right = jax.jit(lambda params: jax.lax.scan(step, (params, optimizer.init(params)), keys))(params)
    assert right[:10].mean() < 0.75
    assert right[-20:].mean() > 0.98


@pytest.mark.deep
def test_the_command_line_s_model_trains_and_compiles_once():
    config = from_dict(
        {
            "model": {"name": "s5", "memory_width": 8, "state_size": 8, "conv_filters": 2, "head_width": 4},
            "env": {"name": "AMaze", "height": 4, "width": 4, "n_walls": 2, "max_steps": 16},
            "runner": {"name": "dr", "n_parallel": 4, "n_steps": 24},
            "ppo": {"n_minibatches": 2},
        }
    )
    runner = make_runner(config)
    chex.clear_trace_counter()
    step = jax.jit(chex.assert_max_traces(runner.step, n=1))
    before = state = jax.jit(runner.init)(jax.random.key(0))
    for _ in range(2):
        state, metrics = step(state)
        assert np.isfinite(metrics["loss"])
        assert np.isfinite(metrics["grad_norm"])
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.students.params, state.students.params)
    assert all(jax.tree.leaves(moved["params"]["memory"]))


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"state_size": 30, "n_blocks": 4},
            "model.state_size is 30: model.n_blocks is 4, so it must be a multiple of 8 (try 32)",
        ),
        (
            {"state_size": 2, "n_blocks": 4},
            "model.state_size is 2: model.n_blocks is 4, so it must be a multiple of 8 (try 8)",
        ),
        ({"memory_width": 0}, "model.memory_width is 0: it must be at least 1"),
        ({"n_layers": 0}, "model.n_layers is 0: it must be at least 1"),
        ({"n_blocks": 0}, "model.n_blocks is 0: it must be at least 1"),
        ({"dt_min": 0.0}, "model.dt_min is 0.0: it must be positive and finite"),
        ({"dt_max": 1e-4}, "model.dt_max is 0.0001: it must be at least model.dt_min, 0.001"),
        (
            {"glu": "half_1"},
            "unknown model.glu 'half_1': choose from full, half1, half2, none (did you mean 'half1'?)",
        ),
        ({"norm": "post"}, "unknown model.norm 'post': choose from before, after, none"),
        (
            {"discretisation": "zho"},
            "unknown model.discretisation 'zho': choose from zoh, bilinear (did you mean 'zoh'?)",
        ),
    ],
)
def test_impossible_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_dict({"model": {"name": "s5", **settings}})


def test_equal_settings_give_equal_networks():
    space, actions = Box(-1.0, 1.0, (3,)), Discrete(2)
    one, other = (S5(memory_width=4, state_size=4).build(space, actions) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != S5(memory_width=4, state_size=8).build(space, actions)
