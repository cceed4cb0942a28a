"""Texts between marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdejepa.core.documents import marked_names, write_between
from pdejepa.core.errors import DataError

MARKED = "before\n<!-- x -->\nold\n<!-- end x -->\nafter\n"


def test_only_what_stands_between_the_marks_changes(tmp_path: Path) -> None:
    path = tmp_path / "d.md"
    path.write_text(MARKED)
    assert write_between(path, "x", "new\nlines\n")
    assert path.read_text() == "before\n<!-- x -->\nnew\nlines\n<!-- end x -->\nafter\n"
    assert not write_between(path, "x", "new\nlines")


def test_line_endings_stay(tmp_path: Path) -> None:
    path = tmp_path / "d.md"
    path.write_bytes(MARKED.replace("\n", "\r\n").encode())
    write_between(path, "x", "a\nb")
    assert path.read_bytes() == b"before\r\n<!-- x -->\r\na\r\nb\r\n<!-- end x -->\r\nafter\r\n"


@pytest.mark.parametrize("text", ["", "<!-- x -->", "<!-- end x -->\n<!-- x -->\n", MARKED + MARKED])
def test_documents_without_one_pair_of_marks_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "d.md"
    path.write_text(text)
    with pytest.raises(DataError, match="exactly one pair of marks; expected a text with the lines <!-- x -->"):
        write_between(path, "x", "new")
    assert path.read_text() == text


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        write_between(tmp_path / "no.md", "x", "new")
    (tmp_path / "b.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        write_between(tmp_path / "b.md", "x", "new")


def test_names_of_marks(tmp_path: Path) -> None:
    (tmp_path / "d.md").write_text(f"{MARKED}<!-- table: a.json b*.json -->\n  <!-- end table: a.json b*.json -->\n")
    assert marked_names(tmp_path / "d.md") == ["x", "table: a.json b*.json"]
    with pytest.raises(DataError, match="cannot be read as text"):
        marked_names(tmp_path / "no.md")
