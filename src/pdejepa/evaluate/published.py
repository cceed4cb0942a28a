"""Published relative L2 errors that our own stand beside.

The source is the PDE-JEPA paper, its tables of relative L2 errors in distribution and out of it; digits are those that
are printed.  `metric` names the error of ours that is made in the same way (see `metrics`): for one channel both are
equal, for Gray-Scott it is the one norm over both channels.  For Wave-2D the paper does not say; we take the mean over
channels, since one norm over both would be that of u_t alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Metric = Literal["rel_l2", "rel_l2_joint"]


@dataclass(frozen=True)
class Published:
    """What the paper prints for one system.

    id: PDE-JEPA in distribution     ood: out of it, by split, or by pool of splits (`POOLS`); empty where there is none
    other, other_name: the best of the other solvers in distribution
    """

    system: str
    id: float
    ood: Mapping[str, float]
    other: float
    other_name: str
    metric: Metric = "rel_l2"


ROWS = (
    Published("advection", 0.0074, {}, 0.0068, "CoDA"),
    Published("burgers", 0.0428, {}, 0.0869, "LE-PDE"),
    Published("heat", 0.0274, {}, 0.0933, "Poseidon-T"),
    Published("wave_b", 0.0350, {}, 0.1093, "Poseidon-T"),
    Published("combined", 0.0074, {"ood": 0.008}, 0.0085, "CAPE"),
    Published("vorticity", 0.0348, {"ood": 0.288}, 0.0592, "LNS"),
    Published("heterns", 0.0089, {"ood_viscosity": 0.011, "ood_forcing": 0.103}, 0.0098, "UniSolver"),
    Published("wave_2d", 0.1140, {"ood": 0.157}, 0.2070, "Zebra"),
    Published("gray_scott", 0.0284, {"ood": 0.033}, 0.0323, "UniSolver", "rel_l2_joint"),
)
PUBLISHED = MappingProxyType({row.system: row for row in ROWS})
# Splits of ours that a published number takes together, each weighted by its trajectories.
POOLS: Mapping[str, tuple[str, ...]] = {"ood_viscosity": ("ood_viscosity_interp", "ood_viscosity_extrap")}


def metric_of(system: str) -> Metric:
    """The error by which a system is compared; rel_l2 where nothing is published."""
    return PUBLISHED[system].metric if system in PUBLISHED else "rel_l2"
