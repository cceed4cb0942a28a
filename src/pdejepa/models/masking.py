"""Which tokens of a clip are shown to the encoder and which are to be predicted.

A few rectangles of sites are masked in every frame (tubes through time):

    area = floor(scale N),   h = round(sqrt(area r)),   w = round(sqrt(area / r)),   r uniform in `aspect`

(in 1-D an interval of floor(scale N) sites).  The size is drawn once per batch, the places once per row.  Rectangles
lie inside the grid, which leaves the edges visible more often; on periodic axes the mask of a row is therefore rolled
by a uniform offset, and every site is masked equally often.

Every row keeps the same number of tokens.  The order in which tokens are taken is an integer key that is sorted:

    context   visible tokens, then masked ones           (a masked token that had to be shown is not a target)
    target    masked tokens that are not context, then visible ones that are not context

within each group in time-major order (`time_first`) or whole sites with all their frames in random order (`random`).
Everything happens on the device of the generator without waiting for it.
Letters: B rows, T frames, N tokens per frame, K_c and K_t tokens kept, m rectangles, n candidates (tokens or sites).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.models.patches import PatchGrid

ROUNDING = 1e-9  # 0.7 * 90 is 62.999... in floating point, yet 63 sites are meant


@dataclass(frozen=True)
class MaskConfig:
    """One value per type of mask, except `aspect` and `cut`.

    `scales` (one rectangle), `n_context` and `n_target` are shares of the sites of one frame.
    """

    scales: tuple[float, ...] = (0.15, 0.70)
    n_blocks: tuple[int, ...] = (8, 2)
    aspect: tuple[float, float] = (0.75, 1.5)
    n_context: tuple[float, ...] = (0.25, 0.125)
    n_target: tuple[float, ...] = (0.5, 0.6875)
    cut: Literal["time_first", "random"] = "time_first"

    def __post_init__(self) -> None:
        problems = []
        lengths = {len(values) for values in (self.scales, self.n_blocks, self.n_context, self.n_target)}
        if len(lengths) != 1 or lengths == {0}:
            problems.append("scales, n_blocks, n_context and n_target must hold one value per type of mask.")
        for name in ("scales", "n_context", "n_target"):
            if not all(0 < share <= 1 for share in getattr(self, name)):
                problems.append(f"{name} must be shares above 0 and up to 1, got {getattr(self, name)}.")
        if any(a + b > 1 for a, b in zip(self.n_context, self.n_target, strict=False)):
            problems.append("n_context + n_target must not be more than 1: a token is context or target, not both.")
        if any(n < 1 for n in self.n_blocks):
            problems.append(f"n_blocks must be 1 or more each, got {self.n_blocks}.")
        if not 0 < self.aspect[0] <= self.aspect[1]:
            problems.append(f"aspect must be a range (low, high) of positive numbers, got {self.aspect}.")
        if self.cut not in ("time_first", "random"):
            problems.append(f"cut must be 'time_first' or 'random', got {self.cut!r}.")
        if problems:
            raise ConfigError(" ".join(problems), problems)


class MaskSampler:
    def __init__(self, config: MaskConfig, patches: PatchGrid) -> None:
        self.config, self.patches = config, patches
        self.n_types = len(config.scales)
        N = patches.n_tokens
        self.context_sites = tuple(max(1, round(share * N)) for share in config.n_context)
        self.target_sites = tuple(max(1, round(share * N)) for share in config.n_target)
        if any(a + b > N for a, b in zip(self.context_sites, self.target_sites, strict=True)):
            raise ConfigError(
                f"{N} tokens per frame cannot be shared out to context {self.context_sites} and target "
                f"{self.target_sites}; use a smaller patch or smaller shares."
            )

    def sample(
        self, kind: int, n_rows: int, n_frames: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Token numbers t N + site of context (B,K_c) and target (B,K_t) for masks of type `kind`."""
        masked = self.site_mask(kind, n_rows, generator)  # (B,N)
        n_context, n_target = self.context_sites[kind], self.target_sites[kind]
        if self.config.cut == "random":
            order = torch.rand(masked.shape, generator=generator, device=generator.device).argsort(dim=1)  # (B,N)
            context, target = _pick(masked, order, n_context, n_target)  # sites
            return self._all_frames(context, n_frames), self._all_frames(target, n_frames)
        masked = masked.repeat(1, n_frames)  # (B,T*N): the same sites in every frame
        order = torch.arange(masked.shape[1], device=masked.device)  # (T*N,)
        return _pick(masked, order, n_frames * n_context, n_frames * n_target)

    def site_mask(self, kind: int, n_rows: int, generator: torch.Generator) -> Tensor:
        """(B,N), True where the union of the rectangles covers a site."""
        device, tokens = generator.device, self.patches.tokens
        m, k = self.config.n_blocks[kind], self.patches.ndim
        places = torch.rand(n_rows, m, k, generator=generator, device=device)
        rolls = torch.rand(n_rows, 1, k, generator=generator, device=device)
        sizes = self._block_size(kind, generator)
        covered = torch.ones(n_rows, m, *(1,) * k, dtype=torch.bool, device=device)
        for axis, (length, size) in enumerate(zip(tokens, sizes, strict=True)):
            start = (places[..., axis] * (length - size + 1)).floor()  # (B,m), whole numbers 0 ... length - size
            roll = (rolls[..., axis] * length * self.patches.is_periodic[axis]).floor()  # (B,1)
            site = torch.arange(length, device=device)
            site = (site - roll[..., None]) % length  # (B,1,length), where the site was before rolling
            inside = (site >= start[..., None]) & (site < (start + size)[..., None])  # (B,m,length)
            shape = [1] * k
            shape[axis] = length
            covered = covered & inside.reshape(n_rows, m, *shape)  # (B,m,X,Y)
        return covered.any(dim=1).flatten(1)  # (B,N)

    def _block_size(self, kind: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Sites along each axis as 0-d tensors: a draw that stays on the device needs no waiting."""
        tokens, device = self.patches.tokens, generator.device
        area = max(1, math.floor(self.config.scales[kind] * self.patches.n_tokens + ROUNDING))
        if len(tokens) == 1:
            return (torch.full((), area, device=device),)
        low, high = self.config.aspect
        ratio = low + (high - low) * torch.rand((), generator=generator, device=device)
        sides = ((area * ratio).sqrt(), (area / ratio).sqrt())
        return tuple(side.round().clamp(1, n) for side, n in zip(sides, tokens, strict=True))

    def _all_frames(self, sites: Tensor, n_frames: int) -> Tensor:
        first = torch.arange(n_frames, device=sites.device)[:, None] * self.patches.n_tokens  # (T,1)
        return (first + sites[:, None]).flatten(1)  # (B,T*sites), time-major


def _pick(masked: Tensor, order: Tensor, n_context: int, n_target: int) -> tuple[Tensor, Tensor]:
    """Numbers of the candidates (B,n) to show and to predict; `order`, 0 ... n-1, ranks those of one group."""
    n = masked.shape[1]
    context = (masked * n + order).argsort(dim=1)[:, :n_context]  # (B,K_c)
    is_context = torch.zeros_like(masked).scatter(1, context, True)  # (B,n)
    target = (is_context * (2 * n) + ~masked * n + order).argsort(dim=1)[:, :n_target]  # (B,K_t)
    return context, target
