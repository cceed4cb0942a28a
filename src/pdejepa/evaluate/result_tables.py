"""The board of results as text, for a terminal and as Markdown: cells, and sentences about what is met and missed."""

from __future__ import annotations

from collections.abc import Sequence

from pdejepa.core.text import aligned, escaped, human_bytes, markdown_table
from pdejepa.evaluate.against_paper import OOD, TEST, Row, Spread, Target
from pdejepa.evaluate.published import metric_of
from pdejepa.systems import get

HEAD = (
    "system",
    "what",
    "test",
    "published",
    "ratio",
    "ood",
    "published ood",
    "best other solver",
    "seconds",
    "weights",
    "device",
)
JOINT = "joint"
OWN = "our split"


# ---- cells -----------------------------------------------------------------------------------------------------
def cells(row: Row) -> tuple[str, ...]:
    """The texts of one row, in the order of HEAD."""
    published, ratio = row.published, row.ratio(TEST)
    name = f"{row.system.title} ({JOINT})" if metric_of(row.system.name) == "rel_l2_joint" else row.system.title
    return (
        name,
        row.what,
        _error(row.error(TEST)),
        f"{published.id:.4f}" if published else "-",
        "-" if ratio is None else f"{ratio:.2f}",
        _ood(row),
        f"{published.ood:.3f}" if published and published.ood is not None else "-",
        f"{published.other_name} {published.other:.4f}" if published else "-",
        f"{row.seconds.mean:,.0f}" if row.seconds else "-",
        human_bytes(row.weights_bytes) if row.weights_bytes else "-",
        row.device or "-",
    )


def _error(found: Spread | None) -> str:
    if found is None:
        return "-"
    spread = f" ({found.low:.4f}-{found.high:.4f})" if found.n > 1 else ""
    return f"{found.mean:.4f}{spread}"


def _ood(row: Row) -> str:
    """`0.0293`, `0.1 (our split)`, `ood_forcing 0.2; ood_viscosity 0.1`: names only where they are needed."""
    splits = [split for split in row.splits if split != TEST]
    told = []
    for split in splits:
        name = "" if splits == [OOD] else f"{split} "
        told.append(f"{name}{_error(row.error(split))}{f' ({OWN})' if row.is_ours(split) else ''}")
    return "; ".join(told) or "-"


# ---- sentences -------------------------------------------------------------------------------------------------
def verdicts(rows: Sequence[Row], targets: Sequence[Target]) -> list[str]:
    """Which published numbers are met, which are missed and by how much, and what the words in the table mean."""
    met = [_told(target) for target in targets if target.is_met]
    missed = [_told(target) for target in targets if target.ratio is not None and not target.is_met]
    unknown = [_name(target) for target in targets if target.has_records and target.ratio is None]
    absent = list(dict.fromkeys(row.system.title for row in rows if not row.records))
    lines = [f"Published numbers met: {len(met)} of {len(targets)}{_listed(met)}."]
    if missed:
        lines.append(f"Missed: {'; '.join(missed)}.")
    if unknown:
        lines.append(f"Not measured: {', '.join(unknown)}.")
    if absent:
        lines.append(f"No record: {', '.join(absent)}.")
    return [*lines, _legend(rows)]


def _told(target: Target) -> str:
    """`Combined test 0.0057 against 0.0074, 24% below (polished)`."""
    row, ratio = target.row, target.ratio
    assert row is not None
    assert ratio is not None
    found = row.error(target.split)
    assert found is not None
    share = f"{100 * abs(ratio - 1):.2g}% {'above' if ratio > 1 else 'below'} it"
    distance = f"{ratio:.2f} times as large" if ratio >= 2 else share
    digits = 4 if target.split == TEST else 3
    by = row.what if target.is_met else row.kind  # who claims to have met a number says on how many trajectories
    return f"{_name(target)} {found.mean:.4f} against {target.value:.{digits}f}, {distance} ({by})"


def _name(target: Target) -> str:
    return f"{get(target.published.system).title} {target.split}"


def _listed(texts: Sequence[str]) -> str:
    return f": {'; '.join(texts)}" if texts else ""


def _legend(rows: Sequence[Row]) -> str:
    """What stands in the table; words that do not occur are not explained."""
    parts = [
        "Errors are relative L2 over all forecast frames, mean over trajectories and, with several seeds, over seeds "
        "(smallest-largest)."
    ]
    if any(metric_of(row.system.name) == "rel_l2_joint" for row in rows):
        parts.append(f"{JOINT}: one norm over all channels.")
    if any(row.is_ours(split) for row in rows for split in row.splits):
        parts.append(f"{OWN}: out-of-distribution data of our own, which the paper does not have.")
    parts.append(
        "Published: the PDE-JEPA paper, for the systems that are compared with it; best other solver: in distribution, "
        "from the same paper."
    )
    return " ".join(parts)


# ---- text ------------------------------------------------------------------------------------------------------
def plain_text(rows: Sequence[Row]) -> str:
    """The table with aligned columns."""
    return aligned(HEAD, [cells(row) for row in rows])


def markdown(rows: Sequence[Row], targets: Sequence[Target], command: str) -> str:
    """The table and the sentences as Markdown; `command` is what makes them."""
    table = markdown_table(HEAD, [cells(row) for row in rows])
    sentences = "\n".join(f"- {escaped(line)}" for line in verdicts(rows, targets))
    return f"{table}\n\n{sentences}\n- Written by `{command}`."
