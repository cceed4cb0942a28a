"""The integrators of the latent ODE: measured order, stage times, and an outside solver."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pdejepa.models.integrate import METHODS, Tableau, integrate, rk_step

ORDERS = {"euler": 1, "rk2": 2, "rk4": 4, "rk8": 8}


def pendulum(q: Tensor, s: Tensor) -> Tensor:
    """A nonlinear, driven oscillator: order conditions of every kind take part."""
    x, v = q[..., :1], q[..., 1:]
    return torch.cat((v, -torch.sin(x) + 0.3 * torch.cos(2 * s)[:, None, None]), -1)


def start() -> tuple[Tensor, Tensor]:
    return torch.tensor([[[0.4, 0.9]], [[-0.7, 0.2]]], dtype=torch.float64), torch.tensor([0.0, 0.5]).double()


def measured_order(method: str, steps: tuple[int, ...]) -> list[float]:
    q, s = start()
    truth = integrate(pendulum, q, s, 2, "rk8", 200)
    errors = [float((integrate(pendulum, q, s, 2, method, n) - truth).norm()) for n in steps]
    pairs = zip(errors[:-1], errors[1:], steps[:-1], steps[1:], strict=True)
    return [math.log(a / b) / math.log(m / n) for a, b, n, m in pairs]


STEPS = {"euler": (64, 128, 256, 512), "rk2": (16, 32, 64, 128), "rk4": (8, 16, 32, 64), "rk8": (3, 4, 5, 6)}


@pytest.mark.parametrize("method", list(ORDERS))
def test_the_order_is_the_one_promised(method: str) -> None:
    slopes = measured_order(method, STEPS[method])
    assert METHODS[method].order == ORDERS[method]
    assert slopes[-1] == pytest.approx(ORDERS[method], abs=0.2 if method != "rk8" else 0.5)


def test_a_wrong_coefficient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    a = METHODS["rk4"].a
    monkeypatch.setitem(METHODS, "rk4", Tableau(4, (*a[:3], (0.0, 0.02, 0.98)), METHODS["rk4"].b))
    assert measured_order("rk4", STEPS["rk4"])[-1] < 3.5


@pytest.mark.parametrize("method", list(METHODS))
def test_weights_add_up_to_one(method: str) -> None:
    assert sum(METHODS[method].b) == pytest.approx(1.0, abs=1e-14)


def test_physical_time_only_scales_the_derivative() -> None:
    q, s = start()
    slow = lambda y, at: pendulum(y, at) / 0.25  # noqa: E731
    same = integrate(slow, q, s, 3, "rk4", 4, frame_length=0.25)
    torch.testing.assert_close(same, integrate(pendulum, q, s, 3, "rk4", 4), rtol=1e-12, atol=1e-12)


def test_stage_times_of_one_step() -> None:
    seen: list[float] = []

    def field(q: Tensor, s: Tensor) -> Tensor:
        seen.append(float(s[0]))
        return torch.zeros_like(q)

    rk_step(field, torch.zeros(1, 1, 1), torch.tensor([3.0]), 0.5, "rk4")
    assert seen == [3.0, 3.25, 3.25, 3.5]


def uneven(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Steps of a frame that are long, short, long, ... in the first row and the reverse in the second, (2,2n)."""
    pair = torch.tensor([[0.6, 0.4], [0.3, 0.7]], dtype=dtype)
    return pair.repeat(1, n) / n


def test_equal_fractions_are_equal_steps() -> None:
    q, s = start()
    given = integrate(pendulum, q, s, 3, "rk4", fractions=torch.full((2, 4), 0.25).double())
    torch.testing.assert_close(given, integrate(pendulum, q, s, 3, "rk4", 4), rtol=1e-14, atol=1e-14)


def test_uneven_steps_have_the_same_order() -> None:
    q, s = start()
    truth = integrate(pendulum, q, s, 2, "rk8", 200)
    errors = [float((integrate(pendulum, q, s, 2, "rk4", fractions=uneven(n)) - truth).norm()) for n in (8, 16, 32)]
    assert math.log2(errors[1] / errors[2]) == pytest.approx(4.0, abs=0.2)


def test_steps_of_no_length_change_nothing() -> None:
    q, s = start()
    fractions = uneven(1)
    padded = torch.cat((fractions, torch.zeros(2, 3).double()), 1)
    assert torch.equal(
        integrate(pendulum, q, s, 2, fractions=padded), integrate(pendulum, q, s, 2, fractions=fractions)
    )


def test_frames_are_a_prefix_of_more_frames() -> None:
    q, s = start()
    assert torch.equal(integrate(pendulum, q, s, 2), integrate(pendulum, q, s, 5)[:, :2])


def test_an_outside_solver_agrees() -> None:
    torchdiffeq = pytest.importorskip("torchdiffeq")
    q, _ = start()
    s = torch.zeros(2).double()
    theirs = torchdiffeq.odeint(
        lambda t, y: pendulum(y, t.expand(2)), q, torch.tensor([0.0, 1.0, 2.0]).double(), rtol=1e-11, atol=1e-12
    )
    ours = integrate(pendulum, q, s, 2, "rk8", 20)
    torch.testing.assert_close(ours, theirs[1:].transpose(0, 1), rtol=1e-9, atol=1e-9)


def test_the_order_is_that_of_the_outside_rk4() -> None:
    """Its rk4 is the 3/8 rule: equal order, other bits."""
    torchdiffeq = pytest.importorskip("torchdiffeq")
    q, _ = start()
    s, truth, errors = torch.zeros(2).double(), None, []
    truth = integrate(pendulum, q, s, 1, "rk8", 100)[:, 0]
    for n in (8, 16, 32):
        grid = torch.tensor([0.0, 1.0]).double()
        options = {"step_size": 1.0 / n}
        theirs = torchdiffeq.odeint(lambda t, y: pendulum(y, t.expand(2)), q, grid, method="rk4", options=options)[1]
        ours = integrate(pendulum, q, s, 1, "rk4", n)[:, 0]
        errors.append((float((theirs - truth).norm()), float((ours - truth).norm())))
    for coarse, fine in pairwise(errors):
        assert math.log2(coarse[0] / fine[0]) == pytest.approx(4, abs=0.3)
        assert math.log2(coarse[1] / fine[1]) == pytest.approx(4, abs=0.3)
