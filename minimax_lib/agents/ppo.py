"""Proximal policy optimisation (Schulman et al. 2017)."""

import dataclasses
import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.agents.losses import clipped_policy_loss, clipped_value_loss, explained_variance, mean_over, normalized
from minimax_lib.agents.optimizers import scale_by_tiada
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.registry import unknown_name

Over = Literal["minibatch", "rollout"]
Optimizer = Literal["adam", "tiada"]
SCHEDULES = ("lr_final", "entropy_coef_final")  # settings that are reached at the end of the run
MOST_GRADIENTS = 2**24  # numbers in the gradients that are in memory at once: 64 MiB


@dataclasses.dataclass(frozen=True)
class PPO:
    """Settings of PPO. The defaults are those of published domain randomisation (Jiang et al. 2023, table 5)."""

    lr: float = 1e-4
    """Step size of the optimiser."""
    lr_final: float | None = None
    """Step size after the last update of the run. It falls linearly from lr. None: the step size stays lr."""
    gamma: float = 0.995
    """Discount factor."""
    gae_lambda: float = 0.98
    """Lambda of generalised advantage estimation."""
    clip_eps: float = 0.2
    """How far the probability ratio and the value may move in an update before the loss is clipped."""
    clip_value: bool = True
    """Clip the loss of the value like that of the policy. Without it, the loss is the squared error alone."""
    n_epochs: int = 5
    """Number of passes over a rollout."""
    n_minibatches: int = 1
    """Number of parts of a rollout, with a gradient step on each. They are made of rows for a model with memory, of
    single steps for a model without."""
    rows_together: int = 1
    """Neighbouring rows that are always in the same minibatch. With the number of agents of an environment, minibatches
    are made of whole environments."""
    n_chunks: int = 1
    """Number of parts of a minibatch. Its gradient is added up over them: the same gradient, in less memory."""
    entropy_coef: float = 1e-3
    """Weight of the entropy bonus."""
    entropy_coef_final: float | None = None
    """Weight of the entropy bonus after the last update of the run. It falls linearly from entropy_coef. None: the
    weight stays entropy_coef. The score parameter_change uses entropy_coef either way."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Largest global norm of a gradient. A larger gradient is scaled down to it."""
    optimizer: Optimizer = "adam"
    """Adam, or tiada: the same with the power 0.6 of the second moment in place of a half (NCC's students)."""
    adam_eps: float = 1e-5
    """Epsilon of the optimiser."""
    normalize_advantages: bool = True
    """Give the advantages mean 0 and standard deviation 1."""
    advantages_over: Over = "minibatch"
    """Set of steps for that mean and deviation: each minibatch, or the whole rollout."""
    ema_decay: float = 0.0
    """Decay of an average of the students' parameters over the updates. Evaluation, archive and export use the average;
    training itself does not. With 0.99, about the last hundred updates count. 0: no average."""
    bootstrap_truncated: bool = False
    """Count the value of the last observation where an episode ran into its time limit. This costs a second evaluation
    of the network in every step of the rollout. Published baselines do not do it."""

    def __post_init__(self) -> None:
        for name in ("lr", "clip_eps", "max_grad_norm", "adam_eps"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "positive")
        for name in ("entropy_coef", "value_coef"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        for name in ("gamma", "gae_lambda"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) <= 1, "between 0 and 1")
        for name in ("n_epochs", "n_minibatches", "rows_together", "n_chunks"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        if self.optimizer not in get_args(Optimizer):
            raise unknown_name("ppo.optimizer", self.optimizer, get_args(Optimizer))
        if self.advantages_over not in get_args(Over):
            raise unknown_name("ppo.advantages_over", self.advantages_over, get_args(Over))
        for name in SCHEDULES:
            if (value := getattr(self, name)) is not None:
                _check(name, value, value >= 0, "at least 0")
        _check("ema_decay", self.ema_decay, 0 <= self.ema_decay < 1, "at least 0, less than 1")


def _check(name: str, value: float, holds: bool, rule: str) -> None:
    if not (holds and math.isfinite(value)):
        raise ValueError(f"ppo.{name} is {value}: it must be {rule} and finite")


def divisor(count: int, near: int) -> int:
    """The divisor of `count` that is nearest to `near`."""
    # Each divisor has a partner, of which one is at most the root: of a very large number, all others are not tried.
    small = [d for d in range(1, math.isqrt(count) + 1) if count % d == 0]
    return min((d for low in small for d in (low, count // low)), key=lambda d: (abs(d - near), d))


class Batch(struct.PyTreeNode):
    """The data of a gradient step: R sequences of T steps."""

    steps: Transition  # [T, R, ...]
    carry: Any  # [R, ...], the memory before step 0
    advantage: jax.Array  # f32[T, R]
    target: jax.Array  # f32[T, R], of the value
    entropy_coef: float | jax.Array  # f32[], weight of the entropy bonus

    def rows(self, index: jax.Array) -> "Batch":
        """The sequences `index` (i32[n])."""
        steps, advantage, target = jax.tree.map(lambda x: x[:, index], (self.steps, self.advantage, self.target))
        carry = jax.tree.map(lambda x: x[index], self.carry)
        return self.replace(steps=steps, carry=carry, advantage=advantage, target=target)

    def single_steps(self) -> "Batch":
        """Every step as its own sequence, [1, T * R, ...]. For models without memory."""
        parts = (self.steps, self.advantage, self.target)
        steps, advantage, target = jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), parts)
        return self.replace(steps=steps, advantage=advantage, target=target)


@dataclasses.dataclass(frozen=True)
class PPOAgent:
    """One student: a network and how it learns."""

    model: Any  # an ActorCritic
    config: PPO
    n_total_updates: int | None = None  # rollouts that the run learns from; schedules end with the last of them

    def __post_init__(self) -> None:
        for name in SCHEDULES:
            if (value := getattr(self.config, name)) is not None and not self.n_total_updates:
                raise ValueError(f"ppo.{name} is {value}: the agent must be told its n_total_updates")

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        """ValueError if the rows of one device cannot be divided into minibatches and chunks.

        Without memory, it is the steps of these rows that are divided into minibatches.
        """
        count, unit = (n_rows, "rows") if self.is_recurrent else (n_rows * n_steps, "steps")
        n = self.config.n_minibatches
        # Only equal parts: with unequal ones, the scan would need padding, and the mean over the parts weights.
        if count % n:
            raise ValueError(f"ppo.n_minibatches is {n}: it must divide the {count} {unit} (try {divisor(count, n)})")
        together = self.config.rows_together
        if n > 1 and (n_rows % together or count % (n * together)):
            raise ValueError(
                f"ppo.rows_together is {together}: so many rows must divide the {n_rows} rows, and the {count // n} "
                f"{unit} of a minibatch (try {divisor(math.gcd(n_rows, count // n), together)})"
            )
        # A batch that is not cut keeps its rows even without memory (see `_epoch`). So its chunks are made of rows.
        size, parts = n_rows if n == 1 else count // n, self.config.n_chunks
        if size % parts:
            what = "rows" if n == 1 else f"{unit} of a minibatch"
            raise ValueError(f"ppo.n_chunks is {parts}: it must divide the {size} {what} (try {divisor(size, parts)})")

    @property
    def is_recurrent(self) -> bool:
        """Whether the model has a memory."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.init_carry((1,)))))

    @property
    def gamma(self) -> float:
        return self.config.gamma

    @property
    def gae_lambda(self) -> float:
        return self.config.gae_lambda

    @property
    def bootstrap_truncated(self) -> bool:
        return self.config.bootstrap_truncated

    @property
    def n_values(self) -> int:
        return self.model.n_values

    @property
    def learning_rate(self) -> optax.Schedule:
        """Step size as a function of the number of gradient steps."""
        c = self.config
        if c.lr_final is None:
            return optax.constant_schedule(c.lr)
        assert self.n_total_updates is not None
        # Optax counts only gradient steps that are taken. A training step that only scores levels does not move the
        # schedule, so the schedule ends with the last update of the run.
        return optax.linear_schedule(c.lr, c.lr_final, self.n_total_updates * c.n_epochs * c.n_minibatches)

    def entropy_coef(self, n_updates: jax.Array) -> float | jax.Array:
        """Weight of the entropy bonus in the update after `n_updates` (i32[]) others."""
        c = self.config
        if c.entropy_coef_final is None:
            return c.entropy_coef
        assert self.n_total_updates is not None
        return optax.linear_schedule(c.entropy_coef, c.entropy_coef_final, self.n_total_updates)(n_updates)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        clip, eps = optax.clip_by_global_norm(self.config.max_grad_norm), self.config.adam_eps
        if self.config.optimizer == "adam":
            return optax.chain(clip, optax.adam(self.learning_rate, eps=eps))
        return optax.chain(clip, scale_by_tiada(eps), optax.scale_by_learning_rate(self.learning_rate))

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        """Fresh parameters; `obs` is one observation, without leading axes."""
        # Networks work on sequences [T, R, ...]. Here: one step of one row.
        sequence = jax.tree.map(lambda x: x[None, None], obs)
        params = self.model.init(key, sequence, self.init_carry((1,)), jnp.ones((1, 1), bool))
        return TrainState(
            params=params,
            opt_state=self.optimizer.init(params),
            n_updates=jnp.zeros((), jnp.int32),
            # A copy: the state is donated, and two leaves cannot be donated as one array.
            average=jax.tree.map(jnp.copy, params) if self.config.ema_decay else (),
        )

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        return self.model.init_carry(shape)

    def policy(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, jax.Array, Any]:
        """(action distribution, value f32[R], new memory)."""
        sequence = jax.tree.map(lambda x: x[None], obs)
        parameters, values, carry = self.model.apply(params, sequence, carry, first[None])
        return self.model.distribution(parameters[0]), values[0].mean(axis=-1), carry

    def act(
        self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Any]:
        """(sampled action, its log probability, value, new memory)."""
        policy, value, carry = self.policy(params, obs, carry, first)
        action = policy.sample(seed=key)
        return action, policy.log_prob(action), value, carry

    def value(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> jax.Array:
        return self.policy(params, obs, carry, first)[1]

    def look(self, params: Any, run: Rollout) -> tuple[jax.Array, jax.Array]:
        """(parameters of the policy f32[T, R, n], all estimates of the value f32[T, R, K]) at every step of `run`."""
        return self.model.apply(params, run.steps.obs, run.carry, run.steps.first)[:2]

    def parameter_change(self, params: Any, run: Rollout, n_evals: int) -> jax.Array:
        """f32[B]: the squared norm of the gradient of the loss on each level alone (Yuan et al. 2026, PACE).

        `params` have played `run`, which has `n_evals` rows for each level. A gradient is the step that plain gradient
        descent takes at rate 1; a smaller rate scales all levels alike. Advantages keep their scale, and no norm is
        clipped. Otherwise, a level with nothing left to learn would move the parameters as far as any other.
        """
        # The rows of students restart. Were some steps not valid, the loss would divide by their mean number over the
        # devices, not by a level's own.
        assert run.steps.valid is None
        advantage, target = run.advantages(self.config.gamma, self.config.gae_lambda)
        # The first weight, even if it falls: how far the run is, is not known here.
        batch = Batch(run.steps, run.carry, advantage, target, self.config.entropy_coef)

        def of_level(rows: jax.Array) -> jax.Array:
            gradient, _ = jax.grad(self.loss, has_aux=True)(params, batch.rows(rows))
            return optax.tree.norm(gradient, squared=True)

        rows = jnp.arange(advantage.shape[1], dtype=jnp.int32).reshape(-1, n_evals)
        return jax.lax.map(of_level, rows, batch_size=self._levels_at_once(params, *rows.shape))

    def _levels_at_once(self, params: Any, n_levels: int, n_evals: int) -> int:
        """The number of levels whose gradients are computed side by side. It divides `n_levels`."""
        c, n_numbers = self.config, sum(x.size for x in jax.tree.leaves(params))
        # No more rows than a gradient step of the update has at once, so that they fit where that fits.
        n_rows = n_levels * n_evals // (c.n_minibatches * c.n_chunks)
        most = max(1, min(n_rows // n_evals, MOST_GRADIENTS // n_numbers))
        return max(n for n in range(1, n_levels + 1) if n_levels % n == 0 and n <= most)

    def update(self, key: jax.Array, state: TrainState, run: Rollout) -> tuple[TrainState, dict[str, jax.Array]]:
        """(new state, metrics), after learning from `run` [T, R, ...]. Metrics are means over the gradient steps."""
        c = self.config
        # As in the published code, computed once for all epochs from the values of the rollout: the targets stay fixed
        # while the network moves.
        advantage, target = run.advantages(c.gamma, c.gae_lambda)
        if c.normalize_advantages and c.advantages_over == "rollout":
            advantage = normalized(advantage, run.steps.valid)
        batch = Batch(run.steps, run.carry, advantage, target, self.entropy_coef(state.n_updates))

        def epoch(learnt: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], dict[str, jax.Array]]:
            return self._epoch(key, learnt, batch)

        learnt, metrics = jax.lax.scan(epoch, (state.params, state.opt_state), jax.random.split(key, c.n_epochs))
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["explained_variance"] = explained_variance(run.steps.value, target, run.steps.valid)
        params, opt_state = learnt
        n_updates = state.n_updates + 1
        # Once an update, not once a gradient step: parameters are not used in the middle of an update, and the
        # decay means the same whatever the number of epochs and minibatches.
        average = averaged(state.average, params, n_updates, c.ema_decay) if c.ema_decay else ()
        return TrainState(params=params, opt_state=opt_state, n_updates=n_updates, average=average), metrics

    def _epoch(self, key: jax.Array, learnt: tuple[Any, Any], batch: Batch) -> tuple[tuple[Any, Any], dict]:
        """One pass over the batch. Every row (or step) is part of exactly one gradient step."""
        n = self.config.n_minibatches
        # One minibatch has everything, so its order does not matter. There is no shuffle and no copy of the batch.
        if n == 1:
            return self._gradient_step(learnt, batch)
        # With memory, a row stays in one piece, because its memory is computed again from step 0.
        batch = batch if self.is_recurrent else batch.single_steps()
        k = self.config.rows_together
        order = jax.random.permutation(key, batch.advantage.shape[1] // k)
        if k > 1:
            order = (order[:, None] * k + jnp.arange(k)[None]).reshape(-1)
        order = order.reshape(n, -1)
        return jax.lax.scan(lambda learnt, rows: self._gradient_step(learnt, batch.rows(rows)), learnt, order)

    def _gradient_step(self, learnt: tuple[Any, Any], batch: Batch) -> tuple[tuple[Any, Any], dict[str, jax.Array]]:
        params, opt_state = learnt
        # Before the batch is cut into chunks, so that all chunks have the same mean and deviation.
        if self.config.normalize_advantages and self.config.advantages_over == "minibatch":
            batch = dataclasses.replace(batch, advantage=normalized(batch.advantage, batch.steps.valid))
        gradients, metrics = self.gradient(params, batch)
        # Not inside `jax.grad`: a mean inside the loss would have its own gradient. Before the norm: all devices
        # must scale the same gradient by the same norm.
        gradients = axes.device_mean(gradients)
        metrics["grad_norm"] = optax.tree.norm(gradients)
        steps, opt_state = self.optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, steps), opt_state), metrics

    def gradient(self, params: Any, batch: Batch) -> tuple[Any, dict[str, jax.Array]]:
        """Gradient and metrics of the loss, added up over chunks. Only one chunk at a time is in memory."""
        gradient = jax.grad(self.loss, has_aux=True)
        if self.config.n_chunks == 1:
            return gradient(params, batch)

        # A chunk with few valid steps weighs less. So the sum is the mean over the valid steps of the whole minibatch.
        def weight(part: Batch) -> jax.Array:
            valid = part.steps.valid
            return jnp.float32(part.advantage.size) if valid is None else axes.device_mean(valid.sum(dtype=jnp.float32))

        whole = weight(batch)

        def add(total: Any, rows: jax.Array) -> tuple[Any, None]:
            chunk = batch.rows(rows)
            share = weight(chunk) / jnp.where(whole > 0, whole, 1.0)  # a mean over devices may be below 1
            return jax.tree.map(lambda t, x: t + share * x, total, gradient(params, chunk)), None

        rows = jnp.arange(batch.advantage.shape[1], dtype=jnp.int32).reshape(self.config.n_chunks, -1)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, params, batch))
        return jax.lax.scan(add, zeros, rows)[0]

    def loss(self, params: Any, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Clipped policy loss plus clipped value loss minus entropy bonus (Schulman et al. 2017, eq. 7 and 9)."""
        steps, c = batch.steps, self.config
        valid = steps.valid
        parameters, values, _ = self.model.apply(params, steps.obs, batch.carry, steps.first)
        policy = self.model.distribution(parameters)
        log_ratio = policy.log_prob(steps.action) - steps.log_prob
        policy_loss = clipped_policy_loss(log_ratio, batch.advantage, c.clip_eps, valid)
        # Every estimate of the value has its own loss, with the same target. With a loss of their mean, they would
        # not have to agree, and their disagreement (a score) would mean nothing.
        reach = c.clip_eps if c.clip_value else math.inf
        value_loss = clipped_value_loss(values, steps.value[..., None], batch.target[..., None], reach, valid)
        entropy = mean_over(policy.entropy(), valid)
        loss = policy_loss + c.value_coef * value_loss - batch.entropy_coef * entropy
        ratio = jnp.exp(log_ratio)
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": mean_over(ratio - 1.0 - log_ratio, valid),  # Schulman 2020, estimator k3
            "clip_fraction": mean_over((jnp.abs(ratio - 1.0) > c.clip_eps).astype(jnp.float32), valid),
        }


def averaged(average: Any, params: Any, n: jax.Array, decay: float) -> Any:
    """The mean of the parameters after each of `n` updates. An update weighs `decay` times as much as the next one.

    `average` is that of the first n - 1 updates. The initial parameters have no weight once there is an update: this is
    an average with Adam's correction (Kingma and Ba 2015, section 3). It is kept corrected, to be used as it is.
    """
    # The share of the newest parameters, (1 - decay) / (1 - decay ** n): 1 at first. `expm1` keeps the digits that the
    # difference would lose if the decay is near 1.
    log_decay = jnp.float32(math.log(decay))
    return optax.incremental_update(params, average, jnp.expm1(log_decay) / jnp.expm1(n * log_decay))
