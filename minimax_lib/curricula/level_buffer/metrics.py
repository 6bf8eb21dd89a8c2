"""What is reported of a level buffer."""

import jax
import jax.numpy as jnp

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer, count_filled
from minimax_lib.curricula.level_buffer.replay_weights import highest_first, weights
from minimax_lib.curricula.level_buffer.settings import ReplaySettings


def buffer_metrics(settings: ReplaySettings, buffer: LevelBuffer) -> dict[str, jax.Array]:
    """f32[] each: the state of the buffer, also weighted by how likely its levels are to be replayed."""
    chances = weights(settings, buffer)
    n_filled = count_filled(buffer)
    # XLA computes this sort once: `weights` does the same.
    descending = buffer.scores[highest_first(buffer.scores)]

    def weighted(values: jax.Array) -> jax.Array:
        return jnp.where(buffer.filled, chances * values.astype(jnp.float32), 0.0).sum()

    def quantile(share: float) -> jax.Array:
        place = ((1.0 - share) * (n_filled - 1).astype(jnp.float32)).astype(jnp.int32)
        return jnp.where(n_filled > 0, descending[place], jnp.nan)

    return {
        "buffer/fill": buffer.filled.mean(dtype=jnp.float32),
        "buffer/weighted_score": weighted(buffer.scores),
        "buffer/weighted_age": weighted(buffer.ages),
        "buffer/weighted_n_mutations": weighted(buffer.n_mutations),
        "buffer/score_p10": quantile(0.1),
        "buffer/score_p50": quantile(0.5),
        "buffer/score_p90": quantile(0.9),
    }
