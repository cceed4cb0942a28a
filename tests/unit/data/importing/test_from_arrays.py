"""Arrays in memory: the splits of an import, and one sentence for each mistake."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pdejepa
from pdejepa.core.errors import DataError, PdejepaError
from pdejepa.data.importing.partition import partition
from pdejepa.method import recipes
from pdejepa.systems.problem import Problem
from pdejepa.systems.structure import fit_coefficients
from tests.unit.data.importing.made import N, T, X, waves


def given(**changes: Any) -> Any:
    u, columns = waves()
    return pdejepa.from_arrays(**{"fields": u, "parameters": columns, "dt": 0.5, "periodic": "x", **changes})


def test_values_splits_and_problem() -> None:
    u, columns = waves()
    source = given(name="mine", box=[(0.0, 2.0)])
    problem: Problem = source.problem
    assert (problem.name, problem.fields, problem.parameter_names) == ("mine", ("u",), ("speed", "decay"))
    assert problem.axes[0].boundary == "periodic"
    assert problem.axes[0].points[1] == 2.0 / X
    assert problem.times == tuple(0.5 * i for i in range(T))
    assert {split: source.n(split) for split in source.splits} == {"train": 28, "valid": 4, "test": 4, "ood": 4}
    block = source.block("test", 0, 4)
    rows = [int(np.flatnonzero(columns["speed"] == value)[0]) for value in block.xi[:, 0].numpy()]
    np.testing.assert_array_equal(block.fields[:, :, 0].numpy(), u[rows])
    assert recipes.for_data(source, "tiny").counts == {"train": 28, "valid": 4}


def test_terms_are_centred_on_the_training_range() -> None:
    source = given()
    xi = torch.as_tensor(source.xi["train"])
    r = fit_coefficients(source.problem.structure.terms, source.problem.named(xi)).r(source.problem.named(xi))
    assert torch.allclose(r.min(0).values, -torch.ones(2, dtype=torch.float64))
    assert torch.allclose(r.max(0).values, torch.ones(2, dtype=torch.float64))


def test_several_fields_on_a_plane_as_tensors() -> None:
    u = torch.randn(12, 4, 16, 8).cumsum(1)
    source = given(fields={"a": u, "b": 2 * u}, parameters=None, periodic="xy")
    assert source.problem.fields == ("a", "b")
    assert source.problem.structure.terms == ()
    assert source.block("train", 0, 10).fields.shape == (10, 4, 2, 16, 8)
    assert source.block("train", 0, 10).environment.tolist() == [0] * 10


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "ragged": ({"fields": [np.zeros((4, 8)), np.zeros((5, 8))]}, "must be an array of real numbers"),
    "text": ({"fields": np.full((9, 5, 8), "a")}, "must be an array of real numbers"),
    "shape": ({"fields": np.zeros((9, 8))}, r"must be \(trajectory, time, x\)"),
    "few": ({"fields": waves()[0][:2], "parameters": None}, "At least 5 trajectories"),
    "nan": ({"fields": waves()[0] * np.nan}, "40 trajectories hold NaN"),
    "rest": ({"fields": np.repeat(waves()[0][:, :1], T, 1)}, "All frames of a trajectory are the same"),
    "rows": ({"parameters": {"nu": np.ones(3)}}, "nu must be 40 finite numbers"),
    "words": ({"parameters": {"nu": ["a"] * N}}, "nu must be numbers"),
    "name": ({"name": "heat"}, "there is a system 'heat' already"),
    "twice": ({"parameters": {"u": np.ones(N)}}, "is used for two things"),
    "axis": ({"periodic": "y"}, "periodic and box are told of the axes x"),
    "step": ({"dt": 0.0}, "dt must be a positive time"),
    "ood": ({"ood": "speed=9"}, "no trajectory has speed=9"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    changes, sentence = MISTAKES[mistake]
    with pytest.raises(PdejepaError, match=sentence):
        given(**changes)


# ---- splits ------------------------------------------------------------------------------------------------------
def test_environments_stay_together_and_take_turns() -> None:
    xi = np.repeat(np.linspace(0, 1, 20), 5)[:, None]  # 20 environments of 5 trajectories
    cut = partition(xi, ("nu",), None, seed=0)
    groups = {split: {float(xi[row, 0]) for row in rows} for split, rows in cut.rows.items()}
    assert cut.counts == {"train": 70, "valid": 10, "test": 10, "ood": 10}
    assert not groups["train"] & (groups["valid"] | groups["test"] | groups["ood"])
    assert min(groups["ood"]) > max(groups["train"] | groups["valid"] | groups["test"])
    assert len({float(xi[row, 0]) for row in cut.rows["train"][:14]}) == 14
    assert "no environment of 18 is in two of" in cut.how
    assert cut.rows == partition(xi, ("nu",), None, seed=0).rows
    assert cut.rows != partition(xi, ("nu",), None, seed=1).rows


def test_few_environments_are_cut_by_trajectory_and_that_is_said() -> None:
    xi = np.repeat([0.1, 0.2, 0.3], 10)[:, None]
    cut = partition(xi, ("nu",), None, seed=0)
    assert cut.counts == {"train": 24, "valid": 3, "test": 3}
    assert cut.how == "by trajectory: there are only 3 sets of parameters, which test shares with train"
    assert cut.ood.startswith("none")


def test_conditions_choose_what_is_outside() -> None:
    xi = np.stack([np.linspace(0, 1, 50), np.linspace(1, 0, 50)], 1)
    cut = partition(xi, ("a", "b"), ("a<0.1", "b <= 5e-2"), seed=0)
    assert sorted(cut.rows["ood"]) == [0, 1, 2, 3, 4, 47, 48, 49]
    assert cut.ood == "a<0.1 or b <= 5e-2"
    assert "ood" not in partition(xi, ("a", "b"), ("none",), seed=0).rows
    with pytest.raises(DataError, match="train, valid and test need at least one each"):
        partition(xi[:, :1], ("a",), ("a>0.02",), seed=0)
