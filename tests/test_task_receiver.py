"""What stands between a task curriculum and an environment: names that are taken, wrappers, rows, copied processes."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_attempts import MODES, B, N, Paying, Told, play

import minimax_lib
from minimax_lib.portable.host import Host
from minimax_lib.tasks import TSCL, Uniform
from minimax_lib.tasks.spaces import Discrete, Product

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import RecordEpisodeStatistics  # noqa: E402

from minimax_lib.portable.check import check_tasks  # noqa: E402
from minimax_lib.portable.export import gymnasium_env  # noqa: E402
from minimax_lib.portable.task_receiver import HOLDS, TASK, TaskReceiver, as_option  # noqa: E402
from minimax_lib.portable.task_vector import TaskVectorEnv  # noqa: E402


class Named(Paying):
    """Its observation is a dict, and its infos and options are what it is told."""

    def __init__(self, entry: str = "place", info: str = "where"):
        super().__init__(length=3)
        self.entry, self.info = entry, info
        self.observation_space = gymnasium.spaces.Dict({entry: Paying.observation_space})

    def reset(self, *, seed=None, options=None):
        self.options = options
        obs, _ = super().reset(options=options)
        return {self.entry: obs}, {self.info: 1}

    def step(self, action):
        obs, *rest, _ = super().step(action)
        return {self.entry: obs}, *rest, {self.info: 1}


def received(index: int | None = None, env: Any = None, **settings: Any) -> TaskReceiver:
    return TaskReceiver(env or Paying(3), index, Discrete(N), as_option, **settings)


def sync(maker: Any, mode: Any = AutoresetMode.NEXT_STEP, host: Host | None = None) -> TaskVectorEnv:
    return TaskVectorEnv(SyncVectorEnv([maker] * B, autoreset_mode=mode), host or Host(Uniform(N)))


def test_names_that_are_taken_are_refused():
    with pytest.raises(ValueError, match="has an entry 'task' of its own: rename it, or leave out show"):
        received(env=Named("task"), show=True)
    with pytest.raises(ValueError, match="has an entry 'task'"):
        received(env=Named("task"), show=np.eye(N))
    received(env=Named("task"))  # nothing is shown, so nothing is taken
    shown = received(env=Named("place"), show=True)
    assert set(shown.observation_space.spaces) == {"place", "task"}
    for mode in MODES:
        with pytest.raises(ValueError, match="infos: 'curriculum_task' is given already"):
            sync(lambda: received(env=Named(info="curriculum_task")), mode).reset()
    ends = sync(lambda: received(env=Named(info="curriculum_end")))
    ends.reset()
    with pytest.raises(ValueError, match="infos: 'curriculum_end' is given already"):
        play(ends, 3)
    envs = sync(lambda: received(env=Named()))
    envs.reset(options={"tasks": 3, "holds": "on"})  # an environment's own names reach it
    assert all(options["tasks"] == 3 and options["holds"] == "on" for options in envs.env.get_attr("options"))
    for name in ("task", "curriculum_tasks", "curriculum_holds"):
        with pytest.raises(ValueError, match=f"the options of reset: '{name}' is given already"):
            envs.reset(options={name: 3})


class OneEachStep(Paying):
    """Each step is an attempt."""

    def step(self, action):
        return *super().step(action)[:4], {"attempt_ended": True}


@pytest.mark.parametrize("follows", [None, np.array([7.0], np.float32)], ids=["kept", "new"])
def test_after_an_attempt_the_next_task_is_shown_with_the_observation_that_follows(follows):
    env = received(0, OneEachStep(9), change=lambda env, task: follows, show=True)
    obs, _ = env.reset(options={HOLDS: False, TASK: 3})
    assert (obs["observation"].tolist(), obs["task"]) == ([3], 3)
    obs, *_, info = env.step((0, 5))
    assert (obs["observation"].tolist(), obs["task"], info[TASK]) == ([3 if follows is None else 7], 5, 5)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("index", [None, 0])
def test_rows_are_numbered_where_nobody_can_give_an_index(mode, index):
    host = Told(TSCL(N))
    envs = sync(lambda: received(index), mode, host)
    obs, _ = envs.reset()
    np.testing.assert_array_equal(obs.ravel(), envs.tasks)
    play(envs, 20)
    assert all(total == 3 * task for task, total, _ in host.results)
    assert len(host.results) >= 10


def test_environments_of_make_vec_are_numbered():
    gymnasium.register("Paying-v0", entry_point=Paying)
    for how in ("sync", "async"):
        host = Told(TSCL(N), seed=1)
        wrappers = [lambda env: received(0, env)]
        made = gymnasium.make_vec("Paying-v0", num_envs=B, vectorization_mode=how, wrappers=wrappers)
        envs = TaskVectorEnv(made, host)
        obs, _ = envs.reset()
        np.testing.assert_array_equal(obs.ravel(), envs.tasks)
        envs.close()


class Limited(gymnasium.wrappers.TimeLimit):
    """It stands around TaskReceiver, where none should."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env, 2)


class Silent(gymnasium.Wrapper):
    """It drops infos."""

    def reset(self, **given):
        return self.env.reset(**given)[0], {}


@pytest.mark.parametrize("mode", MODES[:2], ids=lambda mode: mode.value)
def test_what_resets_an_environment_in_the_middle_is_named(mode):
    envs = sync(lambda: Limited(received()), mode)
    envs.reset()
    with pytest.raises(RuntimeError, match="a wrapper around TaskReceiver has ended the episode, such as TimeLimit"):
        play(envs, 4)
    envs = sync(received, mode)
    envs.reset()
    with pytest.raises(RuntimeError, match="Either something has called its reset"):
        envs.env.envs[1].reset()
    with pytest.raises(RuntimeError, match="TaskReceiver must be the last of its wrappers"):
        sync(lambda: Silent(received()), mode).reset()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["progress", "reward"])
@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 25.0])
def test_wrong_numbers_of_an_environment_are_named(mode, name, number):
    class Wrong(Paying):
        def step(self, action):
            obs, reward, *rest, _ = super().step(action)
            return (
                obs,
                number if name == "reward" else reward,
                *rest,
                {"progress": number} if name == "progress" else {},
            )

    host = Host(TSCL(N))
    envs = sync(lambda: received(env=Wrong(3)), mode, host)
    envs.reset()
    if name == "reward" and number == 25:
        return play(envs, 7)  # any finite reward is right
    with pytest.raises(ValueError, match=f"{name} is {number:g}: it must be a finite number"):
        play(envs, 3)
    assert host.n_told["results"] == 0


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("others", "own"), [(0, 0.5), (False, 0.5), (np.float32(0), 1), (0.25, True)])
def test_progress_is_what_each_row_says_whatever_the_type_in_the_other_rows(mode, others, own):
    class Saying(Paying):
        def step(self, action):
            obs, reward, _, truncated, _ = super().step(action)
            return obs, reward, truncated, False, {"progress": own if self.task % 2 else others}

    found = []
    host = Host(Uniform(N))
    host.report = lambda task, progress, **told: found.extend(zip(task % 2, progress, strict=True))  # type: ignore[method-assign]
    envs = sync(lambda: received(env=Saying(3)), mode, host)
    envs.reset()
    play(envs, 30)
    assert {(int(odd), float(progress)) for odd, progress in found} == {(0, float(others)), (1, float(own))}


def test_progress_that_is_no_number_is_named():
    class Wrong(Paying):
        def step(self, action):
            return *super().step(action)[:4], {"progress": "half"}

    envs = sync(lambda: received(env=Wrong(3)))
    envs.reset()
    with pytest.raises(ValueError, match="progress is 'half': it must be a finite number from 0 to 1"):
        play(envs, 1)


def test_a_wrapper_that_would_see_no_end_is_refused():
    def recorded(mode):
        return RecordEpisodeStatistics(SyncVectorEnv([received] * B, autoreset_mode=mode))

    with pytest.raises(ValueError, match="put RecordEpisodeStatistics around TaskVectorEnv"):
        TaskVectorEnv(recorded(AutoresetMode.NEXT_STEP), Host(Uniform(N)))
    for mode in MODES[1:]:  # there it sees all ends
        assert mode is not AutoresetMode.NEXT_STEP
        TaskVectorEnv(recorded(mode), Host(Uniform(N)))


def test_a_reset_that_is_forgotten_is_named():
    for mode in MODES:
        envs = sync(received, mode)
        with pytest.raises(RuntimeError, match=r"rows \[0, 1\] have no task: call reset before the first step"):
            envs.step(np.zeros(B, int))

    class Numberless(SyncVectorEnv):
        """Another vector environment, which numbers no rows."""

        @property
        def unwrapped(self):
            return object()

    with pytest.raises(ValueError, match="index is None, and this vector environment numbers no rows"):
        TaskVectorEnv(Numberless([received] * B), Host(Uniform(N))).reset()


# Copied processes, in which JAX hangs

HINT = r'AsyncVectorEnv\(..., context="forkserver"\)'


def test_our_environments_refuse_a_process_in_which_they_would_hang():
    Host(TSCL(N)).draw(1)  # JAX is at work
    maze = minimax_lib.make_env("AMaze", height=3, width=3, n_walls=2, max_steps=6)
    envs = AsyncVectorEnv([lambda: gymnasium_env(maze)])
    with pytest.raises(RuntimeError, match=HINT):
        envs.reset(seed=0)
    envs.close(terminate=True)


SCRIPT = """
import functools, sys
import gymnasium, jax, jax.numpy as jnp, numpy as np
from gymnasium.vector import AsyncVectorEnv
from minimax_lib.portable.host import Host
from minimax_lib.portable.task_receiver import TaskReceiver, as_seed
from minimax_lib.portable.task_vector import TaskVectorEnv
from minimax_lib.tasks import TSCL
from minimax_lib.tasks.spaces import Discrete, Product


class OfJax(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.compiled = jax.jit(lambda x: x * 2 + jnp.sin(x))
        return np.asarray(self.compiled(np.ones(2, np.float32))), {}

    def step(self, action):
        return np.asarray(self.compiled(np.ones(2, np.float32))), 0.0, False, False, {}


def make(index):
    return TaskReceiver(OfJax(), index, Discrete(8), as_seed)


if __name__ == "__main__":
    host = Host(TSCL(8))
    host.draw(1)
    envs = AsyncVectorEnv([functools.partial(make, i) for i in range(2)], context=sys.argv[1])
    envs = TaskVectorEnv(envs, host)
    envs.reset()
    envs.step(np.zeros(2, int))
    envs.close()
    print("played")
"""


@pytest.mark.deep
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_a_process_that_hangs_in_jax_ends_with_a_line_that_says_what_to_do(context, tmp_path):
    file = tmp_path / "copied.py"
    file.write_text(SCRIPT)
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(file), context],
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if context == "forkserver":
        assert done.stdout == "played\n"
    else:
        assert done.returncode != 0
        assert "JAX hangs in such a copy: start the environments with AsyncVectorEnv(" in done.stderr
        assert "RuntimeError: the process of an environment has ended" in done.stderr


class Deaf(Paying):
    """It takes no notice of its task."""

    def reset(self, *, seed=None, options=None):
        return super().reset(options={"task": 0})


class Later(Paying):
    """Its first observation is the same for all tasks."""

    def reset(self, *, seed=None, options=None):
        return 0 * super().reset(options=options)[0], {}


@pytest.mark.parametrize("space", [Discrete(N), Product((Discrete(2), Discrete(3)), ("a", "b"))])
def test_tasks_that_make_no_difference_are_noticed_before_the_training(space):
    number = as_option if isinstance(space, Discrete) else lambda task: {"options": {"task": task["a"] + 2 * task["b"]}}
    for env in (Paying(3), Later(3)):
        check_tasks(env, space, number)
    with pytest.raises(
        ValueError, match=r"\d tasks bring the same observations and rewards in 32 steps: .*reset\(options="
    ):
        check_tasks(Deaf(3), space, number)


@pytest.mark.parametrize("env", [Paying, Later, Deaf])
def test_tasks_that_make_no_difference_are_noticed_in_the_training(env):
    makers = [lambda: TaskReceiver(env(3), None, Discrete(N), as_option)] * 8
    envs = TaskVectorEnv(SyncVectorEnv(makers), Host(Uniform(N)))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            envs.reset()
    assert sum("the same first observation" in str(warning.message) for warning in found) == (env is not Paying)
