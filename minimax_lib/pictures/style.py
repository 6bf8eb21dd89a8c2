"""How figures look: sized for one column of a paper, legible in print, told apart without colour.

matplotlib is an extra. It is imported where something is drawn, so that requests are checked without it.
"""

import contextlib
import csv
import dataclasses
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minimax_lib.files import naming
from minimax_lib.registry import unknown_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.4  # inches, one column of most papers
PAGE = 8.0  # inches, the highest figure that a page has room for
PANEL = 1.9  # inches, the height of a panel of curves
TEXT, SMALL = 8, 7  # points
LINE = 0.125  # inches, the height of a line of small text
COLUMNS = 62  # characters of small text in one column of the paper

# Okabe and Ito's palette, without its yellow: colours that colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")
SETTINGS: Any = {
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.titlesize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "text.parse_math": False,  # a label may hold a dollar
    "pdf.fonttype": 42,  # text stays text; many venues refuse the default
    "svg.hashsalt": "minimax",  # the same figure is the same file
}
# Without the date and the version, the same figure is the same file.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
DPI = 300


class NotDrawn(ValueError):
    """A figure cannot be drawn from what there is; one line that says why."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure: its numbers, and how they are drawn. In a notebook it shows itself."""

    name: str  # of its files, without an ending
    rows: Sequence[Mapping[str, Any]]
    draw: Callable[[], "Figure"]  # called inside `style()`
    notes: Sequence[str] = ()  # what a reader must know of the numbers, a line each

    def csv(self) -> str:
        """The numbers, as the text of a CSV file."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in self.rows)
        return text.getvalue()

    def image(self, kind: str = "png") -> bytes:
        """The content of a file of the format `kind`: png, pdf or svg."""
        if kind not in METADATA:
            raise unknown_name("format", kind, METADATA)
        file = io.BytesIO()
        with style():
            figure = self.draw()
            figure.savefig(file, format=kind, dpi=DPI, metadata=METADATA[kind])
        return file.getvalue()

    def save(self, path: str | Path) -> None:
        """Writes the picture; the ending of `path` says in which format."""
        with naming(path):
            Path(path).write_bytes(self.image(Path(path).suffix.removeprefix(".")))

    def _repr_png_(self) -> bytes:
        return self.image()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if value != value else f"{value:.9g}"
    return value


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The settings of matplotlib that all figures are drawn and saved under."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the reader's own: a figure looks the same everywhere
        matplotlib.rcParams.update(SETTINGS)
        yield


def colour(i: int) -> str:
    """The colour of group `i`."""
    return COLOURS[i % len(COLOURS)]


# Neither dashes, markers nor hatches have a common divisor with the colours: of many groups, no two look alike.


def line_style(i: int) -> dict[str, Any]:
    """How the line of group `i` is drawn."""
    return {"color": colour(i), "linestyle": DASHES[i % len(DASHES)]}


def marker(i: int) -> str:
    """The marker of group `i`."""
    return MARKERS[i % len(MARKERS)]


def hatch(i: int) -> str:
    """The pattern that fills the bars of group `i`."""
    return HATCHES[i % len(HATCHES)]


def figure(
    height: float, n_rows: int = 1, n_columns: int = 1, h_pad: float = 0.04, **options: Any
) -> "tuple[Figure, Any]":
    """(a figure of one column, its panels [n_rows, n_columns]), `height` inches high without its legend."""
    from matplotlib.figure import Figure  # not pyplot: it keeps figures, and looks for a screen

    drawn = Figure(figsize=(WIDTH, height), layout="constrained")
    engine: Any = drawn.get_layout_engine()
    engine.set(h_pad=h_pad)
    return drawn, drawn.subplots(n_rows, n_columns, squeeze=False, **options)


def legend(drawn: "Figure", handles: Sequence[Any], labels: Sequence[str], note: str) -> None:
    """Writes a legend above the panels, where it covers nothing, with `note` over it. The figure grows by it."""
    lines = textwrap.wrap(note, COLUMNS + 4)
    labels = [textwrap.fill(label, COLUMNS - 8, break_long_words=True) for label in labels]
    widest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    n_columns = max(1, min(len(labels), COLUMNS // (widest + 8)))
    rows = _rows(labels, n_columns)
    n_lines = len(lines) + sum(max(1 + label.count("\n") for label in row) for row in rows)
    drawn.set_figheight(drawn.get_figheight() + LINE * n_lines + 0.1)
    above = drawn.legend(
        handles,
        labels,
        title="\n".join(lines),
        loc="outside upper center",
        ncols=n_columns,
        handlelength=2.6,
        columnspacing=1.2,
        labelspacing=0.25,
        borderpad=0.0,
    )
    above.get_title().set_multialignment("center")


def _rows(labels: Sequence[str], n: int) -> list[Sequence[str]]:
    return [labels[i : i + n] for i in range(0, len(labels), n)]


def count_axis(axis: Any) -> None:
    """Writes the numbers of an axis shortly: 10k, 1.5M; in as many digits as tell them apart."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def written(value: float, _: int | None) -> str:
        ends = axis.get_view_interval()
        # The first digits are the same all over an axis that is short and far from 0.
        same = np.ceil(np.log10(np.abs(ends).max() / np.ptp(ends))) if np.ptp(ends) else 0
        return short(value, int(np.clip(3 + same, 3, 12)))

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(written))


def short(value: float, digits: int = 3) -> str:
    """A number as people say it: 1500000 is 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{letter}"
    return f"{value:.{max(digits, 6)}g}"


def share_axis(axes: "Axes") -> None:
    """Lets the y axis of a share begin at 0, and span at least a tenth; one that comes close to 1 ends above it."""
    top = axes.get_ylim()[1]
    top = 1.03 if top > 0.95 else max(0.1, top)
    axes.set_ylim(-0.03 * top, top)


def band(axes: "Axes", x: Any, low: Any, high: Any, i: int) -> None:
    """Fills the band of group `i`."""
    axes.fill_between(x, low, high, color=colour(i), alpha=0.18, linewidth=0)
