"""Reading the small pieces of a Well file; what is missing or of the wrong kind is reported, not raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from pdejepa.data.well.safety import MAX_ATTRIBUTE_VALUES, FileFault

MAX_COORDINATE_VALUES = 10_000_000


@dataclass
class Layout:
    """What a file turned out to hold; None where it could not be told."""

    file: str
    dataset_name: str | None = None
    grid_type: str | None = None
    n_spatial_dims: int | None = None
    n_trajectories: int | None = None
    n_frames: int | None = None
    axes: tuple[str, ...] | None = None
    grid: tuple[int, ...] | None = None
    coordinates: str | None = None  # hash of the axis values
    fields: tuple[tuple[str, str, bool], ...] = ()  # (group, name, time_varying)
    scalars: tuple[tuple[str, bool, bool], ...] = ()  # (name, sample_varying, time_varying)
    dtypes: tuple[str, ...] = ()
    boundaries: tuple[tuple[str, str], ...] = ()  # (axis, type)


@dataclass
class Pieces:
    """One open file, and the problems found in it so far."""

    file: h5py.File
    layout: Layout
    problems: list[FileFault] = field(default_factory=list)

    def say(self, where: str, sentence: str, is_warning: bool = False) -> None:
        self.problems.append(FileFault(self.layout.file, where, sentence, is_warning))

    def group(self, name: str) -> h5py.Group | None:
        group = self.file.get(name)
        return group if isinstance(group, h5py.Group) else None

    def dataset(self, group: h5py.Group | None, name: str, where: str) -> h5py.Dataset | None:
        dataset = None if group is None else group.get(name)
        if not isinstance(dataset, h5py.Dataset):
            self.say(where, "this dataset is missing")
            return None
        return dataset

    def values(self, dataset: h5py.Dataset, where: str) -> np.ndarray | None:
        """All values of a small dataset, which must be finite."""
        if dataset.size > MAX_COORDINATE_VALUES:
            self.say(where, f"has {dataset.size:,} values, far more than belong here")
            return None
        values = np.asarray(dataset[()])
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            self.say(where, "holds values that are not finite")
            return None
        return values

    def attribute(self, item: h5py.HLObject, name: str, where: str = "") -> Any:
        """The value of an attribute, or None (reported) if it is missing, too large or of an odd type."""
        if name not in item.attrs:
            self.say(where, f"the attribute {name!r} is missing")
            return None
        if item.attrs.get_id(name).get_space().get_simple_extent_npoints() > MAX_ATTRIBUTE_VALUES:
            self.say(where, f"the attribute {name!r} is too large")
            return None
        return item.attrs[name]

    def text(self, item: h5py.HLObject, name: str, where: str = "") -> str | None:
        value = self.attribute(item, name, where)
        if value is not None and (not isinstance(value, str) or not value):
            self.say(where, f"the attribute {name!r} must be text, got {_kind(value)}")
            return None
        return value

    def names(self, item: h5py.HLObject, name: str, where: str = "") -> tuple[str, ...] | None:
        value = self.attribute(item, name, where)
        if value is None:
            return None
        if isinstance(value, np.ndarray) and value.size == 0:
            return ()
        is_list = isinstance(value, np.ndarray) and value.ndim == 1
        if not is_list or not all(isinstance(one, str) for one in value):
            self.say(where, f"the attribute {name!r} must be a list of text, got {_kind(value)}")
            return None
        odd = [one for one in value if not one or "/" in one or one in (".", "..")]
        if odd or len(set(value)) < len(value):
            self.say(where, f"the attribute {name!r} must list plain, different names, got {list(value)[:6]}")
            return None
        return tuple(value)

    def flag(self, item: h5py.HLObject, name: str, where: str = "") -> bool | None:
        value = self.attribute(item, name, where)
        if value is not None and not isinstance(value, np.bool_):
            self.say(where, f"the attribute {name!r} must be a boolean, got {_kind(value)}")
            return None
        return None if value is None else bool(value)

    def flags(self, item: h5py.HLObject, where: str) -> tuple[bool | None, bool | None]:
        """sample_varying and time_varying."""
        return self.flag(item, "sample_varying", where), self.flag(item, "time_varying", where)

    def count(self, item: h5py.HLObject, name: str, low: int, high: int) -> int | None:
        value = self.attribute(item, name)
        if value is None:
            return None
        if not isinstance(value, np.integer) or not low <= value <= high:
            expected = f"a whole number from {low} to {high:,}"
            self.say("", f"the attribute {name!r} must be {expected}, got {_kind(value)}")
            return None
        return int(value)


def _kind(value: Any) -> str:
    """What a wrong attribute is, in few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"{type(value).__name__} {str(value)[:40]!r}"
