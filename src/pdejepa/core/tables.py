"""One table, laid out three ways: for a terminal, as Markdown, as HTML.

    Table(("solver", "error"), [("FNO", "3.42%"), ("CAPE", "12%")], notes=("Means over trajectories.",)).text()

    solver  error
    FNO     3.42%
    CAPE      12%
    Means over trajectories.

Cells may come from files of others.  Every layout drops letters that do not print and takes the meaning from those
that mean something to it.  A cell of the class `Code` is set like code where that is possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdejepa.core.text import escaped_html, escaped_markdown, printable

NUMBER = re.compile(r"(x )?[-+]?\d[\d,.]*(e[-+]\d+)?( ?[^\s\d]{1,3})?|-|")  # 3.42%, 1,000, 1.5 M, x 3, -79 %, nothing


class Code(str):
    """A name or a command, set like code."""


@dataclass(frozen=True)
class Table:
    """Head, rows and the notes below them.

    spare: columns that a narrow terminal does without, the first ones first
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    title: str = ""
    spare: Sequence[str] = ()

    def text(self, width: int | None = None) -> str:
        """Aligned columns, numbers to the right; in lines of at most `width` letters as far as `spare` allows."""
        table = self if width is None else self.fitted(width)
        notes = (printable(note) for note in table.notes)
        return "\n".join((*([printable(table.title)] if table.title else []), *table._lines(), *notes))

    def fitted(self, width: int) -> Table:
        """The same without as many of the spare columns as lines of `width` letters need."""
        table, spare = self, list(self.spare)
        while spare and max(map(len, table._lines())) > width:
            table = table.without(spare.pop(0))
        return table

    def without(self, name: str) -> Table:
        """The same without one column."""
        kept = [i for i, label in enumerate(self.head) if label != name]
        rows = [[row[i] for i in kept] for row in self.rows]
        return replace(self, head=[self.head[i] for i in kept], rows=rows)

    def markdown(self) -> str:
        """The title in bold letters, a table, and a list of the notes."""
        parts = [f"**{escaped_markdown(self.title)}**"] if self.title else []
        lines = [[_marked(cell) for cell in self.head], ["---"] * len(self.head)]
        lines += [[_marked(cell) for cell in row] for row in self.rows]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        parts += ["\n".join(f"- {escaped_markdown(note)}" for note in self.notes)] if self.notes else []
        return "\n\n".join(parts)

    def html(self) -> str:
        """A <table> that can be pushed sideways on narrow screens; title and notes are its caption."""
        is_number = self._numbers()
        words = " ".join(escaped_html(text) for text in (self.title, *self.notes) if text)
        lines = [f"<caption><span>{words}</span></caption>"] if words else []
        for name, row in (("th", self.head), *(("td", row) for row in self.rows)):
            cells = (_element(name, cell, right) for cell, right in zip(row, is_number, strict=True))
            lines.append(f"<tr>{''.join(cells)}</tr>")
        return '<div class="scroll"><table>' + "\n".join(lines) + "</table></div>"

    def _lines(self) -> list[str]:
        """Head and rows with aligned columns."""
        lines = [[printable(cell) for cell in line] for line in (self.head, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        columns = list(zip(widths, self._numbers(), strict=True))
        return [
            "  ".join(c.rjust(w) if right else c.ljust(w) for c, (w, right) in zip(line, columns, strict=True)).rstrip()
            for line in lines
        ]

    def _numbers(self) -> list[bool]:
        """Whether a column holds numbers only, and at least one; for every column."""
        columns = [[row[i] for row in self.rows] for i in range(len(self.head))]
        return [any(column) and all(map(NUMBER.fullmatch, column)) for column in columns]


def _marked(cell: str) -> str:
    """A cell of Markdown; between backticks nothing but a backtick and the bar of a table has a meaning."""
    if not isinstance(cell, Code):
        return escaped_markdown(cell)
    return "`" + printable(cell).replace("`", "'").replace("|", "\\|") + "`"


def _element(name: str, cell: str, right: bool) -> str:
    text = escaped_html(cell)
    inner = f"<code>{text}</code>" if isinstance(cell, Code) else text
    return f'<{name} class="number">{inner}</{name}>' if right else f"<{name}>{inner}</{name}>"
