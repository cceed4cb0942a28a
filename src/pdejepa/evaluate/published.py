"""Published relative L2 errors that our own stand beside.

The source is the PDE-JEPA paper, its tables of relative L2 errors in distribution and out of it; digits are those that
are printed.  `metric` names the error of ours that is made in the same way (see `metrics`): for one channel both are
equal, for Gray-Scott it is the one norm over both channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Metric = Literal["rel_l2", "rel_l2_joint"]


@dataclass(frozen=True)
class Published:
    """What the paper prints for one system.

    id, ood: PDE-JEPA in and out of distribution, ood None where the paper has none
    other, other_name: the best of the other solvers in distribution
    """

    system: str
    id: float
    ood: float | None
    other: float
    other_name: str
    metric: Metric = "rel_l2"


ROWS = (
    Published("advection", 0.0074, None, 0.0068, "CoDA"),
    Published("burgers", 0.0428, None, 0.0869, "LE-PDE"),
    Published("heat", 0.0274, None, 0.0933, "Poseidon-T"),
    Published("wave_b", 0.0350, None, 0.1093, "Poseidon-T"),
    Published("combined", 0.0074, 0.008, 0.0085, "CAPE"),
    Published("gray_scott", 0.0284, 0.033, 0.0323, "UniSolver", "rel_l2_joint"),
)
PUBLISHED = MappingProxyType({row.system: row for row in ROWS})


def metric_of(system: str) -> Metric:
    """The error by which a system is compared; rel_l2 where nothing is published."""
    return PUBLISHED[system].metric if system in PUBLISHED else "rel_l2"
