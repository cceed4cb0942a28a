"""Solvers of comparable size on a GPU: what they compute there is what they compute elsewhere, however much at once.

Convolutions over maps of more than 2^24 values have given wrong numbers on a GPU before; the largest solvers have such
maps in training and wherever many trajectories are judged together.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from pdejepa import baselines, systems
from pdejepa.baselines.baseline import Baseline
from pdejepa.baselines.fit import FitStage, build
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.device import full_precision
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Context
from tests.gpu import needs_cuda
from tests.unit.baselines.token_solvers import shaken

pytestmark = needs_cuda
PLACES = ("combined", "gray_scott")
CARDS = {name: baselines.get(name).card for name in baselines.NAMES}
STEPPING = [name for name, card in CARDS.items() if card.is_forecaster and not card.is_stochastic]
FEW, MANY, N_FRAMES = 16, 240, 2


@cache
def pool(place: str, device: str) -> Pool:
    return build_pool(systems.get(place), {"train": MANY, "valid": 10}, torch.device(device))


def made(name: str, place: str, device: str) -> Baseline:
    """With the same weights on every device, none of them zero."""
    kind = baselines.get(name)
    return shaken(build(kind, kind.recipe("fast", pool(place, device).task), pool(place, device)), 0.01)


@torch.no_grad()
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [name for name in STEPPING if CARDS[name].adapts != "gradient"])
def test_many_at_once_are_forecast_like_few(name: str, place: str) -> None:
    solver, data = made(name, place, "cuda"), pool(place, "cuda").data
    rows = torch.arange(MANY, device="cuda")
    others = pool(place, "cuda").support("train", rows, 1, torch.zeros(MANY, 1, device="cuda"))

    def forecast(part: torch.Tensor) -> torch.Tensor:
        state = solver.adapt(data.fields["train"][others[part]], data.xi["train"][part])
        return solver.rollout(data.fields["train"][part, : solver.card.history], state, N_FRAMES)

    with full_precision(torch.device("cuda")):
        torch.testing.assert_close(
            forecast(rows), torch.cat([forecast(part) for part in rows.split(FEW)]), rtol=1e-2, atol=1e-2
        )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["dpot", "mpp", "poseidon", "fno"])
def test_a_step_of_training_is_that_of_a_cpu(name: str, place: str) -> None:
    """Loss and the size of all gradients of one batch, in float32 on both."""
    kind, found = baselines.get(name), {}
    for device in ("cpu", "cuda"):
        solver = made(name, place, device)
        part = kind.recipe("fast", pool(place, device).task).stages[-1]
        stage = FitStage(solver, part, pool(place, device), Context(torch.device(device)), 0)
        choose_trained(stage)
        batch = found["cpu"][0] if device == "cuda" else stage.batch(0, 10)
        with full_precision(torch.device(device)):
            loss = stage({key: value.to(device) for key, value in batch.items()})["loss"]
            loss.backward()
        norms = [parameter.grad.norm().cpu() for parameter in solver.parameters() if parameter.grad is not None]
        found[device] = (batch, loss.detach().cpu(), torch.stack(norms))
    torch.testing.assert_close(found["cuda"][1], found["cpu"][1], rtol=1e-4, atol=0)
    torch.testing.assert_close(found["cuda"][2], found["cpu"][2], rtol=2e-2, atol=1e-6)
