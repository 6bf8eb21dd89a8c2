"""Whole games between players that do not learn: each pair in both seats, on the same levels.

entrants = [Entrant("mine", Trained(agent), params), Entrant("random", RandomPlayer(env))]
found = CrossPlay(env).play(key, entrants, all_pairs(2), levels)        levels are [L, E, ...]
found.win[0, 1], found.win[1, 0]                                        f32[L] each
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.against import Against
from minimax_lib.envs.base import HeldOut, Level
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, taken
from minimax_lib.playing.episodes import WholeEpisodes
from minimax_lib.playing.players import Player
from minimax_lib.trees import mapped

N_ROWS = 8192  # games in one dispatch; bounds the memory
SEATS = 2
Pair = tuple[int, int]
Track = Callable[[Sequence[Any]], Iterable[Any]]  # iterates over a sequence, and may show its progress


@dataclasses.dataclass(frozen=True)
class GameTasks:
    """Held-out tasks that are played against bots, as levels of the game itself: a `HeldOut`."""

    against: HeldOut

    @property
    def names(self) -> tuple[str, ...]:
        return self.against.names

    @property
    def env(self) -> Any:
        env = self.against.env
        return env.game if isinstance(env, Against) else env

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        levels = self.against.sample(key, n_episodes)
        return levels.game if isinstance(self.against.env, Against) else levels


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A player with its parameters. Its name fixes its luck, together with that of the other one."""

    name: str
    player: Player
    params: Any = ()


class MatchCounts(struct.PyTreeNode):
    """The games of a pair on L levels, seen by the first of the two. All i32[L]."""

    won: jax.Array
    drawn: jax.Array
    lost: jax.Array
    steps: jax.Array  # of all games together


@dataclasses.dataclass(frozen=True)
class Match:
    """Games between two players. A game that the time limit ends is decided like any other: by the returns."""

    env: MultiAgentEnvironment
    players: tuple[Player, Player]

    def __post_init__(self) -> None:
        if self.env.n_agents != SEATS:
            raise ValueError(f"{type(self.env).__name__} has {self.env.n_agents} agents: a match needs a game for 2")

    @property
    def episodes(self) -> WholeEpisodes:
        return WholeEpisodes(self.env, self.players)

    def tally(self, key: jax.Array, params: tuple[Any, Any], levels: Level) -> MatchCounts:
        """The games on `levels` [L, E, ...]: each is played twice, once for either seat of the first player."""
        shape = jax.tree.leaves(levels)[0].shape[:2]
        rows = jax.tree.map(lambda x: jnp.tile(x.reshape(-1, *x.shape[2:]), (SEATS,) + (1,) * (x.ndim - 2)), levels)
        seat = jnp.repeat(jnp.arange(SEATS, dtype=jnp.int32), shape[0] * shape[1])
        played = self.episodes.play(key, params, rows, (seat, 1 - seat))
        own, other = taken(played.returns, seat), taken(played.returns, 1 - seat)

        def count(found: jax.Array) -> jax.Array:
            return found.reshape(SEATS, *shape).sum(axis=(0, 2), dtype=jnp.int32)

        return MatchCounts(count(own > other), count(own == other), count(own < other), count(played.lengths))


@dataclasses.dataclass(frozen=True)
class CrossTable:
    """The games between M entrants on L levels. Those of a pair were booked once: `lost` is `won` from the other side.

    All i64[M, M, L]. The diagonal is 0: nobody plays against itself.
    """

    names: tuple[str, ...]
    won: np.ndarray  # [i, j, l]: games that i has won against j on level l
    drawn: np.ndarray
    steps: np.ndarray  # of these games together

    @property
    def lost(self) -> np.ndarray:
        return self.won.swapaxes(0, 1)

    @property
    def n_games(self) -> np.ndarray:
        return self.won + self.drawn + self.lost

    @property
    def win(self) -> np.ndarray:
        """f32[M, M, L], the share of wins; NaN where there was no game. A draw is not a win."""
        return shares(self.won, self.n_games)

    @property
    def draw(self) -> np.ndarray:
        """f32[M, M, L], the share of draws."""
        return shares(self.drawn, self.n_games)

    @property
    def loss(self) -> np.ndarray:
        """f32[M, M, L], the share of losses."""
        return shares(self.lost, self.n_games)

    def of_groups(self, names: Sequence[str], group: Sequence[int | None]) -> "CrossTable":
        """The games between groups of entrants, called `names`. Entrant i is in `group[i]`; None: in no group.

        Games within a group do not count.
        """
        found = np.zeros((3, len(names), len(names), self.won.shape[2]), np.int64)
        inside = np.array([i for i, place in enumerate(group) if place is not None], np.intp)
        place = np.array([group[i] for i in inside], np.intp)
        for sums, games in zip(found, (self.won, self.drawn, self.steps), strict=True):
            np.add.at(sums, np.ix_(place, place), games[np.ix_(inside, inside)])
            sums[np.diag_indices(len(names))] = 0
        return CrossTable(tuple(names), *found)


def shares(games: np.ndarray, n_games: np.ndarray) -> np.ndarray:
    """f32, NaN where there were no games."""
    with np.errstate(invalid="ignore"):
        return (games / n_games).astype(np.float32)


class CrossPlay:
    """Plays matches between many entrants, on the host: a loop over dispatches of bounded size.

    There is one program for two kinds of players, however many entrants they have.
    """

    def __init__(self, env: MultiAgentEnvironment, n_rows: int = N_ROWS):
        self.env = env
        self.n_rows = n_rows
        self.programs: list[tuple[Match, Callable[..., MatchCounts]]] = []

    def play(
        self, key: jax.Array, entrants: Sequence[Entrant], pairs: Sequence[Pair], levels: Level, track: Track = iter
    ) -> CrossTable:
        """The games of all `pairs` (of places in `entrants`) on `levels` [L, E, ...].

        A pair's games depend on the key, on the levels and on the two names in their order, not on the other players.
        """
        for i, j in pairs:
            if i == j:
                raise ValueError(f"pair {(i, j)}: {entrants[i].name} cannot play against itself")
        n_levels, n_episodes = jax.tree.leaves(levels)[0].shape[:2]
        booked = np.zeros((3, len(entrants), len(entrants), n_levels), np.int64)
        kinds = Kinds.of(entrants)
        dispatches = [
            (both, part)
            for both, together in kinds.sorted(pairs).items()
            for part in parts(together, max(1, self.n_rows // (SEATS * n_levels * n_episodes)))
        ]
        for (a, b), part in track(dispatches):
            program = self._program(kinds.players[a], kinds.players[b])
            keys = jnp.stack([pair_key(key, entrants[i].name, entrants[j].name) for i, j in part])
            places = np.array([[kinds.place[i], kinds.place[j]] for i, j in part], np.int32)
            tallies = jax.device_get(program(keys, places, (kinds.params[a], kinds.params[b]), levels))
            for p, (i, j) in enumerate(part):  # a part may hold a pair twice, with the same games: it is booked once
                won, drawn, lost, steps = (x[p] for x in (tallies.won, tallies.drawn, tallies.lost, tallies.steps))
                booked[:, i, j] = won, drawn, steps
                booked[:, j, i] = lost, drawn, steps
        return CrossTable(tuple(entrant.name for entrant in entrants), *booked)

    def _program(self, one: Player, other: Player) -> Callable[..., MatchCounts]:
        match = Match(self.env, (one, other))
        for known, program in self.programs:
            if known == match:
                return program

        def tallies(keys: jax.Array, places: jax.Array, stacks: tuple[Any, Any], levels: Level) -> MatchCounts:
            params = tuple(jax.tree.map(lambda x, n=n: x[places[:, n]], stack) for n, stack in enumerate(stacks))
            return mapped(match.tally, in_axes=(0, 0, None), axis_name=axes.SEED)(keys, params, levels)

        self.programs.append((match, jax.jit(tallies)))
        return self.programs[-1][1]


@dataclasses.dataclass(frozen=True)
class Kinds:
    """The different players among M entrants."""

    players: tuple[Player, ...]
    params: tuple[Any, ...]  # of each of them: [N, ...], those of its entrants
    kind: tuple[int, ...]  # [M], of each entrant: which player
    place: tuple[int, ...]  # [M], and where its parameters are

    @classmethod
    def of(cls, entrants: Sequence[Entrant]) -> "Kinds":
        players: list[Player] = []
        members: list[list[Any]] = []
        kind, place = [], []
        for entrant in entrants:
            if entrant.player not in players:
                players.append(entrant.player)
                members.append([])
            kind.append(players.index(entrant.player))
            place.append(len(members[kind[-1]]))
            members[kind[-1]].append(entrant.params)
        stacks = tuple(jax.tree.map(lambda *xs: jnp.stack(xs), *found) for found in members)
        return cls(tuple(players), stacks, tuple(kind), tuple(place))

    def sorted(self, pairs: Sequence[Pair]) -> dict[Pair, list[Pair]]:
        """The pairs by the players that they are of; in each, the player that has the lower number is first."""
        found: dict[Pair, list[Pair]] = {}
        for i, j in pairs:
            i, j = (i, j) if self.kind[i] <= self.kind[j] else (j, i)
            found.setdefault((self.kind[i], self.kind[j]), []).append((i, j))
        return found


def parts(pairs: Sequence[Pair], most: int) -> list[list[Pair]]:
    """The pairs in parts of one size, `most` at most; the last one is filled up with pairs that it has already."""
    size = min(most, len(pairs))
    found = [list(pairs[start : start + size]) for start in range(0, len(pairs), size)]
    # One size for all: another one would be another program.
    return [(part * size)[:size] for part in found]


def pair_key(key: jax.Array, one: str, other: str) -> jax.Array:
    """The key of the games between two entrants."""
    for name in (one, other):
        key = jax.random.fold_in(key, zlib.crc32(name.encode()))
    return key


def all_pairs(n: int) -> list[Pair]:
    """Every pair of `n` entrants, once."""
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def n_games(n_pairs: int, n_levels: int, n_episodes: int) -> int:
    """How many games `n_pairs` pairs play on `n_levels` levels, `n_episodes` of each in either seat."""
    return n_pairs * SEATS * n_levels * n_episodes


def most_env_steps(env: MultiAgentEnvironment, n_pairs: int, n_levels: int, n_episodes: int) -> int:
    """How many environment steps these games take at most: all up to the time limit."""
    return n_games(n_pairs, n_levels, n_episodes) * env.max_steps


def chosen_pairs(pairs: Sequence[Pair], n: int, group: Sequence[int], seed: int = 0) -> list[Pair]:
    """At most `n` of the pairs, chosen at random, in their order.

    `group[i]` is the group of entrant i, such as all seeds of a run. Every two groups that have a pair keep one, as far
    as `n` allows; then every two keep a second one, and so on.
    """
    if n >= len(pairs):
        return list(pairs)
    order = np.random.default_rng(seed).permutation(len(pairs))
    met: dict[tuple[int, int], int] = {}
    rank = np.zeros(len(pairs), np.int64)
    for p in order:
        both = group[pairs[p][0]], group[pairs[p][1]]
        rank[p] = met[both] = met.get(both, -1) + 1
    # Stable, so that of equal ranks the random order decides.
    kept = order[np.argsort(rank[order], kind="stable")[:n]]
    return [pairs[p] for p in sorted(kept)]
