"""Loss and gradients of a stage, computed step by step or, on one GPU, recorded once and replayed.

A training step of these small networks is thousands of kernels of a few microseconds.  Sending them one by one takes
the CPU several times longer than the GPU needs to run them.  So the first batch of every shape is recorded as a CUDA
graph, and later batches of that shape are copied to where the recording reads and replayed by a single call.

A replay leaves its results where the recording put them: metrics and gradients hold until the next call, no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.training.stage import Batch

N_WARM = 2  # steps before a recording: they compile, choose algorithms and take memory, which a recording must not
Metrics = dict[str, Tensor]


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    metrics: Metrics
    gradients: list[Tensor | None]


class Gradients:
    """`gradients(batch)` gives the metrics of a batch and leaves its gradients in `parameters`."""

    def __init__(
        self,
        model: Callable[[Batch], Metrics],
        parameters: Sequence[nn.Parameter],
        autocast: Callable[[], AbstractContextManager[Any]],
        should_record: bool,
        are_alone: bool = False,
    ) -> None:
        """`model` is the stage, or the stage wrapped for several ranks, which cannot be recorded.

        are_alone: all else that asks for gradients gets none.
        """
        self.model, self.parameters, self.autocast = model, parameters, autocast
        self.should_record = should_record
        self.targets = list(parameters) if are_alone else None  # None: whatever asks
        self._recordings: dict[tuple[object, ...], _Recording] = {}
        self._pool: Any = None  # memory that the recordings share: one runs at a time

    def __call__(self, batch: Batch) -> Metrics:
        if not self.should_record:
            return self._compute(batch)
        key = tuple((name, value.shape, value.dtype) for name, value in batch.items())
        recording = self._recordings.get(key)
        if recording is None:
            recording = self._recordings[key] = self._record(batch)
        for name, value in batch.items():
            recording.batch[name].copy_(value)
        recording.graph.replay()
        for parameter, gradient in zip(self.parameters, recording.gradients, strict=True):
            parameter.grad = gradient
        return recording.metrics

    def _compute(self, batch: Batch) -> Metrics:
        self.forget()
        with self.autocast():
            metrics = self.model(batch)
        metrics["loss"].backward(inputs=self.targets)
        return metrics

    def _record(self, batch: Batch) -> _Recording:
        batch = {name: value.clone() for name, value in batch.items()}
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(N_WARM):
                self._compute(batch)
        torch.cuda.current_stream().wait_stream(beside)
        self.forget()
        torch.cuda.empty_cache()  # a recording has memory of its own: do not hold that of the first steps as well
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            metrics = self._compute(batch)
        self._pool = self._pool or graph.pool()
        metrics = {name: value.detach() for name, value in metrics.items()}
        return _Recording(graph, batch, metrics, [parameter.grad for parameter in self.parameters])

    def forget(self) -> None:
        """No gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def close(self) -> None:
        """Give back the memory of gradients and recordings."""
        self.forget()
        self._recordings.clear()
        self._pool = None
