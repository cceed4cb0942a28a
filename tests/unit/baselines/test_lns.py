"""LNS: its size, how it is told the parameters, and what its blocks start as."""

from __future__ import annotations

import math

import pytest
import torch

from pdejepa.baselines.baseline import mean_frame_error
from pdejepa.baselines.lns import Condition, DynamicsBlock, Lns, LnsConfig
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import count, on_meta, parameters, rough, shaken, task_of
from tests.unit.baselines.values import gradients_without_values


@pytest.mark.parametrize(
    ("name", "autoencoder", "sites"), [("heterns", 3.73, 8), ("wave_2d", 3.73, 8), ("vorticity", 4.50, 16)]
)
def test_size(name: str, autoencoder: float, sites: int) -> None:
    """Within a hundredth: attention along axes is not published in full."""
    solver = on_meta(Lns, name)
    assert (count(solver.encoder) + count(solver.decoder)) / 1e6 == pytest.approx(autoencoder, rel=0.01)
    assert 1.575 < count(solver.dynamics) / 1e6 < 1.605
    u = torch.empty(1, 2, len(solver.task.problem.fields), *solver.task.grid, device="meta")
    assert solver.encode(u).shape == (1, 2, sites**2, 64)


def test_a_line_has_sixteen_sites() -> None:
    solver = on_meta(Lns, "combined")
    assert solver.encode(torch.empty(1, 2, 1, 256, device="meta")).shape == (1, 2, 16, 16)


def tiny(name: str = "combined", n_points: int = 64) -> Lns:
    task = task_of(name, n_points)
    torch.manual_seed(0)
    return Lns(Lns.recipe("tiny", task).model, task)


def test_every_parameter_owns_a_slice() -> None:
    condition = Condition(3, 12)
    condition.mlp = torch.nn.Identity()  # type: ignore[assignment]
    xi = torch.tensor([[0.5, -1.0, 2.0]])
    out = condition(xi)[0]
    for j, value in enumerate((0.5, -1.0, 2.0)):
        angles = [value, value * 1e4**-0.5]
        expected = [math.cos(a) for a in angles] + [math.sin(a) for a in angles]
        assert out[4 * j : 4 * j + 4].tolist() == pytest.approx(expected, abs=1e-5)


def test_uneven_slices_are_refused() -> None:
    with pytest.raises(ConfigError, match="equal, even slices"):
        Condition(3, 64)
    with pytest.raises(ConfigError, match="one level less"):
        LnsConfig(decoder=(64, 64))


@pytest.mark.parametrize(("name", "width"), [("burgers", 84), ("heat", 84), ("combined", 96), ("advection", 64)])
def test_published_embeddings(name: str, width: int) -> None:
    assert Lns.recipe("paper", task_of(name)).model.embedding == width


def test_a_block_begins_without_the_condition() -> None:
    block = DynamicsBlock(1, LnsConfig(width=8, embedding=8), "circular")
    x, c = torch.randn(2, 8, 16), torch.randn(2, 8)
    torch.testing.assert_close(block(x, c), x + block.mlp(x))
    shaken(block)
    assert not torch.allclose(block(x, c), block(x, c + 1.0))


def test_losses_by_hand() -> None:
    solver, u, xi = shaken(tiny()), rough("combined", 3, 3, 64), parameters("combined", 3)
    loss = solver.loss("autoencode", {"u": u})["loss"]
    frames = solver.decoder(solver.encoder(u.flatten(0, 1))).reshape(u.shape)
    torch.testing.assert_close(loss, mean_frame_error(frames, u))
    z = solver.encoder(u.flatten(0, 1)).unflatten(0, (3, 3))
    told = solver.standardised(xi)
    one = solver.dynamics(z[:, 0], told)
    two = solver.dynamics(one, told)
    gap = (torch.stack((one, two), 1) - z[:, 1:]).abs()
    smooth = torch.where(gap < 1, gap**2 / 2, gap - 0.5).mean()
    torch.testing.assert_close(solver.loss("dynamics", {"u": u, "xi": xi})["loss"], smooth)


def test_a_forecast_stays_in_latent_space() -> None:
    solver, u = shaken(tiny()), rough("combined", 2, 1, 64)
    state = solver.adapt(xi=parameters("combined", 2))
    z = solver.dynamics(solver.dynamics(solver.encoder(u[:, 0]), state["xi"]), state["xi"])
    torch.testing.assert_close(solver.rollout(u, state, 2)[:, 1], solver.decoder(z))


@pytest.mark.parametrize(("name", "n_points"), [("combined", 64), ("gray_scott", 0)])
@pytest.mark.parametrize("stage", ["autoencode", "dynamics"])
def test_a_step_needs_no_values(name: str, n_points: int, stage: str) -> None:
    solver = tiny(name, n_points)
    for part_name, part in solver.named_children():
        part.requires_grad_(part_name in solver.trained(stage))
    assert gradients_without_values(solver, stage, {"u": rough(name, 3, 3, n_points), "xi": parameters(name, 3)})
