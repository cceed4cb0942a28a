"""Trainings of solvers in a folder: continued with what it was begun with, or not at all."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import pdejepa
from pdejepa import systems
from pdejepa.baselines import NAMES, get, saved
from pdejepa.baselines.base import Baseline, Recipe
from pdejepa.baselines.fit import FitStage, TotalBudget, build, fit
from pdejepa.baselines.fno import Fno
from pdejepa.baselines.pool import Pool, blocks, build_pool
from pdejepa.core.errors import CheckpointError, ConfigError, DataError, Interrupted, ResourceError
from pdejepa.core.files import lock
from pdejepa.stages.common import Place
from pdejepa.stages.operations import step_flops

CPU = torch.device("cpu")
FIVE = TotalBudget("steps", 5)


@cache
def pool(seed: int = 0) -> Pool:
    return build_pool(systems.get("combined", n_points=64), {"train": 10, "valid": 5}, CPU, seed)


def recipe(**changes: Any) -> Recipe:
    """The tiny one; `changes` are of its training, `lr` of its optimiser."""
    made = Fno.recipe("tiny", pool().task)
    training = made.stages[0].training
    if "lr" in changes:
        changes["optimiser"] = dataclasses.replace(training.optimiser, lr=changes.pop("lr"))
    stage = dataclasses.replace(made.stages[0], training=dataclasses.replace(training, n_scores=1, **changes))
    return dataclasses.replace(made, stages=(stage,))


def train(
    out: Path, made: Recipe | None = None, budget: TotalBudget | None = FIVE, seed: int = 0, data: int = 0
) -> Baseline:
    made = made or recipe()
    solver = build(Fno, made, pool(data), seed)
    fit(solver, made, pool(data), out, budget, seed)
    return solver


# ---- what a folder was begun with --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"budget": TotalBudget("steps", 50), "seed": 1}, "budget 5 steps -> 50 steps; seed 0 -> 1"),
        ({"budget": TotalBudget("samples", 5)}, "budget 5 steps -> 5 samples"),
        ({"budget": None}, "budget 5 steps -> that of the recipe"),
        ({"seed": 1}, "seed 0 -> 1"),
        ({"made": "lr"}, "stages.fit.training.optimiser.lr 0.001 -> 0.002"),
        ({"made": "batch"}, "stages.fit.training.batch 8 -> 4"),
        ({"data": 1}, "data [0-9a-f]{12} -> [0-9a-f]{12}"),
    ],
)
@pytest.mark.parametrize("is_done", [True, False])
def test_another_training_is_refused(changes: dict[str, Any], told: str, is_done: bool, tmp_path: Path) -> None:
    train(tmp_path / "run")
    if not is_done:
        (tmp_path / "run/fit/done.json").unlink()
    others = {"lr": recipe(lr=2e-3), "batch": recipe(batch=4)}
    changes = {**changes, "made": others.get(changes.get("made", ""))}
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=rf"begun with something else: .*{told}.*another folder, or remove this one"):
        train(tmp_path / "run", **changes)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_the_same_training_is_loaded(tmp_path: Path) -> None:
    """Whatever does not change the weights may differ: how often it is saved, and budgets that a total overrules."""
    first = train(tmp_path / "run")
    other = recipe(save_every=3, log_every=1, budget=dataclasses.replace(recipe().stages[0].training.budget, steps=99))
    again = train(tmp_path / "run", other, TotalBudget("steps", np.float64(5.0)))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    told = json.loads((tmp_path / "run/solver.json").read_text())
    assert set(told) == {"asked", "stages", "seconds"}
    assert (told["asked"]["solver"], told["asked"]["seed"], told["stages"]["fit"]["steps"]) == ("fno", 0, 5)


def test_another_network_is_told_first(tmp_path: Path) -> None:
    train(tmp_path / "run")
    made = Fno.recipe("fast", pool().task)
    with pytest.raises(ConfigError, match=r"model\.depth 2 -> 4; model\.modes 4 -> 32") as caught:
        fit(build(Fno, made, pool()), made, pool(), tmp_path / "run", TotalBudget("steps", 6))
    assert "something else: budget 5 steps -> 6 steps; model.depth" in str(caught.value)
    assert "and " in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "[]", '{"seed": 0}'])
def test_a_folder_that_does_not_tell_is_refused(content: str | None, tmp_path: Path) -> None:
    train(tmp_path / "run")
    path = tmp_path / "run/solver.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=r"solver\.json does not tell what .*Use another folder"):
        train(tmp_path / "run")


def test_one_process_per_folder(tmp_path: Path) -> None:
    with lock(tmp_path / "run"), pytest.raises(ResourceError, match="is writing"):
        train(tmp_path / "run")
    solver = build(Fno, recipe(), pool())
    with lock(tmp_path / "run"):  # of a comparison, which holds its own
        fit(solver, recipe(), pool(), tmp_path / "run", FIVE, keep="memory")


def test_models_and_trainings_are_not_taken_for_each_other(tmp_path: Path) -> None:
    train(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"training of a published solver.*pdejepa\.baselines\.load"):
        pdejepa.load(tmp_path / "run", "cpu")


# ---- budgets and recipes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("amount", [0, -1, float("inf"), float("nan"), "5", None, True, 10**400, [5]])
@pytest.mark.parametrize("unit", ["seconds", "steps"])
def test_budgets_are_finite_and_positive(unit: Any, amount: Any) -> None:
    with pytest.raises(ConfigError, match="a budget is a finite positive number of seconds"):
        TotalBudget(unit, amount)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_recipe_is_refused_by_name(name: str) -> None:
    for word, told in (("huge", r"'huge'\."), ("fats", "'fats', did you mean 'fast'"), (["fast"], "")):
        with pytest.raises(ConfigError, match=rf"There is no recipe .*{told}.*Recipes: paper, fast, tiny"):
            get(name).recipe(word, pool().task)  # type: ignore[arg-type]


def test_who_has_no_published_weights_says_so() -> None:
    with pytest.raises(ConfigError, match="There are no published weights for FNO"):
        build(Fno, recipe(), pool()).load_official("x.pth")
    with pytest.raises(ConfigError, match="There are no published weights for FNO"):
        Fno.check_official(Path("x.pth"))


# ---- pools -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("counts", [{"train": 5}, {"valid": 5}, {}, {"train": 5, "test": 5}])
def test_pools_hold_train_and_valid(counts: dict[str, int]) -> None:
    with pytest.raises(DataError, match="A pool needs the splits train and valid; got"):
        build_pool(pool().data.system, counts, CPU)
    data = dataclasses.replace(pool().data, fields={split: pool().data.fields["train"] for split in counts})
    with pytest.raises(DataError, match="A pool needs the splits train and valid; got"):
        Pool(data, {})


@pytest.mark.parametrize("n", range(1, 24))
def test_pools_hold_as_many_trajectories_as_asked(n: int) -> None:
    """And nobody is alone in an environment."""
    for name in ("combined", "gray_scott", "heat", "wave_b"):
        system = systems.get(name)
        n_environments = system.split("train").n_environments
        rows = [row for start, size in blocks(system, "train", n) for row in range(start, start + size)]
        assert len(set(rows)) == len(rows) == n
        environments = torch.tensor(rows) % n_environments
        assert n == 1 or n >= 2 * n_environments or int(environments.unique(return_counts=True)[1].min()) >= 2


def test_left_over_trajectories_have_support_too() -> None:
    found = build_pool(pool().data.system, {"train": 11, "valid": 7}, CPU)
    assert [found.data.n(split) for split in ("train", "valid")] == [11, 7]
    rows = torch.arange(11)
    others = found.support("train", rows, 1, torch.full((11, 1), 0.999))[:, 0]
    assert not bool((others == rows).any())
    assert torch.equal(found.environment["train"][others], found.environment["train"])


def test_a_solver_is_trained_on_what_it_was_built_for(tmp_path: Path) -> None:
    made = recipe()
    other = build_pool(systems.get("heat", n_points=64), {"train": 10, "valid": 5}, CPU)
    for wrong in (other, pool(1)):
        with pytest.raises(ConfigError, match="This FNO was built for other data: its combined has mean"):
            fit(build(Fno, made, pool()), made, wrong, tmp_path / "run", FIVE)
    for mine in (get("lns").recipe("tiny", pool().task), Fno.recipe("fast", pool().task)):
        with pytest.raises(ConfigError, match="This FNO was not built with this recipe"):
            fit(build(Fno, made, pool()), mine, pool(), tmp_path / "run", FIVE)
    assert not (tmp_path / "run").exists()


def test_published_weights_are_another_start(tmp_path: Path) -> None:
    made = recipe()
    train(tmp_path / "run")
    solver = build(Fno, made, pool())
    solver.start = "a" * 64  # as after load_official
    with pytest.raises(ConfigError, match=r"begun with something else: start random weights -> a{64}"):
        fit(solver, made, pool(), tmp_path / "run", FIVE)
    plain = json.loads((tmp_path / "run/solver.json").read_text())
    del plain["asked"]["start"]  # an earlier version
    (tmp_path / "run/solver.json").write_text(json.dumps(plain))
    train(tmp_path / "run")


@pytest.mark.parametrize(("name", "steps"), [("fno", 4), ("cape", 4), ("cape", 10), ("lns", 7)])
def test_few_steps_are_not_exceeded(name: str, steps: int, tmp_path: Path) -> None:
    kind = get(name)
    made = kind.recipe("tiny", pool().task)
    report = fit(build(kind, made, pool()), made, pool(), tmp_path / "run", TotalBudget("steps", steps))
    assert steps - len(report) < sum(part["steps"] for part in report.values()) <= steps


def test_networks_are_single_precision_whatever_is_the_default(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        solver = train(tmp_path / "run")
        saved.save(solver, tmp_path / "saved", "tiny")
        loaded = saved.load(tmp_path / "saved", "cpu")
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in (*solver.parameters(), *loaded.parameters())} == {torch.float32}
    again = train(tmp_path / "again")
    assert all(torch.equal(a, b) for a, b in zip(solver.parameters(), again.parameters(), strict=True))


# ---- scores, and what a stage is told ----------------------------------------------------------------------------
def last_stage(name: str) -> FitStage:
    kind = get(name)
    made = kind.recipe("tiny", pool().task)
    return FitStage(build(kind, made, pool()), made.stages[-1], pool(), Place(CPU), 0)


@pytest.mark.parametrize("name", ["vit_in_context", "le_pde"])
def test_scores_are_told_another_trajectory(name: str) -> None:
    """With its own as context, a forecast would have its answer before it."""
    stage, told = last_stage(name), []
    adapt = stage.solver.adapt
    stage.solver.adapt = lambda support, *rest: told.append(support) or adapt(support, *rest)  # type: ignore
    stage.score()
    u = pool().data.fields["valid"]
    assert len(told) == 1
    assert not bool((told[0][:, 0] == u).flatten(1).all(1).any())


def test_penalties_do_not_choose_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = last_stage("coda")
    monkeypatch.setattr(stage.solver, "loss", lambda *_: {"loss": torch.tensor(9.0), "error": torch.tensor(0.5)})
    assert stage.score() == {"score": 0.5}


def test_stages_end_with_the_weights_that_they_were_judged_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16: rounded, for all solvers as for the method."""
    seen: list[bool] = []

    def stop(stage: FitStage, *_: Any) -> None:
        seen.append(stage.settings.rounds)
        raise Interrupted("enough is known")

    monkeypatch.setattr("pdejepa.baselines.fit.run_stage", stop)
    with pytest.raises(Interrupted):
        train(tmp_path / "run")
    assert seen == [True]


@pytest.mark.parametrize(("name", "n", "tolerance"), [("geps", 12, 0.05), ("mpp", 90, 0.15), ("fno", 3, 1e-9)])
def test_operations_are_those_of_a_whole_training(name: str, n: int, tolerance: float) -> None:
    """Rollouts of GEPS grow while it trains, and windows of MPP have all lengths: four steps tell, no single one."""
    stage = last_stage(name)
    with FlopCounterMode(display=False) as counter:
        for step in range(n):
            stage(stage.batch(step, n))["loss"].backward()
    assert step_flops(stage) == pytest.approx(counter.get_total_flops() / n, rel=tolerance)


@pytest.mark.parametrize("name", ["lns", "zebra"])
def test_a_frame_of_nothing_does_not_outweigh_all_others(name: str) -> None:
    """As u_t of Wave-2D in its first frame: an error that is divided by its size would have no bound."""
    kind = get(name)
    made = kind.recipe("tiny", pool().task)
    stage = FitStage(build(kind, made, pool()), made.stages[0], pool(), Place(CPU), 0)
    batch = stage.batch(0, 10)
    batch["u"][:, 0] = 0.0
    with torch.no_grad():
        assert float(stage(batch)["loss"]) < 100
