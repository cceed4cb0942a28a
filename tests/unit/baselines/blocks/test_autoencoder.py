"""Blocks of autoencoders: what a shift does on a ring, what attention may see, and that nothing sees the future."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import nn

from pdejepa import baselines
from pdejepa.baselines.blocks import autoencoder
from pdejepa.baselines.blocks.autoencoder import (
    AxisAttention,
    CausalDecoder,
    CausalEncoder,
    Down,
    FullAttention,
    ResBlock,
    Up,
    conv,
    pad,
    per_frame,
    working_grid,
)
from tests.unit.baselines.token_solvers import rough, shaken, task_of


@pytest.mark.parametrize("ndim", [1, 2])
def test_on_a_ring_a_shift_stays_a_shift(ndim: int) -> None:
    net = nn.Sequential(
        ResBlock(ndim, 4, 6, 2, "circular"),
        Down(ndim, 6, "circular"),
        conv(ndim, 6, 4, 4, "circular", stride=2),
        conv(ndim, 4, 4, 3, "circular", dilation=2),
        Up(ndim, 4, 4, "circular"),
    )
    x = torch.randn(2, 4, *[16] * ndim)
    assert net(x).shape == (2, 4, *[8] * ndim)
    torch.testing.assert_close(net(x.roll(4, 2)), net(x).roll(2, 2))


@pytest.mark.parametrize("options", [{}, {"kernel": 5}, {"kernel": 4, "stride": 2}, {"dilation": 2}, {"kernel": 1}])
@pytest.mark.parametrize("ndim", [1, 2])
def test_a_ring_is_convolved_as_by_pytorch(ndim: int, options: dict[str, int]) -> None:
    made = conv(ndim, 3, 4, padding="circular", **options)  # type: ignore[arg-type]
    kernel, stride, dilation = options.get("kernel", 3), options.get("stride", 1), options.get("dilation", 1)
    margin = dilation * ((kernel - 1) // 2)
    kind = nn.Conv1d if ndim == 1 else nn.Conv2d
    pytorchs = kind(3, 4, kernel, stride, margin, dilation, padding_mode="circular")
    pytorchs.load_state_dict(made.state_dict())
    x = torch.randn(2, 3, *[8] * ndim)
    torch.testing.assert_close(made(x), pytorchs(x))


@pytest.mark.parametrize("padding", ["circular", "zeros", "reflect"])
@pytest.mark.parametrize(("shape", "first"), [((7,), 2), ((5, 8), 2), ((4, 7), 3), ((4, 7, 6), 3)])
def test_padding_is_pytorchs(padding: str, shape: tuple[int, ...], first: int) -> None:
    x, mode = torch.randn(2, 3, *shape), {"zeros": "constant"}.get(padding, padding)
    expected = nn.functional.pad(x, (2, 2) * (x.ndim - first) + (0, 0) * (first - 2), mode)
    assert torch.equal(pad(x, 2, padding, first), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
def test_without_a_ring_the_ends_are_two_ends(padding: str) -> None:
    net = nn.Sequential(Down(1, 3, padding), Up(1, 3, 3, padding))  # type: ignore[arg-type]
    x = torch.randn(1, 3, 16)
    changed = x.clone()
    changed[..., -1] += 1.0
    assert torch.equal(net(x)[..., 0], net(changed)[..., 0])


def test_attention_without_positions_does_not_know_places() -> None:
    order = torch.randperm(6)
    for net in (FullAttention(8, 2, 4, 2), AxisAttention(8, 2, 2)):
        x = torch.randn(2, 8, 6, 5)
        torch.testing.assert_close(net(x[:, :, order]), net(x)[:, :, order])
        assert not torch.allclose(net(x), x)
    placed, x = FullAttention(8, 2, 4, 2, (6,)), torch.randn(2, 8, 6)
    assert not torch.allclose(placed(x[:, :, order.flip(0)]), placed(x)[:, :, order.flip(0)], atol=1e-6)


def test_axis_attention_with_even_weights_is_a_mean() -> None:
    """Queries of zero weigh all places alike, so only the mean over the plane reaches the output."""
    net = AxisAttention(4, 2, 2)
    for linear in net.queries:
        nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
    x = torch.randn(1, 4, 6, 5)
    added = net(x) - x
    torch.testing.assert_close(added, added[:, :, :1, :1].expand_as(added))
    y = net.start(net.norm(x).movedim(1, -1))
    torch.testing.assert_close(added[0, :, 0, 0], net.out(net.value(y).mean((1, 2)))[0])


@pytest.mark.parametrize("ndim", [1, 2])
def test_nothing_sees_the_future(ndim: int) -> None:
    encoder = CausalEncoder(ndim, 2, 6, 4, 2, "circular")
    decoder = CausalDecoder(ndim, 6, 2, 4, 2, "circular")
    u = torch.randn(2, 2, 5, *[8] * ndim)
    changed = u.clone()
    changed[:, :, 3] += 1.0
    z, z_changed = encoder(u), encoder(changed)
    assert z.shape == (2, 6, 5, *[2] * ndim)
    torch.testing.assert_close(z[:, :, :3], z_changed[:, :, :3])
    assert not torch.allclose(z[:, :, 3], z_changed[:, :, 3])
    torch.testing.assert_close(encoder(u[:, :, :1]), z[:, :, :1])  # one frame is the beginning of a clip
    u_hat, u_changed = decoder(z), decoder(z_changed)
    assert u_hat.shape == u.shape
    torch.testing.assert_close(u_hat[:, :, :3], u_changed[:, :, :3])
    torch.testing.assert_close(decoder(encoder(u.roll(4, 3))), u_hat.roll(4, 3))


def test_frames_are_folded_and_unfolded() -> None:
    u = torch.randn(2, 3, 1, 8)
    torch.testing.assert_close(per_frame(nn.Flatten(), u, (8,)), u.flatten(2))


def test_many_frames_go_through_in_parts() -> None:
    u, sizes = torch.randn(3, 4, 1, 8), []

    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return 2 * x

    with mock.patch.object(autoencoder, "MAX_VALUES", 40 * 64):
        torch.testing.assert_close(per_frame(Counted(), u, (8,)), 2 * u)
    assert sizes == [5, 5, 2]


def test_a_coarser_grid_keeps_what_it_can_show() -> None:
    task = task_of("vorticity")
    grid, lift = working_grid(task, 64)
    assert grid == (64, 64)
    x = 2 * torch.pi * torch.arange(128) / 128
    u = (torch.sin(5 * x)[:, None] * torch.cos(20 * x) + 0.3).float()[None]
    coarse = lift(u)
    torch.testing.assert_close(coarse, u[:, ::2, ::2], atol=1e-5, rtol=0)
    torch.testing.assert_close(lift.inverse(coarse), u, atol=1e-5, rtol=0)
    assert working_grid(task_of("gray_scott"), 64)[0] == (32, 32)


@pytest.mark.parametrize("name", ["lns", "zebra"])
@torch.no_grad()
def test_no_error_is_divided_by_a_frame_at_rest(name: str) -> None:
    """u_t of Wave-2D is zero at the start; a ratio to it would be all that an autoencoder learns from."""
    task, kind = task_of("wave_2d", 32), baselines.get(name)
    solver, u = shaken(kind(kind.recipe("tiny", task).model, task)), rough("wave_2d", 2, 2, 32)
    usual = solver.loss(kind.card.stages[0], {"u": u})["loss"]
    u[:, 0, 1] = 1e-4
    assert float(solver.loss(kind.card.stages[0], {"u": u})["loss"]) < 30 * float(usual)
