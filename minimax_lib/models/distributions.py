"""Distributions over action spaces.

Only this module and `squashed` import distrax, and only when it is needed.
"""

import itertools
import math
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete, Space, check_mask, n_choices

if TYPE_CHECKING:
    import distrax

Gaussian = Literal["plain", "squashed"]
IMPOSSIBLE = -1e9  # logit of a forbidden action: its probability is exactly 0, and no gradient is NaN


def parts_of(space: Space, path: str = "") -> list[tuple[str, Any]]:
    """(name, space) of every part of an action, in their order; ValueError for a space without a policy."""
    if isinstance(space, Dict):
        return [part for name, inner in space.items for part in parts_of(inner, f"{path}.{name}" if path else name)]
    if isinstance(space, Box) and not np.issubdtype(np.dtype(space.dtype), np.floating):
        raise ValueError(f"no policy for actions in a Box of {space.dtype}: choose MultiDiscrete, or a Box of float32")
    if not isinstance(space, Discrete | MultiDiscrete | Box):
        raise ValueError(
            f"no policy for actions in {type(space).__name__}: choose Discrete, MultiDiscrete, Box or a Dict of them"
        )
    return [(path, space)]


def n_outputs(space: Space) -> int:
    """How many outputs of a network a policy needs: a logit for each discrete action, a mean for each real number."""
    return sum(_n_outputs(part) for _, part in parts_of(space))


def n_deviations(space: Space) -> int:
    """How many standard deviations a policy has: one for each real number, the same for all observations."""
    return sum(math.prod(part.shape) for _, part in parts_of(space) if isinstance(part, Box))


def _n_outputs(part: Any) -> int:
    return math.prod(part.shape) if isinstance(part, Box) else sum(n_choices(part))


def check_policy(observation_space: Space, action_space: Space, gaussian: Gaussian = "plain") -> None:
    """ValueError if there is no policy for the action space, or if the mask of actions does not fit it."""
    for name, part in parts_of(action_space):
        if isinstance(part, Box) and gaussian == "squashed" and not part.is_bounded:
            where = f"the action {name!r}" if name else "the action"
            raise ValueError(f"model.gaussian is 'squashed', but {where} has no bounds: choose plain")
    check_mask(observation_space, action_space)


def masked(space: Space, outputs: jax.Array, mask: Any) -> jax.Array:
    """`outputs` [..., n_outputs] with the logits of the actions that `mask` forbids set to `IMPOSSIBLE`.

    `mask` is bool[..., n], True where an action is allowed. For a Dict of actions, it is a dict of masks.
    """
    if not isinstance(space, Dict):
        return jnp.where(mask, outputs, IMPOSSIBLE)
    sizes = [n_outputs(part) for _, part in space.items]
    pieces = _split(outputs, sizes)
    named = zip(space.items, pieces, strict=True)
    return jnp.concatenate(
        [masked(part, piece, mask[name]) if name in mask else piece for (name, part), piece in named], axis=-1
    )


def distribution(space: Space, parameters: jax.Array, gaussian: Gaussian = "plain") -> "distrax.Distribution":
    """The distribution over `space` that `parameters` [..., n_outputs + n_deviations] describe.

    For Discrete and MultiDiscrete, the parameters are logits. For a Box, they are means. The logarithms of the standard
    deviations come last, after the outputs of all parts. If the Box is bounded, both are in units of half its width,
    and the means count from its centre.

    A plain Gaussian may leave its box (`spaces.within` clips the action). A squashed one is the tanh of a Gaussian.
    """
    outputs, deviations = jnp.split(parameters, [n_outputs(space)], axis=-1)
    return _distribution(space, outputs, deviations, gaussian)


def _distribution(space: Any, outputs: jax.Array, deviations: jax.Array, gaussian: Gaussian) -> "distrax.Distribution":
    import distrax  # here, since it takes half a second: a mistyped flag is refused without it

    if isinstance(space, Discrete):
        return distrax.Categorical(logits=outputs)
    if isinstance(space, MultiDiscrete):
        # All numbers get as many logits as the one with the most choices. The surplus is never chosen.
        most = max(n_choices(space))
        pieces = _split(outputs, n_choices(space))
        rows = [
            jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, most - x.shape[-1])], constant_values=IMPOSSIBLE) for x in pieces
        ]
        return distrax.Independent(distrax.Categorical(logits=jnp.stack(rows, axis=-2)), 1)
    if isinstance(space, Box):
        return _of_box(space, outputs, deviations, gaussian)
    parts = [part for _, part in space.items]
    each_outputs = _split(outputs, [n_outputs(part) for part in parts])
    each_deviations = _split(deviations, [n_deviations(part) for part in parts])
    each = zip(space.items, each_outputs, each_deviations, strict=True)
    return distrax.Joint({name: _distribution(part, o, d, gaussian) for (name, part), o, d in each})


def _of_box(space: Box, outputs: jax.Array, deviations: jax.Array, gaussian: Gaussian) -> "distrax.Distribution":
    import distrax

    from minimax_lib.models.squashed import Squashed

    shape = (*outputs.shape[:-1], *space.shape)
    mean, deviation = outputs.reshape(shape), jnp.exp(deviations).reshape(shape)
    centre, half = (space.low + space.high) / 2, (space.high - space.low) / 2
    if gaussian == "squashed":
        return distrax.Independent(Squashed(mean, deviation, centre, half), len(space.shape))
    if space.is_bounded:
        mean, deviation = centre + half * mean, half * deviation
    return distrax.Independent(distrax.Normal(mean, deviation), len(space.shape))


def _split(x: jax.Array, sizes: Any) -> list[jax.Array]:
    """Pieces of the last axis, of these sizes."""
    ends = list(itertools.accumulate(sizes))
    return jnp.split(x, ends[:-1], axis=-1)
