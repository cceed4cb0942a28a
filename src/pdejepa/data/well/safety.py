"""What an HDF5 file may contain before anything in it is read.

HDF5 is a small file system: a file may point to other files, assemble data from elsewhere, call for
plug-ins, and declare arrays of any size.  A data file needs none of that.  `refusals` walks through a file by
its own hard links only, follows nothing, reads no array, and lists what has no place there; a file without
refusals can be read with memory bounded by its own size.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from pdejepa.core.text import human_bytes

MAX_OBJECTS = 10_000
MAX_DEPTH = 8
MAX_ATTRIBUTE_VALUES = 100_000
MAX_CHUNK_BYTES = 2**30
MAX_COMPRESSION = 1_100  # deflate cannot do better than about 1,032 to one
# deflate, shuffle, fletcher32, szip, n-bit, scale-offset, lzf; all others would be loaded from plug-ins
BUILT_IN_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})


@dataclass(frozen=True)
class FileFault:
    """One fault of a file.  A warning is worth knowing and breaks nothing."""

    file: str
    where: str  # path inside the file, or empty
    sentence: str
    is_warning: bool = False

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.where, self.sentence) if part)


class Unreadable(Exception):
    """The file cannot be opened as HDF5; the text says why."""


@contextlib.contextmanager
def open_hdf5(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Open for reading, never waiting on a device or a pipe; `Unreadable` if it is not an HDF5 file."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is not a regular file")
    if status.st_size == 0:
        raise Unreadable("is empty (zero bytes)")
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except Exception as error:
        raise Unreadable(f"is not a readable HDF5 file ({_short(error)})") from error
    with file:
        yield file


def refusals(file: h5py.File, name: str) -> list[FileFault]:
    """Everything in `file` that must not be followed or read; never raises."""
    size = _file_size(file)
    found: list[FileFault] = []
    pending: list[tuple[h5py.Group, str, int]] = [(file, "", 0)]
    n_objects = 0
    while pending:
        group, prefix, depth = pending.pop()
        for key, child, refusal in members(group):
            where = f"{prefix}/{key}"
            n_objects += 1
            if n_objects > MAX_OBJECTS or depth >= MAX_DEPTH:
                return [*found, FileFault(name, where, "more objects or deeper nesting than a data file has")]
            if child is None:
                found.append(FileFault(name, where, refusal))
            elif isinstance(child, h5py.Group):
                pending.append((child, where, depth + 1))
            elif isinstance(child, h5py.Dataset):
                found += [FileFault(name, where, sentence) for sentence in dataset_refusals(child, size)]
    return found


def members(group: h5py.Group) -> Iterator[tuple[str, h5py.HLObject | None, str]]:
    """(name, object or None, why not) of each member, opening hard links only."""
    try:
        keys = list(group.keys())[: MAX_OBJECTS + 1]
    except Exception as error:
        yield "", None, f"its list of members cannot be read ({_short(error)})"
        return
    for key in keys:
        try:
            link = group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                yield key, None, "holds an external link; such files are not read"
            elif not isinstance(link, h5py.HardLink):
                yield key, None, "holds a soft link; such files are not read"
            else:
                yield key, group[key], ""
        except Exception as error:
            yield key, None, f"cannot be read ({_short(error)})"


def dataset_refusals(dataset: h5py.Dataset, file_size: int) -> list[str]:
    """Why the values of a dataset are not read; empty if they may be."""
    try:
        return list(_judge_dataset(dataset, file_size))
    except Exception as error:
        return [f"cannot be read ({_short(error)})"]


def _judge_dataset(dataset: h5py.Dataset, file_size: int) -> Iterator[str]:
    if dataset.is_virtual:
        yield "is a virtual dataset, assembled from elsewhere; such files are not read"
        return
    if dataset.external:
        yield "keeps its values in another file (external storage); such files are not read"
        return
    dtype = dataset.dtype
    if dtype.hasobject or dtype.kind not in "biuf":
        yield f"holds values of type {dtype}; only plain numbers and booleans are read"
        return
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    foreign = sorted(set(filters) - BUILT_IN_FILTERS)
    if foreign:
        yield f"needs the HDF5 plug-in filter {foreign[0]}; plug-ins are not loaded"
    declared = _n_bytes(dataset.shape, dtype)
    stored = min(int(dataset.id.get_storage_size()), file_size)
    if declared > stored * (MAX_COMPRESSION if filters else 1):
        yield f"declares {human_bytes(declared)} but holds {human_bytes(stored)}; it is not read"
    chunk = _n_bytes(dataset.chunks, dtype) if dataset.chunks else 0
    if chunk > MAX_CHUNK_BYTES:
        yield f"has chunks of {human_bytes(chunk)}; at most {human_bytes(MAX_CHUNK_BYTES)} is read"


def _n_bytes(shape: tuple[int, ...] | None, dtype: np.dtype) -> int:
    total = int(dtype.itemsize)
    for n in shape or (0,) * (shape is None):
        total *= int(n)
    return total


def _file_size(file: h5py.File) -> int:
    try:
        return os.stat(file.filename).st_size
    except OSError:
        return 0


def _short(error: BaseException) -> str:
    """The first line of an error of the HDF5 library, without the addresses it likes to print."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."
