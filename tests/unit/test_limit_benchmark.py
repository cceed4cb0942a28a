"""`benchmarks/limits.py`: parts of a forecast are those of the forecaster, and the table tells them."""

from __future__ import annotations

import pytest
import torch

from pdejepa.evaluate import metrics
from tests.unit.forecast import tiny
from tests.unit.scripts import load_script

limits = load_script("benchmarks/limits.py")
tables = load_script("benchmarks/tables.py")


@pytest.mark.parametrize("name", ["combined", "wave_b"])
@torch.no_grad()
def test_the_whole_is_what_the_forecaster_says(name: str) -> None:
    model = tiny.forecaster(name)
    made = model.system.generate("test", 2, model.device)
    u, H = made.fields.float(), model.surrogate.history
    found = limits.parts(model.surrogate, u, made.xi)
    observed = u[:, 0] if H == 1 else u[:, :H]
    expected = metrics.rel_l2(model.forecast(observed, made.xi).fields, u, H)
    torch.testing.assert_close(found["forecast"], expected, rtol=1e-3, atol=1e-5)
    assert set(found) == {"direct", "one_step", "forecast", "latent_one_step", "latent_forecast"}
    assert all(value.shape == (2,) for value in found.values())


@torch.no_grad()
def test_every_step_begins_with_the_truth() -> None:
    model = tiny.forecaster("combined").surrogate
    made = model.system.generate("test", 2, torch.device("cpu"))
    q = model.encode(model.normalise(made.fields.float()))
    drive = model.drive(made.xi)
    steps = limits.one_steps(model, q, drive, None)
    assert steps.shape == q[:, 1:].shape
    torch.testing.assert_close(steps[:, :1], model.rollout(q[:, :1], drive, 1)[:, 1:])
    changed = q.clone()
    changed[:, 3] += 1.0
    differs = (limits.one_steps(model, changed, drive, None) - steps).abs().amax((0, 2, 3)) > 0
    assert differs.nonzero().flatten().tolist() == [3]  # of the frame after the one that was changed


def test_the_table() -> None:
    row = dict.fromkeys(("direct", "one_step", "forecast", "latent_one_step", "latent_forecast"), 0.0123)
    known = {"system": "combined", "recipe": "fast", "polish": True, "seed": 3, "split": "ood", "n": 2}
    line = tables.limit_table({"device": "cpu", "limits": [{**known, **row}]}).splitlines()[-1]
    assert line.startswith("| combined | fast, polished, seed 3 | ood | 1.23 % | 1.23 % |")
