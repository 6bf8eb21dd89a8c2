"""What a draw and a report cost a host whose list has a million tasks.

    python benchmarks/long_lists.py

Times are those of the processor: the median of `N_TIMES` calls, in milliseconds.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from minimax_lib.portable.host import Host
from minimax_lib.tasks import SFL, Frontier, ListedPLR, LongList

N_TASKS, N_TIMES, BATCH, GROUP = 10**6, 200, 32, 8


def median_ms(work: Callable[[], object]) -> float:
    """Of the time of the processor of one call."""
    times = []
    for _ in range(N_TIMES):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1e3 * float(np.median(times))


def told(tell: Callable[[np.ndarray, np.ndarray], None], rng: np.random.Generator, values: np.ndarray) -> None:
    """Tells a host of these values of random tasks."""
    tell(rng.integers(0, N_TASKS, BATCH), values)


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'':10} {'draw of ' + str(BATCH):>12} {'draw of ' + str(8 * BATCH):>12} {'report':>12}")
    for name, core in (("PLR", ListedPLR(N_TASKS)), ("frontier", Frontier(N_TASKS)), ("SFL", SFL(N_TASKS))):
        host = Host(LongList(core))
        if name == "SFL":
            host.evaluated(rng.random(N_TASKS))
            report = float("nan")
        elif name == "PLR":
            host.report_scores(np.arange(N_TASKS), rng.normal(size=N_TASKS))
            scores = rng.normal(size=BATCH)
            report = median_ms(partial(told, host.report_scores, rng, scores))
        else:
            host.record_group(np.arange(N_TASKS // 10), rng.random((N_TASKS // 10, 2)) < 0.5)
            rewards = rng.random((BATCH, GROUP)) < 0.5
            report = median_ms(partial(told, host.record_group, rng, rewards))
        draws = [median_ms(partial(host.draw, n)) for n in (BATCH, 8 * BATCH)]
        print(f"{name:10} {draws[0]:12.2f} {draws[1]:12.2f} {report:12.2f}")


if __name__ == "__main__":
    main()
