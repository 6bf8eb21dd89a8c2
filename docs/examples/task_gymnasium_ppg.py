"""PLR with Phasic Policy Gradient (PPG, Cobbe et al. 2021) on the real MiniGrid, in one file.

The mazes, the tasks and the evaluation are those of task_gymnasium_ppo.py. Policy and value are two networks. In the
policy phase they learn as with PPO. After `N_PHASE` updates comes the auxiliary phase: over all rollouts since the last
one, the policy's network learns the value too, and a KL term keeps its actions as they are. PLR is told of the values
of the value network, once a rollout. The lines that a task curriculum adds are marked with `# TASKS`: they are the
same as with PPO.

    pip install -e ".[envs]"
    python docs/examples/task_gymnasium_ppg.py --core plr

Three seeds, 150 updates, shares of the mazes with a way to the goal that were solved, about 75 of each kind:

                      training mazes        held-out mazes
    --core plr        77%   84%   73%       76%   82%   78%
    --core uniform    73%   80%   80%       74%   79%   76%

So few mazes and seeds show no difference.
"""

import argparse
import functools
from typing import Any

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from task_gymnasium_ppo import CLIP, ENTROPY, GAMMA, HELD_OUT, TRAINING, advantages, make_env, solved

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.scoring import Scoring  # TASKS
from minimax_lib.portable.task_vector import TaskVectorEnv  # TASKS
from minimax_lib.tasks.registry import TASK_CURRICULA  # TASKS

N_STEPS, N_MINIBATCHES, LR = 64, 4, 1e-3
N_EPOCHS = 4  # of the policy phase; the paper has 1, with 256 times as many steps
N_PHASE, N_AUX_EPOCHS, CLONE = 16, 6, 1.0  # updates of a phase, epochs of the auxiliary one, weight of the KL term


class Network(nn.Module):
    """(logits of the actions, the value by the policy's network, the value)."""

    n_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def trunk(x: jax.Array) -> jax.Array:
            for _ in range(2):
                x = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
            return x

        of_policy, of_value = trunk(x), trunk(x)
        logits = nn.Dense(self.n_actions, kernel_init=nn.initializers.orthogonal(0.01))(of_policy)
        auxiliary, value = (
            nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(features)[..., 0]
            for features in (of_policy, of_value)
        )
        return logits, auxiliary, value


NETWORK = Network(3)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LR, eps=1e-5))


@jax.jit
def act(params: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(actions, the logarithms of the probabilities of all actions, values)."""
    logits, _, value = NETWORK.apply(params, obs)
    return jax.random.categorical(key, logits), jax.nn.log_softmax(logits), value


def policy_loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """PPO's for the policy, and the squared error of the value, over those steps that count."""
    logits, _, value = NETWORK.apply(params, batch["obs"])
    log_probs = jax.nn.log_softmax(logits)
    new, old = (jnp.take_along_axis(x, batch["action"][:, None], axis=1)[:, 0] for x in (log_probs, batch["log_probs"]))
    ratio = jnp.exp(new - old)
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    error = 0.5 * jnp.square(value - batch["target"])
    return (batch["counts"] * (error - gain - ENTROPY * entropy)).mean()


def auxiliary_loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """Both networks learn the value, and the policy stays what it was before the phase (equations 1 and 2 of PPG)."""
    logits, auxiliary, value = NETWORK.apply(params, batch["obs"])
    log_probs, old = jax.nn.log_softmax(logits), batch["log_probs"]
    kl = (jnp.exp(old) * (old - log_probs)).sum(-1)
    errors = 0.5 * jnp.square(auxiliary - batch["target"]) + 0.5 * jnp.square(value - batch["target"])
    return (batch["counts"] * (errors + CLONE * kl)).mean()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def learn(loss: Any, n_epochs: int, n_minibatches: int, learner: Any, key: jax.Array, batch: Any) -> tuple[Any, Any]:
    """(parameters, state of the optimiser) after so many epochs over a batch, all of whose entries are [steps, ...]."""

    def minibatch(learner: tuple[Any, Any], rows: jax.Array) -> tuple[tuple[Any, Any], None]:
        params, opt_state = learner
        gradient = jax.grad(loss)(params, jax.tree.map(lambda x: x[rows], batch))
        updates, opt_state = OPTIMIZER.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    n = len(batch["target"])
    orders = jax.vmap(lambda k: jax.random.permutation(k, n))(jax.random.split(key, n_epochs))
    learner, _ = jax.lax.scan(minibatch, learner, orders.reshape(-1, n // n_minibatches))
    return learner


def rollout(envs: Any, params: Any, key: jax.Array, obs: Any, opens: Any) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """(next observations, which rows only open an episode next, the steps)."""
    names = ("obs", "action", "log_probs", "value", "reward", "done", "counts")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for t in range(N_STEPS):
        action, log_probs, value = jax.device_get(act(params, jax.random.fold_in(key, t), obs))
        before, opened = obs, opens
        obs, reward, terminated, truncated, _ = envs.step(action)
        opens = terminated | truncated  # Gymnasium's next step only opens the next episode
        step = (before, action, log_probs, value, reward, opens, ~opened)
        for name, x in zip(names, step, strict=True):
            rows[name].append(x)
    return obs, opens, {name: np.stack(x) for name, x in rows.items()}


def train(core: str, n_updates: int, n_envs: int = 16, seed: int = 0) -> tuple[Any, Any]:
    """(parameters, the host) after so many updates."""
    envs: Any = gymnasium.vector.SyncVectorEnv([functools.partial(make_env, index) for index in range(n_envs)])
    host = Host(core, TRAINING, seed, Scoring(gamma=GAMMA))  # TASKS
    envs = TaskVectorEnv(envs, host)  # TASKS

    key, opens = jax.random.key(seed), np.zeros(n_envs, bool)
    obs, _ = envs.reset(seed=seed)
    params = NETWORK.init(key, obs)
    learner, phase = (params, OPTIMIZER.init(params)), []
    for update in range(n_updates):
        acting, learning, auxiliary = jax.random.split(jax.random.fold_in(key, update), 3)
        obs, opens, steps = rollout(envs, learner[0], acting, obs, opens)
        _, _, last_value = jax.device_get(act(learner[0], key, obs))
        envs.report_rollout(steps["value"], last_value)  # TASKS: only curricula that read scores need it
        steps["advantage"] = advantages(steps.pop("reward"), steps["value"], steps.pop("done"), last_value)
        steps["target"] = steps["advantage"] + steps.pop("value")
        batch = {name: x.reshape(-1, *x.shape[2:]).astype(x.dtype) for name, x in steps.items()}
        learner = learn(policy_loss, N_EPOCHS, N_MINIBATCHES, learner, learning, batch)
        phase.append({name: batch[name] for name in ("obs", "target", "counts")})
        if len(phase) == N_PHASE:
            batch = {name: np.concatenate([each[name] for each in phase]) for name in phase[0]}
            _, batch["log_probs"], _ = act(learner[0], key, batch["obs"])
            learner = learn(auxiliary_loss, N_AUX_EPOCHS, N_PHASE, learner, auxiliary, batch)
            phase = []
    return learner[0], host


def main(core: str = "plr", n_updates: int = 150, seed: int = 0) -> tuple[float, float]:
    """(share of the training mazes, share of the others) that are solved, of those that can be."""
    params, host = train(core, n_updates, seed=seed)
    shares = solved(params, TRAINING, act=act), solved(params, HELD_OUT, act=act)
    print(f"{core}: {shares[0]:.0%} of the training mazes solved, {shares[1]:.0%} of the held-out ones")
    print(f"{host.n_drawn} tasks drawn, {host.n_told['results']} results; {host.metrics()}")
    return shares


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="plr", choices=TASK_CURRICULA.names())
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.core, given.updates, given.seed)
