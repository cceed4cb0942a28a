"""Solvers on disk: what is damaged, foreign or impossible is refused by name."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import pdejepa
from pdejepa import baselines
from pdejepa.baselines import solver_folder
from pdejepa.baselines.fno import Fno
from pdejepa.baselines.inference import PublishedSolver
from pdejepa.baselines.mpp import Mpp
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.studies.compare.competitors import MethodEntry
from tests.unit.baselines.token_solvers import rough, shaken, task_of
from tests.unit.forecast import tiny
from tests.unit.scripts import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    task = task_of("combined", 64)
    solver_folder.save(shaken(Fno(Fno.recipe("tiny", task).model, task)), tmp_path / "run" / "model", "tiny")
    return tmp_path / "run"


def test_a_run_or_its_model(folder: Path) -> None:
    u = rough("combined", 2, 2, 64)
    runs = [baselines.load(place, "cpu").rollout(u, {}, 2) for place in (folder, folder / "model")]
    assert torch.equal(*runs)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": "another"}, '"format" must be "pdejepa-solver"'),
        ({"solver": "nobody"}, "There is no solver 'nobody'"),
        ({"system": "nothing"}, "the model is for 'nothing'"),
        ({"system": "nothing", "problem": {}}, "There is no system 'nothing'"),
        ({"model": {"width": 12, "modes": 4, "depth": 3, "history": 2, "rolled": 1}}, "spectral"),
        ({"model": {"width": 10**9, "modes": 4, "depth": 2, "history": 2, "rolled": 1}}, "solver"),
        ({"model": {"wide": 1}}, "wide"),
        ({"statistics": {}}, "statistics"),
        ({"weights_sha256": "0" * 64}, "its hash is not the one in config.json"),
        ({"n_environments": "many"}, "n_environments"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], why: str, folder: Path) -> None:
    path = folder / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError, match=why):
        baselines.load(folder, "cpu")


def test_sizes_of_a_former_version(tmp_path: Path) -> None:
    """MPP could hold fields of published weights; networks without any are what they were."""
    task = task_of("combined", 64)
    solver_folder.save(shaken(Mpp(Mpp.recipe("tiny", task).model, task)), tmp_path, "tiny")
    u, path = rough("combined", 2, 2, 64), tmp_path / "config.json"
    plain, expected = json.loads(path.read_text()), baselines.load(tmp_path, "cpu").rollout(u, {}, 2)
    path.write_text(json.dumps({**plain, "model": {**plain["model"], "n_official": 0}}))
    assert torch.equal(baselines.load(tmp_path, "cpu").rollout(u, {}, 2), expected)
    path.write_text(json.dumps({**plain, "model": {**plain["model"], "n_official": 12}}))
    with pytest.raises(CheckpointError, match="n_official: unknown key"):
        baselines.load(tmp_path, "cpu")


def test_an_unknown_recipe_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    task = task_of("combined", 64)
    with pytest.raises(ConfigError, match="There is no recipe 'fats', did you mean 'fast'"):
        solver_folder.save(Fno(Fno.recipe("tiny", task).model, task), tmp_path / "new", "fats")
    assert not (tmp_path / "new").exists()


def test_the_recipe_of_a_network_is_told_truly(tmp_path: Path) -> None:
    task = task_of("combined", 64)
    solver = Fno(Fno.recipe("tiny", task).model, task)
    with pytest.raises(ConfigError, match="has the sizes of recipe 'tiny', not of 'fast'"):
        solver_folder.save(solver, tmp_path / "new", "fast")
    assert not (tmp_path / "new").exists()
    changed = Fno(dataclasses.replace(solver.config, depth=solver.config.depth + 1), task)
    solver_folder.save(changed, tmp_path / "new", "fast")  # fast with a word that changes it


@pytest.mark.parametrize("content", [b"", b"[1", b"[]", None])
def test_damage_is_named(content: bytes | None, folder: Path) -> None:
    path = folder / "model" / "config.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(path)):
        baselines.load(folder, "cpu")


def test_a_solver_is_no_model_of_ours_and_the_other_way_round(folder: Path, tmp_path: Path) -> None:
    for place in (folder, folder / "model"):
        assert isinstance(pdejepa.load(place, "cpu"), PublishedSolver)
        with pytest.raises(CheckpointError, match=r"does not describe a model.*is loaded by pdejepa\.load"):
            load(place, "cpu")
    entry, model = MethodEntry("combined", "tiny", 0), tiny.forecaster("combined").surrogate
    entry.model = model
    entry.save(tmp_path / "ours" / "model")
    assert isinstance(pdejepa.load(tmp_path / "ours" / "model", "cpu"), Forecaster)
    with pytest.raises(CheckpointError, match=r"Models: pdejepa\.load"):
        baselines.load(tmp_path / "ours", "cpu")


def test_the_examples_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/solvers.md").read_text(), re.DOTALL))
    for long, short in (('"fast"', '"tiny"'), ("1000", "10"), ("50}", "10}"), ('"seconds", 180', '"steps", 2')):
        assert long in code
        code = code.replace(long, short)
    told: dict[str, Any] = {}
    exec(code, told)
    assert told["out"].fields.shape == (4, 14, 1, 256)
    assert (tmp_path / "solvers/unisolver/config.json").exists()
