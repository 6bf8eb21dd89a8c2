"""What a training step reports of its episodes, by hand: who is in each mean, and who is left out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.base import TrainState
from minimax_lib.counts import Count
from minimax_lib.curricula.games.joint import game_metrics, script_metrics
from minimax_lib.opponents.bank import LIVE, SCRIPT, Games
from minimax_lib.playing.returns import EpisodeReturns, episode_returns
from minimax_lib.playing.rollout import Rollout
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.runners.training import (
    RunnerState,
    agents_metrics,
    ended_metrics,
    mean_regret,
    return_metrics,
    with_idle,
)
from tests.test_scores import by_row, rollouts


def run_of(reward, done) -> Rollout:
    """Of students [A] on rows [R], whose rewards and ends are [T, A, R]. An episode with a return above 0 is solved."""
    reward = np.asarray(reward, np.float32)
    return rollouts(reward, done, reward, reward[0]).run


def measured(function: Callable[[EpisodeReturns], Any], reward, done) -> Any:
    """The result of `function` on the episodes, in one program."""
    return jax.device_get(jax.jit(lambda steps: function(episode_returns(steps)))(run_of(reward, done).steps))


def test_where_episodes_go_on_each_that_has_ended_counts_once():
    """Two in one row, one in the other, none in the third."""
    rewards, done = by_row([1, -2, 9], [0, 0, 7], [5, 5, 5]), by_row([1, 1, 0], [0, 0, 1], [0, 0, 0])
    found = measured(ended_metrics, rewards, done)
    assert found["episodes"] == 3
    np.testing.assert_allclose((found["return"], found["solved_rate"]), ((1 - 2 + 7) / 3, 2 / 3), rtol=1e-6)


def test_where_rows_restart_the_first_episode_of_each_counts_even_if_it_is_unfinished():
    reward = np.stack([by_row([1, 8, 8], [2, 2, 2], [0, -3, 9])[:, 0], np.zeros((3, 3))], axis=1)
    done = np.stack([by_row([1, 1, 0], [0, 0, 0], [0, 1, 0])[:, 0], np.zeros((3, 3))], axis=1)
    found = measured(return_metrics, reward, done)
    # Of the first student: 1 and solved, 6 so far, -3. It has finished three episodes, the other one none.
    expected = {"return": 4 / 3, "solved_rate": 1 / 3, "unfinished": 1 / 3, "episodes": 3}
    expected |= {f"student_0/{name}": x for name, x in expected.items() if name != "episodes"}
    expected |= {"student_1/return": 0, "student_1/solved_rate": 0, "student_1/unfinished": 1}
    assert {name: float(x) for name, x in found.items()} == pytest.approx(expected)


def test_regret_is_of_the_levels_on_which_a_student_has_finished():
    """The antagonist is still on its way on the first level, both have finished on the second, nobody on the third."""
    reward = np.array([[[-1.0, 0.0, 7.0], [-0.25, 1.0, 9.0]]] * 2)
    done = np.array([[[0, 0, 0], [0, 0, 0]], [[1, 1, 0], [0, 1, 0]]])
    np.testing.assert_allclose(measured(mean_regret, reward, done), ((-0.5 + 2) + (2 - 0)) / 2)


def test_the_steps_of_the_dead_are_idle():
    run = run_of(np.zeros((2, 1, 3)), np.zeros((2, 1, 3)))
    assert (agents_metrics(run), with_idle((), run)) == ({}, ())
    run = run.replace(steps=run.steps.replace(valid=np.array([[[1, 1, 0]], [[1, 0, 1]]], bool)))
    assert agents_metrics(run)["agents/alive"] == np.float32(2 / 3)
    assert jax.jit(with_idle)(Count.zero().plus(2), run).number() == 2 + 2


def test_games_against_the_written_player_are_a_part_of_all_that_have_ended():
    """Against a copy, twice the written player, the student as it is now; the last game goes on."""
    games = Games(
        slot=np.array([3, SCRIPT, SCRIPT, LIVE, 3], np.int32),
        serial=np.zeros(5, np.int32),
        student_return=np.array([-1, 1, -1, 0, 5], np.float32),
        opponent_return=np.array([0, 0, 0, 0, 0], np.float32),
        valid=np.array([1, 1, 1, 1, 0], bool),
    )
    found = jax.jit(lambda games: game_metrics(games) | script_metrics(games))(games)
    expected = {"won": 1 / 4, "drawn": 1 / 4, "ended": 4, "live": 1 / 4, "scripted": 2 / 4, "scripted_won": 1 / 2}
    assert {name.removeprefix("games/"): float(x) for name, x in found.items()} == expected


@dataclasses.dataclass(frozen=True)
class Breaks:
    """A runner whose third update has a loss or a gradient that is not finite."""

    name: str
    continues = False

    def init(self, key):
        students = TrainState(params=(), opt_state=(), n_updates=jnp.zeros(1, jnp.int32))
        return RunnerState(clock=jnp.zeros((), jnp.int32), seed=key, students=students, curriculum=())

    def step(self, state):
        n = state.students.n_updates + 1
        metrics = dict.fromkeys(("loss", "grad_norm"), jnp.float32(1)) | {self.name: jnp.where(n[0] == 3, jnp.inf, 1.0)}
        return state.replace(clock=state.clock + 1, students=state.students.replace(n_updates=n)), metrics


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_run_stops_at_the_first_update_that_is_not_finite(name):
    program = SeedRunner(Breaks(name), n_seeds=2)
    state, report = program.run(program.init(0), 5)
    assert (int(report.n_steps), state.students.n_updates.tolist()) == (3, [[3], [3]])
    assert report.nonfinite.all()
    assert not program.run(program.init(0), 2)[1].nonfinite.any()


@dataclasses.dataclass(frozen=True)
class GoesOn(Breaks):
    """A runner with two students, whose episodes go on. The first finishes 2 and 0 of them, the second 1 and 3."""

    continues = True

    def step(self, state):
        is_first = state.clock == 0
        # The second student's return is always its number of episodes.
        n = jnp.where(is_first, jnp.array([2.0, 1.0]), jnp.array([0.0, 3.0]))
        state, metrics = super().step(state)
        metrics |= {"return": jnp.where(is_first, 7.0, jnp.nan), "episodes": n[0]}
        return state, metrics | {"student_1/return": n[1], "student_1/episodes": n[1]}


def test_over_several_updates_each_student_has_its_own_episodes_as_weights():
    program = SeedRunner(GoesOn("other"))
    _, report = program.run(program.init(0), 2)
    found = {name: float(x[0]) for name, x in report.metrics.items()}
    assert (found["return"], found["student_1/return"]) == (7, (1 * 1 + 3 * 3) / 4)


def test_where_episodes_go_on_each_student_has_its_own_number():
    """The first finishes one episode, the second two."""
    rewards, done = (
        np.concatenate([by_row(*x), by_row(*y)], axis=1) for x, y in (([[1, 5]], [[2, 4]]), ([[1, 0]], [[1, 1]]))
    )
    found = measured(ended_metrics, rewards, done)
    assert [float(found[f"student_{i}/{name}"]) for i in (0, 1) for name in ("episodes", "return")] == [1, 1, 2, 3]
