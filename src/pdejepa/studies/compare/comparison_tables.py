"""Tables from the records of comparisons.

    DIR/compare.md      all tables, with what was published
    DIR/compare.png     error against cost, by `cost_picture`
    DIR/compare-minutes.png      error against minutes of training, by `minutes_picture`
    a document          between <!-- compare --> and <!-- end compare -->: one table with a line per solver
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from pdejepa import systems
from pdejepa.core.tables import Table
from pdejepa.core.text import escaped_markdown, percent
from pdejepa.evaluate.published import metric_of
from pdejepa.evaluate.record import METHOD
from pdejepa.studies.compare.cards import card_of
from pdejepa.studies.compare.comparison_records import SolverRecord, named
from pdejepa.studies.compare.paper_claims import published, reason

Group = Sequence[SolverRecord]  # of one table
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
# The first frame repeated, and a nearly best answer for a solver that sees it, but knows nothing of the parameters.
REFERENCES = (("repeat_first", "(the first frame again)"), ("blind", "(parameters unknown: about the best)"))
LEGEND = (
    "test, ood: relative L2 of all later frames from one true frame. tail: the solver is given as many true frames as "
    "the table says, and the frames that no solver is ever given are counted. told: what it learns of the equation. "
    "adaptation: time to fit a code to a trajectory before a forecast, outside the budget. learning rate: times that "
    "of its recipe, as three short trials chose it where there was time for them. Sizes and schedule of PDE-JEPA were "
    "developed on these systems; the others have their published ones. unit amplitude: all fields were rescaled to "
    "rms 1, and parameters with them, by the symmetry of the equation."
)
LEDGER = ("solver", "paper, test", "here", "paper, ood", "here", "why it may differ")
TOLERANCE = 0.1  # of the seconds of a budget


# ---- tables ------------------------------------------------------------------------------------------------------
def title(record: SolverRecord, budgets: str) -> str:
    """What is compared, of a table or a panel with these budgets."""
    how = f"{budgets} each from {record.weights}, recipe {record.recipe}"
    return f"{record.system}, {how}, {record.size} data, {record.device}"


def groups(records: Group) -> dict[str, list[SolverRecord]]:
    """Records that belong into one table, by its title."""
    tables: dict[str, list[SolverRecord]] = {}
    for record in records:
        tables.setdefault(title(record, record.budget.words()), []).append(record)
    return tables


def group_tables(heading: str, group: Group) -> list[Table]:
    """The table of a group, that of splits beside test and ood, and that of the published numbers, if there are any."""
    splits = tuple(dict.fromkeys(split for r in group for split in r.errors if split not in ("test", "ood")))
    others = [(named(r, group), *(_error(r, split) for split in splits)) for r in group] if splits else []
    found = (
        Table(HEAD, rows(group), caveats(group), heading, SPARE),
        Table(("solver", *splits), others),
        Table(LEDGER, ledger(group), title="Against the published numbers"),
    )
    return [table for table in found if table.rows]


def rows(group: Group) -> Rows:
    """One line per record, and the references below."""
    lines: Rows = [
        (
            named(r, group),
            *(_error(r, split) for split in ("test", "ood")),
            *(percent(r.errors[split].tail) if split in r.errors else "" for split in ("test", "ood")),
            str(r.true_frames),
            told(r.solver),
            f"{r.parameters / 1e6:.2f} M" if r.parameters >= 1e5 else f"{r.parameters / 1e3:.1f} k",
            f"{r.peak_memory_bytes / 1e9:.1f} GB",
            f"{r.ms_per_forecast:.2f}",
            f"{r.ms_per_adaptation:.1f} ms" if r.adapts == "gradient" else "",
            f"{sum(r.steps.values()):,}",
            f"{r.seconds:.0f}",
            "-" if r.is_at_once else f"x {r.learning_rate_factor:.2g}",
        )
        for r in group
    ]
    for key, name in REFERENCES:
        test, ood = (reference(group, split, key) for split in ("test", "ood"))
        if test is not None:
            lines.append((name, percent(test), _known(ood), "", "", "1", *[""] * (len(HEAD) - 6)))
    return lines


def _error(r: SolverRecord, split: str) -> str:
    return _known(r.error(split))


def _known(value: float | None) -> str:
    return "" if value is None else percent(value)


def told(solver: str) -> str:
    """What a solver learns of the equation, beside the frames that it continues."""
    words = {"xi": "parameters", "support": "a trajectory"}
    return ", ".join(word for what, word in words.items() if what in card_of(solver).reads)


def reference(group: Group, split: str, key: str) -> float | None:
    """What the first record that tells it has under `key`; None for a mean over parameters that is a poor answer.

    Such a mean is the best guess in absolute terms; in relative ones the first frame may be better.
    """
    blind, first = (_first(group, "test", name) for name in ("blind", "repeat_first"))
    if key == "blind" and (blind is None or (first is not None and blind >= first)):
        return None
    return _first(group, split, key)


def _first(group: Group, split: str, key: str) -> float | None:
    found = (getattr(r.errors[split], key) for r in group if split in r.errors)
    return next((value for value in found if value is not None), None)


# ---- against the paper -------------------------------------------------------------------------------------------
def ledger(group: Group) -> Rows:
    """What the paper says, what we get, and why it may differ."""
    lines: Rows = []
    for r in group:
        paper = published(r.system, r.solver)
        if paper is not None:
            here = [percent(r.error(split)) for split in ("test", "ood")]
            lines.append((named(r, group), percent(paper[0]), here[0], percent(paper[1]), here[1], _why(r)))
    return lines


def _why(r: SolverRecord) -> str:
    """Why an error may differ from the published one.

    Where it has one norm over all channels, as printed, the other reading stands beside it.
    """
    why = reason(systems.get(r.system), r.solver, r.is_blind, sum(r.steps.values()))
    if metric_of(r.system) == "rel_l2":
        return why
    means = [percent(r.errors[split].rel_l2) for split in ("test", "ood") if split in r.errors]
    return f"{why}; as a mean over channels, which the paper's public code takes, {' and '.join(means)} here"


# ---- notes -------------------------------------------------------------------------------------------------------
def caveats(group: Group) -> list[str]:
    """What the table of a group does not show."""
    bad = [(r, split, e) for r in group for split, e in r.errors.items() if e.n_diverged]
    diverged = [f"{named(r, group)} {e.n_diverged} of {e.n} on {split}" for r, split, e in bad]
    timed = [r for r in group if r.budget.unit == "seconds" and not r.is_at_once]
    off = [r for r in timed if abs(r.seconds / r.budget.amount - 1) > TOLERANCE]
    single = [(r, [stage for stage, n in r.steps.items() if n == 1]) for r in group]
    operations = [f"{named(r, group)} {r.flops_per_forecast:.2g}" for r in group if r.flops_per_forecast]
    found = {
        "Diverged, counted as 100%": diverged,
        f"More than {TOLERANCE:.0%} beside the budget": [f"{named(r, group)} {r.seconds:.3g} s" for r in off],
        "Stages with one step only": [f"{named(r, group)} ({', '.join(stages)})" for r, stages in single if stages],
        "Tails begin at different frames": _apart(group, [f"frame {r.errors['test'].tail_from}" for r in group]),
        "Sized to about the operations of PDE-JEPA": [named(r, group) for r in group if _is_sized(r)],
        "Operations of a forecast, without adapting": operations,
        "Measured on": list(dict.fromkeys(r.machine for r in group if r.machine)),
        "Measured at different commits": _apart(group, [_short(r.commit) for r in group]),
    }
    return [f"{words}: {'; '.join(names)}." for words, names in found.items() if names]


def _is_sized(r: SolverRecord) -> bool:
    """Whether its network has not the published sizes."""
    return r.recipe == "laptop" and not r.network and r.solver != METHOD and not r.is_at_once


def _apart(group: Group, values: Sequence[str]) -> list[str]:
    """`frame 5: FNO`, `frame 10: CAPE`; nothing if all have the same value."""
    found: dict[str, list[str]] = {}
    for r, value in zip(group, values, strict=True):
        found.setdefault(value, []).append(named(r, group))
    return [f"{value}: {', '.join(names)}" for value, names in found.items()] if len(found) > 1 else []


def _short(commit: str) -> str:
    name, _, changed = (commit or "unknown").partition("-")
    return f"{name[:7]}-{changed}" if changed else name[:7]


# ---- documents ---------------------------------------------------------------------------------------------------
def page(records: Group, picture: str, minutes: str) -> str:
    """All tables, as a document beside its pictures: error against cost, and against minutes of training."""
    shown = {"Error against the cost of a forecast": picture, "Error against minutes of training": minutes}
    pictures = [f"![{what}]({place})" for what, place in shown.items()]
    parts = ["# Solvers compared", *pictures, escaped_markdown(LEGEND)]
    for heading, group in groups(records).items():
        parts += [table.markdown() for table in group_tables(heading, group)]
    return "\n\n".join(parts) + "\n"


def summary(records: Group, details: str) -> str:
    """One table of all errors; `details`: where the other columns are, from where this is written."""
    link = f"[{escaped_markdown(details)}]({quote(details)})"
    return f"{summary_table(records).markdown()}\n\n- All columns and the published numbers: {link}.\n"


def summary_table(records: Group) -> Table:
    """A line per solver: the mean over seeds of every split of every table, in the order of the first table."""
    tables = short_groups(records)
    columns = [
        (name, group, split)
        for name, group in tables.items()
        for split in dict.fromkeys(split for r in group for split in r.errors)
    ]
    solvers = {r.row: r.row_title for group in tables.values() for r in group}  # best of the first one first
    lines: Rows = []
    for solver, label in solvers.items():
        found = [_mean([r for r in group if r.row == solver], split) for _, group, split in columns]
        lines.append((label, told(solver[0].partition("@")[0]) or "nothing", *map(_known, found)))
    for key, label in REFERENCES:
        found = [reference(group, split, key) for _, group, split in columns]
        lines += [(label, "", *map(_known, found))] if any(value is not None for value in found) else []
    return Table(("solver", "told", *(f"{name}: {split}" for name, _, split in columns)), lines)


def short_groups(records: Group) -> dict[str, list[SolverRecord]]:
    """The groups by short titles, or by whole ones where those are not enough."""
    found = groups(records)
    short = {heading: f"{group[0].system}, {group[0].budget.words()}" for heading, group in found.items()}
    is_enough = len(set(short.values())) == len(short)
    return {short[heading] if is_enough else heading: group for heading, group in found.items()}


def _mean(group: Group, split: str) -> float | None:
    values = [value for r in group if (value := r.error(split)) is not None]
    return sum(values) / len(values) if values else None
