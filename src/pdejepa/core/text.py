"""Numbers as text for people, and text from files without meaning for a terminal, Markdown or HTML."""

from __future__ import annotations

import html
import math

MAX_TEXT = 2_000  # letters of one text from a file on a page


def human_bytes(n_bytes: float) -> str:
    """A size for people, in powers of ten as disks are sold: `14.2 GB`."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 999.95:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} PB"


def percent(value: float | None) -> str:
    """An error for people: `3.42%`; `-` if it is not known or NaN."""
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:.3g}%" if value < 9.99 else f"{100 * value:,.0f}%"


def duration(seconds: float | None) -> str:
    """`2.7 s`, `5 min 0 s`, `1 h 12 min`; `-` if it is not known."""
    if seconds is None:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def printable(text: str) -> str:
    """The letters of a text that print: no line ends, no commands to a terminal."""
    return text if text.isprintable() else "".join(letter for letter in text if letter.isprintable())


def escaped_markdown(text: str) -> str:
    """Text without meaning for Markdown or HTML."""
    text = printable(text)
    for letter, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"), ("*", "\\*")):
        text = text.replace(letter, safe)
    return text


def escaped_html(text: str, limit: int = MAX_TEXT) -> str:
    """Text without meaning for HTML, cut if it is endless; what UTF-8 cannot hold becomes a question mark."""
    text = text if len(text) <= limit else f"{text[:limit]}..."
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
