"""Losses of the transformers can be recorded: nothing in them waits for the device or brings numbers to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pdejepa import baselines
from pdejepa.training.stage import Batch
from tests.unit.baselines.token_solvers import parameters, rough, task_of

NAMES = ("unisolver", "vit_in_context", "cls_vit", "mae_pde", "videomae")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "rand", "randn", "randint")


class Watch(TorchDispatchMode):
    """Remembers operations that a recording could not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def batch_of(solver: Any, stage: str, place: str, n_points: int) -> Batch:
    window = solver.window(stage, 0.0)
    n_frames = window.n_frames or 6
    batch = {
        "u": rough(place, 3, n_frames, n_points),
        "frame": torch.zeros(3, dtype=torch.int64),
        "xi": parameters(place, 3),
        "environment": torch.tensor([0, 1, 0]),
        "share": torch.zeros(()),
    }
    if window.n_support:
        batch["support"] = rough(place, 3, 6, n_points)[:, None]
    return {**batch, **solver.draws(stage, batch, torch.Generator().manual_seed(0))}


@pytest.mark.parametrize(("place", "n_points"), [("burgers", 64), ("gray_scott", 0), ("heterns", 0)])
@pytest.mark.parametrize("name", NAMES)
def test_losses_can_be_recorded(name: str, place: str, n_points: int) -> None:
    kind, task = baselines.get(name), task_of(place, n_points)
    solver = kind(kind.recipe("tiny", task).model, task)
    for stage in solver.card.stages:
        batch = batch_of(solver, stage, place, n_points)
        solver.loss(stage, batch)  # first use may fill tables
        with Watch() as watch:
            loss = solver.loss(stage, batch)["loss"]
            loss.backward()
        assert watch.found == []
        assert bool(loss.detach().isfinite())


def test_the_watch_sees_what_it_should() -> None:
    with Watch() as watch:
        float(torch.zeros(1))
        torch.tensor([1.0, 2.0])
    assert watch.found == ["_local_scalar_dense", "lift_fresh"]
