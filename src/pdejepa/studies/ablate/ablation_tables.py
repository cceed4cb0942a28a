"""The tables of an ablation, one for each question, as text or between marks in a document.

    <!-- ablate: combined-fast -->
    ... written by pdejepa ablate --report results/ablate-combined-fast.json --write FILE ...
    <!-- end ablate: combined-fast -->
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pdejepa.core.documents import find_marks, write_between
from pdejepa.core.errors import UsageError
from pdejepa.core.tables import Table
from pdejepa.core.text import percent
from pdejepa.evaluate.published import metric_of
from pdejepa.models.integrate import METHODS
from pdejepa.studies.ablate.ablation_record import Ablation, RunRecord
from pdejepa.studies.ablate.runs import BASE, NO_ANCHOR, VARIANTS, integrator_runs

Rows = list[tuple[str, ...]]


def tables(record: Ablation) -> dict[str, Table]:
    """The tables of all questions that the record was asked."""
    build: dict[str, Callable[[Ablation], Table]] = {
        "variants": variants_table,
        "geometry": geometry_table,
        "integrators": integrators_table,
        "anchor": anchor_table,
        "reconstruct": reconstruct_table,
    }
    return {what: function(record) for what, function in build.items() if what in record.what}


def as_text(record: Ablation) -> str:
    """For a terminal."""
    return "\n\n".join((heading(record), *(table.text() for table in tables(record).values())))


def as_markdown(record: Ablation) -> str:
    """For a document."""
    return "\n\n".join((heading(record), *(table.markdown() for table in tables(record).values())))


def heading(record: Ablation) -> str:
    """What was compared, on what, and how long it was trained."""
    base = record.runs.get(BASE)
    steps = ", ".join(f"{stage} {n:,}" for stage, n in base.steps.items()) if base else ""
    commit, _, changed = record.commit.partition("-")
    source = f", commit {commit[:12]}{' with changes' if changed else ''}" if commit else ""
    failed = "".join(f" {name} diverged ({why})." for name, why in record.failed.items())
    return (
        f"{record.title}, recipe {record.recipe}, seed {record.seed}, {record.device or 'unknown device'}, "
        f"torch {record.torch or '?'}{source}. Equal steps in every run: {steps or 'not known yet'}.{failed}"
    )


# ---- tables ------------------------------------------------------------------------------------------------------
def variants_table(record: Ablation) -> Table:
    labels = {"vanilla": "vanilla", "geo": "+ alignment (geo)", "physics": "+ structured field (physics)"}
    columns = _error_columns(record)
    rows: Rows = []
    for name in (name for name in VARIANTS if name in record.runs):
        run = record.runs[name]
        cells = (percent(_error(run, split, key)) for _, split, key in columns)
        rows.append((labels[name], *cells, f"{run.parameters:,}", _seconds(run), _unstable(run)))
    head = ("model", *(label for label, _, _ in columns), "parameters", "seconds", "unstable")
    return Table(head, rows, (_error_note(record),), "Variants")


def geometry_table(record: Ablation) -> Table:
    """Differences of z and q to the fields."""
    base = record.runs.get(BASE)
    found = base.geometry if base else None
    rows: Rows = []
    notes: tuple[str, ...] = ()
    if found:
        measures = {
            "turning angle, degrees": found.angle,
            "symmetric acceleration": found.acceleration,
            "lag-1 cosine": found.cosine,
        }
        for label, errors in measures.items():
            change = _whole_percent(errors["q"] / errors["z"] - 1)
            rows.append((label, f"{errors['z']:.4g}", f"{errors['q']:.4g}", change))
        mean = found.mean_angle
        notes = (
            f"On {found.n} trajectories of valid, fields normalised. Mean turning angle: u {mean['u']:.1f}, "
            f"z {mean['z']:.1f}, q {mean['q']:.1f} degrees; |q-z|/|z| = {found.change:.3g}.",
        )
    head = ("mean absolute difference to the fields", "z", "q", "change")
    return Table(head, rows, notes, "Geometry before (z) and after (q) alignment")


def integrators_table(record: Ablation) -> Table:
    base = record.runs.get(BASE)
    names = integrator_runs(base.integrator if base else "rk4")
    keys = ("late_teacher", "final", "whole", "round_trip", "round_trip_median")
    rows: Rows = []
    for split in _splits(record):
        for method in METHODS:
            run = record.runs.get(names[method])
            found = run.rollouts.get(split) if run else None
            if run and found:
                error = percent(_error(run, split, metric_of(record.system)))
                rows.append((split, method, *(_number(getattr(found, key)) for key in keys), error, _seconds(run)))
    note = (
        f"Steps per frame: {base.n_substeps if base else '?'}. Relative errors of latents. Late teacher: one frame "
        "from true latents, late ones. Round trip: to the last frame and back. "
        f"Field error: relative L2 of the decoded forecast{_joint(record)}."
    )
    head = ("split", "method", "late teacher", "final", "whole", "round trip", "its median", "field error", "seconds")
    return Table(head, rows, (note,), "Integrators, each trained with itself")


def anchor_table(record: Ablation) -> Table:
    columns = _error_columns(record)
    rows: Rows = []
    for run in (record.runs[name] for name in (BASE, NO_ANCHOR) if name in record.runs):
        if run.geometry:
            cells = (percent(_error(run, split, key)) for _, split, key in columns)
            shape = (f"{run.geometry.angle['q']:.4g}", f"{run.geometry.change:.4g}")
            rows.append((f"{run.anchor_weight:g}", *cells, *shape, _seconds(run)))
    labels = (label for label, _, _ in columns)
    head = ("anchor weight", *labels, "angle error, degrees", "|q-z|/|z|", "seconds")
    note = f"{_error_note(record)} Angle error and change: on valid, after alignment."
    return Table(head, rows, (note,), "The anchor of the alignment")


def reconstruct_table(record: Ablation) -> Table:
    base = record.runs.get(BASE)
    told = base.reconstruct if base else None
    rows: Rows = []
    for key, label in _metrics(record):
        e_rec, e_roll = getattr(told, key, None), _error(base, "test", key) if base else None
        if e_rec and e_roll is not None:
            rows.append((label, percent(e_rec), percent(e_roll), f"{e_roll / e_rec:.3g}"))
    steps = f" ({told.steps:,} steps)" if told and told.steps else ""
    note = f"e_rec: a decoder of its own on the true latents q{steps}. e_roll: the forecast. Same frames."
    head = ("relative L2", "e_rec", "e_roll", "R = e_roll / e_rec")
    return Table(head, rows, (note,), "Direct reconstruction against rollout, on test")


# ---- cells -------------------------------------------------------------------------------------------------------
def _splits(record: Ablation) -> list[str]:
    """The splits on which the base was measured, test first."""
    base = record.runs.get(BASE)
    return list(base.errors or base.rollouts) if base else []


def _metrics(record: Ablation) -> list[tuple[str, str]]:
    """The two metrics; with one field they are the same number."""
    if len(record.fields) == 1:
        return [("rel_l2_joint", "one field")]
    return [("rel_l2", "mean over fields"), ("rel_l2_joint", "all fields in one norm")]


def _error_columns(record: Ablation) -> list[tuple[str, str, str]]:
    """(label, split, key) of every column of errors; a split that is not published has a star."""
    short = {"rel_l2": ""} if len(record.fields) == 1 else {"rel_l2": "", "rel_l2_joint": " joint"}
    stars = {split: "*" if split in record.splits and record.splits[split].is_ours else "" for split in _splits(record)}
    return [(f"{split}{star}{words}", split, key) for split, star in stars.items() for key, words in short.items()]


def _error_note(record: Ablation) -> str:
    base = record.runs.get(BASE)
    counts = ", ".join(f"{split} {found.n:,}" for split, found in base.errors.items()) if base else ""
    joint = " joint: one norm over all fields." if len(record.fields) > 1 else ""
    star = " *: not in the paper." if any("*" in label for label, _, _ in _error_columns(record)) else ""
    return f"Relative L2 of forecasts, mean over trajectories ({counts}).{joint}{star}"


def _error(run: RunRecord, split: str, key: str) -> float | None:
    return getattr(run.errors[split], key) if split in run.errors else None


def _joint(record: Ablation) -> str:
    """Said where a system is compared by one norm over all its fields."""
    return " (joint)" if metric_of(record.system) == "rel_l2_joint" else ""


def _seconds(run: RunRecord) -> str:
    """Seconds of all stages, those taken over from the base included."""
    return f"{sum(run.seconds.get(stage) or 0.0 for stage in run.steps):,.0f}"


def _unstable(run: RunRecord) -> str:
    return str(sum(found.n_unstable or 0 for found in run.errors.values()))


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _whole_percent(share: float) -> str:
    """`78 %`, with one more digit where it is small."""
    return f"{100 * share:.{0 if abs(share) >= 0.1 else 1}f} %"


# ---- documents ---------------------------------------------------------------------------------------------------
def mark_name(file: Path, record: Ablation) -> str:
    """A file `ablate-NAME.json` belongs to the mark NAME; other files and folders are called by what they hold."""
    kind, _, rest = file.stem.partition("-")
    return rest if file.suffix == ".json" and kind == "ablate" and rest else record.name


def write_marked(path: Path, names: Sequence[str], records: Sequence[Ablation]) -> None:
    """Put each record between the marks of its name in a document; nothing is written unless all marks are there."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"Two records are called {twice[0]}; give one of them.")
    marks = [f"ablate: {name}" for name in names]
    for mark in marks:
        find_marks(path, mark)
    for mark, record in zip(marks, records, strict=True):
        write_between(path, mark, as_markdown(record))
