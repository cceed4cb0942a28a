"""What every trained solver, ours or published, says about itself and can be asked.

Letters: B rows, T frames, H observed frames, K support trajectories, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.forecast.support import Support
from pdejepa.systems.problem import Problem

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from pdejepa.forecast.bands import Bands

State = dict[str, Tensor]  # per row: (B, ...)
Need = Literal["xi", "support", "environment"]
WORDS = {"xi": "the parameters of the equation", "support": "another trajectory of the same environment"}


@dataclass(frozen=True)
class Card:
    """needs: what of a data set the solver cannot do without

      xi       the parameters of the equation              environment  which trajectories share parameters
      support  another trajectory of the same environment

    history: true frames that a forecast begins with
    looks_at: true frames that its history has room for; 0: no more than `history`
    adapts: how it learns about a new environment before it forecasts
    """

    name: str
    title: str
    paper: str
    needs: frozenset[Need] = frozenset()
    history: int = 1
    looks_at: int = 0
    adapts: Literal["none", "encode", "gradient"] = "none"
    stages: tuple[str, ...] = ("fit",)
    is_stochastic: bool = False
    is_forecaster: bool = True  # False: representations only
    has_encoder: bool = False
    package: str = ""  # one that only this solver needs, in an extra of its name
    unrecorded: tuple[str, ...] = ()  # stages whose steps cannot be recorded and replayed on a GPU
    is_closed_form: bool = False  # fitted at once: no steps, no budget, no learning rate

    @property
    def reads(self) -> frozenset[str]:
        """What a forecast looks at beside the frames: xi, support, both or nothing."""
        return self.needs & {"xi", "support"} | ({"support"} if self.adapts == "gradient" else set())

    def given(self, what: Literal["xi", "support"], value: Tensor | None) -> Tensor:
        """The value, which a forecast cannot do without, or a refusal."""
        if value is None:
            raise DataError(f"{self.title} needs {WORDS[what]} for a forecast; none was given.")
        return value


@dataclass(frozen=True)
class Outcome:
    """How the forecast of one row ended; `first_bad` counts frames as `Forecast.fields` does."""

    label: Literal["ok", "unstable"]
    first_bad: int | None = None

    @classmethod
    def of(cls, n_good: int, n_frames: int) -> Outcome:
        """That of a row whose first `n_good` of `n_frames` frames are plausible."""
        return cls("ok") if n_good >= n_frames else cls("unstable", n_good)

    @property
    def sentence(self) -> str:
        if self.first_bad is None:
            return "stable"
        return f"unstable: frame {self.first_bad} left every plausible bound; it and all later frames are NaN"


@dataclass(frozen=True, repr=False)
class Forecast:
    """Forecast fields in physical units.  `fields` begins with the observed frames as they were given.

    reconstruction: the observed frames encoded and decoded again, which shows what the latents hold of them; None of
    solvers without such a thing.  adapt_seconds: the part of `seconds` that went into learning about the environments.
    """

    problem: Problem
    fields: Tensor  # (B,H+n,C,*grid) float32
    times: Tensor  # (H+n,) float64
    xi: Tensor | None  # (B,P) float64
    n_observed: int
    support: Support
    outcome: tuple[Outcome, ...]
    seconds: float
    adapt_seconds: float = 0.0
    reconstruction: Tensor | None = None  # (B,H,C,*grid) float32
    bands: Bands | None = None

    def __repr__(self) -> str:
        """What it is, in a few words; the numbers are in its fields."""
        n_rows, n_frames, *shape = self.fields.shape
        unstable = sum(outcome.label != "ok" for outcome in self.outcome)
        return (
            f"<Forecast: {n_rows} row{'s' * (n_rows != 1)}, {n_frames - self.n_observed} new frames of "
            f"{' x '.join(map(str, shape))} to t = {float(self.times[-1]):g}"
            f"{f', {unstable} unstable' if unstable else ''}. {self.support}>"
        )

    @property
    def new(self) -> Tensor:
        """The forecast frames only, (B,n,C,*grid)."""
        return self.fields[:, self.n_observed :]

    @property
    def decoded(self) -> Tensor:
        """All frames as the model sees them: the observed ones are its reconstruction, (B,H+n,C,*grid)."""
        return self.fields if self.reconstruction is None else torch.cat((self.reconstruction, self.new), 1)

    @property
    def rollout_seconds(self) -> float:
        return self.seconds - self.adapt_seconds

    def half_width(self, level: float | None = None) -> Tensor | None:
        """Half of the width of the band (B,H+n,C) that holds nine tenths of the points in `level` of the cases.

        level: .9 if not given, or the next lower one that the model was calibrated for.
        None if the model was not calibrated; see `pdejepa calibrate`.  Only where `support.is_inside` is it a promise.
        """
        return None if self.bands is None else self.bands.half_width(self, level)

    @property
    def is_stable(self) -> bool:
        return all(outcome.label == "ok" for outcome in self.outcome)

    # ---- files and pictures; see `pdejepa.forecast.output` --------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write FILE.npz: fields, times, coordinates and parameters, for `numpy.load`."""
        from pdejepa.forecast import output

        output.save(self, path)

    def to_xarray(self) -> xarray.Dataset:
        """One variable per field with axes (row, time, *space) and their coordinates."""
        from pdejepa.forecast import output

        return output.to_xarray(self)

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, row: int = 0, truth: Any = None, title: str | None = None
    ) -> Figure:
        """A picture of one row, beside `truth` (B,T,C,*grid) if it is given; written to `path` (png, pdf, svg...)."""
        from pdejepa.forecast import output

        return output.plot(self, path, row, truth, title)

    def animate(
        self, path: str | os.PathLike[str], *, row: int = 0, truth: Any = None, title: str | None = None
    ) -> None:
        """The same as a film, gif or webp."""
        from pdejepa.forecast import output

        output.animate(self, path, row, truth, title)


@runtime_checkable
class Solver(Protocol):
    """A trained solver, published or ours, as `pdejepa.load` returns it; physical units in and out.

    forecast    new frames from observed ones, with an outcome per row
    encode      representations of trajectories, for solvers that have any
    save        the folder from which `pdejepa.load` reads it
    """

    @property
    def card(self) -> Card: ...

    @property
    def problem(self) -> Problem: ...

    def forecast(self, u0: Any, xi: Any = None, *, n_frames: int | None = None, **named: Any) -> Forecast: ...

    def encode(self, u: Any) -> Tensor: ...

    def save(self, folder: str | os.PathLike[str]) -> None: ...
