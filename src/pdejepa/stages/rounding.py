"""The weights that a training in bfloat16 has trained.

Products in bfloat16 see weights rounded to eight bits, so what learns is the network with rounded weights.  Forecasts
are in float32, where the same weights unrounded are another network: off by a thousandth, and rollouts add that up.
So a training with `rounds` is judged and finished with rounded layers; it goes on, and is resumed, with exact ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# What automatic mixed precision computes in bfloat16 and has weights; norms and single parameters stay as they are.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)


@torch.no_grad()
def round_layers(modules: Iterable[nn.Module]) -> None:
    """Weights and biases of all layers take the nearest values of bfloat16; they stay float32."""
    for parameter in _of_layers(modules):
        parameter.copy_(parameter.bfloat16())


@contextmanager
def rounded(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, the layers are rounded; afterwards they are what they were."""
    found = _of_layers(modules)
    before = [parameter.detach().clone() for parameter in found]
    round_layers(modules)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(found, before, strict=True):
                parameter.copy_(value)


def _of_layers(modules: Iterable[nn.Module]) -> list[Tensor]:
    """Each once, wherever it is shared."""
    layers = (layer for module in modules for layer in module.modules() if isinstance(layer, LAYERS))
    return list({id(p): p for layer in layers for p in layer.parameters()}.values())
