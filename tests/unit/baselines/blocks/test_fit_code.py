"""Codes of new environments by gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pdejepa import baselines
from pdejepa.baselines.blocks import fit_code as module
from pdejepa.baselines.blocks.fit_code import descend, fit_code
from pdejepa.baselines.blocks.hypernetworks import Code
from pdejepa.core.device import full_precision
from pdejepa.training.cuda_graph import Gradients
from tests.gpu import needs_cuda
from tests.unit.baselines.token_solvers import rough, shaken, task_of


def test_steps_are_those_of_adam() -> None:
    """|c - u|^2 with another u in every step."""
    u = torch.randn((7, 3, 2), generator=torch.Generator().manual_seed(1))
    found = descend(torch.zeros(3, 2), lambda code, u: (code - u).square().sum(), lambda number: u[number], 7, 1e-2)
    code = torch.zeros(3, 2, requires_grad=True)
    optimiser = torch.optim.Adam([code], lr=1e-2)
    for target in u:
        optimiser.zero_grad()
        (code - target).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(found, code.detach())


def test_a_code_is_found_again() -> None:
    """u_{t+1} = u_t + c: the code that made the support comes back, for every row its own, whatever the others are."""
    truth = torch.tensor([[0.5], [-0.3], [0.1]])
    times = torch.arange(6.0)
    support = (truth[:, :, None] * times)[..., None, None].expand(3, 2, 6, 1, 4)  # (B,K,T,C,X)
    weight = torch.ones((), requires_grad=True)

    def step(u: Tensor, code: Code) -> Tensor:
        return u + weight * code.values[:, :, None]

    found = fit_code(torch.zeros(1), support, step, 2, 150, 2e-2)
    torch.testing.assert_close(found, truth, atol=1e-2, rtol=0.0)
    assert weight.grad is None
    assert not found.requires_grad
    torch.testing.assert_close(
        fit_code(torch.zeros(1), support[1:2], step, 2, 20, 1e-2),
        fit_code(torch.zeros(1), support, step, 2, 20, 1e-2)[1:2],
    )


def test_codes_are_found_under_inference_mode() -> None:
    support, weight = torch.randn((3, 1, 4, 1, 5)), torch.ones((), requires_grad=True)

    def step(u: Tensor, code: Code) -> Tensor:
        return u * weight + u.square() * code.values[:, :, None]

    plain = fit_code(torch.zeros(1), support, step, 1, 5, 1e-2)
    with torch.inference_mode():
        found = fit_code(torch.zeros(1), 2 * (support / 2), step, 1, 5, 1e-2)
    assert torch.equal(found, plain)
    assert bool(plain.all())


def test_rows_with_the_same_support_share_the_work() -> None:
    support, sizes = torch.randn((3, 1, 4, 1, 5)), []

    def step(u: Tensor, code: Code) -> Tensor:
        sizes.append(len(u))
        return u + code.values[:, :, None]

    alone = fit_code(torch.zeros(1), support, step, 1, 5, 1e-2)
    rows = torch.tensor([2, 0, 2, 1, 0])
    torch.testing.assert_close(fit_code(torch.zeros(1), support[rows], step, 1, 5, 1e-2), alone[rows])
    assert set(sizes) == {3}


@needs_cuda
@pytest.mark.parametrize("name", ["coda", "geps", "cls_vit"])
def test_recorded_steps_find_the_same_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, task = baselines.get(name), task_of("combined", 64)
    solver = shaken(kind(kind.recipe("tiny", task).model, task)).cuda()
    support = rough("combined", 3, 6, 64)[:, None].cuda()

    def plain(*arguments: object, **options: object) -> Gradients:
        made = Gradients(*arguments, **options)  # type: ignore[arg-type]
        made.should_record = False
        return made

    with full_precision(torch.device("cuda")):
        recorded = solver.adapt(support)["code"]
        monkeypatch.setattr(module, "Gradients", plain)
        torch.testing.assert_close(recorded, solver.adapt(support)["code"], rtol=1e-4, atol=1e-6)
