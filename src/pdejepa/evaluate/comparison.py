"""The errors of one forecast of one trajectory against the solver's."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdejepa.core.text import percent
from pdejepa.evaluate import metrics
from pdejepa.evaluate.cases import Truth
from pdejepa.forecast.forecaster import Forecast


@dataclass(frozen=True)
class Comparison:
    """Relative L2 errors; NaN where the forecast or the truth is not finite.

    forecast: over all forecast frames      last: in the last one
    repeat: of somebody who repeats the last observed frame for ever
    """

    forecast: float
    last: float
    repeat: float


def compare(result: Forecast, truth: Truth) -> Comparison:
    """Errors of the first row of a forecast against frames of the solver at the same times."""
    fields, first = truth.fields[None].to(result.fields.device), result.n_observed
    return Comparison(
        forecast=float(metrics.rel_l2(result.fields, fields, first)[0]),
        last=float(metrics.last_frame(result.fields, fields)[0]),
        repeat=float(metrics.rel_l2(metrics.repeat_first(fields, first), fields, first)[0]),
    )


def told(error: float) -> str:
    """An error for people: `3.42%`; `-` if it is not a number."""
    return "-" if math.isnan(error) else percent(error)
