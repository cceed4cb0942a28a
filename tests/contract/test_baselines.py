"""What every published solver must do: found by the registry, run at tiny size on a line and on a plane."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import baselines, systems
from pdejepa.baselines import solver_folder
from pdejepa.baselines.baseline import Baseline, Recipe
from pdejepa.baselines.closed_form import ClosedForm
from pdejepa.baselines.fit import FitStage, TotalBudget, build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.studies.compare.competitors import SolverEntry
from pdejepa.studies.compare.judgement import true_frames
from pdejepa.training.batches import generator
from pdejepa.training.resume import choose_trained
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Context, silent
from pdejepa.training.timing import PROBE_STEPS, TYPICAL
from tests.unit.baselines.token_solvers import shaken
from tests.unit.baselines.values import gradients_without_values

CPU = torch.device("cpu")
NAMES = baselines.NAMES  # trained by gradient steps
EVERYBODY = (*NAMES, *baselines.CLASSICAL)  # those that are fitted at once too
PLACES = ("combined", "gray_scott")
CASES = [pytest.param(name, place, id=f"{name}-{place}") for name in NAMES for place in PLACES]
ON_LINES = ("weak_sindy", "weak_sindy_fine")  # they refuse planes
ALL_CASES = [
    pytest.param(name, place, id=f"{name}-{place}")
    for name in EVERYBODY
    for place in PLACES
    if place == PLACES[0] or name not in ON_LINES
]
CARDS = {name: baselines.get(name).card for name in EVERYBODY}
FORECASTERS = [case for case in ALL_CASES if CARDS[str(case.values[0])].is_forecaster]
DETERMINED = [case for case in FORECASTERS if not CARDS[str(case.values[0])].is_stochastic]
HARDER = {  # share of the first loss that may be left of a batch where something keeps tiny networks from learning it
    ("le_pde", "evolve"): 0.75,  # between latents of an autoencoder that is frozen as it began
    ("zebra", "tokenise"): 0.55,  # sixteen codes
    ("mae_pde", "mask"): 0.45,  # most patches are hidden
    ("videomae", "fit"): 0.6,  # nine tenths are hidden
}
N_STEPS, SAVE_EVERY = 4, 2  # of every stage of a short training, which is scored after 2 and 4 steps


def slow_on_planes(cases: list[Any]) -> list[Any]:
    """The same cases; those on a plane are left to the slow tests."""
    marks = {"combined": (), "gray_scott": (pytest.mark.slow,)}
    return [pytest.param(*case.values, id=case.id, marks=marks[str(case.values[1])]) for case in cases]


def slow_but_for(*quick: str) -> list[Any]:
    """All solvers; the slow tests have those that are not named."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in NAMES]


@cache
def pool(place: str) -> Pool:
    switches = {"n_points": 64} if place == "combined" else {}
    return build_pool(systems.get(place, **switches), {"train": 20, "valid": 2}, CPU)


def made(name: str, place: str) -> tuple[Baseline, Recipe]:
    kind = baselines.get(name)
    recipe = kind.recipe("tiny", pool(place).task)
    solver = build(kind, recipe, pool(place))
    if isinstance(solver, ClosedForm):
        solver.load_state_dict(solved_for(name, place))
    return solver, recipe


@cache
def solved_for(name: str, place: str) -> dict[str, Tensor]:
    """What a solver has learnt that is fitted at once; unfitted ones forecast nothing."""
    kind = baselines.get(name)
    solver = build(kind, kind.recipe("tiny", pool(place).task), pool(place))
    assert isinstance(solver, ClosedForm)
    solver.solve_for(pool(place).data, silent)
    return solver.state_dict()


def stages(name: str, place: str) -> list[FitStage]:
    solver, recipe = made(name, place)
    return [FitStage(solver, part, pool(place), Context(CPU), 0) for part in recipe.stages]


def shortened(recipe: Recipe, **changes: Any) -> Recipe:
    """The same with few scores, because a score may take as long as many steps; `changes` are of all trainings."""
    parts = []
    for part in recipe.stages:
        training = dataclasses.replace(part.training, n_scores=min(2, part.training.n_scores), **changes)
        parts.append(dataclasses.replace(part, training=training))
    return dataclasses.replace(recipe, stages=tuple(parts))


def run(solver: Baseline, place: str, n_frames: int = 3, rows: Tensor | None = None, **changes: Tensor) -> Tensor:
    """A forecast of trajectories of train with fixed random numbers; `changes` replace xi or support."""
    data = pool(place).data
    rows = torch.arange(3) if rows is None else rows
    others = pool(place).support("train", rows, 1, torch.zeros(len(rows), 1))
    given = {"xi": data.xi["train"][rows], "support": data.fields["train"][others], **changes}
    draws = generator(CPU, "contract")
    state = solver.adapt(given["support"], given["xi"], draws)
    with torch.no_grad():
        return solver.rollout(data.fields["train"][rows, : solver.card.history], state, n_frames, draws)


@pytest.mark.parametrize("place", [PLACES[0], pytest.param(PLACES[1], marks=pytest.mark.slow)])
def test_stages_in_bfloat16_learn_what_float32_would(place: str) -> None:
    """What a GPU does for stages that ask for it, on a CPU: the same loss, and finite gradients, up to rounding."""
    found = 0
    for name in NAMES:
        for stage, part in zip(stages(name, place), made(name, place)[1].stages, strict=True):
            if part.precision == "fp32":
                continue
            shaken(stage.solver)
            choose_trained(stage)
            batch, losses = stage.batch(0, 10), []
            for enabled in (False, True):
                stage.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    loss = stage(batch)["loss"]
                loss.backward()
                losses.append(float(loss.detach()))
                assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in stage.solver.parameters()), name
            assert losses[1] == pytest.approx(losses[0], rel=0.03), name
            assert losses[1] != losses[0], name  # it was another precision indeed
            found += 1
    assert found


@pytest.mark.parametrize(("name", "place"), slow_on_planes(FORECASTERS))
def test_who_looks_at_several_frames_has_seen_the_first_one_repeated(name: str, place: str) -> None:
    """In training, as in forecasts from a single frame: without it, these start from what they have never met."""
    for stage in stages(name, place):
        history = stage.solver.card.history
        batches = [stage.batch(step, 15) for step in range(15)]
        starts = torch.cat([batch["frame"] for batch in batches])
        assert (int(starts.min()) < 0) == (history > 1)
        for batch in batches:
            for u, first in zip(batch["u"], batch["frame"].tolist(), strict=True):
                repeated = [bool(torch.equal(u[0], frame)) for frame in u]
                assert repeated == [k <= -first or k == 0 for k in range(len(u))]


def test_some_windows_of_mpp_begin_at_the_start() -> None:
    """At random places hardly any would: those of two frames have twelve, and lengths differ as well."""
    (stage,) = stages("mpp", "combined")
    stage.settings = dataclasses.replace(stage.settings, batch=16)
    starts = torch.cat([stage.batch(step, 60)["frame"] for step in range(60)])
    assert 0.45 < float((starts == -1).double().mean()) < 0.65
    assert int(starts.max()) > 5


@pytest.mark.parametrize("tail_from", [0, 5, 10])
@pytest.mark.parametrize("name", ["unisolver", "fno", "mae_pde", "dpot", "mpp"])
def test_scores_look_at_the_starts_that_are_judged(name: str, tail_from: int) -> None:
    """From one frame, and as many as a comparison gives in its tail; without one, from half a trajectory at most."""
    stage, seen = stages(name, "combined")[-1], []
    stage.pool = dataclasses.replace(stage.pool, tail_from=tail_from)
    with mock.patch.object(stage, "_rollout_error_from", lambda history: seen.append(history) or 0.0):
        stage.score()
    card, limit = stage.solver.card, tail_from or 7
    assert set(seen) == {1, max(card.history, min(card.looks_at, limit))}
    if tail_from:
        assert max(seen) == true_frames(SolverEntry(name, "tiny", 0), stage.pool)


@pytest.mark.parametrize("name", ["geps", "mpp"])
def test_timed_steps_are_typical(name: str) -> None:
    """Their windows differ from step to step."""
    (stage,) = stages(name, "gray_scott")

    def lengths(steps: Iterable[int]) -> list[int]:
        return [stage.solver.window(stage.name, step / PROBE_STEPS).n_frames for step in steps]

    assert np.mean(lengths(TYPICAL)) == pytest.approx(np.mean(lengths(range(PROBE_STEPS))), rel=0.05)


@pytest.mark.parametrize("name", [name for name in EVERYBODY if CARDS[name].is_forecaster])
def test_what_a_solver_reads_it_asks_for(name: str) -> None:
    solver = made(name, "combined")[0]
    if not solver.card.reads:
        assert solver.adapt() == {}
        return
    with pytest.raises(DataError, match=f"^{re.escape(solver.card.title)} needs .* for a forecast; none was given.$"):
        solver.adapt()


@pytest.mark.parametrize(("name", "place"), CASES)
def test_every_parameter_gets_gradient(name: str, place: str) -> None:
    lazy: set[str] | None = None
    for stage in stages(name, place):
        shaken(stage.solver)
        choose_trained(stage)
        moved = {id(p) for module in stage.trained().values() for p in module.parameters()}
        for step in range(2):
            stage(stage.batch(step, 2))["loss"].backward()
        trained = {n: p for n, p in stage.solver.named_parameters() if id(p) in moved}
        busy = {n for n, p in trained.items() if p.grad is not None and bool(p.grad.any())}
        names = {n for n, _ in stage.solver.named_parameters()} - busy
        stray = [n for n, p in stage.solver.named_parameters() if id(p) not in moved and p.grad is not None]
        assert stray == []
        lazy = names if lazy is None else lazy & names
        stage.zero_grad()
    assert {n for n in lazy or set() if not n.startswith(baselines.get(name).IDLE)} == set()


@pytest.mark.parametrize(("name", "place"), slow_on_planes(FORECASTERS))
def test_every_block_changes_the_output(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shaken(solver)
    before = run(solver, place)
    deaf = []
    for part_name, part in solver.named_modules():
        own = list(part.parameters(recurse=False))
        if not own or part_name.startswith((*solver.TRAINING_ONLY, *solver.IDLE)):
            continue
        kept = [p.detach().clone() for p in own]
        with torch.no_grad():
            for p in own:
                p.mul_(-0.5).add_(0.1)
        if torch.equal(run(solver, place), before):
            deaf.append(part_name)
        with torch.no_grad():
            for p, value in zip(own, kept, strict=True):
                p.copy_(value)
    assert deaf == []


@pytest.mark.slow  # on a line, tests/golden looks more closely
@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_step_looks_at_no_values(name: str, place: str) -> None:
    """One that does would wait for a GPU and could not be recorded."""
    for stage in stages(name, place):
        if stage.name in CARDS[name].unrecorded:
            continue
        choose_trained(stage)
        wanted = [p.shape for p in stage.solver.parameters() if p.requires_grad]
        assert gradients_without_values(stage.solver, stage.name, stage.batch(0, 2)) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), CASES)
def test_one_batch_can_be_overfitted(name: str, place: str) -> None:
    for stage in stages(name, place):
        choose_trained(stage)
        optimiser = torch.optim.Adam([p for m in stage.trained().values() for p in m.parameters()], lr=3e-3)
        batch = stage.batch(0, 1)
        losses = []
        for _ in range(200):
            optimiser.zero_grad()
            loss = stage(batch)["loss"]
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        assert min(losses[-20:]) < HARDER.get((name, stage.name), 0.25) * losses[0], (stage.name, losses[0], losses[-1])


@pytest.mark.parametrize(("name", "place"), FORECASTERS)
def test_who_reacts_to_what(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shaken(solver)
    data, needs = pool(place).data, solver.card.needs
    before = run(solver, place)
    other_xi = run(solver, place, xi=data.xi["train"][torch.arange(3)] * 1.3)
    other_support = run(solver, place, support=-data.fields["train"][torch.tensor([[7], [9], [11]])])
    assert torch.equal(before, other_xi) == ("xi" not in needs)
    reads_support = "support" in needs or solver.card.adapts == "gradient"
    assert torch.equal(before, other_support) == (not reads_support)


@pytest.mark.parametrize(("name", "place"), FORECASTERS)
def test_a_short_rollout_is_the_beginning_of_a_long_one(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shaken(solver)
    short, long = run(solver, place, 2), run(solver, place, 5)
    assert long.shape[1] == 5
    torch.testing.assert_close(short, long[:, :2])


@pytest.mark.parametrize(("name", "place"), DETERMINED)
def test_rows_do_not_depend_on_their_order(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shaken(solver)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(run(solver, place, rows=order), run(solver, place)[order], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "place"), ALL_CASES)
def test_adapting_leaves_the_weights_alone(name: str, place: str) -> None:
    solver, _ = made(name, place)
    if not solver.card.is_forecaster:
        pytest.skip("it does not forecast")
    before = {key: value.clone() for key, value in solver.state_dict().items()}
    run(solver, place)
    assert all(torch.equal(value, before[key]) for key, value in solver.state_dict().items())


@pytest.mark.parametrize(("name", "place"), ALL_CASES)
def test_saved_and_loaded_is_the_same(name: str, place: str, tmp_path: Path) -> None:
    solver = shaken(made(name, place)[0])
    solver_folder.save(solver, tmp_path, "tiny")
    other = baselines.load(tmp_path, "cpu")
    solver.eval().requires_grad_(False)  # as what is loaded is: attention rounds otherwise where gradients are wanted
    if solver.card.is_forecaster:
        assert torch.equal(run(solver, place), run(other, place))
    else:
        u = pool(place).data.fields["train"][:2]
        assert torch.equal(solver.encode(u), other.encode(u))


@pytest.mark.parametrize(("name", "place"), ALL_CASES)
@torch.no_grad()
def test_representations(name: str, place: str) -> None:
    """(B,T',N,D) of every row by itself, other ones for other fields; refused by name by who has none."""
    solver = shaken(made(name, place)[0])
    u = pool(place).data.fields["train"][:3]
    if not solver.card.has_encoder:
        with pytest.raises(ConfigError, match="has no representations"):
            solver.encode(u)
        return
    found = solver.encode(u)
    assert found.ndim == 4
    assert len(found) == 3
    assert found.shape[1] in (u.shape[1], u.shape[1] - solver.card.history + 1, u.shape[1] // 2)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(solver.encode(u[[2, 0]]), found[[2, 0]], rtol=1e-4, atol=1e-5)
    changed = u.clone()
    changed[1, -2:] = u[2, -2:]  # not a shift, which norms of patches take out
    again = solver.encode(changed)
    torch.testing.assert_close(again[0], found[0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(again[1], found[1], atol=1e-3)


@pytest.mark.parametrize("name", EVERYBODY)
def test_budgets_and_resume(name: str, tmp_path: Path) -> None:
    """A budget in steps is kept, and a finished run is loaded, not repeated."""
    place = "combined"
    solver, recipe = made(name, place)
    recipe, n_stages = shortened(recipe), len(recipe.stages)
    report = fit(solver, recipe, pool(place), tmp_path / "run", TotalBudget("steps", 3 * n_stages))
    n_steps = 0 if solver.card.is_closed_form else 3 * n_stages
    assert sum(part["steps"] for part in report.values()) == pytest.approx(n_steps, abs=n_stages)
    again, _ = made(name, place)
    second = fit(again, recipe, pool(place), tmp_path / "run", TotalBudget("steps", 3 * n_stages))
    assert {k: v["weights_sha256"] for k, v in second.items()} == {k: v["weights_sha256"] for k, v in report.items()}
    for a, b in zip(solver.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


class Killed(BaseException):
    """The end of a process; nobody catches it."""


def train_shortly(name: str, out: Path, seed: int, kill: tuple[str, int] | None = None) -> tuple[Baseline, list[str]]:
    """A solver that knows its files only, trained for a few steps of every stage or until it is killed; what was said.

    `kill` is a stage and a step (from 0): the end comes between the update of the weights and what follows it.
    `seed` is of the generators that belong to nobody, which a new process finds in another state.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    solver, recipe = made(name, "combined")
    recipe = shortened(recipe, budget=Budget(steps=N_STEPS), save_every=SAVE_EVERY, log_every=1)
    said: list[str] = []
    follow = FitStage.after_update

    def disturbed(self: FitStage, step: int, n_steps: int) -> None:
        if (self.name, step) == kill:
            raise Killed
        follow(self, step, n_steps)

    with mock.patch.object(FitStage, "after_update", disturbed):
        fit(solver, recipe, pool("combined"), out, say=said.append)
    return solver, said


def results(out: Path) -> dict[str, bytes]:
    """Everything that must be equal for equal runs: metrics, weights and the state of optimisers."""
    found = [*out.rglob("*.safetensors"), *out.rglob("metrics.jsonl"), *out.rglob("plan.json")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


@pytest.mark.parametrize("name", slow_but_for("fno", "coda", "unisolver", "poseidon"))
def test_killed_in_every_stage_and_resumed_is_undisturbed(name: str, tmp_path: Path) -> None:
    """Once before anything is saved and once after a checkpoint; weights, metrics and optimisers agree in every bit."""
    whole, _ = train_shortly(name, tmp_path / "whole", seed=1)
    out, names = tmp_path / "killed", CARDS[name].stages
    for number, (stage, step) in enumerate((stage, step) for stage in names for step in (0, N_STEPS - 1)):
        with pytest.raises(Killed):
            train_shortly(name, out, seed=2 + number, kill=(stage, step))
        solver_folder = [f"step-{SAVE_EVERY:06d}"] if step else []
        assert [path.name for path in (out / stage).glob("step-*")] == solver_folder
        assert not (out / stage / "done.json").exists()
    resumed, said = train_shortly(name, out, seed=0)
    assert said == [
        *(f"{stage}: finished, {N_STEPS} steps." for stage in names[:-1]),
        f"Resuming {names[-1]} from step {SAVE_EVERY}. 1 step is repeated.",
    ]
    a, b = whole.state_dict(), resumed.state_dict()
    assert list(a) == list(b)
    assert [key for key in a if not torch.equal(a[key], b[key])] == []
    before, after = results(tmp_path / "whole"), results(out)
    assert len(before) >= 5 * len(names)
    assert set(before) == set(after)
    assert [path for path in before if before[path] != after[path]] == []


@pytest.mark.parametrize("name", slow_but_for("fno", "unisolver", "zebra"))
def test_counting_operations_leaves_no_trace(name: str, tmp_path: Path) -> None:
    """A budget in operations ends with the weights that the same steps, not counted, end with."""
    kind, data = baselines.get(name), pool("combined")
    recipe = kind.recipe("tiny", data.task)
    counted, plain = (build(kind, recipe, data) for _ in range(2))
    report = fit(counted, recipe, data, tmp_path / "counted", TotalBudget("flops", 3e8), keep="memory")
    assert sum(part["steps"] for part in report.values()) > len(report)
    plain_recipe = dataclasses.replace(
        recipe,
        stages=tuple(
            dataclasses.replace(
                part, training=dataclasses.replace(part.training, budget=Budget(steps=report[part.name]["steps"]))
            )
            for part in recipe.stages
        ),
    )
    fit(plain, plain_recipe, data, tmp_path / "plain", keep="memory")
    after = plain.state_dict()
    assert [key for key, value in counted.state_dict().items() if not torch.equal(value, after[key])] == []


@pytest.mark.parametrize("name", [n for n in EVERYBODY if CARDS[n].is_forecaster])
def test_what_is_not_finite_is_an_outcome(name: str) -> None:
    """Of its own row, from the first new frame on, in all that the solver looks at; the others do not notice."""
    solver, data = shaken(made(name, "combined")[0]), pool("combined").data
    H, reads = solver.card.history, {"u", *solver.card.needs}
    reads |= {"support"} if solver.card.adapts == "gradient" else set()
    plain = {"u": data.fields["train"][:3, :H], "xi": data.xi["train"][:3], "support": data.fields["train"][5:8, None]}
    for what, value in itertools.product(plain, (torch.nan, torch.inf)):
        given = {key: tensor.clone() for key, tensor in plain.items()}
        given[what][1].view(-1)[-1] = value
        answer = forecast(solver, given["u"], given["xi"], 2, given["support"], generator(CPU, "x"))
        assert [row.first_bad for row in answer.outcome] == [None, H if what in reads else None, None]
        assert bool(answer.fields[1, H:].isnan().all()) == (what in reads)
        assert bool(answer.fields[[0, 2]].isfinite().all())


@pytest.mark.parametrize("name", [n for n in EVERYBODY if CARDS[n].is_forecaster])
def test_forecasts_without_recording(name: str, tmp_path: Path) -> None:
    """In `inference_mode` they are the same, from arrays in double precision as well; 0 new frames are none."""
    solver, data = shaken(made(name, "combined")[0]).eval().requires_grad_(False), pool("combined").data
    u, xi = data.fields["train"][:3, : solver.card.history], data.xi["train"][:3]
    support = data.fields["train"][5:8, None]
    plain = forecast(solver, u, xi, 2, support, generator(CPU, "x"))
    solver_folder.save(solver, tmp_path, "tiny")
    with torch.inference_mode():
        for own in (solver, baselines.load(tmp_path, "cpu")):
            same = forecast(own, u.double().numpy(), xi.numpy(), 2, support.double(), generator(CPU, "x"))
            assert torch.equal(same.fields, plain.fields)
    none = forecast(solver, u, xi, 0, support, generator(CPU, "x"))
    assert torch.equal(none.fields, u)
    assert none.is_stable


@pytest.mark.parametrize("name", [n for n in EVERYBODY if CARDS[n].is_forecaster])
def test_divergence_is_an_outcome(name: str) -> None:
    solver, _ = made(name, "combined")
    data = pool("combined").data
    frames = data.fields["train"][:2, : solver.card.history].clone()
    support = data.fields["train"][5:7, None]
    plain = solver.rollout

    def broken(u: Tensor, state: dict[str, Tensor], n: int, draws: torch.Generator | None = None) -> Tensor:
        out = plain(u, state, n, draws)
        out[1, 2:] = torch.inf
        return out

    solver.rollout = broken  # type: ignore[method-assign]
    answer = forecast(solver, frames, data.xi["train"][:2], 4, support, generator(CPU, "x"))
    assert [row.first_bad for row in answer.outcome] == [None, solver.card.history + 2]
    assert bool(answer.fields[1, solver.card.history + 2 :].isnan().all())
    assert bool(answer.fields[0].isfinite().all())
