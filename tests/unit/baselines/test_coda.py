"""CoDA: its size, its integrator, its penalties, and restarts from the truth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.blocks.hypernetworks import Code
from pdejepa.baselines.coda import Coda, is_direction, rk4_38
from pdejepa.core.errors import DataError
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of


def small() -> Coda:
    task = task_of("combined", 64)
    torch.manual_seed(0)
    return shaken(Coda(Coda.recipe("tiny", task).model, task))


@pytest.mark.parametrize(("name", "n"), [("advection", 2), ("gray_scott", 2), ("combined", 3), ("burgers", 4)])
def test_codes_have_room_for_what_varies(name: str, n: int) -> None:
    assert all(Coda.recipe(recipe, task_of(name)).model.code == n for recipe in ("paper", "fast"))


@pytest.mark.parametrize(("name", "size"), [("gray_scott", 0.23), ("wave_2d", 0.23), ("vorticity", 0.70)])
def test_size(name: str, size: float) -> None:
    solver = on_meta(Coda, name)
    assert isinstance(solver, Coda)
    assert round(count(solver.root) / 1e6, 2) == size


def test_two_thirds_of_the_weights_are_directions() -> None:
    """W has two entries for every one of theta; on a line theta has 58 thousand."""
    solver = on_meta(Coda, "advection")
    assert isinstance(solver, Coda)
    directions = sum(p.numel() for name, p in solver.root.named_parameters() if is_direction(name))
    theta = count(solver.root) - directions
    assert directions == 2 * theta
    assert round(theta / 1e3) == 58


@pytest.mark.parametrize("name", ["combined", "wave_b", "gray_scott"])
def test_one_step_reaches_the_whole_grid(name: str) -> None:
    """Waves of Combined run across most of the ring between two frames; what a point cannot see, it cannot forecast."""
    task = task_of(name)
    torch.manual_seed(0)
    solver = shaken(Coda(Coda.recipe("fast", task).model, task))
    u = torch.randn(1, task.n_channels, *task.grid).requires_grad_()
    after = solver.step(u, Code(torch.zeros(1, solver.config.code)))
    after[(0, 0, *(n // 2 for n in task.grid))].backward()
    assert u.grad is not None
    assert bool((u.grad != 0).all())


def test_the_integrator_is_of_fourth_order() -> None:
    """u' = -u: one step is the Taylor polynomial of degree four."""
    u = torch.tensor([2.0], dtype=torch.float64)
    step = rk4_38(lambda v: -0.3 * v, u)
    assert float(step) == pytest.approx(2 * sum((-0.3) ** n / math.factorial(n) for n in range(5)), rel=1e-14)


@pytest.mark.oracle
def test_the_integrator_is_the_published_one() -> None:
    torchdiffeq = pytest.importorskip("torchdiffeq")

    def f(u: Tensor) -> Tensor:
        return torch.sin(3 * u) - u**2

    u = torch.linspace(-1, 1, 5, dtype=torch.float64)
    end = torchdiffeq.odeint(lambda t, v: f(v), u, torch.tensor([0.0, 1.0], dtype=torch.float64), method="rk4")[-1]
    torch.testing.assert_close(rk4_38(f, u), end, atol=1e-13, rtol=1e-13)


def batch(share: float, draw: float) -> dict[str, Tensor]:
    return {
        "u": rough("combined", 2, 4, 64),
        "environment": torch.tensor([1, 3]),
        "share": torch.tensor(share),
        "restart": torch.full((2, 4), draw),
    }


def test_restarts_from_the_truth() -> None:
    """At the beginning every step starts from a true frame, at the end none does."""
    solver = small()
    u, code = batch(0.0, 0.5)["u"], Code(solver.codes.table[[1, 3]])
    single = torch.stack([solver.step(u[:, t], code) for t in range(3)], 1)
    frames = [u[:, 0]]
    for _ in range(3):
        frames.append(solver.step(frames[-1], code))
    rolled = torch.stack(frames[1:], 1)
    torch.testing.assert_close(solver.loss("fit", batch(0.0, 0.5))["error"], (single - u[:, 1:]).square().mean())
    torch.testing.assert_close(solver.loss("fit", batch(1.0, 0.5))["error"], (rolled - u[:, 1:]).square().mean())
    assert not torch.allclose(single, rolled)


def test_eps_falls_with_the_share_done() -> None:
    solver = small()
    eps = math.exp(-10 * 0.1)
    above, below = (solver.loss("fit", batch(0.1, eps + gap))["error"] for gap in (0.01, -0.01))
    torch.testing.assert_close(below, solver.loss("fit", batch(0.0, 0.5))["error"])
    torch.testing.assert_close(above, solver.loss("fit", batch(1.0, 0.5))["error"])


def test_penalties() -> None:
    solver = small()
    parts = solver.loss("fit", batch(0.0, 0.5))
    rows = sum(p.square().sum(0).sqrt().sum() for name, p in solver.root.named_parameters() if "directions" in name)
    torch.testing.assert_close(parts["rows"], rows)
    torch.testing.assert_close(parts["code"], solver.codes.table[[1, 3]].square().sum() / 2)
    torch.testing.assert_close(parts["loss"], parts["error"] + 1e-4 * parts["code"] + 1e-6 * parts["rows"])


def test_new_codes_start_at_zero() -> None:
    solver, support = small(), rough("combined", 2, 4, 64)[:, None]
    solver.config = type(solver.config)(width=6, kernel=3, adapt_steps=0)
    assert not bool(solver.adapt(support)["code"].any())
    with pytest.raises(DataError, match="another trajectory"):
        solver.adapt()
