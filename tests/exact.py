"""How programs are compiled whose bits are compared with those of another program.

The tests compile without XLA's fusion emitters (`conftest.py`), in about a quarter of the time. Then one computation
may differ in its last bit from program to program. With the emitters it does not.
"""

from minimax_lib.loops import LEAST_EFFORT

# For `compiler_options` of `jax.jit`. A jaxlib that cannot turn the emitters off needs no option.
EXACT = {name: True for name in LEAST_EFFORT if "emitters" in name}
