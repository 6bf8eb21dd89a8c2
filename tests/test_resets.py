"""Environments that reset in groups, against the same environments of which every row is reset in every step."""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.axes import SEED
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.restarts import FreshLevels, NoRestart, SameLevel
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.playing.rollout import scan_restocked
from tests.exact import EXACT

SIZE = 11  # of a world, a number that no other axis here has
N_STEPS = 20


@struct.dataclass
class WorldLevel:
    number: jax.Array
    length: jax.Array


@struct.dataclass
class WorldState:
    level: WorldLevel
    world: jax.Array
    noise: jax.Array  # the key of the reset: states may hold such
    clock: jax.Array


@dataclasses.dataclass(frozen=True)
class World(Environment):
    """Episodes as long as their level says, in a world generated from the level and the key of the reset."""

    max_steps: int = 99
    observation_space = Box(-1e9, 1e9, (SIZE,))
    action_space = Discrete(2)

    def sample_level(self, key):
        one, other = jax.random.key_data(key)
        return WorldLevel(number=(one >> 1).astype(jnp.int32), length=1 + (other % 4).astype(jnp.int32))

    def reset(self, key, level):
        world = noise_of(key) * level.number
        state = WorldState(level=level, world=world, noise=key, clock=jnp.zeros((), jnp.int32))
        return state, opening(self.look(state))

    def step(self, key, state, action):
        world = state.world + noise_of(key) + noise_of(state.noise)
        state = dataclasses.replace(state, world=world, clock=state.clock + 1)
        return state, transition(self.look(state), world[0], state.clock >= state.level.length, jnp.zeros((), bool))

    def look(self, state):
        return state.world * (state.clock + 1)

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {}


@dataclasses.dataclass(frozen=True)
class SeenWorld(World):
    def observe(self, state):
        return self.look(state)


@dataclasses.dataclass(frozen=True)
class GroupedWorld(World):
    resets_at_once: int = 3


@dataclasses.dataclass(frozen=True)
class GroupedSeenWorld(SeenWorld):
    resets_at_once: int = 3


def noise_of(key):
    """f32[SIZE], cheap to compile."""
    return jnp.sin(jax.random.key_data(key).sum().astype(jnp.float32) * 1e-7 + jnp.arange(SIZE, dtype=jnp.float32))


def levels_of(lengths):
    lengths = np.asarray(lengths, np.int32)
    return WorldLevel(number=np.arange(lengths.size, dtype=np.int32).reshape(lengths.shape), length=lengths)


def play(batch, key, levels, n_steps=N_STEPS):
    """(first time step, all others, levels of all steps, the last state without its stock)."""
    k_reset, k_steps = jax.random.split(key)
    state, first = batch.reset(k_reset, levels)

    def one_step(loop, key):
        state, ts = batch.step_stocked(key, loop[0], jnp.zeros(first.done.shape, jnp.int32))
        return (state,), (ts, batch.levels(state))

    (state,), (steps, after) = scan_restocked(batch, one_step, (state,), jax.random.split(k_steps, n_steps))
    noise = jax.random.key_data(state.env.noise)
    return first, steps, after, state.stats, dataclasses.replace(state.env, noise=noise)


played = jax.jit(play, static_argnums=(0, 3), compiler_options=EXACT)


def assert_equal(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def restart_of(name, env):
    return FreshLevels(env.sample_level, restock_every=2) if name == "fresh" else SameLevel()


CASES = [
    ("same", World(), GroupedWorld(resets_at_once=1)),
    ("same", SeenWorld(), GroupedSeenWorld(resets_at_once=5)),
    ("fresh", World(), GroupedWorld(resets_at_once=5)),
    ("fresh", SeenWorld(), GroupedSeenWorld(resets_at_once=100)),
]


def deep(*case):
    return pytest.param(*case, marks=pytest.mark.deep)


@pytest.mark.parametrize(
    ("restart", "env", "grouped"), [CASES[1], *(deep(*case) for case in CASES if case is not CASES[1])]
)
def test_groups_change_nothing_but_the_cost(restart, env, grouped):
    """Two students, two evaluations a level, 12 rows: no multiple of 5; episodes of 1 to 4 steps."""
    one, other = (BatchEnv(e, n_students=2, n_evals=2, restart=restart_of(restart, env)) for e in (env, grouped))
    levels, key = levels_of([1, 2, 3]), jax.random.key(0)
    whole = played(one, key, levels)
    assert_equal(whole, played(other, key, levels))
    ended = np.asarray(whole[1].done).sum(axis=(1, 2))
    assert ended.max() > 5  # more than one group
    assert len(np.unique(ended)) > 2


@pytest.mark.parametrize(("restart", "env", "grouped"), [deep(*case) for case in CASES[1:3]])
def test_seeds_of_a_vmap_that_end_different_numbers_of_rows(restart, env, grouped):
    """In one seed no row ever ends, in one every row ends in every step."""
    one, other = (BatchEnv(e, restart=restart_of(restart, env)) for e in (env, grouped))
    levels, keys = levels_of([[1] * 7, [1, 2, 3, 4, 5, 6, 99], [99] * 7]), jax.random.split(jax.random.key(1), 3)
    together, apart = (
        jax.jit(jax.vmap(partial(play, batch), axis_name=SEED), compiler_options=EXACT)(keys, levels)
        for batch in (other, one)
    )
    assert_equal(together, apart)
    ended = np.asarray(together[1].done).sum(axis=(2, 3))
    assert ended[2].max() == 0
    assert ended[0].min() < ended[0].max() if restart == "fresh" else (ended[0] == 7).all()


@pytest.mark.deep
def test_without_the_name_of_the_axis_the_groups_are_those_of_each_seed_and_the_numbers_the_same():
    restart, _, env = CASES[2]
    batch, keys = BatchEnv(env, restart=restart_of(restart, env)), jax.random.split(jax.random.key(1), 3)
    levels = levels_of([[1] * 7, [1, 2, 3, 4, 5, 6, 99], [99] * 7])
    together = jax.vmap(partial(play, batch), axis_name=SEED)(keys, levels)
    assert_equal(together, jax.vmap(partial(play, batch))(keys, levels))


def test_levels_are_drawn_by_their_numbers_when_they_are_needed():
    env = GroupedWorld(resets_at_once=2)
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level))
    key = jax.random.key(2)
    state, _ = jax.jit(lambda key, levels: batch.reset(jax.random.split(key)[0], levels))(key, levels_of([1, 2, 3]))
    assert state.stock.levels == ()  # no levels wait in the state
    assert batch.restock_every == 0
    _, steps, after, *_ = played(batch, key, levels_of([1, 2, 3]))
    begun = np.asarray(after.number)[np.asarray(steps.done)]
    number = jax.jit(jax.vmap(lambda key, n: env.sample_level(jax.random.fold_in(key, n)).number, (None, 0)))
    np.testing.assert_array_equal(begun, number(state.stock.key, np.arange(len(begun))))
    assert len(np.unique(begun)) == len(begun) > 20


# --- what it costs


CALLS = []


@dataclasses.dataclass(frozen=True)
class CountedWorld(GroupedWorld):
    """Counts resets, however many rows each of them has."""

    def reset(self, key, level):
        jax.debug.callback(lambda: CALLS.append("reset"))  # without arguments: once for all rows of a vmap
        return super().reset(key, level)

    def sample_level(self, key):
        jax.debug.callback(lambda: CALLS.append("sample"))
        return super().sample_level(key)


def counted(run, *args):
    """(what `run` returns, resets, drawings of levels)."""
    CALLS.clear()
    found = jax.block_until_ready(run(*args))
    jax.effects_barrier()
    return found, CALLS.count("reset"), CALLS.count("sample")


def groups(ended, size):
    return int((-(-np.asarray(ended) // size)).sum())


def test_as_many_groups_are_reset_as_hold_the_rows_that_end():
    env = CountedWorld(resets_at_once=2)
    batch, levels = BatchEnv(env, restart=FreshLevels(env.sample_level)), levels_of([1, 2, 3, 99, 99])
    (_, steps, *_), n_resets, n_drawn = counted(played, batch, jax.random.key(3), levels)
    expected = groups(steps.done.sum(axis=(1, 2)), 2)
    assert n_resets == 1 + expected  # the first reset has all rows
    assert n_drawn == expected
    assert 10 < expected < 2.5 * N_STEPS
    assert (np.asarray(steps.done).sum(axis=(1, 2)) == 0).any()  # a step that resets nothing


@pytest.mark.deep
def test_seeds_take_as_many_groups_as_the_one_with_the_most():
    env = CountedWorld(resets_at_once=2)
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level))
    levels, keys = levels_of([[1, 2, 3, 4, 99], [1, 1, 1, 2, 99]]), jax.random.split(jax.random.key(1))
    run = jax.vmap(partial(play, batch), axis_name=SEED)
    (_, steps, *_), n_resets, n_drawn = counted(run, keys, levels)
    ended = np.asarray(steps.done).sum(axis=(2, 3))
    expected = groups(ended.max(axis=0), 2)
    assert n_resets == 1 + expected == 1 + n_drawn
    assert expected > max(groups(ended[s], 2) for s in range(2))


def selects_between_worlds(axis_name):
    """The choices between worlds of all rows in a step that is mapped over seeds."""
    env = GroupedWorld(resets_at_once=2)
    batch = BatchEnv(env, restart=FreshLevels(env.sample_level))
    keys = jax.random.split(jax.random.key(0))
    states, ts = jax.eval_shape(jax.vmap(batch.reset, (0, None)), keys, levels_of([1] * 7))
    step = jax.jit(jax.vmap(batch.step, axis_name=axis_name))
    program = step.lower(keys, states, np.zeros(ts.reward.shape, np.int32)).as_text()
    return len(re.findall(rf"stablehlo.select .*tensor<2x7x{SIZE}xf32>", program))


def test_seeds_share_the_number_of_groups_so_that_no_states_are_chosen_between():
    assert selects_between_worlds(SEED) == 0
    assert selects_between_worlds(None) > 0  # what the axis name is for


def has_outside_of_loops(program, operation):
    """Whether a compiled program does the operation, and not only inside the bodies of its while loops."""
    parts, name = {}, None
    for line in program.splitlines():
        if line.endswith("{"):
            name = "ENTRY" if line.startswith("ENTRY") else line.split()[0]
            parts[name] = []
        elif name:
            parts[name].append(line)
    queue, seen = ["ENTRY"], set()
    while queue:
        name = queue.pop()
        seen.add(name)
        for line in parts[name]:
            if f" {operation}(" in line:
                return True
            queue += [called for called in re.findall(r"(?:calls|to_apply)=(%[\w.\-]+)", line) if called not in seen]
    return False


@pytest.mark.parametrize(
    ("env", "always"),
    [(World(), True), (GroupedWorld(resets_at_once=2), False), (GroupedWorld(resets_at_once=7), False)],
)
def test_a_step_in_which_nothing_ends_makes_no_world(env, always):
    """Also where all rows are one group: XLA takes out of a loop what is the same in all of its rounds."""

    @dataclasses.dataclass(frozen=True)
    class StillWorld(type(env)):
        def step(self, key, state, action):  # no sine, which is here only in the making of worlds
            state = dataclasses.replace(state, clock=state.clock + 1)
            return state, transition(self.look(state), 0.0, state.clock >= state.level.length, jnp.zeros((), bool))

    batch, key = BatchEnv(StillWorld(**dataclasses.asdict(env))), jax.random.key(0)
    state, ts = jax.eval_shape(batch.reset, key, levels_of([1] * 7))
    program = jax.jit(batch.step).lower(key, state, np.zeros(ts.reward.shape, np.int32)).compile().as_text()
    assert " sine(" in program
    assert has_outside_of_loops(program, "sine") == always


# --- what is asked of an environment


def test_only_environments_that_say_so_reset_in_groups():
    assert GroupedWorld().resets_at_once is not None
    assert World().resets_at_once is None


@pytest.mark.parametrize("resets_at_once", [0, -1, 2.0])
def test_a_group_of_no_rows_is_refused(resets_at_once):
    with pytest.raises(ValueError, match=rf"^GroupedWorld.resets_at_once is {resets_at_once}: .* \(try 1\)$"):
        BatchEnv(GroupedWorld(resets_at_once=resets_at_once))


def test_without_restarts_nothing_is_reset():
    batch = BatchEnv(CountedWorld(), restart=NoRestart())
    _, n_resets, _ = counted(played, batch, jax.random.key(0), levels_of([1, 2, 3]))
    assert n_resets == 1
