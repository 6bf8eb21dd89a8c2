"""How many kernels a training step launches on a GPU, counted in the program that XLA compiles. It needs no GPU.

    pip install "jax[cuda12]" && python benchmarks/kernels.py --out benchmarks/results/kernels_h200.json
    python benchmarks/kernels.py --methods dr --models lstm s5 ff --seeds 1 10

With 32 rows, a kernel is done before the next one is launched. So the number of launches decides how long a step takes
on a GPU: some microseconds for each, less if XLA replays the body of a loop as a CUDA graph.

The step of the published configurations is compiled for an H200 that is described to the compiler. There is no tuning,
which would need the card. Then its loops are walked:

* A body counts as often as its loop is known to run.
* A loop of unknown length counts once (walls to walk around, rows that are still running).
* Of two branches, the longer one counts.

`waits` are the places where the host must look at a result before it goes on: branches, and loops of unknown length.
Nothing is run, and no time is measured.
"""

import collections
import dataclasses
import os
import re
import time
from collections.abc import Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # without it, the plugin looks for a driver
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"

import jax
import numpy as np
from common import environment_facts, keep
from jax.experimental import topologies
from train_throughput import chosen, parser_of_programs

from minimax_lib.runners.build import make_program

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 device_memory_size: 151397597184 device_address_bits: 64
  cuda_compute_capability { major: 9 }
  device_vendor: "NVIDIA Corporation" name: "NVIDIA H200"
  driver_version: "12.8.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA" device_description_str: "NVIDIA H200" dnn_version_info { major: 9 minor: 10 patch: 0 }
"""
NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency"}


@dataclasses.dataclass
class Computation:
    """What one run of a computation launches itself, and the others that it runs: (how often, one of which is run)."""

    n_kernels: int = 0
    runs: list[tuple[int, list[str]]] = dataclasses.field(default_factory=list)
    n_waits: int = 0
    path: str = ""  # for the body of a loop, the place of the loop in the traced functions


def computations(hlo: str) -> tuple[str, dict[str, Computation]]:
    """(name of the entry, all computations that are not inside a kernel) of a compiled module, from its text."""
    found: dict[str, Computation] = {}
    bodies: dict[str, str] = {}
    entry = name = ""
    for line in hlo.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            name = head[2]
            found[name] = Computation()
            entry = name if head[1] else entry
        elif operation := re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\(", line):
            kind, computation = operation[1], found[name]
            if kind == "while":
                times = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
                body = attribute(line, "body")
                bodies[body] = attribute(line, "op_name")
                computation.runs.append((int(times[1]) if times else 1, [body]))
                computation.n_waits += not times
            elif kind == "conditional":
                branches = re.search(r"branch_computations=\{([^}]*)\}", line)
                by_truth = [attribute(line, f"{truth}_computation") for truth in ("true", "false")]
                names = branches[1].replace("%", "").split(", ") if branches else by_truth
                computation.runs.append((1, names))
                computation.n_waits += 1
            elif kind == "call":
                computation.runs.append((1, [attribute(line, "to_apply")]))
            elif kind not in NO_KERNEL and not kind.endswith("-done"):
                computation.n_kernels += 1
    for body, path in bodies.items():
        found[body].path = path
    return entry, found


def attribute(line: str, name: str) -> str:
    """The value of an attribute of an operation; "" if it has no such attribute."""
    value = re.search(rf'\b{name}=(?:"([^"]*)"|%?([\w.\-]+))', line)
    return (value[1] or value[2]) if value else ""


def walk(name: str, found: dict[str, Computation], times: int = 1, path: str = "") -> Iterator[tuple]:
    """(path, number of runs, kernels, waits) of a computation, and of the computations that it runs."""
    computation = found[name]
    path = computation.path or path
    yield path, times, computation.n_kernels, computation.n_waits
    for n, names in computation.runs:
        longest = max(names, key=lambda branch: launches(branch, found))
        yield from walk(longest, found, times * n, path)


def launches(name: str, found: dict[str, Computation]) -> int:
    """Kernels that one run of the computation launches."""
    return sum(times * kernels for _, times, kernels, _ in walk(name, found))


def count(hlo: str) -> dict[str, Any]:
    """Launches and waits of a step, and the loops that they come from. A step is the body of the one outer loop."""
    entry, found = computations(hlo)
    (step,) = (body for _, (body, *_) in found[entry].runs)
    by_loop: dict[tuple[str, int], int] = collections.Counter()
    waits = 0
    for path, times, kernels, n_waits in walk(step, found):
        by_loop[path, times] += kernels
        waits += times * n_waits
    total = sum(times * kernels for (_, times), kernels in by_loop.items())
    loops = [
        {"loop": re.sub(r"\b(while|body|closed_call)/", "", path), "times": times, "kernels": kernels}
        for (path, times), kernels in sorted(by_loop.items(), key=lambda item: -item[0][1] * item[1])
        if times * kernels > 0.01 * total
    ]
    return {"launches": total, "waits": waits, "loops": loops}


def compiled_for(device: Any, config: Any) -> dict[str, Any]:
    """The counts for the training step of a configuration."""
    program = make_program(config)
    place = jax.sharding.SingleDeviceSharding(device)
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), program.shape)
    bound = jax.ShapeDtypeStruct((), np.int32, sharding=place)
    lowered = program._run.trace(state, bound, bound).lower(lowering_platforms=("cuda",))
    start = time.perf_counter()
    compiled = lowered.compile()
    took, memory = time.perf_counter() - start, compiled.memory_analysis()
    return count(compiled.as_text()) | {
        "seconds_to_compile": round(took, 1),
        "megabytes": round((memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 1e6, 1),
    }


def main() -> None:
    parser = parser_of_programs(__doc__)
    args = parser.parse_args()
    try:
        device = topologies.get_topology_desc(platform="cuda", target_config=H200, topology="1x1x1").devices[0]
    except NotImplementedError:
        parser.error(f"jax's compiler for GPUs is not installed: pip install 'jax[cuda12]=={jax.__version__}'")
    facts = environment_facts() | {"device": "compiled for NVIDIA H200, not run"}
    jax.default_backend = lambda: "gpu"  # the programs are traced for this backend
    rows = []
    for method, model, n_seeds, config in chosen(args):
        found = compiled_for(device, dataclasses.replace(config, n_seeds=n_seeds))
        rows.append({"method": method, "model": model, "seeds": n_seeds, **found})
        print({name: value for name, value in rows[-1].items() if name != "loops"}, flush=True)
        keep(args.out, {"benchmark": "kernels", **facts, "rows": rows})


if __name__ == "__main__":
    main()
