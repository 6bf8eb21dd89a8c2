"""Global settings of jax that make a run impossible, refused in one line. docs/troubleshooting.md tells of others."""

from typing import Any

import jax

from minimax_lib.messages import one_line

REFUSED: dict[str, tuple[Any, str]] = {
    "jax_enable_x64": (True, "this package computes with 32 bits"),
    "jax_debug_infs": (True, "scores begin at -inf here; JAX_DEBUG_NANS finds numbers that are wrong"),
    "jax_numpy_dtype_promotion": ("strict", "this package mixes types of numbers"),
}


def check_settings() -> None:
    """ValueError in one line where a setting of jax cannot be met. This computes nothing."""
    for name, (refused, why) in REFUSED.items():
        if getattr(jax.config, name, None) == refused:
            raise ValueError(f"{name.upper()} is {refused!r}: {why}, so unset it")


def check_jax() -> None:
    """The same, also where jax finds no device. This starts jax's backend, and then its devices are fixed."""
    check_settings()
    try:
        jax.devices()
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        asked = f"JAX_PLATFORMS is {platforms!r}: " if platforms else ""
        raise ValueError(f"{asked}jax finds no device ({one_line(error)}); try JAX_PLATFORMS=cpu") from error
