"""A task curriculum outside of compiled training: it is the one of the compiled loop, and forgets nothing."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_worker import CORES, N_TASKS, new_host, play

from minimax_lib.portable import host_programs
from minimax_lib.portable.host import PATIENCE, Host
from minimax_lib.portable.host import ROLLOUT as STEPS
from minimax_lib.portable.host_programs import reads_of
from minimax_lib.portable.progress import Scaled, Solved
from minimax_lib.portable.scoring import OpenAttempts, PlayedSteps, Scoring, attempt_scores
from minimax_lib.tasks import (
    SFL,
    TSCL,
    LearningProgress,
    ListedPLR,
    Manual,
    Online,
    Preference,
    ProductCurriculum,
    Results,
    SimulatedAnnealing,
    Steps,
    SyncedUniform,
    Unfinished,
    Uniform,
    UniformOver,
    make_core,
    results_of,
)
from minimax_lib.tasks.spaces import Box, Discrete, Product, multi_discrete
from minimax_lib.tasks.split import split

N = 6
PLR = ListedPLR(N)


def outcomes(n: int) -> dict[str, np.ndarray]:
    """What becomes of attempt k on each task."""
    rng = np.random.default_rng(0)
    score = rng.random((n, N)).astype(np.float32)
    score[rng.random((n, N)) < 0.3] = np.nan
    numbers = {name: rng.random((n, N)).astype(np.float32) for name in ("returns", "progress")}
    return numbers | {"score": score, "length": rng.integers(1, 9, (n, N)).astype(np.int32)}


@pytest.mark.parametrize(
    "core",
    [
        PLR,
        pytest.param(Online(LearningProgress(N), every=7), marks=pytest.mark.deep),
        pytest.param(TSCL(N), marks=pytest.mark.deep),
        pytest.param(Uniform(N), marks=pytest.mark.deep),
    ],
    ids=lambda core: type(core).__name__,
)
def test_it_is_the_compiled_loop_bit_for_bit(core):
    n, key = 60, jax.random.key(5)
    known = outcomes(n)
    k_init, k_draws = jax.random.split(key)

    def attempt(state: Any, k: jax.Array) -> tuple[Any, jax.Array]:
        task = core.sample(jax.random.fold_in(k_draws, k), state, 1)
        state = core.started(state, task, jnp.ones(1, bool))
        own = {name: jnp.asarray(values)[k, task] for name, values in known.items()}
        yes = jnp.ones(1, bool)
        results = Results(task=task, valid=yes, episode=yes, episode_return=own["returns"], **own)
        return core.update(state, results), task[0]

    state, tasks = jax.jit(lambda: jax.lax.scan(attempt, core.init(k_init), jnp.arange(n, dtype=jnp.int32)))()
    host, patient = Host(core, seed=5, draw_ahead=1, flush=1), Host(core, seed=5, draw_ahead=7)
    for k in range(n):
        (task,) = host.draw(1)
        assert task == patient.draw(1)[0] == tasks[k]
        for each in (host, patient):
            each.report(task, **{name: values[k, task] for name, values in known.items()})
    saved = host.state_dict()
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        np.testing.assert_array_equal(saved["core" + jax.tree_util.keystr(path)], leaf)


@pytest.mark.parametrize(
    "core", [PLR, pytest.param(Uniform(N), marks=pytest.mark.deep)], ids=lambda core: type(core).__name__
)
def test_draws_do_not_depend_on_how_many_are_made_at_once(core):
    sequences = []
    for draw_ahead, grouped in ((1, 1), (7, 1), (7, 12)):
        host, tasks = Host(core, seed=1, draw_ahead=draw_ahead), []
        for k in range(4):
            tasks += [task for _ in range(12 // grouped) for task in host.draw(grouped)]
            host.report(tasks[-2:], [0.0, 1.0], [k, 1.0], [3, 4], score=[0.5 * k, 0.1])
        sequences.append((tasks, host.weights()))
    for tasks, weights in sequences[1:]:
        assert tasks == sequences[0][0]
        np.testing.assert_array_equal(weights, sequences[0][1])
    assert len(set(sequences[0][0])) > 2
    assert Host(core, seed=2, draw_ahead=7).draw(48).tolist() != sequences[0][0]


def test_draws_may_be_made_together_from_one_state():
    rare = ListedPLR(N, preference=Preference(staleness=1.0, staleness_transform="greedy"))
    host, together = Host(rare, draw_ahead=8), Host(rare, draw_ahead=8, together=True)
    for one in (host, together):
        one.report_scores(np.arange(N), np.ones(N))
    # The oldest task comes next. One by one, all have their turn; together, ages stand still.
    host.draw(1)
    assert len(set(host.draw(N))) == N
    assert len(set(together.draw(8))) < N
    np.testing.assert_array_equal(together.state_dict()["core.begun.count"], 8)
    again = Host(rare, draw_ahead=8, together=True)
    again.load_state_dict(together.state_dict())
    np.testing.assert_array_equal(again.draw(11), together.draw(11))
    with pytest.raises(ValueError, match="together=True, 8 at once, and this Host has together=False"):
        host.load_state_dict(together.state_dict())


@pytest.mark.parametrize("n", [3, 8, 13])
def test_a_block_that_is_drawn_together_goes_on_in_a_host_that_is_loaded(n):
    def new():
        return Host(PLR, draw_ahead=8, together=True)

    host, untouched, again = new(), new(), new()
    for one in (host, untouched):
        one.draw(5)
        one.report_scores(np.arange(N), np.arange(N, dtype=float))
        one.draw(n)
    again.load_state_dict(host.state_dict())
    np.testing.assert_equal(again.state_dict(), host.state_dict())
    for k in (2, 3, 9):
        tasks = [one.draw(k).tolist() for one in (host, untouched, again)]
        assert tasks[0] == tasks[1] == tasks[2]
        for one in (host, untouched, again):
            one.report_scores(np.arange(2), np.full(2, k))


def test_results_wait_where_they_change_nothing_and_are_read_before_the_next_draw_where_they_do():
    assert reads_of(PLR).fields == {"task", "score"}
    assert reads_of(Uniform(N)).fields == reads_of(SFL(N)).fields == frozenset()
    assert reads_of(TSCL(N)).fields == {"task", "returns", "valid"}
    assert not reads_of(Uniform(N)).starts
    assert reads_of(PLR).starts
    host = Host(TSCL(N), flush=4)
    host.report([0, 0], returns=[0.0, 1.0])
    before = host.weights()  # what waits counts, and still waits
    assert host.state_dict()["n['waiting']"] == 2
    host.draw(1)
    assert host.state_dict()["n['waiting']"] == 0
    assert before[0] == before.max() > 1 / N
    many = Host(TSCL(N), flush=4)
    many.report([0, 0, 1, 2, 3, 4, 5, 5, 5], returns=[0.0, 1.0, 0, 0, 0, 0, 0, 0, 0])
    assert many.state_dict()["n['waiting']"] == 1
    assert many.metrics()["tasks/tried"] == 1


def test_results_wait_while_a_curriculum_settles(monkeypatch):
    host = Host(Online(LearningProgress(N), every=50), seed=0)
    calls, update = [], host_programs.update
    monkeypatch.setattr(host_programs, "update", lambda *given: calls.append(1) or update(*given))
    for _ in range(101):
        host.report(host.draw(1), progress=[1.0], returns=[1.0], length=[1])
    assert len(calls) == 2  # before the draws number 51 and 101, which are the first that could be others


@pytest.mark.deep
def test_each_function_is_compiled_once():
    host = Host(TSCL(5), draw_ahead=3, flush=2)
    compiled = (host_programs.draw_in_turn, host_programs.update, host_programs.started)
    host.draw(2)
    host.report([0, 1, 2], returns=[0.0, 1.0, 2.0])
    host.draw(1)
    before = [function._cache_size() for function in compiled]
    for n in range(1, 6):
        tasks = host.draw(n)
        host.report(tasks, returns=np.ones(n))
    assert [function._cache_size() for function in compiled] == before
    Host(TSCL(5), seed=9, draw_ahead=3, flush=2).draw(1)  # an equal core shares what is compiled
    assert [function._cache_size() for function in compiled] == before


def scored(done: list[bool], tasks: list[int], deltas: list[float]) -> dict[int, float]:
    """The scores of a rollout of one row whose TD errors are `deltas`: all values are 0."""
    host = Host(ListedPLR(N), scoring=Scoring(score="one_step_td"))
    zeros, column = np.zeros((len(done), 1)), np.array(deltas)[:, None]
    host.report_rollout(np.array(tasks)[:, None], column, zeros, np.array(done)[:, None], np.zeros(1))
    host.draw(1)
    state = host.state_dict()
    return {i: float(state["core.scores"][i]) for i in range(N) if state["core.seen"][i]}


def test_done_says_that_the_episode_ended_with_the_action():
    # The third step belongs to the next episode. If `done` said that observation t opened one, the score were 2.
    assert scored([False, True, False], [4, 4, 1], [2, 3, -99]) == {4: 2.5}
    assert scored([False, True, True], [4, 4, 1], [2, 3, -99]) == {4: 2.5, 1: 99}


def test_a_value_is_not_bootstrapped_past_the_end():
    host = Host(ListedPLR(N), scoring=Scoring(score="one_step_td", gamma=0.5))
    value = np.array([[1.0], [2.0], [8.0]])
    done = np.array([[False], [True], [True]])
    host.report_rollout(np.array([[0], [0], [1]]), np.ones((3, 1)), value, done, np.array([100.0]))
    host.draw(1)
    # |1 + .5 * 2 - 1| = 1 and |1 - 2| = 1; |1 - 8| = 7
    np.testing.assert_allclose(host.state_dict()["core.scores"][:2], [1, 7])


@pytest.mark.parametrize(
    ("tail", "share"),
    [
        ("stitch", 0.25),
        ("write", 0.0),
        *(pytest.param(*case, marks=pytest.mark.deep) for case in (("stitch", 0.0), ("write", 0.25))),
        *(pytest.param("drop", share, marks=pytest.mark.deep) for share in (0.0, 0.25)),
    ],
)
def test_attempts_are_scored_as_in_the_compiled_loop(tail, share):
    rng = np.random.default_rng(1)
    shape, scoring = (6, 3), Scoring("gae", 0.9, 0.8, tail, share)
    tally, unfinished = jax.device_get((OpenAttempts.none(3), Unfinished.none(3)))
    compiled = jax.jit(lambda steps, unfinished: results_of(steps, unfinished, tail, share))
    for _ in range(3):
        reward, value = rng.normal(size=(2, *shape)).astype(np.float32)
        done, last = rng.random(shape) < 0.3, rng.normal(size=3).astype(np.float32)
        x = PlayedSteps(reward, value, done, np.ones(shape, bool), last, None)
        score, counts, tally = attempt_scores(scoring, x, tally)
        quantity = np.zeros(shape, np.float32)
        for row in range(3):  # a plain loop
            following, advantage = last[row], 0.0
            for t in range(5, -1, -1):
                goes_on = 1 - done[t, row]
                delta = reward[t, row] + 0.9 * goes_on * following - value[t, row]
                advantage = delta + 0.9 * 0.8 * goes_on * advantage
                quantity[t, row], following = advantage, value[t, row]
        steps = Steps(
            task=np.zeros(shape, np.int32),
            done=done,
            progress=np.zeros(shape, np.float32),
            episode=done,
            episode_return=np.zeros(shape, np.float32),
            quantity=quantity,
        )
        results, unfinished = compiled(steps, unfinished)
        np.testing.assert_array_equal(counts, ~np.isnan(results.score))
        np.testing.assert_allclose(np.asarray(score)[counts], np.asarray(results.score)[counts], rtol=1e-4, atol=1e-5)


def test_steps_that_only_open_an_episode_do_not_count():
    scoring = Scoring(score="one_step_td")
    reward = np.array([[2.0], [0.0], [3.0], [5.0]], np.float32)
    done = np.array([[True], [False], [False], [True]])
    counts = np.array([[True], [False], [True], [True]])
    value, last = np.array([[0.0], [50.0], [0.0], [0.0]], np.float32), np.zeros(1, np.float32)
    score, where, _ = attempt_scores(
        scoring, PlayedSteps(reward, value, done, counts, last, None), OpenAttempts.none(1)
    )
    np.testing.assert_allclose(np.asarray(score)[np.asarray(where)], [2, 4])


def test_reports_by_steps_are_reports_by_attempts_and_by_rollouts():
    rng = np.random.default_rng(2)
    shape = (STEPS, 3)
    tasks = np.repeat(rng.integers(0, N, (STEPS // 4, 3)), 4, axis=0)  # attempts of four steps
    reward, value, last = rng.random(shape), rng.random(shape), rng.random(3)
    done = np.zeros(shape, bool)
    done[3::4] = True
    by_step, by_attempt = Host(TSCL(N)), Host(TSCL(N))
    plr_by_step, plr_by_rollout = Host(PLR), Host(PLR)
    for t in range(STEPS):
        by_step.report_steps(tasks[t], reward[t], done[t])
        plr_by_step.report_steps(tasks[t], reward[t], done[t], value=value[t])
        if done[t].any():
            by_attempt.report(tasks[t], returns=reward[t - 3 : t + 1].astype(np.float32).sum(0, dtype=np.float64))
    plr_by_step.report_steps(tasks[0], reward[0], done[0], value=last)
    plr_by_rollout.report_rollout(tasks, reward, value, done, last)
    np.testing.assert_allclose(by_step.weights(), by_attempt.weights(), rtol=1e-6)
    np.testing.assert_array_equal(plr_by_step.weights(), plr_by_rollout.weights())
    assert plr_by_rollout.weights().max() > 0.2
    with pytest.raises(ValueError, match="report_steps is told of 2 rows, and before of 3"):
        by_step.report_steps(tasks[0, :2], reward[0, :2], done[0, :2])


@pytest.mark.deep
def test_a_thousand_steps_are_five_hundred_and_five_hundred_in_another_process(tmp_path):
    played = {}
    for name in CORES:
        whole, half = new_host(name), new_host(name)
        begun, first = play(whole, 0, 500), play(half, 0, 500)
        whole.load_state_dict(whole.state_dict())  # attempts under way are begun anew
        tasks = np.concatenate([begun, play(whole, 500, 1000)])
        np.savez(tmp_path / f"{name}_state.npz", **half.state_dict())
        played[name] = whole, tasks, first
    command = [sys.executable, "host_worker.py", str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parent, env=dict(os.environ), check=True)
    for name, (whole, tasks, first) in played.items():
        rest = np.load(tmp_path / f"{name}_rest.npz")
        np.testing.assert_array_equal(np.concatenate([first, rest["tasks"]]), tasks)
        np.testing.assert_array_equal(rest["weights"], whole.weights())
        assert len(np.unique(tasks)) == N_TASKS


def test_a_state_of_other_settings_is_refused_by_name():
    saved = Host(PLR).state_dict()
    for other, name in (
        (Host(ListedPLR(N, alpha=0.5)), r"core.alpha=1.0, and this Host has core.alpha=0.5"),
        (Host(Uniform(N)), "core='?ListedPLR.* has core='?Uniform"),
        (Host(PLR, seed=1), "seed=0, .* seed=1"),
        (Host(PLR, scoring=Scoring(gamma=0.5)), "scoring.gamma=0.99, .* scoring.gamma=0.5"),
        (Host(PLR, Discrete(N, first=7)), "space.first=0, .* space.first=7"),
    ):
        before = other.draw(0), other.state_dict()
        with pytest.raises(ValueError, match=f"the state was saved with {name}"):
            other.load_state_dict(saved)
        np.testing.assert_equal(other.state_dict(), before[1])
    with pytest.raises(ValueError, match="version 7: it must be 1"):
        Host(PLR).load_state_dict(saved | {"version": 7})
    with pytest.raises(ValueError, match=r"has no array 'core.scores'"):
        Host(PLR).load_state_dict({name: x for name, x in saved.items() if name != "core.scores"})
    with pytest.raises(ValueError, match=r"'core.scores' is float64\[6\] .* it must be float32\[6\]"):
        Host(PLR).load_state_dict(saved | {"core.scores": np.zeros(N)})


def test_it_says_in_one_line_what_has_not_arrived():
    host = Host(PLR)
    host.draw(PATIENCE)
    assert host.missing() == (
        "1000 tasks were drawn, and ListedPLR was never told scores (call report_rollout, report_scores, or report "
        "with `score`)"
    )
    with pytest.warns(UserWarning, match="never told scores") as told:
        [host.draw(1) for _ in range(2)]
    assert len(told) == 1  # once
    host.report_scores([1], [0.5])
    assert host.missing() is None
    assert "rates of success (call evaluated)" in Host(SFL(N)).missing()
    assert "results (call report)" in Host(TSCL(N)).missing()
    assert Host(Uniform(N)).missing() is None


def test_evaluations_change_what_is_drawn_next():
    host = Host(SFL(N))
    host.draw(5)  # a block of draws is ahead
    host.evaluated([0.5, 0, 0, 0, 0, 1], known=[True, True, True, False, False, True])
    assert set(host.draw(50)) == {0}
    np.testing.assert_array_equal(host.weights(), [1, 0, 0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"rates are \[2\], known \[2\]: both must be \[6\]"):
        host.evaluated([0.5, 0.5])
    with pytest.raises(ValueError, match="between 0 and 1"):
        host.evaluated([0.5, 0, 0, 0, 0, 2])
    with pytest.raises(ValueError, match="Uniform reads no rates of an evaluation"):
        Host(Uniform(N)).evaluated(np.zeros(N))


def test_what_is_wrong_is_said_in_one_line():
    host = Host(TSCL(N))
    with pytest.raises(ValueError, match="task 6 was reported: tasks are the numbers 0 to 5"):
        host.report([0, 6], returns=[0, 0])
    with pytest.raises(ValueError, match="TSCL reads the returns of attempts: give report `returns`"):
        host.report([0], progress=[1])
    with pytest.raises(ValueError, match="the space has 5 tasks, TSCL has 6: they must agree"):
        Host(TSCL(N), Discrete(5))
    with pytest.raises(ValueError, match="flush is 0"):
        Host(TSCL(N), flush=0)
    with pytest.raises(ValueError, match="score is 'max_mc': it must be a mean over the steps of one attempt"):
        Scoring(score="max_mc")
    with pytest.raises(ValueError, match=r"unknown tail 'sticth': .*did you mean 'stitch'"):
        Scoring(tail="sticth")
    with pytest.raises(ValueError, match=r"value is \[2, 2\] and reward \[3, 2\]"):
        Host(PLR).report_rollout(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((2, 2)), np.zeros((3, 2)), np.zeros(2))
    entropy = Host(PLR, scoring=Scoring(score="policy_entropy"))
    with pytest.raises(ValueError, match="the score 'policy_entropy' needs `logits`"):
        entropy.report_rollout(*[np.zeros((3, 2))] * 4, np.zeros(2))
    entropy.report_rollout(
        np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), np.zeros(2), logits=np.zeros((1, 2, 4))
    )
    entropy.draw(1)
    assert entropy.state_dict()["core.scores"][0] == pytest.approx(1)
    with pytest.raises(ValueError, match="TSCL reads no metrics"):
        host.report_metrics({"loss": 1.0})
    with pytest.raises(ValueError, match=r"unknown task curriculum 'lp': .*did you mean 'learning_progress'"):
        Host("lp", Discrete(N))
    with pytest.raises(ValueError, match="the core 'plr' needs a space of tasks that can be counted"):
        Host("plr")
    with pytest.raises(ValueError, match="the core is 5: it must be a task curriculum, or the name of one"):
        Host(5, Discrete(N))
    with pytest.raises(ValueError, match=r"unknown setting of plr 'temprature': .*did you mean 'temperature'"):
        make_core("plr", N, temprature=0.1)
    with pytest.raises(ValueError, match="SimulatedAnnealing draws no numbers: give Host the space"):
        Host(SimulatedAnnealing((0.0,), (1.0,), (10,)))


def test_a_core_has_the_name_that_it_has_on_the_command_line():
    assert Host("plr", Discrete(N)).core == make_core("plr", N) == ListedPLR(N)
    assert Host("tscl", Discrete.of(["a", "b"])).core == TSCL(2)
    assert make_core("plr", N, temperature=0.7).preference.temperature == 0.7


def test_a_box_and_a_product_are_drawn_and_told():
    box = Box((0.0,), (1.0,))
    host = Host(SimulatedAnnealing((0.0,), (1.0,), (10,)), box)
    np.testing.assert_array_equal(host.draw(3), np.zeros((3, 1)))
    host.report([[0.0], [0.0]], length=[2, 3])
    np.testing.assert_array_equal(host.draw(2), [[0.5], [0.5]])
    assert host.weights() is None
    core = ProductCurriculum((TSCL(2), UniformOver(box)))
    pair = Host(core, Product((Discrete(2), box), ("a", "b")))
    kinds, points = pair.draw(40)
    assert kinds.shape == (40,)
    assert points.shape == (40, 1)
    pair.report((kinds, points), returns=np.where(kinds == 1, np.arange(40.0), 0))
    again = Host(core, Product((Discrete(2), box), ("a", "b")))
    again.load_state_dict(pair.state_dict())
    for ours, theirs in zip(pair.draw(40), again.draw(40), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert set(pair.decode(pair.draw(1))[0]) == {"a", "b"}


def test_what_a_core_offers_beside_is_reached():
    host = Host(SyncedUniform(1000, warmup=0, uniform_chance=0.0))
    common = set(host.draw(10))
    assert len(common) == 1
    host.change(jax.jit(host.core.next_batch))
    assert len(set(host.draw(10))) == 1
    assert set(host.draw(1)) != common
    queue = Host(Manual(N, capacity=8))
    queue.change(jax.jit(lambda state: queue.core.put(state, jnp.array([4, 1, 3]))))
    assert queue.draw(2).tolist() == [4, 1]
    with pytest.raises(ValueError, match="2 tasks are drawn, and 1 wait in the queue"):
        queue.draw(2)
    assert queue.draw(1).tolist() == [3]


@dataclasses.dataclass(frozen=True)
class ByLoss:
    """Task 0 until the trainer's loss is below .5, then task 1."""

    n_tasks: int = 2
    reads_scores = False
    reads_metrics = ("loss",)

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def sample(self, key, state, n):
        return jnp.full(n, state, jnp.int32)

    def started(self, state, tasks, valid):
        return state

    def update(self, state, results):
        return state

    def measured(self, state, numbers):
        return (numbers["loss"] < 0.5).astype(jnp.int32)

    def weights(self, state):
        return None

    def report(self, state):
        return {}


def test_a_core_may_read_numbers_of_the_trainer():
    host = Host(ByLoss())
    assert "metrics (call report_metrics)" in host.missing()
    assert host.draw(2).tolist() == [0, 0]
    host.report_metrics({"loss": 0.2})
    assert host.draw(2).tolist() == [1, 1]
    assert host.missing() is None
    with pytest.raises(ValueError, match=r"unknown metric of ByLoss 'los': .*did you mean 'loss'"):
        host.report_metrics({"los": 1.0})


def test_progress_by_default():
    returns = np.array([0.5, 2.0, -1.0, 1.0])
    np.testing.assert_array_equal(Solved()(returns, np.array([True, False, True, True])), [1, 0, 0, 1])
    np.testing.assert_allclose(Scaled(0.5, 0.25)(returns, np.ones(4, bool)), [0.5, 1, 0, 0.75])


def test_a_space_is_split_into_two_parts():
    space = multi_discrete((3, 4))
    training, validation = split(space, 0.75, seed=1)
    assert (training.n, validation.n) == (9, 3)
    assert sorted(training.numbers + validation.numbers) == list(range(12))
    assert split(space, 0.75, seed=1)[0] == training != split(space, 0.75, seed=2)[0]
    for part in (training, validation):
        for i in range(part.n):
            assert part.encode(part.decode(i)) == i
            assert space.name(part.numbers[i]) == part.name(i)
    with pytest.raises(ValueError, match="is a task of the other part"):
        training.encode(validation.decode(0))
    with pytest.raises(ValueError, match="from 0 to 8"):
        training.decode(9)
    with pytest.raises(ValueError, match=r"share is 0.01: of 12 tasks it gives 0"):
        split(space, 0.01)
    with pytest.raises(ValueError, match="the tasks of a box cannot be listed"):
        split(Box((0.0,), (1.0,)), 0.5)
    host = Host(Uniform(training.n), training)
    played = {tuple(task.values()) for task in host.decode(host.draw(200))}
    assert played == {tuple(training.decode(i).values()) for i in range(9)}
