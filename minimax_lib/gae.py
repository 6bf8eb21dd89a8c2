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


def clipped_gae(td_error: jax.Array, done: jax.Array, gamma: float, gae_lambda: float) -> jax.Array:
    """f32[T, ...], never positive: the n-step sums of `td_error` (f32[T, ...]), clipped at 0 as they grow, and mixed.

    Mead et al. 2026 (arXiv 2601.14957). With d the TD errors and n the steps from s to the end of its episode or of the
    T steps:

        D_0 = min(0, d_s),  D_i = min(0, D_{i-1} + gamma^i d_{s+i})
        G_s = (1 - lambda) (D_0 + lambda D_1 + ... + lambda^{n-1} D_{n-1}) + lambda^n D_n

    It takes T * T steps, since a sum that is clipped cannot be taken over from the step behind.
    """
    n_steps = len(td_error)
    time = jnp.arange(n_steps, dtype=jnp.int32)
    opens = jnp.concatenate([jnp.ones_like(done[:1]), done[:-1]])
    column = time.reshape(-1, *(1,) * (done.ndim - 1))
    began = jax.lax.cummax(jnp.where(opens, column, 0), axis=0)
    closes = done.at[-1].set(True)

    def one_step(loop: tuple[jax.Array, jax.Array], step: tuple) -> tuple[tuple[jax.Array, jax.Array], None]:
        clipped, mixed = loop  # [T, ...], of the sums that begin with each step
        t, error, began, closes = step
        behind = (t - column).astype(jnp.float32)
        under_way = (column >= began[None]) & (column <= t)
        grown = jnp.minimum(clipped + gamma**behind * error[None], 0.0)
        clipped = jnp.where(under_way, grown, clipped)
        share = jnp.where(closes, 1.0, 1.0 - gae_lambda)[None] * gae_lambda**behind
        return (clipped, mixed + jnp.where(under_way, share * grown, 0.0)), None

    zero = jnp.zeros_like(td_error)
    return jax.lax.scan(one_step, (zero, zero), (time, td_error, began, closes))[0][1]


def next_values(value: jax.Array, last_value: jax.Array) -> jax.Array:
    """f32[T, ...], the value one step later: `value` [T, ...] shifted, with `last_value` [...] at the end.

    Where an episode ends, this is the value of the next episode's first observation. There, `gae` needs a `discount` of
    0, or another value in its place.
    """
    return jnp.concatenate([value[1:], last_value[None]])
