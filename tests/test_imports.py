"""Imports point one way, go round in no circle, and only the registries know what a maze is."""

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minimax_lib.moved import MOVED

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minimax_lib"
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
LAYERS = [  # each may import itself and what stands before it; the longest prefix counts
    ["output", "leaving", "messages", "extras", "files", "moved", "registry", "settings", "trees"],
    ["counts", "axes", "loops", "jax_settings", "priorities"],
    ["envs"],
    ["agents.base", "gae", "playing", "reward_normalization", "models"],
    ["agents"],
    ["tasks"],
    ["opponents"],
    ["curricula", "playing.students"],
    ["runners", "evaluation"],
    ["config"],
    ["store"],
    ["pictures.films", "pictures.galleries"],  # a run draws while it is under way
    ["experiment"],
    ["portable", "pictures", "sweeps", "testing"],
    ["commands"],
]
KNOW_MAZES = {"minimax_lib.envs", "minimax_lib.envs.registry"}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that the code under `tree` imports, by full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in SOURCES else str(node.module)


def imported_on_loading(tree: ast.Module) -> set[str]:
    """The same, but only what runs when the module itself is imported."""
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return set(imported(ast.Module(body=top, type_ignores=[])))


def loaded_with(module: str) -> set[str]:
    """All modules that are imported with `module`: those of this package with what they import, others by name."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        parents = {".".join(name.split(".")[:i]) for i in range(1, name.count(".") + 1)}
        if name in found:
            continue
        found.add(name)
        if name in SOURCES:
            waiting += parents | imported_on_loading(tree_of(SOURCES[name]))
    return found


def layer(module: str) -> int | None:
    """Which layer a module is in; the package itself is above all."""
    if module == "minimax_lib":
        return len(LAYERS)
    name = module.removeprefix("minimax_lib.")
    prefixes = {prefix: i for i, layer in enumerate(LAYERS) for prefix in layer}
    fitting = [prefix for prefix in prefixes if name == prefix or name.startswith(f"{prefix}.")]
    return prefixes[max(fitting, key=len)] if fitting else None


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """The modules that a file imports anywhere, by full name."""
    return frozenset(imported(tree_of(path)))


def test_imports_point_one_way():
    for module, path in SOURCES.items():
        assert layer(module) is not None, f"{module} is in no layer: add it to LAYERS"
        for other in imports_of(path):
            if other.split(".")[0] == "minimax_lib":
                assert layer(other) <= layer(module), f"{module} imports {other}"


def test_imports_go_round_in_no_circle():
    graph = {module: imported_on_loading(tree_of(path)) & SOURCES.keys() for module, path in SOURCES.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_only_registries_know_mazes():
    for module, path in SOURCES.items():
        if not module.startswith("minimax_lib.envs.maze") and module not in KNOW_MAZES:
            assert not any(other.startswith("minimax_lib.envs.maze") for other in imports_of(path)), module


def test_the_worlds_made_of_cells_share_only_what_is_under_cells():
    worlds = ("minimax_lib.envs.maze", "minimax_lib.envs.grid", "minimax_lib.envs.lasertag")
    for module, path in SOURCES.items():
        own = next((world for world in worlds if module.startswith(world)), "")
        if own or module.startswith("minimax_lib.envs.cells"):
            strangers = tuple(world for world in worlds if world != own)
            assert not any(other.startswith(strangers) for other in imports_of(path)), module


def test_the_links_are_for_people_only():
    for path in [
        *SOURCES.values(),
        *ROOT.glob("*.py"),
        *(ROOT / "tests").glob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]:
        for other in imports_of(path):
            assert other.split(".")[0] not in ("envs", "runners"), f"{path} imports {other}: import minimax_lib.{other}"


def test_the_configuration_is_quick_to_import():
    slow = ("distrax", "tensorflow_probability", "orbax", "scipy.stats", "tyro", "matplotlib")
    code = f"import sys, minimax_lib.commands.train; print([m for m in {slow} if m in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["plot", "report"])
def test_commands_that_read_tables_start_without_jax(command):
    outside = {name.split(".")[0] for name in loaded_with(f"minimax_lib.commands.{command}")}
    assert "yaml" in outside  # what is imported has been followed
    assert not outside & {"jax", "flax", "optax", "distrax", "orbax", "chex"}
    assert "jax" in loaded_with("minimax_lib.commands.train")


def test_modules_that_have_moved_are_found_by_their_old_names():
    code = """
import importlib
import minimax_lib.curricula.plr as by_old_name
from minimax_lib.curricula.level_buffer import init
from minimax_lib import moved, train
for old, now in moved.MOVED.items():
    module = importlib.import_module(f"minimax_lib.{now}")
    assert importlib.import_module(f"minimax_lib.{old}") is module, old
    assert module.__spec__.name == module.__name__ == f"minimax_lib.{now}", old
from minimax_lib.envs.conformance.teacher import check_teacher
from minimax_lib.testing.envs import check_teacher as same
assert check_teacher is same and by_old_name.PLR.__module__ == "minimax_lib.curricula.levels.plr"
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.deep
def test_a_command_that_has_moved_is_found_by_its_old_name():
    words = ["-m", "minimax_lib.train", "--n-updates", "none"]
    refused = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr


def test_the_package_itself_uses_new_names():
    moved = tuple(f"minimax_lib.{old}" for old in MOVED)
    for path in [*SOURCES.values(), *(ROOT / "tests").glob("*.py"), *(ROOT / "docs").rglob("*.py")]:
        for other in imports_of(path):
            assert not any(other == old or other.startswith(f"{old}.") for old in moved), f"{path} imports {other}"
