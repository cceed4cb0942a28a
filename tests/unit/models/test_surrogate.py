"""The whole surrogate of every system and variant: shapes, sizes, statistics, second order, forcing."""

from __future__ import annotations

import math

import pytest
import torch

from pdejepa import systems
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.models.causal_predictor import CausalPredictorConfig
from pdejepa.models.condition import Statistics, channel_moments, fit_statistics
from pdejepa.models.decoder import DecoderConfig
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.jepa_predictor import JepaPredictorConfig
from pdejepa.models.projector import ProjectorConfig
from pdejepa.models.surrogate import ModelConfig, Surrogate
from pdejepa.systems import System, build_system

VARIANTS = ("physics", "geo", "vanilla", "direct")


def system_of(model: Surrogate) -> System:
    return build_system(model.problem.name, "paper", model.problem.switches)


def small(system: systems.System, **field: object) -> ModelConfig:
    """A model of 4 places per axis (8 on lines)."""
    patch = system.grid[0] // (8 if system.ndim == 1 else 4)
    scales = (2,) * round(math.log2(patch))
    return ModelConfig(
        encoder=EncoderConfig(patch=patch, width=16, depth=2, heads=2, positions="ring"),
        jepa_predictor=JepaPredictorConfig(16, 1, 2),
        projector=ProjectorConfig(16),
        causal_predictor=CausalPredictorConfig(16, 1, 2),
        field=FieldConfig(**{"width": 16, "depth": 2, "heads": 2, "positions": "ring", "n_substeps": 2, **field}),  # type: ignore[arg-type]
        decoder=DecoderConfig(widths=(8,) * (len(scales) + 1), scales=scales),
    )


def surrogate(name: str, variant: str = "physics", history: int = 1, **field: object) -> tuple[Surrogate, torch.Tensor]:
    system = systems.get(name).at_size("tiny")
    _, xi = system.sample("train", range(6))
    fields = torch.randn(6, 2, len(system.fields), *system.grid)
    torch.manual_seed(0)
    statistics = fit_statistics(system, fields, xi, field.get("coordinate", "linear"))  # type: ignore[arg-type]
    return Surrogate(system.problem, small(system, **field), variant, statistics, history), xi  # type: ignore[arg-type]


@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_system_and_variant_rolls_out(name: str, variant: str) -> None:
    model, xi = surrogate(name, variant)
    u = torch.randn(2, 1, len(system_of(model).fields), *system_of(model).grid)
    q = model.encode(u)
    rolled = model.rollout(q, model.drive(xi[:2]), 3)
    assert rolled.shape == (2, 4, model.patches.n_tokens, 16)
    assert torch.equal(rolled[:, :1], q)
    assert model.decode(rolled).shape == (2, 4, *u.shape[2:])


@pytest.mark.parametrize("name", ["advection", "burgers", "wave_b", "gray_scott"])
def test_variants_are_equally_large(name: str) -> None:
    """Field and projector together: what a variant has to forecast with in a given latent space."""
    sizes = []
    for variant in VARIANTS:
        model, _ = surrogate(name, variant)
        parts = [part for part in (model.field, model.projector) if part is not None]
        sizes.append(sum(p.numel() for part in parts for p in part.parameters()))
    assert max(sizes) <= 1.01 * min(sizes)


def test_zero_speed_means_no_motion() -> None:
    model, _ = surrogate("advection")
    for head in model.field.D_heads:  # type: ignore[union-attr]
        torch.nn.init.normal_(head[-1].weight)
    q = model.encode(torch.randn(2, 1, 1, 256))
    still = model.rollout(q, model.drive(system_of(model).xi(speed=[0.0, 2.0])), 4)
    assert torch.equal(still[0], q[0].expand_as(still[0]))
    assert (still[1, 1:] - q[1]).abs().mean() > 1e-2


def test_steps_grow_with_terms_that_are_stronger_than_in_training() -> None:
    model, _ = surrogate("burgers")
    low, high = model.statistics.ranges["diffusivity"]
    xi = system_of(model).xi(diffusivity=[low / 2, high, 1.2 * high, 2 * high, 20 * high])
    torch.testing.assert_close(model.conditioner.strength(xi), torch.tensor([1.0, 1.0, 1.2, 2.0, 20.0]).double())
    assert model.finer_steps(xi[:3]) is None
    expected = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(model.finer_steps(xi[[1, 3]]), expected)
    assert model.finer_steps(xi).shape == (5, 16)  # type: ignore[union-attr]
    assert surrogate("burgers", "geo")[0].finer_steps(xi) is None


@pytest.mark.parametrize("name", systems.NAMES)
def test_parameters_of_the_train_split_take_the_steps_of_training(name: str) -> None:
    model, xi = surrogate(name)
    assert model.finer_steps(xi) is None


def test_finer_steps_are_those_of_another_configuration() -> None:
    model, xi = surrogate("burgers")
    finer, _ = surrogate("burgers", n_substeps=4)
    q, drive = model.encode(torch.randn(6, 1, 1, *system_of(model).grid)), model.drive(xi)
    given = model.rollout(q, drive, 3, torch.full((6, 4), 0.25))
    torch.testing.assert_close(given, finer.rollout(q, drive, 3))
    assert not torch.equal(given, model.rollout(q, drive, 3))


def test_direct_is_one_network_call_per_frame() -> None:
    model, xi = surrogate("combined", "direct", n_substeps=4)
    calls: list[int] = []
    model.field.register_forward_hook(lambda *_: calls.append(1))
    model.rollout(torch.randn(1, 1, 8, 16), model.drive(xi[:1]), 3)
    assert len(calls) == 3


@pytest.mark.parametrize(("integrator", "n"), [("euler", 2), ("rk2", 4), ("rk4", 8), ("rk8", 22)])
def test_network_calls_of_one_frame(integrator: str, n: int) -> None:
    model, xi = surrogate("combined", integrator=integrator)
    calls: list[int] = []
    model.field.register_forward_hook(lambda *_: calls.append(1))
    model.rollout(torch.randn(1, 1, 8, 16), model.drive(xi[:1]), 1)
    assert len(calls) == n


def test_direct_jumps_of_a_second_order_system_reach_the_next_frame() -> None:
    model, xi = surrogate("wave_b", "direct")
    q = torch.randn(2, 2, 8, 16)
    rolled = model.rollout(q, model.drive(xi[:2]), 1)
    rolled[:, 2].sum().backward()
    assert any(p.grad is not None and bool(p.grad.any()) for p in model.field.parameters())
    assert model.rollout(q, model.drive(xi[:2]), 0).shape == q.shape


def test_forcing_as_a_number() -> None:
    model, xi = surrogate("heterns", forcing="scalar")
    drive = model.drive(xi[:3])
    assert drive.forcing is None
    assert drive.r.shape == (3, 2)
    torch.testing.assert_close(drive.r[:, 1], xi[:3, 1].float())
    assert len(model.field.D_heads) == 2  # type: ignore[arg-type]
    assert model.field.forced is None
    assert model.rollout(torch.randn(3, 1, 16, 16), drive, 2).shape == (3, 3, 16, 16)
    with pytest.raises(ConfigError, match="changes in time"):
        surrogate("heat", forcing="scalar")


def test_switches_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="extra term of the variant physics"):
        surrogate("combined", "geo", film=True)
    with pytest.raises(ConfigError, match="second order"):
        surrogate("wave_b", time_unit="physical")
    with pytest.raises(ConfigError, match="positive coefficients"):
        system = systems.get("advection")
        fit_statistics(system, torch.randn(2, 1, 1, 8), system.xi(speed=[0.0, 1.0]), "log")


def test_second_order_starts_from_one_or_two_frames() -> None:
    model, xi = surrogate("wave_b")
    drive = model.drive(xi[:2])
    q = torch.randn(2, 2, 8, 16)
    one, two = model.rollout(q[:, :1], drive, 4), model.rollout(q, drive, 3)
    assert one.shape == two.shape == (2, 5, 8, 16)
    torch.testing.assert_close(one[:, 1], q[:, 0] + model.first_change(q[:, 0], drive))
    again = model.rollout(one[:, :2], drive, 3)
    torch.testing.assert_close(again, one)


def test_history_two_is_for_second_order_systems() -> None:
    with pytest.raises(ConfigError, match="combined takes 1 observed frames; got 2"):
        surrogate("combined", history=2)


# ---- statistics and drive ----------------------------------------------------------------------------------------
def test_channel_moments() -> None:
    fields = torch.randn(300, 2, 2, 5) * torch.tensor([1.0, 50.0])[:, None] + torch.tensor([0.0, 7.0])[:, None]
    mean, std = channel_moments(fields)
    flat = fields.double().transpose(1, 2).flatten(2).transpose(0, 1).flatten(1)
    assert mean == pytest.approx(flat.mean(1).tolist(), abs=1e-12)
    assert std == pytest.approx(flat.std(1, unbiased=False).tolist(), rel=1e-9)


@pytest.mark.parametrize("name", systems.NAMES)
def test_coefficients_are_those_of_the_system(name: str) -> None:
    model, xi = surrogate(name)
    expected = system_of(model).coefficients(xi).r(system_of(model).named(xi))
    torch.testing.assert_close(model.conditioner.r(xi), expected.float())


def test_logarithmic_coordinate() -> None:
    model, xi = surrogate("heat", coordinate="log")
    logs = xi[:, 0].log()
    expected = (logs - logs.mean()) / logs.std(unbiased=False)
    torch.testing.assert_close(model.conditioner.r(xi)[:, 0], expected.float(), rtol=1e-5, atol=1e-6)


def test_forcing_tokens_follow_the_time_of_each_row() -> None:
    model, xi = surrogate("burgers")
    drive = model.drive(xi[:2])
    assert drive.forcing is not None
    tokens = drive.forcing(torch.tensor([0.0, 3.5]))
    gap, system = model.conditioner.frame_gap, system_of(model)
    for row, s in enumerate((0.0, 3.5)):
        field = system.forcing(s * gap, xi[row : row + 1], torch.empty(1, 1, 256))
        expected = model.patches.split(field.float() * gap / model.statistics.std[0])
        torch.testing.assert_close(tokens[row : row + 1], expected, rtol=1e-4, atol=1e-6)


def test_a_given_forcing_replaces_that_of_the_parameters() -> None:
    model, xi = surrogate("heterns")
    like = torch.empty(2, 1, *system_of(model).grid)
    own = model.drive(xi[:2])
    same = model.drive(xi[:2], forcing=lambda t: system_of(model).forcing(0.0, xi[:2], like))
    none = model.drive(xi[:2], forcing=lambda t: torch.zeros_like(like))
    s = torch.zeros(2)
    assert own.forcing is not None
    assert same.forcing is not None
    assert none.forcing is not None
    torch.testing.assert_close(own.forcing(s), same.forcing(s))
    assert float(none.forcing(s).abs().max()) == 0.0


@pytest.mark.parametrize("name", systems.NAMES)
def test_condition_vectors(name: str) -> None:
    model, xi = surrogate(name)
    vector = model.conditioner.vector(xi, torch.ones(6))
    assert vector.shape == (6, model.conditioner.n_conditions)
    assert torch.isfinite(vector).all()
    expected = {"combined": 3, "advection": 1, "burgers": 7, "heat": 7, "wave_b": 4, "heterns": 2}
    assert model.conditioner.n_conditions == expected.get(name, model.conditioner.n_conditions)


def test_statistics_survive_a_round_trip() -> None:
    model, _ = surrogate("wave_2d")
    assert Statistics.from_dict(model.statistics.to_dict()) == model.statistics
    with pytest.raises(CheckpointError, match="cannot be read"):
        Statistics.from_dict({"mean": [0.0]})


def test_normalisation_is_undone() -> None:
    model, _ = surrogate("gray_scott")
    u = torch.rand(2, 3, 2, 32, 32)
    torch.testing.assert_close(model.denormalise(model.normalise(u)), u)
