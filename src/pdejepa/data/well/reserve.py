"""Disk space for an HDF5 file, taken before the HDF5 library writes.

A write that fails inside the library leaves metadata that it cannot flush, and the process dies when the library shuts
down (segmentation fault or bus error).  So the space is reserved first, and a full disk is an OSError of ours:

    file.h5    [ written by HDF5 | reserved ]      while it is written
    file.h5    [ written by HDF5 ]                 after `drop_reserve`

HDF5 does not look at the size of a file that it has open, so its bytes are the same with and without a reserve.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import h5py

from pdejepa.core.errors import DataError

MARGIN = 64 * 1024  # groups, attributes and small data sets of a shard
PER_CHUNK = 1024  # bytes of the chunk index
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})  # a file system that cannot reserve


def reserve(file: h5py.File, n_bytes: int, n_chunks: int = 0) -> None:
    """Make sure that HDF5 can add `n_bytes` of data in `n_chunks` chunks to an open file; OSError if it cannot."""
    size = file.id.get_filesize() + n_bytes + n_chunks * PER_CHUNK + MARGIN
    try:
        os.posix_fallocate(file.id.get_vfd_handle(), 0, size)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def drop_reserve(path: Path) -> None:
    """Cut a closed file where its data end: bytes 40 to 47 of version 0 of the superblock, the one h5py writes."""
    with path.open("r+b") as file:
        head = file.read(48)
        size = int.from_bytes(head[40:48], "little")
        if head[:9] != b"\x89HDF\r\n\x1a\n\0" or not 0 < size <= path.stat().st_size:
            raise DataError(f"{path} is not complete: expected an HDF5 file of {size} bytes or more. Write it again.")
        file.truncate(size)
