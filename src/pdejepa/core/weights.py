"""Tensors in files: a writer, a reader that distrusts what it reads, and a strict comparison with a model.

A safetensors file is

    8 bytes    n, length of the header, little-endian
    n bytes    {"name": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}, ..., "__metadata__": {...}}
    the rest   the values, without gaps or overlaps, in the order of their offsets

and holds nothing that could run.  The header is checked here, entry by entry and before the library sees the file,
so that any sequence of bytes ends in tensors or in a CheckpointError.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import write_aside

HEADER_LIMIT = 10_000_000  # bytes
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_PICKLE = "This is a Python pickle; it can run code and is not loaded. Save the weights as safetensors instead"
_BEGINNINGS = {
    b"PK": _PICKLE,  # torch.save writes a zip file with a pickle inside
    **{bytes([0x80, protocol]): _PICKLE for protocol in range(2, 6)},
    b"\x89HDF": "This is an HDF5 file, not safetensors",
    b"\x1f\x8b": "This is a gzip file, not safetensors; unpack it first",
    b"version https://git-lfs": "This is a pointer of Git LFS, not the file itself; fetch it with git lfs pull",
}


# ---- writing -----------------------------------------------------------------------------------------------------
def write_weights(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a safetensors file: aside, synced, renamed.  Equal tensors give equal bytes."""
    values = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with write_aside(path) as temporary:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)  # the library would make it readable for nobody else
        try:
            save_file(values, temporary)
        except SafetensorError as error:  # it reports a full disk in words only
            if os.strerror(errno.ENOSPC) in str(error) or os.strerror(errno.EDQUOT) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise
        temporary.chmod(mode)


# ---- reading -----------------------------------------------------------------------------------------------------
def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU and all finite; CheckpointError for anything else."""
    path = Path(path)
    try:
        _check_file(path)
        tensors = load_file(path)
        _check_values(tensors)
    except _Refused as refused:
        raise CheckpointError(f"{path} is not loaded. {refused}.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}).") from error
    except Exception as error:  # whatever else the library meets, it is about this file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"{path} is damaged ({reason}).") from error
    return tensors


class _Refused(Exception):
    """A reason not to load a file, as a sentence without its end."""


def _check_file(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise _Refused("It is not a regular file")
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(32)
        n_header = int.from_bytes(start[:8], "little")
        if size < 10 or not 2 <= n_header <= HEADER_LIMIT or start[8:9] != b"{":
            # Only now: a header of 640 bytes begins like a pickle too, but continues differently.
            raise _Refused(_what_it_is(start, size, n_header))
        if 8 + n_header > size:
            raise _Refused(f"The file is cut off: it has {size:,} bytes, its header alone needs {8 + n_header:,}")
        stream.seek(8)
        raw = stream.read(n_header)
    _check_header(_parse(raw), size - 8 - n_header)


def _what_it_is(start: bytes, size: int, n_header: int) -> str:
    for beginning, meaning in _BEGINNINGS.items():
        if start.startswith(beginning):
            return meaning
    if size < 10:
        return f"The file is cut off: it has {size} bytes"
    if start[8:9] == b"{":
        return f"The header is damaged: it claims {n_header:,} bytes, at most {HEADER_LIMIT:,} are read"
    return "This is not a safetensors file"


def _parse(raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a name appears twice")
        return dict(pairs)

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"The header is damaged: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(header, dict):
        raise _Refused("The header is damaged: it is not a table")
    return header


def _check_header(header: dict[str, Any], n_bytes: int) -> None:
    """Every entry well-formed, and together they cover the values exactly."""
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _Refused("The header is damaged: its metadata is not a table of texts")
    spans = sorted(_span(name, entry) for name, entry in header.items())
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            word = "overlaps" if begin < end else "leaves a gap after"
            raise _Refused(f"The header is damaged: {name[:80]!r} {word} the tensor before it")
        end = stop
    if end != n_bytes:
        word = "cut off" if end > n_bytes else "too long"
        raise _Refused(f"The file is {word}: {end:,} bytes of values were announced, {n_bytes:,} are there")


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    """Where the values of one tensor lie, once everything that is said about it fits together."""
    where = f"The header is damaged: {name[:80]!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _Refused(f"{where} needs dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise _Refused(f"{where} has the unknown type {str(dtype)[:20]!r}")
    if not _are_sizes(shape) or len(shape) > 16 or not _are_sizes(offsets) or len(offsets) != 2:
        raise _Refused(f"{where} has a shape or offsets that are not whole numbers")
    if offsets[1] - offsets[0] != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise _Refused(f"{where} has offsets that do not fit its shape")
    return offsets[0], offsets[1], name


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _check_values(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise _Refused(f"{name[:80]!r} holds values that are neither true nor false")
    bad = first_not_finite(tensors)
    if bad:
        raise _Refused(f"{bad[:80]!r} holds values that are not finite")


def first_not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The name of the first tensor with NaN or infinity, or an empty text; one transfer per device."""
    by_device: dict[torch.device, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel() > 0:
            by_device.setdefault(tensor.device, []).append(name)
    for names in by_device.values():
        flags = torch.stack([torch.isfinite(tensors[name]).all() for name in names]).tolist()
        for name, is_good in zip(names, flags, strict=True):
            if not is_good:
                return name
    return ""


# ---- models ------------------------------------------------------------------------------------------------------
def gather(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All parameters and stored buffers by name, `encoder.blocks.0.norm1.weight`; the tensors themselves."""
    return {
        f"{prefix}.{name}": value.detach()
        for prefix, module in modules.items()
        for name, value in module.state_dict().items()
    }


def restore(modules: Mapping[str, nn.Module], tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy tensors into modules whose names, shapes and types they must fit exactly."""
    own = gather(modules)
    check_match(tensors, own, source)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def check_match(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> None:
    """CheckpointError that names every kind of difference in one sentence."""
    both = [name for name in expected if name in found]
    shapes = [
        f"{name} is {tuple(found[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in both
        if found[name].shape != expected[name].shape
    ]
    types = [
        f"{name} is {_type(found[name])}, expected {_type(expected[name])}"
        for name in both
        if found[name].dtype != expected[name].dtype
    ]
    kinds = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "shape": shapes,
        "dtype": types,
    }
    problems = [f"{kind}: {_list(names)}" for kind, names in kinds.items() if names]
    if problems:
        raise CheckpointError(f"{source} does not fit this model: {'; '.join(problems)}.")


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
