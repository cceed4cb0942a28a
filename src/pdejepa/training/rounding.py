"""The weights that a training in bfloat16 has trained.

Products in bfloat16 see weights rounded to eight bits, so what learns is the network with rounded weights.  Forecasts
are in float32, where the same weights unrounded are another network: off by a thousandth, and rollouts add that up.
So a training with `rounds` is judged and finished with rounded weights; it goes on, and is resumed, with exact ones.

Only parameters that autocast rounds are rounded: parts that are computed in float32 on purpose keep their digits.
One forward pass detects which parameters autocast rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class _Casts(TorchDispatchMode):
    """Notes where the values lie that are converted to bfloat16; a view lies where its parameter does."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is torch.bfloat16:
            self.places.add(_place(args[0]))
        return func(*args, **kwargs)


def seen_rounded(parameters: Iterable[Tensor], compute: Callable[[], object]) -> list[Tensor]:
    """Those of the parameters that `compute` converts to bfloat16 before it uses them; nothing is compiled."""
    casts = _Casts()
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), casts:
        compute()
    return [parameter for parameter in parameters if _place(parameter) in casts.places]


@torch.no_grad()
def round_all(parameters: Iterable[Tensor]) -> None:
    """Round parameters to the nearest values of bfloat16; they stay float32."""
    for parameter in parameters:
        parameter.copy_(parameter.bfloat16())


@contextmanager
def rounded(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Parameters are rounded inside the block, and restored afterwards."""
    before = [parameter.detach().clone() for parameter in parameters]
    round_all(parameters)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
