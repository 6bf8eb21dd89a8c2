"""PPO: it learns values that are known in closed form, and every piece equals plain numpy."""

import dataclasses
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, PartitionSpec

from minimax_lib import axes
from minimax_lib.agents.losses import explained_variance, normalized
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import MOST_GRADIENTS, PPO, Batch, PPOAgent, averaged
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.restarts import NoRestart
from minimax_lib.models.settings import GRU, LSTM, S5, FeedForward
from minimax_lib.rollout import Rollout, rollout
from tests import probes
from tests.probes import Probe

ENV = Probe()
B, T = 16, 12  # episodes of 1, 2, 3 or 4 steps fill T
LENGTHS = np.repeat(np.arange(1, 5, dtype=np.int32), B // 4)  # of the single episode of each row
GAMMA = 0.8
SMALL = {
    "lstm": LSTM(memory_width=16, head_width=16),
    "gru": GRU(memory_width=16, head_width=16),
    "s5": S5(memory_width=16, state_size=16, head_width=16),
    "ff": FeedForward(dense_width=16, head_width=16),
}
LEARNER = PPO(lr=1e-2, gamma=GAMMA, gae_lambda=0.95, n_epochs=4, entropy_coef=0.0)


def make_agent(model: str = "ff", n_total_updates: int | None = None, **settings) -> PPOAgent:
    network = SMALL[model].build(ENV.observation_space, ENV.action_space)
    return PPOAgent(network, dataclasses.replace(LEARNER, **settings), n_total_updates)


@functools.partial(jax.jit, static_argnames="agent")
def init_jit(agent: PPOAgent, key: jax.Array):
    return agent.init(key, jnp.zeros((), jnp.int32))


def init(agent: PPOAgent, seed: int = 0):
    return init_jit(agent, jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="model")
def play(model, key: jax.Array, params, level) -> Rollout:
    """A rollout of one agent, steps [T, R]."""
    levels = jax.tree.map(lambda x: jnp.broadcast_to(x, (B, *x.shape)), level)
    return played(BatchEnv(ENV), model, key, params, levels)


@functools.partial(jax.jit, static_argnames="model")
def play_once(model, key: jax.Array, params, level) -> Rollout:
    """The same with a single episode in each row, so that most steps are not valid (see `LENGTHS`)."""
    levels = jax.vmap(lambda length: dataclasses.replace(level, length=length))(jnp.asarray(LENGTHS))
    return played(BatchEnv(ENV, restart=NoRestart()), model, key, params, levels)


def played(env: BatchEnv, model, key: jax.Array, params, levels) -> Rollout:
    pop = AgentPop(PPOAgent(model, PPO()), 1)
    run = rollout(key, env, pop, jax.tree.map(lambda x: x[None], params), levels, T)
    return Rollout(
        steps=jax.tree.map(lambda x: x[:, 0], run.steps),
        carry=jax.tree.map(lambda x: x[0], run.carry),
        last_value=run.last_value[0],
        final=None,
    )


def disturbed(params, scale: float = 0.3, seed: int = 5):
    keys = iter(jax.random.split(jax.random.key(seed), 64))
    return jax.tree.map(lambda x: x + scale * jax.random.normal(next(keys), x.shape), params)


def experience(agent: PPOAgent, seed: int = 1, play=play) -> tuple:
    """(train state, a rollout of other parameters than the state's: ratios differ from 1)."""
    state = init(agent)
    state = dataclasses.replace(state, params=disturbed(state.params))
    behaviour = disturbed(state.params, 0.2, seed=6)
    level = dataclasses.replace(probes.memory(), reward=jax.random.normal(jax.random.key(7), (4, 2, 2)))
    return state, play(agent.model, jax.random.key(seed), behaviour, level)


def as_batch(agent: PPOAgent, run: Rollout) -> Batch:
    advantage, target = run.advantages(agent.config.gamma, agent.config.gae_lambda)
    return Batch(
        steps=run.steps, carry=run.carry, advantage=advantage, target=target, entropy_coef=agent.config.entropy_coef
    )


# ------------------------------------------------------------------------------------------- probes


@pytest.fixture(scope="module")
def learner():
    """(agent, program that learns a level and returns a last rollout), per model, each compiled once."""

    def build(model: str):
        agent = make_agent(model)

        @jax.jit
        def learn(key, level) -> Rollout:
            k_init, k_last, k_updates = jax.random.split(key, 3)
            state = agent.init(k_init, jnp.zeros((), jnp.int32))

            def update(state, key):
                k_play, k_update = jax.random.split(key)
                state, _ = agent.update(k_update, state, play(agent.model, k_play, state.params, level))
                return state, None

            state, _ = jax.lax.scan(update, state, jax.random.split(k_updates, 100))
            return play(agent.model, k_last, state.params, level)

        return learn

    built = {}
    return lambda model, level, seed=0: built.setdefault(model, build(model))(jax.random.key(seed), level)


def test_constant_reward(learner):
    run = learner("ff", probes.constant_reward())
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.05)


def test_reward_for_an_action(learner):
    run = learner("ff", probes.action_reward())
    assert run.steps.action.mean() > 0.95
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.1)


def test_reward_for_an_observation(learner):
    run = learner("ff", probes.observation_reward())
    np.testing.assert_allclose(run.steps.value, 2.0 * run.steps.obs - 1.0, atol=0.15)


@pytest.mark.parametrize("model", SMALL)
def test_reward_that_comes_later_is_discounted(learner, model):
    run = learner(model, probes.delayed_reward())
    np.testing.assert_allclose(run.steps.value, GAMMA ** (2.0 - run.steps.obs), atol=0.1)
    np.testing.assert_allclose(run.last_value, np.full(B, GAMMA**2), atol=0.1)


def test_an_action_for_an_observation(learner):
    run = learner("ff", probes.action_for_observation())
    assert (run.steps.action == run.steps.obs).mean() > 0.95
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.1)


@pytest.mark.parametrize("model", ["lstm", "gru", "s5"])
def test_memory_is_used_where_it_is_needed(learner, model):
    run = learner(model, probes.memory())
    assert run.steps.reward[2::3].mean() > 0.9
    values = np.asarray(run.steps.value)
    np.testing.assert_allclose(values[0::3], np.full((T // 3, B), GAMMA**2), atol=0.15)
    np.testing.assert_allclose(values[2::3], np.ones((T // 3, B)), atol=0.15)


def test_without_memory_it_cannot_be_learnt(learner):
    """Both cues look the same in the last step. With any action, half of the episodes pay 1 and half -1."""
    run = learner("ff", probes.memory())
    assert abs(run.steps.reward[2::3].mean()) < 5 / np.sqrt(T // 3 * B)
    np.testing.assert_allclose(run.steps.value[2::3], np.zeros((T // 3, B)), atol=0.35)


# ------------------------------------------------------------------------------------------- loss and gradient step


def numpy_loss(logits, value, steps, advantage, target, c: PPO) -> dict[str, float]:
    """The losses in plain float64 numpy."""
    logits = np.asarray(logits, np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_prob = np.take_along_axis(log_probs, np.asarray(steps.action)[..., None], -1)[..., 0]
    log_ratio = log_prob - np.asarray(steps.log_prob, np.float64)
    ratio = np.exp(log_ratio)
    advantage, target, value = (np.asarray(x, np.float64) for x in (advantage, target, value))
    objective, squared_errors = [], []
    for r, a in zip(ratio.ravel(), advantage.ravel(), strict=True):
        objective.append(min(r * a, min(max(r, 1 - c.clip_eps), 1 + c.clip_eps) * a))
    for v, old, t in zip(value.ravel(), np.asarray(steps.value).ravel(), target.ravel(), strict=True):
        near = min(max(v, old - c.clip_eps), old + c.clip_eps)
        squared_errors.append(max((v - t) ** 2, (near - t) ** 2))
    out = {
        "policy_loss": -np.mean(objective),
        "value_loss": 0.5 * np.mean(squared_errors),
        "entropy": -(np.exp(log_probs) * log_probs).sum(-1).mean(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(ratio - 1) > c.clip_eps).mean(),
    }
    out["loss"] = out["policy_loss"] + c.value_coef * out["value_loss"] - c.entropy_coef * out["entropy"]
    return out


def test_the_loss_is_that_of_plain_numpy():
    agent = make_agent("lstm", entropy_coef=0.3, value_coef=0.7)
    state, run = experience(agent)
    batch = as_batch(agent, run)
    loss, metrics = jax.jit(agent.loss)(state.params, batch)
    logits, values, _ = agent.model.apply(state.params, run.steps.obs, run.carry, run.steps.first)
    expected = numpy_loss(logits, values[..., 0], run.steps, batch.advantage, batch.target, agent.config)
    assert 0.05 < expected["clip_fraction"] < 0.95
    assert set(metrics) == set(expected)
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(loss, expected["loss"], rtol=1e-4)


def test_a_rollout_is_reproduced_by_the_parameters_that_made_it():
    """Carries and episode starts are those of the rollout: every ratio is 1, every value the recorded one."""
    agent = make_agent("lstm")
    state = init(agent)
    params = disturbed(state.params)
    run = play(agent.model, jax.random.key(1), params, probes.memory())
    _, metrics = jax.jit(agent.loss)(params, as_batch(agent, run))
    assert float(metrics["clip_fraction"]) == 0.0
    np.testing.assert_allclose(metrics["approx_kl"], 0.0, atol=1e-6)
    value = agent.model.apply(params, run.steps.obs, run.carry, run.steps.first)[1]
    np.testing.assert_allclose(value[..., 0], run.steps.value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_grad_norm", [1e-3, 1e3])
def test_one_gradient_step_is_adam_by_hand(max_grad_norm):
    agent = make_agent("ff", n_epochs=1, max_grad_norm=max_grad_norm, adam_eps=1e-5, lr=0.01)
    state, run = experience(agent)
    batch = as_batch(agent, run)
    a = np.asarray(batch.advantage)
    batch = dataclasses.replace(batch, advantage=jnp.asarray((a - a.mean()) / (a.std() + 1e-5)))
    gradients = jax.jit(jax.grad(agent.loss, has_aux=True))(state.params, batch)[0]
    after, metrics = jax.jit(agent.update)(jax.random.key(0), state, run)

    norm = np.sqrt(sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in jax.tree.leaves(gradients)))
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-4)  # before clipping
    assert (norm > max_grad_norm) == (max_grad_norm == 1e-3)
    for before, new, g in zip(*map(jax.tree.leaves, (state.params, after.params, gradients)), strict=True):
        g = np.asarray(g, np.float64) * min(1.0, max_grad_norm / norm)
        first_moment, second_moment = 0.1 * g / (1 - 0.9), 0.001 * g**2 / (1 - 0.999)  # bias-corrected after one step
        expected = np.asarray(before) - 0.01 * first_moment / (np.sqrt(second_moment) + 1e-5)
        np.testing.assert_allclose(new, expected, rtol=1e-4, atol=2e-6)
    assert int(after.n_updates) == 1


def test_advantages_are_normalised():
    a = jax.random.normal(jax.random.key(0), (T, B)) * 3 + 5
    np.testing.assert_allclose(normalized(a).mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(normalized(a).std(), 1.0, rtol=1e-4)
    assert not normalized(jnp.full((T, B), 0.5)).any()


def test_explained_variance():
    target = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    assert float(explained_variance(target, target)) == 1.0
    assert float(explained_variance(jnp.full((2, 2), 9.0), target)) == 0.0
    np.testing.assert_allclose(explained_variance(-target, target), -3.0, rtol=1e-5)
    assert float(explained_variance(target, jnp.ones((2, 2)))) == 0.0


# ------------------------------------------------------------------------------------------- steps that do not count


def with_garbage(run: Rollout) -> Rollout:
    """`run`, with other numbers in all steps that are not valid, and after the last step."""
    valid = run.steps.valid
    k_obs, k_action, k_reward, k_value, k_log_prob = jax.random.split(jax.random.key(20), 5)

    def spoilt(x: jax.Array, garbage: jax.Array) -> jax.Array:
        return jnp.where(valid, x, garbage)

    s = run.steps
    steps = s.replace(
        obs=spoilt(s.obs, jax.random.randint(k_obs, (T, B), 0, 4, jnp.int32)),
        action=spoilt(s.action, jax.random.randint(k_action, (T, B), 0, 2, jnp.int32)),
        reward=spoilt(s.reward, 99.0 * jax.random.normal(k_reward, (T, B))),
        value=spoilt(s.value, 99.0 * jax.random.normal(k_value, (T, B))),
        log_prob=spoilt(s.log_prob, -3.0 * jax.random.uniform(k_log_prob, (T, B))),
    )
    return run.replace(steps=steps, last_value=run.last_value + 99.0)


@pytest.mark.parametrize(("model", "n_minibatches"), [("ff", 1), ("ff", 4), ("lstm", 1), ("lstm", 4)])
def test_steps_that_are_not_valid_are_not_learnt_from(model, n_minibatches):
    agent = make_agent(model, n_epochs=2, n_minibatches=n_minibatches, entropy_coef=0.1)
    state, run = experience(agent, play=play_once)
    assert 0 < run.steps.valid.sum() < T * B
    update = jax.jit(agent.update)
    expected = update(jax.random.key(0), state, run)
    found = update(jax.random.key(0), state, with_garbage(run))
    all_count = run.replace(steps=run.steps.replace(valid=None))
    assert not np.allclose(update(jax.random.key(0), state, all_count)[1]["loss"], expected[1]["loss"], rtol=0.01)
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_loss_over_the_valid_steps_is_that_of_plain_numpy():
    agent = make_agent("lstm", entropy_coef=0.3, value_coef=0.7)
    state, run = experience(agent, play=play_once)
    batch = as_batch(agent, run)
    _, metrics = jax.jit(agent.loss)(state.params, batch)
    logits, values, _ = agent.model.apply(state.params, run.steps.obs, run.carry, run.steps.first)
    valid = np.arange(T)[:, None] < LENGTHS
    steps = jax.tree.map(lambda x: np.asarray(x)[valid], run.steps)
    parts = (np.asarray(x)[valid] for x in (logits, values[..., 0], batch.advantage, batch.target))
    logits, value, advantage, target = parts
    expected = numpy_loss(logits, value, steps, advantage, target, agent.config)
    assert 0.05 < expected["clip_fraction"] < 0.95
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, atol=1e-5, err_msg=name)


def test_moments_are_those_of_the_valid_steps():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(3, 2, (T, B)).astype(np.float32) for _ in range(2))
    valid = rng.random((T, B)) < 0.3
    found = np.asarray(normalized(jnp.asarray(x), jnp.asarray(valid)))
    np.testing.assert_allclose(
        found[valid], (x[valid] - x[valid].mean()) / (x[valid].std() + 1e-5), rtol=1e-4, atol=1e-5
    )
    explained = 1 - (y - x)[valid].var() / y[valid].var()
    np.testing.assert_allclose(explained_variance(*map(jnp.asarray, (x, y, valid))), explained, rtol=1e-4)


def test_a_minibatch_without_a_valid_step_is_harmless():
    """Without memory, minibatches are made of single steps. Here, most of them have no valid step."""
    agent = make_agent("ff", n_epochs=1, n_minibatches=T * B)
    state, run = experience(agent, play=play_once)
    after, metrics = jax.jit(agent.update)(jax.random.key(0), state, run)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, metrics)))


# ------------------------------------------------------------------------------------------- minibatches


@pytest.mark.parametrize(("model", "n_minibatches", "ends"), [("lstm", 2, False), ("lstm", 1, True), ("ff", 2, True)])
def test_the_gradient_of_chunks_is_that_of_the_whole(model, n_minibatches, ends):
    """Chunks give the same gradient up to rounding, even if they differ in the number of valid steps."""
    whole, parts = (
        make_agent(model, n_epochs=1, n_minibatches=n_minibatches, n_chunks=n, max_grad_norm=1e6) for n in (1, 4)
    )
    state, run = experience(whole, **({"play": play_once} if ends else {}))
    expected = jax.jit(whole.update)(jax.random.key(1), state, run)
    found = jax.jit(parts.update)(jax.random.key(1), state, run)
    # Adam's second moment is the squared gradient, which does not depend on the step size
    for x, y in zip(jax.tree.leaves(expected[0].opt_state), jax.tree.leaves(found[0].opt_state), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-7)
    for name, number in expected[1].items():
        np.testing.assert_allclose(number, found[1][name], rtol=1e-4, atol=1e-5, err_msg=name)
    with pytest.raises(ValueError, match=r"^ppo.n_chunks is 3: it must divide the 4 rows \(try 2\)$"):
        make_agent("lstm", n_chunks=3).check_batch(4, T)


@pytest.mark.parametrize(("model", "n_minibatches"), [("lstm", 4), ("lstm", B), ("ff", 6)])
def test_an_epoch_uses_everything_exactly_once(model, n_minibatches):
    """With a negligible step size, the mean over the minibatches is the loss of the whole batch."""
    whole = make_agent(model, n_epochs=1, lr=1e-30, normalize_advantages=False)
    parts = make_agent(model, n_epochs=1, lr=1e-30, normalize_advantages=False, n_minibatches=n_minibatches)
    state, run = experience(whole)
    # every row has a different weight, so a row that is used twice or left out changes the result
    run = dataclasses.replace(run, steps=dataclasses.replace(run.steps, reward=run.steps.reward * jnp.arange(B)[None]))
    expected = jax.jit(whole.update)(jax.random.key(1), state, run)[1]
    metrics = jax.jit(parts.update)(jax.random.key(1), state, run)[1]
    for name in ("loss", "value_loss", "policy_loss", "entropy", "explained_variance"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_minibatches_are_rows_with_memory_and_steps_without():
    agent = make_agent("lstm")
    _, run = experience(agent)
    batch = as_batch(agent, run)
    rows = batch.rows(jnp.array([3, 0]))
    np.testing.assert_array_equal(rows.steps.obs, batch.steps.obs[:, [3, 0]])
    np.testing.assert_array_equal(rows.carry.hidden, batch.carry.hidden[jnp.array([3, 0])])
    steps = dataclasses.replace(batch, carry=()).single_steps()
    np.testing.assert_array_equal(steps.target[0], batch.target.reshape(-1))
    np.testing.assert_array_equal(steps.steps.action[0], batch.steps.action.reshape(-1))


@pytest.mark.parametrize(("model", "n_minibatches"), [("lstm", 4), ("ff", 8)])
def test_rows_stay_together(model, n_minibatches):
    class Seen(PPOAgent):
        def _gradient_step(self, learnt, batch):
            return learnt, {"rows": batch.advantage.reshape(-1)}

    agent = make_agent(model, n_minibatches=n_minibatches, rows_together=4)
    state, run = experience(agent)
    batch = as_batch(agent, run)
    batch = dataclasses.replace(batch, advantage=jnp.tile(jnp.arange(B, dtype=jnp.float32), (T, 1)))
    seen = Seen(agent.model, agent.config)
    _, parts = seen._epoch(jax.random.key(3), (state.params, state.opt_state), batch)
    assert len(parts["rows"]) == n_minibatches
    found = np.sort(np.asarray(parts["rows"]), axis=None)
    np.testing.assert_array_equal(found, np.sort(np.tile(np.arange(B), len(found) // B)))
    for rows in np.asarray(parts["rows"], int):
        groups = np.bincount(rows, minlength=B).reshape(-1, 4)
        assert (groups == groups[:, :1]).all()  # all four rows of a group, or none, equally often


def test_rows_that_cannot_stay_together_are_refused():
    message = "ppo.rows_together is 3: so many rows must divide the 16 rows, and the 4 rows of a minibatch (try 2)"
    with pytest.raises(ValueError, match=re.escape(message)):
        make_agent("lstm", n_minibatches=4, rows_together=3).check_batch(B, T)


def test_epochs_shuffle_anew():
    agent = make_agent("lstm", n_epochs=1, n_minibatches=4)
    state, run = experience(agent)
    update = jax.jit(agent.update)
    one, other = (update(jax.random.key(k), state, run)[0].params for k in (1, 2))
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_one_minibatch_is_neither_shuffled_nor_copied():
    agent = make_agent("lstm")
    state, run = experience(agent)
    program = str(jax.make_jaxpr(agent.update)(jax.random.key(0), state, run))
    assert " sort" not in program
    assert " sort" in str(jax.make_jaxpr(make_agent("lstm", n_minibatches=2).update)(jax.random.key(0), state, run))


@pytest.mark.parametrize(
    ("model", "n_minibatches", "message"),
    [
        ("lstm", 5, "ppo.n_minibatches is 5: it must divide the 16 rows (try 4)"),
        ("ff", 5, "ppo.n_minibatches is 5: it must divide the 192 steps (try 4)"),
        ("gru", 32, "ppo.n_minibatches is 32: it must divide the 16 rows (try 16)"),
    ],
)
def test_minibatches_that_do_not_divide_are_refused(model, n_minibatches, message):
    for agent in (make_agent(model, n_minibatches=n_minibatches), AgentPop(make_agent(model, n_minibatches=5), 2)):
        with pytest.raises(ValueError, match="must divide"):
            agent.check_batch(B, T)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_agent(model, n_minibatches=n_minibatches).check_batch(B, T)
    make_agent("ff", n_minibatches=12).check_batch(n_rows=8, n_steps=3)  # 24 steps, although not 8 rows


# ------------------------------------------------------------------------------------------- step size


def test_the_step_size_falls_with_the_gradient_steps_taken():
    agent = make_agent("ff", n_total_updates=3, lr=0.4, lr_final=0.1, n_epochs=2, n_minibatches=2)
    params = {"w": jnp.zeros(1)}
    opt_state, sizes = agent.optimizer.init(params), []
    for _ in range(14):
        steps, opt_state = agent.optimizer.update({"w": jnp.ones(1)}, opt_state, params)
        sizes.append(-float(steps["w"][0]))  # Adam's step is the step size where the gradient never changes
    np.testing.assert_allclose(sizes, [0.4 - 0.3 * min(i, 12) / 12 for i in range(14)], rtol=1e-3)


def test_the_schedule_is_used_and_ends_with_the_run():
    agent = make_agent("ff", n_total_updates=2, lr=0.1, lr_final=0.0, n_epochs=2, n_minibatches=2)
    state, run = experience(agent)
    update = jax.jit(agent.update)
    moved = []
    for _ in range(3):
        before = state.params
        state, _ = update(jax.random.key(0), state, run)
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True)
        moved.append(max(float(jnp.abs(a - b).max()) for a, b in pairs))
    assert moved[0] > moved[1] > 0
    assert moved[2] == 0.0  # 2 updates of 2 x 2 gradient steps are over
    assert int(state.n_updates) == 3


@pytest.mark.parametrize("setting", ["lr_final", "entropy_coef_final"])
def test_a_schedule_needs_its_length(setting):
    with pytest.raises(ValueError, match=f"ppo.{setting} is 0.0: the agent must be told its n_total_updates"):
        make_agent("ff", **{setting: 0.0})


@pytest.mark.parametrize(("name", "n_minibatches"), [("ff", 1), ("ff", 2), ("lstm", 1), ("lstm", 2)])
def test_the_entropy_bonus_falls_with_the_updates(name, n_minibatches):
    """An update of the falling bonus is one of an agent with a constant bonus, of that update's weight."""
    falling = make_agent(name, n_total_updates=4, entropy_coef=0.8, entropy_coef_final=0.4, n_minibatches=n_minibatches)
    state, run = experience(falling)
    update = jax.jit(falling.update)
    # The fifth has the last weight: an agent may be updated more often than planned.
    for weight in (0.8, 0.7, 0.6, 0.5, 0.4, 0.4):
        constant = make_agent(name, entropy_coef=weight, n_minibatches=n_minibatches)
        expected = jax.jit(constant.update)(jax.random.key(1), state, run)
        found = update(jax.random.key(1), state, run)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        state = found[0]


# ------------------------------------------------------------------------------------------- devices, seeds, students


@pytest.mark.parametrize(("n_epochs", "play"), [(1, play), (3, play), (3, play_once)], ids=["1", "3", "3-once"])
def test_four_devices_learn_what_one_learns_from_the_whole_batch(n_epochs, play):
    agent = make_agent("lstm", n_epochs=n_epochs)
    state, run = experience(agent, play=play)
    expected, metrics_of_one = jax.jit(agent.update)(jax.random.key(0), state, run)

    def update(*args):
        state, metrics = agent.update(*args)
        return state, axes.device_mean(metrics)

    mesh = jax.make_mesh((4,), (axes.DEVICE,), axis_types=(AxisType.Auto,))
    rows, steps, whole = PartitionSpec(axes.DEVICE), PartitionSpec(None, axes.DEVICE), PartitionSpec()
    sharding = Rollout(steps=steps, carry=rows, last_value=rows, final=None)
    specs = {"in_specs": (whole, whole, sharding), "out_specs": (whole, whole)}
    state, metrics = jax.jit(jax.shard_map(update, mesh=mesh, check_vma=False, **specs))(jax.random.key(0), state, run)
    for name, number in metrics_of_one.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-3, atol=1e-5, err_msg=name)
    for x, y in zip(jax.tree.leaves(state.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


def test_eight_seeds_in_a_vmap_learn_what_each_learns_alone():
    agent = make_agent("lstm", n_minibatches=2, ema_decay=0.9)
    cases = [experience(agent, seed) for seed in range(8)]
    states, runs = (jax.tree.map(lambda *x: jnp.stack(x), *part) for part in zip(*cases, strict=True))
    keys = jax.random.split(jax.random.key(3), 8)
    together, _ = jax.jit(jax.vmap(agent.update))(keys, states, runs)
    update = jax.jit(agent.update)
    for i, (state, run) in enumerate(cases):
        alone, _ = update(keys[i], state, run)
        for x, y in zip(*(jax.tree.leaves((s.params, s.average)) for s in (together, alone)), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-3, atol=1e-5)


def run_of_students(runs: list[Rollout]) -> Rollout:
    """Steps [T, A, R], the rest [A, R]."""
    return Rollout(
        steps=jax.tree.map(lambda *x: jnp.stack(x, axis=1), *[run.steps for run in runs]),
        carry=jax.tree.map(lambda *x: jnp.stack(x), *[run.carry for run in runs]),
        last_value=jnp.stack([run.last_value for run in runs]),
        final=None,
    )


@pytest.mark.parametrize("n", [1, 2])
def test_each_student_of_a_population_is_an_agent_of_its_own(n):
    agent = make_agent("lstm", ema_decay=0.9)
    pop = AgentPop(agent, n)
    keys = jax.random.split(jax.random.key(0), n)
    state = pop.init(jax.random.key(0), jnp.zeros((), jnp.int32))
    runs = [play(agent.model, jax.random.key(i), init(agent, i).params, probes.memory()) for i in range(n)]
    run = run_of_students(runs)
    after, metrics = jax.jit(pop.update)(jax.random.key(0), state, run)
    assert all(m.shape == () for m in metrics.values())
    update = jax.jit(agent.update)
    obs, first, carry = run.steps.obs[0], run.steps.first[0], pop.init_carry((n, B))
    actions = pop.act(jax.random.key(0), after.params, obs, carry, first)[0]
    policy, values, _ = pop.policy(after.params, obs, carry, first)
    assert policy.probs.shape == (n, B, 2)
    np.testing.assert_allclose(pop.value(after.params, obs, carry, first), values)
    for i in range(n):
        one, _ = update(keys[i], init_jit(agent, keys[i]), runs[i])
        mine = jax.tree.map(lambda x, i=i: x[i], after)
        for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        expected = agent.act(keys[i], mine.params, obs[i], agent.init_carry((B,)), first[i])[0]
        np.testing.assert_array_equal(actions[i], expected)


@pytest.mark.parametrize(("n", "batched"), [(1, False), (2, True)])
def test_a_population_of_one_has_no_batched_products(n, batched):
    agent = make_agent("lstm")
    pop = AgentPop(agent, n)
    state = pop.init(jax.random.key(0), jnp.zeros((), jnp.int32))
    run = run_of_students([experience(agent)[1]] * n)
    program = jax.jit(pop.update).lower(jax.random.key(0), state, run).as_text()
    assert ("batching_dims" in program) == batched


@pytest.mark.parametrize("n", [0, -1])
def test_an_empty_population_is_refused(n):
    with pytest.raises(ValueError, match="it must have at least 1"):
        AgentPop(make_agent(), n)


# ------------------------------------------------------------------------------------------- compilation, settings


@pytest.mark.parametrize("model", ["lstm", "ff"])
def test_an_update_is_traced_once_and_keeps_its_types(model):
    agent = make_agent(model, n_total_updates=9, lr_final=0.0, n_minibatches=2)
    state, run = experience(agent)
    chex.clear_trace_counter()
    update = jax.jit(chex.assert_max_traces(agent.update, n=1))
    before = jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state)
    for i in range(3):
        state, metrics = update(jax.random.key(i), state, run)
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state) == before
    assert not any(x.weak_type for x in jax.tree.leaves(state))
    assert all(m.shape == () and m.dtype == jnp.float32 and jnp.isfinite(m) for m in metrics.values())
    losses = {"loss", "policy_loss", "value_loss", "entropy"}
    assert set(metrics) == losses | {"grad_norm", "explained_variance", "approx_kl", "clip_fraction"}


def test_defaults_are_those_of_published_domain_randomisation():
    c = PPO()
    assert (c.lr, c.gamma, c.gae_lambda, c.clip_eps, c.value_coef) == (1e-4, 0.995, 0.98, 0.2, 0.5)
    assert (c.entropy_coef, c.n_epochs, c.n_minibatches, c.max_grad_norm, c.adam_eps) == (1e-3, 5, 1, 0.5, 1e-5)


@pytest.mark.parametrize(
    ("setting", "value", "rule"),
    [
        ("lr", 0.0, "positive"),
        ("lr", float("nan"), "positive"),
        ("lr_final", -1.0, "at least 0"),
        ("gamma", 1.5, "between 0 and 1"),
        ("gae_lambda", -0.1, "between 0 and 1"),
        ("clip_eps", 0.0, "positive"),
        ("n_epochs", 0, "at least 1"),
        ("n_minibatches", 0, "at least 1"),
        ("entropy_coef", -1.0, "at least 0"),
        ("entropy_coef_final", -1.0, "at least 0"),
        ("value_coef", float("inf"), "at least 0"),
        ("max_grad_norm", -0.5, "positive"),
        ("adam_eps", 0.0, "positive"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(setting, value, rule):
    with pytest.raises(ValueError, match=f"^ppo.{setting} is {value}: it must be {rule} and finite$"):
        PPO(**{setting: value})


@pytest.mark.parametrize("name", SMALL)
def test_actions_follow_the_policy(name):
    """Sampled frequencies are the probabilities, to five standard errors; the log probability is the action's."""
    agent = make_agent(name)
    params = disturbed(init(agent).params)
    n = 4000
    obs, first, carry = jnp.ones(n, jnp.int32), jnp.ones(n, bool), agent.init_carry((n,))
    policy, value, _ = agent.policy(params, obs, carry, first)
    action, log_prob, acted_value, _ = agent.act(jax.random.key(1), params, obs, carry, first)
    p = float(policy.probs[0, 1])
    assert 0.05 < p < 0.95
    assert abs(action.mean() - p) < 5 * np.sqrt(p * (1 - p) / n)
    np.testing.assert_allclose(log_prob, np.log(np.where(action == 1, p, 1 - p)), rtol=1e-4)
    np.testing.assert_allclose(value, acted_value)


# ------------------------------------------------------------------------------------------- averaged parameters


def numbers(params) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


@pytest.mark.parametrize("decay", [0.6, 0.9999])
def test_the_average_weighs_each_update_and_not_the_start(decay):
    """Against plain numpy in 64 bits, with Adam's correction."""
    start, *after = np.random.default_rng(0).normal(size=(6, 3))
    average = jnp.asarray(start, jnp.float32)
    for n in range(1, 6):
        average = averaged(average, jnp.asarray(after[n - 1], jnp.float32), jnp.int32(n), decay)
        weights = decay ** np.arange(n)[::-1]
        np.testing.assert_allclose(average, weights @ after[:n] / weights.sum(), rtol=1e-5, atol=1e-6)


def test_an_update_moves_the_average_and_learns_the_same():
    """Once an update: with two epochs, the average after the first update is where it ended."""
    plain, agent = (make_agent(n_epochs=2, ema_decay=d) for d in (0.0, 0.9))
    state, run = experience(plain)
    assert state.average == ()
    assert state.evaluated is state.params
    fresh = init(agent)
    np.testing.assert_array_equal(numbers(fresh.evaluated), numbers(fresh.params))
    update = jax.jit(agent.update)
    first, metrics = update(jax.random.key(0), state.replace(average=fresh.params), run)
    alone, same_metrics = jax.jit(plain.update)(jax.random.key(0), state, run)
    chex.assert_trees_all_equal((first.params, metrics), (alone.params, same_metrics))
    np.testing.assert_allclose(numbers(first.evaluated), numbers(first.params), rtol=1e-6, atol=1e-7)
    second, _ = update(jax.random.key(1), first, run)
    expected = (0.9 * numbers(first.params) + numbers(second.params)) / 1.9
    np.testing.assert_allclose(numbers(second.evaluated), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_averages_nothing_is_refused(decay):
    with pytest.raises(ValueError, match=r"^ppo.ema_decay is (-0.1|1.0|nan): it must be at least 0, less than 1 and"):
        PPO(ema_decay=decay)


# ------------------------------------------------------------------------------------------- change of parameters


class PlainDescent(PPOAgent):
    """Steps against the gradient at rate 1, with nothing that rescales it."""

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.sgd(1.0)


def test_the_change_of_a_level_is_that_of_a_real_update_on_it_alone():
    """One epoch of one minibatch, by a plain loop over the levels, which have two rows each."""
    n_evals, agent = 2, make_agent("lstm", n_minibatches=2, entropy_coef=0.1)
    state, run = experience(agent)
    found = jax.jit(agent.parameter_change, static_argnums=2)(state.params, run, n_evals)
    settings = dataclasses.replace(agent.config, n_epochs=1, n_minibatches=1, normalize_advantages=False)
    update = jax.jit(PlainDescent(agent.model, settings).update)
    expected = []
    for b in range(0, B, n_evals):
        rows = slice(b, b + n_evals)
        level = Rollout(
            steps=jax.tree.map(lambda x: x[:, rows], run.steps),  # noqa: B023
            carry=jax.tree.map(lambda x: x[rows], run.carry),  # noqa: B023
            last_value=run.last_value[rows],
            final=None,
        )
        after, _ = update(jax.random.key(0), state.replace(opt_state=optax.sgd(1.0).init(state.params)), level)
        moved = numbers(after.params).astype(np.float64) - numbers(state.params)
        expected.append((moved**2).sum())
    assert max(expected) > 1.5 * min(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_levels_at_once_are_no_more_than_a_gradient_step_holds():
    agent, few = make_agent(n_minibatches=2, n_chunks=2), [np.zeros(10)]
    assert agent._levels_at_once(few, 32, 1) == 8
    assert agent._levels_at_once(few, 32, 4) == 8
    assert agent._levels_at_once(few, 36, 1) == 9
    assert agent._levels_at_once(few, 7, 1) == 1
    assert make_agent()._levels_at_once(few, 32, 1) == 32
    large = [np.broadcast_to(np.float32(0), (MOST_GRADIENTS // 5,))]
    assert make_agent()._levels_at_once(large, 32, 1) == 4
    assert make_agent()._levels_at_once(large * 9, 32, 1) == 1
