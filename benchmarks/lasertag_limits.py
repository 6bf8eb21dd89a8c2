"""How many games of LaserTag can be won? Two players that do not learn, on the maps of the benchmark.

    python benchmarks/lasertag_limits.py [--n-episodes 128]

* `hunter`: knows the map and where the other one is, walks there on a shortest path, and fires. A greedy player
  who sees everything; who lies in wait may win more.
* `wanderer`: walks straight on, turns at walls and now and then, and aims only at whom it sees in its own view. What
  can be won without a plan.

Each against the random and against the scripted player. Prints a Markdown table: shares of wins and losses.
"""

import argparse
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.lasertag.dynamics import EnvState, in_sight
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.suite import BENCHMARK_MAPS, BOT, LaserTagSuite

GAME = LaserTag(max_side=13, height=13, width=13)  # as in configs/lasertag
FIRE, LEFT, RIGHT, FORWARD = (GAME.actions.index(name) for name in ("fire", "left", "right", "forward"))
STEPS = jnp.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
FAR = 9999
Player = Callable[[jax.Array, EnvState, jax.Array], jax.Array]


def turned(state: EnvState, own: jax.Array, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far ahead and to the right `gap` is, seen by the agent `own`."""
    dx, dy = direction_vector(state.facing[own])
    return gap[0] * dx + gap[1] * dy, gap[1] * dx - gap[0] * dy


def towards(ahead: jax.Array, right: jax.Array, straight: int) -> jax.Array:
    """`straight` if it lies ahead, else a turn."""
    return jnp.where((right == 0) & (ahead > 0), straight, jnp.where(right < 0, LEFT, RIGHT))


def cell(grid: jax.Array, place: jax.Array, outside: int) -> jax.Array:
    """The cell of `grid` at (x, y)."""
    height, width = grid.shape
    x, y = place
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    return jnp.where(inside, grid[jnp.clip(y, 0, height - 1), jnp.clip(x, 0, width - 1)], outside)


def distances(walls: jax.Array, goal: jax.Array) -> jax.Array:
    """i32[H, W], steps from each cell to `goal` (x, y); at least FAR where there is no way."""

    def relaxed(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        old, _ = loop
        p = jnp.pad(old, 1, constant_values=FAR)
        near = jnp.minimum(jnp.minimum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.minimum(p[1:-1, :-2], p[1:-1, 2:]))
        new = jnp.where(walls, FAR, jnp.minimum(old, near + 1))
        return new, (new != old).any()

    start = jnp.full(walls.shape, FAR).at[goal[1], goal[0]].set(0)
    return jax.lax.while_loop(lambda loop: loop[1], relaxed, (start, jnp.array(True)))[0]


def hunter(key: jax.Array, state: EnvState, own: jax.Array) -> jax.Array:
    place, other = state.position[own], state.position[1 - own]
    walls = jnp.asarray(state.level.walls)
    to_other = distances(walls, other)
    ways = jax.vmap(lambda step: cell(to_other, place + step, FAR))(STEPS)
    walks = towards(*turned(state, own, STEPS[jnp.argmin(ways)]), FORWARD)
    aims = towards(*turned(state, own, other - place), FIRE)
    return jnp.where(in_sight(walls, state.position), aims, walks)


def wanderer(key: jax.Array, state: EnvState, own: jax.Array) -> jax.Array:
    place, walls = state.position[own], jnp.asarray(state.level.walls)
    ahead, right = turned(state, own, state.position[1 - own] - place)
    view = GAME.view
    seen = (ahead >= -view.back) & (ahead <= view.front) & (jnp.abs(right) <= view.side)
    blocked = cell(walls, place + jnp.stack(direction_vector(state.facing[own])), 1)
    k_turn, k_side = jax.random.split(key)
    turns = jnp.where(jax.random.bernoulli(k_side), LEFT, RIGHT)
    walks = jnp.where(blocked.astype(bool) | jax.random.bernoulli(k_turn, 0.15), turns, FORWARD)
    return jnp.where(in_sight(walls, state.position) & seen, towards(ahead, right, FIRE), walks)


def results(player: Player, n: int) -> tuple[np.ndarray, np.ndarray]:
    """bool[maps, 2, n] each: games that the player wins and loses, against the random and the scripted player."""
    suite = LaserTagSuite(GAME, tuple(name + bot for name in BENCHMARK_MAPS for bot in ("", BOT)))
    env = suite.env

    def game(key, level):
        k_reset, k_steps = jax.random.split(key)
        state, _ = env.reset(k_reset, level)

        def one_step(loop, key):
            state, over, won, lost = loop
            k_player, k_step = jax.random.split(key)
            state, ts = env.step(k_step, state, player(k_player, state.game, state.seat))
            won |= ~over & (ts.progress > 0)
            lost |= ~over & (ts.facts["lost"] > 0)
            return (state, over | ts.terminated | ts.truncated, won, lost), None

        no = jnp.zeros((), bool)
        steps = jax.random.split(k_steps, GAME.max_steps)
        return jax.lax.scan(one_step, (state, no, no, no), steps)[0][2:]

    keys = jax.random.split(jax.random.key(1), (len(suite.names), n))
    won, lost = jax.device_get(jax.jit(jax.vmap(jax.vmap(game)))(keys, suite.sample(jax.random.key(0), n)))
    return won.reshape(-1, 2, n), lost.reshape(-1, 2, n)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-episodes", type=int, default=128, help="games on each map against each player")
    args = parser.parse_args()
    found = {player.__name__: results(player, args.n_episodes) for player in (hunter, wanderer)}
    print(
        "| map | " + " | ".join(f"{name}, against {other}" for name in found for other in ("random", "scripted")) + " |"
    )
    print("|---|" + "---|" * 2 * len(found))
    everywhere = {name: tuple(x.mean(axis=0, keepdims=True) for x in both) for name, both in found.items()}
    for rows, label in ((found, BENCHMARK_MAPS), (everywhere, ("all",))):
        for i, title in enumerate(label):
            cells = (
                f"{won[i, k].mean():.2f} / {lost[i, k].mean():.2f}" for won, lost in rows.values() for k in range(2)
            )
            print(f"| {title} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
