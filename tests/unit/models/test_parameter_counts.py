"""Numbers of parameters of the networks at full size, built without memory on the meta device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pdejepa.models.causal_predictor import CausalPredictor, CausalPredictorConfig
from pdejepa.models.decoder import Decoder, DecoderConfig
from pdejepa.models.encoder import Encoder, EncoderConfig
from pdejepa.models.jepa_predictor import JepaPredictor, JepaPredictorConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.projector import Projector, ProjectorConfig

LINE = PatchGrid((256,), 4, (True,))
FINE = PatchGrid((64, 64), 4, (True, True))
COARSE = PatchGrid((64, 64), 8, (True, True))
FRAMES = 16


def encoder(patches: PatchGrid, n_channels: int, depth: int, n_levels: int) -> Callable[[], nn.Module]:
    config = EncoderConfig(patch=patches.patch, depth=depth, n_levels=n_levels)
    return lambda: Encoder(config, patches, n_channels, FRAMES)


def predictor(depth: int, n_levels: int) -> Callable[[], nn.Module]:
    config, sizes = JepaPredictorConfig(depth=depth), EncoderConfig(n_levels=n_levels)
    return lambda: JepaPredictor(config, sizes, LINE, FRAMES, n_mask_types=2, has_context_head=True)


def causal(n_conditions: int) -> Callable[[], nn.Module]:
    return lambda: CausalPredictor(CausalPredictorConfig(), EncoderConfig(), LINE, FRAMES, n_conditions)


def residual(patches: PatchGrid, widths: tuple[int, ...], scales: tuple[int, ...], n_channels: int) -> Callable:
    return lambda: Decoder(DecoderConfig(widths, scales=scales), patches, 192, n_channels, "circular")


def plain(*widths: int) -> Callable[[], nn.Module]:
    return lambda: Decoder(DecoderConfig(widths, style="plain", scales=(2, 2)), LINE, 192, 1, "circular")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (encoder(LINE, 1, 12, 1), 5_339_712),
        (encoder(LINE, 1, 12, 4), 5_340_864),
        (encoder(COARSE, 1, 12, 4), 5_352_384),
        (encoder(FINE, 2, 24, 4), 10_684_608),
        (encoder(FINE, 2, 12, 4), 5_346_240),
        (encoder(FINE, 1, 12, 4), 5_343_168),
        (predictor(12, 1), 21_517_056),
        (predictor(12, 4), 22_108_224),
        (predictor(24, 4), 43_401_792),
        (causal(1), 42_736_704),
        (causal(7), 42_739_008),
        (lambda: Projector(192, ProjectorConfig()), 148_416),
        (residual(COARSE, (192, 128, 96, 64), (2, 2, 2), 1), 1_402_081),
        (residual(COARSE, (384, 256, 192, 128), (2, 2, 2), 1), 5_525_569),
        (residual(FINE, (192, 128, 64), (2, 2), 2), 1_216_642),
        (residual(FINE, (192, 128, 96, 64), (1, 2, 2), 2), 1_402_658),
        (plain(204, 148, 103, 54), 271_170),
        (plain(128, 96, 64, 32), 135_585),
    ],
)
def test_number_of_parameters(build: Callable[[], nn.Module], expected: int) -> None:
    with torch.device("meta"):
        module = build()
    assert sum(p.numel() for p in module.parameters()) == expected
    assert all(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))


@pytest.mark.parametrize("build", [encoder(LINE, 1, 2, 1), predictor(2, 1), causal(1)])
def test_positions_are_not_stored_with_the_weights(build: Callable[[], nn.Module]) -> None:
    with torch.device("meta"):
        module = build()
    assert list(module.state_dict()) == [name for name, _ in module.named_parameters()]
