"""A record as text for a terminal, or as Markdown between marks in a document.

    <!-- ablate: combined-fast -->
    ... written by pdejepa ablate --report ... --write FILE ...
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pdejepa.core.errors import DataError, UsageError
from pdejepa.core.files import write_text
from pdejepa.studies.ablate.ablation_record import Record, record_name
from pdejepa.studies.ablate.ablation_tables import Table, tables
from pdejepa.studies.ablate.runs import BASE
from pdejepa.studies.ablate.verdicts import CLEAR

END = "<!-- end -->"


def as_text(record: Record) -> str:
    """For a terminal."""
    parts = [heading(record)]
    for table in tables(record):
        rows = aligned(table.head, table.rows) if table.rows else "(no numbers yet)"
        parts.append("\n".join((table.title, rows, *_sentences(table))))
    return "\n\n".join(parts)


def as_markdown(record: Record) -> str:
    """For a document."""
    parts = [heading(record)]
    for table in tables(record):
        lines = [f"**{table.title}**", "", *_markdown(table.head, table.rows)] if table.rows else [f"**{table.title}**"]
        parts.append("\n".join((*lines, "", "  \n".join(_escape(text) for text in _sentences(table)))))
    return "\n\n".join(parts)


def heading(record: Record) -> str:
    """What was compared, on what, and how long it was trained."""
    base = record["runs"].get(BASE, {})
    steps = ", ".join(f"{stage} {n:,}" for stage, n in base.get("steps", {}).items())
    commit, changed = (record.get("commit") or "").partition("-")[::2]
    source = f", commit {commit[:12]}{' with changes' if changed else ''}" if commit else ""
    failed = "".join(f" {name} diverged ({why})." for name, why in record.get("failed", {}).items())
    return (
        f"{record['title']}, recipe {record['recipe']}, seed {record['seed']}, {record['device'] or 'unknown device'}, "
        f"torch {record.get('torch', '?')}{source}. Equal steps in every run: {steps or 'not known yet'}. "
        f"Numbers count as different beyond {100 * CLEAR:g} %; this is one seed, and seeds may differ by more.{failed}"
    )


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, the first to the left."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = []
    for first, *others in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join((first.ljust(widths[0]), *cells)).rstrip())
    return "\n".join(lines)


def mark_name(file: Path, record: Record) -> str:
    """A file `ablate-NAME.json` belongs to the mark NAME; other files and folders are called by what they hold."""
    kind, _, rest = file.stem.partition("-")
    return rest if file.suffix == ".json" and kind == "ablate" and rest else record_name(record)


def write_marked(path: Path, names: Sequence[str], records: Sequence[Record]) -> None:
    """Put each record between the marks of its name in a document; nothing is written unless all marks are there."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"Two records are called {twice[0]}; give one of them.")
    try:
        text = path.read_bytes().decode("utf-8")  # bytes: line ends stay as they are
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error}).") from None
    for name, record in zip(names, records, strict=True):
        mark = f"<!-- ablate: {name} -->"
        pattern = re.compile(rf"({re.escape(mark)}\r?\n).*?({re.escape(END)})", re.DOTALL)
        match = pattern.search(text)
        if match is None:
            raise DataError(f"{path} has no place for {name}: it needs the line {mark}, and {END} below it.")
        text = text[: match.end(1)] + as_markdown(record) + "\n" + text[match.start(2) :]
    write_text(path, text)


def _sentences(table: Table) -> list[str]:
    return [table.note, f"Claim: {table.claim}.", table.verdict]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(_escape(cell) for cell in line) + " |" for line in (head, rule, *rows)]


def _escape(text: str) -> str:
    """Bars end cells, stars and underscores change type."""
    return re.sub(r"([|*_])", r"\\\1", text)
