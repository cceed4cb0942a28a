"""A loss that is not finite names the tensor that it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import NumericalError
from pdejepa.training.first_bad import first_bad_tensor
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Batch
from pdejepa.training.timing import TYPICAL
from tests.faults.training import Toy, settings, train


class Overflowing(nn.Module):
    """x, and infinite where it is asked to spoil."""

    is_bad = False

    def forward(self, x: Tensor) -> Tensor:
        return x / (0.0 if self.is_bad else 1.0)


def test_the_first_bad_tensor_is_named(tmp_path: Path) -> None:
    """The norm behind it is bad as well, and so is everything that contains it."""
    stage = Toy(disturb={13: lambda stage: setattr(stage.online[1][1], "is_bad", True)})
    stage.online[1] = nn.Sequential(nn.GELU(), Overflowing())
    with pytest.raises(NumericalError, match=r"not finite; first bad tensor: the output of online\.1\.1\. The batch"):
        train(tmp_path / "toy", stage)


def test_what_is_bad_between_two_modules_is_the_input_of_the_second(tmp_path: Path) -> None:
    class Between(Toy):
        def forward(self, batch: Batch) -> dict[str, Tensor]:
            hidden = self.online[1](self.online[0](self.base(batch["x"])))
            found = self.online[3](self.online[2]((hidden - 1e9).exp().log() if self.is_spoilt else hidden))
            return {"loss": (found - batch["y"]).square().mean()}

        is_spoilt = False

    stage = Between(disturb={13: lambda stage: setattr(stage, "is_spoilt", True)})
    with pytest.raises(NumericalError, match=r"not finite; first bad tensor: the input of online\.2\. The batch"):
        train(tmp_path / "toy", stage)


def test_weights_that_are_bad_are_named(tmp_path: Path) -> None:
    def spoil(stage: Toy) -> None:
        with torch.no_grad():
            stage.base.bias[1] = torch.nan

    with pytest.raises(NumericalError, match=r"not finite; first bad tensor: the weight base\.bias\. The batch"):
        train(tmp_path / "toy", Toy(disturb={13: spoil}))


def test_a_bad_step_that_is_only_timed(tmp_path: Path) -> None:
    spoil = {TYPICAL[0]: lambda stage: setattr(stage, "bad", float("nan"))}
    stage = Toy(settings(budget=Budget(seconds=50)), disturb=spoil)
    with pytest.raises(NumericalError, match=r"the loss is not finite; first bad tensor: bad of the batch\. The batch"):
        train(tmp_path / "toy", stage)


def test_nothing_is_left_of_the_search() -> None:
    stage = Toy()
    assert first_bad_tensor(stage, stage.batch(0, 10)) == ""
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in stage.modules())
    stage.online[0].weight.data[0, 0] = torch.inf
    assert first_bad_tensor(stage, stage.batch(0, 10)) == "the weight online.0.weight"
