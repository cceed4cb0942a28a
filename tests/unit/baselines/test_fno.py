"""FNO: its size, what single systems change, and states at rest."""

from __future__ import annotations

import pytest
import torch

from pdejepa import systems
from pdejepa.baselines.baseline import AT_REST, mean_frame_error
from pdejepa.baselines.fno import Fno
from tests.unit.baselines.token_solvers import millions, rough, shaken, task_of


@pytest.mark.parametrize(("name", "size"), [("combined", "9.93"), ("gray_scott", "10.06"), ("vorticity", "10.06")])
def test_sizes(name: str, size: str) -> None:
    assert f"{millions(Fno, name):.2f}" == size


@pytest.mark.parametrize("name", systems.NAMES)
def test_two_systems_have_numbers_of_their_own(name: str) -> None:
    recipe = Fno.recipe("paper", task_of(name))
    training = recipe.stages[0].training
    found = (recipe.model.rolled, training.optimiser.lr, training.optimiser.clip, training.batch)
    published = {"wave_2d": (2, 1e-4, 1.0, 32), "vorticity": (1, 1e-3, 1e4, 16)}
    assert found == published.get(name, (1, 1e-3, 1e4, 32))
    assert training.schedule.warmup == (0.04 if name == "wave_2d" else 0.08)


@torch.no_grad()
def test_a_field_at_rest_can_be_moved() -> None:
    """u_t of Wave-2D is zero at the start, and so is its spread in a window that repeats the only known frame."""
    task = task_of("wave_2d", 16)
    solver = shaken(Fno(Fno.recipe("tiny", task).model, task))
    u = rough("wave_2d", 2, 1, 16)
    u[:, :, 1] = 0.3
    after = solver.rollout(u, {}, 2)
    assert float(after[:, :, 1].std((2, 3)).min()) > 1e-5
    nearly = u + 1e-4 * rough("wave_2d", 2, 1, 16)  # what has a spread keeps it
    assert float(solver.rollout(nearly, {}, 1)[:, :, 1].std((2, 3)).max()) < 1e-5


def test_two_steps_are_learned_from_the_first() -> None:
    task = task_of("wave_2d", 16)
    solver = shaken(Fno(Fno.recipe("tiny", task).model, task))
    u = rough("wave_2d", 2, 4, 16)
    assert solver.window("fit", 0.0).n_frames == 4
    u_hat = solver.rollout(u[:, :2], {}, 2)
    torch.testing.assert_close(solver.loss("fit", {"u": u})["loss"], mean_frame_error(u_hat, u[:, 2:]))


def test_an_error_is_not_divided_by_a_frame_at_rest() -> None:
    u = torch.ones(1, 2, 1, 16)
    u[:, 0] = 1e-3
    off = u + 0.1
    assert float(mean_frame_error(off, u)) == pytest.approx((100 + 0.1) / 2, rel=1e-4)
    assert float(mean_frame_error(off, u, AT_REST)) == pytest.approx((0.1 / AT_REST + 0.1) / 2, rel=1e-4)
