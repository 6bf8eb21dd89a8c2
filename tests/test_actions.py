"""Policies over every kind of action, and masks: against sums and integrals, and by learning the best actions."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.levels.cenie import CENIE
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.traced import TRACED
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, MultiDiscrete, sample_allowed, within
from minimax_lib.models.distributions import distribution, masked, n_deviations, n_outputs
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.episodes import alone, mode
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.testing.curricula import small_agent
from minimax_lib.testing.envs import check_environment

BOX = Box(-2.0, 4.0, (2,))
MIXED = Dict((("arm", BOX), ("gear", Discrete(3)), ("keys", MultiDiscrete((2, 4)))))


def parameters(space, n: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, n_outputs(space) + n_deviations(space))).astype(np.float32)


@functools.partial(jax.jit, static_argnames=("space", "gaussian", "n"))
def drawn_from(space, x, key, gaussian="plain", n: int = 20_000) -> dict:
    """All that a policy says, of an action and of `n` others."""
    policy, (k_one, k_many) = distribution(space, x, gaussian), jax.random.split(key)
    action, many = policy.sample(seed=k_one), policy.sample(seed=k_many, sample_shape=n)
    return {
        "action": action,
        "log_prob": policy.log_prob(action),
        "entropy": policy.entropy(),
        "mode": policy.mode(),
        "many": many,
        "log_probs": jax.vmap(policy.log_prob)(many),
    }


# ------------------------------------------------------------------------------------------------ distributions


def test_many_discrete_actions_are_independent_categoricals():
    space = MultiDiscrete((2, 4, 3))
    found = jax.device_get(drawn_from(space, parameters(space), jax.random.key(1)))
    logits = np.split(np.asarray(parameters(space), np.float64), [2, 6], axis=-1)
    p = [np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True) for x in logits]
    action = found["action"]
    assert action.shape == (5, 3)
    assert action.dtype == np.int32
    expected = sum(np.log(p[i][np.arange(5), action[:, i]]) for i in range(3))
    np.testing.assert_allclose(found["log_prob"], expected, rtol=1e-5)
    entropy = sum(-(x * np.log(x)).sum(axis=-1) for x in p)
    np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-5)
    np.testing.assert_array_equal(found["mode"], np.stack([x.argmax(axis=-1) for x in p], axis=-1))
    drawn = found["many"]
    assert (drawn.max(axis=(0, 1)) == [1, 3, 2]).all()
    for i in range(3):
        shares = np.stack([(drawn[:, :, i] == value).mean(axis=0) for value in range(p[i].shape[1])], axis=-1)
        np.testing.assert_allclose(shares, p[i], atol=4 * 0.5 / np.sqrt(20_000))


@pytest.mark.parametrize(("gaussian", "deviation"), [("plain", 0.1), ("plain", 3), ("squashed", 0.1), ("squashed", 1)])
def test_densities_of_real_actions_integrate_to_one(gaussian, deviation):
    """By the trapezoid rule: the integral is 1, the entropy is right, and half of the actions lie below the mode."""
    space = Box(-1.0, 3.0, (1,))
    edge = 1e-5 if gaussian == "squashed" else -20 * deviation
    # Denser near the edges, where the density of a squashed Gaussian may be high.
    x = 1 + (2 - edge) * np.sin(np.linspace(-np.pi / 2, np.pi / 2, 40_001))
    parameter = np.array([0.3, np.log(deviation)], np.float32)
    log_p, entropy, mode = jax.device_get(density(space, gaussian, parameter, x[:, None].astype(np.float32)))
    log_p = log_p.astype(np.float64)
    p = np.exp(log_p)
    assert np.trapezoid(p, x) == pytest.approx(1, abs=2e-3)
    assert -np.trapezoid(p * log_p, x) == pytest.approx(float(entropy), abs=1e-2)
    below = np.trapezoid(p[x < mode[0]], x[x < mode[0]])
    assert below == pytest.approx(0.5, abs=2e-2)


@functools.partial(jax.jit, static_argnums=(0, 1))
def density(space, gaussian, parameter, x) -> tuple:
    """(logarithm of the density at each x, entropy, mode)."""
    policy = distribution(space, parameter, gaussian)
    return jax.vmap(policy.log_prob)(x), policy.entropy(), policy.mode()


@pytest.mark.parametrize("gaussian", ["plain", pytest.param("squashed", marks=pytest.mark.deep)])
def test_entropy_is_minus_the_mean_log_probability(gaussian):
    found = jax.device_get(drawn_from(MIXED, parameters(MIXED), jax.random.key(1), gaussian))
    log_prob = found["log_probs"]
    error = 4 * log_prob.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(-log_prob.mean(axis=0) - found["entropy"]) < error).all()


def test_squashed_actions_stay_inside_and_have_finite_probabilities():
    x = np.array([[30.0, -30.0, 2.0, 2.0]], np.float32)

    @jax.jit
    def found(key, x):
        drawn = distribution(BOX, x, "squashed").sample(seed=key, sample_shape=1000)

        def loss(x):
            return distribution(BOX, x, "squashed").log_prob(drawn[0]).sum()

        return drawn, *jax.value_and_grad(loss)(x)

    drawn, loss, gradient = jax.device_get(found(jax.random.key(0), x))
    assert ((drawn >= BOX.low) & (drawn <= BOX.high)).all()
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_a_policy_of_several_parts_is_their_product():
    x = parameters(MIXED)
    found = drawn_from(MIXED, x, jax.random.key(1))

    @jax.jit
    def sum_of_parts(x, action):
        outputs, deviations = x[:, :11], x[:, 11:]
        parts = {
            "arm": distribution(BOX, jnp.concatenate([outputs[:, :2], deviations], axis=-1)),
            "gear": distribution(Discrete(3), outputs[:, 2:5]),
            "keys": distribution(MultiDiscrete((2, 4)), outputs[:, 5:]),
        }
        return sum(part.log_prob(action[name]) for name, part in parts.items())

    np.testing.assert_allclose(found["log_prob"], sum_of_parts(x, found["action"]), rtol=1e-5)


def test_every_row_of_a_policy_has_a_key_of_its_own():
    """Whole episodes draw their actions like this: with a vmap over the rows of a distribution."""

    @jax.jit
    def both(key, x):
        keys, found = jax.random.split(key, 5), []
        for gaussian in ("plain", "squashed"):
            drawn = jax.vmap(lambda key, row: row.sample(seed=key))(keys, distribution(MIXED, x, gaussian))
            found.append((drawn, distribution(MIXED, x[3], gaussian).sample(seed=keys[3])))
        return found

    for drawn, one in jax.device_get(both(jax.random.key(0), parameters(MIXED))):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x[3], y, rtol=1e-5), drawn, one)


@pytest.mark.parametrize(
    ("space", "gaussian", "message"),
    [
        (Box(0, 255, (2,), "uint8"), "plain", "no policy for actions in a Box of uint8: choose MultiDiscrete"),
        (Box(-np.inf, np.inf, (2,)), "squashed", "model.gaussian is 'squashed', but the action has no bounds"),
        (Dict((("a", Box(0, np.inf, (1,))),)), "squashed", "the action 'a' has no bounds: choose plain"),
    ],
)
def test_actions_without_a_policy_are_refused(space, gaussian, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(gaussian=gaussian).build(Discrete(2), space)


def test_what_a_gaussian_draws_is_clipped_for_the_environment():
    action = {"arm": np.array([9, -9], np.float32), "gear": np.asarray(2), "keys": np.asarray([1, 3])}
    clipped = within(MIXED, action)
    np.testing.assert_array_equal(clipped["arm"], [4.0, -2.0])
    assert clipped["gear"] is action["gear"]


@pytest.mark.parametrize("space", [BOX, MultiDiscrete((3, 3))])
@pytest.mark.parametrize("score", ["policy_entropy", "least_confidence", "min_margin"])
def test_scores_of_discrete_policies_refuse_others(space, score):
    env = dataclasses.replace(Target(), action_space=space)
    message = (
        f"runner.score is '{score}', which needs Discrete actions, but the environment's are {type(space).__name__}"
    )
    with pytest.raises(ValueError, match=message):
        trained_with(env, small_agent(env), PLR(n_parallel=4, score=score, n_steps=4))


@pytest.mark.parametrize("settings", [PLR(n_parallel=4, score="novelty"), CENIE(n_parallel=4), TRACED(n_parallel=4)])
def test_what_has_a_model_of_actions_refuses_those_of_several_parts(settings):
    env = dataclasses.replace(Target(), action_space=MIXED)
    with pytest.raises(ValueError, match="whose model reads actions that are numbers, but the environment's are Dict"):
        settings.build(env, small_agent(env), 4)


# ------------------------------------------------------------------------------------------------ learning


@struct.dataclass
class TargetState:
    target: jax.Array  # f32[], the level
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Target(Environment):
    """Hit the number that is shown. The reward is 1 minus the squared distance. An episode has two steps."""

    action_space: Box = Box(-1.0, 3.0, (1,))
    max_steps: int = 2
    observation_space = Box(-1.0, 3.0, (1,))

    def sample_level(self, key):
        return jax.random.uniform(key, (), jnp.float32, -0.8, 2.8)

    def reset(self, key, level):
        return TargetState(level, jnp.zeros((), jnp.int32)), opening(level[None], 0)

    def step(self, key, state, action):
        distance = jnp.abs(action[0] - state.target)
        time = state.time + 1
        over = time >= 2
        return state.replace(time=time), transition(state.target[None], 1 - distance**2, over, False, distance < 0.3)

    def get_level(self, state):
        return state.target

    def level_metrics(self, level):
        return {"target": level}


def trained(env, gaussian: str = "plain", n_updates: int = 120, **ppo):
    model = FeedForward(dense_width=32, gaussian=gaussian).build(env.observation_space, env.action_space)
    agent = AgentPop(PPOAgent(model, PPO(lr=5e-3, entropy_coef=0.0, gamma=0.9, n_minibatches=4, **ppo)))
    program = SeedRunner(trained_with(env, agent, DR(n_parallel=64, n_steps=8)), 1)
    state, report = program.run(program.init(0), n_updates)
    return agent, jax.tree.map(lambda x: x[0, 0], state.students.params), report


@pytest.mark.parametrize(("gaussian", "over"), [("plain", "rollout"), ("squashed", "minibatch")])
@pytest.mark.deep
def test_ppo_learns_to_hit_a_real_number(gaussian, over):
    env = Target()
    agent, params, _ = trained(env, gaussian, advantages_over=over)
    levels = jnp.linspace(-0.8, 2.8, 19)
    played = jax.jit(alone(env, agent.agent, mode).play)(jax.random.key(0), (params,), levels)
    # Always acting in the middle gives 2 * (1 - 1.08) on average.
    assert float(played.returns.mean()) > 1.9
    assert float(played.solved.mean()) > 0.75  # 17 of 19 is the least of 24 trainings
    assert float(params["params"]["log_deviation"][0]) < 0  # it has become surer


def test_an_unknown_range_of_normalisation_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"ppo.advantages_over.*'rolout'.*rollout"):
        PPO(advantages_over="rolout")


# ------------------------------------------------------------------------------------------------ masks


@struct.dataclass
class LockState:
    level: jax.Array  # i32[2], which action is paid, which is allowed besides
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Locks(Environment):
    """An action is two keys of four each. A mask allows two for each. A forbidden key makes the reward NaN."""

    max_steps: int = 3
    action_space = Dict((("speed", Box(-1.0, 1.0, (1,))), ("turn", MultiDiscrete((4, 4)))))
    mask_space = Dict((("turn", Box(0, 1, (8,), "bool")),))

    @property
    def observation_space(self):
        return Dict(((ACTION_MASK, self.mask_space), ("paid", Discrete(4))))

    def sample_level(self, key):
        return jax.random.choice(key, 4, (2,), replace=False).astype(jnp.int32)

    def _obs(self, state):
        one = jnp.zeros(4, bool).at[state.level].set(True)
        return {"paid": state.level[0], ACTION_MASK: {"turn": jnp.concatenate([one, one])}}

    def reset(self, key, level):
        state = LockState(level, jnp.zeros((), jnp.int32))
        return state, opening(self._obs(state))

    def step(self, key, state, action):
        allowed = (action["turn"][:, None] == state.level[None]).any(axis=1).all()
        paid = (action["turn"] == state.level[0]).mean(dtype=jnp.float32)
        state = state.replace(time=state.time + 1)
        return state, transition(self._obs(state), jnp.where(allowed, paid, jnp.nan), False, state.time >= 3)

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {}


def test_masked_actions_are_never_taken_by_the_conformance_check():
    """A forbidden key would make the reward NaN, which does not conform."""
    check_environment(Locks(), jax.random.key(0))


@pytest.mark.deep
def test_masked_actions_are_never_taken_in_training():
    """A forbidden key would make the loss NaN."""
    env = Locks()
    agent, params, report = trained(env, n_updates=20)
    assert np.isfinite(report.metrics["loss"]).all()
    played = jax.jit(alone(env, agent.agent).play)(
        jax.random.key(1), (params,), jnp.asarray([[0, 1], [3, 2]], jnp.int32)
    )
    assert np.isfinite(played.returns).all()
    assert float(report.metrics["return"][0]) > 1.6  # by chance 1.5


def test_a_mask_takes_the_probability_of_what_it_forbids():
    logits = np.array([[1, 2, 3, 4]], np.float32)

    @jax.jit
    def found(logits, mask, only_one):
        policy = distribution(Discrete(4), masked(Discrete(4), logits, mask))
        entropy = jax.grad(lambda x: distribution(Discrete(4), masked(Discrete(4), x, only_one)).entropy()[0])
        return policy.probs[0], policy.entropy()[0], entropy(logits)

    masks = np.array([[True, False, True, False]]), np.eye(4, dtype=bool)[:1]
    probs, entropy, gradient = jax.device_get(found(logits, *masks))
    p = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    np.testing.assert_allclose(probs, [p[0], 0, p[1], 0], rtol=1e-6)
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(), rtol=1e-5)
    assert np.isfinite(gradient).all()


def test_random_actions_are_uniform_over_what_is_allowed():
    obs = {ACTION_MASK: np.array([True, False, True, True, False, False, True, False])}
    draw = jax.jit(jax.vmap(lambda key: sample_allowed(MultiDiscrete((4, 4)), key, obs)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 6000)))
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / 6000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)
    assert set(drawn[:, 1]) == {2}
    nothing = {ACTION_MASK: np.zeros(4, bool)}  # as the dead are told: any value will do
    assert int(sample_allowed(Discrete(4), jax.random.key(0), nothing)) in range(4)


@pytest.mark.parametrize(
    ("mask", "actions", "message"),
    [
        (Box(0, 1, (3,), "bool"), Discrete(4), r"'action_mask' is Box\(.*\): it must be Box\(.*shape=\(4,\)"),
        (Box(0, 1, (4,)), Discrete(4), "it must be Box.*bool"),
        (Box(0, 1, (2,), "bool"), BOX, "masks real numbers: only discrete actions can be masked"),
        (Dict((("hand", Box(0, 1, (2,), "bool")),)), MIXED, "it must be a Dict with masks of arm, gear, keys"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, actions, message):
    observations = Dict(((ACTION_MASK, mask), ("paid", Discrete(4))))
    with pytest.raises(ValueError, match=message):
        FeedForward().build(observations, actions)


def test_a_mask_that_forbids_everything_does_not_conform():
    @dataclasses.dataclass(frozen=True)
    class Shut(Locks):
        def _obs(self, state):
            obs = super()._obs(state)
            return obs | {ACTION_MASK: {"turn": obs[ACTION_MASK]["turn"] & (state.time < 1)}}

        def step(self, key, state, action):
            state, ts = super().step(key, state, action)
            return state, ts.replace(reward=jnp.zeros(()))

    with pytest.raises(AssertionError, match="action_mask forbids every action"):
        check_environment(Shut(), jax.random.key(0))
