"""The notebooks of docs/notebooks: they run from start to end at a tiny size, and keep the pictures of a real run."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = ["dr", "paired", "plr_and_accel"]
LARGEST = 300_000  # bytes of the stored outputs of a notebook
TINY = {"N_UPDATES": 4, "N_PARALLEL": 8, "N_STEPS": 50, "N_LEVELS": 16, "N_WALLS": 4}
SIZE = re.compile(r"^(\w+) = \d+", re.MULTILINE)
FOREIGN_PATH = re.compile(r"(?<![\w.:/])/(home|tmp|work|root|usr|opt|Users|private)/|[A-Z]:\\")


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shrunk(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the sizes of `TINY` in the one cell that is tagged with `parameters`."""
    (sizes,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    sizes.source = SIZE.sub(lambda match: f"{match[1]} = {TINY[match[1]]}", sizes.source)
    return notebook


def test_all_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.deep
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    # The kernel is a separate process. It keeps compiled programs where the other tests do (`conftest.py`).
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = shrunk(read(path))
    stored = [n_pictures(cell) for cell in code_cells(notebook)]
    for cell in code_cells(notebook):
        cell.outputs = []
    options = {"resources": {"metadata": {"path": str(tmp_path)}}, "kernel_name": "python3", "timeout": 300}
    NotebookClient(notebook, **options).execute()
    assert [n_pictures(cell) for cell in code_cells(notebook)] == stored
    # A run that fails prints why, and returns its exit status.
    runs = [cell for cell in code_cells(notebook) if ".run()" in cell.source]
    assert runs
    assert all(cell.outputs[-1].data["text/plain"] == "0" for cell in runs)


def n_pictures(cell: NotebookNode) -> int:
    """The number of pictures that a cell shows."""
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_a_whole_run(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(map(n_pictures, cells)) >= 4
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    # The last line of a training says how long it was.
    (n_updates,) = re.findall(r"^N_UPDATES = (\d+)", cells[0].source, re.MULTILINE)
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert f"is finished: {n_updates} updates" in printed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_name_no_path_of_a_machine(path):
    outputs = [output for cell in code_cells(read(path)) for output in cell.outputs]
    assert len(json.dumps(outputs)) < LARGEST
    words = [output.get("text", "") for output in outputs]
    words += [text for output in outputs for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    assert not FOREIGN_PATH.search("\n".join(words))
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_section_shows_a_picture(path):
    shown: dict[str, int] = {}  # pictures by section
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            shown |= dict.fromkeys(re.findall(r"^## (.*)", cell.source, re.MULTILINE), 0)
        elif shown:
            shown[list(shown)[-1]] += n_pictures(cell)
    assert [section for section, n in shown.items() if not n] == ["What to try next"]


def test_paths_of_a_machine_are_found():
    assert FOREIGN_PATH.search("see /home/me/x.py:3: UserWarning")
    assert not FOREIGN_PATH.search("runs/home/x, update 10/500, https://x.org/home/")
