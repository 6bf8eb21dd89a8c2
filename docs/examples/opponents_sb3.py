"""Self-play in Stable-Baselines3: PPO against copies of itself in a small game for two.

    pip install -e ".[sb3,pettingzoo]"
    python docs/examples/opponents_sb3.py --opponents pfsp --picture opponents.png

The lines that a curriculum of opponents adds to such a script are marked with `# OPPONENTS`. The game is the one that
children play with their hands: both load, shield or shoot at the same time. A shot needs a bullet, and hits who does
not shield. Whoever is hit alone has lost. There is no best answer to everything, so it matters against whom one learns.
"""

import argparse
import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from minimax_lib.opponents.settings import OPPONENTS
from minimax_lib.portable.agents import Agents  # OPPONENTS
from minimax_lib.portable.one_seat import OneSeat, as_opponent  # OPPONENTS
from minimax_lib.portable.opponents import OpponentHost  # OPPONENTS
from minimax_lib.portable.task_receiver import TaskReceiver  # OPPONENTS

LOAD, SHIELD, SHOOT = range(3)
MOST = 3  # bullets of one agent, and shields in a row that hold


class Duel(ParallelEnv):
    """Two agents, each of which sees both of their bullets and shields, and how much time has passed."""

    metadata = {"name": "duel"}  # noqa: RUF012

    def __init__(self, max_steps: int = 20):
        self.possible_agents, self.agents, self.max_steps = ["left", "right"], [], max_steps

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Box(0, 1, (5,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.agents, self.time = list(self.possible_agents), 0
        self.bullets, self.shields = np.zeros(2, int), np.zeros(2, int)
        return self._obs(), {agent: {} for agent in self.agents}

    def _obs(self) -> dict[str, np.ndarray]:
        both = np.stack([self.bullets, self.shields], axis=1) / MOST
        time = [self.time / self.max_steps]
        orders = {"left": [0, 1], "right": [1, 0]}
        return {name: np.concatenate([*both[orders[name]], time]).astype(np.float32) for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        chosen = np.array([int(actions[agent]) for agent in self.possible_agents])
        shoots = (chosen == SHOOT) & (self.bullets > 0)
        shields = (chosen == SHIELD) & (self.shields < MOST)
        self.bullets = np.minimum(self.bullets + (chosen == LOAD) - shoots, MOST)
        self.shields = np.where(shields, self.shields + 1, 0)
        hit = shoots[::-1] & ~shields
        self.time += 1
        over, late = bool(hit.any()), self.time >= self.max_steps
        obs, names = self._obs(), self.agents
        rewards = hit[::-1].astype(float) - hit
        if over or late:
            self.agents = []
        return (
            obs,
            dict(zip(names, rewards.tolist(), strict=True)),
            dict.fromkeys(names, over),
            dict.fromkeys(names, late and not over),
            {name: {} for name in names},
        )


def rates(policy: Any, opponent: Any, n_games: int) -> tuple[float, float]:
    """(wins, draws) of `policy` against another agent, shares of games in which both seats are played."""
    from minimax_lib.portable.task_sb3 import acting

    env, act, outcomes = OneSeat(Duel(), acting), acting(policy), []
    for game in range(n_games):
        (obs, _), over = env.reset(seed=game, options={"opponent": opponent}), False
        while not over:
            obs, _, terminated, truncated, info = env.step(act(obs))
            over = terminated or truncated
        outcomes.append(info["progress"])
    return float(np.mean(np.array(outcomes) == 1)), float(np.mean(np.array(outcomes) == 0.5))


def main(
    opponents: str = "pfsp", n_steps: int = 30_000, n_envs: int = 8, every: int = 5, n_games: int = 100, seed: int = 0
) -> tuple[OpponentHost, Any, list[dict[int, float]]]:
    """(the opponents, the model, the shares of the copies as each rollout began)."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import DummyVecEnv

    from minimax_lib.portable.task_sb3 import OpponentCallback, TaskVecEnv, policy_agents  # OPPONENTS

    agents = policy_agents(ActorCriticPolicy)  # OPPONENTS: in memory; with a folder, SubprocVecEnv works too
    host = OpponentHost(opponents, agents, capacity=16, keep="spread", seed=seed)  # OPPONENTS
    maker = functools.partial(make_env, agents)
    envs = TaskVecEnv(DummyVecEnv([maker] * n_envs), host)  # OPPONENTS
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, n_epochs=4, ent_coef=0.02, seed=seed, device="cpu")
    host.add_agent(model.policy)  # OPPONENTS: the student as it begins
    shares: list[dict[int, float]] = []

    class Watched(OpponentCallback):  # OPPONENTS: OpponentCallback is enough, this one is for the picture
        def _on_rollout_start(self) -> None:
            super()._on_rollout_start()
            shares.append(self.opponents.weights())

    model.learn(n_steps, callback=Watched(host, every))  # OPPONENTS: the callback
    oldest, newest = (host.agent(host.serials[i]) for i in (0, -1))
    for name, other in (("the first copy", oldest), ("the newest copy", newest)):
        won, drawn = rates(model.policy, other, n_games)
        print(f"against {name}: {won:.2f} of the games won, {drawn:.2f} drawn")
    print(f"{host.n_drawn} opponents drawn, {host.n_told['results']} games; rates of wins {host.win_rates()}")
    return host, model, shares


def make_env(agents: Agents) -> gymnasium.Env:
    from minimax_lib.portable.task_sb3 import acting

    return TaskReceiver(OneSeat(Duel(), acting), None, agents, as_opponent)  # OPPONENTS


def draw(shares: list[dict[int, float]], path: Path) -> None:
    """A picture of who was met: a row for each copy, a column for each rollout."""
    import matplotlib.figure

    table = np.zeros((1 + max(max(each) for each in shares), len(shares)))
    for i, each in enumerate(shares):
        for serial, share in each.items():
            table[serial, i] = share
    figure = matplotlib.figure.Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.where(table > 0, table, np.nan), aspect="auto", origin="lower", cmap="viridis")
    axes.set(xlabel="rollout", ylabel="copy of the student", title="Share of the games against each copy")
    figure.colorbar(image)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--opponents", default="pfsp", choices=OPPONENTS.names())
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    _, _, found = main(given.opponents, given.steps)
    if given.picture:
        draw(found, given.picture)
