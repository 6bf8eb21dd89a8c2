"""Runs notebooks from start to end, and stores them with their outputs: `python docs/notebooks/remake.py dr paired`."""

import base64
import io
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_output
from PIL import Image

FOLDER = Path(__file__).parent
COLOURS = 64  # of a stored picture: enough for mazes and curves, and a fraction of the bytes


def remake(path: Path) -> None:
    """Runs a notebook in an empty folder, and writes it only if all went well."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        options = {"resources": {"metadata": {"path": folder}}, "kernel_name": "python3", "timeout": 3600}
        NotebookClient(notebook, record_timing=False, **options).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = tidy(cell.outputs)
    nbformat.write(notebook, path)


def tidy(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Pictures as PNG alone, and the rest as the text of a terminal: what differs from machine to machine is small."""
    found: list[NotebookNode] = []
    for output in outputs:
        if "image/png" in output.get("data", {}):
            kind = output.data["text/plain"].split("(")[0]
            output.data = {"image/png": small(output.data["image/png"]), "text/plain": kind}
            found.append(output)
        elif output.output_type == "execute_result":
            found.append(output)
        elif output.get("name") != "stderr":
            # A run prints its lines through rich, which makes HTML of each in a notebook.
            text = output.text if output.output_type == "stream" else output.data["text/plain"]
            if found and found[-1].output_type == "stream":
                found[-1].text += text
            else:
                found.append(new_output("stream", name="stdout", text=text))
    return found


def small(png: str) -> str:
    """A picture with few colours; both in base64."""
    picture, stored = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"), io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(stored, "PNG", optimize=True)
    return base64.b64encode(stored.getvalue()).decode()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        remake(FOLDER / f"{name}.ipynb")
