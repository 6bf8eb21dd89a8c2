"""Tables of a run as other programs save them again: what every reader either reads right or says something about."""

import csv
import io
from collections.abc import Callable


def _rewritten(content: bytes, change: Callable[[list[str]], list[str]], delimiter: str = ",") -> bytes:
    """The table with each row changed, as a spreadsheet writes it."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    writer.writerows(change(row) for row in csv.reader(io.StringIO(content.decode())))
    return text.getvalue().encode()


def _commas(row: list[str]) -> list[str]:
    return [cell.replace(".", ",") if cell.replace(".", "").isdecimal() else cell for cell in row]


def _lines(content: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    return b"\n".join(change(content.split(b"\n")))


READ: dict[str, Callable[[bytes], bytes]] = {
    "with a mark first": lambda content: b"\xef\xbb\xbf" + content,
    "with other line breaks": lambda content: content.replace(b"\n", b"\r\n"),
    "with quotes": lambda content: b"\n".join(
        b",".join(b'"' + cell + b'"' for cell in line.split(b",")) if line else b"" for line in content.split(b"\n")
    ),
    "with empty columns at the end": lambda content: _rewritten(content, lambda row: [*row, "", ""]),
    "with an empty column at the end": lambda content: content.replace(b"\n", b",\n"),
    "with empty lines": lambda content: content.replace(b"\n", b"\n\n"),
}
# Of each, what must be said.
SAID: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "semicolons": (lambda content: _rewritten(content, list, ";"), "cannot be read: line 1 names no column 'update'"),
    "semicolons and decimal commas": (lambda content: _rewritten(content, _commas, ";"), "cells are divided by ';'"),
    "tabs": (lambda content: content.replace(b",", b"\t"), "cells are divided by '\\t'"),
    "decimal commas in quotes": (lambda content: _rewritten(content, _commas), "which is no number"),
    "UTF-16": (lambda content: content.decode().encode("utf-16"), "looks like UTF-16"),
    "UTF-16 without a mark": (lambda content: content.decode().encode("utf-16-le"), "looks like UTF-16"),
    "half a last line": (lambda content: content[: -len(content.split(b"\n")[-2]) // 2 - 1], "has no line break"),
    "no last line break": (lambda content: content[:-1], "has no line break"),
    "half of a line": (lambda content: _lines(content, lambda x: [*x[:2], x[2][: len(x[2]) // 2], *x[3:]]), "line 3"),
    "two lines in one": (lambda content: _lines(content, lambda x: [*x[:2], x[2] + x[3], *x[4:]]), "line 3"),
    "a line of another": (lambda content: _lines(content, lambda x: [*x[:2], b"lost,and,found", *x[2:]]), "line 3"),
    "zeros within": (lambda content: _lines(content, lambda x: [*x[:2], bytes(len(x[2])), *x[3:]]), "line 3"),
    "a quote within": (lambda content: _lines(content, lambda x: [*x[:2], b'"' + x[2], *x[3:]]), "line 3"),
    "no header": (lambda content: content.partition(b"\n")[2], "line 1 names no column 'update'"),
    "half of a header": (lambda content: content[:12], "line 1 has no line break"),
}
