"""The network of Neural MMO: actions by enumeration, the parts of an observation in NumPy, conformance, refusals."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.observation import COLUMNS, N_COLUMNS, N_PACK, N_TASK, VIEW
from minimax_lib.envs.nmmo.tables import FIRST_ITEM_ID, ITEMS, MATERIALS
from minimax_lib.envs.nmmo.tasks import N_PREDICATES
from minimax_lib.models import nmmo_parts
from minimax_lib.models.composed import Composed
from minimax_lib.models.distributions import IMPOSSIBLE
from minimax_lib.models.nmmo import SIZES, NMMOModel
from minimax_lib.models.nmmo_parts import convolution, places
from minimax_lib.testing.models import check_model

KEY = jax.random.key(4)
NPCS, ALONE = NMMO(preset="mini_npc", n_neighbours=5), NMMO(preset="mini")
HEADS = {"move": 5, "target": 4, "style": 3}
NONE = HEADS["target"] - 1


def logits() -> dict[str, np.ndarray]:
    """f32[2, n] by head; in row 0, a target is forbidden, and in row 1 all but "none"."""
    random = np.random.default_rng(0)
    found = {name: random.normal(size=(2, n)).astype(np.float32) for name, n in HEADS.items()}
    found["target"][0, 1] = IMPOSSIBLE
    found["target"][1, :NONE] = IMPOSSIBLE
    return found


POLICY = Composed({name: jnp.asarray(x) for name, x in logits().items()}, (("style", "target"),))


def probabilities() -> dict[str, np.ndarray]:
    found = {name: np.exp(x.astype(np.float64)) for name, x in logits().items()}
    return {name: x / x.sum(axis=1, keepdims=True) for name, x in found.items()}


def test_actions_by_enumeration():
    """All that can happen: without a target, the style is nothing that happens."""
    p = probabilities()
    everything = itertools.product(*(range(n) for n in HEADS.values()))
    effects = [(move, target, 0 if target == NONE else style) for move, target, style in everything]
    actions = np.array(list(dict.fromkeys(effects)), np.int32)
    assert len(actions) == HEADS["move"] * (NONE * HEADS["style"] + 1)
    by_name = {name: np.repeat(actions[:, i : i + 1], 2, axis=1) for i, name in enumerate(HEADS)}
    log_p, entropy = jax.device_get(jax.jit(lambda: (jax.vmap(POLICY.log_prob)(by_name), POLICY.entropy()))())
    with np.errstate(divide="ignore"):
        expected = np.log(p["move"][:, actions[:, 0]]).T + np.log(p["target"][:, actions[:, 1]]).T
        expected += np.where(actions[:, 1:2] == NONE, 0, np.log(p["style"][:, actions[:, 2]]).T)
    possible = np.isfinite(expected)
    np.testing.assert_allclose(log_p[possible], expected[possible], rtol=1e-5, atol=1e-6)
    assert (log_p[~possible] < IMPOSSIBLE / 2).all()
    np.testing.assert_allclose(np.exp(log_p).sum(axis=0), 1, rtol=1e-6)
    plain = np.where(possible, np.exp(expected), 0)
    np.testing.assert_allclose(entropy, -(plain * np.log(np.where(plain > 0, plain, 1))).sum(axis=0), rtol=1e-5)


def test_an_argument_without_an_effect_moves_nothing():
    def objective(style):
        policy = POLICY.replace(logits=POLICY.logits | {"style": style})
        action = {"move": jnp.array([1, 1]), "target": jnp.array([0, NONE]), "style": jnp.array([2, 2])}
        return policy.log_prob(action).sum() + policy.entropy()[1]

    gradient = np.asarray(jax.jit(jax.grad(objective))(POLICY.logits["style"]))
    assert np.abs(gradient[0]).min() > 0
    np.testing.assert_array_equal(gradient[1], 0)


def test_actions_are_drawn_by_their_probabilities():
    n = 4000
    drawn, mode = jax.device_get(jax.jit(lambda: (POLICY.sample(seed=KEY, sample_shape=(n,)), POLICY.mode()))())
    p = probabilities()
    for name, size in HEADS.items():
        assert drawn[name].dtype == mode[name].dtype == np.int32
        shares = np.stack([np.bincount(drawn[name][:, row], minlength=size) / n for row in range(2)])
        np.testing.assert_allclose(shares, p[name], atol=4 * 0.5 / n**0.5)
        np.testing.assert_array_equal(mode[name], p[name].argmax(axis=1))
    assert not (drawn["target"][:, 0] == 1).any()


def test_what_a_network_knows_of_the_observation_is_what_the_environment_shows():
    assert len(MATERIALS) == nmmo_parts.N_MATERIALS
    assert len(nmmo_parts.SCALES) == N_COLUMNS
    assert [COLUMNS[i] for i in (nmmo_parts.KIND, nmmo_parts.ROW, nmmo_parts.COLUMN)] == ["kind", "row", "column"]
    assert N_TASK == 4 * 6 + 4
    assert FIRST_ITEM_ID + len(ITEMS) == nmmo_parts.N_THING_KINDS
    assert len(nmmo_parts.PACK_SCALES) == N_PACK - 1
    assert nmmo_parts.TASK_NAMES == {"predicate": N_PREDICATES, "kind": 64}


@pytest.mark.parametrize("tasks", ["train", "stages", "competition"])
def test_each_predicate_and_kind_of_a_task_has_a_vector_of_its_own(tasks):
    """Beside a plain model. As quantities, neighbouring kinds were nearly the same to a new network."""
    rows = NMMO(preset="mini_npc", task_set=tasks).tasks.features.reshape(-1, 4, 6)
    names = {column: np.unique(rows[..., column]) for column in (0, 1)}
    for column, n in enumerate(nmmo_parts.TASK_NAMES.values()):
        assert len(np.unique(np.round(n * names[column]))) == len(names[column])
    task, two = nmmo_parts.Task(16), np.zeros((2, 28), np.float32)
    two[:, 0], two[:, 1], two[:, 3] = names[0][-1], names[1][-2:], 0.1  # kinds that follow one another
    params = jax.device_get(task.init(KEY, two)["params"])
    found = np.asarray(task.apply({"params": params}, two))
    parts, (predicates, kinds) = two[:, :24].reshape(2, 4, 6), (params[name] for name in nmmo_parts.TASK_NAMES)
    x = parts @ params["part"]["kernel"] + params["part"]["bias"]
    x[:, 0] += predicates[np.rint(34 * two[:, 0]).astype(int) - 1] + kinds[np.rint(64 * two[:, 1]).astype(int) - 1]
    rest = two[:, 24:] @ params["rest"]["kernel"] + params["rest"]["bias"]
    np.testing.assert_allclose(found, np.maximum(x, 0).sum(axis=1) + np.maximum(rest, 0), rtol=1e-5, atol=1e-6)
    assert np.linalg.norm(found[0] - found[1]) > 0.3 * np.linalg.norm(found[0])


@pytest.mark.parametrize(("side", "stride", "pad"), [(3, 3, 0), (5, 2, 0), (3, 1, 1)])
def test_convolutions_are_those_of_xla(side, stride, pad, monkeypatch):
    random = np.random.default_rng(1)
    x = random.normal(size=(2, VIEW, VIEW, 3)).astype(np.float32)
    kernel = random.normal(size=(side * side * 2, 4)).astype(np.float32)
    both = []
    for is_cpu in (True, False):
        monkeypatch.setattr(nmmo_parts, "on_cpu", lambda is_cpu=is_cpu: is_cpu)
        both.append(np.asarray(jax.jit(functools.partial(convolution, side=side, stride=stride, pad=pad))(x, kernel)))
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-4)
    # Of one window, by hand: its tiles come row by row, each with its two channels.
    window = x[:, stride - pad : stride - pad + side, :side, 0] if not pad else None
    if window is not None:
        np.testing.assert_allclose(both[0][:, 1, 0, 0], window.transpose(1, 2, 0).reshape(-1) @ kernel, rtol=1e-4)


def test_places_of_entities():
    entities = np.zeros((2, 4, N_COLUMNS), np.uint8)
    entities[0, :3, :3] = [[1, 8, 8], [3, 1, 15], [4, 1, 15]]
    entities[1, 0, :3] = [1, 15, 1]
    found = np.asarray(jax.jit(lambda x: places(x, VIEW))(entities))
    expected = np.zeros((2, VIEW, VIEW, 2))
    expected[0, 7, 7, 0] = expected[0, 14, 0, 1] = 1
    expected[1, 0, 14, 0] = 2
    np.testing.assert_array_equal(found, expected)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("settings", "env"),
    [
        (NMMOModel("tiny"), ALONE),
        (NMMOModel("tiny", "lstm"), NPCS),
        (NMMOModel("small", n_values=2), NPCS),
        (NMMOModel("large", "lstm"), NPCS),
    ],
)
def test_it_conforms(settings, env):
    check_model(settings, env, KEY)


def test_a_policy_starts_uniform_and_within_the_mask():
    network = NMMOModel("tiny").build(NPCS.observation_space, NPCS.action_space)

    @jax.jit
    def begin(key):
        obs = jax.tree.map(lambda x: x[None, None], NPCS.observation_space.sample(key))
        first = jnp.ones((1, 1), bool)
        return obs["action_mask"], network.apply(network.init(key, obs, (), first), obs, (), first)[0]

    mask, parameters = jax.device_get(begin(KEY))
    heads = dict(NPCS.action_space.items)
    assert parameters.shape == (1, 1, 5 + 6 + 3 + 3 * 13 + 6 + 99 + 6 + 13 + 99 + 161)
    free = {name: np.ones((1, 1, head.n), bool) for name, head in heads.items()}
    allowed = np.concatenate([mask.get(name, all_of) for name, all_of in free.items()], axis=-1)
    np.testing.assert_array_equal(parameters, np.where(allowed, 0, np.float32(IMPOSSIBLE)))


def test_small_networks_see_others_only_if_something_can_be_done_to_them():
    def parts(env, size):
        network = NMMOModel(size).build(env.observation_space, env.action_space)
        obs = jax.eval_shape(lambda: jax.tree.map(lambda x: x[None, None], env.observation_space.sample(KEY)))
        params = jax.eval_shape(network.init, KEY, obs, (), jax.ShapeDtypeStruct((1, 1), bool))["params"]
        return "entities" in params, sum(x.size for x in jax.tree.leaves(params))

    assert parts(ALONE, "tiny") == (False, 123942)  # 0.6 million operations
    assert parts(NPCS, "tiny")[0]
    assert parts(ALONE, "small") == (True, 164214)
    assert list(SIZES) == ["tiny", "small", "large"]


def test_other_worlds_and_unknown_sizes_are_refused():
    maze = AMaze()
    with pytest.raises(ValueError, match=r"^the model nmmo reads what agents of NMMO see"):
        NMMOModel().build(maze.observation_space, maze.action_space)
    with pytest.raises(ValueError, match=r"^unknown model\.size 'tinny': choose from tiny, small, large \(did"):
        NMMOModel("tinny")
    with pytest.raises(ValueError, match=r"^unknown model\.memory 'gru': choose from none, lstm"):
        NMMOModel(memory="gru")
    with pytest.raises(ValueError, match=r"^model\.n_values is 0: it must be at least 1"):
        NMMOModel(n_values=0)
