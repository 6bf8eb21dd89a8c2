"""Runs the Python of a page: all ```python blocks of a Markdown file, one after another, in one namespace."""

import os
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """(number of its first line, text) of every block."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in BLOCK.finditer(text)]


def run_blocks(page: Path, folder: Path, **names: Any) -> dict[str, Any]:
    """Runs the page with `folder` as the current one, and returns the names that it has defined.

    `names` are known to the page before its first block. An error is raised as it is, with the line of the page.
    """
    blocks = python_blocks(page)
    assert blocks, f"{page} has no ```python block"
    namespace: dict[str, Any] = {"__name__": "__main__", **names}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for line, text in blocks:
            # Empty lines above, so that a traceback shows the line of the page.
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), namespace)
    finally:
        os.chdir(before)
    return namespace
