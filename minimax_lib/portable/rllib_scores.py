"""Scores for curricula in RLlib's training, from the values of the network that is trained.

config.learners(learner_connector=functools.partial(TaskScores, server=server))
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI

from minimax_lib.portable.fragments import Fragment
from minimax_lib.portable.task_ray import ATTEMPT
from minimax_lib.portable.task_receiver import END, TASK, TERMINATED, TRUNCATED


class TaskScores(ConnectorV2):
    """Tells `server` of all steps that a learner of PPO gets, with the values of the network that is about to learn.

    It is a learner connector: the workers of RLlib have no value network. The environments are `RemoteTaskEnv`, which
    say in their infos what they play. The learner does not wait for the server. Networks with memory are refused.
    """

    def __init__(self, input_observation_space: Any = None, input_action_space: Any = None, *, server: Any = None):
        super().__init__(input_observation_space, input_action_space)
        self._server = server

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Sequence[Any], **others: Any) -> Any:
        played = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        fragments = [fragment for episode in played for fragment in fragments_of(rl_module, episode)]
        if fragments:
            self._server.report_fragments.remote(fragments)
        return batch


def fragments_of(rl_module: Any, episode: Any) -> Iterator[Fragment]:
    """The steps of an episode of RLlib, which PPO has made one step longer for the value of its last observation."""
    infos = episode.get_infos()
    t = len(episode) - 1
    if t < 1 or TASK not in infos[t]:
        return
    module = rl_module["default_policy" if episode.module_id is None else episode.module_id]
    if module.is_stateful() or not isinstance(module, ValueFunctionAPI):
        raise ValueError(
            f"{type(module).__name__} has a memory, or no values: scores of it are not known to TaskScores; tell the "
            "server of scores by server.call.remote('report_scores', tasks, scores)"
        )
    how = infos[t].get(END, 0)
    yield Fragment(
        attempt=infos[t][ATTEMPT],
        task=infos[t][TASK],
        reward=np.asarray(episode.get_rewards(slice(0, t)), np.float32),
        value=values_of(module, episode.get_observations(slice(0, t + 1))),
        terminated=how == TERMINATED,
        truncated=how == TRUNCATED,
    )


def values_of(module: Any, obs: Any) -> np.ndarray:
    """f32[T + 1], the values of observations."""
    device = next(module.parameters()).device
    with torch.no_grad():
        return module.compute_values({Columns.OBS: on_device(obs, device)}).cpu().numpy().reshape(-1)


def on_device(obs: Any, device: Any) -> Any:
    """Observations as tensors."""
    if isinstance(obs, dict):
        return {name: on_device(part, device) for name, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(on_device(part, device) for part in obs)
    return torch.as_tensor(np.asarray(obs), device=device)
