"""Ours and a peer on the same cores, a step each in turn: how many times longer does the peer take?

    python benchmarks/peers/side_by_side.py minimax --python PEERS_PYTHON --repo PEERS_CLONE --out FILE

peers.md says how the peer's Python and clone are made. Both sides are processes that stay alive, and work only on
command: first each compiles a program and warms it up, then they do one step each, ours, theirs, ours, theirs, so that
other load on the machine touches neighbours alike. `ratio` is the median over neighbours of the peer's seconds by ours.
A program that only one side has is left out. `--devices` says over how many devices (cores, on a machine without
accelerators) ours is spread; the peers run on one, with as many threads as there are cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from turns import kinds_of

sys.path.append(str(Path(__file__).parents[1]))  # the benchmarks of this project alone

from common import environment_facts

HERE = Path(__file__).parent
SCRIPTS = {"minimax": HERE / "time_minimax.py", "jaxued": HERE / "time_jaxued.py"}
SIZES = ("rows", "steps", "capacity", "n_envs", "env_steps")


class Side:
    """A process that does timed steps on command."""

    def __init__(self, command: list[str], packages: Path | None = None):
        env = os.environ | ({"PYTHONPATH": str(packages)} if packages else {})
        self.process = subprocess.Popen(
            [*command, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.facts = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended; what it said stands above")
        return json.loads(line)

    def ask(self, command: str, name: str, kind: str) -> dict[str, Any]:
        assert self.process.stdin
        print(command, name, kind, file=self.process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def compare(ours: Side, peer: Side, name: str, kind: str, n_turns: int) -> dict[str, Any]:
    """The times of one kind of step of one program, and their ratio."""
    sides = {"ours": ours, "peer": peer}
    warm = {side: child.ask("warm", name, kind)["warm_seconds"] for side, child in sides.items()}
    rounds = [{side: child.ask("turn", name, kind)["seconds"] for side, child in sides.items()} for _ in range(n_turns)]
    ratios = sorted(turn["peer"] / turn["ours"] for turn in rounds)
    times = {side: [round(turn[side], 5) for turn in rounds] for side in sides}
    return {
        "program": name,
        "kind": kind,
        "seconds": {side: statistics.median(took) for side, took in times.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratio_range": [round(ratios[0], 2), round(ratios[-1], 2)],
        "all_seconds": times,
        "warm_seconds": {side: [round(x, 2) for x in took] for side, took in warm.items()},
        "load": [round(x, 2) for x in os.getloadavg()],
    }


def revision_of(repo: Path) -> str:
    found = subprocess.run(["git", "-C", str(repo), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def show(row: dict[str, Any]) -> dict[str, Any]:
    """The row; a line of the table in peers.md is printed."""
    ours, peer, (low, high) = row["seconds"]["ours"], row["seconds"]["peer"], row["ratio_range"]
    ratio = f"{row['ratio']} ({low} to {high})"
    print(f"| {row['program']}, {row['kind']} | {ours:.4g} | {peer:.4g} | {ratio} |", flush=True)
    return row


def keep(path: Path, peer: str, facts: dict[str, Any], row: dict[str, Any]) -> None:
    """Writes the row in the place of the older one of its kind; a run that is cut off keeps what it has measured."""
    result = json.loads(path.read_text()) if path.exists() else {"benchmark": "peers"}
    rows = result.get(peer, {}).get("rows", [])
    others = [old for old in rows if kind_of(old) != kind_of(row)]
    path.write_text(json.dumps(result | {peer: facts | {"rows": [*others, row]}}, indent=1) + "\n")


def kind_of(row: dict[str, Any]) -> tuple:
    """What a newer row replaces."""
    return row["program"], row["kind"], row["devices"]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=SCRIPTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all that both have if none is named")
    parser.add_argument("--python", type=Path, required=True, help="the peer's Python")
    parser.add_argument("--repo", type=Path, required=True, help="the peer's clone")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each kind, of each side, that are timed")
    parser.add_argument("--out", type=Path, help="file for the results as JSON, kept after each program")
    parser.add_argument("--devices", type=int, default=1, help="over which ours is spread")
    for size in SIZES:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, help="instead of that of turns.py")
    return parser.parse_args()


def main() -> None:
    args = parsed()
    sizes = [f"--{size.replace('_', '-')}={getattr(args, size)}" for size in SIZES if getattr(args, size)]
    facts = environment_facts()
    print(f"{facts['processor']}, {facts['device']}", flush=True)
    ours = Side([sys.executable, str(HERE / "time_ours.py"), *sizes, f"--devices={args.devices}"])
    command = [str(args.python), str(SCRIPTS[args.peer]), f"--repo={args.repo.resolve()}", *sizes]
    peer = Side(command, packages=args.repo.resolve() / "src")
    names = args.names or [name for name in ours.facts["names"] if name in peer.facts["names"]]
    versions = {"ours": ours.facts["versions"], "peer": peer.facts["versions"], "peer_revision": revision_of(args.repo)}
    facts |= {"versions": versions, "sizes": sizes, "rounds": args.rounds}
    for name in names:
        for kind in kinds_of(name):
            row = show(compare(ours, peer, name, kind, args.rounds))
            row |= {"devices": args.devices, "revision": facts["revision"]}
            if args.out:
                keep(args.out, args.peer, facts, row)
    ours.close()
    peer.close()


if __name__ == "__main__":
    main()
