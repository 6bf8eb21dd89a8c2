"""Four host devices, programs that compile fast, and no silent rank promotion, before jax is imported."""

import os
import signal
import tempfile
from pathlib import Path

# A program of the tests runs once or twice: it pays to compile it fast, not to make it fast.
# Not --xla_cpu_use_fusion_emitters=false: one computation would differ in its last bit from program to program, and
# tests compare bits.
COMPILE_FAST = (
    "--xla_backend_optimization_level=0",
    # Both copy loops within loops again and again, and take longer than all other passes together.
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion,simplify-while-loops",
)
# Whoever begins with a long file at the end works alone for as long as it takes.
LONGEST_FIRST = """
    hosts run_safety curricula devices teacher long_episodes loops curriculum_conformance level_buffer ppo notebooks
    part_conformance evaluate_cli wrappers training strangers report sweep scores maze_teacher checkpoint s5 cli
"""

os.environ.setdefault("JAX_PLATFORMS", "cpu")
FLAGS = os.environ.get("XLA_FLAGS", "")
if "host_platform_device_count" not in FLAGS:
    own = ("--xla_force_host_platform_device_count=4", *COMPILE_FAST)
    os.environ["XLA_FLAGS"] = " ".join((FLAGS, *own)).strip()
CACHE = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "minimax_lib_test_cache"))

import jax  # noqa: E402

jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")

import pytest  # noqa: E402

# A shell that starts something in the background makes it ignore Ctrl-C, and everything that it starts. Tests of Ctrl-C
# would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # and nohup does so with a terminal that is closed
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    """Both workers end together."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST.split())}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs are mapped into memory piece by piece, and the kernel allows a process 65,530 pieces."""
    yield
    jax.clear_caches()
