"""Our errors beside the published ones as a table: one line per row of `against_paper`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pdejepa.core.tables import Table
from pdejepa.core.text import human_bytes, percent
from pdejepa.evaluate.against_paper import OOD, TEST, Row, Target
from pdejepa.evaluate.published import metric_of
from pdejepa.systems import get

HEAD = (
    "system",
    "recipe",
    "what",
    "test",
    "published",
    "ratio",
    "ood",
    "published ood",
    "best other solver",
    "seconds",
    "operations",
    "weights",
    "machine",
)
SHORT_HEAD = ("system", "inside", "published", "outside", "published outside", "training")
SPARE = ("machine", "weights", "operations", "seconds", "best other solver", "published ood")
JOINT = "joint"
OWN = "our split"
SCATTER = "±: standard error of the mean over the parameter sets of the split."


def results_table(rows: Sequence[Row], targets: Sequence[Target]) -> Table:
    """All rows; the notes say which published numbers are met, and what the words in the table mean."""
    return Table(HEAD, [cells(row) for row in rows], notes(rows, targets), spare=SPARE)


def short_table(rows: Sequence[Row]) -> Table:
    """One line a system and recipe: its last kind of model, which is the polished one."""
    last = {(row.system.name, row.recipe): row for row in rows}
    lines = [_short(row) for row in last.values()]
    legend = "Relative L2 error of whole forecasts from one frame, inside and outside the training range."
    return Table(SHORT_HEAD, lines, [f"{legend} {SCATTER}" if any("±" in "".join(line) for line in lines) else legend])


def _short(row: Row) -> tuple[str, ...]:
    published = row.published
    has_two = bool(row.records) and row.records[0].observed_frames == 2
    return (
        f"{row.system.title} (from two frames)" if has_two else row.system.title,
        _share(row, TEST) or "not measured",
        percent(published.id) if published else "-",
        _outside(row),
        _published_outside(row, percent),
        f"{row.recipe}, {row.seconds.mean / 60:,.0f} min, {row.device}" if row.seconds else "-",
    )


def _outside(row: Row) -> str:
    """The errors out of distribution as the paper groups them, or those of the only split."""
    told = row.published.ood if row.published and row.published.ood else {OOD: 0.0}
    parts = [
        f"{_bare(split)}{_share(row, split)}{' (our split)' if row.is_ours(split) else ''}"
        for split in told
        if row.error(split)
    ]
    return "; ".join(parts) or "-"


def _published_outside(row: Row, shown: Callable[[float], str]) -> str:
    """What the paper prints out of distribution, named where it is more than one number."""
    told = row.published.ood if row.published else {}
    return "; ".join(f"{_bare(split)}{shown(value)}" for split, value in told.items()) or "-"


def _bare(split: str) -> str:
    """`viscosity ` for ood_viscosity; nothing for ood."""
    return "" if split == OOD else f"{split.removeprefix(f'{OOD}_')} "


def _share(row: Row, split: str) -> str:
    """`0.353% ± 0.0156%`; empty if the error is not known."""
    found, scatter = row.error(split), row.scatter(split)
    told = "" if scatter is None else f" ± {percent(scatter)}"
    return f"{percent(found.mean)}{told}" if found else ""


# ---- cells -----------------------------------------------------------------------------------------------------
def cells(row: Row) -> tuple[str, ...]:
    """The texts of one row, in the order of HEAD."""
    published, ratio = row.published, row.ratio(TEST)
    name = f"{row.system.title} ({JOINT})" if metric_of(row.system.name) == "rel_l2_joint" else row.system.title
    return (
        name,
        row.recipe or "-",
        row.what,
        _error(row, TEST),
        f"{published.id:.4f}" if published else "-",
        "-" if ratio is None else f"{ratio:.2f}",
        _ood(row),
        _published_outside(row, "{:.3f}".format),
        f"{published.other_name} {published.other:.4f}" if published else "-",
        f"{row.seconds.mean:,.0f}" if row.seconds else "-",
        f"{row.flops.mean:.2g}" if row.flops else "-",
        human_bytes(row.weights_bytes) if row.weights_bytes else "-",
        row.device or "-",
    )


def _error(row: Row, split: str) -> str:
    """`0.0035 ± 0.0002 (0.0033-0.0037)`."""
    found, scatter = row.error(split), row.scatter(split)
    if found is None:
        return "-"
    told = "" if scatter is None else f" ± {scatter:.4f}"
    return f"{found.mean:.4f}{told}{f' ({found.low:.4f}-{found.high:.4f})' if found.n > 1 else ''}"


def _ood(row: Row) -> str:
    """`0.0293`, `0.1 (our split)`, `ood_forcing 0.2; ood_viscosity 0.1`: names only where they are needed."""
    splits = [split for split in row.splits if split != TEST]
    told = []
    for split in splits:
        name = "" if splits == [OOD] else f"{split} "
        told.append(f"{name}{_error(row, split)}{f' ({OWN})' if row.is_ours(split) else ''}")
    return "; ".join(told) or "-"


# ---- notes -----------------------------------------------------------------------------------------------------
def notes(rows: Sequence[Row], targets: Sequence[Target]) -> list[str]:
    """Which published numbers are met, and the legend."""
    kinds = {
        f"Published numbers met: {sum(target.is_met for target in targets)} of {len(targets)}": (),
        "Missed": map(_name, (t for t in targets if t.ratio is not None and not t.is_met)),
        "Not measured": map(_name, (t for t in targets if t.has_records and t.ratio is None)),
        "No record": dict.fromkeys(row.system.title for row in rows if not row.records),
    }
    said = [_sentence(words, names) for words, names in kinds.items()]
    return [" ".join(sentence for sentence in said if sentence), _legend(rows)]


def _sentence(words: str, names: Iterable[str]) -> str:
    """`Missed: Heat test, Burgers test.`; nothing where there are no names, but for a sentence that needs none."""
    listed = ", ".join(names)
    return f"{words}: {listed}." if listed else f"{words}." if ":" in words else ""


def _name(target: Target) -> str:
    return f"{get(target.published.system).title} {target.split}"


def _legend(rows: Sequence[Row]) -> str:
    """What stands in the table; words that do not occur are not explained."""
    parts = ["Relative L2 over all forecast frames, mean over trajectories and seeds (smallest-largest)."]
    if any(row.scatter(split) is not None for row in rows for split in row.splits):
        parts.append(SCATTER)
    if any(metric_of(row.system.name) == "rel_l2_joint" for row in rows):
        parts.append(f"{JOINT}: one norm over all channels.")
    if any(row.is_ours(split) for row in rows for split in row.splits):
        parts.append(f"{OWN}: not in the paper.")
    return " ".join((*parts, "published, best other solver: the PDE-JEPA paper."))
