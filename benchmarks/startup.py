"""Time from the shell to the first update: `train.py` with an empty compilation cache, then with a full one.

    python benchmarks/startup.py [--configs dr paired] [--rounds 2] [--out benchmarks/results/startup_cpu.json]

Counts from the start of the process until the first update is a row of `metrics.csv`. The evaluation of the untrained
agent comes before it and is included (`evaluated` says when it was done). The run is then interrupted.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import environment_facts

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0  # seconds


def n_rows(path: Path) -> int:
    """Finished lines below the header."""
    return path.read_text().count("\n") - 1 if path.exists() else 0


def first_update(config: str, folder: Path, cache: Path) -> dict[str, float]:
    """Seconds of one start."""
    words = ["train.py", "--config", f"configs/maze/{config}.yaml", "--log-every", "1", "--no-report"]
    words += ["--log-dir", str(folder), "--name", "run", "--compilation-cache", str(cache)]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found: dict[str, float] = {}
    while "first_update" not in found:
        took = time.perf_counter() - began
        assert process.poll() is None, f"{' '.join(words)} ended with status {process.returncode}"
        assert took < PATIENCE, f"{config} has not begun after {took:.0f} s"
        for name, table in (("evaluated", "eval.csv"), ("first_update", "metrics.csv")):
            if name not in found and n_rows(folder / "run" / table) > 0:
                found[name] = round(took, 2)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=["dr", "paired"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    facts, rows = environment_facts(), []
    for config in args.configs:
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as place:
                for state in ("cold", "cached"):
                    row = {"config": config, "cache": state}
                    rows.append(row | first_update(config, Path(place) / state, Path(place) / "cache"))
                    print(rows[-1], flush=True)
    if args.out:
        args.out.write_text(json.dumps({"benchmark": "startup", **facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
