"""Which samples a step sees: pure functions of (seed, stage, step), so that a resumed run repeats them exactly.

Samples come from an endless row of shuffles of 0..n-1, one shuffle per epoch; step k takes the k-th piece of `batch`.
Every rank draws the whole global batch and keeps its slice, so that the number of ranks changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.core.seeds import derive_seed
from pdejepa.training.distributed import rank_slice


def generator(device: torch.device, *words: object) -> torch.Generator:
    """A generator whose numbers depend on the words only (and on the kind of device)."""
    return torch.Generator(device=device).manual_seed(derive_seed(*words))


class Shuffles:
    """The endless row of shuffles of one stage."""

    def __init__(self, n: int, seed: int, stage: str, device: torch.device) -> None:
        if n < 1:
            raise ConfigError(f"{stage}: there is nothing to train on.")
        self.n, self.seed, self.stage, self.device = n, seed, stage, device
        self._known: dict[int, Tensor] = {}

    def take(self, step: int, batch: int) -> Tensor:
        """Samples (batch,) of a step, the whole global batch."""
        first, last = step * batch // self.n, ((step + 1) * batch - 1) // self.n
        row = torch.cat([self._shuffle(epoch) for epoch in range(first, last + 1)])
        start = step * batch - first * self.n
        return row[start : start + batch]

    def _shuffle(self, epoch: int) -> Tensor:
        if epoch not in self._known:
            for old in [known for known in self._known if known < epoch - 1]:
                del self._known[old]
            order = torch.randperm(self.n, generator=generator(torch.device("cpu"), self.seed, self.stage, epoch))
            self._known[epoch] = order.to(self.device)
        return self._known[epoch]


def own_slice(rows: Tensor, rank: int, world: int) -> Tensor:
    """The part of a global batch that this rank works on."""
    return rows[rank_slice(len(rows), rank, world)]


def in_pieces(n: int, size: int) -> list[slice]:
    """0..n in slices of at most `size`."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
