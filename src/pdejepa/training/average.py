"""Moving averages of trained values: what a stage is judged by and ends with, where its settings ask for them.

    a <- m a + (1 - m) p        m = min( 1 - 1 / (window n_steps),  (1 + s) / (10 + s) )

after step s = 0, 1, ..: the average looks back over the share `window` of all steps, and at first over fewer, so that
initial weights are soon forgotten.  Training itself goes on with p.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

KEY = "average"


def memory(step: int, n_steps: int, window: float) -> float:
    """m after step s = 0 .. n_steps-1."""
    return min(1.0 - 1.0 / max(1.0, window * n_steps), (1.0 + step) / (10.0 + step))


class Average:
    """The averages of named parameters."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], window: float) -> None:
        self.window = window
        self.parameters = {name: p.detach() for name, p in parameters.items()}
        self.values = {name: p.clone() for name, p in self.parameters.items()}

    @torch.no_grad()
    def update(self, step: int, n_steps: int) -> None:
        """Take in the values after a step."""
        share = 1.0 - memory(step, n_steps, self.window)
        torch._foreach_lerp_(list(self.values.values()), list(self.parameters.values()), share)

    def tensors(self) -> dict[str, Tensor]:
        """By name, for a checkpoint; the tensors themselves."""
        return {f"{name}/{KEY}": value for name, value in self.values.items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the parameters are the averages; afterwards they are what they were."""
        before = {name: p.clone() for name, p in self.parameters.items()}
        self._set(self.values)
        try:
            yield
        finally:
            self._set(before)

    def take_place(self) -> None:
        """The parameters become the averages, for good."""
        self._set(self.values)

    @torch.no_grad()
    def _set(self, values: Mapping[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(values[name])


def with_averages(weights: Mapping[str, Tensor], optimiser: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a checkpoint as they are judged: averages in place of what has one in the optimiser's state."""
    return {name: optimiser.get(f"{name}/{KEY}", value) for name, value in weights.items()}
