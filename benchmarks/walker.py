"""The walker beside Gymnasium's, which Box2D moves: `python benchmarks/walker.py speed`, `transfer` or `film`.

speed: steps a second of the processor, with lidar, resets and random actions, of both in one run, in turns; the seconds
of the processor that it takes to compile a step and a reset; and how many steps cost as much as a reset. Times are of
all threads together, so that other load counts little.

transfer: an agent that was trained here walks in Gymnasium's BipedalWalker-v3 and BipedalWalkerHardcore-v3, without
further training, and in their copies here, with each number of `--rounds`. It needs the extra box2d.

film: the agent here and in one of Gymnasium's worlds, side by side, as a GIF (`--run FOLDER --world WORLD --out FILE`).
It shows the first episode of each that the agent solves.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts, keep

from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.drawing import shrunk
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.restarts import FreshLevels
from minimax_lib.envs.walker import BipedalWalker
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.pictures import films
from minimax_lib.playing.players import mode, sample
from minimax_lib.store.loaded import load_run

Row = dict[str, Any]
HARDEST = "BipedalWalkerHardcore-v3"
WORLDS = {"BipedalWalker-v3": "Basic", HARDEST: "Hardcore"}  # Gymnasium's, and what they are here
SOLVED = 230.0
MOST_TRIES = 100  # episodes, until one is solved


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "transfer", "film"))
    parser.add_argument("--rows", type=int, default=256, help="walkers side by side, for speed")
    parser.add_argument("--steps", type=int, default=200, help="of each walker in a turn, for speed")
    parser.add_argument("--rounds", type=int, nargs="+", default=[BipedalWalker.n_rounds], help="rounds of our solver")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--run", nargs="*", default=[], help="folders of runs, or trained agents by name, for transfer")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--sample", action="store_true", help="draw actions from the policy, as dcd does")
    parser.add_argument("--seed", type=int, default=0, help="of the worlds, for transfer")
    parser.add_argument("--world", choices=tuple(WORLDS), default="BipedalWalker-v3", help="of a film")
    parser.add_argument("--film-steps", type=int, default=400, help="that a film shows")
    parser.add_argument("--every", type=int, default=4, help="steps between two pictures of a film")
    parser.add_argument("--out", type=Path, help="file of results (JSON)")
    args = parser.parse_args(argv)
    if args.what != "speed" and not args.run:
        parser.error(f"{args.what} needs --run FOLDER")
    if args.what == "film":
        print(film(args.run[0], args.out or Path("walker.gif"), args.world, args.film_steps, args.every))
        return 0
    result: Row = {"facts": environment_facts()}
    if args.what == "speed":
        result["speed"] = speed(args)
    else:
        how = args.episodes, args.seed, args.sample
        result["transfer"] = [walked(name, world, *how) for name in args.run for world in WORLDS]
        result["here"] = [
            walked_here(name, world, rounds, *how) for name in args.run for world in WORLDS for rounds in args.rounds
        ]
    keep(args.out, result)
    return 0


def speed(args: argparse.Namespace) -> list[Row]:
    """Rows of a table, printed too."""
    ours = {rounds: Ours(BipedalWalker(n_rounds=rounds), args.rows, args.steps) for rounds in args.rounds}
    theirs = box2d_turn(500)  # the first steps of a process are slower
    times: dict[Any, list[float]] = {rounds: [] for rounds in ours} | {"box2d": []}
    for _ in range(args.turns):
        for rounds, program in ours.items():
            times[rounds].append(program.turn())
        times["box2d"].append(box2d_turn(3000))
    theirs = float(np.median(times["box2d"]))
    rows = [{"world": "Gymnasium, Box2D", "steps_per_cpu_second": round(theirs)}]
    for rounds, program in ours.items():
        each = float(np.median(times[rounds]))
        rows.append(
            {
                "world": f"ours, {rounds} rounds, {args.rows} walkers",
                "steps_per_cpu_second": round(each),
                "times": round(each / theirs, 1),
                "compile_cpu_seconds": round(program.compile_seconds, 1),
                "a_reset_in_steps": round(program.reset_seconds() * each, 1),
            }
        )
    for row in rows:
        print(row)
    return rows


class Ours:
    """A compiled program that steps walkers, with fresh levels after each episode."""

    def __init__(self, env: BipedalWalker, n_rows: int, n_steps: int):
        self.n, self.n_rows = n_rows * n_steps, n_rows
        batch = BatchEnv(env, restart=FreshLevels(env.sample_level))

        def begun(key: jax.Array) -> Any:
            return batch.reset(key, jax.vmap(env.sample_level)(jax.random.split(key, n_rows)))[0]

        def stepped(key: jax.Array, state: Any) -> Any:
            def one(state: Any, key: jax.Array) -> Any:
                k_action, k_step = jax.random.split(key)
                action = jax.random.uniform(k_action, (1, n_rows, 4), jnp.float32, -1.0, 1.0)
                state, ts = batch.step(k_step, state, action)
                return state, (ts.obs.sum(axis=(0, 1)), ts.reward.sum())  # all is used, so nothing is left out

            return jax.lax.scan(one, state, jax.random.split(key, n_steps))

        before = time.process_time()
        self.begin = jax.jit(begun).lower(jax.random.key(0)).compile()
        self.state = self.begin(jax.random.key(0))
        self.program = jax.jit(stepped).lower(jax.random.key(1), self.state).compile()
        self.compile_seconds = time.process_time() - before
        self.state, _ = jax.block_until_ready(self.program(jax.random.key(1), self.state))

    def reset_seconds(self, n: int = 10) -> float:
        """Of the processor, for one walker: a level is drawn, its ground is built, and the walker stands on it."""
        before = time.process_time()
        for i in range(n):
            jax.block_until_ready(self.begin(jax.random.key(i)))
        return (time.process_time() - before) / n / self.n_rows

    def turn(self) -> float:
        """Steps a second of the processor."""
        before = time.process_time()
        self.state, _ = jax.block_until_ready(self.program(jax.random.key(2), self.state))
        return self.n / (time.process_time() - before)


def box2d_turn(n_steps: int) -> float:
    """The same of Gymnasium's walker on its hardest ground."""
    env = gymnasium.make(HARDEST).unwrapped
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (n_steps, 4)).astype(np.float32)
    env.reset(seed=0)
    before = time.process_time()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return n_steps / (time.process_time() - before)


def walked(name: str, world: str, n_episodes: int, seed: int, draws: bool) -> Row:
    """What the agent of a run returns in one of Gymnasium's worlds; printed too."""
    run = load_run(name)
    envs = [gymnasium.make(world) for _ in range(n_episodes)]
    limit = envs[0].spec.max_episode_steps
    obs = np.stack([env.reset(seed=seed * n_episodes + i)[0] for i, env in enumerate(envs)])
    returns, lengths = np.zeros(n_episodes), np.zeros(n_episodes, int)
    alive, finished, carry = np.ones(n_episodes, bool), np.zeros(n_episodes, bool), None
    for t in range(limit):
        key = jax.random.key(seed * limit + t) if draws else None
        action, carry = run.act(obs, carry, key=key)
        for i in np.flatnonzero(alive):
            obs[i], reward, terminated, truncated, _ = envs[i].step(np.clip(np.asarray(action[i]), -1, 1))
            returns[i] += reward
            lengths[i] += 1
            alive[i] = not (terminated or truncated)
            finished[i] = terminated and reward > -100
        if not alive.any():
            break
    row = row_of(name, world, returns, finished, lengths)
    print(row, flush=True)
    return row


def walked_here(name: str, world: str, rounds: int, n_episodes: int, seed: int, draws: bool) -> Row:
    """The same in our copy of that world, with so many rounds of the solver."""
    run = load_run(name)
    held_out = make_held_out(dataclasses.replace(run.env, n_rounds=rounds), (WORLDS[world],))
    runner = EvalRunner(held_out, run.agent, n_episodes, sample if draws else mode)
    found = jax.device_get(jax.jit(runner.evaluate)(jax.random.key(seed), run.params))
    here = f"{WORLDS[world]} here, {rounds} rounds"
    row = row_of(name, here, found.returns[0], found.facts["finish"][0], found.lengths[0])
    print(row, flush=True)
    return row


def row_of(name: str, world: str, returns: np.ndarray, finished: np.ndarray, lengths: np.ndarray) -> Row:
    """What is told of episodes [E]."""
    return {
        "run": name,
        "world": world,
        "episodes": len(returns),
        "return": round(float(returns.mean()), 1),
        "standard_error": round(float(returns.std() / np.sqrt(len(returns))), 1),
        "least": round(float(returns.min()), 1),
        "solved": round(float((returns > SOLVED).mean()), 3),
        "finished": round(float(finished.mean()), 3),
        "steps": round(float(lengths.mean()), 1),
    }


def film(name: str, file: Path, world: str, n_steps: int, every: int) -> Path:
    """Writes the first steps of an agent here and in Gymnasium's world, side by side, of episodes that it solves."""
    run = load_run(name)
    keys = (jax.random.key(i) for i in range(MOST_TRIES))
    played = (run.play(WORLDS[world], key, greedy=True) for key in keys)
    solved = next(episode for episode in played if episode.episode_return > SOLVED)
    here = films.film([solved], scale=1.0)[: n_steps + 1 : every]
    env = gymnasium.make(world, render_mode="rgb_array")
    there = next(frames for frames in (_filmed(run, env, i, n_steps, every) for i in range(MOST_TRIES)) if frames)
    texts = ["here, in JAX", "in Gymnasium, in Box2D: the same agent"]
    there = [shrunk(frame, here[0].shape[1]) for frame in there]
    frames = [films.arranged([one, other], texts, 2, 16) for one, other in zip(here, there, strict=False)]
    return films.save_film(frames, file, fps=50 / every)


def _filmed(run: Any, env: Any, seed: int, n_steps: int, every: int) -> list[np.ndarray]:
    """Frames of an episode in Gymnasium's world; none of one that the agent does not solve."""
    obs, carry, total, frames, over, t = env.reset(seed=seed)[0], None, 0.0, [], False, 0
    while not over:
        if t % every == 0 and t <= n_steps:
            frames.append(np.asarray(env.render()))
        action, carry = run.act(obs[None], carry)
        obs, reward, terminated, truncated, _ = env.step(np.clip(np.asarray(action[0]), -1, 1))
        total, over, t = total + reward, terminated or truncated, t + 1
    return frames if total > SOLVED else []


if __name__ == "__main__":
    raise SystemExit(main())
