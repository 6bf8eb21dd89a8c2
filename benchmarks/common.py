"""Facts about the machine and the versions, for every file of results."""

import os
import platform
import subprocess
from importlib.metadata import version

import jax


def environment_facts() -> dict:
    """Versions, device, load and git revision."""
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=False)
    return {
        "versions": {name: version(name) for name in ("jax", "jaxlib", "flax", "numpy")}
        | {"python": platform.python_version()},
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores",
        "load": [round(x, 2) for x in os.getloadavg()],
        "revision": revision.stdout.strip() + ("+changes" if changed.stdout.strip() else ""),
    }
