"""CAPE, CoDA, GEPS and DPOT-S at their published sizes on every system, without values.

On the meta device tensors have shapes only: a loss that looks at a value, or waits for one, cannot be computed there,
and could not be recorded on a GPU either.
"""

from __future__ import annotations

import pytest
import torch

from pdejepa import baselines, systems
from tests.unit.baselines.token_solvers import task_of

NAMES = ("cape", "coda", "geps", "dpot")


@pytest.mark.parametrize("place", systems.NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_losses_and_forecasts_have_their_shapes(name: str, place: str) -> None:
    task, B = task_of(place), 3
    recipe = baselines.get(name).recipe("paper", task)
    with torch.device("meta"):
        solver = baselines.get(name)(recipe.model, task).to("meta")
        for stage in solver.card.stages:
            for share in (0.0, 1.0):
                n_frames = min(solver.window(stage, share).n_frames or 5, 5)
                batch = {
                    "u": torch.empty(B, n_frames, task.n_channels, *task.grid),
                    "xi": torch.empty(B, task.n_parameters, dtype=torch.float64),
                    "environment": torch.empty(B, dtype=torch.int64),
                    "share": torch.empty(()),
                    "restart": torch.empty(B, n_frames),
                    "target": torch.empty(B, dtype=torch.int64),
                }
                batch["noise"] = torch.empty_like(batch["u"])
                losses = solver.loss(stage, batch)
                assert all(value.shape == () for value in losses.values())
        sizes = {"code": (getattr(recipe.model, "code", 1),), "gains": (3, getattr(recipe.model, "hidden", 1))}
        state = {word: torch.empty(B, *size) for word, size in sizes.items()}
        u_hat = solver.rollout(torch.empty(B, 1, task.n_channels, *task.grid), state, 2)
    assert u_hat.shape == (B, 2, task.n_channels, *task.grid)
