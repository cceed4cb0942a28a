"""The tables of a record: head, rows, what the columns mean, which claim they test, and what became of it here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pdejepa.core.text import percent
from pdejepa.evaluate.published import metric_of
from pdejepa.models.integrate import METHODS
from pdejepa.studies.ablate import verdicts
from pdejepa.studies.ablate.ablation_record import Record
from pdejepa.studies.ablate.runs import BASE, NO_ANCHOR, VARIANTS, integrator_runs

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """One table of the report.  verdict: one sentence about the claim, computed from the numbers."""

    what: str
    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str
    claim: str
    verdict: str


def tables(record: Record) -> list[Table]:
    """The tables of all questions that the record was asked."""
    build: dict[str, Callable[[Record], Table]] = {
        "variants": variants_table,
        "geometry": geometry_table,
        "integrators": integrators_table,
        "anchor": anchor_table,
        "reconstruct": reconstruct_table,
    }
    return [function(record) for what, function in build.items() if what in record["what"]]


def variants_table(record: Record) -> Table:
    labels = {"vanilla": "vanilla", "geo": "+ alignment (geo)", "physics": "+ structured field (physics)"}
    columns = _error_columns(record)
    rows = []
    for name in (name for name in VARIANTS if name in record["runs"]):
        row = record["runs"][name]
        cells = (percent(_error(row, split, key)) for _, split, key in columns)
        rows.append((labels[name], *cells, f"{row['parameters']:,}", _seconds(row), _unstable(row)))
    by_split = {split: _errors(record, split, VARIANTS) for split in _splits(record)}
    return Table(
        "variants",
        "Variants",
        ("model", *(label for label, _, _ in columns), "parameters", "seconds", "unstable"),
        rows,
        _error_note(record),
        "each added part lowers the error, inside and outside the training range",
        verdicts.variants(by_split, VARIANTS),
    )


def geometry_table(record: Record) -> Table:
    found = record["runs"].get(BASE, {}).get("geometry")
    names = {"angle": "turning angle, degrees", "acceleration": "symmetric acceleration", "cosine": "lag-1 cosine"}
    rows, verdict, n, mean = [], "Not decided: physics missing.", 0, ""
    if found:
        n, angles = found["n"], found["mean_angle"]
        mean = f" Mean turning angle: u {angles['u']:.1f}, z {angles['z']:.1f}, q {angles['q']:.1f} degrees; "
        mean += f"|q-z|/|z| = {found['change']:.3g}."
        for key, label in names.items():
            before, after = found[key]["z"], found[key]["q"]
            rows.append((label, f"{before:.4g}", f"{after:.4g}", verdicts.whole_percent(after / before - 1)))
        verdict = verdicts.geometry({label.split(",")[0]: found[key] for key, label in names.items()})
    return Table(
        "geometry",
        "Geometry before (z) and after (q) alignment",
        ("mean absolute difference to the fields", "z", "q", "change"),
        rows,
        f"On {n} trajectories of valid, over all frames; fields normalised. Symmetric acceleration: "
        f"a_t = |x_(t+1) - 2 x_t + x_(t-1)| / (|x_(t+1) - x_t| + |x_t - x_(t-1)|).{mean}",
        "alignment lowers all three differences",
        verdict,
    )


def integrators_table(record: Record) -> Table:
    own = record["runs"].get(BASE, {}).get("integrator", "rk4")
    names = integrator_runs(own)
    keys = ("late_teacher", "final", "whole", "round_trip", "round_trip_median")
    rows = []
    splits = _splits(record)
    for split in splits:
        for method in METHODS:
            row = record["runs"].get(names[method], {})
            found = row.get("rollouts", {}).get(split)
            if found:
                error = percent(_error(row, split, metric_of(record["system"])))
                rows.append((split, method, *(_number(found[key]) for key in keys), error, _seconds(row)))
    picked = {key: {split: _rollouts(record, split, key, names) for split in splits} for key in keys}
    trips = {split: _finite(picked["round_trip"][split], picked["round_trip_median"][split]) for split in splits}
    steps = record["runs"].get(BASE, {}).get("n_substeps", "?")
    return Table(
        "integrators",
        "Integrators, each trained with itself",
        ("split", "method", "late teacher", "final", "whole", "round trip", "its median", "field error", "seconds"),
        rows,
        f"Steps per frame: {steps}. Relative errors of latents, mean over trajectories. Late teacher: one frame from "
        "true latents, last quarter of the frames. Final, whole: last frame and all frames of the rollout. Round trip: "
        "forward from the first true latent to the last frame and back with a negative step, distance to the start, "
        "judged by medians where a mean is not finite. "
        f"Field error: relative L2 of the decoded forecast{_joint(record)}.",
        "errors fall from Euler over RK2 to RK4, RK8 changes them little "
        f"(up to {100 * verdicts.SATURATED:.0f} % here), round trips fall on to RK8",
        verdicts.integrators(picked["final"], picked["whole"], trips),
    )


def anchor_table(record: Record) -> Table:
    names = (BASE, NO_ANCHOR)
    columns = _error_columns(record)
    rows = []
    for name in (name for name in names if record["runs"].get(name, {}).get("geometry")):
        row = record["runs"][name]
        cells = (percent(_error(row, split, key)) for _, split, key in columns)
        shape = (f"{row['geometry']['angle']['q']:.4g}", f"{row['geometry']['change']:.4g}")
        rows.append((f"{row['anchor_weight']:g}", *cells, *shape, _seconds(row)))
    shapes = {name: record["runs"][name].get("geometry") for name in names if name in record["runs"]}
    angles = {name: found["angle"]["q"] for name, found in shapes.items() if found}
    return Table(
        "anchor",
        "The anchor of the alignment",
        ("anchor weight", *(label for label, _, _ in columns), "angle error, degrees", "|q-z|/|z|", "seconds"),
        rows,
        f"{_error_note(record)} Angle error and change: on valid, after alignment. Published for geo; here all else is "
        "physics.",
        "without the anchor the angle error falls, but forecasts get worse",
        verdicts.anchor({split: _errors(record, split, names) for split in _splits(record)}, angles, names),
    )


def reconstruct_table(record: Record) -> Table:
    row = record["runs"].get(BASE, {})
    rows, ratios = [], {}
    for key, label in _metrics(record):
        e_rec, e_roll = row.get("reconstruct", {}).get(key), _error(row, "test", key)
        if e_rec and e_roll is not None:
            ratios[key] = e_roll / e_rec
            rows.append((label, percent(e_rec), percent(e_roll), f"{ratios[key]:.3g}"))
    told = row.get("reconstruct", {})
    steps = f" ({told['steps']:,} steps, as many as the decoder of the rollouts)" if told.get("steps") else ""
    return Table(
        "reconstruct",
        "Direct reconstruction against rollout, on test",
        ("relative L2", "e_rec", "e_roll", "R = e_roll / e_rec"),
        rows,
        f"e_rec: a decoder of its own on the true latents q{steps}. e_roll: the forecast. Same frames. Published for "
        "vanilla, with decoders on z, on valid.",
        f"rollouts are {verdicts.RATIOS[0]:g} to {verdicts.RATIOS[1]:g} times less accurate than reconstruction",
        verdicts.reconstruct(ratios.get("rel_l2_joint")),
    )


# ---- pieces ------------------------------------------------------------------------------------------------------
def _splits(record: Record) -> list[str]:
    """The splits on which the base was measured, test first."""
    row = record["runs"].get(BASE, {})
    return list(row.get("errors") or row.get("rollouts") or {})


def _metrics(record: Record) -> list[tuple[str, str]]:
    """The two metrics; with one field they are the same number."""
    if len(record["fields"]) == 1:
        return [("rel_l2_joint", "one field")]
    return [("rel_l2", "mean over fields"), ("rel_l2_joint", "all fields in one norm")]


def _error_columns(record: Record) -> list[tuple[str, str, str]]:
    """(label, split, key) of every column of errors."""
    short = {"rel_l2": "", "rel_l2_joint": " joint"}
    keys = ["rel_l2"] if len(record["fields"]) == 1 else ["rel_l2", "rel_l2_joint"]
    return [(f"{_label(record, split)}{short[key]}", split, key) for split in _splits(record) for key in keys]


def _label(record: Record, split: str) -> str:
    """A split of our own that is not part of the published benchmark has a star."""
    return f"{split}*" if record["splits"].get(split, {}).get("is_ours") else split


def _error_note(record: Record) -> str:
    errors = record["runs"].get(BASE, {}).get("errors", {})
    counts = ", ".join(f"{split} {found['n']:,}" for split, found in errors.items())
    judged = ", by which they are judged" if _joint(record) else ""
    joint = f" joint: one norm over all fields{judged}." if len(record["fields"]) > 1 else ""
    ours = [split for split in _splits(record) if record["splits"].get(split, {}).get("is_ours")]
    star = " *: not part of the published benchmark." if ours else ""
    return f"Relative L2 of forecasts, mean over trajectories ({counts}), steps per frame as in training.{joint}{star}"


def _error(row: Row, split: str, key: str) -> float | None:
    return row.get("errors", {}).get(split, {}).get(key)


def _errors(record: Record, split: str, names: tuple[str, ...]) -> dict[str, float | None]:
    """Errors of the runs that were measured on this split."""
    rows, metric = {name: record["runs"].get(name, {}) for name in names}, metric_of(record["system"])
    return {name: _error(row, split, metric) for name, row in rows.items() if split in row.get("errors", {})}


def _joint(record: Record) -> str:
    """Said where a system is compared by one norm over all its fields."""
    return " (joint)" if metric_of(record["system"]) == "rel_l2_joint" else ""


def _finite(means: verdicts.Errors, medians: verdicts.Errors) -> verdicts.Errors:
    """Means, or medians if a mean is not finite: the few trajectories that a way back magnifies decide nothing."""
    return medians if None in means.values() else means


def _rollouts(record: Record, split: str, key: str, names: dict[str, str]) -> dict[str, float | None]:
    rows = {method: record["runs"].get(name, {}).get("rollouts", {}) for method, name in names.items()}
    return {method: found[split][key] for method, found in rows.items() if split in found}


def _seconds(row: Row) -> str:
    """Of all its stages, those it took over included."""
    return f"{sum(row['seconds'].get(stage) or 0.0 for stage in row['steps']):,.0f}"


def _unstable(row: Row) -> str:
    return str(sum(found["n_unstable"] for found in row["errors"].values()))


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
