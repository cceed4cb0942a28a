"""Data that nobody here wrote a solver for: Fisher-KPP by exponax, imported from npz, trained, forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdejepa.app.cli import main

pytestmark = [pytest.mark.verification, pytest.mark.oracle, pytest.mark.slow]

exponax = pytest.importorskip("exponax", reason="exponax is not installed; pip install 'pdejepa[oracles]'")
jax: Any = pytest.importorskip("jax")

N, FRAMES, POINTS, DT, SUBSTEPS = 240, 21, 128, 0.25, 10


def write_fisher(folder: Path) -> None:
    """u_t = D u_xx + r u (1 - u) on a ring of length 1, D log-uniform in [3e-4, 5e-3], r in [0.5, 2]."""
    draws = np.random.default_rng(0)
    diffusivity, growth = 10 ** draws.uniform(-3.5, -2.3, N), draws.uniform(0.5, 2.0, N)
    x, mode = np.arange(POINTS) / POINTS, np.arange(1, 4)[:, None, None]
    size, phase = draws.normal(size=(3, N, 1)) / mode, draws.uniform(0, 2 * np.pi, (3, N, 1))
    start = 0.3 * (1 + np.tanh((size * np.sin(2 * np.pi * mode * x + phase)).sum(0) - 0.8))

    def solve(u0: Any, d: Any, r: Any) -> Any:
        stepper = exponax.stepper.reaction.FisherKPP(1, 1.0, POINTS, DT / SUBSTEPS, diffusivity=d, reactivity=r)
        frame = exponax.repeat(stepper, SUBSTEPS)
        return exponax.rollout(frame, FRAMES - 1, include_init=True)(u0[None])[:, 0]

    u = jax.jit(jax.vmap(solve))(start, diffusivity, growth)  # (n,T,X)
    np.savez(folder / "fields.npz", u=np.asarray(u, dtype=np.float32))
    table = np.stack([diffusivity, growth], 1)
    np.savetxt(folder / "table.csv", table, delimiter=",", header="diffusivity,growth", comments="")


def test_fisher_by_exponax_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_fisher(tmp_path)
    options = ["--axes", "n,t,x", "--params", "table.csv", "--dt", "0.25", "--box", "0:1", "--periodic", "x"]
    assert main(["import", "fields.npz", *options, "--name", "fisher", "--yes", "--out", "data"]) == 0
    assert main(["train", "data", "--recipe", "tiny", "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert main(["forecast", "run", "--from", "test:3", "--compare", "--out", "f.png"]) == 0
    assert main(["report", "run"]) == 0
    errors = json.loads((tmp_path / "run/results/fisher-tiny-s0.json").read_text())["errors"]
    for split in ("test", "ood"):
        assert errors[split]["rel_l2"] < errors[split]["repeat_first"] / 3
