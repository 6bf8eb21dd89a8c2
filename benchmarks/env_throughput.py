"""Steps per second of a random policy in AMaze, beside the real MiniGrid: `python benchmarks/env_throughput.py`.

What is measured:

* one jitted scan of `BatchEnv.step_stocked` with observations, at several numbers of environments and in the three
  restart modes. The first reset and the first stock of fresh levels are part of it.
* a large grid, and a batch of held-out mazes
* MiniGrid on the same task, alone in a plain loop and in gymnasium's vectoriser

Random actions are drawn ahead for both sides, so that no random number generator is measured. With `--devices N`, N
devices (cores, if there is no accelerator) divide the environments. Every pixel of every observation goes into a
checksum, so that none is optimised away. Every run must end episodes. Times are the best and the median of several
runs. Other load on the machine only makes them longer.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts, keep

from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze import AMaze, ood
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.restarts import FreshLevels, NoRestart, SameLevel
from minimax_lib.playing.rollout import scan_restocked
from minimax_lib.runners.hosts import make_devices_of_cores

SIZES = (1, 32, 256, 1024, 4096, 65536)
RESTARTS: dict[str, Callable[[Environment], Any]] = {
    "same level": lambda env: SameLevel(),
    "fresh level": lambda env: FreshLevels(env.sample_level),
    "none": lambda env: NoRestart(),
}
N_ACTIONS = 32  # different actions of each environment, which are repeated
LEAST_STEPS = 256  # longer than an episode, so that every environment restarts


def steps_for(n_envs: int, total: int) -> int:
    """Steps of one run: about `total` over all environments, a multiple of `N_ACTIONS`."""
    return max(LEAST_STEPS, min(total // n_envs, 100_000)) // N_ACTIONS * N_ACTIONS


def random_run(batch: BatchEnv, n_steps: int, key: jax.Array, levels: Any, actions: jax.Array) -> tuple:
    """(checksum of all observations, number of episodes that ended)."""
    k_reset, k_steps = jax.random.split(key)
    state, ts = batch.reset(k_reset, levels)

    def one_step(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        state, t, checksum = loop
        state, ts = batch.step_stocked(key, state, actions[t % N_ACTIONS])
        checksum = jax.tree.map(jnp.bitwise_xor, checksum, ts.obs)
        return (state, t + 1, checksum), ts.done.sum(dtype=jnp.int32)

    loop = (state, jnp.zeros((), jnp.int32), ts.obs)
    (_, _, checksum), ended = scan_restocked(batch, one_step, loop, jax.random.split(k_steps, n_steps))
    return checksum, ended.sum()


def compiled_run(batch: BatchEnv, n_steps: int, n_devices: int = 1) -> Callable[..., tuple]:
    """`random_run` as a jitted function of (key, levels, actions). Devices divide the environments."""
    if n_devices == 1:
        return jax.jit(partial(random_run, batch, n_steps))

    def on_one_device(keys: jax.Array, levels: Any, actions: jax.Array) -> tuple:
        checksum, ended = random_run(batch, n_steps, keys[0], levels, actions)
        return checksum, ended[None]

    mesh = jax.make_mesh((n_devices,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec(None, "device")
    parts, part_actions = jax.sharding.PartitionSpec("device"), jax.sharding.PartitionSpec(None, None, "device")
    specs: Any = {"in_specs": (parts, parts, part_actions), "out_specs": (rows, parts)}
    spread = jax.shard_map(on_one_device, mesh=mesh, check_vma=False, **specs)

    def run(key: jax.Array, levels: Any, actions: jax.Array) -> tuple:
        checksum, ended = spread(jax.random.split(key, n_devices), levels, actions)
        return checksum, ended.sum()

    return jax.jit(run)


def seconds_of(run: Callable[[], Any], repeats: int) -> list[float]:
    """Wall-clock seconds of runs. The first run, which compiles, is left out."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return times


def measure(env: Environment, restart: str, levels: Any, n_steps: int, options: argparse.Namespace) -> dict:
    """Throughput on `levels` [n, ...], with one environment for each level."""
    n_envs = jax.tree.leaves(levels)[0].shape[0]
    batch = BatchEnv(env, restart=RESTARTS[restart](env))
    actions = jnp.asarray(np.random.default_rng(0).integers(0, 7, (N_ACTIONS, 1, n_envs)), jnp.int32)
    n_devices = options.devices if n_envs % options.devices == 0 else 1
    run = partial(compiled_run(batch, n_steps, n_devices), jax.random.key(0), levels, actions)
    ended = int(run()[1])
    assert ended > 0, "no episode ended: this measures nothing"
    return report(seconds_of(run, options.repeats), n_envs * n_steps) | {"episodes": ended, "devices": n_devices}


def report(times: list[float], n_steps: int) -> dict:
    best, median = n_steps / min(times), n_steps / statistics.median(times)
    return {"steps_per_second": round(best), "median": round(median), "steps": n_steps}


def random_levels(env: Environment, n: int) -> Any:
    return jax.jit(lambda key: jax.vmap(env.sample_level)(jax.random.split(key, n)))(jax.random.key(1))


def amaze_rows(options: argparse.Namespace) -> Iterator[dict]:
    """The published task, with all numbers of environments and in all restart modes."""
    env = AMaze()
    for n_envs in options.sizes:
        levels = random_levels(env, n_envs)
        for restart in RESTARTS:
            found = measure(env, restart, levels, steps_for(n_envs, options.steps), options)
            yield show({"what": "AMaze 13x13, 60 walls", "restart": restart, "n_envs": n_envs} | found)


def other_rows(options: argparse.Namespace) -> Iterator[dict]:
    """A large grid, a grid with shadows, and the held-out benchmark as one batch. Each has about 1024 environments."""
    large, shadows = AMaze(height=51, width=51, n_walls=900), AMaze(see_through_walls=False)
    suite = make_held_out(AMaze(), ood.BENCHMARK)
    held_out = jax.jit(lambda key: suite.sample(key, 85))(jax.random.key(2))
    held_out = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), held_out)
    cases = (
        ("AMaze 51x51, 900 walls", large, random_levels(large, 1024)),
        ("AMaze 13x13, shadow casting", shadows, random_levels(shadows, 1024)),
        ("held-out benchmark", suite.env, held_out),
    )
    for what, env, levels in cases:
        n_envs = jax.tree.leaves(levels)[0].shape[0]
        found = measure(env, "same level", levels, steps_for(n_envs, options.steps), options)
        yield show({"what": what, "restart": "same level", "n_envs": n_envs} | found)


def minigrid_maze() -> Any:
    """MiniGrid's own classes on the same task: 13 x 13, 60 walls, a view of 5 x 5, a fresh level for every episode."""
    from minigrid.core.grid import Grid
    from minigrid.core.mission import MissionSpace
    from minigrid.core.world_object import Goal, Wall
    from minigrid.minigrid_env import MiniGridEnv

    class RandomMaze(MiniGridEnv):
        def _gen_grid(self, width: int, height: int) -> None:
            self.grid = Grid(width, height)
            self.grid.wall_rect(0, 0, width, height)
            for x, y in self.np_random.integers(1, width - 1, (60, 2)):
                self.grid.set(int(x), int(y), Wall())
            self.place_obj(Goal())
            self.place_agent()

    mission = MissionSpace(mission_func=lambda: "reach the goal")
    return RandomMaze(
        mission_space=mission, width=15, height=15, max_steps=250, see_through_walls=True, agent_view_size=5
    )


def minigrid_loop(n_steps: int, actions: np.ndarray) -> int:
    """Number of episodes that ended in a plain loop over one MiniGrid."""
    env, ended = minigrid_maze(), 0
    env.reset(seed=0)
    for t in range(n_steps):
        _, _, terminated, truncated, _ = env.step(int(actions[t % len(actions)]))
        if terminated or truncated:
            ended += 1
            env.reset()
    return ended


def minigrid_vector(n_envs: int, n_steps: int, actions: np.ndarray) -> int:
    """Number of episodes that ended in gymnasium's synchronous vectoriser over `n_envs` MiniGrids."""
    import gymnasium
    from minigrid.wrappers import ImgObsWrapper

    env = gymnasium.vector.SyncVectorEnv([lambda: ImgObsWrapper(minigrid_maze())] * n_envs)
    env.reset(seed=0)
    ended = 0
    for t in range(n_steps):
        _, _, terminated, truncated, _ = env.step(actions[np.arange(t, t + n_envs) % len(actions)])
        ended += int((terminated | truncated).sum())
    env.close()
    return ended


def minigrid_rows(options: argparse.Namespace) -> Iterator[dict]:
    """Rows of the real MiniGrid; none if it is not installed."""
    try:
        minigrid_maze()
    except ImportError:
        print("minigrid is not installed: its rows are left out (pip install minigrid)", flush=True)
        return
    actions, total = np.random.default_rng(0).integers(0, 7, 4096), 20_000
    cases: list[tuple[str, int, Callable[[], int]]] = [
        ("MiniGrid, plain loop", 1, lambda: minigrid_loop(total, actions)),
        ("MiniGrid, SyncVectorEnv", 32, lambda: minigrid_vector(32, total // 32, actions)),
        ("MiniGrid, SyncVectorEnv", 256, lambda: minigrid_vector(256, 400, actions)),
    ]
    for what, n_envs, run in cases:
        assert run() > 0, "no episode ended: this measures nothing"
        n_steps = 400 * 256 if n_envs == 256 else total // n_envs * n_envs
        found = report(seconds_of(run, min(options.repeats, 2)), n_steps)
        yield show({"what": what, "restart": "fresh level", "n_envs": n_envs} | found)


def show(row: dict) -> dict:
    rate = f"{row['steps_per_second']:>13,} steps/s (median {row['median']:,})"
    print(f"{row['what']:<28} {row['restart']:<12} {row['n_envs']:>6} envs {rate}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of environments")
    parser.add_argument("--steps", type=int, default=2**20, help="environment steps of one run, approximately")
    parser.add_argument("--devices", type=int, default=1, help="devices that divide the environments, where possible")
    parser.add_argument("--repeats", type=int, default=7, help="number of runs; the best and the median are reported")
    parser.add_argument("--only-published", action="store_true", help="the published task alone, without the others")
    parser.add_argument("--out", type=Path, help="file for the results as JSON, kept up to date as they come")
    options = parser.parse_args()
    make_devices_of_cores(options.devices)
    before = environment_facts()
    kinds = (amaze_rows,) if options.only_published else (minigrid_rows, amaze_rows, other_rows)
    rows: list[dict] = []
    for row in itertools.chain.from_iterable(kind(options) for kind in kinds):
        rows.append(row)
        result = {"benchmark": "env_throughput", **before, "load_after": environment_facts()["load"], "rows": rows}
        keep(options.out, result)
    if options.out:
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
