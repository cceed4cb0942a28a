"""Texts that commands write into documents, between two marks.  All commands and scripts have the same marks.

<!-- results -->
| system | test | ...
<!-- end results -->
"""

from __future__ import annotations

import re
from pathlib import Path

from pdejepa.core.errors import DataError
from pdejepa.core.files import write_text

END = re.compile(r"<!-- end (.+) -->")


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


def has_marks(path: Path, name: str) -> bool:
    """Whether a document has the two marks of that name."""
    try:
        find_marks(path, name)
    except DataError:
        return False
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


def marked_names(path: Path) -> list[str]:
    """The names of all pairs of marks of a document; DataError if it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error}).") from None
    return [match[1] for line in text.splitlines() if (match := END.fullmatch(line.strip()))]
