"""Stages one after another: what belongs to a stage that is not the current one."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.tasks import ListedPLR, Results, Sequential

KEY = jax.random.key(0)


def ended(task, episode_return) -> Results:
    """Episodes of one attempt and one step."""
    yes, numbers = np.ones(len(task), bool), np.asarray(episode_return, np.float32)
    length = np.ones(len(task), np.int32)
    return Results(np.array(task, np.int32), yes, numbers, numbers, length, yes, numbers, np.full_like(numbers, np.nan))


def test_returns_on_tasks_that_the_stage_does_not_have_are_not_in_its_window():
    """The window of two holds 1 and 3, before and after an episode of another stage."""
    core = Sequential(2, ([0], [1]), ("episodes >= 100",), window=2)
    told = jax.jit(lambda given: core.update(core.init(KEY), given).progress.counters().episode_return)
    assert told(ended([0, 0, 1], [1, 3, 50])) == 2
    assert told(ended([0, 0, 0], [1, 3, 50])) == (3 + 50) / 2


def test_attempts_begin_in_the_current_stage_alone():
    """Both stages have both tasks, and remember when each was last begun."""
    core = Sequential(2, (ListedPLR(2), ListedPLR(2)), ("tasks >= 3",))

    @jax.jit
    def begun(tasks):
        first = core.started(core.init(KEY), tasks, jnp.ones(3, bool))
        second = core.started(first, tasks[:1], jnp.ones(1, bool))
        return [[stage.begun.count for stage in state.stages] for state in (first, second)]

    assert jax.tree.map(int, begun(np.array([0, 1, 0], np.int32))) == [[3, 0], [3, 1]]


def test_a_condition_is_checked_when_an_episode_ends_and_not_after_each_of_its_attempts():
    """It holds after the second of four attempts; the third one ends the episode."""
    core = Sequential(1, (0, 0), ("steps >= 2",))
    attempts = ended([0] * 4, [0] * 4).replace(episode=np.array([False, False, True, False]))
    stage = jax.jit(lambda state, given: core.update(state, given).progress.stage)
    states = [stage(core.init(KEY), attempts.replace(valid=np.arange(4) < n)) for n in (2, 3, 4)]
    assert list(map(int, states)) == [0, 1, 1]
