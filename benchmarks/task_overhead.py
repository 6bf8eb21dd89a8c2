"""What task curricula cost beside a loop without them, and beside those of Syllabus.

    python benchmarks/task_overhead.py --syllabus PYTHON --repo CLONE --out FILE

PYTHON is that of a virtual environment with the PyPI packages `syllabus-rl`, `nle`, `matplotlib` and `scipy`, CLONE a
checkout of its repository: the release's learning progress fails on a current NumPy, and its repository does not.
Without `--syllabus`, ours is timed alone. peers/task_loop.py has the loop, with 128 environments of NetHack's speed.

Every program is a process that stays alive and works only on command. It takes turns with a process of the same
library that steps the same environments without a curriculum: A B, then B A. Seconds are those of the processor, of all
processes and threads together, which other load on the machine changes less than the time of day. An overhead is that
of one pair of turns; the table has the median, and the quartiles of the pairs. The rows are kept in a file beside FILE,
so that a run of a few programs replaces only theirs.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from common import environment_facts, keep

sys.path.append(str(Path(__file__).parent / "peers"))  # the processes that take turns

from side_by_side import HERE as PEERS
from side_by_side import Side, revision_of

NAMES = {
    "episodes/uniform": "uniform, a report an episode",
    "episodes/learning_progress": "learning progress from training, a report an episode",
    "steps/plr": "PLR, told of every step",
    "central/plr": "PLR, told of every step by the trainer",
}
LIBRARIES = ("ours", "syllabus")


def sides_of(library: str, args: argparse.Namespace) -> dict[str, Side]:
    """A process for each program of a library, and one for its loop without a curriculum."""
    python = sys.executable if library == "ours" else str(args.syllabus)
    flags = [f"--env={args.env}", f"--n-envs={args.n_envs}", f"--steps={args.steps}"]
    flags += ["--processes"] if args.processes else []
    command = [python, "-W", "ignore", str(PEERS / f"time_tasks_{library}.py"), *flags]
    packages = args.repo.resolve() if library == "syllabus" and args.repo else None
    first = Side(command, packages)
    names = [name for name in args.names or NAMES if name in first.facts["names"]]
    return {"plain": first} | {name: Side(command, packages) for name in names}


def pairs(sides: dict[str, Side], name: str, args: argparse.Namespace) -> list[tuple[float, float]]:
    """(without, with) microseconds of the processor for a step of one environment, in turns."""
    found = []
    for i in range(args.rounds):
        order = ("plain", name) if i % 2 == 0 else (name, "plain")
        took = {side: sides[side].ask("turn", side, "run")["microseconds"] for side in order}
        found.append((took["plain"], took[name]))
    return found


def row_of(library: str, name: str, found: list[tuple[float, float]], facts: dict[str, Any]) -> dict[str, Any]:
    """One line of the table."""
    overheads = [100 * (with_it / without - 1) for without, with_it in found]
    quartiles = statistics.quantiles(overheads, n=4) if len(overheads) > 1 else overheads * 3
    return facts | {
        "library": library,
        "program": name,
        "plain": statistics.median(without for without, _ in found),
        "extra": statistics.median(with_it - without for without, with_it in found),
        "overhead": statistics.median(overheads),
        "quartiles": [quartiles[0], quartiles[2]],
        "pairs": [[round(x, 2) for x in pair] for pair in found],
    }


def kind_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a newer row replaces."""
    return tuple(row[name] for name in ("library", "program", "env", "n_envs", "processes"))


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Of rows with the same environments: what they cost, ours beside Syllabus."""
    lines = ["| curriculum | library | µs without | µs more | overhead | quartiles |", "|---|---|---|---|---|---|"]
    order = list(NAMES)
    for row in sorted(rows, key=lambda row: (order.index(row["program"]), LIBRARIES.index(row["library"]))):
        low, high = row["quartiles"]
        numbers = f"{row['plain']:.1f} | {row['extra']:.2f} | {row['overhead']:.1f}% | {low:.1f} to {high:.1f}%"
        lines.append(f"| {NAMES[row['program']]} | {row['library']} | {numbers} |")
    return lines


def title_of(row: dict[str, Any]) -> str:
    kinds = {"burning": "that do the same work in each step", "nle": "of the real NetHack (nle)"}
    place = "a process each" if row["processes"] else "all in one process"
    return f"{row['n_envs']} environments {kinds[row['env']]}, {place}"


def page(result: dict[str, Any], command: str) -> str:
    """The results for people."""
    rows, facts = result["rows"], result["facts"]
    versions = "; ".join(f"{library}: {words(known)}" for library, known in result["versions"].items())
    lines = ["# What task curricula cost, beside Syllabus, on a CPU", "", f"`{command}`", ""]
    lines += [f"* {facts['processor']}, {facts['device']}; load {facts['load'][0]} at the end"]
    lines += [f"* revision {facts['revision']}; Syllabus at {result['peer_revision']}", f"* {versions}"]
    lines += [f"* microseconds of the processor, of all processes together, for a step of one environment; {PAIRS}"]
    lines += [*(f"* {note}" for note in result.get("notes", [])), ""]
    for title in dict.fromkeys(map(title_of, rows)):
        lines += [f"## {title}", "", *table([row for row in rows if title_of(row) == title]), ""]
    return "\n".join(lines)


PAIRS = "medians and quartiles over pairs of turns, one with the curriculum and one without"


def words(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"programs: {', '.join(NAMES)}; default all")
    parser.add_argument("--syllabus", type=Path, help="Python with syllabus-rl")
    parser.add_argument("--repo", type=Path, help="a clone of Syllabus, in the place of the release")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES, help="only these")
    parser.add_argument("--env", choices=("burning", "nle"), default="burning")
    parser.add_argument("--n-envs", type=int, default=128)
    parser.add_argument("--steps", type=int, default=128, help="of all environments in a turn")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of turns")
    parser.add_argument("--warm", type=int, default=8, help="turns before them, which compile")
    parser.add_argument("--processes", action="store_true", help="a process for each environment")
    parser.add_argument("--out", type=Path, help="page of results; a .json of the same name is kept beside it")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in NAMES]:
        parser.error(f"unknown program {unknown[0]!r}: choose from {', '.join(NAMES)}")
    return args


def measured(library: str, args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Adds the rows of a library to the result."""
    sides = sides_of(library, args)
    result["versions"][library] = sides["plain"].facts["versions"]
    facts = {"env": args.env, "n_envs": args.n_envs, "processes": args.processes}
    for name, side in sides.items():
        for _ in range(2 if name == "plain" else args.warm):
            side.ask("warm", name, "run")
    for name in sides:
        if name == "plain":
            continue
        row = row_of(library, name, pairs(sides, name, args), facts)
        print(table([row])[-1], flush=True)
        result["rows"] = [old for old in result["rows"] if kind_of(old) != kind_of(row)] + [row]
    for side in sides.values():
        side.close()


def main() -> None:
    args = parsed()
    path = args.out.with_suffix(".json") if args.out else None
    kept = json.loads(path.read_text()) if path and path.exists() else {}
    result = {"rows": [], "versions": {}, "peer_revision": "the release"} | kept
    result["peer_revision"] = revision_of(args.repo)[:7] if args.repo else result["peer_revision"]
    for library in args.libraries:
        if library == "syllabus" and not args.syllabus:
            continue
        measured(library, args, result)
        result["facts"] = environment_facts()
        keep(path, result)
        if args.out:
            command = "python benchmarks/task_overhead.py --syllabus PYTHON --repo CLONE"
            args.out.write_text(page(result, command), encoding="utf-8")


if __name__ == "__main__":
    main()
