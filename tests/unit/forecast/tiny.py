"""Untrained models that are small enough for tests, of every system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pdejepa import systems
from pdejepa.forecast.forecaster import Forecast, Forecaster
from pdejepa.forecast.support import Support
from pdejepa.method.save_model import save_model
from pdejepa.models.condition import Statistics
from pdejepa.models.decoder import DecoderConfig
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.projector import ProjectorConfig
from pdejepa.models.surrogate import ModelConfig, Surrogate
from pdejepa.systems import System

CPU = torch.device("cpu")
CONFIG = ModelConfig(
    encoder=EncoderConfig(patch=8, width=16, depth=1, heads=2, mlp_ratio=2.0),
    projector=ProjectorConfig(hidden=16),
    field=FieldConfig(width=16, depth=1, heads=2, mlp_ratio=2.0, n_substeps=1, forcing_layers=1, startup_depth=1),
    decoder=DecoderConfig(widths=(8, 8, 8, 8), scales=(2, 2, 2)),
)
DETAILS: dict[str, Any] = {"recipe": "tiny", "seed": 3, "size": "tiny", "device": "cpu", "seconds": {"total": 1.5}}


def statistics(system: System) -> Statistics:
    """As if fitted on parameters that fill the declared training ranges."""
    low, high = (torch.tensor([p.train[i] for p in system.parameters], dtype=torch.float64) for i in (0, 1))
    fitted = system.coefficients(torch.stack((low, high)))
    pairs = zip(fitted.centre.tolist(), fitted.scale.tolist(), strict=True)
    return Statistics(
        mean=(0.1,) * len(system.fields),
        std=(0.7,) * len(system.fields),
        ranges={p.name: p.train for p in system.parameters},
        coefficients=dict(zip(fitted.names, pairs, strict=True)),
    )


def surrogate(name: str, variant: str = "physics", history: int = 1, seed: int = 0, speed: float = 0.0) -> Surrogate:
    """An untrained model; heads start near zero, `speed` times as large they make frames that visibly differ."""
    system = systems.get(name).at_size("tiny")
    speed = speed or (3.0 if system.structure.time_order == 2 else 30.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Surrogate(system.problem, CONFIG, variant, statistics(system), history)  # type: ignore[arg-type]
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.ndim == 2 and ("head" in key or "forced.out" in key):
                value.mul_(speed)
    return model.eval().requires_grad_(False)


def forecaster(name: str, **options: Any) -> Forecaster:
    return Forecaster(surrogate(name, **options), dict(DETAILS), CPU)


def saved(name: str, folder: Path, details: dict[str, Any] | None = None, **options: Any) -> Path:
    """A model folder."""
    save_model(surrogate(name, **options), folder, {**DETAILS, **(details or {})})
    return folder


def state(system: System, n: int = 1, seed: int = 0) -> torch.Tensor:
    """Random smooth frames (n,C,*grid)."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn((n, len(system.fields), *[4] * system.ndim), generator=generator)
    mode = "linear" if system.ndim == 1 else "bilinear"
    return torch.nn.functional.interpolate(coarse, size=system.grid, mode=mode)


def told(result: Forecast) -> Support:
    """What is said of a request, but for the observed frames: an untrained model does not see them as they are."""
    return replace(result.support, unlike="")


def middle(system: System) -> dict[str, float]:
    """A value inside the training range of every parameter."""
    return {p.name: p.train[0] if p.choices else (p.train[0] + p.train[1]) / 2 for p in system.parameters}
