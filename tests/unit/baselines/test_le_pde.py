"""LE-PDE: its size, its losses by hand, and what each stage moves."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pdejepa.baselines.le_pde import LePde, LePdeConfig
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.systems import get
from tests.unit.baselines.token_solvers import millions, on_meta, rough, shaken, task_of
from tests.unit.baselines.values import gradients_without_values


@pytest.mark.parametrize(
    ("name", "size"),
    [("advection", 3.15), ("combined", 3.15), ("heterns", 4.13), ("vorticity", 4.13), ("gray_scott", 2.35)],
)
def test_size(name: str, size: float) -> None:
    assert round(millions(LePde, name), 2) == size


def tiny(name: str = "combined", n_points: int = 64, **changes: object) -> LePde:
    task = task_of(name, n_points)
    config = dataclasses.replace(LePde.recipe("tiny", task).model, **changes)
    torch.manual_seed(0)
    return LePde(config, task)


def batch_of(solver: LePde, stage: str, name: str = "combined", n_points: int = 64) -> dict[str, torch.Tensor]:
    batch = {"u": rough(name, 3, solver.window(stage, 0.0).n_frames, n_points)}
    batch["support"] = rough(name, 3, 14, n_points).flip(0)[:, None]
    return batch | solver.draws(stage, batch, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["combined", "gray_scott"])
def test_the_loss_by_hand(name: str) -> None:
    n_points = 64 if name == "combined" else 0
    solver = shaken(tiny(name, n_points, noise=0.0, history=2))
    batch = batch_of(solver, "tune", name, n_points)
    u, z = batch["u"], solver.latents(batch["u"])

    def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        square = (a - b).square().flatten(1).mean(1)
        return square.sqrt().mean() if name == "combined" else square.mean()

    code = solver.context(batch["support"][:, 0, :5].flatten(1, 2))
    z_hat, expected = z[:, 0], distance(solver.decoder(z[:, 0]), u[:, 1])
    for k, weight in zip(range(1, 5), (1.0, 0.1, 0.1, 0.1), strict=True):
        z_hat = z_hat + solver.evolution(torch.cat((z_hat, code), 1))
        gap = (z_hat - z[:, k]).square().mean(1) / z[:, k].square().mean(1)
        expected = expected + weight * distance(solver.decoder(z_hat), u[:, 1 + k]) + gap.mean()
    torch.testing.assert_close(solver.loss("tune", batch)["loss"], expected, rtol=1e-4, atol=0)


def test_history_is_stacked_in_order() -> None:
    solver = tiny(history=3)
    u = rough("combined", 2, 5, 64)
    assert solver.card.history == 3
    assert LePde.card.history == 1  # the class keeps its own
    torch.testing.assert_close(solver.latents(u)[:, 1], solver.encoder(u[:, 1:4, 0]))
    assert solver.encode(u).shape == (2, 3, 1, 32)


def test_published_settings() -> None:
    heterns = LePde.recipe("paper", task_of("heterns"))
    assert (heterns.model.history, heterns.model.n_context) == (10, 20)
    assert LePde.recipe("paper", task_of("gray_scott")).model.n_context == 7
    for name, factor in (("combined", 1e-2), ("burgers", 1.0)):
        tune = LePde.recipe("paper", task_of(name)).stages[2].training.optimiser
        assert tune.factors == {"encoder": factor, "decoder": factor}
    assert sum(stage.training.budget.epochs for stage in heterns.stages) == 220


def test_who_moves_when() -> None:
    solver = tiny()
    assert set(solver.trained("autoencode")) == {"encoder", "decoder"}
    assert set(solver.trained("evolve")) == {"context", "evolution"}
    assert len(solver.trained("tune")) == 4


def test_noise_is_only_drawn_for_training() -> None:
    solver = shaken(tiny(noise=0.5))
    z, code, noise = torch.randn(2, 32), torch.randn(2, 8), torch.randn(2, 32)
    assert torch.equal(solver.step(z, code), solver.step(z, code, 0 * noise))
    moved = solver.step(z, code, noise) - z  # the noise is seen, not added
    torch.testing.assert_close(moved, solver.evolution(torch.cat((z + noise, code), 1)), rtol=1e-4, atol=1e-5)


def test_several_contexts_are_averaged() -> None:
    solver, support = shaken(tiny()), rough("combined", 4, 14, 64).reshape(2, 2, 14, 1, 64)
    one, other = (solver.adapt(support[:, k : k + 1])["code"] for k in range(2))
    torch.testing.assert_close(solver.adapt(support)["code"], (one + other) / 2)


def test_coarse_inside_fine_outside() -> None:
    solver = on_meta(LePde, "vorticity")
    assert solver.grid == (64, 64)  # type: ignore[comparison-overlap]
    small = LePde(LePdeConfig(4, 16, 4, 16, largest_grid=32), task_of("combined", 64))
    u = rough("combined", 2, 1, 64)
    assert small.rollout(u, {"code": torch.zeros(2, 4)}, 3).shape == (2, 3, 1, 64)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="one number per step"):
        LePdeConfig(latent_weights=(1.0,))
    task = dataclasses.replace(task_of("combined", 64), problem=get("combined", n_points=40).problem)
    with pytest.raises(ConfigError, match="multiples of 16"):
        LePde(LePdeConfig(), task)
    solver = tiny(history=3)
    assert solver.encode(rough("combined", 2, 3, 64)).shape == (2, 1, 1, 32)
    with pytest.raises(DataError, match="LE-PDE encodes 3 frames or more; got 2"):
        solver.encode(rough("combined", 2, 2, 64))
    with pytest.raises(DataError, match="LE-PDE reads 5 frames of the support; got 4"):
        solver.adapt(rough("combined", 2, 4, 64)[:, None])


@pytest.mark.parametrize("stage", ["autoencode", "tune"])
def test_a_step_needs_no_values(stage: str) -> None:
    solver = tiny()
    batch = {"u": rough("combined", 3, 5, 64), "support": rough("combined", 3, 14, 64)[:, None]}
    batch |= {"noise": torch.zeros(4, 3, 32)}
    for name, part in solver.named_children():
        part.requires_grad_(name in solver.trained(stage))
    assert gradients_without_values(solver, stage, batch)
