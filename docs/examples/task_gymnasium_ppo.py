"""PLR chooses the levels of the real MiniGrid in a training loop of one's own: PPO in one file, as CleanRL writes it.

    pip install "minimax-ued[envs]"
    python docs/examples/task_gymnasium_ppo.py --core plr

The lines that a task curriculum adds to such a script are marked with `# TASKS`. A task is a seed of the environment:
three quarters of 200 seeds are trained on, and the agent is measured on the others.

One run on a core of an AMD EPYC, 150 updates (153,600 steps), with sampled actions and at most 60 of them:

                    training levels   held-out levels
    --core plr                  98%              100%
    --core uniform             100%               98%

These levels are too easy to tell curricula apart; the example shows how little a script has to change.
"""

import argparse
import functools
from typing import Any

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import minigrid  # noqa: F401, it registers its environments
import numpy as np
import optax

from minimax_lib.curricula.task_cores import TASK_CURRICULA  # TASKS
from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.scoring import Scoring  # TASKS
from minimax_lib.portable.task_receiver import TaskReceiver, as_seed  # TASKS
from minimax_lib.portable.task_vector import TaskVectorEnv  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS
from minimax_lib.tasks.split import split  # TASKS

N_STEPS, N_EPOCHS, N_MINIBATCHES = 64, 4, 4
LR, GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE = 1e-3, 0.99, 0.95, 0.2, 0.01, 0.5
TRAINING, HELD_OUT = split(Discrete(200), share=0.75)  # TASKS


class Numbers(gymnasium.ObservationWrapper):
    """What the agent sees as one list of numbers: the image, and the direction as four of them."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        size = int(np.prod(env.observation_space["image"].shape)) + 4
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,), np.float32)

    def observation(self, obs: dict[str, Any]) -> np.ndarray:
        direction = np.eye(4, dtype=np.float32)[obs["direction"]]
        return np.concatenate([obs["image"].reshape(-1).astype(np.float32) / 10, direction])


def make_env(name: str, index: int) -> gymnasium.Env:
    env = gymnasium.wrappers.TransformAction(
        Numbers(gymnasium.make(name)), lambda action: int(action), gymnasium.spaces.Discrete(3)
    )
    return TaskReceiver(env, index, TRAINING, as_seed)  # TASKS: as the last of its wrappers


class Network(nn.Module):
    """(logits of the actions, value)."""

    n_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        for _ in range(2):
            x = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        logits = nn.Dense(self.n_actions, kernel_init=nn.initializers.orthogonal(0.01))(x)
        return logits, nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(x)[..., 0]


NETWORK = Network(3)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LR, eps=1e-5))


@jax.jit
def act(params: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(actions, the logarithms of their probabilities, values)."""
    logits, value = NETWORK.apply(params, obs)
    action = jax.random.categorical(key, logits)
    return action, jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0], value


def loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """PPO's, over those steps that count."""
    logits, value = NETWORK.apply(params, batch["obs"])
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, batch["action"][:, None], axis=1)[:, 0]
    ratio = jnp.exp(log_prob - batch["log_prob"])
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    error = jnp.square(value - batch["advantage"] - batch["value"])
    return (batch["counts"] * (VALUE * 0.5 * error - gain - ENTROPY * entropy)).mean()


@jax.jit
def learn(params: Any, opt_state: Any, key: jax.Array, batch: dict[str, jax.Array]) -> tuple[Any, Any]:
    """A few epochs over one rollout, all of whose entries are [steps, ...]."""

    def minibatch(loop: tuple[Any, Any], rows: jax.Array) -> tuple[tuple[Any, Any], None]:
        params, opt_state = loop
        gradient = jax.grad(loss)(params, jax.tree.map(lambda x: x[rows], batch))
        updates, opt_state = OPTIMIZER.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    n = len(batch["value"])
    orders = jax.vmap(lambda k: jax.random.permutation(k, n))(jax.random.split(key, N_EPOCHS))
    (params, opt_state), _ = jax.lax.scan(minibatch, (params, opt_state), orders.reshape(-1, n // N_MINIBATCHES))
    return params, opt_state


def advantages(reward: np.ndarray, value: np.ndarray, done: np.ndarray, last_value: np.ndarray) -> np.ndarray:
    """GAE; `done[t]` is that of action t."""
    found, running, following = np.zeros_like(value), np.zeros_like(last_value), last_value
    for t in range(len(reward) - 1, -1, -1):
        goes_on = 1.0 - done[t]
        delta = reward[t] + GAMMA * goes_on * following - value[t]
        running = delta + GAMMA * GAE_LAMBDA * goes_on * running
        found[t], following = running, value[t]
    return found


def solved(params: Any, name: str, seeds: list[int], n_steps: int = 60) -> float:
    """The share of these levels that one episode each, with sampled actions, solves in so many steps."""
    n_solved = 0
    step = functools.partial(act, params)
    env = gymnasium.wrappers.TransformAction(Numbers(gymnasium.make(name)), int, gymnasium.spaces.Discrete(3))
    for seed in seeds:
        (obs, _), key = env.reset(seed=seed), jax.random.key(seed)
        for t in range(n_steps):
            action, *_ = step(jax.random.fold_in(key, t), obs[None])
            obs, reward, terminated, truncated, _ = env.step(action[0])
            if terminated or truncated:
                n_solved += reward > 0
                break
    return n_solved / len(seeds)


def train(name: str, core: str, n_updates: int, n_envs: int = 16, seed: int = 0) -> tuple[Any, Any]:
    """(parameters, the host) after so many updates."""
    makers = [functools.partial(make_env, name, index) for index in range(n_envs)]
    envs: Any = gymnasium.vector.SyncVectorEnv(makers)  # AsyncVectorEnv works too
    host = Host(TASK_CURRICULA[core]().build(TRAINING.n), TRAINING, seed, Scoring(gamma=GAMMA))  # TASKS
    envs = TaskVectorEnv(envs, host)  # TASKS

    key = jax.random.key(seed)
    obs, _ = envs.reset(seed=seed)
    params = NETWORK.init(jax.random.key(seed), obs)
    opt_state, opens = OPTIMIZER.init(params), np.zeros(n_envs, bool)
    for update in range(n_updates):
        rows: dict[str, list[Any]] = {k: [] for k in ("obs", "action", "log_prob", "value", "reward", "done", "counts")}
        for t in range(N_STEPS):
            action, log_prob, value = jax.device_get(act(params, jax.random.fold_in(key, update * N_STEPS + t), obs))
            before, opened = obs, opens
            obs, reward, terminated, truncated, _ = envs.step(action)
            opens = terminated | truncated  # Gymnasium's next step only opens the next episode
            step = (before, action, log_prob, value, reward, opens, ~opened)
            for entry, x in zip(rows.values(), step, strict=True):
                entry.append(x)
        batch = {k: np.stack(x) for k, x in rows.items()}
        _, _, last_value = jax.device_get(act(params, key, obs))
        envs.report_rollout(batch["value"], last_value)  # TASKS: only curricula that read scores need it
        batch["advantage"] = advantages(batch.pop("reward"), batch["value"], batch.pop("done"), last_value)
        flat = {k: x.reshape(-1, *x.shape[2:]).astype(x.dtype) for k, x in batch.items()}
        params, opt_state = learn(params, opt_state, jax.random.fold_in(key, 2**31 + update), flat)
    return params, host


def main(name: str = "MiniGrid-SimpleCrossingS9N1-v0", core: str = "plr", n_updates: int = 150) -> tuple[float, float]:
    """(share of the training levels, share of the others) that are solved."""
    params, host = train(name, core, n_updates)
    shares = tuple(
        solved(params, name, [part.decode(i) for i in range(min(50, part.n))]) for part in (TRAINING, HELD_OUT)
    )
    print(f"{core}: {shares[0]:.0%} of 50 training levels solved, {shares[1]:.0%} of 50 held-out ones")
    print(f"{host.n_drawn} tasks drawn, {host.n_told['results']} results; {host.metrics()}")
    return shares[0], shares[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="plr", choices=TASK_CURRICULA.names())
    parser.add_argument("--updates", type=int, default=150)
    given = parser.parse_args()
    main(core=given.core, n_updates=given.updates)
