"""How programs are compiled whose bits are compared with those of another program.

The tests compile without XLA's fusion emitters (`conftest.py`), in about a quarter of the time. Then one computation
may differ in its last bit from program to program. With the emitters it does not.
"""

EXACT = {"xla_cpu_use_fusion_emitters": True}  # for `compiler_options` of `jax.jit`
