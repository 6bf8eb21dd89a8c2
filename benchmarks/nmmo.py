"""Speed of Neural MMO, system by system, beside the reference engine: `python benchmarks/nmmo.py`.

What is measured, on worlds of the preset `--preset` with random actions that agents may take:

* each system of a tick alone, and what is seen after it, in microseconds a world
* the whole with everybody immortal (health is filled up in every tick), as the engine's own paper measures it
* the whole with mortals: worlds end when nobody lives, and begin again on the same map
* the time to compile a tick, the time to draw a map, the bytes of a state
* with `--lives`: how long agents live who act at random, by the written forager, and by the runs of `--run`, on the 64
  held-out maps; with `--misled`, also the runs where each agent is told the task of the next seat
* with `--chunks`: a gradient of the network `tiny` in so many parts (`--ppo.n-chunks`), which take turns
* the reference engine (the package nmmo 2.1.2), where it can be imported; else the reason why it is left out

Times are seconds of the processor, all threads together, so that other load counts little; on an accelerator, seconds
of the clock. `--whole` leaves the systems and the engine out. `--out` keeps the numbers.
"""

import argparse
import dataclasses
import importlib.metadata
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts, keep

from minimax_lib.agents.ppo import PPO, Batch, PPOAgent
from minimax_lib.envs.multi_agent import BatchMultiEnv
from minimax_lib.envs.nmmo import NMMO, observation, tick
from minimax_lib.envs.nmmo.heads import masks_of, orders_of
from minimax_lib.envs.nmmo.market import shelf
from minimax_lib.envs.nmmo.neighbours import neighbours
from minimax_lib.envs.nmmo.suite import HELD_OUT, N_MAPS, NMMOSuite
from minimax_lib.envs.nmmo.tables import FULL
from minimax_lib.envs.spaces import sample_allowed
from minimax_lib.loops import on_cpu
from minimax_lib.models.nmmo import NMMOModel
from minimax_lib.playing import crowds
from minimax_lib.playing.rollout import Transition
from minimax_lib.store.loaded import load_run

Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="medium", help="medium, small, mini, mini_npc or competition")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--ticks", type=int, default=128)
    parser.add_argument("--whole", action="store_true", help="the speed of the whole alone")
    parser.add_argument("--lives", action="store_true", help="play the held-out maps, and leave the speed out")
    parser.add_argument("--task-set", default="survive", help="the list of tasks")
    parser.add_argument("--horizon", type=int, default=512, help="of --lives")
    parser.add_argument("--run", nargs="*", default=[], help="runs, or trained agents by name, for --lives")
    parser.add_argument("--misled", action="store_true", help="of --lives: tell each agent another's task as well")
    parser.add_argument("--chunks", type=int, nargs="+", default=[], help="parts of a gradient; leaves the speed out")
    parser.add_argument("--out", type=Path, help="file of results (JSON)")
    args = parser.parse_args(argv)
    if args.misled and not args.lives:
        parser.error("--misled is of --lives")
    env = NMMO(preset=args.preset, task_set=args.task_set)
    result: Row = {"facts": environment_facts(), "preset": args.preset}
    if args.lives:
        result["lives"] = lives_table(dataclasses.replace(env, max_steps=args.horizon), args.run, args.misled)
    elif args.chunks:
        result["microseconds_a_row"] = gradients(env, args.chunks)
    else:
        result |= speeds(env, args.worlds, args.ticks, args.whole)
        if not args.whole:
            result["engine"] = engine_speed()
            print(f"the engine: {result['engine']}")
    keep(args.out, result)
    return 0


# ------------------------------------------------------------------------------------------------------------- speed


def now() -> float:
    """Seconds of the processor; where it waits for an accelerator, seconds of the clock."""
    return time.process_time() if on_cpu() else time.perf_counter()


def seconds_of(work: Callable[[], Any], n: int = 5) -> float:
    """Seconds for one call, the least of `n`. What is compiled has been compiled before."""
    jax.block_until_ready(work())
    taken = []
    for _ in range(n):
        begun = now()
        jax.block_until_ready(work())
        taken.append(now() - begun)
    return min(taken)


def speeds(env: NMMO, n_worlds: int, n_ticks: int, whole_alone: bool = False) -> Row:
    """Prints and returns all figures of a preset; `whole_alone`: without those of single systems."""
    draw = jax.jit(env.sample_level)
    level_seconds = seconds_of(lambda: draw(jax.random.key(0)), 3)
    levels = jax.tree.map(lambda *xs: jnp.stack(xs), *(draw(jax.random.key(i)) for i in range(n_worlds)))
    keys = jax.random.split(jax.random.key(1), n_worlds)
    states, ts = jax.jit(jax.vmap(env.reset))(keys, levels)
    bytes_of_state = sum(x.nbytes for x in jax.tree.leaves(states) if hasattr(x, "nbytes")) / n_worlds
    step = jax.jit(jax.vmap(env.step))
    # Everything is an argument: what a program closes over is a constant, and the compiler works on it for a minute.
    actions = jax.jit(lambda key, obs: random_actions(env, key, obs))(jax.random.key(2), ts.obs)
    begun = time.process_time()
    compiled = step.lower(keys, states, actions).compile()
    compile_seconds = time.process_time() - begun
    # After some ticks, agents and NPCs are where they usually are.
    for i in range(20):
        states, ts = compiled(jax.random.split(jax.random.key(i), n_worlds), states, actions)
    by_system = {} if whole_alone else systems(env, states, keys, actions, ts.obs)
    whole = {name: speed_of(env, levels, n_ticks, immortal=name == "immortal") for name in ("immortal", "mortal")}
    found = {
        "compile_seconds": round(compile_seconds, 1),
        "level_milliseconds": round(1000 * level_seconds, 1),
        "kilobytes_of_a_state": round(bytes_of_state / 1000),
        "microseconds_a_world": by_system,
        "agent_steps_a_second": whole,
    }
    for name, value in found.items():
        print(f"{name}: {value}")
    return found


def random_actions(env: NMMO, key: jax.Array, obs: Any) -> Any:
    """Actions [W, P] that agents may take, at random; `obs` is [W, P, ...]."""
    keys = jax.random.split(key, jax.tree.leaves(obs)[0].shape[:2])
    return jax.vmap(jax.vmap(lambda key, obs: sample_allowed(env.action_space, key, obs)))(keys, obs)


def systems(env: NMMO, states: Any, keys: jax.Array, actions: Any, obs: Any) -> dict[str, float]:
    """Microseconds a world of each system, on the same worlds."""
    found, n = {}, len(keys)
    for name, part in parts_of(env).items():
        run = jax.jit(jax.vmap(part))
        found[name] = round(1e6 * seconds_of(lambda run=run: run(keys, states, actions), 20) / n, 1)
    at_random = jax.jit(lambda key, obs: random_actions(env, key, obs))
    found["random actions"] = round(1e6 * seconds_of(lambda: at_random(keys[0], obs), 20) / n, 1)
    return found


def parts_of(env: NMMO) -> dict[str, Callable[[jax.Array, Any, Any], Any]]:
    """The systems by name, each a function of (key, state, action) of one world."""
    rules = env.rules

    def chances(key: jax.Array) -> tick.Chances:
        return tick.chances_of(key, env.n_players, env.n_npcs, env.items)

    def plans(key: jax.Array, state: Any) -> Any:
        return tick.planned(chances(key).npcs, state)

    def near(state: Any) -> jax.Array:
        position = jnp.concatenate([state.players.position, state.npcs.position])
        alive = jnp.concatenate([state.players.alive, state.npcs.alive])
        return neighbours(position, alive, env.n_players, env.n_neighbours)

    def seen(state: Any) -> jax.Array:
        return observation.entities(state)

    def fights(key: jax.Array, state: Any, action: Any) -> Any:
        bits = chances(key)
        return tick.fight((bits.goods, bits.drops), state, orders(state, action), ready(key, state), rules)

    def ready(key: jax.Array, state: Any) -> Any:
        npcs, none = state.npcs, jnp.zeros_like(state.npcs.target)
        return tick.Plans(target=npcs.target, attacked=npcs.target, move=jnp.stack([none, none], axis=1))

    def walks(key: jax.Array, state: Any, action: Any) -> Any:
        return tick.walk(state, orders(state, action).move, ready(key, state), rules)

    def orders(state: Any, action: Any) -> Any:
        return orders_of(state, action, rules)

    parts: dict[str, Callable[[jax.Array, Any, Any], Any]] = {
        "chance": lambda key, state, action: chances(key),
        "survival and harvest": lambda key, state, action: tick.upkeep(chances(key).harvest, state, rules),
        "moves": walks,
        "deaths and new NPCs": lambda key, state, action: tick.close(chances(key).candidates, state, rules),
        "neighbours": lambda key, state, action: near(state),
        "masks": lambda key, state, action: masks_of(state, seen(state), rules, env.may_hold_fire),
        "observation": lambda key, state, action: env.observe(state),
        "tasks": lambda key, state, action: env.task_values(state),
        "the whole": env.step,
    }
    if env.n_npcs:
        parts["decisions of NPCs"] = lambda key, state, action: plans(key, state)
    if env.combat:
        parts["combat"] = fights
    if env.items:
        parts["use, purchases, gifts"] = lambda key, state, action: tick.deal(
            chances(key).goods, state, orders(state, action), rules
        )
    if env.market:
        parts["offers"] = lambda key, state, action: tick.offer(state, orders(state, action))
        parts["cheapest offers"] = lambda key, state, action: shelf(state.goods)
    return parts


def speed_of(env: NMMO, levels: Any, n_ticks: int, immortal: bool) -> Row:
    """Agent-steps a second (see `now`): of all agents, and of those that live."""
    batch = BatchMultiEnv(env)
    n_worlds = len(levels.terrain)

    @jax.jit
    def play(key: jax.Array, levels: Any) -> tuple[jax.Array, jax.Array]:
        k_reset, k_ticks = jax.random.split(key)
        state, ts = batch.reset(k_reset, levels)

        def one_tick(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, obs, checksum = loop
            k_action, k_step = jax.random.split(key)
            of_worlds = jax.tree.map(lambda x: x.reshape(n_worlds, env.n_agents, *x.shape[2:]), obs)
            actions = jax.tree.map(lambda x: x.reshape(1, -1), random_actions(env, k_action, of_worlds))
            if immortal:
                full = jnp.full_like(state.env.players.health, FULL)
                state = state.replace(env=state.env.replace(players=state.env.players.replace(health=full)))
            state, ts = batch.step_stocked(k_step, state, actions)
            # Every part of every observation is used, so that none is left out of the program.
            checksum += sum(x.astype(jnp.int32).sum() for x in jax.tree.leaves(ts.obs))
            return (state, ts.obs, checksum), ts.valid.sum()

        loop = (state, ts.obs, jnp.zeros((), jnp.int32))
        (_, _, checksum), living = jax.lax.scan(one_tick, loop, jax.random.split(k_ticks, n_ticks))
        return checksum, living.sum()

    living = int(play(jax.random.key(0), levels)[1])
    seconds = seconds_of(lambda: play(jax.random.key(0), levels), 3)
    rows = n_worlds * env.n_agents * n_ticks
    return {"all": round(rows / seconds), "living": round(living / seconds), "alive": round(living / rows, 3)}


def gradients(env: NMMO, numbers: Sequence[int], n_rows: int = 768, n_turns: int = 15) -> dict[int, float]:
    """Prints and returns the median microseconds a row for the gradient of a minibatch, cut into `numbers` of chunks.

    The minibatch has as many rows as one of `nmmo/mini_npc`: what the agents of new worlds see, and any actions.
    """
    n_worlds, key = -(-n_rows // env.n_agents), jax.random.key(0)
    levels = jax.jit(jax.vmap(env.sample_level))(jax.random.split(key, n_worlds))
    _, ts = jax.jit(jax.vmap(env.reset))(jax.random.split(key, n_worlds), levels)
    obs = jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:])[:, :n_rows], ts.obs)
    action = jax.tree.map(lambda x: x.reshape(1, -1)[:, :n_rows], random_actions(env, key, ts.obs))
    no, nothing = jnp.zeros((1, n_rows), bool), jnp.zeros((1, n_rows))
    steps = Transition(obs, action, nothing, no, nothing, nothing, no, nothing, nothing, None, nothing, {}, valid=~no)
    batch = Batch(steps, (), jax.random.normal(key, no.shape), nothing, 0.01)
    network = NMMOModel("tiny").build(env.observation_space, env.action_space)
    params, programs = network.init(key, obs, (), no), {}
    for n in numbers:
        agent = PPOAgent(network, PPO(n_chunks=n))
        agent.check_batch(n_rows, 1)
        programs[n] = jax.jit(agent.gradient).lower(params, batch).compile()
    taken: dict[int, list[float]] = {n: [] for n in numbers}
    for _ in range(n_turns):
        for n, program in programs.items():
            taken[n].append(seconds_of(lambda program=program: program(params, batch), 1))
    found = {n: round(1e6 * float(np.median(seconds)) / n_rows, 1) for n, seconds in taken.items()}
    print(f"microseconds a row by the number of chunks: {found}")
    return found


def engine_speed(n_ticks: int = 100) -> Row | str:
    """Agent-steps a second of the reference with agents that do nothing, or why it is left out."""
    try:
        importlib.metadata.version("nmmo")
    except importlib.metadata.PackageNotFoundError:
        return (
            "left out: the package nmmo is not installed (version 2.1.2 is branch 2.1 of the repository "
            "NeuralMMO/environment; on Python 3.10, `python setup.py build_ext --inplace` builds it)"
        )
    here = Path(__file__).parent.resolve()
    sys.path = [path for path in sys.path if Path(path).resolve() != here]  # this file has the name of the package
    import nmmo

    env = nmmo.Env(nmmo.config.Default())
    env.reset()
    begun, steps = time.process_time(), 0
    for _ in range(n_ticks):
        steps += len(env.agents)
        env.step({})
    return {"living": round(steps / (time.process_time() - begun))}


# ------------------------------------------------------------------------------------------------------------- lives


class Misled(NMMO):
    """Each agent is told the task of the next seat, and paid for its own. An agent that heeds its task gets worse."""

    def observe(self, state: Any) -> Any:
        return super().observe(state.replace(level=self.with_tasks(state.level, jnp.roll(state.level.tasks, 1))))


def misled(env: NMMO) -> Misled:
    """The same world, with false tasks."""
    return Misled(**{field.name: getattr(env, field.name) for field in dataclasses.fields(env)})


def lives_table(env: NMMO, runs: Sequence[str], with_false_tasks: bool = False) -> list[Row]:
    """Prints and returns how agents live on the held-out maps, by player."""
    suite = NMMOSuite(env, (HELD_OUT,))
    levels = jax.tree.map(lambda x: x[0], jax.jit(lambda: suite.sample(jax.random.key(0), N_MAPS[HELD_OUT]))())
    players = [("random", crowds.by_chance(suite.env), ()), ("forager", crowds.by_rule(suite.env), ())]
    for name in runs:
        loaded = load_run(name)
        for told, world in [("", suite.env)] + with_false_tasks * [(" misled", misled(suite.env))]:
            for seed in loaded.seeds:
                own = loaded.of(seed)
                players.append((f"{name} seed {seed}{told}", crowds.trained(world, own.agent), own.params))
    rows = []
    for name, crowd, params in players:
        lives = jax.device_get(jax.jit(crowd.lives)(jax.random.key(3), params, levels))
        rows.append({"player": name} | measures(lives) | completed(env, np.asarray(levels.tasks), lives.solved))
        print(rows[-1], flush=True)
    return rows


def measures(lives: Any) -> Row:
    """Of lives [R, G]: their mean and median, how they end, and what is done in a hundred ticks."""
    ticks = lives.lengths.sum()
    found = {"mean_life": lives.lengths.mean(), "median_life": np.median(lives.lengths)}
    found["between_maps"] = lives.lengths.mean(axis=1).std(ddof=1) / len(lives.lengths) ** 0.5
    ends = {name: x.mean() for name, x in lives.facts.items() if name.startswith(("died", "killed"))}
    # A life has one end. What is solved is another thing where the task is not to survive.
    found |= {"to_the_end": 1 - sum(ends.values())} | ends
    found |= {f"{name}_in_100": 100 * lives.facts[name].sum() / ticks for name in ("meals", "drinks", "harvests")}
    found |= {name: lives.facts[name].mean() for name in ("hits", "kills", "levels_gained") if name in lives.facts}
    return {name: round(float(value), 3) for name, value in found.items()}


def completed(env: NMMO, tasks: np.ndarray, solved: np.ndarray) -> Row:
    """By task, the share of the lives [R, G] that completed it, where there are several."""
    of_task = {env.task_name(task): solved[tasks == task] for task in range(env.n_tasks)}
    return {f"completed {name}": round(float(x.mean()), 3) for name, x in of_task.items() if x.size and env.n_tasks > 1}


if __name__ == "__main__":
    raise SystemExit(main())
