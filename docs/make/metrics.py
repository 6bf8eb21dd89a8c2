"""The page about every metric and column: `docs/metrics.md`."""

from collections.abc import Iterator

from docs.make.metric_tables import (
    COMPARED,
    CURVES,
    EVALUATIONS,
    FACTS,
    GAMES,
    POSITION,
    PRINTED,
    RESULTS,
    SHARED,
    TRAINING,
    MetricTable,
)

COMMAND = "python -m docs.make.metrics > docs/metrics.md"

INTRODUCTION = """\
Every column of the tables of a run, in one line each. [runs.md](runs.md) says when the tables are written,
[curricula.md](curricula.md) how the methods work.

A number in `metrics.csv` is a mean over the steps of a log interval on which it was measured. It is `nan` where there
was none. With several students, `return`, `solved_rate` and `unfinished` are those of the first student, which is the
one that is evaluated. Losses are means over the students.
"""


def page() -> str:
    """The text of `docs/metrics.md`."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield f"<!-- Made by `{COMMAND}`: change the source, not this page. -->"
    yield ""
    yield from INTRODUCTION.splitlines()
    yield ""
    yield "## metrics.csv"
    for section in (POSITION, *TRAINING, FACTS):
        yield from _section(section, "###")
    for section in (EVALUATIONS, RESULTS, COMPARED, GAMES, SHARED, PRINTED, CURVES):
        yield from _section(section, "##")
    yield ""


def _section(section: MetricTable, heading: str) -> Iterator[str]:
    yield from ("", f"{heading} {section.title}", "")
    if section.text:
        yield from (*section.text.splitlines(), "")
    yield from ("| name | meaning |", "|---|---|")
    for name, meaning in section.metrics.items():
        yield f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    print(page(), end="")
