"""The operations of a training step, one by one: what a recording on a GPU would hold."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pdejepa.training.stage import Batch, Stage

N_STEPS = 12  # batches that are looked at to find two of equal shapes


class _Listed(TorchDispatchMode):
    """Every operation with the shapes and types of its tensors and with its numbers, which a recording would freeze."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(f"{func} {' '.join(map(_described, tree_leaves((args, kwargs))))}")
        return func(*args, **(kwargs or {}))


def _described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def dispatched(stage: Stage, batch: Batch) -> list[str]:
    """The operations of loss and gradients of a batch."""
    stage.zero_grad()
    with _Listed() as listed:
        stage(batch)["loss"].backward()
    return listed.operations


def pairs(stage: Stage) -> list[tuple[Batch, Batch]]:
    """Two batches of every combination of names and shapes that comes twice in the first steps."""
    found: dict[tuple[object, ...], list[Batch]] = {}
    with torch.no_grad():
        for step in range(N_STEPS):
            batch = stage.batch(step, N_STEPS)
            key = tuple((name, value.shape, value.dtype) for name, value in batch.items())
            found.setdefault(key, []).append(batch)
    return [(batches[0], batches[1]) for batches in found.values() if len(batches) > 1]


def difference(stage: Stage, one: Batch, two: Batch) -> str:
    """The first operation in which the steps of two batches differ; "" if there is none."""
    steps = zip_longest(dispatched(stage, one), dispatched(stage, two), fillvalue="nothing")
    return next((f"operation {number}: {a}, then {b}" for number, (a, b) in enumerate(steps) if a != b), "")
