"""Versions of what is installed. Needs nothing, so that it runs in the environment of any project."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of Python and of those packages that there are."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
