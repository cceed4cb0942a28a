"""A training step on a device that is not the CPU, for machines without a GPU.

Tensors have shapes and a device, and no values.  What needs a value, or tensors of two devices, fails as it would when
a GPU records the step; a copy between devices fails as well, because a recording may hold none.

The device is PyTorch's `meta`.  Fake tensors of the device `cuda` would be closer, but a build of PyTorch without CUDA
ends the whole process as soon as one of them asks for gradients.

Not seen: branches for `is_cuda`, rounding in bfloat16, what is compiled, and how a batch is drawn.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pdejepa.training.stage import Batch
from tests.golden.cases import AnyStage

AWAY = torch.device("meta")
MODE = FakeTensorMode(allow_non_fake_inputs=True)  # one for all stages, since systems keep coordinates per device
COPIES = ("aten.copy_", "aten._to_copy")
FROM_LISTS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
INDEXED = (Tensor.__getitem__, Tensor.__setitem__)


class _DeviceError(Exception):
    """Tensors of two devices where a GPU allows one, or a copy where a recording allows none."""


class _OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of two devices.  A CPU tensor of one number is as good as a number.

    Copies are left alone.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not str(func).startswith(COPIES):
            _check(f"{func} mixes", [t for t in _tensors((args, kwargs)) if t.ndim > 0 or t.device == AWAY])
        return func(*args, **(kwargs or {}))


class _NoCopies(TorchDispatchMode):
    """Refuses copies from one device to another."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if str(func).startswith(COPIES):
            _check(f"{func} copies between", [*_tensors((args, kwargs)), *_tensors(made)])
        return made


class _NoLists(TorchFunctionMode):
    """Refuses tensors made of Python's numbers on the other device: that is a copy which shows in no operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        target = None
        if func in FROM_LISTS and not isinstance(args[-1] if args else None, Tensor):
            target = made
        elif func in INDEXED and any(isinstance(part, list) for part in _parts(args[1])):
            target = args[0]
        if target is not None and target.device == AWAY:
            raise _DeviceError(f"{func.__name__} copies numbers to {AWAY.type}")
        return made


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _check(what: str, tensors: list[Tensor]) -> None:
    devices = sorted({t.device.type for t in tensors})
    if len(devices) > 1:
        raise _DeviceError(f"{what} {' and '.join(devices)}")


def fault_elsewhere(stage: AnyStage, batch: Batch) -> str:
    """Why loss, gradients or moving averages of a step could not be recorded on a GPU; "" if they could.

    The stage cannot be used afterwards.
    """
    with MODE, _OneDevice(), _autocast_is_known():
        there = {name: _away(value) for name, value in batch.items()}
        _move(stage)
        try:
            with torch.no_grad():
                stage(there)  # steps before the recording may copy what is kept
            with _NoLists(), _NoCopies():
                stage(there)["loss"].backward()
                with torch.no_grad():
                    stage.after_update(0, 10)
        except _DeviceError as error:
            return str(error)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            return f"{error} reads a value"
    return ""


def _move(stage: AnyStage) -> None:
    """Parameters and buffers without values, in place; tensors that are neither stay on the CPU, as on a GPU."""
    moved: dict[int, Tensor] = {}
    for module in stage.modules():
        for table in (module._parameters, module._buffers):
            for name, value in table.items():
                if value is not None:
                    table[name] = moved.setdefault(id(value), _away(value))  # type: ignore[assignment]
    stage.context = dataclasses.replace(stage.context, device=AWAY)


def _away(value: Tensor) -> Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=AWAY)
    return nn.Parameter(made, value.requires_grad) if isinstance(value, nn.Parameter) else made


@contextlib.contextmanager
def _autocast_is_known() -> Iterator[None]:
    """`torch.autocast` knows no device `meta`; it has nothing to do there."""
    plain: Callable[..., Any] = torch.autocast

    def autocast(device_type: str, *arguments: Any, **options: Any) -> Any:
        return plain("cpu" if device_type == AWAY.type else device_type, *arguments, **options)

    with mock.patch("torch.autocast", autocast):
        yield
