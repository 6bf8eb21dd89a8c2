"""One line about what a run computes on, and a hint if jax has missed an accelerator."""

import importlib.util
import platform as system
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from minimax_lib.extras import how_to_install
from minimax_lib.runners.hosts import n_cores

# What jax's own default precision makes of the product of two float32 matrices.
PRODUCTS = {"cpu": "float32", "gpu": "TensorFloat-32 where the GPU has it", "tpu": "bfloat16"}
NVIDIA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidia0")
TPU_FILES = ("/dev/accel0",)
CPU_FILE = Path("/proc/cpuinfo")
LONGEST_NAME = 100  # characters of a processor's name


def say_hardware(say: Callable[[str], None], n_devices: int, model: Any) -> str:
    """Says which of the devices are used and in what precision `model`, settings of a network, computes.

    Returns that line. This starts jax's backend, so that it must not be called before the checks of the command line.
    """
    line = hardware_line(n_devices, model)
    say(line)
    hint = missed_accelerator(jax.default_backend(), getattr(jax.config, "jax_platforms", None))
    if hint:
        say(f"hint: {hint}")
    return line


def hardware_line(n_devices: int, model: Any) -> str:
    """The platform, how many of its devices are used, what they are, the processor, and the precision."""
    platform, there = jax.default_backend(), jax.device_count()
    host = f"{processor()}, {n_cores()} core{'s' if n_cores() > 1 else ''}"
    kind = host if platform == "cpu" else jax.devices()[0].device_kind
    parts = [f"{platform}: {n_devices} of {there} device{'s' if there > 1 else ''} ({kind})"]
    if platform != "cpu":
        parts.append(f"host {host}")
    if jax.process_count() > 1:
        parts.append(f"{jax.process_count()} processes")
    # The model of a plugin may have no such setting.
    if getattr(model, "dtype", None):
        parts.append(f"network in {model.dtype}")
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    products = f"at precision {precision}" if precision else f"in {PRODUCTS.get(platform, 'the default precision')}"
    return ", ".join([*parts, f"matrix products {products}"])


def processor() -> str:
    """The name of this machine's processor, or at least its kind, such as x86_64."""
    name = ""
    if CPU_FILE.exists():
        lines = CPU_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
        # Linux names the model of some processors, such as x86, and not of others, such as ARM.
        name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    elif system.system() == "Darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        name = asked.stdout
    plain = " ".join(name.split())
    return plain[:LONGEST_NAME] or system.machine() or "unknown processor"


def missed_accelerator(platform: str, asked_for: str | None) -> str | None:
    """What to do if the CPU is used and there seems to be something faster; None if there is nothing to do.

    `asked_for` is the platform that the user has chosen (JAX_PLATFORMS), if any.
    """
    if platform != "cpu":
        return None
    if exists(NVIDIA_FILES) or shutil.which("nvidia-smi"):
        what, installed = "an NVIDIA GPU", is_installed("jax_cuda12_plugin") or is_installed("jax_cuda13_plugin")
        command = f"{how_to_install('cuda13')} (for a driver older than 580: {how_to_install('cuda12')})"
    elif exists(TPU_FILES):
        what, installed, command = "a TPU", is_installed("libtpu"), how_to_install("tpu")
    else:
        return None
    if asked_for:
        return f"there seems to be {what}; JAX_PLATFORMS={asked_for} keeps jax from using it"
    if installed:
        return f"there seems to be {what}; jax has what it needs for it, and could not start it (see jax's warnings)"
    return f"there seems to be {what}; jax is installed without it: {command}"


def exists(paths: tuple[str, ...]) -> bool:
    return any(Path(path).exists() for path in paths)


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
