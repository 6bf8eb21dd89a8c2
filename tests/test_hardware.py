"""The line about devices and precision, and the hint about an accelerator that is not used."""

import jax
import pytest
from toy_program import EVALUATION, toy_config, toy_program

from minimax_lib.experiment import hardware
from minimax_lib.experiment.hardware import hardware_line, missed_accelerator
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.models.settings import LSTM


def machine(monkeypatch, files=(), programs=(), modules=()):
    """A machine with these files, programs and Python modules."""
    monkeypatch.setattr(hardware, "exists", lambda paths: bool(set(paths) & set(files)))
    monkeypatch.setattr(hardware, "is_installed", lambda module: module in modules)
    monkeypatch.setattr(hardware.shutil, "which", lambda program: program if program in programs else None)


def test_the_line_names_platform_devices_and_precision():
    line = hardware_line(2, LSTM(dtype="bfloat16"))
    assert line.startswith(f"cpu: 2 of {jax.device_count()} devices (")
    assert line.endswith(" cores), network in bfloat16, matrix products in float32")
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
    assert hardware_line(4, LSTM()) == (
        "gpu: 4 of 8 devices (NVIDIA H200), 2 processes, network in float32, "
        "matrix products in TensorFloat-32 where the GPU has it"
    )


@pytest.mark.parametrize("there", [{"files": ("/dev/nvidia0",)}, {"programs": ("nvidia-smi",)}])
def test_a_gpu_without_its_plugin_is_told_what_to_install(there, monkeypatch):
    machine(monkeypatch, **there)
    hint = missed_accelerator("cpu", None)
    assert hint.startswith("there seems to be an NVIDIA GPU; jax is installed without it: pip install ")
    assert '"minimax-ued[cuda13]"' in hint
    assert missed_accelerator("gpu", None) is None


def test_other_reasons_for_the_cpu(monkeypatch):
    machine(monkeypatch, files=("/dev/nvidia0",), modules=("jax_cuda13_plugin",))
    assert "could not start it" in missed_accelerator("cpu", None)
    assert "JAX_PLATFORMS=cpu keeps jax from using it" in missed_accelerator("cpu", "cpu")
    machine(monkeypatch, files=("/dev/accel0",))
    assert missed_accelerator("cpu", None).endswith('pip install "minimax-ued[tpu]"')
    machine(monkeypatch)
    assert missed_accelerator("cpu", None) is None


def test_a_run_says_it_once_and_first(tmp_path, capsys):
    config = toy_config(tmp_path)
    assert ExperimentRunner(config, toy_program(config), EVALUATION).run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == hardware_line(1, config.model)
    assert lines.count(lines[0]) == 1
