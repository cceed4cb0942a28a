"""Is the encoder learning something?  A few numbers on the teacher's frame-wise features, and a verdict in words.

    channel_std     mean spread of a channel over samples, after LayerNorm          (healthy: near 1; collapsed: 0)
    rank            RankMe = exp(entropy of the normalised singular values)         (healthy: tens; collapsed: 1)
    participation   (sum lambda)^2 / sum lambda^2 of the covariance
    cosine          mean cosine between two features                                (collapsed: 1)
    share_*         share of the variance between trajectories, times and places; position-only features have all
                    of it between places and tell nothing about the state
    read_u, read_xi R^2 of a ridge regression of the patch values and of the parameters, on trajectories not fitted

The loss alone does not tell: in this kind of training it may rise while features get better.  There is no verdict
before half of the training (`too_early`).
Letters: n trajectories, T frames, N places, D width, S samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.models.encoder import Encoder
from pdejepa.models.patches import PatchGrid

MAX_TRAJECTORIES = 64
MAX_TOKENS = 8192
EARLIEST = 0.5  # share of the training before which there is no verdict
LOW_SPREAD, HIGH_COSINE, HIGH_PLACE, LOW_READ = 0.2, 0.95, 0.8, 0.2  # where features stop being healthy


@dataclass(frozen=True)
class HealthCheck:
    """Measures an encoder on some trajectories of valid."""

    encoder: Encoder
    patches: PatchGrid

    @torch.no_grad()
    def measure(self, fields: Tensor, xi: Tensor, generator: torch.Generator) -> dict[str, float]:
        """Numbers for normalised fields (n,T,C,*grid) and parameters (n,P)."""
        u = fields[:MAX_TRAJECTORIES]
        z = self.encoder.frames(u).float()  # (n,T,N,D)
        z = nn.functional.layer_norm(z, z.shape[-1:])
        tokens = z.flatten(0, 2)
        chosen = torch.randperm(len(tokens), generator=generator, device=tokens.device)[:MAX_TOKENS]
        return {
            **spread(tokens[chosen]),
            **variance_shares(z),
            "read_u": ridge_r2(z.flatten(1, 2), self.patches.split(u).flatten(1, 2)),
            "read_xi": ridge_r2(z.mean((1, 2))[:, None], _standardised(xi[: len(u)])[:, None]),
        }


def spread(tokens: Tensor) -> dict[str, float]:
    """Channel spread, rank, participation ratio and cosine of features (S,D)."""
    centred = (tokens - tokens.mean(0)).double()
    singular = torch.linalg.eigvalsh(centred.T @ centred).clamp(min=0.0).sqrt()  # sooner than of (S,D) itself
    shares = (singular / singular.sum().clamp(min=1e-30)).clamp(min=1e-30)
    values = singular.square()
    unit = nn.functional.normalize(tokens.double(), dim=1)
    n = len(tokens)
    return {
        "channel_std": float(centred.std(0, unbiased=False).mean()),
        "rank": float((-(shares * shares.log()).sum()).exp()),
        "participation": float(values.sum() ** 2 / values.square().sum().clamp(min=1e-30)),
        "cosine": float((unit.sum(0).square().sum() - n) / (n * (n - 1))),
    }


def variance_shares(z: Tensor) -> dict[str, float]:
    """Shares of the variance of z (n,T,N,D) explained by the trajectory, the time and the place alone."""
    z = z.double()
    centre = z.mean((0, 1, 2))
    total = (z - centre).square().sum(-1).mean().clamp(min=1e-30)
    means = {"trajectory": z.mean((1, 2)), "time": z.mean((0, 2)), "place": z.mean((0, 1))}
    return {f"share_{name}": float((mean - centre).square().sum(-1).mean() / total) for name, mean in means.items()}


def ridge_r2(features: Tensor, target: Tensor, strength: float = 1e-3) -> float:
    """R^2 of a linear read-out (n,S,D) -> (n,S,K), fitted on every other trajectory, judged on the rest."""
    x, y = features.double(), target.double()
    fit, judge = (slice(0, None, 2), slice(1, None, 2)) if len(x) > 1 else (slice(None), slice(None))
    a, b = x[fit].flatten(0, 1), y[fit].flatten(0, 1)
    mean_a, mean_b = a.mean(0), b.mean(0)
    a, b = a - mean_a, b - mean_b
    gram = a.T @ a
    gram.diagonal().add_(strength * gram.diagonal().mean() + 1e-12)
    weights = torch.linalg.solve(gram, a.T @ b)  # (D,K)
    truth = y[judge].flatten(0, 1)
    error = (x[judge].flatten(0, 1) - mean_a) @ weights + mean_b - truth
    return float(1 - error.square().sum() / (truth - mean_b).square().sum().clamp(min=1e-30))


def _standardised(xi: Tensor) -> Tensor:
    """Columns that vary, in logarithms where they are positive and spread over a decade, standardised."""
    columns = []
    for column in xi.double().unbind(1):
        if float(column.min()) > 0 and float(column.max() / column.min()) > 10:
            column = column.log()
        deviation = float(column.std(unbiased=False))
        if deviation > 1e-9 * (1.0 + float(column.abs().max())):
            columns.append((column - column.mean()) / deviation)
    return torch.stack(columns, 1) if columns else xi.new_zeros((len(xi), 1), dtype=torch.float64)


@dataclass(frozen=True)
class Verdict:
    """`healthy`, `collapsing` or `position-only`, why, and what to do."""

    word: str
    reason: str
    advice: str = ""

    def __str__(self) -> str:
        text = self.word if self.word == "healthy" else f"{self.word}: {self.reason}"
        return f"{text}. {self.advice}" if self.advice else f"{text} ({self.reason})"


def low_rank(width: int) -> float:
    """The rank below which features of this width count as collapsed."""
    return min(8.0, width / 4)


def too_early(share: float, warmup: float) -> bool:
    """Whether features cannot be judged yet: before half of the training, or while the learning rate warms up.

    Features of an untrained encoder hardly vary; a verdict on them would call every training a collapse.
    """
    return share < max(EARLIEST, warmup)


def judge(health: dict[str, float], width: int) -> Verdict:
    """Put the numbers of `HealthCheck.measure` into words."""
    gentler = "Lower the learning rate, or let the teacher move more slowly (pretrain.ema), and start again."
    if health["channel_std"] < LOW_SPREAD:
        return Verdict("collapsing", f"features hardly vary (channel spread {health['channel_std']:.2f})", gentler)
    if health["cosine"] > HIGH_COSINE:
        return Verdict("collapsing", f"features point the same way (mean cosine {health['cosine']:.2f})", gentler)
    if health["share_place"] > HIGH_PLACE:
        reason = f"{100 * health['share_place']:.0f} % of the variance tells the place, not the state"
        return Verdict("position-only", reason, "Use ring positions on periodic axes, or a context loss.")
    if health["rank"] < low_rank(width):
        return Verdict("collapsing", f"features fill only {health['rank']:.1f} of {width} directions", gentler)
    if health["read_u"] < LOW_READ:
        reason = f"the field can hardly be read from the features (R^2 {health['read_u']:.2f})"
        return Verdict("collapsing", reason, "Train longer, or add a context loss (pretrain.context_weight=0.5).")
    return Verdict("healthy", f"rank {health['rank']:.0f} of {width}, field read-out R^2 {health['read_u']:.2f}")
