"""Trainings of solvers in a folder: continued with what it was begun with, or not at all."""

from __future__ import annotations

import dataclasses
import json
import signal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

import pdejepa
from pdejepa import systems
from pdejepa.baselines import NAMES, get, solver_folder
from pdejepa.baselines.baseline import Baseline, Recipe
from pdejepa.baselines.fit import FitStage, TotalBudget, build, fit
from pdejepa.baselines.fno import Fno
from pdejepa.baselines.pool import Pool, blocks, build_pool
from pdejepa.core.errors import CheckpointError, ConfigError, DataError, Interrupted, ResourceError
from pdejepa.core.files import lock
from pdejepa.training.flops import counted
from pdejepa.training.settings import OptimiserConfig
from pdejepa.training.stage import Context

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
        ({"budget": TotalBudget("seconds", 5)}, "budget 5 steps -> 5 seconds"),
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
    with pytest.raises(CheckpointError, match=r"training of a published solver.*solver_folder\.save"):
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
        with pytest.raises(ConfigError, match=rf"There is no recipe .*{told}.*Recipes: paper, fast, laptop, tiny"):
            get(name).recipe(word, pool().task)  # type: ignore[arg-type]


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


def test_a_folder_of_a_former_version_tells_its_start(tmp_path: Path) -> None:
    """Trainings from random weights are continued; others, which began with published ones, are refused."""
    train(tmp_path / "run")
    path = tmp_path / "run/solver.json"
    plain = json.loads(path.read_text())
    assert "start" not in plain["asked"]
    plain["asked"]["start"] = "random weights"
    path.write_text(json.dumps(plain))
    train(tmp_path / "run")
    plain["asked"]["start"] = "a" * 64  # the hash of a file
    path.write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"begun with something else: start a{64} -> None"):
        train(tmp_path / "run")


def test_a_folder_of_a_former_version_knows_fields_of_published_weights(tmp_path: Path) -> None:
    """MPP could hold twelve of them; networks without any are what they were."""
    kind = get("mpp")
    made = kind.recipe("tiny", pool().task)
    run = lambda: fit(build(kind, made, pool()), made, pool(), tmp_path, TotalBudget("steps", 1))  # noqa: E731
    run()
    path = tmp_path / "solver.json"
    plain = json.loads(path.read_text())
    plain["asked"]["model"]["n_official"] = 0
    path.write_text(json.dumps(plain))
    run()
    plain["asked"]["model"]["n_official"] = 12
    path.write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"begun with something else: model\.n_official 12 -> None"):
        run()


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
        solver_folder.save(solver, tmp_path / "saved", "tiny")
        loaded = solver_folder.load(tmp_path / "saved", "cpu")
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in (*solver.parameters(), *loaded.parameters())} == {torch.float32}
    again = train(tmp_path / "again")
    assert all(torch.equal(a, b) for a, b in zip(solver.parameters(), again.parameters(), strict=True))


# ---- scores, and what a stage is told ----------------------------------------------------------------------------
def last_stage(name: str) -> FitStage:
    kind = get(name)
    made = kind.recipe("tiny", pool().task)
    return FitStage(build(kind, made, pool()), made.stages[-1], pool(), Context(CPU), 0)


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


@pytest.mark.parametrize(
    ("name", "n", "tolerance"),
    [("geps", 24, 0.05), pytest.param("mpp", 90, 0.15, marks=pytest.mark.slow), ("fno", 30, 0.01)],
)
def test_operations_are_those_of_a_whole_training(name: str, n: int, tolerance: float, tmp_path: Path) -> None:
    """Rollouts of GEPS grow while it trains, and windows of MPP have all lengths: four steps tell, no single one."""
    stage = last_stage(name)
    spent = counted(lambda: [stage(stage.batch(step, n))["loss"].backward() for step in range(n)])
    made = get(name).recipe("tiny", pool().task)
    report = fit(build(get(name), made, pool()), made, pool(), tmp_path, TotalBudget("flops", spent), keep="memory")
    assert report["fit"]["steps"] == pytest.approx(n, rel=tolerance, abs=1)


def test_attention_counts() -> None:
    """On a CPU as well: two products forward and five backward, the formulas that PyTorch has for GPUs."""
    q, k, v = (torch.randn(2, 3, n, d, requires_grad=True) for n, d in ((16, 8), (24, 8), (24, 8)))
    sizes = [tuple(x.shape) for x in (q, k, v)]
    product = 2 * 2 * 3 * 16 * 24 * 8
    assert counted(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)) == 2 * product
    assert counted(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()) == 7 * product
    assert sdpa_flop_count(*sizes) == 2 * product
    assert sdpa_backward_flop_count(sizes[0], *sizes) == 5 * product


def test_optimisers_count(tmp_path: Path) -> None:
    """Muon multiplies matrices: with it fewer steps fit than with AdamW."""
    kind, steps = get("cls_vit"), {}
    for word in ("adamw", "muon"):
        made = kind.recipe("tiny", pool().task)
        training = dataclasses.replace(made.stages[0].training, optimiser=OptimiserConfig(kind=word))  # type: ignore
        made = dataclasses.replace(made, stages=(dataclasses.replace(made.stages[0], training=training),))
        out, budget = tmp_path / word, TotalBudget("flops", 2e9)
        steps[word] = fit(build(kind, made, pool()), made, pool(), out, budget, keep="memory")["fit"]["steps"]
    assert 0 < steps["muon"] < steps["adamw"]


def test_steps_without_operations_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdejepa.training.step.step_flops", lambda *_: 0.0)
    with pytest.raises(ConfigError, match="needs steps with operations that PyTorch counts; got none"):
        train(tmp_path, budget=TotalBudget("flops", 1e9))


def test_counting_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def stop(solver: Fno, *_: Any) -> None:
        taken.append(1)
        signal.raise_signal(signal.SIGINT)

    made = recipe()
    solver = build(Fno, made, pool())
    loss = solver.loss
    monkeypatch.setattr(solver, "loss", lambda *given: (stop(solver), loss(*given))[1])
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        fit(solver, made, pool(), tmp_path, TotalBudget("flops", 1e12))
    assert len(taken) == 1


def test_a_folder_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    """It had the budget of its recipe, and knew of no operations."""
    made = recipe()
    train(tmp_path, made, budget=None)
    path = tmp_path / "solver.json"
    told = json.loads(path.read_text())
    assert told["asked"]["stages"]["fit"]["training"]["budget"].pop("flops") == 0.0
    path.write_text(json.dumps(told))
    train(tmp_path, made, budget=None)


@pytest.mark.parametrize("name", ["lns", "zebra"])
def test_a_frame_of_nothing_does_not_outweigh_all_others(name: str) -> None:
    """As u_t of Wave-2D in its first frame: an error that is divided by its size would have no bound."""
    kind = get(name)
    made = kind.recipe("tiny", pool().task)
    stage = FitStage(build(kind, made, pool()), made.stages[0], pool(), Context(CPU), 0)
    batch = stage.batch(0, 10)
    batch["u"][:, 0] = 0.0
    with torch.no_grad():
        assert float(stage(batch)["loss"]) < 100
