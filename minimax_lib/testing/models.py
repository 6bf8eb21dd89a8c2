"""What every model must do, checked: call `check_model` in the tests of your own."""

import dataclasses
from typing import Any

import flax.errors
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment
from minimax_lib.envs.spaces import ACTION_MASK, Discrete, within
from minimax_lib.models.network import check_network
from minimax_lib.testing.envs.parts import check_fits, described, is_frozen, numbers, require

N_ROWS, N_STEPS, N_SEEDS = 3, 4, 2
CLEARED = 2  # the step at which row 0 of a sequence opens an episode
RTOL, ATOL = 1e-3, 5e-4  # sums in another order, of activations in float32; the second times the largest number


def check_model(settings: Any, env: Environment, key: jax.Array) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break training with the model.

    Its network reads a few sequences of random observations that fit the spaces of `env`, with two seeds in one vmap as
    in training. Give it few units. The check is for networks that compute in float32.
    """
    check_settings(settings)
    network = settings.build(env.observation_space, env.action_space)
    try:
        check_network(network, settings)
    except ValueError as error:
        raise AssertionError(str(error)) from None
    trial = NetworkTrial(network, env, type(network).__name__)
    check_types(trial, key)
    check_found(trial, run(trial, key))


def check_settings(settings: Any) -> None:
    """The settings are a frozen dataclass, whose fields can be flags."""
    name = type(settings).__name__
    require(dataclasses.is_dataclass(settings), f"{name} is not a dataclass: its settings must be its fields")
    require(is_frozen(settings), f"{name} can be changed: make it a dataclass(frozen=True)")
    names = [field.name for field in dataclasses.fields(settings)]
    require("name" not in names, f"{name} has a setting called 'name', which stands for the model's own name in files")
    for field in dataclasses.fields(settings):
        has_default = dataclasses.MISSING is not field.default or dataclasses.MISSING is not field.default_factory
        require(has_default, f"{name}.{field.name} has no default: --model must do without it")
    require(type(settings)() == type(settings)(), f"{name}() is not equal to {name}()")


class Read(struct.PyTreeNode):
    """What a network made of N_STEPS observations of N_ROWS rows."""

    parameters: jax.Array  # f32[T, R, n]
    values: jax.Array  # f32[T, R, K]
    carry: Any  # [R, ...]


class Found(struct.PyTreeNode):
    """The same sequences, read in several ways. All leaves lead with the seeds."""

    whole: Read
    one_by_one: Read  # a step at a time
    altered_row: Read  # the observations of the last row are others
    forgotten: Read  # the observations before CLEARED are others
    actions: Any  # [R, ...], drawn in the last step
    log_prob: jax.Array  # f32[R]
    entropy: jax.Array  # f32[R]
    forbidden: jax.Array | None  # f32[T, R, n], logits of actions of which only the first is allowed; None: no mask
    gradient: Any


@dataclasses.dataclass(frozen=True)
class NetworkTrial:
    """A network, and the spaces for which it acts."""

    network: Any
    env: Environment
    name: str

    def observations(self, key: jax.Array) -> Any:
        """[T, 2 R, ...], drawn from the observation space. All actions are allowed."""
        keys = jax.random.split(key, (N_STEPS, 2 * N_ROWS))
        obs = jax.vmap(jax.vmap(self.env.observation_space.sample))(keys)
        if isinstance(obs, dict) and ACTION_MASK in obs:
            obs[ACTION_MASK] = jax.tree.map(jnp.ones_like, obs[ACTION_MASK])
        return obs

    def init(self, key: jax.Array) -> tuple[Any, Any, Any]:
        """(parameters, observations [T, R, ...], others)."""
        k_obs, k_init, k_move = jax.random.split(key, 3)
        both = self.observations(k_obs)
        one = jax.tree.map(lambda x: x[:1, :1], both)  # as an agent does it: one step of one row
        params = self.network.init(k_init, one, self.network.init_carry((1,)), jnp.ones((1, 1), bool))
        obs, other = (jax.tree.map(lambda x, i=i: x[:, i : i + N_ROWS], both) for i in (0, N_ROWS))
        # Heads that start at zero hide what is behind them.
        return moved(k_move, params), obs, other

    def read(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> Read:
        return Read(*self.network.apply(params, obs, carry, first))

    def act(self, key: jax.Array, parameters: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """(actions, their log probabilities, entropies)."""
        policy = self.network.distribution(parameters)
        actions = policy.sample(seed=key)
        return actions, policy.log_prob(actions), policy.entropy()

    def gradient(self, params: Any, obs: Any, carry: Any, first: jax.Array, actions: Any) -> Any:
        def objective(params: Any) -> jax.Array:
            seen = self.read(params, obs, carry, first)
            return self.network.distribution(seen.parameters[-1]).log_prob(actions).sum() + seen.values.sum()

        return jax.grad(objective)(params)


def run(trial: NetworkTrial, key: jax.Array) -> Found:
    """Everything, for several seeds; each part is compiled once."""
    k_init, k_act = jax.random.split(key)
    params, obs, other = jax.jit(jax.vmap(trial.init))(jax.random.split(k_init, N_SEEDS))
    carry = jax.tree.map(lambda x: jnp.stack([x] * N_SEEDS), trial.network.init_carry((N_ROWS,)))
    first = jnp.zeros((N_STEPS, N_ROWS), bool).at[0].set(True).at[CLEARED, 0].set(True)
    read = jax.jit(jax.vmap(trial.read, (0, 0, 0, None)))
    whole = read(params, obs, carry, first)
    steps, memory = [], carry
    for t in range(N_STEPS):
        steps.append(read(params, jax.tree.map(lambda x, t=t: x[:, t : t + 1], obs), memory, first[t : t + 1]))
        memory = steps[-1].carry
    parameters, values = (jnp.concatenate([getattr(s, n) for s in steps], axis=1) for n in ("parameters", "values"))
    altered = jax.tree.map(lambda x, y: x.at[:, :, -1].set(y[:, :, -1]), obs, other)
    forgotten = jax.tree.map(lambda x, y: x.at[:, :CLEARED].set(y[:, :CLEARED]), obs, other)
    act = jax.jit(jax.vmap(trial.act))
    actions, log_prob, entropy = act(jax.random.split(k_act, N_SEEDS), whole.parameters[:, -1])
    gradient = jax.jit(jax.vmap(trial.gradient, (0, 0, 0, None, 0)))
    only = only_first(trial.env, obs)
    found = Found(
        whole=whole,
        one_by_one=Read(parameters, values, memory),
        altered_row=read(params, altered, carry, first),
        forgotten=read(params, forgotten, carry, first),
        actions=actions,
        log_prob=log_prob,
        entropy=entropy,
        forbidden=None if only is None else read(params, only, carry, first).parameters,
        gradient=gradient(params, obs, carry, first, actions),
    )
    return jax.device_get(found)


def only_first(env: Environment, obs: Any) -> Any:
    """Observations whose mask allows nothing but action 0; None where Discrete actions have no mask."""
    if not isinstance(env.action_space, Discrete) or not isinstance(obs, dict) or ACTION_MASK not in obs:
        return None
    mask = obs[ACTION_MASK]
    return obs | {ACTION_MASK: jnp.zeros_like(mask).at[..., 0].set(True)}


def moved(key: jax.Array, params: Any) -> Any:
    """Parameters at some distance from `params`."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noisy = [x + 0.1 * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)


def check_types(trial: NetworkTrial, key: jax.Array) -> None:
    """Found out by tracing: shapes and types of what the network returns."""
    name, network = trial.name, trial.network
    n_values = network.n_values
    require(isinstance(n_values, int) and n_values >= 1, f"{name}.n_values is {n_values!r}: it must be 1 or more")
    before = jax.eval_shape(lambda: network.init_carry((N_ROWS,)))
    for leaf in jax.tree.leaves(before):
        begins = leaf.shape[:1] == (N_ROWS,)
        require(begins, f"{name}.init_carry(({N_ROWS},)) gives {list(leaf.shape)}: it must begin with {N_ROWS}")
    try:
        params, obs, _ = jax.eval_shape(trial.init, key)
        first = jax.ShapeDtypeStruct((N_STEPS, N_ROWS), bool)
        returned = jax.eval_shape(lambda *args: network.apply(*args), params, obs, before, first)
    except flax.errors.FlaxError as error:  # as for dropout, which wants a key
        raise AssertionError(f"{name} cannot be applied: {' '.join(str(error).split())[:300]}") from None
    others = sorted(set(params) - {"params"})
    require(not others, f"{name} keeps {', '.join(others)} beside its parameters: only these are learnt and saved")
    require(
        isinstance(returned, tuple) and len(returned) == 3,
        f"{name}.__call__ must return three things: (parameters, values, carry)",
    )
    parameters, values, after = returned
    for what, leaf, width in (("parameters", parameters, None), ("values", values, n_values)):
        good = leaf.ndim == 3 and leaf.shape[:2] == (N_STEPS, N_ROWS) and leaf.dtype == jnp.float32
        good = good and width in (None, leaf.shape[-1])
        wanted = f"float32[{N_STEPS}, {N_ROWS}, {'n' if width is None else width}]"
        require(good, f"the {what} of {name} are {leaf.dtype}{list(leaf.shape)}: they must be {wanted}, as [T, R, ...]")
    require(
        described(after) == described(before),
        f"the carry of {name} changes from {described(before)} (init_carry) to {described(after)} (__call__)",
    )


def check_found(trial: NetworkTrial, found: Found) -> None:
    """What the network computed; the leaves lead with the seeds."""
    name, whole = trial.name, found.whole
    for what, tree in (("an output", whole), ("a gradient", found.gradient), ("a log probability", found.log_prob)):
        finite = all(np.isfinite(x).all() for x in numbers(tree) if x.dtype.kind == "f")
        require(finite, f"{what} of {name} is not finite")
    for what, x in (("log_prob", found.log_prob), ("entropy", found.entropy)):
        shape = list(x.shape[1:])
        require(shape == [N_ROWS], f"{what} of {name}.distribution is {shape} for {N_ROWS} rows: one number for each")
    require(
        close(rows(whole, slice(0, -1)), rows(found.altered_row, slice(0, -1))),
        f"{name} mixes rows: what it makes of one row depends on the observations of another",
    )
    require(
        close(since_cleared(whole), since_cleared(found.forgotten)),
        f"{name} remembers the episode before: where `first` is set, its memory must be cleared",
    )
    require(
        close(whole, found.one_by_one),
        f"{name} reads a sequence in one piece otherwise than step by step with its carry",
    )
    # A plain Gaussian goes past the edges of its box, and is clipped before the environment sees it.
    check_actions(trial, found.actions)
    if found.forbidden is not None:
        policy = trial.network.distribution(jnp.asarray(found.forbidden))
        n_tries = 20
        drawn = policy.sample(seed=jax.random.key(0), sample_shape=(n_tries,))
        require(not np.asarray(drawn).any(), f"{name} takes actions that {ACTION_MASK} forbids")


def check_actions(trial: NetworkTrial, actions: Any) -> None:
    """They fit the action space, as far as `within` sees to it."""
    clipped = jax.tree.map(np.asarray, within(trial.env.action_space, actions))
    check_fits(trial.env.action_space, clipped, 2, f"an action drawn from {trial.name}.distribution")


def rows(read: Read, which: slice) -> tuple[Any, Any]:
    """Outputs [S, T, R, ...] of some rows."""
    return read.parameters[:, :, which], read.values[:, :, which]


def since_cleared(read: Read) -> tuple[Any, Any]:
    """Outputs [S, T, ...] of row 0 from the step on at which it opens an episode."""
    return read.parameters[:, CLEARED:, 0], read.values[:, CLEARED:, 0]


def close(one: Any, other: Any) -> bool:
    pairs = zip(numbers(one), numbers(other), strict=True)
    return all(np.allclose(x, y, rtol=RTOL, atol=ATOL * max(1.0, largest(x))) for x, y in pairs)


def largest(x: np.ndarray) -> float:
    """The largest size of a number in an array, of those that are finite."""
    found = np.abs(x[np.isfinite(x)])
    return float(found.max()) if found.size else 0.0
