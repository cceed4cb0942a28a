"""AViT, the axial vision transformer of MPP.

    x = (u - mean) / std                                over frames and space, for every row and channel
    x = W x + b                                         the field bag: one column of W per physical field
    x = stem(x)                                         convolutions 4, 2, 2 to patches of 16 x 16
    x <- x + g A_t(x)                                   attention over the frames of a place
    x <- x + g (A_x(x) + A_y(x)) / 2                    attention along each axis, with the same q, k and v
    x <- x + g Norm(Mlp(x))                             not normalised before, but after
    u_{t+1} = std head(x)[last frame] + mean            the stem mirrored by transposed convolutions

    A(x) = W_out Norm( softmax(LN(q) LN(k) / sqrt(d) + bias) v ),     q, k, v = W_in Norm(x)

bias: one number per head and bucket of distance; 32 buckets, exact below 8, logarithmic up to 32, one half of them for
each sign.  On a periodic axis distances go the short way round.
Ours differs: W has columns for the fields of the data set only, so the published factor sqrt(columns / fields) is 1.
Letters: B rows, T frames, C channels, X and Y points, w width, h and v tokens down and across, K heads, d head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError

PATCH = 16
N_BUCKETS = 32
NO_SPREAD = 1e-6  # of a channel that is constant up to rounding
FAR = 32  # from this distance on all tokens count as equally far
LAYER_SCALE = 1e-6
SpaceNormKind = Literal["std", "rms"]


@dataclass(frozen=True)
class AvitConfig:
    width: int = 768
    depth: int = 12
    heads: int = 12
    drop_path: float = 0.1
    norm: SpaceNormKind = "std"
    history: int = 16

    def __post_init__(self) -> None:
        if self.width % 4 or self.width % self.heads:
            raise ConfigError(f"width must be a multiple of 4 and of the heads ({self.heads}), got {self.width}")


class SpaceNorm(nn.Module):
    """x / spread over the tokens of a frame, per channel; the mean stays.  The bias has no use, as published.

    spread: the standard deviation, or the root mean square where a frame has so few tokens that they hardly differ.
    """

    bias: Tensor

    def __init__(self, width: int, kind: SpaceNormKind) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "std":
            spread = x.std((-2, -1), keepdim=True)
        else:
            spread = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) / math.sqrt(x.shape[-2] * x.shape[-1])
        return x / (spread + 1e-8) * self.weight[:, None, None]


class DistanceBias(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.relative_attention_bias = nn.Embedding(N_BUCKETS, heads)

    def forward(self, choice: Tensor) -> Tensor:
        """Buckets (n,n,N_BUCKETS), one of them 1 -> (K,n,n); a product is easier to record than a look-up."""
        return (choice @ self.relative_attention_bias.weight).permute(2, 0, 1)


class _Attention(nn.Module):
    """What time and space share: queries, keys and values from a normed map, and the way back."""

    def __init__(self, width: int, heads: int, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norms
        self.input_head = nn.Conv2d(width, 3 * width, 1)
        self.output_head = nn.Conv2d(width, width, 1)
        self.qnorm, self.knorm = (nn.LayerNorm(width // heads) for _ in range(2))
        self.rel_pos_bias = DistanceBias(heads)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n,w,h,v) -> queries, keys and values (n,K,d,h,v) each; channels are ordered (head, q k v, d)."""
        q, k, v = self.input_head(self.norm1(x)).unflatten(1, (self.heads, 3, -1)).unbind(2)
        return self._normed(self.qnorm, q), self._normed(self.knorm, k), v

    def join(self, x: Tensor) -> Tensor:
        """(n,K,d,h,v) -> (n,w,h,v)."""
        return self.output_head(self.norm2(x.flatten(1, 2)))

    @staticmethod
    def _normed(norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x.movedim(2, -1)).movedim(-1, 2)


class FrameNorm(nn.InstanceNorm2d):
    """The instance norm of PyTorch in plain operations, in the precision of its weights inside mixed precision too."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.weight.dtype)
            var, mean = torch.var_mean(x, (-2, -1), correction=0, keepdim=True)
            y = (x - mean) * torch.rsqrt(var + self.eps)
            return torch.addcmul(self.bias[:, None, None], y, self.weight[:, None, None])


class TimeAttention(_Attention):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, (FrameNorm(width, affine=True), FrameNorm(width, affine=True)))
        self.gamma = nn.Parameter(torch.full((width,), LAYER_SCALE))

    def forward(self, x: Tensor, choice: Tensor, keep: Tensor) -> Tensor:
        """x (B,T,w,h,v); choice (T,T,buckets); keep (B,1,1,1,1) switches rows off in training."""
        B, T = x.shape[:2]
        parts = [p.unflatten(0, (B, T)).permute(0, 4, 5, 2, 1, 3) for p in self.split(x.flatten(0, 1))]  # (B,h,v,K,T,d)
        y = attend(parts, self.rel_pos_bias(choice)).permute(0, 4, 3, 5, 1, 2)  # (B,T,K,d,h,v)
        y = self.join(y.flatten(0, 1)).unflatten(0, (B, T))
        return x + keep * self.gamma[:, None, None] * y


class SpaceAttention(_Attention):
    def __init__(self, width: int, heads: int, norm: SpaceNormKind) -> None:
        super().__init__(width, heads, (SpaceNorm(width, norm), SpaceNorm(width, norm)))
        self.gamma_att, self.gamma_mlp = (nn.Parameter(torch.full((width,), LAYER_SCALE)) for _ in range(2))
        self.mlp = _Mlp(width)
        self.mlp_norm = SpaceNorm(width, norm)

    def forward(self, x: Tensor, across: Tensor, down: Tensor, keep: tuple[Tensor, Tensor]) -> Tensor:
        """x (n,w,h,v), frames of all rows; across (v,v,buckets), down (h,h,buckets); keep two of (n,1,1,1)."""
        parts = self.split(x)
        rows = [p.permute(0, 3, 1, 4, 2) for p in parts]  # (n,h,K,v,d)
        columns = [p.permute(0, 4, 1, 3, 2) for p in parts]  # (n,v,K,h,d)
        y = attend(rows, self.rel_pos_bias(across)).permute(0, 2, 4, 1, 3)  # (n,K,d,h,v)
        y = y + attend(columns, self.rel_pos_bias(down)).permute(0, 2, 4, 3, 1)
        x = x + keep[0] * self.gamma_att[:, None, None] * self.join(y / 2)
        y = self.mlp_norm(self.mlp(x.movedim(1, -1)).movedim(-1, 1))
        return x + keep[1] * self.gamma_mlp[:, None, None] * y


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, norm: SpaceNormKind) -> None:
        super().__init__()
        self.temporal = TimeAttention(width, heads)
        self.spatial = SpaceAttention(width, heads, norm)

    def forward(self, x: Tensor, time: Tensor, across: Tensor, down: Tensor, keep: Tensor) -> Tensor:
        """x (B,T,w,h,v); keep (B,3) factors of the three parts of the block."""
        B, T = x.shape[:2]
        one = [part.reshape(B, 1, 1, 1, 1) for part in keep.unbind(1)]
        x = self.temporal(x, time, one[0])
        of_frames = (one[1].expand(B, T, 1, 1, 1).flatten(0, 1), one[2].expand(B, T, 1, 1, 1).flatten(0, 1))
        return self.spatial(x.flatten(0, 1), across, down, of_frames).unflatten(0, (B, T))


class FieldBag(nn.Module):
    """A linear map whose columns belong to physical fields."""

    def __init__(self, n_fields: int, width: int) -> None:
        super().__init__()
        made = nn.Linear(n_fields, width)
        self.weight, self.bias = made.weight, made.bias

    def forward(self, x: Tensor) -> Tensor:
        """(n,C,X,Y) -> (n,w,X,Y)."""
        return nn.functional.conv2d(x, self.weight[:, :, None, None], self.bias)


class Stem(nn.Module):
    def __init__(self, width: int, norm: SpaceNormKind) -> None:
        super().__init__()
        w = width // 4
        layers: list[nn.Module] = []
        for n_out, size in ((w, 4), (w, 2), (width, 2)):
            layers += [nn.Conv2d(w, n_out, size, size, bias=False), SpaceNorm(n_out, norm), nn.GELU()]
        self.in_proj = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.in_proj(x)  # (n,w/4,X,Y) -> (n,w,h,v)


class Head(nn.Module):
    def __init__(self, width: int, n_fields: int, norm: SpaceNormKind) -> None:
        super().__init__()
        w = width // 4
        layers: list[nn.Module] = []
        for n_in in (width, w):
            layers += [nn.ConvTranspose2d(n_in, w, 2, 2, bias=False), SpaceNorm(w, norm), nn.GELU()]
        self.out_proj = nn.Sequential(*layers)
        made = nn.ConvTranspose2d(w, n_fields, 4, 4)
        assert made.bias is not None
        self.out_kernel, self.out_bias = made.weight, made.bias

    def forward(self, x: Tensor) -> Tensor:
        """(n,w,h,v) -> (n,C,X,Y)."""
        return nn.functional.conv_transpose2d(self.out_proj(x), self.out_kernel, self.out_bias, stride=4)


class Avit(nn.Module):
    """Histories (B,T,C,X,Y) of up to `config.history` frames -> the next frame (B,C,X,Y)."""

    time: Tensor
    across: Tensor
    down: Tensor

    def __init__(self, config: AvitConfig, n_fields: int, plane: tuple[int, int], periodic: tuple[bool, bool]) -> None:
        super().__init__()
        if any(n % PATCH for n in plane) or math.prod(plane) < 2 * PATCH**2:
            raise ConfigError(f"AViT needs two or more patches of {PATCH} x {PATCH} points; got a grid {plane}.")
        self.config = config
        self.space_bag = FieldBag(n_fields, config.width // 4)
        self.embed = Stem(config.width, config.norm)
        self.blocks = nn.ModuleList(Block(config.width, config.heads, config.norm) for _ in range(config.depth))
        self.debed = Head(config.width, n_fields, config.norm)
        h, v = (n // PATCH for n in plane)
        axes = {"time": (config.history, False), "down": (h, periodic[0]), "across": (v, periodic[1])}
        for name, (n, is_periodic) in axes.items():
            self.register_buffer(name, bucket_choice(n, is_periodic), persistent=False)

    def forward(self, u: Tensor, keep: Tensor | None = None) -> Tensor:
        """u (B,T,C,X,Y); keep (B,depth,3): factors of the parts of every block, 1 where nothing is dropped."""
        B, T = u.shape[:2]
        std, mean = torch.std_mean(u, (1, 3, 4), keepdim=True)  # (B,1,C,1,1)
        std = torch.where(std > NO_SPREAD, std, 1.0) + 1e-7
        x = self.embed(self.space_bag(((u - mean) / std).flatten(0, 1))).unflatten(0, (B, T))  # (B,T,w,h,v)
        keep = u.new_ones(B, self.config.depth, 3) if keep is None else keep
        for number, block in enumerate(self.blocks):
            x = block(x, self.time[:T, :T], self.across, self.down, keep[:, number])
        return self.debed(x[:, -1]) * std[:, 0] + mean[:, 0]


def attend(parts: list[Tensor], bias: Tensor) -> Tensor:
    """Attention over axis -2 of queries, keys and values (..,K,n,d) with a bias (K,n,n)."""
    lead = parts[0].shape[:-3]
    q, k, v = (part.flatten(0, len(lead) - 1) for part in parts)
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]).unflatten(0, lead)


def bucket_choice(n: int, is_periodic: bool) -> Tensor:
    """(n,n,N_BUCKETS): 1 at the bucket of the distance from row i to column j, 0 elsewhere."""
    place = torch.arange(n, device="cpu")
    offset = place[None, :] - place[:, None]  # j - i
    if is_periodic:
        half = n // 2
        offset = torch.where(offset > half, offset - n, torch.where(offset < -half, offset + n, offset))
    return nn.functional.one_hot(bucket(offset), N_BUCKETS).float()


def bucket(offset: Tensor) -> Tensor:
    """The number of the bucket of signed distances: 0 .. 15 backwards, 16 .. 31 forwards; 8 exact ones in each half."""
    n_half, n_exact = N_BUCKETS // 2, N_BUCKETS // 4
    distance = offset.abs()
    share = torch.log(distance.clamp(min=1) / n_exact) / math.log(FAR / n_exact)
    far = (n_exact + (share * (n_half - n_exact)).long()).clamp(max=n_half - 1)
    return torch.where(distance < n_exact, distance, far) + n_half * (offset > 0)
