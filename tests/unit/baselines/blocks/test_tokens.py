"""Patches in time, positions, masks and the switches of the block, each against its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.tokens import (
    BlockConfig,
    Cache,
    Modulation,
    SwiGlu,
    TokenAttention,
    TokenBlock,
    Tubelets,
    causal_mask,
    choose,
    grid_sinusoids,
    pick,
    run_blocks,
    sinusoids,
    tubes,
)
from pdejepa.core.errors import ConfigError
from pdejepa.models.patches import PatchGrid
from tests.unit.baselines.token_solvers import shaken


@pytest.mark.parametrize("grid", [(8,), (8, 4)])
def test_tubelets_are_cut_and_joined(grid: tuple[int, ...]) -> None:
    cut = Tubelets(PatchGrid(grid, 2, (True,) * len(grid)), 3)
    u = torch.randn(2, 6, 2, *grid)
    x = cut.split(u)
    n_sites = math.prod(n // 2 for n in grid)
    assert x.shape == (2, 2 * n_sites, 3 * 2 * 2 ** len(grid))
    assert torch.equal(cut.join(x), u)
    frame_channel = x[1, n_sites].reshape(3, 2, -1)  # first place of the second tubelet
    assert torch.equal(frame_channel[2, 1, :2], u[1, 5, 1, 0, :2] if len(grid) == 2 else u[1, 5, 1, :2])


def test_tubelets_refuse_odd_clips() -> None:
    with pytest.raises(ConfigError, match="must divide the clip; got 5"):
        Tubelets(PatchGrid((8,), 2, (True,)), 2).split(torch.randn(1, 5, 1, 8))


def test_sinusoids_by_hand() -> None:
    x = sinusoids(torch.arange(4), 6)
    for i in range(3):
        angle = 3 * 10_000 ** (-2 * i / 6)
        assert float(x[3, 2 * i]) == pytest.approx(math.sin(angle))
        assert float(x[3, 2 * i + 1]) == pytest.approx(math.cos(angle))


def test_every_axis_has_its_part_of_the_positions() -> None:
    x = grid_sinusoids((3, 2), 11).reshape(3, 2, 11)
    assert torch.equal(x[..., :4], sinusoids(torch.arange(3), 4)[:, None].expand(-1, 2, -1))
    assert torch.equal(x[..., 4:8], sinusoids(torch.arange(2), 4)[None].expand(3, -1, -1))
    assert not x[..., 8:].any()


def test_who_sees_whom() -> None:
    mask = causal_mask(torch.tensor([-1, -1, 0, 0, 1]))
    rows = ["11000", "11000", "11110", "11110", "11111"]
    assert ["".join(str(int(v)) for v in row) for row in mask] == rows


def test_masks_share_out_all_tokens() -> None:
    seen, masked = choose(torch.tensor([[0.3, 0.1, 0.2, 0.9], [0.9, 0.8, 0.1, 0.5]]), 1)
    assert seen.tolist() == [[1], [2]]
    assert masked.tolist() == [[2, 0, 3], [3, 1, 0]]
    assert tubes(seen, 3, 4).tolist() == [[1, 5, 9], [2, 6, 10]]
    x = torch.arange(24.0).reshape(2, 4, 3)
    assert torch.equal(pick(x, masked)[1, 0], x[1, 3])
    assert torch.equal(pick(x[:1], masked)[1, 0], x[0, 3])  # one table for all rows


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def test_attention_by_hand() -> None:
    config = BlockConfig(6, 2, 8, qk_norm="rms", qkv_bias="query_value", head_width=4)
    part = shaken(TokenAttention(config), 0.5)
    assert part.q_bias is not None
    assert part.v_bias is not None
    x = torch.randn(3, 5, 6)
    q, k, v = (x @ part.qkv.weight.T).split(8, -1)
    q, v = q + part.q_bias, v + part.v_bias
    heads = []
    for h in range(2):
        own = slice(4 * h, 4 * h + 4)
        q_h, k_h = (
            y[..., own] / (y[..., own].square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
            for y, norm in ((q, part.q_norm), (k, part.k_norm))
        )
        heads.append(by_hand(q_h, k_h, v[..., own]))
    torch.testing.assert_close(part(x), part.out(torch.cat(heads, -1)))


def test_swiglu_by_hand() -> None:
    part, x = SwiGlu(3, 5), torch.randn(2, 3)
    gate, hidden = x @ part.gate.weight.T, x @ part.hidden.weight.T
    torch.testing.assert_close(part(x), (gate * gate.sigmoid() * hidden) @ part.out.weight.T)


def test_a_gated_block_begins_as_the_identity() -> None:
    block, modulation = TokenBlock(BlockConfig(8, 2, 16, "rms", "swiglu")), Modulation(6, (3, 4), (2, 6))
    x, conditions = torch.randn(2, 5, 8), (torch.randn(2, 1, 3), torch.randn(2, 5, 4))
    assert torch.equal(block(x, modulation=modulation(*conditions)), x)
    after = block(x, modulation=shaken(modulation)(*conditions))
    assert not torch.equal(after, x)
    ones = tuple(torch.full((1, 1, 8), value) for value in (0.0, 0.0, 1.0) * 2)
    torch.testing.assert_close(block(x, modulation=ones), block(x))  # no shift, no scale, open gates: the plain block


def test_a_cache_gives_what_a_mask_gives() -> None:
    blocks = nn.ModuleList(TokenBlock(BlockConfig(8, 2, 16)) for _ in range(3))
    x = torch.randn(2, 7, 8)
    number = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    whole = run_blocks(blocks, x, causal_mask(number))
    cache = Cache()
    parts = [run_blocks(blocks, x[:, number == n], cache=cache) for n in range(3)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="heads must divide the width; got 3 heads for a width of 8"):
        BlockConfig(8, 3, 16)
