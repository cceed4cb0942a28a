"""Networks whose weights depend on a code of the environment, for CoDA and GEPS.

    every weight   W(c) = W + sum_d c_d D_d        D_d any tensor ("full"), or D_d = A_d B_d with one factor over the
                                                   channels in and one over the channels out ("low")
    every bias     b(c) = b + sum_d c_d e_d
    Swish          s(x) = x sigmoid(x softplus(b(c))) / 1.1

Rows of a batch may belong to different environments: every row has its own weights.  On lines, and for kernels of one
point, they are built, and multiplied with the points that a kernel sees.  Larger kernels on planes do not build them:
with c_0 = 1 and D_0 = W they are one convolution by all D_d, summed with weights c_d.  Without a code (`Coding()`) the
layers are the plain ones.
Letters: B rows, d numbers of a code, I channels in, O channels out, k size of a kernel, *grid spatial axes, m modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.autoencoder import pad
from pdejepa.baselines.blocks.fourier_layers import SpectralConv, unit_coordinates
from pdejepa.baselines.task import Task
from pdejepa.systems.problem import Padding

T = TypeVar("T")


@dataclass(frozen=True)
class Coding:
    """How weights depend on the code: its size (0: not at all), and the form of their directions."""

    size: int = 0
    form: Literal["full", "low"] = "full"


class Code:
    """A code (B,d), and what layers have made of it: in a rollout once, not in every step."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._made: dict[nn.Module, Any] = {}

    def once(self, layer: nn.Module, make: Callable[[Tensor], T]) -> T:
        if layer not in self._made:
            self._made[layer] = make(self.values)
        made: T = self._made[layer]
        return made


class Directions(nn.Module):
    """In which directions a code moves a tensor (O,I,*rest): (d,O,I,*rest); with form "low" D_doi = A_di B_do."""

    def __init__(self, shape: tuple[int, ...], coding: Coding, scale: float) -> None:
        super().__init__()
        self.coding = coding
        d, (n_out, n_in, *rest) = coding.size, shape
        if coding.form == "full":
            self.full = nn.Parameter(scale * (2 * torch.rand(d, *shape) - 1))
        else:
            self.A = nn.Parameter(nn.init.orthogonal_(torch.empty(d, n_in, *rest)))
            self.B = nn.Parameter(nn.init.orthogonal_(torch.empty(d, n_out, *rest)))

    def forward(self) -> Tensor:
        return self.full if self.coding.form == "full" else self.A[:, None] * self.B[:, :, None]


class CodedConv(nn.Module):
    """A convolution (B,I,*grid) -> (B,O,*grid) of odd kernel size, whose points are `dilation` apart."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: int,
        ndim: int,
        coding: Coding,
        padding: Padding = "circular",
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.kernel, self.ndim, self.coding, self.padding, self.dilation = kernel, ndim, coding, padding, dilation
        shape = (n_out, n_in, *[kernel] * ndim)
        bound = (n_in * kernel**ndim) ** -0.5
        self.weight = nn.Parameter(bound * (2 * torch.rand(shape) - 1))
        self.bias = nn.Parameter(bound * (2 * torch.rand(n_out) - 1))
        if coding.form == "low":
            nn.init.orthogonal_(self.weight)
        if coding.size:
            self.directions = Directions(shape, coding, bound)
            self.bias_directions = nn.Parameter(bound * (2 * torch.rand(coding.size, n_out) - 1))

    def forward(self, x: Tensor, code: Code | None = None) -> Tensor:
        conv = nn.functional.conv1d if self.ndim == 1 else nn.functional.conv2d
        grid = x.shape[2:]
        x = pad(x, self.dilation * (self.kernel // 2), self.padding)
        if code is None or not self.coding.size:
            return conv(x, self.weight, self.bias, dilation=self.dilation)
        if self.is_product:
            weight, bias = code.once(self, self._built)
            return (weight @ self._columns(x)).unflatten(2, grid) + bias
        gains, weight, bias = code.once(self, self._spread)
        y = conv(x, weight, dilation=self.dilation)  # (B,(1+d)O,*grid)
        mixed = gains @ y.reshape(len(x), gains.shape[2], -1)  # (B,1,O*points)
        return mixed.reshape(len(x), -1, *grid) + bias

    @property
    def is_product(self) -> bool:
        """Whether every row's own weights are built; on planes what 9 or 49 points see would take too much memory."""
        return self.ndim == 1 or self.kernel == 1

    def _columns(self, x: Tensor) -> Tensor:
        """What the kernel sees at every point, (B,I k,points), of fields with margins (B,I,...)."""
        if self.kernel == 1:
            return x.flatten(2)
        n = x.shape[2] - self.dilation * (self.kernel - 1)
        return x.unfold(2, n, self.dilation).flatten(1, 2)  # k windows, each as long as the grid

    def _built(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (B,O,I k) and biases (B,O,1..) of every row."""
        gains, directions = self._parts(code)
        return (gains @ directions.flatten(1)).reshape(len(code), len(self.bias), -1), self._biases(code)

    def _spread(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1, c) as (B,1,1+d), weights ((1+d)O,I,k..), biases (B,O,1..)."""
        gains, directions = self._parts(code)
        return gains[:, None], directions.flatten(0, 1), self._biases(code)

    def _parts(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """(1, c) as (B,1+d) and (W, D) as (1+d,O,I,k..): their product is W(c)."""
        gains = torch.cat((torch.ones_like(code[:, :1]), code), 1)
        return gains, torch.cat((self.weight[None], self.directions()))

    def _biases(self, code: Tensor) -> Tensor:
        bias = self.bias + code @ self.bias_directions
        return bias.reshape(*bias.shape, *[1] * self.ndim)


class CodedSpectral(nn.Module):
    """A spectral convolution (B,I,*grid) -> (B,O,*grid); "low": real factors A and B at every mode and corner."""

    def __init__(self, n_in: int, n_out: int, modes: tuple[int, ...], coding: Coding) -> None:
        super().__init__()
        self.coding, self.conv = coding, SpectralConv(n_in, n_out, modes)
        corners, scale = self.conv.n_corners, 1.0 / (n_in * n_out)
        if coding.size and coding.form == "full":
            self.full = nn.Parameter(scale * (2 * torch.rand(coding.size, *self.conv.weight.shape) - 1))
        elif coding.size:
            self.A = nn.Parameter(scale**0.5 * (2 * torch.rand(coding.size, corners, n_in, *modes) - 1))
            self.B = nn.Parameter(scale**0.5 * (2 * torch.rand(coding.size, corners, n_out, *modes) - 1))

    def forward(self, x: Tensor, code: Code | None = None) -> Tensor:
        if code is None or not self.coding.size:
            return self.conv(x)
        if self.coding.form == "low":
            return self.conv(x, factors=(self.A, self.B, code.values))
        return self.conv(x, delta=code.once(self, self._delta))

    def _delta(self, code: Tensor) -> Tensor:
        """(B,corners,I,O,m..), complex."""
        return torch.view_as_complex((code @ self.full.flatten(1)).unflatten(1, self.full.shape[1:]))


class Swish(nn.Module):
    """x sigmoid(x softplus(b + w c)) / 1.1 with learned b, from 0.5, and w, from 0."""

    def __init__(self, coding: Coding) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.full((1,), 0.5))
        if coding.size:
            self.slope_directions = nn.Parameter(torch.zeros(coding.size))

    def forward(self, x: Tensor, code: Code | None = None) -> Tensor:
        if code is None or not hasattr(self, "slope_directions"):
            slope = nn.functional.softplus(self.slope)
        else:
            slope = code.once(self, self._slopes).reshape(-1, *[1] * (x.ndim - 1))  # (B,1,..)
        return x * torch.sigmoid(x * slope) / 1.1

    def _slopes(self, code: Tensor) -> Tensor:
        return nn.functional.softplus(self.slope + code @ self.slope_directions)


class Gelu(nn.Module):
    """What stands in the place of Swish where there is no code."""

    def forward(self, x: Tensor, code: Code | None = None) -> Tensor:
        return nn.functional.gelu(x)


@dataclass(frozen=True)
class FourierShape:
    """Sizes of a Fourier network: `kernel` of the local branch, `head` width before the output."""

    width: int
    modes: int
    depth: int = 4
    kernel: int = 1
    head: int = 128


class FourierNet(nn.Module):
    """(B,I,*grid) -> (B,O,*grid): lift of fields and coordinates, Fourier layers, head; as FNO, with coded weights.

        h <- act( SpectralConv(h) + W h )          without `act` in the last layer
    """

    coordinates: Tensor

    def __init__(self, n_in: int, n_out: int, shape: FourierShape, task: Task, coding: Coding) -> None:
        super().__init__()
        ndim, w = task.ndim, shape.width
        self.register_buffer("coordinates", unit_coordinates(task.grid), persistent=False)  # (ndim,*grid)
        self.lift = CodedConv(n_in + ndim, w, 1, ndim, coding)
        self.spectral = nn.ModuleList(CodedSpectral(w, w, (shape.modes,) * ndim, coding) for _ in range(shape.depth))
        self.local = nn.ModuleList(
            CodedConv(w, w, shape.kernel, ndim, coding, task.padding) for _ in range(shape.depth)
        )
        # One per layer; the last layer has none, so the last one is the head's.
        self.act = nn.ModuleList(Swish(coding) if coding.size else Gelu() for _ in range(shape.depth))
        self.hidden = CodedConv(w, shape.head, 1, ndim, coding)
        self.head = CodedConv(shape.head, n_out, 1, ndim, coding)

    def forward(self, x: Tensor, code: Code | None = None) -> Tensor:
        h = torch.cat((x, self.coordinates.expand(len(x), *self.coordinates.shape)), 1)
        h = self.lift(h, code)
        for number, (spectral, local) in enumerate(zip(self.spectral, self.local, strict=True)):
            h = spectral(h, code) + local(h, code)
            if number < len(self.spectral) - 1:
                h = self.act[number](h, code)
        return self.head(self.act[-1](self.hidden(h, code), code), code)


class Codes(nn.Module):
    """One code (d,) for each of E environments, from zero."""

    def __init__(self, n_environments: int, size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(n_environments, size))

    def forward(self, environment: Tensor) -> Tensor:
        return self.table.index_select(0, environment)  # (B,d)
