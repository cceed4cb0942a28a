"""Encoder: nothing leaks from tokens that are left out or from other frames; shifts on rings; levels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models.encoder import Encoder, EncoderConfig
from pdejepa.models.patches import PatchGrid

FRAMES, CHANNELS, WIDTH = 4, 2, 24


@pytest.fixture
def make(perturb: Callable, patches: PatchGrid) -> Callable[..., Encoder]:
    def build(n_frames: int = FRAMES, **changes: object) -> Encoder:
        sizes = {"patch": 2, "width": WIDTH, "depth": 4, "heads": 2, "mlp_ratio": 2.0, **changes}
        return perturb(Encoder(EncoderConfig(**sizes), patches, CHANNELS, n_frames))  # type: ignore[arg-type]

    return build


@pytest.fixture
def u(patches: PatchGrid) -> Tensor:
    return torch.randn(2, FRAMES, CHANNELS, *patches.grid)


def choose(patches: PatchGrid, n: int) -> Tensor:
    """Different tokens in each of two rows, in no order."""
    return torch.stack([torch.randperm(FRAMES * patches.n_tokens)[:n] for _ in range(2)])


def changed(u: Tensor, idx: Tensor, patches: PatchGrid) -> Tensor:
    """Fields that differ from u exactly at the tokens idx of each row."""
    tokens = patches.split(u).flatten(1, 2)  # (B,T*N,features)
    noise = torch.zeros(tokens.shape[:2]).scatter(1, idx, 1.0)[..., None]
    tokens = tokens + noise * torch.randn_like(tokens)
    return patches.join(tokens.unflatten(1, (FRAMES, -1)))


@torch.no_grad()
def test_tokens_left_out_are_never_seen(make: Callable, u: Tensor, patches: PatchGrid) -> None:
    encoder, idx = make(), choose(patches, FRAMES * patches.n_tokens)
    kept, dropped = idx.split((10, idx.shape[1] - 10), dim=1)
    before = encoder(u, kept)
    assert before.shape == (2, 10, WIDTH)
    assert torch.equal(encoder(changed(u, dropped, patches), kept), before)
    differs = (encoder(changed(u, kept[:, :1], patches), kept) - before).abs().amax(dim=-1)
    assert (differs > 1e-3).all()  # what is kept is seen by every token


@torch.no_grad()
def test_the_order_of_chosen_tokens_does_not_matter(make: Callable, u: Tensor, patches: PatchGrid) -> None:
    encoder, idx = make(), choose(patches, 9)
    order = torch.randperm(9)
    torch.testing.assert_close(encoder(u, idx[:, order]), encoder(u, idx)[:, order], atol=1e-5, rtol=1e-5)
    everything = torch.arange(FRAMES * patches.n_tokens).expand(2, -1)
    torch.testing.assert_close(encoder(u, everything), encoder(u), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_frames_are_encoded_alone(make: Callable, u: Tensor, patches: PatchGrid) -> None:
    encoder = make()
    alone = encoder.frames(u)
    assert alone.shape == (2, FRAMES, patches.n_tokens, WIDTH)
    other = u.clone()
    other[:, 2] += torch.randn_like(other[:, 2])
    again = encoder.frames(other)
    same = [torch.equal(again[:, t], alone[:, t]) for t in range(FRAMES)]
    assert same == [True, True, False, True]
    together = encoder(u).unflatten(1, (FRAMES, -1))
    assert not torch.allclose(together, alone, atol=1e-2)  # in a clip, frames do see each other


@torch.no_grad()
def test_a_frame_alone_does_not_know_its_time(make: Callable, u: Tensor) -> None:
    encoder = make()
    torch.testing.assert_close(encoder.frames(u.roll(1, 1)), encoder.frames(u).roll(1, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(encoder.frames(u)[:, 3], encoder(u[:, 3:]), atol=1e-5, rtol=1e-5)
    clip = encoder(u).unflatten(1, (FRAMES, -1))
    assert not torch.allclose(encoder(u.roll(1, 1)).unflatten(1, (FRAMES, -1)), clip.roll(1, 1), atol=1e-2)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["ring", "rope"])
def test_on_rings_shifted_fields_give_shifted_tokens(
    make: Callable, u: Tensor, patches: PatchGrid, positions: str
) -> None:
    encoder = make(positions=positions)
    tokens = encoder(u).unflatten(1, (FRAMES, *patches.tokens))
    for axis in range(patches.ndim):
        shifted = encoder(u.roll(2, axis + 3)).unflatten(1, (FRAMES, *patches.tokens))
        off = (shifted - tokens.roll(1, axis + 2)).abs().max()
        assert off < 2e-5 if positions == "ring" else off > 1e-2


@torch.no_grad()
def test_axes_that_are_not_periodic_are_no_rings(perturb: Callable) -> None:
    patches = PatchGrid((8, 12), 2, (True, False))
    sizes = EncoderConfig(patch=2, width=WIDTH, depth=2, heads=2, positions="ring")
    encoder = perturb(Encoder(sizes, patches, 1, 1))
    u = torch.randn(1, 1, 1, 8, 12)
    tokens = encoder(u).unflatten(1, patches.tokens)
    off = [
        (encoder(u.roll(2, axis + 3)).unflatten(1, patches.tokens) - tokens.roll(1, axis + 1)).abs().max()
        for axis in range(2)
    ]
    assert off[0] < 2e-5
    assert off[1] > 1e-2


@torch.no_grad()
def test_shorter_clips_use_the_first_places(make: Callable, u: Tensor) -> None:
    long, short = make(n_frames=FRAMES + 3), make(n_frames=2)
    short.load_state_dict(long.state_dict())
    assert torch.equal(long(u[:, :2]), short(u[:, :2]))
    with pytest.raises(DataError, match="clips of 2 frames or fewer; got 4"):
        short(u)


@torch.no_grad()
def test_levels_are_normalised_features_of_each_quarter(make: Callable, u: Tensor, patches: PatchGrid) -> None:
    encoder, idx = make(depth=8, n_levels=4), choose(patches, 7)
    levels = encoder(u, idx, with_levels=True)
    assert levels.shape == (2, 7, 4 * WIDTH)
    torch.testing.assert_close(levels[..., -WIDTH:], encoder(u, idx))
    tokens = patches.split(u).flatten(1, 2)
    x = encoder.embed(torch.stack([tokens[row, idx[row]] for row in range(2)]))
    for number, block in enumerate(encoder.trunk.blocks, start=1):
        x = block(x, *encoder.rotary(idx))
        if number % 2 == 0:
            place = number // 2 - 1
            expected = encoder.norms[place](x)
            torch.testing.assert_close(levels[..., place * WIDTH : (place + 1) * WIDTH], expected)
    one = make()
    assert torch.equal(one(u, with_levels=True), one(u))


def test_every_part_matters(make: Callable, u: Tensor, lazy_parameters: Callable, idle_parts: Callable) -> None:
    encoder = make(n_levels=4)
    assert lazy_parameters(encoder, encoder(u, with_levels=True)) == []
    assert idle_parts(encoder, lambda: encoder(u)) == []


def test_the_patch_must_be_that_of_the_grid(patches: PatchGrid) -> None:
    with pytest.raises(ConfigError, match="patch 4, but the grid is cut with 2"):
        Encoder(EncoderConfig(patch=4), patches, 1, 1)
