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
from minimax_lib.playing.rollout import Rollout, rollout
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


def deep(*case) -> object:
    return pytest.param(*case, marks=pytest.mark.deep)


WEIGHTS = {"entropy_coef": 0.3, "value_coef": 0.7}  # of the losses, other than usual


def make_agent(model: str = "ff", n_total_updates: int | None = None, **settings) -> PPOAgent:
    network = SMALL[model].build(ENV.observation_space, ENV.action_space)
    return PPOAgent(network, dataclasses.replace(LEARNER, **settings), n_total_updates)


@functools.partial(jax.jit, static_argnames="agent")
def init_jit(agent: PPOAgent, key: jax.Array):
    return agent.init(key, jnp.zeros((), jnp.int32))


# One program for all tests whose agents are equal.
update = jax.jit(lambda agent, key, state, run: agent.update(key, state, run), static_argnums=0)


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


def noise(params, scale: float, seed: int):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: scale * rng.normal(size=x.shape).astype(np.float32), params)


def experience(agent: PPOAgent, seed: int = 1, play=play) -> tuple:
    """(train state, a rollout of other parameters than the state's: ratios differ from 1)."""
    state, run = experienced(dataclasses.replace(agent, config=PPO(), n_total_updates=None), seed, play)
    return dataclasses.replace(state, average=state.params if agent.config.ema_decay else ()), run


@functools.cache
def experienced(agent: PPOAgent, seed: int, play) -> tuple:
    # No setting changes what a train state is made of, except for the average.
    state = jax.eval_shape(functools.partial(init_jit, agent), jax.random.key(0))
    if agent.model == make_agent("s5").model:  # whose parameters cannot be just any
        params = jax.tree.map(
            lambda x, n: np.asarray(x) + n, init_jit(agent, jax.random.key(0)).params, noise(state.params, 0.3, 5)
        )
    else:
        params = noise(state.params, 0.4, seed=5)
    behaviour = jax.tree.map(np.add, params, noise(params, 0.15, seed=6))
    reward = np.random.default_rng(7).normal(size=(4, 2, 2)).astype(np.float32)
    level = dataclasses.replace(probes.memory(), reward=reward)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state)
    # Arrays of jax, so that no test is served by a program for NumPy's, and another by one for these.
    state = jax.tree.map(jnp.asarray, dataclasses.replace(zeros, params=params))
    return state, play(agent.model, jax.random.key(seed), behaviour, level)


@functools.partial(jax.jit, static_argnames="agent")
def as_batch(agent: PPOAgent, run: Rollout) -> Batch:
    advantage, target = run.advantages(agent.config.gamma, agent.config.gae_lambda)
    return Batch(
        steps=run.steps, carry=run.carry, advantage=advantage, target=target, entropy_coef=agent.config.entropy_coef
    )


@functools.partial(jax.jit, static_argnames="agent")
def judged(agent: PPOAgent, params, run: Rollout) -> tuple:
    """(batch, loss, metrics, logits, values) of the parameters on the whole rollout."""
    batch = as_batch(agent, run)
    loss, metrics = agent.loss(params, batch)
    logits, values, _ = agent.model.apply(params, run.steps.obs, run.carry, run.steps.first)
    return batch, loss, metrics, logits, values[..., 0]


# ------------------------------------------------------------------------------------------- probes


PROBES = (
    "constant_reward",
    "action_reward",
    "observation_reward",
    "action_for_observation",
    "delayed_reward",
    "memory",
)
WITH_MEMORY = [deep("lstm"), deep("gru"), deep("s5")]


@functools.cache
def learnt(model: str) -> dict[str, Rollout]:
    """A last rollout of each probe, after an agent has learnt it. They are learnt side by side, in one program."""
    agent = make_agent(model)

    def learn(key, level) -> Rollout:
        k_init, k_updates = jax.random.split(key)
        state = agent.init(k_init, jnp.zeros((), jnp.int32))

        def update(state, key):
            k_play, k_update = jax.random.split(key)
            run = play(agent.model, k_play, state.params, level)
            return agent.update(k_update, state, run)[0], (run.steps, run.last_value)

        # The rollout that the last update learns from is the one that counts: made after 100 updates.
        _, runs = jax.lax.scan(update, state, jax.random.split(k_updates, 101))
        steps, last_value = jax.tree.map(lambda x: x[-1], runs)
        return Rollout(steps=steps, carry=(), last_value=last_value, final=None)

    levels = jax.tree.map(lambda *x: np.stack(x), *[getattr(probes, name)() for name in PROBES])
    runs = jax.device_get(jax.jit(jax.vmap(learn, (None, 0)))(jax.random.key(0), levels))
    return {name: jax.tree.map(lambda x, i=i: x[i], runs) for i, name in enumerate(PROBES)}


@pytest.mark.parametrize("model", ["ff", *WITH_MEMORY])
def test_constant_reward(model):
    run = learnt(model)["constant_reward"]
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.05)


@pytest.mark.parametrize("model", ["ff", *WITH_MEMORY])
def test_reward_for_an_action(model):
    run = learnt(model)["action_reward"]
    assert run.steps.action.mean() > 0.95
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.1)


@pytest.mark.parametrize("model", ["ff", *WITH_MEMORY])
def test_reward_for_an_observation(model):
    run = learnt(model)["observation_reward"]
    np.testing.assert_allclose(run.steps.value, 2.0 * run.steps.obs - 1.0, atol=0.15)


@pytest.mark.parametrize("model", ["ff", *WITH_MEMORY])
def test_reward_that_comes_later_is_discounted(model):
    run = learnt(model)["delayed_reward"]
    np.testing.assert_allclose(run.steps.value, GAMMA ** (2.0 - run.steps.obs), atol=0.1)
    np.testing.assert_allclose(run.last_value, np.full(B, GAMMA**2), atol=0.1)


@pytest.mark.parametrize("model", ["ff", *WITH_MEMORY])
def test_an_action_for_an_observation(model):
    run = learnt(model)["action_for_observation"]
    assert (run.steps.action == run.steps.obs).mean() > 0.95
    np.testing.assert_allclose(run.steps.value, np.ones((T, B)), atol=0.1)


@pytest.mark.parametrize("model", WITH_MEMORY)
def test_memory_is_used_where_it_is_needed(model):
    run = learnt(model)["memory"]
    assert run.steps.reward[2::3].mean() > 0.9
    values = np.asarray(run.steps.value)
    np.testing.assert_allclose(values[0::3], np.full((T // 3, B), GAMMA**2), atol=0.15)
    np.testing.assert_allclose(values[2::3], np.ones((T // 3, B)), atol=0.15)


def test_without_memory_it_cannot_be_learnt():
    """Both cues look the same in the last step. With any action, half of the episodes pay 1 and half -1."""
    run = learnt("ff")["memory"]
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
        near = min(max(v, old - c.clip_eps), old + c.clip_eps) if c.clip_value else v
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


@pytest.mark.parametrize("clip_value", [True, deep(False)])
def test_the_loss_is_that_of_plain_numpy(clip_value):
    agent = make_agent("lstm", **WEIGHTS, clip_value=clip_value)
    state, run = experience(agent)
    batch, loss, metrics, logits, value = judged(agent, state.params, run)
    expected = numpy_loss(logits, value, run.steps, batch.advantage, batch.target, agent.config)
    assert 0.05 < expected["clip_fraction"] < 0.95
    assert set(metrics) == set(expected)
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(loss, expected["loss"], rtol=1e-4)


def test_a_rollout_is_reproduced_by_the_parameters_that_made_it():
    """Carries and episode starts are those of the rollout: every ratio is 1, every value the recorded one."""
    agent = make_agent("lstm", **WEIGHTS)
    params = experience(agent)[0].params
    run = play(agent.model, jax.random.key(1), params, probes.memory())
    _, _, metrics, _, value = judged(agent, params, run)
    assert float(metrics["clip_fraction"]) == 0.0
    np.testing.assert_allclose(metrics["approx_kl"], 0.0, atol=1e-6)
    np.testing.assert_allclose(value, run.steps.value, rtol=1e-4, atol=1e-5)


gradient_of_loss = jax.jit(lambda agent, *args: jax.grad(agent.loss, has_aux=True)(*args), static_argnums=0)


def by_hand(max_grad_norm: float) -> PPOAgent:
    """One gradient step of the whole batch."""
    return make_agent("ff", n_epochs=1, max_grad_norm=max_grad_norm, adam_eps=1e-5, lr=0.01)


@pytest.mark.parametrize("max_grad_norm", [1e-3, deep(1e3)])
def test_one_gradient_step_is_adam_by_hand(max_grad_norm):
    agent = by_hand(max_grad_norm)
    state, run = experience(agent)
    batch = as_batch(make_agent("ff"), run)
    a = np.asarray(batch.advantage)
    batch = dataclasses.replace(batch, advantage=(a - a.mean()) / (a.std() + np.float32(1e-5)))
    gradients = gradient_of_loss(make_agent("ff"), state.params, batch)[0]
    after, metrics = update(agent, jax.random.key(0), state, run)

    norm = np.sqrt(sum(float((np.asarray(g, np.float64) ** 2).sum()) for g in jax.tree.leaves(gradients)))
    np.testing.assert_allclose(metrics["grad_norm"], norm, rtol=1e-4)  # before clipping
    assert (norm > max_grad_norm) == (max_grad_norm == 1e-3)
    for before, new, g in zip(*map(jax.tree.leaves, (state.params, after.params, gradients)), strict=True):
        g = np.asarray(g, np.float64) * min(1.0, max_grad_norm / norm)
        first_moment, second_moment = 0.1 * g / (1 - 0.9), 0.001 * g**2 / (1 - 0.999)  # bias-corrected after one step
        expected = np.asarray(before) - 0.01 * first_moment / (np.sqrt(second_moment) + 1e-5)
        np.testing.assert_allclose(new, expected, rtol=1e-4, atol=2e-6)
    assert int(after.n_updates) == 1


normalized_jit, explained_jit = jax.jit(normalized), jax.jit(explained_variance)


def test_advantages_are_normalised():
    a = np.random.default_rng(0).normal(5, 3, (T, B)).astype(np.float32)
    found = np.asarray(normalized_jit(a))
    np.testing.assert_allclose(found.mean(), 0.0, atol=1e-5)
    np.testing.assert_allclose(found.std(), 1.0, rtol=1e-4)
    assert not np.asarray(normalized_jit(np.full((T, B), 0.5, np.float32))).any()


def test_explained_variance():
    target = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    assert float(explained_jit(target, target)) == 1.0
    assert float(explained_jit(np.full((2, 2), 9.0, np.float32), target)) == 0.0
    np.testing.assert_allclose(explained_jit(-target, target), -3.0, rtol=1e-5)
    assert float(explained_jit(target, np.ones((2, 2), np.float32))) == 0.0


# ------------------------------------------------------------------------------------------- steps that do not count


def with_garbage(run: Rollout) -> Rollout:
    """`run`, with other numbers in all steps that are not valid, and after the last step."""
    run = jax.device_get(run)
    valid, rng, s = run.steps.valid, np.random.default_rng(20), run.steps

    def spoilt(x: np.ndarray, garbage: np.ndarray) -> np.ndarray:
        return np.where(valid, x, garbage).astype(x.dtype)

    steps = s.replace(
        obs=spoilt(s.obs, rng.integers(0, 4, (T, B))),
        action=spoilt(s.action, rng.integers(0, 2, (T, B))),
        reward=spoilt(s.reward, 99 * rng.normal(size=(T, B))),
        value=spoilt(s.value, 99 * rng.normal(size=(T, B))),
        log_prob=spoilt(s.log_prob, -3 * rng.random((T, B))),
    )
    return run.replace(steps=steps, last_value=run.last_value + np.float32(99))


# An agent whose whole batch is one gradient step, and one without memory whose gradient steps are of one step each.
WHOLE = make_agent("lstm", n_epochs=1, max_grad_norm=1e6, entropy_coef=0.1, ema_decay=0.9)
SINGLE_STEPS = make_agent("ff", n_epochs=2, n_minibatches=T * B, entropy_coef=0.1)
NOT_ALL_VALID = {
    "ff-192": SINGLE_STEPS,
    "lstm-1": WHOLE,
    "ff-1": make_agent("ff", n_epochs=2, entropy_coef=0.1),
    "ff-4": make_agent("ff", n_epochs=2, n_minibatches=4, entropy_coef=0.1),
    "lstm-4": make_agent("lstm", n_epochs=2, n_minibatches=4, entropy_coef=0.1),
}


@pytest.mark.parametrize("name", ["lstm-1", deep("ff-192"), deep("ff-1"), deep("ff-4"), deep("lstm-4")])
def test_steps_that_are_not_valid_are_not_learnt_from(name):
    agent = NOT_ALL_VALID[name]
    state, run = experience(agent, play=play_once)
    assert 0 < np.asarray(run.steps.valid).sum() < T * B
    key = jax.random.key(0)
    expected, found = (update(agent, key, state, r) for r in (run, with_garbage(run)))
    all_count = run.replace(steps=run.steps.replace(valid=np.ones((T, B), bool)))
    assert not np.allclose(update(agent, key, state, all_count)[1]["loss"], expected[1]["loss"], rtol=0.01)
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_loss_over_the_valid_steps_is_that_of_plain_numpy():
    agent = make_agent("lstm", **WEIGHTS)
    state, run = experience(agent, play=play_once)
    batch, _, metrics, logits, value = judged(agent, state.params, run)
    valid = np.arange(T)[:, None] < LENGTHS
    steps = jax.tree.map(lambda x: np.asarray(x)[valid], run.steps)
    parts = (np.asarray(x)[valid] for x in (logits, value, batch.advantage, batch.target))
    logits, value, advantage, target = parts
    expected = numpy_loss(logits, value, steps, advantage, target, agent.config)
    assert 0.05 < expected["clip_fraction"] < 0.95
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, atol=1e-5, err_msg=name)


def test_moments_are_those_of_the_valid_steps():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(3, 2, (T, B)).astype(np.float32) for _ in range(2))
    valid = rng.random((T, B)) < 0.3
    found = np.asarray(normalized_jit(x, valid))
    np.testing.assert_allclose(
        found[valid], (x[valid] - x[valid].mean()) / (x[valid].std() + 1e-5), rtol=1e-4, atol=1e-5
    )
    explained = 1 - (y - x)[valid].var() / y[valid].var()
    np.testing.assert_allclose(explained_jit(x, y, valid), explained, rtol=1e-4)


def test_a_minibatch_without_a_valid_step_is_harmless():
    """Without memory, minibatches are made of single steps. Here, most of them have no valid step."""
    state, run = experience(SINGLE_STEPS, play=play_once)
    after, metrics = update(SINGLE_STEPS, jax.random.key(0), state, run)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, metrics)))


# ------------------------------------------------------------------------------------------- minibatches


@pytest.mark.parametrize(
    ("model", "n_minibatches", "ends"), [deep("lstm", 1, True), deep("lstm", 2, False), deep("ff", 2, True)]
)
def test_the_gradient_of_chunks_is_that_of_the_whole(model, n_minibatches, ends):
    """Chunks give the same gradient up to rounding, even if they differ in the number of valid steps."""
    settings = {"n_minibatches": n_minibatches, "n_chunks": 1}
    whole, parts = (
        dataclasses.replace(make_agent(model), config=dataclasses.replace(WHOLE.config, **settings | {"n_chunks": n}))
        for n in (1, 4)
    )
    state, run = experience(whole, **({"play": play_once} if ends else {}))
    expected, found = (update(agent, jax.random.key(1), state, run) for agent in (whole, parts))
    # Adam's second moment is the squared gradient, which does not depend on the step size
    for x, y in zip(jax.tree.leaves(expected[0].opt_state), jax.tree.leaves(found[0].opt_state), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-7)
    for name, number in expected[1].items():
        np.testing.assert_allclose(number, found[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_chunks_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"^ppo.n_chunks is 3: it must divide the 4 rows \(try 2\)$"):
        make_agent("lstm", n_chunks=3).check_batch(4, T)


def motionless(model: str, n_minibatches: int) -> PPOAgent:
    """Its parameters stay where they are."""
    settings = {"n_epochs": 1, "lr": 1e-30, "normalize_advantages": False, "n_minibatches": n_minibatches}
    return make_agent(model, **settings, **WEIGHTS)


@pytest.mark.parametrize(("model", "n_minibatches"), [("lstm", 4), deep("ff", 6), deep("lstm", B)])
def test_an_epoch_uses_everything_exactly_once(model, n_minibatches):
    """With a negligible step size, the mean over the minibatches is the loss of the whole batch."""
    agent = motionless(model, n_minibatches)
    state, run = experience(agent)
    # every row has a different weight, so a row that is used twice or left out changes the result
    reward = np.asarray(run.steps.reward) * np.arange(B, dtype=np.float32)
    run = dataclasses.replace(run, steps=dataclasses.replace(run.steps, reward=reward))
    metrics = update(agent, jax.random.key(1), state, run)[1]
    batch, _, expected, *_ = judged(make_agent(model, **WEIGHTS), state.params, run)
    error, target = np.asarray(batch.target) - np.asarray(run.steps.value), np.asarray(batch.target)
    np.testing.assert_allclose(metrics["explained_variance"], 1 - error.var() / target.var(), rtol=1e-4, atol=1e-5)
    for name in ("loss", "value_loss", "policy_loss", "entropy"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@functools.partial(jax.jit, static_argnames="agent")
def cut(agent: PPOAgent, run: Rollout, rows: np.ndarray) -> tuple[Batch, Batch, Batch]:
    batch = as_batch(agent, run)
    return batch, batch.rows(rows), dataclasses.replace(batch, carry=()).single_steps()


def test_minibatches_are_rows_with_memory_and_steps_without():
    agent = make_agent("lstm")
    _, run = experience(agent)
    batch, rows, steps = jax.device_get(cut(agent, run, np.array([3, 0])))
    np.testing.assert_array_equal(rows.steps.obs, batch.steps.obs[:, [3, 0]])
    np.testing.assert_array_equal(rows.carry.hidden, batch.carry.hidden[[3, 0]])
    np.testing.assert_array_equal(steps.target[0], batch.target.reshape(-1))
    np.testing.assert_array_equal(steps.steps.action[0], batch.steps.action.reshape(-1))


@pytest.mark.parametrize(("model", "n_minibatches"), [("lstm", 4), ("ff", 8)])
def test_rows_stay_together(model, n_minibatches):
    class Seen(PPOAgent):
        def _gradient_step(self, learnt, batch):
            return learnt, {"rows": batch.advantage.reshape(-1)}

    agent = make_agent(model, n_minibatches=n_minibatches, rows_together=4)
    state, run = experience(agent)
    advantage = np.tile(np.arange(B, dtype=np.float32), (T, 1))
    batch = Batch(steps=run.steps, carry=run.carry, advantage=advantage, target=advantage, entropy_coef=0.0)
    seen = Seen(agent.model, agent.config)
    _, parts = jax.jit(seen._epoch)(jax.random.key(3), (state.params, state.opt_state), batch)
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
    agent = motionless("lstm", 4)  # whose optimiser has seen the last gradients as the newest
    state, run = experience(agent)
    one, other = (jax.tree.leaves(update(agent, jax.random.key(k), state, run)[0].opt_state) for k in (1, 2))
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(one, other, strict=True))


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

    @jax.jit
    def moves(params):
        def move(opt_state, _):
            steps, opt_state = agent.optimizer.update({"w": jnp.ones(1)}, opt_state, params)
            return opt_state, steps["w"][0]

        return jax.lax.scan(move, agent.optimizer.init(params), None, 14)[1]

    sizes = -np.asarray(moves({"w": np.zeros(1, np.float32)}))  # Adam's step, where the gradient never changes
    np.testing.assert_allclose(sizes, [0.4 - 0.3 * min(i, 12) / 12 for i in range(14)], rtol=1e-3)


def falling(model: str, n_minibatches: int = 2, **settings) -> PPOAgent:
    """An agent whose step size and entropy bonus fall for four updates."""
    bonus = {"entropy_coef": 0.8, "entropy_coef_final": 0.4}
    schedules = {"n_total_updates": 4, "lr": 0.02, "lr_final": 0.0} | bonus
    return make_agent(model, n_epochs=2, n_minibatches=n_minibatches, **schedules, **settings)


def test_the_schedule_is_used_and_ends_with_the_run():
    agent = falling("ff")
    state, run = experience(agent)
    moved = []
    for _ in range(5):
        before = numbers(state.params)
        state, _ = update(agent, jax.random.key(0), state, run)
        moved.append(np.abs(numbers(state.params) - before).max())
    assert moved[0] > moved[2] > moved[3] > 0
    assert moved[4] == 0.0  # 4 updates of 2 x 2 gradient steps are over
    assert int(state.n_updates) == 5


@pytest.mark.parametrize("setting", ["lr_final", "entropy_coef_final"])
def test_a_schedule_needs_its_length(setting):
    with pytest.raises(ValueError, match=f"ppo.{setting} is 0.0: the agent must be told its n_total_updates"):
        make_agent("ff", **{setting: 0.0})


@dataclasses.dataclass(frozen=True)
class Weighed(PPOAgent):
    """An agent whose bonus has a weight that is given from outside, so that one program serves all weights."""

    weight: jax.Array | None = None

    def entropy_coef(self, n_updates):
        return self.weight


# The fifth update has the last weight: an agent may be updated more often than planned.
BONUSES = (0.8, 0.7, 0.6, 0.5, 0.4, 0.4)


def test_the_weight_of_the_entropy_bonus_in_the_loss_falls_with_the_updates():
    """Worked out from the metrics, which are means over the same gradient steps."""
    agent = falling("ff")
    state, run = experience(agent)
    for bonus in BONUSES:
        state, m = update(agent, jax.random.key(1), state, run)
        loss_without = float(m["policy_loss"]) + agent.config.value_coef * float(m["value_loss"])
        np.testing.assert_allclose((loss_without - float(m["loss"])) / float(m["entropy"]), bonus, rtol=1e-4)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "n_minibatches"), [("ff", 2), ("ff", 1), ("lstm", 1), ("lstm", 2)])
def test_the_entropy_bonus_falls_with_the_updates(name, n_minibatches):
    """An update of the falling bonus is one of an agent with a constant bonus, of that update's weight."""
    agent = falling(name, n_minibatches)
    state, run = experience(agent)
    constant = jax.jit(lambda weight, *args: Weighed(agent.model, agent.config, 4, weight).update(*args))
    for weight in BONUSES:
        expected = constant(np.float32(weight), jax.random.key(1), state, run)
        found = update(agent, jax.random.key(1), state, run)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        state = found[0]


# ------------------------------------------------------------------------------------------- devices, seeds, students


def test_chunks_count_a_step_that_is_the_only_valid_one_of_two_devices():
    """The mean number of valid steps of the devices is then a half."""
    one, several = (make_agent("ff", n_chunks=n) for n in (1, 2))
    state, run = experience(one)
    batch = as_batch(one, run)
    valid = np.zeros(batch.advantage.shape, bool)
    valid[1, 0] = True
    batch = batch.replace(steps=batch.steps.replace(valid=valid), entropy_coef=())
    halves = jax.tree.map(lambda x: jnp.stack(jnp.split(x, 2, axis=1)), batch.replace(carry=()))

    def gradient(agent, half):
        half = half.replace(entropy_coef=0.0, carry=batch.carry)
        return axes.device_mean(agent.gradient(state.params, half)[0])

    found = [
        jax.jit(jax.vmap(functools.partial(gradient, agent), axis_name=axes.DEVICE))(halves) for agent in (one, several)
    ]
    assert max(np.abs(x).max() for x in jax.tree.leaves(found[0])) > 0.1
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), *found)


@pytest.mark.parametrize(
    ("n_epochs", "play", "n_chunks"),
    [(1, play_once, 2), deep(1, play, 1), deep(3, play, 1), deep(3, play_once, 1)],
    ids=["1-once-chunks", "1", "3", "3-once"],
)
def test_four_devices_learn_what_one_learns_from_the_whole_batch(n_epochs, play, n_chunks):
    """Also where each device takes its rows in chunks, of which some have more valid steps than others."""
    agent = dataclasses.replace(WHOLE, config=dataclasses.replace(WHOLE.config, n_epochs=n_epochs))
    state, run = experience(agent, play=play)
    if play is play_once:
        # As they are, all rows of a device have equally many valid steps.
        order = np.random.default_rng(0).permutation(B)
        steps, carry = jax.tree.map(lambda x: x[:, order], run.steps), jax.tree.map(lambda x: x[order], run.carry)
        run = Rollout(steps=steps, carry=carry, last_value=run.last_value[order], final=None)
        assert (np.diff(LENGTHS[order].reshape(4, 2, 2).sum(axis=2)) != 0).any()
    expected, metrics_of_one = update(agent, jax.random.key(0), state, run)

    on_a_device = dataclasses.replace(agent, config=dataclasses.replace(agent.config, n_chunks=n_chunks))

    def updated(*args):
        state, metrics = on_a_device.update(*args)
        return state, axes.device_mean(metrics)

    mesh = jax.make_mesh((4,), (axes.DEVICE,), axis_types=(AxisType.Auto,))
    rows, steps, whole = PartitionSpec(axes.DEVICE), PartitionSpec(None, axes.DEVICE), PartitionSpec()
    sharding = Rollout(steps=steps, carry=rows, last_value=rows, final=None)
    specs = {"in_specs": (whole, whole, sharding), "out_specs": (whole, whole)}
    learn = jax.jit(jax.shard_map(updated, mesh=mesh, check_vma=False, **specs))
    state, metrics = learn(*jax.device_put((jax.random.key(0), state, run), jax.NamedSharding(mesh, whole)))
    for name, number in metrics_of_one.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-3, atol=1e-5, err_msg=name)
    for x, y in zip(jax.tree.leaves(state.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
    if n_epochs == 1:  # Adam's moments are the gradient and its square, which do not depend on the step size
        for x, y in zip(jax.tree.leaves(state.opt_state), jax.tree.leaves(expected.opt_state), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-7)


@pytest.mark.deep
def test_eight_seeds_in_a_vmap_learn_what_each_learns_alone():
    agent = make_agent("lstm", n_minibatches=2, ema_decay=0.9)
    cases = [jax.device_get(experience(agent, seed)) for seed in range(8)]
    states, runs = (jax.tree.map(lambda *x: np.stack(x), *part) for part in zip(*cases, strict=True))
    keys = jax.random.split(jax.random.key(3), 8)
    together, _ = jax.device_get(jax.jit(jax.vmap(agent.update))(keys, states, runs))
    for i, (state, run) in enumerate(cases):
        alone, _ = update(agent, keys[i], state, run)
        for x, y in zip(*(jax.tree.leaves((s.params, s.average)) for s in (together, alone)), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-3, atol=1e-5)


def run_of_students(runs: list[Rollout]) -> Rollout:
    """Steps [T, A, R], the rest [A, R]."""
    return Rollout(
        steps=jax.tree.map(lambda *x: np.stack(x, axis=1), *[run.steps for run in runs]),
        carry=jax.tree.map(lambda *x: np.stack(x), *[run.carry for run in runs]),
        last_value=np.stack([run.last_value for run in runs]),
        final=None,
    )


@pytest.mark.parametrize(("model", "n"), [("ff", 2), deep("lstm", 2), deep("lstm", 1)])
def test_each_student_of_a_population_is_an_agent_of_its_own(model, n):
    agent = WHOLE if model == "lstm" else by_hand(1e-3)
    pop = AgentPop(agent, n)
    keys = jax.random.split(jax.random.key(0), n)
    runs = [jax.device_get(experience(agent, i)[1]) for i in range(n)]
    run = run_of_students(runs)

    @jax.jit
    def together(key, run):
        after, metrics = pop.update(key, pop.init(key, jnp.zeros((), jnp.int32)), run)
        seen = after.params, run.steps.obs[0], pop.init_carry((n, B)), run.steps.first[0]
        policy, values, _ = pop.policy(*seen)
        return after, metrics, pop.act(key, *seen)[0], policy.probs, values, pop.value(*seen)

    @jax.jit
    def acted(key, params, run):
        return agent.act(key, params, run.steps.obs[0], agent.init_carry((B,)), run.steps.first[0])[0]

    after, metrics, actions, probs, values, same_values = jax.device_get(together(jax.random.key(0), run))
    assert all(m.shape == () for m in metrics.values())
    assert probs.shape == (n, B, 2)
    np.testing.assert_allclose(same_values, values)
    for i in range(n):
        mine = jax.tree.map(lambda x, i=i: x[i], after)
        one, _ = update(agent, keys[i], init_jit(agent, keys[i]), runs[i])
        for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(actions[i], acted(keys[i], mine.params, runs[i]))


@pytest.mark.parametrize(("n", "batched"), [(1, False), (2, True)])
def test_a_population_of_one_has_no_batched_products(n, batched):
    agent = make_agent("lstm")
    pop = AgentPop(agent, n)
    state = jax.eval_shape(pop.init, jax.random.key(0), jnp.zeros((), jnp.int32))
    run = run_of_students([jax.device_get(experience(agent)[1])] * n)
    program = jax.jit(pop.update).lower(jax.random.key(0), state, run).as_text()
    assert ("batching_dims" in program) == batched


@pytest.mark.parametrize("n", [0, -1])
def test_an_empty_population_is_refused(n):
    with pytest.raises(ValueError, match="it must have at least 1"):
        AgentPop(make_agent(), n)


# ------------------------------------------------------------------------------------------- compilation, settings


@pytest.mark.parametrize("model", ["ff", deep("lstm")])
def test_an_update_is_traced_once_and_keeps_its_types(model):
    agent = falling(model)
    state, run = experience(agent)
    compiled = update._cache_size()
    before = jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state)
    for i in range(3):
        state, metrics = update(agent, jax.random.key(i), state, run)
    assert update._cache_size() <= compiled + 1
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


@pytest.mark.parametrize("name", ["ff", "lstm", deep("gru"), deep("s5")])
def test_actions_follow_the_policy(name):
    """Sampled frequencies are the probabilities, to five standard errors; the log probability is the action's."""
    agent, n = make_agent(name), 4000

    @jax.jit
    def acted(params):
        seen = params, jnp.ones(n, jnp.int32), agent.init_carry((n,)), jnp.ones(n, bool)
        policy, value, _ = agent.policy(*seen)
        return policy.probs[0, 1], value, *agent.act(jax.random.key(1), *seen)[:3]

    p, value, action, log_prob, acted_value = jax.device_get(acted(experience(agent)[0].params))
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
    average, step = start.astype(np.float32), jax.jit(averaged, static_argnums=3)
    for n in range(1, 6):
        average = step(average, after[n - 1].astype(np.float32), np.int32(n), decay)
        weights = decay ** np.arange(n)[::-1]
        np.testing.assert_allclose(average, weights @ after[:n] / weights.sum(), rtol=1e-5, atol=1e-6)


def test_an_update_moves_the_average_and_learns_the_same():
    """Once an update: with two epochs, the average after the first update is where it ended."""
    plain, agent = (falling("ff", ema_decay=d) for d in (0.0, 0.9))
    state, run = experience(plain)
    assert state.average == ()
    assert state.evaluated is state.params
    fresh = init_jit(agent, jax.random.key(0))
    np.testing.assert_array_equal(numbers(fresh.evaluated), numbers(fresh.params))
    first, metrics = update(agent, jax.random.key(0), state.replace(average=noise(state.params, 0.1, seed=8)), run)
    alone, same_metrics = update(plain, jax.random.key(0), state, run)
    chex.assert_trees_all_equal((first.params, metrics), (alone.params, same_metrics))
    np.testing.assert_allclose(numbers(first.evaluated), numbers(first.params), rtol=1e-6, atol=1e-7)
    second, _ = update(agent, jax.random.key(1), first, run)
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


@pytest.mark.parametrize("model", ["ff", deep("lstm")])
def test_the_change_of_a_level_is_that_of_a_real_update_on_it_alone(model):
    """One epoch of one minibatch, by a plain loop over the levels, which have two rows each."""
    n_evals, agent = 2, make_agent(model, n_minibatches=2, entropy_coef=0.1)
    state, run = experience(agent)
    found = jax.jit(agent.parameter_change, static_argnums=2)(state.params, run, n_evals)
    settings = dataclasses.replace(agent.config, n_epochs=1, n_minibatches=1, normalize_advantages=False)
    descent, run, expected = PlainDescent(agent.model, settings), jax.device_get(run), []
    for b in range(0, B, n_evals):
        rows = slice(b, b + n_evals)
        level = Rollout(
            steps=jax.tree.map(lambda x: x[:, rows], run.steps),  # noqa: B023
            carry=jax.tree.map(lambda x: x[rows], run.carry),  # noqa: B023
            last_value=run.last_value[rows],
            final=None,
        )
        start = state.replace(opt_state=optax.sgd(1.0).init(state.params))
        after, _ = update(descent, jax.random.key(0), start, level)
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
