"""Global settings of jax: what cannot be met is refused in one line; a healthy run makes no NaN for jax to find."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from minimax_lib import load_run
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.jax_settings import REFUSED, check_jax, check_settings
from minimax_lib.runners.build import make_program, trained_with
from minimax_lib.runners.seeds import SeedRunner
from tests import zoo
from tests.islands import Walk
from tests.still_agent import still_agent


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_cannot_be_met_are_refused_by_name(name):
    before, (refused, _) = jax.config.values[name], REFUSED[name]
    jax.config.update(name, refused)
    try:
        for use in (check_settings, check_jax, lambda: load_run("maze/dr"), lambda: trained_with(*PARTS)):
            with pytest.raises(ValueError, match=rf"^{name.upper()} is {refused!r}: .*, so unset it$"):
                use()
    finally:
        jax.config.update(name, before)
    check_settings()


PARTS = Walk(), still_agent(Walk()), DR(n_parallel=2, n_steps=4)
COMMANDS = """
import sys
from minimax_lib.commands import draw, evaluate, train
print([train.main(["--n-updates", "2", "--log-dir", sys.argv[1]]), evaluate.main(["--run", "maze/dr"]),
       draw.main(["maze/dr"])])
"""


@pytest.mark.parametrize("setting", ["JAX_PLATFORMS=cup", pytest.param("JAX_ENABLE_X64=1", marks=pytest.mark.deep)])
def test_commands_refuse_in_one_line_and_write_nothing(setting, tmp_path):
    name, _, value = setting.partition("=")
    command, where = [sys.executable, "-c", COMMANDS, str(tmp_path)], os.environ | {name: value}
    done = subprocess.run(command, env=where, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2, 2]\n"
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"error: {name} is ") for line in lines), lines
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_measured_is_divided_on_the_host():
    """With jax_debug_nans, 0 / 0 in a compiled program would stop a healthy run."""
    with jax.debug_nans(True):
        program = SeedRunner(trained_with(*PARTS), 2)
        state, report = program.run(program.init(0), 0)  # no step
        assert np.isnan(report.metrics["loss"]).all()
        _, report = program.run(state, 2)
    assert np.isfinite(report.metrics["loss"]).all()


@pytest.mark.deep
@pytest.mark.parametrize("method", zoo.METHODS)
def test_a_healthy_run_makes_no_nan(method):
    with jax.debug_nans(True):
        program = make_program(zoo.config_of(method))
        program.run(program.init(0), 4)
