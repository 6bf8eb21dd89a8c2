"""What scores are made of, on small hand-made trajectories: steps that do not count, several rows, several students."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.curricula.base import Attempts
from minimax_lib.curricula.experience import comparable, discounted_mean, with_unfinished
from minimax_lib.curricula.levels.sfl import learnability_of
from minimax_lib.playing.episodes import Played, alone
from minimax_lib.playing.returns import EpisodeReturns, episode_returns
from tests.test_evaluation import Corridor, CorridorLevel, Walker
from tests.test_scores import rollouts


def episodes_of(reward, done, n_evals: int = 1, in_turn: bool = False) -> EpisodeReturns:
    """Of students [A] on rows [R], whose rewards and ends are [T, A, R]."""
    reward = np.asarray(reward, np.float32)
    return episode_returns(rollouts(reward, done, reward, reward[0]).steps, n_evals, in_turn)


def test_a_return_is_discounted_from_the_first_step_that_counts():
    """The row comes to its level with step 2, stays for 3 steps, and is elsewhere for 2 before its second episode."""
    reward = np.array([5, 5, 1, 2, 4, 5, 5, 3, 8], np.float32)[:, None, None]
    done = np.array([0, 0, 0, 0, 1, 0, 0, 0, 1], bool)[:, None, None]
    valid = np.array([0, 0, 1, 1, 1, 0, 0, 1, 1], bool)[:, None, None]
    steps = rollouts(reward, done, reward, reward[0]).steps.replace(valid=valid)
    np.testing.assert_allclose(discounted_mean(steps, 0.5, 1), [[((1 + 2 / 2 + 4 / 4) + (3 + 8 / 2)) / 2]])


def test_the_reward_of_the_first_step_of_a_whole_episode_is_not_discounted():
    """One step to the goal; or three, with a rest before the last of them. After its end, the corridor pays 5."""
    levels = CorridorLevel(np.array([1, 3], np.int32), np.array([12, 12], np.int32))
    play = jax.jit(alone(Corridor(), Walker(), discount=0.5).play)
    played = play(jax.random.key(0), (np.float32(1),), levels)
    np.testing.assert_allclose(played.discounted, [1 - 1 / 100, (1 - 4 / 100) / 8], rtol=1e-6)


def test_learnability_is_of_each_student_alone_and_then_their_mean():
    """The first student solves one of two episodes on the first level, the second none. On the second, one each."""
    progress = jnp.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    found = learnability_of(Attempts(Played((), (), progress, {}), jnp.uint32(0)))
    np.testing.assert_allclose(found, [(1 / 4 + 0) / 2, 1 / 4])


def test_in_turn_students_are_compared_where_all_of_them_have_finished():
    """Both students finish level 0, one of them level 1, and none level 2."""
    done = np.array([[[1, 1, 0], [1, 0, 0]]])
    assert comparable(episodes_of(done, done, in_turn=True)).tolist() == [True, False, False]
    assert comparable(episodes_of(done, done)).tolist() == [True, True, False]


def test_a_student_without_an_episode_has_the_mean_and_the_best_of_its_rows_so_far():
    reward = np.array([[[-1.0, 2.0]], [[-1.0, 2.0]]])
    found = with_unfinished(episodes_of(reward, np.zeros_like(reward), n_evals=2))
    assert (found.mean.tolist(), found.best.tolist()) == ([[1.0]], [[4.0]])
