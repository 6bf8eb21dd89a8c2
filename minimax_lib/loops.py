"""How programs are compiled: loops over small steps for the backend at hand, and what runs seldom with little effort.

An accelerator finishes a kernel over a few rows before the next one is launched. So the number of kernels decides how
long a loop takes. If several steps share an iteration, they also share its costs: the counter, the writing of results
into the arrays of all steps, and the copies of the loop's state. On a CPU, larger bodies were slower.
"""

import contextlib
import ctypes

import jax
import jaxlib

# Compiler options of programs that run seldom, and so cost more to compile than to run.
RUN_ONCE = {"xla_backend_optimization_level": 1}
# Half the time again, and the program may be three times as slow. Numbers that are not whole may differ in their last
# bit from those of other programs.
LEAST_EFFORT: dict[str, bool | int | str] = {"xla_backend_optimization_level": 0}
# Later versions always use the emitters, and refuse the option.
if tuple(map(int, jaxlib.__version__.split(".")[:3])) <= (0, 11, 0):
    LEAST_EFFORT["xla_cpu_use_fusion_emitters"] = False


def release_compiler_memory() -> None:
    """Gives the memory back that compilations have needed. Else the process keeps it to its end, up to gigabytes."""
    with contextlib.suppress(OSError, AttributeError):  # other C libraries than glibc have no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def steps_at_once(on_accelerator: int) -> int:
    """The `unroll` of a `lax.scan`: `on_accelerator` there, 1 on a CPU."""
    return 1 if on_cpu() else on_accelerator
