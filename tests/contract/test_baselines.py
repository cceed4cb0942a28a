"""What every published solver must do: found by the registry, run at tiny size on a line and on a plane."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pdejepa import baselines, systems
from pdejepa.baselines.base import Baseline, Recipe
from pdejepa.baselines.fit import FitStage, TotalBudget, build, fit, step_flops
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.baselines.solver import forecast
from pdejepa.stages.batches import generator
from pdejepa.stages.common import Place
from pdejepa.stages.resume import choose_trained
from pdejepa.stages.weights import read_weights, write_weights
from tests.unit.baselines.values import gradients_without_values

CPU = torch.device("cpu")
PLACES = ("combined", "gray_scott")
CASES = [pytest.param(name, place, id=f"{name}-{place}") for name in baselines.NAMES for place in PLACES]
CARDS = {name: baselines.get(name).card for name in baselines.NAMES}
FORECASTERS = [case for case in CASES if CARDS[str(case.values[0])].is_forecaster]
DETERMINED = [case for case in FORECASTERS if not CARDS[str(case.values[0])].is_stochastic]


@cache
def pool(place: str) -> Pool:
    switches = {"n_points": 64} if place == "combined" else {}
    return build_pool(systems.get(place, **switches), {"train": 20, "valid": 10}, CPU)


def made(name: str, place: str) -> tuple[Baseline, Recipe]:
    solver = baselines.get(name)
    recipe = solver.recipe("tiny", pool(place).task)
    return build(solver, recipe, pool(place)), recipe


def stages(name: str, place: str) -> list[FitStage]:
    solver, recipe = made(name, place)
    found = []
    for part in recipe.stages:
        solver.prepare(part.name)
        found.append(FitStage(solver, part, pool(place), Place(CPU), 0))
    return found


@torch.no_grad()
def shake(solver: nn.Module, size: float = 0.05) -> None:
    """Weights that start at zero hide what stands behind them."""
    torch.manual_seed(3)
    for parameter in solver.parameters():
        parameter.add_(size * torch.randn_like(parameter))


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


@pytest.mark.parametrize(("name", "place"), CASES)
def test_every_parameter_gets_gradient(name: str, place: str) -> None:
    lazy: set[str] | None = None
    for stage in stages(name, place):
        shake(stage.solver)
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
    idle = set(getattr(baselines.get(name), "IDLE", ()))  # parts of official files that take no part, by prefix
    assert {n for n in lazy or set() if not n.startswith(tuple(idle) or ("\0",))} == set()


@pytest.mark.parametrize(("name", "place"), FORECASTERS)
def test_every_block_changes_the_output(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shake(solver)
    before = run(solver, place)
    training_only = set(getattr(solver, "TRAINING_ONLY", ()))  # parts that forecasts do without
    deaf = []
    for part_name, part in solver.named_modules():
        own = list(part.parameters(recurse=False))
        if not own or part_name.startswith(tuple(training_only | set(getattr(solver, "IDLE", ()))) or ("\0",)):
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


@pytest.mark.parametrize(("name", "place"), [case for case in CASES if CARDS[str(case.values[0])].can_record])
def test_a_step_looks_at_no_values(name: str, place: str) -> None:
    """One that does would wait for a GPU and could not be recorded."""
    for stage in stages(name, place):
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
        assert min(losses[-20:]) < 0.7 * losses[0], (stage.name, losses[0], losses[-1])


@pytest.mark.parametrize(("name", "place"), FORECASTERS)
def test_who_reacts_to_what(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shake(solver)
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
    shake(solver)
    short, long = run(solver, place, 2), run(solver, place, 5)
    assert long.shape[1] == 5
    torch.testing.assert_close(short, long[:, :2])


@pytest.mark.parametrize(("name", "place"), DETERMINED)
def test_rows_do_not_depend_on_their_order(name: str, place: str) -> None:
    solver, _ = made(name, place)
    shake(solver)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(run(solver, place, rows=order), run(solver, place)[order], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "place"), CASES)
def test_adapting_leaves_the_weights_alone(name: str, place: str) -> None:
    solver, _ = made(name, place)
    if not solver.card.is_forecaster:
        pytest.skip("it does not forecast")
    before = {key: value.clone() for key, value in solver.state_dict().items()}
    run(solver, place)
    assert all(torch.equal(value, before[key]) for key, value in solver.state_dict().items())


@pytest.mark.parametrize(("name", "place"), CASES)
def test_saved_and_loaded_is_the_same(name: str, place: str, tmp_path: Path) -> None:
    solver, _ = made(name, place)
    shake(solver)
    other, _ = made(name, place)
    write_weights(tmp_path / "w.safetensors", solver.state_dict())
    other.load_state_dict(read_weights(tmp_path / "w.safetensors"))
    if solver.card.is_forecaster:
        assert torch.equal(run(solver, place), run(other, place))
    else:
        u = pool(place).data.fields["train"][:2]
        assert torch.equal(solver.encode(u), other.encode(u))


@pytest.mark.parametrize("name", baselines.NAMES)
def test_budgets_and_resume(name: str, tmp_path: Path) -> None:
    """A budget in steps is kept, one in samples means the same, and a finished run is loaded, not repeated."""
    place = "combined"
    solver, recipe = made(name, place)
    n_stages = len(recipe.stages)
    report = fit(solver, recipe, pool(place), tmp_path / "run", TotalBudget("steps", 3 * n_stages))
    assert sum(part["steps"] for part in report.values()) == pytest.approx(3 * n_stages, abs=n_stages)
    again, _ = made(name, place)
    second = fit(again, recipe, pool(place), tmp_path / "run", TotalBudget("steps", 3 * n_stages))
    assert {k: v["weights_sha256"] for k, v in second.items()} == {k: v["weights_sha256"] for k, v in report.items()}
    for a, b in zip(solver.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", baselines.NAMES)
def test_counting_operations_leaves_no_trace(name: str) -> None:
    for stage in stages(name, "combined"):
        before = {key: value.clone() for key, value in stage.solver.state_dict().items()}
        assert step_flops(stage) > 1e4
        assert all(torch.equal(value, before[key]) for key, value in stage.solver.state_dict().items())


@pytest.mark.parametrize("name", [n for n in baselines.NAMES if baselines.get(n).card.is_forecaster])
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
    assert answer.outcome == ["ok", f"diverged at frame {solver.card.history + 2}"]
    assert bool(answer.fields[1, solver.card.history + 2 :].isnan().all())
    assert bool(answer.fields[0].isfinite().all())
