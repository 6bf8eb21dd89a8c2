"""The line about devices and precision, what a run records of its machines, and the hint about an accelerator."""

import dataclasses
import platform
from pathlib import Path

import jax
import pytest
from toy_program import toy_config, toy_program

import minimax_lib
from minimax_lib import extras
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.experiment import hardware
from minimax_lib.experiment.hardware import hardware_line, missed_accelerator, processor
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.extras import how_to_install
from minimax_lib.models.settings import LSTM
from minimax_lib.store import origin
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.origin import Origin, read_origins, record


def machine(monkeypatch, files=(), programs=(), modules=()):
    """A machine with these files, programs and Python modules."""
    monkeypatch.setattr(hardware, "exists", lambda paths: bool(set(paths) & set(files)))
    monkeypatch.setattr(hardware, "is_installed", lambda module: module in modules)
    monkeypatch.setattr(hardware.shutil, "which", lambda program: program if program in programs else None)


def test_the_line_names_platform_devices_and_precision():
    line = hardware_line(2, LSTM(dtype="bfloat16"))
    assert line.startswith(f"cpu: 2 of {jax.device_count()} devices ({processor()}, ")
    assert line.endswith("), network in bfloat16, matrix products in float32")
    with jax.default_matmul_precision("highest"):
        assert hardware_line(1, LSTM()).endswith("network in float32, matrix products at precision highest")
    assert "network" not in hardware_line(1, object())  # a stranger's model, which does not say


def test_a_gpu_is_named_by_its_kind(monkeypatch):
    class Card:
        device_kind = "NVIDIA H200"

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [Card()] * 8)
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hardware, "processor", lambda: "AMD EPYC")
    monkeypatch.setattr(hardware, "n_cores", lambda: 16)
    assert hardware_line(4, LSTM()) == (
        "gpu: 4 of 8 devices (NVIDIA H200), host AMD EPYC, 16 cores, 2 processes, network in float32, "
        "matrix products in TensorFloat-32 where the GPU has it"
    )


def test_a_processor_is_named_as_the_system_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "CPU_FILE", tmp_path / "cpuinfo")
    assert processor() == platform.machine()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R)  Xeon(R) CPU\n" * 2)
    assert processor() == "Intel(R) Xeon(R) CPU"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")  # ARM
    assert processor() == platform.machine()


@pytest.mark.parametrize("there", [{"files": ("/dev/nvidia0",)}, {"programs": ("nvidia-smi",)}])
def test_a_gpu_without_its_plugin_is_told_what_to_install(there, monkeypatch):
    machine(monkeypatch, **there)
    hint = missed_accelerator("cpu", None)
    assert hint.startswith("there seems to be an NVIDIA GPU; jax is installed without it: pip install ")
    assert how_to_install("cuda13") in hint
    assert missed_accelerator("gpu", None) is None


def test_other_reasons_for_the_cpu(monkeypatch):
    machine(monkeypatch, files=("/dev/nvidia0",), modules=("jax_cuda13_plugin",))
    assert "could not start it" in missed_accelerator("cpu", None)
    assert "JAX_PLATFORMS=cpu keeps jax from using it" in missed_accelerator("cpu", "cpu")
    machine(monkeypatch, files=("/dev/accel0",))
    assert missed_accelerator("cpu", None).endswith(how_to_install("tpu"))
    machine(monkeypatch)
    assert missed_accelerator("cpu", None) is None


# ---------------------------------------------------------------------------------------------------- what is recorded


def test_a_run_says_its_machine_first_and_records_each_once(tmp_path, monkeypatch, capsys):
    config = toy_config(tmp_path, n_updates=2, eval=Evaluation(every=0))
    here = hardware_line(1, config.model)
    found, program = RunFolder(config.run_folder).origin, toy_program(config)

    def train(n_updates: int) -> None:
        own = dataclasses.replace(config, n_updates=n_updates, resume=True)
        assert ExperimentRunner(own, program).run() == 0

    train(2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == here
    assert lines.count(here) == 1
    [first] = read_origins(found)
    assert first == Origin(0, minimax_lib.__version__, origin.commit(), jax.__version__, here)
    train(4)
    assert read_origins(found) == [first]
    monkeypatch.setattr(hardware, "processor", lambda: "Intel Xeon")
    train(4)  # finished: nothing is trained on this one
    assert read_origins(found) == [first]
    train(6)
    [_, second] = read_origins(found)
    assert second == dataclasses.replace(first, update=4, machine=hardware_line(1, config.model))
    assert "(Intel Xeon, " in second.machine
    found.unlink()  # as in a run of an earlier version
    train(8)
    assert [one.update for one in read_origins(found)] == [6]


def test_damaged_records_are_passed_over_and_kept(tmp_path):
    path, one = tmp_path / "origin.jsonl", Origin(0, "1", "a", "2", "cpu")
    record(path, one)
    damaged = ["[1]", '{"update": "0"}', "{" * 5000, '{"update": 0, "version": "1", "comm']
    path.write_text(path.read_text() + "\n".join(damaged))
    record(path, dataclasses.replace(one, update=9))  # the last line that can be read says the same
    record(path, dataclasses.replace(one, update=9, machine="gpu"))
    assert read_origins(path) == [one, dataclasses.replace(one, update=9, machine="gpu")]
    assert path.read_text().splitlines()[1:5] == damaged


def test_only_a_checkout_has_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(origin, "CHECKOUT", tmp_path)
    origin.commit.cache_clear()
    assert origin.commit() == ""
    (tmp_path / ".git").mkdir()  # no repository after all
    origin.commit.cache_clear()
    assert origin.commit() == ""
    origin.commit.cache_clear()
    monkeypatch.setattr(origin, "CHECKOUT", Path(minimax_lib.__file__).parent.parent)
    assert bool(origin.commit()) == (origin.CHECKOUT / ".git").exists()


@pytest.mark.parametrize(
    ("checkout", "here", "command"),
    [
        (True, True, 'pip install -e ".[tpu]"'),
        (True, False, 'pip install -e "{checkout}[tpu]"'),
        (False, False, 'pip install "minimax-ued[tpu]"'),
    ],
)
def test_the_command_that_installs_an_extra_works_where_it_is_typed(checkout, here, command, tmp_path, monkeypatch):
    """In a checkout it names the checkout: no index has the package."""
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path / "project")
    (tmp_path / "project").mkdir()
    if checkout:
        (tmp_path / "project" / "setup.py").touch()
    monkeypatch.chdir(tmp_path / "project" if here else tmp_path)
    assert how_to_install("tpu") == command.format(checkout=tmp_path / "project")
