"""Where compiled programs are kept, so that the next process need not compile them again."""

import os
from pathlib import Path

import jax


def keep_compiled_programs(place: str) -> None:
    """Keeps the programs of this process in the folder `place`.

    "auto" is $JAX_COMPILATION_CACHE_DIR, or else a folder in the user's cache; "none" keeps nothing.
    """
    if place == "none":
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if place == "auto":
        place = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(user_cache() / "minimax_lib" / "jax")
    jax.config.update("jax_compilation_cache_dir", place)
    # By default JAX keeps only what took a second to compile, and a run starts with many smaller programs. A size of
    # -1, not 0, keeps JAX from choosing a least size by itself.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def user_cache() -> Path:
    """The folder in which programs of this user keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
