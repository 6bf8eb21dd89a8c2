"""Scores of attempts that come in pieces: those of a plain loop, and PLR in RLlib on two workers."""

import functools
import sys

import numpy as np
import pytest

from minimax_lib.portable.fragments import MOST_OPEN, Fragment, Fragments
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks import ListedPLR
from minimax_lib.tasks.spaces import Discrete

GAMMA, LAMBDA = 0.9, 0.8


def magnitudes(reward, value, ends):
    """The magnitudes of the advantages (GAE) of one fragment, by a loop over its steps."""
    found, running = [], 0.0
    for t in range(len(reward) - 1, -1, -1):
        goes_on = not (ends and t == len(reward) - 1)
        delta = reward[t] + GAMMA * value[t + 1] * goes_on - value[t]
        running = delta + GAMMA * LAMBDA * running
        found.append(abs(running))
    return found


def test_scores_are_those_of_a_loop_over_the_steps():
    rng, fragments = np.random.default_rng(0), Fragments(Scoring(gamma=GAMMA, gae_lambda=LAMBDA))
    open_, n_ended = {f"w{i}/0": [] for i in range(5)}, 0
    for i in range(60):
        name = rng.choice(list(open_))
        t = int(rng.integers(1, 9))
        reward, value = rng.normal(size=t), rng.normal(size=t + 1)
        how = rng.choice(["goes on", "ends", "is cut"], p=[0.6, 0.2, 0.2])
        told = [Fragment(name, i, reward, value, how == "ends", how == "is cut")]
        if how == "is cut":
            reward = reward + np.eye(t)[-1] * GAMMA * value[-1]
        open_[name] += magnitudes(reward, value, how != "goes on")
        tasks, scores = fragments.scores(told)
        if how == "goes on":
            assert not tasks
            continue
        assert tasks == [i]
        assert scores == pytest.approx([np.mean(open_.pop(name))], rel=1e-5)
        n_ended += 1
        open_[f"{name}+"] = []
    assert n_ended > 15


def test_attempts_that_never_end_are_forgotten():
    fragments = Fragments(Scoring())
    for i in range(MOST_OPEN + 3):
        fragments._open[f"w/{i}"] = fragments._open.get("w/0")
    fragments.scores([Fragment("new", 0, [1.0], [0.0, 0.0], False, False)])
    assert len(fragments._open) == MOST_OPEN
    assert "new" in fragments._open
    with pytest.raises(ValueError, match=r"value is \[3\]: it must be \[2\]"):
        fragments.scores([Fragment("x", 0, [1.0], [0.0, 0.0, 0.0], True, False)])
    with pytest.raises(ValueError, match="reward is nan"):
        fragments.scores([Fragment("x", 0, [np.nan], [0.0, 0.0], True, False)])


def as_start(task):
    """CartPole from a start that is farther from the middle for a higher task."""
    return {"options": {"low": -0.04 * task - 0.01, "high": 0.04 * task + 0.01}}


def make_env(config):
    import gymnasium

    from minimax_lib.portable.task_ray import RemoteTaskEnv

    env = gymnasium.make("CartPole-v1", max_episode_steps=30)
    return RemoteTaskEnv(env, config["server"], Discrete(5), as_start)


@pytest.mark.deep
def test_plr_gets_its_scores_from_rllib_on_two_workers():
    ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
    pytest.importorskip("torch")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env

    from minimax_lib.portable.rllib_scores import TaskScores
    from minimax_lib.portable.task_ray import task_server

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        server = task_server(ListedPLR(5), Discrete(5), seed=0)
        register_env("starts", make_env)
        config = (
            PPOConfig()
            .environment("starts", env_config={"server": server})
            .env_runners(num_env_runners=2, num_envs_per_env_runner=2, rollout_fragment_length=20)
            .learners(learner_connector=functools.partial(TaskScores, server=server))
            .training(train_batch_size_per_learner=400, minibatch_size=200, num_epochs=1)
        )
        algorithm = config.build_algo()
        before = ray.get(server.call.remote("weights"))
        for _ in range(2):
            algorithm.train()
        told, after, state = ray.get(
            [server.told.remote(), server.call.remote("weights"), server.call.remote("state_dict")]
        )
        algorithm.stop()
    finally:
        ray.shutdown()
    np.testing.assert_allclose(before, 0.2)
    # Fragments have 20 steps and episodes up to 30, so many scores come from two of them.
    assert told["scores"] > 20
    assert abs(told["scores"] - told["results"]) <= 0.3 * told["results"]
    assert state["core.seen"].all()
    assert np.isfinite(state["core.scores"]).all()
    assert (state["core.scores"] > 0).all()
    assert np.ptp(after) > 0.05
