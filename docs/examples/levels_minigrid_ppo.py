"""ACCEL makes the rooms of the real MiniGrid in a training loop of one's own: PPO in one file, as CleanRL writes it.

    pip install -e ".[envs]"
    python docs/examples/levels_minigrid_ppo.py --curriculum accel

The lines that a curriculum over levels adds to such a script are marked with `# LEVELS`. Levels are made and mutated by
this package, and played in MiniGrid itself. The agent is then measured on rooms of MiniGrid's own.

One run of 150 rollouts (307,200 steps) on a core of an AMD EPYC, three minutes, one seed, sampled actions, 100 episodes
of at most 200 steps each:

                         learnt from   Empty-8x8   SimpleCrossingS9N1
    --curriculum accel   65 rollouts         46%                   8%
    --curriculum dr     150 rollouts         17%                  10%

Both are at their beginning: ACCEL makes levels harder slowly, and after 80 rollouts its rooms had one wall. The example
shows how little a script has to change, and not what a curriculum is worth.
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
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from minimax_lib.curricula.base import SOURCE_NAMES  # LEVELS
from minimax_lib.curricula.levels.accel import ACCELSettings  # LEVELS
from minimax_lib.curricula.levels.dr import RandomLevels  # LEVELS
from minimax_lib.curricula.levels.plr import PLRSettings  # LEVELS
from minimax_lib.envs.grid import GridWorld  # LEVELS
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom  # LEVELS
from minimax_lib.envs.grid.real_minigrid import RealMiniGrid  # LEVELS
from minimax_lib.portable.levels import LevelHost  # LEVELS

N_STEPS, N_EPOCHS, N_MINIBATCHES = 128, 4, 4
LR, GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE = 1e-3, 0.99, 0.95, 0.2, 0.01, 0.5
ROOMS = GridWorld(EmptyRoom(height=9, width=9, max_steps=N_STEPS), keep_solvable=True)  # LEVELS: what there may be
CURRICULA = {  # LEVELS
    "accel": ACCELSettings(capacity=500, min_fill=0.25, n_edits=5, score="positive_value_loss"),
    "plr": PLRSettings(capacity=500, min_fill=0.25, score="positive_value_loss"),
    "dr": RandomLevels(),
}


class Numbers(gymnasium.ObservationWrapper):
    """What the agent sees as one list of numbers: the kinds of objects, their states, and its own direction."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        size = int(np.prod(env.observation_space["image"].shape[:2])) * (11 + 3) + 4
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,), np.float32)

    def observation(self, obs: dict[str, Any]) -> np.ndarray:
        kinds, states = np.eye(11)[obs["image"][..., 0]], np.eye(3)[obs["image"][..., 2]]
        direction = np.eye(4)[obs["direction"]]
        return np.concatenate([kinds.reshape(-1), states.reshape(-1), direction], dtype=np.float32)


def make_env(row: int) -> gymnasium.Env:
    return Numbers(RealMiniGrid(ROOMS, row))  # LEVELS: in the place of gymnasium.make(...)


class Network(nn.Module):
    """(logits of the actions, value)."""

    n_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        for _ in range(2):
            x = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        logits = nn.Dense(self.n_actions, kernel_init=nn.initializers.orthogonal(0.01))(x)
        return logits, nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(x)[..., 0]


NETWORK = Network(7)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LR, eps=1e-5))


@jax.jit
def act(params: Any, key: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(actions, the logarithms of their probabilities, values)."""
    logits, value = NETWORK.apply(params, obs)
    action = jax.random.categorical(key, logits)
    return action, jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0], value


def loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """PPO's."""
    logits, value = NETWORK.apply(params, batch["obs"])
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, batch["action"][:, None], axis=1)[:, 0]
    ratio = jnp.exp(log_prob - batch["log_prob"])
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    error = jnp.square(value - batch["advantage"] - batch["value"])
    return (VALUE * 0.5 * error - gain - ENTROPY * entropy).mean()


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


def solved(params: Any, name: str, n_episodes: int) -> float:
    """The share of so many levels of MiniGrid's own that one episode each, with sampled actions, solves."""
    n_solved = 0
    step = functools.partial(act, params)
    env = Numbers(gymnasium.make(name, max_steps=200))
    for seed in range(n_episodes):
        (obs, _), key, over, t = env.reset(seed=seed), jax.random.key(seed), False, 0
        while not over:
            action, *_ = step(jax.random.fold_in(key, t), obs[None])
            obs, reward, terminated, truncated, _ = env.step(int(action[0]))
            over, t = terminated or truncated, t + 1
        n_solved += reward > 0
    return n_solved / n_episodes


def train(curriculum: str, n_rollouts: int, n_envs: int = 16, seed: int = 0) -> tuple[Any, LevelHost, dict[str, int]]:
    """(parameters, the host, rollouts on levels of each source) after so many rollouts."""
    makers = [functools.partial(make_env, row) for row in range(n_envs)]
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)  # AsyncVectorEnv works too
    host = LevelHost(CURRICULA[curriculum], ROOMS, n_envs, seed, GAMMA, GAE_LAMBDA)  # LEVELS

    key = jax.random.key(seed)
    params = NETWORK.init(jax.random.key(seed), np.zeros((1, *envs.single_observation_space.shape), np.float32))
    opt_state, counts = OPTIMIZER.init(params), dict.fromkeys(SOURCE_NAMES, 0)
    for number in range(n_rollouts):
        proposal = host.propose()  # LEVELS
        obs, _ = envs.reset(seed=seed, options={"levels": proposal.levels})  # LEVELS: the next ones, at each rollout
        counts[SOURCE_NAMES[proposal.source[0]]] += 1
        rows: dict[str, list[Any]] = {k: [] for k in ("obs", "action", "log_prob", "value", "reward", "done")}
        for t in range(N_STEPS):
            action, log_prob, value = jax.device_get(act(params, jax.random.fold_in(key, number * N_STEPS + t), obs))
            before = obs
            obs, reward, terminated, truncated, _ = envs.step(action)
            for entry, x in zip(
                rows.values(), (before, action, log_prob, value, reward, terminated | truncated), strict=True
            ):
                entry.append(x)
        batch = {k: np.stack(x) for k, x in rows.items()}
        _, _, last_value = jax.device_get(act(params, key, obs))
        host.report(batch["reward"], batch["value"], batch["done"], last_value)  # LEVELS
        if not proposal.train.any():  # LEVELS: these levels are only scored
            continue  # LEVELS
        batch["advantage"] = advantages(batch.pop("reward"), batch["value"], batch.pop("done"), last_value)
        learnt = {k: x[:, proposal.train] for k, x in batch.items()}  # LEVELS: the rows to learn from
        flat = {k: x.reshape(-1, *x.shape[2:]).astype(x.dtype) for k, x in learnt.items()}
        params, opt_state = learn(params, opt_state, jax.random.fold_in(key, 2**31 + number), flat)
    return params, host, counts


def main(
    curriculum: str = "accel",
    n_rollouts: int = 200,
    names: tuple[str, ...] = ("MiniGrid-Empty-8x8-v0", "MiniGrid-SimpleCrossingS9N1-v0"),
    n_episodes: int = 50,
) -> dict[str, float]:
    """The share of each held-out environment's levels that is solved."""
    params, _, counts = train(curriculum, n_rollouts)
    print(f"{curriculum}: {', '.join(f'{n} rollouts on {name} levels' for name, n in counts.items())}")
    shares = {name: solved(params, name, n_episodes) for name in names}
    print(", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    return shares


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--curriculum", default="accel", choices=CURRICULA)
    parser.add_argument("--rollouts", type=int, default=200)
    given = parser.parse_args()
    main(given.curriculum, given.rollouts)
