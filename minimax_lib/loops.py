"""How loops over small steps are compiled for the backend at hand.

An accelerator finishes a kernel over a few rows before the next one is launched. So the number of kernels decides how
long a loop takes. If several steps share an iteration, they also share its costs: the counter, the writing of results
into the arrays of all steps, and the copies of the loop's state. On a CPU, larger bodies were slower.
"""

import jax


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def steps_at_once(on_accelerator: int) -> int:
    """The `unroll` of a `lax.scan`: `on_accelerator` there, 1 on a CPU."""
    return 1 if on_cpu() else on_accelerator
