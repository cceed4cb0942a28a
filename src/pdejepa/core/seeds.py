"""Counter-based random numbers: any draw of any trajectory, alone, on any device, with the same bits.

Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) maps a
128-bit counter and a 64-bit key to 128 random bits.  There is no state to advance, so trajectory 11,734 of a
data set can be drawn without drawing the 11,733 before it, by any number of processes, and integer arithmetic
gives identical bits on a CPU and on a GPU.

    key      = first 64 bits of SHA-256("system/split/purpose/seed")
    counter  = (position, attempt, row, 0)     row = trajectory or environment number

Letters: B rows, n numbers per row.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox 4x32-10 on int64 tensors that hold 32-bit words; the four counters broadcast together."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # int64 wraps: its bits are those of uint64
        high0, low0 = (product0 >> 32) & _WORD, product0 & _WORD
        high1, low1 = (product1 >> 32) & _WORD, product1 & _WORD
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def derive_key(*words: object) -> tuple[int, int]:
    """A 64-bit key from names and numbers, the same on every machine."""
    digest = hashlib.sha256("/".join(str(word) for word in words).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def derive_seed(*words: object) -> int:
    """The same as a whole number from 0 to 2^63-1, for generators of PyTorch."""
    low, high = derive_key(*words)
    return (high & 0x7FFFFFFF) << 32 | low


@dataclass(frozen=True)
class Draws:
    """The random numbers of some rows (trajectories or environments) for one purpose.

    `attempt` is 0 except where a failed solve is drawn again.  Positions are explicit, so a draw attached to
    a Fourier mode can use the mode number as its position and is then the same on every grid.
    """

    system: str
    split: str
    purpose: str
    seed: int
    rows: Tensor  # (B,) int64
    attempt: Tensor | int = 0  # (B,) int64 or a number
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def take(self, chosen: Tensor) -> Self:
        """The same numbers for some of the rows, by their places (b,)."""
        attempt = self.attempt[chosen.cpu()] if isinstance(self.attempt, Tensor) else self.attempt
        return replace(self, rows=self.rows[chosen.cpu()], attempt=attempt)

    def pairs(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Two independent uniforms on [0,1) with 53 random bits for each row and position, (B, *positions)."""
        shape = (-1,) + (1,) * positions.ndim
        rows = self.rows.to(self.device).reshape(shape)
        attempt = torch.as_tensor(self.attempt, device=self.device).expand_as(self.rows).reshape(shape)
        positions = positions.to(self.device)
        words = philox(
            (positions, attempt.long(), rows, torch.zeros_like(rows)),
            derive_key(self.system, self.split, self.purpose, self.seed),
        )
        return _to_unit(words[0], words[1]), _to_unit(words[2], words[3])

    def uniform(self, n: int, low: float = 0.0, high: float = 1.0, at: int = 0) -> Tensor:
        """(B,n) float64 on [low, high); `at` separates several draws of one purpose (n <= 2**16 each)."""
        positions = torch.arange((n + 1) // 2, device=self.device) + (at << 16)
        first, second = self.pairs(positions)  # (B, n/2) each
        unit = torch.stack((first, second), dim=-1).flatten(1)[:, :n]  # (B,n)
        return low + (high - low) * unit

    def integers(self, n: int, low: int, high: int, at: int = 0) -> Tensor:
        """(B,n) float64 whole numbers from low to high, both ends included."""
        return low + torch.floor(self.uniform(n, at=at) * (high - low + 1))

    def complex_normal(self, positions: Tensor) -> Tensor:
        """Complex normals of unit variance, E|z|^2 = 1, one for each row and position (Box-Muller)."""
        first, second = self.pairs(positions)
        return torch.polar(torch.sqrt(-torch.log1p(-first)), 2 * math.pi * second)


def _to_unit(high: Tensor, low: Tensor) -> Tensor:
    """53 bits of two 32-bit words as a float64 on [0,1)."""
    return ((high >> 5) * 67108864 + (low >> 6)).to(torch.float64) * (1.0 / 9007199254740992.0)
