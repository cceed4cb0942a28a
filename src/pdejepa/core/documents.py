"""Tables as text, and texts that commands write into documents, between two marks.

<!-- results -->
| system | test | ...
<!-- end results -->
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pdejepa.core.errors import DataError
from pdejepa.core.files import write_text


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a terminal."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], width: int
) -> tuple[str, list[str]]:
    """The same in lines of at most `width` letters, and what it lacks for that: of the `spare` columns the first."""
    left_out: list[str] = []
    while max(map(len, (table := _without(left_out, head, rows)).splitlines())) > width and len(left_out) < len(spare):
        left_out.append(spare[len(left_out)])
    return table, left_out


def _without(names: Sequence[str], head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    kept = [i for i, name in enumerate(head) if name not in names]
    return aligned([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same as Markdown; what came from a file is nothing but text."""
    lines = [[escaped(cell) for cell in head], ["---"] * len(head), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escaped(text: str) -> str:
    """Text without meaning for Markdown or HTML."""
    for letter, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"), ("*", "\\*")):
        text = text.replace(letter, safe)
    return text


def write_between(path: Path, name: str, text: str) -> bool:
    """Put `text` between the marks of that name; False if it stood there already.  All other bytes stay as they are."""
    lines, begin, end = find_marks(path, name)
    newline = "\r\n" if lines[begin].endswith("\r\n") else "\n"
    middle = [line + newline for line in text.rstrip("\n").split("\n")]
    after = "".join((*lines[: begin + 1], *middle, *lines[end:]))
    if after == "".join(lines):
        return False
    write_text(path.resolve(), after)
    return True


def find_marks(path: Path, name: str) -> tuple[list[str], int, int]:
    """The lines of a document, and the numbers of its two marks of that name; DataError if it has not one of each."""
    begin_mark, end_mark = f"<!-- {name} -->", f"<!-- end {name} -->"
    wanted = f"expected a text with the lines {begin_mark} and {end_mark}, each once and in this order."
    try:
        before = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; {wanted}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; {wanted}") from None
    lines = before.splitlines(keepends=True)
    begin, end = ([i for i, line in enumerate(lines) if line.strip() == mark] for mark in (begin_mark, end_mark))
    if len(begin) != 1 or len(end) != 1 or begin[0] > end[0]:
        raise DataError(f"{path} has not exactly one pair of marks; {wanted}")
    return lines, begin[0], end[0]
