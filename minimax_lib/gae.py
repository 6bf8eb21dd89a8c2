"""Generalised advantage estimation."""

import jax
import jax.numpy as jnp

from minimax_lib.loops import steps_at_once
from minimax_lib.trees import assert_shape


def gae(
    reward: jax.Array,
    done: jax.Array,
    discount: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    gamma: float,
    gae_lambda: float,
) -> tuple[jax.Array, jax.Array]:
    """(advantages, value targets), both f32[T, ...] (Schulman et al. 2016, eq. 16).

    A_t = d_t + gamma * lambda * (1 - done_t) * A_{t+1}, with d_t = r_t + gamma * discount_t * next_value_t - v_t.
    All arguments except the last two are [T, ...]. `discount` is 0 where nothing may be bootstrapped past the step.
    `next_value_t` is the value of the observation that action t led to. The target is advantage plus value.
    """
    assert_shape("the arguments of gae", reward.shape, done, discount, value, next_value)
    # Everything that does not depend on the next step is computed for all steps at once, outside the loop.
    delta = reward + gamma * discount * next_value - value
    # `done`, not `discount`: a time limit may bootstrap, but no advantage continues into the next episode.
    decay = gamma * gae_lambda * (1.0 - done.astype(jnp.float32))

    def backwards(advantage: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta_t, decay_t = step
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    n = steps_at_once(16)
    _, advantage = jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=n)
    return advantage, advantage + value


def next_values(value: jax.Array, last_value: jax.Array) -> jax.Array:
    """f32[T, ...], the value one step later: `value` [T, ...] shifted, with `last_value` [...] at the end.

    Where an episode ends, this is the value of the next episode's first observation. There, `gae` needs a `discount` of
    0, or another value in its place.
    """
    return jnp.concatenate([value[1:], last_value[None]])
