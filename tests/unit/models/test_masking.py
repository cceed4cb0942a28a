"""Masks: what is shown and what is predicted never overlap; every site of a periodic grid is treated alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pdejepa.core.errors import ConfigError
from pdejepa.models.masking import MaskConfig, MaskSampler
from pdejepa.models.patches import PatchGrid

LINE = PatchGrid((64,), 1, (True,))
PLANE = PatchGrid((32, 32), 4, (True, True))
ROWS, FRAMES = 33, 3
GRIDS = pytest.mark.parametrize("patches", [LINE, PLANE, PatchGrid((20, 24), 4, (False, True))])
CUTS = pytest.mark.parametrize("cut", ["time_first", "random"])
KINDS = pytest.mark.parametrize("kind", [0, 1])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_block(scale: float, patches: PatchGrid = LINE) -> MaskSampler:
    return MaskSampler(MaskConfig((scale,), (1,), n_context=(0.25,), n_target=(0.5,)), patches)


def sites_of(idx: Tensor, patches: PatchGrid) -> Tensor:
    """(B,T,N), True where a token is listed."""
    flat = torch.zeros(len(idx), FRAMES * patches.n_tokens, dtype=torch.bool)
    return flat.scatter(1, idx, True).unflatten(1, (FRAMES, -1))


@GRIDS
@CUTS
@KINDS
def test_lists_are_disjoint_without_repeats_and_of_fixed_length(patches: PatchGrid, cut: Any, kind: int) -> None:
    sampler = MaskSampler(MaskConfig(cut=cut), patches)
    context, target = sampler.sample(kind, ROWS, FRAMES, seeded())
    N = patches.n_tokens
    assert context.shape == (ROWS, FRAMES * round((0.25, 0.125)[kind] * N))
    assert target.shape == (ROWS, FRAMES * round((0.5, 0.6875)[kind] * N))
    assert context.dtype == target.dtype == torch.int64
    both = torch.cat((context, target), dim=1).sort(dim=1).values
    assert (both.diff(dim=1) > 0).all()
    assert both.min() >= 0
    assert both.max() < FRAMES * N


@GRIDS
@CUTS
@KINDS
def test_masks_depend_on_the_seed_only(patches: PatchGrid, cut: Any, kind: int) -> None:
    sampler, state = MaskSampler(MaskConfig(cut=cut), patches), torch.get_rng_state()
    first, again, other = (sampler.sample(kind, ROWS, FRAMES, seeded(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert (first[1] != first[1][:1]).any()  # places are drawn for each row
    assert torch.equal(torch.get_rng_state(), state)


def reference(masked: list[bool], n_context: int, n_target: int) -> tuple[list[int], list[int]]:
    """The rule of `time_first` for one row, by loops."""
    tokens = [(t, site) for t in range(FRAMES) for site in range(len(masked))]
    number = {token: i for i, token in enumerate(tokens)}
    shown = [token for token in tokens if not masked[token[1]]] + [token for token in tokens if masked[token[1]]]
    context = shown[: FRAMES * n_context]
    rest = [token for token in tokens if token not in set(context)]
    wanted = [token for token in rest if masked[token[1]]] + [token for token in rest if not masked[token[1]]]
    return [number[token] for token in context], [number[token] for token in wanted[: FRAMES * n_target]]


@GRIDS
@KINDS
def test_time_first_takes_the_earliest_tokens(patches: PatchGrid, kind: int) -> None:
    sampler = MaskSampler(MaskConfig(), patches)
    masked = sampler.site_mask(kind, ROWS, seeded(3))
    context, target = sampler.sample(kind, ROWS, FRAMES, seeded(3))
    for row in range(ROWS):
        expected = reference(masked[row].tolist(), sampler.context_sites[kind], sampler.target_sites[kind])
        assert (context[row].tolist(), target[row].tolist()) == expected


@GRIDS
@KINDS
def test_random_takes_whole_sites(patches: PatchGrid, kind: int) -> None:
    sampler = MaskSampler(MaskConfig(cut="random"), patches)
    masked = sampler.site_mask(kind, ROWS, seeded(3))
    lists = sampler.sample(kind, ROWS, FRAMES, seeded(3))
    context, target = (sites_of(idx, patches) for idx in lists)
    assert torch.equal(context, context[:, :1].expand_as(context))  # tubes: the same sites in every frame
    assert torch.equal(target, target[:, :1].expand_as(target))
    n_visible = (~masked).sum(dim=1)
    shown = (context[:, 0] & masked).sum(dim=1)
    assert torch.equal(shown, (sampler.context_sites[kind] - n_visible).clamp(min=0))
    n_masked_left = masked.sum(dim=1) - shown
    assert torch.equal((target[:, 0] & masked).sum(dim=1), n_masked_left.clamp(max=sampler.target_sites[kind]))


def test_random_prefers_no_site() -> None:
    """Half the sites are always visible; which of them are shown is uniform."""
    patches = PatchGrid((16,), 1, (False,))
    sampler = MaskSampler(MaskConfig((0.01,), (1,), n_context=(0.25,), n_target=(0.5,), cut="random"), patches)
    context, _ = sampler.sample(0, 8000, FRAMES, seeded())
    share = torch.zeros(8000, 48).scatter(1, context, 1.0)[:, 2:14].mean(dim=0)
    assert (share - share.mean()).abs().max() < 5 * math.sqrt(0.25 / 8000)


def test_too_few_visible_tokens_are_filled_with_masked_ones() -> None:
    """Everything is masked: the first tokens are shown, and those that follow are predicted."""
    sampler = one_block(1.0)
    context, target = sampler.sample(0, 2, FRAMES, seeded())
    assert torch.equal(context, torch.arange(FRAMES * 16).expand(2, -1))
    assert torch.equal(target, torch.arange(FRAMES * 16, FRAMES * 48).expand(2, -1))


def test_too_few_masked_tokens_are_filled_with_visible_ones() -> None:
    sampler = one_block(0.05)
    masked = sampler.site_mask(0, 5, seeded())
    _, target = sampler.sample(0, 5, FRAMES, seeded())
    assert (masked.sum(dim=1) == 3).all()
    listed = sites_of(target, LINE)
    assert (listed & masked[:, None]).sum() == 5 * FRAMES * 3  # all masked tokens are among the targets


@pytest.mark.parametrize(("scale", "length"), [(0.15, 9), (0.70, 44)])
def test_intervals_have_the_rounded_down_length(scale: float, length: int) -> None:
    masked = one_block(scale).site_mask(0, 500, seeded())
    assert (masked.sum(dim=1) == length).all()
    edges = (masked != masked.roll(1, 1)).sum(dim=1)
    assert (edges == 2).all()  # one piece on the ring
    assert (masked[:, 0] & masked[:, -1]).any()  # some go around


def test_shares_that_are_whole_numbers_of_sites_are_not_rounded_down() -> None:
    assert one_block(0.7, PatchGrid((90,), 1, (True,))).site_mask(0, 1, seeded()).sum() == 63


def test_rectangles_have_the_area_and_the_aspect() -> None:
    patches = PatchGrid((16, 16), 1, (False, False))
    sampler, sizes = one_block(0.15, patches), set()
    for seed in range(300):
        masked = sampler.site_mask(0, 3, seeded(seed)).unflatten(1, (16, 16))
        heights, widths = masked.any(2).sum(1), masked.any(1).sum(1)
        assert len(heights.unique()) == len(widths.unique()) == 1  # one size per batch
        assert torch.equal(masked.sum((1, 2)), heights * widths)
        sizes.add((int(heights[0]), int(widths[0])))
    area = math.floor(0.15 * 256)
    rounded = {
        (round(math.sqrt(area * r)), round(math.sqrt(area / r))) for r in torch.linspace(0.75, 1.5, 400).tolist()
    }
    assert sizes == rounded


def test_rectangles_stay_inside_narrow_grids() -> None:
    patches = PatchGrid((2, 32), 1, (False, False))
    masked = one_block(0.7, patches).site_mask(0, 50, seeded()).unflatten(1, (2, 32))
    assert masked.all(dim=1).any(dim=1).all()  # full height, cut from more
    assert not masked.all()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("periodic", [(True,), (False,), (True, True), (True, False)])
def test_sites_of_periodic_axes_are_masked_equally_often(periodic: tuple[bool, ...], kind: int) -> None:
    n_rows, length = 8000, 64 // len(periodic) ** 3
    patches = PatchGrid((length,) * len(periodic), 1, periodic)
    masked = MaskSampler(MaskConfig(), patches).site_mask(kind, n_rows, seeded()).double()
    share = masked.mean(dim=0).reshape(patches.tokens)
    for axis, is_periodic in enumerate(periodic):
        others = [other for other in range(len(periodic)) if other != axis]
        along = share.mean(dim=others) if others else share
        noise = math.sqrt(0.25 / n_rows)
        centre = along[length // 4 : -length // 4].mean()
        if is_periodic:
            assert (along - along.mean()).abs().max() < 5 * noise
        else:
            assert centre - along[0] > 15 * noise
            assert centre - along[-1] > 15 * noise


def test_both_offsets_at_the_ends_are_used() -> None:
    patches = PatchGrid((8,), 1, (False,))
    masked = one_block(0.5, patches).site_mask(0, 5000, seeded())
    starts = masked.int().argmax(dim=1)
    counts = torch.bincount(starts, minlength=8)
    assert counts[5:].sum() == 0
    assert (counts[:5] - 1000).abs().max() < 5 * math.sqrt(5000 * 0.2 * 0.8)


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@CUTS
def test_nothing_waits_for_the_device(cut: Any) -> None:
    """A value that is read back, or a shape that depends on one, would stop a GPU."""
    with _Calls() as calls:
        MaskSampler(MaskConfig(cut=cut), PLANE).sample(0, 4, FRAMES, seeded())
    assert "rand" in calls.names
    assert not calls.names & {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "index", "unique"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scales": (0.1,)}, "one value per type"),
        ({"scales": (0.0, 0.7)}, "scales must be shares"),
        ({"n_context": (0.6, 0.1)}, "must not be more than 1"),
        ({"n_blocks": (0, 2)}, "n_blocks must be 1 or more"),
        ({"aspect": (2.0, 1.0)}, "aspect must be a range"),
        ({"cut": "first"}, "cut must be"),
    ],
)
def test_unusable_settings_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        MaskConfig(**values)


def test_a_frame_of_one_token_cannot_be_masked() -> None:
    with pytest.raises(ConfigError, match="1 tokens per frame cannot be shared out"):
        MaskSampler(MaskConfig(), PatchGrid((4,), 4, (True,)))
