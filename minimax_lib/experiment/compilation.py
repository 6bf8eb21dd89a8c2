"""The cache of compiled programs, which saves the next process from compiling them again."""

import os
from pathlib import Path

import jax


def keep_compiled_programs(place: str) -> None:
    """Keeps the compiled programs of this process in the folder `place`.

    "auto" is $JAX_COMPILATION_CACHE_DIR or, if that is not set, a folder in the user's cache. "none" keeps nothing.
    """
    if place == "none":
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if place == "auto":
        place = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(user_cache() / "minimax_lib" / "jax")
    jax.config.update("jax_compilation_cache_dir", place)
    # By default JAX keeps only programs that took a second to compile, but a run starts with many smaller ones. A least
    # size of 0 would let JAX choose one; -1 means that programs of any size are kept.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def user_cache() -> Path:
    """The user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
