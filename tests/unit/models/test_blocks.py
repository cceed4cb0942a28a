"""Transformer blocks: the written-out formula, levels, initial weights and compilation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pdejepa.models.blocks import Attention, Block, Mlp, Trunk, compile_blocks, init_weights
from pdejepa.models.rope import Axis, Rotary, rotate


def test_attention_is_softmax_of_scaled_products(perturb: Callable) -> None:
    attention = perturb(Attention(12, 3))
    x, rotary = torch.randn(2, 5, 12), Rotary((Axis(5, False),), 4)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in attention.qkv(x).split(12, dim=-1))
    scores = rotate(q, *rotary()) @ rotate(k, *rotary()).transpose(-1, -2) / 2
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    expected = attention.out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, *rotary(), mask), expected)
    assert not torch.allclose(attention(x), attention(x, *rotary()), atol=1e-3)


def test_a_block_normalises_before_each_part_and_adds(perturb: Callable) -> None:
    block = perturb(Block(12, 3, 20))
    x = torch.randn(2, 5, 12)
    y = x + block.attention(block.norm1(x))
    torch.testing.assert_close(block(x), y + block.mlp(block.norm2(y)))
    assert (block.norm1.eps, block.norm2.eps) == (1e-6, 1e-6)


def test_the_mlp_uses_the_exact_gelu(perturb: Callable) -> None:
    mlp = perturb(Mlp(4, 6))
    x = torch.randn(3, 4)
    hidden = mlp.hidden(x)
    gelu = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    torch.testing.assert_close(mlp(x), mlp.out(gelu))


def test_levels_are_outputs_of_blocks() -> None:
    trunk = Trunk(4, 12, 3, 2.5)
    assert trunk.blocks[0].mlp.hidden.out_features == 30
    x = torch.randn(2, 5, 12)
    after_two = trunk.blocks[1](trunk.blocks[0](x))
    kept = trunk(x, levels=(2, 4))
    assert torch.equal(kept[0], after_two)
    assert torch.equal(kept[1], trunk(x))
    assert len(kept) == 2


def test_every_part_matters(perturb: Callable, lazy_parameters: Callable, idle_parts: Callable) -> None:
    trunk, rotary = perturb(Trunk(3, 12, 3, 2.0)), Rotary((Axis(5, False),), 4)
    x = torch.randn(2, 5, 12)
    assert lazy_parameters(trunk, trunk(x, *rotary())) == []
    assert idle_parts(trunk, lambda: trunk(x, *rotary())) == []


def test_initial_weights_shrink_with_depth() -> None:
    trunk = Trunk(4, 128, 2, 4.0)
    init_weights(trunk)
    for number, block in enumerate(trunk.blocks, start=1):
        for layer in (block.attention.out, block.mlp.out):
            assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * number), rel=0.03)
        for layer in (block.attention.qkv, block.mlp.hidden):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03)
            assert layer.bias.abs().max() == 0
        assert torch.equal(block.norm1.weight, torch.ones(128))


def test_initial_weights_of_convolutions_and_norms() -> None:
    layers = nn.Sequential(nn.Conv2d(32, 32, 3), nn.LayerNorm(32), nn.LayerNorm(4, elementwise_affine=False))
    nn.init.constant_(layers[1].weight, 3.0)
    init_weights(layers)
    assert layers[0].weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(layers[0].bias, torch.zeros(32))
    assert torch.equal(layers[1].weight, torch.ones(32))


def test_only_blocks_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[nn.Module, dict[str, object]]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled.append((self, options)))
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 8)
    trunk = Trunk(3, 8, 2, 2.0)
    compile_blocks(nn.Sequential(nn.Linear(8, 8), trunk))
    assert [part for part, _ in compiled] == list(trunk.blocks)
    assert all(options == {"dynamic": False} for _, options in compiled)
    assert torch._dynamo.config.recompile_limit == 64


def test_autocast_keeps_the_residual_stream_in_single_precision() -> None:
    trunk = Trunk(2, 12, 3, 2.0)
    x: Tensor = torch.randn(2, 5, 12)
    with torch.autocast("cpu", torch.bfloat16):
        assert trunk(x).dtype == torch.float32
