"""One line about what a run computes on, and a hint if jax has missed an accelerator."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from minimax_lib.runners.hosts import n_cores

# What jax's own default precision makes of the product of two float32 matrices.
PRODUCTS = {"cpu": "float32", "gpu": "TensorFloat-32 where the GPU has it", "tpu": "bfloat16"}
NVIDIA_FILES = ("/proc/driver/nvidia/version", "/dev/nvidia0")
TPU_FILES = ("/dev/accel0",)


def say_hardware(say: Callable[[str], None], n_devices: int, model: Any) -> None:
    """Says which of the devices are used and in what precision `model`, settings of a network, computes.

    This starts jax's backend, so that it must not be called before the checks of the command line.
    """
    say(hardware_line(n_devices, model))
    hint = missed_accelerator(jax.default_backend(), getattr(jax.config, "jax_platforms", None))
    if hint:
        say(f"hint: {hint}")


def hardware_line(n_devices: int, model: Any) -> str:
    """The platform, how many of its devices are used, what they are, and the precision."""
    platform, there = jax.default_backend(), jax.device_count()
    kind = f"{n_cores()} cores" if platform == "cpu" else jax.devices()[0].device_kind
    parts = [f"{platform}: {n_devices} of {there} device{'s' if there > 1 else ''} ({kind})"]
    if jax.process_count() > 1:
        parts.append(f"{jax.process_count()} processes")
    # A model of somebody else's may have no such setting.
    if getattr(model, "dtype", None):
        parts.append(f"network in {model.dtype}")
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    products = f"at precision {precision}" if precision else f"in {PRODUCTS.get(platform, 'the default precision')}"
    return ", ".join([*parts, f"matrix products {products}"])


def missed_accelerator(platform: str, asked_for: str | None) -> str | None:
    """What to do if the CPU is used and there seems to be something faster; None if there is nothing to do.

    `asked_for` is the platform that the user has chosen (JAX_PLATFORMS), if any.
    """
    if platform != "cpu":
        return None
    if exists(NVIDIA_FILES) or shutil.which("nvidia-smi"):
        what, installed = "an NVIDIA GPU", is_installed("jax_cuda12_plugin") or is_installed("jax_cuda13_plugin")
        extra = '"minimax-ued[cuda13]" (for a driver older than 580: "minimax-ued[cuda12]")'
    elif exists(TPU_FILES):
        what, installed, extra = "a TPU", is_installed("libtpu"), '"minimax-ued[tpu]"'
    else:
        return None
    if asked_for:
        return f"there seems to be {what}; JAX_PLATFORMS={asked_for} keeps jax from using it"
    if installed:
        return f"there seems to be {what}; jax has what it needs for it, and could not start it (see jax's warnings)"
    return f"there seems to be {what}; jax is installed without it: pip install {extra}"


def exists(paths: tuple[str, ...]) -> bool:
    return any(Path(path).exists() for path in paths)


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
