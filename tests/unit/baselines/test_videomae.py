"""VideoMAE: its size, tubes, targets, clips, and the same numbers as the implementation of the transformers library."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.blocks.tokens import choose, tubes
from pdejepa.baselines.videomae import VideoMae, VideoMaeConfig
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of

TINY = VideoMaeConfig(
    patch=8, n_frames=4, width=16, depth=2, heads=2, decoder_width=12, decoder_depth=2, decoder_heads=2, masked=0.75
)


def tiny(name: str = "gray_scott") -> VideoMae:
    torch.manual_seed(0)
    return shaken(VideoMae(TINY, task_of(name)))


def test_size() -> None:
    solver = on_meta(VideoMae, "vorticity")
    assert round(count(solver.encoder) / 1e6, 2) == 9.61
    assert round(count(solver) / 1e6, 1) == 10.5
    assert solver.cut.patches.tokens == (8, 8)


@pytest.mark.parametrize(
    ("name", "n_sites", "n_seen", "n_frames"), [("combined", 16, 2, 14), ("gray_scott", 64, 7, 16)]
)
def test_places_and_frames(name: str, n_sites: int, n_seen: int, n_frames: int) -> None:
    solver = on_meta(VideoMae, name)
    assert (solver.n_sites, solver.n_seen, solver.n_frames) == (n_sites, n_seen, n_frames)


def test_targets_are_standardised_per_channel() -> None:
    solver, u = tiny(), 3.0 + 5.0 * rough("gray_scott", 2, 4)
    x = solver.targets(solver.cut.split(u)).unflatten(-1, (2, 2, -1))  # (B,n,t,C,p^2)
    torch.testing.assert_close(x.mean((2, 4)), torch.zeros(2, 32, 2), rtol=0, atol=1e-5)
    torch.testing.assert_close(x.std((2, 4)), torch.ones(2, 32, 2), rtol=1e-4, atol=0)


def test_hidden_places_stay_hidden() -> None:
    """What stands at masked places changes the loss through the target only."""
    solver, u = tiny(), rough("gray_scott", 1, 4)
    seen, masked = (tubes(s, 2, 16) for s in choose(torch.rand(1, 16), solver.n_seen))
    x = solver.cut.split(u)
    before = solver.decoder(solver.encoder(x, seen), seen, masked)
    x[0, masked[0]] += 1.0
    assert torch.equal(solver.decoder(solver.encoder(x, seen), seen, masked), before)
    x[0, seen[0, 0]] += 1.0
    assert not torch.allclose(solver.decoder(solver.encoder(x, seen), seen, masked), before)


def test_published_clips_of_thirty_frames() -> None:
    places = on_meta(VideoMae, "vorticity").clips(30)
    assert places == [(0, k) for k in range(8)] + [(14, k) for k in range(1, 8)]


@torch.no_grad()
def test_features_come_from_the_earliest_clip() -> None:
    solver, u = tiny(), rough("gray_scott", 2, 7)  # clips 0-3 and 2-5; frame 6 has no partner
    assert solver.clips(7) == [(0, 0), (0, 1), (2, 1)]
    z = solver.encode(u)
    assert z.shape == (2, 3, 16, 16)
    early, late = (solver.encoder(solver.cut.split(u[:, k : k + 4])).unflatten(1, (2, 16)) for k in (0, 2))
    torch.testing.assert_close(z, torch.cat((early, late[:, 1:]), 1))
    with pytest.raises(ConfigError, match="clips of 4 frames; got only 3"):
        solver.encode(u[:, :3])


def test_it_does_not_forecast() -> None:
    with pytest.raises(ConfigError, match="does not forecast"):
        tiny().rollout(rough("gray_scott", 1, 4), {}, 1)


def test_too_few_places_are_refused() -> None:
    with pytest.raises(ConfigError, match="must leave some, not all, visible"):
        VideoMae(VideoMaeConfig(patch=8, n_frames=4, masked=0.01), task_of("gray_scott"))


# ---- the other implementation ----------------------------------------------------------------------------------------
def copy_blocks(ours: Any, theirs: Any) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        looks = other.attention.attention
        mine.attention.qkv.weight.copy_(torch.cat((looks.query.weight, looks.key.weight, looks.value.weight)))
        mine.attention.q_bias.copy_(looks.query.bias)
        mine.attention.v_bias.copy_(looks.value.bias)
        pairs = (
            (mine.attention.out, other.attention.output.dense),
            (mine.ffn.hidden, other.intermediate.dense),
            (mine.ffn.out, other.output.dense),
            (mine.norm1, other.layernorm_before),
            (mine.norm2, other.layernorm_after),
        )
        for a, b in pairs:
            a.load_state_dict(b.state_dict())


def pixels_last(x: Tensor) -> Tensor:
    """Values of a token from (frame, channel, point) to (frame, point, channel), on the first axis."""
    return x.unflatten(0, (2, 2, 64)).transpose(1, 2).flatten(0, 2)


@pytest.mark.oracle
@torch.no_grad()
def test_same_loss_as_transformers() -> None:
    library = pytest.importorskip("transformers")
    config = library.VideoMAEConfig(
        image_size=32, patch_size=8, num_channels=2, num_frames=4, tubelet_size=2, hidden_size=16,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, decoder_hidden_size=12,
        decoder_num_hidden_layers=2, decoder_num_attention_heads=2, decoder_intermediate_size=48,
        use_mean_pooling=False,
    )  # fmt: skip
    theirs = shaken(library.VideoMAEForPreTraining(config)).eval()
    ours = tiny()
    kernel = theirs.videomae.embeddings.patch_embeddings.projection
    ours.encoder.embed.weight.copy_(kernel.weight.transpose(1, 2).flatten(1))  # (frame, channel, point)
    ours.encoder.embed.bias.copy_(kernel.bias)
    copy_blocks(ours.encoder.blocks, theirs.videomae.encoder.layer)
    copy_blocks(ours.decoder.blocks, theirs.decoder.decoder_layers)
    ours.encoder.norm.load_state_dict(theirs.videomae.layernorm.state_dict())
    ours.decoder.norm.load_state_dict(theirs.decoder.norm.state_dict())
    ours.decoder.narrow.load_state_dict(theirs.encoder_to_decoder.state_dict())
    ours.decoder.mask.copy_(theirs.mask_token.flatten())
    order = pixels_last(torch.arange(256))
    ours.decoder.head.weight[order] = theirs.decoder.head.weight
    ours.decoder.head.bias[order] = theirs.decoder.head.bias

    u, noise = rough("gray_scott", 2, 4), torch.rand(2, 16)
    masked = tubes(choose(noise, ours.n_seen)[1], 2, 16)
    is_masked = torch.zeros(2, 32, dtype=torch.bool).scatter(1, masked, True)
    expected = theirs(u, bool_masked_pos=is_masked).loss
    torch.testing.assert_close(ours.loss("fit", {"u": u, "noise": noise})["loss"], expected, rtol=1e-4, atol=0)
