"""HTML: everything is escaped unless it has been made here. And a file that a report may be written to again."""

import base64
import hashlib
import html
import io
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from minimax_lib.pictures import style
from minimax_lib.pictures.style import Picture

WHITE, PALE = 0xFFFFFF, 180
VOID = frozenset({"br", "img", "input", "link", "meta"})  # elements without an end
MARK = re.compile(rb"<!-- minimax-report ([0-9a-f]{64}) -->\n\Z")


class Html(str):
    """Text that is HTML. Any other text is escaped where it becomes a part of a page."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. Children are escaped unless they are Html; lists of children are spread, and None is left out.

    Attributes are escaped; `class_` is `class`, and other underscores are hyphens. True is an attribute without a
    value; False and None are none.
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not False and value is not None:
            words.append(f'{key}="{html.escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Html(opening if name in VOID else f"{opening}{joined(children)}</{name}>")


def joined(children: Iterable[Any]) -> Html:
    """Children one after another."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(joined(child))
        elif child is not None:
            parts.append(child if isinstance(child, Html) else html.escape(str(child)))
    return Html("".join(parts))


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]], caption: str = "", last_is_total: bool = False) -> Html:
    """A table. The first cell of a row is its heading; the others are numbers. A wide table scrolls by itself."""
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            [tag("td", cell) for cell in row[1:]],
            class_="total" if last_is_total and i == len(rows) - 1 else None,
        )
        for i, row in enumerate(rows)
    ]
    whole = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", tag("tr", [tag("th", cell, scope="col") for cell in head])),
        tag("tbody", body),
    )
    # With the keyboard, only what has the focus scrolls.
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption or "table")


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


def json_block(id_: str, content: Any) -> Html:
    """Numbers and texts for the page's script, in a form that cannot end the element that they stand in."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return tag("script", Html(text), type="application/json", id=id_)


# ------------------------------------------------------------------------------------------------------------- figures


def svg(picture: Picture, words: str) -> Html:
    """A figure as a part of the page: in the page's letters, and in colours that go with its paper.

    `words` say what it shows, for those who do not see it.
    """
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
    opening = text.index(">")
    return Html(f'<svg role="img" aria-label="{html.escape(words)}"{text[4:opening]}{text[opening:].strip()}')


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


def swatch(place: int) -> Html:
    """The colour of group `place`, beside its name."""
    i = place % len(style.COLOURS)
    return tag("i", class_="swatch", style=f"background:var(--c{i})", aria_hidden="true")


# ---------------------------------------------------------------------------------------------------------- whole pages


def page(title: str, parts: Sequence[tuple[str, str, Html]], subtitle: str, foot: str) -> str:
    """A page of `parts` (identifier, heading, content). It loads nothing, and no script runs in it but its own."""
    files = resources.files("minimax_lib.pictures")
    script = (files / "report.js").read_text(encoding="utf-8")
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # If some text were HTML after all, this would keep it from being run, and from loading anything.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{mark}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content="minimax-report"),
        tag("title", title),
        tag("style", Html((files / "report.css").read_text(encoding="utf-8"))),
    )
    links = [tag("a", heading, href=f"#{id_}") for id_, heading, _ in parts]
    body = tag(
        "body",
        tag("a", "to the content", href="#main", class_="skip"),
        tag(
            "header",
            tag("div", tag("h1", title), tag("p", subtitle)),
            tag("button", "dark", type="button", id="theme", hidden=True),
        ),
        tag("nav", links, aria_label="parts of the report"),
        tag("noscript", tag("p", "Sliders and episodes need JavaScript.", class_="note")),
        tag(
            "main",
            [tag("section", tag("h2", heading), content, id=id_) for id_, heading, content in parts],
            id="main",
        ),
        tag("footer", tag("p", foot)),
        tag("script", Html(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write_page(path: Path, text: str) -> Path:
    """Writes a page to `path`, or under the next number that is free; where it is.

    A page that this function wrote, and that nobody has changed since, is replaced. Any other file is kept. The last
    line of a page is a fingerprint of the rest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode(errors="replace")  # a run's texts may hold what is no letter
    content += f"<!-- minimax-report {hashlib.sha256(content).hexdigest()} -->\n".encode()
    for number in itertools.count(1):
        place = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not (place.exists() or place.is_symlink()) or _is_own(place):
            break
    # A new file in place of the old one: a link is replaced, and what it points to is left alone.
    partial = place.with_name(f".{place.name}.partial")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:
        file.write(content)
    partial.replace(place)
    return place


def _is_own(path: Path) -> bool:
    if not path.is_file():
        return False
    content = path.read_bytes()
    mark = MARK.search(content)
    return mark is not None and hashlib.sha256(content[: mark.start()]).hexdigest() == mark[1].decode()
