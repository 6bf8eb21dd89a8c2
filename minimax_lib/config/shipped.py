"""What travels with the package, by name.

* configurations: `maze/dr` is minimax_lib/configs/maze/dr.yaml
* sweeps, in their own folder: `accel` is minimax_lib/configs/sweeps/accel.yaml
* trained agents: `maze/sfl` is the folder minimax_lib/trained/maze/sfl

A configuration is what --config takes, and a trained agent is what --run takes. So the two may have the same name.
"""

from pathlib import Path
from typing import Any

from minimax_lib.files import read_json, read_text

FOLDER = Path(__file__).parent.parent / "configs"
SWEEPS = FOLDER / "sweeps"
ENDING = ".yaml"
RUNS = "runs"  # where runs are by default
AGENTS = Path(__file__).parent.parent / "trained"
ABOUT = "agent.json"  # in the folder of a trained agent: how it was trained, and what it solves


def shipped() -> dict[str, Path]:
    """The configurations by name."""
    paths = (path for path in sorted(FOLDER.rglob(f"*{ENDING}")) if path.parent != SWEEPS)
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in paths}


def shipped_sweeps() -> dict[str, Path]:
    """The sweeps by name."""
    return {path.stem: path for path in sorted(SWEEPS.glob(f"*{ENDING}"))}


def shipped_agents() -> dict[str, Path]:
    """The folders of the trained agents by name."""
    folders = (path.parent for path in sorted(AGENTS.glob(f"*/*/{ABOUT}")))
    return {folder.relative_to(AGENTS).as_posix(): folder for folder in folders}


def located(name: str) -> Path:
    """The file called `name`: a path, or else the name of a shipped configuration, with or without its ending."""
    path = shipped().get(name.removesuffix(ENDING))
    # A file of the user's comes first. A folder of that name does no harm.
    return path if path and not Path(name).is_file() else Path(name)


def located_run(path: str | Path) -> Path:
    """The folder of the run at `path`: `path` itself, the run of this name in `runs/`, or the trained agent of it."""
    # A run of the user's comes first. Any other folder of that name does no harm.
    for place in (Path(path), Path(RUNS, path)):
        if (place / "config.yaml").is_file():
            return place
    return shipped_agents().get(Path(path).as_posix(), Path(path))


def agent_name(folder: Path) -> str:
    """The name of the trained agent whose folder this is; empty for any other folder."""
    here = folder.resolve()
    return next((name for name, agent in shipped_agents().items() if agent.resolve() == here), "")


def about_agent(folder: Path) -> dict[str, Any]:
    """How the trained agent in `folder` was trained, and what it solves."""
    about: dict[str, Any] = read_json(folder / ABOUT)
    return about


def is_shipped(path: Path) -> bool:
    """Whether `path` is a shipped file."""
    return path in shipped().values()


def summary(path: Path) -> str:
    """What a file is: its first line, which is a comment; empty if it is none."""
    line, *_ = read_text(path).strip().splitlines() or [""]
    return line.removeprefix("#").strip() if line.startswith("#") else ""


def summary_of_agent(folder: Path) -> str:
    """What the trained agent in `folder` is, in a line."""
    about = about_agent(folder)
    rates = (f"{100 * e['solved_rate']:.0f}% of {e['tasks']}" for e in about["evaluations"] if e["solved_rate"])
    solves = ", ".join(dict.fromkeys(rates))
    return f"{about['method']} with {about['model']}, {about['updates']:,} updates; it solves {solves}"
