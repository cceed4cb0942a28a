"""A training step as it is computed on a GPU (rounded, compiled, recorded) has the gradient of a plain one in float32.

Solvers have the sizes in which they are compared: what rounding breaks in them, small ones may survive.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from pdejepa import baselines, systems
from pdejepa.baselines.baseline import StageRecipe
from pdejepa.baselines.fit import FitStage, build
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.device import full_precision, tf32
from pdejepa.models.blocks import compile_blocks
from pdejepa.training.cuda_graph import Gradients
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Batch, Context
from tests.gpu import needs_cuda
from tests.unit.baselines.token_solvers import shaken

pytestmark = pytest.mark.slow
CPU, N_ROWS = torch.device("cpu"), 4
Found = tuple[Batch, Tensor, Tensor]


@cache
def pool(place: str) -> Pool:
    return build_pool(systems.get(place), {"train": 40, "valid": 8}, CPU)


def moved(own: Pool, device: torch.device) -> Pool:
    def to_device(part: dict[str, Tensor]) -> dict[str, Tensor]:
        return {split: value.to(device) for split, value in part.items()}

    data = dataclasses.replace(own.data, fields=to_device(own.data.fields), xi=to_device(own.data.xi))
    environment, siblings = to_device(own.environment), to_device(own.siblings)
    return dataclasses.replace(own, data=data, environment=environment, siblings=siblings)


def gradient(name: str, part: StageRecipe, own: Pool, is_plain: bool, batch: Batch | None = None) -> Found:
    """The same weights on every device, none of them zero; a batch; its loss; its gradient as one long vector."""
    kind, device = baselines.get(name), own.data.fields["train"].device
    solver = shaken(build(kind, kind.recipe("fast", own.task), own), 0.01)
    if device.type == "cuda":
        compile_blocks(solver)
    stage = FitStage(solver, part, own, Context(device), 0)
    choose_trained(stage)
    trained = [p for module in stage.trained().values() for p in module.parameters() if p.requires_grad]
    autocast = lambda: torch.autocast(device.type, torch.bfloat16, not is_plain and part.precision == "bf16")  # noqa: E731
    batch = {key: value.to(device) for key, value in (batch or stage.batch(0, 10)).items()}
    with full_precision(device) if is_plain else tf32(device):
        loss = Gradients(stage, trained, autocast, device.type == "cuda")(batch)["loss"].detach()
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    return batch, loss.double().cpu(), torch.cat([g.flatten() for g in parts]).double().cpu()


PLACES = [("combined", "cpu"), *(pytest.param(place, "cuda", marks=needs_cuda) for place in ("combined", "gray_scott"))]


@pytest.mark.parametrize(("place", "device"), PLACES)
@pytest.mark.parametrize("name", baselines.NAMES)
def test_gradients_are_those_of_float32(name: str, place: str, device: str) -> None:
    """A CPU shows what rounding does, where a stage is trained in bfloat16; a GPU also what its kernels do."""
    if (name, device) == ("mpp", "cuda"):
        pytest.skip("frames that are almost constant make its gradient too sensitive for TF32 (as published)")
    kind = baselines.get(name)
    parts = [p for p in kind.recipe("fast", pool(place).task).stages if p.name not in kind.card.unrecorded]
    if device == "cpu":
        parts = [part for part in parts if part.precision == "bf16"]
    if not parts:
        pytest.skip("trained in float32 only")
    for part in parts:
        part = dataclasses.replace(part, training=dataclasses.replace(part.training, batch=N_ROWS))
        batch, loss, expected = gradient(name, part, pool(place), is_plain=True)
        _, found_loss, found = gradient(name, part, moved(pool(place), torch.device(device)), False, batch)
        torch.testing.assert_close(found_loss, loss, rtol=3e-2, atol=0, msg=part.name)
        assert float(found.norm() / expected.norm()) == pytest.approx(1.0, rel=0.1), part.name
        assert float(cosine_similarity(found, expected, dim=0)) > 0.98, part.name
