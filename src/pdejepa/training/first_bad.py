"""Where a value that is not finite came from: the first bad tensor of a loss that is computed once more.

Looked for after a training has failed, so that good steps cost nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from pdejepa.training.stage import Batch, Stage


class _Found(Exception):
    """The search is over; the text names the tensor."""


@torch.no_grad()
def first_bad_tensor(stage: Stage, batch: Batch) -> str:
    """`the output of encoder.trunk.blocks.3`, the first in the order of computing; empty if all are finite."""
    named = {f"{name} of the batch": value for name, value in batch.items()}
    named |= {f"the weight {name}": value for name, value in stage.named_parameters()}
    for name, value in named.items():
        if _is_bad(value):
            return name
    try:
        with _watched(stage):
            stage(batch)
    except _Found as found:
        return str(found)
    return ""


@contextlib.contextmanager
def _watched(stage: Stage) -> Iterator[None]:
    """Inside, the first bad input or output of a module ends the computation."""
    names = {module: name for name, module in stage.named_modules() if name}

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if module in names and _is_bad((args, kwargs)):
            raise _Found(f"the input of {names[module]}")

    def after(module: nn.Module, _: Any, output: Any) -> None:
        if module in names and _is_bad(output):
            raise _Found(f"the output of {names[module]}")

    handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in names]
    handles += [module.register_forward_hook(after) for module in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_bad(values: Any) -> bool:
    tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.is_floating_point()]
    return any(not bool(torch.isfinite(value).all()) for value in tensors)
