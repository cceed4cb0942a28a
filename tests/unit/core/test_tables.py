"""One table in three layouts; what comes from a file is nothing but text in each of them."""

from __future__ import annotations

import pytest

from pdejepa.core.tables import Code, Table

TABLE = Table(("solver", "error"), [("FNO", "3.42%"), ("CAPE", "12%")])


def test_text() -> None:
    assert TABLE.text() == "solver  error\nFNO     3.42%\nCAPE      12%"
    whole = Table(TABLE.head, TABLE.rows, notes=("Means.",), title="All")
    assert whole.text() == f"All\n{TABLE.text()}\nMeans."
    assert Table(("a", "b"), []).text() == "a  b"


@pytest.mark.parametrize("cell", ["3.42%", "1,000", "1.50 M", "x 0.33", "-79 %", "-", "", "1.5e-07", "12.3 ms"])
def test_numbers_stand_to_the_right(cell: str) -> None:
    assert Table(("a long head",), [(cell,), ("7",)]).text().endswith("\n" + " " * 10 + "7")


@pytest.mark.parametrize("cell", ["FNO", "3 of 12", "0.3 (0.1-0.6)", "not finite"])
def test_words_stand_to_the_left(cell: str) -> None:
    assert Table(("a long head",), [(cell,), ("7",)]).text().endswith("\n7")


def test_narrow_terminals() -> None:
    table = Table(("a", "long", "b"), [("x", "y", "z"), ("333", "", "w")], spare=("long", "b"))
    assert table.text(12) == table.text()
    assert table.text(11) == "a    b\nx    z\n333  w"
    assert list(table.fitted(11).head) == ["a", "b"]
    assert table.text(1) == "a\nx\n333"  # what is left may be too wide


def test_markdown() -> None:
    assert TABLE.markdown() == "| solver | error |\n| --- | --- |\n| FNO | 3.42% |\n| CAPE | 12% |"
    whole = Table(("a",), [(Code("x"),)], notes=("one", "two"), title="All")
    assert whole.markdown() == "**All**\n\n| a |\n| --- |\n| `x` |\n\n- one\n- two"


def test_html() -> None:
    text = Table(("a", "b"), [(Code("x"), "1")], notes=("note",), title="All").html()
    assert text == (
        '<div class="scroll"><table><caption><span>All note</span></caption>\n'
        '<tr><th>a</th><th class="number">b</th></tr>\n'
        '<tr><td><code>x</code></td><td class="number">1</td></tr></table></div>'
    )


def test_hostile_cells() -> None:
    bad = "a|b\n<!-- end x --> `c` *d* \x1b[31m\ud800&"
    table = Table((bad,), [(bad,), (bad,)], notes=(bad,), title=bad)
    assert "\x1b" not in table.text()
    assert len(table.text().splitlines()) == 5
    markdown = table.markdown()
    assert "<!--" not in markdown
    assert [line.replace("\\|", "").count("|") for line in markdown.splitlines()] == [0, 0, 2, 2, 2, 2, 0, 0]
    assert "`c`" not in markdown
    assert "\\*d\\*" in markdown
    assert Table((Code("a|`b` *c* <d>"),), []).markdown().startswith("| `a\\|'b' *c* <d>` |\n")
    html = table.html()
    assert "<!--" not in html
    html.encode("utf-8")
    assert len(Table(("a",), [("x" * 10_000,)]).html()) < 3_000
