"""A curriculum for each agent of a PettingZoo environment, in worker processes.

    pip install -e ".[pettingzoo]"
    python docs/examples/task_pettingzoo_workers.py --picture agents.png

The lines that the curricula add to such a loop are marked with `# TASKS`. Two agents stand before locks. A task is a
lock of 1 to 12 digits, and all locks of an agent begin with the same digits. A wrong digit ends its episode. Agent
"slow" has more digits to choose from than "quick", so their curricula go different ways. REINFORCE learns a table.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.parallel_workers import ParallelWorkers  # TASKS
from minimax_lib.portable.task_receiver import as_option  # TASKS
from minimax_lib.tasks.registry import TASK_CURRICULA  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS

LONGEST = 12
DIGITS = {"quick": 3, "slow": 5}
SPACE = Discrete(LONGEST, first=1)  # TASKS


class Locks(ParallelEnv):
    """Each agent sees how many digits it has dialled."""

    metadata = {"name": "locks"}  # noqa: RUF012

    def __init__(self):
        self.possible_agents, self.agents = list(DIGITS), []
        rng = np.random.default_rng(0)
        self.codes = {agent: rng.integers(0, n, LONGEST) for agent, n in DIGITS.items()}

    def observation_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(LONGEST)

    def action_space(self, agent: str) -> gymnasium.Space:
        return gymnasium.spaces.Discrete(DIGITS[agent])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.lengths = options["task"]
        self.agents, self.place = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        right = {agent: action == self.codes[agent][self.place] for agent, action in actions.items()}
        self.place += 1
        opened = {agent: bool(is_right) and self.place == self.lengths[agent] for agent, is_right in right.items()}
        ended = {agent: not right[agent] or opened[agent] for agent in actions}
        told = (
            dict.fromkeys(actions, min(self.place, LONGEST - 1)),
            {agent: float(opened[agent]) for agent in actions},
            ended,
            dict.fromkeys(actions, False),
            {agent: {} for agent in actions},
        )
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return told


def main(core: str = "tscl", n_rounds: int = 400, n_envs: int = 4) -> tuple[dict[str, Host], dict[str, np.ndarray]]:
    """(the hosts, f32[rounds / 10, 12] the shares of the tasks of each agent)."""
    hosts = {agent: Host(core, SPACE, seed=i) for i, agent in enumerate(DIGITS)}  # TASKS: one for each agent
    envs = ParallelWorkers([Locks] * n_envs, hosts, as_option)  # TASKS: processes, and a dict of hosts
    rng = np.random.default_rng(0)
    logits = {agent: np.zeros((LONGEST, n)) for agent, n in DIGITS.items()}
    shares: dict[str, list[Any]] = {agent: [] for agent in DIGITS}
    for i in range(n_rounds):
        obs: list[Any] = [given[0] for given in envs.reset()]  # TASKS: on the next tasks
        played: list[tuple[int, str, int, int]] = []
        total = [dict.fromkeys(DIGITS, 0.0) for _ in range(n_envs)]
        while any(envs.agents):
            actions = [{a: choose(rng, logits[a][obs[e][a]]) for a in own} for e, own in enumerate(envs.agents)]
            played += [(e, a, obs[e][a], x) for e, own in enumerate(actions) for a, x in own.items()]
            for e, told in enumerate(envs.step([own or None for own in actions])):
                if told is not None:
                    obs[e] = told[0]
                    for agent, reward in told[1].items():
                        total[e][agent] += reward
        for e, agent, place, action in played:
            p = probabilities(logits[agent][place])
            logits[agent][place] += 0.3 * total[e][agent] * (np.eye(len(p))[action] - p)
        if i % 10 == 0:
            for agent, host in hosts.items():
                shares[agent].append(host.weights())
    envs.close()
    for agent, host in hosts.items():
        right = [probabilities(logits[agent][k])[Locks().codes[agent][k]] for k in range(LONGEST)]
        print(f"{agent}: {host.n_told['results']} attempts; digits known: {np.sum(np.array(right) > 0.9)} of {LONGEST}")
    return hosts, {agent: np.array(rows) for agent, rows in shares.items()}


def probabilities(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max())
    return p / p.sum()


def choose(rng: np.random.Generator, logits: np.ndarray) -> int:
    return int(rng.choice(len(logits), p=probabilities(logits)))


def draw(shares: dict[str, np.ndarray], path: str) -> None:
    """A picture of the shares of the tasks over time, a panel for each agent."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(7, 3), layout="constrained")
    for axes, (agent, rows) in zip(figure.subplots(1, len(shares), sharey=True), shares.items(), strict=True):
        edges = 10 * np.arange(len(rows) + 1), np.arange(LONGEST + 1) + 0.5
        image = axes.pcolormesh(*edges, rows.T, cmap="viridis", vmin=0, rasterized=True)
        axes.set(title=f"agent {agent!r}", xlabel="round")
    figure.axes[0].set(ylabel="digits of the lock")
    figure.colorbar(image, ax=figure.axes, label="share of the attempts")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="tscl", choices=TASK_CURRICULA.names())
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--picture")
    given = parser.parse_args()
    _, found = main(given.core, given.rounds)
    if given.picture:
        draw(found, given.picture)
