"""Is a forecast asked for something the model was trained on?  One verdict per parameter, and sentences.

A parameter is inside its training range if it lies between the ends of its declared law, or between the smallest and
the largest value of the train split where no law is declared; MARGIN of the range counts as inside, because the ends of
a random sample are not sharp.  How far outside is told as a factor for ranges over several octaves ("20x below"),
otherwise as a share of the width of the range.  Angles are judged after whole turns are taken out.
The many numbers of a forcing (forcing_*) are told in one sentence; numbers of one kind (forcing_amplitude_1, _2, ..)
obey one law and share one range.  A longer horizon than that of the training data is an extrapolation too.

The observed frames are judged by what the model itself makes of them, encoded and decoded again: states of the shipped
models' test and out-of-distribution splits are off by 5 % at most, and noisy, offset or tenfold ones by 14 % and more.
A model for unit amplitude sees no size; there a large state makes parameters strong, so those are judged once more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from pdejepa.systems.problem import Parameter

MARGIN = 0.01
LOG_RATIO = 6.0  # a positive range whose ends differ by this factor or more is thought of in factors
FORCING = "forcing_"
UNLIKE = 0.1  # relative L2 of the observed frames, encoded and decoded again
SMALL = 0.01  # of the rms of the training data: smaller states are judged as if they had this size

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class ParameterRange:
    """Where the values of one parameter lie; of several rows, `value` is the one farthest outside."""

    name: str
    value: float
    low: float
    high: float
    side: Literal["inside", "below", "above"]
    n_outside: int = 0  # rows
    n_rows: int = 1

    @property
    def distance(self) -> str:
        """`20x below` or `12% of its width above`; empty if inside."""
        if self.side == "inside":
            return ""
        if _is_log(self.low, self.high) and self.value > 0:
            factor = self.low / self.value if self.side == "below" else self.value / self.high
            return f"{factor:.3g}x {self.side}"
        gap = self.low - self.value if self.side == "below" else self.value - self.high
        width = self.high - self.low
        return f"{100 * gap / width:.3g}% of its width {self.side}" if width > 0 else self.side

    @property
    def sentence(self) -> str:
        if self.side == "inside":
            return ""
        rows = f" in {self.n_outside} of {self.n_rows} rows" if self.n_rows > 1 else ""
        trained = f"[{self.low:.6g}, {self.high:.6g}]" if self.high > self.low else f"at {self.low:.6g}"
        range_name = "training range" if self.high > self.low else "only training value,"
        return (
            f"Extrapolating{rows}: {self.name} {self.value:.6g} is {self.side} the {range_name} {trained} "
            f"({self.distance})."
        )


@dataclass(frozen=True)
class Support:
    """What the train split covers of a request.  `unchecked` holds what cannot be judged, as sentences."""

    parameters: tuple[ParameterRange, ...]
    n_frames: int  # frames of the request, observed ones included
    trained_frames: int
    unchecked: tuple[str, ...] = ()
    unlike: str = ""  # a sentence, if the model does not see the observed frames as they are

    @property
    def is_inside(self) -> bool:
        """Whether everything that can be judged lies within the training data."""
        is_like = self.n_frames <= self.trained_frames and not self.unlike
        return is_like and all(parameter.side == "inside" for parameter in self.parameters)

    def __str__(self) -> str:
        return " ".join(self.sentences) or "Inside the training ranges."

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each extrapolation, then what could not be checked; empty for a plain request."""
        outside = [parameter for parameter in self.parameters if parameter.side != "inside"]
        forcing = [parameter for parameter in outside if parameter.name.startswith(FORCING)]
        told = [parameter.sentence for parameter in outside if parameter not in forcing]
        if len(forcing) == 1:
            told.append(forcing[0].sentence)
        elif forcing:
            told.append(_forcing_sentence(forcing))
        if self.n_frames > self.trained_frames:
            told.append(
                f"Extrapolating: {self.n_frames} frames in all, but the trajectories of the training data have "
                f"{self.trained_frames}."
            )
        return (*told, *filter(None, (self.unlike,)), *self.unchecked)


def judge(
    named: Mapping[str, Tensor],
    ranges: Ranges,
    n_frames: int,
    trained_frames: int,
    has_own_forcing: bool = False,
    declared: Sequence[Parameter] = (),
) -> Support:
    """The support of parameters {name: (B,)}; with a forcing field of the user's own, forcing_* do not count.

    ranges: of the train split.  declared: the parameters with their laws.
    """
    laws = {parameter.name: parameter for parameter in declared}
    families = _families({name: _joined(ends, laws.get(name)) for name, ends in ranges.items()})
    parameters = [
        _range_of(name, _unwound(values, laws.get(name)), families[_family(name)])
        for name, values in named.items()
        if not (has_own_forcing and name.startswith(FORCING))
    ]
    unchecked = ("Not checked: whether the given forcing field resembles the training data's.",)
    return Support(tuple(parameters), n_frames, trained_frames, unchecked if has_own_forcing else ())


def stronger(
    named: Mapping[str, Tensor], ranges: Ranges, known: tuple[ParameterRange, ...]
) -> tuple[ParameterRange, ...]:
    """The parameters {name: (B,)} at unit amplitude that are larger than in training, but for those known to be."""
    named = {parameter.name: named[parameter.name] for parameter in known if parameter.side == "inside"}
    found = (_range_of(f"{name} at unit amplitude", values, ranges[name]) for name, values in named.items())
    return tuple(parameter for parameter in found if parameter.side == "above")


def unlike(frames: Tensor, again: Tensor) -> str:
    """A sentence if frames (B,H,C,*grid) are not what the model sees, `again`; both with channels of rms 1 in training.

    So a channel that is zero for now, as the velocity of waves at rest, counts by its usual size.
    """
    n = frames[0].numel()
    size = frames.double().flatten(1).norm(dim=1).clamp(min=SMALL * n**0.5)
    errors = (again.double() - frames).flatten(1).norm(dim=1) / size  # (B,)
    bad = ~(errors <= UNLIKE)
    if not bool(bad.any()):
        return ""
    rows = f" of {int(bad.sum())} of {len(bad)} rows" if len(bad) > 1 else ""
    return (
        f"The model does not see the observed frames{rows} as they are: encoded and decoded again they are off by "
        f"{100 * float(errors.max()):.3g}%. They are unlike the training data, or the model is too coarse."
    )


def _range_of(name: str, values: Tensor, ends: tuple[float, float]) -> ParameterRange:
    low, high = ends
    found = [float(value) for value in values.reshape(-1).tolist()]
    outside = [value for value in found if not _is_inside(value, low, high)]
    if not outside:
        return ParameterRange(name, found[0], low, high, "inside", 0, len(found))
    worst = max(outside, key=lambda value: _excess(value, low, high))
    return ParameterRange(name, worst, low, high, "below" if worst < low else "above", len(outside), len(found))


def _joined(ends: tuple[float, float], law: Parameter | None) -> tuple[float, float]:
    """The range of the train split, widened to the ends of the declared law."""
    return ends if law is None else (min(ends[0], law.train[0]), max(ends[1], law.train[1]))


def _unwound(values: Tensor, law: Parameter | None) -> Tensor:
    """Values of a periodic parameter inside the period that begins where its law does."""
    if law is None or not law.period:
        return values
    return law.train[0] + (values - law.train[0]).remainder(law.period)


def _is_inside(value: float, low: float, high: float) -> bool:
    if low <= value <= high:
        return True
    return high > low and _excess(value, low, high) <= MARGIN


def _excess(value: float, low: float, high: float) -> float:
    """How far outside, on the scale in which the range is thought of: factor - 1, or share of the width."""
    if _is_log(low, high):
        return max(low / value, value / high) - 1 if value > 0 else math.inf
    return max(low - value, value - high) / (high - low or 1.0)


def _is_log(low: float, high: float) -> bool:
    return low > 0 and high >= LOG_RATIO * low


def _family(name: str) -> str:
    """`forcing_amplitude_3` -> `forcing_amplitude`; other names stand for themselves."""
    return re.sub(r"_\d+$", "", name) if name.startswith(FORCING) else name


def _families(ranges: Ranges) -> dict[str, tuple[float, float]]:
    joined: dict[str, tuple[float, float]] = {}
    for name, (low, high) in ranges.items():
        before = joined.get(_family(name), (low, high))
        joined[_family(name)] = (min(low, before[0]), max(high, before[1]))
    return joined


def _forcing_sentence(parameters: list[ParameterRange]) -> str:
    worst = max(parameters, key=lambda parameter: _excess(parameter.value, parameter.low, parameter.high))
    return (
        f"Extrapolating: {len(parameters)} numbers of the forcing are outside their training ranges, farthest "
        f"{worst.name} {worst.value:.6g} ({worst.distance} [{worst.low:.6g}, {worst.high:.6g}])."
    )
