"""Crafter's tasks on Craftax-Classic, against the inventory and the map of Craftax itself."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("craftax", reason="the extra craftax is not installed")
from craftax.craftax_classic.constants import Action, BlockType

from minimax_lib.envs.foreign.craftax_family import achievements
from minimax_lib.envs.foreign.craftax_tasks import (
    ACTIONS,
    BASIC,
    POSSIBLE,
    CraftaxTaskLevel,
    CraftaxTasks,
    PossibleTasks,
)
from minimax_lib.testing.envs import check_environment

ENV = CraftaxTasks(map_size=16, max_steps=150, attempt_steps=12, n_worlds=4, fail_reward=-1.0)
N_ROWS = 24


@pytest.fixture(autouse=True)
def their_ranks():
    """Craftax adds matrices to vectors in some places. The test suite forbids this in our own code."""
    with jax.numpy_rank_promotion("allow"):
        yield


def endowed(state, n=5):
    """With `n` of all materials, so that random actions build something, and no tools, of which one may have only 9."""
    given = {name: jnp.int32(n) for name in ("wood", "stone", "coal", "iron")}
    given |= {f"{x}_{tool}": jnp.int32(0) for x in ("wood", "stone", "iron") for tool in ("pickaxe", "sword")}
    return state.replace(theirs=state.theirs.replace(inventory=state.theirs.inventory.replace(**given)))


@functools.cache
def played():
    """(tasks i32[N, T] that came next, states before and after, time steps, actions), of random play."""

    def play(key):
        k_reset, k_tasks, k_actions, k_steps = jax.random.split(key, 4)
        # Mostly basic tasks: others are hardly ever solved by chance.
        tasks = jax.random.choice(k_tasks, jnp.array([*range(len(BASIC)), *range(15, 25), 200]), (ENV.max_steps,))
        state, _ = ENV.reset(k_reset, ENV.sample_listed(k_reset, tasks[0]))

        def one_step(state, inputs):
            key, action, task = inputs
            after, ts = ENV.step_then(key, state, action, ENV.sample_listed(key, task))
            drop = functools.partial(jax.tree.map, lambda x: x)
            slim = lambda s: drop(s.replace(theirs=s.theirs.replace(state_rng=())))  # noqa: E731
            return endowed(after), (slim(state), slim(after), ts)

        actions = jax.random.randint(k_actions, (ENV.max_steps,), 0, len(ACTIONS))
        inputs = jax.random.split(k_steps, ENV.max_steps), actions, tasks
        return tasks, actions, jax.lax.scan(one_step, endowed(state), inputs)[1]

    tasks, actions, (before, after, ts) = jax.device_get(
        jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(1), N_ROWS))
    )
    return tasks, actions, before, after, ts


def test_the_environment_keeps_its_promises():
    check_environment(
        CraftaxTasks(map_size=16, max_steps=12, attempt_steps=5, n_worlds=2, inherit=0.5), jax.random.key(0), n_rows=2
    )


def happened():
    """bool[N, T] by basic task: what Craftax's inventory and map say that a step did."""
    _, actions, before, after, _ = played()
    did = np.asarray(ACTIONS)[actions]
    had, has = before.theirs.inventory, after.theirs.inventory
    found = {f"collect_{x}": getattr(has, x) > getattr(had, x) for x in ("wood", "stone", "coal", "iron", "diamond")}
    for material in ("wood", "stone", "iron"):
        for tool in ("pickaxe", "sword"):
            name = f"{material}_{tool}"
            found[f"make_{name}"] = getattr(has, name) > getattr(had, name)
    for name, block in (
        ("table", BlockType.CRAFTING_TABLE),
        ("stone", BlockType.STONE),
        ("furnace", BlockType.FURNACE),
    ):
        count = lambda s, block=block: (s.theirs.map == block.value).sum(axis=(2, 3))  # noqa: E731
        wanted = did == getattr(Action, f"PLACE_{name.upper()}").value
        found[f"place_{name}"] = wanted & (count(after) > count(before))
    return found


def test_a_task_is_solved_when_its_event_has_happened_often_enough():
    _, _, before, _, ts = played()
    found = happened()
    n_solved = 0
    for row in range(N_ROWS):
        count, begun = 0, 0
        for t in range(ENV.max_steps):
            task = int(before.task[row, t])
            name, _, n = POSSIBLE[task].rpartition("_") if task < len(POSSIBLE) else ("", "", "")
            name, n = (name, int(n)) if n.isdigit() else (POSSIBLE[task] if task < len(POSSIBLE) else "", 1)
            if name == "collect_drink":  # it leaves no trace in the inventory
                count = int(before.count[row, t]) + (ts.attempt.progress[row, t] > 0)
            else:
                count += bool(name) and bool(found[name][row, t])
            solved = bool(name) and count >= n
            out = not solved and t + 1 - begun >= ENV.attempt_steps
            over = solved or out or t + 1 == ENV.max_steps
            assert ts.attempt.progress[row, t] == solved, (row, t, name)
            assert ts.attempt.ended[row, t] == over
            assert ts.reward[row, t] == (1 if solved else -1 if out else 0)
            n_solved += solved
            if over:
                count, begun = 0, t + 1
    assert n_solved > 20
    assert ts.truncated[:, -1].all()
    assert not ts.terminated.any()


def test_the_next_task_comes_at_once_and_is_shown():
    tasks, _, before, after, ts = played()
    ended = ts.attempt.ended
    np.testing.assert_array_equal(after.task, np.where(ended, tasks, before.task))
    shown = ts.obs["task"]
    assert shown.shape[-1] == 32
    possible = after.task < len(POSSIBLE)
    assert not shown[possible][:, 22:].any()
    assert shown[~possible][:, 22:].any(axis=-1).all()
    assert not shown[~possible][:, :22].any()
    for task in np.unique(after.task[possible]):
        (bits,) = np.unique(shown[after.task == task][:, :22], axis=0)
        assert bits.sum() == len(POSSIBLE[task].split("_"))


def test_nothing_hurts():
    _, _, _, after, _ = played()
    assert (after.theirs.player_health == 9).all()
    for mobs in (after.theirs.zombies, after.theirs.cows, after.theirs.skeletons, after.theirs.arrows):
        assert not mobs.mask.any()
    assert not after.theirs.mob_map.any()


def test_some_episodes_begin_with_the_inventory_of_the_one_before():
    """The share that is asked for, within four standard errors; worlds are those of `reset`."""
    env, n = dataclasses.replace(ENV, inherit=0.25), 400

    def begun(key):
        state, _ = ENV.reset(key, ENV.sample_listed(key, jnp.int32(3)))
        ended = endowed(state, 7)
        return env.reset_after(key, state.level, ended)

    state, ts = jax.jit(jax.vmap(begun))(jax.random.split(jax.random.key(2), n))
    kept = np.asarray(state.theirs.inventory.wood) == 7
    assert abs(kept.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / n)
    np.testing.assert_array_equal(np.asarray(state.theirs.inventory.iron), np.where(kept, 7, 0))
    seen = np.asarray(ts.obs["player"]).any(axis=1)
    np.testing.assert_array_equal(np.asarray(ts.obs["player"])[:, :4].any(axis=1), kept)
    assert seen.all()  # the direction
    key = jax.random.key(3)
    level, never = ENV.sample_listed(key, jnp.int32(3)), dataclasses.replace(ENV, inherit=0.0)
    state, _ = ENV.reset(key, level)
    again, _ = never.reset_after(key, level, endowed(state, 7))
    assert int(again.theirs.inventory.wood) == 0
    with pytest.raises(ValueError, match=r"env.inherit is 2: it must be between 0 and 1"):
        CraftaxTasks(inherit=2)


def test_held_out_tasks_are_single_attempts():
    suite = PossibleTasks(ENV, ("collect_wood", "make_iron_sword"))
    assert suite.env.max_steps == ENV.attempt_steps
    levels = suite.sample(jax.random.key(0), 3)
    np.testing.assert_array_equal(levels.task, [[0] * 3, [POSSIBLE.index("make_iron_sword")] * 3])
    assert (levels.world >= 0).all()


def test_facts_of_tasks():
    facts = jax.vmap(ENV.level_metrics)(
        CraftaxTaskLevel(task=jnp.array([0, 14, 15, 104, 105, 1128]), world=jnp.zeros(6, int))
    )
    np.testing.assert_array_equal(facts["kind"], [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(facts["possible"], [1, 1, 1, 1, 0, 0])
    assert set(BASIC) <= {*achievements(), "collect_drink"}


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"env.attempt_steps is 0: it must be at least 1"):
        CraftaxTasks(attempt_steps=0)
    with pytest.raises(ValueError, match=r"env.map_size is 20"):
        CraftaxTasks(map_size=20)


def test_tasks_have_names():
    names = [ENV.task_name(i) for i in range(len(POSSIBLE) + 1024)]
    assert names[: len(POSSIBLE)] == list(POSSIBLE)
    assert names[-1] == "impossible_1023"
    assert len(set(names)) == len(names)
