"""Every registered method trains, compiles once, repeats and resumes exactly, and does what it should when it should.

All of it is about the programs of `zoo.py` and the steps that they take, looked at on the host.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.make.metric_tables import TRAINING
from minimax_lib.curricula.base import SOURCE_NAMES
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.runners.seeds import OVER_EPISODES, Report, SeedRunner, learnt_parameters
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.checkpoint import Checkpoints, placed
from tests.zoo import METHODS, N_STEPS, WORLDS, Step, on_device, program_of, steps_of

MANY = 2**31 - 1  # updates that are never reached
N_LONG = 40  # steps, where it matters how often something comes


def numbers(tree: Any) -> list[np.ndarray]:
    """Every leaf as plain numbers, keys included."""
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves]


def assert_same(a: Any, b: Any) -> None:
    for x, y in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_array_equal(x, y)


def moved(before: Any, after: Any) -> np.ndarray:
    """bool[S], whether any number of each seed has changed."""
    pairs = zip(numbers(before), numbers(after), strict=True)
    return np.any([(a != b).reshape(len(a), -1).any(axis=1) for a, b in pairs], axis=0)


def run(program: SeedRunner, state: RunnerState, n: int) -> tuple[RunnerState, Report]:
    """`n` more steps from a state on the host."""
    return program.run(on_device(state), MANY, max_steps=n)


def trained(steps: tuple[Step, ...]) -> np.ndarray:
    """bool[N], whether each step had an update; the same for all seeds and students."""
    counts = np.asarray([step.after.students.n_updates - step.before.students.n_updates for step in steps])
    assert (counts == counts[:, :1, :1]).all()
    return counts[:, 0, 0] > 0


def series(steps: tuple[Step, ...], metric: str) -> np.ndarray:
    """f32[N, S], a metric of every step."""
    return np.asarray([step.report.metrics[metric] for step in steps])


def sources(steps: tuple[Step, ...]) -> list[set[str]]:
    """Where the levels of each step came from; the same for all seeds."""
    names = [name for name in SOURCE_NAMES if f"level/{name}/return" in steps[0].report.metrics]
    found = {name: np.isfinite(series(steps, f"level/{name}/return")) for name in names}
    assert all((known == known[:, :1]).all() for known in found.values())
    return [{name for name in names if found[name][i, 0]} for i in range(len(steps))]


def test_all_runners_are_tried():
    assert set(METHODS) == {name for name in RUNNERS.names() if RUNNERS[name].__module__.startswith("minimax_lib.")}


@pytest.mark.parametrize("method", METHODS)
def test_it_trains(method):
    """Students change exactly in the steps with an update, all of them, and losses are known exactly then."""
    steps, runner = steps_of(method, N_LONG), program_of(method).runner
    with_update = trained(steps)
    assert with_update.sum() > N_LONG / 4
    for step, learns in zip(steps, with_update, strict=True):
        assert (np.isfinite(step.report.metrics["loss"]) == learns).all()
        assert (np.isfinite(step.report.metrics["grad_norm"]) == learns).all()
        assert (moved(step.before.students.params, step.after.students.params) == learns).all()
        assert (moved(step.before.students, step.after.students) == learns).all()
        assert not step.report.nonfinite.any()
        assert not step.report.broken_curriculum.any()
    last = steps[-1].after
    assert (last.students.n_updates == with_update.sum() * runner.n_rollouts).all()
    assert (last.clock == N_LONG).all()
    assert all(np.isfinite(x).all() for x in numbers((last.students.params, learnt_parameters(last.curriculum))))
    assert any(x.shape[:2] == (2, runner.agent.n) for x in numbers(last.students.params))


@pytest.mark.parametrize("method", METHODS)
def test_it_is_compiled_once_and_gives_its_state_away(method):
    program, steps = program_of(method), steps_of(method)
    state = on_device(steps[0].before)
    old = max(jax.tree.leaves(state.students.params), key=lambda leaf: leaf.size)
    n_programs = program._run._cache_size()  # 1, unless another test has run it on states that lie elsewhere
    for n in (1, 2, 3):
        state, report = program.run(state, MANY, max_steps=n)
        assert int(report.n_steps) == n
    assert program._run._cache_size() == n_programs
    assert old.is_deleted()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    assert shapes == program.shape
    assert not any(x.weak_type for x in jax.tree.leaves(state.replace(seed=())))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_run_however_it_is_cut(method):
    program, steps = program_of(method), steps_of(method)
    state, _ = program.run(program.init(0), MANY, max_steps=3)
    assert_same(state, steps[2].after)
    state, report = program.run(state, MANY, max_steps=N_STEPS - 3)
    assert_same(state, steps[-1].after)
    assert int(report.n_steps) == N_STEPS - 3


@pytest.mark.parametrize("method", METHODS)
def test_a_run_resumed_from_a_checkpoint_is_the_run_in_one_piece(method, tmp_path):
    program, steps = program_of(method), steps_of(method)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, on_device(steps[3].after))
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        restored = checkpoints.restore(placed(program.shape)).state
    assert_same(restored, steps[3].after)
    rest, _ = run(program, jax.device_get(restored), N_STEPS - 4)
    assert_same(rest, steps[-1].after)


@pytest.mark.parametrize("method", METHODS)
def test_seeds_differ_and_do_not_depend_on_their_neighbour(method):
    """Seed 1 is the second of seeds 0 and 1, and the first of seeds 1 and 2."""
    program, together = program_of(method), steps_of(method)[-1].after
    weights = max(numbers(together.students.params), key=lambda x: x.size)
    assert (weights[0] != weights[1]).any()
    assert moved(*(jax.tree.map(lambda x, i=i: x[i : i + 1], together.curriculum) for i in (0, 1))).all() or (
        not jax.tree.leaves(together.curriculum)
    )
    other, _ = program.run(program.init(1), MANY, max_steps=N_STEPS)
    for a, b in zip(numbers(together), numbers(other), strict=True):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_every_metric_is_a_number_for_each_seed_and_documented(method):
    env = WORLDS.get(method, {"name": "AMaze"})["name"]
    sections = [section for section in TRAINING if section.env in ("", env)]
    for name, values in steps_of(method)[-1].report.metrics.items():
        assert values.shape == (2,)
        assert values.dtype == np.float32
        assert len([line for section in sections for line in section.matches(name)]) == 1, name


@pytest.mark.parametrize("method", METHODS)
def test_the_report_of_several_steps_is_the_mean_over_them(method):
    """Over the steps on which a metric was measured; over episodes, where these outlast a step."""
    program, steps = program_of(method), steps_of(method)
    _, report = run(program, steps[0].before, N_STEPS)
    for name, mean in report.metrics.items():
        of_episodes = name.split("/")[-1] in OVER_EPISODES or name.startswith("facts/")
        values, weights = series(steps, name), np.ones((N_STEPS, 2))
        if program.runner.continues and of_episodes:
            weights = series(steps, "episodes")
        weights = np.where(np.isfinite(values), weights, 0.0)
        with np.errstate(invalid="ignore"):
            expected = (np.where(weights > 0, values, 0.0) * weights).sum(axis=0) / weights.sum(axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_the_update_stays_a_branch_under_vmap_over_seeds(method):
    """A step without an update must not pay for one."""
    program = program_of(method)
    traced = program._run.trace(program.shape, np.int32(0), np.int32(0))
    assert any(has_gradient(branch) for branch in branches(traced.jaxpr.jaxpr))
    n_branches = 2 if program.runner.continues else 1  # going on, and learning
    assert traced.lower().as_text().count("stablehlo.case") >= n_branches


def branches(jaxpr):
    """All branches of all conditionals in a jaxpr, at any depth."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "cond":
            yield from (branch.jaxpr for branch in eqn.params["branches"])
        for value in eqn.params.values():
            for sub in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(sub, "jaxpr", sub)
                if hasattr(inner, "eqns"):
                    yield from branches(inner)


def has_gradient(jaxpr) -> bool:
    """Adam takes square roots; nothing else inside a branch of the step does."""
    return "sqrt" in str(jaxpr)


# ----------------------------------------------------------------------------------------------- any method's faults


def test_a_loss_that_is_not_finite_ends_the_dispatch_and_names_the_seed():
    def spoilt(leaf: np.ndarray) -> np.ndarray:
        return np.where(np.arange(2).reshape(2, *[1] * (leaf.ndim - 1)) == 1, np.float32(np.nan), leaf)

    state = steps_of("dr")[0].before
    students = state.students.replace(params=jax.tree.map(spoilt, state.students.params))
    _, report = run(program_of("dr"), state.replace(students=students), 20)
    assert report.nonfinite.tolist() == [False, True]
    assert int(report.n_steps) == 1


def test_a_teacher_that_is_not_finite_ends_the_dispatch():
    state = steps_of("paired")[0].before
    teacher = state.curriculum
    broken = teacher.replace(params=jax.tree.map(lambda x: np.full_like(x, np.nan), teacher.params))
    _, report = run(program_of("paired"), state.replace(curriculum=broken), 20)
    assert report.broken_curriculum.tolist() == [True, True]
    assert int(report.n_steps) == 1


def test_a_target_that_is_reached_changes_nothing():
    program, state = program_of("dr"), steps_of("dr")[4].after
    after, report = program.run(on_device(state), 5)
    assert int(report.n_steps) == 0
    assert_same(after, state)
    after, report = program.run(after, 7)
    assert int(report.n_steps) == 2
    assert_same(after, steps_of("dr")[6].after)


# ------------------------------------------------------------------------------------------ what comes when, by method


def fill(buffer: Any) -> np.ndarray:
    """f32[S], the share of a buffer's slots that hold a level."""
    return np.asarray(buffer.filled).mean(axis=-1)


def test_domain_randomisation_trains_on_new_levels_in_every_step():
    steps = steps_of("dr", N_LONG)
    assert trained(steps).all()
    assert sources(steps) == [{"new"}] * N_LONG
    assert (series(steps, "unfinished") == 0).all()  # 24 steps hold two episodes of 12
    assert (series(steps, "episodes") >= 4 * 2).all()
    extra = program_of("dr").env_steps(steps[-1].after)
    assert extra.tolist() == [N_LONG * 4 * 24] * 2


def test_paireds_teacher_learns_from_every_batch_and_is_paid_the_regret():
    steps, runner = steps_of("paired", N_LONG), program_of("paired").runner
    assert trained(steps).all()
    for i, step in enumerate(steps):
        teacher, after = step.before.curriculum, step.after.curriculum
        assert (after.n_updates == i + 1).all()
        paid = np.asarray(step.report.metrics["teacher/unpaid"]) < 1
        assert (moved(teacher.params, after.params) == paid).all()
    np.testing.assert_allclose(series(steps, "teacher/reward"), series(steps, "regret"), rtol=1e-4, atol=1e-6)
    assert (series(steps, "regret") > 0).any()
    # Two students, each with all rows, and two rows a level.
    weights = max(numbers(steps[0].before.students.params), key=lambda x: x.size)
    assert (weights[:, 0] != weights[:, 1]).any()
    assert runner.env_steps_per_step == 2 * (4 * 2) * 24
    assert (series(steps, "episodes") >= 4 * 2 * 2).all()


def test_a_task_curriculum_draws_from_its_list_and_goes_on_where_it_was():
    steps = steps_of("tasks", N_LONG)
    assert trained(steps).all()
    for step in steps:
        assert ((step.after.curriculum.current >= 0) & (step.after.curriculum.current < 16)).all()
    assert all(np.unique(step.after.curriculum.current).size > 1 for step in steps)
    seen = {int(task) for step in steps for task in step.after.curriculum.current[0]}
    assert len(seen) > 8
    assert_goes_on(steps)


def assert_goes_on(steps: tuple[Step, ...]) -> None:
    """Episodes are cut by no rollout, although rollouts end in the middle of some of them."""
    under_way = [np.asarray(step.after.curriculum.unfinished.length) for step in steps]
    assert any((length > 0).any() for length in under_way)
    assert (series(steps, "unfinished") == 0).all()


def test_episode_replay_waits_until_its_buffer_is_half_full():
    steps = steps_of("episode_plr", N_LONG)
    assert trained(steps).all()
    fills = np.asarray([fill(step.before.curriculum.buffer) for step in steps])
    assert (np.diff(fills, axis=0) >= 0).all()
    known = np.isfinite(series(steps, "level/replay/n_walls"))  # some row has begun a replayed level
    assert (fills[known] >= 0.5).all()
    assert known[fills >= 0.5].mean() > 0.5
    assert_goes_on(steps)


def test_a_box_gives_a_level_inside_its_bounds_and_normalised_rewards():
    program, steps = program_of("box"), steps_of("box", N_LONG)
    assert trained(steps).all()
    for name, (low, high) in program.runner.env.level_box.items():
        means = series(steps, f"tasks/point/{name}")
        assert ((means > low) & (means < high)).all()
        assert np.unique(means).size > N_LONG
    assert_goes_on(steps)
    moments = steps[-1].after.rewards.moments
    np.testing.assert_allclose(moments.count[:, 0], N_LONG * 4 * 20, rtol=1e-5)
    assert moments.variance[0] != moments.variance[1]  # each seed has its own
    assert steps[-1].after.rewards.returns.shape == (2, 1, 4)


@pytest.mark.parametrize("method", ["selfplay", "maestro"])
def test_a_copy_of_the_student_joins_its_opponents_every_second_batch(method):
    """Copy k is the student before step 2 k. Two are kept, the oldest leaves."""
    steps = steps_of(method, N_LONG)
    for clock, step in enumerate(steps):
        bank = step.after.curriculum.bank
        n_added = clock // 2 + 1
        assert (bank.record.n_added == n_added).all()
        assert (series((step,), "opponents/copies") == min(n_added, 2)).all()
        for serial in range(max(n_added - 2, 0), n_added):
            then = steps[2 * serial].before.students.params
            for seed in range(2):
                (slot,) = np.flatnonzero(bank.record.serial[seed] == serial)
                assert_same(
                    jax.tree.map(lambda x, seed=seed, slot=slot: x[seed, slot], bank.params),
                    jax.tree.map(lambda x, seed=seed: x[seed, 0], then),
                )
        games = bank.record.n_games - np.where(
            bank.record.serial == step.before.curriculum.bank.record.serial,
            step.before.curriculum.bank.record.n_games,
            0,
        )
        ended = np.asarray(step.report.metrics["games/ended"])
        np.testing.assert_array_equal(games.sum(axis=1), ended)
        assert (ended >= 4).all()


@pytest.mark.parametrize("method", ["plr", "selfplay", "maestro"])
def test_students_of_replay_learn_from_replayed_levels_only(method):
    steps = steps_of(method, N_LONG)
    found = sources(steps)
    assert all(source in ({"new"}, {"replay"}) for source in found)
    assert trained(steps).tolist() == [source == {"replay"} for source in found]
    np.testing.assert_array_equal(series(steps, "replay_share") == 1, trained(steps)[:, None].repeat(2, 1))


def test_nothing_of_self_play_is_replayed_before_every_buffer_is_full_enough():
    steps = steps_of("selfplay", N_LONG)
    for step, source in zip(steps, sources(steps), strict=True):
        assert fill(step.before.curriculum.levels.buffer).min() >= 0.5 or source == {"new"}


def test_a_co_player_of_maestro_has_levels_of_its_own():
    """In a step, the levels of at most one co-player change, and those of one that leaves go with it."""
    for step in steps_of("maestro", N_LONG):
        before, after = step.before.curriculum, step.after.curriculum
        for seed in range(2):
            slots = [
                slot
                for slot in range(2)
                if (before.buffers.fingerprints[seed, slot] != after.buffers.fingerprints[seed, slot]).any()
            ]
            newest = np.flatnonzero(after.bank.record.serial[seed] != before.bank.record.serial[seed])
            assert len(set(slots) - set(newest.tolist())) <= 1
            for slot in newest:  # it has met its first batch at most
                assert after.buffers.filled[seed, slot].sum() <= 4
