"""What the latent ODE is told besides its state: normalised coefficients r(xi) and the forcing field.

    r_j = sign_j (c_j(xi) - centre_j) / scale_j          linear coordinate, the default
    r_j = sign_j (ln c_j(xi) - centre_j) / scale_j       logarithmic, as a switch, for positive coefficients

Centres and scales come from the train split.  A known forcing f(t,x) is handed over as patches of
f (frame gap) / std(u): the change per frame it would cause alone, in normalised units.
Letters: B rows, P parameters, M terms, N tokens, C channels, p patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.systems.problem import Problem
from pdejepa.systems.structure import fit_coefficients

Coordinate = Literal["linear", "log"]
N_MODES = 3  # Fourier modes of a forcing that free networks are told
ForcingField = Callable[[Tensor], Tensor]  # physical time (B,) -> f (B,C,*grid), physical units


@dataclass(frozen=True)
class Statistics:
    """Everything fitted on the train split that a forecast needs; stored with the model.

    coefficients: term -> (centre, scale)     ranges: parameter -> (lowest, highest) value of the train split
    latent_mean, latent_std: per latent channel, used by the variant `vanilla` only (empty otherwise)
    velocity_scale: rms one-frame change of q in the train split, for second-order systems (1 otherwise)
    unit_ranges: as ranges, of the train split at unit amplitude; empty if the model takes fields as they are
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    ranges: dict[str, tuple[float, float]]
    coefficients: dict[str, tuple[float, float]]
    latent_mean: tuple[float, ...] = ()
    latent_std: tuple[float, ...] = ()
    velocity_scale: float = 1.0
    unit_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def channel_rms(self, ndim: int, device: torch.device) -> Tensor:
        """The rms of each channel of the train split, (C,1..); 1 for a channel that is zero."""
        mean, std = self.moments(ndim, device)
        rms = torch.hypot(mean, std)
        return torch.where(rms > 0, rms, 1.0)

    def moments(self, ndim: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the channels as tensors (C,1..) that broadcast over *grid."""
        both = torch.tensor((self.mean, self.std), dtype=torch.float32, device=device)  # (2,C)
        mean, std = both.reshape(2, -1, *[1] * ndim)
        return mean, std

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Statistics:
        """Strict reading of what `to_dict` wrote; CheckpointError for anything else."""
        try:
            return cls(
                mean=_numbers(data["mean"]),
                std=_numbers(data["std"]),
                ranges=_pairs(data["ranges"]),
                coefficients=_pairs(data["coefficients"]),
                latent_mean=_numbers(data["latent_mean"]),
                latent_std=_numbers(data["latent_std"]),
                velocity_scale=float(data["velocity_scale"]),
                unit_ranges=_pairs(data.get("unit_ranges", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"The statistics stored with the model cannot be read ({error!r}).") from None


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _pairs(table: Any) -> dict[str, tuple[float, float]]:
    return {str(name): (float(low), float(high)) for name, (low, high) in table.items()}


def fit_statistics(problem: Problem, fields: Tensor, xi: Tensor, coordinate: Coordinate = "linear") -> Statistics:
    """Statistics of the train split: fields (n,T,C,*grid) and xi (n,P)."""
    mean, std = channel_moments(fields)
    return Statistics(
        mean=mean,
        std=std,
        ranges=parameter_ranges(problem, xi),
        coefficients=_fit_coefficients(problem, xi.double().cpu(), coordinate),
    )


def parameter_ranges(problem: Problem, xi: Tensor) -> dict[str, tuple[float, float]]:
    named = problem.named(xi.double().cpu())
    return {name: (float(values.min()), float(values.max())) for name, values in named.items()}


def channel_moments(fields: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel over rows, frames and space, in float64, in bounded memory."""
    n, total, squares = 0, 0.0, 0.0
    for part in fields.split(256):
        values = part.double().transpose(1, 2).flatten(2)  # (rows,C,T*points)
        n += values.shape[0] * values.shape[2]
        total, squares = total + values.sum((0, 2)), squares + values.square().sum((0, 2))
    mean = torch.as_tensor(total) / n
    std = (torch.as_tensor(squares) / n - mean**2).clamp(min=0.0).sqrt()
    return tuple(mean.tolist()), tuple(value if value > 0 else 1.0 for value in std.tolist())


def _fit_coefficients(problem: Problem, xi: Tensor, coordinate: Coordinate) -> dict[str, tuple[float, float]]:
    fitted = fit_coefficients(problem.structure.terms, problem.named(xi))
    pairs = {name: (float(fitted.centre[j]), float(fitted.scale[j])) for j, name in enumerate(fitted.names)}
    for term in problem.structure.terms:
        values = term.coefficient(problem.named(xi)).double()
        if _is_log(coordinate, term.rule):
            if float(values.min()) <= 0:
                lowest = float(values.min())
                raise ConfigError(f"field.coordinate=log needs positive coefficients; {term.name} reaches {lowest:g}.")
            logs = values.log()
            pairs[term.name] = (float(logs.mean()), float(logs.std(unbiased=False)) or 1.0)
    return pairs


def _is_log(coordinate: Coordinate, rule: str) -> bool:
    return coordinate == "log" and rule != "unit"


@dataclass(frozen=True)
class Drive:
    """What drives the latent ODE of some rows."""

    r: Tensor  # (B,M) float32
    forcing: Callable[[Tensor], Tensor] | None = None  # frame time s (B,) -> tokens (B,N,C*p^k)


def forcing_parameters(problem: Problem) -> list[str]:
    """Parameters that describe a forcing: those that no term uses."""
    terms = {term.name for term in problem.structure.terms}
    return [name for name in problem.parameter_names if name not in terms]


def scalar_forcing(problem: Problem, config: FieldConfig) -> list[str]:
    """The parameters that stand for the forcing field, if the configuration wants numbers in its place."""
    if config.forcing == "field" or problem.structure.forcing == "none":
        return []
    if problem.structure.forcing != "constant":
        raise ConfigError(f"field.forcing=scalar is for constant forcings; that of {problem.name} changes in time.")
    return forcing_parameters(problem)


class Conditioner:
    """Makes a `Drive` from physical parameters, with the statistics of the train split."""

    def __init__(self, problem: Problem, statistics: Statistics, patches: PatchGrid, config: FieldConfig) -> None:
        self.problem, self.statistics, self.patches, self.coordinate = problem, statistics, patches, config.coordinate
        self.scalars = scalar_forcing(problem, config)
        self.first_time, self.frame_gap = problem.times[0], problem.frame_gap
        std = torch.tensor(statistics.std).reshape(1, -1, *[1] * problem.ndim)
        self.forcing_factor = self.frame_gap / std  # (1,C,1..)
        self._factors: dict[torch.device, Tensor] = {}  # the same on every device that asked

    @property
    def n_coefficients(self) -> int:
        """M, columns of `r`."""
        return len(self.problem.structure.terms) + len(self.scalars)

    @property
    def has_forcing_field(self) -> bool:
        """Whether the latent ODE is handed a forcing field."""
        return self.problem.structure.forcing != "none" and not self.scalars

    def recipe_of_r(self) -> list[dict[str, Any]]:
        """How `r` makes its columns, as plain data: powers or one-hot, sign, logarithm, centre and scale of each."""
        made = []
        for term in self.problem.structure.terms:
            centre, scale = self.statistics.coefficients[term.name]
            how = {"powers": dict(term.coefficient.powers)} if term.coefficient.powers else {}
            how = how or {"equals": dict(term.coefficient.equals)}
            is_log = _is_log(self.coordinate, term.rule)
            made.append({"name": term.name, **how, "sign": term.sign, "log": is_log, "centre": centre, "scale": scale})
        plain = {"sign": 1, "log": False, "centre": 0.0, "scale": 1.0}
        return made + [{"name": name, "powers": {name: 1.0}, **plain} for name in self.scalars]

    def r(self, xi: Tensor) -> Tensor:
        """Normalised, signed coefficients (B,M) float32 of parameters (B,P)."""
        named = self.problem.named(xi.double())
        columns = []
        for term in self.problem.structure.terms:
            value = term.coefficient(named).double()
            if _is_log(self.coordinate, term.rule):
                value = value.clamp(min=1e-300).log()
            centre, scale = self.statistics.coefficients[term.name]
            columns.append(term.sign * (value - centre) / scale)
        columns += [named[name] for name in self.scalars]
        if not columns:  # no parameters: C alone
            return xi.new_zeros((len(xi), 0), dtype=torch.float32)
        return torch.stack(columns, 1).float()  # (B,M)

    def strength(self, xi: Tensor) -> Tensor:
        """How much stronger the terms are than at the nearest parameters of the train split, the most, (B,) >= 1.

        For unit-amplitude models, xi is given after rescaling.
        """
        table = self.statistics.unit_ranges or self.statistics.ranges
        ranges = [table[parameter.name] for parameter in self.problem.parameters]
        if not ranges:
            return xi.new_ones(len(xi), dtype=torch.float64)
        low, high = (torch.tensor(ends, dtype=torch.float64, device=xi.device) for ends in zip(*ranges, strict=True))
        largest = xi.new_ones(len(xi), dtype=torch.float64)
        here, nearest = (self.problem.named(rows) for rows in (xi.double(), xi.double().clamp(low, high)))
        for term in self.problem.structure.terms:
            now, then = (term.coefficient(named).double().abs() for named in (here, nearest))
            largest = torch.maximum(largest, torch.where(then > 0, now / then, 1.0))
        return largest

    def drive(self, xi: Tensor, t0: float | None = None, forcing: ForcingField | None = None) -> Drive:
        """The drive of rows xi (B,P) whose frame 0 is at time t0 (default: the data's first frame).

        `forcing` replaces the forcing field that the parameters describe.
        """
        if not self.has_forcing_field:
            return Drive(self.r(xi))
        start = self.first_time if t0 is None else t0
        factor = self._factor(xi.device)
        like = torch.empty((len(xi), len(self.problem.fields), *self.problem.grid), device=xi.device)
        known: dict[str, Tensor] = {}

        def tokens(s: Tensor) -> Tensor:
            if "constant" in known:
                return known["constant"]
            times = start + s.double() * self.frame_gap  # (B,)
            field = self.problem.forcing(times, xi, like) if forcing is None else forcing(times)
            result = self.patches.split((field * factor).float())  # (B,N,C*p^k)
            if self.problem.structure.forcing == "constant" and forcing is None:
                known["constant"] = result
            return result

        return Drive(self.r(xi), tokens)

    def _factor(self, device: torch.device) -> Tensor:
        """Copied once: a step that a GPU records and replays may not copy."""
        if device not in self._factors:
            self._factors[device] = self.forcing_factor.to(device)
        return self._factors[device]

    @property
    def n_conditions(self) -> int:
        """Length of `vector`; without parameters it is one constant."""
        n_terms, n_others = len(self.problem.structure.terms), len(forcing_parameters(self.problem))
        return max(1, n_terms + {"none": 0, "constant": n_others, "time": 2 * N_MODES}[self.problem.structure.forcing])

    def vector(self, xi: Tensor, s: Tensor) -> Tensor:
        """All that is known of the physics around the frame times s (B,) as numbers (B,n_conditions).

        r; then for a forcing in time its first Fourier coefficients in space half a frame later, for a constant one
        its parameters, scaled to [-1, 1] on the train split.
        """
        r = self.r(xi)[:, : len(self.problem.structure.terms)]
        if self.problem.structure.forcing == "time":
            tokens = self.drive(xi).forcing
            assert tokens is not None
            field = self.patches.join(tokens(s + 0.5))[:, 0]  # (B,N)
            modes = torch.fft.rfft(field, norm="forward")[:, 1 : N_MODES + 1]  # (B,N_MODES)
            return torch.cat((r, torch.view_as_real(modes).flatten(1)), 1)
        columns = [r]
        named = self.problem.named(xi)
        for name in forcing_parameters(self.problem) if self.problem.structure.forcing == "constant" else ():
            low, high = self.statistics.ranges[name]
            columns.append(((2 * named[name] - low - high) / ((high - low) or 1.0))[:, None].float())
        vector = torch.cat(columns, 1)
        return vector if vector.shape[1] else vector.new_zeros(len(vector), 1)
