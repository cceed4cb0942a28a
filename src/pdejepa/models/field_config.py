"""Sizes of the latent vector field and how it is integrated; several networks are built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdejepa.models.sizes import choice_faults, refuse, size_faults, transformer_faults


@dataclass(frozen=True)
class FieldConfig:
    """The latent vector field and how it is integrated; `head_hidden` = 0 is a LayerNorm and one Linear.

    forcing: what the field is told of a known forcing: its values, or (constant ones only) the numbers that describe
    it, each as one more coefficient r with a response of its own.
    integrator: exact is for linear waves only, whose field then is linear as well (`models.waves`).
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
    integrator: Literal["euler", "rk2", "rk4", "rk8", "exact"] = "rk4"
    n_substeps: int = 4
    time_unit: Literal["frame", "physical"] = "frame"
    coordinate: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        problems = [*transformer_faults(self), *choice_faults(self)]
        problems += size_faults(self, "forcing_layers", "startup_depth", "n_substeps")
        if self.head_hidden < 0:
            problems.append(f"head_hidden must be 0 (one Linear) or a width, got {self.head_hidden}.")
        refuse(problems)
