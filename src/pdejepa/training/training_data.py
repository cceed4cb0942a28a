"""The data of a training: normalised fields, parameters, statistics, and a hash of it all; resident on the device, or
with the fields of train in host memory.

Letters: n trajectories, T frames, C channels, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.models.amplitude import Amplitude, at_unit_amplitude
from pdejepa.models.condition import Statistics, fit_statistics, parameter_ranges
from pdejepa.systems import System
from pdejepa.systems.problem import Problem
from pdejepa.training.on_host import Fields, OnHost


@dataclass
class TrainingData:
    """Fields (n,T,C,*grid) float32, normalised with the statistics of train, and xi (n,P) float64, per split.

    At unit amplitude both are those of the divided fields.
    """

    problem: Problem
    fields: dict[str, Fields]
    xi: dict[str, Tensor]
    statistics: Statistics
    hash: str
    system: System | None = None  # that made the trajectories, where it is known

    @property
    def n_frames(self) -> int:
        return self.fields["train"].shape[1]

    def n(self, split: str) -> int:
        return len(self.fields[split])

    def fed_from_host(self, device: torch.device) -> TrainingData:
        """The same for a training on `device`, with the fields of train left where they are, in host memory."""
        fields = {
            split: OnHost(values, device) if split == "train" else values.to(device)
            for split, values in self.fields.items()
            if isinstance(values, Tensor)
        }
        return replace(self, fields=fields, xi={split: rows.to(device) for split, rows in self.xi.items()})


def normalised(
    problem: Problem,
    fields: dict[str, Tensor],
    xi: dict[str, Tensor],
    digest: str,
    coordinate: Literal["linear", "log"] = "linear",
    amplitude: Amplitude = "as_is",
    system: System | None = None,
    known: Statistics | None = None,
) -> TrainingData:
    """Physical fields and parameters of several splits, normalised in place with the statistics of train.

    known: to normalise with these in place of them; ranges are those of train all the same
    """
    for split, values in fields.items():
        _check(values, split)
    ranges = parameter_ranges(problem, xi["train"])
    if amplitude == "unit":
        xi = _to_unit(problem, fields, xi)
    if known is None:
        statistics = fit_statistics(problem, fields["train"], xi["train"], coordinate)
    else:
        statistics = replace(known, ranges=parameter_ranges(problem, xi["train"]))
    if amplitude == "unit":
        statistics = replace(statistics, ranges=ranges, unit_ranges=statistics.ranges)
    mean, std = statistics.moments(problem.ndim, fields["train"].device)
    for values in fields.values():
        values.sub_(mean).div_(std)
    return TrainingData(problem, dict(fields), xi, statistics, digest, system)


def _to_unit(problem: Problem, fields: dict[str, Tensor], xi: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divide fields in place by their size; their new parameters."""
    found = {}
    for split, values in fields.items():
        size, found[split] = at_unit_amplitude(problem, values, xi[split])
        values.div_(size)
    return found


def _check(fields: Tensor, split: str) -> None:
    bad = torch.cat([~torch.isfinite(part).flatten(1).all(1) for part in fields.split(256)])
    if bool(bad.any()):
        rows = bad.nonzero().flatten()[:5].tolist()
        raise DataError(
            f"{int(bad.sum())} trajectories of {split} contain values that are not finite, e.g. {rows}. "
            "Check the data with: pdejepa audit DIR"
        )
