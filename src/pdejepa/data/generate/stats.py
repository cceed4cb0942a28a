"""Statistics of the train split: `stats.yaml`, as The Well's normalisers expect it.

    mean: {u: 0.0012}    std: ...    rms: ...    mean_delta: ...    std_delta: ...    rms_delta: ...

All numbers pool trajectories, frames and grid points, in float64; `std` is that of the population; `*_delta` are
those of the differences between consecutive stored frames.  A constant field has no delta.

Moments are formed per trajectory and merged in trajectory order, then shard order.  The order is fixed by the
plan, so the result has the same bits however often the work was interrupted or shared out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pdejepa.core import yaml_subset
from pdejepa.data.well.shard import ShardFile

BLOCK_BYTES = 32_000_000  # read at a time
CLIP = 1e-4  # the official normalisers never divide by less


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of some numbers; merging two loses no accuracy."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        mean = float(values.mean())
        return cls(values.size, mean, float(np.square(values - mean).sum()))

    def merge(self, other: Moments) -> Moments:
        """Chan, Golub and LeVeque's update."""
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n, shift = self.n + other.n, other.mean - self.mean
        mean = self.mean + shift * other.n / n
        return Moments(n, mean, self.m2 + other.m2 + shift * shift * self.n * other.n / n)

    @property
    def std(self) -> float:
        return math.sqrt(self.m2 / self.n)

    @property
    def rms(self) -> float:
        return math.sqrt(self.m2 / self.n + self.mean**2)


FieldMoments = dict[str, Moments]  # field name -> moments


def shard_moments(shard: ShardFile) -> dict[str, FieldMoments]:
    """{"value": {field: moments}, "delta": ...} of one shard; a few trajectories are in memory at a time."""
    total: dict[str, FieldMoments] = {"value": {}, "delta": {}}
    row_bytes = 4 * shard.n_frames * len(shard.field_names) * math.prod(shard.grid)
    step = max(1, BLOCK_BYTES // row_bytes)
    for begin in range(0, shard.n, step):
        block = shard.fields(begin, min(begin + step, shard.n))  # (n,T,C,*grid)
        for row, fields in enumerate(block, start=begin):
            series = {name: fields[:, c].astype(np.float64) for c, name in enumerate(shard.field_names)}
            constant = {name: field.astype(np.float64) for name, field in shard.constant_fields(row).items()}
            value = {name: Moments.of(x) for name, x in {**series, **constant}.items()}
            delta = {name: Moments.of(np.diff(x, axis=0)) for name, x in series.items()}
            total = merge_moments((total, {"value": value, "delta": delta}))
    return total


def merge_moments(parts: Iterable[Mapping[str, FieldMoments]]) -> dict[str, FieldMoments]:
    """Merge the moments of shards, in the order given."""
    total: dict[str, FieldMoments] = {"value": {}, "delta": {}}
    for part in parts:
        for kind, fields in part.items():
            for name, moments in fields.items():
                total[kind][name] = total[kind].get(name, Moments()).merge(moments)
    return total


def stats_of(total: Mapping[str, FieldMoments]) -> dict[str, dict[str, float]]:
    """The six maps of `stats.yaml`."""
    stats: dict[str, dict[str, float]] = {}
    for suffix, kind in (("", "value"), ("_delta", "delta")):
        fields = total[kind]
        stats[f"mean{suffix}"] = {name: moments.mean for name, moments in fields.items()}
        stats[f"std{suffix}"] = {name: moments.std for name, moments in fields.items()}
        stats[f"rms{suffix}"] = {name: moments.rms for name, moments in fields.items()}
    return stats


def stats_text(stats: Mapping[str, Mapping[str, float]]) -> str:
    """YAML with a decimal point in every number; without it PyYAML would read `1e-05` as text."""
    return yaml_subset.dump({name: dict(values) for name, values in stats.items()})


def clipped(stats: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Entries like `std_delta of u` that official normalisers would clip."""
    kinds = ("std", "rms", "std_delta", "rms_delta")
    return [f"{kind} of {name}" for kind in kinds for name, value in stats[kind].items() if value < CLIP]


def moments_to_plain(moments: Mapping[str, FieldMoments]) -> dict[str, Any]:
    """For JSON: Python writes floats with all their digits, so nothing is lost."""
    return {kind: {name: [m.n, m.mean, m.m2] for name, m in fields.items()} for kind, fields in moments.items()}


def moments_from_plain(data: Mapping[str, Any]) -> dict[str, FieldMoments]:
    return {
        kind: {name: Moments(int(n), float(mean), float(m2)) for name, (n, mean, m2) in fields.items()}
        for kind, fields in data.items()
    }
