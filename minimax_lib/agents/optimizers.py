"""The optimisers that students may learn with, beside their step size."""

import jax
import jax.numpy as jnp
import optax

DECAYS = 0.9, 0.999  # of the two moments, as Adam has them
POWER = 0.6  # of the second moment; Adam's is a half


def scale_by_tiada(eps: float) -> optax.GradientTransformation:
    """TiAda's step of the player that descends (Li et al. 2023), with Adam's moments, as NCC's students take it.

    m / (1 - b1^t) / (v^0.6 / sqrt(1 - b2^t) + eps). In the method, both players' steps shrink by how much of all second
    moments is the adversary's. The released code of NCC for mazes never tells this optimiser of the adversary's, and so
    this factor is 1. It is left out here.
    """
    b1, b2 = DECAYS

    def init(params: optax.Params) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(count=jnp.zeros((), jnp.int32), mu=zeros, nu=jax.tree.map(jnp.copy, zeros))

    def update(
        gradients: optax.Updates, state: optax.ScaleByAdamState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.ScaleByAdamState]:
        mu = optax.tree.update_moment(gradients, state.mu, b1, 1)
        nu = optax.tree.update_moment_per_elem_norm(gradients, state.nu, b2, 2)
        count = optax.safe_increment(state.count)
        time = count.astype(jnp.float32)
        first, second = 1.0 - b1**time, jnp.sqrt(1.0 - b2**time)
        steps = jax.tree.map(lambda m, v: (m / first) / (v**POWER / second + eps), mu, nu)
        return steps, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)
