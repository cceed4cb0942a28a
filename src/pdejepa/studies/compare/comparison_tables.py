"""Tables from the records of comparisons; `caveats` are the sentences below them, `cost_picture` draws them.

    DIR/compare.md      all tables, with what they do not show and what was published
    DIR/compare.png     error against cost
"""

from __future__ import annotations

from typing import Any

from pdejepa import systems
from pdejepa.core.text import escaped, markdown_table, percent
from pdejepa.evaluate.published import metric_of
from pdejepa.studies.compare.caveats import blind_is_best, cautions, known
from pdejepa.studies.compare.comparison_records import budget_of, error, named
from pdejepa.studies.compare.competitors import CARDS
from pdejepa.studies.compare.paper_claims import published, reason

Rows = list[tuple[str, ...]]
HEAD = (
    "solver",
    "test",
    "ood",
    "tail, test",
    "tail, ood",
    "true frames",
    "told",
    "parameters",
    "memory",
    "ms/forecast",
    "adaptation",
    "steps",
    "seconds",
    "learning rate",
)
# What a narrow terminal does without, the first ones first.
SPARE = (
    "learning rate",
    "memory",
    "seconds",
    "steps",
    "adaptation",
    "parameters",
    "tail, ood",
    "tail, test",
    "true frames",
    "ms/forecast",
    "told",
)
# Who forecasts the first frame for ever; and a nearly best answer of who sees it, but knows nothing of the parameters.
REFERENCES = (("repeat_first", "(the first frame again)"), ("blind", "(parameters unknown: about the best)"))
LEGEND = (
    "test, ood: relative L2 of all later frames from one true frame. tail: the solver is given as many true frames as "
    "the table says, and the frames that no solver is ever given are counted. told: what it learns of the equation. "
    "adaptation: time to fit a code to a trajectory before a forecast. learning rate: times that of its recipe, as "
    "three short trials chose it."
)
LEDGER = ("solver", "paper, test", "here", "paper, ood", "here", "why it may differ")


def title(record: dict[str, Any], budgets: str) -> str:
    """What is compared, of a table or a panel with these budgets."""
    how = f"{budgets} each from {record['weights']}, recipe {record['recipe']}"
    return f"{record['system']}, {how}, {record['size']} data, {record['device']}"


def groups(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Records that belong into one table, by its title."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        tables.setdefault(title(record, budget_of(record).words()), []).append(record)
    return tables


def rows(records: list[dict[str, Any]]) -> Rows:
    """One line per record."""
    lines: Rows = []
    for r in records:
        test, ood = error(r, "test"), error(r, "ood")
        adaptation = f"{r['ms_per_adaptation']:.1f} ms" if r["adapts"] == "gradient" else ""
        lines.append(
            (
                named(r, records),
                percent(test),
                percent(ood) if ood is not None else "",
                *(percent(r["errors"][split]["tail"]) if split in r["errors"] else "" for split in ("test", "ood")),
                str(r["true_frames"]),
                told(r["solver"]),
                f"{r['parameters'] / 1e6:.2f} M" if r["parameters"] >= 1e5 else f"{r['parameters'] / 1e3:.1f} k",
                f"{r['peak_memory_bytes'] / 1e9:.1f} GB",
                f"{r['ms_per_forecast']:.2f}",
                adaptation,
                f"{sum(r['steps'].values()):,}",
                f"{r['seconds']:.0f}",
                f"x {r['learning_rate_factor']:.2g}",
            )
        )
    return [*lines, *(line for key, name in REFERENCES for line in _reference(records, key, name))]


def _reference(records: list[dict[str, Any]], key: str, name: str) -> Rows:
    """What the competitors are to be seen against; nothing if it was not measured."""
    values = [known(records, split, key) for split in ("test", "ood")]
    if values[0] is None or not has_meaning(records, key):
        return []
    cells = [percent(value) if value is not None else "" for value in values]
    return [(name, *cells, "", "", "1", *[""] * (len(HEAD) - 6))]


def has_meaning(records: list[dict[str, Any]], key: str) -> bool:
    """Whether a reference means something for these records."""
    return key != "blind" or blind_is_best(records)


def others(records: list[dict[str, Any]]) -> tuple[tuple[str, ...], Rows]:
    """Head and lines of what was judged beside test and ood, as on systems that have several ood splits."""
    splits = tuple(dict.fromkeys(s for r in records for s in r["errors"] if s not in ("test", "ood")))
    lines = [
        (named(r, records), *(percent(error(r, split)) if split in r["errors"] else "" for split in splits))
        for r in records
    ]
    return ("solver", *splits), lines if splits else []


def told(solver: str) -> str:
    """What a solver learns of the equation, beside the frames that it continues."""
    words = {"xi": "parameters", "support": "a trajectory"}
    return ", ".join(word for what, word in words.items() if what in CARDS[solver].reads)


def _why(r: dict[str, Any]) -> str:
    """Why an error may differ from the published one.

    Where it has one norm over all channels, as printed, the other reading stands beside it.
    """
    why = reason(systems.get(r["system"]), r["solver"], bool(r.get("is_blind")), sum(r["steps"].values()))
    if metric_of(r["system"]) == "rel_l2":
        return why
    means = [percent(r["errors"][split]["rel_l2"]) for split in ("test", "ood") if split in r["errors"]]
    return f"{why}; as a mean over channels, which the paper's public code takes, {' and '.join(means)} here"


def ledger(records: list[dict[str, Any]]) -> Rows:
    """What the paper says, what we get, and why it may differ."""
    lines: Rows = []
    for r in records:
        paper = published(r["system"], r["solver"])
        if paper is None:
            continue
        cells = [percent(value) if value is not None else "-" for value in paper]
        here = [percent(error(r, split)) if split in r["errors"] else "-" for split in ("test", "ood")]
        lines.append((named(r, records), cells[0], here[0], cells[1], here[1], _why(r)))
    return lines


def page(records: list[dict[str, Any]], picture: str) -> str:
    """All that a report has, as a document of its own beside its picture."""
    return f"# Solvers compared\n\n![Error against the cost of a forecast]({picture})\n\n{markdown(records)}"


def markdown(records: list[dict[str, Any]]) -> str:
    """A legend, all tables and ledgers."""
    parts = [escaped(LEGEND)]
    for heading, group in groups(records).items():
        tables = [markdown_table(head, lines) for head, lines in ((HEAD, rows(group)), others(group)) if lines]
        parts += [f"**{escaped(heading)}**", *tables, *map(escaped, cautions(group, records))]
        parts += [markdown_table(LEDGER, ledger(group))] if ledger(group) else []
    return "\n\n".join(parts) + "\n"
