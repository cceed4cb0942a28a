"""What a GPU needs of a training step, checked without one.

A step is recorded on a GPU once and replayed for every later batch of the same shapes.  So its loss, its gradients and
its moving averages may not read values, mix devices or copy between them, and two batches of equal shapes must ask for
the same operations with the same numbers.  Every check is shown to fail for stages that were spoilt on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.training.guard import FiniteGuard, clip_gradients
from tests.golden.cases import METHOD, OPTIONS, RECORDED, SOLVERS, AnyStage, method_stage, solver_stage
from tests.golden.dispatched import difference, pairs
from tests.golden.elsewhere import AWAY, MODE, fault_elsewhere

UNRECORDED = [case for case in SOLVERS if case not in RECORDED]


def _slow(case: tuple[str, ...]) -> bool:
    """Long rollouts and rare options; what they share with the others is looked at in every run."""
    return case in OPTIONS or case[1] in ("wave_b", "gray_scott") or (case[0] == "polish" and case[1] != "advection")


QUICK = ("fno", "unisolver", "lns", "zebra")  # of four kinds: spectral, tokens, latent map, language model


CASES = [
    *(pytest.param(method_stage, case, id="-".join(case), marks=[pytest.mark.slow] * _slow(case)) for case in METHOD),
    *(
        pytest.param(solver_stage, case, id="-".join(case), marks=[pytest.mark.slow] * (case[0] not in QUICK))
        for case in RECORDED
    ),
]


def spoilt(fault: Callable[[Tensor], Tensor]) -> AnyStage:
    """A stage whose loss passes through `fault`."""
    stage = method_stage("dynamics", "advection")
    plain = stage.forward
    stage.forward = lambda batch: {"loss": fault(plain(batch)["loss"])}  # type: ignore[method-assign]
    return stage


def fault_of(stage: AnyStage) -> str:
    with torch.no_grad():
        batch = stage.batch(0, 10)
    return fault_elsewhere(stage, batch)


# ---- nothing is read, mixed or copied ----------------------------------------------------------------------------
@pytest.mark.parametrize(("make", "case"), CASES)
def test_a_step_stays_on_its_device(make: Callable[..., AnyStage], case: tuple[str, ...]) -> None:
    assert fault_of(make(*case)) == ""


@pytest.mark.parametrize(("solver", "stage"), UNRECORDED)
def test_what_is_never_recorded_could_not_be(solver: str, stage: str) -> None:
    """The list of exceptions, which stands on the cards of the solvers, holds none that is not needed."""
    assert fault_of(solver_stage(solver, stage)) != ""


def test_bad_steps_are_watched_for_without_reading_them() -> None:
    with MODE:
        gradients = [torch.empty(3, device=AWAY), torch.empty((2, 2), device=AWAY)]
        norm = FiniteGuard(["a", "b"], AWAY).watch(3, torch.empty((), device=AWAY), gradients)
        clip_gradients(gradients, norm, 1.0)
    assert norm.device == AWAY


class _ReadsGradient(torch.autograd.Function):
    """x, with a derivative that looks at the gradient it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * float(gradient)


FAULTS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "float": ("reads a value", lambda loss: loss * float(loss.detach())),
    "branch": ("reads a value", lambda loss: loss if loss > 0 else -loss),
    "list": ("reads a value", lambda loss: loss * loss.detach().reshape(1).tolist()[0]),
    "mask": ("reads a value", lambda loss: loss.expand(3)[loss.expand(3) > 0].mean()),
    "gradient": ("reads a value", lambda loss: _ReadsGradient.apply(loss)),
    "other device": ("mixes cpu and meta", lambda loss: (loss + torch.ones(3)).mean()),
    "other index": ("mixes cpu and meta", lambda loss: loss.expand(3)[torch.arange(2)].mean()),
    "to the host": ("copies between cpu and meta", lambda loss: loss + loss.detach().cpu()),
    "from the host": ("copies between cpu and meta", lambda loss: loss + torch.ones(()).to(loss.device)),
    "numbers": ("copies numbers", lambda loss: (loss + torch.tensor([1.0, 2.0], device=loss.device)).mean()),
    "numbers as index": ("copies numbers", lambda loss: loss.expand(3)[[0, 2]].mean()),
}


@pytest.mark.parametrize(("words", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_step_that_leaves_its_device_is_noticed(words: str, fault: Callable[[Tensor], Tensor]) -> None:
    assert words in fault_of(spoilt(fault))


def test_a_moving_average_that_reads_a_value_is_noticed() -> None:
    stage = method_stage("pretrain", "advection")
    stage.after_update = lambda step, n: float(next(stage.parameters()).sum())  # type: ignore[assignment,method-assign]
    assert "reads a value" in fault_of(stage)


def test_what_is_allowed_is_not_noticed() -> None:
    """Tensors made on the device, and numbers."""
    stage = spoilt(lambda loss: 2 * loss + torch.ones((), device=loss.device) * torch.ones(()))
    assert fault_of(stage) == ""


# ---- equal shapes, equal operations ------------------------------------------------------------------------------
@pytest.mark.parametrize(("make", "case"), CASES)
def test_batches_of_equal_shapes_ask_for_the_same_operations(
    make: Callable[..., AnyStage], case: tuple[str, ...]
) -> None:
    stage = make(*case)
    found = pairs(stage)
    assert found
    with torch.no_grad():
        stage(found[0][0])  # systems keep their coordinates from the first time on
    for one, two in found:
        assert any(not torch.equal(one[name], two[name]) for name in one)
        assert difference(stage, one, two) == ""


def test_a_step_that_branches_on_a_value_is_noticed() -> None:
    stage = method_stage("dynamics", "advection")
    ((one, two),) = pairs(stage)
    plain, middle = stage.forward, float(one["states"].sum() + two["states"].sum()) / 2

    def forward(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        found = plain(batch)
        return found if float(batch["states"].sum()) < middle else {"loss": 2 * found["loss"]}

    stage.forward = forward  # type: ignore[method-assign]
    assert "aten.mul.Tensor" in difference(stage, one, two)


def test_a_step_that_counts_is_noticed() -> None:
    """A number that a recording would freeze."""
    numbers = count(1)
    stage = spoilt(lambda loss: loss * next(numbers))
    ((one, two),) = pairs(stage)
    assert "aten.mul.Tensor torch.float32[] 1, then aten.mul.Tensor torch.float32[] 2" in difference(stage, one, two)
