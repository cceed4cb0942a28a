"""Does a published ordering hold here?  One sentence per table, computed from its numbers.

A sentence begins with `Holds`, `Does not hold` or `Not decided` (a run is missing, or a number is not finite).  One
number counts as clearly below another if it is so by more than CLEAR; what rounding can do is no finding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pdejepa.core.text import percent

CLEAR = 0.01  # relative; seeds may well differ by more
SATURATED = 0.05  # a relative change up to this is what a saturated method may show
MAX_TOLD = 4
RATIOS = (8.12, 12.31)  # published e_roll / e_rec of eight systems, lowest and highest

Errors = Mapping[str, float | None]  # name of a run -> its error
BySplit = Mapping[str, Errors]


def variants(by_split: BySplit, order: Sequence[str]) -> str:
    """Each added part lowers the error, on every split."""
    missing = _missing(by_split, order)
    if missing:
        return missing
    problems = [text for split, errors in by_split.items() for text in _rises(errors, order, split)]
    if problems:
        return _not(problems)
    told = [f"{split} {_chain(errors, order)}" for split, errors in by_split.items()]
    return f"Holds: each added part lowers every error ({'; '.join(told)})."


def geometry(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Alignment lowers the three differences to the fields; errors: measure -> {"z", "q"}."""
    problems = [
        f"the {name} error does not clearly fall ({pair['z']:.4g} before, {pair['q']:.4g} after)"
        for name, pair in errors.items()
        if not _less(pair["q"], pair["z"])
    ]
    if problems:
        return _not(problems)
    told = ", ".join(f"{name} by {whole_percent(1 - pair['q'] / pair['z'])}" for name, pair in errors.items())
    return f"Holds: alignment lowers all of them ({told})."


def integrators(final: BySplit, whole: BySplit, trips: BySplit) -> str:
    """Errors fall from Euler over RK2 to RK4 and then stay; round trips fall on to RK8."""
    order = ("euler", "rk2", "rk4", "rk8")
    columns = {"final": final, "whole": whole, "round trip": trips}
    for column in columns.values():
        missing = _missing(column, order)
        if missing:
            return missing
    problems = []
    for name, column in columns.items():
        last = len(order) if name == "round trip" else len(order) - 1
        for split, errors in column.items():
            problems += _rises(errors, order[:last], f"{name}, {split}")
            change = _ratio(errors["rk8"], errors["rk4"]) - 1
            if name != "round trip" and abs(change) > SATURATED:
                problems.append(f"rk8 changes {name}, {split}, by {100 * change:+.0f} % against rk4")
    if problems:
        return _not(problems)
    return (
        "Holds: final and whole errors fall from Euler over RK2 to RK4, RK8 changes them by at most "
        f"{100 * SATURATED:.0f} %, and the round trip falls at every step."
    )


def anchor(by_split: BySplit, angles: Errors, names: tuple[str, str]) -> str:
    """Without the anchor latent trajectories turn more like the fields, and forecasts are worse all the same."""
    kept, dropped = names
    missing = _missing({**by_split, "angle error": angles}, names)
    if missing:
        return missing
    problems = []
    if not _less(angles[dropped], angles[kept]):
        told = f"{_degrees(angles[kept])} with, {_degrees(angles[dropped])} without"
        problems.append(f"the angle error does not clearly fall without the anchor ({told})")
    for split, errors in by_split.items():
        if not _less(errors[kept], errors[dropped]):
            told = f"{percent(errors[kept])} with, {percent(errors[dropped])} without"
            problems.append(f"the error on {split} does not clearly rise without the anchor ({told})")
    if problems:
        return _not(problems)
    told = f"{_degrees(angles[kept])} to {_degrees(angles[dropped])}"
    return f"Holds: without the anchor the angle error falls from {told}, and the error rises on {', '.join(by_split)}."


def reconstruct(ratio: float | None) -> str:
    """A forecast is about ten times less accurate than decoding the true latents."""
    if ratio is None:
        return "Not decided: an error is missing."
    low, high = RATIOS
    if low <= ratio <= high:
        return f"Holds: R = {ratio:.3g} lies within the published {low} to {high}."
    side = "below" if ratio < low else "above"
    return f"Does not hold: R = {ratio:.3g} lies {side} the published {low} to {high}."


def _missing(by_split: BySplit, names: Sequence[str]) -> str:
    """`Not decided ...` if a run is missing or a number is not finite, or an empty text."""
    absent = [name for name in names if any(name not in errors for errors in by_split.values())]
    if absent or not by_split:
        return f"Not decided: {' and '.join(absent) or 'everything'} missing."
    lost = [f"{name} on {where}" for where, errors in by_split.items() for name in names if errors[name] is None]
    return f"Not decided: no finite number for {_listed(lost)}." if lost else ""


def _rises(errors: Errors, order: Sequence[str], where: str) -> list[str]:
    """Where the error of a run is not clearly below that of the one before."""
    return [
        f"{after} ({percent(errors[after])}) is not clearly below {before} ({percent(errors[before])}) on {where}"
        for before, after in itertools.pairwise(order)
        if not _less(errors[after], errors[before])
    ]


def _less(one: float | None, other: float | None) -> bool:
    """Whether the one is clearly below the other."""
    return one is not None and other is not None and one < (1 - CLEAR) * other


def _ratio(one: float | None, other: float | None) -> float:
    return one / other if one is not None and other else float("inf")


def _chain(errors: Errors, order: Sequence[str]) -> str:
    return " > ".join(percent(errors[name]) for name in order)


def whole_percent(share: float) -> str:
    """`78 %`, with one more digit where it is small."""
    return f"{100 * share:.{0 if abs(share) >= 0.1 else 1}f} %"


def _degrees(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g} degrees"


def _not(problems: list[str]) -> str:
    return f"Does not hold: {_listed(problems)}."


def _listed(texts: list[str]) -> str:
    more = f"; and {len(texts) - MAX_TOLD} more" if len(texts) > MAX_TOLD else ""
    return "; ".join(texts[:MAX_TOLD]) + more
