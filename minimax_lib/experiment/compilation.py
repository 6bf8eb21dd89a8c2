"""The cache of compiled programs, which saves the next process from compiling them again."""

import jax

from minimax_lib.config.paths import cache_folder


def keep_compiled_programs(place: str) -> None:
    """Keeps the compiled programs of this process in the folder `place`.

    "auto" is $JAX_COMPILATION_CACHE_DIR or, if that is not set, a folder in the user's cache. "none" keeps nothing.
    """
    folder = cache_folder(place)
    if folder is None:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default JAX keeps only programs that took a second to compile, but a run starts with many smaller ones. A least
    # size of 0 would let JAX choose one; -1 means that programs of any size are kept.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
