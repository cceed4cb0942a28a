"""Latents of a whole split: computed once and kept where the fields are, or made from them whenever they are needed.

The encoder is frozen after stage 1 and the projector after stage 2, so one `Kept` serves all later stages of a run.

Letters: n trajectories, T frames, N tokens, D width, B samples, K frames of a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from pdejepa.core.device import tf32, without_new_code
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import in_pieces
from pdejepa.training.interrupts import stop_if_asked
from pdejepa.training.on_host import Fields
from pdejepa.training.training_data import TrainingData

PIECE = {"cpu": 20_000, "cuda": 4_000_000}  # field values encoded at once: on a CPU what fits its cache
Encode = Callable[[Tensor], Tensor]  # fields (B,T,C,*grid) -> latents (B,T,N,D)


Name = Literal["z", "q"]  # before and after the projector
Kept = dict[Name, dict[str, "Latents"]]  # of every split; what the stages of one run share


class Latents:
    """`take` gives float32 latents of any samples and frames; `dtype` None computes them on the fly."""

    def __init__(self, fields: Fields, encode: Encode, dtype: torch.dtype | None, piece: int = 0) -> None:
        """`piece`: trajectories encoded at once; 0: as many as hold PIECE field values."""
        self.fields = fields
        self.encode = encode if dtype is None else None  # not needed, and not kept alive, once all values are known
        self.values = None if dtype is None else _all(fields, encode, dtype, piece)

    @torch.no_grad()
    def take(self, rows: Tensor, frames: Tensor | slice = slice(None)) -> Tensor:
        """(B,K,N,D) of rows (B,) at frames (B,K), or at the frames of a slice."""
        source = self.fields if self.values is None else self.values
        picked = source[rows][:, frames] if isinstance(frames, slice) else source[rows[:, None], frames]
        return picked.float() if self.encode is None else _encoded(self.encode, picked)

    def mean_square_changes(self) -> Tensor:
        """Mean square of q_{t+1} - q_t over trajectories, tokens and channels, for every t: (T-1,)."""
        total, n = torch.zeros((), device=self.fields.device), 0
        for part in in_pieces(len(self.fields), 64):
            stop_if_asked()
            q = self.take(torch.arange(part.start, part.stop, device=self.fields.device))
            total, n = total + q.diff(dim=1).square().mean((2, 3)).double().sum(0), n + len(q)
        return (total / n).float()


def latents_of(
    name: Name, model: Surrogate, data: TrainingData, dtype: torch.dtype | None, kept: Kept
) -> dict[str, Latents]:
    """Latents of train and valid by the frozen encoder (z), or encoder and projector (q); made once and kept."""
    if name not in kept:
        z = kept.pop("z", {})
        encode = model.encoder.frames if name == "z" else model.encode
        own = [split for split in ("train", "valid") if split in data.fields]  # a comparison has more
        kept[name] = {split: _made(data.fields[split], encode, dtype, z.get(split), model) for split in own}
    return kept[name]


def _made(fields: Fields, encode: Encode, dtype: torch.dtype | None, z: Latents | None, model: Surrogate) -> Latents:
    """q takes the place of z where z is known exactly: projecting costs a small part of encoding."""
    if z is None or z.values is None or z.values.dtype != torch.float32:
        return Latents(fields, encode, dtype)
    found = Latents(fields, encode, None)
    found.encode, found.values = None, z.values
    with torch.no_grad():
        for part in in_pieces(len(fields), max(1, PIECE[fields.device.type] // fields[0].numel())):
            stop_if_asked()
            z.values[part] = _encoded(model.project, z.values[part])
    return found


@torch.no_grad()
def _all(fields: Fields, encode: Encode, dtype: torch.dtype, piece: int) -> Fields:
    """Latents (n,T,N,D) of all trajectories."""
    parts = in_pieces(len(fields), piece or max(1, PIECE[fields.device.type] // fields[0].numel()))
    with without_new_code(fields.device):
        first = _encoded(encode, fields[parts[0]])
        values = fields.new_empty((len(fields), *first.shape[1:]), dtype=dtype)
        values[parts[0]] = first.to(dtype)
        for part in parts[1:]:
            stop_if_asked()
            values[part] = _encoded(encode, fields[part]).to(dtype)
    return values


def _encoded(encode: Encode, fields: Tensor) -> Tensor:
    """In float32 even inside mixed precision: the targets of later stages are small differences of these values."""
    with tf32(fields.device), torch.autocast(fields.device.type, enabled=False):
        return encode(fields)


def storage(name: str) -> torch.dtype | None:
    """The dtype that a configuration names."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "on_the_fly": None}[name]
