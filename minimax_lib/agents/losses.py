"""The terms of PPO's loss, and the means behind them, over the valid steps of all devices together."""

import jax
import jax.numpy as jnp

from minimax_lib import axes


def mean_over(x: jax.Array, valid: jax.Array | None) -> jax.Array:
    """f32[]: mean of x [T, R, ...] over the `valid` steps (bool[T, R]; None: all steps), 0 if there are none.

    Its mean over the devices is the mean over the valid steps of all devices together.
    """
    if valid is None:
        return x.mean()
    # Devices may have unequal numbers of valid steps. So each divides its sum by the mean number, not by its own. The
    # number has no gradient, so this mean over devices may be part of a loss.
    per_step = x.reshape(*valid.shape, -1).mean(axis=-1)
    count = axes.device_mean(valid.sum(dtype=jnp.float32))
    return jnp.where(valid, per_step, 0.0).sum() / jnp.where(count > 0, count, 1.0)


def clipped_policy_loss(
    log_ratio: jax.Array, advantage: jax.Array, clip_eps: float, valid: jax.Array | None = None
) -> jax.Array:
    """f32[]: the negative mean of min(ratio * A, clip(ratio) * A) (Schulman et al. 2017, eq. 7)."""
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -mean_over(jnp.minimum(ratio * advantage, clipped * advantage), valid)


def clipped_value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip_eps: float, valid: jax.Array | None = None
) -> jax.Array:
    """f32[]: half the mean of the larger of two squared errors: of `value`, and of `value` clipped near `old_value`.

    As in the policy's loss, moving further than `clip_eps` from the rollout's value then gains nothing.
    """
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    return 0.5 * mean_over(jnp.maximum((value - target) ** 2, (clipped - target) ** 2), valid)


def moments(x: jax.Array, valid: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """(mean, variance) of the valid entries of all devices together, each f32[]."""
    # In two passes: the mean of squares minus the square of the mean would lose its digits if the mean is large.
    mean = axes.device_mean(mean_over(x, valid))
    return mean, axes.device_mean(mean_over((x - mean) ** 2, valid))


def normalized(advantage: jax.Array, valid: jax.Array | None = None, eps: float = 1e-5) -> jax.Array:
    """Advantages with mean 0 and standard deviation 1 over the valid entries of all devices together."""
    mean, variance = moments(advantage, valid)
    return (advantage - mean) / (jnp.sqrt(variance) + eps)


def explained_variance(value: jax.Array, target: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """f32[]: 1 for perfect predictions, 0 for predictions no better than a constant, 0 if the targets do not vary."""
    _, variance = moments(target, valid)
    _, unexplained = moments(target - value, valid)
    return jnp.where(variance > 0, 1.0 - unexplained / variance, 0.0)
