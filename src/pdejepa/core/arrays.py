"""Numbers as a user hands them over: tensors, arrays of any stride and byte order, lists of them, counts."""

from __future__ import annotations

import contextlib
import operator
import zipfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.errors import DataError

_keeps_gradients: ContextVar[bool] = ContextVar("keeps_gradients", default=False)


@contextlib.contextmanager
def gradients_kept(wanted: bool) -> Iterator[None]:
    """Inside, if it is wanted, `as_tensor` leaves tensors in the graph that they come from."""
    token = _keeps_gradients.set(wanted)
    try:
        yield
    finally:
        _keeps_gradients.reset(token)


def as_tensor(values: Any) -> Tensor:
    """Real numbers as one dense tensor without gradient (see `gradients_kept`), lists in float64.

    ValueError says in a few words what came.
    """
    kind, nested = type(values).__name__, (list, tuple, np.ndarray, Tensor)
    if isinstance(values, list | tuple) and any(isinstance(part, nested) for part in values):
        parts = [as_tensor(part) for part in values]
        if len({(part.shape, part.device) for part in parts}) > 1:
            raise ValueError(f"a {kind} whose parts have different shapes or devices")
        return torch.stack(parts)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{kind} of {values.dtype}")
        real = np.float32 if values.dtype == np.float32 else np.float64
        return torch.tensor(values.astype(real, order="C", copy=False))
    if isinstance(values, Tensor):
        if values.is_complex() or values.is_meta or values.layout != torch.strided:
            word = "complex" if values.is_complex() else "meta" if values.is_meta else "sparse"
            raise ValueError(f"a {word} tensor")
        return values if _keeps_gradients.get() else values.detach()
    try:
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(kind) from None


def read_array(path: Path) -> np.ndarray:
    """The array in FILE.npy, or the only one in FILE.npz; pickles are refused."""
    how = "Write it with numpy.save(FILE, array)."
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            if len(found.files) == 1:
                return found[found.files[0]]
            names = ", ".join(found.files)[:200]
    except OSError as error:
        told = error.strerror or "no array in the format of NumPy"
        raise DataError(f"{path} cannot be read: {told}. {how}") from None
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise DataError(f"{path} holds no array of numbers in the format of NumPy. {how}") from None
    raise DataError(f"{path} holds several arrays ({names}); expected one. {how}")


def as_count(value: Any) -> int | None:
    """A whole number of any library as an int; None for everything else, truth values included."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def as_rows(index: Any) -> Tensor:
    """Trajectory numbers (B,) int64 on the CPU."""
    try:
        rows = as_tensor(list(index) if isinstance(index, range) else index).to("cpu", torch.float64).reshape(-1)
    except ValueError:
        rows = torch.empty(0)
    if len(rows) == 0 or bool(((rows < 0) | (rows >= 2**31) | (rows != rows.floor())).any()):
        raise DataError(f"Trajectory numbers must be whole numbers from 0 to 2^31-1; got {repr(index)[:60]}.")
    return rows.long()
