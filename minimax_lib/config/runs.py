"""Config files of runs. They are opened by people who have not written them: some of what they say does not count."""

from collections.abc import Sequence
from pathlib import Path

from minimax_lib.config.shipped import agent_name, is_shipped
from minimax_lib.config.tree import Tree, overlay
from minimax_lib.config.values import convert


def is_of_run(path: Path) -> bool:
    """Whether a config file lies in the folder of a run."""
    if is_shipped(path):  # by the authors of this package
        return False
    return (path.parent / "checkpoints").exists() or (path.parent / "metrics.csv").exists()


def merged(files: Sequence[tuple[Path, Tree]], flags: Tree) -> Tree:
    """What several files say, the later ones before the earlier ones; of runs, and on a resume, as `harmless` allows.

    ValueError in one line where that is not enough.
    """
    plain: Tree = {}
    for _, said in files:
        plain = overlay(plain, said)
    resumes = convert(overlay(plain, flags).get("resume", False), bool, "resume")
    tree: Tree = {}
    for path, said in files:
        if is_of_run(path) or (resumes and not is_shipped(path)):
            if said.get("distributed") and "distributed" not in flags:
                raise ValueError(f"{str(path)!r} says distributed: say --distributed yourself to resume a run so")
            said = harmless(said, path, "plugins" in flags)
        tree = overlay(tree, said)
    return tree


def harmless(said: Tree, path: Path, plugins_are_given: bool) -> Tree:
    """`said` without the code that it names: the modules to import, and the folder of compiled programs.

    Both come from flags alone. ValueError with what to add where the run has plugins and no flag gives any.
    """
    plugins = convert(said.get("plugins", ()), tuple[str, ...], "plugins")
    # Not imported for the run's sake: to import a module is to run it.
    if plugins and not plugins_are_given:
        raise ValueError(
            f"{str(path)!r} is of a run with plugins, which are imported only if you name them: "
            f"add --plugins {' '.join(map(_shown, plugins))} if you trust {'it' if len(plugins) == 1 else 'them'} "
            "(--plugins alone goes on without)"
        )
    return {name: value for name, value in said.items() if name not in ("plugins", "compilation_cache")}


def check_place(files: Sequence[tuple[Path, Tree]], flags: Tree, run_folder: Path) -> None:
    """ValueError where a resume would go on in `run_folder`, and a file is of a run elsewhere or of a trained agent.

    A run's own file says where it was when it began. `flags` that name a place are believed.
    """
    for path, _ in files:
        agent = agent_name(path.parent)
        if agent and not run_folder.exists():
            raise ValueError(
                f"{agent} ships with its parameters alone, and {str(run_folder)!r} holds no run: leave out --resume, "
                "to train with its settings from the beginning"
            )
    if "name" in flags or "log_dir" in flags:
        return
    for path, _ in files:
        here = path.parent.resolve()
        if is_of_run(path) and here != run_folder.resolve():
            there = "" if run_folder.exists() else ", where there is nothing to resume"
            raise ValueError(
                f"{str(path)!r} is of a run that was moved or copied: it would resume {str(run_folder)!r}{there} "
                f"(--log-dir {_quoted(str(here.parent))} --name {_quoted(here.name)} resumes the run beside the file)"
            )


def _shown(module: str) -> str:
    return module if all(part.isidentifier() for part in module.split(".")) else repr(module)


def _quoted(text: str) -> str:
    return text if text.isprintable() and not set(text) & set(" '\"\\$") else repr(text)
