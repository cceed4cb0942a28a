"""What is drawn: a trajectory as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Trajectory:
    """One trajectory with everything needed to draw or use it."""

    fields: np.ndarray  # (T,C,*grid) float32
    xi: dict[str, float]
    times: np.ndarray  # (T,) float64
    axes: dict[str, np.ndarray]  # {"x": (N,), ...} float64
    field_names: tuple[str, ...]  # (C,)
    split: str
    index: int
    constant_fields: dict[str, np.ndarray] = field(default_factory=dict)  # {"forcing": (*grid)}
    system_name: str = ""
    n_observed: int = 0  # of a forecast: how many frames at the start were given to the model
    band: np.ndarray | None = None  # (T,C) half widths of a calibrated forecast
    is_promised: bool = True  # False: outside the training range, where the band promises nothing
