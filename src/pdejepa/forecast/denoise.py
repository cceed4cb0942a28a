"""Noise taken out of the frames that a forecast begins with, by what first frames of the training data look like.

    u = mean + V diag( lambda / (lambda + sigma^2) ) V^T (x - mean) + rest lambda_0 / (lambda_0 + sigma^2)

the best linear estimate of u from x = u + sigma noise: V and lambda are principal directions and variances of a sample
of first frames, `rest` is what lies outside of them, and lambda_0 its variance in frames that were held out.
Encoders are trained on frames without noise, and 1 % of noise costs a forecast 5 to 10 %; what is left after this
filter costs a few tenths of a per cent on smooth states.

Letters: n sampled frames, B rows, H observed frames, C channels, *grid spatial axes, m directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pdejepa.systems import System

N_SAMPLED = 768
HELD_OUT = 4  # every so many sampled frames is held out


@dataclass(frozen=True)
class FirstFrames:
    """The law of first frames (H,C,*grid), in units of the rms of each channel."""

    size: Tensor  # (C,1..)
    mean: Tensor  # (H C *grid,)
    directions: Tensor  # (m, H C *grid)
    variances: Tensor  # (m,)
    rest: float

    @classmethod
    def of(cls, system: System, history: int, n: int = N_SAMPLED) -> Self:
        """From the first frames of `train`."""
        u0, xi = system.sample("train", range(n))
        solved = system.solve(u0, xi, times=system.times[:history])
        return cls.fitted(solved.as_subclass(Tensor))

    @classmethod
    def fitted(cls, frames: Tensor) -> Self:
        """From first frames (n,H,C,*grid)."""
        frames = frames.double()
        size = frames.square().mean((0, 1, *range(3, frames.ndim)), keepdim=True)[0, 0].sqrt().clamp(min=1e-30)
        flat = (frames / size).flatten(1)
        is_held = torch.arange(len(flat)) % HELD_OUT == HELD_OUT - 1
        seen, held = flat[~is_held], flat[is_held]
        mean = seen.mean(0)
        _, values, directions = torch.linalg.svd(seen - mean, full_matrices=False)
        apart = held - mean
        along = apart @ directions.T  # (held,m)
        outside = (apart - along @ directions).square().sum() / len(held) / max(1, flat.shape[1] - len(values))
        # a direction that only the sample has is not there in frames that were held out
        variances = torch.minimum(values.square() / len(seen), 2 * along.square().mean(0))
        return cls(size, mean, directions, variances, float(outside))

    def filtered(self, u: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Frames u (B,H,C,*grid) without noise of standard deviation `noise` (C,1..), and that deviation.

        If it is not known, it is the sigma with which amplitudes have the size that the law expects of them:
        the mean of x_i^2 / (lambda_i + sigma^2) over all directions, and what is outside of them, is 1.
        """
        x = (u.double() / self.size).flatten(1) - self.mean
        along = x @ self.directions.T
        rest = x - along @ self.directions
        if noise is None:
            level = self._level(along.square().mean(0), float(rest.square().sum(1).mean()), x.shape[1])
        else:
            level = (noise / self.size).square().mean().sqrt()
        kept = along * (self.variances / (self.variances + level**2 + 1e-300))
        clean = kept @ self.directions + rest * (self.rest / (self.rest + level**2 + 1e-300)) + self.mean
        return (clean.reshape(u.shape) * self.size).to(u.dtype), level * self.size

    def _level(self, squares: Tensor, outside: float, n: int) -> Tensor:
        """sigma from mean squares (m,) along the directions and their sum outside of them, by bisection."""
        n_outside = n - len(squares)

        def excess(sigma2: float) -> float:
            total = float((squares / (self.variances + sigma2)).sum())
            return total + (outside / (self.rest + sigma2) if n_outside else 0.0) - n

        low, high = -40.0, 2.0  # of ln sigma^2, in units of the rms
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(math.exp(middle)) > 0 else (low, middle)
        return torch.tensor(math.exp(high / 2), dtype=torch.float64)
