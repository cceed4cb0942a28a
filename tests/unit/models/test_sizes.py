"""Sizes from which no network can be built are refused with every reason."""

from __future__ import annotations

from typing import Any

import pytest

from pdejepa.core.config import load_config, to_dict
from pdejepa.core.errors import ConfigError
from pdejepa.models.causal_predictor import CausalPredictorConfig
from pdejepa.models.decoder import DecoderConfig
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.jepa_predictor import JepaPredictorConfig
from pdejepa.models.projector import ProjectorConfig
from pdejepa.models.surrogate import ModelConfig


@pytest.mark.parametrize(
    ("cls", "values", "words"),
    [
        (EncoderConfig, {"patch": 0}, "patch must be 1 or more"),
        (EncoderConfig, {"heads": 5}, "heads must divide width = 192"),
        (EncoderConfig, {"width": 9, "heads": 3}, "width / heads must be even"),
        (EncoderConfig, {"n_levels": 2}, "n_levels must be 1 or 4"),
        (EncoderConfig, {"depth": 6, "n_levels": 4}, "depth must be a multiple of n_levels"),
        (EncoderConfig, {"positions": "sincos"}, "positions must be one of 'rope', 'ring'"),
        (EncoderConfig, {"mlp_ratio": 0.0}, "mlp_ratio must be positive"),
        (EncoderConfig, {"mlp_ratio": float("nan")}, "mlp_ratio must be positive"),
        (JepaPredictorConfig, {"depth": 0}, "depth must be 1 or more"),
        (CausalPredictorConfig, {"heads": 0}, "heads must be 1 or more"),
        (ProjectorConfig, {"hidden": -1}, "hidden must be 1 or more"),
        (FieldConfig, {"integrator": "rk3"}, "integrator must be one of"),
        (FieldConfig, {"head_hidden": -1}, "head_hidden must be 0"),
        (FieldConfig, {"n_substeps": 0}, "n_substeps must be 1 or more"),
        (DecoderConfig, {"scales": (4,), "widths": (8, 8)}, "scales must be 1 or 2"),
        (DecoderConfig, {"widths": (8, 8)}, "widths must hold 3 values"),
        (DecoderConfig, {"widths": (8, 8), "style": "plain"}, "widths must hold 3 values or more"),
        (DecoderConfig, {"widths": (8, 0, 8)}, "widths must be 1 or more"),
        (ModelConfig, {"encoder": EncoderConfig(patch=8)}, "must be encoder.patch = 8, got 4"),
    ],
)
def test_unusable_sizes_are_refused(cls: type, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cls(**values)


def test_all_reasons_are_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        EncoderConfig(patch=0, heads=5, positions="none")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 3


def test_a_model_is_read_and_written_like_any_configuration() -> None:
    config = load_config(ModelConfig, overrides=["field.integrator=rk2", "encoder.n_levels=4", "decoder.scales=[2, 2]"])
    assert (config.field.integrator, config.encoder.n_levels) == ("rk2", 4)
    assert load_config(ModelConfig, defaults=to_dict(config)) == config
