"""What the tests of the transformers share: tasks without solving anything, sizes, and shaken weights."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor, nn

from pdejepa import systems
from pdejepa.baselines.baseline import Baseline
from pdejepa.baselines.task import Task
from pdejepa.core.seeds import Draws
from pdejepa.models.condition import fit_statistics

Kind = TypeVar("Kind", bound=nn.Module)


@cache
def task_of(name: str, n_points: int = 0, n_environments: int = 6) -> Task:
    """The task of a system with drawn parameters and rough fields: enough for everything but accuracy."""
    system = systems.get(name, **({"n_points": n_points} if n_points else {}))
    xi = parameters(name, 6)
    fields = rough(name, 6, 2, n_points)
    mean, std = xi.mean(0), xi.std(0)
    return Task(
        problem=system.problem,
        statistics=fit_statistics(system.problem, fields, xi),
        xi_mean=tuple(mean.tolist()),
        xi_std=tuple(torch.where(std > 0, std, 1.0).tolist()),
        n_environments=n_environments,
        n_train=system.split("train").n,
        has_support=True,
    )


def parameters(name: str, n: int) -> Tensor:
    """(n,P) of the train split."""
    system = systems.get(name)
    return system.environment(system.split("train"), Draws(name, "train", "environment", 0, torch.arange(n)))


def rough(name: str, n: int, n_frames: int, n_points: int = 0) -> Tensor:
    """Fields (n,T,C,*grid) of unit spread."""
    system = systems.get(name, **({"n_points": n_points} if n_points else {}))
    draws = torch.Generator().manual_seed(7)
    return torch.randn((n, n_frames, len(system.fields), *system.grid), generator=draws)


def millions(solver: type[Baseline], name: str, recipe: str = "paper") -> float:
    """Weights of a recipe, in millions."""
    return count(on_meta(solver, name, recipe)) / 1e6


def on_meta(solver: type[Baseline], name: str, recipe: str = "paper") -> Baseline:
    task = task_of(name)
    with torch.device("meta"):
        return solver(solver.recipe(recipe, task).model, task)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def shape_hash(module: nn.Module) -> str:
    """16 hexadecimal digits of the SHA-256 of all names and shapes, sorted lines such as `pos_embed (1, 1024, 16)`."""
    lines = sorted(f"{name} {tuple(value.shape)}" for name, value in module.state_dict().items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@torch.no_grad()
def shaken(module: Kind, size: float = 0.05) -> Kind:
    """Weights that start at zero hide what stands behind them; on every device they are shaken alike."""
    torch.manual_seed(3)
    for p in module.parameters():
        p.add_(size * torch.randn(p.shape, dtype=p.dtype).to(p.device))
    return module
