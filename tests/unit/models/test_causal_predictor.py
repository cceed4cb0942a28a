"""Causal predictor: no frame sees a later one, the condition counts, and nothing changes at the start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.models.causal_predictor import CausalPredictor, CausalPredictorConfig, block_causal_mask
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.patches import PatchGrid

FRAMES, WIDTH, PARAMETERS = 4, 12, 3


def build(patches: PatchGrid, positions: str = "rope", n_frames: int = FRAMES) -> CausalPredictor:
    config = CausalPredictorConfig(width=24, depth=3, heads=2, mlp_ratio=2.0)
    encoder = EncoderConfig(2, WIDTH, 1, 1, positions=positions)  # type: ignore[arg-type]
    return CausalPredictor(config, encoder, patches, n_frames, PARAMETERS)


@pytest.fixture
def predictor(perturb: Callable, patches: PatchGrid) -> CausalPredictor:
    return perturb(build(patches))


@pytest.fixture
def q(patches: PatchGrid) -> Tensor:
    return torch.randn(2, FRAMES, patches.n_tokens, WIDTH)


@pytest.fixture
def condition() -> Tensor:
    return torch.randn(2, PARAMETERS)


@torch.no_grad()
@pytest.mark.parametrize("t", range(FRAMES))
def test_a_frame_changes_itself_and_what_follows(
    predictor: CausalPredictor, q: Tensor, condition: Tensor, t: int
) -> None:
    other = q.clone()
    other[:, t, 3] += torch.randn(2, WIDTH)  # one token is enough
    off = (predictor(other, condition) - predictor(q, condition)).abs().amax(dim=(0, 3))  # (T,N)
    assert off[:t].sum() == 0
    assert (off[t:] > 1e-5).all()


@torch.no_grad()
@pytest.mark.parametrize("t", range(FRAMES))
def test_a_changing_condition_is_causal_too(
    predictor: CausalPredictor, q: Tensor, condition: Tensor, t: int
) -> None:
    steady = condition[:, None].expand(-1, FRAMES, -1)
    torch.testing.assert_close(predictor(q, steady), predictor(q, condition))
    other = steady.clone()
    other[:, t] += 1.0
    off = (predictor(q, other) - predictor(q, steady)).abs().amax(dim=(0, 3))
    assert off[:t].sum() == 0
    assert (off[t:] > 1e-5).all()


@torch.no_grad()
def test_every_parameter_of_the_condition_counts(predictor: CausalPredictor, q: Tensor, condition: Tensor) -> None:
    before = predictor(q, condition)
    for number in range(PARAMETERS):
        other = condition.clone()
        other[0, number] += 1.0
        off = (predictor(q, other) - before).abs()
        assert off[0].amax(dim=-1).min() > 1e-5
        assert off[1].max() == 0  # rows do not see each other


def test_nothing_changes_at_the_start(patches: PatchGrid, q: Tensor, condition: Tensor) -> None:
    predictor = build(patches)
    assert torch.equal(predictor(q, condition), torch.zeros_like(q))
    assert predictor.embed.weight.abs().min() > 0


def test_every_part_matters(
    predictor: CausalPredictor, q: Tensor, condition: Tensor, lazy_parameters: Callable, idle_parts: Callable
) -> None:
    assert lazy_parameters(predictor, predictor(q, condition)) == []
    assert idle_parts(predictor, lambda: predictor(q, condition)) == []


@torch.no_grad()
def test_shorter_clips_are_the_beginning_of_longer_ones(
    predictor: CausalPredictor, q: Tensor, condition: Tensor
) -> None:
    torch.testing.assert_close(predictor(q[:, :2], condition), predictor(q, condition)[:, :2], atol=1e-5, rtol=1e-5)
    with pytest.raises(DataError, match="4 frames or fewer; got 5"):
        predictor(torch.cat((q, q[:, :1]), dim=1), condition)


@torch.no_grad()
def test_places_in_space_matter(predictor: CausalPredictor, q: Tensor, condition: Tensor) -> None:
    swapped = predictor(q.flip(2), condition).flip(2)
    assert not torch.allclose(swapped, predictor(q, condition), atol=1e-3)


@torch.no_grad()
def test_each_token_is_answered_at_its_own_place(predictor: CausalPredictor, q: Tensor, condition: Tensor) -> None:
    """With attention silenced, a token changes its own output and nothing else."""
    for block in predictor.trunk.blocks:
        block.attention.out.weight.zero_()
    other = q.clone()
    other[:, 1, 3] += 1.0
    off = (predictor(other, condition) - predictor(q, condition)).abs().amax(dim=(0, 3))  # (T,N)
    assert off[1, 3] > 1e-3
    off[1, 3] = 0
    assert off.max() < 1e-6


def test_condition_tokens_have_a_time_and_no_place(patches: PatchGrid) -> None:
    predictor = build(patches, positions="ring")
    places = predictor.places.unflatten(0, (FRAMES, -1))
    assert torch.equal(places[:, 1:].flatten(), torch.arange(FRAMES * patches.n_tokens))
    cos, sin = predictor.rotary(places[:, :1])  # (T,1,1,d/2)
    share = 6 // (patches.ndim + 1)
    assert torch.equal(sin[:, 0, 0, share:], torch.zeros(FRAMES, 6 - share))
    assert torch.equal(cos[:, 0, 0, share:], torch.ones(FRAMES, 6 - share))
    torch.testing.assert_close(sin[:, 0, 0, 0], torch.arange(FRAMES).sin())


def test_the_mask_is_full_inside_a_frame_and_causal_between_frames() -> None:
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert block_causal_mask(2, 2, torch.device("cpu")).int().tolist() == expected
