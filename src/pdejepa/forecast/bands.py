"""Bands around forecasts that hold: split conformal prediction on trajectories whose future is known.

    score_i(t, c)   the .9 quantile over points of |u_hat - u| / size_i(c),   size: rms of the forecast over all frames
    h(t, c)         the ceil((n + 1) level)-th smallest of n scores
    band            u_hat +- h(t, c) size(c)

In the share `level` of new cases from the law of the training data, nine tenths of the points of a frame lie in the
band, whatever the model does: the one assumption is that cases are exchangeable with those of the calibration.  Each of
those has an environment of its own.  Outside the training range, and beyond the trained length, nothing is promised.

Cases come from the system of a model, or where there is none from the split `valid` of its data; the levels are then
those that its number allows.

Letters: L levels, n calibration cases, B rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pdejepa.core.config import load_config, to_dict
from pdejepa.core.errors import CheckpointError, ConfigError, DataError, ParameterError
from pdejepa.core.files import read_json, write_json

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories
    from pdejepa.forecast.forecaster import Forecaster
    from pdejepa.forecast.interface import Forecast

BANDS_NAME = "bands.json"
FORMAT = 1
LEVELS = (0.5, 0.8, 0.9, 0.95)
USUAL = 0.9  # level of what is drawn and said
POINTS = 0.9  # share of the points of a frame that lie in the band
N_CASES = 360
FIRST_SEED = 1000  # of the calibration; seed 0 made the data
AT_ONCE = 24  # trajectories
MAX_NUMBERS = 100_000


@dataclass(frozen=True)
class Coverage:
    """How often the bands held on a split: shares per level, averaged over frames and channels; of n cases.

    errors: standard errors of the shares over the environments of the split, whose cases are alike.
    """

    split: str
    n: int
    shares: tuple[float, ...]
    errors: tuple[float, ...] = ()
    n_environments: int = 0

    def half(self, level: float, number: int) -> float:
        """Half of the 95 % sampling interval of the share of level number `number`, if the level holds.

        That of n independent cases, or that of the environments, few as they are (Student's t), if it is wider.
        """
        from scipy.special import stdtrit

        alone = 1.96 * math.sqrt(level * (1 - level) / self.n)
        if self.n_environments < 2:
            return alone
        return max(alone, float(stdtrit(self.n_environments - 1, 0.975)) * self.errors[number])


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

    @property
    def usual_level(self) -> float:
        """.9, or the next lower level if the calibration was too small for that."""
        return max((level for level in self.levels if level <= USUAL), default=self.levels[0])

    def half_width(self, forecast: Forecast, level: float | None = None) -> Tensor:
        """(B,T,C) in physical units; NaN for frames beyond the trained length."""
        level = self.usual_level if level is None else level
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
    model: Forecaster,
    n: int = N_CASES,
    checked: int = 0,
    report: Callable[[int], object] = lambda _: None,
    data: Trajectories | None = None,
) -> Bands:
    """Bands from n cases of the law of `valid`; with `checked`, how they hold on so many of test and out of range.

    data: where cases come from if not from the model's system; then n is at most what `valid` has.
    """
    cases = _cases(model, n) if data is None else _stored(data, "valid", n)
    found = [_scores_of(model, *case, report) for case in cases]
    ordered, widths = torch.cat(found).sort(0).values, []  # (n,T,C)
    n = len(ordered)
    levels = tuple(level for level in LEVELS if data is None or _rank(n, level) <= n)
    for level in levels:
        rank = _rank(n, level)
        if rank > n:
            raise DataError(f"{n} cases are too few for bands of level {level}; give {math.ceil(level / (1 - level))}.")
        width = ordered[rank - 1]
        if not bool(width.isfinite().all()):
            raise DataError(f"More than one case in {1 / (1 - level):.0f} is unstable, so no band of {level} holds.")
        widths.append(width)
    bands = Bands(levels, _plain(torch.stack(widths)), n, model.details.get("weights_sha256", ""))
    if not checked:
        return bands
    held = tuple(_coverage(model, bands, split, checked, report, data) for split in _judged(model, data))
    return replace(bands, coverage=held)


def n_cases(model: Forecaster, n: int, checked: int, data: Trajectories | None = None) -> int:
    """How many forecasts `calibrate` makes."""
    most = [_size(model, split, data) for split in _judged(model, data)]
    own = n if data is None else min(n, data.n("valid"))
    return own + sum(min(checked, size) for size in most) * bool(checked)


def write_bands(bands: Bands, folder: Path) -> None:
    write_json(folder / BANDS_NAME, to_dict(bands))


def remove_others(folder: Path, weights_sha256: str) -> None:
    """Remove the bands of weights that are no longer in a model folder."""
    path = folder / BANDS_NAME
    try:
        is_own = dict(read_json(path)).get("weights_sha256") == weights_sha256
    except (ValueError, TypeError):
        is_own = False
    if not is_own:
        path.unlink(missing_ok=True)


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


Case = tuple[Tensor, Tensor]  # fields (n,T,C,*grid) and parameters (n,P)


def _rank(n: int, level: float) -> int:
    """Which of n scores in ascending order is the half width, from 1."""
    return math.ceil((n + 1) * level)


def _judged(model: Forecaster, data: Trajectories | None) -> list[str]:
    """The splits that coverage is told of."""
    if data is not None:
        return [split for split in data.splits if split not in ("train", "valid")]
    return [split.name for split in model.system.splits if split.name == "test" or split.is_ood]


def _size(model: Forecaster, split: str, data: Trajectories | None) -> int:
    return model.system.split(split).n if data is None else data.n(split)


def _scores_of(model: Forecaster, fields: Tensor, xi: Tensor, report: Callable[[int], object]) -> Tensor:
    """Scores (n,T,C) of the forecasts of some trajectories, from their first frames."""
    history, found = model.surrogate.history, []
    for part, own in zip(fields.split(AT_ONCE), xi.split(AT_ONCE), strict=True):
        result = model.forecast(part[:, :history], own, n_frames=part.shape[1] - history)
        found.append(scores(result.fields, part))
        report(len(part))
    return torch.cat(found)


def _cases(model: Forecaster, n: int) -> Iterator[Case]:
    """n cases of the law of `valid`, each in an environment of its own; a seed has as many as there are."""
    each = model.system.split("valid").n_environments
    for number, start in enumerate(range(0, n, each)):
        made = model.system.generate("valid", min(each, n - start), seed=FIRST_SEED + number)
        yield made.fields, made.xi


def _stored(data: Trajectories, split: str, n: int) -> Iterator[Case]:
    """The first trajectories of a split of a data set, at most n."""
    for block in data.blocks(split, min(n, data.n(split)), AT_ONCE):
        yield block.fields, block.xi


def _coverage(
    model: Forecaster,
    bands: Bands,
    split: str,
    n: int,
    report: Callable[[int], object],
    data: Trajectories | None,
) -> Coverage:
    """How often the bands held, on the first trajectories of a split."""
    n, history = min(n, _size(model, split, data)), model.surrogate.history
    if data is None:
        made = model.system.generate(split, n)
        fields, xi, environment = made.fields, made.xi, made.environment
    else:
        fields, xi, environment = data.block(split, 0, n)
    every = _scores_of(model, fields, xi, report)[:, history:]  # (n,T',C)
    widths = torch.tensor(bands.widths)[:, None, history:]  # (L,1,T',C)
    held = (every <= widths).double().mean((2, 3))  # (L,n)
    groups = [held[:, environment == number].mean(1) for number in environment.unique()]
    apart = torch.stack(groups).std(0) / math.sqrt(len(groups)) if len(groups) > 1 else torch.zeros(len(held))
    return Coverage(split, n, _rounded(held.mean(1)), _rounded(apart), len(groups))


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)


def _plain(widths: Tensor) -> tuple[tuple[tuple[float, ...], ...], ...]:
    return tuple(tuple(tuple(float(f"{x:.5g}") for x in frame) for frame in level) for level in widths.tolist())


def coverage_rows(bands: Bands) -> list[list[str]]:
    """One row per split: its name, cases, and the share at every level with half of its 95 % sampling interval."""
    rows = []
    for part in bands.coverage:
        halves = [part.half(level, number) for number, level in enumerate(bands.levels)]
        told = [f"{share:.1%} (± {half:.1%})" for share, half in zip(part.shares, halves, strict=True)]
        rows.append([part.split, str(part.n), *told])
    return rows
