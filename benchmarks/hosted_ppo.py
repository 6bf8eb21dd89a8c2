"""PPO on vector environments whose tasks a `Host` chooses. procgen_host.py and nethack_host.py train with it.

A run is a folder. It goes on from its last checkpoint when the same command is given again; attempts that were under
way are begun anew. A time limit counts as an end.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization, struct
from rich.console import Console
from rich.progress import Progress

from minimax_lib.gae import gae, next_values
from minimax_lib.portable.host import Host

Act = Callable[[Any], np.ndarray]  # observations of B rows -> actions


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of the trainer."""

    n_envs: int = 32
    n_steps: int = 64
    total_steps: int = 150_000
    n_epochs: int = 3
    n_minibatches: int = 8
    lr: float = 5e-4
    gamma: float = 0.999
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    eval_every: int = 10
    """Updates between two evaluations. There is one before the first update, and one after the last."""

    @property
    def n_updates(self) -> int:
        return max(1, self.total_steps // (self.n_envs * self.n_steps))


class Batch(struct.PyTreeNode):
    """Steps [T, B, ...], or [T x B, ...]."""

    obs: Any
    action: jax.Array  # i32
    log_prob: jax.Array  # f32
    value: jax.Array  # f32
    advantage: jax.Array  # f32


@dataclasses.dataclass
class Scale:
    """Divides rewards by the standard deviation of the discounted return, as the baselines of Procgen do."""

    gamma: float
    running: np.ndarray  # f64[B], the discounted return of each row so far
    n: float = 1e-4
    mean: float = 0.0
    square: float = 1.0

    def __call__(self, reward: np.ndarray, done: np.ndarray) -> np.ndarray:
        """f32[B]"""
        self.running = self.running * self.gamma + reward
        n, mean, square = len(reward), self.running.mean(), self.running.var()
        total, delta = self.n + n, mean - self.mean
        self.square = (self.square * self.n + square * n + delta**2 * self.n * n / total) / total
        self.mean, self.n = self.mean + delta * n / total, total
        self.running[done] = 0
        return np.clip(reward / np.sqrt(self.square + 1e-8), -10, 10).astype(np.float32)


class Agent:
    """A network (observations -> logits, values) that learns with PPO."""

    def __init__(self, network: nn.Module, settings: Settings, seed: int, obs: Any):
        self.settings, self.key = settings, jax.random.key(seed)
        k_init, self.k_act, self.k_learn = jax.random.split(self.key, 3)
        adam = optax.adam(settings.lr, eps=1e-5)
        self.optimizer = optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), adam)
        self.params = jax.jit(network.init)(k_init, obs)
        self.opt_state = self.optimizer.init(self.params)
        self._act = jax.jit(functools.partial(sampled, network.apply))
        self._learn = jax.jit(functools.partial(learnt, network.apply, self.optimizer, settings))
        self.n_acted = 0

    def act(self, obs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(actions, the logarithms of their probabilities, values) of B rows."""
        self.n_acted += 1
        found = self._act(self.params, jax.random.fold_in(self.k_act, self.n_acted), obs)
        return jax.device_get(found)

    def learn(self, update: int, batch: Batch) -> None:
        """A few epochs over one rollout.

        Minibatches are separate calls: on a CPU, XLA's convolutions are forty times as slow inside a scan.
        """
        n, settings = batch.value.size, self.settings
        flat = jax.tree.map(lambda x: jnp.asarray(x).reshape(n, *x.shape[2:]), batch)
        keys = jax.random.split(jax.random.fold_in(self.k_learn, update), settings.n_epochs)
        orders = jax.vmap(lambda k: jax.random.permutation(k, n))(keys)
        for rows in orders.reshape(-1, n // settings.n_minibatches):
            self.params, self.opt_state = self._learn(self.params, self.opt_state, flat, rows)


def sampled(apply: Callable[..., Any], params: Any, key: jax.Array, obs: Any) -> tuple[jax.Array, ...]:
    """See `Agent.act`."""
    logits, value = apply(params, obs)
    action = jax.random.categorical(key, logits)
    return action, jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0], value


def loss(apply: Callable[..., Any], settings: Settings, params: Any, batch: Batch) -> jax.Array:
    """PPO's, with clipped values."""
    logits, value = apply(params, batch.obs)
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, batch.action[:, None], axis=1)[:, 0]
    ratio, clip = jnp.exp(log_prob - batch.log_prob), settings.clip
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    target = batch.advantage + batch.value
    near = batch.value + jnp.clip(value - batch.value, -clip, clip)
    error = 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(near - target))
    return (settings.value_coef * error - gain - settings.entropy_coef * entropy).mean()


def learnt(
    apply: Callable[..., Any], optimizer: Any, settings: Settings, params: Any, opt_state: Any, flat: Batch, rows: Any
) -> tuple[Any, Any]:
    """(parameters, state of the optimiser) after the steps `rows` of the rollout."""
    gradient = jax.grad(functools.partial(loss, apply, settings))(params, jax.tree.map(lambda x: x[rows], flat))
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def rollout(envs: Any, agent: Agent, obs: Any, scale: Scale) -> tuple[Any, Batch]:
    """(observations after it, T steps of all rows). The curriculum is told of them."""
    rows: dict[str, list[Any]] = {k: [] for k in ("obs", "action", "log_prob", "value", "reward", "done")}
    for _ in range(agent.settings.n_steps):
        action, log_prob, value = agent.act(obs)
        before = jax.tree.map(np.array, obs)  # an environment may write its next observations to the same memory
        obs, reward, terminated, truncated, _ = envs.step(action)
        done = terminated | truncated
        reward = scale(reward, done)
        for entry, x in zip(rows.values(), (before, action, log_prob, value, reward, done), strict=True):
            entry.append(x)
    _, _, last_value = agent.act(obs)
    told = {k: jax.tree.map(lambda *x: np.stack(x), *x) for k, x in rows.items()}
    reward, done = told.pop("reward"), told.pop("done")
    envs.report_rollout(told["value"], last_value, reward)
    following = next_values(told["value"], last_value)
    discount, settings = 1.0 - done.astype(np.float32), agent.settings
    advantage, _ = gae(reward, done, discount, told["value"], following, settings.gamma, settings.gae_lambda)
    return obs, Batch(advantage=advantage, **told)


@dataclasses.dataclass
class Run:
    """What a checkpoint holds: all but the environments."""

    folder: Path
    agent: Agent
    host: Host
    scale: Scale
    update: int = 0
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def save(self) -> None:
        """Writes the checkpoint, whole or not at all, and the curves beside it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        learner = serialization.to_bytes((self.agent.params, self.agent.opt_state))
        rest = {"update": self.update, "acted": self.agent.n_acted, "history": self.history, "scale": self._scale()}
        arrays = {f"host/{name}": x for name, x in self.host.state_dict().items()}
        part = self.folder / "checkpoint.part.npz"
        np.savez(part, learner=np.frombuffer(learner, np.uint8), rest=np.array(json.dumps(rest)), **arrays)
        os.replace(part, self.folder / "checkpoint.npz")
        (self.folder / "curves.json").write_text(json.dumps(self.history, indent=1) + "\n")

    def load(self) -> None:
        """Goes on from the folder's checkpoint, if there is one."""
        path = self.folder / "checkpoint.npz"
        if not path.exists():
            return
        with np.load(path) as found:
            self.host.load_state_dict({name[5:]: found[name] for name in found if name.startswith("host/")})
            agent, rest = self.agent, json.loads(str(found["rest"]))
            learner = (agent.params, agent.opt_state)
            agent.params, agent.opt_state = serialization.from_bytes(learner, found["learner"].tobytes())
        agent.n_acted, self.update, self.history = rest["acted"], rest["update"], rest["history"]
        self.scale.n, self.scale.mean, self.scale.square = rest["scale"]

    def _scale(self) -> list[float]:
        return [self.scale.n, float(self.scale.mean), float(self.scale.square)]


def train(run: Run, envs: Any, evaluate: Callable[[Act], dict[str, float]]) -> list[dict[str, float]]:
    """The curves of the run, from its checkpoint to its last update."""
    settings = run.agent.settings
    run.load()
    obs, _ = envs.reset(seed=run.update)  # tasks choose levels; the seed is for what is left
    per_update = settings.n_envs * settings.n_steps
    # A bar in a terminal. An update may take a minute, longer than the speed is usually averaged over.
    with Progress(console=Console(stderr=True), speed_estimate_period=3600) as bar:
        for _ in bar.track(range(run.update, settings.n_updates), description="updates"):
            if run.update % settings.eval_every == 0 and not is_noted(run):
                note(run, per_update, evaluate)
            obs, batch = rollout(envs, run.agent, obs, run.scale)
            run.agent.learn(run.update, batch)
            run.update += 1
            if run.update % settings.eval_every == 0 and run.update < settings.n_updates:
                run.save()
    if not is_noted(run):
        note(run, per_update, evaluate)
    run.save()
    return run.history


def is_noted(run: Run) -> bool:
    """Whether the curves have a row of this update."""
    return bool(run.history) and run.history[-1]["update"] == run.update


def note(run: Run, per_update: int, evaluate: Callable[[Act], dict[str, float]]) -> None:
    """Evaluates the agent and adds a row to the curves."""
    row = {"update": run.update, "env_steps": run.update * per_update}
    row |= evaluate(lambda obs: run.agent.act(obs)[0]) | run.host.metrics()
    run.history.append({name: float(x) for name, x in row.items()})
    print(json.dumps({name: round(x, 4) for name, x in run.history[-1].items()}), flush=True)
