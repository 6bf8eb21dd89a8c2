"""Whether training on the accelerator agrees with the CPU, part by part, from the same states and random keys.

    python benchmarks/agreement.py [--out benchmarks/results/agreement_h200.json]

Whole updates cannot be compared number by number. Two devices round differently, so now and then a sampled action
differs, and from there on the episode is another one. So each part gets the CPU's input on both devices:

* `propose`: the levels of a batch. Equal, number by number.
* `rollout`: nearly all actions are equal. At step 0, before anything can differ, so are probabilities and values.
* `update` (DR): the change of the parameters, learnt from the CPU's rollout.
* `observe` (robust PLR): the level buffer, after scoring the CPU's rollout.

At precision `highest`, the matrix products of both devices are float32's. `default` is how `train.py` trains: on GPUs
that have it, in TensorFloat-32, so that more may differ. Two things are only reported: whether the first weights are
equal, and whether two runs of three updates on the accelerator end with the same bits.

The exit status is 0 whatever was found. The last line and the file say whether all parts agree. Without an accelerator,
the CPU is compared with itself, which tries out the script.
"""

import argparse
import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import environment_facts, keep
from train_throughput import MODELS, config_of, part_programs

from minimax_lib.runners.build import make_program

METHODS = ("dr", "robust_plr")
PRECISIONS = ("highest", "default")
N_UPDATES = 3
NOISE = 0.05
# What may differ: measure -> the limit at each precision. Rounding the weights alone to float32 and to TensorFloat-32
# makes 3e-7 and 1e-4 at step 0, and changes what is learnt by 1e-5 and 2e-3; activations are rounded too. A single row
# of 32 whose sampled action differed gives up to 3% of other actions.
LIMITS = {
    "levels that differ": {"highest": 0.0, "default": 0.0},
    "actions that differ": {"highest": 0.1, "default": 0.5},
    "log probability at step 0": {"highest": 1e-4, "default": 1e-2},
    "value at step 0": {"highest": 1e-4, "default": 1e-2},
    "change of the parameters": {"highest": 0.01, "default": 0.1},
    "scores": {"highest": 1e-3, "default": 5e-2},
}
Row = dict[str, Any]


def host(tree: Any) -> list[np.ndarray]:
    """The leaves as arrays of the host; of keys, their data."""
    is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def share_that_differs(ours: Any, theirs: Any) -> float:
    """The share of all numbers of two trees that are not the same. NaN equals NaN."""
    pairs = list(zip(host(ours), host(theirs), strict=True))
    n_different = sum(int((~((a == b) | ((a != a) & (b != b)))).sum()) for a, b in pairs)
    return n_different / sum(a.size for a, _ in pairs)


def largest_difference(ours: Any, theirs: Any) -> float:
    """The largest absolute difference of two trees of floats; infinite where only one is finite."""
    found = 0.0
    for a, b in zip(host(ours), host(theirs), strict=True):
        same = (a == b) | ((a != a) & (b != b))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(a.astype(np.float64) - b))
        found = max(found, float(np.where(np.isnan(gap), math.inf, gap).max(initial=0.0)))
    return found


def difference_of_change(before: Any, ours: Any, theirs: Any) -> float:
    """|ours - theirs| / |theirs - before|, norms over all numbers. 0 if they are the same, about 1.4 if unrelated."""
    gap = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in zip(host(ours), host(theirs), strict=True))
    moved = sum(float(((b.astype(np.float64) - a) ** 2).sum()) for a, b in zip(host(before), host(theirs), strict=True))
    return math.sqrt(gap / moved) if moved else math.inf


def judged(method: str, precision: str, measure: str, value: float) -> Row:
    """A row of the results. NaN never agrees."""
    limit = LIMITS[measure][precision]
    return {
        "method": method,
        "precision": precision,
        "measure": measure,
        "value": float(f"{value:.3g}"),
        "limit": limit,
        "agrees": bool(value <= limit),
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """The programs of a method, a state on the CPU, and what the CPU makes of it."""

    method: str
    parts: dict[str, Any]
    state: Any
    batch: Any
    curriculum: Any
    runs: Any
    after: Any = None  # see `after`

    def learns(self) -> bool:
        """Whether the first step is an update, as it is in DR."""
        return bool(np.all(host(self.batch.train)[0]))


def case_on_cpu(method: str, args: argparse.Namespace) -> Case:
    cpu = jax.devices("cpu")[0]
    config = config_of(method, args.model, args)
    assert config is not None
    with jax.default_device(cpu):
        program = make_program(config)
        parts = part_programs(program.runner)
        state = stirred(jax.device_put(program.init(0), cpu))
        curriculum, batch = parts["propose"](state)
        case = Case(method, parts, state, batch, curriculum, parts["rollout"](state, batch))
        return dataclasses.replace(case, after=after(case, cpu))


def after(case: Case, device: jax.Device) -> Any:
    """What the device makes of the CPU's rollout: the parameters of the students, or the state of the level buffer."""
    state, batch, curriculum, runs = jax.device_put((case.state, case.batch, case.curriculum, case.runs), device)
    if case.learns():
        return case.parts["update"](state, batch, runs)[0].params
    return case.parts["observe"](state, curriculum, batch, runs)[0]


def stirred(state: Any) -> Any:
    """The state with noise on its weights. The first policy is uniform, whatever the network computes."""
    leaves, form = jax.tree.flatten(state.students.params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [x + NOISE * jax.random.normal(key, x.shape, x.dtype) for x, key in zip(leaves, keys, strict=True)]
    return state.replace(students=state.students.replace(params=jax.tree.unflatten(form, noisy)))


def compared(case: Case, precision: str, with_levels: bool) -> list[Row]:
    """The rows of a method at a precision."""
    found: list[tuple[str, float]] = []
    state, batch = jax.device_put((case.state, case.batch), jax.devices()[0])
    with jax.default_matmul_precision(precision):
        if with_levels:
            found.append(("levels that differ", share_that_differs(case.parts["propose"](state)[1], case.batch)))
        steps, theirs = case.parts["rollout"](state, batch).steps, case.runs.steps
        found.append(("actions that differ", share_that_differs(steps.action, theirs.action)))
        # Time is the axis after that of the seeds.
        same = (np.asarray(steps.action) == np.asarray(theirs.action))[:, 0]
        log_probs, values = ([np.asarray(getattr(s, x))[:, 0] for s in (steps, theirs)] for x in ("log_prob", "value"))
        found.append(("log probability at step 0", largest_difference(*(x[same] for x in log_probs))))
        found.append(("value at step 0", largest_difference(*values)))
        ours = after(case, jax.devices()[0])
    if case.learns():
        found.append(("change of the parameters", difference_of_change(case.state.students.params, ours, case.after)))
    else:
        found.append(("scores", largest_difference(floats(ours), floats(case.after))))
    return [judged(case.method, precision, measure, value) for measure, value in found]


def floats(tree: Any) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(tree) if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)]


def reported(method: str, args: argparse.Namespace) -> Row:
    """What no limit is set for: the first weights, and whether the accelerator gives the same bits twice."""
    config = config_of(method, args.model, args)
    assert config is not None
    program = make_program(config)
    with jax.default_device(jax.devices("cpu")[0]):
        on_cpu = program.init(0)
    weights = largest_difference(program.init(0).students.params, on_cpu.students.params)
    ends = [program.run(program.init(0), N_UPDATES, 10 * N_UPDATES) for _ in range(2)]
    return {
        "method": method,
        "largest difference of the first weights": float(f"{weights:.3g}"),
        "the same bits twice": share_that_differs(*(state for state, _ in ends)) == 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--model", choices=MODELS, default="lstm")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--n-parallel", type=int, help="rows, instead of the published 32")
    parser.add_argument("--n-steps", type=int, help="steps of a rollout, instead of the published 256")
    parser.add_argument("--capacity", type=int, help="slots of the level buffer, instead of the published 4,000")
    parser.add_argument("--out", type=Path, help="file for the results as JSON, kept up to date as they come")
    args = parser.parse_args()
    result = {"benchmark": "agreement", **environment_facts(), "agrees": None, "rows": [], "reported": None}
    # Two programs are never compiled for the accelerator at once: while one is tuned, nothing else may run on it.
    with ThreadPoolExecutor() as compilers:
        jobs = [compilers.submit(case_on_cpu, method, args) for method in args.methods]
        result["reported"] = reported(args.methods[0], args)
        print(result["reported"], flush=True)
        for job in jobs:
            for precision in args.precisions:
                # Drawing levels multiplies no matrices: once is enough.
                for row in compared(job.result(), precision, with_levels=precision == args.precisions[0]):
                    print("{method} {precision}: {measure} {value} (limit {limit})".format(**row), flush=True)
                    result["rows"].append(row)
                keep(args.out, result)
    differing = [row for row in result["rows"] if not row["agrees"]]
    result["agrees"] = not differing
    keep(args.out, result)
    what = "; ".join("{method} {precision}: {measure}".format(**row) for row in differing)
    print(f"{jax.devices()[0].device_kind} and the CPU: {f'DIFFER in {what}' if what else 'all parts agree'}")


if __name__ == "__main__":
    main()
