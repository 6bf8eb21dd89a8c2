"""What the optional libraries are installed with: the extras of `setup.py`."""

import importlib.util
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def check_installed(module: str, extra: str, needed_by: str) -> None:
    """ValueError in one line, with the command that installs it, if `module` of `extra` is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"{needed_by} needs {module}, which is not installed: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs `extra`."""
    return f"pip install {distribution(extra)}"


def distribution(extra: str) -> str:
    """What pip is told to install: this checkout, if the package was imported from one."""
    if not (CHECKOUT / "setup.py").is_file():
        return f'"minimax-ued[{extra}]"'
    return f'-e "{"." if Path.cwd() == CHECKOUT else CHECKOUT}[{extra}]"'
