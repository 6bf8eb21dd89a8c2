"""Times one library of grid worlds on command of grid_worlds.py: ours, minigrid, navix or xland-minigrid.

    python time_grid_worlds.py LIBRARY

A program is called LAYOUT/WHAT. WHAT is one of

* fresh_level: a random policy; every episode begins on a new level
* same_level: every episode begins on the level of the one before
* occluded: as fresh_level, but walls and shut doors hide what is behind them, as in MiniGrid
* generate: levels alone

All see 7 x 7 cells. Each row starts at a random time of its first episode, as in a long run. Every observation goes
into a checksum, so that none is optimised away. Imports only what its library needs.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import turns

N_ACTIONS = 32  # different actions of each row, over and over
MOVES = ("fresh_level", "same_level", "occluded")
# Layout: the name in MiniGrid, in navix, in xland-minigrid; the time limit.
LAYOUTS: dict[str, tuple[str, str, str, int]] = {
    "Empty-8x8": ("MiniGrid-Empty-8x8-v0", "Navix-Empty-Random-8x8-v0", "MiniGrid-EmptyRandom-8x8", 256),
    "DoorKey-8x8": ("MiniGrid-DoorKey-8x8-v0", "Navix-DoorKey-Random-8x8-v0", "MiniGrid-DoorKey-8x8", 640),
    "DoorKey-16x16": ("MiniGrid-DoorKey-16x16-v0", "Navix-DoorKey-Random-16x16-v0", "MiniGrid-DoorKey-16x16", 2560),
    "SimpleCrossing-S9N2": ("MiniGrid-SimpleCrossingS9N2-v0", "Navix-SimpleCrossingS9N2-v0", "", 324),
    "LockedRoom": ("MiniGrid-LockedRoom-v0", "", "MiniGrid-LockedRoom", 190),
    "MultiRoom-N4-S5": ("MiniGrid-MultiRoom-N4-S5-v1", "", "", 80),
}
Pair = tuple[Any, Any]


def random_actions(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, 7, (N_ACTIONS, n)), jnp.int32)


def scanned(step: Callable[..., tuple], start: Callable[..., Pair], args: argparse.Namespace) -> Callable[..., Any]:
    """Jitted: key -> (checksum, episodes that ended). `start(key)` gives (state, obs), `step` also which rows ended."""
    actions = random_actions(args.n_envs)

    def run(key: jax.Array) -> tuple[Any, jax.Array]:
        state, obs = start(key)

        def one(loop: tuple, t: jax.Array) -> tuple[tuple, jax.Array]:
            state, obs, done = step(loop[0], actions[t % N_ACTIONS])
            return (state, jax.tree.map(jnp.bitwise_xor, loop[1], obs)), done.sum(dtype=jnp.int32)

        (_, checksum), ended = jax.lax.scan(one, (state, obs), jnp.arange(args.env_steps))
        return checksum, ended.sum()

    return jax.jit(run)


class Played:
    """A program of a library in JAX: all of it is one call."""

    def __init__(self, run: Callable[..., tuple]):
        self.run = run

    def __call__(self) -> str:
        _, ended = jax.block_until_ready(self.run(jax.random.key(0)))
        assert int(ended) > 0, "no episode ended: this measures nothing"
        return "run"


class Generated:
    """`n_levels` levels of a library in JAX in one call, every array of them in a checksum."""

    def __init__(self, draw: Callable[[jax.Array], Any], args: argparse.Namespace):
        def checksum(key: jax.Array) -> Any:
            return jax.tree.map(lambda x: x.sum(), jax.vmap(draw)(jax.random.split(key, args.n_levels)))

        self.run = jax.jit(checksum)

    def __call__(self) -> str:
        jax.block_until_ready(self.run(jax.random.key(0)))
        return "run"


def ours(layout: str, what: str, args: argparse.Namespace) -> turns.Step:
    from minimax_lib.envs.batch import BatchEnv
    from minimax_lib.envs.grid import GridWorld
    from minimax_lib.envs.grid.generators.registry import FAMILIES
    from minimax_lib.envs.restarts import FreshLevels, SameLevel
    from minimax_lib.playing.rollout import scan_restocked

    family = {
        "Empty-8x8": lambda: FAMILIES["empty_room"](),
        "DoorKey-8x8": lambda: FAMILIES["door_key"](8),
        "DoorKey-16x16": lambda: FAMILIES["door_key"](16),
        "SimpleCrossing-S9N2": lambda: FAMILIES["simple_crossing"](9, 2),
        "LockedRoom": lambda: FAMILIES["locked_room"](),
        "MultiRoom-N4-S5": lambda: FAMILIES["multi_room_n4_s5"](),
    }[layout]()
    env = GridWorld(family, see_carrying=False, see_target=False, see_through_walls=what != "occluded")
    if what == "generate":
        return Generated(env.sample_level, args)
    batch = BatchEnv(env, restart=SameLevel() if what == "same_level" else FreshLevels(env.sample_level))
    actions = random_actions(args.n_envs)

    def run(key: jax.Array) -> tuple[Any, jax.Array]:
        k_levels, k_reset, k_time, k_steps = jax.random.split(key, 4)
        state, ts = batch.reset(k_reset, jax.vmap(env.sample_level)(jax.random.split(k_levels, args.n_envs)))
        time = jax.random.randint(k_time, (args.n_envs,), 0, family.max_steps)
        state = state.replace(env=state.env.replace(time=time))

        def one(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, t, checksum = loop
            state, ts = batch.step_stocked(key, state, actions[None, t % N_ACTIONS])
            checksum = jax.tree.map(jnp.bitwise_xor, checksum, ts.obs)
            return (state, t + 1, checksum), ts.done.sum(dtype=jnp.int32)

        loop = (state, jnp.zeros((), jnp.int32), ts.obs)
        (_, _, checksum), ended = scan_restocked(batch, one, loop, jax.random.split(k_steps, args.env_steps))
        return checksum, ended.sum()

    return Played(jax.jit(run))


def kept_level(done: jax.Array, first: Any, stepped: Any) -> Any:
    """The states that go on, and the first states again where an episode ended."""
    return jax.tree.map(lambda x, y: jnp.where(done.reshape(-1, *(1,) * (x.ndim - 1)), x, y), first, stepped)


def navix(layout: str, what: str, args: argparse.Namespace) -> turns.Step:
    """Its own step resets onto a new level. The same level is our selection round the step without a reset."""
    import navix

    _, name, _, limit = LAYOUTS[layout]
    env = navix.make(name, max_steps=limit, observation_fn=navix.observations.symbolic_first_person)
    if what == "generate":
        # Its cache of pictures, which no observation here needs, is no part of a level.
        return Generated(lambda key: (lambda s: (s.grid, s.entities))(env.reset(key).state), args)
    step = jax.vmap(env._step if what == "same_level" else env.step)

    def start(key: jax.Array) -> Pair:
        k_reset, k_time = jax.random.split(key)
        first = jax.vmap(env.reset)(jax.random.split(k_reset, args.n_envs))
        begun = first.replace(t=jax.random.randint(k_time, (args.n_envs,), 0, limit))
        return (begun, first if what == "same_level" else ()), first.observation

    def stepped(state: Pair, actions: jax.Array) -> tuple:
        ts, first = state
        ts = step(ts, actions)
        done = ts.step_type > 0
        return (kept_level(done, first, ts) if what == "same_level" else ts, first), ts.observation, done

    return Played(scanned(stepped, start, args))


def xland(layout: str, what: str, args: argparse.Namespace) -> turns.Step:
    """Its wrapper resets onto a new level. The same level is our selection round the bare step."""
    import xminigrid
    from xminigrid.wrappers import GymAutoResetWrapper

    _, _, name, limit = LAYOUTS[layout]
    env, params = xminigrid.make(name, max_steps=limit)
    if what == "generate":
        return Generated(lambda key: (lambda s: (s.grid, s.agent))(env.reset(params, key).state), args)
    env = env if what == "same_level" else GymAutoResetWrapper(env)
    reset, step = jax.vmap(env.reset, (None, 0)), jax.vmap(env.step, (None, 0, 0))
    # Its actions are forward, right, left, pick up, put down and toggle. It has no `done`.
    own = jnp.array([2, 1, 0, 3, 4, 5, 0], jnp.int32)

    def start(key: jax.Array) -> Pair:
        k_reset, k_time = jax.random.split(key)
        first = reset(params, jax.random.split(k_reset, args.n_envs))
        time = jax.random.randint(k_time, (args.n_envs,), 0, limit)
        begun = first.replace(state=first.state.replace(step_num=time))
        return (begun, first if what == "same_level" else ()), first.observation

    def stepped(state: Pair, actions: jax.Array) -> tuple:
        ts, first = state
        ts = step(params, ts, own[actions])
        done = ts.step_type == 2
        return (kept_level(done, first, ts) if what == "same_level" else ts, first), ts.observation, done

    return Played(scanned(stepped, start, args))


class MiniGrid:
    """The real one in gymnasium's vector environment, in one process."""

    def __init__(self, layout: str, what: str, args: argparse.Namespace):
        import gymnasium
        import minigrid  # noqa: F401  registers its environments
        from minigrid.wrappers import ImgObsWrapper, ReseedWrapper

        name, _, _, _ = LAYOUTS[layout]

        def seeing(env: Any) -> Any:
            # Not an argument: some of the classes set it themselves.
            env.unwrapped.see_through_walls = what != "occluded"
            return env

        wrappers = [seeing, ImgObsWrapper, *([ReseedWrapper] if what == "same_level" else [])]
        settings = {"agent_start_pos": None} if layout == "Empty-8x8" else {}
        n = args.minigrid_envs
        self.n_steps = args.minigrid_steps // n
        self.generates = args.minigrid_levels if what == "generate" else 0
        if self.generates:
            self.env = gymnasium.make(name, **settings)
        else:
            self.env = gymnasium.make_vec(name, n, "sync", wrappers=wrappers, **settings)
        self.actions = np.random.default_rng(0).integers(0, 7, (self.n_steps, n))
        self.env.reset(seed=0)

    def __call__(self) -> str:
        if self.generates:
            for _ in range(self.generates):
                self.env.reset()
            return "run"
        checksum = 0
        for actions in self.actions:
            obs, *_ = self.env.step(actions)
            checksum ^= int(obs[0, 0, 0, 0])
        return "run"


LIBRARIES: dict[str, Callable[..., turns.Step]] = {
    "ours": ours,
    "navix": navix,
    "xland-minigrid": xland,
    "minigrid": MiniGrid,
}
COLUMN = {"navix": 1, "xland-minigrid": 2}


def programs(library: str) -> dict[str, turns.Maker]:
    """All that the library has."""
    layouts = [name for name, known in LAYOUTS.items() if known[COLUMN.get(library, 0)]]
    seen = ("fresh_level", "same_level") if library in COLUMN else MOVES
    return {
        f"{layout}/{what}": partial(LIBRARIES[library], layout, what)
        for layout in layouts
        for what in (*seen, "generate")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--serve", action="store_true", help="take commands from standard input, as side_by_side.py")
    parser.add_argument("--n-envs", type=int, default=1024, help="rows, in JAX")
    parser.add_argument("--env-steps", type=int, default=256, help="steps of each of them")
    parser.add_argument("--n-levels", type=int, default=4096, help="levels of a run, in JAX")
    parser.add_argument("--minigrid-envs", type=int, default=16, help="rows of MiniGrid in one process")
    parser.add_argument("--minigrid-steps", type=int, default=8000, help="steps of all of MiniGrid's rows together")
    parser.add_argument("--minigrid-levels", type=int, default=300, help="levels of a run of MiniGrid")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not come between the answers
    sys.argv = sys.argv[:1]
    turns.Server(programs(args.library), args).serve(out)


if __name__ == "__main__":
    main()
