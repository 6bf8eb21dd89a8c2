"""The run that a caller in Python names: its folder, and what is wrong with the name, in one line."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from minimax_lib.config.files import read_yaml
from minimax_lib.config.paths import at_home, check_path
from minimax_lib.config.shipped import located_run, shipped_agents
from minimax_lib.config.train import import_plugins
from minimax_lib.config.values import convert
from minimax_lib.messages import failure, shown
from minimax_lib.store.folder import RunFolder, check_is_run
from minimax_lib.store.saved import Run, find_run


def named_run(path: str | Path, plugins: Sequence[str] | None, checkpoint: int | Literal["latest"]) -> tuple[Path, Run]:
    """(its folder, the run at `path`), after `plugins` have been imported; ValueError as `load_run`."""
    if not isinstance(path, str | Path):
        raise ValueError(f"path is {shown(path)}: it must be the folder of a run, or the name of one")
    check_path("path", str(path))
    try:
        return _found(at_home("path", path), plugins, checkpoint)
    except ValueError:  # an OSError of this package may be one too
        raise
    except OSError as error:  # such as a folder that may not be searched
        raise ValueError(failure(error)) from None


def _found(path: Path, plugins: Sequence[str] | None, checkpoint: int | Literal["latest"]) -> tuple[Path, Run]:
    path = located_run(path)
    path = path.parent if path.name == "config.yaml" and path.is_file() else path
    if plugins is None:
        _check_no_plugins(path)
    else:
        several = isinstance(plugins, Iterable) and not isinstance(plugins, str)
        import_plugins(convert(list(plugins) if several else plugins, tuple[str, ...], "plugins"))
    return path, find_run(path, checkpoint, plugins_are_given=plugins is not None)


def _check_no_plugins(path: Path) -> None:
    """ValueError where the run names modules, in the words of Python and not of the command line."""
    check_is_run(path, shipped_agents())
    config = RunFolder(path).config
    named = convert(read_yaml(config).get("plugins", ()), tuple[str, ...], "plugins")
    if named:
        raise ValueError(
            f"{str(config)!r} is of a run with plugins, which are imported only if you name them: add "
            f"plugins={shown(list(named))} if you trust {'it' if len(named) == 1 else 'them'} "
            "(plugins=() goes on without)"
        )
