"""Decoder: shifts, edges, the upsampling stencil, and the same numbers as ordinary convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, conv2d, gelu, group_norm, interpolate, layer_norm, pad

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models import decoder as module
from pdejepa.models.decoder import Conv3, Decoder, DecoderConfig, ResidualBlock, Upsample
from pdejepa.models.patches import PatchGrid
from tests.gpu import needs_cuda

WIDTH, CHANNELS = 12, 2
LINE = PatchGrid((40,), 4, (True,))
PLANE = PatchGrid((16, 24), 4, (True, True))
GRIDS = pytest.mark.parametrize("patches", [LINE, PLANE])
PADDINGS = pytest.mark.parametrize("padding", ["circular", "zeros", "reflect"])
STYLES = pytest.mark.parametrize("style", ["residual", "plain", "patches"])
ALL_STYLES = pytest.mark.parametrize("style", ["residual", "plain", "patches", "linear"])


def build(patches: PatchGrid, style: Any, padding: Any = "circular", **changes: Any) -> Decoder:
    widths = (16, 24, 16) if style == "residual" else (16, 24, 16, 8)
    config = DecoderConfig(**{"widths": widths, "style": style, **changes})
    return Decoder(config, patches, WIDTH, CHANNELS, padding)


@GRIDS
@PADDINGS
@ALL_STYLES
def test_shapes(patches: PatchGrid, padding: str, style: str) -> None:
    decoder = build(patches, style, padding)
    for lead in ((), (3,), (2, 3)):
        assert decoder(torch.randn(*lead, patches.n_tokens, WIDTH)).shape == (*lead, CHANNELS, *patches.grid)


@torch.no_grad()
@GRIDS
@STYLES
@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_shifted_tokens_give_shifted_fields_if_edges_wrap(
    patches: PatchGrid, style: str, padding: str, perturb: Callable
) -> None:
    decoder = perturb(build(patches, style, padding))
    q = torch.randn(2, patches.n_tokens, WIDTH)
    u = decoder(q)
    for axis in range(patches.ndim):
        moved = q.unflatten(1, patches.tokens).roll(1, axis + 1).flatten(1, patches.ndim)
        off = (decoder(moved) - u.roll(4, axis + 2)).abs().max() / u.abs().max()
        assert off < 1e-5 if padding == "circular" else off > 1e-2


@torch.no_grad()
@GRIDS
def test_the_linear_style_is_linear_and_local(patches: PatchGrid, perturb: Callable) -> None:
    """The size of a token counts, unlike in the other styles, and a token decides about its own patch only."""
    decoder = perturb(build(patches, "linear"))
    q, other = torch.randn(2, 2, patches.n_tokens, WIDTH)
    torch.testing.assert_close(decoder(2 * q - other), 2 * decoder(q) - decoder(other), atol=1e-5, rtol=1e-5)
    changed = q.clone()
    changed[:, 0] += 1.0
    moved = (decoder(changed) - decoder(q)).abs().sum((0, 1))
    corner = tuple(slice(0, patches.patch) for _ in patches.grid)
    assert bool((moved[corner] > 0).all())
    moved[corner] = 0.0
    assert float(moved.sum()) == 0.0


@torch.no_grad()
@PADDINGS
def test_only_circular_edges_wrap(padding: str, perturb: Callable) -> None:
    """Without norms over the map, the last token reaches the first points only around the edge."""
    for patches in (LINE, PatchGrid((40, 40), 4, (True, True))):
        decoder = perturb(build(patches, "plain", padding))
        q = torch.randn(1, patches.n_tokens, WIDTH)
        other = q.clone()
        other[:, -1] += torch.randn(WIDTH)
        near = (decoder(other) - decoder(q))[(..., *(slice(4),) * patches.ndim)].abs().max()
        assert near > 1e-4 if padding == "circular" else near == 0


def test_upsampling_by_hand() -> None:
    x = torch.tensor([0.0, 4.0, 8.0]).reshape(1, 1, 1, 3)
    assert Upsample("circular", (3,))(x).flatten().tolist() == [2, 1, 3, 5, 7, 6]
    for padding in ("zeros", "reflect"):
        assert Upsample(padding, (3,))(x).flatten().tolist() == [0, 1, 3, 5, 7, 8]  # type: ignore[arg-type]


def test_upsampling_is_separable_and_linear_interpolation() -> None:
    a, b = torch.randn(3), torch.randn(5)
    line = Upsample("circular", (3,))
    product = line(a.reshape(1, 1, 1, 3)).flatten()[:, None] * line(b.reshape(1, 1, 1, 5)).flatten()
    torch.testing.assert_close(Upsample("circular", (2, 3))((a[:, None] * b)[None, None])[0, 0], product)
    x = torch.randn(2, 3, 4, 5)
    expected = interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(Upsample("reflect", (2, 3))(x), expected)


def padded(x: Tensor, padding: str, ndim: int) -> Tensor:
    return pad(x, (1, 1) * ndim, mode="constant" if padding == "zeros" else padding)


def doubled(x: Tensor, padding: str, ndim: int) -> Tensor:
    mode = "linear" if ndim == 1 else "bilinear"
    if padding != "circular":
        return interpolate(x, scale_factor=2, mode=mode, align_corners=False)
    wide = interpolate(padded(x, padding, ndim), scale_factor=2, mode=mode, align_corners=False)
    return wide[(..., *(slice(2, -2),) * ndim)]


@torch.no_grad()
@GRIDS
@PADDINGS
def test_plain_equals_ordinary_convolutions(patches: PatchGrid, padding: str, perturb: Callable) -> None:
    decoder, k = perturb(build(patches, "plain", padding)), patches.ndim
    q = torch.randn(3, patches.n_tokens, WIDTH)
    convolutions = [layer for layer in decoder.layers if isinstance(layer, Conv3)]
    x = layer_norm(q, (WIDTH,)).transpose(1, 2).unflatten(2, patches.tokens)  # (B,D,*tokens)
    for number, layer in enumerate(convolutions):
        x = doubled(x, padding, k) if number in (1, 2) else x
        weight = layer.weight[:, :, 0] if k == 1 else layer.weight
        x = (conv1d, conv2d)[k - 1](padded(x, padding, k), weight, layer.bias)
        x = gelu(x) if number < 4 else x
    assert len(convolutions) == 5
    torch.testing.assert_close(decoder(q), x, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@PADDINGS
def test_residual_equals_the_written_formula(padding: str, perturb: Callable) -> None:
    patches = PatchGrid((16, 24), 2, (True, True))
    decoder = perturb(build(patches, "residual", padding, widths=(16, 16, 24), scales=(1, 2)))
    q = torch.randn(3, patches.n_tokens, WIDTH)
    norm, linear = decoder.to_map
    x = linear(layer_norm(layer_norm(q, (WIDTH,)), (WIDTH,), norm.weight, norm.bias, eps=1e-5))
    x = x.transpose(1, 2).unflatten(2, patches.tokens)
    blocks = [layer for layer in decoder.layers if isinstance(layer, ResidualBlock)]
    for number, block in enumerate(blocks):
        x = doubled(x, padding, 2) if number == 2 else x
        y = conv2d(padded(x, padding, 2), block.conv1.weight, block.conv1.bias)
        y = gelu(group_norm(y, 8, block.norm1.weight, block.norm1.bias))
        y = conv2d(padded(y, padding, 2), block.conv2.weight, block.conv2.bias)
        y = group_norm(y, 8, block.norm2.weight, block.norm2.bias)
        skip = x if number < 2 else conv2d(x, block.skip.weight, block.skip.bias)
        x = gelu(skip + y)
    head = decoder.layers[-1]
    torch.testing.assert_close(decoder(q), conv2d(padded(x, padding, 2), head.weight, head.bias), atol=1e-4, rtol=1e-4)


@GRIDS
def test_tokens_are_normalised_first(patches: PatchGrid) -> None:
    decoder, q = build(patches, "plain"), torch.randn(2, patches.n_tokens, WIDTH)
    torch.testing.assert_close(decoder(3 + 7 * q), decoder(q), atol=1e-4, rtol=1e-4)


def test_number_and_width_of_residual_blocks() -> None:
    decoder = build(LINE, "residual", n_blocks=2)
    blocks = [layer for layer in decoder.layers if isinstance(layer, ResidualBlock)]
    sizes = [(block.conv1.in_channels, block.conv1.out_channels) for block in blocks]
    assert sizes == [(16, 16), (16, 16), (16, 24), (24, 24), (24, 16), (16, 16)]
    assert [isinstance(block.skip, nn.Identity) for block in blocks] == [True, True, False, True, False, True]


@pytest.mark.parametrize(("width", "n_groups"), [(64, 8), (103, 1), (54, 6), (7, 7), (20, 5)])
def test_groups_are_the_largest_divisor_up_to_eight(width: int, n_groups: int) -> None:
    assert ResidualBlock(4, width, "zeros", (3,)).norm1.num_groups == n_groups


@GRIDS
@PADDINGS
@STYLES
def test_every_parameter_matters(
    patches: PatchGrid, padding: str, style: str, perturb: Callable, lazy_parameters: Callable
) -> None:
    decoder = perturb(build(patches, style, padding, n_blocks=2))
    assert lazy_parameters(decoder, decoder(torch.randn(2, patches.n_tokens, WIDTH))) == []


@torch.no_grad()
@STYLES
def test_every_layer_matters(style: str, perturb: Callable) -> None:
    decoder = perturb(build(PLANE, style, n_blocks=2))
    q = torch.randn(2, PLANE.n_tokens, WIDTH)
    whole = decoder(q)
    for layer in [part for part in decoder.modules() if isinstance(part, Conv3)]:
        kept = layer.weight.clone()
        layer.weight.zero_()
        assert not torch.allclose(decoder(q), whole, atol=1e-3)
        layer.weight.copy_(kept)


@GRIDS
@PADDINGS
def test_maps_are_channels_last_in_memory(patches: PatchGrid, padding: str) -> None:
    decoder, layouts = build(patches, "plain", padding), []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda _, inputs, output: layouts.append((inputs[0], output)))
    decoder(torch.randn(2, patches.n_tokens, WIDTH))
    assert all(x.is_contiguous(memory_format=torch.channels_last) for pair in layouts for x in pair)


def test_initial_weights() -> None:
    residual = build(LINE, "residual", widths=(64, 64, 64))
    assert residual.layers[0].conv1.weight.std().item() == pytest.approx(0.02, rel=0.1)
    torch.manual_seed(1)
    plain = build(LINE, "plain")
    torch.manual_seed(1)
    ordinary = nn.Conv2d(WIDTH, 16, (1, 3))
    assert torch.equal(plain.layers[0].weight, ordinary.weight)


@pytest.mark.parametrize(
    ("patches", "padding", "words"),
    [
        (PatchGrid((16,), 8, (True,)), "circular", "product of scales"),
        (LINE, "wrap", "padding must be"),
        (PatchGrid((4, 16), 4, (True, True)), "reflect", "two tokens per axis"),
        (PatchGrid((4, 4, 4), 4, (True,) * 3), "zeros", "one or two axes"),
    ],
)
def test_decoders_that_cannot_work_are_refused(patches: PatchGrid, padding: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(patches, "plain", padding)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(DataError, match=r"expects \(..., 10, 12\); got \(2, 10, 11\)"):
        build(LINE, "plain")(torch.zeros(2, 10, 11))


@torch.no_grad()
@GRIDS
def test_whole_patches_carry_what_lies_inside_them(patches: PatchGrid) -> None:
    """Equal tokens everywhere still make a field that varies inside a patch, which linear upsampling cannot."""
    q = torch.randn(1, 1, WIDTH).expand(1, patches.n_tokens, WIDTH)
    spread = {style: float(build(patches, style)(q).std()) for style in ("patches", "residual")}
    assert spread["patches"] > 1e-3
    field = build(patches, "residual")(q)
    assert float((field - field.mean(tuple(range(2, field.ndim)), keepdim=True)).abs().max()) < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("style", ["residual", "plain"])
def test_large_maps_are_made_in_pieces(style: str, perturb: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, q = perturb(build(LINE, style)), torch.randn(7, LINE.n_tokens, WIDTH)
    whole, sizes = decoder(q), []
    monkeypatch.setattr(module, "MAX_VALUES", 3 * decoder.largest_map)
    decoder.layers[0].register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    torch.testing.assert_close(decoder(q), whole)
    assert sizes == [3, 3, 1]


@torch.no_grad()
@needs_cuda
@pytest.mark.parametrize("widths", [(96, 64, 48), (192, 128, 96)])
def test_large_maps_on_a_gpu(widths: tuple[int, ...], perturb: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 trajectories of 14 frames at once give what four at a time give, in true float32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    patches = PatchGrid((256,), 4, (True,))
    decoder = perturb(Decoder(DecoderConfig(widths=widths), patches, 128, 1, "circular")).cuda()
    q = torch.randn(1680, patches.n_tokens, 128, device="cuda")
    alone = torch.cat([decoder(part) for part in q.split(56)])
    torch.testing.assert_close(decoder(q), alone, rtol=1e-3, atol=1e-3)
