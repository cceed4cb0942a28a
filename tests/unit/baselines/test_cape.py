"""CAPE: its size, how it reads parameters, its curriculum and its two stages."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.baselines.baseline import mean_frame_error
from pdejepa.baselines.cape import Cape, free_frames, spans_a_decade
from tests.unit.baselines.token_solvers import count, on_meta, parameters, rough, shaken, task_of


def small(name: str = "combined") -> Cape:
    task = task_of(name, 64 if name == "combined" else 0)
    torch.manual_seed(0)
    return shaken(Cape(Cape.recipe("tiny", task).model, task))


def fourier(n_dim: int, n_in: int, n_out: int) -> int:
    """FNO of width 20 with 12 modes, by hand: spectral weights, local ones, lift, and a head of 128."""
    spectral = 2 ** (n_dim - 1) * 20 * 20 * 12**n_dim * 2
    return 4 * (spectral + 20 * 20 + 20) + (n_in + n_dim) * 20 + 20 + 20 * 128 + 128 + 128 * n_out + n_out


def module(n_dim: int, n_channels: int, n_parameters: int) -> int:
    """lift and depthwise of 5 points, spectral of 6 modes, two 1x1, three networks of xi, projection and norm."""
    taps = 5**n_dim
    lift, depthwise = n_channels * 64 * taps + 64, 64 * taps + 64
    spectral = 2 ** (n_dim - 1) * 64 * 64 * 6**n_dim * 2
    scales = 3 * (n_parameters * 64 + 64 + 64 * 64 + 64)
    return lift + depthwise + spectral + 2 * (64 * 64 + 64) + scales + 64 * n_channels + n_channels + 2 * n_channels


@pytest.mark.parametrize("name", ["advection", "gray_scott"])
def test_size(name: str) -> None:
    solver = on_meta(Cape, name)
    assert isinstance(solver, Cape)
    C, P, ndim = solver.task.n_channels, solver.task.n_parameters, solver.task.ndim
    assert count(solver.base) == fourier(ndim, 2 * C, C)
    assert count(solver.module) == module(ndim, C, P)


def test_decades_are_read_by_their_logarithm() -> None:
    """Viscosity from 1e-5 to 1e-3 of HeterNS: the ends are -1 and 1, the middle of the decades is 0."""
    assert [spans_a_decade(p) for p in systems.get("heterns").parameters] == [True, False]
    assert [spans_a_decade(p) for p in systems.get("combined").parameters] == [False] * 3
    task = task_of("heterns")
    solver = Cape(Cape.recipe("tiny", task).model, task)
    xi = torch.tensor([[1e-5, 1.0], [1e-4, 2.0], [1e-3, 3.0]], dtype=torch.float64)
    read = solver.scaled(xi)
    torch.testing.assert_close(read[:, 0], torch.tensor([-1.0, 0.0, 1.0]), atol=1e-6, rtol=0.0)
    torch.testing.assert_close(read[:, 1], solver.standardised(xi)[:, 1])
    assert bool(solver.scaled(torch.zeros(1, 2)).isfinite().all())


def test_the_share_of_forecasts_that_are_read_again() -> None:
    shares = torch.tensor([0.0, 0.5, 1.0])
    expected = torch.tensor([0.0, 10 * math.tanh(1.0) / math.tanh(2.0), 10.0])
    torch.testing.assert_close(free_frames(shares, 10), expected, atol=1e-3, rtol=0.0)
    assert bool(free_frames(shares[2], 10) >= 10)
    assert not bool(free_frames(shares[0], 10) >= 1)


def batch(share: float, noise: float = 0.0) -> dict[str, Tensor]:
    u = rough("combined", 2, 4, 64)
    return {"u": u, "xi": parameters("combined", 2), "share": torch.tensor(share), "noise": torch.full_like(u, noise)}


def test_from_true_frames_first_and_from_forecasts_last() -> None:
    solver = small()
    u, gains = batch(0.0)["u"], solver.adapt(xi=batch(0.0)["xi"])["gains"]
    single = [solver.step(u[:, t], gains) for t in range(3)]
    rolled = [solver.step(u[:, 0], gains)]
    for _ in range(2):
        rolled.append(solver.step(rolled[-1][0], gains))
    for share, frames in ((0.0, single), (1.0, rolled)):
        parts = solver.loss("fit", batch(share))
        error, early = (mean_frame_error(torch.stack([f[k] for f in frames], 1), u[:, 1:]) for k in (0, 1))
        torch.testing.assert_close(parts["frames"], error)
        torch.testing.assert_close(parts["loss"], error + 5.7e-5 * early)


def test_noise_is_read_but_not_a_target() -> None:
    solver = small()
    solver.config = type(solver.config)(noise=0.1)
    u, gains = batch(0.0)["u"], solver.adapt(xi=batch(0.0)["xi"])["gains"]
    frames = [solver.step(u[:, t] + 0.2, gains)[0] for t in range(3)]
    torch.testing.assert_close(
        solver.loss("fit", batch(0.0, noise=2.0))["frames"], mean_frame_error(torch.stack(frames, 1), u[:, 1:])
    )


def test_the_module_is_trained_alone_at_first() -> None:
    solver, recipe = small(), Cape.recipe("paper", task_of("combined"))
    assert set(solver.trained("warm-up")) == {"module"}
    assert set(solver.trained("fit")) == {"module", "base"}
    assert [(s.name, s.training.budget.epochs, s.share) for s in recipe.stages] == [
        ("warm-up", 3, 0.03),
        ("fit", 97, 0.97),
    ]


@pytest.mark.parametrize("name", ["combined", "gray_scott"])
def test_channels_are_scaled_by_the_parameters(name: str) -> None:
    """With all scales at zero the module no longer knows the parameters."""
    solver = small(name)
    u, xi = rough(name, 2, 1, 64 if name == "combined" else 0)[:, 0], parameters(name, 2)
    module = solver.module

    def answers() -> list[Tensor]:
        return [module(u, solver.adapt(xi=values)["gains"]) for values in (xi, 2 * xi)]

    assert not torch.allclose(*answers(), atol=1e-4)
    with torch.no_grad():
        for scale in module.scales:
            scale[2].weight.zero_()
            scale[2].bias.zero_()
    assert torch.equal(*answers())
