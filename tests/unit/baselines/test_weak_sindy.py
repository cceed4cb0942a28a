"""Weak SINDy with parameters: the laws that it finds are those that made the data."""

from __future__ import annotations

import math
import sys
from functools import cache

import pytest
import torch

from pdejepa import systems
from pdejepa.baselines.baseline import Baseline
from pdejepa.baselines.fit import build
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.baselines.weak_sindy import CANDIDATES, FineWeakSindy, WeakSindy, sparse_solution, weak_form
from pdejepa.core.errors import ConfigError

pytest.importorskip("pysindy")

CPU = torch.device("cpu")


@cache
def pool(place: str) -> Pool:
    return build_pool(systems.get(place, n_points=64), {"train": 20, "valid": 4}, CPU)


def solved(kind: type[WeakSindy], place: str) -> WeakSindy:
    solver: Baseline = build(kind, kind.recipe("tiny", pool(place).task), pool(place))
    assert isinstance(solver, WeakSindy)
    solver.solve_for(pool(place).data, lambda _: None)
    return solver


def test_the_combined_equation_is_found() -> None:
    """u_t = -alpha/2 (u^2)_x + beta u_xx - gamma u_xxx and nothing else, where frames are fine."""
    solver = solved(FineWeakSindy, "combined")
    expected = torch.zeros_like(solver.weights)
    for row, (candidate, value) in enumerate((((2, 1), -0.5), ((1, 2), 1.0), ((1, 3), -1.0)), start=1):
        expected[row, CANDIDATES.index(candidate)] = value
    torch.testing.assert_close(solver.weights, expected, rtol=0.02, atol=1e-9)
    data = pool("combined").data
    u = data.fields["valid"]
    found = solver.rollout(u[:, :1], {"xi": data.xi["valid"]}, u.shape[1] - 1)
    assert float((found - u[:, 1:]).norm() / u[:, 1:].norm()) < 0.02


def test_a_known_forcing_is_no_part_of_the_law() -> None:
    solver = solved(FineWeakSindy, "heat")
    assert float(solver.weights[1, CANDIDATES.index((1, 2))]) == pytest.approx(1.0, rel=1e-3)
    data = pool("heat").data
    u = data.fields["valid"]
    found = solver.rollout(u[:, :1], {"xi": data.xi["valid"]}, u.shape[1] - 1)
    assert float((found - u[:, 1:]).norm() / u[:, 1:].norm()) < 0.02


def test_the_weak_form_of_a_wave() -> None:
    """u = sin(x - c t) has u_t = -c u_x: both sides agree in every window, whatever its place."""
    x, t = torch.arange(64).double() * (2 * math.pi / 64), torch.linspace(0, 2, 81).double()
    u = torch.sin(x - 1.5 * t[:, None])[None]
    a, b = weak_form(u, None, 2 / 80, 2 * math.pi / 64, 0.3)
    assert a.shape == (*b.shape, len(CANDIDATES))
    scale = float(b.abs().max())
    for k, factor in ((1, -1.5), (3, 1.5)):
        torch.testing.assert_close(factor * a[..., CANDIDATES.index((1, k))], b, rtol=0, atol=5e-3 * scale)
    forced = weak_form(u, -1.5 * torch.cos(x - 1.5 * t[:, None])[None], 2 / 80, 2 * math.pi / 64, 0.3)[1]
    assert float(forced.abs().max()) < 5e-3 * scale


def test_few_terms_are_kept() -> None:
    """Normal equations lead to the same sparse solution as the equations themselves."""
    features = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)).double()
    true = torch.tensor([2.0, 0.0, 0.0, -1.0, 0.0, 0.0]).double()
    target = features @ true
    gram, right = (features.mT @ features).reshape(2, 3, 2, 3), (features.mT @ target).reshape(2, 3)
    found = sparse_solution(gram, right, float(target.square().sum()), 0.1, "it")
    torch.testing.assert_close(found.flatten(), true, rtol=1e-5, atol=1e-8)
    assert int((found != 0).sum()) == 2


def test_laws_that_blow_up_lose_their_rows() -> None:
    """Backward diffusion for half of the rows: they are named, the others are solved."""
    solver, data = solved(FineWeakSindy, "combined"), pool("combined").data
    solver.weights[2, CANDIDATES.index((1, 2))] = -50.0
    xi = data.xi["valid"][:2].clone()
    xi[0, 1], xi[1, 1] = 0.0, 0.4
    u = data.fields["valid"][:2, :1]
    mean, std = data.statistics.moments(1, CPU)
    answer = forecast(solver, u * std + mean, xi, 4)
    assert [row.label for row in answer.outcome] == ["ok", "unstable"]


@pytest.mark.parametrize("place", ["gray_scott", "wave_b"])
def test_what_it_cannot_do_is_said(place: str) -> None:
    switches = {"n_points": 16} if place == "gray_scott" else {}
    made = build_pool(systems.get(place, **switches), {"train": 4, "valid": 2}, CPU)
    with pytest.raises(ConfigError, match=rf"one field on a periodic line; {place} is not such a problem. Use opinf."):
        build(WeakSindy, WeakSindy.recipe("tiny", made.task), made)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysindy", None)
    with pytest.raises(ConfigError, match=r'fitted by pysindy.*pip install "pdejepa\[classical\]"'):
        sparse_solution(torch.eye(2).double().reshape(1, 2, 1, 2), torch.ones(1, 2).double(), 1.0, 0.1, "Weak SINDy")
