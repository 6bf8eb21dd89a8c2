"""What XLA cannot do is one line, with the settings that decide the memory where there is too little of it."""

import jax
import jax.numpy as jnp
import pytest
from toy_program import SlowProgram, toy_config, toy_experiment, toy_program

from minimax_lib.commands import evaluate
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.experiment.failures import evaluation_failure, training_failure
from minimax_lib.store.files import saved_updates

TOO_MUCH = 1 << 46  # numbers


class Hungry(SlowProgram):
    """Asks for more memory than there is from update 10 on; `fails_with` is raised instead, if there is any."""

    fails_with: Exception | None = None

    def run(self, state, target_updates, *bound):
        if target_updates > 10:
            if self.fails_with:
                raise self.fails_with
            jax.block_until_ready(jnp.zeros(TOO_MUCH))
        return super().run(state, target_updates, *bound)


def hungry(config, fails_with=None):
    program = Hungry(toy_program(config), 0.0)
    program.fails_with = fails_with
    return toy_experiment(config, program)


def test_out_of_memory_is_one_line_that_names_what_decides_it(tmp_path, capsys):
    config = toy_config(tmp_path, runner=PLR(capacity=64))
    assert hungry(config).run() == 1
    assert capsys.readouterr().err == (
        f"error: out of memory: RESOURCE_EXHAUSTED: Out of memory allocating {4 * TOO_MUCH} bytes.; "
        "a smaller --runner.n-parallel (now 32), --runner.capacity (now 64), --n-seeds (now 2) "
        "or a larger --ppo.n-chunks (now 1) needs less; the newest checkpoint is that of update 8\n"
    )
    assert saved_updates(config.run_folder / "checkpoints") == [4, 8]
    resumed = toy_config(tmp_path, runner=PLR(capacity=64), resume=True)
    assert toy_experiment(resumed).run() == 0


def test_every_other_error_of_xla_is_one_line_too(tmp_path, capsys):
    lost = jax.errors.JaxRuntimeError("INTERNAL: the device\nis lost")
    assert hungry(toy_config(tmp_path), lost).run() == 1
    line = "error: XLA failed: INTERNAL: the device is lost; the newest checkpoint is that of update 8\n"
    assert capsys.readouterr().err == line


def test_a_bug_keeps_its_traceback(tmp_path):
    with pytest.raises(TypeError, match="a bug"):
        hungry(toy_config(tmp_path), TypeError("a bug")).run()


def test_the_host_may_run_out_too():
    line = training_failure(MemoryError("Unable to allocate 256. TiB"), {"ppo.n_chunks": 1, "runner.n_parallel": 32})
    assert line.startswith("out of memory: Unable to allocate 256. TiB; a smaller --runner.n-parallel (now 32) or")
    in_turn = {"runner.n_parallel": 32, "runner.levels_per_row": 8, "ppo.n_chunks": 1}
    assert "a smaller --runner.n-parallel (now 32), --runner.levels-per-row (now 8) or" in training_failure(
        MemoryError(), in_turn
    )
    assert "levels-per-row" not in training_failure(MemoryError(), in_turn | {"runner.levels_per_row": 1})
    assert training_failure(OSError("disk"), {}) == "disk"
    assert evaluation_failure(MemoryError(), 100) == (
        "out of memory: MemoryError; a smaller --n-episodes (now 100) or fewer --tasks need less"
    )


def test_an_evaluation_that_runs_out_is_one_line(tmp_path, capsys, monkeypatch):
    """Every check has been passed; then there is too little memory."""
    config = toy_config(tmp_path)
    toy_experiment(config).run()
    capsys.readouterr()
    monkeypatch.setattr(evaluate, "keep_compiled_programs", lambda place: None)
    monkeypatch.setattr(evaluate, "evaluate", lambda *_: jax.block_until_ready(jnp.zeros(TOO_MUCH)))
    assert evaluate.main(["--run", str(config.run_folder), "--n-episodes", "7"]) == 1
    assert capsys.readouterr().err == (
        f"error: out of memory: RESOURCE_EXHAUSTED: Out of memory allocating {4 * TOO_MUCH} bytes.; "
        "a smaller --n-episodes (now 7) or fewer --tasks need less\n"
    )
