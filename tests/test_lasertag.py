"""LaserTag: in lockstep with OpenSpiel's `laser_tag`, by hand for each rule, and turned round."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pyspiel
import pytest

from minimax_lib.envs.lasertag import maps
from minimax_lib.envs.lasertag.dynamics import (
    begin,
    begin_anywhere,
    bring_back,
    draw_first,
    draw_spawn,
    free_spawns,
    resolve,
)
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import DRAWN, make_level
from minimax_lib.envs.lasertag.rules import ACTIONS
from minimax_lib.envs.multi_agent import MultiAgentEnvironment

SHAPE = (12, 20)  # of the largest map: all others are padded
# Random maps beside small2, small3 and small4, the shape of the largest of these, and steps of all games together.
FEW, MANY = (9, (4, 6), 1_700), (97, SHAPE, 5_300)
IN_OPEN_SPIEL = np.array([2, 1, 3, 0])  # its number of our facings right, down, left, up
RIGHT, DOWN, LEFT, UP = range(4)
LANCTOT = LaserTag(rules="lanctot", height=SHAPE[0], width=SHAPE[1])


# The lockstep.


def random_rows(rng, largest):
    """A map as text, with two to six spawns."""
    height, width = (int(rng.integers(2, n + 1)) for n in largest)
    cells = np.where(rng.random((height, width)) < rng.uniform(0, 0.5), "#", ".").reshape(-1)
    spawns = rng.choice(cells.size, size=min(cells.size, int(rng.integers(2, 7))), replace=False)
    cells[spawns] = "S"
    return ["".join(row) for row in cells.reshape(height, width)]


class Peer:
    """One game of OpenSpiel, to which all chances are told."""

    def __init__(self, rows, horizon, zero_sum):
        settings = {
            "grid": "\n".join(rows).replace("#", "*"),
            "horizon": horizon,
            "zero_sum": zero_sum,
            "fully_obs": False,
        }
        self.game = pyspiel.load_game("laser_tag", settings)
        cells = np.array([list(row) for row in rows])
        self.spawns = [(int(x), int(y)) for y, x in np.argwhere(cells == "S")]  # [x, y] in reading order
        self.shape = cells.shape

    def begin(self, rng):
        """Starts i32[2, 2]."""
        self.state = self.game.new_initial_state()
        one, zero = rng.choice(len(self.spawns), size=2, replace=False)
        self.state.apply_action(2 + int(one))
        self.state.apply_action(2 + int(zero))
        return np.array([self.spawns[zero], self.spawns[one]])

    def step(self, actions, first):
        self.state.apply_actions([int(action) for action in actions])
        self.state.apply_action(int(first))

    @property
    def awaits_spawn(self):
        return not self.state.is_terminal() and self.state.is_chance_node()

    def choose_spawn(self, rng):
        """([x, y] of a random one of the spawns that may be chosen now, all of them)."""
        allowed = [self.spawns[action - 2] for action, _ in self.state.chance_outcomes()]
        spawn = allowed[rng.integers(len(allowed))]
        self.state.apply_action(2 + self.spawns.index(spawn))
        return spawn, allowed

    def board(self):
        """(the cells as an array of letters, the facings as OpenSpiel counts them)."""
        *rows, facings = str(self.state).replace("Chance Node", "").strip().split("\n")
        return np.array([list(row) for row in rows]), [int(word) for word in facings.split()[1:]]

    def planes(self, player):
        """bool[h, w, 4] in our order: self, other, free, wall."""
        seen = np.array(self.state.observation_tensor(player), np.float32).reshape(4, 20, 21) > 0.5
        return np.moveaxis(seen[[player, 1 - player, 2, 3]], 0, -1)


def own_board(state, i, shape, without=None):
    cells = np.where(state.level.walls[i], "*", ".")
    for agent, letter in enumerate("AB"):
        if agent != without:
            x, y = state.position[i, agent]
            cells[y, x] = letter
    return cells[: shape[0], : shape[1]]


@functools.partial(jax.jit, static_argnums=0)
def act(env, states, actions, first):
    states, tags = jax.vmap(lambda state, action, who: resolve(state, action, who, env.table))(states, actions, first)
    return states, tags, jax.vmap(free_spawns)(states, tags)


@functools.partial(jax.jit, static_argnums=0)
def tell(env, states, tags, spawns, returns):
    returned = states if env.first_tag_ends else jax.vmap(bring_back)(states, tags, spawns)
    return returned, jax.vmap(env.told)(returned, tags)


begun = jax.jit(lambda level, starts: begin(level.replace(starts=starts)))


def level_of(rows):
    """The level of a map, with walls below and to the right up to the shape of the largest one."""
    rows = [*(row + "#" * (SHAPE[1] - len(row)) for row in rows), *["#" * SHAPE[1]] * (SHAPE[0] - len(rows))]
    return jax.tree.map(np.asarray, maps.from_rows(rows))


def put(states, i, level, starts):
    """The states, in row i of which a new game has begun."""
    fresh = jax.device_get(begun(level, starts.astype(np.int32)))
    return jax.tree.map(lambda x, y: np.concatenate([x[:i], np.asarray(y)[None], x[i + 1 :]]), states, fresh)


GENERAL_SUM = dataclasses.replace(LANCTOT, max_steps=25)
ZERO_SUM = dataclasses.replace(GENERAL_SUM, zero_sum=True)
FIRST_TAG = dataclasses.replace(LANCTOT, max_steps=100_000, zero_sum=True, first_tag_ends=True)


@pytest.mark.parametrize(
    ("env", "size"),
    [
        pytest.param(GENERAL_SUM, FEW, id="general_sum"),
        pytest.param(GENERAL_SUM, MANY, id="general_sum_long", marks=pytest.mark.deep),
        pytest.param(ZERO_SUM, MANY, id="zero_sum_long", marks=pytest.mark.deep),
        pytest.param(FIRST_TAG, MANY, id="first_tag_long", marks=pytest.mark.deep),
    ],
)
def test_every_step_is_that_of_open_spiel(env, size):
    rng, (n_random, largest, n_steps) = np.random.default_rng(7), size
    texts = [maps.rows_of(name) for name in maps.LANCTOT] + [random_rows(rng, largest) for _ in range(n_random)]
    n = len(texts)
    peers = [Peer(rows, -1 if env.first_tag_ends else env.max_steps, env.zero_sum) for rows in texts]
    levels = [level_of(rows) for rows in texts]
    starts = [peer.begin(rng).astype(np.int32) for peer in peers]
    first_states = jax.device_get([begun(level, at) for level, at in zip(levels, starts, strict=True)])
    states = jax.tree.map(lambda *xs: np.stack(xs), *first_states)
    returns, n_tags, n_ends = np.zeros((n, 2)), 0, 0
    for _ in range(n_steps // n):
        actions = np.where(rng.random((n, 2)) < 0.3, ACTIONS.index("fire"), rng.integers(10, size=(n, 2)))
        first = rng.integers(2, size=n)
        states, tags, free = jax.device_get(act(env, states, actions, first))
        spawns = np.zeros((n, 2), np.int32)
        for i, peer in enumerate(peers):
            peer.step(actions[i], first[i])
            if peer.awaits_spawn:
                assert tags[i].any()
                spawns[i], allowed = peer.choose_spawn(rng)
                assert {(int(x), int(y)) for y, x in np.argwhere(free[i])} == set(allowed)
            else:
                assert not tags[i].any() or peer.state.is_terminal()
        states, told = jax.device_get(tell(env, states, tags, spawns, returns))
        returns += told.reward
        for i, peer in enumerate(peers):
            ended = peer.state.is_terminal()
            np.testing.assert_array_equal(told.reward[i], peer.state.rewards())
            np.testing.assert_array_equal(returns[i], peer.state.returns())
            assert told.over[i] == ended
            # The end comes before the tagged agent returns: OpenSpiel has none then, and ours is where it does no harm.
            gone = int(tags[i].argmin()) if ended and tags[i].any() else None
            cells, facings = peer.board()
            np.testing.assert_array_equal(own_board(states, i, peer.shape, gone), cells)
            np.testing.assert_array_equal(IN_OPEN_SPIEL[states.facing[i]], facings)
            for agent in range(2) if gone is None else ():
                np.testing.assert_array_equal(told.obs["image"][i, agent], peer.planes(agent))
            if ended:
                wins = returns[i] > returns[i, ::-1]
                np.testing.assert_array_equal(told.progress[i], wins)
                states, returns[i] = put(states, i, levels[i], peer.begin(rng)), 0
            n_tags, n_ends = n_tags + int(tags[i].any()), n_ends + int(ended)
    assert n_tags > 50
    assert n_ends > 50


# The rules, one after another.

EMPTY = ["......."] * 5


made = jax.jit(lambda *parts: begin(make_level(*parts)))


def state_of(rows, zero, one, spawns=None):
    """A game in which agent 0 and agent 1 are at `zero` and `one`, each (x, y, facing)."""
    cells = np.array([list(row) for row in rows])
    edges = tuple((0, 9 - n) for n in cells.shape)
    walls = np.pad(cells == "#", edges, constant_values=True)
    free = ~walls if spawns is None else np.pad(spawns, edges)
    starts, facings = np.array([zero[:2], one[:2]], np.int32), np.array([zero[2], one[2]], np.int32)
    return jax.device_get(made(walls, starts, facings, free))


act_on_one = jax.jit(lambda state, action, first: resolve(state, action, first, LANCTOT.table))


def after(state, zero, one="stand", first=0):
    """((x, y, facing) of agent 0, the same of agent 1, who tagged)."""
    action = np.array([ACTIONS.index(zero), ACTIONS.index(one)], np.int32)
    state, tags = jax.device_get(act_on_one(state, action, np.int32(first)))
    places = [(*map(int, state.position[i]), int(state.facing[i])) for i in range(2)]
    return *places, tuple(map(bool, tags))


FAR = (6, 4, UP)


@pytest.mark.parametrize(
    ("action", "facing", "then"),
    [
        ("left", UP, (3, 2, LEFT)),
        ("right", LEFT, (3, 2, UP)),
        ("forward", RIGHT, (4, 2, RIGHT)),
        ("forward", UP, (3, 1, UP)),
        ("backward", UP, (3, 3, UP)),
        ("step_left", UP, (2, 2, UP)),
        ("step_left", DOWN, (4, 2, DOWN)),
        ("step_right", RIGHT, (3, 3, RIGHT)),
        ("stand", RIGHT, (3, 2, RIGHT)),
        ("forward_left", LEFT, (2, 2, DOWN)),
        ("forward_right", LEFT, (2, 2, UP)),
        ("fire", RIGHT, (3, 2, RIGHT)),
    ],
)
def test_what_actions_do(action, facing, then):
    assert after(state_of(EMPTY, (3, 2, facing), FAR), action) == (then, FAR, (False, False))
    # For agent 1 and for the second one too.
    assert after(state_of(EMPTY, FAR, (3, 2, facing)), "stand", action) == (FAR, then, (False, False))


@pytest.mark.parametrize("action", ["forward", "forward_left", "forward_right"])
@pytest.mark.parametrize("what", ["wall", "edge", "agent"])
def test_nothing_happens_in_a_move_that_is_blocked(action, what):
    rows = ["...", ".#.", "..."]
    start = {"wall": (0, 1, RIGHT), "edge": (2, 0, RIGHT), "agent": (0, 0, RIGHT)}[what]
    other = (1, 0, UP)
    assert after(state_of(rows, start, other), action) == (start, other, (False, False))


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_one_gets_the_cell(first):
    zero, one, _ = after(state_of(EMPTY, (1, 1, RIGHT), (3, 1, LEFT)), "forward", "forward", first)
    assert (zero[0], one[0]) == ((2, 3) if first == 0 else (1, 2))


def test_the_second_one_follows_into_the_cell_that_the_first_has_left():
    state = state_of(EMPTY, (1, 1, RIGHT), (2, 1, RIGHT))
    assert after(state, "forward", "forward", first=1)[:2] == ((2, 1, RIGHT), (3, 1, RIGHT))
    assert after(state, "forward", "forward", first=0)[:2] == ((1, 1, RIGHT), (3, 1, RIGHT))


def test_two_cannot_change_places():
    state = state_of(EMPTY, (1, 1, RIGHT), (2, 1, LEFT))
    for first in (0, 1):
        assert after(state, "forward", "forward", first)[:2] == ((1, 1, RIGHT), (2, 1, LEFT))


@pytest.mark.parametrize("first", [0, 1])
def test_who_tags_first_voids_the_other_action(first):
    state = state_of(EMPTY, (1, 1, RIGHT), (5, 1, LEFT))
    assert after(state, "fire", "fire", first)[2] == (first == 0, first == 1)
    _, one, tags = after(state, "fire", "step_left", first)
    if first == 0:
        assert (one, tags) == ((5, 1, LEFT), (True, False))  # hit before it could step aside
    else:
        assert (one, tags) == ((5, 2, LEFT), (False, False))


def test_who_misses_voids_nothing():
    state = state_of(EMPTY, (1, 1, UP), (5, 1, LEFT))
    assert after(state, "fire", "left", first=0) == ((1, 1, UP), (5, 1, DOWN), (False, False))


def test_a_beam_goes_to_where_the_first_one_has_gone():
    state = state_of(EMPTY, (1, 1, RIGHT), (5, 2, UP))
    assert after(state, "fire", "forward", first=1)[2] == (True, False)
    assert after(state, "fire", "forward", first=0)[2] == (False, False)


@pytest.mark.parametrize(
    ("rows", "zero", "one", "hits"),
    [
        (["......."], (0, 0, RIGHT), (6, 0, UP), True),  # any distance
        (["......."], (0, 0, RIGHT), (1, 0, UP), True),  # the cell ahead
        (["......."], (6, 0, RIGHT), (0, 0, UP), False),  # not backwards
        (["...#..."], (0, 0, RIGHT), (6, 0, UP), False),  # a wall stops it
        (["...#..."], (0, 0, RIGHT), (2, 0, UP), True),  # but only behind that wall
        (["#.....#"], (1, 0, RIGHT), (5, 0, UP), True),
        ([".......", "......."], (0, 0, RIGHT), (6, 1, UP), False),  # not beside the line
        ([".", ".", "#", "."], (0, 3, UP), (0, 0, UP), False),
        ([".", ".", ".", "."], (0, 3, UP), (0, 0, UP), True),
        ([".", ".", ".", "."], (0, 0, DOWN), (0, 3, UP), True),
    ],
)
def test_the_way_of_a_beam(rows, zero, one, hits):
    assert after(state_of(rows, zero, one), "fire") == (zero, one, (hits, False))


def test_beams_in_grids_wider_than_a_word():
    # Each line is several words then. Walls on both sides of every border between words.
    beam = jax.jit(jax.vmap(lambda walls, x: resolve(begin(level_of(walls, x)), fire, jnp.int32(0), LANCTOT.table)[1]))
    fire = jnp.array([ACTIONS.index("fire"), ACTIONS.index("stand")], jnp.int32)

    def level_of(walls, x):
        on = jnp.arange(70)[None] == walls
        starts = jnp.array([[1, 0], [1, 0]], jnp.int32).at[1, 0].set(x)
        return make_level(on | jnp.zeros((3, 70), bool), starts, [RIGHT, UP], ~on)

    walls, ends = (x.reshape(-1) for x in np.meshgrid(np.arange(2, 70), np.arange(2, 70)))
    walls, ends = walls[walls != ends], ends[walls != ends]
    np.testing.assert_array_equal(beam(walls, ends)[:, 0], walls > ends)


SMALL = LaserTag(rules="lanctot", max_steps=3)


@jax.jit
def drawn_spawns(key, state, tags):
    return jax.vmap(draw_spawn, (0, None, None))(jax.random.split(key, 1000), state, tags)


def test_a_tagged_agent_returns_on_a_free_spawn_and_keeps_its_facing():
    spawns = np.zeros((5, 7), bool)
    spawns[0, 0] = spawns[4, 6] = spawns[4, 0] = True
    state = state_of(EMPTY, (0, 0, RIGHT), (5, 0, LEFT), spawns)  # agent 0 is on a spawn
    tags = np.array([True, False])
    drawn = np.asarray(drawn_spawns(jax.random.key(0), state, tags))
    places, counts = np.unique(drawn, axis=0, return_counts=True)
    assert places.tolist() == [[0, 4], [6, 4]]
    assert abs(counts[0] - 500) < 4 * np.sqrt(250)
    returned = jax.jit(bring_back)(state, tags, np.array([6, 4], np.int32))
    assert returned.position.tolist() == [[0, 0], [6, 4]]
    assert returned.facing.tolist() == [RIGHT, LEFT]


def test_without_a_free_spawn_a_tagged_agent_stays():
    spawns = np.zeros((5, 7), bool)
    spawns[0, 0] = True
    state = state_of(EMPTY, (0, 0, RIGHT), (5, 0, LEFT), spawns)
    drawn = np.asarray(drawn_spawns(jax.random.key(0), state, np.array([True, False])))
    assert (drawn == [5, 0]).all()


def test_the_coin_is_fair_and_knows_no_names():
    @jax.jit
    def both(key, state):
        keys, swapped = jax.random.split(key, 2000), SMALL.relabelled(state, jnp.array([1, 0]))
        return [jax.vmap(draw_first, (0, None))(keys, one) for one in (state, swapped)]

    first, other = map(np.asarray, both(jax.random.key(1), state_of(EMPTY, (0, 0, RIGHT), (5, 0, LEFT))))
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
    np.testing.assert_array_equal(other, 1 - first)


def test_a_game_starts_on_random_spawns_facing_south():
    @jax.jit
    def begun(k_level, key):
        return jax.vmap(begin_anywhere, (0, None))(jax.random.split(key, 2400), SMALL.sample_level(k_level))

    states = begun(jax.random.key(0), jax.random.key(2))
    assert (np.asarray(states.facing) == DOWN).all()
    pairs, counts = np.unique(np.asarray(states.position).reshape(-1, 4), axis=0, return_counts=True)
    assert len(pairs) == 12  # 4 corners for one agent, 3 for the other
    assert (np.abs(counts - 200) < 4 * np.sqrt(200)).all()
    corners = {(0, 0), (6, 0), (0, 6), (6, 6)}
    assert {tuple(pair[:2]) for pair in pairs} == {tuple(pair[2:]) for pair in pairs} == corners


@functools.partial(jax.jit, static_argnums=0)
def stepped(env, key, state, action):
    return env.step(key, state, action)


def step_of(env, state, zero, one="stand", key=0):
    action = np.array([env.actions.index(zero), env.actions.index(one)], np.int32)
    return jax.device_get(stepped(env, jax.random.key(key), state, action))


def test_rewards_and_ends():
    state = state_of(EMPTY, (0, 0, RIGHT), (5, 0, LEFT))
    many = LaserTag(rules="lanctot", layout="random", height=9, width=9, max_steps=2, random_starts=False)
    state_many, ts = step_of(many, state, "fire")
    assert ts.reward.tolist() == [1, 0]
    assert not ts.over
    assert ts.progress.tolist() == [0, 0]
    _, ts = step_of(many, state_many, "stand")
    assert ts.over
    assert ts.truncated.all()
    assert not ts.terminated.any()
    assert ts.reward.tolist() == [0, 0]
    assert ts.progress.tolist() == [1, 0]  # one tag more than the other
    assert ts.facts["tags"].tolist() == [1, 0]
    _, ts = step_of(dataclasses.replace(many, zero_sum=True), state, "fire")
    assert ts.reward.tolist() == [1, -1]
    once = LaserTag(height=9, width=9, max_steps=2)
    _, ts = step_of(once, state, "stand", "fire")
    assert ts.reward.tolist() == [-1, 1]
    assert ts.over
    assert ts.terminated.all()
    assert not ts.truncated.any()
    assert ts.progress.tolist() == [0, 1]
    drawn, _ = step_of(once, state, "stand")
    drawn, ts = step_of(once, drawn, "left")
    assert ts.over
    assert ts.truncated.all()
    assert not ts.terminated.any()
    assert ts.reward.tolist() == ts.progress.tolist() == [0, 0]


def test_what_a_beam_leaves_in_pictures():
    state = state_of(EMPTY, (0, 0, RIGHT), (5, 1, LEFT))
    fire = np.array([ACTIONS.index("fire")] * 2, np.int32)
    assert act_on_one(state, fire, np.int32(0))[0].fired.tolist() == [True, True]
    hit = act_on_one(state_of(EMPTY, (0, 0, RIGHT), (5, 0, LEFT)), fire, np.int32(1))[0]
    assert hit.fired.tolist() == [False, True]


def test_the_view():
    env = LaserTag(show_facing=True, height=9, width=9)
    rows = [".......", "..#....", ".......", ".......", "......."]
    # Agent 0 looks up from (3, 3): the wall is 2 ahead and 1 to the left. Agent 1 is 1 ahead and 1 to the right.
    without = LaserTag(height=9, width=9)
    observed = jax.jit(lambda state: [one.observe(state)["image"] for one in (env, without)])
    seen, plain = map(np.asarray, observed(state_of(rows, (3, 3, UP), (4, 2, LEFT))))
    assert seen.shape == (2, 5, 5, 8)
    own = seen[0]
    assert np.argwhere(own[..., 0]).tolist() == [[4, 2]]
    assert np.argwhere(own[..., 1]).tolist() == [[3, 3]]
    assert np.argwhere(own[..., 3]).tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [2, 1]]  # row 0: outside
    np.testing.assert_array_equal(own[..., :4].sum(axis=-1), 1)
    # As agent 0 sees it, the other one looks to the left.
    assert [np.argwhere(own[..., 4 + k]).tolist() for k in range(4)] == [[], [], [], [[3, 3]]]
    # Agent 1 looks left: agent 0 is 1 ahead and 1 to the left of it, and looks to its right.
    assert np.argwhere(seen[1][..., 1]).tolist() == [[3, 1]]
    assert np.argwhere(seen[1][..., 5]).tolist() == [[3, 1]]
    np.testing.assert_array_equal(plain, seen[..., :4])


@pytest.mark.deep
def test_turned_by_180_degrees_with_seats_swapped_it_is_the_same_game():
    env = LaserTag(rules="lanctot", layout="random", height=7, width=6, view_front=3, view_side=2, random_starts=False)

    def turned(state):
        walls = state.level.walls
        last = jnp.array([walls.shape[1] - 1, walls.shape[0] - 1], jnp.int32)
        level = state.level.replace(walls=walls[::-1, ::-1], spawns=state.level.spawns[::-1, ::-1])
        state = env.relabelled(state.replace(level=level), jnp.array([1, 0]))
        return state.replace(position=last[None] - state.position, facing=(state.facing + 2) & 3)

    def both(key):
        k_level, k_facing, k_action, k_first = jax.random.split(key, 4)
        state = begin(env.sample_level(k_level))
        state = state.replace(facing=jax.random.randint(k_facing, (2,), 0, 4))
        action = jax.random.randint(k_action, (2,), 0, 10)
        first = jax.random.randint(k_first, (), 0, 2)
        one, tags = resolve(state, action, first, env.table)
        other, other_tags = resolve(turned(state), action[::-1], 1 - first, env.table)
        return turned(one), tags[::-1], env.observe(one)["image"][::-1], other, other_tags, env.observe(other)["image"]

    one = jax.device_get(jax.jit(lambda key: jax.vmap(both)(jax.random.split(key, 512)))(jax.random.key(3)))
    for x, y in zip(jax.tree.leaves(one[:3]), jax.tree.leaves(one[3:]), strict=True):
        np.testing.assert_array_equal(x, y)
    assert one[1].any()


@pytest.mark.deep
def test_a_step_does_not_depend_on_who_is_called_0():
    env = LaserTag(height=7, width=7, max_steps=20)

    def both(key):
        k_level, k_action, k_step = jax.random.split(key, 3)
        state, action = begin(env.sample_level(k_level)), jax.random.randint(k_action, (2,), 0, 5)
        swap = jnp.array([1, 0])
        one, ts = env.step(k_step, state, action)
        other, other_ts = env.step(k_step, env.relabelled(state, swap), action[::-1])
        return (env.relabelled(one, swap), ts.reward[::-1], ts.obs["image"][::-1]), (
            other,
            other_ts.reward,
            other_ts.obs["image"],
        )

    one, other = jax.jit(lambda key: jax.vmap(both)(jax.random.split(key, 256)))(jax.random.key(4))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


# Settings.


def test_settings_of_the_two_games():
    env = LaserTag()
    assert isinstance(env, MultiAgentEnvironment)
    assert env.relabelled is not None
    assert (env.zero_sum, env.max_steps, env.height, env.min_side, env.max_side) == (True, 200, 15, 5, 15)
    assert env.actions == ("left", "right", "forward", "fire", "stand")
    assert env == LaserTag(max_steps=200)
    assert hash(env) == hash(LaserTag(max_steps=200))
    lanctot = LaserTag(rules="lanctot")
    assert (lanctot.zero_sum, lanctot.max_steps, lanctot.height, lanctot.width) == (False, 1000, 7, 7)
    assert lanctot.observation_space.items[0][1].shape == (20, 21, 4)
    assert lanctot.action_space.n == 10
    level = jax.jit(lanctot.sample_level)(jax.random.key(0))
    assert (np.asarray(level.starts) == DRAWN).all()
    random = LaserTag(rules="lanctot", layout="random", max_steps=50)
    assert (random.height, random.max_steps, random.random_starts) == (15, 50, True)
    assert LaserTag(layout="small4").width == 20
    assert LaserTag(height=4, width=9).max_side == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rules": "lanctott"}, "unknown rules 'lanctott'.*did you mean 'lanctot'"),
        ({"layout": "small1"}, "unknown layout 'small1'.*did you mean 'small"),
        ({"actions": ("left", "shoot")}, "unknown action 'shoot'"),
        ({"actions": ("left", "left")}, "actions names 'left' twice"),
        ({"actions": ()}, "name at least one of"),
        ({"rules": "lanctot", "layout": "search"}, "search.*far.*set random_starts to False"),
        ({"layout": "small4", "height": 9}, "small4.*12 x 20.*height=9"),
        ({"max_side": 16}, "max_side=16: it must be at most 15"),
        ({"min_side": 1}, "min_side=1: it must be a whole number of at least 2"),
        ({"min_side": 9, "max_side": 8}, "min_side=9: it must be at most 8"),
        ({"min_walls": 0.6}, "min_walls=0.6: it must be at most max_walls=0.5"),
        ({"max_walls": 1.5}, "max_walls=1.5: it must be between 0 and 1"),
        ({"view_side": 16}, "view_side=16: it must be at most 15"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"zero_sum": 1}, "zero_sum=1: it must be True or False"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LaserTag(**settings)
