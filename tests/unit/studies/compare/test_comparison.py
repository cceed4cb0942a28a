"""Comparisons: one protocol for all, and records that are kept."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from pdejepa import baselines, systems
from pdejepa.baselines import NAMES
from pdejepa.baselines.fit import TotalBudget
from pdejepa.baselines.fno import Fno
from pdejepa.baselines.pool import Pool, blocks, build_pool, sibling_table
from pdejepa.core.errors import ConfigError, Interrupted, NumericalError
from pdejepa.forecast.forecaster import CARD
from pdejepa.forecast.interface import Forecast
from pdejepa.method import recipes
from pdejepa.method.run_config import RunConfig
from pdejepa.studies.compare import comparison, competitors, judgement, trials
from pdejepa.studies.compare.cards import card_of, names
from pdejepa.studies.compare.comparison import compare
from pdejepa.studies.compare.comparison_records import SolverRecord, read_records
from pdejepa.studies.compare.comparison_tables import groups, page, told
from pdejepa.studies.compare.competitors import (
    Entry,
    MethodEntry,
    SolverEntry,
    faster,
    longest_history,
    scaled,
    with_parts,
)
from pdejepa.studies.compare.trials import trial_budget
from pdejepa.studies.compare.turns import Comparison, Turn, chosen, usual_recipe
from pdejepa.studies.compare.unknown_parameters import blind_error
from pdejepa.training import timing
from pdejepa.training.stage import Keep
from pdejepa.training.timing import Limit
from tests.unit.baselines.token_solvers import task_of
from tests.unit.studies.compare.records_made import answer, made

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pool() -> Pool:
    made = build_pool(systems.get("advection", n_points=32), {"train": 10, "valid": 10, "test": 10}, CPU)
    made.tail_from = 5
    return made


# ---- data ------------------------------------------------------------------------------------------------------
def test_small_pools_have_siblings(pool: Pool) -> None:
    assert pool.task.n_environments == 2
    assert pool.siblings["train"].shape == (2, 5)
    for environment in range(2):
        own = pool.siblings["train"][environment]
        assert len(pool.data.xi["train"][own].unique(dim=0)) == 1  # one set of parameters ...
        assert len(pool.data.fields["train"][own, 0].flatten(1).unique(dim=0)) == 5  # ... and five initial states


def test_support_is_another_trajectory_of_the_same_environment(pool: Pool) -> None:
    own = torch.arange(10)
    for value in (0.0, 0.5, 0.999):
        others = pool.support("train", own, 1, torch.full((10, 1), value))[:, 0]
        assert not bool((others == own).any())
        assert torch.equal(pool.environment["train"][others], pool.environment["train"])


def test_large_pools_are_the_data_set_itself() -> None:
    assert blocks(systems.get("wave_b"), "train", 40) == [(0, 40)]
    assert torch.equal(sibling_table(torch.tensor([0, 1, 0, 1, 1])), torch.tensor([[0, 2], [1, 3]]))


# ---- protocol --------------------------------------------------------------------------------------------------
class Known(Entry):
    """Knows the truth, looks at three frames, and is off by a known share."""

    def __init__(self, truth: Tensor, share: float) -> None:
        self.truth, self.share = truth, share
        self.card, self.history, self.n_parameters = CARD, 3, 0
        self.seen: list[int] = []

    def fit(
        self,
        pool: Pool,
        budget: TotalBudget,
        folder: Path,
        factor: float,
        keep: Keep = "files",
        limit: Limit | None = None,
    ) -> dict[str, Any]:
        return {}

    def save(self, folder: Path) -> None: ...

    def forecast_flops(self, pool: Pool) -> float | None:
        return None

    def forecast(self, u: Tensor, xi: Tensor, n_frames: int, support: Tensor | None) -> Forecast:
        self.seen.append(u.shape[1])
        rows = torch.cdist(u[:, 0].flatten(1), self.truth[:, 0].flatten(1)).argmin(1)  # in whatever order they come
        fields = torch.cat((u, self.truth[rows, u.shape[1] :] * (1 + self.share)), 1)
        fields[rows == 3, -1] = torch.nan
        bad = {int(row): fields.shape[1] - 1 for row in (rows == 3).nonzero()}
        return answer(fields, bad, seconds=0.3, adapt=0.2)


def test_errors_tail_and_failures(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    mean, std = (torch.tensor(v).reshape(-1, 1) for v in (pool.data.statistics.mean, pool.data.statistics.std))
    entry = Known(pool.data.fields["test"] * std + mean, 0.1)
    found = judgement.judge(entry, pool, "test")
    assert entry.seen == [1, 3]
    assert found["trajectories"] == pytest.approx([0.1] * 3 + [1.0] + [0.1] * 6, rel=1e-4)
    assert found["rel_l2"] == pytest.approx(0.19, rel=1e-4)
    assert found["median"] == pytest.approx(0.1, rel=1e-4)
    assert (found["n"], found["n_diverged"], found["tail_from"]) == (10, 1, 5)
    assert 0.5 < found["repeat_first"] < 2
    for slow, n_timed in ((5.0, 4), (0.25, 1)):  # what takes long is timed once
        monkeypatch.setattr(judgement, "SLOW", slow)
        entry.seen.clear()
        speed = judgement.speed(entry, pool, "test")
        assert speed == pytest.approx({"ms_per_forecast": 10.0, "ms_per_adaptation": 20.0})
        assert len(entry.seen) == n_timed


def test_the_tail_is_measured_as_the_headline() -> None:
    """One norm over both channels of Gray-Scott, or a row would mix two measures."""
    pool = build_pool(systems.get("gray_scott", n_points=16), {"train": 10, "valid": 10, "test": 10}, CPU)
    mean, std = pool.data.statistics.moments(2, CPU)
    truth = pool.data.fields["test"] * std + mean
    off = truth.clone()
    off[:, :, 1] *= 1.3
    pool.tail_from = 5
    found = judgement.judge(Known(off, 0.0), pool, "test")
    weight = (0.3 * truth[:, 5:, 1]).flatten(1).norm(dim=1) / truth[:, 5:].flatten(1).norm(dim=1)
    weight[3] = 1.0  # the one that fails
    assert found["tail"] == pytest.approx(float(weight.mean()), rel=1e-3)
    assert found["tail"] < 0.2  # the mean over channels would be 0.9 * 0.15 + 0.1


def test_who_looks_at_more_frames_is_given_them_in_the_tail(pool: Pool) -> None:
    given = {name: judgement.true_frames(SolverEntry(name, "tiny", 0), pool) for name in NAMES}
    assert {name for name, n in given.items() if n == 5} == {"mae_pde", "dpot", "mpp"}
    assert (given["fno"], given["unisolver"]) == (2, 1)


@pytest.mark.parametrize("split", ["test", "valid"])
def test_the_support_is_never_the_trajectory_that_is_judged(pool: Pool, split: str) -> None:
    """Or the answer would be among what is told."""
    entry = Known(pool.data.fields[split], 0.0)
    entry.card = card_of("zebra")
    u, xi, support = judgement._inputs(entry, pool, split, torch.arange(10))
    assert support is not None
    assert not bool((support[:, 0] == u).flatten(1).all(1).any())
    for row in range(10):
        (source,) = (k for k in range(10) if torch.equal(support[row, 0], u[k]))
        assert torch.equal(xi[source], xi[row])


def test_the_method_has_no_more_than_the_others(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rescaled trajectories, no rule that was found on the judged splits, and on a CPU no other precision."""
    entry, seen = MethodEntry("combined", "fast", 0), []
    assert recipes.get("combined", "fast").amplitude == "unit"
    assert entry.config.amplitude == "as_is"
    assert entry.config.precision == "bf16"

    def no_training(config: RunConfig, *_: Any, **__: Any) -> None:
        seen.append(config.precision)
        raise Interrupted("enough is known")

    class NoForecaster:
        takes_finer_steps = True

        def __init__(self, *_: Any) -> None: ...

        def forecast(self, *_: Any, **__: Any) -> None:
            seen.append(self.takes_finer_steps)
            raise Interrupted("enough is known")

    monkeypatch.setattr(competitors, "train_stages", no_training)
    monkeypatch.setattr(competitors, "Forecaster", NoForecaster)
    with pytest.raises(Interrupted):
        entry.fit(pool, TotalBudget("seconds", 180.0), Path("nowhere"), 3.0)
    entry.model = object()  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        entry.forecast(torch.zeros(1, 1, 1, 8), torch.zeros(1, 1), 1, None)
    assert seen == ["fp32", False]


def test_who_is_told_nothing_but_frames() -> None:
    forecasters = [name for name in names() if card_of(name).is_forecaster]
    assert {name for name in forecasters if judgement.is_blind(card_of(name))} == {"fno", "mpp", "dpot", "mae_pde"}


def test_what_remains_to_who_does_not_know_the_parameters(pool: Pool) -> None:
    """Nothing, where all of train has the parameters of the trajectory; much, where it has many."""
    many = blind_error(pool, "test")
    assert many is not None
    assert 0.2 < many < 1.5
    one = dataclasses.replace(pool, data=dataclasses.replace(pool.data, xi=dict(pool.data.xi)))
    one.data.xi["train"] = pool.data.xi["test"][:1].expand(4, -1)
    one.data.fields = {**pool.data.fields, "test": pool.data.fields["test"][:1]}
    alone = blind_error(one, "test")
    assert alone is not None
    assert alone < 1e-4


# ---- runs ------------------------------------------------------------------------------------------------------
def test_the_method_takes_what_is_counted_too(pool: Pool, tmp_path: Path) -> None:
    entry = MethodEntry("advection", "tiny", 0)
    report = entry.fit(pool, TotalBudget("steps", 10), tmp_path / "run", 1.0, keep="memory")
    assert {part["steps"] for part in report.values()} == {2}
    shared = with_parts(entry.config, TotalBudget("steps", 1000))
    assert {getattr(shared, name).training.budget.steps for name in shared.stages} == {1000 // len(shared.stages)}


def test_the_method_takes_operations(pool: Pool, tmp_path: Path) -> None:
    """Each stage takes what its own steps cost: all of its part, to one step."""
    steps = {}
    for amount in (4e9, 12e9):
        budget, out = TotalBudget("flops", amount), tmp_path / f"{amount}"
        report = MethodEntry("advection", "tiny", 0).fit(pool, budget, out, 1.0, keep="memory")
        steps[amount] = {stage: part["steps"] for stage, part in report.items()}
    assert len(set(steps[4e9].values())) > 2
    for stage, few in steps[4e9].items():
        assert 3 * few <= steps[12e9][stage] <= 3 * few + 2


def test_learning_rates_are_scaled(pool: Pool) -> None:
    recipe = SolverEntry("fno", "tiny", 0).kind.recipe("tiny", pool.task)
    assert faster(recipe, 3.0).stages[0].training.optimiser.lr == pytest.approx(3e-3)


def test_all_learning_rates_of_the_method_are_scaled() -> None:
    config = recipes.get("combined", "fast")
    for name in config.stages:
        before, after = (getattr(one, name).training.optimiser for one in (config, scaled(config, 3.0)))
        assert (after.lr, after.muon_lr) == pytest.approx((3 * before.lr, 3 * before.muon_lr))


def test_names_are_checked() -> None:
    assert chosen(["fno", "pdejepa"]) == ("fno", "pdejepa")
    assert chosen(["Poseidon-T", "dpot_s", "le-pde"]) == ("poseidon", "dpot", "le_pde")
    assert "pdejepa" in chosen(["all"])
    with pytest.raises(ConfigError, match=r"There is no solver 'fnu'.*fno"):
        chosen(["fnu"])


def test_classical_solvers_take_part_without_trials_or_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, said = systems.get("advection", n_points=32), []
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(comparison, "N_JUDGED", 5)
    assert chosen(["classical"]) == tuple(baselines.CLASSICAL)
    assert not set(chosen(["all"])) & set(baselines.CLASSICAL)
    assert chosen(["opinf", "all", "classical"])[-1] in baselines.CLASSICAL
    plan = Comparison("advection", ("opinf",), TotalBudget("seconds", 1e-9), tmp_path, size="tiny", recipe="tiny")
    (record,) = compare(plan, said.append)
    assert (record.trials, record.steps, record.learning_rate_factor) == ((), {"fit": 0}, 1.0)
    assert record.parameters > 6 * 32  # modes at least
    assert record.error("test") is not None
    assert any("fitted at once, whatever the budget" in line for line in said)
    shown = page(read_records([tmp_path]), "picture.png", "minutes.png")
    assert "Operator inference" in shown
    assert "beside the budget" not in shown
    assert "one step only" not in shown
    assert compare(plan, said.append) == [record]  # kept


class Mine(Fno):
    card = dataclasses.replace(Fno.card, name="mine", title="Mine")


@pytest.mark.slow
def test_a_registered_solver_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = systems.get("advection", n_points=32)
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(comparison, "N_JUDGED", 5)
    with mock.patch.dict(baselines._registered, {"mine": Mine}):
        assert chosen(["mine"]) == ("mine",)
        assert "mine" in chosen(["all"])
        plan = Comparison("advection", ("mine",), TotalBudget("steps", 2), tmp_path, size="tiny", recipe="tiny")
        (record,) = compare(plan, lambda _: None)
        assert [(found.solver, found.title) for found in read_records([tmp_path])] == [("mine", "Mine")]
        assert (record.solver, told("mine")) == ("mine", "")


@pytest.mark.parametrize(
    ("size", "device", "usual"),
    [("paper", "cpu", "laptop"), ("paper", "cuda", "fast"), ("tiny", "cuda", "tiny"), ("small", "cpu", "laptop")],
)
def test_the_usual_recipe_is_one_that_the_machine_can_train(size: str, device: str, usual: str) -> None:
    """On a CPU a trial of `fast` did not end in seven minutes."""
    assert usual_recipe(size, torch.device(device)) == usual


@pytest.mark.parametrize(("recipe", "says"), [("tiny", False), ("laptop", False), ("fast", True), ("paper", True)])
def test_recipes_that_a_cpu_cannot_train_are_told_before_they_start(recipe: str, says: bool, tmp_path: Path) -> None:
    said: list[str] = []
    plan = Comparison("advection", ("fno",), TotalBudget("seconds", 3.0), tmp_path, size="tiny", recipe=recipe)
    comparison._check_machine(plan, said.append)
    lines = [line for line in said if "made for a data-centre GPU" in line and "--recipe laptop" in line]
    assert bool(lines) == says


@pytest.mark.slow
def test_a_comparison_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = systems.get("advection", n_points=32)
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(comparison, "N_JUDGED", 5)
    plan = Comparison("advection", ("fno",), TotalBudget("seconds", 3.0), tmp_path, size="tiny", recipe="tiny")
    said: list[str] = []
    records = compare(plan, said.append)
    assert [record.solver for record in records] == ["fno"]
    record = records[0]
    assert {split: found.n for split, found in record.errors.items()} == {"test": 5, "ood": 5}
    assert [trial.factor for trial in record.trials] == pytest.approx([1 / 3, 1.0, 3.0])
    scores = {trial.factor: trial.score for trial in record.trials}
    assert scores[record.learning_rate_factor] == min(scores.values())
    assert sum(record.steps.values()) > 1
    assert record.curve
    assert all(0 < one.seconds <= record.seconds for one in record.curve)
    trained = baselines.load(tmp_path / "runs" / plan.name("fno", 0), "cpu")
    assert sum(p.numel() for p in trained.parameters()) == record.parameters
    monkeypatch.setattr(comparison, "_one", lambda *_: pytest.fail("it was done already"))
    assert compare(plan, said.append) == records
    finer = systems.get("advection", n_points=64)
    monkeypatch.setattr(comparison, "build_system", lambda *_: finer)
    with pytest.raises(ConfigError, match="was measured on other data"):  # before anybody else is trained
        compare(dataclasses.replace(plan, solvers=("dpot", "fno")), said.append)
    monkeypatch.setattr(comparison, "device_name", lambda _: "a GPU")
    with pytest.raises(ConfigError, match="was measured on cpu, this is a GPU"):
        compare(plan, said.append)


def test_small_planes_have_the_grid_of_the_tiny_recipe(tmp_path: Path) -> None:
    plan = Comparison("wave_2d", ("lns",), TotalBudget("seconds", 3.0), tmp_path, size="tiny", recipe="tiny")
    assert comparison._pool(plan, ["lns"], str).task.grid == (32, 32)
    assert systems.get("wave_2d").grid == (64, 64)


# ---- what a user of a laptop waits for ---------------------------------------------------------------------------
@pytest.mark.slow
def test_a_budget_on_a_laptop_counts_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set-up and trials included, for the method too; and the same table has a published size."""
    small, said = systems.get("advection", n_points=32), list[str]()
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(timing, "LONGEST_STEP", 1.0)  # on a busy machine too
    monkeypatch.setattr(trials, "LEAST_SECONDS", 1.0)
    solvers, budget = ("fno", "fno@fast", "pdejepa"), TotalBudget("seconds", 30.0)
    plan = Comparison("advection", solvers, budget, tmp_path, size="tiny", recipe="laptop")
    records = {record.competitor: record for record in compare(plan, said.append)}
    assert tuple(records) == solvers, said
    for record in records.values():
        assert record.seconds == pytest.approx(30.0, rel=0.3)  # a tenth where nobody else computes
        assert 0 < (record.trial_seconds or 0) < record.seconds
        assert record.trial_seconds == pytest.approx(sum(trial.seconds or 0.0 for trial in record.trials))
        assert record.machine
        assert record.flops_per_forecast
        assert min(record.steps.values()) >= 1
    assert (records["fno@fast"].solver, records["fno@fast"].title) == ("fno", "FNO, size of fast")
    assert records["fno@fast"].parameters < records["fno"].parameters
    (group,) = groups(list(records.values())).values()  # one table
    assert len(group) == 3
    assert compare(plan, said.append) == list(records.values())  # kept


def test_a_solver_whose_steps_take_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, said = systems.get("advection", n_points=32), list[str]()
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(timing, "LONGEST_STEP", 1e-5)
    plan = Comparison("advection", ("fno",), TotalBudget("seconds", 3.0), tmp_path, size="tiny", recipe="laptop")
    assert compare(plan, said.append) == []
    assert re.search(r"FNO: fit: a step takes \S+ s, \S+% of the budget of 3 s", said[-1])


@pytest.mark.parametrize(
    ("word", "found"), [("fno@fast", "fno@fast"), ("Poseidon-T@paper", "poseidon@paper"), ("fno", "fno")]
)
def test_another_size_is_asked_for_by_the_name_of_a_recipe(word: str, found: str) -> None:
    assert chosen([word]) == (found,)


@pytest.mark.parametrize("word", ["fno@quick", "pdejepa@fast", "opinf@fast", "nobody@fast"])
def test_sizes_that_there_are_not(word: str) -> None:
    with pytest.raises(ConfigError):
        chosen([word])


def test_trials_of_few_steps_are_of_whole_ones() -> None:
    for budget, trial in ((4, 1), (500, 56)):
        assert trial_budget(TotalBudget("steps", budget)).amount == trial
    assert trial_budget(TotalBudget("flops", 9e12)).amount == pytest.approx(1e12)
    words = [trial_budget(budget).words(3) for budget in (TotalBudget("steps", 90_000), TotalBudget("seconds", 20.0))]
    assert words == ["10000 steps", "2.22 s"]
    assert trial_budget(TotalBudget("flops", 1e11)).words(3) == "1.11e10 flops"


def test_a_trial_ends_as_a_training_does(pool: Pool, tmp_path: Path) -> None:
    ends = []
    keeps: tuple[Keep, ...] = ("files", "memory")
    for keep in keeps:
        entry = SolverEntry("lns", "tiny", 0)
        report = entry.fit(pool, TotalBudget("steps", 12), tmp_path / keep, 1.0, keep)
        assert entry.solver is not None
        found = {stage: (part["steps"], part["score"], part["step_selected"]) for stage, part in report.items()}
        ends.append((found, entry.solver.state_dict()))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(value, ends[1][1][name]) for name, value in ends[0][1].items())
    assert list(tmp_path.glob("files/*/final/weights.safetensors"))
    assert not list(tmp_path.glob("memory/**/*.safetensors"))


@pytest.mark.slow
def test_one_that_fails_leaves_the_others_their_turn(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {
        "fno": torch.OutOfMemoryError("no room"),
        "lns": RuntimeError("a mistake"),
        "cape": NumericalError("not finite"),
    }

    def one(turn: Turn) -> SolverRecord:
        if turn.solver in failures:
            raise failures[turn.solver]
        return made(turn.solver, 0.1, "advection", data_hash=pool.data.hash, budget_seconds=90.0)

    monkeypatch.setattr(comparison, "_pool", lambda *_: pool)
    monkeypatch.setattr(comparison, "_one", one)
    said: list[str] = []
    plan = Comparison("advection", ("fno", "lns", "cape", "dpot"), TotalBudget("seconds", 90.0), tmp_path)
    assert [one.solver for one in compare(plan, said.append)] == ["dpot"]
    assert said[0] == "FNO (1 of 4), seed 0: 10 s for each of three learning rates, then 90 s"
    assert [line.split(":")[0] for line in said[1::2]] == ["FNO", "LNS", "CAPE", "DPOT-S"]
    assert "out of memory" in said[1]
    assert "a mistake" in said[3]
    assert [path.name for path in tmp_path.glob("*.json")] == ["advection-dpot-fast-paper-90s-s0.json"]
    failures["dpot"] = Interrupted("stopped")
    with pytest.raises(Interrupted):
        compare(dataclasses.replace(plan, seeds=2), said.append)


@pytest.mark.parametrize(("system", "recipe", "n"), [("combined", "fast", 5), ("heterns", "fast", 10)])
def test_the_tail_begins_where_nobody_is_given_frames(system: str, recipe: str, n: int) -> None:
    """Whoever takes part; two solvers begin with ten frames on HeterNS, whatever their cards say of other systems."""
    task = task_of(system)
    assert longest_history(task, recipe) == n
    for name in names():
        if card_of(name).is_forecaster and name != CARD.name:
            with torch.device("meta"):
                kind = baselines.get(name)
                try:
                    solver = kind(kind.recipe(recipe, task).model, task)
                except ConfigError:  # it forecasts lines only
                    assert task.ndim == 2
                    continue
            assert solver.card.history <= n
            assert max(solver.card.history, min(solver.card.looks_at, n)) <= n


@pytest.mark.parametrize("solver", NAMES)
def test_every_solver_ends_with_a_score(solver: str, pool: Pool) -> None:
    """Or its trials could not be told apart."""
    for recipe in ("tiny", "fast"):
        stages = SolverEntry(solver, recipe, 0).kind.recipe(recipe, pool.task).stages
        assert stages[-1].training.n_scores > 0


def test_judged_together() -> None:
    assert [judgement._block(grid) for grid in ((256,), (32, 32), (64, 64), (256, 256))] == [240, 240, 64, 32]


@pytest.mark.parametrize(("load", "says"), [(0.1, False), (100.0, True)])
def test_a_busy_machine_is_mentioned(load: float, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    plan = Comparison("advection", ("fno",), TotalBudget("seconds", 3.0), Path(), recipe="tiny")
    comparison._check_machine(plan, said.append)
    assert len(said) == says
    assert all(line.startswith("This machine was busy in the last minute (load 100.0, 4 cores).") for line in said)


def test_compiled_parts(pool: Pool) -> None:
    assert not SolverEntry("fno", "tiny", 0).has_compiled_parts(pool)
    assert SolverEntry("cls_vit", "tiny", 0).has_compiled_parts(pool)
