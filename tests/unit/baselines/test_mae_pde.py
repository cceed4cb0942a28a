"""MAE-PDE: the sizes of its two networks, masking, gains, push-forward and who is trained when."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.mae_pde import FORECAST, MASK, ConditionedLayer, MaePde
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of


def tiny(name: str = "combined") -> MaePde:
    task = task_of(name, 64 if name == "combined" else 0)
    torch.manual_seed(0)
    return MaePde(MaePde.recipe("tiny", task).model, task)


@pytest.mark.parametrize(
    ("name", "masked", "forecaster"),
    [("advection", 1.34, 0.95), ("gray_scott", 1.39, 4.89), ("heterns", 1.40, 10.95), ("wave_2d", 1.41, 10.95)],
)
def test_sizes(name: str, masked: float, forecaster: float) -> None:
    solver = on_meta(MaePde, name)
    autoencoder, fno = (
        sum(count(getattr(solver, part)) for part in parts) / 1e6
        for parts in (("encoder", "decoder"), ("lift", "layers", "head"))
    )
    assert (round(autoencoder, 2), round(fno, 2)) == (masked, forecaster)
    assert count(solver.condition) == 192 * 64 + 64


@pytest.mark.parametrize(("name", "n", "n_seen"), [("advection", 160, 40), ("gray_scott", 320, 32)])
def test_shares_of_visible_patches(name: str, n: int, n_seen: int) -> None:
    solver = on_meta(MaePde, name)
    assert (solver.n_tokens, solver.n_seen) == (n, n_seen)


def test_each_stage_moves_its_own_parts() -> None:
    solver = tiny()
    both = [set(solver.trained(stage)) for stage in (MASK, FORECAST)]
    assert both == [{"encoder", "decoder"}, {"condition", "lift", "layers", "head"}]
    assert both[0] | both[1] == {name for name, _ in solver.named_children()}


@pytest.mark.parametrize("modes", [(3,), (3, 2)])
def test_a_fresh_layer_is_a_plain_one(modes: tuple[int, ...]) -> None:
    """Gains of one leave the spectral convolutions alone, whatever the condition."""
    layer = ConditionedLayer(4, modes, 5)
    layer.start()
    h, c = torch.randn(2, 4, *[8] * len(modes)), torch.randn(2, 5)
    bias = layer.bias(c).reshape(2, 4, *[1] * len(modes))
    plain = torch.nn.functional.gelu(layer.spectral[0](h) + layer.local[0](h) + bias)
    plain = torch.nn.functional.gelu(layer.spectral[1](plain) + layer.local[1](plain))
    torch.testing.assert_close(layer(h, c), plain)
    assert not torch.allclose(shaken(layer)(h, c), layer(h, c + 1.0))


def test_a_gain_turns_its_mode() -> None:
    """A gain of i on mode 1 shifts that wave by a quarter of its length before the mixing."""
    layer = ConditionedLayer(1, (3,), 1)
    layer.start()
    with torch.no_grad():
        layer.gains[0].bias.view(1, 1, 3, 2)[0, 0, 1] = torch.tensor([0.0, 1.0])
    x = torch.arange(16) * (2 * torch.pi / 16)
    gain = torch.view_as_complex(layer.gains[0](torch.zeros(1, 1)).reshape(1, 1, 1, 3, 2))
    turned = layer.spectral[0](x.cos()[None, None], gain=gain)
    torch.testing.assert_close(turned, layer.spectral[0](-x.sin()[None, None]), rtol=1e-4, atol=1e-5)


def test_only_masked_patches_count() -> None:
    """The loss is the mean square error at the masked patches, and these are not seen."""
    solver, u = tiny(), rough("combined", 2, 5, 64)
    noise = torch.rand(2, solver.n_tokens)
    masked = noise.argsort(1)[:, solver.n_seen :]
    with torch.no_grad():
        for p in (solver.decoder.head.weight, solver.decoder.head.bias):
            p.zero_()
    squares = solver.cut.split(u).square().mean(-1).gather(1, masked)
    torch.testing.assert_close(solver.loss(MASK, {"u": u, "noise": noise})["loss"], squares.mean())


def test_push_forward() -> None:
    solver, u = shaken(tiny()), rough("combined", 2, 7, 64)
    start = solver._pushed(u, torch.tensor([0, -5]))
    assert torch.equal(start[:, :4], u[:, 1:5])
    torch.testing.assert_close(start[0, 4], solver.step(u[:, :5])[0].detach())
    assert torch.equal(start[1, 4], u[1, 5])  # six times the first frame, and the second: what is given stays as it is
    assert not start.requires_grad

    def loss(frames: Tensor, first: int) -> float:
        return float(solver.loss(FORECAST, {"u": frames, "frame": torch.full((2,), first)})["loss"].detach())

    assert loss(u, 0) != loss(u[:, 1:], 0)
    assert loss(u, -5) == loss(u[:, 1:], -4)


def test_half_of_the_batches_are_pushed_forward() -> None:
    solver = tiny()
    windows = [solver.window(FORECAST, step / 400) for step in range(400)]
    lengths = [window.n_frames for window in windows]
    assert set(lengths) == {6, 7}
    assert 160 < lengths.count(7) < 240
    assert {window.n_frames - window.lead for window in windows} == {2}  # the last frame is any but the first
    assert solver.window(MASK, 0.5).n_frames == 5


def test_the_encoder_is_frozen_in_forecasts() -> None:
    solver, u = shaken(tiny()), rough("combined", 2, 7, 64)
    solver.loss(FORECAST, {"u": u, "frame": torch.zeros(2)})["loss"].backward()
    assert all(p.grad is None for p in solver.encoder.parameters())
    assert all(p.grad is not None for p in solver.condition.parameters())


@torch.no_grad()
def test_features_of_a_frame_hold_no_future() -> None:
    solver, u = shaken(tiny("gray_scott")), rough("gray_scott", 2, 6)
    z = solver.encode(u)
    assert z.shape == (2, 6, 16, 16)
    changed = u.clone()
    changed[:, 4] = changed[:, 4].flip(-1)  # another form: level and spread of a window are divided out
    after = solver.encode(changed)
    torch.testing.assert_close(after[:, :4], z[:, :4])
    assert all(not torch.allclose(after[:, t], z[:, t]) for t in (4, 5))


def test_fast_cuts_planes_into_eight_by_eight() -> None:
    task = task_of("vorticity")
    assert (MaePde.recipe("fast", task).model.patch, MaePde.recipe("paper", task).model.patch) == (16, 8)


def test_nothing_visible_is_refused() -> None:
    task = task_of("combined", 64)
    config = dataclasses.replace(MaePde.recipe("tiny", task).model, masked=1.0)
    with pytest.raises(ConfigError, match="must leave some, not all, visible"):
        MaePde(config, task)
