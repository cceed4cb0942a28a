"""All comparisons in one table, a line per solver: what a reader wants to know first (`comparison_tables` has the
rest)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pdejepa.core.text import escaped, markdown_table, percent
from pdejepa.studies.compare.caveats import known, standing
from pdejepa.studies.compare.comparison_records import budget_of, error
from pdejepa.studies.compare.comparison_tables import REFERENCES, Rows, groups, has_meaning, told

Table = list[dict[str, Any]]


def summary(records: list[dict[str, Any]], details: str) -> str:
    """A table of all errors, and who is best; `details`: where the other columns are, from where this is written."""
    tables = _tables(records)
    head, lines = summary_rows(tables)
    words = [f"- {escaped(name)}. {escaped(line)}" for name, table in tables.items() for line in standing(table)]
    rest = f"- All columns, remarks and the published numbers: [{escaped(details)}]({quote(details)})."
    return "\n".join((markdown_table(head, lines), "", *words, rest)) + "\n"


def summary_rows(tables: dict[str, Table]) -> tuple[tuple[str, ...], Rows]:
    """Head and lines: the mean over seeds of every split of every table, in the order of the first table."""
    columns = [(name, table, split) for name, table in tables.items() for split in _splits(table)]
    solvers = {r["solver"]: str(r["title"]) for table in tables.values() for r in table}  # best of the first one first
    head = ("solver", "told", *(f"{name}: {split}" for name, _, split in columns))
    lines: Rows = []
    for solver, title in solvers.items():
        found = [_mean([r for r in table if r["solver"] == solver], split) for _, table, split in columns]
        lines.append((title, told(solver) or "nothing", *map(_cell, found)))
    for key, title in REFERENCES:
        found = [known(table, split, key) if has_meaning(table, key) else None for _, table, split in columns]
        lines += [(title, "", *map(_cell, found))] if any(value is not None for value in found) else []
    return head, lines


def _tables(records: list[dict[str, Any]]) -> dict[str, Table]:
    """The tables of a report by short titles, or by whole ones where those are not enough."""
    found = groups(records)
    short = {title: f"{table[0]['system']}, {budget_of(table[0]).words()}" for title, table in found.items()}
    is_enough = len(set(short.values())) == len(short)
    return {short[title] if is_enough else title: table for title, table in found.items()}


def _splits(table: Table) -> list[str]:
    return list(dict.fromkeys(split for r in table for split in r["errors"]))


def _mean(records: Table, split: str) -> float | None:
    values = [value for r in records if (value := error(r, split)) is not None]
    return sum(values) / len(values) if values else None


def _cell(value: float | None) -> str:
    return "" if value is None else percent(value)
