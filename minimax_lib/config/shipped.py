"""The configurations that travel with the package, by name: `maze/dr` is minimax_lib/configs/maze/dr.yaml.

Sweeps travel with them, in a folder of their own: `accel` is minimax_lib/configs/sweeps/accel.yaml.
"""

from pathlib import Path

FOLDER = Path(__file__).parent.parent / "configs"
SWEEPS = FOLDER / "sweeps"
ENDING = ".yaml"


def shipped() -> dict[str, Path]:
    """The configurations by name."""
    paths = (path for path in sorted(FOLDER.rglob(f"*{ENDING}")) if path.parent != SWEEPS)
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in paths}


def shipped_sweeps() -> dict[str, Path]:
    """The sweeps by name."""
    return {path.stem: path for path in sorted(SWEEPS.glob(f"*{ENDING}"))}


def located(name: str) -> Path:
    """The file called `name`: a path, or else the name of a shipped configuration, with or without its ending."""
    path = shipped().get(name.removesuffix(ENDING))
    # A file of the user's comes first. A folder of that name is in nobody's way.
    return path if path and not Path(name).is_file() else Path(name)


def is_shipped(path: Path) -> bool:
    """Whether `path` is a shipped file."""
    return path in shipped().values()


def summary(path: Path) -> str:
    """What a file is: its first line, which is a comment; empty if it is none."""
    with path.open(encoding="utf-8") as file:
        line = file.readline().strip()
    return line.removeprefix("#").strip() if line.startswith("#") else ""
