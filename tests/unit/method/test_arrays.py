"""Trajectories in memory, of an equation that has no class: trained, saved, loaded and forecast."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

import pdejepa
from pdejepa.core.errors import CheckpointError
from pdejepa.data.source import Arrays
from pdejepa.method.chain import train_stages
from pdejepa.method.load_data import from_source
from pdejepa.method.pipeline import details
from pdejepa.method.recipes import derived
from pdejepa.method.run_config import map_training
from pdejepa.method.save_model import save_model
from pdejepa.systems.problem import Axis, Parameter, Problem, Structure, Term, Uniform, power
from pdejepa.training.settings import Budget, StageTraining
from pdejepa.training.stage import silent

CPU = torch.device("cpu")
PROBLEM = Problem(
    name="mine",
    fields=("u",),
    axes=(Axis("x", tuple(i / 32 for i in range(32)), "periodic"),),
    times=(0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
    parameters=(Parameter("speed", "c", "speed", Uniform(0.0, 1.0), (0.0, 2.0)),),
    structure=Structure((Term("speed", "c", power("speed"), "rms", "u_x"),), has_shared=False),
)


def waves() -> Arrays:
    """u = sin 2 pi (x - c t / 6): 16 trajectories for training and 4 for valid."""
    c, x, t = torch.linspace(0.0, 1.0, 20, dtype=torch.float64), torch.arange(32) / 32, torch.arange(6)
    u = torch.sin(2 * math.pi * (x - c[:, None, None] * t[:, None] / 6))[:, :, None]  # (n,T,1,X)
    chosen = {"train": [i for i in range(20) if i % 5], "valid": [0, 5, 10, 15]}
    xi = {split: c[rows, None] for split, rows in chosen.items()}
    return Arrays(PROBLEM, {split: u[rows].float() for split, rows in chosen.items()}, xi)


def short(_: str, training: StageTraining) -> StageTraining:
    return dataclasses.replace(training, budget=Budget(steps=2), batch=4)


def test_from_arrays_to_a_forecast(tmp_path: Path) -> None:
    config = map_training(derived.get(PROBLEM, "tiny"), short)
    pretrain = dataclasses.replace(config.pretrain, one_frame_clips=4)
    config = dataclasses.replace(config, device="cpu", counts={"train": 16, "valid": 4}, pretrain=pretrain)
    data = from_source(config, waves(), CPU, show=False)
    trained = train_stages(config, tmp_path / "run", silent, data=data)
    save_model(trained.model, tmp_path / "model", details(trained, is_polished=False))
    card = (tmp_path / "model/README.md").read_text()
    assert "there is no command; the settings of the training are in `config.json`" in card
    model = pdejepa.load(tmp_path / "model", "cpu")
    out = model.forecast(waves().fields["valid"][:, 0], speed=0.5)
    assert out.fields.shape == (4, 6, 1, 32)
    assert out.support.n_frames == 6
    with pytest.raises(CheckpointError, match="The system 'mine' is not known here, so nothing can be sampled"):
        _ = model.system
