"""Systems from elsewhere: the documented example is found, checked, generated, trained and forecast like our own."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import pdejepa
import pdejepa.core.errors
import pdejepa.models.condition
import pdejepa.models.surrogate
from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.core.errors import ConfigError
from pdejepa.method import recipes
from pdejepa.method.recipes.derived import patch_of
from pdejepa.systems import System, contract, registry
from pdejepa.systems.contract import check
from pdejepa.systems.problem import Axis, Parameter, Problem, Structure, Term, Uniform, power
from tests.contract.test_systems import small

PROMISES = dict(contract.PROMISES)
PAGE = Path(__file__).parents[2] / "docs/own_system.md"
NAME, PATH = "kuramoto_sivashinsky", "ks.py:KuramotoSivashinsky"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the documented example lies, with the environment that the page sets; nothing is known afterwards."""
    match = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match
    (tmp_path / "ks.py").write_text(match[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.VARIABLE, PATH)
    with mock.patch.dict(registry._registered, clear=True):
        yield tmp_path
    sys.modules.pop("ks", None)


SMALL = (
    "counts={train: 8, valid: 4}",
    "model.encoder={patch: 16, width: 16, depth: 1, heads: 2}",
    "model.field={width: 16, depth: 1, heads: 2}",
    *(f"{stage}.training.budget.steps=2" for stage in ("pretrain", "align", "dynamics", "decode")),
)


@pytest.mark.slow
def test_the_documented_example_from_check_to_forecast(folder: Path) -> None:
    assert main(["check-system", NAME]) == 0
    assert main(["generate", NAME, "--size", "tiny", "--out", "data", "--device", "cpu"]) == 0
    assert main(["audit", "data"]) == 0
    assert main(["train", NAME, "--recipe", "tiny", "--out", "run", "--data", "data", "--device", "cpu", *SMALL]) == 0
    assert main(["evaluate", "run", "--n", "2"]) == 0
    assert main(["forecast", "run", "--from", "test:3", "--compare", "--out", "ks.png"]) == 0
    assert (folder / "ks.png").stat().st_size > 10_000
    record = json.loads((folder / f"run/results/{NAME}-tiny-s0.json").read_text())
    assert record["system"] == NAME
    assert set(record["errors"]) == {"test", "ood"}


@pytest.mark.slow
def test_the_documented_example_learns(folder: Path) -> None:
    assert main(["train", NAME, "--recipe", "tiny", "--out", "run", "--device", "cpu"]) == 0
    assert main(["evaluate", "run", "--n", "20", "--splits", "test"]) == 0
    errors = json.loads((folder / f"run/results/{NAME}-tiny-s0.json").read_text())["errors"]["test"]
    assert errors["rel_l2"] < errors["repeat_first"] / 2


def test_a_model_opens_where_its_system_is_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--recipe", "tiny", "--out", "run", "--device", "cpu", *SMALL]
    assert main(["train", NAME, *words]) == 0
    u0, xi = systems.get(NAME).sample("test", 0)
    known = pdejepa.load("run", "cpu").forecast(u0, xi, n_frames=2)
    registry._registered.clear()
    monkeypatch.delenv(registry.VARIABLE)
    model = pdejepa.load("run", "cpu")
    assert torch.equal(model.forecast(u0, xi, n_frames=2).fields, known.fields)
    with pytest.raises(pdejepa.core.errors.CheckpointError, match="is not known here, so nothing can be sampled"):
        _ = model.system


# ---- the registry ------------------------------------------------------------------------------------------------
def test_names(folder: Path) -> None:
    assert systems.names() == (*systems.NAMES, NAME)
    assert systems.is_known(NAME)
    assert not systems.is_known("nothing")
    assert systems.get("Kuramoto-Sivashinsky").name == NAME


def test_a_class_is_registered_by_a_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.VARIABLE)
    with pytest.raises(ConfigError, match=f"There is no system '{NAME}'.*PDEJEPA_SYSTEMS=file.py:Class"):
        systems.get(NAME)
    made = systems.from_path(PATH)
    assert systems.register(made) is made
    assert isinstance(systems.get(NAME, n_points=64), made)


def test_entry_points_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.VARIABLE)
    made = systems.from_path(PATH)
    registry._registered.clear()
    point = mock.Mock()
    point.name, point.load = NAME, lambda: made
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group, **by: [point])
    assert systems.get(NAME).name == NAME


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("ks.py", "given as module:Class or file.py:Class"),
        ("ks.py:Nothing", "cannot be imported: AttributeError"),
        ("nothing.py:Nothing", "cannot be imported: ModuleNotFoundError"),
        ("ks.py:SpectralLine", "must be a word such as my_system"),
        ("json:JSONDecoder", "derives from System"),
        ("pdejepa.systems.heat:Heat", "there is a built-in system 'heat'"),
    ],
)
def test_what_cannot_be_a_system_is_refused(folder: Path, path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        systems.from_path(path)


# ---- the contract ------------------------------------------------------------------------------------------------
def broken(system: System) -> list[str]:
    return [result.name for result in check(system) if result.fault]


FLOWS = ("vorticity", "heterns")  # coarser than their tiny size they are other flows
LONG = (*FLOWS, "gray_scott", "burgers", "wave_b", "wave_2d")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in systems.NAMES])
def test_built_in_systems_keep_the_contract(name: str) -> None:
    assert broken(systems.build_system(name, "tiny", {}) if name in FLOWS else small(name)) == []


def fault_of(system: System, promise: str) -> str:
    """How a promise is broken, or how the check fails."""
    with mock.patch.dict(contract.PROMISES, {promise: PROMISES[promise]}, clear=True):
        (result,) = check(system)
    return result.fault


def spoil(kind: type[System], **changes: Any) -> System:
    return dataclasses.dataclass(frozen=True)(type("Spoilt", (kind,), {"__module__": __name__, **changes}))()


MUTANTS: dict[str, Callable[[type[Any]], dict[str, Any]]] = {
    "parameters, axes, splits and terms are declared": lambda kind: {"splits": kind.splits.fget(kind())[:2]},
    "a trajectory is the same alone and in company": lambda kind: {
        "initial": lambda self, draws: kind.initial(self, draws) + 0.1 * len(draws.rows)
    },
    "draws are finite, in range and new in every attempt": lambda kind: {
        "initial": lambda self, draws: kind.initial(self, dataclasses.replace(draws, attempt=0))
    },
    "training splits stay inside the training ranges": lambda kind: {
        "environment": lambda self, split, draws: kind.environment(self, split, draws) + 0.3
    },
    "operators and shared part have their shapes": lambda kind: {
        "operators": lambda self, u: kind.operators(self, u)[:, 0]
    },
    "rows are solved independently": lambda kind: {
        "nonlinear": lambda self, u, xi: kind.nonlinear(self, u, xi) + 0.1 * u.mean(0)
    },
    "solutions move as the right-hand side says": lambda kind: {"shared": lambda self, u: 1.1 * kind.shared(self, u)},
    "training trajectories are solved to their end": lambda kind: {
        "symbol": lambda self, k, xi: -10 * kind.symbol(self, k, xi)
    },
    "a refined solution agrees": lambda kind: {
        "solve_reference": lambda self, u0, xi: 1.01 * kind.solve_reference(self, u0, xi)
    },
    "invariants hold": lambda kind: {"nonlinear": lambda self, u, xi: kind.nonlinear(self, u, xi) + 0.01},
}


@pytest.mark.parametrize("promise", MUTANTS)
def test_a_broken_promise_is_noticed(promise: str, folder: Path) -> None:
    kind = systems.from_path(PATH)
    assert PROMISES[promise](kind()) == ""
    assert fault_of(spoil(kind, **MUTANTS[promise](kind)), promise)


def test_a_broken_system_is_refused_by_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "ks.py").read_text().replace("k**2 - xi", "k**2 - 1.1 * xi")
    (folder / "other.py").write_text(text)
    assert main(["check-system", "other.py:KuramotoSivashinsky"]) == 3
    out, error = capsys.readouterr()
    assert "BROKEN  solutions move as the right-hand side says" in out
    assert "breaks 1 of the promises above" in error


# ---- derived recipes ---------------------------------------------------------------------------------------------
def problem(*grid: int, boundary: str = "periodic") -> Problem:
    axes = tuple(Axis(name, tuple(range(n)), boundary) for name, n in zip("xy", grid, strict=False))  # type: ignore[arg-type]
    parameters = (Parameter("speed", "c", "speed", Uniform(0.0, 1.0), (0.0, 2.0)),)
    structure = Structure((Term("speed", "c", power("speed"), "rms", "u_x"),), has_shared=False)
    return Problem("mine", ("u",), axes, (0.0, 1.0, 2.0), parameters, structure)


@pytest.mark.parametrize(
    ("grid", "n_tokens", "patch"),
    [
        ((256,), 16, 16),
        ((128,), 16, 8),
        ((96,), 16, 4),
        ((100,), 16, 4),
        ((50,), 64, 1),
        ((64, 64), 16, 16),
        ((64, 32), 64, 4),
    ],
)
def test_patches_follow_from_the_grid(grid: tuple[int, ...], n_tokens: int, patch: int) -> None:
    assert patch_of(problem(*grid), n_tokens) == patch


@pytest.mark.parametrize("recipe", ["tiny", "laptop", "long", "fast"])
@pytest.mark.parametrize("grid", [(32,), (100,), (128,), (256,), (33,), (32, 32), (64, 48), (128, 128)])
def test_derived_recipes_can_be_built(grid: tuple[int, ...], recipe: str) -> None:
    mine = problem(*grid)
    config = recipes.derived.get(mine, recipe)
    with FakeTensorMode():
        statistics = pdejepa.models.condition.Statistics((0.0,), (1.0,), {"speed": (0.0, 1.0)}, {"speed": (0.0, 1.0)})
        model = pdejepa.models.surrogate.Surrogate(mine, config.model, config.variant, statistics)
        u: Tensor = torch.zeros(1, 1, 1, *grid)
        assert model.decode(model.encode(u)).shape == u.shape


def test_there_is_no_paper_recipe_for_what_was_not_published() -> None:
    with pytest.raises(ConfigError, match=r"nothing is published\. Use fast, laptop, long or tiny"):
        recipes.derived.get(problem(64), "paper")
