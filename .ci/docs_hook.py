"""What the documentation site needs beside the pages of docs/ (a hook of mkdocs).

The pages are written to be read in a checkout, so that some of their links lead out of docs/: to benchmarks, to the
README, to source files. Here each such file becomes a page of the site, and the link leads there. So does each
notebook, with the outputs that it holds.
"""

import base64
import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = "repository"  # the folder of the site for files that are not in docs/
CODE = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".json": "json", ".css": "css", "": "text"}
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
VERBATIM = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)  # links in there are no links
IN_NAV = ("benchmarks/results/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LARGEST = 200_000  # bytes of a file that is shown on a page
NOTEBOOK = ".ipynb"

texts: dict[str, str] = {}  # page of the site -> file of the repository that it was made from


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for every notebook, and for every file of the repository that a page links to, and so on."""
    texts.clear()
    wanted = list(IN_NAV)
    for notebook in [file for file in files if file.src_uri.endswith(NOTEBOOK)]:
        for made in pages_of(notebook, config):
            files.append(made)
    for file in files.documentation_pages():
        wanted += linked(f"docs/{file.src_uri}", file.content_string)
    while wanted:
        path = wanted.pop()
        page = place(path)
        if page in texts or files.get_file_from_path(page):
            continue
        found = ROOT / path
        texts[page] = path
        # A file that is not there gets no page: mkdocs then says which link is broken.
        if page.endswith(".md") and found.exists():
            text = page_of(path)
            files.append(File.generated(config, page, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
            wanted += linked(path, text)
        elif found.is_file():
            files.append(File.generated(config, page, content=found.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as they are on the site."""
    uri = page.file.src_uri
    return rewritten(markdown, texts.get(uri, f"docs/{uri}"), uri)


def pages_of(notebook: File, config: MkDocsConfig) -> Iterator[File]:
    """The page of a notebook, and its pictures."""
    cells = json.loads(notebook.content_string)["cells"]
    pictures: list[bytes] = []
    name = posixpath.basename(notebook.src_uri)
    parts = [part for cell in cells for part in parts_of(cell, name, pictures)]
    # An HTML link: the others become links to the page.
    where = f'<a href="{name}" download>download it</a>, or open `docs/notebooks/{name}`'
    parts.insert(1, f"This page is a notebook: {where}.")
    yield File.generated(config, place(f"docs/{notebook.src_uri}"), content="\n\n".join(parts) + "\n")
    for i, picture in enumerate(pictures):
        yield File.generated(config, picture_name(notebook.src_uri, i), content=picture)


def parts_of(cell: dict[str, Any], name: str, pictures: list[bytes]) -> Iterator[str]:
    """The Markdown of a cell. Its title is in the first one, in a part of its own. Adds to `pictures`."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        title, _, rest = source.partition("\n") if source.startswith("# ") else ("", "", source)
        yield from filter(None, (title, rest.strip()))
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![what the cell above has drawn]({picture_name(name, len(pictures))})"
            pictures.append(base64.b64decode("".join(data["image/png"])))
        else:
            text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
            yield f"```{{.text .output}}\n{text}\n```"


def picture_name(notebook: str, i: int) -> str:
    return f"{notebook.removesuffix(NOTEBOOK)}_{i}.png"


def page_of(path: str) -> str:
    """The text of a page about a file or folder of the repository."""
    found = ROOT / path
    if found.is_dir():
        names = sorted(file.name for file in found.iterdir() if file.suffix in CODE and file.is_file())
        return "\n".join([f"# {path}", "", *(f"* [{name}]({posixpath.basename(path)}/{name})" for name in names), ""])
    text = found.read_text(encoding="utf-8")
    if found.suffix == ".md":
        return text
    fence = "`" * 4  # a docstring may hold a block of its own
    return f"# {found.name}\n\n`{path}`\n\n{fence}{CODE[found.suffix]}\n{text.rstrip()}\n{fence}\n"


def place(path: str) -> str:
    """Where a file of the repository is on the site: in docs/ as there, else in a folder of its own."""
    found, inside = ROOT / path, path.startswith("docs/")
    if inside and path.endswith(NOTEBOOK):
        return path.removeprefix("docs/").removesuffix(NOTEBOOK) + ".md"
    as_page = found.is_dir() or (found.suffix in CODE and found.is_file() and found.stat().st_size < LARGEST)
    uri = path.removeprefix("docs/") if inside and not as_page else f"{OUTSIDE}/{path}"
    return f"{uri}.md" if as_page else uri


def linked(source: str, text: str) -> Iterator[str]:
    """The files of the repository, other than pages and pictures of docs/, that the file `source` links to."""
    for part in VERBATIM.split(text)[::2]:
        for match in LINK.finditer(part):
            path = target_of(source, match[2])[0]
            if path is not None and place(path).startswith(f"{OUTSIDE}/"):
                yield path


def target_of(source: str, link: str) -> tuple[str | None, str]:
    """(the file of the repository that a link in the file `source` leads to, its anchor); None for any other link."""
    path, hash_, anchor = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return None, ""
    # The links of a page about a folder are as if they stood beside it.
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path)), hash_ + anchor


def rewritten(text: str, source: str, uri: str) -> str:
    """`text` of the file `source` with links that hold on the page `uri`."""

    def replaced(match: re.Match[str]) -> str:
        path, anchor = target_of(source, match[2])
        if path is None or path.startswith(".."):
            return match[0]
        return match[1] + posixpath.relpath(place(path), posixpath.dirname(uri) or ".") + anchor + match[3]

    return outside_code(text, lambda part: LINK.sub(replaced, part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """`text`, changed where it is no code."""
    parts = VERBATIM.split(text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))
