"""What the first run of a configuration compiles, and the processor seconds that it takes.

    python benchmarks/first_run.py maze/quickstart [--n-updates 16 ...] [--out FILE]

Trains in this process with an empty compilation cache, for one interval of the log by default. Programs, levels and
episodes have their usual sizes, so that compilation costs what it costs in a whole run. Threads are switched off: one
program is compiled after another, so that each has its own processor seconds (of all cores together).
"""

import resource
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

BEGAN = time.process_time()

from common import environment_facts, keep  # noqa: E402

STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
SMALL = 0.5  # seconds: programs below are reported together
SHORT = {"--n-updates": "4", "--log-every": "2"}


class Immediately:
    """An executor without threads."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __enter__(self) -> "Immediately":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def submit(self, work: Any, *args: Any) -> Future:
        future: Future = Future()
        try:
            future.set_result(work(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True) -> None:
        pass


class Costs:
    """Processor seconds of each program, by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.counts: dict[str, int] = defaultdict(int)
        self.depth = 0  # tracing a program traces the programs inside it

    def watch(self) -> None:
        """Counts from now on."""
        from jax._src import dispatch

        kind, costs = dispatch.LogElapsedTimeContextManager, self
        enter, leave = kind.__enter__, kind.__exit__

        def begin(self: Any) -> None:
            costs.begin()
            enter(self)

        def end(self: Any, *error: Any) -> None:
            leave(self, *error)
            costs.end(self.event, self.fun_name)

        kind.__enter__, kind.__exit__ = begin, end

    def begin(self) -> None:
        if self.depth == 0:
            self.began = time.process_time()
        self.depth += 1

    def end(self, event: str | None, name: str) -> None:
        self.depth -= 1
        if self.depth == 0 and event in STAGES:
            name = name.removeprefix("jit_").removeprefix("jit(").removesuffix(")")
            self.seconds[name][STAGES[event]] += time.process_time() - self.began
            self.counts[name] += STAGES[event] == "compile"

    def rows(self) -> list[dict[str, Any]]:
        """The dearest programs first; the small ones together."""
        found = [
            {"program": name, "compiled": self.counts[name]} | {stage: parts[stage] for stage in STAGES.values()}
            for name, parts in self.seconds.items()
        ]
        large = [row for row in found if total(row) >= SMALL]
        small = [row for row in found if total(row) < SMALL]
        rest = {key: sum(row[key] for row in small) for key in ("compiled", *STAGES.values())}
        return [*sorted(large, key=total, reverse=True), {"program": f"{len(small)} small programs"} | rest]


def total(row: dict[str, Any]) -> float:
    return sum(row[stage] for stage in STAGES.values())


def shown(row: dict[str, Any]) -> str:
    seconds = "  ".join(f"{row[stage]:7.1f}" for stage in STAGES.values())
    return f"{row['program']:32} {row['compiled']:5}  {seconds}  {total(row):7.1f}"


def train(words: list[str], folder: str) -> Costs:
    """The costs of a short run."""
    import minimax_lib.commands.train
    from minimax_lib.experiment import level_pictures, loop, run

    for module in (level_pictures, loop, run):
        module.ThreadPoolExecutor = Immediately  # type: ignore[attr-defined]
    costs = Costs()
    costs.watch()
    places = ["--log-dir", folder, "--name", "run", "--compilation-cache", f"{folder}/cache"]
    short = [word for flag, value in SHORT.items() if flag not in words for word in (flag, value)]
    status = minimax_lib.commands.train.main(["--config", words[0], *short, *words[1:], *places])
    assert status == 0, f"the run ended with status {status}"
    return costs


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        sys.exit(__doc__)
    out = Path(words.pop(words.index("--out") + 1)) if "--out" in words else None
    words = [word for word in words if word != "--out"]
    with tempfile.TemporaryDirectory() as folder:
        rows = train(words, folder).rows()
    print(f"{'program':32} times  " + "  ".join(f"{stage:>7}" for stage in STAGES.values()) + "      all")
    for row in rows:
        print(shown(row))
    print(shown({key: sum(row[key] for row in rows) for key in ("compiled", *STAGES.values())} | {"program": "sum"}))
    used = resource.getrusage(resource.RUSAGE_SELF)
    whole = used.ru_utime + used.ru_stime
    print(f"the whole process: {whole:.1f} processor seconds")
    keep(out, {"benchmark": "first_run", **environment_facts(), "words": words, "rows": rows, "process": whole})


if __name__ == "__main__":
    main()
