"""Trajectories that stay in host memory where the device has no room for them; batches are copied when they are due.

    fields = OnHost(values, device)       indexed like a tensor; what is taken lies on the device
    Ahead(stage.batch, device)            the batch of the next step, while the device computes the present one

On a GPU batches are copied from pinned memory on a stream of their own, so that steps wait for them only where copying
takes longer than computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pdejepa.training.stage import Batch


class OnHost:
    """Values in host memory; an index takes some of them to the device, on which the index lies too."""

    def __init__(self, values: Tensor, device: torch.device) -> None:
        self.values, self.device = values, device
        self.shape, self.dtype = values.shape, values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Tensor:
        picked = self.values[_on_cpu(index)]
        if self.device.type == "cuda":
            picked = picked.pin_memory()
        return picked.to(self.device, non_blocking=True)

    def __setitem__(self, index: Any, new: Tensor) -> None:
        self.values[_on_cpu(index)] = new.to(self.values)

    def subset(self, rows: Tensor) -> OnHost:
        """Some of the trajectories, still in host memory."""
        return OnHost(self.values[rows.cpu()], self.device)

    def new_empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> OnHost:
        """Room in host memory for other values."""
        return OnHost(self.values.new_empty(shape, dtype=dtype), self.device)


Fields = Tensor | OnHost


def subset(fields: Fields, rows: Tensor) -> Fields:
    """Some of the trajectories, where the others are."""
    return fields.subset(rows) if isinstance(fields, OnHost) else fields[rows]


def _on_cpu(index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(part.cpu() if isinstance(part, Tensor) else part for part in parts)


class Ahead:
    """`take` gives the batches of a stage; the one that `prepare` was asked for is there, or on its way.

    A batch is a pure function of the step and their number, so one that was prepared is the one that would be made.
    """

    def __init__(self, make: Callable[[int, int], Batch], device: torch.device) -> None:
        self._make, self._device = make, device
        self._stream: torch.cuda.Stream | None = None
        self._key: tuple[int, int] | None = None
        self._batch: Batch = {}

    def prepare(self, step: int, n_steps: int) -> None:
        """Begin to fetch the batch of a step, behind the work that the device was given."""
        if step >= n_steps:
            return
        if self._device.type == "cuda":
            if self._stream is None:
                self._stream = torch.cuda.Stream(self._device)
                self._stream.wait_stream(torch.cuda.current_stream(self._device))  # for what batches are made of
            with torch.cuda.stream(self._stream):
                self._batch = self._make(step, n_steps)
        else:
            self._batch = self._make(step, n_steps)
        self._key = (step, n_steps)

    def take(self, step: int, n_steps: int) -> Batch:
        """The batch of a step, made now unless it was prepared."""
        key, batch, self._key, self._batch = self._key, self._batch, None, {}
        if key != (step, n_steps):
            return self._make(step, n_steps)
        if self._stream is not None:
            now = torch.cuda.current_stream(self._device)
            now.wait_stream(self._stream)
            for value in batch.values():
                value.record_stream(now)
        return batch
