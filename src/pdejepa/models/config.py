"""Sizes of all networks, as frozen dataclasses that refuse values no network can be built from.

    encoder            u -> z            vision transformer over patches
    jepa_predictor     z_context -> z_target
    projector          q = z + residual(z)
    causal_predictor   q_0..q_t -> q_{t+1} - q_t
    field              dq/ds = f(q, r)   latent ordinary differential equation
    decoder            q -> u            convolutions on the map of tokens

Letters: width and depth of a transformer, heads per attention, mlp_ratio = hidden width of a block's MLP / width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import field as part  # `field` is a network here
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pdejepa.core.errors import ConfigError

MAX_SCALE = 2  # the upsampling stencil doubles a grid; larger factors are several doublings


@dataclass(frozen=True)
class EncoderConfig:
    """`n_levels` = 4 also returns the features after one, two and three quarters of the depth."""

    patch: int = 4
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: float = 4.0
    positions: Literal["rope", "ring"] = "rope"
    n_levels: int = 1

    def __post_init__(self) -> None:
        problems = [*_sizes(self, "patch"), *_transformer(self), *_choices(self)]
        if self.n_levels not in (1, 4):
            problems.append(f"n_levels must be 1 or 4, got {self.n_levels}.")
        elif self.depth % self.n_levels:
            problems.append(f"depth must be a multiple of n_levels = {self.n_levels}, got {self.depth}.")
        _refuse(problems)


@dataclass(frozen=True)
class JepaPredictorConfig:
    width: int = 384
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        _refuse(_transformer(self))


@dataclass(frozen=True)
class ProjectorConfig:
    hidden: int = 384

    def __post_init__(self) -> None:
        _refuse(_sizes(self, "hidden"))


@dataclass(frozen=True)
class CausalPredictorConfig:
    width: int = 384
    depth: int = 24
    heads: int = 12
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        _refuse(_transformer(self))


@dataclass(frozen=True)
class FieldConfig:
    """The latent vector field and how it is integrated; `head_hidden` = 0 is a LayerNorm and one Linear.

    forcing: what the field is told of a known forcing: its values, or (constant ones only) the numbers that describe
    it, each as one more coefficient r with a response of its own.
    """

    width: int = 384
    depth: int = 24
    heads: int = 12
    mlp_ratio: float = 4.0
    positions: Literal["rope", "ring", "sincos"] = "rope"
    head_hidden: int = 0
    head_bias: Literal["all", "shared"] = "all"
    film: bool = False
    forcing: Literal["field", "scalar"] = "field"
    forcing_layers: int = 2
    startup_depth: int = 2
    integrator: Literal["euler", "rk2", "rk4", "rk8"] = "rk4"
    n_substeps: int = 4
    time_unit: Literal["frame", "physical"] = "frame"
    coordinate: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        problems = [*_transformer(self), *_choices(self)]
        problems += _sizes(self, "forcing_layers", "startup_depth", "n_substeps")
        if self.head_hidden < 0:
            problems.append(f"head_hidden must be 0 (one Linear) or a width, got {self.head_hidden}.")
        _refuse(problems)


@dataclass(frozen=True)
class DecoderConfig:
    """`widths` of the maps, finest last; `scales` are the upsampling factors between them, with product `patch`.

    The style `patches` has no scales: a token becomes its patch at once, and all maps are as fine as the grid.
    """

    widths: tuple[int, ...] = (192, 128, 96)
    n_blocks: int = 1
    style: Literal["residual", "plain", "patches"] = "residual"
    scales: tuple[int, ...] = (2, 2)

    def __post_init__(self) -> None:
        problems = [*_sizes(self, "n_blocks"), *_choices(self)]
        if not self.widths or any(width < 1 for width in self.widths):
            problems.append(f"widths must be 1 or more each, got {self.widths}.")
        if any(scale not in range(1, MAX_SCALE + 1) for scale in self.scales):
            problems.append(f"scales must be 1 or 2 each, got {self.scales}.")
        n_maps = len(self.scales) + 1
        if self.style == "residual" and len(self.widths) != n_maps:
            problems.append(f"widths must hold {n_maps} values for {n_maps - 1} scales, got {len(self.widths)}.")
        if self.style == "plain" and len(self.widths) < n_maps:
            problems.append(f"widths must hold {n_maps} values or more for these scales, got {len(self.widths)}.")
        _refuse(problems)


@dataclass(frozen=True)
class ModelConfig:
    """All networks of one surrogate."""

    encoder: EncoderConfig = part(default_factory=EncoderConfig)
    jepa_predictor: JepaPredictorConfig = part(default_factory=JepaPredictorConfig)
    projector: ProjectorConfig = part(default_factory=ProjectorConfig)
    causal_predictor: CausalPredictorConfig = part(default_factory=CausalPredictorConfig)
    field: FieldConfig = part(default_factory=FieldConfig)
    decoder: DecoderConfig = part(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        product = math.prod(self.decoder.scales)
        if product != self.encoder.patch and self.decoder.style != "patches":
            raise ConfigError(
                f"The product of decoder.scales must be encoder.patch = {self.encoder.patch}, got {product} "
                f"from {self.decoder.scales}."
            )


def _sizes(config: Any, *names: str) -> list[str]:
    values = {name: getattr(config, name) for name in names}
    return [f"{name} must be 1 or more, got {value}." for name, value in values.items() if value < 1]


def _transformer(config: Any) -> list[str]:
    """Faults of width, depth, heads and mlp_ratio; rotary positions turn pairs of features of one head."""
    problems = _sizes(config, "width", "depth", "heads")
    if not problems and config.width % config.heads:
        problems.append(f"heads must divide width = {config.width}, got {config.heads}.")
    elif not problems and config.width // config.heads % 2:
        problems.append(f"width / heads must be even, got {config.width} / {config.heads}.")
    if not (math.isfinite(config.mlp_ratio) and config.width * config.mlp_ratio >= 1):
        problems.append(f"mlp_ratio must be positive and give a hidden width of 1 or more, got {config.mlp_ratio}.")
    return problems


def _choices(config: Any) -> list[str]:
    """Faults of all Literal fields, for configurations that were not read from a file."""
    problems = []
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            options = ", ".join(map(repr, get_args(hint)))
            problems.append(f"{name} must be one of {options}; got {getattr(config, name)!r}.")
    return problems


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError(" ".join(problems), problems)
