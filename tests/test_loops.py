"""Programs for accelerators differ (several steps share an iteration, for example), but their results do not."""

import ctypes
import multiprocessing
import resource
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.loops import on_cpu, release_compiler_memory, steps_at_once
from minimax_lib.models.registry import MODELS
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner

ENV = AMaze(height=5, width=5, n_walls=6, max_steps=7)
SIZES = {"n_parallel": 4, "n_steps": 22}  # no multiple of the steps in an iteration, or between two restockings
MODEL = {"conv_filters": 4, "head_width": 8, "memory_width": 8}


def test_memory_that_is_free_inside_of_the_process_goes_back_to_the_machine():
    """Blocks below the last one of the heap: without being asked, glibc keeps them."""
    try:
        ctypes.CDLL("libc.so.6")
        resident()
    except OSError:
        pytest.skip("no glibc, or no /proc")
    # In a new process: the one of the tests holds gigabytes, which may be given back at any time.
    process = multiprocessing.get_context("spawn").Process(target=free_memory_goes_back)
    process.start()
    process.join()
    assert process.exitcode == 0


def free_memory_goes_back():
    """AssertionError unless it does."""
    libc = ctypes.CDLL("libc.so.6")
    release_compiler_memory()  # so that blocks are not made of what is there already
    before = resident()
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    size, n = 100_000, 3_000
    blocks = [libc.malloc(size) for _ in range(n)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    full = resident()
    assert full - before > 0.9 * n * size
    for block in blocks[:-1]:
        libc.free(ctypes.c_void_p(block))
    assert resident() > full - 0.1 * n * size
    release_compiler_memory()
    assert resident() < full - 0.8 * n * size
    libc.free(ctypes.c_void_p(blocks[-1]))


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def one_update(runner: str, model: str):
    """(the students' parameters after an update, metrics) of a program compiled for the current backend."""
    network = MODELS[model](**MODEL, **({"n_blocks": 1, "state_size": 4} if model == "s5" else {}))
    agent = AgentPop(PPOAgent(network.build(ENV.observation_space, ENV.action_space), PPO(n_epochs=1)), 1)
    sizes = SIZES | ({"capacity": 16, "robust": False} if runner == "plr" else {})
    program = SeedRunner(trained_with(ENV, agent, RUNNERS[runner](**sizes)))
    state, report = program.run(program.init(0), 1)
    return state.students.params, report.metrics


def test_an_accelerator_takes_several_steps_at_once_and_a_cpu_one(monkeypatch):
    assert on_cpu()
    assert steps_at_once(8) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not on_cpu()
    assert steps_at_once(8) == 8


@pytest.mark.deep
@pytest.mark.parametrize(("runner", "model"), [("dr", "lstm"), ("dr", "s5"), ("plr", "gru")])
def test_a_program_for_an_accelerator_computes_the_same(runner, model, monkeypatch):
    here = one_update(runner, model)
    assert on_cpu()
    assert steps_at_once(8) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert steps_at_once(8) == 8
    params, metrics = one_update(runner, model)
    chex.assert_trees_all_close(params, here[0], rtol=1e-4, atol=1e-5)
    assert metrics.keys() == here[1].keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(value, here[1][name], rtol=1e-3, atol=1e-5, err_msg=name)
