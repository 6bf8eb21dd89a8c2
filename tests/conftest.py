"""Four host devices, a persistent compilation cache, and no silent rank promotion, before jax is imported."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
FLAGS = os.environ.get("XLA_FLAGS", "")
if "host_platform_device_count" not in FLAGS:
    os.environ["XLA_FLAGS"] = (
        f"{FLAGS} --xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0".strip()
    )
CACHE = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "minimax_lib_test_cache"))

import jax  # noqa: E402

jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")

import pytest  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs are mapped into memory piece by piece, and the kernel allows a process 65,530 pieces."""
    yield
    jax.clear_caches()
