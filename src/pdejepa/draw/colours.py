"""Colour maps and scales: one scale per channel for a whole trajectory, readable by colour-blind people.

Fields that swing around zero get a diverging map, white at zero and symmetric; others get `cividis`.  The
diverging map runs from blue over white to orange-brown in steps of equal perceived lightness (CIELAB L*), so
equal differences look equal, and a grey print still shows the size of a value.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import Colormap, ListedColormap, Normalize

SIGNED_SHARE = 0.02  # how far below zero, relative to its largest value, a signed field must reach
CLIP_SHARE = 0.002  # share of values that may lie outside the scale: a few peaks must not bleach the rest
_BLUE, _ORANGE = 275.0, 50.0  # hues in degrees
_DARK, _WHITE = 28.0, 97.0  # lightness of the ends and of the middle
EXTEND = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}


@dataclass(frozen=True)
class Scale:
    """Colour map and limits of one channel."""

    low: float
    high: float
    is_signed: bool
    extend: str  # which ends of the colour bar are open: neither, min, max or both

    @property
    def norm(self) -> Normalize:
        return Normalize(self.low, self.high)

    @property
    def colours(self) -> Colormap:
        return diverging() if self.is_signed else sequential()


def scale_of(values: np.ndarray) -> Scale:
    """The scale of one channel over all frames; values that are not finite do not count."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if finite.size == 0:
        return Scale(0.0, 1.0, False, "neither")
    smallest, largest = float(finite.min()), float(finite.max())
    low, high = (float(q) for q in np.quantile(finite, (CLIP_SHARE / 2, 1 - CLIP_SHARE / 2)))
    is_signed = smallest < 0 < largest and min(-smallest, largest) > SIGNED_SHARE * max(-smallest, largest)
    if is_signed:
        high = max(abs(low), abs(high)) or max(-smallest, largest)
        low = -high
    if not high > low:
        low, high = smallest, largest
    if not high > low:  # a constant field
        low, high = low - 0.5, high + 0.5
    ends = (smallest < low - 0.01 * (high - low), largest > high + 0.01 * (high - low))
    return Scale(low, high, is_signed, EXTEND[ends])


def sequential() -> Colormap:
    """Matplotlib's `cividis` with a grey for missing values."""
    import matplotlib

    return matplotlib.colormaps["cividis"].with_extremes(bad="#c8c8c8")


@functools.cache
def diverging() -> Colormap:
    """Blue, white, orange-brown with lightness linear in the distance from the middle."""
    half = np.linspace(1.0, 0.0, 128)
    blue, orange = (_arm(half, hue) for hue in (_BLUE, _ORANGE))
    colours = ListedColormap(np.concatenate((blue, orange[::-1])), name="blue_orange")
    return colours.with_extremes(bad="#c8c8c8")


def _arm(distance: np.ndarray, hue: float) -> np.ndarray:
    """sRGB colours (n,3) from the end (distance 1) to white (0) along one hue."""
    lightness = _WHITE + (_DARK - _WHITE) * distance
    # as colourful as both hues allow at every lightness on an sRGB screen
    chroma = np.minimum.reduce((1.7 * (_WHITE - lightness), 34 + 0.9 * (lightness - _DARK), 46 + 0 * lightness))
    angle = np.deg2rad(hue)
    return lab_to_srgb(np.stack((lightness, chroma * np.cos(angle), chroma * np.sin(angle)), -1))


def lab_to_srgb(lab: np.ndarray) -> np.ndarray:
    """CIELAB (D65) to sRGB in [0,1], cut at the gamut."""
    fy = (lab[..., 0] + 16) / 116
    f = np.stack((fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200), -1)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * (0.95047, 1.0, 1.08883)
    matrix = np.array([[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]])
    linear = np.clip(xyz @ matrix.T, 0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
