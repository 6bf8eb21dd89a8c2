"""What several agents and opponents cost: seconds of an update, side by side in one process.

    python benchmarks/opponents.py [--rounds 7] > benchmarks/results/opponents_cpu.json

Two pairs of programs with the same number of rows take turns:

* two agents that share a policy (two mazes in one environment, 16 of them) beside 32 mazes with one agent each
* a student against copies from a bank, with 1, 4 and 32 opponents in a batch of 32 games of LaserTag, beside the same
  student against a random player, which costs next to nothing
"""

import argparse
import dataclasses
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.games.joint import SelfPlayMethod
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.envs.against import Against
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.models.settings import LSTM
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner


@dataclasses.dataclass(frozen=True)
class Twice(MultiAgentEnvironment):
    """Two mazes, whose agents do not know of each other. The episode is over when both have ended."""

    maze: AMaze = AMaze()
    n_agents = 2

    @property
    def max_steps(self) -> int:
        return self.maze.max_steps

    @property
    def observation_space(self) -> Any:
        return self.maze.observation_space

    @property
    def action_space(self) -> Any:
        return self.maze.action_space

    def sample_level(self, key: jax.Array) -> Any:
        return jax.vmap(self.maze.sample_level)(jax.random.split(key))

    def reset(self, key: jax.Array, level: Any) -> tuple:
        state, ts = jax.vmap(self.maze.reset)(jax.random.split(key), level)
        return (state, jnp.ones(2, bool)), agents_opening(ts.obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple:
        mazes, alive = state
        mazes, ts = jax.vmap(self.maze.step)(jax.random.split(key), mazes, action)
        left = alive & ~ts.done
        reward = jnp.where(alive, ts.reward, 0.0)
        over = ~left.any()
        # What the dead see is not cleared: that would be work that 32 single mazes do not have.
        return (mazes, left), agents_transition(
            ts.obs, reward, alive, alive & ts.terminated, alive & ts.truncated, over
        )

    def get_level(self, state: Any) -> Any:
        return jax.vmap(self.maze.get_level)(state[0])


def program(env: Any, settings: Any) -> SeedRunner:
    model = LSTM(memory_width=64).build(env.observation_space, env.action_space)
    agent = AgentPop(PPOAgent(model, PPO(n_epochs=4, n_minibatches=4)))
    return SeedRunner(trained_with(env, agent, settings), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="updates that are timed together")
    args = parser.parse_args()
    game = LaserTag()
    rows = {"n_parallel": 32, "n_steps": 256}

    def against(n: int) -> SeedRunner:
        return program(game, SelfPlayMethod(**rows, n_opponents=n, capacity=32, every=10**6))

    programs = {
        "32 mazes": program(AMaze(), DR(**rows)),
        "16 x 2 mazes": program(Twice(), DR(n_parallel=16, n_steps=256)),
        "a random player": program(Against(game), DR(**rows)),
        "1 opponent": against(1),
        "4 opponents": against(4),
        "32 opponents": against(32),
    }
    states = {name: p.run(p.init(0), 2**30, 2)[0] for name, p in programs.items()}  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, p in programs.items():
            start = time.perf_counter()
            states[name], report = jax.block_until_ready(p.run(states[name], 2**30, args.steps))
            seconds[name].append((time.perf_counter() - start) / args.steps)
            assert np.isfinite(report.metrics["loss"]).all()

    def ratios(name: str, base: str) -> dict[str, float]:
        found = np.array(seconds[name]) / np.array(seconds[base])
        return {
            "median": round(float(np.median(found)), 3),
            "lowest": round(found.min(), 3),
            "highest": round(found.max(), 3),
        }

    result = {
        "what": "seconds of an update: 32 rows x 256 steps, LSTM 64, 4 epochs of 4 minibatches",
        "seconds": {name: round(float(np.median(x)), 4) for name, x in seconds.items()},
        "two agents / one": ratios("16 x 2 mazes", "32 mazes"),
        **{f"{n} / a random player": ratios(n, "a random player") for n in programs if "opponent" in n},
        **environment_facts(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
