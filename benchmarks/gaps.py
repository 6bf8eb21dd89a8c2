"""How much of an update the device computes, and how much it waits for the next kernel. Taken from a trace.

    python benchmarks/gaps.py --out benchmarks/results/gaps_h200.json
    python benchmarks/gaps.py --methods dr paired --models lstm s5 --seeds 1 10

For each program, over a few updates:

* seconds an update, without and with tracing (which slows small kernels down)
* the share of the traced time in which at least one kernel runs
* the number of kernels in an update, their median duration, and the median gap between one and the next
* the kernels that take the most time

On a GPU, kernels are those of its streams. On a CPU, they are those of XLA's threads. `benchmarks/kernels.py` counts
the launches of the same programs without a GPU.
"""

import collections
import importlib.util
import itertools
import os
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# A CPU's kernels are traced only if this is asked for. It is a part of the names in the cache of compiled programs, so
# that with it a program for a GPU would be compiled again.
if importlib.util.find_spec("jax_plugins") is None or os.environ.get("JAX_PLATFORMS") == "cpu":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_xprof_traceme=true"

import jax
from common import environment_facts, keep
from train_throughput import Trained, chosen, parser_of_programs, seconds

Kernel = tuple[float, float, str]  # (start, end, name); nanoseconds
N_SLOWEST = 12


def kernels(trace: Path) -> list[Kernel]:
    """All kernels of a trace, sorted by start."""
    found = []
    for file in trace.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                if is_of_kernels(plane.name, line.name):
                    events = [event for event in line.events if is_kernel(event.name)]
                    found += [(event.start_ns, event.start_ns + event.duration_ns, event.name) for event in events]
    return sorted(found)


def is_of_kernels(plane: str, line: str) -> bool:
    """Whether a line of a trace is a stream of a GPU, or a computing thread of a CPU."""
    on_gpu, on_cpu = plane.startswith("/device:GPU"), jax.default_backend() == "cpu" and plane.startswith("/host")
    return (on_gpu and line.startswith("Stream")) or (on_cpu and any(x in line for x in ("XLAEigen", "XLAPjRt")))


def is_kernel(name: str) -> bool:
    """Whether an event of such a line is a kernel. Other events manage kernels or contain them."""
    return not name.startswith(("Thunk", "end:", "while", "conditional", "call")) and "threadpool" not in name.lower()


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals that are sorted by start, as intervals that do not touch."""
    union: list[tuple[float, float]] = []
    for start, end in intervals:
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def summary(found: list[Kernel], n_updates: int) -> dict[str, Any]:
    """The statistics of the kernels of `n_updates` updates."""
    busy = merged((start, end) for start, end, _ in found)
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(busy)]
    span, computing = busy[-1][1] - busy[0][0], sum(end - start for start, end in busy)
    by_name: dict[str, list[float]] = collections.defaultdict(list)
    for start, end, name in found:
        by_name[name].append(end - start)
    slowest = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:N_SLOWEST]
    return {
        "busy": round(computing / span, 3),
        "kernels_per_update": round(len(found) / n_updates),
        "median_kernel_microseconds": round(statistics.median(end - start for start, end, _ in found) / 1e3, 2),
        "median_gap_microseconds": round(statistics.median(gaps) / 1e3, 2) if gaps else 0.0,
        "slowest": [
            {
                "kernel": name,
                "milliseconds_per_update": round(sum(times) / 1e6 / n_updates, 3),
                "times_per_update": round(len(times) / n_updates, 1),
            }
            for name, times in slowest
        ],
    }


def traced(program: Trained, n_updates: int) -> dict[str, Any]:
    """The row of a program: some updates without a trace, then some with a trace."""

    def update() -> None:
        target = int(program.state.students.n_updates.min()) + 1
        program.state, _ = program.program.run(program.state, target)
        jax.block_until_ready(program.state)

    times = [seconds(update)[0] for _ in range(n_updates)]
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            slow = sum(seconds(update)[0] for _ in range(n_updates))
        found = kernels(Path(folder))
    if not found:
        raise SystemExit(f"error: the trace of {program.name} holds no kernels; is the profiler (CUPTI) installed?")
    result = {"seconds_per_update": round(statistics.median(times), 4), "traced": round(slow / n_updates, 4)}
    return result | summary(found, n_updates)


def main() -> None:
    parser = parser_of_programs(__doc__)
    parser.set_defaults(methods=["dr", "robust_plr", "paired"])
    parser.add_argument("--updates", type=int, default=3)
    args = parser.parse_args()
    facts, rows = environment_facts(), []
    for method, model, n_seeds, config in chosen(args):
        found = traced(Trained(method, model, n_seeds, config), args.updates)
        rows.append({"method": method, "model": model, "seeds": n_seeds, **found})
        print(rows[-1], flush=True)
        keep(args.out, {"benchmark": "gaps", **facts, "rows": rows})


if __name__ == "__main__":
    main()
