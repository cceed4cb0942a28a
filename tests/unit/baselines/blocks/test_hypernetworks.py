"""Layers whose weights depend on a code: row by row the plain layer with the weights of the formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pdejepa.baselines.blocks.autoencoder import pad
from pdejepa.baselines.blocks.hypernetworks import (
    Code,
    CodedConv,
    CodedSpectral,
    Codes,
    Coding,
    FourierNet,
    FourierShape,
    Swish,
)
from tests.unit.baselines.token_solvers import shaken, task_of


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("padding", ["circular", "zeros", "reflect"])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("grid", [(12,), (8, 6)])
@pytest.mark.parametrize("form", ["full", "low"])
def test_every_row_has_its_own_convolution(
    padding: str, kernel: int, dilation: int, grid: tuple[int, ...], form: str
) -> None:
    made = CodedConv(2, 3, kernel, len(grid), Coding(4, form), padding, dilation)  # type: ignore[arg-type]
    x, code = noise(5, 2, *grid), noise(5, 4)
    conv = functional.conv1d if len(grid) == 1 else functional.conv2d
    for row, y in enumerate(made(x, Code(code))):
        directions = (
            made.directions.full if form == "full" else made.directions.A[:, None] * made.directions.B[:, :, None]
        )  # (d,O,I,k..)
        weight = made.weight + sum(code[row, d] * directions[d] for d in range(4))
        bias = made.bias + sum(code[row, d] * made.bias_directions[d] for d in range(4))
        margins = pad(x[row : row + 1], dilation * (kernel // 2), made.padding)
        expected = conv(margins, weight, bias, dilation=dilation)[0]
        torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


def test_what_layers_make_of_a_code_is_made_once() -> None:
    made, code, calls = CodedConv(2, 3, 3, 1, Coding(4)), Code(noise(5, 4)), []
    code.once(made, lambda values: calls.append(values))
    code.once(made, lambda values: calls.append(values))
    assert len(calls) == 1
    assert calls[0] is code.values


@pytest.mark.parametrize("form", ["full", "low"])
def test_no_code_and_code_zero_are_the_plain_network(form: str) -> None:
    task = task_of("combined", 64)
    net = shaken(FourierNet(1, 1, FourierShape(6, 4, 2), task, Coding(3, form)))  # type: ignore[arg-type]
    x = noise(2, 1, 64)
    torch.testing.assert_close(net(x, Code(torch.zeros(2, 3))), net(x), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(net(x, Code(torch.ones(2, 3))), net(x), atol=1e-3)


def test_full_spectral_directions_add_to_the_weights() -> None:
    made, x, code = CodedSpectral(2, 3, (3, 3), Coding(2, "full")), noise(2, 2, 8, 8), noise(2, 2)
    torch.nn.init.normal_(made.full)
    y = made(x, Code(code))
    with torch.no_grad():
        made.conv.weight += code[1, 0] * made.full[0] + code[1, 1] * made.full[1]
    torch.testing.assert_close(y[1:], made(x[1:]), atol=1e-4, rtol=1e-4)


def test_swish() -> None:
    made, x, code = Swish(Coding(2)), noise(3, 2, 5), noise(3, 2)
    torch.nn.init.normal_(made.slope_directions)
    slope = functional.softplus(0.5 + code[1] @ made.slope_directions)
    torch.testing.assert_close(made(x, Code(code))[1], x[1] * torch.sigmoid(x[1] * slope) / 1.1)


def test_codes_start_at_zero_and_are_found_by_environment() -> None:
    codes = Codes(4, 2)
    assert not bool(codes.table.any())
    codes = shaken(codes)
    assert torch.equal(codes(torch.tensor([3, 0, 3])), codes.table[[3, 0, 3]])
