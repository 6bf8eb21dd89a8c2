"""The network of Neural MMO: it reads tiles, neighbours, its own row and its task, and points at whom it means."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, Space
from minimax_lib.models.composed import Composed
from minimax_lib.models.distributions import check_policy, masked
from minimax_lib.models.memory import LSTMMemory, NoMemory
from minimax_lib.models.network import Network
from minimax_lib.models.nmmo_parts import HE, Entities, Market, Pack, Sizes, Task, Tiles
from minimax_lib.models.settings import at_least
from minimax_lib.registry import unknown_name

Size = Literal["tiny", "small", "large"]
Memory = Literal["none", "lstm"]
# Operations of a forward pass for a row: tiny 0.6 million, small 1.3, large 23. On a CPU, they decide what a training
# costs. `tiny` has no planes of entities. With one layer of windows that do not overlap, it had a quarter of the
# operations, and its agents did not learn to walk to food that they saw (docs/nmmo.md).
SIZES: dict[str, Sizes] = {
    "tiny": Sizes(
        embedding=4,
        filters=((16, 3, 1), (16, 3, 2)),
        tiles=128,
        planes=False,
        entity=16,
        own=32,
        task=16,
        item=16,
        trunk=128,
    ),
    "small": Sizes(
        embedding=8, filters=((16, 5, 2),), tiles=128, planes=True, entity=64, own=64, task=32, item=32, trunk=128
    ),
    "large": Sizes(
        embedding=29,
        filters=((32, 3, 1), (16, 3, 1)),
        tiles=256,
        planes=True,
        entity=128,
        own=256,
        task=128,
        item=128,
        trunk=512,
        residual=32,
    ),
}
PARTS = ("tiles", "entities", "self", "task")
GOODS = ("pack", "market")  # parts that are there with goods
# Heads that choose one of the slots of a part, or none.
POINTERS: Mapping[str, str] = dict.fromkeys(("target", "give_to", "gold_to"), "entities") | dict.fromkeys(
    ("use", "destroy", "give", "sell"), "pack"
)
# Heads that count only if another one is not "none".
ARGUMENTS: Mapping[str, str] = {"style": "target", "give_to": "give", "gold": "gold_to", "price": "sell"}


class Features(NamedTuple):
    """What the parts of an observation say, [n, ...]."""

    features: jax.Array  # f32[n, F], side by side
    task: jax.Array  # f32[n, width]
    slots: Mapping[str, jax.Array]  # f32[n, K, width] by part, that pointers choose from


@dataclasses.dataclass(frozen=True)
class NMMOModel:
    """The network of Neural MMO, with pointers at what an agent is told of."""

    size: Size = "small"
    """Units of all layers. tiny: 0.6 million operations a step, for learning on a CPU; it sees others only if there
    are fights. small: 1.3 million. large: 23 million, for a GPU."""
    memory: Memory = "none"
    """lstm: a long short-term memory behind the trunk, as wide as that."""
    n_values: int = 1
    """Number of estimates of the value. Their mean is the value, their spread the score value_disagreement."""

    def __post_init__(self) -> None:
        for name, kinds in (("size", Size), ("memory", Memory)):
            if getattr(self, name) not in get_args(kinds):
                raise unknown_name(f"model.{name}", getattr(self, name), get_args(kinds))
        at_least(1, "n_values", self.n_values)

    def build(self, observation_space: Space, action_space: Space) -> "NMMONet":
        """The network for these spaces; ValueError if they are not those of Neural MMO."""
        seen = dict(observation_space.items) if isinstance(observation_space, Dict) else {}
        heads = dict(action_space.items) if isinstance(action_space, Dict) else {}
        fits = all(isinstance(seen.get(name), Box) for name in PARTS) and "move" in heads
        if not fits or not all(isinstance(head, Discrete) for head in heads.values()):
            raise ValueError("the model nmmo reads what agents of NMMO see, and this environment shows something else")
        check_policy(observation_space, action_space)
        sizes = SIZES[self.size]
        memory = LSTMMemory(sizes.trunk) if self.memory == "lstm" else NoMemory(0)
        return NMMONet(action_space, sizes, memory, self.n_values)


class NMMONet(Network):
    """Policy and value from a trunk, which the task scales and shifts (FiLM, Perez et al. 2018).

    Every head starts uniform.
    """

    action_space: Any  # a Dict of Discrete
    sizes: Sizes
    memory: nn.Module
    n_values: int = 1

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape; () without memory."""
        return self.memory.init_carry(shape)

    def distribution(self, parameters: jax.Array) -> Composed:  # type: ignore[override]
        """The choices of a step: arguments count only with their main choice."""
        logits, start = {}, 0
        for name, head in self.action_space.items:
            logits[name] = parameters[..., start : start + head.n]
            start += head.n
        return Composed(logits, tuple((name, main) for name, main in ARGUMENTS.items() if name in logits))

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        parts = [*PARTS, *(name for name in GOODS if name in obs)]
        read = self._read({name: obs[name].reshape(-1, *obs[name].shape[2:]) for name in parts})
        hidden = nn.relu(self._dense("trunk_0", self.sizes.trunk)(read.features))
        film = nn.Dense(2 * self.sizes.trunk, kernel_init=nn.initializers.zeros, name="film")(read.task)
        gain, shift = jnp.split(film, 2, axis=-1)
        hidden = nn.relu(self._dense("trunk_1", self.sizes.trunk)((1.0 + gain) * hidden + shift))
        hidden, carry = self.memory(hidden.reshape(*first.shape, -1), carry, first)
        logits = self._heads(hidden.reshape(-1, hidden.shape[-1]), read.slots).reshape(*first.shape, -1)
        if ACTION_MASK in obs:
            logits = masked(self.action_space, logits, obs[ACTION_MASK])
        return logits, self.value_head(hidden, first), carry

    def _read(self, obs: Mapping[str, jax.Array]) -> Features:
        sizes = self.sizes
        own = nn.relu(self._dense("own", sizes.own)(obs["self"]))
        task = Task(sizes.task, name="task")(obs["task"])
        features, slots = [own, task, Tiles(sizes, name="tiles")(obs["tiles"], obs["entities"])], {}
        # Without fights, nothing can be done to others, and a small network does without them.
        if sizes.planes or any(POINTERS.get(name) == "entities" for name, _ in self.action_space.items):
            slots["entities"], summary = Entities(sizes.entity, name="entities")(obs["entities"], own)
            features.append(summary)
        if "pack" in obs:
            slots["pack"], summary = Pack(sizes.item, name="pack")(obs["pack"])
            features.append(summary)
        if "market" in obs:
            features.append(Market(sizes.item, name="market")(obs["market"]))
        return Features(jnp.concatenate(features, axis=-1), task, slots)

    def _heads(self, hidden: jax.Array, slots: Mapping[str, jax.Array]) -> jax.Array:
        """f32[n, sum of choices], the logits of all heads in their order."""
        found = []
        for name, head in self.action_space.items:
            if name not in POINTERS:
                found.append(nn.Dense(head.n, kernel_init=nn.initializers.zeros, name=name)(hidden))
                continue
            known = slots[POINTERS[name]]
            wish = nn.Dense(known.shape[-1] + 1, kernel_init=nn.initializers.zeros, name=name)(hidden)
            query, none = wish[:, :-1], wish[:, -1:]
            pointed = (known * query[:, None, :]).sum(axis=-1) / known.shape[-1] ** 0.5
            found.append(jnp.concatenate([pointed, none], axis=-1))
        return jnp.concatenate(found, axis=-1)

    def _dense(self, name: str, width: int) -> nn.Dense:
        return nn.Dense(width, kernel_init=HE, name=name)
