"""Facts about the machine and the versions, for every file of results. `python benchmarks/common.py` prints them."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # the package need not be installed


def environment_facts() -> dict:
    """Versions, device, processor, load and git revision."""
    from minimax_lib.experiment.hardware import processor

    return {
        "versions": {name: version(name) for name in ("jax", "jaxlib", "flax", "numpy")}
        | {"python": platform.python_version()},
        "platform": jax.default_backend(),
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores",
        "processor": processor(),  # speed, and also speed ratios, belong to it
        "load": [round(x, 2) for x in os.getloadavg()],
        "revision": revision(),
    }


def revision() -> str:
    """The git revision. In a copy without git, a checksum of the package's sources tells which copy it was."""
    found = git("rev-parse", "--short", "HEAD") if shutil.which("git") else ""
    if found:
        return found + ("+changes" if git("status", "--porcelain") else "")
    sources = hashlib.sha256()
    for path in sorted((ROOT / "minimax_lib").rglob("*.py")):
        sources.update(path.read_bytes())
    return f"no git; sha256 of minimax_lib: {sources.hexdigest()[:12]}"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def keep(path: Path | None, result: dict[str, Any]) -> None:
    """Writes the results, whole or not at all, so that a run that is cut off keeps its measurements."""
    from minimax_lib.store.files import write_atomically  # the facts are also for environments without the package

    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    print(json.dumps(environment_facts()))
