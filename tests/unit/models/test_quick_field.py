"""The field for forecasts on a CPU gives the values of the structured field, for every kind of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pdejepa.models import packed
from pdejepa.models.condition import Drive
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.packed import Packed, after_norm
from pdejepa.models.patches import PatchGrid
from pdejepa.models.quick_field import quick_field, rotate_pairs
from pdejepa.models.rope import rotate
from pdejepa.models.vector_field import SecondOrder, StructuredField
from pdejepa.training.flops import counted
from tests.unit.forecast.tiny import forecaster, state

LINE, PLANE = PatchGrid((32,), 4, (True,)), PatchGrid((16, 24), 4, (True, False))
B, D = 3, 8


def _field(patches: PatchGrid = LINE, n_forcing: int = 0, shared: bool = True, state: int = D, **changes: Any) -> Any:
    config = FieldConfig(**{"width": 24, "depth": 2, "heads": 2, "forcing_layers": 2, **changes})
    field = StructuredField(config, patches, D, 2, shared, n_forcing, state)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # scales and shifts of every norm too: they start at 1 and 0
        for parameter in field.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return field


def _inputs(field: Any, patches: PatchGrid, width: int, n_forcing: int, rows: int = B) -> tuple[Tensor, Tensor, Drive]:
    generator = torch.Generator().manual_seed(2)
    state = torch.randn(rows, patches.n_tokens, width, generator=generator)
    wave = torch.randn(rows, patches.n_tokens, max(1, n_forcing), generator=generator)
    forcing = (lambda s: wave * (1 + s[:, None, None])) if n_forcing else None
    return state, torch.linspace(0, 2, rows), Drive(torch.randn(rows, 2, generator=generator), forcing)


def _apart(found: Tensor, expected: Tensor) -> float:
    """The largest relative L2 difference of a row."""
    return float(((found - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)).max())


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize(
    ("patches", "n_forcing", "shared", "state", "rows", "changes"),
    [
        (LINE, 0, True, D, B, {}),
        (LINE, 0, False, D, 1, {"positions": "ring"}),
        (PLANE, 5, True, D, B, {}),
        (LINE, 3, True, 2 * D, 1, {"head_bias": "shared", "positions": "ring"}),
        (LINE, 0, True, D, B, {"width": D, "heads": 2}),  # without an embedding
    ],
)
def test_the_same_values(
    patches: PatchGrid, n_forcing: int, shared: bool, state: int, rows: int, changes: dict[str, Any], is_packed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if is_packed and not packed.can_pack():
        pytest.skip("this PyTorch has no packed products")
    monkeypatch.setattr(packed, "can_pack", lambda: is_packed)
    field = _field(patches, n_forcing, shared, state, **changes)
    y, s, drive = _inputs(field, patches, state, n_forcing, rows)
    with torch.no_grad():
        quick = quick_field(field, drive, y)
        assert quick is not None
        for time in (s, s, s + 0.5):
            assert _apart(quick(y, time), field(y, time, drive)) < 1e-5


def test_second_order_states_have_their_velocity() -> None:
    field = SecondOrder(_field(state=2 * D), 0.5)
    y, s, drive = _inputs(field, LINE, 2 * D, 0)
    with torch.no_grad():
        quick = quick_field(field, drive, y)
        assert quick is not None
        assert _apart(quick(y, s), field(y, s, drive)) < 1e-5


def test_what_only_the_field_itself_can_do() -> None:
    y, _, drive = _inputs(None, LINE, D, 0)
    assert quick_field(_field(), drive, y) is None  # with gradients
    with torch.no_grad():
        assert quick_field(_field(), drive, y.double()) is None
        assert quick_field(_field(film=True), drive, y) is None
        assert quick_field(_field(head_hidden=8), drive, y) is None
        assert quick_field(_field(positions="sincos"), drive, y) is None
        assert quick_field(nn.Linear(D, D), drive, y) is None
        with torch.autocast("cpu"):
            assert quick_field(_field(), drive, y) is None
        assert quick_field(_field(), drive, y) is not None


def test_pairs_side_by_side_turn_as_halves_do() -> None:
    x, angles = torch.randn(2, 5, 3, 8), torch.randn(5, 4)
    halves = rotate(x.transpose(1, 2), angles.cos()[None, None], angles.sin()[None, None]).transpose(1, 2)
    paired = x.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
    turned = rotate_pairs(paired, torch.complex(angles.cos(), angles.sin())[:, None])
    torch.testing.assert_close(turned.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2), halves)


@pytest.mark.parametrize("is_packed", [True, False])
def test_linear_layers(is_packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_packed and not packed.can_pack():
        pytest.skip("this PyTorch has no packed products")
    monkeypatch.setattr(packed, "can_pack", lambda: is_packed)
    layer, norm, x, z = nn.Linear(6, 5), nn.LayerNorm(6), torch.randn(2, 3, 6), torch.randn(2, 3, 5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    with torch.no_grad():
        own = Packed(layer.weight, layer.bias)
        torch.testing.assert_close(own(x), layer(x))
        torch.testing.assert_close(own.gelu(x), nn.functional.gelu(layer(x)))
        torch.testing.assert_close(own.plus(x, z), z + layer(x))
        torch.testing.assert_close(Packed(layer.weight)(x), layer(x) - layer.bias)
        behind = Packed(*after_norm(norm, layer.weight, layer.bias))
        torch.testing.assert_close(behind(nn.functional.layer_norm(x, (6,))), layer(norm(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["combined", "wave_b", "burgers"])
def test_forecasts_are_the_same_to_five_digits(name: str) -> None:
    model = forecaster(name)
    u0, xi = state(model.system, 2), model.system.sample("test", range(2))[1]
    quick = model.forecast(u0, xi, n_frames=4)
    model.is_quick = False
    plain = model.forecast(u0, xi, n_frames=4)
    assert not torch.equal(quick.fields, plain.fields)  # two ways
    assert _apart(quick.fields, plain.fields) < 1e-5


def test_packed_products_are_counted() -> None:
    """As many operations as the usual layer has: two per weight and token."""
    layer, square = Packed(torch.randn(5, 4), torch.randn(5)), Packed(torch.randn(4, 4))
    x, z = torch.randn(3, 7, 4), torch.randn(3, 7, 5)
    with torch.no_grad():
        for action in (lambda: layer(x), lambda: layer.gelu(x), lambda: layer.plus(x, z)):
            assert counted(action) == 2 * 21 * 20
        assert counted(lambda: square.plus(x[0], x[0])) == 2 * 7 * 16
