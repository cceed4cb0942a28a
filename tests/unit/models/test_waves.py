"""The exact field of linear waves: its basis, its solution in time, its structure, and what it needs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import ConfigError
from pdejepa.models.patches import PatchGrid
from pdejepa.models.surrogate import Surrogate
from pdejepa.models.waves import LinearWaves
from pdejepa.operators.bases import waves
from pdejepa.solve.oscillators import damped_waves
from pdejepa.systems.problem import Boundary
from tests.unit.forecast import tiny

EXACT = replace(tiny.CONFIG.field, integrator="exact")
WAVE = systems.get("wave_2d", n_points=16)
PATCHES = PatchGrid((16, 16), 4, (False, False))


def field(seed: int = 0) -> LinearWaves:
    """With random weights everywhere, as after some training."""
    torch.manual_seed(seed)
    made = LinearWaves(EXACT, PATCHES, 64, WAVE.problem).double()
    made.set_scales((9e4, 30.0))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("boundary", ["periodic", "dirichlet", "neumann", "open"])
@pytest.mark.parametrize("n", [8, 9])
def test_waves_are_orthonormal_eigenvectors_of_a_second_difference(boundary: Boundary, n: int) -> None:
    """(u(x-h) - 2 u(x) + u(x+h)) / h^2 = -(2/h sin(kh/2))^2 u, with what the boundary says beyond the ends."""
    gap = 0.3
    basis, numbers = waves(n, gap, boundary)
    torch.testing.assert_close(basis @ basis.T, torch.eye(n, dtype=torch.float64), atol=1e-12, rtol=0)
    left, right = basis.roll(1, 1), basis.roll(-1, 1)
    if boundary != "periodic":
        beyond = (0.0, 0.0) if boundary == "dirichlet" else (basis[:, 0], basis[:, -1])
        left[:, 0], right[:, -1] = beyond
    second = (left - 2 * basis + right) / gap**2
    eigenvalue = -((2 / gap * torch.sin(numbers * gap / 2)) ** 2)
    torch.testing.assert_close(second, eigenvalue[:, None] * basis, atol=1e-10, rtol=0)
    assert bool((numbers.diff() >= 0).all())


@pytest.mark.parametrize("omega2", [9.0, 1e-3, 0.0, -1.0, -3.9])
def test_oscillators_solve_their_equation(omega2: float) -> None:
    """Against the exponential of the matrix, with finite gradients on either side and at the border."""
    a, t = 2.0, 0.7
    value = torch.tensor(omega2, dtype=torch.float64, requires_grad=True)
    cosine, sine = damped_waves(value, torch.tensor(a, dtype=torch.float64), t)
    matrix = torch.tensor([[0.0, 1.0], [-(omega2 + a**2), -2 * a]], dtype=torch.float64)
    flow = torch.linalg.matrix_exp(t * matrix)
    assert float(cosine + a * sine) == pytest.approx(float(flow[0, 0]), abs=1e-12)
    assert float(sine) == pytest.approx(float(flow[0, 1]), abs=1e-12)
    (cosine + sine).backward()
    assert value.grad is not None
    assert math.isfinite(float(value.grad))


def test_fast_waves_have_finite_gradients_in_single_precision() -> None:
    """A branch that is not taken may not overflow: a growth by e^300 times zero is no number."""
    omega2 = torch.tensor([9e4], requires_grad=True)
    cosine, sine = damped_waves(omega2, torch.tensor([0.1]), 29.0)
    (cosine + sine).sum().backward()
    assert bool(torch.isfinite(omega2.grad).all())  # type: ignore[union-attr]


@torch.no_grad()
def test_frames_follow_from_each_other() -> None:
    """Seven frames at once are seven frames one after the other, in the coordinates of the waves."""
    model = field()
    amplitudes, r = torch.randn(2, 2, 2, 16, 16).double(), torch.tensor([[1.3, -0.4], [0.2, -1.7]]).double()
    once = model._turned(amplitudes, r, 7)
    for frame in range(7):
        amplitudes = model._turned(amplitudes, r, 1)[:, 0]
        torch.testing.assert_close(once[:, frame], amplitudes, atol=1e-5, rtol=1e-5)


def test_the_field_is_linear_in_both_coefficients() -> None:
    """d/ds of a state at s = 0 is C + r_1 D_1 + r_2 D_2, with D_2 on the velocities only."""
    model = field()
    amplitudes = torch.randn(1, 2, 2, 16, 16).double()
    kappa = (model.speed * model.turns * (1 + 0.02 * model.kappa)).detach()

    def slope(r_1: float, r_2: float) -> Tensor:
        h = 1e-6  # a frame as short as this: the wave numbers and the drag are per frame
        model.turns, gap = model.turns * h, model.frame_gap
        model.frame_gap = gap * h
        later = model._turned(amplitudes, torch.tensor([[r_1, r_2]]).double(), 1)[:, 0]
        model.turns, model.frame_gap = model.turns / h, gap
        return ((later - amplitudes) / h).detach()

    C = slope(0.0, 0.0)
    D_1, D_2 = slope(1.0, 0.0) - C, slope(0.0, -1.0) - C
    torch.testing.assert_close(slope(1.7, -0.6), C + 1.7 * D_1 + 0.6 * D_2, atol=1e-3, rtol=1e-3)
    p, v = amplitudes.unbind(2)
    torch.testing.assert_close(C[:, :, 0], kappa * v, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(D_1[:, :, 1], -kappa * p, atol=1e-3, rtol=1e-3)
    assert float(C[:, :, 1].abs().max()) < 1e-3
    assert float(D_2[:, :, 0].abs().max()) < 1e-3


@torch.no_grad()
def test_untrained_waves_are_the_waves_of_the_equation() -> None:
    """Standing waves of the walls, within the dispersion of the grid."""
    model = LinearWaves(EXACT, PATCHES, 64, WAVE.problem)
    xi = torch.tensor([[300.0, 20.0]], dtype=torch.float64)
    model.set_scales((300.0**2, 20.0))
    basis = waves(16, WAVE.dx, "dirichlet")[0]
    u0 = torch.outer(basis[1], basis[0])
    solved = WAVE.solve(torch.stack((u0, torch.zeros_like(u0)))[None], xi).as_subclass(Tensor)[0, :, 0]
    amplitudes = torch.zeros(1, 2, 2, 16, 16)
    amplitudes[0, 0, 0, 1, 0] = 1.0
    seen = model._turned(amplitudes, torch.tensor([[1.0, -1.0]]), 29)[0, :, 0, 0, 1, 0]
    true = (solved[1:] * u0).sum((-2, -1))
    assert float((seen - true).abs().max()) < 0.1  # after 14 radians, on sixteen points
    assert float(true.min()) < -0.5  # it does swing


def surrogate() -> Surrogate:
    config = replace(tiny.CONFIG, field=EXACT, encoder=replace(tiny.CONFIG.encoder, width=256))
    system = systems.get("wave_2d").at_size("tiny")
    return Surrogate(system.problem, config, "physics", tiny.statistics(system))


def test_every_parameter_of_a_forecast_learns() -> None:
    torch.manual_seed(0)
    model = surrogate()
    with torch.no_grad():  # the projectors start at zero, and with them the gradients of their first layers
        for part in (model.field.lifting,):
            part.mlp.out.weight.normal_(std=0.02)
    u, xi = torch.randn(2, 1, 2, *model.problem.grid), torch.tensor([[300.0, 20.0], [450.0, 3.0]], dtype=torch.float64)
    q = model.rollout(model.encode(u).detach(), model.drive(xi), 3)
    assert q.shape == (2, 4, model.patches.n_tokens, 256)
    q[:, 1:].square().mean().backward()
    silent = [name for name, p in model.field.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert silent == []
    assert model.finer_steps(xi * 4) is None


def test_one_batch_can_be_learned() -> None:
    """Latents that turn, of two speeds: the error falls to a tenth."""
    torch.manual_seed(0)
    made = field(1)
    q, r = torch.randn(2, PATCHES.n_tokens, 64).double(), torch.tensor([[1.0, -0.1], [0.5, -0.2]]).double()
    with torch.no_grad():
        wanted = made(made.lift(q), r, 3)
    learner = LinearWaves(EXACT, PATCHES, 64, WAVE.problem).double()
    learner.set_scales((9e4, 30.0))
    optimiser, losses = torch.optim.Adam(learner.parameters(), lr=1e-2), []
    for _ in range(150):
        loss = (learner(learner.lift(q), r, 3) - wanted).square().mean() / wanted.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("name", "variant", "width", "words"),
    [
        ("heat", "physics", 256, "exact is for linear waves stored as"),
        ("wave_2d", "geo", 256, "the variant is geo"),
        ("wave_2d", "physics", 80, "a multiple of 128"),
    ],
)
def test_where_it_does_not_fit_it_is_refused(name: str, variant: str, width: int, words: str) -> None:
    system = systems.get(name).at_size("tiny")
    encoder = replace(tiny.CONFIG.encoder, width=width, patch=8)
    config = replace(tiny.CONFIG, field=EXACT, encoder=encoder)
    with pytest.raises(ConfigError, match=words):
        Surrogate(system.problem, config, variant, tiny.statistics(system))  # type: ignore[arg-type]
