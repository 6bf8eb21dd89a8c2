"""Training on several devices: replicas agree bit by bit, buffers are the devices' own, and nothing else changes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from rich.console import Console

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.commands import evaluate
from minimax_lib.commands.train import as_saved, check
from minimax_lib.config import Config
from minimax_lib.config.train import from_dict
from minimax_lib.curricula.base import level_batch
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.playing.rollout import Rollout
from minimax_lib.runners.build import make_agent, make_program, make_runner, mesh_of, with_devices
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner, whole_state
from minimax_lib.runners.seeds import SeedRunner, is_learner
from minimax_lib.store.checkpoint import Checkpoints, fingerprint, on_host
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunRefused
from minimax_lib.store.tables import read_table

BASE: dict[str, Any] = {
    "env": {"name": "AMaze", "height": 4, "width": 4, "n_walls": 2, "max_steps": 16},
    "model": "ff",
    "ppo": {"lr": 3e-3, "n_epochs": 2, "n_minibatches": 2},
    "eval": {"every": 2, "tasks": ["TrainingDistribution"], "n_episodes": 2},
    "n_updates": 100,
    "report": False,
}
RUNNERS_OF: dict[str, dict[str, Any]] = {
    "dr": {},  # with an average of the parameters
    "plr": {"capacity": 32, "min_fill": 0.25, "robust": False},
    "accel": {"capacity": 32, "min_fill": 0.25, "levels_per_row": 2, "rollouts_per_batch": 1},
    "traced": {"capacity": 32, "min_fill": 0.25},
    "cenie": {"capacity": 32, "min_fill": 0.25},
    "sfl": {"n_scored": 16, "n_kept": 8, "every": 2},
    "ncc": {"capacity": 32, "every": 2, "n_new": 4},
    "paired": {"teacher": {"model": "ff", "design": {"name": "AMaze", "n_walls": 2}}},
    "tasks": {"n_levels": 16},
    "episode_plr": {"capacity": 32, "min_fill": 0.25, "n_fresh": 2},
    "box": {},
    "selfplay": {"capacity": 2, "every": 2, "n_opponents": 1, "levels": {"name": "plr", "capacity": 32}},
    "maestro": {"capacity": 2, "every": 2, "plr": {"capacity": 32, "min_fill": 0.25}},
}
GAME = {"env": {"name": "LaserTag", "height": 4, "width": 4, "min_side": 3, "max_steps": 16}}
ENV_OF: dict[str, dict[str, Any]] = {
    "box": {"env": {"name": "Pendulum", "max_steps": 16, "hold_steps": 4}},
    "selfplay": GAME,
    "maestro": GAME,
}


def config(method: str, /, runner: dict[str, Any] | None = None, **settings: Any) -> Config:
    """A configuration with the runner called `method`, whose settings `runner` adds to."""
    group = {"name": method, "n_parallel": 8, "n_steps": 16} | RUNNERS_OF[method] | (runner or {})
    env = ENV_OF.get(method, {})
    averaged = {"ppo": BASE["ppo"] | {"ema_decay": 0.9}} if method == "dr" else {}
    return from_dict(BASE | averaged | env | {"runner": group} | settings)


@functools.cache
def program(runner: str, n_devices: int = 4, n_seed_devices: int = 1, n_seeds: int = 1) -> DeviceRunner:
    """Compiled once for all tests of this file."""
    return make_program(config(runner, n_devices=n_devices, n_seed_devices=n_seed_devices, n_seeds=n_seeds))


def numbers(tree: Any) -> list[np.ndarray]:
    return [on_host(leaf) for leaf in jax.tree.leaves(tree)]


def learnt(state: Any) -> list[Any]:
    """The students, and every teacher."""
    return [part for part in jax.tree.leaves(state, is_leaf=is_learner) if is_learner(part)]


def assert_replicas_agree(state: Any, n_groups: int) -> None:
    """What is learnt, and the clock, have the same bits on all devices that share seeds."""
    for leaf in jax.tree.leaves((learnt(state), state.clock)):
        contents: dict[str, set[bytes]] = {}
        for shard in leaf.addressable_shards:
            contents.setdefault(str(shard.index), set()).add(np.asarray(shard.data).tobytes())
        assert len(contents) == n_groups
        assert all(len(different) == 1 for different in contents.values())


def of_devices(leaf: jax.Array) -> list[np.ndarray]:
    """A leaf [1, D, ...], device by device."""
    assert all(shard.data.shape[1] == 1 for shard in leaf.addressable_shards)  # it lies where it belongs
    return list(np.asarray(leaf)[0])


@pytest.fixture(scope="module")
def compilations():
    """The compilations since it was last cleared."""
    seen: list[str] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


# ---------------------------------------------------------------------------------------------- every runner


@pytest.mark.parametrize("runner", [pytest.param(r, marks=[pytest.mark.deep] * (r != "plr")) for r in RUNNERS_OF])
def test_every_runner_trains_on_four_devices_with_identical_replicas(runner, compilations):
    several = program(runner)
    state = several.init(0)
    before = numbers(state.students.params)
    assert_replicas_agree(state, n_groups=1)
    for target in (1, 2, 3):
        compilations.clear()
        state, report = several.run(state, target)
        assert target == 1 or not compilations
        assert_replicas_agree(state, n_groups=1)
    assert np.asarray(state.students.n_updates).min() == 3
    assert all(np.isfinite(x).all() for x in numbers([part.params for part in learnt(state)]))
    assert any((a != b).any() for a, b in zip(before, numbers(state.students.params), strict=True))
    assert np.isfinite(report.metrics["loss"]).all()


def test_all_runners_are_tried():
    assert set(RUNNERS_OF) == {name for name in RUNNERS.names() if RUNNERS[name].__module__.startswith("minimax_lib.")}


@pytest.mark.parametrize("runner", ["plr", pytest.param("accel", marks=pytest.mark.deep)])
def test_every_device_has_its_own_buffer(runner):
    several = program(runner)
    state, _ = several.run(several.init(0), 3)
    buffer = state.curriculum.inner.buffer if runner == "accel" else state.curriculum.buffer
    assert buffer.scores.shape == (1, 4, 8)
    levels = [set(map(bytes, rows)) for rows in of_devices(buffer.fingerprints)]
    assert all(a != b for i, a in enumerate(levels) for b in levels[:i])
    assert buffer.filled.all(axis=(0, 2)).any() or buffer.filled.any(axis=2).all()
    if runner == "accel":
        assert len(set(np.asarray(state.curriculum.due).ravel().tolist())) == 1  # the decision is common


@pytest.mark.deep
def test_opponents_and_their_results_are_the_same_on_every_device():
    settings = {"n_opponents": 2, "opponents": "pfsp", "levels": "random"}
    several = make_program(config("selfplay", settings, n_devices=4))
    state, _ = several.run(several.init(0), 6)
    bank = jax.device_get(state.curriculum.bank)
    assert bank.record.n_games.shape == (1, 4, 2)
    for leaf in jax.tree.leaves(bank):
        for device in range(1, 4):
            np.testing.assert_array_equal(leaf[:, device], leaf[:, 0])
    assert bank.record.n_games.sum() > 0


@pytest.mark.deep
def test_levels_never_leave_their_device():
    """A level that only one device has is on that device ever after, and on no other."""
    several = program("plr")
    state, _ = several.run(several.init(0), 2)
    seen = [set() for _ in range(4)]
    for target in range(3, 9):
        state, _ = several.run(state, target)
        for device, filled, marks in zip(
            seen,
            of_devices(state.curriculum.buffer.filled),
            of_devices(state.curriculum.buffer.fingerprints),
            strict=True,
        ):
            device.update(map(bytes, marks[filled]))
    drawn = [level for device in seen for level in device]
    assert all(seen)
    # random 4x4 mazes rarely occur twice: far fewer levels are known to two devices than one device knows
    assert len(drawn) - len(set(drawn)) < 0.2 * len(set(drawn))


@pytest.mark.deep
def test_a_fixed_list_is_divided_among_the_devices():
    listed = {"generator": {"name": "finite", "n_levels": 12}, "min_fill": 0.0, "schedule": "proportionate"}
    several = make_program(config("plr", runner=listed, n_devices=4))
    state = several.init(0)
    parts = of_devices(state.curriculum.generator.order)
    assert [len(part) for part in parts] == [3] * 4
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))
    assert state.curriculum.buffer.scores.shape == (1, 4, 3)


@pytest.mark.parametrize("runner", ["plr", pytest.param("accel", marks=pytest.mark.deep)])
def test_counts_are_those_of_all_devices(runner):
    """Episodes last as long as the rollout at most: 8 rows give at least 8, whichever device has them."""
    several = program(runner)
    _, report = several.run(several.init(0), 1)
    assert float(report.metrics["episodes"][0]) >= 8
    state, _ = several.run(several.init(0), 3)
    assert several.env_steps(state).tolist() == [int(state.clock[0]) * 8 * 16]


@pytest.mark.deep
def test_a_teacher_that_is_not_finite_ends_the_dispatch():
    several = program("paired")
    state = several.init(0)
    (_, teacher) = learnt(state)
    broken = teacher.replace(params=jax.tree.map(lambda x: x * jnp.nan, teacher.params))
    state, report = several.run(state.replace(curriculum=broken), 50)
    assert report.broken_curriculum.tolist() == [True]
    assert int(report.n_steps) == 1


# ---------------------------------------------------------------------------------------------- the same learning


def random_rollout(key: jax.Array, agent: AgentPop, n_rows: int, n_steps: int, valid: jax.Array | None) -> Rollout:
    """Experience [T, 1, R] of the tiny maze, with rewards that vary."""
    env = dataclasses.replace(make_runner(config("dr")), agent=agent)
    state = env.init(key)
    levels = jax.vmap(env.env.sample_level)(jax.random.split(key, n_rows))
    run = env.students(state).play(key, level_batch(levels)).runs
    reward = jax.random.normal(key, run.steps.reward.shape)
    return run.replace(steps=run.steps.replace(reward=reward, valid=valid), final=None)


@pytest.mark.deep
@pytest.mark.parametrize("padded", [False, True], ids=["all steps", "unequal numbers of valid steps"])
def test_the_same_experience_gives_the_same_gradients_on_four_devices_as_on_one(padded):
    """To rounding: advantages are normalised and means taken over the steps of all devices together."""
    agent = make_agent(config("dr", ppo={"lr": 1e-2, "n_epochs": 3, "n_minibatches": 1}))
    valid = (jnp.arange(16)[:, None, None] < 3 + jnp.arange(8)[None, None, :]) if padded else None
    run = random_rollout(jax.random.key(1), agent, 8, 16, valid)
    students = agent.init(jax.random.key(0), jax.tree.map(lambda x: x[0, 0, 0], run.steps.obs))
    mesh = DeviceMesh(n_rows=4).jax_mesh
    rows, batch = P(None, axes.DEVICE), P(None, None, axes.DEVICE)
    parts: Any = Rollout(steps=batch, carry=rows, last_value=rows, final=None)

    def update(key: jax.Array, students: TrainState, run: Rollout) -> tuple[TrainState, dict]:
        students, metrics = agent.update(key, students, run)
        return students, axes.device_mean(metrics)

    spread = jax.shard_map(update, mesh=mesh, in_specs=(P(), P(), parts), out_specs=P(), check_vma=False)
    together, metrics = jax.jit(spread)(jax.random.key(2), students, run)
    alone, expected = jax.jit(update)(jax.random.key(2), students, run)
    for a, b, start in zip(*map(numbers, (together.params, alone.params, students.params)), strict=True):
        np.testing.assert_allclose(a - start, b - start, rtol=2e-3, atol=2e-5)
    for name in expected:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.deep
def test_seeds_on_two_devices_are_the_seeds_on_one():
    spread = program("dr", 2, n_seed_devices=2, n_seeds=2)
    alone = SeedRunner(spread.runner, 2)
    there, report = spread.run(spread.init(5), 3)
    here, expected = alone.run(alone.init(5), 3)
    assert jax.tree.structure(there) == jax.tree.structure(here)
    for a, b in zip(numbers(there), numbers(here), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(report.metrics["return"], expected.metrics["return"], rtol=1e-4)


@pytest.mark.deep
def test_branches_stay_branches():
    """As many in the program of four devices as in that of one."""
    several = program("plr", 4, n_seed_devices=2, n_seeds=4)
    alone = SeedRunner(several.runner, 2)

    def branches(training: Any) -> int:
        return training.lower(training.shape).as_text().count("stablehlo.case")

    assert branches(several) == branches(alone) > 0


# ---------------------------------------------------------------------------------------------- seeds x devices


@pytest.mark.deep
def test_seeds_and_devices_compose():
    several = program("plr", 4, n_seed_devices=2, n_seeds=4)
    state, report = several.run(several.init(0), 4)
    assert_replicas_agree(state, n_groups=2)
    assert state.curriculum.buffer.scores.shape == (4, 2, 16)
    assert len(set(np.asarray(state.clock).tolist())) == 1
    assert report.metrics["return"].shape == (4,)
    assert report.sums["return"].sharding.is_fully_replicated
    kernel = np.asarray(max(jax.tree.leaves(state.students.params), key=lambda x: x.size))
    assert all((kernel[i] != kernel[j]).any() for i in range(4) for j in range(i))


@pytest.mark.deep
def test_a_seed_that_breaks_stops_all_groups_at_once():
    several = program("plr", 4, n_seed_devices=2, n_seeds=4)
    state = several.init(0)
    broken = jax.tree.map(lambda x: x.at[3].set(jnp.nan), state.students.params)
    state, report = several.run(state.replace(students=state.students.replace(params=broken)), 50)
    assert report.nonfinite.tolist() == [False, False, False, True]
    assert len(set(np.asarray(state.clock).tolist())) == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The configuration of a finished run of PLR on 2 x 2 devices."""
    wanted = run_of(tmp_path_factory.mktemp("mesh"), "whole", n_updates=6)
    ExperimentRunner(wanted, program("plr", 4, 2, 4)).train()
    return wanted


def run_of(folder: Any, name: str, **settings: Any) -> Config:
    intervals = {"log_every": 2, "checkpoint_every": 3, "log_dir": str(folder), "name": name}
    return config("plr", **({"n_devices": 4, "n_seed_devices": 2, "n_seeds": 4} | intervals | settings))


def restored(wanted: Config) -> Any:
    """The newest checkpoint, on the devices of `wanted`."""
    shape = mesh_of(wanted).laid_out(whole_state(program("plr", 4, 2, 4).runner, 4, DeviceMesh(n_rows=2)))
    with Checkpoints(wanted.run_folder / "checkpoints", read_only=True) as checkpoints:
        return checkpoints.restore(shape).state


@pytest.mark.deep
def test_an_interrupted_run_on_devices_ends_as_one_that_was_not(finished):
    shorter = run_of(finished.log_dir, "cut", n_updates=4)
    ExperimentRunner(shorter, program("plr", 4, 2, 4)).train()
    again = dataclasses.replace(shorter, n_updates=6, resume=True)
    ExperimentRunner(again, program("plr", 4, 2, 4)).train()
    assert fingerprint(restored(again)) == fingerprint(restored(finished))
    for table in ("metrics.csv", "eval.csv"):
        timing = ("seconds", "steps_per_second")
        rows = [
            [{name: row[name] for name in row if name not in timing} for row in read_table(run.run_folder / table)[1]]
            for run in (again, finished)
        ]
        assert rows[0] == rows[1]


@pytest.mark.deep
def test_tables_count_the_steps_of_all_devices_and_hold_every_seed(finished):
    _, rows = read_table(finished.run_folder / "metrics.csv")
    assert [row["seed"] for row in rows] == ["0", "1", "2", "3"] * 3
    assert all(int(row["env_steps"]) == int(row["clock"]) * 8 * 16 for row in rows)
    _, rows = read_table(finished.run_folder / "eval.csv")
    assert [(row["update"], row["seed"]) for row in rows] == [(u, s) for u in "0246" for s in "0123"]


@pytest.mark.deep
def test_a_checkpoint_of_four_devices_is_evaluated_on_one(finished):
    run = evaluate.find_run(finished.run_folder, "latest")
    update, params = evaluate.restore(run, Console(quiet=True))
    assert update == 6
    for a, b in zip(numbers(params), numbers(restored(finished).students.params), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.deep
def test_seeds_may_move_to_other_devices_and_levels_may_not(finished):
    """2 x 2 devices become 1 x 2, with the same state; but one or four devices a batch are refused."""
    fewer = dataclasses.replace(finished, n_devices=2, n_seed_devices=1, resume=True)
    assert fingerprint(restored(fewer)) == fingerprint(restored(finished))
    for n_devices in (1, 4):
        other = dataclasses.replace(fewer, n_devices=n_devices)
        with pytest.raises(RunRefused, match=rf"2 devices divided a batch, .*and now {n_devices} would"):
            ExperimentRunner(other, SeedRunner(program("plr").runner, 4)).train()
    assert saved_updates(finished.run_folder / "checkpoints") == [4, 6]


@pytest.mark.deep
def test_without_levels_of_their_own_the_number_of_devices_may_change(tmp_path):
    settings = {"log_dir": str(tmp_path), "name": "dr", "log_every": 1, "eval": {"every": 0}}
    first = config("dr", n_updates=2, n_devices=4, **settings)
    ExperimentRunner(first, program("dr")).train()
    again = config("dr", n_updates=3, n_devices=2, resume=True, **settings)
    state = ExperimentRunner(again).train()
    assert np.asarray(state.students.n_updates).tolist() == [[3]]
    assert len(state.clock.sharding.device_set) == 2


# ---------------------------------------------------------------------------------------------- auto


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("dr", {}, 4),
        ("dr", {"runner": {"n_parallel": 6}, "ppo": {"n_minibatches": 1}}, 3),
        ("plr", {"runner": {"capacity": 30}}, 2),  # 3 devices do not divide the 8 rows, nor 4 the slots
        ("dr", {"n_seeds": 3, "n_seed_devices": 3, "runner": {"n_parallel": 7}, "ppo": {"n_minibatches": 1}}, 3),
        ("dr", {"runner": {"n_parallel": 7}, "ppo": {"n_minibatches": 1}}, 1),
    ],
)
def test_auto_is_as_many_devices_as_can_have_equal_parts(name, settings, count):
    found = with_devices(config(name, n_devices="auto", **settings))
    assert found.n_devices == count
    check(found)


def test_a_resumed_run_keeps_the_number_of_devices_that_auto_was(tmp_path):
    auto = config("dr", n_devices="auto", log_dir=str(tmp_path), name="run")
    assert as_saved(dataclasses.replace(auto, resume=True)) == dataclasses.replace(auto, resume=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("n_devices: 2\n")
    assert as_saved(auto).n_devices == "auto"  # a new run: the folder will be refused
    assert as_saved(dataclasses.replace(auto, resume=True)).n_devices == 2
    assert as_saved(dataclasses.replace(auto, n_devices=4, resume=True)).n_devices == 4
    (tmp_path / "run" / "config.yaml").write_text("n_devices: 8\n")  # more than there are
    assert as_saved(dataclasses.replace(auto, resume=True)).n_devices == "auto"


def test_auto_must_become_a_number_before_anything_is_built():
    with pytest.raises(ValueError, match="n_devices is 'auto': give a number"):
        make_program(config("dr", n_devices="auto"))


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("dr", {"n_devices": 8}, "n_devices is 8: there are 4"),
        ("dr", {"n_devices": 3}, r"runner.n_parallel is 8, which 3 devices cannot share equally \(try 9\)"),
        ("plr", {"n_devices": 4, "runner": {"capacity": 30}}, "runner.capacity is 30, which 4 devices"),
        ("sfl", {"n_devices": 2, "runner": {"n_kept": 7}}, "runner.n_kept is 7, which 2 devices"),
        (
            "plr",
            {"n_devices": 2, "runner": {"generator": {"name": "finite", "n_levels": 5}}},
            "runner.generator.n_levels is 5, which 2 devices",
        ),
        (
            "accel",
            {"n_devices": 4, "runner": {"selection": "easy", "n_parents": 3}},
            "runner.n_parents is 3, which 4 devices",
        ),
        (
            "sfl",
            {"n_devices": 4, "runner": {"n_parallel": 4}},
            r"on each of 4 devices, runner.n_parallel \* runner.levels_per_row is 1",
        ),
        (
            "dr",
            {"n_devices": 4, "model": "lstm", "ppo": {"n_minibatches": 4}},
            "on each of 4 devices, ppo.n_minibatches is 4: it must divide the 2 rows",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused_with_the_numbers(name, settings, message):
    with pytest.raises(ValueError, match=message) as refused:
        check(config(name, **settings))
    assert "\n" not in str(refused.value)
