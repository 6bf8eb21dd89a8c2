"""How loops over small steps are compiled for the backend at hand.

An accelerator is done with a kernel over a few rows sooner than the next one is launched, so that the time of a loop is
the number of its kernels. Steps that share an iteration share what every iteration pays: the counter, the writing of
results into the arrays of all steps, and copies of what is carried on. On a CPU, larger bodies were slower.
"""

import jax


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def steps_at_once(on_accelerator: int) -> int:
    """The `unroll` of a `lax.scan`: that on an accelerator, 1 on a CPU."""
    return 1 if on_cpu() else on_accelerator
