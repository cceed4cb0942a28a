"""Operator inference: it finds what is linear or quadratic, its stable variant stays bounded; refusals."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pdejepa
from pdejepa import baselines, systems
from pdejepa.baselines import solver_folder
from pdejepa.baselines.blocks import affine_least_squares as least_squares
from pdejepa.baselines.blocks.affine_least_squares import NormalEquations, energy_preserving, ridge_solution
from pdejepa.baselines.blocks.fine_frames import fine_times, trajectories
from pdejepa.baselines.blocks.pod import modes
from pdejepa.baselines.blocks.quadratic_ode import QuadraticOde, rolled_out, without_growth
from pdejepa.baselines.fit import build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.opinf import FineOperatorInference, OperatorInference, OpInfConfig
from pdejepa.baselines.pool import Pool, build_pool, pool_of
from pdejepa.core.errors import ConfigError
from pdejepa.data.source import Arrays, Block
from pdejepa.systems.problem import Axis, Parameter, Problem, Structure, Term, power

CPU = torch.device("cpu")
N, T = 32, 12


def double(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---- an equation with a solution: u_t = nu u_xx on a ring ---------------------------------------------------------
DECAY = Problem(
    name="decay",
    fields=("u",),
    axes=(Axis("x", tuple(k / N for k in range(N)), "periodic"),),
    times=tuple(0.02 * k for k in range(T)),
    parameters=(Parameter("nu", "nu", "diffusivity", (0.01, 0.05), (0.0, 1.0)),),
    structure=Structure((Term("nu", "nu", power("nu"), "rms", "u_xx"),), has_shared=False, scaling={}),
)


def decaying(n: int, seed: int) -> Block:
    """Sines and cosines of two modes, which fade as exp(-nu (2 pi k)^2 t)."""
    x, t = torch.arange(N, dtype=torch.float64) / N, torch.tensor(DECAY.times, dtype=torch.float64)
    amplitude, nu = double(n, 4, seed=seed), 0.01 + 0.04 * torch.rand(n, 1, dtype=torch.float64)
    shapes = torch.stack([f(2 * math.pi * k * x) for k in (1, 2) for f in (torch.sin, torch.cos)])  # (4,N)
    rates = torch.tensor([(2 * math.pi * k) ** 2 for k in (1, 1, 2, 2)], dtype=torch.float64)
    fade = torch.exp(-nu[:, None] * rates * t[:, None])  # (n,T,4)
    return Block(((amplitude[:, None] * fade) @ shapes)[:, :, None].float(), nu, torch.arange(n))


def decay_pool() -> Pool:
    torch.manual_seed(1)
    blocks = {"train": decaying(40, 0), "valid": decaying(8, 1), "test": decaying(8, 2)}
    fields, xi = ({split: getattr(block, key) for split, block in blocks.items()} for key in ("fields", "xi"))
    return pool_of(Arrays(DECAY, fields, xi), blocks)


def test_the_rates_of_a_linear_decay_are_found(tmp_path: Path) -> None:
    """Operators with the eigenvalues nu (2 pi k)^2, and forecasts as good as fourth-order differences are."""
    pool = decay_pool()
    recipe = OperatorInference.recipe("fast", pool.task)
    config = dataclasses.replace(recipe.model, n_modes=(4,), ridges=(1e-12,))
    solver = build(OperatorInference, dataclasses.replace(recipe, model=config), pool)
    fit(solver, dataclasses.replace(recipe, model=config), pool, tmp_path)
    scale = pool.data.statistics.coefficients["nu"][1]  # r = nu / scale; time in frame gaps of .02
    rates = -torch.linalg.eigvals(solver.weights[0, 1:5]).real.sort(descending=True).values / scale / 0.02
    exact = torch.tensor([(2 * math.pi * k) ** 2 for k in (1, 1, 2, 2)], dtype=torch.float64)
    torch.testing.assert_close(rates, exact, rtol=2e-3, atol=0.0)
    assert not solver.weights[0, 0].any() or float(solver.weights[0, 0].abs().max()) < 1e-3  # nothing drives it
    mean, std = pool.data.statistics.moments(1, CPU)
    u = pool.data.fields["test"] * std + mean
    answer = forecast(solver, u[:, :1], pool.data.xi["test"], T - 1)
    assert answer.is_stable
    assert float((answer.fields - u).norm() / u.norm()) < 1e-3


def test_a_quadratic_equation_is_found_exactly() -> None:
    """dq/dt = C(q) + r D(q) from exact rates: the least-squares problem has no error left."""
    w = double(2, least_squares.n_features(3, 2), 3)
    q, r = double(20, 5, 3, seed=1), torch.stack((torch.ones(20), torch.rand(20)), 1).double()
    dq = torch.einsum("bm,btp,mpr->btr", r, least_squares.features(q, 2), w)
    equations = NormalEquations(2)
    equations.add(q[:12], dq[:12], r[:12])
    equations.add(q[12:], dq[12:], r[12:])
    torch.testing.assert_close(ridge_solution(*equations.of_modes(3), 0.0), w)


def test_fewer_modes_are_a_part_of_more() -> None:
    q, dq, r = double(9, 6, 4), double(9, 6, 4, seed=1), torch.ones(9, 1, dtype=torch.float64)
    both = NormalEquations(2), NormalEquations(2)
    both[0].add(q, dq, r)
    both[1].add(q[..., :2], dq[..., :2], r)
    for a, b in zip(both[0].of_modes(2), both[1].of_modes(2), strict=True):
        torch.testing.assert_close(a, b)


def test_rates_are_of_fourth_order() -> None:
    def error(n: int) -> float:
        t = torch.linspace(0, 1, n + 1, dtype=torch.float64)
        found = least_squares.rate(torch.sin(3 * t)[None, :, None], 1 / n)
        return float((found[0, :, 0] - 3 * torch.cos(3 * t)).abs().max())

    assert 3.6 < math.log2(error(20) / error(40)) < 4.4


# ---- the stable variant ------------------------------------------------------------------------------------------
def noisy(r: int = 4) -> tuple[Tensor, Tensor]:
    """Normal equations whose best quadratic terms do not preserve energy."""
    q, ones = double(30, 6, r), torch.ones(30, 1, dtype=torch.float64)
    dq = -0.1 * q + 0.5 * q * q.roll(1, -1) + 0.3 * q**2
    equations = NormalEquations(2)
    equations.add(q, dq, ones)
    return equations.of_modes(r)


def energy_rate(w: Tensor, q: Tensor) -> Tensor:
    """q . H(q,q), (B,)."""
    n = q.shape[-1]
    return (q * (least_squares.features(q, 2)[:, 1 + n :] @ w[0, 1 + n :])).sum(1)


def test_quadratic_terms_preserve_energy_and_fit_best_among_those() -> None:
    gram, right = noisy()
    w, q = energy_preserving(gram, right, 1e-8), double(50, 4, seed=3)
    assert float(energy_rate(ridge_solution(gram, right, 1e-8), q).abs().max()) > 1.0
    torch.testing.assert_close(energy_rate(w, q), torch.zeros(50, dtype=torch.float64), atol=1e-9, rtol=0.0)

    def misfit(w: Tensor) -> float:
        p = gram.shape[1]
        return float((w[0] * (gram.reshape(p, p) @ w[0])).sum() - 2 * (w[0] * right[0]).sum())

    best = misfit(w)
    weight = torch.ones(gram.shape[:2], dtype=torch.float64)
    for seed in range(5):  # no other one nearby is better
        other = least_squares.projected(w + 0.01 * double(*w.shape, seed=seed), weight, 4)
        assert misfit(other) > best


def test_the_stable_variant_stays_bounded_where_the_plain_one_diverges() -> None:
    gram, right = noisy()
    q0, times = 3 * double(6, 4, seed=5).abs(), [1.0, 5.0, 20.0]
    ones, none = torch.ones(6, 1, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    plain = rolled_out(QuadraticOde(ridge_solution(gram, right, 1e-8), ones, none), q0, times, 0.0)
    w = energy_preserving(gram, right, 1e-8)
    stable = rolled_out(QuadraticOde(w, ones, none + 0.01, is_stable=True), q0, times, 0.0)
    assert bool(plain[:, -1].isnan().all(1).any())
    assert bool(stable.isfinite().all())
    assert float(stable.norm(dim=-1).max()) < 20 * float(q0.norm(dim=-1).max())


def test_growth_is_taken_out_of_a_linear_operator() -> None:
    matrix = double(3, 5, 5)
    before, after = torch.linalg.eigvals(matrix), torch.linalg.eigvals(without_growth(matrix))
    assert float(before.real.max()) > 0.5
    assert float(after.real.max()) < 1e-9
    decaying = -matrix @ matrix.mT - torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(without_growth(decaying), decaying)


def test_states_follow_the_exact_solution_and_rows_do_not_meet() -> None:
    """A rotation, as a linear model and with a drive; one row blows up, the others are as they are alone."""
    w = torch.zeros(1, least_squares.n_features(2, 2), 2, dtype=torch.float64)
    w[0, 1:3] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    w[0, 3, 0] = 1.0  # dq_0 ~ q_0^2, times r
    zero = torch.zeros(2, dtype=torch.float64)
    linear = w.clone()
    linear[0, 3, 0] = 0.0
    q = rolled_out(QuadraticOde(linear[:, :3], zero.new_ones(1, 1), zero), zero.new_tensor([[1.0, 0.0]]), [1, 20], 0.0)
    torch.testing.assert_close(q[0, 1], zero.new_tensor([math.cos(20.0), math.sin(20.0)]))
    drive = QuadraticOde(linear, zero.new_ones(1, 1), zero, drive=lambda t: zero.new_tensor([[math.sin(t), 0.0]]))
    q = rolled_out(drive, zero.new_tensor([[0.0, 0.0]]), [0.5 * k for k in range(1, 5)], 0.0)
    exact = zero.new_tensor([math.sin(2.0), (math.sin(2.0) - 2 * math.cos(2.0)) / 2])  # x' = sin t - y, y' = x
    torch.testing.assert_close(q[0, -1], exact, atol=1e-3, rtol=0.0)
    both = rolled_out(QuadraticOde(w, zero.new_ones(2, 1), zero), zero.new_tensor([[9.0, 0.0], [0.1, 0.0]]), [1.0], 0.0)
    alone = rolled_out(QuadraticOde(w, zero.new_ones(1, 1), zero), zero.new_tensor([[0.1, 0.0]]), [1.0], 0.0)
    assert bool(both[0].isnan().all())
    assert torch.equal(both[1], alone[0])


# ---- the way of the frames ---------------------------------------------------------------------------------------
def test_modes_are_orthonormal_and_span_the_frames() -> None:
    frames = double(50, 3) @ double(3, 20, seed=1)
    for u in (frames, frames[:10]):  # more frames than points, and fewer
        found = modes(u, 5)
        torch.testing.assert_close(found[:3] @ found[:3].T, torch.eye(3, dtype=torch.float64))
        torch.testing.assert_close(u @ found.T @ found, u)
        assert not found[3:].any()


@cache
def combined() -> Pool:
    return build_pool(systems.get("combined", n_points=64), {"train": 20, "valid": 4}, CPU)


def test_finer_frames_hold_the_stored_ones() -> None:
    data = combined().data
    (u, xi), = trajectories(data, 10, 6, "it")
    assert u.shape == (6, 131, 1, 64)
    assert torch.equal(xi, data.xi["train"][:6])
    torch.testing.assert_close(u[:, ::10], data.fields["train"][:6], rtol=1e-3, atol=1e-3)
    assert fine_times((0.0, 1.0, 3.0), 2) == [0.0, 0.5, 1.0, 2.0, 3.0]


def test_finer_frames_need_a_system_whose_frame_is_a_state() -> None:
    pool = decay_pool()
    with pytest.raises(ConfigError, match=r"the system that made these decay data is not known. Use .* without _fine"):
        build_and_solve(FineOperatorInference, pool)
    wave = build_pool(systems.get("wave_b"), {"train": 4, "valid": 2}, CPU)
    with pytest.raises(ConfigError, match="a stored frame of wave_b is not its whole state"):
        build_and_solve(FineOperatorInference, wave)


def build_and_solve(kind: type[OperatorInference], pool: Pool) -> OperatorInference:
    solver = build(kind, kind.recipe("tiny", pool.task), pool)
    assert isinstance(solver, OperatorInference)
    solver.solve_for(pool.data, print)
    return solver


def test_a_known_forcing_drives_the_modes() -> None:
    """Without it, forecasts of a forced system are worse."""
    pool = build_pool(systems.get("heat", n_points=64), {"train": 24, "valid": 4}, CPU)
    solver = build_and_solve(OperatorInference, pool)
    u, xi = pool.data.fields["valid"], pool.data.xi["valid"]
    told = solver.rollout(u[:, :1], {"xi": xi}, u.shape[1] - 1)
    solver._forcing = lambda xi, times: torch.zeros(len(xi), 1, solver.basis.shape[0], dtype=torch.float64)  # type: ignore[method-assign]
    untold = solver.rollout(u[:, :1], {"xi": xi}, u.shape[1] - 1)
    assert float((told - u[:, 1:]).norm()) < 0.8 * float((untold - u[:, 1:]).norm())


def test_it_takes_no_steps() -> None:
    solver = build(OperatorInference, OperatorInference.recipe("tiny", combined().task), combined())
    with pytest.raises(ConfigError, match=r"fitted at once: it takes no steps and has no loss. Use fit.fit\(...\)."):
        solver.loss("fit", {})


@pytest.mark.parametrize("name", ["opinf", "opinf_stable_fine"])
def test_what_was_saved_is_loaded(name: str, tmp_path: Path) -> None:
    kind = baselines.get(name)
    assert issubclass(kind, OperatorInference)
    solver = build_and_solve(kind, combined())
    solver_folder.save(solver, tmp_path, "tiny")
    again = pdejepa.load(tmp_path, "cpu")
    u, xi = combined().data.fields["train"][:3, :1], combined().data.xi["train"][:3]
    assert again.card.name == name
    assert torch.equal(again.forecast(u, xi, n_frames=4).fields, forecast(solver, u, xi, 4).fields)


def test_fast_chooses_among_sizes() -> None:
    recipe = OperatorInference.recipe("fast", combined().task)
    assert recipe.model == OpInfConfig()
    assert max(FineOperatorInference.recipe("fast", combined().task).model.n_modes) == 40
