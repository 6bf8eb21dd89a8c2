"""How badly a model predicts what a student sees next: a score of TRACED (Cho et al. 2026)."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.curricula.score_models import Sight
from minimax_lib.envs.base import Environment
from minimax_lib.models.memory import LSTMMemory
from minimax_lib.playing.rollout import Transition


class Predictor(nn.Module):
    """[T, N, n_outputs] of inputs [T, N, F], with a memory that is cleared where `first` (bool[T, N])."""

    width: int
    n_outputs: int

    @nn.compact
    def __call__(self, inputs: jax.Array, first: jax.Array) -> jax.Array:
        memory = LSTMMemory(self.width)
        hidden, _ = memory(nn.relu(nn.Dense(self.width)(inputs)), memory.init_carry(first.shape[1:]), first)
        return nn.Dense(self.n_outputs)(hidden.reshape(*first.shape, self.width))


@dataclasses.dataclass(frozen=True)
class NextObservation:
    """A `ScoreModel` that learns to predict the next observation from those before it, and from the actions.

    Its error at a step is the mean over the numbers of the next observation: absolute in images, squared elsewhere. It
    is 0 where an episode ends, or the rollout: there is no next observation.
    """

    sight: Sight
    width: int = 128

    @property
    def predictor(self) -> Predictor:
        return Predictor(self.width, int(self.sight.is_real.sum()))

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-4, weight_decay=1e-5))

    def init(self, key: jax.Array) -> TrainState:
        n_inputs = len(self.sight.is_real) + self.sight.n_of_action
        params = self.predictor.init(key, jnp.zeros((1, 1, n_inputs)), jnp.ones((1, 1), bool))
        return TrainState(
            params=params, opt_state=self.optimizer.init(params), n_updates=jnp.zeros((), jnp.int32), average=()
        )

    def measure(self, state: TrainState, steps: Transition) -> jax.Array:
        return self._errors(state.params, steps)

    def fit(self, key: jax.Array, state: TrainState, steps: Transition) -> TrainState:
        """One step of AdamW on all rows, as after each batch. (The released code takes one for each episode.)"""
        counts = has_next(steps).astype(jnp.float32)

        def loss(params: Any) -> jax.Array:
            return (self._errors(params, steps) * counts).sum() / jnp.maximum(counts.sum(), 1.0)

        gradient = axes.device_mean(jax.grad(loss)(state.params))
        changes, opt_state = self.optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, changes)
        return state.replace(params=params, opt_state=opt_state, n_updates=state.n_updates + 1)

    def _errors(self, params: Any, steps: Transition) -> jax.Array:
        shape, real = steps.done.shape, self.sight.is_real
        seen = self.sight.observed(steps.obs).reshape(len(steps.done), -1, len(real))
        done = self.sight.done(steps.action).reshape(*seen.shape[:2], -1)
        first = steps.first.reshape(seen.shape[:2])
        predicted: Any = self.predictor.apply(params, jnp.concatenate([seen, done], axis=-1), first)
        difference = jnp.abs(predicted[:-1] - seen[1:, :, real])
        in_image = jnp.broadcast_to(self.sight.in_image[real], difference.shape)
        errors = jnp.where(in_image, difference, difference**2).mean(axis=-1)
        errors = jnp.concatenate([errors, jnp.zeros_like(errors[:1])]).reshape(shape)
        return jnp.where(has_next(steps), errors, 0.0)


def has_next(steps: Transition) -> jax.Array:
    """bool[T, A, R], the observation after the step belongs to the same episode, and was recorded."""
    last = jnp.arange(len(steps.done)).reshape(-1, 1, 1) == len(steps.done) - 1
    found = ~steps.done & ~jnp.broadcast_to(last, steps.done.shape)
    return found if steps.valid is None else found & steps.valid


def next_observation(env: Environment) -> NextObservation:
    """The model for what is seen and done in `env`."""
    return NextObservation(Sight(env.observation_space, env.action_space))
