"""Numbers and tables as text for people: sizes, errors, columns on a terminal, Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def human_bytes(n_bytes: float) -> str:
    """A size for people, in powers of ten as disks are sold: `14.2 GB`."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 999.95:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} PB"


def percent(value: float | None) -> str:
    """An error for people: `3.42%`; `-` if it is not known."""
    if value is None:
        return "-"
    return f"{100 * value:.3g}%" if value < 9.99 else f"{100 * value:,.0f}%"


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
