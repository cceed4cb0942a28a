"""ONNX files: forecasts equal to the library's by what forecast.json says, and an example without torch or pdejepa."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pdejepa
from pdejepa.app.cli import main
from pdejepa.core.errors import NumericalError, ResourceError, UsageError
from pdejepa.forecast import onnx_export
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.locate import shipped_models
from pdejepa.forecast.onnx_export import export_onnx
from pdejepa.models.condition import Statistics
from pdejepa.models.surrogate import Surrogate
from tests.unit.forecast import tiny
from tests.unit.forecast.onnx_numpy import OnnxModel

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra: onnx)")

EXAMPLE = Path(__file__).parents[3] / "examples/forecast_with_onnx.py"
TOLERANCE = 1e-5
Printed = pytest.CaptureFixture[str]


def apart(model: Forecaster, folder: Path, u: torch.Tensor, xi: dict[str, float], n_new: int) -> float:
    """Relative L2 between new frames by numpy and onnxruntime and by the library, after u (H,C,*grid)."""
    rows = torch.tensor([[xi[name] for name in model.problem.parameter_names]], dtype=torch.float64)
    expected = model.forecast(u[None], rows, n_frames=n_new)
    like = u[None, 0].double()
    forcing = lambda t: model.problem.forcing(t, rows, like)[0].numpy()  # noqa: E731
    found = OnnxModel(folder).forecast(u.numpy(), xi, n_new, forcing)[len(u) :]
    new = expected.new[0].numpy()
    assert np.isfinite(new).all()
    assert np.linalg.norm(new - np.repeat(u[-1:].numpy(), n_new, 0)) > 0.01 * np.linalg.norm(new)
    return float(np.linalg.norm(found - new) / np.linalg.norm(new))


def with_statistics(model: Forecaster, **changes: Any) -> Forecaster:
    statistics: Statistics = replace(model.surrogate.statistics, **changes)
    model.surrogate.set_statistics(statistics)
    return model


@pytest.mark.slow
def test_an_unforced_system(tmp_path: Path, capsys: Printed) -> None:
    folder, out = tiny.saved("advection", tmp_path / "m"), tmp_path / "onnx"
    assert main(["export", str(folder), "--onnx", str(out)]) == 0
    told = capsys.readouterr()
    assert f"4 files, 0.5 MB, in {out}" in told.out
    assert told.err == ""
    model = pdejepa.load(folder, "cpu")
    about = json.loads((out / "forecast.json").read_text())
    assert about["weights_sha256"] == model.details["weights_sha256"]
    for name, part in about["networks"].items():
        file = (out / part["file"]).read_bytes()
        assert hashlib.sha256(file).hexdigest() == part["sha256"], name
    u = tiny.state(model.system)
    assert apart(model, out, u, {"speed": 2.0}, 4) < TOLERANCE
    assert apart(model, out, u, {"speed": 40.0}, 2) < TOLERANCE  # takes finer steps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heat", "burgers", "gray_scott", "vorticity"])
def test_forcings_and_planes(name: str, tmp_path: Path) -> None:
    model = tiny.forecaster(name)
    export_onnx(model, tmp_path)
    xi = {name: float(values) for name, values in tiny.middle(model.system).items()}
    xi |= {name: 0.3 for name in xi if name.startswith("forcing_amplitude")}
    assert apart(model, tmp_path, tiny.state(model.system), xi, 3) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(("history", "n_given"), [(1, 1), (1, 2), (2, 2)])
def test_second_order(history: int, n_given: int, tmp_path: Path) -> None:
    model = with_statistics(tiny.forecaster("wave_b", history=history), velocity_scale=0.3)
    export_onnx(model, tmp_path)
    u = tiny.state(model.system, 2)[:n_given]
    assert apart(model, tmp_path, u, tiny.middle(model.system), 4) < TOLERANCE


@pytest.mark.slow
def test_unit_amplitude_and_logarithms(tmp_path: Path) -> None:
    model = tiny.forecaster("combined")
    ranges = {name: (low + 1e-3, high) for name, (low, high) in model.surrogate.statistics.ranges.items()}
    model = with_statistics(model, ranges=ranges, unit_ranges=ranges)
    export_onnx(model, tmp_path)
    u = 3.7 * tiny.state(model.system)
    for advection in (0.2, 3.0):  # inside, and strong enough for finer steps
        xi = {"advection": advection, "diffusivity": 0.1, "dispersion": 0.2}
        assert apart(model, tmp_path, u, xi, 3) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_shipped_models(name: str, tmp_path: Path) -> None:
    model = pdejepa.load(name, "cpu")
    if model.surrogate.config.field.integrator == "exact":
        with pytest.raises(UsageError, match="exactly"):
            export_onnx(model, tmp_path)
        return
    written = export_onnx(model, tmp_path)
    assert max(written.apart.values()) < TOLERANCE
    made = model.system.generate("test", 1)
    history = model.surrogate.history
    xi = {name: float(values[0]) for name, values in model.system.named(made.xi).items()}
    n_new = made.fields.shape[1] - history
    assert apart(model, tmp_path, made.fields[0, :history], xi, n_new) < TOLERANCE


@pytest.mark.slow
def test_the_example_needs_neither_torch_nor_pdejepa(tmp_path: Path) -> None:
    model = pdejepa.load("gray_scott", "cpu")
    export_onnx(model, tmp_path / "onnx")
    u0, xi = model.system.sample("test", 0)
    np.save(tmp_path / "u0.npy", u0[0].numpy())
    values = [f"{name}={float(value[0])!r}" for name, value in model.system.named(xi).items()]
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for package in ("torch", "pdejepa"):
        (blocked / f"{package}.py").write_text(f"raise ImportError('{package} is not to be used')\n")
    environment = {**os.environ, "PYTHONPATH": str(blocked)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    for package in ("torch", "pdejepa"):
        assert "is not to be used" in run("-c", f"import {package}").stderr
    done = run(str(EXAMPLE), "onnx", "u0.npy", "forecast.npy", *values)
    assert done.returncode == 0, done.stderr
    found, expected = np.load(tmp_path / "forecast.npy"), model.forecast(u0, xi).fields[0].numpy()
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) < TOLERANCE * np.linalg.norm(expected)


# ---- refusals ----------------------------------------------------------------------------------------------------
def test_exact_waves_and_jumps_have_no_field(tmp_path: Path) -> None:
    model = tiny.forecaster("advection", variant="direct")
    with pytest.raises(UsageError, match="jumps from frame to frame"):
        export_onnx(model, tmp_path)
    system, config = pdejepa.systems.get("wave_2d").at_size("tiny"), tiny.CONFIG
    encoder, field = replace(config.encoder, width=128), replace(config.field, integrator="exact")
    exact = replace(config, encoder=encoder, field=field)
    waves = Surrogate(system.problem, exact, "physics", tiny.statistics(system))
    with pytest.raises(UsageError, match=r"solves its latent waves exactly and has no vector field"):
        export_onnx(Forecaster(waves, {}, tiny.CPU), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_others_is_overwritten(tmp_path: Path) -> None:
    model = tiny.forecaster("advection")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="nothing in it is overwritten"):
        export_onnx(model, tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        export_onnx(model, tmp_path / "notes.txt")


def test_missing_packages_and_wrong_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.forecaster("advection")
    monkeypatch.setattr(onnx_export, "TOLERANCE", 0.0)
    with pytest.raises(NumericalError, match="off PyTorch in the encoder"):
        export_onnx(model, tmp_path / "out")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ResourceError, match=r"package onnxruntime. Get it with: pip install 'pdejepa\[onnx\]'"):
        export_onnx(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
