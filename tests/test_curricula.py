"""The replay curricula as their runners train with them: what comes when, who learns, what the buffer gets."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.config import load_yaml
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY, Attempts, LevelBatch, Plan, level_batch
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.curricula.levels.finite import FiniteLevels, FiniteList
from minimax_lib.curricula.levels.parallel import Parallel
from minimax_lib.curricula.levels.plr import PLR, PLRSettings, check_generator
from minimax_lib.curricula.levels.sfl import SFL, SFLCurriculum, SFLSettings
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.family import Editing, whole_level
from minimax_lib.envs.levels import LEVELS_SEED
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.registry import editing_of, identity_of, register_editing
from minimax_lib.envs.restarts import QueuedLevels
from minimax_lib.models.registry import MODELS
from minimax_lib.playing.episodes import Played
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.runners.build import make_runner, trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.runners.training import Runner
from minimax_lib.store.checkpoint import Checkpoints, placed
from tests.test_methods import sources as sources_of
from tests.zoo import Step, on_device, program_of, steps_of

CONFIGS = Path(__file__).parents[1] / "configs" / "maze"
ENV = AMaze(height=4, width=4, n_walls=3, max_steps=12)
SMALL = {"n_parallel": 4, "n_steps": 24}
REPLAY_SMALL = SMALL | {"capacity": 16, "replay_prob": 0.5, "unique": False}
SETTINGS = {
    "robust": PLR(**REPLAY_SMALL),
    "plr": PLR(**REPLAY_SMALL, robust=False),
    "accel": ACCEL(**REPLAY_SMALL, n_edits=3, n_ancestors=2),
    "parallel_plr": PLR(**REPLAY_SMALL, parallel=True),
    "parallel_accel": ACCEL(**REPLAY_SMALL, n_edits=3, parallel=True, n_ancestors=2),
    "sfl": SFL(**SMALL, every=4, n_scored=16, n_kept=6),
    "finite": PLR(**SMALL, generator=FiniteList(n_levels=12), schedule="proportionate", min_fill=0.0),
}


def build(name: str) -> Runner:
    network = MODELS["ff"](conv_filters=4, head_width=8).build(ENV.observation_space, ENV.action_space)
    return trained_with(ENV, AgentPop(PPOAgent(network, PPO(n_epochs=1)), 1), SETTINGS[name])


@dataclasses.dataclass
class Trace:
    """Every step of a run with two seeds: the batch that was proposed, and the states before and after."""

    runner: Runner
    step: Callable  # compiled: state -> (state, metrics, batch)
    befores: list
    afters: list
    metrics: list
    batches: list


def trace(name: str, n: int) -> Trace:
    runner = build(name)

    def step(state):
        clock = axes.common(state.clock)
        batch = proposed(runner, state, clock)
        after, metrics = runner.step(state)
        return after, metrics, batch

    step = jax.jit(jax.vmap(step, axis_name=axes.SEED))
    out = Trace(runner, step, [], [], [], [])
    state = jax.jit(jax.vmap(runner.init))(jax.vmap(jax.random.key)(jnp.arange(2)))
    for _ in range(n):
        after, metrics, batch = step(state)
        out.befores.append(state)
        out.afters.append(after)
        out.metrics.append(jax.tree.map(np.asarray, metrics))
        out.batches.append(batch)
        state = after
    assert step._cache_size() == 1
    return out


def proposed(runner: Runner, state, clock):
    """The batch that `runner.step` is about to roll out."""
    shared_key, local = runner.keys(state)
    k_propose = jax.random.split(local, 4)[0]
    return runner.curriculum.propose(shared_key, k_propose, clock, state.curriculum, runner.students(state))[1]


def params(state) -> np.ndarray:
    return np.concatenate([np.asarray(x).reshape(2, -1) for x in jax.tree.leaves(state.students.params)], axis=1)


def learnt(t: Trace) -> list[bool]:
    """Whether each step changed the parameters; the same for both seeds."""
    changed = [(params(a) != params(b)).any(axis=1) for a, b in zip(t.afters, t.befores, strict=True)]
    assert all(c[0] == c[1] for c in changed)
    return [bool(c[0]) for c in changed]


def sources(t: Trace) -> list[np.ndarray]:
    """The source of each row of each batch, which the seeds share."""
    rows = [np.asarray(b.source) for b in t.batches]
    assert all((r[0] == r[1]).all() for r in rows)
    return [r[0] for r in rows]


@pytest.fixture(scope="module")
def parallel_accel() -> Trace:
    return trace("parallel_accel", 12)


# ------------------------------------------------------------------------ the steps of the small runners (zoo.py)

N_STEPS = 40


@functools.cache
def batches_of(method: str) -> tuple[LevelBatch, ...]:
    """The batches that are proposed before each of the steps. The leaves lead with the seeds."""
    runner = program_of(method).runner
    steps = steps_of(method, N_STEPS)

    def of_seed(state, seed):
        return proposed(runner, state.replace(seed=seed), axes.common(state.clock))

    of_seeds = jax.vmap(of_seed, axis_name=axes.SEED)
    states = jax.tree.map(lambda *xs: np.stack(xs), *(step.before.replace(seed=()) for step in steps))
    found = jax.device_get(jax.jit(jax.vmap(of_seeds, (0, None)))(states, steps[0].before.seed))
    return tuple(jax.tree.map(lambda x, i=i: x[i], found) for i in range(N_STEPS))


def source_of(batch: LevelBatch) -> np.ndarray:
    """i32[B], the source of each row, which the seeds share."""
    assert (batch.source[0] == batch.source[1]).all()
    return batch.source[0]


def kind_of(batch: LevelBatch) -> int:
    """The source of all rows."""
    (kind,) = set(source_of(batch).tolist())
    return kind


def fills(steps: tuple[Step, ...]) -> np.ndarray:
    """f32[N], how full the emptier of the seeds' buffers was before each step."""
    return np.asarray([step.before.curriculum.buffer.filled.mean(axis=1).min() for step in steps])


def updates(steps: tuple[Step, ...]) -> list[bool]:
    """Whether each step changed the parameters; the same for both seeds."""
    changed = [(params(step.after) != params(step.before)).any(axis=1) for step in steps]
    assert all(c[0] == c[1] for c in changed)
    return [bool(c[0]) for c in changed]


@pytest.fixture(scope="module")
def robust() -> tuple[Step, ...]:
    return steps_of("plr", N_STEPS)


@pytest.fixture(scope="module")
def accel() -> tuple[Step, ...]:
    return steps_of("accel", N_STEPS)


def test_robust_plr_learns_from_replayed_levels_only(robust):
    replayed = [source == {"replay"} for source in sources_of(robust)]
    assert all(source in ({"new"}, {"replay"}) for source in sources_of(robust))
    assert updates(robust) == replayed
    assert [bool(step.report.metrics["replay_share"][0]) for step in robust] == replayed
    assert [np.isfinite(step.report.metrics["loss"]).all() for step in robust] == replayed


def test_nothing_is_replayed_before_every_buffer_is_full_enough(robust):
    for fill, source in zip(fills(robust), sources_of(robust), strict=True):
        assert fill >= 0.5 or source == {"new"}
    assert fills(robust)[0] == 0


def test_replay_comes_as_often_as_it_should(robust):
    ready = fills(robust) >= 0.5
    replayed = [source == {"replay"} for source, r in zip(sources_of(robust), ready, strict=True) if r]
    assert len(replayed) >= 30
    assert abs(np.mean(replayed) - 0.5) < 3.3 * 0.5 / np.sqrt(len(replayed))  # 99.9% of binomial draws


def test_a_replayed_batch_holds_the_levels_of_its_slots(accel):
    n = 0
    for step, batch in zip(accel, batches_of("accel"), strict=True):
        if kind_of(batch) == REPLAY:
            n += 1
            for seed in range(2):
                buffer = step.before.curriculum.inner.buffer.levels.wall_map[seed]
                np.testing.assert_array_equal(batch.levels.wall_map[seed], buffer[batch.slots[seed]])
    assert n > 5


@pytest.mark.deep
def test_plain_plr_learns_from_every_batch():
    t = trace("plr", 12)
    assert all(learnt(t))
    assert {int(s[0]) for s in sources(t)} == {NEW, REPLAY}


def test_children_come_after_every_replayed_batch_and_only_then(accel):
    kinds = [kind_of(batch) for batch in batches_of("accel")]
    for kind, following in itertools.pairwise(kinds):
        assert (following == MUTATION) == (kind == REPLAY)
    assert kinds.count(MUTATION) > 3
    assert updates(accel) == [kind == REPLAY for kind in kinds]


def test_children_are_edits_of_the_parents_and_count_them(accel):
    for parents, children in itertools.pairwise(batches_of("accel")):
        if kind_of(children) != MUTATION:
            continue
        np.testing.assert_array_equal(children.n_mutations, parents.n_mutations + 3)
        flips = np.asarray(parents.levels.wall_map != children.levels.wall_map).sum(axis=(2, 3))
        assert flips.max() <= 3
        np.testing.assert_array_equal(parents.levels.agent_pos, children.levels.agent_pos)
    assert max(int(step.after.curriculum.inner.buffer.n_mutations.max()) for step in accel) >= 3


def test_fresh_levels_of_accel_are_empty_mazes():
    fresh = [batch for batch in batches_of("accel") if kind_of(batch) == NEW]
    assert fresh
    assert not any(batch.levels.wall_map.any() for batch in fresh)


def walls(levels) -> np.ndarray:
    return np.asarray(levels.wall_map)


def assert_of_children(ancestors, parents, older) -> None:
    """The parents come first among the ancestors, then theirs without the oldest."""
    np.testing.assert_array_equal(walls(ancestors.levels)[:, :, 0], walls(parents))
    np.testing.assert_array_equal(walls(ancestors.levels)[:, :, 1:], walls(older.levels)[:, :, :-1])
    np.testing.assert_array_equal(ancestors.count, np.minimum(np.asarray(older.count) + 1, 2))


def test_a_child_has_its_parent_and_the_ancestors_of_that():
    n_pairs = 0
    for batch, then in itertools.pairwise(batches_of("accel")):
        if kind_of(then) == MUTATION:
            n_pairs += 1
            assert_of_children(then.ancestors, batch.levels, batch.ancestors)
        elif kind_of(then) == NEW:
            assert not then.ancestors.count.any()
    assert n_pairs > 3


@pytest.mark.deep
def test_the_children_of_parallel_accel_have_their_parents_too(parallel_accel):
    batch = parallel_accel.batches[-1]
    replayed, children = (
        jax.tree.map(lambda x, rows=rows: x[:, rows], (batch.levels, batch.ancestors))
        for rows in (slice(0, 4), slice(8, 12))
    )
    assert_of_children(children[1], *replayed)


def test_the_buffer_keeps_the_ancestors_with_their_level(accel):
    buffer = accel[-1].after.curriculum.inner.buffer
    counts, n_mutations = np.asarray(buffer.ancestors.count), np.asarray(buffer.n_mutations)
    # Every generation adds three edits, and two ancestors are kept.
    np.testing.assert_array_equal(counts, np.minimum(n_mutations // 3, 2))
    assert {0, 1, 2} <= set(counts.ravel().tolist())
    lineage = np.stack([walls(buffer.levels), *np.moveaxis(walls(buffer.ancestors.levels), 2, 0)], axis=2)
    changes = (lineage[:, :, 1:] != lineage[:, :, :-1]).sum(axis=(3, 4))
    assert changes[counts == 2].max() <= 3
    # Where all ancestors are known, the oldest is one that the generator made: an empty maze.
    for count in (1, 2):
        oldest = lineage[:, :, count][(counts == count) & (n_mutations == 3 * count)]
        assert not oldest.any()


def test_parents_can_be_selected_by_how_easy_they_are():
    curriculum = program_of("accel").runner.curriculum
    reward = np.array([[[0.5, 0.0, 0.9, 0.0]]], np.float32)
    done = np.array([[[True, True, True, False]]])  # the last level has no finished episode
    expected = {"easy": [2, 0, 2, 0], "hard": [3, 1, 3, 1], "batch": [0, 1, 2, 3]}

    @jax.jit
    def parents(reward, done):
        outcome = outcome_of(reward, done)
        kinds = {name: dataclasses.replace(curriculum, selection=name, n_parents=2) for name in expected}
        return {name: chosen.parents(outcome) for name, chosen in kinds.items()}

    assert {name: rows.tolist() for name, rows in parents(reward, done).items()} == expected


def outcome_of(reward, done) -> RolloutOutcome:
    """Of a rollout [T, A, B] with these rewards and ends, episodes of one step, for what looks at nothing else."""
    zeros = jnp.zeros_like(reward)
    steps = Transition(
        obs=(), action=zeros, reward=reward, done=done, episode_return=reward, discount=zeros, first=done,
        log_prob=zeros, value=zeros, truncation_value=None, progress=zeros, facts={},
    )  # fmt: skip
    agent = program_of("accel").runner.agent
    return RolloutOutcome(agent, None, Rollout(steps=steps, carry=(), last_value=zeros[0], final=None))


def test_parallel_accel_proposes_replayed_new_and_mutated_levels_side_by_side(accel):
    """From the buffers that ACCEL has filled; and new ones alone, with nothing to learn, while one is too empty."""
    curriculum, full = program_of("accel").runner.curriculum, accel[-1].after.curriculum.inner
    parallel = Parallel(curriculum.inner, curriculum.mutation)

    def of_seed(seed, state):
        return parallel.propose(jax.random.key(0), jax.random.key(seed), jnp.int32(0), state, None)[1]

    propose = jax.jit(jax.vmap(of_seed, axis_name=axes.SEED))
    filled = full.buffer.filled & (np.arange(2) == 0)[:, None]
    first, batch = (
        jax.device_get(propose(np.arange(2), full.replace(buffer=full.buffer.replace(filled=rows))))
        for rows in (filled, full.buffer.filled)
    )
    assert source_of(first).tolist() == [NEW] * 12
    assert not first.train.any()
    assert source_of(batch).tolist() == [REPLAY] * 4 + [NEW] * 4 + [MUTATION] * 4
    assert batch.train.all()
    replayed, children = (
        jax.tree.map(lambda x, rows=rows: x[:, rows], (batch.levels, batch.ancestors))
        for rows in (slice(0, 4), slice(8, 12))
    )
    assert_of_children(children[1], *replayed)
    assert (walls(replayed[0]) != walls(children[0])).sum(axis=(2, 3)).max() <= 3
    np.testing.assert_array_equal(batch.n_mutations[:, 8:], batch.n_mutations[:, :4] + 3)
    assert not walls(batch.levels)[:, 4:8].any()  # ACCEL's new levels are empty mazes


@pytest.mark.deep
def test_parallel_accel_puts_all_kinds_side_by_side(parallel_accel):
    before_ready, after_ready = [], []
    for before, source in zip(parallel_accel.befores, sources(parallel_accel), strict=True):
        full = np.asarray(before.curriculum.buffer.filled).mean(axis=1).min() >= 0.5
        (after_ready if full else before_ready).append(source.tolist())
    assert all(s == [NEW] * 12 for s in before_ready)
    assert before_ready
    assert all(s == [REPLAY] * 4 + [NEW] * 4 + [MUTATION] * 4 for s in after_ready)
    assert len(after_ready) > 5
    assert learnt(parallel_accel) == [False] * len(before_ready) + [True] * len(after_ready)


@pytest.mark.deep
def test_the_children_of_parallel_accel_are_those_of_its_replayed_levels(parallel_accel):
    batch = parallel_accel.batches[-1]
    replayed, children = (np.asarray(batch.levels.wall_map)[:, rows] for rows in (slice(0, 4), slice(8, 12)))
    assert (replayed != children).sum(axis=(2, 3)).max() <= 3
    np.testing.assert_array_equal(batch.n_mutations[:, 8:], batch.n_mutations[:, :4] + 3)


@pytest.mark.deep
def test_parallel_plr_learns_from_the_replayed_rows_alone():
    runner = build("parallel_plr")
    assert (runner.curriculum.plan.n_rows, runner.curriculum.plan.n_train_rows) == (8, 4)
    state = jax.jit(runner.init)(jax.random.key(0))
    levels = jax.vmap(ENV.sample_level)(jax.random.split(jax.random.key(2), 8))
    play = jax.jit(lambda state, key, batch: runner.students(state).play(key, batch).runs)
    runs = play(state, jax.random.key(1), level_batch(levels))
    spoilt = runs.replace(steps=runs.steps.replace(reward=runs.steps.reward.at[:, :, 4:].add(100.0)))
    update = jax.jit(runner._update)
    args = (jax.random.key(3), state.students)
    honest, other = (update(*args, r.replace(final=None), jnp.ones((), bool))[0] for r in (runs, spoilt))
    for a, b in zip(jax.tree.leaves(honest.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_seeds_share_nothing_but_the_decision(robust):
    """Another student on seed 1 changes nothing for seed 0 as long as the decisions are the same."""
    state = robust[-1].after  # both buffers are full
    second = np.arange(2) == 1
    students = state.students.replace(
        params=jax.tree.map(
            lambda x: np.where(second.reshape(2, *[1] * (x.ndim - 1)), x + 0.1, x), state.students.params
        )
    )
    run = program_of("plr").run
    a, b = (run(on_device(s), 2**31 - 1, max_steps=4)[0] for s in (state, state.replace(students=students)))
    np.testing.assert_array_equal(params(a)[0], params(b)[0])
    assert (params(a)[1] != params(b)[1]).any()
    np.testing.assert_array_equal(a.curriculum.buffer.scores[0], b.curriculum.buffer.scores[0])


def test_sfl_trains_half_on_what_it_kept_and_counts_the_scoring():
    runner, steps = program_of("sfl").runner, steps_of("sfl", 9)
    assert all(updates(steps))
    for step in steps:
        for source in ("new", "replay"):
            assert np.isfinite(step.report.metrics[f"level/{source}/return"]).all()
        assert (step.after.curriculum.learnability <= 0.25).all()
    spent = np.array([step.report.metrics["sfl/scoring_steps"] for step in steps])  # of each seed
    due = np.arange(9) % 4 == 0
    n_episodes = 16 * SETTINGS["sfl"].n_episodes
    assert ((spent[due] >= n_episodes) & (spent[due] <= n_episodes * ENV.max_steps)).all()
    assert (spent[~due] == 0).all()
    for step, total in zip(steps, np.cumsum(spent, axis=0), strict=True):
        env_steps = program_of("sfl").env_steps(step.after)
        np.testing.assert_array_equal(env_steps - step.after.clock * runner.env_steps_per_step, total)
    assert runner.env_steps_per_step == 4 * 12  # in two rollouts
    assert isinstance(runner.curriculum, SFLCurriculum)
    kept = steps[0].after.curriculum.learnability
    assert (np.diff(kept, axis=1) <= 0).all()  # highest first
    assert (kept <= 0.25).all()


class HalfOfTheTime:
    """Students that solve half of the episodes that begin with a view up or right, and no others."""

    def attempts(self, key, levels, n_episodes):
        progress = jnp.where(levels.agent_dir[None, :, None] < 2, jnp.arange(n_episodes) % 2, 0)
        return Attempts(Played((), (), progress, {}), jnp.uint32(7))


def test_sfl_keeps_the_most_learnable_levels_and_puts_them_first_in_the_batch():
    curriculum = program_of("sfl").runner.curriculum
    propose = jax.jit(lambda key, state: curriculum.propose(key, key, jnp.int32(0), state, HalfOfTheTime()))
    state = jax.tree.map(lambda x: x[0], steps_of("sfl", 9)[0].before.curriculum)
    after, batch = jax.device_get(propose(jax.random.key(0), state))
    assert batch.source.tolist() == [REPLAY] * 2 + [NEW] * 2
    assert bool(batch.train)
    n_learnable = (after.levels.agent_dir < 2).sum()
    assert n_learnable > 3  # of 16 levels, about half
    assert after.learnability.tolist() == [0.25] * n_learnable + [0.0] * (6 - n_learnable)
    kept = {wall_map.tobytes() for wall_map in after.levels.wall_map}
    assert {wall_map.tobytes() for wall_map in batch.levels.wall_map[:2]} <= kept
    assert after.env_steps.number() == 7 * 4  # 16 levels, 4 at a time
    later, _ = jax.device_get(propose(jax.random.key(1), after))
    assert (after.wait, later.wait) == (3, 2)
    for a, b in zip(jax.tree.leaves(after.replace(wait=0)), jax.tree.leaves(later.replace(wait=0)), strict=True):
        np.testing.assert_array_equal(a, b)  # nothing is due


def test_a_finite_list_is_seen_once_through_before_it_repeats():
    generator = FiniteLevels(ENV, n_rows=4, n_levels=12)
    init = jax.jit(generator.init)
    propose = jax.jit(lambda *args: generator.propose(*args, None))
    seen, state = [], init(jax.random.key(0))
    for _ in range(6):
        places = (int(state.n_seen) + np.arange(4)) % 12
        seen += np.asarray(state.order)[places].tolist()
        state, _ = propose(jax.random.key(1), jax.random.key(2), np.int32(0), state)
    assert sorted(seen[:12]) == list(range(12))
    assert seen[12:] == seen[:12]
    again = init(jax.random.key(0))
    other = propose(jax.random.key(7), jax.random.key(8), np.int32(5), again)[1]
    first = propose(jax.random.key(1), jax.random.key(2), np.int32(0), again)[1]
    np.testing.assert_array_equal(first.levels.wall_map, other.levels.wall_map)  # the list depends on no key


@pytest.mark.deep
def test_a_finite_list_is_replayed_with_the_share_that_has_been_seen():
    t = trace("finite", 40)
    assert t.befores[0].curriculum.buffer.filled.shape == (2, 12)
    fills = [np.asarray(b.curriculum.buffer.filled).mean(axis=1).min() for b in t.befores]
    replayed = [bool((s == REPLAY).all()) for s in sources(t)]
    assert not replayed[0]
    assert all(r for r, fill in zip(replayed, fills, strict=True) if fill == 1.0)
    assert any(fill == 1.0 for fill in fills)


@pytest.mark.deep
def test_a_run_resumed_from_a_checkpoint_with_its_buffer_is_the_run_in_one_piece(parallel_accel, tmp_path):
    half, whole = parallel_accel.afters[5], parallel_accel.afters[-1]
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(6, half)
        checkpoints.wait()
        restored = checkpoints.restore(placed(jax.eval_shape(lambda: half)))
    rest, step = restored.state, parallel_accel.step.lower(half).compile()  # it would compile for restored arrays
    for _ in parallel_accel.afters[6:]:
        rest = step(rest)[0]
    for a, b in zip(jax.tree.leaves(whole.curriculum), jax.tree.leaves(rest.curriculum), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(params(whole), params(rest))


def test_a_third_party_registers_how_its_levels_are_edited():
    @dataclasses.dataclass(frozen=True)
    class Other(AMaze):
        pass

    with pytest.raises(ValueError, match="no mutation is registered for Other"):
        editing_of(Other())
    assert identity_of(Other()) is whole_level

    def stay(key, level, n_edits):
        return level

    register_editing(Other, Editing(mutate=stay, identity=lambda level: level.wall_map))
    assert editing_of(Other()).mutate is stay
    assert editing_of(Other()).base(ENV) is ENV
    with pytest.raises(ValueError, match="registered already"):
        register_editing(Other, Editing(mutate=lambda key, level, n_edits: level))


def test_max_mc_keeps_the_best_return_of_a_level(robust):
    """The buffer's best returns are those of the rollouts, never lower than before."""
    for step in robust:
        old, new = step.before.curriculum.buffer, step.after.curriculum.buffer
        same = np.asarray(old.filled) & (np.asarray(old.fingerprints) == np.asarray(new.fingerprints)).all(axis=-1)
        assert (np.asarray(new.best_returns)[same] >= np.asarray(old.best_returns)[same]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "max_mcc"}, "did you mean 'max_mc'"),
        ({"parallel": True, "robust": False}, "runner.robust is False"),
        ({"replay_prob": 0.0}, "runner.replay_prob is 0 with runner.robust"),
        ({"generator": Teacher(ppo=PPO(lr_final=0.0))}, "runner.generator.ppo.lr_final is 0.0"),
        (
            {"generator": Teacher(ppo=PPO(entropy_coef_final=0.0))},
            "runner.generator.ppo.entropy_coef_final is 0.0",
        ),
        ({"n_students": 0}, "runner.n_students is 0"),
        ({"replay_prob": 1.5}, "replay_prob is 1.5"),
    ],
)
def test_impossible_plr_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=rf"^.*{message}.*$"):
        PLR(**settings)


def test_a_generator_with_a_queue_is_refused():
    queued = SimpleNamespace(plan=Plan(4, restart=QueuedLevels()))
    with pytest.raises(ValueError, match=r"runner.generator is 'mine', whose rows take levels from a queue"):
        check_generator("mine", queued, 4, parallel=False)


@pytest.mark.parametrize(
    ("generator", "settings", "message"),
    [
        (FiniteList(8), {"parallel": True}, "runner.generator is 'finite' with runner.parallel"),
        (Teacher(), {"parallel": True, "n_students": 2}, "runner.generator is 'teacher' with runner.parallel"),
        (PLRSettings(parallel=True), {}, "runner.generator is 'plr', which makes 8 levels a batch: 4 are wanted"),
        (SFLSettings(n_scored=30, n_kept=4), {}, "runner.n_scored is 30"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_generators_that_do_not_fit_are_refused_in_one_line(generator, settings, message):
    network = MODELS["ff"](conv_filters=4, head_width=8).build(ENV.observation_space, ENV.action_space)
    settings = PLR(**SMALL, generator=generator, **settings)
    with pytest.raises(ValueError, match=rf"^.*{message}.*$"):
        trained_with(ENV, AgentPop(PPOAgent(network, PPO()), settings.n_students), settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ACCEL(selection="easiest"), "did you mean 'easy'"),
        (lambda: ACCEL(generator=FiniteList(8)), "no room for children"),
        (lambda: FiniteList(0), "generator.n_levels is 0"),
        (lambda: Teacher(score="regret"), "unknown score 'regret'"),
        (lambda: PAIRED(n_students=0), "runner.n_students is 0"),
        (lambda: ACCEL(parallel=True, selection="hard"), "runner.selection is 'hard'"),
        (lambda: ACCEL(n_edits=0), "runner.n_edits is 0"),
        (lambda: ACCEL(n_ancestors=-1), "runner.n_ancestors is -1"),
        (lambda: ACCEL(n_parents=33, selection="easy"), "between 1 and 32"),
        (lambda: SFL(n_scored=100, n_kept=10), "as 96"),
        (lambda: SFL(n_parallel=3), "must be even"),
        (lambda: SFL(n_kept=10_000), "runner.n_kept is 10000"),
        (lambda: SFL(n_episodes=1), "runner.n_episodes is 1: .* at least 2"),
    ],
)
def test_other_impossible_settings_are_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.deep
def test_episode_returns_are_what_the_students_got(robust):
    """The score of a new level in the buffer is MaxMC of its own rollout: best return less the mean value."""
    runner, state = program_of("plr").runner, robust[0].before
    one = jax.tree.map(lambda x: x[0], state)
    k_rollout = jax.random.split(runner.keys(one)[1], 4)[1]
    play = jax.jit(lambda one: runner.students(one).play(k_rollout, proposed(runner, one, one.clock)).episodes)
    episodes = play(one)
    buffer = jax.tree.map(lambda x: x[0], robust[0].after.curriculum.buffer)
    finished = np.flatnonzero(np.asarray(episodes.count[0]) > 0)
    assert len(finished) == int(buffer.filled.sum())
    np.testing.assert_allclose(buffer.best_returns[: len(finished)], episodes.best[0][finished], rtol=1e-6)


# the others are made of these
TAKE_STEPS = ("dr", "robust_plr", "parallel_accel", "sfl", "paired", "repaired", "s5_dr")


def shrunk(path: Path) -> Runner:
    """The configuration's runner with a tiny network, few rows, short rollouts and a small buffer."""
    config = load_yaml(path)
    small = {"n_parallel": 4, "n_steps": 8} | ({"capacity": 8} if hasattr(config.runner, "capacity") else {})
    small |= {"n_scored": 8, "n_kept": 4} if hasattr(config.runner, "n_scored") else {}
    config = dataclasses.replace(
        config,
        env=dataclasses.replace(config.env, height=3, width=3, n_walls=min(config.env.n_walls, 1), max_steps=4),
        runner=dataclasses.replace(config.runner, **small),
        model=dataclasses.replace(config.model, memory_width=4, conv_filters=2, head_width=4),
        ppo=dataclasses.replace(config.ppo, n_epochs=1, n_minibatches=1),
        n_devices=1,
    )
    return make_runner(config)


def shapes(tree: Any) -> Any:
    """What each array of `tree` looks like."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def every_config() -> list:
    return [
        pytest.param(path, id=path.stem, marks=[] if path.stem in ("dr", "s5_dr") else pytest.mark.deep)
        for path in sorted(CONFIGS.glob("*.yaml"))
    ]


@pytest.mark.parametrize("path", every_config())
def test_a_step_of_a_published_configuration_gives_a_state_like_the_one_before(path):
    """Found out by tracing it, without compiling anything."""
    runner = shrunk(path)
    state = jax.eval_shape(runner.init, jax.random.key(0))
    after, metrics = jax.eval_shape(runner.step, state)
    assert shapes(after) == shapes(state)
    assert {"loss", "return", "solved_rate"} <= set(metrics)


@pytest.mark.deep
@pytest.mark.parametrize("name", TAKE_STEPS)
def test_a_published_configuration_takes_steps(name):
    program = SeedRunner(shrunk(CONFIGS / f"{name}.yaml"))
    state, report = program.run(program.init(0), 2, max_steps=50)
    assert state.students.n_updates.min() == 2
    assert np.isfinite(report.metrics["loss"]).all()


def test_the_published_hyperparameters_are_those_of_the_tables():
    """Jiang et al. 2023, tables 5 and 6, LSTM: gamma, lambda, lr, entropy, then replay probability, beta and rho."""
    published = {
        "dr": (0.995, 0.98, 1e-4, 1e-3),
        "robust_plr": (0.999, 0.98, 3e-4, 0.0, 0.5, 0.3, 0.3),
        "parallel_plr": (0.999, 0.95, 3e-4, 0.0, 0.5, 0.3, 0.5),
        "accel": (0.999, 0.98, 3e-4, 0.0, 0.8, 0.3, 0.5),
        "parallel_accel": (0.999, 0.98, 1e-4, 1e-3, 0.8, 0.3, 0.5),
    }
    for name, row in published.items():
        c = load_yaml(CONFIGS / f"{name}.yaml")
        found = (c.ppo.gamma, c.ppo.gae_lambda, c.ppo.lr, c.ppo.entropy_coef)
        if len(row) > 4:
            found += (c.runner.replay_prob, c.runner.temperature, c.runner.staleness)
            assert (c.runner.capacity, c.runner.score, c.runner.prioritisation) == (4000, "max_mc", "rank"), name
        assert found == row, name
        assert (c.ppo.n_epochs, c.ppo.n_minibatches, c.ppo.clip_eps, c.ppo.value_coef) == (5, 1, 0.2, 0.5), name
        assert (c.runner.n_parallel, c.runner.n_steps, c.n_updates, c.env.n_walls) == (32, 256, 30_000, 60), name


@pytest.mark.deep
@pytest.mark.parametrize("name", ["policy_entropy", "value_disagreement"])
def test_scores_that_look_at_the_network_again_reach_the_buffer(name):
    """They see what the students saw: the first batch's scores, computed from the rollout by hand."""
    network = MODELS["ff"](conv_filters=4, head_width=8, n_values=3).build(ENV.observation_space, ENV.action_space)
    agent = AgentPop(PPOAgent(network, PPO(n_epochs=1)), 1)
    runner = trained_with(ENV, agent, PLR(**REPLAY_SMALL, score=name))
    before = jax.jit(runner.init)(jax.random.key(0))
    after, _ = jax.jit(runner.step)(before)
    batch = proposed(runner, before, before.clock)
    runs = runner.students(before).play(jax.random.split(runner.keys(before)[1], 4)[1], batch).runs
    one = jax.tree.map(lambda x: x[0], before.students.params)
    obs = jax.tree.map(lambda x: x[:, 0], runs.steps.obs)
    _, values, _ = network.apply(one, obs, (), runs.steps.first[:, 0])
    of_a_step = np.asarray(values).std(axis=-1) if name == "value_disagreement" else np.ones(values.shape[:2])
    done, expected = np.asarray(runs.steps.done[:, 0]), []
    for row in range(4):
        ends = np.flatnonzero(done[:, row])
        if len(ends):
            pieces = np.split(of_a_step[: ends[-1] + 1, row], ends[:-1] + 1)
            expected.append(np.mean([piece.mean() for piece in pieces]))
    np.testing.assert_allclose(after.curriculum.buffer.scores[: len(expected)], expected, rtol=1e-4)
    assert len(expected) == int(after.curriculum.buffer.filled.sum())


def test_disagreement_needs_several_values():
    network = MODELS["ff"]().build(ENV.observation_space, ENV.action_space)
    with pytest.raises(ValueError, match=r"^model.n_values is 1: runner.score=value_disagreement needs 2$"):
        PLR(score="value_disagreement").build(ENV, AgentPop(PPOAgent(network, PPO())), 32)


def handed_out(n_rows: int, n_levels: int, n_batches: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(levels [n_batches, n_rows], the order of the list, its levels in that order): a level is its seed's number."""

    class Numbered:
        def sample_level(self, key):
            return jax.random.bits(key)

    generator = FiniteLevels(Numbered(), n_rows, n_levels)
    start = generator.init(jax.random.key(3))

    def step(state, _):
        state, batch = generator.propose(jax.random.key(1), jax.random.key(2), jnp.int32(0), state, None)
        return state, batch.levels

    @jax.jit
    def run():
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(LEVELS_SEED), start.order)
        return jax.lax.scan(step, start, length=n_batches)[1], jax.vmap(jax.random.bits)(keys)

    levels, in_order = run()
    return np.asarray(levels), np.asarray(start.order), np.asarray(in_order)


@pytest.mark.parametrize(
    ("n_rows", "n_levels", "n_batches"),
    [
        (5, 12, 30),
        (7, 3, 9),
        pytest.param(4, 12, 9, marks=pytest.mark.deep),
        pytest.param(1, 1, 3, marks=pytest.mark.deep),
        pytest.param(4096, 1_000_000, 600, marks=pytest.mark.deep),
    ],
)
def test_a_finite_list_goes_round_and_round_however_long_it_is(n_rows, n_levels, n_batches):
    """Level k that is handed out is number k modulo the list's length, in the order of the list."""
    levels, order, in_order = handed_out(n_rows, n_levels, n_batches)
    assert np.array_equal(np.sort(order), np.arange(n_levels))
    count = np.arange(n_batches * n_rows, dtype=np.int64)
    np.testing.assert_array_equal(levels.reshape(-1), in_order[count % n_levels])


@pytest.mark.parametrize("n_rows", [1, 4096, 2**20 + 1])
@pytest.mark.parametrize("n_levels", [1_000_000, 2**31 - 1])
def test_the_count_of_a_finite_list_never_overflows(n_rows, n_levels):
    ahead_of, seen = jax.jit(FiniteLevels(ENV, n_rows, n_levels)._ahead), n_levels - 1
    for _ in range(3):
        ahead = ahead_of(np.int32(seen), np.arange(n_rows + 1, dtype=np.uint32))
        np.testing.assert_array_equal(ahead, (seen + np.arange(n_rows + 1, dtype=np.int64)) % n_levels)
        after = ahead[-1]
        assert after.dtype == jnp.int32
        assert int(after) == (seen + n_rows) % n_levels
        seen = int(after)


def test_a_finite_list_too_long_to_count_is_refused():
    with pytest.raises(ValueError, match=r"^generator.n_levels is 2147483648: it must be less than 2147483648$"):
        FiniteList(2**31)
