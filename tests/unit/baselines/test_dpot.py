"""DPOT-S: names and shapes of the published network, its layers by hand, and its buffer."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.baseline import mean_frame_error
from pdejepa.baselines.dpot import Block, Dpot, DpotConfig, DpotNet, TimeAggregator
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, shape_hash, task_of

SMALL = Dpot.recipe("tiny", task_of("combined", 64)).model


def small(name: str = "combined", **changes: int) -> Dpot:
    torch.manual_seed(0)
    return shaken(Dpot(dataclasses.replace(SMALL, **changes), task_of(name, 64 if name == "combined" else 0)))


# ---- size and names ------------------------------------------------------------------------------------------------
def test_names_and_shapes_are_the_published_ones() -> None:
    with torch.device("meta"):
        net = DpotNet(DpotConfig())
    assert len(net.state_dict()) == 91
    assert shape_hash(net) == "ca3bf885209de953"


@pytest.mark.parametrize("name", ["combined", "vorticity", "gray_scott"])
def test_size(name: str) -> None:
    solver = on_meta(Dpot, name)
    assert isinstance(solver, Dpot)
    assert round(count(solver) / 1e6, 2) == 30.80
    assert round(count(solver.net.cls_head) / 1e6, 2) == 2.11


def test_all_but_the_class_head_is_trained() -> None:
    solver = small()
    moved = {id(p) for module in solver.trained("fit").values() for p in module.parameters()}
    idle = [name for name, p in solver.named_parameters() if id(p) not in moved]
    assert idle == [f"net.cls_head.{n}.{kind}" for n in (0, 2, 4) for kind in ("weight", "bias")]


# ---- layers --------------------------------------------------------------------------------------------------------
def test_frames_are_weighted_by_waves_of_time() -> None:
    """Of z = W h + c, which is never made."""
    made, draws = shaken(TimeAggregator(3, 4)), torch.Generator().manual_seed(1)
    h, W, c = (torch.randn(shape, generator=draws) for shape in ((2, 3, 5, 2, 2), (4, 5), (4, 2, 2)))
    z = torch.einsum("bthxy,ih->btixy", h, W) + c
    expected = sum(
        torch.einsum("bixy,ij->bjxy", z[:, t] * torch.cos(made.gamma[0] * t / 2)[:, None, None], made.w[t])
        for t in range(3)
    )
    torch.testing.assert_close(made(h, W, c), expected, atol=1e-5, rtol=1e-5)
    with torch.device("cpu"):
        gamma = TimeAggregator(2, 21).gamma[0]
    torch.testing.assert_close(gamma, 2.0 ** torch.arange(-10.0, 11.0))


def test_patches_are_projected_and_placed() -> None:
    """The network from its inputs to its blocks, one map after the other."""
    net = small().net
    u = torch.randn((2, SMALL.n_buffer, 4, 32, 32), generator=torch.Generator().manual_seed(1))
    x = torch.cat((u, net.coordinates.expand(2, *net.coordinates.shape)), 2)
    z = (net.patch_embed.proj(x.flatten(0, 1)) + net.pos_embed).unflatten(0, x.shape[:2])
    waves = torch.cos(net.time_agg_layer.time * net.time_agg_layer.gamma)
    z = torch.einsum("btixy,ti,tij->bjxy", z, waves, net.time_agg_layer.w)
    for block in net.blocks:
        z = block(z)
    torch.testing.assert_close(net(u), net.out_layer(z), atol=1e-5, rtol=1e-4)


def test_only_the_input_of_a_block_skips_it() -> None:
    made = shaken(Block(SMALL), 0.5)
    z = torch.randn((2, 16, 4, 4), generator=torch.Generator().manual_seed(1))
    y = made.norm1(z)
    torch.testing.assert_close(made(z), z + made.mlp(made.norm2(made.filter(y) + y)))
    with torch.no_grad():
        made.mlp[2].weight.zero_()
        made.mlp[2].bias.zero_()
    assert torch.equal(made(z), z)


def test_spare_slots_hold_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    solver, seen = small("gray_scott"), []

    def look(u: Tensor) -> Tensor:
        seen.append(u)
        return u[:, -1]

    monkeypatch.setattr(solver.net, "forward", look)
    u = rough("gray_scott", 2, 4)
    torch.testing.assert_close(solver.step(u), u[:, -1], atol=1e-6, rtol=1e-6)  # there and back
    assert seen[0].shape == (2, 4, 4, 32, 32)
    assert bool((seen[0][:, :, 2:] == 1).all())


# ---- the buffer ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [1, 2, 5])
def test_training_fills_the_buffer_as_a_forecast_does(target: int) -> None:
    """Frame 0 stands in for all frames before it."""
    solver, u = small(), rough("combined", 2, 7, 64)
    n = SMALL.n_buffer
    history = torch.cat((u[:, :1].expand(-1, n, -1, -1), u[:, :target]), 1)[:, -n:]
    history = torch.where(torch.tensor(target >= n), u[:, max(target - n, 0) : max(target - n, 0) + n], history)
    expected = mean_frame_error(solver.step(history)[:, None], u[:, target : target + 1])
    loss = solver.loss("fit", {"u": u, "target": torch.full((2,), target)})["loss"]
    torch.testing.assert_close(loss, expected)
    if target == 1:
        forecast = solver.rollout(u[:, :1], {}, 1)
        torch.testing.assert_close(mean_frame_error(forecast, u[:, 1:2]), loss)


def test_every_later_frame_is_a_target() -> None:
    solver, u = small(), rough("combined", 1, 7, 64).expand(400, -1, -1, -1)
    drawn = solver.draws("fit", {"u": u}, torch.Generator().manual_seed(0))["target"]
    assert set(drawn.tolist()) == set(range(1, 7))
