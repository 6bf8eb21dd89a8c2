"""GridWorld beside the real MiniGrid, navix and xland-minigrid: steps and levels per second of a core's time.

    python benchmarks/peers/grid_worlds.py --navix PYTHON --xland PYTHON --out FILE

PYTHON is that of a virtual environment with the PyPI package `navix` or `xminigrid`; without a flag, that library is
left out. MiniGrid runs in this Python. time_grid_worlds.py says what is run. Every library is a process that stays
alive and works only on command. They do one run each in turn, over and over, and in each round the best of some runs
counts. Seconds are those of the processor, of all threads together, which other load on the machine hardly changes. A
ratio is the median over the rounds of our rate by theirs in the same round. The rows are kept in a file beside FILE, so
that a run of a few programs replaces only theirs.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from side_by_side import HERE, Side

sys.path.append(str(Path(__file__).parents[1]))  # the benchmarks of this project alone

from common import environment_facts

STEPS = {"ours": 1024, "navix": 32, "xland-minigrid": 256}  # of each row, so that a run takes about a second
LIBRARIES = ("ours", "navix", "xland-minigrid", "minigrid")
TITLES = {
    "fresh_level": "Every episode on a new level, no shadows",
    "same_level": "Every episode on the level of the one before, no shadows",
    "occluded": "Every episode on a new level; walls and shut doors hide what is behind them, as in MiniGrid",
    "generate": "Levels alone",
}


def pythons(args: argparse.Namespace) -> dict[str, str]:
    """The Python of each library that is there."""
    own = {"ours": sys.executable, "minigrid": sys.executable}
    peers = {"navix": args.navix, "xland-minigrid": args.xland}
    found = own | {name: str(path) for name, path in peers.items() if path}
    return {name: found[name] for name in LIBRARIES if name in found}


def units(library: str, what: str, args: argparse.Namespace) -> int:
    """Steps or levels of one run."""
    in_jax = library != "minigrid"
    if what == "generate":
        return args.n_levels if in_jax else args.minigrid_levels
    if in_jax:
        return args.n_envs * STEPS[library]
    return args.minigrid_steps // args.minigrid_envs * args.minigrid_envs


def compare(sides: dict[str, Side], name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The rates of one program, by library, and how many times faster ours is."""
    layout, what = name.split("/")
    with_it = {library: side for library, side in sides.items() if name in side.facts["names"]}
    for side in with_it.values():
        side.ask("warm", name, "run")
    rates: dict[str, list[float]] = {library: [] for library in with_it}
    for _ in range(args.rounds):
        for library, side in with_it.items():
            best = min(side.ask("turn", name, "run")["processor_seconds"] for _ in range(args.best_of))
            rates[library].append(units(library, what, args) / best)
    row: dict[str, Any] = {"layout": layout, "what": what}
    for library, found in rates.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(rates["ours"], found, strict=True))
        row[library] = {"rate": statistics.median(found), "ratio": ratio}
    print(name, {library: f"{row[library]['rate']:.3g} ({row[library]['ratio']:.3g})" for library in rates}, flush=True)
    return row


def kept(path: Path, rows: list[dict[str, Any]], wanted: Sequence[str]) -> list[dict[str, Any]]:
    """All rows that are known, the new ones in the place of older ones, in the order of `wanted`."""
    known = json.loads(path.read_text()) if path.exists() else []
    by_name = {f"{row['layout']}/{row['what']}": row for row in [*known, *rows]}
    found = [by_name[name] for name in wanted if name in by_name]
    path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def page(rows: list[dict[str, Any]], sides: dict[str, Side], args: argparse.Namespace) -> Iterator[str]:
    """The results as Markdown."""
    facts = environment_facts()
    packages = ", ".join(
        f"{library} on jax {side.facts['versions']['jax']}" for library, side in sides.items() if library != "minigrid"
    )
    yield "# GridWorld beside MiniGrid, navix and xland-minigrid on a CPU"
    yield ""
    yield f"`python benchmarks/peers/grid_worlds.py {' '.join(args.shown)}`"
    yield ""
    yield f"* {facts['processor']}, {facts['device']}; load {facts['load'][0]} at the end; revision {facts['revision']}"
    yield f"* {packages}; {', '.join(args.versions)}"
    yield f"* JAX: {args.n_envs} rows on one device; minigrid: {args.minigrid_envs} rows in one process"
    yield "* steps, or levels, per second of the processor (all threads together)"
    yield f"* medians of {args.rounds} alternating rounds, in each of them the best of {args.best_of} runs;"
    yield "  in brackets, how many times faster ours is"
    for what, title in TITLES.items():
        own = [row for row in rows if row["what"] == what]
        known = [library for library in LIBRARIES if any(library in row for row in own)]
        if not own:
            continue
        yield from ("", f"## {title}", "", f"| layout | {' | '.join(known)} |", "|---" * (len(known) + 1) + "|")
        for row in own:
            yield f"| {row['layout']} | {' | '.join(cell(row.get(library), library) for library in known)} |"


def cell(found: dict[str, float] | None, library: str) -> str:
    if found is None:
        return ""
    rate, ratio = float(f"{found['rate']:.3g}"), float(f"{found['ratio']:.2g}")
    return f"{rate:,.0f}" if library == "ours" else f"{rate:,.0f} ({ratio:g})"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="LAYOUT/WHAT, or a part of it; all if none is named")
    parser.add_argument("--navix", type=Path, help="Python with navix")
    parser.add_argument("--xland", type=Path, help="Python with xminigrid")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--best-of", type=int, default=3, help="runs of a round, of which the best counts")
    parser.add_argument("--n-envs", type=int, default=1024, help="rows, in JAX")
    parser.add_argument("--n-levels", type=int, default=4096, help="levels of a run, in JAX")
    parser.add_argument("--minigrid-envs", type=int, default=16, help="rows of MiniGrid in one process")
    parser.add_argument("--minigrid-steps", type=int, default=8000, help="steps of all of MiniGrid's rows together")
    parser.add_argument("--minigrid-levels", type=int, default=300, help="levels of a run of MiniGrid")
    parser.add_argument("--versions", nargs="*", default=[], help="versions of the peers, for the page")
    parser.add_argument("--out", type=Path, help="file for the results as Markdown")
    args = parser.parse_args()
    peers = [f"--{name} PYTHON" for name in ("navix", "xland") if getattr(args, name)]
    args.shown = [*peers, f"--rounds {args.rounds}"]
    return args


def main() -> None:
    args = parsed()
    sizes = ("n_envs", "n_levels", "minigrid_envs", "minigrid_steps", "minigrid_levels")
    flags = [f"--{size.replace('_', '-')}={getattr(args, size)}" for size in sizes]
    script = str(HERE / "time_grid_worlds.py")
    sides = {}
    for library, python in pythons(args).items():
        sides[library] = Side([python, script, library, *flags, f"--env-steps={STEPS.get(library, 0)}"])
    known = sides["ours"].facts["names"]
    rows = []
    for name in known:
        if not args.names or any(part in name for part in args.names):
            rows.append(compare(sides, name, args))
            if args.out:
                every = kept(args.out.with_suffix(".json"), rows, known)
                args.out.write_text("\n".join(page(every, sides, args)) + "\n", encoding="utf-8")
    for side in sides.values():
        side.close()


if __name__ == "__main__":
    main()
