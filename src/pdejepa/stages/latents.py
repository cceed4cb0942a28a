"""Latents of a whole split: computed once and kept on the device, or made from the fields whenever they are needed.

Letters: n trajectories, T frames, N tokens, D width, B samples, K frames of a sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pdejepa.core.device import tf32, without_new_code
from pdejepa.stages.common import in_pieces

PIECE = 4_000_000  # field values encoded at once
Encode = Callable[[Tensor], Tensor]  # fields (B,T,C,*grid) -> latents (B,T,N,D)


class Latents:
    """`take` gives float32 latents of any samples and frames; `dtype` None computes them on the fly."""

    def __init__(self, fields: Tensor, encode: Encode, dtype: torch.dtype | None) -> None:
        self.fields, self.encode, self.dtype = fields, encode, dtype
        with tf32(fields.device), without_new_code(fields.device):
            self.values = None if dtype is None else self._all()

    @torch.no_grad()
    def _all(self) -> Tensor:
        parts = in_pieces(len(self.fields), max(1, PIECE // self.fields[0].numel()))
        first = self.encode(self.fields[parts[0]])
        values = first.new_empty((len(self.fields), *first.shape[1:]), dtype=self.dtype)
        values[parts[0]] = first.to(values.dtype)
        for part in parts[1:]:
            values[part] = self.encode(self.fields[part]).to(values.dtype)
        return values  # (n,T,N,D)

    @torch.no_grad()
    def take(self, rows: Tensor, frames: Tensor | slice = slice(None)) -> Tensor:
        """(B,K,N,D) of rows (B,) at frames (B,K), or at the frames of a slice."""
        source = self.fields if self.values is None else self.values
        picked = source[rows][:, frames] if isinstance(frames, slice) else source[rows[:, None], frames]
        return self.encode(picked) if self.values is None else picked.float()

    def mean_square_changes(self) -> Tensor:
        """Mean square of q_{t+1} - q_t over trajectories, tokens and channels, for every t: (T-1,)."""
        total, n = torch.zeros((), device=self.fields.device), 0
        for part in in_pieces(len(self.fields), 64):
            q = self.take(torch.arange(part.start, part.stop, device=self.fields.device))
            total, n = total + q.diff(dim=1).square().mean((2, 3)).double().sum(0), n + len(q)
        return (total / n).float()


def storage(name: str) -> torch.dtype | None:
    """The dtype that a configuration names."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "on_the_fly": None}[name]
