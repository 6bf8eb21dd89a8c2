"""Training mazes of several kinds and sizes.

    minimax-train --plugins benchmarks.search.kinds --config benchmarks/search/kinds.yaml
    minimax-train --plugins benchmarks.search.kinds --config benchmarks/search/kinds.yaml --env SmallMazes

What came of it is in docs/trials.md.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from minimax_lib.envs.maze import generators, layouts
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.ood import GROUPS, MazeSuite, pad
from minimax_lib.envs.registry import register_env

# Sizes with the border. No kind has the size that it has in `validation` or in the benchmark.
STRUCTURED = (
    (0.2, generators.perfect_maze, (9, 23, 27)),
    (0.1, layouts.rooms, (9, 25)),
    (0.1, layouts.corridors, (11, 23)),
)


@dataclasses.dataclass(frozen=True)
class ManyMazes(AMaze):
    """Mazes of the quickstart, larger ones, perfect mazes, rooms and corridors, in a grid of 25 x 25 cells.

    What lies outside a maze is wall, so the agent sees no difference.
    """

    height: int = 25
    width: int = 25
    n_walls: int = 0
    max_steps: int = 500

    def kinds(self) -> list[tuple[float, Callable[[jax.Array], Level]]]:
        """(share of the levels, how one is drawn) of each kind and size."""
        found: list[tuple[float, Callable[[jax.Array], Level]]] = [
            (0.4, AMaze(13, 13, n_walls=80, only_solvable=True).sample_level),
            (0.2, AMaze(25, 25, n_walls=250, only_solvable=True).sample_level),
        ]
        for share, make, sizes in STRUCTURED:
            found += [(share / len(sizes), functools.partial(make, size=size)) for size in sizes]
        return found

    def sample_level(self, key: jax.Array) -> Level:
        """A level of a random kind."""
        return of_some_kind(key, self.kinds(), (self.height, self.width))


@dataclasses.dataclass(frozen=True)
class SmallMazes(AMaze):
    """The quickstart's mazes, and perfect mazes, corridors and rooms that fit into the same grid."""

    n_walls: int = 80
    only_solvable: bool = True
    perfect: float = 0.1
    """Share of perfect mazes."""
    corridors: float = 0.05
    """Share of corridors."""
    rooms: float = 0.05
    """Share of rooms."""

    def sample_level(self, key: jax.Array) -> Level:
        """A level of a random kind."""
        plain = 1 - self.perfect - self.corridors - self.rooms
        kinds: list[tuple[float, Callable[[jax.Array], Level]]] = [(plain, super().sample_level)]
        for share, make, sizes in (
            (self.perfect, generators.perfect_maze, (9, 15)),
            (self.corridors, layouts.corridors, (11, 15)),
            (self.rooms, layouts.rooms, (9,)),
        ):
            kinds += [(share / len(sizes), functools.partial(make, size=size)) for size in sizes]
        return of_some_kind(key, kinds, (self.height, self.width))


def of_some_kind(
    key: jax.Array, kinds: list[tuple[float, Callable[[jax.Array], Level]]], shape: tuple[int, int]
) -> Level:
    """A level of one of `kinds`, each with its share of all levels, in a grid of `shape`."""
    k_kind, k_level = jax.random.split(key)
    shares, draws = zip(*kinds, strict=True)

    def drawn(draw: Callable[[jax.Array], Level], key: jax.Array) -> Level:
        return jax.tree.map(jnp.asarray, pad(draw(key), *shape))

    kind = jax.random.choice(k_kind, len(draws), p=jnp.array(shares))
    return jax.lax.switch(kind, [functools.partial(drawn, draw) for draw in draws], k_level)


for world in (ManyMazes, SmallMazes):
    register_env(world.__name__, world, held_out=MazeSuite, groups=GROUPS)
