"""Arrays of any HDF5 file, read in parts.

Only hard links are followed, and only plain numbers that the file itself holds are read (see `data.well.safety`);
text, references and plug-in filters elsewhere in the file are left alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.data.importing.lazy_arrays import Index
from pdejepa.data.well.safety import MAX_DEPTH, MAX_OBJECTS, dataset_refusals, members

MAGIC = b"\x89HDF\r\n\x1a\n"
MAX_OPEN = 16
MAX_LISTED = 20
_open: OrderedDict[Path, h5py.File] = OrderedDict()


@dataclass(frozen=True)
class H5Array:
    """A dataset of an HDF5 file."""

    path: Path
    name: str
    shape: tuple[int, ...]

    def read(self, index: Index = ()) -> np.ndarray:
        """A copy of a part."""
        try:
            return np.asarray(opened(self.path)[self.name][index])
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            told = " ".join(str(error).split())[:100]
            raise DataError(f"{self.path}: {self.name} cannot be read ({told}). Is the file whole?") from None


def opened(path: Path) -> h5py.File:
    """The file, open for reading; the least recently used one is closed when there are too many."""
    if path not in _open:
        try:
            _open[path] = h5py.File(path, "r", locking="best-effort")
        except OSError as error:
            told = " ".join(str(error).split())[:100]
            raise DataError(f"{path} is damaged or no HDF5 file ({told}).") from None
        if len(_open) > MAX_OPEN:
            _open.popitem(last=False)[1].close()
    _open.move_to_end(path)
    return _open[path]


def close_all() -> None:
    """Let go of every file."""
    while _open:
        _open.popitem()[1].close()


def list_arrays(path: Path) -> dict[str, H5Array]:
    """{"/train/u": array, ...}: every dataset of real numbers, in the order of their names."""
    found: dict[str, H5Array] = {}
    pending: list[tuple[Any, str, int]] = [(opened(path), "", 0)]
    while pending:
        group, prefix, depth = pending.pop()
        for key, child, _ in members(group):
            name = f"{prefix}/{key}"
            if len(found) > 100 * MAX_OBJECTS or depth > MAX_DEPTH:
                raise DataError(f"{path} has more objects or deeper nesting than a data file has; it is not read.")
            if isinstance(child, h5py.Group):
                pending.append((child, name, depth + 1))
            elif isinstance(child, h5py.Dataset) and child.shape is not None and child.dtype.kind in "biuf":
                found[name] = H5Array(path, name, child.shape)
    return dict(sorted(found.items()))


def check_array(array: H5Array) -> H5Array:
    """The array, unless its values lie elsewhere, need a plug-in, or are fewer than declared."""
    item = opened(array.path)[array.name]
    refused = dataset_refusals(item, array.path.stat().st_size)
    if refused:
        raise DataError(f"{array.path}: {array.name} {refused[0]}.")
    return array


def mapped(path: Path, names: dict[str, str]) -> dict[str, H5Array]:
    """The arrays of a file under the names that --map gives them."""
    there, found = list_arrays(path), {}
    for name, place in names.items():
        key = place if place.startswith("/") else f"/{place}"
        if key not in there:
            raise DataError(f"{path} has no array {place}. It has: {listed(there)}.")
        found[name] = check_array(there[key])
    return found


def listed(arrays: dict[str, H5Array]) -> str:
    """`/train/u (40, 14, 128), /train/nu (40,)`."""
    told = [f"{name} {array.shape}" for name, array in list(arrays.items())[:MAX_LISTED]]
    more = len(arrays) - len(told)
    return ", ".join(told) + (f" and {more:,} more" if more > 0 else "") or "no arrays of numbers"
