"""Predictor of masked features: targets are told apart by position, types of masks by their token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.jepa_predictor import JepaPredictor, JepaPredictorConfig
from pdejepa.models.patches import PatchGrid

FRAMES, WIDTH = 3, 12


@pytest.fixture
def make(perturb: Callable, patches: PatchGrid) -> Callable[..., JepaPredictor]:
    def build(n_levels: int = 1, positions: str = "rope", **options: object) -> JepaPredictor:
        encoder = EncoderConfig(2, WIDTH, 4, 1, n_levels=n_levels, positions=positions)  # type: ignore[arg-type]
        config = JepaPredictorConfig(width=24, depth=3, heads=2, mlp_ratio=2.0)
        return perturb(JepaPredictor(config, encoder, patches, FRAMES, **options))  # type: ignore[arg-type]

    return build


@pytest.fixture
def lists(patches: PatchGrid) -> tuple[Tensor, Tensor]:
    """Five context and four target tokens in each of two rows."""
    order = torch.stack([torch.randperm(FRAMES * patches.n_tokens) for _ in range(2)])
    return order[:, :5], order[:, 5:9]


@pytest.mark.parametrize("n_levels", [1, 4])
def test_shapes(make: Callable, lists: tuple[Tensor, Tensor], n_levels: int) -> None:
    context = torch.randn(2, 5, n_levels * WIDTH)
    target, shown = make(n_levels)(context, *lists, 0)
    assert target.shape == (2, 4, n_levels * WIDTH)
    assert shown.shape == context.shape
    assert make(n_levels, has_context_head=False)(context, *lists, 0)[1] is None


@torch.no_grad()
def test_each_type_of_mask_has_its_token(make: Callable, lists: tuple[Tensor, Tensor]) -> None:
    predictor, context = make(), torch.randn(2, 5, WIDTH)
    target = [predictor(context, *lists, kind)[0] for kind in (0, 1)]
    assert not torch.allclose(*target, atol=1e-2)
    predictor.mask_token[0].copy_(predictor.mask_token[1])
    assert torch.equal(predictor(context, *lists, 0)[0], target[1])


def test_mask_tokens_start_at_zero(patches: PatchGrid) -> None:
    predictor = JepaPredictor(JepaPredictorConfig(24, 1, 2), EncoderConfig(2, 12, 1, 1), patches, 1, n_mask_types=3)
    assert torch.equal(predictor.mask_token, torch.zeros(3, 24))


@torch.no_grad()
def test_targets_are_told_apart_by_position(make: Callable, lists: tuple[Tensor, Tensor]) -> None:
    predictor, context = make(), torch.randn(2, 5, WIDTH)
    shown_idx, target_idx = lists
    target, shown = predictor(context, shown_idx, target_idx, 0)
    for i in range(4):
        for j in range(i):
            assert not torch.allclose(target[:, i], target[:, j], atol=1e-3)
    order = torch.randperm(4)
    again, _ = predictor(context, shown_idx, target_idx[:, order], 0)
    torch.testing.assert_close(again, target[:, order], atol=1e-5, rtol=1e-5)
    order = torch.randperm(5)
    again, shown_again = predictor(context[:, order], shown_idx[:, order], target_idx, 0)
    torch.testing.assert_close(again, target, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shown_again, shown[:, order], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_where_the_context_stands_matters(make: Callable, lists: tuple[Tensor, Tensor]) -> None:
    predictor, context = make(), torch.randn(2, 5, WIDTH)
    target, _ = predictor(context, *lists, 0)
    moved, _ = predictor(context, lists[0].roll(1, 1), lists[1], 0)
    assert not torch.allclose(moved, target, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["ring", "rope"])
def test_on_rings_only_differences_of_position_count(
    make: Callable, lists: tuple[Tensor, Tensor], patches: PatchGrid, positions: str
) -> None:
    predictor, context = make(positions=positions), torch.randn(2, 5, WIDTH)
    numbers = torch.arange(FRAMES * patches.n_tokens).unflatten(0, (FRAMES, *patches.tokens))
    moved = numbers.roll(-1, -1).flatten()  # the right-hand neighbour of each token
    before, after = predictor(context, *lists, 0), predictor(context, *(moved[idx] for idx in lists), 0)
    off = max((a - b).abs().max() for a, b in zip(before, after, strict=True))
    assert off < 2e-5 if positions == "ring" else off > 1e-3


@pytest.mark.parametrize("n_levels", [1, 4])
def test_every_part_matters(
    make: Callable, lists: tuple[Tensor, Tensor], lazy_parameters: Callable, idle_parts: Callable, n_levels: int
) -> None:
    predictor = make(n_levels)
    context = torch.randn(2, 5, n_levels * WIDTH)

    def run() -> Tensor:
        return torch.cat([part for kind in (0, 1) for part in predictor(context, *lists, kind)], dim=1)

    assert lazy_parameters(predictor, run()) == []
    assert idle_parts(predictor, lambda: predictor(context, *lists, 0)[0]) == []


def test_several_levels_are_mixed_first(make: Callable) -> None:
    embed = make(4).embed
    assert isinstance(embed, nn.Sequential)
    assert [(layer.in_features, layer.out_features) for layer in (embed[0], embed[2])] == [(48, 12), (12, 24)]
