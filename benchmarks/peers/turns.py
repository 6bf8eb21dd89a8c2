"""Programs that are timed a step at a time, on command, so that several processes can take turns on the same cores.

A script here hands `main` a function for each program that it knows. With names it times those alone:

    python time_minimax.py --repo PATH dr plr --turns 5

With `--serve` it reads lines "warm NAME KIND" and "turn NAME KIND" and answers each with one line of JSON.
Steps are taken until one of that kind has been done ("update" or "score"; "run" for the environments); it is timed
until its results are there. Needs nothing but jax, so that it runs in the environment of any project.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from packages import versions

KINDS = {"plr": ("update", "score"), "same_level": ("run",), "fresh_level": ("run",), "no_restart": ("run",)}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "distrax", "tfp-nightly", "gymnax", "numpy")
MOST_STEPS = 2000  # before a step of the wanted kind must have come; a level buffer is filled meanwhile

Step = Callable[[], str]  # does one step, waits for it, says of which kind it was
Maker = Callable[[argparse.Namespace], Step]


def kinds_of(name: str) -> tuple[str, ...]:
    return KINDS.get(name, ("update",))


def timed(step: Step, kind: str) -> dict[str, Any]:
    """Seconds of the next step of that kind, those of the processor too, and how many others came before it."""
    for n_others in range(MOST_STEPS):
        start, worked = time.perf_counter(), time.process_time()
        done = step()
        took, worked = time.perf_counter() - start, time.process_time() - worked
        if done == kind:
            return {"seconds": took, "processor_seconds": worked, "other_steps": n_others}
    raise RuntimeError(f"no {kind} in {MOST_STEPS} steps")


def warmed(step: Step, kind: str) -> dict[str, Any]:
    """Seconds of the first steps of that kind: with the compilation, which may come twice."""
    return {"warm_seconds": [timed(step, kind)["seconds"] for _ in range(3)]}


class Server:
    """Holds one program at a time."""

    def __init__(self, makers: dict[str, Maker], args: argparse.Namespace):
        self.makers, self.args, self.name, self.step = makers, args, "", None

    def answer(self, command: str, name: str, kind: str) -> dict[str, Any]:
        if name != self.name:
            self.step = None
            gc.collect()
            self.name, self.step = name, self.makers[name](self.args)
        return (warmed if command == "warm" else timed)(self.step, kind)

    def serve(self, out: TextIO) -> None:
        print(json.dumps({"versions": versions(PACKAGES), "names": list(self.makers)}), file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps(self.answer(*line.split())), file=out, flush=True)

    def alone(self, names: list[str], n_turns: int) -> dict[str, Any]:
        """Times of the named programs, nothing beside them."""
        rows = []
        for name in names:
            for kind in kinds_of(name):
                row = {"program": name, "kind": kind} | self.answer("warm", name, kind)
                times = [self.answer("turn", name, kind)["seconds"] for _ in range(n_turns)]
                rows.append(row | {"median": statistics.median(times), "seconds": times})
                print(name, kind, statistics.median(times), file=sys.stderr, flush=True)
        return {"versions": versions(PACKAGES), "load": os.getloadavg(), "rows": rows}


def main(makers: dict[str, Maker], description: str | None, repo: bool = True) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"programs: {', '.join(makers)}; default all")
    if repo:
        parser.add_argument("--repo", required=True, help="clone of the project, patched as peers.md says")
    parser.add_argument("--serve", action="store_true", help="take commands from standard input")
    parser.add_argument("--turns", type=int, default=5, help="steps of each kind that are timed")
    parser.add_argument("--rows", type=int, default=32, help="levels of a batch")
    parser.add_argument("--steps", type=int, default=256, help="steps of a rollout")
    parser.add_argument("--capacity", type=int, default=4000, help="slots of the level buffer")
    parser.add_argument("--n-envs", type=int, default=1024, help="environments with a random policy")
    parser.add_argument("--env-steps", type=int, default=1024, help="steps of each of those")
    parser.add_argument("--devices", type=int, default=1, help="devices that share the work of ours")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a project prints does not come between the answers
    server = Server(makers, args)
    if args.serve:
        server.serve(out)
    else:
        print(json.dumps(server.alone(args.names or list(makers), args.turns), indent=1), file=out, flush=True)
