"""Where modules stood before: an import of an old name gives the module that has taken its place."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

MOVED = {
    "curricula.accel": "curricula.levels.accel",
    "curricula.agent_tasks": "curricula.tasks.agents",
    "curricula.attempt_scoring": "curricula.tasks.scoring",
    "curricula.box_cores": "tasks.box_registry",
    "curricula.box_tasks": "curricula.tasks.boxes",
    "curricula.conformance": "testing.curricula",
    "curricula.designed": "curricula.levels.designed",
    "curricula.dr": "curricula.levels.dr",
    "curricula.episode_replay": "curricula.levels.episode_replay",
    "curricula.finite": "curricula.levels.finite",
    "curricula.generators": "curricula.levels.generators",
    "curricula.joint": "curricula.games.joint",
    "curricula.maestro": "curricula.games.maestro",
    "curricula.parallel": "curricula.levels.parallel",
    "curricula.plr": "curricula.levels.plr",
    "curricula.sfl": "curricula.levels.sfl",
    "curricula.students": "playing.students",
    "curricula.task_cores": "tasks.registry",
    "curricula.task_evaluation": "curricula.tasks.evaluation",
    "curricula.task_files": "tasks.files",
    "curricula.task_runner": "curricula.tasks.settings",
    "draw": "commands.draw",
    "envs.conformance": "testing.envs",
    "episodes": "playing.episodes",
    "evaluate": "commands.evaluate",
    "evaluation.players": "playing.players",
    "experiment.acting": "playing.acting",
    "experiment.archive": "store.archive",
    "experiment.checkpoint": "store.checkpoint",
    "experiment.evaluations": "store.evaluations",
    "experiment.files": "store.files",
    "experiment.folder": "store.folder",
    "experiment.kept_copies": "store.kept_copies",
    "experiment.kept_levels": "store.kept_levels",
    "experiment.loaded": "store.loaded",
    "experiment.origin": "store.origin",
    "experiment.parameters": "store.parameters",
    "experiment.provenance": "store.provenance",
    "experiment.saved": "store.saved",
    "experiment.writers.csv": "store.tables",
    "models.conformance": "testing.models",
    "play": "commands.play",
    "plot": "commands.plot",
    "report": "commands.report",
    "rollout": "playing.rollout",
    "sweep": "commands.sweep",
    "train": "commands.train",
}


class Moved:
    """Finds a module by the name that it had before.

    Python asks it first: in a folder that has moved, its own finder would find the file and import it a second time.
    """

    def __init__(self, now: str):
        self.now = now  # the name of the module today

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        now = name_now(name)
        return None if now is None else ModuleSpec(name, cls(now), origin=file_of(now))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.now)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Python has written the old name into the module, which is imported already.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def get_code(self, name: str) -> CodeType | None:
        """For `python -m`."""
        spec = importlib.util.find_spec(self.now)
        assert spec is not None
        return spec.loader.get_code(self.now)  # type: ignore[union-attr]


def file_of(name: str) -> str:
    """The file of a module, without an import. `python -m` makes it `sys.argv[0]`, which jax reads."""
    path = Path(__file__).parent.joinpath(*name.split(".")[1:])
    return str(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def name_now(name: str) -> str | None:
    """Today's name of a module, or of one in a folder that has moved; None where it has not moved."""
    package, _, old = name.partition(".")
    for place in (old, old.rpartition(".")[0]):
        if package == "minimax_lib" and place in MOVED:
            return f"minimax_lib.{MOVED[place]}{old.removeprefix(place)}"
    return None


def install() -> None:
    """Lets Python find modules by their old names. Calling it again changes nothing."""
    if Moved not in sys.meta_path:
        sys.meta_path.insert(0, Moved)
