"""GEPS: its size, its curriculum, its codes."""

from __future__ import annotations

import pytest
import torch

from pdejepa.baselines.blocks.hypernetworks import Code
from pdejepa.baselines.geps import Geps
from pdejepa.core.errors import DataError
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of


def small(name: str = "combined") -> Geps:
    task = task_of(name, 64 if name == "combined" else 0)
    torch.manual_seed(0)
    return shaken(Geps(Geps.recipe("tiny", task).model, task))


@pytest.mark.parametrize(("name", "size"), [("advection", 1.165), ("combined", 1.165), ("vorticity", 0.817)])
def test_size(name: str, size: float) -> None:
    solver = on_meta(Geps, name)
    assert isinstance(solver, Geps)
    assert round(count(solver.net) / 1e6, 3) == size
    assert count(solver.codes) == 4 * solver.task.n_environments


def test_rollouts_of_one_two_and_four_steps() -> None:
    shares = (0.0, 0.33, 0.34, 0.66, 0.67, 1.0)
    assert [small().window("fit", share).n_frames for share in shares] == [2, 2, 3, 3, 5, 5]


def test_settings_of_the_table() -> None:
    training = Geps.recipe("paper", task_of("heterns")).stages[0].training
    assert (training.batch, training.budget.epochs, training.optimiser.clip) == (256, 20_000, 1.0)
    assert training.optimiser.lr * training.optimiser.factors["codes"] == pytest.approx(1e-2)
    assert training.optimiser.lr * training.schedule.final == pytest.approx(1e-5)
    assert Geps.recipe("paper", task_of("combined")).stages[0].training.batch == 64


def test_the_loss_rolls_out_under_the_code_of_the_environment() -> None:
    solver, u = small(), rough("combined", 2, 3, 64)
    environment = torch.tensor([4, 1])
    loss = solver.loss("fit", {"u": u, "environment": environment})["loss"]
    code = Code(solver.codes.table[environment])
    first = u[:, 0] + solver.net(u[:, 0], code)
    second = first + solver.net(first, code)
    errors = [(a - b).norm(dim=-1) / b.norm(dim=-1) for a, b in ((first, u[:, 1]), (second, u[:, 2]))]
    torch.testing.assert_close(loss, torch.stack(errors).mean())


def test_adapting_starts_from_the_mean_code_and_lowers_the_error() -> None:
    solver, truth = small(), torch.tensor([[0.6, -0.4, 0.3, 0.2]])
    with torch.no_grad():
        frames = [rough("combined", 1, 1, 64)[:, 0]]
        for _ in range(5):
            frames.append(solver.step(frames[-1], Code(truth)))
    support = torch.stack(frames, 1)[:, None]  # (1,1,T,C,X)

    def error(n_steps: int) -> float:
        solver.config = type(solver.config)(solver.config.net, adapt_steps=n_steps, adapt_lr=3e-2, adapt_rolled=2)
        code = solver.adapt(support)["code"]
        if n_steps == 0:
            assert torch.equal(code, solver.codes.table.mean(0, keepdim=True))
        with torch.no_grad():
            return float((solver.step(frames[0], Code(code)) - frames[1]).norm())

    assert error(40) < 0.5 * error(0)


def test_no_support_is_refused() -> None:
    with pytest.raises(DataError, match="another trajectory"):
        small().adapt()
