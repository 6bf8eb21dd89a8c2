"""What a test file may cost: programs that it compiles, and seconds of the processor. `conftest.py` holds them to it.

A file that needs more than `USUAL` stands in `LARGER` with the reason. Deep tests have no budget.
"""

import resource
from typing import NamedTuple

import jax


class Cost(NamedTuple):
    """What was used, or may be used."""

    programs: int
    seconds: float  # of the processor, in this process and in those that it has started and waited for


USUAL = Cost(programs=150, seconds=150.0)
# The name of the file without test_ and .py. The seconds are three to four times those of two cores that have nothing
# cached, so that a slow or busy machine does not fail.
LARGER = {
    "craftax": Cost(150, 600.0),  # its programs are large; only .ci/deep runs these two files
    "craftax_tasks": Cost(500, 600.0),
    "curricula": Cost(80, 400.0),  # programs of the zoo, if it runs alone
    "experiment": Cost(100, 300.0),  # a real run, with evaluation and report
    "gridworld": Cost(220, 150.0),  # one program a family of worlds
    "grid_generators": Cost(60, 300.0),
    "joint": Cost(60, 300.0),  # programs of the zoo, if it runs alone
    "methods": Cost(120, 900.0),  # all programs of the zoo, if it runs alone
    "load_run": Cost(150, 300.0),  # runs of many kinds are opened
    "play": Cost(300, 150.0),  # small programs, each of a few milliseconds
    "ppo": Cost(100, 300.0),
}

compiled = 0


def count(event: str, duration: float, **_: object) -> None:
    """A listener of jax. It hears of every program, whether it is compiled or found in the cache."""
    global compiled
    compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(count)


def used() -> Cost:
    """What this process has used since it began."""
    times = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(compiled, sum(time.ru_utime + time.ru_stime for time in times))


def excess(file: str, before: Cost, after: Cost) -> str | None:
    """One line about a file that used more than it may; None for all others."""
    may = LARGER.get(file, USUAL)
    programs, seconds = after.programs - before.programs, after.seconds - before.seconds
    if programs <= may.programs and seconds <= may.seconds:
        return None
    return (
        f"tests/test_{file}.py compiled {programs} programs (it may: {may.programs}) and took {seconds:.0f} seconds of "
        f"the processor (it may: {may.seconds:.0f}); CONTRIBUTING.md says how to stay inside"
    )


def table(costs: dict[str, tuple[int, float]], n: int = 15) -> list[str]:
    """Lines about the `n` files that took longest, and about all. `costs` are programs and seconds of each file."""
    longest = sorted(costs.items(), key=lambda item: -item[1][1])[:n]
    total = tuple(map(sum, zip(*costs.values(), strict=True)))
    rows = [(f"tests/test_{file}.py", cost) for file, cost in longest] + [(f"all {len(costs)} files", total)]
    return [f"{seconds:7.0f} s  {programs:5} programs  {name}" for name, (programs, seconds) in rows]
