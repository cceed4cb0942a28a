"""Late teacher, final, whole and round trip against closed forms of linear fields."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import DataError
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate
from pdejepa.studies.ablate.latent_rollouts import backward, late_frames, latent_error, rollout_errors, summarise
from pdejepa.systems import build_system
from tests.unit.forecast import tiny
from tests.unit.method.small_run import small_training

GROWTH, TRUE = 0.1, 0.15  # per frame, of the model and of the truth
N_FRAMES = 5


class Linear(nn.Module):
    """dq/ds = GROWTH q; remembers when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def forward(self, y: Tensor, s: Tensor, drive: Drive) -> Tensor:
        self.asked.append(float(s[0]))
        return GROWTH * y


class Drift(nn.Module):
    """dq/ds = s_v v, dv/ds = 0."""

    def __init__(self, velocity_scale: float) -> None:
        super().__init__()
        self.velocity_scale = velocity_scale

    def forward(self, y: Tensor, s: Tensor, drive: Drive) -> Tensor:
        velocity = y[..., y.shape[-1] // 2 :]
        return torch.cat((self.velocity_scale * velocity, torch.zeros_like(velocity)), -1)


def linear_model(method: str, n_substeps: int = 1) -> tuple[Surrogate, Tensor, Drive]:
    """A model with the linear field, and the true path q_t = (1 + TRUE)^t q_0 of two trajectories."""
    words = (f"model.field.integrator={method}", f"model.field.n_substeps={n_substeps}")
    _, data, model = small_training("advection", *words)
    model.field = Linear()
    q0 = torch.randn((2, 1, 8, 16), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    powers = (1 + TRUE) ** torch.arange(N_FRAMES, dtype=torch.float64)
    return model, q0 * powers[:, None, None], model.drive(data.xi["train"][:2])


def factor(method: str, z: float) -> float:
    """One step of dq/ds = z q."""
    order = {"euler": 1, "rk2": 2, "rk4": 4}[method]
    return sum(z**k / math.factorial(k) for k in range(order + 1))


@pytest.mark.parametrize("method", ["euler", "rk2", "rk4"])
@pytest.mark.parametrize("n_substeps", [1, 2])
def test_closed_forms(method: str, n_substeps: int) -> None:
    model, q, drive = linear_model(method, n_substeps)
    n, step = N_FRAMES - 1, factor(method, GROWTH / n_substeps) ** n_substeps
    back = factor(method, -GROWTH / n_substeps) ** n_substeps
    true = [(1 + TRUE) ** t for t in range(1, n + 1)]
    guess = [step**t for t in range(1, n + 1)]
    whole = math.sqrt(sum((g - t) ** 2 for g, t in zip(guess, true, strict=True)) / sum(t**2 for t in true))
    expected = {
        "late_teacher": abs(step - (1 + TRUE)) / (1 + TRUE),
        "final": abs(guess[-1] - true[-1]) / true[-1],
        "whole": whole,
        "round_trip": abs((step * back) ** n - 1),
    }
    found = rollout_errors(model, q, drive)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].tolist() == pytest.approx([value, value], rel=1e-9, abs=1e-12), name


def test_a_round_trip_of_higher_order_comes_closer() -> None:
    trips = []
    for method in ("euler", "rk2", "rk4", "rk8"):
        model, q, drive = linear_model(method)
        trips.append(float(rollout_errors(model, q, drive)["round_trip"][0]))
    assert trips == sorted(trips, reverse=True)
    assert trips[0] == pytest.approx(1 - (1 - GROWTH**2) ** 4)  # Euler: (1 + g)(1 - g) per frame
    assert trips[-1] < 1e-9


def test_time_runs_back() -> None:
    """A known forcing must be asked for at the times that are passed on the way back."""
    model, q, drive = linear_model("rk2", 2)
    model.field.asked.clear()  # type: ignore[union-attr,operator]
    backward(model, q[:, -1], torch.full((2,), 4.0), drive, 2)
    assert model.field.asked == pytest.approx([4.0, 3.75, 3.5, 3.25, 3.0, 2.75, 2.5, 2.25])


def test_physical_time() -> None:
    """A derivative per unit of physical time is multiplied by the time between frames, on both ways."""
    model, q, drive = linear_model("euler")
    _, _, other = small_training("advection", "model.field.integrator=euler", "model.field.time_unit=physical")
    other.field = model.field
    gap = other.conditioner.frame_gap
    expected = abs((1 - (GROWTH * gap) ** 2) ** 4 - 1)
    assert rollout_errors(other, q, drive)["round_trip"].tolist() == pytest.approx([expected, expected])


@pytest.mark.parametrize("history", [1, 2])
def test_second_order_states(history: int) -> None:
    """Uniform motion is exact from two frames: only a model with one frame errs, by its start-up head."""
    model = tiny.surrogate("wave_b", history=history)
    model.field = Drift(model.statistics.velocity_scale)
    n_tokens, width = model.patches.n_tokens, model.config.encoder.width
    start, change = torch.randn((2, 2, 1, n_tokens, width), generator=torch.Generator().manual_seed(0))
    q = start + change * torch.arange(6.0)[:, None, None]  # (2,6,N,D)
    system = build_system(model.problem.name, "paper", model.problem.switches)
    found = rollout_errors(model, q, model.drive(system.sample("test", [0, 1])[1]))
    for name in ("late_teacher", "round_trip"):
        assert found[name].tolist() == pytest.approx([0.0, 0.0], abs=1e-5), name
    for name in ("final", "whole"):
        assert bool((found[name] < 1e-5).all()) == (history == 2), name


@pytest.mark.parametrize(
    ("n_frames", "first", "frames"),
    [(30, 0, range(21, 29)), (14, 0, range(9, 13)), (25, 1, range(18, 24)), (2, 0, range(0, 1))],
)
def test_late_frames(n_frames: int, first: int, frames: range) -> None:
    """A quarter of the transitions, rounded up: of 29, the last 8, which start at the frames 21 .. 28."""
    assert late_frames(n_frames, first) == frames


def test_only_late_frames_count() -> None:
    model, q, drive = linear_model("euler")
    before = rollout_errors(model, q, drive)["late_teacher"]
    q[:, :3] += 1.0  # transitions 0 .. 2 of 4 are early
    assert torch.equal(rollout_errors(model, q, drive)["late_teacher"], before)
    q[:, 3] += 1.0
    assert not torch.equal(rollout_errors(model, q, drive)["late_teacher"], before)


def test_latent_error() -> None:
    x = torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]])
    assert latent_error(x + torch.tensor([0.0, 1.0]), x).tolist() == [0.2, 0.5]


def test_summaries() -> None:
    values = torch.tensor([1.0, 2.0])
    tables = [
        {"late_teacher": values, "final": values, "whole": values, "round_trip": torch.tensor([1.0, torch.nan])},
        {name: torch.tensor([6.0]) for name in ("late_teacher", "final", "whole", "round_trip")},
    ]
    found = summarise(tables)
    assert (found.late_teacher, found.final, found.whole) == (3.0, 3.0, 3.0)
    assert found.round_trip is None
    assert found.round_trip_median == 6.0  # of 1, 6 and what never came back
    assert found.n == 3
    assert found.n_not_finite == {"late_teacher": 0, "final": 0, "whole": 0, "round_trip": 1}


def test_a_model_without_integrator_is_refused() -> None:
    _, data, model = small_training("advection", "variant=direct")
    with pytest.raises(DataError, match="no integrator"):
        rollout_errors(model, torch.zeros(1, 3, 8, 16), model.drive(data.xi["train"][:1]))
