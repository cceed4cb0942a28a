"""Bands around forecasts that hold: split conformal prediction on trajectories whose future is known.

    score_i(t, c)   the .9 quantile over points of |u_hat - u| / size_i(c),   size: rms of the forecast over all frames
    h(t, c)         the ceil((n + 1) level)-th smallest of n scores
    band            u_hat +- h(t, c) size(c)

In the share `level` of new cases from the law of the training data, nine tenths of the points of a frame lie in the
band, whatever the model does: the one assumption is that cases are exchangeable with those of the calibration.  Each of
those has an environment of its own.  Outside the training range, and beyond the trained length, nothing is promised.

Letters: L levels, n calibration cases, B rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pdejepa.core.config import load_config, to_dict
from pdejepa.core.errors import CheckpointError, ConfigError, DataError, ParameterError
from pdejepa.core.files import read_json, write_json
from pdejepa.systems.base import Generated

if TYPE_CHECKING:
    from pdejepa.forecast.forecaster import Forecaster
    from pdejepa.forecast.interface import Forecast

BANDS_NAME = "bands.json"
FORMAT = 1
LEVELS = (0.5, 0.8, 0.9, 0.95)
POINTS = 0.9  # share of the points of a frame that lie in the band
N_CASES = 360
FIRST_SEED = 1000  # of the calibration; seed 0 made the data
AT_ONCE = 24  # trajectories
MAX_NUMBERS = 100_000


@dataclass(frozen=True)
class Coverage:
    """How often the bands held on a split: shares per level, averaged over frames and channels; of n cases."""

    split: str
    n: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Bands:
    """Half widths (L,T,C) in units of the size of a forecast; those of the observed frames are zero."""

    levels: tuple[float, ...]
    widths: tuple[tuple[tuple[float, ...], ...], ...]
    n: int
    weights_sha256: str
    format_version: int = FORMAT
    coverage: tuple[Coverage, ...] = field(default=())

    def __post_init__(self) -> None:
        numbers = [len(frame) for level in self.widths for frame in level]
        is_even = len(self.widths) == len(self.levels) >= 1 and len(set(numbers)) == 1 < len(numbers)
        if not is_even or sum(numbers) > MAX_NUMBERS or len({len(level) for level in self.widths}) != 1:
            raise ConfigError("the half widths must be one row per level, frame and channel")
        if not all(0 < level < 1 for level in self.levels) or list(self.levels) != sorted(set(self.levels)):
            raise ConfigError(f"levels must ascend between 0 and 1; got {self.levels}")

    @property
    def n_frames(self) -> int:
        return len(self.widths[0])

    def half_width(self, forecast: Forecast, level: float) -> Tensor:
        """(B,T,C) in physical units; NaN for frames beyond the trained length."""
        if level not in self.levels:
            raise ParameterError(f"Bands were calibrated for {', '.join(map(str, self.levels))}; got level {level}.")
        known = torch.tensor(self.widths[self.levels.index(level)])  # (T,C)
        n_frames = forecast.fields.shape[1]
        widths = torch.full((n_frames, known.shape[1]), math.nan)
        widths[: len(known)] = known[:n_frames]
        return widths * size_of(forecast.fields)[:, None]


def size_of(fields: Tensor) -> Tensor:
    """Rms of every channel over all finite values of fields (B,T,C,*grid), (B,C)."""
    finite = fields.isfinite()
    squares = fields.nan_to_num(0.0, 0.0, 0.0).double().square()
    dims = (1, *range(3, fields.ndim))
    total = squares.where(finite, 0.0).sum(dims) / finite.sum(dims).clamp(min=1)
    return total.sqrt().float().clamp(min=1e-30)


def scores(forecast: Tensor, truth: Tensor) -> Tensor:
    """Of every row, frame and channel, (B,T,C); infinite where a forecast is not finite."""
    size = size_of(forecast)[:, None, :, None]  # (B,1,C,1)
    apart = ((forecast - truth).flatten(3).abs() / size).nan_to_num(math.inf, math.inf)
    rank = math.ceil(POINTS * apart.shape[-1])
    return apart.kthvalue(rank, dim=-1).values


def calibrate(
    model: Forecaster, n: int = N_CASES, checked: int = 0, report: Callable[[int], object] = lambda _: None
) -> Bands:
    """Bands from n cases of the law of `valid`; with `checked`, how they hold on so many of test and out of range."""
    ordered, widths = _calibration(model, n, report).sort(0).values, []  # (n,T,C)
    for level in LEVELS:
        rank = math.ceil((n + 1) * level)
        if rank > n:
            raise DataError(f"{n} cases are too few for bands of level {level}; give {math.ceil(level / (1 - level))}.")
        width = ordered[rank - 1]
        if not bool(width.isfinite().all()):
            raise DataError(f"More than one case in {1 / (1 - level):.0f} is unstable, so no band of {level} holds.")
        widths.append(width)
    bands = Bands(LEVELS, _plain(torch.stack(widths)), n, model.details.get("weights_sha256", ""))
    if not checked:
        return bands
    splits = [split.name for split in model.system.splits if split.name == "test" or split.is_ood]
    held = tuple(_coverage(model, bands, split, checked, report) for split in splits)
    return Bands(bands.levels, bands.widths, n, bands.weights_sha256, coverage=held)


def n_cases(model: Forecaster, n: int, checked: int) -> int:
    """How many forecasts `calibrate` makes."""
    splits = [split for split in model.system.splits if split.name == "test" or split.is_ood]
    return n + sum(min(checked, model.system.split(split.name).n) for split in splits) * bool(checked)


def write_bands(bands: Bands, folder: Path) -> None:
    write_json(folder / BANDS_NAME, to_dict(bands))


def read_bands(folder: Path, weights_sha256: str) -> Bands | None:
    """The bands of a model folder, or None if there are none; those of other weights are refused."""
    path = folder / BANDS_NAME
    if not path.exists():
        return None
    try:
        bands = load_config(Bands, defaults=read_json(path))
    except (ValueError, ConfigError) as error:
        told = str(error)[:200]
        raise CheckpointError(f"{path} cannot be read: {told}. Remove it, or run pdejepa calibrate.") from None
    if bands.weights_sha256 != weights_sha256:
        raise CheckpointError(f"{path} belongs to other weights. Run pdejepa calibrate again, or remove it.")
    return bands


def _scores_of(model: Forecaster, made: Generated, report: Callable[[int], object]) -> Tensor:
    """Scores (n,T,C) of the forecasts of some trajectories, from their first frames."""
    history, found = model.surrogate.history, []
    for fields, xi in zip(made.fields.split(AT_ONCE), made.xi.split(AT_ONCE), strict=True):
        result = model.forecast(fields[:, :history], xi, n_frames=fields.shape[1] - history)
        found.append(scores(result.fields, fields))
        report(len(fields))
    return torch.cat(found)


def _calibration(model: Forecaster, n: int, report: Callable[[int], object]) -> Tensor:
    """Scores of n cases of the law of `valid`, each in an environment of its own; a seed has as many as there are."""
    each, found = model.system.split("valid").n_environments, []
    for number, start in enumerate(range(0, n, each)):
        made = model.system.generate("valid", min(each, n - start), seed=FIRST_SEED + number)
        found.append(_scores_of(model, made, report))
    return torch.cat(found)


def _coverage(model: Forecaster, bands: Bands, split: str, n: int, report: Callable[[int], object]) -> Coverage:
    """How often the bands held, on the first trajectories of a split of the benchmark."""
    made, history = model.system.generate(split, min(n, model.system.split(split).n)), model.surrogate.history
    every = _scores_of(model, made, report)[:, history:]  # (n,T',C)
    widths = torch.tensor(bands.widths)[:, history:]  # (L,T',C)
    shares = tuple(round(float((every <= width).float().mean()), 4) for width in widths)
    return Coverage(split, len(made.xi), shares)


def _plain(widths: Tensor) -> tuple[tuple[tuple[float, ...], ...], ...]:
    return tuple(tuple(tuple(float(f"{x:.5g}") for x in frame) for frame in level) for level in widths.tolist())


def coverage_rows(bands: Bands) -> list[list[str]]:
    """One row per split: its name, cases, and the share at every level with its 95 % sampling error if it holds."""
    rows = []
    for part in bands.coverage:
        spread = [1.96 * math.sqrt(level * (1 - level) / part.n) for level in bands.levels]
        told = [f"{share:.1%} (± {half:.1%})" for share, half in zip(part.shares, spread, strict=True)]
        rows.append([part.split, str(part.n), *told])
    return rows
