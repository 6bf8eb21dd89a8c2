"""What a report's HTML is made of: templates, pictures inside the page, and a file that may be written to again.

jinja2 is an extra. It is imported where a page is made, so that requests are checked without it.
"""

import base64
import functools
import hashlib
import io
import itertools
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from minimax_lib.files import MOST_TABLE, UnreadableFile, read_bytes
from minimax_lib.pictures import style
from minimax_lib.pictures.style import Picture
from minimax_lib.store.files import write_atomically

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

WHITE, PALE = 0xFFFFFF, 180
MARK = re.compile(rb"<!-- minimax-report ([0-9a-f]{64}) -->\n\Z")


@functools.cache
def templates() -> "Environment":
    """The templates in this folder. They escape all text but Markup."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("minimax_lib", "pictures"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["n_colours"] = len(style.COLOURS)
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return found


def part(name: str, *values: Any) -> "Markup":
    """A part of a page: what the macro `name` of report_parts.html makes of the values."""
    return getattr(templates().get_template("report_parts.html").module, name)(*values)


def data_url(content: bytes, kind: str) -> str:
    """The content as an address, so that it is a part of the page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(picture: np.ndarray, clear_white: bool = False) -> bytes:
    """A picture (u8[H, W, 3]) as a PNG: with a palette, which is smaller, where it has few colours.

    `clear_white` lets the page's own paper be seen instead of white paper, where nothing shades into the white.
    """
    image = Image.fromarray(picture)
    packed = picture.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    colours, places = np.unique(packed, return_inverse=True)
    transparent = None
    if len(colours) <= 256:
        image = Image.fromarray(places.reshape(packed.shape).astype(np.uint8), "P")
        image.putpalette(
            np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes()
        )
        # The colours are sorted: white is the last one.
        if clear_white and colours[-1] == WHITE and not shades_into_white(picture):
            transparent = len(colours) - 1
    file = io.BytesIO()
    image.save(file, "png", optimize=True, **({} if transparent is None else {"transparency": transparent}))
    return file.getvalue()


def shades_into_white(picture: np.ndarray) -> bool:
    """Whether a picture has colours close to white, as where ink ends softly on paper."""
    pale = picture.min(axis=-1) >= PALE
    return bool((pale & (picture.min(axis=-1) < 255)).any())


# ------------------------------------------------------------------------------------------------------------- figures


def svg(picture: Picture, words: str) -> "Markup":
    """A figure as a part of the page: in the page's letters, and in colours that go with its paper.

    `words` say what it shows, for those who do not see it.
    """
    from markupsafe import Markup

    file = io.BytesIO()
    with style.style():
        import matplotlib

        matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: it can be searched, and is smaller
        picture.draw().savefig(file, format="svg", metadata=style.METADATA["svg"])
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    # A mark that tells the identifiers of figures in one page apart.
    mark = f"f{hashlib.sha256(picture.name.encode()).hexdigest()[:8]}-"
    text = re.sub(r"<[^>]*>", lambda found: _fitted(found[0], mark), text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    return Markup('<svg role="img" aria-label="{}"{}').format(words, Markup(text.removeprefix("<svg").rstrip()))


def _fitted(element: str, mark: str) -> str:
    """A tag of matplotlib's, with colours and identifiers of the page."""
    if element.startswith("<svg"):
        element = re.sub(r' (width|height|version)="[^"]*"', "", element)
    if element.startswith("<g"):
        element = re.sub(r' id="[^"]*"', "", element)
    element = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{mark}", element)
    return re.sub(r' style="([^"]*)"', lambda found: f' style="{_colours(found[1])}"', element)


def _colours(rules: str) -> str:
    rules = re.sub(r"font-family: [^;\"]*; ?", "", rules)

    def of_page(found: re.Match[str]) -> str:
        hexadecimal = found[0].lower()
        if hexadecimal == "#ffffff":
            return "var(--paper)"
        for i, colour in enumerate(style.COLOURS):
            if hexadecimal == colour.lower() and colour != "#000000":
                return f"var(--c{i})"
        # Black and dark greys are ink.
        return "currentColor" if int(hexadecimal[1:3], 16) < 0x60 and len(set(_pairs(hexadecimal))) == 1 else found[0]

    return re.sub(r"#[0-9a-fA-F]{6}", of_page, rules)


def _pairs(hexadecimal: str) -> list[str]:
    return [hexadecimal[i : i + 2] for i in (1, 3, 5)]


# ---------------------------------------------------------------------------------------------------------- whole pages


def page(title: str, subtitle: str, parts: "Sequence[tuple[str, str, Markup]]") -> str:
    """A page of `parts` (identifier, heading, content). It loads nothing, and no script runs in it but its own."""
    from markupsafe import Markup

    files = resources.files("minimax_lib.pictures")
    css, script = (Markup((files / name).read_text(encoding="utf-8")) for name in ("report.css", "report.js"))
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    whole = templates().get_template("report.html")
    return whole.render(title=title, subtitle=subtitle, parts=parts, css=css, script=script, script_hash=mark)


def write_page(path: Path, text: str) -> Path:
    """Writes a page to `path`, or under the next number that is free; where it is.

    A page that this function wrote and that has not changed since is replaced. Any other file is kept. The last
    line of a page is a fingerprint of the rest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode(errors="replace")  # a run's texts may hold what is not a letter
    content += f"<!-- minimax-report {hashlib.sha256(content).hexdigest()} -->\n".encode()
    for number in itertools.count(1):
        place = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not (place.exists() or place.is_symlink()) or _is_own(place):
            break
    write_atomically(place, content)  # a link is replaced, and what it points to is left alone
    return place


def _is_own(path: Path) -> bool:
    try:
        content = read_bytes(path, MOST_TABLE)
    except UnreadableFile:
        return False
    mark = MARK.search(content)
    return mark is not None and hashlib.sha256(content[: mark.start()]).hexdigest() == mark[1].decode()
