"""The structured field: linear in every coefficient and in the forcing, whole, equivariant, and of the right size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pdejepa.models.condition import Drive
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.vector_field import ConditionalField, SecondOrder, StructuredField

SMALL = FieldConfig(width=16, depth=2, heads=2, mlp_ratio=2.0, positions="ring", forcing_layers=2)
D = 8
LINE = PatchGrid((256,), 4, (True,))


def build(patches: PatchGrid, n_forcing: int = 0, has_shared: bool = True, **changes: object) -> StructuredField:
    config = FieldConfig(**{**SMALL.__dict__, **changes})  # type: ignore[arg-type]
    return StructuredField(config, patches, D, 3, has_shared, n_forcing)


def state(patches: PatchGrid, seed: int = 0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(2, patches.n_tokens, D, generator=draws), torch.zeros(2)


def test_superposition(patches: PatchGrid, perturb: Callable[[nn.Module], nn.Module]) -> None:
    field = perturb(build(patches).double())
    q, s = state(patches)
    q, r = q.double(), torch.randn(2, 3).double()
    at = lambda r: field(q, s, Drive(r))  # noqa: E731
    zero = at(torch.zeros_like(r))
    torch.testing.assert_close(zero, field.C_head(field.backbone(q)).float(), rtol=1e-6, atol=1e-6)
    for j in range(3):
        unit = torch.zeros_like(r)
        unit[:, j] = 1.0
        slope = at(unit) - zero
        torch.testing.assert_close(at(r + 2.5 * unit) - at(r), 2.5 * slope, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(slope, field.parts(q, s, Drive(r))[1][:, j], rtol=1e-4, atol=1e-5)


def test_without_a_shared_part_zero_coefficients_mean_no_motion(
    patches: PatchGrid, perturb: Callable[[nn.Module], nn.Module]
) -> None:
    field = perturb(build(patches, has_shared=False))
    q, s = state(patches)
    assert torch.equal(field(q, s, Drive(torch.zeros(2, 3))), torch.zeros_like(q))
    assert field(q, s, Drive(torch.ones(2, 3))).abs().mean() > 1e-3


def test_forcing_is_linear_and_zero_for_zero_forcing(
    patches: PatchGrid, perturb: Callable[[nn.Module], nn.Module]
) -> None:
    field = perturb(build(patches, n_forcing=4))
    q, s = state(patches)
    f, g = torch.randn(2, patches.n_tokens, 4), torch.randn(2, patches.n_tokens, 4)
    r = torch.randn(2, 3)
    at = lambda f: field(q, s, Drive(r, lambda _: f))  # noqa: E731
    rest = at(torch.zeros_like(f))
    torch.testing.assert_close(rest, field(q, s, Drive(r)))
    torch.testing.assert_close(at(f + 2 * g) - rest, (at(f) - rest) + 2 * (at(g) - rest), rtol=1e-3, atol=1e-3)
    assert (at(f) - rest).abs().mean() > 1e-3


def test_forcing_is_seen_at_other_places_and_at_the_given_time(perturb: Callable[[nn.Module], nn.Module]) -> None:
    field = perturb(build(LINE, n_forcing=4))
    q, s = state(LINE)
    one = torch.zeros(2, LINE.n_tokens, 4)
    one[:, 0] = 1.0
    r = torch.zeros(2, 3)
    change = field(q, s, Drive(r, lambda _: one)) - field(q, s, Drive(r))
    assert change[:, LINE.n_tokens // 2].abs().max() > 1e-6
    seen: list[Tensor] = []
    field(q, torch.tensor([1.5, 2.0]), Drive(r, lambda at: seen.append(at) or one))  # type: ignore[func-returns-value]
    assert seen[0].tolist() == [1.5, 2.0]


@pytest.mark.parametrize("n_forcing", [0, 4])
def test_ring_positions_make_it_equivariant(
    n_forcing: int, patches: PatchGrid, perturb: Callable[[nn.Module], nn.Module]
) -> None:
    field = perturb(build(patches, n_forcing=n_forcing))
    q, s = state(patches)
    f, r = torch.randn(2, patches.n_tokens, 4), torch.randn(2, 3)

    def roll(x: Tensor) -> Tensor:
        grid = x.unflatten(1, patches.tokens)
        return grid.roll((3, 1)[: patches.ndim], tuple(range(1, 1 + patches.ndim))).flatten(1, patches.ndim)

    run = lambda q, f: field(q, s, Drive(r, (lambda _: f) if n_forcing else None))  # noqa: E731
    torch.testing.assert_close(run(roll(q), roll(f)), roll(run(q, f)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", ["rope", "sincos"])
def test_plain_positions_are_not_equivariant(
    positions: str, patches: PatchGrid, perturb: Callable[[nn.Module], nn.Module]
) -> None:
    field = perturb(build(patches, positions=positions))
    q, s = state(patches)
    drive = Drive(torch.ones(2, 3))
    assert not torch.allclose(field(q.roll(1, 1), s, drive), field(q, s, drive).roll(1, 1), atol=1e-3)


@pytest.mark.parametrize("changes", [{}, {"film": True}, {"head_hidden": 6}, {"head_hidden": 6, "head_bias": "shared"}])
def test_every_parameter_gets_gradient(
    changes: dict[str, object],
    patches: PatchGrid,
    perturb: Callable[[nn.Module], nn.Module],
    lazy_parameters: Callable[[nn.Module, Tensor], list[str]],
) -> None:
    field = perturb(build(patches, n_forcing=4, **changes))
    q, s = state(patches)
    f = torch.randn(2, patches.n_tokens, 4)
    assert lazy_parameters(field, field(q, s, Drive(torch.randn(2, 3), lambda _: f))) == []


def test_every_block_matters(
    patches: PatchGrid,
    perturb: Callable[[nn.Module], nn.Module],
    idle_parts: Callable[[nn.Module, Callable[[], Tensor]], list[str]],
) -> None:
    field = perturb(build(patches))
    q, s = state(patches)
    assert idle_parts(field, lambda: field(q, s, Drive(torch.ones(2, 3)))) == []


def test_it_starts_near_zero(patches: PatchGrid) -> None:
    field = build(patches, n_forcing=4, film=True)
    q, s = state(patches)
    f = torch.randn(2, patches.n_tokens, 4)
    assert field(q, s, Drive(torch.ones(2, 3), lambda _: f)).abs().max() < 0.1


class Constant(nn.Module):
    def forward(self, state: Tensor, s: Tensor, drive: Drive) -> Tensor:
        return torch.full((*state.shape[:2], D), 3.0)


def test_second_order() -> None:
    field = SecondOrder(Constant(), velocity_scale=0.5)
    change = field(torch.ones(2, 4, 2 * D), torch.zeros(2), Drive(torch.zeros(2, 1)))
    assert torch.equal(change[..., :D], torch.full((2, 4, D), 0.5))
    assert torch.equal(change[..., D:], torch.full((2, 4, D), 3.0))


def test_the_conditional_field_reacts_to_parameters_and_forcing(
    patches: PatchGrid,
    perturb: Callable[[nn.Module], nn.Module],
    lazy_parameters: Callable[[nn.Module, Tensor], list[str]],
) -> None:
    field = perturb(ConditionalField(SMALL, patches, D, 3, n_forcing=4, n_parameters=9000))
    q, s = state(patches)
    f, r = torch.randn(2, patches.n_tokens, 4), torch.randn(2, 3)
    base = field(q, s, Drive(r, lambda _: f))
    assert not torch.allclose(base, field(q, s, Drive(r + 1, lambda _: f)), atol=1e-3)
    assert not torch.allclose(base, field(q, s, Drive(r, lambda _: 2 * f)), atol=1e-3)
    assert lazy_parameters(field, base) == []


@pytest.mark.parametrize(
    ("config", "patches", "terms", "has_shared", "n"),
    [
        (FieldConfig(), LINE, 3, False, 42_885_696),  # Combined
        (FieldConfig(positions="sincos"), PatchGrid((128, 128), 8, (True, True)), 1, True, 42_811_008),  # Vorticity
        (
            FieldConfig(mlp_ratio=3.85938, head_hidden=384, film=True),
            PatchGrid((64, 64), 4, (False, False)),
            2,
            True,
            42_741_168,
        ),  # Wave-2D with its extra term
        (
            FieldConfig(depth=8, positions="sincos", head_hidden=85, head_bias="shared"),
            PatchGrid((32, 32), 4, (True, True)),
            2,
            True,
            14_419_584,
        ),  # Gray-Scott
    ],
)
def test_published_sizes(config: FieldConfig, patches: PatchGrid, terms: int, has_shared: bool, n: int) -> None:
    with torch.device("meta"):
        field = StructuredField(config, patches, 192, terms, has_shared)
    assert sum(p.numel() for p in field.parameters()) == n
