"""Arrays in files, read in parts: memory is bounded by what is asked for, and nothing is ever unpickled.

    found = open_arrays(Path("fields.npz"), scratch)     {"u": array of shape (100, 26, 128), ...}
    found["u"].read((slice(0, 4),))

A member of an npz file that is stored as it is is read in place; a compressed one is unpacked to `scratch` first, once.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.core.files import check_free_space, write_aside

Index = tuple[slice | int, ...]
Say = Callable[[str], object]
MAX_HEADER = 100_000  # bytes of the description in front of an array
MAX_MEMBERS = 1_000
PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle")
PICKLED = (
    "{what} holds Python objects (a pickle), which can run code and is not loaded. Where you trust it, convert it:\n"
    '  import numpy as np; u = np.load("{name}", allow_pickle=True)   # or torch.load, pickle.load\n'
    '  np.save("fields.npy", np.stack([np.asarray(one, dtype="float32") for one in u]))'
)


@dataclass(frozen=True)
class LazyArray:
    """An array of plain numbers in a file."""

    path: Path
    name: str  # of the member, or of the file
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int = 0
    is_fortran: bool = False

    def read(self, index: Index = ()) -> np.ndarray:
        """A copy of a part.  The file is mapped for this call only, so that its pages do not stay in memory."""
        order: Any = "F" if self.is_fortran else "C"
        try:
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path} cannot be read any more ({error}). Import it when it is whole.") from None
        return np.array(mapped[index])


def open_arrays(path: Path, scratch: Path, say: Say) -> dict[str, LazyArray]:
    """The arrays of an npy or npz file by their names; DataError for everything else."""
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise DataError(PICKLED.format(what=path, name=path.name))
    try:
        with path.open("rb") as stream:
            magic = stream.read(8)
            stream.seek(0)
            if magic.startswith(b"\x93NUMPY"):
                return {path.stem: _described(stream, path, path.stem, path.stat().st_size)}
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give the files that hold the fields.") from None
    if magic.startswith(b"PK\x03\x04"):
        return _open_zip(path, scratch, say)
    if magic.startswith(b"\x80"):
        raise DataError(PICKLED.format(what=path, name=path.name))
    if not magic:
        raise DataError(f"{path} is empty (zero bytes). Give the files that hold the fields.")
    raise DataError(f"{path} is none of the files that can be imported: expected .npy or .npz of NumPy, or HDF5.")


def _open_zip(path: Path, scratch: Path, say: Say) -> dict[str, LazyArray]:
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if not members or len(members) > MAX_MEMBERS:
                raise DataError(f"{path} has {len(members)} arrays; expected 1 to {MAX_MEMBERS} of numpy.savez.")
            for info in members:
                name = info.filename.removesuffix(".npy")
                found[name] = _member(path, archive, info, name, scratch, say)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise DataError(f"{path} is damaged or no npz file ({' '.join(str(error).split())[:100]}).") from None
    return found


def _member(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, scratch: Path, say: Say
) -> LazyArray:
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as stream:
            stream.seek(info.header_offset)
            head = stream.read(30)
            if len(head) < 30:
                raise EOFError("it ends too early")
            n_name, n_extra = struct.unpack("<HH", head[26:30])
            stream.seek(info.header_offset + 30 + n_name + n_extra)
            return _described(stream, path, name, stream.tell() + info.file_size)
    unpacked = scratch / f"{path.stem}-{info.CRC:08x}-{info.file_size}.npy"
    if not unpacked.exists():
        with archive.open(info) as packed:
            shape, dtype, _ = _header(packed, f"{path}: {name}")  # refuses before anything is unpacked
        if int(np.prod(shape)) * dtype.itemsize > info.file_size:
            raise EOFError(f"{name} declares more values than it holds")
        check_free_space(scratch, info.file_size, f"{name} of {path.name}, unpacked,")
        if info.file_size > 100_000_000:
            say(f"Unpacking {name} of {path.name} ({info.file_size / 1e9:.1f} GB) to {scratch} ...")
        with archive.open(info) as packed, write_aside(unpacked) as temporary, temporary.open("wb") as stream:
            shutil.copyfileobj(packed, stream, 1 << 24)
    with unpacked.open("rb") as stream:
        return _described(stream, unpacked, name, unpacked.stat().st_size)


def _described(stream: BinaryIO, path: Path, name: str, end: int) -> LazyArray:
    """The array whose description begins here and whose values end at `end`."""
    shape, dtype, is_fortran = _header(stream, f"{path}: {name}" if path.stem != name else str(path))
    offset, size = stream.tell(), int(np.prod(shape, dtype=object)) * dtype.itemsize
    if end - offset < size:
        raise DataError(f"{path} is cut off: {name} needs {size:,} bytes, {max(0, end - offset):,} are there.")
    return LazyArray(path, name, shape, dtype, offset, is_fortran)


def _header(stream: Any, what: str) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape, type and order that stand in front of an array."""
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(stream, max_header_size=MAX_HEADER)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{what} has no readable description ({' '.join(str(error).split())[:100]}).") from None
    if dtype.hasobject:
        raise DataError(PICKLED.format(what=what, name=Path(what.split(": ")[0]).name))
    if dtype.kind not in "biuf":
        raise DataError(f"{what} holds values of type {dtype}; expected real numbers.")
    return shape, dtype, is_fortran
