"""Actions made of several choices, some of which are arguments of others."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import struct


class Composed(struct.PyTreeNode):
    """Several choices at once, drawn independently of each other. The last value of a choice may mean "none".

    An argument says how something is done (the style of an attack). It counts only if its main choice, that which is
    done, is not "none": its log probability is left out where it has no effect, and its entropy is weighted with the
    probability of an effect. So the policy is not moved by what nothing follows from.
    """

    logits: Mapping[str, jax.Array]  # f32[..., n] each; one that is forbidden is `distributions.IMPOSSIBLE`
    arguments: tuple[tuple[str, str], ...] = struct.field(pytree_node=False, default=())  # (argument, its main choice)

    def sample(self, *, seed: jax.Array, sample_shape: tuple[int, ...] = ()) -> dict[str, jax.Array]:
        """i32[*sample_shape, ...] by name."""
        keys = jax.random.split(seed, len(self.logits))
        drawn = {}
        for key, (name, logits) in zip(keys, self.logits.items(), strict=True):
            drawn[name] = jax.random.categorical(key, logits, shape=(*sample_shape, *logits.shape[:-1]))
        return jax.tree.map(lambda x: x.astype(jnp.int32), drawn)

    def mode(self) -> dict[str, jax.Array]:
        """i32[...] by name, the likeliest value of each choice."""
        return {name: logits.argmax(axis=-1).astype(jnp.int32) for name, logits in self.logits.items()}

    def log_prob(self, action: Mapping[str, jax.Array]) -> jax.Array:
        """f32[...], of an action i32[...] by name."""
        main = dict(self.arguments)
        total = jnp.zeros((), jnp.float32)
        for name, log_p in self._log_probabilities().items():
            found = jnp.take_along_axis(log_p, action[name][..., None], axis=-1)[..., 0]
            if name in main:
                none = self.logits[main[name]].shape[-1] - 1
                found = jnp.where(action[main[name]] == none, 0.0, found)
            total = total + found
        return total

    def entropy(self) -> jax.Array:
        """f32[...], in nats, of all that has an effect."""
        main, log_ps = dict(self.arguments), self._log_probabilities()
        total = jnp.zeros((), jnp.float32)
        for name, log_p in log_ps.items():
            entropy = -(jnp.exp(log_p) * log_p).sum(axis=-1)
            if name in main:
                entropy = entropy * (1.0 - jnp.exp(log_ps[main[name]][..., -1]))
            total = total + entropy
        return total

    def _log_probabilities(self) -> dict[str, jax.Array]:
        return {name: jax.nn.log_softmax(logits) for name, logits in self.logits.items()}
