"""What a forecast is asked for: wrong types, shapes and numbers are refused in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pdejepa.baselines import NAMES, get
from pdejepa.baselines.baseline import Baseline
from pdejepa.baselines.inference import encode, forecast
from pdejepa.core.errors import ConfigError, DataError, ParameterError
from pdejepa.forecast.interface import Forecast
from tests.unit.baselines.token_solvers import parameters, rough, shaken, task_of
from tests.unit.forecast import tiny

U, XI = rough("combined", 4, 6, 64), parameters("combined", 4)
SUPPORT = U[:, None]


def made(name: str) -> Baseline:
    kind, task = get(name), task_of("combined", 64)
    torch.manual_seed(0)
    return shaken(kind(kind.recipe("tiny", task).model, task))


def ask(name: str, **changes: Any) -> Forecast:
    return forecast(made(name), **{"u": U[:, :2], "xi": XI, "n_frames": 2, "support": SUPPORT, **changes})


@pytest.mark.parametrize("name", ["unisolver", "coda", "fno", "zebra"])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"u": U[:, 0]}, r"combined expects trajectories as \(B, T, 1, 64\).*got \(4, 1, 64\).*single frames as u"),
        ({"u": U[:, :0]}, r"got \(4, 0, 1, 64\)"),
        ({"u": U[:0], "xi": XI[:0], "support": SUPPORT[:0]}, r"got \(0, 6, 1, 64\)"),
        ({"u": U[..., ::2]}, r"got \(4, 6, 1, 32\)"),
        ({"u": "all"}, "as an array of real numbers; got str"),
        ({"u": np.full(U.shape, 1e39)}, "must fit single precision"),
        ({"xi": XI[:, :2]}, r"\(B, 3\) in the order advection, diffusivity, dispersion; got \(4, 2\)"),
        ({"xi": torch.cat((XI, XI), 1)}, r"\(B, 3\) in the order .*; got \(4, 6\)"),
        ({"xi": XI[:1]}, "expected 4 rows of parameters, one per state; got 1"),
        ({"xi": "all"}, "parameters must be numbers; got str"),
        ({"support": SUPPORT[..., ::2]}, r"expects the support as \(4, K, T, 1, 64\).*; got \(4, 1, 6, 1, 32\)"),
        ({"support": U}, r"K = 1 or more trajectories of T = 2 or more frames.*; got \(4, 6, 1, 64\)"),
        ({"support": SUPPORT[:, :0]}, r"got \(4, 0, 6, 1, 64\)"),
        ({"support": SUPPORT[:, :, :1]}, r"got \(4, 1, 1, 1, 64\)"),
        ({"support": SUPPORT[:2]}, r"got \(2, 1, 6, 1, 64\)"),
        ({"support": 3}, r"got \(\)"),
        ({"n_frames": -1}, "a whole number, 0 or more; got -1"),
        ({"n_frames": 2.0}, "a whole number, 0 or more; got 2.0"),
        ({"n_frames": True}, "a whole number, 0 or more; got True"),
        ({"n_frames": None}, "a whole number, 0 or more; got None"),
    ],
)
def test_wrong_requests(name: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises((DataError, ParameterError), match=told):
        ask(name, **changes)


def test_what_is_missing() -> None:
    with pytest.raises(DataError, match="UniSolver needs the parameters of the equation for a forecast; none was"):
        ask("unisolver", xi=None)
    for name in ("zebra", "coda", "cls_vit"):
        with pytest.raises(DataError, match="needs another trajectory of the same environment for a forecast; none"):
            ask(name, support=None)
    with pytest.raises(DataError, match="LE-PDE reads 5 frames of the support; got 2"):
        ask("le_pde", support=SUPPORT[:, :, :2])
    with pytest.raises(ConfigError, match="VideoMAE makes representations only"):
        ask("videomae")


def test_models_of_ours_have_their_own() -> None:
    with pytest.raises(ConfigError, match=r"Expected a published solver.*got a Forecaster.*model\.forecast"):
        forecast(tiny.forecaster("heat"), U, XI, 2)  # type: ignore[arg-type]


def test_lists_and_numbers_of_any_type() -> None:
    plain = ask("cape")
    same = ask("cape", u=U[:, :2].double().numpy(), xi=XI.tolist(), n_frames=np.int64(2), support=SUPPORT.tolist())
    assert same.fields.dtype == torch.float32
    assert torch.equal(same.fields, plain.fields)


def test_values_beyond_every_bound() -> None:
    """Counted from the first observed frame; the frames before are as they were."""
    solver = made("fno")
    mean, std = solver.task.statistics.moments(1, torch.device("cpu"))
    new = torch.zeros(4, 3, 1, 64)
    new[1, 1:], new[2, 2, 0, 5], new[3, 0] = 101.0, torch.nan, 99.0
    solver.rollout = lambda *_: new  # type: ignore[method-assign]
    answer = forecast(solver, U[:, :2], XI, 3)
    assert [outcome.first_bad for outcome in answer.outcome] == [None, 3, 4, None]
    assert answer.fields.isnan().flatten(2).all(2).sum(1).tolist() == [0, 2, 1, 0]
    torch.testing.assert_close(answer.fields[:, 2], (new * std + mean)[:, 0])
    assert torch.equal(answer.fields[:, :2], U[:, :2])


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).card.is_forecaster])
def test_forecasts_do_not_depend_on_what_the_process_has_switched_on(name: str) -> None:
    """Neither mixed precision, as inside somebody's training, nor another type of new tensors."""

    def fields() -> torch.Tensor:
        return ask(name, generator=torch.Generator().manual_seed(0)).fields

    expected = fields()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fields(), expected)
    solver = made(name)
    torch.set_default_dtype(torch.float64)
    try:
        found = forecast(solver, U[:, :2], XI, 2, SUPPORT, torch.Generator().manual_seed(0)).fields
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).card.has_encoder])
def test_representations_of_physical_fields(name: str) -> None:
    solver = made(name)
    mean, std = solver.task.statistics.moments(1, torch.device("cpu"))
    with torch.no_grad():
        expected = solver.encode((U - mean) / std)
    assert torch.equal(encode(solver, U.double().numpy()), expected)
    with pytest.raises(DataError, match=r"got \(4, 6, 1, 32\)"):
        encode(solver, U[..., ::2])


def test_representations_that_nobody_has() -> None:
    with pytest.raises(ConfigError, match="FNO has no representations to return"):
        encode(made("fno"), U)
    with pytest.raises(ConfigError, match=r"got a int.*model\.encode"):
        encode(3, U)  # type: ignore[arg-type]
